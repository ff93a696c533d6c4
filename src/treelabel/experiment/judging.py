"""Judging what a system gave, by the rules and metrics of a spec."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from treelabel.core.errors import TreelabelError
from treelabel.data.dataset import Dataset
from treelabel.evaluation.evaluator import evaluate
from treelabel.evaluation.result import Result
from treelabel.experiment.contributions import sums_of
from treelabel.experiment.results import Judgement
from treelabel.experiment.spec import DEFAULT_RULE, DataSpec, Judge
from treelabel.metrics.registry import find_metric
from treelabel.rules.decisions import Decisions
from treelabel.scores.score_matrix import Scores

RESAMPLES = 500
# Documents x labels x resamples beyond which intervals of counts by label would take minutes.
MOST_DRAWN = 4e10


@dataclass(frozen=True, eq=False)
class SystemOutput:
    """The output of a system for the test documents: scores or decisions, and the rule that it would predict by."""

    scores: Scores | None = None
    decisions: Decisions | None = None
    default_rule: str | None = None


def judge_output(
    output: SystemOutput, judges: Sequence[Judge], data: DataSpec, train: Dataset, test: Dataset
) -> tuple[list[Judgement], list[Result], list[str]]:
    """Judge scores or decisions by every rule and metric that can.

    Parameters
    ----------
    output : Output
        What a system gave.
    judges : sequence of Judge
        Rules and metrics.
    data : DataSpec
        Where bins of training frequency begin, and the constants of propensities.
    train, test : Dataset
        What it learned from, and the truth.

    Returns
    -------
    judged : list of Judged
    results : list of Result
        The same with the parts of documents, in the same order.
    notes : list of str
        The metrics that could not be computed, and why.
    """
    judged: list[Judgement] = []
    results: list[Result] = []
    notes: list[str] = []
    for judge in judges:
        result, problems = _result(output, judge, data, train, test)
        notes += problems
        if result is not None:
            judged.append(_judgement(judge, result))
            results.append(result)
    if not judged:
        raise TreelabelError("; ".join(notes) or "no [[judge]] is for this data set")
    return judged, results, notes


def _result(
    output: SystemOutput, judge: Judge, data: DataSpec, train: Dataset, test: Dataset
) -> tuple[Result | None, list[str]]:
    """Judge by one rule; a metric that cannot be computed is left out, with the reason."""
    rule = output.default_rule if judge.rule == DEFAULT_RULE else judge.rule
    metrics, problems = list(judge.metrics), []
    if output.scores is None:
        of_scores = [name for name in metrics if "scores" in find_metric(name).needs]
        problems += [f"{name} needs scores, and there are labels only" for name in of_scores]
        metrics = [name for name in metrics if name not in of_scores]
    while metrics:
        try:
            return evaluate(
                test,
                decisions=output.decisions,
                scores=output.scores,
                rule=None if output.scores is None else rule,
                metrics=metrics,
                train_frequencies=train,
                propensity=data.propensity,
                bin_edges=data.bin_edges,
            ), problems
        except TreelabelError as error:
            # The message begins with the metric's name if it is one metric's fault.
            wrong = next((name for name in metrics if str(error).startswith(f"{find_metric(name).name}: ")), None)
            problems.append(f"{judge.rule}: {error}")
            if wrong is None:
                return None, problems
            metrics.remove(wrong)
    return None, problems


def _judgement(judge: Judge, result: Result) -> Judgement:
    intervals = {}
    if result.count and len(result.context.hierarchy) * result.count * RESAMPLES <= MOST_DRAWN:
        ends = result.intervals(resamples=RESAMPLES)
        intervals = {name: (each.low, each.high) for name, each in ends.items() if np.isfinite(each.low)}
    return Judgement(judge.rule, result.rule or "labels as given", dict(result.values), intervals, sums_of(result))
