"""Guess the separator that makes paths of labels from the labels alone: A/B/C is a path among many that begin with A/B.

Names have slashes too (TCP/IP, R&D / ops), dates and addresses are full of them, and "joy|love" may be two labels. So a
separator is taken only where it explains the labels: nearly all have it or are the beginning of those that have it, few
beginnings are shared by many, and names keep to one level. Where that is not clear, there is none.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from treelabel.hierarchy.hierarchy import SEPARATOR, split_path


class SeparatorEvidence(NamedTuple):
    """The evidence that a mark needs before it is taken for a separator."""

    mark: str
    labels: int
    spread: float
    moved: float
    tops: float


# Marks that stand in few names ask for less.
DEMANDS = (
    SeparatorEvidence(">", labels=3, spread=1.0, moved=0.2, tops=0.75),
    SeparatorEvidence("::", labels=3, spread=1.0, moved=0.2, tops=0.75),
    SeparatorEvidence("\\", labels=3, spread=1.0, moved=0.2, tops=0.75),
    SeparatorEvidence("/", labels=4, spread=0.25, moved=0.05, tops=0.5),
    SeparatorEvidence("|", labels=6, spread=0.1, moved=0.02, tops=0.5),
)
# Marks that stand between names as often as within them: they are offered, never taken.
OFFERED = (
    SeparatorEvidence(":", labels=4, spread=0.25, moved=0.05, tops=0.5),
    SeparatorEvidence("--", labels=4, spread=0.25, moved=0.05, tops=0.5),
)
# How many of the labels may be left unexplained, for instance by an empty name.
UNEXPLAINED = 0.05
# Labels that are no paths may be top labels without children; at least this share must be paths.
LEAST_PATHS = 0.5
# A first name with so many labels below it is a beginning that is shared.
SHARED = 2
# Evidence does not grow much beyond this many labels, and time does.
MOST_LABELS = 20_000
NO_NAME = re.compile(r"[\d\s.,:%+-]*")


def guess_separator(labels: Iterable[str]) -> str | None:
    """Find the separator that makes paths of labels, if one clearly does.

    Parameters
    ----------
    labels
        Different labels, as they were given.

    Returns
    -------
    str or None
        With spaces around it if it always has them.

    >>> guess_separator(["Food/Dairy/Milk", "Food/Dairy/Cheese", "Food/Meat", "Home/Garden", "Home/Kitchen"])
    '/'
    >>> guess_separator(["joy|love", "anger|joy", "love|anger", "joy"]) is None
    True
    >>> guess_separator(["TCP/IP", "A/B testing", "R&D / ops", "networks"]) is None
    True
    """
    texts = list(dict.fromkeys(label.strip() for label in labels))[:MOST_LABELS]
    if texts and sum(SEPARATOR in text for text in texts) > len(texts) / 2:
        return SEPARATOR
    candidates = [
        separator
        for demand in DEMANDS
        for separator in (f" {demand.mark} ", demand.mark)
        if sum(separator in text for text in texts) >= demand.labels and _explains(separator, demand, texts)
    ]

    def others_in_first_names(separator: str) -> int:
        tops = {split_path(text, separator)[0] for text in texts}
        return sum(other.strip() in top for other in candidates if other.strip() != separator.strip() for top in tops)

    # Where two explain the labels, one of them stands in names: CS|CS/learning begins with CS.
    return min(candidates, key=others_in_first_names, default=None)


def offer_separator(labels: Iterable[str]) -> str | None:
    """Find a mark that would make paths of labels, but is too usual in names to be taken without being asked for.

    >>> offer_separator(["DESC:manner", "DESC:reason", "DESC:definition", "NUM:count", "NUM:date", "LOC:city"])
    ':'
    >>> offer_separator(["note: one", "two", "three: four"]) is None
    True
    """
    texts = list(dict.fromkeys(label.strip() for label in labels))[:MOST_LABELS]
    return next((demand.mark for demand in OFFERED if _explains(demand.mark, demand, texts)), None)


def _explains(separator: str, demand: SeparatorEvidence, texts: Sequence[str]) -> bool:
    # Spellings of a name are one name: what is written in several ways is no evidence against a path.
    split = list(
        dict.fromkeys(tuple(name.strip().casefold() for name in split_path(text, separator)) for text in texts)
    )
    paths = [path for path in split if len(path) > 1]
    good = [path for path in paths if not any(NO_NAME.fullmatch(name) for name in path)]
    # With spaces left out somewhere, the mark alone may separate.
    bare = sum(len(path) == 1 and demand.mark in path[0] for path in split)
    if len(paths) - len(good) + bare > UNEXPLAINED * len(paths) or len(good) < demand.labels:
        return False
    return _is_covering(split, good, demand) and _is_sharing(good, demand) and _is_orderly(good, demand)


def _is_covering(split: Sequence[Sequence[str]], paths: Sequence[Sequence[str]], demand: SeparatorEvidence) -> bool:
    """Return whether the labels that are no paths are few, or beginnings of those that are, but not ends of them."""
    tops, ends = {path[0] for path in paths}, {name for path in paths for name in path[1:]}
    alone = [path[0] for path in split if len(path) == 1]
    explained = sum(name in tops for name in alone)
    moved = sum(name in ends for name in alone)
    return len(paths) >= LEAST_PATHS * (len(split) - explained) and moved <= demand.moved * len(split)


def _is_sharing(paths: Sequence[Sequence[str]], demand: SeparatorEvidence) -> bool:
    """Return whether few first names begin many labels."""
    below = Counter(path[0] for path in paths)
    shared = sum(count >= SHARED for count in below.values())
    return len(below) <= demand.tops * len(paths) and (shared >= 2 or max(map(len, paths)) > 2 or demand.mark != "|")


def _is_orderly(paths: Sequence[Sequence[str]], demand: SeparatorEvidence) -> bool:
    """Return whether names keep to one level and, as far as the mark demands it, to one parent."""
    levels: dict[str, set[int]] = {}
    parents: dict[str, set[tuple[str, ...]]] = {}
    for path in paths:
        for level, name in enumerate(path):
            levels.setdefault(name, set()).add(level)
            parents.setdefault(name, set()).add(tuple(path[:level]))
    moved = sum(len(each) > 1 for each in levels.values())
    spread = sum(len(each) > 1 for each in parents.values())
    return moved <= demand.moved * len(levels) and spread <= demand.spread * len(levels)
