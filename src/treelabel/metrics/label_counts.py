"""Label metrics: true positives, predictions and truths counted by label, then combined."""

import numpy as np

from treelabel.core.compute import kernel
from treelabel.core.types import BoolArray, DoubleArray
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.label_matrices import LabelMatrix, LabelRows, matches, rows_of
from treelabel.metrics.batch import Batch, Context, Parts, Sums, Value, set_counts
from treelabel.metrics.shared_formulas import by_label, f_beta, label_f1, precision, recall, with_mean


def label_counts(batch: Batch) -> Parts:
    """Count the closed sets."""
    return set_counts(batch.closed_truth, batch.closed_decisions, batch.is_hit)


def constrained_counts(batch: Batch) -> Parts:
    """Count a predicted node as right only if all its ancestors are predicted too; it is predicted in any case."""
    decisions = batch.decisions
    return set_counts(
        batch.closed_truth,
        decisions,
        matches(batch.closed_truth, decisions) & has_ancestors(batch.hierarchy, decisions),
    )


def has_ancestors(hierarchy: Hierarchy, labels: LabelMatrix) -> BoolArray:
    """Mark the labels of each document all of whose ancestors are among its labels, one mark for each stored label.

    Returns
    -------
    array of shape (stored labels,)
    """
    return mark_with_all_parents(rows_of(labels), rows_of(hierarchy.parents(labels.indices)), labels.shape[1])


def frequent_labels_right(parts: Parts, fewest: int) -> Sums:
    """Make sums in which labels with enough documents are always right, and all others that occur always wrong.

    Parameters
    ----------
    parts
        What `label_counts` returns, or its sums over groups.
    fewest
        How many documents, or groups, are enough.

    Returns
    -------
    Sums
    """
    # Without comparing sparse arrays, which sorts the indices of one in place, and other parts may share them.
    predicted, true = (np.bincount(part.indices, part.data != 0, part.shape[1]) for part in parts[:2])
    occurs = (predicted + true > 0).astype(np.float64)
    return occurs, occurs, occurs * (true >= fewest), np.ones(1)


def _mean(values: DoubleArray, sums: Sums) -> float:
    """Average over labels (or take the one row of sums); NaN without documents."""
    return float(values.mean()) if sums[3].sum() and len(values) else float("nan")


def _total(sums: Sums) -> DoubleArray:
    return np.array([[float(part.sum()) for part in sums[:3]]])


def micro_precision(sums: Sums, _: Context) -> float:
    """Share of all predictions that are true.

    Takes the sums of counts by label, each of shape (nodes,), and the number of documents.

    >>> from treelabel.metrics.example import example_context, example_sums
    >>> round(micro_precision(example_sums(label_counts), example_context()), 3)
    0.5
    """
    return _mean(precision(_total(sums), if_empty=0.0), sums)


def micro_recall(sums: Sums, _: Context) -> float:
    """Share of all true labels that are predicted.

    Takes the sums of counts by label, each of shape (nodes,), and the number of documents.

    >>> from treelabel.metrics.example import example_context, example_sums
    >>> round(micro_recall(example_sums(label_counts), example_context()), 3)
    0.4
    """
    return _mean(recall(_total(sums), if_empty=0.0), sums)


def micro_f1(sums: Sums, _: Context) -> float:
    """F1 of the counts summed over labels.

    Takes the sums of counts by label, each of shape (nodes,), and the number of documents.

    >>> from treelabel.metrics.example import example_context, example_sums
    >>> round(micro_f1(example_sums(label_counts), example_context()), 3)
    0.444
    """
    return _mean(f_beta(_total(sums), if_empty=0.0), sums)


def macro_precision(sums: Sums, _: Context) -> float:
    """Mean precision of the labels.

    Takes the sums of counts by label, each of shape (nodes,), and the number of documents.

    >>> from treelabel.metrics.example import example_context, example_sums
    >>> round(macro_precision(example_sums(label_counts), example_context()), 3)
    0.133
    """
    return _mean(precision(by_label(sums), if_empty=0.0), sums)


def macro_recall(sums: Sums, _: Context) -> float:
    """Mean recall of the labels.

    Takes the sums of counts by label, each of shape (nodes,), and the number of documents.

    >>> from treelabel.metrics.example import example_context, example_sums
    >>> round(macro_recall(example_sums(label_counts), example_context()), 3)
    0.2
    """
    return _mean(recall(by_label(sums), if_empty=0.0), sums)


def macro_f1(sums: Sums, _: Context) -> float:
    """Mean F1 of the labels; a label never true and never predicted counts 0.

    Takes the sums of counts by label, each of shape (nodes,), and the number of documents.

    >>> from treelabel.metrics.example import example_context, example_sums
    >>> round(macro_f1(example_sums(label_counts), example_context()), 3)
    0.16
    """
    return _mean(label_f1(sums), sums)


def macro_f1_present(sums: Sums, _: Context) -> float:
    """Mean F1 of the labels that are true or predicted somewhere.

    Takes the sums of counts by label, each of shape (nodes,), and the number of documents.

    >>> from treelabel.metrics.example import example_context, example_sums
    >>> round(macro_f1_present(example_sums(label_counts), example_context()), 3)
    0.2
    """
    return _mean(label_f1(sums)[by_label(sums)[:, :2].sum(axis=1) > 0], sums)


def label_accuracy(sums: Sums, context: Context) -> float:
    """Mean over labels of the share of documents judged rightly: 1 - (a + b - 2c) / documents.

    Takes the sums of counts by label, each of shape (nodes,), and the number of documents.

    Parameters
    ----------
    sums
        Predictions, truths and hits by label, and the number of documents.
    context
        What is known of hierarchy and training.

    Returns
    -------
    float

    >>> from treelabel.metrics.example import example_context, example_sums
    >>> round(label_accuracy(example_sums(label_counts), example_context()), 3)
    0.75
    """
    documents = int(sums[3].sum())
    if not documents or not len(context.hierarchy):
        return float("nan")
    a, b, c = by_label(sums).sum(axis=0)
    return float(1 - (a + b - 2 * c) / documents / len(context.hierarchy))


def hamming_annotated(sums: Sums, _: Context) -> float:
    """Mean of (a + b - 2c) / |C|, C the labels that are true in any document, as the ICM paper prints Hamming loss.

    Labels that are predicted but never true count as errors, so it may exceed 1. NaN where no label is true.

    Takes the sums of counts by label, each of shape (nodes,), and the number of documents.

    >>> from treelabel.metrics.example import example_context, example_sums
    >>> round(hamming_annotated(example_sums(label_counts), example_context()), 3)
    0.312
    """
    documents = int(sums[3].sum())
    a, b, c = by_label(sums).T
    annotated = int(np.count_nonzero(b))
    return float((a + b - 2 * c).sum() / documents / annotated) if documents and annotated else float("nan")


def hamming_levels(sums: Sums, context: Context) -> Value:
    """Hamming loss of each level, and their mean.

    Takes the sums of counts by label, each of shape (nodes,), and the number of documents.

    Parameters
    ----------
    sums
        Predictions, truths and hits by label, and the number of documents.
    context
        What is known of hierarchy and training.

    Returns
    -------
    Value
        The mean, and the value of each level.

    >>> from treelabel.metrics.example import example_context, example_sums
    >>> result = hamming_levels(example_sums(label_counts), example_context())
    >>> {name: round(value, 3) for name, value in result.items()}
    {'mean': 0.271, '1': 0.167, '2': 0.375}
    """
    documents = int(sums[3].sum())
    if not documents:
        return {"mean": float("nan")}
    a, b, c = by_label(sums).T
    wrong = (a + b - 2 * c) / documents
    return with_mean({str(d): float(wrong[context.hierarchy.level(d)].mean()) for d in _levels(context)})


def macro_f1_by_depth(sums: Sums, context: Context) -> Value:
    """Macro-F1 of the labels at each depth.

    Takes the sums of counts by label, each of shape (nodes,), and the number of documents.

    Parameters
    ----------
    sums
        Predictions, truths and hits by label, and the number of documents.
    context
        What is known of hierarchy and training.

    Returns
    -------
    Value
        The mean, and the value of each depth.

    >>> from treelabel.metrics.example import example_context, example_sums
    >>> result = macro_f1_by_depth(example_sums(label_counts), example_context())
    >>> {name: round(value, 3) for name, value in result.items()}
    {'mean': 0.133, '1': 0.267, '2': 0.0}
    """
    values = label_f1(sums)
    return with_mean({str(d): float(values[context.hierarchy.level(d)].mean()) for d in _levels(context)})


def macro_f1_by_decile(sums: Sums, context: Context) -> Value:
    """Macro-F1 of the labels in each tenth by training frequency, rarest first.

    Takes the sums of counts by label, each of shape (nodes,), and the number of documents.

    Parameters
    ----------
    sums
        Predictions, truths and hits by label, and the number of documents.
    context
        What is known of hierarchy and training.

    Returns
    -------
    Value
        The mean, and the value of each tenth.

    >>> from treelabel.metrics.example import example_context, example_sums
    >>> result = macro_f1_by_decile(example_sums(label_counts), example_context())
    >>> {name: round(value, 3) for name, value in result.items()}
    {'mean': 0.16, '1': 0.0, '2': 0.0, '3': 0.0, '4': 0.0, '5': 0.8}
    """
    values = label_f1(sums)
    order = np.argsort(context.frequencies, kind="stable")
    tenths = np.array_split(values[order], 10)
    return with_mean({str(index + 1): float(part.mean()) for index, part in enumerate(tenths) if len(part)})


def _levels(context: Context) -> range:
    return range(1, context.hierarchy.max_depth + 1)


@kernel
def mark_with_all_parents(labels: LabelRows, parents: LabelRows, nodes: int) -> BoolArray:
    """Mark the labels of each row whose parents are all marked; `parents` has a row for every stored label."""
    (row_ptr, row_idx), (ptr, idx) = labels, parents
    keep = np.zeros(len(row_idx), np.bool_)
    stamp = np.zeros(nodes, np.int64)
    for row in range(len(row_ptr) - 1):
        # Parents have lower ids, so they are settled first.
        for index in range(row_ptr[row], row_ptr[row + 1]):
            stands = True
            for above in idx[ptr[index] : ptr[index + 1]]:
                stands = stands and stamp[above] == row + 1
            if stands:
                keep[index] = True
                stamp[row_idx[index]] = row + 1
    return keep
