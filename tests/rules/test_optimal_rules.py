"""No closed set has a higher expected value than what an optimal rule chooses: brute force on at most eight nodes."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest

from tests import reference_metrics as metrics
from tests.reference import ROOT, SlowHierarchy, matrix_of, sets_of
from tests.reference_rules import (
    OPTIMA,
    SIMILARITIES,
    Doubles,
    World,
    expected_f,
    expected_f_of_subsets,
    largest_expected_f,
)
from treelabel import Decisions, Hierarchy, Scores, decide, evaluate
from treelabel.hierarchy import label_matrix
from treelabel.rules import RULES

# Scores are single precision, expected values are not.
TOLERANCE = 1e-6

Options = dict[str, Any]


@dataclass(frozen=True)
class Small:
    """A small hierarchy, and for some documents the probability that the true path ends at each node."""

    fast: Hierarchy
    world: World
    masses: Doubles

    @property
    def scores(self) -> Scores:
        return Scores(self.fast, self.masses @ self.world.paths)

    @property
    def training(self) -> Options:
        """What rules want to know of training."""
        frequencies = [self.world.case.frequency(node) for node in self.world.nodes]
        return {"train_frequencies": frequencies, "train_documents": len(self.world.training)}

    def decided(self, rule: str, options: Options) -> Decisions:
        return decide(self.scores, rule, **options, **self.training)

    def places(self, decisions: Decisions) -> list[int]:
        """Where the sets that were decided stand among all closed sets."""
        return [self.world.place[frozenset(row)] for row in sets_of(decisions.csr, len(self.fast))]

    def expected(self, rule: str, options: Options) -> Doubles:
        """The expected value of every closed set for every document; -inf where it is no decision of that kind."""
        known = {"masses": self.masses} if rule == "optimal:level_accuracy" else {}
        values = OPTIMA[rule](self.world, **options, **known)
        is_one = np.isfinite(values[:, 0])
        expected = self.masses @ np.where(is_one[:, None], values, 0.0).T
        expected += (1 - self.masses.sum(axis=1))[:, None] * self.lost(rule, options)
        return np.where(is_one, expected, -np.inf)

    def lost(self, rule: str, options: Options) -> Doubles:
        """What each closed set is worth where nothing is true; other metrics are of documents that have a path.

        Two empty sets are alike, and so is the root to itself.
        """
        weights = np.zeros(len(self.fast))
        match rule:
            case "optimal:hamming":
                weights -= 1 / len(self.fast)
            case "optimal:shortest_path":
                weights -= 1
            case "optimal:icm":
                weights = (options.get("alpha", 2) - options.get("beta", 3)) * self.world.bits
            case "optimal:hf1" | "optimal:hf1_root" | "optimal:hf_beta":
                squared = options.get("beta", 1) ** 2
                has_root = options.get("count_root", rule == "optimal:hf1_root")
                sizes = self.world.sets.sum(axis=1)
                return np.asarray((1 + squared) / (sizes + 1 + squared) if has_root else (sizes == 0) * 1.0)
            case "optimal:info_hf1":
                return np.asarray((self.world.sets @ self.world.bits == 0) * 1.0)
            case "optimal:wu_palmer" | "optimal:lin":
                twin = metrics.wu_palmer if rule == "optimal:wu_palmer" else metrics.lin
                return np.array([0.0 if end is None else twin(self.world.case, end, ROOT) for end in self.world.ends])
        return self.world.sets @ weights


# Hierarchies and distributions


def some_parents(rng: np.random.Generator, size: int, kind: str) -> list[set[int]]:
    """Draw a shape: the parents of each node, the root being -1."""
    match kind:
        case "chain":
            return [{node - 1} for node in range(size)]
        case "star":
            return [{ROOT}, *({0} for _ in range(size - 1))]
        case "flat":
            return [{ROOT} for _ in range(size)]
        case "DAG":
            first: list[set[int]] = [{ROOT}, {ROOT, 0}] if rng.random() < 0.5 else [{ROOT}, {0}, {0}, {1, 2}]
            return first + [set(rng.integers(ROOT, node, 2).tolist()) for node in range(len(first), size)]
    return [{int(rng.integers(ROOT, node))} for node in range(size)]


def both_hierarchies(parents: list[set[int]]) -> tuple[Hierarchy, SlowHierarchy]:
    """Make the hierarchy and its twin over the same ids."""
    names = [*(f"node {node}" for node in range(len(parents))), "the root"]
    edges = [(names[above], names[node]) for node, all_above in enumerate(parents) for above in sorted(all_above)]
    fast = Hierarchy.from_edges(edges, root="the root")
    number = {name: node for node, name in enumerate(fast.names)} | {"the root": ROOT}
    below: dict[int, set[int]] = {}
    for above, node in edges:
        below.setdefault(number[node], set()).add(number[above])
    return fast, SlowHierarchy(below)


def some_masses(rng: np.random.Generator, ends: list[int], nodes: int) -> Doubles:
    """Draw distributions over ends: none, certain, equal, equal for two, and random ones, some of which lack mass."""
    count = len(ends)
    rows = [np.zeros(count), np.eye(count)[rng.integers(count)], np.full(count, 1 / count)]
    rows.append((np.eye(count)[rng.integers(count)] + np.eye(count)[rng.integers(count)]) / 2)
    rows += [rng.dirichlet(np.full(count, sharp)) for sharp in (0.3, 0.3, 1.0, 1.0, 5.0)]
    rows += [rng.dirichlet(np.ones(count)) * 0.7, rng.integers(0, 3, count) / (2 * count)]
    masses = np.zeros((len(rows), nodes))
    masses[:, ends] = rows
    return masses


@cache
def drawn(kind: str, partial: bool) -> list[Small]:
    """Draw hierarchies, once for all rules; true paths end in leaves or anywhere."""
    rng = np.random.default_rng(sum(map(ord, kind)) + partial)
    found = []
    for _ in range(80 if kind in ("any", "DAG") else 15):
        fast, slow = both_hierarchies(some_parents(rng, int(rng.integers(1, 9)), kind))
        training = [{int(node)} for node in rng.integers(0, len(fast), rng.integers(1, 40))]
        ends = sorted(slow.parents if partial else slow.leaves)
        found.append(Small(fast, World(slow, training), some_masses(rng, ends, len(fast))))
    return found


def worlds(dag: bool, partial: bool) -> Iterator[Small]:
    """Trees of all kinds, or DAGs."""
    for kind in ("DAG",) if dag else ("any", "chain", "star", "flat"):
        yield from drawn(kind, partial)


PATHS = pytest.mark.parametrize("partial", [False, True], ids=["to leaves", "to anywhere"])
HIERARCHIES = pytest.mark.parametrize("dag", [False, True], ids=["trees", "DAGs"])


def assert_none_better(case: Small, rule: str, options: Options, share: float = 1.0) -> None:
    """Compare what a rule decides with every closed set."""
    expected = case.expected(rule, options)
    for row, place in enumerate(case.places(case.decided(rule, options))):
        if not case.masses[row].any():
            assert not case.world.closed_sets[place]
            continue
        reached, most = expected[row, place], expected[row].max()
        assert reached >= share * most - TOLERANCE, (
            f"{rule} {options} chooses {sorted(case.world.closed_sets[place])} with {reached}, but "
            f"{sorted(case.world.closed_sets[int(expected[row].argmax())])} has {most}; "
            f"parents {case.world.h.parents}, ends {case.masses[row].tolist()}, training {case.world.training}"
        )


# Exact rules


SETS: list[tuple[str, Options]] = [
    ("optimal:hamming", {}),
    ("optimal:shortest_path", {}),
    *[("optimal:icm", {"alpha": alpha, "beta": beta}) for alpha, beta in [(2, 3), (1, 3), (3, 3), (1, 10), (2, 2.5)]],
    ("optimal:icm", {}),
    ("optimal:hf1", {}),
    ("optimal:hf1", {"count_root": True}),
    ("optimal:hf1_root", {}),
    *[("optimal:hf_beta", {"beta": beta, "count_root": root}) for beta in (0, 0.5, 1, 2, 5) for root in (False, True)],
]


@PATHS
@HIERARCHIES
@pytest.mark.parametrize(("rule", "options"), SETS, ids=str)
def test_no_closed_set_is_better(rule: str, options: Options, dag: bool, partial: bool) -> None:
    for case in worlds(dag, partial):
        assert_none_better(case, rule, options)


@PATHS
@pytest.mark.parametrize("name", ["level_accuracy", "onehot_win", "wu_palmer", "lin"])
def test_no_other_path_of_a_tree_is_better(name: str, partial: bool) -> None:
    for case in worlds(False, partial):
        assert_none_better(case, f"optimal:{name}", {})


@HIERARCHIES
def test_no_other_leaf_is_right_more_often(dag: bool) -> None:
    for case in worlds(dag, partial=False):
        assert_none_better(case, "optimal:leaf_accuracy", {})


@HIERARCHIES
@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_no_node_is_more_similar(similarity: str, dag: bool) -> None:
    for case in worlds(dag and similarity != "win", partial=False):
        assert_none_better(case, "optimal:cost", {"similarity": similarity})


@HIERARCHIES
@pytest.mark.parametrize("rows", ["nodes", "leaves"])
def test_no_node_costs_less(rows: str, dag: bool) -> None:
    rng = np.random.default_rng(0)
    for case in worlds(dag, partial=False):
        leaves = len(case.fast.leaves)
        matrix = rng.normal(size=(len(case.fast) if rows == "nodes" else leaves, leaves)).round(1)
        assert_none_better(case, "optimal:cost", {"matrix": matrix})


@pytest.mark.parametrize("name", ["wu_palmer", "lin"])
def test_a_similarity_with_a_rule_of_its_own_is_as_good_as_its_cost_matrix(name: str) -> None:
    compared = 0
    for case in worlds(dag=False, partial=False):
        expected = case.expected(f"optimal:{name}", {})
        own = case.places(case.decided(f"optimal:{name}", {}))
        by_matrix = case.places(case.decided("optimal:cost", {"similarity": name}))
        for row, (one, two) in enumerate(zip(own, by_matrix, strict=True)):
            # A matrix has no row for predicting nothing, which is the empty set, the first of all; nor a column.
            if one != 0 and case.masses[row].sum() > 1 - TOLERANCE:
                assert expected[row, one] == pytest.approx(expected[row, two], abs=TOLERANCE)
                compared += 1
    assert compared > 900


@PATHS
@pytest.mark.parametrize("beta", [0.5, 1, 2])
def test_the_search_by_bits_comes_within_two_percent(beta: float, partial: bool) -> None:
    assert RULES["optimal:info_hf1"].is_exact is False
    for case in worlds(False, partial):
        assert_none_better(case, "optimal:info_hf1", {"beta": beta}, share=0.98)


# What brute force calls a value is what the metric of that name gives

MEASURED = ["hamming", "shortest_path", "icm", "hf1", "hf1_root", "hf_beta", "info_hf1"]
MEASURED_SINGLE = ["leaf_accuracy", "onehot_win", "wu_palmer", "lin"]


@pytest.mark.parametrize("name", [*MEASURED, *MEASURED_SINGLE])
def test_expected_values_are_of_the_metric_that_the_rule_is_for(name: str) -> None:
    assert RULES[f"optimal:{name}"].best_for == name
    sign = -1 if name in ("hamming", "shortest_path") else 1
    for case in [*drawn("any", False)[:8], *drawn("chain", True)[:3]]:
        world = case.world
        places = [at for at, end in enumerate(world.ends) if end is not None or name in MEASURED]
        pairs = [(at, true) for at in places for true in world.nodes]
        values = OPTIMA[f"optimal:{name}"](world)
        judged = evaluate(
            matrix_of([{true} for _, true in pairs], len(case.fast)),
            matrix_of([set(world.closed_sets[at]) for at, _ in pairs], len(case.fast)),
            hierarchy=case.fast,
            metrics=[name],
            **case.training,
        )
        found = [sign * values[at, true] for at, true in pairs]
        assert next(iter(judged.documents.values())) == pytest.approx(found, abs=1e-12)


@PATHS
def test_values_by_level_add_up_to_the_metric_where_the_truth_is_certain(partial: bool) -> None:
    rng = np.random.default_rng(0)
    for case in drawn("any", partial)[:40]:
        world = case.world
        truth = rng.choice(sorted(world.nodes if partial else world.h.leaves), 5)
        places = rng.integers(0, len(world.closed_sets), 5)
        masses = np.eye(len(case.fast))[truth]
        values = OPTIMA["optimal:level_accuracy"](world, masses=masses)
        judged = evaluate(
            matrix_of([{int(true)} for true in truth], len(case.fast)),
            matrix_of([set(world.closed_sets[at]) for at in places], len(case.fast)),
            hierarchy=case.fast,
            metrics=["level_accuracy"],
        )
        levels = len(judged.values) - 1
        assert values[places, truth].sum() / levels == pytest.approx(judged["level_accuracy"])


# Hierarchies too large to list all sets: what a best set of many nodes is, and what is too unlikely to be in it


def large_parents(rng: np.random.Generator, size: int, kind: str) -> list[set[int]]:
    match kind:
        case "deep":
            # A spine of more levels than unlikely nodes are folded in, with a leaf at every node.
            return [{ROOT}, *({max(0, node - 2) // 2 * 2} for node in range(1, 160))]
        case "bushy":
            return [{ROOT if node < 4 else int(rng.integers(0, max(4, node // 5)))} for node in range(size)]
    return some_parents(rng, size, kind)


@pytest.mark.parametrize(
    ("kind", "form"),
    # In a DAG the best scores are no probabilities of paths any more.
    [(kind, form) for kind in ("any", "bushy", "flat", "deep") for form in ("dense", "csr", "best 25")]
    + [("DAG", "dense"), ("DAG", "csr")],
)
@pytest.mark.slow
def test_no_set_of_a_large_hierarchy_is_better(kind: str, form: str) -> None:
    rng = np.random.default_rng(len(kind))
    sizes = set()
    for trial in range(6):
        fast, _ = both_hierarchies(large_parents(rng, 40 + 20 * trial, kind))
        paths = fast.closure(label_matrix(np.arange(len(fast) + 1), np.arange(len(fast)), len(fast))).toarray() * 1.0
        ends = np.arange(len(fast)) if trial % 2 else fast.leaves
        masses = np.zeros((6, len(fast)))
        masses[:, ends] = [rng.dirichlet(np.full(len(ends), sharp)) for sharp in (0.05, 0.2, 1, 1, 5, 50)]
        scores = Scores(fast, masses @ paths)
        if form == "best 25":
            # What the kept children of a node lack of its score ends there.
            scores = scores.top_k(25)
            masses = scores.dense().astype(np.float64)
            for node in np.flatnonzero(fast.parent >= 0):
                masses[:, fast.parent[node]] -= scores.dense()[:, node]
            masses = masses.clip(0)
        elif form == "csr":
            scores = Scores(fast, scores.csr())
        for beta, count_root in ((1.0, False), (1.0, True), (0.5, False), (2.0, True), (5.0, False)):
            found = decide(scores, "optimal:hf_beta", beta=beta, count_root=count_root, closed=False)
            for row, labels in enumerate(sets_of(found.csr, len(fast))):
                reached = expected_f(paths, masses[row], labels, beta, count_root)
                most = largest_expected_f(paths, masses[row], beta, count_root)
                assert reached == pytest.approx(most, abs=TOLERANCE), (trial, row, beta, count_root)
                sizes.add(len(labels))
    assert max(sizes) > 17


# Independent labels


@pytest.mark.parametrize("empty", [0, 0.5, 1])
@pytest.mark.parametrize("beta", [0.5, 1, 2])
def test_no_set_of_independent_labels_is_better(beta: float, empty: float) -> None:
    rng = np.random.default_rng(0)
    for trial in range(60):
        size = 1 + trial % 6
        row = rng.random(size) ** rng.choice([0.5, 1, 3]) * (rng.random(size) < 0.9)
        row = (row.round(1) if trial % 3 == 0 else row).astype(np.float32)
        scores = Scores(Hierarchy.flat(map(str, range(size))), [row])
        expected = expected_f_of_subsets(row.tolist(), beta, empty)
        chosen = frozenset(decide(scores, "optimal:samples_f1", beta=beta, empty=empty).csr.indices.tolist())
        assert expected[chosen] == pytest.approx(max(expected.values()), abs=1e-9)


@pytest.mark.parametrize("beta", [0.5, 1, 2])
def test_coherent_scores_of_independent_labels_give_closed_sets_that_none_is_better_than(beta: float) -> None:
    for case in worlds(dag=False, partial=True):
        if len(case.fast) <= 6:
            scores = case.scores
            found = decide(scores, "optimal:samples_f1", beta=beta, closed=False)
            assert (found.csr != decide(scores, "optimal:samples_f1", beta=beta).csr).nnz == 0
            row = 4
            expected = expected_f_of_subsets(scores.dense()[row].tolist(), beta)
            chosen = frozenset(found[row].csr.indices.tolist())
            assert expected[chosen] == pytest.approx(max(expected.values()), abs=1e-9)


def test_children_that_sum_to_more_than_their_parent_are_not_folded_away() -> None:
    names = [f"X{number:02}" for number in range(16)] + [f"A > c{number}" for number in range(20)]
    # The chain has no scores; a hierarchy this deep is searched without folding.
    chain = " > ".join(f"z{level}" for level in range(70))
    folded, unfolded = Hierarchy.from_paths(names), Hierarchy.from_paths([*names, chain])
    chosen = []
    for h in (folded, unfolded):
        values = [[{"X": 0.3, "z": 0.0}.get(name[0], 0.05) for name in h.names]]
        chosen.append(decide(Scores(h, values), "optimal:hf1").names())
    assert chosen[0] == chosen[1]
    assert len(chosen[0][0]) == 3


def test_equal_gains_in_a_dag_leave_the_set_closed() -> None:
    chain = [("q0", "q1"), ("q1", "q2"), *(("q2", f"l{number}") for number in range(4))]
    edges = [("R", "q0"), *chain, ("R", "y0"), *((f"y{step}", f"y{step + 1}") for step in range(8))]
    edges += [("R", "x"), ("R", "z"), ("z", "w"), ("R", "u"), ("u", "w")]
    h = Hierarchy.from_edges(edges, root="R")
    known = dict.fromkeys(["q0", "q1", "q2"], 0.3247641921043396) | {"x": 0.19254052639007568}
    leaves = [0.10067546367645264, 0.0883830115199089, 0.01852533593773842, 0.11335062235593796]
    known |= {f"l{number}": p for number, p in enumerate(leaves)}
    steps = [0.4826952815055847, 0.4620985686779022, 0.4294760823249817, 0.41984012722969055, 0.39170414209365845]
    steps += [0.15292207896709442, 0.147650808095932, 0.14450381696224213, 0.01595434918999672]
    known |= {f"y{step}": p for step, p in enumerate(steps)}
    scores = Scores(h, [[known.get(name, 0.0) for name in h.names]])
    chosen = decide(scores, "optimal:hf_beta@0.5(closed=false)")
    assert h.closure(chosen.csr).nnz == chosen.csr.nnz
    assert sorted(chosen.names()[0]) == ["q0", "y0", "y1", "y2", "y3", "y4"]


# Nothing is true


def test_nothing_is_predicted_where_nothing_is_likelier_to_be_true() -> None:
    h = Hierarchy.from_paths(["A > B", "A > C"])
    scores = Scores(h, [[0.3, 0.2, 0.1], [0.8, 0.7, 0.1]])
    for rule in ("optimal:hf1", "optimal:hf_beta@2", "optimal:lin"):
        assert decide(scores, rule, train_frequencies=[2, 1, 1], train_documents=9).names() == [[], ["A", "B"]]
    assert decide(scores, "optimal:hf1(empty=0)").names() == [["A", "B"], ["A", "B"]]


def test_a_truth_without_information_is_met_by_labels_without_any() -> None:
    h = Hierarchy.from_paths(["A > B"])
    scores = Scores(h, [[1.0, 0.01], [1.0, 0.6], [0.3, 0.2]])
    chosen = decide(scores, "optimal:info_hf1", train_frequencies=[10, 1], train_documents=10)
    assert chosen.names() == [["A"], ["A", "B"], []]
