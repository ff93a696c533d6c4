"""predict and score on files: tables, standard input and output, empty texts, and going on after a kill."""

import csv
import gzip
import io
import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.helpers import Run, put
from tests.models.test_models import SETS
from treelabel import Scores, load_model, make_model
from treelabel.core import inputs
from treelabel.core.append import AppendFile
from treelabel.data.io.cells import file_may_hold_formulas

TEXTS = list(SETS["leaf"].texts)
ROWS = "id,text,price\nx,the cat meows softly,1.50\ny,  ,2\nz,=the dog barks,-3\n"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bulk") / "model"
    make_model("linear").fit(SETS["leaf"]).save(folder)
    return folder


@pytest.fixture
def new(tmp_path: Path) -> Path:
    return put(tmp_path, "new.csv", ROWS)


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Put bytes on standard input."""

    def put_in(content: str | bytes) -> None:
        data = content.encode() if isinstance(content, str) else content
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))

    yield put_in
    inputs._buffer_of.cache_clear()


def table(text: str, delimiter: str = ",") -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text), delimiter=delimiter))


def test_predictions_are_those_of_the_model_and_empty_texts_are_counted(model: Path, new: Path, run: Run) -> None:
    ended = run("predict", model, new, "-o", new.with_name("p.jsonl"))
    assert ended.code == 0, ended.err
    assert ended.out == f"{new.with_name('p.jsonl')}: 3 documents by best_leaf; 1 empty text was left unknown\n"
    first, second, third = (json.loads(line) for line in new.with_name("p.jsonl").read_text().splitlines())
    assert second == {"id": "y", "labels": [], "closed": True, "unknown": True}
    assert first["closed"] is True
    wanted = load_model(model).predict(["the cat meows softly", "=the dog barks"], paths=True)
    assert [[entry["path"] for entry in line["labels"]] for line in (first, third)] == wanted
    assert "unknown" not in first


def test_a_table_stands_beside_the_columns_of_the_input(model: Path, new: Path, run: Run) -> None:
    target = new.with_name("p.csv")
    ended = run("predict", model, new, "-o", target, "--keep-columns", "--alternatives", "2")
    assert ended.code == 0, ended.err
    assert "1 cells that a spreadsheet would run begin with an apostrophe now" in ended.out
    first, second, third = table(target.read_text())
    assert list(first)[:8] == ["id", "text", "price", "predicted", "path", "p", "level1", "level2"]
    assert (first["predicted"], first["path"], first["level1"], first["level2"]) == ("cat", "pet > cat", "pet", "cat")
    assert first["price"] == "1.50"
    assert 0 < float(first["alternative1_p"]) <= float(first["p"]) <= 1
    assert float(first["alternative2_p"]) <= float(first["alternative1_p"])
    assert first["alternative1"] not in ("cat", "pet", first["alternative2"])
    assert {second[name] for name in ("predicted", "path", "p", "level1")} == {""}
    assert (third["text"], third["price"], third["treelabel:escaped"]) == ("'=the dog barks", "-3", "1")
    again = run("predict", model, new, "-o", target, "--keep-columns", "--raw")
    assert "p.csv is there already; choose another name, or replace it with --force" in again.err
    raw = run("predict", model, new, "-o", target, "--keep-columns", "--raw", "--force")
    assert raw.code == 0, raw.err
    assert table(target.read_text())[2]["text"] == "=the dog barks"


def test_no_column_counts_escapes_where_there_are_none(model: Path, tmp_path: Path, run: Run) -> None:
    file = put(tmp_path, "new.csv", "text,price\r\nthe cat - my cat - meows,-3\r\nthe dog barks,\r\n")
    assert run("predict", model, file, "-o", tmp_path / "p.csv", "--keep-columns").code == 0
    assert "treelabel:escaped" not in (tmp_path / "p.csv").read_text()


@pytest.mark.parametrize(
    ("content", "may"),
    [
        ("a,b\nx,-3\ny,+3.5\n", False),
        ("a,b\r\nx,\r\n", False),
        ("a,b\nwell-known - thing,x@y\n", False),
        ("a,b\n=1+1,2\n", True),
        ('a,b\n"=1",2\n', True),
        ("a,b\n'=1,2\n", True),
        ("a,b\nx, @y\n", True),
        ("a,b\n-3 degrees,2\n", True),
        ("a,b\n\tx,2\n", True),
        ('{"text": "x", "n": -3}\n', False),
        ('{"text": "\\tx"}\n', True),
        ("a\0", True),
    ],
)
def test_formulas_are_looked_for_in_the_bytes_of_a_file(tmp_path: Path, content: str, may: bool) -> None:
    assert file_may_hold_formulas(put(tmp_path, "d.csv", content)) is may
    assert file_may_hold_formulas(put(tmp_path, "d.parquet", content)) is True


def test_columns_of_predictions_give_way_to_those_of_the_input(model: Path, tmp_path: Path, run: Run) -> None:
    file = put(tmp_path, "new.csv", "text,path,Predicted\nthe cat meows,C:/x,no\n")
    ended = run("predict", model, file, "--keep-columns", "--to-format", "tsv")
    (row,) = table(ended.out, "\t")
    assert (row["path"], row["predicted_path"]) == ("C:/x", "pet > cat")
    assert (row["Predicted"], row["predicted_predicted"]) == ("no", "cat")
    lines = run("predict", model, file, "--keep-columns").json
    assert (lines["id"], lines["path"], lines["text"]) == ("0", "C:/x", "the cat meows")


def test_parquet_and_excel_hold_the_same_table(model: Path, new: Path, run: Run) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    for ending in ("parquet", "xlsx"):
        ended = run("predict", model, new, "-o", new.with_name(f"p.{ending}"), "--alternatives", "1", "--keep-columns")
        assert ended.code == 0, ended.err
    rows = pq.read_table(new.with_name("p.parquet")).to_pylist()
    assert rows[0]["predicted"] == "cat"
    assert isinstance(rows[0]["p"], float)
    assert rows[1]["predicted"] is None
    assert rows[1]["p"] is None
    header, *cells = openpyxl.load_workbook(new.with_name("p.xlsx")).active.iter_rows(values_only=True)
    assert [dict(zip(header, row, strict=True)) for row in cells] == rows


def test_several_labels_share_a_cell(tmp_path: Path, run: Run) -> None:
    data = SETS["many"]
    make_model("linear").fit(data).save(tmp_path / "model")
    file = tmp_path / "texts.jsonl"
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in data.texts))
    ended = run("predict", tmp_path / "model", file, "-o", tmp_path / "p.csv", "--rule", "threshold@0.3")
    assert "several labels of a document are separated by '; '" in ended.out
    rows = table((tmp_path / "p.csv").read_text())
    wanted = load_model(tmp_path / "model").predict(list(data.texts), "threshold@0.3")
    assert [sorted(filter(None, row["predicted"].split("; "))) for row in rows] == [sorted(each) for each in wanted]
    several = next(row for row in rows if "; " in row["predicted"])
    each = [float(p) for p in several["all_p"].split("; ")]
    assert each == sorted(each, reverse=True)
    assert float(several["p"]) == each[0]
    everything = run("predict", tmp_path / "model", file, "--all-labels", "--rule", "threshold@0.3")
    lines = [json.loads(line) for line in everything.out.splitlines()]
    wanted = load_model(tmp_path / "model").predict(list(data.texts), "threshold@0.3", paths=True)
    for line, paths in zip(lines, wanted, strict=True):
        above = {" > ".join(path.split(" > ")[: at + 1]) for path in paths for at in range(path.count(" > ") + 1)}
        assert {entry["path"] for entry in line["labels"]} == above


def test_score_writes_in_batches_what_the_model_scores(
    model: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("treelabel.operations.bulk.FIRST", 5)
    monkeypatch.setattr("treelabel.models.streaming.MOST_TEXTS", 8)
    file = put(tmp_path, "texts.jsonl", "".join(json.dumps({"text": text}) + "\n" for text in [*TEXTS, ""]))
    loaded = load_model(model)
    for name, top in (("a.npz", None), ("b.npz", 2), ("c.parquet", None), ("d.parquet", 2)):
        ended = run("score", model, file, "-o", tmp_path / name, *([] if top is None else ["--top", str(top)]))
        assert ended.code == 0, ended.err
        scores = loaded.score([*TEXTS, ""], top=top)
        assert ended.out == f"{tmp_path / name}: {scores!r}; 1 empty text was scored by what labels are usual\n"
        found = Scores.load(tmp_path / name)
        assert (found.dense() == scores.dense()).all()
        assert found.ids == tuple(map(str, range(len(TEXTS) + 1)))
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "a.npz",
        "b.npz",
        "c.parquet",
        "d.parquet",
        "texts.jsonl",
    ]


def test_standard_input_and_output(model: Path, new: Path, run: Run, typed: Any) -> None:
    wanted = run("predict", model, new).out
    for content in (ROWS, gzip.compress(ROWS.encode())):
        typed(content)
        ended = run("predict", model, "-", "-o", "-")
        assert (ended.code, ended.out) == (0, wanted)
    typed(ROWS)
    assert table(run("predict", model, "-", "--to-format", "csv").out)[0]["predicted"] == "cat"
    run("convert", new, new.with_name("new.parquet"), "--taxonomy", put(new.parent, "t.tsv", "root\tpet\n"))
    typed(new.with_name("new.parquet").read_bytes())
    assert run("predict", model, "-").out == wanted


def test_what_cannot_be_guessed_or_gone_on_with_is_said(model: Path, new: Path, run: Run, typed: Any) -> None:
    for content, said in (("just a text\n", "--format csv"), ("", "nothing on standard input")):
        typed(content)
        ended = run("predict", model, "-")
        assert ended.code == 2
        assert said in ended.err
    typed(ROWS)
    assert "standard input and output have no past" in run("predict", model, "-", "-o", "p.jsonl", "--resume").err
    assert "predictions are written as .jsonl" in run("predict", model, new, "-o", "p.doc").err
    assert "did you mean csv?" in run("predict", model, new, "--to-format", "cvs").err
    assert "expected npz, parquet" in run("score", model, new, "-o", "-", "--to-format", "csv").err


def test_scores_and_data_go_through_pipes(model: Path, new: Path, run: Run, typed: Any) -> None:
    assert run("score", model, new, "-o", new.with_name("s.npz")).code == 0
    typed(new.with_name("s.npz").read_bytes())
    ended = run("decide", "-", "--rule", "best_leaf", "-o", "-")
    assert [json.loads(line)["id"] for line in ended.out.splitlines()] == ["x", "y", "z"]
    typed("text,label\none,A > B\ntwo,A > C\n")
    ended = run("convert", "-", "-", "--to-format", "csv")
    assert ended.code == 0, ended.err
    assert [row["labels"] for row in table(ended.out)] == ["A > B", "A > C"]
    typed(
        "".join(json.dumps({"text": t, "labels": n}) + "\n" for t, n in zip(TEXTS, SETS["leaf"].paths(), strict=True))
    )
    assert run("fit", "-", "-o", new.with_name("model")).code == 0
    (new.parent / "truth.jsonl").write_text('{"id": "x", "labels": ["pet > cat"]}\n')
    typed('{"id": "x", "labels": [{"label": "cat", "path": "pet > cat"}]}\n')
    assert run("evaluate", new.with_name("truth.jsonl"), "-", "--metrics", "hf1", "--json").json["values"]["hf1"] == 1


# What a process that is killed leaves

KILLED = """
import os, signal, sys
from treelabel.cli import main
from treelabel.operations import bulk
from treelabel.core.append import AppendFile
from treelabel.models import load_model, streaming

bulk.FIRST, streaming.MOST_TEXTS = 5, 8
commit, count = AppendFile.commit, [0]

def dying(self, **state):
    commit(self, **state)
    count[0] += 1
    if count[0] == 3:
        self.write(b"cut in the midd")
        self._stream.flush()
        os.kill(os.getpid(), signal.SIGKILL)

AppendFile.commit = dying
# What commands load is loaded once.
load_model({jobs!r}[0][1]).score(["a text"])
for arguments in {jobs!r}:
    child = os.fork()
    if child == 0:
        main(arguments)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills processes that it forks")
@pytest.mark.filterwarnings("default::treelabel.models.streaming.RuleOfAllWarning")
@pytest.mark.slow
def test_a_run_that_was_killed_is_gone_on_with_to_the_same_bytes(
    model: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = put(tmp_path, "texts.csv", "id,text\n" + "".join(f'{at},"{text}"\n' for at, text in enumerate([*TEXTS, ""])))
    names = ["p.jsonl", "p.csv", "p.jsonl.gz", "p.parquet", "s.npz", "s.parquet", "all.jsonl"]
    jobs: dict[str, list[str]] = {}
    for name in names:
        options = ["score", "--top", "2"] if name[0] == "s" else ["predict"]
        options += ["--rule", "optimal:macro_f1"] if name == "all.jsonl" else []
        jobs[name] = [options[0], str(model), str(file), "-o", str(tmp_path / name), *options[1:]]
    code = textwrap.dedent(KILLED).replace("{jobs!r}", repr(list(jobs.values())))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run([sys.executable, "-c", code], env=environment, check=True, stdout=subprocess.PIPE, text=True)
    assert ended.stdout.split() == [str(-signal.SIGKILL)] * len(names)
    monkeypatch.setattr("treelabel.operations.bulk.FIRST", 5)
    monkeypatch.setattr("treelabel.models.streaming.MOST_TEXTS", 8)
    for name, job in jobs.items():
        assert not (tmp_path / name).exists()
        assert json.loads((tmp_path / f"{name}.partial.json").read_text())["state"]["rows"] == 5 + 8 + 8
        assert "begun with another option of reading" in run(*job, "--resume", "--on-error", "skip").err
        resumed = run(*job, "--resume")
        assert resumed.code == 0, resumed.err
        made = (tmp_path / name).read_bytes()
        whole = run(*job, "--force")
        assert whole.out == resumed.out
        assert (tmp_path / name).read_bytes() == made
        assert not list(tmp_path.glob(f"{name}.partial*"))


def test_a_reader_that_has_seen_enough_is_no_error(model: Path, tmp_path: Path) -> None:
    file = put(tmp_path, "texts.csv", "text\n" + "the cat meows softly\n" * 20_000)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "treelabel", "predict", str(model), str(file)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert b'"cat"' in process.stdout.readline()
        process.stdout.close()
        assert process.wait() == 0
        assert process.stderr.read() == b""


def test_ctrl_c_leaves_what_is_done_to_go_on_with(
    model: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = put(tmp_path, "texts.csv", "text\n" + "".join(f'"{text}"\n' for text in TEXTS))
    job = ["predict", str(model), str(file), "-o", str(tmp_path / "p.jsonl")]
    monkeypatch.setattr("treelabel.operations.bulk.FIRST", 5)
    monkeypatch.setattr("treelabel.models.streaming.MOST_TEXTS", 8)
    with monkeypatch.context() as patch:
        commit = AppendFile.commit

        def interrupted(self: AppendFile, **state: Any) -> None:
            commit(self, **state)
            raise KeyboardInterrupt

        patch.setattr(AppendFile, "commit", interrupted)
        stopped = run(*job)
    assert (stopped.code, stopped.out) == (130, "")
    assert "p.jsonl.partial: holds what is done; the same command with --resume goes on with it" in stopped.err
    assert not (tmp_path / "p.jsonl").exists()
    assert run(*job, "--resume").code == 0
    made = (tmp_path / "p.jsonl").read_bytes()
    assert len(made.splitlines()) == len(TEXTS)
    assert run(*job, "--force").code == 0
    assert (tmp_path / "p.jsonl").read_bytes() == made


@pytest.mark.parametrize("name", ["p.csv", "p.tsv"])
def test_escaped_labels_and_ids_are_read_as_they_were(tmp_path: Path, run: Run, name: str) -> None:
    rows = "".join(
        f"@u{at},{text} {at},{label}\n" for at, (text, label) in enumerate([("woof", "=A"), ("meow", "+B")] * 12)
    )
    file = put(tmp_path, "t.csv", f"id,text,label\n{rows}")
    assert run("fit", file, "-o", tmp_path / "m").code == 0
    assert run("predict", tmp_path / "m", file, "-o", tmp_path / name).code == 0
    judged = run("evaluate", file, tmp_path / name, "--metrics", "hf1")
    assert judged.code == 0, judged.err
    assert "1.0000" in judged.out
    assert "'@u0" in (tmp_path / name).read_text()
