"""Evidence from documents that a model had not learned from: how good it is, what it chose, and its default rule.

The default rule is the simplest one that no other beats on held-out documents.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np

from treelabel.core.errors import TreelabelError
from treelabel.core.registry import with_settings
from treelabel.core.types import DoubleArray, LongArray
from treelabel.core.validation import Between, JsonRecord, Share
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.label_matrices import LabelMatrix, as_labels, row_sizes
from treelabel.hierarchy.labelled_texts import Regime, regime_of, usual_regime
from treelabel.metrics.batch import Batch, Context
from treelabel.metrics.overlap import hf1, subset_accuracy
from treelabel.rules.decisions import decide
from treelabel.rules.path_counts import fit_counts
from treelabel.rules.registry import DEFAULT_RULES, describe_rule
from treelabel.scores.score_matrix import Scores
from treelabel.selection.guarantee import Guarantee, promise_coverage, too_few_held_out
from treelabel.selection.training import Training

# With fewer held-out documents nothing is concluded from them.
FEWEST_HELD_OUT = 30
# Scores and documents that rules are tried on at most: a sample shows the same.
MOST_TRIED_SCORES = 1 << 25
MOST_TRIED = 2_000
# A 95% interval has this many standard errors on either side.
STANDARD_ERRORS = 1.96
# Stands for `optimal:samples_f1` with the weights of numbers of paths that are fitted to the same documents.
FITTED = "optimal:samples_f1(counts=fitted)"
# The rules that are tried, simple ones first.
CANDIDATES = ("best_leaf", "threshold@0.5", "optimal:hf1", "optimal:samples_f1", FITTED)
# Weights are fitted to at most this many documents of each half, to judge them by the other.
MOST_OF_HALF = 500

Count = Annotated[int, Between(0, 1 << 62)]


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Scores of training documents by what was learned without them, and what is true of these."""

    scores: Scores
    labels: LabelMatrix
    groups: LongArray | None = None

    @classmethod
    def of(cls, probabilities: Any, data: Training) -> "HeldOut":
        """Join the probabilities of nodes of some documents to what is true of these."""
        return cls(Scores(data.hierarchy, probabilities), data.labels, data.groups)

    def labelled(self) -> "HeldOut":
        """Return the documents that have a label."""
        rows = np.flatnonzero(row_sizes(self.labels))
        if len(rows) == self.labels.shape[0]:
            return self
        return HeldOut(self.scores[rows], self.labels[rows], None if self.groups is None else self.groups[rows])

    def sample(self, seed: int = 0) -> "HeldOut":
        """Return some of the documents where all would take too long."""
        most = min(MOST_TRIED, max(FEWEST_HELD_OUT, MOST_TRIED_SCORES // max(1, len(self.scores.hierarchy))))
        if len(self.scores) <= most:
            return self
        rows = np.sort(np.random.default_rng(seed).choice(len(self.scores), most, replace=False))
        return HeldOut(self.scores[rows], self.labels[rows], None if self.groups is None else self.groups[rows])


@dataclass(frozen=True)
class RuleTrial(JsonRecord):
    """The result of one rule: the mean F1 of closed sets, its standard error, and the share of sets that are right."""

    rule: str
    f1: Share
    standard_error: float
    exact: Share


@dataclass(frozen=True)
class SettingTrial(JsonRecord):
    """Settings, the mean log loss of held-out documents with them, and whether they were chosen."""

    settings: str
    loss: float
    standard_error: float
    chosen: bool = False


@dataclass(frozen=True)
class Stage(JsonRecord):
    """How far a stage of learning came: its steps, those that were planned (in how many epochs, if it has any).

    `stopped` says that a deadline or Ctrl-C ended it; it may also have ended early because nothing got better.

    >>> str(Stage("texts", 37, 7410, 30, stopped=True)), str(Stage("labels", 300, 300))
    ('texts: 37 of 7,410 steps (0.1 of 30 epochs), stopped', 'labels: 300 of 300 steps')
    """

    name: str
    steps: Count
    planned: Count
    epochs: Count = 0
    stopped: bool = False

    def __str__(self) -> str:
        done = self.epochs * self.steps / max(1, self.planned)
        epochs = f" ({done:.1f} of {self.epochs} epochs)" if self.epochs else ""
        return f"{self.name}: {self.steps:,} of {self.planned:,} steps{epochs}{', stopped' if self.stopped else ''}"


@dataclass(frozen=True)
class TuningTrial(JsonRecord):
    """The share of held-out documents that are exactly right without a tuned encoder and with one; is it kept?

    >>> str(TuningTrial(0.566, 0.836, 200, True))
    'tuning: 0.566 -> 0.836 exactly right on 200 held-out documents'
    """

    before: Share
    after: Share
    documents: Count
    kept: bool

    def __str__(self) -> str:
        dropped = "" if self.kept else ", which does not pay: the encoder stays as it is"
        found = f"{self.before:.3f} -> {self.after:.3f} exactly right on {self.documents:,} held-out documents"
        return f"tuning: {found}{dropped}"


@dataclass(frozen=True)
class Evidence(JsonRecord):
    """The trials on held-out documents, and how far learning came.

    Parameters
    ----------
    documents : int
        How many there were; 0 where the rule was chosen by what labels are like.
    rules : tuple of RuleTrial
        The rules that were tried, and the F1 and the share of exact sets of each.
    trials : tuple of SettingTrial
        The settings that were tried on a sample of the documents, and what each lost.
    stages : tuple of Stage
        How far each stage of learning came, of models that learn step by step.
    most_frequent : RuleTrial or None
        What the most frequent labels of training, given to every document, reach.
    unlabelled : int
        How many held-out documents had no label, and were not judged.
    tuning : TuningTrial or None
        What tuning the encoder was worth, where that was tried.
    guarantee : Guarantee or None
        What the rule promises, where a coverage was asked for.
    """

    documents: Count = 0
    rules: tuple[RuleTrial, ...] = ()
    trials: tuple[SettingTrial, ...] = ()
    stages: tuple[Stage, ...] = ()
    most_frequent: RuleTrial | None = None
    unlabelled: Count = 0
    tuning: TuningTrial | None = None
    guarantee: Guarantee | None = None

    def result_of(self, rule: str) -> RuleTrial | None:
        """Return the result of a rule, if it was tried."""
        return next((tried for tried in self.rules if tried.rule == rule), None)

    def _half_intervals(self, result: RuleTrial) -> tuple[float, float]:
        """Return half the width of the 95% intervals of the share of exact sets, and of F1."""
        error = np.sqrt(result.exact * (1 - result.exact) / max(1, self.documents))
        return float(STANDARD_ERRORS * error), STANDARD_ERRORS * result.standard_error

    def compare_with_most_frequent(self, rule: str) -> str:
        """Say if a rule is not better than always the most frequent labels, by more than chance; else nothing.

        It is better where its exact sets or its F1 are above what these reach by 1.96 standard errors.
        """
        result, usual = self.result_of(rule), self.most_frequent
        if result is None or usual is None:
            return ""
        exact, f1 = self._half_intervals(result)
        if result.exact - exact > usual.exact or result.f1 - f1 > usual.f1:
            return ""
        return (
            "no better than the most frequent labels of training for every document "
            f"(exact {usual.exact:.3f}, hF1 {usual.f1:.3f})"
        )

    def describe(self, rule: str, regime: Regime) -> str:
        """Say in one line what was reached with a rule and what was chosen.

        Parameters
        ----------
        rule : str
            The rule of the model.
        regime : Regime
            That of its training documents: where all have one leaf, the share of exact sets is the leaf accuracy.

        Returns
        -------
        str
            The line; empty where nothing is known.
        """
        parts = []
        result = self.result_of(rule)
        if result is not None:
            name = "leaf accuracy" if regime == "single_path" else "exact sets"
            exact, f1 = self._half_intervals(result)
            without = f"; {self.unlabelled:,} without a label were not judged" if self.unlabelled else ""
            parts.append(
                f"held out ({self.documents:,} documents, judged before they were learned{without}): "
                f"{name} {result.exact:.3f} ± {exact:.3f}, "
                f"hF1 {result.f1:.3f} ± {f1:.3f}, by {describe_rule(rule)}"
            )
            usual = self.compare_with_most_frequent(rule)
            parts += [usual] if usual else []
        if self.trials:
            least = min(trial.loss for trial in self.trials)
            why = {False: " (chosen: what is larger gains too little to be sure of it)", True: " (chosen)"}
            tried = ", ".join(
                f"{trial.settings} {trial.loss:.3f}{why[trial.loss == least] if trial.chosen else ''}"
                for trial in self.trials
            )
            parts.append(f"tried (log loss of a sample): {tried}")
        parts += [str(each) for each in (self.tuning, self.guarantee) if each is not None]
        return "; ".join(parts)


def cover_by_evidence(
    hierarchy: Hierarchy, labels: LabelMatrix, held: HeldOut | None, evidence: Evidence, coverage: float
) -> tuple[str, Evidence]:
    """Replace the rule of a model that has learned by one that covers the truth: see `promise_coverage`.

    Parameters
    ----------
    labels : csr_array of shape (documents, nodes)
        The labels of training documents.
    held : HeldOut or None
        Held-out documents.
    evidence : Evidence
        What is known already.
    coverage : float
        Above 0 and below 1.

    Returns
    -------
    (str, Evidence)
        The rule, and the evidence with what it promises and reaches.
    """
    held = documents_to_judge(hierarchy, labels, held)
    if held is None:
        raise too_few_held_out(0)
    rule, guarantee = promise_coverage(hierarchy, labels, held.scores, held.labels, coverage)
    some = held.sample()
    tried = choose_rule(some.scores, some.labels, (rule,), None if some.groups is None else some.groups.tolist())
    return rule, replace(evidence, rules=(*evidence.rules, *tried.tried), guarantee=guarantee)


def decide_by_evidence(
    hierarchy: Hierarchy, labels: LabelMatrix, held: HeldOut | None, trials: Sequence[SettingTrial] = ()
) -> tuple[str, Evidence]:
    """Choose the rule of a model that has learned.

    Documents of which at least 95% have one leaf each get their best leaf. Otherwise the rule is the simplest one that
    no other beats on held-out documents; see `choose_rule`. Where there are too few of these, the regime tells it.
    Documents without a label are judged only where documents have several paths: there, none may be right.

    Parameters
    ----------
    labels : csr_array of shape (documents, nodes)
        The labels of training documents.
    held : HeldOut or None
        Held-out documents.
    trials : sequence of SettingTrial
        What else was tried.

    Returns
    -------
    (str, Evidence)
        The rule, and what it was chosen by.
    """
    usual = usual_regime(hierarchy, labels)
    documents = 0 if held is None else len(held.scores)
    held = documents_to_judge(hierarchy, labels, held)
    if held is None or len(held.scores) < FEWEST_HELD_OUT:
        return DEFAULT_RULES[usual], Evidence(trials=tuple(trials))
    left_out = documents - len(held.scores)
    candidates = ("best_leaf",) if usual == "single_path" else None
    some = held if candidates else held.sample()
    groups = None if some.groups is None else some.groups.tolist()
    chosen = choose_rule(some.scores, some.labels, candidates, groups)
    usual_labels = judge_most_frequent(hierarchy, hierarchy.closure(labels), hierarchy.closure(some.labels))
    return chosen.rule, Evidence(chosen.documents, chosen.tried, tuple(trials), (), usual_labels, left_out)


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


def irregular_documents(hierarchy: Hierarchy, labels: LabelMatrix) -> str:
    """Say how many documents are not of the usual regime, if there are any but few; or how many have no label.

    Returns
    -------
    str
        A sentence; empty if there are none.

    >>> h = Hierarchy.from_paths(["A > B", "C"])
    >>> irregular_documents(h, h.closure([[0, 0, 1]] * 99 + [[0, 1, 1]]))
    '1 of 100 documents has no single path to a leaf, and does not change the rule'
    """
    usual, strict = usual_regime(hierarchy, labels), regime_of(hierarchy, labels)
    empty = int((row_sizes(labels) == 0).sum())
    if usual == "multi_path" and empty:
        what = "1 document has" if empty == 1 else f"{empty:,} documents have"
        return f"{what} no label, learned and judged as texts that no label fits"
    if usual in (strict, "multi_path"):
        return ""
    terminal = hierarchy.most_specific(labels)
    sizes = row_sizes(terminal)
    irregular = sizes > 1
    if usual == "single_path":
        inner = ~hierarchy.is_leaf[terminal.indices]
        irregular |= np.bincount(np.repeat(np.arange(len(sizes)), sizes)[inner], minlength=len(sizes)) > 0
    count, what = int(irregular.sum()), "single path to a leaf" if usual == "single_path" else "single path"
    verbs = ("has", "does") if count == 1 else ("have", "do")
    return f"{count:,} of {len(sizes):,} documents {verbs[0]} no {what}, and {verbs[1]} not change the rule"
