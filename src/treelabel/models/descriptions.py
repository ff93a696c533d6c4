"""Label descriptions: reading them, and hashing their words into binary features."""

import re
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy import sparse

from treelabel.core.errors import TreelabelError
from treelabel.core.inputs import existing_file, numbered_lines
from treelabel.core.types import IntArray, LongArray
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.label_ids import UnknownLabelError, find_label, is_named
from treelabel.text.ngrams import NgramShape, count_ngrams

Descriptions = Mapping[str, str] | str | None
StopWords = Sequence[str] | Literal["english"] | None

# With this many buckets, collisions between two words are negligible.
WORDS = NgramShape(n_features=1 << 30)


class UnknownLabelWarning(UserWarning):
    """A file describes labels that the hierarchy does not have."""


def check_descriptions(descriptions: Any) -> None:
    """Refuse what is neither None, nor the name of a file, nor a mapping of labels to texts."""
    if descriptions is None or isinstance(descriptions, str):
        return
    if not isinstance(descriptions, Mapping):
        raise TreelabelError(
            f"expected descriptions as a mapping of labels to texts or the name of a file, found {descriptions!r}"
        )
    for label, text in descriptions.items():
        if not isinstance(label, str) or not isinstance(text, str):
            raise TreelabelError(f"descriptions: expected a text for each label, found {label!r}: {text!r}")


def read_descriptions(path: str | Path, hierarchy: Hierarchy) -> dict[int, str]:
    """Read a file of label descriptions.

    Parameters
    ----------
    path : str or Path
        A UTF-8 file; every line holds a label (name or path), a tab and the description, which may have tabs.
    hierarchy : Hierarchy
        The hierarchy of the labels. A file may describe a whole vocabulary, so labels that are not in the hierarchy are
        passed over with a warning, unless all are.

    Returns
    -------
    dict
        The descriptions by node id.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile("w", suffix=".tsv") as file:
    ...     _ = file.write("A > B\\tthe second letter\\n")
    ...     file.flush()
    ...     read_descriptions(file.name, Hierarchy.from_paths(["A > B"]))
    {1: 'the second letter'}
    """
    file, result = existing_file(path), dict[int, str]()
    unknown: UnknownLabelError | None = None
    passed = 0
    for number, line in numbered_lines(file):
        cells = line.split("\t", 1)
        if len(cells) != 2:
            raise TreelabelError(f"{file}:{number}: expected label, tab, description; found no tab")
        try:
            # The nearest names are looked up for the first unknown label alone, which takes a while.
            if unknown is None or is_named(hierarchy, cells[0]):
                _describe(result, hierarchy, cells[0], cells[1], f"{file}:{number}")
            else:
                passed += 1
        except UnknownLabelError as error:
            unknown, passed = error if unknown is None else unknown, passed + 1
    if unknown is not None and not result:
        raise unknown
    if unknown is not None:
        message = f"{unknown}; descriptions of {passed:,} unknown labels are passed over"
        warnings.warn(UnknownLabelWarning(message), stacklevel=2)
    return result


def node_descriptions(hierarchy: Hierarchy, descriptions: Descriptions) -> dict[int, str]:
    """Look up the nodes that descriptions belong to.

    Parameters
    ----------
    hierarchy : Hierarchy
        The hierarchy of the labels; unknown labels are refused.
    descriptions : mapping, str or None
        Descriptions by label name or path, or the name of a file for `read_descriptions`.

    Returns
    -------
    dict
        The descriptions by node id.

    >>> node_descriptions(Hierarchy.from_paths(["A > B"]), {"B": "the second letter"})
    {1: 'the second letter'}
    """
    if isinstance(descriptions, str):
        return read_descriptions(descriptions, hierarchy)
    check_descriptions(descriptions)
    result: dict[int, str] = {}
    for label, text in (descriptions or {}).items():
        _describe(result, hierarchy, label, text, "descriptions")
    return result


def _describe(result: dict[int, str], hierarchy: Hierarchy, label: str, text: str, where: str) -> None:
    """Add one description; refuse unknown labels, empty descriptions, and a second description of a node."""
    if not text.strip():
        raise TreelabelError(f"{where}: the description of {label!r} is empty; leave it out to use the name")
    try:
        node = find_label(hierarchy, label)
    except UnknownLabelError as error:
        raise UnknownLabelError(f"{where}: {error}") from None
    if node in result:
        raise TreelabelError(f"{where}: a second description of {hierarchy.paths([node])[0]!r}; keep one")
    result[node] = text


def name_words(name: str) -> str:
    """Split a label name into words at underscores and capitals, and drop numbers unless nothing else is left.

    >>> name_words("51000000_HealthCare"), name_words("credit_limit"), name_words("1984")
    ('Health Care', 'credit limit', '1984')
    """
    apart = re.sub(r"(?<=[a-zß-öø-ÿ])(?=[A-ZÀ-ÖØ-Þ])", " ", name.replace("_", " "))
    words = re.sub(r"\b\d+\b", " ", apart).split()
    return " ".join(words) if any(map(str.isalpha, "".join(words))) else apart


def is_code(name: str) -> bool:
    """Return whether a name says nothing in words: it has no two letters in a row.

    >>> is_code("4076600-7"), is_code("A01.1"), is_code("HIV")
    (True, True, False)
    """
    return re.search(r"[^\W\d_]{2}", name) is None


def label_text(name: str, description: str | None) -> str:
    """Return what is said of a label: its name in words and its description; codes are left out where there is one.

    Parameters
    ----------
    description : str or None
        The description, if there is any.

    Returns
    -------
    str

    >>> label_text("credit_limit", "the most one may owe"), label_text("4076600-7", "Migration")
    ('credit limit the most one may owe', 'Migration')
    """
    if description is None:
        return name_words(name)
    return description if is_code(name) else f"{name_words(name)} {description}"


def stop_buckets(stop_words: StopWords, shape: NgramShape = WORDS) -> IntArray:
    """Hash stop words.

    Parameters
    ----------
    stop_words : sequence of str, "english" or None
        The words; "english" is scikit-learn's list.
    shape : NgramShape
        Sets the number of buckets.

    Returns
    -------
    array of int32
        The buckets of the words, sorted, without duplicates.

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


def described_names(hierarchy: Hierarchy, descriptions: Descriptions) -> list[str]:
    """Return the description of every label, or its name in words if it has none.

    >>> described_names(Hierarchy.flat(["A1", "red_wine"]), {"A1": "made of grapes"})
    ['made of grapes', 'red wine']
    """
    described = node_descriptions(hierarchy, descriptions)
    return [described.get(node) or name_words(name) for node, name in enumerate(hierarchy.names)]


def described_words(
    hierarchy: Hierarchy, descriptions: Descriptions, stop_words: StopWords
) -> tuple[IntArray, sparse.csr_array]:
    """Hash the words of every label: those of its description, or of its name if it has none.

    Parameters
    ----------
    hierarchy : Hierarchy
        The hierarchy of the labels.
    descriptions : mapping, str or None
        As for `node_descriptions`.
    stop_words : sequence of str, "english" or None
        Words to leave out.

    Returns
    -------
    vocabulary : array of int32
        The hashes of all words, sorted.
    words : csr_array of shape (nodes, vocabulary)
        1 where a label has a word.

    >>> vocabulary, words = described_words(Hierarchy.flat(["red_wine", "the_wine"]), None, "english")
    >>> len(vocabulary), words.sum(axis=1).tolist()
    (2, [2.0, 1.0])
    """
    sizes, buckets, _ = count_ngrams(described_names(hierarchy, descriptions), WORDS)
    vocabulary: IntArray = np.setdiff1d(buckets, stop_buckets(stop_words))
    return vocabulary, presence(sizes, buckets, vocabulary)


def presence(sizes: LongArray, hashes: npt.NDArray[Any], vocabulary: npt.NDArray[Any]) -> sparse.csr_array:
    """Build binary features: 1 where a document has an entry of the vocabulary.

    Parameters
    ----------
    sizes : array of shape (documents,)
        The number of hashes of each document.
    hashes : array
        The hashes of all documents, one document after the other, distinct within each.
    vocabulary : array
        The hashes that are features, sorted; all others are ignored.

    Returns
    -------
    csr_array of shape (documents, vocabulary)

    >>> presence(np.array([2, 1]), np.array([7, 5, 9]), np.array([5, 7])).toarray().tolist()
    [[1.0, 1.0], [0.0, 0.0]]
    """
    column = np.searchsorted(vocabulary, hashes)
    hit = column < len(vocabulary)
    hit[hit] = vocabulary[column[hit]] == hashes[hit]
    ptr = np.concatenate([[0], np.cumsum(hit)])[np.concatenate([[0], np.cumsum(sizes)])].astype(np.int32)
    result = sparse.csr_array(
        (np.ones(ptr[-1], np.float32), column[hit].astype(np.int32), ptr), (len(sizes), len(vocabulary))
    )
    result.sort_indices()
    return result
