"""Descriptions of labels: where they come from, and their words, which are known by their hashes."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from treelabel.core.compute import IntArray, LongArray
from treelabel.core.errors import TreelabelError
from treelabel.core.inputs import UndecodableLine, existing_file, open_input, text_lines
from treelabel.hierarchy import Hierarchy
from treelabel.hierarchy.labels import UnknownLabelError, find_label
from treelabel.text import NgramShape
from treelabel.text.ngrams import count_ngrams

Descriptions = Mapping[str, str] | str | None
StopWords = Sequence[str] | str | None

# With so many buckets two words hardly ever share one.
WORDS = NgramShape(n_features=1 << 30)


def read_descriptions(path: str | Path, hierarchy: Hierarchy) -> dict[int, str]:
    """Read a file with a label (name or path), a tab and its description a line; give the texts by node.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile("w", suffix=".tsv") as file:
    ...     _ = file.write("A > B\\tthe second letter\\n")
    ...     file.flush()
    ...     read_descriptions(file.name, Hierarchy.from_paths(["A > B"]))
    {1: 'the second letter'}
    """
    file, found = existing_file(path), dict[int, str]()
    with open_input(file) as stream:
        for number, line in enumerate(text_lines(stream, file, "utf-8"), start=1):
            if isinstance(line, UndecodableLine):
                raise TreelabelError(f"{file}:{number}: {line}")
            if not line.strip():
                continue
            cells = line.rstrip("\r\n").split("\t")
            if len(cells) != 2:
                raise TreelabelError(f"{file}:{number}: expected label, tab, description; found {len(cells)} columns")
            _describe(found, hierarchy, cells[0], cells[1], f"{file}:{number}")
    return found


def node_descriptions(hierarchy: Hierarchy, descriptions: Descriptions) -> dict[int, str]:
    """Find the nodes that descriptions are of: a mapping of names or paths to texts, or the name of a file of them.

    >>> node_descriptions(Hierarchy.from_paths(["A > B"]), {"B": "the second letter"})
    {1: 'the second letter'}
    """
    if isinstance(descriptions, str):
        return read_descriptions(descriptions, hierarchy)
    if descriptions is not None and not isinstance(descriptions, Mapping):
        raise TreelabelError(
            f"expected descriptions as a mapping of labels to texts or the name of a file, found {descriptions!r}"
        )
    found: dict[int, str] = {}
    for label, text in (descriptions or {}).items():
        if not isinstance(label, str) or not isinstance(text, str):
            raise TreelabelError(f"descriptions: expected a text for each label, found {label!r}: {text!r}")
        _describe(found, hierarchy, label, text, "descriptions")
    return found


def _describe(found: dict[int, str], hierarchy: Hierarchy, label: str, text: str, where: str) -> None:
    """Add one description, refusing labels that are unknown or have one already."""
    if not text.strip():
        raise TreelabelError(f"{where}: the description of {label!r} is empty; leave it out to use the name")
    try:
        node = find_label(hierarchy, label)
    except UnknownLabelError as error:
        raise UnknownLabelError(f"{where}: {error}") from None
    if node in found:
        raise TreelabelError(f"{where}: a second description of {hierarchy.paths([node])[0]!r}; keep one")
    found[node] = text


def name_words(name: str) -> str:
    """Give the words of a label name: those joined by _ or by capitals apart, numbers left out where there are words.

    >>> name_words("51000000_HealthCare"), name_words("credit_limit"), name_words("1984")
    ('Health Care', 'credit limit', '1984')
    """
    apart = re.sub(r"(?<=[a-zß-öø-ÿ])(?=[A-ZÀ-ÖØ-Þ])", " ", name.replace("_", " "))
    words = re.sub(r"\b\d+\b", " ", apart).split()
    return " ".join(words) if any(map(str.isalpha, "".join(words))) else apart


def stop_buckets(stop_words: StopWords, shape: NgramShape = WORDS) -> IntArray:
    """Hash stop words: a sequence of words, "english" for scikit-learn's list, or None.

    >>> len(stop_buckets(("the", "The", "of"))), len(stop_buckets(None))
    (2, 0)
    """
    if stop_words == "english":
        from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

        stop_words = sorted(ENGLISH_STOP_WORDS)
    listed = [] if stop_words is None else stop_words
    if isinstance(listed, str) or not all(isinstance(word, str) for word in listed):
        raise TreelabelError(f"expected stop_words as a tuple of words, 'english' or None, found {stop_words!r}")
    return np.unique(count_ngrams([" ".join(listed)], NgramShape(n_features=shape.n_features)).buckets)


def described_words(
    hierarchy: Hierarchy, descriptions: Descriptions, stop_words: StopWords
) -> tuple[IntArray, sparse.csr_array]:
    """Hash the words of every node's description or else name, stop words left out: known words, and nodes x words."""
    given = node_descriptions(hierarchy, descriptions)
    texts = [given.get(node) or name_words(name) for node, name in enumerate(hierarchy.names)]
    sizes, buckets, _ = count_ngrams(texts, WORDS)
    known: IntArray = np.setdiff1d(buckets, stop_buckets(stop_words))
    return known, presence(sizes, buckets, known)


def presence(sizes: LongArray, hashes: npt.NDArray[Any], known: npt.NDArray[Any]) -> sparse.csr_array:
    """Mark which known hashes (sorted) each row of hashes has: rows x known, entries 1.

    >>> presence(np.array([2, 1]), np.array([7, 5, 9]), np.array([5, 7])).toarray().tolist()
    [[1.0, 1.0], [0.0, 0.0]]
    """
    place = np.searchsorted(known, hashes)
    hit = place < len(known)
    hit[hit] = known[place[hit]] == hashes[hit]
    ptr = np.concatenate([[0], np.cumsum(hit)])[np.concatenate([[0], np.cumsum(sizes)])].astype(np.int32)
    marked = sparse.csr_array(
        (np.ones(ptr[-1], np.float32), place[hit].astype(np.int32), ptr), (len(sizes), len(known))
    )
    marked.sort_indices()
    return marked
