"""Given labels that look wrong: how much out-of-fold probabilities speak against each, by the odds of two stories.

Of a document and a label g that it was given, either the label is right, which has the probability p(g); or it is a
slip, of which a share w are to a sibling of the true label and the others to any label, so that g is hit with

    q(g) = w (p(parent) - p(g)) / (siblings) + (1 - w) (1 - p(g)) / (other labels).

A model that learned from labels with a share `rate` of slips gives g its share of these, too, so that the label is
wrong with the probability rate q(g) / p(g), at most 1. Without siblings among the slips (w = 0) that ranks as
self-confidence does; with them, a label whose siblings are likely is doubted early.

What slips are like is told by the documents that the model is surest of, a quarter of all: there, nearly every label
that is not the model's is a slip, as these fall on any document while doubtful ones are few. With a share s of siblings
of the model's among these labels, w = s² / (s² + (1 - s)²): some siblings are there without any slip. The rate is that
of confident learning (Northcutt et al., "Confident learning", 2021): the share of documents for which another label has
at least the mean probability that it has where it was given, while the given one has less.

Labels with few documents are little known to the model: p(g) is shrunk towards the share of g in its parent, from the
root downwards, as if PRIOR documents had said so.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import numpy as np
from scipy import sparse

from treelabel.core.matrices import entries
from treelabel.core.types import BoolArray, DoubleArray, IntArray, LongArray
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.label_matrices import LabelMatrix, keep_entries, row_numbers
from treelabel.hierarchy.labelled_texts import usual_regime
from treelabel.scores.score_matrix import Scores

# Dense or CSR, documents x nodes.
Values: TypeAlias = Any
Reason = Literal["sibling", "far", "near", "deeper", "higher", "duplicate disagrees", "extra", "missing"]

# The share of documents, the surest ones, that tell what slips are like.
SUREST: Final = 0.25
# How many documents the shrinkage of rare labels is worth.
PRIOR: Final = 0.1
# What the share of slips may be.
LEAST_RATE, MOST_RATE = 0.001, 0.3
# With several labels, one that was not given is a candidate from this probability on.
LIKELY: Final = 0.5
TINY: Final = 1e-12


class Disagreements(NamedTuple):
    """Documents with (nearly) the same text as another one: what share of such copies has other labels, and which one.

    All have the shape (documents,); a share of 0 and a copy of -1 where there are none.
    """

    share: DoubleArray
    copy: LongArray


@dataclass(frozen=True, eq=False)
class Suspects:
    """Labels that are doubted, the most doubted first.

    `labels` are the labels in doubt (-1: one is missing), `suggested` what the model would say instead (-1: nothing).
    `score` is the probability that the label is wrong; `rate` is the share of such labels that was found.
    """

    rows: LongArray
    labels: IntArray
    suggested: IntArray
    p_given: DoubleArray
    p_suggested: DoubleArray
    score: DoubleArray
    reasons: list[Reason]
    copies: LongArray
    rate: float

    def __len__(self) -> int:
        return len(self.rows)

    def first(self, count: int) -> "Suspects":
        """Return the most doubted ones."""
        return Suspects(**{name: value if name == "rate" else value[:count] for name, value in vars(self).items()})


def find_suspects(scores: Scores, labels: LabelMatrix, same: Disagreements | None = None) -> Suspects:
    """Rank all given labels, and with several labels also those that are missing, by how likely they are wrong.

    Parameters
    ----------
    scores : Scores
        Probabilities of nodes, each document's by a model that had not learned from it.
    labels : LabelMatrix, documents x nodes
        The labels given.
    same : Disagreements, optional
        Copies of documents that have other labels; they raise the share of slips among these to theirs.

    Returns
    -------
    Suspects
        One entry for every given most specific label, and for every likely one that is missing.

    >>> h = Hierarchy.from_paths(["A > B", "A > C", "D > E", "D > F"])
    >>> p = Scores.from_leaves(h, ["B", "C", "E", "F"], [[0.9, 0.1, 0.0, 0.0]] * 3 + [[0.0, 0.0, 0.1, 0.9]] * 3)
    >>> from treelabel.hierarchy.label_ids import encode
    >>> suspects = find_suspects(p, encode(h, ["B", "B", "E", "F", "F", "E"]))
    >>> suspects.rows[:2].tolist(), suspects.reasons[:2], [h.names[node] for node in suspects.suggested[:2]]
    ([2, 5], ['far', 'sibling'], ['B', 'F'])
    """
    h = scores.hierarchy
    specific, closed = h.most_specific(labels), h.closure(labels)
    has_many = usual_regime(h, labels) == "multi_path" or not h.is_tree
    doubt = _Doubt.of(scores, specific, ends=not has_many)
    rows, nodes = row_numbers(specific), specific.indices.astype(np.int64)
    best, p_best = doubt.best_other(closed if has_many else specific)
    near = 0.5 if has_many else doubt.near_share(rows, nodes, best[rows])
    wrong = doubt.log_odds(rows, nodes, near)
    if not has_many:
        return _rank(h, doubt, _Entries(rows, nodes, best[rows], wrong), same, has_many)
    # A label is not replaced by one that is itself unlikely: it is one too many.
    best = np.where(p_best >= LIKELY, best, -1)
    pairs = zip((rows, nodes, best[rows], wrong), _missing(scores, closed), strict=True)
    return _rank(h, doubt, _Entries(*map(np.concatenate, pairs)), same, has_many)


class _Entries(NamedTuple):
    rows: LongArray
    labels: LongArray
    suggested: LongArray
    log_odds: DoubleArray


@dataclass(frozen=True, eq=False)
class _Doubt:
    """Probabilities that documents belong below each node, and end at it; and how many do, as labels say."""

    hierarchy: Hierarchy
    below: Values
    end: Values
    classes: BoolArray
    count_below: LongArray
    count_end: LongArray
    classes_below: LongArray
    floor: DoubleArray

    @classmethod
    def of(cls, scores: Scores, specific: LabelMatrix, ends: bool) -> "_Doubt":
        h, below = scores.hierarchy, scores.values
        count_end = np.bincount(specific.indices, minlength=len(h))
        classes = count_end > 0
        end = below
        if ends and (~h.is_leaf & classes).any():
            # What ends at an inner node is its probability less those of its children.
            inner = np.flatnonzero(h.parent >= 0)
            to_parent = sparse.csr_array((np.ones(len(inner)), (inner, h.parent[inner])), (len(h), len(h)))
            end = below - below @ to_parent
            end = end.maximum(0) if sparse.issparse(end) else np.maximum(end, 0)
        every = h.closure(sparse.csr_array((classes[classes], (np.flatnonzero(classes),) * 2), (len(h), len(h))))
        # Scores that were not stored are taken for half the smallest one that was, of each document.
        floor = np.zeros(below.shape[0])
        if sparse.issparse(below):
            some = np.flatnonzero(np.diff(below.indptr))
            floor[some] = np.minimum.reduceat(below.data, below.indptr[some]) / 2 if len(some) else 0
        closed = h.closure(specific)
        count_below, classes_below = (np.bincount(each.indices, minlength=len(h)) for each in (closed, every))
        return cls(h, below, end, classes, count_below, count_end, classes_below, floor)

    def p_end(self, rows: LongArray, nodes: LongArray) -> DoubleArray:
        """Return the probabilities that documents end at nodes."""
        return np.maximum(entries(self.end, rows, nodes), self.floor[rows])

    def p_below(self, rows: LongArray, nodes: LongArray) -> DoubleArray:
        """Return the probabilities that documents belong below nodes."""
        return np.maximum(entries(self.below, rows, nodes), self.floor[rows])

    def rate(self, candidates: "_Entries", has_many: bool) -> float:
        """Estimate the share of given labels that are wrong, as confident learning does."""
        rows, nodes, suggested = (values[candidates.labels >= 0] for values in candidates[:3])
        p, count = self.p_end(rows, nodes), self.count_end
        sums = np.bincount(nodes, p, len(self.classes))
        usual = sums / np.maximum(count, 1)
        if has_many:
            # The classes are questions of their own: a label is confidently wrong where it is no likelier than usual
            # among documents without it.
            others = (np.asarray(self.end.sum(axis=0)).ravel() - sums) / np.maximum(self.end.shape[0] - count, 1)
            is_wrong = p <= np.minimum(others, usual)[nodes]
        else:
            other = np.where(suggested >= 0, self.p_end(rows, np.maximum(suggested, 0)), 0)
            is_wrong = (suggested >= 0) & (p < usual[nodes]) & (other >= usual[suggested]) & (other > p)
        return float(np.clip(is_wrong.mean() if len(rows) else 0, LEAST_RATE, MOST_RATE))

    def near_share(self, rows: LongArray, nodes: LongArray, others: LongArray) -> float:
        """Estimate the share of slips that are to a sibling of the true label.

        Parameters
        ----------
        rows, nodes
            Documents, and the label that each was given.
        others
            The likeliest other label of each; -1 for none.

        Returns
        -------
        float
            0.1 where there are none.
        """
        p, p_other = self.p_end(rows, nodes), self.p_end(rows, np.maximum(others, 0))
        is_other = (others >= 0) & (p_other > p)
        surest = np.argsort(-np.where(is_other, p_other, p), kind="stable")[: int(SUREST * len(rows))]
        slips = surest[is_other[surest]]
        first = _first_parents(self.hierarchy)
        siblings = int((first[nodes[slips]] == first[others[slips]]).sum())
        odds = (siblings + 0.5) / (len(slips) - siblings + 1.5)
        return odds**2 / (1 + odds**2)

    def log_odds(self, rows: LongArray, nodes: LongArray, near_share: float) -> DoubleArray:
        """Compute log q(g) - log p(g), p(g) shrunk.

        Parameters
        ----------
        rows, nodes
            Documents, and the label that each was given.
        near_share
            The share of slips that are to siblings.

        Returns
        -------
        array of shape (labels,)
        """
        h, every = self.hierarchy, int(self.classes.sum())
        p = self.p_end(rows, nodes)
        first = _first_parents(h)
        way, above = [nodes], first[nodes]
        p_parent = np.where(above >= 0, self.p_below(rows, np.maximum(above, 0)), 1.0)
        n_parent = np.where(above >= 0, self.classes_below[np.maximum(above, 0)], float(every))
        while (above >= 0).any():
            way.append(above)
            above = np.where(above >= 0, first[np.maximum(above, 0)], -1)
        near = np.maximum(p_parent - p, 0) / np.maximum(n_parent - 1, 1)
        anywhere = np.maximum(1 - p, 0) / max(every - 1, 1)
        hit = near_share * near + (1 - near_share) * anywhere
        odds: DoubleArray = np.log(hit + TINY) - np.log(self._shrunk(rows, way, p, every) + TINY)
        return odds

    def _shrunk(self, rows: LongArray, way: list[LongArray], p: DoubleArray, every: int) -> DoubleArray:
        """Shrink probabilities from the root downwards to the shares of labels in what is above them."""
        prior, size = np.ones(len(rows)), np.full(len(rows), float(every))
        for step in range(len(way) - 1, -1, -1):
            nodes, is_there = np.maximum(way[step], 0), way[step] >= 0
            count = (self.count_end if step == 0 else self.count_below)[nodes] - 1
            p_node = p if step == 0 else self.p_below(rows, nodes)
            node_size = np.ones(len(rows)) if step == 0 else self.classes_below[nodes].astype(float)
            mixed = (count * p_node + PRIOR * prior * node_size / np.maximum(size, 1)) / (count + PRIOR)
            prior, size = np.where(is_there, mixed, prior), np.where(is_there, node_size, size)
        return prior

    def best_other(self, taken: LabelMatrix) -> tuple[LongArray, DoubleArray]:
        """Find the likeliest class of each document that is not among those taken; -1 where none has a probability."""
        columns = np.flatnonzero(self.classes)
        if not len(columns):
            return np.full(taken.shape[0], -1), np.zeros(taken.shape[0])
        if sparse.issparse(self.end):
            end = sparse.csr_array(self.end[:, columns])
            end = sparse.csr_array(end - end.multiply(taken[:, columns]))
        else:
            end = self.end[:, columns].copy()
            end[taken[:, columns].toarray().astype(bool)] = 0
        index = np.asarray(end.argmax(axis=1)).ravel()
        p = entries(end, np.arange(len(index)), index)
        return np.where(p > 0, columns[index], -1), p


def _first_parents(h: Hierarchy) -> LongArray:
    """Return the first parent of every node; -1 of a root."""
    return np.asarray(h.parent_idx[h.parent_ptr[:-1]], np.int64)


def _missing(scores: Scores, closed: LabelMatrix) -> _Entries:
    """Find likely labels that were not given, the most specific ones of each document."""
    h, p = scores.hierarchy, scores.csr()
    lacking = h.most_specific(keep_entries(p, p.data >= LIKELY))
    rows, nodes = row_numbers(lacking), lacking.indices.astype(np.int64)
    free = ~np.asarray(entries(closed, rows, nodes), np.bool_)
    rows, nodes = rows[free], nodes[free]
    result = np.minimum(entries(p, rows, nodes), 1 - 1e-6)
    return _Entries(rows, np.full(len(rows), -1), nodes, np.log(result) - np.log1p(-result))


def _rank(h: Hierarchy, doubt: _Doubt, result: _Entries, same: Disagreements | None, has_many: bool) -> Suspects:
    rate = doubt.rate(result, has_many)
    if same is None:
        same = Disagreements(np.zeros(doubt.below.shape[0]), np.full(doubt.below.shape[0], -1, np.int64))
    log_score = result.log_odds + np.log(np.maximum(rate, same.share[result.rows]))
    order = np.lexsort((result.rows, -log_score))
    rows, labels, suggested = result.rows[order], result.labels[order], result.suggested[order]
    copies = np.where(same.share[rows] > 0, same.copy[rows], -1)
    p_label, p_suggested = (
        np.where(nodes >= 0, doubt.p_end(rows, np.maximum(nodes, 0)), np.nan) for nodes in (labels, suggested)
    )
    score, reasons = np.exp(np.minimum(log_score[order], 0)), _reasons(h, labels, suggested, copies)
    nodes = labels.astype(np.int32), suggested.astype(np.int32)
    return Suspects(rows, *nodes, p_label, p_suggested, score, reasons, copies, rate)


def _reasons(h: Hierarchy, labels: LongArray, suggested: LongArray, copies: LongArray) -> list[Reason]:
    if not len(labels):
        return []
    both = (labels >= 0) & (suggested >= 0)
    one, two = np.maximum(labels, 0), np.maximum(suggested, 0)
    first = _first_parents(h)
    reasons: dict[Reason, Any] = {
        "duplicate disagrees": copies >= 0,
        "missing": labels < 0,
        "extra": suggested < 0,
        "deeper": both & h.is_ancestor(one, two),
        "higher": both & h.is_ancestor(two, one),
        "sibling": both & (first[one] == first[two]),
        "near": both & (h.lowest_common_ancestor(one, two) >= 0),
    }
    chosen: list[Reason] = np.select(list(reasons.values()), list(reasons), "far").tolist()
    return chosen


def disagreements(codes: LongArray, labels: LabelMatrix) -> Disagreements:
    """Find documents whose copies have other labels.

    Parameters
    ----------
    codes : array of shape (documents,)
        Equal numbers for documents with the same text; -1 for none.
    labels : LabelMatrix, documents x nodes
        The labels given.

    Returns
    -------
    Disagreements
        The copy is the first document that has the same text and other labels.

    >>> from treelabel.hierarchy.label_ids import encode
    >>> labels = encode(Hierarchy.flat(["A", "B"]), ["A", "B", "A", "B"])
    >>> same = disagreements(np.array([0, 0, 0, 1]), labels)
    >>> same.share.round(2).tolist(), same.copy.tolist()
    ([0.33, 0.67, 0.33, 0.0], [1, 0, 1, -1])
    """
    share, copy = np.zeros(len(codes)), np.full(len(codes), -1, np.int64)
    order = np.argsort(codes, kind="stable")
    order = order[codes[order] >= 0]
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    for rows in np.split(order, starts[1:]):
        if len(rows) < 2:
            continue
        sets = [tuple(labels.indices[labels.indptr[row] : labels.indptr[row + 1]].tolist()) for row in rows.tolist()]
        times = Counter(sets)
        if len(times) < 2:
            continue
        first = dict(zip(reversed(sets), reversed(rows.tolist()), strict=True))
        one, two = list(times)[:2]
        for row, nodes in zip(rows.tolist(), sets, strict=True):
            share[row], copy[row] = 1 - times[nodes] / len(rows), first[two if nodes == one else one]
    return Disagreements(share, copy)
