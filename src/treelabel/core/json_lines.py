"""Columns of Arrow tables written as text for many rows at once, as JSON has it: no Python object per row."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from treelabel.core.errors import printable
from treelabel.core.types import DoubleArray

# What JSON escapes, and what would drive a terminal: see `printable`.
MUST_BE_ESCAPED = r'["\\\x00-\x1f\x{7f}-\x{9f}\x{2028}-\x{202e}\x{2066}-\x{2069}]'
# From here to 1, Arrow writes numbers as Python does.
LEAST_PLAIN = 1e-4


def json_lines(columns: Mapping[str, Any], optional: Sequence[str] = ()) -> bytes:
    r"""Write one JSON object per row.

    Parameters
    ----------
    columns : mapping
        Columns of equal length by their names: texts, numbers, and lists and structs of these are quick.
    optional : sequence of str
        Names that are left out of rows where they are null.

    Returns
    -------
    bytes

    >>> json_lines({"id": pa.array(["a", None]), "tags": pa.array([["x"], []])})
    b'{"id": "a", "tags": ["x"]}\n{"id": null, "tags": []}\n'
    """
    return text_bytes(join_texts([*_object_parts(columns, optional), "\n"]))


def json_text(value: Any) -> str:
    r"""Write a value as JSON that can be printed: what would drive a terminal is escaped.

    >>> json_text("A\x9b\u202e")
    '"A\\u009b\\u202e"'
    """
    return printable(json.dumps(value, ensure_ascii=False, default=str))


def json_values(column: Any) -> pa.Array:
    """Write the values of a column as JSON; nothing is null."""
    return join_texts(_parts(column)) if len(column) else pa.array([], pa.large_string())


def number_texts(values: DoubleArray) -> pa.Array:
    """Write numbers as JSON does.

    >>> number_texts(np.array([0.93, 1.0, 0.0, 1e-05])).to_pylist()
    ['0.93', '1.0', '0.0', '1e-05']
    """
    texts = pa.array(values).cast(pa.large_string())
    is_other = ~((values >= LEAST_PLAIN) & (values < 1))
    if not is_other.any():
        return texts
    others = [json.dumps(value) for value in values[is_other].tolist()]
    return pc.replace_with_mask(texts, pa.array(is_other), pa.array(others, pa.large_string()))


# What lines are made of: columns of text, and what is the same in all lines. They are copied once, into the lines.
TextParts = list[Any]


def join_texts(parts: TextParts) -> pa.Array:
    """Join columns and constants, row by row; what is null in one of them is null."""
    merged: TextParts = []
    for part in parts:
        if isinstance(part, str) and merged and isinstance(merged[-1], str):
            merged[-1] += part
        else:
            merged.append(part)
    return pc.binary_join_element_wise(
        *(text_scalar(part) if isinstance(part, str) else part for part in merged), text_scalar("")
    )


def text_scalar(value: str) -> pa.Scalar:
    """Return a text as a value of a column."""
    return pa.scalar(value, pa.large_string())


def text_bytes(texts: pa.Array) -> bytes:
    """Return the texts of a column, one behind the other."""
    _, offsets, data = texts.buffers()
    if data is None:
        return b""
    ends = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    return bytes(memoryview(data)[int(ends[0]) : int(ends[-1])])


def _parts(column: Any) -> TextParts:
    """Return what the JSON of a column is made of."""
    values = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    kind = values.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _string_parts(values)
    if pa.types.is_dictionary(kind):
        return [pc.fill_null(json_values(values.dictionary).take(values.indices), text_scalar("null"))]
    if pa.types.is_floating(kind) and values.null_count == 0:
        return [number_texts(values.cast(pa.float64()).to_numpy(zero_copy_only=False))]
    if pa.types.is_integer(kind):
        return [pc.fill_null(values.cast(pa.large_string()), text_scalar("null"))]
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    if is_list and values.null_count == 0:
        return _list_parts(values)
    if pa.types.is_struct(kind) and values.null_count == 0 and kind.num_fields:
        names = [kind.field(number).name for number in range(kind.num_fields)]
        return _object_parts(dict(zip(names, values.flatten(), strict=True)), ())
    return [pa.array([json_text(value) for value in values.to_pylist()], pa.large_string())]


def _string_parts(texts: pa.Array) -> TextParts:
    """Write texts as they are between quotes, where nothing in any of them has to be escaped."""
    texts = texts.cast(pa.large_string())
    is_special = pc.fill_null(pc.match_substring_regex(texts, MUST_BE_ESCAPED), True)
    if not pc.any(is_special).as_py():
        return ['"', texts, '"']
    written = [json_text(text) for text in texts.filter(is_special).to_pylist()]
    return [pc.replace_with_mask(join_texts(['"', texts, '"']), is_special, pa.array(written, pa.large_string()))]


def _list_parts(lists: pa.Array) -> TextParts:
    lengths = lists.value_lengths().to_numpy(zero_copy_only=False)
    items = lists.flatten()
    if len(lengths) and lengths.min() == 1 == lengths.max():
        return ["[", *_parts(items), "]"]
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])
    return ["[", pc.binary_join(pa.LargeListArray.from_arrays(ends, json_values(items)), text_scalar(", ")), "]"]


def _object_parts(columns: Mapping[str, Any], optional: Sequence[str]) -> TextParts:
    parts: TextParts = []
    for name, column in columns.items():
        key = f"{', ' if parts else '{'}{json_text(name)}: "
        if name in optional and column.null_count == len(column):
            continue
        if name in optional and column.null_count:
            written = join_texts([key, *_parts(column)])
            parts.append(pc.if_else(column.is_valid(), written, text_scalar("")))
        else:
            parts += [key, *_parts(column)]
    return [*(parts or ["{"]), "}"]
