"""Agreement of annotators: Krippendorff's alpha, with the hierarchical distance of label sets.

alpha = 1 - D_o / D_e: the mean distance of two annotations of the same document over that of any two annotations. It is
1 where annotators agree everywhere, and 0 where they do not agree more than by chance. What two annotators reach
against each other is a ceiling for what a system can be seen to reach against one of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from scipy import sparse

from treelabel.core.errors import TreelabelError
from treelabel.core.types import DoubleArray, LongArray
from treelabel.evaluation.evaluator import evaluate
from treelabel.evaluation.statistics import Interval, bootstrap_interval
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.label_matrices import LabelMatrix, row_sizes
from treelabel.metrics.batch import closed_sets

LabelDistance = Literal["hierarchical", "nominal"]
# Distinct sets whose distances to all others are held at a time.
BLOCK = 1024


@dataclass(frozen=True)
class Agreement:
    """How far two annotators agree: alpha by both distances, and the hF1 and exact sets of one against the other.

    `left_out` documents lack labels of one of them, or of both.
    """

    documents: int
    alpha: Interval
    nominal: float
    hf1: Interval
    exact: Interval
    left_out: int = 0

    def __str__(self) -> str:
        documents = "1 document" if self.documents == 1 else f"{self.documents:,} documents"
        others = f" ({self.left_out:,} more lack labels of one of them)" if self.left_out else ""
        alpha = f"alpha {self.alpha} with the hierarchical distance, {self.nominal:.4f} with the nominal one"
        if np.isnan(self.alpha.value):
            alpha = "alpha is not defined, as all annotations are the same"
        return (
            f"agreement of two annotators on {documents}{others}: {alpha}; one against the other: hf1 {self.hf1}, "
            f"exact sets {self.exact}. A system that is judged by one of them cannot be expected to show more."
        )

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON values; what is not known is None."""

        def ends(interval: Interval) -> dict[str, float | None]:
            numbers = {"value": interval.value, "low": interval.low, "high": interval.high}
            return {name: number if np.isfinite(number) else None for name, number in numbers.items()}

        return {
            "documents": self.documents,
            "left_out": self.left_out,
            "alpha": ends(self.alpha),
            "alpha_nominal": self.nominal if np.isfinite(self.nominal) else None,
            "hf1": ends(self.hf1),
            "exact": ends(self.exact),
        }


def krippendorff_alpha(
    hierarchy: Hierarchy, annotations: Sequence[LabelMatrix], distance: LabelDistance = "hierarchical"
) -> float:
    """Compute Krippendorff's alpha of label sets.

    Parameters
    ----------
    hierarchy : Hierarchy
        The hierarchy of the labels.
    annotations : sequence of LabelMatrix, documents x nodes
        The labels that each annotator gave; a document without labels was not annotated. Documents with fewer than two
        annotations do not count.
    distance : str
        "hierarchical" is 1 - hF1 of the closed sets; "nominal" is 0 for equal closed sets and 1 for others.

    Returns
    -------
    float
        NaN without two annotations of a document, or where all annotations are the same.

    >>> h = Hierarchy.from_paths(["A > B", "A > C", "D"])
    >>> one, two = h.closure(np.eye(4)[[2, 2, 3, 1]]), h.closure(np.eye(4)[[2, 3, 3, 1]])
    >>> round(krippendorff_alpha(h, [one, two]), 3), round(krippendorff_alpha(h, [one, two], "nominal"), 3)
    (0.788, 0.667)
    """
    if len(annotations) < 2:
        raise TreelabelError(f"expected the labels of at least 2 annotators, found {len(annotations)}")
    _require_same_documents(annotations)
    if distance not in get_args(LabelDistance):
        raise TreelabelError(f"distance = {distance}, expected {' or '.join(get_args(LabelDistance))}")
    observed, expected, _ = _distances(hierarchy, annotations, distance)
    return float(1 - observed.mean() / expected) if len(observed) and expected > 0 else float("nan")


def agreement(
    hierarchy: Hierarchy, first: LabelMatrix, second: LabelMatrix, resamples: int = 1000, seed: int = 0
) -> Agreement:
    """Compute how far two annotators agree, with intervals over documents.

    Parameters
    ----------
    hierarchy : Hierarchy
        The hierarchy of the labels.
    first, second : LabelMatrix, documents x nodes
        The labels of the two annotators; documents that either left without a label do not count.
    resamples, seed : int
        As for `Result.interval`; the expected distance is that of all documents.

    Returns
    -------
    Agreement
    """
    _require_same_documents((first, second))
    both = (row_sizes(first) > 0) & (row_sizes(second) > 0)
    if not both.any():
        raise TreelabelError("no document has labels of both annotators; agreement needs some")
    sets = first[both], second[both]
    observed, expected, _ = _distances(hierarchy, sets, "hierarchical")
    parts = [np.stack([observed, np.ones(len(observed))], axis=1)]

    def alpha(sums: tuple[Any, ...]) -> float:
        return float(1 - sums[0][0] / sums[0][1] / expected) if expected > 0 else float("nan")

    judged = evaluate(*sets, hierarchy=hierarchy, metrics=["hf1", "subset_accuracy"])
    return Agreement(
        int(both.sum()),
        bootstrap_interval(parts, alpha, resamples, seed=seed),
        krippendorff_alpha(hierarchy, sets, "nominal"),
        judged.interval("hf1", resamples=resamples, seed=seed),
        judged.interval("subset_accuracy", resamples=resamples, seed=seed),
        int(np.count_nonzero(~both)),
    )


def _require_same_documents(annotations: Sequence[LabelMatrix]) -> None:
    counts = [each.shape[0] for each in annotations]
    if len(set(counts)) > 1:
        raise TreelabelError(
            f"annotators of {', '.join(f'{count:,}' for count in counts)} documents cannot be compared"
        )


def _distances(
    hierarchy: Hierarchy, annotations: Sequence[LabelMatrix], distance: LabelDistance
) -> tuple[DoubleArray, float, int]:
    """Return the distance within each unit, weighed so that its mean is D_o; D_e; and the number of annotations."""
    counts = np.sum([row_sizes(each) > 0 for each in annotations], axis=0)
    units = np.flatnonzero(counts >= 2)
    stacked = sparse.vstack([closed_sets(hierarchy, each[units]) for each in annotations], format="csr")
    unit = np.tile(np.arange(len(units)), len(annotations))
    given = row_sizes(stacked) > 0
    stacked, unit = stacked[given], unit[given]
    total = stacked.shape[0]
    if total == 0:
        return np.zeros(0), 0.0, 0
    code, sets = _distinct_rows(stacked)
    within, between = np.zeros(len(units)), 0.0
    weights = np.bincount(code, minlength=sets.shape[0]).astype(np.float64)
    shared = 1.0 if distance == "nominal" else 0.0
    sizes = row_sizes(sets).astype(np.float64)
    table = sets.astype(np.float64)
    for begin in range(0, sets.shape[0], BLOCK):
        block = (table[begin : begin + BLOCK] @ table.T).tocoo()
        left, right = block.row + begin, block.col
        alike = (left == right) if shared else 2 * block.data / (sizes[left] + sizes[right])
        rows = weights[begin : begin + BLOCK].sum()
        between += rows * total - float((weights[left] * weights[right] * alike).sum())
    order = np.argsort(unit, kind="stable")
    pointer = np.append(0, np.cumsum(np.bincount(unit, minlength=len(units))))
    for number in range(len(units)):
        members = code[order[pointer[number] : pointer[number + 1]]]
        some = table[members]
        common = (some @ some.T).toarray()
        alike = members[:, None] == members if shared else 2 * common / (sizes[members][:, None] + sizes[members])
        within[number] = (1.0 - alike).sum() / (len(members) - 1)
    # Units with more annotations weigh more: the mean over annotations, as a mean over units.
    return within * len(units) / total, between / (total * (total - 1)), total


def _distinct_rows(labels: LabelMatrix) -> tuple[LongArray, LabelMatrix]:
    """Number the distinct rows of a label matrix: the number of each row, and the distinct rows."""
    numbers: dict[bytes, int] = {}
    first: list[int] = []
    code = np.zeros(labels.shape[0], np.int64)
    for row in range(labels.shape[0]):
        key = labels.indices[labels.indptr[row] : labels.indptr[row + 1]].tobytes()
        if key not in numbers:
            numbers[key] = len(first)
            first.append(row)
        code[row] = numbers[key]
    return code, labels[np.array(first, np.int64)]
