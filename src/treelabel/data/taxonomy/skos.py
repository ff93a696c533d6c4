"""SKOS vocabularies (Turtle, RDF/XML): concepts, broader and narrower, preferred labels. Needs the extra `skos`."""

import re
from collections import Counter
from pathlib import Path
from typing import Any

from treelabel.core.errors import TreelabelError, require_extra
from treelabel.core.inputs import existing_file, open_input, suffixes
from treelabel.core.limits import DEFAULT_LIMITS, Limits
from treelabel.data.taxonomy.label_characters import require_printable
from treelabel.data.taxonomy.skos_safety import check_contexts, check_strings, check_xml
from treelabel.hierarchy.hierarchy import Hierarchy

LINE_BREAK = re.compile(r"[ \t]*[\t\r\n]\s*")
RDF_FORMATS = {".ttl": "turtle", ".rdf": "xml", ".xml": "xml", ".nt": "nt", ".jsonld": "json-ld"}
CHECKS = {"xml": check_xml, "json-ld": check_contexts, "turtle": check_strings, "nt": check_strings}


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
    return Hierarchy.from_edges(edges, root="", nodes=[names[concept] for concept in ordered], tree=tree)


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
        CHECKS[kind](file, limits)
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
    names = {concept: _label(graph, concept, language) or _code(graph, concept) for concept in concepts}
    count = Counter(names.values())
    unique = {
        concept: name if count[name] == 1 else f"{name} [{_code(graph, concept)}]" for concept, name in names.items()
    }
    again = Counter(unique.values())
    return {concept: name if again[name] == 1 else f"{name} <{concept}>" for concept, name in unique.items()}


def _label(graph: Any, concept: Any, language: str) -> str | None:
    from rdflib import SKOS

    labels = sorted(graph.objects(concept, SKOS.prefLabel), key=lambda label: (label.language != language, str(label)))
    # XML may wrap a label over several lines.
    return LINE_BREAK.sub(" ", str(labels[0]).strip()) or None if labels else None


def _code(graph: Any, concept: Any) -> str:
    from rdflib import SKOS

    notation = graph.value(concept, SKOS.notation)
    return str(notation) if notation is not None else str(concept).rstrip("/#").replace("#", "/").rpartition("/")[2]
