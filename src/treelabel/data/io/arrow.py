"""Arrow's own files (.arrow, .feather): files and streams of record batches, with the hierarchy in their metadata."""

from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from treelabel.core.atomic_output import atomic_file
from treelabel.core.errors import TreelabelError
from treelabel.data.io.format import BATCH, Part, ReadOptions, TableSource, WriteOptions
from treelabel.data.io.parquet import DAMAGE, METADATA_KEY, check_size, decoded_size, plain_table, with_hierarchy
from treelabel.hierarchy.hierarchy_json import hierarchy_from_json

MAGIC = b"ARROW1"


def read_arrow(path: Path, options: ReadOptions) -> TableSource:
    """Read record batches, each checked before it is used; lines are row numbers, from 1 on."""
    try:
        with path.open("rb") as stream:
            is_file = stream.read(len(MAGIC)) == MAGIC
        source = pa.OSFile(str(path))
        reader = pa.ipc.open_file(source) if is_file else pa.ipc.open_stream(source)
        stored = (reader.schema.metadata or {}).get(METADATA_KEY)
        hierarchy = None if stored is None else hierarchy_from_json(stored.decode(), str(path))
    except TreelabelError:
        raise
    except DAMAGE as error:
        raise TreelabelError(f"{path}: not an Arrow file or stream: {error}") from error
    if options.limits.exceeds("columns", len(reader.schema)):
        raise TreelabelError(f"{path}: has {len(reader.schema):,} columns; {options.limits.hint('columns')}")
    return TableSource(_parts(path, reader, is_file, options), hierarchy)


def _parts(path: Path, reader: Any, is_file: bool, options: ReadOptions) -> Iterator[Part]:
    number = size = 0
    try:
        batches = map(reader.get_batch, range(reader.num_record_batches)) if is_file else iter(reader)
        for whole in batches:
            whole.validate(full=True)
            size += sum(map(decoded_size, whole.columns))
            check_size(path, size, options.limits)
            for start in range(0, len(whole), BATCH):
                batch = whole.slice(start, BATCH)
                yield Part(plain_table(batch), np.arange(number + 1, number + len(batch) + 1))
                number += len(batch)
            if options.seen is not None:
                options.seen(min(size, path.stat().st_size))
    except TreelabelError:
        raise
    except DAMAGE as error:
        raise TreelabelError(f"{path}: row {number + 1}: damaged Arrow file: {error}") from error


def write_arrow(path: Path, tables: Iterable[pa.Table], options: WriteOptions) -> None:
    """Write tables of one schema as a file, which Feather calls version 2."""
    rest = iter(tables)
    first = next(rest, pa.table({}))
    schema = with_hierarchy(first.schema, options)
    how = pa.ipc.IpcWriteOptions(compression="zstd")
    with atomic_file(path) as temporary, pa.ipc.new_file(str(temporary), schema, options=how) as writer:
        for table in chain([first], rest):
            writer.write_table(table.cast(schema), BATCH)
