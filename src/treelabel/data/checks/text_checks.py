"""Checks of texts and ids: empty, numbers, no shared words, copies, contradictions, texts of training, equal ids."""

import numpy as np
import pyarrow.compute as pc

from treelabel.core.errors import quote, shorten
from treelabel.data.checks.finding import EXAMPLES, CheckInput, Finding, document_position, labels_of, plural, share
from treelabel.data.equal_texts import first_occurrences
from treelabel.hierarchy.label_matrices import row_sizes

# Numbers, dates and times, and ids: a few letters before four digits or more, or a UUID.
NUMBER_LIKE = (
    r"^\s*(?:[-+]?[$€£]?\d[\d.,:/ %eE+-]*|\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}[T ][\d:.Z+ -]*|[A-Za-z]{0,4}[-_]?\d{4,}"
    r"|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})\s*$"
)
# Words are looked for in at most this many texts; with fewer than the other number, texts may well have none in common.
MOST_TEXTS, FEWEST_TEXTS = 20_000, 30
# With more copies, held-out documents are judged too well.
MOST_COPIES = 0.05


def find_copies(inspected: CheckInput) -> Finding | None:
    """Find documents with the text and the labels of an earlier one."""
    same, _ = first_occurrences(inspected.codes, inspected.label_sets)
    rows = np.flatnonzero(same != np.arange(len(same)))
    if not len(rows):
        return None
    return Finding(
        "copies",
        len(rows),
        f"{share(len(rows), len(same), 'repeat')} the text and the labels of an earlier one",
        tuple(
            f"{inspected.where(row)} as {inspected.where(int(same[row]))}: {_start(inspected.data.texts[row])}"
            for row in rows[:EXAMPLES].tolist()
        ),
        "--fix OUT keeps the first of each; split keeps copies together, but what fit holds out may be a copy of what "
        "it learns from: texts that are new get less than it says",
        is_serious=len(rows) > MOST_COPIES * len(same),
        is_fixed=True,
    )


def find_contradictions(inspected: CheckInput) -> Finding | None:
    """Find texts that stand in the file several times, with different labels."""
    same, first = first_occurrences(inspected.codes, inspected.label_sets)
    # A document that is the first of its text and labels, but not of its text, has other labels than that one.
    other = np.flatnonzero((same == np.arange(len(same))) & (first != same))
    if not len(other):
        return None
    texts = np.unique(first[other])
    rows = int(np.isin(first, texts).sum())
    return Finding(
        "contradictions",
        rows,
        f"{plural(len(texts), 'text has', 'texts have')} different labels in different rows ({rows:,} documents)",
        tuple(
            f"{inspected.where(int(first[row]))}: {inspected.labels_of(int(first[row]))}, but {inspected.where(row)}: "
            f"{inspected.labels_of(row)} for {_start(inspected.data.texts[row])}"
            for row in other[:EXAMPLES].tolist()
        ),
        "decide which is right: treelabel audit FILE ranks them; or, if a text may have several labels, join them: "
        "treelabel convert FILE OUT --deduplicate",
        is_serious=True,
    )


def find_shared_texts(inspected: CheckInput) -> Finding | None:
    """Find texts that are in the training data, too."""
    train = inspected.train
    if train is None:
        return None
    known, first = np.unique(inspected.train_codes, return_index=True)
    codes = inspected.codes
    shared = np.flatnonzero((codes >= 0) & np.isin(codes, known))
    if not len(shared):
        return None

    def example(row: int) -> str:
        there = int(first[np.searchsorted(known, codes[row])])
        here, learned = inspected.labels_of(row), labels_of(train, there)
        labels = here if here == learned else f"{here}, in training {learned}"
        text = _start(inspected.data.texts[row])
        return f"{inspected.where(row)} is {document_position(train, there)} of training: {text} ({labels})"

    return Finding(
        "shared_texts",
        len(shared),
        f"{len(shared):,} of {len(codes):,} texts {'is' if len(shared) == 1 else 'are'} in the training data, too, "
        "where a model sees their labels",
        tuple(example(row) for row in shared[:EXAMPLES].tolist()),
        "treelabel convert FILE OUT --without TRAIN leaves them out; treelabel split keeps duplicates together",
        is_serious=True,
    )


def _start(text: str) -> str:
    return quote(shorten(" ".join(text.split()), 60))


def find_empty_texts(inspected: CheckInput) -> Finding | None:
    """Find documents whose text is empty or blank."""
    rows = np.flatnonzero(inspected.codes < 0)
    if not len(rows):
        return None
    return Finding(
        "empty_texts",
        len(rows),
        f"{share(len(rows), len(inspected.data), 'have')} no text",
        tuple(f"{inspected.where(row)}: {inspected.labels_of(row)}" for row in rows[:EXAMPLES].tolist()),
        "--fix OUT leaves them out; or name the column with the text (--text)",
        is_serious=len(rows) * 100 > len(inspected.data),
        is_fixed=True,
    )


def find_numeric_texts(inspected: CheckInput) -> Finding | None:
    """Find texts most of which are numbers, dates or ids."""
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


def find_unshared_words(inspected: CheckInput) -> Finding | None:
    """Find texts most of which have no word that another text has, so that nothing can be learned from words."""
    from treelabel.text.ngrams import NgramShape
    from treelabel.text.tfidf import Occurrences

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


def find_unlabelled(inspected: CheckInput) -> Finding | None:
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


def find_equal_ids(inspected: CheckInput) -> Finding | None:
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
