"""The card of a model folder: true, harmless, without texts of documents, and covered by a checksum."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from treelabel import Dataset, Hierarchy, load_model, make_model
from treelabel.core.errors import TreelabelError
from treelabel.models.base import Model
from treelabel.models.persistence.model_card import escape_markdown, write_card

HOSTILE = "<img src=x onerror=alert(1)> [click](http://evil.test) | `code` *bold*"
TREE = Hierarchy.from_paths([f"{HOSTILE} > dog", f"{HOSTILE} > cat", "food > tea", "food > never"])


@pytest.fixture(scope="module")
def model() -> Model:
    """A model of forty texts, each with a secret."""
    names = ("dog", "cat", "tea")
    words = ("woof", "meow", "cup")
    rows = [row % 3 for row in range(40)]
    texts = [f"{words[row]} secret{number}" for number, row in enumerate(rows)]
    return make_model("linear", seed=7).fit(Dataset.of(texts, [[names[row]] for row in rows], TREE))


def rendered(text: str) -> str:
    """Return Markdown as HTML."""
    html: str = MarkdownIt("commonmark").enable("table").render(text)
    return html


def test_a_folder_has_a_card_that_says_what_the_model_is(model: Model, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    card = (tmp_path / "model" / "README.md").read_text(encoding="utf-8")
    header, body = re.fullmatch(r"---\n(.*?)\n---\n(.*)", card, re.DOTALL).groups()  # type: ignore[union-attr]
    assert {"library_name: treelabel", "pipeline_tag: text-classification"} <= set(header.splitlines())
    assert "# Linear: texts into 6 labels" in body
    assert "6 labels, 4 of them leaves, in a tree of depth 2" in body
    assert "40 documents; each has one path of labels, which ends in a leaf" in body
    assert "seed = 7" in body
    result = model.evidence_.result_of(model.rule_)
    assert result is not None
    assert f"leaf accuracy {result.exact:.3f}" in body
    assert "It predicts the leaf with the largest score (best\\_leaf)" in body
    assert "Leaves without any training document: 1" in body
    assert 'tl.load_model("FOLDER")' in body
    assert "treelabel predict FOLDER" in body
    assert "License" in body


def test_no_text_of_a_document_is_in_the_card(model: Model) -> None:
    card = write_card(model)
    assert not re.search(r"secret|woof|meow", card)


def test_names_of_labels_are_shown_and_do_nothing(model: Model) -> None:
    html = rendered(write_card(model).partition("---\n\n")[2])
    assert "&lt;img src=x onerror=alert(1)&gt; [click](http://evil.test) | `code` *bold*, food" in html
    assert "<img" not in html
    assert re.findall(r'href="([^"]*)"', html) == ["https://github.com/treelabel/treelabel"]


@given(st.text(st.sampled_from("<>&*_[]()`#|\\!~$:@ \n\tab1.-+="), max_size=30))
def test_markdown_shows_any_name_as_it_is(name: str) -> None:
    html = rendered(f"At the top: {escape_markdown(name)}.")
    inside = html.removeprefix("<p>At the top: ").removesuffix(".</p>\n").removeprefix("<p>At the top:")
    shown = " ".join(name.split())
    assert inside.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&").strip() == shown


def test_a_model_without_held_out_documents_says_so() -> None:
    model = make_model("most_frequent").fit(["a", "b"], ["x", "y"])
    assert "No documents were held out to judge it" in write_card(model)


def test_an_altered_or_missing_card_is_refused_like_any_file(model: Model, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    model.save(folder)
    card = folder / "README.md"
    card.write_text(card.read_text() + "\nlicense: mine\n")
    with pytest.raises(TreelabelError, match=r"README\.md is not what was saved"):
        load_model(folder)
    card.unlink()
    with pytest.raises(TreelabelError, match=r"incomplete: README\.md is missing"):
        load_model(folder)


def test_a_folder_of_an_earlier_version_has_no_card_and_loads(model: Model, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    model.save(folder)
    (folder / "README.md").unlink()
    stored = json.loads((folder / "model.json").read_text())
    del stored["sha256"]["README.md"]
    (folder / "model.json").write_text(json.dumps(stored))
    assert load_model(folder).predict(["woof"]) == [["dog"]]
