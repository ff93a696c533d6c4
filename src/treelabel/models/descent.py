"""Dual coordinate descent for linear heads: many outputs at once, one document after the other.

A head has one weight vector an output. Outputs are trained in blocks, whose weights lie side by side: visiting a
document then reads one short run of memory for each of its features instead of one number for each feature and output,
which is where the time goes. Blocks are independent and run in threads; the order of documents comes from the seed, so
a result never depends on timing.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
from scipy import sparse

from treelabel.compute import FloatArray, IntArray, LongArray, thread_count

# So many weights fill one line of the cache.
BLOCK = 16


@dataclass(frozen=True)
class Descent:
    """How to train: the weight C of errors, and when to stop."""

    cost: float = 1.0
    tolerance: float = 0.05
    most_passes: int = 10
    seed: int = 0


@numba.njit(nogil=True, cache=True, fastmath=True)
def outputs_of_row(idx: IntArray, val: FloatArray, weights: FloatArray, bias: FloatArray, found: FloatArray) -> None:
    """Multiply a document with the weights of a block."""
    for b in range(BLOCK):
        found[b] = bias[b]
    for at in range(len(idx)):
        x, feature = val[at], idx[at]
        for b in range(BLOCK):
            found[b] += x * weights[feature, b]


@numba.njit(nogil=True, cache=True, fastmath=True)
def add_row(idx: IntArray, val: FloatArray, weights: FloatArray, bias: FloatArray, change: FloatArray) -> None:
    """Add a multiple of a document to each weight vector of a block."""
    for b in range(BLOCK):
        bias[b] += change[b]
    for at in range(len(idx)):
        x, feature = val[at], idx[at]
        for b in range(BLOCK):
            weights[feature, b] += x * change[b]


@numba.njit(nogil=True, cache=True, fastmath=True)
def hinge_pass(
    ptr: IntArray,
    idx: IntArray,
    val: FloatArray,
    signs: FloatArray,
    weights: FloatArray,
    bias: FloatArray,
    duals: FloatArray,
    rests: IntArray,
    cost: float,
    order: LongArray,
) -> float:
    """Visit every document once for a block of squared-hinge problems; give the largest change of a dual variable.

    Each problem is min 1/2 |w|^2 + C sum of max(0, 1 - y w x)^2, its dual one variable a >= 0 a document with
    w = sum of a y x; the best a for a document given all others is a - (y w x - 1 + a / 2C) / (|x|^2 + 1 / 2C), not
    below 0 (Hsieh et al. 2008). Rows have length 1, and a bias is one more feature of value 1. A document that changed
    nothing rests for the next two passes.
    """
    ridge = np.float32(0.5 / cost)
    step = np.float32(1) / (np.float32(2) + ridge)
    margin, change = np.zeros(BLOCK, np.float32), np.zeros(BLOCK, np.float32)
    largest = np.float32(0)
    for row in order:
        if rests[row] > 0:
            rests[row] -= 1
            continue
        first, last = ptr[row], ptr[row + 1]
        outputs_of_row(idx[first:last], val[first:last], weights, bias, margin)
        moved = np.float32(0)
        for b in range(BLOCK):
            before, sign = duals[row, b], signs[row, b]
            after = max(before - (sign * margin[b] - np.float32(1) + ridge * before) * step, np.float32(0))
            duals[row, b] = after
            change[b] = (after - before) * sign
            moved = max(moved, abs(after - before))
        if moved <= np.float32(1e-4):
            rests[row] = 2
            continue
        largest = max(largest, moved)
        add_row(idx[first:last], val[first:last], weights, bias, change)
    return float(largest)


class Stop:
    """Tells workers to finish what they are at: after a deadline, or when asked."""

    def __init__(self, is_due: Callable[[], bool]) -> None:
        self._is_due, self.asked = is_due, False

    def __bool__(self) -> bool:
        return self.asked or self._is_due()


def train_hinge(
    features: sparse.csr_array,
    positives: sparse.csc_array,
    part: LongArray,
    rest: LongArray,
    how: Descent,
    take: Callable[[int, FloatArray, FloatArray, FloatArray], None],
    stop: Stop,
    done: Callable[[int], None],
) -> None:
    """Train one squared-hinge problem for each column of `positives`, first on a part of the documents, then on all.

    `take(first, margins, weights, bias)` gets each block: the outputs for the rest of the documents as learned from the
    part alone, which calibration needs, and the weights as learned from all, which begin where the part's ended. Costs
    about documents x features a document x outputs x 15 passes / 16; memory holds one block a thread. Once `stop` is
    true, each remaining block is visited in one pass only.
    """
    rows = features.shape[0]
    rng = np.random.default_rng(how.seed)
    first_orders = [rng.permutation(part) for _ in range(how.most_passes)]
    then_orders = [rng.permutation(rows) for _ in range(-(-how.most_passes // 2))]
    ptr, idx, val = features.indptr, features.indices, features.data
    held = features[rest]
    finished = [0]

    def block(first: int) -> None:
        signs = np.full((rows, BLOCK), -1, np.float32)
        for b in range(min(BLOCK, positives.shape[1] - first)):
            column = first + b
            signs[positives.indices[positives.indptr[column] : positives.indptr[column + 1]], b] = 1
        weights = np.zeros((features.shape[1], BLOCK), np.float32)
        bias, duals = np.zeros(BLOCK, np.float32), np.zeros((rows, BLOCK), np.float32)

        def visit(orders: list[LongArray]) -> None:
            rests = np.zeros(rows, np.int32)
            for order in orders:
                changed = hinge_pass(ptr, idx, val, signs, weights, bias, duals, rests, how.cost, order)
                if changed < how.tolerance or stop:
                    break

        visit(first_orders)
        margins = np.asarray(held @ weights) + bias
        visit(then_orders)
        take(first, margins, weights, bias)
        finished[0] += 1
        done(finished[0])

    firsts = range(0, positives.shape[1], BLOCK)
    with ThreadPoolExecutor(thread_count()) as pool:
        _finish(pool, block, firsts, stop)


def _finish(pool: ThreadPoolExecutor, work: Callable[[int], Any], tasks: Any, stop: Stop) -> None:
    """Wait for all tasks; the first Ctrl-C asks them to be quick, a second one is let through."""
    waiting = [pool.submit(work, task) for task in tasks]
    try:
        for task in waiting:
            task.result()
    except KeyboardInterrupt:
        if stop.asked:
            raise
        stop.asked = True
        try:
            for task in waiting:
                task.result()
        except KeyboardInterrupt:
            for task in waiting:
                task.cancel()
            raise
