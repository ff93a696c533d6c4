"""Datasets: reading, writing, describing, splitting, and the embedded sample."""

from treelabel.core.strings import Strings
from treelabel.data.data_file import read_batches
from treelabel.data.dataset import Dataset, DatasetDescription, describe
from treelabel.data.dataset_frames import dataset_of_frame, frame_of_dataset
from treelabel.data.documents import SkippedRowsWarning
from treelabel.data.io.registry import FORMATS
from treelabel.data.joint_reading import read_together
from treelabel.data.read import read
from treelabel.data.sample import load_sample
from treelabel.data.splits import per_class, split
from treelabel.data.taxonomy.skos import read_alternative_names
from treelabel.data.taxonomy.taxonomy_files import read_taxonomy, write_taxonomy
from treelabel.data.taxonomy.taxonomy_tables import read_moves
from treelabel.data.transforms import (
    concat,
    cut,
    deduplicate,
    under,
    unfold,
    with_further_labels,
    with_other_leaves,
    without_texts,
)
from treelabel.data.write import losses, write

__all__ = [
    "FORMATS",
    "Dataset",
    "DatasetDescription",
    "SkippedRowsWarning",
    "Strings",
    "concat",
    "cut",
    "dataset_of_frame",
    "deduplicate",
    "describe",
    "frame_of_dataset",
    "load_sample",
    "losses",
    "per_class",
    "read",
    "read_alternative_names",
    "read_batches",
    "read_moves",
    "read_taxonomy",
    "read_together",
    "split",
    "under",
    "unfold",
    "with_further_labels",
    "with_other_leaves",
    "without_texts",
    "write",
    "write_taxonomy",
]
