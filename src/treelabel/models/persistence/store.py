"""Model folders: JSON, .npz and a card with a checksum each, written whole or not at all; `load` reads them."""

import json
import os
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar, TypedDict

from treelabel.core.array_schema import Arrays, Schema
from treelabel.core.atomic_output import atomic_folder, require_writable
from treelabel.core.errors import TreelabelError, some
from treelabel.core.inputs import file_sha256
from treelabel.core.npz import write_arrays
from treelabel.core.types import IntArray
from treelabel.core.validation import JsonRecord, validate
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.hierarchy_json import hierarchy_to_json
from treelabel.hierarchy.labelled_texts import Regime
from treelabel.models.label_forms import LabelForm
from treelabel.models.persistence.model_card import write_card
from treelabel.models.profile import Profile, ProfileMeans
from treelabel.models.settings import Settings, not_fitted
from treelabel.selection.evidence import Evidence

KIND = "treelabel model"
VERSION = 1
HIERARCHY, ARRAYS, PROFILE, CARD = "hierarchy.json", "arrays.npz", "profile.npz", "README.md"


@dataclass(frozen=True)
class ModelDescription(JsonRecord):
    """The content of model.json."""

    kind: str
    version: int
    treelabel: str
    model: str
    settings: dict[str, Any]
    regime: Regime
    rule: str
    evidence: Evidence
    stop_nodes: list[int]
    form: LabelForm
    fingerprint: str
    learned: dict[str, Any]
    profile: ProfileMeans
    # How the training file was read, for files of the same shape: options of `read`.
    reading: dict[str, str | bool | list[str]]
    sha256: dict[str, str]


class NoValues(TypedDict):
    """No values at all."""


class StorableModel(Settings, ABC):
    """The parts of a fitted model that its folder holds; a model declares what else it has learned.

    `learned` is the type hint of the values of `_state`, `_schema` declares its arrays. What is not declared is not
    loaded.
    """

    learned: ClassVar[Any] = NoValues
    unsaved: ClassVar[tuple[str, ...]] = ("hierarchy",)
    hierarchy_: Hierarchy
    regime_: Regime
    rule_: str
    evidence_: Evidence
    # The inner nodes at which training documents end.
    stop_nodes_: IntArray
    form_: LabelForm
    profile_: Profile
    reading_: dict[str, Any]

    @abstractmethod
    def _state(self) -> tuple[dict[str, Any], Arrays]:
        """Return what was learned: values for JSON, and arrays."""

    def schema(self, values: dict[str, Any]) -> Schema:
        """Check values that `_state` returned once, and declare the arrays that belong to them."""
        validate(values, self.learned, "learned")
        return self._schema(values)

    @abstractmethod
    def _schema(self, values: dict[str, Any]) -> Schema:
        """Declare the arrays and files to save, in a model that has learned or is about to be restored.

        `values` are those of `_state`; they fit `learned`. Hierarchy and regime are known.
        """

    @abstractmethod
    def _restore(self, values: dict[str, Any], arrays: Arrays) -> None:
        """Take back what `_state` returned; values and arrays fit `learned` and `_schema`."""

    # Not abstract: most models are JSON and arrays.
    def _write_files(self, folder: Path) -> None:
        """Write further files alongside these, such as weights of a network."""

    def _read_files(self, folder: Path) -> None:
        """Take back what `_write_files` wrote; called after `_restore`."""


def package_version() -> str:
    """The version of treelabel."""
    return version("treelabel")


def save_model(model: StorableModel, folder: str | Path, overwrite: bool = False) -> None:
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
        raise not_fitted(f"this {model.name} model has not learned anything yet; call fit before save")
    with atomic_folder(folder, lambda target: require_replaceable(target, overwrite)) as working:
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
    above = next((folder for folder in target.absolute().parents if folder.exists()), Path("/"))
    if not above.is_dir():
        raise TreelabelError(f"{target}: {above} is a file, expected a folder")
    require_writable(target, above)
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


def _write(model: StorableModel, folder: Path) -> None:
    values, arrays = model._state()
    (folder / HIERARCHY).write_text(hierarchy_to_json(model.hierarchy_), encoding="utf-8")
    write_arrays(folder / ARRAYS, arrays)
    write_arrays(folder / PROFILE, model.profile_.arrays())
    (folder / CARD).write_text(write_card(model), encoding="utf-8", newline="\n")
    model._write_files(folder)
    description = ModelDescription(
        KIND,
        VERSION,
        package_version(),
        model.name,
        model.storable_settings(),
        model.regime_,
        model.rule_,
        model.evidence_,
        model.stop_nodes_.tolist(),
        model.form_,
        model.hierarchy_.fingerprint,
        values,
        model.profile_.means(),
        model.reading_,
        {file.name: file_sha256(file) for file in sorted(folder.iterdir())},
    )
    stored = json.dumps(asdict(description), indent=2, ensure_ascii=False)
    (folder / "model.json").write_text(stored + "\n", encoding="utf-8")


@contextmanager
def files_to(folder: Path, prefix: str) -> Iterator[Path]:
    """Yield an empty folder, whose files are copied into that of the model, each behind the prefix of its part."""
    with tempfile.TemporaryDirectory() as temporary:
        yield Path(temporary)
        for file in sorted(Path(temporary).iterdir()):
            shutil.copyfile(file, folder / f"{prefix}{file.name}")


@contextmanager
def files_from(folder: Path, prefix: str) -> Iterator[Path]:
    """Yield a folder with copies of the files of a part, by their names without its prefix."""
    with tempfile.TemporaryDirectory() as temporary:
        for file in sorted(folder.glob(f"{prefix}*")):
            shutil.copyfile(file, Path(temporary) / file.name.removeprefix(prefix))
        yield Path(temporary)
