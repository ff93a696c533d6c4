"""Findings about a dataset that a careful colleague would report, each with what mends it."""

from treelabel.data.checks.finding import CheckInput, Finding
from treelabel.data.checks.registry import FINDINGS, find_problems

__all__ = ["FINDINGS", "CheckInput", "Finding", "find_problems"]
