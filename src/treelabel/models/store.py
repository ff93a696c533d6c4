"""Model folders: JSON and .npz with a checksum each, written whole or not at all, and read without running anything."""

import hashlib
import json
import os
import zipfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from treelabel.core.errors import TreelabelError, some
from treelabel.core.outputs import whole_folder
from treelabel.encoders.catalogue import Encoder
from treelabel.hierarchy import hierarchy_from_json, hierarchy_to_json
from treelabel.models.base import Model

KIND = "treelabel model"
VERSION = 1


def package_version() -> str:
    """The version of treelabel."""
    return version("treelabel")


def save_model(model: Model, folder: str | Path, overwrite: bool = False) -> None:
    """Write a fitted model to a folder, which appears, or changes, whole or not at all.

    Parameters
    ----------
    model
        A model that has been fitted.
    folder
        Where to. A symbolic link is followed, and stays.
    overwrite
        Replace a model that is there. A folder that holds anything else is never replaced.
    """
    if not hasattr(model, "hierarchy_"):
        raise TreelabelError(f"this {model.name} model has not learned anything yet; call fit before save")
    with whole_folder(folder, lambda target: require_replaceable(target, overwrite)) as working:
        _write(model, working)


def require_replaceable(target: Path, overwrite: bool) -> None:
    """Refuse to write a model where something stands that is not provably a model, and nothing but a model.

    Parameters
    ----------
    target
        The folder that a model is to be written to.
    overwrite
        Whether a model may be replaced.
    """
    if not os.path.lexists(target):
        return
    if not target.is_dir():
        raise TreelabelError(f"{target}: is not a folder; a model is one, so choose another name")
    entries = sorted(target.iterdir())
    if not entries:
        return
    listed = _listed_files(target)
    if listed is None:
        raise TreelabelError(f"{target}: exists and is no model folder; choose another name, or remove it")
    others = [file.name for file in entries if file.name not in listed or not file.is_file() or file.is_symlink()]
    if others:
        raise TreelabelError(
            f"{target}: beside a model it holds {some(others)}, which would be lost; move that away, or choose another "
            "name"
        )
    if not overwrite:
        raise TreelabelError(
            f"{target}: holds a model already; choose another name, or replace it with --force (overwrite=True)"
        )


def _listed_files(folder: Path) -> set[str] | None:
    """Return the names of the files that a model folder may hold, or None if it is not marked as one of ours."""
    try:
        stored = json.loads((folder / "model.json").read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(stored, dict) or stored.get("kind") != KIND or not isinstance(stored.get("sha256"), dict):
        return None
    return {"model.json", "signature.json", *stored["sha256"]}


def _write(model: Model, folder: Path) -> None:
    values, arrays = model._state()
    (folder / "hierarchy.json").write_text(hierarchy_to_json(model.hierarchy_), encoding="utf-8")
    np.savez(folder / "arrays.npz", allow_pickle=False, **arrays)
    model._write_files(folder)
    settings = {name: value for name, value in model.get_params(deep=False).items() if name not in model.unsaved}
    stored = {
        "kind": KIND,
        "version": VERSION,
        "treelabel": package_version(),
        "model": model.name,
        "settings": {name: _storable(value) for name, value in settings.items()},
        "regime": model.regime_,
        "fingerprint": model.hierarchy_.fingerprint,
        "learned": values,
        "sha256": {file.name: _digest(file) for file in sorted(folder.iterdir())},
    }
    (folder / "model.json").write_text(json.dumps(stored, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _storable(value: Any) -> Any:
    """Give an encoder by its name, and a model that is part of another by its name and settings; the rest as it is."""
    if isinstance(value, Model):
        settings = {name: each for name, each in value.get_params(deep=False).items() if name not in value.unsaved}
        return {"model": value.name, **_storable(settings)}
    if isinstance(value, dict):
        return {name: _storable(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_storable(each) for each in value]
    return value.name if isinstance(value, Encoder) else value


def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def load_model(folder: str | Path, **settings: Any) -> Model:
    """Read a model that `save_model` wrote; anything that is altered, cut short, newer or foreign is refused.

    Settings that a folder cannot hold are given again, such as an `encoder=` that has no name of its own.
    """
    from treelabel.models import make_model

    where = Path(folder)
    stored = _described(where)
    for name, digest in stored["sha256"].items():
        file = where / Path(name).name
        if not file.is_file():
            raise TreelabelError(f"{where}: the model is incomplete: {name} is missing")
        if _digest(file) != digest:
            raise TreelabelError(f"{where}: {name} is not what was saved; the file was altered or cut short")
    model = make_model(stored["model"], **{**_settings(stored["settings"]), **settings})
    text = (where / "hierarchy.json").read_text(encoding="utf-8")
    try:
        with np.load(where / "arrays.npz", allow_pickle=False) as file_:
            arrays = {name: file_[name] for name in file_.files}
        model.hierarchy_ = hierarchy_from_json(text, str(where / "hierarchy.json"))
        model.regime_ = stored["regime"]
        model._restore(stored["learned"], arrays)
        model._read_files(where)
    except TreelabelError:
        raise
    except (KeyError, ValueError, IndexError, zipfile.BadZipFile) as error:
        raise TreelabelError(f"{where}: parts of the model do not fit together: {error}") from error
    return model


def _described(where: Path) -> dict[str, Any]:
    """Read what a folder says of itself."""
    file = where / "model.json"
    if not where.exists():
        raise TreelabelError(f"{where}: no such folder")
    if not file.is_file():
        raise TreelabelError(f"{where}: no model folder; expected one that 'treelabel fit' wrote, with a model.json")
    try:
        stored = json.loads(file.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise TreelabelError(f"{file}: damaged: {error}") from error
    if not isinstance(stored, dict) or stored.get("kind") != KIND:
        raise TreelabelError(f"{file}: no model of treelabel")
    if stored.get("version") != VERSION:
        raise TreelabelError(
            f"{where}: a model of version {stored.get('version')!r} (treelabel {stored.get('treelabel')}), but this "
            f"treelabel {package_version()} reads version {VERSION}"
        )
    expected = {"model": str, "settings": dict, "regime": str, "learned": dict, "sha256": dict}
    for name, kind in expected.items():
        if not isinstance(stored.get(name), kind):
            raise TreelabelError(f"{file}: damaged: {name!r} is missing or of the wrong kind")
    return stored


def _settings(stored: dict[str, Any]) -> dict[str, Any]:
    """JSON has no tuples."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in stored.items()}
