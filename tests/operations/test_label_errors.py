"""Labels that look wrong: values by hand, a slow twin, several labels, copies, and scores that were cut short."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treelabel import Hierarchy, Scores
from treelabel.hierarchy.label_ids import encode
from treelabel.operations.label_errors import PRIOR, SUREST, Disagreements, disagreements, find_suspects

TREE = Hierarchy.from_paths(["A > B", "A > C", "D > E", "D > F", "D > G"])
LEAVES = ["B", "C", "E", "F", "G"]
BRANCHES = {"A": ["B", "C"], "D": ["E", "F", "G"]}


def scores(rows: list[list[float]]) -> Scores:
    return Scores.from_leaves(TREE, LEAVES, np.array(rows))


def slow_near_share(p: list[list[float]], labels: list[str]) -> float:
    """Count the siblings among labels that are not the likeliest, in the quarter of documents that are surest."""
    used = [leaf for leaf in LEAVES if leaf in labels]
    best = []
    for row, label in zip(p, labels, strict=True):
        likely = [label, *(leaf for leaf in used if leaf != label)]
        value, at = max((row[LEAVES.index(leaf)], -at) for at, leaf in enumerate(likely))
        best.append((value, likely[-at]))
    surest = sorted(range(len(p)), key=lambda row: -best[row][0])[: int(SUREST * len(p))]
    slips = [(labels[row], best[row][1]) for row in surest if best[row][1] != labels[row]]
    siblings = sum(any({one, two} <= set(below) for below in BRANCHES.values()) for one, two in slips)
    share = (siblings + 0.5) / (len(slips) + 2)
    return share**2 / (share**2 + (1 - share) ** 2)


def slow_odds(p: list[float], given: str, counts: dict[str, int], near_share: float) -> float:
    """Compute q(g) / p(g), straight from the definition."""
    leaf, branch = dict(zip(LEAVES, p, strict=True)), BRANCHES
    top = next(name for name, below in branch.items() if given in below)
    used = [name for name in LEAVES if counts[name]]
    near_labels = [name for name in branch[top] if name in used]
    p_top = sum(leaf[name] for name in branch[top])
    near = (p_top - leaf[given]) / max(len(near_labels) - 1, 1)
    anywhere = (1 - leaf[given]) / max(len(used) - 1, 1)
    documents = sum(counts[name] for name in branch[top]) - 1
    shrunk = (documents * p_top + PRIOR * len(near_labels) / len(used)) / (documents + PRIOR)
    documents = counts[given] - 1
    shrunk = (documents * leaf[given] + PRIOR * shrunk / len(near_labels)) / (documents + PRIOR)
    return (near_share * near + (1 - near_share) * anywhere) / shrunk


@given(
    st.lists(
        st.tuples(st.lists(st.integers(1, 9), min_size=5, max_size=5), st.sampled_from(LEAVES)), min_size=2, max_size=8
    )
)
def test_labels_are_ranked_as_the_slow_twin_does(rows: list[tuple[list[int], str]]) -> None:
    p = [[weight / sum(weights) for weight in weights] for weights, _ in rows]
    given_labels = [label for _, label in rows]
    counts = {name: given_labels.count(name) for name in LEAVES}
    share = slow_near_share(p, given_labels)
    odds = [slow_odds(each, label, counts, share) for each, label in zip(p, given_labels, strict=True)]
    found = find_suspects(scores(p), encode(TREE, given_labels))
    assert np.allclose(found.score, np.minimum(1, np.array(odds)[found.rows] * found.rate))
    assert (np.diff(np.array(odds)[found.rows]) <= 1e-9).all()
    for row, suggested in zip(found.rows.tolist(), found.suggested.tolist(), strict=True):
        others = {name: value for name, value in zip(LEAVES, p[row], strict=True) if name != given_labels[row]}
        others = {name: value for name, value in others.items() if counts[name]}
        if others:
            assert p[row][LEAVES.index(TREE.names[suggested])] == pytest.approx(max(others.values()))


@pytest.mark.parametrize("kind", ["siblings", "uniform"])
def test_slips_are_found_no_worse_than_by_self_confidence(kind: str) -> None:
    """Draw labels of which 5% are slips, and probabilities of a model that is lost with a tenth of the documents."""
    h = Hierarchy.from_paths([f"{top} > {top}{leaf}" for top in "abcdef" for leaf in range(5)])
    rng, size, leaf = np.random.default_rng(5), 4000, np.arange(30)
    true = rng.integers(30, size=size)
    told = 2.5 * (true[:, None] // 5 == leaf // 5) + (true[:, None] == leaf) * rng.gamma(3.0, 5 / 3, (size, 1))
    p = np.exp(rng.normal(size=(size, 30)) + told * (rng.random((size, 1)) > 0.1))
    p /= p.sum(axis=1, keepdims=True)
    given_labels = true.copy()
    slips = rng.choice(size, 200, replace=False)
    step = rng.integers(1, 5 if kind == "siblings" else 30, 200)
    within = true[slips] // 5 * 5 + (true[slips] + step) % 5
    given_labels[slips] = within if kind == "siblings" else (true[slips] + step) % 30
    leaves = h.paths(h.leaves)
    found = find_suspects(Scores.from_leaves(h, leaves, p), encode(h, [[leaves[at]] for at in given_labels]))
    by_confidence = np.argsort(p[np.arange(size), given_labels], kind="stable")
    ours, theirs = (np.isin(rows[:200], slips).mean() for rows in (found.rows, by_confidence))
    assert ours >= theirs + (0.15 if kind == "siblings" else -0.02)
    assert ours > 0.6


def sure(name: str, other: str = "", share: float = 0.0) -> list[float]:
    rest = (0.05 - share * 0.05) / 4
    return [0.95 if leaf == name else share * 0.05 if leaf == other else rest for leaf in LEAVES]


def test_reasons_tell_how_far_the_suggested_label_is() -> None:
    labels = [*LEAVES * 4, "C", "E"]
    p = [sure(name) for name in LEAVES * 4] + [sure("B"), sure("B")]
    found = find_suspects(scores(p), encode(TREE, labels))
    assert dict(zip(found.rows[:2].tolist(), found.reasons[:2], strict=True)) == {20: "sibling", 21: "far"}
    assert [TREE.names[node] for node in found.suggested[:2]] == ["B", "B"]
    assert found.p_suggested[:2].tolist() == pytest.approx([0.95, 0.95])
    assert (found.score[:2] > 0.5).all()
    assert (found.score[2:] < 0.1).all()


def test_labels_that_stop_too_early_or_go_too_deep_are_told() -> None:
    h = Hierarchy.from_paths(["A > B", "C > D"])
    p = Scores(h, [[0.95, 0.05, 0.9, 0.05]] * 8 + [[0.95, 0.05, 0.02, 0.05]] * 8)
    labels = encode(h, ["B"] * 7 + ["A"] + ["A"] * 7 + ["B"])
    found = find_suspects(p, labels)
    assert sorted(zip(found.rows[:2].tolist(), found.reasons[:2], strict=True)) == [(7, "deeper"), (15, "higher")]


def test_of_several_labels_one_may_be_extra_and_one_missing() -> None:
    h = Hierarchy.flat(["x", "y", "z"])
    likely = [[0.9, 0.9, 0.05], [0.9, 0.05, 0.9]] * 5
    labels = [["x", "y"], ["x", "z"]] * 5
    labels[0], labels[1] = ["x", "y", "z"], ["z"]
    found = find_suspects(Scores(h, np.array(likely)), encode(h, labels))
    first = {(row, reason) for row, reason in zip(found.rows[:2].tolist(), found.reasons[:2], strict=True)}
    assert first == {(0, "extra"), (1, "missing")}
    missing = found.reasons.index("missing")
    assert (found.labels[missing], h.names[found.suggested[missing]]) == (-1, "x")
    assert np.isnan(found.p_given[missing])
    assert found.p_suggested[missing] == pytest.approx(0.9)


def test_copies_with_other_labels_raise_the_doubt() -> None:
    p = scores([sure(name) for name in LEAVES * 3] + [[0.4, 0.4, 0.1, 0.05, 0.05]] * 2)
    labels = encode(TREE, [*LEAVES * 3, "B", "C"])
    codes = np.array([*range(15), 15, 15])
    same = disagreements(codes, labels)
    assert same.share[-2:].tolist() == [0.5, 0.5]
    assert same.copy[-2:].tolist() == [16, 15]
    with_copies, without = find_suspects(p, labels, same), find_suspects(p, labels)
    assert with_copies.reasons[:2] == ["duplicate disagrees"] * 2
    assert with_copies.copies[:2].tolist() == [16, 15]
    assert with_copies.score[0] > without.score[0]


@given(st.lists(st.tuples(st.integers(-1, 2), st.sampled_from(LEAVES)), max_size=10))
def test_disagreements_are_shares_of_the_same_text(rows: list[tuple[int, str]]) -> None:
    codes, labels = [code for code, _ in rows], [label for _, label in rows]
    found: Disagreements = disagreements(np.array(codes, np.int64), encode(TREE, labels))
    for row, (code, label) in enumerate(rows):
        same = [at for at, other in enumerate(codes) if other == code >= 0]
        others = [at for at in same if labels[at] != label]
        assert found.share[row] == pytest.approx(len(others) / len(same) if others else 0)
        assert (found.copy[row] in others) if others else found.copy[row] == -1


def test_scores_of_which_only_the_largest_were_kept_tell_the_same() -> None:
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 5, 200)
    labels = truth.copy()
    labels[:10] = (truth[:10] + 2) % 5
    p = np.full((200, 5), 0.02)
    p[np.arange(200), truth] = 0.92
    whole = scores((p + rng.random(p.shape) / 100).tolist())
    matrix = encode(TREE, [LEAVES[label] for label in labels])
    for each in (whole, whole.top_k(5), Scores(TREE, whole.csr())):
        found = find_suspects(each, matrix)
        assert set(found.rows[:10].tolist()) == set(range(10))
        assert found.rate == pytest.approx(0.05)


def test_nothing_is_doubted_where_nothing_is_known() -> None:
    found = find_suspects(scores([sure("B")])[:0], encode(TREE, []))
    assert len(found) == 0
    assert find_suspects(scores([[0.0] * 5]), encode(TREE, ["B"])).suggested.tolist() == [-1]
