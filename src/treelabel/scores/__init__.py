"""Node probabilities of documents, and what can be done with them before anyone decides."""

from treelabel.scores.score_files import is_score_file
from treelabel.scores.score_matrix import Scores

__all__ = ["Scores", "is_score_file"]
