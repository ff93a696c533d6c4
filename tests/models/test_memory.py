"""The memory: neighbours are those of brute force, the nearest text decides, and nobody is his own neighbour."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from tests.helpers import WordVectors, load_model, make_model, registered
from treelabel import Hierarchy, TreelabelError
from treelabel.core.matrices import normalize_rows
from treelabel.models import neighbours
from treelabel.models.check import CASES, TREE, check_model
from treelabel.models.neighbours import DenseStore, Nearest, SparseStore, votes


@pytest.fixture(autouse=True)
def words(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("TREELABEL_CACHE", str(tmp_path / "cache"))
    with registered("words", WordVectors):
        yield


def by_hand(cosines: Any, count: int, groups: Any = None, own: Any = None) -> tuple[list[list[int]], list[list[float]]]:
    rows, values = [], []
    for at, line in enumerate(np.asarray(cosines, np.float32)):
        allowed = [row for row in range(len(line)) if line[row] > 0 and (groups is None or groups[row] != own[at])]
        best = sorted(allowed, key=lambda row: (-line[row], row))[:count]
        rows.append(best + [-1] * (count - len(best)))
        values.append([float(line[row]) for row in best] + [0.0] * (count - len(best)))
    return rows, values


# Neighbours


@pytest.mark.parametrize("grouped", [False, True])
def test_neighbours_of_embeddings_are_those_of_brute_force(grouped: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "STORED_BLOCK", 16)
    monkeypatch.setattr(neighbours, "BLOCK_COSINES", 64)
    rng = np.random.default_rng(0)
    stored = normalize_rows(rng.normal(size=(50, 8))).astype(np.float16)
    asked = normalize_rows(rng.normal(size=(21, 8))).astype(np.float32)
    groups, own = (rng.integers(0, 9, 50), rng.integers(0, 9, 21)) if grouped else (None, None)
    found = DenseStore(stored).nearest(asked, 7, groups, own)
    rows, values = by_hand(asked @ stored.astype(np.float32).T, 7, groups, own)
    assert found.rows.tolist() == rows
    assert found.cosines == pytest.approx(np.array(values), abs=1e-6)


@pytest.mark.parametrize("grouped", [False, True])
def test_neighbours_by_words_are_those_of_brute_force(grouped: bool) -> None:
    rng = np.random.default_rng(1)
    stored = normalize_rows(sparse.random_array((40, 30), density=0.1, rng=rng, format="csr", dtype=np.float32))
    asked = normalize_rows(sparse.random_array((25, 30), density=0.1, rng=rng, format="csr", dtype=np.float32))
    groups, own = (rng.integers(0, 5, 40), rng.integers(0, 5, 25)) if grouped else (None, None)
    found = SparseStore(stored).nearest(asked, 6, groups, own)
    rows, values = by_hand((asked @ stored.T).toarray(), 6, groups, own)
    assert found.cosines == pytest.approx(np.array(values), abs=1e-6)
    # Sums in another order may round two equal cosines apart.
    assert (found.rows == np.array(rows)).mean() > 0.95


def test_neighbours_vote_with_their_cosines() -> None:
    nearest = Nearest(np.array([[2, 0, -1]], np.int32), np.array([[0.8, 0.4, 0.0]], np.float32))
    targets = sparse.csr_array(np.array([[1, 0], [1, 1], [0, 1]], np.float32))
    assert votes(nearest, targets, 2.0).toarray()[0] == pytest.approx([0.16 / 0.8, 0.64 / 0.8])


# The model


@pytest.mark.parametrize("settings", [{}, {"encoder": "words"}], ids=str)
@pytest.mark.slow
def test_it_stands_every_check(settings: dict[str, Any]) -> None:
    assert check_model(lambda: make_model("memory", **settings)) == ()


def random_texts(count: int, seed: int = 0) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(f"word{number}" for number in rng.integers(0, 60, 12)) for _ in range(count)]


@pytest.mark.parametrize("settings", [{}, {"encoder": "words"}], ids=str)
def test_the_labels_of_a_near_duplicate_win(settings: dict[str, Any]) -> None:
    names = [f"label {number}" for number in range(30)]
    texts, rng = random_texts(120), np.random.default_rng(0)
    labels = [[names[at] for at in rng.choice(29, 2, replace=False)] for _ in texts]
    labels[77] = [names[29], names[3]]
    model = make_model("memory", hierarchy=Hierarchy.flat(names), **settings).fit(texts, labels)
    near = " ".join(texts[77].split()[:-1])
    best = model.score([near], top=2).csr()
    assert {names[node] for node in best.indices} == set(labels[77])
    assert best.nnz == 2


@pytest.mark.parametrize("encoder", [None, "words"])
def test_a_document_is_not_its_own_neighbour_nor_is_its_group(
    encoder: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = random_texts(20)
    # Each text stands there three times, and each copy would give the label away.
    copies, h = [text for text in texts for _ in range(3)], Hierarchy.flat([f"x{at}" for at in range(20)])
    labels = [[f"x{at}"] for at in range(20) for _ in range(3)]
    asked: list[tuple[Any, Any, Nearest]] = []
    for store in (DenseStore, SparseStore):
        plain = store.nearest

        def told(self: Any, queries: Any, count: int, groups: Any = None, own: Any = None, plain: Any = plain) -> Any:
            asked.append((groups, own, plain(self, queries, count, groups, own)))
            return asked[-1][2]

        monkeypatch.setattr(store, "nearest", told)
    make_model("memory", hierarchy=h, encoder=encoder).fit(copies, labels, groups=np.repeat(np.arange(20), 3))
    searches = [each for each in asked if each[0] is not None]
    assert len(searches) == (1 if encoder is None else 2)
    for groups, own, found in searches:
        others = found.rows >= 0
        assert others.any()
        assert (groups[found.rows] != own[:, None])[others].all()
    asked.clear()
    make_model("memory", hierarchy=h, encoder=encoder).fit(copies, labels)
    _, own, found = next(each for each in asked if each[0] is not None)
    # Without groups the copies are found, but not the text itself.
    assert (found.cosines[:, 0] > 0.99).all()
    assert (found.rows[:, 0] != own).all()


@pytest.mark.parametrize("encoder", [None, "words"])
def test_a_label_that_no_text_has_is_found_by_its_name(encoder: str | None) -> None:
    h = Hierarchy.flat(["music", "sports", "4711-X"])
    texts = ["the band plays music", "the goal of sports", "chess club music", "open sports gambit"] * 6
    model = make_model("memory", hierarchy=h, encoder=encoder, descriptions={"4711-X": "chess opening gambit"})
    model.fit(texts, [["music"], ["sports"], ["music"], ["sports"]] * 6)
    names = model.names_.nearest(model._embed(["gambit opening chess"]), 1) if encoder else None
    assert names is None or names.rows[0, 0] == 2
    assert model.score(["gambit opening chess"]).dense()[0, 2] > 0


def test_texts_and_labels_can_be_added_later() -> None:
    case = CASES["leaf"]
    model = make_model("memory").fit(case.texts, case.labels, hierarchy=TREE)
    larger = Hierarchy.from_paths([*TREE.paths(), "pet > horse"])
    model.partial_fit(["curly cart word1 word2"] * 3, [["horse"]] * 3, hierarchy=larger)
    assert model.predict(["curly cart word1 word2", "sweet cake baked"])[1] == ["cake"]
    assert model.score(["curly cart word1 word2"]).dense()[0, larger.names.index("horse")] > 0.3
    assert model.targets_.shape == (len(case.texts) + 3, len(larger))
    with pytest.raises(TreelabelError, match=r"lacks labels that were learned: 'pet'"):
        model.partial_fit(["a"], [["horse"]], hierarchy=Hierarchy.from_paths(["animal > horse"]))


@pytest.mark.parametrize("encoder", [None, "words"])
def test_a_saved_memory_remembers_the_same(encoder: str | None, tmp_path: Path) -> None:
    case = CASES["many"]
    model = make_model("memory", encoder=encoder).fit(case.texts, case.labels, hierarchy=case.hierarchy)
    model.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert np.array_equal(loaded.score(case.texts).dense(), model.score(case.texts).dense())
    assert loaded.weights_ == model.weights_


@pytest.mark.slow
def test_memory_stays_small_with_very_many_labels() -> None:
    names = [f"label {number}" for number in range(30_000)]
    texts = [f"text of word{number % 400} and other{number % 77}" for number in range(600)]
    labels = [[names[number * 7], names[number * 11 + 3]] for number in range(600)]
    model = make_model("memory", hierarchy=Hierarchy.flat(names)).fit(texts, labels)
    scores = model.score(texts[:300])
    assert scores.is_sparse
    assert np.diff(scores.csr().indptr).max() <= 100
