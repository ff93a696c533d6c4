"""How sure a number is that comes from several runs: documents and seeds are independent sources of noise, which add.

Documents are resampled, the same draws for all systems and seeds, so that differences are paired. Seeds have a
t-interval of what each of them gives. The interval of both reaches as far as the hypotenuse of the two.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias
from zlib import crc32

import numpy as np
from scipy import special

from treelabel.core.types import DoubleArray
from treelabel.evaluation.result import Result
from treelabel.evaluation.significance import exchanged_sums
from treelabel.evaluation.statistics import bootstrap_sums
from treelabel.experiment.metric_names import base_metric, spelled_metric
from treelabel.experiment.results import Results, Run
from treelabel.experiment.spec import Spec
from treelabel.metrics.metric import Metric

RESAMPLES = 1000
LEVEL = 0.95
# Steps of the search for a p-value: each halves what is left of its logarithm.
BISECTIONS = 60
SMALLEST_P = 1e-300
# Takes numbers, or arrays of the same length, one for each term.
Function: TypeAlias = Callable[[Sequence[Any]], Any]


@dataclass(frozen=True)
class Term:
    """A metric of a system on a data set, under a rule (None: the first that has the metric)."""

    data: str
    system: str
    metric: str
    rule: str | None = None


@dataclass(frozen=True)
class Estimate:
    """A number, and how far it may be off.

    `below` and `above` tell how far the 95% interval over documents reaches, and `document_error` is its standard
    error; all are NaN where documents are not known. `seed_error` is the standard error over `seeds` seeds, NaN of a
    single one; of programs that draw at random it is the Monte-Carlo error. `is_exact` says that there is no noise at
    all. Where there is no number, `problem` says why.
    """

    value: float
    below: float = math.nan
    above: float = math.nan
    document_error: float = math.nan
    seed_error: float = math.nan
    seeds: int = 1
    is_exact: bool = False
    problem: str = ""

    @property
    def interval(self) -> tuple[float, float]:
        """The ends of the 95% interval; NaN where nothing is known of the noise."""
        if self.is_exact:
            return self.value, self.value
        seeds = _reach(self.seed_error, self.seeds, 1 - LEVEL)
        known = [each for each in (seeds, self.below, self.above) if not math.isnan(each)]
        if not known:
            return math.nan, math.nan
        below, above = (math.hypot(*np.nan_to_num([each, seeds]).tolist()) for each in (self.below, self.above))
        return self.value - below, self.value + above

    @property
    def p_value(self) -> float:
        """The p-value of the number being 0: the level at which an interval of both errors would just touch it.

        NaN where nothing is known of the noise, and 1 where nothing varies.
        """
        errors = np.nan_to_num([self.document_error, self.seed_error])
        if math.isnan(self.value) or (math.isnan(self.document_error) and math.isnan(self.seed_error)):
            return math.nan
        if not errors.any():
            return 1.0
        low, high = math.log(SMALLEST_P), 0.0
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            z = -float(special.ndtri(math.exp(middle) / 2)) * float(errors[0])
            t = float(np.nan_to_num(_reach(self.seed_error, self.seeds, math.exp(middle))))
            low, high = (low, middle) if math.hypot(z, t) < abs(self.value) else (middle, high)
        return math.exp(high)


def _reach(error: float, seeds: int, p: float) -> float:
    """How far an interval over seeds reaches that misses with probability p."""
    return math.nan if math.isnan(error) else float(-special.stdtrit(seeds - 1, p / 2)) * error


class Resampled:
    """The values of runs on resampled documents, each computed when it is first asked for.

    Parameters
    ----------
    results : Results
        With a folder that has what each document contributed; without it nothing is known.
    resamples : int
        How often documents are drawn with replacement.
    """

    def __init__(self, results: Results, resamples: int = RESAMPLES) -> None:
        self.results = results
        self.resamples = resamples
        self._named = named_metrics(results.spec)
        self._known: dict[tuple[str, str], dict[str, DoubleArray | None]] = {}

    def values(self, run: Run, metric: str, rule: str | None = None) -> DoubleArray | None:
        """Return the value of a metric in each resample, shape (resamples,); None where it is not known.

        Parameters
        ----------
        run : Run
            A run of the results.
        metric : str
            A metric, or a part of one.

        Returns
        -------
        array or None
        """
        judged = run.judged_by(metric, rule)
        if judged is None:
            return None
        if self.is_program(run):
            return np.full(self.resamples, run.value(metric, rule))
        name, known = spelled_metric(metric), self._known.setdefault((run.key, judged.rule), {})
        if name not in known:
            # What tables and claims ask for is drawn at once, as the file is read only once for them.
            asked = {base_metric(name), *(() if known else self._named)}
            result = self.results.result(run, judged.rule)
            if result is not None:
                metrics = [each for each in result.metrics if each.name in asked]
                known |= drawn_values(result, metrics, self.resamples)
            known.setdefault(name, None)
        return known[name]

    def is_program(self, run: Run) -> bool:
        """Whether a run is a program of the study's own, whose values have no documents behind them."""
        system = self.results.spec.systems.get(run.system)
        return system is not None and system.writes_values

    def draws(self, run: Run) -> bool:
        """Whether a run is a program that draws at random, so that only several seeds tell how far it may be off."""
        return self.is_program(run) and "{seed}" in " ".join(self.results.spec.systems[run.system].command or ())


def drawn_values(result: Result, metrics: Sequence[Metric], resamples: int) -> dict[str, DoubleArray]:
    """Compute values on resampled documents.

    Results of as many documents in the same hierarchy have the same draws; others are drawn independently.

    Parameters
    ----------
    result : Result
        With the parts of documents.
    metrics : sequence of Metric
        Metrics of the result.
    resamples : int
        How often documents are drawn with replacement.

    Returns
    -------
    dict of arrays of shape (resamples,)
        Values by name; parts of a metric stand in brackets behind its name.
    """
    seed = crc32(f"{result.count} {result.fingerprint}".encode())
    results: dict[str, DoubleArray] = {}
    for key in {metric.key: None for metric in metrics}:
        alike = [metric for metric in metrics if metric.key == key]
        values = [
            [each.value_of(sums, result.context) for each in alike]
            for sums in bootstrap_sums(result.resampling_parts(alike[0]), resamples, seed)
        ]
        for metric, drawn in zip(alike, zip(*values, strict=True), strict=True):
            names = [name for name in result.values if base_metric(name) == metric.name]
            results |= {name: np.array([_value(each, name) for each in drawn], np.float64) for name in names}
    return results


def _value(value: float | dict[str, float], name: str) -> float:
    """Take the part of a value that a name has in brackets, or the value itself."""
    if not isinstance(value, dict):
        return value
    return value.get(name.partition("[")[2].removesuffix("]") or "mean", math.nan)


def named_metrics(spec: Spec) -> set[str]:
    """Return the metrics that tables and claims name, without parts; all that are judged, if there are none."""
    listed = [column.metric for table in spec.tables for column in table.columns]
    listed += [side.metric for claim in spec.claims for side in (claim.left, claim.right)]
    listed += [figure.metric for figure in spec.figures if figure.kind == "relative_parts"]
    listed += [] if listed else [metric for judge in spec.judge for metric in judge.metrics]
    return {base_metric(spelled_metric(name)) for name in listed if name is not None}


def estimate(resampled: Resampled, terms: Sequence[Term], function: Function = lambda values: values[0]) -> Estimate:
    """Estimate a function of values of systems: its mean over seeds, and its noise.

    Seeds are paired: the function is computed for each seed that all systems have, those with a single run aside.

    Parameters
    ----------
    resampled : Resampled
        The results.
    terms : sequence of Term
        Values that the function takes.
    function : callable
        Takes numbers, or arrays of the same length, one for each term; by default the first term's value.

    Returns
    -------
    Estimate
    """
    runs = [{run.seed: run for run in resampled.results.of(term.data, term.system)} for term in terms]
    for term, result in zip(terms, runs, strict=True):
        problem = _problem(resampled.results, term, result)
        if problem:
            return Estimate(math.nan, problem=problem)
    chosen = _by_seed(runs)
    if not chosen:
        return Estimate(math.nan, problem="the systems have no seed in common")
    with np.errstate(all="ignore"):
        pairs = [list(zip(terms, each, strict=True)) for each in chosen]
        values = [[np.float64(run.value(term.metric, term.rule)) for term, run in each] for each in pairs]
        points = [float(function(each)) for each in values]
    is_known = len(points) > 1 and bool(np.isfinite(points).all())
    error = float(np.std(points, ddof=1) / math.sqrt(len(points))) if is_known else math.nan
    point = float(np.mean(points))
    if not math.isfinite(point):
        return Estimate(point, problem="the value is not a finite number")
    if any(len(result) == 1 and resampled.draws(next(iter(result.values()))) for result in runs):
        return Estimate(point, seeds=len(points))
    is_exact = len(points) == 1 and all(resampled.is_program(run) for run in chosen[0])
    below, above, spread = _document_noise(resampled, terms, chosen, function)
    return Estimate(point, below, above, spread, error, len(points), is_exact)


def _by_seed(runs: Sequence[Mapping[int, Run]]) -> list[list[Run]]:
    """Pair runs of the same seed; a system with a single run takes part with it everywhere."""
    several = [set(result) for result in runs if len(result) > 1]
    seeds = sorted(set.intersection(*several)) if several else [0]
    return [[result[seed] if len(result) > 1 else next(iter(result.values())) for result in runs] for seed in seeds]


def _problem(results: Results, term: Term, result: Mapping[int, Run]) -> str:
    if not result:
        return f"{term.system} on {term.data}: {results.problem(term.data, term.system) or 'has not run'}"
    without = [run for run in result.values() if math.isnan(run.value(term.metric, term.rule))]
    under = "" if term.rule is None else f" under {term.rule}"
    return f"{term.system} on {term.data}: has no value of {term.metric}{under}" if without else ""


def _document_noise(
    resampled: Resampled, terms: Sequence[Term], chosen: Sequence[Sequence[Run]], function: Function
) -> tuple[float, float, float]:
    """How far the interval over documents reaches below and above, and the standard error; NaN if it is not known."""
    drawn = np.zeros(resampled.resamples)
    for runs in chosen:
        values = [resampled.values(run, term.metric, term.rule) for term, run in zip(terms, runs, strict=True)]
        if any(each is None for each in values):
            return math.nan, math.nan, math.nan
        with np.errstate(all="ignore"):
            drawn += function(values) / len(chosen)
    drawn = drawn[np.isfinite(drawn)]
    if len(drawn) < 2:
        return math.nan, math.nan, math.nan
    # Moved by the bootstrap's own bias, as in `bootstrap_interval`.
    low, high = np.quantile(drawn - drawn.mean(), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    error = float(drawn.std(ddof=1))
    wider = max(1.0, _exchanged_error(resampled, terms, chosen, function) / error) if error else 1.0
    return wider * max(0.0, -float(low)), wider * max(0.0, float(high)), wider * error


def _exchanged_error(
    resampled: Resampled, terms: Sequence[Term], chosen: Sequence[Sequence[Run]], function: Function
) -> float:
    """The standard error of a comparison of two systems by a mean over labels with few documents; 0 of all others.

    Resampled, such means vary too little, as most of these labels come with one document or none at all. What varies is
    how they differ when the two systems' answers, of all seeds at once, are exchanged at random documents.
    """
    if len(terms) != 2 or terms[0].metric != terms[1].metric or terms[0].data != terms[1].data:
        return 0.0
    sides: tuple[list[Any], list[Any]] = [], []
    values: list[Callable[[tuple[Any, ...]], float]] = []
    for term, run, side in (each for runs in chosen for each in zip(terms, runs, sides, strict=True)):
        judged = run.judged_by(term.metric, term.rule)
        result = None if judged is None else resampled.results.result(run, judged.rule)
        if result is None or not result.why_no_interval(term.metric):
            return 0.0
        metric, value = result.value_function(term.metric)
        side += result.resampling_parts(metric)
        values.append(value)
    width, drawn = len(sides[0]) // len(chosen), []
    with np.errstate(all="ignore"):
        for both in exchanged_sums(*sides, resampled.resamples):
            by_seed = [
                function([value(sums[index : index + width]) for value, sums in zip(values[:2], both, strict=True)])
                for index in range(0, len(sides[0]), width)
            ]
            drawn.append(float(np.mean(by_seed)))
    matches = np.array(drawn)[np.isfinite(drawn)]
    return float(np.sqrt(np.mean(matches**2))) if len(matches) else 0.0
