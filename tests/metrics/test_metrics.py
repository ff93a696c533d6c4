"""Every metric against its slow twin on random hierarchies, in every form of input; and the edges."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from tests.reference import matrix_of
from tests.reference_distances import LATER
from tests.reference_metrics import REFERENCE as EARLIER
from tests.reference_metrics import Case
from tests.strategies import Drawn, dags, examples, label_rows, trees
from treelabel import Dataset, Evaluator, Hierarchy, Scores, TreelabelError, evaluate
from treelabel.evaluation.result import Result
from treelabel.hierarchy.similarity import inverse_propensities
from treelabel.metrics import METRICS, find_metric
from treelabel.metrics.overlap import with_root
from treelabel.metrics.registry import needs_decisions
from treelabel.metrics.shared_formulas import f_beta

REFERENCE = EARLIER | LATER
NUMBERS: dict[str, list[float]] = {"k": [1, 2, 3, 5, 8, 40], "beta": [0.5, 1, 2, 3]}
TREE = Hierarchy.from_paths(["A > C > F", "A > D", "B > E"])


@dataclass(frozen=True)
class Given:
    """One drawn case: the fast hierarchy, and the plain Python that the twin takes."""

    drawn: Drawn
    case: Case

    @property
    def score_rows(self) -> Any:
        nodes = len(self.drawn)
        values = [[row[node] for node in range(nodes)] for row in self.case.scores]
        return np.array(values, np.float32).reshape(len(values), nodes)

    def matrix(self, rows: list[set[int]]) -> Any:
        return matrix_of(rows, len(self.drawn))

    def names(self, rows: list[set[int]]) -> list[list[str]]:
        return [[self.drawn.fast.names[node] for node in sorted(row)] for row in rows]

    @property
    def training(self) -> Dataset:
        h, rows = self.drawn.fast, self.case.training
        return Dataset.of([""] * len(rows), self.names(rows), h)


@st.composite
def single_rows(draw: st.DrawFn, drawn: Drawn, size: int) -> list[set[int]]:
    """Draw label sets with one most specific label, some of its ancestors given beside it, or nothing."""
    rows: list[set[int]] = []
    for _ in range(size):
        node = draw(st.integers(-2, len(drawn) - 1))
        above = sorted(drawn.slow.ancestors(node)) if node >= 0 else []
        rows.append({node, *draw(st.sets(st.sampled_from(above)) if above else st.just(set()))} if node >= 0 else set())
    return rows


@st.composite
def cases(draw: st.DrawFn, tree: bool, single: bool) -> Given:
    """Draw documents over a tree or a DAG: single labels, or any sets, some of them equal, some empty."""
    drawn = draw(trees() if tree else st.one_of(trees(10), dags(10)))
    nodes = len(drawn)
    size = draw(st.integers(1, 5))
    rows = single_rows(drawn, size) if single else label_rows(nodes).map(lambda found: (found + [set()] * size)[:size])
    truth, decisions = draw(rows), draw(rows)
    agree = draw(st.lists(st.booleans(), min_size=size, max_size=size))
    decisions = [set(y) if same else s for s, y, same in zip(decisions, truth, agree, strict=True)]
    # Eighths, which often tie, or 64ths: both are exact in single precision; about half of the numbers are zero.
    step = draw(st.sampled_from([8, 64]))
    drawn_bytes = draw(st.binary(min_size=size * nodes, max_size=size * nodes))
    values = [max(byte % (2 * step + 1) - step, 0) / step for byte in drawn_bytes]
    scores = [dict(enumerate(values[row * nodes : (row + 1) * nodes])) for row in range(size)]
    # A copied training set reaches the bins of more frequent labels.
    training = draw(st.lists(st.sets(st.integers(0, nodes - 1), max_size=4), min_size=1, max_size=8))
    training = training * draw(st.sampled_from([1, 1, 4]))
    return Given(drawn, Case(drawn.slow, truth, decisions, scores, training))


def judged(given_case: Given, name: str, **options: Any) -> Result:
    """Evaluate with label matrices and dense scores, unless told otherwise."""
    case, h = given_case.case, given_case.drawn.fast
    forms = {
        "truth": given_case.matrix(case.truth),
        "decisions": given_case.matrix(case.decisions),
        "scores": Scores(h, given_case.score_rows),
        "train_frequencies": given_case.training,
    } | options
    return evaluate(hierarchy=h, metrics=[name], **forms)


def expected_values(name: str, case: Case) -> dict[str, float]:
    """Give the twin's value as results name it."""
    metric = find_metric(name)
    twin = next(
        row.name for row in METRICS.values() if replace(row, name=metric.name, default=metric.default) == metric
    )
    value = REFERENCE[twin](case, metric.default)
    if not isinstance(value, dict):
        return {metric.name: value}
    return {metric.name if part == "mean" else f"{metric.name}[{part}]": found for part, found in value.items()}


def assert_same(found: dict[str, float], expected: dict[str, float]) -> None:
    assert list(found) == list(expected)
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, rel=1e-12, abs=1e-12, nan_ok=True), name


def names_with_numbers(name: str) -> list[str]:
    """Write a metric with each of the numbers it is tested with."""
    parameter = METRICS[name].parameter
    base = name.partition("@")[0]
    return [name] if parameter is None else [name, *(f"{base}@{number}" for number in NUMBERS[parameter])]


def test_every_metric_has_a_twin_and_every_twin_a_metric() -> None:
    assert set(REFERENCE) == set(METRICS)


@pytest.mark.parametrize("name", METRICS)
@examples(30)
@given(data=st.data())
def test_a_metric_equals_its_twin_in_every_form_of_input(name: str, data: st.DataObject) -> None:
    needs = METRICS[name].needs
    found = data.draw(cases(tree="tree" in needs, single="single label" in needs or data.draw(st.booleans())))
    spelled = data.draw(st.sampled_from(names_with_numbers(name)))
    case, h = found.case, found.drawn.fast
    expected = expected_values(spelled, case)
    result = judged(found, spelled)
    assert_same(result.values, expected)
    if METRICS[name].is_share:
        values = np.array([*result.values.values(), *result.documents.get(find_metric(spelled).name, ())])
        assert ((values >= -1e-12) & (values <= 1 + 1e-12) | np.isnan(values)).all()
    lists = judged(found, spelled, truth=found.names(case.truth), decisions=found.names(case.decisions))
    dense = judged(
        found,
        spelled,
        truth=found.matrix(case.truth).toarray(),
        decisions=found.matrix(case.decisions).toarray().astype(int),
    )
    sparse_scores = judged(found, spelled, scores=Scores(h, sparse.csr_array(found.score_rows)))
    assert_same(lists.values, result.values)
    assert_same(dense.values, result.values)
    assert_same(sparse_scores.values, expected)


@pytest.mark.parametrize("name", [name for name, row in METRICS.items() if "frequencies" in row.needs])
@examples(10)
@given(data=st.data())
def test_without_training_data_the_truth_is_the_reference(name: str, data: st.DataObject) -> None:
    needs = METRICS[name].needs
    found = data.draw(cases(tree="tree" in needs, single="single label" in needs))
    expected = expected_values(name, replace(found.case, training=found.case.truth))
    assert_same(judged(found, name, train_frequencies=None).values, expected)


@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize("form", ["lists", "dense", "csr"])
def test_no_documents_give_nan_and_a_warning(name: str, form: str) -> None:
    empty: dict[str, Any] = {
        "lists": ([], [], np.zeros((0, len(TREE)))),
        "dense": (np.zeros((0, len(TREE)), int), np.zeros((0, len(TREE)), int), np.zeros((0, len(TREE)))),
        "csr": [sparse.csr_array((0, len(TREE)))] * 3,
    }
    truth, decisions, scores = empty[form]
    for frequencies in (None, [4, 2, 2, 1, 1, 1]):
        with pytest.warns(UserWarning, match="no documents to judge"):
            result = evaluate(
                truth,
                decisions,
                Scores(TREE, scores),
                TREE,
                metrics=[name],
                train_frequencies=frequencies,
                train_documents=None if frequencies is None else 6,
            )
        assert result.values
        assert all(math.isnan(value) for value in result.values.values()), result.values
        assert math.isnan(result[name])


# What the twin cannot show


def test_values_by_hand() -> None:
    # Truth A > C > F and B > E; predicted A > D and B.
    truth, decisions = [["F"], ["E"]], [["D"], ["B"]]
    names = ["hp", "hr", "hf1", "hf_beta@2", "hp_micro", "hr_micro", "micro_f1", "shortest_path", "hamming", "jaccard"]
    result = evaluate(truth, decisions, hierarchy=TREE, metrics=[*names, "onehot_win", "wu_palmer", "leaf_accuracy"])
    expected = {
        "hp": (1 / 2 + 1) / 2,
        "hr": (1 / 3 + 1 / 2) / 2,
        "hf1": (2 / 5 + 2 / 3) / 2,
        "hf_beta@2": (5 * 1 / (2 + 4 * 3) + 5 * 1 / (1 + 4 * 2)) / 2,
        "hp_micro": 2 / 3,
        "hr_micro": 2 / 5,
        "micro_f1": 4 / 8,
        "shortest_path": (3 + 1) / 2,
        "hamming": (3 / 6 + 1 / 6) / 2,
        "jaccard": (1 / 4 + 1 / 2) / 2,
        "onehot_win": 1 / 2,
        "wu_palmer": (2 * 2 / (4 + 3) + 2 * 2 / (3 + 2)) / 2,
        "leaf_accuracy": 0.0,
    }
    assert_same(result.values, expected)


def test_the_curve_by_hand() -> None:
    # Nodes A B C D E F. Visited: {A}, {A, D}, {A, C, D}, then F and with it everything that ties with it: B and E.
    scores = Scores(TREE, [[1, 0.25, 0.5, 0.75, 0.25, 0.25]])
    result = evaluate([["F"]], scores=scores, metrics=["hf1_auc"])
    assert result["hf1_auc"] == pytest.approx(1 / 3 * 1 + 1 / 3 * (1 / 2 + 2 / 3) / 2 + 1 / 3 * (2 / 3 + 3 / 6) / 2)


def test_incoherent_scores_are_raised_before_the_curve_is_drawn() -> None:
    incoherent = Scores(TREE, [[0, 0.5, 0, 0, 0, 1]])
    result = evaluate([["F"]], scores=incoherent, metrics=["hf1_auc"])
    assert result["hf1_auc"] == 1.0


def test_calibration_by_hand() -> None:
    # Fifteen bins: 0.62 and 0.66 share the one from 0.6 on, 0.7 is alone; the first two are right once.
    flat = Hierarchy.flat("ab")
    scores = Scores(flat, [[0.62, 0.1], [0.66, 0.1], [0.7, 0.1]])
    result = evaluate([["a"], ["b"], ["a"]], scores=scores, metrics=["ece"])
    assert result["ece"] == pytest.approx((abs(0.62 + 0.66 - 1) + abs(0.7 - 1)) / 3, abs=1e-6)


def test_equal_scores_are_ranked_by_id_and_zeros_not_at_all() -> None:
    flat = Hierarchy.flat("abcd")
    scores = Scores(flat, [[0.5, 0.5, 0, 0]])
    for true, expected in (("a", 1.0), ("b", 0.0)):
        assert evaluate([[true]], scores=scores, metrics=["precision@1"])["precision@1"] == expected
    assert evaluate([["c"]], scores=scores, metrics=["recall@4"])["recall@4"] == 0.0


def test_a_k_beyond_all_labels_costs_nothing() -> None:
    flat = Hierarchy.flat("abcd")
    scores = Scores(flat, np.tile([[0.5, 0.25, 0.125, 0]], (1000, 1)))
    names = ["precision@1000000000", "ndcg@1000000000", "micro_f1@1000000000"]
    result = evaluate([["a", "b"]] * 1000, scores=scores, metrics=names)
    assert [result[name] for name in names] == pytest.approx([2e-9, 1.0, 0.8])


def test_the_root_can_be_counted() -> None:
    assert with_root(np.array([[0.0, 2.0, 0.0]])).tolist() == [[1.0, 3.0, 1.0]]
    assert f_beta(with_root(np.array([[0.0, 2.0, 0.0]]))).tolist() == [0.5]


def test_propensities_are_probabilities_however_few_documents_there_are() -> None:
    for documents in range(5):
        counts = np.arange(documents + 1)
        assert (inverse_propensities(counts, documents) >= 1).all()
    common, rare = inverse_propensities(np.array([1000, 1]), 10_000)
    assert rare > common
    assert rare == pytest.approx(1 + (np.log(10_000) - 1) * 2.5**0.55 * 2.5**-0.55)


@pytest.mark.parametrize("name", [name for name, row in METRICS.items() if "single label" in row.needs])
def test_a_metric_of_single_labels_refuses_several_and_names_them(name: str) -> None:
    scores = Scores(TREE, np.full((2, len(TREE)), 0.25))
    several: list[list[str]] = [["F"], ["D", "E"]]
    with pytest.raises(TreelabelError, match="compares single labels, but row 1 has 2 true ones: 'D', 'E'"):
        evaluate(several, [["F"], ["D"]], scores, TREE, metrics=[name])
    if "decisions" in METRICS[name].needs:
        with pytest.raises(TreelabelError, match="row 1 has 2 predicted ones"):
            evaluate([["F"], ["D"]], several, scores, TREE, metrics=[name])


@pytest.mark.parametrize("name", [name for name, row in METRICS.items() if "tree" in row.needs])
def test_a_metric_of_trees_refuses_a_dag_and_says_what_to_do(name: str) -> None:
    dag = Hierarchy.from_edges([("A", "C"), ("B", "C")])
    with pytest.raises(TreelabelError, match=r"'C' has 2 parents; make it a tree with unfold\(\)"):
        evaluate([["C"]], [["C"]], Scores(dag, [[1, 1, 1]]), dag, metrics=[name])


def streamed_values(name: str, scores: Scores) -> dict[str, float]:
    """Judge one document in a stream, which cannot take its own truth as the reference."""
    evaluator = Evaluator(TREE, [name])
    evaluator.add([["F"]], [["F"]], scores)
    return evaluator.result().values


@pytest.mark.parametrize("name", METRICS)
def test_what_a_metric_lacks_is_named(name: str) -> None:
    needs = METRICS[name].needs
    scores = Scores(TREE, np.full((1, len(TREE)), 0.25))
    if "scores" in needs:
        with pytest.raises(TreelabelError, match="needs scores; pass scores="):
            evaluate([["F"]], [["F"]], hierarchy=TREE, metrics=[name])
    else:
        with pytest.raises(TreelabelError, match="needs decisions; pass decisions="):
            evaluate([["F"]], hierarchy=TREE, metrics=[name])
    if "frequencies" in needs:
        with pytest.raises(TreelabelError, match="needs training frequencies; pass train_frequencies="):
            streamed_values(name, scores)


@pytest.mark.parametrize("name", ["precision@0", "precision@-1", "precision@1.5", "ndcg@inf", "psp@nan", "recall@x"])
def test_only_whole_numbers_above_zero_stand_behind_k(name: str) -> None:
    with pytest.raises(TreelabelError, match=r"expected a number above 0 behind @, such as .*@5"):
        find_metric(name)


@pytest.mark.parametrize("name", ["hf_beta@0", "hf_beta@-1", "hf_beta@nan", "hf_beta@inf", "hf_beta@"])
def test_beta_is_a_number_above_zero(name: str) -> None:
    with pytest.raises(TreelabelError, match="expected a number above 0 behind @, such as hf_beta@1"):
        find_metric(name)


def test_a_metric_can_be_spelled_with_its_usual_number_or_without() -> None:
    assert find_metric("precision").name == find_metric("precision@k").name == find_metric("precision@5").name
    assert find_metric("hf_beta").default == 1
    assert find_metric("hf_beta@0.5").default == 0.5


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("hf2", "hf1"),
        ("mikro_f1", "micro_f1"),
        ("xyz", "treelabel metrics"),
        ("hf1@3", "hf1"),
        ("macro", r"did you mean macro_f1 or macro_auc or macro_f1@k\?"),
    ],
)
def test_an_unknown_metric_comes_with_a_suggestion(name: str, hint: str) -> None:
    with pytest.raises(TreelabelError, match=f"unknown metric '{name}'; .*{hint}"):
        find_metric(name)


def test_the_table_says_what_a_reader_needs() -> None:
    lower = {"hamming", "hamming_levels", "shortest_path", "jiang_conrath", "neg_log_win", "cross_entropy"}
    lower |= {"cross_entropy_by_depth", "hamming_annotated", "shortest_path_sum"}
    lower |= {"ranking_loss", "one_error", "coverage_error", "set_size", "set_nodes", "haurc"}
    assert {name for name, row in METRICS.items() if not row.higher_is_better} == lower | {"ece", "brier", "log_loss"}
    over_labels = {name for name, row in METRICS.items() if row.over_labels is not None}
    assert over_labels == {name for name in METRICS if "macro" in name}
    for name, row in METRICS.items():
        assert row.name == name
        assert row.help
        assert row.paper
        assert ("decisions" in row.needs) != ("scores" in row.needs)
        assert (row.documents is None) == (row.parts is not None) == (row.value is not None)


@pytest.mark.parametrize("name", METRICS)
def test_every_metric_says_what_it_is_with_a_runnable_example(name: str) -> None:
    function = METRICS[name].documents or METRICS[name].value
    assert function is not None
    assert ">>> " in (function.__doc__ or "")


def test_icm_takes_the_numbers_of_its_rule() -> None:
    h = Hierarchy.from_paths(["A > B", "A > C", "D"])
    # Information 0, 1, 1, 1 with frequencies 2 of 2, and so on: a = 1, b = 1, c = 0 for B against C.
    given: dict[str, Any] = {"hierarchy": h, "train_frequencies": [2, 1, 1, 1], "train_documents": 2}
    names = ["icm", "icm(alpha=1, beta=2.5)", "icm(alpha=2, alpha_2=0.5, beta=1)", "icm_norm(beta=2.5)"]
    result = evaluate([["B"]], [["C"]], metrics=names, **given)
    assert result["icm"] == 2 + 2 - 3 * 2
    assert result["icm(alpha=1,beta=2.5)"] == 1 + 2 - 2.5 * 2
    assert result["icm(alpha=2, alpha_2=0.5, beta=1)"] == 2 + 0.5 - 2
    # ICM is -1, and that of the truth with itself 4 - 2.5.
    assert result["icm_norm(beta=2.5)"] == pytest.approx((-1 + 1.5) / 3)
    assert find_metric("icm(beta=3)").name == "icm"
    assert evaluate([["B"]], [["C"]], metrics=["icm(alpha=0)"], **given)["icm(alpha=0)"] == 2 - 3 * 2
    for wrong in ("icm(beta=-1)", "icm(beta=1e999)", "icm(beta=true)", "icm(beta=x)", "icm(gamma=1)"):
        with pytest.raises(TreelabelError, match=r"expected a number of at least 0|it has: alpha, alpha_2, beta"):
            find_metric(wrong)


def test_an_orphan_is_predicted_but_never_right() -> None:
    h = Hierarchy.from_paths(["A > B", "A > C", "D"])
    result = evaluate([["B"], ["C"]], [["A", "B"], ["C"]], hierarchy=h, metrics=["constrained_micro_f1"])
    # Two of three predictions are right, and two of four true labels found; without the orphan it would be 2/3.
    assert result["constrained_micro_f1"] == pytest.approx(4 / 7)
    assert "1 of 2 documents have predicted labels without their ancestors" in result.notes[0]


@pytest.mark.parametrize(
    ("names", "expected"),
    [(None, True), ("all", True), ([], True), ("hf1", True), ("hf1_auc", False), (["hf1_auc", "hf1"], True)],
)
def test_metrics_say_whether_they_look_at_decisions(names: Any, expected: bool) -> None:
    assert needs_decisions(names) == expected
