"""What models remember of their training: counts and means, saved and loaded; acceptance and priorities of reviews."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from treelabel import Dataset, Hierarchy, TreelabelError, evaluate, load_model, make_model
from treelabel.core.strings import Strings
from treelabel.models.base import Model
from treelabel.models.profile import ARRAYS, Profile, ProfileMeans, profile_schema, unknown_words
from treelabel.operations.review import find_acceptance, review
from treelabel.text import NgramShape, Tfidf

TREE = Hierarchy.from_paths(["pet > dog", "pet > cat", "car > van", "car > bus"])
LEAVES = ["dog", "cat", "van", "bus"]


def documents(size: int, seed: int, leaves: list[str] = LEAVES, noise: float = 0.6) -> Dataset:
    """Draw texts of words that tell their label more or less, among many that tell nothing."""
    rng = np.random.default_rng(seed)
    texts, labels = [], []
    for _ in range(size):
        leaf = leaves[rng.integers(len(leaves))]
        told = [f"{leaf}{rng.integers(12)}" if rng.random() > noise else f"word{rng.integers(60)}" for _ in range(6)]
        told += [f"{LEAVES[rng.integers(4)]}{rng.integers(12)}"]
        texts.append(" ".join(told))
        labels.append([leaf])
    return Dataset.of(texts, labels, TREE)


def fitted(name: str = "linear", **settings: Any) -> Model:
    if name == "linear":
        settings = {"head": "nodes", "ngram_range": (1, 1), "char_ngram_range": None} | settings
    return make_model(name, **settings).fit(documents(400, 0))


@pytest.fixture(scope="module")
def model() -> Model:
    return fitted()


def test_a_profile_counts_training_and_held_out_documents(model: Model) -> None:
    profile, train = model.profile_, documents(400, 0)
    assert profile.documents == 400
    assert profile.frequencies.tolist() == train.frequencies.tolist()
    assert profile.shares[:2].sum() == pytest.approx(1, abs=1e-3)
    assert len(profile.confidences) == len(profile.correct) == 400
    # Calibrated: as confident as it is correct.
    assert profile.confidence is not None
    assert profile.confidence[0] == pytest.approx(float(profile.correct.mean()), abs=0.06)


def test_a_profile_is_saved_and_loaded(model: Model, tmp_path: Path) -> None:
    model.save(tmp_path / "m")
    one, two = model.profile_, load_model(tmp_path / "m").profile_
    assert (two.documents, two.confidence, two.unknown_words) == (one.documents, one.confidence, one.unknown_words)
    for name in ("frequencies", "shares", "confidences", "correct", "digests", "complete"):
        assert np.array_equal(getattr(one, name), getattr(two, name)), name
        assert getattr(one, name).dtype == getattr(two, name).dtype, name


def test_a_damaged_profile_is_refused(model: Model, tmp_path: Path) -> None:
    folder = tmp_path / "m"
    model.save(folder)
    stored = json.loads((folder / "model.json").read_text())
    for wrong in (stored | {"profile": stored["profile"] | {"documents": -1}}, stored | {"profile": None}):
        (folder / "model.json").write_text(json.dumps(wrong))
        with pytest.raises(TreelabelError, match="'profile' is missing or of the wrong kind"):
            load_model(folder)
    (folder / "model.json").write_text(json.dumps(stored))
    (folder / "profile.npz").write_bytes(b"x")
    with pytest.raises(TreelabelError, match=r"profile.npz is not what was saved"):
        load_model(folder)
    for name, declared in ARRAYS.items():
        others = {other: np.zeros(0, array.dtype) for other, array in ARRAYS.items() if other != name}
        with pytest.raises(TreelabelError, match=name):
            profile_schema(ProfileMeans(1), TREE).check(others)
        assert getattr(model.profile_, name).astype(declared.dtype).size


@pytest.mark.parametrize("name", ["most_frequent", "nothing", "bag", "svm", "memory"])
def test_every_model_remembers_how_often_labels_occur(name: str, tmp_path: Path) -> None:
    made = fitted(name)
    made.save(tmp_path / "m")
    profile = load_model(tmp_path / "m").profile_
    assert profile.frequencies.tolist() == documents(400, 0).frequencies.tolist()
    has_words = name in ("bag", "svm", "memory")
    assert (profile.unknown_words is not None) == has_words
    found = made.unknown_words(["dog1 nosuchword"])
    assert (None if found is None else found.tolist()) == ([0.5] if has_words else None)


# Unknown words


@pytest.mark.parametrize("min_df", [1, 2])
@pytest.mark.parametrize("shape", [NgramShape(), NgramShape((1, 2), (3, 4), weights=(1.0, 0.5, 0.5))])
def test_words_of_a_text_that_no_other_has_are_unknown_without_it(shape: NgramShape, min_df: int) -> None:
    texts = list(documents(40, 3).texts)
    whole = Tfidf.fit(texts, shape, min_df)
    found = unknown_words(whole, Strings.of(texts), len(texts), min_df)
    for row in range(0, 40, 7):
        others = Tfidf.fit(texts[:row] + texts[row + 1 :], shape, min_df)
        assert unknown_words(others, Strings.of(texts[row : row + 1]))[0] == found[row]


# Acceptance


def test_what_is_accepted_is_as_precise_as_asked_for(model: Model) -> None:
    fresh = documents(1500, 9)
    found = review(model, fresh, precision=0.9)
    assert found.acceptance.precision == 0.9
    assert found.acceptance.held_out == 400
    kept = np.flatnonzero(found.accepted)
    assert 100 < len(kept) < 1500
    right = evaluate(fresh[kept], found.suggestions[kept], metrics=["subset_accuracy"])["subset_accuracy"]
    assert right >= 0.9
    assert found.p[found.accepted].min() >= found.acceptance.threshold > found.p[~found.accepted].max()


def test_a_precision_that_nothing_reaches_accepts_nothing(model: Model) -> None:
    found = review(model, documents(50, 8), precision=1.0)
    assert not found.accepted.any()
    assert found.acceptance.precision is None
    with pytest.raises(TreelabelError, match="precision = 0, expected a share"):
        review(model, ["dog1"], precision=0)


def test_nothing_is_accepted_that_held_out_documents_say_nothing_of() -> None:
    clear = documents(400, 3, noise=0)
    made = make_model("linear", ngram_range=(1, 1), char_ngram_range=None, head="nodes").fit(clear)
    least = float(made.profile_.confidences.min())
    result = review(made, [*clear.texts[:5], "zzz", "qwerty asdf", "", "dog1 zzz"], precision=0.5)
    assert result.acceptance.threshold >= least > 0
    # Where no word is known, a label has its share of training, which may be enough.
    assert result.accepted[5:8].tolist() == [False] * 3
    assert result.accepted[:5].all()


def test_thresholds_are_the_lowest_that_pass() -> None:
    sure = np.repeat(np.array([0.9, 0.8, 0.7], np.float32), 100)
    right = np.concatenate([np.ones(100), np.ones(98), [0, 0], np.ones(50), np.zeros(50)]).astype(bool)
    complete = np.arange(300) % 2 == 0
    profile = Profile(300, confidences=sure, correct=right, complete=complete)
    found = find_acceptance(np.array([0.85]), 0.95, profile)
    # The least confidence that passed: nothing was measured between 0.7 and 0.8.
    assert found.threshold == np.float32(0.8)
    assert (found.precision, found.held_out) == (0.95, 300)
    assert found.complete == complete[:200][right[:200]].mean()


@pytest.mark.parametrize("documents", [200, 1000])
def test_thresholds_that_were_chosen_have_the_precision_too(documents: int) -> None:
    """Draw held-out documents again and again: where 94.5% are right throughout, and where probabilities are right."""
    rng = np.random.default_rng(0)
    wrong = {"flat": 0, "calibrated": 0}
    for _ in range(300):
        sure = rng.beta(2, 0.5, documents)
        for name, p in (("flat", 0.945), ("calibrated", sure)):
            right = rng.random(documents) < p
            profile = Profile(documents, confidences=sure.astype(np.float32), correct=right, complete=right)
            t = find_acceptance(sure, 0.95, profile).threshold
            # The mean of a beta distribution above t.
            reached = 0.945 if name == "flat" else 0.8 * stats.beta.sf(t, 3, 0.5) / max(stats.beta.sf(t, 2, 0.5), 1e-9)
            wrong[name] += bool(t < 1 and reached < 0.95)
    # One of ten may; more than 45 of 300 would by chance in 0.3% of such tests.
    assert max(wrong.values()) <= 45


def test_without_held_out_documents_probabilities_promise_the_precision() -> None:
    p = np.array([0.5, 0.99, 0.9, 0.0, 0.95])
    found = find_acceptance(p, 0.94, None)
    assert (found.threshold, found.held_out) == (0.9, 0)
    assert found.precision == pytest.approx((0.99 + 0.95 + 0.9) / 3)
    assert find_acceptance(p, 0.999, None).threshold > 1


# Priorities


def test_unsure_crowded_and_rare_texts_come_first(model: Model) -> None:
    data = documents(60, 4)
    found = review(model, data, precision=0.9)
    assert (found.priority[found.accepted] == 0).all()
    order = found.order
    assert (np.diff(found.accepted[order].astype(int)) >= 0).all()
    waiting = order[~found.accepted[order]]
    assert (np.diff(found.priority[waiting]) <= 0).all()
    profile = model.profile_
    rows = Tfidf.fit_transform(data.texts, NgramShape())[1].toarray().astype(np.float64)
    similar = rows @ rows.T
    np.fill_diagonal(similar, 0)
    density = similar.sum(axis=1) / 59
    row = int(waiting[0])
    label = found.suggestions.indices[found.suggestions.indptr[row]]
    rarity = 1 / (1 + np.log(1 + profile.frequencies[label]))
    assert found.priority[row] == pytest.approx((1 - found.p[row]) * density[row] / density.mean() * rarity, rel=1e-5)


def test_alternatives_are_the_likeliest_other_leaves(model: Model) -> None:
    data = documents(20, 5)
    found, scores = review(model, data, alternatives=2), model.score(data).dense()
    for row in range(20):
        chosen = found.suggestions.indices[found.suggestions.indptr[row]]
        others = sorted((-scores[row, node], node) for node in TREE.leaves.tolist() if node != chosen)[:2]
        assert [node for node, _ in found.alternatives[row]] == [node for _, node in others]
        assert found.p[row] == pytest.approx(scores[row, chosen])
