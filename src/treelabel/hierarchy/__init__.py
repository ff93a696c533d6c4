"""The hierarchy of labels, as frozen integer arrays, and label sets over it."""

from treelabel.hierarchy.hierarchy import Change, Hierarchy
from treelabel.hierarchy.hierarchy_json import hierarchy_from_json, hierarchy_to_json
from treelabel.hierarchy.label_matrices import LabelMatrix, as_labels, label_matrix, row_sizes

__all__ = [
    "Change",
    "Hierarchy",
    "LabelMatrix",
    "as_labels",
    "hierarchy_from_json",
    "hierarchy_to_json",
    "label_matrix",
    "row_sizes",
]
