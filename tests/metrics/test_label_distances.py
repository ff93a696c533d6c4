"""Metrics of distances between labels by hand, on trees small enough to be drawn."""

from typing import Any

import pytest

from treelabel import Hierarchy, Scores, TreelabelError, evaluate

# A over C (over F, G) and D; B over E.
TREE = Hierarchy.from_paths(["A > C > F", "A > C > G", "A > D", "B > E"])


def value(name: str, truth: list[str], decisions: list[str], hierarchy: Hierarchy = TREE, **options: Any) -> float:
    return evaluate([truth], [decisions], hierarchy=hierarchy, metrics=[name], **options)[name]


@pytest.mark.parametrize(
    ("truth", "decisions", "expected"),
    [
        (["F"], ["G"], 2),
        (["F"], ["G", "E"], 2 + 5),
        (["F", "E"], ["F", "E"], 5 + 5),
        (["F"], [], 3),
        ([], ["D", "E"], 2 + 2),
        # Ancestors are said with their labels.
        (["A", "C", "F"], ["A"], 2),
    ],
)
def test_shortest_paths_are_summed(truth: list[str], decisions: list[str], expected: float) -> None:
    assert value("shortest_path_sum", truth, decisions) == expected


@pytest.mark.parametrize(
    ("truth", "decisions", "expected"),
    [
        # One label each: 1 - distance / D.
        (["F"], ["G"], 1 - 2 / (2 * 5)),
        (["F"], ["E"], 1 - 5 / (2 * 5)),
        # Beyond D both labels are better off alone.
        (["F", "D"], ["F"], 1 - 3 / 5),
        (["F", "E"], ["F"], 1 - 5 / 5),
        # F goes with G, and E with nothing nearer than D.
        (["F"], ["G", "E"], 1 - (2 + 5) / (3 * 5)),
        # The true F and the false G take each other (2) rather than D each (3 + 3).
        (["D", "F"], ["D", "G"], 1 - 2 / (2 * 5)),
    ],
)
def test_labels_are_paired_at_the_least_cost(truth: list[str], decisions: list[str], expected: float) -> None:
    assert value("mgia", truth, decisions) == pytest.approx(expected)


def test_the_cost_of_a_lone_label_can_be_set() -> None:
    assert value("mgia(max_distance=2)", ["F"], ["E"]) == pytest.approx(1 - 4 / 4)
    assert value("mgia(max_distance=10)", ["F"], ["E"]) == pytest.approx(1 - 5 / 20)
    with pytest.raises(TreelabelError, match="max_distance = 0, expected a number above 0"):
        value("mgia(max_distance=0)", ["F"], ["E"])


@pytest.mark.parametrize(
    ("truth", "decisions", "precision", "recall"),
    [
        # F and G meet at C: {G, C} and {F, C}.
        (["F"], ["G"], 1 / 2, 1 / 2),
        # F and E meet at the root: {E, B, root} and {F, C, A, root}.
        (["F"], ["E"], 1 / 3, 1 / 4),
        # An ancestor is where they meet.
        (["F"], ["A"], 1, 1 / 3),
        (["F"], ["F"], 1, 1),
        # F meets F; the missed D meets it at A, to which the prediction is joined: {F, C, A} and {F, D, A}.
        (["F", "D"], ["F"], 2 / 3, 2 / 3),
        ([], [], 1, 1),
        (["F"], [], 0, 0),
    ],
)
def test_sets_are_extended_to_where_they_meet(
    truth: list[str], decisions: list[str], precision: float, recall: float
) -> None:
    assert value("lca_precision", truth, decisions) == pytest.approx(precision)
    assert value("lca_recall", truth, decisions) == pytest.approx(recall)
    both = precision + recall
    assert value("lca_f1", truth, decisions) == pytest.approx(2 * precision * recall / both if both else 0)


def test_near_misses_count_for_and_far_ones_against_the_system() -> None:
    # A right D, and G for F, 2 edges apart. With 4 acceptable: FpCon = FnCon = 1 - 2/4.
    truth, decisions = [["D"], ["F"]], [["D"], ["G"]]
    names = ["distance_precision(acceptable=4)", "distance_precision", "distance_recall(acceptable=4)"]
    near = evaluate(truth, decisions, hierarchy=TREE, metrics=names)
    assert near["distance_precision(acceptable=4)"] == pytest.approx((1 + 0.5 + 0.5) / (1 + 1 + 0.5))
    assert near["distance_recall(acceptable=4)"] == pytest.approx((1 + 0.5 + 0.5) / (1 + 1 + 0.5))
    assert near["distance_precision"] == pytest.approx(1 / 2)
    # E for F, 5 edges apart, is cut to -1 on both sides, which leaves nothing.
    assert value("distance_precision", ["F"], ["E"]) == 0
    # A label too many, with the acceptable distance between: precision suffers, recall does not.
    assert value("distance_precision", ["F"], ["F", "G"]) == pytest.approx(1 / 2)
    assert value("distance_recall", ["F"], ["F", "G"]) == 1
    with pytest.raises(TreelabelError, match="acceptable = 0: expected a distance above 0"):
        value("distance_recall(acceptable=0)", ["F"], ["E"])


def test_label_vectors_are_as_far_apart_as_the_weight_of_the_path_between_them() -> None:
    w = 0.75
    assert value("kernel_distance", ["F"], ["G"]) == pytest.approx((2 * w**2) ** 0.5)
    assert value("kernel_distance", ["F"], ["E"]) == pytest.approx((1 + w + w**2 + 1 + w) ** 0.5)
    # Sums of vectors: A and C weigh twice in the truth, F and G once each.
    assert value("kernel_distance", ["F", "G"], []) == pytest.approx((4 + 4 * w + w**2 + w**2) ** 0.5)
    assert value("kernel_distance(base=1)", ["F"], ["G"]) == pytest.approx(2**0.5)


def test_hamming_loss_counts_labels_that_occur() -> None:
    # True somewhere: A, C, F. Wrong: F and G, then nothing.
    found = evaluate([["F"], ["C"]], [["G"], ["C"]], hierarchy=TREE, metrics=["hamming_annotated", "hamming"])
    assert found["hamming_annotated"] == pytest.approx(2 / 3 / 2)
    assert found["hamming"] == pytest.approx(2 / 7 / 2)


def test_levels_are_decided_one_by_one() -> None:
    # Nodes A B C D E F G: B is best at the top, C (of A) below it, G below that.
    scores = Scores(TREE, [[0.4, 0.5, 0.4, 0, 0.3, 0.1, 0.2]])
    found = evaluate([["G"]], scores=scores, metrics=["argmax_level_accuracy"]).values
    assert [found[f"argmax_level_accuracy[{depth}]"] for depth in (1, 2, 3)] == [0, 1, 1]
    assert found["argmax_level_accuracy"] == pytest.approx(2 / 3)
