"""Type-ahead search over the names and notations of a hierarchy."""

import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from treelabel.hierarchy.hierarchy import Hierarchy

# Stands between the entries of an index; folded texts never hold it.
BREAK = "\n"


def fold(text: str) -> str:
    """Fold case and accents, for comparing.

    >>> fold("Éclair  ÀÉ"), fold("STRASSE") == fold("straße")
    ('eclair ae', True)
    """
    if not text.isascii():
        text = "".join(each for each in unicodedata.normalize("NFKD", text) if not unicodedata.combining(each))
    return " ".join(text.casefold().split())


class SearchIndex:
    """Names and notations in alphabetical order, and in one long text, which is searched as a whole.

    >>> index = SearchIndex(Hierarchy.flat(["Pâté", "spatula", "pan", "paté en croûte"]))
    >>> index.search("pat", 10)
    [0, 3, 1]
    """

    def __init__(self, hierarchy: Hierarchy) -> None:
        entries = [(fold(name), node) for node, name in enumerate(hierarchy.names)]
        if hierarchy.identifiers is not None:
            notations = hierarchy.identifiers.notations.to_pylist()
            entries += [(fold(text), node) for node, text in enumerate(notations) if text]
        entries.sort()
        self._entries = [text for text, _ in entries]
        self._nodes = [node for _, node in entries]
        self._starts, size = [], 0
        for text in self._entries:
            self._starts.append(size)
            size += len(text) + len(BREAK)
        self._text = BREAK.join(self._entries)

    def search(self, query: str, limit: int) -> list[int]:
        """Return nodes: first those that begin with the query, the very name before others, then those that hold it.

        Parameters
        ----------
        query
            Case and accents do not matter.
        limit
            How many nodes at most.

        Returns
        -------
        list of int
            Both groups in alphabetical order.
        """
        folded = fold(query)
        nodes: dict[int, None] = {}
        if not folded:
            return []
        for entries in (self._beginning_with(folded), self._holding(folded)):
            for entry in entries:
                nodes.setdefault(self._nodes[entry])
                if len(nodes) == limit:
                    return list(nodes)
        return list(nodes)

    def _beginning_with(self, folded: str) -> Iterator[int]:
        """List the entries that begin with a text."""
        entry = bisect_left(self._entries, folded)
        while entry < len(self._entries) and self._entries[entry].startswith(folded):
            yield entry
            entry += 1

    def _holding(self, folded: str) -> Iterator[int]:
        """List the entries that hold a text, each once."""
        index = self._text.find(folded)
        while index >= 0:
            entry = bisect_right(self._starts, index) - 1
            yield entry
            index = self._text.find(folded, self._starts[entry] + len(self._entries[entry]))
