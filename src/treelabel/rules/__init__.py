"""Decision rules: from scores to label sets. The registry RULES has one row per rule."""

from treelabel.rules.counts import fit_counts
from treelabel.rules.deciding import decide, decides_on_all
from treelabel.rules.decisions import Decisions
from treelabel.rules.registry import RULES
from treelabel.rules.rule import Rule
from treelabel.rules.tuned import Tuned

__all__ = ["RULES", "Decisions", "Rule", "Tuned", "decide", "decides_on_all", "fit_counts"]
