"""JSON Lines, a JSON array of objects, and the benchmark form with `token` and `label`."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from treelabel.core.errors import TreelabelError, quote
from treelabel.core.inputs import first_mark, open_input, text_lines, whole_lines
from treelabel.core.json_lines import json_lines
from treelabel.core.json_text import JsonLimitError, parse_json
from treelabel.core.limits import Limits
from treelabel.data.io.format import Problem, ReadOptions, Record, TableEncoder, TableSource, parsed_lines, parts_of


def read_json_lines(path: Path, options: ReadOptions) -> TableSource:
    """Read one JSON object per line; a file that starts with "[" is read whole as an array.

    Python's parser reads the lines: pyarrow's takes texts that look like dates for dates, does not tell a missing field
    from null, and has no limit on nesting.
    """
    return TableSource(parts_of(_records(path, options), path, options.limits))


def _records(path: Path, options: ReadOptions) -> Iterator[Record | Problem]:
    with open_input(path, options.seen, options.limits) as stream:
        if first_mark(stream, path, options.encoding) == b"[":
            yield from _array(path, whole_lines(stream, path, options.encoding, options.limits), options.limits)
            return
        lines = text_lines(stream, path, options.encoding, options.limits)
        yield from parsed_lines(lines, lambda number, line: _parse(number, line, options.limits))


def _parse(number: int, line: str, limits: Limits) -> Record | Problem:
    try:
        values = parse_json(line, limits)
    except json.JSONDecodeError as error:
        return Problem(number, f"not valid JSON: {error.msg} at character {error.pos + 1}")
    except JsonLimitError as error:
        return Problem(number, str(error))
    return _record(number, values, "\\ud" in line.lower())


def _record(number: int, values: Any, has_surrogates: bool) -> Record | Problem:
    if has_surrogates:
        try:
            json.dumps(values, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            half = error.object[error.start]
            return Problem(number, f"{half!r} is half of a character (a lone surrogate), which no text can hold")
    if not isinstance(values, dict):
        return Problem(
            number, f"expected a JSON object with fields, found {type(values).__name__} {quote(str(values), 60)}"
        )
    return Record(number, values)


def _array(path: Path, lines: list[str], limits: Limits) -> Iterator[Record | Problem]:
    text = "".join(lines)
    try:
        values = parse_json(text, limits)
    except json.JSONDecodeError as error:
        raise TreelabelError(
            f"{path}:{error.lineno}: not valid JSON: {error.msg} at character {error.colno}"
        ) from error
    except JsonLimitError as error:
        raise TreelabelError(f"{path}: JSON that cannot be read: {error}") from error
    has_surrogates = "\\ud" in text.lower()
    for number, value in enumerate(values, 1):
        yield _record(number, value, has_surrogates)


class JsonLinesEncoder(TableEncoder):
    """Writes tables as one object per line."""

    def encode(self, table: pa.Table) -> bytes:
        """Return the lines of a table."""
        return json_lines(dict(zip(table.column_names, table.columns, strict=True)))


class HtcEncoder(TableEncoder):
    """Writes the form that benchmarks of hierarchical text classification share: `token` and `label`."""

    def encode(self, table: pa.Table) -> bytes:
        """Return the lines of a table."""
        return json_lines({"token": table.column(self.options.text), "label": table.column(self.options.labels[0])})
