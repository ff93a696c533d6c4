"""The cache of compiled loops: whatever is wrong with its files, results are the same and no one is blamed."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import put

TINY = "from treelabel.core.compute import kernel\n\n\n@kernel\ndef add(a, b):\n    return a + b\n"
# As commands do.
STORED = "from treelabel.core.machine_code import run_stored_code; run_stored_code(); "
CALL = f"{STORED}import tiny; from tests.core.test_code_cache import source; print(tiny.add(1, 2), source(tiny.add))"


def source(loop: Any) -> str:
    """Tell where a loop came from that was called: stored machine code, numba's cache, or numba's compiler."""
    if "dispatcher" not in vars(loop):
        return "stored"
    return "cached" if sum(loop.dispatcher.stats.cache_hits.values()) else "compiled"


def call(folder: Path, *arguments: str, **environment: str) -> str:
    """Run Python with its compiled code in a folder, and return what it printed."""
    path = os.pathsep.join([str(folder), *sys.path])
    given = {**os.environ, "PYTHONPATH": path, "NUMBA_CACHE_DIR": str(folder / "compiled"), **environment}
    ended = subprocess.run([sys.executable, *arguments], env=given, capture_output=True, text=True, check=False)
    # That loops are compiled is told, and no more.
    told = [line for line in ended.stderr.splitlines() if "compiling loops, once" not in line]
    assert (ended.returncode, told) == (0, [])
    return ended.stdout


# Calls the function as a new process would, and prints its value and where its code came from.
AGAIN = """
import sys, tiny
from pathlib import Path
from tests.core.test_code_cache import DAMAGES, source
from treelabel.core.compute import kernel
from treelabel.core.machine_code import run_stored_code
run_stored_code()

def again():
    if sys.argv[2] != "loop":
        for stored in Path(sys.argv[1]).glob("compiled/*/*.loop"):
            stored.unlink()
    fresh = kernel(tiny.add.py_func)
    return f"{fresh(1, 2)} {source(fresh)}"

print(again(), again())
(file,) = Path(sys.argv[1]).glob(f"compiled/*/tiny.add*.{sys.argv[2]}")
for damage in DAMAGES.values():
    file.write_bytes(damage(file.read_bytes()))
    print(again(), again())
file.unlink()
file.mkdir()
print(again())
"""


def flipped(content: bytes) -> bytes:
    """Change bytes of the machine code: numba itself runs what comes of it."""
    start = content.find(b"\x7fELF") + 64 if b"\x7fELF" in content else len(content) // 2
    return content[:start] + bytes(byte ^ 0x5A for byte in content[start : start + 150]) + content[start + 150 :]


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "cut short": lambda content: content[: len(content) // 2],
    "garbage": lambda content: bytes(range(256)) * 10,
    "changed": flipped,
    "without a checksum": lambda content: content[:-16],
}


@pytest.mark.parametrize(
    ("ending", "first", "again"),
    [("nbi", "compiled", "cached"), ("nbc", "compiled", "cached"), ("loop", "cached", "stored")],
)
@pytest.mark.slow
def test_a_damaged_file_is_made_again_and_replaced(tmp_path: Path, ending: str, first: str, again: str) -> None:
    put(tmp_path, "tiny.py", TINY)
    told = call(tmp_path, "-c", AGAIN, str(tmp_path), ending).splitlines()
    assert told == [f"3 compiled 3 {again}"] + [f"3 {first} 3 {again}"] * len(DAMAGES) + [f"3 {first}"]
    assert call(tmp_path, "-c", CALL) == f"3 {first}\n"


@pytest.mark.slow
def test_another_process_reads_what_one_compiled(tmp_path: Path) -> None:
    put(tmp_path, "tiny.py", TINY)
    assert [call(tmp_path, "-c", CALL) for _ in range(2)] == ["3 compiled\n", "3 stored\n"]


@pytest.mark.slow
def test_a_program_other_than_a_command_calls_numba(tmp_path: Path) -> None:
    put(tmp_path, "tiny.py", TINY)
    programs = [CALL, CALL, CALL.removeprefix(STORED)]
    assert [call(tmp_path, "-c", each) for each in programs] == ["3 compiled\n", "3 stored\n", "3 cached\n"]


@pytest.mark.slow
def test_without_any_place_for_a_cache(tmp_path: Path) -> None:
    put(tmp_path, "tiny.py", TINY)
    put(tmp_path, "compiled", "a file")
    # Only NUMBA_CACHE_DIR is looked at, and that is no folder.
    assert call(tmp_path, "-c", CALL, NUMBA_CACHE_LOCATOR_CLASSES="UserProvidedCacheLocator") == "3 compiled\n"


@pytest.mark.slow
def test_a_cache_that_cannot_be_written_any_more(tmp_path: Path) -> None:
    put(tmp_path, "tiny.py", TINY)
    # numba has found the folder, which then becomes a file.
    lost = "import shutil, sys, tiny; tiny.add.dispatcher; shutil.rmtree(sys.argv[1]); open(sys.argv[1], 'w').close()"
    assert call(tmp_path, "-c", f"{lost}; {CALL}", str(tmp_path / "compiled")) == "3 compiled\n"


def test_without_compilation(tmp_path: Path) -> None:
    put(tmp_path, "tiny.py", TINY)
    assert call(tmp_path, "-c", "import tiny; print(tiny.add(1, 2))", NUMBA_DISABLE_JIT="1") == "3\n"
