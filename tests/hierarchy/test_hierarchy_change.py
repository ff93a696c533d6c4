"""Hierarchies made of hierarchies: their structure, and labels and scores carried there and back."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from tests.reference import ROOT, matrix_of, sets_of
from tests.strategies import Drawn, dags, hierarchies, trees, with_labels, with_scores
from treelabel.core.errors import TreelabelError
from treelabel.hierarchy import Change, Hierarchy

Labelled = tuple[Drawn, list[set[int]]]
Scored = tuple[Drawn, npt.NDArray[np.float32]]


def moved(change: Change, rows: list[set[int]]) -> list[set[int]]:
    return sets_of(change.labels(matrix_of(rows, len(change.old))), len(change.new))


def moved_back(change: Change, rows: list[set[int]]) -> list[set[int]]:
    return [origins(change, row) for row in rows]


def closed(hierarchy: Hierarchy, rows: list[set[int]]) -> list[set[int]]:
    return sets_of(hierarchy.closure(matrix_of(rows, len(hierarchy))), len(hierarchy))


def origins(change: Change, nodes: set[int]) -> set[int]:
    return {int(change.origin[node]) for node in nodes}


def both_ways(change: Change, scores: npt.NDArray[np.float32], back: bool = False) -> npt.NDArray[np.float32]:
    """Carry scores as an array and as CSR, check that both agree and keep their form, and give the array."""
    carry = change.scores_back if back else change.scores
    given_csr = sparse.csr_array(scores)
    dense, csr = carry(scores), carry(given_csr)
    assert isinstance(dense, np.ndarray)
    assert isinstance(csr, sparse.csr_array)
    assert dense.dtype == csr.dtype == np.float32
    assert dense.flags.c_contiguous
    assert csr.indices.dtype == given_csr.indices.dtype == np.int32
    assert csr.has_canonical_format
    assert np.array_equal(csr.toarray(), dense)
    assert np.array_equal(given_csr.toarray(), scores)
    return dense


def parents_by_origin(change: Change) -> dict[int, set[int]]:
    """The parents of each new node, all written as old nodes."""
    new = change.new
    return {
        int(change.origin[node]): {
            ROOT if above < 0 else int(change.origin[above])
            for above in new.parent_idx[new.parent_ptr[node] : new.parent_ptr[node + 1]].tolist()
        }
        for node in range(len(new))
    }


# Cut and prune: both keep some nodes together with all their ancestors


@st.composite
def kept(draw: st.DrawFn) -> tuple[Change, Drawn, set[int], list[set[int]]]:
    """Draw a cut or pruned hierarchy, the nodes that stay, and label rows."""
    drawn, rows = draw(with_labels(hierarchies()))
    if draw(st.booleans()):
        depth = draw(st.integers(1, drawn.fast.max_depth + 1))
        stay = {node for node in range(len(drawn)) if drawn.slow.longest_depth(node) <= depth}
        return drawn.fast.cut(depth), drawn, stay, rows
    wanted = draw(st.lists(st.integers(0, len(drawn) - 1), min_size=1, max_size=4))
    return drawn.fast.prune(wanted), drawn, drawn.slow.closure(wanted), rows


@given(kept())
def test_cut_and_prune_keep_nodes_names_and_edges(case: tuple[Change, Drawn, set[int], list[set[int]]]) -> None:
    change, drawn, stay, _ = case
    assert change.old is drawn.fast
    assert set(change.origin.tolist()) == stay
    assert len(change.new) == len(stay)
    assert change.new.names == tuple(drawn.fast.names[node] for node in change.origin.tolist())
    assert parents_by_origin(change) == {node: drawn.slow.parents[node] for node in stay}


@given(kept())
def test_cut_and_prune_move_labels_to_their_nearest_kept_ancestors(
    case: tuple[Change, Drawn, set[int], list[set[int]]],
) -> None:
    change, drawn, stay, rows = case
    nearest = [
        set().union(*(drawn.slow.most_specific(drawn.slow.closure([label]) & stay) for label in row)) for row in rows
    ]
    assert [origins(change, row) for row in moved(change, rows)] == nearest
    assert moved_back(change, moved(change, rows)) == nearest


@given(kept())
def test_cut_and_prune_leave_kept_labels_alone(case: tuple[Change, Drawn, set[int], list[set[int]]]) -> None:
    change, _, stay, rows = case
    staying = [row & stay for row in rows]
    assert moved_back(change, moved(change, staying)) == staying


@given(kept())
def test_closure_commutes_with_cut_and_prune(case: tuple[Change, Drawn, set[int], list[set[int]]]) -> None:
    change, drawn, stay, rows = case
    first = closed(change.new, moved(change, rows))
    assert first == moved(change, closed(change.old, rows))
    assert moved_back(change, first) == [drawn.slow.closure(row) & stay for row in rows]


@given(with_scores(hierarchies()), st.data())
def test_cut_and_prune_keep_the_scores_of_kept_nodes(case: Scored, data: st.DataObject) -> None:
    drawn, scores = case
    node = data.draw(st.integers(0, len(drawn) - 1))
    for change in (drawn.fast.cut(data.draw(st.integers(1, 4))), drawn.fast.prune(node)):
        there = both_ways(change, scores)
        assert np.array_equal(there, scores[:, change.origin])
        stays = np.isin(np.arange(len(drawn)), change.origin)
        assert np.array_equal(both_ways(change, there, back=True), np.where(stays, scores, 0))


@given(hierarchies())
def test_a_cut_below_everything_and_pruning_nothing_change_nothing(drawn: Drawn) -> None:
    for change in (drawn.fast.cut(drawn.fast.max_depth), drawn.fast.prune(drawn.fast.leaves)):
        assert change.new == drawn.fast
        assert change.origin.tolist() == list(range(len(drawn)))


def test_what_cannot_be_cut_or_pruned_is_refused() -> None:
    tree = Hierarchy.from_paths(["A > B"])
    with pytest.raises(TreelabelError, match="cannot cut at depth 0: at least one level must stay"):
        tree.cut(0)
    with pytest.raises(TreelabelError, match=r"nothing to keep: prune\(\) needs at least one node"):
        tree.prune([])
    with pytest.raises(TreelabelError, match="node id 2 is out of range"):
        tree.prune([2])


def test_a_label_with_two_kept_ancestors_moves_to_both_and_one_with_none_is_dropped() -> None:
    dag = Hierarchy.from_edges([("A", "C"), ("B", "C"), ("D", "E")])
    assert dag.names == ("A", "B", "D", "C", "E")
    assert moved(dag.cut(1), [{3}, {4}, {3, 0}]) == [{0, 1}, {2}, {0, 1}]
    assert moved(dag.prune([0]), [{3}, {4}, {4, 1}]) == [{0}, set(), set()]


# Other leaves


@st.composite
def with_others(draw: st.DrawFn) -> tuple[Change, Drawn, set[int], list[set[int]]]:
    """Draw a hierarchy with "other" leaves, the internal nodes that got one, and label rows."""
    drawn, rows = draw(with_labels(hierarchies()))
    asked = draw(st.lists(st.integers(0, len(drawn) - 1)))
    return drawn.fast.with_other_leaves(asked), drawn, set(asked) - drawn.slow.leaves, rows


@given(with_others())
def test_other_leaves_are_added_and_nothing_else_changes(
    case: tuple[Change, Drawn, set[int], list[set[int]]],
) -> None:
    change, drawn, inner, _ = case
    old, new = drawn.fast, change.new
    node_id = {name: node for node, name in enumerate(new.names)}
    assert len(new) == len(old) + len(inner)
    for node in inner:
        other = node_id[f"other [{old.names[node]}]"]
        assert new.is_leaf[other]
        assert origins(change, {other}) == {node}
        assert sets_of(new.parents(other), len(new)) == [{node_id[old.names[node]]}]
    kept_ids = [node_id[name] for name in old.names]
    assert change.origin[kept_ids].tolist() == list(range(len(old)))
    above = sets_of(new.parents(kept_ids), len(new))
    assert moved_back(change, above) == sets_of(old.parents(range(len(old))), len(old))


@given(with_others())
def test_documents_that_stop_at_a_node_end_in_its_other_leaf(
    case: tuple[Change, Drawn, set[int], list[set[int]]],
) -> None:
    change, drawn, inner, rows = case
    node_id = {name: node for node, name in enumerate(change.new.names)}
    names = drawn.fast.names
    ends = [
        {node_id[f"other [{names[node]}]" if node in inner else names[node]] for node in drawn.slow.most_specific(row)}
        for row in rows
    ]
    there = moved(change, rows)
    assert there == closed(change.new, ends)
    assert moved_back(change, there) == closed(drawn.fast, rows)


@given(with_labels(hierarchies()))
def test_with_other_leaves_everywhere_every_document_ends_in_leaves(case: Labelled) -> None:
    drawn, rows = case
    change = drawn.fast.with_other_leaves(range(len(drawn)))
    there = change.labels(matrix_of(rows, len(drawn)))
    ends = change.new.most_specific(there)
    assert change.new.is_leaf[ends.indices].all()
    assert np.array_equal(np.diff(ends.indptr) > 0, [len(row) > 0 for row in rows])


@given(with_scores(hierarchies()), st.data())
def test_an_other_leaf_scores_what_its_parent_has_beyond_its_children(case: Scored, data: st.DataObject) -> None:
    drawn, scores = case
    asked = data.draw(st.lists(st.integers(0, len(drawn) - 1)))
    change = drawn.fast.with_other_leaves(asked)
    there = both_ways(change, scores)
    names = drawn.fast.names
    node_id = {name: node for node, name in enumerate(change.new.names)}
    for node in range(len(drawn)):
        assert np.array_equal(there[:, node_id[names[node]]], scores[:, node])
    for node in set(asked) - drawn.slow.leaves:
        children = sorted(drawn.slow.children[node])
        rest = np.maximum(scores[:, node] - scores[:, children].sum(axis=1), 0)
        assert np.array_equal(there[:, node_id[f"other [{names[node]}]"]], rest)
    assert np.array_equal(both_ways(change, there, back=True), scores)


def test_other_leaves_by_hand() -> None:
    tree = Hierarchy.from_paths(["A > B", "A > C", "D"])
    change = tree.with_other_leaves([0, 1, 2])
    assert change.new.names == ("A", "D", "B", "C", "other [A]")
    assert moved(change, [{0}, {0, 2}, {1}, set()]) == [{0, 4}, {0, 2}, {1}, set()]
    scores = np.array([[0.75, 0.25, 0.5, 0.125]], np.float32)
    assert both_ways(change, scores).tolist() == [[0.75, 0.25, 0.5, 0.125, 0.125]]


def test_an_other_leaf_whose_name_is_taken_is_refused() -> None:
    tree = Hierarchy.from_paths(["A > B", "other [A]"])
    with pytest.raises(TreelabelError, match=r"already has a label 'other \[A\]'; rename it first"):
        tree.with_other_leaves([0])
    with pytest.raises(TreelabelError, match="node id 3 is out of range"):
        tree.with_other_leaves([3])


# Unfold


def ways_of(change: Change) -> list[tuple[int, ...]]:
    """The way to each new node, written as old nodes."""
    ways: list[tuple[int, ...]] = []
    for node, above in enumerate(change.new.parent.tolist()):
        ways.append((*(ways[above] if above >= 0 else ()), int(change.origin[node])))
    return ways


@given(hierarchies())
def test_an_unfolded_hierarchy_is_a_tree_of_all_ways(drawn: Drawn) -> None:
    change = drawn.fast.unfold()
    assert change.new.is_tree
    ways = ways_of(change)
    assert sorted(ways) == sorted(way for node in range(len(drawn)) for way in drawn.slow.ways(node))
    assert moved(change, [{node} for node in range(len(drawn)) if len(drawn.slow.ways(node)) == 1]) == [
        {ways.index(min(drawn.slow.ways(node)))} for node in range(len(drawn)) if len(drawn.slow.ways(node)) == 1
    ]


@given(trees())
def test_a_tree_is_unfolded_already(drawn: Drawn) -> None:
    assert drawn.fast.unfold().new == drawn.fast


@given(with_labels(dags()))
def test_labels_go_to_the_copies_whose_ancestors_the_document_names_most_of(case: Labelled) -> None:
    drawn, rows = case
    change = drawn.fast.unfold()
    ways = ways_of(change)

    def share(way: tuple[int, ...], row: set[int]) -> float:
        above = way[:-1]
        return len(row & set(above)) / len(above) if above else 1.0

    wanted = []
    for row in rows:
        best = {label: max(share(way, row) for way in drawn.slow.ways(label)) for label in row}
        wanted.append({at for at, way in enumerate(ways) if way[-1] in row and share(way, row) == best[way[-1]]})
    assert moved(change, rows) == wanted


@given(with_labels(hierarchies()))
def test_labels_come_back_from_an_unfolded_tree_as_they_were(case: Labelled) -> None:
    drawn, rows = case
    change = drawn.fast.unfold()
    assert moved_back(change, moved(change, rows)) == rows


@given(with_labels(dags()))
def test_a_closed_set_goes_to_all_copies(case: Labelled) -> None:
    drawn, rows = case
    change = drawn.fast.unfold()
    ways = ways_of(change)
    full = [drawn.slow.closure(row) for row in rows]
    there = moved(change, full)
    assert there == [{at for at, way in enumerate(ways) if way[-1] in row} for row in full]
    assert closed(change.new, there) == there


@given(dags())
def test_a_full_path_picks_its_own_copy_alone_where_no_other_way_lies_within_it(drawn: Drawn) -> None:
    change = drawn.fast.unfold()
    ways = ways_of(change)
    picked = moved(change, [set(way) for way in ways])
    for at, way in enumerate(ways):
        own = {ways.index(way[: end + 1]) for end in range(len(way))}
        assert own <= picked[at]
        within = {other for other in ways if set(other) <= set(way)}
        if len(within) == len(way):
            assert picked[at] == own


@given(with_scores(dags()))
def test_copies_score_like_their_origin_and_an_origin_like_its_best_copy(case: Scored) -> None:
    drawn, scores = case
    change = drawn.fast.unfold()
    there = both_ways(change, scores)
    assert np.array_equal(there, scores[:, change.origin])
    assert np.array_equal(both_ways(change, there, back=True), scores)
    # Copies with scores of their own.
    own = np.roll(there, 1, axis=1)
    back = both_ways(change, own, back=True)
    for node in range(len(drawn)):
        assert np.array_equal(back[:, node], own[:, change.origin == node].max(axis=1))


def test_unfolding_a_diamond_by_hand() -> None:
    dag = Hierarchy.from_edges([("A", "B"), ("A", "C"), ("B", "D"), ("C", "D"), ("D", "E")])
    change = dag.unfold()
    assert change.new.paths() == [
        "A",
        "A > B",
        "A > C",
        "A > B > D [B]",
        "A > C > D [C]",
        "A > B > D [B] > E [D [B]]",
        "A > C > D [C] > E [D [C]]",
    ]
    # Old: A B C D E = 0 1 2 3 4. A full path, a bare label, a closed set.
    rows = [{0, 1, 3, 4}, {4}, {0, 1, 2, 3, 4}]
    assert moved(change, rows) == [{0, 1, 3, 5}, {5, 6}, {0, 1, 2, 3, 4, 5, 6}]


def test_a_label_under_the_root_and_under_another_has_a_copy_at_the_top() -> None:
    dag = Hierarchy.from_edges([("R", "A"), ("R", "B"), ("A", "B")], root="R")
    change = dag.unfold()
    assert change.new.paths() == ["A", "B [root]", "A > B [A]"]
    # Alone it is its own full path.
    assert moved(change, [{1}, {0, 1}]) == [{1}, {0, 1, 2}]


def test_unfolding_past_the_limit_is_refused_before_any_work() -> None:
    def ladder(rungs: int) -> Hierarchy:
        edges = [pair for rung in range(rungs) for pair in [(f"{rung}", f"{rung}a"), (f"{rung}", f"{rung}b")]]
        edges += [pair for rung in range(rungs) for pair in [(f"{rung}a", f"{rung + 1}"), (f"{rung}b", f"{rung + 1}")]]
        return Hierarchy.from_edges(edges)

    # One way to the top, 2 ** rung to each side of a rung and 2 ** (rung + 1) to its end: 4 * 2 ** rungs - 3 in all.
    assert len(ladder(10).unfold(limit=4093).new) == 4093
    for rungs, limit, shown in [(10, 4092, "4,093"), (60, 10_000_000, r"4\.6e\+18"), (3000, 10_000_000, "inf")]:
        message = f"would make {shown} nodes of {3 * rungs + 1:,}, more than the limit of {limit:,}"
        with pytest.raises(TreelabelError, match=message):
            ladder(rungs).unfold(limit)


# Collapse chains


def ends_of(drawn: Drawn) -> list[int]:
    """Where the chain that begins at each node ends."""
    ends = []
    for node in range(len(drawn)):
        end = node
        while len(below := drawn.slow.children[end]) == 1 and len(drawn.slow.parents[min(below)]) == 1:
            end = min(below)
        ends.append(end)
    return ends


@given(hierarchies())
def test_no_node_is_left_whose_only_child_has_no_other_parent(drawn: Drawn) -> None:
    change = drawn.fast.collapse_chains()
    new = change.new
    child_ptr, child_idx = new.child_graph
    for node in range(len(new)):
        below = child_idx[child_ptr[node + 1] : child_ptr[node + 2]].tolist()
        assert len(below) != 1 or (not new.is_tree and new.parent_ptr[below[0] + 1] - new.parent_ptr[below[0]] > 1)
    assert set(change.origin.tolist()) == set(ends_of(drawn))
    assert new.names == tuple(drawn.fast.names[node] for node in change.origin.tolist())
    assert change.new.collapse_chains().new == change.new


@given(trees())
def test_in_a_collapsed_tree_every_step_down_is_a_choice(drawn: Drawn) -> None:
    new = drawn.fast.collapse_chains().new
    assert 1 not in np.diff(new.child_graph[0])[1:].tolist()
    assert len(new.leaves) == len(drawn.fast.leaves)


@given(hierarchies())
def test_collapsing_keeps_who_is_above_whom(drawn: Drawn) -> None:
    change = drawn.fast.collapse_chains()
    size = len(change.new)
    left, right = np.divmod(np.arange(size * size), size)
    old = drawn.fast.is_ancestor(change.origin[left], change.origin[right])
    assert change.new.is_ancestor(left, right).tolist() == old.tolist()


@given(with_labels(hierarchies()))
def test_collapsing_moves_labels_to_the_end_of_their_chain(case: Labelled) -> None:
    drawn, rows = case
    change, ends = drawn.fast.collapse_chains(), ends_of(drawn)
    there = moved(change, rows)
    assert [origins(change, row) for row in there] == [{ends[label] for label in row} for row in rows]
    assert moved_back(change, there) == [{ends[label] for label in row} for row in rows]
    assert closed(change.new, there) == moved(change, closed(change.old, rows))


@given(with_scores(hierarchies()))
def test_a_collapsed_chain_has_the_score_of_its_end(case: Scored) -> None:
    drawn, scores = case
    change = drawn.fast.collapse_chains()
    there = both_ways(change, scores)
    assert np.array_equal(there, scores[:, change.origin])
    back = both_ways(change, there, back=True)
    assert np.array_equal(back, scores[:, ends_of(drawn)])
    assert np.array_equal(both_ways(change, back), there)


def test_collapsing_by_hand() -> None:
    tree = Hierarchy.from_paths(["A > B > C > D", "A > B > C > E > F", "G > H"])
    change = tree.collapse_chains()
    assert change.new.paths() == ["C", "H", "C > D", "C > F"]
    # Scores that were coherent, 1 for A and all below it, come back coherent.
    back = both_ways(change, np.array([[1, 0, 0.5, 0.25]], np.float32), back=True)
    assert dict(zip(tree.names, back[0].tolist(), strict=True)) == {
        "A": 1, "G": 0, "B": 1, "H": 0, "C": 1, "D": 0.5, "E": 0.25, "F": 0.25
    }  # fmt: skip


# All changes


CHANGES = {
    "cut": lambda hierarchy: hierarchy.cut(2),
    "prune": lambda hierarchy: hierarchy.prune([2]),
    "with_other_leaves": lambda hierarchy: hierarchy.with_other_leaves([0]),
    "unfold": lambda hierarchy: hierarchy.unfold(),
    "collapse_chains": lambda hierarchy: hierarchy.collapse_chains(),
}


@pytest.mark.parametrize("name", CHANGES)
def test_labels_and_scores_of_another_width_are_refused(name: str) -> None:
    change = CHANGES[name](Hierarchy.from_edges([("A", "B"), ("A", "C"), ("B", "D"), ("C", "D"), ("D", "E")]))
    size = len(change.old)
    with pytest.raises(TreelabelError, match=f"{size + 1} columns, but the hierarchy has {size} nodes"):
        change.labels(np.zeros((2, size + 1)))
    for carry, size in [(change.scores, len(change.old)), (change.scores_back, len(change.new))]:
        for wrong in (np.zeros((2, size + 1)), np.zeros(size), sparse.csr_array((2, size + 1))):
            with pytest.raises(TreelabelError, match=rf"scores of shape \(.*\) do not fit a hierarchy of {size} nodes"):
                carry(wrong)


@pytest.mark.parametrize("name", CHANGES)
def test_no_documents_and_empty_documents_pass(name: str) -> None:
    change = CHANGES[name](Hierarchy.from_edges([("A", "B"), ("A", "C"), ("B", "D"), ("C", "D"), ("D", "E")]))
    for rows in (0, 3):
        assert moved(change, [set()] * rows) == [set()] * rows
        assert moved_back(change, [set()] * rows) == [set()] * rows
        assert both_ways(change, np.zeros((rows, 5), np.float32)).shape == (rows, len(change.new))
        back = both_ways(change, np.zeros((rows, len(change.new)), np.float32), back=True)
        assert back.shape == (rows, 5)


@pytest.mark.slow
def test_a_chain_of_100_000_is_changed_without_recursion() -> None:
    deep = 100_000
    chain = Hierarchy.from_parents(range(-1, deep - 1), [str(node) for node in range(deep)])
    last: Any = matrix_of([{deep - 1}], deep)
    assert len(chain.cut(7).new) == 7
    assert chain.cut(7).labels(last).indices.tolist() == [6]
    assert len(chain.prune(deep // 2).new) == deep // 2 + 1
    assert chain.collapse_chains().new.names == (str(deep - 1),)
    assert chain.unfold().new == chain
    others = chain.with_other_leaves(range(deep))
    assert len(others.new) == 2 * deep - 1
    assert others.labels(last).nnz == deep
