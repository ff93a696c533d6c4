"""Files that are made to do harm, or are merely odd: bombs, pipes, links, control characters, formulas, long names."""

import gzip
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import ZipFile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers import Run, put, read_text
from tests.strategies import examples
from treelabel import Dataset, Hierarchy, Limits, TreelabelError, make_model, read, read_taxonomy, write, write_taxonomy
from treelabel.core.errors import LONGEST_MESSAGE, UNPRINTABLE, printable, quote, shorten
from treelabel.core.limits import parse_limits
from treelabel.data.columns import unprintable
from treelabel.data.io.cells import MARKER, EscapedFormulasWarning, escape, unescape
from treelabel.data.io.format import ReadOptions
from treelabel.data.io.parquet import _longest_text, read_parquet

MB = 1_000_000
# What refusing a bomb may add to the memory of a process, most of it the 64 MB that a line or any file may have.
GROWTH = 100 * MB


def refused(action: Callable[[], object]) -> str:
    with pytest.raises(TreelabelError) as error:
        action()
    return str(error.value)


# Bombs


def gzipped(path: Path, chunk: bytes, times: int) -> Path:
    with gzip.open(path, "wb", compresslevel=1) as stream:
        for _ in range(times):
            stream.write(chunk)
    return path


def zstandard(path: Path, chunk: bytes, times: int, before: bytes = b"") -> Path:
    with pa.OSFile(str(path), "wb") as raw, pa.CompressedOutputStream(raw, "zstd") as stream:
        stream.write(before)
        for _ in range(times):
            stream.write(chunk)
    return path


def sparse(path: Path, size: int) -> Path:
    with path.open("wb") as stream:
        stream.write(b"text,label\n")
        stream.truncate(size)
    return path


def parquet(path: Path, columns: dict[str, Any], **options: Any) -> Path:
    pq.write_table(pa.table(columns), path, **options)
    return path


def referred(value: str, times: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array([0] * times, pa.int32()), pa.array([value]))


ZEROS, LINES = bytes(MB), (b"one and the same text " * 9 + b",A\n") * (MB // 200)
BOMBS: dict[str, tuple[Callable[[Path], Path], str]] = {
    "zeros in gzip": (lambda at: gzipped(at / "d.csv.gz", ZEROS, 150), "the limit ratio is 100"),
    "zeros in zstd": (lambda at: zstandard(at / "d.jsonl.zst", ZEROS, 300), "the limit ratio is 100"),
    "rows in zstd": (lambda at: zstandard(at / "d.csv.zst", LINES, 100, b"text,label\n"), "the limit ratio is 100"),
    "one line of a gigabyte": (lambda at: sparse(at / "d.csv", 1000 * MB), "the limit line is 64,000,000"),
    "a taxonomy of zeros": (lambda at: zstandard(at / "taxonomy.json.zst", ZEROS, 100), "the limit ratio is 100"),
    "a vocabulary of zeros": (lambda at: zstandard(at / "taxonomy.ttl.zst", ZEROS, 100), "the limit ratio is 100"),
    "an array of zeros": (
        lambda at: zstandard(put(at, "d.json.zst", ""), b"[" + bytes(MB - 1), 100),
        "the limit ratio is 100",
    ),
    "labels of a billion": (lambda at: put(at, "d.xmc", f"1 5 {10**9}\n0 0:1\n"), "the limit labels is 10,000,000"),
    "pages of zeros": (
        lambda at: parquet(
            at / "d.parquet", {"text": ["\0" * 100 * MB], "label": ["A"]}, compression="zstd", use_dictionary=False
        ),
        "the limit ratio is 100",
    ),
    "one long text in all rows": (
        lambda at: parquet(at / "d.parquet", {"text": referred("x" * 900_000, 20_000), "label": ["A"] * 20_000}),
        "the limit ratio is 100",
    ),
    "one long label in all places": (
        lambda at: parquet(
            at / "d.parquet",
            {
                "text": ["a"],
                "labels": pa.ListArray.from_arrays(pa.array([0, 20_000], pa.int32()), referred("x" * 900_000, 20_000)),
            },
        ),
        "the limit ratio is 100",
    ),
    "texts that begin alike": (
        lambda at: parquet(
            at / "d.parquet",
            {"text": ["x" * 900_000] * 400, "label": ["A"] * 400},
            use_dictionary=False,
            column_encoding={"text": "DELTA_BYTE_ARRAY", "label": "PLAIN"},
            compression="zstd",
        ),
        "the limit ratio is 100",
    ),
}

# Each file is read by a process of its own, as only its peak can be measured; they share what all of them import.
MEASURED = """
import os, resource, sys
import treelabel, treelabel.data.taxonomy.skos
from treelabel.data.io import parquet
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
warm = treelabel.Hierarchy.flat(["a"])
for file in sys.argv[2:]:
    if os.fork():
        if os.wait()[1]:
            sys.exit(f"reading {file} failed")
        continue
    try:
        treelabel.read(sys.argv[1])
    except treelabel.TreelabelError:
        pass
    before = peak()
    try:
        (treelabel.read_taxonomy if "taxonomy" in file else treelabel.read)(file)
    except treelabel.TreelabelError as error:
        print(peak() - before, error)
    sys.exit()
"""


class Bomb(NamedTuple):
    """What became of reading a bomb: how much the process grew, and what it said."""

    file: Path
    growth: int
    told: str


@pytest.fixture(scope="module")
def bombs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Bomb]:
    """Read all bombs; without rdflib, a vocabulary is refused before it is looked at."""
    files = {name: make(tmp_path_factory.mktemp("bomb")) for name, (make, _) in BOMBS.items()}
    warm = put(tmp_path_factory.mktemp("warm"), "warm.csv", "text,label\na,\n")
    command = [sys.executable, "-c", MEASURED, str(warm), *map(str, files.values())]
    lines = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    result = {}
    for (name, file), line in zip(files.items(), lines, strict=True):
        growth, _, told = line.partition(" ")
        result[name] = Bomb(file, int(growth), told)
    return result


@pytest.mark.parametrize(("name", "message"), [(name, message) for name, (_, message) in BOMBS.items()], ids=BOMBS)
@pytest.mark.slow
def test_bombs_are_refused_before_they_fill_the_memory(bombs: dict[str, Bomb], name: str, message: str) -> None:
    file, growth, told = bombs[name]
    if ".ttl" in file.name:
        pytest.importorskip("rdflib")
    assert message in told
    assert "--limit" in told
    assert str(file) in told
    assert growth < GROWTH


@pytest.mark.parametrize("header", [f"1 5 {10**12}", f"1 {10**12} 5", "1 5 " + "9" * 5000, "9" * 5000 + " 5 5"])
def test_headers_of_numbers_that_no_array_has_are_refused(tmp_path: Path, header: str) -> None:
    told = refused(lambda: read_text(tmp_path, "d.xmc", f"{header}\n0 0:1\n", limits=Limits(labels=None)))
    assert "d.xmc:1: " in told
    assert "promises 1,000,000,000,000" in told or "expected 'documents features labels'" in told


def test_what_repeats_itself_is_read_if_it_is_small(tmp_path: Path) -> None:
    file = zstandard(tmp_path / "d.csv.zst", b"text,label\n" + b"the same text,A\n" * 200_000, 1)
    assert file.stat().st_size * 100 < 3 * MB
    assert len(read(file)) == 200_000


def test_a_limit_can_be_raised_and_lowered(tmp_path: Path) -> None:
    content = b"text,label\n" + b"the same text,A\n" * 10_000
    file = zstandard(tmp_path / "d.csv.zst", content, 1)
    low = Limits(ratio=10, floor=1000)
    assert "the limit ratio is 10; if the file can be trusted, raise it" in refused(lambda: read(file, limits=low))
    assert len(read(file, limits=Limits(ratio=None, floor=1000))) == 10_000
    assert len(read(file, limits=Limits(ratio=10, floor=None))) == 10_000


LOW = {
    "a line": ("d.csv", "text,label\nlonger,A\n", Limits(line=8), "d.csv:1: "),
    "a JSON line": ("d.jsonl", '{"text": "a", "label": "A"}\n', Limits(line=8), "d.jsonl:1: the line is too long"),
    "a quote": ("d.csv", 'a,label\n"\nb\nb\nb\nb\n', Limits(line=8), "d.csv:2: not valid CSV up to line 6"),
    "an array": ("d.json", '[{"text": "a", "label": "A"}]', Limits(whole=8), "holds more than can be read at once"),
    "nesting": ("d.jsonl", '{"text": "a", "x": [[[]]]}\n', Limits(nesting=3), ":1: JSON nested too deeply; the limit"),
    "digits": ("d.jsonl", '{"text": "a", "x": 12345}\n', Limits(digits=4), ":1: not a value that can be read"),
    "labels": ("d.xmc", "1 5 3\n0 0:1\n", Limits(labels=2), ":1: the header promises 3 labels"),
    "columns": ("d.csv", "text,label,a,b\n1,2,3,4\n", Limits(columns=3), ":1: the header has 4 columns"),
    "fields": ("d.jsonl", '{"text": "a", "x": 1}\n{"text": "b", "y": 1}\n', Limits(columns=2), "3 different columns"),
}


@pytest.mark.parametrize(("name", "content", "limits", "message"), LOW.values(), ids=LOW)
def test_every_limit_is_named_where_it_is_exceeded(
    tmp_path: Path, name: str, content: str, limits: Limits, message: str
) -> None:
    file = put(tmp_path, name, content)
    h = Hierarchy.flat(["A", "label", "2"])
    told = refused(lambda: read(file, limits=limits, taxonomy=h, need_text=name != "d.csv"))
    assert message in told
    assert re.search(r"the limit \w+ is \d+; if the file can be trusted, raise it: --limit \w+=", told)


def test_a_line_that_is_too_long_can_be_skipped(tmp_path: Path) -> None:
    file = put(
        tmp_path, "d.jsonl", '{"text": "a", "label": "A"}\n{"text": "' + "b" * 100 + '"}\n{"text": "c", "label": "A"}'
    )
    with pytest.warns(UserWarning, match="skipped 1 rows.*d.jsonl:2: the line is too long"):
        data = read(file, limits=Limits(line=40), on_error="skip")
    assert list(data.texts) == ["a", "c"]


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
@pytest.mark.parametrize("size", [(1 << 20) - 2, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3 << 20])
def test_lines_about_as_long_as_a_piece_are_whole(tmp_path: Path, size: int, ends: str) -> None:
    long = "x" * (size - 2)
    data = read_text(tmp_path, "d.csv", ends.join(["text,label", f"{long},A", "b,B", ""]))
    assert list(data.texts) == [long, "b"]


def test_a_large_json_array_may_stand_on_one_line(tmp_path: Path) -> None:
    rows = [{"text": "x" * 50, "label": "A"}] * 3
    data = read_text(tmp_path, "d.json", json.dumps(rows), limits=Limits(line=60))
    assert len(data) == 3


def test_many_digits_are_kept_as_text_if_asked_for(tmp_path: Path) -> None:
    line = '{"text": "a", "label": "A", "x": ' + "7" * 5000 + "}\n"
    assert read_text(tmp_path, "d.jsonl", line, limits=Limits(digits=None)).extra["x"].to_pylist() == ["7" * 5000]
    file = put(tmp_path, "taxonomy.json", '{"A": [' + "7" * 5000 + "]}")
    assert "the limit digits is 4,300" in refused(lambda: read_taxonomy(file))
    assert read_taxonomy(file, limits=Limits(digits=10_000)).names == ("A", "7" * 5000)


def test_nesting_within_the_limit_is_read(tmp_path: Path) -> None:
    def nested(levels: int) -> str:
        return '{"text": "a", "label": "A", "x": ' + "[" * levels + "]" * levels + "}\n"

    assert len(read_text(tmp_path, "d.jsonl", nested(499))) == 1
    assert "the limit nesting is 500" in refused(lambda: read_text(tmp_path, "d.jsonl", nested(500)))
    assert len(read_text(tmp_path, "d.jsonl", nested(600), limits=Limits(nesting=None))) == 1
    for ending, content in (("jsonl", nested(100_000)), ("json", f"[{nested(100_000)}]")):
        assert "JSON nested too deeply" in refused(lambda e=ending, c=content: read_text(tmp_path, f"d.{e}", c))  # type: ignore[misc]
    deep = put(tmp_path, "taxonomy.json", '{"a":' * 600 + "{}" + "}" * 600)
    assert "the limit nesting is 500" in refused(lambda: read_taxonomy(deep))


def test_entities_of_a_vocabulary_do_not_multiply(tmp_path: Path) -> None:
    pytest.importorskip("rdflib")
    entities = "".join(f'<!ENTITY e{at} "{f"&e{at - 1};" * 10}">' for at in range(1, 12))
    content = (
        f'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY e0 "laugh">{entities}]>'
        '<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:s="http://www.w3.org/2004/02/skos/core#">'
        '<s:Concept rdf:about="http://a"><s:prefLabel>&e11;</s:prefLabel></s:Concept></rdf:RDF>'
    )
    assert "declares the entity 'e1'" in refused(lambda: read_taxonomy(put(tmp_path, "t.rdf", content)))
    with_file = content.replace('"laugh"', 'SYSTEM "file:///etc/passwd"')
    assert "declares the entity 'e0'" in refused(lambda: read_taxonomy(put(tmp_path, "t.rdf", with_file)))
    namespace = content.replace(entities, "").replace("&e11;", "&e0;").encode("utf-16")
    assert read_taxonomy(put(tmp_path, "t.rdf", namespace)).names == ("laugh",)


@pytest.mark.filterwarnings("ignore:ConjunctiveGraph is deprecated:DeprecationWarning")
def test_a_vocabulary_fetches_nothing(tmp_path: Path) -> None:
    pytest.importorskip("rdflib")
    concept = {"@id": "http://a", "@type": "http://www.w3.org/2004/02/skos/core#Concept"}
    for context in ("http://127.0.0.1:9/context", [{}, "file:///etc/hosts"]):
        file = put(tmp_path, "t.jsonld", json.dumps({"@context": context, **concept}))
        assert "put the context itself into the file" in refused(lambda f=file: read_taxonomy(f))  # type: ignore[misc]
    inside = {"@context": {"x": "http://x/"}, **concept}
    assert read_taxonomy(put(tmp_path, "t.jsonld", json.dumps(inside))).names == ("a",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("line", "--limit line is ''"),
        ("lines=3", "the names are line, ratio, floor"),
        ("line=many", "--limit line is 'many', expected a number above 0 such as 500 or 200MB, or none"),
        ("line=0", "expected a number above 0"),
        ("line=-5", "expected a number above 0"),
        ("line=5TB", "expected a number above 0"),
        ("line=" + "9" * 5000, "expected a number above 0"),
    ],
)
def test_limits_that_are_none_are_refused(text: str, message: str) -> None:
    assert message in refused(lambda: parse_limits([text]))


def test_limits_are_read_with_units() -> None:
    assert parse_limits(["line=2kB", "whole=3 MiB", "ratio=7"]) == Limits(line=2000, whole=3 << 20, ratio=7)
    assert parse_limits(["none"]) == Limits(*[None] * 9)
    assert parse_limits([]) == Limits()
    for wrong in (0, -1, "5"):
        assert "expected a number above 0 or None" in refused(lambda w=wrong: Limits(line=w))  # type: ignore[misc]


def test_limits_can_be_raised_on_the_command_line(tmp_path: Path, run: Run) -> None:
    file = put(tmp_path, "d.jsonl", '{"text": "a", "label": "A", "x": ' + "7" * 5000 + "}\n")
    ended = run("inspect", file)
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert "--limit digits=..." in ended.err
    assert run("inspect", file, "--limit", "digits=10000").code == 0
    assert run("inspect", file, "--limit", "none").code == 0
    taxonomy = put(tmp_path, "taxonomy.json", '{"A": [' + "7" * 5000 + "]}")
    assert run("inspect", taxonomy).code == 2
    assert run("inspect", taxonomy, "--limit", "digits=10000").code == 0
    assert "--limit is 'x', expected none or name=number" in run("inspect", file, "--limit", "x").err


# Regular files


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    assert "pipe.csv: is a pipe, expected a regular file" in refused(lambda: read(tmp_path / "pipe.csv"))
    assert "is a pipe, expected a regular file" in refused(lambda: read_taxonomy(tmp_path / "pipe.csv"))
    assert "/dev/zero: is a device, expected a regular file" in refused(lambda: read("/dev/zero", format="csv"))
    assert "is a folder, expected a file" in refused(lambda: read(tmp_path))


def test_a_pipe_beside_the_data_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "taxonomy.tsv")
    assert "taxonomy.tsv: is a pipe" in refused(lambda: read_text(tmp_path, "d.csv", "text,label\na,A\n"))


def test_links_that_lead_nowhere_are_called_so(tmp_path: Path) -> None:
    (tmp_path / "loop.csv").symlink_to("back.csv")
    (tmp_path / "back.csv").symlink_to("loop.csv")
    (tmp_path / "nowhere.csv").symlink_to("gone.csv")
    (tmp_path / "good.csv").symlink_to(put(tmp_path, "d.csv", "text,label\na,A\n"))
    assert "loop.csv: is a symbolic link that leads back to itself" in refused(lambda: read(tmp_path / "loop.csv"))
    told = refused(lambda: read(tmp_path / "nowhere.csv"))
    assert "nowhere.csv: is a symbolic link to gone.csv, which does not exist" in told
    assert len(read(tmp_path / "good.csv")) == 1


@pytest.mark.parametrize("name", ["a\0b.csv", "x" * 5000 + ".csv"])
def test_what_cannot_be_the_name_of_a_file_is_refused(name: str) -> None:
    assert len(refused(lambda: read(name))) < LONGEST_MESSAGE + 1


# Ends of lines


@pytest.mark.parametrize("end", ["\r", "\n", "\r\n"])
def test_lines_end_as_on_any_system(tmp_path: Path, end: str) -> None:
    for name, lines in (
        ("t.tsv", ["Root\ta", "a\tb", ""]),
        ("t.csv", ["parent,child", "Root,a", "a,b", ""]),
        ("t.txt", ["# names", "a", "a > b", ""]),
        ("t.json", ['{"a":', '["b"]}', ""]),
    ):
        assert read_taxonomy(put(tmp_path, name, end.join(lines))).paths() == ["a", "a > b"]
    data = read_text(tmp_path, "d.csv", end.join(["text,label", '"one\rtwo\r\nthree\n",A', "four,B", ""]))
    assert list(data.texts) == ["one\rtwo\r\nthree\n", "four"]
    wrong = put(tmp_path, "t.tsv", end.join(["a\tb", "b\tb"]))
    assert "t.tsv:2: self-loop" in refused(lambda: read_taxonomy(wrong))


@pytest.mark.slow
def test_a_long_file_with_returns_alone_is_not_one_line(tmp_path: Path) -> None:
    rows = [f"text {at},A" for at in range(200_000)]
    data = read_text(tmp_path, "d.csv", "\r".join(["text,label", *rows]), limits=Limits(line=1 << 20))
    assert list(data.texts[-1:]) == ["text 199999"]
    assert len(data) == 200_000


# Control characters

CONTROL = ["\x00", "\x07", "\x1b", "\x7f", "\x85", "\x9b", "\u202e", "\u2066"]


@pytest.mark.parametrize("mark", CONTROL)
def test_names_with_control_characters_are_refused(tmp_path: Path, mark: str) -> None:
    name = f"b{mark}c"
    for file, content, place in (
        ("t.tsv", f"Root\ta\na\t{name}\n", ":2: "),
        ("t.csv", f"id,name,parent\n1,a,\n2,{name},1\n", ":3: "),
        ("t.txt", f"a\na > {name}\n", ":2: "),
        ("t.json", json.dumps({"a": [name]}), ": "),
    ):
        told = refused(lambda f=file, c=content: read_taxonomy(put(tmp_path, f, c)))  # type: ignore[misc]
        assert f"{file}{place}the label 'b{mark.encode('unicode_escape').decode()}c' has the" in told
        assert f"U+{ord(mark):04X}" in told
    for file, content in (
        ("d.csv", f"text,label\na,A\nb,{name}\n"),
        ("d.jsonl", json.dumps({"text": "a", "label": "A"}) + "\n" + json.dumps({"text": "b", "label": ["A", name]})),
    ):
        told = refused(lambda f=file, c=content: read_text(tmp_path, f, c))  # type: ignore[misc]
        assert re.search(rf"{file}:[23]: the label .* has the .* U\+{ord(mark):04X}", told)


def test_rows_with_such_labels_can_be_skipped(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=r"skipped 1 rows.*U\+001B"):
        data = read_text(tmp_path, "d.csv", "text,label\na,A\nb,B\x1b\nc,C\n", on_error="skip")
    assert data.hierarchy.names == ("A", "C")


def test_tabs_and_line_breaks_are_refused_in_names_from_files(tmp_path: Path) -> None:
    told = refused(lambda: read_text(tmp_path, "d.jsonl", json.dumps({"text": "a", "label": "A\tB"})))
    assert "d.jsonl:1: the label 'A\\tB' has the control character U+0009" in told
    told = refused(lambda: read_taxonomy(put(tmp_path, "t.json", json.dumps(["A\nB"]))))
    assert "t.json: the label 'A\\nB' has the control character U+000A" in told


def test_control_characters_in_texts_are_data(tmp_path: Path) -> None:
    text = "".join(CONTROL) + "\t"
    assert list(read_text(tmp_path, "d.jsonl", json.dumps({"text": text, "label": "A"})).texts) == [text]


def test_a_hierarchy_made_in_python_comes_back_whatever_its_names(tmp_path: Path) -> None:
    h = Hierarchy.from_paths([["a", f"b{mark}"] for mark in [*CONTROL, "\t", "\n"]])
    assert write(Dataset.of(["x"], [["a"]], h), tmp_path / "d.csv")[1].name == "d.taxonomy.json"
    assert read(tmp_path / "d.csv").hierarchy == h
    for ending in ("tsv", "csv", "txt"):
        assert "cannot hold this hierarchy" in refused(lambda e=ending: write_taxonomy(h, tmp_path / f"t.{e}"))  # type: ignore[misc]


def test_letters_of_all_scripts_and_joiners_are_names() -> None:
    assert unprintable(["naïve", "می\u200cخواهم", "👩\u200d👧", "x\u2028y", "\u200fעברית", "soft\u00adhyphen"]) is None


def test_what_is_printed_cannot_drive_the_terminal(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    h = Hierarchy.flat(["good\x1b[2J\x9b\u202e", "other"])
    data = Dataset.of(["good day", "other night"] * 4, [[h.names[0]], ["other"]] * 4, h)
    make_model("most_frequent").fit(data).save(tmp_path / "model")
    put(tmp_path, "d.jsonl", json.dumps({"text": "good", "label": "A", "x\x1b[31m\x9b": 1}))
    put(tmp_path, "bad.jsonl", json.dumps({"text": "good", "label": "A\x1b]0;title\x07"}))
    for arguments in (
        ("inspect", "d.jsonl"),
        ("inspect", "d.jsonl", "--json"),
        ("inspect", "bad.jsonl"),
        ("inspect", "d.jsonl", "--text", "\x1b[31m"),
        ("inspect", "\x1b[31m.csv"),
        ("convert", "d.jsonl", "d.ft"),
        ("predict", "model", "d.jsonl"),
        ("no-such-command\x1b",),
    ):
        ended = run(*arguments)
        assert not UNPRINTABLE.search((ended.out + ended.err).replace("\n", "").replace("\t", "")), arguments
    line = json.loads(run("predict", "model", "d.jsonl").out)
    assert line["labels"][0]["label"] == h.names[0]


# Formulas

FORMULAS = [
    "=1+1",
    "+1 (0)",
    "-5 degrees",
    "@SUM(A1)",
    "\tcmd",
    "\rcmd",
    "'=1",
    "''@x",
    "'text'",
    "-3.5",
    "+1e9",
    "text",
]


@pytest.mark.parametrize("ending", ["csv", "tsv", "csv.gz"])
def test_formulas_are_escaped_in_the_file_and_read_back_as_they_were(tmp_path: Path, ending: str) -> None:
    h = Hierarchy.flat(["=A", "B"])
    data = Dataset.of(FORMULAS, [["=A"]] * 6 + [["B"]] * 6, h, ids=[f"-{at}x" for at in range(12)])
    columns = {"=note": pa.chunked_array([FORMULAS]), "number": pa.chunked_array([[-at / 2 for at in range(1, 13)]])}
    data = Dataset(data.ids, data.texts, data.labels, h, columns)
    file = tmp_path / f"d.{ending}"
    with pytest.warns(EscapedFormulasWarning, match="34 cells that a spreadsheet would run"):
        write(data, file, escape_formulas=True)
    again = read(file)
    assert (again.ids, again.texts, again.names()) == (data.ids, data.texts, data.names())
    assert {name: column.to_pylist() for name, column in again.extra.items()} == {
        "=note": FORMULAS,
        "number": [str(-at / 2) for at in range(1, 13)],
    }
    with pa.input_stream(str(file)) as stream:
        cells = [cell for row in _cells(stream.read().decode(), "\t" if ending == "tsv" else ",") for cell in row]
    assert "'=1+1" in cells
    assert "'=note" in cells
    assert "''=1" in cells
    assert "-3.5" in cells
    assert not [cell for cell in cells if cell[:1] in tuple("=@\t\r")]


def _cells(text: str, delimiter: str) -> list[list[str]]:
    import csv
    from io import StringIO

    return list(csv.reader(StringIO(text, newline=""), delimiter=delimiter))


def test_without_formulas_nothing_is_added(tmp_path: Path) -> None:
    data = Dataset.of(["'quoted'", "a=b"], [["A"], ["A"]], Hierarchy.flat(["A"]))
    write(data, tmp_path / "a.csv", escape_formulas=True)
    write(data, tmp_path / "b.csv")
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()


def test_apostrophes_of_other_peoples_files_are_text(tmp_path: Path) -> None:
    assert list(read_text(tmp_path, "d.csv", "text,label\n'=1,A\n'-5,B\n").texts) == ["'=1", "'-5"]
    edited = f"text,label,{MARKER}\n'=1,A,1\n'=2,A,0\n'=3,A,\n"
    assert list(read_text(tmp_path, "d.csv", edited).texts) == ["=1", "'=2", "'=3"]


def test_python_writes_cells_as_they_are(tmp_path: Path) -> None:
    write(Dataset.of(["=1"], [["A"]], Hierarchy.flat(["A"])), tmp_path / "d.csv")
    assert (tmp_path / "d.csv").read_text() == "id,text,labels\n0,=1,A\n"


CELLS = st.text(st.sampled_from("'=+-@\t\r\n1.e\"a,"), max_size=6)


@given(CELLS)
def test_escaping_can_be_undone(cell: str) -> None:
    assert unescape(escape(cell)) == cell


@examples(50)
@given(st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=4), st.booleans())
@pytest.mark.filterwarnings("ignore::treelabel.data.io.cells.EscapedFormulasWarning")
def test_any_cells_come_back_escaped_or_not(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]], escape_formulas: bool
) -> None:
    folder = tmp_path_factory.mktemp("cells")
    base = Dataset.of([text for text, _ in rows], [["A"]] * len(rows), Hierarchy.flat(["A", "-B"]))
    extra = {"note": pa.chunked_array([[note for _, note in rows]], pa.string())}
    data = Dataset(base.ids, base.texts, base.labels, base.hierarchy, extra)
    for ending in ("csv", "tsv"):
        write(data, folder / f"d.{ending}", escape_formulas=escape_formulas)
        again = read(folder / f"d.{ending}")
        assert (list(again.texts), again.names()) == (list(data.texts), data.names())
        assert again.extra["note"].to_pylist() == extra["note"].to_pylist()


@pytest.mark.filterwarnings("default::treelabel.data.io.cells.EscapedFormulasWarning")
def test_the_command_line_escapes_unless_told_not_to(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [{"id": str(at), "text": text, "labels": ["A", "B"][at % 2 :][:1]} for at, text in enumerate(FORMULAS)]
    put(tmp_path, "d.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    ended = run("convert", "d.jsonl", "d.csv")
    assert ended.code == 0
    assert ended.err.count("\n") == 1
    assert "note: d.csv: 8 cells that a spreadsheet would run as formulas" in ended.err
    assert run("convert", "d.csv", "again.jsonl").code == 0
    assert [json.loads(line) for line in (tmp_path / "again.jsonl").read_text().splitlines()] == rows
    ended = run("convert", "d.jsonl", "raw.csv", "--raw")
    assert (ended.code, ended.err) == (0, "")
    assert MARKER not in (tmp_path / "raw.csv").read_text()
    ended = run("split", "d.jsonl", "parts", "--to-format", "csv", "--parts", "train=0.5,test=0.5", "--by", "random")
    assert "a spreadsheet would run as formulas" in ended.err
    parts = [read(f"parts/{name}.csv") for name in ("train", "test")]
    assert sorted(text for part in parts for text in part.texts) == sorted(FORMULAS)
    assert run("sample", "nouns.csv", "--raw").code == 0


# Labels that are not looked at


def test_predict_and_score_do_not_look_at_labels(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    h = Hierarchy.flat(["A", "B"])
    make_model("most_frequent").fit(Dataset.of(["a"] * 4, [["A"]] * 4, h)).save(tmp_path / "model")
    files = {
        "unknown.csv": "text,label\na,Nowhere\nb,\x1b\n",
        "malformed.jsonl": '{"text": "a", "label": {"x": 1}}\n{"text": "b", "label": [null, 0.5]}\n',
        "missing.jsonl": '{"text": "a", "label": "A"}\n{"text": "b"}\n',
        "none.csv": "text,note\na,x\nb,y\n",
        "gaps.csv": "text,level1,level2\na,,B\nb,A,\n",
        "tokens.ft": "__label__Nowhere a\n__label__ b\n",
    }
    for name, content in files.items():
        put(tmp_path, name, content)
        ended = run("predict", "model", name)
        assert (ended.code, ended.err, ended.out.count("\n")) == (0, "", 2), name
        assert run("score", "model", name, "-o", "scores.npz", "--force").code == 0
    assert run("predict", "model", "none.csv", "--labels", "no such column").code == 0
    assert run("predict", "model", "none.csv", "--text", "no such column").code == 2
    data = read(tmp_path / "unknown.csv", taxonomy=h, need_labels=False)
    assert (data.labels.nnz, list(data.extra)) == (0, [])


def test_labels_that_are_not_looked_at_need_a_taxonomy(tmp_path: Path) -> None:
    assert "no taxonomy given" in refused(lambda: read_text(tmp_path, "d.csv", "text,label\na,A\n", need_labels=False))


def test_score_reports_what_it_wrote(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    h = Hierarchy.flat(["A", "B", "C"])
    make_model("most_frequent").fit(Dataset.of(["a"] * 4, [["A"], ["B"]] * 2, h)).save(tmp_path / "model")
    put(tmp_path, "d.csv", "text\na\n")
    assert "dense" in run("score", "model", "d.csv", "-o", "all.npz").out
    out = run("score", "model", "d.csv", "-o", "top.npz", "--top", "1").out
    assert "dense" not in out
    assert "CSR, 1 stored" in out


def test_rows_of_long_values_are_read_a_few_at_once(tmp_path: Path) -> None:
    def rows_at_once(values: pa.Array) -> list[int]:
        pq.write_table(pa.table({"text": values}), tmp_path / "d.parquet")
        return [len(part) for part in read_parquet(tmp_path / "d.parquet", ReadOptions()).parts]

    # A dictionary has each once; 8 MB may be in a batch.
    assert rows_at_once(pa.array(["x" * 2_666_667] * 3)) == [2, 1]
    assert rows_at_once(pa.array(["x" * 2_666_666] * 3)) == [3]
    assert rows_at_once(pa.array(["x" * 9 * MB] * 2)) == [1, 1]
    assert rows_at_once(pa.array([["x" * 2_666_667]] * 3)) == [3]
    assert rows_at_once(pa.array(["x"] * 8193)) == [8192, 1]


def test_the_longest_text_is_found_in_all_that_holds_texts() -> None:
    texts = pa.array(["a", "bcd", "a", "bcd"]).dictionary_encode()
    offsets = [0, 1, 3, 4]
    for array in (
        texts,
        pa.StructArray.from_arrays([pa.array([1, 2, 3, 4]), texts], ["a", "b"]),
        pa.ListArray.from_arrays(offsets, texts),
        pa.LargeListArray.from_arrays(offsets, texts),
        pa.MapArray.from_arrays(offsets, pa.array([1, 2, 3, 4]), texts),
        pa.MapArray.from_arrays(offsets, texts, pa.array([1, 2, 3, 4])),
    ):
        assert _longest_text(array) == 3
    assert _longest_text(pa.array([1, 2])) == 0
    assert _longest_text(pa.array([], pa.string()).dictionary_encode()) == 0


def test_a_sheet_may_unpack_to_so_many_times_its_bytes(tmp_path: Path) -> None:
    file = tmp_path / "d.xlsx"
    write(Dataset.of(["x" * 30_000] * 3, [["A"]] * 3, Hierarchy.flat(["A"])), file)
    with ZipFile(file) as archive:
        unpacked = sum(part.file_size for part in archive.infolist())
    ratio = unpacked / file.stat().st_size
    assert ratio > 2
    for floor, most in ((unpacked, 1), (unpacked - 1, ratio)):
        assert len(read(file, limits=Limits(floor=floor, ratio=most))) == 3
    assert "unpack to" in refused(lambda: read(file, limits=Limits(floor=unpacked - 1, ratio=ratio - 0.01)))


# Messages

LONG = "x" * 10 * MB


def test_long_values_are_shortened() -> None:
    assert len(shorten(LONG)) <= 80
    assert len(quote([LONG])) <= 80
    assert len(str(TreelabelError(LONG))) <= LONGEST_MESSAGE
    assert shorten("as it is") == "as it is"
    assert printable("a\x1b\u202e\u2028é\u200d") == "a\\u001b\\u202e\\u2028é\u200d"


def test_of_many_columns_the_first_are_listed(tmp_path: Path) -> None:
    names = [f"c{number}" for number in range(51)]

    def header_in_message(columns: list[str]) -> str:
        message = refused(lambda: read_text(tmp_path, "d.csv", f"{','.join(columns)}\na,b\n"))
        return message.partition("the header has 51: ")[2].partition(" (to leave")[0]

    assert header_in_message(names) == ", ".join(names[:50])
    assert 490 < len(header_in_message([name * 10 for name in names])) <= 500


def test_of_columns_by_what_they_hold_twenty_are_listed(tmp_path: Path) -> None:
    content = f"{','.join(f'c{number}' for number in range(21))}\n{','.join('1' * 21)}\n"
    message = refused(lambda: read_text(tmp_path, "d.csv", content))
    assert message.count("such as '1'") == 20
    assert "'c20'" not in message


@pytest.mark.parametrize(("count", "rest"), [(20, ""), (21, " ...")])
def test_of_columns_to_choose_from_twenty_are_listed(count: int, rest: str, tmp_path: Path) -> None:
    names = [f"c{number}" for number in range(count)]
    content = f"{','.join(names)}\n{','.join('x' * count)}\n"
    message = refused(lambda: read_text(tmp_path, "d.csv", content, text="nope", labels="c1"))
    assert message.endswith(f"{', '.join(map(repr, names[:20]))}{rest}")


@pytest.mark.parametrize(
    ("name", "content", "options"),
    [
        ("d.csv", f"text,label\na,{LONG}\n", {"taxonomy": Hierarchy.flat(["A"])}),
        ("d.csv", f"{LONG},label\na,A\n", {}),
        ("d.csv", f"text,label\na,A,{LONG}\n", {}),
        ("d.jsonl", json.dumps({LONG: 1}), {}),
        ("d.jsonl", json.dumps({"text": "a", "label": [[LONG, 1.5]]}), {"taxonomy": Hierarchy.flat(["A"])}),
        ("d.jsonl", json.dumps([LONG]), {}),
        ("d.jsonl", json.dumps(LONG), {}),
        ("d.jsonl", json.dumps({"text": {"a": LONG}, "label": "A"}), {}),
        ("d.ft", f"__label__{LONG} a", {"taxonomy": Hierarchy.flat(["A"])}),
        ("d.xmc", LONG, {}),
        ("d.xmc", f"1 5 2\n{LONG} 1:1\n", {}),
        ("d.csv", "text,label\na,A\n", {"text": LONG}),
        ("d.csv", "text,label\na,A\n", {"encoding": LONG}),
        ("d.csv", "text,label\na,A\n", {"delimiter": LONG}),
        ("d.csv", "text,label\na,A\n", {"format": LONG}),
    ],
)
@pytest.mark.slow
def test_messages_stay_short(tmp_path: Path, name: str, content: str, options: dict[str, Any]) -> None:
    told = refused(lambda: read_text(tmp_path, name, content, **options))
    assert len(told) < 1200
    assert name in told or "format" in told or "delimiter" in told


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.tsv", f"{LONG}\n"),
        ("t.tsv", f"{LONG}\t{LONG}\n"),
        ("t.tsv", f"a\t{LONG}\na\t{LONG}\n"),
        ("t.tsv", f"a\t{LONG}\n{LONG}\ta\n"),
        ("t.tsv", f"{LONG}\t\n"),
        ("t.csv", f"id,name,parent\n1,{LONG},{LONG}\n"),
        ("t.txt", f"{LONG} > \n"),
        ("t.json", json.dumps({LONG: [1]})),
        ("t.json", json.dumps([LONG, LONG])),
    ],
)
@pytest.mark.slow
def test_messages_about_taxonomies_stay_short(tmp_path: Path, name: str, content: str) -> None:
    told = refused(lambda: read_taxonomy(put(tmp_path, name, content)))
    assert len(told) < 1200
    assert name in told


def test_messages_of_the_command_line_stay_short(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    put(tmp_path, "d.csv", "text,label\na,A\n")
    long = "x" * 100_000
    for arguments in (
        ("inspect", "d.csv", "--text", long),
        ("inspect", long),
        ("inspect", "d.csv", "--limit", long),
        ("convert", "d.csv", "e.csv", "--labels-as", long),
        ("split", "d.csv", "parts", "--parts", long),
        ("fit", "d.csv", "-o", "model", "--model", long),
        ("fit", "d.csv", "-o", "model", "--set", long),
        ("decide", "scores.npz", "--rule", long),
        (long,),
    ):
        ended = run(*arguments)
        assert ended.code == 2, arguments[0]
        assert ended.err.count("\n") == 1
        assert len(ended.err) < LONGEST_MESSAGE + 100, arguments[0]


RDF = (
    '<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:s="http://www.w3.org/2004/02/skos/core#">'
    '<s:Concept rdf:about="http://a">{}</s:Concept></rdf:RDF>'
)
TURTLE = "@prefix s: <http://www.w3.org/2004/02/skos/core#> . <http://a> a s:Concept ; s:prefLabel {} ."
ENTITY = '<!DOCTYPE r [<!ENTITY e "laugh">]>' + RDF


@pytest.mark.parametrize(
    ("name", "content", "limit"),
    [
        ("t.rdf", RDF.format("<s:broader><s:Concept>" * 9000 + "</s:Concept></s:broader>" * 9000), "nesting"),
        ("t.rdf", RDF.format('<s:note rdf:parseType="Literal">' + "<a></a>" * 90_000 + "</s:note>"), "literal"),
        ("t.rdf", RDF.format("<s:prefLabel>a" + "\n" * 8_000_000 + "b</s:prefLabel>"), "literal"),
        ("t.rdf", ENTITY.format("<s:prefLabel>" + "&e;" * 1_000_000 + "</s:prefLabel>"), "literal"),
        ("t.ttl", TURTLE.format('"""' + "x\n" * 4_000_000 + '"""'), "literal"),
        ("t.nt", TURTLE.format("'" + "\\n" * 4_000_000 + "'"), "literal"),
    ],
)
def test_vocabularies_that_take_a_parser_minutes_are_refused_at_once(
    tmp_path: Path, name: str, content: str, limit: str
) -> None:
    pytest.importorskip("rdflib")
    assert f"--limit {limit}=" in refused(lambda: read_taxonomy(put(tmp_path, name, content)))


def test_a_text_in_turtle_may_hold_what_looks_like_the_end_of_one(tmp_path: Path) -> None:
    pytest.importorskip("rdflib")
    for text in ('"a # b <c> \\" d"', '"""a "b" \\"""" ', "'it\"s'"):
        file = put(tmp_path, "t.ttl", TURTLE.format(text) + ' # "' + "x" * 200_000)
        assert len(read_taxonomy(file)) == 1


def test_parquet_with_too_many_columns_is_refused(tmp_path: Path) -> None:
    columns = {"text": ["t"], "labels": ["A"]} | {f"c{at}": ["a"] for at in range(300)}
    pq.write_table(pa.table(columns), tmp_path / "wide.parquet")
    assert "--limit columns=" in refused(lambda: read(tmp_path / "wide.parquet", limits=Limits(columns=100)))
    assert len(read(tmp_path / "wide.parquet").extra) == 300
