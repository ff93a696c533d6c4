"""Judge decisions and scores by any metrics: at once, or batch by batch with results that can be merged."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from treelabel.core.errors import TreelabelError
from treelabel.core.types import LongArray
from treelabel.evaluation.alignment import common_hierarchy, in_order, label_sets
from treelabel.evaluation.result import Result
from treelabel.evaluation.sums import JUDGED, Coverage, Pair, Remarks, add_sums, column_sums, stack_parts
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.label_matrices import LabelMatrix, row_sizes
from treelabel.hierarchy.union import require_nodes_in, spread_counts
from treelabel.metrics.batch import Batch, Context, closed_sets, label_totals
from treelabel.metrics.metric import Metric
from treelabel.metrics.registry import chosen_metrics, find_metric, listed_metrics, needs_decisions, require_some
from treelabel.rules.decisions import Decisions, TunedRule, decide
from treelabel.rules.registry import default_rule, guarantee_of
from treelabel.rules.tuned_rule import column_of
from treelabel.scores.score_matrix import Scores

OnError = Literal["raise", "skip"]


def evaluate(
    truth: Any,
    decisions: Any = None,
    scores: Scores | None = None,
    hierarchy: Hierarchy | None = None,
    rule: str | TunedRule | None = None,
    metrics: Sequence[str] | str | None = None,
    train_frequencies: Any = None,
    train_documents: int | None = None,
    keep_documents: bool = True,
    on_error: OnError = "raise",
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
        Whether to keep the value of each document, which intervals need: two numbers for each metric that is a mean,
        and the labels of each document, with ancestors, for those that count labels.
    on_error : "raise" or "skip"
        Whether a metric that cannot apply (single labels are needed, say) is an error, or is left out with its reason
        in `Result.skipped`. If none applies, it is an error either way.
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
    h = common_hierarchy(hierarchy, scores, decisions, truth, train=train_frequencies)
    true = label_sets(truth, h, "truth")
    closed = closed_sets(h, true)
    decisions, scores = in_order(truth, decisions, "decisions"), in_order(truth, scores, "scores")
    decisions = decide_by_column(rule, truth, decisions, scores)
    counts = _counts_under(h, train_frequencies, scores)
    context = make_context(h, counts, train_documents, true, closed)
    context = replace(context, propensity=propensity, bin_edges=bin_edges)
    evaluator = Evaluator(h, metrics, rule=rule, context=context, keep_documents=keep_documents, on_error=on_error)
    evaluator.add_batch(evaluator.batch(true, decisions, scores, closed))
    names = getattr(truth, "level_names", ())
    return replace(evaluator.result(), groups=getattr(truth, "groups", None), level_names=names)


def decide_by_column(rule: str | TunedRule | None, truth: Any, decisions: Any, scores: Scores | None) -> Any:
    """Decide by a rule that goes by a column of the true documents, where nothing is decided; else change nothing."""
    if decisions is not None or scores is None or rule is None or column_of(rule) is None:
        return decisions
    return decide(scores, rule, by=truth)


def _counts_under(hierarchy: Hierarchy, train_frequencies: Any, scores: Scores | None) -> Any:
    """Bring counts by node of the scores' own hierarchy under one that has further nodes."""
    if train_frequencies is None or scores is None or hasattr(train_frequencies, "frequencies"):
        return train_frequencies
    counts = np.asarray(train_frequencies, np.int64)
    if hierarchy == scores.hierarchy or counts.shape != (len(scores.hierarchy),):
        return counts
    return spread_counts(counts, scores.hierarchy, hierarchy)


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
        counts, exclusive = train_frequencies.frequencies, label_totals(train_frequencies.labels)
        closed_counts, stated_counts = (
            spread_counts(each, train_frequencies.hierarchy, hierarchy) for each in (counts, exclusive)
        )
        return Context(hierarchy, closed_counts, stated_counts, len(train_frequencies))
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

    Holds sums only, so memory does not grow with documents, unless `keep_documents` asks for the parts of each one (and
    with them intervals): 16 bytes a document for each metric that is a mean, and some 5 bytes for each label that is
    true or predicted, ancestors included, where a metric counts labels. Counts are exact, and sums carry what rounding
    takes from them, so that batches make no difference (see `sums`). Without a rule, the first documents with scores
    tell which one suits their truth, and it stays (see `default_rule`). With `on_error="skip"`, a metric that does not
    apply to some document is left out, and `skipped` says why.

    >>> h = Hierarchy.flat(["A", "B"])
    >>> one, two = Evaluator(h, ["micro_f1"]), Evaluator(h, ["micro_f1"])
    >>> one.add([["A"]], [["A"]])
    >>> two.add([["B"]], [["A"]])
    >>> (one | two).result()["micro_f1"]
    0.5
    """

    hierarchy: Hierarchy
    metrics: Sequence[str] | str | None = None
    rule: str | TunedRule | None = None
    train_frequencies: Any = None
    train_documents: int | None = None
    keep_documents: bool = False
    # Made of the training frequencies where it is not given.
    context: Context = None  # type: ignore[assignment]
    documents: int = 0
    sums: dict[Any, tuple[Any, ...]] = field(default_factory=dict)
    stored_parts: dict[Any, list[tuple[Any, ...]]] = field(default_factory=dict)
    rows: list[Metric] | None = None
    used_rule: str | None = None
    default_rule: str | None = None
    coverage: Coverage | None = None
    remarks: Remarks = field(default_factory=Remarks)
    on_error: OnError = "raise"
    skipped: dict[str, str] = field(default_factory=dict)
    # What rounding took from the sums.
    lost: dict[Any, tuple[Any, ...]] = field(default_factory=dict)

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
        self.add_batch(self.batch(truth, decide_by_column(self.rule, truth, decisions, scores), scores))

    def add_batch(self, batch: Batch) -> None:
        """Judge documents that `batch` made."""
        rows = self.rows
        if rows is None or self.metrics == "all":
            # "all" is what applies to every document so far.
            chosen = chosen_metrics(self.metrics, batch, guarantee_of(self.used_rule) == "coverage")
            rows = [row for row in chosen if rows is None or row in rows]
        totals, document_parts, skipped = {}, {}, dict(self.skipped)
        # The largest k first: what it ranks begins with what a smaller k needs.
        for key, metric in sorted({row.key: row for row in rows}.items(), key=lambda item: -item[1].default):
            try:
                parts = metric.parts_of(batch)
            except TreelabelError as error:
                if self.on_error == "raise":
                    raise TreelabelError(f"{metric.name}: {error}") from None
                skipped |= {row.name: str(error) for row in rows if row.key == key}
                continue
            totals[key] = [column_sums(part) for part in parts]
            if self.keep_documents:
                document_parts[key] = parts
        rows = [row for row in rows if row.name not in skipped]
        require_some(rows, skipped)
        coverage = None if batch.input_decisions is None else Coverage.of(batch)
        remarks = Remarks.of(batch, rows)
        # Only now, so that a batch that is refused leaves nothing behind.
        self.rows, self.skipped = rows, skipped
        self.coverage = _both(self.coverage, coverage) if self.documents else coverage
        self.remarks += remarks
        self._take({key: self._pairs(key, total) for key, total in totals.items()})
        self.stored_parts = {key: self.stored_parts.get(key, []) for key in document_parts}
        for key, parts in document_parts.items():
            self.stored_parts[key].append(parts)
        self.documents += len(batch)

    def _pairs(self, key: Any, more: Sequence[Pair] = ()) -> list[Pair]:
        """Return the sums of a metric with what rounding took from them, after adding more."""
        mine = list(zip(self.sums[key], self.lost[key], strict=True)) if key in self.sums else []
        if not mine or not more:
            return mine or list(more)
        return [add_sums(one, two) for one, two in zip(mine, more, strict=True)]

    def _take(self, totals: dict[Any, list[Pair]]) -> None:
        self.sums = {key: tuple(high for high, _ in pairs) for key, pairs in totals.items()}
        self.lost = {key: tuple(low for _, low in pairs) for key, pairs in totals.items()}

    def batch(self, truth: Any, decisions: Any, scores: Scores | None, closed: LabelMatrix | None = None) -> Batch:
        """Make documents to judge; they are in order already.

        Parameters
        ----------
        truth, decisions, scores
            As for `evaluate`.
        closed
            The truth with its ancestors, if that is known.

        Returns
        -------
        Batch
        """
        if scores is not None and not isinstance(scores, Scores):
            raise TreelabelError(f"expected Scores(hierarchy, matrix) for scores=, found {type(scores).__name__}")
        h = self.hierarchy
        true = label_sets(truth, h, "truth")
        if decisions is None and scores is not None and needs_decisions(self.metrics):
            decisions = self.decide(scores, true)
        self.used_rule = getattr(decisions, "rule", None)
        chosen = None if decisions is None else label_sets(decisions, h, "decisions")
        for name, size in (
            ("scores", None if scores is None else len(scores)),
            ("decisions", None if chosen is None else chosen.shape[0]),
        ):
            if size is not None and size != true.shape[0]:
                raise TreelabelError(f"truth has {true.shape[0]:,} documents, {name} have {size:,}")
        known = None
        if scores is not None and scores.hierarchy != h:
            known = np.zeros(len(h), np.bool_)
            known[require_nodes_in(scores.hierarchy, h, "a set of scores")] = True
        judged = None if scores is None else scores.under(h)
        return Batch(self.context, true, chosen, judged, closed, self.documents, known)

    def decide(self, scores: Scores, truth: LabelMatrix) -> Decisions:
        """Use the rule; what it learns of how rare labels are comes from training, never from the truth.

        Parameters
        ----------
        scores
            The scores of some documents.
        truth : label matrix of shape (documents, nodes)
            Tells the usual rule, if none was given and none is known yet.

        Returns
        -------
        Decisions
        """
        if self.rule is None and self.default_rule is None:
            self.default_rule = default_rule(self.hierarchy, truth)
        rule = self.default_rule if self.rule is None else self.rule
        assert rule is not None
        # Rules decide under the scores' own hierarchy: a leaf there stays one, whatever the truth has below it.
        if self.context.is_from_truth or self.context.closed is None:
            return decide(scores, rule)
        counts = self.context.closed[require_nodes_in(scores.hierarchy, self.hierarchy, "a set of scores")]
        return decide(scores, rule, counts, self.context.documents)

    def __or__(self, other: "Evaluator") -> "Evaluator":
        """Merge with an evaluator of other documents."""
        self.hierarchy.require_same(other.hierarchy.fingerprint, "the other evaluator")
        if self.rows is None or other.rows is None:
            return self if other.rows is None else other
        self._require_alike(other)
        rows = [row for row in self.rows if row in other.rows]
        keep = self.keep_documents and other.keep_documents
        skipped, keys = self.skipped | other.skipped, {row.key for row in rows}
        require_some(rows, skipped)
        merged = replace(
            self,
            keep_documents=keep,
            documents=self.documents + other.documents,
            stored_parts={key: [*self.stored_parts[key], *other.stored_parts[key]] for key in keys} if keep else {},
            rows=rows,
            coverage=_both(self.coverage, other.coverage),
            remarks=self.remarks + other.remarks,
            skipped=skipped,
        )
        merged._take({key: self._pairs(key, other._pairs(key)) for key in keys})
        return merged

    def _require_alike(self, other: "Evaluator") -> None:
        if self.used_rule != other.used_rule:
            raise TreelabelError(
                f"decisions by {self.used_rule} and by {other.used_rule} cannot be merged; give both evaluators one "
                "rule="
            )
        may_differ = self.metrics == other.metrics and (self.metrics == "all" or self.skipped or other.skipped)
        if not may_differ and self.rows != other.rows:
            raise TreelabelError("evaluators of different metrics cannot be merged")
        if not self.context.is_same(other.context):
            raise TreelabelError("evaluators with different training frequencies cannot be merged")

    def result(self) -> Result:
        """Turn the sums into values."""
        if self.documents == 0:
            warnings.warn("no documents to judge: every metric is NaN", stacklevel=2)
        parts = {
            key: tuple(stack_parts(pieces) for pieces in zip(*batches, strict=True))
            for key, batches in self.stored_parts.items()
            if batches
        }
        rows = self.rows
        if rows is None:
            rows = [find_metric(name) for name in listed_metrics(self.metrics)]
        elif self.on_error == "skip":
            rows = self._with_values(rows)
        is_default = self.used_rule is not None and self.used_rule == self.default_rule
        with_values = any(row.name in JUDGED for row in rows)
        coverage = None if self.coverage is None else self.coverage.for_report(with_values)
        judged = Result(rows, self.sums, self.context, self.documents, self.used_rule, parts, is_default, coverage)
        return replace(judged, skipped=dict(self.skipped), remarks=self.remarks)

    def _with_values(self, rows: list[Metric]) -> list[Metric]:
        """Leave out metrics that have no value of their sums, as nothing is known of training, say."""
        for row in rows:
            try:
                row.value_of(self.sums[row.key], self.context)
            except TreelabelError as error:
                self.skipped[row.name] = str(error)
        left = [row for row in rows if row.name not in self.skipped]
        require_some(left, self.skipped)
        return left


def _both(one: Coverage | None, two: Coverage | None) -> Coverage | None:
    """Add what is known of all documents; documents without decisions leave nothing known."""
    return None if one is None or two is None else one + two
