"""Predicting in batches: what predicting at once gives, whatever the size of batches."""

from collections.abc import Iterator

import numpy as np
import pytest

from tests.models.test_models import SETS
from treelabel import TreelabelError, make_model
from treelabel.models import Model
from treelabel.models.streaming import RuleOfAllWarning, batch_size, decided_batches

DATA = SETS["leaf"]
TEXTS = [*DATA.texts, "", " \n", "nothing known"]


@pytest.fixture(scope="module")
def model() -> Model:
    return make_model("linear").fit(DATA)


def in_batches(texts: list[str], size: int) -> list[list[str]]:
    return [texts[low : low + size] for low in range(0, len(texts), size)]


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize("rule", [None, "optimal:hf1", "threshold@0.2"])
def test_batches_are_answered_as_all_at_once(model: Model, size: int, rule: str | None) -> None:
    parts = list(model.predict_iter(in_batches(TEXTS, size), rule))
    assert [len(part) for part in parts] == [len(part) for part in in_batches(TEXTS, size)]
    assert [labels for part in parts for labels in part] == model.predict(TEXTS, rule)
    assert next(model.predict_iter([DATA[:3]], rule, paths=True)) == model.predict(list(DATA.texts)[:3], rule, True)


def test_answers_come_before_all_texts_are_there(model: Model) -> None:
    def texts() -> Iterator[list[str]]:
        yield TEXTS[:2]
        raise AssertionError("asked for more than it needed")

    assert len(next(model.predict_iter(texts()))) == 2


def test_a_rule_of_all_documents_waits_and_says_so(model: Model) -> None:
    with pytest.warns(RuleOfAllWarning, match="optimal:macro_f1 decides on all documents together"):
        parts = list(model.predict_iter(in_batches(TEXTS, 7), "optimal:macro_f1"))
    assert [labels for part in parts for labels in part] == model.predict(TEXTS, "optimal:macro_f1")
    with pytest.warns(RuleOfAllWarning):
        assert list(model.predict_iter([], "optimal:macro_f1")) == []


def test_nothing_is_known_of_a_text_that_says_nothing(model: Model) -> None:
    assert model.predict(["", " \t\n"]) == [[], []]
    (decided,) = decided_batches(model, [(["", "the cat meows"], "along")], unknown=0.01)
    assert decided.carried == "along"
    assert decided.blank.tolist() == [True, False]
    assert decided.decisions.unknown is not None
    assert decided.decisions.unknown.tolist() == [True, False]
    # Its scores are those of any text without known words.
    assert np.array_equal(decided.scores.dense()[0], model.score([""]).dense()[0])


def test_batches_hold_some_megabytes_of_scores() -> None:
    for nodes in (1, 353, 3_400, 20_000):
        assert 100 < batch_size(nodes) <= 16384
        assert batch_size(nodes) * nodes <= 1 << 22


def test_what_is_wrong_is_said_before_any_text_is_read(model: Model) -> None:
    with pytest.raises(TreelabelError, match="unknown rule"):
        next(model.predict_iter([["a"]], "best_leef"))
    with pytest.raises(TreelabelError, match="call fit first"):
        next(make_model("linear").predict_iter([["a"]]))
