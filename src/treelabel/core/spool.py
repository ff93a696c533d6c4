"""Rows that wait in a file until all are there: Arrow's stream format, message after message.

A Parquet, Excel or .npz file cannot be gone on with where it was cut off, and some must know how much there is before
they begin. So what is done is stored as a stream, to which messages (`serialize()` of a schema, then of batches) can
be added at any time, and becomes the file at the end, a batch at a time.
"""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa


def read_spool(file: Path) -> Iterator[pa.RecordBatch]:
    """Read the batches of a stream one by one."""
    with pa.OSFile(str(file), "rb") as source, pa.ipc.open_stream(source) as stream:
        yield from stream


def read_schema(file: Path) -> pa.Schema:
    """Read what the columns of a stream are."""
    with pa.OSFile(str(file), "rb") as source, pa.ipc.open_stream(source) as stream:
        return stream.schema


def joined_batches(batches: Iterator[pa.RecordBatch], least: int) -> Iterator[pa.Table]:
    """Join small batches until they take some bytes, so that a Parquet file has no more row groups than it needs.

    Parameters
    ----------
    batches
        All of one schema.
    least
        The bytes of a part; the last one may have fewer.

    Yields
    ------
    pa.Table
    """
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(part.nbytes for part in held) >= least:
            yield pa.Table.from_batches(held)
            held = []
    if held:
        yield pa.Table.from_batches(held)
