"""Taxonomy files by format: tables of edges, paths or levels, lists of paths, nested JSON, SKOS."""

import csv
import json
from collections.abc import Callable, Iterable, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

from treelabel.core.atomic_output import open_output
from treelabel.core.errors import TreelabelError, locate_errors, quote
from treelabel.core.inputs import existing_file, numbered_lines, open_input, suffixes, whole_lines
from treelabel.core.json_text import JsonLimitError, parse_json
from treelabel.core.limits import DEFAULT_LIMITS, Limits
from treelabel.data.columns import require_printable, unprintable
from treelabel.data.io.excel import write_sheet
from treelabel.data.taxonomy.skos import RDF_FORMATS, read_skos, write_skos
from treelabel.data.taxonomy.taxonomy_columns import separator_of
from treelabel.data.taxonomy.taxonomy_tables import TaxonomyFormat, TaxonomyOptions, read_table
from treelabel.hierarchy.edges import ROOT_NAMES
from treelabel.hierarchy.hierarchy import SEPARATOR, Hierarchy, split_path
from treelabel.hierarchy.hierarchy_json import hierarchy_from_json, hierarchy_to_json
from treelabel.hierarchy.label_ids import with_uris

ENDINGS: dict[str, TaxonomyFormat] = {
    ".tsv": "edges",
    ".tab": "edges",
    ".taxonomy": "edges",
    ".csv": "edges",
    ".xlsx": "edges",
    ".txt": "paths",
    ".json": "json",
    ".ttl": "skos",
    ".rdf": "skos",
    ".xml": "skos",
    ".nt": "skos",
    ".jsonld": "skos",
}


def read_taxonomy(
    path: str | Path,
    format: TaxonomyFormat | None = None,  # noqa: A002  what users call it
    root: str | None = None,
    tree: bool = False,
    sep: str | None = None,
    language: str = "en",
    encoding: str = "utf-8",
    limits: Limits = DEFAULT_LIMITS,
    sheet: str | None = None,
) -> Hierarchy:
    """Read a hierarchy from a file.

    - edges (.tsv, .csv, .taxonomy, .xlsx): a line is a parent and its child, or its children; a name alone is a label
      at the top. With a header, columns are recognised by their names in any order and case, whatever others there
      are: parent and child, id, parent_id and name, a full path, or one column a level (level1, level2, ...). A
      vocabulary of Annif (a URI and its label on each line, or columns uri and label_en) is one level of labels.
      Columns uri and notation are kept as `Hierarchy.identifiers`, as the URIs and notations of SKOS are.
    - paths (.txt): a line is a full path, parts separated by `sep`; lines with # are comments.
    - json: nested dicts or lists, {"name", "children"} objects, or treelabel's own form.
    - skos (.ttl, .rdf): broader and narrower between concepts, named by their preferred label in `language`.

    Lines may end as on any system. Names with control characters are refused (see
    `treelabel.data.columns`), except in treelabel's own JSON, which holds any hierarchy.

    Parameters
    ----------
    path : str or Path
        The file, which may be compressed.
    format : "edges", "paths", "json", "skos" or "vocabulary" (that of Annif), optional
        By default by the ending of the file.
    root : str, optional
        The node that stands for the root: see `Hierarchy.from_edges`.
    tree : bool
        Whether to refuse labels with several parents.
    sep : str, optional
        The separator of paths; by default " > " if it occurs, else guessed (see `guess_separator`).
    language : str
        The language of preferred labels in SKOS, and of labels in a vocabulary of Annif.
    encoding : str
        As Python calls it; a byte order mark goes first.
    limits : Limits
        The resources that reading may take.
    sheet : str, optional
        The sheet of an .xlsx file, by name or number; by default the first.

    Returns
    -------
    Hierarchy
    """
    options = TaxonomyOptions(format, root, tree, sep, language, encoding, limits, sheet)
    return read_with_summary(path, options)[0]


def read_with_summary(path: str | Path, options: TaxonomyOptions) -> tuple[Hierarchy, str]:
    """Read a hierarchy, and say in words what was recognised in the file."""
    file = existing_file(path)
    kind = options.format or ENDINGS.get(suffixes(file)[0])
    # Makers of hierarchies do not know the file of what they refuse.
    with locate_errors(file):
        if kind in ("edges", "vocabulary"):
            return read_table(file, options)
        if kind == "paths":
            return _read_paths(file, options)
        if kind == "json":
            return _read_json(file, options), "nested JSON"
        if kind == "skos":
            return read_skos(file, options.language, options.tree, options.limits), "SKOS"
    raise TreelabelError(f"{file}: cannot tell the taxonomy's format by its ending; known are {', '.join(ENDINGS)}")


def _read_paths(file: Path, options: TaxonomyOptions) -> tuple[Hierarchy, str]:
    numbered = numbered_lines(file, options.encoding, options.limits)
    lines = [(number, line) for number, line in numbered if not line.startswith("#")]
    sep = separator_of([line for _, line in lines], options.sep)
    paths = []
    for number, line in lines:
        path = split_path(line, sep)
        if not all(path):
            raise TreelabelError(f"{file}:{number}: empty name in the path {quote(line)}")
        require_printable(path, f"{file}:{number}")
        paths.append(path)
    if not paths:
        raise TreelabelError(f"{file}: no paths; expected lines such as 'A{sep}B{sep}C'")
    return Hierarchy.from_paths(paths), f"a path on each line, separated by {sep!r}"


def _read_json(file: Path, options: TaxonomyOptions) -> Hierarchy:
    with open_input(file, limits=options.limits) as stream:
        text = "".join(whole_lines(stream, file, options.encoding, options.limits))
    try:
        nested: Any = parse_json(text, options.limits)
    except json.JSONDecodeError as error:
        raise TreelabelError(f"{file}:{error.lineno}: not valid JSON: {error.msg}") from error
    except JsonLimitError as error:
        raise TreelabelError(f"{file}: {error}; store the taxonomy as edges (.tsv)") from None
    if isinstance(nested, dict) and "treelabel_hierarchy" in nested:
        hierarchy = hierarchy_from_json(text, str(file))
        # Asking for the parents refuses a DAG.
        _ = hierarchy.parent if options.tree else None
        return hierarchy
    hierarchy = Hierarchy.from_nested(nested, options.root)
    require_printable(hierarchy.names, file)
    if len(hierarchy) == 0:
        raise TreelabelError(f"{file}: no labels in the JSON")
    return hierarchy


def write_taxonomy(
    hierarchy: Hierarchy,
    path: str | Path,
    format: TaxonomyFormat | None = None,  # noqa: A002  what users call it
    language: str = "en",
) -> None:
    """Write a hierarchy to a file.

    Parameters
    ----------
    hierarchy : Hierarchy
        Edges hold those whose names are unique, with URIs and notations; paths hold trees; SKOS gives every label a URI
        (see `with_uris`); JSON holds any.
    path : str or Path
        The ending tells the format: edges (.tsv, .taxonomy, .csv, .xlsx), paths (.txt), treelabel's own JSON (.json),
        or SKOS (.ttl, .rdf, .nt, .jsonld).
    format : "vocabulary", optional
        Writes the labels of a .tsv or .csv file as Annif's vocabulary, without edges.
    language : str
        The language of labels in SKOS and in a vocabulary.
    """
    target = Path(path)
    writers: dict[str, Callable[[Hierarchy], str]] = {
        ".tsv": lambda h: _tsv_text(_rows(h)),
        ".taxonomy": lambda h: _tsv_text(_rows(h)),
        ".csv": lambda h: _csv_text(_rows(h, header=True)),
        ".txt": _path_text,
        ".json": lambda h: hierarchy_to_json(h) + "\n",
    }
    ending = suffixes(target)[0]
    if ending == ".xlsx":
        write_sheet(target, map(list, _rows(hierarchy, header=True)), "taxonomy")
        return
    if ending in RDF_FORMATS:
        write_skos(hierarchy, target, language)
        return
    if format == "vocabulary":
        writers = {
            ".tsv": lambda h: _tsv_text(_vocabulary(h)),
            ".csv": lambda h: _csv_text([("uri", f"label_{language}", "notation"), *_vocabulary(h, "")]),
        }
    if ending not in writers:
        known = ", ".join([*writers, ".xlsx", *RDF_FORMATS])
        raise TreelabelError(f"{target}: cannot write a taxonomy with this ending; choose one of {known}")
    text = writers[ending](hierarchy)
    with open_output(target) as stream:
        stream.write(text.encode())


def _edges(hierarchy: Hierarchy) -> list[tuple[str, str]]:
    """List the edges, with a name for the root that no label has."""
    if not writable_as_edges(hierarchy):
        raise TreelabelError(
            "edges cannot hold this hierarchy: two labels share a name, or a name has a tab; use .json"
        )
    names = {name.lower() for name in hierarchy.names}
    return hierarchy.edges(next(name for name in ("Root", *ROOT_NAMES) if name.lower() not in names))


def _rows(hierarchy: Hierarchy, header: bool = False) -> list[tuple[str, ...]]:
    """List the edges, and the URI and notation of each child below a header if there are any."""
    edges: list[tuple[str, ...]] = [*_edges(hierarchy)]
    if hierarchy.identifiers is None:
        return [("parent", "child"), *edges] if header else edges
    listed = hierarchy.identifiers.take(hierarchy.edge_child)
    columns = listed.uris.fill_null("").to_pylist(), listed.notations.fill_null("").to_pylist()
    further = zip(edges, *columns, strict=True)
    return [("parent", "child", "uri", "notation"), *((*edge, uri, notation) for edge, uri, notation in further)]


def _vocabulary(hierarchy: Hierarchy, bracket: str = "<") -> list[tuple[str, ...]]:
    """List the URI, the name and the notation of every label."""
    if not writable_as_edges(hierarchy):
        raise TreelabelError("a vocabulary cannot hold these labels: two share a name, or a name has a tab; use .ttl")
    h = with_uris(hierarchy)
    assert h.identifiers is not None
    columns = h.identifiers.uris.to_pylist(), h.names, h.identifiers.notations.fill_null("").to_pylist()
    close = ">" if bracket else ""
    return [(f"{bracket}{uri}{close}", name, notation) for uri, name, notation in zip(*columns, strict=True)]


def _tsv_text(rows: Iterable[Sequence[str]]) -> str:
    return "".join("\t".join(row).rstrip("\t") + "\n" for row in rows)


def _csv_text(rows: Iterable[Sequence[str]]) -> str:
    buffer = StringIO()
    csv.writer(buffer, lineterminator="\n").writerows(rows)
    return buffer.getvalue()


def _path_text(hierarchy: Hierarchy) -> str:
    # Asking for the parents refuses a DAG.
    _ = hierarchy.parent
    lines = hierarchy.paths()
    for node, line in enumerate(lines):
        if split_path(line, SEPARATOR) != hierarchy.path_names(node) or unprintable([line]) or line.startswith("#"):
            raise TreelabelError(
                f"paths cannot hold this hierarchy: in {quote(line)} a name contains {SEPARATOR!r} or a "
                "control character, or begins with # or a space; use .json"
            )
    return "".join(f"{line}\n" for line in lines)


def writable_as_edges(hierarchy: Hierarchy) -> bool:
    """Return whether every name stands for one node and fits on a line between tabs, as `read_taxonomy` takes it."""
    fits = all(name == name.strip() for name in hierarchy.names) and unprintable(hierarchy.names) is None
    return fits and hierarchy.has_unique_names
