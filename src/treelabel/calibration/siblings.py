"""Conditional calibrations: P(n) = P(parent) x P(n | parent), by a softmax over siblings or by sigmoids."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from treelabel.calibration import sibling_kernels as kernels
from treelabel.calibration.base import LARGEST_PARAMETER, Calibration
from treelabel.calibration.fitting import fit_sigmoid
from treelabel.calibration.outputs import ABSENT, LEVELS, Outputs
from treelabel.calibration.path_kernels import Sums, mix_uniform
from treelabel.calibration.temperature import fit_softmax_temperature
from treelabel.calibration.uniform import fit_uniform_weights, sums_of
from treelabel.core.array_schema import Array, Arrays
from treelabel.core.errors import TreelabelError
from treelabel.core.types import DoubleArray, FloatArray, IntArray, LongArray
from treelabel.hierarchy import Hierarchy, LabelMatrix


@dataclass(frozen=True, eq=False)
class SiblingGroups:
    """Groups of siblings, parents before children: their outputs, nodes (-1: a stop at their parent), and parents."""

    ptr: LongArray
    outputs: IntArray
    nodes: IntArray
    parents: IntArray

    @classmethod
    def of(cls, outputs: Outputs) -> "SiblingGroups":
        """Find the groups among the nodes seen in training; a stop at a node is one of its children."""
        h = outputs.hierarchy
        stops = outputs.stops
        parents = np.concatenate([h.parent[outputs.nodes], outputs.terminals[stops]])
        members = np.concatenate([outputs.node_outputs, outputs.terminal_outputs[stops]])
        nodes = np.concatenate([outputs.nodes, np.full(len(stops), -1, np.int32)])
        order = np.argsort(parents, kind="stable")
        found, first = np.unique(parents[order], return_index=True)
        ptr = np.concatenate([first, [len(order)]]).astype(np.int64)
        return cls(ptr, members[order].astype(np.int32), nodes[order].astype(np.int32), found.astype(np.int32))

    def levels(self, outputs: Outputs) -> IntArray:
        """Return the level of each group's nodes."""
        depth = np.where(self.parents < 0, 0, outputs.hierarchy.depth[np.maximum(self.parents, 0)])
        levels: IntArray = np.minimum(depth + 1, LEVELS).astype(np.int32)
        return levels


@dataclass(frozen=True, eq=False)
class SiblingSoftmax(Calibration):
    """P(n | parent) = softmax over siblings of margin / temperature, mixed with the uniform distribution.

    Temperatures (`inverse_temperatures` are 1 / T) and weights of the uniform distribution have one value per level.
    """

    outputs: Outputs
    inverse_temperatures: DoubleArray
    uniform_weights: DoubleArray

    @classmethod
    def fit(cls, outputs: Outputs, margins: FloatArray, labels: LabelMatrix) -> "SiblingSoftmax":
        """Fit temperatures and weights; see `Calibration.fit`."""
        groups, closed = SiblingGroups.of(outputs), outputs.hierarchy.closure(labels)
        levels = groups.levels(outputs)
        inverse = np.ones(LEVELS + 1)
        for level in np.unique(levels):
            logits, true = _choices(groups, np.flatnonzero(levels == level), margins, outputs, labels)
            if len(true):
                inverse[level] = fit_softmax_temperature(logits, true)
        plain = cls(outputs, inverse, np.zeros(LEVELS + 1))
        return cls(outputs, inverse, fit_uniform_weights(outputs.hierarchy, plain.probabilities(margins), closed))

    def arrays(self) -> Arrays:
        """Return the fitted parameters, to save."""
        return {"inverse_temperatures": self.inverse_temperatures, "uniform_weights": self.uniform_weights}

    @staticmethod
    def schema() -> dict[str, Array]:
        """Declare what `arrays` returns."""
        size = (str(LEVELS + 1),)
        return {
            "inverse_temperatures": Array("float64", size, 0, LARGEST_PARAMETER),
            "uniform_weights": Array("float64", size, 0, 1),
        }

    @staticmethod
    def check(outputs: Outputs, arrays: Arrays) -> None:
        """Refuse a DAG, and nodes without an output."""
        _ = outputs.hierarchy.parent
        _require_every_output(outputs)

    @classmethod
    def of(cls, outputs: Outputs, arrays: Arrays) -> "SiblingSoftmax":
        """Make a calibration of what `arrays` returned."""
        return cls(outputs, arrays["inverse_temperatures"], arrays["uniform_weights"])

    @cached_property
    def _sums(self) -> Sums:
        return sums_of(self.outputs, self.uniform_weights)

    @cached_property
    def _groups(self) -> SiblingGroups:
        return SiblingGroups.of(self.outputs)

    def _node_probabilities(self, margins: FloatArray) -> FloatArray:
        h, groups = self.outputs.hierarchy, self._groups
        inverse = self.inverse_temperatures[groups.levels(self.outputs)]
        found = kernels.group_softmax(
            margins, groups.ptr, groups.outputs, groups.nodes, groups.parents, inverse, len(h)
        )
        mix_uniform(found, self._sums)
        return found


def _choices(
    groups: SiblingGroups, chosen: LongArray, margins: FloatArray, outputs: Outputs, labels: LabelMatrix
) -> tuple[FloatArray, LongArray]:
    """List documents that are in these groups with a known member: logits (padded with -inf), and the true member."""
    h = outputs.hierarchy
    closed, terminals = h.closure(labels).tocsc(), h.most_specific(labels).tocsc()
    widest = int(np.diff(groups.ptr)[chosen].max())
    logits, true = [np.empty((0, widest), np.float32)], [np.empty(0, np.int64)]
    for group in chosen.tolist():
        first, last = groups.ptr[group], groups.ptr[group + 1]
        if last - first < 2:
            continue
        for member in range(first, last):
            node = groups.nodes[member]
            marks = closed if node >= 0 else terminals
            column = node if node >= 0 else groups.parents[group]
            rows = marks.indices[marks.indptr[column] : marks.indptr[column + 1]]
            found = np.full((len(rows), widest), -np.inf, np.float32)
            found[:, : last - first] = margins[rows][:, groups.outputs[first:last]]
            known = found[:, member - first] > ABSENT
            logits.append(found[known])
            true.append(np.full(int(known.sum()), member - first))
    return np.concatenate(logits), np.concatenate(true)


@dataclass(frozen=True, eq=False)
class SiblingSigmoid(Calibration):
    """P(n | parents) = sigmoid(slope x margin + intercept), one slope and intercept per level.

    P(n) is at most that of any parent. `coefficients` is levels x (slope, intercept).
    """

    outputs: Outputs
    coefficients: DoubleArray

    @classmethod
    def fit(cls, outputs: Outputs, margins: FloatArray, labels: LabelMatrix) -> "SiblingSigmoid":
        """Fit to the nodes whose parents are all true; see `Calibration.fit`."""
        h = outputs.hierarchy
        coefficients = np.tile([1.0, 0.0], (LEVELS + 1, 1))
        levels = outputs.levels(outputs.nodes)
        closed = h.closure(labels).tocsc()
        found: dict[int, list[tuple[FloatArray, Any]]] = {}
        for node, output, level in zip(outputs.nodes, outputs.node_outputs, levels, strict=True):
            rows = documents_below(h, closed, int(node))
            true = np.isin(rows, closed.indices[closed.indptr[node] : closed.indptr[node + 1]])
            known = margins[rows, output] > ABSENT
            found.setdefault(int(level), []).append((margins[rows, output][known], true[known]))
        for level, parts in found.items():
            given, true = (np.concatenate([part[which] for part in parts]) for which in (0, 1))
            if true.any():
                coefficients[level] = fit_sigmoid(given, true)
        return cls(outputs, coefficients)

    def arrays(self) -> Arrays:
        """Return the fitted parameters, to save."""
        return {"sigmoids": self.coefficients}

    @staticmethod
    def schema() -> dict[str, Array]:
        """Declare what `arrays` returns."""
        return {"sigmoids": Array("float64", (str(LEVELS + 1), "2"), -LARGEST_PARAMETER, LARGEST_PARAMETER)}

    @staticmethod
    def check(outputs: Outputs, arrays: Arrays) -> None:
        """Refuse nodes without an output."""
        _require_every_output(outputs)

    @classmethod
    def of(cls, outputs: Outputs, arrays: Arrays) -> "SiblingSigmoid":
        """Make a calibration of what `arrays` returned."""
        return cls(outputs, arrays["sigmoids"])

    def _node_probabilities(self, margins: FloatArray) -> FloatArray:
        h = self.outputs.hierarchy
        output = np.full(len(h), -1, np.int32)
        output[self.outputs.nodes] = self.outputs.node_outputs
        slopes, intercepts = self.coefficients[np.minimum(h.depth, LEVELS)].T.copy()
        return kernels.node_sigmoids(margins, output, h.parent_ptr, h.parent_idx, slopes, intercepts)


def _require_every_output(outputs: Outputs) -> None:
    if (outputs.node_outputs < 0).any():
        raise TreelabelError("node_outputs holds -1, but every node of a conditional head has an output")


def documents_below(hierarchy: Hierarchy, closed: Any, node: int) -> LongArray:
    """Find the documents that have all parents of a node: those its output is learned from.

    Parameters
    ----------
    hierarchy : Hierarchy
        The hierarchy.
    closed : csc_array of shape (documents, nodes)
        The labels of documents and their ancestors.
    node : int
        A node.

    Returns
    -------
    array of int64
        Row numbers, increasing.
    """
    parents = hierarchy.parent_idx[hierarchy.parent_ptr[node] : hierarchy.parent_ptr[node + 1]]
    rows: LongArray = np.arange(closed.shape[0])
    for parent in parents[parents >= 0].tolist():
        having = closed.indices[closed.indptr[parent] : closed.indptr[parent + 1]]
        rows = np.intersect1d(rows, having) if len(rows) < closed.shape[0] else np.sort(having).astype(np.int64)
    return rows
