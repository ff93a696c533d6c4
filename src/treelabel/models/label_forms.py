"""The form that labels have outside: what `fit` is given is what `predict` answers, so that scikit-learn compares like
with like.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypedDict

import numpy as np
import numpy.typing as npt
from scipy import sparse

from treelabel.core.compute import BoolArray
from treelabel.core.errors import TreelabelError
from treelabel.hierarchy import SEPARATOR, Hierarchy, LabelMatrix, as_labels
from treelabel.hierarchy.labels import SEPARATORS, UnknownLabelError, decode, encode
from treelabel.hierarchy.sets import row_sizes
from treelabel.models.classes import class_codes
from treelabel.rules import Decisions
from treelabel.scores import Scores

# lists: one list of labels per document; one: one label each; numbers: one whole number each, which is the label's
# name; codes: one class code each, see `class_codes`; dense, sparse: an indicator matrix, documents x nodes.
Kind = Literal["lists", "one", "numbers", "codes", "dense", "sparse"]


class StoredForm(TypedDict):
    """A form as model.json has it."""

    kind: Kind
    sep: str | None
    closed: bool
    derived: bool


@dataclass(frozen=True)
class LabelForm:
    """The form of labels: the kind of their rows, and how each is written.

    Parameters
    ----------
    kind
        What a row is.
    sep
        What separates the names of a path; None where labels are names.
    closed
        Whether an indicator matrix marks the ancestors of labels, too.
    derived
        Whether the hierarchy was made of the labels, so that one not among them is no mistake.
    """

    kind: Kind = "lists"
    sep: str | None = None
    closed: bool = False
    derived: bool = False

    def to_json(self) -> StoredForm:
        """Return it as JSON keeps it."""
        stored: StoredForm = asdict(self)  # type: ignore[assignment]
        return stored

    def answer(self, decisions: Decisions, scores: Scores) -> Any:
        """Return the most specific labels of documents in this form.

        Where a document has one label by the form: the likeliest of several, and "" for none (-1 for a number).

        Parameters
        ----------
        decisions
            The predicted labels.
        scores
            The scores of the same documents.

        Returns
        -------
        list of lists of str, or array
            One entry or row per document.
        """
        h, labels = decisions.hierarchy, decisions.most_specific
        if self.is_indicator:
            found = (decisions.csr if self.closed else labels).astype(np.int64)
            return found.toarray() if self.kind == "dense" else found
        if self.kind == "lists":
            return decode(h, labels, paths=self.sep is not None, sep=self.sep or SEPARATOR)
        best = likeliest(labels, scores)
        written = self.write(h, best[best >= 0])
        answers = np.full(len(best), "" if written.dtype.kind == "U" else -1, written.dtype)
        answers[best >= 0] = written
        return answers

    @property
    def is_indicator(self) -> bool:
        """Whether labels are an indicator matrix."""
        return self.kind in ("dense", "sparse")

    @property
    def is_single(self) -> bool:
        """Whether each document has one label: what scikit-learn calls a binary or multiclass y."""
        return self.kind in ("one", "numbers", "codes")

    def write(self, hierarchy: Hierarchy, nodes: Any) -> npt.NDArray[Any]:
        """Write nodes as the labels of this form: names or paths, or the numbers that stand for them.

        Parameters
        ----------
        hierarchy
            The hierarchy.
        nodes : array of node ids

        Returns
        -------
        array of shape (nodes,)
            Of str, or of int64.

        >>> h = Hierarchy.from_paths(["A > B", "C"])
        >>> LabelForm("one", "/").write(h, [2, 1]).tolist(), LabelForm("codes").write(h, [2, 1]).tolist()
        (['A/B', 'C'], [1, 0])
        """
        if self.kind == "codes":
            codes: npt.NDArray[Any] = np.searchsorted(hierarchy.leaves, nodes)
            return codes
        as_paths = self.sep is not None or (self.kind == "lists" and not hierarchy.has_unique_names)
        names = hierarchy.paths(nodes, self.sep or SEPARATOR) if as_paths else [hierarchy.names[node] for node in nodes]
        if self.kind == "numbers":
            return np.array([int(name) for name in names], np.int64)
        return np.array(names, str)


def likeliest(labels: LabelMatrix, scores: Scores) -> Any:
    """Return the likeliest of the labels of each document, -1 where there is none.

    Parameters
    ----------
    labels : label matrix of shape (documents, nodes)
        The labels to choose from.
    scores
        The scores of the same documents.

    Returns
    -------
    array of node ids

    >>> h = Hierarchy.flat(["A", "B"])
    >>> likeliest(h.closure([[1, 1], [0, 0]]), Scores(h, [[0.25, 0.75], [0.0, 0.0]])).tolist()
    [1, -1]
    """
    sizes = row_sizes(labels)
    best = np.full(len(sizes), -1, np.int64)
    best[sizes == 1] = labels.indices[labels.indptr[:-1][sizes == 1]]
    for row in np.flatnonzero(sizes > 1).tolist():
        nodes = labels.indices[labels.indptr[row] : labels.indptr[row + 1]]
        values = scores.values[[row]]
        given = values.toarray()[0] if sparse.issparse(values) else values[0]
        best[row] = nodes[int(np.argmax(given[nodes]))]
    return best


def derived_hierarchy(labels: Any) -> Hierarchy:
    """Make the hierarchy of labels that come without one: the tree of their paths, or one level of names.

    Labels are sorted, so that documents in another order have the same hierarchy.

    Parameters
    ----------
    labels
        One label, or list of labels, per document; paths are written with " > ".

    Returns
    -------
    Hierarchy

    >>> derived_hierarchy(["A > C", ["A > B", "D"], None]).paths()
    ['A', 'D', 'A > B', 'A > C']
    """
    if is_matrix(labels):
        raise TreelabelError(
            "an indicator matrix needs a hierarchy, whose nodes its columns are: pass hierarchy= to the model or to "
            "fit, such as Hierarchy.flat(names)"
        )
    found = {label for row in labels for label in _listed(row)}
    wrong = next((label for label in found if not isinstance(label, str) or not label.strip()), None)
    if wrong is not None:
        raise TreelabelError(
            f"expected labels that are names or paths, found {wrong!r}; other labels need a hierarchy: pass hierarchy= "
            "to the model or to fit, such as Hierarchy.from_paths(paths) or Hierarchy.flat(names)"
        )
    if not found:
        raise TreelabelError("no document has a label, so there is nothing to learn")
    return Hierarchy.from_paths(sorted(found))


def _listed(row: Any) -> Sequence[Any]:
    """Return the labels of a row."""
    if row is None:
        return ()
    return (row,) if isinstance(row, str) or not hasattr(row, "__iter__") else tuple(row)


def is_matrix(labels: Any) -> bool:
    """Return whether labels are an indicator matrix: numbers, documents x nodes."""
    return sparse.issparse(labels) or (
        isinstance(labels, np.ndarray) and labels.ndim == 2 and labels.dtype.kind in "biuf"
    )


def are_numbers(labels: Any) -> bool:
    """Return whether labels are one whole number per document: classes as scikit-learn's users have them, or codes.

    >>> are_numbers([0, 2]), are_numbers(np.array([0, 2])), are_numbers(["0"]), are_numbers([])
    (True, True, False, False)
    """
    if isinstance(labels, np.ndarray):
        return labels.ndim == 1 and (
            labels.dtype.kind in "iu" or (labels.dtype.kind == "O" and are_numbers(list(labels)))
        )
    return bool(len(labels)) and all(
        isinstance(label, int | np.integer) and not isinstance(label, bool) for label in labels
    )


def take_labels(labels: Any, hierarchy: Hierarchy | None) -> tuple[LabelMatrix, Hierarchy, LabelForm]:
    """Take labels in any form.

    Parameters
    ----------
    labels
        One label or list of labels per document, whole numbers, or an indicator matrix of documents x nodes.
    hierarchy
        The hierarchy; None makes it of the labels.

    Returns
    -------
    labels, hierarchy, form
        The label matrix of shape (documents, nodes); the hierarchy, and the form in which labels were given.

    >>> matrix, h, form = take_labels(["A > B", "A"], None)
    >>> matrix.toarray().astype(int).tolist(), h.paths(), form.kind, form.sep
    ([[0, 1], [1, 0]], ['A', 'A > B'], 'one', ' > ')
    """
    derived = hierarchy is None
    if is_matrix(labels):
        h = derived_hierarchy(labels) if hierarchy is None else hierarchy
        given = as_labels(labels, len(h), "the indicator matrix of labels")
        closed = h.max_depth > 1 and h.closure(given).nnz == given.nnz
        return given, h, LabelForm("sparse" if sparse.issparse(labels) else "dense", None, closed)
    if are_numbers(labels):
        if hierarchy is not None:
            return class_codes(hierarchy, np.asarray(labels, np.int64)), hierarchy, LabelForm("codes")
        names = [str(number) for number in np.asarray(labels, np.int64).tolist()]
        h = Hierarchy.flat(sorted(set(names), key=int))
        return encode(h, names), h, LabelForm("numbers", derived=True)
    rows = labels if isinstance(labels, np.ndarray) else list(labels)
    h = derived_hierarchy(rows) if hierarchy is None else hierarchy
    matrix = encode(h, rows)
    single = len(rows) > 0 and all(isinstance(row, str) or row is None for row in rows)
    return matrix, h, LabelForm("one" if single else "lists", separator_of(h, matrix, rows), derived=derived)


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
    if not form.derived:
        matrix = take_labels(labels, hierarchy)[0]
        return matrix, np.ones(matrix.shape[0], np.bool_)
    if form.kind == "numbers" and are_numbers(labels):
        labels = [str(number) for number in labels]
    rows = list(labels)
    try:
        return encode(hierarchy, rows), np.ones(len(rows), np.bool_)
    except UnknownLabelError:
        known = np.array([_is_known(hierarchy, row) for row in rows])
        return encode(hierarchy, [row if here else None for row, here in zip(rows, known, strict=True)]), known


def _is_known(hierarchy: Hierarchy, row: Any) -> bool:
    try:
        encode(hierarchy, [row])
    except UnknownLabelError:
        return False
    return True


def separator_of(hierarchy: Hierarchy, matrix: LabelMatrix, rows: Any) -> str | None:
    """Return the separator of the paths that labels are written as, or None where they are names.

    Labels written in several ways count as paths with " > ".

    Parameters
    ----------
    hierarchy
        The hierarchy.
    matrix : label matrix of shape (documents, nodes)
        The labels.
    rows
        The same as they were written.

    Returns
    -------
    str or None
    """
    written = {label for row in rows for label in _listed(row) if isinstance(label, str)}
    nodes = np.unique(matrix.indices)
    if written <= {hierarchy.names[node] for node in nodes.tolist()}:
        return None
    return next((sep for sep in SEPARATORS if written <= set(hierarchy.paths(nodes, sep))), SEPARATOR)
