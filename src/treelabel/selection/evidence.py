"""Evidence from documents that a model had not learned from: how good it is, and what it chose."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from treelabel.core.types import LongArray
from treelabel.core.validation import Between, JsonRecord
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.label_matrices import LabelMatrix, row_sizes
from treelabel.hierarchy.labelled_texts import Regime, regime_of, usual_regime
from treelabel.rules.registry import DEFAULT_RULES, describe_rule
from treelabel.scores.score_matrix import Scores
from treelabel.selection.default_rule import ChosenRule, RuleTrial, choose_rule, judge_most_frequent

# With fewer held-out documents nothing is concluded from them.
FEWEST_HELD_OUT = 30
# Scores and documents that rules are tried on at most: a sample shows the same.
MOST_TRIED_SCORES = 1 << 25
MOST_TRIED = 2_000
# A 95% interval has this many standard errors on either side.
STANDARD_ERRORS = 1.96

Count = Annotated[int, Between(0, 1 << 62)]


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Scores of training documents by what was learned without them, and what is true of these."""

    scores: Scores
    labels: LabelMatrix
    groups: LongArray | None = None

    def sample(self, seed: int = 0) -> "HeldOut":
        """Return some of the documents where all would take too long."""
        most = min(MOST_TRIED, max(FEWEST_HELD_OUT, MOST_TRIED_SCORES // max(1, len(self.scores.hierarchy))))
        if len(self.scores) <= most:
            return self
        rows = np.sort(np.random.default_rng(seed).choice(len(self.scores), most, replace=False))
        return HeldOut(self.scores[rows], self.labels[rows], None if self.groups is None else self.groups[rows])


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
class Evidence(JsonRecord):
    """The trials on held-out documents, and how far learning came.

    Parameters
    ----------
    documents : int
        How many there were; 0 where the rule was chosen by what labels are like.
    rules : tuple of Tried
        The rules that were tried, and the F1 and the share of exact sets of each.
    trials : tuple of Trial
        The settings that were tried on a sample of the documents, and what each lost.
    stages : tuple of Stage
        How far each stage of learning came, of models that learn step by step.
    most_frequent : Tried or None
        What the most frequent labels of training, given to every document, reach.
    """

    documents: Count = 0
    rules: tuple[RuleTrial, ...] = ()
    trials: tuple[SettingTrial, ...] = ()
    stages: tuple[Stage, ...] = ()
    most_frequent: RuleTrial | None = None

    def result_of(self, rule: str) -> RuleTrial | None:
        """Return the result of a rule, if it was tried."""
        return next((tried for tried in self.rules if tried.rule == rule), None)

    def compare_with_most_frequent(self, rule: str) -> str:
        """Say if a rule is not better than always the most frequent labels, by more than chance; else nothing.

        It is better where its exact sets or its F1 are above what these reach by 1.96 standard errors.
        """
        result, usual = self.result_of(rule), self.most_frequent
        if result is None or usual is None:
            return ""
        error = np.sqrt(result.exact * (1 - result.exact) / max(1, self.documents))
        if result.exact - STANDARD_ERRORS * error > usual.exact:
            return ""
        if result.f1 - STANDARD_ERRORS * result.standard_error > usual.f1:
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
            error = STANDARD_ERRORS * np.sqrt(result.exact * (1 - result.exact) / max(1, self.documents))
            parts.append(
                f"held out ({self.documents:,} documents, judged before they were learned): "
                f"{name} {result.exact:.3f} ± {error:.3f}, "
                f"hF1 {result.f1:.3f} ± {STANDARD_ERRORS * result.standard_error:.3f}, by {describe_rule(rule)}"
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
        return "; ".join(parts)


def decide_by_evidence(
    hierarchy: Hierarchy, labels: LabelMatrix, held: HeldOut | None, trials: Sequence[SettingTrial] = ()
) -> tuple[str, Evidence]:
    """Choose the rule of a model that has learned.

    Documents of which at least 95% have one leaf each get their best leaf. Otherwise the rule is the simplest one that
    no other beats on held-out documents; see `choose_rule`. Where there are too few of these, the regime tells it.

    Parameters
    ----------
    labels : csr_array of shape (documents, nodes)
        The labels of training documents.
    held : HeldOut or None
        Held-out documents.
    trials : sequence of Trial
        What else was tried.

    Returns
    -------
    (str, Evidence)
        The rule, and what it was chosen by.
    """
    usual = usual_regime(hierarchy, labels)
    if held is None or len(held.scores) < FEWEST_HELD_OUT:
        return DEFAULT_RULES[usual], Evidence(trials=tuple(trials))
    candidates = ("best_leaf",) if usual == "single_path" else None
    some = held if candidates else held.sample()
    groups = None if some.groups is None else some.groups.tolist()
    chosen: ChosenRule = choose_rule(some.scores, some.labels, candidates, groups)
    usual_labels = judge_most_frequent(hierarchy, hierarchy.closure(labels), hierarchy.closure(some.labels))
    return chosen.rule, Evidence(chosen.documents, chosen.tried, tuple(trials), most_frequent=usual_labels)


def irregular_documents(hierarchy: Hierarchy, labels: LabelMatrix) -> str:
    """Say how many documents are not of the usual regime, if there are any but few.

    Returns
    -------
    str
        A sentence; empty if there are none.

    >>> h = Hierarchy.from_paths(["A > B", "C"])
    >>> irregular_documents(h, h.closure([[0, 0, 1]] * 99 + [[0, 1, 1]]))
    '1 of 100 documents has no single path to a leaf, and does not change the rule'
    """
    usual, strict = usual_regime(hierarchy, labels), regime_of(hierarchy, labels)
    if usual == strict or usual == "multi_path":
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
