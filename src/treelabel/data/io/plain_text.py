"""Plain text: every line is a text, without labels."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from treelabel.core.inputs import open_input, text_lines
from treelabel.data.io.fasttext import LINE_BREAK
from treelabel.data.io.format import Problem, ReadOptions, Record, TableEncoder, TableSource, parsed_lines, parts_of


def read_plain_text(path: Path, options: ReadOptions) -> TableSource:
    """Read one text per line; blank lines are passed over."""
    return TableSource(parts_of(_records(path, options), path, options.limits))


def _records(path: Path, options: ReadOptions) -> Iterator[Record | Problem]:
    with open_input(path, options.seen, options.limits) as stream:
        lines = text_lines(stream, path, options.encoding, options.limits)
        yield from parsed_lines(lines, lambda number, line: Record(number, {"text": line.rstrip("\r\n")}))


class PlainTextEncoder(TableEncoder):
    """Writes one line per text; line breaks in it become spaces, and everything else is left out."""

    def encode(self, table: pa.Table) -> bytes:
        """Return the lines of a table."""
        texts = table.column(self.options.text).to_pylist()
        return "".join(f"{LINE_BREAK.sub(' ', text)}\n" for text in texts).encode()
