"""Data for the tests of reports: small enough to count by hand, odd enough to break pages."""

from typing import Any

import numpy as np

from treelabel import Dataset, Hierarchy, Scores
from treelabel.report.systems import ReportSystem, judge_systems

TREE = Hierarchy.from_paths(["A > C > F", "A > C > G", "A > D", "B > E"])
DAG = Hierarchy.from_edges([("A", "B"), ("A", "C"), ("B", "D"), ("C", "D"), ("E", "D"), ("E", "F")])
SCRIPT = "<script>alert(1)</script>"
# Resamples that are enough where only the numbers in the middle matter.
FEW = 20


def dataset(hierarchy: Hierarchy, rows: list[list[str]]) -> Dataset:
    """Make documents with the given labels."""
    return Dataset.of([f"text {row}" for row in range(len(rows))], rows, hierarchy)


def random_case(hierarchy: Hierarchy, seed: int, documents: int = 30, most: int = 3) -> tuple[Dataset, Scores, Any]:
    """Draw documents with up to `most` labels, scores, and label sets that are often right."""
    rng = np.random.default_rng(seed)

    def labels() -> list[str]:
        return [hierarchy.names[node] for node in rng.choice(len(hierarchy), rng.integers(0, most + 1), replace=False)]

    rows = [labels() for _ in range(documents)]
    found = [row if rng.random() < 0.4 else labels() for row in rows]
    scores = Scores(hierarchy, rng.random((documents, len(hierarchy))).round(2)).coherent()
    return dataset(hierarchy, rows), scores, found


def judged(truth: Dataset, given: Any, **options: Any) -> ReportSystem:
    """Judge one system."""
    return judge_systems(truth, {"system": given}, resamples=FEW, **options)[0]
