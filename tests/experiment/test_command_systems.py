"""What commands write, and what is made of it."""

import json
import os
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.experiment.small import SPEC, write_data, write_study
from treelabel import TreelabelError
from treelabel.experiment import command_systems
from treelabel.experiment.command_systems import environment, files_hash, read_label_scores, run_command
from treelabel.experiment.data_sets import Splits, load_parts
from treelabel.experiment.plan import make_plan
from treelabel.experiment.running import RunOptions, run_study
from treelabel.experiment.spec import DataSpec, SystemSpec
from treelabel.experiment.spec_reader import read_spec

LABEL = "animal > dog"


@pytest.fixture
def parts(tmp_path: Path) -> Splits:
    write_data(tmp_path, 16)
    return load_parts(DataSpec("small", train="train.csv", test="test.csv"), tmp_path, 0)


def run(parts: Splits, folder: Path, program: str, writes: Any) -> command_systems.CommandOutput:
    working = folder / "working"
    working.mkdir()
    system = SystemSpec("peer", command=("{python}", "-c", program, "{test}", "{output}"), writes=writes)
    return run_command(system, parts, folder, working, 0, 1)


def lines(rows: list[Any]) -> str:
    return "\n".join(json.dumps(row) for row in rows)


def every(parts: Splits, labels: Any) -> list[Any]:
    return [{"id": name, "labels": labels} for name in parts.test.ids]


WRONG_SCORES: list[tuple[Callable[[list[Any]], list[Any]], str]] = [
    (lambda rows: rows + rows[:1], "stands there twice"),
    (lambda rows: [{**rows[0], "labels": rows[0]["labels"] * 2}, *rows[1:]], "the label 'animal > dog' stands there"),
    (lambda rows: rows[1:], "nothing for 1 of 8 test documents"),
    (lambda rows: [[1, 2]], 'expected {"id": "7"'),
    (lambda rows: [{"labels": []}], 'expected {"id": "7"'),
    (lambda rows: [{"id": "test0", "labels": ["dog"]}], 'expected {"id": "7"'),
    (lambda rows: [{"id": "test0", "labels": [{"p": 0.5}]}], 'expected {"id": "7"'),
    (lambda rows: [{"id": "test0", "labels": [{"label": "dog", "p": "x"}]}], 'expected {"id": "7"'),
    (lambda rows: [{"id": "test0", "labels": [{"label": "dgo", "p": 0.5}]}], ":1: unknown label 'dgo'"),
]


@pytest.mark.parametrize(("change", "told"), WRONG_SCORES)
def test_wrong_scores_are_told_in_a_sentence(
    parts: Splits, tmp_path: Path, change: Callable[[list[Any]], list[Any]], told: str
) -> None:
    rows = every(parts, [{"label": LABEL, "p": 0.4}])
    file = tmp_path / "scores.jsonl"
    file.write_text(lines(rows) + "\n\n")
    assert read_label_scores(file, parts.test).dense().max() == pytest.approx(0.4)
    file.write_text(lines(change(rows)))
    with pytest.raises(TreelabelError) as error:
        read_label_scores(file, parts.test)
    assert told in str(error.value)


@pytest.mark.parametrize(
    ("writes", "program", "told"),
    [
        ("predictions", "import os, sys; os.mkdir(sys.argv[2])", "wrote no file to {output}"),
        ("predictions", "import sys; open(sys.argv[2], 'w').write('{')", "what the command wrote: output.jsonl"),
        ("values", 'import sys; open(sys.argv[2], \'w\').write(\'{"values": {"a": "x"}}\')', "values['a'] is 'x'"),
        ("values", "import sys; open(sys.argv[2], 'w').write('[]')", "it has no values"),
    ],
)
def test_wrong_files_are_told_in_a_sentence(
    parts: Splits, tmp_path: Path, writes: str, program: str, told: str
) -> None:
    with pytest.raises(TreelabelError) as error:
        run(parts, tmp_path, program, writes)
    assert told in str(error.value)
    assert str(tmp_path) not in str(error.value)


def test_two_predictions_for_one_document_are_refused(parts: Splits, tmp_path: Path) -> None:
    text = lines(every(parts, [LABEL]) * 2)
    with pytest.raises(TreelabelError, match="the document 'test0' stands there twice"):
        run(parts, tmp_path, f"import sys; open(sys.argv[2], 'w').write({text!r})", "predictions")


@pytest.mark.parametrize("times", ["[1]", '{"fit_seconds": -3}', '{"fit_seconds": true}', '{"model_bytes": 1e999}'])
def test_times_that_cannot_be_are_refused(parts: Splits, tmp_path: Path, times: str) -> None:
    program = "import sys; o = sys.argv[2]; open(o, 'w').write('{\"values\": {}}'); "
    program += f"open(o + '.json', 'w').write({times!r})"
    with pytest.raises(TreelabelError, match="what the command wrote: "):
        run(parts, tmp_path, program, "values")


def test_a_program_that_is_not_there_is_told(parts: Splits, tmp_path: Path) -> None:
    with pytest.raises(TreelabelError, match="cannot be run: /no/such: No such file"):
        run_command(SystemSpec("peer", command=("/no/such",)), parts, tmp_path, tmp_path, 0, 1)


def test_a_changed_script_is_another_program(tmp_path: Path) -> None:
    script = tmp_path / "peer.sh"
    script.write_text("echo 1")
    system = SystemSpec("peer", command=("sh", "{folder}/peer.sh"))
    before = files_hash(system, tmp_path)
    script.write_text("echo 2")
    assert files_hash(system, tmp_path) != before


def test_one_environment_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_systems, "cache_folder", lambda: tmp_path)
    made: list[tuple[str, ...]] = []

    def install(python: Path, requirements: tuple[str, ...]) -> None:
        time.sleep(0.2)
        made.append(requirements)

    monkeypatch.setattr(command_systems, "_install", install)
    threads = [threading.Thread(target=environment, args=(("something",),)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [("something",)]


def asleep(start: str) -> list[psutil.Process]:
    """Find processes whose last argument begins so."""
    return [each for each in psutil.process_iter(["cmdline"]) if (each.info["cmdline"] or [""])[-1].startswith(start)]


@pytest.mark.parametrize("end", ["", "sys.exit('no luck')"])
@pytest.mark.slow
def test_what_begins_a_session_of_its_own_ends_with_the_command(parts: Splits, tmp_path: Path, end: str) -> None:
    program = (
        "import subprocess, sys\n"
        'again = \'import subprocess; subprocess.Popen(["sleep", "54331"], start_new_session=True)\'\n'
        "subprocess.run([sys.executable, '-c', again], start_new_session=True)\n"
        "subprocess.Popen(['sleep', '54332'])\n"
        f"{end}\n"
        "open(sys.argv[2], 'w').write('{\"values\": {\"a\": 1}}')"
    )
    with pytest.raises(TreelabelError, match="no luck") if end else nullcontext():
        assert run(parts, tmp_path, program, "values").values == {"a": 1}
    assert not asleep("5433")


LEAVES = """
import json, subprocess, sys, time
subprocess.Popen(["sleep", "65432"])
subprocess.Popen(["sleep", "65433"], start_new_session=True)
if sys.argv[3] == "late":
    time.sleep(99)
open(sys.argv[2], "w").write(json.dumps({"values": {"a": 1}}))
"""


@pytest.mark.slow
def test_nothing_that_a_command_began_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "leaves.py").write_text(LEAVES)
    (tmp_path / "late.py").write_text(LEAVES)
    text = SPEC.partition("[systems")[0].replace("seeds = 2", "seeds = 1")
    for name, more in (("leaves", ""), ("late", 'time_limit = "6s"')):
        text += (
            f'[systems.{name}]\ncommand = ["{{python}}", "{{folder}}/{name}.py", "{{test}}", "{{output}}", "{name}"]\n'
        )
        text += f'writes = "values"\n{more}\n'
    results = run_study(make_plan(read_spec(write_study(tmp_path, text))), tmp_path / "results", RunOptions())
    assert [each.status for each in results.runs] == ["done", "timeout"]
    time.sleep(0.5)
    assert not asleep("6543")
    assert not os.listdir(tmp_path / "temporary")
