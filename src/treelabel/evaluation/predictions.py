"""Predictions as they are written: JSON Lines."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from treelabel.core.atomic_output import open_output
from treelabel.core.errors import TreelabelError
from treelabel.core.inputs import suffixes
from treelabel.core.json_lines import json_lines
from treelabel.rules.decision_columns import chosen_labels, runner_up_labels
from treelabel.rules.decisions import Decisions
from treelabel.scores.score_matrix import Scores

ENDINGS = (".jsonl", ".json", ".ndjson")
# Documents whose lines are made at once.
ROWS = 8192
# Keys of lines that are there only where they are true.
FLAGS = ("closed", "unknown")


def prediction_lines(decisions: Decisions, scores: Scores | None = None, all_labels: bool = False) -> Iterator[str]:
    """Yield a line of JSON per document: {"id": ..., "labels": [{"label": name, "path": "A > B", "p": 0.93}, ...]}.

    A line has "closed": true if its labels stand for themselves and all their ancestors, and "unknown": true if the
    rule abstained.

    Parameters
    ----------
    decisions : Decisions
        Sets that are not closed are written as they are.
    scores : Scores, optional
        Where the probabilities come from; labels are written likeliest first.
    all_labels : bool
        Whether to write ancestors too, not only the most specific labels.

    Yields
    ------
    str

    >>> from treelabel.hierarchy import Hierarchy
    >>> from treelabel.rules import decide
    >>> s = Scores(Hierarchy.from_paths(["A > B"]), [[0.75, 0.5]])
    >>> print(*prediction_lines(decide(s), s))
    {"id": "0", "labels": [{"label": "B", "path": "A > B", "p": 0.5}], "closed": true}
    """
    for lines in _batches(decisions, scores, all_labels):
        yield from lines.decode().split("\n")[:-1]


def _batches(decisions: Decisions, scores: Scores | None, all_labels: bool) -> Iterator[bytes]:
    if scores is not None and len(scores) != len(decisions):
        raise TreelabelError(f"{len(decisions):,} decisions, but scores of {len(scores):,} documents")
    if scores is not None and None not in (scores.ids, decisions.ids) and scores.ids != decisions.ids:
        raise TreelabelError("the scores are of other documents than the decisions: their ids differ")
    for start in range(0, len(decisions), ROWS):
        part = slice(start, min(start + ROWS, len(decisions)))
        names = map(str, range(part.start, part.stop)) if decisions.ids is None else decisions.ids[part]
        ids = pa.array(list(names), pa.large_string())
        some = None if scores is None else Scores(scores.hierarchy, scores.values[part])
        yield prediction_bytes(replace(decisions, ids=None)[part], ids, some, all_labels)


def prediction_bytes(
    decisions: Decisions,
    ids: pa.Array,
    scores: Scores | None = None,
    all_labels: bool = False,
    alternatives: int = 0,
    columns: Mapping[str, Any] | None = None,
    uris: bool = False,
) -> bytes:
    """Write the lines of some documents at once.

    Parameters
    ----------
    decisions, scores, all_labels
        As for `prediction_lines`.
    ids : array of text
        One per document.
    alternatives : int
        How many of the likeliest leaves that were not predicted to add, as "alternatives"; needs scores.
    columns : mapping, optional
        Further columns, which stand in every line.
    uris : bool
        Whether labels have their URIs and notations, too.

    Returns
    -------
    bytes
    """
    fields: dict[str, Any] = {"id": ids, "labels": chosen_labels(decisions, scores, all_labels).objects(uris)}
    if alternatives and scores is not None:
        fields["alternatives"] = runner_up_labels(decisions, scores, alternatives).objects(uris)
    further: dict[str, Any] = {}
    for name, column in (columns or {}).items():
        free = name
        while free in (*fields, *further, "alternatives", *FLAGS):
            free += "_"
        further[free] = column
    flags = {"closed": decisions.closed_rows, "unknown": decisions.unknown}
    for name, mask in flags.items():
        if mask is not None:
            # True or null.
            index = pa.array(np.zeros(len(mask), np.int8), mask=~mask)
            further[name] = pa.DictionaryArray.from_arrays(index, pa.array([True]))
    return json_lines(fields | further, FLAGS)


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
        for lines in _batches(decisions, scores, all_labels):
            stream.write(lines)
