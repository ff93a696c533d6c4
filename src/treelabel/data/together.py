"""Read several files, such as training and test data, under one hierarchy."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from treelabel.core.inputs import existing_file
from treelabel.core.limits import DEFAULT_LIMITS
from treelabel.data.dataset import Dataset
from treelabel.data.read import read
from treelabel.data.taxonomy import read_taxonomy, taxonomy_beside
from treelabel.hierarchy import Hierarchy
from treelabel.hierarchy.sets import renamed


def read_together(paths: Sequence[str | Path], taxonomy: Any = None, **options: Any) -> list[Dataset]:
    """Read files with one hierarchy: the taxonomy given, or found beside one of them, or else all labels of all files.

    `options` are those of `read`. Without any taxonomy a test file rarely has the labels of its training file; here
    both get the tree (or the flat list) of the labels of both, so that they can be described and judged together.

    Parameters
    ----------
    paths
        The files.
    taxonomy
        A Hierarchy, or a file that holds one.
    **options
        Options of `read`.

    Returns
    -------
    list of Dataset
        One per file.
    """
    files = [existing_file(path) for path in paths]
    if taxonomy is None:
        beside = [found for file in files if (found := taxonomy_beside(file)) is not None]
        limits = options.get("limits", DEFAULT_LIMITS)
        taxonomy = read_taxonomy(beside[0], root=options.get("root"), limits=limits) if beside else None
    data = [read(path, taxonomy=taxonomy, **options) for path in files]
    if all(part.hierarchy == data[0].hierarchy for part in data):
        return data
    union = united([part.hierarchy for part in data])
    place = {tuple(union.path_names(node)): node for node in range(len(union))}
    moved = []
    for part in data:
        names = [place[tuple(part.hierarchy.path_names(node))] for node in range(len(part.hierarchy))]
        labels = renamed(part.labels, np.array(names, np.int32), len(union))
        moved.append(replace(part, labels=labels, hierarchy=union))
    return moved


def united(hierarchies: Sequence[Hierarchy]) -> Hierarchy:
    """Make one tree of all paths of several trees.

    >>> united([Hierarchy.from_paths(["A > B"]), Hierarchy.from_paths(["A > C"])]).paths()
    ['A', 'A > B', 'A > C']
    """
    for each in hierarchies:
        # Raises an error where it is no tree.
        _ = each.parent
    return Hierarchy.from_paths(tuple(each.path_names(node)) for each in hierarchies for node in range(len(each)))
