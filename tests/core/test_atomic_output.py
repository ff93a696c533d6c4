"""Output that survives kills, full disks, second writers and links: files, folders, and several files at once."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers import Ended, Run
from tests.models.test_models import SETS
from treelabel import Dataset, Hierarchy, TreelabelError, load_model, make_model, read, write
from treelabel.core import atomic_output as o
from treelabel.core.locking import PREFIX, SUFFIX, WorkingPath, remove_leftovers


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def allow(target: Path) -> None:
    """Let anything be replaced."""


def killed(code: str, *arguments: str | Path) -> int:
    """Run a program that kills itself; return how it ended."""
    given = [sys.executable, "-c", f"import os, signal, sys\n{code}", *map(str, arguments)]
    return subprocess.run(given, check=False, timeout=120).returncode


DIE = "os.kill(os.getpid(), signal.SIGKILL)"
# A shell without job control starts what is in the background deaf to Ctrl-C.
PRELUDE = "import os, signal, sys\nsignal.signal(signal.SIGINT, signal.default_int_handler)"


# One file


def test_a_killed_writer_leaves_the_old_file_and_the_next_one_removes_what_it_left(tmp_path: Path) -> None:
    target = tmp_path / "out.txt"
    target.write_text("old")
    code = f"""
from treelabel.core.atomic_output import atomic_file
with atomic_file(sys.argv[1]) as working:
    working.write_text("half")
    {DIE}
"""
    assert killed(code, target) == -signal.SIGKILL
    assert target.read_text() == "old"
    assert len(names(tmp_path)) == 2
    with o.atomic_file(tmp_path / "other.txt") as working:
        working.write_text("new")
    assert names(tmp_path) == ["other.txt", "out.txt"]


def test_what_a_living_writer_is_at_is_no_leftover(tmp_path: Path) -> None:
    with o.atomic_file(tmp_path / "slow.txt") as slow:
        slow.write_text("slow")
        with o.atomic_file(tmp_path / "fast.txt") as fast:
            fast.write_text("fast")
        remove_leftovers(tmp_path)
    assert (tmp_path / "slow.txt").read_text() == "slow"
    assert (tmp_path / "fast.txt").read_text() == "fast"


def test_files_of_others_are_no_leftovers(tmp_path: Path) -> None:
    for name in (".treelabel-mine", "treelabel-12345678.tmp", ".notes.part"):
        (tmp_path / name).write_text("mine")
    remove_leftovers(tmp_path)
    assert len(names(tmp_path)) == 3


def test_links_stay_links_and_loops_are_called_so(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "real.txt").write_text("old")
    (tmp_path / "link.txt").symlink_to("data/real.txt")
    with o.atomic_file(tmp_path / "link.txt") as working:
        working.write_text("new")
    assert (tmp_path / "link.txt").is_symlink()
    assert (tmp_path / "data" / "real.txt").read_text() == "new"
    (tmp_path / "round").symlink_to("round")
    with pytest.raises(TreelabelError, match="leads back to itself"), o.atomic_file(tmp_path / "round"):
        pass


def test_permissions_of_what_is_replaced_are_kept(tmp_path: Path) -> None:
    target = tmp_path / "secret.txt"
    target.write_text("old")
    target.chmod(0o600)
    with o.atomic_file(target) as working:
        working.write_text("new")
    assert target.stat().st_mode & 0o777 == 0o600


def test_errors_of_the_system_name_the_file_that_was_asked_for(tmp_path: Path) -> None:
    with pytest.raises(TreelabelError) as full, o.atomic_file(tmp_path / "out.txt"):
        raise OSError(28, "No space left on device")
    assert str(tmp_path / "out.txt") in str(full.value)
    assert "No space left on device" in str(full.value)
    with pytest.raises(OSError, match="elsewhere"), o.atomic_file(tmp_path / "out.txt"):
        raise OSError(2, "No such file", "/elsewhere")
    assert names(tmp_path) == []


# Several files


def test_files_appear_together_or_not_at_all(tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text("old")

    def fail() -> None:
        with o.atomic_group():
            with o.atomic_file(tmp_path / "one.txt") as working:
                working.write_text("new")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert (tmp_path / "one.txt").read_text() == "old"
    with o.atomic_group():
        for name in ("one.txt", "two.txt"):
            with o.atomic_file(tmp_path / name) as working:
                working.write_text("new")
        assert (tmp_path / "one.txt").read_text() == "old"
    assert names(tmp_path) == ["one.txt", "two.txt"]
    assert (tmp_path / "one.txt").read_text() == "new"


# How often a file is moved or removed before the process dies, while three files replace three.
STEPS = range(8)
DYING = f"""
from pathlib import Path
left, replace, unlink = [int(sys.argv.pop(1))], Path.replace, Path.unlink
def dying(change):
    def change_or_die(path, *given, **named):
        if path.name.startswith(".treelabel-") == (change is replace):
            if not left[0]:
                {DIE}
            left[0] -= 1
        return change(path, *given, **named)
    return change_or_die
Path.replace, Path.unlink = dying(replace), dying(unlink)
"""


@pytest.mark.parametrize("steps", STEPS)
def test_a_process_that_is_killed_leaves_no_mixture_of_old_and_new_files(tmp_path: Path, steps: int) -> None:
    code = f"""
{DYING}
import treelabel.core.atomic_output as o
with o.atomic_group():
    for name in ("one", "two", "three"):
        with o.atomic_file(Path(sys.argv[1]) / name) as working:
            working.write_text("new")
"""
    for name in ("one", "two", "three"):
        (tmp_path / name).write_text("old")
    assert killed(code, str(steps), tmp_path) == (-signal.SIGKILL if steps < 6 else 0)
    left = {name: (tmp_path / name).read_text() for name in names(tmp_path) if not name.startswith(PREFIX)}
    # The last ones go first and come last.
    old, new = max(0, 3 - steps), max(0, min(3, steps - 3))
    assert left == dict.fromkeys(("one", "two", "three")[: old or new], "old" if old else "new")


DAGS = (
    Hierarchy.from_edges([("A", "x"), ("B", "x"), ("B", "y")]),
    Hierarchy.from_edges([("A", "y"), ("B", "y"), ("A", "x")]),
)


@pytest.mark.parametrize("steps", range(5))
@pytest.mark.slow
def test_data_are_never_read_with_the_hierarchy_of_other_data(tmp_path: Path, steps: int) -> None:
    """Names alone would be found in either."""
    old, new = (Dataset.of(["t", "u"], ["x", "y"], h) for h in DAGS)
    target = tmp_path / "d.csv"
    write(old, target)
    write(new, tmp_path / "new.jsonl")
    code = f"""
{DYING}
from treelabel import read, write
write(read(sys.argv[1]), sys.argv[2], overwrite=True)
"""
    assert killed(code, str(steps), tmp_path / "new.jsonl", target) == (-signal.SIGKILL if steps < 4 else 0)
    if steps in (0, 4):
        assert read(target).hierarchy == (new if steps else old).hierarchy
    else:
        with pytest.raises(TreelabelError, match="no such file"):
            read(target)
    write(new, target, overwrite=True)
    assert read(target).hierarchy == new.hierarchy
    assert names(tmp_path) == ["d.csv", "d.taxonomy.tsv", "new.jsonl", "new.taxonomy.tsv"]


@pytest.mark.slow
def test_a_split_that_is_killed_leaves_no_mixture(tmp_path: Path, run: Run) -> None:
    write(SETS["leaf"], tmp_path / "all.jsonl")
    parts = tmp_path / "parts"
    split = ("split", tmp_path / "all.jsonl", parts, "--parts", "train=0.5,test=0.5")
    assert run(*split, "--seed", "1").code == 0
    code = f"""
{DYING}
from treelabel.cli import main
main(sys.argv[1:])
"""
    before = (parts / "train.jsonl").read_text()
    assert killed(code, "3", *split, "--seed", "2", "--force") == -signal.SIGKILL
    assert [name for name in names(parts) if not name.startswith(PREFIX)] == ["taxonomy.tsv", "train.jsonl"]
    assert (parts / "train.jsonl").read_text() != before
    assert run(*split, "--seed", "2", "--force").code == 0
    train, test = read(parts / "train.jsonl"), read(parts / "test.jsonl")
    assert not {*train.ids} & {*test.ids}
    assert len({*train.ids, *test.ids}) == len(SETS["leaf"])
    assert names(parts) == ["taxonomy.tsv", "test.jsonl", "train.jsonl"]


JOURNAL = ".treelabel-commit"


@pytest.mark.parametrize("kind", ["file", "folder", "pipe"])
def test_nothing_in_the_folder_of_an_input_is_obeyed(tmp_path: Path, kind: str) -> None:
    working = f"{PREFIX}12345678{SUFFIX}"
    (tmp_path / working).write_text("theirs")
    (tmp_path / "a.csv").write_text("text,label\nx,A\n")
    (tmp_path / "mine.txt").write_text("mine")
    journal = tmp_path / JOURNAL
    if kind == "file":
        journal.touch()
        orders = {"version": 1, "inode": journal.stat().st_ino, "renames": {working: "a.csv"}, "removals": ["mine.txt"]}
        journal.write_text(json.dumps(orders))
    else:
        os.mkfifo(journal) if kind == "pipe" else journal.mkdir()
    before = names(tmp_path)
    assert len(read(tmp_path / "a.csv")) == 1
    assert names(tmp_path) == before
    write(SETS["leaf"], tmp_path / "new.jsonl", taxonomy=False)
    assert (tmp_path / "mine.txt").read_text() == "mine"
    assert len(read(tmp_path / "a.csv")) == 1
    assert JOURNAL in names(tmp_path)


# Folders


def put_folder(target: Path, text: str) -> None:
    with o.atomic_folder(target, allow) as working:
        (working / "a.txt").write_text(text)


def test_a_folder_is_replaced_in_one_step(tmp_path: Path) -> None:
    target, seen, done = tmp_path / "deep" / "model", list[str](), threading.Event()
    put_folder(target, "0")

    def poll() -> None:
        while not done.is_set():
            handle = os.open(target, os.O_RDONLY)
            seen.append(",".join(os.listdir(handle)))
            os.close(handle)

    thread = threading.Thread(target=poll)
    thread.start()
    try:
        for number in range(1, 50):
            put_folder(target, str(number))
            assert (target / "a.txt").read_text() == str(number)
    finally:
        done.set()
        thread.join()
    # A folder that was just replaced may be empty on its way out, but the name is never missing.
    assert len(seen) > 10
    assert set(seen) <= {"a.txt", ""}
    assert names(tmp_path / "deep") == ["model"]


@pytest.mark.parametrize("moment", ["_finish_folder", "_exchange", "remove_tree"])
def test_a_killed_save_leaves_a_whole_folder(tmp_path: Path, moment: str) -> None:
    target = tmp_path / "model"
    put_folder(target, "old")
    code = f"""
import treelabel.core.atomic_output as o
from pathlib import Path
def die(*_): {DIE}
setattr(o, {moment!r}, die)
with o.atomic_folder(Path(sys.argv[1]), lambda target: None) as working:
    (working / "a.txt").write_text("new")
"""
    assert killed(code, target) == -signal.SIGKILL
    assert (target / "a.txt").read_text() == ("new" if moment == "remove_tree" else "old")
    assert len(names(tmp_path)) == 2
    put_folder(tmp_path / "other", "other")
    assert names(tmp_path) == ["model", "other"]


def test_an_interrupted_save_leaves_the_old_folder_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "model"
    put_folder(target, "old")

    def interrupt() -> None:
        with o.atomic_folder(target, allow) as working:
            (working / "a.txt").write_text("new")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupt()
    assert (target / "a.txt").read_text() == "old"
    assert names(tmp_path) == ["model"]


def test_of_two_writers_one_wins_and_the_other_is_told(tmp_path: Path) -> None:
    target = tmp_path / "model"

    def be_second() -> None:
        with o.atomic_folder(target, allow) as working:
            (working / "a.txt").write_text("second")
            put_folder(target, "first")

    with pytest.raises(TreelabelError, match="another process"):
        be_second()
    assert (target / "a.txt").read_text() == "first"
    with o.atomic_folder(target, allow) as working:
        (working / "a.txt").write_text("third")
        with pytest.raises(TreelabelError, match="another process"):
            put_folder(target, "fourth")
    assert (target / "a.txt").read_text() == "third"
    assert names(tmp_path) == ["model"]


def test_a_link_to_a_folder_stays_a_link(tmp_path: Path) -> None:
    put_folder(tmp_path / "versions" / "one", "old")
    (tmp_path / "current").symlink_to("versions/one")
    put_folder(tmp_path / "current", "new")
    assert (tmp_path / "current").is_symlink()
    assert (tmp_path / "versions" / "one" / "a.txt").read_text() == "new"
    assert names(tmp_path / "versions") == ["one"]


@pytest.fixture
def without_exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(o, "_exchange", lambda one, two: False)
    o.can_exchange.cache_clear()


@pytest.mark.usefixtures("without_exchange")
def test_without_exchange_a_link_stands_for_the_folder(tmp_path: Path) -> None:
    target = tmp_path / "model"
    for text in ("one", "two", "three"):
        put_folder(target, text)
        assert target.is_symlink()
        assert (target / "a.txt").read_text() == text
        assert len(names(tmp_path)) == 2
    remove_leftovers(tmp_path)
    assert (target / "a.txt").read_text() == "three"
    # A folder that was never written, and a link that was never put in place, go.
    WorkingPath.folder(tmp_path).release()
    (tmp_path / f"{PREFIX}abcdefgh{SUFFIX}").symlink_to(f"{PREFIX}nowhere1{SUFFIX}")
    remove_leftovers(tmp_path)
    assert len(names(tmp_path)) == 2
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "a.txt").write_text("copied here")
    with pytest.raises(TreelabelError, match="cannot replace a folder in one step"):
        put_folder(tmp_path / "plain", "new")
    assert (tmp_path / "plain" / "a.txt").read_text() == "copied here"
    o.can_exchange.cache_clear()


# Models


def test_fit_deletes_no_folder_that_only_looks_like_a_model(tmp_path: Path, run: Run) -> None:
    write(SETS["leaf"], tmp_path / "x.jsonl")
    folder = tmp_path / "d"
    (folder / "src").mkdir(parents=True)
    (folder / "model.json").write_text('{"format":"layers-model"}')
    (folder / "src" / "thesis.tex").write_text("years of work")
    for force in ((), ("--force",)):
        ended = run("fit", tmp_path / "x.jsonl", "-o", folder, *force)
        assert ended.code == 2
        assert "exists and is no model folder" in ended.err
    assert (folder / "src" / "thesis.tex").read_text() == "years of work"


@pytest.mark.parametrize("extra", ["notes.txt", "src", "link"])
def test_a_model_folder_with_anything_else_in_it_is_not_replaced(tmp_path: Path, extra: str) -> None:
    model = make_model("most_frequent").fit(SETS["leaf"])
    folder = tmp_path / "model"
    model.save(folder)
    if extra == "src":
        (folder / extra).mkdir()
    elif extra == "link":
        (folder / extra).symlink_to("model.json")
    else:
        (folder / extra).write_text("mine")
    with pytest.raises(TreelabelError, match=f"beside a model it holds '{extra}', which would be lost"):
        model.save(folder, overwrite=True)
    assert extra in names(folder)


def test_replacing_a_model_has_to_be_asked_for(tmp_path: Path, run: Run) -> None:
    write(SETS["leaf"], tmp_path / "x.jsonl")
    fit = ("fit", tmp_path / "x.jsonl", "-o", tmp_path / "model", "--model", "most_frequent")
    assert run(*fit).code == 0
    before = (tmp_path / "model").stat().st_ino
    refused = run(*fit)
    assert refused.code == 2
    assert "replace it with --force" in refused.err
    assert (tmp_path / "model").stat().st_ino == before
    assert run(*fit, "--force").code == 0
    assert (tmp_path / "model").stat().st_ino != before
    assert load_model(tmp_path / "model").name == "most_frequent"


LEARNERS = [
    ("linear", "models.linear.heads"),
    ("bag", "neural.bag.learner"),
    ("svm_descriptions", "models.baselines"),
    ("stack", "stack.model"),
]


# Fits by command lines, each in a process of its own that gets a signal when it has shown its first progress; they
# share what all of them import. Reads where the bar is, the signal, files for output and errors, and the arguments of
# each.
FITS = f"""
import contextlib, importlib, json
from treelabel.cli import main
modules = {{name: importlib.import_module("treelabel." + name) for name in {[module for _, module in LEARNERS]}}}

def stop_by(number, module):
    real = module.progress_bar
    @contextlib.contextmanager
    def bar(*given, **named):
        with real(*given, **named) as done:
            def tell(*now):
                os.kill(os.getpid(), number)
                done(*now)
            yield tell
    module.progress_bar = bar

for line in sys.stdin:
    module, name, files, arguments = json.loads(line)
    if os.fork() == 0:
        for number, file in enumerate(files, 1):
            os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        stop_by(getattr(signal, name), modules[module])
        sys.argv[1:] = arguments
        main()
    print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
"""


@pytest.fixture(scope="module")
def fits() -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-c", f"{PRELUDE}\n{FITS}"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process


@pytest.mark.parametrize(("model", "module"), LEARNERS)
@pytest.mark.parametrize("stop", ["SIGTERM", "SIGINT"])
@pytest.mark.slow
def test_a_stopped_fit_never_replaces_a_model(
    tmp_path: Path, fits: "subprocess.Popen[str]", model: str, module: str, stop: str
) -> None:
    write(SETS["leaf"], tmp_path / "x.jsonl")
    make_model("most_frequent").fit(SETS["leaf"]).save(tmp_path / "model")
    settings = ["--set", "estimators=['linear', 'bag']"] if model == "stack" else []
    given = ["fit", str(tmp_path / "x.jsonl"), "--model", model, *settings, "-o"]

    def fit(target: str, *more: str) -> Ended:
        files = tmp_path / "out.txt", tmp_path / "err.txt"
        asked = module, stop, [*map(str, files)], [*given, str(tmp_path / target), *more]
        assert fits.stdin
        assert fits.stdout
        print(json.dumps(asked), file=fits.stdin, flush=True)
        return Ended(int(fits.stdout.readline()), *(file.read_text() for file in files))

    ended = fit("model", "--force")
    assert ended.code == (143 if stop == "SIGTERM" else 130), ended.err
    assert load_model(tmp_path / "model").name == "most_frequent"
    new = fit("new")
    if stop == "SIGTERM":
        assert "terminated; every file is whole, or as it was" in new.err
        assert not (tmp_path / "new").exists()
    else:
        assert "stays as it is" in ended.err
        assert new.code == 130, new.err
        assert "nothing was written (--keep-unfinished writes the best so far)" in new.err
        assert not (tmp_path / "new").exists()
        asked = fit("new", "--keep-unfinished")
        assert asked.code == 130, asked.err
        assert "learning was stopped before its end, and the best so far was kept" in asked.out
        assert load_model(tmp_path / "new").name == model
    assert not [name for name in names(tmp_path) if name.startswith(PREFIX)]


@pytest.mark.parametrize("stop", ["SIGTERM", "SIGINT"])
def test_a_signal_that_comes_when_the_model_is_in_place_is_too_late(tmp_path: Path, stop: str) -> None:
    write(SETS["leaf"], tmp_path / "x.jsonl")
    make_model("nothing").fit(SETS["leaf"]).save(tmp_path / "model")
    code = f"""
import treelabel.core.atomic_output as o
from treelabel.cli import main
remove = o.remove_tree
def late(path):
    os.kill(os.getpid(), signal.{stop})
    remove(path)
o.remove_tree = late
sys.argv = ["treelabel", *sys.argv[1:]]
main()
"""
    given: list[str | Path] = [
        "fit",
        tmp_path / "x.jsonl",
        "--model",
        "most_frequent",
        "-o",
        tmp_path / "model",
        "--force",
    ]
    assert killed(code, *given) == 0
    assert load_model(tmp_path / "model").name == "most_frequent"
    assert names(tmp_path) == ["model", "x.jsonl"]
