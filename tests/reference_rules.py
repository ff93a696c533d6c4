"""A slow, obvious twin of every rule; for rules that are defined by an optimum, the value of every decision there is.

A twin takes the scores of one document, a number for every node, and gives the set before it is closed. Brute force
takes a hierarchy of a few nodes, in which all closed sets can be listed, and gives the value of each set for each end
that the true path can have. What a rule assumes of the truth is in its docstring and is followed here.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from tests import reference_metrics as metrics
from tests.reference import ROOT, SlowHierarchy
from tests.reference_metrics import Case

Row = dict[int, float]
Doubles = npt.NDArray[np.float64]


# One document


def coherent(h: SlowHierarchy, row: Row) -> Row:
    """Every node with the largest score at or below it."""
    return {node: max(row[below] for below in {node} | h.descendants(node)) for node in row}


def best(nodes: Iterable[int], row: Row, count: int = 1) -> set[int]:
    """The nodes with the largest scores above 0, of equal ones the lowest ids."""
    scored = [node for node in nodes if row[node] > 0]
    return set(sorted(scored, key=lambda node: (-row[node], node))[:count])


def at_depth(h: SlowHierarchy, nodes: Iterable[int], depth: int) -> set[int]:
    """Those that lie so deep."""
    return {node for node in nodes if h.longest_depth(node) == depth}


def deepest(h: SlowHierarchy, nodes: Iterable[int]) -> set[int]:
    """Those that lie as deep as any."""
    given = set(nodes)
    return at_depth(h, given, max(map(h.longest_depth, given), default=0))


def threshold(h: SlowHierarchy, row: Row, t: float | Sequence[float] = 0.5) -> set[int]:
    """Scores of at least t, which is one number, one a level or one a node."""
    if isinstance(t, Sequence):
        levels = max(map(h.longest_depth, row))
        least = {node: t[h.longest_depth(node) - 1] if len(t) == levels else t[node] for node in row}
    else:
        least = dict.fromkeys(row, t)
    return {node for node in row if row[node] >= least[node]}


def top_k(h: SlowHierarchy, row: Row, k: int = 5, leaves: bool = False) -> set[int]:
    """The k best of all nodes, or of the leaves."""
    return best(h.leaves if leaves else row, row, k)


def best_leaf(h: SlowHierarchy, row: Row) -> set[int]:
    """The best leaf."""
    return best(h.leaves, row)


def best_per_level(h: SlowHierarchy, row: Row) -> set[int]:
    """The best node of each depth."""
    found: set[int] = set()
    for depth in {h.longest_depth(node) for node in row}:
        found |= best(at_depth(h, row, depth), row)
    return found


def top_down(h: SlowHierarchy, row: Row, stop: float = 0.0) -> set[int]:
    """From the root to the best child, while that has at least `stop`."""
    here = ROOT
    while True:
        child = best(h.children[here], row)
        if not child or row[min(child)] < stop:
            return set() if here == ROOT else {here}
        here = min(child)


def beam(h: SlowHierarchy, row: Row, width: int = 5) -> set[int]:
    """Level by level the best children of kept nodes; of the kept leaves the best, else of the deepest kept nodes."""
    kept: set[int] = set()
    for depth in sorted({h.longest_depth(node) for node in row}):
        children = {node for node in at_depth(h, row, depth) if h.parents[node] & (kept | {ROOT})}
        kept |= best(children, row, width)
    return best(kept & h.leaves, row) or best(deepest(h, kept), row)


def majority(h: SlowHierarchy, row: Row) -> set[int]:
    """The deepest node above one half, of several the best."""
    return best(deepest(h, {node for node in row if row[node] > 0.5}), row)


def plurality(h: SlowHierarchy, row: Row) -> set[int]:
    """The deepest node that is likelier than every node neither above nor below it."""
    q = coherent(h, row)
    likelier = set()
    for node in q:
        rivals = set(q) - {node} - h.ancestors(node) - h.descendants(node)
        if q[node] > max((q[rival] for rival in rivals), default=0.0):
            likelier.add(node)
    return best(deepest(h, likelier), q)


def back_off(h: SlowHierarchy, row: Row, t: float | Sequence[float]) -> set[int]:
    """From the best leaf up, by the best parent, until the score is at least t, perhaps that of the depth."""
    q = coherent(h, row)
    here = best(h.leaves, q)
    while here and q[min(here)] < (t[h.longest_depth(min(here)) - 1] if isinstance(t, Sequence) else t):
        here = best(h.parents[min(here)] - {ROOT}, q)
    return here


def risk_control(h: SlowHierarchy, row: Row, t: float) -> set[int]:
    """Nodes of which the largest score at or below is at least t."""
    q = coherent(h, row)
    return {node for node in q if q[node] >= t}


def masses(h: SlowHierarchy, row: Row) -> Row:
    """The probability that the true path ends at a node of a tree: its score less what is below it."""
    q, whole, mass = coherent(h, row), dict.fromkeys(row, 0.0), dict.fromkeys(row, 0.0)
    for node in sorted(q, key=h.longest_depth, reverse=True):
        below = sum(whole[child] for child in h.children[node])
        mass[node] = max(0.0, q[node] - below)
        whole[node] = below + mass[node]
    return mass


def nested_scores(mass: Row, score: str = "lac", penalty: float = 0.01, k_reg: int = 5) -> dict[int, float]:
    """The nonconformity score of each node with mass, in the order in which they are taken."""
    found, before = {}, 0.0
    for rank, node in enumerate(sorted((n for n in mass if mass[n] > 0), key=lambda n: (-mass[n], n)), 1):
        beyond = penalty * max(0, rank - k_reg) if score == "raps" else 0.0
        found[node] = 1 - mass[node] if score == "lac" else before + beyond
        before += mass[node]
    return found


def nested_set(scores: dict[int, float], t: float) -> set[int]:
    """The nodes with a score of at most t, and always the first one."""
    return {node for rank, node in enumerate(scores) if rank == 0 or scores[node] <= t}


def leaves_at_or_below(h: SlowHierarchy, nodes: Iterable[int]) -> set[int]:
    """The leaves of some nodes, all of them for the root."""
    return {leaf for leaf in h.leaves for node in nodes if node == ROOT or node in h.closure([leaf])}


def representations(h: SlowHierarchy, taken: set[int], nodes: int) -> list[set[int]]:
    """All sets of at most so many nodes, none above another, at or above all that are taken; and the root."""
    above = sorted(h.closure(taken))
    every = [set(some) for size in range(1, nodes + 1) for some in combinations(above, size)]
    apart = [some for some in every if h.most_specific(some) == some]
    return [{ROOT}, *(some for some in apart if all(h.closure([node]) & some for node in taken))]


def conformal(h: SlowHierarchy, row: Row, t: float, nodes: int = 1, score: str = "lac", **penalties: Any) -> set[int]:
    """Climb until the score is above t; or the node above a nested set with the fewest leaves, the deepest of these."""
    if nodes == 1 and score == "lac":
        q = coherent(h, row)
        here = best(h.leaves, q)
        while here and q[min(here)] <= t:
            here = best(h.parents[min(here)] - {ROOT}, q)
        return here
    taken = nested_set(nested_scores(masses(h, row), score, **penalties), t)
    if not taken:
        return set()
    found = representations(h, taken, nodes)
    return min(found, key=lambda some: (len(leaves_at_or_below(h, some)), len(some), -min(some))) - {ROOT}


# Every decision, every truth


@dataclass(frozen=True)
class World:
    """A hierarchy of a few nodes with all its closed sets and all paths that can be true, one to each node.

    `training` holds the label sets of training documents, for metrics that weigh labels by how rare they are.
    """

    h: SlowHierarchy
    training: list[set[int]] = field(default_factory=list)

    @cached_property
    def nodes(self) -> list[int]:
        """All nodes in order of ids."""
        return sorted(self.h.parents)

    @cached_property
    def closed_sets(self) -> list[frozenset[int]]:
        """All sets that hold the ancestors of their nodes, the empty one first."""
        subsets = (set(found) for size in range(len(self.nodes) + 1) for found in combinations(self.nodes, size))
        return [frozenset(found) for found in subsets if all(self.h.ancestors(node) <= found for node in found)]

    @cached_property
    def place(self) -> dict[frozenset[int], int]:
        """Where each closed set stands."""
        return {found: at for at, found in enumerate(self.closed_sets)}

    @cached_property
    def ends(self) -> list[int | None]:
        """The one most specific node of each closed set, the root of the empty one; None where there are several."""
        found = [sorted(self.h.most_specific(labels)) for labels in self.closed_sets]
        return [ROOT if not nodes else nodes[0] if len(nodes) == 1 else None for nodes in found]

    @cached_property
    def paths(self) -> Doubles:
        """Row e marks the nodes that are true if the path ends at e."""
        return self._marks([self.h.closure([node]) for node in self.nodes])

    @cached_property
    def sets(self) -> Doubles:
        """Row s marks the nodes of the closed set s."""
        return self._marks(self.closed_sets)

    def _marks(self, rows: Sequence[Iterable[int]]) -> Doubles:
        marks = np.zeros((len(rows), len(self.nodes)))
        for at, row in enumerate(rows):
            marks[at, list(row)] = 1.0
        return marks

    @cached_property
    def case(self) -> Case:
        """The same for the twins of metrics."""
        return Case(self.h, [], [], [], self.training)

    @cached_property
    def information(self) -> list[float]:
        """The information content of each node in training."""
        return [metrics.information(self.case, node) for node in self.nodes]

    @cached_property
    def bits(self) -> Doubles:
        """The weight of each node: its information less that of its parents."""
        weights = metrics.information_weights(self.case)
        return np.array([weights[node] for node in self.nodes])

    def overlaps(self, weights: Doubles | None = None) -> tuple[Doubles, Doubles, Doubles]:
        """a = w(S), b = w(Y), c = w(both) of every closed set S (rows) and every true path Y (columns)."""
        w = np.ones(len(self.nodes)) if weights is None else weights
        return (self.sets @ w)[:, None], (self.paths @ w)[None, :], (self.sets * w) @ self.paths.T

    def of_ends(self, formula: Callable[[int, int], float]) -> Doubles:
        """A formula of (predicted, true) single nodes, the root being nothing; -inf for sets that are several nodes."""
        return np.array(
            [[-math.inf if end is None else formula(end, true) for true in self.nodes] for end in self.ends]
        )


def hf_values(world: World, beta: float = 1.0, count_root: bool = False) -> Doubles:
    """Hierarchical F of every set and path."""
    a, b, c = (part + count_root for part in world.overlaps())
    return _f(a, b, c, beta)


def info_hf_values(world: World, beta: float = 1.0) -> Doubles:
    """The same in bits; of a path without any, a set without any is worth 1."""
    a, b, c = world.overlaps(world.bits)
    return np.where((a == 0) & (b == 0), 1.0, _f(a, b, c, beta))


def _f(a: Doubles, b: Doubles, c: Doubles, beta: float) -> Doubles:
    size = a + beta**2 * b
    return np.divide((1 + beta**2) * c, size, out=np.zeros(c.shape), where=(c > 0) & (size > 0))


def largest_expected_f(paths: Doubles, masses: Doubles, beta: float, count_root: bool) -> float:
    """The largest expected hierarchical F of any number of nodes, for hierarchies too large to list all sets.

    F is a sum over shared nodes once the number k of predicted nodes is fixed: what a node adds is the sum over the
    ends e at or below it of m(e) (1 + beta²)/(k + beta²|A(e)|), and the k largest are best. `paths` is as in World.
    What the masses lack of 1 is the probability of no path, which predicting nothing agrees with.
    """
    lengths, root = paths.sum(axis=1) + count_root, float(count_root)
    largest = expected_f(paths, masses, set(), beta, count_root)
    none = max(0.0, 1 - masses.sum())
    for size in range(0 if count_root else 1, len(paths) + 1):
        worth = masses * (1 + beta**2) / (size + root + beta**2 * lengths)
        shared = worth.sum() + none * (1 + beta**2) / (size + 1 + beta**2)
        largest = max(largest, root * shared + np.sort(worth @ paths)[::-1][:size].sum())
    return largest


def expected_f(paths: Doubles, masses: Doubles, labels: set[int], beta: float, count_root: bool) -> float:
    """The expected hierarchical F of one set."""
    shared = paths[:, sorted(labels)].sum(axis=1) + count_root
    size = len(labels) + count_root + beta**2 * (paths.sum(axis=1) + count_root)
    none = max(0.0, 1 - masses.sum()) * (
        (1 + beta**2) / (len(labels) + 1 + beta**2) if count_root else float(not labels)
    )
    return float((masses * (1 + beta**2) * shared / size).sum() + none)


def shortest_path_values(world: World) -> Doubles:
    """Minus the edges between."""
    a, b, c = world.overlaps()
    return 2 * c - a - b


def hamming_values(world: World) -> Doubles:
    """Minus the share of nodes judged wrongly."""
    return shortest_path_values(world) / len(world.nodes)


def icm_values(world: World, alpha: float = 2.0, beta: float = 3.0) -> Doubles:
    """alpha a + alpha b - beta (a + b - c), a, b and c in bits."""
    a, b, c = world.overlaps(world.bits)
    return alpha * (a + b) - beta * (a + b - c)


def leaf_accuracy_values(world: World) -> Doubles:
    """1 for the same node."""
    return world.of_ends(lambda predicted, true: float(predicted == true))


def onehot_win_values(world: World) -> Doubles:
    """The win of one node."""
    return world.of_ends(lambda predicted, true: metrics.onehot_win(world.case, predicted, true))


def wu_palmer_values(world: World) -> Doubles:
    """The similarity of one node."""
    return world.of_ends(lambda predicted, true: metrics.wu_palmer(world.case, predicted, true))


def lin_values(world: World) -> Doubles:
    """The similarity of one node, in bits."""
    return world.of_ends(lambda predicted, true: metrics.lin(world.case, predicted, true))


def cost_values(world: World, matrix: Any = None, similarity: str | None = None) -> Doubles:
    """Minus the cost of one node, which has a row in the matrix; the columns are leaves. Nothing has no cost."""
    leaves = sorted(world.h.leaves)
    rows = world.nodes if matrix is None or len(matrix) == len(world.nodes) else leaves

    def value(predicted: int, true: int) -> float:
        if predicted not in rows:
            return -math.inf
        if true not in leaves:
            return 0.0
        if matrix is not None:
            return -float(matrix[rows.index(predicted)][leaves.index(true)])
        return SIMILARITIES[similarity or ""](world.case, predicted, true)

    return world.of_ends(value)


SIMILARITIES: dict[str, Callable[[Case, int, int], float]] = {
    "wu_palmer": metrics.wu_palmer,
    "leacock_chodorow": metrics.leacock_chodorow,
    "resnik": metrics.resnik,
    "lin": metrics.lin,
    "jiang_conrath": lambda case, predicted, true: -metrics.jiang_conrath(case, predicted, true),
    "win": metrics.onehot_win,
    "shortest_path": lambda case, predicted, true: -float(case.hierarchy.distance(predicted, true)),
}


def level_accuracy_values(world: World, masses: Doubles) -> Doubles:
    """For each level, 1 / expected documents that reach it where the set has the true node there and no other."""
    values = np.zeros((len(world.closed_sets), len(world.nodes)))
    for level in world.case.levels.values():
        documents = float((masses @ world.paths)[:, level].sum())
        if documents > 0:
            predicted, true = world.sets[:, None, level], world.paths[None, :, level]
            values += ((predicted == true).all(axis=2) & true.any(axis=2)) / documents
    return values


# Independent labels


def expected_f_of_subsets(p: Sequence[float], beta: float = 1.0, empty: float = 0.0) -> dict[frozenset[int], float]:
    """Expected F of every set of labels if each is true on its own with probability p; `empty` if both are empty."""
    subsets = [frozenset(found) for size in range(len(p) + 1) for found in combinations(range(len(p)), size)]
    chance = [math.prod(q if label in true else 1 - q for label, q in enumerate(p)) for true in subsets]
    a, b = (np.array([[float(len(found))] for found in subsets]), np.array([[float(len(true)) for true in subsets]]))
    marks = np.array([[float(label in found) for label in range(len(p))] for found in subsets])
    values = _f(a, b, marks.reshape(len(subsets), -1) @ marks.reshape(len(subsets), -1).T, beta)
    values[0, 0] = empty
    return dict(zip(subsets, (values @ np.array(chance)).tolist(), strict=True))


# All documents together


def expected_f1(rows: list[Row], chosen: list[set[int]], label: int) -> float:
    """2 (sum of the scores where it is predicted) / (times predicted + sum of all its scores)."""
    hits = sum(row[label] for row, labels in zip(rows, chosen, strict=True) if label in labels)
    size = sum(label in labels for labels in chosen) + sum(row[label] for row in rows)
    return 2 * hits / size if size > 0 else 0.0


def expected_micro_f1(rows: list[Row], chosen: list[set[int]]) -> float:
    """The same of all labels together."""
    hits = sum(row[label] for row, labels in zip(rows, chosen, strict=True) for label in labels)
    size = sum(map(len, chosen)) + sum(sum(row.values()) for row in rows)
    return 2 * hits / size if size > 0 else 0.0


def expected_macro_f1(rows: list[Row], chosen: list[set[int]]) -> float:
    """The mean over labels."""
    return metrics.mean(expected_f1(rows, chosen, label) for label in rows[0])


def expected_binned_macro_f1(
    rows: list[Row], chosen: list[set[int]], frequencies: Sequence[int], edges: Sequence[int] = (1, 10, 100, 1000)
) -> float:
    """The mean over bins of training frequency that have labels of their mean; labels never seen are left out."""
    bins: dict[int, list[float]] = {}
    for label in rows[0]:
        number = sum(frequencies[label] >= edge for edge in edges)
        if number > 0:
            bins.setdefault(number, []).append(expected_f1(rows, chosen, label))
    return metrics.mean(map(metrics.mean, bins.values()))


def at_least(rows: list[Row], cut: dict[int, float]) -> list[set[int]]:
    """The labels of each document with scores of at least a threshold of their own, and above 0."""
    return [{label for label in row if row[label] > 0 and row[label] >= cut[label]} for row in rows]


def largest_micro_f1(rows: list[Row]) -> float:
    """Of one threshold for all labels."""
    cuts = {value for row in rows for value in row.values()}
    return max(expected_micro_f1(rows, at_least(rows, dict.fromkeys(rows[0], cut))) for cut in cuts)


def largest_macro_f1(rows: list[Row]) -> float:
    """Of one threshold for each label."""
    return metrics.mean(
        max(
            expected_f1(rows, at_least(rows, dict.fromkeys(rows[0], cut)), label)
            for cut in {row[label] for row in rows}
        )
        for label in rows[0]
    )


TWINS: dict[str, Callable[..., set[int]]] = {
    "threshold": threshold,
    "top_k": top_k,
    "best_leaf": best_leaf,
    "best_per_level": best_per_level,
    "top_down": top_down,
    "beam": beam,
    "majority": majority,
    "plurality": plurality,
    "back_off": back_off,
    "conformal": conformal,
    "risk_control": risk_control,
}

# Values of every closed set and every true path.
OPTIMA: dict[str, Callable[..., Doubles]] = {
    "optimal:hamming": hamming_values,
    "optimal:shortest_path": shortest_path_values,
    "optimal:icm": icm_values,
    "optimal:leaf_accuracy": leaf_accuracy_values,
    "optimal:level_accuracy": level_accuracy_values,
    "optimal:onehot_win": onehot_win_values,
    "optimal:hf1": hf_values,
    "optimal:hf1_root": lambda world: hf_values(world, count_root=True),
    "optimal:hf_beta": hf_values,
    "optimal:info_hf1": info_hf_values,
    "optimal:wu_palmer": wu_palmer_values,
    "optimal:lin": lin_values,
    "optimal:cost": cost_values,
}

# Expected values under what these rules assume instead of a true path.
OTHER_OPTIMA: dict[str, Callable[..., Any]] = {
    "optimal:samples_f1": expected_f_of_subsets,
    "optimal:micro_f1": largest_micro_f1,
    "optimal:macro_f1": largest_macro_f1,
    "optimal:macro_f1@k": expected_macro_f1,
    "optimal:binned_macro_f1@k": expected_binned_macro_f1,
}

REFERENCE_RULES: dict[str, Callable[..., Any]] = TWINS | OPTIMA | OTHER_OPTIMA
