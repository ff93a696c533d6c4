"""Estimators over a tuned encoder, beside those over the frozen one: kept where held-out documents say that they pay.

The encoder is tuned without some documents, all estimators learn without them, and the pool's weights are learned on
them. Estimators over the tuned encoder are calibrated on held-out documents, too, since the encoder knows its own too
well: each half of them by the other half. Where the pool is worse with them than without, they are left out. Else the
encoder goes on from there with all documents, and the estimators learn from all, with the calibration that they have.
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

# The file of its weights, as `TunedEncoder` names it, which only those can import who have torch.
WEIGHTS = "tuned.safetensors"
TUNED_SPECS: tuple[dict[str, Any], ...] = ({"model": "linear", "tfidf": False}, {"model": "prototype"})
# "auto" tunes up to so many documents, and tokens that the encoder reads of them (four characters each, about): with
# more it takes minutes, and models over the frozen encoder have less to gain.
MOST_TUNED, MOST_TOKENS = 20_000, 1_000_000
CHARACTERS_A_TOKEN = 4
# With fewer documents there is nothing to judge tuning by.
FEWEST_TUNED = 16
# The share of a limited time that tunings may take; the rest is for what learns after them.
TUNING_SHARE = 0.6


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


def judge_pool(pool: Pool, evidence: Sequence[Any], held: Training, seed: int) -> tuple[DoubleArray, DoubleArray]:
    """Compute the log loss of each held-out document, and whether it is exactly right, each half by the other.

    Parameters
    ----------
    pool
        A pool that has not learned.
    evidence
        Scores of each estimator.
    held
        The documents.
    seed
        Draws the halves.

    Returns
    -------
    (array of shape (documents,), array of shape (documents,))
    """
    half = np.random.default_rng(seed).permutation(len(held)) % 2
    losses, exact = [], []
    for part in (0, 1):
        rows, others = np.flatnonzero(half == part), np.flatnonzero(half != part)
        fitted = pool.fit([values[others] for values in evidence], held.labels[others])
        p = fitted.probabilities([values[rows] for values in evidence])
        some = held[rows]
        losses.append(log_losses(p, some))
        exact.append(_exact(Scores(held.hierarchy, p), some.closed_labels, DEFAULT_RULES[held.regime]))
    return np.concatenate(losses), np.concatenate(exact)


def _exact(scores: Scores, closed: LabelMatrix, rule: str) -> DoubleArray:
    """Return 1 for each document whose labels are exactly right, else 0."""
    difference = abs(decide(scores, rule).csr.astype(np.float64) - closed.astype(np.float64))
    result: DoubleArray = (np.asarray(difference.sum(axis=1)).ravel() == 0).astype(np.float64)
    return result


@dataclass(eq=False)
class TuningRun:
    """The tunings of one fit: one per fold, each without its documents, and one of all."""

    tuner: "EncoderTuner"
    stop: StopSignal
    parts: int
    # The time that states and tunings took.
    seconds: float
    # What the last tuning gave, and estimators over it that are calibrated on what it has not seen.
    last: "TunedEncoder | None" = None
    calibrated: list[Any] = field(default_factory=list)

    @classmethod
    def start(
        cls,
        train: Training,
        encoder: "str | Encoder | None",
        seed: int,
        seconds: float | None,
        parts: int,
        folder: str | None,
        descriptions: Descriptions,
    ) -> "TuningRun":
        """Compute the states of texts; `parts` tunings share `seconds`, or most of the time that the fit has."""
        from treelabel.neural.tuning import EncoderTuner

        begun = time.monotonic()
        made: Any = default_encoder() if encoder is None else find_encoder(encoder)
        tuner = EncoderTuner(train, made, seed, None if folder is None else Path(folder), descriptions)
        limit = TUNING_SHARE * (train.stop.deadline - begun)
        if np.isinf(limit) and seconds is not None:
            limit = seconds
        return cls(tuner, StopSignal(begun + limit), parts, time.monotonic() - begun)

    def tune(self, rows: LongArray, name: str, start: "TunedEncoder | None" = None) -> "TunedEncoder":
        """Tune on some documents, with an equal share of the time that is left."""
        begun, share = time.monotonic(), self.stop.share(self.parts)
        self.parts = max(1, self.parts - 1)
        steps = self.tuner.planned_steps(rows)
        tuned = self.tuner.tune(rows, share, name, steps if start is None else steps // 2, start)
        if share.reason == "interrupt":
            self.tuner.train.stop.interrupt()
        self.last = tuned
        self.seconds += time.monotonic() - begun
        return tuned

    def held_scores(self, tuned: Encoder, train: Training, held: Training, make: MakeEstimator) -> list[Any]:
        """Fit estimators over a tuned encoder, and score documents that neither has seen.

        Parameters
        ----------
        tuned
            An encoder that was tuned on `train`.
        train
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
        halves = [np.arange(part, len(held), 2) for part in (0, 1)]
        order = np.argsort(np.concatenate(halves), kind="stable")
        result, self.calibrated = [], []
        for spec in TUNED_SPECS:
            parts = [
                fit_calibrated(make(spec, tuned), train, held[others])._score(held.texts.take(rows)).values
                for rows, others in (halves, halves[::-1])
            ]
            result.append(Scores.concat(train.hierarchy, parts)[order].values)
            self.calibrated.append(fit_calibrated(make(spec, tuned), train, held))
        return result

    def finish(self, train: Training, before: int) -> list[Model]:
        """Tune the encoder on all documents, going on from what a fold has, and let the estimators learn from all."""
        first = self.last
        encoder = CachedEncoder(self.tune(np.arange(len(train)), "all", first))
        if first is not None:
            # What it knows of states is not needed any more.
            first.by_states = None
        return [each._relearn(train, encoder, before) for each in self.calibrated]

    def take_last(self) -> "TunedEncoder":
        """Return what the last tuning gave, to score with: from here on vectors are those of the whole transformer."""
        assert self.last is not None
        self.last.by_states = None
        return self.last

    def judge(self, pool: Pool, evidence: Sequence[Any], held: Training, frozen: int) -> TuningTrial:
        """Compare a pool of all estimators with one of the first `frozen` ones.

        All are kept unless their log loss is larger by more than a standard error: the encoder that is kept has seen a
        third more texts than the one that is judged.
        """
        seed = self.tuner.seed
        before, was_right = judge_pool(pool.equal(held.hierarchy, frozen, held.labels), evidence[:frozen], held, seed)
        after, is_right = judge_pool(pool, evidence, held, seed)
        gains = before - after
        error = float(gains.std() / np.sqrt(max(1, len(gains)))) if len(gains) else 0.0
        kept = len(gains) > 0 and float(gains.mean()) > -error
        return TuningTrial(float(was_right.mean()), float(is_right.mean()), len(held), kept)


def fit_calibrated(estimator: Model, train: Training, held: Training) -> Model:
    """Fit an estimator to documents, calibrated on others."""
    estimator.hierarchy_, estimator.regime_ = train.hierarchy, train.regime
    if isinstance(estimator, Prototype):
        estimator._fit_calibrated(train, held)
    else:
        estimator._fit(replace(train, valid=held))
    return estimator
