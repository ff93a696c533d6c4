"""Contributions of each document to the sums of metrics, on disk: with them, systems are compared by document.

Files are compressed: label counts of all documents are mostly zeros.
"""

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from treelabel.core.atomic_output import atomic_file
from treelabel.core.errors import TreelabelError
from treelabel.core.json_text import read_json
from treelabel.core.matrices import checked_csr
from treelabel.core.npz import Npz, open_npz, write_arrays
from treelabel.evaluation.result import Result
from treelabel.hierarchy.hierarchy_json import hierarchy_from_json, hierarchy_to_json
from treelabel.metrics.batch import Context
from treelabel.metrics.metric import Metric

WHAT = "a file of what documents contributed"


def save_parts(file: Path, results: Sequence[Result]) -> None:
    """Save the parts of documents of several results, under the number of the result and the metric's name.

    Parameters
    ----------
    file : Path
        The `.npz` file to write.
    results : sequence of Result
        What was judged, with the parts of documents.
    """
    arrays: dict[str, npt.NDArray[Any]] = {}
    for index, result in enumerate(results):
        for metric in {metric.key: metric for metric in reversed(result.metrics)}.values():
            for number, part in enumerate(result.parts.get(metric.key, ())):
                arrays |= _arrays(f"{index}/{metric.name}/{number}", part)
    with atomic_file(file) as working, working.open("wb") as stream:
        write_arrays(stream, arrays, compress=True)


def _arrays(name: str, part: Any) -> dict[str, npt.NDArray[Any]]:
    if not sparse.issparse(part):
        return {name: np.asarray(part)}
    arrays = {
        "data": part.data,
        "indices": part.indices,
        "indptr": part.indptr,
        "shape": np.array(part.shape, np.int64),
    }
    return {f"{name}/{field}": array for field, array in arrays.items()}


def load_parts(file: Path, index: int, metrics: Sequence[Metric]) -> dict[Any, tuple[Any, ...]]:
    """Load the parts of one result.

    Parameters
    ----------
    file : Path
        Written by `save_parts`.
    index : int
        The number of the result.
    metrics : sequence of Metric
        The metrics of the result; those with the same key share their parts.

    Returns
    -------
    dict
        Parts by the key of the metric.
    """
    result: dict[Any, tuple[Any, ...]] = {}
    with open_npz(file, WHAT) as stored:
        for metric in metrics:
            if metric.key not in result and (parts := _parts(stored, f"{index}/{metric.name}", file)):
                result[metric.key] = parts
    return result


def _parts(stored: Npz, name: str, file: Path) -> tuple[Any, ...]:
    result: list[Any] = []
    while True:
        key = f"{name}/{len(result)}"
        if key in stored:
            result.append(stored[key])
        elif f"{key}/data" in stored:
            rows, columns = stored[f"{key}/shape"].tolist()
            parts = stored[f"{key}/data"], stored[f"{key}/indices"], stored[f"{key}/indptr"]
            result.append(checked_csr(parts, (rows, columns), str(file)))
        else:
            return tuple(result)


def context_to_json(context: Context) -> str:
    """Store the hierarchy of a data set and how often its labels occur in training.

    >>> from treelabel.hierarchy import Hierarchy
    >>> context = Context(Hierarchy.from_paths(["A > B"]), np.array([2, 1]), np.array([1, 1]), 2)
    >>> context_from_json(context_to_json(context), "here").frequencies.tolist()
    [2, 1]
    """
    stored = {
        "hierarchy": json.loads(hierarchy_to_json(context.hierarchy)),
        "closed": None if context.closed is None else context.closed.tolist(),
        "given": None if context.exclusive is None else context.exclusive.tolist(),
        "documents": context.documents,
        "propensity": context.propensity,
        "bin_edges": context.bin_edges,
    }
    return json.dumps(stored, ensure_ascii=False)


@lru_cache(maxsize=16)
def context_from_json(text: bytes | str, where: str) -> Context:
    """Read what `context_to_json` stored; `where` names the file in messages.

    Parameters
    ----------
    text : bytes or str
        JSON text.
    where : str
        The file, for messages.

    Returns
    -------
    Context
    """
    stored = read_json(text, where, "context")
    try:
        hierarchy = hierarchy_from_json(json.dumps(stored["hierarchy"]), where)
        counts = [None if stored[name] is None else np.array(stored[name], np.int64) for name in ("closed", "given")]
        sizes = [count.shape for count in counts if count is not None]
        if any(size != (len(hierarchy),) for size in sizes):
            raise ValueError("counts do not fit the hierarchy")
        propensity, edges = tuple(stored["propensity"]), tuple(stored["bin_edges"])
        return Context(hierarchy, counts[0], counts[1], stored["documents"], propensity, edges)
    except TreelabelError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise TreelabelError(f"{where}: damaged ({error})") from None


def sums_of(result: Result) -> Mapping[str, Any]:
    """Return the sums of a result by metric, as lists; metrics that share their sums are named together."""
    shared: dict[Any, list[str]] = {}
    for metric in result.metrics:
        shared.setdefault(metric.key, []).append(metric.name)
    return {
        ",".join(names): [np.asarray(part).tolist() for part in result.sums[key]]
        for key, names in shared.items()
        if key in result.sums
    }
