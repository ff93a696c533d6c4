"""Reports: one self-contained HTML file that shows how good systems are, and where they go wrong."""

from treelabel.report.writing import write_report

__all__ = ["write_report"]
