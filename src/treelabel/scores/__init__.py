"""Node probabilities of documents, and what can be done with them before anyone decides."""

from treelabel.scores.core import Scores

__all__ = ["Scores"]
