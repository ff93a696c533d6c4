"""The form that labels have outside: what `fit` is given is what `predict` answers, so that scikit-learn compares like
with like.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy import sparse

from treelabel.core.errors import TreelabelError, quote
from treelabel.core.validation import JsonRecord
from treelabel.hierarchy.hierarchy import SEPARATOR, Hierarchy
from treelabel.hierarchy.label_ids import (
    decode,
    find_label,
    label_rows,
)
from treelabel.hierarchy.label_matrices import LabelMatrix, label_matrix, row_sizes
from treelabel.rules.decisions import Decisions
from treelabel.scores.score_matrix import Scores

# lists: one list of labels per document; one: one label each; numbers: one whole number each, which is the label's
# name; codes: one class code each, see `class_codes`; tuples: the names of one path each; levels: the same in columns
# of an array or a data frame; dense, sparse: an indicator matrix, documents x nodes.
Kind = Literal["lists", "one", "numbers", "codes", "tuples", "levels", "dense", "sparse"]


@dataclass(frozen=True)
class LabelForm(JsonRecord):
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
    columns
        The nodes of the columns of an indicator matrix, where these are not all nodes in their order.
    spellings
        How labels were written that are not written in this form: "cat " for "cat", or a name among paths.
    """

    kind: Kind = "lists"
    sep: str | None = None
    closed: bool = False
    derived: bool = False
    columns: list[int] = field(default_factory=list)
    spellings: dict[str, str] = field(default_factory=dict)

    def answer(self, decisions: Decisions, scores: Scores) -> Any:
        """Return the most specific labels of documents in this form.

        Where a document has one label by the form: the likeliest of several, and "" for none (-1 for a number, an empty
        tuple for a path). Levels are an array of documents x levels, with "" behind the end of a path.

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
            result = (decisions.csr if self.closed else labels).astype(np.int64)
            result = result[:, self.columns] if self.columns else result
            return result.toarray() if self.kind == "dense" else result
        if self.kind == "lists":
            return decode(h, labels, paths=self.sep is not None, sep=self.sep or SEPARATOR)
        best = likeliest(labels, scores)
        if self.kind in ("tuples", "levels"):
            paths = [tuple(h.path_names(node)) if node >= 0 else () for node in best.tolist()]
            return paths if self.kind == "tuples" else _as_columns(paths, h.max_depth)
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
        by_path = self.kind in ("tuples", "levels") or (self.kind == "lists" and not hierarchy.has_unique_names)
        as_paths = by_path or self.sep is not None
        names = hierarchy.paths(nodes, self.sep or SEPARATOR) if as_paths else [hierarchy.names[node] for node in nodes]
        if self.kind == "numbers":
            return np.array([int(name) for name in names], np.int64)
        return np.array([self.spellings.get(name, name) for name in names], str)

    def of_columns(self, hierarchy: Hierarchy, classes: Sequence[str]) -> "LabelForm":
        """Return the form of an indicator matrix whose columns are these labels.

        Parameters
        ----------
        hierarchy
            The hierarchy of the labels.
        classes
            The label of each column.

        Returns
        -------
        LabelForm

        >>> h = Hierarchy.from_paths(["A > B", "C"])
        >>> form = LabelForm("dense").of_columns(h, ["C", "A > B"])
        >>> form.columns, form.write(h, form.columns).tolist()
        ([1, 2], ['C', 'A > B'])
        """
        nodes = [find_label(hierarchy, label) for label in classes]
        if len(set(nodes)) < len(nodes):
            twice = next(label for label, node in zip(classes, nodes, strict=True) if nodes.count(node) > 1)
            raise TreelabelError(f"two columns of the indicator matrix are the label {quote(twice)}")
        sep = SEPARATOR if any(label not in hierarchy.ids_by_name for label in classes) else None
        form = replace(self, columns=nodes, sep=sep)
        written = zip(form.write(hierarchy, nodes).tolist(), classes, strict=True)
        return replace(form, spellings={name: label for name, label in written if name != label})

    def with_spellings(self, hierarchy: Hierarchy, matrix: LabelMatrix, labels: Any) -> "LabelForm":
        """Keep how each label is written, where documents have one each: scikit-learn compares labels as texts.

        Parameters
        ----------
        matrix : label matrix of shape (documents, nodes)
            The labels.
        labels
            The same as they were given. Two spellings of one label are refused, as `predict` has to write one.

        Returns
        -------
        LabelForm

        >>> h = Hierarchy.flat(["cat", "dog"])
        >>> form = LabelForm("one").with_spellings(h, h.closure([[1, 0], [0, 1]]), ["cat ", "dog"])
        >>> form.write(h, [1, 0]).tolist()
        ['dog', 'cat ']
        """
        if self.kind != "one":
            return self
        inputs = [str(label) for label in label_rows(labels) if label is not None]
        pairs = list(dict.fromkeys(zip(matrix.indices.tolist(), inputs, strict=True)))
        spellings: dict[str, str] = {}
        for name, (_, label) in zip(self.write(hierarchy, [node for node, _ in pairs]).tolist(), pairs, strict=True):
            other = spellings.setdefault(name, label)
            if other != label:
                raise TreelabelError(
                    f"{quote(other)} and {quote(label)} are one label, of which predictions could match one spelling "
                    "only; write them alike, or pass lists of labels"
                )
        return replace(self, spellings={name: label for name, label in spellings.items() if name != label})


def _as_columns(paths: list[tuple[str, ...]], width: int) -> npt.NDArray[Any]:
    return np.array([path + ("",) * (width - len(path)) for path in paths], str).reshape(len(paths), width)


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
        dense = values.toarray()[0] if sparse.issparse(values) else values[0]
        best[row] = nodes[int(np.argmax(dense[nodes]))]
    return best


def class_codes(hierarchy: Hierarchy, codes: np.ndarray[tuple[int, ...], np.dtype[np.integer]]) -> LabelMatrix:
    """Return the label matrix of class codes, which scikit-learn makes of labels: code i is the i-th leaf.

    scikit-learn numbers the labels that occur in sorted order, be they names or paths. A code therefore has one meaning
    only where every leaf occurs, and leaves are sorted by name and by path; anything else is refused.

    Parameters
    ----------
    hierarchy : Hierarchy
        The hierarchy of the labels.
    codes : int array of shape (documents,)
        One class per document.

    Returns
    -------
    csr_array of shape (documents, nodes)

    >>> class_codes(Hierarchy.from_paths(["A > B", "A > C"]), np.array([1, 0])).indices.tolist()
    [2, 1]
    """
    leaves = hierarchy.leaves
    names, paths = [hierarchy.names[leaf] for leaf in leaves], hierarchy.paths(leaves)
    why = ""
    if len(codes) and (codes.min() < 0 or codes.max() != len(leaves) - 1):
        why = f"they are {codes.min()} to {codes.max()}, but the hierarchy has {len(leaves):,} leaves"
    elif names != sorted(names) or paths != sorted(paths):
        why = "the leaves of the hierarchy are not in sorted order"
    if why:
        raise TreelabelError(
            f"cannot tell which labels the integers stand for that scikit-learn makes of labels: {why}; pass labels by "
            "name past it: cross_val_predict(model, texts, params={'labels': labels}, method='predict_proba')"
        )
    return label_matrix(np.arange(len(codes) + 1), leaves[codes], len(hierarchy))
