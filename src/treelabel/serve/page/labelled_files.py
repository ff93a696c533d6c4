"""Files of texts that come back with labels: the same columns, and those of predictions."""

import asyncio
import tempfile
import warnings
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from treelabel.core.errors import TreelabelError
from treelabel.core.inputs import is_utf8
from treelabel.data.data_file import read_batches
from treelabel.data.io.format import WriteOptions
from treelabel.data.io.tables import write_tables
from treelabel.models.base import Model
from treelabel.models.streaming import batch_size
from treelabel.operations.batch_scorer import BatchScorer, Form
from treelabel.rules.decisions import TunedRule
from treelabel.serve.model_store import ServedModel
from treelabel.serve.schemas import PredictSettings
from treelabel.serve.served_rules import rule_of

# What is taken, and the type it is sent back as.
MEDIA_TYPES = {
    ".csv": "text/csv; charset=utf-8",
    ".tsv": "text/tab-separated-values; charset=utf-8",
    ".xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    ".jsonl": "application/x-ndjson",
    ".parquet": "application/vnd.apache.parquet",
}
# Texts that are scored at once.
MOST_TEXTS = 1_024

Work = Callable[[Callable[[], pa.Table | None]], Awaitable[pa.Table | None]]


@dataclass(frozen=True)
class LabelledFile:
    """A file with predictions: its bytes, its ending, and how many texts it has."""

    content: bytes
    ending: str
    rows: int


async def label_file(
    work: Work, served: ServedModel, name: str, content: bytes, rule: str | None = None, text: str | None = None
) -> LabelledFile:
    """Predict the labels of a file of texts, some at a time, so that other requests are not kept waiting.

    Parameters
    ----------
    work
        Runs a function in the thread that scores.
    served
        A model.
    name
        What the file is called; its ending says its format.
    content
        The file.
    rule
        The decision rule; by default the model's.
    text
        The column with the texts; by default it is found.

    Returns
    -------
    LabelledFile
        Of the same format.
    """
    ending = Path(name).suffix.lower()
    if ending not in MEDIA_TYPES:
        raise TreelabelError(f"expected a file that ends in {', '.join(MEDIA_TYPES)}; found {ending or 'no ending'}")
    if rule is not None:
        rule_of(served, PredictSettings.model_construct(rule=rule))
    with tempfile.TemporaryDirectory(prefix="treelabel-") as folder:
        source, target = Path(folder, f"texts{ending}"), Path(folder, f"labelled{ending}")
        source.write_bytes(content)
        found = None if rule is None else served.rules.get(rule, rule)
        parts, tables = _tables(served.model, source, found, text), list[pa.Table]()
        try:
            while (table := await work(lambda: next(parts, None))) is not None:
                tables.append(table)
        except TreelabelError as error:
            raise TreelabelError(str(error).replace(str(source), "the file")) from None
        options = WriteOptions(escape=True, mark=None, sheet="predictions")
        await asyncio.to_thread(write_tables, tables, target, options)
        return LabelledFile(target.read_bytes(), ending, sum(map(len, tables)))


def _tables(model: Model, source: Path, rule: str | TunedRule | None, text: str | None) -> Iterator[pa.Table]:
    """Read as the training data of the model were read, as far as the file is alike, and add predictions."""
    reading: dict[str, Any] = dict(model.reading_)
    usual = {name: reading.pop(name) for name in ("text", "labels", "id") if name in reading}
    reading.pop("format", None)
    if "encoding" in reading and is_utf8(source):
        reading.pop("encoding")
    h = model.hierarchy_
    options = {**reading, "text": text, "usual": usual, "need_labels": False, "progress": False}
    batches = read_batches(source, h, min(MOST_TEXTS, batch_size(len(h))), columns=True, **options)
    pairs = ((data, (None, dict(data.extra))) for data in batches)
    scorer = BatchScorer(model, rule, form=Form(keep_columns=True))
    with warnings.catch_warnings():
        # Notes on columns and rules are for people at a terminal.
        warnings.simplefilter("ignore", UserWarning)
        yield from map(scorer.table, scorer.decide(pairs))
