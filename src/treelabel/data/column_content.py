"""Tell by its values what a column holds: texts, labels or ids, where names of columns say nothing."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from treelabel.core.errors import quote

# How many rows are looked at, and how many with a value there must be before anything is concluded.
MOST_ROWS = 2_000
FEWEST_ROWS = 5
# A text has so many words on average, and texts are so varied; without blanks (Chinese), it has so many characters.
LEAST_WORDS = 3.0
LEAST_CHARACTERS = 8.0
LEAST_VARIED = 0.5
# Labels come again and again, and are short.
MOST_VARIED = 0.5
LONGEST_LABEL = 120.0
_NUMBER = re.compile(r"\s*[+-]?(\d[\d.,]*)(e[+-]?\d+)?\s*%?\s*", re.IGNORECASE)
# 2024-01-31, 31.1.24, 1/31/2024, each with or without a time of day.
_DATE = re.compile(
    r"\s*(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4})([T ]\d{1,2}:\d{2}[\d:.]*\S*)?\s*"
)
_ID_NAME = re.compile(r"(.*[^a-z])?(id|uid|uuid|guid|key|nr|no|num|number|code|ref)", re.IGNORECASE)
_LETTER_WITHOUT_BLANKS = re.compile("[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")


@dataclass(frozen=True)
class ColumnContent:
    """Figures of the values of a column: how many there are, how many different ones, and what these look like."""

    name: str
    rows: int
    different: int
    words: float
    characters: float
    numbers: float
    has_lists: bool
    without_blanks: float
    example: str

    @classmethod
    def of(cls, name: str, column: pa.ChunkedArray) -> "ColumnContent":
        """Look at the first values of a column."""
        values = [value for value in column[:MOST_ROWS].to_pylist() if value is not None and value != ""]
        texts = [value if isinstance(value, str) else str(value) for value in values]
        counts = Counter(texts)
        count = max(1, len(texts))
        return cls(
            name,
            len(texts),
            len(counts),
            sum(len(text.split()) for text in texts) / count,
            sum(map(len, texts)) / count,
            sum((_NUMBER.fullmatch(text) or _DATE.fullmatch(text)) is not None for text in texts) / count,
            any(isinstance(value, list | dict) for value in values),
            sum(_LETTER_WITHOUT_BLANKS.search(text) is not None for text in texts) / count,
            counts.most_common(1)[0][0] if counts else "",
        )

    @property
    def varied(self) -> float:
        """The share of values that are different."""
        return self.different / max(1, self.rows)

    @property
    def is_text(self) -> bool:
        """Whether the values are long and varied."""
        is_long = self.words >= LEAST_WORDS or (self.without_blanks > 0.5 and self.characters >= LEAST_CHARACTERS)
        is_known = self.rows >= FEWEST_ROWS and self.numbers < 0.5 and not self.has_lists
        return is_known and is_long and self.varied >= LEAST_VARIED

    @property
    def is_labels(self) -> bool:
        """Whether the values are few and short, and no numbers or dates."""
        is_known = self.rows >= FEWEST_ROWS and self.numbers < 0.5 and self.characters <= LONGEST_LABEL
        return is_known and 2 <= self.different <= MOST_VARIED * self.rows

    def is_ids(self, index: int) -> bool:
        """Return whether all values are different words, in the first column or under a name that ids have."""
        is_named = index == 0 or _ID_NAME.fullmatch(self.name) is not None
        return is_named and self.rows >= FEWEST_ROWS and self.varied == 1 and self.words <= 1 and self.characters <= 64

    def describe(self) -> str:
        """Describe the column for a message."""
        if not self.rows:
            return f"{quote(self.name, 40)} (empty)"
        kind = "numbers" if self.numbers >= 0.5 else f"{self.words:.0f} words" if self.words >= LEAST_WORDS else "words"
        return f"{quote(self.name, 40)} ({self.different:,} different {kind}, such as {quote(self.example, 30)})"


def look_at_columns(table: pa.Table) -> list[ColumnContent]:
    """Look at the first rows of every column of a table."""
    return [ColumnContent.of(name, table.column(name)) for name in table.column_names]


def find_text(columns: Sequence[ColumnContent]) -> str | None:
    """Find the column of texts: the longest of those that are long and varied.

    >>> table = pa.table({"kind": ["a", "b"] * 4, "said": [f"some words and {i}" for i in range(8)]})
    >>> find_text(look_at_columns(table)), find_labels(look_at_columns(table))
    ('said', ['kind'])
    """
    texts = [column for column in columns if column.is_text]
    return max(texts, key=lambda column: column.characters).name if texts else None


def find_labels(columns: Sequence[ColumnContent]) -> list[str]:
    """List the columns that may hold labels: those with few values that come again."""
    return [column.name for column in columns if column.is_labels and not column.is_text]


def find_ids(columns: Sequence[ColumnContent]) -> str | None:
    """Find the column of ids: the first with a different word in every row."""
    return next((column.name for index, column in enumerate(columns) if column.is_ids(index)), None)
