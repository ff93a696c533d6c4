"""The command line, called as a function and as a program: what it prints, writes, refuses, and how it ends."""

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import treelabel
from tests.helpers import Ended, Run
from treelabel.cli import main
from treelabel.cli.app import app
from treelabel.core.errors import TreelabelError
from treelabel.data import Dataset, load_sample, read, read_taxonomy
from treelabel.hierarchy import Hierarchy
from treelabel.scores import Scores

PETS = """id,text,category,year
a,woof,pet > dog,2020
b,meow,pet > cat,2021
c,hello,pet,2022
d,Woof,pet > cat,2023
"""
COMMANDS = [
    command.callback.__name__.replace("_", "-") for command in app.registered_commands if command.callback is not None
]
# Where processes are looked into, only Linux says what is needed.
linux_only = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs Linux's /proc")


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    file = tmp_path / "pets.csv"
    file.write_text(PETS)
    return file


@pytest.fixture
def dag(tmp_path: Path) -> Path:
    file = tmp_path / "dag.taxonomy.tsv"
    file.write_text("A\tX\nB\tX\nX\tY\n")
    return file


@pytest.fixture
def scores(tmp_path: Path) -> Path:
    file = tmp_path / "scores.npz"
    hierarchy = Hierarchy.from_paths(["A > B", "A > C", "D"])
    Scores.from_leaves(hierarchy, ["B", "C", "D"], [[0.5, 0.25, 0.25], [0.0, 0.0, 1.0]], ids=["x", "y"]).save(file)
    return file


def program(*arguments: str | Path, **options: Any) -> "subprocess.Popen[str]":
    """Start the command line as a process of its own, with its streams in pipes."""
    # The environment is named: without it, a child gets the COLUMNS that Python's readline sets behind os.environ.
    pipes: dict[str, Any] = {
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        "text": True,
        "env": dict(os.environ),
    }
    code = "from treelabel.cli import main; main()"
    return subprocess.Popen([sys.executable, "-c", code, *map(str, arguments)], **(pipes | options))


def ended(process: "subprocess.Popen[str]") -> Ended:
    out, err = process.communicate(timeout=120)
    return Ended(process.returncode, out, err)


def succeeded(result: Ended) -> str:
    assert (result.code, result.err) == (0, "")
    return result.out


def table(out: str) -> dict[str, str]:
    """Read a table of names and values."""
    return {name: value.strip() for name, _, value in (line.partition("  ") for line in out.splitlines())}


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# Help and version


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_every_command_shows_an_example(command: str, run: Run) -> None:
    out = succeeded(run(command, "--help"))
    assert out.startswith(f"Usage: treelabel {command} ")
    assert "Example" in out
    assert f"\n    treelabel {command}" in out
    assert succeeded(run(command, "-h")) == out


def test_help_lists_every_command_and_comes_without_arguments_too(run: Run) -> None:
    out = succeeded(run("--help"))
    assert {"inspect", "convert", "split", "sample", "demo"} <= set(COMMANDS)
    assert all(f"\n  {command} " in out for command in COMMANDS)
    assert succeeded(run()) == succeeded(run("--debug")) == out


def test_version_is_printed(run: Run) -> None:
    assert succeeded(run("--version")) == f"treelabel {treelabel.__version__}\n"


def test_the_installed_program_is_this_one() -> None:
    script = Path(sys.executable).with_name("treelabel")
    done = subprocess.run([script, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"treelabel {treelabel.__version__}\n"


# inspect


def test_inspect_counts_documents_and_labels(pets: Path, run: Run) -> None:
    shown = table(succeeded(run("inspect", pets)))
    assert shown["file"] == str(pets)
    assert shown["columns"] == "text: text, labels: category, id: id"
    assert shown["hierarchy"] == "made of the labels"
    assert shown["documents"] == "4"
    assert shown["nodes"] == "3 (2 leaves), tree of depth 2"
    assert shown["regime"] == "partial path (75.0% single path, 25.0% partial path)"
    assert shown["further columns"] == "year"
    values = json.loads(succeeded(run("inspect", pets, "--json")))
    findings = values.pop("findings")
    assert [finding["kind"] for finding in findings] == ["contradictions", "rare_labels"]
    assert values == read(pets).describe().to_json() | {"choices": dict(read(pets).choices)}
    assert (values["documents"], values["nodes_per_level"]) == (4, [1, 2])


def test_inspect_takes_columns_and_separators(tmp_path: Path, run: Run) -> None:
    file = tmp_path / "odd.txt"
    file.write_bytes("nr\ttitel\tinhalt\tklasse\n7\tä\tö\ta/b;c\n".encode("latin-1"))
    options = ["--text", "titel", "--text", "inhalt", "--labels", "klasse", "--id", "nr", "--sep", "/"]
    options += ["--label-sep", ";", "--format", "csv", "--encoding", "latin-1", "--delimiter", "\\t", "--json"]
    values = json.loads(succeeded(run("inspect", file, *options)))
    assert (values["documents"], values["nodes"], values["given_labels_per_document"]) == (1, 3, 2)
    assert values["extra_columns"] == []


def test_inspect_takes_frequencies_from_a_training_file(pets: Path, tmp_path: Path, run: Run) -> None:
    train = tmp_path / "train.csv"
    train.write_text("text,category\nwoof,pet > dog\n")
    taxonomy = tmp_path / "all.tsv"
    taxonomy.write_text("pet\tdog\npet\tcat\n")
    shown = table(succeeded(run("inspect", pets, "--train", train, "--taxonomy", taxonomy)))
    assert shown["labels never seen"] == "1 (1 leaves) in training"
    assert shown["documents with such labels"] == "2"


def test_inspect_describes_a_taxonomy(dag: Path, run: Run) -> None:
    shown = table(succeeded(run("inspect", dag)))
    hierarchy = read_taxonomy(dag)
    assert shown == {
        "read as": "a parent and its children on each line",
        "nodes": "4 (1 leaves), DAG of depth 3",
        "nodes per level": "2-1-1",
        "unique names": "yes",
        "fingerprint": hierarchy.fingerprint,
    }
    values = json.loads(succeeded(run("inspect", dag, "--json")))
    assert (values["nodes"], values["is_tree"], values["fingerprint"]) == (4, False, hierarchy.fingerprint)


@pytest.mark.parametrize("ending", ["npz", "parquet"])
def test_inspect_describes_scores(scores: Path, ending: str, run: Run) -> None:
    file = scores.with_suffix(f".{ending}")
    Scores.load(scores).save(file)
    shown = table(succeeded(run("inspect", file)))
    assert shown["scores"] == "Scores(2 documents x 4 nodes, dense)"
    assert shown["coherence gap"] == "0"
    assert shown["nodes"] == "4 (3 leaves), tree of depth 2"
    values = json.loads(succeeded(run("inspect", file, "--json")))
    assert (values["documents"], values["sparse"], values["coherence_gap"]) == (2, False, 0)
    assert values["hierarchy"]["nodes"] == 4


# convert


def same(one: Dataset, two: Dataset) -> bool:
    return list(one.texts) == list(two.texts) and one.paths() == two.paths() and one.hierarchy == two.hierarchy


@pytest.mark.parametrize(
    ("name", "lost"),
    [
        ("out.csv", None),
        ("out.tsv", None),
        ("out.jsonl", None),
        ("out.jsonl.gz", None),
        ("out.csv.zst", None),
        ("out.parquet", None),
        ("out.ft", "ids, columns year"),
        ("out.htc", "ids, columns year"),
    ],
)
def test_convert_writes_every_format_and_tells_what_is_lost(pets: Path, name: str, lost: str | None, run: Run) -> None:
    target = pets.parent / name
    result = run("convert", pets, target)
    assert result.code == 0
    assert result.err == ("" if lost is None else f"treelabel: note: this format has no place for {lost}\n")
    beside = pets.parent / "out.taxonomy.tsv"
    told = [f"wrote {target}: 4 documents"]
    # Paths say the hierarchy; names alone, as benchmarks have them, do not.
    assert result.out.splitlines() == told + ([f"wrote {beside}: their hierarchy"] if name == "out.htc" else [])
    before, after = read(pets), read(target)
    assert same(before, after)
    if lost is None:
        assert list(after.ids) == ["a", "b", "c", "d"]
        assert list(map(str, after.extra["year"].to_pylist())) == ["2020", "2021", "2022", "2023"]


def test_convert_keeps_numbered_features(tmp_path: Path, run: Run) -> None:
    source, target = tmp_path / "in.xmc", tmp_path / "out.svm"
    source.write_text("2 3 4\n0,3 0:1 2:0.5\n 1:0.25\n")
    assert "wrote" in run("convert", source, target).out
    before, after = read(source), read(target)
    assert before.features is not None
    assert after.features is not None
    assert (before.features != after.features).nnz == 0
    assert before.names() == after.names() == [["0", "3"], []]


def test_convert_can_name_formats_write_paths_and_leave_the_taxonomy_away(pets: Path, run: Run) -> None:
    target = pets.parent / "out.dat"
    succeeded(run("convert", pets, target, "--to-format", "jsonl", "--labels-as", "paths", "--no-write-taxonomy"))
    rows = [json.loads(line) for line in target.read_text().splitlines()]
    assert [row["labels"] for row in rows] == [["pet > dog"], ["pet > cat"], ["pet"], ["pet > cat"]]
    assert sorted(path.name for path in pets.parent.iterdir()) == ["out.dat", "pets.csv"]


def test_convert_joins_duplicates(pets: Path, run: Run) -> None:
    target = pets.parent / "out.jsonl"
    assert "3 documents" in succeeded(run("convert", pets, target, "--deduplicate"))
    data = read(target)
    assert dict(zip(data.ids, data.names(), strict=True)) == {"a": ["dog", "cat"], "b": ["cat"], "c": ["pet"]}


def test_convert_cuts_the_hierarchy(pets: Path, run: Run) -> None:
    target = pets.parent / "out.jsonl"
    succeeded(run("convert", pets, target, "--cut", "1"))
    assert read(target).names() == [["pet"]] * 4
    assert read(target).hierarchy.names == ("pet",)


def test_convert_lets_every_document_end_in_a_leaf(pets: Path, run: Run) -> None:
    target = pets.parent / "out.parquet"
    succeeded(run("convert", pets, target, "--other-leaves"))
    data = read(target)
    ends = data.hierarchy.most_specific(data.labels)
    assert [data.hierarchy.names[node] for node in ends.indices] == ["dog", "cat", "other [pet]", "cat"]


def test_convert_unfolds_a_dag(dag: Path, run: Run) -> None:
    source, target = dag.parent / "in.jsonl", dag.parent / "out.parquet"
    source.write_text('{"text": "t", "labels": ["A > X"]}\n')
    succeeded(run("convert", source, target, "--taxonomy", dag, "--unfold"))
    data = read(target)
    assert data.hierarchy.is_tree
    assert {"X [A]", "X [B]"} <= set(data.hierarchy.names)


def test_convert_does_several_things_in_one_go(pets: Path, run: Run) -> None:
    target = pets.parent / "out.jsonl.gz"
    succeeded(run("convert", pets, target, "--deduplicate", "--cut", "2", "--other-leaves"))
    rows = [json.loads(line) for line in gzip.decompress(target.read_bytes()).splitlines()]
    assert [row["id"] for row in rows] == ["a", "b", "c"]
    assert "pet > other [pet]" in rows[2]["labels"]


@pytest.mark.parametrize("name", ["out.taxonomy.tsv", "out.taxonomy.csv", "out.taxonomy.json", "out.taxonomy"])
def test_convert_takes_taxonomies(dag: Path, name: str, run: Run) -> None:
    target = dag.parent / name
    assert succeeded(run("convert", dag, target)) == f"wrote {target}: 4 nodes\n"
    assert read_taxonomy(target).edges() == read_taxonomy(dag).edges()


def test_convert_changes_taxonomies_too(dag: Path, run: Run) -> None:
    target = dag.parent / "tree.taxonomy.txt"
    assert succeeded(run("convert", dag, target, "--unfold", "--cut", "2")) == f"wrote {target}: 4 nodes\n"
    assert target.read_text().splitlines() == ["A", "B", "A > X [A]", "B > X [B]"]


def test_convert_takes_scores_both_ways_bit_for_bit(scores: Path, run: Run) -> None:
    parquet, back = scores.with_suffix(".parquet"), scores.with_name("back.npz")
    assert succeeded(run("convert", scores, parquet)) == f"wrote {parquet}: scores of 2 documents\n"
    succeeded(run("convert", parquet, back))
    succeeded(run("convert", parquet, scores.with_name("again.parquet")))
    first = Scores.load(scores)
    for other in (Scores.load(parquet), Scores.load(back), Scores.load(scores.with_name("again.parquet"))):
        assert other.dense().tobytes() == first.dense().tobytes()
        assert (other.ids, other.hierarchy) == (first.ids, first.hierarchy)


def test_convert_changes_the_hierarchy_of_scores_too(scores: Path, run: Run) -> None:
    target = scores.with_name("cut.npz")
    succeeded(run("convert", scores, target, "--cut", "1"))
    assert Scores.load(target).dense().tolist() == [[0.75, 0.25], [0.0, 1.0]]
    deep = Hierarchy.from_edges([("A", "X"), ("B", "X")])
    Scores(deep, np.array([[0.5, 0.25, 0.125]])).save(scores)
    succeeded(run("convert", scores, target, "--unfold", "--force"))
    assert Scores.load(target).hierarchy.names == ("A", "B", "X [A]", "X [B]")


# split


def read_parts(folder: Path) -> dict[str, list[str]]:
    return {path.stem: list(read(path, need_text=False).ids) for path in folder.glob("*.jsonl")}


@pytest.fixture(scope="module")
def nouns(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A part of the sample, with a column to group by and one to order by."""
    file = tmp_path_factory.mktemp("nouns") / "nouns.jsonl"
    data = load_sample()[::20]
    rows = zip(data.ids, data.texts, data.paths(), strict=True)
    lines = [
        json.dumps({"id": name, "text": text, "labels": labels, "group": at % 40, "time": f"{at * 7 % 997:03}"})
        for at, (name, text, labels) in enumerate(rows)
    ]
    file.write_text("".join(f"{line}\n" for line in lines))
    return file


@pytest.mark.parametrize("by", ["stratified", "random", "group", "time"])
def test_split_puts_every_document_into_one_part(nouns: Path, by: str, tmp_path: Path, run: Run) -> None:
    column = {"group": ["--column", "group"], "time": ["--column", "time"]}.get(by, [])
    folder = tmp_path / "new" / "parts"
    out = succeeded(run("split", nouns, folder, "--parts", "train=0.7,test=0.3", "--by", by, *column))
    parts = read_parts(folder)
    data = read(nouns)
    assert out == "".join(
        f"{folder / f'{name}.jsonl'!s:<{len(str(folder / 'train.jsonl'))}}  {len(parts[name])} documents\n"
        for name in ("train", "test")
    )
    assert sorted(parts["train"] + parts["test"]) == sorted(data.ids)
    assert len(parts["train"]) == pytest.approx(0.7 * len(data), abs=len(data) / 40 + 1)
    assert read_taxonomy(folder / "taxonomy.tsv") == data.hierarchy
    if by in ("group", "time"):
        values = dict(zip(data.ids, data.extra[by].to_pylist(), strict=True))
        train, test = ({values[name] for name in parts[part]} for part in ("train", "test"))
        assert not train & test
        assert by == "group" or max(train) < min(test)


def test_split_is_the_same_for_the_same_seed_and_not_for_another(nouns: Path, tmp_path: Path, run: Run) -> None:
    for folder, seed in (("one", "3"), ("two", "3"), ("three", "4")):
        succeeded(run("split", nouns, tmp_path / folder, "--seed", seed))
    one, two, three = (contents(tmp_path / folder) for folder in ("one", "two", "three"))
    assert set(one) == {"train.jsonl", "valid.jsonl", "test.jsonl", "taxonomy.tsv"}
    assert one == two
    assert one["test.jsonl"] != three["test.jsonl"]


def test_split_takes_few_documents_a_class(pets: Path, run: Run) -> None:
    folder = pets.parent / "parts"
    arguments = ["split", pets, folder, "--per-class", "1", "--to-format", "parquet", "--json"]
    assert json.loads(succeeded(run(*arguments))) == {"train": 3, "test": 1}
    assert {name for (name,) in read(folder / "train.parquet").names()} == {"pet", "dog", "cat"}


def test_split_replaces_parts_only_when_told_to(pets: Path, run: Run) -> None:
    folder = pets.parent / "parts"
    succeeded(run("split", pets, folder, "--by", "random", "--parts", "a=0.5,b=0.5"))
    before = contents(folder)
    arguments = ["split", pets, folder, "--by", "random", "--parts", "c=0.25,b=0.75"]
    refused = run(*arguments)
    assert refused.err == (
        f"treelabel: {folder / 'b.jsonl'} is there already; choose another folder, or replace it with --force\n"
    )
    assert contents(folder) == before
    replaced = run(*arguments, "--force")
    assert replaced == (0, replaced.out, f"treelabel: note: {folder} also holds a.jsonl, not of this split\n")
    assert set(contents(folder)) == {"a.jsonl", "b.jsonl", "c.jsonl", "taxonomy.tsv"}
    assert contents(folder)["b.jsonl"] != before["b.jsonl"]


def test_split_leaves_a_taxonomy_that_says_the_same_and_refuses_to_replace_another(pets: Path, run: Run) -> None:
    taxonomy = pets.parent / "taxonomy.tsv"
    rich = "parent\tchild\tnote\n\tpet\tall\npet\tdog\tloud\npet\tcat\tproud\n"
    taxonomy.write_text(rich)
    succeeded(run("split", pets, pets.parent, "--parts", "a=0.5,b=0.5"))
    assert taxonomy.read_text() == rich
    own = pets.parent / "own.tsv"
    own.write_text("pet\tcat\npet\tdog\npet\tbird\n")
    refused = run("split", pets, pets.parent, "--taxonomy", own, "--parts", "c=0.5,d=0.5")
    assert refused.code == 2
    assert f"{taxonomy} is there already" in refused.err
    assert taxonomy.read_text() == rich
    assert run("split", pets, pets.parent, "--taxonomy", own, "--parts", "c=0.5,d=0.5", "--force").code == 0
    assert read_taxonomy(taxonomy) == read_taxonomy(own)


# sample and demo


def test_sample_is_described_or_written(tmp_path: Path, run: Run) -> None:
    values = json.loads(succeeded(run("sample", "--json")))
    assert values["documents"] == len(load_sample()) > 5000
    assert table(succeeded(run("sample")))["documents"] == f"{len(load_sample()):,}"
    target = tmp_path / "nouns.csv"
    assert succeeded(run("sample", target)).splitlines() == [
        f"wrote {target}",
        f"wrote {tmp_path / 'nouns.taxonomy.tsv'}",
    ]
    assert same(read(target), load_sample())


def test_demo_does_the_main_job(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    out = succeeded(run("demo"))
    assert out.count("the same\n") == 3
    assert "DIFFERENT" not in out
    for name in ("train", "valid", "test"):
        assert f"\n  {name} " in out
    report = tmp_path / "demo-output" / "report.html"
    assert str(report.resolve()) in out
    assert report.stat().st_size < 5_000_000
    assert list(tmp_path.iterdir()) == [report.parent]


# Mistakes


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["inspekt", "pets.csv"], "No such command 'inspekt'. Did you mean 'inspect'? (see 'treelabel --help')"),
        (["frobnicate"], "No such command 'frobnicate'"),
        (["inspect", "pets.csv", "--txt", "a"], "No such option: --txt"),
        (["inspect"], "Missing argument 'FILE' (see 'treelabel inspect --help')"),
        (["convert", "pets.csv"], "Missing argument 'OUT'"),
        (["inspect", "pets.csv", "--text"], "--text"),
        (["sample", "a.csv", "b.csv"], "unexpected extra argument"),
        (["convert", "pets.csv", "out.csv", "--cut", "two"], "Invalid value for '--cut'"),
        (["inspect", "pats.csv"], "pats.csv: no such file; did you mean pets.csv"),
        (["inspect", "nowhere/pets.csv"], "nowhere/pets.csv: no such file; there is no folder nowhere"),
        (["inspect", "pets.csv", "--taxonomy", "nope.tsv"], "nope.tsv: no such file"),
        (["inspect", "empty.csv"], "empty.csv: the file is empty"),
        (["inspect", "empty.jsonl"], "empty.jsonl: no documents"),
        (["inspect", "empty.npz"], "empty.npz: not a score file of treelabel, or damaged"),
        (["inspect", "empty.parquet"], "empty.parquet: not a Parquet file"),
        (["inspect", "empty.taxonomy.tsv"], "empty.taxonomy.tsv: no edges"),
        (["inspect", "."], "is a folder, expected a file"),
        (["inspect", "pets.xyz"], "pets.xyz: cannot tell the format by the ending '.xyz'"),
        (["inspect", "pets.csv", "--format", "docx"], "unknown format 'docx'; there are: csv, tsv"),
        (["inspect", "pets.csv", "--on-error", "ignore"], "--on-error is 'ignore', expected stop or skip"),
        (["inspect", "pets.csv", "--lists", "tree"], "--lists is 'tree', expected labels or path"),
        (["inspect", "pets.csv", "--labels", "klass"], "pets.csv:2: no column 'klass' for the labels"),
        (["inspect", "pets.csv", "--encoding", "klingon"], "klingon"),
        (["inspect", "pets.csv", "--delimiter", "::"], "the delimiter is '::', expected one character"),
        (["inspect", "ragged.csv"], "ragged.csv:3: 1 fields, but the header has 2: text, category"),
        (["convert", "pets.csv", "out.xyz"], "out.xyz: cannot tell the format"),
        (["convert", "pets.csv", "out.csv", "--to-format", "docx"], "unknown format 'docx'"),
        (["convert", "pets.csv", "out.csv", "--labels-as", "ids"], "--labels-as is 'ids', expected auto, names or"),
        (["convert", "pets.csv", "out.csv", "--cut", "0"], "cannot cut at depth 0"),
        (["convert", "pets.csv", "nowhere/out.csv"], "the folder nowhere does not exist; make it first"),
        (["convert", "pets.csv", "pets.csv/out.csv"], "pets.csv is a file, expected a folder"),
        (["convert", "pets.csv", "folder.csv"], "folder.csv: is a folder, expected the name of a file to write"),
        (["convert", "pets.csv", "pipe.csv"], "pipe.csv: is not an ordinary file"),
        (["convert", "pets.csv", "out.xmc"], "this format holds numeric features"),
        (["convert", "pets.csv", "out.npz"], "pets.csv: scores are stored as .npz or .parquet"),
        (["convert", "scores.npz", "out.csv"], "out.csv: scores are stored as .npz or .parquet"),
        (["convert", "scores.npz", "out.npz", "--other-leaves"], "no documents, so --other-leaves has nothing"),
        (["convert", "dag.taxonomy.tsv", "out.taxonomy.tsv", "--deduplicate"], "no documents, so --deduplicate"),
        (["convert", "dag.taxonomy.tsv", "out.jsonl"], "cannot write a taxonomy with this ending"),
        (["convert", "dag.taxonomy.tsv", "out.taxonomy.txt"], "the hierarchy is a DAG: 'X' has 2 parents"),
        (["split", "pets.csv", "parts", "--parts", "train"], "--parts is 'train', expected name=share"),
        (["split", "pets.csv", "parts", "--parts", "a=0.5,b=x"], "--parts is 'a=0.5,b=x', expected name=share"),
        (["split", "pets.csv", "parts", "--parts", "=0.5,b=0.5"], "expected name=share"),
        (["split", "pets.csv", "parts", "--parts", "../a=0.5,b=0.5"], "expected name=share"),
        (["split", "pets.csv", "parts", "--parts", "a=0.5,b=0.6"], "shares above 0 that sum to 1"),
        (["split", "pets.csv", "parts", "--parts", "a=nan,b=0.5"], "shares above 0 that sum to 1"),
        (["split", "pets.csv", "parts", "--by", "luck"], "unknown way to split 'luck'"),
        (["split", "pets.csv", "parts", "--by", "time"], "splitting by time needs the name of a column"),
        (["split", "pets.csv", "parts", "--by", "time", "--column", "day"], "no column 'day' to split by"),
        (["split", "pets.csv", "parts", "--per-class", "0"], "at least 1 document per class"),
        (["split", "pets.csv", "parts", "--to-format", "docx"], "unknown format 'docx'"),
        (["split", "pets.csv", "pets.csv"], "pets.csv: File exists"),
        (["sample", "nowhere/out.csv"], "the folder nowhere does not exist"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_mistakes_end_with_code_2_and_one_line(
    arguments: list[str],
    message: str,
    pets: Path,
    dag: Path,
    scores: Path,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = pets.parent
    monkeypatch.chdir(folder)
    for name in ("empty.csv", "empty.jsonl", "empty.npz", "empty.parquet", "empty.taxonomy.tsv", "pets.xyz"):
        Path(name).touch()
    Path("ragged.csv").write_text("text,category\nwoof,dog\nragged\nmeow,cat\n")
    Path("folder.csv").mkdir()
    os.mkfifo("pipe.csv")
    before = contents(folder), sorted(folder.iterdir())
    result = run(*arguments)
    assert result.code == 2
    assert result.out == ""
    assert result.err.startswith("treelabel: ")
    assert result.err.endswith("\n")
    assert len(result.err.splitlines()) == 1
    assert message in result.err
    assert (contents(folder), sorted(folder.iterdir())) == before


def test_debug_shows_where_a_mistake_was_found(pets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--debug", "inspect", "nope.csv"], ["inspect", "nope.csv", "--debug"]):
        with pytest.raises(TreelabelError, match="no such file"):
            main(arguments)
    assert capsys.readouterr() == ("", "")
    result = ended(program("inspect", pets.with_name("nope.csv"), "--debug"))
    assert result.code == 1
    assert "Traceback" in result.err
    assert "TreelabelError" in result.err.splitlines()[-1]


def test_what_nobody_expected_ends_with_code_1_and_one_line(
    pets: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def boom(*_: Any, **__: Any) -> Dataset:
        raise RuntimeError("first line\nsecond line")

    monkeypatch.setattr(import_module("treelabel.data.read"), "read", boom)
    result = run("inspect", pets)
    assert (result.code, result.out) == (1, "")
    assert result.err == (
        "treelabel: this should not have happened: RuntimeError: first line second line; see it whole with --debug\n"
    )
    with pytest.raises(RuntimeError, match="first line"):
        main(["--debug", "inspect", str(pets)])


def caused(cause: BaseException) -> SystemError:
    """Make the error of a compiled loop that was interrupted."""
    error = SystemError("returned a result with an exception set")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (MemoryError(), 2, "out of memory; work on fewer documents at a time"),
        (OSError(28, "No space left on device", "out.csv"), 2, "out.csv: No space left on device"),
        (OSError("something odd"), 2, "something odd"),
        (KeyboardInterrupt(), 130, "interrupted; every file is whole, or as it was"),
        (caused(KeyboardInterrupt()), 130, "interrupted; every file is whole, or as it was"),
        (caused(caused(KeyboardInterrupt())), 130, "interrupted; every file is whole, or as it was"),
    ],
)
def test_what_the_machine_does_is_told_in_one_line(
    error: BaseException, code: int, message: str, pets: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> Dataset:
        raise error

    monkeypatch.setattr(import_module("treelabel.data.read"), "read", fail)
    assert run("inspect", pets) == (code, "", f"treelabel: {message}\n")


@pytest.mark.slow
def test_skipped_rows_are_counted(tmp_path: Path) -> None:
    file, target = tmp_path / "ragged.csv", tmp_path / "out.jsonl"
    file.write_text("text,category\nwoof,dog\nragged\nmeow,cat\na,b,c\n")
    result = ended(program("convert", file, target, "--on-error", "skip"))
    assert result.code == 0
    assert result.err == (
        f"treelabel: note: {file}: skipped 2 rows: {file}:3: 1 fields, but the header has 2: text, category; "
        f"{file}:5: 3 fields, but the header has 2: text, category\n"
    )
    assert result.out.startswith(f"wrote {target}: 2 documents\n")
    values = json.loads(ended(program("inspect", file, "--on-error", "skip", "--json")).out)
    assert values["documents"] == 2


# Pipes, terminals and signals


@pytest.mark.slow
def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        process = program("sample", "--json", stdout=writing)
    finally:
        os.close(writing)
    assert ended(process)[::2] == (0, "")
    shell = f"{sys.executable} -c 'from treelabel.cli import main; main()' sample --json | head -1"
    piped = subprocess.run(shell, shell=True, capture_output=True, text=True, check=True)
    assert (piped.stdout, piped.stderr) == ("{\n", "")


def test_in_a_pipe_nothing_but_the_result_is_printed(pets: Path) -> None:
    result = ended(program("convert", pets, pets.parent / "out.jsonl"))
    assert (result.code, result.err) == (0, "")
    assert len(result.out.splitlines()) == 1


@linux_only
def test_on_a_terminal_a_bar_shows_how_far_reading_is(pets: Path) -> None:
    import pty

    try:
        terminal, end = pty.openpty()
    except OSError:
        pytest.skip("this machine has no terminal devices (/dev/pts)")
    process = program("inspect", pets, stderr=end, env=os.environ | {"TERM": "xterm", "COLUMNS": "100"})
    os.close(end)
    shown = b""
    try:
        while part := os.read(terminal, 4096):
            shown += part
    except OSError:  # Linux's way of saying that the other end is closed
        pass
    finally:
        os.close(terminal)
    out = process.communicate(timeout=120)[0]
    assert process.returncode == 0
    assert b"reading pets.csv" in shown
    assert b"%" in shown
    # What is printed does not mix with the bar, which is gone at the end.
    assert table(out)["documents"] == "4"
    assert b"\x1b[2K" in shown.splitlines()[-1]


def wait_until(condition: Callable[[], bool], process: "subprocess.Popen[str]") -> None:
    for _ in range(6000):
        if condition():
            return
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    pytest.fail("waited for a minute")


@linux_only
@pytest.mark.parametrize("phase", ["reading", "writing"])
@pytest.mark.slow
def test_ctrl_c_leaves_nothing_behind(phase: str, tmp_path: Path) -> None:
    source, target = tmp_path / "in.csv", tmp_path / "out.jsonl"
    source.write_text(
        "text,category\n" + "".join(f"the text of row {row},label {row % 50}\n" for row in range(150_000))
    )
    target.write_text("what was there before\n")
    before = contents(tmp_path)
    # A shell that starts the tests in the background may have them ignore Ctrl-C, and children inherit that.
    default = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    process = program("convert", source, target, "--force", preexec_fn=default)

    def has_begun() -> bool:
        if phase == "writing":
            return any(path.name.startswith(".treelabel-") and path.stat().st_size > 0 for path in tmp_path.iterdir())
        try:
            opened = [os.path.realpath(entry) for entry in Path(f"/proc/{process.pid}/fd").iterdir()]
        except FileNotFoundError:
            # A file was closed while the list was read.
            return False
        return str(source) in opened

    wait_until(has_begun, process)
    process.send_signal(signal.SIGINT)
    result = ended(process)
    assert result == (130, "", "treelabel: interrupted; every file is whole, or as it was\n")
    assert contents(tmp_path) == before


# What is imported

HEAVY = ("torch", "sklearn", "matplotlib", "ray", "numba", "scipy", "pandas", "pyarrow", "numpy", "typer", "rich")


def imported(code: str, among: tuple[str, ...]) -> list[str]:
    """Run code in a new process and list the packages that it loaded."""
    code += f"\nimport sys; sys.stderr.write(' '.join(name for name in {among!r} if name in sys.modules))"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stderr.split()


def test_importing_treelabel_loads_next_to_nothing() -> None:
    assert imported("import treelabel", HEAVY) == []
    # The check can fail:
    assert "scipy" in imported("import treelabel; treelabel.Hierarchy", HEAVY)
    # Loops are compiled, or their machine code is loaded, when they are called.
    assert "numba" not in imported("import treelabel; treelabel.Hierarchy; treelabel.make_model('linear')", HEAVY)


@pytest.mark.slow
def test_nothing_loads_what_only_some_need() -> None:
    code = "import treelabel\nfor name in treelabel.__all__: getattr(treelabel, name)"
    assert imported(code, ("torch", "matplotlib", "jinja2", "ray", "networkx", "rdflib", "sklearn")) == []
    # What a model is checked on is made at once, and Arrow then loads pandas where there is one.
    without = code.replace(": getattr", ":\n  if name != 'check_model': getattr")
    assert imported(without, ("pandas",)) == []


def test_help_loads_no_compiled_code() -> None:
    code = "from treelabel.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass"
    assert imported(code, ("numba", "pyarrow", "scipy", "numpy", "sklearn", "pandas", "torch")) == []


@pytest.mark.parametrize("command", ["models", "metrics", "rules", "encoders"])
def test_lists_load_no_torch(command: str) -> None:
    code = f"from treelabel.cli import main\ntry: main(['{command}'])\nexcept SystemExit: pass"
    assert imported(code, ("torch", "transformers", "sklearn", "numba")) == []


@pytest.mark.parametrize("command", [["metrics"], ["metrics", "hf1"], ["rules"], ["models"], ["models", "linear"]])
def test_lists_are_as_wide_as_the_terminal(run: Run, monkeypatch: pytest.MonkeyPatch, command: list[str]) -> None:
    words = {}
    for width in (80, 120):
        monkeypatch.setenv("COLUMNS", str(width))
        lines = succeeded(run(*command)).splitlines()
        assert max(map(len, lines)) <= width
        words[width] = " ".join(lines).split()
    assert words[80] == words[120]


def test_unknown_names_are_refused_with_those_that_exist() -> None:
    with pytest.raises(AttributeError, match=r"treelabel has no 'Hirarchy'; it has .*Hierarchy"):
        getattr(treelabel, "Hirarchy")  # noqa: B009  a type checker refuses treelabel.Hirarchy
    assert set(treelabel.__all__) < set(dir(treelabel))


def test_convert_keeps_the_taxonomy_of_another_file_of_the_same_name(pets: Path, run: Run) -> None:
    run("sample", pets.parent / "nouns.csv")
    taxonomy = pets.parent / "nouns.taxonomy.tsv"
    before = taxonomy.read_bytes()
    refused = run("convert", pets.parent / "nouns.csv", pets.parent / "nouns.jsonl", "--cut", "2")
    assert refused.code == 2
    assert "nouns.taxonomy.tsv is there already and holds another hierarchy" in refused.err
    assert (taxonomy.read_bytes(), (pets.parent / "nouns.jsonl").exists()) == (before, False)
    assert run("convert", pets.parent / "nouns.csv", pets.parent / "nouns.jsonl", "--cut", "2", "--force").code == 0
    assert taxonomy.read_bytes() != before


def test_convert_prints_json(pets: Path, run: Run) -> None:
    folder = pets.parent
    run("sample", folder / "nouns.csv")
    told = run("convert", folder / "nouns.csv", folder / "n.jsonl", "--json").json
    assert told == {"written": [str(folder / "n.jsonl"), str(folder / "n.taxonomy.tsv")], "documents": 8770}
    told = run("convert", folder / "n.taxonomy.tsv", folder / "cut.taxonomy.tsv", "--cut", "1", "--json").json
    assert told == {"written": [str(folder / "cut.taxonomy.tsv")], "nodes": 10}


def test_without_a_taxonomy_labels_are_written_as_paths(pets: Path, run: Run) -> None:
    run("sample", pets.parent / "nouns.csv")
    alone = pets.parent / "alone" / "nouns.csv"
    alone.parent.mkdir()
    succeeded(run("convert", pets.parent / "nouns.csv", alone, "--no-write-taxonomy"))
    assert "body part > bone" in alone.read_text()
    assert not list(alone.parent.glob("*taxonomy*"))


@pytest.mark.slow
def test_a_stop_by_sigterm_leaves_no_half_file(tmp_path: Path) -> None:
    source = tmp_path / "long.csv"
    source.write_text("text,label\n" + "some words here,a > b\n" * 400_000)
    process = program("convert", source, tmp_path / "out.jsonl")
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob(".treelabel-*")) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    assert ended(process) == (
        143,
        "",
        "treelabel: terminated; every file is whole, or as it was\n",
    )
    assert [path.name for path in tmp_path.iterdir()] == ["long.csv"]
