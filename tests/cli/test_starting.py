"""A quick start: what pyarrow and scipy need not load is not loaded, and can still be used."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CODE = """
import gc, sys
from treelabel.cli.process import start_quickly
start_quickly({arguments})
assert ("pyarrow" in sys.modules) is {loads}
import pyarrow as pa
assert pa.array(["a"]).to_pylist() == ["a"]
assert ("pandas" in sys.modules) is not {loads}
assert gc.isenabled() and gc.get_threshold()[0] > 700
import numpy as np, scipy.sparse
assert ("numpy.f2py" in sys.modules) is not {loads}
assert np.ma.sum([1, 2]) == 3 and np.testing.assert_array_equal([1], [1]) is None
assert (scipy.sparse.eye_array(2) @ np.ones(2)).tolist() == [1, 1]
import pandas
assert list(pandas.Series([1, 2]) + 1) == [2, 3]
"""


def started(arguments: list[str], loads: bool) -> None:
    code = CODE.format(arguments=arguments, loads=loads)
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


def test_a_command_does_not_load_pandas() -> None:
    started(["predict", "model", "texts.csv"], True)


@pytest.mark.slow
def test_help_loads_nothing() -> None:
    started(["--version"], False)
    started(["predict", "--help"], False)


@pytest.mark.skipif(os.name == "nt", reason="closes files of a POSIX shell")
@pytest.mark.slow
def test_closed_standard_files_are_no_crash(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("text,label\nwoof,dog\nmeow,cat\n")
    command = f"{sys.executable} -m treelabel"
    for line, code in (
        (f"{command} convert t.csv a.jsonl 2>&-", 0),
        (f"{command} convert t.csv b.jsonl >&-", 0),
        (f"{command} convert - c.jsonl --format csv <&-", 2),
    ):
        ended = subprocess.run(["sh", "-c", line], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert ended.returncode == code, ended.stderr
        assert "should not have happened" not in ended.stderr
    assert (tmp_path / "a.jsonl").read_text() == (tmp_path / "b.jsonl").read_text() != ""
