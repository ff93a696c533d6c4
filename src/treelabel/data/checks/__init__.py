"""Findings about a dataset that a careful colleague would tell, each with what mends it."""

from treelabel.data.checks.finding import Finding, Inspected
from treelabel.data.checks.registry import FINDINGS, find_problems

__all__ = ["FINDINGS", "Finding", "Inspected", "find_problems"]
