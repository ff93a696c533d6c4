"""Conformal prediction: nodes that cover the truth with a required probability, found on validation documents.

A set of nodes covers a document if one of them is true (its terminal node, or an ancestor of it); the root, which is
predicted as no label at all, covers every document. Sets are nested: the larger t, the larger the set. r_i is the least
t from which on the set of validation document i covers it. By split conformal prediction t is the ceil((n + 1)
coverage)-th smallest of the r_i, and a new document that is exchangeable with the n documents is covered with at least
that probability: over the draw of the validation documents and of the new one together, not given either of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np

from treelabel.core.errors import TreelabelError, quote
from treelabel.core.types import DoubleArray, LongArray, ScoreArray
from treelabel.hierarchy.label_matrices import LabelMatrix, from_sizes, matches, rows_of
from treelabel.rules import node_sets
from treelabel.rules.back_off import first_entries, list_leaf_paths
from treelabel.rules.risk_bounds import EVERYTHING, require_share
from treelabel.rules.score_rows import over_numbered_scores, single_labels
from treelabel.rules.threshold import whole_number
from treelabel.scores.score_matrix import Scores

SCORES: Final = ("lac", "aps", "raps")
GROUPS: Final = ("top", "level")
# The coverage that is asked for by default.
USUAL_COVERAGE: Final = 0.9


def conformal(
    scores: Scores,
    t: float | Sequence[float] | ScoreArray | None = None,
    coverage: float | None = None,
    nodes: int = 1,
    score: str = "lac",
    randomised: bool = False,
    group: str | None = None,
    penalty: float = 0.01,
    k_reg: int = 5,
    seed: int = 0,
    limits: DoubleArray | None = None,
) -> LabelMatrix:
    """Predict at most `nodes` nodes that cover the truth with the probability that t was found for; or the root.

    With one node and the score "lac", climb from the best leaf to its deepest ancestor with a probability above t, as
    `back_off` does; in a DAG by the parents with the largest scores. Otherwise take leaves by falling probability until
    their nonconformity score exceeds t, and predict the nodes, at most so many, that hold them and the fewest other
    leaves; this needs a tree. Where paths may end inside, inner nodes are taken like leaves. The root is predicted as
    no label. `tune(truth, scores, "conformal(coverage=0.9)")` finds t. Linear in the scores.

    Parameters
    ----------
    t
        The limit: one number, or one for each group.
    coverage
        The coverage that t was found for; for `tune`.
    nodes
        How many nodes at most.
    score
        The nonconformity score of leaves: "lac", "aps" or "raps".
    randomised
        Whether aps and raps count a random share of the leaf's own probability, drawn from the document's scores.
    group
        Which documents have a t of their own: those with the same predicted "top" label, or whose best leaf is on the
        same "level".
    penalty, k_reg
        The penalty of raps for each leaf beyond the k_reg-th.
    seed
        Seed of the random shares.
    limits : array of shape (documents,)
        The limit of each document, in place of t: what a tuned rule finds by a column of the data.

    Returns
    -------
    label matrix of shape (documents, nodes)

    >>> from treelabel.hierarchy import Hierarchy
    >>> h = Hierarchy.from_paths(["A > B", "A > C", "D"])
    >>> s = Scores.from_leaves(h, ["B", "C", "D"], [[0.5, 0.25, 0.25]])
    >>> [[h.names[node] for node in conformal(s, t).indices] for t in (0.25, 0.5, 0.75)]
    [['B'], ['A'], []]
    >>> [h.names[node] for node in conformal(s, 0.75, nodes=2).indices]
    []
    """
    family = ConformalSets(nodes, score, randomised, group, penalty, k_reg, seed)
    if coverage is not None:
        require_share(coverage, "coverage")
    if limits is not None:
        return family.predict(scores, limits)
    if t is None:
        wanted = f"conformal(coverage={USUAL_COVERAGE if coverage is None else coverage:g})"
        raise TreelabelError(
            f"{wanted} has to be calibrated on validation data first: tune(truth, scores, {wanted!r}), or "
            f"treelabel tune VALID SCORES --rule '{wanted}'"
        )
    return family.predict(scores, family.limits_of(scores, t))


def as_limits(t: float | Sequence[float] | ScoreArray) -> DoubleArray:
    """Return limits as an array, refusing what is no number of at least 0."""
    listed = np.asarray(t, np.float64)
    if not (listed >= 0).all():
        raise TreelabelError(f"t has {listed[~(listed >= 0)].flat[0]:g}, expected numbers of at least 0")
    return listed


@dataclass(frozen=True)
class ConformalSets:
    """A family of nested sets of nodes; the settings of `conformal`."""

    nodes: int = 1
    score: str = "lac"
    randomised: bool = False
    group: str | None = None
    penalty: float = 0.01
    k_reg: int = 5
    seed: int = 0

    def __post_init__(self) -> None:
        whole_number(self.nodes, "nodes")
        whole_number(self.k_reg, "k_reg")
        for name, allowed in (("score", SCORES), ("group", (None, *GROUPS))):
            if getattr(self, name) not in allowed:
                listed = ", ".join(each for each in allowed if each is not None)
                raise TreelabelError(f"{name} = {quote(str(getattr(self, name)))}, expected one of {listed}")
        if self.randomised and self.score == "lac":
            raise TreelabelError(
                "the score lac is never randomised; expected score = aps or raps, or randomised = false"
            )
        if not 0 <= self.penalty <= 1:
            raise TreelabelError(f"penalty = {self.penalty:g}, expected a number from 0 to 1")

    @classmethod
    def of(cls, settings: Any) -> "ConformalSets":
        """Make the family of the settings of a rule; others are passed over."""
        return cls(**{each.name: settings[each.name] for each in fields(cls) if each.name in settings})

    @property
    def climbs(self) -> bool:
        """Whether sets are single nodes above the best leaf."""
        return self.nodes == 1 and self.score == "lac"

    def predict(self, scores: Scores, limits: DoubleArray) -> LabelMatrix:
        """Return the set of each document at its limit."""
        if self.climbs:
            paths, values, sizes = list_leaf_paths(scores.coherent())
            rows = np.repeat(np.arange(len(sizes)), sizes)
            entries = first_entries(rows, values > limits[rows], len(sizes))
            chosen = np.full(len(sizes), -1, np.int32)
            chosen[entries >= 0] = paths[entries[entries >= 0]]
            return single_labels(scores.hierarchy, chosen)
        arguments = *self._kernel_arguments(scores), limits, EVERYTHING
        parts = over_numbered_scores(
            scores.coherent(), lambda rows, first: node_sets.choose_node_sets(*arguments, first, rows)
        )
        chosen, counts = map(np.concatenate, zip(*parts, strict=True))
        return from_sizes(chosen, counts, len(scores.hierarchy))

    def cover_limits(self, scores: Scores, truth: LabelMatrix) -> DoubleArray:
        """Return r_i of each document, by closed truth: `EVERYTHING` where only the root covers it.

        Parameters
        ----------
        truth : LabelMatrix, documents x nodes
            Closed.

        Returns
        -------
        array of shape (documents,)
        """
        if self.climbs:
            paths, values, sizes = list_leaf_paths(scores.coherent())
            is_wrong = ~matches(truth, from_sizes(paths, sizes, truth.shape[1]))
            limits = np.zeros(len(sizes))
            # What is above a true node is true: t has to reach the highest wrong one.
            np.maximum.at(limits, np.repeat(np.arange(len(sizes)), sizes)[is_wrong], values[is_wrong])
            return limits
        arguments = *self._kernel_arguments(scores), rows_of(truth), EVERYTHING
        parts = over_numbered_scores(
            scores.coherent(), lambda rows, first: node_sets.cover_limits(*arguments, first, rows)
        )
        return np.concatenate(parts)

    def groups_of(self, scores: Scores) -> tuple[LongArray, int]:
        """Return the group of each document, -1 where no leaf has a score above 0; and how many groups there are."""
        if self.group is None:
            return np.zeros(len(scores), np.int64), 1
        h = scores.hierarchy
        paths, _, sizes = list_leaf_paths(scores.coherent())
        groups, ends = np.full(len(scores), -1, np.int64), np.cumsum(sizes)
        some = sizes > 0
        if self.group == "top":
            groups[some] = paths[ends[some] - 1]
            return groups, h.level_sizes[0] if len(h) else 0
        groups[some] = h.depth[paths[(ends - sizes)[some]]] - 1
        return groups, h.max_depth

    def limits_of(self, scores: Scores, t: float | Sequence[float] | ScoreArray) -> DoubleArray:
        """Return the limit of each document: its group's t."""
        listed = as_limits(t)
        if listed.ndim == 0 and self.group is None:
            return np.full(len(scores), float(listed))
        groups, count = self.groups_of(scores)
        if listed.shape != (count,):
            per_group = "" if self.group is None else f" (one for each {self.group})"
            raise TreelabelError(f"t has {listed.size:,} numbers, expected {count:,}{per_group}")
        # A group of -1 has no leaf, and gets the root whatever its limit.
        return np.append(listed, EVERYTHING)[groups]

    def _kernel_arguments(self, scores: Scores) -> tuple[node_sets.SetTree, node_sets.SetOptions]:
        h = scores.hierarchy
        if not h.is_tree:
            raise TreelabelError(
                "sets of leaves need a tree, but the hierarchy is a DAG; conformal(nodes=1, score=lac) climbs in a "
                "DAG, too, or make it a tree with unfold()"
            )
        tree = node_sets.SetTree(h.parent, h.is_leaf, h.leaf_counts, len(h.leaves))
        kind = node_sets.LAC if self.score == "lac" else node_sets.APS
        penalty = float(self.penalty) if self.score == "raps" else 0.0
        # More nodes than leaves make no difference.
        most = min(int(self.nodes), max(1, len(h.leaves)))
        seed = int(self.seed) if self.randomised else -1
        return tree, node_sets.SetOptions(kind, seed, penalty, int(self.k_reg), most)
