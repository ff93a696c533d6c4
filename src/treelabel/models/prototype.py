"""Prototypes of frozen embeddings: every node is a mean of its texts, drawn to its parent and to its own name.

No gradient: labels without a single text have a prototype too, and texts that come later are added to sums.
"""

from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Self

import numpy as np
from scipy import sparse

from treelabel.compute import FloatArray, IntArray, LongArray
from treelabel.errors import TreelabelError
from treelabel.features.encoders import CachedEncoder, Encoder, encoder_note, find_encoder, same_encoder
from treelabel.hierarchy import Hierarchy, LabelMatrix
from treelabel.models.base import Arrays, Model, Training, training_of
from treelabel.models.descriptions import Descriptions, name_words, node_descriptions
from treelabel.models.heads import log_loss
from treelabel.models.heads.node_map import NodeMap
from treelabel.models.heads.outputs import Outputs
from treelabel.models.heads.path_map import PathMap
from treelabel.scores import Scores
from treelabel.strings import Strings

# Pulls that leave-one-out chooses from, and how many documents it looks at.
PARENT_PULLS = (1.0, 2.0, 4.0, 8.0)
LABEL_PULLS = (0.5, 1.0, 2.0, 4.0)
MOST_LEFT_OUT = 1_500
# So many cosines are computed at once.
AT_ONCE = 1 << 24

Pulls = tuple[float, float]


@dataclass(frozen=True, eq=False)
class Means:
    """Sums and counts of the texts of every output, and vectors of label texts: what prototypes are made of.

    Outputs are the nodes and, after them, ends inside ("here, and no further"), which are children of their node.
    `above` is outputs x outputs: the mean over the parents of each.
    """

    depth: IntArray
    above: sparse.csr_array
    labels: FloatArray
    sums: FloatArray
    counts: FloatArray

    def with_texts(self, vectors: FloatArray, rows: LabelMatrix) -> "Means":
        """Add texts to the outputs that they have, texts x outputs. Costs these texts alone."""
        marks = rows.astype(np.float32)
        counts = self.counts + np.asarray(marks.sum(axis=0), np.float32).ravel()
        return replace(self, sums=self.sums + np.asarray(marks.T @ vectors, np.float32), counts=counts)

    def prototypes(self, pulls: Pulls) -> FloatArray:
        """prototype = (sum + k_p x the parents' + k_l x the label's) / (count + k_p + k_l), top down."""
        found = np.zeros_like(self.sums)
        for level in range(1, int(self.depth.max(initial=0)) + 1):
            at = np.flatnonzero(self.depth == level)
            found[at] = self._shrunk(self.sums[at], self.counts[at], at, self.above[at] @ found, pulls)
        return found

    def _shrunk(self, sums: FloatArray, counts: FloatArray, at: Any, above: FloatArray, pulls: Pulls) -> FloatArray:
        to_parent = np.where(np.diff(self.above.indptr)[at] > 0, np.float32(pulls[0]), np.float32(0))[:, None]
        to_label = np.float32(pulls[1])
        whole = sums + to_parent * above + to_label * self.labels[at]
        found: FloatArray = whole / (counts[:, None] + to_parent + to_label)
        return found

    def left_out(self, vectors: FloatArray, rows: LabelMatrix, pulls: Pulls) -> FloatArray:
        """Cosines of texts with all prototypes, those of their own outputs as they would be without the text.

        What a text adds to prototypes that are drawn to one of its own is left alone.
        """
        full = self.prototypes(pulls)
        cosines = unit(vectors) @ unit(full).T
        row = np.repeat(np.arange(len(vectors)), np.diff(rows.indptr))
        # Prototypes of texts' own outputs, entry by entry of `rows`, parents first.
        own = np.zeros((len(row), full.shape[1]), np.float32)
        keys = row * rows.shape[1] + rows.indices
        for level in np.unique(self.depth[rows.indices]):
            at = np.flatnonzero(self.depth[rows.indices] == level)
            outputs = rows.indices[at]
            above = self._above_without(keys, own, row[at], outputs)
            sums, counts = self.sums[outputs] - vectors[row[at]], self.counts[outputs] - 1
            own[at] = self._shrunk(sums, counts, outputs, above, pulls)
        cosines[row, rows.indices] = (unit(own) * unit(vectors)[row]).sum(axis=1)
        return np.asarray(cosines, np.float32)

    def _above_without(self, keys: LongArray, own: FloatArray, row: LongArray, outputs: IntArray) -> FloatArray:
        """The mean of the parents' prototypes without the text, which are already there."""
        found = np.zeros((len(row), own.shape[1]), np.float32)
        length = np.diff(self.above.indptr)[outputs]
        entry = np.repeat(np.arange(len(row)), length)
        start = np.repeat(self.above.indptr[outputs] - np.concatenate([[0], np.cumsum(length)[:-1]]), length)
        at = start + np.arange(len(entry))
        parents, weights = self.above.indices[at], self.above.data[at]
        places = np.searchsorted(keys, row[entry] * len(self.depth) + parents)
        np.add.at(found, entry, weights[:, None] * own[places])
        return found


class Prototype(Model):
    """Cosines with shrunk prototypes of all nodes, calibrated to a distribution over paths; nothing is trained.

    prototype(n) = (the sum of the embeddings of n's texts + k_p x prototype(parent) + k_l x embedding(the label's path
    as text)) / (count + k_p + k_l). k_p (`parent_pull`) and k_l (`label_pull`) are chosen by leave-one-out unless they
    are given, and so are the numbers that turn cosines into probabilities. Labels that no text has are predicted too.
    `partial_fit` adds texts. Learning costs documents x dimension, scoring documents x nodes x dimension.
    """

    name = "prototype"

    def __init__(
        self,
        hierarchy: Hierarchy | None = None,
        encoder: str | Encoder | None = None,
        parent_pull: float | None = None,
        label_pull: float | None = None,
        descriptions: Descriptions = None,
        seed: int = 0,
    ) -> None:
        self.hierarchy = hierarchy
        self.encoder = encoder
        self.parent_pull = parent_pull
        self.label_pull = label_pull
        self.descriptions = descriptions
        self.seed = seed

    def _fit(self, train: Training) -> None:
        if self.encoder is None:
            raise TreelabelError("the model prototype needs an encoder=")
        self.encoder_ = CachedEncoder(find_encoder(self.encoder))
        self.stops_ = inside_ends(train)
        vectors = self._vectors(train.texts, train.progress)
        self.means_ = first_means(train.hierarchy, self.stops_, self._label_vectors(train.hierarchy))
        rows = self._rows(train)
        self.means_ = self.means_.with_texts(vectors, rows)
        some = np.sort(np.random.default_rng(self.seed).permutation(len(train))[:MOST_LEFT_OUT])
        self._choose(vectors[some], rows[some], train[some])

    def partial_fit(self, data: Any, labels: Any = None) -> Self:
        """Add texts with labels of the same hierarchy to what was learned; what was chosen stays."""
        if not hasattr(self, "means_"):
            return self.fit(data, labels)
        more = training_of(data, labels, self.hierarchy_)
        self.means_ = self.means_.with_texts(self._vectors(more.texts, more.progress), self._rows(more))
        self.prototypes_ = unit(self.means_.prototypes(self.pulls_))
        return self

    def _choose(self, vectors: FloatArray, rows: LabelMatrix, left_out: Training) -> None:
        """Choose the pulls, and the map from cosines to probabilities, by what is said of texts that are left out."""
        outputs = outputs_of(left_out.hierarchy, self.stops_, self.regime_)
        kind = NodeMap if self.regime_ == "many" else PathMap
        parents = PARENT_PULLS if self.parent_pull is None else (self.parent_pull,)
        labels = LABEL_PULLS if self.label_pull is None else (self.label_pull,)
        best = np.inf
        for pulls in product(parents, labels):
            cosines = self.means_.left_out(vectors, rows, pulls)
            fitted = kind.fit(outputs, cosines, left_out)
            loss = log_loss(fitted.probabilities(cosines), left_out)
            if not loss >= best:
                best, self.pulls_, self.map_ = loss, pulls, fitted
        self.prototypes_ = unit(self.means_.prototypes(self.pulls_))

    def _vectors(self, texts: Strings, progress: bool | None = None) -> FloatArray:
        return unit(self.encoder_.transform(list(texts), progress))

    def _label_vectors(self, h: Hierarchy) -> FloatArray:
        given = node_descriptions(h, self.descriptions)
        names = [" ".join(map(name_words, path.split(" > "))) for path in h.paths()]
        return self._vectors(Strings.of([f"{name} {given.get(node, '')}".strip() for node, name in enumerate(names)]))

    def _rows(self, data: Training) -> LabelMatrix:
        """Which outputs texts have: their nodes, and the end inside where their path ends there."""
        ends = data.hierarchy.most_specific(data.labels)[:, self.stops_]
        return sparse.csr_array(sparse.hstack([data.closed, ends]))

    def _score(self, texts: Strings) -> Scores:
        if not len(texts):
            return Scores(self.hierarchy_, np.zeros((0, len(self.hierarchy_)), np.float32))
        vectors = self._vectors(texts)
        step = max(1, AT_ONCE // len(self.prototypes_))
        parts = [
            self.map_.probabilities(np.asarray(vectors[low : low + step] @ self.prototypes_.T, np.float32))
            for low in range(0, len(vectors), step)
        ]
        joined = sparse.vstack(parts, format="csr") if sparse.issparse(parts[0]) else np.concatenate(parts)
        return Scores(self.hierarchy_, joined)

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        values = {"encoder": encoder_note(self.encoder_), "pulls": list(self.pulls_)}
        kept = {"labels": self.means_.labels, "sums": self.means_.sums, "counts": self.means_.counts}
        return values, {**kept, "stops": self.stops_, **self.map_.arrays()}

    def _restore(self, values: dict[str, Any], arrays: Arrays) -> None:
        self.encoder_ = CachedEncoder(same_encoder(self.encoder, values["encoder"]))
        self.pulls_ = float(values["pulls"][0]), float(values["pulls"][1])
        self.stops_ = arrays["stops"]
        first = first_means(self.hierarchy_, self.stops_, arrays["labels"][: len(self.hierarchy_)])
        self.means_ = replace(first, sums=arrays["sums"], counts=arrays["counts"])
        outputs = outputs_of(self.hierarchy_, self.stops_, self.regime_)
        self.map_ = (NodeMap if self.regime_ == "many" else PathMap).of(outputs, arrays)
        self.prototypes_ = unit(self.means_.prototypes(self.pulls_))


def unit(vectors: FloatArray) -> FloatArray:
    """Bring rows to length 1; those of 0 stay."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.where(lengths > 0, lengths, 1), np.float32)


def inside_ends(train: Training) -> IntArray:
    """The inner nodes at which paths of training end, where each document has one."""
    h = train.hierarchy
    ends = np.unique(h.most_specific(train.labels).indices)
    found: IntArray = ends[~h.is_leaf[ends]].astype(np.int32)
    return found[:0] if train.regime == "many" else found


def first_means(h: Hierarchy, stops: IntArray, labels: FloatArray) -> Means:
    """Means without any text: labels alone."""
    nodes, count = len(h), len(h) + len(stops)
    known = h.parent_idx >= 0
    child = np.concatenate([h.edge_child[known], np.arange(nodes, count)])
    parent = np.concatenate([h.parent_idx[known], stops])
    share = 1 / np.bincount(child, minlength=count)[child]
    above = sparse.csr_array((share.astype(np.float32), (child, parent)), (count, count))
    depth = np.concatenate([h.depth, h.depth[stops] + 1]).astype(np.int32)
    vectors = np.concatenate([labels, labels[stops]])
    return Means(depth, above, vectors, np.zeros_like(vectors), np.zeros(count, np.float32))


def outputs_of(h: Hierarchy, stops: IntArray, regime: str) -> Outputs:
    """All nodes have an output, and every leaf and end inside is an end: also those that no text has."""
    nodes = np.arange(len(h), dtype=np.int32)
    ends = np.union1d(h.leaves, stops).astype(np.int32)
    of_ends = ends.copy()
    of_ends[np.searchsorted(ends, stops)] = len(h) + np.arange(len(stops), dtype=np.int32)
    return Outputs(h, nodes, nodes, ends, of_ends)
