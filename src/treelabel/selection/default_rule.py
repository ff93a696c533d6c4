"""Where the default rule of a model is chosen: the simplest one that no other beats on held-out documents."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from treelabel.core.errors import TreelabelError
from treelabel.core.registry import with_settings
from treelabel.core.types import DoubleArray, LongArray
from treelabel.core.validation import JsonRecord, Share
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.label_matrices import LabelMatrix, as_labels
from treelabel.metrics.batch import Batch, Context
from treelabel.metrics.overlap import hf1, subset_accuracy
from treelabel.rules.decisions import decide
from treelabel.rules.path_counts import fit_counts
from treelabel.scores.score_matrix import Scores

# Stands for `optimal:samples_f1` with the weights of numbers of paths that are fitted to the same documents.
FITTED = "optimal:samples_f1(counts=fitted)"
# The rules that are tried, simple ones first.
CANDIDATES = ("best_leaf", "threshold@0.5", "optimal:hf1", "optimal:samples_f1", FITTED)
# Weights are fitted to at most this many documents of each half, to judge them by the other.
MOST_OF_HALF = 500


@dataclass(frozen=True)
class RuleTrial(JsonRecord):
    """The result of one rule: the mean F1 of closed sets, its standard error, and the share of sets that are right."""

    rule: str
    f1: Share
    standard_error: float
    exact: Share


@dataclass(frozen=True)
class ChosenRule:
    """The rule that was chosen, as `decide` takes it, all that were tried, and on how many documents."""

    rule: str
    tried: tuple[RuleTrial, ...]
    documents: int


def choose_rule(
    scores: Scores,
    truth: LabelMatrix,
    candidates: Sequence[str] | None = None,
    groups: Sequence[Any] | None = None,
) -> ChosenRule:
    """Choose the simplest rule that no other beats in the mean F1 of documents, by held-out scores and truth.

    A rule is beaten by another if the mean gain of that one exceeds one paired standard error: the standard deviation
    of the differences by document over the square root of their number. F1 is that of closed sets, 1 if both are empty.
    A rule that is best for a few irregular documents gains little on average, and does not displace a simpler one.
    Weights of numbers of paths (`fit_counts`) are judged on documents that they were not fitted to: fitted to one half
    of them (groups stay together), they decide the other; those that are returned are fitted to all. Costs what
    deciding by each candidate and fitting costs.

    Parameters
    ----------
    scores : Scores
        Of documents that the model did not learn from.
    truth : LabelMatrix, documents x nodes
        Their labels, closed or not.
    candidates : sequence of str, optional
        The rules to try, in the order of preference. By default best_leaf, threshold@0.5, optimal:hf1,
        optimal:samples_f1 and "optimal:samples_f1(counts=fitted)", which stands for that with fitted weights.
    groups : sequence, optional
        One value per document; documents that share one are not independent, and count together in standard errors.

    Returns
    -------
    ChosenRule

    >>> from treelabel.hierarchy import Hierarchy
    >>> h = Hierarchy.from_paths(["A > B", "A > C"])
    >>> chosen = choose_rule(Scores(h, [[1.0, 0.6, 0.4]] * 5), h.closure([[0, 1, 0]] * 3 + [[0, 0, 1]] * 2))
    >>> chosen.rule, chosen.documents
    ('best_leaf', 5)
    >>> [(tried.rule, round(tried.f1, 2)) for tried in chosen.tried[:2]]
    [('best_leaf', 0.8), ('threshold@0.5', 0.8)]
    """
    true = _require_truth(scores, truth)
    group = _group_numbers(groups, len(scores))
    rules = tuple(CANDIDATES if candidates is None else candidates)
    if not rules:
        raise TreelabelError("no rule to choose from; expected at least one candidate")
    tried, values = [], []
    for rule in rules:
        if rule == FITTED:
            f1, exact = _judge_fitted(scores, true, group)
            name = with_settings("optimal:samples_f1", fit_counts(scores, true))
        else:
            f1, exact = _judge(scores.hierarchy, decide(scores, rule).csr, true)
            name = rule
        tried.append(RuleTrial(name, float(f1.mean()), standard_error(f1, group), float(exact.mean())))
        values.append(f1)
    return ChosenRule(tried[_simplest_unbeaten(values, group)].rule, tuple(tried), len(scores))


def judge_most_frequent(hierarchy: Hierarchy, labels: LabelMatrix, truth: LabelMatrix) -> RuleTrial:
    """Judge the rule that gives every document the set of labels that is the most frequent one in training.

    Parameters
    ----------
    labels : LabelMatrix, documents x nodes
        The labels of training documents, closed.
    truth : LabelMatrix, documents x nodes
        Those of the documents to judge, closed.

    Returns
    -------
    Tried

    >>> from treelabel.hierarchy import Hierarchy
    >>> h = Hierarchy.from_paths(["A > B", "A > C"])
    >>> judge_most_frequent(h, h.closure([[0, 1, 0]] * 2 + [[0, 0, 1]]), h.closure([[0, 1, 0], [0, 0, 1]])).f1
    0.75
    """
    bits = np.random.default_rng(0).integers(0, 1 << 62, labels.shape[1], np.int64)
    total = np.concatenate([[0], np.cumsum(bits[labels.indices], dtype=np.int64)])
    _, first, counts = np.unique(np.diff(total[labels.indptr]), return_index=True, return_counts=True)
    f1, exact = _judge(hierarchy, labels[np.full(truth.shape[0], first[np.argmax(counts)])], truth)
    error = standard_error(f1, np.arange(len(f1)))
    return RuleTrial("most frequent labels", float(f1.mean()), error, float(exact.mean()))


def _judge_fitted(scores: Scores, true: LabelMatrix, group: LongArray) -> tuple[DoubleArray, DoubleArray]:
    """Judge each half of the documents by weights that are fitted to the other half."""
    half = np.random.default_rng(0).permutation(int(group.max()) + 1)[group] % 2
    f1, exact = np.zeros(len(group)), np.zeros(len(group))
    for part in (0, 1):
        rows, others = np.flatnonzero(half == part), np.flatnonzero(half != part)
        counts = fit_counts(scores[others], true[others], most_documents=MOST_OF_HALF)
        rule = with_settings("optimal:samples_f1", counts)
        f1[rows], exact[rows] = _judge(scores.hierarchy, decide(scores[rows], rule).csr, true[rows])
    return f1, exact


def _require_truth(scores: Scores, truth: LabelMatrix) -> LabelMatrix:
    closed = scores.hierarchy.closure(as_labels(truth, len(scores.hierarchy), "truth"))
    if closed.shape[0] != len(scores):
        raise TreelabelError(f"{len(scores):,} rows of scores, but the truth of {closed.shape[0]:,} documents")
    if len(scores) == 0:
        raise TreelabelError("no documents to choose a rule on; expected held-out documents with their labels")
    return closed


def _group_numbers(groups: Sequence[Any] | None, documents: int) -> LongArray:
    if groups is None:
        return np.arange(documents)
    if len(groups) != documents:
        raise TreelabelError(f"{len(groups):,} groups for {documents:,} documents; expected one for each")
    numbers: LongArray = np.unique(np.asarray(groups), return_inverse=True)[1]
    return numbers


def _judge(hierarchy: Hierarchy, decisions: LabelMatrix, truth: LabelMatrix) -> tuple[DoubleArray, DoubleArray]:
    """Compute the F1 of each document's closed set, 1 if both are empty, and whether it is right as a whole."""
    batch = Batch(Context(hierarchy), truth, decisions)
    return hf1(batch), subset_accuracy(batch)


def standard_error(values: DoubleArray, group: LongArray) -> float:
    """Compute the standard error of a mean, documents of a group counting together; infinite for a single group.

    Parameters
    ----------
    group : array of shape (documents,)
        The number of each document's group.

    Returns
    -------
    float

    >>> standard_error(np.array([0.0, 1.0, 0.0, 1.0]), np.arange(4)).__round__(4)
    0.2887
    >>> standard_error(np.array([0.0, 0.0, 1.0, 1.0]), np.array([0, 0, 1, 1]))
    0.5
    """
    sums = np.bincount(group, weights=values - values.mean())
    if len(sums) < 2:
        return float("inf")
    return float(np.sqrt((sums**2).sum() * len(sums) / (len(sums) - 1)) / len(values))


def _simplest_unbeaten(values: Sequence[DoubleArray], group: LongArray) -> int:
    """Find the first rule whose mean no other exceeds by more than one standard error of the difference."""
    for number, f1 in enumerate(values):
        gains = [other - f1 for other in values]
        if not any(gain.mean() > standard_error(gain, group) for gain in gains):
            return number
    return int(np.argmax([f1.mean() for f1 in values]))
