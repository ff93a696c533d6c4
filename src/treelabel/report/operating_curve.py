"""The hierarchical precision-recall curve of scores, and where several rules stand on it."""

from dataclasses import dataclass

import numpy as np

from treelabel.core.errors import TreelabelError
from treelabel.core.types import DoubleArray
from treelabel.evaluation.evaluator import Evaluator
from treelabel.evaluation.result import Result
from treelabel.hierarchy.label_matrices import row_sizes
from treelabel.report.systems import ReportSystem

# What is shown beside the rule of the report: the usual ways to decide.
RULES = ("threshold@0.5", "best_leaf", "top_down(stop=0.5)", "optimal:hf1", "optimal:samples_f1")


@dataclass(frozen=True)
class OperatingPoint:
    """The precision and recall of a rule on the scores.

    `precision` and `recall` are those of the curve (a document without a prediction has precision 1); `hp`, `hr` and
    `hf1` the reported ones (it has 0).
    """

    rule: str
    precision: float
    recall: float
    hp: float
    hr: float
    hf1: float
    is_chosen: bool = False


@dataclass(frozen=True, eq=False)
class Curve:
    """Mean hierarchical precision and recall at one threshold for all documents, from the highest down; and points."""

    precision: DoubleArray
    recall: DoubleArray
    points: tuple[OperatingPoint, ...]


def operating_curve(system: ReportSystem) -> Curve | None:
    """Return the curve of a system that has scores, or None."""
    if system.scores is None:
        return None
    points = system.result.curves["hierarchical"]
    precision, recall = np.append(1.0, points["precision"][::-1]), np.append(0.0, points["recall"][::-1])
    results = {system.rule: _point(system, system.result, is_chosen=True)}
    for rule in RULES:
        if rule not in results:
            try:
                result = _decided(system, rule)
            except TreelabelError:
                # Not every rule suits every hierarchy; the others show enough.
                continue
            results[rule] = _point(system, result)
    return Curve(precision, recall, tuple(results.values()))


def _decided(system: ReportSystem, rule: str) -> Result:
    judge = Evaluator(
        system.hierarchy, ["hp", "hr", "hf1", "micro_f1"], rule, keep_documents=True, context=system.result.context
    )
    judge.add(system.truth, scores=system.scores)
    return judge.result()


def _point(system: ReportSystem, result: Result, is_chosen: bool = False) -> OperatingPoint:
    decisions = ReportSystem("", result).decisions
    judged = row_sizes(system.truth) > 0
    precision = np.where(row_sizes(decisions) == 0, 1.0, result.documents["hp"])[judged]
    recall = result.documents["hr"][judged]
    return OperatingPoint(
        rule=str(result.rule),
        precision=float(precision.mean()) if len(precision) else float("nan"),
        recall=float(recall.mean()) if len(recall) else float("nan"),
        hp=result["hp"],
        hr=result["hr"],
        hf1=result["hf1"],
        is_chosen=is_chosen,
    )
