"""JSON Lines, a JSON array of objects, and the benchmark form with `token` and `label`."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from treelabel.data.formats.rows import Output, Problem, ReadOptions, Row, RowSource
from treelabel.errors import TreelabelError
from treelabel.files import UndecodableLine, open_input, text_lines
from treelabel.outputs import open_output


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
                yield from _array(path, [line, *lines])
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
    except ValueError as error:
        return Problem(number, f"not a value that can be read: {error}")
    return _checked(number, values, "\\ud" in line.lower())


def _checked(number: int, values: Any, has_surrogates: bool) -> Row | Problem:
    if has_surrogates:
        try:
            json.dumps(values, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            half = error.object[error.start]
            return Problem(number, f"{half!r} is half of a character (a lone surrogate), which no text can hold")
    if not isinstance(values, dict):
        return Problem(
            number, f"expected a JSON object with fields, found {type(values).__name__} {str(values)[:40]!r}"
        )
    return Row(number, values)


def _array(path: Path, lines: list[str]) -> Iterator[Row | Problem]:
    wrong = next((at for at, line in enumerate(lines, 1) if isinstance(line, UndecodableLine)), None)
    if wrong is not None:
        raise TreelabelError(f"{path}:{wrong}: {lines[wrong - 1]}")
    text = "".join(lines)
    try:
        values = json.loads(text)
    except json.JSONDecodeError as error:
        raise TreelabelError(
            f"{path}:{error.lineno}: not valid JSON: {error.msg} at character {error.colno}"
        ) from error
    except (RecursionError, ValueError) as error:
        raise TreelabelError(f"{path}: JSON that cannot be read: {error}") from error
    has_surrogates = "\\ud" in text.lower()
    for number, value in enumerate(values, 1):
        yield _checked(number, value, has_surrogates)


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
