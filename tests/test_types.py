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
        # A cache of its own: that of the project has other options.
        return [sys.executable, "-m", "mypy", "--strict", "--cache-dir", os.devnull]
    if shutil.which("node") is None:
        pytest.skip("pyright needs node, which is not installed")
    return [sys.executable, "-m", "pyright", "--pythonpath", sys.executable]


def check(name: str, file: Path) -> tuple[int, str]:
    environment = {**os.environ, "MYPYPATH": str(ROOT / "src"), "PYTHONPATH": str(ROOT / "src")}
    command = [*checker(name), str(file)]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=file.parent, env=environment, check=False)
    return ended.returncode, ended.stdout + ended.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mypy", "pyright"])
def test_type_checkers_know_the_package(name: str, tmp_path: Path) -> None:
    file = tmp_path / "used.py"
    config = f'[tool.pyright]\\nextraPaths = ["{ROOT / "src"}"]\\n[tool.mypy]\\nignore_missing_imports = true\\n'
    (tmp_path / "pyproject.toml").write_text(config.replace("\\n", "\n"))
    file.write_text(RIGHT)
    code, said = check(name, file)
    assert code == 0, said
    file.write_text(RIGHT + "\n".join(WRONG) + "\n")
    code, said = check(name, file)
    assert code == 1, said
    start = RIGHT.count("\n") + 1
    for number, line in enumerate(WRONG, start):
        assert f"used.py:{number}:" in said, (line, said)
    assert not any(f"used.py:{number}:" in said for number in range(1, start))
