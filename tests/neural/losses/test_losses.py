"""Losses: slow twins over sets, gradients by hand and by differences, identities, extremes, refusals, ONNX."""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from tests.reference import SlowHierarchy, matrix_of
from tests.reference_losses import (
    PARAMS,
    numpy_loss,
    numpy_penalty,
    slow_loss,
    slow_probability,
    slow_shifts,
    slow_steps,
)
from tests.strategies import Drawn, dags, examples, trees
from treelabel import Hierarchy, Scores, TreelabelError
from treelabel.neural.losses.base import Loss, make_loss
from treelabel.neural.losses.champ import Champ, largest_distance
from treelabel.neural.losses.conditional_loss import ConditionalSoftmaxLa
from treelabel.neural.losses.layout import Ragged
from treelabel.neural.losses.maps import ancestor_jumps, group_tables, leaf_slices
from treelabel.neural.losses.registry import LOSSES, LossSpec
from treelabel.neural.losses.soft_labels import SoftLabels
from treelabel.neural.losses.truth import wide_slices

Doubles = npt.NDArray[np.float64]

TREE = Hierarchy.from_paths(["A > B > C", "A > B > D", "A > E", "F > G", "F > H", "I"])
DAG = Hierarchy.from_edges([("A", "C"), ("B", "C"), ("B", "D"), ("C", "E"), ("C", "F"), ("D", "F")])
# A node below the root and below another node.
SHORT_CUT = Hierarchy.from_edges([("root", "A"), ("A", "B"), ("B", "C"), ("root", "C"), ("root", "D")], root="root")
CHAIN = Hierarchy.from_parents(list(range(-1, 69)), [f"step {node}" for node in range(70)])
WIDE = Hierarchy.from_parents([-1] * 3000 + list(range(500)), [f"label {node}" for node in range(3500)])
# A wide group below the top, which half of the documents are judged in, and small groups beside it.
WIDE_INSIDE = Hierarchy.from_parents([-1] * 2 + [0] * 300 + [1] * 5 + [2] * 3, [f"label {node}" for node in range(310)])
ON_DAGS = [name for name, row in LOSSES.items() if not row.needs_tree]


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Tensors are tiny here, and threads that wait for one another take longer than the work."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def made(name: str, h: Hierarchy, **params: float) -> Loss:
    return make_loss(name, h, np.arange(len(h)) ** 2, **{**PARAMS.get(name, {}), **params})


def truth_for(spec: LossSpec, slow: SlowHierarchy, rng: np.random.Generator, rows: int = 4) -> list[set[int]]:
    """Draw label sets that a loss can learn from, closed, the last one empty."""
    ends = sorted(slow.leaves) if spec.row.needs == "leaf" else sorted(slow.parents)
    most = 3 if spec.row.needs == "any" else 1
    drawn = [rng.choice(ends, min(most, len(ends)), replace=False).tolist() for _ in range(rows - 1)]
    return [slow.closure(row) for row in drawn] + [set()]


def slow_of(h: Hierarchy) -> SlowHierarchy:
    parents = {node: h.parent_idx[h.parent_ptr[node] : h.parent_ptr[node + 1]].tolist() for node in range(len(h))}
    return SlowHierarchy({node: set(above) for node, above in parents.items()})


def truth_of(cost: Loss, truth: Any) -> Any:
    """All documents of some labels as one batch."""
    prepared = cost.prepare(truth)
    return prepared.batch(np.arange(cost.spec.check_truth(truth).shape[0]))


def judge(cost: Loss, logits: Any, truth: Any) -> tuple[Any, Any]:
    """The loss of each document and its gradient; documents count differently, so that none is taken for another."""
    inputs = torch.as_tensor(logits).requires_grad_()
    losses = cost(inputs, truth_of(cost, truth))
    factor = torch.arange(1, len(logits) + 1, dtype=inputs.dtype)
    (gradient,) = torch.autograd.grad((factor * losses).sum(), inputs)
    return losses.detach().numpy(), (gradient / factor[:, None]).numpy()


def losses_of(cost: Loss, logits: Any, truth: Any) -> Any:
    return judge(cost, np.asarray(logits, np.float64), truth)[0]


def compare(cost: Loss, logits: Any, truth: Any, tolerance: float = 1e-9) -> None:
    """Require the losses, gradients and probabilities of numpy."""
    expected = numpy_loss(cost.spec, logits, truth)
    losses, gradients = judge(cost, logits, truth)
    assert losses == pytest.approx(expected[0], rel=tolerance, abs=tolerance)
    assert gradients == pytest.approx(expected[1], abs=tolerance)
    p = cost.probabilities(torch.as_tensor(logits)).numpy()
    assert p == pytest.approx(expected[2], abs=tolerance)
    assert p.dtype == losses.dtype == logits.dtype


# Twins


@examples(25)
@given(drawn=trees() | dags(), seed=st.integers(0, 10**6))
@pytest.mark.parametrize("name", LOSSES)
def test_losses_and_probabilities_are_what_the_definitions_say(name: str, drawn: Drawn, seed: int) -> None:
    rng, h, slow = np.random.default_rng(seed), drawn.fast, drawn.slow
    if not h.is_tree and name not in ON_DAGS:
        return
    counts = rng.integers(0, 5, len(h))
    cost = make_loss(name, h, counts, **PARAMS.get(name, {}))
    sets = truth_for(cost.spec, slow, rng)
    logits = rng.normal(0, 2, (len(sets), len(cost.outputs)))
    by_node = [dict(zip(cost.outputs.tolist(), row, strict=True)) for row in logits.tolist()]
    shifts = slow_shifts(slow, counts) if h.is_tree else {}
    expected = [slow_loss(name, slow, s, true, shifts) for s, true in zip(by_node, sets, strict=True)]
    assert losses_of(cost, logits, matrix_of(sets, len(h))) == pytest.approx(expected, abs=1e-9)
    p = cost.node_probabilities(logits)
    slow_p = [[slow_probability(name, slow, s, node) for node in range(len(h))] for s in by_node]
    assert p == pytest.approx(np.array(slow_p), abs=1e-9)
    if cost.spec.row.coherent:
        assert Scores(h, p).is_coherent()


@examples(25)
@given(drawn=trees() | dags(), seed=st.integers(0, 10**6), scale=st.sampled_from([1.0, 30.0]))
@pytest.mark.parametrize("name", LOSSES)
def test_gradients_are_those_by_hand(name: str, drawn: Drawn, seed: int, scale: float) -> None:
    if not drawn.fast.is_tree and name not in ON_DAGS:
        return
    cost, rng = made(name, drawn.fast), np.random.default_rng(seed)
    truth = matrix_of(truth_for(cost.spec, drawn.slow, rng, 5), len(drawn))
    compare(cost, rng.normal(0, scale, (5, len(cost.outputs))), truth)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize(
    "h", [TREE, DAG, Hierarchy.flat("ABC"), Hierarchy.flat("A")], ids=["tree", "DAG", "flat", "one"]
)
def test_gradients_are_what_differences_say(name: str, h: Hierarchy) -> None:
    if not h.is_tree and name not in ON_DAGS:
        return
    cost, rng = made(name, h), np.random.default_rng(0)
    truth = truth_of(cost, matrix_of(truth_for(cost.spec, slow_of(h), rng, 6), len(h)))
    logits = torch.from_numpy(rng.normal(0, 2, (6, len(cost.outputs)))).requires_grad_()
    assert torch.autograd.gradcheck(lambda s: cost(s, truth), (logits,), check_undefined_grad=False)
    weight = torch.from_numpy(rng.normal(size=(len(cost.outputs), 2))).requires_grad_()
    assert torch.autograd.gradcheck(lambda w: cost.penalty(w) + 0 * w.sum(), (weight,))


@pytest.mark.parametrize("h", [TREE, DAG], ids=["tree", "DAG"])
def test_penalties_on_weights_are_those_by_hand(h: Hierarchy) -> None:
    for name in LOSSES if h.is_tree else ON_DAGS:
        cost = made(name, h)
        weight = torch.from_numpy(np.random.default_rng(0).normal(size=(len(cost.outputs), 3))).requires_grad_()
        value, gradient = numpy_penalty(cost.spec, weight.detach().numpy())
        penalty = cost.penalty(weight) + 0 * weight.sum()
        assert float(penalty.detach()) == pytest.approx(value)
        assert (value > 0) == cost.has_penalty == (name == "match")
        assert torch.autograd.grad(penalty, weight)[0].numpy() == pytest.approx(gradient)
    pair = make_loss("match", Hierarchy.from_paths(["A > B"]), lambda_parameters=1.0)
    assert float(pair.penalty(torch.tensor([[1.0, 0.0], [0.0, 2.0]]))) == 2.5


@examples(50)
@given(drawn=trees() | dags(), seed=st.integers(0, 10**6))
def test_the_nearest_true_node_is_above_or_across_the_root(drawn: Drawn, seed: int) -> None:
    rng, nodes, slow = np.random.default_rng(seed), range(len(drawn)), drawn.slow
    sets = [slow.closure(rng.choice(len(drawn), rng.integers(1, 4)).tolist()) for _ in range(4)]
    champ = made("champ", drawn.fast)
    assert isinstance(champ, Champ)
    steps: Any = {node: slow_steps(slow, node) for node in nodes}
    if not drawn.fast.is_tree:  # there paths go up and then down
        steps = {node: {other: slow.distance(node, other) for other in nodes} for node in nodes}
    expected = [[min(steps[node][true] for true in row) for node in nodes] for row in sets]
    logits = torch.zeros(4, len(drawn))
    assert champ.distances(logits, truth_of(champ, matrix_of(sets, len(drawn)))).tolist() == expected
    largest = max(max(row.values()) for row in steps.values())
    assert largest == largest_distance(drawn.fast) if drawn.fast.is_tree else largest <= largest_distance(drawn.fast)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("h", [CHAIN, WIDE, WIDE_INSIDE], ids=["chain", "wide", "wide inside"])
@pytest.mark.slow
def test_deep_and_wide_trees(name: str, h: Hierarchy) -> None:
    cost, rng = made(name, h), np.random.default_rng(0)
    truth = np.zeros((8, len(h)), np.bool_)
    truth[np.arange(7), [h.leaves[-1], h.leaves[0], *rng.choice(h.leaves, 5)]] = True
    for documents in (truth, truth[2:4], truth[7:]):
        compare(cost, rng.normal(0, 2, (len(documents), len(cost.outputs))), documents, 1e-8)


# Batches and layouts


LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "Fortran order": np.asfortranarray,
    "every other row": lambda logits: np.repeat(logits, 2, axis=0)[::2],
    "every other column": lambda logits: np.repeat(logits, 2, axis=1)[:, ::2],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", LOSSES)
def test_logits_in_any_order_of_memory_are_the_same_logits(name: str, dtype: type, layout: str) -> None:
    for h in (TREE, DAG) if name in ON_DAGS else (TREE,):
        cost, rng = made(name, h), np.random.default_rng(0)
        truth = matrix_of(truth_for(cost.spec, slow_of(h), rng, 6), len(h))
        logits: Any = rng.normal(0, 2, (6, len(cost.outputs))).astype(dtype)
        moved = LAYOUTS[layout](logits)
        assert not moved.flags.c_contiguous
        for one, other in zip(judge(cost, moved, truth), judge(cost, logits, truth), strict=True):
            assert one == pytest.approx(other, rel=1e-5, abs=1e-6)
        assert cost.node_probabilities(moved) == pytest.approx(cost.node_probabilities(logits))


@pytest.mark.parametrize("h", [TREE, DAG], ids=["tree", "DAG"])
def test_batches_are_parts_of_what_was_prepared(h: Hierarchy) -> None:
    rng = np.random.default_rng(0)
    for name in LOSSES if h.is_tree else ON_DAGS:
        cost = made(name, h)
        truth = matrix_of(truth_for(cost.spec, slow_of(h), rng, 12), len(h))
        prepared = cost.prepare(h.most_specific(truth))
        logits = torch.from_numpy(rng.normal(size=(12, len(cost.outputs))))
        whole = cost(logits, prepared.batch(np.arange(12)))
        for rows in (np.array([11, 3, 3, 7]), np.array([11]), np.array([11, 11]), np.zeros(0, np.int64)):
            assert cost(logits[rows], prepared.batch(rows)).tolist() == pytest.approx(whole[rows].tolist())


# Identities


def test_the_gradient_of_weights_is_that_of_appendix_b4() -> None:
    """d loss / d w_k = (P(k | parent) - 1[k is true]) h where k is a sibling of a true node or one, and 0 elsewhere."""
    rng, slow = np.random.default_rng(0), slow_of(TREE)
    weight, hidden = (torch.from_numpy(rng.normal(size=shape)) for shape in ((len(TREE), 4), (1, 4)))
    true = slow.closure([TREE.names.index("B")])
    for name, judged in (("conditional_softmax", "AFIBE"), ("conditional_sigmoid", "AFIBECD")):
        cost = make_loss(name, TREE)
        learned = weight.clone().requires_grad_()
        cost(hidden @ learned.T, truth_of(cost, matrix_of([true], len(TREE)))).sum().backward()  # type: ignore[no-untyped-call]
        p = cost.probabilities(hidden @ weight.T)[0].tolist()
        for k in range(len(TREE)):
            (above,) = slow.parents[k]
            conditional = p[k] / (p[above] if above >= 0 else 1.0)
            expected = (conditional - (k in true)) * (TREE.names[k] in judged) * hidden[0]
            assert learned.grad is not None
            assert learned.grad[k].tolist() == pytest.approx(expected.tolist())


def test_on_a_flat_hierarchy_all_softmaxes_are_one() -> None:
    h, logits = Hierarchy.flat("ABCDE"), torch.randn(5, 5, dtype=torch.float64, generator=torch.Generator())
    plain = nn.functional.cross_entropy(logits, torch.arange(5), reduction="none")
    for name in ("conditional_softmax", "leaf_softmax", "win_flat", "win_log", "win_coarse"):
        losses, gradients = judge(made(name, h), logits.clone(), np.eye(5))
        assert losses == pytest.approx(plain.numpy())
        assert gradients == pytest.approx((torch.softmax(logits, 1) - torch.eye(5)).numpy())
    assert losses_of(make_loss("win_raw", h), logits, np.eye(5)) == pytest.approx(-np.exp(-plain.numpy()))


def test_without_tau_logit_adjustment_is_nothing_and_with_it_only_training_changes() -> None:
    rng = np.random.default_rng(0)
    logits, truth = rng.normal(size=(1, len(TREE))), TREE.closure(np.eye(len(TREE))[[6]])
    plain, off, on = (
        make_loss("conditional_softmax", TREE),
        *(made("conditional_softmax_la", TREE, tau=t) for t in (0, 1)),
    )
    assert isinstance(on, ConditionalSoftmaxLa)
    assert losses_of(off, logits, truth) == pytest.approx(losses_of(plain, logits, truth))
    assert losses_of(on, logits, truth) == pytest.approx(losses_of(plain, logits + on.adjustment.numpy(), truth))
    assert losses_of(on, logits, truth) != pytest.approx(losses_of(plain, logits, truth))
    assert on.node_probabilities(logits) == pytest.approx(plain.node_probabilities(logits))
    # By hand: nine of ten documents, counting one more for each sibling.
    pair = make_loss("conditional_softmax_la", Hierarchy.flat("AB"), [8, 0])
    assert losses_of(pair, np.zeros((2, 2)), np.eye(2)) == pytest.approx([-math.log(0.9), -math.log(0.1)])


@pytest.mark.parametrize("h", [TREE, DAG], ids=["tree", "DAG"])
def test_without_their_settings_champ_and_match_are_bce(h: Hierarchy) -> None:
    rng = np.random.default_rng(0)
    logits, truth = rng.normal(0, 2, (4, len(h))), rng.random((4, len(h))) < 0.3
    plain = judge(make_loss("bce", h), logits, truth)
    for name in ("champ", "match"):
        off = make_loss(name, h, **dict.fromkeys(PARAMS[name], 0.0))
        for one, other in zip(judge(off, logits, truth), plain, strict=True):
            assert one == pytest.approx(other)
        assert losses_of(made(name, h), logits, truth).sum() > plain[0].sum() + 0.1
        assert float(off.penalty(torch.ones(len(h), 3).cumsum(0))) == 0
    library = nn.functional.binary_cross_entropy_with_logits(
        torch.from_numpy(logits), torch.from_numpy(h.closure(truth).toarray() * 1.0), reduction="none"
    )
    assert plain[0] == pytest.approx(library.sum(1).numpy())


@pytest.mark.parametrize(
    ("name", "plain"), [("hierarchical_cross_entropy", {"alpha": 0.0}), ("soft_labels", {"beta": 1e6})]
)
@examples(25)
@given(drawn=trees(), seed=st.integers(0, 10**6))
def test_without_their_settings_losses_of_better_mistakes_are_cross_entropy(
    name: str, plain: dict[str, float], drawn: Drawn, seed: int
) -> None:
    rng, same = np.random.default_rng(seed), make_loss("leaf_softmax", drawn.fast)
    truth = matrix_of(truth_for(same.spec, drawn.slow, rng, 5), len(drawn))
    logits = rng.normal(0, 3, (5, len(same.outputs)))
    for one, other in zip(
        judge(make_loss(name, drawn.fast, **plain), logits, truth), judge(same, logits, truth), strict=True
    ):
        assert one == pytest.approx(other, abs=1e-9)


def test_a_far_mistake_costs_more_than_a_near_one() -> None:
    # Eight leaves on three levels of two; the wrong leaf has 0.965 and every other one 0.005. By hand, of the far one:
    # e^-0.5 ln 50 + (e^-1 + e^-1.5) ln 2 = 2.7824; of the near one: 0.0123 + 0.0038 + e^-1.5 ln 194 = 1.1914.
    h = Hierarchy.from_paths([(a, a + b, a + b + c) for a in "xy" for b in "xy" for c in "xy"])
    p = np.full((2, 8), 0.005)
    p[0, 7] = p[1, 1] = 0.965
    truth = np.zeros((2, len(h)))
    truth[:, h.leaves[0]] = 1
    far, near = losses_of(make_loss("hierarchical_cross_entropy", h, alpha=0.5), np.log(p), truth)
    assert (far, near) == pytest.approx((2.78241, 1.19144), abs=1e-5)
    whole = make_loss("hierarchical_cross_entropy", h, alpha=0.5, normalize=1)
    total = 1 + sum(2**d * math.exp(-0.5 * d) for d in (1, 2, 3))
    losses, gradients = judge(whole, np.log(p), truth)
    assert losses == pytest.approx([far / total, near / total])
    assert gradients.sum() == pytest.approx(0)


def test_soft_labels_fall_with_the_height_of_the_common_ancestor() -> None:
    soft = make_loss("soft_labels", Hierarchy.from_paths(["A > B", "A > C", "D"]), beta=math.log(4))
    even = make_loss("soft_labels", TREE, beta=0.0)
    assert isinstance(soft, SoftLabels)
    assert isinstance(even, SoftLabels)
    # 1, 4^-1/2 and 4^-1, normalised.
    targets = soft.targets(torch.zeros(1, 3, dtype=torch.float64), truth_of(soft, [[0, 0, 1, 0]]))
    assert targets[0].tolist() == pytest.approx([4 / 7, 2 / 7, 1 / 7])
    alike = even.targets(torch.zeros(6, 6), truth_of(even, np.eye(len(TREE))[TREE.leaves]))
    assert alike.numpy() == pytest.approx(np.full((6, 6), 1 / 6))


def test_the_win_of_the_papers_figures() -> None:
    h = Hierarchy.from_paths(["sturgeon > acipenser > oxyrinchus", "sturgeon > acipenser > other", "sturgeon > huso"])
    cost = make_loss("win_raw", h)
    truth = h.closure([[name == "oxyrinchus" for name in h.names]] * 3)
    logits = [[1e4 * (h.names[leaf] == chosen) for leaf in cost.outputs] for chosen in ("huso", "other", "oxyrinchus")]
    # The paper counts the root: 3/4, 7/8 and 1 are 1/2 + win/2.
    assert (1 - losses_of(cost, logits, truth)) / 2 == pytest.approx([3 / 4, 7 / 8, 1])


def test_the_gradient_of_the_win_by_probabilities_is_the_weights() -> None:
    """-win = -sum of p x shares: with s = ln p, d(-win) / ds = p (win - shares), which tells the shares."""
    cost, slow = make_loss("win_raw", TREE), slow_of(TREE)
    p = torch.softmax(torch.arange(len(cost.outputs), dtype=torch.float64), 0)
    for leaf in slow.leaves:
        path = slow.closure([leaf])
        losses, gradients = judge(cost, p.log()[None], matrix_of([path], len(TREE)))
        shares = {
            other: sum(2.0 ** -slow.longest_depth(node) for node in path & slow.closure([other]))
            + (other == leaf) * 2.0 ** -len(path)
            for other in slow.leaves
        }
        assert -losses - gradients[0] / p.numpy() == pytest.approx([shares[node] for node in cost.outputs.tolist()])


# Extremes


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [80.0, 1e4])
@pytest.mark.parametrize("name", LOSSES)
def test_extreme_logits_are_safe(name: str, size: float, dtype: type) -> None:
    rng = np.random.default_rng(0)
    # Adjustments beside large logits have but few digits left.
    tolerance = 1e-3 if (name, size, dtype) == ("conditional_softmax_la", 1e4, np.float32) else 1e-5
    for h in [TREE, DAG, SHORT_CUT] if name in ON_DAGS else [TREE]:
        cost = made(name, h)
        truth = matrix_of(truth_for(cost.spec, slow_of(h), rng, 30), len(h))
        logits: Any = rng.choice([-size, 0.0, size], (30, len(cost.outputs))).astype(dtype)
        losses, gradients = judge(cost, logits, truth)
        assert np.isfinite(losses).all()
        assert np.isfinite(gradients).all()
        p = cost.probabilities(torch.from_numpy(logits))
        assert ((p >= 0) & (p <= 1)).all()
        compare(cost, logits, truth, tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tiny_probabilities_keep_their_digits(dtype: torch.dtype) -> None:
    """A label of probability 1e-30 costs 30 ln 10, and is given back as 1e-30."""
    h, far = Hierarchy.from_paths(["A > B", "A > C", "D"]), 30 * np.log(10)
    # A is certain, D is out, and C is what a softmax takes in place of B.
    of_sigmoids, of_softmaxes = ({"A": 100.0, "B": -far, "C": other, "D": -1000.0} for other in (-100.0, 0.0))
    cases = {"bce": of_sigmoids, "conditional_sigmoid": of_sigmoids}
    cases |= {"conditional_softmax": of_softmaxes, "leaf_softmax": of_softmaxes}
    for name, by_name in cases.items():
        cost = make_loss(name, h)
        logits = torch.tensor([[by_name[h.names[node]] for node in cost.outputs]], dtype=dtype)
        losses, gradients = judge(cost, logits.clone(), [[label in "AB" for label in h.names]])
        assert losses == pytest.approx(far, rel=1e-6)
        assert gradients.min() == pytest.approx(-1)
        assert float(cost.probabilities(logits)[0, h.names.index("B")]) == pytest.approx(1e-30, rel=1e-4)


def test_sums_of_tiny_losses_keep_their_digits() -> None:
    cost = make_loss("bce", Hierarchy.flat("AB"))
    losses, _ = judge(cost, torch.tensor([[30.0, -30.0]]), [[1, 0]])
    assert losses == pytest.approx(2 * math.exp(-30), rel=1e-5)


def test_low_precision_is_judged_in_single() -> None:
    cost = make_loss("bce", TREE)
    logits = torch.ones(2, len(TREE), dtype=torch.bfloat16, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        losses = cost(logits, truth_of(cost, np.zeros((2, len(TREE)))))
    assert losses.dtype == torch.float32
    losses.sum().backward()  # type: ignore[no-untyped-call]
    assert logits.grad is not None
    assert logits.grad.dtype == torch.bfloat16


def test_gradients_too_small_to_matter_are_0() -> None:
    cost = make_loss("bce", Hierarchy.flat("AB"))
    _, gradients = judge(cost, torch.tensor([[-85.0, -70.0]]), [[0, 0]])
    assert gradients[0, 0] == 0 < gradients[0, 1]


# What is refused, and what is exported


def test_what_a_loss_cannot_learn_from_is_refused() -> None:
    two = TREE.closure(np.eye(len(TREE))[[3]] + np.eye(len(TREE))[[4]])
    inside = TREE.closure([[name == "B" for name in TREE.names]])
    for name, row in LOSSES.items():
        if row.needs == "any":
            continue
        with pytest.raises(TreelabelError, match=r"document 0: labels end at 2 nodes.*use conditional_sigmoid or bce"):
            made(name, TREE).prepare(two)
        if row.needs == "leaf":
            with pytest.raises(TreelabelError, match=r"end at 'B', which is no leaf.*with_other_leaves"):
                made(name, TREE).prepare(inside)
    plain = make_loss("conditional_softmax", TREE)
    assert losses_of(plain, np.zeros((1, len(TREE))), inside) == pytest.approx(math.log(6))


def test_a_dag_is_refused_by_losses_of_trees() -> None:
    assert {*ON_DAGS} == {"bce", "conditional_sigmoid", "leaf_softmax", "champ", "match"}
    for name in LOSSES.keys() - set(ON_DAGS):
        with pytest.raises(TreelabelError, match=rf"the loss {name} needs a tree.*Hierarchy.unfold\(\)"):
            made(name, DAG)


def test_wrong_input_is_refused() -> None:
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
        make_loss("leaf_softmax", TREE).node_probabilities(np.zeros((1, 9)))


def test_defaults_are_those_of_the_definitions() -> None:
    defaults = {name: {key: each.default for key, each in row.parameters.items()} for name, row in LOSSES.items()}
    assert {name: values for name, values in defaults.items() if values} == {
        "conditional_softmax_la": {"tau": 1.0},
        "champ": {"beta": 0.2},
        "match": {"lambda_parameters": 1e-4, "lambda_probabilities": 1e-2},
        "hierarchical_cross_entropy": {"alpha": 0.1, "normalize": 0.0},
        "soft_labels": {"beta": 10.0},
    }


def test_sums_of_leaves_in_single_precision_keep_small_nodes() -> None:
    """Sums are differences of a running sum: of a node after many likely ones, single precision would keep nothing."""
    h = Hierarchy.from_paths([f"A > a{number}" for number in range(50)] + ["B > b", "B > c"])
    cost = make_loss("leaf_softmax", h)
    logits = torch.zeros(1, len(cost.outputs))
    logits[0, -2:] = -20.0
    p = cost.probabilities(logits)[0, h.names.index("B")]
    assert float(p) == pytest.approx(2 * math.exp(-20) / (50 + 2 * math.exp(-20)), rel=1e-5)


def test_rows_lead_to_losses() -> None:
    for name, row in LOSSES.items():
        assert issubclass(row.maker, Loss)
        assert row.name == name
        assert row.help


def test_nothing_of_the_hierarchy_is_saved_with_weights() -> None:
    for name in LOSSES:
        assert not made(name, TREE).state_dict()


class AllMaps(nn.Module):
    """The probabilities of several losses, each of its own logits: they are exported in one go, which takes less."""

    def __init__(self, costs: list[Loss]) -> None:
        super().__init__()
        self.costs = nn.ModuleList(costs)

    def forward(self, *logits: Tensor) -> tuple[Tensor, ...]:
        pairs: Any = zip(self.costs, logits, strict=True)
        return tuple(cost.probabilities(values) for cost, values in pairs)


@pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec:FutureWarning")
@pytest.mark.filterwarnings("ignore:.*The axis name. documents will not be used:UserWarning")
@pytest.mark.parametrize(
    ("h", "names"), [(TREE, list(LOSSES)), (DAG, ["conditional_sigmoid", "leaf_softmax"])], ids=["tree", "DAG"]
)
@pytest.mark.slow
def test_probabilities_are_exported(h: Hierarchy, names: list[str], tmp_path: Path) -> None:
    costs = [made(name, h) for name in names]
    rng = np.random.default_rng(0)
    inputs = [rng.normal(0, 4, (5, len(cost.outputs))).astype(np.float32) for cost in costs]
    inputs = [np.concatenate([one, np.full_like(one[:1], -1e4), 60 * np.sign(one[:1])]) for one in inputs]
    rows = torch.export.Dim("documents")
    program = torch.onnx.export(
        AllMaps(costs).eval(),
        tuple(torch.from_numpy(one[:2]) for one in inputs),
        dynamo=True,
        dynamic_shapes=(tuple({0: rows} for _ in inputs),),
        verbose=False,
    )
    assert program is not None
    program.save(tmp_path / "maps.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "maps.onnx", providers=["CPUExecutionProvider"])
    named = {slot.name: one for slot, one in zip(session.get_inputs(), inputs, strict=True)}
    for cost, one, p in zip(costs, inputs, session.run(None, named), strict=True):
        assert p.dtype == np.float32
        assert p == pytest.approx(cost.node_probabilities(one), abs=1e-5), cost.spec.row.name


def test_groups_share_a_table_with_groups_of_their_size() -> None:
    tables, position = group_tables(np.cumsum([0, 1, 5, 2, 1, 3]))
    assert [table.tolist() for table in tables] == [
        [[0], [8]],
        [[6, 7]],
        [[9, 10, 11, 12]],
        [[1, 2, 3, 4, 5, 12, 12, 12]],
    ]
    assert position.tolist() == [0, 4, 4, 4, 4, 4, 2, 2, 1, 3, 3, 3]


def test_leaves_that_follow_each_other_need_no_order() -> None:
    none = np.zeros(3, np.int64)
    # Nodes with the leaves 0 1 2, 1 2 and 0; then with 0 2 and 1.
    slices, order, output = leaf_slices(np.array([0, 3, 5, 6]), np.array([0, 1, 2, 1, 2, 0]), none)
    assert (slices.tolist(), order.tolist(), output.tolist()) == ([[0, 1, 0], [3, 3, 1]], [], [0, 0, 0])
    slices, order, _ = leaf_slices(np.array([0, 2, 3]), np.array([0, 2, 1]), none)
    assert (slices.tolist(), order.tolist()) == ([[0, 2], [2, 3]], [0, 2, 1])


def test_wide_groups_have_64_outputs_and_one_in_16() -> None:
    def slices(*sizes: int) -> list[tuple[int, int, int]]:
        ptr = np.cumsum([0, *sizes])
        return list(wide_slices(Ragged.of(ptr, np.arange(ptr[-1]))))

    # The top labels are always one of them.
    assert slices(2, 63, 64) == [(0, 0, 2), (2, 65, 129)]
    assert slices(1, 64, 16 * 64 - 65) == [(0, 0, 1), (1, 1, 65), (2, 65, 1024)]
    assert slices(1, 64, 16 * 64 - 64) == [(0, 0, 1), (2, 65, 1025)]
    # In a DAG outputs of a group may be apart.
    assert wide_slices(Ragged.of([0, 1, 65], [0, *range(2, 65), 70])) == ((0, 0, 1),)


def test_ancestors_are_1_2_and_4_steps_above_as_far_as_a_tree_is_deep() -> None:
    chain = np.arange(-1, 4)
    jumps = ancestor_jumps(chain, 5).tolist()
    assert jumps == [[5, 0, 1, 2, 3, 5], [5, 5, 0, 1, 2, 5], [5, 5, 5, 5, 0, 5]]
    assert ancestor_jumps(chain[:4], 4).tolist() == [[4, 0, 1, 2, 4], [4, 4, 0, 1, 4]]
    assert ancestor_jumps(np.array([-1, -1]), 1).tolist() == []
