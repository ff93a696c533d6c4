"""Label trees, rankers, beams, and the models extreme and svm."""

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.svm import LinearSVC

import treelabel
from tests.helpers import make_model
from treelabel.core.errors import TreelabelError
from treelabel.core.stopping import StopSignal
from treelabel.hierarchy import Hierarchy
from treelabel.models.check import check_model
from treelabel.models.descriptions import UnknownLabelWarning
from treelabel.models.extreme import beam, forest
from treelabel.models.extreme.beam import search
from treelabel.models.extreme.clustering import cluster_labels, pifa
from treelabel.models.extreme.forest import fit_forest, largest_features, tree_sizes
from treelabel.models.extreme.label_tree import LabelTree, hierarchy_tree, tree_of
from treelabel.models.extreme.rankers import Rankers, Solver, train_rankers
from treelabel.models.linear import model as linear

RNG = np.random.default_rng


def unit_rows(count: int, width: int, density: float = 0.2, seed: int = 0) -> sparse.csr_array:
    """Return random sparse rows of length 1."""
    rows = sparse.random_array((count, width), density=density, rng=RNG(seed), dtype=np.float32).tocsr()
    rows.data[:] = np.abs(rows.data)
    lengths = np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1)).ravel())
    scaled = sparse.csr_array(sparse.diags_array(1 / np.maximum(lengths, 1e-9)) @ rows, dtype=np.float32)
    scaled.sort_indices()
    return scaled


def some_labels(count: int, labels: int, seed: int = 0) -> sparse.csr_array:
    """Return one to three labels for each document, frequent ones more often."""
    rng, p = RNG(seed), 1 / np.arange(1, labels + 1)
    rows = [np.sort(rng.choice(labels, rng.integers(1, 4), replace=False, p=p / p.sum())) for _ in range(count)]
    ptr = np.cumsum([0, *map(len, rows)])
    return sparse.csr_array((np.ones(ptr[-1], np.bool_), np.concatenate(rows).astype(np.int32), ptr), (count, labels))


def planted(documents: int, labels: int, seed: int = 0) -> tuple[list[str], list[list[str]]]:
    """Return texts that have a word of their label, a word of its group of ten, and noise."""
    rng = RNG(seed)
    texts, names = [], []
    for _ in range(documents):
        label = int(rng.integers(labels))
        noise = " ".join(f"noise{word}" for word in rng.integers(200, size=6))
        texts.append(f"own{label} group{label // 10} {noise}")
        names.append([f"label {label}"])
    return texts, names


# Features and clusters of labels


def test_label_features_are_the_scaled_mean_of_documents() -> None:
    features, labels = unit_rows(60, 40), some_labels(60, 15)
    sums = labels.T.astype(np.float64) @ features.toarray().astype(np.float64)
    expected = sums / np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-12)
    assert_allclose(pifa(features, labels).toarray(), expected, atol=1e-6)


def test_only_the_largest_features_of_a_label_are_kept() -> None:
    features, labels = unit_rows(60, 40), some_labels(60, 15)
    whole, few = pifa(features, labels).toarray(), pifa(features, labels, 4).toarray()
    assert ((few > 0).sum(axis=1) <= 4).all()
    for one, other in zip(whole, few, strict=True):
        kept = np.argsort(-one)[:4]
        expected = np.where(np.isin(np.arange(40), kept), one, 0)
        assert_allclose(other, expected / max(np.linalg.norm(expected), 1e-12), atol=1e-6)
    assert_allclose(largest_features(sparse.csr_array(whole), 4).toarray(), few, atol=1e-6)


@pytest.mark.parametrize(
    ("labels", "sizes"),
    [(100, [7]), (101, [3, 12]), (64, [4, 16]), (219, [3, 10]), (37, [6, 13, 30]), (5, [2]), (3, [8]), (1, [])],
)
def test_clusters_are_balanced_and_have_every_label_once(labels: int, sizes: list[int]) -> None:
    tree = cluster_labels(unit_rows(labels, 30), sizes)
    assert sorted(tree.labels.tolist()) == list(range(labels))
    leaves = np.diff(tree.children[-1])
    assert leaves.max() - leaves.min() <= 1
    for above, below in zip(tree.children, tree.children[1:], strict=False):
        assert above[-1] == len(below) - 1


def test_similar_labels_come_into_the_same_cluster() -> None:
    rng = RNG(3)
    rows = np.repeat(rng.random((2, 40)) < 0.2, 8, axis=0) + 0.1 * rng.random((16, 40))
    order = rng.permutation(16)
    unit = (rows / np.linalg.norm(rows, axis=1, keepdims=True))[order].astype(np.float32)
    tree = cluster_labels(sparse.csr_array(unit), [2])
    found = np.repeat(np.arange(2), np.diff(tree.children[-1]))
    for cluster in range(2):
        assert len({order[label] // 8 for label in tree.labels[found == cluster]}) == 1


def test_clusters_of_many_labels_are_closer_than_chance() -> None:
    groups = RNG(4).random((16, 200)) * (RNG(5).random((16, 200)) < 0.1)
    rows = np.repeat(groups, 16, axis=0) + 0.05 * RNG(6).random((256, 200))
    unit = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    tree = cluster_labels(sparse.csr_array(unit), [16])
    means = [np.linalg.norm(unit[part].mean(axis=0)) for part in np.split(tree.labels, tree.children[-1][1:-1])]
    chance = [np.linalg.norm(unit[part].mean(axis=0)) for part in np.split(RNG(7).permutation(256), 16)]
    assert np.mean(means) > 0.8 > np.mean(chance) + 0.3


def test_the_same_seed_makes_the_same_clusters() -> None:
    rows = unit_rows(200, 50)
    one, two, other = (cluster_labels(rows, [4, 16], seed).labels for seed in (1, 1, 2))
    assert_array_equal(one, two)
    assert not np.array_equal(one, other)


def test_a_label_tree_of_a_hierarchy_has_its_inner_nodes_as_clusters() -> None:
    h = Hierarchy.from_paths(["A > B > C", "A > B > D", "A > E", "F"])
    names = ["C", "D", "E", "F", "A"]
    tree = hierarchy_tree(h, np.array([h.names.index(name) for name in names], np.int32))
    assert sorted(tree.labels.tolist()) == list(range(5))
    above = tree.above(sparse.csr_array(np.eye(5)))
    # C and D are in one cluster on every level, and E and the label A itself are in the same one at first.
    assert all((each[[0]] != each[[1]]).nnz == 0 for each in above[:-1])
    assert above[0][[0]].indices.tolist() == above[0][[2]].indices.tolist() == above[0][[4]].indices.tolist()
    assert above[0][[3]].indices.tolist() != above[0][[0]].indices.tolist()


def test_a_label_of_a_dag_stands_below_each_parent() -> None:
    h = Hierarchy.from_edges([("pet", "dog"), ("work", "dog"), ("pet", "cat"), ("work", "horse")])
    labels = np.array([h.names.index(name) for name in ("dog", "cat", "horse")], np.int32)
    tree = hierarchy_tree(h, labels)
    assert sorted(tree.labels.tolist()) == [0, 0, 1, 2]
    assert np.diff(tree.above(sparse.csr_array(np.eye(3)))[0].indptr).tolist() == [2, 1, 1]


def test_trees_grow_with_the_logarithm_of_labels() -> None:
    assert [len(tree_sizes(10**power, 100)) for power in range(1, 9)] == [0, 0, 1, 1, 2, 2, 3, 3]


def test_labels_of_equal_scores_do_not_displace_better_ones() -> None:
    ptr, labels = np.array([[0, 3]]), np.array([0, 1, 2], np.int32)
    scores = np.log(np.array([0.1, 0.1, 0.9], np.float32))
    ends, found, means = forest.mean_scores(ptr, np.array([0, 3]), labels, scores, 2)
    assert (ends.tolist(), found.tolist()) == ([0, 2], [0, 2])
    assert_allclose(np.exp(means), [0.1, 0.9], rtol=1e-5)


def test_a_label_in_several_clusters_has_its_best_score_of_each_tree() -> None:
    ptr, labels = np.array([[0, 2], [0, 1]]), np.array([4, 4, 4], np.int32)
    scores = np.log(np.array([0.9, 0.8, 0.5], np.float32))
    _, found, means = forest.mean_scores(ptr, np.array([0, 2, 3]), labels, scores, 5)
    assert found.tolist() == [4]
    assert_allclose(np.exp(means), [0.7], rtol=1e-5)


def test_large_negative_features_of_a_label_are_kept() -> None:
    kept = largest_features(sparse.csr_array(np.array([[-3.0, 1.0, 0.5]], np.float32)), 2).toarray()
    assert_allclose(kept, [[-3 / np.sqrt(10), 1 / np.sqrt(10), 0]], rtol=1e-6)


# Rankers and beams


def test_rankers_of_one_cluster_are_support_vector_machines() -> None:
    features, labels = unit_rows(300, 60), some_labels(300, 20)
    shown = sparse.csr_array(np.ones((300, 1), np.bool_))
    found = train_rankers(features, shown, labels, np.array([0, 20]), Solver(1.0, 200, 0.0), None, StopSignal())
    for label in (0, 3, 15):
        true = labels[:, [label]].toarray().ravel()
        svm = LinearSVC(C=1.0, tol=1e-6, max_iter=100_000, random_state=0).fit(features, true)
        weights = np.zeros(60)
        at = np.repeat(np.arange(len(found.features)), np.diff(found.rows))
        mine = found.children == label
        weights[found.features[at[mine]]] = found.weights[mine]
        assert_allclose(features @ weights + found.bias[label], svm.decision_function(features), atol=0.05)


def test_rankers_see_only_the_documents_of_their_cluster() -> None:
    features, labels = unit_rows(200, 60), some_labels(200, 12)
    tree = tree_of([[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]])
    above = tree.above(labels)
    whole = train_rankers(features, above[0], above[1], tree.children[1], Solver(), None, StopSignal())
    inside = above[0][:, [1]].toarray().ravel()
    changed = features.copy()
    # Documents of other clusters alone are replaced.
    changed = sparse.csr_array(sparse.diags_array(inside.astype(np.float32)) @ changed)
    changed.sort_indices()
    again = train_rankers(changed, above[0], above[1], tree.children[1], Solver(), None, StopSignal())
    assert_array_equal(whole.bias[4:8], again.bias[4:8])
    low, high = whole.clusters[1], whole.clusters[2]
    assert_array_equal(whole.features[low:high], again.features[again.clusters[1] : again.clusters[2]])


def brute_force(features: sparse.csr_array, tree: LabelTree, levels: list[Rankers]) -> np.ndarray:
    """Score every label of every document, level by level, without a beam."""
    dense = features.toarray()
    scores = np.zeros((len(dense), 1))
    for ends, rankers in zip(tree.children, levels, strict=True):
        below = np.zeros((len(dense), int(ends[-1])))
        for cluster in range(len(ends) - 1):
            weights = np.zeros((dense.shape[1], ends[cluster + 1] - ends[cluster]))
            for place in range(rankers.clusters[cluster], rankers.clusters[cluster + 1]):
                for at in range(rankers.rows[place], rankers.rows[place + 1]):
                    weights[rankers.features[place], rankers.children[at]] = rankers.weights[at]
            margins = dense @ weights + rankers.bias[ends[cluster] : ends[cluster + 1]]
            missing = 1 - margins
            loss = np.where(missing > 0, missing**2, float(beam.BEYOND) * missing)
            below[:, ends[cluster] : ends[cluster + 1]] = scores[:, [cluster]] - loss
        scores = below
    return scores


@pytest.mark.parametrize("batch", [4, 4096])
def test_a_wide_beam_finds_what_brute_force_does(batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beam, "BATCH", batch)
    features, labels = unit_rows(150, 60), some_labels(150, 30)
    made = fit_forest(
        features, labels, None, [lambda rows: cluster_labels(rows, [3, 9])], Solver(), "gold", 10, 0.0, StopSignal()
    )
    tree, levels = made.trees[0]
    expected = brute_force(features, tree, list(levels))
    found = search(features, tree, levels, 9, 5)
    for row in range(150):
        own = slice(found.indptr[row], found.indptr[row + 1])
        assert_allclose(found.data[own], np.sort(expected[row])[::-1][:5], atol=1e-4)
        assert_allclose(expected[row, found.indices[own]], found.data[own], atol=1e-4)


def test_labels_off_the_beam_are_not_touched() -> None:
    features, labels = unit_rows(150, 60), some_labels(150, 30)
    made = fit_forest(
        features, labels, None, [lambda rows: cluster_labels(rows, [6])], Solver(), "gold", 10, 0.0, StopSignal()
    )
    tree, levels = made.trees[0]
    narrow = search(features, tree, levels, 1, 30)
    assert_array_equal(np.diff(narrow.indptr), np.full(150, 5))
    best = search(features, tree, levels[:1], 1, 1).indices
    assert_array_equal(tree.parents(1)[narrow.indices], np.repeat(best, 5))


def test_negatives_of_the_matcher_come_from_its_beam(monkeypatch: pytest.MonkeyPatch) -> None:
    features, labels = unit_rows(150, 60), some_labels(150, 30)
    shown: list[sparse.csr_array] = []
    real = train_rankers

    def spy(rows: sparse.csr_array, given: sparse.csr_array, *rest: object) -> Rankers:
        shown.append(given)
        return real(rows, given, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(forest, "train_rankers", spy)
    make = [lambda rows: cluster_labels(rows, [6])]
    made = fit_forest(features, labels, None, make, Solver(), "both", 2, 0.0, StopSignal())
    tree, levels = made.trees[0]
    sent = search(features, tree, levels[:1], 2, 2).toarray() != 0
    gold = tree.above(labels)[0].toarray()
    assert_array_equal(shown[1].toarray(), sent | gold)
    assert (sent & ~gold).any()


def test_emphasis_raises_the_scores_of_a_label() -> None:
    features, labels = unit_rows(300, 60), some_labels(300, 20)
    shown = sparse.csr_array(np.ones((300, 1), np.bool_))
    extra = np.ones(20, np.float32)
    extra[5] = 20
    plain, raised = (
        train_rankers(features, shown, labels, np.array([0, 20]), Solver(0.1, 50), given, StopSignal())
        for given in (None, extra)
    )
    tree = LabelTree((np.array([0, 20]),), np.arange(20, dtype=np.int32))
    one, two = (search(features, tree, [each], 1, 20).toarray() for each in (plain, raised))
    own = labels[:, [5]].toarray().ravel()
    assert two[own, 5].mean() > one[own, 5].mean() + 0.1
    # Sixteen labels are learned together, and share which documents are skipped; others are as they were.
    assert_array_equal(one[:, 16:], two[:, 16:])


# The models


@pytest.mark.parametrize("name", ["extreme", "svm"])
@pytest.mark.slow
def test_models_pass_the_battery(name: str) -> None:
    check_model(lambda: treelabel.make_model(name))


@pytest.mark.slow
def test_the_hierarchy_as_label_tree_passes_the_battery() -> None:
    check_model(lambda: treelabel.make_model("extreme", tree="hierarchy", negatives="both"))


def test_extreme_learns_many_labels_from_few_documents() -> None:
    texts, names = planted(3000, 300)
    test_texts, test_names = planted(500, 300, seed=1)
    h = Hierarchy.flat([f"label {label}" for label in range(300)])
    model = make_model("extreme", leaf_size=20).fit(texts, names, hierarchy=h)
    assert [tree.depth for tree, _ in model.forest_.trees] == [2, 2, 2]
    assert np.mean([found == true for found, true in zip(model.predict(test_texts), test_names, strict=True)]) > 0.95
    scores = model.score(test_texts)
    assert scores.is_sparse
    # Probabilities mean what they say: about one label is true of each document.
    assert 0.93 < scores.values.sum() / len(test_texts) < 1.05


def test_a_label_without_documents_is_found_by_its_name() -> None:
    texts, names = planted(800, 40)
    h = Hierarchy.flat([*(f"label {label}" for label in range(40)), "noise17 noise170"])
    model = treelabel.make_model("extreme").fit(texts, names, hierarchy=h)
    p = model.score(["noise17 noise170", "own5 group0 noise7"]).dense()
    assert p[0, 40] == p[0].max()
    without = treelabel.make_model("extreme", label_text=False).fit(texts, names, hierarchy=h)
    assert without.score(["noise17 noise170"]).dense()[0, 40] == 0


def test_descriptions_take_the_place_of_names(tmp_path: Path) -> None:
    texts, names = planted(800, 40)
    h = Hierarchy.flat([*(f"label {label}" for label in range(40)), "x"])
    file = tmp_path / "names.tsv"
    file.write_text("x\tnoise17 noise170\nnot in the data\tsomething\n")
    with pytest.warns(UnknownLabelWarning, match="1 unknown labels are passed over"):
        model = treelabel.make_model("extreme", descriptions=str(file)).fit(texts, names, hierarchy=h)
    assert model.predict(["noise17 noise170"]) == [["x"]]


def test_features_without_texts_are_learned_and_scored(tmp_path: Path) -> None:
    texts, names = planted(600, 30)
    words = sorted({word for text in texts for word in text.split()})
    place = {word: at for at, word in enumerate(words)}
    lines = [f"600 {len(words)} 30"]
    for text, (name,) in zip(texts, names, strict=True):
        cells = " ".join(f"{at}:1" for at in sorted({place[word] for word in text.split()}))
        lines.append(f"{name.split()[1]} {cells}")
    file = tmp_path / "data.xmc"
    file.write_text("\n".join(lines) + "\n")
    data = treelabel.read(file)
    for name in ("extreme", "svm"):
        model = treelabel.make_model(name).fit(data[:500])
        assert np.mean([a == b for a, b in zip(model.predict(data[500:]), data[500:].names(), strict=True)]) > 0.9
        treelabel.save_model(model, tmp_path / name)
        loaded = treelabel.load_model(tmp_path / name)
        assert_array_equal(loaded.score(data[500:]).dense(), model.score(data[500:]).dense())
        with pytest.raises(TreelabelError, match="has learned from features, but found texts"):
            model.score(["own3"])
    with pytest.raises(TreelabelError, match="features and no texts, which the model linear cannot"):
        treelabel.make_model("linear").fit(data)


def test_features_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "data.xmc"
    file.write_text("2 3 2\n0 1:nan\n1 2:1\n")
    with pytest.raises(TreelabelError, match=r"data.xmc:2: the value of feature '1:nan' is not a finite number"):
        treelabel.read(file)
    file.write_text("40 3 2\n" + "0 1:1\n1 2:1\n" * 20)
    data = treelabel.read(file)
    model = treelabel.make_model("extreme").fit(data)
    features: Any = data.features
    rows = features.copy()
    rows.data[3] = np.inf
    with pytest.raises(TreelabelError, match="document 3: feature 2 is inf"):
        model.score(rows)
    large, plain = model.score(1e37 * features).dense(), model.score(data).dense()
    assert np.abs(large - plain).max() < 1e-6


def test_hierarchies_that_are_no_label_trees_are_refused() -> None:
    chain = Hierarchy.from_paths([" > ".join(f"n{level}" for level in range(100))])
    model = treelabel.make_model("extreme", tree="hierarchy")
    with pytest.raises(TreelabelError, match=r"has 100 levels.*use tree='clusters'"):
        model.fit(["a", "b"], [["n3"], ["n7"]], hierarchy=chain)
    ladder = Hierarchy.from_edges([(f"{a}{at}", f"{b}{at + 1}") for at in range(20) for a in "ab" for b in "ab"])
    with pytest.raises(TreelabelError, match=r"unfolding would make .*use tree='clusters'"):
        model.fit(["a", "b"], [["a3"], ["b7"]], hierarchy=ladder)


def test_memory_of_scores_grows_with_candidates_and_not_with_labels() -> None:
    texts, names = planted(400, 200)
    h = Hierarchy.flat([f"label {label}" for label in range(200)])
    model = treelabel.make_model("extreme", n_candidates=7, leaf_size=10, beam_size=3).fit(texts, names, hierarchy=h)
    assert np.diff(model.score(texts).values.indptr).max() <= 7
    assert np.diff(model.score(texts, top=2).values.indptr).max() <= 2


def test_linear_hands_over_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "MOST_WORK", 1e4)
    texts, names = planted(300, 30)
    h = Hierarchy.flat([f"label {label}" for label in range(30)])
    with pytest.warns(linear.HandoverWarning, match="the model extreme learns instead"):
        model = treelabel.make_model("linear").fit(texts, names, hierarchy=h)
    treelabel.save_model(model, tmp_path / "model")
    loaded = treelabel.load_model(tmp_path / "model")
    assert_array_equal(loaded.score(texts).dense(), model.score(texts).dense())
    assert np.mean([a == b for a, b in zip(model.predict(texts), names, strict=True)]) > 0.9
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        insisted = make_model("linear", head="nodes").fit(texts, names, hierarchy=h)
    assert insisted.extreme_ is None


def test_the_macro_optimal_rule_decides_on_sparse_scores() -> None:
    texts, names = planted(1500, 60)
    pairs = [f"{one} {two}" for one, two in zip(texts[::2], texts[1::2], strict=True)]
    labels = [[*one, *two] for one, two in zip(names[::2], names[1::2], strict=True)]
    h = Hierarchy.flat([f"label {label}" for label in range(60)])
    model = treelabel.make_model("extreme", leaf_size=10).fit(pairs[:600], labels[:600], hierarchy=h)
    scores = model.score(pairs[600:])
    chosen = treelabel.decide(scores, "optimal:macro_f1@2")
    assert np.diff(chosen.csr.indptr).max() == 2
    found = treelabel.evaluate(labels[600:], decisions=chosen, hierarchy=h, metrics=["macro_f1"])["macro_f1"]
    assert found > 0.9


def test_a_broken_label_tree_is_refused(tmp_path: Path) -> None:
    texts, names = planted(200, 30)
    h = Hierarchy.flat([f"label {label}" for label in range(30)])
    model = treelabel.make_model("extreme", leaf_size=10).fit(texts, names, hierarchy=h)
    values, arrays = model._state()
    schema = model.schema(json.loads(json.dumps(values)))
    schema.check(arrays)
    changes: tuple[tuple[str, Callable[[Any], Any]], ...] = (
        ("forest.0.tree_children", lambda a: a[::-1].copy()),
        ("forest.0.1.children", lambda a: a + 30),
        ("forest.0.1.clusters", lambda a: a[::-1].copy()),
        ("forest.0.1.rows", lambda a: a - 1),
        ("forest.0.1.features", lambda a: a[::-1].copy()),
        ("forest.1.tree_labels", lambda a: a + 1),
        ("forest.prototypes_indices", lambda a: a + 10**6),
        ("labels", lambda a: a[::-1].copy()),
    )
    for name, change in changes:
        with pytest.raises(TreelabelError):
            schema.check({**arrays, name: change(arrays[name])})
