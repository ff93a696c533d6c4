"""Stored machine code: the same values and errors as by numba, without importing it, and never for other types."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from tests.core.test_code_cache import CALL as TINY_CALL
from tests.core.test_code_cache import STORED, TINY, call
from tests.helpers import put
from treelabel.core.machine_code import call_signature

LOOPS = """
from typing import NamedTuple
import numpy as np
from treelabel.core.compute import kernel
from callee import twice


class Pair(NamedTuple):
    left: float
    right: np.ndarray


@kernel
def parts(pair, whole, flags):
    result = np.empty(len(pair.right), np.float32)
    for index in range(len(result)):
        result[index] = twice(pair.left) * pair.right[index] / whole if flags[0] else 0
    return result, whole, len(flags)
"""
CALLEE = """
from treelabel.core.compute import kernel


@kernel
def twice(number):
    return 2 * number
"""
# Prints what comes out, the error of dividing by 0, and whether numba was imported.
CALL = (
    STORED
    + """
import sys
import numpy as np
from loops import Pair, parts
numbers = np.array([1.5, 2.5], np.float32)
print([value.tolist() if hasattr(value, "tolist") else value for value in parts(Pair(3.0, numbers), 2, (True, False))])
print(parts(Pair(3.0, numbers[::-1]), 2, (True, False))[0].tolist() if len(sys.argv) > 1 else "")
try:
    parts(Pair(3.0, numbers), 0, (True, False))
except ZeroDivisionError as error:
    print(error)
print("numba" in sys.modules)
import numba
from callee import twice
print(numba.njit(lambda number: twice(number) + 1)(4), parts(Pair(3.0, numbers), 2, (True, False))[1:])
"""
)
VALUES = "[[4.5, 7.5], 2, 2]\n"
# Stores what nobody stores, with a checksum; prints what comes out, and where it came from.
UNEXPECTED = """
import json, sys, tiny
from pathlib import Path
from tests.core.test_code_cache import source
from treelabel.core.compute import kernel
from treelabel.core.machine_code import checksum, run_stored_code
run_stored_code()
(file,) = Path(sys.argv[1]).glob("compiled/*/tiny.add*.loop")
content = file.read_bytes()
header, _, code = content[:-16].partition(b"\\n")
about = json.loads(header)

def again(header, code=code):
    made = json.dumps(header).encode() + b"\\n" + code
    file.write_bytes(made + checksum(made))
    fresh = kernel(tiny.add.py_func)
    return f"{fresh(1, 2)} {source(fresh)}"

print(again(about))
print(again(about, code.replace(b"PyArg_UnpackTuple", b"PyNot_UnpackTuple")))
print(again(about | {"entry": "no_such_function"}))
print(again(about | {"environments": {"no_such_environment": ["no type"]}}))
print(again({}), again([]))
print(again(about, b""), again(about, b"no object"), again(about, code[:100]))
"""
# What another version of numba may lack, by statements that come first.
LACKING = (
    "from treelabel.core import machine_code; machine_code._extension = None",
    "from treelabel.core import machine_code; machine_code._RUNTIME = (('numba._no_such', '.'),) * 3",
    "from treelabel.core import machine_code; machine_code.TESTED = ('0.1.',)",
)


@pytest.mark.slow
def test_stored_code_does_what_compiled_code_does_without_numba(tmp_path: Path) -> None:
    put(tmp_path, "loops.py", LOOPS)
    put(tmp_path, "callee.py", CALLEE)
    compiled, stored = call(tmp_path, "-c", CALL), call(tmp_path, "-c", CALL)
    assert compiled == f"{VALUES}\ndivision by zero\nTrue\n9 (2, 2)\n"
    assert stored == compiled.replace("True", "False")
    # Arrays of another layout are other types: numba is asked.
    assert call(tmp_path, "-c", CALL, "reversed") == f"{VALUES}[7.5, 4.5]\ndivision by zero\nTrue\n9 (2, 2)\n"
    assert call(tmp_path, "-c", CALL, "reversed") == f"{VALUES}[7.5, 4.5]\ndivision by zero\nFalse\n9 (2, 2)\n"
    # So is a loop that calls one whose source has changed, and everything with other settings of numba.
    put(tmp_path, "callee.py", f"{CALLEE}\n")
    assert call(tmp_path, "-c", CALL) == compiled
    assert call(tmp_path, "-c", CALL) == stored
    assert call(tmp_path, "-c", CALL, NUMBA_OPT="2") == compiled


@pytest.mark.slow
def test_numba_is_asked_whatever_is_not_as_expected(tmp_path: Path) -> None:
    put(tmp_path, "tiny.py", TINY)
    assert call(tmp_path, "-c", TINY_CALL) == "3 compiled\n"
    lines = call(tmp_path, "-c", UNEXPECTED, str(tmp_path)).splitlines()
    assert lines[0] == "3 stored"
    assert {word for line in lines[1:] for word in line.split()} == {"3", "cached"}
    for statement in LACKING:
        assert call(tmp_path, "-c", f"{statement}\n{TINY_CALL}") == "3 cached\n"
    assert call(tmp_path, "-c", TINY_CALL) == "3 stored\n"


# Ctrl-C comes while the loop runs, and Python hears of it when there is a result to wrap up.
INTERRUPTED = (
    STORED
    + """
import os, signal, sys, threading, time
import numpy as np
from spinning import spin
spin(2)
# What a shell starts in the background is deaf to it.
signal.signal(signal.SIGINT, signal.default_int_handler)
threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    for _ in range(100):
        spin(100_000_000)
except KeyboardInterrupt:
    print("interrupted", "numba" in sys.modules)
"""
)
SPINNING = """
import numpy as np
from treelabel.core.compute import kernel


@kernel
def spin(count):
    result = np.zeros(3)
    for index in range(count):
        result[index % 3] += 1 / (1 + result[(index + 1) % 3])
    return result
"""


@pytest.mark.slow
def test_ctrl_c_in_a_loop_is_heard_behind_it(tmp_path: Path) -> None:
    put(tmp_path, "spinning.py", SPINNING)
    assert call(tmp_path, "-c", INTERRUPTED) == "interrupted True\n"
    assert call(tmp_path, "-c", INTERRUPTED) == "interrupted False\n"


class _Point(NamedTuple):
    x: float


def test_signatures_tell_types_apart_as_numba_does() -> None:
    array = np.zeros((2, 3), np.float32)
    read_only = array.copy()
    read_only.setflags(write=False)
    values = [array, array.T, array[:, :2], array.astype(np.float64), array.astype(">f4"), array[0], read_only]
    others = [1, 1.0, True, np.float32(1), np.int64(1), None, (1,), (1, 2), (1.0,), _Point(1.0)]
    signatures = [call_signature([value]) for value in (*values, *others)]
    assert None not in signatures
    assert len(set(signatures)) == len(signatures)
    assert call_signature([array]) == call_signature([array[:1]])
    assert call_signature([1 << 63]) is call_signature(["a"]) is call_signature([(1, "a")]) is None
    assert call_signature([np.zeros(2, "i4, i4")]) is call_signature([np.array(["a"])]) is None
