"""True labels, in any of the forms that people have them in, to judge predictions by."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from treelabel.core.types import BoolArray
from treelabel.hierarchy.hierarchy import SEPARATOR, Hierarchy, split_path
from treelabel.hierarchy.label_ids import UnknownLabelError, encode, label_rows, labels_of_row
from treelabel.hierarchy.label_matrices import LabelMatrix
from treelabel.hierarchy.union import with_paths
from treelabel.models.label_forms import LabelForm
from treelabel.models.model_inputs import are_numbers, as_indicators, is_matrix, spread_columns, take_labels


def true_labels(labels: Any, hierarchy: Hierarchy, form: LabelForm) -> tuple[LabelMatrix, BoolArray]:
    """Take true labels to compare predictions with.

    Parameters
    ----------
    labels
        As in `take_labels`.
    hierarchy
        The hierarchy of the predictions.
    form
        The form of the labels that the model has learned. Where the hierarchy was made of these, others are labels
        that it could not know; otherwise they are refused.

    Returns
    -------
    labels, known
        The label matrix of shape (documents, nodes), and whether all labels of each document are in the hierarchy.

    >>> h = Hierarchy.flat(["A", "B"])
    >>> true_labels(["B", "C"], h, LabelForm("one", derived=True))[1].tolist()
    [True, False]
    """
    labels, classes = as_indicators(labels, None)
    if is_matrix(labels) and form.columns and (classes is None or len(classes) == len(form.columns)):
        matrix = spread_columns(labels, form, hierarchy)
        return matrix, np.ones(matrix.shape[0], np.bool_)
    if not form.derived:
        matrix = take_labels(labels, hierarchy)[0]
        return matrix, np.ones(matrix.shape[0], np.bool_)
    rows = label_rows(labels)
    if form.kind == "numbers" and are_numbers(rows):
        rows = [str(int(number)) for number in rows]
    try:
        return encode(hierarchy, rows), np.ones(len(rows), np.bool_)
    except UnknownLabelError:
        known = np.array([_is_known(hierarchy, row) for row in rows])
        return encode(hierarchy, [row if here else None for row, here in zip(rows, known, strict=True)]), known


@dataclass(frozen=True)
class TrueLabels:
    """True labels under a hierarchy, as `evaluate` takes them.

    `is_hierarchy_of_labels` tells that the hierarchy may have labels that predictions do not know.
    """

    hierarchy: Hierarchy
    labels: LabelMatrix
    is_hierarchy_of_labels: bool


def judged_labels(labels: Any, hierarchy: Hierarchy, form: LabelForm) -> TrueLabels:
    """Take true labels to judge predictions by, those included that a model could not know.

    Parameters
    ----------
    labels, form
        As for `true_labels`.
    hierarchy
        That of the predictions; where it was made of labels, unknown ones are added to it.

    Returns
    -------
    TrueLabels

    >>> h = Hierarchy.from_paths(["A > B"])
    >>> judged_labels(["A > B", "A > C"], h, LabelForm("one", " > ", derived=True)).hierarchy.paths()
    ['A', 'A > B', 'A > C']
    """
    matrix, known = true_labels(labels, hierarchy, form)
    if known.all():
        return TrueLabels(hierarchy, matrix, False)
    rows = [str(int(row)) if form.kind == "numbers" else row for row in label_rows(labels)]
    unknown = {
        label if isinstance(label, str) else tuple(label)
        for index in np.flatnonzero(~known).tolist()
        for label in labels_of_row(rows[index], index)
        if not _is_known(hierarchy, [label])
    }
    paths = (split_path(label, form.sep or SEPARATOR) if isinstance(label, str) else label for label in unknown)
    larger = with_paths(hierarchy, sorted(map(tuple, paths)))
    return TrueLabels(larger, encode(larger, rows), True)


def _is_known(hierarchy: Hierarchy, row: Any) -> bool:
    try:
        encode(hierarchy, [row])
    except UnknownLabelError:
        return False
    return True
