"""Type checkers see what there is and what there is not: names of the package, attributes of models, predictions."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
RIGHT = """
from typing import Any, assert_type
import treelabel as tl

model = tl.fit(["a", "b"], ["x", "y"], preset="fast")
assert_type(model.predict(["a"], rule="best_leaf"), list[list[str]])
assert_type(model.predict(["a"], paths=True), list[list[str]])
assert_type(model.predict(["a"], None, False), list[list[str]])
assert_type(model.predict(["a"]), Any)
assert_type(model.score(["a"]), tl.Scores)
assert_type(model.score(["a"], ["x"], sample_weight=[1.0]), float)
assert_type(tl.scorer("hf1")(model, ["a"], ["x"]), float)
assert_type(model.hierarchy, tl.Hierarchy | None)
assert_type(model.set_fit_request(groups=True).fit(["a"], ["x"]).default_rule, str)
"""
# Each line is an error.
WRONG = ("tl.no_such_name", "model.no_such_attribute", "model.predict(1, rool='best_leaf')", "tl.fit(1, preset=2)")


def checker(name: str) -> list[str]:
    """Return the command of a type checker; pyright needs node, which it would download where there is none."""
    if name == "mypy":
        # A cache of its own, as that of the project has other options.
        return [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(ROOT / ".mypy_cache" / "of_users")]
    if shutil.which("node") is None:
        pytest.skip("pyright needs node, which is not installed")
    return [sys.executable, "-m", "pyright", "--pythonpath", sys.executable]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mypy", "pyright"])
def test_type_checkers_know_the_package(name: str, tmp_path: Path) -> None:
    config = f'[tool.pyright]\nextraPaths = ["{ROOT / "src"}"]\n[tool.mypy]\nignore_missing_imports = true\n'
    (tmp_path / "pyproject.toml").write_text(config)
    (tmp_path / "right.py").write_text(RIGHT)
    (tmp_path / "wrong.py").write_text(RIGHT + "\n".join(WRONG) + "\n")
    environment = {**os.environ, "MYPYPATH": str(ROOT / "src"), "PYTHONPATH": str(ROOT / "src")}
    command = [*checker(name), "right.py", "wrong.py"]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False)
    said = ended.stdout + ended.stderr
    assert ended.returncode == 1, said
    start = RIGHT.count("\n") + 1
    wrong = [f"wrong.py:{number}:" for number in range(start, start + len(WRONG))]
    for place, line in zip(wrong, WRONG, strict=True):
        assert place in said, (line, said)
    # Nothing else is wrong: neither what is right, nor the package.
    errors = [line for line in said.splitlines() if "error: " in line]
    assert all(any(place in error for place in wrong) for error in errors), said
