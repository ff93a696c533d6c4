"""Damaged files of every format are read, or refused in one short sentence; nothing else can happen.

The damage is the same in every run: each case has a seed of its own.
"""

import json
import warnings
import zlib
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from tests.mutants import mutated_bytes
from treelabel import Dataset, Hierarchy, TreelabelError, read, read_taxonomy, write, write_taxonomy
from treelabel.core.errors import LONGEST_MESSAGE
from treelabel.data import FORMATS

MUTANTS = 50


def mutants(data: bytes, case: str) -> list[bytes]:
    rng = np.random.default_rng(zlib.crc32(case.encode()))
    return [b"", *(mutated_bytes(rng, data)[1] for _ in range(MUTANTS))]


def survive(action: Callable[[], object], expected: type) -> None:
    """Check that an action ends as it may: with what it is for, or with a short refusal."""
    told = "read"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            assert isinstance(action(), expected)
        except TreelabelError as error:
            told = str(error)
    assert 0 < len(told) <= LONGEST_MESSAGE


TREE = Hierarchy.from_paths(["pet > dog > poodle", "pet > cat", "food > bread, white", "été > 日本"])


def sample() -> Dataset:
    labels = [["poodle"], ["cat", "food"], [], ["bread, white"], ["日本"], ["pet"]]
    texts = ["a poodle barks", 'so "quoted"', "", "two\nlines", "naïve 🐟", "=1+1"]
    base = Dataset.of(texts, labels, TREE, ids=[f"id{at}" for at in range(6)])
    features = sparse.csr_array(np.arange(18, dtype=np.float32).reshape(6, 3) / 7)
    return Dataset(base.ids, base.texts, base.labels, TREE, {}, features)


FILES = [
    *(f"d{entry.endings[0]}" for entry in FORMATS.values() if entry.endings),
    "array.json",
    "d.csv.gz",
    "d.jsonl.zst",
    "d.fasttext.bz2",
]


@pytest.mark.parametrize("name", FILES)
def test_damaged_data_is_read_or_refused(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    if name == "array.json":
        file.write_text(json.dumps([{"text": "a", "labels": ["cat"]}, {"text": "b", "labels": ["pet > dog"]}]))
    else:
        write(sample(), file)
    for at, mutant in enumerate(mutants(file.read_bytes(), name)):
        file.write_bytes(mutant)
        skip = at % 2 == 0
        survive(lambda skip=skip: read(file, on_error="skip" if skip else "stop"), Dataset)  # type: ignore[misc]
        if at % 5 == 0:
            survive(lambda: read(file, taxonomy=TREE, need_labels=False), Dataset)


SKOS = """@prefix skos: <http://www.w3.org/2004/02/skos/core#> . @prefix : <http://example.org/c/> .
:pet a skos:Concept ; skos:prefLabel "pet"@en . :dog skos:broader :pet ; skos:prefLabel "dog"@en, "chien"@fr .
"""
RDF = """<?xml version="1.0"?>
<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:skos="http://www.w3.org/2004/02/skos/core#">
<skos:Concept rdf:about="http://e/pet"><skos:prefLabel xml:lang="en">pet</skos:prefLabel></skos:Concept>
<skos:Concept rdf:about="http://e/dog"><skos:broader rdf:resource="http://e/pet"/></skos:Concept></rdf:RDF>
"""
TAXONOMIES: dict[str, str | None] = {
    "t.tsv": None,
    "t.csv": None,
    "t.txt": None,
    "t.json": None,
    "t.tsv.gz": None,
    "nested.json": json.dumps({"pet": {"dog": ["poodle"], "cat": {}}, "food": [{"name": "bread", "children": ["a"]}]}),
    "table.csv": "id,name,parent_id\n1,pet,\n2,dog,1\n3,food,\n",
    "lists.taxonomy": "Root\tpet\tfood\npet\tdog\tcat\n",
    **({"t.ttl": SKOS, "t.rdf": RDF} if find_spec("rdflib") else {}),
}


@pytest.mark.parametrize(("name", "content"), TAXONOMIES.items(), ids=TAXONOMIES)
def test_damaged_taxonomies_are_read_or_refused(tmp_path: Path, name: str, content: str | None) -> None:
    file = tmp_path / name
    if content is None:
        write_taxonomy(TREE, file)
    else:
        file.write_text(content)
    for mutant in mutants(file.read_bytes(), name):
        file.write_bytes(mutant)
        survive(lambda: read_taxonomy(file), Hierarchy)


def test_damaged_predictions_are_read_or_refused(tmp_path: Path) -> None:
    file = tmp_path / "predictions.jsonl"
    lines = [
        {"id": "1", "labels": [{"label": "dog", "path": "pet > dog", "p": 0.9}]},
        {"id": "2", "labels": ["cat", ["pet", "dog"]]},
        {"id": "3", "labels": [], "unknown": True},
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    for mutant in mutants(file.read_bytes(), file.name):
        file.write_bytes(mutant)
        survive(lambda: read(file, taxonomy=TREE, need_text=False, on_error="skip"), Dataset)
