"""Labels by their names: the longest match, names never seen in training, and what matches are worth."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treelabel import Hierarchy, load_model, make_model
from treelabel.models.check import check_model
from treelabel.models.lexical import Lexical, count_of, surface_forms
from treelabel.text.phrases import Phrases

WORDS = st.sampled_from(["solar", "cell", "cells", "wind", "a", "box", "boxes", "glass", "City", "cities"])


def singular(word: str) -> str:
    return {"cells": "cell", "boxes": "box", "City": "city", "cities": "city"}.get(word, word)


@given(st.lists(st.lists(WORDS, min_size=1, max_size=3), min_size=1, max_size=8), st.lists(WORDS, max_size=20))
def test_phrases_are_those_of_the_slow_twin(names: list[list[str]], text: list[str]) -> None:
    phrases, numbers = Phrases.of([" ".join(name) for name in names])
    plain, said = [tuple(map(singular, name)) for name in names], [singular(word) for word in text]
    found: dict[int, int] = {}
    covered = 0
    for at in range(len(said)):
        ends = [at + len(name) for name in plain if tuple(said[at : at + len(name)]) == name]
        if ends and max(ends) > covered:
            covered = max(ends)
            number = int(numbers[plain.index(tuple(said[at:covered]))])
            found[number] = found.get(number, 0) + 1
    matched = phrases.find([" ".join(text)])
    assert dict(zip(matched.phrases.tolist(), matched.counts.tolist(), strict=True)) == found
    assert matched.words.tolist() == [len(text)]


def test_the_longest_name_counts_and_names_within_it_do_not() -> None:
    phrases, _ = Phrases.of(["network", "neural network", "network security"])
    assert phrases.find(["Neural networks, neural network security"]).phrases.tolist() == [1, 2]
    assert phrases.find(["A network"]).phrases.tolist() == [0]


def test_where_a_name_stands_is_known() -> None:
    phrases, _ = Phrases.of(["cat", "dog"])
    found = phrases.find(["On a cat\nand the dog, dogs and cats", "", "cat"])
    assert found.sizes.tolist() == [2, 0, 1]
    assert found.counts.tolist() == [2, 2, 1]
    assert found.first.tolist() == [2, 5, 0]
    assert found.in_title.tolist() == [1, 0, 1]


def test_names_have_several_forms() -> None:
    assert surface_forms("C++ (programming language)") == ["C++ (programming language)", "C++"]
    assert surface_forms("51000000_HealthCare") == ["51000000 HealthCare", "Health Care"]
    assert surface_forms("") == []


def test_numbers_are_counted() -> None:
    assert count_of(np.array([4, 1, 4, 4]), np.array([4, 2, 1])).tolist() == [3, 0, 1]


def greens(count: int, seed: int = 0) -> tuple[list[str], list[list[str]]]:
    """Texts that name several things, of which those in the first line are their labels."""
    rng = np.random.default_rng(seed)
    things = ["solar cells", "wind turbines", "fuel", "river"]
    texts, labels = [], []
    for _ in range(count):
        one, other = rng.choice(len(things), 2, replace=False)
        texts.append(f"On {things[one]}\nwith some {things[other]} and {rng.integers(100)} more")
        labels.append([["Solar cell", "Wind turbine", "Fuels", "River"][one]])
    return texts, labels


H = Hierarchy.flat(["Solar cell", "Wind turbine", "Fuels", "River", "Heat pump", "Tide mill (energy)"])


def test_a_label_that_training_never_saw_is_found_by_its_names() -> None:
    texts, labels = greens(200)
    # Several labels each, as in a library.
    labels[0] = ["Solar cell", "Fuels"]
    model = make_model("lexical", hierarchy=H, descriptions={"Heat pump": "thermal pump; reversed chiller"})
    model.fit(texts, labels)
    for text, label in (
        ("On heat pumps\nand more", "Heat pump"),
        ("The reversed chillers of old\nand more", "Heat pump"),
        ("Tide mills\nat sea", "Tide mill (energy)"),
    ):
        p = model.score([text]).dense()[0]
        assert p[H.names.index(label)] == p.max() > 0.1


def test_matches_in_the_first_line_are_learned_to_count_more() -> None:
    texts, labels = greens(300)
    labels[0] = ["Solar cell", "Fuels"]
    model = make_model("lexical", hierarchy=H).fit(texts, labels)
    new, true = greens(100, seed=1)
    p = model.score(new).dense()
    names = [H.names[node] for node in p.argmax(axis=1)]
    assert np.mean([[name] == label for name, label in zip(names, true, strict=True)]) > 0.95
    assert p.sum() == pytest.approx(100, rel=0.1)


def test_a_document_is_judged_by_what_others_showed() -> None:
    h = Hierarchy.flat(["cat", "dog"])
    texts = ["a cat", "the cat", "cat", "a dog"]
    labels = [["cat"], [], ["cat", "dog"], ["dog"]]
    model = Lexical(h)
    model.fit(texts, labels)
    found = model.phrases_.find(texts)
    from treelabel.calibration.candidates import targets_of
    from treelabel.models.model_inputs import training_of

    train = training_of(texts, labels, h)
    _, (df, hits, counts) = model._left_out(found, targets_of(train.hierarchy, train.labels, "multi_path"), None)
    assert (df.tolist(), hits.tolist(), counts.tolist()) == ([1, 1, 1, 1], [1, 0, 1, 1], [1, 0, 1, 1])
    _, (df, hits, counts) = model._left_out(
        found, targets_of(train.hierarchy, train.labels, "multi_path"), np.array([0, 1, 0, 0])
    )
    assert df.tolist() == [2, 1, 2, 1]
    assert hits.tolist() == [2, 0, 2, 1]
    # The group has two documents that are about dogs, one of which names none.
    assert counts.tolist() == [2, 0, 2, 2]


@pytest.mark.slow
def test_it_stands_every_check() -> None:
    assert check_model(lambda: make_model("lexical")) == ()


def test_a_saved_model_finds_the_same(tmp_path: Path) -> None:
    texts, labels = greens(60)
    model = make_model("lexical", hierarchy=H, descriptions={"River": "stream | brook"}).fit(texts, labels)
    model.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    asked = [*texts, "By the brooks"]
    assert np.array_equal(loaded.score(asked).dense(), model.score(asked).dense())
