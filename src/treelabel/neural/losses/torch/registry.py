"""Which losses have a torch form of their own; all others train through their numpy gradient."""

from typing import Any

from treelabel.core.errors import TreelabelError
from treelabel.neural.losses.base import Loss
from treelabel.neural.losses.bce import Bce
from treelabel.neural.losses.champ import Champ
from treelabel.neural.losses.conditional_sigmoid import ConditionalSigmoid
from treelabel.neural.losses.conditional_softmax import ConditionalSoftmax, ConditionalSoftmaxLa
from treelabel.neural.losses.hierarchical_cross_entropy import HierarchicalCrossEntropy
from treelabel.neural.losses.leaf_softmax import LeafSoftmax
from treelabel.neural.losses.match import Match
from treelabel.neural.losses.soft_labels import SoftLabels
from treelabel.neural.losses.torch.base import TorchLoss
from treelabel.neural.losses.torch.bce import TorchBce
from treelabel.neural.losses.torch.champ import TorchChamp
from treelabel.neural.losses.torch.conditional_sigmoid import TorchConditionalSigmoid
from treelabel.neural.losses.torch.conditional_softmax import TorchConditionalSoftmax
from treelabel.neural.losses.torch.hierarchical_cross_entropy import TorchHierarchicalCrossEntropy
from treelabel.neural.losses.torch.leaf_softmax import TorchLeafSoftmax
from treelabel.neural.losses.torch.match import TorchMatch
from treelabel.neural.losses.torch.soft_labels import TorchSoftLabels
from treelabel.neural.losses.torch.through_numpy import ThroughNumpy
from treelabel.neural.losses.torch.win import TorchWin, TorchWinCoarse
from treelabel.neural.losses.win import WinCoarse, WinFlat, WinLog, WinRaw

# By the class itself: a subclass has another formula, and so no torch form until it is listed.
FORMS: dict[type[Loss], type[Any]] = {
    Bce: TorchBce,
    LeafSoftmax: TorchLeafSoftmax,
    ConditionalSoftmax: TorchConditionalSoftmax,
    ConditionalSoftmaxLa: TorchConditionalSoftmax,
    ConditionalSigmoid: TorchConditionalSigmoid,
    Champ: TorchChamp,
    Match: TorchMatch,
    WinFlat: TorchLeafSoftmax,
    WinRaw: TorchWin,
    WinLog: TorchWin,
    WinCoarse: TorchWinCoarse,
    HierarchicalCrossEntropy: TorchHierarchicalCrossEntropy,
    SoftLabels: TorchSoftLabels,
}


def torch_loss(loss: Loss) -> TorchLoss:
    """Make a torch module of a loss: its own torch form, or else one that calls its numpy form.

    >>> import torch
    >>> from treelabel import Hierarchy
    >>> torch_loss(Bce(Hierarchy.flat("AB"))).probabilities(torch.zeros(1, 2)).tolist()
    [[0.5, 0.5]]
    """
    made: TorchLoss = FORMS.get(type(loss), ThroughNumpy)(loss)
    return made


def require_exportable(loss: Loss) -> None:
    """Refuse a loss whose probabilities cannot be part of an ONNX graph."""
    if type(loss) not in FORMS:
        raise TreelabelError(
            f"the loss {loss.name} has no torch form, so a model that was trained with it cannot be exported to ONNX"
        )
