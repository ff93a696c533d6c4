"""The tool that changes the code in small ways: which changes it knows, and that it leaves a copy as it was."""

from collections import Counter
from pathlib import Path

import pytest
from tools.mutate import LIMIT_SECONDS, ROOMS, draw, find_mutations, measure_tests, try_mutation, without_loops

FILE = "src/treelabel/metrics/pair.py"
FILES = {
    FILE: "def is_larger(a, b):\n    return a > b\n",
    "src/treelabel/__init__.py": "",
    "src/treelabel/metrics/__init__.py": "",
    "tests/metrics/test_pair.py": "from treelabel.metrics.pair import is_larger\n"
    "def test_larger():\n    assert is_larger(2, 1)\n",
    "pytest.ini": "[pytest]\nmarkers = slow\n",
}


def changes(source: str) -> list[str]:
    return [f"{each.before} {each.after}".strip() for each in find_mutations(source)]


def test_every_kind_of_change() -> None:
    assert changes("a < b <= c") == ["< <=", "<= <"]
    assert changes("x = not (a and b) or 3") == ["not", "and or", "or and", "3 4"]
    assert changes("np.maximum(a, 0.5) * any(é for é in b)") == ["maximum minimum", "0.5 1.5", "* /", "any all"]


def test_what_nobody_sees_is_left_alone() -> None:
    assert changes("THREAD_ROWS = 1 << 20") == []
    assert changes("FIRST_PIECE, MOST = 1 << 14, 200") == ["200 201"]
    assert changes("list(zip(a, b, strict=True))") == []
    assert changes("over_rows(f, 5, least=8)") == ["5 6"]
    assert changes("other(f, 5, least=8)") == ["5 6", "8 9"]
    assert changes("sorted(a, reverse=True)") == ["True False"]
    assert changes("raise ValueError(1)") == changes("a: Literal[1]") == changes("f'{1}'") == []


@pytest.mark.slow
def test_the_same_seed_draws_the_same_of_every_room() -> None:
    drawn = draw(5, 14, list(ROOMS))
    assert drawn == draw(5, 14, list(ROOMS))
    assert drawn != draw(6, 14, list(ROOMS))
    assert Counter(each.room for each in drawn) == dict.fromkeys(ROOMS, 2)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Make a repository of one function and its test."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.slow
def test_a_test_that_fails_kills_and_all_is_as_before(copy: Path) -> None:
    file, tests = copy / FILE, copy / "tests/metrics/test_pair.py"
    loops = [file.parent / "__pycache__" / name for name in ("pair.is_larger-1.py311.nbi", "caller.first-1.0a.loop")]
    loops[0].parent.mkdir()
    for loop in loops:
        loop.write_text("compiled")
    written = file.stat().st_mtime_ns
    (mutation,) = find_mutations(file.read_text(), "metrics", FILE)
    assert try_mutation(mutation, copy, ["tests"], 300) is False
    tests.write_text(tests.read_text() + "    assert not is_larger(1, 1)\n")
    assert try_mutation(mutation, copy, ["tests"], 300) is True
    assert try_mutation(mutation, copy, ["tests"], 0.01) is None
    assert (file.read_text(), file.stat().st_mtime_ns) == (FILES[FILE], written)
    assert [loop.read_text() for loop in loops] == ["compiled"] * 2


@pytest.mark.slow
def test_nothing_is_tried_with_tests_that_fail_anyway(copy: Path) -> None:
    assert measure_tests("The tests", ["tests"], copy) > LIMIT_SECONDS
    (copy / FILE).write_text(FILES[FILE].replace(">", "<"))
    with pytest.raises(SystemExit, match=r"The tests fail without a mutation(.|\n)*assert is_larger"):
        measure_tests("The tests", ["tests"], copy)


def test_loops_of_a_file_and_of_those_that_import_it_are_compiled_again(tmp_path: Path) -> None:
    sources = {
        "pair": "",
        "by_name": "from treelabel.metrics.pair import is_larger",
        "by_module": "from treelabel.metrics import pair as kernels",
        "through": "from treelabel.metrics.by_name import x",
        "other": "from treelabel.metrics.none import y",
    }
    folder = tmp_path / "src/treelabel/metrics"
    (folder / "__pycache__").mkdir(parents=True)
    for name, source in sources.items():
        (folder / f"{name}.py").write_text(source)
        (folder / f"__pycache__/{name}.loop-1.0a.loop").write_text("compiled")
    with without_loops(folder / "pair.py", tmp_path):
        assert [each.name for each in (folder / "__pycache__").iterdir()] == ["other.loop-1.0a.loop"]
    assert len(list((folder / "__pycache__").iterdir())) == 5
