"""The embedded sample: glosses of WordNet nouns under a few subtrees, made by tools/make_sample.py."""

from functools import cache
from pathlib import Path

from treelabel.data.dataset import Dataset
from treelabel.data.read import read

SAMPLE_FOLDER = Path(__file__).parent / "wordnet"


@cache
def load_sample() -> Dataset:
    """Load the sample: several thousand one-line definitions, each with one leaf of a tree of a few hundred nouns.

    The texts are WordNet 3.0's, under its own licence (LICENSE.txt beside the data).

    >>> load_sample()
    Dataset(8,770 documents, Hierarchy(353 nodes, 273 leaves, depth 7, tree))
    """
    return read(SAMPLE_FOLDER / "glosses.jsonl", taxonomy=SAMPLE_FOLDER / "taxonomy.tsv", progress=False)
