"""Files of what was found of some documents: shards of a test set are judged apart, and merged to one result."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from treelabel.core.atomic_output import atomic_file
from treelabel.core.errors import TreelabelError
from treelabel.core.npz import one_sentence, read_arrays, write_arrays
from treelabel.evaluation.evaluator import Evaluator
from treelabel.evaluation.streaming import Judging
from treelabel.evaluation.sums import Coverage, Remarks, stack_parts
from treelabel.metrics.registry import find_metric

WHAT = "what was found of some documents"
_CSR = ("data", "indices", "indptr", "shape")
Arrays = dict[str, npt.NDArray[Any]]


def save_state(judging: Judging, file: Path) -> None:
    """Write what was found to a `.npz` file: sums with what rounding took from them, counts, and names as JSON.

    Parameters
    ----------
    judging
        Lists of wrong documents are not stored.
    file
        Takes 8 bytes for each sum, and, where documents are kept, what `Evaluator` says for each of them.
    """
    evaluator, arrays = judging.evaluator, dict[str, npt.NDArray[Any]]()
    rows = [] if evaluator.rows is None else evaluator.rows
    names = {row.key: row.name for row in reversed(rows)}
    for key, name in names.items():
        for number, (high, low) in enumerate(evaluator._pairs(key)):
            arrays |= {f"sums/{name}/{number}": high, f"lost/{name}/{number}": low}
        for number, pieces in enumerate(zip(*evaluator.stored_parts.get(key, ()), strict=True)):
            arrays |= _part_arrays(f"parts/{name}/{number}", stack_parts(pieces))
    coverage, remarks = evaluator.coverage, evaluator.remarks
    if coverage is not None and coverage.sums is not None:
        arrays |= {"coverage/high": coverage.sums[0], "coverage/low": coverage.sums[1]}
    if judging.table is not None:
        codes = sorted(judging.table.instead)
        arrays |= {"table/counts": judging.table.counts, "table/codes": np.array(codes, np.int64)}
        arrays["table/numbers"] = np.array([judging.table.instead[code] for code in codes], np.int64)
    about = {
        "documents": evaluator.documents,
        "rows": None if evaluator.rows is None else [row.name for row in rows],
        "rule": evaluator.used_rule,
        "skipped": evaluator.skipped,
        "coverage": None if coverage is None else {**vars(coverage), "sums": None},
        "remarks": {**vars(remarks), "unseen": sorted(remarks.unseen)},
        "groups": judging.groups,
        "level_names": judging.level_names,
        "has_label": judging.has_label,
    }
    arrays["about"] = np.frombuffer(json.dumps(about).encode(), np.uint8)
    with atomic_file(file) as working, working.open("wb") as stream:
        write_arrays(stream, arrays)


def load_state(begun: Judging, file: Path) -> Judging:
    """Read what was found.

    Parameters
    ----------
    begun
        What `Judging.begin` returns for the same question, hierarchy and training frequencies.
    file
        What `save_state` wrote.

    Returns
    -------
    Judging
    """
    arrays = read_arrays(file, WHAT, lambda headers: None)
    with one_sentence(file, WHAT):
        about = json.loads(arrays.pop("about").tobytes())
        evaluator = _evaluator(begun.evaluator, about, arrays)
        if begun.table is not None:
            if arrays["table/counts"].shape != begun.table.counts.shape:
                raise TreelabelError(f"{file}: has counts of another hierarchy")
            begun.table.counts = arrays["table/counts"]
            pairs = zip(arrays["table/codes"].tolist(), arrays["table/numbers"].tolist(), strict=True)
            begun.table.instead = dict(pairs)
        return Judging(
            evaluator, begun.table, None, about["groups"], tuple(about["level_names"]), bool(about["has_label"])
        )


def _evaluator(evaluator: Evaluator, about: dict[str, Any], arrays: Arrays) -> Evaluator:
    if about["rows"] is None:
        return evaluator
    evaluator.rows = [find_metric(name) for name in about["rows"]]
    evaluator.documents, evaluator.used_rule = about["documents"], about["rule"]
    evaluator.skipped = about["skipped"]
    totals: dict[Any, list[Any]] = {}
    for row in reversed(evaluator.rows):
        highs, lows, parts = (_numbered_arrays(f"{kind}/{row.name}", arrays) for kind in ("sums", "lost", "parts"))
        if highs:
            totals[row.key] = list(zip(highs, lows, strict=True))
        if parts:
            evaluator.stored_parts[row.key] = [tuple(parts)]
    evaluator._take(totals)
    if about["coverage"] is not None:
        sums = (arrays["coverage/high"], arrays["coverage/low"]) if "coverage/high" in arrays else None
        evaluator.coverage = Coverage(**{**about["coverage"], "sums": sums, "right": tuple(about["coverage"]["right"])})
    evaluator.remarks = Remarks(**{**about["remarks"], "unseen": frozenset(about["remarks"]["unseen"])})
    return evaluator


def _part_arrays(name: str, part: Any) -> Arrays:
    """Return the arrays of a part of documents, dense or sparse."""
    if not sparse.issparse(part):
        return {name: part}
    return {f"{name}/{each}": np.asarray(getattr(part, each)) for each in _CSR}


def _numbered_arrays(prefix: str, arrays: Arrays) -> list[Any]:
    """Return the arrays behind a name that are numbered from 0 on."""
    parts = list[Any]()
    while True:
        name = f"{prefix}/{len(parts)}"
        if name in arrays:
            parts.append(arrays[name])
        elif f"{name}/data" in arrays:
            data, columns, starts, shape = (arrays[f"{name}/{each}"] for each in _CSR)
            parts.append(sparse.csr_array((data, columns, starts), tuple(shape.tolist())))
        else:
            return parts
