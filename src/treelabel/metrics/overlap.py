"""Set metrics: everything that depends on a document only through a = w(S), b = w(Y), c = w(S and Y).

S is the closed prediction, Y the closed truth, w the sum of node weights; ratios of them are in `shared_formulas`.
"""

from collections.abc import Callable

import numpy as np

from treelabel.core.types import DoubleArray
from treelabel.hierarchy.label_matrices import matches
from treelabel.hierarchy.similarity import inverse_propensities
from treelabel.metrics.batch import Batch, Context, Parts, Sums, overlap
from treelabel.metrics.shared_formulas import f_beta, precision, ratio, recall


def with_root(abc: DoubleArray) -> DoubleArray:
    """Count the root in both sets with weight 1, as the ICM paper's hierarchical F does.

    >>> with_root(np.array([[2.0, 4.0, 1.0]])).tolist()
    [[3.0, 5.0, 2.0]]
    """
    counted: DoubleArray = abc + 1.0
    return counted


def icm_rows(abc: DoubleArray, alpha_1: float = 2.0, alpha_2: float = 2.0, beta: float = 3.0) -> DoubleArray:
    """ICM(S, Y) = alpha_1 IC(S) + alpha_2 IC(Y) - beta IC(S or Y), with IC(S or Y) = a + b - c.

    Parameters
    ----------
    abc : array of shape (documents, 3)
        Sums of information weights.
    alpha_1, alpha_2, beta
        The weights of the three terms.

    Returns
    -------
    array of shape (documents,)

    >>> icm_rows(np.array([[2.0, 2.0, 2.0], [2.0, 2.0, 0.0]])).tolist()
    [2.0, -4.0]
    """
    a, b, c = abc.T
    contrast: DoubleArray = alpha_1 * a + alpha_2 * b - beta * (a + b - c)
    return contrast


# One value per document


def hp(batch: Batch) -> DoubleArray:
    """Hierarchical precision of each document: c / a.

    One value per document: shape (documents,).

    >>> from treelabel.metrics.example import example
    >>> hp(example()).round(3).tolist()
    [1.0, 0.5, 0.0, 1.0]
    """
    return precision(batch.unit_overlap)


def hr(batch: Batch) -> DoubleArray:
    """Hierarchical recall of each document: c / b.

    One value per document: shape (documents,).

    >>> from treelabel.metrics.example import example
    >>> hr(example()).round(3).tolist()
    [0.5, 0.5, 0.0, 1.0]
    """
    return recall(batch.unit_overlap)


def samples_precision(batch: Batch) -> DoubleArray:
    """Precision of each document's closed set; 0 for an empty one.

    One value per document: shape (documents,).

    >>> from treelabel.metrics.example import example
    >>> samples_precision(example()).round(3).tolist()
    [1.0, 0.5, 0.0, 0.0]
    """
    return precision(batch.unit_overlap, if_empty=0.0)


def samples_recall(batch: Batch) -> DoubleArray:
    """Recall of each document's closed set; 0 where nothing is true.

    One value per document: shape (documents,).

    >>> from treelabel.metrics.example import example
    >>> samples_recall(example()).round(3).tolist()
    [0.5, 0.5, 0.0, 0.0]
    """
    return recall(batch.unit_overlap, if_empty=0.0)


def samples_f1(batch: Batch) -> DoubleArray:
    """F1 of each document's closed set; 0 for two empty sets.

    One value per document: shape (documents,).

    >>> from treelabel.metrics.example import example
    >>> samples_f1(example()).round(3).tolist()
    [0.667, 0.5, 0.0, 0.0]
    """
    return f_beta(batch.unit_overlap, if_empty=0.0)


def hf(batch: Batch, beta: float = 1) -> DoubleArray:
    """Hierarchical F of each document.

    One value per document: shape (documents,).

    Parameters
    ----------
    batch
        Documents with truth and decisions.
    beta
        How many times as much recall counts as precision.

    Returns
    -------
    array of shape (documents,)

    >>> from treelabel.metrics.example import example
    >>> hf(example(), 2).round(3).tolist()
    [0.556, 0.5, 0.0, 1.0]
    """
    return f_beta(batch.unit_overlap, beta)


def hf1(batch: Batch) -> DoubleArray:
    """Hierarchical F1 of each document: 2c / (a + b).

    One value per document: shape (documents,).

    >>> from treelabel.metrics.example import example
    >>> hf1(example()).round(3).tolist()
    [0.667, 0.5, 0.0, 1.0]
    """
    return f_beta(batch.unit_overlap)


def hf1_root(batch: Batch) -> DoubleArray:
    """Hierarchical F1 with the root in both sets, as the ICM paper computes it.

    One value per document: shape (documents,).

    >>> from treelabel.metrics.example import example
    >>> hf1_root(example()).round(3).tolist()
    [0.8, 0.667, 0.5, 1.0]
    """
    return f_beta(with_root(batch.unit_overlap))


def info_hp(batch: Batch) -> DoubleArray:
    """Hierarchical precision with every node weighing the information it adds.

    One value per document: shape (documents,).

    >>> from treelabel.metrics.example import example
    >>> info_hp(example()).round(3).tolist()
    [1.0, 0.333, 0.0, 1.0]
    """
    return precision(batch.information_overlap)


def info_hr(batch: Batch) -> DoubleArray:
    """Hierarchical recall with every node weighing the information it adds.

    One value per document: shape (documents,).

    >>> from treelabel.metrics.example import example
    >>> info_hr(example()).round(3).tolist()
    [0.333, 0.5, 0.0, 1.0]
    """
    return recall(batch.information_overlap)


def info_hf1(batch: Batch) -> DoubleArray:
    """Hierarchical F1 with every node weighing the information it adds.

    One value per document: shape (documents,).

    >>> from treelabel.metrics.example import example
    >>> info_hf1(example()).round(3).tolist()
    [0.5, 0.4, 0.0, 1.0]
    """
    return f_beta(batch.information_overlap)


def icm(batch: Batch, alpha: float = 2.0, alpha_2: float = 2.0, beta: float = 3.0) -> DoubleArray:
    """Information contrast of each document.

    Parameters
    ----------
    batch
        The documents.
    alpha, alpha_2, beta
        The weights of the information of the prediction, of the truth, and of both together: see `icm_rows`.

    Returns
    -------
    array of shape (documents,)

    >>> from treelabel.metrics.example import example
    >>> icm(example()).round(3).tolist()
    [-1.0, -2.0, -3.0, 0.0]
    """
    return icm_rows(batch.information_overlap, alpha, alpha_2, beta)


def shortest_path(batch: Batch) -> DoubleArray:
    """a + b - 2c: the edges between the most specific nodes of two paths.

    One value per document: shape (documents,).

    >>> from treelabel.metrics.example import example
    >>> shortest_path(example()).round(3).tolist()
    [1.0, 2.0, 2.0, 0.0]
    """
    a, b, c = batch.unit_overlap.T
    distance: DoubleArray = a + b - 2 * c
    return distance


def hamming(batch: Batch) -> DoubleArray:
    """(a + b - 2c) / nodes: the share of nodes that are judged wrongly.

    One value per document: shape (documents,).

    >>> from treelabel.metrics.example import example
    >>> hamming(example()).round(3).tolist()
    [0.2, 0.4, 0.4, 0.0]
    """
    share: DoubleArray = shortest_path(batch) / max(1, len(batch.hierarchy))
    return share


def jaccard(batch: Batch) -> DoubleArray:
    """c / (a + b - c): shared nodes among all nodes of either set.

    One value per document: shape (documents,).

    >>> from treelabel.metrics.example import example
    >>> jaccard(example()).round(3).tolist()
    [0.5, 0.333, 0.0, 0.0]
    """
    a, b, c = batch.unit_overlap.T
    return ratio(c, a + b - c, (a == 0) & (b == 0), if_empty=0.0)


def subset_accuracy(batch: Batch) -> DoubleArray:
    """1 where the two closed sets are the same.

    One value per document: shape (documents,).

    >>> from treelabel.metrics.example import example
    >>> subset_accuracy(example()).round(3).tolist()
    [0.0, 0.0, 0.0, 1.0]
    """
    a, b, c = batch.unit_overlap.T
    same: DoubleArray = ((a == c) & (b == c)).astype(np.float64)
    return same


def propensity_f1(batch: Batch) -> DoubleArray:
    """F1 of the sets as given, labels weighing their inverse propensity, with an empty class in both.

    One value per document: shape (documents,).

    >>> from treelabel.metrics.example import example
    >>> propensity_f1(example()).round(3).tolist()
    [0.394, 0.41, 0.41, 1.0]
    """
    context = batch.context
    documents = context.reference_documents
    counts = np.append(context.exclusive_frequencies, documents)
    inverse = inverse_propensities(counts, documents, *context.propensity)
    abc = overlap(inverse[:-1], batch.truth, batch.decisions, matches(batch.truth, batch.decisions))
    # Every document carries the empty class, so its frequency is the number of documents.
    return f_beta(abc + inverse[-1])


# Sums over documents


def overlap_sums(batch: Batch) -> Parts:
    """The three numbers of every document, to be summed before dividing, and a column of ones to count documents."""
    return batch.unit_overlap, np.ones((len(batch), 1))


def _micro(formula: Callable[[DoubleArray], DoubleArray], sums: Sums) -> float:
    """The formula of the summed row (a, b, c); NaN without documents."""
    total, documents = sums
    return float(formula(np.atleast_2d(total))[0]) if documents.sum() else float("nan")


def hp_micro(sums: Sums, _: Context) -> float:
    """Sum of c / sum of a (the aggregate precision of the hierarchical win paper).

    Takes the column sums of what `overlap_sums` returns.

    >>> from treelabel.metrics.example import example_context, example_sums
    >>> round(hp_micro(example_sums(overlap_sums), example_context()), 3)
    0.5
    """
    return _micro(precision, sums)


def hr_micro(sums: Sums, _: Context) -> float:
    """Sum of c / sum of b.

    Takes the column sums of what `overlap_sums` returns.

    >>> from treelabel.metrics.example import example_context, example_sums
    >>> round(hr_micro(example_sums(overlap_sums), example_context()), 3)
    0.4
    """
    return _micro(recall, sums)


def hf1_micro(sums: Sums, _: Context) -> float:
    """2 sum of c / (sum of a + sum of b).

    Takes the column sums of what `overlap_sums` returns.

    >>> from treelabel.metrics.example import example_context, example_sums
    >>> round(hf1_micro(example_sums(overlap_sums), example_context()), 3)
    0.444
    """
    return _micro(f_beta, sums)


def icm_sums(batch: Batch, alpha: float = 2.0, alpha_2: float = 2.0, beta: float = 3.0) -> Parts:
    """ICM of prediction against truth, of truth against itself, and 1.

    Parameters
    ----------
    batch
        The documents.
    alpha, alpha_2, beta
        The weights of the information of the prediction, of the truth, and of both together: see `icm_rows`.

    Returns
    -------
    one matrix of shape (documents, 3)
    """
    result = batch.information_overlap
    values = [icm_rows(abc, alpha, alpha_2, beta) for abc in (result, result[:, [1, 1, 1]])]
    return (np.stack([*values, np.ones(len(batch))], axis=1),)


def icm_norm(sums: Sums, _: Context) -> float:
    """(ICM + M) / 2M clipped to [0, 1], M the mean ICM of the truth against itself.

    Takes the column sums of what `icm_sums` returns.

    >>> from treelabel.metrics.example import example_context, example_sums
    >>> round(icm_norm(example_sums(icm_sums), example_context()), 3)
    0.071
    """
    total, best, documents = sums[0]
    if not documents:
        return float("nan")
    if best <= 0:
        return 1.0 if total >= best else 0.0
    return float(np.clip((total + best) / (2 * best), 0, 1))
