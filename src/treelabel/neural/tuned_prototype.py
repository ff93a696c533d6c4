"""Prototypes over an encoder that is tuned to the labels: texts and labels can be added later, without tuning again."""

import logging
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, NotRequired

import numpy as np

from treelabel.core.array_schema import Arrays, Schema
from treelabel.core.stopping import StopSignal
from treelabel.core.validation import Between
from treelabel.encoders.registry import default_encoder, find_encoder
from treelabel.encoders.tuned_encoder import WEIGHTS, TunedEncoder
from treelabel.models.base import Training
from treelabel.models.persistence.schema import TunedNote
from treelabel.models.prototype import Prototype, PrototypeValues
from treelabel.models.settings import Seconds
from treelabel.neural.tuning import EncoderTuner, can_be_tuned
from treelabel.selection.evidence import HeldOut, Stage
from treelabel.selection.training import hold_out

LOG = logging.getLogger(__name__)

# One of so many documents is held out to calibrate on.
PARTS = 4
# From this share of texts or labels on that the encoder was not tuned on, tuning again is suggested.
UNSEEN_SHARE = 0.2

Count = Annotated[float, Between(0, 1e15)]


class TunedPrototypeValues(PrototypeValues):
    """The tuned encoder, if it could be tuned, and how many texts and labels it was tuned on."""

    tuned: NotRequired[TunedNote]
    tuned_texts: Count
    tuned_labels: Count


@dataclass(eq=False, repr=False)
class TunedPrototype(Prototype):
    """Prototypes over an encoder whose last layers are trained on the texts; see `Prototype`.

    The encoder is tuned without a quarter of the documents, which choose the strengths of priors and the calibration;
    then prototypes are made of all. `partial_fit` and `update` add texts and labels to prototypes and leave the encoder
    as it is; a warning says when tuning again would pay. An encoder that is no transformer is not tuned.

    Parameters
    ----------
    tune_seconds : float or None
        The time that tuning may take; None for as long as it takes.
    checkpoint_dir : str or None
        A folder from which tuning goes on after it was killed.
    """

    name = "tuned_prototype"
    learned: ClassVar[Any] = TunedPrototypeValues
    unsaved = ("hierarchy", "checkpoint_dir")

    tune_seconds: Seconds | None = None
    checkpoint_dir: str | None = None

    def _fit(self, train: Training) -> HeldOut:
        base: Any = default_encoder() if self.encoder is None else find_encoder(self.encoder)
        self.stages_: tuple[Stage, ...] = ()
        self.tuned_texts_, self.tuned_labels_ = 0.0, 0.0
        left = hold_out(len(train), max(1, len(train) // PARTS), self.seed, train.groups)
        if not can_be_tuned(base) or not len(left):
            return super()._fit(train)
        checkpoints = None if self.checkpoint_dir is None else Path(self.checkpoint_dir)
        tuner = EncoderTuner(train, base, self.seed, checkpoints, self.descriptions)
        others = np.setdiff1d(np.arange(len(train)), left)
        stop = train.stop
        if self.tune_seconds is not None and np.isinf(stop.deadline):
            stop = StopSignal(time.monotonic() + self.tune_seconds)
        share = stop.share(1)
        tuned = tuner.tune(others, share, "part")
        if share.reason == "interrupt":
            train.stop.interrupt()
        requested, self.encoder = self.encoder, tuned
        held = self._fit_calibrated(train[others], train[left])
        self.encoder = requested
        self._make_means(train)
        self.prototypes_ = self._prototypes()
        self.stages_ = tuple(tuner.stages)
        self.tuned_texts_, self.tuned_labels_ = self._known()
        tuned.by_states = None
        return held

    def _stages(self) -> tuple[Stage, ...]:
        return self.stages_

    def _known(self) -> tuple[float, float]:
        """Return how many texts prototypes are made of, and how many leaves and stops have any."""
        counts = self.means_.counts
        roots = self.means_.depth == 1
        return float(counts[roots].sum()), float((counts > 0).sum())

    def _add(self, more: Training) -> None:
        """Add texts, and say when many of them are new to the encoder."""
        super()._add(more)
        if self._tuned is None:
            return
        texts, labels = self._known()
        shares = {"texts": 1 - self.tuned_texts_ / max(texts, 1), "labels": 1 - self.tuned_labels_ / max(labels, 1)}
        what = max(shares, key=lambda each: shares[each])
        if shares[what] > UNSEEN_SHARE:
            LOG.warning(
                "the encoder was not tuned on %.0f%% of the %s: fitting anew, with all texts, would probably pay",
                100 * shares[what],
                what,
            )

    # Saving

    @property
    def _tuned(self) -> TunedEncoder | None:
        return self.encoder_.encoder if isinstance(self.encoder_.encoder, TunedEncoder) else None

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        values, arrays = super()._state()
        tuned = {} if self._tuned is None else {"tuned": self._tuned.note()}
        known = {"tuned_texts": self.tuned_texts_, "tuned_labels": self.tuned_labels_}
        return {**values, **tuned, **known}, arrays

    def _schema(self, values: dict[str, Any]) -> Schema:
        return replace(super()._schema(values), files=(WEIGHTS,) if "tuned" in values else ())

    def _restore(self, values: dict[str, Any], arrays: Arrays) -> None:
        requested, self.stages_ = self.encoder, ()
        if "tuned" in values:
            self.encoder = TunedEncoder.restore(requested, values["tuned"])
        super()._restore(values, arrays)
        self.encoder = requested
        self.tuned_texts_, self.tuned_labels_ = float(values["tuned_texts"]), float(values["tuned_labels"])

    def _write_files(self, folder: Path) -> None:
        if self._tuned is not None:
            self._tuned.write(folder)

    def _read_files(self, folder: Path) -> None:
        if self._tuned is not None:
            self._tuned.read(folder)
