"""Models brought up to date: what they keep is what fitting anew would give, and why predictions change."""

from collections.abc import Iterator
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers import WordVectors, load_model, make_model, registered, update_model
from treelabel import Dataset, Hierarchy, Moves, TreelabelError
from treelabel.models.check import CASES, TREE
from treelabel.models.model_inputs import training_of
from treelabel.operations.prediction_changes import prediction_changes

# Nothing is chosen, so that fitting anew differs in nothing but what is learned.
PROTOTYPE: dict[str, Any] = {
    "encoder": "words",
    "parent_prior_strength": 2.0,
    "label_prior_strength": 1.0,
    "shrinkage": 1.0,
}
LINEAR: dict[str, Any] = {"ngram_range": (1, 1), "char_ngram_range": None}


@pytest.fixture(autouse=True)
def words(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("TREELABEL_CACHE", str(tmp_path / "cache"))
    with registered("words", WordVectors):
        yield


def tree(*paths: str) -> Hierarchy:
    return Hierarchy.from_paths(paths)


CHANGES: dict[str, tuple[Hierarchy, list[tuple[str, str]]]] = {
    "added": (tree(*TREE.paths(), "food > bread", "work > horse"), []),
    "renamed": (
        tree("pet > dog > fox terrier", "pet > dog > poodle", "pet > cat", "meals > cake", "meals > soup"),
        [("terrier", "fox terrier"), ("food", "meals")],
    ),
    "moved": (tree("pet > dog > poodle", "pet > terrier", "pet > cat", "food > cake", "food > soup"), []),
    "merged": (
        tree("pet > dog > terrier", "pet > dog > poodle", "pet > cat", "food > sweet"),
        [("cake", "sweet"), ("soup", "sweet")],
    ),
    "deleted": (tree("pet > dog > terrier", "pet > dog > poodle", "pet > cat", "food > cake"), [("soup", "")]),
    "into its parent": (
        tree("pet > dog", "pet > cat", "food > cake", "food > soup"),
        [("terrier", "dog"), ("poodle", "dog")],
    ),
}


def dataset(kind: str) -> Dataset:
    case = CASES[kind]
    return Dataset.of(case.texts, case.labels, case.hierarchy)


def moves_of(change: str) -> Moves:
    new, rows = CHANGES[change]
    return Moves.of(TREE, new, rows)


def more_texts(h: Hierarchy) -> Dataset:
    """Make new texts for all leaves of a hierarchy."""
    paths = h.paths(h.leaves) * 2
    return Dataset.of([f"new {path.replace(' > ', ' ')} text {at}" for at, path in enumerate(paths)], paths, h)


def together(one: Dataset, other: Dataset) -> Dataset:
    return Dataset.of([*one.texts, *other.texts], [*one.paths(), *other.paths()], one.hierarchy)


# Models that add to what they keep


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", ["leaf", "path"])
def test_prototypes_are_those_of_fitting_anew(kind: str, change: str) -> None:
    data, moves = dataset(kind), moves_of(change)
    more = more_texts(moves.new)
    model = make_model("prototype", **PROTOTYPE).fit(data)
    before = model.prototypes_.copy()
    updated = update_model(model, more, moves=moves)
    anew = make_model("prototype", **PROTOTYPE).fit(together(data.moved(moves), more))
    assert updated.stops_.tolist() == anew.stops_.tolist()
    assert updated.means_.counts.tolist() == anew.means_.counts.tolist()
    assert updated.prototypes_ == pytest.approx(anew.prototypes_, abs=1e-5)
    assert updated.regime_ == anew.regime_
    assert (model.prototypes_ == before).all()
    assert model.hierarchy_ == TREE


@pytest.mark.parametrize("change", CHANGES)
def test_prototypes_need_no_texts_for_a_taxonomy(change: str, tmp_path: Path) -> None:
    data, moves = dataset("leaf"), moves_of(change)
    updated = update_model(make_model("prototype", **PROTOTYPE).fit(data), moves=moves)
    anew = make_model("prototype", **PROTOTYPE).fit(data.moved(moves))
    assert updated.prototypes_ == pytest.approx(anew.prototypes_, abs=1e-5)
    updated.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    texts = list(data.texts[:5])
    assert loaded.score(texts).dense() == pytest.approx(updated.score(texts).dense(), abs=1e-6)
    assert loaded.hierarchy_ == moves.new


def test_prototypes_of_several_paths_stay_where_nothing_moved() -> None:
    data = dataset("many")
    model = make_model("prototype", **PROTOTYPE).fit(data)
    new = tree(*(path.replace("terrier", "fox terrier") for path in TREE.paths()), "food > bread")
    moves = Moves.of(TREE, new, [("terrier", "fox terrier")])
    anew = make_model("prototype", **PROTOTYPE).fit(data.moved(moves))
    updated = update_model(model, moves=moves)
    assert updated.prototypes_ == pytest.approx(anew.prototypes_, abs=1e-5)
    # The document with both labels that are one now is counted twice above them at most.
    merged = update_model(model, moves=Moves.of(TREE, *CHANGES["merged"]))
    assert (merged.means_.counts >= 0).all()
    assert merged.score(["cat"]).is_coherent()


def test_what_a_split_label_had_is_shared() -> None:
    new = tree(
        "pet > dog > terrier", "pet > dog > poodle", "pet > siamese", "pet > persian", "food > cake", "food > soup"
    )
    model = make_model("prototype", **PROTOTYPE).fit(dataset("leaf"))
    updated = update_model(model, moves=Moves.of(TREE, new, [("cat", "siamese"), ("cat", "persian")]))
    assert updated.means_.counts[[new.names.index(name) for name in ("siamese", "persian", "pet")]].tolist() == [
        6,
        6,
        36,
    ]


def test_one_of_the_labels_that_a_label_was_split_into_is_explained_by_that() -> None:
    new = tree(
        "pet > dog > terrier", "pet > dog > poodle", "pet > siamese", "pet > persian", "food > cake", "food > soup"
    )
    moves, data = Moves.of(TREE, new, [("cat", "siamese"), ("cat", "persian")]), dataset("leaf")
    model = make_model("prototype", **PROTOTYPE).fit(data)
    found = prediction_changes(model, update_model(model, moves=moves), data, moves)
    cats = [change for change in found.changes if change.old == ("pet > cat",)]
    assert {change.why for change in cats} == {"split"}
    assert {change.new for change in cats} & {("pet > siamese",), ("pet > persian",)}


@pytest.mark.parametrize("change", CHANGES)
def test_a_memory_is_that_of_fitting_anew(change: str) -> None:
    data, moves = dataset("leaf"), moves_of(change)
    more = more_texts(moves.new)
    updated = update_model(make_model("memory").fit(data), more, moves=moves)
    anew = make_model("memory").fit(together(data.moved(moves), more))
    assert (updated.targets_ != anew.targets_).nnz == 0
    assert updated.hierarchy_ == anew.hierarchy_
    assert updated.stop_nodes_.tolist() == anew.stop_nodes_.tolist()


# The linear model


@pytest.mark.parametrize("head", ["nodes", "leaves", "conditional_softmax", "conditional_sigmoid"])
@pytest.mark.parametrize("kind", ["leaf", "path"])
def test_a_linear_model_is_renamed_without_texts(kind: str, head: str, tmp_path: Path) -> None:
    data = dataset(kind)
    # In another order, with a label more.
    new = tree("a > new", "meals > soup", "meals > cake", "pet > cat", "pet > dog > poodle", "pet > dog > fox terrier")
    moves = Moves.of(TREE, new, [("terrier", "fox terrier"), ("food", "meals")])
    model = make_model("linear", head=head, **LINEAR).fit(data)
    updated = update_model(model, moves=moves)
    texts = list(data.texts[:10])
    before, after = model.score(texts).dense(), updated.score(texts).dense()
    to = [target for (target,) in moves.targets]
    assert after[:, to] == pytest.approx(before, abs=1e-6)
    assert (after[:, new.names.index("new")] < 1e-6).all()
    updated.save(tmp_path / "model")
    assert load_model(tmp_path / "model").score(texts).dense() == pytest.approx(after, abs=1e-6)


def test_leaves_without_outputs_above_them_may_move_without_texts() -> None:
    data, moves = dataset("leaf"), moves_of("moved")
    model = make_model("linear", head="leaves", **LINEAR).fit(data)
    updated = update_model(model, moves=moves)
    p = {name: updated.score(data).dense()[:, moves.new.names.index(name)] for name in ("terrier", "poodle", "dog")}
    assert p["dog"] == pytest.approx(p["poodle"], abs=1e-5)
    hit = [["pet > terrier"] if row == ["pet > dog > terrier"] else row for row in data.paths()]
    assert np.mean([found == row for found, row in zip(updated.predict(data, paths=True), hit, strict=True)]) > 0.9


@pytest.mark.parametrize("change", ["moved", "merged", "deleted", "into its parent"])
@pytest.mark.parametrize("head", ["nodes", "conditional_softmax"])
def test_a_linear_model_says_when_it_needs_texts(head: str, change: str) -> None:
    model = make_model("linear", head=head, **LINEAR).fit(dataset("leaf"))
    with pytest.raises(
        TreelabelError, match=rf"linear \(head={head}\) has to learn them anew; name the file .*--train"
    ):
        update_model(model, moves=moves_of(change))


@pytest.mark.parametrize("head", ["nodes", "conditional_softmax"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_linear_model_learns_what_fitting_anew_learns(change: str, head: str) -> None:
    data, moves = dataset("leaf"), moves_of(change)
    more = more_texts(moves.new)
    model = make_model("linear", head=head, **LINEAR).fit(data)
    updated = update_model(model, more, moves=moves, train=data)
    every = together(data.moved(moves), more)
    anew = make_model("linear", head=head, **LINEAR).fit(every)
    assert (updated.featurizer_.tfidf.buckets == anew.featurizer_.tfidf.buckets).all()
    weights = updated.head_.weights, anew.head_.weights
    assert (weights[0].sparse != weights[1].sparse).nnz == 0
    assert (weights[0].bias == weights[1].bias).all()
    # Calibration is that of before.
    found = [fitted.predict(every) for fitted in (updated, anew)]
    assert np.mean([one == other for one, other in zip(*found, strict=True)]) > 0.95


def test_a_linear_model_takes_over_what_was_chosen() -> None:
    data = dataset("leaf")
    model = make_model("linear").fit(data)
    updated = update_model(model, more_texts(TREE), train=data)
    assert updated.get_params()["head"] == model.head_.head
    assert updated.get_params()["ngram_range"] == model.featurizer_.tfidf.shape.ngram_range
    assert updated.evidence_ == model.evidence_
    again = update_model(updated, moves=moves_of("renamed"))
    assert again.hierarchy_ == CHANGES["renamed"][0]


def test_a_linear_model_is_calibrated_anew_where_much_is_new() -> None:
    data = dataset("leaf")
    model = make_model("linear", **LINEAR).fit(data[:20])
    several = dataset("many")
    assert update_model(model, several, train=data[:20]).regime_ == "multi_path"
    updated = update_model(model, data[20:], train=data[:20])
    assert updated.evidence_ != model.evidence_


# All others


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("most_frequent", {}),
        ("bag", {"epochs": 2}),
        ("stack", {"encoder": "words", "cv": 2, "estimators": ("linear", {"model": "prototype", **PROTOTYPE})}),
        ("prototype", PROTOTYPE),
    ],
    ids=["most_frequent", "bag", "stack", "prototype"],
)
def test_others_are_fitted_anew_from_the_original_file(name: str, settings: dict[str, Any]) -> None:
    data, moves = dataset("leaf"), moves_of("merged")
    more = more_texts(moves.new)
    model = make_model(name, **settings).fit(data)
    if name != "prototype":
        with pytest.raises(TreelabelError, match=f"the model {name} has to learn the old texts again.*--train"):
            update_model(model, more, moves=moves)
    updated = update_model(model, more, moves=moves, train=data)
    anew = make_model(name, **settings).fit(together(data.moved(moves), more))
    assert (updated.score(data).dense() == anew.score(data).dense()).all()


def test_documents_that_lose_all_their_labels_are_left_out() -> None:
    data = dataset("leaf")
    moves = Moves.of(TREE, tree("pet > dog > terrier", "pet > dog > poodle", "pet > cat"), [("food", "")])
    updated = update_model(make_model("most_frequent").fit(data), moves=moves, train=data)
    assert updated.score(["a"]).dense()[0, 0] == 1


def test_groups_stay_together() -> None:
    data = dataset("leaf")
    grouped = Dataset.of(data.texts, data.paths(), TREE, groups=[f"shop {row % 7}" for row in range(len(data))])
    seen: list[Any] = []
    model = make_model("most_frequent").fit(grouped)

    def watched(self: Any, train: Any, before: int) -> Any:
        seen.append(train.groups)
        return copy(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(model), "_refit", watched)
        update_model(model, more_texts(TREE), train=grouped)
        update_model(model, grouped, train=grouped)
    assert [len(set(groups.tolist())) for groups in seen] == [7 + len(more_texts(TREE)), 7]
    assert (seen[1][: len(data)] == seen[1][len(data) :]).all()


def test_nothing_to_update_is_an_error() -> None:
    model = make_model("most_frequent")
    with pytest.raises(TreelabelError, match="not learned anything"):
        update_model(model, dataset("leaf"))
    with pytest.raises(TreelabelError, match="nothing to update"):
        update_model(model.fit(dataset("leaf")))
    with pytest.raises(TreelabelError, match="the original training data belongs to another hierarchy"):
        update_model(model, moves=moves_of("renamed"), train=dataset("DAG"))


def test_the_rule_is_chosen_anew_where_documents_no_longer_end_at_leaves() -> None:
    new = tree(
        "pet > dog > terrier",
        "pet > dog > poodle",
        "pet > cat > siamese",
        "pet > cat > persian",
        "food > cake",
        "food > soup",
    )
    data = dataset("leaf")
    # One document that ends at an inner node is odd, and changes no rule.
    odd = together(together(data, data), Dataset.of(["a pet"], [["pet"]], TREE))
    model = make_model("linear", ngram_range=(1, 1), char_ngram_range=None).fit(odd)
    assert (model.regime_, model.rule_) == ("partial_path", "best_leaf")
    moves = Moves.of(TREE, new, [("cat", "siamese"), ("cat", "persian")])
    updated = update_model(model, moves=moves, train=odd)
    cats = [text for text, names in zip(data.texts, data.names(), strict=True) if names == ["cat"]]
    assert {tuple(labels) for labels in updated.predict(cats, paths=True)} == {("pet > cat",)}


# What changes


def test_changes_are_told_by_their_reason() -> None:
    data = dataset("leaf")
    new = tree("pet > dog > fox terrier", "pet > dog > poodle", "animals > cat", "food > sweet")
    rows = [("terrier", "fox terrier"), ("cake", "sweet"), ("soup", "sweet")]
    moves = Moves.of(TREE, new, rows)
    model = make_model("prototype", **PROTOTYPE).fit(data)
    found = prediction_changes(model, update_model(model, moves=moves), data, moves)
    by_label = {row.old: row.why for row in found.changes}
    assert by_label[("pet > dog > terrier",)] == "renamed"
    assert by_label[("pet > cat",)] == "moved"
    assert by_label[("food > cake",)] == "merged"
    assert ("pet > dog > poodle",) not in by_label
    assert found.documents == len(data)
    assert sum(found.counts().values()) == len(found.changes)


def test_a_changed_mind_is_told_with_probabilities() -> None:
    data = dataset("leaf")
    model = make_model("prototype", **PROTOTYPE).fit(data)
    text = data.texts[0]
    other = Dataset.of([text] * 30, [["cake"]] * 30, TREE)
    changed = update_model(model, other)
    found = prediction_changes(model, changed, [text], Moves.of(TREE, TREE))
    (change,) = found.changes
    assert (change.why, change.old, change.new) == ("new mind", ("pet > dog > terrier",), ("food > cake",))
    assert change.old_p == pytest.approx((model.score([text]).dense()[0, TREE.names.index("terrier")],), abs=1e-6)
    assert change.new_p == pytest.approx((changed.score([text]).dense()[0, TREE.names.index("cake")],), abs=1e-6)
    assert "1 because the model sees the text differently" in found.summary()
    assert found.table()[1][:3] == ["0", "new mind", "pet > dog > terrier"]
    assert prediction_changes(model, model, data, Moves.of(TREE, TREE)).changes == ()


def test_what_a_model_remembers_of_its_training_follows_the_labels() -> None:
    """Counts are those of old and new documents under the new hierarchy; review and drift go on working."""
    old = Hierarchy.from_paths(["pet > cat", "pet > dog", "farm > cow"])
    new = Hierarchy.from_paths(["pet > cat", "pet > hound", "farm > cow"])
    texts = ["it meows", "it barks", "it gives milk"] * 10
    model = make_model("linear", hierarchy=old).fit(texts, [["cat"], ["dog"], ["cow"]] * 10)
    moves = Moves.of(old, new, [("dog", "hound")])
    renamed = update_model(model, moves=moves)
    more = training_of(["who barks"], [["hound"]], new)
    refitted = update_model(
        model, ["who barks"], [["hound"]], moves=moves, train=Dataset.of(texts, ["cat", "dog", "cow"] * 10, old)
    )
    profile = model.profile_
    for made, added in ((renamed, 0), (refitted, 1)):
        kept = made.profile_
        assert kept.documents == 30 + added
        counts = dict(zip(new.names, kept.frequencies.tolist(), strict=True))
        assert counts == {"pet": 20 + added, "farm": 10, "cat": 10, "hound": 10 + added, "cow": 10}
    assert profile.carry_over(moves, more).documents == 31


@pytest.mark.parametrize("name", ["linear", "memory"])
def test_documents_that_the_model_learned_from_must_be_there_again(name: str, tmp_path: Path) -> None:
    """A text that was learned twice is needed twice; case and spacing make no other text; new texts count."""
    texts, labels = ["it meows", "it barks", "it barks"] * 10, ["cat", "dog", "dog"] * 10
    h = Hierarchy.flat(["cat", "dog"])
    whole, more = Dataset.of(texts, labels, h), Dataset.of(["it purrs"], ["cat"], h)
    first = update_model(make_model(name).fit(whole), more, train=whole)
    first.save(tmp_path / "first")
    model = load_model(tmp_path / "first")
    assert model.profile_.documents == 31
    newer = Dataset.of(["it howls"], ["dog"], h)
    with pytest.raises(TreelabelError, match=r"learned from 31 documents, of which 3 are missing in the 28 of"):
        update_model(model, newer, train=whole[:28])
    for train, new in (([whole, more], newer), (whole, together(more, newer))):
        second = update_model(model, new, train=train)
        assert second.profile_.documents == 32
        assert second.profile_.missing(whole.texts, more.texts, newer.texts) == 0
        assert second.profile_.missing(whole.texts) == 2
        assert second.profile_.frequencies.tolist() == [11, 21]
    forgetful = update_model(model, newer, train=whole[:28], forget=True)
    assert forgetful.profile_.documents == 29
