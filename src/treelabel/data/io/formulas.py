"""Cells that a spreadsheet would run as formulas, escaped so that treelabel reads back exactly what was there.

Whoever opens a CSV file in a spreadsheet runs every cell that begins with one of = + - @, a tab or a carriage return.
The usual remedy is an apostrophe in front of it, which changes the text for everybody else, too: a model would learn
from "'-5 degrees". So a file with escaped cells says so in one more column, MARKER, which holds the number of escaped
cells of each row; the reader takes that column out, and one apostrophe off each escaped cell. It never guesses: in a
file without the column, and in a row whose number is 0 or empty, apostrophes are text.

In a marked row, a cell that begins with apostrophes and then one of the characters gets one more, so that taking one
off is always right. Plain numbers such as -3.5 are not formulas, and are left alone.
"""

import re
from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

MARKER = "treelabel:escaped"

# What Python's and Arrow's regular expressions understand alike.
FORMULA_PATTERN = r"^'*[=+\-@\t\r]"
FORMULA = re.compile(FORMULA_PATTERN)
ESCAPED = re.compile(r"^'+[=+\-@\t\r]")
UNESCAPE_PATTERN = r"^'('*[=+\-@\t\r])"
NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)


class EscapedFormulasWarning(UserWarning):
    """Says how many cells of a file were escaped."""


def escape(cell: str) -> str:
    """Put an apostrophe in front of a cell that a spreadsheet would run.

    >>> escape("=1+1"), escape("-3.5"), escape("'=1"), escape("text")
    ("'=1+1", '-3.5', "''=1", 'text')
    """
    return f"'{cell}" if FORMULA.match(cell) and not NUMBER.fullmatch(cell) else cell


def unescape(cell: str) -> str:
    """Undo `escape`.

    >>> unescape("'=1+1"), unescape("''=1"), unescape("'text'")
    ('=1+1', "'=1", "'text'")
    """
    return cell[1:] if ESCAPED.match(cell) else cell


def restored_row(values: dict[str, str]) -> dict[str, str]:
    """Take out the count of escaped cells, and undo `escape` where there are any."""
    count = values.pop(MARKER)
    return values if count in ("", "0") else {name: unescape(cell) for name, cell in values.items()}


def may_hold_formulas(columns: Iterable[pa.ChunkedArray | pa.Array]) -> bool:
    """Return whether any cell of some columns might be taken for a formula."""
    return any(map(_has_formula, columns))


def _has_formula(column: pa.ChunkedArray | pa.Array) -> bool:
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    # Values of other types are written as numbers or as JSON, which begin with none of the characters.
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return False
    return bool(pc.any(pc.match_substring_regex(column, FORMULA_PATTERN)).as_py())
