"""Predictions as a table: one row per document, for whoever opens it in a spreadsheet or joins it with other tables."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from treelabel.core.json_lines import number_texts
from treelabel.evaluation.written_labels import WrittenLabels, chosen_labels, runner_up_labels
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.rules.decisions import Decisions
from treelabel.scores.score_matrix import Scores

# What may stand between the labels of one cell; the first that no label holds is taken.
SEPARATORS = ("; ", " | ", " || ", " ;; ", "\n")


def label_separator(hierarchy: Hierarchy) -> str:
    """Choose what stands between several labels of a cell: something that is part of no label.

    >>> label_separator(Hierarchy.flat(["a", "b"])), label_separator(Hierarchy.flat(["a; b"]))
    ('; ', ' | ')
    """
    free = (mark for mark in SEPARATORS if not any(mark.strip(" ") in name for name in hierarchy.names))
    return next(free, "\n")


def column_names(levels: int, alternatives: int, several: bool, taken: Sequence[str] = ()) -> dict[str, str]:
    """Name the columns of predictions, so that none has the name of a column that is there already.

    Parameters
    ----------
    levels
        The depth of the hierarchy.
    alternatives
        How many further labels there are.
    several
        Whether documents may have several labels.
    taken
        Names of other columns.

    Returns
    -------
    dict
        What a column holds to its name: the same, unless that is taken.

    >>> list(column_names(2, 1, False).values())
    ['predicted', 'path', 'p', 'level1', 'level2', 'alternative1', 'alternative1_p']
    >>> column_names(1, 0, False, ["path"])["path"]
    'predicted_path'
    """
    plain = [
        "predicted",
        "path",
        "p",
        *(["all_p"] if several else []),
        *(f"level{depth + 1}" for depth in range(levels)),
    ]
    plain += [name for rank in range(alternatives) for name in (f"alternative{rank + 1}", f"alternative{rank + 1}_p")]
    others = {name.lower() for name in taken}
    names: dict[str, str] = {}
    for name in plain:
        free = name if name.lower() not in others else f"predicted_{name}"
        while free.lower() in others:
            free += "_"
        names[name] = free
    return names


def prediction_columns(
    decisions: Decisions,
    scores: Scores,
    sep: str,
    all_labels: bool = False,
    alternatives: int = 0,
    several: bool = False,
) -> dict[str, pa.Array]:
    """Make the columns of predictions, one row per document; see `column_names`.

    `predicted` and `path` hold the labels, likeliest first, with `sep` between several; `p` is the probability of the
    first, `all_p` has those of all. A level holds the names of all predicted labels at that depth, ancestors included.

    Parameters
    ----------
    decisions, scores
        What was decided, on what.
    sep
        What stands between several labels.
    all_labels
        Whether ancestors are labels, too.
    alternatives
        How many of the likeliest leaves that were not predicted to add.
    several
        Whether there is a column for the probabilities of all labels.

    Returns
    -------
    dict of arrays

    >>> h = Hierarchy.from_paths(["A > B", "A > C"])
    >>> s = Scores(h, [[0.75, 0.5, 0.25]])
    >>> from treelabel.rules import decide
    >>> [column[0].as_py() for column in prediction_columns(decide(s), s, "; ", alternatives=1).values()]
    ['B', 'A > B', 0.5, 'A', 'B', 'C', 0.25]
    """
    h = decisions.hierarchy
    labels = chosen_labels(decisions, scores, all_labels)
    columns = {
        "predicted": _cells(labels, labels.names(), sep),
        "path": _cells(labels, labels.names(paths=True), sep),
        "p": _nth(labels, 0)[1],
    }
    if several and labels.p is not None:
        columns["all_p"] = _cells(labels, number_texts(labels.p), sep)
    closed = decisions.csr if decisions.closed else h.closure(decisions.csr)
    for depth in range(1, h.max_depth + 1):
        level = h.level(depth)
        part = closed[:, level]
        nodes = WrittenLabels(h, part.indptr.astype(np.int64), part.indices + np.int32(level.start), None)
        columns[f"level{depth}"] = _cells(nodes, nodes.names(), sep)
    if alternatives:
        others = runner_up_labels(decisions, scores, alternatives)
        for rank in range(alternatives):
            names, p = _nth(others, rank, paths=not h.has_unique_names)
            columns |= {f"alternative{rank + 1}": names, f"alternative{rank + 1}_p": p}
    return columns


def _cells(labels: WrittenLabels, texts: pa.Array, sep: str) -> pa.Array:
    """Put the texts of each document into one cell; nothing is null."""
    sizes = np.diff(labels.ptr)
    texts = texts.cast(pa.large_string())
    if len(sizes) and sizes.min() == 1 == sizes.max():
        return texts
    cells = pc.binary_join(labels.lists(texts), pa.scalar(sep, pa.large_string()))
    return pc.if_else(pa.array(sizes > 0), cells, pa.scalar(None, pa.large_string()))


def _nth(labels: WrittenLabels, rank: int, paths: bool = False) -> tuple[pa.Array, pa.Array]:
    """Return one label of each document, counted from the likeliest, and its score; nothing is null."""
    index = labels.ptr[:-1] + rank
    taken = pa.array(index, mask=index >= labels.ptr[1:])
    p = np.zeros(0) if labels.p is None else labels.p
    return labels.names(paths).cast(pa.large_string()).take(taken), pa.array(p).take(taken)
