"""From evidence for a few candidate labels of each document to probabilities of nodes, sparse all the way.

Evidence is a number above 0 for each candidate, such as the votes of neighbours or odds; what is not stored has none.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy import sparse

from treelabel.calibration.base import LARGEST_PARAMETER
from treelabel.calibration.fitting import fit_sigmoid
from treelabel.calibration.isotonic import STEPS, fit_isotonic
from treelabel.calibration.outputs import LEVELS
from treelabel.core.array_schema import Array, Arrays
from treelabel.core.bounded_memory import TOP_SCORES
from treelabel.core.compute import over_rows
from treelabel.core.errors import TreelabelError
from treelabel.core.types import BoolArray, DoubleArray, FloatArray, IntArray, LongArray
from treelabel.hierarchy import Hierarchy, LabelMatrix, label_matrix, row_numbers
from treelabel.hierarchy.label_matrices import matches
from treelabel.scores import Scores
from treelabel.scores.score_kernels import top_k_csr
from treelabel.selection.training import Training

# ln evidence beyond this makes no difference.
MOST_EVIDENCE = 30.0
# A level with fewer true candidates shares the map of all levels.
FEWEST_TRUE = 30
# The share of a sigmoid in isotonic maps, which have steps: without it, labels on one step would have no order.
SIGMOID_SHARE = 0.1
LEAST = 1e-6
# Places whose order is compared.
RANKED = 5


@dataclass(frozen=True, eq=False)
class NodeMap:
    """Documents with several paths: P(n) = isotonic function of ln evidence, by level, made coherent.

    Parameters
    ----------
    hierarchy : Hierarchy
        The hierarchy.
    maps : array of shape (LEVELS + 1, STEPS + 3)
        The smallest and the largest ln evidence of each level, and the probabilities at equal steps between them.
    """

    hierarchy: Hierarchy
    maps: DoubleArray

    @classmethod
    def first(cls, hierarchy: Hierarchy, counts: LongArray) -> "NodeMap":
        """Make a map that nothing was fitted to: evidence e gives e / (1 + e).

        Parameters
        ----------
        hierarchy
            The hierarchy.
        counts : array of shape (nodes,)
            How many training documents speak for each node: see `voted`.

        Returns
        -------
        NodeMap
        """
        # The map has its values in the middle of steps.
        p = 1 / (1 + np.exp(10 - 20 * (np.arange(STEPS + 1) + 0.5) / STEPS))
        return cls(hierarchy, np.tile(np.concatenate([[-10.0, 10.0], p]), (LEVELS + 1, 1)))

    def fit(self, evidence: sparse.csr_array, held: Training) -> "NodeMap":
        """Fit the maps.

        Parameters
        ----------
        evidence : csr_array of shape (documents, nodes)
            Evidence for candidates.
        held : Training
            The documents, from which nothing was learned.

        Returns
        -------
        NodeMap
        """
        z, true = log_evidence(evidence), true_candidates(evidence, held.closed)
        if not len(z) or not true.any():
            return self
        maps = np.tile(smooth_isotonic(z, true), (LEVELS + 1, 1))
        levels = np.minimum(self.hierarchy.depth[evidence.indices], LEVELS)
        for level in np.unique(levels[true]) if len(np.unique(levels)) > 1 else ():
            at = levels == level
            if true[at].sum() >= FEWEST_TRUE:
                maps[level] = smooth_isotonic(z[at], true[at])
        return replace(self, maps=maps)

    def trial(self, evidence: sparse.csr_array, held: Training) -> float:
        """Compute how far the order of candidates is from the best: 1 - nDCG@5, whatever the map.

        The log loss would be that of the many candidates which are nearly impossible, and hardly tell settings apart.

        Parameters
        ----------
        evidence, held
            As in `fit`.

        Returns
        -------
        float
        """
        sizes = np.diff(held.closed.indptr)
        row, true = row_numbers(evidence), true_candidates(evidence, held.closed)
        order = np.lexsort((evidence.indices, -evidence.data, row))
        rank = np.arange(len(row)) - np.repeat(evidence.indptr[:-1], np.diff(evidence.indptr))
        gains = 1 / np.log2(np.arange(RANKED) + 2)
        hit = true[order] & (rank < RANKED)
        reached = np.bincount(row[hit], gains[rank[hit]], len(sizes))
        best = np.concatenate([[0], np.cumsum(gains)])[np.minimum(sizes, RANKED)]
        return 1 - float((reached[sizes > 0] / best[sizes > 0]).mean()) if sizes.any() else np.nan

    def probabilities(self, evidence: sparse.csr_array) -> sparse.csr_array:
        """Map evidence to probabilities of nodes, documents x nodes."""
        p = self._mapped(evidence).astype(np.float32)
        found = sparse.csr_array((p, evidence.indices, evidence.indptr), evidence.shape)
        return Scores(self.hierarchy, found).coherent().csr()

    def _mapped(self, evidence: sparse.csr_array) -> DoubleArray:
        z, steps = log_evidence(evidence), np.arange(STEPS + 1)
        levels = np.minimum(self.hierarchy.depth[evidence.indices], LEVELS)
        found = np.zeros(len(z))
        for level in np.unique(levels):
            at, (low, high) = levels == level, self.maps[level, :2]
            found[at] = np.interp((z[at] - low) / (high - low) * STEPS - 0.5, steps, self.maps[level, 2:])
        return found

    def arrays(self) -> Arrays:
        """Return what was fitted, to save."""
        return {"maps": self.maps}

    @staticmethod
    def schema() -> dict[str, Array]:
        """Declare what `arrays` returns."""
        return {"maps": Array("float64", (str(LEVELS + 1), str(STEPS + 3)), -LARGEST_PARAMETER, LARGEST_PARAMETER)}

    @staticmethod
    def check(arrays: Arrays) -> None:
        """Refuse maps without a range of evidence, or with values that are no probabilities."""
        maps = arrays["maps"]
        if (maps[:, 0] >= maps[:, 1]).any() or not ((maps[:, 2:] >= 0) & (maps[:, 2:] <= 1)).all():
            raise TreelabelError("maps holds what is no probability, or no range of evidence")

    def restored(self, arrays: Arrays) -> "NodeMap":
        """Return it with what `arrays` returned."""
        return replace(self, maps=arrays["maps"])


@dataclass(frozen=True, eq=False)
class PathMap:
    """Documents with one path: P(t) = (e^s + k x prior(t)) / (sum over terminal nodes of e^s + k), summed up to nodes.

    e is the evidence for a terminal node; evidence for other nodes does not count. Prior are the shares of terminal
    nodes in training, of the 100 most frequent ones where there are more.

    Parameters
    ----------
    hierarchy : Hierarchy
        The hierarchy.
    terminals : array of int32, increasing
        The terminal nodes: leaves, and inner nodes at which paths of training end.
    prior : array of shape (terminals,)
        Their prior probabilities.
    numbers : array of shape (2,)
        s and k.
    """

    hierarchy: Hierarchy
    terminals: IntArray
    prior: DoubleArray
    numbers: DoubleArray

    @classmethod
    def first(cls, hierarchy: Hierarchy, counts: LongArray) -> "PathMap":
        """Make a map that nothing was fitted to; see `NodeMap.first`.

        Parameters
        ----------
        hierarchy, counts
            As there.

        Returns
        -------
        PathMap
        """
        terminals = np.union1d(hierarchy.leaves, np.flatnonzero(counts)).astype(np.int32)
        prior = counts[terminals] + LEAST
        if len(terminals) > TOP_SCORES:
            prior[np.argsort(-prior, kind="stable")[TOP_SCORES:]] = 0
        return cls(hierarchy, terminals, prior / prior.sum(), np.array([1.0, 0.01]))

    def fit(self, evidence: sparse.csr_array, held: Training) -> "PathMap":
        """Fit s and k; see `NodeMap.fit`.

        Parameters
        ----------
        evidence, held
            As there.

        Returns
        -------
        PathMap
        """
        from scipy.optimize import minimize

        losses = self._losses(evidence, held)
        if losses is None:
            return self
        starts = [np.log([s, k]) for s in (0.5, 1.0, 3.0) for k in (1e-4, 0.01, 1.0)]
        start = min(starts, key=losses)
        found = minimize(losses, start, method="Nelder-Mead", bounds=[(-2.5, 2.5), (-30, 10)], options={"maxiter": 60})
        return replace(self, numbers=np.exp(found.x))

    def trial(self, evidence: sparse.csr_array, held: Training) -> float:
        """Compute the log loss of the terminal node of each document with s and k that fit; see `NodeMap.trial`.

        Parameters
        ----------
        evidence, held
            As there.

        Returns
        -------
        float
        """
        losses = self._losses(evidence, held)
        return np.nan if losses is None else losses(np.log(self.fit(evidence, held).numbers))

    def _losses(self, evidence: sparse.csr_array, held: Training) -> Callable[[DoubleArray], float] | None:
        """Return the mean log loss as a function of ln s and ln k; None if no document has a terminal node."""
        true = self.hierarchy.most_specific(held.labels)
        rows = np.flatnonzero(np.diff(true.indptr) == 1)
        ends = true.indices[true.indptr[rows]]
        rows, ends = rows[np.isin(ends, self.terminals)], ends[np.isin(ends, self.terminals)]
        if not len(rows):
            return None
        place = np.searchsorted(self.terminals, ends)
        own = sparse.csr_array(evidence[rows][:, self.terminals])
        z, row = log_evidence(own), row_numbers(own)
        hit, prior = own.indices == place[row], self.prior[place]

        def loss(numbers: DoubleArray) -> float:
            s, k = np.exp(numbers)
            power = np.exp(np.clip(s * z, -MOST_EVIDENCE, MOST_EVIDENCE))
            total = np.bincount(row, power, len(rows)) + k
            p = (np.bincount(row[hit], power[hit], len(rows)) + k * prior) / total
            return float(-np.log(np.maximum(p, LEAST)).mean())

        return loss

    def probabilities(self, evidence: sparse.csr_array) -> sparse.csr_array:
        """Map evidence to probabilities of nodes, documents x nodes."""
        own, k = self._powers(evidence), self.numbers[1]
        usual = np.flatnonzero(self.prior)
        count = evidence.shape[0]
        added = sparse.csr_array(
            (
                np.tile(k * self.prior[usual], count),
                np.tile(usual, count),
                np.arange(count + 1) * len(usual),
            ),
            own.shape,
        )
        summed = sparse.csr_array(own + added)
        scale = 1 / np.maximum(np.asarray(summed.sum(axis=1)).ravel(), 1e-300)
        found = sparse.csr_array(sparse.diags_array(scale) @ summed @ self._paths, dtype=np.float32)
        found.data = np.minimum(found.data, 1)
        return found

    def _powers(self, evidence: sparse.csr_array) -> sparse.csr_array:
        """Raise the evidence for terminal nodes to the power s: documents x terminals."""
        own = sparse.csr_array(evidence[:, self.terminals], dtype=np.float64)
        own.data = np.exp(np.clip(self.numbers[0] * log_evidence(own), -MOST_EVIDENCE, MOST_EVIDENCE))
        return own

    @cached_property
    def _paths(self) -> sparse.csr_array:
        own = label_matrix(np.arange(len(self.terminals) + 1), self.terminals, len(self.hierarchy))
        return sparse.csr_array(self.hierarchy.closure(own), dtype=np.float64)

    def arrays(self) -> Arrays:
        """Return what was fitted, to save."""
        return {"numbers": self.numbers}

    @staticmethod
    def schema() -> dict[str, Array]:
        """Declare what `arrays` returns."""
        return {"numbers": Array("float64", ("2",), 0, LARGEST_PARAMETER)}

    @staticmethod
    def check(arrays: Arrays) -> None:
        """Refuse a k of 0, with which a document without candidates would have no distribution."""
        if not arrays["numbers"][1] > 0:
            raise TreelabelError("numbers ends in 0, expected a number above it")

    def restored(self, arrays: Arrays) -> "PathMap":
        """Return it with what `arrays` returned."""
        return replace(self, numbers=arrays["numbers"])


CandidateMap = NodeMap | PathMap


def map_of(regime: str) -> type[CandidateMap]:
    """Return the kind of map for a kind of labels: see `regime_of`."""
    return NodeMap if regime == "multi_path" else PathMap


def log_evidence(evidence: sparse.csr_array) -> FloatArray:
    """Compute ln evidence of all candidates, in double precision, within limits."""
    found: FloatArray = np.log(np.maximum(evidence.data.astype(np.float64), 1e-13))
    return np.minimum(found, MOST_EVIDENCE)


def true_candidates(evidence: sparse.csr_array, closed: LabelMatrix) -> BoolArray:
    """Mark the candidates that are true.

    Parameters
    ----------
    evidence : csr_array of shape (documents, nodes)
        Candidates.
    closed : csr_array of shape (documents, nodes)
        What is true.

    Returns
    -------
    array of shape (candidates,)
    """
    return matches(closed, evidence)


def smooth_isotonic(z: FloatArray, true: BoolArray) -> DoubleArray:
    """Fit an isotonic map with some of a sigmoid in it, so that it rises everywhere; see `fit_isotonic`.

    Parameters
    ----------
    z : array of shape (n,)
        ln evidence.
    true : array of shape (n,)
        Whether each is one of a true label.

    Returns
    -------
    array of shape (STEPS + 3,)
    """
    from scipy.special import expit

    fitted = fit_isotonic(z.astype(np.float32), true)
    slope, intercept = fit_sigmoid(z, true)
    places = fitted[0] + (fitted[1] - fitted[0]) * (np.arange(STEPS + 1) + 0.5) / STEPS
    fitted[2:] = (1 - SIGMOID_SHARE) * fitted[2:] + SIGMOID_SHARE * expit(slope * places + intercept)
    return fitted


def largest(evidence: sparse.csr_array, count: int) -> sparse.csr_array:
    """Keep the candidates with the largest evidence of each document, in the order of nodes.

    Parameters
    ----------
    evidence : csr_array of shape (documents, nodes)
        Evidence above 0.
    count : int
        How many to keep at most.

    Returns
    -------
    csr_array of shape (documents, nodes)
    """
    sizes = np.diff(evidence.indptr)
    if not len(sizes) or sizes.max() <= count:
        return evidence
    ptr = evidence.indptr.astype(np.int64)
    parts = over_rows(
        lambda start, stop: top_k_csr(ptr, evidence.indices, evidence.data, start, stop, count), len(sizes)
    )
    nodes, values, kept = (np.concatenate([part[which] for part in parts]) for which in range(3))
    return sparse.csr_array((values, nodes, np.concatenate([[0], np.cumsum(kept)])), evidence.shape)


def voted(train: Training, regime: str) -> LabelMatrix:
    """Mark what documents speak for, as float32: all their nodes, or where their one path ends.

    Parameters
    ----------
    train : Training
        Documents.
    regime : str
        The regime of the model.

    Returns
    -------
    csr_array of shape (documents, nodes)
    """
    marks = train.closed if regime == "multi_path" else train.hierarchy.most_specific(train.labels)
    return sparse.csr_array((np.ones(marks.nnz, np.float32), marks.indices, marks.indptr), marks.shape)


def votes_for(targets: LabelMatrix) -> LongArray:
    """Count the documents that speak for each node."""
    found: LongArray = np.bincount(targets.indices, minlength=targets.shape[1]).astype(np.int64)
    return found
