"""The compiled loops of the softmax over paths by hand: a tree with a stop, a DAG, and terminals alone."""

from typing import Any

import numpy as np
import pytest
from scipy import sparse
from scipy.special import expit

from treelabel.calibration import path_kernels as kernels
from treelabel.calibration.contract import sum_to_nodes

# A 0 with the children C 2 and D 3, and B 1; paths end at B, C, D, and may stop at A.
TERMINALS = np.array([1, 2, 3, 0], np.int32)
NONE = np.zeros(0, np.int32)


def floats(*values: float) -> Any:
    return np.array(values, np.float32)


def tree(uniform_weights: Any = (0, 0, 0, 0, 0)) -> kernels.Sums:
    """The children of the root and of A share a uniform distribution; other nodes have no children."""
    parent = np.array([-1, -1, 0, 0], np.int32)
    return kernels.Sums(TERMINALS, parent, floats(*uniform_weights), floats(0.5, 0.5, 0, 0, 0), NONE, NONE)


# C 2 lies below A 0 and B 1; paths end at C, or stop at A.
DAG = kernels.Sums(np.array([2, 0], np.int32), NONE, floats(), floats(), np.array([0, 3, 4], np.int32),
                   np.array([0, 1, 2, 0], np.int32))  # fmt: skip
PLAIN = kernels.Sums(NONE, NONE, floats(), floats(), NONE, NONE)


def test_terminals_sum_up_to_nodes() -> None:
    out = np.full(4, 9, np.float32)
    kernels.sum_row(floats(0.2, 0.3, 0.4, 0.1), tree(), out)
    assert out == pytest.approx([0.8, 0.2, 0.3, 0.4])
    kernels.sum_row(floats(0.2, 0.7, 0.6, 0.1), tree(), out)
    assert out == pytest.approx([1, 0.2, 0.7, 0.6])
    kernels.sum_row(floats(0.7, 0.4), DAG, out[:3])
    assert out[:3] == pytest.approx([1, 0.7, 0.7])


def test_siblings_are_mixed_with_the_uniform_distribution() -> None:
    how, out = tree((0.2, 0.4, 0, 0, 0)), floats(0.8, 0.2, 0.3, 0.4)
    kernels.mix_uniform_row(out, how, np.zeros((3, 5), np.float32))
    # Of the root 0.8 p + 0.2 / 2; of A its 0.74 times 0.6 p / 0.8 + 0.4 / 2.
    assert out == pytest.approx([0.74, 0.26, 0.74 * (0.6 * 0.3 / 0.8 + 0.2), 0.74 * (0.6 * 0.4 / 0.8 + 0.2)])
    out = floats(0, 1, 0, 0)
    kernels.mix_uniform_row(out, how, np.zeros((3, 5), np.float32))
    assert out == pytest.approx([0.1, 0.9, 0.05, 0.05])


def test_a_stop_has_what_its_children_leave_over() -> None:
    terminals, out = floats(0.2, 0.3, 0.1, 0.4), floats(0.8, 0.2, 0.3, 0.1)
    assert [kernels.terminal_probability(end, terminals, tree(), out) for end in range(4)] == pytest.approx(
        [0.2, 0.3, 0.1, 0.4]
    )
    # After mixing, nodes say it, not terminals.
    assert kernels.terminal_probability(3, terminals, tree(), floats(0.7, 0.3, 0.4, 0.4)) == 0
    assert kernels.terminal_probability(0, terminals, tree(), floats(0.7, 0.3, 0.4, 0.4)) == np.float32(0.3)
    assert kernels.terminal_probability(3, terminals, PLAIN, floats(0, 0, 0, 0)) == np.float32(0.4)
    assert kernels.terminal_probability(1, floats(0.7, 0.4), DAG, floats(1, 0.7, 0.7)) == np.float32(0.4)


def test_the_second_is_another_terminal_or_a_leaf() -> None:
    terminals, out = floats(0.2, 0.3, 0.1, 0.4), floats(0.8, 0.25, 0.35, 0.1)
    # The best is the stop at A: the others are leaves, by their nodes. The best is C: the stop counts by its terminal.
    assert kernels.second_of(3, terminals, tree(), out) == np.float32(0.35)
    assert kernels.second_of(1, terminals, tree(), out) == np.float32(0.4)
    assert kernels.second_of(0, floats(0.2, 0.3, 0.1, 0.0), tree(), out) == np.float32(0.35)
    assert kernels.second_of(3, terminals, PLAIN, terminals) == np.float32(0.3)
    assert kernels.second_of(0, floats(0.7, 0.4), DAG, floats(1, 0.7, 0.7)) == np.float32(0.4)
    assert kernels.likeliest_of(floats(0.2, 0.4, 0.4)) == 1
    assert kernels.likeliest_of(floats(0, 0)) == 0


@pytest.mark.parametrize("p", [0.0, 1e-7, 0.3, 0.5, 1 - 1e-7, 1.0])
def test_beta_calibration_is_a_sigmoid_of_both_logarithms(p: float) -> None:
    inside = np.log(max(p, 1e-6)), np.log(max(1 - p, 1e-6))
    assert kernels.beta_calibrated(p, (0.5, 2.0, -0.25)) == pytest.approx(expit(0.5 * inside[0] - 2 * inside[1] - 0.25))


def calibrated(terminals: Any, how: kernels.Sums, beta: tuple[float, float, float], out: Any) -> Any:
    kernels.calibrate_row(terminals, how, beta, out)
    return out


def test_the_likeliest_is_calibrated_and_the_others_share_the_rest() -> None:
    beta = (0.5, 0.5, 0.0)
    terminals = floats(0.1, 0.6, 0.2, 0.1)
    now = float(expit(0.5 * np.log(0.6 / 0.4)))
    factor = (1 - now) / 0.4
    expected = [0.1 * factor, now, 0.2 * factor, 0.1 * factor]
    assert calibrated(terminals, PLAIN, beta, terminals.copy()) == pytest.approx(expected, abs=1e-6)
    nodes = calibrated(terminals, tree(), beta, floats(0.9, 0.1, 0.6, 0.2))
    assert nodes == pytest.approx([now + 0.3 * factor, expected[0], now, expected[2]], abs=1e-6)
    # A stop: its node alone, its children by the factor.
    stop = floats(0.1, 0.2, 0.1, 0.6)
    nodes = calibrated(stop, tree(), beta, floats(0.9, 0.1, 0.2, 0.1))
    assert nodes == pytest.approx([now + 0.3 * factor, 0.1 * factor, 0.2 * factor, 0.1 * factor], abs=1e-6)
    dag = calibrated(floats(0.6, 0.4), DAG, beta, floats(1, 0.6, 0.6))
    assert dag == pytest.approx([1, now, now], abs=1e-6)


def test_what_is_not_likeliest_among_nodes_is_left_alone() -> None:
    # By terminals D is the likeliest, but a leaf that was never seen is likelier among nodes.
    terminals, out = floats(0.3, 0.2, 0.4, 0.1), floats(0.6, 0.4, 0.2, 0.35)
    assert calibrated(terminals, tree(), (1.0, 1.0, 1.0), out.copy()).tolist() == out.tolist()
    equal = floats(0.4, 0.4, 0.2)
    assert calibrated(equal, PLAIN, (1.0, 1.0, 1.0), equal.copy()).tolist() == equal.tolist()


def test_it_stays_the_likeliest_by_a_hair() -> None:
    terminals = floats(0.4, 0.35, 0.25)
    low = calibrated(terminals, PLAIN, (1.0, 1.0, -9.0), terminals.copy())
    assert low[0] == pytest.approx(1.0001 * 0.35 / 0.95, rel=1e-5)
    assert low[1] < low[0]
    # From one half on nothing can be likelier, so that nothing is looked at; p = 0.5 is that.
    half = floats(0.5, 0.45, 0.05)
    now = float(expit(0.5))
    assert calibrated(half, PLAIN, (1.0, 1.0, 0.5), half.copy())[0] == pytest.approx(now)
    down = calibrated(half, PLAIN, (1.0, 1.0, -0.5), half.copy())
    assert down[0] == pytest.approx(1.0001 * 0.45 / 0.95, rel=1e-5)


def test_what_is_certain_can_be_made_a_thousand_times_less_so() -> None:
    terminals = floats(1 - 2e-4, 1e-4, 1e-4)
    low = calibrated(terminals, PLAIN, (0.0, 0.0, 0.0), terminals.copy())
    # sigmoid(0) = 1/2 would need a factor of 2,500.
    assert low[1:] == pytest.approx([0.1, 0.1], rel=1e-3)
    # A thousand times what single precision rounds.
    assert low.sum() == pytest.approx(1, abs=1e-4)
    sure = calibrated(floats(1, 0, 0), PLAIN, (0.0, 0.0, 0.0), floats(1, 0, 0))
    assert sure.tolist() == [1, 0, 0]


def test_additions_stay_probabilities() -> None:
    p = floats(0.5, 0.5, 0.5)
    for index, more in enumerate((0.25, 0.75, -0.75)):
        kernels.add_within(p, index, np.float32(more))
    assert p.tolist() == [0.75, 1, 0]


def test_sums_over_paths_are_at_most_one_dense_or_sparse() -> None:
    paths = sparse.csr_array(np.array([[1.0, 1, 0], [1, 0, 1]]))
    p = np.array([[0.75, 0.75], [0.25, 0.5]])
    for form in (p, sparse.csr_array(p)):
        nodes = sum_to_nodes(form, paths)
        dense = nodes.toarray() if sparse.issparse(nodes) else nodes
        assert dense.tolist() == [[1, 0.75, 0.75], [0.75, 0.25, 0.5]]
        assert nodes.dtype == np.float32
