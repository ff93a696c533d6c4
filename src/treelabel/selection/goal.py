"""The goal of choices: the metric that predictions will be judged by, and the rules that may be best for it."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from treelabel.core.errors import TreelabelError
from treelabel.core.types import DoubleArray, LongArray
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.label_matrices import LabelMatrix, row_sizes
from treelabel.metrics.batch import Batch, Context, Value
from treelabel.metrics.metric import Metric
from treelabel.metrics.registry import find_metric
from treelabel.rules.decisions import decide
from treelabel.rules.registry import RULES
from treelabel.scores.score_matrix import Scores

# Stands for `optimal:samples_f1` with the weights of numbers of paths that are fitted to the same documents.
FITTED_COUNTS = "optimal:samples_f1(counts=fitted)"
# Stands for one threshold that is fitted to the same documents.
FITTED_THRESHOLD = "threshold(t=fitted)"
# The rules that are tried for every metric, simple ones first.
CANDIDATES = ("best_leaf", "threshold@0.5", "optimal:hf1", "optimal:samples_f1", FITTED_COUNTS)
# Thresholds to choose from; between two of them no metric differs beyond noise. Ties go to what is near a half.
THRESHOLDS = tuple(sorted((step / 20 for step in range(1, 20)), key=lambda t: (abs(t - 0.5), t)))
# Metrics that nothing can be chosen for.
OF_PROMISES = frozenset({"set_coverage", "set_size", "set_nodes", "set_depth"})
# Parts of the documents that are left out in turn, to tell how far a metric of all documents varies.
BLOCKS = 50


def find_goal(name: str) -> Metric:
    """Return the metric of a name, if anything can be chosen for it."""
    metric = find_metric(name)
    if metric.name in OF_PROMISES:
        raise TreelabelError(
            f"{name} says what sets with a guarantee are like, and predicting nothing may be best for it; expected a "
            "metric such as hf1, or a coverage: fit --coverage 0.9 (coverage=0.9)"
        )
    return metric


@dataclass(frozen=True, eq=False)
class GoalValue:
    """The value of a metric, and what each document contributes: numbers with that mean.

    `unit` numbers the documents that count together in standard errors.
    """

    value: float
    shares: DoubleArray
    unit: LongArray


@dataclass(frozen=True)
class Goal:
    """A metric to choose for, and what it has to know of training documents."""

    metric: Metric
    context: Context

    @classmethod
    def of(cls, name: str, hierarchy: Hierarchy, labels: LabelMatrix | None = None) -> "Goal":
        """Make the goal of a metric's name.

        Parameters
        ----------
        name : str
            A row of METRICS, with its number and conventions.
        hierarchy : Hierarchy
            That of the labels.
        labels : csr_array of shape (documents, nodes) or None
            The labels of training documents, for metrics that weigh rare labels.

        Returns
        -------
        Goal
        """
        metric = find_goal(name)
        if labels is None:
            return cls(metric, Context(hierarchy))
        closed = np.bincount(hierarchy.closure(labels).indices, minlength=len(hierarchy))
        exclusive = np.bincount(labels.indices, minlength=len(hierarchy))
        return cls(metric, Context(hierarchy, closed, exclusive, labels.shape[0]))

    @property
    def sign(self) -> float:
        """1 where more is better, else -1."""
        return 1.0 if self.metric.higher_is_better else -1.0

    @property
    def is_of_decisions(self) -> bool:
        """Whether the metric depends on the rule, and not on scores alone."""
        return "decisions" in self.metric.needs

    @cached_property
    def exact_rules(self) -> tuple[str, ...]:
        """The rules that are optimal for the metric, document by document, and need nothing but scores."""
        base, _, number = self.metric.name.partition("(")[0].partition("@")
        rows = [row for row in RULES.values() if row.best_for == base and not row.of_all and not row.needs]
        return tuple(f"{row.name}@{number}" if number and row.main is not None else row.name for row in rows)

    @property
    def candidates(self) -> tuple[str, ...]:
        """The rules to try, simple ones first, then those made for the metric."""
        if not self.is_of_decisions or self.metric.name == "hf1":
            return CANDIDATES
        return (*dict.fromkeys((*CANDIDATES, *self.exact_rules)), FITTED_THRESHOLD)

    def judge(
        self, truth: LabelMatrix, decisions: LabelMatrix | None, scores: Scores | None, group: LongArray
    ) -> GoalValue:
        """Compute the metric of some documents, and how it varies with them.

        A metric that is no mean over documents has jackknife pseudo-values of 50 parts of the documents in place of
        values of documents.

        Parameters
        ----------
        truth, decisions : LabelMatrix, documents x nodes
            Closed labels.
        group : array of shape (documents,)
            The number of each document's group.

        Returns
        -------
        GoalValue

        >>> from treelabel.metrics.example import example
        >>> truth, decisions = example().closed_truth, example().closed_decisions
        >>> goal = Goal.of("micro_f1", example().hierarchy)
        >>> judged = goal.judge(truth, decisions, None, np.arange(4))
        >>> round(judged.value, 3), round(float(judged.shares.mean()), 3), len(judged.shares)
        (0.444, 0.444, 4)
        """
        batch, metric = Batch(self.context, truth, decisions, scores), self.metric
        if metric.documents is not None:
            values = metric.documents(batch, *metric.arguments)
            known = ~np.isnan(values)
            mean = float(values[known].mean()) if known.any() else float("nan")
            return GoalValue(mean, np.where(known, values, mean), group)
        block = np.random.default_rng(0).permutation(int(group.max()) + 1)[group] % BLOCKS
        block = np.unique(block, return_inverse=True)[1].astype(np.int64)
        value, pseudo = _pseudo_values(metric, batch, block)
        shares = pseudo[block]
        return GoalValue(value, shares - shares.mean() + value, block)

    def best_threshold(self, scores: Scores, truth: LabelMatrix) -> float:
        """Find the threshold of THRESHOLDS that is best for the metric on some documents, whose labels are closed."""
        h, lowest = scores.hierarchy, min(THRESHOLDS)
        csr = scores.csr()
        likely = Scores(
            h, sparse.csr_array((np.where(csr.data >= lowest, csr.data, 0), csr.indices, csr.indptr), csr.shape)
        )

        def value(t: float) -> float:
            batch = Batch(self.context, truth, decide(likely, f"threshold@{t}").csr)
            return self.sign * number_of(self.metric.compute(batch))

        return max(THRESHOLDS, key=lambda t: np.nan_to_num(value(t), nan=-np.inf))


def _pseudo_values(metric: Metric, batch: Batch, block: LongArray) -> tuple[float, DoubleArray]:
    """Compute a metric, and the jackknife pseudo-value of each block of documents."""
    count = int(block.max()) + 1
    members = sparse.csr_array((np.ones(len(block)), (block, np.arange(len(block)))), (count, len(block)))
    parts = [_dense(members @ part.astype(np.float64)) for part in metric.parts_of(batch)]
    totals = [part.sum(axis=0) for part in parts]
    value = number_of(metric.value_of(tuple(totals), batch.context))

    def others() -> Iterator[float]:
        for index in range(count):
            rest = tuple(total - part[index] for total, part in zip(totals, parts, strict=True))
            yield number_of(metric.value_of(rest, batch.context))

    if count < 2:
        return value, np.array([value])
    without = np.array(list(others()))
    return value, np.nan_to_num(count * value - (count - 1) * without, nan=value)


def _dense(part: Any) -> DoubleArray:
    dense: DoubleArray = part.toarray() if sparse.issparse(part) else np.asarray(part)
    return dense


def number_of(value: Value) -> float:
    """Return the value of a metric as one number: the mean where it has several."""
    return value["mean"] if isinstance(value, dict) else value


def require_suitable(name: str, hierarchy: Hierarchy, labels: LabelMatrix) -> None:
    """Refuse a metric that documents cannot be judged by, before anything is learned.

    Parameters
    ----------
    name : str
        The metric.
    labels : csr_array of shape (documents, nodes)
        The labels of training documents.
    """
    metric = find_metric(name)
    if "tree" in metric.needs and not hierarchy.is_tree:
        raise TreelabelError(f"{name} needs a tree, but the hierarchy is a DAG; choose for another metric, such as hf1")
    several = int((row_sizes(hierarchy.most_specific(labels)) > 1).sum())
    if "single label" in metric.needs and several:
        raise TreelabelError(
            f"{name} compares single labels, but {several:,} of {labels.shape[0]:,} documents have several; choose for "
            "another metric, such as subset_accuracy (exact sets) or hf1"
        )
