"""File formats: one module per format, rows in FORMATS."""

from treelabel.data.io.formats import FORMATS, format_of, format_to_read
from treelabel.data.io.records import BATCH, Format, Output, Problem, ReadOptions, Record, RowSource

__all__ = [
    "BATCH",
    "FORMATS",
    "Format",
    "Output",
    "Problem",
    "ReadOptions",
    "Record",
    "RowSource",
    "format_of",
    "format_to_read",
]
