"""Choosing a rule by evidence: the simplest one that is not beaten, by paired standard errors."""

import numpy as np
import pytest

from tests.reference import matrix_of, sets_of
from treelabel import Hierarchy, Scores, TreelabelError, evaluate
from treelabel.hierarchy import LabelMatrix
from treelabel.rules import decide
from treelabel.selection.goal import CANDIDATES
from treelabel.selection.rule_choice import choose_rule, standard_error

LEAVES = 12
H = Hierarchy.from_paths([f"{top} > {top}{leaf}" for top in "ABC" for leaf in range(LEAVES // 3)])


def one_leaf(rng: np.random.Generator, documents: int) -> tuple[Scores, LabelMatrix]:
    """Draw distributions over leaves, truth from them, and scores that are less sure than they could be."""
    p = 0.9 * np.eye(LEAVES)[rng.integers(0, LEAVES, documents)] + 0.1 / LEAVES
    leaves = [int(rng.choice(H.leaves, p=row)) for row in p]
    unsure = 0.4 * p + 0.6 / LEAVES
    return Scores.from_leaves(H, H.leaves, unsure), H.closure(matrix_of([{leaf} for leaf in leaves], len(H)))


def many_labels(rng: np.random.Generator, documents: int) -> tuple[Scores, LabelMatrix]:
    """Draw independent labels of a flat hierarchy."""
    flat = Hierarchy.flat(map(str, range(20)))
    p = rng.random((documents, 20)) ** 2
    return Scores(flat, p), matrix_of([set(np.flatnonzero(row).tolist()) for row in rng.random(p.shape) < p], 20)


def test_one_leaf_a_document_is_the_best_leaf() -> None:
    scores, truth = one_leaf(np.random.default_rng(0), 3000)
    chosen = choose_rule(scores, truth)
    assert chosen.rule == "best_leaf"
    assert chosen.documents == 3000


def test_many_labels_a_document_are_not_the_best_leaf() -> None:
    scores, truth = many_labels(np.random.default_rng(0), 500)
    chosen = choose_rule(scores, truth)
    assert chosen.rule.startswith("optimal:samples_f1")
    assert [tried.rule for tried in chosen.tried][:4] == list(CANDIDATES)[:4]


def test_fitted_weights_are_chosen_where_labels_exclude_each_other() -> None:
    """Scores that were calibrated label by label do not know that one of them is true."""
    rng = np.random.default_rng(0)
    flat = Hierarchy.flat(map(str, range(8)))
    true = rng.integers(0, 8, 600)
    margins = rng.normal(size=(600, 8)) + 1.5 * np.eye(8)[true]
    # Of a normal margin with these means and as many labels, this is the probability of each label on its own.
    p = 1 / (1 + 7 * np.exp(-1.5 * margins + 1.5**2 / 2))
    chosen = choose_rule(Scores(flat, p), matrix_of([{int(label)} for label in true], 8), [*CANDIDATES[1:]])
    assert chosen.rule.startswith("optimal:samples_f1(counts=[")
    assert chosen.tried[-1].rule == chosen.rule
    assert decide(Scores(flat, p), chosen.rule).csr.nnz < decide(Scores(flat, p), "optimal:samples_f1").csr.nnz


@pytest.mark.slow
def test_odd_documents_do_not_change_the_rule() -> None:
    rng = np.random.default_rng(1)
    scores, truth = one_leaf(rng, 4000)
    assert choose_rule(scores, truth).rule == "best_leaf"
    rows = sets_of(truth, len(H))
    rows[7] = {min(rows[7])}
    assert choose_rule(scores, matrix_of(rows, len(H))).rule == "best_leaf"
    for row in rng.choice(len(rows), 120, replace=False):
        rows[row] |= {int(rng.choice(H.leaves))}
    assert choose_rule(scores, matrix_of(rows, len(H))).rule == "best_leaf"


def test_what_was_tried_is_what_the_metrics_say() -> None:
    scores, truth = many_labels(np.random.default_rng(2), 200)
    for tried in choose_rule(scores, truth, CANDIDATES[:4]).tried:
        judged = evaluate(truth, decisions=decide(scores, tried.rule), metrics=["hf1", "subset_accuracy"])
        assert tried.f1 == pytest.approx(judged["hf1"])
        assert tried.exact == pytest.approx(judged["subset_accuracy"])
        assert tried.standard_error == pytest.approx(judged.documents["hf1"].std(ddof=1) / np.sqrt(200))


def test_a_tie_goes_to_the_first_candidate() -> None:
    scores, truth = one_leaf(np.random.default_rng(3), 50)
    for order in (["best_leaf", "optimal:leaf_accuracy"], ["optimal:leaf_accuracy", "best_leaf"]):
        assert choose_rule(scores, truth, order).rule == order[0]


def test_a_gain_in_one_group_is_no_evidence() -> None:
    """One author's documents, all alike, favour the threshold; apart they would be evidence, together they are one."""
    flat = Hierarchy.flat(["A", "B"])
    rows = [[0.9, 0.8]] * 10 + [[0.9, 0.1]] * 10
    truth = matrix_of([{0, 1}] * 10 + [{0}] * 10, 2)
    rules = ["best_leaf", "threshold@0.5"]
    scores = Scores(flat, rows)
    assert choose_rule(scores, truth, rules).rule == "threshold@0.5"
    assert choose_rule(scores, truth, rules, groups=["one"] * 20).rule == "best_leaf"


def test_copies_of_documents_in_groups_leave_the_standard_error_as_it_is() -> None:
    values = np.random.default_rng(0).random(30)
    single = standard_error(values, np.arange(30))
    assert standard_error(np.repeat(values, 4), np.repeat(np.arange(30), 4)) == pytest.approx(single)


def test_wrong_input_is_refused() -> None:
    scores, truth = one_leaf(np.random.default_rng(0), 4)
    with pytest.raises(TreelabelError, match="4 rows of scores, but the truth of 3 documents"):
        choose_rule(scores, truth[:3])
    with pytest.raises(TreelabelError, match="3 groups for 4 documents"):
        choose_rule(scores, truth, groups=[1, 2, 3])
    with pytest.raises(TreelabelError, match="no rule to choose from"):
        choose_rule(scores, truth, [])
    with pytest.raises(TreelabelError, match="no documents"):
        choose_rule(scores[:0], truth[:0])
