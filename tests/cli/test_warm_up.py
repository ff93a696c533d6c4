"""First use: one command says that it compiles, and compiles what all common commands need."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.core.test_code_cache import DAMAGES, call
from tests.helpers import put
from treelabel.cli import warm_up
from treelabel.core.compilation import MESSAGE, compilation

COMMANDS = (
    "sample nouns.csv",
    "inspect nouns.csv",
    "split nouns.csv parts --parts train=0.8,test=0.2",
    "fit parts/train.jsonl -o model",
    "predict model parts/test.jsonl -o predictions.jsonl",
    "evaluate model parts/test.jsonl",
    "report model parts/test.jsonl -o report.html",
    "review model parts/test.jsonl -o queue.csv",
    "explain model dogs",
    "fit parts/train.jsonl -o frequent --model most_frequent",
    "compare model frequent parts/test.jsonl",
)


class FirstUse(NamedTuple):
    """What commands said and had compiled, one after another, in a folder where the cache was empty."""

    folder: Path
    said: list[int]
    compiled: list[set[str]]


@pytest.fixture(scope="module")
def first_use(tmp_path_factory: pytest.TempPathFactory) -> FirstUse:
    """Run commands one after another, as a new user does, with an empty cache."""
    folder = tmp_path_factory.mktemp("first-use")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "NUMBA_CACHE_DIR": str(folder / "compiled"),
    }
    said, compiled = list[int](), list[set[str]]()
    for command in COMMANDS:
        words = [sys.executable, "-m", "treelabel", *command.split()]
        ended = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, (command, ended.stderr)
        said.append(ended.stderr.count(MESSAGE))
        compiled.append({file.name for file in folder.rglob("compiled/**/*.nbc")})
    return FirstUse(folder, said, compiled)


@pytest.mark.slow
def test_loops_of_common_commands_are_compiled_once_and_that_is_said_once(first_use: FirstUse) -> None:
    folder, said, compiled = first_use
    assert sum(said) == 1, said
    # The sample alone needs so few loops that they may be compiled without a word.
    first = said.index(1)
    assert COMMANDS[first].split()[0] in ("sample", "inspect")
    assert compiled[first] == compiled[-1], sorted(compiled[-1] - compiled[first])
    assert not list(folder.rglob("*.lock"))


@pytest.mark.slow
def test_a_command_takes_no_notice_of_a_damaged_cache(first_use: FirstUse, tmp_path: Path) -> None:
    shutil.copytree(first_use.folder / "compiled", tmp_path / "compiled")
    data = put(tmp_path, "data.csv", "text,label\na dog,animal > dog\na car,thing > car\n")
    command = ("-m", "treelabel", "inspect", str(data), "--sep", " > ", "--json")
    first = call(tmp_path, *command)
    for ending in ("nbi", "nbc", "loop"):
        for damage, file in zip(DAMAGES.values(), sorted(tmp_path.glob(f"compiled/*/*.{ending}")), strict=False):
            file.write_bytes(damage(file.read_bytes()))
    assert call(tmp_path, *command) == first


def test_a_command_waits_for_what_it_started_and_an_interrupted_one_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm_up, "is_warm", lambda: False)
    for seconds, interrupt in ((0.2, False), (60, True)):
        sleep = [sys.executable, "-c", f"import time; time.sleep({seconds})"]
        monkeypatch.setattr(warm_up, "child_python", lambda *_, sleep=sleep: sleep)
        started, said = list[subprocess.Popen[bytes]](), list[str]()
        start = warm_up.start_processes
        monkeypatch.setattr(warm_up, "start_processes", lambda start=start, to=started: to.extend(start()) or to)
        try:
            with warm_up.compile_together(said.append):
                monkeypatch.setattr(compilation, "_after", 0.0)
                with compilation.going_on():
                    pass
                assert said == [MESSAGE]
                assert started
                assert all(process.poll() is None for process in started)
                if interrupt:
                    raise KeyboardInterrupt
        except KeyboardInterrupt:
            assert interrupt
        assert all((process.returncode == 0) is not interrupt for process in started)
        monkeypatch.setattr(warm_up, "start_processes", start)


def test_a_command_that_compiles_something_else_starts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm_up, "is_warm", lambda: True)
    monkeypatch.setattr(warm_up, "start_processes", None)
    said = list[str]()
    with warm_up.compile_together(said.append):
        monkeypatch.setattr(compilation, "_after", 0.0)
        with compilation.going_on():
            pass
    assert said == [MESSAGE]
