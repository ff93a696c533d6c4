"""Where one output per label would take too long: `linear` hands over to `extreme`."""

import warnings
from typing import TYPE_CHECKING, Any

from treelabel.selection.training import Training

if TYPE_CHECKING:
    from treelabel.models.extreme.model import Extreme

# Words of all texts x labels that one output per label is learned for: about a minute of one core, and twice that for
# calibration.
MOST_WORK = 5e10
BYTES_A_WORD = 6
# Settings that both models have.
SHARED = ("min_df", "n_features", "encoder", "encoder_weight", "validation_fraction", "cv", "max_iter", "seed")


class HandoverWarning(UserWarning):
    """One output per label would take too long, so that another model learns."""


def is_too_much(train: Training) -> bool:
    """Return whether one output per label would take too long, by the words of all texts and the labels they have."""
    words = train.texts.nbytes / BYTES_A_WORD
    return words * int((train.frequencies > 0).sum()) > MOST_WORK


def successor(settings: dict[str, Any]) -> "Extreme":
    """Make the model that takes over from `linear` with some settings."""
    # Few models hand over; the others do not wait for this import.
    from treelabel.models.extreme.model import Extreme

    shared = {name: settings[name] for name in SHARED}
    for name, usual in (("ngram_range", (1, 1)), ("char_ngram_range", None)):
        shared[name] = usual if settings[name] == "auto" else settings[name]
    if settings["C"] is not None:
        shared["C"] = settings["C"]
    return Extreme(**shared)


def hand_over(settings: dict[str, Any], train: Training) -> "Extreme":
    """Make the model that takes over, and say so.

    Parameters
    ----------
    settings : dict
        Settings of `linear`.
    train : Training
        Documents that it should learn from.

    Returns
    -------
    Extreme
        A model that has not learned.
    """
    warnings.warn(
        HandoverWarning(
            f"{len(train):,} texts with {int((train.frequencies > 0).sum()):,} labels: one output per label would take "
            "too long, so the model extreme learns instead; head='nodes' insists on one output per label"
        ),
        stacklevel=2,
    )
    made = successor(settings)
    made.hierarchy_, made.regime_ = train.hierarchy, train.regime
    return made
