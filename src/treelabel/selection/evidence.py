"""Evidence from documents that a model had not learned from: how good it is, and what was tried and chosen."""

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from treelabel.core.errors import TreelabelError
from treelabel.core.types import LongArray
from treelabel.core.validation import AnyFloat, Between, JsonRecord, Share
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.label_matrices import LabelMatrix, row_sizes
from treelabel.hierarchy.labelled_texts import Regime, regime_of, usual_regime
from treelabel.metrics.registry import find_metric
from treelabel.metrics.shared_formulas import STANDARD_ERRORS, least_share
from treelabel.rules.registry import describe_rule
from treelabel.scores.score_matrix import Scores
from treelabel.selection.guarantee import Guarantee
from treelabel.selection.training import Training

# With fewer held-out documents nothing is concluded from them.
FEWEST_HELD_OUT = 30
# Scores and documents that rules are tried on at most: a sample shows the same.
MOST_TRIED_SCORES = 1 << 25
MOST_TRIED = 2_000

Count = Annotated[int, Between(0, 1 << 62)]


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Scores of training documents by what was learned without them, and what is true of these.

    `flat` are the scores of a flat model of the same features, where there is one.
    """

    scores: Scores
    labels: LabelMatrix
    groups: LongArray | None = None
    flat: Scores | None = None

    @classmethod
    def of(cls, probabilities: Any, data: Training, flat: Any = None) -> "HeldOut":
        """Join the probabilities of nodes of some documents, also of a flat model, to what is true of these."""
        of_flat = None if flat is None else Scores(data.hierarchy, flat)
        return cls(Scores(data.hierarchy, probabilities), data.labels, data.groups, of_flat)

    def labelled(self) -> "HeldOut":
        """Return the documents that have a label."""
        rows = np.flatnonzero(row_sizes(self.labels))
        return self if len(rows) == self.labels.shape[0] else self._take(rows)

    def sample(self, seed: int = 0) -> "HeldOut":
        """Return some of the documents where all would take too long."""
        most = min(MOST_TRIED, max(FEWEST_HELD_OUT, MOST_TRIED_SCORES // max(1, len(self.scores.hierarchy))))
        if len(self.scores) <= most:
            return self
        return self._take(np.sort(np.random.default_rng(seed).choice(len(self.scores), most, replace=False)))

    def _take(self, rows: LongArray) -> "HeldOut":
        groups = None if self.groups is None else self.groups[rows]
        flat = None if self.flat is None else self.flat[rows]
        return HeldOut(self.scores[rows], self.labels[rows], groups, flat)


@dataclass(frozen=True)
class RuleTrial(JsonRecord):
    """The result of one rule: the mean F1 of closed sets, its standard error, and the share of sets that are right.

    `exact_error` is the standard error of that share, where documents of a group count together. `value` is that of the
    metric that was chosen for, with its standard error, where another one was asked for.
    """

    rule: str
    f1: Share
    standard_error: float
    exact: Share
    exact_error: AnyFloat | None = None
    value: AnyFloat | None = None
    value_error: AnyFloat | None = None


@dataclass(frozen=True)
class SettingTrial(JsonRecord):
    """Settings, the mean log loss of held-out documents with them, and whether they were chosen.

    `value` is that of the metric by which they were chosen, where one was asked for.
    """

    settings: str
    loss: float
    standard_error: float
    chosen: bool = False
    value: AnyFloat | None = None


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
class FlatTrial(JsonRecord):
    """The result of a flat model of the same features by the same rule, and the gain of the hierarchy over it.

    `exact` is the share of sets that are right, `f1` the mean F1 of closed sets; gains are those of the hierarchy, with
    their standard errors. Calibration errors are those of the best leaf: of the flat model, and with the hierarchy.

    >>> print(FlatTrial(0.74, 0.013, 0.004, 0.88, 0.011, 0.002, 0.031, 0.018).describe("leaf accuracy"))
    a flat model of the same features: leaf accuracy 0.740 (the hierarchy adds +0.013 ± 0.008), hF1 0.880 (+0.011 ± \
0.004), calibration error 0.031 (0.018 with the hierarchy)
    """

    exact: Share
    exact_gain: float
    exact_error: AnyFloat
    f1: Share
    f1_gain: float
    f1_error: AnyFloat
    calibration_error: AnyFloat
    own_calibration_error: AnyFloat

    def describe(self, name: str) -> str:
        """Say it in one line; `name` is what the share of exact sets is called."""
        return (
            f"a flat model of the same features: {name} {self.exact:.3f} (the hierarchy adds {self.exact_gain:+.3f} ± "
            f"{STANDARD_ERRORS * self.exact_error:.3f}), hF1 {self.f1:.3f} ({self.f1_gain:+.3f} ± "
            f"{STANDARD_ERRORS * self.f1_error:.3f}), calibration error {self.calibration_error:.3f} "
            f"({self.own_calibration_error:.3f} with the hierarchy)"
        )


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
    metric : str
        The metric that the rule was chosen for, and features where `trials` have its value; empty if nobody knows.
    flat : FlatTrial or None
        What a flat model of the same features reaches, where that was cheap to find out.
    """

    documents: Count = 0
    rules: tuple[RuleTrial, ...] = ()
    trials: tuple[SettingTrial, ...] = ()
    stages: tuple[Stage, ...] = ()
    most_frequent: RuleTrial | None = None
    unlabelled: Count = 0
    tuning: TuningTrial | None = None
    guarantee: Guarantee | None = None
    metric: str = ""
    flat: FlatTrial | None = None

    def result_of(self, rule: str) -> RuleTrial | None:
        """Return the result of a rule, if it was tried."""
        return next((tried for tried in self.rules if tried.rule == rule), None)

    def _half_intervals(self, result: RuleTrial) -> tuple[float, float]:
        """Return half the width of the 95% intervals of the share of exact sets, and of F1.

        Where all documents are right, or all wrong, it is how far such a share may be from the true one.
        """
        error = result.exact_error
        if error is None:
            error = float(np.sqrt(result.exact * (1 - result.exact) / max(1, self.documents)))
        halves = (result.exact, error), (result.f1, result.standard_error)
        exact, f1 = (
            1 - least_share(self.documents) if value in (0, 1) and half == 0 else STANDARD_ERRORS * half
            for value, half in halves
        )
        return exact, f1

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
                f"held out ({self.documents:,} documents, scored by a model that had not seen them{without}): "
                f"{name} {_with_half(result.exact, exact)}, hF1 {_with_half(result.f1, f1)}"
                f"{self._describe_goal(result)}, by {describe_rule(rule)}{self._describe_choice()}"
            )
            usual = self.compare_with_most_frequent(rule)
            parts += [usual] if usual else []
            parts += [] if self.flat is None else [self.flat.describe(name)]
        parts += [self._describe_trials()] if self.trials else []
        parts += [str(each) for each in (self.tuning, self.guarantee) if each is not None]
        return "; ".join(parts)

    def _describe_goal(self, result: RuleTrial) -> str:
        """Say what a rule reached in the metric that was asked for."""
        if result.value is None or result.value_error is None or self.metric == "hf1":
            return ""
        return f", {self.metric} {result.value:.3f} ± {STANDARD_ERRORS * result.value_error:.3f}"

    def _describe_choice(self) -> str:
        """Say which metric the rule was chosen for."""
        if not self.metric:
            return ""
        if not _depends_on_rule(self.metric):
            return f", chosen for hF1, as {self.metric} depends on no rule"
        shown = {"leaf_accuracy": "leaf accuracy", "hf1": "hF1"}.get(self.metric, self.metric)
        return f", chosen for {shown}"

    def _describe_trials(self) -> str:
        """Say what settings were worth, and which were chosen."""
        least = min(trial.loss for trial in self.trials)
        has_values = all(trial.value is not None for trial in self.trials)
        why = {False: " (chosen: what is larger gains too little to be sure of it)", True: " (chosen)"}
        tried = ", ".join(
            f"{trial.settings} {trial.value if has_values else trial.loss:.3f}"
            f"{why[has_values or trial.loss == least] if trial.chosen else ''}"
            for trial in self.trials
        )
        # A rule with a promise replaced the one that was chosen for the metric.
        what = (self.metric or "the metric asked for") if has_values else "log loss"
        return f"tried ({what} of a sample): {tried}"


def _depends_on_rule(metric: str) -> bool:
    """Return whether a metric is of decisions, as one is taken to be that only the program that fitted knows."""
    try:
        return "decisions" in find_metric(metric).needs
    except TreelabelError:
        return True


def _with_half(value: float, half: float) -> str:
    """Write a share with half of its interval; one of all or none has only one end."""
    if value in (0, 1):
        return f"{value:.3f} (at {f'least {1 - half:.3f}' if value == 1 else f'most {half:.3f}'})"
    return f"{value:.3f} ± {half:.3f}"


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
