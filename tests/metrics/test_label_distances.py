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
    ("truth", "decisions", "precision", "recall"),
    [
        # F and G meet at C: {G, C} and {F, C}.
        (["F"], ["G"], 1 / 2, 1 / 2),
        # F and E meet at the root: {E, B, root} and {F, C, A, root}.
        (["F"], ["E"], 1 / 3, 1 / 4),
        # An ancestor is where they meet.
        (["F"], ["A"], 1, 1 / 3),
        (["F"], ["F"], 1, 1),
        # The root stands for no label.
        ([], [], 1, 1),
        (["F"], [], 1, 1 / 4),
        ([], ["D"], 1 / 3, 1),
    ],
)
def test_labels_are_followed_up_to_where_they_meet(
    truth: list[str], decisions: list[str], precision: float, recall: float
) -> None:
    assert value("lca_precision", truth, decisions) == pytest.approx(precision)
    assert value("lca_recall", truth, decisions) == pytest.approx(recall)
    f1 = value("lca_f1", truth, decisions)
    assert f1 == pytest.approx(2 * precision * recall / (precision + recall))
    assert f1 == pytest.approx(2 / (2 + value("shortest_path_sum", truth, decisions)))


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


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("mgia", "unknown metric"),
        ("kernel_distance", "unknown metric"),
        ("lca_f1", "compares single labels"),
    ],
)
def test_what_no_source_settles_is_not_computed(name: str, reason: str) -> None:
    with pytest.raises(TreelabelError, match=reason):
        value(name, ["F", "D"], ["F"])


# A over C; A, B over D; B over E; C, D over F.
DAG = Hierarchy.from_edges([("A", "C"), ("A", "D"), ("B", "D"), ("B", "E"), ("C", "F"), ("D", "F")])


@pytest.mark.parametrize(
    ("truth", "decisions", "expected"),
    [
        # F - D - B - E; by way of A and the root it would be 5.
        (["F"], ["E"], 3),
        (["F"], ["C", "E"], 1 + 3),
        (["C"], ["E"], 4),
        (["F"], [], 3),
        ([], [], 0),
        (["E", "F"], ["C"], 4 + 1),
    ],
)
def test_shortest_ways_are_summed_in_a_graph(truth: list[str], decisions: list[str], expected: float) -> None:
    assert value("shortest_path_sum", truth, decisions, DAG) == expected


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
