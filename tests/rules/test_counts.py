"""Learning the weights of numbers of true paths on held-out documents."""

import numpy as np
import pytest

from tests.reference import matrix_of
from treelabel import Hierarchy, Scores, TreelabelError, decide
from treelabel.hierarchy import LabelMatrix
from treelabel.rules import fit_counts

FLAT = Hierarchy.flat(map(str, range(6)))


def drawn(g: list[float], documents: int, seed: int = 0) -> tuple[Scores, LabelMatrix]:
    """Draw label sets of a flat hierarchy from their distribution: independent labels, and weights of their number."""
    rng = np.random.default_rng(seed)
    sets = np.array([[number >> label & 1 for label in range(6)] for number in range(64)])
    p = rng.random((documents, 6)) * 0.6 + 0.1
    chance = np.array(g)[sets.sum(axis=1)] * np.prod(np.where(sets, p[:, None], 1 - p[:, None]), axis=2)
    rows = [sets[rng.choice(64, p=row / row.sum())] for row in chance]
    return Scores(FLAT, p), matrix_of([set(np.flatnonzero(row).tolist()) for row in rows], 6)


def test_independent_labels_need_no_weights() -> None:
    counts = fit_counts(*drawn([1] * 7, 1000))["counts"]
    assert np.log(counts)[:5] - np.log(counts)[2] == pytest.approx(np.zeros(5), abs=0.3)


@pytest.mark.parametrize("g", [[0.05, 1, 0.3, 0.1, 0.03, 0.01, 0.01], [0.2, 0.2, 1, 0.2, 0.2, 0.2, 0.2]])
def test_the_weights_that_documents_were_drawn_by_are_found(g: list[float]) -> None:
    found = fit_counts(*drawn(g, 1000))["counts"]
    assert np.log(found)[:4] == pytest.approx(np.log(g)[:4], abs=0.35)


def test_expected_numbers_of_documents_become_the_true_ones() -> None:
    scores, truth = drawn([0.05, 1, 0.3, 0.1, 0.03, 0.01, 0.01], 800)
    found = fit_counts(scores, truth)
    before, after = (decide(scores, "optimal:samples_f1", **settings) for settings in ({"counts": [1]}, found))
    true = truth.nnz
    assert abs(after.csr.nnz - true) < abs(before.csr.nnz - true)


def test_paths_that_never_end_inside_are_told_from_those_that_do() -> None:
    h = Hierarchy.from_paths(["A > B", "A > C"])
    scores = Scores(h, [[0.9, 0.4, 0.3]] * 200)
    leaves = fit_counts(scores, h.closure([[0, 1, 0]] * 100 + [[0, 0, 1]] * 100))
    inside = fit_counts(scores, h.closure([[1, 0, 0]] * 200))
    assert leaves["inner"] < 0.1 < 1 < inside["inner"]


def test_a_few_documents_change_little_and_never_rule_a_number_out() -> None:
    few, many = (fit_counts(*drawn([0.001, 1, 0.001, 0.001, 0.001, 0.001, 0.001], size)) for size in (3, 1000))
    assert min(few["counts"]) > 0.1 > min(many["counts"]) > 0


def test_refitted_odds_have_weights_of_their_own() -> None:
    scores, truth = drawn([1] * 7, 300)
    found = fit_counts(scores, truth, refit=True)
    assert found["refit"]
    assert len(found["counts"]) <= 8


def test_the_same_seed_draws_the_same_documents() -> None:
    scores, truth = drawn([0.1, 1, 0.5, 0.2, 0.1, 0.1, 0.1], 300)
    one, two, other = (fit_counts(scores, truth, most_documents=100, seed=seed) for seed in (0, 0, 1))
    assert one == two
    assert one != other


def test_truth_of_other_documents_is_refused() -> None:
    scores, truth = drawn([1] * 7, 5)
    with pytest.raises(TreelabelError, match="5 rows of scores, but the truth of 4 documents"):
        fit_counts(scores, truth[:4])


def test_the_weights_of_a_tree_stay_what_they_were() -> None:
    # From independent draws of a tree of three levels; the stopping rules of both searches decide the digits.
    h = Hierarchy.from_paths([f"A{i} > B{j} > C{k}" for i in range(3) for j in range(3) for k in range(3)])
    rng = np.random.default_rng(0)
    scores = Scores(h, rng.beta(0.3, 3, (300, len(h))).astype(np.float32)).coherent()
    p = scores.dense()
    result = fit_counts(scores, h.closure(rng.random(p.shape) < p))
    assert result["inner"] == pytest.approx(22.47, rel=1e-2)
    assert result["counts"][:5] == pytest.approx([0.08676, 0.6336, 0.5071, 0.7576, 1.0], rel=1e-2)


def test_weights_are_at_most_e_to_the_eighth_above_and_below_one() -> None:
    # Scores that are certain of two labels, where one is true.
    h = Hierarchy.flat(["a", "b"])
    counts = fit_counts(Scores(h, [[0.9999999] * 2] * 1000), h.closure([[1, 0], [0, 1]] * 500))["counts"]
    assert counts == pytest.approx([np.exp(-8), 1, np.exp(-16)], rel=1e-3)


@pytest.mark.parametrize(("paths", "weights"), [(62, 64), (63, 65), (64, 65), (70, 65)])
def test_more_than_64_paths_share_a_weight(paths: int, weights: int) -> None:
    h = Hierarchy.flat(map(str, range(70)))
    truth = h.closure([[number < paths for number in range(70)]])
    assert len(fit_counts(Scores(h, [[0.9] * 70]), truth)["counts"]) == weights
