"""One small good example of everything that treelabel reads, and a way to use each as its reader would."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from scipy import sparse

from tests import fuzz
from tests.helpers import WordVectors
from treelabel import (
    FORMATS,
    Dataset,
    Hierarchy,
    Scores,
    TunedRule,
    decide,
    evaluate,
    load_model,
    make_model,
    read,
    read_taxonomy,
    save_model,
    tune,
    write,
    write_predictions,
    write_taxonomy,
)
from treelabel.encoders.registry import ENCODERS, EncoderRow
from treelabel.models.check import CASES

Kind = Literal["data", "taxonomy", "predictions", "scores", "tuned", "model"]
DATA = {kind: Dataset.of(case.texts, case.labels, case.hierarchy) for kind, case in CASES.items()}
LEAF = DATA["leaf"]


@dataclass(frozen=True)
class Sample:
    """A good file or folder, and what it is."""

    name: str
    kind: Kind


def make_corpus(folder: Path) -> list[Sample]:
    """Write the examples to a folder; return what was written."""
    _register_words()
    folder.mkdir(parents=True, exist_ok=True)
    samples = [*_data(folder), *_taxonomies(folder), *_judged(folder), *_models(folder)]
    (folder / "samples.json").write_text(json.dumps([[sample.name, sample.kind] for sample in samples]))
    return samples


def load_corpus(folder: Path) -> list[Sample]:
    """Return what `make_corpus` wrote, in the same order."""
    _register_words()
    return [Sample(name, kind) for name, kind in json.loads((folder / "samples.json").read_text())]


def _register_words() -> None:
    """Make the encoder of some models known, in this process and in each that uses the examples."""
    if "words" not in ENCODERS:
        ENCODERS.add(EncoderRow("words", "sums of word vectors", WordVectors))


def _data(folder: Path) -> Iterator[Sample]:
    """Every format with every ending of a compression, and the shapes of JSON and CSV that others write."""
    features = sparse.csr_array(np.arange(3 * len(LEAF)).reshape(-1, 3) % 7 / 7, dtype=np.float32)
    numbered = Dataset(LEAF.ids, LEAF.texts, LEAF.labels, LEAF.hierarchy, features=features)
    for name, entry in FORMATS.items():
        if not entry.endings or "no labels" in entry.holds:
            continue
        data = numbered if "features" in entry.holds else LEAF
        for compression in ("",) if name in ("parquet", "xlsx", "arrow") else ("", ".gz", ".zst", ".bz2"):
            # Labels that are numbers mean nothing under the taxonomies that stand beside the others.
            file = f"{'numbers/' if name == 'libsvm' else ''}{name}{entry.endings[0]}{compression}"
            (folder / file).parent.mkdir(exist_ok=True)
            write(data[:12], folder / file, taxonomy=False)
            yield Sample(file, "data")
    paths = [[path.split(" > ") for path in row] for row in LEAF[:12].paths()]
    rows = [{"text": text, "labels": row} for text, row in zip(LEAF[:12].texts, paths, strict=True)]
    (folder / "array.json").write_text(json.dumps(rows))
    yield Sample("array.json", "data")
    (folder / "paths.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    yield Sample("paths.jsonl", "data")
    (folder / "semicolons.csv").write_text('text;category\n"a; b";pet > dog\n"c\nd";pet > cat\n')
    yield Sample("semicolons.csv", "data")


def _taxonomies(folder: Path) -> Iterator[Sample]:
    h = LEAF.hierarchy
    for ending in (".tsv", ".tsv.gz", ".csv", ".txt", ".json", ".taxonomy"):
        write_taxonomy(h, folder / f"taxonomy{ending}")
        yield Sample(f"taxonomy{ending}", "taxonomy")
    write_taxonomy(DATA["DAG"].hierarchy, folder / "dag.json")
    yield Sample("dag.json", "taxonomy")
    texts = {
        "nested-taxonomy.json": json.dumps({"pet": {"dog": ["terrier", "poodle"], "cat": {}}, "food": ["cake"]}),
        "children-taxonomy.json": json.dumps(
            {"name": "all", "children": [{"name": "pet", "children": [{"name": "dog"}]}]}
        ),
        "table-taxonomy.csv": "id,name,parent_id\n1,pet,\n2,dog,1\n3,cat,1\n",
        "skos.ttl": SKOS,
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
        yield Sample(name, "taxonomy")
    from rdflib import Graph

    for ending, form in ((".rdf", "xml"), (".nt", "nt"), (".jsonld", "json-ld")):
        Graph().parse(data=SKOS, format="turtle").serialize(folder / f"skos{ending}", form)
        yield Sample(f"skos{ending}", "taxonomy")


SKOS = """@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
@prefix e: <http://example.org/> .
e:pet a skos:Concept ; skos:prefLabel "pet"@en .
e:dog a skos:Concept ; skos:prefLabel "dog"@en ; skos:broader e:pet .
e:cat a skos:Concept ; skos:prefLabel "cat"@en ; skos:broader e:pet .
"""


def _judged(folder: Path) -> Iterator[Sample]:
    """Score files of both kinds, dense and sparse; predictions; tuned rules."""
    dense = make_model("linear").fit(LEAF).score(LEAF)
    for name, scores in (("dense", dense), ("sparse", dense.top_k(3))):
        for ending in (".npz", ".parquet"):
            scores.save(folder / f"scores-{name}{ending}")
            yield Sample(f"scores-{name}{ending}", "scores")
    for ending in (".jsonl", ".jsonl.gz"):
        write_predictions(decide(dense), folder / f"predictions{ending}", dense)
        yield Sample(f"predictions{ending}", "predictions")
    for rule in ("macro_f1", "micro_f1", "back_off(precision=0.9, confidence=0)"):
        name = f"tuned-{rule.partition('(')[0]}.json"
        tune(LEAF, dense, rule).save(folder / name)
        yield Sample(name, "tuned")
    for number, (rule, settings) in enumerate(fuzz.TUNED.items()):
        known = {"t": [0.5] * len(LEAF.hierarchy)} if rule == "threshold" else settings
        TunedRule(rule, known, LEAF.hierarchy.fingerprint).save(folder / f"tuned-{number}.json")
        yield Sample(f"tuned-{number}.json", "tuned")


def _models(folder: Path) -> Iterator[Sample]:
    """Every model, every head of linear with every kind of labels that it takes, and a network of our own."""
    for path in fuzz.save_models(folder):
        yield Sample(path.name, "model")
    scratch = make_model("neural", encoder="scratch", epochs=1, batch_size=8).fit(LEAF)
    save_model(scratch, folder / "neural scratch")
    yield Sample("neural scratch", "model")


# Using them


def _use_data(path: Path, corpus: Path) -> None:
    data = read(path)
    data.names()
    _ = data.closed_labels, list(data.texts[:3]), data.describe()


def _use_predictions(path: Path, corpus: Path) -> None:
    found = read(path, taxonomy=LEAF.hierarchy, need_text=False)
    if len(found) == len(LEAF):
        evaluate(LEAF, decisions=found.labels)


def _use_scores(path: Path, corpus: Path) -> None:
    fuzz.use_scores(Scores.load(path))


def _use_tuned(path: Path, corpus: Path) -> None:
    scores = Scores.load(corpus / "scores-dense.npz")
    frequencies = np.full(len(scores.hierarchy), 5)
    decide(scores, TunedRule.load(path), train_frequencies=frequencies, train_documents=10)


def _use_model(path: Path, corpus: Path) -> None:
    model = load_model(path)
    model.predict(fuzz.TEXTS)
    decide(model.score(fuzz.TEXTS).top_k(2), "optimal:hf1")


USERS: dict[Kind, Callable[[Path, Path], None]] = {
    "data": _use_data,
    "taxonomy": lambda path, corpus: _ignore(read_taxonomy(path)),
    "predictions": _use_predictions,
    "scores": _use_scores,
    "tuned": _use_tuned,
    "model": _use_model,
}


def _ignore(found: Hierarchy) -> None:
    """Have a hierarchy read, and nothing more."""


def use(kind: Kind, path: Path, corpus: Path) -> None:
    """Read a file or folder and work with what was read; errors are raised as they come."""
    USERS[kind](path, corpus)
