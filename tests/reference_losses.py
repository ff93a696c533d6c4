"""Slow twins of the losses: sums over sets, straight from the definitions, and numpy forms with gradients by hand."""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import special

from tests.reference import ROOT, SlowHierarchy
from treelabel import Hierarchy
from treelabel.neural.losses.registry import LossSpec

Doubles = npt.NDArray[np.float64]

# Much larger than the defaults, so that a mistake shows.
PARAMS: dict[str, dict[str, float]] = {
    "conditional_softmax_la": {"tau": 0.7},
    "champ": {"beta": 0.8},
    "match": {"lambda_parameters": 0.3, "lambda_probabilities": 0.5},
    "hierarchical_cross_entropy": {"alpha": 0.4},
    "soft_labels": {"beta": 3.0},
}


# Sums over sets


def log_sum(values: Iterable[float]) -> float:
    return math.log(sum(math.exp(value) for value in values))


def sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-value))


def slow_win(slow: SlowHierarchy, p: dict[int, float], true: int) -> float:
    path = sorted(slow.closure([true]), key=slow.longest_depth)
    of_node = {node: sum(p[leaf] for leaf in slow.leaves & ({node} | slow.descendants(node))) for node in path}
    return sum(2.0**-j * of_node[node] for j, node in enumerate(path, 1)) + 2.0 ** -len(path) * p[true]


def slow_bce(s: dict[int, float], true: set[int], weight: dict[int, float]) -> float:
    return sum(weight[n] * (math.log1p(math.exp(s[n])) - (n in true) * s[n]) for n in weight)


def slow_champ_weights(slow: SlowHierarchy, true: set[int]) -> dict[int, float]:
    nodes, d_max = slow.parents.keys(), slow_largest_distance(slow)
    away = {n: min((slow.distance(n, y) for y in true), default=0) for n in nodes}
    return {n: 1 if n in true else 1 + PARAMS["champ"]["beta"] * ((away[n] / d_max + 1) ** 2 - 1) for n in nodes}


def slow_largest_distance(slow: SlowHierarchy) -> int:
    if any(len(above) > 1 for above in slow.parents.values()):
        return 2 * max(slow.shortest_depth(n) for n in slow.parents)
    return max(1, *(steps for n in slow.parents for steps in slow_steps(slow, n).values()))


def slow_steps(slow: SlowHierarchy, start: int) -> dict[int, int]:
    """Edges of the shortest way to every node, up or down, the root being a node like others on the way."""
    steps, reached = {start: 0}, [start]
    for node in reached:
        for other in slow.children[node] | slow.parents.get(node, set()):
            if other not in steps:
                steps[other] = steps[node] + 1
                reached.append(other)
    return {node: count for node, count in steps.items() if node != ROOT}


def slow_hinges(slow: SlowHierarchy, s: dict[int, float]) -> float:
    return sum(max(0.0, sigmoid(s[n]) - sigmoid(s[above])) for n in s for above in slow.parents[n] - {ROOT})


def slow_height(slow: SlowHierarchy, node: int) -> int:
    return max((1 + slow_height(slow, child) for child in slow.children[node]), default=0)


def slow_hxe(slow: SlowHierarchy, p: dict[int, float], path: set[int]) -> float:
    def mass(node: int) -> float:
        return sum(p[leaf] for leaf in slow.leaves & ({node} | slow.descendants(node))) if node != ROOT else 1.0

    alpha = PARAMS["hierarchical_cross_entropy"]["alpha"]
    weight = {n: math.exp(-alpha * slow.longest_depth(n)) for n in path}
    return sum(-weight[n] * math.log(mass(n) / mass(above)) for n in path for above in slow.parents[n])


def slow_soft_labels(slow: SlowHierarchy, leaf: int) -> dict[int, float]:
    def distance(other: int) -> float:
        common = slow.closure([leaf]) & slow.closure([other])
        lowest = max(common, key=slow.longest_depth) if common else ROOT
        return slow_height(slow, lowest) / slow_height(slow, ROOT)

    value = {other: math.exp(-PARAMS["soft_labels"]["beta"] * distance(other)) for other in slow.leaves}
    return {other: each / sum(value.values()) for other, each in value.items()}


def slow_shifts(slow: SlowHierarchy, counts: Any) -> dict[int, float]:
    """The logit adjustment of every node."""
    tau = PARAMS["conditional_softmax_la"]["tau"]
    siblings = {n: {n} | slow.siblings(n) for n in slow.parents}
    return {n: tau * math.log((counts[n] + 1) / sum(counts[o] + 1 for o in siblings[n])) for n in slow.parents}


def slow_loss(name: str, slow: SlowHierarchy, s: dict[int, float], true: set[int], shift: dict[int, float]) -> float:
    """The loss of one document with logits by node."""
    if name in ("bce", "match"):
        factor = PARAMS["match"]["lambda_probabilities"] if name == "match" else 0.0
        return slow_bce(s, true, dict.fromkeys(s, 1)) + factor * slow_hinges(slow, s)
    if name == "champ":
        return slow_bce(s, true, slow_champ_weights(slow, true))
    if name == "conditional_sigmoid":
        return slow_bce(s, true, {n: 1 for n in s if slow.parents[n] <= true | {ROOT}})
    if not true:
        return 0.0
    if name.startswith("conditional_softmax"):
        adjusted = {n: s[n] + (shift[n] if name.endswith("_la") else 0.0) for n in s}
        return sum(log_sum(adjusted[o] for o in {n} | slow.siblings(n)) - adjusted[n] for n in true)
    if name == "win_coarse":
        (top,) = true & slow.children[ROOT]
        return log_sum(s.values()) - s[top]
    (leaf,) = true & slow.leaves
    p = {n: math.exp(s[n] - log_sum(s.values())) for n in s}
    if name in ("leaf_softmax", "win_flat"):
        return -math.log(p[leaf])
    if name == "hierarchical_cross_entropy":
        return slow_hxe(slow, p, true)
    if name == "soft_labels":
        return -sum(y * math.log(p[other]) for other, y in slow_soft_labels(slow, leaf).items())
    win = slow_win(slow, p, leaf)
    return -win if name == "win_raw" else -math.log(win)


def slow_probability(name: str, slow: SlowHierarchy, s: dict[int, float], node: int) -> float:
    """P(node) of one document with logits by node."""
    if name in ("bce", "champ", "match"):
        return sigmoid(s[node])
    above = slow.parents[node] - {ROOT}
    whole = min((slow_probability(name, slow, s, parent) for parent in above), default=1.0)
    if name == "conditional_sigmoid":
        return sigmoid(s[node]) * whole
    if name.startswith("conditional_softmax"):
        return math.exp(s[node] - log_sum(s[other] for other in {node} | slow.siblings(node))) * whole
    if name == "win_coarse":
        return math.exp(s[node] - log_sum(s.values())) if not above else whole / (1 + len(slow.siblings(node)))
    leaves = slow.leaves & ({node} | slow.descendants(node))
    return sum(math.exp(s[leaf] - log_sum(s.values())) for leaf in leaves)


# Numpy forms, with gradients by hand: documents x outputs


def numpy_loss(spec: LossSpec, logits: Any, truth: Any) -> tuple[Doubles, Doubles, Doubles]:
    """Losses, gradients and probabilities; `truth` are labels that the loss accepts."""
    s, y = np.asarray(logits, np.float64), spec.hierarchy.closure(truth).toarray()
    if spec.row.outputs == "nodes":
        family = _softmaxes if spec.row.name.startswith("conditional_softmax") else _sigmoids
        return family(spec, s, y)
    p = special.softmax(s, axis=1)
    labelled = y.any(axis=1, keepdims=True)
    if spec.row.name == "win_coarse":
        target = y[:, spec.outputs]
        return cross_entropy(s, target), np.where(labelled, p - target, 0.0), _shared_evenly(spec.hierarchy, p)
    below = spec.hierarchy.closure(np.eye(len(spec.hierarchy))[spec.outputs]).toarray().T * 1.0
    losses, gradients = _of_leaves(spec, s, y, below)
    return losses, np.where(labelled, gradients, 0.0), np.minimum(p @ below.T, 1.0)


def cross_entropy(s: Doubles, target: Any) -> Doubles:
    return np.asarray(-(target * special.log_softmax(s, axis=1)).sum(axis=1))


def numpy_penalty(spec: LossSpec, weights: Doubles) -> tuple[float, Doubles]:
    """The penalty of match, and its gradient; other losses have none."""
    if spec.row.name != "match":
        return 0.0, np.zeros(weights.shape)
    factor, child, parent = spec.params["lambda_parameters"], *_edges(spec.hierarchy)
    difference, gradient = weights[child] - weights[parent], np.zeros(weights.shape)
    np.add.at(gradient, child, difference)
    np.subtract.at(gradient, parent, difference)
    return float(factor / 2 * (difference**2).sum()), factor * gradient


def _edges(h: Hierarchy) -> tuple[Any, Any]:
    real = h.parent_idx >= 0
    return h.edge_child[real], h.parent_idx[real]


def _parents(h: Hierarchy, node: int) -> list[int]:
    return [n for n in h.parent_idx[h.parent_ptr[node] : h.parent_ptr[node + 1]].tolist() if n >= 0]


def _sigmoids(spec: LossSpec, s: Doubles, y: Any) -> tuple[Doubles, Doubles, Doubles]:
    """w_n (ln(1 + e^s_n) - y_n s_n), and w_n (sigmoid(s_n) - y_n)."""
    h, p, w = spec.hierarchy, special.expit(s), np.ones(s.shape)
    parents = [_parents(h, node) for node in range(len(h))]
    if spec.row.name == "conditional_sigmoid":
        w = np.stack([y[:, above].all(axis=1) for above in parents], axis=1) * 1.0
    if spec.row.name == "champ":
        d = np.zeros(s.shape)
        for node, above in enumerate(parents):
            # The root is one edge away from the nearest true node; in a DAG a node may have other parents too.
            below_root = len(above) < h.parent_ptr[node + 1] - h.parent_ptr[node]
            nearest = d[:, above].min(axis=1, initial=1.0 if below_root else np.inf)
            d[:, node] = np.where(y[:, node], 0, nearest + 1)
        d[~y.any(axis=1)] = 0
        deepest = int(np.argmax(h.shortest_depth))
        d_max = int(h.distance([deepest], np.arange(len(h))).max()) if h.is_tree else 2 * int(h.shortest_depth.max())
        w = 1 + spec.params["beta"] * ((d / max(1, d_max) + 1) ** 2 - 1)
    losses, gradients = (w * (np.logaddexp(0, s) - np.where(y, s, 0.0))).sum(axis=1), w * (p - y)
    if spec.row.name == "match":
        (child, parent), factor = _edges(h), spec.params["lambda_probabilities"]
        above, by_p = (p[:, child] > p[:, parent]) * 1.0, np.zeros(s.shape[::-1])
        np.add.at(by_p, child, above.T)
        np.subtract.at(by_p, parent, above.T)
        losses += factor * np.maximum(p[:, child] - p[:, parent], 0).sum(axis=1)
        gradients += factor * p * special.expit(-s) * by_p.T
    if spec.row.name == "conditional_sigmoid":
        for node, above in enumerate(parents):
            p[:, node] *= p[:, above].min(axis=1) if above else 1.0
    return losses, gradients, p


def _softmaxes(spec: LossSpec, s: Doubles, y: Any) -> tuple[Doubles, Doubles, Doubles]:
    """-ln P(n | parent) of true nodes, and P(n | parent) - y_n among their siblings."""
    h, losses, gradients, p = spec.hierarchy, np.zeros(len(s)), np.zeros(s.shape), np.zeros(s.shape)
    for parent in sorted(set(h.parent.tolist())):
        group = np.flatnonzero(h.parent == parent)
        shift = np.zeros(len(group))
        if spec.row.name == "conditional_softmax_la":
            assert spec.frequencies is not None
            counts = spec.frequencies[group] + 1
            shift = spec.params["tau"] * np.log(counts / counts.sum())
        log_p = special.log_softmax(s[:, group] + shift, axis=1)
        true = y[:, group]
        losses -= np.where(true, log_p, 0.0).sum(axis=1)
        gradients[:, group] = np.where(true.any(axis=1, keepdims=True), np.exp(log_p) - true, 0.0)
        p[:, group] = special.softmax(s[:, group], axis=1) * (p[:, [parent]] if parent >= 0 else 1.0)
    return losses, gradients, p


def _shared_evenly(h: Hierarchy, p_top: Doubles) -> Doubles:
    p = np.zeros((len(p_top), len(h)))
    p[:, : p_top.shape[1]] = p_top
    for node in range(p_top.shape[1], len(h)):
        p[:, node] = p[:, h.parent[node]] / (h.parent == h.parent[node]).sum()
    return p


def _of_leaves(spec: LossSpec, s: Doubles, y: Any, below: Doubles) -> tuple[Doubles, Doubles]:
    """Losses and gradients of softmaxes over leaves; gradients of documents without labels do not count."""
    h, p, true = spec.hierarchy, special.softmax(s, axis=1), y[:, spec.outputs] * 1.0
    labelled = y.any(axis=1)
    if spec.row.name in ("leaf_softmax", "win_flat"):
        return cross_entropy(s, true), p - true
    if spec.row.name == "hierarchical_cross_entropy":
        return _hxe(spec, s, y)
    if spec.row.name == "soft_labels":
        rise = np.exp(-spec.params["beta"] * _heights(h) / max(1, h.max_depth))
        of_root = math.exp(-spec.params["beta"])
        rise = rise - np.where(h.parent >= 0, rise[h.parent], of_root)
        soft = (of_root + (y * rise) @ below) * labelled[:, None]
        soft /= np.where(labelled, soft.sum(axis=1), 1.0)[:, None]
        return cross_entropy(s, soft), p - soft
    # Win: the sum over the true path of 2^-j, and 2^-l once more at the true leaf, is the share of each leaf.
    halves = y * 0.5 ** h.depth.astype(np.float64)
    last = np.where(labelled, np.min(np.where(y, halves, 1.0), axis=1, initial=1.0), 0.0)
    shares = np.where(labelled[:, None], halves @ below + last[:, None] * true, 1.0)
    with np.errstate(divide="ignore"):
        log_win = np.minimum(special.logsumexp(s + np.log(shares), axis=1) - special.logsumexp(s, axis=1), 0.0)
        q = special.softmax(s + np.log(shares), axis=1)
    if spec.row.name == "win_log":
        return np.where(labelled, -log_win, 0.0), p - q
    return np.where(labelled, -np.exp(log_win), 0.0), np.exp(log_win)[:, None] * (p - q)


def _heights(h: Hierarchy) -> Any:
    height = np.zeros(len(h))
    for node in reversed(range(len(h))):
        if h.parent[node] >= 0:
            height[h.parent[node]] = max(height[h.parent[node]], height[node] + 1)
    return height


def _hxe(spec: LossSpec, s: Doubles, y: Any) -> tuple[Doubles, Doubles]:
    """The gradient of leaf A: the sum of q(m) p(A | m) over its ancestors m on the true path.

    q(m) = lambda(child of m on the path) - lambda(m); going down, r(n) = q(n) + r(parent) p(n | parent) adds it up.
    """
    h, alpha = spec.hierarchy, spec.params["alpha"]
    weight = np.exp(-alpha * h.depth)
    weight = weight / (1 + weight.sum()) if spec.params["normalize"] else weight
    log_mass, of_root = np.full(y.shape, -np.inf), np.full(len(s), -np.inf)
    log_mass[:, spec.outputs] = s
    for node in reversed(range(len(h))):
        above = log_mass[:, h.parent[node]] if h.parent[node] >= 0 else of_root
        np.logaddexp(above, log_mass[:, node], out=above)
    log_p = log_mass - np.where(h.parent >= 0, log_mass[:, h.parent], of_root[:, None])
    weighted = np.where(y, weight, 0.0)
    below = np.zeros((len(h) + 1, len(s)))
    np.add.at(below, h.parent, weighted.T)
    r = below[:-1].T - weighted
    for node in range(len(h)):
        r[:, node] += (r[:, h.parent[node]] if h.parent[node] >= 0 else below[-1]) * np.exp(log_p[:, node])
    return -np.where(y, weight * log_p, 0.0).sum(axis=1), r[:, spec.outputs]
