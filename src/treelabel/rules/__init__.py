"""Decision rules: from scores to label sets. The table RULES has one row each."""

from collections.abc import Callable
from dataclasses import dataclass

from treelabel.errors import TreelabelError
from treelabel.hierarchy import LabelMatrix
from treelabel.rules.decisions import Decisions
from treelabel.rules.threshold import threshold
from treelabel.scores import Scores


@dataclass(frozen=True)
class Rule:
    """A decision rule: how it makes label sets of scores, the number it takes behind "@", and what it is."""

    name: str
    help: str
    decide: Callable[[Scores, float], LabelMatrix]
    default: float


RULES: dict[str, Rule] = {
    row.name: row
    for row in (Rule("threshold", "every node with a score of at least t: threshold@0.5", threshold, 0.5),)
}


def decide(scores: Scores, rule: str = "threshold") -> Decisions:
    """Turn scores into closed label sets by a rule of RULES; "threshold@0.3" gives the rule its number.

    >>> from treelabel.hierarchy import Hierarchy
    >>> h = Hierarchy.from_paths(["A > B", "A > C"])
    >>> decide(Scores(h, [[0.9, 0.6, 0.2]])).names()
    [['A', 'B']]
    """
    name, at, number = rule.partition("@")
    if name not in RULES:
        raise TreelabelError(f"unknown rule {rule!r}; there are: {', '.join(RULES)}")
    row = RULES[name]
    try:
        parameter = float(number) if at else row.default
    except ValueError:
        raise TreelabelError(f"rule {rule!r}: expected a number behind @, such as {name}@{row.default:g}") from None
    chosen = scores.hierarchy.closure(row.decide(scores, parameter))
    return Decisions(scores.hierarchy, chosen, scores.ids, rule)


__all__ = ["RULES", "Decisions", "Rule", "decide"]
