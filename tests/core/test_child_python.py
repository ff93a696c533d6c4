"""Child processes import nothing from the working folder, whatever somebody left there."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import treelabel
from tests.experiment.small import write_study
from treelabel import TreelabelError
from treelabel.cli import warm_up
from treelabel.core.child_python import child_python
from treelabel.experiment import command_systems
from treelabel.experiment.plan import make_plan
from treelabel.experiment.running import RunOptions, run_study
from treelabel.experiment.spec_reader import read_spec

SOURCE = Path(treelabel.__file__).parent
# Modules of the standard library, of what treelabel needs, and of what children are.
PLANTED = ("json", "tempfile", "numpy", "scipy", "numba", "pyarrow", "psutil", "pip", "treelabel")
STUDY = """
[data.small]
train = "train.csv"
test = "test.csv"

[systems.frequent]
model = "most_frequent"

[[judge]]
rule = "best_leaf"
metrics = ["leaf_accuracy"]
"""


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder whose modules leave a file where they are imported, and end the process."""
    folder = tmp_path / "planted"
    folder.mkdir()
    for name in PLANTED:
        marker = str(folder / f"{name}.was_imported")
        (folder / f"{name}.py").write_text(f"open({marker!r}, 'w').close()\nraise SystemExit(1)\n")
    monkeypatch.chdir(folder)
    return folder


def was_imported(folder: Path) -> list[str]:
    return sorted(file.stem for file in folder.glob("*.was_imported"))


def test_the_modules_would_be_imported_without_the_option(planted: Path) -> None:
    done = subprocess.run([sys.executable, "-m", "treelabel", "--version"], capture_output=True)
    assert done.returncode == 1
    assert was_imported(planted) == ["treelabel"]


@pytest.mark.slow
def test_processes_that_compile_import_nothing_of_the_folder(planted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm_up, "PARTS", {"calibrate": warm_up.calibrate_models})
    (process,) = warm_up.start_processes()
    assert process.wait() == 0
    assert was_imported(planted) == []


@pytest.mark.slow
def test_a_study_imports_nothing_of_the_folder(planted: Path, tmp_path: Path) -> None:
    results = run_study(make_plan(read_spec(write_study(tmp_path, STUDY))), tmp_path / "results", RunOptions())
    assert [(run.status, run.reason) for run in results.runs] == [("done", "")]
    assert was_imported(planted) == []


def test_pip_is_not_that_of_the_folder(planted: Path) -> None:
    with pytest.raises(TreelabelError, match="cannot be installed"):
        command_systems._install(Path(sys.executable), ("./nothing-of-this-name",))
    assert was_imported(planted) == []


def test_an_isolated_process_has_isolated_children() -> None:
    code = "from treelabel.core.child_python import child_python; print(child_python('-V')[1])"
    found = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "-I\n"


def test_only_one_function_starts_a_python() -> None:
    """The Python that a spec's own command asks for aside: how it is called is the spec's business."""
    found = {
        f"{file.relative_to(SOURCE)}: {line.strip()}"
        for file in SOURCE.rglob("*.py")
        for line in file.read_text(encoding="utf-8").splitlines()
        if re.search(r"sys\.executable|import multiprocessing|from multiprocessing|ProcessPoolExecutor", line)
    }
    assert found == {
        "core/child_python.py: def child_python(*arguments: str, executable: str = sys.executable) -> list[str]:",
        "experiment/command_systems.py: return Path(sys.executable)",
        # Spark starts its workers itself.
        'cluster/spark_engine.py: os.environ.setdefault("PYSPARK_PYTHON", sys.executable)',
    }
    assert child_python("-V")[0] == sys.executable
