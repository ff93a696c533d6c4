"""Folders that `mlflow.pyfunc.load_model` loads: a model folder, and files that tell MLflow how. Nothing is pickled.

MLflow itself is not needed to write one. It imports this module by the name that stands in MLmodel.
"""

import json
import platform
from pathlib import Path
from typing import Any

from treelabel.core.atomic_output import atomic_folder, require_writable
from treelabel.core.errors import TreelabelError
from treelabel.core.registry import Lazy
from treelabel.models.base import Model
from treelabel.models.persistence.load import load_model
from treelabel.models.persistence.store import package_version, save_model
from treelabel.models.registry import MODELS

DATA, MODEL_FILE, REQUIREMENTS, ENVIRONMENT = "model", "MLmodel", "requirements.txt", "python_env.yaml"
COLUMNS = ("label", "path", "probability")


def save_mlflow(model: Model, folder: str | Path) -> None:
    """Write a fitted model to a folder that MLflow loads as a python_function.

    `mlflow.pyfunc.load_model(folder).predict(frame)` takes a pandas DataFrame with the columns of the texts that the
    model has learned from ("text" where it was passed lists), and returns one with `label`, `path` and `probability`,
    as `Model.predict_frame` writes them.

    Parameters
    ----------
    model
        A model that has been fitted.
    folder
        A folder that is not there yet, or is empty; it appears whole or not at all.
    """
    model.require_fitted()
    with atomic_folder(folder, _require_free) as working:
        save_model(model, working / DATA)
        # YAML has all of JSON.
        files = {
            MODEL_FILE: json.dumps(_describe(model), indent=2),
            REQUIREMENTS: f"treelabel{_extra(model)}=={package_version()}\npandas",
            ENVIRONMENT: f'python: "{platform.python_version()}"\ndependencies:\n- -r {REQUIREMENTS}',
        }
        for name, text in files.items():
            (working / name).write_text(text + "\n", encoding="utf-8", newline="\n")


def _require_free(target: Path) -> None:
    require_writable(target, next(folder for folder in target.absolute().parents if folder.exists()))
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise TreelabelError(f"{target}: is there already; choose another name, or remove it")


def _describe(model: Model) -> dict[str, Any]:
    """Return the content of MLmodel: which module loads the model, and the columns that go in and come out."""
    kind = {"type": "long" if model.form_.kind in ("numbers", "codes") else "string"}
    types: list[dict[str, Any]] = [kind, {"type": "string"}, {"type": "double"}]
    if model.regime_ == "multi_path":
        types = [{"type": "array", "items": each} for each in types]
    inputs = [{"name": name, "type": "string"} for name in model.reading_.get("text", ("text",))]
    outputs = [{"name": name, **each} for name, each in zip(COLUMNS, types, strict=True)]
    flavour = {
        "loader_module": __name__,
        "data": DATA,
        "env": {"virtualenv": ENVIRONMENT},
        "python_version": platform.python_version(),
    }
    return {
        "flavors": {"python_function": flavour},
        "signature": {"inputs": json.dumps(inputs), "outputs": json.dumps(outputs), "params": None},
    }


def _extra(model: Model) -> str:
    """Return the extra that a model needs where it is loaded, in brackets."""
    row = MODELS.get(model.name)
    is_neural = isinstance(row, Lazy) and row.location.startswith("neural.")
    inner = any(_extra(each) for each in getattr(model, "estimators_", ()))
    return "[neural]" if is_neural or inner or getattr(model, "encoder_", None) is not None else ""


class FrameModel:
    """A model as MLflow calls it: frames in, frames out."""

    def __init__(self, model: Model) -> None:
        self.model = model

    def predict(self, model_input: Any, params: dict[str, Any] | None = None) -> Any:
        """Predict the label, the path and the probability of each text.

        Parameters
        ----------
        model_input : pandas.DataFrame
            With the columns of the texts.
        params : None
            MLflow passes it; there are none.

        Returns
        -------
        pandas.DataFrame
        """
        return self.model.predict_frame(model_input)[list(COLUMNS)]


def _load_pyfunc(path: str) -> FrameModel:
    """Load what `save_mlflow` wrote; MLflow calls it with the folder of the model."""
    return FrameModel(load_model(path))
