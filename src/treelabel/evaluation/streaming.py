"""Judge files of any length: truth and predictions in batches, matched by id, memory that does not grow with them."""

import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
from scipy import sparse

from treelabel.core.errors import TreelabelError
from treelabel.core.strings import Strings
from treelabel.core.types import DoubleArray, LongArray
from treelabel.evaluation.alignment import Answered, rows_by_id
from treelabel.evaluation.error_analysis import LabelTable, WrongDocuments
from treelabel.evaluation.evaluator import Evaluator, decide_by_column
from treelabel.evaluation.result import Result
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.label_matrices import LabelMatrix, row_numbers
from treelabel.hierarchy.labelled_texts import count_regimes, usual_of
from treelabel.hierarchy.union import spread_counts
from treelabel.metrics.batch import Batch, Context, closed_sets, label_totals
from treelabel.rules.decisions import TunedRule
from treelabel.rules.registry import DEFAULT_RULES
from treelabel.scores.score_matrix import Scores

# Begins to read documents from the first one on; each batch has ids and labels (or scores), and can be sliced.
Opened = Callable[[], Iterator[Any]]


_log = logging.getLogger(__name__)


class OutOfOrderError(Exception):
    """Predictions do not stand in the order of the truth, so they cannot be read side by side with it."""


@dataclass(frozen=True, eq=False)
class Predicted:
    """Predicted labels of some documents, the probability of the surest one of each (NaN: not known), and their ids."""

    labels: LabelMatrix
    ids: Sequence[str] | None = None
    p: DoubleArray | None = None

    def __len__(self) -> int:
        return int(self.labels.shape[0])

    def __getitem__(self, rows: Any) -> "Predicted":
        """Select documents by slice or row numbers."""
        ids = self.ids
        if ids is not None:
            ids = ids[rows] if isinstance(rows, slice) else [ids[row] for row in rows]
        return Predicted(self.labels[rows], ids, None if self.p is None else self.p[rows])

    @classmethod
    def concat(cls, parts: Sequence["Predicted"]) -> "Predicted":
        """Put batches together."""
        ids = None if any(part.ids is None for part in parts) else [name for part in parts for name in part.ids or ()]
        p = None if any(part.p is None for part in parts) else np.concatenate([part.p for part in parts])
        return cls(sparse.vstack([part.labels for part in parts], format="csr"), ids, p)


@dataclass
class Survey:
    """Counts over the labels of documents, batch by batch: how often each occurs, and which regime is the usual one."""

    hierarchy: Hierarchy
    documents: int = 0
    closed: LongArray = field(init=False)
    stated: LongArray = field(init=False)
    regimes: LongArray = field(default_factory=lambda: np.zeros(3, np.int64))

    def __post_init__(self) -> None:
        self.closed, self.stated = (np.zeros(len(self.hierarchy), np.int64) for _ in range(2))

    @classmethod
    def of(cls, hierarchy: Hierarchy, opened: Opened) -> "Survey":
        """Count all documents of a file.

        Parameters
        ----------
        opened
            Begins to read the file.

        Returns
        -------
        Survey
        """
        survey = cls(hierarchy)
        for batch in opened():
            survey.add(batch.labels)
        return survey

    @classmethod
    def of_counts(cls, hierarchy: Hierarchy, counts: Any, known: Hierarchy, documents: int) -> "Survey":
        """Take the counts of documents by node, ancestors included, that were made under another hierarchy.

        Parameters
        ----------
        hierarchy
            The hierarchy of the survey, which has all nodes of the other one.
        counts : array of shape (nodes of the other hierarchy,)
            Documents of each node.
        known
            The other hierarchy.
        documents
            The number of all documents.

        Returns
        -------
        Survey
        """
        survey = cls(hierarchy, documents)
        survey.closed = survey.stated = spread_counts(np.asarray(counts), known, hierarchy)
        return survey

    def add(self, labels: LabelMatrix) -> None:
        """Count some documents."""
        self.documents += labels.shape[0]
        self.closed += label_totals(closed_sets(self.hierarchy, labels))
        self.stated += label_totals(labels)
        self.regimes += count_regimes(self.hierarchy, labels)

    def context(self, is_from_truth: bool = False) -> Context:
        """Return what metrics know of reference documents."""
        known = self.closed, self.stated, self.documents
        return Context(self.hierarchy, *known, is_from_truth=is_from_truth)

    @property
    def default_rule(self) -> str:
        """The rule that suits these labels: see `rules.defaults`."""
        return DEFAULT_RULES[usual_of(self.regimes)]


@dataclass(frozen=True)
class Question:
    """A question: by which metrics and rule to judge, and whether to keep documents, list labels and mistakes."""

    metrics: Sequence[str] | str | None = None
    rule: str | TunedRule | None = None
    keep_documents: bool = False
    by_label: bool = False
    errors: bool = False


@dataclass(frozen=True, eq=False)
class Judged:
    """The answer: values, the table of labels and the wrong documents, each if it was asked for."""

    result: Result
    labels: LabelTable | None = None
    wrong: WrongDocuments | None = None


def judge_files(
    hierarchy: Hierarchy,
    truth: Opened,
    system: Opened,
    question: Question,
    train: Survey | None = None,
    where: str = "the predictions",
) -> Judged:
    """Judge predictions or scores against the truth, reading both in batches.

    The truth is read twice: first to count its labels (they are the reference where there is no training data, and
    tell the usual rule), then side by side with the predictions. If these have the same ids in the same order, or none,
    memory does not grow with documents, but for what `question` asks to keep. If not, all predictions are held, and
    the ids of the truth, to match them.

    Parameters
    ----------
    hierarchy : Hierarchy
        The hierarchy of both.
    truth : callable
        Begins to read the documents with their true labels: Datasets, or what has ids and labels.
    system : callable
        Begins to read the same documents as `Predicted` labels, or as Scores.
    question : Question
        What to find out. Metrics that do not apply are skipped, with their reason in the result.
    train : Survey, optional
        What the labels of training documents are like; by default those of the truth.
    where : str
        How messages call the predictions.

    Returns
    -------
    Judged
    """
    seen = Survey.of(hierarchy, truth)
    require_labels(seen.documents, int(seen.stated.sum()), "the truth")
    try:
        return _judge(in_step(truth(), system()), question, seen, train, where)
    except OutOfOrderError:
        return _judge(_match_by_id(truth, system, where), question, seen, train, where)


def require_labels(documents: int, labels: int, where: str) -> None:
    """Refuse to judge by documents of which none has a label: another column was meant, or there is no truth."""
    if documents and not labels:
        raise TreelabelError(
            f"{where}: none of the {documents:,} documents has a label, so there is nothing to judge by; if a column "
            "holds the labels, name it: --labels"
        )


def in_step(truth: Iterator[Any], system: Iterator[Any]) -> Iterator[tuple[Any, Any]]:
    """Yield equal parts of two streams of batches; other documents or another order is an OutOfOrderError.

    Parameters
    ----------
    truth, system : iterators
        Batches of any sizes.

    Yields
    ------
    (batch, batch)
    """
    other: Any = ()
    seen: list[LongArray] = []
    for each in truth:
        batch = each
        while len(batch):
            while not len(other):
                other = next(system, None)
                if other is None:
                    raise OutOfOrderError
            count = min(len(batch), len(other))
            one, two = batch[:count], other[:count]
            if two.ids is not None and list(one.ids) != list(two.ids):
                raise OutOfOrderError
            if two.ids is not None:
                seen.append(np.array([hash(name) for name in one.ids], np.int64))
            yield one, two
            batch, other = batch[count:], other[count:]
    if len(other) or any(len(rest) for rest in system):
        raise OutOfOrderError
    every = np.concatenate([np.zeros(0, np.int64), *seen])
    if len(np.unique(every)) < len(every):
        _log.info("some ids stand twice, so documents are matched by their order alone")


def _match_by_id(truth: Opened, system: Opened, where: str) -> Iterator[tuple[Any, Any]]:
    """Hold all predictions, and yield those of each batch of the truth."""
    parts = list(system())
    ids = Strings.of([name for batch in truth() for name in batch.ids])
    if parts and isinstance(parts[0], Scores):
        names = None if parts[0].ids is None else tuple(name for part in parts for name in part.ids)
        predicted: Any = replace(Scores.concat(parts[0].hierarchy, [part.values for part in parts]), ids=names)
    else:
        predicted = Predicted.concat(parts)
    rows = rows_by_id(SimpleNamespace(ids=ids), predicted.ids, where)
    if rows is None and len(predicted) != len(ids):
        raise TreelabelError(f"{where}: {len(predicted):,} rows without ids for {len(ids):,} documents of the truth")
    start = 0
    for batch in truth():
        stop = start + len(batch)
        yield batch, predicted[start:stop] if rows is None else predicted[rows[start:stop]]
        start = stop


@dataclass
class Judging:
    """Documents that are judged batch by batch; what was found of consecutive ones merges with `|`.

    Merged in the order of the documents, it is what one pass over all of them finds, to the bit: see `Evaluator`.
    """

    evaluator: Evaluator
    table: LabelTable | None = None
    wrong: WrongDocuments | None = None
    groups: list[str] = field(default_factory=list)
    level_names: tuple[str, ...] = ()
    # Whether some document got a label, as far as that was looked at.
    has_label: bool = False

    @classmethod
    def begin(cls, question: Question, context: Context, train: Survey | None, usual_rule: str | None) -> "Judging":
        """Begin without any document.

        Parameters
        ----------
        question
            What to find out.
        context
            What is known of reference documents.
        train
            The labels of training documents, if they are known.
        usual_rule
            What decides if the question names no rule.

        Returns
        -------
        Judging
        """
        h, rule = context.hierarchy, question.rule
        judge = Evaluator(h, question.metrics, rule, keep_documents=question.keep_documents, context=context)
        judge.on_error = "skip"
        judge.default_rule = usual_rule if rule is None else None
        table = LabelTable(h, None if train is None else train.closed) if question.by_label else None
        return cls(judge, table, WrongDocuments(h) if question.errors else None)

    def add(self, true: Any, system: Any) -> None:
        """Judge a batch: documents with their true labels, and what a system says of them."""
        batch, p = _batch(self.evaluator, true, system, self.table is not None or self.wrong is not None)
        self.evaluator.add_batch(batch)
        if self.table is not None:
            self.table.add(batch.closed_truth, batch.closed_decisions)
        if self.wrong is not None:
            texts = true.texts if any(true.texts) else None
            self.wrong.add(list(true.ids), batch.closed_truth, batch.closed_decisions, texts, p)
        self.level_names = getattr(true, "level_names", ())
        if self.evaluator.keep_documents:
            self.groups += getattr(true, "groups", None) or ()
        self.has_label = self.has_label or not isinstance(system, Predicted) or batch.decisions.nnz > 0

    def __or__(self, other: "Judging") -> "Judging":
        """Merge with what was found of the documents behind these; lists of wrong documents are not merged."""
        table = None if self.table is None or other.table is None else self.table | other.table
        return Judging(
            self.evaluator | other.evaluator,
            table,
            None,
            [*self.groups, *other.groups],
            other.level_names or self.level_names,
            self.has_label or other.has_label,
        )

    def judged(self, where: str) -> Judged:
        """Turn what was found into values; `where` is how messages call the predictions."""
        if not self.has_label:
            warnings.warn(f"{where}: no document has a label", stacklevel=2)
        result = replace(self.evaluator.result(), groups=tuple(self.groups) or None, level_names=self.level_names)
        return Judged(result, self.table, self.wrong)


def _judge(
    pairs: Iterator[tuple[Any, Any]], question: Question, seen: Survey, train: Survey | None, where: str
) -> Judged:
    context = seen.context(is_from_truth=True) if train is None else train.context()
    judging = Judging.begin(question, context, train, seen.default_rule)
    for true, system in pairs:
        judging.add(true, system)
    return judging.judged(where)


def _batch(judge: Evaluator, true: Any, system: Any, with_decisions: bool) -> tuple[Batch, DoubleArray | None]:
    """Return documents to judge, and the probability of the surest label that each got."""
    if isinstance(system, Predicted):
        return judge.batch(true.labels, system.labels, None), system.p
    if isinstance(system, Answered):
        batch = judge.batch(true.labels, system.decisions, system.scores)
    else:
        decisions = decide_by_column(judge.rule, true, None, system)
        if decisions is None and with_decisions:
            decisions = judge.decide(system, true.labels)
        batch = judge.batch(true.labels, decisions, system)
    if batch.input_decisions is None:
        return batch, None
    ends = judge.hierarchy.most_specific(batch.decisions)
    p = np.full(len(batch), np.nan)
    np.fmax.at(p, row_numbers(ends), batch.scores.look_up(ends).astype(np.float64))
    return batch, p
