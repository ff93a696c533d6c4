"""Prototypes: what they are made of, what leaving out means, and that they stand the battery."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers import WordVectors
from treelabel import Hierarchy, TreelabelError, make_model
from treelabel.features.encoders import ENCODERS
from treelabel.models.base import training_of
from treelabel.models.check import CASES, CHECKS, TREE, it_learns
from treelabel.models.prototype import first_means, inside_ends, unit


@pytest.fixture(autouse=True)
def words(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TREELABEL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(ENCODERS, "words", WordVectors)


@pytest.mark.parametrize("kind", CASES)
@pytest.mark.parametrize("check", CHECKS)
def test_it_stands_the_battery(check: str, kind: str) -> None:
    CHECKS[check](lambda: make_model("prototype", encoder="words"), CASES[kind])


@pytest.mark.parametrize("kind", CASES)
def test_it_learns(kind: str) -> None:
    it_learns(lambda: make_model("prototype", encoder="words"), CASES[kind])


def by_hand(
    h: Hierarchy, x: Any, closed: Any, labels: Any, pulls: tuple[float, float], without: int | None = None
) -> Any:
    """Prototypes straight from their definition."""
    found = np.zeros((len(h), x.shape[1]))
    for node in range(len(h)):
        texts = [row for row in range(len(x)) if closed[row, node] and row != without]
        parents = [p for p in h.parent_idx[h.parent_ptr[node] : h.parent_ptr[node + 1]] if p >= 0]
        above = np.mean([found[p] for p in parents], axis=0) if parents else 0
        k_p = pulls[0] if parents else 0
        found[node] = (x[texts].sum(axis=0) + k_p * above + pulls[1] * labels[node]) / (len(texts) + k_p + pulls[1])
    return found


@pytest.mark.parametrize("kind", ["leaf", "many", "DAG"])
def test_prototypes_are_what_they_are_defined_to_be(kind: str) -> None:
    case, rng = CASES[kind], np.random.default_rng(0)
    train = training_of(case.texts, case.labels, case.hierarchy)
    x = unit(rng.normal(size=(len(train), 5)).astype(np.float32))
    labels = unit(rng.normal(size=(len(train.hierarchy), 5)).astype(np.float32))
    means = first_means(train.hierarchy, inside_ends(train), labels).with_texts(x, train.closed)
    closed, pulls = train.closed.toarray(), (2.0, 1.5)
    assert means.prototypes(pulls) == pytest.approx(by_hand(train.hierarchy, x, closed, labels, pulls), abs=1e-5)
    cosines = means.left_out(x, train.closed, pulls)
    for row in (0, 7, len(x) - 1):
        without = unit(by_hand(train.hierarchy, x, closed, labels, pulls, without=row).astype(np.float32))
        own = closed[row].astype(bool)
        assert cosines[row, own] == pytest.approx((without @ x[row])[own], abs=1e-5)


def test_texts_that_come_later_count_as_if_they_had_been_there() -> None:
    case = CASES["path"]
    settings: dict[str, Any] = {"encoder": "words", "parent_pull": 2.0, "label_pull": 1.0}
    at_once = make_model("prototype", **settings).fit(case.texts, case.labels, hierarchy=TREE)
    later = make_model("prototype", **settings).fit(case.texts[:40], case.labels[:40], hierarchy=TREE)
    later.partial_fit(case.texts[40:], case.labels[40:])
    assert later.prototypes_ == pytest.approx(at_once.prototypes_, abs=1e-5)
    new = make_model("prototype", hierarchy=TREE, **settings).partial_fit(case.texts, case.labels)
    assert new.predict(["small terrier digs"]) == at_once.predict(["small terrier digs"])


def test_a_label_without_texts_is_known_by_its_name() -> None:
    case = CASES["leaf"]
    kept = [row for row, labels in enumerate(case.labels) if labels != ["soup"]]
    model = make_model("prototype", encoder="words").fit(
        [case.texts[row] for row in kept], [case.labels[row] for row in kept], hierarchy=TREE
    )
    assert model.predict(["food soup"]) == [["soup"]]


def test_it_needs_an_encoder() -> None:
    with pytest.raises(TreelabelError, match="prototype needs an encoder="):
        make_model("prototype").fit(["a"], [["cat"]], hierarchy=TREE)
