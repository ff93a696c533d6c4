"""Sums of probabilities, level by level: what calibration of single nodes leaves out, and how it is put right.

Nodes that are calibrated one by one have the right sums, until parents are raised to their children, or probabilities
are multiplied down a DAG.
"""

from collections.abc import Callable

import numpy as np

from treelabel.calibration.contract import ABSENT, LEVELS, OutputSpace, levels_of
from treelabel.core.compute import kernel
from treelabel.core.types import BoolArray, DoubleArray, FloatArray, IntArray
from treelabel.hierarchy.label_matrices import LabelMatrix

# Shifts have a normal prior with this precision, and lie within these bounds.
PRIOR, BOUND = 1.0, 3.0
# Newton's method ends where no shift changes by more than this.
STEPS, TOLERANCE = 12, 1e-3
# The least share of p (1 - p) that a sum is taken to change by.
LEAST_SLOPE = 0.1


def fit_level_shifts(
    probabilities: Callable[[DoubleArray], FloatArray], outputs: OutputSpace, margins: FloatArray, labels: LabelMatrix
) -> DoubleArray:
    """Find what to add to the log odds of each level so that probabilities sum to the number of true labels.

    Labels that were not learned do not count. A normal prior keeps levels with few true labels where they are.

    Parameters
    ----------
    probabilities : callable
        Returns the probabilities of documents x nodes for shifts of log odds, one a level.
    outputs : OutputSpace
        What the margins stand for; ABSENT marks what was not learned.
    labels : csr_array of shape (documents, nodes)
        The true labels.

    Returns
    -------
    array of shape (LEVELS + 1,)
        The shifts.
    """
    h, has_output = outputs.hierarchy, outputs.node_outputs >= 0
    nodes = outputs.nodes[has_output]
    levels = levels_of(h, nodes)
    known = margins[:, outputs.node_outputs[has_output]] > ABSENT
    true = np.asarray(h.closure(labels)[:, nodes].toarray(), np.bool_) & known
    wanted = np.bincount(levels, true.sum(axis=0), LEVELS + 1)
    shifts, step, before = np.zeros(LEVELS + 1), np.zeros(LEVELS + 1), np.zeros(LEVELS + 1)
    for _ in range(STEPS):
        sums, slopes = level_sums(probabilities(shifts), known, nodes, levels, LEVELS + 1)
        # A node whose sum depends on other nodes, too, changes less than its log odds tell: see the last step.
        secants = np.divide(sums - before, step, out=slopes.copy(), where=np.abs(step) > TOLERANCE)
        slopes, before = np.clip(secants, LEAST_SLOPE * slopes, slopes), sums
        step = (wanted - sums - PRIOR * shifts) / (slopes + PRIOR)
        step = np.where((wanted > 0) & (sums > 0), np.clip(step, -0.5, 0.5), 0.0)
        step = np.clip(shifts + step, -BOUND, BOUND) - shifts
        shifts = shifts + step
        if np.abs(step).max() < TOLERANCE:
            break
    return shifts


def shift_odds(p: DoubleArray, shifts: DoubleArray) -> DoubleArray:
    """Add to the log odds of probabilities.

    >>> shift_odds(np.array([0.0, 0.5, 1.0]), np.log([2.0, 3.0, 4.0])).round(6).tolist()
    [0.0, 0.75, 1.0]
    """
    odds = np.exp(shifts)
    shifted: DoubleArray = p * odds / (1 - p + p * odds)
    return shifted


@kernel
def level_sums(
    p: FloatArray, known: BoolArray, nodes: IntArray, levels: IntArray, count: int
) -> tuple[DoubleArray, DoubleArray]:
    """Sum p and p (1 - p), its derivative by the log odds, over the known outputs of each level."""
    sums, slopes = np.zeros(count), np.zeros(count)
    for row in range(len(p)):
        for column in range(len(nodes)):
            if known[row, column]:
                value = np.float64(p[row, nodes[column]])
                sums[levels[column]] += value
                slopes[levels[column]] += value * (1 - value)
    return sums, slopes


@kernel
def shift_columns(p: FloatArray, odds: DoubleArray) -> FloatArray:
    """Multiply the odds of each column."""
    shifted = np.empty_like(p)
    for row in range(p.shape[0]):
        for column in range(p.shape[1]):
            value = p[row, column]
            shifted[row, column] = value * odds[column] / (1 - value + value * odds[column])
    return shifted
