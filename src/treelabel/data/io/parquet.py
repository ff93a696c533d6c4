"""Parquet: columns id, text, labels and whatever else there is, with the hierarchy in the file's metadata."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from treelabel.core.atomic_output import atomic_file
from treelabel.core.errors import TreelabelError
from treelabel.data.io.format import BATCH, Part, ReadOptions, TableSource, WriteOptions
from treelabel.data.io.parquet_limits import check_size, decoded_size, promised_size, rows_at_once
from treelabel.hierarchy.hierarchy_json import hierarchy_from_json, hierarchy_to_json

METADATA_KEY = b"treelabel.hierarchy"
# What Arrow, and Python on what Arrow gives it, make of a file that was altered.
DAMAGE = (pa.ArrowException, OSError, ValueError, OverflowError, KeyError, MemoryError)


def read_parquet(path: Path, options: ReadOptions) -> TableSource:
    """Read row groups in batches; lines are row numbers, from 1 on."""
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
    return TableSource(_parts(path, file, options), hierarchy)


def _parts(path: Path, file: pq.ParquetFile, options: ReadOptions) -> Iterator[Part]:
    number = size = 0
    file_size = path.stat().st_size
    try:
        for group in range(file.metadata.num_row_groups):
            batch_size = rows_at_once(path, file, group, BATCH, options.limits)
            for batch in file.iter_batches(batch_size, row_groups=[group]):
                size += sum(map(decoded_size, batch.columns))
                check_size(path, size, options.limits)
                yield Part(_plain_table(batch), np.arange(number + 1, number + len(batch) + 1))
                number += len(batch)
                if options.seen is not None:
                    options.seen(file_size * number // max(1, file.metadata.num_rows))
    except TreelabelError:
        raise
    except DAMAGE as error:
        raise TreelabelError(f"{path}: row {number + 1}: damaged Parquet file: {error}") from error


def _plain_table(batch: pa.RecordBatch) -> pa.Table:
    """Return columns by name, the last of each name, with bytes that are text as text and without dictionaries."""
    columns = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        kind = column.type
        if pa.types.is_dictionary(kind):
            column, kind = column.cast(kind.value_type), kind.value_type
        if pa.types.is_fixed_size_binary(kind):
            column, kind = column.cast(pa.binary()), pa.binary()
        if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            # Bytes that are not text are refused where text is read.
            with suppress(pa.ArrowInvalid):
                column = column.cast(pa.large_string())
        columns[name] = column
    return pa.table(columns)


def write_parquet(path: Path, tables: Iterable[pa.Table], options: WriteOptions) -> None:
    """Write tables of one schema, with the hierarchy in the metadata if there is one."""
    rest = iter(tables)
    first = next(rest, pa.table({}))
    schema = first.schema
    if options.hierarchy is not None:
        schema = schema.with_metadata({METADATA_KEY: hierarchy_to_json(options.hierarchy)})
    try:
        with atomic_file(path) as temporary, pq.ParquetWriter(temporary, schema, compression="zstd") as writer:
            for table in chain([first], rest):
                writer.write_table(table.cast(schema))
    except pa.ArrowNotImplementedError as error:
        raise TreelabelError(f"{path}: a column cannot be stored in Parquet: {error}") from error
