"""How hot loops run: compiled once with numba, cached on disk, spread over threads without the GIL.

Threads come from `concurrent.futures` and not from numba's `parallel=True`: that one compiles for seconds, and its
portable threading layer aborts the process when two Python threads enter it at once, as a web service would.
"""

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt

from treelabel.core.code_cache import cache_compiled

IntArray = npt.NDArray[np.int32]
LongArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float32]
DoubleArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

# So many rows are worth a thread where a row takes some ten nanoseconds.
LIGHT = 16384

Kernel = TypeVar("Kernel", bound=Callable[..., Any])
Part = TypeVar("Part")


def kernel(function: Kernel) -> Kernel:
    """Compile a loop over arrays to machine code that releases the GIL; the result is cached beside the source."""
    return _compiled(function, fastmath=False)


def fast_kernel(function: Kernel) -> Kernel:
    """Compile as `kernel` does, letting sums change their order and taking no heed of NaN, for loops over vectors."""
    return _compiled(function, fastmath=True)


def _compiled(function: Kernel, fastmath: bool) -> Kernel:
    dispatcher = numba.njit(nogil=True, fastmath=fastmath)(function)
    cache_compiled(dispatcher)
    return cast("Kernel", dispatcher)


def thread_count() -> int:
    """Give the number of threads hot loops use: `TREELABEL_THREADS`, or the cores this process may run on."""
    asked = os.environ.get("TREELABEL_THREADS", "")
    if asked.isdigit() and int(asked) > 0:
        return int(asked)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def over_rows(work: Callable[[int, int], Part], rows: int, least: int = 2048, most: int | None = None) -> list[Part]:
    """Call `work(start, stop)` on consecutive parts of `range(rows)` in threads; results come back in order.

    The parts do not depend on timing, so a result never does either. Fewer than `least` rows are not worth a thread;
    parts of `most` rows keep what passes from one loop to the next in the cache.

    >>> over_rows(lambda start, stop: (start, stop), 10)
    [(0, 10)]
    """
    threads = max(1, min(thread_count(), rows // least))
    parts = threads if most is None else threads * max(1, -(-rows // (most * threads)))
    edges = [rows * part // parts for part in range(parts + 1)]
    if threads == 1 or getattr(_here, "is_worker", False):
        return [work(start, stop) for start, stop in pairwise(edges)]
    return list(_pool(thread_count()).map(work, edges[:-1], edges[1:]))


# Threads are made once: making them takes longer than many a loop. A loop within a loop runs in the thread it is in.
_here = threading.local()
_pools: dict[int, ThreadPoolExecutor] = {}


def _pool(threads: int) -> ThreadPoolExecutor:
    if threads not in _pools:
        _pools[threads] = ThreadPoolExecutor(threads, "treelabel", initializer=_mark_worker)
    return _pools[threads]


def _mark_worker() -> None:
    _here.is_worker = True


# A forked process has none of its parent's threads.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pools.clear)
