"""Findings about data: hand-made files with every wart, what is told about each, and what is mended."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers import put, read_text
from treelabel import Dataset, Hierarchy, TreelabelError, read, read_together, split
from treelabel.core.strings import Strings, plain_text
from treelabel.data import without_texts
from treelabel.data.checks import FINDINGS, Finding, find_problems
from treelabel.data.checks.repair import repair
from treelabel.data.checks.spelling import name_key, spelling_groups, usual_spellings
from treelabel.data.equal_texts import text_codes, units
from treelabel.data.splits import folds


def found(data: Dataset, kind: str, train: Dataset | None = None) -> Finding | None:
    """Return the finding of a kind, if there is one."""
    return next((finding for finding in find_problems(data, train) if finding.kind == kind), None)


def told(data: Dataset, kind: str, train: Dataset | None = None) -> Finding:
    finding = found(data, kind, train)
    assert finding is not None
    return finding


def lines(header: str, rows: Sequence[str]) -> str:
    return "\n".join([header, *rows]) + "\n"


# Columns that look like levels

TREE = {"Food": {"Tea": ["Green", "Black"], "Cake": ["Carrot", "Other"]}, "Garden": {"Tool": ["Rake", "Other"]}}
LEVELS = [
    f"{dept},{name},{sub},{name} {sub} {number},{number}"
    for dept, classes in TREE.items()
    for name, subs in classes.items()
    for sub in subs
    for number in range(8)
]


def test_columns_that_look_like_levels_are_told_with_the_option_that_reads_them(tmp_path: Path) -> None:
    file = put(tmp_path, "shop.csv", lines("dept,class,subclass,text,price", LEVELS))
    flat = read(file)
    assert flat.hierarchy.max_depth == 1
    finding = told(flat, "level_columns")
    assert finding.is_serious
    assert "dept (2), class (3), subclass (5)" in finding.message
    assert finding.remedy == "--labels dept,class,subclass"
    assert finding.examples == ("line 2: 'Food' > 'Tea' > 'Green'",)
    whole = read(file, labels="dept,class,subclass")
    assert whole.hierarchy.level_sizes == [2, 3, 6]
    assert found(whole, "level_columns") is None


def test_columns_that_say_nothing_of_each_other_are_no_levels(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = [f"text {n},{'abcdef'[rng.integers(6)]},{'xyz'[rng.integers(3)]},en,{n}" for n in range(200)]
    data = read_text(tmp_path, "mixed.csv", lines("text,label,colour,language,number", rows))
    assert found(data, "level_columns") is None


def test_a_column_may_have_a_comma_in_its_name(tmp_path: Path) -> None:
    data = read_text(tmp_path, "odd.csv", 'text,"a,b",a,b\nx,one,two,three\n', labels="a,b")
    assert data.names() == [["one"]]
    with pytest.raises(TreelabelError, match="no column 'c'"):
        read(tmp_path / "odd.csv", labels="a,c")


# Cells that look like several labels


@pytest.mark.parametrize("mark", ["|", ";", ","])
def test_cells_with_several_labels_are_told_with_the_option_that_splits_them(tmp_path: Path, mark: str) -> None:
    cells = ["joy", "love", "anger", f"joy{mark}love", f"love{mark} anger", f"anger{mark}joy"]
    file = put(tmp_path, "feelings.csv", lines("text,label", [f't{at},"{cell}"' for at, cell in enumerate(cells)]))
    finding = told(read(file), "several_labels")
    assert finding.count == 3
    assert "6 labels would be 3" in finding.message
    assert finding.remedy == f"--label-sep {mark!r}"
    assert finding.examples[0].startswith("line 5: ")
    data = read(file, label_sep=mark)
    assert sorted(data.hierarchy.names) == ["anger", "joy", "love"]
    assert found(data, "several_labels") is None


@pytest.mark.parametrize(
    "labels",
    [
        ["A/x", "A/y", "B/x", "B/y", "C/x", "C/y"],  # a grid of paths
        ["Health, Beauty", "Arts, Crafts", "Toys"],
        ["A|B", "A|C", "A"],
        ["joy", "love"],
    ],
)
def test_paths_and_names_with_commas_are_not_several_labels(tmp_path: Path, labels: list[str]) -> None:
    rows = [f't{at},"{label}"' for at, label in enumerate(labels)]
    assert found(read_text(tmp_path, "t.csv", lines("text,label", rows), sep=None), "several_labels") is None


# Spellings

SPELLED = ["Food & Drink > Tea"] * 3 + [
    "food &amp; drink > tea",
    "FOOD  & DRINK > Cake",
    "Caf\u00e9 > Bar",
    "Cafe\u0301 > Bar",
]


def spelled(tmp_path: Path) -> Dataset:
    rows = [f"t{at},{label}" for at, label in enumerate(SPELLED)]
    return read_text(tmp_path, "t.csv", lines("text,label", rows))


def test_spellings_of_one_label_are_counted_and_united(tmp_path: Path) -> None:
    data = spelled(tmp_path)
    finding = told(data, "spellings")
    assert (finding.count, finding.is_serious, finding.is_fixed) == (5, True, True)
    assert "10 labels are spellings of 5 (on the first level, 5 for 2)" in finding.message
    assert "'Food & Drink' (3), 'food &amp; drink' (1)" in finding.examples[0]
    mended, done, *_ = repair(data)
    assert mended.hierarchy.paths() == [
        "Food & Drink",
        "Caf\u00e9",
        "Food & Drink > Tea",
        "Food & Drink > Cake",
        "Caf\u00e9 > Bar",
    ]
    assert done == ["gave 4 labels of 3 documents another spelling: 10 labels are 5 now"]
    assert found(mended, "spellings") is None
    assert [path for [path] in mended.paths()][3:5] == ["Food & Drink > Tea", "Food & Drink > Cake"]


def test_a_taxonomy_that_was_given_is_not_respelled(tmp_path: Path) -> None:
    put(tmp_path, "taxonomy.tsv", "Food\tTea\nfood\tCake\n")
    data = read_text(tmp_path, "t.csv", "text,label\na,Tea\nb,Cake\n")
    finding = told(data, "spellings")
    assert not finding.is_fixed
    assert "taxonomy" in finding.remedy
    assert repair(data)[0].hierarchy == data.hierarchy


def test_names_that_differ_in_punctuation_are_told_but_not_united(tmp_path: Path) -> None:
    data = read_text(tmp_path, "t.csv", "text,label\na,Home & Garden\nb,home-garden\nc,Home and Garden\nd,Toys\n")
    finding = told(data, "similar_names")
    assert finding.count == 3
    assert not finding.is_fixed
    assert len(repair(data)[0].hierarchy) == 4


def test_a_path_with_another_separator_is_told(tmp_path: Path) -> None:
    rows = ["a,A > B", "b,A > C", "c,A > D", "d,a>b", "e,A/C"]
    finding = told(read_text(tmp_path, "t.csv", lines("text,label", rows)), "other_separators")
    assert finding.count == 2
    assert finding.examples == ("'a>b'", "'A/C'")
    # Few paths among names are read as names, too.
    flat = read_text(tmp_path, "u.csv", lines("text,label", ["a,A > B", "b,C", "c,D", "d,A / B"]))
    assert told(flat, "other_separators").examples == ("'A > B'", "'A / B'")


@given(st.text(max_size=20))
def test_the_key_of_a_name_is_that_of_its_variants(name: str) -> None:
    assert name_key(name_key(name)) == name_key(name)
    assert name_key(f"  {name} ") == name_key(name)


@given(st.lists(st.sampled_from(["A", "a", " a", "B", "b&amp;c", "B & C", "b&c"]), min_size=1, max_size=7, unique=True))
def test_groups_of_a_flat_hierarchy_are_equal_keys(names: list[str]) -> None:
    groups = spelling_groups(Hierarchy.flat(names)).tolist()
    for one, first in zip(names, groups, strict=True):
        assert [first == other for other in groups] == [name_key(one) == name_key(other) for other in names]
    assert len(usual_spellings(names, np.array(groups), np.ones(len(names), np.int64))) == len(set(groups))


# Parents


def test_one_name_under_several_parents_is_told_with_how_to_keep_them_apart(tmp_path: Path) -> None:
    put(tmp_path, "taxonomy.tsv", "A\tOther\nB\tOther\nA\tX\n")
    finding = told(read_text(tmp_path, "t.csv", "text,label\na,Other\nb,X\n"), "several_parents")
    assert finding.examples == ("'Other' under 'A', 'B'",)
    assert "--unfold" in finding.remedy


def test_names_that_paths_keep_apart_are_only_noted(tmp_path: Path) -> None:
    data = read_text(tmp_path, "t.csv", "text,label\na,A > Other\nb,B > Other\n")
    finding = told(data, "several_parents")
    assert (finding.count, finding.is_serious) == (1, False)


# Texts

CAT = Hierarchy.flat(["x", "y"])


def test_empty_texts_copies_and_contradictions_are_told_and_the_safe_ones_mended(tmp_path: Path) -> None:
    rows = ["one,x", "ONE,x", '" one ",y', ",x", "two,y", "  ,y"]
    data = read_text(tmp_path, "t.csv", lines("text,label", rows))
    assert told(data, "empty_texts").message == "2 of 6 documents have no text"
    assert told(data, "empty_texts").examples[0] == "line 5: 'x'"
    assert told(data, "copies").message == "1 of 6 documents repeats the text and the labels of an earlier one"
    finding = told(data, "contradictions")
    assert finding.is_serious
    assert finding.message == "1 text has different labels in different rows (3 documents)"
    assert finding.examples == ("line 2: 'x', but line 4: 'y' for 'one'",)
    mended, done, *_ = repair(data)
    assert list(mended.texts) == ["one", " one ", "two"]
    assert done == ["left out 2 documents without text", "left out 1 copy of a text with the same labels"]
    assert repair(mended)[1] == []


def test_nothing_is_left_of_a_file_without_texts() -> None:
    with pytest.raises(TreelabelError, match="no document has a text"):
        repair(Dataset.of(["", " "], ["x", "y"], CAT))


def test_equal_sets_of_labels_are_equal_however_they_were_given() -> None:
    h = Hierarchy.from_paths(["A > B", "C"])
    data = Dataset.of(["t", "T"], [["B", "C"], ["C", "A", "B"]], h)
    assert found(data, "contradictions") is None
    assert told(data, "copies").count == 1


def test_texts_in_training_and_test_are_told(tmp_path: Path) -> None:
    train = put(tmp_path, "train.csv", "text,label\na b,x\nc,y\nd,x\n")
    test = put(tmp_path, "test.csv", "text,label\nnew,x\nA  b,y\nC,y\n")
    data, training = read_together([test, train])
    finding = told(data, "shared_texts", training)
    assert finding.is_serious
    assert finding.message.startswith("2 of 3 texts are in the training data, too")
    assert finding.examples[0] == "line 3 is line 2 of training: 'A b' ('y', in training 'x')"
    assert "--without" in finding.remedy
    assert list(without_texts(data, training.texts).texts) == ["new"]
    with pytest.raises(TreelabelError, match="no document is left"):
        without_texts(data, data.texts)


def test_ids_rare_and_unseen_labels_and_documents_without_labels_are_told(tmp_path: Path) -> None:
    train = put(tmp_path, "train.csv", lines("text,label", [*(f"t{n},x" for n in range(6)), "u,y"]))
    test = put(tmp_path, "test.csv", "id,text,label\n1,a,x\n1,b,z\n2,c,\n")
    data, training = read_together([test, train])
    assert told(data, "equal_ids").examples == ("'1' stands on 2 documents",)
    assert told(data, "unlabelled").count == 1
    assert told(data, "unseen_labels", training).examples == ("'z'",)
    rare = told(data, "rare_labels", training)
    assert rare.message == "1 of 2 labels has fewer than 5 texts in the training data (1 with a single one)"


def test_clean_data_have_no_findings_and_serious_ones_come_first() -> None:
    texts = [f"text {number}" for number in range(10)]
    assert find_problems(Dataset.of(texts, ["x", "y"] * 5, CAT)) == []
    mixed = find_problems(Dataset.of(["a", "A", "", "b"], ["x", "y", "x", "y"], CAT))
    assert [finding.is_serious for finding in mixed] == sorted((f.is_serious for f in mixed), reverse=True)
    assert all(finding.kind in FINDINGS for finding in mixed)


# The same text


@given(st.lists(st.sampled_from(["a", "A", " a ", "b", "", "  ", "a b", "A\nB"]), max_size=12))
def test_codes_are_equal_where_plain_texts_are(texts: list[str]) -> None:
    codes = text_codes(Strings.of(texts))[0].tolist()
    for one, first in zip(texts, codes, strict=True):
        assert (first == -1) == (plain_text(one) == "")
        assert [first == other for other in codes] == [plain_text(one) == plain_text(other) for other in texts]


def slow_units(codes: list[int], groups: list[int] | None) -> list[int]:
    """Unite documents until nothing changes."""
    unit = list(range(len(codes)))
    for _ in codes:
        for one in range(len(codes)):
            for two in range(len(codes)):
                same = codes[one] == codes[two] >= 0 or (groups is not None and groups[one] == groups[two])
                if same:
                    unit[one] = unit[two] = min(unit[one], unit[two])
    numbers = {first: at for at, first in enumerate(dict.fromkeys(unit))}
    return [numbers[each] for each in unit]


@given(st.lists(st.tuples(st.integers(-1, 4), st.integers(0, 5)), min_size=1, max_size=10), st.booleans())
def test_units_hang_together_by_text_and_group(pairs: list[tuple[int, int]], grouped: bool) -> None:
    codes, groups = (list(each) for each in zip(*pairs, strict=True))
    given_groups = np.array(groups) if grouped else None
    assert units(np.array(codes), given_groups).tolist() == slow_units(codes, groups if grouped else None)


# Splits keep the same text together


def copies(count: int = 40) -> Dataset:
    """Return documents each of which stands in the data three times, in other letters."""
    texts = [f"{text} {number}" for number in range(count) for text in ("text", "TEXT", " text ")]
    return Dataset.of(texts, ["x", "x", "y"] * count, CAT)


@pytest.mark.parametrize("by", ["random", "stratified"])
def test_a_split_keeps_the_same_text_together_unless_told_otherwise(by: str) -> None:
    data = copies()
    parts = [{plain_text(text) for text in part.texts} for part in split(data, {"a": 0.7, "b": 0.3}, by).values()]  # type: ignore[arg-type]
    assert not parts[0] & parts[1]
    assert [len(part) for part in parts] == [28, 12]
    loose = split(data, {"a": 0.7, "b": 0.3}, by, keep_duplicates=False)  # type: ignore[arg-type]
    assert {plain_text(text) for text in loose["a"].texts} & {plain_text(text) for text in loose["b"].texts}


def test_a_split_keeps_groups_and_the_same_text_together() -> None:
    data = copies(20)
    grouped = Dataset.of(data.texts, data.names(), CAT, groups=[str(row // 6) for row in range(len(data))])
    for part in split(grouped, {"a": 0.5, "b": 0.5}).values():
        other = set(range(len(data))) - {int(name) for name in part.ids}
        assert not {row // 6 for row in other} & {int(name) // 6 for name in part.ids}


def test_folds_keep_the_same_text_together_if_asked() -> None:
    data = copies(10)
    for fold in folds(data, 3, keep_duplicates=True):
        assert len({int(row) // 3 for row in fold}) * 3 == len(fold)


def test_documents_know_their_lines(tmp_path: Path) -> None:
    data = read_text(tmp_path, "t.csv", 'text,label\n"a\nb",x\nc,y\n')
    assert data.lines is not None
    assert data.lines.tolist() == [2, 4]
    assert np.array_equal(data[1:].lines, [4])  # type: ignore[arg-type]
    with pytest.raises(TreelabelError, match="different lengths"):
        replace(data, lines=np.array([1]))


def test_levels_are_known_by_their_names_where_classes_stand_in_several_departments(tmp_path: Path) -> None:
    rows = [f"{d},{c},{c} {k},a text {d}{c}{k}{n}" for d in ("M", "W") for c in ("X", "Y") for k in "ab" for n in "123"]
    data = read(put(tmp_path, "shop.csv", lines("dept,class,subclass,text", rows)))
    assert told(data, "level_columns").remedy == "--labels dept,class,subclass"


def test_a_label_whose_parts_are_labels_is_several(tmp_path: Path) -> None:
    rows = [f"a text {n},{label}" for n in range(4) for label in ("joy|love", "love", "anger|fear", "joy")]
    data = read(put(tmp_path, "joy.csv", lines("text,label", rows)))
    assert told(data, "several_labels").remedy == "--label-sep '|'"


@pytest.mark.parametrize(
    "texts",
    [
        [f"{1000.5 + number}" for number in range(40)],
        [f"2024-01-{1 + number % 28:02d} 10:{number:02d}" for number in range(40)],
        [f"SKU-{number:06d}" for number in range(40)],
    ],
)
def test_numbers_dates_and_ids_are_no_texts(tmp_path: Path, texts: list[str]) -> None:
    lines = [f"{text},{'AB'[number % 2]}" for number, text in enumerate(texts)]
    (tmp_path / "f.csv").write_text("\n".join(["text,label", *lines]))
    found = {finding.kind: finding for finding in find_problems(read(tmp_path / "f.csv", text="text", labels="label"))}
    assert found["numeric_texts"].is_serious
    assert found["numeric_texts"].count == 40
    assert "line 2" in found["numeric_texts"].examples[0]


def test_texts_without_common_words_and_a_single_label_are_told() -> None:
    h = Hierarchy.flat(["x", "y"])
    labels = ["xy"[number % 2] for number in range(40)]
    unlike = {finding.kind: finding for finding in find_problems(Dataset.of([f"q{n}z" for n in range(40)], labels, h))}
    assert unlike["unshared_words"].count == 40
    assert unlike["unshared_words"].is_serious
    # Clauses of Chinese have characters in common.
    chinese = [f"{chr(0x4E00 + n % 7)}{chr(0x4E10 + n % 5)}{chr(0x4F00 + n)}" for n in range(40)]
    for texts, answers in ((chinese, labels), ([f"a word {n}" for n in range(40)], ["x"] * 40)):
        kinds = {finding.kind for finding in find_problems(Dataset.of(texts, answers, h))}
        assert "unshared_words" not in kinds
        assert "numeric_texts" not in kinds
        assert ("one_label" in kinds) == (answers[1] == "x")
