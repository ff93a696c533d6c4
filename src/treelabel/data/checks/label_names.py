"""Findings about names of labels: spellings of one name, names that look alike, paths with another separator."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from treelabel.core.errors import quote
from treelabel.core.types import LongArray
from treelabel.data.checks.finding import EXAMPLES, Finding, Inspected, counted
from treelabel.data.checks.spelling import clean_name, loose_key, name_key, spelling_groups
from treelabel.hierarchy import SEPARATOR, split_path
from treelabel.hierarchy.label_ids import SEPARATORS


def find_spellings(inspected: Inspected) -> Finding | None:
    """Find labels that differ in nothing but case, spaces, HTML entities and Unicode forms, or have such marks."""
    h, frequencies = inspected.data.hierarchy, inspected.data.frequencies
    groups = spelling_groups(h)
    extra = len(h) - (int(groups.max()) + 1 if len(h) else 0)
    odd = [node for node, name in enumerate(h.names) if clean_name(name) != name]
    if not extra and not odd:
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
        message = f"{counted(len(odd), 'label has', 'labels have')} HTML entities, odd spaces or unusual Unicode forms"
        examples = [quote(h.names[node]) for node in odd[:EXAMPLES]]
    can_fix = inspected.is_made_of_labels and h.is_tree
    remedy = "--fix OUT gives each its most frequent spelling" if can_fix else "unite them in the taxonomy"
    return Finding("spellings", extra or len(odd), message, tuple(examples), remedy, extra > 0, can_fix)


def _members(groups: LongArray, names: Sequence[str], frequencies: LongArray) -> list[list[tuple[str, int]]]:
    """Return the names of each group that has several, with their documents: the most frequent groups first."""
    found: dict[int, list[tuple[str, int]]] = defaultdict(list)
    for group, name, count in zip(groups.tolist(), names, frequencies.tolist(), strict=True):
        found[group].append((name, count))
    several = [sorted(each, key=lambda item: -item[1]) for each in found.values() if len({n for n, _ in each}) > 1]
    return sorted(several, key=lambda each: -sum(count for _, count in each))


def find_similar_names(inspected: Inspected) -> Finding | None:
    """Find labels under one parent whose names differ in punctuation alone, or in "&" and "and"."""
    h, frequencies = inspected.data.hierarchy, inspected.data.frequencies
    spellings = spelling_groups(h)
    parent = h.parent.tolist() if h.is_tree else [-1] * len(h)
    found: dict[tuple[int, str], dict[int, int]] = defaultdict(dict)
    for node, name in enumerate(h.names):
        above = -1 if parent[node] < 0 else int(spellings[parent[node]])
        found[above, loose_key(name)].setdefault(int(spellings[node]), node)
    alike = [list(nodes.values()) for nodes in found.values() if len(nodes) > 1]
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


def find_other_separators(inspected: Inspected) -> Finding | None:
    """Find names that would be paths of the hierarchy if another separator were meant, such as 'A/B' beside 'A > B'."""
    h = inspected.data.hierarchy
    if not h.is_tree:
        return None
    known = [
        h.path_names(node) if h.depth[node] > 1 else split_path(h.names[node], SEPARATOR) for node in range(len(h))
    ]
    paths = {tuple(map(name_key, path)) for path in known if len(path) > 1}
    found: list[tuple[int, str]] = []
    for node, name in enumerate(h.names):
        for separator in SEPARATORS:
            parts = tuple(name_key(part) for part in split_path(name, separator))
            if parts in paths:
                found.append((node, separator))
                break
    if not found:
        return None
    marks = sorted({separator for _, separator in found}, key=len)
    rows = int(inspected.data.frequencies[[node for node, _ in found]].sum())
    return Finding(
        "other_separators",
        len(found),
        f"{counted(len(found), 'label looks like a path', 'labels look like paths')} with another separator than "
        f"others ({rows:,} documents)",
        tuple(quote(h.names[node]) for node, _ in found[:EXAMPLES]),
        f"--sep {quote(marks[0].strip())} if all paths have it, or replace it in the file",
        is_serious=True,
    )
