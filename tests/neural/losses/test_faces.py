"""Every form of every loss says what its numpy form says: torch, torch through numpy, and compiled loops."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.neural.losses.test_losses import ON_DAGS, TREE, made, truth_for
from tests.reference import matrix_of
from tests.strategies import Drawn, dags, examples, trees
from treelabel.neural.losses.base import Loss
from treelabel.neural.losses.compiled import compiled_loss
from treelabel.neural.losses.registry import LOSSES
from treelabel.neural.losses.torch import TorchLoss, torch_loss
from treelabel.neural.losses.torch.through_numpy import ThroughNumpy

Doubles = npt.NDArray[np.float64]
# Losses, gradients and probabilities, the last None where a form has no map of its own.
Found = tuple[Doubles, Doubles, Doubles | None]


def in_torch(module: TorchLoss, logits: Doubles, truth: Any) -> Found:
    given = torch.from_numpy(logits).requires_grad_()
    losses = module(given, module.prepare(truth).batch(np.arange(len(logits))))
    # Documents count differently, so that none is taken for another.
    factor = torch.arange(1, len(logits) + 1, dtype=given.dtype)
    (gradient,) = torch.autograd.grad((factor * losses).sum(), given)
    p = module.probabilities(given.detach()).numpy()
    return losses.detach().numpy(), (gradient / factor[:, None]).numpy(), p


def by_torch(loss: Loss, logits: Doubles, truth: Any) -> Found:
    return in_torch(torch_loss(loss), logits, truth)


def through_numpy(loss: Loss, logits: Doubles, truth: Any) -> Found:
    return in_torch(ThroughNumpy(loss), logits, truth)


def by_compiled(loss: Loss, logits: Doubles, truth: Any) -> Found | None:
    compiled = compiled_loss(loss)
    return None if compiled is None else (*compiled.loss_and_gradient(logits, truth), None)


# Offsets of compiled losses are in single precision.
FACES: dict[str, tuple[Callable[[Loss, Doubles, Any], Found | None], float]] = {
    "torch": (by_torch, 1e-9),
    "torch through numpy": (through_numpy, 1e-12),
    "compiled": (by_compiled, 1e-5),
}


@examples(25)
@given(drawn=trees() | dags(), seed=st.integers(0, 10**6), scale=st.sampled_from([1.0, 30.0]))
@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("name", LOSSES)
def test_every_form_says_what_numpy_says(name: str, face: str, drawn: Drawn, seed: int, scale: float) -> None:
    if not drawn.fast.is_tree and name not in ON_DAGS:
        return
    (compute, tolerance), loss, rng = FACES[face], made(name, drawn.fast), np.random.default_rng(seed)
    truth = matrix_of(truth_for(loss, drawn.slow, rng, 5), len(drawn))
    logits = rng.normal(0, scale, (5, len(loss.outputs)))
    found = compute(loss, logits, truth)
    if found is None:
        return
    losses, gradients, p = found
    assert losses == pytest.approx(loss.loss(logits, truth), rel=min(tolerance, 1e-6), abs=tolerance)
    assert gradients == pytest.approx(loss.gradient(logits, truth), abs=min(tolerance, 1e-6))
    if p is not None:
        assert p == pytest.approx(loss.probabilities(logits), abs=tolerance)


@pytest.mark.parametrize("name", LOSSES)
def test_penalties_on_weights_are_the_same(name: str) -> None:
    loss = made(name, TREE)
    weight = torch.from_numpy(np.random.default_rng(0).normal(size=(len(loss.outputs), 3))).requires_grad_()
    value, gradient = loss.penalty(weight.detach().numpy())
    for module in (torch_loss(loss), ThroughNumpy(loss)):
        found = module.penalty(weight) + 0 * weight.sum()
        assert float(found.detach()) == pytest.approx(value)
        assert torch.autograd.grad(found, weight)[0].numpy() == pytest.approx(gradient)
