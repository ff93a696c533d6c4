"""Logistic regression inside groups of siblings: which child, given that the parent is right.

Every group is a small problem of its own, learned from the documents below its parent by stochastic dual coordinate
ascent (Shalev-Shwartz and Zhang 2013). Groups run in threads; the order of documents comes from the seed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from treelabel.calibration.contract import ABSENT, OutputSpace
from treelabel.calibration.siblings import SiblingGroups, documents_below
from treelabel.core.compute import kernel
from treelabel.core.learning_tasks import run_tasks
from treelabel.core.stopping import StopSignal
from treelabel.core.types import DoubleArray, FloatArray, IntArray, LongArray
from treelabel.models.linear.descent import (
    LONGEST_SKIP,
    SMALL,
    Take,
    TrainingRows,
)
from treelabel.models.linear.pruned_weights import LargeWeights, prune_block
from treelabel.models.linear.vector_blocks import BLOCK, add, add_multiples, add_products, copy, empty_lines
from treelabel.selection.training import Training

# The squared length of a row, its bias of 1 included.
SQUARES = 2.0
LEAST_SHARE = np.float32(1e-12)


@dataclass(frozen=True, eq=False)
class Group:
    """Siblings and the documents below their parent.

    Parameters
    ----------
    outputs : array of int32
        The outputs of the siblings.
    rows : array of int64
        The documents below their parent.
    true : array of shape (rows, siblings)
        1 where a document has a sibling.
    offsets : array of shape (siblings,)
        What is added to logits in training: tau x ln of each sibling's frequency where logits are adjusted, else 0.
    """

    outputs: IntArray
    rows: LongArray
    true: FloatArray
    offsets: FloatArray


@kernel
def softmax_step(logits: FloatArray, duals: FloatArray, c: float, change: FloatArray) -> None:
    """Compute how far the dual variables of a document go to the softmax of its logits: change = s (p - a).

    With D = p - a, s = min(1, (KL(a || p) + |D|_1^2 / 2) / (|D|_1^2 + C |x|^2 |D|_2^2)) raises the dual by most of what
    it can.
    """
    largest, total = np.float32(-np.inf), np.float32(0)
    for k in range(len(logits)):
        largest = max(largest, logits[k])
    for k in range(len(logits)):
        change[k] = np.exp(logits[k] - largest)
        total += change[k]
    gap, one, two = np.float32(0), np.float32(0), np.float32(0)
    for k in range(len(logits)):
        p, a = max(change[k] / total, LEAST_SHARE), duals[k]
        if a > LEAST_SHARE:
            gap += a * np.log(a / p)
        change[k] = p - a
        one += abs(change[k])
        two += change[k] * change[k]
    below = one * one + np.float32(c * SQUARES) * two
    step = min(np.float32(1), (gap + one * one / np.float32(2)) / below) if below > 0 else np.float32(0)
    for k in range(len(logits)):
        change[k] *= step


@kernel
def sigmoid_step(logits: FloatArray, duals: FloatArray, c: float, change: FloatArray) -> None:
    """Compute the same for independent sigmoids: s = min(1, (KL(a || p) + 2 D^2) / (4 D^2 + C |x|^2 D^2))."""
    for k in range(len(logits)):
        p = np.float32(1) / (np.float32(1) + np.exp(-logits[k]))
        p = min(max(p, LEAST_SHARE), np.float32(1 - 1e-7))
        a = duals[k]
        gap = np.float32(0)
        if a > LEAST_SHARE:
            gap += a * np.log(a / p)
        if a < 1:
            gap += (1 - a) * np.log((1 - a) / (1 - p))
        square = (p - a) * (p - a)
        below = square * np.float32(4 + c * SQUARES)
        step = min(np.float32(1), (gap + 2 * square) / below) if below > 0 else np.float32(0)
        change[k] = step * (p - a)


@kernel
def group_pass(
    softmax: bool,
    ptr: IntArray,
    idx: IntArray,
    val: FloatArray,
    rows: LongArray,
    weights: FloatArray,
    bias: FloatArray,
    duals: FloatArray,
    offsets: FloatArray,
    skips: IntArray,
    document_c: DoubleArray,
    order: LongArray,
) -> int:
    """Visit the documents of a group once, `order` being places among its rows; return how many changed anything.

    The problem is min 1/2 |W|^2 + sum of C_x x cross-entropies; W = sum of C_x (y - a) x, and a approaches the
    probabilities that W gives.
    """
    size, blocks = len(offsets), len(weights)
    logits, change = np.zeros(blocks * BLOCK, np.float32), np.zeros(blocks * BLOCK, np.float32)
    changed = 0
    for position in order:
        if skips[position, 0] > 0:
            skips[position, 0] -= 1
            continue
        c = document_c[rows[position]]
        first, last = np.int64(ptr[rows[position]]), np.int64(ptr[rows[position] + 1])
        for block in range(blocks):
            part = logits[block * BLOCK : (block + 1) * BLOCK]
            copy(bias[block], part)
            add_products(idx, val, first, last, weights[block], part)
        add(offsets, logits[:size])
        if softmax:
            softmax_step(logits[:size], duals[position], c, change[:size])
        else:
            sigmoid_step(logits[:size], duals[position], c, change[:size])
        moved = np.float32(0)
        for k in range(size):
            moved = max(moved, abs(change[k]))
        if moved * c < SMALL:
            skips[position, 1] = min(LONGEST_SKIP, 2 * skips[position, 1] + 1)
            skips[position, 0] = skips[position, 1]
            continue
        changed += 1
        skips[position, 1] = 0
        add(change[:size], duals[position])
        for k in range(size):
            change[k] *= np.float32(-c)
        for block in range(blocks):
            part = change[block * BLOCK : (block + 1) * BLOCK]
            add(part, bias[block])
            add_multiples(idx, val, first, last, weights[block], part)
    return changed


# What a block of siblings has learned: outputs, margins of held-out documents, weights and bias.
LearnedBlock = tuple[IntArray, FloatArray, LargeWeights, FloatArray]


@dataclass(frozen=True, eq=False)
class GroupJob:
    """The input of `train_groups`; a task is the number of a group."""

    rows: TrainingRows
    groups: Sequence[Group]
    softmax: bool
    document_c: DoubleArray
    least: float
    stop: StopSignal

    def learn(self, task: int) -> list[LearnedBlock]:
        """Learn a group, sixteen siblings a block."""
        group, rows, features = self.groups[task], self.rows, self.rows.features
        ptr, idx, val = features.indptr, features.indices, features.data
        blocks = -(-len(group.outputs) // BLOCK)
        weights = empty_lines(blocks, features.shape[1])
        bias = np.zeros((blocks, BLOCK), np.float32)
        position = np.full(features.shape[0], -1, np.int64)
        position[group.rows] = np.arange(len(group.rows))

        def visit(orders: Sequence[LongArray]) -> None:
            weights[:], bias[:], duals = 0, 0, group.true.copy()
            skips, state = np.zeros((len(group.rows), 2), np.int32), (ptr, idx, val, group.rows, weights, bias, duals)
            for order in orders:
                known = group.offsets, skips, self.document_c, position[order]
                if not group_pass(self.softmax, *state, *known) or self.stop:
                    break

        margins = [[np.empty((0, BLOCK), np.float32)] for _ in range(blocks)]
        orders = rows.orders(group.rows)
        for fold, some in enumerate(orders[: len(rows.folds)]):
            visit(some)
            known = np.asarray(group.true[position[some[0]]].any(axis=0))
            for b in range(blocks):
                products = rows.margins(fold, weights[b], bias[b])
                products[:, np.flatnonzero(~known[b * BLOCK : (b + 1) * BLOCK])] = ABSENT
                margins[b].append(products)
        if rows.learn_all:
            visit(orders[-1])
        parts = [group.outputs[b * BLOCK : (b + 1) * BLOCK] for b in range(blocks)]
        return [
            (part, np.concatenate(margins[b]), prune_block(weights[b], part, self.least), bias[b])
            for b, part in enumerate(parts)
        ]


def train_groups(
    rows: TrainingRows,
    groups: Sequence[Group],
    softmax: bool,
    c: float,
    take: Take,
    stop: StopSignal,
    done: Callable[[int], None],
    least: float = 0.0,
) -> None:
    """Train each group on the documents below its parent, without each fold of documents and with all.

    Costs about documents x features per document x the siblings on their paths x passes / 16 for each fold and once
    more, however many other labels there are; memory holds the features x siblings of one group per thread.

    Parameters
    ----------
    rows : Rows
        Documents.
    groups : sequence of Group
        Groups of siblings.
    softmax : bool
        Whether exactly one sibling is true of a document; otherwise each one has a sigmoid.
    c, take, stop, done, least
        As in `train_hinge`.
    """
    job = GroupJob(rows, groups, softmax, rows.document_c(c), least, stop)
    costs = [float(len(group.rows) * len(group.outputs)) for group in groups]
    order = sorted(range(len(groups)), key=lambda number: -costs[number])

    def collect(_: int, blocks: list[LearnedBlock]) -> None:
        for block in blocks:
            take(*block)

    run_tasks(job, order, collect, done, stop.interrupt, [costs[number] for number in order])


def softmax_groups(outputs: OutputSpace, train: Training, tau: float) -> list[Group]:
    """Divide documents by the children of each node: the groups of more than one sibling.

    Logits are adjusted for rare siblings by `tau` x ln of their frequencies.
    """
    siblings = SiblingGroups.of(outputs)
    targets = outputs.targets(train.labels)
    groups = []
    for first, end in pairwise(siblings.ptr.tolist()):
        members = siblings.outputs[first:end]
        if len(members) < 2:
            continue
        marks = targets[:, members].tocsr()
        rows = np.flatnonzero(np.diff(marks.indptr))
        true = marks[rows].toarray().astype(np.float32)
        # Add-one smoothing, so that no sibling has ln 0.
        frequencies = (true.sum(axis=0) + 1) / (len(rows) + len(members))
        groups.append(Group(members, rows, true, (tau * np.log(frequencies)).astype(np.float32)))
    return groups


def sigmoid_groups(outputs: OutputSpace, train: Training) -> list[Group]:
    """Divide documents by parents: nodes with the same parents are learned from the same documents."""
    h, closed, targets = train.hierarchy, train.closed_labels.tocsc(), outputs.targets(train.labels)
    by_parents: dict[tuple[int, ...], list[int]] = {}
    for index, node in enumerate(outputs.nodes.tolist()):
        parents = tuple(h.parent_idx[h.parent_ptr[node] : h.parent_ptr[node + 1]].tolist())
        by_parents.setdefault(parents, []).append(index)
    groups = []
    for indices in by_parents.values():
        rows: LongArray = documents_below(h, closed, int(outputs.nodes[indices[0]]))
        members = outputs.node_outputs[indices]
        true = targets[:, members].tocsr()[rows].toarray().astype(np.float32)
        groups.append(Group(members, rows, true, np.zeros(len(members), np.float32)))
    return groups
