"""The hierarchy as compact JSON, from which the page draws only the branches that are open."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from treelabel.core.errors import shorten
from treelabel.core.types import LongArray

if TYPE_CHECKING:
    from treelabel.report.systems import ReportSystem

LONGEST_NAME = 160
# F1 in whole numbers from 0 to this.
STEPS = 1000


def tree_json(systems: "Sequence[ReportSystem]", most_bytes: int) -> str:
    """Return the labels with their F1 and counts as JSON that may stand inside a script element.

    Where all labels would take more than `most_bytes`, those with fewest documents are left out, and "left_out" says
    how many. Counts include descendants, so what is kept has its ancestors.

    Parameters
    ----------
    systems : sequence of System
        At least one.
    most_bytes : int
        How long the JSON may be.

    Returns
    -------
    str
    """
    size = len(systems[0].hierarchy)
    kept = size
    while True:
        text = script_json(tree_values(systems, kept))
        length = len(text.encode())
        if length <= most_bytes or kept == 0:
            return text
        # Names differ in length, so the estimate may need another round.
        kept = min(kept - 1, int(0.95 * kept * most_bytes / length))


def tree_values(systems: "Sequence[ReportSystem]", most: int) -> dict[str, Any]:
    """Return names, parents, counts and F1 of the `most` labels with most documents, as lists by label.

    Parents are places in the same lists (-1: the root), a list where there are several. F1 is in thousandths, -1 where
    a label is neither true nor predicted.

    Parameters
    ----------
    systems : sequence
        The systems of the report.
    most : int
        How many labels at most.

    Returns
    -------
    dict
    """
    h, context = systems[0].hierarchy, systems[0].result.context
    kept = _most_used(systems, most)
    place = np.full(len(h) + 1, -1)
    place[kept] = np.arange(len(kept))
    bounds = h.parent_ptr.tolist()
    # The root, -1, is the last entry of `place`, and stays -1.
    above = place[h.parent_idx].tolist()
    parents = [above[bounds[node] : bounds[node + 1]] for node in kept.tolist()]
    f1 = []
    for system in systems:
        scaled = np.rint(system.label_f1[kept] * STEPS).astype(int)
        scaled[system.label_counts[kept, :2].sum(axis=1) == 0] = -1
        f1.append(scaled.tolist())
    return {
        "names": [shorten(h.names[node], LONGEST_NAME) for node in kept.tolist()],
        "parents": [each[0] if len(each) == 1 else each for each in parents],
        "systems": [system.name for system in systems],
        "f1": f1,
        "predicted": [system.label_counts[kept, 0].astype(int).tolist() for system in systems],
        "true": systems[0].label_counts[kept, 1].astype(int).tolist(),
        "train": None if context.is_from_truth else context.frequencies[kept].tolist(),
        "left_out": len(h) - len(kept),
    }


def _most_used(systems: "Sequence[ReportSystem]", most: int) -> LongArray:
    """Select labels by how often they are true or predicted; equal ones: the lower ids, so parents before children."""
    used = np.sum([system.label_counts[:, :2].sum(axis=1) for system in systems], axis=0)
    result: LongArray = np.sort(np.argsort(-used, kind="stable")[:most])
    return result


def script_json(value: Any) -> str:
    r"""Write JSON that can stand inside a script element of a page: nothing in it ends the element or a line.

    >>> script_json(["</script>", "a\u2028b"])
    '["\\u003c/script\\u003e","a\\u2028b"]'
    """
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
