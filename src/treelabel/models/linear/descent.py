"""Dual coordinate descent for one-vs-rest outputs: sixteen at once, one document after the other.

Blocks of outputs are independent and run in threads; the order of documents comes from the seed, so a result never
depends on timing.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from treelabel.core.compute import BoolArray, FloatArray, IntArray, LongArray, fast_kernel, kernel, thread_count
from treelabel.models.linear.blocks import BLOCK, add_multiples, add_products
from treelabel.models.stopping import StopSignal

# A document whose dual variables would all change by less than this rests, at first for one pass, then for longer.
SMALL = np.float32(0.02)
LONGEST_REST = 4

# The value of an output that has seen no positive document: a label that is not there.
ABSENT = np.float32(-1e4)

# Takes what a block has learned: its outputs, their values for the documents held out, weights and bias.
Take = Callable[[IntArray, FloatArray, FloatArray, FloatArray], None]


@dataclass(frozen=True, eq=False)
class Rows:
    """Documents as features, and those that are held out at first.

    What the others teach says of these what it would say of new documents, which calibration needs. Then, if they are
    to be learned too, all are visited, from where learning without them ended.
    """

    features: sparse.csr_array
    held: LongArray
    most_passes: int = 7
    seed: int = 0
    learn_held: bool = True

    def orders(self, kept: LongArray | None = None) -> tuple[list[LongArray], list[LongArray]]:
        """Give the orders to visit documents in, first without those held out, then with them.

        `kept` are the documents that take part, all of them unless given.
        """
        rng = np.random.default_rng(self.seed)
        every = np.arange(self.features.shape[0]) if kept is None else kept
        first = np.setdiff1d(every, self.held, assume_unique=True)
        again = -(-self.most_passes // 2) if self.learn_held and len(first) < len(every) else 0
        orders = [rng.permutation(first) for _ in range(self.most_passes)]
        return orders, [rng.permutation(every) for _ in range(again)]


@kernel
def start_block(
    ptr: IntArray,
    idx: IntArray,
    val: FloatArray,
    total: FloatArray,
    share: float,
    positive: BoolArray,
    part: LongArray,
    weights: FloatArray,
    bias: FloatArray,
    duals: FloatArray,
) -> None:
    """Begin where every output says -1: each negative document of the part has the dual variable 1 / documents.

    That is right for nearly all documents of a rare label from the start, so few of them ever change.
    """
    change = np.zeros(BLOCK, np.float32)
    dual = np.float32(share)
    for feature in range(len(weights)):
        for b in range(BLOCK):
            weights[feature, b] = -dual * total[feature]
    bias[:] = -1
    for row in part:
        some = False
        for b in range(BLOCK):
            change[b] = dual if positive[row, b] else np.float32(0)
            duals[row, b] = dual - change[b]
            some |= positive[row, b]
        if some:
            bias += change
            add_multiples(idx, val, np.int64(ptr[row]), np.int64(ptr[row + 1]), weights, change)


@fast_kernel
def hinge_pass(
    ptr: IntArray,
    idx: IntArray,
    val: FloatArray,
    positive: BoolArray,
    weights: FloatArray,
    bias: FloatArray,
    duals: FloatArray,
    rests: IntArray,
    cost: float,
    order: LongArray,
) -> int:
    """Visit every document once for a block of squared-hinge problems; give how many changed anything.

    Each problem is min 1/2 |w|^2 + C sum of max(0, 1 - y w x)^2, its dual one variable a >= 0 a document with
    w = sum of a y x; the best a for a document given all others is a - (y w x - 1 + a / 2C) / (|x|^2 + 1 / 2C), not
    below 0 (Hsieh et al. 2008). Rows have length 1, and a bias is one more feature of value 1.
    """
    ridge = np.float32(0.5 / cost)
    step = np.float32(1) / (np.float32(2) + ridge)
    margin, change, after = np.zeros(BLOCK, np.float32), np.zeros(BLOCK, np.float32), np.zeros(BLOCK, np.float32)
    changed = 0
    for row in order:
        if rests[row, 0] > 0:
            rests[row, 0] -= 1
            continue
        first, last = np.int64(ptr[row]), np.int64(ptr[row + 1])
        margin[:] = bias
        add_products(idx, val, first, last, weights, margin)
        moved = np.float32(0)
        for b in range(BLOCK):
            before, sign = duals[row, b], np.float32(1) if positive[row, b] else np.float32(-1)
            after[b] = max(before - (sign * margin[b] - np.float32(1) + ridge * before) * step, np.float32(0))
            change[b] = (after[b] - before) * sign
            moved = max(moved, abs(change[b]))
        if moved < SMALL:
            rests[row, 1] = min(LONGEST_REST, 2 * rests[row, 1] + 1)
            rests[row, 0] = rests[row, 1]
            continue
        changed += 1
        rests[row, 1] = 0
        duals[row] = after
        bias += change
        add_multiples(idx, val, first, last, weights, change)
    return changed


@kernel
def block_products(
    ptr: IntArray, idx: IntArray, val: FloatArray, weights: FloatArray, bias: FloatArray, rows: LongArray
) -> FloatArray:
    """Multiply documents with the weights of a block."""
    found = np.empty((len(rows), BLOCK), np.float32)
    margin = np.empty(BLOCK, np.float32)
    for place in range(len(rows)):
        row = rows[place]
        margin[:] = bias
        add_products(idx, val, np.int64(ptr[row]), np.int64(ptr[row + 1]), weights, margin)
        found[place] = margin
    return found


def train_hinge(
    rows: Rows, positives: sparse.csc_array, cost: float, take: Take, stop: StopSignal, done: Callable[[int], None]
) -> None:
    """Train one squared-hinge problem for each column of `positives`, without the documents held out, then with them.

    `take(outputs, margins, weights, bias)` gets each block: the outputs for the held documents as learned without
    them, and the weights as learned from all. Costs about documents x features a document x outputs x 5 passes / 16;
    memory holds one block a thread. Once `stop` is true, what remains is visited in few passes.
    """
    features, (first_orders, then_orders) = rows.features, rows.orders()
    count = features.shape[0]
    ptr, idx, val = features.indptr, features.indices, features.data
    known = np.sort(first_orders[0])
    total = np.asarray(features[known].sum(axis=0), np.float32).ravel()

    def block(first: int) -> None:
        outputs = np.arange(first, min(first + BLOCK, positives.shape[1]), dtype=np.int32)
        positive = np.zeros((count, BLOCK), np.bool_)
        for b, column in enumerate(outputs):
            positive[positives.indices[positives.indptr[column] : positives.indptr[column + 1]], b] = True
        weights = np.empty((features.shape[1], BLOCK), np.float32)
        bias, duals = np.zeros(BLOCK, np.float32), np.zeros((count, BLOCK), np.float32)
        start_block(ptr, idx, val, total, 1 / max(1, len(known)), positive, known, weights, bias, duals)

        def visit(orders: Sequence[LongArray]) -> None:
            rests = np.zeros((count, 2), np.int32)
            for order in orders:
                if not hinge_pass(ptr, idx, val, positive, weights, bias, duals, rests, cost, order) or stop:
                    break

        # What is rare comes first: all other documents are right where they begin.
        visit([known[positive[known].any(axis=1)]])
        visit(first_orders)
        margins = block_products(ptr, idx, val, weights, bias, rows.held)
        margins[:, ~positive[known].any(axis=0)] = ABSENT
        visit(then_orders)
        take(outputs, margins, weights, bias)

    in_threads(block, range(0, positives.shape[1], BLOCK), stop, done)


def in_threads(
    work: Callable[[Any], None], tasks: Sequence[Any], stop: StopSignal, done: Callable[[int], None]
) -> None:
    """Do all tasks in threads; the first Ctrl-C asks them to be quick, a second one is let through."""
    with ThreadPoolExecutor(thread_count()) as pool:
        waiting = [pool.submit(work, task) for task in tasks]
        try:
            for number, task in enumerate(waiting):
                task.result()
                done(number + 1)
        except KeyboardInterrupt:
            stop.interrupt()
            try:
                for task in waiting:
                    task.result()
            except BaseException:
                _give_up(waiting)
                raise
        except BaseException:
            stop.interrupt()
            _give_up(waiting)
            raise


def _give_up(waiting: list[Future[None]]) -> None:
    """Begin no further task; the pool waits for those that are under way, which are quick once they are to stop."""
    for task in waiting:
        task.cancel()
