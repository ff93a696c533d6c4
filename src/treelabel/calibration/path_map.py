"""Documents with one path: a softmax over the ends of paths, summed up to nodes."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from treelabel.calibration import path_kernels as kernels
from treelabel.calibration.fitting import fit_flatter, fit_share, fit_softmax
from treelabel.calibration.outputs import LEVELS, Outputs
from treelabel.core.compute import BoolArray, DoubleArray, FloatArray, LongArray, over_rows
from treelabel.core.errors import TreelabelError
from treelabel.hierarchy import Hierarchy, LabelMatrix
from treelabel.models.base import Training
from treelabel.models.linear.descent import ABSENT
from treelabel.models.linear.weights import Weights, documents_of
from treelabel.models.schema import Array, Arrays

# From this many nodes on, only the scores of the likeliest ends are kept.
MANY_NODES = 20_000
KEPT_ENDS = 100
AT_ONCE = 1 << 20
# Ends of a document that are looked at in calibration: the likeliest, and some of the others.
LIKELIEST = 16
OTHERS = 16
# Numbers that are learned stay far below.
MOST_SLOPE = 1e6


@dataclass(frozen=True, eq=False)
class PathMap:
    """Numbers of P(end) = softmax of v_0 x its own output + the sum of v_level x those above it, and of shares.

    The last three numbers are the slopes of a steep and a flat softmax, and the share of the flat one. With `shares`,
    one a level, siblings share alike.
    """

    outputs: Outputs
    numbers: DoubleArray
    shares: DoubleArray

    @classmethod
    def fit(cls, outputs: Outputs, margins: FloatArray, held: Training) -> "PathMap":
        """Learn the numbers from documents held out of training."""
        h = outputs.hierarchy
        rows, true = possible_ends(outputs, margins, held)
        numbers = np.zeros(LEVELS + 4)
        numbers[[0, -3, -2]] = 5.0, 1.0, 1.0
        if len(rows):
            _fit_ends(numbers, outputs, margins[rows], true)
        plain = cls(outputs, numbers, np.zeros(LEVELS + 1))
        if not h.is_tree or len(h) > MANY_NODES:
            return plain
        return cls(outputs, numbers, sibling_shares(h, plain.probabilities(margins), held.closed))

    def times(self, factor: float) -> "PathMap":
        """The same for outputs that are larger: all of them count `factor` times as much."""
        numbers = self.numbers.copy()
        numbers[: LEVELS + 1] *= factor
        return PathMap(self.outputs, numbers, self.shares)

    def arrays(self) -> Arrays:
        """What is learned, to save."""
        return {"end_weights": self.numbers, "shares": self.shares}

    @staticmethod
    def declared() -> dict[str, Array]:
        """Declare what `arrays` gives."""
        numbers = Array("float64", (str(LEVELS + 4),), -MOST_SLOPE, MOST_SLOPE)
        return {"end_weights": numbers, "shares": Array("float64", (str(LEVELS + 1),), 0, 1)}

    @staticmethod
    def check(outputs: Outputs, arrays: Arrays) -> None:
        """Refuse arrays whose numbers are no slopes and shares, and outputs without an end."""
        steep, flat, share = arrays["end_weights"][-3:]
        if min(steep, flat) < 0 or not 0 <= share <= 1:
            raise TreelabelError(f"end_weights ends in {steep:g}, {flat:g}, {share:g}; expected two slopes and a share")
        if not len(outputs.ends):
            raise TreelabelError("ends is empty, but every path ends somewhere")

    @classmethod
    def of(cls, outputs: Outputs, arrays: Arrays) -> "PathMap":
        """Take back what `arrays` gave."""
        return cls(outputs, arrays["end_weights"], arrays["shares"])

    def probabilities(self, margins: FloatArray) -> Any:
        """Turn outputs into the probabilities of all nodes; from 20,000 on, those of the likeliest ends, as CSR."""
        none = np.zeros(0, np.int32)
        known = kernels.Documents(none, none, np.zeros(0, np.float32), margins)
        dot = kernels.Dot(np.zeros((0, 0), np.float32), none, none, np.zeros(0, np.float32), np.zeros(0, np.float32))
        return self._scored(known, dot._replace(bias=np.zeros(margins.shape[1], np.float32)), len(margins))

    def scored(self, features: sparse.csr_array, weights: Weights) -> Any:
        """The same from features, at once."""
        return self._scored(documents_of(features), weights.dot, features.shape[0])

    def _scored(self, documents: kernels.Documents, dot: kernels.Dot, count: int) -> Any:
        h = self.outputs.hierarchy
        if len(h) > MANY_NODES:
            return self._likeliest(documents, dot, count)
        found = np.empty((count, len(h)), np.float32)
        over_rows(
            lambda start, stop: kernels.score_paths(documents, dot, self._softmax, self._sums, start, stop, found),
            count,
            least=64,
        )
        return found

    def _likeliest(self, documents: kernels.Documents, dot: kernels.Dot, count: int) -> sparse.csr_array:
        ends, paths = len(self.outputs.ends), self.outputs.paths.astype(np.float64)
        # Ends alone, a few documents at a time: all of them at once would fill the memory.
        plain = self._sums._replace(ends=np.zeros(0, np.int32))

        def some(start: int, stop: int) -> sparse.csr_array:
            found = np.empty((stop - start, ends), np.float32)
            part = documents._replace(ptr=documents.ptr[start:], margins=documents.margins[start:])
            kernels.score_paths(part, dot, self._softmax, plain, 0, stop - start, found)
            return sparse.csr_array(likeliest(found) @ paths, dtype=np.float32)

        parts = over_rows(some, count, least=8, most=max(16, AT_ONCE // ends))
        return sparse.vstack(parts, format="csr")

    @cached_property
    def _softmax(self) -> kernels.Softmax:
        chain, last, above = self._ancestors
        weight, steep, flat, share = (float(self.numbers[which]) for which in (0, -3, -2, -1))
        own = self.outputs.of_ends.astype(np.uint32)
        return kernels.Softmax(own, weight, chain, last, above, steep, flat, share)

    @cached_property
    def _sums(self) -> kernels.Sums:
        return sums_of(self.outputs, self.shares)

    @cached_property
    def _ancestors(self) -> tuple[Any, kernels.IndexArray, Any]:
        """What stands above ends, in the two forms that the kernel takes."""
        outputs, h = self.outputs, self.outputs.hierarchy
        ptr, above, levels = outputs.above
        numbers, none = self.numbers.astype(np.float32), np.zeros(0, np.uint32)
        if not h.is_tree or not len(above):
            nothing = none, none, np.zeros(0, np.float32)
            return nothing, np.zeros(len(outputs.ends), np.uint32), (ptr, above.astype(np.uint32), numbers[levels])
        inner = outputs.nodes[~h.is_leaf[outputs.nodes]]
        place = np.zeros(1 + len(h), np.uint32)
        place[inner] = np.arange(1, 1 + len(inner))
        of_inner = outputs.of_nodes[np.searchsorted(outputs.nodes, inner)]
        # A node without an output says nothing, but hands on what its ancestors say.
        weights = np.where(of_inner >= 0, numbers[outputs.levels(inner)], np.float32(0))
        chain = place[h.parent[inner]], np.maximum(of_inner, 0).astype(np.uint32), weights
        own_too = np.zeros(len(outputs.ends), np.bool_)
        own_too[outputs.inside] = True
        last = place[np.where(own_too, outputs.ends, h.parent[outputs.ends])]
        return chain, last, (np.zeros(len(outputs.ends) + 1, np.int64), none, np.zeros(0, np.float32))


def sums_of(outputs: Outputs, shares: DoubleArray) -> kernels.Sums:
    """Say how ends sum to nodes, and what the children of the root and of every node of a tree share alike."""
    h, none, paths = outputs.hierarchy, np.zeros(0, np.int32), outputs.paths
    if not h.is_tree:
        nothing = np.zeros(0, np.float32)
        return kernels.Sums(outputs.ends, none, nothing, nothing, paths.indptr, paths.indices)
    sizes = np.bincount(h.parent + 1, minlength=len(h) + 1)
    depth = np.minimum(np.concatenate([[0], h.depth]) + 1, LEVELS)
    alike = np.where(sizes > 0, 1 / np.maximum(sizes, 1), 0).astype(np.float32)
    return kernels.Sums(outputs.ends, h.parent, shares[depth].astype(np.float32), alike, none, none)


def possible_ends(outputs: Outputs, margins: FloatArray, held: Training) -> tuple[LongArray, BoolArray]:
    """Mark the ends that documents may have by what was learned without them: rows, and documents x ends.

    Of an end that was learned, that is itself; otherwise all ends below the lowest ancestor that has one. Leaving such
    documents out would make all others look easier than documents are.
    """
    h = outputs.hierarchy
    there = np.asarray((margins[:, outputs.of_ends] > ABSENT).any(axis=0))
    closed, paths = sparse.csr_array(held.closed), outputs.paths
    reached = np.zeros(len(h), np.bool_)
    reached[paths[np.flatnonzero(there)].indices] = True
    row = np.repeat(np.arange(len(held)), np.diff(closed.indptr))
    # The lowest node that is reached: of one path, the one with the highest number.
    lowest = np.full(len(held), -1)
    np.maximum.at(lowest, row, np.where(reached[closed.indices], closed.indices, -1))
    rows = np.flatnonzero(lowest >= 0)
    below = sparse.csr_array(sparse.csc_array(paths)[:, lowest[rows]].T).toarray().astype(np.bool_)
    true = h.most_specific(held.labels)
    ends = true.indices[true.indptr[rows]]
    place = np.minimum(np.searchsorted(outputs.ends, ends), len(outputs.ends) - 1)
    known = np.flatnonzero((outputs.ends[place] == ends) & there[place])
    below[known] = False
    below[known, place[known]] = True
    return rows, below & there


def likeliest(ends: FloatArray) -> sparse.csr_array:
    """Keep the likeliest ends of each document."""
    few = min(KEPT_ENDS, ends.shape[1])
    kept = np.sort(np.argpartition(-ends, few - 1, axis=1)[:, :few], axis=1)
    values = np.take_along_axis(ends, kept, axis=1).astype(np.float64)
    return sparse.csr_array((values.ravel(), kept.ravel(), np.arange(0, kept.size + 1, few)), ends.shape)


def _fit_ends(numbers: DoubleArray, outputs: Outputs, margins: FloatArray, true: BoolArray) -> None:
    """Learn the softmax over ends: the weights of the levels, and the slopes and share of its two parts.

    Of each document only the likeliest ends are looked at, and some of the others, which stand for all of them.
    """
    kept, stands_for = _candidates(outputs, margins, true)
    hit = np.take_along_axis(true, kept, axis=1)
    ptr, above, levels = outputs.above
    near = kernels.level_parts(margins, kept, outputs.of_ends, ptr, above, levels, LEVELS + 1)
    used = [0, *(level for level in range(1, LEVELS + 1) if near[:, :, level].any())]
    numbers[used] = fit_softmax(np.ascontiguousarray(near[:, :, used]), hit, stands_for)
    logits = near[:, :, used].astype(np.float64) @ numbers[used]
    numbers[-3:] = fit_flatter(logits, hit, stands_for)


def _candidates(outputs: Outputs, margins: FloatArray, true: BoolArray) -> tuple[LongArray, DoubleArray]:
    """Choose ends of each document, a true one among them: documents x ends; and ln of how many each stands for."""
    ptr, above, _ = outputs.above
    ends = len(outputs.ends)
    row = np.concatenate([outputs.of_ends, above])
    column = np.concatenate([np.arange(ends), np.repeat(np.arange(ends), np.diff(ptr))])
    counts = np.concatenate([np.full(ends, 5, np.float32), np.ones(len(above), np.float32)])
    together = sparse.csr_array((counts, (column, row)), (ends, margins.shape[1]))
    rough = -np.asarray(together @ margins.T).T
    best = np.where(true, rough, np.inf).argmin(axis=1)
    rough[np.arange(len(true)), best] = -np.inf
    few, more = min(LIKELIEST, ends), min(OTHERS, max(0, ends - LIKELIEST))
    order = np.argpartition(rough, few - 1, axis=1)
    # Those beyond the likeliest are in no order that matters, so any of them will do.
    every = max(1, (ends - few) // max(1, more))
    kept = np.concatenate([order[:, :few], order[:, few::every][:, :more]], axis=1)
    return kept, np.concatenate([np.zeros(few), np.full(more, np.log(max(1, ends - few) / max(1, more)))])


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
