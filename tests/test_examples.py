"""The README's example prints what it says, and every script in examples/ runs."""

import doctest
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def test_readme_example_prints_what_it_shows() -> None:
    result = doctest.testfile(str(ROOT / "README.md"), module_relative=False)
    assert result.attempted >= 8
    assert result.failed == 0


@pytest.mark.parametrize("script", sorted((ROOT / "examples").glob("*.py")), ids=lambda script: script.stem)
@pytest.mark.slow
def test_example_runs(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(script), run_name="__main__")
    assert capsys.readouterr().out
