"""Repair a file in place of its documents: what is not mended stays as it is, byte for byte where the format allows it.

Rows that go are left out, and cells of labels that change are written anew; the other columns, the order, the
delimiter, the encoding, the line breaks and the other sheets are those of the file.
"""

import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from treelabel.core.atomic_output import atomic_file, open_output
from treelabel.core.encodings import MARKS, encoding_of
from treelabel.core.inputs import open_input
from treelabel.data.checks.repair import LabelPath, Repaired
from treelabel.data.columns import labels_of_cell
from treelabel.data.dataset import Dataset
from treelabel.data.io.cells import escape
from treelabel.data.io.csv import CsvLines, read_header
from treelabel.data.io.format import ReadOptions
from treelabel.data.io.tables import format_of, format_to_read
from treelabel.data.taxonomy.sibling_taxonomy import find_sibling_taxonomy
from treelabel.hierarchy.hierarchy import SEPARATOR, split_path
from treelabel.hierarchy.label_matrices import row_numbers

Change = tuple[int, str, str, str]
COLUMNS = ("line", "column", "before", "after")


@dataclass(frozen=True)
class FileRepair:
    """The repair of a file: lines whose document is left out, and lines whose labels are spelled anew."""

    removed: Mapping[int, str]
    respelled: frozenset[int]
    renamed: Mapping[LabelPath, LabelPath]
    labels: Sequence[str]
    sep: str | None
    label_sep: str | None

    @classmethod
    def of(cls, data: Dataset, repaired: Repaired) -> "FileRepair | None":
        """Plan the repair of the file that a dataset was read from; None where its lines are not known."""
        labels = data.reading.get("labels")
        if data.lines is None or not labels:
            return None
        h, lines = data.hierarchy, data.lines
        changed = [node for node in range(len(h)) if tuple(h.path_names(node)) in repaired.renamed]
        is_changed = pc.is_in(pa.array(data.labels.indices), pa.array(changed, pa.int32())).to_numpy(
            zero_copy_only=False
        )
        return cls(
            {int(lines[row]): reason for row, reason in repaired.removed.items()},
            frozenset(lines[row_numbers(data.labels)[is_changed]].tolist()),
            repaired.renamed,
            list(labels),
            data.reading.get("sep"),
            data.reading.get("label_sep"),
        )

    def mend(self, line: int, values: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
        """Yield the columns of a row whose value changes, with the value before and after."""
        if line not in self.respelled:
            return
        if len(self.labels) > 1:
            names = tuple(str(values.get(name) or "").strip() for name in self.labels)
            path = names[: len(names) - next((i for i, name in enumerate(reversed(names)) if name), len(names))]
            for name, before, after in zip(self.labels, path, self.renamed.get(path, path), strict=False):
                if before != after:
                    yield name, values[name], after
            return
        value = values.get(self.labels[0])
        mended = self._mend_cell(value) if isinstance(value, str) else self._mend_value(value)
        if mended != value:
            yield self.labels[0], value, mended

    def mend_in_place(self, line: int, values: dict[str, Any]) -> "list[Change]":
        """Mend the values of a row, and return the changes for the list of them."""
        mended = list(self.mend(line, values))
        values |= {name: after for name, _, after in mended}
        return [(line, name, str(before), str(after)) for name, before, after in mended]

    def _mend_cell(self, cell: str) -> str:
        """Spell the labels of a cell anew, in the form that the cell has."""
        if self.label_sep is not None and self.label_sep in cell:
            return self.label_sep.join(self._mend_cell(part) for part in cell.split(self.label_sep))
        labels = labels_of_cell(cell, None, "labels")
        if labels != [cell.strip()]:
            return json.dumps([self._mend_value(label) for label in labels], ensure_ascii=False)
        return self._mend_label(cell)

    def _mend_value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._mend_label(value)
        if isinstance(value, tuple):
            return list(self.renamed.get(value, value))
        return [self._mend_value(each) for each in value] if isinstance(value, list) else value

    def _mend_label(self, label: str) -> str:
        sep = SEPARATOR if self.sep is None or SEPARATOR in label else self.sep
        path = tuple(split_path(label, sep))
        return sep.join(self.renamed[path]) if path in self.renamed else label


def repair_file(source: Path, target: Path, data: Dataset, repaired: Repaired, options: ReadOptions) -> Path | None:
    """Write a repaired copy of a file, and the list of changes beside it.

    Parameters
    ----------
    source : Path
        The file that `data` was read from.
    target : Path
        A file of the same format, which must not be there.
    data, repaired
        What was read, and what `repair` made of it.
    options : ReadOptions
        How the file was read.

    Returns
    -------
    Path or None
        The list of changes; None where the two formats differ, or this one cannot be mended in place.
    """
    plan = FileRepair.of(data, repaired)
    if plan is None or source == Path("-"):
        return None
    entry = format_to_read(source, data.reading.get("format"), options)
    mend = MENDERS.get(entry.name)
    if mend is None or format_of(target) != entry:
        return None
    # Labels that were read under a taxonomy beside the file would be read otherwise.
    if find_sibling_taxonomy(target) != find_sibling_taxonomy(source):
        return None
    changes: list[Change] = []
    if not mend(source, target, plan, options, changes, data):
        return None
    listed = target.with_name(f"{target.name}.changes.csv")
    removed = ((line, "", reason, "left out") for line, reason in plan.removed.items())
    buffer = io.StringIO()
    rows = sorted([*changes, *removed])
    csv.writer(buffer, lineterminator="\n").writerows([COLUMNS, *([escape(str(cell)) for cell in row] for row in rows)])
    with open_output(listed) as stream:
        stream.write(buffer.getvalue().encode())
    return listed


def _decoded(source: Path, options: ReadOptions) -> tuple[str, str, bytes]:
    """Return the text of a file, its encoding, and its byte order mark."""
    with open_input(source, limits=options.limits) as stream:
        raw = stream.read()
    encoding = encoding_of(raw[:4096], options.encoding)
    mark = next((mark for mark, _ in MARKS if raw.startswith(mark)), b"")
    return raw[len(mark) :].decode(encoding), encoding, mark


def _mend_csv(
    source: Path, target: Path, plan: FileRepair, options: ReadOptions, changes: list[Change], data: Dataset
) -> bool:
    text, encoding, mark = _decoded(source, options)
    with open_input(source, limits=options.limits) as stream:
        header = read_header(CsvLines(stream, source, options), source, options)
    quoting = csv.QUOTE_MINIMAL if options.quotes else csv.QUOTE_NONE
    how: dict[str, Any] = {"delimiter": header.delimiter, "quoting": quoting}
    lines = [f"{line}\n" for line in text.split("\n")]
    lines[-1] = lines[-1][:-1]
    names = header.columns or [str(number) for number in range(1, 1 + lines[0].count(header.delimiter) + 1)]
    start, written = 0, []
    reader = csv.reader(iter(lines), **how)
    for row in reader:
        raw, line = "".join(lines[start : reader.line_num]), start + 1
        start = reader.line_num
        if line in plan.removed:
            continue
        mended = list(plan.mend(line, dict(zip(names, row, strict=False))))
        for name, before, after in mended:
            row[names.index(name)] = after
            changes.append((line, name, before, after))
        if mended:
            ending = raw[len(raw.rstrip("\r\n")) :]
            buffer = io.StringIO()
            csv.writer(buffer, lineterminator=ending, **how).writerow(row)
            raw = buffer.getvalue()
        written.append(raw)
    with open_output(target) as stream:
        stream.write(mark + "".join(written).encode(encoding))
    return True


def _mend_json_lines(
    source: Path, target: Path, plan: FileRepair, options: ReadOptions, changes: list[Change], data: Dataset
) -> bool:
    text, encoding, mark = _decoded(source, options)
    if text.lstrip().startswith("["):
        return False
    written = []
    for line, raw in enumerate(text.split("\n"), 1):
        if line in plan.removed:
            continue
        kept = raw
        if line in plan.respelled:
            values = json.loads(raw)
            changes += plan.mend_in_place(line, values)
            kept = json.dumps(values, ensure_ascii=False) + raw[len(raw.rstrip("\r")) :]
        written.append(kept)
    with open_output(target) as stream:
        stream.write(mark + "\n".join(written).encode(encoding))
    return True


def _mend_parquet(
    source: Path, target: Path, plan: FileRepair, options: ReadOptions, changes: list[Change], data: Dataset
) -> bool:
    import pyarrow.parquet as pq

    table = pq.read_table(source)
    rows = table.select(list(plan.labels)).to_pylist()
    for line, values in enumerate(rows, 1):
        changes += plan.mend_in_place(line, values)
    for name in plan.labels if changes else ():
        field = table.schema.field(name)
        column = pa.chunked_array([pa.array([row[name] for row in rows], field.type)])
        table = table.set_column(table.schema.get_field_index(name), field, column)
    kept = [line - 1 for line in range(1, len(rows) + 1) if line not in plan.removed]
    with atomic_file(target) as working:
        pq.write_table(table.take(pa.array(kept, pa.int64())), working)
    return True


def _mend_excel(
    source: Path, target: Path, plan: FileRepair, options: ReadOptions, changes: list[Change], data: Dataset
) -> bool:
    from openpyxl import load_workbook

    book = load_workbook(source)
    sheet = _sheet(book, options.sheet)
    # Rows that go would move what merged cells and formulas refer to.
    if sheet.merged_cells.ranges or any(cell.data_type == "f" for row in sheet.iter_rows() for cell in row):
        return False
    first = int(data.lines[0]) if data.lines is not None else 1
    index: dict[str, int] = {}
    for row in sheet.iter_rows(max_row=max(1, first - 1)):
        names = {str(cell.value).strip(): cell.column for cell in row if cell.value is not None}
        index = names if set(plan.labels) <= names.keys() else index
    if not index:
        return False
    for line in sorted(plan.respelled - plan.removed.keys()):
        values = {name: sheet.cell(line, index[name]).value for name in plan.labels}
        mended = plan.mend_in_place(line, values)
        changes += mended
        for _, name, *_ in mended:
            sheet.cell(line, index[name]).value = values[name]
    for line in sorted(plan.removed, reverse=True):
        sheet.delete_rows(line)
    with atomic_file(target) as working:
        book.save(working)
    return True


def _sheet(book: Any, name: str | None) -> Any:
    """Find the sheet that was read: by name or number, or the first visible one."""
    with suppress(KeyError, ValueError, IndexError):
        if name is not None:
            return book[name] if name in book.sheetnames else book.worksheets[int(name) - 1]
    return next((each for each in book.worksheets if each.sheet_state == "visible"), book.worksheets[0])


Mender = Callable[[Path, Path, FileRepair, ReadOptions, list[Change], Dataset], bool]
MENDERS: dict[str, Mender] = {
    "csv": _mend_csv,
    "tsv": _mend_csv,
    "jsonl": _mend_json_lines,
    "parquet": _mend_parquet,
    "xlsx": _mend_excel,
}
