"""The largest scores of a text: those of all scores, in memory that grows with them and not with the nodes."""

import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers import WordVectors, registered
from treelabel import MODELS, Dataset, Hierarchy, TreelabelError, load_sample, make_model
from treelabel.calibration import contract as calibration
from treelabel.models import prediction
from treelabel.models.check import CASES
from treelabel.models.linear.heads import HEADS

SETS = {kind: Dataset.of(case.texts, case.labels, case.hierarchy) for kind, case in CASES.items()}
NEEDED: dict[str, dict[str, Any]] = {
    "prototype": {"encoder": "words"},
    "tuned_prototype": {"encoder": "words"},
    "stack": {"estimators": ("linear", "most_frequent"), "cv": 2},
    "neural": {"encoder": "words", "epochs": 1},
}


@pytest.fixture(autouse=True)
def words(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("TREELABEL_CACHE", str(tmp_path / "cache"))
    with registered("words", WordVectors):
        yield


NETWORKS = ("neural", "hitin", "hgclr", "hbgl", "aplc_xlnet", "x_transformer", "attention_xml", "light_xml")


def assert_largest(model: Any, texts: Any, top: int) -> None:
    whole, found = model.score(texts).top_k(top).csr(), model.score(texts, top=top).csr()
    assert np.array_equal(found.indptr, whole.indptr)
    assert np.array_equal(found.indices, whole.indices)
    assert np.array_equal(found.data, whole.data)


@pytest.mark.parametrize("kind", CASES)
@pytest.mark.parametrize("name", [name for name in MODELS if name not in NETWORKS])
@pytest.mark.slow
def test_the_largest_scores_of_every_model_are_those_of_all(
    name: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prediction, "BLOCK_SCORES", 20)
    monkeypatch.setattr(calibration, "THREAD_SCORES", 20)
    model = make_model(name, **NEEDED.get(name, {})).fit(SETS[kind])
    assert_largest(model, SETS[kind], 2)
    assert len(model.score([], top=2)) == 0


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.slow
def test_the_largest_scores_of_networks_are_those_of_all_but_for_rounding(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prediction, "BLOCK_SCORES", 20)
    data = SETS["leaf"]
    model = make_model(name, **NEEDED.get(name, {"encoder": "words", "epochs": 2})).fit(data)
    # How torch multiplies matrices depends on their sizes.
    whole, found = model.score(data).top_k(2).csr(), model.score(data, top=2).csr()
    assert np.array_equal(found.indptr, whole.indptr)
    np.testing.assert_allclose(np.sort(found.data.reshape(-1, 2)), np.sort(whole.data.reshape(-1, 2)), atol=1e-5)


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.slow
def test_every_head_keeps_the_largest(head: str) -> None:
    data = load_sample()[::10]
    assert_largest(make_model(head=head).fit(data), data, 5)


def test_at_least_one_score_is_kept() -> None:
    model = make_model("most_frequent").fit(SETS["leaf"])
    with pytest.raises(TreelabelError, match=r"expected to keep at least 1 score per text, found top=0"):
        model.score(["a"], top=0)


@pytest.mark.slow
def test_memory_grows_with_the_scores_that_are_kept() -> None:
    names = [f"label{number}" for number in range(5_000)]
    h = Hierarchy.flat(names)
    texts = [f"word{number} other{number % 70}" for number in range(5_000)]
    model = make_model("linear", hierarchy=h, max_iter=1).fit(texts, [[name] for name in names])
    asked = texts * 4
    tracemalloc.start()
    try:
        scores = model.score(asked, top=5)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(scores) == 20_000
    assert scores.csr().nnz == 5 * 20_000
    # All scores would take 400 MB.
    assert peak < 40e6
    assert_largest(model, asked[:200], 5)
