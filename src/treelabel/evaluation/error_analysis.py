"""Mistakes by label and by document: what is missed, what is predicted instead, and how far off it lies."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, get_args

import numpy as np
import pyarrow as pa

from treelabel.core.types import BoolArray, DoubleArray, LongArray
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.label_ids import decode
from treelabel.hierarchy.label_matrices import LabelMatrix, keep_entries, matches, row_numbers, row_sizes
from treelabel.metrics.batch import label_totals
from treelabel.metrics.shared_formulas import f_beta, precision, recall

# Documents whose pairs are held at a time.
BLOCK = 2_000


def blocks(truth: LabelMatrix, decisions: LabelMatrix) -> Iterator[tuple[LabelMatrix, LabelMatrix]]:
    """Yield some documents at a time, as pairs take more room than labels.

    Yields
    ------
    (label matrix, label matrix)
    """
    for start in range(0, truth.shape[0], BLOCK):
        yield truth[start : start + BLOCK], decisions[start : start + BLOCK]


def ranges(low: LongArray, sizes: LongArray) -> LongArray:
    """Concatenate the ranges low, low + 1, ... of the given sizes.

    Returns
    -------
    array of shape (sum of sizes,)

    >>> ranges(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    before = np.cumsum(sizes) - sizes
    result: LongArray = np.repeat(low - before, sizes) + np.arange(int(sizes.sum()))
    return result


def equal_pairs(left: LongArray, right: LongArray) -> tuple[LongArray, LongArray]:
    """Return the places of all pairs of equal keys.

    Returns
    -------
    (array, array), each of shape (pairs,)

    >>> [places.tolist() for places in equal_pairs(np.array([7, 8]), np.array([8, 7, 8]))]
    [[0, 1, 1], [1, 0, 2]]
    """
    order = np.argsort(right, kind="stable")
    low = np.searchsorted(right[order], left, "left")
    sizes = np.searchsorted(right[order], left, "right") - low
    return np.repeat(np.arange(len(left)), sizes), order[ranges(low, sizes)]


def nearest(hierarchy: Hierarchy, labels: LabelMatrix, others: LabelMatrix) -> tuple[LongArray, LongArray]:
    """Find, for every stored label, the label among the others of its document that the fewest edges lead to.

    Parameters
    ----------
    hierarchy : Hierarchy
        A tree or DAG.

    Returns
    -------
    (array, array), each of shape (stored labels,)
        The nearest label, the lowest id among equals, -1 (the root) where the document has none; and the edges.

    >>> from treelabel.hierarchy.label_ids import encode
    >>> h = Hierarchy.from_paths(["A > B", "A > C", "D"])
    >>> [result.tolist() for result in nearest(h, encode(h, [["B"], ["B"]]), encode(h, [["C", "D"], []]))]
    [[3, -1], [2, 2]]
    """
    size = len(hierarchy)
    left, right = equal_pairs(row_numbers(labels), row_numbers(others))
    codes = others.indices[right].astype(np.int64) * size + labels.indices[left]
    distinct, which = np.unique(codes, return_inverse=True)
    edges = hierarchy.distance(distinct // size, distinct % size)[which].astype(np.int64)
    order = np.lexsort((codes, edges, left))
    first = order[np.append(True, np.diff(left[order]) > 0)[: len(order)]]
    node = np.full(labels.nnz, -1, np.int64)
    apart = hierarchy.shortest_depth[labels.indices].astype(np.int64)
    node[left[first]], apart[left[first]] = codes[first] // size, edges[first]
    return node, apart


# In the place of a label that is confused: nothing as deep was predicted.
NOTHING_AS_DEEP = "(nothing as deep)"


@dataclass
class LabelTable:
    """Counts by label that grow batch by batch; memory grows with the labels and with the pairs that are confused.

    A row has the documents of a label in training (None: not known), in the truth and in the predictions, ancestors
    included. `missed` documents have the label and do not get it; `wrong` ones get it and do not have it.
    `confused_with` is what most of the missed ones get in its place: the wrong label of the same depth, or
    NOTHING_AS_DEEP if they get none; None where none is missed.

    >>> from treelabel.hierarchy.label_ids import encode
    >>> h = Hierarchy.from_paths(["A > B", "A > C"])
    >>> table = LabelTable(h)
    >>> table.add(*(h.closure(encode(h, rows)) for rows in ([["B"], ["B"], ["C"]], [["C"], ["B"], ["A"]])))
    >>> [(row["label"], row["missed"], row["wrong"], row["confused_with"]) for row in table.rows()]
    [('A > C', 1, 1, '(nothing as deep)'), ('A > B', 1, 0, 'A > C'), ('A', 0, 0, None)]
    """

    hierarchy: Hierarchy
    train_frequencies: LongArray | None = None
    counts: LongArray = field(init=False)
    # Documents by true label x (nodes + 1) + predicted label + 1.
    instead: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.counts = np.zeros((3, len(self.hierarchy)), np.int64)

    def add(self, truth: LabelMatrix, decisions: LabelMatrix) -> None:
        """Count some documents.

        Parameters
        ----------
        truth, decisions : label matrices of shape (documents, nodes)
            With ancestors.
        """
        size = len(self.hierarchy)
        for true, result in blocks(truth, decisions):
            is_hit = matches(true, result)
            missed, wrong = keep_entries(true, ~matches(result, true)), keep_entries(result, ~is_hit)
            self.counts += np.stack([label_totals(each) for each in (result, true, keep_entries(result, is_hit))])
            left, right = equal_pairs(self._keys(missed), self._keys(wrong))
            alone = np.setdiff1d(np.arange(missed.nnz), left)
            above = missed.indices.astype(np.int64) * (size + 1)
            codes = np.concatenate([above[left] + wrong.indices[right] + 1, above[alone]])
            for code, count in zip(*np.unique(codes, return_counts=True), strict=True):
                self.instead[int(code)] = self.instead.get(int(code), 0) + int(count)

    def __or__(self, other: "LabelTable") -> "LabelTable":
        """Merge with the counts of other documents."""
        merged = LabelTable(self.hierarchy, self.train_frequencies, dict(self.instead))
        merged.counts = self.counts + other.counts
        for code, count in other.instead.items():
            merged.instead[code] = merged.instead.get(code, 0) + count
        return merged

    def _keys(self, labels: LabelMatrix) -> LongArray:
        """Return one number for document and depth of every label."""
        levels = self.hierarchy.max_depth + 1
        result: LongArray = row_numbers(labels).astype(np.int64) * levels + self.hierarchy.depth[labels.indices]
        return result

    def to_arrow(self) -> pa.Table:
        """Return the labels that occur anywhere, worst first: most missed and wrong documents, then the lowest F1."""
        h, known = self.hierarchy, self.train_frequencies
        predicted, true, hits = self.counts
        abc = self.counts.T.astype(np.float64)
        scores = {
            name: f(abc, if_empty=0.0) for name, f in (("precision", precision), ("recall", recall), ("f1", f_beta))
        }
        missed, wrong = true - hits, predicted - hits
        order = np.lexsort((np.arange(len(h)), scores["f1"], -(missed + wrong)))
        nodes = order[(true + predicted + (0 if known is None else known) > 0)[order]]
        counts = {"true": true, "predicted": predicted, "missed": missed, "wrong": wrong}
        best = self._most_confused()
        instead = [best.get(node, (None, 0)) for node in nodes.tolist()]
        paths: dict[int | None, str | None] = dict(zip(nodes.tolist(), h.paths(nodes), strict=True))
        names = {**paths, -1: NOTHING_AS_DEEP}
        columns = {
            "label": pa.array(list(paths.values()), pa.string()),
            "depth": h.depth[nodes].astype(np.int64),
            "train": pa.nulls(len(nodes), pa.int64()) if known is None else known[nodes],
            **{name: values[nodes] for name, values in (counts | scores).items()},
            "confused_with": pa.array([names.get(node) for node, _ in instead], pa.string()),
            "confused": pa.array([count for _, count in instead], pa.int64()),
        }
        return pa.table(columns)

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows of the table as JSON values."""
        rows: list[dict[str, Any]] = self.to_arrow().to_pylist()
        return rows

    def _most_confused(self) -> dict[int, tuple[int, int]]:
        """The label that most documents get in the place of each, the lowest id among equals, and how many do."""
        size, result = len(self.hierarchy) + 1, dict[int, tuple[int, int]]()
        for code in sorted(self.instead):
            node, count = code // size, self.instead[code]
            if count > result.get(node, (0, 0))[1]:
                result[node] = code % size - 1, count
        return result

    def __str__(self) -> str:
        return table_text(self.rows())


_WIDTH = 50


def table_text(rows: list[dict[str, Any]], most: int = 20) -> str:
    """Write the first rows of the table for people.

    Parameters
    ----------
    rows
        What `LabelTable.rows` returned.
    most
        How many labels to show.

    Returns
    -------
    str
    """
    with_train = any(row["train"] is not None for row in rows)
    width = max([5, *(len(_end(row["label"])) for row in rows[:most])])
    train = f"{'train':>8}" if with_train else ""
    lines = [f"{'label':<{width}}{train}{'true':>8}{'pred.':>8}{'prec.':>7}{'rec.':>7}{'F1':>7}  most confused with"]
    for row in rows[:most]:
        train = f"{row['train'] or 0:>8,}" if with_train else ""
        counts = f"{row['true']:>8,}{row['predicted']:>8,}"
        shares = f"{row['precision']:>7.3f}{row['recall']:>7.3f}{row['f1']:>7.3f}"
        other = "" if row["confused_with"] is None else f"{_end(row['confused_with'])} ({row['confused']:,})"
        lines.append(f"{_end(row['label']):<{width}}{train}{counts}{shares}  {other}".rstrip())
    if len(rows) > most:
        lines.append(f"... and {len(rows) - most:,} more labels")
    return "\n".join(lines)


def _end(path: str) -> str:
    """Keep the end of a long path, which tells labels apart."""
    return path if len(path) <= _WIDTH else f"...{path[3 - _WIDTH :]}"


Kind = Literal["sibling", "ancestor", "descendant", "far", "missing", "unwanted"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
# Documents that are kept: their texts stay in memory until all have been seen, as the worst come first.
MOST = 100_000


@dataclass(frozen=True)
class WrongDocument:
    """A document whose predicted labels are not the true ones; labels are full paths of the most specific ones.

    `kind` and `distance`, in edges, are of the pair of a true and a predicted label that lie furthest apart, each label
    that is not shared being paired with the nearest one of the other side: the predicted label is a "sibling" of the
    true one, an "ancestor" (too general), a "descendant" (too specific) or "far"; it is "missing" where nothing was
    predicted, and "unwanted" where nothing is true. `p` is that of the surest predicted label, None if not known.
    """

    id: str
    text: str | None
    true: tuple[str, ...]
    predicted: tuple[str, ...]
    p: float | None
    kind: Kind
    distance: int


@dataclass
class WrongDocuments:
    """The worst documents so far, `most` at most: furthest off first, then the surest, then in the order of the data.

    `count` is the number of all wrong documents, `kinds` counts them by kind.
    """

    hierarchy: Hierarchy
    most: int = MOST
    count: int = 0
    seen: int = 0
    kinds: dict[Kind, int] = field(default_factory=dict)
    _worst: list[tuple[tuple[float, ...], WrongDocument]] = field(default_factory=list)

    def add(
        self,
        ids: Sequence[str],
        truth: LabelMatrix,
        decisions: LabelMatrix,
        texts: Sequence[str] | None = None,
        p: DoubleArray | None = None,
    ) -> None:
        """Look through some documents.

        Parameters
        ----------
        ids : sequence of str
            Their names.
        truth, decisions : label matrices of shape (documents, nodes)
            With ancestors.
        p : array of shape (documents,), optional
            The probability of the surest predicted label of each, NaN where it is not known.
        """
        h = self.hierarchy
        rows, kinds, edges = mistakes(h, truth, decisions)
        true, result = (decode(h, h.most_specific(labels[rows]), paths=True) for labels in (truth, decisions))
        for index, (row, kind, distance) in enumerate(zip(rows.tolist(), kinds.tolist(), edges.tolist(), strict=True)):
            confidence = None if p is None or np.isnan(p[row]) else float(p[row])
            text = None if texts is None else texts[row]
            named: Kind = KINDS[kind]
            wrong = WrongDocument(ids[row], text, tuple(true[index]), tuple(result[index]), confidence, named, distance)
            self._worst.append(((-distance, -(confidence or 0.0), self.seen + row), wrong))
            self.kinds[named] = self.kinds.get(named, 0) + 1
        self.count += len(rows)
        self.seen += truth.shape[0]
        if len(self._worst) > 2 * self.most:
            self._cut()

    def _cut(self) -> None:
        self._worst.sort(key=lambda entry: entry[0])
        del self._worst[self.most :]

    def worst(self) -> list[WrongDocument]:
        """Return the documents that are kept, the worst first."""
        self._cut()
        return [wrong for _, wrong in self._worst]

    def to_arrow(self) -> pa.Table:
        """Return the documents that are kept as an Arrow table; without a column of texts where there are none."""
        rows = [vars(wrong) for wrong in self.worst()]
        table = pa.Table.from_pylist(rows, schema=_WRONG_SCHEMA)
        return table if any(row["text"] is not None for row in rows) else table.drop_columns(["text"])

    def __str__(self) -> str:
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(self.kinds.items(), key=lambda each: -each[1]))
        some = f"; the {self.most:,} worst are kept" if self.count > self.most else ""
        return f"{self.count:,} of {self.seen:,} documents are wrong{f' ({kinds})' if kinds else ''}{some}"


_WRONG_SCHEMA = pa.schema(
    {
        "id": pa.string(),
        "text": pa.large_string(),
        "true": pa.list_(pa.string()),
        "predicted": pa.list_(pa.string()),
        "p": pa.float64(),
        "kind": pa.string(),
        "distance": pa.int64(),
    }
)


def mistakes(hierarchy: Hierarchy, truth: LabelMatrix, decisions: LabelMatrix) -> tuple[LongArray, LongArray, Any]:
    """Find the documents whose sets differ, the kind of each mistake (its place in KINDS), and its distance.

    Parameters
    ----------
    hierarchy : Hierarchy
        A tree or DAG.
    truth, decisions : label matrices of shape (documents, nodes)
        With ancestors.

    Returns
    -------
    (rows, kinds, distances)
        See `WrongDocument`.

    >>> from treelabel.hierarchy.label_ids import encode
    >>> h = Hierarchy.from_paths(["A > B", "A > C", "D"])
    >>> true, result = (h.closure(encode(h, rows)) for rows in (["B", "B", "B", "A"], ["C", "A", "D", "A"]))
    >>> rows, kinds, edges = mistakes(h, true, result)
    >>> rows.tolist(), [KINDS[kind] for kind in kinds], edges.tolist()
    ([0, 1, 2], ['sibling', 'ancestor', 'far'], [2, 1, 3])
    """
    ends, predicted = hierarchy.most_specific(truth), hierarchy.most_specific(decisions)
    wrong = keep_entries(predicted, ~matches(ends, predicted))
    missed = keep_entries(ends, ~matches(predicted, ends))
    to_true, wrong_edges = nearest(hierarchy, wrong, ends)
    to_predicted, missed_edges = nearest(hierarchy, missed, predicted)
    rows = np.concatenate([row_numbers(wrong), row_numbers(missed)]).astype(np.int64)
    true = np.concatenate([to_true, missed.indices.astype(np.int64)])
    result = np.concatenate([wrong.indices.astype(np.int64), to_predicted])
    edges = np.concatenate([wrong_edges, missed_edges])
    order = np.lexsort((np.arange(len(rows)), -edges, rows))
    first = order[np.append(True, np.diff(rows[order]) > 0)[: len(order)]]
    true, result = true[first], result[first]
    none_true = row_sizes(truth)[rows[first]] == 0
    return rows[first], _kinds(hierarchy, true, result, none_true), edges[first]


def _kinds(hierarchy: Hierarchy, true: LongArray, result: LongArray, none_true: BoolArray) -> LongArray:
    """Name the relation of predicted labels to true ones, each -1 where there is none."""
    kinds = np.full(len(true), KINDS.index("far"), np.int64)
    both = np.flatnonzero((true >= 0) & (result >= 0))
    upper, lower = result[both], true[both]
    kinds[both[_share_parent(hierarchy, upper, lower)]] = KINDS.index("sibling")
    if len(both):
        kinds[both[hierarchy.is_ancestor(upper, lower)]] = KINDS.index("ancestor")
        kinds[both[hierarchy.is_ancestor(lower, upper)]] = KINDS.index("descendant")
    kinds[result < 0] = KINDS.index("missing")
    kinds[none_true] = KINDS.index("unwanted")
    return kinds


def _share_parent(hierarchy: Hierarchy, one: LongArray, two: LongArray) -> BoolArray:
    """Mark the pairs that have a parent in common, which may be the root."""
    if hierarchy.is_tree:
        same: BoolArray = hierarchy.parent[one] == hierarchy.parent[two]
        return same
    ptr, above = hierarchy.parent_ptr, hierarchy.parent_idx
    shared = [
        bool(set(above[ptr[left] : ptr[left + 1]].tolist()) & set(above[ptr[right] : ptr[right + 1]].tolist()))
        for left, right in zip(one.tolist(), two.tolist(), strict=True)
    ]
    return np.array(shared, np.bool_)
