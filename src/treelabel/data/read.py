"""Read a data file into a Dataset: in batches, naming file and line of whatever is wrong."""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from treelabel.core.errors import TreelabelError, quote, some
from treelabel.core.limits import DEFAULT_LIMITS, Limits
from treelabel.core.strings import describe_value
from treelabel.core.types import IntArray
from treelabel.data.columns import ColumnChoice, ListMeaning, unprintable, without_missing
from treelabel.data.dataset import MADE_OF_LABELS, Dataset
from treelabel.data.documents import NO_LABEL, UNKNOWN, DocumentBatch, DocumentReader, OnError, Problems
from treelabel.data.io.format import ReadOptions
from treelabel.data.io.tables import existing_data
from treelabel.data.taxonomy.sibling_taxonomy import find_sibling_taxonomy, read_sibling_taxonomy
from treelabel.hierarchy.hierarchy import SEPARATOR, Hierarchy, split_path
from treelabel.hierarchy.identifiers import URI
from treelabel.hierarchy.label_ids import Label, UnknownLabelError, find_label
from treelabel.hierarchy.separators import guess_separator, offer_separator

LOG = logging.getLogger(__name__)
# What need not be remembered of reading, as it is so by default.
_USUAL = {"encoding": "utf-8", "header": True, "quotes": True, "lists": "labels"}


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
    usual: Mapping[str, Sequence[str]] | None = None,
    language: str = "en",
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
    usual : mapping, optional
        The columns of "text", "labels" and "id" that are taken, before any guess, where the file has them.
    language : str
        The language of labels in a taxonomy that has several (SKOS, vocabularies of Annif).

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
    file = existing_data(path)
    if "" in (sep, label_sep):
        raise TreelabelError("a separator must be at least one character; without one it is guessed")
    if isinstance(taxonomy, str | Path):
        known: Known | None = known_from(Path(taxonomy), root, encoding, limits, language)
    elif taxonomy is None or isinstance(taxonomy, Known):
        known = taxonomy
    elif isinstance(taxonomy, Hierarchy):
        known = Known(taxonomy, {"hierarchy": "given"})
    else:
        raise TreelabelError(f"expected a taxonomy that is a file or a Hierarchy, found {describe_value(taxonomy)}")
    problems = Problems(file, on_error)
    options = ReadOptions(encoding, delimiter, header, quotes, None, limits, sheet)
    choice = ColumnChoice(text, labels, id, label_sep, lists, need_text, need_labels, group, usual=usual or {})
    reader = DocumentReader(file, choice, options, format, problems, progress=progress)

    def find_hierarchy() -> Known:
        if known is not None:
            return known
        within = None if reader.source is None else reader.source.hierarchy
        return _find_hierarchy(file, root, within, reader.keys, sep, options, language)

    return read_documents(reader, find_hierarchy, sep)


def read_documents(reader: DocumentReader, find_hierarchy: "Callable[[], Known]", sep: str | None) -> Dataset:
    """Read all documents of a reader.

    Parameters
    ----------
    reader
        A reader that has read nothing yet.
    find_hierarchy
        Finds the hierarchy, once all labels are known.
    sep
        The separator of paths.

    Returns
    -------
    Dataset
    """
    problems, batches = reader.problems, list(reader.batches())
    if reader.columns is None or reader.source is None or not batches:
        raise problems.nothing_left()
    known = find_hierarchy()
    hierarchy = known.hierarchy
    nodes = find_nodes(hierarchy, reader.keys, reader.key_lines, known.sep or sep, problems, known.sibling)
    if len(hierarchy) == 0:
        raise TreelabelError(f"{reader.path}: no label in the file can be used; give a taxonomy, or mend the labels")
    data, left_out = DocumentBatch.concat(batches).dataset(hierarchy, nodes)
    problems.skipped += left_out
    problems.conclude(len(data))
    choices = reader.columns.summary() | dict(reader.source.choices) | known.choices
    choice, options = reader.choice, reader.options
    how = {name: getattr(options, name) for name in ("encoding", "delimiter", "header", "quotes", "sheet")}
    how |= {"sep": known.sep or sep, "label_sep": choice.label_sep, "lists": choice.lists, "format": reader.format}
    reading = {name: value for name, value in (reader.columns.reading() | how).items() if value != _USUAL.get(name)}
    # Lines of several files, numbered through, are in none of them.
    lines = None if reader.source.files else data.lines
    return replace(data, choices=choices, group=choice.group, reading=reading, lines=lines)


class Known(NamedTuple):
    """A hierarchy, where it is from in words, the separator if guessed, and the sibling file that holds it, if any."""

    hierarchy: Hierarchy
    choices: dict[str, str]
    sep: str | None = None
    sibling: Path | None = None


def known_from(file: Path, root: str | None, encoding: str, limits: Limits, language: str = "en") -> Known:
    """Read the taxonomy of data.

    Parameters
    ----------
    file, root, encoding, limits, language
        As for `read_sibling_taxonomy`.

    Returns
    -------
    Known
    """
    hierarchy, form = read_sibling_taxonomy(file, root, encoding, limits, language)
    return Known(hierarchy, {"hierarchy": str(file), "taxonomy": form})


def find_nodes(
    hierarchy: Hierarchy,
    labels: Collection[Label],
    lines: Sequence[int],
    sep: str | None,
    problems: Problems,
    sibling: Path | None = None,
) -> IntArray:
    """Find the nodes of distinct labels.

    Parameters
    ----------
    hierarchy
        Where they are looked up.
    labels, lines
        The labels, and where each stands first.
    sep
        The separator of paths.
    problems
        Where unknown labels are reported.
    sibling
        The file of the hierarchy, if nobody named it: it may be that of other data, so paths must be those in it.

    Returns
    -------
    array of int32
        UNKNOWN for labels that are unknown and may be skipped, NO_LABEL for what stands where a label is missing.
    """
    nodes = np.full(len(labels), UNKNOWN, np.int32)
    are_paths = sibling is not None and _are_paths(labels, sep, hierarchy)
    for code, label in enumerate(labels):
        is_full = are_paths or (sibling is not None and _names(label)[-1].strip() not in hierarchy.ids_by_name)
        try:
            nodes[code] = find_label(hierarchy, label, sep, is_full)
        except UnknownLabelError as error:
            rest = without_missing(label)
            if rest != label:
                LOG.info("%s: the label %s is taken for a missing one", problems.file, quote(label))
                nodes[code] = find_label(hierarchy, rest, sep, is_full) if rest else NO_LABEL
                continue
            wrong = unprintable(_names(label))
            where = "" if sibling is None else f" (in {sibling}, beside the data; --taxonomy names one)"
            kind = TreelabelError if wrong else UnknownLabelError
            problems.report(lines[code], wrong or f"{error}{where}", kind)
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


def _names_of_all(labels: Iterable[Label]) -> list[str]:
    return [SEPARATOR.join(_names(label)) for label in labels]


def _names(label: Label) -> list[str]:
    return [label] if isinstance(label, str) else list(label)


def _find_hierarchy(
    file: Path,
    root: str | None,
    within: Hierarchy | None,
    labels: Collection[Label],
    sep: str | None,
    options: ReadOptions,
    language: str,
) -> Known:
    """Return the hierarchy in the file, or beside it, or made of the labels; and which of these it is."""
    if within is not None:
        return Known(within, {"hierarchy": "in the file"})
    sibling = find_sibling_taxonomy(file)
    if sibling is not None:
        known = known_from(sibling, root, options.encoding, options.limits, language)
        return known._replace(sibling=sibling)
    return hierarchy_of_labels(labels, sep, file)


def hierarchy_of_labels(labels: Collection[Label], sep: str | None, file: Path | str) -> Known:
    """Make a hierarchy of the labels themselves.

    Parameters
    ----------
    labels
        Distinct labels, in the order in which they become nodes.
    sep
        The separator of paths; None guesses whether there is one.
    file
        The file, for messages.

    Returns
    -------
    Known
    """
    if not labels:
        raise TreelabelError(f"{file}: no labels found and no taxonomy given; name the label column, or a taxonomy")
    # What cannot be a name is reported as an unknown label, with its line.
    usable = [label for key in labels if unprintable(_names(key)) is None and (label := without_missing(key))]
    if not usable and not any(map(without_missing, labels)):
        raise TreelabelError(f"{file}: all labels are {some(_names_of_all(labels))}, which stand for missing ones")
    texts = [key for key in usable if isinstance(key, str)]
    choices, guessed = {"hierarchy": MADE_OF_LABELS}, None
    if sep is None and (guessed := guess_separator(texts)) is not None:
        sep = guessed
        choices["separator"] = guessed
        if guessed != SEPARATOR:
            LOG.info("%s: labels are taken as paths separated by %r (--sep says otherwise)", file, guessed)
    if sep is None and len(texts) == len(usable):
        if texts and all(URI.fullmatch(text.strip()) for text in texts):
            return Known(Hierarchy.flat(texts).with_identifiers(texts), choices)
        offered = offer_separator(texts)
        if offered is not None:
            example = quote(next(text for text in texts if offered in text), 40)
            LOG.info("%s: labels such as %s look like paths; --sep '%s' reads them so", file, example, offered)
        return Known(Hierarchy.flat(texts), choices)
    paths = [
        (split_path(key, sep) if sep is not None else [key]) if isinstance(key, str) else list(key) for key in usable
    ]
    return Known(Hierarchy.from_paths(path for path in paths if all(path)), choices, guessed)
