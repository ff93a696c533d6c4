"""Metrics at their edges, by hand: defaults, the last bins, ties, and what 0/0 is."""

import math

import numpy as np
import pytest

from tests.reference import matrix_of
from treelabel import METRICS, Hierarchy, Scores, evaluate
from treelabel.metrics import Batch, Context, find_metric
from treelabel.metrics.curves import THRESHOLDS, curve, hierarchical_points
from treelabel.metrics.example import example, example_sums
from treelabel.metrics.metric import with_zeros
from treelabel.metrics.overlap import icm_rows
from treelabel.metrics.probabilities import coverage_curve
from treelabel.metrics.ranking import frequency_bins
from treelabel.metrics.shared_formulas import f_beta, precision, ratio, recall
from treelabel.metrics.single_label import level_matches

FLAT = Hierarchy.flat("ab")


def test_defaults_are_those_of_the_documentation() -> None:
    numbers = (("alpha", 2.0), ("alpha_2", 2.0), ("beta", 3.0))
    near = (("acceptable", 2.0),)
    expected = {"icm": numbers, "icm_norm": numbers, "distance_precision": near, "distance_recall": near}
    assert {name: row.numbers for name, row in METRICS.items() if row.numbers} == expected
    defaults = {name: row.default for name, row in METRICS.items() if row.parameter}
    assert defaults == {name: 1.0 if name == "hf_beta" else 5.0 for name in defaults}
    context = Context(FLAT)
    assert (context.propensity, context.bin_edges) == ((0.55, 1.5), (1, 10, 100, 1000))
    assert not context.is_from_truth


def test_zero_over_zero_is_decided_by_name() -> None:
    nothing, only_truth, only_prediction = [0.0, 0.0, 0.0], [0.0, 2.0, 0.0], [2.0, 0.0, 0.0]
    rows = np.array([nothing, only_truth, only_prediction])
    for formula in (precision, recall, f_beta):
        assert formula(rows).tolist() == [1.0, 0.0, 0.0]
        assert formula(rows, if_empty=0.0).tolist() == [0.0, 0.0, 0.0]
    assert f_beta(np.array([[2.0, 4.0, 1.0]]), 2).tolist() == [5 / 18]
    assert ratio(np.array([3.0]), np.array([0.5]), np.array([False]), 9.0).tolist() == [6.0]
    # 1 x 5 + 10 x 7 - 100 (5 + 7 - 3)
    assert icm_rows(np.array([[5.0, 7.0, 3.0]]), 1.0, 10.0, 100.0).tolist() == [-825.0]


@pytest.mark.parametrize(
    ("truth", "decisions", "expected"),
    [
        # The truth has no information: the contrast cannot be below that of the truth with itself.
        ([set()], [set()], 1.0),
        ([set()], [{0}], 0.0),
        # ic(a) = 1 bit: 2 + 2 - 3 = 1 is the best; ICM of a against b is 2 + 2 - 6 = -2, of nothing 2 - 3 = -1.
        ([{0}], [{0}], 1.0),
        ([{0}], [{1}], 0.0),
        ([{0}], [set()], 0.0),
        ([{0}, {1}], [{0}, set()], 0.5),
    ],
)
def test_the_normalised_contrast_by_hand(truth: list[set[int]], decisions: list[set[int]], expected: float) -> None:
    context = Context(FLAT, np.array([2, 2]), np.array([2, 2]), 4)
    batch = Batch(context, matrix_of(truth, 2), matrix_of(decisions, 2))
    assert find_metric("icm_norm").compute(batch) == expected


def two(first: float, second: float, names: str) -> float:
    """Evaluate a metric of the best leaf: the first document is wrong with one confidence, the second is right."""
    scores = Scores(FLAT, [[first, 0.0], [second, 0.0]])
    return evaluate([["b"], ["a"]], scores=scores, metrics=[names])[names]


def test_a_confidence_of_1_is_in_the_last_bin_and_no_other() -> None:
    # 0.9 x 15 = 13.5 is in the last bin but one: |1 - 0| + |0.9 - 1| over two documents.
    assert two(1.0, 0.9, "ece") == pytest.approx(1.1 / 2)
    # 14/15 begins the last bin: |1 + 0.94 - 1| over two documents.
    assert two(1.0, 0.94, "ece") == pytest.approx(0.94 / 2)
    # Accuracy is 0 up to half of the documents, and rises to one half where all are decided.
    assert two(1.0, 0.985, "selective_accuracy") == pytest.approx(0.125)
    assert two(1.0, 0.995, "selective_accuracy") == pytest.approx(0.5)


def test_curves_have_a_point_for_every_hundredth() -> None:
    assert THRESHOLDS.tolist() == pytest.approx([step / 100 for step in range(1, 101)])
    points = curve(example_sums(hierarchical_points))
    # Up to 0.25 all nodes with a score are predicted but D of the first document: precisions 2/3, 2/4 and 1/4.
    assert points["precision"][24] == pytest.approx((2 / 3 + 1 / 2 + 1 / 4) / 3)
    assert points["precision"][25] == pytest.approx((2 / 3 + 1 / 2 + 1 / 3) / 3)
    assert points["recall"][[24, 25, 49, 50, 75, 99]].tolist() == pytest.approx([1, 5 / 6, 1 / 2, 1 / 3, 0, 0])
    # Nothing predicted: precision begins at 1.
    assert points["precision"][99] == 1.0
    found = coverage_curve((np.array([[0.0, 0.0]] * 98 + [[1.0, 0.0], [3.0, 3.0]]).ravel(),))
    assert found["threshold"][[0, 99]].tolist() == pytest.approx([0, 0.99])
    assert found["coverage"][[0, 98, 99]].tolist() == [1, 1, 0.75]
    assert found["accuracy"][[0, 98, 99]].tolist() == [0.75, 0.75, 1]


def test_bins_of_frequency_begin_at_their_edges() -> None:
    bins = frequency_bins(np.array([0, 1, 9, 10, 99, 100, 999, 1000]), (1, 10, 100, 1000))
    assert {name: np.flatnonzero(keep).tolist() for name, keep in bins.items()} == {
        "0": [0],
        "1-9": [1, 2],
        "10-99": [3, 4],
        "100-999": [5, 6],
        "1000+": [7],
    }


def test_ranks_of_equal_scores_are_those_of_ids() -> None:
    h = Hierarchy.flat("abcd")
    scores = Scores(h, [[0.2, 0.5, 0.2, 0.5]])
    for k, names in ((1, "b"), (2, "bd"), (3, "abd")):
        for each in "abcd":
            hits = evaluate([[each]], scores=scores, metrics=[f"precision@{k}"], hierarchy=h)[f"precision@{k}"]
            assert hits == pytest.approx((each in names) / k)
    # The gain of rank r is 1 / log2(r + 1); two true labels could have had ranks 1 and 2.
    ndcg = evaluate([["d", "a"]], scores=scores, metrics=["ndcg@3"], hierarchy=h)["ndcg@3"]
    assert ndcg == pytest.approx((1 / math.log2(3) + 1 / math.log2(4)) / (1 + 1 / math.log2(3)))


def test_zeros_are_ranked_only_as_far_as_the_ranking_goes() -> None:
    h = Hierarchy.flat("abcd")
    for form in (Scores(h, [[0.0, 0.0, 0.5, 0.0]]), Scores(h, Scores(h, [[0.0, 0.0, 0.5, 0.0]]).csr())):
        assert (with_zeros(form, 2).dense() > 0).tolist() == [[True, True, True, False]]
        assert (with_zeros(form, 9).dense() > 0).all()


def test_contexts_are_the_same_if_everything_known_is() -> None:
    counts = np.array([1, 2])
    context = Context(FLAT, counts, counts, 4)
    assert context.is_same(Context(FLAT, counts.copy(), counts.copy(), 4))
    others = [
        Context(FLAT, np.array([2, 2]), counts, 4),
        Context(FLAT, counts, np.array([2, 2]), 4),
        Context(FLAT, counts, counts, 5),
        Context(FLAT, counts, counts, 4, propensity=(0.6, 1.5)),
        Context(FLAT, counts, counts, 4, bin_edges=(1, 10)),
        Context(FLAT),
    ]
    assert not any(context.is_same(other) for other in others)


@pytest.mark.parametrize(("names", "levels"), [([], 1), (["A"], 1), (["A > B"], 2), (["A > B > C"], 3)])
def test_matches_have_a_column_for_every_level(names: list[str], levels: int) -> None:
    h = Hierarchy.from_paths(names)
    nothing = matrix_of([set(), set()], len(h))
    assert [np.shape(part) for part in level_matches(Batch(Context(h), nothing, nothing))] == [(2, levels)] * 2


def test_levels_are_right_only_if_all_their_nodes_are() -> None:
    h = Hierarchy.from_paths(["A > C", "A > D", "B"])
    result = evaluate(
        [["C"], ["C"], ["A"], ["B"]], [["C"], ["C", "D"], ["C"], ["A"]], hierarchy=h, metrics=["level_accuracy"]
    )
    # Depth 1: A, A, A are right and B is not. Depth 2: only the first of the two documents that reach it.
    assert result["level_accuracy[1]"] == 0.75
    assert result["level_accuracy[2]"] == 0.5
    assert result["level_accuracy"] == 0.625


def test_the_example_is_what_its_table_says() -> None:
    batch = example()
    assert batch.context.information.tolist() == [1, 2, 4, 3, 2]
    assert batch.context.information_weights.tolist() == [1, 2, 4, 2, 1]
    assert batch.scores.dense()[0].tolist() == pytest.approx([0.625, 0.375, 0, 0.5, 0.125])
