"""Parquet: columns id, text, labels and whatever else there is, with the hierarchy in the file's metadata.

A column may be small in the file and huge in memory in three ways: its pages are compressed, a long value stands once
in a dictionary and is referred to by every row (or shares its beginning with the one before it), or a list repeats
nothing a billion times. What the metadata promises is checked first, and then how many rows fit into memory at once.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from treelabel.core.atomic_output import atomic_file
from treelabel.core.errors import TreelabelError
from treelabel.core.limits import Limits
from treelabel.data.io.format import BATCH, Part, ReadOptions, TableSource, WriteOptions
from treelabel.hierarchy.hierarchy_json import hierarchy_from_json, hierarchy_to_json

METADATA_KEY = b"treelabel.hierarchy"
# What Arrow, and Python on what Arrow gives it, make of a file that was altered.
DAMAGE = (pa.ArrowException, OSError, ValueError, OverflowError, KeyError, MemoryError)
# Bytes that the rows of a batch may take where one long value may stand in all of them.
BUDGET = 8_000_000
# A value in these may be long although it takes few bytes.
DICTIONARIES = frozenset({"RLE_DICTIONARY", "PLAIN_DICTIONARY"})
SHARED_BEGINNINGS = "DELTA_BYTE_ARRAY"


def read_parquet(path: Path, options: ReadOptions) -> TableSource:
    """Read row groups in batches; lines are row numbers, from 1 on."""
    try:
        # A large hierarchy in the metadata goes beyond the limit that guards readers by default.
        file = pq.ParquetFile(path, thrift_string_size_limit=2**31 - 1)
        columns = file.metadata.num_columns
        if options.limits.exceeds("columns", columns):
            raise TreelabelError(f"{path}: has {columns:,} columns; {options.limits.hint('columns')}")
        stored = (file.schema_arrow.metadata or {}).get(METADATA_KEY)
        groups = map(file.metadata.row_group, range(file.metadata.num_row_groups))
        chunks = [group.column(number) for group in groups for number in range(columns)]
        # Every value takes at least one byte.
        promised = sum(max(chunk.total_uncompressed_size, chunk.num_values) for chunk in chunks)
        check_size(path, promised, options.limits)
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
            batch_size = _rows_at_once(path, file, group, options.limits)
            for batch in file.iter_batches(batch_size, row_groups=[group]):
                size += sum(map(decoded_size, batch.columns))
                check_size(path, size, options.limits)
                yield Part(plain_table(batch), np.arange(number + 1, number + len(batch) + 1))
                number += len(batch)
                if options.seen is not None:
                    options.seen(file_size * number // max(1, file.metadata.num_rows))
    except TreelabelError:
        raise
    except DAMAGE as error:
        raise TreelabelError(f"{path}: row {number + 1}: damaged Parquet file: {error}") from error


def plain_table(batch: pa.RecordBatch) -> pa.Table:
    """Return columns by name, the last of each name, with bytes that are text as text and without dictionaries."""
    columns = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if pa.types.is_fixed_size_binary(column.type):
            column = column.cast(pa.binary())
        if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
            # Bytes that are not text are refused where text is read.
            with suppress(pa.ArrowInvalid):
                column = column.cast(pa.large_string())
        columns[name] = column
    return pa.table(columns)


def check_size(path: Path, size: int, limits: Limits) -> None:
    """Refuse a file whose values take, or will take, many times more than the file itself."""
    packed = path.stat().st_size
    if limits.exceeds("floor", size) and limits.exceeds("ratio", size / max(1, packed)):
        raise TreelabelError(
            f"{path}: {packed:,} bytes in the file become {size:,} or more in memory; {limits.hint('ratio')}"
        )


def decoded_size(array: Any) -> int:
    """Count the bytes of a column, taking what refers to a dictionary of texts for the whole value."""
    kind = array.type.value_type if pa.types.is_dictionary(array.type) else None
    if kind is None or not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        return int(array.nbytes)
    return pc.sum(pc.binary_length(array.dictionary).take(array.indices)).as_py() or 0


def _rows_at_once(path: Path, file: pq.ParquetFile, group: int, limits: Limits) -> int:
    """Find how many rows of a row group, at least 1, are sure to fit into the budget of a batch."""
    longest = 1
    metadata = file.metadata.row_group(group)
    chunks = [metadata.column(number) for number in range(file.metadata.num_columns)]
    names = [chunk.path_in_schema for chunk in chunks if DICTIONARIES & set(chunk.encodings)]
    with pq.ParquetFile(path, metadata=file.metadata, read_dictionary=names) as packed:
        for number, chunk in enumerate(chunks):
            column = file.metadata.schema.column(number)
            length = _longest_value(packed, chunk, column, group)
            if column.max_repetition_level > 0:
                # All values of a list column may stand in one row.
                check_size(path, length * chunk.num_values, limits)
            else:
                longest = max(longest, length)
    return max(1, min(BATCH, BUDGET // longest))


def _longest_value(packed: pq.ParquetFile, chunk: Any, column: Any, group: int) -> int:
    """Bound the bytes of a value that takes less than its length in the file; 0 if there is none."""
    if chunk.physical_type == "FIXED_LEN_BYTE_ARRAY":
        return int(column.length)
    if chunk.physical_type != "BYTE_ARRAY":
        return 0
    if SHARED_BEGINNINGS in chunk.encodings:
        return int(chunk.total_uncompressed_size)
    if not DICTIONARIES & set(chunk.encodings):
        return 0
    # One row brings the whole dictionary with it, and nothing else of the column.
    batch = next(packed.iter_batches(1, row_groups=[group], columns=[chunk.path_in_schema]), None)
    return 0 if batch is None else max(map(_longest_text, batch.columns), default=0)


def _longest_text(array: pa.Array) -> int:
    """Find the longest entry of the dictionaries in an array."""
    if pa.types.is_dictionary(array.type):
        return pc.max(pc.binary_length(array.dictionary)).as_py() or 0
    if pa.types.is_struct(array.type):
        return max(map(_longest_text, array.flatten()), default=0)
    if pa.types.is_map(array.type):
        return max(_longest_text(array.keys), _longest_text(array.items))
    if pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
        return _longest_text(array.values)
    return 0


def with_hierarchy(schema: pa.Schema, options: WriteOptions) -> pa.Schema:
    """Put the hierarchy into the metadata of a schema, if there is one."""
    if options.hierarchy is None:
        return schema
    return schema.with_metadata({METADATA_KEY: hierarchy_to_json(options.hierarchy)})


def write_parquet(path: Path, tables: Iterable[pa.Table], options: WriteOptions) -> None:
    """Write tables of one schema, with the hierarchy in the metadata if there is one."""
    rest = iter(tables)
    first = next(rest, pa.table({}))
    schema = with_hierarchy(first.schema, options)
    try:
        with atomic_file(path) as temporary, pq.ParquetWriter(temporary, schema, compression="zstd") as writer:
            for table in chain([first], rest):
                writer.write_table(table.cast(schema))
    except pa.ArrowNotImplementedError as error:
        raise TreelabelError(f"{path}: a column cannot be stored in Parquet: {error}") from error
