"""Formats of annotation tools and catalogues: what they read and write, and what is said of what they cannot hold.

The texts are written by hand; tools/check_formats.py has each tool read what is written here, and writes them anew.
"""

import io
import json
import logging
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy import sparse
from sklearn.datasets import dump_svmlight_file, load_files, load_svmlight_file

from tests.helpers import Run, put, read_text
from treelabel import FORMATS, Dataset, Hierarchy, TreelabelError, read, read_taxonomy, write
from treelabel.data import SkippedRowsWarning, losses
from treelabel.data.io.format import ReadOptions
from treelabel.data.io.label_studio import label_config
from treelabel.data.io.tables import format_to_read

BASE = "http://example.org/"
PLAIN = Hierarchy.from_paths(["animal > big cat", "animal > dog", "food > cake & tea", "été"])
NUMBERS = {"big cat": 1, "dog": 2, "animal": 3, "food": 4, "cake & tea": 5, "été": 6}
NOTATIONS = {"big cat": "1.1", "dog": "1.2"}
TREE = PLAIN.with_identifiers([f"{BASE}{NUMBERS[name]}" for name in PLAIN.names], map(NOTATIONS.get, PLAIN.names))
TEXTS = ["a lion, roaring", "two\nlines\tand a tab", "", "naïve 🐟 “text”"]
LABELS = [["big cat"], ["dog", "cake & tea"], ["animal"], []]
DATA = Dataset.of(TEXTS, LABELS, TREE, ids=["a/1", "b 2", "c", "d"])
COLUMN = {"source": pa.chunked_array([["web", None, "é,", "x"]])}
# Every form, and what of the texts comes back.
KEEPING = [
    "d.arrow",
    "d.feather",
    "d.annif.csv",
    "d.annif.jsonl",
    "d.annif.jsonl.gz",
    "d.label_studio.json",
    "d.label_studio.json.zst",
    "d.prodigy.jsonl",
    "d.argilla.json",
    "d.argilla.jsonl",
    "d.spacy.jsonl",
]


@pytest.mark.parametrize("name", KEEPING)
def test_documents_come_back_with_ids_texts_labels_columns_and_uris(tmp_path: Path, name: str) -> None:
    data = Dataset(DATA.ids, DATA.texts, DATA.labels, TREE, COLUMN)
    write(data, tmp_path / name)
    again = read(tmp_path / name)
    assert (again.ids, again.texts, again.names()) == (data.ids, data.texts, data.names())
    assert again.paths() == data.paths()
    assert again.hierarchy == TREE
    assert again.hierarchy.identifiers == TREE.identifiers
    assert [value or None for value in again.extra["source"].to_pylist()] == ["web", None, "é,", "x"]
    assert losses(data, tmp_path / name) == []


@pytest.mark.parametrize("name", ["d.annif.tsv", "d.annif.tsv.bz2", "d.libmultilabel.txt", "d.lml.gz"])
def test_lines_keep_texts_up_to_white_space(tmp_path: Path, name: str) -> None:
    write(DATA, tmp_path / name)
    again = read(tmp_path / name)
    assert again.names() == DATA.names()
    assert list(again.texts) == [" ".join(text.split()) for text in TEXTS]
    assert "line breaks (1 texts)" in losses(DATA, tmp_path / name)
    assert ("ids" in losses(DATA, tmp_path / name)) == ("annif" in name)


# Recognition


RECORDED = {
    "annif": ("d.tsv", f"a lion\t<{BASE}1> <{BASE}2>\n"),
    "annif csv": ("d.csv", f'text,subject_uris\n"a lion",<{BASE}1> <{BASE}2>\n'),
    "annif jsonl": ("d.jsonl", json.dumps({"text": "a lion", "subjects": [{"uri": BASE + "1"}, {"label": "dog"}]})),
    "label_studio": (
        "d.json",
        json.dumps(
            [
                {
                    "id": 7,
                    "data": {"text": "a lion"},
                    "annotations": [
                        {
                            "result": [
                                {
                                    "from_name": "topic",
                                    "to_name": "text",
                                    "type": "taxonomy",
                                    "value": {"taxonomy": [["animal", "big cat"], ["animal", "dog"]]},
                                }
                            ]
                        }
                    ],
                }
            ],
            indent=2,
        ),
    ),
    "label_studio min": (
        "d.json",
        json.dumps(
            [
                {
                    "text": "a lion",
                    "id": 7,
                    "topic": [{"taxonomy": [["animal", "big cat"], ["animal", "dog"]]}],
                    "annotator": 1,
                    "annotation_id": 3,
                }
            ]
        ),
    ),
    "prodigy": (
        "d.jsonl",
        json.dumps(
            {
                "text": "a lion",
                "options": [{"id": "big cat", "text": "Big cats"}, {"id": 2, "text": "dog"}],
                "accept": ["big cat", 2],
                "answer": "accept",
            }
        ),
    ),
    "argilla": (
        "d.json",
        json.dumps(
            [
                {
                    "id": "7",
                    "fields": {"text": "a lion"},
                    "metadata": {},
                    "suggestions": {"topic": {"value": ["été"], "score": [0.9], "agent": "model"}},
                    "responses": {"topic": [{"value": ["animal > big cat", "dog"], "user_id": "0"}]},
                    "vectors": {},
                    "status": "completed",
                }
            ]
        ),
    ),
    "spacy": ("d.jsonl", json.dumps({"text": "a lion", "cats": {"big cat": 1.0, "dog": 0.5, "été": 0.1}})),
    "libmultilabel": ("d.txt", "7\tbig%20cat dog\ta lion\n".replace("a lion", "a lion roars")),
}


@pytest.mark.parametrize("case", RECORDED)
def test_a_shared_ending_is_told_apart_by_the_content_and_said_in_a_line(
    tmp_path: Path, case: str, caplog: pytest.LogCaptureFixture
) -> None:
    name, content = RECORDED[case]
    with caplog.at_level(logging.INFO, "treelabel"):
        data = read_text(tmp_path, name, content, taxonomy=TREE)
    assert data.names() == [["big cat", "dog"]]
    assert data.texts[0].startswith("a lion")
    format_name = case.partition(" ")[0]
    assert f"read as {format_name} ({FORMATS[format_name].help}), by its content" in caplog.text
    assert format_to_read(tmp_path / name, "csv", ReadOptions()).name == "csv", "a name goes before the content"


@pytest.mark.parametrize(
    ("name", "content", "format_name"),
    [
        ("d.tsv", "text\tlabel\na\tb\n", "tsv"),
        ("d.tsv", f"uri\tlabel\n<{BASE}1>\tb\n", "tsv"),
        ("d.jsonl", '{"text": "a", "label": "b"}\n', "jsonl"),
        ("d.json", '[{"text": "a", "data": 1}]', "jsonl"),
        ("d.jsonl", '{"text": "a", "options": ["b", "c"], "label": "b"}', "jsonl"),
        ("d.txt", "id\tlabels\ttext\n", "tsv"),
        ("d.txt", "Title\tBody\tTag\n", "tsv"),
        ("d.svm", "2 3 4\n0 1:1\n1 1:1\n", "xmc"),
        ("d.svm", "0 1:1\n1 1:1\n", "libsvm"),
    ],
)
def test_what_only_looks_alike_is_not_taken_for_it(tmp_path: Path, name: str, content: str, format_name: str) -> None:
    assert format_to_read(put(tmp_path, name, content), None, ReadOptions()).name == format_name


def test_standard_input_is_recognized_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    _, content = RECORDED["prodigy"]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content.encode())))
    tax = put(tmp_path, "taxonomy.tsv", "Root\tbig cat\nRoot\tdog\n")
    ended = run("convert", "-", "-", "--taxonomy", tax)
    assert json.loads(ended.out)["labels"] == ["big cat", "dog"]
    assert "read as prodigy" in ended.err


# Annif


def test_annif_folders_have_a_text_and_its_subjects(tmp_path: Path) -> None:
    folder = tmp_path / "corpus"
    write(DATA, folder, "annif")
    assert sorted(file.name for file in folder.iterdir())[:2] == ["a%2F1.tsv", "a%2F1.txt"]
    assert (folder / "b 2.txt").read_text() == TEXTS[1]
    again = read(folder)
    assert again.names() == DATA.names()
    assert losses(Dataset(DATA.ids, DATA.texts, DATA.labels, TREE, COLUMN), folder, "annif") == ["columns source"]
    with pytest.raises(TreelabelError, match="is there already; a folder of documents is not replaced"):
        write(DATA, folder, "annif")
    (folder / "e.txt").write_text("keys are names")
    (folder / "e.key").write_text(f"dog\n<{BASE}1>\tbig cat\n")
    (folder / "f.json").write_text(json.dumps({"text": "json", "subjects": [{"uri": BASE + "2"}]}))
    assert read(folder, taxonomy=TREE).names()[-2:] == [["dog", "big cat"][::-1], ["dog"]]


def test_annif_without_a_vocabulary_has_uris_for_names(tmp_path: Path) -> None:
    data = read_text(tmp_path, "d.tsv", f"a b c\t<{BASE}x/1>\nd e f\t<{BASE}x/2>\n")
    assert data.hierarchy.names == (BASE + "x/1", BASE + "x/2")
    assert data.hierarchy.identifiers is not None
    write(data, tmp_path / "again.tsv", "annif")
    assert (tmp_path / "again.tsv").read_text() == (tmp_path / "d.tsv").read_text()


def test_labels_without_uris_get_some_that_a_vocabulary_keeps(tmp_path: Path, run: Run) -> None:
    data = Dataset.of(["a", "b"], [["B"], ["C d"]], Hierarchy.from_paths(["A > B", "A > C d"]))
    write(data, tmp_path / "d.annif.tsv")
    assert "b\t<urn:treelabel:A/C%20d>\n" in (tmp_path / "d.annif.tsv").read_text()
    again = read(tmp_path / "d.annif.tsv")
    assert again.paths() == data.paths()
    assert run("convert", tmp_path / "d.annif.taxonomy.tsv", tmp_path / "vocab.ttl").code == 0
    assert read(tmp_path / "d.annif.tsv", taxonomy=tmp_path / "vocab.ttl").paths() == data.paths()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("d.annif.jsonl", '{"text": "a", "subjects": 7}', r'd\.annif\.jsonl:1: expected "subjects" as a list'),
        ("d.annif.jsonl", '\n{"text": "a", "subjects": [{}]}', r"d\.annif\.jsonl:2: a subject has neither uri nor"),
        ("d.annif.jsonl", '{"text": "a", "metadata": 7}', r'expected "metadata" as an object'),
        ("d.annif.tsv", f"a\t<{BASE}1>\nb\t<{BASE}99>\n", r"d\.annif\.tsv:2: unknown label 'http://example.org/99'"),
        ("d.label_studio.json", '[{"data": 7}]', r'd\.label_studio\.json:1: expected a task with "data"'),
        ("d.label_studio.json", '[{"data": {}, "annotations": 7}]', r'expected "annotations" as a list'),
        ("d.label_studio.json", '[{"data": {}, "annotations": [{"result": 7}]}]', r'expected "result" as a list'),
        (
            "d.label_studio.json",
            '[{"data": {}, "annotations": [{"result": [{"type": "choices", "value": {"choices": 7}}]}]}]',
            "expected choices as a list of names or paths, found 7",
        ),
        (
            "d.prodigy.jsonl",
            '{"text": "a", "accept": 7, "answer": "accept"}',
            r':1: expected "accept" as a list',
        ),
        ("d.prodigy.jsonl", '{"text": "a", "options": [7], "answer": "accept"}', r'expected "options" as a list'),
        ("d.argilla.json", '[{"fields": 7}]', r"d\.argilla\.json:1: expected 'fields' as an object"),
        ("d.argilla.json", '[{"fields": {}, "responses": {"q": 7}}]', r"expected the responses to 'q' as a list"),
        ("d.spacy.jsonl", '{"text": "a", "cats": {"x": "y"}}', r'd\.spacy\.jsonl:1: expected "cats" as an object'),
        ("d.lml", "1\ta\tb\tc\n", r"d\.lml:1: expected id, labels and text between tabs, found 4 cells"),
        ("d.libsvm", "x 1:1\n", r"d\.libsvm:1: label 'x' is not a number"),
        ("d.libsvm", "1 1:1\n1 2\n", r"d\.libsvm:2: feature '2' is not 'number:value'"),
        ("d.libsvm", "1 1:x\n", r"d\.libsvm:1: the value of feature '1:x' is not a number"),
        ("d.arrow", "nothing of the kind", r"d\.arrow: not an Arrow file or stream"),
    ],
)
def test_what_is_wrong_is_said_with_file_and_line(tmp_path: Path, name: str, content: str, message: str) -> None:
    with pytest.raises(TreelabelError, match=message):
        read_text(tmp_path, name, content, taxonomy=TREE)


# Label Studio


def task(*annotations: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"id": 1, "data": {"text": "a"}, "annotations": list(annotations), **fields}


def annotation(*names: str, control: str = "topic", **fields: Any) -> dict[str, Any]:
    return {"result": [{"from_name": control, "type": "choices", "value": {"choices": list(names)}}], **fields}


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (task(annotation("dog")), ["dog"]),
        (task(annotation("dog", was_cancelled=True)), []),
        (task(annotation("dog", updated_at="2"), annotation("été", updated_at="1")), ["dog"]),
        (task(annotation("dog", ground_truth=True), annotation("été", updated_at="9")), ["dog"]),
        (task(annotation("dog"), annotation("été")), ["été"]),
        (task(predictions=[annotation("dog")]), []),
        (task({"result": [{"from_name": "x", "type": "rating", "value": {"rating": 3}}]}), []),
    ],
)
def test_of_a_task_the_newest_annotation_counts(tmp_path: Path, one: dict[str, Any], expected: list[str]) -> None:
    data = read_text(tmp_path, "d.label_studio.json", json.dumps([one]), taxonomy=TREE)
    assert data.names() == [expected]


def test_a_second_control_is_a_column_that_can_be_chosen(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    both = {"result": annotation("dog")["result"] + annotation("été", control="season")["result"]}
    content = json.dumps([task(both)])
    with caplog.at_level(logging.INFO, "treelabel"):
        data = read_text(tmp_path, "d.label_studio.json", content, taxonomy=TREE)
    assert data.names() == [["dog"]]
    assert "labels are those of topic, not of season (--labels)" in caplog.text
    assert read(tmp_path / "d.label_studio.json", labels="season", taxonomy=TREE).names() == [["été"]]


def test_the_configuration_has_every_label_at_its_place() -> None:
    view = ET.fromstring(label_config(TREE))
    tops = view.findall("Taxonomy/Choice")
    assert [each.get("value") for each in tops] == ["animal", "food", "été"]
    assert [each.get("value") for each in tops[1]] == ["cake & tea"]
    flat = ET.fromstring(label_config(Hierarchy.flat(["a", "b"])))
    assert [each.get("value") for each in flat.findall("Choices/Choice")] == ["a", "b"]


# Prodigy, Argilla, spaCy


def test_prodigy_counts_what_was_rejected_and_takes_no_suggestions(tmp_path: Path) -> None:
    rows = [
        {"text": "a", "label": "dog", "answer": "accept", "meta": {"source": "web"}},
        {"text": "b", "label": "dog", "answer": "reject"},
        {"text": "c", "options": [{"id": "dog"}], "accept": ["dog"]},
        {"text": "d", "options": [{"id": "dog"}], "accept": ["dog"], "answer": "ignore"},
    ]
    with pytest.warns(
        SkippedRowsWarning, match=r"left out 2 rows that annotators did not accept \(answer: reject 1, i"
    ):
        data = read_text(tmp_path, "d.jsonl", "\n".join(map(json.dumps, rows)), taxonomy=TREE)
    assert data.names() == [["dog"], []]
    assert data.extra["source"].to_pylist() == ["web", None]


def test_options_and_categories_are_all_labels_where_they_are_few(tmp_path: Path) -> None:
    write(DATA[:1], tmp_path / "few.prodigy.jsonl")
    few = json.loads((tmp_path / "few.prodigy.jsonl").read_text())
    assert [each["id"] for each in few["options"]] == TREE.paths()
    assert (few["accept"], few["answer"]) == (["animal > big cat"], "accept")
    many = Dataset.of(["a"], [["7"]], Hierarchy.flat([str(number) for number in range(300)]))
    write(many, tmp_path / "many.prodigy.jsonl")
    assert json.loads((tmp_path / "many.prodigy.jsonl").read_text())["options"] == [{"id": "7", "text": "7"}]
    write(many, tmp_path / "many.spacy.jsonl")
    assert json.loads((tmp_path / "many.spacy.jsonl").read_text())["cats"] == {"7": 1.0}
    write(DATA[:1], tmp_path / "few.spacy.jsonl")
    assert sum(json.loads((tmp_path / "few.spacy.jsonl").read_text())["cats"].values()) == 1


def test_argilla_suggestions_of_models_are_no_labels(tmp_path: Path) -> None:
    record = {"fields": {"text": "a"}, "suggestions": {"labels": {"value": ["dog"], "agent": "model"}}, "responses": {}}
    assert read_text(tmp_path, "d.argilla.json", json.dumps([record]), taxonomy=TREE).names() == [[]]


def test_a_docbin_needs_spacy_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "spacy", None)
    with pytest.raises(TreelabelError, match=r"writing \.spacy needs spaCy: pip install spacy; \.spacy\.jsonl"):
        write(DATA, tmp_path / "d.spacy")
    with pytest.raises(TreelabelError, match=r"reading \.spacy needs spaCy"):
        read_text(tmp_path, "d.spacy", "x")


# Features


def numbered() -> Dataset:
    base = Dataset.of(["", "", ""], [["1", "3"], [], ["2"]], Hierarchy.flat(["1", "2", "3"]))
    features = sparse.csr_array(np.array([[0, 0.5, 2], [1, 0, 0], [0, 0, 0.25]], np.float32))
    return Dataset(base.ids, base.texts, base.labels, base.hierarchy, features=features)


def test_scikit_learn_reads_what_is_written_as_libsvm_and_the_other_way_round(tmp_path: Path) -> None:
    write(numbered(), tmp_path / "d.libsvm")
    matrix, labels = load_svmlight_file(tmp_path / "d.libsvm", multilabel=True, zero_based=False)
    assert (matrix.toarray() == numbered().features.toarray()).all()  # type: ignore[union-attr]
    assert labels == [(1, 3), (), (2,)]
    for zero_based in (True, False):
        target = np.array([[1, 0, 1], [0, 0, 0], [0, 1, 0]])
        file = str(tmp_path / "sklearn.svmlight")
        dump_svmlight_file(matrix, target, file, zero_based=zero_based, multilabel=True, comment="by scikit-learn")
        again = read(file)
        assert again.names() == [["0", "2"], [], ["1"]]
        assert again.features is not None
        assert (again.features.toarray() == matrix.toarray()).all()


def test_labels_that_are_no_numbers_are_numbered_and_that_is_said(tmp_path: Path) -> None:
    data = Dataset(DATA.ids, DATA.texts, DATA.labels, TREE, features=sparse.csr_array(np.eye(4, dtype=np.float32)))
    write(data, tmp_path / "d.libsvm")
    assert read(tmp_path / "d.libsvm").names()[0] == [str(TREE.names.index("big cat"))]
    assert "names of labels and their hierarchy" in losses(data, tmp_path / "d.libsvm")
    with pytest.raises(TreelabelError, match="this format holds numeric features"):
        write(DATA, tmp_path / "other.libsvm")


# Folders, patterns, tables of SQLite, lines


def test_scikit_learn_reads_a_folder_for_each_label(tmp_path: Path) -> None:
    data = Dataset.of(["meow", "woof", "purr"], [["cat"], ["dog"], ["cat"]], Hierarchy.flat(["cat", "dog"]))
    write(data, tmp_path / "texts", "folder")
    loaded = load_files(tmp_path / "texts", encoding="utf-8", shuffle=False)
    assert loaded.target_names == ["cat", "dog"]
    assert sorted(zip(loaded.data, loaded.target, strict=True)) == [("meow", 0), ("purr", 0), ("woof", 1)]
    again = read(tmp_path / "texts")
    assert sorted(zip(again.texts, again.names(), strict=True)) == [
        ("meow", ["cat"]),
        ("purr", ["cat"]),
        ("woof", ["dog"]),
    ]


def test_folders_in_folders_are_paths_and_further_labels_are_said_to_be_lost(tmp_path: Path) -> None:
    write(DATA, tmp_path / "texts", "folder")
    assert (tmp_path / "texts" / "animal" / "big cat" / "a%2F1.txt").read_text() == TEXTS[0]
    again = read(tmp_path / "texts")
    assert dict(zip(again.ids, again.paths(), strict=True)) == {
        "a/1": ["animal > big cat"],
        "b 2": ["animal > dog"],
        "c": ["animal"],
        "d": [],
    }
    assert losses(DATA, tmp_path / "texts", "folder") == ["further labels (1 documents have several)"]
    (tmp_path / "texts" / "animal" / "bad.txt").write_bytes(b"\xff\xfe\xfd")
    with pytest.raises(TreelabelError, match=r"animal/bad\.txt:1: "):
        read(tmp_path / "texts")


def test_a_pattern_is_one_data_set_and_lines_are_those_of_each_file(tmp_path: Path) -> None:
    put(tmp_path, "taxonomy.tsv", "Root\tA\nRoot\tB\n")
    put(tmp_path, "1.tsv", "text\tlabel\none\tA\ntwo\tB\n")
    put(tmp_path, "2.tsv", "label\ttext\nB\tthree\n")
    data = read(tmp_path / "*.tsv")
    assert (list(data.texts), data.names()) == (["one", "two", "three"], [["A"], ["B"], ["B"]])
    assert data.lines is None
    put(tmp_path, "3.tsv", "text\tlabel\nfour\tA\nfive\tC\n")
    with pytest.raises(TreelabelError, match=r"3\.tsv:3: unknown label 'C'"):
        read(tmp_path / "*.tsv")
    put(tmp_path, "3.tsv", "text\tlabel\nfour\tA\nfive\tB\tC\n")
    with pytest.raises(TreelabelError, match=r"3\.tsv:3: "):
        read(tmp_path / "[1-3].tsv")
    with pytest.raises(TreelabelError, match=r"\*\.csv: no file is called so"):
        read(tmp_path / "*.csv")
    put(tmp_path, "[x].csv", "text,label\none,A\n")
    assert len(read(tmp_path / "[x].csv")) == 1, "a file of that very name goes first"


def test_tables_of_sqlite_are_read_and_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    address = f"sqlite:///{tmp_path}/d.db"
    data = Dataset(DATA.ids, DATA.texts, DATA.labels, TREE, COLUMN | {"count": pa.chunked_array([[1, None, 3, 4]])})
    write(data, f"{address}#docs")
    again = read(address)
    assert (again.ids, again.texts, again.paths()) == (data.ids, data.texts, data.paths())
    assert again.extra["count"].to_pylist() == [1, None, 3, 4]
    with pytest.raises(TreelabelError, match=r"cannot be written: table \"docs\" already exists; choose another"):
        write(data, f"{address}#docs")
    write(data[:2], f"{address}#some")
    assert len(read(f"{address}#docs")) == 4
    assert len(read(f"{address}#some")) == 2
    with pytest.raises(TreelabelError, match=r"d\.db: which table\? name it behind #; there are: 'docs', 'some'"):
        read(address)
    with pytest.raises(TreelabelError, match=r"no table 'dosc'.*did you mean docs"):
        read(f"{address}#dosc")
    with pytest.raises(TreelabelError, match="cannot be read as SQLite"):
        read(f"sqlite:///{put(tmp_path, 'no.db', 'text,label')}#x")
    with pytest.raises(TreelabelError, match=r"gone\.db: no such file"):
        read(f"sqlite:///{tmp_path}/gone.db#x")
    monkeypatch.chdir(tmp_path)
    assert len(read("sqlite:///d.db#some")) == 2


def test_a_line_is_a_text(tmp_path: Path) -> None:
    file = put(tmp_path, "d.txt", "one, two\n\nthree\tfour\n")
    data = read(file, format="txt", taxonomy=TREE)
    assert (list(data.texts), data.names()) == (["one, two", "three\tfour"], [[], []])
    write(DATA, tmp_path / "out.txt", "txt")
    assert (tmp_path / "out.txt").read_text().splitlines()[1] == "two lines\tand a tab"
    assert losses(DATA, tmp_path / "out.txt", "txt")[0] == "labels"


# Predictions


@pytest.fixture
def model(tmp_path: Path, run: Run) -> Path:
    folder = tmp_path
    train = Dataset.of(["lion tiger", "woof bark", "tea cake"] * 4, [["big cat"], ["dog"], ["cake & tea"]] * 4, TREE)
    write(train, folder / "train.jsonl")
    assert run("fit", folder / "train.jsonl", "-o", folder / "model").code == 0
    return folder


def test_predictions_have_uris_and_notations_on_request(model: Path, run: Run) -> None:
    texts = put(model, "new.txt", "a tiger\nbark\n")
    ended = run("predict", model / "model", texts, "--format", "txt", "--uris")
    first, second = (json.loads(line)["labels"][0] for line in ended.out.splitlines())
    assert (first["label"], first["uri"], first["notation"]) == ("big cat", f"{BASE}1", "1.1")
    assert second["path"] == "animal > dog"
    table = run("predict", model / "model", texts, "--format", "txt", "--uris", "--to-format", "csv").out
    assert table.splitlines()[0].startswith("id,predicted,path,p,uri,notation,level1")
    plain = Dataset.of(["a b", "c d"], [["A"], ["B"]], Hierarchy.flat(["A", "B"]))
    write(plain, model / "plain.jsonl")
    assert run("fit", model / "plain.jsonl", "-o", model / "plain").code == 0
    assert "its labels have no URIs" in run("predict", model / "plain", texts, "--format", "txt", "--uris").err


def test_predictions_are_suggestions_for_annotators(model: Path, run: Run) -> None:
    texts = put(model, "new.csv", "id,text,source\n7,a tiger,web\n8,bark,mail\n")
    for name in ("t.label_studio.json", "t.prodigy.jsonl", "t.argilla.json"):
        assert run("predict", model / "model", texts, "-o", model / name, "--keep-columns", "--force").code == 0
    studio = json.loads((model / "t.label_studio.json").read_text())[0]
    assert studio["data"] == {"text": "a tiger", "id": "7", "source": "web"}
    (prediction,) = studio["predictions"]
    assert prediction["result"][0]["value"] == {"taxonomy": [["animal", "big cat"]]}
    assert 0 < prediction["score"] <= 1
    assert prediction["model_version"] == "treelabel linear"
    prodigy = json.loads((model / "t.prodigy.jsonl").read_text().splitlines()[1])
    assert (prodigy["id"], prodigy["accept"], "answer" in prodigy) == ("8", ["animal > dog"], False)
    argilla = json.loads((model / "t.argilla.json").read_text())[0]["suggestions"]["labels"]
    assert (argilla["value"], len(argilla["score"]), argilla["agent"]) == (["animal > big cat"], 1, "treelabel linear")
    # What a model suggests is no truth.
    for name in ("t.label_studio.json", "t.prodigy.jsonl", "t.argilla.json"):
        assert read(model / name, taxonomy=TREE).names() == [[], []]


# The table of the documentation


def test_the_documentation_has_a_row_for_every_format() -> None:
    page = (Path(__file__).parents[2] / "docs" / "formats.md").read_text(encoding="utf-8")
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line.startswith("| `")
    ]
    formats = {cells[0].strip("`"): cells[1] for cells in rows if cells[0].strip("`") in FORMATS}
    assert list(formats) == list(FORMATS)
    for name, endings in formats.items():
        assert [each.strip(" `") for each in endings.split(",") if "`." in each] == list(FORMATS[name].endings)


def test_a_vocabulary_in_another_language_is_chosen_from_the_command_line(tmp_path: Path, run: Run) -> None:
    vocab = put(tmp_path, "vocab.csv", f"uri,label_en,label_fi\n{BASE}1,cats,kissat\n{BASE}2,,koirat\n")
    data = put(tmp_path, "d.tsv", f"meow\t<{BASE}1>\nwoof\t<{BASE}2>\n")
    ended = run("convert", data, "-", "--taxonomy", vocab, "--language", "fi")
    assert [json.loads(line)["labels"] for line in ended.out.splitlines()] == [["kissat"], ["koirat"]]
    assert read_taxonomy(vocab).names == ("cats", "koirat")
    assert run("convert", vocab, tmp_path / "v.ttl", "--language", "fi").code == 0
    assert read_taxonomy(tmp_path / "v.ttl", language="fi").names == ("kissat", "koirat")
    flat = run("convert", vocab, tmp_path / "w.vocab.tsv", "--to-format", "annif")
    assert flat.code == 0
    assert (tmp_path / "w.vocab.tsv").read_text() == f"<{BASE}1>\tcats\n<{BASE}2>\tkoirat\n"
