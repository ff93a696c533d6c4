"""Judging: evaluate and compare systems, with intervals; prediction files; alignment by id."""

from treelabel.evaluation.comparison import compare
from treelabel.evaluation.evaluator import Evaluator, evaluate
from treelabel.evaluation.result import Result

__all__ = ["Evaluator", "Result", "compare", "evaluate"]
