"""The cache of embeddings: right rows whatever is wrong with it, and nothing of anybody's is lost."""

import hashlib
import multiprocessing
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers import Run, WordVectors, hide_encoders, put, registered
from treelabel import write
from treelabel.core.errors import TreelabelError
from treelabel.core.quarantine import inode_of, quarantine_file
from treelabel.encoders import row_cache as caching
from treelabel.encoders.cached_encoder import CachedEncoder
from treelabel.encoders.files import cache_folder, find_files, usable_files
from treelabel.encoders.row_cache import CacheWarning, RowCache, cache_name

TEXTS = [f"text {number} of many" for number in range(600)]
FILE = cache_name(WordVectors.fingerprint)


class Counting(WordVectors):
    """Vectors of words, and how many texts were encoded."""

    def __init__(self) -> None:
        self.texts = 0

    def transform(self, texts: Sequence[str]) -> Any:
        self.texts += len(texts)
        return super().transform(texts)


@pytest.fixture(autouse=True)
def nothing_said_yet() -> Iterator[None]:
    caching._warned.clear()
    yield
    caching._warned.clear()


EXPECTED = WordVectors().transform(TEXTS).astype(np.float32)


def embed(folder: Path, texts: Sequence[str] = TEXTS, expected: Any = EXPECTED) -> int:
    """Check that rows are right, bit by bit, and return how many texts were encoded."""
    encoder = Counting()
    rows = CachedEncoder(encoder, folder, batch_size=100).transform(texts)
    assert rows.dtype == np.float32
    assert np.array_equal(rows, expected)
    return encoder.texts


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    """A folder with a cache of all texts."""
    folder = tmp_path / "cache"
    assert embed(folder) == len(TEXTS)
    assert embed(folder) == 0
    return folder


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def change(folder: Path, sql: str, *values: Any) -> None:
    stored = sqlite3.connect(folder / FILE)
    stored.execute(sql, values)
    stored.commit()
    stored.close()


# Rows


@pytest.mark.parametrize(
    "damage",
    [
        "substr(row, 1, 64)",
        "row || row",
        "zeroblob(128)",
        "zeroblob(0)",
        "'text'",
        "cast(x'ff00' as text)",
        "7",
        "7.5",
    ],
)
def test_a_damaged_row_is_computed_again_and_replaced(filled: Path, damage: str) -> None:
    change(filled, f"update rows set row = {damage} where key in (select key from rows limit 5)")
    with pytest.warns(CacheWarning, match=f"{FILE}: 5 of the embeddings that were looked up are damaged") as said:
        assert embed(filled) == 5
    assert len(said) == 1
    assert embed(filled) == 0
    assert names(filled) == [FILE]


def test_rows_of_other_keys_are_not_taken(filled: Path) -> None:
    """Two rows whose places were exchanged are whole, each by itself."""
    stored = sqlite3.connect(filled / FILE)
    (one, first, sum_1), (two, second, sum_2) = stored.execute("select key, row, checksum from rows limit 2")
    for values in ((first, sum_1, two), (second, sum_2, one)):
        stored.execute("update rows set row = ?, checksum = ? where key = ?", values)
    stored.commit()
    stored.close()
    with pytest.warns(CacheWarning, match="2 of the embeddings"):
        assert embed(filled) == 2


def test_damage_is_said_once(filled: Path) -> None:
    for times_said in (1, 0):
        change(filled, "update rows set row = zeroblob(128)")
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            assert embed(filled) == len(TEXTS)
        assert len(said) == times_said


def test_rows_of_an_older_encoder_of_another_width_are_replaced(tmp_path: Path) -> None:
    class Wide(Counting):
        def transform(self, texts: Sequence[str]) -> Any:
            return np.hstack([super().transform(texts)] * 2)

    CachedEncoder(Wide(), tmp_path).transform(TEXTS[:300])
    with pytest.warns(CacheWarning, match="holds rows of 64 numbers, but the encoder gives 32 a text; it was set asid"):
        assert embed(tmp_path) == len(TEXTS)
    assert names(tmp_path) == [FILE, f"{FILE}.damaged-1"]
    assert embed(tmp_path) == 0


def test_an_encoder_that_changes_its_width_is_refused(tmp_path: Path) -> None:
    class Changing(WordVectors):
        def transform(self, texts: Sequence[str]) -> Any:
            return np.ones((len(texts), 3 + ("b" in texts)))

    with pytest.raises(TreelabelError, match="the encoder words gave 3 numbers for some texts and 4 for others"):
        CachedEncoder(Changing(), tmp_path, batch_size=1).transform(["a", "b"])


def test_an_encoder_may_use_its_memory_again(tmp_path: Path) -> None:
    memory = np.zeros((1, 32), np.float32)

    class Thrifty(WordVectors):
        def transform(self, texts: Sequence[str]) -> Any:
            memory[:] = super().transform(texts)
            return memory

    found = CachedEncoder(Thrifty(), tmp_path, batch_size=1).transform(TEXTS[:9])
    assert np.array_equal(found, EXPECTED[:9])


# Files


def header(offset: int) -> Callable[[bytes], bytes]:
    return lambda content: content[:offset] + bytes([content[offset] ^ 0xFF]) + content[offset + 1 :]


def with_noise(content: bytes) -> bytes:
    noise = hashlib.shake_256(b"noise").digest(40_000)
    return content[:20_000] + noise + content[60_000:]


DAMAGES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "text": (lambda content: b"my thesis " * 1000, "foreign"),
    "zeros": (lambda content: bytes(10_000), "foreign"),
    "few bytes": (lambda content: b"SQLite format 3\0", "foreign"),
    "other application": (header(68), "foreign"),
    "cut short": (lambda content: content[: len(content) // 2], "damaged"),
    "only a header": (lambda content: content[:100], "damaged"),
    "noise": (with_noise, "damaged"),
    "zeros after the header": (lambda content: content[:100] + bytes(len(content) - 100), "damaged"),
    "other version": (header(63), "damaged"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_bad_file_is_set_aside_and_a_new_one_begun(filled: Path, damage: str) -> None:
    how, kind = DAMAGES[damage]
    bad = how((filled / FILE).read_bytes())
    (filled / FILE).write_bytes(bad)
    with pytest.warns(CacheWarning, match=f"it was set aside as {FILE}.{kind}-1, and a new one begun") as said:
        assert embed(filled) > 0
    assert len(said) == 1
    assert embed(filled, TEXTS[-100:], EXPECTED[-100:]) == 0
    assert names(filled) == [FILE, f"{FILE}.{kind}-1"]
    assert (filled / f"{FILE}.{kind}-1").read_bytes() == bad


def test_an_empty_file_is_a_new_cache(tmp_path: Path) -> None:
    put(tmp_path, FILE, b"")
    assert embed(tmp_path) == len(TEXTS)
    assert names(tmp_path) == [FILE]
    assert embed(tmp_path) == 0


@pytest.mark.filterwarnings("ignore::treelabel.encoders.row_cache.CacheWarning")
def test_any_byte_may_be_wrong(tmp_path: Path) -> None:
    """Every byte of the header, and some of the pages after it."""
    few, expected = TEXTS[:30], EXPECTED[:30]
    embed(tmp_path, few, expected)
    whole = (tmp_path / FILE).read_bytes()
    for offset in (*range(108), *range(4096, len(whole), 509)):
        (tmp_path / FILE).write_bytes(whole[:offset] + bytes([whole[offset] ^ 0xFF]) + whole[offset + 1 :])
        embed(tmp_path, few, expected)
        for aside in tmp_path.glob(f"{FILE}.*"):
            aside.unlink()


@pytest.mark.parametrize(
    ("sql", "kind"),
    [
        ("drop table rows", "foreign"),
        ("create table mine (x)", "foreign"),
        ("create trigger mine after insert on rows begin delete from rows; end", "foreign"),
        ("create view mine as select * from rows", "foreign"),
        ("insert into about values (7)", "damaged"),
        ("update about set width = 'wide'", "damaged"),
        ("pragma user_version = 99", "damaged"),
        ("pragma application_id = 7", "foreign"),
        ("pragma application_id = 0", "foreign"),
    ],
)
def test_a_database_that_is_no_cache_is_set_aside(filled: Path, sql: str, kind: str) -> None:
    change(filled, sql)
    with pytest.warns(CacheWarning, match=f"set aside as {FILE}.{kind}-1"):
        assert embed(filled) == len(TEXTS)
    assert embed(filled) == 0


def test_a_wrong_width_in_the_file_costs_a_new_one(filled: Path) -> None:
    change(filled, "update about set width = 7")
    with pytest.warns(CacheWarning) as said:
        assert embed(filled) == len(TEXTS)
    assert len(said) == 2
    assert embed(filled) == 0


def test_the_database_of_another_program_is_never_lost(tmp_path: Path) -> None:
    contents = []
    for number in range(11):
        (tmp_path / FILE).unlink(missing_ok=True)
        change(tmp_path, f"create table precious_{number} (x)")
        contents.append((tmp_path / FILE).read_bytes())
        with pytest.warns(CacheWarning, match="set aside" if number < 9 else "cannot be set aside: 9 foreign files"):
            embed(tmp_path)
        caching._warned.clear()
    aside = [(tmp_path / f"{FILE}.foreign-{number}").read_bytes() for number in range(1, 10)]
    assert aside == contents[:9]
    assert (tmp_path / FILE).read_bytes() == contents[-1]


def test_few_damaged_files_are_kept(filled: Path) -> None:
    for _ in range(6):
        (filled / FILE).write_bytes((filled / FILE).read_bytes()[:5000])
        put(filled, f"{FILE}-journal", b"")
        with pytest.warns(CacheWarning, match="set aside"):
            embed(filled)
    aside = [f"{FILE}.damaged-{number}{ending}" for number in (4, 5, 6) for ending in ("", "-journal")]
    assert names(filled) == [FILE, *aside]


@pytest.mark.parametrize("make", [Path.mkdir, lambda path: os.mkfifo(path)])
def test_what_is_no_file_is_set_aside(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / FILE)
    with pytest.warns(CacheWarning, match=f"is no ordinary file; it was set aside as {FILE}.foreign-1"):
        assert embed(tmp_path) == len(TEXTS)
    assert embed(tmp_path) == 0


def test_a_file_that_another_process_has_replaced_is_left_alone(filled: Path) -> None:
    bad = filled / FILE
    whole = bad.read_bytes()
    bad.write_bytes(whole[:5000])
    cache = RowCache(bad)
    cache._inode = inode_of(bad)
    os.rename(bad, filled / "moved")
    bad.write_bytes(whole)
    cache._quarantine(caching._UnusableFileError("damaged", "is damaged"))
    assert names(filled) == [FILE, "moved"]
    assert embed(filled) == 0


def test_a_file_that_is_set_aside_during_a_run(tmp_path: Path) -> None:
    with RowCache(tmp_path / FILE) as cache:
        cache.write([b"1"], np.ones((1, 2), np.float32))
        quarantine_file(tmp_path / FILE, inode_of(tmp_path / FILE), "damaged")
        cache.write([b"2"], np.ones((1, 2), np.float32))
        assert list(cache.read([b"1", b"2"])) == [b"2"]
    assert names(tmp_path) == [FILE, f"{FILE}.damaged-1"]


# Places that cannot be written


def refused(folder: Path, match: str) -> None:
    """Embed without a cache, twice; that is said once."""
    with pytest.warns(CacheWarning, match=f"embeddings are not kept: {match}.*set TREELABEL_CACHE") as said:
        assert embed(folder) == embed(folder) == len(TEXTS)
    assert len(said) == 1


def test_a_file_in_the_place_of_the_folder(tmp_path: Path) -> None:
    put(tmp_path, "cache", "mine")
    refused(tmp_path / "cache", "File exists")
    caching._warned.clear()
    refused(tmp_path / "cache" / "below", "Not a directory")
    assert (tmp_path / "cache").read_text() == "mine"


def test_a_user_without_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("TREELABEL_CACHE", "XDG_CACHE_HOME", "HF_HOME", "HF_HUB_CACHE", "TREELABEL_ENCODERS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", nowhere)
    hide_encoders(monkeypatch)
    with pytest.warns(CacheWarning, match="embeddings are not kept: Not a directory"):
        assert np.array_equal(CachedEncoder(WordVectors()).transform(TEXTS), EXPECTED)
    assert usable_files() == []
    with pytest.raises(TreelabelError, match="unknown encoder 'nobody'"):
        find_files("nobody")
    with pytest.raises(OSError, match="Not a directory"):
        cache_folder().mkdir(parents=True)


def child(folder: Path, *, as_nobody: bool = False, file_size: int | None = None) -> str:
    """Embed in another process, as a user without rights or with little disk; return what was said."""
    code = (
        "import os, resource, sys, warnings\n"
        "from pathlib import Path\n"
        "from tests.encoders.test_row_cache import embed\n"
        "warnings.showwarning = lambda message, *_, **__: print(message)\n"
        f"if {as_nobody} and os.geteuid() == 0: os.setegid(65534); os.seteuid(65534)\n"
        f"if {file_size}: resource.setrlimit(resource.RLIMIT_FSIZE, ({file_size}, {file_size}))\n"
        "print('encoded', embed(Path(sys.argv[1])), embed(Path(sys.argv[1])))\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run(
        [sys.executable, "-c", code, folder], env=environment, capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that a user without rights can come to, which those of pytest are not."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "cache").mkdir()
        yield folder / "cache"
        (folder / "cache").chmod(0o755)


@pytest.mark.slow
def test_a_folder_without_permission(open_folder: Path) -> None:
    open_folder.chmod(0o555)
    said, encoded = child(open_folder, as_nobody=True).splitlines()
    assert "embeddings are not kept: unable to open database file" in said
    assert encoded == "encoded 600 600"
    open_folder.chmod(0o000)
    said, encoded = child(open_folder, as_nobody=True).splitlines()
    assert "embeddings are not kept: Permission denied" in said
    assert encoded == "encoded 600 600"


def test_a_cache_that_may_only_be_read_is_read(open_folder: Path) -> None:
    assert embed(open_folder, TEXTS[:500], EXPECTED[:500]) == 500
    (open_folder / FILE).chmod(0o444)
    open_folder.chmod(0o555)
    said, encoded = child(open_folder, as_nobody=True).splitlines()
    assert "embeddings are not kept: attempt to write a readonly database" in said
    assert encoded == "encoded 100 100"


def test_a_damaged_cache_that_may_only_be_read(open_folder: Path) -> None:
    embed(open_folder)
    bad = put(open_folder, FILE, (open_folder / FILE).read_bytes()[:5000])
    bad.chmod(0o444)
    open_folder.chmod(0o555)
    said, encoded = child(open_folder, as_nobody=True).splitlines()
    assert "and cannot be set aside: Permission denied" in said
    assert encoded == "encoded 600 600"
    assert bad.stat().st_size == 5000


def test_a_full_disk(tmp_path: Path) -> None:
    said, encoded = child(tmp_path, file_size=50_000).splitlines()
    assert "embeddings are not kept: " in said
    first, second = encoded.split()[1:]
    assert (first, 0 < int(second) < 600) == ("600", True)
    assert embed(tmp_path) == int(second)
    assert embed(tmp_path) == 0


# Several processes, and the end of one


def fill(folder: Path, start: Any, seed: int, damage: bool) -> None:
    order = np.random.default_rng(seed).permutation(len(TEXTS))
    warnings.simplefilter("ignore" if damage else "error", CacheWarning)
    start.wait()
    embed(folder, [TEXTS[place] for place in order], EXPECTED[order])


@pytest.mark.parametrize("damage", [False, True])
@pytest.mark.slow
def test_processes_share_a_cache(tmp_path: Path, damage: bool) -> None:
    if damage:
        put(tmp_path, FILE, b"my thesis " * 1000)
    context = multiprocessing.get_context("spawn")
    start = context.Event()
    processes = [context.Process(target=fill, args=(tmp_path, start, seed, damage)) for seed in range(4)]
    for process in processes:
        process.start()
    start.set()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 4
    assert embed(tmp_path) == 0
    assert names(tmp_path) == [FILE, *([f"{FILE}.foreign-1"] if damage else [])]
    stored = sqlite3.connect(tmp_path / FILE)
    assert stored.execute("pragma integrity_check").fetchone() == ("ok",)
    stored.close()


def test_a_killed_run_goes_on_where_it_was(tmp_path: Path) -> None:
    code = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from tests.encoders.test_row_cache import TEXTS, WordVectors\n"
        "from treelabel.encoders.cached_encoder import CachedEncoder\n"
        "class Slow(WordVectors):\n"
        "    def transform(self, texts):\n"
        "        if TEXTS[300] in texts: print('here', flush=True); time.sleep(600)\n"
        "        return super().transform(texts)\n"
        "CachedEncoder(Slow(), Path(sys.argv[1]), batch_size=100).transform(TEXTS)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", code, tmp_path], env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
        process.send_signal(signal.SIGKILL)
    assert embed(tmp_path) == 300
    assert embed(tmp_path) == 0


def test_a_hot_journal_is_played_back(filled: Path) -> None:
    """What a process leaves that was killed in the middle of a write: pages half replaced, and the old ones beside."""
    stored = sqlite3.connect(filled / FILE, isolation_level=None)
    stored.execute("pragma cache_size = 2")
    stored.execute("begin")
    stored.execute("update rows set row = zeroblob(128)")
    copy = filled.parent / "killed"
    copy.mkdir()
    for name in names(filled):
        shutil.copyfile(filled / name, copy / name)
    stored.execute("rollback")
    stored.close()
    assert names(copy) == [FILE, f"{FILE}-journal"]
    assert embed(copy) == 0
    assert names(copy) == [FILE]


def test_a_file_that_stays_locked_is_only_read(filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caching, "_SECONDS", 0.05)
    more = [*TEXTS, "one more"]
    expected = np.vstack([EXPECTED, WordVectors().transform(["one more"]).astype(np.float32)])
    other = sqlite3.connect(filled / FILE, isolation_level=None)
    other.execute("begin immediate")
    with pytest.warns(CacheWarning, match="embeddings are not kept: database is locked"):
        assert embed(filled, more, expected) == 1
    other.close()
    assert embed(filled, more, expected) == 1
    assert embed(filled, more, expected) == 0


# What else is kept, and the command line


@pytest.mark.filterwarnings("default::treelabel.encoders.row_cache.CacheWarning")
def test_a_command_notes_a_bad_cache_and_goes_on(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.models.test_models import SETS

    monkeypatch.setenv("TREELABEL_CACHE", str(put(tmp_path, "cache", "no folder")))
    write(SETS["leaf"], tmp_path / "train.jsonl")
    fit = ("fit", tmp_path / "train.jsonl", "--set", "encoder=words", "--model", "prototype")
    with registered("words", WordVectors):
        ended = run(*fit, "-o", tmp_path / "model")
    assert ended.code == 0
    note, _ = ended.err.splitlines()
    assert note.startswith(f"treelabel: note: {tmp_path / 'cache' / FILE}: embeddings are not kept: File exists; ")


def test_a_dict_or_frame_is_not_embedded_by_its_column_names(tmp_path: Path) -> None:
    texts: Any = {"body": ["a", "b"]}
    with pytest.raises(TreelabelError, match=r"such as data\['body'\]"):
        CachedEncoder(WordVectors(), tmp_path).transform(texts)
