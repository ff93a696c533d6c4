"""File formats: one module per format, rows in FORMATS."""

from treelabel.data.formats.registry import FORMATS, format_of, format_to_read
from treelabel.data.formats.rows import BATCH, Format, Output, Problem, ReadOptions, Row, RowSource

__all__ = [
    "BATCH",
    "FORMATS",
    "Format",
    "Output",
    "Problem",
    "ReadOptions",
    "Row",
    "RowSource",
    "format_of",
    "format_to_read",
]
