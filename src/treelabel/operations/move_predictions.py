"""Prediction files under a taxonomy that has changed."""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from treelabel.core.atomic_output import open_output
from treelabel.core.errors import TreelabelError, locate_errors, quote
from treelabel.core.inputs import existing_file, numbered_lines, suffixes
from treelabel.core.json_text import JsonLimitError, number_of, parse_json
from treelabel.core.limits import DEFAULT_LIMITS, Limits
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
        _, first = next(_objects(existing_file(path), limits), (0, {}))
    except TreelabelError:
        return False
    labels = first.get("labels") if isinstance(first, dict) else None
    return isinstance(labels, list) and "text" not in first and all(_is_entry(entry) for entry in labels)


def _is_entry(entry: Any) -> bool:
    return isinstance(entry, dict) and isinstance(entry.get("path", entry.get("label")), str)


def _label(entry: dict[str, Any]) -> str:
    return str(entry.get("path", entry.get("label")))


def _objects(file: Path, limits: Limits) -> Iterator[tuple[str, Any]]:
    """Yield where each line stands, and its JSON."""
    for number, line in numbered_lines(file, limits=limits):
        try:
            yield f"{file}:{number}", parse_json(line, limits)
        except json.JSONDecodeError as error:
            raise TreelabelError(f"{file}:{number}: not valid JSON: {error.msg}") from None
        except JsonLimitError as error:
            raise TreelabelError(f"{file}:{number}: {error}") from None


def _entries(place: str, line: Any) -> list[dict[str, Any]]:
    labels = line.get("labels") if isinstance(line, dict) else None
    if not isinstance(labels, list) or not all(_is_entry(entry) for entry in labels):
        raise TreelabelError(
            f'{place}: expected {{"id": ..., "labels": [{{"label": ..., "path": ...}}, ...]}}, found {quote(line)}'
        )
    return labels


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
    for place, line in _objects(file, limits):
        paths.update(dict.fromkeys(_label(entry) for entry in _entries(place, line)))
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
    known: dict[str, int] = {}
    documents = changed = emptied = 0
    paths = moves.new.paths()
    with open_output(Path(target)) as stream:
        for place, line in _objects(existing_file(source), limits):
            given: dict[int, dict[str, Any]] = {}
            for entry in _entries(place, line):
                label = _label(entry)
                if label not in known:
                    with locate_errors(place):
                        known[label] = find_label(moves.old, label)
                given[known[label]] = with_number(entry)
            labels = _move_labels(given, moves, paths)
            documents += 1
            changed += [entry.get("path") for entry in labels] != [entry.get("path") for entry in line["labels"]]
            emptied += bool(given) and not labels
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


def _move_labels(given: dict[int, dict[str, Any]], moves: Moves, paths: list[str]) -> list[dict[str, Any]]:
    """Carry the labels of one document."""
    nodes = sorted(given)
    row = label_matrix([0, len(nodes)], nodes, len(moves.old))
    own = moves.old.most_specific(row).indices.tolist()
    result = moves.labels(row).indices.tolist()
    whole = math.fsum(given[node].get("p", 0.0) for node in own) <= WHOLE
    made = []
    for target in result:
        sources = [node for node in own if target in moves.forward[[node]].indices]
        above = [node for node in nodes if node not in own and target in moves.targets[node]]
        first = given[(sources or above or [next(iter(own))])[0]]
        entry = {**first, "label": moves.new.names[target], "path": paths[target]}
        p = _together([given[node].get("p") for node in sources], whole)
        raised = [p, *(given[node].get("p") for node in above)]
        entry.pop("p", None)
        if any(value is not None for value in raised):
            entry["p"] = max(value for value in raised if value is not None)
        made.append((target, entry))
    # A listed ancestor has at least the probability of every label below it.
    for target, entry in made:
        below = [other["p"] for node, other in made if "p" in other and target in moves.new.ancestors([node]).indices]
        if below:
            entry["p"] = max([entry.get("p", 0.0), *below])
    if any("p" in entry for _, entry in made):
        made.sort(key=lambda pair: -pair[1].get("p", 0.0))
    return [entry for _, entry in made]


def _together(values: list[float | None], exclusive: bool) -> float | None:
    known = [value for value in values if value is not None]
    if not known:
        return None
    if len(known) == 1:
        return known[0]
    total = math.fsum(known) if exclusive else 1 - math.prod(1 - value for value in known)
    return float(f"{min(1.0, total):.7g}")
