"""Conditional heads: the probability of a node is that of its parent times that of the node given its parent."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from treelabel.calibration import sibling_kernels as kernels
from treelabel.calibration.fitting import fit_sigmoid, fit_slope
from treelabel.calibration.outputs import LEVELS, Outputs
from treelabel.calibration.path_kernels import Sums, share_alike
from treelabel.calibration.path_map import MOST_SLOPE, sibling_shares, sums_of
from treelabel.core.compute import DoubleArray, FloatArray, IntArray, LongArray
from treelabel.core.errors import TreelabelError
from treelabel.models.base import Training
from treelabel.models.linear.descent import ABSENT
from treelabel.models.schema import Array, Arrays


@dataclass(frozen=True, eq=False)
class Groups:
    """Groups of siblings, parents before children: outputs, nodes (-1: the end inside their parent), and parents."""

    ptr: LongArray
    outputs: IntArray
    nodes: IntArray
    parents: IntArray

    @classmethod
    def of(cls, outputs: Outputs) -> "Groups":
        """Find the groups among what training has seen; an end inside a node is one of its children."""
        h = outputs.hierarchy
        inside = outputs.inside
        parents = np.concatenate([h.parent[outputs.nodes], outputs.ends[inside]])
        members = np.concatenate([outputs.of_nodes, outputs.of_ends[inside]])
        nodes = np.concatenate([outputs.nodes, np.full(len(inside), -1, np.int32)])
        order = np.argsort(parents, kind="stable")
        found, first = np.unique(parents[order], return_index=True)
        ptr = np.concatenate([first, [len(order)]]).astype(np.int64)
        return cls(ptr, members[order].astype(np.int32), nodes[order].astype(np.int32), found.astype(np.int32))

    def levels(self, outputs: Outputs) -> IntArray:
        """The level of each group's nodes."""
        depth = np.where(self.parents < 0, 0, outputs.hierarchy.depth[np.maximum(self.parents, 0)])
        levels: IntArray = np.minimum(depth + 1, LEVELS).astype(np.int32)
        return levels


@dataclass(frozen=True, eq=False)
class SoftmaxMap:
    """P(n | parent) = softmax over siblings of slope x output, a slope a level; and what siblings share alike."""

    outputs: Outputs
    slopes: DoubleArray
    shares: DoubleArray

    @classmethod
    def fit(cls, outputs: Outputs, margins: FloatArray, held: Training) -> "SoftmaxMap":
        """Learn the slopes from documents held out of training."""
        groups = Groups.of(outputs)
        levels = groups.levels(outputs)
        slopes = np.ones(LEVELS + 1)
        for level in np.unique(levels):
            logits, true = _choices(groups, np.flatnonzero(levels == level), margins, outputs, held)
            if len(true):
                slopes[level] = fit_slope(logits, true)
        plain = cls(outputs, slopes, np.zeros(LEVELS + 1))
        return cls(outputs, slopes, sibling_shares(outputs.hierarchy, plain.probabilities(margins), held.closed))

    def arrays(self) -> Arrays:
        """What is learned, to save."""
        return {"slopes": self.slopes, "shares": self.shares}

    @staticmethod
    def declared() -> dict[str, Array]:
        """Declare what `arrays` gives."""
        size = (str(LEVELS + 1),)
        return {"slopes": Array("float64", size, 0, MOST_SLOPE), "shares": Array("float64", size, 0, 1)}

    @staticmethod
    def check(outputs: Outputs, arrays: Arrays) -> None:
        """Refuse a DAG, and nodes without an output."""
        _ = outputs.hierarchy.parent
        _require_every_output(outputs)

    @classmethod
    def of(cls, outputs: Outputs, arrays: Arrays) -> "SoftmaxMap":
        """Take back what `arrays` gave."""
        return cls(outputs, arrays["slopes"], arrays["shares"])

    @cached_property
    def _sums(self) -> Sums:
        return sums_of(self.outputs, self.shares)

    @cached_property
    def _groups(self) -> Groups:
        return Groups.of(self.outputs)

    def probabilities(self, margins: FloatArray) -> Any:
        """Turn outputs into the probabilities of all nodes."""
        h, groups = self.outputs.hierarchy, self._groups
        slopes = self.slopes[groups.levels(self.outputs)]
        found = kernels.group_softmax(margins, groups.ptr, groups.outputs, groups.nodes, groups.parents, slopes, len(h))
        share_alike(found, self._sums)
        return found


def _choices(
    groups: Groups, chosen: LongArray, margins: FloatArray, outputs: Outputs, held: Training
) -> tuple[FloatArray, LongArray]:
    """List documents that are in these groups with a known member: logits (padded with -inf), and the true member."""
    h = outputs.hierarchy
    closed, ends = held.closed.tocsc(), h.most_specific(held.labels).tocsc()
    widest = int(np.diff(groups.ptr)[chosen].max())
    logits, true = [np.empty((0, widest), np.float32)], [np.empty(0, np.int64)]
    for group in chosen.tolist():
        first, last = groups.ptr[group], groups.ptr[group + 1]
        if last - first < 2:
            continue
        for member in range(first, last):
            node = groups.nodes[member]
            marks = closed if node >= 0 else ends
            column = node if node >= 0 else groups.parents[group]
            rows = marks.indices[marks.indptr[column] : marks.indptr[column + 1]]
            found = np.full((len(rows), widest), -np.inf, np.float32)
            found[:, : last - first] = margins[rows][:, groups.outputs[first:last]]
            known = found[:, member - first] > ABSENT
            logits.append(found[known])
            true.append(np.full(int(known.sum()), member - first))
    return np.concatenate(logits), np.concatenate(true)


@dataclass(frozen=True, eq=False)
class SigmoidMap:
    """P(n | parents) = sigmoid(slope x output + shift), a slope and a shift a level; P(n) is below all its parents'."""

    outputs: Outputs
    numbers: DoubleArray

    @classmethod
    def fit(cls, outputs: Outputs, margins: FloatArray, held: Training) -> "SigmoidMap":
        """Learn slopes and shifts from the nodes whose parents are all true in documents held out of training."""
        h = outputs.hierarchy
        numbers = np.tile([1.0, 0.0], (LEVELS + 1, 1))
        levels = outputs.levels(outputs.nodes)
        closed = held.closed.tocsc()
        found: dict[int, list[tuple[FloatArray, Any]]] = {}
        for node, output, level in zip(outputs.nodes, outputs.of_nodes, levels, strict=True):
            rows = rows_below(h, closed, int(node))
            true = np.isin(rows, closed.indices[closed.indptr[node] : closed.indptr[node + 1]])
            known = margins[rows, output] > ABSENT
            found.setdefault(int(level), []).append((margins[rows, output][known], true[known]))
        for level, parts in found.items():
            given, true = (np.concatenate([part[which] for part in parts]) for which in (0, 1))
            if true.any():
                numbers[level] = fit_sigmoid(given, true)
        return cls(outputs, numbers)

    def arrays(self) -> Arrays:
        """What is learned, to save."""
        return {"sigmoids": self.numbers}

    @staticmethod
    def declared() -> dict[str, Array]:
        """Declare what `arrays` gives."""
        return {"sigmoids": Array("float64", (str(LEVELS + 1), "2"), -MOST_SLOPE, MOST_SLOPE)}

    @staticmethod
    def check(outputs: Outputs, arrays: Arrays) -> None:
        """Refuse nodes without an output."""
        _require_every_output(outputs)

    @classmethod
    def of(cls, outputs: Outputs, arrays: Arrays) -> "SigmoidMap":
        """Take back what `arrays` gave."""
        return cls(outputs, arrays["sigmoids"])

    def probabilities(self, margins: FloatArray) -> Any:
        """Turn outputs into the probabilities of all nodes."""
        h = self.outputs.hierarchy
        output = np.full(len(h), -1, np.int32)
        output[self.outputs.nodes] = self.outputs.of_nodes
        slopes, shifts = self.numbers[np.minimum(h.depth, LEVELS)].T.copy()
        return kernels.node_sigmoids(margins, output, h.parent_ptr, h.parent_idx, slopes, shifts)


def _require_every_output(outputs: Outputs) -> None:
    if (outputs.of_nodes < 0).any():
        raise TreelabelError("of_nodes holds -1, but every node of a conditional head has an output")


def rows_below(h: Any, closed: Any, node: int) -> LongArray:
    """The documents that have all parents of a node: those its output is learned from."""
    parents = [parent for parent in h.parent_idx[h.parent_ptr[node] : h.parent_ptr[node + 1]].tolist() if parent >= 0]
    rows: LongArray = np.arange(closed.shape[0])
    for parent in parents:
        having = closed.indices[closed.indptr[parent] : closed.indptr[parent + 1]]
        rows = np.intersect1d(rows, having) if len(rows) < closed.shape[0] else np.sort(having).astype(np.int64)
    return rows


def require_tree_for_softmax(train: Training) -> None:
    """Refuse what a softmax over siblings cannot do."""
    if train.regime == "many":
        raise TreelabelError(
            "conditional_softmax needs documents with one path, but some have several; "
            "use head=conditional_sigmoid or head=nodes"
        )
    if not train.hierarchy.is_tree:
        raise TreelabelError(
            "conditional_softmax needs a tree, but the hierarchy is a DAG; use head=conditional_sigmoid or head=nodes, "
            "or make it a tree with unfold()"
        )
