"""Data frames of any library: columns out of them, and columns into them.

pandas, polars and pyarrow are read and written by narwhals, which also collects what is lazy (polars, DuckDB); datasets
of Hugging Face by their Arrow tables; and whatever else hands out Arrow streams (`__arrow_c_stream__`) becomes a
pyarrow Table. Nothing is imported before a frame is there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from treelabel.core.errors import TreelabelError, quote
from treelabel.core.json_lines import join_texts, text_scalar
from treelabel.core.registry import did_you_mean
from treelabel.core.strings import (
    TEXT_TYPES,
    Strings,
    class_names,
    column_names,
    describe_value,
    guess_column,
    is_missing,
)

INDICATORS = (bool, int, np.bool_, np.integer)

FrameKind = Literal["pandas", "polars", "pyarrow"]


def is_frame(values: Any) -> bool:
    """Return whether a value is a data frame or table of any library.

    >>> is_frame(pa.table({"text": ["a"]})), is_frame(["a"]), is_frame({"text": ["a"]})
    (True, False, False)
    """
    kind = type(values)
    if isinstance(values, Mapping):
        return False
    # Columns hand out streams, too, but can be made lists of.
    is_stream = hasattr(kind, "__arrow_c_stream__") and not hasattr(kind, "to_pylist") and not hasattr(kind, "to_list")
    return is_stream or column_names(values) is not None


@dataclass(frozen=True, eq=False)
class Frame:
    """A data frame of any library, of which columns are read, and to which columns are added.

    `native` is the frame as it was passed, `eager` its rows as narwhals sees them.

    >>> frame = Frame.of(pa.table({"body": ["a", None], "n": [1, 2]}))
    >>> frame.names, list(frame.texts(["body"])), frame.values("n")
    (['body', 'n'], ['a', ''], [1, 2])
    >>> frame.with_columns({"label": pa.array(["x", None])}).column_names
    ['body', 'n', 'label']
    """

    native: Any
    eager: Any

    @classmethod
    def of(cls, data: Any) -> "Frame":
        """Open a frame; a lazy one is collected."""
        import narwhals as nw

        if isinstance(data, Frame):
            return data
        if _is_hugging_face(data):
            return cls(data, nw.from_native(_decode_classes(data), eager_only=True))
        try:
            opened = data if isinstance(data, Mapping) else nw.from_native(data, pass_through=True)
            if isinstance(opened, nw.LazyFrame):
                opened = opened.collect()
            if isinstance(opened, nw.DataFrame):
                return cls(data, opened)
            # What has columns to stream, but for series, which are one.
            if hasattr(data, "__arrow_c_stream__") and not hasattr(data, "to_frame"):
                return cls(data, nw.from_native(pa.table(data), eager_only=True))
        except (TypeError, ValueError, nw.exceptions.NarwhalsError) as error:
            raise TreelabelError(f"cannot read {describe_value(data)}: {error}") from None
        hint = "; pyarrow.table(data) makes a frame of a dict of columns" if isinstance(data, Mapping) else ""
        hint = "; its to_frame() makes one" if hasattr(data, "to_frame") else hint
        raise TreelabelError(
            f"expected a data frame (pandas, polars, pyarrow, DuckDB, datasets), found {describe_value(data)}{hint}"
        )

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return [str(name) for name in self.eager.columns]

    def __len__(self) -> int:
        return len(self.eager)

    def require(self, name: str, what: str) -> None:
        """Refuse a name that is no column; `what` it should hold goes into the message."""
        if name not in self.names:
            hint = did_you_mean(name, self.names)
            raise TreelabelError(
                f"no column {quote(name)} for the {what}; columns are {_list(self.names)}{hint and f'; {hint}'}"
            )

    def text_columns(self, text: str | Sequence[str] | None, remembered: Sequence[str] = ()) -> tuple[str, ...]:
        """Choose the columns of the text.

        Parameters
        ----------
        text
            Names that were asked for; they must be there.
        remembered
            Names of the columns that a model has learned from; taken if all are there.

        Returns
        -------
        tuple of str
            Else the column that has a usual name.
        """
        if text is not None:
            asked = (text,) if isinstance(text, str) else tuple(text)
            for name in asked:
                self.require(name, "text")
            return asked
        if remembered and set(remembered) <= set(self.names):
            return tuple(remembered)
        guessed = guess_column(self.names)
        if guessed is None:
            raise TreelabelError(f"no column looks like the text; columns are {_list(self.names)}; say which: text=...")
        return (guessed,)

    def texts(self, columns: Sequence[str]) -> Strings:
        """Return the texts of columns, joined by line breaks; what is missing is empty."""
        parts = [self._text_column(name) for name in columns]
        return Strings.of(join_texts([each for part in parts for each in ("\n", part)][1:]) if parts[1:] else parts[0])

    def _text_column(self, name: str) -> pa.Array:
        try:
            column = self.arrow(name)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise TreelabelError(f"the column {quote(name)} holds no texts: {error}") from None
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        if column.null_count < len(column) and not any(is_text(kind) for is_text in TEXT_TYPES):
            raise TreelabelError(f"expected texts in the column {quote(name)}, found {column.type}")
        return pc.fill_null(column.cast(pa.large_string()), text_scalar(""))

    def arrow(self, name: str) -> pa.Array:
        """Return a column as one Arrow array."""
        column = self.eager.get_column(name).to_arrow()
        return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column

    def values(self, name: str) -> list[Any]:
        """Return the values of a column as Python has them; what is missing is None."""
        listed = self.eager.get_column(name).to_list()
        return [None if not isinstance(value, str) and is_missing(value) else value for value in listed]

    def indicators(self, names: Sequence[str]) -> npt.NDArray[np.bool_] | None:
        """Return columns that mark the documents of a label each, as `pandas.get_dummies` makes them.

        Parameters
        ----------
        names
            The columns.

        Returns
        -------
        array of shape (documents, columns) or None
            None where a column holds anything but 0 and 1, or False and True.
        """
        columns = [self.values(name) for name in names]
        values = (value for column in columns for value in column)
        # One column of 0 and 1 alone would rather be labels themselves.
        if len(columns) < 2 or not all(isinstance(value, INDICATORS) and value in (0, 1) for value in values):
            return None
        return np.array(columns, np.bool_).reshape(len(columns), len(self)).T

    def with_columns(self, columns: Mapping[str, pa.Array]) -> Any:
        """Return a frame of the same library with further columns, which must not be there yet.

        A lazy frame comes back collected, one of DuckDB as a pyarrow Table. In pandas lists are Python's, in columns of
        objects; elsewhere they are lists of the library.
        """
        if _is_hugging_face(self.native):
            from datasets import concatenate_datasets

            return concatenate_datasets([self.native, type(self.native)(pa.table(dict(columns)))], axis=1)
        return self.eager.with_columns(*_series(columns, self.eager.implementation)).to_native()


def make_frame(columns: Mapping[str, pa.Array | pa.ChunkedArray], kind: FrameKind) -> Any:
    """Make a frame of a library.

    Parameters
    ----------
    columns
        The columns by name.
    kind
        "pandas", "polars" or "pyarrow".

    Returns
    -------
    data frame

    >>> make_frame({"a": pa.array([1])}, "pyarrow").column_names
    ['a']
    """
    import narwhals as nw

    if kind not in get_args(FrameKind):
        raise TreelabelError(f"expected a frame of pandas, polars or pyarrow, found kind={quote(kind)}")
    try:
        empty = nw.from_arrow(pa.table({}), backend=kind)
    except ImportError:
        raise TreelabelError(f"{kind} is not installed; install it with: pip install {kind}") from None
    return nw.from_dict({each.name: each for each in _series(columns, empty.implementation)}).to_native()


def _series(columns: Mapping[str, pa.Array | pa.ChunkedArray], backend: Any) -> list[Any]:
    """Make columns of a library."""
    import narwhals as nw

    made = []
    for name, column in columns.items():
        kind = column.type
        is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
        if backend.is_pandas_like() and (is_list or (pa.types.is_integer(kind) and column.null_count)):
            # Arrow's own conversion makes arrays of lists, and floats of whole numbers that may be missing.
            library = backend.to_native_namespace()
            values = library.Series(column.to_pylist(), name=name, dtype=object if is_list else "Int64")
            made.append(nw.from_native(values, series_only=True))
        else:
            made.append(nw.from_arrow(pa.table({name: column}), backend=backend).get_column(name))
    return made


def _is_hugging_face(data: Any) -> bool:
    """Return whether this is a dataset of Hugging Face's package; asked of its class, which nothing imports here."""
    return any(f"{each.__module__}.{each.__name__}" == "datasets.arrow_dataset.Dataset" for each in type(data).__mro__)


def _decode_classes(data: Any) -> pa.Table:
    """Return the Arrow table of a dataset, with the names of ClassLabel features in place of their numbers."""
    table = data.with_format("arrow")[:]
    for index, name in enumerate(table.column_names):
        feature = data.features[name]
        names = class_names(feature)
        if names is None:
            continue
        column = table.column(name).combine_chunks()
        is_list = hasattr(feature, "feature")
        codes = column.values if is_list else column
        # -1 stands for no label.
        known = pc.if_else(pc.less(codes, 0), pa.scalar(None, codes.type), codes)
        texts = pa.array(names, pa.large_string()).take(known)
        if is_list:
            texts = pa.ListArray.from_arrays(column.offsets, texts, mask=column.is_null())
        table = table.set_column(index, name, texts)
    return table


def _list(names: Sequence[str]) -> str:
    return ", ".join(quote(name, 40) for name in names[:20]) + (" ..." if len(names) > 20 else "")
