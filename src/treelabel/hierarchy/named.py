"""The names of a hierarchy: how nodes are called, their paths, and the fingerprint of names and structure."""

import hashlib
from dataclasses import dataclass, field
from functools import cached_property
from typing import Self

import numpy.typing as npt
import pyarrow as pa

from treelabel.core.errors import TreelabelError
from treelabel.hierarchy.build import NumberedNodes
from treelabel.hierarchy.structure import Structure, freeze

SEPARATOR = " > "


@dataclass(frozen=True, eq=False, repr=False)
class NamedStructure(Structure):
    """A tree or DAG whose nodes have names. They need not be unique, but paths are."""

    name_array: pa.Array = field(metadata={"help": "names as an Arrow array; `names` gives them as a tuple"})

    @classmethod
    def _of(cls, numbered: NumberedNodes) -> Self:
        """Wrap the arrays that `build.number` made."""
        ptr, idx, depth = numbered.parent_ptr, numbered.parent_idx, numbered.depth
        return cls(freeze(ptr), freeze(idx), freeze(depth), numbered.names)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NamedStructure) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names in order of ids; they need not be unique (see `paths`)."""
        return tuple(self.name_array.to_pylist())

    @cached_property
    def ids_by_name(self) -> dict[str, list[int]]:
        """All ids that bear a name."""
        ids: dict[str, list[int]] = {}
        for node, name in enumerate(self.names):
            ids.setdefault(name, []).append(node)
        return ids

    @cached_property
    def has_unique_names(self) -> bool:
        """Whether a name alone tells every node apart."""
        return len(self.name_array.unique()) == len(self)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of structure, names and their order, by which scores, models and decisions know their hierarchy.

        >>> from treelabel.hierarchy import Hierarchy
        >>> Hierarchy.flat(["A", "B"]).fingerprint == Hierarchy.flat(["B", "A"]).fingerprint
        False
        """
        digest = hashlib.sha256(b"treelabel hierarchy 1\n")
        for array in (self.parent_ptr, self.parent_idx):
            digest.update(len(array).to_bytes(8, "little") + array.astype("<i4").tobytes())
        for batch in range(0, len(self), 65536):
            for name in self.name_array.slice(batch, 65536).to_pylist():
                encoded = name.encode()
                digest.update(len(encoded).to_bytes(4, "little") + encoded)
        return digest.hexdigest()[:32]

    def _name_of(self, node: int) -> str:
        return repr(self.names[node])

    def require_same(self, fingerprint: str, what: str) -> None:
        """Refuse something, called `what` in the message, that was made for a hierarchy of another fingerprint."""
        if fingerprint != self.fingerprint:
            raise TreelabelError(
                f"{what} belongs to another hierarchy (fingerprint {fingerprint[:8]}, here {self.fingerprint[:8]}); "
                "names, their order and the edges must all be the same"
            )

    # Names and paths

    def path_names(self, node: int) -> list[str]:
        """Return the names from the top label down to a node (DAG: through its last parent, the deepest).

        >>> from treelabel.hierarchy import Hierarchy
        >>> Hierarchy.from_paths(["A > B"]).path_names(1)
        ['A', 'B']
        """
        return self._path_names(int(self._ids(node)[0]))

    def _path_names(self, node: int) -> list[str]:
        names: list[str] = []
        while node >= 0:
            names.append(self.names[node])
            node = int(self.parent_idx[self.parent_ptr[node + 1] - 1])
        return names[::-1]

    def paths(self, ids: npt.ArrayLike | None = None, sep: str = SEPARATOR) -> list[str]:
        """Return the full path of each node as text.

        Parameters
        ----------
        ids : array_like of int, optional
            The nodes; by default all.
        sep : str
            What stands between the names of a path.

        Returns
        -------
        list of str

        >>> from treelabel.hierarchy import Hierarchy
        >>> Hierarchy.from_paths(["A > B"]).paths([1], sep="/")
        ['A/B']
        """
        nodes = range(len(self)) if ids is None else self._ids(ids).tolist()
        return [sep.join(self._path_names(node)) for node in nodes]

    def edges(self, root: str | None = None) -> list[tuple[str, str]]:
        """List (parent, child) pairs of names; those of the top labels only if the root gets a name."""
        pairs = zip(self.parent_idx.tolist(), self.edge_child.tolist(), strict=True)
        names = self.names
        return [
            (root if above < 0 else names[above], names[below])  # type: ignore[misc]
            for above, below in pairs
            if above >= 0 or root is not None
        ]
