"""A saved model as a function of Arrow batches: documents in, the same rows with their predictions out."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from treelabel.core.errors import TreelabelError, quote
from treelabel.core.frames import Frame
from treelabel.models.base import Model
from treelabel.models.persistence.load import load_model
from treelabel.models.streaming import Decided, batch_size, decided_batches
from treelabel.rules.decision_columns import chosen_labels, column_names, label_separator, prediction_columns
from treelabel.rules.decisions import TunedRule, decides_on_all
from treelabel.rules.tuned_rule import column_of

# Rules that give a document one most specific label at most.
ONE_LABEL = (
    "best_leaf",
    "top_down",
    "beam",
    "majority",
    "plurality",
    "back_off",
    *(f"optimal:{metric}" for metric in ("leaf_accuracy", "onehot_win", "wu_palmer", "lin", "cost")),
)


@dataclass(frozen=True)
class Form:
    """The columns of predictions, and how labels are written."""

    all_labels: bool = False
    alternatives: int = 0
    keep_columns: bool = False
    raw: bool = False
    uris: bool = False
    # What labels are in a format for people who confirm them: "paths" or "path lists"; None in other formats.
    suggested: str | None = None


class BatchScorer:
    """Predicts the labels of documents, a batch at a time: `scorer(table)` has one row per row of the table.

    A copy that another process gets holds the settings alone; the model is loaded when the first batch comes, once in
    each process. So it is what engines map over batches: `ray.data.Dataset.map_batches(BatchScorer, ...)`,
    `DataFrame.mapInArrow(scorer.map_batches, schema)` of Spark, and `treelabel predict` itself. Time grows with the
    documents; memory with a batch.

    Parameters
    ----------
    model : Model, str or Path
        A model folder, which every process must see; or a model.
    rule : str or TunedRule, optional
        A row of RULES with settings, or a file that `tune` wrote; by default the rule of the model. Rules of all
        documents together cannot decide on a batch, and are refused when a batch comes.
    text : str or tuple of str, optional
        The columns of the text; by default those that the model has learned from, or one of a usual name.
    id : str, optional
        The column that is kept beside the predictions; by default "id", if there is one.
    unknown : float, optional
        Predict nothing if no label of the first level has a score of at least this.
    form : Form
        Which columns there are: see `Form`.
    require_signature : str or Path, optional
        As for `load_model`.

    >>> import tempfile, treelabel as tl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     tl.fit(["woof", "meow"] * 9, ["pet > dog", "pet > cat"] * 9, preset="fast").save(folder + "/model")
    ...     scorer = BatchScorer(folder + "/model")
    ...     scorer(pa.table({"id": ["a"], "text": ["meow"]})).select(["id", "predicted"]).to_pylist()
    [{'id': 'a', 'predicted': 'cat'}]
    """

    def __init__(
        self,
        model: Model | str | Path,
        rule: str | TunedRule | None = None,
        *,
        text: str | tuple[str, ...] | None = None,
        id: str | None = None,  # noqa: A002
        unknown: float | None = None,
        form: Form | None = None,
        require_signature: str | Path | None = None,
    ) -> None:
        self._model = model if isinstance(model, Model) else None
        self.folder = None if isinstance(model, Model) else Path(model)
        self.requested_rule, self.text, self.id = rule, text, id
        self.settings = {} if unknown is None else {"unknown": unknown}
        self.form = Form() if form is None else form
        self.require_signature = require_signature

    def __getstate__(self) -> dict[str, Any]:
        """Return the settings without the model, which another process loads for itself."""
        if self.folder is None:
            raise TreelabelError("a model in memory stays in its process; save it, and give BatchScorer its folder")
        # Another process may be in another folder.
        return {**self.__dict__, "_model": None, "folder": self.folder.absolute()}

    @property
    def model(self) -> Model:
        """The model."""
        if self._model is None:
            assert self.folder is not None
            self._model = _load(self.folder, folder_stamp(self.folder), self.require_signature)
        return self._model

    @property
    def rule(self) -> str | TunedRule:
        """The rule that decides."""
        return self.model.default_rule if self.requested_rule is None else self.requested_rule

    @property
    def decides_on_all(self) -> bool:
        """Whether the rule decides on all documents together, so that nothing comes out before the last one."""
        return decides_on_all(self.rule, self.model.hierarchy_, **self.settings)

    @property
    def column(self) -> str | None:
        """The column that the rule goes by, if it does."""
        return column_of(self.rule)

    @property
    def several(self) -> bool:
        """Whether a document may have several labels."""
        name = self.rule.rule if isinstance(self.rule, TunedRule) else self.rule
        is_single = self.model.regime_ != "multi_path" and name.startswith(ONE_LABEL)
        return self.form.all_labels or not is_single

    def check(self) -> None:
        """Refuse what the model cannot give."""
        if self.form.uris and self.model.hierarchy_.identifiers is None:
            where = "the model" if self.folder is None else str(self.folder)
            raise TreelabelError(f"{where}: its labels have no URIs; fit it with a vocabulary that has (--taxonomy)")

    def decide(self, batches: Iterable[tuple[Any, Any]]) -> Iterator[Decided]:
        """Score and decide batches: pairs of texts and (ids, columns), which come along with the decisions."""

        def columns(texts: Any, carried: Any) -> Any:
            return texts if hasattr(texts, "extra") else carried[1]

        return decided_batches(self.model, batches, self.rule, columns, **self.settings)

    def table(self, decided: Decided) -> pa.Table:
        """Put predictions beside ids, or beside the input's own columns; as suggestions where the form says so."""
        return _suggestions(decided, self.form) if self.form.suggested is not None else self._predictions(decided)

    def _predictions(self, decided: Decided) -> pa.Table:
        form, h = self.form, decided.scores.hierarchy
        ids, extra = decided.carried
        columns = dict(extra) if form.keep_columns else {} if ids is None else {"id": ids}
        what = form.all_labels, form.alternatives, self.several
        predicted = prediction_columns(decided.decisions, decided.scores, label_separator(h), *what, uris=form.uris)
        identifiers = [name for name in ("uri", "notation") if name in predicted]
        names = column_names(h.max_depth, form.alternatives, self.several, list(columns), identifiers)
        return pa.table(columns | {names[name]: column for name, column in predicted.items()})

    def __call__(self, batch: Any) -> Any:
        """Predict the labels of a batch.

        Parameters
        ----------
        batch : pa.Table or pa.RecordBatch
            Documents in rows.

        Returns
        -------
        pa.Table or pa.RecordBatch
            What it was given: one row per document, in the same order.
        """
        is_batch = isinstance(batch, pa.RecordBatch)
        if not is_batch and not isinstance(batch, pa.Table):
            raise TreelabelError(
                f"expected a pyarrow Table or RecordBatch, found {type(batch).__name__}; engines have an option for "
                "it, such as map_batches(..., batch_format='pyarrow')"
            )
        if self.decides_on_all:
            raise TreelabelError(
                f"the rule {quote(self.rule)} decides on all documents together, of which a batch knows nothing; write "
                "scores, and let treelabel decide take them all"
            )
        self.check()
        table = pa.Table.from_batches([batch]) if is_batch else batch
        result = pa.concat_tables(map(self.table, self.decide(self._parts(table)))).combine_chunks()
        if not is_batch:
            return result
        batches = result.to_batches()
        return batches[0] if batches else pa.RecordBatch.from_pylist([], result.schema)

    def map_batches(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Predict the labels of record batches one after another, as Spark's mapInArrow calls it.

        Parameters
        ----------
        batches
            Record batches of the same columns.

        Yields
        ------
        pa.RecordBatch
        """
        return map(self, batches)

    def schema(self, columns: pa.Schema) -> pa.Schema:
        """Return the columns that documents of such columns get, for engines that ask beforehand."""
        return self(columns.empty_table()).schema

    def _parts(self, table: pa.Table) -> Iterator[tuple[Any, Any]]:
        """Divide a table into batches that can be scored at once; without rows, into one that has none."""
        frame = Frame.of(table)
        columns = frame.text_columns(self.text, self.model.reading_.get("text", ()))
        key = self.id if self.id is not None else "id" if "id" in frame.names else None
        if key is not None:
            frame.require(key, "id")
        size = batch_size(len(self.model.hierarchy_))
        for start in range(0, max(1, len(frame)), size):
            part = table.slice(start, size)
            ids = None if key is None else part.column(key).combine_chunks()
            yield Frame.of(part).texts(columns), (ids, dict(zip(part.column_names, part.columns, strict=True)))


def _suggestions(decided: Decided, form: Form) -> pa.Table:
    """Put predictions beside ids and texts, as formats hold documents with their labels, and the scores of labels."""
    ids, columns = decided.carried
    labels = chosen_labels(decided.decisions, decided.scores, form.all_labels)
    h = labels.hierarchy
    if form.suggested == "path lists":
        texts = pa.array([h.path_names(node) for node in labels.nodes.tolist()], pa.list_(pa.string()))
    else:
        texts = labels.names(paths=h.max_depth > 1).cast(pa.large_string())
    return pa.table({"id": ids, **columns, "labels": labels.lists(texts), "scores": labels.lists(pa.array(labels.p))})


def folder_stamp(folder: Path) -> tuple[Any, ...]:
    """Identify what is in a folder now, so that a folder that was replaced is loaded again."""
    try:
        return tuple(sorted((each.name, each.stat().st_size, each.stat().st_mtime_ns) for each in folder.iterdir()))
    except OSError:
        return ()


@lru_cache(maxsize=2)
def _load(folder: Path, _: tuple[Any, ...], require_signature: str | Path | None) -> Model:
    return load_model(folder, require_signature)
