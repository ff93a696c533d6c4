"""Machine code of loops, stored so that it runs without importing numba.

To import numba and have it load one loop from its cache takes a third of a second, more than all the rest of a short
command. So what numba compiled is stored once more: the object file, the name of the function that Python calls, and
the constants that it needs. llvmlite loads that, and numba's extension modules, which need none of its Python, serve
its memory. Whatever is not as expected (a changed source, another numba, damage, a system whose object files are no
ELF) means that numba is asked, which compiles or looks in its own cache. As this rests on numba's internals, it is done
with the versions that the tests have run with, and no others; any setting of numba in the environment turns it off.
Stored code is trusted as numba's cache is: it lies in the same folders, and only its owner can write there.
Commands run it; other programs call numba, which tells types apart faster, once it is there.
"""

# Neither llvmlite nor numba's classes have types.
# mypy: allow-untyped-calls

import builtins
import ctypes
import hashlib
import json
import os
import pickle
import struct
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from importlib.machinery import PathFinder
from importlib.metadata import version
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

import numpy as np

CHECKSUM_BYTES = 16
# Bits of `ndarray.flags.num`: an array by rows is that, even if it has one row or column only.
_BY_ROWS, _BY_COLUMNS, _OWNED = 0x1, 0x2, 0x4
# Versions of numba whose internals are known.
TESTED = ("0.68.",)
# Settings of numba that do not change what it compiles; with any other one, it is asked itself.
_HARMLESS = {"NUMBA_CACHE_DIR", "NUMBA_NUM_THREADS"}
_RUNTIME = (("numba._helperlib", "."), ("numba._dynfunc", "."), ("numba.core.runtime._nrt_python", "core/runtime"))
_SECTION = np.dtype("u4, u4, u8, u8, u8, u8, u4, u4, u8, u8")
_SYMBOL = np.dtype("u4, u1, u1, u2, u8, u8")
_SYMBOL_TABLE = 2

_LOCK = threading.RLock()
# Constants of machine code by their pickles: the class of arrays, which is the one that loops have had so far.
_constants: dict[bytes, Any] = {pickle.dumps(np.ndarray, 4): np.ndarray}
_STATE = {"runs": False}


class Runtime(NamedTuple):
    """The libraries that loops run with: LLVM, numba's module of functions, ours, and what identifies them."""

    llvm: Any
    functions: ModuleType
    look_up: Any
    identity: str


def run_stored_code() -> None:
    """Run stored machine code in this process from now on: one that is over before importing numba has paid."""
    _STATE["runs"] = True


def runs_stored_code() -> bool:
    """Return whether this process runs stored machine code."""
    return _STATE["runs"]


def call_signature(arguments: Sequence[Any]) -> tuple[Any, ...] | None:
    """Describe the types of arguments as finely as numba does; None where numba has to look at them itself.

    >>> call_signature((1, 2.0, (True, None)))
    ('int', 'float', ('bool', 'NoneType'))
    >>> call_signature(("text",)) is None
    True
    """
    parts: list[Any] = []
    for each in arguments:
        kind = type(each)
        if kind is np.ndarray and each.dtype.kind in "biuf":
            flags = each.flags.num & ~_OWNED
            parts.append((each.dtype, each.ndim, flags & ~_BY_COLUMNS if flags & _BY_ROWS else flags))
        elif (kind is int and -(1 << 63) <= each < 1 << 63) or kind is float or kind is bool or each is None:
            parts.append(kind.__name__)
        elif isinstance(each, np.generic) and each.dtype.kind in "biuf":
            parts.append(each.dtype)
        elif kind is tuple or (issubclass(kind, tuple) and hasattr(kind, "_fields")):
            inner = call_signature(each)
            if inner is None:
                return None
            parts.append(inner if kind is tuple else (kind.__module__, kind.__qualname__, inner))
        else:
            return None
    return tuple(parts)


def load_code(function: FunctionType, signature: tuple[Any, ...]) -> Callable[..., Any] | None:
    """Return the machine code of a loop for a signature, or None where it is not stored, damaged or out of date."""
    with suppress(Exception), _LOCK:
        runtime = _runtime()
        if runtime is not None:
            content = _file(function, signature, runtime.identity).read_bytes()
            if checksum(content[:-CHECKSUM_BYTES]) == content[-CHECKSUM_BYTES:]:
                return _load(content[:-CHECKSUM_BYTES], function, runtime)
    return None


def store_code(function: FunctionType, signature: tuple[Any, ...], payload: Any) -> None:
    """Store what numba's cache has of a loop, if that is possible.

    Parameters
    ----------
    function
        The loop in Python.
    signature
        Of the arguments, by `call_signature`.
    payload
        The entry of numba's cache.
    """
    with suppress(Exception):
        (_, kind, (code, _)), described, environment, _, in_objects, lifted, _, at_load, others = payload
        runtime = _runtime()
        if runtime is None or kind != "object" or in_objects or lifted or at_load:
            return
        environments = {each.env_name: each for each in (environment, *others)}
        constants = {name: [np.dtype(each).str for each in env.consts] for name, env in environments.items()}
        if any(not isinstance(each, np.dtype) for env in environments.values() for each in env.consts):
            return
        sources = {env.globals["__file__"] for env in environments.values()} | {function.__code__.co_filename}
        about = {
            "stamps": {file: _stamp(file) for file in sorted(sources)},
            "entry": described.llvm_cpython_wrapper_name,
            "environments": constants,
        }
        # Raises where it is no object that can be loaded.
        _undefined_symbols(code)
        content = json.dumps(about).encode() + b"\n" + code
        file = _file(function, signature, runtime.identity)
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary = file.with_suffix(f".{os.getpid()}.{threading.get_ident()}")
        temporary.write_bytes(content + checksum(content))
        temporary.replace(file)


def checksum(content: bytes) -> bytes:
    """Return what is stored behind machine code, to tell whether it is damaged."""
    return hashlib.blake2b(content, digest_size=CHECKSUM_BYTES).digest()


def _load(content: bytes, function: FunctionType, runtime: Runtime) -> Callable[..., Any] | None:
    """Link machine code, with an engine of its own: functions of the same name are not mixed."""
    header, _, code = content.partition(b"\n")
    about, llvm = json.loads(header), runtime.llvm
    if any(_stamp(file) != stamp for file, stamp in about["stamps"].items()):
        return None
    triple = llvm.get_process_triple()
    engine = llvm.create_mcjit_compiler(
        llvm.parse_assembly(f'target triple = "{triple}"'), llvm.Target.from_triple(triple).create_target_machine()
    )
    # Python's own functions are known once there is an engine. LLVM ends the process where one is missing, or where
    # this is no object file.
    if any(llvm.address_of_symbol(name) is None for name in _undefined_symbols(code)):
        return None
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    environments = []
    for name, constants in about["environments"].items():
        environment = runtime.functions.Environment(function.__globals__)
        environment.consts.extend(np.dtype(each) for each in constants)
        address = engine.get_global_value_address(name)
        if address:
            ctypes.c_void_p.from_address(address).value = id(environment)
        environments.append(environment)
    module, name = sys.modules[function.__module__], function.__name__
    entry = engine.get_function_address(about["entry"])
    if not entry:
        return None
    made: Callable[..., Any] = runtime.functions.make_function(
        module, name, function.__doc__ or "", entry, environments[0], (engine, *environments)
    )
    return made


def _unpickle(address: int, size: int, digest: int) -> Any:
    """Return a constant of machine code; numba's function for this imports numba."""
    content = ctypes.string_at(address, size)
    if content not in _constants:
        _constants[content] = pickle.loads(content)
    return _constants[content]


_UNPICKLE = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)(_unpickle)
# What loops call: it runs nothing of Python for a constant that is known. Ctrl-C, which waited for the end of a loop,
# would be raised there, where machine code expects an object, and end the process.
_LOOK_UP = """
declare ptr @PyBytes_FromStringAndSize(ptr, i64)
declare ptr @PyDict_GetItem(ptr, ptr)
declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)
define ptr @look_up(ptr %address, i32 %size, ptr %digest) {{
  %length = sext i32 %size to i64
  %key = call ptr @PyBytes_FromStringAndSize(ptr %address, i64 %length)
  %known = call ptr @PyDict_GetItem(ptr inttoptr (i64 {constants} to ptr), ptr %key)
  call void @Py_DecRef(ptr %key)
  %is_new = icmp eq ptr %known, null
  br i1 %is_new, label %ask, label %give
give:
  call void @Py_IncRef(ptr %known)
  ret ptr %known
ask:
  %found = call ptr inttoptr (i64 {unpickle} to ptr)(ptr %address, i32 %size, ptr %digest)
  ret ptr %found
}}
"""


def _compile_look_up(llvm: Any) -> Any:
    """Compile what loops call for a constant; the engine keeps it in memory."""
    unpickle = ctypes.cast(_UNPICKLE, ctypes.c_void_p).value
    code = llvm.parse_assembly(_LOOK_UP.format(constants=id(_constants), unpickle=unpickle))
    engine = llvm.create_mcjit_compiler(
        code, llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine()
    )
    engine.finalize_object()
    return engine


@cache
def _runtime() -> Runtime | None:
    """Load what loops run with, None where they need numba; what goes wrong is not tried again."""
    with suppress(Exception):
        return _load_runtime()
    return None


def _load_runtime() -> Runtime | None:
    changed = [name for name in os.environ if name.startswith("NUMBA_") and name not in _HARMLESS]
    numba = find_spec("numba")
    if sys.platform != "linux" or sys.maxsize < 1 << 32 or changed or numba is None or numba.origin is None:
        return None
    if not version("numba").startswith(TESTED):
        return None
    import llvmlite.binding as llvm

    folder = Path(numba.origin).parent
    helpers, functions, memory = (_extension(name, str(folder / below)) for name, below in _RUNTIME)
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    # As numba names them; an exception's name stands for the class, not for a variable with its address.
    llvm.add_symbol("_Py_NoneStruct", id(None))
    for name, address in (helpers.c_helpers | functions.c_helpers).items():
        llvm.add_symbol(f"numba_{name}", address)
    for name, address in memory.c_helpers.items():
        llvm.add_symbol(name if name.startswith("_") else f"NRT_{name}", address)
    look_up = _compile_look_up(llvm)
    llvm.add_symbol("numba_unpickle", look_up.get_function_address("look_up"))
    for name, value in vars(builtins).items():
        if isinstance(value, type) and issubclass(value, BaseException):
            llvm.add_symbol(f"PyExc_{name}", id(value))
    files = [module.__file__ for module in (helpers, functions, memory)]
    processor = llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
    made = sys.implementation.cache_tag, np.__version__, [(file, _stamp(str(file))) for file in files], processor
    return Runtime(llvm, functions, look_up, repr(made))


def _extension(name: str, folder: str) -> Any:
    """Load an extension module of numba without numba, which finds it loaded when it is imported itself."""
    spec = PathFinder.find_spec(name, [folder])
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(name)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _stamp(file: str) -> list[int]:
    status = os.stat(file)
    return [status.st_mtime_ns, status.st_size]


def _file(function: FunctionType, signature: tuple[Any, ...], identity: str) -> Path:
    """Return where a loop is stored: in NUMBA_CACHE_DIR, beside the source, or in the user's cache folder."""
    source, line = function.__code__.co_filename, function.__code__.co_firstlineno
    digest = hashlib.sha256(repr((source, signature, identity)).encode()).hexdigest()[:16]
    chosen, beside = os.environ.get("NUMBA_CACHE_DIR"), Path(source).parent / "__pycache__"
    if chosen:
        folder = Path(chosen) / "treelabel"
    elif os.access(beside, os.W_OK):
        folder = beside
    else:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "treelabel" / "loops"
    return folder / f"{Path(source).stem}.{function.__name__}-{line}.{digest}.loop"


def _undefined_symbols(code: bytes) -> list[str]:
    """List what an ELF object needs of others."""
    if code[:6] != b"\x7fELF\x02\x01":
        raise ValueError("no ELF object of 64 bits")
    (start,), (count,) = struct.unpack_from("<Q", code, 0x28), struct.unpack_from("<H", code, 0x3C)
    sections = np.frombuffer(code, _SECTION, count, start)
    (table,) = sections[sections["f1"] == _SYMBOL_TABLE]
    first = int(sections[table["f6"]]["f4"])
    symbols = np.frombuffer(code, _SYMBOL, int(table["f5"]) // _SYMBOL.itemsize, int(table["f4"]))
    names = symbols["f0"][(symbols["f3"] == 0) & (symbols["f0"] > 0)].tolist()
    return [code[first + name : code.index(b"\0", first + name)].decode() for name in names]
