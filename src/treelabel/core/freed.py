"""Memory that was freed, given back to the system."""

import ctypes
from functools import cache
from typing import Any


def release_freed_memory() -> None:
    """Return to the system what the C library keeps of freed memory, where it is glibc's; elsewhere do nothing.

    glibc keeps blocks of up to 32 MB for later, so that between two phases of learning a fifth of the resident memory
    may hold nothing. Takes milliseconds: for between phases, not within loops.
    """
    trim = _malloc_trim()
    if trim is not None:
        trim(0)


@cache
def _malloc_trim() -> Any:
    try:
        return ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return None
