"""Suggestions for a text: the tree, the rules and the words, without HTTP."""

from pathlib import Path

import numpy as np
import pytest

from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.models.registry import make_model
from treelabel.serve import prediction
from treelabel.serve.model_store import ServedModel
from treelabel.serve.page.suggestions import SuggestedNode, suggest
from treelabel.serve.page.word_support import words_of_steps
from treelabel.serve.schemas import StepAnswer


def nodes_of(tree: list[SuggestedNode]) -> list[SuggestedNode]:
    """List the nodes of a tree from the top down."""
    return [inner for node in tree for inner in (node, *nodes_of(node.children))]


def step(*terms: tuple[str, float], node: int = 0) -> StepAnswer:
    """Make a step of an explanation."""
    supporting, opposing = [each for each in terms if each[1] > 0], [each for each in terms if each[1] < 0]
    return {"node": node, "label": "", "probability": 1.0, "supporting": supporting, "opposing": opposing}


@pytest.mark.parametrize(
    ("terms", "words"),
    [
        ([("cat", 1.0)], ["Cat", "cat"]),
        ([("~cat|", 1.0)], ["Cat", "wildcat", "cat"]),
        ([("|cat~", 1.0)], ["Cat", "catnip", "cat"]),
        ([("~atni~", 1.0)], ["catnip"]),
        ([("wildcat cat", 1.0)], ["Cat", "wildcat", "cat"]),
        ([("cat", 1.0), ("~cat|", -2.0)], []),
        ([("wildcat", 1.0), ("catnip", 0.1)], ["wildcat"]),
    ],
)
def test_ngrams_are_put_on_the_words_that_hold_them(terms: list[tuple[str, float]], words: list[str]) -> None:
    text = "Cat, wildcat; catnip (cat)"
    segments, _ = words_of_steps(text, [step(*terms)], np.array([1]))
    assert [segment.text for segment in segments if segment.word is not None] == words
    assert "".join(segment.text for segment in segments) == text


def test_a_word_has_the_depth_of_the_step_that_it_supports_most() -> None:
    steps = [step(("red", 1.0), ("wine", 0.5)), step(("wine", 0.9), node=1)]
    segments, found = words_of_steps("red wine", steps, np.array([1, 2]))
    assert [(each.text, each.depth) for each in segments if each.word is not None] == [("red", 1), ("wine", 2)]
    assert found[0].supporting == ["red", "wine"]
    assert (found[1].supporting, found[1].numbers) == (["wine"], [1])


def test_scripts_without_blanks_have_their_words_marked() -> None:
    segments, _ = words_of_steps("T恤衫", [step(("恤", 1.0))], np.array([1]))
    assert [each.text for each in segments if each.word is not None] == ["T恤衫"]


def test_scores_of_the_tree_are_those_of_the_model_and_rules_share_them(nouns: Path) -> None:
    served, text = ServedModel.load("nouns", nouns), "a large wild cat that lives in Africa"
    made = suggest(served, text, "threshold@0.3")
    scores = served.model.score([text]).dense()[0]
    shown = nodes_of(made.tree)
    assert [node.p for node in shown] == pytest.approx(scores[[node.node for node in shown]].tolist())
    likeliest = np.argsort(-scores)[:5].tolist()
    assert {*likeliest} <= {node.node for node in shown}
    for outcome in made.outcomes:
        assert outcome.nodes <= {node.node for node in shown}
    chosen = made.outcomes[made.current]
    assert chosen.rule == "threshold@0.3"
    assert chosen.nodes == set(np.flatnonzero(scores >= 0.3).tolist())
    for node in shown:
        assert [child.p for child in node.children] == sorted((child.p for child in node.children), reverse=True)


def test_of_very_many_labels_the_likeliest_are_enough(nouns: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served = ServedModel.load("nouns", nouns)
    whole = suggest(served, "a red wine")
    monkeypatch.setattr(prediction, "MANY_NODES", 10)
    monkeypatch.setattr(prediction, "TOP_SCORES", 40)
    part = suggest(served, "a red wine")
    assert [node.node for node in nodes_of(part.tree)] == [node.node for node in nodes_of(whole.tree)]


def test_a_node_with_several_parents_is_shown_once(tmp_path: Path) -> None:
    h = Hierarchy.from_edges([("a", "c"), ("b", "c"), ("a", "d"), ("b", "e")])
    make_model("most_frequent", hierarchy=h).fit(["x"] * 30, ["c", "d", "e"] * 10).save(tmp_path / "dag")
    made = suggest(ServedModel.load("dag", tmp_path / "dag"), "x")
    assert sorted(node.label for node in nodes_of(made.tree)) == ["a", "b", "c", "d", "e"]


def test_a_blank_text_has_no_label(nouns: Path) -> None:
    made = suggest(ServedModel.load("nouns", nouns), "   ")
    assert all(not outcome.ends for outcome in made.outcomes)
