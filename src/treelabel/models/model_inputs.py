"""Take texts and labels in any of the forms that people have them in."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy import sparse

from treelabel.core.errors import TreelabelError, quote
from treelabel.core.frames import Frame, is_frame
from treelabel.core.stopping import StopSignal
from treelabel.core.strings import Strings, as_list, require_column
from treelabel.hierarchy.hierarchy import SEPARATOR, Hierarchy, split_path
from treelabel.hierarchy.label_ids import (
    SEPARATORS,
    are_levels,
    encode,
    find_level_list,
    is_path,
    label_rows,
    labels_of_row,
)
from treelabel.hierarchy.label_matrices import LabelMatrix, as_labels, renumber_columns
from treelabel.models.label_forms import LabelForm, class_codes
from treelabel.selection.training import Training

# Below that, a column of labels may well have another value in each row.
FEW_ROWS = 10


def training_of(
    data: Any,
    labels: Any,
    hierarchy: Hierarchy | None,
    valid: Training | None = None,
    progress: bool | None = None,
    stop: StopSignal | None = None,
    classes: Sequence[str] | None = None,
) -> Training:
    """Take training data in any of their forms.

    Parameters
    ----------
    data
        A Dataset, or a list of texts.
    labels
        One label or list of labels per text, or an indicator matrix, where `data` is a list; see `take_labels`.
    hierarchy
        The hierarchy, where `data` has none; without one it is made of the labels.
    valid
        Documents to stop early on.
    progress
        Whether to show a progress bar.
    stop
        Tells when to hurry.
    classes
        The labels of the columns of an indicator matrix.

    Returns
    -------
    Training
    """
    stop = StopSignal() if stop is None else stop
    # Before its attributes are looked at: a data frame has its columns as attributes.
    require_column(data, "texts")
    if hasattr(data, "texts") and hasattr(data, "labels"):
        if labels is not None:
            raise TreelabelError("labels were given twice: the data have labels of their own")
        if hierarchy is not None:
            hierarchy.require_same(data.hierarchy.fingerprint, "the training data")
        features = getattr(data, "features", None)
        return Training(Strings.of(data.texts), data.labels, data.hierarchy, valid, progress, stop, features=features)
    if labels is None:
        raise TreelabelError(
            "expected a Dataset, or texts and labels; fit requires y to be passed, but the target y is None"
        )
    texts = Strings.of(data)
    matrix, known, form = take_labels(labels, hierarchy, classes)
    if len(texts) != matrix.shape[0]:
        raise TreelabelError(f"{len(texts):,} texts, but labels for {matrix.shape[0]:,}")
    return Training(texts, matrix, known, valid, progress, stop, form=form.with_spellings(known, matrix, labels))


def texts_of(texts: Any) -> tuple[Strings | sparse.csr_array, tuple[str, ...] | None]:
    """Take texts as a list or as a Dataset, whose ids are kept; or features, where these are all that there is."""
    require_column(texts, "texts")
    if hasattr(texts, "texts"):
        features = getattr(texts, "features", None)
        return Strings.of(texts.texts) if features is None else features, tuple(texts.ids)
    if sparse.issparse(texts):
        return sparse.csr_array(texts), None
    return Strings.of(texts), None


def reading_of(data: Any) -> dict[str, Any]:
    """Return how training data were read, for others of the same shape: a Dataset, or the column of a data frame."""
    if hasattr(data, "reading"):
        return dict(data.reading)
    name = getattr(data, "name", getattr(data, "column_name", None))
    return {"text": [name]} if isinstance(name, str) and name else {}


def derived_hierarchy(labels: Any) -> Hierarchy:
    """Make the hierarchy of labels that come without one: the tree of their paths, or one level of names.

    Labels are sorted, so that documents in another order have the same hierarchy.

    Parameters
    ----------
    labels
        One label, or list of labels, per document; paths are tuples of names, or written with " > ".

    Returns
    -------
    Hierarchy

    >>> derived_hierarchy(["A > C", ["A > B", "D"], None]).paths()
    ['A', 'D', 'A > B', 'A > C']
    """
    if is_matrix(labels):
        raise TreelabelError(
            "an indicator matrix needs a hierarchy, whose nodes its columns are: pass hierarchy= to the model or to "
            "fit, such as Hierarchy.flat(names); or classes= to fit, the label of each column"
        )
    rows = label_rows(labels)
    listed = (
        labels_of_row(row, index) if row is None or isinstance(row, Iterable) else [row]
        for index, row in enumerate(rows)
    )
    result = {_hashable(label) for labels_of_row in listed for label in labels_of_row}
    wrong = next((label for label in result if not _is_name(label)), None)
    if wrong is not None:
        what = "a continuous target, " if isinstance(wrong, float | np.floating) else ""
        raise TreelabelError(
            f"expected labels that are names or paths, found {what}{wrong!r}; other labels need a hierarchy: pass "
            "hierarchy= to the model or to fit, such as Hierarchy.from_paths(paths) or Hierarchy.flat(names)"
        )
    if not result:
        raise TreelabelError("no document has a label, so there is nothing to learn")
    refuse_level_lists(rows)
    _refuse_twins({label for label in result if isinstance(label, str)})
    return Hierarchy.from_paths(
        sorted(result, key=lambda label: label if isinstance(label, str) else SEPARATOR.join(label))
    )


def _hashable(label: Any) -> Any:
    return label if isinstance(label, str) or not isinstance(label, Iterable) else tuple(label)


def _is_name(label: Any) -> bool:
    """Return whether a label can be one of a hierarchy: a text, or the names of a path."""
    names = (label,) if isinstance(label, str) else label if isinstance(label, tuple) else (None,)
    return bool(names) and all(isinstance(name, str) and bool(name.strip()) for name in names)


def _refuse_twins(labels: set[str]) -> None:
    """Refuse a path that is written with another separator beside the same with " > ": it would be another label."""
    for label in sorted(labels):
        for sep in SEPARATORS[1:]:
            path = SEPARATOR.join(split_path(label, sep))
            if path != label and path in labels and SEPARATOR in path:
                raise TreelabelError(
                    f"{quote(label)} and {quote(path)} are one label if {quote(sep)} separates the names of a path; "
                    "write them alike, or pass a hierarchy that has both"
                )


def refuse_level_lists(rows: list[Any]) -> None:
    """Refuse lists that look like the levels of paths, where without a hierarchy they would be unrelated labels."""
    steps = find_level_list(rows)
    if steps is not None:
        raise TreelabelError(
            f"lists of labels such as {quote(steps)} look like the levels of a path, and without a hierarchy they "
            f"would be unrelated labels; for paths pass tuples, {quote(tuple(steps))}, or join them, "
            f"{quote(SEPARATOR.join(steps))}; for several labels pass sets, or a hierarchy such as "
            "Hierarchy.flat(names)"
        )


def is_matrix(labels: Any) -> bool:
    """Return whether labels are an indicator matrix: numbers, documents x nodes."""
    return sparse.issparse(labels) or (
        isinstance(labels, np.ndarray) and labels.ndim == 2 and labels.dtype.kind in "biuf"
    )


def are_numbers(rows: list[Any]) -> bool:
    """Return whether labels are one whole number per document: classes as scikit-learn's users have them, or codes.

    >>> are_numbers([0, np.int64(2), 3.0]), are_numbers([0, 0.5]), are_numbers(["0"]), are_numbers([])
    (True, False, False, False)
    """
    return bool(rows) and all(
        isinstance(label, int | np.integer | float | np.floating)
        and not isinstance(label, bool)
        and float(label).is_integer()
        for label in rows
    )


def take_labels(
    labels: Any, hierarchy: Hierarchy | None, classes: Sequence[str] | None = None
) -> tuple[LabelMatrix, Hierarchy, LabelForm]:
    """Take labels in any form.

    Parameters
    ----------
    labels
        One label or list of labels per document (a tuple is a path), whole numbers, levels as columns of an array or a
        data frame, an indicator matrix of documents x nodes, or a data frame of indicators.
    hierarchy
        The hierarchy; None makes it of the labels.
    classes
        The labels of the columns of an indicator matrix; by default all nodes, and the names of a frame's columns.

    Returns
    -------
    labels, hierarchy, form
        The label matrix of shape (documents, nodes); the hierarchy, and the form in which labels were given.

    >>> matrix, h, form = take_labels(["A > B", "A"], None)
    >>> matrix.toarray().astype(int).tolist(), h.paths(), form.kind, form.sep
    ([[0, 1], [1, 0]], ['A', 'A > B'], 'one', ' > ')
    """
    derived = hierarchy is None
    labels, classes = as_indicators(labels, classes)
    if is_matrix(labels):
        return _take_matrix(labels, hierarchy, classes)
    if classes is not None:
        raise TreelabelError("classes= are the labels of the columns of an indicator matrix, but labels are none")
    rows = label_rows(labels)
    if derived and are_levels(labels):
        _refuse_texts(rows)
    if are_numbers(rows):
        if hierarchy is not None:
            return class_codes(hierarchy, np.asarray(rows, np.int64)), hierarchy, LabelForm("codes")
        names = [str(int(number)) for number in rows]
        h = Hierarchy.flat(sorted(set(names), key=int))
        return encode(h, names), h, LabelForm("numbers", derived=True)
    h = derived_hierarchy(rows) if hierarchy is None else hierarchy
    matrix = encode(h, rows)
    some = [row for row in rows if row is not None]
    if are_levels(labels) or (some and all(map(is_path, some))):
        return matrix, h, LabelForm("levels" if are_levels(labels) else "tuples", derived=derived)
    single = len(rows) > 0 and all(isinstance(row, str) for row in some)
    return matrix, h, LabelForm("one" if single else "lists", separator_of(h, matrix, rows), derived=derived)


def as_indicators(labels: Any, classes: Any) -> tuple[Any, list[str] | None]:
    """Return labels and their classes; of a data frame of indicators, its matrix and the names of its columns.

    Parameters
    ----------
    labels
        Labels of any form.
    classes
        The labels of the columns, or None.

    Returns
    -------
    labels, classes
    """
    if is_frame(labels) and (marks := (frame := Frame.of(labels)).indicators(frame.names)) is not None:
        labels, classes = marks, frame.names if classes is None else classes
    return labels, None if classes is None else [str(label) for label in as_list(classes, "classes")]


def _take_matrix(
    labels: Any, hierarchy: Hierarchy | None, classes: list[str] | None
) -> tuple[LabelMatrix, Hierarchy, LabelForm]:
    """Take an indicator matrix: all nodes of a hierarchy, or the columns of some classes."""
    values = labels.data if sparse.issparse(labels) else labels
    if not ((values == 0) | (values == 1)).all():
        raise TreelabelError(
            "an indicator matrix of labels holds 0 and 1, but this one has other numbers; pass labels by their "
            "names, or paths as tuples of names"
        )
    form = LabelForm("sparse" if sparse.issparse(labels) else "dense", derived=hierarchy is None)
    if hierarchy is None:
        hierarchy = derived_hierarchy(labels if classes is None else classes)
    if classes is None:
        matrix = as_labels(labels, len(hierarchy), "the indicator matrix of labels")
    else:
        form = form.of_columns(hierarchy, classes)
        matrix = spread_columns(labels, form, hierarchy)
    closed = hierarchy.max_depth > 1 and hierarchy.closure(matrix).nnz == matrix.nnz
    return matrix, hierarchy, replace(form, closed=closed)


def spread_columns(labels: Any, form: LabelForm, hierarchy: Hierarchy) -> LabelMatrix:
    """Bring the columns of an indicator matrix to those of all nodes."""
    if labels.shape[1] != len(form.columns):
        raise TreelabelError(
            f"the indicator matrix of labels has {labels.shape[1]:,} columns, but there are {len(form.columns):,} "
            "classes, one for each"
        )
    matrix = as_labels(labels, len(form.columns), "the indicator matrix of labels")
    return renumber_columns(matrix, np.array(form.columns, np.int32), len(hierarchy))


def _refuse_texts(rows: list[tuple[str, ...]]) -> None:
    """Refuse columns the first of which is no level, such as a whole data frame with its texts."""
    tops = {row[0] for row in rows if row}
    if len(rows) >= FEW_ROWS and 2 * len(tops) > len(rows):
        raise TreelabelError(
            f"columns of labels are the levels of a hierarchy, but {len(rows):,} documents have {len(tops):,} "
            f"different labels in the first one, such as {quote(min(tops))}; pass the columns of the levels "
            "alone, from the top down"
        )


def separator_of(hierarchy: Hierarchy, matrix: LabelMatrix, rows: Any) -> str | None:
    """Return the separator of the paths that labels are written as, or None where they are names.

    Labels written in several ways count as paths with " > ".

    Parameters
    ----------
    matrix : label matrix of shape (documents, nodes)
        The labels.
    rows
        The same as they were written.

    Returns
    -------
    str or None
    """
    written = {label for index, row in enumerate(rows) for label in labels_of_row(row, index) if isinstance(label, str)}
    nodes = np.unique(matrix.indices)
    if written <= {hierarchy.names[node] for node in nodes.tolist()}:
        return None
    return next((sep for sep in SEPARATORS if written <= set(hierarchy.paths(nodes, sep))), SEPARATOR)
