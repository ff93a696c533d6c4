"""Prediction files under a taxonomy that has changed."""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from treelabel.core.atomic_output import open_output
from treelabel.core.errors import TreelabelError, locate_errors, quote
from treelabel.core.inputs import existing_file, numbered_lines, suffixes
from treelabel.core.json_text import JsonLimitError, number_of, parse_json
from treelabel.core.limits import DEFAULT_LIMITS, Limits
from treelabel.core.validation import validate
from treelabel.evaluation.predictions import ENDINGS
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.label_ids import find_label
from treelabel.hierarchy.label_matrices import label_matrix
from treelabel.hierarchy.moves import Moves

# Labels whose probabilities sum to no more than this are taken to exclude each other.
WHOLE = 1 + 1e-3


@dataclass(frozen=True)
class MovedFile:
    """How many documents a prediction file had, and how many of them have other labels, or none any more."""

    documents: int
    changed: int
    emptied: int


def is_prediction_file(path: Path, limits: Limits = DEFAULT_LIMITS) -> bool:
    """Return whether a file holds predictions as treelabel writes them: JSON Lines of labels with their paths.

    Parameters
    ----------
    path
        The file, of which one line is read.
    limits
        The resources that reading may take.

    Returns
    -------
    bool
    """
    if suffixes(path)[0] not in ENDINGS:
        return False
    try:
        where, first = next(_objects(existing_file(path), limits), ("", {}))
        _entries(where, first)
    except TreelabelError:
        return False
    return "text" not in first


def _objects(file: Path, limits: Limits) -> Iterator[tuple[str, Any]]:
    """Yield where each line stands, and its JSON."""
    for number, line in numbered_lines(file, limits=limits):
        try:
            yield f"{file}:{number}", parse_json(line, limits)
        except json.JSONDecodeError as error:
            raise TreelabelError(f"{file}:{number}: not valid JSON: {error.msg}") from None
        except JsonLimitError as error:
            raise TreelabelError(f"{file}:{number}: {error}") from None


def _entries(where: str, line: Any) -> list[tuple[str, dict[str, Any]]]:
    """Return the labels of a line, by their paths where they have some, and what stands with them."""
    try:
        validate(line["labels"], list[Mapping[str, Any]], "labels")
        entries = [(entry.get("path", entry.get("label")), entry) for entry in line["labels"]]
        validate([label for label, _ in entries], list[str], "labels")
    except (KeyError, TypeError, TreelabelError):
        raise TreelabelError(
            f'{where}: expected {{"id": ..., "labels": [{{"label": ..., "path": ...}}, ...]}}, found {quote(line)}'
        ) from None
    return entries


def predicted_hierarchy(path: str | Path, limits: Limits = DEFAULT_LIMITS) -> Hierarchy:
    """Make a hierarchy of the paths in a prediction file.

    Parameters
    ----------
    path
        The file.
    limits
        The resources that reading may take.

    Returns
    -------
    Hierarchy
    """
    file = existing_file(path)
    paths: dict[str, None] = {}
    for where, line in _objects(file, limits):
        paths.update(dict.fromkeys(label for label, _ in _entries(where, line)))
    if not paths:
        raise TreelabelError(f"{file}: no document has a label, so there is nothing to carry to another taxonomy")
    return Hierarchy.from_paths(paths)


def move_predictions(
    source: str | Path, target: str | Path, moves: Moves, limits: Limits = DEFAULT_LIMITS
) -> MovedFile:
    """Carry a prediction file to another taxonomy, line by line; the file appears whole or not at all.

    Labels go where `Moves.labels` has them go. Labels of a document that become one have the sum of their
    probabilities where all labels of the document sum to 1 at most, and so may exclude each other, else 1 - the product
    of (1 - p); a label that goes to an ancestor takes its probability along, which is the least that one can have.
    Ancestors are listed where they were listed before. All else in a line stays as it is.

    Parameters
    ----------
    source, target : str or Path
        JSON Lines as `write_predictions` writes them; the target may have the endings that it takes.
    moves : Moves
        From the taxonomy of the predictions to the new one.
    limits : Limits
        The resources that reading may take.

    Returns
    -------
    MovedFile
    """
    if suffixes(Path(target))[0] not in ENDINGS:
        raise TreelabelError(
            f"{target}: predictions are JSON Lines; expected a name that ends in {' or '.join(ENDINGS)}"
        )
    node_of = cache(partial(find_label, moves.old))
    documents = changed = emptied = 0
    paths = moves.new.paths()
    with open_output(Path(target)) as stream:
        for where, line in _objects(existing_file(source), limits):
            entries = _entries(where, line)
            with locate_errors(where):
                before = {node_of(label): with_number(entry) for label, entry in entries}
            labels = _move_labels(before, moves, paths)
            documents += 1
            changed += [entry.get("path") for entry in labels] != [entry.get("path") for _, entry in entries]
            emptied += bool(before) and not labels
            stream.write(json.dumps({**line, "labels": labels}, ensure_ascii=False).encode() + b"\n")
    return MovedFile(documents, changed, emptied)


def with_number(entry: dict[str, Any]) -> dict[str, Any]:
    """Return a label with its probability as a number; what is none is left out.

    >>> with_number({"label": "A", "p": "0.5"}), with_number({"label": "A", "p": None})
    ({'label': 'A', 'p': 0.5}, {'label': 'A'})
    """
    p = number_of(entry.get("p"))
    rest = {name: value for name, value in entry.items() if name != "p"}
    return rest if p is None else {**rest, "p": p}


def _move_labels(before: dict[int, dict[str, Any]], moves: Moves, paths: list[str]) -> list[dict[str, Any]]:
    """Carry the labels of one document."""
    nodes = sorted(before)
    row = label_matrix([0, len(nodes)], nodes, len(moves.old))
    specific = moves.old.most_specific(row).indices.tolist()
    are_exclusive = math.fsum(before[node].get("p", 0.0) for node in specific) <= WHOLE
    made = []
    for target in moves.labels(row).indices.tolist():
        sources = [node for node in specific if target in moves.forward[[node]].indices]
        above = [node for node in nodes if node not in specific and target in moves.targets[node]]
        entry = {**before[(sources or above or specific)[0]], "label": moves.new.names[target], "path": paths[target]}
        entry.pop("p", None)
        p = _union([before[node]["p"] for node in sources if "p" in before[node]], are_exclusive)
        p += [before[node]["p"] for node in above if "p" in before[node]]
        made.append((target, entry | ({"p": max(p)} if p else {})))
    # A listed ancestor has at least the probability of every label below it.
    for target, entry in made:
        below = [other["p"] for node, other in made if "p" in other and target in moves.new.ancestors([node]).indices]
        if below:
            entry["p"] = max([entry.get("p", 0.0), *below])
    if any("p" in entry for _, entry in made):
        made.sort(key=lambda pair: -pair[1].get("p", 0.0))
    return [entry for _, entry in made]


def _union(values: list[float], are_exclusive: bool) -> list[float]:
    """Return the probability that any of some labels is right, in a list; one value stays as it is, as none does."""
    if len(values) < 2:
        return values
    total = math.fsum(values) if are_exclusive else 1 - math.prod(1 - value for value in values)
    return [float(f"{min(1.0, total):.7g}")]
