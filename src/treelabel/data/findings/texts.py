"""Findings about single documents: no text, no label, an id that another one has."""

import numpy as np
import pyarrow.compute as pc

from treelabel.core.errors import quoted
from treelabel.data.findings.finding import EXAMPLES, Finding, Inspected, share
from treelabel.hierarchy import row_sizes


def find_empty_texts(inspected: Inspected) -> Finding | None:
    """Find documents whose text is empty or blank."""
    if inspected.data.features is not None:
        return None
    rows = np.flatnonzero(inspected.codes < 0)
    if not len(rows):
        return None
    return Finding(
        "empty_texts",
        len(rows),
        f"{share(len(rows), len(inspected.data), 'have')} no text",
        tuple(f"{inspected.where(row)}: {inspected.given(row)}" for row in rows[:EXAMPLES].tolist()),
        "--fix OUT leaves them out; or name the column with the text (--text)",
        is_serious=len(rows) * 100 > len(inspected.data),
        is_fixed=True,
    )


def find_unlabelled(inspected: Inspected) -> Finding | None:
    """Find documents without a label, among others that have one."""
    rows = np.flatnonzero(row_sizes(inspected.data.labels) == 0)
    if not 0 < len(rows) < len(inspected.data):
        return None
    return Finding(
        "unlabelled",
        len(rows),
        f"{share(len(rows), len(inspected.data), 'have')} no label; models learn that nothing fits there",
        tuple(inspected.where(row) for row in rows[:EXAMPLES].tolist()),
        "give them labels, or leave them out of training",
    )


def find_equal_ids(inspected: Inspected) -> Finding | None:
    """Find ids that several documents have."""
    ids = inspected.data.ids.arrow
    extra = len(ids) - pc.count_distinct(ids).as_py()
    if extra == 0:
        return None
    counts = pc.value_counts(ids)
    often = counts.filter(pc.greater(counts.field("counts"), 1)).slice(0, EXAMPLES).to_pylist()
    return Finding(
        "equal_ids",
        extra,
        f"{share(extra, len(ids), 'have')} the id of an earlier one; predictions cannot be matched by id",
        tuple(f"{quoted(each['values'], 40)} stands on {each['counts']:,} documents" for each in often),
        "name another column (--id), or drop the column: rows are then numbered",
    )
