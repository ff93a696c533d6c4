"""Finding: columns that look like the levels of a hierarchy, of which only one was read."""

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from treelabel.core.errors import quote
from treelabel.core.types import LongArray
from treelabel.data.checks.finding import CheckInput, Finding
from treelabel.hierarchy.label_matrices import row_sizes

# A value of the child's column determines that of the parent's if this share of its documents has the same one there.
AGREE: Final = 0.97
# This share of a child's values must do so; others, such as "Other", may stand under several parents.
DETERMINED: Final = 0.8
# A column that nearly always has the same value is determined by every other one.
MOST_USUAL: Final = 0.9
# A parent has at least this many children on average, and a child this many documents.
BRANCHING: Final = 1.5
DOCUMENTS: Final = 2.0
MOST_COLUMNS: Final = 50
# What shops call their levels, from the top: a class may stand in several departments, and determine none of them.
LEVEL_NAMES: Final = (
    ("division", "sector"),
    ("dept", "department", "segment"),
    ("section", "family", "category", "main category"),
    ("class", "group", "subsection", "subfamily", "subcategory"),
    ("subclass", "subgroup", "subsubcategory"),
)


def find_level_columns(inspected: CheckInput) -> Finding | None:
    """Find columns in which the value of one determines that of the next one above, such as subclass, class, dept.

    The columns are ordered by how many values they have, and the longest chain that holds the column of labels counts.
    """
    data = inspected.data
    label = data.choices.get("labels", "none")
    if not inspected.data.is_hierarchy_of_labels or data.hierarchy.max_depth > 1 or not len(data):
        return None
    # Documents without a label, or with several, have -1.
    codes = np.full(len(data), -1, np.int64)
    one = row_sizes(data.labels) == 1
    codes[one] = np.unique(data.labels.indices[data.labels.indptr[:-1][one]], return_inverse=True)[1]
    columns = {label: codes}
    for name, column in list(data.extra.items())[:MOST_COLUMNS]:
        if (values := _codes(column)) is not None:
            columns[name] = values
    order = sorted(columns, key=lambda name: int(columns[name].max(initial=-1)))
    chain = _with_named(_chain(columns, order, label), columns)
    if len(chain) < 2:
        return None
    sizes = [f"{name} ({int(columns[name].max()) + 1:,})" for name in chain]
    return Finding(
        "level_columns",
        len(chain),
        f"the columns {', '.join(sizes)} look like the levels of a hierarchy, "
        f"but labels are read from {quote(label)} alone",
        (_example(inspected, chain, label),),
        f"--labels {','.join(chain)}"
        if not any("," in name for name in chain)
        else " ".join(f"--labels {quote(name)}" for name in chain),
        is_serious=True,
    )


def _example(inspected: CheckInput, chain: list[str], label: str) -> str:
    data = inspected.data
    row = int(np.flatnonzero(row_sizes(data.labels) == 1)[0])
    values = [data.names()[row][0] if name == label else str(data.extra[name][row]) for name in chain]
    return f"{inspected.where(row)}: {' > '.join(quote(value, 40) for value in values)}"


def _codes(column: pa.ChunkedArray) -> LongArray | None:
    """Number the values of a column of words or whole numbers; empty ones are -1. None if it is of another kind."""
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        column = pc.utf8_trim_whitespace(column)
        column = pc.if_else(pc.equal(column, ""), pa.scalar(None, column.type), column)
    elif not pa.types.is_integer(kind):
        return None
    coded = column.combine_chunks().dictionary_encode()
    coded = coded.combine_chunks() if isinstance(coded, pa.ChunkedArray) else coded
    codes: LongArray = coded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    return codes


def _chain(columns: dict[str, LongArray], order: list[str], label: str) -> list[str]:
    """Climb from the label's column upwards, then downwards, always to the nearest column that fits."""
    position = order.index(label)
    chain = [label]
    for name in reversed(order[:position]):
        if _determines(columns[chain[0]], columns[name]):
            chain.insert(0, name)
    for name in order[position + 1 :]:
        if _determines(columns[name], columns[chain[-1]]):
            chain.append(name)
    return chain


def _with_named(chain: list[str], columns: dict[str, LongArray]) -> list[str]:
    """Add columns that are called as levels are, if all of the chain are; a column of one value is no level."""
    rank = {name: level for name in columns if (level := _level_of(name)) is not None}
    if not all(name in rank for name in chain):
        return chain
    named = [name for name in rank if name in chain or int(columns[name].max(initial=-1)) > 0]
    ordered = sorted(named, key=lambda name: rank[name])
    different = len({rank[name] for name in named}) == len(named)
    return ordered if different and [name for name in ordered if name in chain] == chain else chain


def _level_of(name: str) -> int | None:
    """Return the level that the name of a column means, counted from the top.

    >>> _level_of("Dept"), _level_of("sub_class"), _level_of("price") is None
    (1, 4, True)
    """
    plain = name.lower().replace("_", " ").replace("-", " ").strip()
    spellings = {plain, plain.replace(" ", "")}
    return next((level for level, names in enumerate(LEVEL_NAMES) if spellings.intersection(names)), None)


def _determines(child: LongArray, parent: LongArray) -> bool:
    """Return whether the values of one column (nearly) always say those of another, which are fewer."""
    both = (child >= 0) & (parent >= 0)
    child, parent = child[both], parent[both]
    if not len(child):
        return False
    children, parents = len(np.unique(child)), len(np.unique(parent))
    if parents < 2 or children < BRANCHING * parents or len(child) < DOCUMENTS * children:
        return False
    if np.bincount(parent).max() > MOST_USUAL * len(parent):
        return False
    pairs, counts = np.unique(child * (int(parent.max()) + 1) + parent, return_counts=True)
    usual = np.zeros(int(child.max()) + 1, np.int64)
    np.maximum.at(usual, pairs // (int(parent.max()) + 1), counts)
    every = np.bincount(child)
    # A value with one document determines everything.
    several = every > 1
    does = usual[several] >= AGREE * every[several]
    return bool(does.sum() >= DETERMINED * max(1, several.sum()) and usual.sum() >= DETERMINED * len(child))
