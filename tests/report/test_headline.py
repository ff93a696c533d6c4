"""The first lines of a report: what it is about, and what a person asks first."""

from datetime import datetime
from pathlib import Path

import numpy as np
import pytest

from treelabel import Dataset, Hierarchy, Scores
from treelabel.report.content import make_content

pytest.importorskip("matplotlib")
TREE = Hierarchy.from_paths([f"A > {name}" for name in "abcdefghij"] + ["B > x"])


def truth_and_scores() -> tuple[Dataset, Scores]:
    rng = np.random.default_rng(0)
    leaves = [TREE.names[node] for node in TREE.leaves]
    true = [leaves[rng.integers(11)] for _ in range(120)]
    data = Dataset.of([f"text {row}" for row in range(120)], [[name] for name in true], TREE)
    return data, Scores.from_leaves(TREE, leaves, rng.dirichlet(np.ones(11), 120))


def test_a_report_says_what_it_is_about_and_how_many_are_right(tmp_path: Path) -> None:
    from treelabel import write_report

    data, scores = truth_and_scores()
    write_report(tmp_path / "page.html", data, {"chance": scores}, data="animals.csv")
    page = (tmp_path / "page.html").read_text()
    assert "<title>chance on animals.csv</title>" in page
    assert f"animals.csv, {datetime.now():%-d %B %Y}: 120 documents" in page
    assert " of 120 exactly right (" in page


def test_confusion_tables_say_how_many_of_how_many_labels_they_show() -> None:
    data, scores = truth_and_scores()
    tables = make_content(data, {"chance": scores}, resamples=20).details[0].sibling_tables
    below_a = next(table for table in tables if table.parent == TREE.ids_by_name["A"][0])
    assert (len(below_a.children), below_a.siblings) == (8, 10)
    root = next(table for table in tables if table.parent == -1)
    assert root.siblings == 2
