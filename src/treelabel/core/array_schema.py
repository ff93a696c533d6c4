"""Schemas of saved arrays: names, types, shapes and ranges, declared by whoever saves them and enforced at loading.

Compiled loops trust their arrays, so everything that they rely on is part of a schema. Sizes have names: some are known
(`sizes`, such as the number of nodes), others are taken from the first array that has them, within `most`. A shape such
as ("width + 1", "dimension") consists of sums of names and numbers.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from treelabel.core.errors import TreelabelError
from treelabel.core.matrices import checked_csr
from treelabel.core.npz import Header, Headers
from treelabel.core.validation import LARGEST

Arrays = Mapping[str, npt.NDArray[Any]]
Sizes = dict[str, int]


@dataclass(frozen=True)
class Array:
    """An array: its type, the names of its sizes, and the range of its numbers, both ends included.

    Limits are numbers or sizes; `rising` says that each number is above the one before. NaN is in no range.
    """

    dtype: str
    shape: tuple[str, ...]
    low: float = -LARGEST
    high: float | str = LARGEST
    rising: bool = False


def indices(size: str, below: str, low: int = 0, rising: bool = False) -> Array:
    """Declare numbers from `low` to one below a size, as compiled loops look things up by.

    Parameters
    ----------
    size
        The name of the array's length.
    below
        The name of the size that they are below.
    low
        The least number.
    rising
        Whether each is above the one before.

    Returns
    -------
    Array
    """
    return Array("int32", (size,), low, f"{below} + -1", rising)


@dataclass(frozen=True)
class Csr:
    """A sparse matrix, rows x columns, as three arrays, or without values as two; `distinct`: no column twice a row."""

    rows: str
    columns: str
    indices: str = "indices"
    indptr: str = "indptr"
    data: str | None = "data"
    distinct: bool = False


@dataclass(frozen=True)
class Schema:
    """The arrays and files of a model.

    Parameters
    ----------
    arrays : mapping
        Arrays by name, in the order in which they decide sizes.
    csr : tuple
        Sparse matrices.
    sizes : mapping
        Sizes that are known.
    most : mapping
        The largest value of each size that an array decides: memory is never asked for beyond it.
    relations : tuple
        Further checks, each a function of all arrays that raises TreelabelError.
    files : tuple
        Names of further files in the folder.
    parts : mapping
        Schemas of models within the model, by the prefix of the names of their arrays and files.
    """

    arrays: Mapping[str, Array] = field(default_factory=dict)
    csr: tuple[Csr, ...] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)
    most: Mapping[str, int] = field(default_factory=dict)
    relations: tuple[Callable[[Arrays], None], ...] = ()
    files: tuple[str, ...] = ()
    parts: Mapping[str, "Schema"] = field(default_factory=dict)

    @property
    def file_names(self) -> tuple[str, ...]:
        """The names of all further files, those of parts included."""
        within = (f"{prefix}{name}" for prefix, part in self.parts.items() for name in part.file_names)
        return (*self.files, *within)

    def check_headers(self, headers: Headers) -> Sizes:
        """Refuse arrays of other names, types or shapes, before any is read; give the sizes."""
        rest = dict(headers)
        for prefix, part in self.parts.items():
            inside = {name: rest.pop(name) for name in headers if name.startswith(prefix)}
            part.check_headers({name.removeprefix(prefix): header for name, header in inside.items()})
        triples = {name for each in self.csr for name in (each.data, each.indices, each.indptr) if name is not None}
        expected = self.arrays.keys() | triples
        _check_names(rest.keys(), expected)
        sizes = dict(self.sizes)
        for name, array in self.arrays.items():
            self._check_header(name, array, headers[name], sizes)
        for each in self.csr:
            _check_triple(each, headers, sizes)
        return sizes

    def _check_header(self, name: str, array: Array, header: Header, sizes: Sizes) -> None:
        types = [np.dtype(kind) for kind in array.dtype.split("|")]
        if header.dtype not in types or len(header.shape) != len(array.shape):
            raise TreelabelError(
                f"{name} is of type {header.dtype} and shape {header.shape}, expected {array.dtype} of "
                f"{' x '.join(array.shape)}"
            )
        for expression, size in zip(array.shape, header.shape, strict=True):
            if expression not in sizes and expression in self.most:
                if size > self.most[expression]:
                    raise TreelabelError(
                        f"{name} has {size:,} {expression}, the limit here is {self.most[expression]:,}"
                    )
                sizes[expression] = size
            wanted = size_of(expression, sizes)
            if size != wanted:
                raise TreelabelError(
                    f"{name} has shape {header.shape}, expected {' x '.join(array.shape)} where {expression} is "
                    f"{wanted:,}"
                )

    def check_values(self, arrays: Arrays, sizes: Sizes) -> None:
        """Refuse arrays whose numbers are out of range, or do not fit each other.

        Parameters
        ----------
        arrays
            Arrays by name, of the declared types and shapes.
        sizes
            The sizes that the shapes refer to.
        """
        for name, array in self.arrays.items():
            _check_range(name, array, arrays[name], sizes)
        for each in self.csr:
            _check_matrix(each, arrays, sizes)
        for relation in self.relations:
            relation(arrays)
        for prefix, part in self.parts.items():
            inside = with_prefix(arrays, prefix)
            part.check_values(inside, part.check_headers(headers_of(inside)))

    def check(self, arrays: Arrays) -> None:
        """Refuse arrays that do not fit; the message says which, and what was expected."""
        self.check_values(arrays, self.check_headers(headers_of(arrays)))


def headers_of(arrays: Arrays) -> dict[str, Header]:
    """Describe arrays that are in memory."""
    return {name: Header(array.dtype, array.shape) for name, array in arrays.items()}


def with_prefix(arrays: Arrays, prefix: str) -> Arrays:
    """Select arrays whose names begin with a prefix, and call them by the rest.

    Parameters
    ----------
    arrays
        Arrays by name.

    Returns
    -------
    dict of arrays

    >>> with_prefix({"0.a": np.zeros(1), "1.a": np.ones(1)}, "1.")
    {'a': array([1.])}
    """
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def size_of(expression: str, sizes: Mapping[str, int]) -> int:
    """Add up names and numbers.

    Parameters
    ----------
    expression
        Names of sizes and numbers, joined by "+".
    sizes
        The sizes by name.

    Returns
    -------
    int

    >>> size_of("width + 1", {"width": 4})
    5
    """
    return sum(sizes[term] if term in sizes else int(term) for term in expression.split(" + "))


def _check_names(names: Any, expected: Any) -> None:
    missing, unknown = sorted(expected - names), sorted(names - expected)
    if missing:
        raise TreelabelError(f"the array {missing[0]} is missing")
    if unknown:
        raise TreelabelError(f"there is an array {unknown[0]!r}, which does not belong to this model")


def _check_triple(each: Csr, headers: Headers, sizes: Sizes) -> None:
    rows, columns = size_of(each.rows, sizes), size_of(each.columns, sizes)
    entries = headers[each.indices].shape
    for name, types, shape in (
        (each.indptr, ("int32", "int64"), (rows + 1,)),
        (each.indices, ("int32", "int64"), entries),
        (each.data, ("float32",), entries),
    ):
        if name is None:
            continue
        header = headers[name]
        if header.dtype not in [np.dtype(kind) for kind in types] or header.shape != shape or len(shape) != 1:
            raise TreelabelError(
                f"{name} is of type {header.dtype} and shape {header.shape}, expected {' or '.join(types)} of {shape}"
            )
    if entries[0] > rows * columns:
        raise TreelabelError(
            f"{each.indices} has {entries[0]:,} entries, but {rows:,} {each.rows} x {columns:,} {each.columns} allow "
            f"at most {rows * columns:,}"
        )


def _check_range(name: str, array: Array, values: npt.NDArray[Any], sizes: Sizes) -> None:
    low, high = array.low, size_of(array.high, sizes) if isinstance(array.high, str) else array.high
    # NaN is neither above nor below anything, and the least of numbers with a NaN among them is NaN.
    if values.size and not (float(values.min()) >= low and float(values.max()) <= high):
        wide = values.astype(np.float64).ravel()
        wrong = values.flat[int(np.argmin((wide >= low) & (wide <= high)))]
        raise TreelabelError(f"{name} holds {wrong}, expected numbers from {low:g} to {high:g}")
    if array.rising and (values[1:] <= values[:-1]).any():
        index = int(np.argmax(values[1:] <= values[:-1]))
        raise TreelabelError(f"{name} holds {values[index + 1]} after {values[index]}, expected rising numbers")


def _check_matrix(each: Csr, arrays: Arrays, sizes: Sizes) -> None:
    shape = size_of(each.rows, sizes), size_of(each.columns, sizes)
    numbers = arrays[each.indices], arrays[each.indptr]
    data = np.ones(len(numbers[0]), np.float32) if each.data is None else arrays[each.data]
    what = f"the matrix of {each.indices} and {each.indptr}"
    _check_range(each.data or "", Array("float32", ("",)), data, sizes)
    # Sorting is done on a copy: the order of columns may matter to the model.
    made = checked_csr((data, *numbers), shape, what)
    if each.distinct and not made.copy().sorted_indices().has_canonical_format:
        raise TreelabelError(f"{what} has a column twice in a row")
