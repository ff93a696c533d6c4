"""LibMultiLabel's text format: a line is `id<TAB>labels<TAB>text`, labels with spaces between them; the id may lack."""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa

from treelabel.core.inputs import open_input, text_lines
from treelabel.core.strings import TEXT_NAMES
from treelabel.data.columns import ID_NAMES, LABEL_NAMES
from treelabel.data.io.fasttext import PREFIX, label_token
from treelabel.data.io.format import (
    Head,
    Problem,
    ReadOptions,
    Record,
    TableEncoder,
    TableSource,
    parsed_lines,
    parts_of,
)
from treelabel.data.io.jsonlines import document_rows


def is_libmultilabel(head: Head) -> bool:
    """Return whether a first line has three cells, the last of them a text of some words, and is no header."""
    cells = [cell.strip().lower() for cell in head.line.split("\t")]
    is_header = bool({*TEXT_NAMES, *LABEL_NAMES, *ID_NAMES}.intersection(cells))
    return len(cells) == 3 and len(cells[2].split()) > 2 and not is_header


def read_libmultilabel(path: Path, options: ReadOptions) -> TableSource:
    """Read lines of two or three cells; %20 and the like in a label stand for the characters they encode."""
    return TableSource(parts_of(_records(path, options), path, options.limits))


def _records(path: Path, options: ReadOptions) -> Iterator[Record | Problem]:
    with open_input(path, options.seen, options.limits) as stream:
        yield from parsed_lines(text_lines(stream, path, options.encoding, options.limits), split_line)


def split_line(number: int, line: str) -> Record | Problem:
    r"""Split a line into its cells.

    >>> split_line(1, "7\tdog hot%20dog\tgood boy\n").values
    {'id': '7', 'labels': ['dog', 'hot dog'], 'text': 'good boy'}
    """
    cells = line.rstrip("\r\n").split("\t")
    if len(cells) not in (2, 3):
        return Problem(number, f"expected id, labels and text between tabs, found {len(cells)} cells")
    *name, labels, text = cells
    values = {"labels": [unquote(label) for label in labels.split()], "text": text}
    return Record(number, {"id": name[0], **values} if name else values)


class LibMultiLabelEncoder(TableEncoder):
    """Writes a line per document; tabs and line breaks become spaces, and spaces in labels are percent-encoded."""

    def encode(self, table: pa.Table) -> bytes:
        """Return the lines of a table."""
        lines = []
        for row in document_rows(table, self.options):
            labels = " ".join(label_token(label).removeprefix(PREFIX) for label in row.labels)
            lines.append(f"{' '.join(row.id.split())}\t{labels}\t{' '.join(row.text.split())}\n")
        return "".join(lines).encode()
