"""Find the thresholds of rules on validation data: for micro and macro F1."""

import numpy as np

from treelabel.core.compute import kernel, over_rows
from treelabel.core.errors import TreelabelError
from treelabel.core.types import BoolArray, DoubleArray, LongArray, ScoreArray
from treelabel.hierarchy import LabelMatrix, matches
from treelabel.rules.threshold import threshold
from treelabel.scores import Scores


def best_threshold(scores: Scores, truth: LabelMatrix) -> tuple[float, float]:
    """Find the threshold on all scores with the largest micro F1 against closed truth; return it and that F1.

    It lies halfway between two scores. Costs sorting the scores.

    Parameters
    ----------
    scores
        The scores of validation documents.
    truth : label matrix of shape (documents, nodes)

    Returns
    -------
    (float, float)

    >>> from treelabel.hierarchy import Hierarchy
    >>> from treelabel.hierarchy.labels import encode
    >>> h = Hierarchy.flat(["A", "B"])
    >>> t, f1 = best_threshold(Scores(h, [[0.75, 0.5], [0.25, 0.125]]), encode(h, [["A", "B"], []]))
    >>> t, f1
    (0.375, 1.0)
    """
    matrix = scores.csr()
    everything = np.array([0, matrix.nnz])
    found, values = _best_cuts(everything, matrix.data, matches(truth, matrix), np.array([truth.nnz]))
    if not found[0] > 0:
        raise TreelabelError("no true label has a score above 0 in the validation data, so there is no threshold")
    return float(found[0]), float(values[0])


def best_threshold_per_label(scores: Scores, truth: LabelMatrix) -> tuple[ScoreArray, float]:
    """Find the threshold of each label with its largest F1 against closed truth; return them and the macro F1 reached.

    The macro F1 is that of what they predict, ancestors added.
    Labels that validation data tell nothing about, with no true document that has a score, take the one threshold that
    is best for micro F1. Costs sorting the scores label by label; labels run on all cores.

    Parameters
    ----------
    scores
        The scores of validation documents.
    truth : label matrix of shape (documents, nodes)

    Returns
    -------
    (array of shape (nodes,), float)
    """
    matrix = scores.csr()
    hits = matches(truth, matrix)
    place = np.argsort(matrix.indices, kind="stable")
    ptr = np.concatenate([[0], np.cumsum(np.bincount(matrix.indices, minlength=matrix.shape[1]))])
    true = np.bincount(truth.indices, minlength=matrix.shape[1])
    found, _ = _best_cuts(ptr, matrix.data[place], hits[place], true)
    usual, _ = best_threshold(scores, truth)
    thresholds: ScoreArray = np.where(found > 0, found, scores.dtype.type(usual))
    return thresholds, _macro_f1(scores.hierarchy.closure(threshold(scores, thresholds)), truth)


def _macro_f1(chosen: LabelMatrix, truth: LabelMatrix) -> float:
    """Compute the mean over labels of 2 hits / (predicted + true), 0 for labels that are neither."""
    size = truth.shape[1]
    hits = np.bincount(chosen.indices[matches(truth, chosen)], minlength=size)
    total = np.bincount(chosen.indices, minlength=size) + np.bincount(truth.indices, minlength=size)
    return float(np.divide(2 * hits, total, out=np.zeros(size), where=total > 0).mean())


def _best_cuts(ptr: LongArray, values: ScoreArray, hits: BoolArray, true: LongArray) -> tuple[ScoreArray, DoubleArray]:
    parts = over_rows(
        lambda start, stop: best_cuts(ptr.astype(np.int64), values, hits, true.astype(np.int64), start, stop),
        len(true),
        least=64,
    )
    return np.concatenate([cut for cut, _ in parts]), np.concatenate([value for _, value in parts])


@kernel
def best_cuts(
    ptr: LongArray, values: ScoreArray, hits: BoolArray, true: LongArray, start: int, stop: int
) -> tuple[ScoreArray, DoubleArray]:
    """For each group of scores find the threshold with the largest F1 = 2 hits / (predicted + true), and that F1.

    0 where no threshold hits anything. Equal scores are predicted together.
    """
    cuts, best = np.zeros(stop - start, values.dtype), np.zeros(stop - start)
    for group in range(start, stop):
        low, high = ptr[group], ptr[group + 1]
        order = np.argsort(-values[low:high])
        right = 0
        for rank in range(high - low):
            value = values[low + order[rank]]
            right += hits[low + order[rank]]
            following = values[low + order[rank + 1]] if rank + 1 < high - low else np.float32(0)
            f1 = 2 * right / (rank + 1 + true[group])
            if following < value and f1 > best[group - start]:
                middle = (value + following) / np.float32(2)
                best[group - start] = f1
                cuts[group - start] = middle if middle > following else value
    return cuts, best
