"""The registry of losses, and how one is made by its name."""

import numpy.typing as npt

from treelabel.core.errors import TreelabelError
from treelabel.core.registry import Lazy, Registry
from treelabel.hierarchy import Hierarchy
from treelabel.losses.base import Loss

_ROWS: tuple[Lazy[Loss], ...] = (
    Lazy("bce", "a sigmoid for every node; any labels, any hierarchy", "losses.node_losses:Bce"),
    Lazy("leaf_softmax", "cross-entropy over the leaves; one leaf a document", "losses.leaf_losses:LeafSoftmax"),
    Lazy(
        "conditional_softmax", "a softmax among siblings; one path in a tree", "losses.node_losses:ConditionalSoftmax"
    ),
    Lazy(
        "conditional_softmax_la",
        "the same, training shares taken out (logit adjustment)",
        "losses.node_losses:ConditionalSoftmaxLa",
    ),
    Lazy(
        "conditional_sigmoid",
        "a sigmoid given the parents; any labels, any hierarchy",
        "losses.node_losses:ConditionalSigmoid",
    ),
    Lazy("champ", "bce, a wrong node costing more the further it is from the truth", "losses.penalties:Champ"),
    Lazy("match", "bce, children pulled towards and below their parents; not for bag", "losses.penalties:Match"),
    Lazy("win_flat", "cross-entropy over the leaves, as hierarchical win knows it", "losses.leaf_losses:WinFlat"),
    Lazy("win_raw", "minus the hierarchical win; one leaf in a tree", "losses.leaf_losses:WinRaw"),
    Lazy("win_log", "minus the logarithm of the hierarchical win; one leaf in a tree", "losses.leaf_losses:WinLog"),
    Lazy("win_coarse", "cross-entropy over the top labels only", "losses.leaf_losses:WinCoarse"),
)

LOSSES: Registry[Lazy[Loss]] = Registry("loss", _ROWS)


# What some loss takes besides frequencies and tau; models pass all of these, whatever the loss.
SETTINGS = ("beta", "lambda_parameters", "lambda_probabilities")


def make_loss(
    name: str, hierarchy: Hierarchy, frequencies: npt.ArrayLike | None = None, tau: float = 1.0, **others: float
) -> Loss:
    """Make a loss of LOSSES for a hierarchy.

    `others`: beta of champ (0.2), lambda_parameters (1e-4) and lambda_probabilities (1e-2) of match. A loss takes its
    own of these and leaves the rest.

    >>> make_loss("leaf_softmax", Hierarchy.from_paths(["A > B", "A > C"]), beta=0.1).outputs.tolist()
    [1, 2]
    """
    unknown = sorted(others.keys() - set(SETTINGS))
    if unknown:
        raise TreelabelError(f"unknown setting {unknown[0]!r} of losses; there are: tau, {', '.join(SETTINGS)}")
    maker = LOSSES.find(name).maker
    return maker(hierarchy, frequencies, tau, **{key: others[key] for key in maker.settings if key in others})
