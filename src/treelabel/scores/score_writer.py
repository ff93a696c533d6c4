"""Write score files, `.npz` and Parquet, a batch of documents at a time: of scores, or of a stream of rows."""

import json
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from scipy import sparse

from treelabel.core.atomic_output import atomic_file
from treelabel.core.spool import joined_batches, read_schema, read_spool
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.hierarchy_json import hierarchy_to_json
from treelabel.scores.score_files import HIERARCHY_KEY, NPZ, ROWS, VERSION, VERSION_KEY, score_ending

# A row group of Parquet has at least so many bytes.
ROW_GROUP = 1 << 24

Batches = Callable[[], Iterator[pa.RecordBatch]]


def save_scores(path: Path, hierarchy: Hierarchy, values: Any, ids: tuple[str, ...] | None) -> None:
    """Write a score file in the format that its ending names.

    Parameters
    ----------
    path : Path
        A file `.npz` or `.parquet`, which appears whole or not at all.
    hierarchy : Hierarchy
        It is stored in the file.
    values : ndarray or csr_array, documents x nodes
        float32 or float64, which the file keeps.
    ids : tuple of str, optional
        One per document.
    """
    schema = score_schema(hierarchy, values, has_ids=ids is not None)

    def batches() -> Iterator[pa.RecordBatch]:
        for start in range(0, values.shape[0], ROWS):
            part = values[start : start + ROWS]
            names = pa.nulls(part.shape[0]) if ids is None else pa.array(ids[start : start + ROWS])
            yield score_batch(part, names, schema)

    _write(path, hierarchy, schema, batches)


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
    _write(target, hierarchy, read_schema(spool), lambda: read_spool(spool))


def score_schema(hierarchy: Hierarchy, values: Any, has_ids: bool = True) -> pa.Schema:
    """Return the columns of rows of such scores, one per document: its id, and all scores or nodes with theirs."""
    number = pa.from_numpy_dtype(values.dtype)
    fields = [pa.field("id", pa.string(), nullable=not has_ids)]
    if sparse.issparse(values):
        fields += [pa.field("node", pa.list_(pa.int32())), pa.field("score", pa.list_(number))]
    else:
        fields.append(pa.field("scores", pa.list_(number, len(hierarchy))))
    return pa.schema(fields, {HIERARCHY_KEY: hierarchy_to_json(hierarchy), VERSION_KEY: str(VERSION)})


def score_batch(values: Any, ids: pa.Array, schema: pa.Schema) -> pa.RecordBatch:
    """Make rows of scores, to be added to a stream (see `core.spool`).

    Parameters
    ----------
    values
        The scores of some documents, dense or CSR.
    ids : array of text
        Theirs.
    schema
        That of the first batch, whose form, dense or CSR, all others get.

    Returns
    -------
    pa.RecordBatch
    """
    if "scores" in schema.names:
        dense = values.toarray() if sparse.issparse(values) else values
        columns = [pa.FixedSizeListArray.from_arrays(pa.array(dense.ravel()), dense.shape[1])]
    else:
        csr = sparse.csr_array(values)
        ptr = pa.array(csr.indptr, pa.int32())
        columns = [pa.ListArray.from_arrays(ptr, pa.array(part)) for part in (csr.indices, csr.data)]
    return pa.record_batch([ids.cast(pa.string()), *columns], schema=schema)


def _write(path: Path, hierarchy: Hierarchy, schema: pa.Schema, batches: Batches) -> None:
    write = _write_npz if score_ending(path) == NPZ else _write_parquet
    with atomic_file(path) as working:
        write(working, hierarchy, schema, batches)


def _write_parquet(file: Path, _: Hierarchy, schema: pa.Schema, batches: Batches) -> None:
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for table in joined_batches(batches(), ROW_GROUP):
            writer.write_table(table)


def _write_npz(file: Path, hierarchy: Hierarchy, schema: pa.Schema, batches: Batches) -> None:
    """Write the arrays one after another, each in one pass over the batches."""
    rows = sum(len(batch) for batch in batches())
    entries = sum(len(part) for part in _flat(batches, schema.names[1]))
    id_bytes = sum(len(part) for part in _id_parts(schema, batches))
    number = np.dtype(schema.field(-1).type.value_type.to_pandas_dtype())
    with zipfile.ZipFile(file, "w", allowZip64=True) as archive:
        _add(archive, "treelabel_scores", np.int64, (), [np.array(VERSION)])
        encoded = np.frombuffer(hierarchy_to_json(hierarchy).encode(), np.uint8)
        _add(archive, "hierarchy", np.uint8, encoded.shape, [encoded])
        _add(archive, "ids", np.uint8, (id_bytes,), _id_parts(schema, batches))
        if "scores" in schema.names:
            _add(archive, "values", number, (rows, len(hierarchy)), _flat(batches, "scores"))
            return
        pointer = np.int32 if entries < 2**31 else np.int64
        _add(archive, "indptr", pointer, (rows + 1,), _pointers(batches))
        _add(archive, "indices", np.int32, (entries,), _flat(batches, "node"))
        _add(archive, "data", number, (entries,), _flat(batches, "score"))


def _id_parts(schema: pa.Schema, batches: Batches) -> Iterator[Any]:
    """Yield the ids as JSON: a list of texts, or null."""
    if schema.field("id").nullable:
        yield np.frombuffer(b"null", np.uint8)
        return
    start = "["
    for batch in batches():
        listed = json.dumps(batch.column("id").to_pylist(), ensure_ascii=False)[1:-1]
        yield np.frombuffer(f"{start}{listed}".encode(), np.uint8)
        start = ", "
    yield np.frombuffer(b"]" if start == ", " else b"[]", np.uint8)


def _flat(batches: Batches, column: str) -> Iterator[Any]:
    return (batch.column(column).flatten().to_numpy() for batch in batches())


def _pointers(batches: Batches) -> Iterator[Any]:
    yield np.zeros(1, np.int64)
    end = 0
    for batch in batches():
        sizes = batch.column("node").value_lengths().to_numpy()
        yield end + np.cumsum(sizes, dtype=np.int64)
        end += int(sizes.sum())


def _add(archive: zipfile.ZipFile, name: str, dtype: Any, shape: tuple[int, ...], parts: Iterable[Any]) -> None:
    """Add an array to a `.npz` file, part by part."""
    header = {"descr": np.lib.format.dtype_to_descr(np.dtype(dtype)), "fortran_order": False, "shape": shape}
    with archive.open(f"{name}.npy", "w", force_zip64=True) as stream:
        np.lib.format.write_array_header_1_0(stream, header)
        for part in parts:
            stream.write(part.astype(dtype, copy=False).tobytes())
