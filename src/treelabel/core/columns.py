"""One column out of what people pass as texts or labels: a list, an array, a column of a data frame; never a frame."""

from collections.abc import Mapping, Set
from typing import Any

import numpy as np

from treelabel.core.errors import TreelabelError, quoted

# What frames and tables of all libraries have, and no column of them has: pandas, polars, Arrow, datasets, Spark, ...
FRAME_ATTRIBUTES = ("columns", "column_names", "__dataframe__")


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
    names = values.column_names if hasattr(type(values), "column_names") else values.columns
    return [str(name) for name in names]


def described(values: Any) -> str:
    """Say what a value is that cannot be read, for a message.

    A data frame or dict is told by its columns, an array or a column by its type, others are quoted.

    >>> described({"body": ["a"], "label": ["b"]}), described(np.zeros(9)), described(3)
    ("a dict with the keys 'body', 'label'", 'ndarray', '3')
    """
    names = column_names(values)
    if names is None:
        is_column = isinstance(values, np.ndarray) or hasattr(type(values), "to_numpy")
        return type(values).__name__ if is_column else quoted(values)
    listed = ", ".join(quoted(name, 40) for name in names[:10]) + (", ..." if len(names) > 10 else "")
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
        example = f"; pass one column of it, such as data[{names[0]!r}]" if names else ""
        raise TreelabelError(f"expected a list of {what}, found {described(values)}{example}")
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
            found: list[Any] = getattr(values, name)()
            return found
    try:
        return list(values)
    except TypeError:
        raise TreelabelError(f"expected a list of {what}, found {described(values)}") from None


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
