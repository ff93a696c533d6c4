"""SKOS vocabularies (Turtle, RDF/XML): concepts, broader and narrower, preferred labels. Needs the extra `skos`.

A vocabulary must not grow by entities, take a parser for minutes, or fetch anything: that is checked first.
"""

import json
import re
from contextlib import suppress
from pathlib import Path
from typing import Any
from xml.parsers import expat

from treelabel.core.atomic_output import open_output
from treelabel.core.errors import TreelabelError, quote, require_extra
from treelabel.core.inputs import PIECE, existing_file, open_input, suffixes, whole_lines
from treelabel.core.json_text import JsonLimitError, parse_json
from treelabel.core.limits import DEFAULT_LIMITS, Limits
from treelabel.data.columns import require_printable
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.identifiers import distinct_names, uri_end
from treelabel.hierarchy.label_ids import with_uris

LINE_BREAK = re.compile(r"[ \t]*[\t\r\n]\s*")
RDF_FORMATS = {".ttl": "turtle", ".rdf": "xml", ".xml": "xml", ".nt": "nt", ".jsonld": "json-ld"}
# Entities in RDF/XML stand for namespaces, and are as long as those.
LONGEST_ENTITY = 1000
# A text in Turtle or N-Triples, and what may hold quotes and is none.
STRINGS = re.compile(
    r"<[^<>\s]*>|#[^\n]*"
    r'|"""(?:[^"\\]|\\.|"(?!""))*+"""|"(?:[^"\\\n]|\\.)*+"'
    r"|'''(?:[^'\\]|\\.|'(?!''))*+'''|'(?:[^'\\\n]|\\.)*+'",
    re.DOTALL,
)


def read_skos(file: Path, language: str = "en", tree: bool = False, limits: Limits = DEFAULT_LIMITS) -> Hierarchy:
    """Make a hierarchy of a vocabulary's concepts.

    A concept is named by its preferred label in `language`, else in any language, else by its notation or the end of
    its address. Where two share a name, the notation (or the end of the address) follows in brackets.

    Parameters
    ----------
    file
        RDF/XML, Turtle, N-Triples or JSON-LD, by its ending.
    language
        The language of the names.
    tree
        Whether a concept with several broader ones is refused.
    limits
        How large the file may be.

    Returns
    -------
    Hierarchy
    """
    with require_extra("skos", "reading SKOS"):
        graph, narrower, concepts = _read(file, limits)
    names = _names(graph, concepts, language)
    # Sorted, because a graph has no order and the same file must give the same hierarchy.
    ordered = sorted(concepts, key=lambda concept: (_code(graph, concept), str(concept)))
    rank = {concept: index for index, concept in enumerate(ordered)}
    pairs = sorted(narrower, key=lambda pair: (rank[pair[0]], rank[pair[1]]))
    edges = [(names[above], names[below]) for above, below in pairs]
    require_printable(names.values(), file)
    h = Hierarchy.from_edges(edges, root="", nodes=[names[concept] for concept in ordered], tree=tree)
    concept_of = {name: concept for concept, name in names.items()}
    return h.with_identifiers(*zip(*(_identifiers(graph, concept_of[name]) for name in h.names), strict=True))


def _identifiers(graph: Any, concept: Any) -> tuple[str | None, str | None]:
    """Return the URI and the notation of a concept; a blank node has no URI that anybody else knows."""
    from rdflib import SKOS, BNode

    notation = graph.value(concept, SKOS.notation)
    return None if isinstance(concept, BNode) else str(concept), None if notation is None else str(notation)


def write_skos(hierarchy: Hierarchy, target: Path, language: str = "en") -> None:
    """Write a hierarchy as a SKOS vocabulary: concepts with broader and preferred labels, and notations.

    Parameters
    ----------
    hierarchy
        A label without a URI gets one (see `with_uris`).
    target
        RDF/XML, Turtle, N-Triples or JSON-LD, by its ending.
    language
        The language of the labels.
    """
    with require_extra("skos", "writing SKOS"):
        from rdflib import RDF, SKOS, Graph, Literal, URIRef
    graph, h = Graph(), with_uris(hierarchy)
    assert h.identifiers is not None
    graph.bind("skos", SKOS)
    concepts = [URIRef(uri) for uri in h.identifiers.uris.to_pylist()]
    scheme = URIRef("urn:treelabel:scheme")
    graph.add((scheme, RDF.type, SKOS.ConceptScheme))
    for concept, name, notation in zip(concepts, h.names, h.identifiers.notations.to_pylist(), strict=True):
        graph.add((concept, RDF.type, SKOS.Concept))
        graph.add((concept, SKOS.inScheme, scheme))
        graph.add((concept, SKOS.prefLabel, Literal(name, lang=language)))
        if notation is not None:
            graph.add((concept, SKOS.notation, Literal(notation)))
    for above, below in zip(h.parent_idx.tolist(), h.edge_child.tolist(), strict=True):
        link = (SKOS.topConceptOf, scheme) if above < 0 else (SKOS.broader, concepts[above])
        graph.add((concepts[below], *link))
    with open_output(target) as stream:
        stream.write(graph.serialize(format=RDF_FORMATS[suffixes(target)[0]], encoding="utf-8"))


def read_alternative_names(path: str | Path, language: str = "en", limits: Limits = DEFAULT_LIMITS) -> dict[str, str]:
    """Read the alternative names of a vocabulary's concepts (altLabel, hiddenLabel), for `descriptions` of models.

    Parameters
    ----------
    path
        RDF/XML, Turtle, N-Triples or JSON-LD, by its ending.
    language
        The language of the names; those without a language are taken too.
    limits
        How large the file may be.

    Returns
    -------
    dict
        By the name that `read_taxonomy` gives a concept: its alternative names, separated by semicolons. Concepts
        without any are left out.
    """
    with require_extra("skos", "reading SKOS"):
        from rdflib import SKOS

        graph, _, concepts = _read(existing_file(path), limits)
    alternatives: dict[str, str] = {}
    for concept, name in _names(graph, concepts, language).items():
        labels = [*graph.objects(concept, SKOS.altLabel), *graph.objects(concept, SKOS.hiddenLabel)]
        others = {" ".join(str(label).split()) for label in labels if label.language in (language, None)} - {"", name}
        if others:
            alternatives[name] = "; ".join(sorted(others))
    return dict(sorted(alternatives.items()))


def _read(file: Path, limits: Limits) -> tuple[Any, set[tuple[Any, Any]], set[Any]]:
    """Read a vocabulary: its graph, the pairs of broader and narrower concepts, and all concepts."""
    from rdflib import RDF, SKOS, Graph

    graph, kind = Graph(), RDF_FORMATS.get(suffixes(file)[0], "turtle")
    try:
        check = {"xml": _check_xml, "json-ld": _check_contexts}.get(kind, _check_strings)
        check(file, limits)
        with open_input(file, limits=limits, whole=True) as stream:
            graph.parse(stream, format=kind, publicID=file.absolute().as_uri())
    except TreelabelError:
        raise
    except Exception as error:  # parsers of RDF raise exceptions that share no base
        raise TreelabelError(
            f"{file}: not a vocabulary that can be read: {' '.join(str(error).split())[:200]}"
        ) from error
    narrower = {(above, below) for above, below in graph.subject_objects(SKOS.narrower)}
    narrower |= {(above, below) for below, above in graph.subject_objects(SKOS.broader)}
    concepts = set(graph.subjects(RDF.type, SKOS.Concept)) | {end for pair in narrower for end in pair}
    if not concepts:
        raise TreelabelError(f"{file}: no skos:Concept in the file")
    return graph, narrower, concepts


def _names(graph: Any, concepts: set[Any], language: str) -> dict[Any, str]:
    listed = list(concepts)
    codes = [_code(graph, concept) for concept in listed]
    names = [_label(graph, concept, language) or code for concept, code in zip(listed, codes, strict=True)]
    return dict(zip(listed, distinct_names(names, codes, list(map(str, listed))), strict=True))


def _label(graph: Any, concept: Any, language: str) -> str | None:
    from rdflib import SKOS

    labels = sorted(graph.objects(concept, SKOS.prefLabel), key=lambda label: (label.language != language, str(label)))
    # XML may wrap a label over several lines.
    return LINE_BREAK.sub(" ", str(labels[0]).strip()) or None if labels else None


def _code(graph: Any, concept: Any) -> str:
    from rdflib import SKOS

    notation = graph.value(concept, SKOS.notation)
    return str(notation) if notation is not None else uri_end(str(concept))


# Checks before a vocabulary is read


def _check_xml(file: Path, limits: Limits) -> None:
    """Refuse XML with entities that are long, refer to others, or stand for what is elsewhere, or beyond the limits."""

    def check_entity(name: str, is_parameter: bool, value: str | None, *_: Any) -> None:
        if is_parameter or value is None or "&" in value or "%" in value or len(value) > LONGEST_ENTITY:
            raise TreelabelError(
                f"{file}: declares the entity {quote(name)}, which is long, or refers to another entity or file; "
                "replace it by what it stands for"
            )

    elements = _Elements(file, limits)
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.EntityDeclHandler = check_entity
    parser.StartElementHandler = elements.begin
    parser.EndElementHandler = elements.end
    parser.CharacterDataHandler = elements.text
    # What is not XML is for the reader proper to say.
    with suppress(expat.ExpatError), open_input(file, limits=limits, whole=True) as stream:
        while piece := stream.read(PIECE):
            parser.Parse(piece, False)


class _Elements:
    """Follows the elements of RDF/XML: how deep they are nested, and how long the text is that they are read into."""

    def __init__(self, file: Path, limits: Limits) -> None:
        self._file, self._limits = file, limits
        self._depth = self._size = 0
        # Where an element begins that is taken as a text, with all elements in it.
        self._literal: int | None = None

    def begin(self, name: str, attributes: dict[str, str]) -> None:
        """Enter an element."""
        self._depth += 1
        if self._limits.exceeds("nesting", self._depth):
            raise TreelabelError(
                f"{self._file}: elements are nested deeper than {self._depth - 1:,}; {self._limits.hint('nesting')}"
            )
        if self._literal is not None:
            self._add(2 * len(name))
        elif any(key.endswith("parseType") and value == "Literal" for key, value in attributes.items()):
            self._literal = self._depth

    def end(self, _: str) -> None:
        """Leave an element."""
        if self._literal in (None, self._depth):
            self._literal, self._size = None, 0
        self._depth -= 1

    def text(self, text: str) -> None:
        """Take a piece of text, entities replaced by what they stand for."""
        self._add(len(text))

    def _add(self, characters: int) -> None:
        self._size += characters
        if self._limits.exceeds("literal", self._size):
            raise _too_long(self._file, self._limits)


def _too_long(file: Path, limits: Limits) -> TreelabelError:
    """Make the error for a text that takes too long to read."""
    return TreelabelError(f"{file}: holds a text that is too long for a name; {limits.hint('literal')}")


def _check_strings(file: Path, limits: Limits) -> None:
    """Refuse Turtle or N-Triples with a text beyond the limit."""
    with open_input(file, limits=limits, whole=True) as stream:
        text = stream.read().decode("utf-8", "replace")
    texts = (match[0] for match in STRINGS.finditer(text) if match[0][0] not in "<#")
    if any(limits.exceeds("literal", len(each)) for each in texts):
        raise _too_long(file, limits)


def _check_contexts(file: Path, limits: Limits) -> None:
    """Refuse JSON-LD whose context is elsewhere: reading a file fetches nothing."""
    with open_input(file, limits=limits) as stream:
        text = "".join(whole_lines(stream, file, "utf-8", limits))
    try:
        waiting = [parse_json(text, limits)]
    except json.JSONDecodeError as error:
        raise TreelabelError(f"{file}:{error.lineno}: not valid JSON: {error.msg}") from error
    except JsonLimitError as error:
        raise TreelabelError(f"{file}: {error}") from error
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            contexts = [each.get("@context"), each.get("@import")]
            listed = [part for below in contexts for part in (below if isinstance(below, list) else [below])]
            remote = next((part for part in listed if isinstance(part, str)), None)
            if remote is not None:
                raise TreelabelError(
                    f"{file}: takes its context from {quote(remote)}; put the context itself into the file"
                )
            waiting.extend(each.values())
        elif isinstance(each, list):
            waiting.extend(each)
