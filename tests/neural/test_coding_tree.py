"""Coding trees: every step against slow twins, and the entropy against that of HiTIN's own program."""

import json
import math
import os
import time
from collections.abc import Iterator
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import Drawn, dags, examples, hierarchies, trees
from treelabel import Hierarchy
from treelabel.core.errors import TreelabelError
from treelabel.core.types import IntArray
from treelabel.data import read_taxonomy
from treelabel.neural.systems.hitin_coding_tree import CodingTree, binary_tree, coding_tree, label_edges, least_rise

GOLDEN = Path(os.environ.get("TREELABEL_GOLDEN", Path(__file__).parents[3] / "shared" / "golden"))
Groups = list[frozenset[int]]


def slow_entropy(hierarchy: Hierarchy, groups: Groups) -> float:
    """Compute the entropy by its definition. Groups are nested sets of labels, the one of all labels among them."""
    edges = label_edges(hierarchy).tolist()
    degree = [sum(edge.count(label) for edge in edges) for label in range(len(hierarchy))]
    nodes = {*groups, *(frozenset([label]) for label in range(len(hierarchy)))}
    bits = 0.0
    for node in nodes:
        larger = [other for other in nodes if node < other]
        leaving = sum((one in node) != (two in node) for one, two in edges)
        if larger and leaving:
            upper = min(larger, key=len)
            bits -= leaving * math.log2(sum(degree[x] for x in node) / sum(degree[x] for x in upper))
    return bits / (2 * len(edges)) if edges else 0.0


def members_of(tree: CodingTree, level: int) -> IntArray:
    """Return the group of every label at a level."""
    groups = np.arange(len(tree.parents[0]), dtype=np.int32)
    for above in tree.parents[:level]:
        groups = above[groups]
    return groups


def entropy(hierarchy: Hierarchy, tree: CodingTree) -> float:
    """Compute the structural entropy of the label graph under a tree, in bits, level by level."""
    edges = label_edges(hierarchy)
    volume = np.bincount(edges.ravel(), minlength=len(tree.parents[0]))
    ends, bits = edges, 0.0
    for above in tree.parents:
        leaving = ends[ends[:, 0] != ends[:, 1]].ravel()
        cut = np.bincount(leaving, minlength=len(above))
        upper = np.bincount(above, weights=volume)
        crossed = cut > 0
        bits -= float(cut[crossed] @ np.log2(volume[crossed] / upper[above[crossed]]))
        volume, ends = upper, above[ends]
    return bits / max(2 * len(edges), 1)


def groups_of(tree: CodingTree) -> Groups:
    """List the groups of all levels but the labels."""
    found = []
    for level in range(1, len(tree.parents) + 1):
        members = members_of(tree, level)
        found += [frozenset(np.flatnonzero(members == group).tolist()) for group in range(tree.sizes[level])]
    return found


def merged_groups(hierarchy: Hierarchy) -> Groups:
    """List the groups of the binary tree in the order they were made, the root over all components last."""
    _, _, above = binary_tree(len(hierarchy), label_edges(hierarchy))
    below: list[set[int]] = [{node} if node < len(hierarchy) else set() for node in range(len(above))]
    for node, upper in enumerate(above[:-1]):
        below[upper] |= below[node]
    return [frozenset(labels) for labels in below[len(hierarchy) :]]


def star(leaves: int) -> Hierarchy:
    return Hierarchy.from_edges([("hub", f"leaf {number}") for number in range(leaves)])


def numbered(parents: list[int]) -> Hierarchy:
    edges = [("root" if above < 0 else str(above), str(node)) for node, above in enumerate(parents)]
    return Hierarchy.from_edges(edges, root="root")


@given(hierarchies(), st.integers(1, 5))
def test_levels_are_nested_partitions_of_the_labels(drawn: Drawn, height: int) -> None:
    tree = coding_tree(drawn.fast, height)
    assert len(tree.parents) == height
    assert tree.sizes[0] == len(drawn)
    assert tree.sizes[-1] == 1
    for above, size in zip(tree.parents, tree.sizes[1:], strict=True):
        assert above.dtype == np.int32
        assert not above.flags.writeable
        # Every group has a child, and groups are numbered in the order of their first labels.
        assert sorted(set(above.tolist())) == list(dict.fromkeys(above.tolist())) == list(range(size))


@given(hierarchies(), st.integers(1, 4))
def test_the_entropy_is_the_defined_one(drawn: Drawn, height: int) -> None:
    tree = coding_tree(drawn.fast, height)
    assert entropy(drawn.fast, tree) == pytest.approx(slow_entropy(drawn.fast, groups_of(tree)), abs=1e-12)
    flat = [frozenset(range(len(drawn)))]
    assert entropy(drawn.fast, coding_tree(drawn.fast, 1)) == pytest.approx(slow_entropy(drawn.fast, flat), abs=1e-12)


@given(hierarchies())
def test_no_merge_lets_the_entropy_rise(drawn: Drawn) -> None:
    *made, root = merged_groups(drawn.fast)
    values = [slow_entropy(drawn.fast, [root, *made[:count]]) for count in range(len(made) + 1)]
    assert all(later <= earlier + 1e-12 for earlier, later in pairwise(values))


@given(hierarchies())
def test_height_never_lets_the_entropy_rise(drawn: Drawn) -> None:
    values = [entropy(drawn.fast, coding_tree(drawn.fast, height)) for height in range(1, 6)]
    assert all(later <= earlier + 1e-12 for earlier, later in pairwise(values))
    assert entropy(drawn.fast, coding_tree(drawn.fast, len(drawn))) == pytest.approx(
        slow_entropy(drawn.fast, merged_groups(drawn.fast)), abs=1e-12
    )


@examples(30)
@given(trees(8) | dags(8), st.integers(1, 4))
def test_no_other_choice_of_merged_groups_has_less_entropy(drawn: Drawn, height: int) -> None:
    *made, root = merged_groups(drawn.fast)
    least = min(
        slow_entropy(drawn.fast, [root, *some])
        for count in range(len(made) + 1)
        for some in combinations(made, count)
        if max(sum(label in group for group in {root, *some}) for label in root) <= height
    )
    assert entropy(drawn.fast, coding_tree(drawn.fast, height)) == pytest.approx(least, abs=1e-12)


@given(hierarchies(), st.integers(1, 4))
def test_an_edge_costs_the_volume_of_the_smallest_kept_group(drawn: Drawn, height: int) -> None:
    """Kept groups are few enough on every way up, and the edge form of the entropy is the defined one."""
    edges = label_edges(drawn.fast)
    volume, cut, above = binary_tree(len(drawn), edges)
    kept = least_rise(volume, cut, above, height)
    cost = 0.0
    for node in range(len(above)):
        way = [node]
        while above[way[-1]] >= 0:
            way.append(above[way[-1]])
        assert sum(kept[each] for each in way if each >= len(drawn)) <= height
        cost += cut[node] * math.log2(max(1, next(volume[each] for each in way if kept[each])))
    degree = np.bincount(edges.ravel(), minlength=1)
    bits = 2 * cost - float(degree @ np.log2(np.maximum(degree, 1)))
    assert entropy(drawn.fast, coding_tree(drawn.fast, height)) == pytest.approx(
        bits / max(1, 2 * len(edges)), abs=1e-12
    )


@given(hierarchies())
def test_the_same_hierarchy_has_the_same_tree(drawn: Drawn) -> None:
    one, two = coding_tree(drawn.fast, 3), coding_tree(drawn.fast, 3)
    assert all(np.array_equal(*pair) for pair in zip(one.parents, two.parents, strict=True))


def test_a_hierarchy_without_edges() -> None:
    h = Hierarchy.flat(["a", "b", "c"])
    tree = coding_tree(h, 2)
    assert tree.sizes == (3, 3, 1)
    assert entropy(h, tree) == 0


def test_one_label() -> None:
    assert coding_tree(Hierarchy.flat(["a"]), 3).sizes == (1, 1, 1, 1)


def test_a_label_without_edges_stands_alone() -> None:
    tree = coding_tree(numbered([-1, -1, 0, 0]))
    assert [group for group in groups_of(tree) if 1 in group] == [{1}, {0, 1, 2, 3}]


def test_seven_stars_are_seven_groups() -> None:
    """The hierarchy of Web of Science, by hand: an edge costs the volume of its star, and a star has leaves + hub."""
    leaves = [17, 16, 19, 9, 11, 53, 9]
    h = Hierarchy.from_edges(
        [(f"hub {hub}", f"{hub} {leaf}") for hub, size in enumerate(leaves) for leaf in range(size)]
    )
    tree = coding_tree(h, 2)
    assert tree.sizes == (141, 7, 1)
    by_hand = sum(2 * size * math.log2(2 * size) - size * math.log2(size) for size in leaves) / 268
    assert entropy(h, tree) == pytest.approx(by_hand)


@pytest.mark.parametrize("height", [0, -1])
def test_a_tree_without_height_is_refused(height: int) -> None:
    with pytest.raises(TreelabelError, match="at least 1"):
        coding_tree(star(2), height)


def golden_cases() -> Iterator[tuple[dict[str, Any], Hierarchy]]:
    """Read what HiTIN's own program reached, or skip where it was not handed out."""
    file = GOLDEN / "coding_tree.json"
    if not file.exists():
        pytest.skip(f"no reference values at {file}; set TREELABEL_GOLDEN to their folder")
    for case in json.loads(file.read_text())["cases"]:
        name, data = case["taxonomy"], GOLDEN.parent / "data"
        listed = data / "taxonomies" / f"{name}.taxonomy"
        taxonomy = listed if listed.exists() else data / name / "taxonomy.tsv"
        if not taxonomy.exists():
            pytest.skip(f"no taxonomy at {taxonomy}")
        rooted = any(line.startswith("Root\t") for line in taxonomy.read_text().splitlines())
        yield case, read_taxonomy(taxonomy, root="Root" if rooted else None)


def test_the_entropy_is_at_most_that_of_the_official_program() -> None:
    for case, h in golden_cases():
        tree = coding_tree(h, case["k"])
        assert (len(h), len(label_edges(h))) == (case["nodes"], case["edges"])
        assert entropy(h, coding_tree(h, 1)) == pytest.approx(case["one_dimensional_entropy"], abs=1e-9)
        assert entropy(h, tree) <= case["structural_entropy"] + 1e-9, case


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["random", "star", "path", "wide"])
def test_twenty_thousand_labels_take_seconds(shape: str) -> None:
    labels = 20_000
    random = np.random.default_rng(0)
    parents = {
        "random": [int(random.integers(-1, node)) if node else -1 for node in range(labels)],
        "star": [-1, *[0] * (labels - 1)],
        "path": list(range(-1, labels - 1)),
        "wide": [*[-1] * 20, *(node % 20 for node in range(labels - 20))],
    }[shape]
    h = numbered(parents)
    coding_tree(star(3))
    start = time.perf_counter()
    tree = coding_tree(h, 4)
    assert time.perf_counter() - start < 60
    assert entropy(h, tree) < entropy(h, coding_tree(h, 1))
