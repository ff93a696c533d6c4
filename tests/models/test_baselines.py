"""The baselines of the case study in Amigó and Delgado (2022), and the model that needs no training texts."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treelabel import Dataset, Hierarchy, TreelabelError, evaluate, load_model, make_model
from treelabel.core.strings import Strings
from treelabel.models import Model
from treelabel.models.description_match import sentences
from treelabel.models.descriptions import (
    UnknownLabelWarning,
    name_words,
    node_descriptions,
    read_descriptions,
    stop_buckets,
)

TREE = Hierarchy.from_paths(["poisoning > by drugs", "poisoning > by food", "fall > from ladder", "fall > from bed"])
TEXTS = {
    "by drugs": "poisoning by adverse effect of antibiotics",
    "by food": "food poisoning",
    "from ladder": "fall on and from ladder",
}
DAG = Hierarchy.from_edges([("pet", "dog"), ("work", "dog"), ("pet", "cat"), ("work", "horse")])


def fitted(name: str, h: Hierarchy = TREE, **settings: Any) -> Model:
    """Fit a model that looks at no training texts."""
    return make_model(name, **settings).fit(["-"], [[h.names[int(h.leaves[0])]]], hierarchy=h)


def by_name(model: Model, text: str) -> dict[str, float]:
    """The scores of a text."""
    values = model.score([text]).dense()[0].tolist()
    return dict(zip(model.hierarchy_.names, values, strict=True))


# Nothing


def test_nothing_is_ever_given() -> None:
    model = fitted("nothing")
    scores = model.score(["food poisoning", ""])
    assert scores.is_sparse
    assert scores.csr().nnz == 0
    assert model.predict(["food poisoning", ""]) == [[], []]
    assert model.predict(["a"], rule="best_leaf") == [[]]


# Matching


def test_a_match_needs_its_share_of_words_in_one_sentence() -> None:
    model = fitted("description_match", descriptions=TEXTS)
    # Three of the four words of "by drugs" are enough, of those with two words both are needed.
    found = {
        "Adverse effect: POISONING!": ["by drugs"],
        "Adverse effect. Poisoning by antibiotics.": ["poisoning"],
        "The ladder. Food poisoning?": ["by food"],
        "He had a fall\nfrom a ladder": ["fall"],
        "He had a fall from his ladder, no bed.": ["from ladder", "from bed"],
        "ladders": [],
        "": [],
    }
    assert dict(zip(found, model.predict(list(found)), strict=True)) == found


def test_a_score_says_how_much_of_the_description_was_found() -> None:
    model = fitted("description_match", descriptions=TEXTS)
    three, four = by_name(model, "adverse effect, poisoning"), by_name(model, "poisoning: adverse effect, antibiotics")
    assert (three["by drugs"], four["by drugs"]) == (0.5, 1.0)
    # The name alone is the description of "poisoning", and it is found whole.
    assert three["poisoning"] == 1.0
    half = fitted("description_match", descriptions=TEXTS, share=0.5)
    assert by_name(half, "adverse effect")["by drugs"] == 0.5
    assert by_name(half, "adverse effect. adverse effect of antibiotics")["by drugs"] == 0.75
    # A node has at least what is below it.
    assert by_name(half, "adverse effect of antibiotics")["poisoning"] == 0.75
    assert by_name(fitted("description_match", descriptions=TEXTS, share=1.0), "poisoning food")["by food"] == 1.0


WORDS = st.lists(st.sampled_from(list("abcdefgh")), max_size=8).map(" ".join)


@given(
    st.lists(WORDS, min_size=5, max_size=5),
    st.lists(st.lists(WORDS, max_size=3), max_size=4),
    st.sampled_from([0.1, 0.5, 0.75, 1.0]),
)
def test_matching_is_what_sets_of_words_say(texts: list[str], documents: list[list[str]], share: float) -> None:
    names = [f"label{number}" for number in range(len(texts))]
    given = {name: text for name, text in zip(names, texts, strict=True) if text}
    model = fitted("description_match", Hierarchy.flat(names), descriptions=given, share=share, stop_words=("h",))
    expected = [
        [name for name in names if any(enough(given.get(name, name), part, share) for part in parts)]
        for parts in documents
    ]
    assert model.predict([". ".join(parts) for parts in documents]) == expected


def enough(description: str, sentence: str, share: float) -> bool:
    """The slow twin."""
    wanted = set(description.split()) - {"h"}
    return bool(wanted) and len(wanted & set(sentence.split())) >= share * len(wanted)


def test_stop_words_are_left_out_or_not() -> None:
    assert by_name(fitted("description_match"), "with food")["by food"] == 1.0
    assert by_name(fitted("description_match", stop_words=None), "with food")["by food"] == 0.0
    own = fitted("description_match", descriptions=TEXTS, stop_words=("By", "food"))
    assert by_name(own, "poisoning")["by food"] == 1.0
    assert len(stop_buckets("english")) > 300
    with pytest.raises(TreelabelError, match="stop_words is 'german', expected a list or 'english' or null"):
        fitted("description_match", stop_words="german")
    # A label of which nothing is left never matches.
    nothing_left = Hierarchy.flat(["of the", "it"])
    assert fitted("description_match", nothing_left).predict(["of the it"]) == [[]]
    with pytest.raises(TreelabelError, match="a word other than stop words in its description or name; give"):
        fitted("svm_descriptions", nothing_left)


def test_sentences_end_where_they_should() -> None:
    found, sizes = sentences(Strings.of(['He said "no!" Dose 1.5 mg?! Yes', "一。二", "", "a\n\nb."]))
    assert list(found) == ['He said "no', "Dose 1.5 mg", "Yes", "一", "二", "", "a", "b."]
    assert sizes.tolist() == [3, 2, 1, 2]
    assert len(sentences(Strings.of([]))[0]) == 0


@pytest.mark.parametrize("share", [0.0, 1.1, -1.0])
def test_a_share_out_of_range_is_refused(share: float) -> None:
    with pytest.raises(TreelabelError, match=f"the setting share is {share}, expected a number from 1e-06 to 1"):
        fitted("description_match", share=share)


def test_names_are_read_as_words() -> None:
    assert [name_words(name) for name in ("ÄpfelUndBirnen", "USA", "A1", "10_20", "2 things")] == [
        "Äpfel Und Birnen",
        "USA",
        "A1",
        "10 20",
        "things",
    ]


# Descriptions


def test_descriptions_come_from_a_file_or_a_mapping(tmp_path: Path) -> None:
    file = tmp_path / "labels.tsv"
    file.write_text("\ufeffby drugs\tpoisoning by pills\r\n\nfall > from bed\tfall out of bed\n", encoding="utf-8")
    expected = {2: "poisoning by pills", 5: "fall out of bed"}
    assert read_descriptions(file, TREE) == expected
    assert node_descriptions(TREE, str(file)) == expected
    assert node_descriptions(TREE, {"by drugs": "poisoning by pills", "fall > from bed": "fall out of bed"}) == expected
    model = fitted("description_match", descriptions=str(file))
    assert model.predict(["a poisoning with pills"]) == [["by drugs"]]
    model.save(tmp_path / "model")
    file.unlink()
    # What the file said is in the model.
    assert load_model(tmp_path / "model").predict(["a poisoning with pills"]) == [["by drugs"]]


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"by food\tmeals\nby drugs pills\n", r"labels.tsv:2: expected label, tab, description; found no tab"),
        (b"by foot\tshoes\n", r"labels.tsv:1: unknown label 'by foot'; did you mean 'by food'"),
        (b"by food\tmeals\npoisoning > by food\tx\n", r"labels.tsv:2: a second description of 'poisoning > by food'"),
        (b"by food\t \n", r"labels.tsv:1: the description of 'by food' is empty"),
        (b"by food\tmeals\nby drugs\t\xff\n", r"labels.tsv:2: byte 10 of the line \(0xff\) is not utf-8"),
    ],
)
def test_a_file_of_descriptions_is_refused_with_its_line(tmp_path: Path, content: bytes, match: str) -> None:
    (tmp_path / "labels.tsv").write_bytes(content)
    for name in ("description_match", "svm_descriptions", "zero_shot"):
        with pytest.raises(TreelabelError, match=match):
            fitted(name, descriptions=str(tmp_path / "labels.tsv"))


def test_a_file_may_describe_labels_that_are_not_here(tmp_path: Path) -> None:
    (tmp_path / "labels.tsv").write_text("by food\tmeals\tand dishes\nby foot\tshoes\n")
    with pytest.warns(
        UnknownLabelWarning, match="'by foot'; did you mean 'by food'.* 1 unknown labels are passed over"
    ):
        model = fitted("description_match", descriptions=str(tmp_path / "labels.tsv"))
    assert model.predict(["meals and dishes"]) == [["by food"]]


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ("nowhere.tsv", "nowhere.tsv: no such file"),
        (["a"], r"the setting descriptions is \['a'\], expected a mapping or text or null"),
        (Path("labels.tsv"), r"the setting descriptions is .*, expected a mapping or text or null"),
        ({"by food": 3}, r"the setting descriptions\['by food'\] is 3, expected text"),
        ({"by foot": "x"}, "descriptions: unknown label 'by foot'"),
    ],
)
def test_descriptions_of_the_wrong_kind_are_refused(given: Any, match: str) -> None:
    with pytest.raises(TreelabelError, match=match):
        fitted("description_match", descriptions=given)


# Support vector machines


def test_svms_know_only_words_of_descriptions_and_labels_of_training() -> None:
    texts = ["antibiotics today", "food today", "rest today", "antibiotics and food"] * 3
    rows = [["by drugs"], ["by food"], [], ["by drugs", "by food"]] * 3
    model = make_model("svm_descriptions", descriptions=TEXTS).fit(texts, rows, hierarchy=TREE)
    assert model.predict(["Antibiotics!", "food", "today rest", "food antibiotics", "ladder"]) == [
        ["by drugs"],
        ["by food"],
        [],
        ["by drugs", "by food"],
        [],
    ]
    scores = by_name(model, "antibiotics")
    assert scores["poisoning"] == scores["by drugs"] > 0.5 > scores["by food"] > 0
    assert scores["fall"] == scores["from bed"] == 0
    # "today" is in no description.
    assert np.array_equal(model.score(["today"]).dense(), model.score([""]).dense())


def test_a_score_of_an_svm_is_the_sigmoid_of_its_margin() -> None:
    from sklearn.svm import LinearSVC

    # The words of the two labels make a table of presence: food, ladder.
    texts, marks = ["food", "ladder", "food ladder", ""], np.array([[1, 0], [0, 1], [1, 1], [0, 0]])
    h = Hierarchy.flat(["food", "ladder"])
    model = make_model("svm_descriptions", C=2.0).fit(texts, [["food"], [], ["food"], []], hierarchy=h)
    svm = LinearSVC(C=2.0, dual=False).fit(marks, [1, 0, 1, 0])
    margins = svm.decision_function(marks)
    assert model.score(texts).dense()[:, 0] == pytest.approx(1 / (1 + np.exp(-margins)), abs=2e-3)


def test_codes_are_features_whole_and_as_they_are_written() -> None:
    texts = ["I10;E11.9", "I10 | Z1", "E11.9, Z1", "Z1"] * 3
    rows = [["by drugs"], ["by drugs"], ["from bed"], []] * 3
    model = make_model("svm_codes").fit(texts, rows, hierarchy=TREE)
    assert model.predict(["I10", "E11.9\tZ1", "Z1,Z1", "I10.1 i10"]) == [["by drugs"], ["from bed"], [], []]
    with pytest.raises(TreelabelError, match="no document has a code"):
        make_model("svm_codes").fit([" ;, "], [["by food"]], hierarchy=TREE)


def test_a_label_of_every_document_is_given_to_all() -> None:
    model = make_model("svm_codes").fit(["a", "b"], [["by food"], ["by food", "by drugs"]], hierarchy=TREE)
    # Of "by drugs" the margin is 0 without a code that is known, which is not above 0.
    assert model.predict(["c", "b"]) == [["by food"], ["by drugs", "by food"]]


def test_a_deadline_leaves_out_rare_labels() -> None:
    rows = [["by food"], ["by food"], ["by drugs"], []]
    model = make_model("svm_codes").fit(["a", "a", "b", "c"], rows, hierarchy=TREE, max_seconds=0)
    assert model.predict(["a", "b"])[0] == ["by food"]
    assert by_name(model, "b")["by drugs"] == 0


def test_a_saved_svm_holds_no_word_of_its_texts(tmp_path: Path) -> None:
    make_model("svm_codes").fit(["SECRET1 X2", "Y3"], [["by food"], ["by drugs"]], hierarchy=TREE).save(tmp_path / "m")
    assert not any(b"SECRET1" in file.read_bytes() for file in (tmp_path / "m").iterdir())


# The table of the paper


def made_up_reports(count: int, seed: int) -> tuple[list[str], list[str], list[list[str]]]:
    """Reports of which few have an event, the codes that go with them, and their labels."""
    rng = np.random.default_rng(seed)
    said = {
        "by drugs": "adverse effect and poisoning from antibiotics",
        "by food": "food poisoning at home",
        "from ladder": "a fall, the ladder broke",
    }
    code = {"by drugs": "A1", "by food": "B2", "from ladder": "C3"}
    texts, codes, rows = [], [], []
    for _ in range(count):
        label = str(rng.choice(list(said))) if rng.random() < 0.2 else None
        # Some events are only hinted at, and ladders and food are spoken of without any.
        clear = label is not None and rng.random() < 0.7
        noise = str(rng.choice(["Slept well.", "Likes food and his bed.", "Owns a ladder.", "No pain."]))
        texts.append(f"{noise} {said[label] if clear and label else 'Stable'}. Home.")
        codes.append(" ".join([str(rng.choice(["X", "Y", "Z"])), *([code[label]] if label else [])]))
        rows.append([] if label is None else [label])
    return texts, codes, rows


def test_the_table_of_the_case_study_can_be_made() -> None:
    texts, codes, rows = made_up_reports(400, 0)
    new_texts, new_codes, truth = made_up_reports(200, 1)
    names = ["nothing", "most_frequent", "description_match", "svm_descriptions", "svm_codes"]
    metrics = ("hf1", "subset_accuracy", "icm")
    table: dict[str, dict[str, float]] = {}
    for name in names:
        settings = {"descriptions": TEXTS} if "desc" in name else {}
        seen, new = (codes, new_codes) if name == "svm_codes" else (texts, new_texts)
        model = make_model(name, **settings).fit(Dataset.of(seen, rows, TREE))
        # The paper gives the most frequent label to all, whatever its share.
        found = model.predict(new, rule="best_leaf" if name == "most_frequent" else None)
        result = evaluate(Dataset.of(new, truth, TREE), decisions=found, metrics=list(metrics))
        table[name] = {metric: result[metric] for metric in metrics}
    for metric in metrics:
        column = {name: row[metric] for name, row in table.items()}
        assert column["most_frequent"] < min(value for name, value in column.items() if name != "most_frequent")
        # A bed that is only slept in is matched, which is worse than to say nothing.
        assert column["description_match"] < column["nothing"] < column["svm_descriptions"] < column["svm_codes"]


# No training texts


def test_descriptions_help_where_names_do_not() -> None:
    texts = ["it barks and fetches", "purring softly", "pulls carts"]
    given = {"dog": "barks, fetches sticks", "cat": "purrs", "horse": "pulls heavy carts"}
    model = fitted("zero_shot", DAG, descriptions=given)
    assert model.predict(texts) == [["dog"], ["cat"], ["horse"]]
    scores = model.score(texts)
    assert scores.is_coherent()
    # A leaf counts once for each ancestor, however many parents it has.
    values = by_name(model, texts[0])
    assert values["pet"] == pytest.approx(values["dog"] + values["cat"], abs=1e-6)
    assert values["work"] == pytest.approx(values["dog"] + values["horse"], abs=1e-6)


def test_texts_without_a_known_word_are_spread_over_all_ends() -> None:
    values = by_name(fitted("zero_shot"), "zzz")
    assert values["by food"] == values["from bed"] == pytest.approx(0.25)
    inside = make_model("zero_shot").fit(["-"], [["fall"]], hierarchy=TREE)
    # Documents may end at any of six nodes.
    assert by_name(inside, "zzz")["by food"] == pytest.approx(1 / 6)
    assert by_name(inside, "zzz")["fall"] == pytest.approx(3 / 6)


def test_relatives_lend_their_words() -> None:
    h = Hierarchy.from_paths(["sport > ball > tennis", "sport > ice", "music > opera"])
    # "ball" is a word of tennis alone among leaves, by its parent.
    assert by_name(fitted("zero_shot", h), "ball")["tennis"] > 0.5
    assert by_name(fitted("zero_shot", h, ancestor_weight=0.0), "ball")["tennis"] == pytest.approx(1 / 3, abs=1e-6)
    ends_inside = (
        make_model("zero_shot", ancestor_weight=0.0, descendant_weight=0.5)
        .fit(["-"], [["ball"]], hierarchy=h)
        .score(["opera"])
    )
    without = (
        make_model("zero_shot", ancestor_weight=0.0, descendant_weight=0.0)
        .fit(["-"], [["ball"]], hierarchy=h)
        .score(["opera"])
    )
    music, opera = h.names.index("music"), h.names.index("opera")
    assert (ends_inside.dense()[0, music] - ends_inside.dense()[0, opera]) > (
        without.dense()[0, music] - without.dense()[0, opera]
    )


class Letters:
    """Features that are made elsewhere: how often a text has each of four letters."""

    name = "letters"
    fingerprint = "four letters"

    def transform(self, texts: Sequence[str]) -> Any:
        """Count letters."""
        return np.array([[text.count(letter) for letter in "dcho"] for text in texts], float).reshape(-1, 4)


def test_an_encoder_takes_the_place_of_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREELABEL_CACHE", str(tmp_path / "cache"))
    model = fitted("zero_shot", DAG, encoder=Letters(), ancestor_weight=0.0)
    assert model.predict(["dod", "cc", "hh"]) == [["dog"], ["cat"], ["horse"]]
    assert model.score(["dd", "", "ddddd"]).is_coherent()
    # Cosines do not depend on lengths.
    assert model.score(["do"]).dense() == pytest.approx(model.score(["dodo"]).dense())
    assert len(model.score([])) == 0
    model.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model", encoder=Letters())
    assert np.array_equal(loaded.score(["dod"]).dense(), model.score(["dod"]).dense())
    with pytest.raises(TreelabelError, match="unknown encoder 'letters'"):
        load_model(tmp_path / "model")


@pytest.mark.parametrize("name", ["svm_codes", "zero_shot"])
def test_of_very_many_nodes_the_largest_scores_are_kept(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place = "treelabel.models.zero_shot" if name == "zero_shot" else "treelabel.models.baselines"
    monkeypatch.setattr(f"{place}.MANY_NODES", 10)
    monkeypatch.setattr(f"{place}.TOP_SCORES", 3)
    h = Hierarchy.flat([f"thing{number}" for number in range(20)])
    model = make_model(name).fit(list(h.names), [[label] for label in h.names], hierarchy=h)
    scores = model.score(["thing7", "thing3"])
    assert scores.is_sparse
    assert np.diff(scores.csr().indptr).tolist() == [3, 3]
    assert scores.csr().toarray().argmax(axis=1).tolist() == [h.names.index("thing7"), h.names.index("thing3")]
