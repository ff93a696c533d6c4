"""Node probabilities of documents, and what can be done with them before anyone decides."""

from treelabel.scores.core import Scores
from treelabel.scores.store import is_score_file

__all__ = ["Scores", "is_score_file"]
