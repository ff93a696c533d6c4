"""Formats of tools from the command line: every command that reads data takes them."""

import json
from pathlib import Path

import pytest

from tests.helpers import Run, put
from treelabel import load_model, read

VOCABULARY = """@prefix skos: <http://www.w3.org/2004/02/skos/core#> . @prefix : <http://example.org/> .
:pet a skos:Concept ; skos:prefLabel "pets"@en, "lemmikit"@fi .
:cat a skos:Concept ; skos:broader :pet ; skos:prefLabel "cats"@en, "kissat"@fi ; skos:altLabel "felines"@en ;
  skos:notation "59.1" .
:dog a skos:Concept ; skos:broader :pet ; skos:prefLabel "dogs"@en, "koirat"@fi .
"""
CORPUS = "".join(f"{text}\t<http://example.org/{name}>\n" for text, name in [("purr meow", "cat"), ("woof", "dog")] * 6)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    put(tmp_path, "vocab.ttl", VOCABULARY)
    put(tmp_path, "corpus.tsv", CORPUS)
    return tmp_path


def test_a_catalogue_gets_its_answers_back_by_uri(folder: Path, run: Run) -> None:
    fitted = run("fit", folder / "corpus.tsv", "-o", folder / "model", "--taxonomy", folder / "vocab.ttl")
    assert fitted.code == 0
    assert "read as annif" in fitted.err
    new = put(folder, "new.txt", "meow\n")
    ended = run("predict", folder / "model", new, "--format", "txt", "--uris")
    (label,) = json.loads(ended.out)["labels"]
    assert (label["path"], label["uri"], label["notation"]) == ("pets > cats", "http://example.org/cat", "59.1")


def test_alternative_labels_of_a_vocabulary_describe_its_concepts(folder: Path, run: Run) -> None:
    vocabulary = folder / "vocab.ttl"
    how = ["--taxonomy", vocabulary, "--model", "lexical", "--set", f"descriptions={vocabulary}"]
    assert run("fit", folder / "corpus.tsv", "-o", folder / "model", *how).code == 0
    model = load_model(folder / "model")
    scores = model.score(["nothing", "a book about felines"]).dense()
    cat = model.hierarchy_.names.index("cats")
    assert scores[1, cat] > scores[0, cat]


@pytest.mark.parametrize("command", ["inspect", "audit"])
def test_commands_read_a_pattern_a_folder_and_a_table(folder: Path, run: Run, command: str) -> None:
    taxonomy = ["--taxonomy", folder / "vocab.ttl"]
    database = f"sqlite:///{folder}/docs.db#docs"
    assert run("convert", folder / "corpus.tsv", folder / "texts", "--to-format", "folder", *taxonomy).code == 0
    assert run("convert", folder / "*.tsv", database, *taxonomy, "--no-write-taxonomy").code == 0
    for source in (folder / "cor*.tsv", folder / "texts", database):
        assert run(command, source, *taxonomy).code == 0


def test_a_folder_that_is_there_and_a_table_that_is_there_are_not_replaced(folder: Path, run: Run) -> None:
    taxonomy = ["--taxonomy", folder / "vocab.ttl", "--force"]
    for target in (f"sqlite:///{folder}/docs.db#docs", folder / "texts"):
        arguments = ["convert", folder / "corpus.tsv", target, *taxonomy, "--to-format"]
        name = "folder" if target == folder / "texts" else "sqlite"
        assert run(*arguments, name).code == 0
        again = run(*arguments, name)
        assert again.code == 2
        assert "already exists" in again.err or "is a folder" in again.err


def test_parts_of_a_split_may_be_folders(folder: Path, run: Run) -> None:
    how = [
        "--taxonomy",
        folder / "vocab.ttl",
        "--parts",
        "train=0.5,test=0.5",
        "--by",
        "random",
        "--no-keep-duplicates",
    ]
    assert run("split", folder / "corpus.tsv", folder / "parts", *how, "--to-format", "folder").code == 0
    assert len(read(folder / "parts" / "train")) == len(read(folder / "parts" / "test")) == 6
    refused = run("split", folder / "corpus.tsv", folder / "other", *how, "--to-format", "sqlite")
    assert "choose another --to-format than sqlite" in refused.err
    refused = run("convert", folder / "corpus.tsv", "-", "--taxonomy", folder / "vocab.ttl", "--to-format", "folder")
    assert "cannot be written to standard output" in refused.err


def test_a_file_that_is_recognized_by_its_content_is_repaired_as_what_it_is(folder: Path, run: Run) -> None:
    tasks = [{"text": text, "label": "cats", "answer": "accept"} for text in ("purr meow", "purr meow", "", "hiss")]
    file = put(folder, "tasks.jsonl", "\n".join(map(json.dumps, tasks)))
    ended = run("inspect", file, "--fix", folder / "mended.jsonl", "--taxonomy", folder / "vocab.ttl")
    assert ended.code == 0
    assert list(read(folder / "mended.jsonl", taxonomy=folder / "vocab.ttl").texts) == ["purr meow", "hiss"]
    assert run("convert", folder / "corpus.tsv", folder / "texts", "--to-format", "folder").code == 0
    for source, target in (("texts", "from_folder.csv"), ("cor*.tsv", "from_pattern.csv")):
        ended = run("inspect", folder / source, "--fix", folder / target, "--taxonomy", folder / "vocab.ttl")
        assert ended.code == 0
        assert sorted(read(folder / target).paths()) == [["pets > cats"], ["pets > dogs"]]


def test_what_is_lost_is_said(folder: Path, run: Run) -> None:
    taxonomy = ["--taxonomy", folder / "vocab.ttl"]
    ended = run("convert", folder / "corpus.tsv", folder / "again.annif.tsv", *taxonomy)
    assert "this format has no place for ids" in ended.err
    flat = run("convert", folder / "vocab.ttl", folder / "flat.tsv", "--to-format", "annif")
    assert "a vocabulary of Annif has no hierarchy; .ttl (SKOS) keeps it" in flat.err
    config = run("convert", folder / "vocab.ttl", folder / "config.xml", "--to-format", "label_studio")
    assert "the labelling configuration for 3 nodes" in config.out
    wrong = run("convert", folder / "vocab.ttl", folder / "x.tsv", "--to-format", "prodigy")
    assert "a taxonomy has the format of its ending, or is a vocabulary (annif)" in wrong.err
