"""Every way to make a hierarchy, every refusal with its place and names, and what a made one promises."""

import dataclasses
import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import networkx as nx
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.reference import ROOT
from tests.strategies import Drawn, hierarchies, names, tree_parents, trees
from treelabel.core.errors import TreelabelError
from treelabel.hierarchy import Hierarchy
from treelabel.hierarchy.edges import Edges, text_array

WANTED = Hierarchy.from_edges([("A", "B"), ("A", "C"), ("B", "D")], nodes=["E"])


def refusal(message: str) -> Any:
    """Expect a refusal that says exactly this."""
    return pytest.raises(TreelabelError, match=f"^{re.escape(message)}$")


# Makers


def test_the_hierarchy_that_all_makers_below_make() -> None:
    assert WANTED.names == ("A", "E", "B", "C", "D")
    assert WANTED.parent.tolist() == [-1, -1, 0, 0, 2]
    assert WANTED.depth.tolist() == [1, 1, 2, 2, 3]


@pytest.mark.parametrize(
    "make",
    [
        lambda: Hierarchy.from_edges([("R", "A"), ("R", "E"), ("A", "B"), ("A", "C"), ("B", "D")], root="R"),
        lambda: Hierarchy.from_edges((edge for edge in [("A", "B"), ("A", "C"), ("B", "D")]), nodes=("E", "A")),
        lambda: Hierarchy.from_edges([["A", "B"], ["A", "C"], ["B", "D"]], nodes=["E"], tree=True),  # type: ignore[list-item]
        lambda: Hierarchy.from_edges(np.array([["A", "B"], ["A", "C"], ["B", "D"]]), nodes=["E"]),
        lambda: Hierarchy.from_parents({"A": None, "E": None, "B": "A", "C": "A", "D": "B"}),
        lambda: Hierarchy.from_parents({"A": [], "E": (), "B": ["A"], "C": ("A",), "D": "B"}),
        lambda: Hierarchy.from_parents([-1, -1, 0, 0, 2], names=["A", "E", "B", "C", "D"]),
        lambda: Hierarchy.from_parents(np.array([1, -1, 0, 1, -1]), names=["B", "A", "D", "C", "E"]),
        lambda: Hierarchy.from_paths(["A > B > D", "A > C", "E"]),
        lambda: Hierarchy.from_paths(["A", "E", "A/B/D", "A / C"], sep="/"),
        lambda: Hierarchy.from_paths([("A", "B", "D"), ["A", "C"], ["E"]]),
        lambda: Hierarchy.from_nested({"A": {"B": {"D": {}}, "C": {}}, "E": {}}),
        lambda: Hierarchy.from_nested({"A": {"B": {"D": None}, "C": ""}, "E": []}),
        lambda: Hierarchy.from_nested([{"A": [{"B": ["D"]}, "C"]}, "E"]),
        lambda: Hierarchy.from_nested({"A": [{"B": "D"}, "C"], "E": None}),
        lambda: Hierarchy.from_nested(
            [
                {"name": "A", "children": [{"name": "B", "children": [{"name": "D"}]}, {"name": "C", "children": []}]},
                {"name": "E"},
            ]
        ),
        lambda: Hierarchy.from_nested(
            {"id": "root", "nodes": [{"label": "A", "items": [{"title": "B", "subcategories": "D"}, "C"]}, "E"]}
        ),
        lambda: Hierarchy.from_networkx(
            nx.DiGraph([("R", "A"), ("R", "E"), ("A", "B"), ("A", "C"), ("B", "D")]), root="R"
        ),
    ],
)
def test_every_maker_makes_the_same_of_the_same(make: Callable[[], Hierarchy]) -> None:
    made = make()
    assert made.paths() == ["A", "E", "A > B", "A > C", "A > B > D"]
    assert made == WANTED


@given(hierarchies())
def test_makers_by_name_agree_on_drawn_hierarchies(drawn: Drawn) -> None:
    wanted = {
        name: {drawn.fast.names[above] for above in drawn.slow.parents[node] if above != ROOT}
        for node, name in enumerate(drawn.fast.names)
    }
    graph = nx.DiGraph(drawn.fast.edges("⊤"))
    assert Hierarchy.from_networkx(graph, root="⊤") == drawn.fast
    if not any(ROOT in above and len(above) > 1 for above in drawn.slow.parents.values()):
        made = Hierarchy.from_parents({name: sorted(above) for name, above in wanted.items()})
        found = {
            name: {made.names[above] for above in row.nonzero()[0]}
            for name, row in zip(made.names, made.parents(range(len(made))).toarray(), strict=True)
        }
        assert found == wanted


@given(trees())
def test_makers_of_trees_agree_on_drawn_trees(drawn: Drawn) -> None:
    fast = drawn.fast
    paths = [fast.path_names(node) for node in range(len(fast))]
    assert Hierarchy.from_paths(paths) == fast
    assert Hierarchy.from_parents(fast.parent, fast.names) == fast
    nested: dict[str, Any] = {}
    for path in paths:
        at = nested
        for name in path:
            at = at.setdefault(name, {})
    assert Hierarchy.from_nested({"x": nested}, root="x") == fast


@given(st.data(), tree_parents())
def test_parents_may_be_given_in_any_order(data: st.DataObject, parents: list[set[int]]) -> None:
    called = data.draw(names(len(parents)))
    order = data.draw(st.permutations(range(len(parents))))
    place = {node: at for at, node in enumerate(order)} | {ROOT: ROOT}
    made = Hierarchy.from_parents([place[min(parents[node])] for node in order], [called[node] for node in order])
    above = {made.names[node]: None if up < 0 else made.names[up] for node, up in enumerate(made.parent.tolist())}
    assert above == {called[node]: None if ROOT in up else called[min(up)] for node, up in enumerate(parents)}


def test_flat_makes_one_level_in_the_given_order() -> None:
    flat = Hierarchy.flat(name for name in ["spam", "ham", "eggs"])
    assert flat.names == ("spam", "ham", "eggs")
    assert flat.depth.tolist() == [1, 1, 1]
    assert flat.leaves.tolist() == [0, 1, 2]


def test_several_tops_hang_under_the_virtual_root() -> None:
    forest = Hierarchy.from_edges([("A", "B"), ("C", "D"), ("E", "D")])
    assert forest.names == ("A", "C", "E", "B", "D")
    assert forest.children([ROOT]).indices.tolist() == [0, 1, 2]
    assert forest.lowest_common_ancestor(3, 4).tolist() == [ROOT]
    # Labels that are in no edge of a named root hang under it too.
    mixed = Hierarchy.from_edges([("R", "A"), ("B", "C")], root="R", nodes=["D"])
    assert mixed.names == ("A", "B", "D", "C")
    assert mixed.parent.tolist() == [-1, -1, -1, 1]


def test_siblings_keep_the_order_in_which_they_were_given() -> None:
    assert Hierarchy.from_edges([("R", "b"), ("R", "c"), ("R", "a"), ("c", "z"), ("c", "y")], root="R").names == (
        ("b", "c", "a", "z", "y")
    )
    assert Hierarchy.from_nested({"b": ["z", "y"], "a": ["x"]}).names == ("b", "a", "z", "y", "x")
    assert Hierarchy.from_paths(["b > z", "a > x", "b > y"]).names == ("b", "a", "z", "y", "x")


@pytest.mark.parametrize("name", ["root", "Root", "ROOT", "<root>", "[Root]", "__root__", " root "])
def test_a_single_top_called_root_is_the_virtual_root_unless_told_otherwise(name: str) -> None:
    edges = [(name, "A"), ("A", "B")]
    assert Hierarchy.from_edges(edges).names == ("A", "B")
    assert Hierarchy.from_nested({name: {"A": ["B"]}}).names == ("A", "B")
    assert Hierarchy.from_networkx(nx.DiGraph(edges)).names == ("A", "B")
    assert Hierarchy.from_edges(edges, root="").names == (name, "A", "B")
    assert Hierarchy.from_edges([*edges, ("C", "D")]).names == (name, "C", "A", "D", "B")
    assert Hierarchy.from_edges([("A", name), (name, "B")]).names == ("A", name, "B")


def test_a_label_may_hang_under_the_root_and_under_another() -> None:
    dag = Hierarchy.from_edges([("R", "A"), ("R", "B"), ("A", "B")], root="R")
    assert not dag.is_tree
    assert dag.parent_idx.tolist() == [-1, -1, 0]
    assert dag.depth.tolist() == [1, 2]


def test_networkx_nodes_are_named_by_their_text() -> None:
    graph = nx.DiGraph([(1, 2), (1, 3)])
    graph.add_node("alone")
    assert Hierarchy.from_networkx(graph).names == ("1", "alone", "2", "3")
    assert len(Hierarchy.from_networkx(nx.DiGraph())) == 0


def test_names_are_kept_as_they_are() -> None:
    odd = ["naïve café", " two  spaces ", "日本語", "🌳", "a\tb", "\u200bzero width", "A > B", "0"]
    assert Hierarchy.flat(odd).names == tuple(odd)
    assert Hierarchy.from_edges([("top", name) for name in odd], root="top").names == tuple(odd)
    assert Hierarchy.from_paths([[name] for name in odd]).names == tuple(odd)


def test_paths_written_as_text_are_stripped() -> None:
    assert Hierarchy.from_paths([" A >  B ", "A > C"]).names == ("A", "B", "C")
    assert Hierarchy.from_paths(["A>B"], sep=">").names == ("A", "B")


@pytest.mark.slow
def test_deep_input_is_read_without_recursion() -> None:
    deep = 100_000
    called = [str(node) for node in range(deep)]
    nested: Any = {}
    for name in reversed(called):
        nested = {name: nested}
    lists: Any = ["x"]
    for _ in range(deep):
        lists = [lists]
    wanted = Hierarchy.from_parents(range(-1, deep - 1), called)
    assert Hierarchy.from_nested(nested) == wanted
    assert Hierarchy.from_paths([called]) == wanted
    assert Hierarchy.from_nested(lists).names == ("x",)


# Refusals


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        (
            [("T", "A"), ("A", "B"), ("B", "A"), ("B", "C")],
            "edge 3: cycle of 2 labels: 'A' -> 'B' -> 'A'; remove one of these edges",
        ),
        ([("A", "B"), ("C", "C")], "edge 2: self-loop: 'C' is given as its own parent"),
        ([("A", "B"), ("X", "Y"), ("A", "C"), ("A", "B")], "edge 4: duplicate edge 'A' -> 'B', first at edge 1"),
        ([("A", "B"), ("A", "B"), ("A", "B")], "edge 2: duplicate edge 'A' -> 'B', first at edge 1"),
        ([("A", "B"), ("A", "")], "edge 2: empty name: label 3 of 3 has no text"),
        ([("A", "B"), (" \t", "A")], "edge 2: empty name: label 3 of 3 has no text"),
        ([("A", "B"), ("A", None)], "edge 2: empty name (None)"),
        ([("A", "B"), (None, "A")], "edge 2: empty name (None)"),
        ([("A", "B"), ("A", float("nan"))], "edge 2: a name must be text, found nan"),
        ([("A", "B"), (7, "A")], "edge 2: a name must be text, found 7"),
        ([("A", "B\ud800")], "edge 1: a name must be text, found 'B\\ud800'"),
        ([("A", "B"), ("A", "B", "C")], "edge 2: expected a (parent, child) pair, found ('A', 'B', 'C')"),
        ([("A", "B"), ("A",)], "edge 2: expected a (parent, child) pair, found ('A',)"),
        (["AB"], "edge 1: expected a (parent, child) pair, found 'AB'"),
        ([("A", "B"), None], "edge 2: expected a (parent, child) pair, found None"),
    ],
)
def test_edges_that_make_no_hierarchy_are_refused(edges: list[Any], message: str) -> None:
    with refusal(message):
        Hierarchy.from_edges(edges)


@given(st.data(), hierarchies().filter(lambda drawn: drawn.fast.max_depth > 1))
def test_a_cycle_is_shown_as_a_path_along_real_edges_with_the_place_of_one(data: st.DataObject, drawn: Drawn) -> None:
    lower = data.draw(st.sampled_from([node for node in range(len(drawn)) if drawn.slow.ancestors(node)]))
    upper = data.draw(st.sampled_from(sorted(drawn.slow.ancestors(lower))))
    called = [f"n{node}" for node in range(len(drawn))]
    pairs = [(above, below) for below, parents in drawn.slow.parents.items() for above in parents if above != ROOT]
    edges = data.draw(st.permutations([(called[above], called[below]) for above, below in [*pairs, (lower, upper)]]))
    with pytest.raises(TreelabelError) as caught:
        Hierarchy.from_edges(edges)
    found = re.fullmatch(r"edge (\d+): cycle of (\d+) labels: (.*); remove one of these edges", str(caught.value))
    assert found is not None
    cycle = re.findall(r"n\d+", found[3])
    assert found[3] == " -> ".join(map(repr, cycle))
    assert cycle[0] == cycle[-1]
    assert len(set(cycle)) == len(cycle) - 1 == int(found[2])
    assert {(called[lower], called[upper])} <= set(pairwise(cycle)) <= set(edges)
    assert edges[int(found[1]) - 1] in set(pairwise(cycle))


def test_a_long_cycle_is_shortened() -> None:
    ring = [f"n{node}" for node in range(1000)]
    with pytest.raises(
        TreelabelError, match=r"cycle of 1000 labels: ('n\d+' -> ){6}\.\.\. 990 more \.\.\.( -> 'n\d+'){5}; "
    ):
        Hierarchy.from_edges([*pairwise(ring), (ring[-1], ring[0])])


def test_the_place_of_an_edge_is_the_readers_to_tell() -> None:
    coded = text_array(["A", "B"], "name")
    two, one = np.array([0, 0], np.int32), np.array([1, 1], np.int32)
    with refusal("tax.tsv:20: duplicate edge 'A' -> 'B', first at tax.tsv:10"):
        Hierarchy.from_coded(Edges(two, one, coded, lambda edge: f"tax.tsv:{10 * edge + 10}"))
    # Also after the root, and its own edge, are taken out.
    parent, child = np.array([-1, 0, 1, 1], np.int32), np.array([0, 1, 2, 2], np.int32)
    with refusal("tax.tsv:4: duplicate edge 'A' -> 'B', first at tax.tsv:3"):
        Hierarchy.from_coded(
            Edges(parent, child, text_array(["R", "A", "B"], "name"), lambda edge: f"tax.tsv:{edge + 1}"), root="R"
        )


def test_a_second_parent_is_refused_if_a_tree_is_asked_for() -> None:
    edges = [("A", "C"), ("X", "Y"), ("B", "C")]
    with refusal(
        "not a tree: 'C' has 2 parents, 'A' (edge 1) and 'B' (edge 3); allow a DAG, or make a tree of it with unfold()"
    ):
        Hierarchy.from_edges(edges, tree=True)
    with refusal(
        "not a tree: 'B' has 2 parents, the root (edge 2) and 'A' (edge 3), and 1 more labels have several; "
        "allow a DAG, or make a tree of it with unfold()"
    ):
        Hierarchy.from_edges([("R", "A"), ("R", "B"), ("A", "B"), ("A", "C"), ("B", "C")], root="R", tree=True)
    with pytest.raises(TreelabelError, match=r"'C' has 2 parents, 'A' \(label 'C'\) and 'B' \(label 'C'\)"):
        Hierarchy.from_parents({"A": None, "B": None, "C": ["A", "B"]}, tree=True)
    with pytest.raises(TreelabelError, match="'C' has 2 parents"):
        Hierarchy.from_networkx(nx.DiGraph(edges), tree=True)
    assert not Hierarchy.from_edges(edges).is_tree


def test_wrong_roots_are_refused() -> None:
    edges = [("R", "A"), ("A", "B"), ("C", "A")]
    with refusal("the root 'X' is in no edge; the first names are 'R', 'A', 'B', 'C'"):
        Hierarchy.from_edges(edges, root="X")
    with refusal("edge 1: the root 'A' has a parent: 'R' -> 'A'"):
        Hierarchy.from_edges(edges, root="A")
    with refusal("the root 'R' has no labels below it"):
        Hierarchy.from_edges([], root="R", nodes=["R"])
    with refusal("the root 'Root' has no labels below it"):
        Hierarchy.from_edges([], nodes=["Root"])
    with pytest.raises(TreelabelError, match="the root 'B' has a parent: 'A' -> 'B'"):
        Hierarchy.from_nested({"A": "B"}, root="B")


@pytest.mark.parametrize(
    ("parents", "called", "message"),
    [
        (
            {"A": None, "B": "X"},
            None,
            "unknown parent: 'B' has parent 'X', which is no key of the mapping; add 'X': None if it is a top label",
        ),
        ({"A": None, "B": ["A", "A"]}, None, "label 'B': duplicate edge 'A' -> 'B', first at label 'B'"),
        ({"A": "A"}, None, "label 'A': self-loop: 'A' is given as its own parent"),
        ({"A": "B", "B": "A"}, None, "label 'B': cycle of 2 labels: 'B' -> 'A' -> 'B'; remove one of these edges"),
        ({"A": None, None: "A"}, None, "name number 2: empty name (None)"),
        ({"A": None, 2: None}, None, "name number 2: a name must be text, found 2"),
        ({"A": None, " ": "A"}, None, "label ' ': empty name: label 2 of 2 has no text"),
        ({"A": None, " ": None}, None, "empty name: label 2 of 2 has no text"),
        ([-1, 2], ["A", "B"], "unknown parent: node 1 ('B') has parent 2, but nodes go from 0 to 1"),
        ([-2, 0], ["A", "B"], "unknown parent: node 0 ('A') has parent -2, but nodes go from 0 to 1"),
        ([1, 0], ["A", "B"], "node 1: cycle of 2 labels: 'B' -> 'A' -> 'B'; remove one of these edges"),
        ([-1, 1], ["A", "B"], "node 1: self-loop: 'B' is given as its own parent"),
        ([-1, 0], ["A", None], "name number 2: empty name (None)"),
        ([-1, 0], ["A", ""], "node 1: empty name: label 2 of 2 has no text"),
        ([-1, 0], ["A"], "2 parents but 1 names"),
        ([-1, 0], None, "parents given as numbers need names=, one for each node"),
        ([-1.0, 0.0], ["A", "B"], "parents must be a mapping or a list of node numbers, found float64 (2,)"),
        ([[-1, 0]], ["A", "B"], "parents must be a mapping or a list of node numbers, found int64 (1, 2)"),
    ],
)
def test_parents_that_make_no_hierarchy_are_refused(parents: Any, called: Any, message: str) -> None:
    with refusal(message):
        Hierarchy.from_parents(parents, called)


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        (["A > B", "A >  > C"], "path 2: empty name in ['A', '', 'C']"),
        (["A", ""], "path 2: empty name in ['']"),
        ([["A", None]], "path 1: empty name in ['A', None]"),
        ([["A", " "]], "path 1: empty name in ['A', ' ']"),
        ([["A", 3]], "path 1: empty name in ['A', 3]"),
    ],
)
def test_paths_with_empty_names_are_refused(paths: list[Any], message: str) -> None:
    with refusal(message):
        Hierarchy.from_paths(paths)


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"A": {"B": ["C", "D", "C"]}}, "duplicate: 'C' stands twice under A > B"),
        ([{"A": {}}, {"B": {}}, {"A": {}}], "duplicate: 'A' stands twice under the root"),
        ({"name": "A", "children": [{"name": "B"}, {"name": "B"}]}, "duplicate: 'B' stands twice under A"),
        ({"A": {" ": {}}}, "under A: empty name or one that is not text: ' '"),
        ({"A": {3: {}}}, "under A: empty name or one that is not text: 3"),
        ({"A": {"B": 7}}, "under A > B: expected a dict, a list or a name, found 7"),
        ({"A": ["B", 7.5]}, "under A: expected a dict, a list or a name, found 7.5"),
        (True, "under the root: expected a dict, a list or a name, found True"),
    ],
)
def test_nested_input_that_makes_no_tree_is_refused(tree: Any, message: str) -> None:
    with refusal(message):
        Hierarchy.from_nested(tree)


def test_graphs_that_make_no_hierarchy_are_refused() -> None:
    with refusal("two nodes of the graph have the same text as a name; rename them first"):
        Hierarchy.from_networkx(nx.DiGraph([(1, "1")]))
    with refusal("the graph has no directions; expected a DiGraph with edges from parent to child"):
        Hierarchy.from_networkx(nx.Graph([("A", "B")]))
    with pytest.raises(TreelabelError, match="duplicate edge 'A' -> 'B'"):
        Hierarchy.from_networkx(nx.MultiDiGraph([("A", "B"), ("A", "B")]))


def test_wrong_node_names_are_refused() -> None:
    with refusal("node number 2: empty name (None)"):
        Hierarchy.from_edges([("A", "B")], nodes=["C", None])  # type: ignore[list-item]
    with refusal("name number 2: a name must be text, found 2"):
        Hierarchy.flat(["A", 2])  # type: ignore[list-item]
    with refusal("node 0: empty name: label 1 of 1 has no text"):
        Hierarchy.flat([""])


# What a made hierarchy promises


@given(hierarchies())
def test_equal_hierarchies_have_equal_fingerprints_and_hashes(drawn: Drawn) -> None:
    again = Hierarchy.from_edges(drawn.fast.edges("⊤"), root="⊤")
    assert again is not drawn.fast
    assert again == drawn.fast
    assert again.fingerprint == drawn.fast.fingerprint
    assert hash(again) == hash(drawn.fast)
    assert len({again, drawn.fast}) == 1


def test_the_fingerprint_changes_with_names_order_and_edges() -> None:
    different = [
        Hierarchy.from_paths(["A > B", "A > C", "D"]),
        Hierarchy.from_paths(["A > B", "A > X", "D"]),
        Hierarchy.from_paths(["A > C", "A > B", "D"]),
        Hierarchy.from_paths(["A > B", "D > C"]),
        Hierarchy.from_paths(["A > B > C", "D"]),
        Hierarchy.from_paths(["A > B", "A > C"]),
        Hierarchy.from_edges([("A", "B"), ("A", "C"), ("D", "C")]),
        Hierarchy.flat(["A", "D", "B", "C"]),
        # The same letters, cut into names elsewhere.
        Hierarchy.flat(["AD", "B", "C"]),
        Hierarchy.flat(["A", "DB", "C"]),
        Hierarchy.flat([]),
    ]
    assert len({hierarchy.fingerprint for hierarchy in different}) == len(different)
    assert len(set(different)) == len(different)
    assert Hierarchy.flat(["A"]) != "A"


def test_the_fingerprint_is_the_same_in_every_version() -> None:
    # Saved models and scores carry it: if this fails, they no longer open.
    assert Hierarchy.from_paths(["A > B", "C"]).fingerprint == "2ea56a532806083629cbe6161fd5b9cb"


@pytest.mark.parametrize("hierarchy", [WANTED, Hierarchy.from_edges([("A", "C"), ("B", "C")])], ids=["tree", "dag"])
def test_a_hierarchy_cannot_be_changed(hierarchy: Hierarchy) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        hierarchy.depth = np.zeros(5, np.int32)  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        hierarchy.other = 1  # type: ignore[attr-defined]
    arrays: dict[str, npt.NDArray[Any]] = {
        "parent_ptr": hierarchy.parent_ptr,
        "parent_idx": hierarchy.parent_idx,
        "depth": hierarchy.depth,
        "level_ptr": hierarchy.level_ptr,
        "child_ptr": hierarchy.child_graph[0],
        "child_idx": hierarchy.child_graph[1],
        "edge_child": hierarchy.edge_child,
        "is_leaf": hierarchy.is_leaf,
        "leaves": hierarchy.leaves,
        "subtree_sizes": hierarchy.subtree_sizes,
        "shortest_depth": hierarchy.shortest_depth,
    }
    assert [name for name, array in arrays.items() if array.flags.writeable] == []


def test_making_a_hierarchy_leaves_the_input_alone() -> None:
    parents = np.array([-1, 0, 0])
    Hierarchy.from_parents(parents, ["A", "B", "C"])
    assert parents.flags.writeable
    assert parents.tolist() == [-1, 0, 0]
    small = np.array([-1, 0, 0], np.int32)
    assert not np.shares_memory(Hierarchy.from_parents(small, ["A", "B", "C"]).parent, small)
    assert small.flags.writeable


def test_siblings_of_one_name_are_refused_where_only_numbers_tell_nodes_apart() -> None:
    with pytest.raises(TreelabelError, match="'a' stands 2 times at the top"):
        Hierarchy.flat(["a", "b", "a"])
    with pytest.raises(TreelabelError, match="'b' stands 2 times under 'a'"):
        Hierarchy.from_parents([-1, 0, 0], names=["a", "b", "b"])
    assert Hierarchy.from_parents([-1, -1, 0, 1], names=["a", "b", "other", "other"]).has_unique_names is False
