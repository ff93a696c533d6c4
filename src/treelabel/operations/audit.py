"""Look for labels of training data that are wrong: models learn fold by fold, and doubt what they had not learned."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from treelabel.core.errors import TreelabelError
from treelabel.core.strings import describe_value
from treelabel.data import Dataset
from treelabel.data.equal_texts import text_codes, units
from treelabel.data.splits import folds
from treelabel.hierarchy import row_sizes
from treelabel.models import make_model
from treelabel.operations.label_errors import Suspects, disagreements, find_suspects
from treelabel.operations.near_copies import near_copies
from treelabel.scores import Scores
from treelabel.selection.folds import out_of_fold

# A label is reported that is at least as likely wrong as right.
DOUBTED = 0.5


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
    def doubted(self) -> int:
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
        found = self.suspects.first(self.doubted if top is None else top)
        data, names = self.data, self._names(found)
        rows = []
        for at, row in enumerate(found.rows.tolist()):
            copy = int(found.copies[at])
            rows.append(
                {
                    "id": data.ids[row],
                    "line": None if data.lines is None else int(data.lines[row]),
                    "text": data.texts[row],
                    "given": names[int(found.given[at])],
                    "suggested": names[int(found.suggested[at])],
                    "p_given": _rounded(found.p_given[at]),
                    "p_suggested": _rounded(found.p_suggested[at]),
                    "score": _rounded(found.score[at]),
                    "reason": found.reasons[at],
                    "duplicate": None if copy < 0 else data.ids[copy],
                }
            )
        return rows

    def table(self, top: int | None = None) -> Dataset:
        """Return what `rows` does as documents with their labels and further columns, for `treelabel.write`."""
        rows = self.rows(top)
        some = self.data[self.suspects.rows[: len(rows)]]
        told = ("line", "given", "suggested", "p_given", "p_suggested", "score", "reason", "duplicate")
        columns = {name: pa.chunked_array([pa.array([row[name] for row in rows], _KINDS[name])]) for name in told}
        # What a person decides by stands before whatever else the file has.
        extra = columns | {name: column for name, column in some.extra.items() if name not in columns}
        return replace(some, extra=extra, group=None if some.group in columns else some.group)

    def _names(self, found: Suspects) -> dict[int, str | None]:
        nodes = np.unique(np.concatenate([found.given, found.suggested]))
        nodes = nodes[nodes >= 0]
        return {-1: None, **dict(zip(nodes.tolist(), self.data.hierarchy.paths(nodes), strict=True))}


_KINDS = {
    "line": pa.int64(),
    "given": pa.string(),
    "suggested": pa.string(),
    "p_given": pa.float64(),
    "p_suggested": pa.float64(),
    "score": pa.float64(),
    "reason": pa.string(),
    "duplicate": pa.string(),
}


def _rounded(value: float) -> float | None:
    return None if np.isnan(value) else round(float(value), 4)


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
    >>> found = audit(data, cv=3).rows(top=1)[0]
    >>> found["text"], found["given"], found["suggested"], found["reason"]
    ('meow 5', 'dog', 'cat', 'sibling')
    """
    if not isinstance(data, Dataset):
        raise TreelabelError(
            f"expected a Dataset, found {describe_value(data)}; read one with treelabel.read, or make it of texts and "
            "labels: treelabel.Dataset.of(texts, labels, hierarchy)"
        )
    if not isinstance(model, str):
        raise TreelabelError(f"expected the name of a model, such as 'linear', found {describe_value(model)}")
    made = {"seed": seed} | dict(settings or {})
    # A name or a setting that is wrong is refused before anything is learned.
    make_model(model, **made)
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
    scores = out_of_fold(lambda: make_model(model, **made), data, parts, progress)
    codes = near_copies(data.texts, codes)
    suspects = find_suspects(scores, data.labels, disagreements(codes, data.hierarchy.most_specific(data.labels)))
    return Audit(data, model, len(parts), scores, suspects)
