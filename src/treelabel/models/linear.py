"""The default model: tf-idf of n-grams, one linear output a label, and a calibrated distribution over the hierarchy."""

import time
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from treelabel.compute import DoubleArray, FloatArray, IntArray, LongArray, over_rows
from treelabel.features import NgramShape, Tfidf
from treelabel.features.names import named_ngrams
from treelabel.hierarchy import Hierarchy, LabelMatrix, label_matrix
from treelabel.models import linear_kernels as kernels
from treelabel.models.base import Arrays, Model, Training
from treelabel.models.calibration import STEPS, fit_flatter, fit_monotone, fit_share, fit_softmax, monotone
from treelabel.models.descent import BLOCK, Descent, Stop, train_hinge
from treelabel.progress import progress_bar
from treelabel.rules import decide
from treelabel.scores import Scores
from treelabel.strings import Strings

# Ancestors at this depth and below share one number.
LEVELS = 8
# From this many nodes on, only the scores of the likeliest ends are kept.
MANY_NODES = 20_000
KEPT_ENDS = 100
# Ends of a document that are looked at in calibration.
CANDIDATES = 64
DENSE_BLOCK = 1 << 22


@dataclass(frozen=True, eq=False)
class Outputs:
    """What the linear outputs stand for: one for each node that training has seen, and one for each end inside.

    An end is a node at which the labels of a training document end. `own` is the output of each end (a leaf's is that
    of the node), `above` its proper ancestors (of an end inside, the node itself counts as one) as outputs.
    """

    hierarchy: Hierarchy
    nodes: IntArray
    ends: IntArray

    @property
    def count(self) -> int:
        """The number of outputs."""
        return len(self.nodes) + int((~self.hierarchy.is_leaf[self.ends]).sum())

    @cached_property
    def of_ends(self) -> IntArray:
        """The output of each end: a leaf's is that of the node, those of ends inside come after all nodes."""
        inside = ~self.hierarchy.is_leaf[self.ends]
        place = np.searchsorted(self.nodes, self.ends)
        return np.where(inside, len(self.nodes) + np.cumsum(inside) - 1, place).astype(np.int32)

    @cached_property
    def paths(self) -> LabelMatrix:
        """The nodes on the way to each end, itself included."""
        return self.hierarchy.closure(label_matrix(np.arange(len(self.ends) + 1), self.ends, len(self.hierarchy)))

    @cached_property
    def above(self) -> tuple[LongArray, IntArray, IntArray]:
        """The ancestors of each end as outputs: pointers, outputs, and the level that each counts at."""
        h, paths = self.hierarchy, self.paths
        inside = np.repeat(~h.is_leaf[self.ends], np.diff(paths.indptr))
        keep = inside | (paths.indices != np.repeat(self.ends, np.diff(paths.indptr)))
        ptr = np.concatenate([[0], np.cumsum(keep)])[paths.indptr]
        nodes = paths.indices[keep]
        levels = np.minimum(h.depth[nodes], LEVELS).astype(np.int32)
        return ptr.astype(np.int64), np.searchsorted(self.nodes, nodes).astype(np.int32), levels

    def places_of(self, fewer: "Outputs") -> LongArray:
        """Find where the outputs of fewer nodes and ends stand among these."""
        inside, known = (each.ends[~each.hierarchy.is_leaf[each.ends]] for each in (self, fewer))
        nodes = np.searchsorted(self.nodes, fewer.nodes)
        return np.concatenate([nodes, len(self.nodes) + np.searchsorted(inside, known)])

    def targets(self, train: Training) -> sparse.csc_array:
        """Mark which documents are positive for each output."""
        closed = sparse.csc_array(train.closed)[:, self.nodes]
        inside = self.ends[~self.hierarchy.is_leaf[self.ends]]
        if not len(inside):
            return closed
        ends = sparse.csc_array(self.hierarchy.most_specific(train.labels))[:, inside]
        return sparse.csc_array(sparse.hstack([closed, ends]))


@dataclass(frozen=True)
class Step:
    """One step of a path: its label and probability, and the n-grams that speak for it and against it."""

    label: str
    p: float
    speaks_for: list[tuple[str, float]]
    speaks_against: list[tuple[str, float]]


class Linear(Model):
    """tf-idf and one squared-hinge output for every node, turned into probabilities on documents held out of training.

    Where documents have one path, the probability of an end is a softmax of v_0 x its output + the sum over its
    ancestors of v_depth x theirs, and with a small learned share a level's siblings get the same; a node has the sum of
    its ends. Where they have several paths, a node's is a rising function of its output, made coherent. Features are
    runs of up to `words` words and, if asked for, `pieces` of words such as (3, 5): better on short texts, at several
    times the cost. Training costs about documents x n-grams a document x labels / 16 for each of some ten passes;
    weights below `prune` are dropped.
    """

    name = "linear"

    def __init__(
        self,
        hierarchy: Hierarchy | None = None,
        words: int = 1,
        pieces: tuple[int, int] | None = None,
        min_df: int = 1,
        bits: int = 22,
        cost: float = 3.0,
        prune: float = 0.01,
        held_out: float = 0.2,
        most_passes: int = 10,
        seed: int = 0,
    ) -> None:
        self.hierarchy = hierarchy
        self.words = words
        self.pieces = pieces
        self.min_df = min_df
        self.bits = bits
        self.cost = cost
        self.prune = prune
        self.held_out = held_out
        self.most_passes = most_passes
        self.seed = seed

    # Learning

    def _fit(self, train: Training) -> None:
        shape = NgramShape(self.words, self.pieces, self.bits)
        self.tfidf_, features = Tfidf.fit_transform(train.texts, shape, self.min_df)
        part, rest = self._parts(len(train))
        self.outputs_ = outputs_of(train)
        margins, self.weights_, self.bias_ = self._train(features, self.outputs_.targets(train), part, rest, train)
        # What calibration sees must be what the part alone could know: other labels are as good as unknown to it.
        known = outputs_of(train[part])
        seen, held = margins[:, self.outputs_.places_of(known)], train[rest]
        if self.regime_ == "many":
            self.maps_ = calibrate_nodes(known, seen, held)
        else:
            self.ends_, self.shares_ = calibrate_path(known, seen, held)

    def _parts(self, documents: int) -> tuple[LongArray, LongArray]:
        """Divide documents at random: what margins are learned from, and what they are calibrated on."""
        order = np.random.default_rng(self.seed).permutation(documents)
        held = min(max(1, int(self.held_out * documents)), 10_000) if documents > 1 else 0
        part = np.sort(order[held:])
        # A single document is all there is for both.
        return part, np.sort(order[:held]) if held else part

    def _train(
        self, features: sparse.csr_array, targets: sparse.csc_array, part: LongArray, rest: LongArray, train: Training
    ) -> tuple[FloatArray, sparse.csr_array, FloatArray]:
        """Learn all outputs: those of the rest as learned from the part, and weights and bias as learned from all."""
        count = targets.shape[1]
        blocks = -(-count // BLOCK)
        margins = np.empty((len(rest), blocks * BLOCK), np.float32)
        learned: dict[int, tuple[sparse.csr_array, FloatArray]] = {}

        def take(first: int, found: FloatArray, weights: FloatArray, bias: FloatArray) -> None:
            margins[:, first : first + BLOCK] = found
            weights[np.abs(weights) < self.prune] = 0
            learned[first] = sparse.csr_array(weights), bias

        how = Descent(self.cost, most_passes=self.most_passes, seed=self.seed)
        stop = Stop(lambda: time.monotonic() > train.deadline)
        with progress_bar("learning", blocks, train.progress) as done:
            train_hinge(features, targets, part, rest, how, take, stop, done)
        listed = [learned[first] for first in sorted(learned)]
        joined = sparse.csr_array(sparse.hstack([weights for weights, _ in listed], format="csr"))
        return margins[:, :count], joined[:, :count], np.concatenate([bias for _, bias in listed])[:count]

    # Scoring

    def _score(self, texts: Strings) -> Scores:
        h = self.hierarchy_
        features = self.tfidf_.transform(texts)
        step = max(1, DENSE_BLOCK // max(1, len(h), self.outputs_.count))
        parts = [
            self._probabilities(margins_of(features[low : low + step], self.weights_, self.bias_))
            for low in range(0, max(1, len(texts)), step)
        ]
        joined = sparse.vstack(parts, "csr") if sparse.issparse(parts[0]) else np.concatenate(parts)
        return Scores(h, joined)

    def _probabilities(self, margins: FloatArray) -> Any:
        h, outputs = self.hierarchy_, self.outputs_
        if self.regime_ == "many":
            values = np.zeros((len(margins), len(h)), np.float32)
            levels = np.minimum(h.depth[outputs.nodes], LEVELS)
            for level in np.unique(levels):
                at = np.flatnonzero(levels == level)
                values[:, outputs.nodes[at]] = monotone(margins[:, at], self.maps_[level])
            return Scores(h, values).coherent().values
        ends = end_probabilities(outputs, margins, self.ends_)
        if len(h) > MANY_NODES:
            return sparse_sums(outputs, ends)
        return node_probabilities(outputs, ends, self.shares_)

    # Explaining

    def explain(self, text: str, node: int | None = None, most: int = 8) -> list[Step]:
        """Say which n-grams of a text speak for and against each step of its best leaf's path (or a node's).

        A contribution is the n-gram's weight in the text times its weight for the label.
        """
        h = self.hierarchy_
        scores = self._score(Strings.of([text]))
        if node is None:
            best = decide(scores, "best_leaf").csr.indices
        else:
            best = h.closure(label_matrix([0, 1], [node], len(h))).indices
        row = self.tfidf_.transform([text])
        values = dict(zip(row.indices.tolist(), row.data.tolist(), strict=True))
        places = {
            name: int(self.tfidf_.column[bucket]) for name, bucket in named_ngrams(text, self.tfidf_.shape).items()
        }
        named = {name: place for name, place in places.items() if place >= 0}
        dense = scores.dense()[0]
        steps = []
        for each in best.tolist():
            output = int(np.searchsorted(self.outputs_.nodes, each))
            known = output < len(self.outputs_.nodes) and self.outputs_.nodes[output] == each
            weights = (
                {name: values[place] * float(self.weights_[place, output]) for name, place in named.items()}
                if known
                else {}
            )
            ranked = sorted(((value, name) for name, value in weights.items() if value), reverse=True)
            speaks = [(name, value) for value, name in ranked[:most] if value > 0]
            against = [(name, value) for value, name in reversed(ranked[-most:]) if value < 0]
            steps.append(Step(h.names[each], float(dense[each]), speaks, against))
        return steps

    # Saving

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        shape = self.tfidf_.shape
        values = {"words": shape.words, "pieces": shape.pieces, "bits": shape.bits}
        arrays = {
            **self.tfidf_.arrays(),
            "weights_data": self.weights_.data,
            "weights_indices": self.weights_.indices,
            "weights_indptr": self.weights_.indptr,
            "bias": self.bias_,
            "nodes": self.outputs_.nodes,
            "ends": self.outputs_.ends,
        }
        learned = (
            {"maps": self.maps_} if self.regime_ == "many" else {"end_weights": self.ends_, "shares": self.shares_}
        )
        return values, {**arrays, **learned}

    def _restore(self, values: dict[str, Any], arrays: Arrays) -> None:
        pieces = None if values["pieces"] is None else (int(values["pieces"][0]), int(values["pieces"][1]))
        shape = NgramShape(int(values["words"]), pieces, int(values["bits"]))
        self.tfidf_ = Tfidf(shape, arrays["buckets"], arrays["idf"])
        self.outputs_ = Outputs(self.hierarchy_, arrays["nodes"], arrays["ends"])
        parts = arrays["weights_data"], arrays["weights_indices"], arrays["weights_indptr"]
        self.weights_ = sparse.csr_array(parts, (self.tfidf_.width, self.outputs_.count))
        self.weights_.check_format(full_check=True)
        self.bias_ = arrays["bias"]
        if self.regime_ == "many":
            self.maps_ = arrays["maps"]
        else:
            self.ends_, self.shares_ = arrays["end_weights"], arrays["shares"]


def outputs_of(train: Training) -> Outputs:
    """Find the nodes and the ends that training has seen."""
    h = train.hierarchy
    nodes = np.unique(train.closed.indices).astype(np.int32)
    ends = np.unique(h.most_specific(train.labels).indices).astype(np.int32)
    if train.regime == "many":
        ends = ends[h.is_leaf[ends]]
    return Outputs(h, nodes, ends)


def margins_of(features: sparse.csr_array, weights: sparse.csr_array, bias: FloatArray) -> FloatArray:
    """Multiply documents with weights: documents x outputs."""
    parts = over_rows(
        lambda start, stop: kernels.products(
            features.indptr,
            features.indices,
            features.data,
            weights.indptr,
            weights.indices,
            weights.data,
            bias,
            start,
            stop,
        ),
        features.shape[0],
        least=64,
    )
    return np.concatenate(parts)


def end_probabilities(outputs: Outputs, margins: FloatArray, numbers: DoubleArray) -> FloatArray:
    """Softmax over the ends of v_0 x own output + sum over ancestors of v_level x theirs: documents x ends.

    The last three numbers are the slopes of a steep and a flat softmax, and the share of the flat one.
    """
    own, (ptr, above, levels) = outputs.of_ends, outputs.above
    weights = numbers[levels].astype(np.float32)
    own_weight, steep, flat, share = (float(numbers[which]) for which in (0, -3, -2, -1))
    parts = over_rows(
        lambda start, stop: kernels.path_softmax(
            margins, own, own_weight, ptr, above, weights, steep, flat, share, start, stop
        ),
        len(margins),
        least=64,
    )
    return np.concatenate(parts)


def node_probabilities(outputs: Outputs, ends: FloatArray, shares: DoubleArray) -> FloatArray:
    """Sum ends to nodes, and let each level's siblings share alike with a small probability (trees only)."""
    h = outputs.hierarchy
    paths = outputs.paths
    parent = h.parent_idx if h.is_tree else np.zeros(0, np.int32)
    sizes = np.bincount(parent + 1, minlength=len(h) + 1).astype(np.int32) if h.is_tree else np.zeros(1, np.int32)
    by_node = shares[np.minimum(h.depth, LEVELS)] if h.is_tree else np.zeros(len(h))
    parts = over_rows(
        lambda start, stop: kernels.sum_to_nodes(
            ends, paths.indptr, paths.indices, parent, sizes, by_node, len(h), start, stop
        ),
        len(ends),
        least=64,
    )
    return np.concatenate(parts)


def sparse_sums(outputs: Outputs, ends: FloatArray) -> sparse.csr_array:
    """Sum the likeliest ends to nodes, as CSR."""
    flat = Scores(Hierarchy.flat([str(end) for end in range(len(outputs.ends))]), ends).top_k(KEPT_ENDS).values
    paths = outputs.paths
    return sparse.csr_array(flat.astype(np.float64) @ paths.astype(np.float64), dtype=np.float32)


# Calibration


def calibrate_path(outputs: Outputs, margins: FloatArray, held: Training) -> tuple[DoubleArray, DoubleArray]:
    """Learn the numbers of the softmax over ends, and the share that siblings of each level get alike."""
    h = outputs.hierarchy
    true = h.most_specific(held.labels)
    row = np.repeat(np.arange(len(held)), np.diff(true.indptr))
    place = np.minimum(np.searchsorted(outputs.ends, true.indices), len(outputs.ends) - 1)
    known = outputs.ends[place] == true.indices
    numbers = np.zeros(LEVELS + 4)
    numbers[[0, -3, -2]] = 5.0, 1.0, 1.0
    if known.any():
        _fit_ends(numbers, level_parts(outputs, margins[row[known]]), place[known])
    shares = np.zeros(LEVELS + 1)
    if h.is_tree:
        ends = end_probabilities(outputs, margins, numbers)
        p = node_probabilities(outputs, ends, shares)
        shares = sibling_shares(h, p, held.closed)
    return numbers, shares


def _fit_ends(numbers: DoubleArray, parts: list[FloatArray], true: LongArray) -> None:
    """Learn the softmax over ends: the weights of the levels, and the slopes and share of its two parts.

    Of each document only the likeliest ends are looked at; the others hardly count.
    """
    rough = 5 * parts[0] + np.sum(parts[1:], axis=0)
    rough[np.arange(len(true)), true] = np.inf
    few = min(CANDIDATES, rough.shape[1])
    kept = np.argpartition(-rough, few - 1, axis=1)[:, :few]
    kept.sort(axis=1)
    place = (kept == true[:, None]).argmax(axis=1)
    near = [np.take_along_axis(part, kept, axis=1) for part in parts]
    used = [0, *(level for level in range(1, LEVELS + 1) if parts[level].any())]
    numbers[used] = fit_softmax([near[level] for level in used], place)
    logits = np.sum([numbers[level] * near[level].astype(np.float64) for level in used], axis=0)
    numbers[-3:] = fit_flatter(logits, place)


def level_parts(outputs: Outputs, margins: FloatArray) -> list[FloatArray]:
    """The parts of an end's logit: its own output, and for each level that of its ancestor there (0: it has none)."""
    ptr, above, levels = outputs.above
    parts = [margins[:, outputs.of_ends]]
    end = np.repeat(np.arange(len(outputs.ends)), np.diff(ptr))
    for level in range(1, LEVELS + 1):
        at = levels == level
        mapping = sparse.csr_array(
            (np.ones(int(at.sum()), np.float32), (above[at], end[at])), (margins.shape[1], len(outputs.ends))
        )
        parts.append(np.asarray((mapping.T @ margins.T).T, np.float32))
    return parts


def sibling_shares(h: Hierarchy, p: FloatArray, truth: LabelMatrix) -> DoubleArray:
    """Learn, for each level, how much probability the siblings of a node share alike, whatever their outputs."""
    row, nodes = np.repeat(np.arange(truth.shape[0]), np.diff(truth.indptr)), truth.indices
    parent = h.parent[nodes]
    above = np.where(parent >= 0, p[row, parent], 1.0)
    sizes = np.bincount(h.parent + 1, minlength=len(h) + 1)[parent + 1]
    alike = 1.0 / sizes
    given = np.where(above > 0, p[row, nodes] / np.maximum(above, 1e-30), alike)
    levels = np.minimum(h.depth[nodes], LEVELS)
    shares = np.zeros(LEVELS + 1)
    for level in range(1, LEVELS + 1):
        at = (levels == level) & (sizes > 1)
        shares[level] = fit_share(given[at], alike[at])
    return shares


def calibrate_nodes(outputs: Outputs, margins: FloatArray, held: Training) -> DoubleArray:
    """Learn, for each level, the map from outputs to probabilities."""
    h = outputs.hierarchy
    true = sparse.csc_array(held.closed)[:, outputs.nodes].toarray()
    levels = np.minimum(h.depth[outputs.nodes], LEVELS)
    # Where nothing is known of a level, its outputs are never taken for true.
    maps = np.tile(np.concatenate([[-1.0, 1.0], np.zeros(STEPS + 1)]), (LEVELS + 1, 1))
    for level in range(1, LEVELS + 1):
        at = np.flatnonzero(levels == level)
        if len(at):
            maps[level] = fit_monotone(margins[:, at].ravel(), true[:, at].ravel())
    return maps
