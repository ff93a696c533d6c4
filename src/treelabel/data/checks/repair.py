"""Repair what is safe to repair in a dataset: spellings of labels, empty texts, copies."""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from treelabel.core.errors import TreelabelError
from treelabel.data.checks.finding import label_set_numbers, plural
from treelabel.data.checks.spelling import spelling_groups, usual_spellings
from treelabel.data.columns import unprintable
from treelabel.data.dataset import Dataset
from treelabel.data.equal_texts import first_occurrences, text_codes
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.label_matrices import renumber_columns

LabelPath = tuple[str, ...]


class Repaired(NamedTuple):
    """A dataset that was repaired, what was done in sentences, and just what changed.

    `removed` has the rows of the dataset before that were left out, with the reason; `renamed` the new path of labels
    that got another spelling.
    """

    data: Dataset
    done: list[str]
    removed: Mapping[int, str] = {}
    renamed: Mapping[LabelPath, LabelPath] = {}


def repair(data: Dataset, train: Dataset | None = None) -> Repaired:
    """Return the dataset without what is surely wrong with it, and what was done, with counts.

    - Spellings of one label (case, spaces, HTML entities, Unicode forms) become the most frequent one, where the
      hierarchy was made of the labels; a taxonomy that was given is left alone.
    - Documents without text are left out.
    - Of documents with the same text, case and spacing aside, and the same labels, the first stays.

    Everything else needs a person's judgment: see `find_problems`.

    Parameters
    ----------
    data : Dataset
        What to repair; it is not changed.
    train : Dataset, optional
        Training data under the same hierarchy, whose spellings count, too.

    Returns
    -------
    Repaired

    >>> data = Dataset.of(["a", "A", " ", "b"], ["x", "X ", "x", "X&amp;"], Hierarchy.flat(["x", "X ", "X&amp;"]))
    >>> repaired = repair(replace(data, choices={"hierarchy": "made of the labels"}))
    >>> repaired.data.names(), repaired.removed, repaired.renamed
    ([['x'], ['X&']], {2: 'no text', 1: 'copy of an earlier text'}, {('X ',): ('x',), ('X&amp;',): ('X&',)})
    """
    united = Repaired(data, [])
    if data.is_hierarchy_of_labels and data.hierarchy.is_tree:
        united = _unite_spellings(data, train)
    data, done = united.data, united.done
    if data.features is not None:
        return united
    codes = text_codes(data.texts)[0]
    empty = codes < 0
    same, _ = first_occurrences(codes, label_set_numbers(data))
    copies = ~empty & (same != np.arange(len(same)))
    if empty.all():
        raise TreelabelError("no document has a text, so nothing would be left; name the column with the text (--text)")
    if empty.any():
        done.append(f"left out {plural(int(empty.sum()), 'document', 'documents')} without text")
    if copies.any():
        done.append(f"left out {plural(int(copies.sum()), 'copy', 'copies')} of a text with the same labels")
    rest = np.flatnonzero(~empty & ~copies)
    removed = dict.fromkeys(np.flatnonzero(empty).tolist(), "no text")
    removed |= dict.fromkeys(np.flatnonzero(copies).tolist(), "copy of an earlier text")
    return Repaired(data if len(rest) == len(data) else data[rest], done, removed, united.renamed)


def _unite_spellings(data: Dataset, train: Dataset | None) -> Repaired:
    """Unite labels that are spellings of one under its most frequent name."""
    h = data.hierarchy
    groups = spelling_groups(h)
    frequencies = data.frequencies if train is None else data.frequencies + train.frequencies
    names = usual_spellings(h.names, groups, frequencies)
    # A name that cannot stand in a file stays as it is.
    if unprintable(names) is not None or [names[group] for group in groups.tolist()] == list(h.names):
        return Repaired(data, [])
    paths: list[tuple[str, ...]] = []
    for node, group in enumerate(groups.tolist()):
        above = () if h.parent[node] < 0 else paths[h.parent[node]]
        paths.append((*above, names[group]))
    united = Hierarchy.from_paths(paths)
    node_of = {tuple(united.path_names(node)): node for node in range(len(united))}
    moved = renumber_columns(data.labels, np.array([node_of[path] for path in paths], np.int32), len(united))
    changed = [node for node, path in enumerate(paths) if path[-1] != h.names[node]]
    rows = int(np.sum(data.closed_labels.astype(np.int32) @ np.isin(np.arange(len(h)), changed).astype(np.int32) > 0))
    summary = f"gave {plural(len(changed), 'label', 'labels')} of {rows:,} documents another spelling: "
    summary += f"{len(h):,} labels are {len(united):,} now"
    old = (tuple(h.path_names(node)) for node in range(len(h)))
    renamed = {before: after for before, after in zip(old, paths, strict=True) if before != after}
    return Repaired(replace(data, labels=moved, hierarchy=united), [summary], {}, renamed)
