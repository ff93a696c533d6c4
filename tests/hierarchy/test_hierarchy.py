"""What a hierarchy answers, against the slow twin, and how it takes ids and label matrices."""

import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from scipy import sparse

from tests.reference import ROOT, SlowHierarchy, matrix_of, sets_of
from tests.strategies import Drawn, dags, hierarchies, trees, with_labels
from treelabel.core.errors import TreelabelError
from treelabel.hierarchy import Hierarchy, LabelMatrix
from treelabel.hierarchy.edges import Edges

TREE = Hierarchy.from_paths(["A > B > C", "A > B > D", "A > E", "F"])
DAG = Hierarchy.from_edges([("A", "B"), ("A", "C"), ("B", "D"), ("C", "D")])
EMPTY = Hierarchy.flat([])


def all_pairs(size: int) -> tuple[Any, Any]:
    left, right = np.divmod(np.arange(size * size), size)
    return left, right


def twin_of(hierarchy: Hierarchy) -> SlowHierarchy:
    ptr, idx = hierarchy.parent_ptr, hierarchy.parent_idx
    return SlowHierarchy({node: set(idx[ptr[node] : ptr[node + 1]].tolist()) for node in range(len(hierarchy))})


# How nodes are numbered


@given(hierarchies())
def test_arrays_hold_exactly_the_given_edges(drawn: Drawn) -> None:
    assert twin_of(drawn.fast).parents == drawn.slow.parents
    edges = list(zip(drawn.fast.parent_idx.tolist(), drawn.fast.edge_child.tolist(), strict=True))
    assert edges == sorted(edges, key=lambda edge: (edge[1], edge[0]))
    assert drawn.fast.is_tree == all(len(above) == 1 for above in drawn.slow.parents.values())


@given(hierarchies())
def test_parents_come_before_children_and_levels_are_slices(drawn: Drawn) -> None:
    fast, slow = drawn.fast, drawn.slow
    depths = [slow.longest_depth(node) for node in range(len(drawn))]
    assert np.all(fast.parent_idx < fast.edge_child)
    assert fast.depth.tolist() == depths == sorted(depths)
    assert fast.max_depth == max(depths)
    for depth in range(1, fast.max_depth + 1):
        level = range(len(drawn))[fast.level(depth)]
        assert list(level) == [node for node in range(len(drawn)) if depths[node] == depth]
        assert fast.level_sizes[depth - 1] == len(level)
    assert len(fast.level_sizes) == fast.max_depth


@given(trees())
def test_children_of_a_tree_node_are_consecutive(drawn: Drawn) -> None:
    ptr, idx = drawn.fast.child_graph
    for node in range(ROOT, len(drawn)):
        assert set(range(ptr[node + 1], ptr[node + 2])) == drawn.slow.children[node]
    assert idx.tolist() == list(range(len(drawn)))


@given(hierarchies())
def test_numbering_a_numbered_hierarchy_again_changes_nothing(drawn: Drawn) -> None:
    fast = drawn.fast
    again = Hierarchy.from_coded(Edges(fast.parent_idx, fast.edge_child, fast.name_array))
    assert again == fast
    assert again.parent_idx.tolist() == fast.parent_idx.tolist()
    assert again.names == fast.names


def test_levels_outside_the_hierarchy_are_refused() -> None:
    for depth in (-1, 0, 4):
        with pytest.raises(TreelabelError, match=rf"depth {depth} .* levels are 1 to 3"):
            TREE.level(depth)


# Questions about all nodes


@given(hierarchies())
def test_depths_leaves_and_sizes_are_those_of_the_twin(drawn: Drawn) -> None:
    fast, slow, nodes = drawn.fast, drawn.slow, range(len(drawn))
    assert fast.shortest_depth.tolist() == [slow.shortest_depth(node) for node in nodes]
    assert fast.leaves.tolist() == sorted(slow.leaves)
    assert fast.is_leaf.tolist() == [node in slow.leaves for node in nodes]
    assert fast.subtree_sizes.tolist() == [slow.subtree_size(node) for node in nodes]


@given(hierarchies())
def test_relatives_are_those_of_the_twin(drawn: Drawn) -> None:
    fast, slow, nodes = drawn.fast, drawn.slow, range(len(drawn))
    assert sets_of(fast.parents(nodes), len(fast)) == [slow.parents[node] - {ROOT} for node in nodes]
    assert sets_of(fast.ancestors(nodes), len(fast)) == [slow.ancestors(node) for node in nodes]
    assert sets_of(fast.descendants(nodes), len(fast)) == [slow.descendants(node) for node in nodes]
    assert sets_of(fast.siblings(nodes), len(fast)) == [slow.siblings(node) for node in nodes]
    assert sets_of(fast.descendants(ROOT), len(fast)) == [set(nodes)]
    with_root = [ROOT, *nodes]
    assert sets_of(fast.children(with_root), len(fast)) == [slow.children[node] for node in with_root]


@given(hierarchies())
def test_pairs_of_nodes_meet_where_the_twin_says(drawn: Drawn) -> None:
    fast, slow = drawn.fast, drawn.slow
    left, right = all_pairs(len(drawn))
    pairs = list(zip(left.tolist(), right.tolist(), strict=True))
    assert fast.is_ancestor(left, right).tolist() == [slow.is_ancestor(*pair) for pair in pairs]
    assert fast.lowest_common_ancestor(left, right).tolist() == [slow.deepest_common_ancestor(*pair) for pair in pairs]
    assert fast.distance(left, right).tolist() == [slow.distance(*pair) for pair in pairs]


def test_hand_computed_answers_on_a_diamond_with_a_short_cut() -> None:
    # D hangs under B, C and the root; A > B > D is the longest way, D alone the shortest.
    edges = [("R", "A"), ("A", "B"), ("A", "C"), ("B", "D"), ("C", "D"), ("R", "D"), ("R", "E")]
    dag = Hierarchy.from_edges(edges, root="R")
    assert dag.names == ("A", "E", "B", "C", "D")
    assert dag.depth.tolist() == [1, 1, 2, 2, 3]
    assert dag.shortest_depth.tolist() == [1, 1, 2, 2, 1]
    assert dag.distance([4, 4, 2], [1, 0, 3]).tolist() == [2, 2, 2]
    assert dag.lowest_common_ancestor([4, 4, 2, 4], [1, 0, 3, 3]).tolist() == [-1, 0, 0, 3]
    assert sets_of(dag.siblings([4, 3, 1]), 5) == [{0, 1}, {2}, {0, 4}]


# Label sets


@given(with_labels(hierarchies()))
def test_closure_and_most_specific_are_those_of_the_twin(case: tuple[Drawn, list[set[int]]]) -> None:
    drawn, rows = case
    labels = matrix_of(rows, len(drawn))
    assert sets_of(drawn.fast.closure(labels), len(drawn)) == [drawn.slow.closure(row) for row in rows]
    assert sets_of(drawn.fast.most_specific(labels), len(drawn)) == [drawn.slow.most_specific(row) for row in rows]


@given(with_labels(hierarchies()))
def test_closure_and_most_specific_undo_each_other(case: tuple[Drawn, list[set[int]]]) -> None:
    drawn, rows = case
    fast, labels = drawn.fast, matrix_of(rows, len(drawn))
    closed, specific = fast.closure(labels), fast.most_specific(labels)
    assert sets_of(fast.closure(closed), len(fast)) == sets_of(closed, len(fast))
    assert sets_of(fast.most_specific(closed), len(fast)) == sets_of(specific, len(fast))
    assert sets_of(fast.closure(specific), len(fast)) == sets_of(closed, len(fast))


WANTED = [[0, 0, 1, 0, 1, 1], [0, 0, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0]]
MESSY = sparse.csr_array(
    # Unsorted, one label twice, and two stored zeros.
    (np.array([1, 2, 1, 3, 0, 1, 0]), np.array([5, 2, 4, 2, 0, 1, 3]), np.array([0, 4, 5, 7])),
    shape=(3, 6),
)


@pytest.mark.parametrize(
    "labels",
    [
        WANTED,
        np.array(WANTED, np.bool_),
        np.array(WANTED, np.float32),
        np.asfortranarray(WANTED),
        sparse.csr_matrix(WANTED),
        sparse.csr_array(WANTED, dtype=np.bool_),
        sparse.csr_array(WANTED, dtype=np.float64),
        sparse.csc_array(WANTED),
        sparse.coo_array(WANTED),
        sparse.lil_matrix(WANTED),
        MESSY,
        sparse.csr_matrix(MESSY),
        sparse.csr_array(
            (MESSY.data.astype(np.bool_), MESSY.indices.astype(np.int64), MESSY.indptr.astype(np.int64)), (3, 6)
        ),
    ],
    ids=lambda labels: f"{type(labels).__name__}-{getattr(labels, 'dtype', 'int')}",
)
def test_label_matrices_are_taken_in_every_form_and_left_alone(labels: Any) -> None:
    before = labels.copy()
    # Nodes of TREE: A F, B E, C D.
    assert TREE.names == ("A", "F", "B", "E", "C", "D")
    assert sets_of(TREE.closure(labels), 6) == [{0, 2, 4, 5}, set(), {1}]
    assert sets_of(TREE.most_specific(labels), 6) == [{4, 5}, set(), {1}]
    if sparse.issparse(labels):
        assert np.array_equal(labels.data, before.data)
        assert getattr(labels, "indices", np.empty(0)).tolist() == getattr(before, "indices", np.empty(0)).tolist()
    else:
        assert np.array_equal(labels, before)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.zeros((2, 5)), "5 columns, but the hierarchy has 6 nodes"),
        (sparse.csr_array((2, 7)), "7 columns, but the hierarchy has 6 nodes"),
        (np.zeros(6), r"expected a documents x 6 matrix, found float64 \(6,\)"),
        ([["A"] * 6], "expected a documents x 6 matrix"),
    ],
)
def test_matrices_that_do_not_fit_are_refused(labels: Any, message: str) -> None:
    for question in (TREE.closure, TREE.most_specific):
        with pytest.raises(TreelabelError, match=message):
            question(labels)


def test_no_documents_give_no_documents() -> None:
    for hierarchy in (TREE, DAG):
        for question in (hierarchy.closure, hierarchy.most_specific):
            answer = question(sparse.csr_array((0, len(hierarchy)), dtype=np.bool_))
            assert answer.shape == (0, len(hierarchy))


# Large random hierarchies: rows of hundreds of labels, and parts of the rows in several threads


def random_hierarchy(nodes: int, tree: bool, seed: int) -> Hierarchy:
    rng = np.random.default_rng(seed)
    edges = {(int(rng.integers(node)), node) for node in range(1, nodes) for _ in range(1 if tree else 2)}
    return Hierarchy.from_edges([(str(above), str(node)) for above, node in sorted(edges)], tree=tree)


def random_labels(rows: int, columns: int, most: int, seed: int) -> LabelMatrix:
    rng = np.random.default_rng(seed)
    return matrix_of([set(rng.integers(0, columns, rng.integers(0, most + 1)).tolist()) for _ in range(rows)], columns)


@pytest.mark.parametrize("tree", [True, False])
def test_long_rows_close_like_a_product_with_the_ancestors(tree: bool) -> None:
    hierarchy = random_hierarchy(2000, tree, seed=1)
    assert hierarchy.is_tree == tree
    labels = random_labels(30, 2000, 400, seed=2)
    itself_and_above = hierarchy.ancestors(range(2000)) + sparse.eye_array(2000, dtype=np.bool_, format="csr")
    closed = (labels.astype(np.int32) @ itself_and_above.astype(np.int32)).toarray() > 0
    above_another = (labels.astype(np.int32) @ hierarchy.ancestors(range(2000)).astype(np.int32)).toarray() > 0
    assert sets_of(hierarchy.closure(labels), 2000) == sets_of(sparse.csr_array(closed), 2000)
    specific = sparse.csr_array(labels.toarray() & ~above_another)
    assert sets_of(hierarchy.most_specific(labels), 2000) == sets_of(specific, 2000)


@pytest.mark.parametrize("tree", [True, False])
def test_answers_do_not_depend_on_the_number_of_threads(tree: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    hierarchy = random_hierarchy(500, tree, seed=3)
    labels = random_labels(7000, 500, 5, seed=4)
    left, right = np.random.default_rng(5).integers(0, 500, (2, 7000))

    def answers() -> list[Any]:
        closed, specific = hierarchy.closure(labels), hierarchy.most_specific(labels)
        pairs = [hierarchy.is_ancestor, hierarchy.lowest_common_ancestor, hierarchy.distance]
        arrays = [closed.indptr, closed.indices, specific.indptr, specific.indices]
        return [array.tolist() for array in [*arrays, *(question(left, right) for question in pairs)]]

    monkeypatch.setenv("TREELABEL_THREADS", "1")
    one_thread = answers()
    monkeypatch.setenv("TREELABEL_THREADS", "3")
    assert answers() == one_thread
    assert len(one_thread[-1]) == 7000


# How ids are taken


NODE_QUESTIONS = ["parents", "children", "siblings", "ancestors", "descendants", "paths"]
PAIR_QUESTIONS = ["is_ancestor", "lowest_common_ancestor", "distance"]


@pytest.mark.parametrize("hierarchy", [TREE, DAG], ids=["tree", "dag"])
@pytest.mark.parametrize("question", NODE_QUESTIONS[:-1])
def test_a_number_a_list_and_any_integer_array_mean_the_same_ids(hierarchy: Hierarchy, question: str) -> None:
    ask: Callable[[Any], LabelMatrix] = getattr(hierarchy, question)
    wanted = sets_of(ask([3]), len(hierarchy))
    for ids in (3, np.int64(3), (3,), range(3, 4), np.array(3), np.array([3], np.uint8), np.array([3], np.int64)):
        assert sets_of(ask(ids), len(hierarchy)) == wanted
    assert sets_of(ask([]), len(hierarchy)) == []
    assert ask(np.empty(0, np.int64)).shape == (0, len(hierarchy))
    # The order and repetition of the ids is that of the answer's rows.
    twice = sets_of(ask([3, 0, 3]), len(hierarchy))
    assert twice == [wanted[0], sets_of(ask(0), len(hierarchy))[0], wanted[0]]


@pytest.mark.parametrize("hierarchy", [TREE, DAG], ids=["tree", "dag"])
@pytest.mark.parametrize("question", PAIR_QUESTIONS)
def test_one_id_is_paired_with_each_of_an_array(hierarchy: Hierarchy, question: str) -> None:
    ask: Callable[[Any, Any], Any] = getattr(hierarchy, question)
    each = [ask(node, 3).tolist()[0] for node in range(len(hierarchy))]
    assert len(set(each)) > 1
    nodes = np.arange(len(hierarchy))
    assert ask(nodes, 3).tolist() == each
    assert ask(nodes, [3]).tolist() == each
    assert ask(nodes, np.full(len(hierarchy), 3, np.uint16)).tolist() == each
    assert ask([], []).tolist() == ask([], 3).tolist() == []
    # Every second entry of an array is not contiguous in memory.
    assert ask(np.repeat(nodes, 2)[::2].astype(np.int32), 3).tolist() == each


@pytest.mark.parametrize("hierarchy", [TREE, DAG], ids=["tree", "dag"])
@pytest.mark.parametrize("question", NODE_QUESTIONS)
def test_ids_outside_the_hierarchy_are_refused(hierarchy: Hierarchy, question: str) -> None:
    ask: Callable[[Any], Any] = getattr(hierarchy, question)
    size = len(hierarchy)
    lowest = ROOT if question in ("children", "descendants") else 0
    for wrong in (lowest - 1, size, 2**40):
        with pytest.raises(TreelabelError, match=f"node id {wrong} is out of range: .* ids {lowest} to {size - 1}"):
            ask([0, wrong])
        with pytest.raises(TreelabelError, match=f"node id {wrong} is out of range"):
            ask(wrong)
    for no_ids in ([0.0], [True], ["A"], [[0, 1]], [None]):
        with pytest.raises(TreelabelError, match="expected node ids, found an array of"):
            ask(no_ids)


@pytest.mark.parametrize("hierarchy", [TREE, DAG], ids=["tree", "dag"])
@pytest.mark.parametrize("question", PAIR_QUESTIONS)
def test_wrong_pairs_are_refused(hierarchy: Hierarchy, question: str) -> None:
    ask: Callable[[Any, Any], Any] = getattr(hierarchy, question)
    for wrong in (-1, len(hierarchy)):
        with pytest.raises(TreelabelError, match=f"node id {wrong} is out of range"):
            ask([0, wrong], [0, 0])
        with pytest.raises(TreelabelError, match=f"node id {wrong} is out of range"):
            ask([0, 0], [0, wrong])
    with pytest.raises(TreelabelError, match="expected pairs of node ids, found 2 on the left and 3 on the right"):
        ask([0, 1], [0, 1, 2])


def test_single_node_questions_refuse_wrong_ids_too() -> None:
    for wrong in (-1, 6):
        with pytest.raises(TreelabelError, match=f"node id {wrong} is out of range"):
            TREE.path_names(wrong)
    with pytest.raises(TreelabelError, match="node id -2 is out of range"):
        TREE.children([-2])


def test_questions_for_trees_refuse_a_dag_by_name() -> None:
    with pytest.raises(TreelabelError, match=r"needs a tree, .* 'D' has 2 parents; .* unfold\(\)"):
        _ = DAG.parent


# Names and paths


@given(hierarchies())
def test_a_path_goes_down_real_edges_and_is_as_long_as_the_depth(drawn: Drawn) -> None:
    fast, slow = drawn.fast, drawn.slow
    node_id = {name: node for node, name in enumerate(fast.names)}
    for node in range(len(drawn)):
        path = fast.path_names(node)
        assert tuple(node_id[name] for name in path) in slow.ways(node)
        assert len(path) == fast.depth[node]
        assert fast.paths([node], sep="→") == ["→".join(path)]
    assert fast.paths() == fast.paths(range(len(drawn)))


@given(hierarchies())
def test_edges_make_the_same_hierarchy_again(drawn: Drawn) -> None:
    fast = drawn.fast
    assert Hierarchy.from_edges(fast.edges(root="⊤"), root="⊤") == fast
    assert len(fast.edges()) == len(fast.parent_idx) - np.sum(fast.parent_idx == ROOT)
    assert fast.ids_by_name == {name: [node] for node, name in enumerate(fast.names)}
    assert fast.has_unique_names


def test_a_name_may_belong_to_several_nodes() -> None:
    tree = Hierarchy.from_paths(["A > Other", "B > Other"])
    assert tree.ids_by_name == {"A": [0], "B": [1], "Other": [2, 3]}
    assert not tree.has_unique_names
    assert tree.paths([3, 2]) == ["B > Other", "A > Other"]


def test_repr_says_size_and_kind() -> None:
    assert repr(TREE) == "Hierarchy(6 nodes, 4 leaves, depth 3, tree)"
    assert repr(DAG) == "Hierarchy(4 nodes, 1 leaves, depth 3, DAG)"


def test_another_hierarchys_fingerprint_is_refused() -> None:
    TREE.require_same(Hierarchy.from_edges(TREE.edges("R"), root="R").fingerprint, "scores.npz")
    with pytest.raises(TreelabelError, match=rf"scores.npz belongs to another .*{DAG.fingerprint[:8]}.*"):
        TREE.require_same(DAG.fingerprint, "scores.npz")


def test_a_hierarchy_without_nodes_answers_with_nothing() -> None:
    assert len(EMPTY) == EMPTY.max_depth == 0
    assert EMPTY.is_tree
    assert EMPTY.names == ()
    assert EMPTY.paths() == []
    assert EMPTY.edges("R") == []
    assert EMPTY.level_sizes == []
    assert EMPTY.leaves.tolist() == EMPTY.subtree_sizes.tolist() == EMPTY.level_ptr.tolist()[1:] == []
    assert EMPTY.children([ROOT]).shape == (1, 0)
    assert EMPTY.closure(np.zeros((2, 0))).shape == (2, 0)
    assert EMPTY.lowest_common_ancestor([], []).tolist() == []
    assert Hierarchy.from_edges([]) == EMPTY
    assert repr(EMPTY) == "Hierarchy(0 nodes, 0 leaves, depth 0, tree)"


# Depth


DEEP = 100_000


@pytest.fixture(scope="module")
def chain() -> Hierarchy:
    names = [str(node) for node in range(DEEP)]
    edges = list(pairwise(names))
    np.random.default_rng(0).shuffle(edges)
    return Hierarchy.from_edges(edges)


def test_a_chain_of_100_000_answers_without_recursion_and_in_no_time(chain: Hierarchy) -> None:
    started = time.perf_counter()
    left, right = np.random.default_rng(1).integers(0, DEEP, (2, 1_000_000))
    assert chain.max_depth == DEEP
    assert chain.parent.tolist() == list(range(-1, DEEP - 1))
    assert np.array_equal(chain.lowest_common_ancestor(left, right), np.minimum(left, right))
    assert np.array_equal(chain.distance(left, right), np.abs(left - right))
    assert np.array_equal(chain.is_ancestor(left, right), left < right)
    assert np.array_equal(chain.subtree_sizes, np.arange(DEEP, 0, -1))
    assert chain.path_names(DEEP - 1) == [str(node) for node in range(DEEP)]
    assert len(chain.fingerprint) == 32
    assert chain.level(DEEP) == slice(DEEP - 1, DEEP)
    # A quadratic step would take minutes.
    assert time.perf_counter() - started < 20


def test_label_sets_on_a_chain_of_100_000(chain: Hierarchy) -> None:
    started = time.perf_counter()
    ends = matrix_of([{DEEP - 1}, {0, 500, DEEP - 1}, set(), {7}], DEEP)
    closed = chain.closure(ends)
    assert np.diff(closed.indptr).tolist() == [DEEP, DEEP, 0, 8]
    assert closed.indices[:DEEP].tolist() == list(range(DEEP))
    assert sets_of(chain.most_specific(closed), DEEP) == [{DEEP - 1}, {DEEP - 1}, set(), {7}]
    assert chain.ancestors(DEEP - 1).nnz == chain.descendants(0).nnz == DEEP - 1
    assert time.perf_counter() - started < 20


def test_a_ladder_of_50_000_diamonds_answers_without_recursion() -> None:
    # Every rung: i -> i', i -> i'', and both -> i + 1; there are 2 ** 50,000 ways to the end.
    rungs = 50_000
    edges = [
        pair
        for rung in range(rungs)
        for pair in [
            (f"{rung}", f"{rung}a"),
            (f"{rung}", f"{rung}b"),
            (f"{rung}a", f"{rung + 1}"),
            (f"{rung}b", f"{rung + 1}"),
        ]
    ]
    started = time.perf_counter()
    ladder = Hierarchy.from_edges(edges)
    end = len(ladder) - 1
    assert ladder.max_depth == ladder.shortest_depth[end] == 2 * rungs + 1
    assert ladder.closure(matrix_of([{end}], len(ladder))).nnz == len(ladder)
    assert ladder.distance(0, end).tolist() == [2 * rungs]
    assert ladder.lowest_common_ancestor(end, end - 1).tolist() == [end - 1]
    assert ladder.is_ancestor([0, end], [end, 0]).tolist() == [True, False]
    assert time.perf_counter() - started < 20


@given(dags())
def test_drawn_dags_are_dags(drawn: Drawn) -> None:
    assert not drawn.fast.is_tree
