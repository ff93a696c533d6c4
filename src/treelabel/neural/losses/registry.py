"""The registry of losses, and how one is made by its name. Modules, and torch, are imported when asked for."""

from typing import TYPE_CHECKING

import numpy.typing as npt

from treelabel.core.registry import Registry
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.neural.losses.loss_spec import LossRow, Parameter

if TYPE_CHECKING:
    from treelabel.neural.losses.base import Loss

_ROWS = (
    LossRow("bce", "a sigmoid for every node; any labels, any hierarchy", "neural.losses.bce:Bce", coherent=False),
    LossRow(
        "leaf_softmax",
        "cross-entropy over the leaves; one leaf per document",
        "neural.losses.leaf_softmax:LeafSoftmax",
        needs="leaf",
        outputs="leaves",
    ),
    LossRow(
        "conditional_softmax",
        "a softmax among siblings; one path in a tree",
        "neural.losses.conditional_softmax:ConditionalSoftmax",
        needs="path",
        needs_tree=True,
    ),
    LossRow(
        "conditional_softmax_la",
        "the same, adjusted for the siblings' training frequencies (logit adjustment)",
        "neural.losses.conditional_softmax:ConditionalSoftmaxLa",
        needs="path",
        needs_tree=True,
        needs_frequencies=True,
        parameters={"tau": Parameter(1.0, 0.0, 1e6, "strength of the logit adjustment; 1 balances siblings")},
    ),
    LossRow(
        "conditional_sigmoid",
        "a sigmoid given the parents; any labels, any hierarchy",
        "neural.losses.conditional_sigmoid:ConditionalSigmoid",
    ),
    LossRow(
        "champ",
        "bce in which a wrong node costs more the further it is from the truth",
        "neural.losses.champ:Champ",
        coherent=False,
        parameters={"beta": Parameter(0.2, 0.0, 1e6, "how much more distant mistakes cost")},
    ),
    LossRow(
        "match",
        "bce with children pulled towards and below their parents",
        "neural.losses.match:Match",
        coherent=False,
        parameters={
            "lambda_parameters": Parameter(1e-4, 0.0, 1e6, "weight of |W_child - W_parent|^2 / 2"),
            "lambda_probabilities": Parameter(1e-2, 0.0, 1e6, "weight of max(0, P(child) - P(parent))"),
        },
    ),
    LossRow(
        "win_flat",
        "cross-entropy over the leaves, the hierarchical win's baseline",
        "neural.losses.leaf_softmax:LeafSoftmax",
        needs="leaf",
        needs_tree=True,
        outputs="leaves",
    ),
    LossRow(
        "win_raw",
        "minus the hierarchical win; one leaf in a tree",
        "neural.losses.win:WinRaw",
        needs="leaf",
        needs_tree=True,
        outputs="leaves",
    ),
    LossRow(
        "win_log",
        "minus the logarithm of the hierarchical win; one leaf in a tree",
        "neural.losses.win:WinLog",
        needs="leaf",
        needs_tree=True,
        outputs="leaves",
    ),
    LossRow(
        "win_coarse",
        "cross-entropy over the top labels only",
        "neural.losses.win:WinCoarse",
        needs="path",
        needs_tree=True,
        outputs="top",
    ),
    LossRow(
        "hierarchical_cross_entropy",
        "cross-entropy along the path, mistakes near the root costing more (HXE)",
        "neural.losses.hierarchical_cross_entropy:HierarchicalCrossEntropy",
        needs="leaf",
        needs_tree=True,
        outputs="leaves",
        parameters={
            "alpha": Parameter(0.1, 0.0, 100.0, "how much more mistakes near the root cost"),
            "normalize": Parameter(0.0, 0.0, 1.0, "1: the weights of all nodes sum to 1"),
        },
    ),
    LossRow(
        "soft_labels",
        "cross-entropy over the leaves, near leaves being true in part",
        "neural.losses.soft_labels:SoftLabels",
        needs="leaf",
        needs_tree=True,
        outputs="leaves",
        parameters={"beta": Parameter(10.0, 0.0, 1e6, "hardness of the labels; large is plain cross-entropy")},
    ),
)

LOSSES: Registry[LossRow] = Registry("loss", _ROWS)


def make_loss(name: str, hierarchy: Hierarchy, frequencies: npt.ArrayLike | None = None, **params: float) -> "Loss":
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
