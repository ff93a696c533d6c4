"""Checks of labels: spellings, separators, several labels in one, several parents, too few texts."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

import numpy as np

from treelabel.core.errors import quote, some
from treelabel.core.types import LongArray
from treelabel.data.checks.finding import EXAMPLES, CheckInput, Finding, label_set_numbers, labels_of, plural
from treelabel.data.checks.spelling import clean_name, loose_key, name_key, spelling_groups
from treelabel.hierarchy.hierarchy import SEPARATOR, Hierarchy, split_path
from treelabel.hierarchy.label_ids import SEPARATORS
from treelabel.hierarchy.label_matrices import row_sizes

MARKS: Final = ("|", ";", ",", "/", "+")
# Marks that names hardly have.
CLEAR: Final = ("|", ";")
# Labels that must hold several ones, at least, and the share of parts behind the first that must be labels themselves.
FEWEST: Final = 2
SHARE: Final = 0.5
# With fewer texts a label is learned badly, and cannot be in training, validation and test alike.
FEW = 5


def find_spellings(inspected: CheckInput) -> Finding | None:
    """Find labels that differ in nothing but case, spaces, HTML entities and Unicode forms, or have such marks."""
    h, frequencies = inspected.data.hierarchy, inspected.data.frequencies
    groups = spelling_groups(h)
    extra = len(h) - (int(groups.max()) + 1 if len(h) else 0)
    unclean = [node for node, name in enumerate(h.names) if clean_name(name) != name]
    if not extra and not unclean:
        return None
    top = int(np.sum(h.depth == 1))
    tops = len(np.unique(groups[: h.level_sizes[0]])) if h.is_tree and len(h) else top
    level = f" (on the first level, {top:,} for {tops:,})" if tops < top else ""
    members = _members(groups, h.names, frequencies)
    examples = [", ".join(f"{quote(n, 40)} ({c:,})" for n, c in each) for each in members[:EXAMPLES]]
    if extra:
        message = f"{len(h):,} labels are spellings of {len(h) - extra:,}{level}: they differ in case, spaces, HTML "
        message += "entities or Unicode forms"
    else:
        message = (
            f"{plural(len(unclean), 'label has', 'labels have')} HTML entities, odd spaces or unusual Unicode forms"
        )
        examples = [quote(h.names[node]) for node in unclean[:EXAMPLES]]
    can_fix = inspected.data.is_hierarchy_of_labels and h.is_tree
    remedy = "--fix OUT gives each its most frequent spelling" if can_fix else "unite them in the taxonomy"
    return Finding("spellings", extra or len(unclean), message, tuple(examples), remedy, extra > 0, can_fix)


def _members(groups: LongArray, names: Sequence[str], frequencies: LongArray) -> list[list[tuple[str, int]]]:
    """Return the names of each group that has several, with their documents: the most frequent groups first."""
    members: dict[int, list[tuple[str, int]]] = defaultdict(list)
    for group, name, count in zip(groups.tolist(), names, frequencies.tolist(), strict=True):
        members[group].append((name, count))
    several = [sorted(each, key=lambda item: -item[1]) for each in members.values() if len({n for n, _ in each}) > 1]
    return sorted(several, key=lambda each: -sum(count for _, count in each))


def find_similar_names(inspected: CheckInput) -> Finding | None:
    """Find labels under one parent whose names differ in punctuation alone, or in "&" and "and"."""
    h, frequencies = inspected.data.hierarchy, inspected.data.frequencies
    spellings = spelling_groups(h)
    parent = h.parent.tolist() if h.is_tree else [-1] * len(h)
    by_key: dict[tuple[int, str], dict[int, int]] = defaultdict(dict)
    for node, name in enumerate(h.names):
        above = -1 if parent[node] < 0 else int(spellings[parent[node]])
        by_key[above, loose_key(name)].setdefault(int(spellings[node]), node)
    alike = [list(nodes.values()) for nodes in by_key.values() if len(nodes) > 1]
    if not alike:
        return None
    return Finding(
        "similar_names",
        sum(map(len, alike)),
        f"{sum(map(len, alike)):,} labels have names that differ from another's in punctuation alone, or '&' for 'and'",
        tuple(
            ", ".join(f"{quote(h.names[node], 40)} ({frequencies[node]:,})" for node in nodes)
            for nodes in alike[:EXAMPLES]
        ),
        "if they are the same, replace one name by the other in the file",
    )


def find_other_separators(inspected: CheckInput) -> Finding | None:
    """Find names that are paths of the hierarchy with another separator, such as 'A/B' where others have 'A > B'."""
    h = inspected.data.hierarchy
    if not h.is_tree:
        return None
    known = [
        h.path_names(node) if h.depth[node] > 1 else split_path(h.names[node], SEPARATOR) for node in range(len(h))
    ]
    paths = {tuple(map(name_key, path)) for path in known if len(path) > 1}
    matches: list[tuple[int, str]] = []
    for node, name in enumerate(h.names):
        for separator in SEPARATORS:
            parts = tuple(name_key(part) for part in split_path(name, separator))
            if parts in paths:
                matches.append((node, separator))
                break
    if not matches:
        return None
    marks = sorted({separator for _, separator in matches}, key=len)
    rows = int(inspected.data.frequencies[[node for node, _ in matches]].sum())
    return Finding(
        "other_separators",
        len(matches),
        f"{plural(len(matches), 'label looks like a path', 'labels look like paths')} with another separator than "
        f"others ({rows:,} documents)",
        tuple(quote(h.names[node]) for node, _ in matches[:EXAMPLES]),
        f"--sep {quote(marks[0].strip())} if all paths have it, or replace it in the file",
        is_serious=True,
    )


def find_several_labels(inspected: CheckInput) -> Finding | None:
    """Find a mark that divides labels into parts that are labels elsewhere.

    In a path the steps behind the first do not stand alone or first in other labels; of several labels, most do.
    """
    if not inspected.data.is_hierarchy_of_labels:
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


def _finding(inspected: CheckInput, mark: str, joined: dict[int, list[str]], labels: int, names: int) -> Finding:
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
        tuple(f"{inspected.where(row)}: {inspected.labels_of(row)}" for row in rows[:EXAMPLES].tolist()),
        f"--label-sep {quote(mark)}",
        is_serious=True,
    )


def find_several_parents(inspected: CheckInput) -> Finding | None:
    """Find names under several parents: one node of a DAG, or several nodes of a tree."""
    h = inspected.data.hierarchy
    if h.is_tree:
        parents = [(name, h.parent[ids].tolist()) for name, ids in h.ids_by_name.items() if len(ids) > 1]
        what = "under several parents, for a different label under each"
        remedy = "nothing, as long as labels are written as paths; a name alone would not say which one is meant"
    else:
        several = np.flatnonzero(np.diff(h.parent_ptr) > 1).tolist()
        parents = [(h.names[node], h.parents_of(node)) for node in several]
        what = "under several parents in the taxonomy: one label each, with all of these above it (a DAG)"
        remedy = (
            "if they are different labels, write the taxonomy as paths (lines 'A > Other'), or with columns id, parent "
            "and name, and labels as paths; treelabel convert FILE OUT --unfold makes one label per parent"
        )
    if not parents:
        return None
    return Finding(
        "several_parents",
        len(parents),
        f"{plural(len(parents), 'name stands', 'names stand')} {what}",
        tuple(f"{quote(name)} under {_names(h, nodes)}" for name, nodes in parents[:EXAMPLES]),
        remedy,
    )


def _names(h: Hierarchy, nodes: list[int]) -> str:
    return some([h.names[node] if node >= 0 else "the root" for node in nodes])


def find_one_label(inspected: CheckInput) -> Finding | None:
    """Find that all documents with labels have the same ones."""
    source = inspected.train if inspected.train is not None else inspected.data
    rows = np.flatnonzero(row_sizes(source.labels))
    if len(rows) < 2 or len(np.unique(label_set_numbers(source)[rows])) > 1:
        return None
    where = "" if inspected.train is None else " of the training data"
    return Finding(
        "one_label",
        len(rows),
        f"all {len(rows):,} documents with a label{where} have the same: there is nothing to tell apart",
        (labels_of(source, int(rows[0])),),
        "name the column with the labels (--labels), or add documents with other labels",
        is_serious=True,
    )


def find_rare_labels(inspected: CheckInput) -> Finding | None:
    """Find labels with too few texts to learn."""
    source = inspected.train if inspected.train is not None else inspected.data
    h, frequencies = source.hierarchy, source.frequencies
    rare = np.flatnonzero((frequencies > 0) & (frequencies < FEW))
    if not len(rare):
        return None
    once, seen = int(np.sum(frequencies[rare] == 1)), int(np.sum(frequencies > 0))
    where = "" if inspected.train is None else " in the training data"
    order = rare[np.argsort(frequencies[rare], kind="stable")][:EXAMPLES]
    return Finding(
        "rare_labels",
        len(rare),
        f"{len(rare):,} of {seen:,} labels {'has' if len(rare) == 1 else 'have'} fewer than {FEW} texts{where} "
        f"({once:,} with a single one)",
        tuple(f"{quote(path)}: {frequencies[node]:,}" for path, node in zip(h.paths(order), order, strict=True)),
        "find more texts, or move them to the label above: treelabel convert FILE OUT --cut LEVELS",
    )


def find_unseen_labels(inspected: CheckInput) -> Finding | None:
    """Find labels of the documents that the training data never have."""
    if inspected.train is None:
        return None
    data, h = inspected.data, inspected.data.hierarchy
    unseen = np.flatnonzero((data.frequencies > 0) & (inspected.train.frequencies == 0))
    if not len(unseen):
        return None
    is_unseen = np.zeros(len(h), np.int32)
    is_unseen[unseen] = 1
    rows = np.flatnonzero(data.closed_labels.astype(np.int32) @ is_unseen)
    return Finding(
        "unseen_labels",
        len(rows),
        f"{plural(len(unseen), 'label has', 'labels have')} no text in the training data, but {len(rows):,} here",
        tuple(quote(path) for path in h.paths(unseen[:EXAMPLES])),
        "no model can learn them: check their spelling, or divide all texts anew with treelabel split",
        is_serious=True,
    )
