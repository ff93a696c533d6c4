"""Keep BLAS to one thread while it solves tiny systems."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

_LOCK = threading.Lock()
# The blocks that are open, and what restores the number of threads when the last of them ends.
_STATE: dict[str, Any] = {"open": 0, "limit": None}


@cache
def _controller() -> Any:
    """Find the BLAS libraries of the process, which takes longer than a fit; they have to be loaded already."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Within this block, BLAS uses one thread, in all threads of the process.

    L-BFGS-B solves systems of at most ten equations in as many threads as there are processors, and these wait for each
    other by spinning: on a busy machine, several times as long as all the rest takes.

    >>> with one_blas_thread(), one_blas_thread():
    ...     pass
    """
    with _LOCK:
        if not _STATE["open"]:
            _STATE["limit"] = _controller().limit(limits=1)
        _STATE["open"] += 1
    try:
        yield
    finally:
        with _LOCK:
            _STATE["open"] -= 1
            if not _STATE["open"]:
                _STATE["limit"].restore_original_limits()
