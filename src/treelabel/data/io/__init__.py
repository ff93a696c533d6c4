"""Files and Arrow tables: one module per format, rows in FORMATS, and `open_tables` and `write_tables` for all."""

from treelabel.data.io.format import BATCH, Format, Part, Problem, ReadOptions, TableSource, WriteOptions
from treelabel.data.io.registry import FORMATS, format_of, format_to_read, require_table_format
from treelabel.data.io.tables import open_tables, repeatable, write_table, write_tables

__all__ = [
    "BATCH",
    "FORMATS",
    "Format",
    "Part",
    "Problem",
    "ReadOptions",
    "TableSource",
    "WriteOptions",
    "format_of",
    "format_to_read",
    "open_tables",
    "repeatable",
    "require_table_format",
    "write_table",
    "write_tables",
]
