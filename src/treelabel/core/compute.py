"""How hot loops run: compiled once with numba, cached on disk, spread over threads without the GIL.

This is the one place that makes threads. They come from `concurrent.futures` and not from numba's `parallel=True`: that
one compiles for seconds, and its portable threading layer aborts the process when two Python threads enter it at once,
as a web service would.
"""

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import cache, cached_property, update_wrapper
from itertools import pairwise
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from treelabel.core.machine_code import call_signature, load_code, runs_stored_code, store_code
from treelabel.core.types import DoubleArray, IntArray

# This many rows are worth a thread where a row takes some ten nanoseconds.
LIGHT = 16384
# Rows that are summed up before sums are: a fixed number, as rounding depends on it.
SUMMED_ROWS = 256
# Rows of a product that are one block, for the same reason.
PRODUCT_ROWS = 1024

Kernel = TypeVar("Kernel", bound=Callable[..., Any])
Part = TypeVar("Part")
Task = TypeVar("Task")


def kernel(function: Kernel) -> Kernel:
    """Compile a loop over arrays to machine code that releases the GIL; the result is cached beside the source."""
    return _compile(function, fastmath=False)


def fast_kernel(function: Kernel) -> Kernel:
    """Compile as `kernel` does, for loops over vectors: sums may change their order, and NaN is not respected."""
    return _compile(function, fastmath=True)


def _compile(function: Kernel, fastmath: bool) -> Kernel:
    return cast("Kernel", Loop(function, fastmath))


class Loop:
    """A loop that is compiled by numba when it is first called; a command runs its machine code if that is stored.

    Parameters
    ----------
    function
        The loop in Python.
    fastmath
        Whether sums may change their order.
    """

    def __init__(self, function: Any, fastmath: bool) -> None:
        update_wrapper(self, function)
        self.py_func, self._fastmath = function, fastmath
        self._stored: dict[Any, Callable[..., Any]] = {}
        self._call: Callable[..., Any] = self._choose_call

    def __call__(self, *arguments: Any) -> Any:
        """Run the loop."""
        return self._call(*arguments)

    def _choose_call(self, *arguments: Any) -> Any:
        """Run the loop for the first time."""
        self._call = self._call_stored if runs_stored_code() else self.dispatcher
        return self._call(*arguments)

    def _call_stored(self, *arguments: Any) -> Any:
        """Run stored machine code for arguments of these types; numba, and store its code, where there is none."""
        signature = call_signature(arguments)
        compiled = self._stored.get(signature)
        return self._call_new(signature, arguments) if compiled is None else compiled(*arguments)

    def _call_new(self, signature: tuple[Any, ...] | None, arguments: tuple[Any, ...]) -> Any:
        """Run the loop with arguments of new types."""
        compiled = None if signature is None else load_code(self.py_func, signature)
        if compiled is not None:
            self._stored[signature] = compiled
            return compiled(*arguments)
        result = self.dispatcher(*arguments)
        self._stored[signature] = self.dispatcher
        cache: Any = getattr(self.dispatcher, "_cache", None)
        if signature is not None and hasattr(cache, "entry"):
            types = tuple(map(self.dispatcher.typeof_pyval, arguments))
            store_code(self.py_func, signature, cache.entry(types, self.dispatcher.targetctx))
        return result

    @cached_property
    def dispatcher(self) -> Any:
        """numba's function for Python: it compiles, and keeps machine code in numba's cache."""
        return self._made(is_inner=False)

    @cached_property
    def _inner(self) -> Any:
        """numba's function for other loops."""
        return self._made(is_inner=True)

    @property
    def _numba_type_(self) -> Any:
        """The type that numba takes it for in a loop that calls it."""
        return self._inner._numba_type_

    def _made(self, is_inner: bool) -> Any:
        import numba

        from treelabel.core.code_cache import cache_compiled

        # Wrappers are a large part of the time that compiling takes: nothing calls loops from C, and Python calls few
        # of those that loops call. A loop that may round otherwise is part of every caller: all copies of a function in
        # a process are one symbol, so that a call would run the copy that happened to be compiled or loaded first, and
        # the bits of a result depend on what is in the cache.
        wrappers: Any = {"no_cfunc_wrapper": True, "no_cpython_wrapper": is_inner}
        options: Any = {"nogil": True, "fastmath": self._fastmath, "forceinline": self._fastmath, **wrappers}
        dispatcher = numba.njit(**options)(self.py_func)
        cache_compiled(dispatcher, "inner" if is_inner else "")
        return dispatcher


@kernel
def with_room(values: IntArray, used: int, more: int) -> IntArray:
    """Return a larger array, for loops whose output grows: it begins with values[:used] and has room for `more`.

    Parameters
    ----------
    values : int32 array
        What has been written so far.
    used : int
        How many of its entries count.
    more : int
        How many further entries there must be room for; there is room for as many again.

    Returns
    -------
    int32 array

    >>> grown = with_room(np.array([3, 5, 0], np.int32), 2, 2)
    >>> grown[:2].tolist(), len(grown)
    ([3, 5], 8)
    """
    larger = np.empty(2 * (used + more), np.int32)
    for index in range(used):
        larger[index] = values[index]
    return larger


def thread_count() -> int:
    """Return the number of threads hot loops use: `TREELABEL_THREADS`, or the cores this process may run on."""
    asked = os.environ.get("TREELABEL_THREADS", "")
    if asked.isdigit() and int(asked) > 0:
        return int(asked)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def over_rows(work: Callable[[int, int], Part], rows: int, least: int = 2048, most: int | None = None) -> list[Part]:
    """Call `work(start, stop)` on consecutive parts of `range(rows)` in threads.

    The parts do not depend on timing, so a result never does either. They depend on the number of threads: what is
    summed over rows is summed by `sum_rows`.

    Parameters
    ----------
    work : callable
        Gets the first row of a part, and one past the last.
    rows : int
        How many rows there are.
    least : int
        Fewer rows than this are not worth a thread.
    most : int, optional
        Rows of a part at most, to keep what passes from one loop to the next in the cache.

    Returns
    -------
    list
        The results, in the order of the rows.

    >>> over_rows(lambda start, stop: (start, stop), 10)
    [(0, 10)]
    """
    threads = max(1, min(thread_count(), rows // least))
    parts = threads if most is None else threads * max(1, -(-rows // (most * threads)))
    edges = [rows * part // parts for part in range(parts + 1)]
    if threads == 1 or in_worker_thread():
        return [work(start, stop) for start, stop in pairwise(edges)]
    return list(_pool(thread_count()).map(work, edges[:-1], edges[1:]))


def join_rows(work: Callable[[int, int], Any], rows: int, least: int = 2048) -> Any:
    """Concatenate what `over_rows` returns: arrays, or tuples of arrays, one entry per row or part of one."""
    parts = over_rows(work, rows, least)
    if len(parts) == 1:
        return parts[0]
    if isinstance(parts[0], tuple):
        return tuple(map(np.concatenate, zip(*parts, strict=True)))
    return np.concatenate(parts)


def sum_rows(work: Callable[[int, int], DoubleArray], rows: int, block: int = SUMMED_ROWS) -> DoubleArray:
    """Sum `work(start, stop)` over blocks of `range(rows)` in threads: the same bits with any number of threads.

    Parameters
    ----------
    work : callable
        Returns the sums over the rows from its first argument up to its second, as an array.
    rows : int
        How many rows there are.
    block : int
        Rows of a block, which must not depend on the number of threads.

    Returns
    -------
    array
        The sums, added in the order of the blocks.

    >>> sum_rows(lambda start, stop: np.array([stop - start, 1.0]), 1000).tolist()
    [1000.0, 4.0]
    """

    def several(first: int, last: int) -> list[DoubleArray]:
        return [work(block * number, min(block * (number + 1), rows)) for number in range(first, last)]

    # No rows are one empty block, so that there is always something to add.
    parts = over_rows(several, max(1, -(-rows // block)), least=1)
    total: DoubleArray = np.sum([sums for part in parts for sums in part], axis=0)
    return total


def row_product(left: npt.NDArray[Any], right: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Multiply dense matrices in blocks of rows, in threads: the same bits with any number of threads.

    BLAS divides a product by the threads it may use, and rounds as it was divided; here each block has one thread.

    >>> row_product(np.array([[1.0, 2.0]]), np.array([[3.0], [4.0]])).tolist()
    [[11.0]]
    """

    def several(first: int, last: int) -> list[npt.NDArray[Any]]:
        return [left[PRODUCT_ROWS * number : PRODUCT_ROWS * (number + 1)] @ right for number in range(first, last)]

    with one_blas_thread():
        parts = over_rows(several, max(1, -(-len(left) // PRODUCT_ROWS)), least=1)
    return np.concatenate([block for part in parts for block in part])


def in_threads(
    work: Callable[[Task], Part],
    tasks: Iterable[Task],
    done: Callable[[int], None] | None = None,
    interrupt: Callable[[], None] | None = None,
    threads: int | None = None,
) -> list[Part]:
    """Call `work` on every task in threads, each of which releases the GIL for most of its time.

    Parameters
    ----------
    work : callable
        Gets one task.
    tasks : iterable
        The tasks, taken in order.
    done : callable, optional
        Told how many tasks have been finished, in order, while waiting for the others.
    interrupt : callable, optional
        Called at the first Ctrl-C or error, to ask the tasks to be quick. After Ctrl-C their results are waited for and
        returned; a second Ctrl-C is let through. Without it, the first Ctrl-C is.
    threads : int, optional
        How many threads; by default `thread_count()`.

    Returns
    -------
    list
        The results, in the order of the tasks.

    >>> in_threads(lambda number: number**2, range(4))
    [0, 1, 4, 9]
    """
    if in_worker_thread():
        return [work(task) for task in tasks]
    pool = _pool(thread_count() if threads is None else threads)
    waiting = [pool.submit(work, task) for task in tasks]
    try:
        try:
            for number, task in enumerate(waiting, 1):
                task.result()
                if done is not None:
                    done(number)
        except BaseException as error:
            if interrupt is not None:
                interrupt()
            if interrupt is None or not isinstance(error, KeyboardInterrupt):
                raise
        return [task.result() for task in waiting]
    except BaseException:
        # Begin no further task, and leave none running that the caller believes to be over.
        for task in waiting:
            task.cancel()
        wait(waiting)
        raise


def background(items: Iterable[Part]) -> Iterator[Part]:
    """Yield what an iterable makes; while an item is in use, a thread makes the next one.

    >>> list(background(number**2 for number in range(4)))
    [0, 1, 4, 9]
    """
    iterator, end = iter(items), object()
    with ThreadPoolExecutor(1, "treelabel") as pool:
        made: Future[Any] = pool.submit(next, iterator, end)
        while (item := made.result()) is not end:
            made = pool.submit(next, iterator, end)
            yield item


def run_in_thread(work: Callable[[], None]) -> None:
    """Run a function in a thread of its own, which ends with the process."""
    threading.Thread(target=work, name="treelabel", daemon=True).start()


def worker_thread() -> ThreadPoolExecutor:
    """Make a pool of one thread, for work that is done in the order in which it comes; the caller shuts it down."""
    return ThreadPoolExecutor(1, "treelabel-worker")


# Threads are made once: making them takes longer than many a loop. A loop within a loop runs in the thread it is in.
_here = threading.local()
_pools: dict[int, ThreadPoolExecutor] = {}


def _pool(threads: int) -> ThreadPoolExecutor:
    if threads not in _pools:
        _pools[threads] = ThreadPoolExecutor(threads, "treelabel", initializer=_mark_worker)
    return _pools[threads]


def _mark_worker() -> None:
    _here.is_worker = True


def in_worker_thread() -> bool:
    """Return whether this is a thread of the pool, in which loops run one after the other."""
    return getattr(_here, "is_worker", False)


# A forked process has none of its parent's threads.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pools.clear)


_BLAS_LOCK = threading.Lock()
# The blocks that are open, and what restores the number of threads when the last of them ends.
_BLAS: dict[str, Any] = {"open": 0, "limit": None}


@cache
def _blas_controller() -> Any:
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
    with _BLAS_LOCK:
        if not _BLAS["open"]:
            _BLAS["limit"] = _blas_controller().limit(limits=1)
        _BLAS["open"] += 1
    try:
        yield
    finally:
        with _BLAS_LOCK:
            _BLAS["open"] -= 1
            if not _BLAS["open"]:
                _BLAS["limit"].restore_original_limits()
