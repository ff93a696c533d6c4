"""The option --for of fit: what it chooses for, says, and refuses."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from treelabel import TreelabelError
from treelabel.cli.app import app


@pytest.fixture
def train(tmp_path: Path) -> Path:
    rows = [("woof bark", "dog"), ("meow purr", "cat"), ("tweet sing", "bird")] * 20
    lines = [json.dumps({"text": f"{text} {number}", "labels": [label]}) for number, (text, label) in enumerate(rows)]
    file = tmp_path / "train.jsonl"
    file.write_text("\n".join(lines), encoding="utf-8")
    return file


def test_fit_names_the_metric(train: Path, tmp_path: Path) -> None:
    for options, words in (([], "chosen for leaf accuracy"), (["--for", "micro_f1"], "chosen for micro_f1")):
        result = CliRunner().invoke(app, ["fit", str(train), "-o", str(tmp_path / f"model{len(options)}"), *options])
        assert result.exit_code == 0, result.output
        assert words in " ".join(result.output.split())
    card = (tmp_path / "model2" / "README.md").read_text(encoding="utf-8")
    assert "chosen for micro" in card


def test_unknown_metrics_and_two_of_them_are_refused(train: Path, tmp_path: Path) -> None:
    fit = ["fit", str(train), "-o", str(tmp_path / "model")]
    result = CliRunner().invoke(app, [*fit, "--for", "mikro_f1"])
    assert isinstance(result.exception, TreelabelError)
    assert "unknown metric 'mikro_f1'; did you mean micro_f1" in str(result.exception)
    result = CliRunner().invoke(app, [*fit, "--for", "hf1", "--set", "optimize=hf1"])
    assert "optimize was given twice: as --for and as --set optimize=" in str(result.exception)
