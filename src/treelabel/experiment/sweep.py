"""Models and settings compared by cross-validation: quality, time and size, and which is best beyond noise."""

import itertools
import math
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from treelabel.core.atomic_output import disk_is_full
from treelabel.core.errors import TreelabelError
from treelabel.core.progress import progress_bar
from treelabel.core.types import LongArray
from treelabel.data.dataset import Dataset
from treelabel.data.splits import folds
from treelabel.evaluation.comparison import compare_metric
from treelabel.evaluation.evaluator import evaluate
from treelabel.evaluation.result import Result
from treelabel.evaluation.significance import Comparison, holm
from treelabel.evaluation.statistics import seed_interval
from treelabel.evaluation.sums import stack_parts
from treelabel.hierarchy.labelled_texts import Regime, regime_of, usual_regime
from treelabel.metrics.registry import find_metric
from treelabel.models.base import Model
from treelabel.models.registry import check_setting_names, make_model
from treelabel.rules.registry import find_rule

# Of a difference that is beyond noise, after Holm's correction.
LEVEL = 0.05

DEFAULT_METRICS: Mapping[Regime, tuple[str, ...]] = {
    "single_path": ("leaf_accuracy", "hf1", "macro_f1", "hf1_auc"),
    "partial_path": ("hf1", "micro_f1", "macro_f1", "hf1_auc"),
    "multi_path": ("samples_f1", "micro_f1", "macro_f1", "hf1_auc"),
}


@dataclass(frozen=True)
class Candidate:
    """A model with settings; `written` has the settings as the user wrote them."""

    model: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    written: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return " ".join(
            [self.model, *(f"{name}={self.written.get(name, value)}" for name, value in self.settings.items())]
        )


@dataclass(frozen=True)
class SweepTrial:
    """The result of cross-validating a candidate: its values on all documents, and on the documents of each fold.

    Times are those of the slowest fold, as later ones may find embeddings in the cache. `p_value` is that of no
    difference to the best, after Holm's correction.
    """

    candidate: Candidate
    result: Result
    by_fold: Mapping[str, tuple[float, ...]]
    rules: tuple[str, ...]
    fit_seconds: float
    documents_per_second: float
    megabytes: float
    stopped: bool = False
    p_value: float = math.nan

    def half_width(self, metric: str) -> float:
        """Half of the 95% interval over folds."""
        result = seed_interval(self.by_fold[metric])
        return result.high - result.value


@dataclass(frozen=True)
class Sweep:
    """Trials, the best first, and candidates that were skipped, with the reason.

    `difference` is that of the best and the next in the first metric, on the same documents; None without a next.
    """

    metrics: tuple[str, ...]
    documents: int
    folds: int
    trials: tuple[SweepTrial, ...]
    skipped: Mapping[str, str] = field(default_factory=dict)
    difference: Comparison | None = None
    left: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return everything for a program to read; numbers that are not finite are None."""
        trials = [
            {
                "model": trial.candidate.model,
                "settings": dict(trial.candidate.settings),
                "values": {
                    name: {
                        "value": _finite(trial.result[name]),
                        "half_width": _finite(trial.half_width(name)),
                        "folds": [_finite(each) for each in trial.by_fold[name]],
                    }
                    for name in self.metrics
                },
                "p": _finite(trial.p_value),
                "rules": list(trial.rules),
                "fit_seconds": trial.fit_seconds,
                "documents_per_second": _finite(trial.documents_per_second),
                "megabytes": _finite(trial.megabytes),
                "stopped": trial.stopped,
            }
            for trial in self.trials
        ]
        test = self.difference
        difference = None
        if test is not None:
            ends = {"value": test.difference, "low": test.low, "high": test.high, "p": self.trials[1].p_value}
            difference = {name: _finite(value) for name, value in ends.items()}
        return {
            "documents": self.documents,
            "folds": self.folds,
            "metrics": list(self.metrics),
            "trials": trials,
            "difference": difference,
            "skipped": dict(self.skipped),
            "not_judged": self.left,
        }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def grid(models: Sequence[str], values: Mapping[str, Mapping[str, Sequence[Any]]]) -> list[Candidate]:
    """Make every combination of the settings of each model.

    Parameters
    ----------
    models : sequence of str
        Rows of MODELS.
    values : mapping of str to mapping of str to sequence
        For each model, the values of its settings.

    Returns
    -------
    list of Candidate

    >>> [str(each) for each in grid(["linear", "nothing"], {"linear": {"C": [0.1, 1]}})]
    ['linear C=0.1', 'linear C=1', 'nothing']
    """
    result: list[Candidate] = []
    for model in dict.fromkeys(models):
        settings = values.get(model, {})
        check_setting_names(model, settings)
        combinations = itertools.product(*settings.values())
        result += [Candidate(model, dict(zip(settings, each, strict=True))) for each in combinations]
    return result


def default_metrics(data: Dataset, rule: str | None = None) -> tuple[str, ...]:
    """Return metrics that suit the labels of some data, the one to sort by first.

    Parameters
    ----------
    data : Dataset
        Documents with labels.
    rule : str, optional
        The rule that decides, if it is not the models' own: it may predict several labels, or none.

    Returns
    -------
    tuple of str
    """
    regime = usual_regime(data.hierarchy, data.labels)
    if regime == "single_path" and regime_of(data.hierarchy, data.labels) != "single_path":
        return DEFAULT_METRICS["partial_path"]
    names = DEFAULT_METRICS[regime]
    return names if rule is None else tuple("subset_accuracy" if name == "leaf_accuracy" else name for name in names)


def sweep(
    data: Dataset,
    candidates: Sequence[Candidate],
    metrics: Sequence[str] | None = None,
    rule: str | None = None,
    cv: int = 3,
    seed: int = 0,
    max_seconds: float | None = None,
    progress: bool | None = None,
) -> Sweep:
    """Compare models and settings by cross-validation.

    Every document is judged once, by a model that has not learned it. What fails is skipped. Ctrl-C ends the
    comparison with the candidates that are done.

    Parameters
    ----------
    data : Dataset
        Documents with labels; those of one group are held out together.
    candidates : sequence of Candidate
        What to compare.
    metrics : sequence of str, optional
        The first one sorts; by default those that suit the labels.
    rule : str, optional
        What decides; by default each model's own rule.
    cv : int
        The number of folds.
    seed : int
        Seed of folds and models.
    max_seconds : float, optional
        Learning of one fold is stopped after this time.
    progress : bool, optional
        Whether to show a bar; by default on a terminal.

    Returns
    -------
    Sweep
    """
    names = tuple(find_metric(name).name for name in metrics or default_metrics(data, rule))
    if rule is not None:
        find_rule(rule)
    held_out = folds(data, cv, seed)
    trials: list[SweepTrial] = []
    skipped: dict[str, str] = {}
    with progress_bar("sweep", len(candidates), progress) as advance:
        for index, candidate in enumerate(candidates):
            advance(index, str(candidate))
            try:
                trials.append(_cross_validate(candidate, data, held_out, names, rule, seed, max_seconds))
            except KeyboardInterrupt:
                break
            except Exception as error:  # One that fails must not cost what the others found.
                known = isinstance(error, TreelabelError)
                skipped[str(candidate)] = str(error) if known else f"{type(error).__name__}: {error}"
    left = len(candidates) - len(trials) - len(skipped)
    return _rank(Sweep(names, len(data), cv, tuple(trials), skipped, left=left))


def _cross_validate(
    candidate: Candidate,
    data: Dataset,
    held_out: Sequence[LongArray],
    metrics: Sequence[str],
    rule: str | None,
    seed: int,
    max_seconds: float | None,
) -> SweepTrial:
    results: list[Result] = []
    learning, speeds, stopped, megabytes = [], [], False, math.nan
    for rows in held_out:
        train, test = data[np.setdiff1d(np.arange(len(data)), rows)], data[rows]
        begin = time.perf_counter()
        model = make_model(candidate.model, **{"seed": seed, **candidate.settings})
        model.fit(train, max_seconds=max_seconds, progress=False)
        if model.stopped_ == "interrupt":
            raise KeyboardInterrupt
        stopped = stopped or model.stopped_ is not None
        middle = time.perf_counter()
        scores = model.score(test)
        speeds.append(len(test) / max(time.perf_counter() - middle, 1e-9))
        learning.append(middle - begin)
        if not results:
            try:
                megabytes = saved_bytes(model) / 1e6
            except TreelabelError as error:
                if not disk_is_full(error):
                    raise
        used = model.default_rule if rule is None else rule
        results.append(evaluate(test, scores=scores, rule=used, metrics=metrics, train_frequencies=train))
    by_fold = {name: tuple(result[name] for result in results) for name in metrics}
    rules = tuple(dict.fromkeys(str(result.rule) for result in results))
    return SweepTrial(candidate, _pool(results), by_fold, rules, max(learning), min(speeds), megabytes, stopped)


def saved_bytes(model: Model) -> float:
    """Return the size of a model on disk."""
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder, "model"))
        return float(sum(file.stat().st_size for file in Path(folder, "model").rglob("*") if file.is_file()))


def _pool(results: Sequence[Result]) -> Result:
    """Put the documents of folds together."""
    first = results[0]
    parts = {
        key: tuple(map(stack_parts, zip(*(result.parts[key] for result in results), strict=True)))
        for key in first.parts
    }
    sums = {key: tuple(np.asarray(part.sum(axis=0)).ravel() for part in each) for key, each in parts.items()}
    groups = None if first.groups is None else tuple(group for result in results for group in result.groups or ())
    count = sum(result.count for result in results)
    return Result(first.metrics, sums, first.context, count, first.rule, parts, groups=groups)


def _rank(results: Sweep) -> Sweep:
    """Sort trials by the first metric, and test all others against the best."""
    name = results.metrics[0]
    metric = find_metric(name)
    sign = -1 if metric.higher_is_better else 1
    order = sorted(results.trials, key=lambda trial: (math.isnan(trial.result[name]), sign * trial.result[name]))
    if len(order) < 2:
        return replace(results, trials=tuple(order))
    tests = [compare_metric(name, trial.result, order[0].result) for trial in order[1:]]
    p_values = holm([test.p_value for test in tests]).tolist()
    marked = [replace(trial, p_value=p) for trial, p in zip(order[1:], p_values, strict=True)]
    return replace(results, trials=(order[0], *marked), difference=tests[0])
