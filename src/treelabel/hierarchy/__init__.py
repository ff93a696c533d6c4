"""The hierarchy of labels, as frozen integer arrays, and label sets over it."""

from treelabel.hierarchy.hierarchy import SEPARATOR, Change, Hierarchy, split_path
from treelabel.hierarchy.hierarchy_json import hierarchy_from_json, hierarchy_to_json
from treelabel.hierarchy.label_matrices import (
    LabelMatrix,
    as_labels,
    from_sizes,
    keep_entries,
    label_matrix,
    matches,
    row_numbers,
    row_sizes,
)

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
