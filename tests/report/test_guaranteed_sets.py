"""Sets with a guarantee in reports: by hand, and on the page."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.report.examples import TREE, dataset, judged
from treelabel import Dataset, Scores, tune
from treelabel.report.content import make_content
from treelabel.report.guaranteed_sets import guaranteed_sets
from treelabel.report.writing import write_report

ROWS = [["F"], ["G"], ["D"], ["E"], ["F"]]
# The best leaf is F, whose ancestors C and A have more; of the last document nothing is certain.
SURE, UNSURE = [0.75, 0.125, 0.625, 0.25, 0.125, 0.5, 0.125], [0.5, 0.5, 0.25, 0.25, 0.5, 0.125, 0.125]
SCORES = Scores(TREE, [SURE, SURE, SURE, SURE, UNSURE])


def test_coverage_as_a_whole_and_in_parts_by_hand() -> None:
    names = [TREE.names[node] for node in range(len(TREE))]
    assert names == ["A", "B", "C", "D", "E", "F", "G"]
    found = guaranteed_sets(judged(dataset(TREE, ROWS), SCORES, rule="conformal(t=0.55, coverage=0.9)"))
    assert found is not None
    # C for the first four, of which F and G are below it; the root for the last, whose best leaf E has 0.5.
    assert (found.asked, found.unit, found.whole.documents) == (0.9, "leaves", 5)
    assert found.whole.reached.value == pytest.approx(3 / 5)
    assert found.whole.size == pytest.approx((4 * 2 + 4) / 5)
    assert found.nodes == 1
    parts = {
        name: [(each.name, each.documents, each.reached.value) for each in some] for name, some in found.parts.items()
    }
    assert parts == {
        "Level of the most specific node": [("root: anything", 1, 1.0), ("2", 4, 0.5)],
        "True top label": [("A", 4, 0.75), ("B", 1, 0.0)],
    }


def test_recall_and_precision_by_hand() -> None:
    truth = dataset(TREE, [["F", "E"], ["G"], ["D"], [], ["F"]])
    recall = guaranteed_sets(judged(truth, SCORES, rule="risk_control(t=0.5, at_least=0.8)"))
    assert recall is not None
    # A, C and F of A, C, F, B, E; A and C of A, C, G; A of A, D; nothing to miss; A of A, C, F.
    assert recall.whole.reached.value == pytest.approx((3 / 5 + 2 / 3 + 1 / 2 + 1 + 1 / 3) / 5)
    assert (recall.asked, recall.unit) == (0.8, "labels")
    correct = guaranteed_sets(judged(truth, SCORES, rule="risk_control(t=0.6, metric=correct, at_least=0.8)"))
    assert correct is not None
    # A and C: right for two of the four documents that get a label; the last gets none.
    assert (correct.whole.documents, correct.whole.reached.value) == (4, 0.5)
    assert guaranteed_sets(judged(truth, SCORES, rule="best_leaf")) is None


@pytest.mark.slow
def test_the_page_has_a_section_for_them(tmp_path: Path) -> None:
    data = dataset(TREE, ROWS * 6)
    values = pa.chunked_array([["web", "paper", "web", "web", "paper"] * 6])
    data = Dataset(data.ids, data.texts, data.labels, TREE, {"origin": values})
    scores = Scores(TREE, [SURE, SURE, SURE, SURE, UNSURE] * 6)
    rule: Any = tune(data, scores, "conformal(coverage=0.8)", by="origin")
    content = make_content(data, {"system": scores}, rule=rule)
    sets = content.details[0].sets
    assert sets is not None
    assert [(each.name, each.documents) for each in sets.parts["origin"]] == [("paper", 12), ("web", 18)]
    assert any("stands for the root and covers any label" in note for note in content.notes)
    write_report(tmp_path / "report.html", data, {"system": scores}, rule=rule)
    page = (tmp_path / "report.html").read_text()
    assert '<a href="#sets">Sets</a>' in page
    assert "was calibrated for at least <strong>0.8</strong>" in page
    write_report(tmp_path / "plain.html", data, {"system": scores}, rule="best_leaf")
    assert "#sets" not in (tmp_path / "plain.html").read_text()
