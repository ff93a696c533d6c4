"""The registry of losses, and how one is made by its name."""

import numpy.typing as npt

from treelabel.core.registry import Lazy, Registry
from treelabel.hierarchy import Hierarchy
from treelabel.neural.losses.base import Loss

_ROWS: tuple[Lazy[Loss], ...] = (
    Lazy("bce", "a sigmoid for every node; any labels, any hierarchy", "neural.losses.bce:Bce"),
    Lazy(
        "leaf_softmax", "cross-entropy over the leaves; one leaf per document", "neural.losses.leaf_softmax:LeafSoftmax"
    ),
    Lazy(
        "conditional_softmax",
        "a softmax among siblings; one path in a tree",
        "neural.losses.conditional_softmax:ConditionalSoftmax",
    ),
    Lazy(
        "conditional_softmax_la",
        "the same, adjusted for the siblings' training frequencies (logit adjustment)",
        "neural.losses.conditional_softmax:ConditionalSoftmaxLa",
    ),
    Lazy(
        "conditional_sigmoid",
        "a sigmoid given the parents; any labels, any hierarchy",
        "neural.losses.conditional_sigmoid:ConditionalSigmoid",
    ),
    Lazy("champ", "bce in which a wrong node costs more the further it is from the truth", "neural.losses.champ:Champ"),
    Lazy("match", "bce with children pulled towards and below their parents", "neural.losses.match:Match"),
    Lazy("win_flat", "cross-entropy over the leaves, the hierarchical win's baseline", "neural.losses.win:WinFlat"),
    Lazy("win_raw", "minus the hierarchical win; one leaf in a tree", "neural.losses.win:WinRaw"),
    Lazy("win_log", "minus the logarithm of the hierarchical win; one leaf in a tree", "neural.losses.win:WinLog"),
    Lazy("win_coarse", "cross-entropy over the top labels only", "neural.losses.win:WinCoarse"),
    Lazy(
        "hierarchical_cross_entropy",
        "cross-entropy along the path, mistakes near the root costing more (HXE)",
        "neural.losses.hierarchical_cross_entropy:HierarchicalCrossEntropy",
    ),
    Lazy(
        "soft_labels",
        "cross-entropy over the leaves, near leaves being true in part",
        "neural.losses.soft_labels:SoftLabels",
    ),
)

LOSSES: Registry[Lazy[Loss]] = Registry("loss", _ROWS)


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
        The loss.

    Examples
    --------
    >>> make_loss("leaf_softmax", Hierarchy.from_paths(["A > B", "A > C"])).outputs.tolist()
    [1, 2]
    >>> make_loss("champ", Hierarchy.flat("AB"), gamma=1.0)
    Traceback (most recent call last):
    treelabel.core.errors.TreelabelError: the loss champ has no parameter 'gamma'; it has: beta=0.2 (0 to 1e+06)
    """
    return LOSSES.find(name).maker(hierarchy, frequencies, **params)
