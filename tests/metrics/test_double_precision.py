"""Scores in double precision: what single precision would round to ties, and the same answers where nothing is."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy import sparse

from tests.reference import SlowHierarchy
from tests.reference_metrics import REFERENCE, Case
from treelabel import RULES, Hierarchy, Scores, TreelabelError, decide, evaluate, tune
from treelabel.metrics import METRICS

TREE = Hierarchy.from_paths([f"{a} > {a}{b} > {a}{b}{c}" for a in "ABC" for b in "DEF" for c in "GHI"])
DOCUMENTS = 200


def slow(hierarchy: Hierarchy) -> SlowHierarchy:
    return SlowHierarchy({node: {above} for node, above in enumerate(hierarchy.parent.tolist())})


def peaked(seed: int, sharpness: float) -> npt.NDArray[np.float64]:
    """Draw distributions over leaves in which one leaf has nearly everything, and others hardly more than nothing."""
    rng = np.random.default_rng(seed)
    logits = sharpness * rng.random((DOCUMENTS, len(TREE.leaves)))
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(odds / odds.sum(axis=1, keepdims=True))


@pytest.mark.parametrize("form", ["dense", "csr"])
@pytest.mark.parametrize("sharpness", [5, 40, 80])
def test_areas_of_peaked_distributions_equal_the_reference(sharpness: float, form: str) -> None:
    values = peaked(0, sharpness)
    rng = np.random.default_rng(1)
    truth = [{int(leaf)} for leaf in rng.choice(TREE.leaves, DOCUMENTS)]
    scores = Scores.from_leaves(TREE, TREE.leaves, values)
    scores = scores if form == "dense" else Scores(TREE, scores.csr())
    rows = [dict(enumerate(row)) for row in scores.dense().tolist()]
    case = Case(slow(TREE), truth, [set()] * DOCUMENTS, rows, truth)
    expected = REFERENCE["hf1_auc"](case, 0)
    names = [[TREE.names[node] for node in labels] for labels in truth]
    assert evaluate(names, scores=scores, metrics=["hf1_auc"])["hf1_auc"] == pytest.approx(expected, abs=1e-9)


def test_a_parent_does_not_tie_with_a_child_whose_sibling_has_next_to_nothing() -> None:
    h = Hierarchy.from_paths(["A > B", "A > C", "D"])
    leaves = np.array([[1 - 2e-9, 1e-9, 1e-9]])
    double = evaluate([["C"]], scores=Scores.from_leaves(h, ["B", "C", "D"], leaves), metrics=["hf1_auc"])
    single = Scores.from_leaves(h, ["B", "C", "D"], leaves.astype(np.float32))
    # A comes alone before B, then B and the two others that tie.
    assert double["hf1_auc"] == pytest.approx(0.5 + 0.5 * (1 / 2 + 2 / 4) / 2, abs=1e-12)
    assert evaluate([["C"]], scores=single, metrics=["hf1_auc"])["hf1_auc"] < double["hf1_auc"] - 0.1


def in_both(seed: int) -> dict[str, Scores]:
    """Draw leaf scores that both precisions hold exactly, and so do their sums."""
    rng = np.random.default_rng(seed)
    shares = rng.multinomial(256, rng.dirichlet(np.full(len(TREE.leaves), 0.2)), size=60) / 256
    made = {}
    for kind in (np.float32, np.float64):
        dense = Scores.from_leaves(TREE, TREE.leaves, shares.astype(kind))
        made[f"{np.dtype(kind)} dense"] = dense
        made[f"{np.dtype(kind)} csr"] = Scores(TREE, sparse.csr_array(dense.values))
    assert {scores.dtype for scores in made.values()} == {np.dtype(np.float32), np.dtype(np.float64)}
    return made


FORMS = in_both(2)
TRUTH = [[TREE.names[leaf]] for leaf in np.random.default_rng(3).choice(TREE.leaves, 60)]
COUNTS = np.random.default_rng(4).integers(1, 50, len(TREE))


# Rules that are not complete without one.
NEED_SETTINGS = {"back_off", "conformal", "optimal:cost", "risk_control"}


def chosen(scores: Scores, rule: str, **settings: Any) -> list[list[str]]:
    return decide(scores, rule, COUNTS, 100, **settings).names()


@pytest.mark.parametrize("rule", [name for name in RULES if name not in NEED_SETTINGS])
def test_rules_choose_the_same_in_both_precisions(rule: str) -> None:
    found = [chosen(scores, rule) for scores in FORMS.values()]
    assert found[0]
    assert all(other == found[0] for other in found)


@pytest.mark.parametrize(
    "rule",
    [
        "back_off@0.5",
        "conformal(t=0.5)",
        "risk_control(t=0.25)",
        "top_down@0.25",
        "threshold@0.25",
        "optimal:cost(similarity=lin)",
    ],
)
def test_numbers_of_rules_are_compared_in_the_precision_of_the_scores(rule: str) -> None:
    found = [chosen(scores, rule, unknown=0.125) for scores in FORMS.values()]
    assert all(other == found[0] for other in found)


@pytest.mark.parametrize("rule", ["macro_f1", "micro_f1", "back_off(precision=0.1, confidence=0)"])
@pytest.mark.slow
def test_rules_are_tuned_alike_in_both_precisions(rule: str) -> None:
    found = [tune(TRUTH, scores, rule) for scores in FORMS.values()]
    assert all(other.settings == found[0].settings and other.measured == found[0].measured for other in found)


@pytest.mark.parametrize("name", [name for name, row in METRICS.items() if "scores" in row.needs])
def test_metrics_of_scores_are_the_same_in_both_precisions(name: str) -> None:
    options: dict[str, Any] = {"train_frequencies": COUNTS, "train_documents": 100}
    found = [evaluate(TRUTH, scores=scores, metrics=[name], **options).values for scores in FORMS.values()]
    for other in found[1:]:
        assert other == pytest.approx(found[0], rel=1e-12, abs=1e-12, nan_ok=True)


def test_a_threshold_that_single_precision_cannot_hold_is_written_in_full() -> None:
    h = Hierarchy.flat(["A", "B"])
    scores = Scores(h, [[0.1 + 1e-12, 0.1]])
    decided = decide(scores, "threshold", t=0.1 + 1e-12)
    assert decided.names() == [["A"]]
    assert decided.rule is not None
    assert decide(scores, decided.rule).names() == [["A"]]


def test_scores_beyond_rounding_are_refused_in_double_precision_too() -> None:
    with pytest.raises(TreelabelError, match="is not a probability"):
        Scores(Hierarchy.flat(["A"]), np.array([[1.01]]))
