"""Have annotation tools and catalogues read what treelabel writes, and treelabel read what they write.

    python tools/check_formats.py --environments ~/.cache/treelabel-formats/

Each tool has an environment of its own, whose folder is the prefix and its name: annif, ls (label-studio-sdk), argilla
(with requests), spacy (with the dependencies of treelabel, which reads and writes DocBin there), libmultilabel. One
that is missing is named, and the exit status is 1, as it is where a check fails. The versions are printed.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from treelabel import Dataset, Hierarchy, read, read_taxonomy, write, write_taxonomy
from treelabel.data.io.label_studio import label_config

SOURCE = Path(__file__).resolve().parents[1] / "src"
BASE = "http://example.org/"
PLAIN = Hierarchy.from_paths(["animal > big cat", "animal > dog", "food > cake & tea", "été"])
TREE = PLAIN.with_identifiers([f"{BASE}{name.replace(' ', '-')}" for name in PLAIN.names], map(str, range(len(PLAIN))))
TEXTS = ["a lion roars", "woof, with tea", 'say "naïve"  🐟', "two\nlines"]
LABELS = [["big cat"], ["dog", "cake & tea"], ["animal"], ["été"]]
DATA = Dataset.of(TEXTS, LABELS, TREE, ids=["a", "b", "c", "d"])
# (text, labels) of every document, as the tool has them, white space aside.
Documents = list[list[Any]]

ANNIF = """
import annif.corpus as corpora, annif.vocab as vocabularies
from importlib.metadata import version
def index_of(source):
    index = vocabularies.SubjectIndexFile()
    index.load_subjects(source)
    return index
index = index_of(vocabularies.VocabFileSKOS("vocab.ttl"))
others = [index_of(vocabularies.VocabFileTSV("vocab.tsv", "en")), index_of(vocabularies.VocabFileCSV("vocab.csv"))]
def documents(corpus):
    return [[each.text, [index[i].uri for i in each.subject_set]] for each in corpus.documents]
index.save("by_annif.csv")
vocabularies.VocabFileTSV("vocab.tsv", "en").save_skos("by_annif.ttl")
answer = {
    "version": version("annif"),
    "vocabularies": [
        [[s.uri, s.labels, s.notation] for s in map(each.__getitem__, range(len(each)))] for each in [index, *others]
    ],
    "tsv": documents(corpora.DocumentFileTSV("d.annif.tsv", index)),
    "csv": documents(corpora.DocumentFileCSV("d.annif.csv", index)),
    "jsonl": documents(corpora.DocumentFileJSONL("d.annif.jsonl", index, "en")),
    "folder": documents(corpora.DocumentDirectory("corpus", index, "en", require_subjects=True)),
}
"""
LABEL_STUDIO = """
from importlib.metadata import version
from label_studio_sdk.label_interface import LabelInterface
from label_studio_sdk.converter import Converter
config = open("config.xml").read()
interface = LabelInterface(config)
tasks, predicted = json.load(open("d.label_studio.json")), json.load(open("p.label_studio.json"))
wrong = [task for task in tasks if not all(map(interface.validate_annotation, task["annotations"]))]
wrong += [task for task in predicted if not all(map(interface.validate_prediction, task["predictions"]))]
wrong += [task for task in [*tasks, *predicted] if not interface.validate_task({"data": task["data"]})]
full = [{**task, "id": number} for number, task in enumerate(tasks)]
for task in full:
    for annotation in task["annotations"]:
        annotation |= {"id": task["id"], "completed_by": 1}
json.dump(full, open("full.json", "w"))
Converter(config, ".", download_resources=False).convert_to_json_min("full.json", "by_sdk", is_dir=False)
def paths(task):
    return [" > ".join(path) for region in task["annotations"][0]["result"] for path in region["value"]["taxonomy"]]
documents = [[task["data"]["text"], paths(task)] for task in tasks]
answer = {"version": version("label-studio-sdk"), "wrong": wrong, "documents": documents}
"""
ARGILLA = """
from importlib.metadata import version
from argilla.records._io import JsonIO
import argilla, uuid
records = JsonIO._records_from_json("d.argilla.json")
predicted = JsonIO._records_from_json("p.argilla.json")
for record in records:
    record.responses.add(argilla.Response("labels", record.suggestions["labels"].value, user_id=uuid.UUID(int=7)))
JsonIO.to_json(records, "by_argilla.json")
documents = [[r.fields["text"], r.suggestions["labels"].value] for r in records]
answer = {"version": version("argilla"), "documents": documents,
          "scores": [len(r.suggestions["labels"].score) == len(r.suggestions["labels"].value) for r in predicted]}
"""
SPACY = """
import spacy, srsly
from spacy.tokens import DocBin
from spacy.training import Example
from treelabel import read, write
pipeline = spacy.blank("en")
rows = srsly.read_jsonl("d.spacy.jsonl")
examples = [Example.from_dict(pipeline.make_doc(row["text"]), {"cats": row["cats"]}) for row in rows]
textcat = pipeline.add_pipe("textcat_multilabel")
pipeline.initialize(lambda: examples)
pipeline.update(examples)
write(read("d.spacy.jsonl"), "d.spacy")
bin = DocBin(store_user_data=True)
for example in examples:
    bin.add(example.reference)
bin.to_disk("by_spacy.spacy")
def positive(cats):
    return [label for label, value in cats.items() if value >= 0.5]
again = read("by_spacy.spacy")
answer = {"version": spacy.__version__, "labels": sorted(textcat.labels),
    "jsonl": [[e.reference.text, positive(e.reference.cats)] for e in examples],
    "docbin": [[d.text, positive(d.cats)] for d in DocBin().from_disk("d.spacy").get_docs(pipeline.vocab)],
    "ids": [d.user_data["meta"]["id"] for d in DocBin().from_disk("d.spacy").get_docs(pipeline.vocab)],
    "by_spacy": [[t, labels] for t, labels in zip(again.texts, again.paths())]}
"""
LIBMULTILABEL = """
from importlib.metadata import version
from libmultilabel.linear.data_utils import load_dataset
texts = load_dataset("txt", "d.libmultilabel.txt")["train"]
numbers = load_dataset("svm", "d.libsvm")["train"]
answer = {"version": version("libmultilabel"), "documents": [list(pair) for pair in zip(texts["x"], texts["y"])],
          "features": numbers["x"].toarray().tolist(), "labels": numbers["y"]}
"""


def ask(python: Path, program: str, folder: Path) -> dict[str, Any]:
    """Run a program of a tool's environment, which leaves its answer in a file."""
    code = f"import json\n{program}\njson.dump(answer, open('answer.json', 'w'))\n"
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    command = [str(python), "-W", "ignore", "-c", code]
    ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if ended.returncode != 0:
        raise AssertionError(f"the tool failed: {ended.stderr.strip().splitlines()[-1]}")
    answer: dict[str, Any] = json.loads((folder / "answer.json").read_text(encoding="utf-8"))
    return answer


def documents(labels: list[list[str]], data: Dataset = DATA) -> Documents:
    """Return what a tool should have read."""
    return [[plain(text), sorted(each)] for text, each in zip(data.texts, labels, strict=True)]


def same(answer: Any, expected: Documents, what: str) -> None:
    """Refuse what a tool read that is not what was written."""
    read_by_tool = [[plain(text), sorted(labels)] for text, labels in answer]
    if read_by_tool != expected:
        raise AssertionError(f"{what}: expected {expected}, found {read_by_tool}")


def plain(text: str) -> str:
    """Join the words of a text by single spaces."""
    return " ".join(text.split())


def require(condition: object, what: str) -> None:
    """Refuse what is not so."""
    if not condition:
        raise AssertionError(what)


def suggestions(name: str, folder: Path) -> None:
    """Write predictions of a model as a tool's suggestions."""
    from treelabel.cli import main

    train = Dataset.of(TEXTS * 4, LABELS * 4, TREE)
    write(train, folder / "train.jsonl")
    write(DATA, folder / "new.jsonl")
    for arguments in (
        ["fit", "train.jsonl", "-o", "model", "--force"],
        ["predict", "model", "new.jsonl", "-o", name, "--rule", "threshold@0.1", "--force"],
    ):
        try:
            os.chdir(folder)
            main(arguments)
        except SystemExit as stop:
            require(stop.code == 0, f"treelabel {' '.join(arguments)} failed")


def check_annif(python: Path, folder: Path) -> str:
    """Check corpora and vocabularies."""
    for name in ("d.annif.tsv", "d.annif.csv", "d.annif.jsonl"):
        write(DATA, folder / name)
    write(DATA, folder / "corpus", "annif")
    write_taxonomy(TREE, folder / "vocab.ttl")
    write_taxonomy(TREE, folder / "vocab.tsv", "vocabulary")
    write_taxonomy(TREE, folder / "vocab.csv", "vocabulary")
    answer = ask(python, ANNIF, folder)
    assert TREE.identifiers is not None
    uri = dict(zip(TREE.names, TREE.identifiers.uris.to_pylist(), strict=True))
    known = {uri[name]: (name, notation) for name, notation in zip(TREE.names, map(str, range(6)), strict=True)}
    for listed in answer["vocabularies"]:
        require({each: (labels["en"], notation) for each, labels, notation in listed} == known, "vocabulary differs")
    for form in ("tsv", "csv", "jsonl", "folder"):
        same(answer[form], documents([[uri[name] for name in each] for each in LABELS]), form)
    for name in ("by_annif.csv", "by_annif.ttl"):
        h = read_taxonomy(folder / name)
        require(h.identifiers is not None, f"{name} has no URIs")
        require(
            {each: h.names[ids[0]] for each, ids in h.ids_by_identifier.items() if each in known}
            == {each: name for each, (name, _) in known.items()},
            f"{name} differs",
        )
    return str(answer["version"])


def check_label_studio(python: Path, folder: Path) -> str:
    """Check tasks with annotations and predictions against the configuration, and the smaller export."""
    write(DATA, folder / "d.label_studio.json")
    suggestions("p.label_studio.json", folder)
    (folder / "config.xml").write_text(label_config(TREE), encoding="utf-8")
    answer = ask(python, LABEL_STUDIO, folder)
    require(answer["wrong"] == [], f"refused: {answer['wrong'][:1]}")
    same(answer["documents"], documents(DATA.paths()), "tasks")
    again = read(folder / "by_sdk" / "result.json", taxonomy=TREE, format="label_studio")
    same(zip(again.texts, again.paths(), strict=True), documents(DATA.paths()), "JSON_MIN")
    return str(answer["version"])


def check_argilla(python: Path, folder: Path) -> str:
    """Check records, read and written by the client."""
    write(DATA, folder / "d.argilla.json")
    suggestions("p.argilla.json", folder)
    answer = ask(python, ARGILLA, folder)
    same(answer["documents"], documents(DATA.paths()), "records")
    require(all(answer["scores"]), "scores of suggestions are not one each")
    again = read(folder / "by_argilla.json", taxonomy=TREE)
    same(zip(again.texts, again.paths(), strict=True), documents(DATA.paths()), "written by the client")
    require(list(again.ids) == list(DATA.ids), "ids differ")
    return str(answer["version"])


def check_spacy(python: Path, folder: Path) -> str:
    """Check JSON Lines and DocBin in a pipeline that learns from them."""
    write(DATA, folder / "d.spacy.jsonl")
    answer = ask(python, SPACY, folder)
    require(answer["labels"] == sorted(TREE.paths()), f"labels of the pipeline: {answer['labels']}")
    for form in ("jsonl", "docbin", "by_spacy"):
        same(answer[form], documents(DATA.paths()), form)
    require(answer["ids"] == list(DATA.ids), "ids differ")
    return str(answer["version"])


def check_libmultilabel(python: Path, folder: Path) -> str:
    """Check texts and features."""
    write(DATA, folder / "d.libmultilabel.txt")
    features = sparse.csr_array(np.array([[0, 1, 0.5], [2, 0, 0], [0, 0, 0.25], [1, 1, 1]], np.float32))
    write(Dataset(DATA.ids, DATA.texts, DATA.labels, TREE, features=features), folder / "d.libsvm")
    answer = ask(python, LIBMULTILABEL, folder)
    encoded = [[path.replace(" ", "%20") for path in each] for each in DATA.paths()]
    same(answer["documents"], documents(encoded), "texts")
    require(answer["features"] == features.toarray().tolist(), "features differ")
    numbers = [sorted(TREE.names.index(name) for name in each) for each in LABELS]
    require([sorted(each) for each in answer["labels"]] == numbers, "labels of features differ")
    return str(answer["version"])


CHECKS: dict[str, tuple[str, Callable[[Path, Path], str]]] = {
    "annif": ("annif", check_annif),
    "ls": ("label-studio-sdk", check_label_studio),
    "argilla": ("argilla", check_argilla),
    "spacy": ("spacy", check_spacy),
    "libmultilabel": ("libmultilabel", check_libmultilabel),
}


def main() -> int:
    """Run every check; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument(
        "--environments",
        default=f"{Path.home()}/.cache/treelabel-formats/",
        help="prefix of the environments' folders",
    )
    parser.add_argument("tools", nargs="*", default=list(CHECKS))
    arguments = parser.parse_args()
    failed = 0
    for name in arguments.tools:
        package, check = CHECKS[name]
        python = Path(f"{arguments.environments}{name}", "bin", "python")
        with tempfile.TemporaryDirectory() as folder:
            try:
                require(python.exists(), f"no environment {python.parent.parent}; pip install {package} there")
                print(f"{package} {check(python, Path(folder))}: passed")
            except AssertionError as error:
                failed += 1
                print(f"{package}: FAILED: {error}")
            finally:
                os.chdir(SOURCE)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
