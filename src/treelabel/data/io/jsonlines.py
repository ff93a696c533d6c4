"""JSON Lines, a JSON array of objects, and the benchmark form with `token` and `label`."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from treelabel.core.atomic_output import open_output
from treelabel.core.errors import TreelabelError, quote
from treelabel.core.inputs import first_mark, open_input, text_lines, whole_lines
from treelabel.core.json_text import JsonLimitError, parse_json
from treelabel.core.limits import Limits
from treelabel.data.io.records import Output, Problem, ReadOptions, Record, RowSource, parsed_lines


def read_json_lines(path: Path, options: ReadOptions) -> RowSource:
    """Read one JSON object per line; a file that starts with "[" is read whole as an array.

    Parameters
    ----------
    path
        The file.
    options
        How to read it.

    Returns
    -------
    RowSource
    """
    return RowSource(_rows(path, options))


def _rows(path: Path, options: ReadOptions) -> Iterator[Record | Problem]:
    with open_input(path, options.seen, options.limits) as stream:
        if first_mark(stream, path, options.encoding) == b"[":
            yield from _array(path, whole_lines(stream, path, options.encoding, options.limits), options.limits)
            return
        lines = text_lines(stream, path, options.encoding, options.limits)
        yield from parsed_lines(lines, lambda number, line: _row(number, line, options.limits))


def _row(number: int, line: str, limits: Limits) -> Record | Problem:
    try:
        values = parse_json(line, limits)
    except json.JSONDecodeError as error:
        return Problem(number, f"not valid JSON: {error.msg} at character {error.pos + 1}")
    except JsonLimitError as error:
        return Problem(number, str(error))
    return _checked(number, values, "\\ud" in line.lower())


def _checked(number: int, values: Any, has_surrogates: bool) -> Record | Problem:
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
        yield _checked(number, value, has_surrogates)


def write_json_lines(output: Output) -> None:
    """Write one object per line: id, text, labels, then the further columns."""
    with open_output(output.path) as stream:
        for document in output.documents():
            values = {output.id: document.id, output.text: document.text, output.labels: document.labels}
            stream.write(json.dumps(values | document.extra, ensure_ascii=False, default=str).encode() + b"\n")


def write_htc(output: Output) -> None:
    """Write the form that hierarchical text classification benchmarks share: `token` and `label`."""
    with open_output(output.path) as stream:
        for document in output.documents():
            values = {"token": document.text, "label": document.labels}
            stream.write(json.dumps(values, ensure_ascii=False).encode() + b"\n")
