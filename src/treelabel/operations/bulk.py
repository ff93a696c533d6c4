"""Predict and score files of any size, a batch at a time: memory does not grow with the documents."""

import bz2
import gzip
import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from treelabel.core import spool
from treelabel.core.append import AppendFile, StandardOutput, open_append
from treelabel.core.compute import background
from treelabel.core.errors import TreelabelError
from treelabel.core.inputs import STANDARD, suffixes
from treelabel.core.registry import did_you_mean
from treelabel.core.standard import as_output
from treelabel.data.data_file import read_batches
from treelabel.data.dataset import Dataset
from treelabel.data.io.cells import file_may_hold_formulas, may_hold_formulas
from treelabel.data.io.format import TableEncoder, WriteOptions
from treelabel.data.io.registry import FORMATS
from treelabel.data.io.tables import data_files, existing_data, write_tables
from treelabel.evaluation.predictions import prediction_bytes
from treelabel.models.base import Model
from treelabel.models.model_inputs import texts_of
from treelabel.models.persistence.store import package_version
from treelabel.models.streaming import Decided, batch_size, blank_texts
from treelabel.operations.batch_scorer import BatchScorer, folder_stamp
from treelabel.rules.decision_columns import label_separator
from treelabel.rules.decisions import TunedRule
from treelabel.scores.score_matrix import Scores
from treelabel.scores.score_writer import finish_scores, score_batch, score_schema

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
class FileJob:
    """A file of texts to work on: by what, where to, and in which format. A copy for another process is small."""

    scorer: BatchScorer
    texts: Path
    # Options of `read_batches`.
    reading: Mapping[str, Any]
    output: Path
    format: str
    resume: bool = False
    # Of scores, how many of the largest are kept of each document.
    top: int | None = None
    progress: bool | None = None
    verb: Literal["predict", "score"] = "predict"

    @property
    def model_folder(self) -> Path | None:
        """The folder of the model, if it is not in memory alone."""
        return self.scorer.folder

    def to(self, output: Path) -> "FileJob":
        """Return the same job with another output, and without a progress bar: the job of a shard."""
        return replace(self, output=output, progress=False)

    def run(self) -> "Written | ScoresWritten":
        """Predict or score the file."""
        return predict_file(self) if self.verb == "predict" else score_file(self)

    @property
    def model(self) -> Model:
        """The model."""
        return self.scorer.model

    @property
    def can_grow(self) -> bool:
        """Whether predictions of the format can be added at the end of a file."""
        return FORMATS[self.format].encoder is not None

    @property
    def has_objects(self) -> bool:
        """Whether predictions are written as objects, not as rows of a table."""
        return "objects" in FORMATS[self.format].holds

    def about(self) -> dict[str, Any]:
        """Tell what the output is made of, to recognize the same job again."""
        folder = None if self.scorer.folder is None else self.scorer.folder.absolute()
        stored = () if folder is None else folder_stamp(folder)
        digest = hashlib.sha256(repr(stored).encode()).hexdigest()[:16]
        files = [] if self.texts == STANDARD else [(file, file.stat()) for file in data_files(self.texts)]
        listed = (f"{file}, {status.st_size} bytes, {status.st_mtime_ns}" for file, status in files)
        source = "; ".join(listed) or "standard input"
        made_of = {"model": f"{folder} {digest}", "input": source, "treelabel": package_version()}
        options = {
            "verb": self.verb,
            "rule": _content_of_rule(self.scorer.rule),
            "top": self.top,
            **self.scorer.settings,
        }
        options |= asdict(self.scorer.form)
        return {**made_of, **options, "format": self.format, "option of reading": repr(dict(self.reading))}

    def check(self) -> None:
        """Refuse what cannot work, before anything is read."""
        existing_data(self.texts)
        self.scorer.check()
        if self.resume and STANDARD in (self.texts, self.output):
            raise TreelabelError("--resume needs files to go on with; standard input and output have no past")

    @contextmanager
    def sink(self, can_stream: bool) -> Iterator[Sink]:
        """Open the output; `can_stream` says whether it can be written to a pipe as it grows."""
        if self.output != STANDARD:
            with open_append(self.output, self.about(), self.resume) as file:
                yield file
            return
        if can_stream:
            yield StandardOutput()
            return
        # Formats that are made of a whole stream go through a file.
        with as_output(self.output, f".{self.format}") as made, open_append(made, {}) as file:
            yield file

    def batches(self, done: int, verb: str) -> Iterator[tuple[Dataset, tuple[Any, Any]]]:
        """Read the texts, those of `done` documents aside: each batch, with the ids and columns that go with it."""
        h, form = self.model.hierarchy_, self.scorer.form
        sizes = batch_size(len(h)), FIRST_OF_PIPE if self.texts == STANDARD else FIRST
        title = f"{verb} {self.texts.name}"
        with_texts = form.suggested is not None
        needs_columns = form.keep_columns or self.scorer.column is not None
        for data in read_batches(self.texts, h, *sizes, needs_columns, title, self.progress, **self.reading):
            if done > 0:
                done -= len(data)
                continue
            texts = {"text": data.texts.arrow} if with_texts else {}
            taken = DOCUMENT if with_texts else ()
            columns = data.extra if form.keep_columns else {}
            others = {name: column for name, column in columns.items() if name not in taken}
            yield data, (data.ids.arrow.combine_chunks(), {**texts, **others})


def _content_of_rule(rule: str | TunedRule) -> str:
    """Return what a file of a rule holds; other rules as they are."""
    if isinstance(rule, TunedRule):
        return repr(rule)
    is_file = rule.endswith(".json") and Path(rule).is_file()
    return Path(rule).read_text(encoding="utf-8") if is_file else rule


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


@dataclass(frozen=True)
class ScoresWritten:
    """A file of scores that was written: its documents, the scores in words, how many texts were empty."""

    rows: int
    summary: str
    empty: int


def score_file(job: FileJob) -> ScoresWritten:
    """Score a file of texts."""

    def score_batches(done: int) -> Iterator[tuple[Any, Scores, int]]:
        for data, (ids, _) in background(job.batches(done, "scoring")):
            column, _ = texts_of(data)
            yield ids, job.model.score(column, top=job.top), int(blank_texts(column).sum())

    h = job.model.hierarchy_
    with job.sink(can_stream=False) as sink:
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
    return ScoresWritten(rows, f"Scores({rows:,} documents x {len(h):,} nodes, {kind})", empty)


# Predictions


@dataclass(frozen=True)
class Written:
    """A file of predictions that was written: documents, by which rule, empty texts, escaped cells."""

    rows: int
    rule: str
    empty: int
    escaped: int
    sep: str | None


class GrowingWriter:
    """Writes predictions to a file that grows: lines of JSON objects, or of cells."""

    def __init__(self, job: FileJob, sink: Sink) -> None:
        self._job, self._scorer, self._sink = job, job.scorer, sink
        self._compress = compressor(job.output)
        self._encoder: TableEncoder | None = None
        # Whether a last column counts what was escaped, so that treelabel reads it as it was: found at the beginning.
        self.marked: bool | None = sink.state.get("marked")

    def add(self, decided: Decided) -> int:
        """Write a batch; return how many cells were escaped."""
        form = self._scorer.form
        if self._job.has_objects:
            ids, extra = decided.carried
            what = form.all_labels, form.alternatives, extra, form.uris
            lines = prediction_bytes(decided.decisions, ids, decided.scores, *what)
            self._sink.write(self._compress(lines))
            return 0
        encoder = self._encoder = self._encoder or self._begin(decided)
        before = encoder.escaped
        self._sink.write(self._compress(encoder.encode(self._scorer.table(decided))))
        return encoder.escaped - before

    def _begin(self, decided: Decided) -> TableEncoder:
        form = self._scorer.form
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
        """Let the file take its name."""
        self._sink.keep()


class SpooledWriter:
    """Writes predictions to a stream, of which a file is made in the end."""

    def __init__(self, job: FileJob, sink: Sink) -> None:
        self._job = job
        self.marked: bool | None = None
        self._spool = SpoolWriter(sink, self._make)

    def add(self, decided: Decided) -> int:
        """Write a batch."""
        table = self._job.scorer.table(decided)
        schema = self._spool.begin(table.schema)
        for batch in table.cast(schema).combine_chunks().to_batches():
            self._spool.add(batch)
        return 0

    def finish(self) -> None:
        """Make the file."""
        self._spool.finish()

    def _make(self, stream: Path, target: Path) -> None:
        tables = spool.joined_batches(spool.read_spool(stream), ROW_GROUP)
        is_suggested = self._job.scorer.form.suggested is not None
        options = suggestion_options(self._job) if is_suggested else WriteOptions(sheet="predictions")
        write_tables(tables, target, options, self._job.format)


def suggestion_options(job: FileJob) -> WriteOptions:
    """Say who suggests labels, and which there are."""
    h = job.model.hierarchy_
    names = h.paths() if h.max_depth > 1 else list(h.names)
    return WriteOptions(labels=["labels"], hierarchy=h, agent=f"treelabel {job.model.name}", label_texts=names)


def predict_file(job: FileJob) -> Written:
    """Predict the labels of a file of texts."""
    scorer = job.scorer
    waits = scorer.decides_on_all
    with job.sink(can_stream=job.can_grow) as sink:
        writer = (GrowingWriter if job.can_grow else SpooledWriter)(job, sink)
        state = {"rows": 0, "empty": 0, "escaped": 0, "rule": "", **sink.state}
        batches = job.batches(0 if waits else state["rows"], "predicting")
        # What a rule of all documents decided is written from where it was cut off.
        skip = state["rows"] if waits else 0
        for decided in background(scorer.decide(background(batches))):
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
    in_one_cell = scorer.several and not job.has_objects and scorer.form.suggested is None
    sep = label_separator(job.model.hierarchy_) if in_one_cell else None
    return Written(state["rows"], state["rule"], state["empty"], state["escaped"], sep)
