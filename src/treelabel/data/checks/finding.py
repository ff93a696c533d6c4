"""A finding, and the data that findings are made of: each is counted once, however many findings need it."""

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from treelabel.core.errors import quote
from treelabel.core.types import LongArray
from treelabel.data.checks.spelling import spelling_groups
from treelabel.data.dataset import Dataset
from treelabel.data.equal_texts import number_in_order, text_codes

# Examples that a finding has at most.
EXAMPLES = 3


@dataclass(frozen=True)
class Finding:
    """Something about a file that a person should know.

    Parameters
    ----------
    kind : str
        The row of FINDINGS.
    count : int
        How many documents or labels it is about.
    message : str
        What was found, in one sentence with counts.
    examples : tuple of str
        A few of them, with their lines.
    remedy : str
        The option or command that mends it.
    is_serious : bool
        Whether numbers or models are wrong because of it.
    is_fixed : bool
        Whether `inspect --fix` mends it.
    """

    kind: str
    count: int
    message: str
    examples: tuple[str, ...]
    remedy: str
    is_serious: bool = False
    is_fixed: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self) | {"examples": list(self.examples)}


@dataclass(frozen=True, eq=False)
class CheckInput:
    """A dataset, the one that a model would learn from if there is one, and what several findings need of both."""

    data: Dataset
    train: Dataset | None = None

    @cached_property
    def _codes(self) -> list[LongArray]:
        return text_codes(*(part.texts for part in (self.data, self.train) if part is not None))

    @property
    def codes(self) -> LongArray:
        """Numbers of the texts, equal for equal ones, -1 for empty ones."""
        return self._codes[0]

    @property
    def train_codes(self) -> LongArray:
        """The same of the training data."""
        return self._codes[1] if self.train is not None else np.zeros(0, np.int64)

    @cached_property
    def label_sets(self) -> LongArray:
        """A number for the label set of each document, most specific labels alone: equal for equal sets.

        Spellings of one label are one: they have a finding of their own.
        """
        groups = spelling_groups(self.data.hierarchy) if self.data.is_hierarchy_of_labels else None
        return label_set_numbers(self.data, groups)

    def where(self, row: int) -> str:
        """Return where a document stands in its file, as people look for it."""
        return document_position(self.data, row)

    def labels_of(self, row: int) -> str:
        """Return the labels of a document."""
        return labels_of(self.data, row)


def plural(count: int, one: str, many: str) -> str:
    """Return a count with the words that follow 1, or any other number.

    >>> plural(1, "text has", "texts have"), plural(2000, "text has", "texts have")
    ('1 text has', '2,000 texts have')
    """
    return f"{count:,} {one if count == 1 else many}"


def share(count: int, every: int, verb: str) -> str:
    """Return how many of all documents do something; the verb is "have", or one whose singular ends in s.

    >>> share(1, 9, "have"), share(2, 9, "have"), share(1, 9, "repeat")
    ('1 of 9 documents has', '2 of 9 documents have', '1 of 9 documents repeats')
    """
    single = "has" if verb == "have" else f"{verb}s"
    return f"{count:,} of {every:,} documents {single if count == 1 else verb}"


def document_position(data: Dataset, row: int) -> str:
    """Return where a document stands: "line 17", or its id where lines are not known."""
    return f"id {quote(data.ids[row], 40)}" if data.lines is None else f"line {data.lines[row]:,}"


def labels_of(data: Dataset, row: int) -> str:
    """Return the labels of a document as text."""
    paths = data[row : row + 1].paths()[0]
    return " + ".join(quote(label, 60) for label in paths[:4]) or "no label"


def label_set_numbers(data: Dataset, groups: LongArray | None = None) -> LongArray:
    """Number the label sets of documents: equal sets, as most specific labels, have equal numbers.

    Nodes of one group count as one. Every node has 64 random bits, and a set the sum of those of its nodes.

    >>> from treelabel.hierarchy import Hierarchy
    >>> h = Hierarchy.from_paths(["A > B", "C"])
    >>> label_set_numbers(Dataset.of(["x", "y", "z"], [["B"], ["A", "B"], ["C"]], h)).tolist()
    [0, 0, 1]
    """
    ends = data.hierarchy.most_specific(data.labels)
    bits = np.random.default_rng(0).integers(0, 1 << 62, len(data.hierarchy), np.int64)
    bits = bits if groups is None else bits[groups]
    total = np.concatenate([[0], np.cumsum(bits[ends.indices], dtype=np.int64)])
    return number_in_order(total[ends.indptr[1:]] - total[ends.indptr[:-1]])
