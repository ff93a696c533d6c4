"""Parts of the documents: values, intervals, tests and their correction, and the option --by."""

import json
import math
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers import Run
from treelabel import Dataset, Hierarchy, Scores, TreelabelError, evaluate
from treelabel.evaluation.document_slices import (
    MOST_SHOWN,
    _random_parts,
    part_of,
    rows_by_label,
    rows_by_value,
    slice_table,
)

TREE = Hierarchy.from_paths(["A > C", "A > D", "B"])
NAMES = ["hf1", "micro_f1", "shortest_path", "macro_f1"]


def random_result(documents: int = 120, seed: int = 0) -> tuple[list[list[str]], list[list[str]]]:
    rng = np.random.default_rng(seed)
    truth = [[str(rng.choice(["C", "D", "B"]))] for _ in range(documents)]
    decisions = [true if rng.random() < 0.7 else [str(rng.choice(["C", "D", "B", "A"]))] for true in truth]
    return truth, decisions


def test_a_part_is_judged_as_if_it_were_alone() -> None:
    truth, decisions = random_result()
    rows = np.arange(0, 120, 3)
    whole = evaluate(truth, decisions, hierarchy=TREE, metrics=NAMES)
    alone = evaluate([truth[row] for row in rows], [decisions[row] for row in rows], hierarchy=TREE, metrics=NAMES)
    part = part_of(whole, rows)
    assert part.values == pytest.approx(alone.values)
    assert str(part.interval("hf1")) == str(alone.interval("hf1"))
    table = slice_table(whole, {"third": rows}, "micro_f1", resamples=50)
    others = np.setdiff1d(np.arange(120), rows)
    assert table.rows[0].difference == pytest.approx(part["micro_f1"] - part_of(whole, others)["micro_f1"])


def test_p_is_the_share_of_all_parts_of_that_size_that_differ_as_much() -> None:
    truth = [["C"]] * 10
    decisions = [["B"], ["B"], ["D"], ["C"], ["B"], *([["C"]] * 5)]
    result = evaluate(truth, decisions, hierarchy=TREE, metrics=["hf1"])
    values, rows = result.documents["hf1"], np.arange(4)

    def difference(inside: tuple[int, ...]) -> float:
        outside = [row for row in range(10) if row not in inside]
        return float(values[list(inside)].mean() - values[outside].mean())

    every = [abs(difference(inside)) for inside in combinations(range(10), 4)]
    expected = np.mean(np.array(every) >= abs(difference((0, 1, 2, 3))) - 1e-12)
    assert 0.05 < expected < 0.5
    found = slice_table(result, {"first": rows}, resamples=4000, least=1).rows[0].p_value
    assert found == pytest.approx(expected, abs=0.03)


def test_a_p_beyond_the_number_of_draws_is_that_of_a_normal_tail() -> None:
    truth = [["C"]] * 400
    decisions = [["C"]] * 200 + [["B"]] * 200
    result = evaluate(truth, decisions, hierarchy=TREE, metrics=["hf1"])
    table = slice_table(result, rows_by_value(["good"] * 200 + ["bad"] * 200), resamples=200)
    assert [row.name for row in table.rows] == ["bad", "good"]
    assert table.rows[0].p_value < 1e-6
    assert table.rows[0].difference == -1
    assert (table.rows[0].interval.low, table.rows[1].interval.high) == (0, 1)
    assert "-1.0000*" in str(table)


@pytest.mark.slow
def test_holm_corrects_within_the_family_and_equal_parts_are_seldom_marked() -> None:
    marked = 0
    for seed in range(40):
        truth, decisions = random_result(100, seed)
        result = evaluate(truth, decisions, hierarchy=TREE, metrics=["hf1"])
        values = np.random.default_rng(seed + 100).integers(0, 5, 100).tolist()
        table = slice_table(result, rows_by_value(values), resamples=200, seed=seed)
        marked += any(row.p_value < 0.05 for row in table.rows)
    # 5% of 40 are 2; 7 or more happen in less than 1% of such series.
    assert marked < 7


def test_the_worst_part_is_first_also_of_a_distance() -> None:
    truth, decisions = random_result()
    result = evaluate(truth, decisions, hierarchy=TREE, metrics=NAMES)
    slices = rows_by_value([number % 4 for number in range(120)])
    best_last = [row.interval.value for row in slice_table(result, slices, "hf1", resamples=20).rows]
    least_last = [row.interval.value for row in slice_table(result, slices, "shortest_path", resamples=20).rows]
    assert best_last == sorted(best_last)
    assert least_last == sorted(least_last, reverse=True)


def test_parts_by_label_overlap_and_levels_are_checked() -> None:
    h = TREE
    labels = h.closure(np.array([[0, 1, 0, 0], [0, 1, 1, 0], [0, 0, 0, 1]]))
    found = rows_by_label(h, labels)
    assert {name: rows.tolist() for name, rows in found.items()} == {
        "A": [1, 2],
        "B": [0, 1],
        "A > C": [1],
        "A > D": [2],
    }
    assert list(rows_by_label(h, labels, 2)) == ["A > C", "A > D"]
    with pytest.raises(TreelabelError, match="level 3: the hierarchy has levels 1 to 2"):
        rows_by_label(h, labels, 3)


def test_few_documents_are_left_out_and_groups_are_not_tested() -> None:
    truth, decisions = random_result(20)
    data = Dataset.of([""] * 20, truth, TREE, groups=[str(number // 2) for number in range(20)])
    result = evaluate(data, decisions, metrics=["hf1"])
    table = slice_table(result, rows_by_value(["a"] * 16 + ["b"] * 4), resamples=20)
    assert ([row.name for row in table.rows], table.few) == (["a"], 1)
    assert math.isnan(table.rows[0].p_value)
    assert "Left out: 1 with too few documents." in str(table)
    assert "Not tested" in str(table)
    assert table.to_json()["rows"][0]["p"] is None


@pytest.fixture
def files(tmp_path: Path) -> Path:
    lines, predicted = ["id,text,label,language"], []
    for number in range(60):
        language = ["en", "fr", ""][number % 3]
        true = "A > C" if number % 2 else "B"
        lines.append(f"{number},t{number},{true},{language}")
        wrong = language == "fr" and number % 4 < 2
        predicted.append(f'{{"id": "{number}", "labels": ["{"A > D" if wrong else true}"]}}')
    (tmp_path / "test.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "predicted.jsonl").write_text("\n".join(predicted) + "\n")
    (tmp_path / "test.taxonomy.tsv").write_text("Root\tA\nRoot\tB\nA\tC\nA\tD\n")
    return tmp_path


def test_the_option_by_names_the_worst_part_first(files: Path, run: Run) -> None:
    given = ("evaluate", files / "test.csv", files / "predicted.jsonl", "--metrics", "hf1,micro_f1")
    told = run(*given, "--by", "language").out
    table = told[told.index("language") :].splitlines()
    assert table[0].startswith("language   documents  hf1")
    assert [line.split()[0] for line in table[1:4]] == ["fr", "(missing)", "en"]
    assert "*" in table[1]
    stored = run(*given, "--by", "level:1", "--json").json["slices"]
    assert {row["name"] for row in stored["rows"]} == {"A", "B"}
    assert {"value", "low", "high", "difference", "p", "documents", "name"} <= stored["rows"][0].keys()
    by_label = run(*given, "--by", "label", "--json").json["slices"]
    assert {row["name"] for row in by_label["rows"]} == {"A", "A > C", "B"}
    ended = run(*given, "--by", "year")
    assert (ended.code, "not a further column of" in ended.err, "expected one of: language" in ended.err) == (
        2,
        True,
        True,
    )


def test_a_misspelt_column_is_told_before_anything_is_judged(files: Path, run: Run) -> None:
    (files / "other.jsonl").write_text('{"id": "x", "labels": ["B"]}\n')
    ended = run("evaluate", files / "test.csv", files / "other.jsonl", "--by", "langage")
    assert (ended.code, "did you mean language?" in ended.err) == (2, True)
    ended = run("evaluate", files / "test.csv", files / "other.jsonl", "--by", "level:4")
    assert (ended.code, "level 4: the hierarchy has levels 1 to 2" in ended.err) == (2, True)


@pytest.mark.slow
def test_a_column_may_begin_late(tmp_path: Path, run: Run) -> None:
    rows: list[dict[str, Any]] = [
        {"id": str(number), "text": "t", "labels": ["A" if number % 3 else "B"]} for number in range(9000)
    ]
    for row in rows[-20:]:
        row["year"] = 2026
    truth, predicted = tmp_path / "truth.jsonl", tmp_path / "predicted.jsonl"
    truth.write_text("".join(json.dumps(row) + "\n" for row in rows))
    predicted.write_text("".join(json.dumps({"id": row["id"], "labels": ["A"]}) + "\n" for row in rows))
    found = run("evaluate", truth, predicted, "--by", "year", "--metrics", "hf1", "--json").json["slices"]
    assert {row["name"]: row["documents"] for row in found["rows"]} == {"2026": 20, "(missing)": 8980}


def test_tables_say_what_is_not_there() -> None:
    truth, decisions = random_result(60)
    result = evaluate(truth, decisions, hierarchy=TREE, metrics=["hf1"])
    none = slice_table(result, rows_by_value(range(60)), by="id")
    assert str(none) == "id: 60 parts, none with 5 documents or more, so nothing is judged."
    # A part that is all documents has no others.
    only = slice_table(result, rows_by_value(["x"] * 60), resamples=20)
    assert "nan" not in str(only)
    assert "Holm" not in str(only)
    assert only.to_json()["rows"][0]["difference"] is None


def test_a_part_in_which_no_document_counts_has_no_value() -> None:
    truth: list[list[str]] = [["B"], []] * 10
    scores = Scores(TREE, np.tile([[0.5, 0.25, 0.25, 0.25]], (20, 1)))
    result = evaluate(truth, scores=scores, hierarchy=TREE, metrics=["recall@1"])
    told = str(slice_table(result, rows_by_value(["some", "none"] * 10), resamples=20))
    assert told.splitlines()[2].split(maxsplit=2) == ["none", "10", "(no value: no document counts)"]
    assert "nan" not in told


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        (np.arange(58, 64), r"int64 \(6,\) from 58 to 63"),
        (np.arange(-5, 3), r"from -5 to 2"),
        (np.ones(6, np.int64), r"from 1 to 1"),
        (np.arange(60) < 10, r"bool \(60,\)$"),
        (np.arange(6.0), r"float64 \(6,\)$"),
    ],
)
def test_what_are_no_rows_is_refused(rows: Any, found: str) -> None:
    truth, decisions = random_result(60)
    result = evaluate(truth, decisions, hierarchy=TREE, metrics=["hf1"])
    with pytest.raises(TreelabelError, match=f"part 'x': expected numbers of rows from 0 to 59, each once, .*{found}"):
        slice_table(result, {"x": rows}, resamples=5)


def test_a_long_table_shows_the_worst_parts() -> None:
    documents = 5 * (MOST_SHOWN + 3)
    truth, decisions = random_result(documents)
    result = evaluate(truth, decisions, hierarchy=TREE, metrics=["hf1"])
    table = slice_table(result, rows_by_value([number // 5 for number in range(documents)]), resamples=5)
    lines = str(table).splitlines()
    assert len(table.rows) == len(table.to_json()["rows"]) == MOST_SHOWN + 3
    assert lines[MOST_SHOWN + 1] == "... and 3 better parts (--json has all)."
    assert lines[1].split()[0] == table.rows[0].name


def test_random_parts_are_those_of_a_dense_sum() -> None:
    truth, decisions = random_result(40)
    result = evaluate(truth, decisions, hierarchy=TREE, metrics=["micro_f1"])
    parts = next(iter(result.parts.values()))
    drawn = list(_random_parts(parts, 7, 30, 0))
    assert len(drawn) == 30
    for sums in drawn:
        assert [len(each) for each in sums] == [part.shape[1] for part in parts]
        assert sums[3].tolist() == [7]
        assert (np.minimum(sums[0], sums[1]) >= sums[2]).all()
    means = np.mean([np.concatenate(sums) for sums in drawn], axis=0)
    whole = np.concatenate([np.asarray(part.sum(axis=0)).ravel() for part in parts])
    assert means == pytest.approx(whole * 7 / 40, abs=1.5)
