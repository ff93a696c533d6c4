"""The figure of climbing: when it is shown, and what it says."""

import numpy as np

from treelabel import Dataset, Hierarchy, Scores
from treelabel.report.content import make_content
from treelabel.report.figures import drawings

TREE = Hierarchy.from_paths(["A > B", "A > C", "D > E", "D > F"])
ROWS = [[0.5, 0.25, 0.125, 0.125], [0.5, 0.25, 0.125, 0.125], [0.125, 0.125, 0.5, 0.25]]


def names(labels: list[list[str]], h: Hierarchy = TREE) -> dict[str, str]:
    scores = Scores.from_leaves(h, [h.names[leaf] for leaf in h.leaves], np.array(ROWS)[:, : len(h.leaves)])
    content = make_content(Dataset.of(["x", "y", "z"], labels, h), {"s": scores}, resamples=10)
    return {drawing.name: drawing.alt for drawing in drawings(content)}


def test_one_path_over_a_tree_is_drawn_with_its_area() -> None:
    # A leaf keeps all, A and D half. B is right in one of two; from 0 to 1 the risk is 0 up to A, then rises to 1/3.
    alt = names([["B"], ["C"], ["E"]])["risk-by-climbing"]
    assert alt.endswith("s: area 0.08, risk of the best leaf 0.33.")


def test_several_paths_and_dags_are_not() -> None:
    assert "risk-by-climbing" not in names([["B", "E"], ["C", "F"], ["E", "C"]])
    dag = Hierarchy.from_edges([("A", "B"), ("A", "C"), ("D", "C"), ("D", "E")])
    assert "risk-by-climbing" not in names([["B"], ["C"], ["E"]], dag)
