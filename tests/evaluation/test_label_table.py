"""The table of labels and the wrong documents: counts, what is predicted instead, kinds of mistakes, the order."""

from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import sparse

from treelabel import Hierarchy
from treelabel.evaluation.error_analysis import (
    NOTHING_AS_DEEP,
    LabelTable,
    WrongDocuments,
    mistakes,
    nearest,
    table_text,
)
from treelabel.hierarchy import LabelMatrix
from treelabel.hierarchy.label_ids import encode

TREE = Hierarchy.from_paths(["A > C > F", "A > D", "B > E"])
DAG = Hierarchy.from_edges([("A", "C"), ("B", "C"), ("C", "D"), ("A", "E")])


def closed(h: Hierarchy, rows: list[list[str]]) -> LabelMatrix:
    return h.closure(encode(h, rows))


def drawn(h: Hierarchy, size: int, seed: int) -> tuple[LabelMatrix, LabelMatrix]:
    rng = np.random.default_rng(seed)
    one, two = (h.closure(sparse.csr_array(rng.random((size, len(h))) < 0.2)) for _ in range(2))
    return one, two


def sets(labels: LabelMatrix) -> list[set[int]]:
    return [set(labels.indices[low:high].tolist()) for low, high in zip(labels.indptr, labels.indptr[1:], strict=False)]


def test_rows_count_and_are_worst_first() -> None:
    table = LabelTable(TREE, np.array([9, 5, 4, 3, 5, 4]))
    table.add(closed(TREE, [["F"], ["F"], ["D"], ["E"]]), closed(TREE, [["D"], ["E"], ["D"], ["E"]]))
    rows = {row["label"]: SimpleNamespace(**row) for row in table.rows()}
    assert list(rows)[:3] == ["A > C", "A > C > F", "B"]
    f = rows["A > C > F"]
    assert (f.train, f.true, f.predicted, f.missed, f.wrong, f.precision, f.recall, f.f1) == (4, 2, 0, 2, 0, 0, 0, 0)
    assert (f.confused_with, f.confused) == (NOTHING_AS_DEEP, 2)
    c = rows["A > C"]
    assert (c.confused_with, c.confused) == ("A > D", 1)
    assert (rows["B > E"].true, rows["B > E"].predicted, rows["B > E"].precision) == (1, 2, 0.5)
    assert rows["B > E"].confused_with is None


@pytest.mark.parametrize("h", [TREE, DAG], ids=["tree", "dag"])
def test_what_is_predicted_instead_is_counted_as_sets_would(h: Hierarchy) -> None:
    truth, decisions = drawn(h, 60, 1)
    table = LabelTable(h)
    for start in range(0, 60, 7):
        table.add(truth[start : start + 7], decisions[start : start + 7])
    expected: Counter[tuple[int, int]] = Counter()
    for true, found in zip(sets(truth), sets(decisions), strict=True):
        for label in true - found:
            instead = [other for other in found - true if h.depth[other] == h.depth[label]]
            expected.update((label, other) for other in instead or [-1])
    size = len(h) + 1
    assert {(code // size, code % size - 1): count for code, count in table.instead.items()} == dict(expected)


def test_the_text_shows_the_first_rows_and_says_how_many_more() -> None:
    table = LabelTable(TREE)
    table.add(closed(TREE, [["F"], ["D"]]), closed(TREE, [["D"], ["D"]]))
    lines = table_text(table.rows(), most=2).splitlines()
    assert lines[0].split() == ["label", "true", "pred.", "prec.", "rec.", "F1", "most", "confused", "with"]
    assert lines[-1] == "... and 2 more labels"
    assert "train" not in lines[0]
    assert len(str(table).splitlines()) == 5


@pytest.mark.parametrize(
    ("true", "found", "kind", "distance"),
    [
        (["C"], ["D"], "sibling", 2),
        (["A"], ["B"], "sibling", 2),
        (["F"], ["A"], "ancestor", 2),
        (["A"], ["F"], "descendant", 2),
        (["F"], ["E"], "far", 5),
        (["F"], [], "missing", 3),
        ([], ["E"], "unwanted", 2),
        (["F", "E"], ["F"], "far", 5),
        (["F", "E"], ["F", "D"], "far", 4),
    ],
)
def test_a_mistake_has_a_kind_and_a_distance(true: list[str], found: list[str], kind: str, distance: int) -> None:
    wrong = WrongDocuments(TREE)
    wrong.add(["x"], closed(TREE, [true]), closed(TREE, [found]))
    (only,) = wrong.worst()
    assert (only.kind, only.distance) == (kind, distance)
    assert only.p is None


def test_right_documents_are_no_mistakes() -> None:
    labels = closed(TREE, [["F"], [], ["A"], ["E", "D"]])
    assert len(mistakes(TREE, labels, labels)[0]) == 0
    wrong = WrongDocuments(TREE)
    wrong.add(list("abcd"), labels, labels)
    assert str(wrong) == "0 of 4 documents are wrong"


def test_the_furthest_and_then_the_surest_come_first_and_only_the_worst_are_kept() -> None:
    wrong = WrongDocuments(TREE, most=3)
    true, found = [["F"], ["C"], ["C"], ["D"], ["F"]], [["E"], ["D"], ["D"], ["D"], ["C"]]
    for at in range(5):
        p = np.array([[0.5, 0.6, 0.9, 1.0, np.nan][at]])
        wrong.add(["abcde"[at]], closed(TREE, [true[at]]), closed(TREE, [found[at]]), [f"text {at}"], p)
    assert [each.id for each in wrong.worst()] == ["a", "c", "b"]
    assert (wrong.count, wrong.seen) == (4, 5)
    assert wrong.worst()[1].text == "text 2"
    assert wrong.worst()[1].true == ("A > C",)
    assert str(wrong) == "4 of 5 documents are wrong (2 sibling, 1 far, 1 ancestor); the 3 worst are kept"


@pytest.mark.parametrize("h", [TREE, DAG], ids=["tree", "dag"])
def test_the_nearest_label_has_the_fewest_edges(h: Hierarchy) -> None:
    labels, others = drawn(h, 40, 2)
    node, edges = nearest(h, labels, others)
    at = 0
    for mine, theirs in zip(sets(labels), sets(others), strict=True):
        for label in sorted(mine):
            options = sorted((int(h.distance([label], [other])[0]), other) for other in theirs)
            expected = options[0] if options else (int(h.shortest_depth[label]), -1)
            assert (int(edges[at]), int(node[at])) == expected
            at += 1
    assert at == labels.nnz
