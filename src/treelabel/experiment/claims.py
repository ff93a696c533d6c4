"""Claims of a study: confirmed, contradicted or open, by the interval of a difference."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from treelabel.core.errors import TreelabelError
from treelabel.experiment.estimates import Estimate, Resampled, Term, estimate
from treelabel.experiment.metric_names import is_higher_better
from treelabel.experiment.results import Results
from treelabel.experiment.spec import Claim, Side, Spec

Standing = Literal["confirmed", "contradicted", "open"]


@dataclass(frozen=True)
class Outcome:
    """The outcome of a claim on one data set: left - right with its 95% interval, and why it is open if it is."""

    data: str
    status: Standing
    difference: float = math.nan
    low: float = math.nan
    high: float = math.nan
    left: str = ""
    right: str = ""
    left_value: float = math.nan
    right_value: float = math.nan
    seeds: int = 1
    reason: str = ""
    is_cut_short: bool = False

    def describe(self) -> str:
        """Say it in a few words, with numbers."""
        if math.isnan(self.difference):
            return f"{self.status} on {self.data} ({self.reason})"
        sides = f"{self.left} {self.left_value:.4g}, {self.right} {self.right_value:.4g}"
        interval = "" if math.isnan(self.low) else f" [{_with_sign(self.low)}, {_with_sign(self.high)}]"
        why = f"; {self.reason}" if self.reason else ""
        return f"{self.status} on {self.data}: {_with_sign(self.difference)}{interval} ({sides}{why})"


@dataclass(frozen=True)
class Verdict:
    """The outcome of a claim: confirmed on all data sets, contradicted on some and confirmed on none, or open."""

    name: str
    text: str
    status: Standing
    outcomes: tuple[Outcome, ...]
    source: str = ""
    margin: float = 0.0

    def describe(self) -> str:
        """Say it in one sentence, with the difference on each data set and its 95% interval."""
        claimed = f" (more than {_with_sign(self.margin)} is claimed)" if self.margin else ""
        source = f" ({self.source})" if self.source else ""
        outcomes = "; ".join(outcome.describe() for outcome in self.outcomes)
        about = ""
        if self.status == "open":
            about = ", cut short" if any(each.is_cut_short for each in self.outcomes) else ""
            about += " (mixed)" if any(each.status == "confirmed" for each in self.outcomes) else ""
        return f"{self.status}{about}: {self.text}{source}: {outcomes}{claimed}."

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON can hold it, for `Results.export`."""
        return asdict(self)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "Verdict":
        """Make a verdict of what `to_json` returned; numbers that are not finite may be strings."""
        try:
            outcomes = tuple(
                Outcome(**{**each, **{name: float(each[name]) for name in _NUMBERS}}) for each in stored["outcomes"]
            )
            verdict = cls(**{**stored, "margin": float(stored["margin"]), "outcomes": outcomes})
            for status in (verdict.status, *(outcome.status for outcome in outcomes)):
                if status not in get_args(Standing):
                    raise ValueError(f"status {status!r}")
            return verdict
        except (KeyError, TypeError, ValueError) as error:
            raise TreelabelError(f"a verdict is damaged ({error}); run the study again") from None


_NUMBERS = ("difference", "low", "high", "left_value", "right_value")


def _with_sign(value: float) -> str:
    """Write a difference with its sign, and with as many digits as tell something."""
    return f"{value:+.4f}" if abs(value) < 10 else f"{value:+.1f}"


# Judging


def judge_claims(results: Results, resampled: Resampled | None = None) -> list[Verdict]:
    """Judge all claims of a study.

    Parameters
    ----------
    results : Results
        From a folder; those of an exported file bring their verdicts with them.
    resampled : Resampled, optional
        Values on resampled documents, if others need them too.

    Returns
    -------
    list of Verdict
        In the order of the spec.
    """
    if results.folder is None and results.verdicts:
        return [Verdict.from_json(each) for each in results.verdicts]
    shared = Resampled(results) if resampled is None else resampled
    return [judge_claim(claim, shared) for claim in results.spec.claims]


def judge_claim(claim: Claim, resampled: Resampled) -> Verdict:
    """Judge one claim on each of its data sets.

    Parameters
    ----------
    claim : Claim
        That left - right > margin.
    resampled : Resampled
        The results.

    Returns
    -------
    Verdict
    """
    outcomes = tuple(_outcome(name, claim, resampled) for name in _data_sets(claim, resampled.results.spec))
    status = overall([outcome.status for outcome in outcomes])
    return Verdict(claim.name, claim.text, status, outcomes, claim.source, claim.margin)


def overall(result: Sequence[Standing]) -> Standing:
    """Return what holds on several data sets together.

    >>> overall(["confirmed", "confirmed"]), overall(["open", "contradicted"]), overall(["confirmed", "contradicted"])
    ('confirmed', 'contradicted', 'open')
    """
    if result and all(each == "confirmed" for each in result):
        return "confirmed"
    return "contradicted" if "contradicted" in result and "confirmed" not in result else "open"


def _data_sets(claim: Claim, spec: Spec) -> tuple[str, ...]:
    """The data sets of a claim: those that it names, or all on which its systems are to run."""
    sides = [side for side in (claim.left, claim.right) if side.value is None]
    if claim.data is not None:
        return claim.data
    if sides and all(side.data is not None for side in sides):
        return (str(sides[0].data),)
    systems = [spec.systems[name] for side in sides if side.data is None for name in _all_systems(side)]
    return tuple(name for name in spec.data if all(each.data is None or name in each.data for each in systems))


def _all_systems(side: Side) -> tuple[str, ...]:
    return (*side.systems, *(() if side.relative_to is None else (side.relative_to,)))


class _SideValue(NamedTuple):
    """A side on a data set: what to call it, the values that it takes, and how they become one."""

    title: str
    terms: tuple[Term, ...]
    function: Callable[[Sequence[Any]], Any]


class _NoValueError(Exception):
    """A side has no value on a data set, and why."""


def _outcome(data: str, claim: Claim, resampled: Resampled) -> Outcome:
    try:
        left, right = (_side_value(side, data, resampled) for side in (claim.left, claim.right))
    except _NoValueError as error:
        return Outcome(data, "open", reason=str(error))
    cut, terms = len(left.terms), [*left.terms, *right.terms]

    def first(values: Sequence[Any]) -> Any:
        return left.function(values[:cut])

    def second(values: Sequence[Any]) -> Any:
        return right.function(values[cut:])

    result = estimate(resampled, terms, lambda values: first(values) - second(values))
    if result.problem:
        return Outcome(data, "open", reason=result.problem)
    # Over the same seeds as the difference: that of a system with more of them would not fit it.
    left_value, right_value = (estimate(resampled, terms, side).value for side in (first, second))
    status, reason = _standing(result, claim.margin)
    unfinished = cut_short(claim, data, resampled.results)
    if unfinished:
        status, reason = "open", unfinished
    values = (result.value, *result.interval, left.title, right.title, left_value, right_value)
    return Outcome(data, status, *values, result.seeds, reason, is_cut_short=bool(unfinished))


def cut_short(claim: Claim, data: str, results: Results) -> str:
    """Name the systems of a claim whose training a budget ended: of these, nothing can be confirmed or contradicted.

    Among several of which the best counts, each counts: it might have been the best with the time that it needs.

    Parameters
    ----------
    data : str
        One of its data sets.
    results : Results
        The runs.

    Returns
    -------
    str
        "cut short: hbgl, hitin (1 of 2 seeds)", or "" where all were trained to their end.
    """
    cut = []
    for side in (claim.left, claim.right):
        for name in _all_systems(side) if side.value is None else ():
            runs = results.of(side.data or data, name)
            stopped = sum(run.stopped for run in runs)
            if stopped:
                cut.append(name if stopped == len(runs) else f"{name} ({stopped} of {len(runs)} seeds)")
    return f"cut short: {', '.join(dict.fromkeys(cut))}" if cut else ""


def _standing(result: Estimate, margin: float) -> tuple[Standing, str]:
    low, high = result.interval
    if math.isnan(low):
        return "open", "one seed, and what each document contributed is not known"
    if low > margin:
        return "confirmed", ""
    return ("contradicted", "") if high < margin else ("open", "")


def _side_value(side: Side, data: str, resampled: Resampled) -> _SideValue:
    """Find out what a side compares on a data set."""
    if side.value is not None:
        constant = np.float64(side.value)
        return _SideValue("the value", (), lambda values: constant)
    metric = str(side.metric)
    terms = [Term(side.data or data, name, metric, side.rule) for name in side.systems]
    if side.best_of or side.worst_of:
        estimates = [estimate(resampled, [term]) for term in terms]
        problem = next((each.problem for each in estimates if each.problem), "")
        if problem:
            raise _NoValueError(problem)
        wants_largest = is_higher_better(metric) == bool(side.best_of)
        order = np.argsort([each.value for each in estimates], kind="stable")
        terms = [terms[order[-1] if wants_largest else order[0]]]
    title = f"mean of {', '.join(side.mean_of)}" if side.mean_of else terms[0].system
    many = len(terms)
    if side.relative_to is None:
        return _SideValue(title, tuple(terms), lambda values: sum(values) / many)
    title += f" relative to {side.relative_to}"
    base = replace(terms[0], system=side.relative_to)
    return _SideValue(title, (*terms, base), lambda values: sum(values[:many]) / many / values[many] - 1)
