"""The labels of a hierarchy as answers show them: name, path, URI and notation, and the nodes of the path."""

from collections.abc import Sequence

from treelabel.hierarchy.hierarchy import SEPARATOR, Hierarchy
from treelabel.serve.schemas import LabelAnswer

# Name, path, URI and notation of a label.
Fixed = tuple[str, str, str | None, str | None]


class ServedLabels:
    """Labels by node; what a label always says is put together once, when it is first asked for."""

    def __init__(self, hierarchy: Hierarchy) -> None:
        self._hierarchy = hierarchy
        self._above: dict[int, tuple[int, ...]] = {}
        self._fixed: dict[int, Fixed] = {}

    def ancestors(self, node: int) -> tuple[int, ...]:
        """Return the nodes above a node, from the top down (DAG: all of them, in the order of ids)."""
        nodes = self._above.get(node)
        if nodes is None:
            nodes = self._above[node] = tuple(self._hierarchy.ancestors([node]).indices.tolist())
        return nodes

    def answer(self, node: int, probability: float, above: Sequence[float]) -> LabelAnswer:
        """Return a label with its probability, and those of its ancestors in their order."""
        name, path, uri, notation = self.fixed(node)
        names = self._hierarchy.names
        return {
            "node": node,
            "label": name,
            "path": path,
            "uri": uri,
            "notation": notation,
            "probability": probability,
            "ancestors": [
                {"node": upper, "label": names[upper], "probability": p}
                for upper, p in zip(self.ancestors(node), above, strict=True)
            ],
        }

    def fixed(self, node: int) -> Fixed:
        """Return the name, path, URI and notation of a node."""
        return self._fixed.get(node) or self._look_up(node)

    def _look_up(self, node: int) -> Fixed:
        h = self._hierarchy
        uri = notation = None
        if h.identifiers is not None:
            uri, notation = h.identifiers.uris[node].as_py(), h.identifiers.notations[node].as_py()
        fixed = self._fixed[node] = h.names[node], SEPARATOR.join(h.path_names(node)), uri, notation
        return fixed
