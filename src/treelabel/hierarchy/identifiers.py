"""Identifiers of labels: the URI and the notation by which a vocabulary knows a concept, whatever its name."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from treelabel.core.errors import TreelabelError, quote

URI = re.compile(r"<[^<>\s]+>|(?:https?://|urn:)\S+")
# The beginning of URIs of labels that have none: behind it stands the path, percent-encoded.
URN = "urn:treelabel:"


def plain_uri(text: str) -> str:
    """Take off the angle brackets around a URI.

    >>> plain_uri("<http://example.org/1>"), plain_uri(" cats ")
    ('http://example.org/1', 'cats')
    """
    text = text.strip()
    return text[1:-1] if text[:1] == "<" and text[-1:] == ">" else text


def label_of_uri(text: str) -> str:
    """Return what a URI in data says of its label: that of a label without one, which has its path in it, is the path.

    >>> label_of_uri("<http://example.org/1>"), label_of_uri("<urn:treelabel:A/B%20c>")
    ('http://example.org/1', 'A > B c')
    """
    path = path_of_uri(text)
    return plain_uri(text) if path is None else " > ".join(path)


def path_of_uri(text: str) -> list[str] | None:
    """Return the path in the URI of a label that has none of its own; None for any other URI.

    >>> path_of_uri("urn:treelabel:A/B%20c"), path_of_uri("http://example.org/1")
    (['A', 'B c'], None)
    """
    uri = plain_uri(text)
    return [unquote(name) for name in uri.removeprefix(URN).split("/")] if uri.startswith(URN) else None


def uri_end(uri: str) -> str:
    """Return the last part of a URI.

    >>> uri_end("http://example.org/c#p10"), uri_end("urn:isbn:1")
    ('p10', 'urn:isbn:1')
    """
    return uri.rstrip("/#").replace("#", "/").rpartition("/")[2]


def distinct_names(names: Sequence[str], codes: Sequence[str], uris: Sequence[str]) -> list[str]:
    """Tell labels with one name apart: by a code in brackets, or by their URIs where these are the same, too.

    >>> distinct_names(["bank", "bank", "money"], ["7", "8", "9"], ["a", "b", "c"])
    ['bank [7]', 'bank [8]', 'money']
    """
    count = Counter(names)
    coded = [name if count[name] == 1 else f"{name} [{code}]" for name, code in zip(names, codes, strict=True)]
    again = Counter(coded)
    return [name if again[name] == 1 else f"{name} <{uri}>" for name, uri in zip(coded, uris, strict=True)]


@dataclass(frozen=True, eq=False)
class Identifiers:
    """The URI and the notation of every node, in the order of nodes; null where a node has none.

    They travel with the names of a hierarchy, and are no part of its fingerprint: scores and models fit a hierarchy
    with the same names and edges, with or without them. Copies of a node, as `unfold` makes them, share theirs.
    """

    uris: pa.Array
    notations: pa.Array

    @classmethod
    def of(cls, uris: Iterable[str | None], notations: Iterable[str | None]) -> "Identifiers | None":
        """Check identifiers, one of each per node; return None where no node has any.

        >>> Identifiers.of(["<http://example.org/1>", None], [None, "1.2"]).uris.to_pylist()
        ['http://example.org/1', None]
        """
        lists = [_texts(uris, "URI"), _texts(notations, "notation")]
        if len(lists[0]) != len(lists[1]):
            raise TreelabelError(f"{len(lists[0]):,} URIs, but {len(lists[1]):,} notations; expected one per label")
        if not any(map(any, lists)):
            return None
        return cls(*(pa.array(texts, pa.large_string()) for texts in lists))

    def __len__(self) -> int:
        return len(self.uris)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Identifiers):
            return NotImplemented
        return bool(self.uris.equals(other.uris) and self.notations.equals(other.notations))

    def take(self, nodes: npt.ArrayLike) -> "Identifiers":
        """Select those of some nodes; -1 has none."""
        numbers = np.asarray(nodes)
        chosen = pa.array(numbers, mask=numbers < 0)
        return Identifiers(self.uris.take(chosen), self.notations.take(chosen))


def _texts(values: Iterable[str | None], what: str) -> list[str | None]:
    texts = [value if value is None else plain_uri(value) or None for value in _checked(values, what)]
    wrong = next((text for text in texts if text and re.search(r"[\x00-\x1f\x7f]", text)), None)
    if wrong is not None:
        raise TreelabelError(f"the {what} {quote(wrong)} has a control character; remove it")
    return texts


def _checked(values: Iterable[str | None], what: str) -> list[str | None]:
    texts = list(values)
    wrong = next((value for value in texts if value is not None and not isinstance(value, str)), None)
    if wrong is not None:
        raise TreelabelError(f"expected a {what} as text, found {quote(wrong)}")
    return texts
