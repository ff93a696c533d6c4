"""Random hierarchies, label sets and scores for hypothesis.

Shapes are drawn as one set of parents a node, the root being -1, and both the fast hierarchy and its slow twin are made
of them, so that the twin knows nothing of how the fast one numbers nodes.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tests.reference import ROOT, SlowHierarchy
from treelabel.hierarchy import Hierarchy

ROOT_NAME = "the root of it all"

ParentSets = list[set[int]]

# Letters, digits and signs of all scripts, and spaces; no control characters, no halves of surrogate pairs.
_CHARACTERS = st.characters(codec="utf-8", exclude_categories=["C", "Z"]) | st.just(" ")

# What makes a DAG of a tree: a diamond, or a label that hangs under the root and under another label.
_DIAMOND: ParentSets = [{ROOT}, {0}, {0}, {1, 2}]
_TOP_AND_BELOW: ParentSets = [{ROOT}, {ROOT, 0}]


@dataclass(frozen=True)
class Drawn:
    """A hierarchy and its slow twin over the same node ids."""

    fast: Hierarchy
    slow: SlowHierarchy

    def __len__(self) -> int:
        return len(self.fast)


def examples(count: int) -> settings:
    """Try this many examples, or as many as the profile allows where that is fewer."""
    return settings(max_examples=min(count, settings().max_examples))


def names(size: int) -> st.SearchStrategy[list[str]]:
    """Draw different names: of any script, with spaces inside and at the ends."""
    return st.lists(st.text(_CHARACTERS, min_size=1, max_size=6), min_size=size, max_size=size).map(_made_unique)


def _made_unique(texts: list[str]) -> list[str]:
    unique: dict[str, None] = {ROOT_NAME: None}
    for text in texts:
        name = text if text.strip() else f"{text}x"
        while name in unique:
            name += "'"
        unique[name] = None
    return list(unique)[1:]


@st.composite
def tree_parents(draw: st.DrawFn, max_nodes: int = 14) -> ParentSets:
    """Draw the parents of a tree or forest; chains, stars and single nodes come often."""
    size = draw(st.integers(1, max_nodes))
    match draw(st.sampled_from(["any", "any", "chain", "star", "flat"])):
        case "chain":
            return [{node - 1} for node in range(size)]
        case "star":
            return [{ROOT}, *({0} for _ in range(size - 1))]
        case "flat":
            return [{ROOT} for _ in range(size)]
    return [{draw(st.integers(ROOT, node - 1))} for node in range(size)]


@st.composite
def dag_parents(draw: st.DrawFn, max_nodes: int = 12) -> ParentSets:
    """Draw the parents of a DAG in which at least one label has two, the root among them or not."""
    start = draw(st.sampled_from([_DIAMOND, _TOP_AND_BELOW]))
    size = draw(st.integers(len(start), max_nodes))
    sets = [draw(st.sets(st.integers(ROOT, node - 1), min_size=1, max_size=3)) for node in range(len(start), size)]
    return [*start, *sets]


@st.composite
def _drawn(draw: st.DrawFn, shapes: st.SearchStrategy[ParentSets]) -> Drawn:
    parents = draw(shapes)
    called = draw(names(len(parents)))
    edges = [
        (ROOT_NAME if above == ROOT else called[above], called[node])
        for node, all_above in enumerate(parents)
        for above in sorted(all_above)
    ]
    fast = Hierarchy.from_edges(draw(st.permutations(edges)), root=ROOT_NAME)
    node_id = {ROOT_NAME: ROOT} | {name: node for node, name in enumerate(fast.names)}
    below: dict[int, set[int]] = {}
    for above_name, name in edges:
        below.setdefault(node_id[name], set()).add(node_id[above_name])
    return Drawn(fast, SlowHierarchy(below))


def trees(max_nodes: int = 14) -> st.SearchStrategy[Drawn]:
    """Draw trees and forests."""
    return _drawn(tree_parents(max_nodes))


def dags(max_nodes: int = 12) -> st.SearchStrategy[Drawn]:
    """Draw DAGs that are no trees."""
    return _drawn(dag_parents(max_nodes))


def hierarchies() -> st.SearchStrategy[Drawn]:
    """Draw trees, forests and DAGs."""
    return trees() | dags()


def label_rows(nodes: int) -> st.SearchStrategy[list[set[int]]]:
    """Draw the label sets of some documents, empty ones too."""
    return st.lists(st.sets(st.integers(0, nodes - 1), max_size=6), max_size=6)


@st.composite
def with_labels(draw: st.DrawFn, drawn: st.SearchStrategy[Drawn]) -> tuple[Drawn, list[set[int]]]:
    """Draw a hierarchy and label sets over it."""
    hierarchy = draw(drawn)
    return hierarchy, draw(label_rows(len(hierarchy)))


@st.composite
def with_scores(draw: st.DrawFn, drawn: st.SearchStrategy[Drawn]) -> tuple[Drawn, npt.NDArray[np.float32]]:
    """Draw a hierarchy and a dense score matrix over it, a good part of it zero."""
    hierarchy = draw(drawn)
    shape = draw(st.integers(0, 4)), len(hierarchy)
    # Eighths and their sums are exact in single precision, so that results can be compared without a tolerance.
    eighths = draw(arrays(np.int8, shape, elements=st.integers(0, 8), fill=st.just(0)))
    return hierarchy, (eighths / 8).astype(np.float32)
