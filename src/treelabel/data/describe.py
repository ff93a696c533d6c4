"""Describe a dataset: sizes, levels, regime, the tail, and what is wrong with it."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol

import numpy as np
import pyarrow.compute as pc
from scipy import sparse

from treelabel.core.errors import TreelabelError
from treelabel.core.strings import Strings
from treelabel.core.types import LongArray
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.label_matrices import LabelMatrix, row_sizes
from treelabel.hierarchy.labelled_texts import REGIMES, Regime, document_regimes

FREQUENCY_BINS = ((1, 9), (10, 99), (100, 999), (1000, None))


class Documents(Protocol):
    """The attributes of a Dataset that are describe_value."""

    @property
    def ids(self) -> Strings: ...  # noqa: D102
    @property
    def texts(self) -> Strings: ...  # noqa: D102
    @property
    def labels(self) -> LabelMatrix: ...  # noqa: D102
    @property
    def closed(self) -> LabelMatrix: ...  # noqa: D102
    @property
    def frequencies(self) -> LongArray: ...  # noqa: D102
    @property
    def hierarchy(self) -> Hierarchy: ...  # noqa: D102
    @property
    def extra(self) -> Mapping[str, Any]: ...  # noqa: D102
    @property
    def features(self) -> sparse.csr_array | None: ...  # noqa: D102
    def __len__(self) -> int: ...


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
        seen = max(1, sum(self.frequency_bins.values()))
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
            (
                f"labels by frequency in {self.reference}",
                ", ".join(f"{name}: {count:,} ({count / seen:.0%})" for name, count in self.frequency_bins.items()),
            ),
            (f"labels never seen in {self.reference}", f"{self.labels_unseen:,} ({self.leaves_unseen:,} leaves)"),
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


def describe(data: Documents, train: Documents | None = None) -> DatasetDescription:
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
    h, closed = data.hierarchy, data.closed
    regime, shares = _regime(data)
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
        regime=regime,
        regime_share=shares,
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


def _regime(data: Documents) -> tuple[Regime | Literal["unlabelled"], dict[str, float]]:
    """Return the regime of labelled documents, and the share of those that are of each."""
    regimes = document_regimes(data.hierarchy, data.labels, data.closed)
    labelled = int(np.sum(regimes >= 0))
    if labelled == 0:
        return "unlabelled", {}
    return REGIMES[regimes.max()], {
        name: int(np.sum(regimes == number)) / labelled for number, name in enumerate(REGIMES)
    }
