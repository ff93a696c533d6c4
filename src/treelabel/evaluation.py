"""Judge decisions and scores by any measures: at once, or batch by batch with results that can be merged."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import sparse

from treelabel.compute import LongArray
from treelabel.errors import TreelabelError
from treelabel.hierarchy import Hierarchy, LabelMatrix, as_labels, row_sizes
from treelabel.labels import encode
from treelabel.metrics import METRICS, Batch, Context, Metric, find_metric
from treelabel.result import Result
from treelabel.rules import Decisions, decide
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
    rule: str = "threshold",
    metrics: Sequence[str] | str | None = None,
    train_frequencies: Any = None,
    train_documents: int | None = None,
    keep_documents: bool = True,
) -> Result:
    """Judge predictions against the truth.

    `truth` and `decisions` are a Dataset or Decisions, one list of label names a document, a dense 0/1 array or a CSR
    matrix. With scores alone, `rule` makes the decisions. `metrics` are names of METRICS, "all" for all that apply, or
    None for a usual few. `train_frequencies` counts training documents by node, ancestors included (a training Dataset
    will do); without it measures that weigh labels by rarity take the truth itself as the reference.

    >>> h = Hierarchy.from_paths(["A > B", "A > C"])
    >>> result = evaluate([["B"], ["C"]], decisions=[["B"], ["B"]], hierarchy=h, metrics=["hf1", "micro_f1"])
    >>> result["hf1"], result["micro_f1"]
    (0.75, 0.75)
    """
    h = _hierarchy_of(hierarchy, scores, decisions, truth)
    true = _label_sets(truth, h, "truth")
    context = make_context(h, train_frequencies, train_documents, true)
    evaluator = Evaluator(h, metrics, rule=rule, context=context, keep_documents=keep_documents)
    evaluator.add(true, decisions, scores)
    return evaluator.result()


def _hierarchy_of(*things: Any) -> Hierarchy:
    found = [thing if isinstance(thing, Hierarchy) else getattr(thing, "hierarchy", None) for thing in things]
    known = [hierarchy for hierarchy in found if hierarchy is not None]
    if not known:
        raise TreelabelError("evaluate needs a hierarchy: pass hierarchy=, or truth, decisions or scores that have one")
    for other in known[1:]:
        known[0].require_same(other.fingerprint, "one of truth, decisions and scores")
    return known[0]


def _label_sets(labels: Any, hierarchy: Hierarchy, what: str) -> LabelMatrix:
    """Take label sets in any of their forms."""
    if isinstance(labels, Decisions):
        return labels.csr
    if hasattr(labels, "labels") and hasattr(labels, "hierarchy"):
        return labels.labels
    if sparse.issparse(labels) or isinstance(labels, np.ndarray):
        return as_labels(labels, len(hierarchy), what)
    return encode(hierarchy, labels)


def make_context(
    hierarchy: Hierarchy, train_frequencies: Any, train_documents: int | None, truth: LabelMatrix | None
) -> Context:
    """Say how often labels occur: in training if that is known, else in the truth itself."""
    if hasattr(train_frequencies, "frequencies"):
        hierarchy.require_same(train_frequencies.hierarchy.fingerprint, "the training data")
        given = np.bincount(train_frequencies.labels.indices, minlength=len(hierarchy))
        return Context(hierarchy, train_frequencies.frequencies, given, len(train_frequencies))
    if train_frequencies is not None:
        counts = np.asarray(train_frequencies, np.int64)
        if counts.shape != (len(hierarchy),):
            raise TreelabelError(
                f"train_frequencies of shape {counts.shape}, expected one count for {len(hierarchy):,} nodes"
            )
        return Context(hierarchy, counts, counts, train_documents or _guess_documents(hierarchy, counts, truth))
    if truth is None:
        return Context(hierarchy)
    closed = np.bincount(hierarchy.closure(truth).indices, minlength=len(hierarchy))
    return Context(hierarchy, closed, np.bincount(truth.indices, minlength=len(hierarchy)), truth.shape[0])


def _guess_documents(hierarchy: Hierarchy, counts: LongArray, truth: LabelMatrix | None) -> int | None:
    """The number of training documents, where it follows: on single paths every document has one top label."""
    if truth is None or not len(hierarchy):
        return None
    tops = hierarchy.closure(truth)[:, hierarchy.level(1)]
    if tops.nnz and row_sizes(tops).max() == 1:
        return int(counts[hierarchy.level(1)].sum())
    return None


@dataclass
class Evaluator:
    """Judge batch by batch; two evaluators merge with `|` into what one pass over all documents gives.

    Holds sums only, so memory does not grow with documents, unless `keep_documents` asks for the value of each one (and
    with it intervals). Counts are exact; sums differ from one pass by rounding alone.

    >>> h = Hierarchy.flat(["A", "B"])
    >>> one, two = Evaluator(h, ["micro_f1"]), Evaluator(h, ["micro_f1"])
    >>> one.add([["A"]], [["A"]])
    >>> two.add([["B"]], [["A"]])
    >>> (one | two).result()["micro_f1"]
    0.5
    """

    hierarchy: Hierarchy
    metrics: Sequence[str] | str | None = None
    rule: str = "threshold"
    train_frequencies: Any = None
    train_documents: int | None = None
    keep_documents: bool = False
    context: Context | None = None
    documents: int = 0
    sums: dict[Any, tuple[Any, ...]] = field(default_factory=dict)
    kept: dict[Any, list[tuple[Any, ...]]] = field(default_factory=dict)
    rows: list[Metric] | None = None

    def __post_init__(self) -> None:
        if self.context is None:
            self.context = make_context(self.hierarchy, self.train_frequencies, self.train_documents, None)

    def add(self, truth: Any, decisions: Any = None, scores: Scores | None = None) -> None:
        """Judge some documents and add them to the sums."""
        batch = self._batch(truth, decisions, scores)
        if self.rows is None:
            self.rows = chosen_metrics(self.metrics, batch)
        for key, metric in {metric.key: metric for metric in self.rows}.items():
            parts = metric.parts_of(batch)
            total = tuple(_column_sums(part) for part in parts)
            before = self.sums.get(key)
            self.sums[key] = total if before is None else tuple(a + b for a, b in zip(before, total, strict=True))
            if self.keep_documents:
                self.kept.setdefault(key, []).append(parts)
        self.documents += len(batch)

    def _batch(self, truth: Any, decisions: Any, scores: Scores | None) -> Batch:
        assert self.context is not None
        h = _hierarchy_of(self.hierarchy, scores, decisions, truth)
        true = _label_sets(truth, h, "truth")
        if decisions is None and scores is not None:
            decisions = decide(scores, self.rule)
        chosen = None if decisions is None else _label_sets(decisions, h, "decisions")
        for name, size in (
            ("decisions", None if chosen is None else chosen.shape[0]),
            ("scores", scores and len(scores)),
        ):
            if size is not None and size != true.shape[0]:
                raise TreelabelError(f"truth has {true.shape[0]:,} documents, {name} have {size:,}")
        return Batch(self.context, true, chosen, scores)

    def __or__(self, other: "Evaluator") -> "Evaluator":
        """Merge with an evaluator of other documents."""
        self.hierarchy.require_same(other.hierarchy.fingerprint, "the other evaluator")
        if self.rows is None or other.rows is None:
            return self if other.rows is None else other
        if [row.name for row in self.rows] != [row.name for row in other.rows]:
            raise TreelabelError("evaluators of different measures cannot be merged")
        merged = Evaluator(
            self.hierarchy, self.metrics, self.rule, keep_documents=self.keep_documents, context=self.context
        )
        merged.rows = self.rows
        merged.documents = self.documents + other.documents
        for key in self.sums:
            merged.sums[key] = tuple(a + b for a, b in zip(self.sums[key], other.sums[key], strict=True))
            merged.kept[key] = [*self.kept.get(key, []), *other.kept.get(key, [])]
        return merged

    def result(self) -> Result:
        """Turn the sums into values."""
        assert self.context is not None
        if self.documents == 0:
            warnings.warn("no documents to judge: every measure is NaN", stacklevel=2)
        parts = {
            key: tuple(_stack(pieces) for pieces in zip(*kept, strict=True)) for key, kept in self.kept.items() if kept
        }
        return Result(self.rows or [], self.sums, self.context, self.documents, self.rule, parts)


def chosen_metrics(names: Sequence[str] | str | None, batch: Batch) -> list[Metric]:
    """Find measures by name; "all" takes every row whose needs are met, None a usual few."""
    have = {"decisions": batch.given_decisions is not None, "scores": batch.given_scores is not None}
    have["frequencies"] = batch.context.closed is not None and batch.context.documents is not None
    have["tree"] = batch.hierarchy.is_tree
    have["single label"] = names == "all" and _is_single(batch)
    if names == "all":
        return [find_metric(row.name) for row in METRICS.values() if all(have[need] for need in row.needs)]
    if names is None:
        names = [
            *(DEFAULT_DECISION_METRICS if have["decisions"] else []),
            *(DEFAULT_SCORE_METRICS if have["scores"] else []),
        ]
    if isinstance(names, str):
        names = [names]
    if not names:
        raise TreelabelError("nothing to judge: pass decisions= or scores=")
    return [find_metric(name) for name in names]


def _is_single(batch: Batch) -> bool:
    sets = [batch.truth] if batch.given_decisions is None else [batch.truth, batch.given_decisions]
    return all(row_sizes(batch.hierarchy.most_specific(labels)).max(initial=0) <= 1 for labels in sets)


def _column_sums(part: Any) -> Any:
    """Sum a documents x columns part by column; label counts stay whole numbers."""
    if not sparse.issparse(part):
        return part.sum(axis=0)
    if part.dtype == np.bool_:
        return np.bincount(part.indices[part.data], minlength=part.shape[1])
    return np.bincount(part.indices, weights=part.data, minlength=part.shape[1])


def _stack(pieces: Sequence[Any]) -> Any:
    if len(pieces) == 1:
        return pieces[0]
    return sparse.vstack(pieces, "csr") if sparse.issparse(pieces[0]) else np.concatenate(pieces)
