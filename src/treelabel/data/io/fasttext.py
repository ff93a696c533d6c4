"""fastText's training format: one document per line, its labels in front, each with a prefix."""

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

from treelabel.core.atomic_output import open_output
from treelabel.core.inputs import open_input, text_lines
from treelabel.data.io.records import Output, Problem, ReadOptions, Record, RowSource, parsed_lines

PREFIX = "__label__"
LABEL = re.compile(PREFIX + r"([^ \t]*)[ \t]*")
LINE_BREAK = re.compile(r"\r\n|\r|\n")


def read_fasttext(path: Path, options: ReadOptions) -> RowSource:
    """Read `__label__A __label__B some text`; %20 and the like in a label stand for the characters they encode.

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
        yield from parsed_lines(text_lines(stream, path, options.encoding, options.limits), _row)


def _row(number: int, line: str) -> Record:
    labels, text = split_line(line)
    return Record(number, {"text": text, "labels": labels})


def split_line(line: str) -> tuple[list[str], str]:
    """Split the labels off a line.

    >>> split_line("__label__dog __label__hot%20dog good boy")
    (['dog', 'hot dog'], 'good boy')
    """
    labels: list[str] = []
    rest = line.strip()
    while found := LABEL.match(rest):
        labels.append(unquote(found[1]))
        rest = rest[found.end() :]
    return labels, rest


def label_token(label: str) -> str:
    """Write a label as one token: white space and % are percent-encoded, because a token ends at white space.

    >>> label_token("hot dog")
    '__label__hot%20dog'
    """
    encoded = "".join(f"%{ord(mark):02X}" if mark in " \t\n\r\v\f%" else mark for mark in label)
    return PREFIX + encoded


def write_fasttext(output: Output) -> None:
    """Write one line per document; line breaks in texts become spaces, ids and further columns have no place."""
    with open_output(output.path) as stream:
        for document in output.documents():
            text = LINE_BREAK.sub(" ", document.text)
            stream.write(" ".join([*map(label_token, document.labels), text]).encode() + b"\n")
