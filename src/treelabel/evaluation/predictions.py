"""Prediction files: JSON Lines with the labels, paths and scores of each document."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from treelabel.core.errors import TreelabelError
from treelabel.core.inputs import suffixes
from treelabel.core.outputs import open_output
from treelabel.rules import Decisions
from treelabel.scores import Scores

ENDINGS = (".jsonl", ".json", ".ndjson")


def prediction_lines(decisions: Decisions, scores: Scores | None = None, all_labels: bool = False) -> Iterator[str]:
    """Yield a line of JSON per document: {"id": ..., "labels": [{"label": name, "path": "A > B", "p": 0.93}, ...]}.

    A document on which the rule abstained has "unknown": true.

    Parameters
    ----------
    decisions : Decisions
        Sets that are not closed are written as they are.
    scores : Scores, optional
        Where the probabilities come from; labels are written surest first.
    all_labels : bool
        Whether to write ancestors too, not only the most specific labels.

    Yields
    ------
    str

    >>> from treelabel.hierarchy import Hierarchy
    >>> from treelabel.rules import decide
    >>> s = Scores(Hierarchy.from_paths(["A > B"]), [[0.75, 0.5]])
    >>> print(*prediction_lines(decide(s), s))
    {"id": "0", "labels": [{"label": "B", "path": "A > B", "p": 0.5}]}
    """
    if scores is not None and len(scores) != len(decisions):
        raise TreelabelError(f"{len(decisions):,} decisions, but scores of {len(scores):,} documents")
    if scores is not None and None not in (scores.ids, decisions.ids) and scores.ids != decisions.ids:
        raise TreelabelError("the scores are of other documents than the decisions: their ids differ")
    h = decisions.hierarchy
    is_closed = h.closure(decisions.csr).nnz == decisions.csr.nnz
    labels = decisions.csr if all_labels or not is_closed else decisions.most_specific
    paths: dict[int, str] = {}
    for row in range(len(decisions)):
        nodes = labels.indices[labels.indptr[row] : labels.indptr[row + 1]]
        entries: list[dict[str, Any]] = []
        for node in nodes.tolist():
            if node not in paths:
                paths[node] = h.paths([node])[0]
            entries.append({"label": h.names[node], "path": paths[node]})
        if scores is not None:
            for entry, p in zip(entries, _scores_at(scores, row, nodes), strict=True):
                entry["p"] = p
            entries.sort(key=lambda entry: -entry["p"])
        line: dict[str, Any] = {"id": str(row) if decisions.ids is None else decisions.ids[row], "labels": entries}
        if decisions.unknown is not None and decisions.unknown[row]:
            line["unknown"] = True
        yield json.dumps(line, ensure_ascii=False)


def _scores_at(scores: Scores, row: int, nodes: Any) -> list[float]:
    """Look up the scores of some nodes of a document, rounded to the seven digits that anyone reads."""
    values = scores.values
    if not scores.is_sparse:
        found = values[row, nodes].tolist()
    else:
        low, high = values.indptr[row], values.indptr[row + 1]
        stored = dict(zip(values.indices[low:high].tolist(), values.data[low:high].tolist(), strict=True))
        found = [stored.get(node, 0.0) for node in nodes.tolist()]
    return [float(f"{p:.7g}") for p in found]


def write_predictions(
    decisions: Decisions, path: str | Path, scores: Scores | None = None, all_labels: bool = False
) -> None:
    """Write a prediction file, which appears whole or not at all.

    Parameters
    ----------
    decisions, scores, all_labels
        As for `prediction_lines`.
    path : str or Path
        A file `.jsonl`, compressed if its name ends in .gz, .zst or .bz2.
    """
    if not isinstance(decisions, Decisions):
        raise TreelabelError(f"expected Decisions to write, found {type(decisions).__name__}")
    ending = suffixes(Path(path))[0]
    if ending not in ENDINGS:
        raise TreelabelError(f"{path}: predictions are JSON Lines; expected a name that ends in {' or '.join(ENDINGS)}")
    with open_output(Path(path)) as stream:
        for line in prediction_lines(decisions, scores, all_labels):
            stream.write(line.encode() + b"\n")
