"""Dual coordinate descent for one-vs-rest outputs: sixteen at once, one document after the other.

Blocks of outputs are independent and run in threads; the order of documents comes from the seed, so results never
depend on timing.
"""

import itertools
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from treelabel.calibration.contract import ABSENT
from treelabel.core.compute import fast_kernel, kernel
from treelabel.core.learning_tasks import run_tasks
from treelabel.core.stopping import StopSignal
from treelabel.core.types import BoolArray, DoubleArray, FloatArray, IntArray, LongArray
from treelabel.models.linear.pruned_weights import LargeWeights, prune_block
from treelabel.models.linear.vector_blocks import (
    BLOCK,
    add,
    add_multiples,
    add_products,
    copy,
    empty_lines,
    prefetch,
    prefetch_weights,
)

# Shrinking: a document whose dual variables would all change by less than this is skipped, at first for one pass, then
# for longer.
SMALL = np.float32(0.02)
LONGEST_SKIP = 4
# Documents before its turn that a document's features, and the weights of these, are brought into the cache.
ROWS_AHEAD, WEIGHTS_AHEAD = 4, 2
# Weights are not asked for where those of a block nearly fit the cache, nor where documents have more features than
# this: a long loop over them waits for little, and asking for all of them takes longer.
FEW_FEATURES, LONG_DOCUMENT = 1 << 15, 100

# Takes what a block has learned: its outputs, their margins of held-out documents, weights and bias.
Take = Callable[[IntArray, FloatArray, LargeWeights, FloatArray], None]


@dataclass(frozen=True, eq=False)
class TrainingRows:
    """Documents as features, and those whose margins calibration needs: margins as of new documents.

    For each fold the other documents are learned, which gives its margins; then all documents are learned. Going on
    from what a fold left, or taking a fold out of what all have given, is no shorter way: it takes as many passes until
    margins are what they would have been.

    Parameters
    ----------
    features : csr_array of shape (documents, features)
        Rows of length 1.
    folds : sequence of arrays of int64
        Documents, none of them in two folds.
    max_iter : int
        Passes over the documents at most.
    seed : int
        Seed of the order of documents.
    learn_all : bool
        Whether all documents are learned in the end, or only those outside the last fold.
    weights : array of shape (documents,) or None
        Weights above 0: the loss of a document counts C times as much.
    skipped : sequence of arrays of int64
        Folds that are not learned without; all documents are visited in the order in which they would be after these.
    new : csr_array of shape (documents of all folds, features) or None
        The documents of the folds as new documents would be written; None takes them from `features`.
    """

    features: sparse.csr_array
    folds: Sequence[LongArray]
    max_iter: int = 7
    seed: int = 0
    learn_all: bool = True
    weights: DoubleArray | None = None
    skipped: Sequence[LongArray] = ()
    new: sparse.csr_array | None = None

    @cached_property
    def held(self) -> LongArray:
        """The documents of all folds, in the order of their margins."""
        return np.concatenate([np.zeros(0, np.int64), *self.folds])

    def margins(self, fold: int, weights: FloatArray, bias: FloatArray) -> FloatArray:
        """Compute the margins of the documents of a fold by the weights of a block."""
        features, positions = self.features, self.folds[fold]
        if self.new is not None:
            first = sum(len(each) for each in self.folds[:fold])
            features, positions = self.new, np.arange(first, first + len(positions))
        return block_products(features.indptr, features.indices, features.data, weights, bias, positions)

    def document_c(self, c: float) -> DoubleArray:
        """Return C times the weight of each document."""
        return np.full(self.features.shape[0], c) if self.weights is None else c * self.weights

    def orders(self, participants: LongArray | None = None) -> list[list[LongArray]]:
        """Draw the orders in which to visit documents.

        Parameters
        ----------
        participants : array of int64 or None
            The documents that take part; all of them by default.

        Returns
        -------
        list of lists of arrays
            For each fold the orders of the passes over the other documents; then those over all, if these are learned.
        """
        rng = np.random.default_rng(self.seed)
        every = np.arange(self.features.shape[0]) if participants is None else participants
        learned = [np.setdiff1d(every, fold, assume_unique=True) for fold in (*self.skipped, *self.folds)]
        learned += [every] * self.learn_all
        drawn = [[rng.permutation(some) for _ in range(self.max_iter)] for some in learned]
        return drawn[len(self.skipped) :]


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
    """Start where every margin is about -1: each negative document of the part has the dual variable 1 / documents.

    For a rare label that is right for nearly all documents from the start, so few of them ever change.
    """
    change = np.zeros(BLOCK, np.float32)
    dual = np.float32(share)
    for feature in range(len(weights)):
        for b in range(BLOCK):
            weights[feature, b] = -dual * total[feature]
    for b in range(BLOCK):
        bias[b] = -1
    for row in part:
        some = False
        for b in range(BLOCK):
            change[b] = dual if positive[row, b] else np.float32(0)
            duals[row, b] = dual - change[b]
            some |= positive[row, b]
        if some:
            add(change, bias)
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
    skips: IntArray,
    ridges: FloatArray,
    relief: FloatArray,
    order: LongArray,
) -> int:
    """Visit every document once for a block of squared-hinge problems; return how many changed anything.

    Each problem is min 1/2 |w|^2 + sum of C_x max(0, 1 - y w x)^2, its dual one variable a >= 0 per document with
    w = sum of a y x; the best a for a document given all others is a - (y w x - 1 + a / 2C_x) / (|x|^2 + 1 / 2C_x), not
    below 0 (Hsieh et al. 2008). `ridges` are the 1 / 2C_x; an output's `relief` multiplies those of its positive
    documents. Rows have length 1, and a bias is one more feature of value 1.
    """
    margin, change, after = np.zeros(BLOCK, np.float32), np.zeros(BLOCK, np.float32), np.zeros(BLOCK, np.float32)
    changed = 0
    asks = len(weights) > FEW_FEATURES and len(idx) < LONG_DOCUMENT * (len(ptr) - 1)
    for position in range(len(order)):
        # A function of its own would take as long to call as it saves.
        if position + 2 * ROWS_AHEAD < len(order):
            row = order[position + 2 * ROWS_AHEAD]
            prefetch(skips, np.int64(2 * row), np.int64(2 * row + 1))
            prefetch(ptr, np.int64(row), np.int64(row + 1))
        if position + ROWS_AHEAD < len(order):
            row = order[position + ROWS_AHEAD]
            if skips[row, 0] <= 0:
                first, last = np.int64(ptr[row]), np.int64(ptr[row + 1])
                prefetch(idx, first, last)
                prefetch(val, first, last)
                prefetch(duals, np.int64(BLOCK * row), np.int64(BLOCK * row + 1))
                prefetch(positive, np.int64(BLOCK * row), np.int64(BLOCK * row + 1))
        if asks and position + WEIGHTS_AHEAD < len(order):
            row = order[position + WEIGHTS_AHEAD]
            if skips[row, 0] <= 0:
                prefetch_weights(idx, np.int64(ptr[row]), np.int64(ptr[row + 1]), weights)
        row = order[position]
        if skips[row, 0] > 0:
            skips[row, 0] -= 1
            continue
        ridge = ridges[row]
        first, last = np.int64(ptr[row]), np.int64(ptr[row + 1])
        copy(bias, margin)
        add_products(idx, val, first, last, weights, margin)
        moved = np.float32(0)
        for b in range(BLOCK):
            before, sign = duals[row, b], np.float32(1) if positive[row, b] else np.float32(-1)
            local_ridge = ridge * relief[b] if positive[row, b] else ridge
            step = np.float32(1) / (np.float32(2) + local_ridge)
            after[b] = max(before - (sign * margin[b] - np.float32(1) + local_ridge * before) * step, np.float32(0))
            change[b] = (after[b] - before) * sign
            moved = max(moved, abs(change[b]))
        if moved < SMALL:
            skips[row, 1] = min(LONGEST_SKIP, 2 * skips[row, 1] + 1)
            skips[row, 0] = skips[row, 1]
            continue
        changed += 1
        skips[row, 1] = 0
        copy(after, duals[row])
        add(change, bias)
        add_multiples(idx, val, first, last, weights, change)
    return changed


@kernel
def block_products(
    ptr: IntArray, idx: IntArray, val: FloatArray, weights: FloatArray, bias: FloatArray, rows: LongArray
) -> FloatArray:
    """Multiply documents with the weights of a block."""
    products = np.empty((len(rows), BLOCK), np.float32)
    margin = np.empty(BLOCK, np.float32)
    for position in range(len(rows)):
        row = rows[position]
        copy(bias, margin)
        add_products(idx, val, np.int64(ptr[row]), np.int64(ptr[row + 1]), weights, margin)
        copy(margin, products[position])
    return products


def learn_block(
    ptr: IntArray,
    idx: IntArray,
    val: FloatArray,
    total: FloatArray,
    positive: BoolArray,
    orders: Sequence[LongArray],
    ridges: FloatArray,
    relief: FloatArray,
    stop: StopSignal,
) -> tuple[FloatArray, FloatArray]:
    """Learn sixteen squared-hinge classifiers from the documents of `orders`: weights and biases.

    Parameters
    ----------
    ptr, idx, val
        The features of documents.
    total : array of shape (features,)
        The sum of those of the documents of `orders`.
    positive : array of shape (documents, 16)
        Marks the documents of each class.
    orders : sequence of arrays
        In which order documents are visited, pass by pass.
    ridges, relief
        As in `hinge_pass`.
    stop : StopSignal
        Once it is true, the pass is the last one.

    Returns
    -------
    (array of shape (features, 16), array of shape (16,))
    """
    weights, bias, part = empty_lines(len(total)), np.zeros(BLOCK, np.float32), np.sort(orders[0])
    duals = np.zeros((len(positive), BLOCK), np.float32)
    start_block(ptr, idx, val, total, 1 / max(1, len(part)), positive, part, weights, bias, duals)
    # Positive documents come first: nearly all others are right where they start.
    for visits in ([part[positive[part].any(axis=1)]], orders):
        skips = np.zeros((len(positive), 2), np.int32)
        for order in visits:
            if not hinge_pass(ptr, idx, val, positive, weights, bias, duals, skips, ridges, relief, order) or stop:
                break
    return weights, bias


@dataclass(frozen=True, eq=False)
class HingeJob:
    """The input of `train_hinge`; a task is the first output of a block, and which documents are left out.

    `orders` are those of `rows`, and `totals` the sums of the features of the documents that each of them visits.
    """

    rows: TrainingRows
    positives: sparse.csc_array
    orders: list[list[LongArray]]
    totals: list[FloatArray]
    ridges: FloatArray
    least: float
    stop: StopSignal

    def outputs(self, first: int) -> IntArray:
        """Return the outputs of a block."""
        return np.arange(first, min(first + BLOCK, self.positives.shape[1]), dtype=np.int32)

    def learn(self, task: tuple[int, int]) -> tuple[FloatArray, LargeWeights, FloatArray]:
        """Learn a block: the margins of the documents that were left out, weights and bias; weights of all alone."""
        (first, which), rows, positives = task, self.rows, self.positives
        features, outputs = rows.features, self.outputs(first)
        ptr, idx, val = features.indptr, features.indices, features.data
        positive = np.zeros((positives.shape[0], BLOCK), np.bool_)
        for b, column in enumerate(outputs):
            positive[positives.indices[positives.indptr[column] : positives.indptr[column + 1]], b] = True
        order, alike = self.orders[which], np.ones(BLOCK, np.float32)
        weights, bias = learn_block(ptr, idx, val, self.totals[which], positive, order, self.ridges, alike, self.stop)
        has_fold = which < len(rows.folds)
        margins = rows.margins(which, weights, bias) if has_fold else np.empty((0, BLOCK), np.float32)
        margins[:, ~positive[order[0]].any(axis=0)] = ABSENT
        is_last = which == len(self.orders) - 1
        return margins, prune_block(weights, outputs, self.least if is_last else np.inf), bias


def train_hinge(
    rows: TrainingRows,
    positives: sparse.csc_array,
    c: float,
    take: Take,
    stop: StopSignal,
    done: Callable[[int], None],
    least: float = 0.0,
) -> None:
    """Train one squared-hinge problem per output, without each fold of documents and with all.

    Costs about documents x features per document x outputs x 5 passes / 16 for each fold and once more; memory holds
    two blocks per thread at most.

    Parameters
    ----------
    rows : Rows
        Documents.
    positives : csc_array of shape (documents, outputs)
        Marks the positive documents of each output.
    c : float
        The weight of losses against that of large weights: scikit-learn's C.
    take : callable
        Gets each block: its outputs, the margins of the folds' documents as learned without them, weights and bias.
    stop : StopSignal
        Once it is true, the remaining outputs are learned in few passes.
    done : callable
        Gets the number of blocks that are done.
    least : float
        Smaller weights are dropped; if it is infinite, all are, without a look.
    """
    features, orders = rows.features, rows.orders()
    totals = [np.asarray(features[np.sort(order[0])].sum(axis=0), np.float32).ravel() for order in orders]
    ridges = (0.5 / rows.document_c(c)).astype(np.float32)
    job = HingeJob(rows, positives, orders, totals, ridges, least, stop)
    lock, learned = threading.Lock(), defaultdict[int, dict[int, Any]](dict)

    def collect(task: tuple[int, int], result: tuple[FloatArray, LargeWeights, FloatArray]) -> None:
        first, which = task
        with lock:
            learned[first][which] = result
            if len(learned[first]) < len(orders):
                return
            parts = learned.pop(first)
        margins = np.concatenate([parts[each][0] for each in range(len(orders))])
        take(job.outputs(first), margins, *parts[len(orders) - 1][1:])

    def report(number: int) -> None:
        if number % len(orders) == 0:
            done(number // len(orders))

    # Each fold of a block is a task: blocks that are few would keep some threads waiting for the last one.
    tasks = list(itertools.product(range(0, positives.shape[1], BLOCK), range(len(orders))))
    run_tasks(job, tasks, collect, report, stop.interrupt)
