"""Every rule against its slow twin on random hierarchies, dense and CSR alike; by hand; and at the edges."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import sparse

from tests.reference import ROOT, SlowHierarchy, sets_of
from tests.reference_rules import REFERENCE_RULES, TWINS, Row
from tests.strategies import Drawn, dags, examples, hierarchies, trees, with_scores
from treelabel import Decisions, Hierarchy, Scores, TreelabelError, decide
from treelabel.rules import RULES, score_rows
from treelabel.rules.back_off import NEVER

SMALL = Hierarchy.from_paths(["A > B", "A > C", "D"])
DAG = Hierarchy.from_edges([("A", "C"), ("B", "C")])
EIGHTHS = [eighth / 8 for eighth in range(1, 9)]

# What a rule cannot do without.
NEEDED: dict[str, dict[str, Any]] = {name: {"t": 0.5} for name in ("back_off", "conformal", "risk_control")}
NEEDED["optimal:cost"] = {"similarity": "shortest_path"}
NEEDS_TREE = [f"optimal:{name}" for name in ("level_accuracy", "onehot_win", "info_hf1", "wu_palmer", "lin")]
NEEDS_TREE += ["plurality"]
# What these choose for a document depends on the others.
OF_ALL_DOCUMENTS = [f"optimal:{name}" for name in ("level_accuracy", "micro_f1", "macro_f1")]
OF_ALL_DOCUMENTS += ["optimal:macro_f1@k", "optimal:binned_macro_f1@k"]


def test_every_rule_has_a_twin_or_brute_force() -> None:
    assert REFERENCE_RULES.keys() == RULES.keys()


def decided(scores: Scores, name: str, **options: Any) -> Decisions:
    """Decide by a rule of the table, with all that any rule needs."""
    counts = np.arange(len(scores.hierarchy), 0, -1)
    return decide(scores, name, counts, len(counts), **{**NEEDED.get(name, {}), **options})


def chosen(scores: Scores, name: str, **options: Any) -> list[set[int]]:
    return sets_of(decided(scores, name, **options).csr, len(scores.hierarchy))


def forms(h: Hierarchy, values: Any) -> list[Scores]:
    return [Scores(h, values), Scores(h, sparse.csr_array(values))]


# Twins


@st.composite
def settings_of(draw: st.DrawFn, name: str, drawn: Drawn) -> dict[str, Any]:
    """Draw the settings of a rule that has a twin."""
    match name:
        case "threshold":
            size = draw(st.sampled_from([0, drawn.fast.max_depth, len(drawn)]))
            listed = st.lists(st.sampled_from(EIGHTHS), min_size=size, max_size=size)
            return {"t": draw(listed if size else st.sampled_from(EIGHTHS))}
        case "top_k":
            return {"k": draw(st.integers(1, 20)), "leaves": draw(st.booleans())}
        case "top_down":
            return {"stop": draw(st.sampled_from([0.0, *EIGHTHS]))}
        case "beam":
            return {"width": draw(st.integers(1, 6))}
        case "back_off":
            each = st.sampled_from([0.0, *EIGHTHS])
            levels = drawn.fast.max_depth
            listed = st.lists(each | st.just(NEVER), min_size=levels, max_size=levels)
            return {"t": draw(each | listed)}
        case "conformal":
            score = draw(st.sampled_from(["lac", "aps", "raps"] if drawn.fast.is_tree else ["lac"]))
            return {"t": draw(st.sampled_from([0.0, *EIGHTHS, 2.0])), "score": score, "penalty": 0.125, "k_reg": 2}
        case "risk_control":
            return {"t": draw(st.sampled_from(EIGHTHS))}
    return {}


@st.composite
def with_paths(draw: st.DrawFn, drawn: st.SearchStrategy[Drawn]) -> tuple[Drawn, Any]:
    """Draw a hierarchy and, for some documents, the probability that one true path goes through each node."""
    hierarchy = draw(drawn)
    nodes = len(hierarchy)
    counts = draw(arrays(np.int64, (draw(st.integers(0, 4)), nodes), elements=st.integers(0, 64 // nodes)))
    paths = [[below in hierarchy.slow.descendants(node) | {node} for node in range(nodes)] for below in range(nodes)]
    return hierarchy, ((counts @ np.array(paths, np.int64)) / 64).astype(np.float32)


def assert_as_twin(name: str, drawn: Drawn, values: Any, options: dict[str, Any]) -> None:
    scored: list[Row] = [dict(enumerate(row)) for row in values.tolist()]
    expected = [TWINS[name](drawn.slow, row, **options) for row in scored]
    for scores in forms(drawn.fast, values):
        assert chosen(scores, name, **options, closed=False) == expected
        assert chosen(scores, name, **options) == [drawn.slow.closure(row) for row in expected]


@pytest.mark.parametrize("name", TWINS)
@examples(70)
@given(data=st.data())
def test_on_any_scores_a_rule_chooses_what_its_twin_chooses(name: str, data: st.DataObject) -> None:
    drawn, values = data.draw(with_scores(trees() if name in NEEDS_TREE else hierarchies()))
    assert_as_twin(name, drawn, values, data.draw(settings_of(name, drawn)))


@pytest.mark.parametrize("name", TWINS)
@examples(40)
@given(data=st.data())
def test_on_probabilities_of_paths_a_rule_chooses_what_its_twin_chooses(name: str, data: st.DataObject) -> None:
    drawn, values = data.draw(with_paths(trees()))
    assert_as_twin(name, drawn, values, data.draw(settings_of(name, drawn)))


@pytest.mark.parametrize("name", RULES)
@examples(20)
@given(data=st.data())
def test_dense_and_csr_scores_give_the_same_closed_sets(name: str, data: st.DataObject) -> None:
    drawn, values = data.draw(with_scores(trees() if name in NEEDS_TREE else hierarchies()))
    dense, csr = (chosen(scores, name) for scores in forms(drawn.fast, values))
    assert dense == csr == [drawn.slow.closure(row) for row in dense]


# Identities


@given(with_scores(trees()))
def test_a_beam_of_one_goes_top_down_and_a_wide_one_finds_the_best_leaf(case: tuple[Drawn, Any]) -> None:
    drawn, values = case
    scores = Scores(drawn.fast, values)
    assert chosen(scores, "beam", width=1) == chosen(scores, "top_down")
    # Only what is reached can be found: every ancestor needs a score, and a leaf must have one.
    raised = scores.coherent()
    wide = chosen(raised, "beam", width=len(drawn))
    for found, leaf in zip(wide, chosen(raised, "best_leaf"), strict=True):
        assert found == leaf or not leaf


@given(with_paths(trees()))
def test_where_one_path_is_true_most_of_the_probability_is_a_path(case: tuple[Drawn, Any]) -> None:
    drawn, values = case
    scores = Scores(drawn.fast, values)
    assert chosen(scores, "majority") == chosen(scores, "optimal:shortest_path") == chosen(scores, "optimal:hamming")


def flat(size: int) -> Drawn:
    return Drawn(Hierarchy.flat(map(str, range(size))), SlowHierarchy({node: {ROOT} for node in range(size)}))


@given(with_paths(st.integers(1, 8).map(flat)))
def test_in_a_flat_hierarchy_all_single_labels_are_the_best_one(case: tuple[Drawn, Any]) -> None:
    drawn, values = case
    scores = Scores(drawn.fast, values)
    best = chosen(scores, "best_leaf")
    rules = ["best_per_level", "top_down", "beam", "back_off@0", "top_k@1"]
    for name in [*rules, "optimal:leaf_accuracy", "optimal:level_accuracy", "optimal:onehot_win", "optimal:cost"]:
        assert chosen(scores, name) == best


@given(with_paths(hierarchies()), st.sampled_from([0.5, 1.0, 2.0]), st.booleans())
def test_the_names_of_hierarchical_f_agree_and_its_sets_are_closed_by_themselves(
    case: tuple[Drawn, Any], beta: float, count_root: bool
) -> None:
    drawn, values = case
    scores = Scores(drawn.fast, values)
    options = {"beta": beta, "count_root": count_root}
    assert chosen(scores, "optimal:hf_beta", **options, closed=False) == chosen(scores, "optimal:hf_beta", **options)
    assert chosen(scores, "optimal:hf_beta") == chosen(scores, "optimal:hf1")
    assert chosen(scores, "optimal:hf1", count_root=True) == chosen(scores, "optimal:hf1_root")


# By hand

# One document: B 0.35, C 0.25, D 0.4, and so A 0.6.
BY_HAND = {
    "threshold": "A",
    "threshold@0.35": "ABD",
    "threshold(t=[0.5, 0.3])": "AB",
    "threshold(t=[0.7, 0.4, 0.4, 0.2])": "ACD",
    "top_k@2": "AD",
    "top_k(k=2, leaves=true)": "ABD",
    "best_leaf": "D",
    "best_per_level": "AB",
    "top_down": "AB",
    "top_down@0.4": "A",
    "top_down@0.7": "",
    "beam": "D",
    "beam@1": "AB",
    "majority": "A",
    "plurality": "A",
    "back_off@0.4": "D",
    "back_off@0.5": "",
    "back_off(t=[2, 0.3])": "",
    "back_off(t=[0.35, 0.3])": "D",
    "optimal:hamming": "A",
    "optimal:shortest_path": "A",
    # above 1 - 2/3, above 1 - 3/5, above 1 - 3/3
    "optimal:icm": "ABD",
    "optimal:icm(alpha=3, beta=5)": "A",
    "optimal:icm(alpha=3)": "ABCD",
    "optimal:leaf_accuracy": "D",
    # 0.6 / 1 + 0.35 / 0.6 against 0.4 / 1
    "optimal:level_accuracy": "AB",
    # 0.6 / 2 + 2 x 0.35 / 4 = 0.475 against 2 x 0.4 / 2
    "optimal:onehot_win": "AB",
    # 0.4 A, 0.5667 A D, 0.58 A B D, 0.56 all
    "optimal:hf1": "ABD",
    # 0.5667 nothing, 0.68 A, 0.72 A D, 0.7095 A B D
    "optimal:hf1_root": "AD",
    "optimal:hf1(count_root=true)": "AD",
    # precision alone: 0.6 A
    "optimal:hf_beta@0": "A",
    # nearly recall alone: all
    "optimal:hf_beta@9": "ABCD",
    # root 2 (0.6/4 + 0.4/3) = 0.567, A 0.6 x 4/5 + 0.4 x 2/4 = 0.68, B 0.35 + 0.25 x 4/6 + 0.4 x 2/5 = 0.677
    "optimal:wu_palmer": "A",
    # A is no closer to D than B is: cost 0.6 + 2 x 0.4 = 1.4, B 2 x 0.25 + 3 x 0.4 = 1.7, D 3 x 0.6 = 1.8
    "optimal:cost(similarity=shortest_path)": "A",
    # Rows and columns are the leaves D, B, C.
    "optimal:cost(matrix=[[0, 1, 1], [1, 0, 0], [1, 0, 0]])": "AB",
    "optimal:cost(matrix=[[0, 2, 2], [1, 0, 9], [1, 9, 0]])": "D",
    # Rows are A, D, B, C.
    "optimal:cost(matrix=[[1, 1, 1], [2, 2, 2], [3, 0, 0], [0, 9, 0]])": "A",
    # Independent labels, one or two of which are true: 0.431 A, 0.510 A D, 0.541 A B D, 0.529 all
    "optimal:samples_f1": "ABD",
    # F: 2 x 0.6/2.6 = 0.46, 2 x 1/3.6 = 0.56, 2 x 1.35/4.6 = 0.587, 2 x 1.6/5.6 = 0.571
    "optimal:micro_f1": "ABD",
    "optimal:macro_f1": "ABCD",
    "optimal:macro_f1@2": "AD",
    "optimal:macro_f1@k(k=1, at_most=true)": "A",
}


@pytest.mark.parametrize("form", [0, 1], ids=["dense", "csr"])
@pytest.mark.parametrize(("rule", "expected"), BY_HAND.items())
def test_decisions_by_hand(rule: str, expected: str, form: int) -> None:
    # Columns are A, D, B, C.
    scores = forms(SMALL, np.array([[0.6, 0.4, 0.35, 0.25]]))[form]
    assert sorted(decide(scores, rule).names()[0]) == list(expected)


def test_where_no_leaf_has_a_score_a_beam_ends_at_the_best_of_the_deepest_nodes() -> None:
    h = Hierarchy.from_paths(["A > C > F", "B > D > G", "B > E > I"])
    values = np.array([[0.9, 0.9, 0, 0, 0, 0, 0, 0], [0.9, 0.8, 0.3, 0.6, 0.5, 0, 0, 0], [0.1, 0.9, 0, 0, 0, 0, 0, 0]])
    for scores in forms(h, values):
        assert decide(scores, "beam(width=5, closed=false)").names() == [["A"], ["D"], ["B"]]


# Documents do not disturb each other


@pytest.mark.parametrize("form", [0, 1], ids=["dense", "csr"])
@pytest.mark.parametrize("name", [name for name in RULES if name not in OF_ALL_DOCUMENTS])
def test_a_document_is_decided_alike_alone_and_among_many(
    name: str, form: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TREELABEL_THREADS", "3")
    monkeypatch.setattr(score_rows, "BLOCK", 1000)
    h = Hierarchy.from_paths(["A > C > F", "A > C > G", "A > D", "B > E > H", "B > E > I", "J"])
    rng = np.random.default_rng(0)
    leaves = rng.dirichlet(np.full(len(h.leaves), 0.4), 900) * (rng.random((900, len(h.leaves))) < 0.7)
    scores = forms(h, Scores.from_leaves(h, h.leaves, leaves * (rng.random((900, 1)) < 0.9)).dense())[form]
    together = chosen(scores, name)
    assert len({frozenset(row) for row in together}) > 2
    order = rng.permutation(900)
    assert chosen(scores[order], name) == [together[row] for row in order]
    for row in range(0, 900, 30):
        assert chosen(scores[row], name) == [together[row]]


# The edges


@pytest.mark.parametrize("form", [0, 1], ids=["dense", "csr"])
@pytest.mark.parametrize("documents", [0, 3])
@pytest.mark.parametrize("h", [SMALL, Hierarchy.flat(["A"]), Hierarchy.flat([])], ids=["some", "one", "none"])
@pytest.mark.parametrize("name", RULES)
def test_without_scores_nothing_is_predicted(name: str, h: Hierarchy, documents: int, form: int) -> None:
    scores = forms(h, np.zeros((documents, len(h)), np.float32))[form]
    for options in ({}, {"unknown": 0.5}, {"closed": False}):
        found = decided(scores, name, **options)
        assert sets_of(found.csr, len(h)) == [set()] * documents
        assert (found.unknown is not None) == ("unknown" in options)


@pytest.mark.parametrize("form", [0, 1], ids=["dense", "csr"])
@pytest.mark.parametrize("name", RULES)
def test_a_certain_label_is_predicted_beside_documents_without_any(name: str, form: int) -> None:
    for h in (SMALL, Hierarchy.flat(["A"]), Hierarchy.from_paths(["A > B > C > D"])):
        certain = np.isin(h.names, h.path_names(len(h) - 1)).astype(np.float32)
        scores = forms(h, np.array([0 * certain, certain, 0 * certain]))[form]
        assert chosen(scores, name) == [set(), set(np.flatnonzero(certain).tolist()), set()]


@pytest.mark.parametrize("name", NEEDS_TREE)
def test_a_rule_for_trees_refuses_a_dag_and_says_what_to_do(name: str) -> None:
    with pytest.raises(TreelabelError, match=rf"{name}: .*'C' has 2 parents; make it a tree with unfold\(\)"):
        decided(Scores(DAG, [[1, 1, 1]]), name)


@pytest.mark.parametrize("name", [name for name in RULES if name not in NEEDS_TREE])
@examples(10)
@given(case=with_paths(dags()))
def test_the_other_rules_take_dags(name: str, case: tuple[Drawn, Any]) -> None:
    drawn, values = case
    scores = Scores(drawn.fast, values)
    for row, labels in zip(scores.dense(), chosen(scores, name), strict=True):
        assert all(row[label] > 0 for label in labels)


# Documents that are like nothing that is known


@given(with_scores(hierarchies()), st.sampled_from(EIGHTHS), st.sampled_from(["threshold@0.1", "best_leaf"]))
def test_documents_without_a_sure_top_label_are_unknown_and_get_nothing(
    case: tuple[Drawn, Any], least: float, rule: str
) -> None:
    drawn, values = case
    # Every label lies below a top label, which is at least as likely.
    expected = [max(row) < least for row in values.tolist()]
    for scores in forms(drawn.fast, values):
        found = decide(scores, rule, unknown=least)
        assert found.unknown is not None
        assert found.unknown.tolist() == expected
        usual = chosen(scores, rule)
        kept = [set() if unsure else row for unsure, row in zip(expected, usual, strict=True)]
        assert sets_of(found.csr, len(drawn)) == kept


def test_marks_and_ids_go_along_when_documents_are_selected() -> None:
    scores = Scores(SMALL, [[0.9, 0, 0, 0], [0.1, 0, 0, 0], [0, 0.2, 0, 0], [0, 0.8, 0, 0]], ("a", "b", "c", "d"))
    found = decide(scores, "threshold@0.1", unknown=0.5)
    assert found.unknown is not None
    assert found.unknown.tolist() == [False, True, True, False]
    assert repr(found) == "Decisions(4 documents, 2 labels, 2 unknown, rule threshold(unknown=0.5, t=0.1))"
    picks: list[tuple[Any, str]] = [
        (slice(1, 3), "bc"),
        ([3, 0], "da"),
        ([True, False, False, True], "ad"),
        (np.array([2, 2]), "cc"),
        (1, "b"),
        ([], ""),
        (slice(0, 0), ""),
    ]
    for rows_wanted, ids in picks:
        part = found[rows_wanted]
        assert part.unknown is not None
        assert part.ids == tuple(ids)
        assert part.unknown.tolist() == [name in "bc" for name in ids]
        assert part.names() == [{"a": ["A"], "d": ["D"]}.get(name, []) for name in ids]
        assert part.rule == found.rule
    assert decide(scores)[[1]].unknown is None


@pytest.mark.parametrize("least", [0, -1, 1.5, float("nan")])
def test_how_sure_one_must_be_is_a_probability(least: float) -> None:
    with pytest.raises(TreelabelError, match=r"unknown = .*, expected a score above 0 and at most 1"):
        decide(Scores(SMALL, [[1, 0, 1, 0]]), unknown=least)
