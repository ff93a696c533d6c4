"""Findings about texts and ids: no text, no words, numbers for texts, no label, an id that another document has."""

import numpy as np
import pyarrow.compute as pc

from treelabel.core.errors import quote
from treelabel.data.checks.finding import EXAMPLES, Finding, Inspected, share
from treelabel.hierarchy import row_sizes

# Numbers, dates and times, and ids: a few letters before four digits or more, or a UUID.
NUMBER_LIKE = (
    r"^\s*(?:[-+]?[$€£]?\d[\d.,:/ %eE+-]*|\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}[T ][\d:.Z+ -]*|[A-Za-z]{0,4}[-_]?\d{4,}"
    r"|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})\s*$"
)
# Words are looked for in at most this many texts; with fewer than the other number, texts may well have none in common.
MOST_TEXTS, FEWEST_TEXTS = 20_000, 30


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


def find_numeric_texts(inspected: Inspected) -> Finding | None:
    """Find texts most of which are numbers, dates or ids."""
    if inspected.data.features is not None:
        return None
    is_number = pc.match_substring_regex(inspected.data.texts.arrow, NUMBER_LIKE)
    rows = np.flatnonzero(is_number.to_numpy(zero_copy_only=False))
    if 2 * len(rows) <= int((inspected.codes >= 0).sum()):
        return None
    return Finding(
        "numeric_texts",
        len(rows),
        f"{share(len(rows), len(inspected.data), 'have')} a number, a date or an id for a text",
        tuple(f"{inspected.where(row)}: {quote(inspected.data.texts[row], 40)}" for row in rows[:EXAMPLES].tolist()),
        "name the column with the text (--text)",
        is_serious=True,
    )


def find_unshared_words(inspected: Inspected) -> Finding | None:
    """Find texts most of which have no word that another text has, so that nothing can be learned from words."""
    if inspected.data.features is not None:
        return None
    from treelabel.text.ngrams import NgramShape
    from treelabel.text.occurrences import Occurrences

    rows = np.flatnonzero(inspected.codes >= 0)
    rows = rows[:: max(1, -(-len(rows) // MOST_TEXTS))]
    if len(rows) < FEWEST_TEXTS:
        return None
    words = Occurrences.of(inspected.data.texts.take(rows), NgramShape())
    texts = np.repeat(np.arange(len(rows)), words.sizes)
    shared = np.bincount(texts[words.frequencies[words.numbers] > 1], minlength=len(rows))
    alone = rows[shared == 0]
    if 2 * len(alone) <= len(rows):
        return None
    return Finding(
        "unshared_words",
        len(alone),
        f"{len(alone):,} of {len(rows):,} texts have no word that another one has: models of words learn nothing there",
        tuple(f"{inspected.where(row)}: {quote(inspected.data.texts[row], 60)}" for row in alone[:EXAMPLES].tolist()),
        "name the column with the text (--text); or use a model with an encoder that knows such texts",
        is_serious=True,
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
        tuple(f"{quote(each['values'], 40)} stands on {each['counts']:,} documents" for each in often),
        "name another column (--id), or drop the column: rows are then numbered",
    )
