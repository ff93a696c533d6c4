"""The compiled loops of rules, one by one, against slow twins and by hand: bounds and searches, ties, empty rows."""

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.reference_rules import Doubles
from treelabel import Hierarchy, Scores
from treelabel.hierarchy.label_matrices import rows_of
from treelabel.rules import hierarchical_f, information_f, optimal_nodes, population
from treelabel.rules.back_off import LeafPaths, precise_thresholds
from treelabel.rules.score_rows import ScoreRows, above_zero, largest, longest_row, over_scores, sum_scores

# A 0, B 1, C 2 below A, D 3 below A, E 4 below C.
ABOVE = np.array([-1, -1, 0, 0, 2], np.int32)
WEIGHTS = [[1.0], [0.1, 1, 0.3], [1, 0.2, 2, 0.1]]


def ints(*values: int) -> Any:
    return np.array(values, np.int32)


# Rows and heaps


@given(st.lists(st.integers(0, 3), max_size=12), st.integers(0, 12))
def test_the_largest_gains_are_the_first_of_a_stable_sort(gains: list[int], size: int) -> None:
    gain, size = np.array(gains, float), min(size, len(gains))
    heap = np.full(len(gains) + 1, -9, np.int32)
    order = sorted(range(len(gains)), key=lambda place: -gains[place])[:size]
    assert largest(gain, len(gain), size, heap) == sum(gains[place] for place in order)
    assert sorted(heap[:size].tolist()) == sorted(order)
    # On top is the one that the next would replace.
    assert size == 0 or heap[0] == order[-1]
    assert (heap[size:] == -9).all()


def test_scores_above_zero_are_listed_row_by_row() -> None:
    values = np.array([[0.5, 0, 0.1], [0.2, 0.3, 0], [0, 0, 0], [0, 0, 1]])
    ptr, nodes, stored = above_zero(values, 1, 4)
    assert (ptr.tolist(), nodes.tolist(), stored.tolist()) == ([0, 2, 2, 3], [0, 1, 2], [0.2, 0.3, 1])
    pointers = np.array([0, 5, 6, 8, 8])
    for start, stop, longest in ((0, 4, 5), (1, 4, 2), (3, 4, 0), (2, 2, 0)):
        assert longest_row(ScoreRows(pointers, ints(), np.zeros(0), start, stop)) == longest


@pytest.mark.parametrize("documents", [0, 1, 7])
def test_parts_of_scores_are_all_documents_in_order(documents: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("treelabel.rules.score_rows.BLOCK", 6)
    values = [number / 64 for number in range(3 * documents)]
    scores = Scores(Hierarchy.flat("abc"), np.array(values).reshape(documents, 3))

    def stored(rows: ScoreRows) -> Any:
        return rows.values[rows.ptr[rows.start] : rows.ptr[rows.stop]]

    for form in (scores, Scores(scores.hierarchy, scores.csr())):
        sizes = [rows.stop - rows.start for rows in over_scores(form, lambda rows: rows, least=1)]
        assert sum(sizes) == documents
        assert form.is_sparse or max(sizes) <= 2
        assert np.concatenate(over_scores(form, stored, least=1)).tolist() == values[1:]
        if documents:
            total = sum_scores(form, lambda rows: np.array([stored(rows).sum()]))
            assert total.tolist() == pytest.approx([sum(values)])


# Hierarchical F


def test_a_shared_node_is_worth_less_the_larger_both_sets_are() -> None:
    # beta^2 = 4: 5 / (k + root + 4 (length + root)).
    of_size, worth = np.array([0.1, 0.6, 0.3]), np.zeros(3)
    whole, one = hierarchical_f.weigh_sizes(of_size, 4.0, 2, 0, worth)
    assert worth.tolist() == pytest.approx([5 / 2, 5 / 6, 5 / 10])
    assert (whole, one) == pytest.approx((0.6 * 5 / 6 + 0.3 * 2 * 5 / 10, 0))
    whole, one = hierarchical_f.weigh_sizes(of_size, 4.0, 2, 1, worth)
    assert worth.tolist() == pytest.approx([5 / 7, 5 / 11, 5 / 15])
    assert one == pytest.approx(0.1 * 5 / 7 + 0.6 * 5 / 11 + 0.3 * 5 / 15)
    assert whole == pytest.approx(0.1 * 5 / 7 + 2 * 0.6 * 5 / 11 + 3 * 0.3 * 5 / 15)


def test_sizes_are_open_as_long_as_their_bound_is_above_the_best() -> None:
    # beta = 1, one path of 1 node: the bound of k nodes is 2 / (k + 1).
    of_size, worth = np.array([0.0, 1.0]), np.zeros(2)
    for best, size in ((0.41, 3), (0.4, 3), (0.39, 4), (0.0, 9)):
        assert hierarchical_f.open_sizes(of_size, 1.0, 1, 9, 0, best, worth) == size
    assert hierarchical_f.open_sizes(of_size, 1.0, 5, 9, 0, 0.9, worth) == 5


def test_likely_places_of_a_row_are_linked_to_each_other() -> None:
    links = hierarchical_f.Links(np.arange(6), ABOVE, True)
    position, selected, nearest = np.arange(5, dtype=np.int32), np.zeros(5, np.int32), np.zeros(5, np.int32)
    local = hierarchical_f.Links(np.zeros(6, np.int64), np.full(5, -9, np.int32), True)
    likely = np.array([True, False, False, True, True])
    nodes = np.arange(5, dtype=np.int32)
    assert hierarchical_f.select_likely(links, position, nodes, likely, selected, nearest, local) == 3
    assert selected[:3].tolist() == [0, 3, 4]
    # B has no likely place at or above it; what ends at C counts for A; E hangs below A as C is left out.
    assert nearest.tolist() == [0, -1, 0, 1, 2]
    assert local.ptr[:4].tolist() == [0, 0, 1, 2]
    assert local.idx[:2].tolist() == [0, 0]
    mass, sizes = np.array([0.1, 0.2, 0.05, 0.3, 0.25]), ints(1, 1, 2, 2, 3)
    for places in (0, 5):
        ends = hierarchical_f.Terminals(np.zeros(5, np.int32), np.zeros(5, np.int32), np.zeros(5))
        table = np.zeros((places, 4))
        count = hierarchical_f.gather_terminals(sizes, mass, nearest, table, ends)
        listed = sorted(zip(ends.anchor[:count], ends.size[:count], ends.mass[:count], strict=True))
        assert listed == [(0, 1, 0.1), (0, 2, 0.05), (1, 2, 0.3), (2, 3, 0.25)]
        assert not table.any()


def test_ends_of_one_place_and_size_are_joined() -> None:
    ends = hierarchical_f.Terminals(np.zeros(4, np.int32), np.zeros(4, np.int32), np.zeros(4))
    sizes, mass, nearest = ints(2, 2, 2, 1), np.array([0.1, 0.2, 0.0, 0.4]), ints(0, 0, 0, 0)
    assert hierarchical_f.gather_terminals(sizes, mass, nearest, np.zeros((4, 3)), ends) == 2
    assert ends.mass[:2].tolist() == pytest.approx([0.3, 0.4])
    weighed = np.full(2, 9.0)
    hierarchical_f.weigh(np.array([0.0, 2.0, 10.0]), ends, 2, weighed)
    assert weighed.tolist() == pytest.approx([0.3 * 10 + 0.4 * 2, 0])


def test_masses_of_a_row_of_a_tree_and_of_a_dag() -> None:
    # C has the parents A and B in the DAG; scores of children may sum to more than that of their parent.
    values = np.array([0.5, 0.4, 0.3, 0.3, 0.1])
    position, mass, whole = np.zeros(5, np.int32), np.zeros(5), np.zeros(5)
    tree = hierarchical_f.Links(np.arange(6), ABOVE, True)
    hierarchical_f.find_terminal_masses(tree, position, np.arange(5, dtype=np.int32), values, mass, whole)
    assert mass.tolist() == pytest.approx([0, 0.4, 0.2, 0.3, 0.1])
    assert whole.tolist() == pytest.approx([0.6, 0.4, 0.3, 0.3, 0.1])
    dag = Hierarchy.from_edges([("A", "C"), ("B", "C"), ("C", "E")])
    links = hierarchical_f.Links(*rows_of(dag.ancestors(np.arange(4))), False)
    hierarchical_f.find_terminal_masses(
        links, position, np.arange(4, dtype=np.int32), np.array([0.5, 0.4, 0.3, 0.1]), mass, whole
    )
    assert mass[:4].tolist() == pytest.approx([0.2, 0.1, 0.2, 0.1])
    gain = np.zeros(5)
    hierarchical_f.gains(links, np.array([0.2, 0.1, 0.2, 0.1]), gain)
    assert gain[:4].tolist() == pytest.approx([0.5, 0.4, 0.3, 0.1])


# Hierarchical F in bits

BITS = information_f.WeightedRow(
    ABOVE,
    mass=np.array([0.1, 0.2, 0.15, 0.25, 0.2]),
    whole=np.array([0.7, 0.2, 0.35, 0.25, 0.2]),
    weight=np.array([0.0, 2.0, 1.0, 3.0, 0.5]),
    path_weight=np.array([0.0, 2.0, 1.0, 3.0, 1.5]),
)
CLOSED = [
    {*labels}
    for size in range(6)
    for labels in combinations(range(5), size)
    if all(ABOVE[label] in (-1, *labels) for label in labels)
]


def expected_bits(labels: set[int], squared: float) -> float:
    """The expected F of a set in bits, end by end; where the truth has no bits, sets that share any are worth 0."""
    total, expected = sum(BITS.weight[label] for label in labels), 0.0
    for end in range(5):
        path, step = set(), end
        while step >= 0:
            path.add(step)
            step = int(ABOVE[step])
        shared = sum(BITS.weight[label] for label in labels & path)
        if shared > 0:
            expected += BITS.mass[end] * (1 + squared) * shared / (total + squared * BITS.path_weight[end])
    return expected


def chosen(labels: set[int]) -> Any:
    return np.isin(np.arange(5), sorted(labels))


@pytest.mark.parametrize("squared", [0.25, 1.0, 4.0])
def test_expected_f_in_bits_of_every_closed_set(squared: float) -> None:
    for labels in CLOSED:
        value = information_f.expected_weighted(BITS, chosen(labels), squared, np.full(5, 7.0))
        assert value == pytest.approx(expected_bits(labels, squared))


@pytest.mark.parametrize("squared", [0.25, 1.0, 4.0])
def test_improving_a_set_in_bits_ends_where_no_single_node_helps(squared: float) -> None:
    for labels in CLOSED:
        marks = chosen(labels)
        value = information_f.improve(BITS, marks, squared, np.zeros(5))
        reached = set(np.flatnonzero(marks).tolist())
        assert reached in CLOSED
        assert value == pytest.approx(expected_bits(reached, squared))
        assert value >= expected_bits(labels, squared) - 1e-12
        near = [other for other in CLOSED if len(other ^ reached) == 1]
        assert all(expected_bits(other, squared) <= value + 1e-12 for other in near)


def test_gains_and_worth_of_a_row_in_bits_by_hand() -> None:
    gain = np.full(5, 9.0)
    # beta^2 = 4, a set of weight 2: 5 m / (2 + 4 w(path)).
    bound = information_f.find_gains(BITS, 4.0, 2.0, gain)
    single = [0, 0.2 * 5 / 10, 0.15 * 5 / 6, 0.25 * 5 / 14, 0.2 * 5 / 8]
    assert gain.tolist() == pytest.approx([sum(single) - single[1], single[1], single[2] + single[4], *single[3:]])
    assert bound == pytest.approx(2 * single[1] + single[2] + 3 * single[3] + 1.5 * single[4])
    # The truth ends at A, which has no bits, or is nothing.
    assert information_f.without_bits(BITS) == pytest.approx(0.1 + 0.1)
    assert information_f.without_bits(BITS._replace(whole=BITS.whole * 2)) == pytest.approx(0.1)


# Single nodes


def test_similarity_to_the_end_of_a_path_is_summed_up() -> None:
    # 2 m / (level + depth + 2), depths counted from 0: of B 2 x 0.2 / 4, ...
    depth, below = ints(1, 1, 2, 2, 3), np.zeros(5)
    root = optimal_nodes.similarity_below(depth, np.arange(5, dtype=np.int32), ABOVE, BITS.mass, 1, below)
    single = [0.1 * 2 / 4, 0.2 * 2 / 4, 0.15 * 2 / 5, 0.25 * 2 / 5, 0.2 * 2 / 6]
    expected = [single[0] + sum(single[2:]), single[1], single[2] + single[4], *single[3:]]
    assert below.tolist() == pytest.approx(expected)
    assert root == pytest.approx(sum(single))
    assert optimal_nodes.none_true(ABOVE, BITS.whole, 5) == pytest.approx(0.1)
    assert optimal_nodes.none_true(ABOVE, BITS.whole, 1) == pytest.approx(0.3)
    assert optimal_nodes.none_true(ABOVE, BITS.whole * 2, 5) == 0


def test_lin_similarity_of_a_node_and_its_bound_by_hand() -> None:
    nodes, information = np.arange(5, dtype=np.int32), np.array([0.0, 2.0, 1.0, 3.0, 1.5])
    whole, mass = BITS.whole, BITS.mass

    def expected(index: int) -> float:
        return optimal_nodes.expected_lin(information, ABOVE, mass, nodes, index, np.zeros(5))

    # To itself 1, to what is below or above C by 2 x 1 / (1 + 1.5), to others by the root or A, without bits: 0.
    assert expected(2) == pytest.approx(0.15 + 0.2 * 2 / 2.5)
    assert expected(4) == pytest.approx(0.2 + 0.15 * 2 / 2.5)
    assert expected(1) == pytest.approx(0.2)
    # A and what has no bits either are alike only if they are the same.
    assert expected(0) == pytest.approx(0.1)
    bound = [optimal_nodes.lin_bound(information, ABOVE, nodes, whole, index) for index in range(5)]
    assert bound == pytest.approx([0.7, 0.2, 0.35, 0.25, 0.2 + 0.15 * 2 / 2.5])
    # With bits, A counts: 0.7 - 0.25 of D's parent at most as close as A is.
    information = np.array([0.5, 2.0, 1.0, 3.0, 1.5])
    assert optimal_nodes.lin_bound(information, ABOVE, nodes, whole, 3) == pytest.approx(0.25 + 0.45 * 1 / 3.5)
    deep = 0.2 + 0.15 * 2 / 2.5 + 0.35 * 1 / 2
    assert optimal_nodes.lin_bound(information, ABOVE, nodes, whole, 4) == pytest.approx(deep)


# Counts over all documents


@given(st.data())
def test_the_labels_that_gain_most_are_those_of_a_sort(data: st.DataObject) -> None:
    size, k = data.draw(st.integers(1, 8)), data.draw(st.integers(1, 4))
    at_most = data.draw(st.booleans())

    def numbers(least: int, most: int) -> Doubles:
        return np.array(data.draw(st.lists(st.integers(least, most), min_size=size, max_size=size)), float)

    predicted, values = numbers(0, 3), numbers(1, 4) / 4
    hits = predicted * numbers(0, 4) / 4
    sums = population.LabelTotals(numbers(0, 2), hits + values + numbers(0, 1), hits, predicted)
    gains, places = np.zeros(k), np.zeros(k, np.int64)
    held = population.largest_gains(np.arange(size, dtype=np.int32), values, sums, at_most, gains, places)
    wanted = []
    for label in range(size):
        now = hits[label] / (predicted[label] + sums.total[label])
        then = (hits[label] + values[label]) / (predicted[label] + sums.total[label] + 1)
        gain = sums.weights[label] * (then - now)
        if gain > 0 or not at_most:
            wanted.append((-gain, label))
    wanted = sorted(wanted)[:k]
    assert places[:held].tolist() == [label for _, label in wanted]
    assert gains[:held].tolist() == pytest.approx([-gain for gain, _ in wanted])


def test_a_sweep_returns_the_value_of_what_it_chose() -> None:
    values = np.array([0.9, 0.5, 0.8, 0.1, 0.7])
    rows = ScoreRows(np.array([0, 2, 4, 5]), ints(0, 1, 0, 1, 0), values, 0, 3)
    weights, total = np.array([1.0, 3.0, 5.0]), np.array([2.4, 0.6, 0.0])
    sums = population.LabelTotals(weights, total, np.full(3, 9.0), np.full(3, 9.0))
    marks = np.array([True, False, True, False, True])
    value = population.sweep(rows, sums, marks, np.array([0, 1, 2]), 1, False)
    # Label 1 has gains of 3 x 0.5 / 1.6 against (0.9 + 1.5) / 5.4 - 1.5 / 4.4.
    assert marks.tolist() == [False, True, True, False, True]
    assert value == pytest.approx(2 * 1.5 / (2 + 2.4) + 3 * 2 * 0.5 / (1 + 0.6))
    assert sums.hits.tolist() == pytest.approx([1.5, 0.5, 0.0])
    assert sums.predicted.tolist() == [2, 1, 0]


# Back off


def test_thresholds_with_a_confidence_stay_what_they_were() -> None:
    # Half of the documents, drawn by a seed, find candidates; the others test them.
    h = Hierarchy.from_paths([f"{top} > {top}{leaf}" for top in "ABC" for leaf in "12"])
    rng = np.random.default_rng(0)
    leaves = rng.dirichlet(np.full(6, 0.2), 600)
    truth = np.zeros((600, len(h)))
    truth[np.arange(600), [h.leaves[rng.choice(6, p=row)] for row in leaves]] = 1
    ways = LeafPaths.of(Scores.from_leaves(h, h.leaves, leaves), h.closure(truth))
    for precision, expected in ((0.8, [2.0, 0.7706767]), (0.9, [0.8579833, 0.8360095])):
        assert precise_thresholds(ways, precision, 0.9).tolist() == pytest.approx(expected, abs=1e-6)
