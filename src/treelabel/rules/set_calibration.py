"""Calibrate sets of nodes on validation documents, and measure what they cost on others."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from treelabel.core.errors import TreelabelError
from treelabel.core.types import DoubleArray, LongArray
from treelabel.core.validation import JsonRecord
from treelabel.hierarchy.label_matrices import LabelMatrix, keep_entries, matches, row_numbers, row_sizes
from treelabel.rules.conformal import ConformalSets
from treelabel.rules.risk_bounds import EVERYTHING, FOLDS, assign_folds, conformal_quantile, require_share
from treelabel.scores.score_matrix import Scores

# The share of documents that may have several paths: of these, any is to be covered.
MOST_IRREGULAR = 0.05


@dataclass(frozen=True)
class SetCosts(JsonRecord):
    """The costs of sets with a coverage, on documents that they were not calibrated on.

    `covered` is the share of documents that are covered, `leaves` the mean number of leaves below the nodes, `nodes`
    that of nodes, `depth` their mean depth, and `root` the share of documents that get the root. `within` says of which
    documents the promise is, if not of all alike.
    """

    coverage: float
    documents: int
    covered: float
    leaves: float
    nodes: float
    depth: float
    root: float
    within: str = ""

    @property
    def promise(self) -> str:
        """The promise in words."""
        return f"the nodes cover the true label with a probability of at least {self.coverage:g}{self.within}"

    def to_json(self) -> dict[str, Any]:
        """Return the numbers by name."""
        return {
            "promise": self.promise,
            "share of documents covered": self.covered,
            "mean leaves": self.leaves,
            "mean nodes": self.nodes,
            "mean depth": self.depth,
            "share of documents with the root alone": self.root,
        }

    def __str__(self) -> str:
        return (
            f"{self.covered:.3f} of {self.documents:,} documents covered, {self.leaves:.1f} leaves, "
            f"{self.nodes:.2f} nodes, depth {self.depth:.2f} on average; the root alone for {self.root:.1%}"
        )


def calibrate_sets(
    scores: Scores,
    truth: LabelMatrix,
    family: ConformalSets,
    coverage: float,
    units: Sequence[str] | None = None,
) -> tuple[float | list[float], SetCosts]:
    """Find t of a family of sets for a coverage by split conformal prediction, and measure what the sets cost.

    Costs the scores, and what the sets of documents cost twice.

    Parameters
    ----------
    scores : Scores
        Of validation documents.
    truth : LabelMatrix, documents x nodes
        Closed. A document without labels is covered by the root alone.
    family : ConformalSets
        The sets.
    coverage : float
        Above 0 and below 1.
    units : sequence of str, optional
        The unit of each document; documents of one unit are judged together.

    Returns
    -------
    (float or list of float, SetCosts)
        t, or t of each group of the family.

    >>> from treelabel.hierarchy import Hierarchy
    >>> h = Hierarchy.from_paths(["A > B", "A > C", "D"])
    >>> s = Scores.from_leaves(h, ["B", "C", "D"], [[0.5, 0.25, 0.25]] * 20)
    >>> t, costs = calibrate_sets(s, h.closure([[0, 0, 1, 0]] * 10 + [[0, 0, 0, 1]] * 10), ConformalSets(), 0.8)
    >>> t, costs.covered, costs.leaves
    (0.5, 1.0, 2.0)
    """
    require_share(coverage, "coverage")
    t, sets = _cross_fit(scores, truth, family, coverage, family.groups_of(scores), units)
    within = {None: "", "top": ", within each predicted top label", "level": ", within each level of the best leaf"}
    costs = replace(measure_sets(scores, truth, sets, coverage), within=within[family.group])
    return float(t[0]) if family.group is None else t.tolist(), costs


@dataclass(frozen=True)
class ValueLimit(JsonRecord):
    """The limit of the documents with one value of a column, how many calibrated it, and what their sets cost."""

    value: str
    t: float
    costs: SetCosts

    def to_json(self) -> dict[str, Any]:
        """Return the numbers by name."""
        numbers = {name: value for name, value in self.costs.to_json().items() if name != "promise"}
        return {"value": self.value, "documents": self.costs.documents, "t": self.t, **numbers}


def calibrate_by_value(
    scores: Scores,
    truth: LabelMatrix,
    family: ConformalSets,
    coverage: float,
    values: Sequence[str],
    units: Sequence[str] | None = None,
) -> tuple[list[ValueLimit], SetCosts]:
    """Find a t for each value of a column of the documents (Mondrian), so that coverage holds within each.

    Parameters
    ----------
    scores, truth, family, coverage, units
        As for `calibrate_sets`.
    values : sequence of str
        One for each document.

    Returns
    -------
    (list of ValueLimit, SetCosts)
        By rising value; and the costs of all documents.
    """
    require_share(coverage, "coverage")
    names, group = np.unique(np.array(values, object).astype(str), return_inverse=True)
    t, sets = _cross_fit(scores, truth, family, coverage, (group.astype(np.int64), len(names)), units)
    parts = [np.flatnonzero(group == number) for number in range(len(names))]
    costs = [measure_sets(scores[rows], truth[rows], sets[rows], coverage) for rows in parts]
    limits = [ValueLimit(*each) for each in zip(names.tolist(), t.tolist(), costs, strict=True)]
    return limits, measure_sets(scores, truth, sets, coverage)


def _cross_fit(
    scores: Scores,
    truth: LabelMatrix,
    family: ConformalSets,
    coverage: float,
    groups: tuple[LongArray, int],
    units: Sequence[str] | None,
) -> tuple[DoubleArray, LabelMatrix]:
    """Return t of each group, and the set of each document by limits found on others."""
    limits, (group, count) = family.cover_limits(scores, truth), groups
    fold = assign_folds(len(scores), units)
    of_others = np.empty(len(scores))
    for index in range(FOLDS):
        others = fold != index
        found = _quantiles(limits[others], group[others], count, coverage)
        of_others[~others] = np.append(found, EVERYTHING)[group[~others]]
    return _quantiles(limits, group, count, coverage), family.predict(scores, of_others)


def _quantiles(limits: DoubleArray, groups: LongArray, count: int, coverage: float) -> DoubleArray:
    order = np.argsort(groups, kind="stable")
    starts = np.searchsorted(groups[order], np.arange(count + 1))
    parts = [limits[order[starts[index] : starts[index + 1]]] for index in range(count)]
    return np.array([conformal_quantile(part, coverage) for part in parts])


def measure_sets(scores: Scores, truth: LabelMatrix, sets: LabelMatrix, coverage: float) -> SetCosts:
    """Measure sets of nodes, none an ancestor of another, against closed truth; no node is the root."""
    h, sizes = scores.hierarchy, row_sizes(sets)
    is_root = sizes == 0
    hits = row_sizes(keep_entries(sets, matches(truth, sets)))
    depth = np.bincount(row_numbers(sets), weights=h.depth[sets.indices], minlength=len(sizes))
    values: Any = (
        (hits > 0) | is_root,
        np.where(is_root, len(h.leaves), h.count_leaves(sets)),
        np.maximum(1, sizes),
        depth / np.maximum(1, sizes),
        is_root,
    )
    covered, leaves, nodes, depths, root = (float(np.mean(each)) for each in values)
    return SetCosts(float(coverage), len(sizes), covered, leaves, nodes, depths, root)


def require_one_path(scores: Scores, truth: LabelMatrix) -> None:
    """Refuse documents of which many have several paths: coverage is of one."""
    several = row_sizes(scores.hierarchy.most_specific(truth)) > 1
    if several.mean() > MOST_IRREGULAR:
        raise TreelabelError(
            f"{int(several.sum()):,} of {len(several):,} validation documents have several most specific labels, but "
            "conformal covers one path; expected risk_control(metric=recall, at_least=0.9)"
        )
