"""A slow, obvious twin of every metric: Python sets, dicts and loops, each straight from docs/definitions.md.

What the definitions leave to a metric's own help (accuracies by level, calibration, coverage) follows that help.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from tests.reference import ROOT, SlowHierarchy

NAN = float("nan")
Labels = set[int]
Value = float | dict[str, float]
ABC = tuple[float, float, float]


@dataclass(frozen=True)
class Case:
    """Documents in plain Python: label sets as given, a score for every node, and label sets of training documents."""

    hierarchy: SlowHierarchy
    truth: list[Labels]
    decisions: list[Labels]
    scores: list[dict[int, float]]
    training: list[Labels]

    def closed(self, labels: Iterable[int]) -> Labels:
        """The labels with their ancestors."""
        return self.hierarchy.closure(labels)

    @cached_property
    def pairs(self) -> list[tuple[Labels, Labels]]:
        """The closed prediction S and the closed truth Y of each document."""
        return [(self.closed(s), self.closed(y)) for s, y in zip(self.decisions, self.truth, strict=True)]

    @property
    def closed_truth(self) -> list[Labels]:
        """The closed truth of each document."""
        return [self.closed(y) for y in self.truth]

    @property
    def nodes(self) -> list[int]:
        """All nodes in order of ids."""
        return sorted(self.hierarchy.parents)

    @cached_property
    def levels(self) -> dict[int, list[int]]:
        """The nodes of each depth; in a DAG depth is the longest way from the root."""
        found: dict[int, list[int]] = {}
        for node in self.nodes:
            found.setdefault(self.hierarchy.longest_depth(node), []).append(node)
        return dict(sorted(found.items()))

    @cached_property
    def closed_training(self) -> list[Labels]:
        """The closed labels of the training documents."""
        return [self.closed(labels) for labels in self.training]

    def frequency(self, node: int) -> int:
        """In how many training documents a node stands, ancestors included."""
        return sum(node in labels for labels in self.closed_training)

    def given_frequency(self, node: int) -> int:
        """In how many training documents a label was given."""
        return sum(node in labels for labels in self.training)


def mean(values: Iterable[float]) -> float:
    """The mean; NaN of nothing."""
    kept = list(values)
    return sum(kept) / len(kept) if kept else NAN


def with_mean(parts: dict[str, float]) -> dict[str, float]:
    """The parts, and their mean."""
    return {"mean": mean(parts.values()), **parts}


# Section 2: node weights


def information(case: Case, node: int) -> float:
    """ic(n) = -log2 P(n), P at least 1/N; the root has 0."""
    if node == ROOT:
        return 0.0
    documents = len(case.training)
    return -math.log2(max(case.frequency(node), 1) / documents)


def information_weights(case: Case) -> dict[int, float]:
    """w(n) = ic(n) - ic(parent), of several parents the largest, never below 0."""
    return {
        node: max(0.0, information(case, node) - max(information(case, above) for above in parents))
        for node, parents in case.hierarchy.parents.items()
    }


def unit_weights(case: Case) -> dict[int, float]:
    """1 for every node."""
    return dict.fromkeys(case.nodes, 1.0)


def weigh(labels: Labels, weights: dict[int, float]) -> float:
    """The sum of weights."""
    return sum(weights[node] for node in sorted(labels))


def overlaps(case: Case, weights: dict[int, float]) -> list[ABC]:
    """a = w(S), b = w(Y), c = w(both) of each document."""
    return [(weigh(s, weights), weigh(y, weights), weigh(s & y, weights)) for s, y in case.pairs]


def hierarchical_precision(a: float, b: float, c: float) -> float:
    """c/a; both empty 1; 0 of an empty prediction."""
    return 1.0 if a == b == 0 else c / a if a > 0 else 0.0


def hierarchical_recall(a: float, b: float, c: float) -> float:
    """c/b; both empty 1; 0 of an empty truth."""
    return 1.0 if a == b == 0 else c / b if b > 0 else 0.0


def hierarchical_f(a: float, b: float, c: float, beta: float = 1.0) -> float:
    """(1 + beta²)c/(a + beta²b); both empty 1; 0 when c = 0."""
    if a == b == 0:
        return 1.0
    return 0.0 if c == 0 else (1 + beta**2) * c / (a + beta**2 * b)


def _samples(
    formula: Callable[[float, float, float], float], weights: Callable[[Case], dict[int, float]]
) -> Callable[[Case, float], Value]:
    return lambda case, _: mean(formula(*abc) for abc in overlaps(case, weights(case)))


def hf_beta(case: Case, beta: float) -> float:
    """Hierarchical F of any beta."""
    return mean(hierarchical_f(*abc, beta) for abc in overlaps(case, unit_weights(case)))


def _micro(formula: Callable[[float, float, float], float]) -> Callable[[Case, float], Value]:
    def value(case: Case, _: float) -> float:
        abc = overlaps(case, unit_weights(case))
        return formula(sum(a for a, _, _ in abc), sum(b for _, b, _ in abc), sum(c for _, _, c in abc))

    return value


def contrast(a: float, b: float, c: float) -> float:
    """ICM with alpha 2 and 2, beta 3."""
    return 2 * a + 2 * b - 3 * (a + b - c)


def icm_norm(case: Case, _: float) -> float:
    """(ICM + M)/(2M) clipped, M the mean ICM of the truth against itself; without information 1 unless ICM is below."""
    abc = overlaps(case, information_weights(case))
    value, most = mean(contrast(*row) for row in abc), mean(contrast(b, b, b) for _, b, _ in abc)
    if most == 0:
        return 1.0 if value >= 0 else 0.0
    return min(1.0, max(0.0, (value + most) / (2 * most)))


def edges_apart(a: float, b: float, c: float) -> float:
    """a + b - 2c."""
    return a + b - 2 * c


def hamming(case: Case, _: float) -> float:
    """Wrongly judged nodes among all nodes."""
    return mean(edges_apart(*abc) / len(case.nodes) for abc in overlaps(case, unit_weights(case)))


# Section 3: flat metrics


def flat_precision(tp: int, predicted: int, true: int) -> float:
    """0/0 is 0."""
    return tp / predicted if predicted else 0.0


def flat_recall(tp: int, predicted: int, true: int) -> float:
    """0/0 is 0."""
    return tp / true if true else 0.0


def flat_f1(tp: int, predicted: int, true: int) -> float:
    """0/0 is 0."""
    return 2 * tp / (predicted + true) if predicted + true else 0.0


Formula = Callable[[int, int, int], float]
Pairs = Callable[[Case, float], list[tuple[Labels, Labels]]]


def closed_pairs(case: Case, _: float) -> list[tuple[Labels, Labels]]:
    """The closed sets."""
    return case.pairs


def constrained_counts(case: Case, node: int) -> tuple[int, int, int]:
    """How often a label is predicted rightly, with all its ancestors; predicted; true."""
    rows = list(zip(case.decisions, case.closed_truth, strict=True))
    ancestors = case.hierarchy.ancestors(node)
    return (
        sum(node in s & y and ancestors <= s for s, y in rows),
        sum(node in s for s, _ in rows),
        sum(node in y for _, y in rows),
    )


def constrained_micro_f1(case: Case, _: float) -> float:
    """F1 of the counts of all labels together."""
    counts = [constrained_counts(case, node) for node in case.nodes]
    return flat_f1(*(sum(count[at] for count in counts) for at in range(3)))


def constrained_macro_f1(case: Case, _: float) -> float:
    """The mean of F1 over labels."""
    return mean(flat_f1(*constrained_counts(case, node)) for node in case.nodes)


def best_pairs(case: Case, k: float) -> list[tuple[Labels, Labels]]:
    """The k best labels as the prediction."""
    return [(set(ranked(row, k)), y) for row, y in zip(case.scores, case.closed_truth, strict=True)]


def label_counts(pairs: list[tuple[Labels, Labels]], node: int) -> tuple[int, int, int]:
    """How often a label is predicted rightly, predicted, true."""
    return (
        sum(node in s and node in y for s, y in pairs),
        sum(node in s for s, _ in pairs),
        sum(node in y for _, y in pairs),
    )


def micro(formula: Formula, pairs: Pairs = closed_pairs) -> Callable[[Case, float], Value]:
    """The formula of the counts of all labels together."""

    def value(case: Case, number: float) -> float:
        sets = pairs(case, number)
        return formula(sum(len(s & y) for s, y in sets), sum(len(s) for s, _ in sets), sum(len(y) for _, y in sets))

    return value


def macro(formula: Formula, pairs: Pairs = closed_pairs) -> Callable[[Case, float], Value]:
    """The mean of the formula over labels."""
    return lambda case, number: mean(formula(*label_counts(pairs(case, number), node)) for node in case.nodes)


def samples(formula: Formula) -> Callable[[Case, float], Value]:
    """The mean of the formula over documents."""
    return lambda case, _: mean(formula(len(s & y), len(s), len(y)) for s, y in case.pairs)


def macro_f1_present(case: Case, _: float) -> float:
    """Labels that are never true and never predicted are left out."""
    counts = [label_counts(case.pairs, node) for node in case.nodes]
    return mean(flat_f1(*row) for row in counts if row[1] + row[2])


def hamming_levels(case: Case, _: float) -> Value:
    """Hamming loss of each level, averaged."""
    return with_mean(
        {
            str(depth): mean(mean((node in s) != (node in y) for node in level) for s, y in case.pairs)
            for depth, level in case.levels.items()
        }
    )


def subset_accuracy(case: Case, _: float) -> float:
    """How often the sets are the same."""
    return mean(s == y for s, y in case.pairs)


def jaccard(case: Case, _: float) -> float:
    """Shared among all; 0/0 is 0 as in the other flat metrics."""
    return mean(len(s & y) / len(s | y) if s | y else 0.0 for s, y in case.pairs)


def label_accuracy(case: Case, _: float) -> float:
    """Mean over labels of the share of documents judged rightly."""
    return mean(mean((node in s) == (node in y) for s, y in case.pairs) for node in case.nodes)


def macro_f1_by_depth(case: Case, _: float) -> Value:
    """Macro-F1 of each level."""
    return with_mean(
        {
            str(depth): mean(flat_f1(*label_counts(case.pairs, node)) for node in level)
            for depth, level in case.levels.items()
        }
    )


def macro_f1_by_decile(case: Case, _: float) -> Value:
    """Macro-F1 of each tenth of the labels, rarest first, lower ids first; the first tenths take what is over."""
    order = sorted(case.nodes, key=lambda node: (case.frequency(node), node))
    size, over = divmod(len(order), 10)
    tenths: dict[str, float] = {}
    for tenth in range(10):
        count = size + (tenth < over)
        part, order = order[:count], order[count:]
        if part:
            tenths[str(tenth + 1)] = mean(flat_f1(*label_counts(case.pairs, node)) for node in part)
    return with_mean(tenths)


def inverse_propensity(count: int, documents: int, a: float = 0.55, b: float = 1.5) -> float:
    """1/p_c; C is not below 0, so that no weight is and a propensity stays a probability."""
    c: float = max(0.0, (math.log(documents) - 1) * (b + 1) ** a)
    return 1 + c * math.exp(-a * math.log(count + b))


def propensity_f1(case: Case, _: float) -> float:
    """Inverse propensities on the sets as given, and an empty class that every document has."""
    documents = len(case.training)
    weights = {node: inverse_propensity(case.given_frequency(node), documents) for node in case.nodes}
    empty = inverse_propensity(documents, documents)
    return mean(
        2 * (weigh(s & y, weights) + empty) / (weigh(s, weights) + weigh(y, weights) + 2 * empty)
        for s, y in zip(case.decisions, case.truth, strict=True)
    )


# Section 4 and accuracies: one label against one


def most_specific(case: Case, labels: Labels) -> int:
    """The one most specific label, the root where nothing was given."""
    found = case.hierarchy.most_specific(labels)
    assert len(found) <= 1, "the twin was given several labels"
    return min(found, default=ROOT)


def _ends(formula: Callable[[Case, int, int], float]) -> Callable[[Case, float], Value]:
    """The mean of a formula of (predicted, true) over documents; NaN does not count."""

    def value(case: Case, _: float) -> float:
        values = [
            formula(case, most_specific(case, s), most_specific(case, y))
            for s, y in zip(case.decisions, case.truth, strict=True)
        ]
        return mean(found for found in values if not math.isnan(found))

    return value


def same(case: Case, predicted: int, true: int) -> float:
    """1 for the same label."""
    return float(predicted == true)


def same_top(case: Case, predicted: int, true: int) -> float:
    """1 for the same ancestor at depth 1, or none on both sides."""
    tops = [
        {above for above in case.closed([node] if node != ROOT else []) if case.hierarchy.longest_depth(above) == 1}
        for node in (predicted, true)
    ]
    return float(tops[0] == tops[1])


def same_parent(case: Case, predicted: int, true: int) -> float:
    """1 for the same parent, the root counting as one; or for no label on both sides."""
    if ROOT in (predicted, true):
        return float(predicted == true)
    return float(case.hierarchy.parents[predicted] == case.hierarchy.parents[true])


def cross_entropy_by_depth(case: Case, _: float) -> Value:
    """At each depth, the mean of -ln p of the true node there."""
    found: dict[int, list[float]] = {}
    for (__, true), row in zip(case.pairs, case.scores, strict=True):
        for node in true:
            found.setdefault(case.hierarchy.longest_depth(node), []).append(minus_log(row[node]))
    return with_mean({str(depth): mean(values) for depth, values in sorted(found.items())})


def level_accuracy(case: Case, _: float) -> Value:
    """At each depth, of the documents with true nodes there, those that have the same predicted there."""
    shares: dict[str, float] = {}
    for depth, level in case.levels.items():
        reach = [(s, y) for s, y in case.pairs if y & set(level)]
        if reach:
            shares[str(depth)] = mean(s & set(level) == y & set(level) for s, y in reach)
    return with_mean(shares)


def meet(case: Case, one: int, two: int) -> int:
    """The deepest common ancestor, root included."""
    return ROOT if ROOT in (one, two) else case.hierarchy.deepest_common_ancestor(one, two)


def depth_from_one(case: Case, node: int) -> int:
    """Depth from a root at depth 1."""
    return case.hierarchy.longest_depth(node) + 1


def wu_palmer(case: Case, one: int, two: int) -> float:
    """2d(lcs)/(d(x)+d(y))."""
    return 2 * depth_from_one(case, meet(case, one, two)) / (depth_from_one(case, one) + depth_from_one(case, two))


def leacock_chodorow(case: Case, one: int, two: int) -> float:
    """-ln(len/(2D)), len the nodes on the shortest path."""
    deepest = max(depth_from_one(case, node) for node in case.nodes)
    return -math.log((case.hierarchy.distance(one, two) + 1) / (2 * deepest))


def resnik(case: Case, one: int, two: int) -> float:
    """ic(lcs)."""
    return information(case, meet(case, one, two))


def lin(case: Case, one: int, two: int) -> float:
    """2ic(lcs)/(ic(x)+ic(y)), 1 if x = y; two different labels without information share none."""
    total = information(case, one) + information(case, two)
    if one == two:
        return 1.0
    return 2 * resnik(case, one, two) / total if total > 0 else 0.0


def jiang_conrath(case: Case, one: int, two: int) -> float:
    """ic(x)+ic(y)-2ic(lcs)."""
    return information(case, one) + information(case, two) - 2 * resnik(case, one, two)


# Section 5: win


def win(case: Case, true: int, probability: Callable[[int], float]) -> float:
    """Sum of 2^-j p(n_j) along the path to the true label, and 2^-l p(n_l) once more."""
    path = sorted(case.closed([true]), key=case.hierarchy.longest_depth)
    return sum(2.0**-j * probability(node) for j, node in enumerate(path, 1)) + 2.0 ** -len(path) * probability(true)


def onehot_win(case: Case, predicted: int, true: int) -> float:
    """The win of all probability on the predicted label; documents without truth do not count."""
    if true == ROOT:
        return NAN
    above = case.closed([predicted] if predicted != ROOT else [])
    return win(case, true, lambda node: float(node in above))


def _of_true_label(formula: Callable[[Case, int, dict[int, float]], float]) -> Callable[[Case, float], Value]:
    """The mean of a formula of the true label and the scores over the documents that have one."""

    def value(case: Case, _: float) -> float:
        ends = [most_specific(case, y) for y in case.truth]
        return mean(formula(case, y, row) for y, row in zip(ends, case.scores, strict=True) if y != ROOT)

    return value


def minus_log(p: float) -> float:
    """-ln p, infinite for 0."""
    return -math.log(p) if p > 0 else math.inf


# Section 6: curves


def curve_area(case: Case, weights: dict[int, float]) -> float:
    """The mean area under precision over recall, all thresholds visited from above."""
    areas = []
    for y, row in zip(case.closed_truth, case.scores, strict=True):
        if weigh(y, weights) == 0:
            continue
        q = {node: max(row[below] for below in {node} | case.hierarchy.descendants(node)) for node in case.nodes}
        points = [(0.0, 1.0)]
        for threshold in sorted(set(q.values()), reverse=True):
            s = {node for node in case.nodes if q[node] >= threshold}
            hit, size = weigh(s & y, weights), weigh(s, weights)
            points.append((hit / weigh(y, weights), hit / size if size > 0 else 1.0))
            if y <= s:
                break
        areas.append(sum((r2 - r1) * (p1 + p2) / 2 for (r1, p1), (r2, p2) in pairwise(points)))
    return mean(areas)


def best_threshold_f1(case: Case, weights: dict[int, float]) -> float:
    """The largest F1 of mean precision and mean recall at one threshold of 0.01, 0.02, ..., 1 for all documents."""
    best = NAN
    for step in range(1, 101):
        threshold = float(np.float32(step / 100))
        precisions, recalls = [], []
        for y, row in zip(case.closed_truth, case.scores, strict=True):
            if weigh(y, weights) == 0:
                continue
            q = {node: max(row[below] for below in {node} | case.hierarchy.descendants(node)) for node in case.nodes}
            s = {node for node in case.nodes if q[node] >= threshold}
            hit, size = weigh(s & y, weights), weigh(s, weights)
            precisions.append(hit / size if size > 0 else 1.0)
            recalls.append(hit / weigh(y, weights))
        if precisions:
            p, r = mean(precisions), mean(recalls)
            f1 = 2 * p * r / (p + r) if p + r > 0 else 0.0
            best = f1 if math.isnan(best) else max(best, f1)
    return best


# Sets that cover, and climbing


def _of_set(formula: Callable[[Case, Labels, Labels], float]) -> Callable[[Case, float], Value]:
    """The mean of a formula of the most specific predicted labels and the closed truth over documents with truth."""

    def value(case: Case, _: float) -> float:
        sets = [case.hierarchy.most_specific(s) for s in case.decisions]
        return mean(formula(case, s, y) for s, y in zip(sets, case.closed_truth, strict=True) if y)

    return value


def leaves_of(case: Case, labels: Labels) -> Labels:
    """The leaves at or below labels; all leaves without any, which is the root."""
    return {leaf for leaf in case.hierarchy.leaves if not labels or case.closed([leaf]) & labels}


def mean_depth(case: Case, labels: Labels) -> float:
    """The mean depth of labels, 0 without any."""
    return mean(map(case.hierarchy.longest_depth, labels)) if labels else 0.0


def haurc(case: Case, _: float) -> float:
    """The area under the share of wrong nodes over information kept, at thresholds 1, 0.99, ..., 0.01 and 0."""
    total, points = len(case.hierarchy.leaves), [(0.0, 0.0)]
    for step in range(100, -1, -1):
        kept, wrong = [], []
        for y, row in zip(case.closed_truth, case.scores, strict=True):
            if y:
                node = climbed(case, row, float(np.float32(step / 100)))
                below = len(leaves_of(case, node))
                kept.append((1 - math.log(below) / math.log(total) if total > 1 else 1.0) if node else 0.0)
                wrong.append(bool(node - y))
        points.append((mean(kept), mean(wrong)))
    area = sum((x - x0) * (y + y0) / 2 for (x0, y0), (x, y) in pairwise(points))
    return area / points[-1][0] if points[-1][0] > 0 else NAN


def climbed(case: Case, row: dict[int, float], threshold: float) -> Labels:
    """The deepest node above the best leaf that reaches a threshold."""
    q = {node: max(row[below] for below in {node} | case.hierarchy.descendants(node)) for node in case.nodes}
    leaf = max(sorted(case.hierarchy.leaves), key=lambda node: q[node])
    path = {node for node in case.closed([leaf]) if q[node] >= threshold} if q[leaf] > 0 else set()
    return case.hierarchy.most_specific(path)


# Calibration and coverage, as the metrics' help has it


def groups(case: Case) -> dict[str, list[int]]:
    """The leaves, and each level."""
    leaves = {"leaves": sorted(case.hierarchy.leaves)}
    return leaves | {str(depth): level for depth, level in case.levels.items()}


def surest(row: dict[int, float], nodes: list[int], y: Labels) -> tuple[float, bool]:
    """The score of the best node with a score, and whether it is true; (0, False) if there is none."""
    best = max(nodes, key=lambda node: (row[node], -node))
    return (row[best], best in y) if row[best] > 0 else (0.0, False)


def judged(case: Case, nodes: list[int]) -> list[tuple[float, bool]]:
    """The surest node of each document that has truth."""
    rows = zip(case.scores, case.closed_truth, strict=True)
    return [surest(row, nodes, y) for row, y in rows if y]


def ece(case: Case, _: float) -> Value:
    """Expected calibration error in 15 bins of equal width."""
    errors = {}
    for name, nodes in groups(case).items():
        found = judged(case, nodes)
        gaps = []
        for at in range(15):
            inside = [(sure, right) for sure, right in found if min(int(sure * 15), 14) == at]
            gaps.append(abs(sum(sure for sure, _ in inside) - sum(right for _, right in inside)))
        errors[name] = sum(gaps) / len(found) if found else NAN
    return {"mean": errors["leaves"], **errors}


def _by_group(formula: Callable[[float, bool], float]) -> Callable[[Case, float], Value]:
    """Sum a formula of (score, is true) over the leaves, and over each level; mean over documents."""

    def value(case: Case, _: float) -> Value:
        rows = list(zip(case.scores, case.closed_truth, strict=True))
        means = {
            name: mean(sum(formula(row[node], node in y) for node in nodes) for row, y in rows)
            for name, nodes in groups(case).items()
        }
        return {"mean": means["leaves"], **means}

    return value


def selective_accuracy(case: Case, _: float) -> float:
    """Area under accuracy over coverage, thresholds 0, 0.01 ... 0.99, the surest documents first."""
    found = judged(case, sorted(case.hierarchy.leaves))
    if not found:
        return NAN
    points: list[tuple[float, float]] = []
    for step in reversed(range(100)):
        kept = [right for sure, right in found if min(int(sure * 100), 99) >= step]
        if kept:
            points.append((len(kept) / len(found), mean(kept)))
    points.insert(0, (0.0, points[0][1]))
    return sum((x2 - x1) * (y1 + y2) / 2 for (x1, y1), (x2, y2) in pairwise(points))


# Section 7: ranking


def ranked(row: dict[int, float], k: float) -> list[int]:
    """The k best labels that have a score, lower ids first among equals."""
    order = sorted(row, key=lambda node: (-row[node], node))
    return [node for node in order if row[node] > 0][: int(k)]


def _ranking(formula: Callable[[list[int], Labels, int], float]) -> Callable[[Case, float], Value]:
    """The mean over documents of a formula of the ranking and the closed truth; NaN does not count."""

    def value(case: Case, k: float) -> float:
        rows = zip(case.scores, case.closed_truth, strict=True)
        values = [formula(ranked(row, k), y, int(k)) for row, y in rows]
        return mean(found for found in values if not math.isnan(found))

    return value


def hits_of(best: list[int], y: Labels) -> int:
    """How many of the best are true."""
    return sum(node in y for node in best)


def ndcg(best: list[int], y: Labels, k: int) -> float:
    """Gains by log2(rank + 1) over the ideal of min(k, |Y|) hits."""
    ideal = sum(1 / math.log2(rank + 1) for rank in range(1, min(k, len(y)) + 1))
    gained = sum(1 / math.log2(rank + 1) for rank, node in enumerate(best, 1) if node in y)
    return gained / ideal if y else NAN


def psp(case: Case, k: float) -> float:
    """Sum of the hits' inverse propensities over the best achievable sum."""
    weight = {node: inverse_propensity(case.frequency(node), len(case.training)) for node in case.nodes}
    gained = best = 0.0
    for row, y in zip(case.scores, case.closed_truth, strict=True):
        gained += sum(weight[node] for node in ranked(row, k) if node in y)
        best += sum(sorted((weight[node] for node in y), reverse=True)[: int(k)])
    return gained / best if best else NAN


def binned_macro_f1(case: Case, k: float) -> Value:
    """Mean F1 of the labels in each bin of training frequency, bins without labels left out; the mean leaves out 0."""
    bins = {"0": (0, 0), "1-9": (1, 9), "10-99": (10, 99), "100-999": (100, 999), "1000+": (1000, math.inf)}
    pairs = best_pairs(case, k)
    means = {
        name: mean(flat_f1(*label_counts(pairs, node)) for node in case.nodes if low <= case.frequency(node) <= high)
        for name, (low, high) in bins.items()
    }
    known = {name: value for name, value in means.items() if not math.isnan(value)}
    return {"mean": mean(value for name, value in known.items() if name != "0"), **known}


REFERENCE: dict[str, Callable[[Case, float], Value]] = {
    "micro_f1": micro(flat_f1),
    "micro_precision": micro(flat_precision),
    "micro_recall": micro(flat_recall),
    "macro_f1": macro(flat_f1),
    "macro_f1_present": macro_f1_present,
    "macro_precision": macro(flat_precision),
    "macro_recall": macro(flat_recall),
    "samples_f1": samples(flat_f1),
    "samples_precision": samples(flat_precision),
    "samples_recall": samples(flat_recall),
    "hamming": hamming,
    "hamming_levels": hamming_levels,
    "subset_accuracy": subset_accuracy,
    "jaccard": jaccard,
    "label_accuracy": label_accuracy,
    "constrained_micro_f1": constrained_micro_f1,
    "constrained_macro_f1": constrained_macro_f1,
    "macro_f1_by_depth": macro_f1_by_depth,
    "macro_f1_by_decile": macro_f1_by_decile,
    "hp": _samples(hierarchical_precision, unit_weights),
    "hr": _samples(hierarchical_recall, unit_weights),
    "hf1": _samples(hierarchical_f, unit_weights),
    "hf1_root": samples(lambda both, s, y: 2 * (both + 1) / (s + 1 + y + 1)),
    "hf_beta": hf_beta,
    "hp_micro": _micro(hierarchical_precision),
    "hr_micro": _micro(hierarchical_recall),
    "hf1_micro": _micro(hierarchical_f),
    "info_hp": _samples(hierarchical_precision, information_weights),
    "info_hr": _samples(hierarchical_recall, information_weights),
    "info_hf1": _samples(hierarchical_f, information_weights),
    "icm": _samples(contrast, information_weights),
    "icm_norm": icm_norm,
    "propensity_f1": propensity_f1,
    "shortest_path": _samples(edges_apart, unit_weights),
    "leaf_accuracy": _ends(same),
    "level_accuracy": level_accuracy,
    "coarsest_accuracy": _ends(same_top),
    "parent_accuracy": _ends(same_parent),
    "finest_accuracy": _ends(same),
    "onehot_win": _ends(onehot_win),
    "wu_palmer": _ends(wu_palmer),
    "leacock_chodorow": _ends(leacock_chodorow),
    "resnik": _ends(resnik),
    "lin": _ends(lin),
    "jiang_conrath": _ends(jiang_conrath),
    "hf1_auc": lambda case, _: curve_area(case, unit_weights(case)),
    "info_hf1_auc": lambda case, _: curve_area(case, information_weights(case)),
    "best_hf1": lambda case, _: best_threshold_f1(case, unit_weights(case)),
    "best_info_hf1": lambda case, _: best_threshold_f1(case, information_weights(case)),
    "softmax_win": _of_true_label(lambda case, y, row: win(case, y, row.__getitem__)),
    "neg_log_win": _of_true_label(lambda case, y, row: minus_log(win(case, y, row.__getitem__))),
    "cross_entropy": _of_true_label(lambda case, y, row: minus_log(row[y])),
    "cross_entropy_by_depth": cross_entropy_by_depth,
    "ece": ece,
    "brier": _by_group(lambda p, is_true: (p - is_true) ** 2),
    "log_loss": _by_group(lambda p, is_true: minus_log(p if is_true else 1 - p)),
    "selective_accuracy": selective_accuracy,
    "precision@k": _ranking(lambda best, y, k: hits_of(best, y) / k),
    "recall@k": _ranking(lambda best, y, k: hits_of(best, y) / len(y) if y else NAN),
    "ndcg@k": _ranking(ndcg),
    "psp@k": psp,
    "micro_f1@k": micro(flat_f1, best_pairs),
    "macro_f1@k": macro(flat_f1, best_pairs),
    "binned_macro_f1@k": binned_macro_f1,
    "set_coverage": _of_set(lambda case, s, y: not s or bool(s & y)),
    "set_size": _of_set(lambda case, s, y: len(leaves_of(case, s))),
    "set_nodes": _of_set(lambda case, s, y: max(1, len(s))),
    "set_depth": _of_set(lambda case, s, y: mean_depth(case, s)),
    "haurc": haurc,
}
