"""Losses in torch: gradients by differences, equality with numpy and with slow twins, identities, extremes, ONNX."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from tests.neural.losses.test_losses import (
    DAG,
    ON_DAGS,
    PARAMS,
    TREE,
    made,
    slow_loss,
    slow_of,
    slow_probability,
    truth_for,
)
from tests.reference import matrix_of
from tests.strategies import Drawn, dags, examples, trees
from treelabel import Hierarchy, Scores, TreelabelError
from treelabel.neural.losses.base import Loss
from treelabel.neural.losses.compiled import compiled_loss
from treelabel.neural.losses.registry import LOSSES, make_loss
from treelabel.neural.losses.torch import TorchLoss, torch_loss
from treelabel.neural.losses.torch.registry import FORMS

CHAIN = Hierarchy.from_parents(list(range(-1, 69)), [f"step {node}" for node in range(70)])
WIDE = Hierarchy.from_parents([-1] * 3000 + list(range(500)), [f"label {node}" for node in range(3500)])

# A wide group below the top, which half of the documents are judged in, and small groups beside it.
WIDE_INSIDE = Hierarchy.from_parents([-1] * 2 + [0] * 300 + [1] * 5 + [2] * 3, [f"label {node}" for node in range(310)])


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Tensors are tiny here, and threads that wait for one another take longer than the work."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def losses_and_gradients(cost: TorchLoss, logits: Any, truth: Any) -> tuple[Tensor, Tensor]:
    """The loss of each document and its gradient; documents count differently, so that none is taken for another."""
    given = torch.as_tensor(logits).requires_grad_()
    losses = cost(given, cost.prepare(truth).batch(np.arange(len(logits))))
    factor = torch.arange(1, len(logits) + 1, dtype=given.dtype)
    (gradient,) = torch.autograd.grad((factor * losses).sum(), given)
    return losses.detach(), gradient / factor[:, None]


def compare(cost: Loss, logits: Any, truth: Any, tolerance: float = 1e-9) -> None:
    """Require the same loss, gradient and probabilities in torch and numpy."""
    in_torch = torch_loss(cost)
    losses, gradients = losses_and_gradients(in_torch, logits, truth)
    p = in_torch.probabilities(torch.as_tensor(logits))
    assert losses.numpy() == pytest.approx(cost.loss(logits, truth), rel=tolerance, abs=tolerance)
    assert gradients.numpy() == pytest.approx(cost.gradient(logits, truth), abs=tolerance)
    assert p.numpy() == pytest.approx(cost.probabilities(logits), abs=tolerance)


@examples(15)
@given(drawn=trees(10) | dags(10), seed=st.integers(0, 10**6))
@pytest.mark.parametrize("name", LOSSES)
def test_torch_says_what_the_definitions_say(name: str, drawn: Drawn, seed: int) -> None:
    h, slow = drawn.fast, drawn.slow
    if not h.is_tree and name not in ON_DAGS:
        return
    cost, rng = made(name, h), np.random.default_rng(seed)
    sets = truth_for(cost, slow, rng)
    logits = rng.normal(0, 2, (len(sets), len(cost.outputs)))
    shift = dict(enumerate(getattr(cost, "offsets", ())))
    by_node = [dict(zip(cost.outputs.tolist(), row, strict=True)) for row in logits.tolist()]
    expected = [slow_loss(name, slow, s, true, shift) for s, true in zip(by_node, sets, strict=True)]
    in_torch = torch_loss(cost)
    losses, _ = losses_and_gradients(in_torch, logits, matrix_of(sets, len(h)))
    assert losses.numpy() == pytest.approx(expected, abs=1e-9)
    p = in_torch.probabilities(torch.as_tensor(logits)).numpy()
    slow_p = [[slow_probability(name, slow, s, node) for node in range(len(h))] for s in by_node]
    assert p == pytest.approx(np.array(slow_p), abs=1e-9)
    if cost.coherent:
        Scores(h, p).require_coherent()


@examples(4)
@given(drawn=trees(9), seed=st.integers(0, 10**6))
@pytest.mark.parametrize("name", LOSSES)
def test_gradients_are_what_differences_say(name: str, drawn: Drawn, seed: int) -> None:
    rng = np.random.default_rng(seed)
    cost = torch_loss(made(name, drawn.fast))
    truth = matrix_of(truth_for(cost.loss, drawn.slow, rng, 3), len(drawn))
    logits = torch.from_numpy(rng.normal(0, 2, (truth.shape[0], len(cost.outputs)))).requires_grad_()
    batch = cost.prepare(truth).batch(np.arange(truth.shape[0]))
    assert torch.autograd.gradcheck(lambda s: cost(s, batch), (logits,))
    weight = torch.from_numpy(rng.normal(size=(len(cost.outputs), 2))).requires_grad_()
    assert torch.autograd.gradcheck(lambda w: cost.penalty(w) + 0 * w.sum(), (weight,))
    value, gradient = cost.loss.penalty(weight.detach().numpy())
    found = cost.penalty(weight) + 0 * weight.sum()
    assert float(found.detach()) == pytest.approx(value)
    assert torch.autograd.grad(found, weight)[0].numpy() == pytest.approx(gradient)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("h", [CHAIN, WIDE, WIDE_INSIDE], ids=["chain", "wide", "wide inside"])
def test_deep_and_wide_trees(name: str, h: Hierarchy) -> None:
    cost, rng = made(name, h), np.random.default_rng(0)
    truth = np.zeros((8, len(h)), np.bool_)
    truth[np.arange(7), [h.leaves[-1], h.leaves[0], *rng.choice(h.leaves, 5)]] = True
    for documents in (truth, truth[2:4], truth[7:]):
        compare(cost, rng.normal(0, 2, (len(documents), len(cost.outputs))), documents, 1e-8)


LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "Fortran order": np.asfortranarray,
    "every other row": lambda logits: np.repeat(logits, 2, axis=0)[::2],
    "every other column": lambda logits: np.repeat(logits, 2, axis=1)[:, ::2],
}


def all_forms(cost: Loss, logits: Any, truth: Any) -> list[Any]:
    """What numpy, torch and the compiled form, if there is one, make of logits: losses, gradients, probabilities."""
    in_torch, compiled = torch_loss(cost), compiled_loss(cost)
    found = [cost.loss(logits, truth), cost.gradient(logits, truth), cost.probabilities(logits)]
    found += [part.numpy() for part in losses_and_gradients(in_torch, logits, truth)]
    found.append(in_torch.probabilities(torch.as_tensor(logits).detach()).numpy())
    return found if compiled is None else [*found, *compiled.loss_and_gradient(logits, truth)]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", LOSSES)
def test_logits_in_any_order_of_memory_are_the_same_logits(name: str, dtype: type, layout: str) -> None:
    for h in (TREE, DAG) if name in ON_DAGS else (TREE,):
        cost, rng = made(name, h), np.random.default_rng(0)
        truth = matrix_of(truth_for(cost, slow_of(h), rng, 6), len(h))
        logits: Any = rng.normal(0, 2, (6, len(cost.outputs))).astype(dtype)
        given = LAYOUTS[layout](logits)
        assert not given.flags.c_contiguous
        for found, expected in zip(all_forms(cost, given, truth), all_forms(cost, logits, truth), strict=True):
            assert found == pytest.approx(expected, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("h", [TREE, DAG], ids=["tree", "DAG"])
def test_batches_are_parts_of_what_was_prepared(h: Hierarchy) -> None:
    rng = np.random.default_rng(0)
    for name in LOSSES if h.is_tree else ON_DAGS:
        cost = torch_loss(made(name, h))
        truth = matrix_of(truth_for(cost.loss, slow_of(h), rng, 12), len(h))
        prepared = cost.prepare(cost.loss.hierarchy.most_specific(truth))
        assert len(prepared) == 12
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
        cost = torch_loss(make_loss(name, TREE))
        learned = weight.clone().requires_grad_()
        cost(hidden @ learned.T, cost.prepare(matrix_of([true], len(TREE))).batch(np.array([0]))).sum().backward()
        p = cost.probabilities(hidden @ weight.T)[0].tolist()
        for k in range(len(TREE)):
            (above,) = slow.parents[k]
            given_parent = p[k] / (p[above] if above >= 0 else 1.0)
            expected = (given_parent - (k in true)) * (TREE.names[k] in judged) * hidden[0]
            assert learned.grad is not None
            assert learned.grad[k].tolist() == pytest.approx(expected.tolist())


def test_on_a_flat_hierarchy_all_softmaxes_are_one() -> None:
    h, logits = Hierarchy.flat("ABCDE"), torch.randn(5, 5, dtype=torch.float64, generator=torch.Generator())
    plain = nn.functional.cross_entropy(logits, torch.arange(5), reduction="none")
    for name in ("conditional_softmax", "leaf_softmax", "win_flat", "win_log", "win_coarse"):
        losses, gradients = losses_and_gradients(torch_loss(made(name, h)), logits.clone(), np.eye(5))
        assert losses.tolist() == pytest.approx(plain.tolist())
        assert gradients.numpy() == pytest.approx((torch.softmax(logits, 1) - torch.eye(5)).numpy())


def test_settings_of_nothing_are_the_plain_losses() -> None:
    rng = np.random.default_rng(0)
    logits, path = rng.normal(0, 2, (1, len(TREE))), TREE.closure(np.eye(len(TREE))[[6]])
    for name, plain in (("conditional_softmax_la", "conditional_softmax"), ("champ", "bce"), ("match", "bce")):
        off = torch_loss(made(name, TREE, **dict.fromkeys(PARAMS[name], 0.0)))
        expected = losses_and_gradients(torch_loss(make_loss(plain, TREE)), logits, path)
        for one, two in zip(losses_and_gradients(off, logits, path), expected, strict=True):
            assert one.numpy() == pytest.approx(two.numpy())
        on, _ = losses_and_gradients(torch_loss(made(name, TREE)), logits, path)
        assert on.numpy() != pytest.approx(expected[0].numpy())
        assert float(off.penalty(torch.ones(len(TREE), 3).cumsum(0))) == 0
    library = nn.functional.binary_cross_entropy_with_logits(
        torch.from_numpy(logits), torch.from_numpy(path.toarray() * 1.0), reduction="sum"
    )
    assert expected[0].tolist() == pytest.approx([float(library)])


def test_the_gradient_of_the_win_by_probabilities_is_the_weights() -> None:
    """-win = -sum of p x shares: with s = ln p, d(-win) / ds = p (win - shares), which tells the shares."""
    cost, slow = torch_loss(make_loss("win_raw", TREE)), slow_of(TREE)
    p = torch.softmax(torch.arange(len(cost.outputs), dtype=torch.float64), 0)
    for leaf in slow.leaves:
        losses, gradients = losses_and_gradients(cost, p.log()[None], matrix_of([slow.closure([leaf])], len(TREE)))
        path = slow.closure([leaf])
        shares = {
            other: sum(2.0 ** -slow.longest_depth(node) for node in path & slow.closure([other]))
            + (other == leaf) * 2.0 ** -len(path)
            for other in slow.leaves
        }
        found = -losses - gradients[0] / p
        assert found.tolist() == pytest.approx([shares[node] for node in cost.outputs.tolist()])


# Extremes


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [80.0, 1e4])
@pytest.mark.parametrize("name", LOSSES)
def test_extreme_logits_are_safe(name: str, size: float, dtype: torch.dtype) -> None:
    rng = np.random.default_rng(0)
    # Offsets beside large logits have but few digits left.
    tolerance = 1e-3 if (name, size, dtype) == ("conditional_softmax_la", 1e4, torch.float32) else 1e-5
    for h in [TREE, DAG] if name in ON_DAGS else [TREE]:
        cost = torch_loss(made(name, h))
        truth = matrix_of(truth_for(cost.loss, slow_of(h), rng, 30), len(h))
        logits = torch.from_numpy(rng.choice([-size, 0.0, size], (30, len(cost.outputs)))).to(dtype)
        losses, gradients = losses_and_gradients(cost, logits.clone(), truth)
        assert losses.isfinite().all()
        assert gradients.isfinite().all()
        assert losses.numpy() == pytest.approx(cost.loss.loss(logits.numpy(), truth), rel=tolerance, abs=tolerance)
        assert gradients.numpy() == pytest.approx(cost.loss.gradient(logits.numpy(), truth), abs=tolerance)
        p = cost.probabilities(logits)
        assert p.dtype == losses.dtype == dtype
        assert ((p >= 0) & (p <= 1)).all()
        assert p.numpy() == pytest.approx(cost.loss.probabilities(logits.numpy()), abs=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tiny_probabilities_keep_their_digits(dtype: torch.dtype) -> None:
    """A label of probability 1e-30 costs 30 ln 10, and is given back as 1e-30."""
    h, far = Hierarchy.from_paths(["A > B", "A > C", "D"]), 30 * np.log(10)
    # A is certain, D is out, and C is what a softmax takes in place of B.
    of_sigmoids, of_softmaxes = ({"A": 100.0, "B": -far, "C": other, "D": -1000.0} for other in (-100.0, 0.0))
    cases = {"bce": of_sigmoids, "conditional_sigmoid": of_sigmoids}
    cases |= {"conditional_softmax": of_softmaxes, "leaf_softmax": of_softmaxes}
    for name, by_name in cases.items():
        cost = torch_loss(make_loss(name, h))
        logits = torch.tensor([[by_name[h.names[node]] for node in cost.outputs]], dtype=dtype)
        losses, gradients = losses_and_gradients(cost, logits.clone(), [[label in "AB" for label in h.names]])
        assert float(losses) == pytest.approx(far, rel=1e-6)
        assert float(gradients.min()) == pytest.approx(-1)
        assert float(cost.probabilities(logits)[0, h.names.index("B")]) == pytest.approx(1e-30, rel=1e-4)


def test_low_precision_is_judged_in_single() -> None:
    cost = torch_loss(make_loss("bce", TREE))
    logits = torch.ones(2, len(TREE), dtype=torch.bfloat16, requires_grad=True)
    losses = cost(logits, cost.prepare(np.zeros((2, len(TREE)))).batch(np.arange(2)))
    assert losses.dtype == torch.float32
    losses.sum().backward()
    assert logits.grad is not None
    assert logits.grad.dtype == torch.bfloat16


# What is refused, and what is exported


def test_what_a_loss_cannot_learn_from_is_said() -> None:
    two = TREE.closure(np.eye(len(TREE))[[3]] + np.eye(len(TREE))[[4]])
    for name in LOSSES:
        cost = torch_loss(made(name, TREE))
        if cost.loss.needs != "any":
            with pytest.raises(TreelabelError, match="document 0: labels end at 2 nodes"):
                cost.prepare(two)


def test_nothing_of_the_hierarchy_is_saved_with_weights() -> None:
    for name in LOSSES:
        assert not torch_loss(made(name, TREE)).state_dict()


class AllMaps(nn.Module):
    """The probabilities of several losses, each of its own logits: they are exported in one go, which takes less."""

    def __init__(self, costs: list[Loss]) -> None:
        super().__init__()
        self.costs = nn.ModuleList([torch_loss(cost) for cost in costs])

    def forward(self, *logits: Tensor) -> tuple[Tensor, ...]:
        found: Any = zip(self.costs, logits, strict=True)
        return tuple(cost.probabilities(given) for cost, given in found)


@pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec:FutureWarning")
@pytest.mark.filterwarnings("ignore:.*The axis name. documents will not be used:UserWarning")
@pytest.mark.parametrize(
    ("h", "names"),
    [
        (TREE, [name for name, row in LOSSES.items() if row.maker in FORMS]),
        (DAG, ["conditional_sigmoid", "leaf_softmax"]),
    ],
    ids=["tree", "DAG"],
)
@pytest.mark.slow
def test_probabilities_are_exported(h: Hierarchy, names: list[str], tmp_path: Path) -> None:
    costs = [made(name, h) for name in names]
    rng = np.random.default_rng(0)
    given = [rng.normal(0, 4, (5, len(cost.outputs))).astype(np.float32) for cost in costs]
    given = [np.concatenate([one, np.full_like(one[:1], -1e4), 60 * np.sign(one[:1])]) for one in given]
    rows = torch.export.Dim("documents")
    program = torch.onnx.export(
        AllMaps(costs).eval(),
        tuple(torch.from_numpy(one[:2]) for one in given),
        dynamo=True,
        dynamic_shapes=(tuple({0: rows} for _ in given),),
        verbose=False,
    )
    assert program is not None
    program.save(tmp_path / "maps.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "maps.onnx", providers=["CPUExecutionProvider"])
    named = {slot.name: one for slot, one in zip(session.get_inputs(), given, strict=True)}
    for cost, one, p in zip(costs, given, session.run(None, named), strict=True):
        assert p.dtype == np.float32
        assert p == pytest.approx(cost.probabilities(one), abs=1e-5), cost.name
