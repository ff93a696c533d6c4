"""Decision rules: from scores to label sets. The table RULES has one row each."""

from treelabel.rules.deciding import decide
from treelabel.rules.decisions import Decisions
from treelabel.rules.listed import RULES
from treelabel.rules.table import Rule
from treelabel.rules.tuned import Tuned

__all__ = ["RULES", "Decisions", "Rule", "Tuned", "decide"]
