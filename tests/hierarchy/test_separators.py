"""Separators that labels show by themselves, and labels that only look as if they did."""

from itertools import combinations, permutations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import examples
from treelabel import load_sample
from treelabel.hierarchy.separators import guess_separator

SEPARATORS = [" > ", ">", " / ", "/", " | ", "|", " :: ", "::", " \\ ", "\\"]
SHOP = [
    ["food", "dairy", "milk"],
    ["food", "dairy", "cheese"],
    ["food", "meat"],
    ["home", "garden", "tools"],
    ["home", "garden", "plants"],
    ["home", "kitchen"],
    ["toys"],
]


@pytest.mark.parametrize("separator", SEPARATORS)
def test_paths_show_their_separator(separator: str) -> None:
    assert guess_separator(separator.join(path) for path in SHOP) == separator


@pytest.mark.parametrize("separator", SEPARATORS)
def test_so_do_those_of_a_real_hierarchy(separator: str) -> None:
    h = load_sample().hierarchy
    labels = h.paths(h.leaves, separator)
    # Its names hold none of the separators.
    assert guess_separator(labels) == guess_separator(labels[:60]) == separator
    assert guess_separator(h.names) is None


def test_spellings_of_a_name_are_no_evidence_against_paths() -> None:
    written = ["/".join(path) for path in SHOP]
    warts = [label.upper() for label in written[:3]] + [label.replace("/", " /", 1) for label in written[2:5]]
    assert guess_separator(written + warts) == "/"


def test_names_may_hold_another_mark_or_the_same_without_spaces() -> None:
    assert guess_separator(["it / TCP/IP", "it / A/B tests", "it", "food / fish", "food / meat"]) == " / "
    assert (
        guess_separator(["CS|CS/learning", "CS|CS/graphs", "EE|EE/power", "EE|EE/waves", "ME|ME/heat", "ME|ME/x"])
        == "|"
    )
    assert guess_separator(["A >B", "A > C", "A> D", "E > F"]) == ">"


NOT_PATHS = {
    "names with slashes": ["TCP/IP", "A/B testing", "R&D / ops", "networks", "input/output", "and/or"],
    "a few among many": [*map(str, range(100)), "food/dairy", "food/meat", "home/garden", "home/kitchen"],
    "dates": [f"{day}/{month}/2024" for day, month in product(range(1, 6), range(1, 6))],
    "dates with dots and times": [f"2024.{month}.1 | 12:0{month}" for month in range(1, 9)],
    "addresses": [f"https://example.org/{page}" for page in "abcdef"],
    "addresses without a scheme, one each": [f"{site}.org/page" for site in "abcdef"],
    "absolute paths": [f"/usr/{name}" for name in "abcdef"],
    "all pairs of names": ["|".join(pair) for pair in permutations(["joy", "love", "anger", "fear"], 2)],
    "sets in alphabetical order": ["|".join(pair) for pair in combinations(["anger", "fear", "joy", "love"], 2)],
    "sets and their names alone": ["joy", "love", "joy|love", "anger|joy", "anger", "fear|joy", "fear|love", "fear"],
    "combinations of two kinds": ["/".join(pair) for pair in product(["men", "women", "kids"], ["shoes", "shirts"])],
    "different first names": ["a/b", "c/d", "e/f", "g/h", "i/j"],
    "too few": ["a/b", "a/c"],
    "empty names": ["a//b", "a//c", "b//d", "b//e", "a/", "/b"],
    "nothing": [],
    "plain": ["a", "b", "c"],
    "one comparison": ["price > 10", "cheap", "free"],
}


@pytest.mark.parametrize("labels", NOT_PATHS.values(), ids=NOT_PATHS)
def test_other_labels_show_none(labels: list[str]) -> None:
    assert guess_separator(labels) is None


@examples(100)
@given(
    st.sampled_from("|/"),
    st.lists(st.sets(st.integers(0, 7), min_size=1, max_size=3), min_size=40, max_size=80, unique_by=frozenset),
)
def test_sets_of_a_few_names_are_no_paths(mark: str, sets: list[set[int]]) -> None:
    assert guess_separator(mark.join(f"emotion {at}" for at in found) for found in sets) is None


@examples(100)
@given(st.lists(st.text(st.sampled_from("ab>/|:\\ "), max_size=12), max_size=12))
def test_any_labels_can_be_asked_about(labels: list[str]) -> None:
    found = guess_separator(labels)
    assert found is None or found in (*SEPARATORS,)
