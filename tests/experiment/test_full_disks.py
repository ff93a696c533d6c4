"""Studies where nothing can be written: one sentence says so, old output stays, and a study goes on when it can."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.experiment.small import SPEC, write_study
from tests.experiment.study import make_study
from tests.helpers import Ended, Run
from treelabel import TreelabelError
from treelabel.experiment.plan import make_plan
from treelabel.experiment.results import Results
from treelabel.experiment.running import RunOptions, run_study
from treelabel.experiment.spec_reader import read_spec

NOBODY = 65534
FIGURE = '[[figures]]\nname = "f"\nkind = "metrics"\nmetrics = ["hf1"]\n'


def mount(*arguments: str | Path) -> None:
    """Mount a file system, or skip the test."""
    try:
        done = subprocess.run(["mount", *map(str, arguments)], check=False, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("there is no command mount")
    if done.returncode:
        pytest.skip(f"mount is not permitted: {done.stderr.strip()}")


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Path]:
    """Make a file system of 256 KB."""
    folder = tmp_path / "tiny"
    folder.mkdir()
    mount("-t", "tmpfs", "-o", "size=256k", "tmpfs", folder)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path, left: int) -> Path:
    """Write a file that leaves so many bytes."""
    file = folder / "fill"
    file.write_bytes(b"\0" * (256 * 1024 - left))
    return file


@pytest.fixture
def public() -> Iterator[Path]:
    """Make a folder that every user of the machine can use."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        os.chmod(name, 0o777)
        yield Path(name)


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Let nothing in a folder be changed, by anybody."""
    mount("--bind", folder, folder)
    try:
        mount("-o", "remount,ro,bind", folder)
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextmanager
def forbidden(folder: Path) -> Iterator[None]:
    """Let this user change nothing in a folder; root, who may change everything, becomes nobody for a while."""
    for each in (folder, *(path for path in folder.rglob("*") if path.is_dir())):
        each.chmod(0o555)
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)
        for each in (folder, *(path for path in folder.rglob("*") if path.is_dir())):
            each.chmod(0o755)


def content(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def is_refused(ended: Ended, named: Path) -> bool:
    """Whether a command ended with one sentence that names a file."""
    last = ended.err.splitlines()[-1]
    return ended.code == 2 and last.startswith(f"treelabel: {named}") and "Traceback" not in ended.err


@pytest.mark.slow
def test_a_study_that_ran_out_of_room_goes_on_when_there_is_some(tiny: Path, tmp_path: Path) -> None:
    text = SPEC.replace('model = "linear"\nparams = {', 'model = "most_frequent"\nparams = {}\n# {')
    plan = make_plan(read_spec(write_study(tmp_path, text)))
    # Enough for one run and a note on another, but not for two runs.
    filled = fill(tiny, 40 * 1024)
    with pytest.raises(TreelabelError, match=r"No space left on device; .* again when that is mended: what is done is"):
        run_study(plan, tiny / "results", RunOptions(jobs=1))
    (first,) = (tiny / "results" / "runs").iterdir()
    finished = first.stat().st_mtime_ns
    assert [run.status for run in Results.load(tiny / "results").runs] == ["done"]
    filled.unlink()
    results = run_study(plan, tiny / "results", RunOptions(jobs=1))
    assert [run.status for run in results.runs] == ["done"] * 3
    assert first.stat().st_mtime_ns == finished
    assert not [name for name in content(tiny) if ".treelabel" in name]


@pytest.mark.parametrize("left", [0, 48 * 1024])
def test_tables_and_figures_on_a_full_disk_leave_what_was_there(
    tiny: Path, tmp_path: Path, run: Run, left: int
) -> None:
    make_study(tmp_path / "study", FIGURE, seeds=1)
    for name in ("f.svg", "f.png", "f.pdf", "t.txt"):
        (tiny / name).write_text("old")
    before = content(tiny)
    # Besides the four files; the first figure has room, all of them do not.
    filled = fill(tiny, left + 4 * 4096)
    assert is_refused(run("tables", tmp_path / "study", "--figures", tiny, "-o", tiny / "t.txt"), tiny)
    filled.unlink()
    assert content(tiny) == before


@pytest.mark.parametrize("seal", [read_only, forbidden])
@pytest.mark.slow
def test_folders_that_cannot_be_changed(public: Path, run: Run, seal: object) -> None:
    assert callable(seal)
    make_study(public / "study", FIGURE, seeds=1)
    spec = write_study(public)
    (public / "sealed").mkdir()
    (public / "sealed" / "t.txt").write_text("old")
    (public / "model").mkdir()
    sealed, before = public / "sealed", content(public)
    with seal(sealed):
        assert is_refused(run("tables", public / "study", "-o", sealed / "t.txt"), sealed / "t.txt")
        assert is_refused(run("tables", public / "study", "--figures", sealed / "figures"), sealed / "figures")
        assert is_refused(run("bench", spec, "-o", sealed / "results"), sealed / "results")
        assert is_refused(run("bench", spec, "-o", sealed), sealed)
        exported = run("bench", spec, "-o", public / "results", "--export", sealed / "t.txt")
        assert is_refused(exported, sealed / "t.txt")
        train, model = public / "train.csv", public / "model"
        reported = run("fit", train, "-o", model, "--model", "most_frequent", "--report", sealed / "t.txt")
        assert is_refused(reported, sealed / "t.txt")
        learned = run("fit", train, "-o", sealed / "m", "--model", "most_frequent")
        assert is_refused(learned, sealed / "m")
        assert "nothing can be written" in learned.err
    # Nothing was learned before that was found out.
    assert content(public) == before


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["tables", "{f}/study", "--figures", "{f}/file"], "cannot be made, for {f}/file is no folder"),
        (["tables", "{f}/study", "--figures", "{f}/file/x"], "cannot be made, for {f}/file is no folder"),
        (["tables", "{f}/study", "-o", "{f}/file/x"], "{f}/file/x: {f}/file is a file, expected a folder"),
        (["bench", "{f}/small.toml", "-o", "{f}/file"], "cannot be made, for {f}/file is no folder"),
        (["bench", "{f}/small.toml", "-o", "{f}/file/x"], "cannot be made, for {f}/file is no folder"),
        (["bench", "{f}/small.toml", "--export", "{f}/file/x"], "{f}/file/x: {f}/file is a file, expected a folder"),
        (["fit", "{f}/train.csv", "-o", "{f}/m", "--report", "{f}/file/x"], "{f}/file is a file, expected a folder"),
    ],
)
@pytest.mark.slow
def test_a_file_in_the_place_of_a_folder_is_called_so(
    tmp_path: Path, run: Run, arguments: list[str], told: str
) -> None:
    make_study(tmp_path / "study", FIGURE, seeds=1)
    write_study(tmp_path)
    (tmp_path / "file").write_text("old")
    before = content(tmp_path)
    ended = run(*(each.replace("{f}", str(tmp_path)) for each in arguments))
    assert is_refused(ended, tmp_path)
    assert told.replace("{f}", str(tmp_path)) in ended.err
    assert content(tmp_path) == before
