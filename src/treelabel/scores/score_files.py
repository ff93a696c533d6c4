"""Read score files, `.npz` and Parquet: scores, ids and the hierarchy they belong to."""

import reprlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from scipy import sparse

from treelabel.core.errors import TreelabelError
from treelabel.core.inputs import STANDARD, existing_file, standard_input, suffixes
from treelabel.core.json_text import read_json
from treelabel.core.matrices import checked_csr
from treelabel.core.npz import Headers, Npz, one_sentence, open_npz
from treelabel.core.standard import as_input
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.hierarchy_json import hierarchy_from_json

# The two formats of scores.
NPZ, PARQUET = ".npz", ".parquet"
VERSION = 1
HIERARCHY_KEY, VERSION_KEY = b"treelabel.hierarchy", b"treelabel.scores"
ROWS = 8192
WHAT = "a score file of treelabel"


class ScoreFileContent(NamedTuple):
    """The content of a score file; `Scores` checks the values."""

    hierarchy: Hierarchy
    values: Any
    ids: tuple[str, ...] | None


def load_scores(path: Path) -> ScoreFileContent:
    """Read what `save_scores` writes; - is standard input."""
    file = existing_file(path)
    if file == STANDARD:
        is_parquet = standard_input().peek(4).startswith(b"PAR1")
        with as_input(file, PARQUET if is_parquet else NPZ) as copy:
            return load_scores(copy)
    read = _load_npz if score_ending(file) == NPZ else _load_parquet
    with one_sentence(file, WHAT):
        return read(file)


def score_ending(path: Path) -> str:
    """Return the ending of a score file, refusing any other."""
    ending, compression = suffixes(path)
    if ending not in (NPZ, PARQUET) or compression is not None:
        raise TreelabelError(f"{path}: scores are stored as {NPZ} or {PARQUET}; give the file one of these endings")
    return ending


def is_score_file(path: Path) -> bool:
    """Return whether a file holds scores rather than a dataset: any .npz, and Parquet that is marked so."""
    if suffixes(path)[0] != PARQUET:
        return suffixes(path)[0] == NPZ
    try:
        return VERSION_KEY in (open_parquet(existing_file(path)).schema_arrow.metadata or {})
    except (pa.ArrowException, OSError):
        return False


def open_parquet(file: Path) -> pq.ParquetFile:
    """Open a Parquet file."""
    # A large hierarchy in the metadata goes beyond the limit that guards readers by default.
    return pq.ParquetFile(file, thrift_string_size_limit=2**31 - 1)


def _check_version(version: int, file: Path) -> None:
    if version != VERSION:
        raise TreelabelError(f"{file}: scores stored in version {version}, this treelabel reads version {VERSION}")


def _load_npz(file: Path) -> ScoreFileContent:
    with open_npz(file, WHAT) as stored:
        hierarchy = npz_hierarchy(stored, file)
        ids = _ids(read_json(bytes(stored["ids"]), str(file), "list of ids"), file)
        check_shapes(stored.headers, len(hierarchy), None if ids is None else len(ids), file)
        if "values" in stored:
            return ScoreFileContent(hierarchy, stored["values"], ids)
        parts = stored["data"], stored["indices"], stored["indptr"]
        return ScoreFileContent(hierarchy, checked_csr(parts, (len(parts[2]) - 1, len(hierarchy)), str(file)), ids)


def npz_hierarchy(stored: Npz, file: Path) -> Hierarchy:
    """Check the arrays of a file, but for their values, and read its hierarchy.

    Parameters
    ----------
    stored
        The open file.
    file
        Its name, for messages.

    Returns
    -------
    Hierarchy
    """
    _check_members(stored.headers, file)
    _check_version(int(stored["treelabel_scores"]), file)
    return hierarchy_from_json(bytes(stored["hierarchy"]), str(file))


def _check_members(headers: Headers, file: Path) -> None:
    """Refuse a file that has other arrays than `save_scores` writes, or of other types, before any is read."""
    about = {"treelabel_scores": ("iu", 0), "hierarchy": ("u", 1), "ids": ("u", 1)}
    dense, csr = {"values": ("biuf", 2)}, {"indptr": ("iu", 1), "indices": ("iu", 1), "data": ("biuf", 1)}
    expected = {**about, **(dense if "values" in headers else csr)}
    if headers.keys() != expected.keys():
        raise TreelabelError(
            f"{file}: not {WHAT}, or damaged: it holds {', '.join(headers)}; expected {', '.join(expected)}"
        )
    for name, (kinds, dimensions) in expected.items():
        result = headers[name]
        if result.dtype.kind not in kinds or len(result.shape) != dimensions:
            raise TreelabelError(
                f"{file}: not {WHAT}, or damaged: {name} is of type {result.dtype} and shape {result.shape}"
            )


def check_shapes(headers: Headers, nodes: int, ids: int | None, file: Path) -> None:
    """Compare what arrays of scores would be read with what the hierarchy and the ids allow.

    Parameters
    ----------
    headers
        Types and shapes of the arrays.
    nodes
        The number of nodes.
    ids
        The number of ids; None if there are none, or if they are not known yet.
    file
        The file, for messages.
    """
    if "values" in headers:
        documents, columns = headers["values"].shape
        fits = columns == nodes
    else:
        (pointers,), (entries,), (values,) = (headers[name].shape for name in ("indptr", "indices", "data"))
        documents = pointers - 1
        fits = documents >= 0 and entries == values and entries <= documents * nodes
    if not fits or (ids is not None and documents != ids):
        shapes = ", ".join(f"{name} {headers[name].shape}" for name in headers if len(headers[name].shape))
        raise TreelabelError(
            f"{file}: damaged: arrays of {shapes} do not fit {nodes:,} nodes"
            + ("" if ids is None else f" and {ids:,} ids")
        )


def _ids(stored: Any, file: Path) -> tuple[str, ...] | None:
    """Return stored ids: a list of texts, or None."""
    if stored is None:
        return None
    if not isinstance(stored, list):
        raise TreelabelError(f"{file}: damaged: ids are {reprlib.repr(stored)}, expected a list of texts")
    return tuple(stored)


def _load_parquet(file: Path) -> ScoreFileContent:
    stored = open_parquet(file)
    hierarchy = parquet_hierarchy(stored, file)
    parts = [parquet_rows(batch, len(hierarchy), file) for batch in stored.iter_batches(batch_size=ROWS)]
    ids = None if stored.schema_arrow.field("id").nullable else tuple(name for part in parts for name in part[0])
    if "scores" in stored.schema_arrow.names:
        none = np.zeros((0, len(hierarchy)), np.float32)
        return ScoreFileContent(hierarchy, np.concatenate([none, *(part[1] for part in parts)]), ids)
    none = sparse.csr_array((0, len(hierarchy)), dtype=np.float32)
    return ScoreFileContent(hierarchy, sparse.vstack([none, *(part[1] for part in parts)], format="csr"), ids)


def parquet_hierarchy(stored: pq.ParquetFile, file: Path) -> Hierarchy:
    """Check a file, but for its values, and read its hierarchy.

    Parameters
    ----------
    stored
        The open file.
    file
        Its name, for messages.

    Returns
    -------
    Hierarchy
    """
    metadata = stored.schema_arrow.metadata or {}
    if VERSION_KEY not in metadata:
        raise TreelabelError(f"{file}: a Parquet file, but not one with scores of treelabel")
    _check_version(int(metadata[VERSION_KEY]), file)
    hierarchy = hierarchy_from_json(metadata[HIERARCHY_KEY], str(file))
    _check_columns(stored.schema_arrow, len(hierarchy), file)
    _check_unpacked(stored.metadata, len(hierarchy), file)
    return hierarchy


def _check_columns(schema: pa.Schema, nodes: int, file: Path) -> None:
    """Refuse a file with other columns than `save_scores` writes."""
    result = [(field.name, _type(field.type)) for field in schema]
    id_column, nodes_column = ("id", _type(pa.string())), ("node", _type(pa.list_(pa.int32())))
    expected = [
        columns
        for number in (pa.float32(), pa.float64())
        for columns in (
            [id_column, ("scores", _type(pa.list_(number, nodes)))],
            [id_column, nodes_column, ("score", _type(pa.list_(number)))],
        )
    ]
    if result not in expected:
        listed = ", ".join(f"{field.name}: {field.type}" for field in schema)
        raise TreelabelError(
            f"{file}: not {WHAT}, or damaged: columns {listed}; expected id: string and either scores, "
            f"{nodes:,} numbers per row, or the lists node: int32 and score: float32 or float64"
        )


def _type(kind: pa.DataType) -> tuple[Any, ...]:
    """Return what tells types apart, whatever writers call the values of a list."""
    if pa.types.is_fixed_size_list(kind):
        return "list", kind.value_type, kind.list_size
    return ("list", kind.value_type) if pa.types.is_list(kind) else (kind,)


def _check_unpacked(metadata: Any, nodes: int, file: Path) -> None:
    """Refuse more values than documents x nodes, before any is read.

    Parquet stores the values of a column that repeats itself once, so that a small file may hold very many.
    """
    for group in range(metadata.num_row_groups):
        part = metadata.row_group(group)
        most = part.num_rows * max(1, nodes)
        for column in range(part.num_columns):
            result = part.column(column).num_values
            if result > most:
                raise TreelabelError(
                    f"{file}: damaged: {result:,} values for {part.num_rows:,} documents, but {nodes:,} nodes allow at "
                    f"most {most:,}"
                )


def parquet_rows(batch: pa.RecordBatch, nodes: int, file: Path) -> tuple[list[Any], Any]:
    """Return the ids and the scores of some documents.

    Parameters
    ----------
    batch
        Rows of a score file.
    nodes
        The number of nodes.
    file
        The file, for messages.

    Returns
    -------
    (list, array or csr_array of shape (documents, nodes))
    """
    batch.validate(full=True)
    ids = batch.column("id").to_pylist()
    lists = [batch.column(name) for name in batch.schema.names if name != "id"]
    flat = [column.flatten() for column in lists]
    if any(column.null_count for column in (*lists, *flat)):
        raise TreelabelError(f"{file}: damaged: a score or a node is missing (null)")
    if len(lists) == 1:
        return ids, flat[0].to_numpy().reshape(len(batch), nodes)
    sizes, others = (column.value_lengths().to_numpy() for column in lists)
    if not np.array_equal(sizes, others):
        row = int(np.argmax(sizes != others))
        raise TreelabelError(f"{file}: damaged: a document has {sizes[row]:,} nodes, but {others[row]:,} scores")
    ptr = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
    return ids, checked_csr((flat[1].to_numpy(), flat[0].to_numpy(), ptr), (len(batch), nodes), str(file))
