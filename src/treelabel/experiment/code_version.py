"""The version of the code that a run used: the modules it loaded, each by a hash of what it means.

A run is repeated when one of them changes. Comments, docstrings and layout do not count.
"""

import ast
import hashlib
import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

# Rooms that cannot change what a run gives: they run it, or show it.
SHOWING = ("cli", "report", "experiment")
# Of these, modules that do.
MEANING = ("experiment.data_sets", "experiment.judging")
# Rooms that judge scores and have no part in making them; metrics have, as models choose by them.
JUDGING = ("evaluation", "experiment.judging")


def loaded_code() -> dict[str, str]:
    """Return the hash of every module of treelabel that this process has loaded and that can change a result."""
    names = [name for name in sorted(sys.modules) if name == "treelabel" or name.startswith("treelabel.")]
    return {name: code_hash(name) for name in names if _is_within(name, MEANING) or not _is_within(name, SHOWING)}


def is_current(code: Mapping[str, str], judging: bool = True) -> bool:
    """Return whether modules are still as they were.

    Parameters
    ----------
    code : mapping of str to str
        What `loaded_code` returned once.
    judging : bool
        Whether those count that only judge.

    Returns
    -------
    bool
    """
    return all(code_hash(name) == known for name, known in code.items() if judging or not _is_within(name, JUDGING))


def _is_within(name: str, rooms: tuple[str, ...]) -> bool:
    """Return whether a module is one of some rooms, or stands in one."""
    short = name.removeprefix("treelabel.")
    return any(short == room or short.startswith(f"{room}.") for room in rooms)


@lru_cache(maxsize=1024)
def code_hash(module: str) -> str:
    """Return a hash of what a module's source means; "" for one that is not there any more."""
    try:
        result = find_spec(module)
    except (ImportError, ValueError):
        return ""
    if result is None or result.origin is None or not result.origin.endswith(".py"):
        return ""
    return source_hash(Path(result.origin).read_text(encoding="utf-8"))


def source_hash(source: str) -> str:
    """Hash what a source means.

    >>> source_hash("x = 1  # one") == source_hash("x  =  1"), source_hash("x = 1") == source_hash("x = 2")
    (True, False)
    """
    parts: list[str] = []
    _collect(ast.parse(source), parts.append)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _collect(node: ast.AST, add: Callable[[str], None]) -> None:
    """Pass on a text for each node, its fields and where it ends: in one walk, as every run hashes some 200 modules."""
    add(type(node).__name__)
    for name in node._fields:
        value = getattr(node, name, None)
        # Whether a name is read or written follows from where it is.
        if value is None or name == "ctx":
            continue
        add(name)
        if isinstance(value, ast.AST):
            _collect(value, add)
        elif isinstance(value, list):
            for each in value[1:] if name == "body" and _has_docstring(node) else value:
                if isinstance(each, ast.AST):
                    _collect(each, add)
                else:
                    add(repr(each))
        else:
            add(repr(value))
    add("")


def _has_docstring(node: ast.AST) -> bool:
    if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return False
    first = node.body[0] if node.body else None
    return isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
