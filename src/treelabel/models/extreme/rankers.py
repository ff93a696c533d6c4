"""Rankers: squared-hinge classifiers of the children of each cluster, learned from its own documents."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from itertools import groupby
from typing import Any

import numpy as np
from scipy import sparse

from treelabel.core.array_schema import Array, Arrays, Schema, indices
from treelabel.core.compute import in_threads
from treelabel.core.errors import TreelabelError
from treelabel.core.learning_tasks import has_executor, run_tasks
from treelabel.core.stopping import StopSignal
from treelabel.core.types import BoolArray, FloatArray, IntArray, LongArray
from treelabel.models.extreme.compact_rows import compact_rows
from treelabel.models.linear.descent import learn_block
from treelabel.models.linear.pruned_weights import large_weights
from treelabel.models.linear.vector_blocks import BLOCK

# A cluster with more than 1 / this of the work is large.
LARGE_SHARE = 16
# Tasks that its children are divided into at most, where tasks are done by other processes.
MOST_PIECES = 64
# The fields of `Rankers` that are those of all clusters, one after the other.
PER_CLUSTER = ("features", "children", "weights", "bias")


@dataclass(frozen=True, eq=False)
class Rankers:
    """Weights of the children of each cluster of a level, sparse, cluster by cluster.

    Parameters
    ----------
    clusters : array of shape (clusters + 1,)
        Where the features of each cluster begin.
    features : array of int32
        The features for which some child of the cluster has a weight, increasing within a cluster.
    rows : array of shape (features + 1,)
        Where the weights of each of them begin.
    children : array of int32
        The child that each weight belongs to, counted within the cluster.
    bias : array of shape (children of all clusters,)
        Their biases.
    """

    clusters: LongArray
    features: IntArray
    rows: LongArray
    children: IntArray
    weights: FloatArray
    bias: FloatArray

    def arrays(self) -> Arrays:
        """Return what was learned, to save."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @staticmethod
    def schema(width: int, clusters: int, nodes: int) -> Schema:
        """Declare what `arrays` returns; see `check` too.

        Parameters
        ----------
        width, clusters, nodes : int
            The number of features, of clusters, and of children of all clusters.

        Returns
        -------
        Schema
        """
        arrays = {
            "clusters": Array("int64", ("clusters + 1",), 0),
            "features": indices("places", "width"),
            "rows": Array("int64", ("places + 1",), 0),
            "children": indices("entries", "nodes"),
            "weights": Array("float32", ("entries",)),
            "bias": Array("float32", ("nodes",)),
        }
        sizes = {"clusters": clusters, "width": width, "nodes": nodes}
        return Schema(arrays, (), sizes, {"places": width * clusters, "entries": width * nodes})

    @staticmethod
    def check(children: LongArray, arrays: Arrays) -> None:
        """Refuse arrays, each of which fits `schema`, that do not fit each other or the tree.

        Parameters
        ----------
        children : array of shape (clusters + 1,)
            The children of each cluster.
        arrays : mapping
            Arrays from a file.
        """
        for name, last in (("clusters", len(arrays["features"])), ("rows", len(arrays["weights"]))):
            ends = arrays[name]
            if ends[0] != 0 or ends[-1] != last or (np.diff(ends) < 0).any():
                raise TreelabelError(f"{name} does not divide what it should")
        rising = np.diff(arrays["features"]) > 0
        starts = arrays["clusters"][1:-1]
        rising[starts[(starts > 0) & (starts <= len(rising))] - 1] = True
        if not rising.all():
            raise TreelabelError("the features of a cluster do not rise")
        clusters = np.repeat(np.arange(len(children) - 1), np.diff(arrays["rows"][arrays["clusters"]]))
        if (arrays["children"] >= np.diff(children)[clusters]).any():
            raise TreelabelError("children holds a child that its cluster does not have")


@dataclass(frozen=True)
class Solver:
    """How rankers are learned: `c` is scikit-learn's C; weights below `prune` are dropped."""

    c: float = 1.0
    max_iter: int = 7
    prune: float = 0.05
    seed: int = 0


def train_rankers(
    features: sparse.csr_array,
    shown: sparse.csr_array,
    positive: sparse.csr_array,
    children: LongArray,
    solver: Solver,
    emphasis: FloatArray | None,
    stop: StopSignal,
) -> Rankers:
    """Learn a squared-hinge classifier for each child of each cluster, sixteen children at a time.

    Costs about shown documents x features per document x children of their cluster / 16 for each of some five passes;
    memory holds the documents of one cluster per thread, with features numbered anew, so that weights stay in the
    cache. Clusters with one child learn nothing.

    Parameters
    ----------
    features : csr_array of shape (documents, features)
        Rows of length 1.
    shown : csr_array of shape (documents, clusters)
        The documents that each cluster learns from: its own (teacher forcing), and those that a matcher sends there.
    positive : csr_array of shape (documents, children)
        Marks the documents of each child.
    children : array of shape (clusters + 1,)
        The children of each cluster.
    solver : Solver
        C and so on.
    emphasis : array of shape (children,), optional
        How many times the weight of other errors those of a child's own documents have.
    stop : StopSignal
        Once it is true, the remaining children are learned in few passes.

    Returns
    -------
    Rankers
    """
    job = RankerJob(features, sparse.csc_array(shown), sparse.csc_array(positive), children, solver, emphasis, stop)
    sizes = np.diff(children)
    costs = np.diff(job.shown.indptr) * sizes
    # A cluster that is much of the work is shared by all threads, or by several tasks; the others are a task each.
    large = np.flatnonzero(costs * LARGE_SHARE > costs.sum()).tolist()
    small = np.setdiff1d(np.arange(len(children) - 1), large).tolist()
    learned: dict[int, Rankers] = {}
    if not has_executor():
        learned = {cluster: job.learn_cluster(cluster, in_threads) for cluster in large}
    tasks = [(cluster, int(children[cluster]), int(children[cluster + 1])) for cluster in small]
    if has_executor():
        tasks = [task for cluster in large for task in _pieces(cluster, children)] + tasks
    pieces: dict[tuple[int, int, int], Rankers] = {}
    work = [float(costs[cluster] * (last - first) / max(1, sizes[cluster])) for cluster, first, last in tasks]
    run_tasks(job, tasks, pieces.__setitem__, interrupt=stop.interrupt, costs=work)
    for cluster, same in groupby(tasks, key=lambda task: task[0]):
        learned[cluster] = _join_pieces([pieces.pop(task) for task in same])
    parts = [learned.pop(cluster) for cluster in range(len(children) - 1)]
    sizes = np.cumsum([0, *(len(part.features) for part in parts)])
    entries = np.cumsum([0, *(len(part.children) for part in parts)])
    rows = np.concatenate([[0], *(part.rows[1:] + low for part, low in zip(parts, entries, strict=False))])
    columns = {name: [getattr(part, name) for part in parts] for name in PER_CLUSTER}
    # What has been put together makes room.
    del parts
    joined = {name: np.concatenate(columns.pop(name)) for name in PER_CLUSTER}
    return Rankers(clusters=sizes, rows=rows.astype(np.int64), **joined)


def _pieces(cluster: int, children: LongArray) -> list[tuple[int, int, int]]:
    """Divide the children of a large cluster into tasks."""
    first, last = int(children[cluster]), int(children[cluster + 1])
    size = BLOCK * max(1, (last - first) // (BLOCK * MOST_PIECES))
    return [(cluster, low, min(low + size, last)) for low in range(first, last, size)]


def _join_pieces(pieces: Sequence[Rankers]) -> Rankers:
    """Put the weights of consecutive children of one cluster together, feature by feature."""
    if len(pieces) == 1:
        return pieces[0]
    triples = [(np.repeat(each.features, np.diff(each.rows)), each.children, each.weights) for each in pieces]
    names = np.arange(max(int(part[0].max(initial=-1)) for part in triples) + 1, dtype=np.int32)
    return Rankers(*_by_feature(triples, names), np.concatenate([each.bias for each in pieces]))


@dataclass(frozen=True, eq=False)
class RankerJob:
    """The input of `train_rankers`, documents by cluster and by child.

    A task is a cluster, and the first and last of the children to learn: all of them, or some of a large cluster.
    """

    features: sparse.csr_array
    shown: sparse.csc_array
    positive: sparse.csc_array
    children: LongArray
    solver: Solver
    emphasis: FloatArray | None
    stop: StopSignal

    def learn(self, task: tuple[int, int, int]) -> Rankers:
        """Learn some children of a cluster."""
        cluster, low, high = task
        return self.learn_cluster(cluster, map, low, high)

    def learn_cluster(
        self, cluster: int, each: Callable[..., Iterable[Any]] = map, low: int | None = None, high: int | None = None
    ) -> Rankers:
        """Learn the children of one cluster, or some, sixteen at a time, in turn or in threads."""
        first, last = int(self.children[cluster]), int(self.children[cluster + 1])
        begin, end = first if low is None else low, last if high is None else high
        documents = np.sort(self.shown.indices[self.shown.indptr[cluster] : self.shown.indptr[cluster + 1]])
        if last - first < 2 or not len(documents):
            # Nothing to choose, or nothing known: an only child is certain, other children are never taken.
            nothing, ends = np.zeros(0, np.int32), np.zeros(2, np.int64)
            bias = np.full(end - begin, 1 if last - first < 2 else -1, np.float32)
            return Rankers(ends, nothing, ends[:1], nothing, np.zeros(0, np.float32), bias)
        every = self.features
        ptr, idx, val, names = compact_rows(every.indptr, every.indices, every.data, documents, every.shape[1])
        total = np.bincount(idx, val, len(names)).astype(np.float32)
        rng = np.random.default_rng([self.solver.seed, cluster])
        orders = [rng.permutation(len(documents)) for _ in range(self.solver.max_iter)]
        ridges = np.full(len(documents), 0.5 / self.solver.c, np.float32)

        def block(low: int) -> tuple[Any, FloatArray]:
            few = np.arange(low, min(low + BLOCK, end))
            marks = _marks(self.positive, few, documents)
            relief = np.ones(BLOCK, np.float32)
            if self.emphasis is not None:
                relief[: len(few)] = 1 / self.emphasis[few]
            weights, bias = learn_block(ptr, idx, val, total, marks, orders, ridges, relief, self.stop)
            return large_weights(weights, (few - first).astype(np.int32), self.solver.prune), bias[: len(few)]

        triples, biases = zip(*each(block, range(begin, end, BLOCK)), strict=True)
        return Rankers(*_by_feature(triples, names), np.concatenate(biases))


def _marks(by_child: sparse.csc_array, few: LongArray, documents: IntArray) -> BoolArray:
    """Mark which of the documents, which are sorted, have each of some children: documents x 16."""
    marks = np.zeros((len(documents), BLOCK), np.bool_)
    for b, child in enumerate(few.tolist()):
        members = by_child.indices[by_child.indptr[child] : by_child.indptr[child + 1]]
        position = np.searchsorted(documents, members)
        position = np.minimum(position, len(documents) - 1)
        marks[position[documents[position] == members], b] = True
    return marks


def _by_feature(
    parts: Sequence[tuple[IntArray, IntArray, FloatArray]], names: IntArray
) -> tuple[LongArray, IntArray, LongArray, IntArray, FloatArray]:
    """Put the weights of the blocks of a cluster together, feature by feature, as in `Rankers`."""
    features, children, values = (np.concatenate([part[which] for part in parts]) for which in range(3))
    order = np.argsort(names[features], kind="stable")
    named = names[features[order]]
    distinct, starts = np.unique(named, return_index=True)
    rows = np.append(starts, len(named)).astype(np.int64)
    return np.array([0, len(distinct)]), distinct, rows, children[order], values[order]
