"""Losses: gradients by finite differences, slow twins over sets, identities, extremes and refusals."""

import math
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.reference import ROOT, SlowHierarchy, matrix_of
from tests.strategies import Drawn, dags, examples, trees
from treelabel import Hierarchy, Scores, TreelabelError
from treelabel.neural.losses.base import Loss, Truth
from treelabel.neural.losses.champ import distances, largest_distance
from treelabel.neural.losses.compiled import compiled_loss
from treelabel.neural.losses.conditional_softmax import ConditionalSoftmaxLa
from treelabel.neural.losses.registry import LOSSES, make_loss
from treelabel.neural.losses.soft_labels import SoftLabels

Doubles = npt.NDArray[np.float64]

TREE = Hierarchy.from_paths(["A > B > C", "A > B > D", "A > E", "F > G", "F > H", "I"])
DAG = Hierarchy.from_edges([("A", "C"), ("B", "C"), ("B", "D"), ("C", "E"), ("C", "F"), ("D", "F")])
ON_DAGS = [name for name in LOSSES if name in ("bce", "conditional_sigmoid", "leaf_softmax", "champ", "match")]
# Much larger than the defaults, so that a mistake shows.
PARAMS: dict[str, dict[str, float]] = {
    "conditional_softmax_la": {"tau": 0.7},
    "champ": {"beta": 0.8},
    "match": {"lambda_parameters": 0.3, "lambda_probabilities": 0.5},
    "hierarchical_cross_entropy": {"alpha": 0.4},
    "soft_labels": {"beta": 3.0},
}


def made(name: str, h: Hierarchy, **params: float) -> Loss:
    return make_loss(name, h, np.arange(len(h)) ** 2, **{**PARAMS.get(name, {}), **params})


def truth_for(cost: Loss, slow: SlowHierarchy, rng: np.random.Generator, rows: int = 4) -> list[set[int]]:
    """Draw label sets that a loss can learn from, closed, the last one empty."""
    ends = sorted(slow.leaves) if cost.needs == "leaf" else sorted(slow.parents)
    most = 3 if cost.needs == "any" else 1
    drawn = [rng.choice(ends, min(most, len(ends)), replace=False).tolist() for _ in range(rows - 1)]
    return [slow.closure(row) for row in drawn] + [set()]


def slow_of(h: Hierarchy) -> SlowHierarchy:
    parents = {node: h.parent_idx[h.parent_ptr[node] : h.parent_ptr[node + 1]].tolist() for node in range(len(h))}
    return SlowHierarchy({node: set(above) for node, above in parents.items()})


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize(
    "h", [TREE, DAG, Hierarchy.flat("ABC"), Hierarchy.flat("A")], ids=["tree", "DAG", "flat", "one"]
)
def test_gradients_are_what_differences_say(name: str, h: Hierarchy) -> None:
    if not h.is_tree and name not in ON_DAGS:
        return
    cost, rng = made(name, h), np.random.default_rng(0)
    truth = matrix_of(truth_for(cost, slow_of(h), rng, 6), len(h))
    logits = rng.normal(0, 2, (6, len(cost.outputs)))
    step = 1e-5
    found = np.empty_like(logits)
    for output in range(logits.shape[1]):
        moved = np.zeros(logits.shape[1])
        moved[output] = step
        found[:, output] = (cost.loss(logits + moved, truth) - cost.loss(logits - moved, truth)) / (2 * step)
    assert cost.gradient(logits, truth) == pytest.approx(found, abs=1e-8)


# Slow twins: sets and sums, straight from the definitions


def log_sum(values: Iterable[float]) -> float:
    return math.log(sum(math.exp(value) for value in values))


def sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-value))


def slow_win(slow: SlowHierarchy, p: dict[int, float], true: int) -> float:
    path = sorted(slow.closure([true]), key=slow.longest_depth)
    of_node = {node: sum(p[leaf] for leaf in slow.leaves & ({node} | slow.descendants(node))) for node in path}
    return sum(2.0**-j * of_node[node] for j, node in enumerate(path, 1)) + 2.0 ** -len(path) * p[true]


def slow_bce(s: dict[int, float], true: set[int], weight: dict[int, float]) -> float:
    return sum(weight[n] * (math.log1p(math.exp(s[n])) - (n in true) * s[n]) for n in weight)


def slow_champ_weights(slow: SlowHierarchy, true: set[int]) -> dict[int, float]:
    nodes, d_max = slow.parents.keys(), slow_largest_distance(slow)
    away = {n: min((slow.distance(n, y) for y in true), default=0) for n in nodes}
    return {n: 1 if n in true else 1 + PARAMS["champ"]["beta"] * ((away[n] / d_max + 1) ** 2 - 1) for n in nodes}


def slow_largest_distance(slow: SlowHierarchy) -> int:
    if any(len(above) > 1 for above in slow.parents.values()):
        return 2 * max(slow.shortest_depth(n) for n in slow.parents)
    return max(1, *(steps for n in slow.parents for steps in slow_steps(slow, n).values()))


def slow_steps(slow: SlowHierarchy, start: int) -> dict[int, int]:
    """Edges of the shortest way to every node, up or down, the root being a node like others on the way."""
    steps, reached = {start: 0}, [start]
    for node in reached:
        for other in slow.children[node] | slow.parents.get(node, set()):
            if other not in steps:
                steps[other] = steps[node] + 1
                reached.append(other)
    return {node: count for node, count in steps.items() if node != ROOT}


def slow_hinges(slow: SlowHierarchy, s: dict[int, float]) -> float:
    return sum(max(0.0, sigmoid(s[n]) - sigmoid(s[above])) for n in s for above in slow.parents[n] - {ROOT})


def slow_height(slow: SlowHierarchy, node: int) -> int:
    return max((1 + slow_height(slow, child) for child in slow.children[node]), default=0)


def slow_hxe(slow: SlowHierarchy, p: dict[int, float], path: set[int]) -> float:
    def mass(node: int) -> float:
        return sum(p[leaf] for leaf in slow.leaves & ({node} | slow.descendants(node))) if node != ROOT else 1.0

    alpha = PARAMS["hierarchical_cross_entropy"]["alpha"]
    weight = {n: math.exp(-alpha * slow.longest_depth(n)) for n in path}
    return sum(-weight[n] * math.log(mass(n) / mass(above)) for n in path for above in slow.parents[n])


def slow_soft_labels(slow: SlowHierarchy, leaf: int) -> dict[int, float]:
    def distance(other: int) -> float:
        common = slow.closure([leaf]) & slow.closure([other])
        lowest = max(common, key=slow.longest_depth) if common else ROOT
        return slow_height(slow, lowest) / slow_height(slow, ROOT)

    value = {other: math.exp(-PARAMS["soft_labels"]["beta"] * distance(other)) for other in slow.leaves}
    return {other: each / sum(value.values()) for other, each in value.items()}


def slow_loss(name: str, slow: SlowHierarchy, s: dict[int, float], true: set[int], shift: dict[int, float]) -> float:
    """The loss of one document with logits by node."""
    if name in ("bce", "match"):
        factor = PARAMS["match"]["lambda_probabilities"] if name == "match" else 0.0
        return slow_bce(s, true, dict.fromkeys(s, 1)) + factor * slow_hinges(slow, s)
    if name == "champ":
        return slow_bce(s, true, slow_champ_weights(slow, true))
    if name == "conditional_sigmoid":
        return slow_bce(s, true, {n: 1 for n in s if slow.parents[n] <= true | {ROOT}})
    if not true:
        return 0.0
    if name.startswith("conditional_softmax"):
        adjusted = {n: s[n] + (shift[n] if name.endswith("_la") else 0.0) for n in s}
        return sum(log_sum(adjusted[o] for o in {n} | slow.siblings(n)) - adjusted[n] for n in true)
    if name == "win_coarse":
        (top,) = true & slow.children[ROOT]
        return log_sum(s.values()) - s[top]
    (leaf,) = true & slow.leaves
    p = {n: math.exp(s[n] - log_sum(s.values())) for n in s}
    if name in ("leaf_softmax", "win_flat"):
        return -math.log(p[leaf])
    if name == "hierarchical_cross_entropy":
        return slow_hxe(slow, p, true)
    if name == "soft_labels":
        return -sum(y * math.log(p[other]) for other, y in slow_soft_labels(slow, leaf).items())
    win = slow_win(slow, p, leaf)
    return -win if name == "win_raw" else -math.log(win)


def slow_probability(name: str, slow: SlowHierarchy, s: dict[int, float], node: int) -> float:
    """P(node) of one document with logits by node."""
    if name in ("bce", "champ", "match"):
        return sigmoid(s[node])
    above = slow.parents[node] - {ROOT}
    whole = min((slow_probability(name, slow, s, parent) for parent in above), default=1.0)
    if name == "conditional_sigmoid":
        return sigmoid(s[node]) * whole
    if name.startswith("conditional_softmax"):
        return math.exp(s[node] - log_sum(s[other] for other in {node} | slow.siblings(node))) * whole
    if name == "win_coarse":
        return math.exp(s[node] - log_sum(s.values())) if not above else whole / (1 + len(slow.siblings(node)))
    leaves = slow.leaves & ({node} | slow.descendants(node))
    return sum(math.exp(s[leaf] - log_sum(s.values())) for leaf in leaves)


def compare_with_slow(drawn: Drawn, name: str, seed: int) -> None:
    rng, h, slow = np.random.default_rng(seed), drawn.fast, drawn.slow
    counts = rng.integers(0, 5, len(h))
    cost = make_loss(name, h, counts, **PARAMS.get(name, {}))
    sets = truth_for(cost, slow, rng)
    logits = rng.normal(0, 2, (len(sets), len(cost.outputs)))
    by_node = [dict(zip(cost.outputs.tolist(), row, strict=True)) for row in logits.tolist()]
    shift = {
        n: 0.7 * math.log((counts[n] + 1) / sum(counts[o] + 1 for o in {n} | slow.siblings(n))) for n in range(len(h))
    }
    expected = [slow_loss(name, slow, s, true, shift) for s, true in zip(by_node, sets, strict=True)]
    assert cost.loss(logits, matrix_of(sets, len(h))) == pytest.approx(expected, abs=1e-9)
    p = cost.probabilities(logits)
    assert p == pytest.approx(
        np.array([[slow_probability(name, slow, s, node) for node in range(len(h))] for s in by_node]), abs=1e-9
    )
    if cost.coherent:
        Scores(h, p).require_coherent()


@examples(25)
@given(drawn=trees(), seed=st.integers(0, 10**6))
@pytest.mark.parametrize("name", LOSSES)
def test_losses_and_probabilities_are_what_the_definitions_say(name: str, drawn: Drawn, seed: int) -> None:
    compare_with_slow(drawn, name, seed)


@examples(25)
@given(drawn=dags(), seed=st.integers(0, 10**6))
@pytest.mark.parametrize("name", ON_DAGS)
def test_some_losses_know_dags(name: str, drawn: Drawn, seed: int) -> None:
    compare_with_slow(drawn, name, seed)


@examples(50)
@given(drawn=trees(), seed=st.integers(0, 10**6))
def test_the_nearest_true_node_is_above_or_across_the_root(drawn: Drawn, seed: int) -> None:
    rng, nodes = np.random.default_rng(seed), range(len(drawn))
    sets = [drawn.slow.closure(rng.choice(len(drawn), rng.integers(1, 4)).tolist()) for _ in range(4)]
    steps = {node: slow_steps(drawn.slow, node) for node in nodes}
    expected = [[min(steps[node][true] for true in row) for node in nodes] for row in sets]
    assert distances(drawn.fast, Truth(matrix_of(sets, len(drawn)))).tolist() == expected
    assert largest_distance(drawn.fast) == max(max(row.values()) for row in steps.values())


@examples(50)
@given(drawn=dags(), seed=st.integers(0, 10**6))
def test_in_a_dag_distances_go_up_and_then_down(drawn: Drawn, seed: int) -> None:
    rng, nodes = np.random.default_rng(seed), range(len(drawn))
    sets = [drawn.slow.closure(rng.choice(len(drawn), rng.integers(1, 4)).tolist()) for _ in range(4)]
    expected = [[min(drawn.slow.distance(node, true) for true in row) for node in nodes] for row in sets]
    assert distances(drawn.fast, Truth(matrix_of(sets, len(drawn)))).tolist() == expected
    assert largest_distance(drawn.fast) >= max(drawn.slow.distance(one, two) for one in nodes for two in nodes)


@examples(25)
@given(drawn=trees() | dags(), seed=st.integers(0, 10**6))
def test_the_penalty_of_weights_pulls_children_to_their_parents(drawn: Drawn, seed: int) -> None:
    weights = np.random.default_rng(seed).normal(size=(len(drawn), 3))
    cost, step = made("match", drawn.fast), 1e-5
    value, gradient = cost.penalty(weights)
    pairs = [(n, above) for n, parents in drawn.slow.parents.items() for above in parents - {ROOT}]
    assert value == pytest.approx(0.3 / 2 * sum(((weights[n] - weights[above]) ** 2).sum() for n, above in pairs))
    moves = step * np.eye(weights.size).reshape(-1, *weights.shape)
    found = [(cost.penalty(weights + move)[0] - cost.penalty(weights - move)[0]) / (2 * step) for move in moves]
    assert gradient.ravel() == pytest.approx(np.array(found), abs=1e-8)


# Identities


def test_on_a_flat_hierarchy_all_softmaxes_are_one() -> None:
    h, rng = Hierarchy.flat("ABCDE"), np.random.default_rng(0)
    logits, truth = rng.normal(size=(5, 5)), np.eye(5)
    plain = -np.log(np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True))[range(5), range(5)]
    for name in ("conditional_softmax", "leaf_softmax", "win_flat", "win_log", "win_coarse"):
        assert made(name, h).loss(logits, truth) == pytest.approx(plain)
        assert made(name, h).gradient(logits, truth) == pytest.approx(
            np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum(axis=1, keepdims=True) - truth
        )
    assert make_loss("win_raw", h).loss(logits, truth) == pytest.approx(-np.exp(-plain))


def test_without_tau_logit_adjustment_is_nothing_and_with_it_only_training_changes() -> None:
    rng = np.random.default_rng(0)
    logits, truth = rng.normal(size=(1, len(TREE))), TREE.closure(np.eye(len(TREE))[[6]])
    plain, off, on = (
        make_loss("conditional_softmax", TREE),
        *(made("conditional_softmax_la", TREE, tau=t) for t in (0, 1)),
    )
    assert isinstance(on, ConditionalSoftmaxLa)
    assert off.loss(logits, truth) == pytest.approx(plain.loss(logits, truth))
    assert on.loss(logits, truth) == pytest.approx(plain.loss(logits + on.offsets, truth))
    assert on.loss(logits, truth) != pytest.approx(plain.loss(logits, truth))
    assert on.probabilities(logits) == pytest.approx(plain.probabilities(logits))


@pytest.mark.parametrize("h", [TREE, DAG], ids=["tree", "DAG"])
def test_without_their_settings_champ_and_match_are_bce(h: Hierarchy) -> None:
    rng = np.random.default_rng(0)
    logits, truth = rng.normal(0, 2, (4, len(h))), rng.random((4, len(h))) < 0.3
    plain = make_loss("bce", h)
    for cost in (make_loss(name, h, **dict.fromkeys(PARAMS[name], 0.0)) for name in ("champ", "match")):
        assert cost.loss(logits, truth) == pytest.approx(plain.loss(logits, truth))
        assert cost.gradient(logits, truth) == pytest.approx(plain.gradient(logits, truth))
        assert made(cost.name, h).loss(logits, truth).sum() > plain.loss(logits, truth).sum() + 0.1
    for cost in (plain, make_loss("match", h, **dict.fromkeys(PARAMS["match"], 0.0)), made("champ", h)):
        value, gradient = cost.penalty(rng.normal(size=(len(h), 2)))
        assert (value, np.abs(gradient).max()) == (0, 0)


@pytest.mark.parametrize(
    ("name", "plain"), [("hierarchical_cross_entropy", {"alpha": 0.0}), ("soft_labels", {"beta": 1e6})]
)
@examples(25)
@given(drawn=trees(), seed=st.integers(0, 10**6))
def test_without_their_settings_losses_of_better_mistakes_are_cross_entropy(
    name: str, plain: dict[str, float], drawn: Drawn, seed: int
) -> None:
    rng, same = np.random.default_rng(seed), make_loss("leaf_softmax", drawn.fast)
    truth = matrix_of(truth_for(same, drawn.slow, rng, 5), len(drawn))
    logits = rng.normal(0, 3, (5, len(same.outputs)))
    cost = make_loss(name, drawn.fast, **plain)
    assert cost.loss(logits, truth) == pytest.approx(same.loss(logits, truth), abs=1e-9)
    assert cost.gradient(logits, truth) == pytest.approx(same.gradient(logits, truth), abs=1e-9)


def test_a_far_mistake_costs_more_than_a_near_one() -> None:
    # Eight leaves on three levels of two; the wrong leaf has 0.965 and every other one 0.005. By hand, of the far one:
    # e^-0.5 ln 50 + (e^-1 + e^-1.5) ln 2 = 2.7824; of the near one: 0.0123 + 0.0038 + e^-1.5 ln 194 = 1.1914.
    h = Hierarchy.from_paths([(a, a + b, a + b + c) for a in "xy" for b in "xy" for c in "xy"])
    p = np.full((2, 8), 0.005)
    p[0, 7] = p[1, 1] = 0.965
    truth = np.zeros((2, len(h)))
    truth[:, h.leaves[0]] = 1
    far, near = make_loss("hierarchical_cross_entropy", h, alpha=0.5).loss(np.log(p), h.closure(truth))
    assert (far, near) == pytest.approx((2.78241, 1.19144), abs=1e-5)
    assert far / near == pytest.approx(2.335, abs=1e-3)
    whole = make_loss("hierarchical_cross_entropy", h, alpha=0.5, normalize=1)
    total = 1 + sum(2**d * math.exp(-0.5 * d) for d in (1, 2, 3))
    assert whole.loss(np.log(p), h.closure(truth)) == pytest.approx([far / total, near / total])
    assert whole.gradient(np.log(p), h.closure(truth)).sum() == pytest.approx(0)


def test_soft_labels_without_hardness_are_alike_everywhere() -> None:
    soft = make_loss("soft_labels", TREE, beta=0.0)
    assert isinstance(soft, SoftLabels)
    truth = soft.checked_truth(TREE.closure(np.eye(len(TREE))[TREE.leaves]))
    assert soft.targets(truth) == pytest.approx(np.full((6, 6), 1 / 6))


def test_the_win_of_the_papers_figures() -> None:
    h = Hierarchy.from_paths(["sturgeon > acipenser > oxyrinchus", "sturgeon > acipenser > other", "sturgeon > huso"])
    cost = make_loss("win_raw", h)
    truth = h.closure([[name == "oxyrinchus" for name in h.names]] * 3)
    sure = [[1e4 * (h.names[leaf] == chosen) for leaf in cost.outputs] for chosen in ("huso", "other", "oxyrinchus")]
    # The paper counts the root: 3/4, 7/8 and 1 are 1/2 + win/2.
    assert (1 - cost.loss(sure, truth)) / 2 == pytest.approx([3 / 4, 7 / 8, 1])


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("size", [100.0, 1e5])
@pytest.mark.slow
def test_extreme_logits_are_safe(name: str, size: float) -> None:
    cost, rng = made(name, TREE), np.random.default_rng(0)
    truth = matrix_of(truth_for(cost, slow_of(TREE), rng, 20), len(TREE))
    logits = rng.choice([-size, 0.0, size], (20, len(cost.outputs)))
    compiled = compiled_loss(cost)
    in_loops = () if compiled is None else compiled.loss_and_gradient(logits, truth)
    for found in (cost.loss(logits, truth), cost.gradient(logits, truth), *in_loops):
        assert np.isfinite(found).all()
    p = cost.probabilities(logits)
    assert ((p >= 0) & (p <= 1)).all()


# What is refused


def test_what_a_loss_cannot_learn_from_is_said() -> None:
    two = TREE.closure(np.eye(len(TREE))[[3]] + np.eye(len(TREE))[[4]])
    inside = TREE.closure([[name == "B" for name in TREE.names]])
    for name in LOSSES:
        cost = made(name, TREE)
        logits = np.zeros((1, len(cost.outputs)))
        if cost.needs == "any":
            continue
        with pytest.raises(TreelabelError, match=r"document 0: labels end at 2 nodes.*use conditional_sigmoid or bce"):
            cost.loss(logits, two)
        if cost.needs == "leaf":
            with pytest.raises(TreelabelError, match=r"end at 'B', which is no leaf.*with_other_leaves"):
                cost.loss(logits, inside)
    assert make_loss("conditional_softmax", TREE).loss(np.zeros((1, len(TREE))), inside) == pytest.approx(math.log(6))


def test_a_dag_is_refused_by_losses_of_trees() -> None:
    for name in LOSSES.keys() - set(ON_DAGS):
        with pytest.raises(TreelabelError, match=rf"the loss {name} needs a tree.*Hierarchy.unfold\(\)"):
            made(name, DAG)


def test_wrong_input_is_told() -> None:
    with pytest.raises(TreelabelError, match="unknown loss 'win_lgo'; did you mean win_log"):
        make_loss("win_lgo", TREE)
    with pytest.raises(TreelabelError, match="the loss bce has no parameter 'gamma'; it has none"):
        make_loss("bce", TREE, gamma=1.0)
    with pytest.raises(
        TreelabelError, match=r"the loss champ has no parameter 'tau'; it has: beta=0.2 \(0 to 1e\+06\)"
    ):
        make_loss("champ", TREE, tau=1.0)
    for wrong in (-1, float("nan"), float("inf"), True, "1"):
        with pytest.raises(TreelabelError, match="the parameter beta of the loss champ must be a number from 0 to 1e"):
            make_loss("champ", TREE, beta=wrong)  # type: ignore[arg-type]
    with pytest.raises(TreelabelError, match="needs the training frequencies"):
        make_loss("conditional_softmax_la", TREE)
    with pytest.raises(TreelabelError, match="3 frequencies, but the hierarchy has 9 nodes"):
        make_loss("conditional_softmax_la", TREE, [1, 2, 3])
    with pytest.raises(TreelabelError, match=r"logits of shape \(1, 9\), but the loss leaf_softmax has 6 outputs"):
        make_loss("leaf_softmax", TREE).probabilities(np.zeros((1, 9)))
    with pytest.raises(TreelabelError, match="logits of 2 documents, but truth of 1"):
        make_loss("bce", TREE).loss(np.zeros((2, 9)), np.zeros((1, 9)))


def test_the_table_names_what_it_makes() -> None:
    for name, entry in LOSSES.items():
        assert entry.maker.name == name == entry.name
        assert entry.help
