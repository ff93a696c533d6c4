"""Memory of processes that runs start."""

import os
import sys

import numpy as np
import pytest

from treelabel.experiment.process_tree import peak_of, run_watched


@pytest.mark.skipif(sys.platform != "linux", reason="peaks of other processes are Linux's")
@pytest.mark.slow
def test_a_command_has_its_own_peak_and_not_that_of_who_started_it() -> None:
    """The kernel's ru_maxrss of a small command would be at least the memory of the process that starts it."""
    before = np.ones(40_000_000)
    small = run_watched([sys.executable, "-c", "import time; time.sleep(0.5)"])
    large = run_watched([sys.executable, "-c", "import time; b = bytearray(200_000_000); time.sleep(0.5)"])
    assert small[0] == large[0] == 0
    assert peak_of(os.getpid()) > before.nbytes
    assert small[1] < 1e8 < 2e8 < large[1] < 3e8


def test_a_command_that_fails_tells_its_status() -> None:
    """A status above 0 is handed on; a command that was killed has a negative one."""
    assert run_watched([sys.executable, "-c", "raise SystemExit(3)"])[0] == 3
    assert run_watched([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"])[0] == -9
