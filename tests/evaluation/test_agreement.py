"""Krippendorff's alpha against brute force, and against values of the package krippendorff 0.9 for nominal data."""

import math
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers import Run
from tests.reference import matrix_of
from tests.strategies import Drawn, dags, examples, trees
from treelabel import Hierarchy, TreelabelError
from treelabel.evaluation.agreement import LabelDistance, agreement, krippendorff_alpha
from treelabel.hierarchy.label_ids import encode

FLAT = Hierarchy.flat("abcde")


def slow_alpha(drawn: Drawn, annotators: list[list[set[int]]], distance: LabelDistance) -> float:
    """Alpha by its definition: all pairs of annotations of a unit, and all pairs of annotations."""

    def apart(one: frozenset[int], two: frozenset[int]) -> float:
        return float(one != two) if distance == "nominal" else 1 - 2 * len(one & two) / (len(one) + len(two))

    units = []
    for sets in zip(*annotators, strict=True):
        found = [frozenset(drawn.slow.closure(labels)) for labels in sets if labels]
        units += [found] if len(found) >= 2 else []
    every = [labels for unit in units for labels in unit]
    if not every:
        return math.nan
    observed = sum(sum(apart(*pair) for pair in permutations(unit, 2)) / (len(unit) - 1) for unit in units) / len(every)
    expected = sum(apart(*pair) for pair in permutations(every, 2)) / (len(every) * (len(every) - 1))
    return 1 - observed / expected if expected else math.nan


@pytest.mark.parametrize("distance", ["hierarchical", "nominal"])
@examples(60)
@given(data=st.data())
def test_alpha_is_that_of_all_pairs(distance: LabelDistance, data: st.DataObject) -> None:
    drawn = data.draw(st.one_of(trees(8), dags(8)))
    documents, count = data.draw(st.integers(1, 6)), data.draw(st.integers(2, 4))
    sets = st.sets(st.integers(0, len(drawn) - 1), max_size=3)
    annotators = [data.draw(st.lists(sets, min_size=documents, max_size=documents)) for _ in range(count)]
    found = krippendorff_alpha(drawn.fast, [matrix_of(each, len(drawn)) for each in annotators], distance)
    assert found == pytest.approx(slow_alpha(drawn, annotators, distance), nan_ok=True, abs=1e-12)


@pytest.mark.parametrize(
    ("annotators", "expected"),
    [
        (["aabbccab", "abbbcaab"], 0.6296296296296295),
        (["aaa", "bbb"], -0.6666666666666665),
        # Krippendorff's own example of four observers and twelve units.
        (["abccbadab...", "abccbbdabe.c", ".cccbcdbbea.", "abccbddabea."], 0.743421052631579),
    ],
)
def test_nominal_alpha_is_that_of_the_package_krippendorff(annotators: list[str], expected: float) -> None:
    # Computed with krippendorff.alpha(reliability_data=..., level_of_measurement="nominal").
    matrices = [encode(FLAT, [[] if name == "." else [name] for name in names]) for names in annotators]
    found = krippendorff_alpha(FLAT, matrices, "nominal")
    assert found == pytest.approx(expected, abs=1e-12)
    # Flat labels are all equally far apart.
    assert krippendorff_alpha(FLAT, matrices) == pytest.approx(found, abs=1e-12)


def test_near_misses_cost_less_with_the_hierarchical_distance() -> None:
    h = Hierarchy.from_paths(["A > C", "A > D", "B > E", "B > F"])
    truth = encode(h, [["C"], ["D"], ["E"], ["F"]] * 5)
    near, far = encode(h, [["D"], ["D"], ["E"], ["F"]] * 5), encode(h, [["E"], ["D"], ["E"], ["F"]] * 5)
    assert krippendorff_alpha(h, [truth, near]) > krippendorff_alpha(h, [truth, far])
    one, two = agreement(h, truth, near, resamples=200), agreement(h, truth, far, resamples=200)
    assert one.exact.value == two.exact.value == 0.75
    assert one.alpha.low < one.alpha.value < one.alpha.high
    assert one.hf1.value == pytest.approx(0.875)
    assert "cannot be expected to show more" in str(one)


def test_documents_of_one_annotator_do_not_count() -> None:
    one, two = encode(FLAT, [["a"], ["b"], [], ["c"]]), encode(FLAT, [["a"], [], ["b"], ["d"]])
    found = agreement(FLAT, one, two, resamples=20)
    assert (found.documents, found.left_out) == (2, 2)
    assert "on 2 documents (2 more lack labels of one of them): alpha " in str(found)
    with pytest.raises(TreelabelError, match="no document has labels of both annotators"):
        agreement(FLAT, one, encode(FLAT, [[], [], ["a"], []]))
    assert math.isnan(krippendorff_alpha(FLAT, [one, encode(FLAT, [[], [], ["a"], []])]))


def test_what_cannot_be_compared_is_refused() -> None:
    one, two = encode(FLAT, [["a"], ["b"]]), encode(FLAT, [["a"]])
    with pytest.raises(TreelabelError, match="annotators of 2, 1 documents cannot be compared"):
        agreement(FLAT, one, two)
    with pytest.raises(TreelabelError, match="annotators of 2, 1 documents cannot be compared"):
        krippendorff_alpha(FLAT, [one, two])
    with pytest.raises(TreelabelError, match="at least 2 annotators, found 1"):
        krippendorff_alpha(FLAT, [one])
    with pytest.raises(TreelabelError, match="distance = euclidean, expected hierarchical or nominal"):
        krippendorff_alpha(FLAT, [one, one], "euclidean")  # type: ignore[arg-type]


def test_all_alike_has_no_alpha() -> None:
    same = encode(FLAT, [["a"]] * 4)
    found = agreement(FLAT, same, same, resamples=20)
    assert math.isnan(found.alpha.value)
    assert found.exact.low == pytest.approx(0.025 ** (1 / 4))
    assert found.to_json()["alpha"] == {"value": None, "low": None, "high": None}
    assert "alpha is not defined, as all annotations are the same; one against the other" in str(found)
    assert "nan" not in str(found)
    assert "on 1 document: " in str(agreement(FLAT, same[:1], same[:1], resamples=20))


def test_evaluate_prints_agreement_as_a_ceiling(tmp_path: Path, run: Run) -> None:
    lines, predicted = ["id,text,label,second"], []
    rng = np.random.default_rng(0)
    for number in range(40):
        true = ["A > C", "A > D", "B"][number % 3]
        other = true if rng.random() < 0.8 else "A > E"
        lines.append(f"{number},t{number},{true},{other}")
        predicted.append(f'{{"id": "{number}", "labels": ["{true}"]}}')
    (tmp_path / "test.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "predicted.jsonl").write_text("\n".join(predicted) + "\n")
    given = ("evaluate", tmp_path / "test.csv", tmp_path / "predicted.jsonl", "--labels", "label", "--metrics", "hf1")
    told = run(*given, "--second-labels", "second").out
    assert "agreement of two annotators on 40 documents: alpha 0." in told
    stored = run(*given, "--second-labels", "second", "--json").json["agreement"]
    assert stored["documents"] == 40
    assert stored["alpha"]["low"] < stored["alpha"]["value"] < 1
    ended = run(*given, "--second-labels", "third")
    assert ended.code == 2
    assert "third" in ended.err
    # Before anything is judged, here by predictions of other documents.
    (tmp_path / "other.jsonl").write_text('{"id": "x", "labels": ["B"]}\n')
    ended = run("evaluate", tmp_path / "test.csv", tmp_path / "other.jsonl", "--second-labels", "secnd")
    assert (ended.code, "no column 'secnd'" in ended.err, "did you mean second" in ended.err) == (2, True, True)
    # A column of something else.
    ended = run(*given, "--second-labels", "text")
    assert "the labels of column text are all others than the true ones" in ended.err


@pytest.mark.filterwarnings("default::treelabel.data.SkippedRowsWarning")
def test_rows_that_are_skipped_in_either_column_do_not_shift_the_others(tmp_path: Path, run: Run) -> None:
    (tmp_path / "test.taxonomy.tsv").write_text("Root\tA\nRoot\tB\nA\tC\n")
    lines, predicted = ["id,text,label,second"], []
    for number in range(40):
        true = ["A > C", "B"][number % 2]
        lines.append(f"{number},t{number},{'no' if number == 3 else true},{'no' if number == 8 else true}")
        predicted.append(f'{{"id": "{number}", "labels": ["{true}"]}}')
    (tmp_path / "test.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "predicted.jsonl").write_text("\n".join(predicted) + "\n")
    given = ("evaluate", tmp_path / "test.csv", tmp_path / "predicted.jsonl", "--labels", "label", "--metrics", "hf1")
    ended = run(*given, "--second-labels", "second")
    assert (ended.code, "unknown label 'no'" in ended.err) == (2, True)
    found = run(*given, "--second-labels", "second", "--on-error", "skip", "--json").json["agreement"]
    assert (found["documents"], found["alpha"]["value"]) == (38, 1)
