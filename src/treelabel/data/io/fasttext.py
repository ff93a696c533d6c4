"""fastText's training format: one document per line, its labels in front, each with a prefix."""

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa

from treelabel.core.inputs import open_input, text_lines
from treelabel.data.io.format import Problem, ReadOptions, Record, TableEncoder, TableSource, parsed_lines, parts_of

PREFIX = "__label__"
LABEL = re.compile(PREFIX + r"([^ \t]*)[ \t]*")
LINE_BREAK = re.compile(r"\r\n|\r|\n")


def read_fasttext(path: Path, options: ReadOptions) -> TableSource:
    """Read `__label__A __label__B some text`; %20 and the like in a label stand for the characters they encode."""
    return TableSource(parts_of(_records(path, options), path, options.limits))


def _records(path: Path, options: ReadOptions) -> Iterator[Record | Problem]:
    with open_input(path, options.seen, options.limits) as stream:
        yield from parsed_lines(text_lines(stream, path, options.encoding, options.limits), split_line)


def split_line(number: int, line: str) -> Record:
    """Split the labels off a line.

    >>> split_line(1, "__label__dog __label__hot%20dog good boy").values
    {'text': 'good boy', 'labels': ['dog', 'hot dog']}
    """
    labels: list[str] = []
    rest = line.strip()
    while match := LABEL.match(rest):
        labels.append(unquote(match[1]))
        rest = rest[match.end() :]
    return Record(number, {"text": rest, "labels": labels})


def label_token(label: str) -> str:
    """Write a label as one token: white space and % are percent-encoded, because a token ends at white space.

    >>> label_token("hot dog")
    '__label__hot%20dog'
    """
    return PREFIX + "".join(f"%{ord(mark):02X}" if mark in " \t\n\r\v\f%" else mark for mark in label)


class FastTextEncoder(TableEncoder):
    """Writes one line per document; line breaks in texts become spaces, ids and further columns are left out."""

    def encode(self, table: pa.Table) -> bytes:
        """Return the lines of a table."""
        texts, labels = table.column(self.options.text), table.column(self.options.labels[0])
        lines = (
            " ".join([*map(label_token, names), LINE_BREAK.sub(" ", text)]) + "\n"
            for text, names in zip(texts.to_pylist(), labels.to_pylist(), strict=True)
        )
        return "".join(lines).encode()
