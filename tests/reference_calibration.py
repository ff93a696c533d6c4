"""Slow, obvious twins of the calibrations: plain loops over documents and nodes, straight from the definitions."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from treelabel import Hierarchy
from treelabel.calibration.contract import LEVELS, OutputSpace

Row = list[float]
# A sequence or an array.
Numbers = Any


def sigmoid(z: float) -> float:
    """Compute 1 / (1 + e^-z)."""
    return 1 / (1 + math.exp(-z))


def softmax(logits: Sequence[float]) -> Row:
    """Compute e^z / the sum of e^z."""
    largest = max(logits)
    odds = [math.exp(z - largest) for z in logits]
    return [each / sum(odds) for each in odds]


def parents_of(h: Hierarchy, node: int) -> list[int]:
    """List the parents of a node, the root left out."""
    return [int(p) for p in h.parent_idx[h.parent_ptr[node] : h.parent_ptr[node + 1]] if p >= 0]


def path_to(h: Hierarchy, node: int) -> set[int]:
    """Collect a node and all its ancestors."""
    nodes = {node}
    for parent in parents_of(h, node):
        nodes |= path_to(h, parent)
    return nodes


def level_of(h: Hierarchy, node: int) -> int:
    """Return the depth of a node, LEVELS at most."""
    return min(int(h.depth[node]), LEVELS)


def sum_up(h: Hierarchy, p: dict[int, float]) -> Row:
    """Give every node the sum of the terminal nodes at and below it."""
    out = [0.0] * len(h)
    for terminal, value in p.items():
        for node in path_to(h, terminal):
            out[node] += value
    return [min(value, 1.0) for value in out]


def raise_to_children(h: Hierarchy, p: Row) -> Row:
    """Give every node at least the probability of its descendants."""
    out = list(p)
    for node in range(len(h)):
        for above in path_to(h, node):
            out[above] = max(out[above], p[node])
    return out


def mix_with_uniform(h: Hierarchy, p: Row, weights: Numbers) -> Row:
    """P(n | parent) becomes (1 - e) P(n | parent) + e / siblings, e by level; uniform below a parent of 0."""
    out = [0.0] * len(h)
    for node in range(len(h)):
        parent = int(h.parent[node])
        siblings = sum(int(h.parent[other]) == parent for other in range(len(h)))
        before, now = (1.0, 1.0) if parent < 0 else (p[parent], out[parent])
        weight = weights[level_of(h, node)] if before > 0 else 1.0
        given = p[node] / before if before > 0 else 0.0
        out[node] = now * ((1 - weight) * given + weight / siblings)
    return out


def beta_calibrate(p: dict[int, float], beta: Numbers) -> dict[int, float]:
    """Calibrate the likeliest terminal, which stays it, and scale all others to what is left."""
    best = max(p, key=lambda terminal: p[terminal])
    value = min(max(p[best], 1e-6), 1 - 1e-6)
    now = sigmoid(beta[0] * math.log(value) - beta[1] * math.log(1 - value) + beta[2])
    second = max((p[other] for other in p if other != best), default=0.0)
    now = max(now, 1.0001 * second / (1 - p[best] + second)) if second else now
    return {t: now if t == best else p[t] * (1 - now) / (1 - p[best]) for t in p}


def path_softmax(
    outputs: OutputSpace, margins: Sequence[float], weights: Numbers, mixture: Numbers
) -> dict[int, float]:
    """P(terminal): a mixture of two softmaxes of v_0 x its margin + the sum over ancestors of v_level x theirs."""
    h = outputs.hierarchy
    node_output = dict(zip(outputs.nodes.tolist(), outputs.node_outputs.tolist(), strict=True))
    logits = []
    for terminal, output in zip(outputs.terminals.tolist(), outputs.terminal_outputs.tolist(), strict=True):
        logit = weights[0] * margins[output]
        for node in path_to(h, terminal):
            if node_output[node] >= 0 and not (node == terminal and node_output[node] == output):
                logit += weights[level_of(h, node)] * margins[node_output[node]]
        logits.append(logit)
    sharp, flat = (softmax([inverse * logit for logit in logits]) for inverse in mixture[:2])
    p = [(1 - mixture[2]) * one + mixture[2] * two for one, two in zip(sharp, flat, strict=True)]
    return dict(zip(outputs.terminals.tolist(), p, strict=True))


def sibling_softmax(outputs: OutputSpace, margins: Sequence[float], inverse: Numbers) -> Row:
    """P(n) = P(parent) x softmax over siblings, and the stop at the parent, of margin / temperature."""
    h = outputs.hierarchy
    node_output = dict(zip(outputs.nodes.tolist(), outputs.node_outputs.tolist(), strict=True))
    stops = {int(outputs.terminals[t]): int(outputs.terminal_outputs[t]) for t in outputs.stops}
    out = [0.0] * len(h)
    for node in range(len(h)):
        if node not in node_output:
            continue
        parent = int(h.parent[node])
        group = [output for other, output in node_output.items() if int(h.parent[other]) == parent]
        group += [stops[parent]] if parent in stops else []
        p = softmax([inverse[level_of(h, node)] * margins[output] for output in group])
        out[node] = (1.0 if parent < 0 else out[parent]) * p[group.index(node_output[node])]
    return out


def sibling_sigmoid(outputs: OutputSpace, margins: Sequence[float], sigmoids: Any) -> Row:
    """P(n) = the least P of its parents x sigmoid(slope x margin + intercept)."""
    h = outputs.hierarchy
    out = [0.0] * len(h)
    for node, output in zip(outputs.nodes.tolist(), outputs.node_outputs.tolist(), strict=True):
        slope, intercept = sigmoids[level_of(h, node)]
        whole = min((out[parent] for parent in parents_of(h, node)), default=1.0)
        out[node] = whole * sigmoid(slope * margins[output] + intercept)
    return out


def isotonic_fit(evidence: Sequence[float], true: Sequence[bool], steps: int) -> Row:
    """Pool adjacent violators over equal steps of the evidence; linear between steps without any."""
    values = np.asarray(evidence, np.float32)
    low, high = float(values.min()), float(values.max()) + 1e-6
    step = ((values - low) / (high - low) * steps).astype(int).tolist()
    prior = 0.5 / len(step)
    blocks: list[list[float]] = []
    for which in sorted(set(step)):
        hits = [bool(mark) for mark, place in zip(true, step, strict=True) if place == which]
        mean = (sum(hits) + prior * len(hits)) / (len(hits) * (1 + 2 * prior))
        blocks.append([mean, len(hits), 1])
        while len(blocks) > 1 and blocks[-2][0] >= blocks[-1][0]:
            mean, weight, count = blocks.pop()
            last = blocks[-1]
            total = last[1] + weight
            blocks[-1] = [(last[0] * last[1] + mean * weight) / total, total, last[2] + count]
    p = [mean for mean, _, count in blocks for _ in range(int(count))]
    return [low, high, *np.interp(range(steps + 1), sorted(set(step)), p)]


def isotonic_value(fitted: Numbers, evidence: float) -> float:
    """Look up a map that is linear between the middles of its steps, and constant beyond the first and the last."""
    low, high, *p = fitted
    steps = len(p) - 1
    middles = [low + (high - low) * (step + 0.5) / steps for step in range(len(p))]
    return float(np.interp(evidence, middles, p))


def candidate_softmax(h: Hierarchy, evidence: dict[int, float], prior: dict[int, float], numbers: Numbers) -> Row:
    """P(t) = (e^s + k prior(t)) / (the sum of e^s + k), summed up to nodes."""
    s, k = numbers
    power = {t: evidence[t] ** s if t in evidence else 0.0 for t in prior}
    total = sum(power.values()) + k
    return sum_up(h, {t: (power[t] + k * prior[t]) / total for t in prior})


def path_pool(h: Hierarchy, terminals: Sequence[int], scores: Any, weights: Any, mixture: Numbers) -> Row:
    """P(t) is a mixture of two softmaxes of the sum of weight x ln max(P_model(ends at t), 1e-6)."""
    logits = []
    for terminal in terminals:
        logit = 0.0
        for weight, p in zip(weights, scores, strict=True):
            below = sum(p[child] for child in range(len(h)) if terminal in parents_of(h, child))
            logit += weight * math.log(max(p[terminal] - below, 1e-6) / 1e-6)
        logits.append(logit)
    sharp, flat = (softmax([inverse * logit for logit in logits]) for inverse in mixture[:2])
    p = [(1 - mixture[2]) * one + mixture[2] * two for one, two in zip(sharp, flat, strict=True)]
    return sum_up(h, dict(zip(terminals, p, strict=True)))


def logit(p: float) -> float:
    """Compute ln(p / (1 - p)) of p within [1e-6, 1 - 1e-6]."""
    inside = min(max(p, 1e-6), 1 - 1e-6)
    return math.log(inside / (1 - inside))


def node_pool(h: Hierarchy, scores: Any, coefficients: Any) -> Row:
    """Logit P(n) = b + the sum of weight x logit P_model(n); 0 where no model has more than 1e-6."""
    out = [0.0] * len(h)
    for node in range(len(h)):
        said = [float(p[node]) for p in scores]
        if max(said) > 1e-6:
            b, *weights = coefficients[level_of(h, node)]
            out[node] = sigmoid(b + sum(w * logit(p) for w, p in zip(weights, said, strict=True)))
    return raise_to_children(h, out)


def candidate_pool(h: Hierarchy, scores: Any, coefficients: Any) -> Row:
    """Add to `node_pool` what missing scores mean, and a noisy or of those that are there."""
    out, count = [0.0] * len(h), len(scores)
    for node in range(len(h)):
        said = [float(p[node]) for p in scores]
        if max(said) > 1e-6:
            numbers = coefficients[level_of(h, node)]
            z, none = numbers[0], 1.0
            for model, p in enumerate(said):
                z += numbers[1 + count + model] * logit(p) if p > 1e-6 else numbers[1 + model]
                none *= 1 - min(p, 1 - 1e-6) if p > 1e-6 else 1.0
            out[node] = sigmoid(z + numbers[-1] * logit(1 - none))
    return raise_to_children(h, out)
