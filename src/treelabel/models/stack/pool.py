"""Pools of models: weights of what several models say of a document, learned where they have not seen it.

Logarithms of probabilities are added up, each model's times its weight (a log-linear pool; Genest and Zidek 1986). What
a model says is counted from the least probability that counts, so that what is not stored is 0 here too, and sparse
scores stay sparse.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from treelabel.calibration.fitting import fit_flatter, softmax_loss
from treelabel.calibration.outputs import LEVELS
from treelabel.calibration.path_map import MOST_SLOPE
from treelabel.core.compute import BoolArray, DoubleArray, FloatArray, IntArray, LongArray, over_rows
from treelabel.core.errors import TreelabelError
from treelabel.hierarchy import Hierarchy, label_matrix
from treelabel.models.base import Training
from treelabel.models.schema import Array, Arrays, Schema, indices
from treelabel.scores import Scores

# No probability counts as less.
LEAST = 1e-6
# Ends of a document that are looked at one by one when weights are learned; one more stands for all others.
LIKELIEST = 64
# Equal weights count as much as so many documents.
BELIEF = 1.0
MOST_WEIGHT = 10.0

Loss = Callable[[DoubleArray], tuple[float, DoubleArray]]


@dataclass(frozen=True, eq=False)
class PathPool:
    """Documents with one path: P(end) is a softmax over ends of the sum of weight x ln P_model(end).

    The softmax is mixed of a steep and a flat one (`slopes`: both slopes, and the share of the flat one), which keeps
    probabilities honest; a node has the sum of the ends at and below it.
    """

    hierarchy: Hierarchy
    ends: IntArray
    weights: DoubleArray
    slopes: DoubleArray

    @classmethod
    def equal(cls, train: Training, count: int) -> "PathPool":
        """Count all models alike. Ends are all leaves, and inner nodes at which paths of training end."""
        h = train.hierarchy
        ends = np.union1d(h.leaves, h.most_specific(train.labels).indices).astype(np.int32)
        return cls(h, ends, np.full(count, 1 / count), np.array([1.0, 1.0, 0.0]))

    def fit(self, given: Sequence[Any], held: Training) -> "PathPool":
        """Learn the weights from what models say of documents that they have not learned from."""
        true = self.hierarchy.most_specific(held.labels)
        rows = np.flatnonzero(np.diff(true.indptr) == 1)
        rows = rows[np.isin(true.indices[true.indptr[rows]], self.ends)]
        if not len(rows):
            return self
        place = np.searchsorted(self.ends, true.indices[true.indptr[rows]])
        near, offsets = candidates([self._evidence(values[rows]) for values in given], place)
        hit = np.zeros(near.shape[:2], np.bool_)
        hit[:, 0] = True
        weights = fit_softmax_pool(near, hit, offsets)
        slopes = fit_flatter(near.astype(np.float64) @ weights, hit, offsets)
        return replace(self, weights=weights, slopes=np.array(slopes))

    def probabilities(self, given: Sequence[Any]) -> Any:
        """The probabilities of all nodes, documents x nodes; CSR where a model gives CSR."""
        evidence = [self._evidence(values) for values in given]
        if not any(sparse.issparse(values) for values in evidence):
            logits = sum(weight * values for weight, values in zip(self.weights, evidence, strict=True))
            # The product with a sparse matrix on the right is slow; transposed it streams.
            return np.minimum((self._paths.T @ self._mixed(logits, 0).T).T, 1).astype(np.float32)
        found = sparse.csr_array(evidence[0].shape, dtype=np.float64)
        for weight, values in zip(self.weights, evidence, strict=True):
            found = sparse.csr_array(found + weight * sparse.csr_array(values))
        for start, stop in zip(found.indptr[:-1], found.indptr[1:], strict=True):
            missing = len(self.ends) - (stop - start)
            found.data[start:stop] = self._mixed(found.data[None, start:stop], missing)[0]
        summed = sparse.csr_array(found @ self._paths, dtype=np.float32)
        summed.data = np.minimum(summed.data, 1)
        return summed

    def arrays(self) -> Arrays:
        """What is learned, to save."""
        return {"ends": self.ends, "weights": self.weights, "slopes": self.slopes}

    @staticmethod
    def schema(hierarchy: Hierarchy, count: int) -> Schema:
        """Declare what `arrays` gives, of so many models."""
        arrays = {
            "ends": indices("ends", "nodes", rising=True),
            "weights": Array("float64", ("models",), 0, MOST_SLOPE),
            "slopes": Array("float64", ("3",), 0, MOST_SLOPE),
        }
        sizes = {"nodes": len(hierarchy), "models": count}
        return Schema(arrays, sizes=sizes, most={"ends": len(hierarchy)}, relations=(_check_path_pool,))

    @classmethod
    def of(cls, hierarchy: Hierarchy, arrays: Arrays) -> "PathPool":
        """Take back what `arrays` gave."""
        return cls(hierarchy, arrays["ends"], arrays["weights"], arrays["slopes"])

    def _mixed(self, logits: DoubleArray, missing: int) -> DoubleArray:
        """Mix the two softmaxes of rows of logits, beside which so many of 0 are not stored."""
        steep, flat, share = self.slopes
        found: DoubleArray = (1 - share) * softmax_beside(steep * logits, missing)
        found += share * softmax_beside(flat * logits, missing)
        return found

    def _evidence(self, values: Any) -> Any:
        """ln(P(end) / LEAST), not below 0: documents x ends, of the same kind as the scores."""
        own = values[:, self.ends]
        if self._below.nnz:
            own = own - values @ self._below if sparse.issparse(values) else own - (self._below.T @ values.T).T
        if not sparse.issparse(own):
            return np.log(np.maximum(own, LEAST) / LEAST).astype(np.float32)
        found = sparse.csr_array(own, dtype=np.float64)
        found.data = np.log(np.maximum(found.data, LEAST) / LEAST)
        found.eliminate_zeros()
        return found

    @cached_property
    def _paths(self) -> sparse.csr_array:
        """The nodes on the way to each end: ends x nodes."""
        h = self.hierarchy
        own = label_matrix(np.arange(len(self.ends) + 1), self.ends, len(h))
        return sparse.csr_array(h.closure(own), dtype=np.float64)

    @cached_property
    def _below(self) -> sparse.csr_array:
        """The children of each end, nodes x ends: what goes on below it does not end there."""
        h = self.hierarchy
        known = (h.parent_idx >= 0) & np.isin(h.parent_idx, self.ends)
        child, end = h.edge_child[known], np.searchsorted(self.ends, h.parent_idx[known])
        return sparse.csr_array((np.ones(len(child), np.float32), (child, end)), (len(h), len(self.ends)))


@dataclass(frozen=True, eq=False)
class NodePool:
    """Documents with several paths: logit P(n) = b + the sum of weight x logit P_model(n), made coherent.

    `numbers` are b and the weights of every level. What no model takes for possible stays at 0.
    """

    hierarchy: Hierarchy
    numbers: DoubleArray

    @classmethod
    def equal(cls, train: Training, count: int) -> "NodePool":
        """Count all models alike."""
        return cls(train.hierarchy, np.tile(_alike(count), (LEVELS + 1, 1)))

    @property
    def weights(self) -> DoubleArray:
        """The weights of the models: levels x models."""
        return self.numbers[:, 1:]

    def fit(self, given: Sequence[Any], held: Training) -> "NodePool":
        """Learn the numbers from what models say of documents that they have not learned from."""
        parts, row, node = self._possible(given)
        closed = held.closed
        where = np.repeat(np.arange(len(held)), np.diff(closed.indptr)) * len(self.hierarchy) + closed.indices
        true = np.isin(row * len(self.hierarchy) + node, where)
        levels = np.minimum(self.hierarchy.depth[node], LEVELS)
        numbers = self.numbers.copy()
        for level in np.unique(levels):
            at = levels == level
            numbers[level] = fit_sigmoid_pool(parts[at], true[at])
        return replace(self, numbers=numbers)

    def probabilities(self, given: Sequence[Any]) -> Any:
        """The probabilities of all nodes, documents x nodes; CSR where a model gives CSR."""
        from scipy.special import expit

        parts, row, node = self._possible(given)
        numbers = self.numbers[np.minimum(self.hierarchy.depth[node], LEVELS)]
        p = expit(numbers[:, 0] + (numbers[:, 1:] * parts).sum(axis=1))
        shape = given[0].shape
        found = sparse.csr_array((p.astype(np.float32), (row, node)), shape)
        dense = not any(sparse.issparse(values) for values in given)
        return Scores(self.hierarchy, found.toarray() if dense else found).coherent().values

    def arrays(self) -> Arrays:
        """What is learned, to save."""
        return {"numbers": self.numbers}

    @staticmethod
    def schema(hierarchy: Hierarchy, count: int) -> Schema:
        """Declare what `arrays` gives, of so many models."""
        numbers = Array("float64", (str(LEVELS + 1), "models + 1"), -MOST_SLOPE, MOST_SLOPE)
        return Schema({"numbers": numbers}, sizes={"models": count})

    @classmethod
    def of(cls, hierarchy: Hierarchy, arrays: Arrays) -> "NodePool":
        """Take back what `arrays` gave."""
        return cls(hierarchy, arrays["numbers"])

    def _possible(self, given: Sequence[Any]) -> tuple[DoubleArray, LongArray, LongArray]:
        """The logits of what some model takes for possible, one row each; its document and its node."""
        most = sparse.csr_array(given[0])
        for values in given[1:]:
            most = sparse.csr_array(most.maximum(sparse.csr_array(values)))
        most.data = np.where(most.data > LEAST, most.data, 0)
        most.eliminate_zeros()
        row = np.repeat(np.arange(most.shape[0]), np.diff(most.indptr))
        node = most.indices.astype(np.int64)
        p = [np.asarray(values[row, node], np.float64).ravel() for values in given]
        inside = np.clip(np.stack(p, axis=1).reshape(len(row), len(given)), LEAST, 1 - LEAST)
        return np.log(inside / (1 - inside)), row, node


Pool = PathPool | NodePool


def _check_path_pool(arrays: Arrays) -> None:
    """Refuse a pool without ends, and a share that is none."""
    if not len(arrays["ends"]) or arrays["slopes"][2] > 1:
        raise TreelabelError("ends is empty, or slopes does not end in a share")


def pool_of(regime: str) -> type[Pool]:
    """The kind of pool for labels of a kind: see `regime_of`."""
    return NodePool if regime == "many" else PathPool


def softmax_beside(logits: DoubleArray, missing: int) -> DoubleArray:
    """The softmax of each row, beside which stand so many logits of 0.

    >>> softmax_beside(np.zeros((1, 2)), 2).tolist()
    [[0.25, 0.25]]
    """
    largest = logits.max(axis=1, initial=0.0, keepdims=True)
    odds = np.exp(logits - largest)
    found: DoubleArray = odds / (odds.sum(axis=1, keepdims=True) + missing * np.exp(-largest))
    return found


def candidates(evidence: Sequence[Any], true: LongArray) -> tuple[FloatArray, DoubleArray]:
    """What models say of the true end of each document, of the likeliest others, and on average of the rest.

    Documents x ends x models, the true end first, and ln of how many ends each stands for.
    """
    documents, ends = evidence[0].shape
    few = min(LIKELIEST, ends - 1)
    rest = ends - 1 - few
    near = np.zeros((documents, 1 + few + (rest > 0), len(evidence)), np.float32)
    for row in range(documents):
        given = np.stack([dense_row(values, row) for values in evidence], axis=1)
        together = given.sum(axis=1)
        together[true[row]] = np.inf
        # Two borders: the true end comes first, then the likeliest in any order.
        order = np.argpartition(-together, [0, few])
        near[row, : 1 + few] = given[order[: 1 + few]]
        if rest:
            near[row, -1] = given[order[1 + few :]].mean(axis=0)
    return near, np.log(np.array([1.0] * (1 + few) + [float(rest)] * (rest > 0)))


def dense_row(values: Any, row: int) -> FloatArray:
    """One row of a matrix."""
    found: FloatArray = values[[row]].toarray()[0] if sparse.issparse(values) else values[row]
    return found


def fit_softmax_pool(near: FloatArray, hit: BoolArray, offsets: DoubleArray) -> DoubleArray:
    """Find weights, not below 0, with which a softmax over ends has the least log loss."""

    def loss(weights: DoubleArray) -> tuple[float, DoubleArray]:
        found = over_rows(lambda low, high: softmax_loss(near, hit, offsets, weights, low, high), len(hit), least=256)
        total = np.sum(found, axis=0)
        return float(total[0]), total[1:]

    return _least(loss, _alike(near.shape[2])[1:], len(hit))


def fit_sigmoid_pool(parts: DoubleArray, true: BoolArray) -> DoubleArray:
    """Find b and weights, these not below 0, with which sigmoid(b + weights x logits) has the least log loss."""
    from scipy.special import expit

    def loss(numbers: DoubleArray) -> tuple[float, DoubleArray]:
        z = numbers[0] + parts @ numbers[1:]
        error = expit(z) - true
        return float((np.logaddexp(0, z) - true * z).sum()), np.concatenate([[error.sum()], parts.T @ error])

    return _least(loss, _alike(parts.shape[1]), len(true), free=1)


def _alike(count: int) -> DoubleArray:
    """The numbers b and weights that count all models alike."""
    return np.array([0.0] + [1 / count] * count)


def _least(loss: Loss, first: DoubleArray, count: int, free: int = 0) -> DoubleArray:
    """Find the numbers with the least loss, which are drawn to the first; all but the `free` ones are not below 0."""
    from scipy.optimize import minimize

    def drawn(numbers: DoubleArray) -> tuple[float, DoubleArray]:
        value, slope = loss(numbers)
        away = numbers - first
        return (value + BELIEF * float(away @ away)) / count, (slope + 2 * BELIEF * away) / count

    bounds = [(-MOST_WEIGHT, MOST_WEIGHT)] * free + [(0.0, MOST_WEIGHT)] * (len(first) - free)
    found: DoubleArray = minimize(drawn, first, jac=True, method="L-BFGS-B", bounds=bounds).x
    return found
