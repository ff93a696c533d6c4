"""First use: what is said while loops are compiled, and that several processes compile each of them once."""

import gc
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from treelabel.core.code_cache import Turn
from treelabel.core.compilation import MESSAGE, Compilation, compilation

LOOPS = """from treelabel.core.compute import kernel


@kernel
def double(values):
    for at in range(len(values)):
        values[at] *= 2


@kernel
def change(values):
    double(values)
    double(values)
    return values
"""
# Prints when compiling began and ended, and which loops came from the cache.
CALL = """
import time
import numpy as np
from numba.core import event
began = []
class Watch(event.Listener):
    def on_start(self, event): began.append(event.data["dispatcher"].py_func.__name__)
    def on_end(self, event): pass
import loops
event.register("numba:compile", Watch())
print(loops.change(np.ones(2)).tolist(), sorted({"double", "change"} & set(began)))
"""


def start(folder: Path) -> "subprocess.Popen[str]":
    """Run Python with its compiled code in a folder."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(folder), *sys.path]),
        "NUMBA_CACHE_DIR": str(folder / "compiled"),
    }
    return subprocess.Popen([sys.executable, "-c", CALL], env=environment, stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_processes_that_start_together_compile_each_loop_once(tmp_path: Path) -> None:
    (tmp_path / "loops.py").write_text(LOOPS)
    processes = [start(tmp_path) for _ in range(3)]
    found = [process.communicate()[0].strip() for process in processes]
    assert all(line.startswith("[4.0, 4.0]") for line in found)
    compiled = sorted(name for line in found for name in ("double", "change") if f"'{name}'" in line)
    assert compiled == ["change", "double"], found
    assert not list(tmp_path.rglob("*.lock"))


def test_a_turn_waits_for_the_process_that_has_it_and_ends_with_it(tmp_path: Path) -> None:
    file = tmp_path / "loop.lock"
    held = (
        "import sys, time; from pathlib import Path; from treelabel.core.code_cache import Turn; "
        "Turn(Path(sys.argv[1])).take(); print('taken', flush=True); time.sleep(0.5)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    other = subprocess.Popen(
        [sys.executable, "-c", held, str(file)], env=environment, stdout=subprocess.PIPE, text=True
    )
    assert other.stdout is not None
    assert other.stdout.readline() == "taken\n"
    turn, started = Turn(file), time.monotonic()
    assert turn.take()
    # It ended without leaving its turn, which is over all the same.
    assert other.wait() == 0 or time.monotonic() - started >= 0.1
    assert not turn.take()
    turn.end()
    assert not file.exists()
    assert turn.take()
    turn.end()
    other.communicate()


def test_a_folder_that_cannot_be_written_is_waited_for_by_nobody(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert not Turn(tmp_path / "file" / "loop.lock").take()


def test_it_is_said_once_and_only_when_it_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    now, said = [0.0], list[str]()
    monkeypatch.setattr("treelabel.core.compilation.time.monotonic", lambda: now[0])
    watched = Compilation()
    with watched.announce(said.append, after=1.0):
        for _ in range(9):
            with watched.going_on(), watched.going_on():
                now[0] += 0.1
            now[0] += 100
        assert said == []
        with watched.going_on():
            now[0] += 0.2
            watched.look()
            watched.look()
    assert said == [MESSAGE]
    with watched.going_on():
        now[0] += 10
    assert said == [MESSAGE]
    with watched.announce(said.append, after=1.0), watched.going_on():
        now[0] += 0.5
    assert said == [MESSAGE]


@pytest.mark.parametrize("enabled", [True, False])
def test_garbage_is_collected_again_afterwards_if_it_was_before(enabled: bool) -> None:
    before = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        with compilation.going_on(), compilation.going_on():
            assert not gc.isenabled()
        assert gc.isenabled() == enabled
    finally:
        (gc.enable if before else gc.disable)()
