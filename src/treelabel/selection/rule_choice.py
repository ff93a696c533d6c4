"""Choose the default rule of a model: the simplest one that no other beats on held-out documents, for a metric."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse

from treelabel.core.errors import TreelabelError
from treelabel.core.registry import with_settings
from treelabel.core.types import DoubleArray, LongArray
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.label_matrices import LabelMatrix, as_labels
from treelabel.hierarchy.labelled_texts import usual_regime
from treelabel.metrics.batch import Batch, Context
from treelabel.metrics.overlap import hf1, subset_accuracy
from treelabel.metrics.registry import find_metric
from treelabel.rules.decisions import decide
from treelabel.rules.path_counts import fit_counts
from treelabel.rules.registry import DEFAULT_RULES
from treelabel.scores.score_matrix import Scores
from treelabel.selection.evidence import FEWEST_HELD_OUT, Evidence, FlatTrial, HeldOut, RuleTrial, SettingTrial
from treelabel.selection.goal import CANDIDATES, FITTED_COUNTS, FITTED_THRESHOLD, Goal, GoalValue, number_of
from treelabel.selection.guarantee import promise_coverage

# Weights are fitted to at most this many documents of each half, to judge them by the other.
MOST_OF_HALF = 500
# The metrics that rules are chosen for where none is named: of documents with one leaf each, and of others.
OF_ONE_LEAF, OF_OTHERS = "leaf_accuracy", "hf1"


def decide_by_evidence(
    hierarchy: Hierarchy,
    labels: LabelMatrix,
    held: HeldOut | None,
    trials: Sequence[SettingTrial] = (),
    metric: str | None = None,
) -> tuple[str, Evidence]:
    """Choose the rule of a model that has learned.

    Without a metric to choose for, documents of which at least 95% have one leaf each get their best leaf. Otherwise
    the rule is the simplest one that no other beats on held-out documents; see `choose_rule`. Where there are too few
    of these, the regime tells it. Documents without a label are judged only where documents have several paths: there,
    none may be right.

    Parameters
    ----------
    labels : csr_array of shape (documents, nodes)
        The labels of training documents.
    held : HeldOut or None
        Held-out documents.
    trials : sequence of SettingTrial
        What else was tried.
    metric : str or None
        The metric to choose for, a row of METRICS. None stands for leaf accuracy of documents with one leaf each, and
        for hF1 of others.

    Returns
    -------
    (str, Evidence)
        The rule, and what it was chosen by.
    """
    usual = usual_regime(hierarchy, labels)
    name = metric or (OF_ONE_LEAF if usual == "single_path" else OF_OTHERS)
    goal = None if metric is None else Goal.of(metric, hierarchy, labels)
    documents = 0 if held is None else len(held.scores)
    held = documents_to_judge(hierarchy, labels, held)
    if held is None or len(held.scores) < FEWEST_HELD_OUT:
        rule = next(iter(() if goal is None else goal.exact_rules), DEFAULT_RULES[usual])
        return rule, Evidence(trials=tuple(trials), metric=name)
    left_out = documents - len(held.scores)
    candidates = ("best_leaf",) if usual == "single_path" and goal is None else None
    some = held if candidates else held.sample()
    groups = None if some.groups is None else some.groups.tolist()
    chosen = choose_rule(some.scores, some.labels, candidates, groups, goal)
    usual_labels = judge_most_frequent(hierarchy, hierarchy.closure(labels), hierarchy.closure(some.labels))
    flat = compare_with_flat(some, chosen, goal)
    evidence = Evidence(chosen.documents, chosen.tried, tuple(trials), (), usual_labels, left_out, metric=name)
    return chosen.rule, replace(evidence, flat=flat)


def compare_with_flat(held: HeldOut, chosen: "ChosenRule", goal: Goal | None = None) -> FlatTrial | None:
    """Judge a flat model by the same rule on the same documents; None without one.

    A rule that is fitted to scores is fitted to those of the flat model.

    Parameters
    ----------
    held : HeldOut
        Held-out documents, with the scores of both.
    chosen : ChosenRule
        The rule that was chosen on these documents.
    goal : Goal, optional
        The metric that it was chosen for.

    Returns
    -------
    FlatTrial or None
    """
    if held.flat is None:
        return None
    h, calibration = held.scores.hierarchy, find_metric("ece")
    true, group = h.closure(held.labels), _group_numbers(held.groups, len(held.scores))
    f1, exact = _judge(h, _decisions_by(chosen.candidate, held.flat, true, group, goal)[1], true)
    own_f1, own_exact = _judge(h, chosen.decisions, true)
    gains = [value for gain in (own_exact - exact, own_f1 - f1) for value in (gain.mean(), standard_error(gain, group))]
    errors = (number_of(calibration.compute(Batch(Context(h), true, None, each))) for each in (held.flat, held.scores))
    exact_gain, exact_error, f1_gain, f1_error = map(float, gains)
    return FlatTrial(float(exact.mean()), exact_gain, exact_error, float(f1.mean()), f1_gain, f1_error, *errors)


def cover_by_evidence(
    hierarchy: Hierarchy,
    labels: LabelMatrix,
    apart: HeldOut,
    held: HeldOut | None,
    evidence: Evidence,
    coverage: float,
) -> tuple[str, Evidence]:
    """Replace the rule of a model that has learned by one that covers the truth: see `promise_coverage`.

    Parameters
    ----------
    labels : csr_array of shape (documents, nodes)
        The labels of training documents.
    apart : HeldOut
        The documents that the model has not seen at all, by its own scores.
    held : HeldOut or None
        Those that it held out to choose and to calibrate, which the new rule is judged on beside others.
    evidence : Evidence
        What is known already.
    coverage : float
        Above 0 and below 1.

    Returns
    -------
    (str, Evidence)
        The rule, and the evidence with what it promises and reaches.
    """
    rule, guarantee = promise_coverage(hierarchy, labels, apart.scores, apart.labels, coverage)
    held = documents_to_judge(hierarchy, labels, held)
    some = (apart if held is None else held).sample()
    tried = choose_rule(some.scores, some.labels, (rule,), None if some.groups is None else some.groups.tolist())
    evidence = replace(evidence, documents=evidence.documents or len(some.scores))
    # The flat model was judged by the rule that is replaced.
    return rule, replace(evidence, rules=(*evidence.rules, *tried.tried), guarantee=guarantee, metric="", flat=None)


def documents_to_judge(hierarchy: Hierarchy, labels: LabelMatrix, held: HeldOut | None) -> HeldOut | None:
    """Return the held-out documents that have a label; all of them where training documents have several paths.

    Without a label, nothing tells whether the one path that is predicted is right; among several paths, none may be.

    Parameters
    ----------
    labels : csr_array of shape (documents, nodes)
        The labels of training documents.
    held : HeldOut or None
        Held-out documents.

    Returns
    -------
    HeldOut or None
        None without any.
    """
    if held is None or usual_regime(hierarchy, labels) == "multi_path":
        return held
    labelled = held.labelled()
    return labelled if len(labelled.scores) else None


@dataclass(frozen=True, eq=False)
class ChosenRule:
    """The rule that was chosen, as `decide` takes it, and all that were tried.

    `candidate` is the rule before it was fitted, and `decisions` what it predicted for documents it was not fitted to.
    """

    rule: str
    tried: tuple[RuleTrial, ...]
    candidate: str
    decisions: LabelMatrix

    @property
    def documents(self) -> int:
        """How many documents it was chosen on."""
        return int(self.decisions.shape[0])


def choose_rule(
    scores: Scores,
    truth: LabelMatrix,
    candidates: Sequence[str] | None = None,
    groups: Sequence[Any] | None = None,
    goal: Goal | None = None,
) -> ChosenRule:
    """Choose the simplest rule that no other beats in a metric, by held-out scores and truth.

    A rule is beaten by another if the mean gain of that one exceeds one paired standard error: the standard deviation
    of the differences by document over the square root of their number. The metric is the mean F1 of closed sets, 1 if
    both are empty, unless a goal names another one; one that looks at scores alone leaves the choice to that F1.
    A rule that is best for a few irregular documents gains little on average, and does not displace a simpler one.
    Weights of numbers of paths (`fit_counts`) and thresholds are judged on documents that they were not fitted to:
    fitted to one half of them (groups stay together), they decide the other; those that are returned are fitted to all.
    Costs what deciding by each candidate and fitting costs.

    Parameters
    ----------
    scores : Scores
        Of documents that the model did not learn from.
    truth : LabelMatrix, documents x nodes
        Their labels, closed or not.
    candidates : sequence of str, optional
        The rules to try, in the order of preference. By default best_leaf, threshold@0.5, optimal:hf1,
        optimal:samples_f1 and "optimal:samples_f1(counts=fitted)", which stands for that with fitted weights; with a
        goal, those that are optimal for it as well, and "threshold(t=fitted)".
    groups : sequence, optional
        One value per document; documents that share one are not independent, and count together in standard errors.
    goal : Goal, optional
        The metric to choose for.

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
    rules = tuple((CANDIDATES if goal is None else goal.candidates) if candidates is None else candidates)
    if not rules:
        raise TreelabelError("no rule to choose from; expected at least one candidate")
    tried, judged, decided, problem = [], [], [], None
    for rule in rules:
        try:
            name, decisions = _decisions_by(rule, scores, true, group, goal)
            trial, judgement = _try_rule(name, decisions, scores, true, group, goal)
        except TreelabelError as error:
            # A metric of single labels, say, cannot judge a rule that predicts several.
            if goal is None:
                raise
            problem = problem or error
            continue
        tried.append(trial)
        judged.append(judgement)
        decided.append((rule, decisions))
    if not judged and problem is not None:
        raise problem
    sign = 1.0 if goal is None or not goal.is_of_decisions else goal.sign
    number = _simplest_unbeaten([sign * each.shares for each in judged], judged[0].unit)
    return ChosenRule(tried[number].rule, tuple(tried), *decided[number])


def _try_rule(
    name: str, decisions: LabelMatrix, scores: Scores, true: LabelMatrix, group: LongArray, goal: Goal | None
) -> tuple[RuleTrial, GoalValue]:
    """Judge what a rule decided by F1, by exact sets, and by the goal; and by what rules are compared."""
    f1, exact = _judge(scores.hierarchy, decisions, true)
    mean = float(f1.mean())
    is_grouped = int(group.max(initial=-1)) + 1 < len(group)
    exact_error = standard_error(exact, group) if is_grouped else None
    trial = RuleTrial(name, mean, standard_error(f1, group), float(exact.mean()), exact_error)
    if goal is None:
        return trial, GoalValue(mean, f1, group)
    judged = goal.judge(true, decisions, scores, group)
    value, error = judged.value, standard_error(judged.shares, judged.unit)
    trial = replace(trial, value=value, value_error=error)
    return trial, judged if goal.is_of_decisions else GoalValue(mean, f1, group)


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
    RuleTrial

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


def _decisions_by(
    rule: str, scores: Scores, true: LabelMatrix, group: LongArray, goal: Goal | None
) -> tuple[str, LabelMatrix]:
    """Decide by a candidate; one that is fitted decides each half of the documents as fitted to the other half."""
    fits = {FITTED_COUNTS: _fit_counts_rule, FITTED_THRESHOLD: _fit_threshold_rule}
    if rule not in fits:
        return rule, decide(scores, rule).csr
    half = np.random.default_rng(0).permutation(int(group.max()) + 1)[group] % 2
    rows, parts = [], []
    for part in (0, 1):
        chosen, others = np.flatnonzero(half == part), np.flatnonzero(half != part)
        fitted = fits[rule](scores[others], true[others], goal, MOST_OF_HALF)
        rows.append(chosen)
        parts.append(decide(scores[chosen], fitted).csr)
    decisions = sparse.csr_array(sparse.vstack(parts, format="csr"))[np.argsort(np.concatenate(rows))]
    return fits[rule](scores, true, goal, 2 * MOST_OF_HALF), decisions


def _fit_counts_rule(scores: Scores, true: LabelMatrix, goal: Goal | None, most: int) -> str:
    return with_settings("optimal:samples_f1", fit_counts(scores, true, most_documents=most))


def _fit_threshold_rule(scores: Scores, true: LabelMatrix, goal: Goal | None, most: int) -> str:
    assert goal is not None
    return f"threshold@{goal.best_threshold(scores, true):g}"


def _require_truth(scores: Scores, truth: LabelMatrix) -> LabelMatrix:
    closed = scores.hierarchy.closure(as_labels(truth, len(scores.hierarchy), "truth"))
    if closed.shape[0] != len(scores):
        raise TreelabelError(f"{len(scores):,} rows of scores, but the truth of {closed.shape[0]:,} documents")
    if len(scores) == 0:
        raise TreelabelError("no documents to choose a rule on; expected held-out documents with their labels")
    return closed


def _group_numbers(groups: Sequence[Any] | LongArray | None, documents: int) -> LongArray:
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
    for number, shares in enumerate(values):
        gains = [other - shares for other in values]
        if not any(gain.mean() > standard_error(gain, group) for gain in gains):
            return number
    return int(np.argmax([shares.mean() for shares in values]))
