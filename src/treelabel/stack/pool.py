"""Pools of models: weighted sums of their log probabilities, with weights learned on documents they have not seen.

This is a log-linear pool (Genest and Zidek 1986). Logarithms are counted from the least probability that matters, so
that what is not stored is 0 here too, and sparse scores stay sparse.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from treelabel.calibration.base import LARGEST_PARAMETER
from treelabel.calibration.fitting import fit_softmax_mixture
from treelabel.calibration.outputs import LEVELS
from treelabel.core.array_schema import Array, Arrays, Schema, indices
from treelabel.core.errors import TreelabelError
from treelabel.core.types import BoolArray, DoubleArray, IntArray, LongArray
from treelabel.hierarchy import Hierarchy, label_matrix, row_numbers
from treelabel.scores import Scores
from treelabel.selection.training import Training
from treelabel.stack.weights import candidates, equal_weights, fit_sigmoid_pool, fit_softmax_pool

# No probability counts as less.
LEAST = 1e-6


@dataclass(frozen=True, eq=False)
class PathPool:
    """Documents with one path: P(t) is a softmax over terminal nodes of the sum of weight x ln P_model(t).

    The softmax is a mixture of a sharp and a flat one, which keeps probabilities calibrated; a node has the sum of the
    terminal nodes at and below it.

    Parameters
    ----------
    hierarchy : Hierarchy
        The hierarchy.
    terminals : array of int32, increasing
        The terminal nodes.
    weights : array of shape (models,)
        The weights of models.
    mixture : array of shape (3,)
        The inverse temperatures of the sharp and of the flat softmax, and the weight of the flat one.
    """

    hierarchy: Hierarchy
    terminals: IntArray
    weights: DoubleArray
    mixture: DoubleArray

    @classmethod
    def equal(cls, train: Training, count: int) -> "PathPool":
        """Make a pool in which all models have the same weight.

        All leaves are terminal, and inner nodes at which paths of training end.

        Parameters
        ----------
        train
            Training documents.
        count
            The number of models.

        Returns
        -------
        PathPool
        """
        h = train.hierarchy
        terminals = np.union1d(h.leaves, h.most_specific(train.labels).indices).astype(np.int32)
        return cls(h, terminals, np.full(count, 1 / count), np.array([1.0, 1.0, 0.0]))

    def fit(self, given: Sequence[Any], held: Training) -> "PathPool":
        """Learn the weights.

        Parameters
        ----------
        given : sequence of arrays or csr_arrays of shape (documents, nodes)
            The probabilities of each model.
        held : Training
            The documents, which no model has seen.

        Returns
        -------
        PathPool
            A pool with these weights.
        """
        true = self.hierarchy.most_specific(held.labels)
        rows = np.flatnonzero(np.diff(true.indptr) == 1)
        rows = rows[np.isin(true.indices[true.indptr[rows]], self.terminals)]
        if not len(rows):
            return self
        place = np.searchsorted(self.terminals, true.indices[true.indptr[rows]])
        near, offsets = candidates([self._evidence(values[rows]) for values in given], place)
        hit = np.zeros(near.shape[:2], np.bool_)
        hit[:, 0] = True
        weights = fit_softmax_pool(near, hit, offsets)
        mixture = fit_softmax_mixture(near.astype(np.float64) @ weights, hit, offsets)
        return replace(self, weights=weights, mixture=np.array(mixture))

    def probabilities(self, given: Sequence[Any]) -> Any:
        """Pool the probabilities of all nodes, documents x nodes; the result is CSR where any of them is."""
        evidence = [self._evidence(values) for values in given]
        if not any(sparse.issparse(values) for values in evidence):
            logits = sum(weight * values for weight, values in zip(self.weights, evidence, strict=True))
            # The product with a sparse matrix on the right is slow; transposed it streams.
            return np.minimum((self._paths.T @ self._mixed(logits, 0).T).T, 1).astype(np.float32)
        found = sparse.csr_array(evidence[0].shape, dtype=np.float64)
        for weight, values in zip(self.weights, evidence, strict=True):
            found = sparse.csr_array(found + weight * sparse.csr_array(values))
        for start, stop in zip(found.indptr[:-1], found.indptr[1:], strict=True):
            missing = len(self.terminals) - (stop - start)
            found.data[start:stop] = self._mixed(found.data[None, start:stop], missing)[0]
        summed = sparse.csr_array(found @ self._paths, dtype=np.float32)
        summed.data = np.minimum(summed.data, 1)
        return summed

    def arrays(self) -> Arrays:
        """Return what was learned, to save."""
        return {"terminals": self.terminals, "weights": self.weights, "mixture": self.mixture}

    @staticmethod
    def schema(hierarchy: Hierarchy, count: int) -> Schema:
        """Declare what `arrays` returns, for this many models.

        Parameters
        ----------
        hierarchy
            The hierarchy.
        count
            The number of models.

        Returns
        -------
        Schema
        """
        arrays = {
            "terminals": indices("terminals", "nodes", rising=True),
            "weights": Array("float64", ("models",), 0, LARGEST_PARAMETER),
            "mixture": Array("float64", ("3",), 0, LARGEST_PARAMETER),
        }
        sizes = {"nodes": len(hierarchy), "models": count}
        return Schema(arrays, sizes=sizes, most={"terminals": len(hierarchy)}, relations=(_check_path_pool,))

    @classmethod
    def of(cls, hierarchy: Hierarchy, arrays: Arrays) -> "PathPool":
        """Make a pool of what `arrays` returned.

        Parameters
        ----------
        hierarchy
            The hierarchy.
        arrays
            Arrays that fit `schema`.

        Returns
        -------
        PathPool
        """
        return cls(hierarchy, arrays["terminals"], arrays["weights"], arrays["mixture"])

    def _mixed(self, logits: DoubleArray, missing: int) -> DoubleArray:
        """Mix the two softmaxes of rows of logits, beside which `missing` logits of 0 are not stored."""
        sharp, flat, weight = self.mixture
        found: DoubleArray = (1 - weight) * softmax_beside(sharp * logits, missing)
        found += weight * softmax_beside(flat * logits, missing)
        return found

    def _evidence(self, values: Any) -> Any:
        """Compute ln(P(t) / LEAST), at least 0, of terminal nodes: dense or CSR as the scores are."""
        own = values[:, self.terminals]
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
        """The nodes on the path to each terminal node: terminals x nodes."""
        h = self.hierarchy
        own = label_matrix(np.arange(len(self.terminals) + 1), self.terminals, len(h))
        return sparse.csr_array(h.closure(own), dtype=np.float64)

    @cached_property
    def _below(self) -> sparse.csr_array:
        """The children of each terminal node, nodes x terminals: what goes on below it does not end there."""
        h = self.hierarchy
        known = (h.parent_idx >= 0) & np.isin(h.parent_idx, self.terminals)
        child, terminal = h.edge_child[known], np.searchsorted(self.terminals, h.parent_idx[known])
        return sparse.csr_array((np.ones(len(child), np.float32), (child, terminal)), (len(h), len(self.terminals)))


@dataclass(frozen=True, eq=False)
class NodePool:
    """Documents with several paths: logit P(n) = b + the sum of weight x logit P_model(n), made coherent.

    `coefficients` are b and the weights of every level. What no model takes for possible stays at 0.
    """

    hierarchy: Hierarchy
    coefficients: DoubleArray

    @classmethod
    def equal(cls, train: Training, count: int) -> "NodePool":
        """Make a pool in which all models have the same weight.

        Parameters
        ----------
        train, count
            As in `PathPool.equal`.

        Returns
        -------
        NodePool
        """
        return cls(train.hierarchy, np.tile(equal_weights(count), (LEVELS + 1, 1)))

    @property
    def weights(self) -> DoubleArray:
        """The weights of the models: levels x models."""
        return self.coefficients[:, 1:]

    def fit(self, given: Sequence[Any], held: Training) -> "NodePool":
        """Learn the coefficients; see `PathPool.fit`.

        Parameters
        ----------
        given, held
            As in `PathPool.fit`.

        Returns
        -------
        NodePool
        """
        parts, row, node = self._possible(given)
        closed = held.closed
        where = row_numbers(closed) * len(self.hierarchy) + closed.indices
        true = np.isin(row * len(self.hierarchy) + node, where)
        levels = np.minimum(self.hierarchy.depth[node], LEVELS)
        coefficients = self.coefficients.copy()
        for level in np.unique(levels):
            at = levels == level
            coefficients[level] = self._fit_level(parts[at], true[at])
        return replace(self, coefficients=coefficients)

    def probabilities(self, given: Sequence[Any]) -> Any:
        """Pool the probabilities of all nodes, documents x nodes; the result is CSR where any of them is."""
        from scipy.special import expit

        parts, row, node = self._possible(given)
        numbers = self.coefficients[np.minimum(self.hierarchy.depth[node], LEVELS)]
        p = expit(numbers[:, 0] + (numbers[:, 1:] * parts).sum(axis=1))
        shape = given[0].shape
        found = sparse.csr_array((p.astype(np.float32), (row, node)), shape)
        dense = not any(sparse.issparse(values) for values in given)
        return Scores(self.hierarchy, found.toarray() if dense else found).coherent().values

    def arrays(self) -> Arrays:
        """Return what was learned, to save."""
        return {"coefficients": self.coefficients}

    @staticmethod
    def schema(hierarchy: Hierarchy, count: int) -> Schema:
        """Declare what `arrays` returns, for this many models.

        Parameters
        ----------
        hierarchy, count
            As in `PathPool.schema`.

        Returns
        -------
        Schema
        """
        size = (str(LEVELS + 1), "models + 1")
        coefficients = Array("float64", size, -LARGEST_PARAMETER, LARGEST_PARAMETER)
        return Schema({"coefficients": coefficients}, sizes={"models": count})

    @classmethod
    def of(cls, hierarchy: Hierarchy, arrays: Arrays) -> "NodePool":
        """Make a pool of what `arrays` returned.

        Parameters
        ----------
        hierarchy, arrays
            As in `PathPool.of`.

        Returns
        -------
        NodePool
        """
        return cls(hierarchy, arrays["coefficients"])

    def _fit_level(self, parts: DoubleArray, true: BoolArray) -> DoubleArray:
        """Learn the coefficients of a level."""
        return fit_sigmoid_pool(parts, true)

    def _possible(self, given: Sequence[Any]) -> tuple[DoubleArray, LongArray, LongArray]:
        """List the logits of what some model takes for possible, one row each; its document and its node."""
        p, row, node = self._known(given)
        inside = np.clip(p, LEAST, 1 - LEAST)
        return np.log(inside / (1 - inside)), row, node

    def _known(self, given: Sequence[Any]) -> tuple[DoubleArray, LongArray, LongArray]:
        """List the probabilities of what some model takes for possible, one row each; its document and its node."""
        most = sparse.csr_array(given[0])
        for values in given[1:]:
            most = sparse.csr_array(most.maximum(sparse.csr_array(values)))
        most.data = np.where(most.data > LEAST, most.data, 0)
        most.eliminate_zeros()
        row = row_numbers(most)
        node = most.indices.astype(np.int64)
        p = [np.asarray(values[row, node], np.float64).ravel() for values in given]
        return np.stack(p, axis=1).reshape(len(row), len(given)), row, node


Pool = PathPool | NodePool


def _check_path_pool(arrays: Arrays) -> None:
    """Refuse a pool without terminal nodes, and a mixture weight above 1."""
    if not len(arrays["terminals"]) or arrays["mixture"][2] > 1:
        raise TreelabelError("terminals is empty, or mixture does not end in a weight from 0 to 1")


def softmax_beside(logits: DoubleArray, missing: int) -> DoubleArray:
    """Compute the softmax of each row, beside which there are `missing` logits of 0.

    Parameters
    ----------
    logits : array of shape (rows, columns)
    missing
        How many further logits are 0.

    Returns
    -------
    array of shape (rows, columns)

    >>> softmax_beside(np.zeros((1, 2)), 2).tolist()
    [[0.25, 0.25]]
    """
    largest = logits.max(axis=1, initial=0.0, keepdims=True)
    odds = np.exp(logits - largest)
    found: DoubleArray = odds / (odds.sum(axis=1, keepdims=True) + missing * np.exp(-largest))
    return found
