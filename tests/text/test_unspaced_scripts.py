"""Scripts without blanks between words: Chinese, Japanese, Thai and their like are divided by characters."""

import unicodedata
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treelabel import Dataset, Hierarchy, decide, make_model
from treelabel.text import NgramShape
from treelabel.text.ngram_names import named_ngrams
from treelabel.text.ngrams import UNSPACED, character_table, count_ngrams
from treelabel.text.phrases import Phrases

SHAPES = (
    NgramShape(),
    NgramShape((1, 2)),
    NgramShape((2, 3)),
    NgramShape((1, 2), (4, 4), weights=(1.0, 0.5, 1.0)),
    NgramShape(None, (1, 3)),
)
THAI_MARKS = ("", "\u0e34", "\u0e35\u0e48", "\u0e31")
ALPHABETS = {
    "chinese": [chr(code) for code in range(0x4E00, 0x4E00 + 300)],
    "japanese": [chr(code) for code in (*range(0x3041, 0x3094), *range(0x5200, 0x5240))],
    "thai": [chr(letter) + mark for letter in range(0xE01, 0xE2F) for mark in THAI_MARKS],
}
LEAVES = 8
# The number of n-grams of a text, and the sum of their buckets, when every letter was one of a script with blanks.
WAS = (42, 23948764)
FAST: dict[str, dict[str, Any]] = {
    "linear": {},
    "svm": {},
    "bag": {},
    "memory": {},
    "lexical": {},
    "extreme": {},
    "description_match": {},
    "zero_shot": {},
    "svm_descriptions": {},
}


def write_texts(script: str, count: int, seed: int) -> tuple[list[str], list[str], dict[str, str]]:
    """Write texts of words in random order without blanks: the name and two words of a label, and five of any text.

    Labels and fillers are written with the same characters.
    """
    rng = np.random.default_rng(7)

    def word() -> str:
        return "".join(rng.choice(ALPHABETS[script], rng.integers(2, 4)))

    words = [[word() for _ in range(6)] for _ in range(LEAVES)]
    fillers = [word() for _ in range(200)]
    rng = np.random.default_rng(seed)
    texts, labels = [], []
    for leaf in rng.integers(0, LEAVES, count).tolist():
        drawn = [words[leaf][0], *rng.choice(words[leaf][1:], 2), *rng.choice(fillers, 5)]
        texts.append("".join(rng.permutation(drawn)))
        labels.append(words[leaf][0])
    return texts, labels, {listed[0]: "".join(listed[:2]) for listed in words}


@pytest.mark.parametrize("script", ALPHABETS)
@pytest.mark.parametrize("model", FAST)
def test_fast_models_learn_texts_without_blanks(model: str, script: str) -> None:
    texts, labels, descriptions = write_texts(script, 300, 0)
    settings: dict[str, Any] = dict(FAST[model])
    if model in ("zero_shot", "svm_descriptions"):
        settings["descriptions"] = descriptions
    h = Hierarchy.from_paths([f"{'AB'[at % 2]} > {name}" for at, name in enumerate(descriptions)])
    fitted = make_model(model, **settings).fit(Dataset.of(texts, labels, h))
    others, truth, _ = write_texts(script, 100, 1)
    found = decide(fitted.score(others), "best_leaf").names()
    right = np.mean([label in names for label, names in zip(truth, found, strict=True)])
    # By chance it is 1/8.
    assert right > 0.75


def test_runs_are_divided_into_characters_and_end_where_another_script_begins() -> None:
    assert list(named_ngrams("iPhone手机壳, new", NgramShape((1, 2)))) == [
        "iphone",
        "手",
        "手机",
        "手机壳",
        "机",
        "机壳",
        "壳",
        "new",
    ]
    # A vowel sign is no end of a run; a digit is no part of one.
    assert list(named_ngrams("ที2", NgramShape())) == ["ท", "ที", "ี", "2"]
    # Korean has blanks.
    assert list(named_ngrams("한국어 책", NgramShape((1, 2)))) == ["한국어", "책", "한국어 책"]
    assert list(named_ngrams("𠀀𠀁", NgramShape())) == ["𠀀", "𠀀𠀁", "𠀁"]


@given(st.text(st.sampled_from("abX_1é한 ,手机壳々〇ーあカกที่๑𠀀😀\U000e0041བོདြ"), max_size=40))
def test_compiled_loops_count_the_ngrams_that_are_named(text: str) -> None:
    for shape in SHAPES:
        assert set(count_ngrams([text], shape).buckets.tolist()) == set(named_ngrams(text, shape).values())


def test_words_of_scripts_with_blanks_are_what_they_were() -> None:
    """Buckets as they were before runs of other scripts were divided."""
    counted = count_ngrams(["Größe 10 über_all한국, Ωmega наука عربى हिन्दी"], NgramShape((1, 2), (4, 4), 1 << 20))
    assert int(counted.sizes[0]) == WAS[0]
    assert int(counted.buckets.astype(np.int64).sum()) == WAS[1]


def test_phrases_are_found_within_runs() -> None:
    phrases, numbers = Phrases.of(["手机壳", "手机", "phone case"])
    assert numbers.tolist() == [0, 1, 2]
    assert phrases.find(["买手机壳送phone cases", "新手机"]).phrases.tolist() == [0, 2, 1]


# How the names of characters begin in Unicode, of scripts without blanks.
SCRIPTS = ("THAI ", "LAO ", "TIBETAN ", "MYANMAR ", "KHMER ", "TAI ", "NEW TAI LUE ", "BALINESE ", "HIRAGANA ",
           "KATAKANA ", "KATAKANA-HIRAGANA ", "HALFWIDTH KATAKANA", "HENTAIGANA ", "VERTICAL KANA ", "MASU MARK",
           "BOPOMOFO ", "CJK ", "HANGZHOU ", "IDEOGRAPHIC ", "VERTICAL IDEOGRAPHIC ", "JAVANESE ")  # fmt: skip


def test_scripts_without_blanks_are_those_of_unicode() -> None:
    table = character_table()
    for code in [*range(0x10000), *range(0x1AFF0, 0x1B300)]:
        name, category = unicodedata.name(chr(code), ""), unicodedata.category(chr(code))
        if name.startswith(SCRIPTS) and (category[0] in "LM" or category == "Nl"):
            assert table[code] == code + UNSPACED, name
        elif category[0] == "L":
            assert table[code] < UNSPACED, name
        elif category[0] == "M" and code < 0xE00:
            assert table[code] == 0, name
    # The planes of ideographs, to their ends.
    for code in (0x20000, 0x2FFFF, 0x30000, 0x3FFFF):
        assert table[code] == code + UNSPACED
    assert len(table) == 0x40000
