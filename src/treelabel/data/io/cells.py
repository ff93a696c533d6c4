"""Values as the texts of cells, in CSV and in Excel."""

import json
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from treelabel.core.json_lines import number_texts, text_scalar


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
