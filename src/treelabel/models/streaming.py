"""Score and decide a batch of texts at a time: memory grows with a batch, not with the number of texts."""

import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from treelabel.core.bounded_memory import BLOCK_SCORES, MANY_NODES, TOP_SCORES
from treelabel.core.strings import Strings
from treelabel.core.types import BoolArray
from treelabel.models.model_inputs import texts_of
from treelabel.rules.decisions import Decisions, TunedRule, decide, decides_on_all
from treelabel.rules.tuned_rule import column_of, load_rule
from treelabel.scores.score_matrix import Scores

# Texts of a batch at most, and where there are so many nodes that models keep the largest scores only.
MOST_TEXTS = 1 << 14
TEXTS_OF_MANY_NODES = 1 << 9


class RuleOfAllWarning(UserWarning):
    """Says that a rule cannot decide on a batch before it has seen the last one."""


class Decided(NamedTuple):
    """A batch that was decided: what came along with its texts, scores, decisions, and which texts are blank."""

    carried: Any
    scores: Scores
    decisions: Decisions
    blank: BoolArray


def batch_size(nodes: int) -> int:
    """Return how many texts to score at once, so that their scores take some 16 MB.

    >>> batch_size(100), batch_size(3_400), batch_size(1_000_000)
    (16384, 1233, 512)
    """
    return TEXTS_OF_MANY_NODES if nodes > MANY_NODES else min(MOST_TEXTS, BLOCK_SCORES // max(1, nodes))


def blank_texts(texts: Any) -> BoolArray:
    """Mark texts that say nothing; features always say something."""
    return texts.blank() if isinstance(texts, Strings) else np.zeros(texts.shape[0], np.bool_)


def decide_texts(scores: Scores, blank: BoolArray, rule: str | TunedRule, **settings: Any) -> Decisions:
    """Decide by a rule; of a text that says nothing, nothing is known.

    Parameters
    ----------
    scores
        The scores of texts.
    blank
        Which of these are blank.
    rule, **settings
        As for `decide`.

    Returns
    -------
    Decisions
    """
    decisions = decide(scores, rule, **settings)
    return decisions.without(blank) if blank.any() else decisions


def decided_batches(
    model: Any,
    batches: Iterable[tuple[Any, Any]],
    rule: str | TunedRule | None = None,
    columns: Callable[[Any, Any], Any] = lambda texts, carried: texts,
    **settings: Any,
) -> Iterator[Decided]:
    """Score and decide batches one after another.

    A rule of all documents together has to wait for the last batch. Until then the largest scores of each text are
    kept, and a warning says so.

    Parameters
    ----------
    model : Model
        A model that has learned.
    batches : iterable of pairs
        Texts as `Model.score` takes them, and whatever is to come along with them.
    rule : str or Tuned, optional
        As for `Model.predict`.
    columns : callable, optional
        Returns the columns of a batch, for a rule that was tuned by one; by default those of its Dataset.
    **settings
        Of the rule.

    Yields
    ------
    Decided
        One per batch.
    """
    if not hasattr(model, "hierarchy_"):
        # For what it says then.
        model.score([])
    asked = model.default_rule if rule is None else load_rule(rule)
    if decides_on_all(asked, model.hierarchy_, **settings):
        yield from _decided_together(model, batches, asked, settings)
        return
    for texts, carried in batches:
        column, _ = texts_of(texts)
        scores, blank = model.score(column), blank_texts(column)
        by = columns(texts, carried) if column_of(asked) is not None else None
        yield Decided(carried, scores, decide_texts(scores, blank, asked, by=by, **settings), blank)


def _decided_together(
    model: Any, batches: Iterable[tuple[Any, Any]], rule: str | TunedRule, settings: dict[str, Any]
) -> Iterator[Decided]:
    nodes = len(model.hierarchy_)
    top = None if nodes <= TOP_SCORES else TOP_SCORES
    kept = "all" if top is None else f"the {top} largest"
    warnings.warn(
        RuleOfAllWarning(
            f"the rule {rule if isinstance(rule, str) else rule.rule} decides on all documents together: nothing comes "
            f"out before the last one is scored, and until then {kept} scores of each are in memory"
        ),
        stacklevel=3,
    )
    held: list[tuple[Any, Scores, BoolArray]] = []
    for texts, carried in batches:
        column, _ = texts_of(texts)
        held.append((carried, model.score(column, top=top), blank_texts(column)))
    if not held:
        return
    every = Scores.concat(model.hierarchy_, [scores.values for _, scores, _ in held])
    decisions = decide_texts(every, np.concatenate([blank for _, _, blank in held]), rule, **settings)
    start = 0
    for carried, scores, blank in held:
        stop = start + len(scores)
        yield Decided(carried, scores, decisions[start:stop], blank)
        start = stop
