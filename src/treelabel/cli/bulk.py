"""Work on files of any size, a batch at a time: what `predict` and `score` share, and their writers."""

import bz2
import gzip
import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import treelabel
from treelabel.cli.options import ReadArguments
from treelabel.core import spool
from treelabel.core.append import AppendFile, StandardOutput, open_append
from treelabel.core.compute import background
from treelabel.core.errors import TreelabelError
from treelabel.core.inputs import STANDARD, suffixes
from treelabel.core.standard import as_output

if TYPE_CHECKING:
    from treelabel.data.dataset import Dataset
    from treelabel.data.io.format import TableEncoder, WriteOptions
    from treelabel.models.base import Model
    from treelabel.models.streaming import Decided
    from treelabel.scores.score_matrix import Scores

# Texts of the first batch: its answers are there in a moment. Of a pipe, whose writer may wait for an answer, one.
FIRST = 256
FIRST_OF_PIPE = 1
# A row group of Parquet has at least so many bytes.
ROW_GROUP = 1 << 24

# The columns of documents in formats for people who confirm predictions.
DOCUMENT = ("id", "text", "labels", "scores")

Sink = AppendFile | StandardOutput


def output_format(output: Path, requested: str | None, formats: dict[str, tuple[str, ...]], what: str) -> str:
    """Find the format of an output: the one asked for, or the one of its ending.

    Parameters
    ----------
    output
        The file, or - for standard output, which has the first format unless another is asked for.
    requested
        A name of a format.
    formats
        Names of formats, with their endings.
    what
        What is written, for messages.

    Returns
    -------
    str
    """
    from treelabel.core.registry import did_you_mean

    if requested is not None:
        if requested not in formats:
            hint = did_you_mean(requested, formats)
            raise TreelabelError(
                f"--to-format is {requested!r}, expected {', '.join(formats)}{hint and f'; {hint}'}; "
                "the input's is --format"
            )
        return requested
    if output == STANDARD:
        return next(iter(formats))
    file = output.name.lower() if suffixes(output)[1] is None else output.stem.lower()
    matching = {end: name for name, endings in formats.items() for end in endings if file.endswith(end)}
    if matching:
        return matching[max(matching, key=len)]
    known = ", ".join(ending for each in formats.values() for ending in each)
    raise TreelabelError(f"{output}: {what} are written as {known}; choose one of these endings, or --to-format")


@dataclass(frozen=True)
class Job:
    """A file of texts to work on: by which model, where to, and what else makes a difference to what is written."""

    model: "Model"
    folder: Path
    texts: Path
    read: ReadArguments
    output: Path
    format: str
    resume: bool
    options: dict[str, Any] = field(default_factory=dict)
    # Whether files of the format can grow at their end, and whether it writes documents as objects, not as rows.
    can_grow: bool = False
    has_objects: bool = False
    # Whether texts are written, too.
    with_texts: bool = False

    def about(self) -> dict[str, Any]:
        """Tell what the output is made of, to recognize the same job again."""
        from treelabel.data.io.tables import data_files

        stored = sorted((file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in self.folder.iterdir())
        digest = hashlib.sha256(repr(stored).encode()).hexdigest()[:16]
        files = [] if self.texts == STANDARD else [(file, file.stat()) for file in data_files(self.texts)]
        listed = (f"{file}, {status.st_size} bytes, {status.st_mtime_ns}" for file, status in files)
        source = "; ".join(listed) or "standard input"
        made_of = {"model": f"{self.folder} {digest}", "input": source, "treelabel": treelabel.__version__}
        return {**made_of, **self.options, "format": self.format, "option of reading": repr(asdict(self.read))}

    def check(self) -> None:
        """Refuse what cannot work, before anything is read."""
        from treelabel.data.io.tables import existing_data

        existing_data(self.texts)
        if self.resume and STANDARD in (self.texts, self.output):
            raise TreelabelError("--resume needs files to go on with; standard input and output have no past")

    @contextmanager
    def sink(self) -> Iterator[Sink]:
        """Open the output."""
        if self.output != STANDARD:
            with open_append(self.output, self.about(), self.resume) as file:
                yield file
            return
        if self.can_grow:
            yield StandardOutput()
            return
        # Formats that are made of a whole stream go through a file.
        with as_output(self.output, f".{self.format}") as made, open_append(made, {}) as file:
            yield file

    def batches(self, done: int, columns: bool, title: str) -> "Iterator[tuple[Dataset, tuple[Any, Any]]]":
        """Read the texts, those of `done` documents aside: each batch, with the ids and columns that go with it."""
        from treelabel.models.streaming import batch_size

        first = FIRST_OF_PIPE if self.texts == STANDARD else FIRST
        size = batch_size(len(self.model.hierarchy_))
        for data in self.read.read_batches(self.texts, self.model.hierarchy_, size, first, columns, title):
            if done > 0:
                done -= len(data)
                continue
            texts = {"text": data.texts.arrow} if self.with_texts else {}
            taken = DOCUMENT if self.with_texts else ()
            others = {name: column for name, column in data.extra.items() if name not in taken}
            yield data, (data.ids.arrow.combine_chunks(), {**texts, **others})


# Bytes


def compressor(output: Path) -> Callable[[bytes], bytes]:
    """Return what compresses a batch, so that compressed batches, one behind the other, are a compressed file."""
    compression = None if output == STANDARD else suffixes(output)[1]
    if compression == "gzip":
        return lambda data: gzip.compress(data, 6, mtime=0)
    if compression == "bz2":
        return bz2.compress
    if compression == "zstd":
        codec = pa.Codec("zstd")
        return lambda data: codec.compress(data, asbytes=True)
    return lambda data: data


class SpoolWriter:
    """Adds rows to a stream, which becomes the file at the end."""

    def __init__(self, sink: Sink, finish: Callable[[Path, Path], None]) -> None:
        if not isinstance(sink, AppendFile):
            raise TreelabelError("this format needs a file")
        self._sink, self._finish = sink, finish
        self.schema = spool.read_schema(sink.path) if sink.size else None

    def begin(self, schema: pa.Schema) -> pa.Schema:
        """Begin with these columns, unless the stream has begun; return those that it has."""
        if self.schema is None:
            self.schema = schema
            self._sink.write(schema.serialize())
        return self.schema

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows."""
        self._sink.write(batch.serialize())

    def finish(self) -> None:
        """Make the file."""
        self._sink.close()
        self._finish(self._sink.path, self._sink.target)
        self._sink.remove()


# Scores


def score_file(job: Job, top: int | None) -> tuple[str, int]:
    """Score a file of texts; return what was written in words, and how many texts were empty."""
    from treelabel.models.model_inputs import texts_of
    from treelabel.models.streaming import blank_texts
    from treelabel.scores.score_writer import finish_scores, score_batch, score_schema

    def score_batches(done: int) -> "Iterator[tuple[Any, Scores, int]]":
        for data, (ids, _) in background(job.batches(done, False, f"scoring {job.texts.name}")):
            column, _ = texts_of(data)
            yield ids, job.model.score(column, top=top), int(blank_texts(column).sum())

    h = job.model.hierarchy_
    with job.sink() as sink:
        writer = SpoolWriter(sink, lambda made, target: finish_scores(made, target, h))
        rows, stored, empty = (sink.state.get(name, 0) for name in ("rows", "stored", "empty"))
        for ids, scores, blank in background(score_batches(rows)):
            schema = writer.begin(score_schema(h, scores.values)) if writer.schema is None else writer.schema
            batch = score_batch(scores.values, ids, schema)
            writer.add(batch)
            rows, stored, empty = rows + len(batch), stored + len(batch.column(1).flatten()), empty + blank
            sink.commit(rows=rows, stored=stored, empty=empty)
        is_dense = writer.schema is not None and "scores" in writer.schema.names
        writer.finish()
    kind = "dense" if is_dense else f"CSR, {stored:,} stored"
    return f"Scores({rows:,} documents x {len(h):,} nodes, {kind})", empty


# Predictions


@dataclass(frozen=True)
class Form:
    """What stands in a file of predictions."""

    all_labels: bool = False
    alternatives: int = 0
    keep_columns: bool = False
    several: bool = False
    raw: bool = False
    uris: bool = False
    # What labels are in a format for people who confirm them: "paths" or "path lists"; None in other formats.
    suggested: str | None = None


@dataclass(frozen=True)
class Written:
    """What was written: documents, by which rule, how many texts were empty, how many cells were escaped."""

    rows: int
    rule: str
    empty: int
    escaped: int
    sep: str | None


class GrowingWriter:
    """Writes predictions to a file that grows: lines of JSON objects, or of cells."""

    def __init__(self, job: Job, form: Form, sink: Sink) -> None:
        self._job, self._form, self._sink = job, form, sink
        self._compress = compressor(job.output)
        self._encoder: TableEncoder | None = None
        # Whether a last column counts what was escaped, so that treelabel reads it as it was: found at the beginning.
        self.marked: bool | None = sink.state.get("marked")

    def add(self, decided: "Decided") -> int:
        """Write a batch; return how many cells were escaped."""
        from treelabel.evaluation.predictions import prediction_bytes

        form = self._form
        if self._job.has_objects:
            ids, extra = decided.carried
            what = form.all_labels, form.alternatives, extra, form.uris
            lines = prediction_bytes(decided.decisions, ids, decided.scores, *what)
            self._sink.write(self._compress(lines))
            return 0
        encoder = self._encoder = self._encoder or self._begin(decided)
        before = encoder.escaped
        table = prediction_table(decided, form) if form.suggested is None else suggestion_table(decided, form)
        self._sink.write(self._compress(encoder.encode(table)))
        return encoder.escaped - before

    def _begin(self, decided: "Decided") -> "TableEncoder":
        from treelabel.data.io.cells import file_may_hold_formulas, may_hold_formulas
        from treelabel.data.io.format import WriteOptions
        from treelabel.data.io.registry import FORMATS

        form = self._form
        encoder = FORMATS[self._job.format].encoder
        if encoder is None:
            raise AssertionError(f"{self._job.format} cannot grow")
        if form.suggested is not None:
            return encoder(suggestion_options(self._job))
        if self.marked is None:
            names = pa.array(decided.scores.hierarchy.names, pa.large_string())
            carries = form.keep_columns and file_may_hold_formulas(self._job.texts)
            self.marked = not form.raw and (carries or may_hold_formulas([names, decided.carried[0]]))
        return encoder(WriteOptions(escape=not form.raw, mark=self.marked, resumed=self._sink.size > 0))

    def finish(self) -> None:
        """Give the file its name."""
        self._sink.keep()


class SpooledWriter:
    """Writes predictions to a stream, of which a file is made in the end."""

    def __init__(self, job: Job, form: Form, sink: Sink) -> None:
        self._job, self._form = job, form
        self.marked: bool | None = None
        self._spool = SpoolWriter(sink, self._make)

    def add(self, decided: "Decided") -> int:
        """Write a batch."""
        form = self._form
        table = prediction_table(decided, form) if form.suggested is None else suggestion_table(decided, form)
        schema = self._spool.begin(table.schema)
        for batch in table.cast(schema).combine_chunks().to_batches():
            self._spool.add(batch)
        return 0

    def finish(self) -> None:
        """Make the file."""
        self._spool.finish()

    def _make(self, stream: Path, target: Path) -> None:
        from treelabel.data.io.format import WriteOptions
        from treelabel.data.io.tables import write_tables

        tables = spool.joined_batches(spool.read_spool(stream), ROW_GROUP)
        is_suggested = self._form.suggested is not None
        options = suggestion_options(self._job) if is_suggested else WriteOptions(sheet="predictions")
        write_tables(tables, target, options, self._job.format)


def prediction_table(decided: "Decided", form: Form) -> pa.Table:
    """Put predictions beside ids, or beside the input's own columns."""
    from treelabel.rules.decision_columns import column_names, label_separator, prediction_columns

    ids, extra = decided.carried
    h = decided.scores.hierarchy
    columns = dict(extra) if form.keep_columns else {"id": ids}
    what = form.all_labels, form.alternatives, form.several
    predicted = prediction_columns(decided.decisions, decided.scores, label_separator(h), *what, uris=form.uris)
    identifiers = [name for name in ("uri", "notation") if name in predicted]
    names = column_names(h.max_depth, form.alternatives, form.several, list(columns), identifiers)
    return pa.table(columns | {names[name]: column for name, column in predicted.items()})


def suggestion_table(decided: "Decided", form: Form) -> pa.Table:
    """Put predictions beside ids and texts, as formats hold documents with their labels, and the scores of labels."""
    from treelabel.rules.decision_columns import chosen_labels

    ids, columns = decided.carried
    labels = chosen_labels(decided.decisions, decided.scores, form.all_labels)
    h = labels.hierarchy
    if form.suggested == "path lists":
        texts = pa.array([h.path_names(node) for node in labels.nodes.tolist()], pa.list_(pa.string()))
    else:
        texts = labels.names(paths=h.max_depth > 1).cast(pa.large_string())
    return pa.table({"id": ids, **columns, "labels": labels.lists(texts), "scores": labels.lists(pa.array(labels.p))})


def suggestion_options(job: Job) -> "WriteOptions":
    """Say who suggests labels, and which there are."""
    from treelabel.data.io.format import WriteOptions

    h = job.model.hierarchy_
    names = h.paths() if h.max_depth > 1 else list(h.names)
    return WriteOptions(labels=["labels"], hierarchy=h, agent=f"treelabel {job.model.name}", label_texts=names)


def predict_file(job: Job, form: Form, rule: str | None, settings: dict[str, Any]) -> Written:
    """Predict the labels of a file of texts."""
    from treelabel.models.streaming import decided_batches
    from treelabel.rules.decision_columns import label_separator
    from treelabel.rules.decisions import decides_on_all

    asked = job.model.default_rule if rule is None else rule
    waits = decides_on_all(asked, job.model.hierarchy_, **settings)
    with job.sink() as sink:
        writer = (GrowingWriter if job.can_grow else SpooledWriter)(job, form, sink)
        state = {"rows": 0, "empty": 0, "escaped": 0, "rule": "", **sink.state}
        batches = job.batches(0 if waits else state["rows"], form.keep_columns, f"predicting {job.texts.name}")
        # What a rule of all documents decided is written from where it was cut off.
        skip = state["rows"] if waits else 0
        for decided in background(decided_batches(job.model, background(batches), asked, **settings)):
            count = len(decided.decisions)
            if skip > 0:
                skip -= count
                continue
            state["escaped"] += writer.add(decided)
            state["rows"] += count
            state["empty"] += int(decided.blank.sum())
            state["rule"] = decided.decisions.rule
            state["marked"] = writer.marked
            sink.commit(**state)
        writer.finish()
    in_one_cell = form.several and not job.has_objects and form.suggested is None
    sep = label_separator(job.model.hierarchy_) if in_one_cell else None
    return Written(state["rows"], state["rule"], state["empty"], state["escaped"], sep)
