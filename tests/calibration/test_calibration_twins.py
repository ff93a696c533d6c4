"""Every calibration against its slow twin on random hierarchies, and what must hold whatever the parameters are."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from scipy.special import expit

from tests import reference_calibration as slow
from tests.reference import matrix_of
from treelabel import Hierarchy, Scores, TreelabelError
from treelabel.calibration import candidates, likelihood, path_kernels, pools
from treelabel.calibration.candidates import CandidateIsotonic, CandidateSoftmax
from treelabel.calibration.contract import (
    ABSENT,
    LEVELS,
    OutputSpace,
    levels_of,
    softmax_of_spread,
    sum_to_nodes,
    terminal_paths,
)
from treelabel.calibration.isotonic import STEPS, Isotonic, _fit_slopes, apply_isotonic, fit_isotonic, log_odds
from treelabel.calibration.path_softmax import (
    PathSoftmax,
    _sample_terminals,
    fit_uniform_weights,
    possible_terminals,
)
from treelabel.calibration.pools import CandidatePool, NodePool, PathPool
from treelabel.calibration.siblings import SiblingSigmoid, SiblingSoftmax
from treelabel.core.array_schema import Schema
from treelabel.hierarchy import LabelMatrix, label_matrix

Rng = np.random.Generator
SEEDS = st.integers(0, 1 << 30)


def random_tree(rng: Rng) -> Hierarchy:
    """Draw a tree of 2 to 14 nodes, up to 12 levels deep."""
    paths = ["0"]
    for number in range(1, int(rng.integers(2, 15))):
        parent = paths[int(rng.integers(max(0, len(paths) - 4), len(paths)))] if rng.random() < 0.8 else ""
        paths.append(f"{parent} > {number}" if parent else str(number))
    return Hierarchy.from_paths(paths)


def random_dag(rng: Rng) -> Hierarchy:
    """Draw a DAG in which some nodes have two parents."""
    edges = [("a", "c"), ("b", "c"), ("a", "d"), ("b", "e"), ("c", "f"), ("d", "f"), ("c", "g")]
    some = [edges[0], edges[1], *(edge for edge in edges[2:] if rng.random() < 0.7)]
    return Hierarchy.from_edges(some)


def one_path(h: Hierarchy, rng: Rng, documents: int, leaves: bool = False) -> LabelMatrix:
    """Draw a label for each document."""
    pool = h.leaves if leaves else np.arange(len(h))
    return label_matrix(np.arange(documents + 1), rng.choice(pool, documents).astype(np.int32), len(h))


def margins_for(outputs: OutputSpace, rng: Rng, documents: int = 5) -> Any:
    return rng.normal(size=(documents, outputs.count)).astype(np.float32)


def level_numbers(rng: Rng, low: float, high: float, *more: int) -> Any:
    return rng.uniform(low, high, (LEVELS + 1, *more))


@given(SEEDS, st.booleans())
def test_path_softmax(seed: int, dag: bool) -> None:
    rng = np.random.default_rng(seed)
    h = (random_dag if dag else random_tree)(rng)
    outputs = OutputSpace.of(h, one_path(h, rng, 9))
    weights, mixture = level_numbers(rng, -1, 2), np.array([rng.uniform(0.5, 3), rng.uniform(0.05, 1), rng.random()])
    uniform = np.zeros(LEVELS + 1) if dag else level_numbers(rng, 0, 1)
    margins = margins_for(outputs, rng)
    fast = PathSoftmax(outputs, weights, mixture, uniform).probabilities(margins)
    for row, p in zip(margins.tolist(), fast, strict=True):
        expected = slow.sum_up(h, slow.path_softmax(outputs, row, weights, mixture))
        expected = expected if dag else slow.mix_with_uniform(h, expected, uniform)
        assert p == pytest.approx(expected, abs=2e-5)
    assert Scores(h, fast).is_coherent()
    if not dag:
        assert fast[:, h.parent < 0].sum(axis=1) == pytest.approx(1, abs=1e-5)


@given(SEEDS, st.booleans())
def test_beta_calibration_of_the_likeliest(seed: int, dag: bool) -> None:
    rng = np.random.default_rng(seed)
    h = (random_dag if dag else random_tree)(rng)
    outputs = OutputSpace.of(h, one_path(h, rng, 9))
    beta = np.array([rng.uniform(0, 2), rng.uniform(0, 2), rng.normal()])
    plain = PathSoftmax(outputs, level_numbers(rng, 0, 1), np.array([1.0, 0.5, 0.3]), beta=beta)
    margins = margins_for(outputs, rng)
    for row, p in zip(margins.tolist(), plain.probabilities(margins), strict=True):
        terminals = slow.path_softmax(outputs, row, plain.level_weights, plain.mixture)
        if len(terminals) > 1:
            assert p == pytest.approx(slow.sum_up(h, slow.beta_calibrate(terminals, beta)), abs=2e-3)
    neutral = PathSoftmax(outputs, plain.level_weights, plain.mixture)
    assert PathSoftmax(outputs, plain.level_weights, plain.mixture, beta=np.array([1.0, 1.0, 1e-12])).probabilities(
        margins
    ) == pytest.approx(neutral.probabilities(margins), abs=1e-4)


@given(SEEDS)
def test_sibling_softmax(seed: int) -> None:
    rng = np.random.default_rng(seed)
    h = random_tree(rng)
    outputs = OutputSpace.of(h, one_path(h, rng, 9), shared=False)
    inverse, uniform = level_numbers(rng, 0.1, 3), level_numbers(rng, 0, 1)
    margins = margins_for(outputs, rng)
    fast = SiblingSoftmax(outputs, inverse, uniform).probabilities(margins)
    for row, p in zip(margins.tolist(), fast, strict=True):
        expected = slow.mix_with_uniform(h, slow.sibling_softmax(outputs, row, inverse), uniform)
        assert p == pytest.approx(expected, abs=1e-5)
    assert Scores(h, fast).is_coherent()
    # A temperature of 1 changes nothing: it is the plain softmax of margins.
    plain = SiblingSoftmax(outputs).probabilities(margins[:1])[0]
    assert plain == pytest.approx(slow.sibling_softmax(outputs, margins[0].tolist(), [1.0] * (LEVELS + 1)), abs=1e-5)


@given(SEEDS, st.booleans())
def test_sibling_sigmoid(seed: int, dag: bool) -> None:
    rng = np.random.default_rng(seed)
    h = (random_dag if dag else random_tree)(rng)
    outputs = OutputSpace.of(h, one_path(h, rng, 9), multiple_paths=True, shared=False)
    sigmoids = level_numbers(rng, -2, 2, 2)
    margins = margins_for(outputs, rng)
    fast = SiblingSigmoid(outputs, sigmoids).probabilities(margins)
    for row, p in zip(margins.tolist(), fast, strict=True):
        assert p == pytest.approx(slow.sibling_sigmoid(outputs, row, sigmoids), abs=1e-5)
    assert Scores(h, fast).is_coherent()


@given(SEEDS)
def test_isotonic_regression(seed: int) -> None:
    rng = np.random.default_rng(seed)
    evidence = rng.normal(size=int(rng.integers(2, 60))).astype(np.float32)
    true = rng.random(len(evidence)) < expit(2 * evidence)
    fitted = fit_isotonic(evidence, true)
    assert fitted == pytest.approx(slow.isotonic_fit(evidence.tolist(), true.tolist(), STEPS), abs=1e-6)
    assert (np.diff(fitted[2:]) >= -1e-9).all()
    asked = rng.normal(size=20) * 2
    p = apply_isotonic(asked, np.zeros(20, np.int32), fitted[None])
    assert p == pytest.approx([slow.isotonic_value(fitted, each) for each in asked.tolist()], abs=1e-6)
    # What is mixed in is a sigmoid with a weight of a tenth, which rises everywhere.
    mixed = fit_isotonic(evidence, true, 0.1)
    slope, intercept = likelihood.fit_sigmoid(evidence, true)
    middles = fitted[0] + (fitted[1] - fitted[0]) * (np.arange(STEPS + 1) + 0.5) / STEPS
    assert mixed[2:] == pytest.approx(0.9 * fitted[2:] + 0.1 * expit(slope * middles + intercept), abs=1e-9)


def test_evidence_that_separates_gives_nearly_0_and_1() -> None:
    evidence = np.linspace(-1, 1, 1000).astype(np.float32)
    fitted = fit_isotonic(evidence, evidence > 0)
    p = apply_isotonic(np.array([-9.0, -0.5, 0.5, 9.0]), np.zeros(4, np.int32), fitted[None])
    # Half a document of each kind among a thousand is seen at either end.
    assert p == pytest.approx([0.0005, 0.0005, 0.9995, 0.9995], abs=2e-6)


@given(SEEDS, st.booleans())
def test_isotonic_calibration_of_margins(seed: int, dag: bool) -> None:
    rng = np.random.default_rng(seed)
    h = (random_dag if dag else random_tree)(rng)
    outputs = OutputSpace.of(h, one_path(h, rng, 9), multiple_paths=True)
    maps = np.array([[-3.0, 3.0, *np.sort(rng.random(STEPS + 1))] for _ in range(LEVELS + 1)])
    calibration = Isotonic(
        outputs, level_numbers(rng, 0, 2), np.array([1.0, 0.3, 0.2]), level_numbers(rng, -1, 6, 3), maps
    )
    margins = margins_for(outputs, rng)
    fast = calibration.probabilities(margins)
    has_odds = len(outputs.terminals) > 1
    for row, p in zip(margins.tolist(), fast, strict=True):
        expected = [0.0] * len(h)
        # Where only inner nodes are labels there is no path to compare.
        terminals = slow.path_softmax(outputs, row, calibration.level_weights, calibration.mixture) if has_odds else {}
        competing = slow.sum_up(h, terminals)
        for node, output in zip(outputs.nodes.tolist(), outputs.node_outputs.tolist(), strict=True):
            a, b, c = calibration.coefficients[slow.level_of(h, node)]
            inside = min(max(competing[node], 1.2e-7), 1 - 1.2e-7)
            odds = np.log(inside / (1 - inside)) if has_odds else 0.0
            z = min(max(a * row[output] + b * odds + c, -15.0), 15.0)
            expected[node] = slow.isotonic_value(maps[slow.level_of(h, node)], z)
        # Sums of a softmax are rounded in single precision, which odds of nearly 1 show.
        assert p == pytest.approx(slow.raise_to_children(h, expected), abs=5e-3)
    assert Scores(h, fast).is_coherent()


def test_log_odds_are_cut_where_single_precision_ends() -> None:
    p = np.array([[0.0, 0.5, 0.75, 1.0]], np.float32)
    assert log_odds(p)[0] == pytest.approx([-15.94, 0, np.log(3), 15.94], abs=0.06)


@given(SEEDS)
def test_candidate_softmax(seed: int) -> None:
    rng = np.random.default_rng(seed)
    h = random_tree(rng)
    counts = rng.integers(0, 3, len(h)).astype(np.int64)
    numbers = np.array([rng.uniform(0.1, 3), rng.uniform(1e-3, 1)])
    calibration = CandidateSoftmax(h, counts, numbers)
    dense = np.where(rng.random((4, len(h))) < 0.5, rng.uniform(0.01, 3, (4, len(h))), 0).astype(np.float32)
    fast = calibration.probabilities(sparse.csr_array(dense)).toarray()
    terminals = sorted({*h.leaves.tolist(), *np.flatnonzero(counts).tolist()})
    total = sum(counts[t] + 1e-6 for t in terminals)
    prior = {t: float((counts[t] + 1e-6) / total) for t in terminals}
    for row, p in zip(dense.tolist(), fast, strict=True):
        evidence = {node: value for node, value in enumerate(row) if value > 0}
        assert p == pytest.approx(slow.candidate_softmax(h, evidence, prior, numbers), abs=1e-5)
    assert fast[:, h.parent < 0].sum(axis=1) == pytest.approx(1, abs=1e-5)
    assert Scores(h, fast).is_coherent()


@given(SEEDS)
def test_candidate_isotonic(seed: int) -> None:
    rng = np.random.default_rng(seed)
    h = random_tree(rng)
    maps = np.array([[-3.0, 2.0, *np.sort(rng.random(STEPS + 1))] for _ in range(LEVELS + 1)])
    dense = np.where(rng.random((4, len(h))) < 0.5, rng.uniform(0.01, 9, (4, len(h))), 0).astype(np.float32)
    evidence = sparse.csr_array(dense)
    fast = CandidateIsotonic(h, np.ones(len(h), np.int64), maps).probabilities(evidence).toarray()
    odds = CandidateIsotonic(h, np.ones(len(h), np.int64)).probabilities(evidence).toarray()
    for row, p, share in zip(dense.tolist(), fast, odds, strict=True):
        values = [
            slow.isotonic_value(maps[slow.level_of(h, node)], float(np.log(value))) if value > 0 else 0.0
            for node, value in enumerate(row)
        ]
        assert p == pytest.approx(slow.raise_to_children(h, values), abs=1e-5)
        # Before anything is fitted, evidence is taken for odds.
        assert share == pytest.approx(slow.raise_to_children(h, [value / (1 + value) for value in row]), abs=2e-3)


def test_levels_with_few_true_candidates_share_the_map_of_all() -> None:
    # Columns are a, c, b, d: level by level.
    h, rng = Hierarchy.from_paths(["a > b", "c > d"]), np.random.default_rng(0)
    evidence = sparse.csr_array(rng.uniform(0.1, 3, (200, 4)).astype(np.float32))
    for count in (29, 30):
        labels = label_matrix(np.minimum(np.arange(201), count), np.full(count, 2, np.int32), 4)
        closed = h.closure(labels).toarray().astype(bool)
        maps = CandidateIsotonic(h, np.ones(4, np.int64)).fit(evidence, labels).maps
        every = fit_isotonic(np.log(evidence.toarray().astype(np.float64)).ravel(), closed.ravel(), 0.1)
        assert [np.allclose(maps[level], every) for level in (1, 2)] == [count < 30] * 2


@given(SEEDS, st.booleans())
def test_path_pool(seed: int, sparse_scores: bool) -> None:
    rng = np.random.default_rng(seed)
    h = random_tree(rng)
    pool = PathPool.equal(h, 2, one_path(h, rng, 3))
    mixture = np.array([rng.uniform(0.5, 2), rng.uniform(0.05, 1), rng.random()])
    pool = pool.restore({"terminals": pool.terminals, "weights": rng.uniform(0, 2, 2), "mixture": mixture})
    paths = terminal_paths(h, pool.terminals).astype(np.float64)
    scores = [sum_to_nodes(rng.dirichlet(np.full(len(pool.terminals), 0.5), 3), paths) for _ in range(2)]
    asked = [sparse.csr_array(each) for each in scores] if sparse_scores else scores
    fast = pool.probabilities(asked)
    dense = fast.toarray() if sparse_scores else fast
    for row in range(3):
        said = [each[row].astype(float).tolist() for each in scores]
        expected = slow.path_pool(h, pool.terminals.tolist(), said, pool.weights, mixture)
        assert dense[row] == pytest.approx(expected, abs=2e-3 if sparse_scores else 5e-4)
    if not sparse_scores:
        assert dense[:, h.parent < 0].sum(axis=1) == pytest.approx(1, abs=1e-5)
    assert Scores(h, dense).is_coherent()


@given(SEEDS, st.sampled_from([(NodePool, slow.node_pool), (CandidatePool, slow.candidate_pool)]), st.booleans())
def test_node_pools(seed: int, pair: tuple[type[NodePool], Callable[..., Any]], sparse_scores: bool) -> None:
    kind, twin = pair
    rng = np.random.default_rng(seed)
    h = random_tree(rng)
    pool = kind.equal(h, 2)
    pool = pool.restore({"coefficients": rng.normal(size=pool.coefficients.shape)})
    shape = (3, len(h))
    # Some models are certain, nearly so, or give next to nothing.
    extreme = rng.choice([0, 1e-6, 2e-6, 1e-3, 0.999, 1 - 1e-5, 1], (2, *shape))
    scores = [np.where(rng.random(shape) < 0.6, rng.random(shape), each).astype(np.float32) for each in extreme]
    fast = pool.probabilities([sparse.csr_array(each) for each in scores] if sparse_scores else scores)
    dense = fast.toarray() if sparse_scores else fast
    for row in range(3):
        expected = twin(h, [each[row] for each in scores], pool.coefficients)
        assert dense[row] == pytest.approx(expected, abs=1e-4)
    assert sparse.issparse(fast) == sparse_scores


def test_two_that_are_certain_are_no_more_certain_than_one() -> None:
    h = Hierarchy.flat(["a", "b"])
    pool = CandidatePool.equal(h, 2)
    # Only the noisy or counts, of which the odds are a million at most.
    pool = pool.restore({"coefficients": np.tile([0.0, 0, 0, 0, 0, 0.5], (LEVELS + 1, 1))})
    nearly = np.array([[1 - 2e-4, 0.5]])
    p = pool.probabilities([nearly, nearly])
    assert p[0] == pytest.approx([expit(0.5 * np.log(1e6)), expit(0.5 * np.log(3))], abs=1e-6)


def test_equal_pools_of_one_model_change_nothing() -> None:
    h = Hierarchy.from_paths(["a > b", "a > c", "d"])
    # Columns are a, d, b, c: level by level.
    scores = np.array([[0.7, 0.3, 0.5, 0.2], [0.1, 0.9, 0.06, 0.04]], np.float32)
    for pool in (PathPool.equal(h, 1), NodePool.equal(h, 1)):
        assert pool.probabilities([scores]) == pytest.approx(scores, abs=1e-5)
    missing = CandidatePool.equal(h, 2).coefficients[0]
    assert missing == pytest.approx([0, np.log(1e-6) / 2, np.log(1e-6) / 2, 0.5, 0.5, 0])
    assert CandidatePool.equal(h, 1).coefficients[0, 1] == -10


# Fitted parameters: those of the evidence that is meant


FITTED = [Hierarchy.from_paths(["a > b > c", "a > b > d", "a > e", "f > g", "f > h"]),
          Hierarchy.from_edges([("a", "c"), ("b", "c"), ("a", "d"), ("b", "e"), ("c", "f"), ("d", "f")])]  # fmt: skip


def documents_of(h: Hierarchy, multiple_paths: bool, shared: bool = False) -> tuple[OutputSpace, Any, LabelMatrix]:
    """Draw 80 documents with a label of any level, and margins that know it, some of them absent."""
    rng = np.random.default_rng(0)
    labels = one_path(h, rng, 80)
    outputs = OutputSpace.of(h, labels, multiple_paths=multiple_paths, shared=shared)
    margins = margins_for(outputs, rng, 80) + outputs.targets(labels).toarray().astype(np.float32)
    margins[::7, 1] = ABSENT
    return outputs, margins, labels


@pytest.mark.parametrize("h", FITTED, ids=["tree", "DAG"])
def test_sigmoids_are_fitted_to_the_documents_that_have_all_parents(h: Hierarchy) -> None:
    outputs, margins, labels = documents_of(h, multiple_paths=True)
    sigmoids = SiblingSigmoid(outputs).fit(margins, labels).sigmoids
    closed = h.closure(labels).toarray()
    for level in range(LEVELS + 1):
        judged = [
            (margins[row, output], bool(closed[row, node]))
            for node, output in zip(outputs.nodes.tolist(), outputs.node_outputs.tolist(), strict=True)
            for row in range(80)
            if slow.level_of(h, node) == level and margins[row, output] > ABSENT
            if all(closed[row, parent] for parent in slow.parents_of(h, node))
        ]
        values, true = np.array([each[0] for each in judged], np.float32), np.array([each[1] for each in judged], bool)
        assert sigmoids[level] == pytest.approx(likelihood.fit_sigmoid(values, true) if judged else (1, 0), abs=1e-3)
    # A level without a true label says nothing.
    tops = label_matrix(np.arange(81), np.zeros(80, np.int32), len(h))
    assert SiblingSigmoid(outputs).fit(margins, tops).sigmoids[2].tolist() == [1, 0]


def test_temperatures_are_fitted_to_the_choices_below_true_parents() -> None:
    h = FITTED[0]
    outputs, margins, labels = documents_of(h, multiple_paths=False)
    fitted = SiblingSoftmax(outputs).fit(margins, labels)
    closed, ends = h.closure(labels).toarray(), h.most_specific(labels).toarray()
    output_of = dict(zip(outputs.nodes.tolist(), outputs.node_outputs.tolist(), strict=True))
    stops = {int(outputs.terminals[stop]): int(outputs.terminal_outputs[stop]) for stop in outputs.stops}
    choices: dict[int, list[tuple[list[float], int]]] = {}
    for row in range(80):
        for parent in [-1, *np.flatnonzero(closed[row]).tolist()]:
            children = [node for node in output_of if int(h.parent[node]) == parent]
            columns = [output_of[node] for node in children] + ([stops[parent]] if parent in stops else [])
            true = [bool(closed[row, node]) for node in children] + [parent >= 0 and bool(ends[row, parent])]
            if len(columns) > 1 and margins[row, columns[true.index(True)]] > ABSENT:
                level = 1 if parent < 0 else slow.level_of(h, parent) + 1
                logits = [*margins[row, columns].tolist(), *[-np.inf] * (4 - len(columns))]
                choices.setdefault(level, []).append((logits, true.index(True)))
    assert sorted(choices) == [1, 2, 3]
    for level in range(LEVELS + 1):
        rows, members = (np.array([each[which] for each in choices.get(level, [])]) for which in (0, 1))
        expected = likelihood.fit_softmax_temperature(rows.astype(np.float32), members) if len(rows) else 1
        assert fitted.inverse_temperatures[level] == pytest.approx(expected, abs=1e-3)
    plain = SiblingSoftmax(outputs, fitted.inverse_temperatures).probabilities(margins)
    assert fitted.uniform_weights == pytest.approx(fit_uniform_weights(h, plain, h.closure(labels)))


@pytest.mark.parametrize("h", FITTED, ids=["tree", "DAG"])
def test_isotonic_maps_are_fitted_level_by_level(h: Hierarchy) -> None:
    outputs, margins, labels = documents_of(h, multiple_paths=True, shared=True)
    fitted = Isotonic(outputs).fit(margins, labels)
    odds = log_odds(PathSoftmax(outputs, fitted.level_weights, fitted.mixture).probabilities(margins))
    closed = h.closure(labels).toarray().astype(bool)
    for level in range(1, 4):
        judged = [
            (margins[row, output], odds[row, node], closed[row, node])
            for row in range(80)
            for node, output in zip(outputs.nodes.tolist(), outputs.node_outputs.tolist(), strict=True)
            if output >= 0 and slow.level_of(h, node) == level and margins[row, output] > ABSENT
        ]
        parts, true = np.array([each[:2] for each in judged], np.float32), np.array([each[2] for each in judged])
        a, b, c = likelihood.fit_logistic(parts, true.astype(float), np.ones(len(true)))
        assert fitted.coefficients[level] == pytest.approx([a, b, c], abs=1e-3)
        expected = fit_isotonic(np.clip(parts @ [a, b] + c, -15, 15), true)
        assert fitted.maps[level] == pytest.approx(expected, abs=0.02)
    # Nothing is known of lower levels: their nodes are never taken for true.
    assert not fitted.maps[4:, 2:].any()


def test_node_pools_are_fitted_level_by_level() -> None:
    h, rng = FITTED[0], np.random.default_rng(1)
    closed = h.closure(one_path(h, rng, 60)).toarray()
    scores = [np.clip(0.5 * closed + 0.6 * rng.random(closed.shape) - 0.1, 0, 1).astype(np.float32) for _ in range(2)]
    pool = NodePool.equal(h, 2)
    assert pool.weights.tolist() == [[0.5, 0.5]] * (LEVELS + 1)
    fitted = pool.fit(scores, matrix_of([set(np.flatnonzero(row).tolist()) for row in closed], len(h)))
    for level in range(LEVELS + 1):
        judged = [
            ([slow.logit(float(p[row, node])) for p in scores], closed[row, node])
            for row in range(60)
            for node in range(len(h))
            if slow.level_of(h, node) == level and max(p[row, node] for p in scores) > 1e-6
        ]
        parts, true = np.array([each[0] for each in judged]), np.array([bool(each[1]) for each in judged])
        prior = np.array([0, 0.5, 0.5])
        expected = pools.fit_sigmoid_weights(parts, true, prior, 1) if judged else prior
        assert fitted.coefficients[level] == pytest.approx(expected, abs=1e-4)
    # What a model does not say may count for or against a label; what it says never counts against it.
    least = CandidatePool.equal(h, 2).fit(scores, one_path(h, rng, 60)).coefficients.min(axis=0)
    assert (least[3:] >= 0).all()
    assert (least[:3] < 0).any()


@pytest.mark.parametrize("kind", [NodePool, CandidatePool])
def test_the_weights_of_a_pool_are_those_of_its_models(kind: type[NodePool]) -> None:
    pool = kind.equal(FITTED[0], 3)
    assert pool.weights == pytest.approx(np.full((LEVELS + 1, 3), 1 / 3))
    Schema(pool.parameters, sizes={"models": 3}).check(pool.arrays())


def test_before_it_is_fitted_evidence_is_the_margin() -> None:
    h = Hierarchy.flat(["a", "b"])
    outputs = OutputSpace.of(h, label_matrix([0, 1, 2], [0, 1], 2), multiple_paths=True)
    maps = np.tile([-3.0, 3.0, *np.linspace(0, 1, STEPS + 1)], (LEVELS + 1, 1))
    margins = np.array([[-1.0, 0.5], [2.0, 4.0]], np.float32)
    expected = [[slow.isotonic_value(maps[1], each) for each in row] for row in margins.tolist()]
    assert Isotonic(outputs, maps=maps).probabilities(margins) == pytest.approx(np.array(expected), abs=1e-6)
    assert not Isotonic(outputs).probabilities(margins).any()


# Fitted parameters: nothing nearby is better


def nothing_nearby_is_better(loss: Callable[[Any], float], best: Any, low: Any, high: Any, tolerance: float) -> None:
    reached = loss(np.asarray(best))
    for number in range(len(best)):
        for step in (-0.05, 0.05):
            other = np.array(best, float)
            other[number] = min(max(other[number] + step, low), high)
            assert loss(other) >= reached - tolerance


def softmax_documents(seed: int) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(seed)
    parts = rng.normal(size=(300, 4, 2)).astype(np.float32)
    logits = parts @ np.array([1.5, 0.4])
    drawn = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    return parts, drawn[:, None] == np.arange(4), np.array([0.0, 0.0, 0.5, 0.0])


def test_fits_of_softmaxes_are_the_best_there_are() -> None:
    parts, true, offsets = softmax_documents(0)

    def loss(z: Any) -> float:
        return float(np.mean(np.log(np.exp(z).sum(axis=1)) - z[true]))

    v = likelihood.fit_softmax(parts, true, offsets)
    nothing_nearby_is_better(lambda w: loss(parts @ w + offsets), v, 0, 60, 1e-5)
    total = likelihood.softmax_loss(parts, true, offsets, v, 0, 300)
    assert total[0] / 300 == pytest.approx(loss(parts @ v + offsets), abs=1e-5)
    logits = (parts @ v).astype(np.float64)
    mixture = likelihood.fit_softmax_mixture(logits, true, offsets)

    def mixed(numbers: Any) -> float:
        p = [np.exp(each * logits + offsets) for each in numbers[:2]]
        p = [each / each.sum(axis=1, keepdims=True) for each in p]
        return -float(np.log((1 - numbers[2]) * p[0] + numbers[2] * p[1])[true].mean())

    nothing_nearby_is_better(mixed, mixture, 1e-6, np.exp(1.5), 1e-4)
    results = likelihood.scaled_softmaxes(logits, true, offsets, 1.3, 0.4, 0, 300)
    assert -results[0].mean() == pytest.approx(loss(1.3 * logits + offsets), abs=1e-6)
    assert -results[1].mean() == pytest.approx(loss(0.4 * logits + offsets), abs=1e-6)
    nearby = likelihood.scaled_softmaxes(logits, true, offsets, 1.3 + 1e-5, 0.4 + 1e-5, 0, 300)
    assert results[2:] == pytest.approx((nearby[:2] - results[:2]) / 1e-5, abs=1e-3)
    weights = pools.fit_softmax_weights(parts, true, offsets)

    def penalized(w: Any) -> float:
        return 300 * loss(parts @ w + offsets) + float(((w - 0.5) ** 2).sum())

    nothing_nearby_is_better(penalized, weights, 0, 10, 1e-3)


def test_fits_of_sigmoids_are_the_best_there_are() -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(400, 2))
    true = rng.random(400) < expit(features @ [1.0, 2.0] - 0.5)
    weights = rng.uniform(0.5, 2, 400)

    def loss(numbers: Any, target: Any, share: Any) -> float:
        z = features @ numbers[:2] + numbers[2]
        return float(share @ (np.logaddexp(0, z) - target * z))

    fitted = likelihood.fit_logistic(features, true.astype(float), weights)
    nothing_nearby_is_better(lambda n: loss(n, true, weights), fitted, -20, 20, 2e-2)
    one = features[:, 0]
    slope, intercept = likelihood.fit_sigmoid(one, true)
    high, low = (true.sum() + 1) / (true.sum() + 2), 1 / ((~true).sum() + 2)
    target = np.where(true, high, low)

    def platt(numbers: Any) -> float:
        z = numbers[0] * one + numbers[1]
        return float((np.logaddexp(0, z) - target * z).sum())

    nothing_nearby_is_better(platt, [slope, intercept], -20, 20, 2e-2)
    # Two documents of one kind: Platt's targets are 3/4 and not 1.
    few = likelihood.fit_sigmoid(np.zeros(2, np.float32), np.array([True, True]))
    assert expit(few[1]) == pytest.approx(0.75, abs=1e-3)
    few = likelihood.fit_sigmoid(np.zeros(2, np.float32), np.array([False, False]))
    assert expit(few[1]) == pytest.approx(0.25, abs=1e-3)
    beta = likelihood.fit_beta(expit(one), true)

    def bent(n: Any) -> float:
        z = n[0] * np.log(expit(one)) - n[1] * np.log(expit(-one)) + n[2]
        prior = 5.0 * ((n[0] - 1) ** 2 + (n[1] - 1) ** 2 + n[2] ** 2)
        return float((np.logaddexp(0, z) - true * z).sum() + prior)

    nothing_nearby_is_better(bent, beta, -10, 10, 1e-3)
    pooled = pools.fit_sigmoid_weights(features, true, np.array([0.0, 0.5, 0.5]), 1)

    def penalized(n: Any) -> float:
        z = n[0] + features @ n[1:]
        return float((np.logaddexp(0, z) - true * z).sum() + ((n - [0.0, 0.5, 0.5]) ** 2).sum())

    nothing_nearby_is_better(penalized, pooled, -10, 10, 1e-3)


def test_the_weight_of_a_mixture_has_the_largest_likelihood() -> None:
    rng = np.random.default_rng(0)
    one, other = rng.random(500), rng.random(500)
    weight = likelihood.fit_mixture_weight(one, other)
    grid = np.linspace(0.001, 0.999, 999)
    best = grid[np.argmax([np.log((1 - e) * one + e * other).sum() for e in grid])]
    assert weight == pytest.approx(best, abs=0.02)
    assert likelihood.fit_mixture_weight(one[:0], other[:0]) == 0


def test_uniform_weights_are_those_of_levels() -> None:
    h = Hierarchy.from_paths(["a > c", "a > d", "b"])
    rng = np.random.default_rng(0)
    ends = rng.choice(h.leaves, 400).astype(np.int32)
    closed = h.closure(label_matrix(np.arange(401), ends, len(h)))
    p = np.tile(np.array([0.6, 0.4, 0.5, 0.1], np.float32)[None], (400, 1))
    weights = fit_uniform_weights(h, p, closed)
    truth = closed.toarray()
    for level, siblings, parent in ((1, [0, 1], None), (2, [2, 3], 0)):
        rows = truth[:, siblings].any(axis=1)
        above = np.ones(400) if parent is None else p[:, parent]
        said = (p[:, siblings] / above[:, None])[rows][truth[rows][:, siblings].astype(bool)]
        assert weights[level] == pytest.approx(
            likelihood.fit_mixture_weight(said.astype(float), np.full(len(said), 0.5))
        )
    assert weights[0] == 0


def test_candidates_fit_the_least_log_loss() -> None:
    h, rng = Hierarchy.from_paths(["a > b", "a > c", "d"]), np.random.default_rng(0)
    ends = rng.choice(h.leaves, 200).astype(np.int32)
    labels = label_matrix(np.arange(201), ends, len(h))
    dense = np.where(rng.random((200, len(h))) < 0.8, rng.uniform(0.1, 1, (200, len(h))), 0).astype(np.float32)
    dense[np.arange(200), ends] += np.where(rng.random(200) < 0.7, 1.0, 0.0).astype(np.float32)
    # Only leaves are terminal.
    counts = np.bincount(ends, minlength=len(h))
    evidence, plain = sparse.csr_array(dense), CandidateSoftmax(h, counts)
    fitted = plain.fit(evidence, labels)

    def loss(numbers: Any) -> float:
        p = CandidateSoftmax(h, plain.counts, np.exp(numbers)).probabilities(evidence).toarray().astype(float)
        return -float(np.log(p[np.arange(200), ends]).mean())

    nothing_nearby_is_better(loss, np.log(fitted.numbers), -2.5, 2.5, 1e-3)
    reported = plain.loss_of(evidence, labels)
    assert reported is not None
    assert reported(np.log(fitted.numbers)) == pytest.approx(loss(np.log(fitted.numbers)), abs=1e-4)


def test_evidence_is_cut_at_both_ends() -> None:
    evidence = sparse.csr_array(np.array([[1e-20, 1.0, 1e20]]))
    assert candidates.log_evidence(evidence) == pytest.approx([np.log(1e-13), 0, 30])
    many = Hierarchy.flat([str(number) for number in range(130)])
    prior = CandidateSoftmax(many, np.arange(130)).prior
    assert (prior > 0).sum() == 100
    assert prior.sum() == pytest.approx(1)


def test_what_was_not_learned_may_be_any_terminal_of_its_lowest_known_ancestor() -> None:
    h = Hierarchy.from_paths(["a > b > c", "a > b > d", "a > e", "f"])
    names, labels = h.names, label_matrix([0, 1, 2, 3], [4, 5, 3], len(h))
    outputs = OutputSpace.of(h, label_matrix(np.arange(5), np.sort(h.leaves).astype(np.int32), len(h)), shared=False)
    margins = np.zeros((3, outputs.count), np.float32)
    column = {names[t]: int(o) for t, o in zip(outputs.terminals, outputs.terminal_outputs, strict=True)}
    margins[0, column["c"]] = -1e4
    rows, marks = possible_terminals(outputs, margins, labels)
    chosen = {
        int(r): {names[outputs.terminals[t]] for t in np.flatnonzero(m)} for r, m in zip(rows, marks, strict=True)
    }
    assert {len(names) for names in chosen.values()} == {1}
    assert chosen[int(np.flatnonzero(labels.toarray()[:, names.index("c")])[0])] == {"d"}


def test_of_a_path_that_ends_inside_it_is_the_end_or_what_was_learned_below() -> None:
    h = Hierarchy.from_paths(["a > b > c", "a > b > d", "a > e", "f"])
    ends = [h.names.index(name) for name in "bcef"]
    outputs = OutputSpace.of(h, label_matrix(np.arange(5), np.array(ends, np.int32), len(h)), shared=False)
    column = {h.names[t]: int(o) for t, o in zip(outputs.terminals, outputs.terminal_outputs, strict=True)}
    # The label of each document, what was not learned without it, and what it may be.
    cases = [("b", "", "b"), ("b", "b", "c"), ("c", "bc", "e"), ("d", "", "bc"), ("e", "c", "e"), ("f", "f", ""),
             ("f", "", "f")]  # fmt: skip
    labels = label_matrix(np.arange(8), np.array([h.names.index(each[0]) for each in cases], np.int32), len(h))
    margins = np.zeros((7, outputs.count), np.float32)
    for row, (_, absent, _) in enumerate(cases):
        margins[row, [column[name] for name in absent]] = ABSENT
    rows, marks = possible_terminals(outputs, margins, labels)
    found = {
        int(row): "".join(h.names[t] for t in outputs.terminals[mark]) for row, mark in zip(rows, marks, strict=True)
    }
    assert {row: "".join(sorted(names)) for row, names in found.items()} == {
        row: expected for row, (_, _, expected) in enumerate(cases) if expected
    }


# Constants and limits


def test_evidence_beyond_log_odds_of_15_makes_no_difference() -> None:
    h = Hierarchy.flat(["a", "b"])
    outputs = OutputSpace.of(h, label_matrix([0, 1, 2], [0, 1], 2), multiple_paths=True)
    maps = np.tile([-20.0, 20.0, *np.linspace(0, 1, STEPS + 1)], (LEVELS + 1, 1))
    coefficients = np.tile([1.0, 1e-9, 0.0], (LEVELS + 1, 1))
    calibration = Isotonic(outputs, coefficients=coefficients, maps=maps)
    p = calibration.probabilities(np.array([[18.0, -18.0]], np.float32))[0]
    assert p == pytest.approx([slow.isotonic_value(maps[1], 15.0), slow.isotonic_value(maps[1], -15.0)], abs=1e-5)


def test_negatives_that_are_left_out_are_stood_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("treelabel.calibration.isotonic.HARDEST", 200)
    monkeypatch.setattr("treelabel.calibration.isotonic.OTHERS", 200)
    rng = np.random.default_rng(0)
    parts = rng.normal(size=(6000, 2)).astype(np.float32)
    true = rng.random(6000) < expit(parts @ [0.5, 1.0] - 2.0)
    a, b, c = _fit_slopes(parts, true)
    assert expit(parts @ [a, b] + c).mean() == pytest.approx(true.mean(), rel=0.1)


def test_only_children_say_nothing_of_the_uniform_distribution() -> None:
    h = Hierarchy.from_paths(["a > c", "b > d"])
    closed = h.closure(label_matrix([0, 1, 2], [2, 3], 4))
    weights = fit_uniform_weights(h, np.tile(np.array([[0.5, 0.5, 0.5, 0.5]], np.float32), (2, 1)), closed)
    assert weights[2] == 0


def test_some_terminals_stand_for_all_others() -> None:
    h = Hierarchy.flat([str(number) for number in range(40)])
    outputs = OutputSpace.of(h, label_matrix(np.arange(41), np.arange(40), 40))
    margins = np.random.default_rng(0).normal(size=(3, 40)).astype(np.float32)
    true = np.zeros((3, 40), np.bool_)
    true[[0, 1, 2], [4, 5, 6]] = True
    terminals, stands_for = _sample_terminals(outputs, margins, true)
    assert stands_for == pytest.approx([0.0] * 16 + [np.log(24 / 16)] * 16)
    for row in range(3):
        assert 4 + row in terminals[row, :16]
        assert len(set(terminals[row].tolist())) == 32
        others = set(np.argsort(-margins[row])[:15].tolist())
        assert others <= set(terminals[row, :16].tolist())


def test_of_66_ends_one_stands_for_the_rest_and_of_65_none() -> None:
    for terminals, expected in ((65, [0.0] * 65), (66, [0.0] * 66), (67, [0.0] * 65 + [np.log(2)])):
        evidence = np.random.default_rng(0).random((2, terminals)).astype(np.float32)
        near, stands_for = pools.nearest_terminals([evidence], np.array([3, 4]))
        assert stands_for == pytest.approx(expected)
        assert near.shape == (2, min(terminals, 66), 1)
        # All are there, or in the mean of the rest.
        assert near[:, :, 0] @ np.exp(stands_for) == pytest.approx(evidence.sum(axis=1), rel=1e-5)


def test_cosines_that_differ_by_less_than_a_hundredth_say_little() -> None:
    p = softmax_of_spread(np.array([[0.2, 0.201], [0.2, 0.3]]), 2.0)
    assert p[:, 1] == pytest.approx([expit(0.001 / 0.02), expit(0.1 / (2 * 0.05))])


@pytest.mark.parametrize("kind", [SiblingSigmoid, SiblingSoftmax, Isotonic, PathSoftmax])
def test_parameters_up_to_a_million_can_be_restored(kind: Any) -> None:
    outputs = OutputSpace.of(Hierarchy.flat(["a", "b"]), label_matrix([0, 1, 2], [0, 1], 2), shared=False)
    neutral = kind(outputs)
    for name, array in neutral.arrays().items():
        high = neutral.parameters[name].high
        assert high in (1, 1e6)
        assert neutral.parameters[name].low in (0, -1e6)
        Schema(neutral.parameters).check({**neutral.arrays(), name: np.full_like(array, high)})
        with pytest.raises(TreelabelError, match=name):
            Schema(neutral.parameters).check({**neutral.arrays(), name: np.full_like(array, np.nextafter(high, 1e9))})


def test_logits_of_0_that_are_not_stored_count_all_the_same() -> None:
    logits = np.array([[1.0, 2.0], [-1.0, 0.5]])
    for row, p in zip(logits.tolist(), pools.softmax_with_zeros(logits, 3), strict=True):
        assert p == pytest.approx(slow.softmax([*row, 0.0, 0.0, 0.0])[:2])


def test_levels_below_the_eighth_are_one() -> None:
    h = Hierarchy.from_paths([" > ".join("abcdefghij")])
    assert levels_of(h, np.arange(10)).tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 8, 8]


def test_powers_are_right_to_single_precision_and_0_where_that_ends() -> None:
    values = -np.linspace(0, 1, 1001).astype(np.float32)
    for inverse in (0.3, 1.0, 2.0):
        result = np.empty_like(values)
        total = path_kernels.powers(values, inverse, result)
        expected = np.exp(inverse * values.astype(np.float64))
        assert result == pytest.approx(expected, rel=3e-7)
        assert total == pytest.approx(expected.sum(), rel=1e-6)
    values = np.array([-0.25, -1, -30, -123.5, -124.5, -125.5, -1000], np.float32) * np.float32(np.log(2))
    result = np.empty_like(values)
    path_kernels.powers(values, 1.0, result)
    assert result.tolist() == pytest.approx([2**-0.25, 0.5, 2**-30, 2**-123.5, 0, 0, 0], rel=1e-5)


@pytest.mark.parametrize("count", range(10))
def test_the_largest_value_may_be_anywhere(count: int) -> None:
    for index in range(count):
        values = np.full(count, -2, np.float32)
        values[index] = 3
        assert path_kernels.largest_value(values, np.float32(-1)) == 3
    assert path_kernels.largest_value(np.full(count, -2, np.float32), np.float32(-1)) == -1
