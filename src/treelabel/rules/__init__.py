"""Decision rules: from scores to label sets. The registry RULES has one row per rule."""

from treelabel.rules.decisions import Decisions, TunedRule, decide, decides_on_all
from treelabel.rules.path_counts import fit_counts
from treelabel.rules.registry import RULES, Rule

__all__ = ["RULES", "Decisions", "Rule", "TunedRule", "decide", "decides_on_all", "fit_counts"]
