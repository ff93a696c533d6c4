"""Prototypes of frozen embeddings: every node is a mean of its texts, drawn to its parent and to its own name.

No gradient: labels without a single text have a prototype too, and texts that come later are added to sums. Directions
in which texts of one label differ anyway count less: embeddings are whitened by the covariance within labels.
"""

from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, Self, TypedDict

import numpy as np
from scipy import sparse

from treelabel.calibration.node_map import NodeMap
from treelabel.calibration.outputs import Outputs
from treelabel.calibration.path_map import PathMap
from treelabel.core.compute import DoubleArray, FloatArray, IntArray, LongArray
from treelabel.core.errors import TreelabelError, some
from treelabel.core.kinds import LARGEST, Between
from treelabel.core.strings import Strings
from treelabel.encoders.catalogue import CachedEncoder, Encoder, encoder_note, find_encoder, same_encoder
from treelabel.hierarchy import Hierarchy, LabelMatrix
from treelabel.models.base import Model, Training, training_of
from treelabel.models.descriptions import Descriptions, name_words, node_descriptions
from treelabel.models.linear.heads import log_loss
from treelabel.models.schema import (
    MOST_DIMENSION,
    Array,
    Arrays,
    EncoderNote,
    Schema,
    indices,
    require_inner,
    require_width,
)
from treelabel.scores import Scores

# Pulls that leave-one-out chooses from, and how many documents it looks at.
PARENT_PULLS = (1.0, 2.0, 4.0)
LABEL_PULLS = (0.5, 1.0, 2.0, 4.0)
MOST_LEFT_OUT = 1_500
FEWEST_LEFT_OUT = 200
# So many cosines are computed at once.
AT_ONCE = 1 << 24
# No direction is whitened further than this.
LEAST_VARIANCE = 1e-4
# Shrinkage is so many times Ledoit and Wolf's, which is the best for the covariance itself: on training data of four
# sets and two encoders, prototypes want more of it where texts are few, and do not mind where they are many.
BEYOND_CHANCE, MOST_SHRINKAGE = 3.0, 0.9

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
        # Without texts and pulls there is no prototype, and nothing is near it.
        found: FloatArray = whole / np.maximum(counts[:, None] + to_parent + to_label, np.float32(1e-9))
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


class Values(TypedDict):
    """The encoder, and k_p and k_l."""

    encoder: EncoderNote
    pulls: tuple[Annotated[float, Between(0, LARGEST)], Annotated[float, Between(0, LARGEST)]]


class Prototype(Model):
    """Cosines with shrunk prototypes of all nodes, calibrated to a distribution over paths; nothing is trained.

    prototype(n) = (the sum of the embeddings of n's texts + k_p x prototype(parent) + k_l x embedding(the label's
    text)) / (count + k_p + k_l). `label_text` is a label's own "name" (names above it come in with the parent's: on
    training data of four sets better than paths) or its whole "path". k_p (`parent_pull`) and k_l (`label_pull`) are
    chosen by leave-one-out unless they are given, and so are the numbers that turn cosines into probabilities. Labels
    that no text has are predicted too. `partial_fit` adds texts and labels.

    Embeddings are unit vectors, whitened: times ((1 - s) C + s I)^-1/2 and brought to length 1 again, where C is the
    covariance of texts around the mean of their label, scaled to a mean variance of 1, and s the `shrinkage`: thrice
    Ledoit and Wolf's (2004), at most 0.9, unless it is given; 1 leaves embeddings as they are. Learning costs documents
    x dimension squared, scoring documents x (nodes + dimension) x dimension.
    """

    name = "prototype"
    learned = Values
    map_: NodeMap | PathMap

    def __init__(
        self,
        hierarchy: Hierarchy | None = None,
        encoder: str | Encoder | None = None,
        parent_pull: float | None = None,
        label_pull: float | None = None,
        shrinkage: float | None = None,
        label_text: Literal["name", "path"] = "name",
        descriptions: Descriptions = None,
        seed: int = 0,
    ) -> None:
        self.hierarchy = hierarchy
        self.encoder = encoder
        self.parent_pull = parent_pull
        self.label_pull = label_pull
        self.shrinkage = shrinkage
        self.label_text = label_text
        self.descriptions = descriptions
        self.seed = seed

    def _fit(self, train: Training) -> None:
        if self.encoder is None:
            raise TreelabelError("the model prototype needs an encoder=; treelabel encoders lists what is usable here")
        if self.label_text not in ("name", "path"):
            raise TreelabelError(f"the setting label_text of prototype is {self.label_text!r}; expected name or path")
        for name, most in (("parent_pull", np.inf), ("label_pull", np.inf), ("shrinkage", 1.0)):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= most:
                raise TreelabelError(
                    f"the setting {name} of prototype is {value}; expected a number from 0 to {most:g}"
                )
        self.encoder_ = CachedEncoder(find_encoder(self.encoder))
        self.stops_ = inside_ends(train)
        plain = unit(self.encoder_.transform(list(train.texts), train.progress))
        self.whitening_ = whitening(plain, train, self.shrinkage)
        vectors = unit(plain @ self.whitening_)
        self.means_ = first_means(train.hierarchy, self.stops_, self._label_vectors(train.hierarchy))
        rows = self._rows(train)
        self.means_ = self.means_.with_texts(vectors, rows)
        most = max(FEWEST_LEFT_OUT, min(MOST_LEFT_OUT, AT_ONCE // len(train.hierarchy)))
        left = np.sort(np.random.default_rng(self.seed).permutation(len(train))[:most])
        self._choose(vectors[left], rows[left], train[left])

    def partial_fit(self, data: Any, labels: Any = None, *, hierarchy: Hierarchy | None = None) -> Self:
        """Add texts to what was learned, and labels too where `hierarchy` has more of them; what was chosen stays.

        Costs the new texts and the nodes, however many texts were learned before.
        """
        if not hasattr(self, "means_"):
            return self.fit(data, labels, hierarchy=hierarchy)
        larger = self.hierarchy_ if hierarchy is None else hierarchy
        more = training_of(data, labels, larger)
        inside = inside_ends(more) if self.regime_ != "many" else self.stops_[:0]
        if larger != self.hierarchy_ or len(np.setdiff1d(inside, self.stops_)):
            self._grow(larger, inside)
        self.means_ = self.means_.with_texts(self._vectors(more.texts, more.progress), self._rows(more))
        self.prototypes_ = unit(self.means_.prototypes(self.pulls_))
        self.stop_nodes_ = self.stops_
        return self

    def _grow(self, larger: Hierarchy, inside: IntArray) -> None:
        """Go over to a hierarchy with further labels, or to further ends inside it.

        Sums stay with their labels, new ones begin with their names.
        """
        places = {path: node for node, path in enumerate(larger.paths())}
        lost = [path for path in self.hierarchy_.paths() if path not in places]
        if lost:
            raise TreelabelError(
                f"the new hierarchy lacks labels that were learned: {some(lost)}; labels can be added, not taken away"
            )
        moved = np.array([places[path] for path in self.hierarchy_.paths()], np.int32)
        # Texts of a leaf that has children now end inside.
        opened = np.flatnonzero(self.hierarchy_.is_leaf & ~larger.is_leaf[moved] & (self.regime_ != "many"))
        opened = opened[self.means_.counts[opened] > 0]
        stops: IntArray = np.unique(np.concatenate([moved[self.stops_], moved[opened], inside])).astype(np.int32)
        grown = first_means(larger, stops, self._label_vectors(larger))

        def carry(sources: LongArray, to: LongArray) -> None:
            grown.sums[to], grown.counts[to] = self.means_.sums[sources], self.means_.counts[sources]

        carry(np.arange(len(moved)), moved.astype(np.int64))
        carry(opened, len(larger) + np.searchsorted(stops, moved[opened]))
        known = len(moved) + np.arange(len(self.stops_))
        carry(known, len(larger) + np.searchsorted(stops, moved[self.stops_]))
        self.hierarchy_, self.stops_, self.means_ = larger, stops, grown
        if len(stops) and self.regime_ == "leaf":
            self.regime_ = "path"
        self.map_ = self._kind.of(outputs_of(larger, stops, self.regime_), self.map_.arrays())

    def _choose(self, vectors: FloatArray, rows: LabelMatrix, left_out: Training) -> None:
        """Choose the pulls, and the map from cosines to probabilities, by what is said of texts that are left out."""
        outputs = outputs_of(left_out.hierarchy, self.stops_, self.regime_)
        kind = self._kind
        parents = PARENT_PULLS if self.parent_pull is None else (self.parent_pull,)
        labels = LABEL_PULLS if self.label_pull is None else (self.label_pull,)
        losses: dict[Pulls, float] = {}

        def loss(pulls: Pulls) -> float:
            if pulls not in losses:
                cosines = self.means_.left_out(vectors, rows, pulls)
                fitted = kind.fit(outputs, cosines, left_out)
                losses[pulls] = log_loss(fitted.probabilities(cosines), left_out)
                if not losses[pulls] > min(losses.values()):
                    self.pulls_, self.map_ = pulls, fitted
            return losses[pulls]

        # One after the other: losses are flat around the best, and change little with the other pull.
        label = min(labels, key=lambda pull: loss((parents[0], pull)))
        min(parents, key=lambda pull: loss((pull, label)))
        self.prototypes_ = unit(self.means_.prototypes(self.pulls_))

    @property
    def _kind(self) -> type[NodeMap] | type[PathMap]:
        return NodeMap if self.regime_ == "many" else PathMap

    def _vectors(self, texts: Strings, progress: bool | None = None) -> FloatArray:
        plain = self.encoder_.transform(list(texts), progress)
        require_width(plain, len(self.whitening_), self)
        return unit(unit(plain) @ self.whitening_)

    def _label_vectors(self, h: Hierarchy) -> FloatArray:
        given = node_descriptions(h, self.descriptions)
        kept = slice(None) if self.label_text == "path" else slice(-1, None)
        names = [name_words(" ".join(path.split(" > ")[kept])) for path in h.paths()]
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
        return Scores.one_after_another(self.hierarchy_, parts)

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        values = {"encoder": encoder_note(self.encoder_), "pulls": list(self.pulls_)}
        kept = {"labels": self.means_.labels, "sums": self.means_.sums, "counts": self.means_.counts}
        return values, {**kept, "stops": self.stops_, "whitening": self.whitening_, **self.map_.arrays()}

    def _schema(self, values: dict[str, Any]) -> Schema:
        h, kind, vectors = self.hierarchy_, self._kind, ("nodes + stops", "dimension")

        def check(arrays: Arrays) -> None:
            require_inner(h, arrays["stops"])
            # Sums of vectors of length 1: prototypes are not longer than that either.
            if (np.abs(arrays["sums"]) > 1.001 * arrays["counts"][:, None] + 0.001).any():
                raise TreelabelError("sums holds more than so many texts as counts says can add up to")
            kind.check(outputs_of(h, arrays["stops"], self.regime_), arrays)

        return Schema(
            {
                "stops": indices("stops", "nodes", rising=True),
                "labels": Array("float32", vectors, -2, 2),
                "sums": Array("float32", vectors),
                "counts": Array("float32", ("nodes + stops",), 0),
                "whitening": Array("float32", ("dimension", "dimension"), -1e6, 1e6),
                **kind.declared(),
            },
            sizes={"nodes": len(h)},
            most={"stops": len(h), "dimension": MOST_DIMENSION},
            relations=(check,),
        )

    def _restore(self, values: dict[str, Any], arrays: Arrays) -> None:
        self.encoder_ = CachedEncoder(same_encoder(self.encoder, values["encoder"]))
        self.pulls_ = float(values["pulls"][0]), float(values["pulls"][1])
        self.stops_, self.whitening_ = arrays["stops"], arrays["whitening"]
        first = first_means(self.hierarchy_, self.stops_, arrays["labels"][: len(self.hierarchy_)])
        self.means_ = replace(first, sums=arrays["sums"], counts=arrays["counts"])
        outputs = outputs_of(self.hierarchy_, self.stops_, self.regime_)
        self.map_ = self._kind.of(outputs, arrays)
        self.prototypes_ = unit(self.means_.prototypes(self.pulls_))


def unit(vectors: FloatArray) -> FloatArray:
    """Bring rows to length 1; those of 0 stay."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.where(lengths > 0, lengths, 1), np.float32)


def whitening(vectors: FloatArray, train: Training, shrinkage: float | None) -> FloatArray:
    """The matrix that makes texts of one label differ alike in all directions, as far as it is known.

    ((1 - s) C + s I)^-1/2, where C is the covariance within labels of two texts or more, of mean variance 1. Texts with
    several labels or with none say nothing here.
    """
    width = vectors.shape[1]
    apart, freedom = within_labels(vectors, train)
    size = float((apart**2).sum())
    if freedom < 1 or size <= 0 or shrinkage == 1:
        return np.eye(width, dtype=np.float32)
    apart *= np.sqrt(width * len(apart) / size)
    covariance = apart.T @ apart / len(apart)
    squares = float((covariance**2).sum())
    if shrinkage is None:
        by_chance = (float(((apart**2).sum(axis=1) ** 2).mean()) - squares) / freedom
        shrinkage = min(MOST_SHRINKAGE, BEYOND_CHANCE * by_chance / max(squares - width, 1e-12))
    values, axes = np.linalg.eigh((1 - shrinkage) * covariance + shrinkage * np.eye(width))
    found: FloatArray = ((axes / np.sqrt(np.maximum(values, LEAST_VARIANCE))) @ axes.T).astype(np.float32)
    return found


def within_labels(vectors: FloatArray, train: Training) -> tuple[DoubleArray, int]:
    """Texts less the mean of their label, of labels of two texts or more; and how many of these are free to vary."""
    ends = train.hierarchy.most_specific(train.labels)
    alone = np.flatnonzero(np.diff(ends.indptr) == 1)
    end = ends.indices[ends.indptr[alone]]
    counts = np.bincount(end, minlength=len(train.hierarchy))
    rows, label = alone[counts[end] > 1], end[counts[end] > 1]
    given = vectors[rows].astype(np.float64)
    marks = sparse.csr_array((np.ones(len(rows)), (label, np.arange(len(rows)))), (len(counts), len(rows)))
    means = (marks @ given) / np.maximum(counts, 1)[:, None]
    return given - means[label], len(rows) - int((counts > 1).sum())


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
