"""Tests and intervals keep their promises in a short form of benchmarks/levels.py; bounds are those of chance."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
import scipy.stats

REPETITIONS = 40


@pytest.fixture(scope="module")
def levels() -> ModuleType:
    place = Path(__file__).resolve().parents[2] / "benchmarks" / "levels.py"
    spec = importlib.util.spec_from_file_location("levels", place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look their module up.
    sys.modules["levels"] = module
    spec.loader.exec_module(module)
    return module


def is_chance(hits: int, tries: int, share: float) -> bool:
    """Whether so many hits, or so few, come up once in a thousand times or more often."""
    low, high = scipy.stats.binom.ppf([0.0005, 0.9995], tries, share)
    return bool(low <= hits <= high)


@pytest.mark.slow
def test_equal_systems_are_found_different_as_rarely_as_the_level_says(levels: ModuleType) -> None:
    found = levels.by_documents(60, REPETITIONS, resamples=99)
    for name in ("micro_f1", "hf1", "macro_f1", "micro sign test"):
        # Not more often than the level; ties between permutations of few documents make it rarer.
        assert found.level[name].tries == REPETITIONS
        assert found.level[name].hits <= scipy.stats.binom.ppf(0.9995, REPETITIONS, levels.LEVEL), name
    for name in ("micro_f1", "difference of micro_f1", "hf1", "difference of hf1"):
        assert is_chance(found.covered[name].hits, found.covered[name].tries, 0.95), name
    # Of 104 labels hardly any has five documents.
    assert found.printed["macro_f1"].hits == found.printed["difference of macro_f1"].hits == 0
    assert "macro_f1" not in found.covered


@pytest.mark.slow
def test_macro_averages_are_covered_where_labels_have_documents(levels: ModuleType) -> None:
    found = levels.by_documents(4000, 8, resamples=50)
    for name in ("macro_f1", "difference of macro_f1"):
        assert found.printed[name].hits == 8
        assert is_chance(found.covered[name].hits, 8, 0.95), name


@pytest.mark.slow
def test_few_groups_are_no_evidence_and_have_wide_intervals(levels: ModuleType) -> None:
    found = levels.by_groups(4, REPETITIONS, resamples=99)
    for name in ("micro_f1", "hf1", "macro_f1", "micro sign test"):
        # Of the 16 ways to exchange four groups two look like the sample: p is 1/8 at least.
        assert found.level[name].hits <= 1, name
    for name in ("micro_f1", "difference of micro_f1"):
        assert is_chance(found.covered[name].hits, found.covered[name].tries, 0.95), name


def test_the_program_prints_a_table(
    levels: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["levels.py", "--repetitions", "2", "--resamples", "9", "--documents", "30", "--groups", "3"]
    monkeypatch.setattr(sys, "argv", arguments)
    levels.main()
    printed = capsys.readouterr().out
    for part in (
        "level by documents",
        "power by documents",
        "covered by groups",
        "micro sign test",
        "t-test of labels",
    ):
        assert part in printed
