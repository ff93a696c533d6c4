"""Look for labels of training data that are wrong: models learn fold by fold, and doubt what they had not learned."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
from scipy import sparse
from scipy.sparse import csgraph

from treelabel.core.errors import TreelabelError
from treelabel.core.matrices import normalize_rows
from treelabel.core.strings import Strings, describe_value
from treelabel.core.types import DoubleArray, IntArray, LongArray
from treelabel.data.dataset import Dataset
from treelabel.data.equal_texts import text_codes, units
from treelabel.data.splits import folds
from treelabel.hierarchy.label_matrices import row_sizes
from treelabel.models.neighbours import SparseStore
from treelabel.models.registry import make_model
from treelabel.operations.label_errors import Suspects, disagreements, find_suspects
from treelabel.scores.score_matrix import Scores
from treelabel.selection.training import out_of_fold
from treelabel.text.ngrams import NgramShape
from treelabel.text.tfidf import Tfidf

# A label is reported that is at least as likely wrong as right.
DOUBTED = 0.5
# The search for near copies goes through all texts for each: seconds for this many; of more, only equal ones are known.
MOST_TEXTS: Final = 50_000
NEIGHBOURS: Final = 5
# Candidates are found by words that at most this many texts have, which all copies share; others take long to compare.
MOST_SHARED: Final = 100


@dataclass(frozen=True, eq=False)
class Audit:
    """The labelled documents, their out-of-fold scores, and their labels in the order of doubt.

    See `operations.label_errors` for what is doubted, and why.
    """

    data: Dataset
    model: str
    folds: int
    scores: Scores
    suspects: Suspects

    @property
    def doubts(self) -> int:
        """The number of labels that are at least as likely wrong as right."""
        return int(np.sum(self.suspects.score >= DOUBTED))

    def rows(self, top: int | None = None) -> list[dict[str, Any]]:
        """Return what is doubted as plain values, the most doubted first.

        Parameters
        ----------
        top : int, optional
            How many; by default those that are at least as likely wrong as right.

        Returns
        -------
        list of dict
            With id, line (None where it is not known), text, given, suggested, p_given, p_suggested, score, reason and
            duplicate (the id of a document with the same or nearly the same text and other labels).
        """
        doubted = self.suspects.first(self.doubts if top is None else top)
        data, rows = self.data, doubted.rows.tolist()
        columns = {
            "id": [data.ids[row] for row in rows],
            "line": [None if data.lines is None else int(data.lines[row]) for row in rows],
            "text": [data.texts[row] for row in rows],
            "given": self._paths(doubted.labels),
            "suggested": self._paths(doubted.suggested),
            "p_given": _round(doubted.p_given),
            "p_suggested": _round(doubted.p_suggested),
            "score": _round(doubted.score),
            "reason": doubted.reasons,
            "duplicate": [None if copy < 0 else data.ids[copy] for copy in doubted.copies.tolist()],
        }
        return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]

    def _paths(self, nodes: IntArray) -> list[str | None]:
        paths = iter(self.data.hierarchy.paths(nodes[nodes >= 0]))
        return [next(paths) if node >= 0 else None for node in nodes.tolist()]

    def table(self, top: int | None = None) -> Dataset:
        """Return what `rows` does as documents with their labels and further columns, for `treelabel.write`."""
        rows = self.rows(top)
        some = self.data[self.suspects.rows[: len(rows)]]
        columns = {
            name: pa.chunked_array([pa.array([row[name] for row in rows], kind)]) for name, kind in _KINDS.items()
        }
        # What a person decides by stands before whatever else the file has.
        extra = columns | {name: column for name, column in some.extra.items() if name not in columns}
        return replace(some, extra=extra, group=None if some.group in columns else some.group)


_KINDS = {
    "line": pa.int64(),
    **dict.fromkeys(("given", "suggested"), pa.string()),
    **dict.fromkeys(("p_given", "p_suggested", "score"), pa.float64()),
    **dict.fromkeys(("reason", "duplicate"), pa.string()),
}


def _round(values: DoubleArray) -> list[float | None]:
    return [None if np.isnan(value) else round(value, 4) for value in values.tolist()]


def audit(
    data: Dataset,
    model: str = "linear",
    settings: Mapping[str, Any] | None = None,
    cv: int = 5,
    seed: int = 0,
    progress: bool | None = None,
) -> Audit:
    """Rank the labels of a dataset by how likely they are wrong.

    Documents of one group, and those with the same text, are in one fold, so that none speaks for its own label.

    Parameters
    ----------
    data : Dataset
        Training data; documents without labels are left out.
    model : str
        A row of MODELS.
    settings : mapping, optional
        Settings of the model.
    cv : int
        The number of folds.
    seed : int
        Seed of the folds and of the model, if it takes one.
    progress : bool, optional
        Whether to show a bar; by default on a terminal.

    Returns
    -------
    Audit

    >>> from treelabel.hierarchy import Hierarchy
    >>> texts = [f"{word} {number}" for word in ("woof", "meow") for number in range(6)]
    >>> data = Dataset.of(texts, ["dog"] * 6 + ["cat"] * 5 + ["dog"], Hierarchy.flat(["dog", "cat"]))
    >>> first = audit(data, cv=3).rows(top=1)[0]
    >>> first["text"], first["given"], first["suggested"], first["reason"]
    ('meow 5', 'dog', 'cat', 'sibling')
    """
    if not isinstance(data, Dataset):
        raise TreelabelError(
            f"expected a Dataset, found {describe_value(data)}; read one with treelabel.read, or make it of texts and "
            "labels: treelabel.Dataset.of(texts, labels, hierarchy)"
        )
    if not isinstance(model, str):
        raise TreelabelError(f"expected the name of a model, such as 'linear', found {describe_value(model)}")
    chosen = {"seed": seed} | dict(settings or {})
    # A name or a setting that is wrong is refused before anything is learned.
    make_model(model, **chosen)
    labelled = np.flatnonzero(row_sizes(data.labels))
    data = data if len(labelled) == len(data) else data[labelled]
    codes = text_codes(data.texts)[0]
    whole = units(codes, None if data.groups is None else np.unique(data.groups, return_inverse=True)[1])
    count = min(cv, int(whole.max(initial=-1)) + 1)
    if count < 2:
        raise TreelabelError(
            f"{len(data):,} documents with labels are too few to doubt any: two different texts, or groups, are needed"
        )
    parts = folds(data, count, seed, keep_duplicates=True)
    scores = out_of_fold(lambda: make_model(model, **chosen), data, parts, progress)
    codes = near_copies(data.texts, codes)
    suspects = find_suspects(scores, data.labels, disagreements(codes, data.hierarchy.most_specific(data.labels)))
    return Audit(data, model, len(parts), scores, suspects)


def near_copies(texts: Strings, codes: LongArray, least: float = 0.95) -> LongArray:
    """Number texts so that equal and nearly equal ones have the same number.

    Parameters
    ----------
    codes : array of shape (texts,)
        Equal numbers for equal texts, -1 for empty ones.
    least : float
        The cosine of tf-idf of words from which on two texts are nearly the same.

    Returns
    -------
    array of shape (texts,)
        Numbers from 0 on, and -1 for empty texts. With more than 50,000 texts these are `codes`.

    >>> texts = Strings.of(["the cat sat on the mat today", "The cat sat on the mat, today", "dogs bark"])
    >>> near_copies(texts, np.array([0, 1, 2])).tolist()
    [0, 0, 1]
    """
    if not 0 < len(texts) <= MOST_TEXTS or (codes < 0).all():
        return codes
    _, first = np.unique(codes, return_index=True)
    first = first[codes[first] >= 0]
    _, rows = Tfidf.fit_transform(texts.take(first), NgramShape((1, 1)))
    # N-grams that some but few texts share.
    frequency = np.bincount(rows.indices, minlength=rows.shape[1])
    rare = normalize_rows(sparse.csr_array(rows[:, np.flatnonzero((frequency > 1) & (frequency <= MOST_SHARED))]))
    alone = np.arange(len(first), dtype=np.int64)
    result = SparseStore(rare).nearest(rare, NEIGHBOURS, alone, alone)
    one, rank = np.nonzero((result.rows >= 0) & (result.cosines >= least / 2))
    other = result.rows[one, rank]
    is_near = np.asarray(rows[one].multiply(rows[other]).sum(axis=1)).ravel() >= least
    graph = sparse.csr_array((is_near[is_near], (one[is_near], other[is_near])), (len(first),) * 2)
    joined = np.full(codes.max() + 1, -1, np.int64)
    joined[codes[first]] = csgraph.connected_components(graph, directed=False)[1]
    return np.where(codes >= 0, joined[np.maximum(codes, 0)], -1)
