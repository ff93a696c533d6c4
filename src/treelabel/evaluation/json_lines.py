"""Lines of JSON for many documents at once, made of columns: no Python object per document."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from treelabel.core.errors import printable
from treelabel.evaluation.written_labels import WrittenLabels, number_texts

# What lines are made of: columns of text, and what is the same in all lines. They are copied once, into the lines.
Parts = list[Any]

# What JSON escapes, and what would drive a terminal: see `printable`.
MUST_BE_ESCAPED = r'["\\\x00-\x1f\x{7f}-\x{9f}\x{2028}-\x{202e}\x{2066}-\x{2069}]'


def json_text(value: Any) -> str:
    r"""Write a value as JSON that can be printed: what would drive a terminal is escaped.

    >>> json_text("A\x9b\u202e")
    '"A\\u009b\\u202e"'
    """
    return printable(json.dumps(value, ensure_ascii=False, default=str))


def json_strings(texts: Any) -> pa.Array:
    r"""Write texts as JSON does, with quotes; nothing is null.

    >>> json_strings(pa.array(["a", 'say "a"\n', None], pa.large_string())).to_pylist()
    ['"a"', '"say \\"a\\"\\n"', 'null']
    """
    column = (texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts).cast(pa.large_string())
    quoted = joined(['"', column, '"'])
    is_odd = pc.fill_null(pc.match_substring_regex(column, MUST_BE_ESCAPED), False)
    if pc.any(is_odd).as_py():
        own = [json_text(text) for text in column.filter(is_odd).to_pylist()]
        quoted = pc.replace_with_mask(quoted, is_odd, pa.array(own, pa.large_string()))
    return pc.fill_null(quoted, _text("null"))


def json_values(column: Any) -> pa.Array:
    """Write the values of a column as JSON."""
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return json_strings(column)
    values = [json_text(value) for value in column.to_pylist()]
    return pa.array(values, pa.large_string())


def string_parts(texts: Any) -> Parts:
    """Write texts as JSON does: as they are between quotes, where nothing in any of them has to be escaped."""
    column = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
    is_plain = column.null_count == 0 and not pc.any(pc.match_substring_regex(column, MUST_BE_ESCAPED)).as_py()
    return ['"', column.cast(pa.large_string()), '"'] if is_plain else [json_strings(column)]


def label_parts(labels: WrittenLabels) -> Parts:
    """Write the labels of each document as a list of objects {"label": name, "path": "A > B", "p": 0.93}."""
    known, place = np.unique(labels.nodes, return_inverse=True)
    h = labels.hierarchy
    starts = [
        f'{{"label": {json_text(h.names[node])}, "path": {json_text(path)}'
        for node, path in zip(known.tolist(), h.paths(known), strict=True)
    ]
    parts: Parts = [pa.array(starts, pa.large_string()).take(pa.array(place))]
    if labels.p is not None:
        parts += [', "p": ', number_texts(labels.p)]
    if (np.diff(labels.ptr) == 1).all():
        return ["[", *parts, "}]"]
    return ["[", pc.binary_join(labels.lists(joined([*parts, "}"])), _text(", ")), "]"]


def json_objects(fields: Mapping[str, Parts], flags: Mapping[str, Any]) -> pa.Array:
    """Write one line of JSON per document.

    Parameters
    ----------
    fields : mapping
        What the text of the value of each key is made of.
    flags : mapping
        Keys that are there, and true, in some documents only: which ones.

    Returns
    -------
    array of text
        Lines without their ends.
    """
    parts: Parts = []
    for name, values in fields.items():
        parts += [f"{', ' if parts else '{'}{json_text(name)}: ", *values]
    for name, mask in flags.items():
        if mask.all():
            parts.append(f', "{name}": true')
        elif mask.any():
            parts.append(pc.if_else(pa.array(mask), _text(f', "{name}": true'), _text("")))
    return joined([*parts, "}"])


def joined(parts: Parts) -> pa.Array:
    """Join columns and constants, row by row; what is null in one of them is null."""
    merged: Parts = []
    for part in parts:
        if isinstance(part, str) and merged and isinstance(merged[-1], str):
            merged[-1] += part
        else:
            merged.append(part)
    return pc.binary_join_element_wise(*(_text(part) if isinstance(part, str) else part for part in merged), _text(""))


def _text(value: str) -> pa.Scalar:
    return pa.scalar(value, pa.large_string())
