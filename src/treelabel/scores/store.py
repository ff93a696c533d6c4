"""Score files, `.npz` and Parquet: scores, ids and the hierarchy they belong to."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from scipy import sparse

from treelabel.errors import TreelabelError
from treelabel.files import existing_file, suffixes
from treelabel.hierarchy import Hierarchy, hierarchy_from_json, hierarchy_to_json
from treelabel.outputs import whole_file
from treelabel.scores.core import Scores

VERSION = 1
HIERARCHY_KEY, VERSION_KEY = b"treelabel.hierarchy", b"treelabel.scores"
ROWS = 8192


def save(scores: Scores, path: Path) -> None:
    """Write by the file's ending."""
    writer = {".npz": _save_npz, ".parquet": _save_parquet}[_ending(path)]
    with whole_file(path) as temporary:
        writer(scores, temporary)


def load(path: Path, hierarchy: Hierarchy | None) -> Scores:
    """Read by the file's ending."""
    file = existing_file(path)
    reader = {".npz": _load_npz, ".parquet": _load_parquet}[_ending(file)]
    try:
        scores = reader(file)
    except (TreelabelError, MemoryError):
        raise
    except Exception as error:
        # There is no end to what the libraries raise on foreign bytes: bad zip, no zip, wrong types, missing keys.
        # numpy's advice to load what is no zip unsafely is not for anyone's eyes.
        why = "" if "pickle" in str(error) else f": {error}"
        raise TreelabelError(f"{file}: not a score file of treelabel, or damaged{why}") from error
    if hierarchy is not None:
        hierarchy.require_same(scores.hierarchy.fingerprint, str(file))
    return scores


def _ending(path: Path) -> str:
    ending, compression = suffixes(path)
    if ending not in (".npz", ".parquet") or compression is not None:
        raise TreelabelError(f"{path}: scores are stored as .npz or .parquet; give the file one of these endings")
    return ending


def is_score_file(path: Path) -> bool:
    """Whether a file holds scores rather than a dataset: any .npz, and Parquet that is marked so."""
    if suffixes(path)[0] != ".parquet":
        return suffixes(path)[0] == ".npz"
    try:
        return VERSION_KEY in (_open_parquet(existing_file(path)).schema_arrow.metadata or {})
    except (pa.ArrowException, OSError):
        return False


def _open_parquet(file: Path) -> pq.ParquetFile:
    # A large hierarchy in the metadata goes beyond the limit that guards readers by default.
    return pq.ParquetFile(file, thrift_string_size_limit=2**31 - 1)


def _text(array: Any) -> str:
    return bytes(array).decode()


def _bytes(text: str) -> Any:
    return np.frombuffer(text.encode(), np.uint8)


def _check_version(version: int, file: Path) -> None:
    if version != VERSION:
        raise TreelabelError(f"{file}: scores stored in version {version}, this treelabel reads version {VERSION}")


def _save_npz(scores: Scores, file: Path) -> None:
    arrays: dict[str, Any] = {
        "treelabel_scores": np.array(VERSION),
        "hierarchy": _bytes(hierarchy_to_json(scores.hierarchy)),
        "ids": _bytes(json.dumps(scores.ids, ensure_ascii=False)),
    }
    if scores.is_sparse:
        values = scores.values
        arrays |= {"indptr": values.indptr, "indices": values.indices, "data": values.data}
    else:
        arrays["values"] = scores.values
    with file.open("wb") as stream:
        np.savez(stream, **arrays)


def _load_npz(file: Path) -> Scores:
    # numpy leaves a file open that it opened itself and then cannot read.
    with file.open("rb") as stream, np.load(stream, allow_pickle=False) as stored:
        _check_version(int(stored["treelabel_scores"]), file)
        hierarchy = hierarchy_from_json(_text(stored["hierarchy"]), str(file))
        ids = json.loads(_text(stored["ids"]))
        if "values" in stored:
            values = stored["values"]
        else:
            ptr = stored["indptr"]
            values = sparse.csr_array((stored["data"], stored["indices"], ptr), (len(ptr) - 1, len(hierarchy)))
    return Scores(hierarchy, values, None if ids is None else tuple(ids))


def _save_parquet(scores: Scores, file: Path) -> None:
    """One row a document: its id, and either all scores or the stored nodes with theirs."""
    nodes = len(scores.hierarchy)
    fields = [pa.field("id", pa.string(), nullable=scores.ids is None)]
    if scores.is_sparse:
        fields += [pa.field("node", pa.list_(pa.int32())), pa.field("score", pa.list_(pa.float32()))]
    else:
        fields.append(pa.field("scores", pa.list_(pa.float32(), nodes)))
    metadata = {HIERARCHY_KEY: hierarchy_to_json(scores.hierarchy), VERSION_KEY: str(VERSION)}
    schema = pa.schema(fields, metadata)
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for start in range(0, len(scores), ROWS):
            part = scores[start : start + ROWS]
            ids = pa.array(part.ids if part.ids is not None else [None] * len(part), pa.string())
            if part.is_sparse:
                ptr = pa.array(part.values.indptr, pa.int32())
                columns = [
                    pa.ListArray.from_arrays(ptr, pa.array(part.values.indices)),
                    pa.ListArray.from_arrays(ptr, pa.array(part.values.data)),
                ]
            else:
                columns = [pa.FixedSizeListArray.from_arrays(pa.array(part.values.ravel()), nodes)]
            writer.write_table(pa.table([ids, *columns], schema=schema))


def _load_parquet(file: Path) -> Scores:
    table = _open_parquet(file).read()
    metadata = table.schema.metadata or {}
    if VERSION_KEY not in metadata:
        raise TreelabelError(f"{file}: a Parquet file, but not one with scores of treelabel")
    _check_version(int(metadata[VERSION_KEY]), file)
    hierarchy = hierarchy_from_json(metadata[HIERARCHY_KEY].decode(), str(file))
    names = None if table.schema.field("id").nullable else tuple(table.column("id").to_pylist())
    if "scores" in table.column_names:
        flat = table.column("scores").combine_chunks().flatten().to_numpy()
        return Scores(hierarchy, flat.reshape(len(table), len(hierarchy)), names)
    sizes = np.concatenate([[0], table.column("node").combine_chunks().value_lengths().to_numpy()])
    node = table.column("node").combine_chunks().flatten().to_numpy()
    score = table.column("score").combine_chunks().flatten().to_numpy()
    values = sparse.csr_array((score, node, np.cumsum(sizes)), (len(table), len(hierarchy)))
    return Scores(hierarchy, values, names)
