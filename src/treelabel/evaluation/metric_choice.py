"""Which metrics are judged by: those asked for, all that apply, or a usual few."""

from collections.abc import Mapping, Sequence

from treelabel.core.errors import TreelabelError
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.label_matrices import LabelMatrix, row_sizes
from treelabel.metrics.batch import Batch
from treelabel.metrics.metric import Metric
from treelabel.metrics.registry import METRICS, find_metric

DEFAULT_DECISION_METRICS = (
    "hp",
    "hr",
    "hf1",
    "micro_f1",
    "macro_f1",
    "samples_f1",
    "hamming",
    "subset_accuracy",
    "level_accuracy",
    "shortest_path",
)
DEFAULT_SCORE_METRICS = ("hf1_auc",)


def listed_metrics(names: Sequence[str] | str | None) -> list[str]:
    """Return the metrics that were asked for by name."""
    if names is None or names == "all":
        return []
    return [names] if isinstance(names, str) else list(names)


def needs_decisions(names: Sequence[str] | str | None) -> bool:
    """Return whether any of the metrics looks at decisions; "all" and the usual few do."""
    listed = listed_metrics(names)
    return not listed or any("decisions" in find_metric(name).needs for name in listed)


def chosen_metrics(names: Sequence[str] | str | None, batch: Batch) -> list[Metric]:
    """Find metrics by name; "all" takes every row whose needs are met, None a usual few.

    Parameters
    ----------
    names
        Names, "all" or None.
    batch
        Documents that show what is there: decisions, scores, training frequencies.

    Returns
    -------
    list of Metric
    """
    listed = listed_metrics(names)
    if names == "all":
        listed = _applicable(batch)
    elif names is None:
        listed += DEFAULT_DECISION_METRICS if batch.input_decisions is not None else ()
        listed += DEFAULT_SCORE_METRICS if batch.input_scores is not None else ()
    if not listed:
        missing = "no metric is named" if names is not None and names != "all" else "pass decisions= or scores="
        raise TreelabelError(f"nothing to judge: {missing}")
    return [find_metric(name) for name in listed]


def _applicable(batch: Batch) -> list[str]:
    """The metrics whose needs are met. Those of decisions need single labels on both sides, others in the truth."""
    have = {"decisions": batch.input_decisions is not None, "scores": batch.input_scores is not None}
    have["frequencies"] = batch.context.closed is not None and batch.context.documents is not None
    have["tree"] = batch.hierarchy.is_tree
    single_truth = _is_single(batch.hierarchy, batch.truth)
    single_both = single_truth and have["decisions"] and _is_single(batch.hierarchy, batch.decisions)
    result = []
    for row in METRICS.values():
        have["single label"] = single_both if "decisions" in row.needs else single_truth
        if all(have[need] for need in row.needs):
            result.append(row.name)
    return result


def _is_single(hierarchy: Hierarchy, labels: LabelMatrix) -> bool:
    return bool(row_sizes(hierarchy.most_specific(labels)).max(initial=0) <= 1)


def require_some(rows: Sequence[Metric], skipped: Mapping[str, str]) -> None:
    """Refuse to judge by nothing, where no metric that was asked for applies.

    Parameters
    ----------
    rows
        The metrics that are left.
    skipped
        Why each of the others was skipped, by name.
    """
    if not rows and skipped:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in skipped.items())
        raise TreelabelError(reasons if len(skipped) == 1 else f"none of the metrics applies: {reasons}")
