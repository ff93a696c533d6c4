"""What a dataset is like: sizes, levels, regime, the tail, and what is wrong with it."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import pyarrow.compute as pc

from treelabel.core.errors import TreelabelError
from treelabel.data.dataset import Dataset
from treelabel.hierarchy import row_sizes

Regime = Literal["single path", "partial path", "multi path", "unlabelled"]

FREQUENCY_BINS = ((1, 9), (10, 99), (100, 999), (1000, None))


@dataclass(frozen=True)
class Description:
    """Counts of a dataset; `str()` prints them as a table, `to_json()` gives plain values.

    The regime is that of the closed label sets of labelled documents: single path (one path that ends in a leaf),
    partial path (one path, may end inside), multi path (anything). `regime_share` says how many documents are of each
    kind, because a handful of odd ones decides the regime of the whole.
    """

    documents: int
    nodes: int
    leaves: int
    is_tree: bool
    nodes_per_level: list[int]
    labels_per_document: float
    given_labels_per_document: float
    regime: Regime
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
        """Give plain values for JSON, which has no NaN: means over no documents are None."""
        return {name: None if value != value else value for name, value in asdict(self).items()}

    def rows(self) -> list[tuple[str, str]]:
        """Give (what, value) pairs as a person reads them."""
        kind = "tree" if self.is_tree else "DAG"
        odd = ", ".join(f"{share:.1%} {name}" for name, share in self.regime_share.items() if 0 < share < 1)
        seen = max(1, sum(self.frequency_bins.values()))
        rows = [
            ("documents", f"{self.documents:,}"),
            ("nodes", f"{self.nodes:,} ({self.leaves:,} leaves), {kind} of depth {len(self.nodes_per_level)}"),
            ("nodes per level", "-".join(f"{size:,}" for size in self.nodes_per_level)),
            (
                "labels per document",
                f"{self.labels_per_document:.2f} with ancestors, {self.given_labels_per_document:.2f} as given",
            ),
            ("regime", f"{self.regime}{f' ({odd})' if odd else ''}"),
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


def describe(data: Dataset, train: Dataset | None = None) -> Description:
    """Count everything in one pass over labels and one over texts."""
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
    return Description(
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


def _mean(total: int, count: int) -> float:
    return float(total / count) if count else float("nan")


def _regime(data: Dataset) -> tuple[Regime, dict[str, float]]:
    """Sort labelled documents by the shape of their closed set: a path is as many nodes as its deepest one is deep."""
    h = data.hierarchy
    ends = h.most_specific(data.labels)
    one_end = row_sizes(ends) == 1
    end = np.full(len(data), -1)
    end[one_end] = ends.indices[ends.indptr[:-1][one_end]]
    # In a DAG a single label may have several ways up, and then its closure is no path.
    path = one_end & (row_sizes(data.closed) == np.where(end >= 0, h.depth[end], -1)) if len(h) else one_end
    leaf = path & (np.where(end >= 0, h.is_leaf[end], False) if len(h) else path)
    labelled = int(np.sum(row_sizes(data.labels) > 0))
    if labelled == 0:
        return "unlabelled", {}
    counts = {"single path": int(leaf.sum()), "partial path": int((path & ~leaf).sum())}
    counts["multi path"] = labelled - sum(counts.values())
    shares = {name: count / labelled for name, count in counts.items()}
    if counts["multi path"]:
        return "multi path", shares
    return ("partial path" if counts["partial path"] else "single path"), shares
