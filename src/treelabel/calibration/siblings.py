"""Conditional calibrations: P(n) = P(parent) x P(n | parent), by a softmax over siblings or by sigmoids."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from treelabel.calibration.contract import ABSENT, LARGEST_PARAMETER, LEVELS, MarginCalibration, OutputSpace, levels_of
from treelabel.calibration.level_sums import fit_level_shifts
from treelabel.calibration.likelihood import fit_sigmoid, fit_softmax_temperature
from treelabel.calibration.path_kernels import Sums, mix_uniform
from treelabel.calibration.path_softmax import fit_uniform_weights, sums_of
from treelabel.core.array_schema import Array, Arrays
from treelabel.core.compute import kernel
from treelabel.core.errors import TreelabelError
from treelabel.core.types import DoubleArray, FloatArray, IntArray, LongArray
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.label_matrices import LabelMatrix


@dataclass(frozen=True, eq=False)
class SiblingGroups:
    """Groups of siblings, parents before children: their outputs, nodes (-1: a stop at their parent), and parents."""

    ptr: LongArray
    outputs: IntArray
    nodes: IntArray
    parents: IntArray

    @classmethod
    def of(cls, outputs: OutputSpace) -> "SiblingGroups":
        """Find the groups among the nodes seen in training; a stop at a node is one of its children."""
        h = outputs.hierarchy
        stops = outputs.stops
        parents = np.concatenate([h.parent[outputs.nodes], outputs.terminals[stops]])
        members = np.concatenate([outputs.node_outputs, outputs.terminal_outputs[stops]])
        nodes = np.concatenate([outputs.nodes, np.full(len(stops), -1, np.int32)])
        order = np.argsort(parents, kind="stable")
        groups, first = np.unique(parents[order], return_index=True)
        ptr = np.concatenate([first, [len(order)]]).astype(np.int64)
        return cls(ptr, members[order].astype(np.int32), nodes[order].astype(np.int32), groups.astype(np.int32))

    def levels(self, outputs: OutputSpace) -> IntArray:
        """Return the level of each group's nodes."""
        depth = np.where(self.parents < 0, 0, outputs.hierarchy.depth[np.maximum(self.parents, 0)])
        levels: IntArray = np.minimum(depth + 1, LEVELS).astype(np.int32)
        return levels


@dataclass(frozen=True, eq=False)
class SiblingSoftmax(MarginCalibration):
    """P(n | parent) = softmax over siblings of margin / temperature, mixed with the uniform distribution.

    Temperatures (`inverse_temperatures` are 1 / T) and weights of the uniform distribution have one value per level.
    """

    parameters: ClassVar = {
        "inverse_temperatures": Array("float64", (str(LEVELS + 1),), 0, LARGEST_PARAMETER),
        "uniform_weights": Array("float64", (str(LEVELS + 1),), 0, 1),
    }
    inverse_temperatures: DoubleArray = field(default_factory=lambda: np.ones(LEVELS + 1))
    uniform_weights: DoubleArray = field(default_factory=lambda: np.zeros(LEVELS + 1))

    def fit(self, evidence: FloatArray, labels: LabelMatrix) -> "SiblingSoftmax":
        """Fit temperatures and weights; see `Calibration.fit`."""
        groups, h = self._groups, self.outputs.hierarchy
        levels = groups.levels(self.outputs)
        inverse = np.ones(LEVELS + 1)
        for level in np.unique(levels):
            logits, true = _choices(groups, np.flatnonzero(levels == level), evidence, self.outputs, labels)
            if len(true):
                inverse[level] = fit_softmax_temperature(logits, true)
        plain = replace(self, inverse_temperatures=inverse)
        weights = fit_uniform_weights(h, plain.probabilities(evidence), h.closure(labels))
        return replace(plain, uniform_weights=weights)

    def check(self, arrays: Arrays) -> None:
        """Refuse a DAG, and nodes without an output."""
        _ = self.outputs.hierarchy.parent
        _require_every_output(self.outputs)

    @cached_property
    def _sums(self) -> Sums:
        return sums_of(self.outputs, self.uniform_weights)

    @cached_property
    def _groups(self) -> SiblingGroups:
        return SiblingGroups.of(self.outputs)

    def _node_probabilities(self, margins: FloatArray) -> FloatArray:
        h, groups = self.outputs.hierarchy, self._groups
        inverse = self.inverse_temperatures[groups.levels(self.outputs)]
        p = group_softmax(margins, groups.ptr, groups.outputs, groups.nodes, groups.parents, inverse, len(h))
        mix_uniform(p, self._sums)
        return p


def _choices(
    groups: SiblingGroups, chosen: LongArray, margins: FloatArray, outputs: OutputSpace, labels: LabelMatrix
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
            padded = np.full((len(rows), widest), -np.inf, np.float32)
            padded[:, : last - first] = margins[rows][:, groups.outputs[first:last]]
            known = padded[:, member - first] > ABSENT
            logits.append(padded[known])
            true.append(np.full(int(known.sum()), member - first))
    return np.concatenate(logits), np.concatenate(true)


@dataclass(frozen=True, eq=False)
class SiblingSigmoid(MarginCalibration):
    """P(n | parents) = sigmoid(slope x margin + intercept), one slope and intercept per level (Platt scaling).

    P(n) is at most that of any parent. `sigmoids` is levels x (slope, intercept).
    """

    parameters: ClassVar = {"sigmoids": Array("float64", (str(LEVELS + 1), "2"), -LARGEST_PARAMETER, LARGEST_PARAMETER)}
    sigmoids: DoubleArray = field(default_factory=lambda: np.tile([1.0, 0.0], (LEVELS + 1, 1)))

    def fit(self, evidence: FloatArray, labels: LabelMatrix) -> "SiblingSigmoid":
        """Fit to the nodes whose parents are all true; see `Calibration.fit`."""
        h, outputs = self.outputs.hierarchy, self.outputs
        sigmoids = self.sigmoids.copy()
        closed = h.closure(labels).tocsc()
        by_level: dict[int, list[tuple[FloatArray, Any]]] = {}
        columns = outputs.nodes, outputs.node_outputs, levels_of(h, outputs.nodes)
        for node, output, level in zip(*columns, strict=True):
            rows = documents_below(h, closed, int(node))
            true = np.isin(rows, closed.indices[closed.indptr[node] : closed.indptr[node + 1]])
            known = evidence[rows, output] > ABSENT
            by_level.setdefault(int(level), []).append((evidence[rows, output][known], true[known]))
        for level, parts in by_level.items():
            margins, true = (np.concatenate([part[which] for part in parts]) for which in (0, 1))
            if true.any():
                sigmoids[level] = fit_sigmoid(margins, true)
        return replace(self, sigmoids=sigmoids)

    def match_sums(self, evidence: FloatArray, labels: LabelMatrix) -> "SiblingSigmoid":
        """Shift the intercepts until the sums of levels are true; see `MarginCalibration.match_sums`."""

        def shifted(shifts: DoubleArray) -> "SiblingSigmoid":
            return replace(self, sigmoids=self.sigmoids + np.column_stack([np.zeros(LEVELS + 1), shifts]))

        shifts = fit_level_shifts(lambda each: shifted(each).probabilities(evidence), self.outputs, evidence, labels)
        return shifted(shifts)

    def check(self, arrays: Arrays) -> None:
        """Refuse nodes without an output."""
        _require_every_output(self.outputs)

    def _node_probabilities(self, margins: FloatArray) -> FloatArray:
        h = self.outputs.hierarchy
        output = np.full(len(h), -1, np.int32)
        output[self.outputs.nodes] = self.outputs.node_outputs
        slopes, intercepts = self.sigmoids[levels_of(h, np.arange(len(h)))].T.copy()
        return node_sigmoids(margins, output, h.parent_ptr, h.parent_idx, slopes, intercepts)


def _require_every_output(outputs: OutputSpace) -> None:
    if (outputs.node_outputs < 0).any():
        raise TreelabelError("node_outputs holds -1, but every node of a conditional head has an output")


def documents_below(hierarchy: Hierarchy, closed: Any, node: int) -> LongArray:
    """Find the documents that have all parents of a node, from which its output is learned.

    Parameters
    ----------
    closed : csc_array of shape (documents, nodes)
        The labels of documents and their ancestors.

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


@kernel
def group_softmax(
    margins: FloatArray,
    ptr: LongArray,
    outputs: IntArray,
    nodes: IntArray,
    parents: IntArray,
    inverse_temperatures: DoubleArray,
    count: int,
) -> FloatArray:
    """Compute P(n) = P(parent) x softmax over siblings of margin / temperature; node -1 is a stop at the parent.

    Groups are sorted with parents before children; labels never seen in training have 0.
    """
    p = np.zeros((len(margins), count), np.float32)
    for row in range(len(margins)):
        out, values = p[row], margins[row]
        for group in range(len(parents)):
            first, last = ptr[group], ptr[group + 1]
            whole = np.float32(1) if parents[group] < 0 else out[parents[group]]
            inverse = np.float32(inverse_temperatures[group])
            largest = np.float32(-np.inf)
            for member in range(first, last):
                largest = max(largest, inverse * values[outputs[member]])
            total = np.float32(0)
            for member in range(first, last):
                total += np.exp(inverse * values[outputs[member]] - largest)
            for member in range(first, last):
                if nodes[member] >= 0:
                    out[nodes[member]] = whole * np.exp(inverse * values[outputs[member]] - largest) / total
    return p


@kernel
def node_sigmoids(
    margins: FloatArray,
    output: IntArray,
    parent_ptr: IntArray,
    parent_idx: IntArray,
    slopes: DoubleArray,
    intercepts: DoubleArray,
) -> FloatArray:
    """Compute P(n) = the least P of its parents x sigmoid(slope x margin + intercept); 0 without an output."""
    p = np.zeros((len(margins), len(output)), np.float32)
    for row in range(len(margins)):
        out = p[row]
        for node in range(len(output)):
            if output[node] < 0:
                continue
            whole = np.float32(1)
            for edge in range(parent_ptr[node], parent_ptr[node + 1]):
                if parent_idx[edge] >= 0:
                    whole = min(whole, out[parent_idx[edge]])
            z = slopes[node] * margins[row, output[node]] + intercepts[node]
            out[node] = whole / np.float32(1 + np.exp(-z))
    return p
