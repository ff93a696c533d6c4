"""Findings about a dataset that a careful colleague would tell, each with what mends it."""

from treelabel.data.findings.finding import Finding, Inspected
from treelabel.data.findings.registry import FINDINGS, find_problems

__all__ = ["FINDINGS", "Finding", "Inspected", "find_problems"]
