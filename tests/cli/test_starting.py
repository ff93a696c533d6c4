"""A quick start: pandas is not loaded by pyarrow, and can still be used."""

import subprocess
import sys

CODE = """
import gc, sys
from treelabel.cli.starting import start_quickly
start_quickly({arguments})
assert ("pyarrow" in sys.modules) is {loads}
import pyarrow as pa
assert pa.array(["a"]).to_pylist() == ["a"]
assert ("pandas" in sys.modules) is not {loads}
assert gc.isenabled() and gc.get_threshold()[0] > 700
import pandas
assert list(pandas.Series([1, 2]) + 1) == [2, 3]
"""


def started(arguments: list[str], loads: bool) -> None:
    code = CODE.format(arguments=arguments, loads=loads)
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


def test_a_command_does_not_load_pandas() -> None:
    started(["predict", "model", "texts.csv"], True)


def test_help_loads_nothing() -> None:
    started(["--version"], False)
    started(["predict", "--help"], False)
