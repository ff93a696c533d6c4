"""JSON Lines, a JSON array of objects, and the benchmark form with `token` and `label`."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from treelabel.data.formats.rows import Output, Problem, ReadOptions, Row, RowSource
from treelabel.errors import TreelabelError
from treelabel.files import UndecodableLine, open_input, open_output, text_lines


def read_json_lines(path: Path, options: ReadOptions) -> RowSource:
    """Read one JSON object a line; a file that starts with "[" is read whole as an array."""
    return RowSource(_rows(path, options))


def _rows(path: Path, options: ReadOptions) -> Iterator[Row | Problem]:
    with open_input(path, options.seen) as stream:
        lines = text_lines(stream, path, options.encoding)
        for number, line in enumerate(lines, 1):
            if isinstance(line, UndecodableLine):
                yield Problem(number, line)
                continue
            if number == 1 and line.lstrip().startswith("["):
                yield from _array(path, line + "".join(lines))
                return
            if line.strip():
                yield _row(number, line)


def _row(number: int, line: str) -> Row | Problem:
    try:
        values = json.loads(line)
    except json.JSONDecodeError as error:
        return Problem(number, f"not valid JSON: {error.msg} at character {error.pos + 1}")
    except RecursionError:
        return Problem(number, "JSON nested too deeply")
    return _checked(number, values)


def _checked(number: int, values: Any) -> Row | Problem:
    if not isinstance(values, dict):
        return Problem(
            number, f"expected a JSON object with fields, found {type(values).__name__} {str(values)[:40]!r}"
        )
    return Row(number, values)


def _array(path: Path, text: str) -> Iterator[Row | Problem]:
    try:
        values = json.loads(text)
    except json.JSONDecodeError as error:
        raise TreelabelError(
            f"{path}:{error.lineno}: not valid JSON: {error.msg} at character {error.colno}"
        ) from error
    for number, value in enumerate(values, 1):
        yield _checked(number, value)


def write_json_lines(output: Output) -> None:
    """Write one object a line: id, text, labels, then the further columns."""
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
