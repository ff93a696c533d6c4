"""Scores: hand-computed values, slow twins on random hierarchies, dense beside CSR, files, and what is refused."""

import json
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from tests.reference import ROOT, SlowHierarchy
from tests.strategies import Drawn, dags, examples, hierarchies, trees, with_scores
from treelabel.core.errors import TreelabelError
from treelabel.hierarchy import Change, Hierarchy, label_matrix
from treelabel.hierarchy.change import CollapsedChains
from treelabel.scores import Scores, score_files, score_writer

Floats = npt.NDArray[np.float32]
Row = dict[int, float]
Slow = Callable[[SlowHierarchy, Row], Row]

# Ids: A 0, E 1, B 2, D 3, C 4.
TREE = Hierarchy.from_paths(["A > B > C", "A > D", "E"])
# Ids: A 0, B 1, then X under both, and its children Y and Z.
DAG = Hierarchy.from_edges([("A", "X"), ("B", "X"), ("X", "Y"), ("X", "Z")])


def both(hierarchy: Hierarchy, values: Any, ids: list[str] | None = None) -> list[Scores]:
    """The same scores, dense and CSR."""
    dense = np.array(values, np.float32)
    names = None if ids is None else tuple(ids)
    return [Scores(hierarchy, dense, names), Scores(hierarchy, sparse.csr_array(dense), names)]


def as_dense(values: Any) -> Floats:
    dense: Floats = values.toarray() if sparse.issparse(values) else np.asarray(values)
    return dense


def same_bits(one: Scores, two: Scores) -> bool:
    if one.is_sparse != two.is_sparse or one.ids != two.ids or one.hierarchy != two.hierarchy:
        return False
    if not one.is_sparse:
        return bool(one.values.shape == two.values.shape and one.values.tobytes() == two.values.tobytes())
    arrays = [(one.values.data, two.values.data), (one.values.indices, two.values.indices)]
    pairs = [*arrays, (one.values.indptr, two.values.indptr)]
    return one.values.shape == two.values.shape and all(np.array_equal(left, right) for left, right in pairs)


# Slow twins: a row is a dict from node to score


def slow_sum(slow: SlowHierarchy, row: Row) -> Row:
    leaves = [node for node in slow.parents if not slow.children[node]]
    return {node: sum(row[leaf] for leaf in leaves if node in slow.closure([leaf])) for node in slow.parents}


def slow_product(slow: SlowHierarchy, row: Row) -> Row:
    return {node: float(np.prod([row[above] for above in slow.closure([node])])) for node in slow.parents}


def slow_quotient(slow: SlowHierarchy, row: Row) -> Row:
    above = {node: 1.0 if parent == ROOT else row[parent] for node, (parent,) in slow.parents.items()}
    return {node: row[node] / above[node] if above[node] else 0.0 for node in slow.parents}


def slow_max(slow: SlowHierarchy, row: Row) -> Row:
    return {node: max(row[below] for below in {node} | slow.descendants(node)) for node in slow.parents}


def slow_min(slow: SlowHierarchy, row: Row) -> Row:
    return {node: min(row[above] for above in slow.closure([node])) for node in slow.parents}


def slow_top(slow: SlowHierarchy, row: Row, count: int) -> Row:
    best = sorted((node for node in slow.parents if row[node] > 0), key=lambda node: (-row[node], node))[:count]
    return {node: row[node] if node in best else 0.0 for node in slow.parents}


def slow_coherence_gap(slow: SlowHierarchy, row: Row) -> float:
    edges = [(above, node) for node, parents in slow.parents.items() for above in parents if above != ROOT]
    return max([row[node] - row[above] for above, node in edges] + [0.0])


def slow_exhaustiveness_gap(slow: SlowHierarchy, row: Row) -> float:
    whole = {**row, ROOT: 1.0}
    inner = [node for node, below in slow.children.items() if below or node == ROOT]
    return max(abs(whole[node] - sum(row[below] for below in slow.children[node])) for node in inner)


def by_rows(drawn: Drawn, values: Floats, twin: Slow) -> Floats:
    made = [twin(drawn.slow, dict(enumerate(row))) for row in values.tolist()]
    return np.array([[row[node] for node in range(len(drawn))] for row in made], np.float32).reshape(values.shape)


@st.composite
def leaf_scores(draw: st.DrawFn) -> tuple[Drawn, Floats]:
    """Draw a hierarchy and scores of its leaves in 64ths, exact in single precision and never above 1 together."""
    drawn = draw(hierarchies())
    rows = draw(st.integers(0, 4))
    size = rows * len(drawn.fast.leaves)
    values = draw(st.lists(st.integers(0, 4).map(lambda part: part / 64), min_size=size, max_size=size))
    return drawn, np.array(values, np.float32).reshape(rows, len(drawn.fast.leaves))


# From leaves


@pytest.mark.parametrize("wrap", [np.array, sparse.csr_array], ids=["dense", "csr"])
@pytest.mark.parametrize(
    "leaves",
    [["C", "D", "E"], ["A > B > C", "A/D", "E"], np.array([4, 3, 1]), [4, 3, 1]],
    ids=["names", "paths", "id array", "id list"],
)
def test_leaves_add_up_to_their_ancestors(leaves: Any, wrap: Callable[[Any], Any]) -> None:
    scores = Scores.from_leaves(TREE, leaves, wrap([[0.5, 0.25, 0.125], [0.0, 0.5, 0.5]]), ids=["x", "y"])
    assert scores.dense().tolist() == [[0.75, 0.125, 0.5, 0.25, 0.5], [0.5, 0.5, 0.0, 0.5, 0.0]]
    assert scores.is_sparse == (wrap is sparse.csr_array)
    assert scores.ids == ("x", "y")


@pytest.mark.parametrize("wrap", [np.array, sparse.csr_array], ids=["dense", "csr"])
def test_a_leaf_counts_once_however_many_ways_lead_to_it(wrap: Callable[[Any], Any]) -> None:
    diamond = Hierarchy.from_edges([("T", "A"), ("T", "B"), ("A", "X"), ("B", "X")])
    assert Scores.from_leaves(diamond, ["X"], wrap([[0.5]])).dense().tolist() == [[0.5, 0.5, 0.5, 0.5]]


def test_leaves_that_are_left_out_have_nothing() -> None:
    assert Scores.from_leaves(TREE, ["D"], [[0.5]]).dense().tolist() == [[0.5, 0, 0, 0.5, 0]]
    assert Scores.from_leaves(TREE, [], np.zeros((2, 0))).dense().tolist() == [[0.0] * 5] * 2


@given(leaf_scores(), st.randoms(use_true_random=False))
def test_leaf_sums_agree_with_the_twin(case: tuple[Drawn, Floats], random: Any) -> None:
    drawn, values = case
    order = random.sample(range(values.shape[1]), values.shape[1])
    leaves = drawn.fast.leaves
    whole = np.zeros((len(values), len(drawn)), np.float32)
    whole[:, leaves] = values
    expected = by_rows(drawn, whole, slow_sum)
    for wrap in (np.array, sparse.csr_array):
        scores = Scores.from_leaves(drawn.fast, leaves[order], wrap(values[:, order]))
        np.testing.assert_array_equal(scores.dense(), expected)
        assert scores.coherence_gap() == 0


@pytest.mark.parametrize("wrap", [np.array, sparse.csr_array], ids=["dense", "csr"])
@pytest.mark.slow
def test_sums_over_very_many_leaves_do_not_drift(wrap: Callable[[Any], Any]) -> None:
    # In single precision throughout, these sum to 1.001 and are refused as no probability.
    count = 300_000
    wide = Hierarchy.from_parents([-1] + [0] * count, ["top", *map(str, range(count))])
    scores = Scores.from_leaves(wide, range(1, count + 1), wrap(np.full((1, count), 1 / count)))
    assert float(scores.csr()[0, 0]) == pytest.approx(1, abs=1e-6)
    assert scores.exhaustiveness_gap() < 1e-6
    other = wide.with_other_leaves([0])
    moved = scores.move(other)
    assert float(moved.csr()[0, other.new.names.index("other [top]")]) < 1e-6


# Conditional and marginal


def test_conditionals_multiply_down_and_divide_back() -> None:
    conditional = [[0.5, 0.5, 0.5, 0.25, 0.5], [0.0, 1.0, 1.0, 1.0, 1.0]]
    marginal = [[0.5, 0.5, 0.25, 0.125, 0.125], [0.0, 1.0, 0.0, 0.0, 0.0]]
    for given_values in (conditional, sparse.csr_array(np.array(conditional))):
        scores = Scores.from_conditional(TREE, given_values, ids=["x", "y"])
        assert scores.dense().tolist() == marginal
        assert scores.ids == ("x", "y")
        # Below a node that cannot be, nothing can be.
        assert as_dense(scores.conditional()).tolist() == [conditional[0], [0.0, 1.0, 0.0, 0.0, 0.0]]


@given(with_scores(trees()))
def test_products_and_quotients_agree_with_the_twin(case: tuple[Drawn, Floats]) -> None:
    drawn, values = case
    dense, csr = both(drawn.fast, values)
    products = [Scores.from_conditional(drawn.fast, given_values.values) for given_values in (dense, csr)]
    np.testing.assert_allclose(products[0].dense(), by_rows(drawn, values, slow_product), rtol=1e-6)
    np.testing.assert_array_equal(products[1].dense(), products[0].dense())
    np.testing.assert_allclose(dense.conditional(), by_rows(drawn, values, slow_quotient), rtol=1e-6)
    np.testing.assert_array_equal(as_dense(csr.conditional()), dense.conditional())


@given(with_scores(trees()))
def test_marginal_to_conditional_and_back_is_the_same(case: tuple[Drawn, Floats]) -> None:
    drawn, values = case
    for scores in both(drawn.fast, values):
        coherent = scores.coherent("min")
        back = Scores.from_conditional(drawn.fast, coherent.conditional())
        np.testing.assert_allclose(back.dense(), coherent.dense(), rtol=1e-5)


# Coherence and exhaustiveness


def test_the_worst_child_above_its_parent_is_found() -> None:
    for scores in both(TREE, [[0.5, 0.5, 0.25, 0.25, 0.125], [0.5, 0.5, 0.25, 0.625, 0.75]]):
        assert scores.coherence_gap() == 0.5
        assert not scores.is_coherent()
        assert scores.is_coherent(tolerance=0.5)
        assert scores[:1].coherence_gap() == 0


def test_in_a_dag_the_lowest_parent_counts() -> None:
    for scores in both(DAG, [[0.75, 0.125, 0.5, 0.0, 0.0]]):
        assert scores.coherence_gap() == 0.375


def test_rounding_is_no_incoherence() -> None:
    for scores in both(TREE, [[0.3, 0.5, 0.3 + 5e-7, 0.1, 0.1]]):
        assert 0 < scores.coherence_gap() < 1e-6
        assert scores.is_coherent()


@given(with_scores(hierarchies()))
def test_coherence_gap_agrees_with_the_twin(case: tuple[Drawn, Floats]) -> None:
    drawn, values = case
    expected = max([slow_coherence_gap(drawn.slow, dict(enumerate(row))) for row in values.tolist()] + [0.0])
    for scores in both(drawn.fast, values):
        assert scores.coherence_gap() == expected


def test_children_that_do_not_sum_to_their_parent_are_measured() -> None:
    whole = [0.75, 0.25, 0.5, 0.25, 0.5]
    gaps = {0.0: whole, 0.125: [0.75, 0.25, 0.5, 0.25, 0.375], 0.25: [0.75, 0, 0.5, 0.25, 0.5], 1.0: [0.0] * 5}
    for expected, row in gaps.items():
        for scores in both(TREE, [whole, row]):
            assert scores.exhaustiveness_gap() == expected
            assert scores.is_exhaustive() == (expected == 0)


@given(with_scores(trees()))
def test_exhaustiveness_gap_agrees_with_the_twin(case: tuple[Drawn, Floats]) -> None:
    drawn, values = case
    expected = max([slow_exhaustiveness_gap(drawn.slow, dict(enumerate(row))) for row in values.tolist()] + [0.0])
    for scores in both(drawn.fast, values):
        assert scores.exhaustiveness_gap() == pytest.approx(expected, abs=1e-6)


def test_projections_to_coherence() -> None:
    given_rows = [[0.25, 0.5, 0.125, 0.375, 0.75], [0.0, 0.0, 0.0, 0.0, 0.5]]
    for scores in both(TREE, given_rows, ids=["x", "y"]):
        up, down = scores.coherent("max"), scores.coherent("min")
        assert up.dense().tolist() == [[0.75, 0.5, 0.75, 0.375, 0.75], [0.5, 0.0, 0.5, 0.0, 0.5]]
        assert down.dense().tolist() == [[0.25, 0.5, 0.125, 0.25, 0.125], [0.0] * 5]
        assert up.ids == down.ids == ("x", "y")
        assert up.is_sparse == down.is_sparse == scores.is_sparse
        assert scores.dense().tolist() == given_rows


def test_projections_look_at_all_parents_of_a_dag() -> None:
    for scores in both(DAG, [[0.5, 0.25, 0.375, 0.75, 0.125]]):
        assert scores.coherent("max").dense().tolist() == [[0.75, 0.75, 0.75, 0.75, 0.125]]
        assert scores.coherent("min").dense().tolist() == [[0.5, 0.25, 0.25, 0.25, 0.125]]


@given(with_scores(hierarchies()))
def test_projections_agree_with_the_twin(case: tuple[Drawn, Floats]) -> None:
    drawn, values = case
    up, down = by_rows(drawn, values, slow_max), by_rows(drawn, values, slow_min)
    for scores in both(drawn.fast, values):
        np.testing.assert_array_equal(scores.coherent("max").dense(), up)
        np.testing.assert_array_equal(scores.coherent("min").dense(), down)
        for projected in (scores.coherent("max"), scores.coherent("min")):
            assert projected.coherence_gap() == 0
            # Nothing that is 0 is stored.
            assert projected.csr().nnz == np.count_nonzero(projected.dense())


# The largest


def test_ties_go_to_lower_ids_and_zeros_are_never_kept() -> None:
    for scores in both(TREE, [[0.25, 0.5, 0.25, 0.25, 0.0], [0.0, 0.0, 0.0, 0.0, 0.5]], ids=["x", "y"]):
        for count, first in {
            1: [1],
            2: [0, 1],
            3: [0, 1, 2],
            4: [0, 1, 2, 3],
            5: [0, 1, 2, 3],
            99: [0, 1, 2, 3],
        }.items():
            top = scores.top_k(count)
            assert top.is_sparse
            assert top.values.indptr.tolist() == [0, len(first), len(first) + 1]
            assert top.values.indices.tolist() == [*first, 4]
            assert top.ids == ("x", "y")
            assert top.values.data.tolist() == [scores.dense()[0, node] for node in first] + [0.5]


@given(with_scores(hierarchies()), st.integers(1, 16))
def test_top_k_agrees_with_the_twin(case: tuple[Drawn, Floats], count: int) -> None:
    drawn, values = case
    expected = by_rows(drawn, values, lambda slow, row: slow_top(slow, row, count))
    for scores in both(drawn.fast, values):
        top = scores.top_k(count)
        np.testing.assert_array_equal(top.dense(), expected)
        assert top.values.nnz == np.count_nonzero(expected)


@given(with_scores(hierarchies()), st.integers(1, 16), st.sampled_from(["max", "min"]))
def test_the_top_of_coherent_scores_is_closed_and_coherent(case: tuple[Drawn, Floats], count: int, how: Any) -> None:
    drawn, values = case
    for scores in both(drawn.fast, values):
        top = scores.coherent(how).top_k(count)
        for row in range(len(top)):
            kept = set(top.values.indices[top.values.indptr[row] : top.values.indptr[row + 1]].tolist())
            assert drawn.slow.closure(kept) == kept
        assert top.coherence_gap() == 0


# Selecting


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (slice(1, 3), "bc"),
        (slice(None, None, -2), "ca"),
        (slice(5, 9), ""),
        (1, "b"),
        (-1, "c"),
        ([2, 0, 2], "cac"),
        ((0, 1), "ab"),
        ([True, False, True], "ac"),
        (np.array([False, False, False]), ""),
        ([], ""),
    ],
)
def test_rows_are_selected_with_their_ids(rows: Any, expected: str) -> None:
    values = [[0.5, 0, 0, 0.25, 0], [0, 0, 0, 0, 0], [0, 1, 0, 0, 0]]
    for scores in both(TREE, values, ids=list("abc")):
        picked = scores[rows]
        assert picked.ids == tuple(expected)
        assert picked.dense().tolist() == [values["abc".index(name)] for name in expected]
        assert picked.is_sparse == scores.is_sparse


def test_rows_that_are_not_there_are_refused() -> None:
    for scores in both(TREE, np.zeros((2, 5))):
        for rows in (2, [0, -3], [True], [True, False, True]):
            with pytest.raises(IndexError):
                scores[rows]


# Other hierarchies


def by_name(scores: Scores) -> dict[str, float]:
    return dict(zip(scores.hierarchy.names, scores.dense()[0].tolist(), strict=True))


def test_scores_go_through_a_cut_and_back() -> None:
    change = TREE.cut(2)
    for scores in both(TREE, [[0.75, 0.25, 0.5, 0.125, 0.375]], ids=["x"]):
        moved = scores.move(change)
        assert moved.hierarchy is change.new
        assert by_name(moved) == {"A": 0.75, "E": 0.25, "B": 0.5, "D": 0.125}
        back = moved.move_back(change)
        assert by_name(back) == {"A": 0.75, "E": 0.25, "B": 0.5, "D": 0.125, "C": 0.0}
        assert back.ids == moved.ids == ("x",)
        assert back.is_sparse == moved.is_sparse == scores.is_sparse


def test_scores_go_to_all_copies_of_an_unfolded_node_and_the_largest_comes_back() -> None:
    change = DAG.unfold()
    for scores in both(DAG, [[0.5, 0.75, 0.5, 0.25, 0.0]]):
        moved = scores.move(change)
        assert [by_name(moved)[name] for name in ("X [A]", "X [B]", "Y [X [A]]", "Y [X [B]]")] == [0.5, 0.5, 0.25, 0.25]
        values = moved.dense().copy()
        values[0, change.new.names.index("X [B]")] = 0.625
        back = Scores(change.new, values if not moved.is_sparse else sparse.csr_array(values)).move_back(change)
        assert by_name(back) == {"A": 0.5, "B": 0.75, "X": 0.625, "Y": 0.25, "Z": 0.0}


def test_other_leaves_take_what_their_siblings_leave_of_the_parent() -> None:
    change = TREE.with_other_leaves([0, 2])
    for scores in both(TREE, [[0.75, 0.25, 0.25, 0.125, 0.5]]):
        moved = scores.move(change)
        # A has 0.75 - 0.25 - 0.125 left, B has less than its child.
        assert by_name(moved) == {
            "A": 0.75, "E": 0.25, "B": 0.25, "D": 0.125, "other [A]": 0.375, "C": 0.5, "other [B]": 0.0
        }  # fmt: skip
        assert by_name(moved.move_back(change)) == by_name(scores)


def test_collapsed_chains_get_the_score_of_their_end_back() -> None:
    change = TREE.collapse_chains()
    assert change.new.names == ("A", "E", "C", "D")
    for scores in both(TREE, [[0.75, 0.25, 0.5, 0.125, 0.375]]):
        moved = scores.move(change)
        assert by_name(moved) == {"A": 0.75, "E": 0.25, "C": 0.375, "D": 0.125}
        assert by_name(moved.move_back(change)) == {"A": 0.75, "E": 0.25, "B": 0.375, "D": 0.125, "C": 0.375}


def slow_moved(change: Change, slow: SlowHierarchy, values: Floats) -> Floats:
    """Every new node takes the score of its origin; an "other" leaf what the origin's children leave of it."""
    moved = values[:, change.origin]
    for node in np.flatnonzero(change.new.is_leaf & ~change.old.is_leaf[change.origin]).tolist():
        origin = int(change.origin[node])
        if change.new.names[node] == f"other [{change.old.names[origin]}]":
            below = values[:, sorted(slow.children[origin])].sum(axis=1)
            moved[:, node] = np.maximum(values[:, origin] - below, 0)
    return moved


def slow_moved_back(change: Change, moved: Floats) -> Floats:
    back = np.zeros((len(moved), len(change.old)), np.float32)
    for node, origin in enumerate(change.origin.tolist()):
        back[:, origin] = np.maximum(back[:, origin], moved[:, node])
    return back


@given(with_scores(hierarchies()), st.data())
def test_scores_through_changes_agree_with_the_twin(case: tuple[Drawn, Floats], data: st.DataObject) -> None:
    drawn, values = case
    h, ids = drawn.fast, st.integers(0, len(drawn) - 1)
    cut, prune = h.cut(data.draw(st.integers(1, h.max_depth))), h.prune(data.draw(st.lists(ids, min_size=1)))
    other = h.with_other_leaves(np.array(data.draw(st.lists(ids)), int))
    for change in (cut, prune, other, h.unfold(), h.collapse_chains()):
        expected = slow_moved(change, drawn.slow, values)
        expected_back = slow_moved_back(change, expected)
        if isinstance(change, CollapsedChains):
            # Every node of a chain takes the score of its end.
            expected_back = expected[:, change.forward.indices]
        for scores in both(h, values):
            moved = scores.move(change)
            np.testing.assert_array_equal(moved.dense(), expected)
            np.testing.assert_array_equal(moved.move_back(change).dense(), expected_back)
            assert moved.is_sparse == moved.move_back(change).is_sparse == scores.is_sparse


@given(with_scores(dags()))
def test_unfolding_and_folding_again_changes_nothing(case: tuple[Drawn, Floats]) -> None:
    drawn, values = case
    change = drawn.fast.unfold()
    for scores in both(drawn.fast, values):
        moved = scores.move(change)
        np.testing.assert_array_equal(moved.dense(), values[:, change.origin])
        np.testing.assert_array_equal(moved.move_back(change).dense(), values)


@given(leaf_scores())
def test_other_leaves_get_nothing_where_children_sum_to_their_parent(case: tuple[Drawn, Floats]) -> None:
    drawn, values = case
    change = drawn.fast.with_other_leaves(np.arange(len(drawn)))
    others = np.flatnonzero(change.new.is_leaf & ~drawn.fast.is_leaf[change.origin])
    for wrap in (np.array, sparse.csr_array):
        scores = Scores.from_leaves(drawn.fast, drawn.fast.leaves, wrap(values))
        moved = scores.move(change)
        assert not moved.dense()[:, others].any()
        np.testing.assert_array_equal(moved.move_back(change).dense(), scores.dense())


def test_a_change_of_another_hierarchy_is_refused() -> None:
    scores = Scores(TREE, np.zeros((1, 5)))
    with pytest.raises(TreelabelError, match="the change belongs to another hierarchy"):
        scores.move(DAG.unfold())
    with pytest.raises(TreelabelError, match="the change belongs to another hierarchy"):
        scores.move_back(TREE.cut(1))


# The form


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.float16, np.int8, np.bool_, np.dtype(">f8")])
def test_double_precision_is_kept_and_all_else_is_single(kind: Any) -> None:
    given_values = np.array([[1, 0, 1, 0, 0]], kind)
    kept = np.float64 if given_values.dtype.itemsize == 8 else np.float32
    assert Scores(TREE, given_values).dtype == kept
    quarter = np.array(0.25, kind) if given_values.dtype.kind == "f" else np.array(1, kind)
    assert Scores.from_leaves(TREE, ["C", "D", "E"], given_values[:, :3] * quarter).dtype == kept
    # scipy knows neither halves nor foreign byte orders.
    if given_values.dtype.kind != "f" or kind in (np.float32, np.float64):
        csr = Scores(TREE, sparse.csr_array(given_values))
        assert csr.dtype == kept
        assert csr.top_k(1).dtype == csr.coherent().dtype == csr.csr().dtype == kept
        assert Scores.from_leaves(TREE, ["C", "D", "E"], sparse.csr_array(given_values[:, :3] * quarter)).dtype == kept


@pytest.mark.parametrize("as_csr", [False, True])
def test_every_operation_keeps_double_precision(as_csr: bool) -> None:
    values = np.array([[0.5, 0.5 - 1e-12, 0.25 + 1e-12, 0.25, 0.125]])
    scores = Scores(TREE, sparse.csr_array(values) if as_csr else values)
    assert np.array_equal(scores.dense(), values)
    made = [scores[:1], scores.coherent("min"), scores.coherent("max"), scores.top_k(3), scores.move(TREE.cut(1))]
    assert all(each.dtype == np.float64 for each in made)
    assert scores.conditional().dtype == np.float64
    assert scores.top_k(2).csr().data.tolist() == [0.5, 0.5 - 1e-12]


def test_joined_scores_have_the_wider_precision() -> None:
    single, double, whole = np.full((1, 5), 0.5, np.float32), np.full((1, 5), 0.1), np.ones((1, 5), np.int64)
    assert Scores.concat(TREE, [single, whole]).dtype == np.float32
    assert Scores.concat(TREE, [single, double]).dtype == np.float64
    assert Scores.concat(TREE, [sparse.csr_array(single), double]).dtype == np.float64
    assert Scores.concat(TREE, []).values.shape == (0, 5)


@pytest.mark.parametrize("as_csr", [False, True])
@pytest.mark.parametrize("ending", ["npz", "parquet"])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_files_keep_the_precision(tmp_path: Path, ending: str, kind: Any, as_csr: bool) -> None:
    values = np.array([[1, 1 / 3, 0, 1e-9, 0]], kind)
    scores = Scores(TREE, sparse.csr_array(values) if as_csr else values)
    scores.save(tmp_path / f"scores.{ending}")
    found = Scores.load(tmp_path / f"scores.{ending}")
    assert found.dtype == kind
    assert np.array_equal(found.dense(), values)


@pytest.mark.parametrize("make", [sparse.coo_array, sparse.csc_array, sparse.csr_matrix, sparse.lil_array])
def test_any_sparse_matrix_becomes_csr(make: Any) -> None:
    values = np.array([[0.5, 0, 0.25, 0, 0], [0, 0, 0, 0, 0.125]], np.float32)
    scores = Scores(TREE, make(values))
    assert isinstance(scores.values, sparse.csr_array)
    np.testing.assert_array_equal(scores.dense(), values)


def test_csr_is_sorted_summed_and_free_of_zeros_and_the_given_one_stays_as_it_was() -> None:
    data, indices, indptr = [0.25, 0.0, 0.5, 0.25], [4, 3, 1, 4], [0, 4]
    untidy = sparse.csr_array((np.array(data), np.array(indices), np.array(indptr)), (1, 5))
    scores = Scores(TREE, untidy)
    assert scores.values.indices.tolist() == [1, 4]
    assert scores.values.data.tolist() == [0.5, 0.5]
    assert scores.csr().nnz == 2
    assert (untidy.data.tolist(), untidy.indices.tolist()) == (data, indices)


def test_long_indices_work_everywhere() -> None:
    # scipy makes 64-bit indices by default, and fails on a matrix that mixes both kinds.
    values = sparse.csr_array(np.array([[0.5, 0.25, 0.5, 0.25, 0.125]] * 3, np.float32))
    values.indices, values.indptr = values.indices.astype(np.int64), values.indptr.astype(np.int64)
    scores = Scores(TREE, values)
    assert scores.values.indices.dtype == scores.values.indptr.dtype == np.int32
    assert scores[::2].top_k(2).dense().tolist() == [[0.5, 0, 0.5, 0, 0]] * 2
    assert scores.coherent("min").coherence_gap() == 0


def test_rounding_beyond_0_and_1_is_clipped() -> None:
    given_values = np.array([[1 + 5e-5, -5e-5, 0.5, 0.25, 1]], np.float32)
    for scores in (Scores(TREE, given_values), Scores(TREE, sparse.csr_array(given_values))):
        assert scores.dense().tolist() == [[1.0, 0.0, 0.5, 0.25, 1.0]]
        assert scores.csr().nnz == 4
    assert given_values[0, 0] > 1


def test_text_of_scores_says_what_they_are() -> None:
    dense, csr = both(TREE, [[0.5, 0, 0, 0, 0]] * 1200)
    assert repr(dense) == "Scores(1,200 documents x 5 nodes, dense)"
    assert repr(csr) == "Scores(1,200 documents x 5 nodes, CSR, 1,200 stored)"


def test_threads_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    values = rng.random((9000, 5), np.float32) * (rng.random((9000, 5)) < 0.6)
    operations: list[Callable[[Scores], Any]] = [
        lambda scores: scores.coherent("max").values,
        lambda scores: scores.coherent("min").values,
        lambda scores: scores.top_k(2).values,
        lambda scores: np.array(scores.coherence_gap()),
    ]
    for operation in operations:
        results = []
        for threads in ("1", "3"):
            monkeypatch.setenv("TREELABEL_THREADS", threads)
            results += [as_dense(operation(scores)) for scores in both(DAG, values)]
        for result in results[1:]:
            np.testing.assert_array_equal(result, results[0])


# No documents


@pytest.mark.parametrize("scores", both(TREE, np.zeros((0, 5)), ids=[]), ids=["dense", "csr"])
def test_everything_works_without_documents(scores: Scores, tmp_path: Path) -> None:
    assert len(scores) == 0
    assert (scores.coherence_gap(), scores.exhaustiveness_gap()) == (0, 0)
    assert scores.is_coherent()
    assert scores.is_exhaustive()
    assert scores.conditional().shape == scores.dense().shape == scores.csr().shape == (0, 5)
    made = [scores.coherent("max"), scores.coherent("min"), scores.top_k(3), scores[:5], scores[[]], scores[[True][:0]]]
    assert [result.values.shape for result in made] == [(0, 5)] * 6
    assert [result.ids for result in made] == [()] * 6
    for change in (TREE.cut(1), TREE.unfold(), TREE.with_other_leaves([0]), TREE.collapse_chains(), TREE.prune([1])):
        moved = scores.move(change)
        assert moved.values.shape == (0, len(change.new))
        assert moved.move_back(change).values.shape == (0, 5)
    for name in ("s.npz", "s.parquet"):
        for kept in (scores, Scores(TREE, scores.values)):
            kept.save(tmp_path / name)
            assert same_bits(Scores.load(tmp_path / name), kept)
    none = scores.values[:, :3]
    assert Scores.from_leaves(TREE, ["C", "D", "E"], none).values.shape == (0, 5)
    assert Scores.from_conditional(TREE, scores.values).values.shape == (0, 5)


# What is refused

NOT_A_PROBABILITY = "is not a probability in [0, 1]; turn raw outputs into probabilities first (softmax or sigmoid)"


@pytest.mark.parametrize(("wrong", "shown"), [(np.nan, "nan"), (-0.5, "-0.5"), (3.25, "3.25"), (np.inf, "inf")])
def test_what_is_no_probability_is_refused_with_its_place(wrong: float, shown: str) -> None:
    values = np.array([[0.5, 0, 0, 0.25, 0], [0, 0.5, 0, wrong, 0.5]])
    for given_values in (values, sparse.csr_array(values)):
        with pytest.raises(TreelabelError) as error:
            Scores(TREE, given_values)
        assert str(error.value) == f"row 1, 'D': score {shown} {NOT_A_PROBABILITY}"
        with pytest.raises(TreelabelError, match="is not a probability"):
            Scores.from_conditional(TREE, given_values)
    with pytest.raises(TreelabelError, match="is not a probability"):
        Scores.from_leaves(TREE, ["C", "D"], [[0.5, wrong]])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.zeros(5), r"scores of shape \(5,\), expected documents x 5 nodes"),
        (np.zeros((2, 4)), r"scores of shape \(2, 4\), expected documents x 5 nodes"),
        (sparse.csr_array((2, 6)), r"scores of shape \(2, 6\)"),
        (np.zeros((1, 5, 1)), "scores of shape"),
        ([["a"] * 5], "scores of type <U1, expected numbers"),
        (np.zeros((1, 5), complex), "scores of type complex128, expected numbers"),
        ([[0.5], [0.5, 0.5]], "scores are no matrix"),
        (sparse.csr_array(([0.5], [7], [0, 1]), (1, 5)), "no valid CSR matrix: column 7 in row 0, but there are 5"),
        (sparse.csr_array(([0.5], [-1], [0, 1]), (1, 5)), "no valid CSR matrix: column -1 in row 0, but there are 5"),
    ],
)
def test_what_is_no_matrix_of_scores_is_refused(values: Any, message: str) -> None:
    with pytest.raises(TreelabelError, match=message):
        Scores(TREE, values)


@pytest.mark.parametrize(
    ("leaves", "values", "message"),
    [
        (["A", "D"], [[0.5, 0.5]], "expected the scores of distinct leaves, but not leaves: 'A'"),
        (["C", "A > B > C"], [[0.5, 0.5]], "expected the scores of distinct leaves, but one leaf stands for two"),
        (["C", "Q"], [[0.5, 0.5]], "unknown label 'Q'"),
        ([-1], [[0.5]], "node id -1 is out of range: the hierarchy has ids 0 to 4"),
        ([5], [[0.5]], "node id 5 is out of range"),
        (["C"], [[0.5, 0.5]], r"1 leaves for \(1, 2\) values; expected one column per leaf"),
        (["C", "D"], [0.5, 0.5], r"2 leaves for \(2,\) values"),
        (["C", "D"], sparse.csr_array((1, 3)), r"2 leaves for \(1, 3\) values"),
        (["C"], [["x"]], "expected numbers"),
        (["C", "D"], [[0.75, 0.75]], "row 0, 'A': score 1.5 is not a probability"),
    ],
)
def test_wrong_leaves_are_refused(leaves: Any, values: Any, message: str) -> None:
    with pytest.raises(TreelabelError, match=message):
        Scores.from_leaves(TREE, leaves, values)


@pytest.mark.parametrize(
    ("ids", "message"),
    [(["a"], "1 ids for 2 rows of scores"), (["a", 2], "row 1: expected an id that is text, found 2")],
)
def test_wrong_ids_are_refused(ids: Any, message: str) -> None:
    with pytest.raises(TreelabelError, match=message):
        Scores(TREE, np.zeros((2, 5)), ids)


def test_what_needs_a_tree_refuses_a_dag() -> None:
    for scores in both(DAG, np.zeros((1, 5))):
        for operation in (
            scores.conditional,
            scores.exhaustiveness_gap,
            lambda scores=scores: Scores.from_conditional(DAG, scores.values),
        ):
            with pytest.raises(TreelabelError, match=r"needs a tree, but the hierarchy is a DAG: 'X' has 2 parents"):
                operation()


def test_unknown_choices_are_refused() -> None:
    scores = Scores(TREE, np.zeros((1, 5)))
    with pytest.raises(TreelabelError, match="unknown projection 'mean'; expected 'max' or 'min'"):
        scores.coherent("mean")  # type: ignore[arg-type]
    with pytest.raises(TreelabelError, match="at least 1 score per document, found 0"):
        scores.top_k(0)


# Files

ENDINGS = ["npz", "parquet"]


@pytest.fixture(params=ENDINGS)
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tmp_path / f"scores.{request.param}"


def odd_scores(hierarchy: Hierarchy, rows: int) -> list[Scores]:
    rng = np.random.default_rng(1)
    values = rng.random((rows, len(hierarchy)), np.float32) * (rng.random((rows, len(hierarchy))) < 0.5)
    values[0, :3] = [1e-45, 1, np.nextafter(np.float32(1), np.float32(0))]
    values[-1] = 0
    return both(hierarchy, values, ids=[f"dok {row}\n\tü😀" for row in range(rows)])


@pytest.mark.parametrize(
    "hierarchy",
    [TREE, DAG, Hierarchy.from_paths(["A > Other", "ü\t😀 > Other", 'q"uote > \\back'])],
    ids=["tree", "dag", "same and odd names"],
)
def test_files_keep_every_bit(hierarchy: Hierarchy, file: Path) -> None:
    for scores in odd_scores(hierarchy, 40):
        for kept in (scores, Scores(hierarchy, scores.values)):
            kept.save(file)
            loaded = Scores.load(file)
            assert same_bits(loaded, kept)
            assert loaded.hierarchy.paths() == hierarchy.paths()
            assert same_bits(Scores.load(str(file), hierarchy), kept)


def test_files_of_many_batches_keep_every_bit(file: Path) -> None:
    for scores in odd_scores(TREE, 2 * score_files.ROWS + 5):
        scores.save(file)
        assert same_bits(Scores.load(file), scores)


@given(with_scores(hierarchies()))
@examples(15)
def test_any_scores_survive_a_file(tmp_path_factory: pytest.TempPathFactory, case: tuple[Drawn, Floats]) -> None:
    drawn, values = case
    folder = tmp_path_factory.mktemp("scores")
    for scores in both(drawn.fast, values):
        for ending in ENDINGS:
            scores.save(folder / f"s.{ending}")
            assert same_bits(Scores.load(folder / f"s.{ending}", drawn.fast), scores)


def test_a_folder_that_looks_like_a_partition_changes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "id=7"
    folder.mkdir()
    scores = odd_scores(TREE, 3)[0]
    scores.save(folder / "s.parquet")
    assert same_bits(Scores.load(folder / "s.parquet"), scores)


@pytest.mark.slow
def test_a_hierarchy_larger_than_the_usual_limit_of_parquet_metadata_survives(tmp_path: Path) -> None:
    # Parquet readers refuse texts beyond 100 MB unless told otherwise; a few million product names are more.
    names = [f"{at} {'long ' * 6000}" for at in range(2600)]
    scores = Scores(Hierarchy.flat(names), sparse.csr_array(([0.5], ([0], [7])), (1, len(names))))
    scores.save(tmp_path / "s.parquet")
    assert same_bits(Scores.load(tmp_path / "s.parquet"), scores)


def test_scores_of_another_hierarchy_are_refused(file: Path) -> None:
    Scores(TREE, np.zeros((1, 5))).save(file)
    renamed = Hierarchy.from_paths(["A > B > C", "A > D", "F"])
    with pytest.raises(TreelabelError, match=rf"{file.name} belongs to another hierarchy \(fingerprint"):
        Scores.load(file, renamed)


@pytest.mark.parametrize("is_sparse", [False, True])
def test_truncated_files_are_refused(file: Path, is_sparse: bool) -> None:
    odd_scores(TREE, 30)[is_sparse].save(file)
    whole = file.read_bytes()
    for size in range(0, len(whole), len(whole) // 40):
        file.write_bytes(whole[:size])
        with pytest.raises(TreelabelError, match="not a score file of treelabel, or damaged") as error:
            Scores.load(file)
        assert str(error.value).startswith(f"{file}: ")


def test_flipped_bytes_are_refused_or_harmless(tmp_path: Path) -> None:
    file = tmp_path / "s.npz"
    scores = odd_scores(TREE, 30)[1]
    scores.save(file)
    whole = file.read_bytes()
    refused = 0
    for at in range(0, len(whole), 7):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        try:
            assert same_bits(Scores.load(file), scores), at
        except TreelabelError:
            refused += 1
    assert refused > len(whole) / 7 / 2


def test_foreign_files_are_refused(tmp_path: Path) -> None:
    array, archive, table = tmp_path / "array.npz", tmp_path / "archive.npz", tmp_path / "table.parquet"
    with array.open("wb") as stream:
        np.save(stream, np.zeros(3))
    np.savez(archive, other=np.zeros(3))
    pq.write_table(pa.table({"id": ["a"], "scores": [[0.5]]}), table)
    for file in (array, archive):
        with pytest.raises(TreelabelError, match=f"{file.name}: not a score file of treelabel, or damaged"):
            Scores.load(file)
    with pytest.raises(TreelabelError, match="a Parquet file, but not one with scores of treelabel"):
        Scores.load(table)
    for file in (array, table):
        other = file.with_suffix(".parquet" if file.suffix == ".npz" else ".npz")
        file.rename(other)
        with pytest.raises(TreelabelError, match="not a score file of treelabel, or damaged"):
            Scores.load(other)


def test_files_of_a_newer_version_are_refused(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(score_writer, "VERSION", 2)
    Scores(TREE, np.zeros((1, 5))).save(file)
    monkeypatch.undo()
    with pytest.raises(TreelabelError) as error:
        Scores.load(file)
    assert str(error.value) == f"{file}: scores stored in version 2, this treelabel reads version 1"


def rewritten(file: Path, changed: dict[str, Any]) -> None:
    with np.load(file) as stored:
        arrays = dict(stored)
    np.savez(file, **(arrays | changed))


def test_a_hierarchy_that_was_tampered_with_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "s.npz"
    Scores(TREE, np.zeros((1, 5))).save(file)
    with np.load(file) as stored:
        text = bytes(stored["hierarchy"]).decode()
    for changed, message in (
        (text.replace('"E"', '"F"'), "the stored hierarchy is damaged"),
        (text.replace('"treelabel_hierarchy": 1', '"treelabel_hierarchy": 9'), "hierarchy stored in version 9"),
        (json.dumps([1, 2]), "the stored hierarchy is damaged"),
    ):
        rewritten(file, {"hierarchy": np.frombuffer(changed.encode(), np.uint8)})
        with pytest.raises(TreelabelError, match=message):
            Scores.load(file)


@pytest.mark.parametrize(
    "changed", [{"indices": np.array([9])}, {"indptr": np.array([0, 5])}, {"data": np.array([2.0])}]
)
def test_stored_scores_are_checked_like_given_ones(tmp_path: Path, changed: dict[str, Any]) -> None:
    file = tmp_path / "s.npz"
    Scores(TREE, sparse.csr_array(([0.5], ([0], [2])), (1, 5))).save(file)
    rewritten(file, changed)
    with pytest.raises(TreelabelError):
        Scores.load(file)


class Bomb:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def test_nothing_in_a_file_is_ever_unpickled(tmp_path: Path) -> None:
    file, mark = tmp_path / "s.npz", tmp_path / "exploded"
    Scores(TREE, np.zeros((1, 5))).save(file)
    with zipfile.ZipFile(file) as archive:
        assert all(b"pickle" not in archive.read(name) for name in archive.namelist())
    for key in ("treelabel_scores", "hierarchy", "ids", "values"):
        Scores(TREE, np.zeros((1, 5))).save(file)
        rewritten(file, {key: np.array([Bomb(mark)], object)})
        mark.unlink(missing_ok=True)
        with pytest.raises(TreelabelError, match="damaged"):
            Scores.load(file)
        assert not mark.exists()


@pytest.mark.parametrize("interruption", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_file_appears_whole_or_not_at_all(
    file: Path, interruption: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Scores(TREE, np.zeros((1, 5)), ("kept",))
    kept.save(file)

    def half_written(path: Path, *_: object) -> None:
        path.write_bytes(b"half")
        raise interruption

    monkeypatch.setattr(score_writer, "_write_npz", half_written)
    monkeypatch.setattr(score_writer, "_write_parquet", half_written)
    with pytest.raises(TreelabelError if isinstance(interruption, OSError) else type(interruption)):
        Scores(TREE, np.ones((9, 5))).save(file)
    assert [path.name for path in file.parent.iterdir()] == [file.name]
    assert same_bits(Scores.load(file), kept)


def test_names_of_score_files_are_checked(tmp_path: Path) -> None:
    scores = Scores(TREE, np.zeros((1, 5)))
    for name in ("s.csv", "s", "s.npz.gz", "s.parquet.zst"):
        with pytest.raises(TreelabelError, match=r"scores are stored as \.npz or \.parquet"):
            scores.save(tmp_path / name)
    with pytest.raises(TreelabelError, match="does not exist; make it first"):
        scores.save(tmp_path / "no" / "s.npz")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(TreelabelError, match=r"s\.npz: no such file"):
        Scores.load(tmp_path / "s.npz")
    with pytest.raises(TreelabelError, match="is a folder, expected a file"):
        Scores.load(tmp_path)
    (tmp_path / "s.csv").touch()
    with pytest.raises(TreelabelError, match=r"scores are stored as \.npz or \.parquet"):
        Scores.load(tmp_path / "s.csv")


# Size

LARGE = """
import sys
import numpy as np
from pathlib import Path
from scipy import sparse
from treelabel.hierarchy import Hierarchy
from treelabel.scores import Scores

def memory(what):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(what + ":")) * 1024

before = memory("VmRSS")
documents, labels, stored = 100_000, 1_000_000, 20
rng = np.random.default_rng(0)
step = labels // stored
nodes = (rng.integers(0, step, (documents, stored)) + np.arange(stored) * step).ravel()
values = sparse.csr_array(
    (rng.random(len(nodes), np.float32), nodes, np.arange(documents + 1) * stored), (documents, labels)
)
h = Hierarchy.flat(map(str, range(labels)))
scores = Scores(h, values)
made = [scores.top_k(10), scores.coherent("max"), scores.coherent("min"), scores[::2], scores.move(h.cut(1))]
made.append(Scores.from_leaves(h, h.leaves, values))
assert all(result.is_sparse for result in made)
assert scores.coherence_gap() == 0 and scores.exhaustiveness_gap() > 1
assert scores.conditional().nnz == values.nnz
for ending in ("npz", "parquet"):
    file = Path(sys.argv[1], f"large.{ending}")
    scores.save(file)
    loaded = Scores.load(file, h)
    assert (loaded.values != scores.values).nnz == 0
print(memory("VmHWM") - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads its own memory from Linux's /proc")
@pytest.mark.slow
def test_a_hundred_thousand_documents_and_a_million_labels_fit_in_2_gb(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LARGE, str(tmp_path)], check=True, capture_output=True, text=True, timeout=300
    )
    assert int(done.stdout) < 2 << 30


def test_a_label_matrix_is_no_score_matrix_of_another_width() -> None:
    with pytest.raises(TreelabelError, match="expected documents x 5 nodes"):
        Scores(TREE, label_matrix([0, 1], [2], 4))


@pytest.mark.parametrize("count", [1, 20, 64, 65, 150, 300])
@pytest.mark.parametrize("levels", [3, 1000])
def test_few_and_many_of_the_largest_are_found(count: int, levels: int) -> None:
    values = (np.random.default_rng(0).integers(0, levels, (20, 200)) / levels).astype(np.float32)
    h = Hierarchy.flat([str(at) for at in range(200)])
    kept = Scores(h, values).top_k(count)
    for row in range(len(values)):
        best = np.argsort(-values[row], kind="stable")[:count]
        assert sorted(best[values[row][best] > 0].tolist()) == kept.values[[row]].indices.tolist()
