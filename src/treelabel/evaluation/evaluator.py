"""Judge decisions and scores by any metrics: at once, or batch by batch with results that can be merged."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy import sparse

from treelabel.core.compute import LongArray
from treelabel.core.errors import TreelabelError
from treelabel.evaluation.alignment import common_hierarchy, in_order, label_sets
from treelabel.evaluation.coverage import JUDGED, Coverage
from treelabel.evaluation.result import Result
from treelabel.hierarchy import Hierarchy, LabelMatrix, row_sizes
from treelabel.metrics import METRICS, Batch, Context, Metric, find_metric
from treelabel.metrics.batch import closed_sets, label_totals
from treelabel.rules import Decisions, Tuned, decide
from treelabel.rules.defaults import default_rule
from treelabel.scores import Scores

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


def evaluate(
    truth: Any,
    decisions: Any = None,
    scores: Scores | None = None,
    hierarchy: Hierarchy | None = None,
    rule: str | Tuned | None = None,
    metrics: Sequence[str] | str | None = None,
    train_frequencies: Any = None,
    train_documents: int | None = None,
    keep_documents: bool = True,
    propensity: tuple[float, float] = (0.55, 1.5),
    bin_edges: tuple[int, ...] = (1, 10, 100, 1000),
) -> Result:
    """Judge predictions against the truth.

    Parameters
    ----------
    truth, decisions : Dataset, Decisions, lists of names, 0/1 array or CSR matrix
        One row of labels per document; what has ids is matched by them. Where the truth has groups, intervals draw
        whole groups.
    scores : Scores, optional
        Without decisions, `rule` makes them of the scores.
    hierarchy : Hierarchy, optional
        Needed only if neither truth, decisions nor scores have one.
    rule : str, Tuned or None
        A rule of RULES, such as "optimal:hf1", or what `tune` returned. None is the rule by which a model predicts that
        learned from labels like those of the truth (see `default_rule`); the result says which.
    metrics : sequence of str, str or None
        Names of METRICS, "all" for all that apply, or None for the most common ones.
    train_frequencies : Dataset or array of int, optional
        The training data, or its documents counted by node, ancestors included. Without it, metrics that weigh labels
        by rarity take the truth itself as the reference.
    train_documents : int, optional
        The number of training documents, where `train_frequencies` are counts.
    keep_documents : bool
        Whether to keep the value of each document, which intervals need.
    propensity : (float, float)
        A and B of the propensity model; common are (0.6, 2.6) for Amazon and (0.5, 0.4) for Wikipedia.
    bin_edges : tuple of int
        Where bins of training frequency begin.

    Returns
    -------
    Result

    >>> h = Hierarchy.from_paths(["A > B", "A > C"])
    >>> result = evaluate([["B"], ["C"]], decisions=[["B"], ["B"]], hierarchy=h, metrics=["hf1", "micro_f1"])
    >>> result["hf1"], result["micro_f1"]
    (0.75, 0.75)
    """
    h = common_hierarchy(hierarchy, scores, decisions, truth)
    true = label_sets(truth, h, "truth")
    closed = closed_sets(h, true)
    decisions, scores = in_order(truth, decisions, "decisions"), in_order(truth, scores, "scores")
    context = make_context(h, train_frequencies, train_documents, true, closed)
    context = replace(context, propensity=propensity, bin_edges=bin_edges)
    evaluator = Evaluator(h, metrics, rule=rule, context=context, keep_documents=keep_documents)
    evaluator._add(evaluator._batch(true, decisions, scores, closed))
    return replace(evaluator.result(), groups=getattr(truth, "groups", None))


def make_context(
    hierarchy: Hierarchy,
    train_frequencies: Any,
    train_documents: int | None,
    truth: LabelMatrix | None = None,
    closed: LabelMatrix | None = None,
) -> Context:
    """Count how often labels occur: in training if that is known, else in the truth itself.

    `closed` is the truth with its ancestors, if the caller has it already.

    Parameters
    ----------
    hierarchy
        The hierarchy.
    train_frequencies
        The training Dataset, or the number of training documents of each node; None if not known.
    train_documents
        The number of training documents, if frequencies are given as numbers.
    truth
        The true labels of what is judged.
    closed
        The same with their ancestors.

    Returns
    -------
    Context
    """
    if truth is not None and closed is None:
        closed = closed_sets(hierarchy, truth)
    if hasattr(train_frequencies, "frequencies"):
        hierarchy.require_same(train_frequencies.hierarchy.fingerprint, "the training data")
        given = label_totals(train_frequencies.labels)
        return Context(hierarchy, train_frequencies.frequencies, given, len(train_frequencies))
    if train_frequencies is not None:
        counts = np.asarray(train_frequencies, np.int64)
        if counts.shape != (len(hierarchy),):
            raise TreelabelError(
                f"train_frequencies of shape {counts.shape}, expected one count for {len(hierarchy):,} nodes"
            )
        return Context(hierarchy, counts, counts, train_documents or _guess_documents(hierarchy, counts, closed))
    if truth is None or closed is None:
        return Context(hierarchy)
    return Context(hierarchy, label_totals(closed), label_totals(truth), truth.shape[0], is_from_truth=True)


def _guess_documents(hierarchy: Hierarchy, counts: LongArray, closed: LabelMatrix | None) -> int | None:
    """The number of training documents, where it follows: on single paths every document has one top label."""
    if closed is None or not len(hierarchy):
        return None
    tops = closed[:, hierarchy.level(1)]
    if tops.nnz and row_sizes(tops).max() == 1:
        return int(counts[hierarchy.level(1)].sum())
    return None


@dataclass
class Evaluator:
    """Judge batch by batch; two evaluators merge with `|` into what one pass over all documents would be.

    Holds sums only, so memory does not grow with documents, unless `keep_documents` asks for the value of each one (and
    with it intervals). Counts are exact; sums differ from one pass by rounding alone. Without a rule, the first
    documents with scores tell which one suits their truth, and it stays (see `default_rule`).

    >>> h = Hierarchy.flat(["A", "B"])
    >>> one, two = Evaluator(h, ["micro_f1"]), Evaluator(h, ["micro_f1"])
    >>> one.add([["A"]], [["A"]])
    >>> two.add([["B"]], [["A"]])
    >>> (one | two).result()["micro_f1"]
    0.5
    """

    hierarchy: Hierarchy
    metrics: Sequence[str] | str | None = None
    rule: str | Tuned | None = None
    train_frequencies: Any = None
    train_documents: int | None = None
    keep_documents: bool = False
    context: Context | None = None
    documents: int = 0
    sums: dict[Any, tuple[Any, ...]] = field(default_factory=dict)
    kept: dict[Any, list[tuple[Any, ...]]] = field(default_factory=dict)
    rows: list[Metric] | None = None
    used_rule: str | None = None
    default_rule: str | None = None
    coverage: Coverage | None = None

    def __post_init__(self) -> None:
        if self.context is None:
            self.context = make_context(self.hierarchy, self.train_frequencies, self.train_documents)

    def add(self, truth: Any, decisions: Any = None, scores: Scores | None = None) -> None:
        """Judge some documents and add them to the sums.

        Parameters
        ----------
        truth, decisions, scores
            As for `evaluate`.
        """
        decisions, scores = in_order(truth, decisions, "decisions"), in_order(truth, scores, "scores")
        self._add(self._batch(truth, decisions, scores))

    def _add(self, batch: Batch) -> None:
        rows = self._rows_for(batch)
        totals, kept = {}, {}
        # The largest k first: what it ranks begins with what a smaller k needs.
        for key, metric in sorted({row.key: row for row in rows}.items(), key=lambda item: -item[1].default):
            try:
                parts = metric.parts_of(batch)
            except TreelabelError as error:
                raise TreelabelError(f"{metric.name}: {error}") from None
            totals[key] = tuple(_column_sums(part) for part in parts)
            if self.keep_documents:
                kept[key] = parts
        with_values = any(row.name in JUDGED for row in rows)
        coverage = None if batch.given_decisions is None else Coverage.of(batch, with_values)
        # Only now, so that a batch that is refused leaves nothing behind.
        self.rows = rows
        self.coverage = _both(self.coverage, coverage) if self.documents else coverage
        self.sums = {key: _added(self.sums[key], total) if key in self.sums else total for key, total in totals.items()}
        self.kept = {key: self.kept.get(key, []) for key in kept}
        for key, parts in kept.items():
            self.kept[key].append(parts)
        self.documents += len(batch)

    def _rows_for(self, batch: Batch) -> list[Metric]:
        """The metrics of all documents so far: "all" is what applies to every one of them."""
        if self.rows is not None and self.metrics != "all":
            return self.rows
        rows = chosen_metrics(self.metrics, batch)
        return rows if self.rows is None else [row for row in self.rows if row in rows]

    def _batch(self, truth: Any, decisions: Any, scores: Scores | None, closed: LabelMatrix | None = None) -> Batch:
        assert self.context is not None
        if scores is not None and not isinstance(scores, Scores):
            raise TreelabelError(f"expected Scores(hierarchy, matrix) for scores=, found {type(scores).__name__}")
        h = common_hierarchy(self.hierarchy, scores, decisions, truth)
        true = label_sets(truth, h, "truth")
        if decisions is None and scores is not None and _needs_decisions(self.metrics):
            decisions = self._decide(scores, true)
        self.used_rule = getattr(decisions, "rule", None)
        chosen = None if decisions is None else label_sets(decisions, h, "decisions")
        for name, size in (
            ("scores", None if scores is None else len(scores)),
            ("decisions", None if chosen is None else chosen.shape[0]),
        ):
            if size is not None and size != true.shape[0]:
                raise TreelabelError(f"truth has {true.shape[0]:,} documents, {name} have {size:,}")
        return Batch(self.context, true, chosen, scores, closed)

    def _decide(self, scores: Scores, truth: LabelMatrix) -> Decisions:
        """Use the rule; what it learns of how rare labels are comes from training, never from the truth."""
        assert self.context is not None
        if self.rule is None and self.default_rule is None:
            self.default_rule = default_rule(self.hierarchy, truth)
        rule = self.default_rule if self.rule is None else self.rule
        assert rule is not None
        if self.context.is_from_truth:
            return decide(scores, rule)
        return decide(scores, rule, self.context.closed, self.context.documents)

    def __or__(self, other: "Evaluator") -> "Evaluator":
        """Merge with an evaluator of other documents."""
        self.hierarchy.require_same(other.hierarchy.fingerprint, "the other evaluator")
        if self.rows is None or other.rows is None:
            return self if other.rows is None else other
        self._require_alike(other)
        rows = [row for row in self.rows if row in other.rows]
        keep = self.keep_documents and other.keep_documents
        merged = Evaluator(self.hierarchy, self.metrics, self.rule, keep_documents=keep, context=self.context)
        merged.rows, merged.used_rule, merged.default_rule = rows, self.used_rule, self.default_rule
        merged.documents = self.documents + other.documents
        merged.coverage = _both(self.coverage, other.coverage)
        for key in {row.key for row in rows}:
            merged.sums[key] = _added(self.sums[key], other.sums[key])
            if keep:
                merged.kept[key] = [*self.kept[key], *other.kept[key]]
        return merged

    def _require_alike(self, other: "Evaluator") -> None:
        assert self.context is not None
        assert other.context is not None
        is_all = self.metrics == "all" and other.metrics == "all"
        if not is_all and self.rows != other.rows:
            raise TreelabelError("evaluators of different metrics cannot be merged")
        if self.used_rule != other.used_rule:
            raise TreelabelError(
                f"decisions by {self.used_rule} and by {other.used_rule} cannot be merged; give both evaluators one "
                "rule="
            )
        if not self.context.is_same(other.context):
            raise TreelabelError("evaluators with different training frequencies cannot be merged")

    def result(self) -> Result:
        """Turn the sums into values."""
        assert self.context is not None
        if self.documents == 0:
            warnings.warn("no documents to judge: every metric is NaN", stacklevel=2)
        parts = {
            key: tuple(_stack(pieces) for pieces in zip(*kept, strict=True)) for key, kept in self.kept.items() if kept
        }
        rows = self.rows
        if rows is None:
            rows = [find_metric(name) for name in _listed(self.metrics)]
        is_default = self.used_rule is not None and self.used_rule == self.default_rule
        return Result(rows, self.sums, self.context, self.documents, self.used_rule, parts, is_default, self.coverage)


def _listed(names: Sequence[str] | str | None) -> list[str]:
    """The metrics that were asked for by name."""
    if names is None or names == "all":
        return []
    return [names] if isinstance(names, str) else list(names)


def _needs_decisions(names: Sequence[str] | str | None) -> bool:
    """Return whether any of the metrics looks at decisions; "all" and the usual few do."""
    listed = _listed(names)
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
    listed = _listed(names)
    if names == "all":
        listed = _applicable(batch)
    elif names is None:
        listed += DEFAULT_DECISION_METRICS if batch.given_decisions is not None else ()
        listed += DEFAULT_SCORE_METRICS if batch.given_scores is not None else ()
    if not listed:
        missing = "no metric is named" if names is not None and names != "all" else "pass decisions= or scores="
        raise TreelabelError(f"nothing to judge: {missing}")
    return [find_metric(name) for name in listed]


def _applicable(batch: Batch) -> list[str]:
    """The metrics whose needs are met. Those of decisions need single labels on both sides, others in the truth."""
    have = {"decisions": batch.given_decisions is not None, "scores": batch.given_scores is not None}
    have["frequencies"] = batch.context.closed is not None and batch.context.documents is not None
    have["tree"] = batch.hierarchy.is_tree
    single_truth = _is_single(batch.hierarchy, batch.truth)
    single_both = single_truth and have["decisions"] and _is_single(batch.hierarchy, batch.decisions)
    found = []
    for row in METRICS.values():
        have["single label"] = single_both if "decisions" in row.needs else single_truth
        if all(have[need] for need in row.needs):
            found.append(row.name)
    return found


def _is_single(hierarchy: Hierarchy, labels: LabelMatrix) -> bool:
    return bool(row_sizes(hierarchy.most_specific(labels)).max(initial=0) <= 1)


def _column_sums(part: Any) -> Any:
    """Sum a documents x columns part by column; label counts stay whole numbers."""
    if not sparse.issparse(part):
        return part.sum(axis=0)
    if part.dtype == np.bool_:
        return label_totals(part)
    return np.bincount(part.indices, weights=part.data, minlength=part.shape[1])


def _added(one: tuple[Any, ...], two: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(a + b for a, b in zip(one, two, strict=True))


def _both(one: Coverage | None, two: Coverage | None) -> Coverage | None:
    """Add what is known of all documents; documents without decisions leave nothing known."""
    return None if one is None or two is None else one + two


def _stack(pieces: Sequence[Any]) -> Any:
    if len(pieces) == 1:
        return pieces[0]
    return sparse.vstack(pieces, "csr") if sparse.issparse(pieces[0]) else np.concatenate(pieces)
