"""Rules for counts over all documents: thresholds by brute force, k labels a document against the k best ones."""

from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import sparse

from tests.reference import matrix_of, sets_of
from tests.reference_rules import (
    Row,
    expected_binned_macro_f1,
    expected_f1,
    expected_macro_f1,
    expected_micro_f1,
    largest_macro_f1,
    largest_micro_f1,
)
from tests.strategies import examples
from treelabel import Hierarchy, Scores, decide
from treelabel.rules import population

FREQUENCIES = [1, 0, 5, 10, 99, 100, 5000, 3]


def flat(labels: int) -> Hierarchy:
    return Hierarchy.flat(map(str, range(labels)))


@st.composite
def score_matrices(draw: st.DrawFn, max_labels: int = 8) -> Any:
    """Draw scores of independent labels, eighths or finer, a good part of them 0."""
    shape = draw(st.integers(1, 8)), draw(st.integers(1, max_labels))
    step = draw(st.sampled_from([8, 100]))
    return draw(arrays(np.int64, shape, elements=st.integers(0, step), fill=st.just(0))) / np.float32(step)


def rows_of(values: Any) -> list[Row]:
    return [dict(enumerate(row)) for row in values.tolist()]


def forms(values: Any) -> list[Scores]:
    h = flat(values.shape[1])
    return [Scores(h, values), Scores(h, sparse.csr_array(values))]


def chosen(scores: Scores, rule: str, **options: Any) -> list[set[int]]:
    return sets_of(decide(scores, rule, **options).csr, len(scores.hierarchy))


# One threshold


@given(score_matrices())
def test_no_threshold_has_a_larger_expected_micro_f1(values: Any) -> None:
    rows = rows_of(values)
    for scores in forms(values):
        found = chosen(scores, "optimal:micro_f1")
        assert expected_micro_f1(rows, found) == pytest.approx(largest_micro_f1(rows), abs=1e-6)


@given(score_matrices())
def test_no_thresholds_of_labels_have_a_larger_expected_macro_f1(values: Any) -> None:
    rows = rows_of(values)
    for scores in forms(values):
        found = chosen(scores, "optimal:macro_f1")
        assert expected_macro_f1(rows, found) == pytest.approx(largest_macro_f1(rows), abs=1e-6)


def test_no_sets_at_all_have_a_larger_expected_micro_f1_than_a_threshold() -> None:
    values = np.array([[0.9, 0.4, 0.3], [0.45, 0.2, 0.1]], np.float32)
    rows = rows_of(values)
    subsets = [set(labels) for size in range(4) for labels in combinations(range(3), size)]
    most = max(expected_micro_f1(rows, list(sets)) for sets in product(subsets, repeat=2))
    assert expected_micro_f1(rows, chosen(forms(values)[0], "optimal:micro_f1")) == pytest.approx(most, abs=1e-6)


# k labels a document


@given(score_matrices(), st.integers(1, 5), st.booleans(), st.integers(0, 3))
def test_k_labels_by_ascent_are_never_worse_than_the_k_best(values: Any, k: int, at_most: bool, seed: int) -> None:
    rows = rows_of(values)
    for scores in forms(values):
        found = chosen(scores, f"optimal:macro_f1@{k}", at_most=at_most, seed=seed)
        stored = [{label for label, score in row.items() if score > 0} for row in rows]
        for labels, candidates in zip(found, stored, strict=True):
            assert labels <= candidates
            assert len(labels) == min(k, len(candidates)) or (at_most and len(labels) < k)
        baseline = expected_macro_f1(rows, chosen(scores, f"top_k@{k}"))
        assert expected_macro_f1(rows, found) >= baseline - 1e-6
        assert found == chosen(scores, f"optimal:macro_f1@{k}", at_most=at_most, seed=seed)


@pytest.mark.parametrize("at_most", [False, True])
@pytest.mark.parametrize("k", [1, 2, 3])
def test_after_ascent_no_document_alone_can_do_better(k: int, at_most: bool) -> None:
    rng = np.random.default_rng(k)
    for _ in range(10):
        values = (rng.random((6, 5)) ** 2).astype(np.float32)
        rows = rows_of(values)
        found = chosen(forms(values)[1], f"optimal:macro_f1@{k}", at_most=at_most)
        reached = expected_macro_f1(rows, found)
        sizes = range(k + 1) if at_most else [k]
        for at, size in product(range(len(rows)), sizes):
            for labels in combinations(range(5), size):
                changed = [*found[:at], set(labels), *found[at + 1 :]]
                assert expected_macro_f1(rows, changed) <= reached + population.TOLERANCE


def test_the_seed_and_nothing_else_decides_how_ascent_goes() -> None:
    values = (np.random.default_rng(0).random((200, 30)) ** 3).astype(np.float32)
    dense, csr = forms(values)
    found = [chosen(dense, "optimal:macro_f1@3", seed=seed) for seed in (0, 0, 1)]
    assert found[0] == found[1] == chosen(csr, "optimal:macro_f1@3")
    assert found[0] != found[2]


def test_leaving_labels_out_raises_the_value_where_k_is_too_many() -> None:
    values = np.array([[0.9, 0.1], [0.1, 0.9], [0.9, 0.05]], np.float32)
    rows, scores = rows_of(values), forms(values)[0]
    two, fewer = (chosen(scores, "optimal:macro_f1@2", at_most=at_most) for at_most in (False, True))
    assert two == [{0, 1}] * 3
    assert fewer == [{0}, {1}, {0}]
    assert expected_macro_f1(rows, fewer) > expected_macro_f1(rows, two)


def test_ascent_finds_the_best_decisions_of_a_small_problem() -> None:
    rng = np.random.default_rng(0)
    ratios = []
    for _ in range(30):
        values = rng.random((4, 3)).astype(np.float32) ** 2
        rows = rows_of(values)
        pairs = [set(labels) for labels in combinations(range(3), 2)]
        most = max(expected_macro_f1(rows, list(sets)) for sets in product(pairs, repeat=4))
        ratios.append(expected_macro_f1(rows, chosen(forms(values)[0], "optimal:macro_f1@2")) / most)
    # It ends where no single document can do better, which need not be the very best.
    assert max(ratios) <= 1 + 1e-9
    assert min(ratios) > 0.9
    assert sum(ratio > 1 - 1e-6 for ratio in ratios) > 20


@given(score_matrices(len(FREQUENCIES)), st.integers(1, 4), st.booleans())
def test_binned_ascent_is_never_worse_than_the_k_best(values: Any, k: int, at_most: bool) -> None:
    frequencies = FREQUENCIES[: values.shape[1]]
    rows = rows_of(values)
    for scores in forms(values):
        found = chosen(scores, f"optimal:binned_macro_f1@{k}", at_most=at_most, train_frequencies=frequencies)
        baseline = chosen(scores, f"top_k@{k}")
        reached = expected_binned_macro_f1(rows, found, frequencies)
        assert reached >= expected_binned_macro_f1(rows, baseline, frequencies) - 1e-6


@examples(50)
@given(st.data())
def test_binned_ascent_climbs_the_mean_over_bins(data: st.DataObject) -> None:
    size = data.draw(st.integers(2, 8))
    frequencies = data.draw(st.lists(st.integers(0, 30), min_size=size, max_size=size).filter(any))
    edges = tuple(data.draw(st.sampled_from([(1, 10, 100, 1000), (1, 5), (2, 3, 20)])))
    seen: list[Any] = []

    def ascend(scores: Scores, weights: Any, *_: Any) -> Any:
        seen.append(weights)
        return matrix_of([], size)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(population, "ascend", ascend)
        decide(Scores(flat(size), np.zeros((0, size))), "optimal:binned_macro_f1@5", frequencies, bin_edges=edges)
    values = np.array(data.draw(st.lists(st.integers(0, 8), min_size=size, max_size=size))) / 8
    # One document in which everything is predicted has, for label l, F1 = 2 p / (1 + p).
    rows, everything = [dict(enumerate(values.tolist()))], [set(range(size))]
    climbed = sum(seen[0][label] * expected_f1(rows, everything, label) for label in range(size))
    bins = {sum(frequency >= edge for edge in edges) for frequency in frequencies} - {0}
    expected = expected_binned_macro_f1(rows, everything, frequencies, edges) if bins else 0.0
    assert climbed == pytest.approx(expected * len(bins) * size)


def test_rare_labels_weigh_more_in_bins() -> None:
    # Label 0 is alone in its bin, the others share one.
    values = np.array([[0.8, 0.6, 0.9], [0.5, 0.6, 0.9], [0.7, 0.6, 0.5]], np.float32)
    counts = [1, 20, 30]
    binned = chosen(forms(values)[0], "optimal:binned_macro_f1@1", train_frequencies=counts)
    plain = chosen(forms(values)[0], "optimal:macro_f1@1")
    rows = rows_of(values)
    assert plain == [{1}, {2}, {0}]
    assert binned == [{0}, {2}, {0}]
    assert expected_binned_macro_f1(rows, binned, counts) > expected_binned_macro_f1(rows, plain, counts)
    assert expected_macro_f1(rows, plain) > expected_macro_f1(rows, binned)


def test_labels_never_seen_in_training_are_chosen_last() -> None:
    scores = Scores(flat(3), [[0.9, 0.3, 0.2]])
    assert chosen(scores, "optimal:binned_macro_f1@2", train_frequencies=[0, 3, 4]) == [{1, 2}]


@pytest.mark.parametrize("k", [1, 3, 5])
def test_ascent_comes_to_what_xcolumns_comes_to(k: int) -> None:
    xcolumns = pytest.importorskip("xcolumns.block_coordinate")
    rng = np.random.default_rng(k)
    # A long tail: few labels are common, most are rare.
    values = (rng.beta(0.4, 3, (300, 60)) / (1 + np.arange(60) / 6)).astype(np.float32)
    theirs = np.asarray(xcolumns.predict_optimizing_macro_f1_score_using_bc(values.astype(np.float64), k, seed=0))
    rows = rows_of(values)
    found = chosen(forms(values)[0], f"optimal:macro_f1@{k}")
    peer = [set(np.flatnonzero(row).tolist()) for row in theirs]
    assert {len(labels) for labels in peer} == {k}
    assert expected_macro_f1(rows, found) >= 0.995 * expected_macro_f1(rows, peer)
    assert expected_macro_f1(rows, found) > 1.05 * expected_macro_f1(rows, chosen(forms(values)[0], f"top_k@{k}"))
