"""A hierarchy as one JSON text: what model folders, score files and Parquet metadata hold."""

import json
from itertools import pairwise
from typing import Any

import numpy as np

from treelabel.core.errors import TreelabelError
from treelabel.core.json_text import read_json
from treelabel.hierarchy.edges import Edges, text_array
from treelabel.hierarchy.hierarchy import Hierarchy

VERSION = 1


def hierarchy_to_json(hierarchy: Hierarchy) -> str:
    """Store names, the parents of each node by number (DAG: a list each), the fingerprint, and identifiers if any.

    >>> json.loads(hierarchy_to_json(Hierarchy.from_paths(["A > B"])))["parents"]
    [-1, 0]
    """
    ptr, idx = hierarchy.parent_ptr.tolist(), hierarchy.parent_idx.tolist()
    parents = idx if hierarchy.is_tree else [idx[start:stop] for start, stop in pairwise(ptr)]
    stored: dict[str, Any] = {
        "treelabel_hierarchy": VERSION,
        "fingerprint": hierarchy.fingerprint,
        "names": hierarchy.names,
        "parents": parents,
    }
    if hierarchy.identifiers is not None:
        stored["uris"] = hierarchy.identifiers.uris.to_pylist()
        stored["notations"] = hierarchy.identifiers.notations.to_pylist()
    return json.dumps(stored, ensure_ascii=False)


def hierarchy_from_json(text: str | bytes, where: str) -> Hierarchy:
    """Read a stored hierarchy; `where` names the file in messages.

    Parameters
    ----------
    text
        The content of the file.
    where
        How messages call the file.

    Returns
    -------
    Hierarchy

    >>> hierarchy_from_json(hierarchy_to_json(Hierarchy.from_paths(["A > B"])), "a file").names
    ('A', 'B')
    """
    stored: Any = read_json(text, where, "hierarchy")
    damaged = TreelabelError(f"{where}: the stored hierarchy is damaged: names, parents and fingerprint do not fit")
    try:
        version = stored["treelabel_hierarchy"]
        if version != VERSION:
            raise TreelabelError(f"{where}: hierarchy stored in version {version}, this treelabel reads {VERSION}")
        rows = [[above] if isinstance(above, int) else above for above in stored["parents"]]
        parent = np.array([above for row in rows for above in row], np.int32).reshape(-1)
        names, fingerprint = text_array(stored["names"], "names"), stored["fingerprint"]
    except TreelabelError:
        raise
    except (KeyError, TypeError, ValueError, OverflowError):
        raise damaged from None
    child = np.repeat(np.arange(len(rows), dtype=np.int32), [len(row) for row in rows])
    # Checked before any compiled loop sees them: those trust their numbers.
    if len(rows) != len(names) or not ((parent >= -1) & (parent < len(rows))).all():
        raise damaged
    # Nodes are stored in their final order, and numbering them again leaves that order as it is.
    hierarchy = Hierarchy.from_coded(Edges(parent, child, names))
    if hierarchy.fingerprint != fingerprint:
        raise damaged
    if "uris" not in stored and "notations" not in stored:
        return hierarchy
    lists = stored.get("uris"), stored.get("notations")
    try:
        if all(isinstance(each, list) for each in lists):
            return hierarchy.with_identifiers(*lists)
    except TreelabelError:
        pass
    raise TreelabelError(
        f"{where}: the stored hierarchy is damaged: expected a URI and a notation, or null, for every label"
    )
