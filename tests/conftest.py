"""Hypothesis without time limits, as compiled code is slow the first time; in CI the same examples in every run.

HYPOTHESIS_PROFILE=quick, which `make quick` sets, tries ten examples at most.
"""

import gc
import math
import os
from pathlib import Path

import pytest
from hypothesis import settings

from tests.helpers import Ended, Run
from treelabel.cli import main
from treelabel.core import compilation

# Lines stay whole, as in a pipe. Python's readline, which pytest loads, sets COLUMNS behind os.environ.
os.environ.pop("COLUMNS", None)
os.unsetenv("COLUMNS")

settings.register_profile("treelabel", deadline=None, derandomize="CI" in os.environ)
settings.register_profile("quick", settings.get_profile("treelabel"), max_examples=10)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "treelabel"))


# Collecting and running tests makes many objects that stay: garbage is looked for less often than usual.
gc.set_threshold(50_000, 20, 20)

# What takes longest begins first, so that no process waits for a long file at the end.
LONGEST = (
    "experiment/test_running.py",
    "neural/test_neural.py",
    "models/test_models.py",
    "neural/test_systems.py",
    "cli/test_warm_up.py",
    "rules/test_rules.py",
    "models/test_same_bits.py",
    "metrics/test_metrics.py",
    "neural/test_bag.py",
    "report/test_page.py",
    "core/test_atomic_output.py",
    "data/test_hostile_inputs.py",
    "data/test_shared_data.py",
    "operations/test_fit.py",
    "experiment/test_specs.py",
    "neural/test_processes.py",
    "scores/test_scores.py",
    "test_pages.py",
    "experiment/test_bench_cli.py",
    "neural/test_tuning.py",
    "encoders/test_encoders.py",
    "test_examples.py",
    "test_types.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest files; the others stay in their order."""
    ranks = {Path(__file__).parent / name: rank for rank, name in enumerate(LONGEST)}
    items.sort(key=lambda item: ranks.get(item.path, len(LONGEST)))


def pytest_collection_finish() -> None:
    """Let the garbage collector pass over the modules and the thousands of tests: they stay until the end."""
    gc.freeze()


@pytest.fixture(autouse=True)
def no_word_of_compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Say nothing of loops that are compiled for the first time: that may happen in any test."""
    monkeypatch.setattr(compilation, "WORTH_A_WORD", math.inf)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Call the command line in this process."""

    def call(*arguments: str | Path) -> Ended:
        with pytest.raises(SystemExit) as stop:
            main([str(argument) for argument in arguments])
        assert isinstance(stop.value.code, int)
        return Ended(stop.value.code, *capsys.readouterr())

    return call
