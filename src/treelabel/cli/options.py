"""Options that many commands share, written once: how to read a data file."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from treelabel.cli.printing import print_note
from treelabel.core.errors import TreelabelError, quote

if TYPE_CHECKING:
    from treelabel.core.limits import Limits
    from treelabel.data.dataset import Dataset
    from treelabel.hierarchy.hierarchy import Hierarchy
    from treelabel.models.base import Model

ForceOption = Annotated[bool, typer.Option("--force", help="Replace what exists already.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for a program to read.")]
RawOption = Annotated[
    bool, typer.Option("--raw", help="Write CSV cells as they are, even what a spreadsheet would run as a formula.")
]
SeedOption = Annotated[int, typer.Option(min=0, help="Seed of the random numbers.")]
SignatureOption = Annotated[
    Path | None,
    typer.Option(
        metavar="KEY", help="Refuse a model that is not signed with this public key (a PEM file, or a folder of them)."
    ),
]
ToFormatOption = Annotated[str | None, typer.Option(help="Format of the output (default: by its ending).")]

TrainArgument = Annotated[Path, typer.Argument(metavar="TRAIN", help="Data file with texts and labels.")]
TruthArgument = Annotated[Path, typer.Argument(metavar="TRUTH", help="Data file with the true labels.")]
TextsArgument = Annotated[
    Path,
    typer.Argument(
        metavar="TEXTS",
        help="Data file with texts, or a pattern in quotes (labels are ignored); - for standard input.",
    ),
]
FrequenciesOption = Annotated[Path | None, typer.Option(help="Training file, for the frequencies of labels.")]

ModelArgument = Annotated[Path, typer.Argument(metavar="MODEL", help="Model folder that fit wrote.")]
ModelOption = Annotated[str, typer.Option(help="Model; treelabel models lists them.")]
SetOption = Annotated[list[str] | None, typer.Option(help="A setting of the model, as C=1 (repeat).")]

RULE_HELP = "Decision rule for scores, such as optimal:hf1 or threshold@0.3, or a file that tune wrote"
MetricsOption = Annotated[
    str | None, typer.Option(help="Metrics, comma-separated; 'all' for all that apply (see treelabel metrics).")
]
JudgedRuleOption = Annotated[
    str | None, typer.Option(help=f"{RULE_HELP} (default: as predict decides for labels like those of the truth).")
]
UnknownOption = Annotated[
    float | None, typer.Option(help="Predict nothing if no label of the first level has a score of at least this.")
]
AllLabelsOption = Annotated[bool, typer.Option("--all-labels", help="Write ancestors as labels, too.")]


def check_output(output: Path | None, force: bool, *inputs: Path | str | None) -> None:
    """Refuse a file that cannot be written, is being read, or is there already, before hours of work for it."""
    from treelabel.core.atomic_output import require_writable
    from treelabel.core.inputs import STANDARD
    from treelabel.data.io.sqlite import file_behind

    if output is None or output == STANDARD:
        return
    # A table that is there in a file of SQLite is refused when it is written.
    force = force or file_behind(output) != output
    output = file_behind(output)
    if output.exists() and any(each is not None and Path(each).exists() and output.samefile(each) for each in inputs):
        raise TreelabelError(f"{output}: is what is to be read, and would be replaced; choose another output")
    if output.is_dir():
        raise TreelabelError(f"{output}: is a folder, expected the name of a file to write")
    if output.parent.exists() and not output.parent.is_dir():
        raise TreelabelError(f"{output}: {output.parent} is a file, expected a folder")
    if not output.parent.is_dir():
        raise TreelabelError(f"{output}: the folder {output.parent} does not exist; make it first")
    require_writable(output, output.parent)
    if output.is_file() and not force:
        raise TreelabelError(f"{output} is there already; choose another name, or replace it with --force")


@dataclass(frozen=True)
class ReadArguments:
    """Options of reading a data file."""

    text: Annotated[list[str] | None, typer.Option(help="Column with the text (title,body: several, joined).")] = None
    labels: Annotated[list[str] | None, typer.Option(help="Column with the labels (dept,class: levels of a path).")] = (
        None
    )
    id: Annotated[str | None, typer.Option(help="Column with the document's id.")] = None
    group: Annotated[
        str | None, typer.Option(help="Column of groups (customer, source): documents of a group are never divided.")
    ] = None
    taxonomy: Annotated[
        Path | None,
        typer.Option(help="File with the hierarchy (default: the one next to the data, or the label paths)."),
    ] = None
    sep: Annotated[
        str | None, typer.Option(help="Separator of names in a label path, such as ' > ' (default: guessed).")
    ] = None
    label_sep: Annotated[str | None, typer.Option(help="Separator of several labels in one cell, such as ';'.")] = None
    lists: Annotated[
        str | None,
        typer.Option(help="What a list of names means: labels (the default), or the steps of one path (path)."),
    ] = None
    root: Annotated[str | None, typer.Option(help="Name of the taxonomy's root (default: a top node called Root).")] = (
        None
    )
    language: Annotated[str, typer.Option(help="Language of labels in a taxonomy that has several.")] = "en"
    format: Annotated[str | None, typer.Option(help="Format of the input (default: by its ending).")] = None
    encoding: Annotated[
        str | None,
        typer.Option(
            help="Encoding of text without a byte order mark (default: utf-8, or cp1252 if the text clearly is)."
        ),
    ] = None
    sheet: Annotated[str | None, typer.Option(help="Sheet of an .xlsx file: name or number (default: the first).")] = (
        None
    )
    delimiter: Annotated[str | None, typer.Option(help="Delimiter of CSV columns (default: guessed).")] = None
    header: Annotated[bool | None, typer.Option(help="Whether the first CSV line names columns (default: yes).")] = None
    quotes: Annotated[bool | None, typer.Option(help="Whether CSV values may be quoted (default: yes).")] = None
    on_error: Annotated[
        str, typer.Option(help="What to do at a row that cannot be used: stop, or skip it and count.")
    ] = "stop"
    limit: Annotated[
        list[str] | None,
        typer.Option(
            help="Raise a limit on what reading a file may cost (repeat): line=200MB, ratio=1000, floor, whole, "
            "nesting, digits, labels or columns; =none lifts it, --limit none all."
        ),
    ] = None

    def like(self, model: "Model") -> "ModelReadArguments":
        """Read as the training data of a model were read, as far as nothing else is asked for, and the file has it."""
        reading = dict(model.reading_)
        usual: dict[str, Sequence[str]] = {
            name: reading.pop(name) for name in ("text", "labels", "id") if name in reading
        }
        encoding = reading.pop("encoding", None)
        # Of another format, what was said of one does not hold.
        reading.pop("format", None)
        asked = {entry.name: getattr(self, entry.name) for entry in fields(ReadArguments)}
        unasked = {name: value for name, value in reading.items() if asked[name] is None}
        return ModelReadArguments(**{**asked, **unasked}, usual=usual, usual_encoding=encoding)

    def for_files(self, *files: Path | None) -> "ReadArguments":
        """Read files that are clearly cp1252 as such, and say so, where no encoding is asked for and none is UTF-8."""
        from treelabel.core.encodings import WESTERN
        from treelabel.core.inputs import is_utf8, western_file

        if self.encoding is not None:
            return self
        western = {file: text for file in files if file is not None and (text := western_file(file)) is not None}
        if not western or any(file is not None and is_utf8(file) for file in files):
            return self
        for file, text in western.items():
            shown = f", such as {quote(text.words[0])}" if text.words else ""
            characters = f"{text.characters:,} characters beyond ASCII{shown}"
            print_note(f"{file}: is not UTF-8, and was read as {WESTERN} ({characters}); --encoding overrides")
        return replace(self, encoding=WESTERN)

    @property
    def limits(self) -> "Limits":
        """The limits asked for."""
        from treelabel.core.limits import parse_limits

        return parse_limits(self.limit or [])

    def read(self, path: Path, **needs: Any) -> "Dataset":
        """Read a data file with these options, and what `options` takes."""
        from treelabel.data.read import read

        return read(path, **self.for_files(path).options(**needs))

    def read_under(self, path: Path, hierarchy: "Hierarchy") -> "Dataset":
        """Read labels under the hierarchy of scores; with labels that it does not have, under one of its own."""
        from treelabel.hierarchy.label_ids import UnknownLabelError

        try:
            return self.read(path, need_text=False, taxonomy=hierarchy)
        except UnknownLabelError as error:
            data = self.read(path, need_text=False)
            # Bare names that are not known have no place.
            if data.hierarchy.max_depth == 1 < hierarchy.max_depth:
                raise error from None
            return data

    def read_with(
        self, path: Path, train: Path | None, need_text: bool = True, widen: bool = False
    ) -> "tuple[Dataset, Dataset | None]":
        """Read a data file and, if there is one, a training file under the same hierarchy; see `read_together`."""
        from treelabel.data.joint_reading import read_together

        if train is None:
            return self.read(path, need_text=need_text), None
        data, training = read_together([path, train], widen=widen, **self.for_files(path, train).options(need_text))
        return data, training

    def batch_options(self, path: Path) -> dict[str, Any]:
        """Return the options of `read_batches` for texts; whether there are labels makes no difference."""
        from treelabel.data.io.tables import existing_data

        if self.taxonomy is not None:
            raise TreelabelError("--taxonomy cannot be given here: the model knows its hierarchy")
        options = self.for_files(existing_data(path)).options(need_labels=False)
        del options["taxonomy"]
        return options

    def options(
        self, need_text: bool = True, need_labels: bool = True, taxonomy: "Hierarchy | None" = None
    ) -> dict[str, Any]:
        """Return the options of `read`, checked."""
        for name, allowed in (("on_error", ("stop", "skip")), ("lists", ("labels", "path", None))):
            if getattr(self, name) not in allowed:
                shown = f"--{name.replace('_', '-')} is {quote(getattr(self, name))}"
                raise TreelabelError(f"{shown}, expected {' or '.join(filter(None, allowed))}")
        options = asdict(self) | {"text": self.text or None, "labels": self.labels or None, "limits": self.limits}
        usual = {"encoding": "utf-8", "header": True, "quotes": True, "lists": "labels"}
        options |= {name: value for name, value in usual.items() if options[name] is None}
        options |= {"need_text": need_text, "need_labels": need_labels}
        del options["limit"]
        if taxonomy is not None:
            if self.taxonomy is not None:
                raise TreelabelError("--taxonomy cannot be given here: the scores know their hierarchy")
            options["taxonomy"] = taxonomy
        # A shell hands the two characters of '\t' on as they are.
        options["delimiter"] = "\t" if self.delimiter == "\\t" else self.delimiter
        return options


@dataclass(frozen=True)
class ModelReadArguments(ReadArguments):
    """Options of reading a file as the training data of a model were read: with their columns and encoding."""

    usual: Mapping[str, Sequence[str]] = field(default_factory=dict)
    usual_encoding: str | None = None

    def for_files(self, *files: Path | None) -> "ReadArguments":
        """Read files as the training data were encoded, unless one of them is UTF-8; see `ReadArguments.for_files`."""
        from treelabel.core.inputs import is_utf8

        if self.encoding is not None or self.usual_encoding is None:
            return super().for_files(*files)
        in_utf8 = [file for file in files if file is not None and is_utf8(file)]
        for file in in_utf8:
            print_note(f"{file}: is UTF-8, not {self.usual_encoding} as the training data of the model")
        return self if in_utf8 else replace(self, encoding=self.usual_encoding)

    def options(self, *needs: Any, **further: Any) -> dict[str, Any]:
        """Return the options of `read`, checked: see `ReadArguments.options`."""
        options = super().options(*needs, **further)
        del options["usual_encoding"]
        return options


def with_read_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Let a command's parameter of type `ReadArguments` appear as the options it consists of.

    An option that the command has itself, such as --limit of drift, takes the place of one of these.
    """
    hints = get_type_hints(command, include_extras=True)
    parameter = next(name for name, hint in hints.items() if hint is ReadArguments)
    option_hints = get_type_hints(ReadArguments, include_extras=True)
    options = [
        inspect.Parameter(
            entry.name, inspect.Parameter.KEYWORD_ONLY, default=entry.default, annotation=option_hints[entry.name]
        )
        for entry in fields(ReadArguments)
        if entry.name not in hints
    ]

    @wraps(command)
    def wrapper(**values: Any) -> Any:
        read = ReadArguments(**{option.name: values.pop(option.name) for option in options})
        return command(**values, **{parameter: read})

    local = [
        each.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[each.name])
        for each in inspect.signature(command).parameters.values()
        if each.name != parameter
    ]
    wrapper.__signature__ = inspect.Signature([*local, *options])  # type: ignore[attr-defined]
    wrapper.__annotations__ = {each.name: each.annotation for each in [*local, *options]}
    return wrapper
