"""Parquet: columns id, text, labels and whatever else there is, with the hierarchy in the file's metadata."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from treelabel.core.atomic_output import atomic_file
from treelabel.core.errors import TreelabelError
from treelabel.data.io.parquet_limits import check_size, decoded_size, promised_size, rows_at_once
from treelabel.data.io.records import BATCH, Output, Problem, ReadOptions, Record, RowSource
from treelabel.hierarchy import hierarchy_from_json, hierarchy_to_json

METADATA_KEY = b"treelabel.hierarchy"
# What Arrow, and Python on what Arrow gives it, make of a file that was altered.
DAMAGE = (pa.ArrowException, OSError, ValueError, OverflowError, KeyError, MemoryError)


def read_parquet(path: Path, options: ReadOptions) -> RowSource:
    """Read row groups in batches; lines are row numbers.

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
    try:
        # A large hierarchy in the metadata goes beyond the limit that guards readers by default.
        file = pq.ParquetFile(path, thrift_string_size_limit=2**31 - 1)
        columns = file.metadata.num_columns
        if options.limits.exceeds("columns", columns):
            raise TreelabelError(f"{path}: has {columns:,} columns; {options.limits.hint('columns')}")
        stored = (file.schema_arrow.metadata or {}).get(METADATA_KEY)
        check_size(path, promised_size(file.metadata), options.limits)
        hierarchy = None if stored is None else hierarchy_from_json(stored.decode(), str(path))
    except TreelabelError:
        raise
    except DAMAGE as error:
        raise TreelabelError(f"{path}: not a Parquet file: {error}") from error
    return RowSource(_rows(path, file, options), hierarchy)


def _rows(path: Path, file: pq.ParquetFile, options: ReadOptions) -> Iterator[Record | Problem]:
    number = 0
    for batch in _record_batches(path, file, options):
        binary = [field.name for field in batch.schema if _is_binary(field.type)]
        for values in batch.to_pylist():
            number += 1
            # Bytes that are not text are refused where text is read.
            for name in binary:
                with suppress(UnicodeDecodeError, AttributeError):
                    values[name] = values[name].decode()
            yield Record(number, values)


def _is_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind))


def record_batches(path: Path, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    """Read columns as they are stored, some rows at a time; what a file may ask of its reader is limited as in rows.

    Parameters
    ----------
    path
        The file.
    options
        How to read it.

    Yields
    ------
    pa.RecordBatch
    """
    # For what it refuses.
    read_parquet(path, options)
    yield from _record_batches(path, pq.ParquetFile(path, thrift_string_size_limit=2**31 - 1), options)


def _record_batches(path: Path, file: pq.ParquetFile, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    number = size = 0
    file_size = path.stat().st_size
    try:
        for group in range(file.metadata.num_row_groups):
            batch_size = rows_at_once(path, file, group, BATCH, options.limits)
            for batch in file.iter_batches(batch_size, row_groups=[group]):
                size += sum(map(decoded_size, batch.columns))
                check_size(path, size, options.limits)
                yield batch
                number += len(batch)
                if options.seen is not None:
                    options.seen(file_size * number // max(1, file.metadata.num_rows))
    except TreelabelError:
        raise
    except DAMAGE as error:
        raise TreelabelError(f"{path}: row {number + 1}: damaged Parquet file: {error}") from error


def write_parquet(output: Output) -> None:
    """Write in batches."""
    data = output.data
    fields = [
        pa.field(output.id, pa.large_string()),
        pa.field(output.text, pa.large_string()),
        pa.field(output.labels, pa.list_(pa.string())),
        *(pa.field(name, column.type) for name, column in data.extra.items()),
    ]
    schema = pa.schema(fields, {METADATA_KEY: hierarchy_to_json(data.hierarchy)})
    try:
        with atomic_file(output.path) as temporary, pq.ParquetWriter(temporary, schema, compression="zstd") as writer:
            for part in data.batches(BATCH):
                labels = pa.array(output.label_texts(part.labels), pa.list_(pa.string()))
                columns = [part.ids.arrow, part.texts.arrow, labels, *part.extra.values()]
                writer.write_table(pa.table(columns, schema=schema))
    except pa.ArrowNotImplementedError as error:
        raise TreelabelError(f"{output.path}: a column cannot be stored in Parquet: {error}") from error
