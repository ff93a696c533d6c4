"""Conventions on which libraries differ: what is done by default, the other way, and what is said about it."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import sparse
from sklearn.metrics import log_loss, ndcg_score

from tests.helpers import Run
from treelabel import METRICS, Evaluator, Hierarchy, Scores, TreelabelError, evaluate
from treelabel.metrics import find_metric

FLAT = Hierarchy.flat("abcdef")
TREE = Hierarchy.from_paths(["A > C", "A > D", "B"])
FORMS = [np.asarray, sparse.csr_array]


# Documents without true labels


@pytest.mark.parametrize("name", ["precision@2", "recall@2", "ndcg@2"])
def test_documents_without_truth_are_skipped_or_count_0(name: str) -> None:
    scores = Scores(FLAT, [[0.9, 0.5, 0, 0, 0, 0]] * 2)
    names = [f"{name}(empty=skip)", f"{name}(empty=zero)", name]
    found = evaluate([["a", "b"], []], scores=scores, metrics=names)
    assert found[f"{name}(empty=skip)"] == 1
    assert found[f"{name}(empty=zero)"] == 0.5
    assert found[name] == (0.5 if name.startswith("precision") else 1)


# Labels with a score of 0


@pytest.mark.parametrize("form", FORMS)
@given(
    values=arrays(np.float64, (3, 6), elements=st.sampled_from([0.0, 0.25, 0.5, 1.0])),
    truth=arrays(np.bool_, (3, 6)),
    k=st.integers(1, 8),
)
def test_labels_with_a_score_of_0_are_ranked_last_by_id(form: Any, values: Any, truth: Any, k: int) -> None:
    found = evaluate(truth, scores=Scores(FLAT, form(values)), metrics=[f"precision@{k}(zeros=ranked)"])
    best = np.argsort(-values, axis=1, kind="stable")[:, :k]
    expected = np.take_along_axis(truth, best, axis=1).sum(axis=1).mean() / k
    assert found[f"precision@{k}(zeros=ranked)"] == pytest.approx(expected)


@pytest.mark.parametrize("name", [name for name, row in METRICS.items() if row.parameter == "k"])
@pytest.mark.parametrize("form", FORMS)
def test_every_metric_of_the_k_best_can_rank_them(name: str, form: Any) -> None:
    scores = Scores(FLAT, form(np.array([[0, 0.5, 0, 0, 0, 0], [0.25, 0, 0, 0, 0, 0.5]])))
    options: dict[str, Any] = {"train_frequencies": np.arange(1, 7), "train_documents": 30}
    base = name.partition("@")[0]
    names = [f"{base}@2", f"{base}@2(zeros=ranked)"]
    # The first document has the label a, which has no score and the lowest id.
    result = evaluate([["a"], ["f"]], scores=scores, metrics=names, **options)
    unranked, ranked = (result[each] for each in names)
    assert ranked > unranked


def test_with_ranked_zeros_the_gain_is_that_of_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    # No ties but zeros, which scikit-learn shares out unless it is told to ignore ties, and then takes the last first.
    values = np.where(rng.random((40, 6)) < 0.5, 0, rng.random((40, 6)))
    truth = rng.random((40, 6)) < 0.4
    truth[:, 0] = True
    found = evaluate(truth, scores=Scores(FLAT, values), metrics=["ndcg@6(zeros=ranked)"])
    by_id = values - np.arange(6) * 1e-9
    assert found["ndcg@6(zeros=ranked)"] == pytest.approx(ndcg_score(truth, by_id, k=6))


# Incoherent scores


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["hf1_auc", "best_hf1", "info_hf1_auc", "best_info_hf1"])
def test_parents_are_raised_or_children_capped(name: str, form: Any) -> None:
    # Columns A, B, C, D: the child C is surer than its parent.
    incoherent = Scores(TREE, form(np.array([[0.25, 0.5, 0.75, 0.125], [0.5, 0.25, 0.25, 0.5]])))
    truth = [["C"], ["D"]]
    metrics = [name, f"{name}(coherent=min)"]
    found = evaluate(truth, scores=incoherent, metrics=metrics)
    for switch, way in zip(metrics, ("max", "min"), strict=True):
        expected = evaluate(truth, scores=incoherent.coherent(way), metrics=[name])  # type: ignore[arg-type]
        assert found[switch] == pytest.approx(expected[name])
    assert found[name] > found[f"{name}(coherent=min)"]


def test_the_curve_of_capped_scores_stands_beside_the_other() -> None:
    scores = Scores(TREE, [[0.25, 0.5, 0.75, 0.125]])
    curves = evaluate([["C"]], scores=scores, metrics=["best_hf1", "best_hf1(coherent=min)"]).curves
    assert list(curves) == ["hierarchical", "hierarchical(coherent=min)"]
    assert curves["hierarchical"]["recall"][50] == 1
    assert curves["hierarchical(coherent=min)"]["recall"][50] == 0


# Log loss


def test_cross_entropy_by_depth_is_the_log_loss_of_scikit_learn_on_each_level() -> None:
    h = Hierarchy.from_paths(["A > C", "A > D", "B > E", "B > F"])
    rng = np.random.default_rng(0)
    leaves = rng.dirichlet(np.ones(4), 50)
    scores = Scores.from_leaves(h, ["C", "D", "E", "F"], leaves)
    true = rng.integers(0, 4, 50)
    found = evaluate(
        [["CDEF"[leaf]] for leaf in true],
        scores=scores,
        metrics=["cross_entropy_by_depth", "cross_entropy", "log_loss"],
    )
    tops = np.stack([leaves[:, :2].sum(axis=1), leaves[:, 2:].sum(axis=1)], axis=1)
    assert found["cross_entropy_by_depth[1]"] == pytest.approx(log_loss(true // 2, tops))
    assert found["cross_entropy_by_depth[2]"] == pytest.approx(log_loss(true, leaves, labels=range(4)))
    assert found["cross_entropy"] == pytest.approx(found["cross_entropy_by_depth[2]"])
    binary = sum(log_loss(true == leaf, leaves[:, leaf]) for leaf in range(4))
    assert found["log_loss"] == pytest.approx(binary)


def test_levels_count_the_documents_that_reach_them() -> None:
    scores = Scores(TREE, [[0.5, 0.5, 0.25, 0.25]] * 2)
    found = evaluate([["A"], ["C"]], scores=scores, metrics=["cross_entropy_by_depth"]).values
    assert found == pytest.approx(
        {
            "cross_entropy_by_depth": 1.5 * np.log(2),
            "cross_entropy_by_depth[1]": np.log(2),
            "cross_entropy_by_depth[2]": 2 * np.log(2),
        }
    )


# The root


def test_win_with_the_root_is_that_of_the_worked_figures() -> None:
    # The three worked figures of the paper, root included: 3/4, 7/8 and 1, for a tree of two levels.
    h = Hierarchy.from_paths(["A > C", "A > D", "B > E", "B > F"])
    scores = Scores.from_leaves(h, ["C", "D", "E", "F"], [[0, 1, 0, 0], [0.5, 0.5, 0, 0], [1, 0, 0, 0]])
    decisions = [["D"], ["C"], ["C"]]
    names = ["softmax_win(root=counted)", "onehot_win(root=counted)", "neg_log_win(root=counted)", "softmax_win"]
    found = evaluate([["C"]] * 3, decisions, scores, h, metrics=names).documents
    assert found["softmax_win(root=counted)"].tolist() == [3 / 4, 7 / 8, 1]
    assert found["onehot_win(root=counted)"].tolist() == [3 / 4, 1, 1]
    assert found["neg_log_win(root=counted)"] == pytest.approx(-np.log([3 / 4, 7 / 8, 1]))
    assert found["softmax_win"].tolist() == [1 / 2, 3 / 4, 1]


# Sets as given


def test_a_switch_of_sets_leaves_other_metrics_alone() -> None:
    given: dict[str, Any] = {"hierarchy": TREE, "metrics": ["samples_f1(sets=given)", "samples_f1", "macro_f1", "hf1"]}
    found = evaluate([["C"], ["D"]], [["A", "C"], ["C"]], **given)
    assert found["samples_f1(sets=given)"] == pytest.approx((2 / 3 + 0) / 2)
    assert found["samples_f1"] == pytest.approx((1 + 1 / 2) / 2)
    assert found["hf1"] == found["samples_f1"]
    streamed = Evaluator(TREE, given["metrics"])
    streamed.add([["C"]], [["A", "C"]])
    streamed.add([["D"]], [["C"]])
    assert streamed.result().values == found.values


# Names


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("recall@5(empty=zero)", "recall@5(empty=zero)"),
        ("recall@k(empty='zero')", "recall@5(empty=zero)"),
        ("recall@3 (zeros=ranked, empty=zero)", "recall@3(empty=zero, zeros=ranked)"),
        ("recall@3(empty=skip)", "recall@3"),
        ("hf1_auc(coherent=min)", "hf1_auc(coherent=min)"),
        ("hf1_auc(coherent=max)", "hf1_auc"),
        ("hf1()", "hf1"),
    ],
)
def test_settings_have_one_spelling(written: str, name: str) -> None:
    assert find_metric(written).name == name
    assert find_metric(find_metric(written).name) == find_metric(written)


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("recall@5(empty=none_of_it)", "recall@5: empty = none_of_it, expected skip or zero"),
        ("recall@5(full=yes)", "recall@5 has no setting 'full'; it has: empty, zeros"),
        ("hf1(empty=zero)", "hf1 has no setting 'empty'; it has: none"),
        ("recall@5(empty)", "cannot read 'empty'; expected settings such as"),
        ("recal@5(empty=zero)", "unknown metric 'recal@5'; did you mean recall@k"),
    ],
)
def test_settings_that_are_not_there_are_refused(written: str, message: str) -> None:
    with pytest.raises(TreelabelError) as error:
        find_metric(written)
    assert message in str(error.value)


def test_evaluators_of_one_convention_merge_and_of_two_do_not() -> None:
    def judged(name: str) -> Evaluator:
        evaluator = Evaluator(FLAT, [name])
        evaluator.add([["a"], []], scores=Scores(FLAT, np.ones((2, 6))))
        return evaluator

    merged = (judged("recall@6(empty=zero)") | judged("recall@6( empty='zero' )")).result()
    assert merged["recall@6(empty=zero)"] == 0.5
    with pytest.raises(TreelabelError, match="evaluators of different metrics cannot be merged"):
        _ = judged("recall@6(empty=zero)") | judged("recall@6")


# Command line


def test_a_metric_tells_its_conventions_and_how_to_change_them(run: Run) -> None:
    told = run("metrics", "recall@k").out
    assert told.splitlines()[0] == "recall@k: hits among the k best / true labels"
    assert "higher is better; needs scores" in told
    assert "Documents without true labels do not count" in told
    assert "empty=skip or zero: documents without true labels: left out, or a value of 0" in told
    assert "zeros=unranked or ranked" in told
    assert "scikit-learn's log_loss" in run("metrics", "log_loss").out
    assert "coherent=max or min" in run("metrics", "hf1_auc").out
    assert run("metrics", "hf1_root").out.count("\n") == 3
    assert run("metrics", "recall@3", "--json").json["recall@3"]["settings"]["empty"] == ["skip", "zero"]
    ended = run("metrics", "recal")
    assert (ended.code, "did you mean recall@k" in ended.err) == (2, True)


def test_settings_with_commas_go_through_the_command_line(tmp_path: Any, run: Run) -> None:
    (tmp_path / "truth.jsonl").write_text('{"labels": ["a"]}\n{"labels": []}\n')
    (tmp_path / "taxonomy.tsv").write_text("".join(f"Root\t{name}\n" for name in FLAT.names))
    Scores(FLAT, np.ones((2, 6))).save(tmp_path / "scores.npz")
    names = "recall@6(empty=zero, zeros=ranked),precision@6"
    stored = run("evaluate", tmp_path / "truth.jsonl", tmp_path / "scores.npz", "--metrics", names, "--json").json
    assert stored["values"] == pytest.approx({"recall@6(empty=zero, zeros=ranked)": 0.5, "precision@6": 1 / 12})
