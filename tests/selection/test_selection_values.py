"""Choices on held-out documents: values by hand, and slow twins where a constant or a comparison decides."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from treelabel import Hierarchy, Scores
from treelabel.calibration.candidates import CandidateIsotonic, CandidateSoftmax
from treelabel.hierarchy import label_matrix
from treelabel.models.model_inputs import training_of
from treelabel.rules.registry import describe_rule
from treelabel.selection.evidence import Evidence, HeldOut, RuleTrial
from treelabel.selection.feature_choice import is_worth_it, merge_singles, shape_of
from treelabel.selection.rule_choice import choose_rule, decide_by_evidence, judge_most_frequent, standard_error
from treelabel.selection.training import candidate_loss, draw_folds, hold_out, log_loss, log_losses

TREE = Hierarchy.from_paths(["A > A1", "A > A2", "B > B1"])
FLAT = Hierarchy.flat(list("abcdefgh"))


# Folds


@given(st.lists(st.integers(0, 6), min_size=1, max_size=40), st.integers(2, 5), st.integers(0, 99))
def test_folds_hold_whole_groups_and_the_largest_go_first(numbers: list[int], count: int, seed: int) -> None:
    groups = np.unique(numbers, return_inverse=True)[1].astype(np.int64)
    folds = draw_folds(len(groups), count, seed, groups)
    if groups.max() == 0:
        assert [fold.tolist() for fold in folds] == [[]]
        return
    assert sorted(np.concatenate(folds).tolist()) == list(range(len(groups)))
    assert len(folds) == min(count, groups.max() + 1)
    assert sum(len(set(groups[fold].tolist())) for fold in folds) == groups.max() + 1
    # Largest first, each to the smallest fold: sizes differ by the largest group at most.
    sizes = sorted(len(fold) for fold in folds)
    assert sizes[-1] - sizes[0] <= np.bincount(groups).max()
    assert sizes[-1] <= max(np.bincount(groups).max(), len(groups) / len(folds) * 4 / 3 + 1)


def test_the_largest_group_is_dealt_first() -> None:
    for seed in range(10):
        assert sorted(len(fold) for fold in draw_folds(8, 2, seed, np.array([0, 0, 0, 0, 1, 2, 3, 4]))) == [4, 4]


def test_folds_without_groups_are_dealt_in_turn() -> None:
    sizes = [len(fold) for fold in draw_folds(11, 3, 5)]
    assert sorted(sizes) == [3, 4, 4]
    assert [fold.tolist() for fold in draw_folds(1, 3, 5)] == [[]]


@given(st.integers(1, 30), st.integers(0, 40), st.integers(0, 99))
def test_one_document_is_always_left(documents: int, wanted: int, seed: int) -> None:
    drawn = hold_out(documents, wanted, seed)
    assert len(drawn) == min(wanted, documents - 1)
    assert (np.diff(drawn) > 0).all()


@given(st.lists(st.integers(0, 9), min_size=2, max_size=60), st.integers(1, 30), st.integers(0, 99))
def test_groups_exceed_what_is_wanted_by_a_quarter_at_most(numbers: list[int], wanted: int, seed: int) -> None:
    groups = np.unique(numbers, return_inverse=True)[1].astype(np.int64)
    drawn = hold_out(len(groups), wanted, seed, groups)
    taken = set(groups[drawn].tolist())
    assert set(groups[np.setdiff1d(np.arange(len(groups)), drawn)].tolist()).isdisjoint(taken)
    assert len(taken) <= groups.max()
    assert len(drawn) <= wanted + max(1, wanted // 4) or len(taken) == 1
    if len(taken) > 1:
        assert len(drawn) <= wanted + max(1, wanted // 4)


def test_a_group_that_exceeds_a_quarter_is_passed_over() -> None:
    # Of groups with 6 and 5 documents beside many single ones, only 5 fits into 4 + 1.
    for size, fits in ((5, True), (6, False)):
        groups = np.array([0] * size + [1] * 50)
        drawn = [hold_out(len(groups), 4, seed, groups) for seed in range(20)]
        assert {len(each) for each in drawn} <= {size, 50}
        groups = np.concatenate([np.zeros(size, np.int64), 1 + np.arange(3)])
        chosen = [set(groups[hold_out(len(groups), 4, seed, groups)].tolist()) for seed in range(40)]
        assert any(0 in each for each in chosen) == fits


# Losses


def test_what_seems_impossible_costs_as_much_as_one_in_a_million() -> None:
    held = training_of(["x", "y"], [["A1"], ["B"]], TREE)
    p = np.zeros((2, len(TREE)), np.float32)
    p[1, TREE.names.index("B")] = 0.25
    for values in (p, sparse.csr_array(p)):
        assert log_losses(values, held) == pytest.approx([math.log(1e6), math.log(4)])
    assert log_loss(p, held) == pytest.approx((math.log(1e6) + math.log(4)) / 2)
    assert math.isnan(log_loss(p[:0], held[np.zeros(0, np.int64)]))


def test_several_paths_lose_over_all_nodes() -> None:
    held = training_of(["x"], [["A1", "B1"]], TREE)
    p = np.array([[0.9, 0.8, 0.7, 0.0, 1.0]], np.float32)
    true = [name in ("A", "B", "A1", "B1") for name in TREE.names]
    expected = sum(-math.log(max(v if t else 1 - v, 1e-6)) for v, t in zip(p[0].tolist(), true, strict=True))
    assert log_losses(p, held) == pytest.approx([expected], rel=1e-5)
    assert log_losses(sparse.csr_array(p), held) == pytest.approx([expected], rel=1e-5)


@given(st.integers(0, 1 << 30))
def test_candidates_are_judged_by_the_order_of_the_best_five(seed: int) -> None:
    rng = np.random.default_rng(seed)
    marks = rng.random((4, 8)) < 0.4
    marks[0] = [True, True] + [False] * 6
    held = training_of(["x"] * 4, [[FLAT.names[node] for node in np.flatnonzero(row)] for row in marks], FLAT)
    dense = np.where(rng.random((4, 8)) < 0.9, rng.integers(1, 9, (4, 8)), 0).astype(np.float32)
    values = []
    for row, true in zip(dense, marks, strict=True):
        order = sorted((node for node in range(8) if row[node] > 0), key=lambda node: (-row[node], node))[:5]
        gained = sum(1 / math.log2(rank + 2) for rank, node in enumerate(order) if true[node])
        if true.any():
            values.append(gained / sum(1 / math.log2(rank + 2) for rank in range(min(5, int(true.sum())))))
    calibration = CandidateIsotonic(FLAT, np.ones(8, np.int64))
    assert candidate_loss(calibration, sparse.csr_array(dense), held) == pytest.approx(1 - np.mean(values))


def test_candidates_of_one_path_are_judged_by_their_log_loss() -> None:
    held = training_of(["x", "y"], [["a"], ["b"]], FLAT)
    evidence = sparse.csr_array(np.array([[3.0, 1.0] + [0.0] * 6, [1.0, 2.0] + [0.0] * 6], np.float32))
    calibration = CandidateSoftmax(FLAT, np.ones(8, np.int64))
    fitted = calibration.fit(evidence, held.labels)
    expected = log_loss(fitted.probabilities(evidence), held)
    assert candidate_loss(calibration, evidence, held) == pytest.approx(expected, abs=1e-4)
    assert math.isnan(candidate_loss(calibration, evidence[:0], held[np.zeros(0, np.int64)]))


# Rules


def test_the_standard_error_of_groups() -> None:
    values = np.array([1.0, 0.0, 0.5, 0.25, 1.0])
    assert standard_error(values, np.arange(5)) == pytest.approx(values.std(ddof=1) / math.sqrt(5))
    group = np.array([0, 0, 1, 2, 2])
    sums = [sum(values[group == g] - values.mean()) for g in range(3)]
    assert standard_error(values, group) == pytest.approx(math.sqrt(sum(s**2 for s in sums) * 3 / 2) / 5)
    assert standard_error(values, np.zeros(5, np.int64)) == math.inf


@pytest.mark.parametrize(("better", "chosen"), [(16, "threshold@0.9"), (28, "threshold@0.1")])
def test_a_rule_is_beaten_by_more_than_one_standard_error(better: int, chosen: str) -> None:
    # The second rule gains on some documents and loses as much on others.
    h, worse = Hierarchy.flat(["a"]), 20 if better > 20 else 12
    truth = sparse.csr_array(np.array([[1]] * better + [[0]] * worse + [[1]] * 100, bool))
    scores = Scores(h, [[0.5]] * (better + worse) + [[1.0]] * 100)
    result = choose_rule(scores, truth, ["threshold@0.9", "threshold@0.1"])
    gain = np.array([1.0] * better + [-1.0] * worse + [0.0] * 100)
    assert (gain.mean() > gain.std(ddof=1) / math.sqrt(len(gain))) == (chosen == "threshold@0.1")
    assert gain.mean() < 2 * gain.std(ddof=1) / math.sqrt(len(gain))
    assert result.rule == chosen


def test_the_most_frequent_set_is_judged_by_f1_and_exact_match() -> None:
    train = TREE.closure([[0, 0, 1, 0, 0]] * 3 + [[0, 0, 0, 0, 1]] * 2)
    truth = TREE.closure([[0, 0, 1, 0, 0], [0, 0, 0, 1, 0], [0, 0, 0, 0, 1], [0, 0, 0, 0, 0]])
    result = judge_most_frequent(TREE, train, truth)
    assert (result.f1, result.exact) == pytest.approx(((1 + 0.5 + 0 + 0) / 4, 1 / 4))


def test_thirty_documents_are_enough_to_choose_by() -> None:
    h = Hierarchy.flat(["a", "b"])
    for count in (29, 30):
        labels = label_matrix(np.arange(count + 1), np.zeros(count, np.int32), 2)
        held = HeldOut(Scores(h, [[0.9, 0.1]] * count), labels)
        rule, evidence = decide_by_evidence(h, labels, held)
        assert evidence.documents == (0 if count == 29 else 30)
        assert rule == "best_leaf"


@pytest.mark.parametrize(("f1", "is_better"), [(0.5 + 1.9 * 0.02, False), (0.5 + 2.0 * 0.02, True)])
def test_better_than_the_most_frequent_is_by_an_interval_of_95_percent(f1: float, is_better: bool) -> None:
    rule = RuleTrial("best_leaf", f1, 0.02, 0.5)
    evidence = Evidence(100, (rule,), most_frequent=RuleTrial("most frequent labels", 0.5, 0.0, 0.5))
    assert (evidence.compare_with_most_frequent("best_leaf") == "") == is_better
    exact = RuleTrial("best_leaf", 0.1, 0.02, 0.5 + (0.095 if not is_better else 0.1))
    evidence = Evidence(100, (exact,), most_frequent=RuleTrial("most frequent labels", 0.5, 0.0, 0.5))
    assert (evidence.compare_with_most_frequent("best_leaf") == "") == is_better
    assert evidence.compare_with_most_frequent("other") == ""


def test_long_rules_are_cut_at_sixty_letters() -> None:
    counts = ", ".join(["0.25"] * 5)
    assert describe_rule("optimal:samples_f1") == "the set with the largest expected F1 (optimal:samples_f1)"
    assert describe_rule(f"optimal:samples_f1(counts=[{counts}])").endswith("F1 (optimal:samples_f1(...))")
    assert describe_rule("threshold@0.3") == "nodes with a score of at least t (threshold@0.3)"


# Features


def test_a_choice_must_gain_two_percent_and_a_standard_error() -> None:
    before = np.full(10, 1.0)
    assert is_worth_it(before, before - 0.021)
    assert not is_worth_it(before, before - 0.019)
    noisy = np.tile([0.0, 0.2], 50)
    # A mean gain of 0.1 with a standard error of 0.01 counts, one of 0.005 does not.
    assert is_worth_it(np.ones(100), 1 - noisy)
    assert not is_worth_it(np.full(100, 0.01), 0.01 - noisy + 0.095)


def test_longer_ngrams_weigh_half_and_characters_as_much_as_words() -> None:
    assert shape_of((1, 3), (3, 5), 1 << 10).weights == (1.0, 0.5, 0.5, 1.0)
    assert shape_of((2, 2), None, 1 << 10).weights is None


@given(st.integers(0, 1 << 30))
def test_columns_of_single_documents_are_merged_without_changing_products(seed: int) -> None:
    rng = np.random.default_rng(seed)
    dense = np.where(rng.random((5, 12)) < 0.2, rng.normal(size=(5, 12)), 0).astype(np.float32)
    merged = merge_singles(sparse.csr_array(dense)).toarray()
    assert merged @ merged.T == pytest.approx(dense @ dense.T, abs=1e-5)
    shared = (dense != 0).sum(axis=0) > 1
    assert np.array_equal(merged[:, : shared.sum()], dense[:, shared])


# Training data


def test_documents_of_weight_0_are_left_out() -> None:
    train = training_of(["x", "y", "z"], [["a"], ["b"], ["c"]], FLAT).with_weights([1.0, 0.0, 2.0])
    assert list(train.texts) == ["x", "z"]
    assert train.weights is not None
    assert train.weights.tolist() == [1, 2]
    assert train.with_groups(["p", "q"]).groups is not None
