"""Datasets out of data frames of any library, and back: frames are read as files are, by the same columns and rules."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from treelabel.core.errors import TreelabelError, quote
from treelabel.core.frames import Frame, FrameKind, make_frame
from treelabel.core.strings import TEXT_TYPES, is_missing
from treelabel.data.columns import ColumnChoice, Columns, ListMeaning
from treelabel.data.dataset import FRAMES, Dataset
from treelabel.data.documents import DocumentReader, OnError, Problems
from treelabel.data.io.format import Part, ReadOptions, TableSource, json_column
from treelabel.data.read import Known, hierarchy_of_labels, read_documents
from treelabel.data.write import with_free_names
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.label_ids import find_level_list, is_path
from treelabel.hierarchy.label_matrices import row_sizes

# What messages call a frame, before the number of the row.
WHERE = Path("data frame")


def dataset_of_frame(
    data: Any,
    asked: Mapping[str, Any],
    sep: str | None = None,
    hierarchy: Hierarchy | None = None,
    lists: ListMeaning | None = None,
    on_error: OnError = "stop",
) -> Dataset:
    """Make a dataset of a data frame of any library; see `Dataset.from_frame`.

    Parameters
    ----------
    data
        The frame.
    asked
        Which columns hold what: settings of ColumnChoice.
    sep, hierarchy, lists, on_error
        As for `Dataset.from_frame`.

    Returns
    -------
    Dataset
    """
    frame, choice = Frame.of(data), ColumnChoice(**asked)
    table = _table(frame)
    columns = choice.among(frame.names, str(WHERE), table)
    values = _label_values(frame, columns)
    merged, mixed = columns.labels, {}
    if values is not None:
        if lists is None and hierarchy is None:
            _refuse_level_lists(values, columns)
        # Columns of indicators become one, under the name of the first.
        merged, mixed = columns.labels[:1], {columns.labels[0]: values}
        table = table.drop_columns(columns.labels[1:])
    part = Part(table, np.arange(len(frame)), mixed=mixed)
    reader = DocumentReader(
        WHERE,
        ColumnChoice(columns.text, merged, columns.id, choice.label_sep, lists or "labels", group=choice.group),
        ReadOptions(),
        None,
        Problems(WHERE, on_error),
        opened=TableSource(iter([part])),
    )

    def find_hierarchy() -> Known:
        if hierarchy is not None:
            return Known(hierarchy, {"hierarchy": "given"})
        return hierarchy_of_labels(reader.keys, sep, WHERE)

    made = read_documents(reader, find_hierarchy, sep)
    # Those of other frames need not be told by the name of the first indicator.
    is_whole = merged == columns.labels
    return made if is_whole else replace(made, reading={k: v for k, v in made.reading.items() if k != "labels"})


def _table(frame: Frame) -> pa.Table:
    """Return a frame as a table; objects of which Arrow makes no column are written as texts."""
    columns: dict[str, pa.Array] = {}
    for name in frame.names:
        try:
            columns[name] = _plain(frame.arrow(name))
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
            columns[name] = json_column(frame.values(name))
    return pa.table(columns)


def _plain(column: pa.Array) -> pa.Array:
    """Return a column of texts as such, where the library has categories or views of them."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    return column.cast(pa.large_string()) if any(is_text(kind) for is_text in TEXT_TYPES) else column


def _label_values(frame: Frame, columns: Columns) -> list[Any] | None:
    """Return labels that are no texts as values, one per row; None where texts, or levels, are read."""
    names = columns.labels
    if len(names) > 1:
        marks = frame.indicators(names)
        if marks is not None:
            return [[name for name, is_set in zip(names, row, strict=True) if is_set] for row in marks.tolist()]
    if len(names) != 1 or _is_text(frame, names[0]):
        return None
    return [_label_value(value) for value in frame.values(names[0])]


def _is_text(frame: Frame, name: str) -> bool:
    try:
        kind = _plain(frame.arrow(name)).type
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        return False
    return any(is_text(kind) for is_text in TEXT_TYPES)


def _label_value(value: Any) -> Any:
    """Return the labels of a row as a file would have them: a path is a list of its names within a list."""
    if is_path(value):
        return [[name for name in value if not is_missing(name)]]
    if isinstance(value, set | frozenset):
        return sorted(value)
    if isinstance(value, np.ndarray):
        return value.tolist()
    return list(value) if isinstance(value, tuple) else value


def _refuse_level_lists(values: Iterable[Any], columns: Columns) -> None:
    steps = find_level_list(values) if len(columns.labels) == 1 else None
    if steps is not None:
        raise TreelabelError(
            f"lists in the column {quote(columns.labels[0])} such as {quote(steps)} look like the levels of a path; "
            "say what they are: lists='path' for the steps of one path, lists='labels' for several labels"
        )


def frame_of_dataset(data: Dataset, kind: FrameKind) -> Any:
    """Make a data frame of a dataset; see `Dataset.to_frame`.

    Parameters
    ----------
    data
        The dataset.
    kind
        "pandas", "polars" or "pyarrow".

    Returns
    -------
    data frame
    """
    rows = data.names() if data.hierarchy.max_depth == 1 else data.paths()
    several = bool(len(data)) and bool(row_sizes(data.labels).max() > 1)
    labels = pa.array(rows, pa.list_(pa.string())) if several else pa.array(_first(rows), pa.string())
    name = "labels" if several else "label"
    renamed = with_free_names(data, name)
    columns = {"id": data.ids.arrow, "text": data.texts.arrow, name: labels} | dict(renamed.extra)
    return make_frame(columns, kind)


def _first(rows: Iterable[Sequence[str]]) -> list[str | None]:
    return [row[0] if row else None for row in rows]


FRAMES |= {"read": dataset_of_frame, "make": frame_of_dataset}
