"""Write a Dataset to any format; the file says its hierarchy itself, or has it beside it."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from treelabel.core.atomic_output import atomic_group
from treelabel.core.errors import TreelabelError
from treelabel.core.inputs import suffixes
from treelabel.data.columns import without_missing
from treelabel.data.dataset import Dataset
from treelabel.data.io.cells import MARKER, EscapedFormulasWarning, may_hold_formulas
from treelabel.data.io.format import BATCH, Format, WriteOptions
from treelabel.data.io.registry import FORMATS
from treelabel.data.io.tables import format_of, write_tables
from treelabel.data.read import hierarchy_of_labels
from treelabel.data.taxonomy.sibling_taxonomy import (
    find_sibling_taxonomy,
    require_no_other_taxonomy,
    sibling_path,
    write_sibling_taxonomy,
)
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.label_ids import SEPARATORS, Label, with_uris
from treelabel.hierarchy.label_matrices import LabelMatrix, row_sizes

LabelStyle = Literal["auto", "names", "paths"]


def write(
    data: Dataset,
    path: str | Path,
    format: str | None = None,  # noqa: A002  what users call it
    labels: LabelStyle = "auto",
    sep: str | None = None,
    taxonomy: bool = True,
    escape_formulas: bool = False,
    label_column: str = "labels",
    overwrite: bool = False,
) -> list[Path]:
    """Write a dataset by the file's ending or `format`; return the files written.

    Labels are full paths, so that the file stands on its own. Where they do not say the whole hierarchy (labels with
    several parents or without documents, another order, names alone), it is written beside the file, where `read`
    finds it. A taxonomy of another hierarchy that stands there is refused, as the file would be read with it.

    A further column that is itself called id, text or labels gets an underscore behind its name.

    Parameters
    ----------
    data : Dataset
        What to write.
    path : str or Path
        The file, compressed if its name ends in .gz, .zst or .bz2.
    format : str, optional
        A name of FORMATS; by default by the ending of the file.
    labels : "auto", "names" or "paths"
        How labels are written; "auto" writes full paths of a tree of several levels, and names in .htc, of a DAG, and
        where every separator occurs in a name.
    sep : str, optional
        The separator of paths; by default one that occurs in no name.
    taxonomy : bool
        Whether to write the hierarchy to `<name>.taxonomy.tsv` (or .json) where it is needed, unless the format holds
        it (Parquet, XMC).
    escape_formulas : bool
        Whether to make CSV and TSV safe to open in a spreadsheet: `read` returns the same data, while other readers
        see an apostrophe in front of cells that would be run as formulas (see `treelabel.data.io.cells`).
    label_column : str
        The name of the column with the labels.
    overwrite : bool
        Whether to replace another hierarchy beside the file. The file itself is always replaced.

    Returns
    -------
    list of Path
        The files written.
    """
    target = Path(path)
    data = with_free_names(data, label_column)
    entry = format_of(target, format)
    if "uris" in entry.holds:
        data = replace(data, hierarchy=with_uris(data.hierarchy))
    separator = _path_separator(data, entry, labels, sep)
    texts = _node_texts(data.hierarchy, entry, separator)

    def label_texts(matrix: LabelMatrix) -> list[list[Any]]:
        return _label_lists(texts, matrix)

    with atomic_group():
        sibling = None
        stands_alone = bool(entry.holds & {"hierarchy", "features", "no labels"})
        if not taxonomy and not stands_alone and separator is None:
            require_no_other_taxonomy(target, data.hierarchy)
        if taxonomy and not stands_alone:
            is_needed = not _is_told_by(label_texts(data.labels), data, target)
            name = sibling_path(target, data.hierarchy)
            sibling = write_sibling_taxonomy([target], data.hierarchy, name, is_needed, overwrite)
        options = replace(_options(data, label_column, escape_formulas), label_texts=list(map(str, texts)))
        escaped = write_tables(_tables(data, label_texts, label_column), target, options, entry.name)
    if escaped:
        warnings.warn(
            EscapedFormulasWarning(
                f"{target}: {escaped:,} cells that a spreadsheet would run as formulas begin with an apostrophe now, "
                f"and the column {MARKER} counts them; treelabel reads them as they were (--raw leaves them so)"
            ),
            stacklevel=2,
        )
    return [target] if sibling is None else [target, sibling]


def _node_texts(hierarchy: Hierarchy, entry: Format, separator: str | None) -> list[Any]:
    """Write every node as a format has labels: by number, URI, name, path, or the list of names of a path."""
    h = hierarchy
    if "features" in entry.holds:
        are_numbers = entry.name != "xmc" and all(name.removeprefix("-").isdecimal() for name in h.names)
        return list(h.names) if are_numbers else list(map(str, range(len(h))))
    if "uris" in entry.holds and h.identifiers is not None:
        return list(h.identifiers.uris.to_pylist())
    if "path lists" in entry.holds:
        return [h.path_names(node) for node in range(len(h))]
    return list(h.names) if separator is None else h.paths(sep=separator)


def _label_lists(texts: Sequence[Any], labels: LabelMatrix) -> list[list[Any]]:
    """Return the labels of each document, given how every node is written."""
    flat, ptr = [texts[node] for node in labels.indices.tolist()], labels.indptr.tolist()
    return [flat[start:stop] for start, stop in pairwise(ptr)]


def _tables(
    data: Dataset, label_texts: Callable[[LabelMatrix], list[list[Any]]], label_column: str
) -> Iterator[pa.Table]:
    """Make tables of documents, a batch at a time, and one without rows if there are none."""
    for part in data.batches(BATCH) if len(data) else [data]:
        lists = label_texts(part.labels)
        are_paths = any(isinstance(label, list) for row in lists for label in row)
        labels = pa.array(lists, pa.list_(pa.list_(pa.string()) if are_paths else pa.string()))
        columns = {"id": part.ids.arrow, "text": part.texts.arrow, label_column: labels}
        yield pa.table(columns | dict(part.extra))


def _options(data: Dataset, label_column: str, escape_formulas: bool) -> WriteOptions:
    # Labels count whether they are used or not.
    names = pa.array([*data.hierarchy.names, *data.extra], pa.large_string())
    columns = [data.ids.arrow, data.texts.arrow, names, *data.extra.values()]
    escape = escape_formulas and may_hold_formulas(columns)
    return WriteOptions(
        labels=[label_column], escape=escape, mark=escape, hierarchy=data.hierarchy, features=data.features
    )


def lacking_taxonomy(folder: Path, apart: Sequence[Path]) -> list[Path]:
    """List the data files of a folder that have no taxonomy beside them, and would be read with one of the folder.

    Parameters
    ----------
    folder
        A folder that is there.
    apart
        Files that do not count.

    Returns
    -------
    list of Path
    """
    endings = {ending for row in FORMATS.values() for ending in row.endings}
    known = {path.resolve() for path in apart}
    return [
        file
        for file in sorted(folder.iterdir())
        if suffixes(file)[0] in endings and "taxonomy." not in file.name and file.resolve() not in known
        if find_sibling_taxonomy(file) is None
    ]


def _path_separator(data: Dataset, entry: Format, labels: LabelStyle, sep: str | None) -> str | None:
    """Find the separator to write paths with, or None to write names."""
    h = data.hierarchy
    if labels == "names" and not h.has_unique_names:
        raise TreelabelError("two labels share a name, so names alone would not be readable again; write paths")
    fits = h.is_tree and h.max_depth > 1 and "paths" in entry.holds
    if labels == "names" or (labels == "auto" and h.has_unique_names and not fits):
        return None
    try:
        return _separator(data, sep)
    except TreelabelError:
        if labels == "paths" or sep is not None or not h.has_unique_names:
            raise
        return None


def _is_told_by(labels: list[list[Any]], data: Dataset, target: Path) -> bool:
    """Return whether `read` makes the same hierarchy of the labels alone."""
    flat = (label for row in labels for label in row)
    keys: dict[Label, int] = dict.fromkeys((label if isinstance(label, str) else tuple(label) for label in flat), 0)
    # A single label may look like a missing one.
    if not any(map(without_missing, keys)):
        return False
    told = hierarchy_of_labels(keys, None, target).hierarchy
    return told == data.hierarchy and data.hierarchy.identifiers in (None, told.identifiers)


def with_free_names(data: Dataset, label_column: str) -> Dataset:
    """Rename further columns that would stand in the file under the name of one of ours."""
    reserved = ("id", "text", label_column, MARKER)
    taken = {*reserved, *data.extra}

    def free(name: str) -> str:
        while name in taken:
            name += "_"
        return name

    names = {name: free(name) if name in reserved else name for name in data.extra}
    group = None if data.group is None else names[data.group]
    return replace(data, extra={names[name]: column for name, column in data.extra.items()}, group=group)


def _separator(data: Dataset, sep: str | None) -> str:
    """Find a separator that occurs in no name, nor begins in one ("C >" before " > ")."""
    choices = [sep] if sep is not None else list(SEPARATORS)
    free = [choice for choice in choices if all((n + choice).index(choice) == len(n) for n in data.hierarchy.names)]
    if not free:
        raise TreelabelError(
            f"cannot write paths: the separator {choices[0]!r} occurs in a label's name; choose another"
        )
    return free[0]


def losses(data: Dataset, path: str | Path, format: str | None = None) -> list[str]:  # noqa: A002  what users call it
    """List what a format cannot hold of a dataset.

    Parameters
    ----------
    data
        A dataset.
    path
        The file to write.
    format
        A row of FORMATS; None takes that of the file's ending.

    Returns
    -------
    list of str
        What would be lost, in words.
    """
    holds = format_of(Path(path), format).held_in(Path(path))
    lost = []
    if "no labels" in holds:
        lost.append("labels")
    if "one label" in holds and (count := int((row_sizes(data.labels) > 1).sum())):
        lost.append(f"further labels ({count:,} documents have several)")
    if "features" in holds and not all(name.isdecimal() for name in data.hierarchy.names):
        lost.append("names of labels and their hierarchy")
    if "ids" not in holds:
        lost.append("ids")
    if "texts" not in holds:
        lost.append("texts")
    if "line breaks" not in holds and (count := sum("\n" in text or "\r" in text for text in data.texts)):
        lost.append(f"line breaks ({count:,} texts)")
    if "empty documents" not in holds and (count := _empty_documents(data)):
        lost.append(f"documents with neither text nor labels ({count:,})")
    if "features" not in holds and data.features is not None:
        lost.append("features")
    if "columns" not in holds and data.extra:
        lost.append(f"columns {', '.join(data.extra)}")
    return lost


def _empty_documents(data: Dataset) -> int:
    return sum(not size and not text.strip() for size, text in zip(row_sizes(data.labels), data.texts, strict=True))
