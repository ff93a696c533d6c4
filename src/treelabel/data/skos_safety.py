"""Checks of vocabularies: they must not grow by entities that refer to entities, or fetch anything."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.parsers import expat

from treelabel.core.errors import TreelabelError, quoted
from treelabel.core.inputs import PIECE, open_input, whole_lines
from treelabel.core.json_text import JsonLimitError, parse_json
from treelabel.core.limits import Limits

# Entities in RDF/XML stand for namespaces, and are as long as those.
LONGEST_ENTITY = 1000


class _RootReached(Exception):  # noqa: N818  no error, but how to stop the parser
    """Declarations are over where the first element begins."""


def check_entities(file: Path, limits: Limits) -> None:
    """Refuse XML with entities that are long, refer to others, or stand for what is elsewhere.

    Parameters
    ----------
    file
        An XML file.
    limits
        How large it may be.
    """

    def declared(name: str, is_parameter: bool, value: str | None, *_: Any) -> None:
        if is_parameter or value is None or "&" in value or "%" in value or len(value) > LONGEST_ENTITY:
            raise TreelabelError(
                f"{file}: declares the entity {quoted(name)}, which is long, or refers to another entity or file; "
                "replace it by what it stands for"
            )

    def begins(*_: Any) -> None:
        raise _RootReached

    parser = expat.ParserCreate()
    parser.EntityDeclHandler = declared
    parser.StartElementHandler = begins
    try:
        with open_input(file, limits=limits, whole=True) as stream:
            while piece := stream.read(PIECE):
                parser.Parse(piece, False)
    except (_RootReached, expat.ExpatError):
        # What is not XML is for the reader proper to say.
        return


def check_contexts(file: Path, limits: Limits) -> None:
    """Refuse JSON-LD whose context is elsewhere: reading a file fetches nothing.

    Parameters
    ----------
    file
        A JSON-LD file.
    limits
        How large it may be.
    """
    with open_input(file, limits=limits) as stream:
        text = "".join(whole_lines(stream, file, "utf-8", limits))
    try:
        value = parse_json(text, limits)
    except json.JSONDecodeError as error:
        raise TreelabelError(f"{file}:{error.lineno}: not valid JSON: {error.msg}") from error
    except JsonLimitError as error:
        raise TreelabelError(f"{file}: {error}") from error
    for context in _contexts(value):
        if isinstance(context, str):
            raise TreelabelError(
                f"{file}: takes its context from {quoted(context)}; put the context itself into the file"
            )


def _contexts(value: Any) -> Iterator[Any]:
    """Find everything that is given as a context, in a list of contexts or alone, at any depth."""
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            for key, below in each.items():
                if key in ("@context", "@import"):
                    yield from below if isinstance(below, list) else [below]
                waiting.append(below)
        elif isinstance(each, list):
            waiting.extend(each)
