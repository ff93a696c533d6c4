"""The documents that a system got most wrong, for people to read."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from treelabel.core.errors import shorten
from treelabel.data.dataset import Dataset
from treelabel.hierarchy.label_matrices import (
    LabelMatrix,
    keep_entries,
    matches,
    row_numbers,
)

if TYPE_CHECKING:
    from treelabel.report.systems import ReportSystem

MOST_MISTAKES = 50
MOST_LABELS = 6
LONGEST_TEXT = 600
LONGEST_NAME = 300


@dataclass(frozen=True)
class Mistake:
    """A document, its true and predicted labels as paths, and how many labels it has too many or too few.

    Predicted labels come with their probability, None where there are no scores. `text` is None where texts are left
    out. Long texts lose their middle.
    """

    id: str
    text: str | None
    true: tuple[str, ...]
    predicted: tuple[tuple[str, float | None], ...]
    cost: int


def costliest_mistakes(
    system: "ReportSystem", truth: Dataset, texts: bool = True, most: int = MOST_MISTAKES, longest: int = LONGEST_TEXT
) -> list[Mistake]:
    """List the documents with most labels too many or too few, ancestors included; the surest mistakes first.

    Parameters
    ----------
    system : System
        What was judged.
    truth : Dataset
        The documents.
    texts : bool
        Whether to show their texts.
    most, longest : int
        Documents at most, and characters of a text.

    Returns
    -------
    list of Mistake
    """
    cost = system.result.documents["shortest_path"]
    order = np.lexsort((np.arange(len(cost)), -_confidence(system), -cost))
    rows = [row for row in order[:most].tolist() if cost[row] > 0]
    true, predicted = (system.hierarchy.most_specific(sets[rows]) for sets in (system.truth, system.decisions))
    results = []
    for index, row in enumerate(rows):
        text = shorten(truth.texts[row], longest) if texts else None
        ends = _nodes(predicted, index)
        sure = [None if system.node_scores is None else float(system.node_scores[row, node]) for node in ends]
        labels = tuple(zip(_paths(system, ends), sure, strict=True))
        name = shorten(truth.ids[row], LONGEST_NAME)
        results.append(Mistake(name, text, _paths(system, _nodes(true, index)), labels, int(cost[row])))
    return results


def _confidence(system: "ReportSystem") -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """The largest probability of a most specific label that is wrong, by document; 0 where none is known."""
    sure = np.zeros(system.truth.shape[0])
    if system.scores is None:
        return sure
    ends = system.hierarchy.most_specific(system.decisions)
    wrong = keep_entries(ends, ~matches(system.truth, ends))
    rows = row_numbers(wrong)
    values = system.node_scores[rows, wrong.indices]
    np.maximum.at(sure, rows, np.asarray(values, np.float64).ravel())
    return sure


def _nodes(labels: LabelMatrix, row: int) -> list[int]:
    """The first few labels of a document."""
    result: list[int] = labels.indices[labels.indptr[row] : labels.indptr[row + 1]][:MOST_LABELS].tolist()
    return result


def _paths(system: "ReportSystem", nodes: list[int]) -> tuple[str, ...]:
    return tuple(shorten(path, LONGEST_NAME) for path in system.hierarchy.paths(nodes)) if nodes else ()
