"""evaluate, Result and Evaluator: every form of input, everything that comes out, batches and merging."""

import json
import math
import pickle
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from tests.strategies import examples
from treelabel import Dataset, Decisions, Evaluator, Hierarchy, Result, Scores, TreelabelError, decide, evaluate
from treelabel.hierarchy import LabelMatrix
from treelabel.hierarchy.label_ids import encode
from treelabel.metrics import METRICS, find_metric, overlap, probabilities
from treelabel.metrics import single_label as single_metrics

TREE = Hierarchy.from_paths(["A > C > F", "A > D", "B > E"])
DAG = Hierarchy.from_edges([("A", "C"), ("B", "C"), ("C", "D"), ("A", "E")])
SMALL = Hierarchy.from_paths(["A > B", "A > C"])
TRUTH = [["F"], ["E"], ["D"], ["F"]]
DECIDED = [["F"], ["B"], ["C"], []]
SOME = ["hf1", "micro_f1", "level_accuracy"]


def random_documents(
    hierarchy: Hierarchy, size: int, seed: int, single: bool
) -> tuple[LabelMatrix, LabelMatrix, Scores]:
    """Draw truth, decisions and scores; in the single regime every set is one label or empty."""
    rng = np.random.default_rng(seed)
    nodes = len(hierarchy)
    if single:
        sets = np.zeros((2, size, nodes), bool)
        for side in sets:
            rows = rng.random(size) < 0.9
            side[np.flatnonzero(rows), rng.integers(0, nodes, rows.sum())] = True
    else:
        sets = rng.random((2, size, nodes)) < 0.25
    scores = rng.integers(0, 17, (size, nodes)) / 16
    return sparse.csr_array(sets[0]), sparse.csr_array(sets[1]), Scores(hierarchy, scores)


# Forms of input


def forms_of(rows: list[list[str]]) -> dict[str, Any]:
    matrix = encode(TREE, rows)
    closed = TREE.closure(matrix)
    return {
        "lists of names": rows,
        "lists of paths": [TREE.paths(matrix.indices[start:stop]) for start, stop in pairwise(matrix.indptr)],
        "tuples": tuple(map(tuple, rows)),
        "boolean array": matrix.toarray(),
        "array of numbers": matrix.toarray().astype(float),
        "csr": matrix,
        "csr matrix of numbers": sparse.csr_matrix(matrix.astype(int)),
        "coo": sparse.coo_array(matrix),
        "closed csr": closed,
        "Decisions": Decisions(TREE, closed),
        "Dataset": Dataset.of([""] * len(rows), rows, TREE),
    }


@pytest.mark.parametrize("form", forms_of(TRUTH))
def test_truth_and_decisions_are_taken_in_every_form(form: str) -> None:
    expected = evaluate(TRUTH, DECIDED, hierarchy=TREE).values
    assert evaluate(forms_of(TRUTH)[form], DECIDED, hierarchy=TREE).values == expected
    assert evaluate(TRUTH, forms_of(DECIDED)[form], hierarchy=TREE).values == expected


def test_the_hierarchy_comes_from_whatever_has_one() -> None:
    expected = evaluate(TRUTH, DECIDED, hierarchy=TREE).values
    truth, decisions = forms_of(TRUTH), forms_of(DECIDED)
    assert evaluate(truth["Dataset"], DECIDED).values == expected
    assert evaluate(TRUTH, decisions["Decisions"]).values == expected
    scores = Scores(TREE, decisions["closed csr"])
    assert expected.items() <= evaluate(TRUTH, scores=scores, rule="threshold").values.items()
    with pytest.raises(TreelabelError, match="a hierarchy is needed: pass hierarchy="):
        evaluate(TRUTH, DECIDED)


def test_scores_alone_are_decided_by_the_rule() -> None:
    scores = Scores(TREE, [[0.9, 0.1, 0.6, 0.4, 0.1, 0.4]])
    high, low = (evaluate([["F"]], scores=scores, rule=f"threshold@{t}", metrics=SOME) for t in (0.5, 0.3))
    assert high["hf1"] == pytest.approx(2 * 2 / 5)
    assert low["hf1"] == pytest.approx(2 * 3 / 7)
    assert high.rule == "threshold@0.5"
    assert evaluate([["F"]], scores=scores, rule="threshold", metrics=SOME)["hf1"] == high["hf1"]


def test_a_result_says_which_rule_made_the_decisions_if_any() -> None:
    scores = Scores(TREE, [[0.9, 0.1, 0.6, 0.4, 0.1, 0.4]])
    assert evaluate([["F"]], decide(scores, "threshold@0.3"), metrics=SOME).rule == "threshold@0.3"
    assert evaluate([["F"]], [["F"]], hierarchy=TREE, metrics=SOME).rule is None
    assert evaluate([["F"]], [["F"]], scores, metrics=SOME).rule is None
    assert evaluate([["F"]], scores=scores, metrics=["hf1_auc"]).rule is None


def test_given_decisions_go_before_the_rule() -> None:
    scores = Scores(TREE, [[0, 1, 0, 0, 1, 0]])
    result = evaluate([["F"]], [["F"]], scores, metrics=["hf1", "hf1_auc"])
    assert result["hf1"] == 1
    assert result["hf1_auc"] < 0.5


def test_usual_metrics_depend_on_what_is_given() -> None:
    scores = Scores(TREE, np.full((4, len(TREE)), 0.75))
    assert "hf1_auc" not in evaluate(TRUTH, DECIDED, hierarchy=TREE).values
    assert {"hf1_auc", "hf1", "micro_f1"} <= evaluate(TRUTH, scores=scores).values.keys()
    promised = evaluate(TRUTH, scores=scores, rule="conformal(coverage=0.9, t=0.5)").values
    assert list(promised)[:2] == ["set_coverage", "set_size"]
    assert "set_coverage" not in evaluate(TRUTH, scores=scores, rule="threshold@0.5").values
    for metrics in (None, "all"):
        with pytest.raises(TreelabelError, match="nothing to judge: pass decisions= or scores="):
            evaluate(TRUTH, hierarchy=TREE, metrics=metrics)


def test_all_metrics_are_those_that_apply() -> None:
    truth, decisions, scores = random_documents(TREE, 20, 0, single=True)
    everything = evaluate(truth, decisions, scores, metrics="all")
    assert {row.name for row in everything.metrics} == {find_metric(name).name for name in METRICS}
    only_decisions = evaluate(truth, decisions, hierarchy=TREE, metrics="all")
    assert {row.name for row in only_decisions.metrics} == {n for n, row in METRICS.items() if "decisions" in row.needs}


def test_all_metrics_leave_out_those_of_single_labels_and_trees_where_they_cannot_be() -> None:
    truth, decisions, scores = random_documents(TREE, 20, 0, single=False)
    several = {row.name for row in evaluate(truth, decisions, scores, metrics="all").metrics}
    assert several.isdisjoint(n for n, row in METRICS.items() if "single label" in row.needs)
    single, _, _ = random_documents(TREE, 20, 0, single=True)
    # Metrics of scores ask for single labels in the truth alone.
    mixed = {row.name for row in evaluate(single, decisions, scores, metrics="all").metrics}
    assert "softmax_win" in mixed
    assert "onehot_win" not in mixed
    truth, decisions, scores = random_documents(DAG, 20, 0, single=True)
    in_a_dag = {row.name for row in evaluate(truth, decisions, scores, metrics="all").metrics}
    assert in_a_dag == {find_metric(n).name for n, row in METRICS.items() if "tree" not in row.needs}


# Refusals


def test_an_unknown_metric_is_refused_with_a_suggestion() -> None:
    with pytest.raises(TreelabelError, match="unknown metric 'hf11'; did you mean hf1"):
        evaluate(TRUTH, DECIDED, hierarchy=TREE, metrics=["hf11"])


@pytest.mark.parametrize("size", [0, 3, 5])
def test_wrong_lengths_are_refused_with_both_numbers(size: int) -> None:
    with pytest.raises(TreelabelError, match=f"truth has 4 documents, decisions have {size}"):
        evaluate(TRUTH, [["F"]] * size, hierarchy=TREE)
    with pytest.raises(TreelabelError, match=f"truth has 4 documents, scores have {size}"):
        evaluate(TRUTH, DECIDED, Scores(TREE, np.ones((size, len(TREE)))))


def test_another_hierarchy_is_refused() -> None:
    other = Hierarchy.from_paths(["A > C > F", "A > D", "B > G"])
    scores = Scores(other, np.ones((4, len(other))))
    for given_things in (
        {"decisions": decide(scores), "hierarchy": TREE},
        {"scores": scores, "hierarchy": TREE},
        {"decisions": forms_of(DECIDED)["Dataset"], "scores": scores},
    ):
        with pytest.raises(TreelabelError, match=r"belongs to another hierarchy \(fingerprint"):
            evaluate(TRUTH, **given_things)
    train = Dataset.of([""], [["G"]], other)
    with pytest.raises(TreelabelError, match="the training data belongs to another hierarchy"):
        evaluate(TRUTH, DECIDED, hierarchy=TREE, train_frequencies=train)


def test_scores_without_a_hierarchy_are_refused() -> None:
    with pytest.raises(TreelabelError, match=r"expected Scores\(hierarchy, matrix\) for scores=, found ndarray"):
        evaluate(TRUTH, scores=np.ones((4, 6)), hierarchy=TREE)  # type: ignore[arg-type]


def test_matrices_and_frequencies_of_wrong_width_are_refused() -> None:
    with pytest.raises(TreelabelError, match="truth: 5 columns, but the hierarchy has 6 nodes"):
        evaluate(np.ones((4, 5)), DECIDED, hierarchy=TREE)
    with pytest.raises(TreelabelError, match="decisions: 7 columns, but the hierarchy has 6 nodes"):
        evaluate(TRUTH, np.ones((4, 7)), hierarchy=TREE)
    with pytest.raises(TreelabelError, match=r"train_frequencies of shape \(3,\), expected one count for 6 nodes"):
        evaluate(TRUTH, DECIDED, hierarchy=TREE, train_frequencies=[1, 2, 3])


def test_a_score_that_reaches_the_threshold_is_predicted_dense_or_sparse() -> None:
    # 0.3 has no exact form in single precision, and is reached all the same.
    values = [[0.3, 0.29, 0, 0, 0, 0]]
    for scores in (Scores(TREE, values), Scores(TREE, sparse.csr_array(values))):
        assert decide(scores, "threshold@0.3").names() == [["A"]]


@pytest.mark.parametrize("threshold", ["0", "-1", "nan"])
def test_a_threshold_that_would_predict_everything_is_refused(threshold: str) -> None:
    for scores in (Scores(TREE, np.zeros((4, 6))), Scores(TREE, sparse.csr_array((4, 6)))):
        with pytest.raises(TreelabelError, match="expected a threshold above 0"):
            evaluate(TRUTH, scores=scores, rule=f"threshold@{threshold}")


# Frequencies


def test_frequencies_of_a_dataset_equal_those_of_its_counts_where_labels_are_leaves() -> None:
    rows = [["F"], ["F"], ["D"], ["E"], ["F"], ["E"]]
    train = Dataset.of([""] * len(rows), rows, TREE)
    names = ["icm", "icm_norm", "info_hf1", "macro_f1_by_decile"]
    data, counts, told = (
        evaluate(TRUTH, DECIDED, None, TREE, metrics=names, train_frequencies=frequencies, train_documents=documents)
        for frequencies, documents in ((train, None), (train.frequencies, None), (train.frequencies.tolist(), 6))
    )
    assert data.values == counts.values == told.values
    none = evaluate(TRUTH, DECIDED, hierarchy=TREE, metrics=names)
    own = evaluate(TRUTH, DECIDED, hierarchy=TREE, metrics=names, train_frequencies=forms_of(TRUTH)["Dataset"])
    assert none.values == own.values != data.values


def test_counts_of_several_labels_a_document_need_the_number_of_documents() -> None:
    truth, decisions = [["F", "E"], ["D"]], [["F"], ["D"]]
    frequencies = [3, 2, 2, 1, 2, 2]
    options: dict[str, Any] = {"hierarchy": TREE, "metrics": ["icm"], "train_frequencies": frequencies}
    with pytest.raises(TreelabelError, match="needs the number of training documents; pass train_documents="):
        evaluate(truth, decisions, **options)
    assert math.isfinite(evaluate(truth, decisions, **options, train_documents=4)["icm"])


def test_propensities_use_labels_as_given_and_bins_use_closed_ones() -> None:
    train = Dataset.of([""] * 12, [["F"]] * 6 + [["A"]] * 6, TREE)
    result = evaluate(TRUTH, DECIDED, hierarchy=TREE, metrics=["propensity_f1", "micro_f1"], train_frequencies=train)
    assert result.context.exclusive_frequencies.tolist() == [6, 0, 0, 0, 0, 6]
    assert result.context.frequencies.tolist() == [12, 0, 6, 0, 0, 6]
    assert result.context.reference_documents == 12
    assert result.bins.column_names == ["frequency", "labels", "macro_f1"]
    assert result.bins.column("frequency").to_pylist() == ["0", "1-9", "10-99"]
    assert result.bins.column("labels").to_pylist() == [3, 2, 1]
    assert result.bins.column("macro_f1").to_pylist() == pytest.approx([1 / 3, (1 / 2 + 2 / 3) / 2, 4 / 5])


# What comes out


@pytest.fixture
def result() -> Result:
    scores = Scores(TREE, np.array([[9, 1, 6, 3, 1, 5], [2, 8, 1, 1, 3, 0], [7, 3, 6, 1, 3, 4], [0] * 6]) / 10)
    return evaluate(TRUTH, DECIDED, scores, metrics=[*SOME, "precision@k", "hf1_auc", "recall@2", "selective_accuracy"])


def test_values_are_found_by_name_part_and_other_spelling(result: Result) -> None:
    assert result["hf1"] == result.values["hf1"] == pytest.approx((1 + 2 / 3 + 1 / 2 + 0) / 4)
    assert result["precision@5"] == result["precision@k"] == result["precision@5.0"] == result["precision"]
    assert result["level_accuracy[1]"] == 3 / 4
    assert result["level_accuracy"] == pytest.approx((3 / 4 + 1 / 4 + 1 / 2) / 3)
    for name in ("hp", "level_accuracy[7]", "hf1[1]", "nonsense"):
        with pytest.raises(TreelabelError, match=r"metric '.*' was not asked for; there are: hf1, micro_f1, level"):
            _ = result[name]


def test_documents_have_their_values_where_a_metric_is_a_mean(result: Result) -> None:
    assert set(result.documents) == {"hf1", "precision@5", "hf1_auc", "recall@2"}
    assert result.documents["hf1"] == pytest.approx([1, 2 / 3, 1 / 2, 0])
    for name, values in result.documents.items():
        assert values.mean() == pytest.approx(result[name])
    unknown = evaluate([["F"], []], scores=Scores(TREE, np.ones((2, 6))), metrics=["recall@2"]).documents["recall@2"]
    assert unknown[0] == pytest.approx(1 / 3)
    assert math.isnan(unknown[1])


def test_the_table_of_labels_by_hand(result: Result) -> None:
    table = result.labels.to_pydict()
    assert table["label"] == list("ABCDEF")
    assert table["depth"] == [1, 1, 2, 2, 2, 3]
    assert table["true"] == [3, 1, 2, 1, 1, 2]
    assert table["predicted"] == [2, 1, 2, 0, 0, 1]
    assert table["precision"] == pytest.approx([1, 1, 1 / 2, 0, 0, 1])
    assert table["recall"] == pytest.approx([2 / 3, 1, 1 / 2, 0, 0, 1 / 2])
    assert table["f1"] == pytest.approx([4 / 5, 1, 1 / 2, 0, 0, 2 / 3])


def test_the_table_of_levels_by_hand(result: Result) -> None:
    table = result.levels.to_pydict()
    assert table["depth"] == [1, 2, 3]
    assert table["nodes"] == [2, 3, 1]
    assert table["micro_f1"] == pytest.approx([6 / 7, 2 / 6, 2 / 3])
    assert table["macro_f1"] == pytest.approx([9 / 10, 1 / 6, 2 / 3])


def test_tables_of_labels_need_a_metric_that_counts_labels() -> None:
    uncounted = evaluate(TRUTH, DECIDED, hierarchy=TREE, metrics=["hf1"])
    for table in ("labels", "levels", "bins"):
        with pytest.raises(TreelabelError, match="needs a metric that counts labels, such as micro_f1"):
            getattr(uncounted, table)


def test_the_curve_of_coverage_falls_and_starts_with_all_documents(result: Result) -> None:
    # The best leaves are F with 0.5 (right), E with 0.3 (right), F with 0.4 (wrong), and none.
    curve = result.curves["coverage"]
    assert curve["threshold"][0] == 0
    assert curve["coverage"][[0, 20, 35, 45, 60]] == pytest.approx([1, 3 / 4, 1 / 2, 1 / 4, 0])
    assert curve["accuracy"][[0, 20, 35, 45]] == pytest.approx([1 / 2, 2 / 3, 1 / 2, 1])
    assert np.isnan(curve["accuracy"][60])
    assert (np.diff(curve["coverage"]) <= 0).all()
    assert evaluate(TRUTH, DECIDED, hierarchy=TREE).curves == {}


def test_a_result_goes_to_json_with_what_it_is_about(result: Result) -> None:
    stored = json.loads(result.to_json())
    assert stored["documents"] == 4
    assert stored["rule"] is None
    assert stored["fingerprint"] == TREE.fingerprint == result.fingerprint
    assert stored["values"] == result.values


def test_infinite_and_undefined_values_are_shown_and_are_null_in_json() -> None:
    scores = Scores(TREE, np.zeros((1, 6)))
    lost = evaluate([["F"]], scores=scores, metrics=["cross_entropy", "hf1_auc"])
    assert lost["cross_entropy"] == math.inf
    assert lost.table().splitlines()[0].split() == ["cross_entropy", "inf"]
    unknown = evaluate([[]], scores=scores, metrics=["recall@1"])
    assert unknown.table().split() == ["recall@1", "nan"]
    for judged in (lost, unknown):
        stored = json.loads(judged.to_json(), parse_constant=lambda constant: pytest.fail(constant))
        assert None in stored["values"].values()
        assert "[nan, nan]" in judged.table(intervals=True)


def test_a_result_goes_to_arrow_pandas_and_markdown(result: Result) -> None:
    assert dict(zip(*result.to_arrow().to_pydict().values(), strict=True)) == result.values
    frame = result.to_pandas()
    assert frame.columns.tolist() == ["metric", "value"]
    assert frame.set_index("metric")["value"].to_dict() == result.values
    lines = result.to_markdown().splitlines()
    assert lines[:3] == ["| metric | value |", "|---|---|", f"| hf1 | {result['hf1']:.4f} |"]
    assert len(lines) == 2 + len(result.values)


def test_the_table_is_aligned_and_what_str_gives(result: Result) -> None:
    table, _, notes = result.table().partition("\n\n")
    lines = table.splitlines()
    assert str(result) == result.table()
    assert notes.splitlines() == result.notes
    assert [line.split()[0] for line in lines] == list(result.values)
    assert len({line.rindex(" ") for line in lines}) == 1
    assert repr(result) == f"Result(4 documents, {len(result.values)} values)"
    for table in (result.table(intervals=True), result.to_markdown(intervals=True)):
        interval = result.interval("hf1")
        assert f"{interval.value:.4f}  [{interval.low:.4f}, {interval.high:.4f}]" in table


def test_an_interval_holds_its_value_and_is_the_same_every_time() -> None:
    truth, decisions, scores = random_documents(TREE, 60, 1, single=True)
    judged = evaluate(truth, decisions, scores, metrics="all")
    for name in judged.values:
        interval = judged.interval(name, resamples=60)
        assert interval.value == pytest.approx(judged[name], nan_ok=True), name
        if math.isfinite(interval.value) and not interval.reason:
            assert interval.low <= interval.value <= interval.high, name
    assert judged.interval("macro_f1", resamples=60) == judged.interval("macro_f1", resamples=60)
    assert judged.interval("hf1", resamples=60) != judged.interval("hf1", resamples=60, seed=1)
    wide, narrow = (judged.interval("hf1", level=level) for level in (0.99, 0.5))
    assert wide.low < narrow.low < narrow.high < wide.high


def test_part_of_a_metric_has_an_interval_though_another_part_is_infinite() -> None:
    # Leaves are right for sure, and the top label is wrong for sure.
    scores = Scores(TREE, [[1, 1, 1, 0, 0, 1], [1, 0.5, 1, 0, 0, 1]])
    judged = evaluate([["F"], ["F"]], scores=scores, metrics=["log_loss"])
    assert judged["log_loss[1]"] == math.inf
    # Both documents have 0 there, which says nothing of others, and is told; the infinite part has no interval at all.
    assert "never changes it" in judged.interval("log_loss[3]").reason
    assert judged.interval("log_loss[1]").reason == ""
    assert math.isnan(judged.interval("log_loss[1]").low)


def test_intervals_of_what_is_not_there_are_refused(result: Result) -> None:
    for name in ("hp", "level_accuracy[7]", "hf1[1]"):
        with pytest.raises(TreelabelError, match="was not asked for"):
            result.interval(name)
    light = evaluate(TRUTH, DECIDED, hierarchy=TREE, keep_documents=False)
    assert light.documents == {}
    assert "[" not in light.table(intervals=True).splitlines()[0]
    with pytest.raises(TreelabelError, match="evaluate with keep_documents=True"):
        light.interval("hf1")


# Batches and merging


TRAIN = {
    "tree": Dataset.of([""] * 12, [["F"], ["D"], ["E"], ["F", "E"], ["B"], ["C"]] * 2, TREE),
    "dag": Dataset.of([""] * 8, [["D"], ["E"], ["C", "E"], ["B"]] * 2, DAG),
}
# Parts whose sums are whole numbers, though stored as floating point; those of labels are stored as integers.
WHOLE = (overlap.overlap_sums, single_metrics.level_matches, probabilities.coverage_bins)
Part = tuple[LabelMatrix, LabelMatrix, Scores]


def evaluator(kind: str, **options: Any) -> Evaluator:
    train = TRAIN[kind]
    return Evaluator(train.hierarchy, "all", train_frequencies=train, **options)


def one_pass(kind: str, documents: Part) -> Evaluator:
    whole = evaluator(kind)
    whole.add(*documents)
    return whole


def assert_equal_state(found: Evaluator, whole: Evaluator) -> None:
    """Counts are equal to the bit; sums and values to 1e-12."""
    assert found.documents == whole.documents
    assert found.sums.keys() == whole.sums.keys()
    for key, sums in whole.sums.items():
        for one, two in zip(found.sums[key], sums, strict=True):
            assert one.dtype == two.dtype
            is_count = one.dtype.kind == "i" or key[0] in WHOLE
            np.testing.assert_allclose(one, two, rtol=0 if is_count else 1e-12, atol=0 if is_count else 1e-12)
    values, expected = found.result().values, whole.result().values
    assert list(values) == list(expected)
    for name, value in expected.items():
        assert values[name] == pytest.approx(value, rel=1e-12, abs=1e-12, nan_ok=True), name


@pytest.mark.parametrize("name", ["micro_f1", "constrained_micro_f1", "micro_f1@5"])
def test_labels_are_counted_in_whole_numbers(name: str) -> None:
    judge = Evaluator(TREE, [name])
    judge.add(*random_documents(TREE, 20, 0, single=False))
    (sums,) = judge.sums.values()
    assert [counts.dtype for counts in sums] == [np.int64] * 4


def parts_of(documents: Part, cuts: list[int]) -> list[Part]:
    edges = [0, *sorted(cuts), documents[0].shape[0]]
    return [
        (documents[0][start:stop], documents[1][start:stop], documents[2][start:stop])
        for start, stop in pairwise(edges)
    ]


@pytest.mark.parametrize("single", [True, False], ids=["single", "multi"])
@pytest.mark.parametrize("kind", ["tree", "dag"])
@examples(20)
@given(data=st.data())
@pytest.mark.slow
def test_any_split_merged_in_any_grouping_is_one_pass(kind: str, single: bool, data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 12))
    documents = random_documents(TRAIN[kind].hierarchy, size, data.draw(st.integers(0, 99)), single)
    parts = parts_of(documents, data.draw(st.lists(st.integers(0, size), max_size=5)))
    whole = one_pass(kind, documents)
    streamed = evaluator(kind)
    for part in parts:
        streamed.add(*part)
    assert_equal_state(streamed, whole)
    pieces = [one_pass(kind, part) for part in parts] + [evaluator(kind)] * data.draw(st.integers(0, 1))
    while len(pieces) > 1:
        at = data.draw(st.integers(0, len(pieces) - 2))
        pieces[at : at + 2] = [pieces[at] | pieces[at + 1]]
    assert_equal_state(pieces[0], whole)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array], ids=["dense", "csr"])
@pytest.mark.parametrize("single", [True, False], ids=["single", "multi"])
@pytest.mark.slow
def test_many_documents_judged_in_threads_are_one_pass_of_small_batches(
    single: bool, form: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    truth, decisions, scores = random_documents(TREE, 5000, 3, single)
    documents = truth, decisions, Scores(TREE, form(scores.dense()))
    monkeypatch.setenv("TREELABEL_THREADS", "3")
    whole = one_pass("tree", documents)
    monkeypatch.setenv("TREELABEL_THREADS", "1")
    streamed = evaluator("tree")
    for part in parts_of(documents, list(range(700, 5000, 700))):
        streamed.add(*part)
    assert_equal_state(streamed, whole)


def test_merging_leaves_both_sides_as_they_were() -> None:
    documents = random_documents(TREE, 10, 0, single=True)
    one, two = (one_pass("tree", part) for part in parts_of(documents, [4]))
    before = one.result().values, two.result().values
    merged = one | two
    merged.add(*documents)
    assert before == (one.result().values, two.result().values)
    assert (one.documents, two.documents, merged.documents) == (4, 6, 20)


def test_evaluators_travel_between_processes() -> None:
    documents = random_documents(TREE, 10, 0, single=True)
    one, two = (one_pass("tree", part) for part in parts_of(documents, [4]))
    assert_equal_state(pickle.loads(pickle.dumps(one)) | two, one_pass("tree", documents))


def held(judge: Evaluator) -> int:
    arrays: list[npt.NDArray[Any]] = [array for sums in judge.sums.values() for array in sums]
    assert judge.stored_parts == {}
    return sum(array.nbytes for array in arrays)


def test_memory_does_not_grow_with_documents() -> None:
    documents = random_documents(TREE, 40, 0, single=True)
    judge = evaluator("tree")
    judge.add(*documents)
    after_one, state_after_one = held(judge), len(pickle.dumps(judge.sums))
    for _ in range(49):
        judge.add(*documents)
    assert judge.documents == 2000
    assert held(judge) == after_one
    assert len(pickle.dumps(judge.sums)) == state_after_one
    assert not judge.result().parts
    kept = evaluator("tree", keep_documents=True)
    kept.add(*documents)
    kept.add(*documents)
    assert len(kept.result().documents["hf1"]) == 80


def test_kept_documents_are_put_together_in_order() -> None:
    documents = random_documents(TREE, 30, 5, single=False)
    whole = evaluate(*documents, metrics="all", train_frequencies=TRAIN["tree"])
    one, two = (evaluator("tree", keep_documents=True) for _ in range(2))
    first, second, third = parts_of(documents, [7, 19])
    one.add(*first)
    one.add(*second)
    two.add(*third)
    merged = (one | two).result()
    for name, values in whole.documents.items():
        np.testing.assert_array_equal(merged.documents[name], values)
    for name in ("macro_f1", "psp@5", "hamming_levels[2]", "ece[1]"):
        mine, other = merged.interval(name, resamples=50), whole.interval(name, resamples=50)
        assert (mine.low, mine.high) == pytest.approx((other.low, other.high))


def test_merged_with_an_evaluator_that_kept_nothing_there_are_no_documents() -> None:
    documents = random_documents(TREE, 8, 0, single=True)
    kept, light = evaluator("tree", keep_documents=True), evaluator("tree")
    kept.add(*documents)
    light.add(*documents)
    for merged in (kept | light, light | kept):
        assert merged.documents == 16
        assert merged.result().documents == {}


def test_all_metrics_of_a_stream_are_those_that_apply_to_every_document() -> None:
    stream = Evaluator(TREE, "all")
    stream.add([["F"]], [["F"]])
    assert "leaf_accuracy" in stream.result().values
    stream.add([["F", "E"]], [["F"]])
    assert "leaf_accuracy" not in stream.result().values
    stream.add([["F"]], [["F"]])
    assert "leaf_accuracy" not in stream.result().values
    assert stream.result()["hp"] == 1


def test_a_batch_that_is_refused_leaves_nothing_behind() -> None:
    stream = Evaluator(TREE, ["micro_f1", "leaf_accuracy"])
    stream.add([["F"]], [["D"]])
    before = stream.result().values
    with pytest.raises(TreelabelError, match="compares single labels"):
        stream.add([["F", "E"]], [["F"]])
    assert stream.documents == 1
    assert stream.result().values == before


def test_what_cannot_be_merged_is_refused() -> None:
    def fed(hierarchy: Hierarchy = TREE, metrics: str = "hf1", rule: str = "threshold", **options: Any) -> Evaluator:
        judge = Evaluator(hierarchy, [metrics], rule, **options)
        judge.add([["F"]], scores=Scores(hierarchy, np.ones((1, len(hierarchy)))))
        return judge

    with pytest.raises(TreelabelError, match="the other evaluator belongs to another hierarchy"):
        fed() | fed(Hierarchy.flat("ABCDEF"))
    with pytest.raises(TreelabelError, match="evaluators of different metrics cannot be merged"):
        fed() | fed(metrics="hp")
    with pytest.raises(TreelabelError, match=r"decisions by threshold and by threshold@0.3 cannot be merged"):
        fed() | fed(rule="threshold@0.3")
    with pytest.raises(TreelabelError, match="evaluators with different training frequencies cannot be merged"):
        fed() | fed(train_frequencies=TRAIN["tree"])


def test_an_evaluator_that_saw_nothing_gives_nan_and_a_warning() -> None:
    with pytest.warns(UserWarning, match="no documents to judge"):
        empty = Evaluator(TREE, ["hf1", "precision@3"]).result()
    assert list(empty.values) == ["hf1", "precision@3"]
    assert all(math.isnan(value) for value in empty.values.values())


def test_operating_curves_come_with_their_metrics_and_start_at_precision_1() -> None:
    h = Hierarchy.from_paths(["A > B", "A > C", "D"])
    scores = Scores.from_leaves(h, ["B", "C", "D"], [[0.5, 0.25, 0.25], [0.25, 0.125, 0.625]])
    result = evaluate(
        [["B"], ["B"]],
        scores=scores,
        metrics=["best_hf1", "best_info_hf1"],
        train_frequencies=[3, 1, 2, 1],
        train_documents=4,
    )
    curve = result.curves["hierarchical"]
    assert set(result.curves) == {"hierarchical", "information"}
    assert (curve["precision"][-1], curve["recall"][-1]) == (1.0, 0.0)
    # At 0.25 both documents have everything but C in the second: 2/4 and 2/3 precise, all recalled.
    at = int(np.flatnonzero(np.isclose(curve["threshold"], 0.25))[0])
    assert (curve["precision"][at], curve["recall"][at]) == pytest.approx(((2 / 4 + 2 / 3) / 2, 1.0))
    assert 0 < result["best_hf1"] <= 1


def test_propensities_and_bins_take_their_settings() -> None:
    h = Hierarchy.flat(["A", "B", "C"])
    scores = Scores(h, [[0.9, 0.5, 0.1], [0.2, 0.1, 0.6]])
    given: dict[str, Any] = {"scores": scores, "train_frequencies": [50, 3, 1], "train_documents": 60}
    plain = evaluate([["A"], ["B"]], metrics=["psp@1", "binned_macro_f1@1"], **given)
    other = evaluate(
        [["A"], ["B"]], metrics=["psp@1", "binned_macro_f1@1"], propensity=(0.5, 0.4), bin_edges=(1, 3), **given
    )
    assert plain["psp@1"] != other["psp@1"]
    assert {name for name in other.values if "[" in name} == {"binned_macro_f1@1[1-2]", "binned_macro_f1@1[3+]"}


def test_intervals_of_all_values_are_those_of_each() -> None:
    h = Hierarchy.from_paths(["A > B", "A > C", "D"])
    truth, chosen = [["B"], ["C"], ["D"], ["B"]] * 5, [["B"], ["B"], ["D"], ["A"]] * 5
    result = evaluate(truth, chosen, hierarchy=h, metrics=["hf1", "hp", "macro_f1", "level_accuracy"])
    for name, found in result.intervals(resamples=50).items():
        assert str(found) == str(result.interval(name, resamples=50))
    assert str(result.interval("level_accuracy[1]", resamples=50)) == f"1.0000 [{0.025 ** (1 / 20):.4f}, 1.0000]"


def test_what_has_ids_is_matched_by_them() -> None:
    h = Hierarchy.flat(["A", "B"])
    truth = Dataset.of(["", "", ""], [["A"], ["B"], ["A"]], h, ids=["x", "y", "z"])
    scores = Scores(h, [[0, 1], [1, 0], [1, 0]], ids=("y", "z", "x"))
    assert evaluate(truth, scores=scores, metrics=["hf1"])["hf1"] == 1
    assert evaluate(truth, decisions=decide(scores), metrics=["hf1"])["hf1"] == 1
    with pytest.raises(TreelabelError, match="scores: no prediction for 1 of 3 documents: ids 'x'"):
        evaluate(truth, scores=scores[:2], metrics=["hf1"])
    # Ids that are only row numbers say nothing, so the order counts.
    unnamed = Dataset.of(["", "", ""], [["B"], ["A"], ["A"]], h)
    assert evaluate(unnamed, scores=scores, metrics=["hf1"])["hf1"] == 1


# Metrics that do not apply


def test_a_metric_that_cannot_apply_is_skipped_with_its_reason() -> None:
    truth = [["F"], ["E", "D"], ["D"], ["F"]]
    result = evaluate(truth, DECIDED, hierarchy=TREE, metrics=["hf1", "wu_palmer", "hf1_auc"], on_error="skip")
    assert list(result.values) == ["hf1"]
    assert result.skipped["wu_palmer"].startswith("this metric compares single labels, but row 1 has 2 true ones")
    assert "scores" in result.skipped["hf1_auc"]
    assert result.notes[0].startswith("Skipped wu_palmer: this metric compares")
    assert json.loads(result.to_json())["skipped"] == result.skipped
    with pytest.raises(TreelabelError, match="wu_palmer: this metric compares single labels"):
        evaluate(truth, DECIDED, hierarchy=TREE, metrics=["hf1", "wu_palmer"])


def test_metrics_none_of_which_applies_are_an_error() -> None:
    with pytest.raises(
        TreelabelError, match=r"none of the metrics applies: hf1_auc: .*; ece: this metric needs scores"
    ):
        evaluate(TRUTH, DECIDED, hierarchy=TREE, metrics=["hf1_auc", "ece"], on_error="skip")


def test_a_metric_that_fails_in_a_later_batch_is_skipped_and_the_row_is_counted_from_the_first() -> None:
    judge = Evaluator(TREE, ["hf1", "leaf_accuracy"], on_error="skip")
    judge.add(TRUTH, DECIDED)
    judge.add([["F", "E"]], [["F"]])
    result = judge.result()
    assert list(result.values) == ["hf1"]
    assert "row 4 has 2 true ones" in result.skipped["leaf_accuracy"]
    other = Evaluator(TREE, ["hf1", "leaf_accuracy"], on_error="skip")
    other.add(TRUTH, DECIDED)
    assert list((other | judge).result().values) == ["hf1"]
    assert (other | judge).result().skipped == result.skipped


def test_a_metric_without_a_value_is_skipped_too() -> None:
    judge = Evaluator(TREE, ["hf1", "macro_f1_by_decile"], on_error="skip")
    judge.add(TRUTH, DECIDED)
    result = judge.result()
    assert list(result.values) == ["hf1"]
    assert "training frequencies" in result.skipped["macro_f1_by_decile"]


@pytest.mark.parametrize("single", [True, False], ids=["single", "multi"])
def test_batches_of_any_size_give_the_same_bits(single: bool) -> None:
    documents = random_documents(TREE, 200, 4, single)
    whole = one_pass("tree", documents).result()
    streamed = evaluator("tree")
    for part in parts_of(documents, list(range(7, 200, 7))):
        streamed.add(*part)
    assert json.loads(streamed.result().to_json()) == json.loads(whole.to_json())


@pytest.mark.parametrize(
    "found", [[0.9, 0.8, 0.0], [0.9, 1, 0], [1, math.nan, 0], [1, math.inf, 0], [1, 1, -1]], ids=str
)
@pytest.mark.parametrize(
    "as_given", [np.array, sparse.csr_array, lambda rows: Decisions(SMALL, sparse.csr_array(rows))]
)
def test_scores_are_no_label_sets(found: list[float], as_given: Callable[..., Any]) -> None:
    right, given = np.array([[1, 1, 0]]), as_given([found])
    for judge in (
        lambda: evaluate(right, given, hierarchy=SMALL, metrics=["hf1"]),
        lambda: evaluate(given, right, hierarchy=SMALL, metrics=["hf1"]),
        lambda: evaluate(given, scores=Scores(SMALL, [[0.9, 0.8, 0.1]]), metrics=["hf1"]),
        lambda: Evaluator(SMALL, ["hf1"]).add(right, given),
    ):
        with pytest.raises(TreelabelError, match=r"(truth|decisions): expected 0 and 1, found .*pass scores="):
            judge()


@pytest.mark.parametrize("dtype", [bool, np.int64, np.uint8, np.float32])
def test_marks_and_counts_are_label_sets(dtype: Any) -> None:
    right = np.array([[1, 1, 0], [1, 0, 1]])
    # Two entries at one place of a sparse matrix are added up.
    for sets in (right.astype(dtype), (2 * right).astype(dtype), sparse.csr_array((2 * right).astype(dtype))):
        assert evaluate(sets, sets, hierarchy=SMALL, metrics=["hf1"])["hf1"] == 1
