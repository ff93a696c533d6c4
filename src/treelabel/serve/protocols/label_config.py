"""The labelling configuration of a project of Label Studio: which tag holds the labels, and where the text is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from xml.parsers import expat

from treelabel.core.errors import TreelabelError, quote

# Characters of a configuration (a tree of 50,000 labels has about 3 million), and how deep its tags are nested.
MOST_CHARACTERS = 8_000_000
DEEPEST = 1_000
# Tags whose regions are labels; the first that a configuration has is taken.
KINDS = ("Taxonomy", "Choices")

Names = tuple[str, ...]


@dataclass(frozen=True)
class LabelConfig:
    """The tag of the labels and what it allows.

    Parameters
    ----------
    kind
        "taxonomy" or "choices", as regions have it.
    from_name, to_name
        The names of the tag and of that of the text.
    key
        The field of a task's data that has the text.
    written
        How each label is written in regions, by its names from the top; empty where the app loads the labels from
        elsewhere, so that every label is allowed.
    most
        How many labels a region may have; None: any number.
    leaves_only
        Whether labels that have others below them cannot be chosen.
    """

    kind: str
    from_name: str
    to_name: str
    key: str
    written: Mapping[Names, Names] = field(default_factory=dict)
    most: int | None = None
    leaves_only: bool = False

    def write(self, names: Sequence[str]) -> Names | None:
        """Write the nearest label to a path that the project has: itself, or one above it; None if it has none.

        >>> config = LabelConfig("taxonomy", "labels", "text", "text", {("A",): ("A",), ("A", "B"): ("A", "b")})
        >>> config.write(["A", "B", "C"]), config.write(["D"])
        (('A', 'b'), None)
        """
        if self.kind == "choices":
            chosen = next(((name,) for name in reversed(names) if not self.written or (name,) in self.written), None)
            return None if chosen is None else self.written.get(chosen, chosen)
        if not self.written:
            return tuple(names)
        prefixes = (tuple(names[:size]) for size in range(len(names), 0, -1))
        nearest = next((prefix for prefix in prefixes if prefix in self.written), None)
        is_inner = self.leaves_only and nearest in self._inner
        return None if nearest is None or is_inner else self.written[nearest]

    def read(self, written: Sequence[str]) -> list[str]:
        """Return the names of a label as a region has it: an alias stands for its label."""
        return list(self._names.get(tuple(written), tuple(written)))

    @cached_property
    def _names(self) -> Mapping[Names, Names]:
        return {written: names for names, written in self.written.items() if names != written}

    @cached_property
    def _inner(self) -> frozenset[Names]:
        return frozenset(names[:-1] for names in self.written)


@lru_cache(8)
def read_label_config(xml: str) -> LabelConfig:
    """Read a configuration; entities and other declarations are refused, and so is what no text can be labelled with.

    >>> taxonomy = '<Taxonomy name="l" toName="t"><Choice value="A"/></Taxonomy>'
    >>> read_label_config(f'<View><Text name="t" value="$body"/>{taxonomy}</View>')
    LabelConfig(kind='taxonomy', from_name='l', to_name='t', key='body', written={('A',): ('A',)}, most=None,
    leaves_only=False)
    """
    if len(xml) > MOST_CHARACTERS:
        raise TreelabelError(f"label config: {len(xml):,} characters; at most {MOST_CHARACTERS:,} are read")
    reader = _TagReader()
    parser = expat.ParserCreate()
    parser.StartDoctypeDeclHandler = _refuse_declaration
    parser.StartElementHandler = reader.begin
    parser.EndElementHandler = reader.end
    try:
        parser.Parse(xml, True)
    except expat.ExpatError as error:
        raise TreelabelError(f"label config: not XML: {error}") from None
    return reader.config()


def _refuse_declaration(*_: object) -> None:
    raise TreelabelError("label config: a document type is declared, which is not read; remove it")


class _TagReader:
    """Follows the tags of a configuration."""

    def __init__(self) -> None:
        self._objects: dict[str, dict[str, str]] = {}
        self._controls: list[tuple[str, dict[str, str], dict[Names, Names]]] = []
        # For each open tag: the label that is open there, by its names and as it is written.
        self._open: list[tuple[Names, Names]] = []

    def begin(self, tag: str, attributes: dict[str, str]) -> None:
        """Enter a tag."""
        if len(self._open) >= DEEPEST:
            raise TreelabelError(f"label config: tags are nested deeper than {DEEPEST:,}")
        names, written = self._open[-1] if self._open else ((), ())
        if tag in KINDS:
            self._controls.append((tag, attributes, {}))
            names, written = (), ()
        elif tag == "Choice" and self._controls and "value" in attributes:
            value = attributes["value"]
            names, written = (*names, value), (*written, attributes.get("alias") or value)
            self._controls[-1][2][names] = written
        elif "name" in attributes and attributes.get("value", "").startswith("$"):
            self._objects[attributes["name"]] = attributes
        self._open.append((names, written))

    def end(self, tag: str) -> None:
        """Leave a tag."""
        self._open.pop()

    def config(self) -> LabelConfig:
        """Return the configuration by the first tag of the preferred kind."""
        usable = [each for each in self._controls if self._object_of(each[1]) is not None and each[1].get("name")]
        if not usable:
            raise TreelabelError(
                "label config: expected a Taxonomy or Choices with name and toName, and the Text that it labels with "
                'name and value="$..."'
            )
        tag, attributes, written = min(usable, key=lambda each: KINDS.index(each[0]))
        labelled = self._object_of(attributes) or {}
        if labelled.get("valueType") == "url":
            raise TreelabelError(
                f"label config: {quote(labelled['name'])} has valueType url: no address is opened here"
            )
        is_single = tag == "Choices" and attributes.get("choice", "single") != "multiple"
        usages = attributes.get("maxUsages", "")
        return LabelConfig(
            kind=tag.lower(),
            from_name=attributes["name"],
            to_name=labelled["name"],
            key=labelled["value"].removeprefix("$"),
            written=written,
            most=1 if is_single else int(usages) if usages.isascii() and usages.isdigit() and len(usages) < 9 else None,
            leaves_only=attributes.get("leafsOnly", "").lower() == "true",
        )

    def _object_of(self, attributes: dict[str, str]) -> dict[str, str] | None:
        return self._objects.get(attributes.get("toName", "").partition(",")[0].strip())
