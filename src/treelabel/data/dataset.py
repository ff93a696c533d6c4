"""Dataset: texts with their labels in a hierarchy; and its description: sizes, levels, regime, the tail."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy import sparse

from treelabel.core.errors import TreelabelError
from treelabel.core.html_tables import html_box, html_table
from treelabel.core.matrices import require_sound
from treelabel.core.strings import Strings
from treelabel.core.types import LongArray
from treelabel.hierarchy.hierarchy import Change, Hierarchy
from treelabel.hierarchy.label_ids import decode, encode
from treelabel.hierarchy.label_matrices import LabelMatrix, row_sizes
from treelabel.hierarchy.labelled_texts import REGIMES, LabelledTexts, Regime, document_regimes
from treelabel.hierarchy.moves import Moves

# How frames are read and made: `dataset_frames` puts its functions here, as it needs datasets itself.
FRAMES: dict[Literal["read", "make"], Callable[..., Any]] = {}
FREQUENCY_BINS = ((1, 9), (10, 99), (100, 999), (1000, None))
# Documents that notebooks show.
FIRST_SHOWN = 5
# What `Dataset.choices` says of a hierarchy where there is no taxonomy.
MADE_OF_LABELS = "made of the labels"


@dataclass(frozen=True)
class DatasetDescription:
    """Counts of a dataset; `str()` prints them as a table, `to_json()` returns plain values.

    The regime is that of the closed label sets of labelled documents: "single_path" (one path that ends in a leaf),
    "partial_path" (one path, may end inside), "multi_path" (anything). `regime_share` has the share of documents of
    each, because a handful of odd ones decides the regime of the whole.
    """

    documents: int
    nodes: int
    leaves: int
    is_tree: bool
    nodes_per_level: list[int]
    labels_per_document: float
    given_labels_per_document: float
    regime: Regime | Literal["unlabelled"]
    regime_share: dict[str, float]
    unlabelled: int
    frequency_bins: dict[str, int]
    labels_unseen: int
    leaves_unseen: int
    documents_with_unseen_labels: int
    words_per_text: float
    empty_texts: int
    duplicate_texts: int
    duplicate_ids: int
    features: int | None
    extra_columns: list[str]
    fingerprint: str
    reference: str

    def to_json(self) -> dict[str, Any]:
        """Return plain values for JSON, which has no NaN: means over no documents are None."""
        return {name: None if value != value else value for name, value in asdict(self).items()}

    def rows(self) -> list[tuple[str, str]]:
        """Return (what, value) pairs for people to read."""
        kind = "tree" if self.is_tree else "DAG"
        irregular = ", ".join(
            f"{share:.1%} {_words(name)}" for name, share in self.regime_share.items() if 0 < share < 1
        )
        bins = ", ".join(f"{name}: {count:,}" for name, count in self.frequency_bins.items())
        rows = [
            ("documents", f"{self.documents:,}"),
            ("nodes", f"{self.nodes:,} ({self.leaves:,} leaves), {kind} of depth {len(self.nodes_per_level)}"),
            ("nodes per level", "-".join(f"{size:,}" for size in self.nodes_per_level)),
            (
                "labels per document",
                f"{self.labels_per_document:.2f} with ancestors, {self.given_labels_per_document:.2f} as given",
            ),
            ("regime", f"{_words(self.regime)}{f' ({irregular})' if irregular else ''}"),
            ("without labels", f"{self.unlabelled:,}"),
            ("labels by frequency", f"{bins} in {self.reference}"),
            ("labels never seen", f"{self.labels_unseen:,} ({self.leaves_unseen:,} leaves) in {self.reference}"),
            ("documents with such labels", f"{self.documents_with_unseen_labels:,}"),
        ]
        if self.features is None:
            rows += [
                ("words per text", f"{self.words_per_text:.1f}"),
                ("empty texts", f"{self.empty_texts:,}"),
                ("duplicate texts", f"{self.duplicate_texts:,}"),
            ]
        else:
            rows.append(("features", f"{self.features:,} (no texts)"))
        rows.append(("duplicate ids", f"{self.duplicate_ids:,}"))
        if self.extra_columns:
            rows.append(("further columns", ", ".join(self.extra_columns)))
        rows.append(("fingerprint", self.fingerprint))
        return rows

    def __str__(self) -> str:
        rows = self.rows()
        width = max(len(name) for name, _ in rows)
        return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)


@dataclass(frozen=True, eq=False, repr=False)
class Dataset(LabelledTexts):
    """Documents: ids, texts, the labels they were given (not closed), their hierarchy, and any further columns.

    `closed` has the labels with all ancestors, as every metric uses them. `features` is a documents x features
    matrix where a format brings numbers instead of texts. `choices` tells what reading had to choose: the columns, and
    where the hierarchy comes from. `group` names the further column that tells which documents belong together (one
    customer, one source, copies of one text) and must not be divided between training and test; `groups` are its
    values. `lines` tells the line (or row) of the file on which each document begins, for messages. Make one with
    `treelabel.read` or `Dataset.of`. `reading` has the options of `read` for other files of the same
    shape: columns, separators, encoding; a model remembers them.

    >>> ds = Dataset.of(["woof", "meow"], [["dog"], ["cat"]], Hierarchy.from_paths(["pet > dog", "pet > cat"]))
    >>> ds
    Dataset(2 documents, Hierarchy(3 nodes, 2 leaves, depth 2, tree))
    >>> ds.names(), ds[:1].texts[0]
    ([['dog'], ['cat']], 'woof')
    """

    ids: Strings
    texts: Strings
    labels: LabelMatrix
    hierarchy: Hierarchy
    extra: Mapping[str, pa.ChunkedArray] = field(default_factory=dict)
    features: sparse.csr_array | None = None
    choices: Mapping[str, str] = field(default_factory=dict)
    group: str | None = None
    lines: LongArray | None = None
    reading: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if sparse.issparse(self.labels):
            require_sound(self.labels, "labels")
        sizes = {"ids": len(self.ids), "texts": len(self.texts), "labels": self.labels.shape[0]}
        sizes |= {f"column {name!r}": len(column) for name, column in self.extra.items()}
        if self.features is not None:
            require_sound(self.features, "features")
            sizes["features"] = self.features.shape[0]
        if self.lines is not None:
            sizes["lines"] = len(self.lines)
        if len(set(sizes.values())) > 1:
            raise TreelabelError(f"columns of different lengths: {', '.join(f'{k} {v:,}' for k, v in sizes.items())}")
        if self.labels.shape[1] != len(self.hierarchy):
            raise TreelabelError(
                f"labels have {self.labels.shape[1]:,} columns, but the hierarchy has {len(self.hierarchy):,} nodes"
            )
        if self.group is not None and self.group not in self.extra:
            raise TreelabelError(
                f"no column {self.group!r} for the groups; further columns are: {', '.join(self.extra) or 'none'}"
            )

    @classmethod
    def of(
        cls,
        texts: Iterable[str],
        labels: Iterable[Any],
        hierarchy: Hierarchy,
        ids: Iterable[str] | None = None,
        sep: str | None = None,
        groups: Iterable[str] | None = None,
    ) -> "Dataset":
        """Make a dataset of texts and one list of labels per text.

        Parameters
        ----------
        texts : iterable of str
            The documents.
        labels : iterable
            One list of names or paths per text: see `labels.encode`.
        hierarchy : Hierarchy
            Where the labels are looked up.
        ids : iterable of str, optional
            Names of the documents; by default their row numbers.
        sep : str, optional
            The separator of paths.
        groups : iterable of str, optional
            What each document belongs to; `split` keeps documents of a group together. Stored as a column "group".

        Returns
        -------
        Dataset
        """
        column = Strings.of(texts)
        names = Strings.of(ids) if ids is not None else Strings.of([str(row) for row in range(len(column))])
        extra = {} if groups is None else {"group": pa.chunked_array([list(groups)], pa.string())}
        return cls(names, column, encode(hierarchy, labels, sep), hierarchy, extra, group="group" if extra else None)

    @classmethod
    def from_frame(
        cls,
        data: Any,
        text: str | Sequence[str] | None = None,
        labels: str | Sequence[str] | None = None,
        id: str | None = None,  # noqa: A002  the column's name
        sep: str | None = None,
        hierarchy: Hierarchy | None = None,
        label_sep: str | None = None,
        lists: Literal["labels", "path"] | None = None,
        group: str | None = None,
        on_error: Literal["stop", "skip"] = "stop",
    ) -> "Dataset":
        """Make a dataset of a data frame of pandas, polars, pyarrow, DuckDB or Hugging Face's datasets.

        Rows are read as `read` reads those of a file; messages count them from 0.

        Parameters
        ----------
        data
            The frame, or whatever hands out an Arrow stream; it is not changed.
        text, labels, id : str or sequence of str, optional
            Names of columns; by default they are guessed. Several label columns are the levels of one path or, where
            they hold nothing but 0 and 1 (`pandas.get_dummies`), the labels themselves by name. A column of labels may
            have texts, categories (also ClassLabel), tuples (paths), lists or sets of labels.
        sep : str, optional
            The separator of paths; by default guessed.
        hierarchy : Hierarchy, optional
            By default made of the labels.
        label_sep : str, optional
            The separator of several labels inside a cell.
        lists : "labels" or "path", optional
            What a list is: several labels, or the steps of one path. By default several labels, but lists that look
            like paths are refused.
        group : str, optional
            The column that tells which documents belong together.
        on_error : "stop" or "skip"
            Whether a row that cannot be used is an error, or is left out and counted in a warning.

        Returns
        -------
        Dataset

        >>> table = pa.table({"body": ["woof", "meow"], "kind": ["pet > dog", "pet > cat"]})
        >>> Dataset.from_frame(table, text="body", labels="kind").hierarchy.paths()
        ['pet', 'pet > dog', 'pet > cat']
        """
        columns = {"text": text, "labels": labels, "id": id, "label_sep": label_sep, "group": group}
        made: Dataset = FRAMES["read"](data, columns, sep, hierarchy, lists, on_error)
        return made

    def to_frame(self, kind: Literal["pandas", "polars", "pyarrow"] = "pandas") -> Any:
        """Make a data frame: id, text, label, and the further columns.

        Labels are full paths where the hierarchy has several levels. Where a document has several, the column is
        `labels`, with a list in each row.

        Parameters
        ----------
        kind
            The library, which must be installed.

        Returns
        -------
        data frame

        >>> data = Dataset.of(["woof"], [["dog"]], Hierarchy.from_paths(["pet > dog"]))
        >>> data.to_frame("pyarrow").to_pylist()
        [{'id': '0', 'text': 'woof', 'label': 'pet > dog'}]
        """
        return FRAMES["make"](self, kind)

    def __repr__(self) -> str:
        return f"Dataset({len(self):,} documents, {self.hierarchy!r})"

    def _repr_html_(self) -> str:
        """Return what notebooks show: sizes, how the data were read, and the first documents."""
        first = self[:FIRST_SHOWN]
        texts = [""] * len(first) if self.features is not None else list(first.texts)
        labels = ["; ".join(paths) for paths in first.paths()]
        documents = html_table(list(zip(first.ids, texts, labels, strict=True)), ("id", "text", "labels"), len(self))
        levels = "-".join(f"{size:,}" for size in self.hierarchy.level_sizes)
        rows = [("nodes per level", levels), ("without labels", f"{int(np.sum(row_sizes(self.labels) == 0)):,}")]
        return html_box(repr(self), html_table([*rows, *self.choices.items()]), documents)

    def __getitem__(self, rows: Any) -> "Dataset":
        """Select documents by slice, boolean mask or row numbers."""
        if isinstance(rows, slice) and rows.step in (None, 1):
            picked: Any = rows
            columns = {name: column[rows] for name, column in self.extra.items()}
            ids, texts = self.ids[rows], self.texts[rows]
        else:
            # An empty list would make an array of floats, which numpy does not take for row numbers.
            chosen: Any = rows if isinstance(rows, slice) else np.asarray(rows) if np.size(rows) else []
            picked = np.atleast_1d(np.arange(len(self))[chosen])
            columns = {name: column.take(pa.array(picked)) for name, column in self.extra.items()}
            ids, texts = self.ids.take(picked), self.texts.take(picked)
        features = None if self.features is None else self.features[picked]
        lines = None if self.lines is None else self.lines[picked]
        labels = self.labels[picked]
        return replace(self, ids=ids, texts=texts, labels=labels, extra=columns, features=features, lines=lines)

    def batches(self, size: int = 4096) -> Iterator["Dataset"]:
        """Yield consecutive parts of at most `size` documents."""
        for start in range(0, len(self), size):
            yield self[start : start + size]

    @property
    def groups(self) -> tuple[str, ...] | None:
        """The group of each document as text, or None where documents stand alone.

        >>> Dataset.of(["a", "b"], [["x"], ["x"]], Hierarchy.flat(["x"]), groups=["shop 1", "shop 2"]).groups
        ('shop 1', 'shop 2')
        """
        if self.group is None:
            return None
        values = values_of_column(self, self.group, "keep together by")
        return tuple(map(str, values.to_pylist()))

    @property
    def is_hierarchy_of_labels(self) -> bool:
        """Whether the hierarchy was made of the labels themselves, for want of a taxonomy."""
        return self.choices.get("hierarchy") == MADE_OF_LABELS

    @property
    def level_names(self) -> tuple[str, ...]:
        """The names of the columns that hold the levels of the hierarchy, if data have them."""
        columns = self.reading.get("labels", ())
        return tuple(columns) if len(columns) > 1 else ()

    def names(self) -> list[list[str]]:
        """Return the labels of each document by name."""
        return decode(self.hierarchy, self.labels)

    def paths(self) -> list[list[str]]:
        """Return the labels of each document as full paths."""
        return decode(self.hierarchy, self.labels, paths=True)

    def moved(self, change: Change | Moves) -> "Dataset":
        """Carry the labels over to another hierarchy: one made of this one, or a taxonomy that this one became."""
        self.hierarchy.require_same(change.old.fingerprint, "the change")
        return replace(self, labels=change.labels(self.labels), hierarchy=change.new)

    def describe(self, train: "Dataset | None" = None) -> DatasetDescription:
        """Count what matters about the data; label frequencies are those of `train`, by default of the data itself."""
        return describe(self, train)


def values_of_column(data: Dataset, column: str, what_for: str) -> pa.Array:
    """Return a further column that has a value in every row; texts of blanks only are no values.

    Parameters
    ----------
    data : Dataset
        Where the column stands in `extra`.
    column : str
        Its name.
    what_for : str
        What the column is to do, for the message of an error.

    Returns
    -------
    pyarrow.Array
    """
    if column not in data.extra:
        listed = ", ".join(data.extra) or "none besides id, text and labels"
        raise TreelabelError(f"no column {column!r} to {what_for}; there are: {listed}")
    values = data.extra[column].combine_chunks()
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        is_blank = pc.equal(pc.utf8_trim_whitespace(values), "")
        values = pc.if_else(is_blank, pa.scalar(None, values.type), values)
    if values.null_count:
        row = int(np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))[0])
        raise TreelabelError(f"row {row} (id {data.ids[row]!r}) has no value in column {column!r}")
    return values


def describe(data: Dataset, train: Dataset | None = None) -> DatasetDescription:
    """Count everything in one pass over labels and one over texts.

    Parameters
    ----------
    data : Dataset
        What to describe.
    train : Dataset, optional
        Where the frequencies of labels come from; by default `data`.

    Returns
    -------
    Description
    """
    frequencies = data.frequencies
    if train is not None:
        if train.hierarchy != data.hierarchy:
            raise TreelabelError("the training data has another hierarchy; read both with the same taxonomy")
        frequencies = train.frequencies
    h, closed = data.hierarchy, data.closed_labels
    regimes = document_regimes(h, data.labels, closed)
    labelled = int(np.sum(regimes >= 0))
    unseen = frequencies == 0
    texts = data.texts.arrow
    empty = pc.sum(pc.equal(pc.utf8_trim_whitespace(texts), "")).as_py() or 0
    words = pc.sum(pc.count_substring_regex(texts, r"\S+")).as_py() or 0
    return DatasetDescription(
        documents=len(data),
        nodes=len(h),
        leaves=len(h.leaves),
        is_tree=h.is_tree,
        nodes_per_level=h.level_sizes,
        labels_per_document=_mean(closed.nnz, len(data)),
        given_labels_per_document=_mean(data.labels.nnz, len(data)),
        regime=REGIMES[regimes.max()] if labelled else "unlabelled",
        regime_share={name: int(np.sum(regimes == number)) / labelled for number, name in enumerate(REGIMES)}
        if labelled
        else {},
        unlabelled=int(np.sum(row_sizes(data.labels) == 0)),
        frequency_bins={
            f"{low}+" if high is None else f"{low}-{high}": int(
                np.sum((frequencies >= low) & (True if high is None else frequencies <= high))
            )
            for low, high in FREQUENCY_BINS
        },
        labels_unseen=int(np.sum(unseen)),
        leaves_unseen=int(np.sum(unseen[h.leaves])),
        documents_with_unseen_labels=int(np.sum(closed.astype(np.int32) @ unseen.astype(np.int32) > 0)),
        words_per_text=_mean(words, len(data)),
        empty_texts=empty,
        duplicate_texts=len(data)
        - empty
        - pc.count_distinct(texts.filter(pc.not_equal(pc.utf8_trim_whitespace(texts), ""))).as_py(),
        duplicate_ids=len(data) - pc.count_distinct(data.ids.arrow).as_py(),
        features=None if data.features is None else data.features.shape[1],
        extra_columns=list(data.extra),
        fingerprint=h.fingerprint,
        reference="this file" if train is None else "training",
    )


def _words(name: str) -> str:
    return name.replace("_", " ")


def _mean(total: int, count: int) -> float:
    return float(total / count) if count else float("nan")
