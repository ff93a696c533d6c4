"""Type-ahead search over the names and notations of a hierarchy."""

import unicodedata
from bisect import bisect_right
from collections.abc import Iterator

from treelabel.hierarchy.hierarchy import Hierarchy

# Stands between the entries of an index; folded texts never hold it.
BREAK = "\n"


def fold(text: str) -> str:
    """Fold case and accents, for comparing.

    >>> fold("Éclair  ÀÉ"), fold("STRASSE") == fold("straße")
    ('eclair ae', True)
    """
    plain = "".join(each for each in unicodedata.normalize("NFKD", text) if not unicodedata.combining(each))
    return " ".join(plain.casefold().split())


class SearchIndex:
    """Names and notations in one long text, which is searched as a whole.

    >>> index = SearchIndex(Hierarchy.flat(["Pâté", "spatula", "pan", "paté en croûte"]))
    >>> index.search("pat", 10)
    [0, 3, 1]
    """

    def __init__(self, hierarchy: Hierarchy) -> None:
        entries = [(fold(name), node) for node, name in enumerate(hierarchy.names)]
        if hierarchy.identifiers is not None:
            notations = hierarchy.identifiers.notations.to_pylist()
            entries += [(fold(text), node) for node, text in enumerate(notations) if text]
        self._nodes = [node for _, node in entries]
        self._starts, size = [], len(BREAK)
        for text, _ in entries:
            self._starts.append(size)
            size += len(text) + len(BREAK)
        self._text = BREAK + "".join(f"{text}{BREAK}" for text, _ in entries)

    def search(self, query: str, limit: int) -> list[int]:
        """Return nodes: first those of that name, then those that begin with the query, then those that hold it.

        Parameters
        ----------
        query
            Case and accents do not matter.
        limit
            How many nodes at most.

        Returns
        -------
        list of int
            In each group by rising id, which is from the top of the hierarchy down.
        """
        folded = fold(query)
        nodes: dict[int, None] = {}
        if not folded:
            return []
        for pattern in (f"{BREAK}{folded}{BREAK}", f"{BREAK}{folded}", folded):
            for node in self._matches(pattern):
                nodes.setdefault(node)
                if len(nodes) == limit:
                    return list(nodes)
        return list(nodes)

    def _matches(self, pattern: str) -> Iterator[int]:
        """List the nodes of entries with a pattern, each entry once."""
        index = self._text.find(pattern)
        while index >= 0:
            entry = bisect_right(self._starts, index + pattern.startswith(BREAK)) - 1
            yield self._nodes[entry]
            after = self._starts[entry + 1] - 1 if entry + 1 < len(self._starts) else len(self._text)
            index = self._text.find(pattern, after)
