"""Checks of vocabularies: they must not grow by entities, take a parser for minutes, or fetch anything."""

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from xml.parsers import expat

from treelabel.core.errors import TreelabelError, quote
from treelabel.core.inputs import PIECE, open_input, whole_lines
from treelabel.core.json_text import JsonLimitError, parse_json
from treelabel.core.limits import Limits

# Entities in RDF/XML stand for namespaces, and are as long as those.
LONGEST_ENTITY = 1000
# A text in Turtle or N-Triples, and what may hold quotes and is none.
STRINGS = re.compile(
    r"<[^<>\s]*>|#[^\n]*"
    r'|"""(?:[^"\\]|\\.|"(?!""))*+"""|"(?:[^"\\\n]|\\.)*+"'
    r"|'''(?:[^'\\]|\\.|'(?!''))*+'''|'(?:[^'\\\n]|\\.)*+'",
    re.DOTALL,
)


def check_xml(file: Path, limits: Limits) -> None:
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


def check_strings(file: Path, limits: Limits) -> None:
    """Refuse Turtle or N-Triples with a text beyond the limit."""
    with open_input(file, limits=limits, whole=True) as stream:
        text = stream.read().decode("utf-8", "replace")
    texts = (match[0] for match in STRINGS.finditer(text) if match[0][0] not in "<#")
    if any(limits.exceeds("literal", len(each)) for each in texts):
        raise _too_long(file, limits)


def check_contexts(file: Path, limits: Limits) -> None:
    """Refuse JSON-LD whose context is elsewhere: reading a file fetches nothing."""
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
                f"{file}: takes its context from {quote(context)}; put the context itself into the file"
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
