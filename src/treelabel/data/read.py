"""Read a data file into a Dataset: in batches, naming file and line of whatever is wrong."""

import logging
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from treelabel.core.errors import TreelabelError, shorten
from treelabel.core.inputs import STANDARD, existing_file
from treelabel.core.limits import DEFAULT_LIMITS, Limits
from treelabel.core.progress import progress_bar
from treelabel.core.strings import describe_value
from treelabel.core.types import IntArray
from treelabel.data.collect import Collector, Incoming
from treelabel.data.dataset import MADE_OF_LABELS, Dataset
from treelabel.data.fields import FieldChoice, Fields, ListMeaning, decoded
from treelabel.data.io import BATCH, Problem, ReadOptions, Record, RowSource
from treelabel.data.io.standard import settled
from treelabel.data.taxonomy.label_characters import unprintable
from treelabel.data.taxonomy.sibling_taxonomy import find_sibling_taxonomy, read_sibling_taxonomy
from treelabel.hierarchy import SEPARATOR, Hierarchy, split_path
from treelabel.hierarchy.label_ids import Label, UnknownLabelError, find_label
from treelabel.hierarchy.separators import guess_separator

OnError = Literal["stop", "skip"]
LOG = logging.getLogger(__name__)


class SkippedRowsWarning(UserWarning):
    """Says how many rows were left out because `on_error="skip"` was asked for."""


def read(
    path: str | Path,
    text: str | Sequence[str] | None = None,
    labels: str | Sequence[str] | None = None,
    id: str | None = None,  # noqa: A002  the column's name
    sep: str | None = None,
    taxonomy: "str | Path | Hierarchy | Known | None" = None,
    format: str | None = None,  # noqa: A002  what users call it
    label_sep: str | None = None,
    lists: ListMeaning = "labels",
    root: str | None = None,
    encoding: str = "utf-8",
    delimiter: str | None = None,
    header: bool = True,
    quotes: bool = True,
    on_error: OnError = "stop",
    need_text: bool = True,
    need_labels: bool = True,
    limits: Limits = DEFAULT_LIMITS,
    progress: bool | None = None,
    group: str | None = None,
    sheet: str | None = None,
) -> Dataset:
    """Read a file of texts with labels; any format in `FORMATS`, also compressed (.gz, .zst, .bz2).

    Memory stays near the size of the texts: rows are held as Python objects only a batch at a time.

    Parameters
    ----------
    path : str or Path
        The file.
    text, labels, id : str or sequence of str, optional
        Names of the columns; by default they are guessed ("text", "label", "level1", ...). Several text columns are
        joined, several label columns are the levels of one path; "dept,class" names two columns as well.
    sep : str, optional
        The separator of the names of a path inside a label; by default one of > / | :: \\ where it explains the labels
        (see `guess_separator`), which `Dataset.choices` then says.
    taxonomy : str, Path or Hierarchy, optional
        The hierarchy, or a file with one. By default that in the file (Parquet), else `taxonomy.tsv` beside the file,
        else one made of the labels: a tree if they are paths, one level if not. Where labels are paths, they must be
        full paths of a hierarchy that was found beside the file; one that is named may have levels above them.
    format : str, optional
        A name of FORMATS; by default by the ending of the file.
    label_sep : str, optional
        The separator of several labels inside a cell.
    lists : "labels" or "path"
        What a list of names is: several labels, or the steps of one path.
    root : str, optional
        The node of a taxonomy that stands for the root.
    encoding, delimiter, header, quotes
        How to read text: the encoding where the file does not tell it itself (by a byte order mark, or as UTF-16), and
        for CSV the delimiter (by default guessed), whether the first line names
        the columns, and whether values may be quoted.
    on_error : "stop" or "skip"
        Whether a row that cannot be used is an error, or is left out and counted in a warning.
    need_text : bool
        False reads files without a text column, such as predictions.
    need_labels : bool
        False ignores labels, whatever they are; it needs a taxonomy.
    limits : Limits
        The resources that reading may take.
    progress : bool, optional
        Whether to show a progress bar; by default on a terminal.
    group : str, optional
        The column that tells which documents belong together (a customer, a source): see `Dataset.groups`.
    sheet : str, optional
        The sheet of an .xlsx file, by its name or its number from 1 on; by default the first.

    Returns
    -------
    Dataset

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "pets.csv")
    ...     _ = file.write_text("text,category\\nwoof,pet > dog\\nmeow,pet > cat\\n")
    ...     read(file, labels="category", sep=" > ").hierarchy.paths()
    ['pet', 'pet > dog', 'pet > cat']
    """
    file = existing_file(path)
    if "" in (sep, label_sep):
        raise TreelabelError("a separator must be at least one character; without one it is guessed")
    if isinstance(taxonomy, str | Path):
        known: Known | None = known_from(Path(taxonomy), root, encoding, limits)
    elif taxonomy is None or isinstance(taxonomy, Known):
        known = taxonomy
    elif isinstance(taxonomy, Hierarchy):
        known = Known(taxonomy, {"hierarchy": "given"})
    else:
        raise TreelabelError(f"expected a taxonomy that is a file or a Hierarchy, found {describe_value(taxonomy)}")
    problems = Problems(file, on_error)
    collector = Collector(limits)
    size = None if file == STANDARD else file.stat().st_size
    options = ReadOptions(encoding, delimiter, header, quotes, None, limits, sheet)
    with (
        settled(file, format, options) as (found, entry),
        progress_bar(f"reading {file.name}", size, progress) as seen,
    ):
        source = entry.read(found, replace(options, seen=seen))
        choice = FieldChoice(text, labels, id, label_sep, lists, need_text, need_labels, group)
        fields = _collect(source, choice, collector, problems)
    if fields is None or len(collector) == 0:
        raise problems.nothing_left()
    if known is None:
        known = _hierarchy_found(file, root, source, collector, sep, options)
    hierarchy = known.hierarchy
    nodes = find_nodes(hierarchy, collector, known.sep or sep, problems, known.beside)
    if len(hierarchy) == 0:
        raise TreelabelError(f"{file}: no label in the file can be used; give a taxonomy, or mend the labels")
    data, left_out = collector.dataset(hierarchy, nodes, source.features)
    problems.skipped += left_out
    problems.conclude(len(data))
    return replace(data, choices=fields.told() | dict(source.choices) | known.told, group=group)


class Known(NamedTuple):
    """A hierarchy, what to tell people of where it is from, the separator if guessed, the file if found by itself."""

    hierarchy: Hierarchy
    told: dict[str, str]
    sep: str | None = None
    beside: Path | None = None


def known_from(file: Path, root: str | None, encoding: str, limits: Limits) -> Known:
    """Read the taxonomy of data.

    Parameters
    ----------
    file, root, encoding, limits
        As for `read_sibling_taxonomy`.

    Returns
    -------
    Known
    """
    hierarchy, form = read_sibling_taxonomy(file, root, encoding, limits)
    return Known(hierarchy, {"hierarchy": str(file), "taxonomy": form})


@dataclass
class Problems:
    """Problems found: the first stops the reading, or all are counted and the first few reported."""

    file: Path
    on_error: OnError
    skipped: int = 0
    told: list[str] = field(default_factory=list)
    # Rows that annotators did not accept, which are left out always, by their answer.
    rejected: Counter[str] = field(default_factory=Counter)

    def tell(self, line: int, message: str, kind: type[TreelabelError] = TreelabelError) -> None:
        """Report a problem.

        Parameters
        ----------
        line
            Where it is.
        message
            What it is.
        kind
            The error that it is, if it stops the reading.
        """
        told = f"{self.file}:{line}: {message}"
        if self.on_error == "stop":
            raise kind(f"{shorten(told, 1500)} (to leave out such rows: --on-error skip)")
        if len(self.told) < 3:
            self.told.append(shorten(told, 500))

    def skip(self, line: int, message: str, lines: int = 1) -> None:
        """Report a problem that costs rows.

        Parameters
        ----------
        line, message
            As for `tell`.
        lines
            How many are left out.
        """
        self.tell(line, message)
        self.skipped += lines

    def conclude(self, documents: int) -> None:
        """End the reading: warn of rows that were left out, and refuse a file of which nothing is left.

        Parameters
        ----------
        documents
            How many were read.
        """
        if documents == 0:
            raise self.nothing_left()
        if self.skipped:
            told = "; ".join(self.told)
            warnings.warn(SkippedRowsWarning(f"{self.file}: skipped {self.skipped:,} rows: {told}"), stacklevel=3)
        if self.rejected:
            warnings.warn(SkippedRowsWarning(f"{self.file}: left out {self._not_accepted()}"), stacklevel=3)

    def _not_accepted(self) -> str:
        counts = ", ".join(f"{answer} {count:,}" for answer, count in self.rejected.items())
        return f"{self.rejected.total():,} rows that annotators did not accept (answer: {counts})"

    def nothing_left(self) -> TreelabelError:
        """Make the error for a file without documents."""
        if self.rejected and not self.skipped:
            return TreelabelError(f"{self.file}: no documents left but {self._not_accepted()}")
        if not self.skipped:
            return TreelabelError(f"{self.file}: no documents; the file has no rows, or every line is blank")
        told = "; ".join(self.told)
        return TreelabelError(f"{self.file}: no documents left, as all {self.skipped:,} rows were skipped: {told}")


def _collect(source: RowSource, choice: FieldChoice, collector: Collector, problems: Problems) -> Fields | None:
    """Move all rows into the collector; return the columns that were chosen, if there was a row at all."""
    fields: Fields | None = None
    while rows := list(islice(source.rows, BATCH)):
        good = [row for row in rows if isinstance(row, Record)]
        if fields is None and good:
            # JSON objects need not all have the same fields, so columns are chosen with a whole batch in view.
            columns = dict.fromkeys(name for row in good for name in row.values)
            fields = choice.among(list(columns), f"{problems.file}:{good[0].line}")
            collector.used_columns = fields.used()
        batch: list[Incoming] = []
        for row in rows:
            if isinstance(row, Problem):
                problems.skip(row.line, row.message, row.lines)
            elif fields is not None:
                understand(row, fields, len(collector), batch, problems)
        collector.add(batch)
    return fields


def understand(row: Record, fields: Fields, before: int, batch: list[Incoming], problems: Problems) -> None:
    """Add a row to a batch, or report why it cannot be used.

    Parameters
    ----------
    row
        The row.
    fields
        The columns to read.
    before
        The number of documents before the batch.
    batch
        Where the row is added.
    problems
        Where problems are reported.
    """
    answer = fields.rejected(row.values)
    if answer is not None:
        problems.rejected[answer] += 1
        return
    try:
        name = row.values.get(fields.id) if fields.id is not None else None
        name = decoded(name) if isinstance(name, bytes) else name
        known = str(before + len(batch)) if name is None or name == "" else str(name)
        text, labels = fields.text_of(row.values), fields.labels_of(row.values)
    except KeyError as error:
        problems.skip(row.line, f"no value for {error}; the row has {_listed(row.values) or 'nothing'}")
    except ValueError as error:
        problems.skip(row.line, str(error))
    else:
        batch.append(Incoming(row.line, known, text, labels, row.values, row.features))


def find_nodes(
    hierarchy: Hierarchy, collector: Collector, sep: str | None, problems: Problems, beside: Path | None = None
) -> IntArray:
    """Find the node of every distinct label.

    Parameters
    ----------
    hierarchy
        The hierarchy.
    collector
        What has the labels.
    sep
        The separator of paths.
    problems
        Where unknown labels are reported.
    beside
        The file of the hierarchy, if nobody named it: it may be that of other data, so paths must be those in it.

    Returns
    -------
    array of int32
        -1 for labels that are unknown and may be skipped.
    """
    nodes = np.full(len(collector.keys), -1, np.int32)
    are_paths = beside is not None and _are_paths(collector.keys, sep, hierarchy)
    for code, label in enumerate(collector.keys):
        is_full = are_paths or (beside is not None and _names(label)[-1].strip() not in hierarchy.ids_by_name)
        try:
            nodes[code] = find_label(hierarchy, label, sep, is_full)
        except UnknownLabelError as error:
            odd = unprintable(_names(label))
            told = str(error) if beside is None else f"{error} (in {beside}, beside the data; --taxonomy names one)"
            problems.tell(collector.key_lines[code], odd or told, TreelabelError if odd else UnknownLabelError)
    return nodes


def _are_paths(keys: Iterable[Label], sep: str | None, hierarchy: Hierarchy) -> bool:
    """Return whether labels are paths, as they would be taken without a taxonomy; if all are names in it, they are not.

    "Medical/Senior Health" may be the name of one node.
    """
    texts = [key for key in keys if isinstance(key, str)]
    if any(not isinstance(key, str) and len(key) > 1 for key in keys):
        return True
    if all(text.strip() in hierarchy.ids_by_name for text in texts):
        return False
    return guess_separator(texts) is not None if sep is None else 2 * sum(sep in text for text in texts) > len(texts)


def _names(label: Label) -> list[str]:
    return [label] if isinstance(label, str) else list(label)


def _listed(columns: Iterable[str]) -> str:
    return ", ".join(shorten(name, 40) for name in islice(columns, 50))


def _hierarchy_found(
    file: Path, root: str | None, source: RowSource, collector: Collector, sep: str | None, options: ReadOptions
) -> Known:
    """Return the hierarchy in the file, or beside it, or made of the labels; and which of these it is."""
    if source.hierarchy is not None:
        return Known(source.hierarchy, {"hierarchy": "in the file"})
    beside = find_sibling_taxonomy(file)
    if beside is not None:
        return known_from(beside, root, options.encoding, options.limits)._replace(beside=beside)
    return hierarchy_of_labels(collector.keys, sep, file)


def hierarchy_of_labels(keys: dict[Label, int], sep: str | None, file: Path) -> Known:
    """Make a hierarchy of the labels themselves.

    Parameters
    ----------
    keys
        The labels, numbered.
    sep
        The separator of paths; None guesses whether there is one.
    file
        The file, for messages.

    Returns
    -------
    Known
    """
    if not keys:
        raise TreelabelError(f"{file}: no labels found and no taxonomy given; name the label column, or a taxonomy")
    # What cannot be a name is told as an unknown label, with its line.
    usable = [key for key in keys if unprintable(_names(key)) is None]
    texts = [key for key in usable if isinstance(key, str)]
    told, guessed = {"hierarchy": MADE_OF_LABELS}, None
    if sep is None and (guessed := guess_separator(texts)) is not None:
        sep = guessed
        told["separator"] = guessed
        if guessed != SEPARATOR:
            LOG.info("%s: labels are taken as paths separated by %r (--sep says otherwise)", file, guessed)
    if sep is None and len(texts) == len(usable):
        return Known(Hierarchy.flat(texts), told)
    paths = [
        (split_path(key, sep) if sep is not None else [key]) if isinstance(key, str) else list(key) for key in usable
    ]
    return Known(Hierarchy.from_paths(path for path in paths if all(path)), told, guessed)
