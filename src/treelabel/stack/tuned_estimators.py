"""Estimators over a tuned encoder, pooled with the pool of those over the frozen one.

The encoder is tuned without a quarter of the documents. Estimators over it learn without them, too, and are calibrated
on them, since the encoder knows its own documents too well. A second pool has three members: the pool of estimators
over the frozen encoder, which has learned its weights on all documents out of fold, and the two over the tuned one. Its
weights are learned on the quarter: as these are few, a prior for equal weights counts as much as ten of them. Then the
two estimators learn from all documents; the encoder stays as it is, for what they know of it was learned there.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from treelabel.calibration.pools import Pool
from treelabel.core.errors import TreelabelError, require_extra
from treelabel.core.stopping import StopSignal
from treelabel.core.types import DoubleArray, LongArray
from treelabel.encoders.cached_encoder import CachedEncoder
from treelabel.encoders.protocol import Encoder
from treelabel.encoders.registry import default_encoder, find_encoder
from treelabel.hierarchy.label_matrices import LabelMatrix
from treelabel.models.base import Model, Training
from treelabel.models.descriptions import Descriptions
from treelabel.models.prototype import Prototype
from treelabel.rules.decisions import decide
from treelabel.rules.registry import DEFAULT_RULES
from treelabel.scores.score_matrix import Scores
from treelabel.selection.evidence import TuningTrial
from treelabel.selection.training import log_losses

if TYPE_CHECKING:
    from treelabel.encoders.tuned_encoder import TunedEncoder
    from treelabel.neural.tuning import EncoderTuner

TUNED_SPECS: tuple[dict[str, Any], ...] = ({"model": "linear", "tfidf": False}, {"model": "prototype"})
# "auto" tunes up to so many documents, and tokens that the encoder reads of them (four characters each, about): with
# more it takes minutes, and models over the frozen encoder have less to gain.
MOST_TUNED, MOST_TOKENS = 20_000, 1_000_000
CHARACTERS_A_TOKEN = 4
# With fewer documents there is nothing to judge tuning by.
FEWEST_TUNED = 16
# The share of a limited time that tuning may take; the rest is for what learns after it.
TUNING_SHARE = 0.6
# An encoder is tuned without one of so many parts of the documents.
TUNING_PARTS = 4
# Equal weights of the pools of frozen and tuned estimators count as much as so many documents.
TUNED_PRIOR = 10.0


MakeEstimator = Callable[[Any, Encoder], Model]


def can_tune(encoder: "str | Encoder | None", train: Training, tune: Any) -> bool:
    """Return whether a stack tunes its encoder: "auto" where it is a transformer and labels have texts to compare.

    Parameters
    ----------
    encoder
        The encoder of the settings; None for the best that is installed.
    train
        The training documents.
    tune
        The setting; with True, what cannot be tuned is refused.

    Returns
    -------
    bool
    """
    if tune is False or len(train) < FEWEST_TUNED:
        return False
    with require_extra("neural", "tuning an encoder"):
        from treelabel.neural.tuning import can_be_tuned
    made: Any = default_encoder() if encoder is None else find_encoder(encoder)
    if not can_be_tuned(made):
        if tune is True:
            raise TreelabelError(f"the encoder {made.name} cannot be tuned; expected a transformer, such as minilm")
        return False
    if tune is True:
        return True
    longest = CHARACTERS_A_TOKEN * made.source.max_length
    tokens = sum(min(len(text), longest) for text in train.texts) / CHARACTERS_A_TOKEN
    counts = np.diff(train.labels.tocsc().indptr)
    return len(train) <= MOST_TUNED and tokens <= MOST_TOKENS and bool((counts > 1).any())


@dataclass(eq=False)
class TuningRun:
    """The tuning of one fit: an encoder, and estimators over it that are calibrated on what it has not seen."""

    tuner: "EncoderTuner"
    stop: StopSignal
    # The time that states and tuning took.
    seconds: float
    encoder: "TunedEncoder | None" = None
    estimators: list[Any] = field(default_factory=list)

    @classmethod
    def start(
        cls,
        train: Training,
        encoder: Any,
        seed: int,
        seconds: float | None,
        folder: str | None,
        descriptions: Descriptions,
    ) -> "TuningRun":
        """Compute the states of texts; tuning takes `seconds`, or most of the time that the fit has."""
        from treelabel.neural.tuning import EncoderTuner

        begun = time.monotonic()
        tuner = EncoderTuner(train, encoder, seed, None if folder is None else Path(folder), descriptions)
        limit = TUNING_SHARE * (train.stop.deadline - begun)
        if np.isinf(limit) and seconds is not None:
            limit = seconds
        return cls(tuner, StopSignal(begun + limit), time.monotonic() - begun)

    def held_scores(self, rows: LongArray, held: Training, make: MakeEstimator) -> list[Any]:
        """Tune on some documents, fit estimators to them, and score others.

        Parameters
        ----------
        rows
            Documents to learn from.
        held
            Documents to calibrate on, and to score: each half by what was calibrated on the other.
        make
            Makes an estimator of its description and an encoder.

        Returns
        -------
        list
            Scores of each estimator.
        """
        begun, train = time.monotonic(), self.tuner.train[rows]
        share = self.stop.share(1)
        self.encoder = self.tuner.tune(rows, share, "part")
        if share.reason == "interrupt":
            train.stop.interrupt()
        self.seconds += time.monotonic() - begun
        halves = [np.arange(part, len(held), 2) for part in (0, 1)]
        order = np.argsort(np.concatenate(halves), kind="stable")
        result = []
        for spec in TUNED_SPECS:
            parts = [
                fit_calibrated(make(spec, self.encoder), train, held[others])._score(held.texts.take(rows)).values
                for rows, others in (halves, halves[::-1])
            ]
            result.append(Scores.concat(train.hierarchy, parts)[order].values)
            self.estimators.append(fit_calibrated(make(spec, self.encoder), train, held))
        return result

    def finish(self, before: int) -> "tuple[list[Model], TunedEncoder]":
        """Let estimators that learned from `before` documents learn from all; return them and the encoder."""
        assert self.encoder is not None
        train, cached = self.tuner.train, CachedEncoder(self.encoder)
        if before < len(train):
            self.estimators = [each._relearn(train, cached) for each in self.estimators]
        # From here on vectors are those of the whole transformer.
        self.encoder.by_states = None
        return self.estimators, self.encoder


def judge_tuning(pool: Pool, evidence: Sequence[Any], held: Training, seed: int) -> TuningTrial:
    """Compare a pool with its first member alone, each half of held-out documents by a pool learned on the other.

    The pool is kept unless its log loss is larger by more than two standard errors. With a dozen documents this is
    pessimistic, as half of them calibrate: on sets where all was held back that a larger test set could tell, a smaller
    bound threw away what paid.

    Parameters
    ----------
    pool
        A pool that has not learned.
    evidence
        Scores of each member.
    held
        The documents.
    seed
        Draws the halves.

    Returns
    -------
    TuningTrial
    """
    rule, values = DEFAULT_RULES[held.regime], [Scores(held.hierarchy, each) for each in evidence]
    half = np.random.default_rng(seed).permutation(len(held)) % 2
    gains, before, after = [np.zeros(0)], [np.zeros(0)], [np.zeros(0)]
    for part in (0, 1):
        rows, others = np.flatnonzero(half == part), np.flatnonzero(half != part)
        fitted = pool.fit([each[others].values for each in values], held.labels[others], TUNED_PRIOR)
        p, some = fitted.probabilities([each[rows].values for each in values]), held[rows]
        gains.append(log_losses(values[0][rows].values, some) - log_losses(p, some))
        before.append(_exact(values[0][rows], some.closed_labels, rule))
        after.append(_exact(Scores(held.hierarchy, p), some.closed_labels, rule))
    gain = np.concatenate(gains)
    error = float(gain.std() / np.sqrt(max(1, len(gain)))) if len(gain) else 0.0
    kept = len(gain) > 0 and float(gain.mean()) >= -2 * error
    without, tuned = (float(np.concatenate(each).mean()) if len(held) else 0.0 for each in (before, after))
    return TuningTrial(without, tuned, len(held), kept)


def _exact(scores: Scores, closed: LabelMatrix, rule: str) -> DoubleArray:
    """Return 1 for each document whose labels are exactly right, else 0."""
    difference = abs(decide(scores, rule).csr.astype(np.float64) - closed.astype(np.float64))
    result: DoubleArray = (np.asarray(difference.sum(axis=1)).ravel() == 0).astype(np.float64)
    return result


def fit_calibrated(estimator: Model, train: Training, held: Training) -> Model:
    """Fit an estimator to documents, calibrated on others."""
    estimator.hierarchy_, estimator.regime_ = train.hierarchy, train.regime
    if isinstance(estimator, Prototype):
        estimator._fit_calibrated(train, held)
    else:
        estimator._fit(replace(train, valid=held))
    return estimator
