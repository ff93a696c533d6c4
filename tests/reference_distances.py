"""Slow, obvious twins of metrics that came after those of `reference_metrics`: rankings, and ways between labels."""

import math
from collections.abc import Callable
from itertools import product

from tests.reference import ROOT
from tests.reference_metrics import (
    NAN,
    Case,
    Labels,
    Value,
    inverse_propensity,
    mean,
    meet,
    ranked,
    with_mean,
)

Pairs = list[tuple[Labels, Labels]]


# Whole rankings


def _of_labels(formula: Callable[[dict[int, float], Labels], float]) -> Callable[[Case, float], Value]:
    """The mean over documents of a formula of all scores and the closed truth; NaN does not count."""

    def value(case: Case, _: float) -> float:
        values = [formula(row, y) for row, y in zip(case.scores, case.closed_truth, strict=True)]
        return mean(found for found in values if not math.isnan(found))

    return value


def ranking_loss(row: dict[int, float], y: Labels) -> float:
    """The share of pairs (true, false) with the true one not above; 0 without pairs."""
    pairs = [(row[true], row[false]) for true in y for false in set(row) - y]
    return sum(true <= false for true, false in pairs) / len(pairs) if pairs else 0.0


def instance_auc(row: dict[int, float], y: Labels) -> float:
    """The share of pairs (true, false) in order, equal ones half; NaN without pairs."""
    pairs = [(row[true], row[false]) for true in y for false in set(row) - y]
    return mean(1.0 if true > false else 0.5 if true == false else 0.0 for true, false in pairs)


def average_precision(row: dict[int, float], y: Labels) -> float:
    """At each true label, the share of true ones among those that score at least as high; 1 if all or none is true."""
    if not y or len(y) == len(row):
        return 1.0
    shares = []
    for label in y:
        above = {other for other in row if row[other] >= row[label]}
        shares.append(len(above & y) / len(above))
    return mean(shares)


def coverage_error(row: dict[int, float], y: Labels) -> float:
    """The labels that score at least as high as the lowest true one."""
    return float(sum(score >= min(row[label] for label in y) for score in row.values())) if y else 0.0


def one_error(row: dict[int, float], y: Labels) -> float:
    """1 unless the first label is true."""
    return float(not set(ranked(row, 1)) & y)


def micro_auc(case: Case, _: float) -> float:
    """The share of pairs (true, false) of all documents in order; the scores drawn here have few bits."""
    rows = list(zip(case.scores, case.closed_truth, strict=True))
    true = [row[label] for row, y in rows for label in y]
    false = [row[label] for row, y in rows for label in set(row) - y]
    return mean(1.0 if one > two else 0.5 if one == two else 0.0 for one, two in product(true, false))


def macro_auc(case: Case, _: float) -> float:
    """The mean over labels of the share of pairs (true, false) of documents in order, labels without pairs left out."""
    rows = list(zip(case.scores, case.closed_truth, strict=True))
    areas = []
    for label in case.nodes:
        true = [row[label] for row, y in rows if label in y]
        false = [row[label] for row, y in rows if label not in y]
        pairs = product(true, false)
        areas.append(mean(1.0 if one > two else 0.5 if one == two else 0.0 for one, two in pairs))
    return mean(area for area in areas if not math.isnan(area))


def argmax_level_accuracy(case: Case, _: float) -> Value:
    """At each depth, of the documents with true nodes there, those whose best node there is true."""
    shares: dict[str, float] = {}
    for depth, level in case.levels.items():
        reach = [(row, y) for row, y in zip(case.scores, case.closed_truth, strict=True) if y & set(level)]
        if reach:
            shares[str(depth)] = mean(bool(set(ranked({n: row[n] for n in level}, 1)) & y) for row, y in reach)
    return with_mean(shares)


def propensity_weights(case: Case) -> dict[int, float]:
    """1/p of every node."""
    return {node: inverse_propensity(case.frequency(node), len(case.training)) for node in case.nodes}


def psp_printed(case: Case, k: float) -> float:
    """Mean over documents of the hits' inverse propensities over k."""
    weight = propensity_weights(case)
    rows = zip(case.scores, case.closed_truth, strict=True)
    return mean(sum(weight[node] for node in ranked(row, k) if node in y) / int(k) for row, y in rows)


def psndcg(case: Case, k: float) -> float:
    """The mean of discounted inverse propensities over that of the best ranking, both over the ideal of plain nDCG."""
    weight = propensity_weights(case)
    gained = best = 0.0
    for row, y in zip(case.scores, case.closed_truth, strict=True):
        if y:
            discounts = [1 / math.log2(rank + 1) for rank in range(1, int(k) + 1)]
            ideal = sum(discounts[: len(y)])
            hits = [weight[node] if node in y else 0.0 for node in ranked(row, k)]
            most = sorted((weight[node] for node in y), reverse=True)
            gained += sum(g * d for g, d in zip(hits, discounts, strict=False)) / ideal
            best += sum(g * d for g, d in zip(most, discounts, strict=False)) / ideal
    return gained / best if best else NAN


# Sets


def hamming_annotated(case: Case, _: float) -> float:
    """Labels that only one set has, over the labels that are true anywhere."""
    annotated = set().union(*(y for _, y in case.pairs))
    return mean(len(s ^ y) / len(annotated) for s, y in case.pairs) if annotated else NAN


def terminals(case: Case) -> Pairs:
    """The most specific predicted and true labels of each document."""
    return [
        (case.hierarchy.most_specific(s), case.hierarchy.most_specific(y))
        for s, y in zip(case.decisions, case.truth, strict=True)
    ]


def shortest_path_sum(case: Case, _: float) -> float:
    """All distances between a predicted and a true label, the root standing for an empty set."""
    return mean(
        sum(case.hierarchy.distance(one, two) for one in s or {ROOT} for two in y or {ROOT}) for s, y in terminals(case)
    )


# One label against one


def way_up(case: Case, node: int, end: int) -> set[int]:
    """The nodes from one up to an ancestor of it, in a tree."""
    way = {node}
    while node != end:
        node = min(case.hierarchy.parents[node])
        way.add(node)
    return way


def _lca(formula: Callable[[int, int, int], float]) -> Callable[[Case, float], Value]:
    """The mean of a formula of the sizes of both ways up to the lowest common ancestor, and of what they share."""

    def value(case: Case, _: float) -> float:
        values = []
        for s, y in terminals(case):
            one, two = min(s, default=ROOT), min(y, default=ROOT)
            end = meet(case, one, two)
            predicted, true = way_up(case, one, end), way_up(case, two, end)
            values.append(formula(len(predicted), len(true), len(predicted & true)))
        return mean(values)

    return value


def contribution(case: Case, label: int, others: Labels) -> float:
    """The sum of 1 - distance / 2, cut to [-1, 1]."""
    return min(1.0, max(-1.0, sum(1 - case.hierarchy.distance(label, other) / 2 for other in others)))


def _sun_lim(is_precision: bool) -> Callable[[Case, float], Value]:
    def value(case: Case, _: float) -> float:
        sets = terminals(case)
        hits = sum(len(s & y) for s, y in sets)
        false = [contribution(case, label, y) for s, y in sets for label in s - y]
        missed = [contribution(case, label, s) for s, y in sets for label in y - s]
        part = max(0.0, hits + sum(false) + sum(missed))
        whole = hits + (len(false) + sum(missed) if is_precision else len(missed) + sum(false))
        return part / whole if whole > 0 else 0.0

    return value


LATER: dict[str, Callable[[Case, float], Value]] = {
    "ranking_loss": _of_labels(ranking_loss),
    "one_error": _of_labels(one_error),
    "coverage_error": _of_labels(coverage_error),
    "label_ranking_average_precision": _of_labels(average_precision),
    "instance_auc": _of_labels(instance_auc),
    "micro_auc": micro_auc,
    "macro_auc": macro_auc,
    "argmax_level_accuracy": argmax_level_accuracy,
    "psp_printed@k": psp_printed,
    "psndcg@k": psndcg,
    "hamming_annotated": hamming_annotated,
    "shortest_path_sum": shortest_path_sum,
    "lca_precision": _lca(lambda s, y, both: both / s),
    "lca_recall": _lca(lambda s, y, both: both / y),
    "lca_f1": _lca(lambda s, y, both: 2 * both / (s + y)),
    "distance_precision": _sun_lim(is_precision=True),
    "distance_recall": _sun_lim(is_precision=False),
}
