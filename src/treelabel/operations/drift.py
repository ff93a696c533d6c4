"""Drift: whether texts still are what a model was trained on, by their words, their labels, and how sure it is of them.

Three measures, each a number from 0 to 1 with a 95% interval, against what the model remembers of its training:

- unknown words: the mean share of the distinct words of a text that the model does not know; in training texts, the
  share that it would not know if it had not learned that text. The change is now - then.
- label shares of each level: how much of the probability of all nodes of a level lies on each of them, on average over
  texts, against held-out documents (or the labels of training documents). The change is the total variation, half the
  sum of absolute differences: the share of labels that would have to change. By the triangle inequality the true one
  lies within its value -+ the distance that chance alone makes, widened for the chance in the reference. That is the
  larger one of two: a bootstrap of the texts (Poisson weights, so that texts are not held), which sees no label that
  happens to be absent; and the distance to the reference of labels drawn from it, as many as texts have of the level.
- confidence: the mean probability of the likeliest leaf, against held-out documents, where calibration made it the
  share of right ones. The change is now - then. Only less of it is drift: held-out documents were scored by models
  that had learned less than the final one, which is surer of documents of the same kind (by 0.01 to 0.08 where there
  are a few thousand), so that more confidence says nothing.

A change is beyond the limit if all of its interval is: chance alone is no drift. Fewer than 30 texts are taken to vary
at least as much as those of training did. Blank texts are left out.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.special import rel_entr

from treelabel.core.errors import TreelabelError
from treelabel.core.types import DoubleArray
from treelabel.evaluation.statistics import Interval
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.metrics.shared_formulas import STANDARD_ERRORS
from treelabel.models.profile import Mean, Profile, confidence_of
from treelabel.scores.score_matrix import Scores

# Resamples of label shares: fewer where there are very many labels, as the sums of all resamples are held.
RESAMPLES = 200
FEWEST_RESAMPLES = 20
MOST_SUMS = 1 << 25
LEVEL = 0.95
# So few texts do not show themselves how much chance there is in them.
FEW_TEXTS = 30
# Labels that are named as those that shifted most.
MOST_NAMED = 5


@dataclass(frozen=True)
class Measure:
    """One measure: its value now and in training (None: not known), and the change with its interval.

    `divergence` is the Jensen-Shannon divergence of label shares, in bits; `note` says why nothing is compared.
    """

    name: str
    now: float | None = None
    then: float | None = None
    change: Interval | None = None
    is_beyond: bool = False
    divergence: float | None = None
    note: str = ""


@dataclass(frozen=True)
class Shift:
    """A label whose share of texts (its mean probability) changed."""

    label: str
    now: float
    then: float


@dataclass(frozen=True)
class Drift:
    """All measures, the labels that shifted most, and whether any change is beyond the limit."""

    texts: int
    limit: float
    measures: tuple[Measure, ...]
    shifts: tuple[Shift, ...]

    @property
    def is_beyond(self) -> bool:
        """Whether any change is beyond the limit, chance aside."""
        return any(measure.is_beyond for measure in self.measures)

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        measures = []
        for each in self.measures:
            numbers: dict[str, Any] = {"change": None, "interval": None}
            if each.change is not None:
                numbers = {"change": each.change.value, "interval": [each.change.low, each.change.high]}
            measures.append(asdict(each) | numbers)
        shifts = [asdict(shift) for shift in self.shifts]
        head = {"texts": self.texts, "limit": self.limit, "drift": self.is_beyond}
        return {**head, "measures": measures, "shifts": shifts}

    def __str__(self) -> str:
        width = max(len(each.name) for each in self.measures)
        lines = [f"{'':<{width}}  {'now':>7}{'then':>9}   change with its 95% interval"]
        for each in self.measures:
            now, then = ("" if value is None else f"{value:.3f}" for value in (each.now, each.then))
            change = each.note
            if each.change is not None:
                change = f"{each.change.value:+.3f} [{each.change.low:+.3f}, {each.change.high:+.3f}]"
            mark = "  DRIFT" if each.is_beyond else ""
            lines.append(f"{each.name:<{width}}  {now:>7}{then:>9}   {change}{mark}".rstrip())
        if self.shifts:
            lines += ["", "labels that shifted most, as shares of texts:"]
            lines += [f"  {shift.label}: {shift.then:.1%} -> {shift.now:.1%}" for shift in self.shifts]
        beyond = [each.name for each in self.measures if each.is_beyond]
        verdict = f"{self.texts:,} texts; beyond the limit of {self.limit:g}: {', '.join(beyond) or 'nothing'}"
        return "\n".join([*lines, "", verdict])


class DriftMeter:
    """Measures texts batch by batch; memory grows with the labels (some 200 sums each), not with the texts.

    >>> training = Profile(100, confidence=(0.75, 0.0, 100), frequencies=np.array([50, 50]))
    >>> meter = DriftMeter(Hierarchy.flat(["A", "B"]), training)
    >>> meter.add(Scores(meter.hierarchy, [[0.75, 0.25]] * 500))
    >>> {each.name: round(each.change.value, 3) for each in meter.result().measures if each.change}
    {'label shares, level 1': 0.25, 'confidence': 0.0}
    """

    def __init__(self, hierarchy: Hierarchy, reference: Profile, seed: int = 0) -> None:
        self.hierarchy, self.reference, self.texts = hierarchy, reference, 0
        count = min(RESAMPLES, max(FEWEST_RESAMPLES, MOST_SUMS // max(1, len(hierarchy))))
        self._sums: DoubleArray = np.zeros(len(hierarchy))
        self._resampled: DoubleArray = np.zeros((count, len(hierarchy)))
        self._confidence: DoubleArray = np.zeros(3)
        self._unknown: DoubleArray | None = None
        self._rng = np.random.default_rng(seed)

    def add(self, scores: Scores, unknown: DoubleArray | None = None) -> None:
        """Measure some texts.

        Parameters
        ----------
        unknown : array of shape (texts,), optional
            The share of unknown words of each, NaN where it has none; None if the model has no vocabulary.
        """
        weights = self._rng.poisson(1.0, (len(self._resampled), len(scores))).astype(np.float32)
        self._sums += np.asarray(scores.values.sum(axis=0, dtype=np.float64)).ravel()
        self._resampled += weights @ scores.values
        self._confidence += _moments(confidence_of(scores))
        if unknown is not None:
            before = 0.0 if self._unknown is None else self._unknown
            self._unknown = before + _moments(unknown[~np.isnan(unknown)])
        self.texts += len(scores)

    def result(self, limit: float = 0.1) -> Drift:
        """Compare with what is remembered of training.

        Parameters
        ----------
        limit : float
            The largest change that is no drift.

        Returns
        -------
        Drift
        """
        if not self.texts:
            raise TreelabelError("there are no texts to look at")
        # Fewer unknown words are no harm, nor is more confidence.
        words = Measure("unknown words", note="not compared: the model has no vocabulary of words")
        if self._unknown is not None:
            words = _mean_measure("unknown words", self._unknown, self.reference.unknown_words, limit, 1)
        confidence = _mean_measure("confidence", self._confidence, self.reference.confidence, limit, -1)
        return Drift(self.texts, limit, (words, *self._level_measures(limit), confidence), tuple(self._shifts()))

    def _level_measures(self, limit: float) -> Iterator[Measure]:
        before, documents = self._before()
        for depth in range(1, self.hierarchy.max_depth + 1):
            level, name = self.hierarchy.level(depth), f"label shares, level {depth}"
            now, then = _normalize(self._sums[level]), _normalize(before[level])
            if now is None or then is None:
                yield Measure(name, note="not compared: no label of this level has a probability")
                continue
            drawn = (_normalize(sums) for sums in self._resampled[:, level])
            resampled = [_variation(each, now) for each in drawn if each is not None]
            # Few texts may have a label as deep as this.
            count = max(1, round(min(self.texts, float(self._sums[level].sum()))))
            other = np.random.default_rng(depth).multinomial(count, then, len(resampled)) / count
            by_chance = max(np.quantile(resampled, LEVEL), np.quantile(abs(other - then).sum(axis=1) / 2, LEVEL))
            reach = float(by_chance * np.sqrt(1 + self.texts / documents))
            value = _variation(now, then)
            change = Interval(value, max(0.0, value - reach), min(1.0, value + reach), LEVEL)
            yield Measure(name, None, None, change, change.low > limit, _divergence(now, then))

    def _before(self) -> tuple[DoubleArray, int]:
        """The shares that are compared with, and of how many documents they are."""
        known = self.reference
        if len(known.shares) and known.confidence is not None:
            return known.shares.astype(np.float64), known.confidence[2]
        return known.frequencies / max(1, known.documents), known.documents

    def _shifts(self) -> Iterator[Shift]:
        """The labels of any level whose share changed most."""
        now, (then, _) = self._sums / self.texts, self._before()
        for node in np.argsort(-abs(now - then), kind="stable")[:MOST_NAMED].tolist():
            if now[node] != then[node]:
                yield Shift(self.hierarchy.paths([node])[0], float(now[node]), float(then[node]))


def _mean_measure(name: str, moments: DoubleArray, then: Mean | None, limit: float, harm: int) -> Measure:
    """Compare means; only changes of one sign do harm."""
    total, squares, count = moments.tolist()
    if not count:
        return Measure(name, note="not compared: no text has words")
    now = total / count
    if then is None:
        return Measure(name, now, note="not compared: the model remembers nothing of it")
    spread = max(0.0, squares / count - now**2)
    if count < FEW_TEXTS:
        spread = max(spread, then[1] ** 2)
    value, reach = now - then[0], STANDARD_ERRORS * float(np.sqrt(spread / count + then[1] ** 2 / then[2]))
    change = Interval(value, value - reach, value + reach, LEVEL)
    return Measure(name, now, then[0], change, is_beyond=harm * value - reach > limit)


def _moments(values: DoubleArray) -> DoubleArray:
    return np.array([values.sum(), (values**2).sum(), len(values)], np.float64)


def _normalize(sums: DoubleArray) -> DoubleArray | None:
    total = float(sums.sum())
    return sums / total if total > 0 else None


def _variation(one: DoubleArray, two: DoubleArray) -> float:
    return float(abs(one - two).sum() / 2)


def _divergence(one: DoubleArray, two: DoubleArray) -> float:
    """The Jensen-Shannon divergence in bits."""
    middle = (one + two) / 2
    return max(0.0, float((rel_entr(one, middle) + rel_entr(two, middle)).sum() / np.log(4)))
