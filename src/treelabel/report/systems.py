"""Judge the systems of a report, each by the same metrics on the same documents."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from treelabel.core.errors import TreelabelError
from treelabel.core.types import DoubleArray
from treelabel.data.dataset import Dataset
from treelabel.evaluation.alignment import common_hierarchy, in_order, judged_as, label_sets
from treelabel.evaluation.comparison import GIVEN
from treelabel.evaluation.evaluator import evaluate
from treelabel.evaluation.result import Result
from treelabel.evaluation.statistics import Interval
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.label_matrices import LabelMatrix
from treelabel.hierarchy.labelled_texts import usual_regime
from treelabel.metrics.label_counts import label_counts
from treelabel.metrics.shared_formulas import by_label, label_f1
from treelabel.rules.decisions import TunedRule
from treelabel.scores.score_matrix import Scores

DECISION_METRICS = (
    "hf1",
    "hp",
    "hr",
    "subset_accuracy",
    "micro_f1",
    "macro_f1",
    "shortest_path",
    "hamming",
    "macro_f1_by_depth",
    "macro_f1_by_decile",
)
SCORE_METRICS = ("hf1_auc", "ece", "best_hf1")
MOST_SYSTEMS = 20


@dataclass(frozen=True, eq=False)
class ReportSystem:
    """A system that was judged: its result with the documents kept, and its scores if it has any."""

    name: str
    result: Result
    scores: Scores | None = None
    resamples: int = 1000
    seed: int = 0

    @property
    def rule(self) -> str:
        """The rule that made its labels."""
        return self.result.rule or GIVEN

    @property
    def hierarchy(self) -> Hierarchy:
        """The hierarchy of its labels."""
        return self.result.context.hierarchy

    @cached_property
    def node_scores(self) -> Any:
        """The scores of all nodes of `hierarchy`, if there are any; those that the scores do not know have 0."""
        return None if self.scores is None else self.scores.under(self.hierarchy).values

    @cached_property
    def _count_key(self) -> Any:
        return next(metric.key for metric in self.result.metrics if metric.parts is label_counts)

    @property
    def truth(self) -> LabelMatrix:
        """The true labels with their ancestors."""
        results: LabelMatrix = self.result.parts[self._count_key][1]
        return results

    @property
    def decisions(self) -> LabelMatrix:
        """The predicted labels with their ancestors."""
        results: LabelMatrix = self.result.parts[self._count_key][0]
        return results

    @cached_property
    def label_counts(self) -> DoubleArray:
        """Count documents by label: columns predicted, true and both, shape (nodes, 3)."""
        return by_label(self.result.sums[self._count_key])

    @cached_property
    def label_f1(self) -> DoubleArray:
        """The F1 of every label; 0 where it is neither true nor predicted."""
        return label_f1(self.result.sums[self._count_key])

    @cached_property
    def intervals(self) -> dict[str, Interval]:
        """The value of every metric and part of one, with its 95% interval."""
        return self.result.intervals(resamples=self.resamples, seed=self.seed)


def judge_systems(
    truth: Dataset,
    systems: Mapping[str, Any],
    train: Dataset | None = None,
    rule: str | TunedRule | None = None,
    resamples: int = 1000,
    seed: int = 0,
) -> list[ReportSystem]:
    """Judge systems on the documents of the truth.

    Parameters
    ----------
    truth : Dataset
        Documents with their true labels.
    systems : mapping of str to Scores or decisions
        By name, in the forms that `evaluate` takes.
    train : Dataset, optional
        Where the frequencies of labels come from; by default the truth.
    rule : str, Tuned or None
        What decides for scores; see `evaluate`.
    resamples, seed
        Of the bootstrap.

    Returns
    -------
    list of System
    """
    if not 1 <= len(systems) <= MOST_SYSTEMS:
        raise TreelabelError(f"a report shows from 1 to {MOST_SYSTEMS} systems, found {len(systems)}")
    if not len(truth):
        raise TreelabelError("there are no documents to report on: the truth is empty")
    h = common_hierarchy(*systems.values(), truth, train=train)
    results = []
    for name, given in systems.items():
        judged = judged_as(in_order(truth, given, name))
        scores = judged.get("scores")
        metrics = [*DECISION_METRICS, *(() if scores is None else SCORE_METRICS)]
        if scores is not None and h.is_tree and usual_regime(h, label_sets(truth, h, "truth")) != "multi_path":
            metrics.append("haurc")
        result = evaluate(truth, **judged, hierarchy=h, rule=rule, metrics=metrics, train_frequencies=train)
        results.append(ReportSystem(str(name), result, scores, resamples, seed))
    return results


def occurring(systems: list[ReportSystem]) -> Any:
    """Mark the labels that are true, or that any of the systems predicts, shape (nodes,)."""
    return np.any([system.label_counts[:, :2].sum(axis=1) > 0 for system in systems], axis=0)
