"""The contract of a loss: a torch module that judges logits and turns them into node probabilities."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from treelabel.core.errors import TreelabelError
from treelabel.core.types import DoubleArray, IntArray
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.neural.losses.registry import LOSSES, LossSpec
from treelabel.neural.losses.truth import IndexedLabels, PreparedLabels

# Smaller gradients change nothing, and matrices of denormal numbers multiply ten times slower.
TINY = 1e-35


class Loss(nn.Module, ABC):
    """A loss over a hierarchy: logits are documents x outputs, and `outputs` are the nodes that they belong to.

    A new loss is a subclass with `forward` and `probabilities`, and one row in LOSSES. Autograd differentiates
    `forward`, in the precision of the logits, single or double.

    >>> import numpy as np
    >>> loss = make_loss("conditional_softmax", Hierarchy.from_paths(["A > B", "A > C", "D"]))
    >>> truth = loss.prepare([[0, 0, 1, 0]]).batch(np.array([0]))
    >>> logits = torch.zeros(1, 4, requires_grad=True)
    >>> losses = loss(logits, truth)
    >>> losses.sum().backward()
    >>> losses.tolist(), logits.grad.tolist()
    ([1.3862943649291992], [[-0.5, 0.5, -0.5, 0.5]])
    >>> loss.probabilities(logits.detach()).tolist()
    [[0.5, 0.5, 0.25, 0.25]]
    """

    def __init__(self, spec: LossSpec) -> None:
        super().__init__()
        self.spec = spec

    @property
    def hierarchy(self) -> Hierarchy:
        """The hierarchy of the labels."""
        return self.spec.hierarchy

    @property
    def outputs(self) -> IntArray:
        """The node of each output."""
        return self.spec.outputs

    def prepare(self, labels: Any) -> PreparedLabels:
        """Prepare the labels of a training set, closed or not; refuse those that the loss cannot learn from."""
        true = self.spec.true_outputs(self.spec.check_truth(labels))
        return IndexedLabels.without_groups(len(self.outputs), true)

    def __call__(self, logits: Tensor, truth: Any) -> Tensor:
        """Call `forward` in single precision or better, also in a network that is computed in half precision."""
        precise = logits if logits.dtype == torch.float64 else logits.float()
        # The formulas number the outputs of all documents in the order of memory. A view has a hook of its own.
        rows = precise.contiguous().view_as(precise)
        if rows.requires_grad:
            rows.register_hook(flush_tiny)  # type: ignore[no-untyped-call]
        with torch.autocast(logits.device.type, enabled=False):
            losses: Tensor = super().__call__(rows, truth)
        return losses

    @abstractmethod
    def forward(self, logits: Tensor, truth: Any) -> Tensor:
        """Compute the loss of each document.

        Parameters
        ----------
        logits
            Documents x outputs.
        truth
            The truth about these documents, a batch of what `prepare` returns: by default a `Truth`.

        Returns
        -------
        Tensor
            Shape (documents,).
        """

    @abstractmethod
    def probabilities(self, logits: Tensor) -> Tensor:
        """Return the probability of every node: documents x nodes. Must be exportable by torch.onnx."""

    def penalty(self, weight: Tensor) -> Tensor:
        """Return the cost of the output weights themselves (outputs x width); none by default."""
        return weight.new_zeros(())

    @property
    def has_penalty(self) -> bool:
        """Whether output weights cost anything by themselves."""
        return type(self).penalty is not Loss.penalty

    def node_probabilities(self, logits: npt.ArrayLike) -> DoubleArray:
        """Return the `probabilities` of an array of logits, in double precision; refuse a wrong shape."""
        values = np.asarray(logits, np.float64)
        if values.ndim != 2 or values.shape[1] != len(self.outputs):
            raise TreelabelError(
                f"logits of shape {values.shape}, but the loss {self.spec.row.name} has {len(self.outputs):,} outputs "
                "here; expected documents x outputs"
            )
        with torch.no_grad():
            result: DoubleArray = self.probabilities(torch.from_numpy(np.ascontiguousarray(values))).numpy()
        return result


def flush_tiny(gradient: Tensor) -> Tensor:
    """Set gradients below TINY to 0.

    >>> flush_tiny(torch.tensor([1e-38, 1e-30])).tolist() == [0.0, float(torch.tensor(1e-30))]
    True
    """
    return functional.hardshrink(gradient, TINY)


class Tables(nn.Module):
    """Index tensors of a hierarchy: they move with the module that holds them, and are not saved with it."""

    def __init__(self, tensors: Iterable[Tensor]) -> None:
        super().__init__()
        self.count = 0
        for tensor in tensors:
            self.register_buffer(str(self.count), tensor, persistent=False)
            self.count += 1

    def __iter__(self) -> Iterator[Tensor]:
        return (self.get_buffer(str(number)) for number in range(self.count))


def make_loss(name: str, hierarchy: Hierarchy, frequencies: npt.ArrayLike | None = None, **params: float) -> Loss:
    """Make a loss of LOSSES for a hierarchy.

    Parameters
    ----------
    name
        A name in LOSSES.
    hierarchy
        The hierarchy of the labels.
    frequencies
        Training documents of each node, for losses that look at them.
    **params
        Values of the loss's own parameters, such as beta of champ; others are refused.

    Returns
    -------
    Loss
        A torch module.

    Examples
    --------
    >>> make_loss("leaf_softmax", Hierarchy.from_paths(["A > B", "A > C"])).outputs.tolist()
    [1, 2]
    >>> make_loss("champ", Hierarchy.flat("AB"), gamma=1.0)
    Traceback (most recent call last):
    treelabel.core.errors.TreelabelError: the loss champ has no parameter 'gamma'; it has: beta=0.2 (0 to 1e+06)
    """
    loss: Loss = LOSSES.find(name).bind(hierarchy, frequencies, params).build()
    return loss
