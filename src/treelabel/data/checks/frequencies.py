"""Findings about how many texts labels have: all of them, too few to learn, or none in training."""

import numpy as np

from treelabel.core.errors import quote
from treelabel.data.checks.finding import EXAMPLES, Finding, Inspected, counted, label_set_numbers, labels_of
from treelabel.hierarchy import row_sizes

# With fewer texts a label is learned badly, and cannot be in training, validation and test alike.
FEW = 5


def find_one_label(inspected: Inspected) -> Finding | None:
    """Find that all documents with labels have the same ones."""
    source = inspected.train if inspected.train is not None else inspected.data
    rows = np.flatnonzero(row_sizes(source.labels))
    if len(rows) < 2 or len(np.unique(label_set_numbers(source)[rows])) > 1:
        return None
    where = "" if inspected.train is None else " of the training data"
    return Finding(
        "one_label",
        len(rows),
        f"all {len(rows):,} documents with a label{where} have the same: there is nothing to tell apart",
        (labels_of(source, int(rows[0])),),
        "name the column with the labels (--labels), or add documents with other labels",
        is_serious=True,
    )


def find_rare_labels(inspected: Inspected) -> Finding | None:
    """Find labels with too few texts to learn."""
    source = inspected.train if inspected.train is not None else inspected.data
    h, frequencies = source.hierarchy, source.frequencies
    rare = np.flatnonzero((frequencies > 0) & (frequencies < FEW))
    if not len(rare):
        return None
    once, seen = int(np.sum(frequencies[rare] == 1)), int(np.sum(frequencies > 0))
    where = "" if inspected.train is None else " in the training data"
    order = rare[np.argsort(frequencies[rare], kind="stable")][:EXAMPLES]
    return Finding(
        "rare_labels",
        len(rare),
        f"{len(rare):,} of {seen:,} labels {'has' if len(rare) == 1 else 'have'} fewer than {FEW} texts{where} "
        f"({once:,} with a single one)",
        tuple(f"{quote(path)}: {frequencies[node]:,}" for path, node in zip(h.paths(order), order, strict=True)),
        "find more texts, or move them to the label above: treelabel convert FILE OUT --cut LEVELS",
    )


def find_unseen_labels(inspected: Inspected) -> Finding | None:
    """Find labels of the documents that the training data never have."""
    if inspected.train is None:
        return None
    data, h = inspected.data, inspected.data.hierarchy
    unseen = np.flatnonzero((data.frequencies > 0) & (inspected.train.frequencies == 0))
    if not len(unseen):
        return None
    is_unseen = np.zeros(len(h), np.int32)
    is_unseen[unseen] = 1
    rows = np.flatnonzero(data.closed.astype(np.int32) @ is_unseen)
    return Finding(
        "unseen_labels",
        len(rows),
        f"{counted(len(unseen), 'label has', 'labels have')} no text in the training data, but {len(rows):,} here",
        tuple(quote(path) for path in h.paths(unseen[:EXAMPLES])),
        "no model can learn them: check their spelling, or divide all texts anew with treelabel split",
        is_serious=True,
    )
