"""Quality against the number of training documents: what twice as many would bring, and which labels still gain.

A fifth of the documents is held out and judges models that have learned an eighth, a quarter, a half and all of the
others, each part within the next. The error is fitted as a + b n^-c, with all three at least 0.
"""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from treelabel.core.errors import TreelabelError
from treelabel.core.progress import progress_bar
from treelabel.core.types import DoubleArray, LongArray
from treelabel.data.dataset import Dataset
from treelabel.data.splits import folds
from treelabel.evaluation.evaluator import evaluate
from treelabel.evaluation.result import Result
from treelabel.evaluation.statistics import Interval, bootstrap_sums, resampled_interval, sum_by_group
from treelabel.metrics.registry import find_metric
from treelabel.models.base import Model
from treelabel.models.registry import make_model

SHARES = (0.125, 0.25, 0.5, 1.0)
# Exponents that are tried; learning curves of texts have some 0.2 to 0.5.
EXPONENTS = np.round(np.arange(0.05, 2.0001, 0.05), 2)
FEWEST_DOCUMENTS = 20
# Gains below this are rounding.
ROUNDING = 1e-12
# Held-out documents that a label must have before its gain is told.
FEWEST_OF_LABEL = 5


@dataclass(frozen=True)
class CurvePoint:
    """The value that a model reached by learning so many documents, and how long that took."""

    documents: int
    interval: Interval
    seconds: float


@dataclass(frozen=True)
class LabelGain:
    """The F1 of a label on held-out documents, with half of the training documents and with all."""

    label: str
    documents: int
    half: float
    full: float

    @property
    def gain(self) -> float:
        """How much the last doubling brought."""
        return self.full - self.half


@dataclass(frozen=True)
class LearningCurve:
    """A learning curve: `doubled` is the value expected of twice as many documents, `gain` what that brings.

    `labels` have the largest gains of the last doubling first, weighed by held-out documents.
    """

    metric: str
    held_out: int
    points: tuple[CurvePoint, ...]
    doubled: float
    gain: Interval
    labels: tuple[LabelGain, ...]

    def __str__(self) -> str:
        lines = [f"{self.metric} of {self.held_out:,} held-out documents", "documents"]
        lines += [f"{p.documents:>9,}  {p.interval}  learned in {p.seconds:.1f} s" for p in self.points]
        twice = 2 * self.points[-1].documents
        if np.isnan(self.doubled):
            lines.append(f"{twice:>9,}  not extrapolated: {self.gain.reason}")
        else:
            lines.append(f"{twice:>9,}  {self.doubled:.4f} expected: {self.gain.value:+.4f} {self.gain.ends}")
        if self.labels:
            lines += ["", "labels that gained most by the last doubling (F1 with half, with all; true documents)"]
            lines += [
                f"  {each.label}: {each.half:.3f} -> {each.full:.3f} ({each.documents:,})" for each in self.labels
            ]
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON values; what is not known is None."""

        def known(value: float) -> float | None:
            return value if np.isfinite(value) else None

        def ends(interval: Interval) -> dict[str, float | None]:
            return {"value": known(interval.value), "low": known(interval.low), "high": known(interval.high)}

        points = [{"documents": p.documents, **ends(p.interval), "seconds": p.seconds} for p in self.points]
        twice = {"documents": 2 * self.points[-1].documents, "value": known(self.doubled), "gain": ends(self.gain)}
        labels = [asdict(each) | {"gain": each.gain} for each in self.labels]
        return {
            "metric": self.metric,
            "held_out": self.held_out,
            "points": points,
            "doubled": twice,
            "labels": labels,
        }


def learning_curve(
    data: Dataset,
    model: Model | str = "linear",
    metric: str = "hf1",
    shares: Sequence[float] = SHARES,
    seed: int = 0,
    resamples: int = 500,
    most_labels: int = 10,
    progress: bool | None = None,
    **settings: Any,
) -> LearningCurve:
    """Learn growing parts of the documents, and extrapolate what twice as many would bring.

    Parameters
    ----------
    data : Dataset
        Texts with their labels; documents of a group are held out together.
    model : str or Model
        A row of MODELS, or a model, whose settings are changed.
    metric : str
        A metric that is the mean over documents of values between 0 and 1.
    shares : sequence of float
        The parts of the training documents that are learned, increasing, the last one 1.
    seed : int
        Draws the documents that are held out, and those of each part.
    resamples : int
        How often held-out documents are drawn for intervals.
    most_labels : int
        How many labels to list.
    progress : bool, optional
        Whether to show a progress bar; by default where somebody looks.
    **settings
        Settings of the model.

    Returns
    -------
    LearningCurve
        The interval of the gain is over held-out documents, not over other training documents.
    """
    row = find_metric(metric)
    name = row.name
    if row.documents is None or not row.is_share or not row.higher_is_better:
        raise TreelabelError(
            f"{name} is no mean of shares over documents of which more is better, as a curve needs; take hf1"
        )
    if list(shares) != sorted(set(shares)) or len(shares) < 2 or shares[0] <= 0 or shares[-1] != 1:
        raise TreelabelError(
            f"shares = {list(shares)}, expected at least two increasing numbers above 0, the last one 1"
        )
    # Two parts have to be large enough: a half, and all, of four fifths.
    fewest = 2 * FEWEST_DOCUMENTS * 5 // 4
    if len(data) < fewest:
        documents = "1 document is" if len(data) == 1 else f"{len(data):,} documents are"
        raise TreelabelError(f"{documents} too few for a curve; expected {fewest} or more")
    held = folds(data, 5, seed)[0]
    order = np.random.default_rng(seed).permutation(np.setdiff1d(np.arange(len(data)), held))
    sizes = list(dict.fromkeys(round(share * len(order)) for share in shares))
    sizes = [size for size in sizes if size >= FEWEST_DOCUMENTS]
    if len(sizes) < 2:
        raise TreelabelError(
            f"{len(order):,} documents are left to learn, of which fewer than two of the parts {list(shares)} are "
            f"{FEWEST_DOCUMENTS} or more; give more documents, or larger parts"
        )
    test, results, seconds = data[held], [], []
    with progress_bar("learning", len(sizes), progress) as done:
        for number, size in enumerate(sizes):
            begin = time.perf_counter()
            results.append(_judge(data[np.sort(order[:size])], test, model, name, {"seed": seed} | settings))
            seconds.append(time.perf_counter() - begin)
            done(number + 1, f"{size:,} documents")
    points = tuple(
        CurvePoint(size, result.interval(name, resamples=resamples, seed=seed), spent)
        for size, result, spent in zip(sizes, results, seconds, strict=True)
    )
    doubled, gain = _extrapolate(sizes, results, name, resamples, seed)
    return LearningCurve(name, len(held), points, doubled, gain, _label_gains(results[-2], results[-1], most_labels))


def _judge(train: Dataset, test: Dataset, model: Model | str, metric: str, settings: dict[str, Any]) -> Result:
    made = make_model(model, **settings) if isinstance(model, str) else model.set_params(**settings)
    made.fit(train, progress=False)
    if made.stopped_ == "interrupt":
        raise KeyboardInterrupt
    names = [metric, "micro_f1"]
    return evaluate(test, scores=made.score(test), rule=made.default_rule, metrics=names, train_frequencies=train)


def fit_power_law(sizes: Sequence[int], errors: DoubleArray) -> tuple[float, float, float]:
    """Fit error = a + b n^-c by least squares, a and b at least 0 and c one of EXPONENTS.

    Parameters
    ----------
    sizes
        The numbers n of documents.
    errors : array of shape (sizes,)
        The error of each.

    Returns
    -------
    (a, b, c)

    >>> sizes = [100, 200, 400, 800]
    >>> [round(value, 4) for value in fit_power_law(sizes, 0.1 + 2 * np.array(sizes) ** -0.5)]
    [0.1, 2.0, 0.5]
    """
    best = (np.inf, 0.0, 0.0, 0.0)
    # Of curves that fit equally well, the one that falls off fastest promises least.
    for c in EXPONENTS[::-1]:
        x = np.asarray(sizes, np.float64) ** -c
        centred = x - x.mean()
        b = float(centred @ errors / (centred @ centred))
        a = float(errors.mean() - b * x.mean())
        if b < 0:
            a, b = float(errors.mean()), 0.0
        elif a < 0:
            a, b = 0.0, max(0.0, float(x @ errors / (x @ x)))
        lost = float(np.sum((a + b * x - errors) ** 2))
        if lost < best[0] - 1e-15:
            best = (lost, a, b, float(c))
    return best[1:]


def _extrapolate(
    sizes: Sequence[int], results: Sequence[Result], name: str, resamples: int, seed: int
) -> tuple[float, Interval]:
    """Return the value expected of twice as many documents, and the gain over the last point with its interval.

    Two points lie on any number of curves, from a line that goes on to one that is over.
    """
    if len(sizes) < 3:
        unknown = float("nan")
        return unknown, Interval(unknown, unknown, unknown, reason="two points do not show how a curve bends")
    metric, _ = results[-1].value_function(name)
    parts = [result.parts[metric.key][0] for result in results]
    if results[-1].groups is not None:
        parts = list(sum_by_group(parts, results[-1].groups))

    def gain(sums: tuple[Any, ...]) -> float:
        errors = np.array([1 - total / count if count else np.nan for total, count in sums])
        if np.isnan(errors).any():
            return float("nan")
        _, b, c = fit_power_law(sizes, errors)
        gained = float(b * (sizes[-1] ** -c - (2 * sizes[-1]) ** -c))
        return gained if gained > ROUNDING else 0.0

    point = gain(tuple(part.sum(axis=0) for part in parts))
    drawn = np.array([gain(sums) for sums in bootstrap_sums(parts, resamples, seed)])
    interval = resampled_interval(drawn, point, parts[0].shape[0], is_difference=True)
    return min(1.0, results[-1][name] + point), interval


def _label_gains(half: Result, full: Result, most: int) -> tuple[LabelGain, ...]:
    """Find the labels whose F1 rose most by the last doubling, weighed by their held-out documents."""
    before, after = half.labels.column("f1").to_numpy(), full.labels.column("f1").to_numpy()
    documents = full.labels.column("true").to_numpy()
    weight: DoubleArray = (after - before) * documents
    order: LongArray = np.argsort(-weight, kind="stable")
    kept = [node for node in order.tolist() if weight[node] > 1e-12 and documents[node] >= FEWEST_OF_LABEL][:most]
    paths = full.context.hierarchy.paths(kept)
    return tuple(
        LabelGain(path, int(documents[node]), float(before[node]), float(after[node]))
        for path, node in zip(paths, kept, strict=True)
    )
