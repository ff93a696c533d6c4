"""What notebooks show of objects: the facts that people look for, and names that do no harm."""

import pytest

from tests.core.test_html_tables import TAGS, Seen
from treelabel import Dataset, Hierarchy, Result, compare, decide, evaluate, make_model
from treelabel.evaluation.statistics import Interval

SCRIPT = "<script>alert(1)</script>"
TREE = Hierarchy.from_paths([f"animal > {SCRIPT}", "animal > cat", "food > tea"])
WORDS = ("woof bark tail", "meow purr tail", "cup leaf hot")


@pytest.fixture(scope="module")
def data() -> Dataset:
    """Thirty documents of three labels, one of which is a script."""
    names = (SCRIPT, "cat", "tea")
    texts = [f"{WORDS[row % 3]} {SCRIPT} {row}" for row in range(30)]
    return Dataset.of(texts, [[names[row % 3]] for row in range(30)], TREE, ids=[f"d{row}" for row in range(30)])


def shown(html: str) -> list[str]:
    """Return the texts of HTML that holds no tags but those of tables."""
    seen = Seen(html)
    assert set(seen.tags) <= TAGS
    return seen.texts


def test_a_dataset_shows_sizes_and_first_documents(data: Dataset) -> None:
    texts = shown(data._repr_html_())
    assert texts[0] == repr(data)
    assert texts[texts.index("nodes per level") + 1] == "2-3"
    assert texts[texts.index("d0") :][:3] == ["d0", data.texts[0], f"animal > {SCRIPT}"]
    assert "d5" not in texts
    assert texts[-1] == "25 more"
    assert shown(data[:0]._repr_html_())[0].startswith("Dataset(0 documents")


def test_a_hierarchy_shows_its_levels() -> None:
    texts = shown(TREE._repr_html_())
    assert texts[-8:] == ["1", "2", "0", "animal, food", "2", "3", "3", f"{SCRIPT}, cat, tea"]
    assert "a5 and 94 more" in shown(Hierarchy.flat([f"a{n}" for n in range(100)])._repr_html_())[-1]
    assert shown(Hierarchy.flat([])._repr_html_()) == ["Hierarchy(0 nodes, 0 leaves, depth 0, tree)"]


def test_a_result_shows_its_headline_and_intervals_where_documents_are_kept(data: Dataset) -> None:
    scores = make_model("most_frequent").fit(data).score(data)
    result = evaluate(data, scores=scores, rule="best_leaf", metrics=["hf1", "subset_accuracy"])
    texts = shown(result._repr_html_())
    assert texts[:2] == [repr(result), result.headline]
    place = texts.index("subset_accuracy")
    assert texts[place + 1 : place + 3] == ["0.3333", result.interval("subset_accuracy").ends]
    short = evaluate(data, scores=scores, rule="best_leaf", metrics=["hf1"], keep_documents=False)
    assert "95% interval" not in shown(short._repr_html_())


def test_decisions_show_paths_of_the_first_documents(data: Dataset) -> None:
    scores = make_model("most_frequent").fit(data).score(data)
    decisions = decide(scores, "best_leaf")
    texts = shown(decisions._repr_html_())
    assert texts[:3] == [repr(decisions), "document", "labels"]
    assert texts[3:5] == ["d0", decisions.paths()[0][0]]
    assert texts[-1] == "20 more"


def test_a_comparison_shows_what_it_prints(data: Dataset) -> None:
    scores = make_model("most_frequent").fit(data).score(data)
    table = compare(data, {SCRIPT: scores, "truth": data.names()}, hierarchy=TREE, rule="best_leaf", resamples=20)
    texts = shown(table._repr_html_())
    assert texts.count(SCRIPT) == 2
    printed = " ".join(str(table).split())
    assert all(" ".join(text.split()).rstrip(".") in printed for text in texts[1:])


def test_a_fitted_model_shows_evidence_labels_and_changed_settings_only(data: Dataset) -> None:
    model = make_model("linear", seed=3)
    texts = shown(model._repr_html_())
    assert texts[0] == "Linear (not fitted)"
    assert texts[texts.index("seed") + 1] == "3"
    assert "max_iter" in texts
    texts = shown(model.fit(data)._repr_html_())
    assert texts[0] == "Linear (fitted)"
    assert texts[texts.index("labels") + 1] == "5 (3 leaves), depth 2"
    assert texts[texts.index("training") + 1] == "30 documents"
    assert texts[texts.index("predicts") + 1] == "the leaf with the largest score (best_leaf)"
    assert texts[texts.index("evidence") + 1].startswith("held out (")
    assert "seed = 3" in texts
    assert not any("max_iter" in text for text in texts)


def test_a_fitted_model_shows_how_its_data_were_read(data: Dataset) -> None:
    model = make_model("most_frequent").fit(data)
    model.reading_ = {"text": ["title", "body"], "sep": "/"}
    texts = shown(model._repr_html_())
    assert [text for text in texts if " = " in text] == ["text = title, body", "sep = /"]


def test_a_result_is_resampled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    result = evaluate([["a1"], ["a2"]], [["a1"], ["a1"]], hierarchy=Hierarchy.from_paths(["a > a1", "a > a2"]))
    calls: list[str] = []
    intervals = type(result).intervals

    def counted(self: Result) -> dict[str, Interval]:
        calls.append("drawn")
        return intervals(self)

    monkeypatch.setattr(type(result), "intervals", counted)
    assert result._repr_html_() == result._repr_html_()
    assert len(calls) == 1
