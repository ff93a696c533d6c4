"""The tool that counts the files of the main job: calls count, imports do not, loops within loops do."""

import importlib
import sys
from pathlib import Path

import pytest
from tools.count_walk import files_called

SOURCES = {
    "__init__.py": "",
    "top.py": "from walked.middle import twice\ndef start():\n    from walked import late\n    return twice(late.ONE)",
    "middle.py": "from walked.unused import ZERO\nfrom walked.loops import add\ndef twice(n):\n    return add(n, n)\n",
    "loops.py": "from walked.inner import kernel, plus\n@kernel\ndef add(a, b):\n    return plus(a, b)\n",
    "inner.py": "from treelabel.core.compute import kernel\n@kernel\ndef plus(a, b):\n    return a + b\n",
    "unused.py": "ZERO = 0\ndef never():\n    return ZERO\n",
    "late.py": "ONE = 1\n",
}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "walked"
    folder.mkdir()
    for name, source in SOURCES.items():
        (folder / name).write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in sys.modules if name.partition(".")[0] == "walked"]:
        monkeypatch.delitem(sys.modules, name)
    return folder


def test_files_count_if_a_function_of_theirs_is_called(package: Path) -> None:
    top = importlib.import_module("walked.top")
    top.start()
    assert files_called(top.start, package) == ["inner.py", "loops.py", "middle.py", "top.py"]


def test_module_bodies_do_not_count(package: Path) -> None:
    assert files_called(lambda: importlib.import_module("walked.unused"), package) == []


def test_the_profiler_is_taken_off_after_an_error(package: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        files_called(lambda: 1 // 0, package)
    assert sys.getprofile() is None
