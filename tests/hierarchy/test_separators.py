"""Separators that labels show by themselves, and labels that only look as if they did."""

import random
import re
from collections import Counter
from collections.abc import Callable
from itertools import combinations, permutations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import examples
from treelabel import load_sample
from treelabel.hierarchy.separators import DEMANDS, OFFERED, SeparatorEvidence, guess_separator, offer_separator

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
    assert guess_separator(mark.join(f"emotion {number}" for number in each) for each in sets) is None


@examples(100)
@given(st.lists(st.text(st.sampled_from("ab>/|:\\ "), max_size=12), max_size=12))
def test_any_labels_can_be_asked_about(labels: list[str]) -> None:
    guess = guess_separator(labels)
    assert guess is None or guess in (*SEPARATORS,)


# What a mark must show: mark, labels that have it, and the largest shares of names with several parents, of names on
# several levels, and of first names among the paths.
EVIDENCE = [(">", 3, 1, 0.2, 0.75), ("::", 3, 1, 0.2, 0.75), ("\\", 3, 1, 0.2, 0.75), ("/", 4, 0.25, 0.05, 0.5),
            ("|", 6, 0.1, 0.02, 0.5)]  # fmt: skip


def slow_explains(separator: str, texts: list[str], evidence: tuple[str, int, float, float, float]) -> bool:
    mark, least, most_spread, most_moved, most_tops = evidence
    labels = {tuple(part.strip().casefold() for part in text.split(separator)) for text in texts}
    paths = [label for label in labels if len(label) >= 2]
    good = [path for path in paths if all(re.search(r"[^\d\s.,:%+-]", name) for name in path)]
    alone = [label[0] for label in labels if len(label) == 1]
    bad = [path for path in paths if path not in good] + [name for name in alone if mark in name]
    if len(bad) > 0.05 * len(paths) or len(good) < least:
        return False
    below, above = {name for path in good for name in path[1:]}, Counter(path[0] for path in good)
    others = [label for label in labels if not (len(label) == 1 and label[0] in above)]
    if len(good) < 0.5 * len(others) or sum(name in below for name in alone) > most_moved * len(labels):
        return False
    if len(above) > most_tops * len(good):
        return False
    if mark == "|" and max(map(len, good)) == 2 and sum(count > 1 for count in above.values()) < 2:
        return False
    names = {name for path in good for name in path}
    moved = [name for name in names if len({path.index(name) for path in good if name in path}) > 1
             or any(path.count(name) > 1 for path in good)]  # fmt: skip
    steps = {(name, path[:level]) for path in good for level, name in enumerate(path)}
    spread = [name for name, count in Counter(name for name, _ in steps).items() if count > 1]
    return len(moved) <= most_moved * len(names) and len(spread) <= most_spread * len(names)


def slow_guess(labels: list[str]) -> str | None:
    texts = list(dict.fromkeys(label.strip() for label in labels))
    if 2 * sum(" > " in text for text in texts) > len(texts):
        return " > "
    fitting = [
        separator
        for evidence in EVIDENCE
        for separator in (f" {evidence[0]} ", evidence[0])
        if sum(separator in text for text in texts) >= evidence[1] and slow_explains(separator, texts, evidence)
    ]

    def clashes(separator: str) -> int:
        tops = {text.split(separator)[0] for text in texts}
        return sum(other.strip() in top for other in fitting if other.strip() != separator.strip() for top in tops)

    return min(fitting, key=clashes, default=None)


def draw_labels(rng: random.Random) -> list[str]:
    """Draw paths of a small taxonomy with a few faults of some kinds, so that shares fall on either side of a limit."""
    separator = rng.choice(SEPARATORS)
    tops = [f"top{number}" for number in range(rng.randint(1, 8))]
    paths = [[top, f"{top} child{child}"] for top in tops for child in range(rng.choice([0, 1, 1, 2, 3, 5, 10]))]
    paths += [[*path, f"{path[1]} leaf"] for path in paths if rng.random() < rng.choice([0, 0, 0.5])]
    faults: dict[str, Callable[[int], list[str]]] = {
        "unnamed": lambda number: [tops[0], "" if number % 2 else f"{number}"],
        "alone": lambda number: [f"alone{number}"],
        "end alone": lambda number: [paths[number % len(paths)][-1]] if paths else ["alone"],
        "moved": lambda number: [f"new{number}", tops[0]],
        "spread": lambda number: [tops[number % len(tops)], "the same"],
        "top alone": lambda number: [tops[number % len(tops)]],
        "first name": lambda number: [f"first{number}", f"below{number}"],
        "own child": lambda number: [f"again{number}", f"again{number}"],
    }
    for _ in range(rng.choice([0, 1, 1, 2])):
        fault = faults[rng.choice(list(faults))]
        paths += [fault(number) for number in range(rng.randint(1, 8))]
    labels = [separator.join(path) for path in paths]
    if rng.random() < 0.3:
        labels += [f"bare{number}{separator.strip()}x" for number in range(rng.randint(1, 2))]
    return labels


@pytest.mark.slow
def test_guesses_are_those_of_the_slow_twin() -> None:
    rng = random.Random(0)
    guesses = Counter[bool]()
    for _ in range(4000):
        labels = draw_labels(rng)
        guess = guess_separator(labels)
        assert guess == slow_guess(labels), labels
        guesses[guess is None] += 1
    assert min(guesses.values()) > 500


def paths(count: int, children: int, separator: str) -> list[str]:
    """Return paths of two levels: so many first names with so many children each."""
    return [f"top{top}{separator}{top} child{child}" for top in range(count) for child in range(children)]


LIMITS = [
    # Twenty paths may have one that is none, and not two.
    ([*paths(2, 10, "/")[:19], "top0/"], "top1/"),
    # Half of the labels may be single names.
    ([*paths(2, 5, "/"), *(f"alone{number}" for number in range(10))], "alone"),
    # A name that begins paths is explained, and not one of the others.
    ([*paths(2, 2, "/"), "top0", "top1", *(f"alone{number}" for number in range(4))], "alone"),
    # Of 40 labels two may be the end of others, with "|" of 50 one.
    ([*paths(2, 19, "/"), "0 child0", "0 child1"], "0 child2"),
    ([*paths(2, 24, "|"), "0 child0", "alone"], "0 child2"),
    # First names, at most half of the paths.
    (paths(4, 2, "/"), "top4/x"),
    (paths(3, 2, "|"), "top4|x"),
    (["a::b", "c::d", "e::f", "a::g"], "h::i"),
    # Of 20 names one may be on two levels, of 5 with ">".
    ([*paths(2, 8, "/"), "top0/top1", "top1/x", "top1/y"], "top1/top0"),
    (["a>b", "a>c", "a>d", "a>e>b", "f"], "a>e>c"),
    # Of 8 names two may have several parents; of 20 with "|".
    (["a/b", "a/c", "a/d", "a/e", "f/b", "f/c", "f/g", "f/h"], "f/d"),
    ([*paths(2, 8, "|"), "top0|x", "top1|x"], "top1|0 child0"),
]


@pytest.mark.parametrize(("fitting", "one_more"), LIMITS)
def test_limits_are_met_exactly(fitting: list[str], one_more: str) -> None:
    assert guess_separator(fitting) is not None
    assert guess_separator([*fitting, one_more]) is None


@pytest.mark.parametrize(("separator", "least"), [(">", 3), ("::", 3), ("\\", 3), ("/", 4), ("|", 6)])
def test_a_mark_needs_so_many_labels(separator: str, least: int) -> None:
    labels = [f"{'ab'[number % 2]}{separator}x{number}" for number in range(least)]
    assert guess_separator(labels) == separator
    assert guess_separator(labels[1:]) is None


@pytest.mark.parametrize("mark", [":", "--"])
def test_marks_that_are_offered_must_show_what_slashes_must(mark: str) -> None:
    for fitting, one_more in LIMITS:
        if any("/" in label for label in fitting):
            labels, worse = [label.replace("/", mark) for label in fitting], one_more.replace("/", mark)
            assert (offer_separator(labels), guess_separator(labels)) == (mark, None)
            assert offer_separator([*labels, worse]) is None
    four = [f"a{mark}b", f"a{mark}c", f"d{mark}e", f"d{mark}f"]
    assert [offer_separator(four[:count]) for count in (3, 4)] == [None, mark]


@pytest.mark.parametrize("evidence", OFFERED, ids=lambda evidence: evidence.mark)
def test_what_an_offered_mark_may_not_exceed_is_a_share(evidence: SeparatorEvidence) -> None:
    assert all(0 < share <= 1 for share in (evidence.spread, evidence.moved, evidence.tops))


def test_two_first_names_with_several_labels_or_three_levels_make_a_path_of_bars() -> None:
    one = ["a|b", "a|c", "a|d", "a|e", "a|f", "g|h"]
    assert guess_separator(one) is None
    assert guess_separator([*one, "g|i"]) == "|"
    assert guess_separator([*one, "a|b|x"]) == "|"
    assert guess_separator([each.replace("|", "/") for each in one]) == "/"


def test_more_than_half_with_the_usual_separator_decide() -> None:
    assert guess_separator(["a > b", "c > d", "e"]) == " > "
    assert guess_separator(["a > b", "c > d", "e", "f"]) is None


@pytest.mark.parametrize("evidence", DEMANDS, ids=lambda evidence: evidence.mark)
def test_what_a_mark_may_not_exceed_is_a_share(evidence: SeparatorEvidence) -> None:
    assert all(0 < share <= 1 for share in (evidence.spread, evidence.moved, evidence.tops))


def test_labels_after_the_first_20_000_change_nothing() -> None:
    half = [*(f"top{number} > child{number}" for number in range(10_000)), *map(str, range(10_000))]
    assert guess_separator([*half, "a > b", "c > d"]) is None
    assert guess_separator(["a > b", *half]) == " > "
