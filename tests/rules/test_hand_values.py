"""Rules at their edges, by hand: defaults, ties, scores that equal a limit, and constants of the methods."""

from typing import Any

import numpy as np
import pytest

from treelabel import RULES, Hierarchy, Scores, TreelabelError, decide
from treelabel.hierarchy import LabelMatrix
from treelabel.rules import back_off, population, score_rows
from treelabel.rules.back_off import NEVER, LeafPaths, precise_thresholds
from treelabel.rules.decision_columns import seven_digits
from treelabel.rules.information_f import WeightedRow, can_gain
from treelabel.rules.registry import COMMON
from treelabel.rules.risk_bounds import last_precise

TREE = Hierarchy.from_paths(["A > B", "A > C", "D"])  # ids: A 0, D 1, B 2, C 3
DEFAULTS: dict[str, dict[str, Any]] = {
    "threshold": {"t": 0.5},
    "top_k": {"k": 5, "leaves": False},
    "top_down": {"stop": 0.0},
    "beam": {"width": 5},
    "back_off": {"t": None, "precision": None, "confidence": 0.9},
    "conformal": {
        "t": None,
        "coverage": None,
        "nodes": 1,
        "score": "lac",
        "randomised": False,
        "group": None,
        "penalty": 0.01,
        "k_reg": 5,
        "seed": 0,
    },
    "risk_control": {"t": None, "metric": "recall", "at_least": 0.9, "confidence": None},
    "optimal:icm": {"alpha": 2.0, "beta": 3.0},
    "optimal:hf1": {"count_root": False, "empty": 1.0, "counts": None, "inner": 1.0, "refit": True},
    "optimal:hf_beta": {"beta": 1.0, "count_root": False, "empty": 1.0},
    "optimal:info_hf1": {"beta": 1.0},
    "optimal:cost": {"matrix": None, "similarity": None},
    "optimal:samples_f1": {"beta": 1.0, "empty": 0.0, "counts": None, "inner": 1.0, "refit": True},
    "optimal:macro_f1@k": {"k": 5, "at_most": False, "seed": 0},
    "optimal:binned_macro_f1@k": {"k": 5, "bin_edges": (1, 10, 100, 1000), "at_most": False, "seed": 0},
}


def chosen(rule: str, *rows: list[float], h: Hierarchy = TREE, **settings: Any) -> list[list[str]]:
    """Decide on rows in the order A, D, B, C, without ancestors."""
    return decide(Scores(h, np.array(rows)), rule, closed=False, **settings).names()


def test_defaults_of_settings_are_those_of_the_documentation() -> None:
    found = {
        name: {key: value for key, value in row.settings.items() if key not in COMMON} for name, row in RULES.items()
    }
    assert {name: settings for name, settings in found.items() if settings} == DEFAULTS


@pytest.mark.parametrize(
    ("rule", "row", "expected"),
    [
        # A score that equals a limit: reached by thresholds, not above one half.
        ("threshold@1", [1.0, 0.0, 0.5, 0.5], ["A"]),
        ("threshold@0.5", [0.5, 0.49, 0.5, 0.0], ["A", "B"]),
        ("optimal:hamming", [0.5, 0.51, 0.4, 0.1], ["D"]),
        ("optimal:icm(alpha=2, beta=4)", [0.5, 0.51, 0.4, 0.1], ["D"]),
        ("optimal:icm(alpha=3, beta=3)", [0.01, 0.0, 0.01, 0.0], ["A", "B"]),
        ("top_down@0.4", [0.6, 0.4, 0.4, 0.2], ["B"]),
        ("top_down@0.41", [0.6, 0.4, 0.4, 0.2], ["A"]),
        ("back_off@0.4", [0.6, 0.4, 0.4, 0.2], ["D"]),
        ("back_off@0.6", [0.9, 0.1, 0.6, 0.3], ["B"]),
        ("back_off@0.61", [0.9, 0.1, 0.6, 0.3], ["A"]),
        ("back_off@1", [0.9, 0.1, 0.6, 0.3], []),
        ("back_off(t=[0.5, 2])", [0.9, 0.1, 0.6, 0.3], ["A"]),
        ("majority", [0.5, 0.5, 0.5, 0.0], []),
        # Of equal scores the lowest id; of scores above one half the deepest, then the largest.
        ("majority", [0.9, 0.8, 0.6, 0.7], ["C"]),
        ("majority", [0.9, 0.95, 0.6, 0.6], ["B"]),
        ("best_leaf", [0.6, 0.3, 0.3, 0.3], ["D"]),
        ("best_per_level", [0.4, 0.4, 0.2, 0.2], ["A", "B"]),
        ("plurality", [0.7, 0.3, 0.35, 0.35], ["A"]),
        ("plurality", [0.5, 0.5, 0.5, 0.0], []),
        ("plurality", [0.7, 0.36, 0.37, 0.33], ["B"]),
        ("plurality", [0.7, 0.37, 0.36, 0.34], ["A"]),
        ("top_k@2", [0.3, 0.3, 0.3, 0.4], ["A", "C"]),
        ("top_k(k=1, leaves=true)", [0.9, 0.3, 0.3, 0.3], ["D"]),
        ("beam@1", [0.6, 0.4, 0.3, 0.3], ["B"]),
        ("beam@2", [0.6, 0.4, 0.3, 0.3], ["D"]),
        # Expectations: 0.4 x 1 + 0.4 / 2 for B, C the same, 0.3 for D; without a leaf nothing.
        ("optimal:onehot_win", [0.7, 0.3, 0.35, 0.35], ["B"]),
        ("optimal:leaf_accuracy", [0.0, 0.0, 0.0, 0.0], []),
        # {A} is worth 0.8 x 2/3, {A, B} p(B) + p(C) / 2, {A, B, C} 0.8 x 4/5 = 0.64.
        ("optimal:hf1", [0.8, 0.2, 0.5, 0.3], ["A", "B"]),
        ("optimal:hf1", [0.8, 0.2, 0.42, 0.38], ["A", "B", "C"]),
        # Nothing is true with probability 0.7: predicting nothing is worth that, {A, B} 0.3.
        ("optimal:hf1", [0.3, 0.0, 0.3, 0.0], []),
        ("optimal:hf1(empty=0)", [0.3, 0.0, 0.3, 0.0], ["A", "B"]),
    ],
)
@pytest.mark.parametrize("is_sparse", [False, True])
def test_a_rule_at_its_edges(rule: str, row: list[float], expected: list[str], is_sparse: bool) -> None:
    scores = Scores(TREE, [row])
    scores = Scores(TREE, scores.csr()) if is_sparse else scores
    assert decide(scores, rule, closed=False).names() == [expected]


@pytest.mark.parametrize("t", [-0.01, 1.01, float("nan")])
def test_back_off_refuses_thresholds_outside_of_scores(t: float) -> None:
    with pytest.raises(TreelabelError, match="expected a score from 0 to 1"):
        back_off.by_level(t, 2)
    for inside in (0.0, 1.0):
        assert back_off.by_level(inside, 2).tolist() == [inside] * 3


def test_macro_f1_for_bins_predicts_exactly_k_unless_told_otherwise() -> None:
    h = Hierarchy.flat("abc")
    scores, frequencies = Scores(h, [[0.9, 0.01, 0.01], [0.8, 0.01, 0.02]]), np.array([5, 0, 5])
    rule = "optimal:binned_macro_f1@k"
    exact = decide(scores, rule, train_frequencies=frequencies, train_documents=10, k=2)
    fewer = decide(scores, rule, train_frequencies=frequencies, train_documents=10, k=2, at_most=True)
    assert np.diff(exact.csr.indptr).tolist() == [2, 2]
    # b is not seen in training and weighs nothing. One document with c is worth 0.04 / 1.03, both 0.06 / 2.03.
    assert fewer.names() == [["a"], ["a", "c"]]


def test_expected_f1_of_labels_by_dinkelbach() -> None:
    # Predicting p = 0.9 alone: 1.8 / (1 + 1.7) = 2/3; with 0.5 too: 2.8 / 3.7 = 0.757; with all: 3.4 / 4.7 = 0.723.
    scores = Scores(Hierarchy.flat("abc"), [[0.9, 0.5, 0.3]])
    assert population.micro_f1(scores).indices.tolist() == [0, 1]
    # F_l of one document is 2p / (1 + p), and p is above its half.
    assert population.macro_f1(scores).indices.tolist() == [0, 1, 2]


def ways(truth: list[list[int]], rows: list[list[float]]) -> LeafPaths:
    scores = Scores(TREE, rows)
    labels: LabelMatrix = TREE.closure(np.array(truth))
    return LeafPaths.of(scores, labels)


def test_thresholds_of_a_precision_stop_at_the_last_document_that_keeps_it() -> None:
    # B is best in all. By falling score of B it is right, right, wrong, right: 1, 1, 2/3, 3/4.
    rows = [[0.95, 0.0, 0.9, 0.0], [0.9, 0.0, 0.8, 0.0], [0.85, 0.0, 0.7, 0.0], [0.8, 0.0, 0.6, 0.0]]
    found = ways([[0, 0, 1, 0], [0, 0, 1, 0], [0, 0, 0, 1], [0, 0, 1, 0]], rows)
    for precision, level_1, level_2 in ((0.75, NEVER, 0.6), (0.76, 0.8, 0.8), (1.0, 0.8, 0.8)):
        t = precise_thresholds(found, precision, confidence=0)
        assert t.tolist() == pytest.approx([level_1, level_2])
    right, is_leaf, depth = found.outcomes(np.array([0.8, 0.8]))
    assert right.all()
    assert is_leaf.tolist() == [True, True, False, False]
    assert depth.tolist() == [2, 2, 1, 1]


def test_a_fixed_sequence_of_tests_by_hand() -> None:
    # n right of n have p = precision^n: 0.9^22 = 0.098 passes at 0.1, 0.9^21 = 0.109 does not. A sequence begins where
    # there are 1.5 times the 21.85 documents that can pass.
    assert last_precise([33], [33], 0.9, 0.9) == 0
    assert last_precise([32], [32], 0.9, 0.9) == -1
    # One of 38 wrong: 0.9^38 + 38 x 0.1 x 0.9^37 = 0.0953 passes; of 37: 0.1036 does not.
    assert last_precise([37], [38], 0.9, 0.9) == 0
    assert last_precise([36], [37], 0.9, 0.9) == -1
    # One that fails ends the sequence.
    assert last_precise([37, 30, 60], [38, 39, 60], 0.9, 0.9) == 0
    assert last_precise([0], [0], 0.9, 0.9) == -1
    assert last_precise([50], [50], 1.0, 0.9) == -1


def test_a_row_over_a_tree_by_hand() -> None:
    tree = score_rows.make_tree_row(4, 4)
    nodes, values = np.arange(4, dtype=np.int32), np.array([0.8, 0.1, 0.5, 0.2])
    score_rows.load_tree_row(TREE.parent, nodes, values, tree)
    assert tree.above.tolist() == [-1, -1, 0, 0]
    assert tree.mass.tolist() == pytest.approx([0.1, 0.1, 0.5, 0.2])
    assert tree.whole.tolist() == pytest.approx([0.8, 0.1, 0.5, 0.2])
    # Children that sum to more than their parent: nothing ends there, and more lies below than its score.
    score_rows.load_tree_row(TREE.parent, nodes, np.array([0.6, 0.1, 0.5, 0.2]), tree)
    assert tree.mass.tolist() == pytest.approx([0.0, 0.1, 0.5, 0.2])
    assert tree.whole[0] == pytest.approx(0.7)


def test_scores_are_rounded_to_seven_digits_as_python_writes_them() -> None:
    rng = np.random.default_rng(0)
    plain = rng.random(2000) * 10.0 ** rng.integers(-8, 1, 2000)
    # Between two numbers of seven digits, up to what single or double precision can tell.
    halves = (2 * rng.integers(0, 10_000_000, 2000) + 1) / 2e7
    for p in (plain, halves, halves / 100, plain.astype(np.float32).astype(float), np.array([0.0, 1.0, 1e-4, 0.1])):
        assert seven_digits(p).tolist() == [float(f"{each:.7g}") for each in p.tolist()]


def test_a_node_that_cannot_raise_expected_f_is_not_tried() -> None:
    # beta^2 = 4: it gains at most 0.5 x 5 / (1 + 1 + 4 x 2) = 1/4, the others lose value / (1 + 1 + 4 x 3) at least.
    one = np.array([1.0])
    row = WeightedRow(np.array([-1], np.int32), 0.5 * one, 0.5 * one, one, 2 * one)
    assert [bool(can_gain(row, 0, 1.0, 3.0, value, 4.0)) for value in (3.49, 3.5, 3.51)] == [True, False, False]
    assert not can_gain(row._replace(weight=0 * one), 0, 1.0, 3.0, 0.0, 4.0)
