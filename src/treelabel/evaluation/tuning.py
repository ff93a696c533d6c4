"""Tune a rule on validation data: what `treelabel tune` does, and what a required precision costs."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from treelabel.core.compute import join_rows, kernel
from treelabel.core.errors import TreelabelError
from treelabel.core.strings import describe_value
from treelabel.core.types import BoolArray, DoubleArray, LongArray, ScoreArray
from treelabel.evaluation.alignment import has_label, validation
from treelabel.evaluation.evaluator import make_context
from treelabel.evaluation.statistics import Interval, binomial_interval
from treelabel.hierarchy.label_matrices import LabelMatrix, matches
from treelabel.metrics.batch import Batch, Context
from treelabel.metrics.registry import METRICS
from treelabel.rules.back_off import LeafPaths, precise_thresholds
from treelabel.rules.conformal import USUAL_COVERAGE, ConformalSets
from treelabel.rules.decisions import TunedRule
from treelabel.rules.registry import find_rule
from treelabel.rules.risk_bounds import FOLDS, assign_folds
from treelabel.rules.risk_control import RiskControl
from treelabel.rules.set_calibration import calibrate_by_value, calibrate_sets, require_one_path
from treelabel.rules.threshold import threshold
from treelabel.rules.tuned_rule import column_values
from treelabel.scores.score_matrix import Scores

RULES_TO_TUNE = (
    "macro_f1",
    "micro_f1",
    "back_off(precision=0.95)",
    "conformal(coverage=0.9)",
    "risk_control(metric=recall, at_least=0.9)",
)


def tune(
    truth: Any, scores: Scores, rule: str = "macro_f1", train_frequencies: Any = None, by: Any = None
) -> TunedRule:
    """Find the settings of a rule on validation data: thresholds for a metric, or for a required precision.

    "macro_f1" finds one threshold per label, "micro_f1" one for all labels; "back_off(precision=0.95)" finds how sure
    one must be on each level so that predicted labels are right that often, and goes up to an ancestor, or predicts
    nothing, where one is not (see `precise_thresholds`). `back_off_table` tells what each precision costs.
    "conformal(coverage=0.9)" and "risk_control(metric=recall, at_least=0.9)" find the limits by which sets cover the
    truth that often, or have that recall or precision: docs/guarantees.md tells in which sense.

    Parameters
    ----------
    truth : Dataset, lists of names or label matrix
        The labels of the validation documents; those with ids are matched by them.
    rule : str
        What to tune.
    train_frequencies : Dataset, optional
        The training data, for risk_control(metric=info_recall).
    by : str or mapping, optional
        For conformal: a column of `truth`, or its name and values. Each value gets a limit of its own, so that coverage
        holds within each; `decide` needs the same column then.

    Returns
    -------
    TunedRule
        A rule for `decide`, bound to the hierarchy.

    >>> from treelabel.hierarchy import Hierarchy
    >>> h = Hierarchy.flat(["A", "B"])
    >>> tuned = tune([["A"], ["B"]], Scores(h, [[0.75, 0.25], [0.25, 0.25]]), "micro_f1")
    >>> tuned.rule, tuned.settings, tuned.measured
    ('threshold', {'t': 0.5}, {'micro_f1': 0.6666666666666666, 'documents': 2})
    """
    if not isinstance(rule, str):
        raise TreelabelError(f"expected what to tune, such as 'macro_f1', found {type(rule).__name__}")
    aligned, true = validation(truth, scores)
    if by is not None:
        return _tune_by_column(truth, aligned, true, rule, by)
    measured: dict[str, Any]
    settings: dict[str, Any]
    match rule.removeprefix("optimal:"):
        case "macro_f1":
            thresholds, value = best_threshold_per_label(aligned, true)
            name, settings, measured = "threshold", {"t": [float(t) for t in thresholds]}, {"macro_f1": value}
        case "micro_f1":
            t, value = best_threshold(aligned, true)
            name, settings, measured = "threshold", {"t": t}, {"micro_f1": value}
        case _:
            name, settings, measured = _tune_promise(truth, aligned, true, rule, train_frequencies)
    return TunedRule(name, settings, aligned.hierarchy.fingerprint, {**measured, "documents": len(aligned)})


def _tune_promise(
    labels: Any, scores: Scores, truth: LabelMatrix, rule: str, training: Any
) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Tune a rule that promises something; what is measured comes from limits of other documents."""
    tuners = {"back_off": _tune_back_off, "conformal": _tune_conformal, "risk_control": _tune_risk_control}
    name = rule.partition("(")[0].partition("@")[0].strip()
    asked = find_rule(rule) if name in tuners else None
    if asked is None:
        raise TreelabelError(f"cannot tune {rule!r}; expected {', '.join(RULES_TO_TUNE[:-1])} or {RULES_TO_TUNE[-1]}")
    if "t" in asked.settings:
        example = next(each for each in RULES_TO_TUNE if each.startswith(name))
        raise TreelabelError(f"{rule}: t is what is to be found; expected what it must reach, as in {example}")
    return (name, *tuners[name](labels, scores, truth, dict(asked.settings), training))


def _tune_back_off(
    labels: Any, scores: Scores, truth: LabelMatrix, asked: dict[str, Any], _: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Tune back_off."""
    required, confidence = asked.pop("precision", 0.95), asked.pop("confidence", 0.9)
    ways = LeafPaths.of(scores, truth)
    t = precise_thresholds(ways, required, confidence)
    measured = back_off_row(ways, required, confidence, getattr(labels, "groups", None)).to_json()
    return {"t": t.tolist(), **asked}, measured | {"confidence": confidence}


def _tune_conformal(
    labels: Any, scores: Scores, truth: LabelMatrix, asked: dict[str, Any], _: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Tune conformal on the documents that have a label."""
    coverage = float(asked.setdefault("coverage", USUAL_COVERAGE))
    rows, units = _rows_to_cover(labels, scores, truth)
    t, costs = calibrate_sets(scores[rows], truth[rows], ConformalSets.of(asked), coverage, units)
    return {"t": t, **asked}, costs.to_json()


def _rows_to_cover(labels: Any, scores: Scores, truth: LabelMatrix) -> tuple[LongArray, list[str] | None]:
    """Return the documents that have a label, and their groups if they have any; refuse those with several paths."""
    rows, groups = np.flatnonzero(has_label(labels, scores.hierarchy)), getattr(labels, "groups", None)
    if not len(rows):
        raise TreelabelError("no validation document has a label, so there is nothing to cover")
    require_one_path(scores[rows], truth[rows])
    return rows, None if groups is None else [groups[row] for row in rows.tolist()]


def _tune_by_column(labels: Any, scores: Scores, truth: LabelMatrix, rule: str, by: Any) -> TunedRule:
    """Tune conformal with a limit for each value of a column."""
    asked = find_rule(rule) if rule.startswith("conformal") else None
    if asked is None or asked.settings.get("group") is not None or "t" in asked.settings:
        raise TreelabelError(
            f"cannot tune {rule!r} by a column; expected conformal(coverage=0.9), without group and t: for other rules "
            "tune one on each part of the documents"
        )
    is_name = isinstance(by, str)
    if is_name and not hasattr(labels, "extra"):
        raise TreelabelError(
            f"by = {by!r} is a column of a Dataset; of other labels, pass its values: by={{{by!r}: ...}}"
        )
    if not is_name and (not isinstance(by, Mapping) or len(by) != 1):
        raise TreelabelError(f"by= is {describe_value(by)}, expected the name of a column, or a name with its values")
    name = by if isinstance(by, str) else str(next(iter(by)))
    names = column_values(labels if is_name else by, name, len(scores))
    settings = dict(asked.settings)
    coverage, family = float(settings.setdefault("coverage", USUAL_COVERAGE)), ConformalSets.of(settings)
    rows, units = _rows_to_cover(labels, scores, truth)
    some = [names[row] for row in rows.tolist()]
    parts, costs = calibrate_by_value(scores[rows], truth[rows], family, coverage, some, units)
    within = replace(costs, within=f", within each value of {name}")
    measured = {**within.to_json(), "values": [each.to_json() for each in parts], "documents": len(scores)}
    t, values = [each.t for each in parts], tuple(each.value for each in parts)
    return TunedRule("conformal", {"t": t, **settings}, scores.hierarchy.fingerprint, measured, name, values)


def _tune_risk_control(
    labels: Any, scores: Scores, truth: LabelMatrix, asked: dict[str, Any], training: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Tune risk_control."""
    control, weights = RiskControl.of(asked), None
    if control.metric == "info_recall" and training is not None:
        weights = make_context(scores.hierarchy, training, None).information_weights
    t = control.find_threshold(scores, truth, weights)
    fold, reached, sizes = assign_folds(len(scores), getattr(labels, "groups", None)), [], []
    for index in range(FOLDS):
        part, others = np.flatnonzero(fold == index), np.flatnonzero(fold != index)
        try:
            limit = control.find_threshold(scores[others], truth[others], weights)
        except TreelabelError:
            continue
        values, size = control.measure(scores[part], truth[part], limit, weights)
        reached.append(values)
        sizes.append(size)
    values, size = (np.concatenate([[], *each]) for each in (reached, sizes))
    measured = {"promise": control.promise, control.metric: float(np.nanmean(values)) if len(values) else None}
    return {"t": t, **asked}, measured | {"mean labels": float(size.mean()) if len(size) else None}


def best_threshold(scores: Scores, truth: LabelMatrix) -> tuple[float, float]:
    """Find the threshold on all scores with the largest micro F1 against closed truth; return it and that F1.

    It lies halfway between two scores. Costs sorting the scores.

    Parameters
    ----------
    scores
        The scores of validation documents.

    Returns
    -------
    (float, float)

    >>> from treelabel.hierarchy import Hierarchy
    >>> from treelabel.hierarchy.label_ids import encode
    >>> h = Hierarchy.flat(["A", "B"])
    >>> t, f1 = best_threshold(Scores(h, [[0.75, 0.5], [0.25, 0.125]]), encode(h, [["A", "B"], []]))
    >>> t, f1
    (0.375, 1.0)
    """
    matrix = scores.csr()
    everything = np.array([0, matrix.nnz])
    result, values = _best_cuts(everything, matrix.data, matches(truth, matrix), np.array([truth.nnz]))
    if not result[0] > 0:
        raise TreelabelError("no true label has a score above 0 in the validation data, so there is no threshold")
    return float(result[0]), float(values[0])


def best_threshold_per_label(scores: Scores, truth: LabelMatrix) -> tuple[ScoreArray, float]:
    """Find the threshold of each label with its largest F1 against closed truth; return them and the macro F1 reached.

    The macro F1 is that of what they predict, ancestors added.
    Labels that validation data tell nothing about, with no true document that has a score, take the one threshold that
    is best for micro F1. Costs sorting the scores label by label; labels run on all cores.

    Parameters
    ----------
    scores
        The scores of validation documents.

    Returns
    -------
    (array of shape (nodes,), float)
    """
    matrix = scores.csr()
    hits = matches(truth, matrix)
    position = np.argsort(matrix.indices, kind="stable")
    ptr = np.concatenate([[0], np.cumsum(np.bincount(matrix.indices, minlength=matrix.shape[1]))])
    true = np.bincount(truth.indices, minlength=matrix.shape[1])
    result, _ = _best_cuts(ptr, matrix.data[position], hits[position], true)
    usual, _ = best_threshold(scores, truth)
    thresholds: ScoreArray = np.where(result > 0, result, scores.dtype.type(usual))
    reached = METRICS["macro_f1"].compute(Batch(Context(scores.hierarchy), truth, threshold(scores, thresholds)))
    assert isinstance(reached, float)
    return thresholds, reached


def _best_cuts(ptr: LongArray, values: ScoreArray, hits: BoolArray, true: LongArray) -> tuple[ScoreArray, DoubleArray]:
    arguments = ptr.astype(np.int64), values, hits, true.astype(np.int64)
    cuts, best = join_rows(lambda start, stop: best_cuts(*arguments, start, stop), len(true), least=64)
    return cuts, best


@kernel
def best_cuts(
    ptr: LongArray, values: ScoreArray, hits: BoolArray, true: LongArray, start: int, stop: int
) -> tuple[ScoreArray, DoubleArray]:
    """For each group of scores find the threshold with the largest F1 = 2 hits / (predicted + true), and that F1.

    0 where no threshold hits anything. Equal scores are predicted together.
    """
    cuts, best = np.zeros(stop - start, values.dtype), np.zeros(stop - start)
    for group in range(start, stop):
        low, high = ptr[group], ptr[group + 1]
        order = np.argsort(-values[low:high])
        right = 0
        for rank in range(high - low):
            value = values[low + order[rank]]
            right += hits[low + order[rank]]
            following = values[low + order[rank + 1]] if rank + 1 < high - low else np.float32(0)
            f1 = 2 * right / (rank + 1 + true[group])
            if following < value and f1 > best[group - start]:
                middle = (value + following) / np.float32(2)
                best[group - start] = f1
                cuts[group - start] = middle if middle > following else value
    return cuts, best


PRECISIONS: Final = (0.8, 0.85, 0.9, 0.95, 0.98, 0.99)


@dataclass(frozen=True)
class BackOffRow:
    """The effect of `back_off` for a required precision, measured on documents that its thresholds were not found on.

    `coverage` is the share of documents with a label, `leaf_coverage` of those with a leaf, `mean_depth` that of the
    labels, `precision` the share of them that are true, with its Clopper-Pearson interval.
    """

    required: float
    coverage: float
    leaf_coverage: float
    mean_depth: float
    precision: Interval

    def to_json(self) -> dict[str, Any]:
        """Return the numbers by name; what is not known is None."""
        named = {
            "required precision": self.required,
            "precision": self.precision.value,
            "precision low": self.precision.low,
            "precision high": self.precision.high,
            "share of documents with a label": self.coverage,
            "share of documents with a leaf": self.leaf_coverage,
            "mean depth": self.mean_depth,
        }
        return {name: None if math.isnan(value) else value for name, value in named.items()}


@dataclass(frozen=True)
class BackOffTable:
    """A row for each required precision; `str` is a table for people."""

    documents: int
    rows: tuple[BackOffRow, ...]

    def __str__(self) -> str:
        lines = [f"{'required':<10}{'with a label':<14}{'with a leaf':<13}{'mean depth':<12}precision [95% interval]"]
        for row in self.rows:
            depth = "-" if math.isnan(row.mean_depth) else f"{row.mean_depth:.2f}"
            reached = "-" if math.isnan(row.precision.value) else str(row.precision)
            shares = f"{row.coverage:<14.1%}{row.leaf_coverage:<13.1%}"
            lines.append(f"{row.required:<10g}{shares}{depth:<12}{reached}")
        how = f"{self.documents:,} documents in {FOLDS} folds, each by thresholds found on the others"
        return "\n".join([*lines, how])


def back_off_table(
    truth: Any, scores: Scores, precisions: Sequence[float] = PRECISIONS, confidence: float = 0.9
) -> BackOffTable:
    """Measure what `back_off` does for several required precisions, each on documents not used for its thresholds.

    Parameters
    ----------
    truth : Dataset, lists of names or label matrix
        The labels of validation documents; those with ids are matched by them. Documents of a group are in one fold.
    precisions : sequence of float
        The precisions to require.
    confidence : float
        As for `tune(truth, scores, "back_off(precision=0.95, confidence=0.9)")`.

    Returns
    -------
    BackOffTable

    >>> from treelabel.hierarchy import Hierarchy
    >>> h = Hierarchy.flat(["A", "B"])
    >>> sure = Scores(h, [[0.9, 0.1]] * 30 + [[0.4, 0.6]] * 30)
    >>> table = back_off_table([["A"]] * 45 + [["B"]] * 15, sure, [0.9], confidence=0)
    >>> table.rows[0].coverage, str(table.rows[0].precision)
    (0.5, '1.0000 [0.8843, 1.0000]')
    """
    aligned, true = validation(truth, scores)
    ways, groups = LeafPaths.of(aligned, true), getattr(truth, "groups", None)
    return BackOffTable(len(aligned), tuple(back_off_row(ways, each, confidence, groups) for each in precisions))


def back_off_row(
    ways: LeafPaths, required: float, confidence: float, groups: Sequence[str] | None = None
) -> BackOffRow:
    """Measure one required precision by cross-fitting; a fold without thresholds predicts nothing.

    Parameters
    ----------
    ways
        The ways up from the best leaves, and what is true of them.
    required
        The required precision.
    confidence
        The confidence with which thresholds must reach it.
    groups
        The group of each document; documents of one group are in one fold.

    Returns
    -------
    BackOffRow
    """
    fold = assign_folds(ways.documents, groups)
    result: list[tuple[Any, ...]] = []
    for index in range(FOLDS):
        try:
            t = precise_thresholds(ways.among(fold != index), required, confidence)
        except TreelabelError:
            continue
        result.append(ways.among(fold == index).outcomes(t))
    is_right, is_leaf, depth = (np.concatenate([[], *(part[which] for part in result)]) for which in range(3))
    return BackOffRow(
        float(required),
        len(is_right) / ways.documents,
        float(is_leaf.sum()) / ways.documents,
        float(depth.mean()) if len(depth) else float("nan"),
        binomial_interval(int(is_right.sum()), len(is_right)),
    )
