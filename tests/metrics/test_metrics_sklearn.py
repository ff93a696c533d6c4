"""Everything that scikit-learn also has, on random CSR matrices with empty rows and columns."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy import sparse
from sklearn import metrics as peer
from sklearn.exceptions import UndefinedMetricWarning

from treelabel import Evaluator, Hierarchy, Scores, evaluate

SEEDS = range(4)
FLAT = Hierarchy.flat([f"label {number}" for number in range(23)])
TREE = Hierarchy.from_parents([-1, -1, -1, *(number // 2 for number in range(20))], [f"n{n}" for n in range(23)])


@dataclass(frozen=True)
class Sets:
    """Closed true and predicted sets, as scikit-learn and as treelabel take them."""

    hierarchy: Hierarchy
    truth: sparse.csr_array
    decisions: sparse.csr_array

    @property
    def arrays(self) -> tuple[npt.NDArray[np.int_], npt.NDArray[np.int_]]:
        return self.truth.toarray().astype(int), self.decisions.toarray().astype(int)


def random_sets(hierarchy: Hierarchy, seed: int, rows: int = 60) -> Sets:
    """Draw sets of which some are empty, some equal; three labels are never true, three never predicted, one both."""
    rng = np.random.default_rng(seed)
    nodes = len(hierarchy)
    truth, decisions = rng.random((2, rows, nodes)) < 0.1
    decisions[::4] = truth[::4]
    truth[::7], decisions[::5], decisions[::35], truth[::35] = False, False, False, False
    leaves = hierarchy.leaves
    truth[:, leaves[-3:]] = False
    decisions[:, leaves[-5:-2]] = False
    closed = [hierarchy.closure(sparse.csr_array(labels)) for labels in (truth, decisions)]
    return Sets(hierarchy, *closed)


def test_the_random_sets_have_the_edges_they_are_drawn_for() -> None:
    for hierarchy in (FLAT, TREE):
        truth, decisions = random_sets(hierarchy, 0).arrays
        assert (~truth.any(axis=1) & ~decisions.any(axis=1)).any()
        assert (truth.any(axis=1) & ~decisions.any(axis=1)).any()
        assert (~truth.any(axis=1) & decisions.any(axis=1)).any()
        assert (~truth.any(axis=0) & ~decisions.any(axis=0)).any()
        assert (~truth.any(axis=0) & decisions.any(axis=0)).any()
        assert (truth.any(axis=0) & ~decisions.any(axis=0)).any()


def of_average(function: Callable[..., float], average: str) -> Callable[[Any, Any], float]:
    return lambda y, s: function(y, s, average=average, zero_division=0)


def present_f1(y: Any, s: Any) -> float:
    present = np.flatnonzero(y.any(axis=0) | s.any(axis=0))
    return float(peer.f1_score(y, s, average="macro", labels=present, zero_division=0))


PEERS: dict[str, Callable[[Any, Any], float]] = {
    **{f"{average}_f1": of_average(peer.f1_score, average) for average in ("micro", "macro", "samples")},
    **{f"{average}_precision": of_average(peer.precision_score, average) for average in ("micro", "macro", "samples")},
    **{f"{average}_recall": of_average(peer.recall_score, average) for average in ("micro", "macro", "samples")},
    "macro_f1_present": present_f1,
    "constrained_micro_f1": of_average(peer.f1_score, "micro"),
    "constrained_macro_f1": of_average(peer.f1_score, "macro"),
    "hf1_micro": of_average(peer.f1_score, "micro"),
    "hp_micro": of_average(peer.precision_score, "micro"),
    "hr_micro": of_average(peer.recall_score, "micro"),
    "hamming": peer.hamming_loss,
    "label_accuracy": lambda y, s: float(np.mean([peer.accuracy_score(*pair) for pair in zip(y.T, s.T, strict=True)])),
    "subset_accuracy": peer.accuracy_score,
    "jaccard": of_average(peer.jaccard_score, "samples"),
}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("hierarchy", [FLAT, TREE], ids=["flat", "tree"])
@pytest.mark.parametrize("name", PEERS)
def test_metrics_of_closed_sets_equal_scikit_learn(name: str, hierarchy: Hierarchy, seed: int) -> None:
    sets = random_sets(hierarchy, seed)
    result = evaluate(sets.truth, sets.decisions, hierarchy=hierarchy, metrics=[name])
    assert result[name] == pytest.approx(PEERS[name](*sets.arrays), abs=1e-12)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("hierarchy", [FLAT, TREE], ids=["flat", "tree"])
@pytest.mark.parametrize("beta", [0.5, 1.0, 2.0])
def test_hierarchical_metrics_equal_scikit_learn_where_some_label_is_given(
    hierarchy: Hierarchy, seed: int, beta: float
) -> None:
    # Two empty sets agree completely in hierarchical metrics; scikit-learn calls that 0/0.
    sets = random_sets(hierarchy, seed)
    y, s = sets.arrays
    some = y.any(axis=1) | s.any(axis=1)
    assert not some.all()
    names = [f"hf_beta@{beta:g}", "hp", "hr"]
    result = evaluate(sets.truth[some], sets.decisions[some], hierarchy=hierarchy, metrics=names)
    options: dict[str, Any] = {"average": "samples", "zero_division": 0}
    assert result[names[0]] == pytest.approx(peer.fbeta_score(y[some], s[some], beta=beta, **options), abs=1e-12)
    assert result["hp"] == pytest.approx(peer.precision_score(y[some], s[some], **options), abs=1e-12)
    assert result["hr"] == pytest.approx(peer.recall_score(y[some], s[some], **options), abs=1e-12)
    every = evaluate(sets.truth, sets.decisions, hierarchy=hierarchy, metrics=[names[0]]).documents[names[0]]
    assert (every[~some] == 1).all()


@pytest.mark.parametrize("seed", SEEDS)
def test_the_table_of_labels_equals_scikit_learn(seed: int) -> None:
    sets = random_sets(TREE, seed)
    table = evaluate(sets.truth, sets.decisions, hierarchy=TREE, metrics=["micro_f1"]).labels
    precision, recall, f1, support = peer.precision_recall_fscore_support(*sets.arrays, zero_division=0)
    for column, expected in {"precision": precision, "recall": recall, "f1": f1, "true": support}.items():
        assert table.column(column).to_numpy() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("seed", SEEDS)
def test_hamming_by_level_equals_scikit_learn_on_the_columns_of_each_level(seed: int) -> None:
    sets = random_sets(TREE, seed)
    result = evaluate(sets.truth, sets.decisions, hierarchy=TREE, metrics=["hamming_levels", "macro_f1_by_depth"])
    y, s = sets.arrays
    levels = [TREE.level(depth) for depth in range(1, TREE.max_depth + 1)]
    losses = [peer.hamming_loss(y[:, level], s[:, level]) for level in levels]
    scores = [peer.f1_score(y[:, level], s[:, level], average="macro", zero_division=0) for level in levels]
    assert len(levels) > 2
    assert [result[f"hamming_levels[{depth + 1}]"] for depth in range(len(levels))] == pytest.approx(losses)
    assert result["hamming_levels"] == pytest.approx(np.mean(losses))
    assert [result[f"macro_f1_by_depth[{depth + 1}]"] for depth in range(len(levels))] == pytest.approx(scores)


def random_scores(seed: int, rows: int = 50) -> tuple[Sets, npt.NDArray[np.float32]]:
    """Draw flat sets and scores that all differ, in 64ths so that single precision holds them."""
    sets = random_sets(FLAT, seed, rows)
    rng = np.random.default_rng(seed + 100)
    scores = np.array([rng.permutation(np.arange(1, 64))[: len(FLAT)] for _ in range(rows)]) / 64
    return sets, scores.astype(np.float32)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("k", [1, 3, 10, 23])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array], ids=["dense", "csr"])
def test_ndcg_equals_scikit_learn_where_something_is_true(seed: int, k: int, form: Callable[[Any], Any]) -> None:
    sets, values = random_scores(seed)
    y = sets.arrays[0]
    known = y.any(axis=1)
    assert not known.all()
    result = evaluate(sets.truth, scores=Scores(FLAT, form(values)), metrics=[f"ndcg@{k}"])
    assert result[f"ndcg@{k}"] == pytest.approx(peer.ndcg_score(y[known], values[known], k=k), abs=1e-12)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("k", [1, 3, 10])
def test_the_k_best_are_judged_as_scikit_learn_judges_them_as_sets(seed: int, k: int) -> None:
    sets, values = random_scores(seed)
    y = sets.arrays[0]
    best = np.zeros_like(y)
    np.put_along_axis(best, np.argsort(-values, axis=1)[:, :k], 1, axis=1)
    names = [f"precision@{k}", f"micro_f1@{k}", f"macro_f1@{k}"]
    result = evaluate(sets.truth, scores=Scores(FLAT, values), metrics=names)
    assert result[names[0]] == pytest.approx(peer.precision_score(y, best, average="samples", zero_division=0))
    assert result[names[1]] == pytest.approx(peer.f1_score(y, best, average="micro", zero_division=0))
    assert result[names[2]] == pytest.approx(peer.f1_score(y, best, average="macro", zero_division=0))


@pytest.mark.parametrize("seed", SEEDS)
def test_the_curve_of_a_flat_hierarchy_is_scikit_learns_precision_recall_curve(seed: int) -> None:
    sets, values = random_scores(seed)
    # Coarse scores tie, and ties must enter together.
    ties = np.ceil(values * 8) / 8
    y = sets.arrays[0]
    areas = []
    for true, row in zip(y, ties, strict=True):
        if true.any():
            precision, recall, _ = peer.precision_recall_curve(true, row)
            areas.append(peer.auc(recall, precision))
    result = evaluate(sets.truth, scores=Scores(FLAT, ties), metrics=["hf1_auc"])
    assert result["hf1_auc"] == pytest.approx(np.mean(areas), abs=1e-12)


@pytest.mark.parametrize("seed", SEEDS)
def test_calibration_sums_equal_scikit_learn_label_by_label(seed: int) -> None:
    sets, values = random_scores(seed)
    y = sets.arrays[0]
    columns = list(zip(y.T, values.T.astype(float), strict=True))
    result = evaluate(sets.truth, scores=Scores(FLAT, values), metrics=["brier", "log_loss"])
    assert result["brier"] == pytest.approx(sum(peer.brier_score_loss(*column) for column in columns))
    assert result["log_loss"] == pytest.approx(sum(peer.log_loss(*column, labels=[0, 1]) for column in columns))


@pytest.mark.parametrize("seed", SEEDS)
def test_single_labels_are_judged_as_scikit_learn_judges_classes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    true, predicted = rng.integers(0, len(FLAT), (2, 80))
    predicted[::2] = true[::2]
    # Shares of 1024 are exact in single precision and sum to 1, none is 0.
    shares = 1 + rng.multinomial(1024 - len(FLAT), np.full(len(FLAT), 1 / len(FLAT)), 80)
    rows = np.arange(len(FLAT))
    truth, decisions = true[:, None] == rows, predicted[:, None] == rows
    names = ["leaf_accuracy", "finest_accuracy", "coarsest_accuracy", "cross_entropy", "neg_log_win"]
    result = evaluate(truth, decisions, Scores(FLAT, shares / 1024), FLAT, metrics=names)
    assert [result[name] for name in names[:3]] == pytest.approx([peer.accuracy_score(true, predicted)] * 3)
    expected = peer.log_loss(true, shares / 1024, labels=rows)
    assert [result[name] for name in names[3:]] == pytest.approx([expected] * 2)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("k", [1, 2, 7])
def test_recall_of_single_labels_is_scikit_learns_top_k_accuracy(seed: int, k: int) -> None:
    _, values = random_scores(seed)
    true = np.random.default_rng(seed).integers(0, len(FLAT), len(values))
    rows = np.arange(len(FLAT))
    names = [f"recall@{k}", f"precision@{k}"]
    result = evaluate(true[:, None] == rows, scores=Scores(FLAT, values), metrics=names)
    expected = peer.top_k_accuracy_score(true, values, k=k, labels=rows)
    assert result[names[0]] == pytest.approx(expected)
    assert result[names[1]] == pytest.approx(expected / k)


RANKING_PEERS: dict[str, Callable[[Any, Any], float]] = {
    "ranking_loss": peer.label_ranking_loss,
    "coverage_error": peer.coverage_error,
    "label_ranking_average_precision": peer.label_ranking_average_precision_score,
}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array], ids=["dense", "csr"])
def test_whole_rankings_are_judged_as_scikit_learn_judges_them_ties_included(seed: int, form: Any) -> None:
    sets, values = random_scores(seed)
    # Coarse scores tie, many are 0; a document has all labels, and some have none.
    ties = np.floor(values * 4) / 4
    y = sets.arrays[0]
    y[3] = 1
    known = y.any(axis=1) & ~y.all(axis=1)
    assert (~y.any(axis=1)).any()
    names = [*RANKING_PEERS, "instance_auc", "micro_auc", "macro_auc", "one_error(empty=skip)"]
    result = evaluate(y, scores=Scores(FLAT, form(ties)), hierarchy=FLAT, metrics=names)
    for name, function in RANKING_PEERS.items():
        assert result[name] == pytest.approx(function(y, ties), abs=1e-12)
    assert result["instance_auc"] == pytest.approx(peer.roc_auc_score(y[known], ties[known], average="samples"))
    assert result["micro_auc"] == pytest.approx(peer.roc_auc_score(y, ties, average="micro"))
    seen = y.any(axis=0) & ~y.all(axis=0)
    assert result["macro_auc"] == pytest.approx(peer.roc_auc_score(y[:, seen], ties[:, seen], average="macro"))
    some = y.any(axis=1)
    wrong = 1 - y[some, ties[some].argmax(axis=1)]
    assert result["one_error(empty=skip)"] == pytest.approx(wrong.mean())
    loss = evaluate(y[some], scores=Scores(FLAT, form(ties[some])), hierarchy=FLAT, metrics=["ranking_loss"])
    skipped = evaluate(y, scores=Scores(FLAT, form(ties)), hierarchy=FLAT, metrics=["ranking_loss(empty=skip)"])
    assert skipped["ranking_loss(empty=skip)"] == pytest.approx(loss["ranking_loss"])


@pytest.mark.parametrize("average", ["micro", "macro"])
def test_areas_differ_from_scikit_learns_by_close_scores_only(average: str) -> None:
    rng = np.random.default_rng(0)
    y = rng.random((200, 23)) < 0.2
    values = np.where(rng.random(y.shape) < 0.5, rng.random(y.shape) ** 8, 0.0)
    values[y] = np.maximum(values[y], rng.random(int(y.sum())) ** 8)
    result = evaluate(y, scores=Scores(FLAT, values), hierarchy=FLAT, metrics=[f"{average}_auc"])
    assert result[f"{average}_auc"] == pytest.approx(peer.roc_auc_score(y, values, average=average), abs=5e-4)


def test_macro_auc_leaves_out_labels_that_have_no_curve() -> None:
    flat = Hierarchy.flat("abcd")
    # a is true everywhere, b nowhere; c is ranked rightly; of d one pair is tied, in scores that are not stored.
    y = np.array([[1, 0, 1, 0], [1, 0, 0, 1], [1, 0, 0, 0]])
    values = np.array([[0.5, 0.5, 0.75, 0], [0.25, 0, 0.5, 0], [0.125, 0, 0, 0.5]])
    for scores in (values, sparse.csr_array(values), values.astype(np.float32)):
        found = evaluate(y, scores=Scores(flat, scores), hierarchy=flat, metrics=["macro_auc"])
        assert found["macro_auc"] == (1 + 0.25) / 2
    with pytest.warns(UndefinedMetricWarning):
        assert np.isnan(peer.roc_auc_score(y, values, average="macro"))
    two = Hierarchy.flat("ab")
    none = evaluate(y[:, :2], scores=Scores(two, values[:, :2]), hierarchy=two, metrics=["macro_auc"])
    assert np.isnan(none["macro_auc"])


def test_macro_auc_streams_merges_and_knows_too_few_documents() -> None:
    rng = np.random.default_rng(1)
    y = rng.random((60, 23)) < np.linspace(0.6, 0.1, 23) ** 2
    scores = Scores(FLAT, np.round(rng.random(y.shape) * 0.5 + y * 0.25, 2))
    whole = evaluate(y, scores=scores, hierarchy=FLAT, metrics=["macro_auc"])
    one, two = Evaluator(FLAT, ["macro_auc"]), Evaluator(FLAT, ["macro_auc"])
    one.add(y[:7], scores=scores[:7])
    two.add(y[7:30], scores=scores[7:30])
    two.add(y[30:], scores=scores[30:])
    assert (one | two).result()["macro_auc"] == whole["macro_auc"]
    assert "of the labels have fewer than 5 documents" in whole.interval("macro_auc").reason
    frequent = Hierarchy.flat(FLAT.names[:5])
    known = evaluate(y[:, :5], scores=Scores(frequent, scores.values[:, :5]), hierarchy=frequent, metrics="macro_auc")
    interval = known.interval("macro_auc", resamples=200)
    assert interval.low < interval.value < interval.high


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", [name for name in PEERS if "_micro" not in name and "constrained" not in name])
def test_flat_metrics_take_sets_as_they_are_given(name: str, seed: int) -> None:
    sets = random_sets(TREE, seed)
    rng = np.random.default_rng(seed)
    # Without some of their ancestors, on both sides.
    y, s = (labels * (rng.random(labels.shape) < 0.5) for labels in sets.arrays)
    given, closed = f"{name}(sets=given)", f"{name}(sets=closed)"
    result = evaluate(y, s, hierarchy=TREE, metrics=[given, closed, name])
    assert result[given] == pytest.approx(PEERS[name](y, s), abs=1e-12)
    assert result[closed] == result[name]
    assert name == "subset_accuracy" or result[name] != result[given]
