"""Scorers for scikit-learn: any metric of METRICS by any rule, for cross_val_score, GridSearchCV and the like."""

from dataclasses import dataclass
from typing import Any

from treelabel.core.errors import TreelabelError
from treelabel.evaluation.evaluator import evaluate
from treelabel.metrics.registry import find_metric
from treelabel.rules.decisions import TunedRule
from treelabel.rules.registry import find_rule


@dataclass(frozen=True)
class Scorer:
    """Judges a fitted model, or a Pipeline that ends in one, by a metric, for scikit-learn: the larger, the better.

    Metrics of which smaller values are better have a minus. Labels that training did not have count as they should:
    nobody could predict them.
    """

    metric: str
    rule: str | TunedRule | None = None

    def __call__(self, estimator: Any, texts: Any, labels: Any) -> float:
        """Return the value of the metric on texts with their true labels."""
        model, texts = _last_step(estimator, texts)
        truth, scores, decisions = model.judged(texts, labels, self.rule)
        profile = model.profile_
        result = evaluate(
            truth,
            decisions=decisions,
            scores=scores,
            metrics=[self.metric],
            train_frequencies=profile.frequencies,
            train_documents=profile.documents,
            keep_documents=False,
        )
        value = result[self.metric]
        if not isinstance(value, float | int):
            raise TreelabelError(f"{self.metric} has several values ({', '.join(value)}), of which a scorer needs one")
        return float(value) if find_metric(self.metric).higher_is_better else -float(value)


def scorer(metric: str = "hf1", rule: str | TunedRule | None = None) -> Scorer:
    """Make a scorer for scikit-learn's `scoring=` of any metric and any rule.

    Parameters
    ----------
    metric
        A row of METRICS, such as "hf1" or "precision@5".
    rule
        A row of RULES with settings, or a tuned rule; None takes the `default_rule` of each model.

    Returns
    -------
    Scorer
        To be called with a fitted estimator, texts and labels.

    >>> scorer("hf1", rule="best_leaf")
    Scorer(metric='hf1', rule='best_leaf')
    """
    find_metric(metric)
    if isinstance(rule, str):
        find_rule(rule)
    return Scorer(metric, rule)


def _last_step(estimator: Any, texts: Any) -> tuple[Any, Any]:
    """Return the model within a search or a Pipeline, and the texts as the steps before it change them."""
    while hasattr(estimator, "best_estimator_"):
        estimator = estimator.best_estimator_
    if hasattr(estimator, "steps"):
        if len(estimator.steps) > 1:
            texts = estimator[:-1].transform(texts)
        estimator = estimator[-1]
    if not hasattr(estimator, "judged"):
        raise TreelabelError(
            f"expected a model of treelabel, or a Pipeline that ends in one, found {type(estimator).__name__}"
        )
    return estimator, texts
