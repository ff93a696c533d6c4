"""Review queues: a file of texts with suggestions that a person corrects, and the training data made of it.

A queue has the columns id, text, label (for the person), status ("accept" or "review"), priority, suggestion, p and
alternatives. In `label`, a person writes one label, several joined by a separator, "ok" for the suggestion, or "?" or
nothing to skip the text. Accepted rows are left empty: their suggestion stands for them.
"""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from treelabel.core.errors import TreelabelError, quote
from treelabel.core.inputs import existing_file
from treelabel.core.strings import Strings
from treelabel.data.dataset import Dataset
from treelabel.data.io.cells import EscapedFormulasWarning
from treelabel.data.io.format import ReadOptions
from treelabel.data.io.tables import format_of, open_tables
from treelabel.data.taxonomy.sibling_taxonomy import find_sibling_taxonomy
from treelabel.data.taxonomy.taxonomy_files import read_taxonomy
from treelabel.data.write import write
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.label_ids import UnknownLabelError, encode, find_label

LABEL_SEPARATOR = ";"
ACCEPT, REVIEW = "accept", "review"
OK, SKIP = "ok", "?"
NEEDED = ("text", "label", "status", "suggestion")
COLUMNS = ("status", "priority", "suggestion", "p", "alternatives")
# Mistakes that are named at a time.
MOST_REPORTED = 10


@dataclass(frozen=True)
class QueueRow:
    """A row of a queue, beside id and text: paths of the suggestion, how sure it is, and what else it may be."""

    is_accepted: bool
    priority: float
    suggestion: Sequence[str]
    p: float
    alternatives: Sequence[tuple[str, float]]


def write_queue(
    data: Dataset, rows: Sequence[QueueRow], path: str | Path, sep: str = LABEL_SEPARATOR, overwrite: bool = False
) -> list[Path]:
    """Write a queue, and the hierarchy beside it, by which labels are checked later; return the files.

    Parameters
    ----------
    data : Dataset
        The texts, in the order of the queue; their further columns are written too.
    rows : sequence of QueueRow
        What is said of each.
    path : str or Path
        A file of a format that holds columns: .csv, .tsv, .jsonl, .parquet.
    sep : str
        What joins several labels in a cell.
    overwrite : bool
        Whether to replace another hierarchy beside the file.

    Returns
    -------
    list of Path
    """
    if "columns" not in format_of(Path(path)).holds:
        raise TreelabelError(f"{path}: this format has no further columns; write the queue as .csv")
    cells = {
        "status": [ACCEPT if row.is_accepted else REVIEW for row in rows],
        "priority": [round(row.priority, 4) for row in rows],
        "suggestion": [f"{sep} ".join(row.suggestion) for row in rows],
        "p": [round(row.p, 4) for row in rows],
        "alternatives": [" | ".join(f"{label} ({p:.2f})" for label, p in row.alternatives) for row in rows],
    }
    kinds = {"priority": pa.float64(), "p": pa.float64()}
    columns = {
        name: pa.chunked_array([pa.array(values, kinds.get(name, pa.string()))]) for name, values in cells.items()
    }
    others = {name: column for name, column in data.extra.items() if name not in (*COLUMNS, "label")}
    empty = encode(data.hierarchy, [[] for _ in rows])
    queue = replace(data, labels=empty, extra=columns | others, group=None, features=None)
    return _write(queue, path, "label", overwrite)


def _write(data: Dataset, path: str | Path, label_column: str, overwrite: bool) -> list[Path]:
    """Write a file for spreadsheets; that cells were escaped is no news, as they are read as they were."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EscapedFormulasWarning)
        return write(data, path, label_column=label_column, escape_formulas=True, overwrite=overwrite)


@dataclass(frozen=True, eq=False)
class Applied:
    """Training data made of a queue, and how many of its rows a person labelled, how many were accepted or skipped."""

    data: Dataset
    labelled: int
    confirmed: int
    accepted: int
    skipped: int

    def write(self, path: str | Path, overwrite: bool = False) -> list[Path]:
        """Write the training data, and the hierarchy beside them where it is needed; return the files.

        Parameters
        ----------
        path
            The file.
        overwrite
            Whether to replace another hierarchy beside the file.

        Returns
        -------
        list of Path
        """
        return _write(self.data, path, "labels", overwrite)


def read_queue(
    path: str | Path,
    hierarchy: Hierarchy | None = None,
    accepted: bool = False,
    sep: str = LABEL_SEPARATOR,
    options: ReadOptions | None = None,
) -> Applied:
    """Make training data of a queue that a person has corrected; nothing is made if any label is unknown.

    Parameters
    ----------
    path : str or Path
        The queue.
    hierarchy : Hierarchy, optional
        Where labels are looked up; by default what was written beside the queue.
    accepted : bool
        Whether accepted rows that nobody corrected are training data, too, with their suggestion.
    sep : str
        What joins several labels in a cell.
    options : ReadOptions, optional
        How to read the file.

    Returns
    -------
    Applied
    """
    file = existing_file(path)
    if hierarchy is None:
        sibling = find_sibling_taxonomy(file)
        if sibling is None:
            raise TreelabelError(f"{file}: no taxonomy beside it to check labels by; name the model, or --taxonomy")
        hierarchy = read_taxonomy(sibling)
    ids, texts, labels, problems = list[str](), list[str](), list[list[str]](), list[str]()
    counts = dict.fromkeys(("labelled", "confirmed", "accepted", "skipped"), 0)
    for line, values in _rows(file, ReadOptions() if options is None else options):
        try:
            how, cell = _answer(values, hierarchy, accepted)
            counts[how] += 1
            if cell is None:
                continue
            labels.append([hierarchy.paths([node])[0] for node in _find_labels(cell, hierarchy, sep)])
        except UnknownLabelError as error:
            problems.append(f"{file}:{line}: {error}")
            continue
        ids.append(str(values.get("id") or line))
        texts.append(str(values["text"] or ""))
    if problems:
        more = f"; and {len(problems) - MOST_REPORTED:,} more rows" if len(problems) > MOST_REPORTED else ""
        raise TreelabelError("; ".join(problems[:MOST_REPORTED]) + f"{more}; nothing was written")
    names = Strings.of(ids)
    return Applied(Dataset(names, Strings.of(texts), encode(hierarchy, labels), hierarchy), **counts)


def _rows(file: Path, options: ReadOptions) -> Iterator[tuple[int, dict[str, Any]]]:
    """Read the rows with their lines, refusing a file that is no queue."""
    with open_tables(file, options) as source:
        for part in source.parts:
            for problem in part.problems:
                raise TreelabelError(f"{file}:{problem.line}: {problem.message}")
            for row, (line, values) in enumerate(zip(part.lines.tolist(), part.table.to_pylist(), strict=True)):
                names = part.names_of(row)
                missing = [name for name in NEEDED if name not in names]
                if missing:
                    raise TreelabelError(
                        f"{file}:{line}: no column {missing[0]!r}; expected a queue that 'treelabel review' wrote, "
                        f"with all its columns; it has {', '.join(quote(name, 40) for name in names[:20])}"
                    )
                yield line, values


def _answer(values: dict[str, Any], hierarchy: Hierarchy, accepted: bool) -> tuple[str, str | None]:
    """Return what a row counts as, and the cell with its labels, if it has any."""
    cell = str(values["label"] if values["label"] is not None else "").strip()
    suggestion = str(values.get("suggestion") or "").strip() or None
    if cell.lower() == OK and cell not in hierarchy.ids_by_name:
        if suggestion is None:
            raise UnknownLabelError(f"{cell!r} stands for the suggestion, but the row has none; write the label")
        return "confirmed", suggestion
    if cell in (OK, SKIP) and cell in hierarchy.ids_by_name:
        # As an answer, the word would mean something else.
        raise UnknownLabelError(
            f"{cell!r} may be the label of that name or an answer; write it in double quotes for the label, and "
            f"{OK.upper()!r} for the suggestion, or nothing to skip the text"
        )
    if len(cell) > 2 and cell[0] == cell[-1] == '"':
        return "labelled", cell[1:-1]
    if cell and cell != SKIP:
        return "labelled", cell
    is_accepted = str(values.get("status") or "").strip().lower() == ACCEPT
    if accepted and is_accepted and not cell and suggestion is not None:
        return "accepted", suggestion
    return "skipped", None


def _find_labels(cell: str, hierarchy: Hierarchy, sep: str) -> list[int]:
    """Find the labels of a cell, which is one label, or several joined by a separator."""
    try:
        return [find_label(hierarchy, cell)]
    except UnknownLabelError:
        parts = [part.strip() for part in cell.split(sep) if part.strip()]
        if not parts or parts == [cell]:
            raise
    nodes, first = list[int](), 0
    while first < len(parts):
        node, first = _longest(parts, first, hierarchy, sep)
        nodes.append(node)
    return nodes


def _longest(parts: list[str], first: int, hierarchy: Hierarchy, sep: str) -> tuple[int, int]:
    """Find the label that begins with a part, and the part after it: a label may hold the separator, too."""
    for last in range(len(parts), first + 1, -1):
        with suppress(UnknownLabelError):
            return find_label(hierarchy, f"{sep} ".join(parts[first:last])), last
        with suppress(UnknownLabelError):
            return find_label(hierarchy, sep.join(parts[first:last])), last
    return find_label(hierarchy, parts[first]), first + 1
