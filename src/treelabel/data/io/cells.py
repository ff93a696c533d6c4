"""Values as the texts of cells in CSV and in Excel, and cells that a spreadsheet would run as formulas.

Whoever opens a CSV file in a spreadsheet runs every cell that begins with one of = + - @, a tab or a carriage return.
The usual remedy is an apostrophe in front of it, which changes the text for everybody else, too: a model would learn
from "'-5 degrees". So a file with escaped cells says so in one more column, MARKER, which holds the number of escaped
cells of each row; the reader takes that column out, and one apostrophe off each escaped cell. It never guesses: in a
file without the column, and in a row whose number is 0 or empty, apostrophes are text.

In a marked row, a cell that begins with apostrophes and then one of the characters gets one more, so that taking one
off is always right. Plain numbers such as -3.5 are not formulas, and are left alone.
"""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from treelabel.core.json_lines import join_texts, number_texts, text_scalar
from treelabel.core.types import LongArray

MARKER = "treelabel:escaped"

# What Python's and Arrow's regular expressions understand alike.
FORMULA_PATTERN = r"^'*[=+\-@\t\r]"
UNESCAPE_PATTERN = r"^'('*[=+\-@\t\r])"
NUMBER_PATTERN = r"^(?:[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?)$"
# Of files whose bytes are searched for formulas: their endings, their size, and what a formula begins with there.
LINE_ENDINGS = (".csv", ".tsv", ".txt", ".jsonl")
MOST_SEARCHED = 1 << 26
FORMULA_IN_LINE = re.compile(
    rb"""(?:\A|[,;|\t"\n]) *'*(?![+-]?\d+(?:\.\d+)?(?:[,;|\t"\r\n}]|\Z))(?:[=+\-@]|(?<!\t)\t|\r(?!\n)|\\)"""
)


class EscapedFormulasWarning(UserWarning):
    """Says how many cells of a file were escaped."""


def escape(cell: str) -> str:
    """Put an apostrophe in front of a cell that a spreadsheet would run.

    >>> escape("=1+1"), escape("-3.5"), escape("'=1"), escape("text")
    ("'=1+1", '-3.5', "''=1", 'text')
    """
    is_number = re.fullmatch(NUMBER_PATTERN, cell, re.ASCII) is not None
    return f"'{cell}" if re.match(FORMULA_PATTERN, cell) and not is_number else cell


def unescape(cell: str) -> str:
    """Undo `escape`.

    >>> unescape("'=1+1"), unescape("''=1"), unescape("'text'")
    ('=1+1', "'=1", "'text'")
    """
    return re.sub(UNESCAPE_PATTERN, r"\1", cell)


def restored_row(values: dict[str, str]) -> dict[str, str]:
    """Take out the count of escaped cells, and undo `escape` where there are any."""
    count = values.pop(MARKER)
    return values if count in ("", "0") else {name: unescape(cell) for name, cell in values.items()}


def restored_table(table: pa.Table) -> pa.Table:
    """Do the same for the rows of a table."""
    counts = table.column(MARKER)
    is_escaped = pc.invert(pc.is_in(counts, pa.array(["", "0"], counts.type)))
    plain = table.drop_columns(MARKER)
    columns = [
        pc.if_else(is_escaped, pc.replace_substring_regex(column, UNESCAPE_PATTERN, r"\1"), column)
        for column in plain.columns
    ]
    return pa.table(columns, names=plain.column_names) if columns else plain


def escape_cells(cells: pa.Array, counts: LongArray) -> pa.Array:
    """Escape the cells of a column, and count them by row."""
    is_formula = pc.match_substring_regex(cells, FORMULA_PATTERN)
    if not pc.any(is_formula).as_py():
        return cells
    is_formula = pc.and_(is_formula, pc.invert(pc.match_substring_regex(cells, NUMBER_PATTERN)))
    counts += is_formula.to_numpy(zero_copy_only=False)
    return pc.if_else(is_formula, join_texts(["'", cells]), cells)


def may_hold_formulas(columns: Iterable[pa.ChunkedArray | pa.Array]) -> bool:
    """Return whether any cell of some columns might be taken for a formula."""
    for column in columns:
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        # Values of other types are written as numbers or as JSON, which begin with none of the characters.
        is_text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
        if is_text and pc.any(pc.match_substring_regex(column, FORMULA_PATTERN)).as_py():
            return True
    return False


def file_may_hold_formulas(path: Path) -> bool:
    """Return False only where no cell of a file of lines can be taken for a formula, by a look at its bytes.

    What begins like a formula behind a delimiter, a quote or a line break counts, plain numbers aside; so does any
    escaped character of JSON. Files that are large, compressed or no text are not looked into.
    """
    if path.suffix.lower() not in LINE_ENDINGS or not path.is_file() or path.stat().st_size > MOST_SEARCHED:
        return True
    content = path.read_bytes()
    return b"\0" in content or FORMULA_IN_LINE.search(content) is not None


def text_cells(column: Any, is_labels: bool) -> pa.Array:
    """Write a column as cells; nothing is empty.

    Parameters
    ----------
    column
        Values of any type.
    is_labels
        Whether lists are labels, of which a single one stands alone (see `label_cell`).

    Returns
    -------
    pa.Array
        Texts.
    """
    kind = column.type
    values = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if pa.types.is_dictionary(kind):
        return text_cells(values.cast(kind.value_type), is_labels)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_integer(kind):
        texts = values.cast(pa.large_string())
    elif pa.types.is_floating(kind):
        numbers = number_texts(pc.fill_null(values.cast(pa.float64()), 0.5).to_numpy(zero_copy_only=False))
        texts = pc.if_else(values.is_valid(), numbers, text_scalar(""))
    else:
        write = label_cell if is_labels else value_cell
        texts = pa.array([write(value) for value in values.to_pylist()], pa.large_string())
    return pc.fill_null(texts, text_scalar(""))


def label_cell(labels: list[str] | None) -> str:
    """Write labels into one cell: a single name as it is, several as a JSON list.

    >>> label_cell(["A"]), label_cell(["A", "B"]), label_cell([])
    ('A', '["A", "B"]', '')
    """
    if not labels:
        return ""
    if len(labels) == 1 and labels[0][:1] != "[" and labels[0] == labels[0].strip():
        return labels[0]
    return json.dumps(labels, ensure_ascii=False)


def value_cell(value: object) -> str:
    """Write a value into a cell: a text or a date as it is, anything else as JSON.

    >>> value_cell("a"), value_cell(None), value_cell([1, "é"]), value_cell(True)
    ('a', '', '[1, "é"]', 'true')
    """
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    is_json = isinstance(value, dict | list | bool | float | int)
    return json.dumps(value, ensure_ascii=False, default=str) if is_json else str(value)
