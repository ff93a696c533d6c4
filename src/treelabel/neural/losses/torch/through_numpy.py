"""Any loss in torch, through its numpy form: what a loss without a torch form of its own trains with."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from treelabel.core.types import LongArray
from treelabel.neural.losses.base import Truth
from treelabel.neural.losses.torch.base import LossAndGradient, Prepared, TorchLoss, with_gradient


@dataclass(frozen=True, eq=False)
class CheckedLabels:
    """Labels as numpy losses take them."""

    truth: Truth

    def __len__(self) -> int:
        return len(self.truth)

    def batch(self, rows: LongArray, device: torch.device | str | None = None) -> Truth:
        """Return the labels of some documents; they stay on the CPU.

        Parameters
        ----------
        rows
            The numbers of the documents.
        device
            Not looked at.

        Returns
        -------
        Truth
        """
        return self.truth[rows]


class ThroughNumpy(TorchLoss):
    """Calls the numpy form of a loss, on the CPU and in double precision, and gives autograd its gradient.

    Slower than a torch form, by the time that logits take to be copied and numpy to go over them. It cannot be exported
    to ONNX.
    """

    def prepare(self, truth: Any) -> Prepared:
        """Close and check the labels of a training set."""
        return CheckedLabels(self.loss.checked_truth(truth))

    def probabilities(self, logits: Tensor) -> Tensor:
        """Return the probability of every node: documents x nodes."""
        return torch.from_numpy(self.loss.probabilities(logits.detach().cpu().numpy())).to(logits)

    def penalty(self, weight: Tensor) -> Tensor:
        """Return the cost of the output weights themselves (outputs x width)."""
        if not self.loss.has_penalty:
            return super().penalty(weight)

        def compute(given: Tensor) -> LossAndGradient:
            value, gradient = self.loss.penalty(given.cpu().numpy())
            return given.new_tensor(value), torch.from_numpy(gradient).to(given)

        return with_gradient(weight, compute)

    def _loss_and_gradient(self, logits: Tensor, batch: Truth) -> LossAndGradient:
        given = logits.cpu().numpy()
        losses, gradient = self.loss.loss(given, batch), self.loss.gradient(given, batch)
        return torch.from_numpy(losses).to(logits), torch.from_numpy(gradient).to(logits)
