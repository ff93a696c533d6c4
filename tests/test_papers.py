"""The numbers that the papers print: worked examples, propositions, and values of independent implementations."""

import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from tests.reference import ROOT, SlowHierarchy, matrix_of
from tests.strategies import Drawn, label_rows, trees
from treelabel import Hierarchy, Scores, decide, evaluate
from treelabel.hierarchy.similarity import information_content, information_weights

GOLDEN = Path(os.environ.get("TREELABEL_GOLDEN", Path(__file__).parents[2] / "shared" / "golden"))


def golden(name: str) -> list[dict[str, Any]]:
    """Read reference values, or skip where the folder was not handed out."""
    file = GOLDEN / name
    if not file.exists():
        pytest.skip(f"no reference values at {file}; set TREELABEL_GOLDEN to their folder")
    stored: list[dict[str, Any]] = json.loads(file.read_text())
    return stored


def golden_hierarchy(parents: Sequence[int]) -> tuple[Hierarchy, list[str]]:
    """Make the hierarchy of a reference file, whose node 0 is the root, and name its nodes."""
    names = [f"node {number}" for number in range(len(parents))]
    edges = [(names[parent], name) for parent, name in zip(parents[1:], names[1:], strict=True)]
    return Hierarchy.from_edges(edges, root=names[0]), names


def named(names: list[str], rows: list[list[int]]) -> list[list[str]]:
    return [[names[node] for node in row] for row in rows]


@pytest.mark.parametrize("form", ["dense", "csr"])
def test_scores_are_judged_as_the_reference_judged_them(form: str) -> None:
    cases = golden("hf1_auc_and_optimal_hf.json")
    assert len(cases) == 3
    for case in cases:
        h, names = golden_hierarchy(case["parent"])
        leaves = [names[leaf] for leaf in case["leaves"]]
        scores = Scores.from_leaves(h, leaves, np.array(case["leaf_probabilities"]))
        scores = scores if form == "dense" else Scores(h, scores.csr())
        truth = named(names, [[leaf] for leaf in case["true_leaf"]])
        metrics = ["micro_f1", "macro_f1", "samples_f1", "hamming"]
        result = evaluate(truth, scores=scores, rule="threshold@0.5", metrics=["hf1_auc", *metrics])
        assert result["hf1_auc"] == pytest.approx(case["hf1_auc"], abs=1e-9)
        for metric in metrics:
            assert result[metric] == pytest.approx(case[f"{metric}_at_0.5"], abs=1e-9)


def expected_f_with_root(case: dict[str, Any], row: int, labels: set[int], beta: float) -> float:
    """Sum over leaves of p (1 + beta²)|S ∩ Y|/(|S| + beta²|Y|), the root, node 0, standing in both sets."""
    expected = 0.0
    for leaf, p in zip(case["leaves"], case["leaf_probabilities"][row], strict=True):
        truth = {leaf}
        while 0 not in truth:
            truth.add(case["parent"][min(truth)])
        expected += p * (1 + beta**2) * len(labels & truth) / (len(labels) + beta**2 * len(truth))
    return expected


@pytest.mark.parametrize("form", ["dense", "csr"])
def test_optimal_decisions_are_at_least_as_good_as_those_of_the_reference(form: str) -> None:
    for case in golden("hf1_auc_and_optimal_hf.json"):
        h, names = golden_hierarchy(case["parent"])
        number = {name: node for node, name in enumerate(names)}
        leaves = [names[leaf] for leaf in case["leaves"]]
        scores = Scores.from_leaves(h, leaves, np.array(case["leaf_probabilities"]))
        scores = scores if form == "dense" else Scores(h, scores.csr())
        assert case["optimal_hfbeta_with_root"].keys() == {"0.5", "1.0", "2.0"}
        for beta, reference in case["optimal_hfbeta_with_root"].items():
            found = decide(scores, f"optimal:hf_beta@{beta}", count_root=True).names()
            assert len(found) == len(reference) == len(case["true_leaf"])
            for row, (ours, theirs) in enumerate(zip(found, reference, strict=True)):
                own = expected_f_with_root(case, row, {0} | {number[name] for name in ours}, float(beta))
                assert own >= expected_f_with_root(case, row, set(theirs), float(beta)) - 1e-7


def test_information_contrast_is_what_the_reference_found() -> None:
    cases = golden("icm.json")
    assert {case["multi_label"] for case in cases} == {True, False}
    for case in cases:
        h, names = golden_hierarchy(case["parent"])
        truth, decisions = named(names, case["gold"]), named(names, case["predicted"])
        result = evaluate(truth, decisions, hierarchy=h, metrics=["icm", "icm_norm"])
        assert result["icm"] == pytest.approx(case["icm"], abs=1e-9)
        assert result["icm_norm"] == pytest.approx(case["icm_norm"], abs=1e-9)


# Revisiting hierarchical text classification


# Appendix B.1 of the submission lists the events of its figures: nodes 1 and 2 below the root, 3, 4 and 5 below 1.
FIGURE = Hierarchy.from_paths(["1 > 3", "1 > 4", "1 > 5", "2"])
EVENTS = [["3"], ["4"], ["5"], ["2"]]


def expected_value(metric: str, prediction: list[str], probabilities: list[float]) -> float:
    """Weigh the metric of each possible truth by its probability."""
    result = evaluate(EVENTS, [prediction] * len(EVENTS), hierarchy=FIGURE, metrics=[metric])
    return float(np.dot(result.documents[metric], probabilities))


@pytest.mark.parametrize(
    ("metric", "prediction", "expected"),
    [
        ("hf1", ["1"], 0.5),
        ("hf1", ["1", "5"], 0.55),
        ("shortest_path", ["1"], 1.25),
        ("shortest_path", ["1", "5"], 1.55),
    ],
)
def test_figure_2_half_as_threshold_is_right_for_paths_and_wrong_for_f(
    metric: str, prediction: list[str], expected: float
) -> None:
    assert expected_value(metric, prediction, [0.2, 0.2, 0.35, 0.25]) == pytest.approx(expected, abs=1e-12)


def test_figure_2_thresholds_give_the_predictions_it_shows() -> None:
    scores = Scores.from_leaves(FIGURE, ["3", "4", "5", "2"], [[0.2, 0.2, 0.35, 0.25]])
    assert scores.is_coherent()
    assert scores.is_exhaustive()
    assert decide(scores, "threshold@0.5").names() == [["1"]]
    assert decide(scores, "threshold@0.3").names() == [["1", "5"]]


def test_figure_2_the_best_sets_for_paths_and_for_f_differ() -> None:
    p = [0.2, 0.2, 0.35, 0.25]
    scores = Scores.from_leaves(FIGURE, ["3", "4", "5", "2"], [p])
    assert expected_value("hf1", ["1", "5"], p) > expected_value("hf1", ["1"], p)
    assert expected_value("shortest_path", ["1", "5"], p) > expected_value("shortest_path", ["1"], p)
    assert decide(scores, "optimal:shortest_path").names() == [["1"]]
    # The paper compares {1} and {1, 5}; a third set, which it does not consider, is better than both.
    best = decide(scores, "optimal:hf1").names()[0]
    assert sorted(best) == ["1", "2", "5"]
    assert expected_value("hf1", best, p) == pytest.approx(0.565, abs=1e-12)
    assert expected_value("hf1", best, p) > expected_value("hf1", ["1", "5"], p)


@pytest.mark.parametrize(
    ("rule", "threshold"),
    [
        ("optimal:shortest_path", 1 / 2),
        ("optimal:hamming", 1 / 2),
        ("optimal:icm", 1 / 3),
        ("optimal:icm(alpha=1, beta=3)", 2 / 3),
    ],
)
def test_metrics_that_are_sums_over_nodes_have_a_threshold_for_all_nodes(rule: str, threshold: float) -> None:
    at = np.float32(threshold)
    row = [at - np.float32(0.01), np.nextafter(at, np.float32(0)), at, np.nextafter(at, np.float32(1)), at * 1.01]
    for values in (np.array([row]), sparse.csr_array(np.array([row]))):
        assert decide(Scores(Hierarchy.flat("abcde"), values), rule).names() == [["d", "e"]]


@pytest.mark.parametrize("probability", [0.3, 0.32, 0.35, 0.4, 0.49, 0.51, 0.6])
def test_a_threshold_is_where_predicting_a_node_begins_to_pay(probability: float) -> None:
    h = Hierarchy.flat("ab")
    scores = Scores(h, [[probability, 0]])
    for name, rule, sign in (("icm", "optimal:icm", 1), ("shortest_path", "optimal:shortest_path", -1)):
        judged = evaluate([["a"], ["b"]] * 2, [["a"], ["a"], [], []], hierarchy=h, metrics=[name])
        predicted, nothing = sign * judged.documents[name].reshape(2, 2) @ [probability, 1 - probability]
        assert decide(scores, rule).names() == [["a"] if predicted > nothing else []]


@pytest.mark.parametrize(("prediction", "expected"), [(["1", "3", "5"], 0.72), (["1", "3"], 0.725)])
def test_appendix_b_1_2_the_best_threshold_depends_on_the_document(prediction: list[str], expected: float) -> None:
    # The events of figure 4 have 0.55, 0 and 0.35; what is left is node 2.
    assert expected_value("hf1", prediction, [0.55, 0.0, 0.35, 0.1]) == pytest.approx(expected, abs=1e-12)


@st.composite
def labelled_trees(draw: st.DrawFn) -> tuple[Drawn, list[set[int]], list[set[int]]]:
    """Draw a tree with true and predicted sets, one at least, none of both empty."""
    drawn = draw(trees())
    pairs = draw(
        st.lists(
            st.tuples(*[st.sets(st.integers(0, len(drawn) - 1), max_size=4)] * 2).filter(any), min_size=1, max_size=6
        )
    )
    return drawn, [y for y, _ in pairs], [s for _, s in pairs]


@given(labelled_trees())
def test_proposition_1_of_coherent_predictions_hierarchical_f_is_f(
    case: tuple[Drawn, list[set[int]], list[set[int]]],
) -> None:
    drawn, truth, decisions = case
    h, closure = drawn.fast, drawn.slow.closure
    y, s = (matrix_of([closure(row) for row in rows], len(h)) for rows in (truth, decisions))
    names = ["hf1", "samples_f1", "hf1_micro", "micro_f1", "hp", "samples_precision", "hr", "samples_recall"]
    values = evaluate(y, s, hierarchy=h, metrics=names).values
    for hierarchical, flat in zip(names[::2], names[1::2], strict=True):
        assert values[hierarchical] == pytest.approx(values[flat], abs=1e-12)


def test_proposition_1_needs_coherence() -> None:
    # As given, {5} shares nothing with {1, 3}; with its ancestors it shares node 1.
    assert evaluate([["1", "3"]], [["5"]], hierarchy=FIGURE, metrics=["hf1"])["hf1"] == 0.5
    assert evaluate([["1", "3"]], [["5"]], hierarchy=Hierarchy.flat("12345"), metrics=["hf1"])["hf1"] == 0


# Hierarchical loss


STURGEON = Hierarchy.from_edges(
    [
        ("acipenseriformes", "sturgeon"),
        ("acipenseriformes", "paddlefish"),
        ("sturgeon", "huso"),
        ("sturgeon", "acipenser"),
        ("acipenser", "oxyrinchus"),
        ("acipenser", "other"),
    ],
    root="acipenseriformes",
)


@pytest.mark.parametrize(
    ("predicted", "with_root"), [("huso", 3 / 4), ("other", 7 / 8), ("oxyrinchus", 1), ("paddlefish", 1 / 2)]
)
def test_figures_2_to_4_the_wins_of_single_leaves(predicted: str, with_root: float) -> None:
    names = ["onehot_win", "softmax_win", "neg_log_win"]
    leaves = ["paddlefish", "huso", "oxyrinchus", "other"]
    scores = Scores.from_leaves(STURGEON, leaves, [[float(leaf == predicted) for leaf in leaves]])
    result = evaluate([["oxyrinchus"]], [[predicted]], scores, metrics=names)
    for name in names[:2]:
        assert 1 / 2 + result[name] / 2 == with_root
    assert result["neg_log_win"] == (-math.log(result["softmax_win"]) if result["softmax_win"] else math.inf)


def test_the_win_is_linear_in_the_distribution() -> None:
    leaves = ["paddlefish", "huso", "oxyrinchus", "other"]
    shares = np.array([0.125, 0.25, 0.5, 0.125])
    scores = Scores.from_leaves(STURGEON, leaves, shares[None])
    ends = evaluate([["oxyrinchus"]] * 4, [[leaf] for leaf in leaves], hierarchy=STURGEON, metrics=["onehot_win"])
    mixed = evaluate([["oxyrinchus"]], scores=scores, metrics=["softmax_win"])
    assert mixed["softmax_win"] == pytest.approx(shares @ ends.documents["onehot_win"])


@given(st.lists(st.integers(1, 50), min_size=1, max_size=9), st.data())
def test_in_a_flat_hierarchy_minus_log_win_is_cross_entropy(counts: list[int], data: st.DataObject) -> None:
    flat = Hierarchy.flat(map(str, range(len(counts))))
    true = data.draw(st.integers(0, len(counts) - 1))
    scores = Scores(flat, [[count / sum(counts) for count in counts]])
    result = evaluate([[str(true)]], scores=scores, metrics=["neg_log_win", "cross_entropy"])
    assert result["neg_log_win"] == pytest.approx(result["cross_entropy"], abs=1e-12)
    assert result["cross_entropy"] == pytest.approx(-math.log(counts[true] / sum(counts)), abs=1e-6)


# A hierarchy of one level


@given(st.data())
def test_in_a_flat_hierarchy_hierarchical_metrics_are_flat_ones(data: st.DataObject) -> None:
    columns = data.draw(st.integers(1, 8))
    truth = data.draw(label_rows(columns).filter(bool))
    decisions = data.draw(st.lists(st.sets(st.integers(0, columns - 1)), min_size=len(truth), max_size=len(truth)))
    flat = Hierarchy.flat(map(str, range(columns)))
    names = ["hf1", "shortest_path", "hamming", "hamming_levels", "micro_f1", "constrained_micro_f1", "hf1_micro"]
    names += ["macro_f1", "constrained_macro_f1", "macro_f1_by_depth"]
    result = evaluate(matrix_of(truth, columns), matrix_of(decisions, columns), hierarchy=flat, metrics=names)
    pairs = list(zip(truth, decisions, strict=True))
    f1 = [2 * len(y & s) / (len(y) + len(s)) if y | s else 1.0 for y, s in pairs]
    assert result["hf1"] == pytest.approx(np.mean(f1))
    assert result["constrained_micro_f1"] == result["micro_f1"]
    if any(y | s for y, s in pairs):
        assert result["hf1_micro"] == result["micro_f1"]
    assert result["constrained_macro_f1"] == result["macro_f1"]
    assert result["macro_f1_by_depth[1]"] == pytest.approx(result["macro_f1"])
    assert result["hamming_levels"] == pytest.approx(result["hamming"], abs=1e-12)
    assert result["shortest_path"] == pytest.approx(np.mean([len(y ^ s) for y, s in pairs]))
    assert result["hamming"] == pytest.approx(result["shortest_path"] / columns)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=8))
def test_in_a_flat_hierarchy_of_single_labels_all_accuracies_are_accuracy(pairs: list[tuple[int, int]]) -> None:
    flat = Hierarchy.flat("abcdef")
    truth, decisions = ([["abcdef"[pair[side]]] for pair in pairs] for side in (0, 1))
    names = ["leaf_accuracy", "coarsest_accuracy", "finest_accuracy", "level_accuracy", "subset_accuracy", "hf1"]
    result = evaluate(truth, decisions, hierarchy=flat, metrics=[*names, "onehot_win", "samples_f1", "jaccard"])
    accuracy = np.mean([true == predicted for true, predicted in pairs])
    assert list(result.values.values()) == pytest.approx([accuracy] * len(result.values))


# Evaluating extreme hierarchical multi-label classification


def recursive_information(h: SlowHierarchy, information: dict[int, float], labels: list[int]) -> float:
    """IC({c1 ... cn}) = IC(c1) + IC({c2 ... cn}) - IC({lso(c1, c2) ... lso(c1, cn)}), section 5.1."""
    if not labels:
        return 0.0
    first, rest = labels[0], labels[1:]
    meets = {h.deepest_common_ancestor(first, other) for other in rest} - {ROOT}
    return (
        information[first]
        + recursive_information(h, information, rest)
        - recursive_information(h, information, sorted(meets))
    )


@given(labelled_trees())
def test_the_closed_form_of_information_equals_the_recursion(
    case: tuple[Drawn, list[set[int]], list[set[int]]],
) -> None:
    drawn, truth, decisions = case
    h, slow = drawn.fast, drawn.slow
    closed = [slow.closure(row) for row in truth]
    frequencies = np.array([sum(node in row for row in closed) for node in range(len(h))])
    content = information_content(frequencies, len(truth))
    information = dict(enumerate(content.tolist()))
    weights = information_weights(h, content)
    for labels in (*truth, *decisions):
        recursion = recursive_information(slow, information, sorted(labels))
        assert weights[sorted(slow.closure(labels))].sum() == pytest.approx(recursion, abs=1e-9)
    contrasts = [
        2 * recursive_information(slow, information, sorted(s))
        + 2 * recursive_information(slow, information, sorted(y))
        - 3 * recursive_information(slow, information, sorted(s | y))
        for y, s in zip(truth, decisions, strict=True)
    ]
    result = evaluate(matrix_of(truth, len(h)), matrix_of(decisions, len(h)), hierarchy=h, metrics=["icm"])
    assert result.documents["icm"] == pytest.approx(contrasts, abs=1e-9)


def test_equation_4_flat_contrast_is_what_is_shared_less_what_is_not() -> None:
    flat = Hierarchy.flat("abc")
    truth, decisions = [["a", "b"], ["a"], ["a", "c"], ["b"]], [["a", "c"], ["a"], [], ["b"]]
    ic = {"a": -math.log2(3 / 4), "b": -math.log2(2 / 4), "c": -math.log2(1 / 4)}
    result = evaluate(truth, decisions, hierarchy=flat, metrics=["icm"])
    expected = [ic["a"] - ic["b"] - ic["c"], ic["a"], -ic["a"] - ic["c"], ic["b"]]
    assert result.documents["icm"] == pytest.approx(expected)


def test_equation_3_of_single_labels_needs_three_times_the_common_ancestor() -> None:
    # Printed as -IC(c1) - IC(c2) + IC(lso); from the definition with 2, 2 and 3 it is 3 IC(lso).
    h = Hierarchy.from_paths(["A > B", "A > C", "D"])
    truth = [["B"], ["C"], ["D"], ["D"]]
    result = evaluate(truth, [["C"], ["C"], ["D"], ["B"]], hierarchy=h, metrics=["icm"])
    ic = {"A": 1.0, "B": 2.0, "C": 2.0, "D": 1.0}
    contrast = -ic["C"] - ic["B"] + 3 * ic["A"]
    assert result.documents["icm"].tolist() == pytest.approx([contrast, ic["C"], ic["D"], -ic["B"] - ic["D"]])
