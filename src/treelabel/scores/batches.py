"""Score files written a batch of documents at a time: what `store` reads, in memory that does not grow with them."""

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from treelabel.core.atomic_output import atomic_file
from treelabel.core.spool import joined_batches, read_schema, read_spool
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.hierarchy_json import hierarchy_to_json
from treelabel.scores.score_files import ScoreFileContent, score_columns, score_ending, score_schema
from treelabel.scores.score_matrix import Scores

# A row group of Parquet has at least so many bytes.
ROW_GROUP = 1 << 24


def batch_schema(scores: Scores) -> pa.Schema:
    """Return the columns of rows of such scores: all of them, or nodes with theirs."""
    return score_schema(ScoreFileContent(scores.hierarchy, scores.values, ()))


def score_batch(scores: Scores, ids: pa.Array, schema: pa.Schema) -> pa.RecordBatch:
    """Make rows of scores, to be added to a stream (see `core.spool`).

    Parameters
    ----------
    scores
        Of some documents.
    ids : array of text
        Theirs.
    schema
        That of the first batch, whose form, dense or CSR, all others get.

    Returns
    -------
    pa.RecordBatch
    """
    is_sparse = "scores" not in schema.names
    values = scores.values if scores.is_sparse == is_sparse else scores.csr() if is_sparse else scores.dense()
    return pa.record_batch([ids.cast(pa.string()), *score_columns(values)], schema=schema)


def finish_scores(spool: Path, target: Path, hierarchy: Hierarchy) -> None:
    """Make a score file of a stream of rows; it appears whole or not at all.

    Parameters
    ----------
    spool
        The stream.
    target
        A file `.npz` or `.parquet`.
    hierarchy
        That of the scores.
    """
    ending = score_ending(target)
    with atomic_file(target) as working:
        if ending == ".npz":
            _write_npz(spool, working, hierarchy)
        else:
            _write_parquet(spool, working)


def _write_parquet(spool: Path, file: Path) -> None:
    schema = read_schema(spool)
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for table in joined_batches(read_spool(spool), ROW_GROUP):
            writer.write_table(table)


def _write_npz(spool: Path, file: Path, hierarchy: Hierarchy) -> None:
    """Write the arrays one after another, each in one pass over the stream."""
    rows, entries, id_bytes = _count(spool)
    schema = read_schema(spool)
    with zipfile.ZipFile(file, "w", allowZip64=True) as archive:
        _add(archive, "treelabel_scores", np.dtype(np.int64), (), [np.array(1)])
        encoded = np.frombuffer(hierarchy_to_json(hierarchy).encode(), np.uint8)
        _add(archive, "hierarchy", encoded.dtype, encoded.shape, [encoded])
        _add(archive, "ids", np.dtype(np.uint8), (id_bytes,), _id_parts(spool))
        if "scores" in schema.names:
            kind = np.dtype(schema.field("scores").type.value_type.to_pandas_dtype())
            _add(archive, "values", kind, (rows, len(hierarchy)), _flat(spool, "scores"))
            return
        pointer = np.dtype(np.int32 if entries < 2**31 else np.int64)
        number = np.dtype(schema.field("score").type.value_type.to_pandas_dtype())
        _add(archive, "indptr", pointer, (rows + 1,), _pointers(spool, pointer))
        _add(archive, "indices", np.dtype(np.int32), (entries,), _flat(spool, "node"))
        _add(archive, "data", number, (entries,), _flat(spool, "score"))


def _count(spool: Path) -> tuple[int, int, int]:
    """Count rows, stored scores, and the bytes of all ids as JSON."""
    rows = entries = 0
    size = 0
    for batch in read_spool(spool):
        rows += len(batch)
        entries += len(batch.column(1).flatten())
    for part in _id_parts(spool):
        size += len(part)
    return rows, entries, size


def _id_parts(spool: Path) -> Iterator[Any]:
    start = "["
    for batch in read_spool(spool):
        listed = json.dumps(batch.column("id").to_pylist(), ensure_ascii=False)[1:-1]
        yield np.frombuffer(f"{start}{listed}".encode(), np.uint8)
        start = ", "
    yield np.frombuffer(b"]" if start == ", " else b"[]", np.uint8)


def _flat(spool: Path, column: str) -> Iterator[Any]:
    for batch in read_spool(spool):
        yield batch.column(column).flatten().to_numpy()


def _pointers(spool: Path, kind: Any) -> Iterator[Any]:
    yield np.zeros(1, kind)
    end = 0
    for batch in read_spool(spool):
        ends = end + np.cumsum(batch.column("node").value_lengths().to_numpy(), dtype=np.int64)
        end = int(ends[-1]) if len(ends) else end
        yield ends.astype(kind)


def _add(archive: zipfile.ZipFile, name: str, kind: Any, shape: tuple[int, ...], parts: Any) -> None:
    """Add an array to a `.npz` file, part by part."""
    header = {"descr": np.lib.format.dtype_to_descr(kind), "fortran_order": False, "shape": shape}
    with archive.open(f"{name}.npy", "w", force_zip64=True) as stream:
        np.lib.format.write_array_header_1_0(stream, header)
        for part in parts:
            stream.write(np.ascontiguousarray(part).tobytes())
