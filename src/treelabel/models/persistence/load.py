"""Reading model folders: nothing in them is run, and nothing is trusted before it is checked."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np

from treelabel.core.array_schema import Arrays, Schema, Sizes
from treelabel.core.errors import TreelabelError, locate_errors
from treelabel.core.inputs import file_sha256
from treelabel.core.json_text import read_json, read_ordinary
from treelabel.core.npz import Headers, read_arrays
from treelabel.core.registry import did_you_mean
from treelabel.core.types import IntArray
from treelabel.core.validation import from_json, is_valid
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.hierarchy_json import hierarchy_from_json
from treelabel.models.base import Model
from treelabel.models.persistence.signing import check_signature
from treelabel.models.persistence.store import (
    ARRAYS,
    CARD,
    HIERARCHY,
    KIND,
    PROFILE,
    VERSION,
    ModelDescription,
    package_version,
)
from treelabel.models.profile import Profile, profile_schema
from treelabel.models.registry import MODELS, check_setting_names, make_model
from treelabel.rules.registry import find_rule

# How often a folder is read again because it was replaced meanwhile.
MOST_TRIES = 100


def load_model(folder: str | Path, require_signature: str | Path | None = None, **settings: Any) -> Model:
    """Read a model that `save_model` wrote; anything that is altered, cut short, newer or foreign is refused.

    Parameters
    ----------
    folder : str or Path
        The folder. Its arrays must fit what the model declares in `_schema`, its values and settings their type hints.
    require_signature : str, Path or None
        A file or folder of public keys (default: TREELABEL_REQUIRE_SIGNATURE). A model that was not signed with one of
        them is refused before anything of it is read but the bytes of model.json.
    **settings
        Settings that a folder cannot hold, such as an `encoder=` that has no name of its own.

    Returns
    -------
    Model
        As it was saved.
    """
    where = Path(folder)
    for _ in range(MOST_TRIES):
        before = _state(where)
        try:
            model = _load(where, require_signature, settings)
        except TreelabelError:
            if _state(where) == before:
                raise
        else:
            if _state(where) == before:
                return model
    raise TreelabelError(f"{where}: is being replaced all the time; load it when that is over")


def _state(where: Path) -> tuple[int, ...]:
    """Identify a folder: a save puts another one in its place, and what was read of both would not belong together."""
    try:
        result = where.stat()
    except OSError:
        return ()
    return result.st_dev, result.st_ino, result.st_ctime_ns


def _load(where: Path, require_signature: str | Path | None, settings: dict[str, Any]) -> Model:
    """Read a folder that nobody replaces meanwhile."""
    stored = _read_description(where, require_signature)
    with _locate(where):
        _check_files(where, stored.sha256)
        maker = MODELS.find(stored.model).maker
        check_setting_names(stored.model, stored.settings)
        maker.check_settings(stored.settings)
        # JSON has no tuples.
        saved = {name: tuple(value) if isinstance(value, list) else value for name, value in stored.settings.items()}
        model = make_model(stored.model, **{**saved, **settings})
        text = read_ordinary(where / HIERARCHY, str(where / HIERARCHY))
        h = model.hierarchy_ = hierarchy_from_json(text, str(where / HIERARCHY))
        h.require_same(stored.fingerprint, "what the model has learned")
        model.regime_, model.evidence_, model.form_ = stored.regime, stored.evidence, stored.form
        model.reading_ = stored.reading
        if any(not 0 <= node < len(h) for node in stored.form.columns):
            raise TreelabelError("damaged: 'form' has columns that are no nodes")
        model.rule_, model.stop_nodes_ = _known_rule(stored.rule), _stop_nodes(stored.stop_nodes, h)
        schema = model.schema(stored.learned)
        names = (HIERARCHY, ARRAYS, PROFILE, *schema.file_names)
        _require_listed(stored.sha256, names)
        # Models that were saved by earlier versions have no card.
        unknown = [name for name in stored.sha256 if name not in (*names, CARD)]
        if unknown:
            raise TreelabelError(f"{unknown[0]} does not belong to this model")
        model._restore(stored.learned, _arrays(where / ARRAYS, schema))
        model._read_files(where)
        arrays = _arrays(where / PROFILE, profile_schema(stored.profile, h))
        model.profile_ = Profile.of_stored(stored.profile, arrays, h)
    return model


@contextmanager
def _locate(where: Path) -> Iterator[None]:
    """Begin messages with the folder, and make one sentence of what libraries raise on foreign bytes."""
    try:
        with locate_errors(where):
            yield
    except (TreelabelError, MemoryError):
        raise
    except Exception as error:
        # There is no end to what they raise; the traceback is shown with --debug.
        why = str(error).strip().partition("\n")[0][:200]
        raise TreelabelError(f"{where}: parts of the model do not fit together: {why}") from error


def _read_description(where: Path, require_signature: str | Path | None) -> ModelDescription:
    """Read what a folder says of itself."""
    file = where / "model.json"
    if not where.exists():
        siblings = [each.name for each in where.parent.iterdir()] if where.parent.is_dir() else []
        hint = did_you_mean(where.name, siblings, most=2)
        raise TreelabelError(f"{where}: no such folder{f'; {hint}' if hint else ''}")
    if not file.is_file():
        raise TreelabelError(f"{where}: no model folder; expected one that 'treelabel fit' wrote, with a model.json")
    _require_inside(where, "model.json")
    # What is verified is what is parsed: the file is read once.
    content = read_ordinary(file, str(file))
    check_signature(where, content, require_signature)
    stored = read_json(content, str(file), "model", allow_nan=True)
    if not isinstance(stored, dict) or stored.get("kind") != KIND:
        raise TreelabelError(f"{file}: no model of treelabel")
    if stored.get("version") != VERSION:
        raise TreelabelError(
            f"{where}: a model of version {stored.get('version')!r} (treelabel {stored.get('treelabel')}), but this "
            f"treelabel {package_version()} reads version {VERSION}"
        )
    for name, kind in get_type_hints(ModelDescription).items():
        if name not in stored or not is_valid(stored[name], kind):
            raise TreelabelError(f"{file}: damaged: {name!r} is missing or of the wrong kind")
    description: ModelDescription = from_json(stored, ModelDescription)
    return description


def _known_rule(stored: str) -> str:
    """Refuse a rule that `decide` would refuse."""
    asked = find_rule(stored)
    missing = asked.rule.needs - set(asked.settings)
    if missing:
        raise TreelabelError(f"damaged: the rule {stored[:80]!r} needs {min(missing)}, which a model does not know")
    return stored


def _stop_nodes(stored: list[int], hierarchy: Hierarchy) -> IntArray:
    inner = set(np.flatnonzero(~hierarchy.is_leaf).tolist())
    if not inner.issuperset(stored) or sorted(set(stored)) != stored:
        raise TreelabelError("damaged: 'stop_nodes' are not inner nodes of the hierarchy in their order")
    return np.array(stored, np.int32)


def _require_inside(where: Path, name: str) -> None:
    """Refuse names that lead out of the folder, and what is no ordinary file."""
    if name in ("", ".", "..") or "/" in name or "\\" in name or "\0" in name:
        raise TreelabelError(f"{where}: damaged: {name!r} is no name of a file in the folder")
    file = where / name
    if not file.exists():
        raise TreelabelError(f"{where}: the model is incomplete: {name} is missing")
    if file.resolve().parent != where.resolve() or not file.is_file():
        raise TreelabelError(f"{where}: {name} is no ordinary file of this folder")


def _check_files(where: Path, digests: dict[str, str]) -> None:
    for name, digest in digests.items():
        _require_inside(where, name)
        if file_sha256(where / name) != digest:
            raise TreelabelError(f"{where}: {name} is not what was saved; the file was altered or cut short")
    _require_listed(digests, (HIERARCHY, ARRAYS))


def _require_listed(digests: dict[str, str], names: tuple[str, ...]) -> None:
    missing = [name for name in names if name not in digests]
    if missing:
        raise TreelabelError(f"the model is incomplete: model.json has no checksum of {missing[0]}")


def _arrays(file: Path, schema: Schema) -> Arrays:
    """Read the arrays, each header checked before any is unpacked, and check them all."""
    sizes: Sizes = {}

    def check(headers: Headers) -> None:
        sizes.update(schema.check_headers(headers))

    with locate_errors(file, "damaged: "):
        arrays = read_arrays(file, "the arrays of a model", check)
        schema.check_values(arrays, sizes)
    return arrays
