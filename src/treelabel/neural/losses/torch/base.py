"""The contract of a loss in torch, and how autograd is given gradients that are known.

The numpy losses state the formulas, know the hierarchy and refuse labels; modules here compute the same numbers. A
training set is prepared once, and batches of it are a few index tensors.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from treelabel.core.types import IntArray, LongArray
from treelabel.neural.losses.base import Loss
from treelabel.neural.losses.torch.batches import IndexedLabels, Ragged

# The loss of each document, shape (documents,), and its gradient, documents x outputs.
LossAndGradient = tuple[Tensor, Tensor]

# Gradients below this are 0: they change nothing, and matrices of denormal numbers multiply ten times slower.
TINY = 1e-35


class Prepared(Protocol):
    """The labels of a training set, ready for batches to be taken from."""

    def __len__(self) -> int:
        """The number of documents."""

    def batch(self, rows: LongArray, device: torch.device | str | None = None) -> Any:
        """Return the truth about some documents, as the loss that prepared it takes it.

        Parameters
        ----------
        rows
            The numbers of the documents.
        device
            Where tensors are put.

        Returns
        -------
        object
            What the loss takes as truth.
        """


class TorchLoss(nn.Module, ABC):
    """A loss of LOSSES for torch; everything is computed in the precision of the logits, single or double.

    >>> import numpy as np
    >>> from treelabel import Hierarchy
    >>> from treelabel.neural.losses.registry import make_loss
    >>> from treelabel.neural.losses.torch import torch_loss
    >>> loss = torch_loss(make_loss("conditional_softmax", Hierarchy.from_paths(["A > B", "A > C", "D"])))
    >>> batch = loss.prepare([[0, 0, 1, 0]]).batch(np.array([0]))
    >>> logits = torch.zeros(1, 4, requires_grad=True)
    >>> loss(logits, batch).sum().backward()
    >>> logits.grad.tolist(), loss.probabilities(logits.detach()).tolist()
    ([[-0.5, 0.5, -0.5, 0.5]], [[0.5, 0.5, 0.25, 0.25]])
    """

    def __init__(self, loss: Loss) -> None:
        super().__init__()
        self.loss = loss
        self.outputs: IntArray = loss.outputs
        self.coherent: bool = loss.coherent

    def prepare(self, truth: Any) -> Prepared:
        """Prepare the labels of a training set, closed or not; refuse those that the loss cannot learn from."""
        ptr, true = self.loss.true_outputs(self.loss.checked_truth(truth))
        return IndexedLabels.of(len(self.outputs), Ragged.of(ptr, true))

    def forward(self, logits: Tensor, batch: Any) -> Tensor:
        """Compute the loss of each document.

        Parameters
        ----------
        logits
            Documents x outputs.
        batch
            The truth about these documents, from `prepare`.

        Returns
        -------
        Tensor
            Shape (documents,).
        """
        precise = logits if logits.dtype == torch.float64 else logits.float()
        # Also in a network that is computed in half precision.
        with torch.autocast(logits.device.type, enabled=False):
            # The formulas number the outputs of all documents in the order of memory.
            return with_gradient(precise.contiguous(), partial(self._loss_and_gradient, batch=batch))

    @abstractmethod
    def probabilities(self, logits: Tensor) -> Tensor:
        """Return the probability of every node: documents x nodes."""

    def penalty(self, weight: Tensor) -> Tensor:
        """Return the cost of the output weights themselves (outputs x width); none by default."""
        return weight.new_zeros(())

    @abstractmethod
    def _loss_and_gradient(self, logits: Tensor, batch: Any) -> LossAndGradient:
        """Compute the loss of each document and its gradient."""

    def _keep(self, name: str, tensors: Iterable[Tensor]) -> list[str]:
        """Have tensors move with the module, but not be saved with it; return their names."""
        names = []
        for number, tensor in enumerate(tensors):
            self.register_buffer(f"{name}_{number}", tensor, persistent=False)
            names.append(f"{name}_{number}")
        return names

    def _kept(self, names: list[str]) -> list[Tensor]:
        return [self.get_buffer(name) for name in names]


class WithGradient(torch.autograd.Function):
    """Lets autograd use a gradient that is computed with the loss, by the formula, so that nothing else is kept."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, compute: Callable[[Tensor], LossAndGradient]) -> Tensor:
        """Compute the losses, and keep their gradient."""
        losses, gradient = compute(values.detach())
        ctx.save_for_backward(gradient)
        return losses

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, from_above: Tensor) -> tuple[Tensor, None]:
        """Multiply the gradient by the one from above."""
        (gradient,) = ctx.saved_tensors
        return functional.hardshrink(from_above.unsqueeze(-1) * gradient, TINY), None


with_gradient: Callable[[Tensor, Callable[[Tensor], LossAndGradient]], Tensor] = WithGradient.apply
