"""Prototypes: what they are made of, what leaving out means, and that they stand the battery."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers import WordVectors, make_model, registered
from treelabel import Hierarchy, TreelabelError
from treelabel.calibration.contract import OutputSpace
from treelabel.calibration.path_softmax import PathSoftmax
from treelabel.core.matrices import normalize_rows
from treelabel.encoders.files import Files
from treelabel.models.base import Model
from treelabel.models.check import CASES, CHECKS, TREE, fit_case, it_learns
from treelabel.models.model_inputs import training_of
from treelabel.models.prototype import (
    LABEL_STRENGTHS,
    PARENT_STRENGTHS,
    inner_terminals,
)
from treelabel.models.prototype_means import Means, whitening, within_labels
from treelabel.selection.training import log_loss

SETTINGS: dict[str, Any] = {
    "encoder": "words",
    "parent_prior_strength": 2.0,
    "label_prior_strength": 1.0,
    "shrinkage": 1.0,
}


@pytest.fixture(autouse=True)
def words(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("TREELABEL_CACHE", str(tmp_path / "cache"))
    with registered("words", WordVectors):
        yield


@cache
def fitted(kind: str) -> Model:
    """Return a model that has learned a case: what the battery asks of it changes nothing in it."""
    return fit_case(lambda: make_model("prototype", encoder="words"), CASES[kind])


@pytest.mark.parametrize("kind", CASES)
@pytest.mark.parametrize("check", CHECKS)
def test_it_stands_the_battery(check: str, kind: str) -> None:
    CHECKS[check](fitted(kind), CASES[kind])


@pytest.mark.parametrize("kind", CASES)
def test_it_learns(kind: str) -> None:
    it_learns(fitted(kind), CASES[kind])


def by_hand(
    h: Hierarchy, x: Any, closed: Any, labels: Any, strengths: tuple[float, float], without: int | None = None
) -> Any:
    """Prototypes straight from their definition."""
    found = np.zeros((len(h), x.shape[1]))
    for node in range(len(h)):
        texts = [row for row in range(len(x)) if closed[row, node] and row != without]
        parents = [p for p in h.parent_idx[h.parent_ptr[node] : h.parent_ptr[node + 1]] if p >= 0]
        above = np.mean([found[p] for p in parents], axis=0) if parents else 0
        k_p = strengths[0] if parents else 0
        found[node] = (x[texts].sum(axis=0) + k_p * above + strengths[1] * labels[node]) / (
            len(texts) + k_p + strengths[1]
        )
    return found


@pytest.mark.parametrize("kind", ["leaf", "many", "DAG"])
def test_prototypes_are_what_they_are_defined_to_be(kind: str) -> None:
    case, rng = CASES[kind], np.random.default_rng(0)
    train = training_of(case.texts, case.labels, case.hierarchy)
    x = normalize_rows(rng.normal(size=(len(train), 5)).astype(np.float32))
    labels = normalize_rows(rng.normal(size=(len(train.hierarchy), 5)).astype(np.float32))
    means = Means.first(train.hierarchy, inner_terminals(train), labels).with_texts(x, train.closed_labels)
    closed, strengths = train.closed_labels.toarray(), (2.0, 1.5)
    assert means.prototypes(strengths) == pytest.approx(
        by_hand(train.hierarchy, x, closed, labels, strengths), abs=1e-5
    )
    cosines = means.left_out(x, train.closed_labels, strengths)
    for row in (0, 7, len(x) - 1):
        without = normalize_rows(by_hand(train.hierarchy, x, closed, labels, strengths, without=row).astype(np.float32))
        own = closed[row].astype(bool)
        assert cosines[row, own] == pytest.approx((without @ x[row])[own], abs=1e-5)


def test_texts_that_come_later_count_as_if_they_had_been_there() -> None:
    case = CASES["path"]
    at_once = make_model("prototype", **SETTINGS).fit(case.texts, case.labels, hierarchy=TREE)
    later = make_model("prototype", **SETTINGS).fit(case.texts[:40], case.labels[:40], hierarchy=TREE)
    later.partial_fit(case.texts[40:], case.labels[40:])
    assert later.prototypes_ == pytest.approx(at_once.prototypes_, abs=1e-5)
    new = make_model("prototype", hierarchy=TREE, **SETTINGS).partial_fit(case.texts, case.labels)
    assert new.predict(["small terrier digs"]) == at_once.predict(["small terrier digs"])


def test_labels_can_be_added_later() -> None:
    case = CASES["path"]
    model = make_model("prototype", **SETTINGS).fit(case.texts, case.labels, hierarchy=TREE)
    larger = Hierarchy.from_paths(["animal > horse", *TREE.paths(), "pet > cat > siamese"])
    at_once = make_model("prototype", **SETTINGS).fit(case.texts, case.labels, hierarchy=larger)
    model.partial_fit(["horse strengths carts"] * 3, [["horse"]] * 3, hierarchy=larger)
    at_once.partial_fit(["horse strengths carts"] * 3, [["horse"]] * 3)
    assert model.prototypes_ == pytest.approx(at_once.prototypes_, abs=1e-5)
    assert model.predict(["horse strengths carts", "siamese"]) == [["horse"], ["siamese"]]
    with pytest.raises(TreelabelError, match=r"lacks labels that were learned: 'pet'.*labels can be added"):
        model.partial_fit(["a"], [["horse"]], hierarchy=Hierarchy.from_paths(["animal > horse"]))


def test_texts_may_end_inside_later_than_others() -> None:
    case = CASES["leaf"]
    model = make_model("prototype", **SETTINGS).fit(case.texts, case.labels, hierarchy=TREE)
    assert model.default_rule == "best_leaf"
    model.partial_fit(["dog barks loudly"] * 12, [["dog"]] * 12)
    assert model.predict(["dog barks loudly", "small terrier digs"]) == [["dog"], ["terrier"]]
    scores = model.score(["dog barks loudly"]).dense()[0]
    dog, *puppies = (TREE.names.index(name) for name in ("dog", "terrier", "poodle"))
    assert scores[dog] > scores[puppies].sum() + 0.1


@pytest.mark.parametrize(
    "settings", [{"parent_prior_strength": -1.0}, {"label_prior_strength": -0.5}, {"shrinkage": 7.0}], ids=str
)
def test_numbers_that_cannot_be_meant_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(TreelabelError, match=f"the setting {next(iter(settings))} is .*, expected a number from 0 to"):
        make_model("prototype", encoder="words", **settings).fit(["a"], [["cat"]], hierarchy=TREE)
    none = make_model("prototype", encoder="words", parent_prior_strength=0.0, label_prior_strength=0.0)
    scores = none.fit(CASES["leaf"].texts, CASES["leaf"].labels, hierarchy=TREE).score(["cat meows"])
    assert np.isfinite(scores.dense()).all()


def test_a_label_is_known_by_its_name_or_by_its_path() -> None:
    case = CASES["leaf"]
    encoder = WordVectors()
    for text, words in (("name", "terrier"), ("path", "pet dog terrier")):
        model = make_model("prototype", encoder=encoder, label_text=text, shrinkage=1.0)
        model.fit(case.texts, case.labels, hierarchy=TREE)
        given = encoder.transform([words])[0]
        assert model.means_.labels[TREE.names.index("terrier")] == pytest.approx(
            given / np.linalg.norm(given), abs=1e-5
        )
    with pytest.raises(TreelabelError, match="the setting label_text is 'id', expected 'name' or 'path'"):
        make_model("prototype", encoder=encoder, label_text="id").fit(case.texts, case.labels, hierarchy=TREE)


def spread(kind: str = "leaf", wide: float = 6.0) -> tuple[Any, Any]:
    """Training data, and vectors that differ within labels in the first direction most."""
    case, rng = CASES[kind], np.random.default_rng(0)
    train = training_of(case.texts, case.labels, case.hierarchy)
    x = rng.normal(size=(len(train), 4)) * [wide, 1, 1, 1]
    return train, x.astype(np.float32)


def test_whitening_makes_texts_of_a_label_differ_alike() -> None:
    train, x = spread()
    apart, freedom = within_labels(x, train)
    # The label that one document has says nothing of how its documents differ.
    assert (len(apart), freedom) == (48, 44)
    found = within_labels((x @ whitening(x, train, 0.0)).astype(np.float32), train)[0]
    covariance = found.T @ found / len(found)
    assert covariance == pytest.approx(np.eye(4) * covariance[0, 0], rel=1e-3, abs=1e-3 * covariance[0, 0])


def test_whitening_is_what_it_is_defined_to_be() -> None:
    train, x = spread()
    ends = train.hierarchy.most_specific(train.labels).indices
    groups = [x[ends == end].astype(np.float64) for end in np.unique(ends) if (ends == end).sum() > 1]
    apart = np.concatenate([group - group.mean(axis=0) for group in groups])
    c = apart.T @ apart
    c *= 4 / np.trace(c)
    w = whitening(x, train, 0.3).astype(np.float64)
    assert np.linalg.inv(w @ w) == pytest.approx(0.7 * c + 0.3 * np.eye(4), abs=1e-4)


def test_nothing_is_whitened_where_nothing_is_known() -> None:
    train, x = spread()
    assert np.array_equal(whitening(x, train, 1.0), np.eye(4))
    assert np.array_equal(whitening(x[:1], train[[0]], None), np.eye(4))
    assert np.array_equal(whitening(np.ones_like(x), train, None), np.eye(4))
    # Round clouds stay as they are, long ones do not: shrinkage is chosen by what the texts show.
    round_, long = (np.linalg.cond(whitening(spread(wide=wide)[1], train, None)) for wide in (1.0, 20.0))
    assert round_ < 1.2
    assert long > 2 * round_


def test_strengths_that_lose_least_when_texts_are_left_out_are_chosen() -> None:
    case = CASES["leaf"]
    model = make_model("prototype", encoder="words").fit(case.texts, case.labels, hierarchy=TREE)
    given = make_model("prototype", encoder="words", parent_prior_strength=3.0, label_prior_strength=0.7)
    assert model.prior_strengths_[0] in PARENT_STRENGTHS
    assert model.prior_strengths_[1] in LABEL_STRENGTHS
    assert given.fit(case.texts, case.labels, hierarchy=TREE).prior_strengths_ == (3.0, 0.7)
    train = training_of(case.texts, case.labels, TREE)
    vectors, rows = model._vectors(train.texts), model._rows(train)
    outputs = OutputSpace.of_all_nodes(TREE, model.stops_)

    def loss(strengths: tuple[float, float]) -> float:
        cosines = model.means_.left_out(vectors, rows, strengths)
        return log_loss(PathSoftmax(outputs).fit(cosines, train.labels).probabilities(cosines), train)

    assert (
        loss(model.prior_strengths_)
        <= min(loss((PARENT_STRENGTHS[0], strength)) for strength in LABEL_STRENGTHS) + 1e-9
    )


def test_a_label_without_texts_is_known_by_its_name() -> None:
    case = CASES["leaf"]
    kept = [row for row, labels in enumerate(case.labels) if labels != ["soup"]]
    model = make_model("prototype", encoder="words").fit(
        [case.texts[row] for row in kept], [case.labels[row] for row in kept], hierarchy=TREE
    )
    assert model.predict(["food soup"]) == [["soup"]]


def test_the_best_encoder_is_used_and_without_any_the_command_is_stated(monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES["leaf"]
    monkeypatch.setattr("treelabel.encoders.registry.usable_files", lambda: [Files("words", "transformer", Path())])
    model = make_model("prototype").fit(case.texts, case.labels, hierarchy=TREE)
    assert model.encoder_.name == "words"
    monkeypatch.setattr("treelabel.encoders.registry.usable_files", list)
    with pytest.raises(TreelabelError, match="no encoder is installed; get one with: pip install"):
        make_model("prototype").fit(case.texts, case.labels, hierarchy=TREE)
