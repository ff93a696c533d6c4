"""Columns of predictions against a loop over documents, with sets that are closed, open, or both; and names."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from tests.reference import matrix_of
from tests.strategies import Drawn, examples, hierarchies, with_scores
from treelabel import Decisions, Hierarchy, Scores
from treelabel.rules.decision_columns import (
    SEPARATORS,
    WrittenLabels,
    chosen_labels,
    column_names,
    label_separator,
    prediction_columns,
    runner_up_labels,
)

# Ids: A 0, D 1, B 2, C 3, E 4.
TREE = Hierarchy.from_paths(["A > B > E", "A > C", "D"])


@st.composite
def decided(draw: st.DrawFn) -> tuple[Drawn, Any, list[set[int]]]:
    """Draw scores and label sets of as many documents, some closed."""
    drawn, values = draw(with_scores(hierarchies()))
    sets = [draw(st.sets(st.integers(0, len(drawn) - 1), max_size=4)) for _ in values]
    return drawn, values, [drawn.slow.closure(row) if draw(st.booleans()) else row for row in sets]


def written(drawn: Drawn, labels: set[int], all_labels: bool) -> set[int]:
    """Return the most specific labels of a closed set, and other sets as they are."""
    is_closed = drawn.slow.closure(labels) == labels
    return drawn.slow.most_specific(labels) if is_closed and not all_labels else labels


def listed(found: WrittenLabels, row: int) -> list[tuple[int, float]]:
    assert found.p is not None
    part = slice(found.ptr[row], found.ptr[row + 1])
    return list(zip(found.nodes[part].tolist(), found.p[part].tolist(), strict=True))


def sorted_by_score(labels: Any, scores: list[float]) -> list[tuple[int, float]]:
    return sorted(((label, scores[label]) for label in labels), key=lambda pair: (-pair[1], pair[0]))


@examples(60)
@given(decided(), st.booleans(), st.integers(1, 4))
def test_labels_and_runners_up_are_those_of_a_loop(
    case: tuple[Drawn, Any, list[set[int]]], all_labels: bool, count: int
) -> None:
    drawn, values, sets = case
    decisions = Decisions(drawn.fast, matrix_of(sets, len(drawn)))
    for scores in (Scores(drawn.fast, values), Scores(drawn.fast, sparse.csr_array(values))):
        found, others = chosen_labels(decisions, scores, all_labels), runner_up_labels(decisions, scores, count)
        for row, (labels, p) in enumerate(zip(sets, values.tolist(), strict=True)):
            assert listed(found, row) == sorted_by_score(written(drawn, labels, all_labels), p)
            rest = [leaf for leaf in drawn.slow.leaves - labels if p[leaf] > 0]
            assert listed(others, row) == sorted_by_score(rest, p)[:count]
    plain = chosen_labels(decisions, None, all_labels)
    expected = [sorted(written(drawn, labels, all_labels)) for labels in sets]
    assert [plain.nodes[start:stop].tolist() for start, stop in zip(plain.ptr, plain.ptr[1:], strict=False)] == expected
    assert plain.p is None


@examples(40)
@given(decided(), st.booleans(), st.integers(0, 3), st.sampled_from(["; ", None]))
def test_a_table_is_that_of_a_loop(
    case: tuple[Drawn, Any, list[set[int]]], all_labels: bool, alternatives: int, sep: str | None
) -> None:
    drawn, values, sets = case
    h, scores = drawn.fast, Scores(drawn.fast, values)
    decisions = Decisions(h, matrix_of(sets, len(drawn)))
    table = prediction_columns(decisions, scores, sep, all_labels, alternatives, several=True)
    assert list(table) == list(column_names(h.max_depth, alternatives, sep is not None))
    rows = {name: column.to_pylist() for name, column in table.items()}

    def cell(texts: list[str]) -> Any:
        return texts if sep is None else sep.join(texts) if texts else None

    for row, (labels, p) in enumerate(zip(sets, values.tolist(), strict=True)):
        best = sorted_by_score(written(drawn, labels, all_labels), p)
        assert rows["predicted"][row] == cell([h.names[label] for label, _ in best])
        assert rows["path"][row] == cell([h.paths([label])[0] for label, _ in best])
        numbers = [score for _, score in best]
        assert rows["p"][row] == (numbers if sep is None else numbers[0] if numbers else None)
        if sep is not None:
            assert rows["all_p"][row] == cell([str(number) for number in numbers])
        for depth in range(1, h.max_depth + 1):
            level = [label for label in sorted(drawn.slow.closure(labels)) if drawn.slow.longest_depth(label) == depth]
            assert rows[f"level{depth}"][row] == cell([h.names[label] for label in level])
        rest = sorted_by_score([leaf for leaf in drawn.slow.leaves - labels if p[leaf] > 0], p)
        for rank in range(alternatives):
            label, score = rest[rank] if rank < len(rest) else (None, None)
            assert rows[f"alternative{rank + 1}"][row] == (None if label is None else h.names[label])
            assert rows[f"alternative{rank + 1}_p"][row] == score


def test_an_open_set_beside_a_closed_one_keeps_labels_above_others() -> None:
    scores = Scores(TREE, [[0.9, 0.1, 0.8, 0.1, 0.7]] * 2)
    for sets, expected in (([{2, 4}, {0, 2, 4}], [[2, 4], [4]]), ([{0, 2}, {2, 4}], [[2], [2, 4]])):
        found = chosen_labels(Decisions(TREE, matrix_of(sets, 5)), scores)
        assert [[label for label, _ in listed(found, row)] for row in range(2)] == expected


def test_without_a_separator_there_is_one_column_of_probabilities() -> None:
    scores = Scores(TREE, [[0.9, 0.1, 0.8, 0.1, 0.7]])
    decisions = Decisions(TREE, matrix_of([{0, 2, 4}], 5))
    assert "all_p" not in prediction_columns(decisions, scores, None, several=True)
    assert "all_p" not in prediction_columns(decisions, scores, "; ")
    assert prediction_columns(decisions, scores, "; ", several=True)["all_p"].to_pylist() == ["0.7"]


def test_alternatives_of_equal_names_are_told_by_their_paths() -> None:
    h = Hierarchy.from_paths(["A > Other", "B > Other", "B > C"])
    scores = Scores(h, [[0.5, 0.5, 0.2, 0.3, 0.4]])
    table = prediction_columns(Decisions(h, matrix_of([set()], 5)), scores, "; ", alternatives=3)
    assert [table[f"alternative{rank}"][0].as_py() for rank in (1, 2, 3)] == ["B > C", "B > Other", "A > Other"]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["a", "b"], "; "),
        (["a;b", "c"], " | "),
        (["a|b", "c"], "; "),
        (["a;b", "c|d"], " || "),
        (["a;b", "c||d"], " ;; "),
        (["a;;b", "c||d"], "\n"),
    ],
)
def test_labels_are_separated_by_the_first_mark_that_none_holds(names: list[str], expected: str) -> None:
    assert label_separator(Hierarchy.flat(names)) == expected
    assert expected in SEPARATORS


def test_columns_are_named_by_level_and_rank_and_stay_apart_from_others() -> None:
    assert list(column_names(2, 2, True, identifiers=["uri"])) == [
        *("predicted", "path", "p", "all_p", "uri", "level1", "level2"),
        *("alternative1", "alternative1_p", "alternative2", "alternative2_p"),
    ]
    names = column_names(1, 0, False, ["P", "predicted_p", "predicted_p_", "LEVEL1"])
    assert names == {"predicted": "predicted", "path": "path", "p": "predicted_p__", "level1": "predicted_level1"}
