"""Every way to make a hierarchy, every refusal with its place and names, and what a made one promises."""

import dataclasses
import re
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.reference import ROOT
from tests.strategies import Drawn, hierarchies, names, tree_parents, trees
from treelabel.errors import TreelabelError
from treelabel.hierarchy import Hierarchy
from treelabel.hierarchy.build import Edges, text_array

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
    "made",
    [
        Hierarchy.from_edges([("R", "A"), ("R", "E"), ("A", "B"), ("A", "C"), ("B", "D")], root="R"),
        Hierarchy.from_edges((edge for edge in [("A", "B"), ("A", "C"), ("B", "D")]), nodes=("E", "A")),
        Hierarchy.from_edges([["A", "B"], ["A", "C"], ["B", "D"]], nodes=["E"], tree=True),  # type: ignore[list-item]
        Hierarchy.from_edges(np.array([["A", "B"], ["A", "C"], ["B", "D"]]), nodes=["E"]),  # type: ignore[arg-type]
        Hierarchy.from_parents({"A": None, "E": None, "B": "A", "C": "A", "D": "B"}),
        Hierarchy.from_parents({"A": [], "E": (), "B": ["A"], "C": ("A",), "D": "B"}),
        Hierarchy.from_parents([-1, -1, 0, 0, 2], names=["A", "E", "B", "C", "D"]),
        Hierarchy.from_parents(np.array([1, -1, 0, 1, -1]), names=["B", "A", "D", "C", "E"]),
        Hierarchy.from_paths(["A > B > D", "A > C", "E"]),
        Hierarchy.from_paths(["A", "E", "A/B/D", "A / C"], sep="/"),
        Hierarchy.from_paths([("A", "B", "D"), ["A", "C"], ["E"]]),
        Hierarchy.from_nested({"A": {"B": {"D": {}}, "C": {}}, "E": {}}),
        Hierarchy.from_nested({"A": {"B": {"D": None}, "C": ""}, "E": []}),
        Hierarchy.from_nested([{"A": [{"B": ["D"]}, "C"]}, "E"]),
        Hierarchy.from_nested({"A": [{"B": "D"}, "C"], "E": None}),
        Hierarchy.from_nested(
            [
                {"name": "A", "children": [{"name": "B", "children": [{"name": "D"}]}, {"name": "C", "children": []}]},
                {"name": "E"},
            ]
        ),
        Hierarchy.from_nested(
            {"id": "root", "nodes": [{"label": "A", "items": [{"title": "B", "subcategories": "D"}, "C"]}, "E"]}
        ),
        Hierarchy.from_networkx(nx.DiGraph([("A", "B"), ("A", "C"), ("B", "D"), ("R", "E"), ("R", "A")]), root="R"),
    ],
)
def test_every_maker_makes_the_same_of_the_same(made: Hierarchy) -> None:
    assert made.paths() == ["A", "E", "A > B", "A > C", "A > B > D"] or set(made.paths()) == set(WANTED.paths())
    assert made.is_tree


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
    assert above == {
        called[node]: None if ROOT in up else called[min(up)] for node, up in enumerate(parents)
    }


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
        ([("A", "B"), ("B", "C"), ("C", "A")], "edge 3: cycle of 3 labels: 'A' -> 'B' -> 'C' -> 'A'; remove one of these edges"),
        ([("T", "A"), ("A", "B"), ("B", "A"), ("B", "C")], "cycle of 2 labels: "),
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
    with pytest.raises(TreelabelError) as caught:
        Hierarchy.from_edges(edges)
    assert message in str(caught.value)
