"""A forest of label trees: candidates of all trees together, and the evidence for each of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy import sparse

from treelabel.calibration.candidates import PARTS, Candidates, largest_evidence
from treelabel.core.array_schema import Arrays, Schema, with_prefix
from treelabel.core.bounded_memory import release_freed_memory
from treelabel.core.compute import fast_kernel, over_rows
from treelabel.core.matrices import normalize_rows
from treelabel.core.stopping import StopSignal
from treelabel.core.types import FloatArray, IntArray, LongArray
from treelabel.hierarchy.similarity import inverse_propensities
from treelabel.models.extreme.beam import batch_size, search, search_some
from treelabel.models.extreme.cluster_ranking import Negatives, shown_documents
from treelabel.models.extreme.clustering import pifa
from treelabel.models.extreme.label_tree import LabelTree
from treelabel.models.extreme.rankers import Rankers, Solver, train_rankers
from treelabel.models.persistence.schema import csr_arrays, csr_of, csr_schema

# Features of a label that it is clustered by, and that documents are compared with: more are no better.
CLUSTER_FEATURES = 128
PROTOTYPE_FEATURES = 32
# Branches of a node at most; where there are more clusters, a level of clusters of clusters comes above them.
MOST_BRANCHES = 256
# A score below this is as good as none.
LEAST_SCORE = -30.0

# Makes a tree of the features of labels.
Make = Callable[[sparse.csr_array], LabelTree]


@dataclass(frozen=True, eq=False)
class Forest:
    """Label trees with their rankers, the prototypes of labels, and their names as features.

    Parameters
    ----------
    trees : tuple of (LabelTree, tuple of Rankers)
        Each tree, and the rankers of its levels.
    prototypes : csr_array of shape (labels, features)
        The means of the labels' documents, names included: their largest features, in rows of length 1.
    names : csr_array of shape (labels, features)
        The labels' names; empty rows where these are not known.
    """

    trees: tuple[tuple[LabelTree, tuple[Rankers, ...]], ...]
    prototypes: sparse.csr_array
    names: sparse.csr_array

    def candidates(self, features: sparse.csr_array, beam_size: int, count: int) -> Candidates:
        """Find candidates, and the evidence for each: the log of its mean score in the trees, and two cosines.

        Costs what the searches cost, and about candidates x 64 for the cosines of a document.

        Parameters
        ----------
        features : csr_array of shape (documents, features)
            Documents.
        how : Search
            Width of the beams, and number of candidates.

        Returns
        -------
        Candidates
        """
        size = min(batch_size(tree, beam_size) for tree, _ in self.trees)
        some = partial(self._some, features, beam_size, count)
        return Candidates.concat(over_rows(some, features.shape[0], 64, size))

    def _some(self, features: sparse.csr_array, beam_size: int, count: int, start: int, stop: int) -> Candidates:
        beams = [search_some(features, tree, levels, beam_size, count, start, stop) for tree, levels in self.trees]
        ptr = np.stack([beam.ptr for beam in beams])
        labels = np.concatenate([tree.labels[beam.nodes] for (tree, _), beam in zip(self.trees, beams, strict=True)])
        scores = np.concatenate([beam.scores for beam in beams])
        offsets = np.cumsum([0, *(len(beam.nodes) for beam in beams)])
        ends, best, means = mean_scores(ptr, offsets, labels, scores, count)
        rows = features.indptr[start : stop + 1], features.indices, features.data
        evidence = np.zeros((len(best), PARTS), np.float32)
        evidence[:, 0] = means
        for which, matrix in ((1, self.prototypes), (2, self.names)):
            label_rows = matrix.indptr, matrix.indices, matrix.data
            evidence[:, which] = cosines(*rows, *label_rows, features.shape[1], ends, best)
        return Candidates(ends, best, evidence)

    # Saving

    def arrays(self) -> Arrays:
        """Return what was learned, to save."""
        arrays: dict[str, Any] = {}
        for which, (tree, levels) in enumerate(self.trees):
            arrays |= {f"{which}.{name}": array for name, array in tree.arrays().items()}
            for level, rankers in enumerate(levels):
                arrays |= {f"{which}.{level}.{name}": array for name, array in rankers.arrays().items()}
        return arrays | csr_arrays("prototypes", self.prototypes) | csr_arrays("names", self.names)

    @staticmethod
    def schema(trees: list[list[int]], labels: int, width: int) -> Schema:
        """Declare what `arrays` returns.

        Parameters
        ----------
        trees : list of lists of int
            The number of nodes of each level of each tree.
        labels, width : int
            The number of labels and of features.

        Returns
        -------
        Schema
        """
        parts = {f"{which}.": _tree_schema(sizes, labels, width) for which, sizes in enumerate(trees)}
        rows = csr_schema("prototypes", "labels"), csr_schema("names", "labels")
        return Schema(csr=rows, sizes={"labels": labels, "width": width}, parts=parts)

    @classmethod
    def of(cls, trees: list[list[int]], labels: int, width: int, arrays: Arrays) -> "Forest":
        """Make a forest of what `arrays` returned.

        Parameters
        ----------
        trees, labels, width
            As in `schema`.
        arrays : mapping
            Arrays that fit the schema.

        Returns
        -------
        Forest
        """
        made = []
        for which, sizes in enumerate(trees):
            inner = with_prefix(arrays, f"{which}.")
            levels = tuple(Rankers(**with_prefix(inner, f"{level}.")) for level in range(len(sizes)))
            made.append((LabelTree.of(inner), levels))
        return cls(tuple(made), *(csr_of(name, arrays, (labels, width)) for name in ("prototypes", "names")))


def _tree_schema(sizes: list[int], labels: int, width: int) -> Schema:
    """Declare the arrays of a tree and of its rankers; children are checked with the tree before rankers are."""
    above = [1, *sizes[:-1]]
    known = {"labels": labels, "levels": len(sizes), "instances": sizes[-1], "tree_ends": sum(above) + len(above)}

    def check(arrays: Arrays) -> None:
        tree = LabelTree.of(arrays)
        for level, ends in enumerate(tree.children):
            Rankers.check(ends, with_prefix(arrays, f"{level}."))

    levels = {
        f"{level}.": Rankers.schema(width, clusters, nodes)
        for level, (clusters, nodes) in enumerate(zip(above, sizes, strict=True))
    }
    return Schema(LabelTree.schema(), sizes=known, relations=(check,), parts=levels)


def tree_sizes(labels: int, leaf_size: int) -> list[int]:
    """Choose the number of clusters of each level above the labels.

    Parameters
    ----------
    labels : int
        The number of labels.
    leaf_size : int
        Labels of a cluster of the last level, about.

    Returns
    -------
    list of int

    >>> tree_sizes(16_000, 100), tree_sizes(1_000_000, 100), tree_sizes(50, 100)
    ([160], [100, 10000], [])
    """
    sizes: list[int] = []
    clusters = -(-labels // leaf_size)
    if clusters > 1:
        depth = int(np.ceil(np.log(clusters) / np.log(MOST_BRANCHES) - 1e-9))
        sizes = [round(clusters ** ((level + 1) / depth)) for level in range(depth)]
    return sizes


def fit_forest(
    features: sparse.csr_array,
    labels: sparse.csr_array,
    names: sparse.csr_array | None,
    make: Sequence[Make],
    solver: Solver,
    negatives: Negatives,
    beam_size: int,
    propensity: float,
    stop: StopSignal,
    done: Callable[[], object] = lambda: None,
    rows: LongArray | None = None,
) -> Forest:
    """Learn a forest.

    Where the names of labels are known, each of them is one more document, with that label alone: labels with few
    documents gain most, and labels without any can be found.

    Parameters
    ----------
    features : csr_array of shape (documents, features)
        Rows of length 1.
    names : csr_array of shape (labels, features) or None
        Names of labels as features, rows of length 1, empty where nothing is known.
    make : sequence of callables
        Each makes a tree of label features.
    solver : Solver
        How rankers are learned.
    negatives : {"gold", "matcher", "both"}
        The documents that rankers of a cluster see: its own, those that the level above sends there, or both.
    beam_size : int
        Clusters of a level that a document is sent to.
    propensity : float
        Errors of a label's own documents count its inverse propensity to this power times as much as others.
    stop : StopSignal
        When to hurry.
    done : callable
        Called when another tree is done.
    rows : array of int64, optional
        The documents to learn from; by default all.

    Returns
    -------
    Forest
    """
    if rows is not None:
        features, labels = features[rows], labels[rows]
    counts = np.bincount(labels.indices, minlength=labels.shape[1])
    emphasis = (inverse_propensities(counts, labels.shape[0]) ** propensity).astype(np.float32) if propensity else None
    if names is not None:
        known = np.flatnonzero(np.diff(names.indptr))
        features = sparse.csr_array(sparse.vstack([features, names[known]], format="csr"))
        of_names = sparse.eye_array(labels.shape[1], dtype=labels.dtype, format="csr")[known]
        labels = sparse.csr_array(sparse.vstack([labels, of_names], format="csr"))
    label_features = pifa(features, labels, CLUSTER_FEATURES)
    trees = list[tuple[LabelTree, tuple[Rankers, ...]]]()
    for each in make:
        release_freed_memory()
        tree = each(label_features)
        above, levels = tree.above(labels), list[Rankers]()
        shown = sparse.csr_array(np.ones((features.shape[0], 1), np.bool_))
        for level in range(tree.depth):
            release_freed_memory()
            extra = emphasis[tree.labels] if emphasis is not None and level + 1 == tree.depth else None
            levels.append(train_rankers(features, shown, above[level], tree.children[level], solver, extra, stop))
            if level + 1 < tree.depth:
                sent = None
                if negatives != "gold":
                    sent = search(features, tree, levels, beam_size, beam_size)
                    sent.data = np.ones(len(sent.data), np.bool_)
                shown = shown_documents(above[level], sent, negatives)
        trees.append((tree, tuple(levels)))
        done()
    release_freed_memory()
    if names is None:
        names = sparse.csr_array((labels.shape[1], features.shape[1]), dtype=np.float32)
    return Forest(tuple(trees), largest_features(label_features, PROTOTYPE_FEATURES), names)


def largest_features(rows: sparse.csr_array, most: int) -> sparse.csr_array:
    """Keep the features of each row that are largest by magnitude, and scale rows to length 1.

    Parameters
    ----------
    most : int
        How many features to keep.

    Returns
    -------
    csr_array of shape (rows, features)

    >>> largest_features(sparse.csr_array([[3.0, 1.0, 4.0]]), 2).toarray().astype(float).round(2).tolist()
    [[0.6, 0.0, 0.8]]
    """
    largest = largest_evidence(abs(rows), most)
    return normalize_rows(sparse.csr_array(rows.multiply(largest > 0))).astype(np.float32)


@fast_kernel
def mean_scores(
    ptr: LongArray, offsets: LongArray, labels: IntArray, scores: FloatArray, most: int
) -> tuple[LongArray, IntArray, FloatArray]:
    """Average the scores of labels over trees, keep the largest of each document, and return their logarithms.

    A label that stands in several clusters of a tree has its best score there; of equal scores the first are kept.
    """
    trees, documents = ptr.shape[0], ptr.shape[1] - 1
    longest = (ptr[:, 1:] - ptr[:, :-1]).sum(axis=0).max() if documents else 0
    best, means = np.empty(documents * most, np.int32), np.empty(documents * most, np.float32)
    ends = np.zeros(documents + 1, np.int64)
    names, values, owner = np.empty(longest, np.int32), np.empty(longest, np.float32), np.empty(longest, np.int32)
    used = 0
    for document in range(documents):
        count = 0
        for tree in range(trees):
            for index in range(offsets[tree] + ptr[tree, document], offsets[tree] + ptr[tree, document + 1]):
                names[count], values[count] = labels[index], np.exp(max(scores[index], np.float32(LEAST_SCORE)))
                owner[count] = tree
                count += 1
        kinds, merged, sums = merge_labels(names[:count], values[:count], owner[:count])
        border = np.partition(sums[:kinds], kinds - most)[kinds - most] if kinds > most else np.float32(-1)
        ties = most - (sums[:kinds] > border).sum()
        for index in range(kinds):
            if sums[index] > border or (sums[index] == border and ties > 0):
                ties -= sums[index] == border
                best[used], means[used] = merged[index], np.log(sums[index] / trees)
                used += 1
        ends[document + 1] = used
    return ends, best[:used].copy(), means[:used].copy()


@fast_kernel
def merge_labels(names: IntArray, values: FloatArray, owner: IntArray) -> tuple[int, IntArray, FloatArray]:
    """Add up the best values of each label in each tree: the number of labels, their names (rising), and the sums."""
    merged, sums = np.empty(len(names), np.int32), np.empty(len(names), np.float32)
    kinds, tree, best = 0, -1, np.float32(0)
    # The order is stable, so that those of one tree stand together.
    for position in np.argsort(names, kind="mergesort"):
        if kinds == 0 or merged[kinds - 1] != names[position]:
            merged[kinds], sums[kinds], tree = names[position], np.float32(0), -1
            kinds += 1
        if owner[position] != tree:
            tree, best = owner[position], np.float32(0)
        if values[position] > best:
            sums[kinds - 1] += values[position] - best
            best = values[position]
    return kinds, merged, sums


@fast_kernel
def cosines(
    ptr: IntArray,
    idx: IntArray,
    val: FloatArray,
    row_ptr: IntArray,
    row_idx: IntArray,
    row_val: FloatArray,
    width: int,
    ends: LongArray,
    labels: IntArray,
) -> FloatArray:
    """Multiply documents with the rows of their candidates."""
    products, document = np.zeros(len(labels), np.float32), np.zeros(width, np.float32)
    for row in range(len(ends) - 1):
        for index in range(ptr[row], ptr[row + 1]):
            document[idx[index]] = val[index]
        for position in range(ends[row], ends[row + 1]):
            total = np.float32(0)
            for index in range(row_ptr[labels[position]], row_ptr[labels[position] + 1]):
                total += row_val[index] * document[row_idx[index]]
            products[position] = total
        for index in range(ptr[row], ptr[row + 1]):
            document[idx[index]] = 0
    return products
