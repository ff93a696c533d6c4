"""The numbers of a report, against evaluate, compare and slow twins made of sets."""

from collections import Counter
from typing import Any

import numpy as np
import pytest

from tests.report.examples import DAG, FEW, TREE, dataset, judged, random_case
from treelabel import Hierarchy, Scores, TreelabelError, compare, decide, evaluate
from treelabel.metrics import METRICS
from treelabel.report.confusion import far_confusions, sibling_confusions, sibling_counts, sibling_tables
from treelabel.report.content import make_content
from treelabel.report.mistakes import costliest_mistakes
from treelabel.report.operating_curve import operating_curve
from treelabel.report.reliability import reliability
from treelabel.report.sentences import HEADLINES, MEANINGS, meaning
from treelabel.report.slices import by_bin, by_decile, by_depth
from treelabel.report.systems import ReportSystem
from treelabel.report.tree import tree_values

CASES = [(TREE, 1), (TREE, 2), (DAG, 3), (DAG, 4), (Hierarchy.flat("XYZ"), 5)]


def sets(matrix: np.ndarray) -> list[set[int]]:
    return [set(np.flatnonzero(row).tolist()) for row in matrix]


def both(system: ReportSystem) -> list[tuple[set[int], set[int]]]:
    """The closed true and predicted labels of each document, as sets."""
    return list(zip(sets(system.truth.toarray()), sets(system.decisions.toarray()), strict=True))


# Values of metrics


@pytest.mark.parametrize(("hierarchy", "seed"), CASES)
def test_values_and_intervals_are_those_of_evaluate(hierarchy: Hierarchy, seed: int) -> None:
    truth, scores, found = random_case(hierarchy, seed)
    for given, name in ((scores, "scores"), (found, "decisions")):
        system = judged(truth, given)
        metrics = [metric for metric in HEADLINES if metric in system.result.values]
        options: dict[str, Any] = {name: given}
        expected = evaluate(truth, **options, hierarchy=hierarchy, metrics=metrics)
        for metric in metrics:
            assert system.result[metric] == expected[metric]
            assert system.intervals[metric] == expected.interval(metric, resamples=FEW)


def test_differences_are_those_of_compare() -> None:
    truth, scores, found = random_case(TREE, 6)
    other = random_case(TREE, 7)[1]
    systems = {"one": scores, "two": other, "three": found}
    content = make_content(truth, systems, resamples=FEW)
    table = compare(truth, systems, metrics=["hf1", "macro_f1"], resamples=FEW)
    assert content.comparison is not None
    assert content.comparison.rules == table.rules
    mine = {row.name: row for row in content.comparison.metrics}
    for row in table.metrics:
        assert mine[row.name] == row
    # Metrics of scores compare those that have some.
    alone = compare(truth, {"one": scores, "two": other}, metrics=["hf1_auc", "ece"], resamples=FEW)
    assert content.score_comparison is not None
    assert content.score_comparison.systems == ["one", "two"]
    expected = {row.name: row for row in alone.metrics}
    assert all(row == expected[row.name] for row in content.score_comparison.metrics)
    assert [row.name for row in content.score_comparison.metrics] == ["hf1_auc", "ece"]


def test_a_difference_is_the_second_less_the_first() -> None:
    truth = dataset(TREE, [["F"], ["E"], ["D"], ["G"]])
    content = make_content(truth, {"poor": [["E"]] * 4, "good": [["F"], ["E"], ["D"], ["F"]]}, resamples=FEW)
    assert content.comparison is not None
    row = next(row for row in content.comparison.metrics if row.name == "subset_accuracy")
    assert row.differences[0].difference == pytest.approx(0.5)


def test_every_headline_has_a_sentence_and_the_direction_of_its_metric() -> None:
    for name, told in MEANINGS.items():
        assert told.sentence.endswith(".")
        assert told.higher_is_better == METRICS[name].higher_is_better
        assert ("Lower is better." in told.sentence) != told.higher_is_better
    assert meaning("jaccard").title == "jaccard"


# Slices


@pytest.mark.parametrize(("hierarchy", "seed"), CASES)
def test_slices_are_means_over_sets_of_labels(hierarchy: Hierarchy, seed: int) -> None:
    truth, _, found = random_case(hierarchy, seed)
    train = random_case(hierarchy, seed + 10, documents=40)[0]
    system = judged(truth, found, train=train)
    pairs = both(system)

    def f1(node: int) -> float:
        hits = sum(node in true and node in chosen for true, chosen in pairs)
        total = sum((node in true) + (node in chosen) for true, chosen in pairs)
        return 2 * hits / total if total else 0.0

    def mean(nodes: list[int]) -> float:
        return float(np.mean([f1(node) for node in nodes]))

    counts = Counter(node for row in sets(train.closed_labels.toarray()) for node in row)
    every = range(len(hierarchy))
    for each in by_depth([system]):
        nodes = [node for node in every if hierarchy.depth[node] == int(each.name)]
        assert each.labels == len(nodes)
        assert each.values[0].value == pytest.approx(mean(nodes))
    ranked = sorted(every, key=lambda node: (counts[node], node))
    size, extra = divmod(len(ranked), 10)
    bounds = np.cumsum([0, *(size + (tenth < extra) for tenth in range(10))])
    for each in by_decile([system]):
        nodes = ranked[bounds[int(each.name) - 1] : bounds[int(each.name)]]
        assert each.labels == len(nodes)
        assert each.values[0].value == pytest.approx(mean(nodes))
    for each in by_bin([system]):
        low, _, high = each.name.partition("-")
        least, most = (0, 0) if low == "0" else (int(low.rstrip("+")), int(high) if high else 10**9)
        nodes = [node for node in every if least <= counts[node] <= most]
        assert each.labels == len(nodes)
        assert each.values[0].value == pytest.approx(mean(nodes))
        assert each.values[0].low <= each.values[0].value <= each.values[0].high


def test_improvements_are_relative_to_the_first_system() -> None:
    truth = dataset(TREE, [["F"], ["E"]])
    content = make_content(truth, {"half": [["F"], []], "whole": [["F"], ["E"]]}, resamples=FEW)
    # Of the labels A, C, F, B and E the first system finds three; D and G never occur.
    seen = next(each for each in content.bins if each.name == "1-9")
    assert list(seen.improvements) == pytest.approx([100 * (1 - 0.6) / 0.6])
    never = next(each for each in content.bins if each.name == "0")
    assert np.isnan(never.improvements[0])


# Rules on the curve


def test_points_of_rules_are_means_over_documents_with_truth() -> None:
    truth, scores, _ = random_case(TREE, 8)
    system = judged(truth, scores)
    curve = operating_curve(system)
    assert curve is not None
    assert [point.is_chosen for point in curve.points].count(True) == 1
    assert next(point.rule for point in curve.points if point.is_chosen) == system.rule
    for point in curve.points:
        chosen = sets(decide(scores, point.rule).csr.toarray())
        pairs = [(true, found) for (true, _), found in zip(both(system), chosen, strict=True) if true]
        precision = np.mean([len(true & found) / len(found) if found else 1 for true, found in pairs])
        recall = np.mean([len(true & found) / len(true) for true, found in pairs])
        assert [point.precision, point.recall] == pytest.approx([precision, recall])


def test_a_threshold_lies_on_the_curve() -> None:
    truth, scores, _ = random_case(TREE, 9)
    curve = operating_curve(judged(truth, scores))
    assert curve is not None
    point = next(point for point in curve.points if point.rule == "threshold@0.5")
    gap = np.hypot(curve.precision - point.precision, curve.recall - point.recall)
    assert gap.min() < 1e-9
    assert (curve.precision[0], curve.recall[0]) == (1, 0)


# Calibration


def test_reliability_counts_the_best_label_of_each_level() -> None:
    truth, scores, _ = random_case(TREE, 11, documents=80)
    system = judged(truth, scores)
    found = {each.group: each for each in reliability(system)}
    assert list(found) == ["leaves", "1", "2", "3"]
    groups = {"leaves": TREE.is_leaf, **{str(depth): TREE.depth == depth for depth in (1, 2, 3)}}
    for name, allowed in groups.items():
        bins: dict[int, list[tuple[float, bool]]] = {}
        for row, (true, _) in zip(scores.dense(), both(system), strict=True):
            if true:
                best = max(np.flatnonzero(allowed).tolist(), key=lambda node: (row[node], -node))
                bins.setdefault(min(int(row[best] * 15), 14), []).append((float(row[best]), best in true))
        means = [np.mean([sure for sure, _ in bins[place]]) for place in sorted(bins)]
        shares = [np.mean([right for _, right in bins[place]]) for place in sorted(bins)]
        assert found[name].confidence == pytest.approx(means)
        assert found[name].accuracy == pytest.approx(shares)
        assert found[name].counts.tolist() == [len(bins[place]) for place in sorted(bins)]
        assert found[name].error == pytest.approx(evaluate(truth, scores=scores, metrics="ece")[f"ece[{name}]"])
        assert (found[name].low <= found[name].accuracy).all()


def test_labels_without_scores_have_no_curve_and_no_calibration() -> None:
    truth, _, found = random_case(TREE, 12)
    system = judged(truth, found)
    assert operating_curve(system) is None
    assert reliability(system) == []


# Confusions


@pytest.mark.parametrize(("hierarchy", "seed"), CASES)
def test_siblings_are_counted_by_document(hierarchy: Hierarchy, seed: int) -> None:
    truth, _, found = random_case(hierarchy, seed)
    system = judged(truth, found)
    parents = [set(hierarchy.parents(node).indices.tolist()) for node in range(len(hierarchy))]
    tops = set(np.flatnonzero(hierarchy.parent_idx[hierarchy.parent_ptr[:-1]] < 0).tolist())
    above = [parents[node] | ({-1} if node in tops else set()) for node in range(len(hierarchy))]
    expected: Counter[tuple[int, int]] = Counter()
    for true, chosen in both(system):
        for one in true - chosen:
            expected.update((one, two) for two in chosen - true if above[one] & above[two])
    counts = sibling_counts(hierarchy, system.truth, system.decisions)
    assert {(i, j): counts[i, j] for i, j in zip(*counts.nonzero(), strict=True)} == dict(expected)
    listed = sibling_confusions(system, counts, most=1000)
    assert {(each.true, each.predicted): each.documents for each in listed} == dict(expected)
    assert [each.documents for each in listed] == sorted(expected.values(), reverse=True)
    for each in listed:
        assert each.true_documents == sum(each.true in true for true, _ in both(system))


def test_tables_of_siblings_have_hits_in_the_diagonal() -> None:
    truth = dataset(TREE, [["F"], ["F"], ["G"], ["D"], ["E"]])
    system = judged(truth, [["F"], ["G"], ["F"], ["F"], ["E"]])
    counts = sibling_counts(TREE, system.truth, system.decisions)
    first, second = sibling_tables(system, counts)
    names = TREE.names
    assert (names[first.parent], [names[child] for child in first.children]) == ("C", ["F", "G"])
    assert first.counts.tolist() == [[1, 1], [1, 0]]
    assert (names[second.parent], [names[child] for child in second.children]) == ("A", ["C", "D"])
    assert second.counts.tolist() == [[3, 0], [1, 0]]
    assert (first.total, second.total) == (2, 1)


@pytest.mark.parametrize(("hierarchy", "seed"), CASES)
def test_far_confusions_take_the_nearest_true_label(hierarchy: Hierarchy, seed: int) -> None:
    truth, _, found = random_case(hierarchy, seed)
    system = judged(truth, found)

    def ends(nodes: set[int]) -> set[int]:
        below = [set(hierarchy.descendants(node).indices.tolist()) for node in range(len(hierarchy))]
        return {node for node in nodes if not (below[node] - {node}) & nodes}

    expected: Counter[tuple[int, int]] = Counter()
    for true, chosen in both(system):
        for wrong in ends(chosen) - true if true else ():
            near = min(ends(true), key=lambda node: (int(hierarchy.distance(node, wrong)[0]), node))
            expected[near, wrong] += 1
    listed = far_confusions(system, most=1000)
    assert {(each.true, each.predicted): each.documents for each in listed} == dict(expected)
    assert all(each.distance == hierarchy.distance(each.true, each.predicted)[0] for each in listed)
    costs = [each.distance * each.documents for each in listed]
    assert costs == sorted(costs, reverse=True)


# Mistakes


def test_mistakes_are_ranked_by_labels_off_and_then_by_confidence() -> None:
    truth = dataset(TREE, [["F"], ["F"], ["E"], ["D"], []])
    names = {name: TREE.names.index(name) for name in TREE.names}
    values = np.zeros((5, len(TREE)))
    # How sure a document is of a top label does not count.
    values[0, names["B"]] = 1
    for row, (end, p) in enumerate([("E", 0.6), ("E", 0.9), ("E", 0.8), ("G", 0.7), ("D", 0.5)]):
        path = TREE.closure(np.eye(len(TREE), dtype=bool)[[names[end]]]).indices
        values[row, path] = np.maximum(values[row, path], p)
    system = judged(truth, Scores(TREE, values), rule="best_leaf")
    found = costliest_mistakes(system, truth)
    assert [(each.id, each.cost) for each in found] == [("1", 5), ("0", 5), ("3", 3), ("4", 2)]
    assert found[0].text == "text 1"
    assert found[0].true == ("A > C > F",)
    assert [(path, round(p or 0, 4)) for path, p in found[0].predicted] == [("B > E", 0.9)]
    assert found[-1].true == ()
    assert [each.id for each in costliest_mistakes(system, truth, most=2)] == ["1", "0"]
    assert all(each.text is None for each in costliest_mistakes(system, truth, texts=False))


def test_long_texts_are_shortened() -> None:
    truth = random_case(TREE, 13, documents=1)[0]
    long = type(truth).of(["word " * 10_000], [["F"]], TREE)
    mistake = costliest_mistakes(judged(long, [["E"]]), long)[0]
    assert mistake.text is not None
    assert len(mistake.text) <= 600
    assert mistake.predicted == (("B > E", None),)


# The tree


@pytest.mark.parametrize(("hierarchy", "seed"), CASES)
def test_the_tree_has_every_label_with_its_parents_and_counts(hierarchy: Hierarchy, seed: int) -> None:
    truth, _, found = random_case(hierarchy, seed)
    system = judged(truth, found)
    values = tree_values([system], len(hierarchy))
    assert values["names"] == list(hierarchy.names)
    pairs = both(system)
    for node in range(len(hierarchy)):
        given = values["parents"][node]
        listed = given if isinstance(given, list) else [given]
        low, high = hierarchy.parent_ptr[node : node + 2]
        assert listed == hierarchy.parent_idx[low:high].tolist()
        assert values["true"][node] == sum(node in true for true, _ in pairs)
        assert values["predicted"][0][node] == sum(node in chosen for _, chosen in pairs)
        occurs = values["true"][node] + values["predicted"][0][node] > 0
        assert values["f1"][0][node] == (round(1000 * system.label_f1[node]) if occurs else -1)
    assert values["train"] is None
    assert values["left_out"] == 0


def test_a_tree_that_is_too_large_keeps_what_is_used_with_its_ancestors() -> None:
    truth = dataset(TREE, [["F"], ["F"], ["E"]])
    values = tree_values([judged(truth, [["F"], ["F"], ["F"]])], 3)
    assert values["names"] == ["A", "C", "F"]
    assert values["parents"] == [-1, 0, 1]
    assert values["left_out"] == len(TREE) - 3


# What cannot be reported


def test_what_cannot_be_reported_is_refused() -> None:
    truth = dataset(TREE, [["F"]])
    with pytest.raises(TreelabelError, match="from 1 to 20 systems, found 0"):
        make_content(truth, {})
    with pytest.raises(TreelabelError, match="from 1 to 20 systems, found 21"):
        make_content(truth, {str(name): [["F"]] for name in range(21)})
    with pytest.raises(TreelabelError, match="there are no documents"):
        make_content(truth[:0], {"one": []})
    with pytest.raises(TreelabelError, match="truth has 1 documents, decisions have 2"):
        make_content(truth, {"one": [["F"], ["F"]]})
