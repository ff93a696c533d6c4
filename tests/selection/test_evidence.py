"""What a model finds out on held-out documents: folds and groups, n-grams and heads, the rule, and what it says."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from tests.helpers import load_model, make_model
from treelabel import Dataset, Hierarchy, TreelabelError, load_sample
from treelabel.cli.app import app
from treelabel.hierarchy.label_ids import encode
from treelabel.models.model_inputs import training_of
from treelabel.scores import Scores
from treelabel.selection.evidence import Evidence, HeldOut, RuleTrial, irregular_documents
from treelabel.selection.feature_choice import AUTO, draw_sample, is_worth_it, shape_of
from treelabel.selection.rule_choice import decide_by_evidence, documents_to_judge
from treelabel.selection.training import draw_folds, hold_out
from treelabel.text import NgramShape, Tfidf
from treelabel.text.ngram_names import named_ngrams

TREE = Hierarchy.from_paths(["A > A1", "A > A2", "B > B1", "B > B2"])
LEAVES = ["A1", "A2", "B1", "B2"]


def easy_texts(count: int, seed: int = 0) -> tuple[list[str], list[list[str]]]:
    """Texts whose first word nearly always tells their leaf."""
    rng = np.random.default_rng(seed)
    leaves = rng.integers(0, 4, count)
    said = np.where(rng.random(count) < 0.9, leaves, rng.integers(0, 4, count))
    texts = [f"w{word} {' '.join(f'n{n}' for n in rng.integers(0, 50, 4))}" for word in said]
    return texts, [[LEAVES[leaf]] for leaf in leaves]


# Folds


@given(
    groups=st.lists(st.integers(0, 8), min_size=1, max_size=60),
    count=st.integers(2, 6),
    seed=st.integers(0, 3),
)
def test_groups_are_never_divided(groups: list[int], count: int, seed: int) -> None:
    numbers = np.unique(groups, return_inverse=True)[1]
    folds = draw_folds(len(groups), count, seed, numbers)
    there = np.concatenate(folds)
    assert len(np.unique(there)) == len(there)
    if numbers.any():
        assert sorted(there.tolist()) == list(range(len(groups)))
    for fold in [*folds, hold_out(len(groups), count, seed, numbers)]:
        others = np.setdiff1d(np.arange(len(groups)), fold)
        assert len(others)
        assert not set(numbers[fold].tolist()) & set(numbers[others].tolist())


def test_a_large_group_is_not_held_out_where_a_few_documents_are_wanted() -> None:
    groups = np.array([0] * 900 + list(range(1, 101)))
    for seed in range(20):
        held = hold_out(1000, 80, seed, groups)
        assert len(held) == 80
        assert 0 not in groups[held]
    assert len(hold_out(30, 5, 0, np.repeat([0, 1, 2], 10))) == 10


def test_folds_without_groups_are_of_one_size_and_held_out_is_what_was_asked() -> None:
    assert sorted(len(fold) for fold in draw_folds(11, 3, 0)) == [3, 4, 4]
    assert [len(fold) for fold in draw_folds(1, 3, 0)] == [0]
    assert len(hold_out(100, 37, 0)) == 37
    assert len(hold_out(3, 10, 0)) == 2


def test_validation_fraction_does_what_it_says() -> None:
    texts, labels = easy_texts(400)
    for fraction, expected in ((0.5, 200), (0.1, 40), (None, 400)):
        model = make_model("linear", hierarchy=TREE, validation_fraction=fraction).fit(texts, labels)
        assert model.evidence_.documents == expected


@pytest.mark.parametrize("name", ["linear", "stack"])
def test_copies_in_one_group_do_not_make_a_model_look_better_than_it_is(name: str) -> None:
    rng = np.random.default_rng(0)
    # Nothing can be learned but the copies themselves.
    texts = [f"t{number} u{number}" for number in range(60) for _ in range(4)]
    labels = [[LEAVES[leaf]] for leaf in rng.integers(0, 4, 60) for _ in range(4)]
    settings: dict[str, Any] = {} if name == "linear" else {"estimators": ("linear",)}
    model = make_model(name, hierarchy=TREE, **settings)
    plain = model.fit(texts, labels).evidence_.rules[0].exact
    grouped = model.fit(texts, labels, groups=[number // 4 for number in range(240)]).evidence_.rules[0].exact
    assert plain > 0.9
    assert grouped < 0.5


def test_groups_of_a_dataset_are_taken_and_wrong_ones_are_refused() -> None:
    texts, labels = easy_texts(80)
    groups = [str(number // 2) for number in range(80)]
    given = make_model("linear").fit(Dataset.of(texts, labels, TREE, groups=groups))
    assert given.evidence_ == make_model("linear", hierarchy=TREE).fit(texts, labels, groups=groups).evidence_
    with pytest.raises(TreelabelError, match="3 groups for 80 documents"):
        given.fit(texts, labels, hierarchy=TREE, groups=["a", "b", "c"])
    with pytest.raises(TreelabelError, match="all documents belong to one group, 'x'"):
        given.fit(texts, labels, hierarchy=TREE, groups=["x"] * 80)


# N-grams of several kinds


def test_kinds_of_ngrams_are_scaled_apart() -> None:
    shape = NgramShape((1, 2), (3, 3), 1 << 16, (1.0, 0.5, 2.0))
    tfidf, rows = Tfidf.fit_transform(["one two three", "two", ""], shape)
    kinds = tfidf.buckets // shape.n_features
    squares = [[(rows.toarray()[row, kinds == kind] ** 2).sum() for kind in range(3)] for row in range(3)]
    assert squares[0] == pytest.approx([1 / 5.25, 0.25 / 5.25, 4 / 5.25])
    # A text without pairs shares their part among the others.
    assert squares[1] == pytest.approx([1 / 5, 0, 4 / 5])
    assert squares[2] == [0, 0, 0]


def test_one_kind_is_what_it_was_without_weights() -> None:
    texts = ["a b c", "b b d"]
    plain = Tfidf.fit_transform(texts, NgramShape((1, 1), None, 1 << 16))[1]
    weighted = Tfidf.fit_transform(texts, NgramShape((1, 1), None, 1 << 16, (0.3,)))[1]
    assert np.array_equal(plain.indices, weighted.indices)
    assert plain.data == pytest.approx(weighted.data)


def test_named_ngrams_of_kinds_are_those_that_are_counted() -> None:
    shape = shape_of((1, 2), (4, 4), 1 << 16)
    text = "Hello wörld hello"
    tfidf = Tfidf.fit([text], shape)
    assert sorted(named_ngrams(text, shape).values()) == sorted(tfidf.buckets.tolist())


@pytest.mark.parametrize("weights", [(1.0,), (1.0, 0.0), (1.0, np.inf)])
def test_weights_that_fit_no_kinds_are_refused(weights: tuple[float, ...]) -> None:
    with pytest.raises(TreelabelError, match="expected 2 numbers above 0"):
        NgramShape((1, 2), None, weights=weights)


# What is tried


def test_a_sample_has_whole_families_and_no_other_label() -> None:
    train = training_of(load_sample(), None, None)
    h, sample = train.hierarchy, draw_sample(train, 0)
    assert len(train) // 3 < len(sample) <= 4_000
    ends, whole = h.most_specific(sample.labels), h.most_specific(train.labels)
    kept = np.unique(ends.indices)
    counts = np.bincount(whole.indices, minlength=len(h))
    found = np.bincount(ends.indices, minlength=len(h))
    # All documents of a label that was drawn are there, unless there are too many.
    assert len(sample) == 4_000 or (found[kept] == counts[kept]).all()
    assert set(kept.tolist()) < set(whole.indices.tolist())


def test_what_costs_more_must_be_worth_it() -> None:
    rng = np.random.default_rng(0)
    before = rng.uniform(0.5, 1.5, 200)
    assert is_worth_it(before, before - 0.1)
    assert not is_worth_it(before, before - 0.01)
    # A gain of 0.05, with a standard error of 0.07.
    assert not is_worth_it(before, before - 0.05 + np.tile([1.0, -1.0], 100))
    assert not is_worth_it(before[:1], before[:1] - 1)


def test_pairs_of_words_are_chosen_where_only_they_tell() -> None:
    rng = np.random.default_rng(0)
    pairs = {"A1": "red car", "A2": "car red", "B1": "blue bus", "B2": "bus blue"}
    leaves = [LEAVES[leaf] for leaf in rng.integers(0, 4, 600)]
    texts = [f"{pairs[leaf]} {' '.join(f'n{n}' for n in rng.integers(0, 30, 3))}" for leaf in leaves]
    model = make_model("linear", hierarchy=TREE).fit(texts, [[leaf] for leaf in leaves])
    assert model.featurizer_.tfidf.shape.ngram_range == (1, 2)
    assert model.score(["car red"]).dense()[0, 2:].argmax() == 1
    assert [trial.settings for trial in model.evidence_.trials][:2] == [
        "ngram_range=(1, 1) head=nodes",
        "ngram_range=(1, 2) head=nodes",
    ]
    assert "ngram_range=(1, 2)" in repr(model)


def test_what_is_given_is_not_tried() -> None:
    texts, labels = easy_texts(400)
    given: dict[str, Any] = {"ngram_range": (1, 2), "char_ngram_range": (3, 4), "head": "leaves"}
    model = make_model("linear", hierarchy=TREE, **given).fit(texts, labels)
    assert model.evidence_.trials == ()
    assert (model.featurizer_.tfidf.shape.ngram_range, model.featurizer_.tfidf.shape.char_ngram_range) == (
        (1, 2),
        (3, 4),
    )
    assert model.head_.head == "leaves"
    half = make_model("linear", hierarchy=TREE, ngram_range=(1, 1)).fit(texts, labels)
    assert len(half.evidence_.trials) == 2
    assert len(AUTO) == 3


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"validation_fraction": 1.5}, "validation_fraction is 1.5, expected a number from 0 to 0.99 or null"),
        ({"cv": 1}, "cv is 1, expected a whole number from 2 to 100"),
        ({"cv": "abc"}, "cv is 'abc', expected a whole number from 2 to 100"),
        ({"C": "abc"}, r"C is 'abc', expected a number from 1e-06 to 1e\+06 or null"),
        ({"tfidf": "maybe"}, "tfidf is 'maybe', expected true or false"),
        ({"ngram_range": "atuo"}, "ngram_range is 'atuo', expected"),
    ],
)
def test_settings_that_could_not_be_loaded_are_not_learned(settings: dict[str, Any], why: str) -> None:
    texts, labels = easy_texts(60)
    with pytest.raises(TreelabelError, match=f"the setting {why}"):
        make_model("linear", hierarchy=TREE, **settings).fit(texts, labels)


def test_a_few_documents_are_not_divided_for_trials() -> None:
    texts, labels = easy_texts(60)
    model = make_model("linear", hierarchy=TREE).fit(texts, labels)
    assert model.evidence_.trials == ()
    assert model.evidence_.documents == 60


# The rule


def test_odd_rows_do_not_change_the_rule_and_are_told() -> None:
    texts, labels = easy_texts(600)
    labels[3] = ["A1", "B1"]
    labels[5] = ["A"]
    model = make_model("linear", hierarchy=TREE).fit(texts, labels)
    assert model.regime_ == "multi_path"
    assert model.default_rule == "best_leaf"
    expected = "2 of 600 documents have no single path to a leaf, and do not change the rule"
    assert model.irregular_documents_ == expected
    assert all(len(row) == 1 for row in model.predict(texts[:50]))
    assert irregular_documents(TREE, encode(TREE, [["A1"]] * 3)) == ""


def test_the_rule_is_chosen_by_held_out_documents_where_labels_are_several() -> None:
    rng = np.random.default_rng(0)
    h = Hierarchy.flat([f"l{number}" for number in range(8)])
    true = rng.random((900, 8)) < 0.3
    texts = [" ".join(f"w{n}" for n in np.flatnonzero(row)) + " x" for row in true]
    labels = [[f"l{n}" for n in np.flatnonzero(row)] for row in true]
    model = make_model("linear", hierarchy=h).fit(texts, labels)
    tried = {each.rule: each for each in model.evidence_.rules}
    assert len(tried) > 1
    best = max(each.f1 for each in tried.values())
    assert tried[model.default_rule].f1 >= best - 2 * tried[model.default_rule].standard_error
    assert model.score(texts[:200], labels[:200]) > 0.8


def test_too_few_held_out_documents_decide_nothing() -> None:
    labels = encode(TREE, [["A1"]] * 5)
    held = HeldOut(Scores(TREE, np.zeros((5, len(TREE)))), labels)
    assert decide_by_evidence(TREE, labels, held) == ("best_leaf", Evidence(metric="leaf_accuracy"))


# What is kept and said


def test_evidence_is_in_the_folder_and_in_what_fit_prints(tmp_path: Path) -> None:
    texts, labels = easy_texts(300)
    file = tmp_path / "train.jsonl"
    rows = [
        json.dumps({"text": text, "labels": [f"{row[0][0]} > {row[0]}"]})
        for text, row in zip(texts, labels, strict=True)
    ]
    file.write_text("\n".join(rows) + "\n", encoding="utf-8")
    done = CliRunner().invoke(app, ["fit", str(file), "-o", str(tmp_path / "model")])
    assert done.exit_code == 0, done.output
    assert "held out (300 documents, scored by a model that had not seen them): leaf accuracy 0.9" in done.output
    assert "tried (log loss of a sample): ngram_range=(1, 1) head=nodes" in done.output
    assert done.output.count("(chosen)") == 1
    stored = json.loads((tmp_path / "model" / "model.json").read_text())
    assert stored["rule"] == "best_leaf"
    loaded = load_model(tmp_path / "model")
    assert json.loads(json.dumps(asdict(loaded.evidence_))) == stored["evidence"]
    assert all(isinstance(trial, RuleTrial) for trial in loaded.evidence_.rules)
    assert loaded.evidence_.documents == 300
    assert repr(loaded).count("held out") == 1
    assert loaded.evidence_.describe("majority", "single_path").startswith("tried")


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("rule", "best_leef", "best_leaf"),
        ("rule", "optimal:info_hf1", "needs information"),
        ("rule", 3, "'rule' is missing or of the wrong kind"),
        ("evidence", {"documents": 3}, "'evidence' is missing or of the wrong kind"),
        ("evidence", None, "'evidence' is missing or of the wrong kind"),
    ],
)
def test_a_folder_with_another_rule_or_evidence_is_refused(tmp_path: Path, name: str, value: Any, why: str) -> None:
    texts, labels = easy_texts(60)
    make_model("linear", hierarchy=TREE).fit(texts, labels).save(tmp_path / "model")
    file = tmp_path / "model" / "model.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {name: value}))
    with pytest.raises(TreelabelError, match=why):
        load_model(tmp_path / "model")


# What is no better than the most frequent label


def test_a_model_at_chance_says_so_and_a_good_one_does_not(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rng = np.random.default_rng(0)
    texts, labels = easy_texts(300)
    good = make_model("svm").fit(Dataset.of(texts, labels, TREE))
    assert not good.evidence_.compare_with_most_frequent(good.default_rule)
    assert not caplog.records
    noise = [" ".join(f"n{n}" for n in rng.integers(0, 50, 4)) for _ in texts]
    bad = make_model("svm").fit(Dataset.of(noise, labels, TREE))
    assert "no better than the most frequent labels" in caplog.text
    assert "no better than the most frequent labels" in bad.evidence_.describe(bad.default_rule, bad.regime_)
    bad.save(tmp_path / "model")
    assert load_model(tmp_path / "model").evidence_ == bad.evidence_


def test_fit_says_in_a_note_what_is_wrong_with_the_texts(tmp_path: Path) -> None:
    lines = [f"{1000 + number},{'AB'[number % 2]}" for number in range(60)]
    (tmp_path / "f.csv").write_text("\n".join(["text,label", *lines]))
    command = ["fit", str(tmp_path / "f.csv"), "-o", str(tmp_path / "m"), "--text", "text", "--labels", "label"]
    ran = CliRunner().invoke(app, command)
    assert ran.exit_code == 0
    assert "have a number, a date or an id for a text" in ran.stderr
    assert "no better than the most frequent labels" in ran.stdout


# Documents without a label


def test_documents_without_a_label_are_not_judged() -> None:
    texts, labels = easy_texts(200)
    settings: dict[str, Any] = {"ngram_range": (1, 1), "char_ngram_range": None, "head": "nodes"}
    whole = make_model("linear", **settings).fit(texts, labels, hierarchy=TREE).evidence_
    more = make_model("linear", **settings).fit([*texts, *texts[:50]], [*labels, *[[]] * 50], hierarchy=TREE)
    assert (whole.documents, whole.unlabelled) == (200, 0)
    assert (more.evidence_.documents, more.evidence_.unlabelled) == (200, 50)
    # Where they counted as wrong, a fifth of the documents would be.
    assert more.evidence_.rules[0].exact > whole.rules[0].exact - 0.1
    assert "(200 documents, scored by a model that had not seen them; 50 without a label were not judged)" in repr(more)
    assert len(more.profile_.confidences) == 200
    assert "judged)" not in whole.describe("best_leaf", "single_path")


def test_among_several_labels_none_may_be_right() -> None:
    rows = TREE.closure([[0, 0, 1, 0, 1, 0], [0] * 6, [0] * 6, [0, 0, 0, 1, 0, 0]])
    assert (
        irregular_documents(TREE, rows) == "2 documents have no label, learned and judged as texts that no label fits"
    )
    held = HeldOut(Scores(TREE, np.full((4, 6), 0.5)), rows)
    assert documents_to_judge(TREE, rows, held) is held
    single = TREE.closure([[0, 0, 1, 0, 0, 0], [0] * 6])
    judged = documents_to_judge(TREE, single, HeldOut(Scores(TREE, np.full((2, 6), 0.5)), single))
    assert judged is not None
    assert len(judged.scores) == 1
    assert documents_to_judge(TREE, single, HeldOut(Scores(TREE, np.zeros((1, 6))), single[1:])) is None


def test_documents_of_a_group_count_together_in_both_intervals() -> None:
    leaves = np.arange(200) % 3
    truth = TREE.closure(encode(TREE, [[["A1"], ["A2"], ["B1"]][leaf] for leaf in leaves]))
    groups = np.arange(200) // 20
    # All documents of a group are right, or none is.
    said = np.where(groups % 2 == 0, leaves, (leaves + 1) % 3)
    scores = Scores.from_leaves(TREE, ["A1", "A2", "B1"], 0.8 * np.eye(3)[said] + 0.2 / 3)
    (grouped,) = decide_by_evidence(TREE, truth, HeldOut(scores, truth, groups))[1].rules
    (alone,) = decide_by_evidence(TREE, truth, HeldOut(scores, truth))[1].rules
    assert grouped.exact == 0.5
    assert grouped.exact_error == pytest.approx(0.5 / 3)
    assert alone.exact_error is None
    evidence = Evidence(200, (grouped,))
    assert "leaf accuracy 0.500 ± 0.327" in evidence.describe("best_leaf", "single_path")


def test_a_flat_model_is_compared_by_the_same_rule_on_the_same_documents() -> None:
    leaves = np.arange(60) % 3
    truth = TREE.closure(encode(TREE, [[["A1"], ["A2"], ["B1"]][leaf] for leaf in leaves]))
    right = Scores.from_leaves(TREE, ["A1", "A2", "B1"], 0.8 * np.eye(3)[leaves] + 0.2 / 3)
    wrong = Scores.from_leaves(TREE, ["A1", "A2", "B1"], 0.8 * np.eye(3)[np.where(leaves == 0, 1, leaves)] + 0.2 / 3)
    rule, evidence = decide_by_evidence(TREE, truth, HeldOut(right, truth, None, wrong))
    assert evidence.flat is not None
    # A third of the documents get A2 in place of A1: half of their sets is right.
    assert (evidence.flat.exact, evidence.flat.exact_gain) == pytest.approx((2 / 3, 1 / 3))
    assert (evidence.flat.f1, evidence.flat.f1_gain) == pytest.approx((5 / 6, 1 / 6))
    sure = 0.8 + 0.2 / 3
    assert evidence.flat.own_calibration_error == pytest.approx(1 - sure)
    assert evidence.flat.calibration_error == pytest.approx(sure - 2 / 3)
    shown = evidence.describe(rule, "single_path")
    assert "a flat model of the same features: leaf accuracy 0.667 (the hierarchy adds +0.333 ± " in shown
    assert decide_by_evidence(TREE, truth, HeldOut(right, truth))[1].flat is None


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.slow
def test_the_flat_model_of_a_fit_is_the_head_leaves(several: bool) -> None:
    data = load_sample()[np.arange(0, 8_000, 10 if several else 5)]
    labels = [[*one, *two] for one, two in zip(data.paths(), data[::-1].paths(), strict=True)] if several else None
    train = data if labels is None else Dataset.of(list(data.texts), labels, data.hierarchy)
    settings: dict[str, Any] = {"ngram_range": (1, 1), "char_ngram_range": None}
    model = make_model(head="nodes", **settings).fit(train)
    leaves = make_model(head="leaves", **settings).fit(train)
    assert leaves.evidence_.flat is None
    assert model.evidence_.flat is not None
    result = leaves.evidence_.result_of(model.default_rule)
    if result is not None:
        assert model.evidence_.flat.f1 == pytest.approx(result.f1, abs=0.006)
        assert model.evidence_.flat.exact == pytest.approx(result.exact, abs=0.006)
    assert several or result is not None
