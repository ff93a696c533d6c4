"""The documents that were got wrong: what kind of mistake each is, and how far off in the hierarchy."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, get_args

import numpy as np
import pyarrow as pa

from treelabel.core.types import BoolArray, DoubleArray, LongArray
from treelabel.evaluation.label_pairs import nearest
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.label_ids import decode
from treelabel.hierarchy.label_matrices import (
    LabelMatrix,
    keep_entries,
    matches,
    row_numbers,
    row_sizes,
)

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
    _kept: list[tuple[tuple[float, ...], WrongDocument]] = field(default_factory=list)

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
            self._kept.append(((-distance, -(confidence or 0.0), self.seen + row), wrong))
            self.kinds[named] = self.kinds.get(named, 0) + 1
        self.count += len(rows)
        self.seen += truth.shape[0]
        if len(self._kept) > 2 * self.most:
            self._cut()

    def _cut(self) -> None:
        self._kept.sort(key=lambda entry: entry[0])
        del self._kept[self.most :]

    def worst(self) -> list[WrongDocument]:
        """Return the documents that are kept, the worst first."""
        self._cut()
        return [wrong for _, wrong in self._kept]

    def to_arrow(self) -> pa.Table:
        """Return the documents that are kept as an Arrow table; without a column of texts where there are none."""
        rows = [vars(wrong) for wrong in self.worst()]
        table = pa.Table.from_pylist(rows, schema=_SCHEMA)
        return table if any(row["text"] is not None for row in rows) else table.drop_columns(["text"])

    def __str__(self) -> str:
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(self.kinds.items(), key=lambda each: -each[1]))
        some = f"; the {self.most:,} worst are kept" if self.count > self.most else ""
        return f"{self.count:,} of {self.seen:,} documents are wrong{f' ({kinds})' if kinds else ''}{some}"


_SCHEMA = pa.schema(
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
    to_found, missed_edges = nearest(hierarchy, missed, predicted)
    rows = np.concatenate([row_numbers(wrong), row_numbers(missed)]).astype(np.int64)
    true = np.concatenate([to_true, missed.indices.astype(np.int64)])
    result = np.concatenate([wrong.indices.astype(np.int64), to_found])
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
