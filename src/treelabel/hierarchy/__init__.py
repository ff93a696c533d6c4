"""The hierarchy of labels, as frozen integer arrays, and label sets over it."""

from treelabel.hierarchy.core import Change, Hierarchy, split_path
from treelabel.hierarchy.named import SEPARATOR
from treelabel.hierarchy.sets import (
    LabelMatrix,
    as_labels,
    from_sizes,
    keep_entries,
    label_matrix,
    matches,
    row_numbers,
    row_sizes,
)
from treelabel.hierarchy.store import hierarchy_from_json, hierarchy_to_json

__all__ = [
    "SEPARATOR",
    "Change",
    "Hierarchy",
    "LabelMatrix",
    "as_labels",
    "from_sizes",
    "hierarchy_from_json",
    "hierarchy_to_json",
    "keep_entries",
    "label_matrix",
    "matches",
    "row_numbers",
    "row_sizes",
    "split_path",
]
