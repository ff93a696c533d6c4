"""Memory within bounds: sizes from which scores are sparse or computed in blocks, and freed memory given back."""

import ctypes
from functools import cache
from typing import Any

# Above this many nodes, documents x nodes would fill the memory.
MANY_NODES = 20_000
# Scores, or terminal nodes, of a document that are kept then.
TOP_SCORES = 100
# Scores that are computed at once: no block of documents x nodes is larger.
BLOCK_SCORES = 1 << 22


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
