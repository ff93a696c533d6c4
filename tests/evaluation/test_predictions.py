"""Prediction files: the exact lines, and reading them back."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from tests.reference import sets_of
from tests.strategies import dag_parents, examples, tree_parents
from treelabel import Decisions, Hierarchy, Scores, TreelabelError, decide, read, write_predictions
from treelabel.evaluation.predictions import prediction_lines

# Columns are A, B, C, A > Other, B > Other.
TWICE = Hierarchy.from_paths(["A > Other", "B > Other", "C"])
VALUES = np.array([[0.9, 0.5, 0.2, 0.8, 0.5], [0, 0, 0, 0, 0], [0.1, 0.2, 0.3, 0.05, 0.1]])
SCORES = Scores(TWICE, VALUES, ("x", "y", "z"))

OTHER_A = '{"label": "Other", "path": "A > Other", "p": 0.8}'
OTHER_B = '{"label": "Other", "path": "B > Other", "p": 0.5}'


@pytest.mark.parametrize("form", ["dense", "csr"])
def test_the_most_specific_labels_are_written_surest_first(form: str) -> None:
    scores = SCORES if form == "dense" else Scores(TWICE, SCORES.csr(), SCORES.ids)
    assert list(prediction_lines(decide(scores, "threshold@0.3"), scores)) == [
        f'{{"id": "x", "labels": [{OTHER_A}, {OTHER_B}], "closed": true}}',
        '{"id": "y", "labels": [], "closed": true}',
        '{"id": "z", "labels": [{"label": "C", "path": "C", "p": 0.3}], "closed": true}',
    ]


def test_surest_first_is_not_the_order_of_nodes() -> None:
    scores = Scores(TWICE, [[0.3, 0.7, 0.5, 0.3, 0.6]])
    line = json.loads(next(prediction_lines(decide(scores, "threshold@0.3"), scores)))
    assert [(entry["path"], entry["p"]) for entry in line["labels"]] == [
        ("B > Other", 0.6),
        ("C", 0.5),
        ("A > Other", 0.3),
    ]


def test_ancestors_are_written_on_request() -> None:
    first = next(prediction_lines(decide(SCORES), SCORES, all_labels=True))
    above_a, above_b = '{"label": "A", "path": "A", "p": 0.9}', '{"label": "B", "path": "B", "p": 0.5}'
    assert first == f'{{"id": "x", "labels": [{above_a}, {OTHER_A}, {above_b}, {OTHER_B}], "closed": true}}'


def test_documents_on_which_the_rule_abstained_are_marked() -> None:
    assert list(prediction_lines(decide(SCORES, "best_leaf", unknown=0.5), SCORES)) == [
        f'{{"id": "x", "labels": [{OTHER_A}], "closed": true}}',
        '{"id": "y", "labels": [], "closed": true, "unknown": true}',
        '{"id": "z", "labels": [], "closed": true, "unknown": true}',
    ]


def test_without_ids_rows_are_counted_and_without_scores_none_is_written() -> None:
    unnamed = Decisions(TWICE, decide(SCORES, "best_leaf").csr)
    assert list(prediction_lines(unnamed)) == [
        '{"id": "0", "labels": [{"label": "Other", "path": "A > Other"}], "closed": true}',
        '{"id": "1", "labels": [], "closed": true}',
        '{"id": "2", "labels": [{"label": "C", "path": "C"}], "closed": true}',
    ]


def test_sets_that_are_not_closed_are_written_as_they_are() -> None:
    h = Hierarchy.from_paths(["A > B > C"])
    scores = Scores(h, [[0.9, 0.5, 0.4]])
    for thresholds, paths in {
        (0.9, 0.5, 0.4): ["A > B > C"],
        (0.9, 1, 0.4): ["A", "A > B > C"],
        (1, 0.5, 0.4): ["A > B", "A > B > C"],
        (1, 1, 0.4): ["A > B > C"],
    }.items():
        found = decide(scores, "threshold", t=thresholds, closed=False)
        line = json.loads(next(prediction_lines(found, scores)))
        assert [entry["path"] for entry in line["labels"]] == paths


def test_an_ancestor_without_a_score_has_none() -> None:
    scores = Scores(TWICE, sparse.csr_array(np.array([[0, 0, 0, 0, 0.75]])))
    line = json.loads(next(prediction_lines(decide(scores), scores, all_labels=True)))
    assert [(entry["path"], entry["p"]) for entry in line["labels"]] == [("B > Other", 0.75), ("B", 0.0)]


def test_scores_have_the_digits_that_single_precision_has() -> None:
    scores = Scores(Hierarchy.flat(["a"]), [[1 / 3], [0.1], [1.0]])
    lines = [json.loads(line) for line in prediction_lines(decide(scores, "threshold@0.1"), scores)]
    assert [line["labels"][0]["p"] for line in lines] == [0.3333333, 0.1, 1.0]


def test_names_are_written_as_they_are() -> None:
    flat = Hierarchy.flat(['naïve "quote"', "日本"])
    line = next(prediction_lines(decide(Scores(flat, [[0.9, 0.1]]))))
    assert (
        line == '{"id": "0", "labels": [{"label": "naïve \\"quote\\"", "path": "naïve \\"quote\\""}], "closed": true}'
    )


# There and back


@st.composite
def decisions(draw: st.DrawFn) -> tuple[Decisions, Scores]:
    """Draw decisions over a tree or DAG; in trees names are often the same under different parents."""
    parents = draw(tree_parents() | dag_parents())
    if all(len(above) == 1 for above in parents):
        paths: list[list[str]] = []
        for node, above in enumerate(parents):
            start = paths[min(above)] if min(above) >= 0 else []
            # Siblings differ, cousins need not.
            paths.append([*start, f"{sum(other == above for other in parents[:node])}"])
        h = Hierarchy.from_paths(paths)
    else:
        edges = [("root" if up < 0 else f"n{up}", f"n{node}") for node, above in enumerate(parents) for up in above]
        h = Hierarchy.from_edges(edges, root="root")
    rows = draw(st.lists(st.binary(min_size=len(h), max_size=len(h)), min_size=1, max_size=4))
    values = np.array([list(row) for row in rows]) / np.float32(255)
    scores = Scores(h, values, tuple(f"document {row}" for row in range(len(rows))))
    rule = draw(st.sampled_from(["threshold@0.6", "best_leaf", "top_k@3", "threshold(t=0.7, unknown=0.9)"]))
    return decide(scores, rule), scores


@examples(60)
@given(case=decisions(), with_scores=st.booleans(), all_labels=st.booleans(), ending=st.sampled_from(["", ".gz"]))
def test_what_is_written_is_read_as_the_same_sets(
    case: tuple[Decisions, Scores], with_scores: bool, all_labels: bool, ending: str, tmp_path_factory: Any
) -> None:
    found, scores = case
    h = found.hierarchy
    file = tmp_path_factory.mktemp("predictions") / f"found.jsonl{ending}"
    write_predictions(found, file, scores if with_scores else None, all_labels)
    stored = read(file, taxonomy=h, need_text=False)
    assert tuple(stored.ids) == found.ids
    assert sets_of(h.closure(stored.labels), len(h)) == sets_of(found.csr, len(h))
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_many_documents_keep_their_order_and_scores(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    values = sparse.random_array((500, len(TWICE)), density=0.5, rng=rng, dtype=np.float32, format="csr")
    scores = Scores(TWICE, values, tuple(map(str, rng.permutation(500))))
    found = decide(scores, "best_leaf(closed=false)")
    write_predictions(found, tmp_path / "found.jsonl", scores)
    lines = [json.loads(line) for line in (tmp_path / "found.jsonl").read_text().splitlines()]
    assert tuple(line["id"] for line in lines) == scores.ids
    for line, row in zip(lines, scores.dense(), strict=True):
        best = row[TWICE.leaves].max()
        assert [entry["p"] for entry in line["labels"]] == ([pytest.approx(best)] if best > 0 else [])


def test_a_file_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    # Two documents, but the scores of one: the second line cannot be made.
    found = decide(Scores(TWICE, VALUES[[0, 0]]))
    with pytest.raises(TreelabelError, match="decisions, but scores of"):
        write_predictions(found, tmp_path / "found.jsonl", Scores(TWICE, VALUES[[0]]))
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "folder.jsonl").mkdir()
    with pytest.raises(TreelabelError, match="is a folder"):
        write_predictions(found, tmp_path / "folder.jsonl")
    with pytest.raises(TreelabelError, match=r"expected a name that ends in \.jsonl"):
        write_predictions(found, tmp_path / "found.csv")
    other = Scores(TWICE, VALUES[[0, 0]], ("x", "y"))
    with pytest.raises(TreelabelError, match="scores are of other documents"):
        write_predictions(decide(Scores(TWICE, VALUES[[0, 0]], ("a", "b"))), tmp_path / "found.jsonl", other)
    with pytest.raises(TreelabelError, match="expected Decisions to write, found Scores"):
        write_predictions(other, tmp_path / "found.jsonl")  # type: ignore[arg-type]
