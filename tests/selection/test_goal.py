"""Choosing for a metric: any row of METRICS, with rules that are best for it, and errors in words."""

import numpy as np
import pytest

import treelabel as tl
from tests.reference import matrix_of
from treelabel import Dataset, Hierarchy, Scores, TreelabelError, decide, evaluate
from treelabel.hierarchy import LabelMatrix
from treelabel.selection.evidence import Evidence, HeldOut
from treelabel.selection.goal import THRESHOLDS, Goal
from treelabel.selection.rule_choice import choose_rule, decide_by_evidence, standard_error

FLAT = Hierarchy.flat(map(str, range(12)))
TREE = Hierarchy.from_paths(["A > A1", "A > A2", "B > B1"])


def unsure_labels(documents: int = 400, seed: int = 0) -> tuple[Scores, LabelMatrix]:
    """Draw labels from their scores; most are below a half, so that micro F1 asks for a lower threshold."""
    rng = np.random.default_rng(seed)
    p = rng.beta(0.4, 1.6, (documents, len(FLAT)))
    rows = [set(np.flatnonzero(row).tolist()) for row in rng.random(p.shape) < p]
    return Scores(FLAT, p), matrix_of(rows, len(FLAT))


@pytest.fixture(scope="module")
def sample() -> Dataset:
    return tl.load_sample()


@pytest.mark.parametrize(
    "name", ["micro_f1", "macro_f1", "hf1", "samples_precision", "hamming", "icm_norm", "hf_beta@2"]
)
def test_values_are_those_of_evaluate_and_shares_have_them_as_mean(name: str) -> None:
    scores, truth = unsure_labels()
    decisions = decide(scores, "threshold@0.3").csr
    judged = Goal.of(name, FLAT, truth).judge(truth, decisions, scores, np.arange(len(scores)))
    counts = np.bincount(truth.indices, minlength=len(FLAT))
    result = evaluate(truth, decisions, hierarchy=FLAT, metrics=[name], train_frequencies=counts, train_documents=400)
    assert judged.value == pytest.approx(result[name])
    assert judged.shares.mean() == pytest.approx(judged.value)


def test_the_jackknife_error_of_a_mean_of_counts_is_that_of_the_bootstrap() -> None:
    scores, truth = unsure_labels(2000)
    decisions = decide(scores, "threshold@0.3")
    judged = Goal.of("micro_f1", FLAT).judge(truth, decisions.csr, None, np.arange(len(scores)))
    interval = evaluate(truth, decisions, metrics=["micro_f1"]).interval("micro_f1")
    expected = (interval.high - interval.low) / (2 * 1.96)
    assert standard_error(judged.shares, judged.unit) == pytest.approx(expected, rel=0.3)


@pytest.mark.parametrize("name", ["micro_f1", "hf1_micro", "macro_f1"])
def test_the_best_threshold_is_the_best_of_all(name: str) -> None:
    scores, truth = unsure_labels()
    best = Goal.of(name, FLAT).best_threshold(scores, truth)
    values = {t: evaluate(truth, decide(scores, f"threshold@{t}"), metrics=[name])[name] for t in THRESHOLDS}
    assert values[best] == max(values.values())


def test_a_threshold_is_chosen_where_micro_f1_asks_for_it() -> None:
    scores, truth = unsure_labels()
    chosen = choose_rule(scores, truth, goal=Goal.of("micro_f1", FLAT))
    assert chosen.rule.startswith("threshold@0.")
    assert float(chosen.rule.partition("@")[2]) < 0.5
    tried = {trial.rule: trial for trial in chosen.tried}
    assert tried[chosen.rule].value == max(trial.value for trial in chosen.tried if trial.value is not None)


def test_what_is_better_if_lower_is_minimised() -> None:
    scores, truth = unsure_labels()
    chosen = choose_rule(scores, truth, goal=Goal.of("hamming", FLAT))
    assert chosen.rule == "threshold@0.5"
    fewest = min(trial.value for trial in chosen.tried if trial.value is not None)
    assert {trial.rule: trial.value for trial in chosen.tried}[chosen.rule] == pytest.approx(fewest, abs=0.005)


@pytest.mark.parametrize(
    ("metric", "rule"),
    [
        ("leaf_accuracy", "optimal:leaf_accuracy"),
        ("hf_beta@0.5", "optimal:hf_beta@0.5"),
        ("icm(beta=2)", "optimal:icm"),
    ],
)
def test_rules_that_are_optimal_for_the_metric_are_tried(metric: str, rule: str) -> None:
    assert rule in Goal.of(metric, TREE).candidates


def test_rules_that_decide_on_all_documents_at_once_are_no_default_rules() -> None:
    for metric in ("micro_f1", "macro_f1", "info_hf1", "macro_f1@3"):
        assert Goal.of(metric, TREE).exact_rules == ()


def test_scores_alone_leave_the_rule_to_hf1() -> None:
    scores, truth = unsure_labels()
    usual = choose_rule(scores, truth)
    chosen = choose_rule(scores, truth, goal=Goal.of("ndcg@3", FLAT))
    assert chosen.rule == usual.rule
    assert {trial.value for trial in chosen.tried} == {evaluate(truth, scores=scores, metrics=["ndcg@3"])["ndcg@3"]}
    rule, evidence = decide_by_evidence(FLAT, truth, HeldOut(scores, truth), metric="ndcg@3")
    assert ", chosen for hF1, as ndcg@3 depends on no rule" in evidence.describe(rule, "multi_path")


def test_a_flat_model_has_a_threshold_of_its_own_and_gains_add_up() -> None:
    scores, truth = unsure_labels()
    flat = Scores(FLAT, scores.dense() / 2)
    rule, evidence = decide_by_evidence(FLAT, truth, HeldOut(scores, truth, None, flat), metric="micro_f1")
    result = evidence.result_of(rule)
    assert rule.startswith("threshold@0.")
    assert rule != "threshold@0.5"
    assert result is not None
    assert evidence.flat is not None
    assert evidence.flat.exact + evidence.flat.exact_gain == pytest.approx(result.exact)
    assert evidence.flat.f1 + evidence.flat.f1_gain == pytest.approx(result.f1)
    # Half the probabilities, at half the threshold or so, are the same labels.
    assert evidence.flat.f1_gain == pytest.approx(0, abs=0.02)


def test_rules_that_a_metric_cannot_judge_are_passed_over() -> None:
    rng = np.random.default_rng(0)
    leaves = rng.integers(0, 3, 60)
    p = 0.55 * np.eye(3)[leaves] + 0.15
    scores = Scores.from_leaves(TREE, TREE.leaves, p)
    truth = TREE.closure(matrix_of([{int(TREE.leaves[leaf])} for leaf in leaves], len(TREE)))
    chosen = choose_rule(scores, truth, goal=Goal.of("wu_palmer", TREE))
    assert chosen.rule == "best_leaf"
    held = HeldOut(scores, truth)
    rule, evidence = decide_by_evidence(TREE, truth, held, metric="hf1")
    assert (rule, evidence.metric) == ("best_leaf", "hf1")
    assert len(evidence.rules) > 1


def test_too_few_documents_leave_the_rule_that_is_optimal_for_the_metric() -> None:
    truth = TREE.closure(matrix_of([{int(TREE.leaves[0])}] * 4, len(TREE)))
    assert decide_by_evidence(TREE, truth, None, metric="hf_beta@2")[0] == "optimal:hf_beta@2"
    assert decide_by_evidence(TREE, truth, None, metric="micro_f1") == ("best_leaf", Evidence(metric="micro_f1"))


@pytest.mark.slow
def test_models_say_what_they_chose_for(sample: Dataset) -> None:
    usual = tl.fit(sample, preset="fast")
    assert usual.evidence_.metric == "leaf_accuracy"
    assert "(best_leaf), chosen for leaf accuracy" in repr(usual)
    model = tl.fit(sample, preset="fast", optimize="hf_beta@0.5")
    assert model.evidence_.metric == "hf_beta@0.5"
    shown = model.evidence_.describe(model.default_rule, model.regime_)
    assert ", hf_beta@0.5 0." in shown
    assert "), chosen for hf_beta@0.5; a flat model" in shown
    assert "tried (hf_beta@0.5 of a sample)" in shown
    values = {trial.rule: trial.value or 0 for trial in model.evidence_.rules}
    assert values[model.default_rule] > values["best_leaf"]


@pytest.mark.slow
def test_features_are_chosen_by_the_metric(sample: Dataset) -> None:
    model = tl.make_model("linear", optimize="ndcg@3", char_ngram_range=None).fit(sample)
    trials = model.evidence_.trials
    assert len(trials) == 3
    assert all(trial.value is not None and 0 < trial.value < 1 for trial in trials)
    assert "tried (ndcg@3 of a sample)" in repr(model)


@pytest.mark.slow
def test_a_goal_is_saved_and_kept(sample: Dataset, tmp_path) -> None:  # type: ignore[no-untyped-def]
    some = sample[np.arange(0, len(sample), 4)]
    model = tl.fit(some, preset="fast", optimize="micro_f1")
    tl.save_model(model, tmp_path / "model")
    loaded = tl.load_model(tmp_path / "model")
    assert loaded.get_params()["optimize"] == "micro_f1"
    assert loaded.evidence_ == model.evidence_
    assert loaded.default_rule == model.default_rule


def test_unknown_and_unsuitable_metrics_are_refused_before_learning(sample: Dataset) -> None:
    with pytest.raises(TreelabelError, match=r"optimize: unknown metric 'micro_f2'; did you mean micro_f1"):
        tl.fit(sample, optimize="micro_f2")
    with pytest.raises(TreelabelError, match=r"optimize: set_coverage says what sets .* fit --coverage 0\.9"):
        tl.fit(sample, optimize="set_coverage")
    with pytest.raises(
        TreelabelError, match=r"leaf_accuracy compares single labels, but 1 of 3 documents have several"
    ):
        tl.fit(["a", "b", "c"], [{"x"}, {"y"}, {"x", "y"}], optimize="leaf_accuracy")
    with pytest.raises(TreelabelError, match="the model most_frequent has no setting 'optimize'"):
        tl.fit(sample, model="most_frequent", optimize="micro_f1")
    dag = Hierarchy.from_edges([("A", "C"), ("B", "C")])
    with pytest.raises(TreelabelError, match="onehot_win needs a tree, but the hierarchy is a DAG"):
        tl.fit(["a", "b"], ["C", "C"], hierarchy=dag, optimize="onehot_win")
