"""Pools of models: weighted sums of their log probabilities, with weights learned on documents they have not seen.

This is a log-linear pool (Genest and Zidek 1986). Logarithms are counted from the least probability that matters, so
that what is not stored is 0 here too, and sparse scores stay sparse.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from scipy import sparse

from treelabel.calibration.contract import (
    LARGEST_PARAMETER,
    LEVELS,
    Calibration,
    levels_of,
    sum_to_nodes,
    terminal_paths,
)
from treelabel.calibration.likelihood import Loss, fit_softmax_mixture, minimize_within, softmax_loss
from treelabel.calibration.path_softmax import neutral_mixture
from treelabel.core.array_schema import Array, Arrays, indices
from treelabel.core.compute import sum_rows
from treelabel.core.errors import TreelabelError
from treelabel.core.types import BoolArray, DoubleArray, FloatArray, IntArray, LongArray
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.label_matrices import LabelMatrix, matches, row_numbers
from treelabel.scores.score_matrix import Scores

# No probability counts as less.
LEAST = 1e-6
# Terminal nodes of a document that are looked at one by one when weights are learned; one more stands for all others.
LIKELIEST = 64
# The prior for equal weights counts as much as this many documents.
PRIOR_STRENGTH = 1.0
MOST_WEIGHT = 10.0
# With more nodes and several paths, a pool only looks at the largest scores of each model.
MANY_LABELS = 2_000
# scipy's own: weights of models are shown to users.
POOL_TOLERANCE = float(1e7 * np.finfo(float).eps)


@dataclass(frozen=True, eq=False)
class Pool(Calibration):
    """A calibration of the scores of several models: a sequence of arrays or csr_arrays, documents x nodes.

    Probabilities are CSR where the scores of any model are.
    """

    hierarchy: Hierarchy

    @classmethod
    def equal(cls, hierarchy: Hierarchy, count: int, labels: LabelMatrix | None = None) -> Self:
        """Make a pool in which `count` models have the same weight; `labels` are those of training documents."""
        raise NotImplementedError

    @abstractmethod
    def fit(self, evidence: Sequence[Any], labels: LabelMatrix, prior_strength: float = PRIOR_STRENGTH) -> Self:
        """Learn weights from documents; the prior for equal ones counts as much as so many. See `Calibration.fit`."""


@dataclass(frozen=True, eq=False)
class PathPool(Pool):
    """Documents with one path: P(t) is a softmax over terminal nodes of the sum of weight x ln P_model(t).

    The softmax is a mixture of a sharp and a flat one, which keeps probabilities calibrated; a node has the sum of the
    terminal nodes at and below it. Leaves are terminal, and inner nodes at which paths of training end.

    Parameters
    ----------
    mixture : array of shape (3,)
        The inverse temperatures of the sharp and of the flat softmax, and the weight of the flat one.
    """

    parameters: ClassVar = {
        "terminals": indices("terminals", "nodes", rising=True),
        "weights": Array("float64", ("models",), 0, LARGEST_PARAMETER),
        "mixture": Array("float64", ("3",), 0, LARGEST_PARAMETER),
    }
    terminals: IntArray
    weights: DoubleArray
    mixture: DoubleArray

    @classmethod
    def equal(cls, hierarchy: Hierarchy, count: int, labels: LabelMatrix | None = None) -> "PathPool":
        """Make a pool in which all models have the same weight; see `Pool.equal`."""
        ends = () if labels is None else hierarchy.most_specific(labels).indices
        terminals = np.union1d(hierarchy.leaves, ends).astype(np.int32)
        return cls(hierarchy, terminals, np.full(count, 1 / count), neutral_mixture())

    def fit(self, evidence: Sequence[Any], labels: LabelMatrix, prior_strength: float = PRIOR_STRENGTH) -> "PathPool":
        """Learn the weights and the mixture; see `Pool.fit`."""
        true = self.hierarchy.most_specific(labels)
        rows = np.flatnonzero(np.diff(true.indptr) == 1)
        rows = rows[np.isin(true.indices[true.indptr[rows]], self.terminals)]
        if not len(rows):
            return self
        position = np.searchsorted(self.terminals, true.indices[true.indptr[rows]])
        near, offsets = nearest_terminals([self._log_ratios(values[rows]) for values in evidence], position)
        hit = np.zeros(near.shape[:2], np.bool_)
        hit[:, 0] = True
        weights = fit_softmax_weights(near, hit, offsets, prior_strength)
        mixture = fit_softmax_mixture(near.astype(np.float64) @ weights, hit, offsets)
        return replace(self, weights=weights, mixture=mixture)

    def probabilities(self, evidence: Sequence[Any]) -> Any:
        """Pool the scores of models; see `Calibration.probabilities`."""
        ratios = [self._log_ratios(values) for values in evidence]
        if not any(sparse.issparse(values) for values in ratios):
            logits = sum(weight * values for weight, values in zip(self.weights, ratios, strict=True))
            return sum_to_nodes(self._mix(logits, 0), self._paths)
        pooled = sparse.csr_array(ratios[0].shape, dtype=np.float64)
        for weight, values in zip(self.weights, ratios, strict=True):
            pooled = sparse.csr_array(pooled + weight * sparse.csr_array(values))
        for start, stop in zip(pooled.indptr[:-1], pooled.indptr[1:], strict=True):
            missing = len(self.terminals) - (stop - start)
            pooled.data[start:stop] = self._mix(pooled.data[None, start:stop], missing)[0]
        return sum_to_nodes(pooled, self._paths)

    def check(self, arrays: Arrays) -> None:
        """Refuse a pool without terminal nodes, and a mixture weight above 1."""
        if not len(arrays["terminals"]) or arrays["mixture"][2] > 1:
            raise TreelabelError("terminals is empty, or mixture does not end in a weight from 0 to 1")

    def _mix(self, logits: DoubleArray, missing: int) -> DoubleArray:
        """Mix the two softmaxes of rows of logits, besides which `missing` logits of 0 are not stored."""
        sharp, flat, weight = self.mixture
        p: DoubleArray = (1 - weight) * softmax_with_zeros(sharp * logits, missing)
        p += weight * softmax_with_zeros(flat * logits, missing)
        return p

    def _log_ratios(self, values: Any) -> Any:
        """Compute ln(P(t) / LEAST), at least 0, of terminal nodes: dense or CSR as the scores are."""
        p = values[:, self.terminals]
        if self._below.nnz:
            p = p - values @ self._below if sparse.issparse(values) else p - (self._below.T @ values.T).T
        if not sparse.issparse(p):
            return np.log(np.maximum(p, LEAST) / LEAST).astype(np.float32)
        ratios = sparse.csr_array(p, dtype=np.float64)
        ratios.data = np.log(np.maximum(ratios.data, LEAST) / LEAST)
        ratios.eliminate_zeros()
        return ratios

    @cached_property
    def _paths(self) -> sparse.csr_array:
        return terminal_paths(self.hierarchy, self.terminals).astype(np.float64)

    @cached_property
    def _below(self) -> sparse.csr_array:
        """The children of each terminal node, nodes x terminals: what goes on below it does not end there."""
        h = self.hierarchy
        known = (h.parent_idx >= 0) & np.isin(h.parent_idx, self.terminals)
        child, terminal = h.edge_child[known], np.searchsorted(self.terminals, h.parent_idx[known])
        return sparse.csr_array((np.ones(len(child), np.float32), (child, terminal)), (len(h), len(self.terminals)))


@dataclass(frozen=True, eq=False)
class NodePool(Pool):
    """Documents with several paths: logit P(n) = b + the sum of weight x logit P_model(n), made coherent.

    `coefficients` are b and the weights of every level. What no model takes for possible stays at 0.
    """

    parameters: ClassVar = {
        "coefficients": Array("float64", (str(LEVELS + 1), "models + 1"), -LARGEST_PARAMETER, LARGEST_PARAMETER)
    }
    # Coefficients of each model that may be below 0, as b may; they follow b, and weights follow them.
    free_terms: ClassVar = 0
    coefficients: DoubleArray

    @classmethod
    def equal(cls, hierarchy: Hierarchy, count: int, labels: LabelMatrix | None = None) -> Self:
        """Make a pool in which all models have the same weight; see `Pool.equal`."""
        return cls(hierarchy, np.tile(cls.prior_coefficients(count), (LEVELS + 1, 1)))

    @staticmethod
    def prior_coefficients(count: int) -> DoubleArray:
        """Return b = 0 and equal weights of so many models."""
        return np.array([0.0] + [1 / count] * count)

    @property
    def weights(self) -> DoubleArray:
        """The weights of the models: levels x models."""
        return self.coefficients[:, 1:]

    def fit(self, evidence: Sequence[Any], labels: LabelMatrix, prior_strength: float = PRIOR_STRENGTH) -> Self:
        """Learn the coefficients of each level; see `Pool.fit`."""
        count = len(evidence)
        parts, candidates = self._parts(evidence)
        true = matches(self.hierarchy.closure(labels), candidates)
        levels = levels_of(self.hierarchy, candidates.indices)
        coefficients = self.coefficients.copy()
        free = 1 + self.free_terms * count
        for level in np.unique(levels):
            some, prior = levels == level, self.prior_coefficients(count)
            coefficients[level] = fit_sigmoid_weights(parts[some], true[some], prior, free, prior_strength)
        return replace(self, coefficients=coefficients)

    def probabilities(self, evidence: Sequence[Any]) -> Any:
        """Pool the scores of models; see `Calibration.probabilities`."""
        from scipy.special import expit

        parts, candidates = self._parts(evidence)
        numbers = self.coefficients[levels_of(self.hierarchy, candidates.indices)]
        candidates.data = expit(numbers[:, 0] + (numbers[:, 1:] * parts).sum(axis=1)).astype(np.float32)
        dense = not any(sparse.issparse(values) for values in evidence)
        return Scores(self.hierarchy, candidates.toarray() if dense else candidates).coherent().values

    def _parts(self, evidence: Sequence[Any]) -> tuple[DoubleArray, sparse.csr_array]:
        """Return the logits of what some model takes for possible, candidates x models; and the candidates as CSR."""
        p, candidates = possible_nodes(evidence)
        inside = np.clip(p, LEAST, 1 - LEAST)
        return np.log(inside / (1 - inside)), candidates


@dataclass(frozen=True, eq=False)
class CandidatePool(NodePool):
    """Documents with several of very many labels, which most models say nothing about.

    logit P(n) = b + the sum over models of (weight x logit P_model(n), or c_model where the model has no score for n)
    + v x logit(1 - the product of 1 - P_model(n)), made coherent. That a model which finds few labels (by their names)
    has not found one is no proof against it, as a probability of 0 would be; c tells how much it means. The last term
    is that of models which find labels independently of each other (noisy or). What no model takes for possible stays
    at 0. `coefficients` are b, c, weights and v of every level.
    """

    parameters: ClassVar = {
        "coefficients": Array(
            "float64", (str(LEVELS + 1), "models + models + 2"), -LARGEST_PARAMETER, LARGEST_PARAMETER
        )
    }
    free_terms: ClassVar = 1

    @staticmethod
    def prior_coefficients(count: int) -> DoubleArray:
        """Return coefficients of equal weights, where what is missing has the least probability."""
        missing = max(-MOST_WEIGHT, np.log(LEAST) / count)
        return np.array([0.0] + [missing] * count + [1 / count] * count + [0.0])

    @property
    def weights(self) -> DoubleArray:
        """The weights of the models: levels x models."""
        count = (self.coefficients.shape[1] - 2) // 2
        return self.coefficients[:, 1 + count : -1]

    def _parts(self, evidence: Sequence[Any]) -> tuple[DoubleArray, sparse.csr_array]:
        """Return what is known of candidates: what is missing, logits, noisy or; and the candidates as CSR."""
        p, candidates = possible_nodes(evidence)
        missing = p <= LEAST
        inside = np.clip(p, LEAST, 1 - LEAST)
        some = np.clip(1 - np.prod(np.where(missing, 1, 1 - inside), axis=1), LEAST, 1 - LEAST)
        logits = np.where(missing, 0, np.log(inside / (1 - inside)))
        return np.column_stack([missing, logits, np.log(some / (1 - some))]), candidates


def pool_calibration(multiple_paths: bool, nodes: int) -> type[Pool]:
    """Return the pool of models that suits documents with one path, or with several of so many nodes."""
    if not multiple_paths:
        return PathPool
    return CandidatePool if nodes > MANY_LABELS else NodePool


def possible_nodes(evidence: Sequence[Any]) -> tuple[DoubleArray, sparse.csr_array]:
    """Return what each model says of the nodes that some model takes for possible, candidates x models; and these."""
    candidates = sparse.csr_array(evidence[0])
    for values in evidence[1:]:
        candidates = sparse.csr_array(candidates.maximum(sparse.csr_array(values)))
    candidates.data = np.where(candidates.data > LEAST, candidates.data, 0)
    candidates.eliminate_zeros()
    row, node = row_numbers(candidates), candidates.indices.astype(np.int64)
    p = [np.asarray(values[row, node], np.float64).ravel() for values in evidence]
    return np.stack(p, axis=1).reshape(len(row), len(evidence)), candidates


def softmax_with_zeros(logits: DoubleArray, missing: int) -> DoubleArray:
    """Compute the softmax of each row, besides which there are `missing` further logits of 0.

    >>> softmax_with_zeros(np.zeros((1, 2)), 2).tolist()
    [[0.25, 0.25]]
    """
    largest = logits.max(axis=1, initial=0.0, keepdims=True)
    odds = np.exp(logits - largest)
    p: DoubleArray = odds / (odds.sum(axis=1, keepdims=True) + missing * np.exp(-largest))
    return p


def nearest_terminals(evidence: Sequence[Any], true: LongArray) -> tuple[FloatArray, DoubleArray]:
    """Choose terminal nodes of each document: the true one, the likeliest others, and the average of the rest.

    Parameters
    ----------
    evidence : sequence of arrays or csr_arrays of shape (documents, terminals)
        One of each model.
    true : array of shape (documents,)
        The true terminal nodes.

    Returns
    -------
    (array of shape (documents, candidates, models), array of shape (candidates,))
        Evidence, the true one first; and ln of how many terminal nodes each candidate stands for.
    """
    documents, terminals = evidence[0].shape
    few = min(LIKELIEST, terminals - 1)
    rest = terminals - 1 - few
    near = np.zeros((documents, 1 + few + (rest > 0), len(evidence)), np.float32)
    for row in range(documents):
        rows = [values[[row]].toarray()[0] if sparse.issparse(values) else values[row] for values in evidence]
        values = np.stack(rows, axis=1)
        together = values.sum(axis=1)
        together[true[row]] = np.inf
        # Two borders: the true one comes first, then the likeliest in any order.
        order = np.argpartition(-together, [0, few])
        near[row, : 1 + few] = values[order[: 1 + few]]
        if rest:
            near[row, -1] = values[order[1 + few :]].mean(axis=0)
    return near, np.log(np.array([1.0] * (1 + few) + [float(rest)] * (rest > 0)))


def fit_softmax_weights(
    near: FloatArray, hit: BoolArray, offsets: DoubleArray, prior_strength: float = PRIOR_STRENGTH
) -> DoubleArray:
    """Find the weights, at least 0, with which a softmax over candidates has the least log loss.

    Parameters
    ----------
    hit : array of shape (documents, candidates)
        Marks the true ones.
    offsets : array of shape (candidates,)
        Added to logits.
    prior_strength : float
        How many documents the prior for equal weights counts as much as.

    Returns
    -------
    array of shape (models,)
    """

    def loss(weights: DoubleArray) -> tuple[float, DoubleArray]:
        total = sum_rows(lambda low, high: softmax_loss(near, hit, offsets, weights, low, high), len(hit))
        return float(total[0]), total[1:]

    return _minimize_with_prior(loss, np.full(near.shape[2], 1 / near.shape[2]), len(hit), 0, prior_strength)


def fit_sigmoid_weights(
    parts: DoubleArray, true: BoolArray, prior: DoubleArray, free: int, prior_strength: float = PRIOR_STRENGTH
) -> DoubleArray:
    """Find b and weights with which sigmoid(b + weights x parts) has the least log loss.

    Parameters
    ----------
    true : array of shape (n,)
        Whether each is one of a true label.
    prior : array of shape (1 + parts,)
        What few documents leave as it is.
    free : int
        How many numbers, b first, may be below 0.
    prior_strength : float
        How many of them the prior counts as much as.

    Returns
    -------
    array of shape (1 + parts,)
    """
    from scipy.special import expit

    def loss(numbers: DoubleArray) -> tuple[float, DoubleArray]:
        z = numbers[0] + parts @ numbers[1:]
        error = expit(z) - true
        return float((np.logaddexp(0, z) - true * z).sum()), np.concatenate([[error.sum()], parts.T @ error])

    return _minimize_with_prior(loss, prior, len(true), free, prior_strength)


def _minimize_with_prior(loss: Loss, prior: DoubleArray, count: int, free: int, strength: float) -> DoubleArray:
    """Minimize a loss of `count` documents with a Gaussian prior; all numbers but the `free` first are at least 0."""

    def mean(numbers: DoubleArray) -> tuple[float, DoubleArray]:
        value, slope = loss(numbers)
        away = numbers - prior
        return (value + strength * float(away @ away)) / count, (slope + 2 * strength * away) / count

    bounds = [(-MOST_WEIGHT, MOST_WEIGHT)] * free + [(0.0, MOST_WEIGHT)] * (len(prior) - free)
    return minimize_within(mean, prior, bounds, POOL_TOLERANCE)
