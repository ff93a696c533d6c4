"""Finding: cells that hold several labels, which were read as one."""

from typing import Final

import numpy as np

from treelabel.core.errors import quote
from treelabel.data.checks.finding import EXAMPLES, Finding, Inspected
from treelabel.hierarchy import split_path

MARKS: Final = ("|", ";", ",", "/", "+")
# Marks that names hardly have.
CLEAR: Final = ("|", ";")
# Labels that must hold several ones, at least, and the share of parts behind the first that must be labels themselves.
FEWEST: Final = 2
SHARE: Final = 0.5


def find_several_labels(inspected: Inspected) -> Finding | None:
    """Find a mark that divides labels into parts that are labels elsewhere.

    In a path the steps behind the first do not stand alone or first in other labels; of several labels, most do.
    """
    if not inspected.is_made_of_labels:
        return None
    data = inspected.data
    ends = np.unique(data.labels.indices)
    paths = dict(zip(ends.tolist(), data.hierarchy.paths(ends), strict=True))
    for mark in MARKS:
        joined = {node: parts for node, path in paths.items() if len(parts := _parts(path, mark)) > 1}
        if len(joined) < FEWEST:
            continue
        heads = {_parts(path, mark)[0] for path in paths.values()}
        alone = {path for node, path in paths.items() if node not in joined}
        behind = {part for parts in joined.values() for part in parts[1:]}
        names = {part for path in paths.values() for part in _parts(path, mark)}
        # Fewer names than labels; or, with a mark that names hardly have, a label all of whose parts stand alone, too.
        whole = mark in CLEAR and any(alone.issuperset(parts) for parts in joined.values())
        if (
            len(behind & (heads | alone)) >= SHARE * len(behind)
            and alone & names
            and (whole or len(names) < len(paths))
        ):
            return _finding(inspected, mark, joined, len(paths), len(names))
    return None


def _parts(path: str, mark: str) -> list[str]:
    return [part for part in split_path(path, mark) if part]


def _finding(inspected: Inspected, mark: str, joined: dict[int, list[str]], labels: int, names: int) -> Finding:
    data = inspected.data
    nodes = np.array(list(joined), np.int64)
    is_joined = np.zeros(len(data.hierarchy), np.int32)
    is_joined[nodes] = 1
    rows = np.flatnonzero(data.labels.astype(np.int32) @ is_joined)
    return Finding(
        "several_labels",
        len(rows),
        f"{len(joined):,} labels look like several with {quote(mark)} between them ({len(rows):,} documents): without "
        f"them, {labels:,} labels would be {names:,}",
        tuple(f"{inspected.where(row)}: {inspected.given(row)}" for row in rows[:EXAMPLES].tolist()),
        f"--label-sep {quote(mark)}",
        is_serious=True,
    )
