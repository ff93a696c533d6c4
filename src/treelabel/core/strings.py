"""Columns of texts and labels: what people pass (a list, an array, a column of any library), and Arrow `Strings`."""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from hashlib import blake2b
from typing import Any, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from treelabel.core.errors import TreelabelError, quote

# What frames and tables of all libraries have, and no column of them has: pandas, polars, Arrow, datasets, Spark, ...
FRAME_ATTRIBUTES = ("columns", "column_names", "__dataframe__")
# What columns of texts are called, the likeliest first.
TEXT_NAMES = (
    "text",
    "token",
    "doc_token",
    "content",
    "sentence",
    "document",
    "body",
    "abstract",
    "description",
    "title",
)


def guess_column(columns: Sequence[str], names: Sequence[str] = TEXT_NAMES) -> str | None:
    """Find the column with the first of some usual names, in any case.

    Parameters
    ----------
    columns
        The columns that there are.
    names
        In lower case; by default those of texts.

    Returns
    -------
    str or None

    >>> guess_column(["id", "Body"]), guess_column(["id"])
    ('Body', None)
    """
    by_lower = {column.lower(): column for column in reversed(columns)}
    return next((by_lower[name] for name in names if name in by_lower), None)


def column_names(values: Any) -> list[str] | None:
    """Return the names of the columns of a data frame or table of any library, or the keys of a dict; None of others.

    >>> column_names({"body": ["a"], "label": ["b"]}), column_names(["a"])
    (['body', 'label'], None)
    """
    if isinstance(values, Mapping):
        return [str(name) for name in values]
    # Asked of the class: a value may have a column of that name as an attribute.
    if not any(hasattr(type(values), name) for name in FRAME_ATTRIBUTES):
        return None
    if hasattr(type(values), "collect_schema"):
        # A lazy frame warns that its columns have to be worked out.
        return [str(name) for name in values.collect_schema().names()]
    names = values.column_names if hasattr(type(values), "column_names") else values.columns
    return [str(name) for name in names]


def describe_value(values: Any) -> str:
    """Say what a value is that cannot be read, for a message.

    A data frame or dict is told by its columns, an array or a column by its type, others are quoted.

    >>> describe_value({"body": ["a"], "label": ["b"]}), describe_value(np.zeros(9)), describe_value(3)
    ("a dict with the keys 'body', 'label'", 'ndarray', '3')
    """
    names = column_names(values)
    if names is None:
        is_column = isinstance(values, np.ndarray) or hasattr(type(values), "to_numpy")
        return type(values).__name__ if is_column else quote(values)
    listed = ", ".join(quote(name, 40) for name in names[:10]) + (", ..." if len(names) > 10 else "")
    return f"a dict with the keys {listed}" if isinstance(values, Mapping) else f"a data frame with columns {listed}"


def require_column(values: Any, what: str) -> None:
    """Refuse what would be read as something else than one value per document: frames, dicts, sets, a single text.

    Parameters
    ----------
    values
        What was passed.
    what
        What was expected, in the plural.
    """
    if isinstance(values, str | bytes):
        one = what.removesuffix("s")
        raise TreelabelError(f"expected a list of {what}, found one {one}; put it into a list: [{one}]")
    names = column_names(values)
    if names is not None:
        column = guess_column(names) or next(iter(names), None)
        example = "" if column is None else f"; pass one column of it, such as data[{column!r}]"
        if what == "texts" and not isinstance(values, Mapping):
            example += ", or the frame itself to treelabel.fit or predict_frame"
        raise TreelabelError(f"expected a list of {what}, found {describe_value(values)}{example}")
    if isinstance(values, Set):
        raise TreelabelError(f"expected a list of {what}, found a set, which has no order; pass a list")


def as_list(values: Any, what: str) -> list[Any]:
    """Return the values of a column as a list: of a list, an iterator, an array, or a column of any library.

    Parameters
    ----------
    values, what
        As for `require_column`.

    Returns
    -------
    list
        Of Python's own values, as far as the library has them.
    """
    require_column(values, what)
    if isinstance(values, list):
        return values
    for name in ("to_pylist", "to_list"):
        if hasattr(type(values), name):
            listed: list[Any] = getattr(values, name)()
            return listed
    if hasattr(type(values), "__array__") and not isinstance(values, Iterable):
        values = np.asarray(values)
    try:
        return _with_class_names(list(values), getattr(values, "features", None))
    except TypeError:
        raise TreelabelError(f"expected a list of {what}, found {describe_value(values)}") from None


def _with_class_names(values: list[Any], feature: Any) -> list[Any]:
    """Return the names of classes in place of their numbers, in a column of Hugging Face's datasets (ClassLabel)."""
    names = class_names(feature)
    if names is None:
        return values
    return [
        [names[code] for code in value] if isinstance(value, list) else None if value in (None, -1) else names[value]
        for value in values
    ]


def class_names(feature: Any) -> list[str] | None:
    """Return the names of the classes of a feature of Hugging Face's datasets, or of the items of its lists, if any."""
    names = getattr(getattr(feature, "feature", feature), "names", None)
    return None if names is None else list(names)


def is_missing(value: Any) -> bool:
    """Return whether a value stands for none: None, NaN or NA as data frames have them, or an empty text.

    >>> [is_missing(value) for value in (None, float("nan"), " ", "a", 0)]
    [True, True, True, False, False]
    """
    if isinstance(value, str):
        return not value.strip()
    return (
        value is None or type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, float) and value != value)
    )


TEXT_TYPES = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)


class Strings(Sequence[str]):
    """Texts stored as UTF-8 in Arrow: a million short texts take little more than their bytes.

    >>> texts = Strings.of(["a", "b", "c"])
    >>> texts[0], list(texts[1:]), list(texts.take([2, 0]))
    ('a', ['b', 'c'], ['c', 'a'])
    """

    __slots__ = ("arrow",)

    def __init__(self, arrow: pa.ChunkedArray) -> None:
        self.arrow = arrow

    @classmethod
    def of(cls, values: "Strings | Iterable[str] | pa.Array | pa.ChunkedArray") -> "Strings":
        """Make a column of any texts."""
        if isinstance(values, Strings):
            return values
        if isinstance(values, (pa.Array, pa.ChunkedArray)):
            column = pa.chunked_array(values if isinstance(values, pa.ChunkedArray) else [values])
            if column.null_count:
                raise TreelabelError(f"row {pc.index(column.is_null(), True).as_py()}: expected text, found None")
            kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
            if len(column) and not any(is_text(kind) for is_text in TEXT_TYPES):
                raise TreelabelError(f"expected a column of texts, found one of type {column.type}")
            return cls(column.cast(pa.large_string()))
        listed = as_list(values, "texts")
        wrong = next((row for row, value in enumerate(listed) if not isinstance(value, str)), None)
        if wrong is not None:
            raise TreelabelError(f"row {wrong}: expected text, found {describe_value(listed[wrong])}")
        try:
            return cls(pa.chunked_array([pa.array(listed, pa.large_string())]))
        except UnicodeEncodeError as error:
            half, row = error.object[error.start], listed.index(error.object)
            raise TreelabelError(
                f"row {row}: {half!r} is half of a character (a lone surrogate), which no text can hold"
            ) from None

    def __len__(self) -> int:
        return len(self.arrow)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> "Strings": ...
    def __getitem__(self, index: int | slice) -> "str | Strings":
        if isinstance(index, slice):
            return self.take(np.arange(len(self))[index]) if index.step not in (None, 1) else Strings(self.arrow[index])
        return str(self.arrow[int(index)].as_py())

    def __iter__(self) -> Iterator[str]:
        for chunk in self.arrow.chunks:
            # A slice at a time, so that a long column is never a second time in memory as Python objects.
            for start in range(0, len(chunk), 4096):
                yield from chunk.slice(start, 4096).to_pylist()

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Strings):
            return bool(self.arrow.equals(other.arrow))
        return isinstance(other, Sequence) and not isinstance(other, str) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Strings({len(self):,} texts)"

    @property
    def nbytes(self) -> int:
        """The bytes of all texts in UTF-8.

        >>> Strings.of(["a", "é"]).nbytes
        3
        """
        return int(pc.sum(pc.binary_length(self.arrow)).as_py() or 0)

    def blank(self) -> npt.NDArray[np.bool_]:
        """Mark the texts that are empty, or nothing but white space.

        >>> Strings.of(["a", " ", ""]).blank().tolist()
        [False, True, True]
        """
        parts = [pc.equal(pc.utf8_trim_whitespace(chunk), "") for chunk in self.arrow.chunks]
        return np.concatenate([np.zeros(0, np.bool_), *(part.to_numpy(zero_copy_only=False) for part in parts)])

    def take(self, rows: Any) -> "Strings":
        """Select rows by number."""
        return Strings(self.arrow.take(pa.array(np.asarray(rows, np.int64))))


def plain_text(text: str) -> str:
    r"""Return a text without what makes no other text of it: case, and how words are spaced.

    >>> plain_text(" Two\n WORDS ")
    'two words'
    """
    return " ".join(text.casefold().split())


def text_digests(texts: Strings) -> npt.NDArray[np.int64]:
    """Compute 128 bits of each plain text, and zeros for empty ones: equal texts have equal ones, others never.

    Linear in the size of the texts, 16 bytes of memory each.

    Returns
    -------
    array of shape (texts, 2)

    >>> digests = text_digests(Strings.of(["a b", "A  b", "", "c"]))
    >>> bool((digests[0] == digests[1]).all()), digests[2].tolist(), bool((digests[0] == digests[3]).all())
    (True, [0, 0], False)
    """
    parts = bytearray()
    for text in texts:
        plain = plain_text(text)
        parts += blake2b(plain.encode("utf-8", "surrogatepass"), digest_size=16).digest() if plain else bytes(16)
    return np.frombuffer(parts, np.int64).reshape(-1, 2)
