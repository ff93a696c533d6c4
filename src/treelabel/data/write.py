"""Write a Dataset to any format; the file and its hierarchy appear together, whole or not at all."""

from dataclasses import replace
from pathlib import Path
from typing import Literal

from treelabel.core.errors import TreelabelError
from treelabel.core.outputs import remove_file, together
from treelabel.data.dataset import Dataset
from treelabel.data.formats import Output, format_of
from treelabel.data.formulas import MARKER
from treelabel.data.taxonomy import taxonomy_name, write_taxonomy
from treelabel.hierarchy import SEPARATOR, LabelMatrix, row_sizes
from treelabel.hierarchy.labels import SEPARATORS, decode

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
) -> list[Path]:
    """Write a dataset by the file's ending or `format`, and its hierarchy beside it; return the files written.

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
        How labels are written; "auto" writes full paths where names are not enough.
    sep : str, optional
        The separator of paths; by default one that occurs in no name.
    taxonomy : bool
        Whether to write the hierarchy to `<name>.taxonomy.tsv` (or .json), where `read` finds it, unless the format
        holds it (Parquet, XMC).
    escape_formulas : bool
        Whether to make CSV and TSV safe to open in a spreadsheet: `read` returns the same data, while other readers
        see an apostrophe in front of cells that would be run as formulas (see `treelabel.data.formulas`).
    label_column : str
        The name of the column with the labels.

    Returns
    -------
    list of Path
        The files written.
    """
    target = Path(path)
    data = _with_free_names(data, label_column)
    entry = format_of(target, format)
    # A name alone says nothing of the levels above it, so without a taxonomy it takes the path.
    alone = not taxonomy and data.hierarchy.max_depth > 1 and data.hierarchy.is_tree and "hierarchy" not in entry.holds
    use_paths = labels == "paths" or (labels == "auto" and (alone or not data.hierarchy.has_unique_names))
    if labels == "names" and not data.hierarchy.has_unique_names:
        raise TreelabelError("two labels share a name, so names alone would not be readable again; write paths")
    separator = _separator(data, sep) if use_paths else SEPARATOR

    def label_texts(matrix: LabelMatrix) -> list[list[str]]:
        return decode(data.hierarchy, matrix, use_paths, separator)

    written = [target]
    with together():
        entry.write(Output(target, data, label_texts, labels=label_column, escape_formulas=escape_formulas))
        if taxonomy and not entry.holds & {"hierarchy", "features"}:
            beside = taxonomy_name(target, data.hierarchy)
            write_taxonomy(data.hierarchy, beside)
            if beside.suffix == ".json":
                # The one of an earlier dataset of this name, which `read` would find first.
                remove_file(beside.with_suffix(".tsv"))
            written.append(beside)
    return written


def _with_free_names(data: Dataset, label_column: str) -> Dataset:
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
    holds = format_of(Path(path), format).holds
    lost = []
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
