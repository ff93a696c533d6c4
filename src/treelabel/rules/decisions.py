"""Decisions: closed label sets, and how a rule makes them of scores."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from treelabel.core.errors import TreelabelError
from treelabel.core.html_tables import html_box, html_table
from treelabel.core.types import BoolArray, LongArray
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.label_ids import decode
from treelabel.hierarchy.label_matrices import LabelMatrix, keep_entries, row_numbers, row_sizes
from treelabel.hierarchy.similarity import information_content
from treelabel.hierarchy.union import join_hierarchies, nodes_in
from treelabel.rules.registry import COMMON, Rule, RuleSpec, find_rule
from treelabel.rules.tuned_rule import TunedRule as TunedRule
from treelabel.rules.tuned_rule import load_rule
from treelabel.scores.score_matrix import Scores

# Documents that notebooks show.
FIRST_SHOWN = 10


@dataclass(frozen=True, eq=False, repr=False)
class Decisions:
    """The label sets that were chosen for documents; `csr` is the matrix, `rule` what made it.

    Sets are closed, unless the rule was told not to: `closed` is None then, and where nobody knows. `unknown` marks
    documents on which the rule abstained.

    >>> from treelabel.hierarchy.label_ids import encode
    >>> h = Hierarchy.from_paths(["A > B"])
    >>> d = Decisions(h, h.closure(encode(h, ["B"])))
    >>> d.names(), d.paths()
    ([['A', 'B']], [['A > B']])
    """

    hierarchy: Hierarchy
    csr: LabelMatrix
    ids: tuple[str, ...] | None = None
    rule: str | None = None
    unknown: BoolArray | None = None
    closed: bool | None = None

    def __len__(self) -> int:
        return int(self.csr.shape[0])

    def __getitem__(self, rows: Any) -> "Decisions":
        """Select documents by slice, boolean mask or row numbers."""
        # numpy takes an empty list for floats.
        chosen = rows if isinstance(rows, slice) else np.asarray(rows, None if np.size(rows) else np.int64)
        picked = np.atleast_1d(np.arange(len(self))[chosen])
        ids = None if self.ids is None else tuple(self.ids[row] for row in picked.tolist())
        unknown = None if self.unknown is None else self.unknown[picked]
        return Decisions(self.hierarchy, self.csr[picked], ids, self.rule, unknown, self.closed)

    def __repr__(self) -> str:
        unknown = "" if self.unknown is None else f", {int(self.unknown.sum()):,} unknown"
        return f"Decisions({len(self):,} documents, {self.csr.nnz:,} labels{unknown}, rule {self.rule})"

    def _repr_html_(self) -> str:
        """Return what notebooks show: the most specific labels of the first documents, as paths."""
        first = self[:FIRST_SHOWN]
        ids = range(len(first)) if first.ids is None else first.ids
        rows = [(name, "; ".join(paths)) for name, paths in zip(ids, first.paths(), strict=True)]
        return html_box(repr(self), html_table(rows, ("document", "labels"), len(self)))

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the hierarchy."""
        return self.hierarchy.fingerprint

    @cached_property
    def closed_rows(self) -> BoolArray:
        """Mark the documents whose sets hold the ancestors of their labels."""
        if self.closed:
            return np.ones(len(self), np.bool_)
        whole = self.hierarchy.closure(self.csr)
        same: BoolArray = row_sizes(whole) == row_sizes(self.csr)
        return same

    def without(self, empty: BoolArray) -> "Decisions":
        """Take the labels of some documents away, and mark these as unknown.

        Parameters
        ----------
        empty : array of shape (documents,)
            Which ones.

        Returns
        -------
        Decisions
        """
        selected = keep_entries(self.csr, ~empty[row_numbers(self.csr)])
        unknown = empty if self.unknown is None else self.unknown | empty
        return Decisions(self.hierarchy, selected, self.ids, self.rule, unknown, self.closed)

    @cached_property
    def most_specific(self) -> LabelMatrix:
        """The labels that are no ancestor of another."""
        return self.hierarchy.most_specific(self.csr)

    def names(self) -> list[list[str]]:
        """Return all predicted names of each document, ancestors included if the sets are closed."""
        return decode(self.hierarchy, self.csr)

    def paths(self) -> list[list[str]]:
        """Return the full paths of the most specific labels of each document."""
        return decode(self.hierarchy, self.most_specific, paths=True)


def decide(
    scores: Scores,
    rule: str | TunedRule = "threshold",
    train_frequencies: Any = None,
    train_documents: int | None = None,
    by: Any = None,
    **settings: Any,
) -> Decisions:
    """Turn scores into label sets by a rule of RULES, or by one that `tune` made.

    Parameters
    ----------
    scores : Scores
        The probability of every node.
    rule : str or Tuned
        "optimal:hf1", with its number "threshold@0.3", or with settings "top_k(k=3, leaves=true)"; what `tune`
        returned, or the JSON file it was saved to.
    train_frequencies : Dataset or array of int, optional
        For rules that need to know how rare labels are: the training data, or its documents counted by node, ancestors
        included.
    train_documents : int, optional
        The number of training documents, where `train_frequencies` are counts.
    by : Dataset, mapping or sequence, optional
        For a rule that was tuned by a column: documents that have it, columns by name, or its values. Other rules do
        not look at it.
    **settings
        Settings of the rule. All rules have `closed` (default true: ancestors are added) and `unknown`: where no top
        label has a score of at least that much, nothing is predicted and the document is marked in
        `Decisions.unknown`.

    Returns
    -------
    Decisions

    >>> h = Hierarchy.from_paths(["A > B", "A > C"])
    >>> s = Scores(h, [[0.9, 0.6, 0.3], [0.2, 0.1, 0.1]])
    >>> decide(s).names(), decide(s, "best_leaf", unknown=0.5).names()
    ([['A', 'B'], []], [['A', 'B'], []])
    >>> decide(s, "best_leaf(closed=false)").names()
    [['B'], ['B']]
    """
    if not isinstance(scores, Scores):
        raise TreelabelError(f"expected Scores(hierarchy, matrix) to decide on, found {type(scores).__name__}")
    loaded = load_rule(rule)
    asked = _resolve_rule(loaded, scores.hierarchy, settings)
    rule_settings = {name: value for name, value in asked.settings.items() if name not in COMMON}
    if isinstance(loaded, TunedRule) and loaded.by is not None:
        rule_settings = {**rule_settings, "t": None, "limits": loaded.limits_of(by, len(scores))}
    known = _from_training(asked.rule, scores.hierarchy, train_frequencies, train_documents)
    try:
        chosen = asked.rule.choose(scores, **rule_settings, **known)
        is_unknown = _is_unknown(scores, asked.settings.get("unknown"))
    except TreelabelError as error:
        raise TreelabelError(f"{asked.rule.name}: {error}") from None
    if is_unknown is not None:
        chosen = keep_entries(chosen, ~is_unknown[row_numbers(chosen)])
    is_closed = True if asked.settings.get("closed", True) else None
    if is_closed:
        chosen = scores.hierarchy.closure(chosen)
    return Decisions(scores.hierarchy, chosen, scores.ids, str(asked), is_unknown, is_closed)


def decides_on_all(rule: str | TunedRule, hierarchy: Hierarchy, **settings: Any) -> bool:
    """Return whether a rule needs the scores of all documents at once, so that parts of them cannot be decided apart.

    Parameters
    ----------
    rule, **settings
        As for `decide`.
    hierarchy : Hierarchy
        That of the scores.

    Returns
    -------
    bool

    >>> h = Hierarchy.flat(["A"])
    >>> decides_on_all("best_leaf", h), decides_on_all("optimal:macro_f1", h)
    (False, True)
    """
    return _resolve_rule(load_rule(rule), hierarchy, settings).rule.of_all


def _resolve_rule(rule: Any, hierarchy: Hierarchy, settings: dict[str, Any]) -> RuleSpec:
    """Find the rule and its settings; a tuned one must have been tuned for this hierarchy."""
    if isinstance(rule, TunedRule):
        hierarchy.require_same(rule.fingerprint, f"the tuned rule {rule.rule}")
        # What is promised holds for the settings that it was calibrated with.
        other = next((name for name in settings if name not in COMMON), None)
        if other is not None and find_rule(rule.rule).rule.guarantee is not None:
            raise TreelabelError(
                f"the tuned rule {rule.rule} is used as it was tuned, but {other} was given beside it; expected closed "
                "and unknown alone"
            )
        found = find_rule(rule.rule, {**rule.settings, **settings})
        return found if rule.by is None else replace(found, by=rule.by)
    if not isinstance(rule, str):
        raise TreelabelError(f"expected a rule such as 'optimal:hf1' or what tune gave, found {type(rule).__name__}")
    return find_rule(rule, settings)


def _from_training(rule: Rule, hierarchy: Hierarchy, frequencies: Any, documents: int | None) -> dict[str, Any]:
    """Return the training statistics that a rule uses, refusing to go on without those it needs."""
    known: dict[str, Any] = {}
    if hasattr(frequencies, "frequencies"):
        documents, frequencies = len(frequencies), _counts_of(hierarchy, frequencies)
    if frequencies is not None:
        try:
            known["frequencies"] = np.asarray(frequencies, np.int64)
        except (ValueError, TypeError):
            raise TreelabelError("train_frequencies are not numbers; expected one count for each node") from None
        if known["frequencies"].shape != (len(hierarchy),):
            raise TreelabelError(
                f"train_frequencies of shape {known['frequencies'].shape}, expected one count for {len(hierarchy):,} "
                "nodes"
            )
        if documents is not None:
            known["information"] = information_content(known["frequencies"], documents)
    missing = rule.needs - set(known)
    if missing:
        what = (
            "train_documents="
            if frequencies is not None
            else "train_frequencies= (a training Dataset), or --train FILE"
        )
        raise TreelabelError(f"{rule.name} needs to know how rare labels are in training; pass {what}")
    return {name: value for name, value in known.items() if name in rule.known}


def _counts_of(hierarchy: Hierarchy, training: Any) -> LongArray:
    """Count the training documents of each node of a hierarchy; nodes that training does not have occur in none."""
    if training.hierarchy == hierarchy:
        known: LongArray = training.frequencies
        return known
    if not getattr(training, "is_hierarchy_of_labels", False):
        hierarchy.require_same(training.hierarchy.fingerprint, "the training data")
    # What cannot be matched by path is refused.
    join_hierarchies(hierarchy, training.hierarchy, "the training data")
    where = nodes_in(hierarchy, training.hierarchy)
    counts: LongArray = np.where(where >= 0, training.frequencies[where], 0)
    return counts


def _is_unknown(scores: Scores, least: float | None) -> BoolArray | None:
    """Mark the documents in which no top label has a score of at least `least`."""
    if least is None:
        return None
    if not 0 < least <= 1:
        raise TreelabelError(f"unknown = {least:g}, expected a score above 0 and at most 1")
    if len(scores.hierarchy) == 0:
        return np.ones(len(scores), np.bool_)
    tops = scores.coherent().values[:, scores.hierarchy.level(1)]
    best = tops.max(axis=1).toarray().ravel() if scores.is_sparse else tops.max(axis=1, initial=0)
    unsure: BoolArray = best < scores.dtype.type(least)
    return unsure
