"""The process of a command: what it does before it loads the command, and the signals and exit codes that end it."""

import gc
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec

# What typer, too, makes of Ctrl-C; and what shells make of SIGTERM.
INTERRUPTED = 130
TERMINATED = 143
# Loading a command makes some hundred thousand objects that stay, among which garbage would be looked for 300 times.
OBJECTS_BETWEEN_COLLECTIONS = 200_000
SELDOM_USED = {"ctypeslib", "f2py", "ma", "polynomial", "testing"}


class Terminated(BaseException):
    """SIGTERM: unlike Ctrl-C, which some commands take as a wish to end early, it always means to abort."""


def open_standard_files() -> None:
    """Open what the caller closed of standard input, output and error, as nothing: 2>&-, as some daemons do it.

    Else the next files that are opened would take their places, and what is printed would go into them.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115  for the whole process


def start_quickly(arguments: Sequence[str]) -> None:
    """Save a tenth of a second here and there, in a process that runs one command and ends."""
    gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS, *gc.get_threshold()[1:])
    if not (arguments[0].startswith("-") or {"--help", "-h"} & set(arguments)):
        load_arrow()
        hide_submodules()
        # It imports numpy, of which less is loaded now.
        from treelabel.core.machine_code import run_stored_code

        run_stored_code()


def end_quickly() -> None:
    """Save a twentieth of a second: a process that ends does not look for garbage among all that is left."""
    gc.freeze()


def load_arrow() -> None:
    """Load pyarrow so that it does not load pandas, which it does at the first list that it gets.

    No command uses pandas; loading it takes about as long as loading numpy and pyarrow.
    """
    import pyarrow as pa

    if "pandas" not in sys.modules:
        absent = _Absent()
        sys.meta_path.insert(0, absent)
        try:
            pa.array([])
        finally:
            sys.meta_path.remove(absent)


def hide_submodules() -> None:
    """Keep scipy from loading modules of NumPy that no command uses, as it does to copy all names of NumPy.

    That takes about as long as all the rest of `scipy.sparse`. `numpy.ma` and so on are loaded when they are used.
    """
    import numpy as np

    listed: set[str] = getattr(np, "__numpy_submodules__", set())
    np.__all__ = [name for name in np.__all__ if name not in SELDOM_USED]
    listed -= SELDOM_USED


class _Absent:
    """Finds no pandas, even where there is one."""

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        """Look for a module."""
        if name == "pandas":
            raise ModuleNotFoundError("pandas is not loaded here", name=name)
        return None
