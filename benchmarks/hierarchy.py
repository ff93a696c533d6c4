"""The hierarchy against networkx and scipy, at a million labels.

    python benchmarks/hierarchy.py           # some minutes, 4 GB of memory; exits with 1 if a requirement is missed
    python benchmarks/hierarchy.py --quick   # a tenth of the sizes, always exits with 0

Both sides of a ratio are measured in this one run, each the best of several repetitions, on the same random tree: the
parent of each node is drawn among all nodes before it. Compiled loops are warmed first on small trees.
"""

import argparse
import sys
from functools import partial
from operator import matmul
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
from rich.console import Console
from rich.table import Table
from scipy import sparse

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.measure import Claim, best_of, best_of_each, peak_growth, report, seconds

from treelabel.hierarchy import Hierarchy, LabelMatrix, as_labels

SEED = 0

Pairs = list[tuple[str, str]]


def random_edges(nodes: int) -> Pairs:
    """Make the (parent, child) names of a random tree with one top, in random order."""
    rng = np.random.default_rng(SEED)
    parent = (rng.random(nodes) * np.arange(nodes)).astype(np.int64).tolist()
    names = [f"label {node}" for node in range(nodes)]
    return [(names[parent[node]], names[node]) for node in rng.permutation(np.arange(1, nodes)).tolist()]


def chain_edges(nodes: int) -> Pairs:
    """Make the edges of a chain in random order."""
    order = np.random.default_rng(SEED).permutation(nodes - 1).tolist()
    return [(f"label {node}", f"label {node + 1}") for node in order]


def random_labels(rows: int, nodes: int) -> LabelMatrix:
    """Make label sets of one to five random labels."""
    rng = np.random.default_rng(SEED)
    ptr = np.concatenate([[0], np.cumsum(rng.integers(1, 6, rows))])
    drawn = rng.integers(0, nodes, ptr[-1])
    return as_labels(sparse.csr_array((np.ones(len(drawn), np.bool_), drawn, ptr), (rows, nodes)), nodes)


def random_pairs(count: int, nodes: int) -> tuple[Any, Any]:
    """Make pairs of random ids."""
    left, right = np.random.default_rng(SEED).integers(0, nodes, (2, count), dtype=np.int32)
    return left, right


def warm() -> None:
    """Compile, or load from the cache, every loop that is measured."""
    tree = Hierarchy.from_edges(random_edges(5000))
    tree.closure(random_labels(5000, len(tree)))
    tree.lowest_common_ancestor(*random_pairs(5000, len(tree)))


def build(edges: Pairs) -> tuple[list[Claim], Hierarchy, Any]:
    """Build the tree from its edges, and check that it is one."""
    ours, tree = best_of(5, partial(Hierarchy.from_edges, edges, tree=True))

    def peer() -> Any:
        graph = nx.DiGraph(edges)
        assert nx.is_arborescence(graph)
        return graph

    theirs, graph = best_of(2, peer)
    nodes = len(edges) + 1
    memory = peak_growth(
        f"from benchmarks.hierarchy import Hierarchy, random_edges, warm\nwarm()\nedges = random_edges({nodes})\n",
        "tree = Hierarchy.from_edges(edges, tree=True)",
    )
    claims = [
        Claim.faster(f"build a tree of {nodes:,} named nodes", ours, "networkx", theirs, 10),
        Claim.at_most("  growth of peak memory", memory, 400),
    ]
    return claims, tree, graph


def closure_times(tree: Hierarchy, rows: int, repeats: int) -> tuple[float, float, str]:
    """Time closures, ours and scipy's in its fastest type, in turn; check that both give the same.

    scipy multiplies with the matrix of all ancestors, made beforehand, and does not sort.
    """
    labels = random_labels(rows, len(tree))
    ancestors = tree.closure(sparse.eye_array(len(tree), dtype=np.bool_, format="csr"))
    kinds = (np.bool_, np.int8, np.int32)
    products = [partial(matmul, labels.astype(kind), ancestors.astype(kind)) for kind in kinds]
    (ours, closed), *theirs = best_of_each(repeats, partial(tree.closure, labels), *products)
    for _, product in theirs:
        product.sort_indices()
        assert np.array_equal(product.indptr, closed.indptr)
        assert np.array_equal(product.indices, closed.indices)
    best = min(range(len(kinds)), key=lambda at: theirs[at][0])
    return ours, theirs[best][0], f"scipy {kinds[best].__name__}"


def common_ancestors(tree: Hierarchy, graph: Any, count: int) -> list[Claim]:
    """Find lowest common ancestors; networkx is asked for a few pairs only."""
    left, right = random_pairs(count, len(tree))
    ours, met = best_of(3, partial(tree.lowest_common_ancestor, left, right))
    few = [(tree.names[left[at]], tree.names[right[at]]) for at in range(3)]
    wanted = {pair: tree.names[met[at]] for at, pair in enumerate(few)}
    one_by_one, found = best_of(1, lambda: {pair: nx.lowest_common_ancestor(graph, *pair) for pair in few})
    assert found == wanted
    top = tree.names[0]
    at_once, found = best_of(1, lambda: dict(nx.tree_all_pairs_lowest_common_ancestor(graph, top, few)))
    assert {frozenset(pair): name for pair, name in found.items()} == {
        frozenset(pair): name for pair, name in wanted.items()
    }
    return [
        Claim.faster("lowest common ancestor, a pair", ours / count, "networkx", one_by_one / len(few), 1000),
        Claim.faster(f"  {len(few)} pairs at once", ours / count, "networkx", at_once / len(few), 1000),
        Claim(f"  {count:,} pairs", seconds(ours)),
    ]


def chain(nodes: int, count: int) -> list[Claim]:
    """Build a chain, and ask for common ancestors on it."""
    edges = chain_edges(nodes)
    built, made = best_of(3, partial(Hierarchy.from_edges, edges, tree=True))
    left, right = random_pairs(count, nodes)
    asked, met = best_of(3, partial(made.lowest_common_ancestor, left, right))
    assert made.max_depth == nodes
    assert np.array_equal(met, np.minimum(left, right))
    return [
        Claim(f"build a chain {nodes:,} deep", seconds(built)),
        Claim(f"  {count:,} common ancestors", seconds(asked)),
    ]


def growth(sizes: list[int], count: int) -> Table:
    """Measure cost by size: if all is linear, the cost of a million stays nearly the same, but for the caches."""
    table = Table(title="Seconds a million, by size of the tree", title_justify="left")
    for column in ("nodes", "build, nodes", "closure, rows", "  scipy", "  ratio", "common ancestor, pairs"):
        table.add_column(column, justify="right")
    for nodes in sizes:
        edges = random_edges(nodes)
        built, tree = best_of(3, partial(Hierarchy.from_edges, edges))
        closed, product, _ = closure_times(tree, count, 3)
        left, right = random_pairs(count, nodes)
        asked, _ = best_of(3, partial(tree.lowest_common_ancestor, left, right))
        costs = [built / nodes, closed / count, product / count]
        cells = [f"{cost * 1e6:.3f}" for cost in costs]
        table.add_row(f"{nodes:,}", *cells, f"{product / closed:.2f}x", f"{asked / count * 1e6:.3f}")
    return table


def main() -> int:
    """Measure all, print the tables, and return the exit code."""
    parser = argparse.ArgumentParser(description="Measure the hierarchy against networkx and scipy.")
    parser.add_argument("--quick", action="store_true", help="a tenth of the sizes; always exits with 0")
    quick = parser.parse_args().quick
    million = 100_000 if quick else 1_000_000
    warm()
    claims, tree, graph = build(random_edges(million))
    ours, theirs, name = closure_times(tree, million, 5)
    claims.append(Claim.faster(f"close {million:,} label sets", ours, name, theirs, 1))
    claims += common_ancestors(tree, graph, 10 * million)
    del graph
    claims += chain(million // 10, million)
    kept = report("The hierarchy against its peers", claims)
    Console(width=None if sys.stdout.isatty() else 120).print(growth([million // 100, million // 10, million], million))
    return 0 if kept or quick else 1


if __name__ == "__main__":
    sys.exit(main())
