"""MLflow's view of a model: its loader module gets frames and returns frames, as mlflow.pyfunc would call it."""

import json
import os
from importlib import import_module
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import treelabel as tl
from treelabel.core.errors import TreelabelError

TEXTS = ["woof bark", "meow purr", "hot tea"] * 12
PATHS = ["pet > dog", "pet > cat", "drink > tea"] * 12


def loaded(folder: Path) -> tuple[Any, dict[str, Any]]:
    """Load a folder as mlflow.pyfunc.load_model does: by the module that MLmodel names."""
    described = json.loads((folder / "MLmodel").read_text())
    flavour = described["flavors"]["python_function"]
    module = import_module(flavour["loader_module"])
    return module._load_pyfunc(str(folder / flavour["data"])), described


def test_a_frame_goes_in_and_a_frame_comes_out(tmp_path: Path) -> None:
    frame = pd.DataFrame({"body": TEXTS, "kind": PATHS})
    model = tl.fit(frame, text="body", labels="kind", preset="fast")
    tl.save_mlflow(model, tmp_path / "pet")
    pyfunc, described = loaded(tmp_path / "pet")
    asked = pd.DataFrame({"body": ["bark", "tea"]}, index=[7, 9])
    answer = pyfunc.predict(asked, params=None)
    expected = model.predict_frame(asked)
    assert list(answer.columns) == ["label", "path", "probability"]
    assert answer.equals(expected[["label", "path", "probability"]])
    assert answer["path"].tolist() == ["pet > dog", "drink > tea"]
    assert json.loads(described["signature"]["inputs"]) == [{"name": "body", "type": "string"}]
    outputs = json.loads(described["signature"]["outputs"])
    assert [column["name"] for column in outputs] == list(answer.columns)
    assert (tmp_path / "pet" / "requirements.txt").read_text() == f"treelabel=={tl.__version__}\npandas\n"


def test_several_labels_are_lists_and_numbers_stay_numbers(tmp_path: Path) -> None:
    several = [["dog"], ["cat"], ["dog", "cat"]] * 12
    tl.save_mlflow(tl.make_model("most_frequent").fit(TEXTS, several), tmp_path / "several")
    pyfunc, described = loaded(tmp_path / "several")
    assert isinstance(pyfunc.predict(pd.DataFrame({"text": ["woof"]}))["label"][0], list)
    assert json.loads(described["signature"]["inputs"]) == [{"name": "text", "type": "string"}]
    assert json.loads(described["signature"]["outputs"])[0]["type"] == "array"
    tl.save_mlflow(tl.make_model("most_frequent").fit(TEXTS, [5, 5, 6] * 12), tmp_path / "numbers")
    pyfunc, described = loaded(tmp_path / "numbers")
    assert pyfunc.predict(pd.DataFrame({"text": ["woof"]}))["label"].tolist() == [5]
    assert json.loads(described["signature"]["outputs"])[0]["type"] == "long"


def test_the_folder_holds_no_pickle_and_appears_whole_where_nothing_is(tmp_path: Path) -> None:
    model = tl.make_model("most_frequent").fit(TEXTS, PATHS)
    tl.save_mlflow(model, tmp_path / "new" / "pet")
    folder = tmp_path / "new" / "pet"
    assert sorted(os.listdir(folder)) == ["MLmodel", "model", "python_env.yaml", "requirements.txt"]
    assert not [file for file in folder.rglob("*") if file.suffix in (".pkl", ".pickle", ".joblib")]
    assert (folder / "model").stat().st_mode & 0o111
    assert tl.load_model(folder / "model").predict(["woof"]) == model.predict(["woof"])
    with pytest.raises(TreelabelError, match="pet: is there already; choose another name"):
        tl.save_mlflow(model, folder)
    with pytest.raises(TreelabelError, match="has not learned anything yet"):
        tl.save_mlflow(tl.make_model("linear"), tmp_path / "unfitted")
    assert not (tmp_path / "unfitted").exists()


def test_an_altered_model_is_refused(tmp_path: Path) -> None:
    tl.save_mlflow(tl.make_model("most_frequent").fit(TEXTS, PATHS), tmp_path / "pet")
    (tmp_path / "pet" / "model" / "arrays.npz").write_bytes(b"x")
    with pytest.raises(TreelabelError, match=r"arrays\.npz is not what was saved"):
        loaded(tmp_path / "pet")
