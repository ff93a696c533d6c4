"""Reading model folders: nothing in them is run, and nothing is trusted before it is checked."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NotRequired, TypedDict, cast, get_type_hints

import numpy as np

from treelabel.core.array_schema import Arrays, Schema, Sizes
from treelabel.core.errors import TreelabelError, locate_errors
from treelabel.core.json_text import read_json, read_ordinary
from treelabel.core.npz import Headers, read_arrays
from treelabel.core.types import IntArray
from treelabel.core.validation import is_valid, validate
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.hierarchy_json import hierarchy_from_json
from treelabel.hierarchy.labelled_texts import Regime
from treelabel.models.base import Model
from treelabel.models.label_forms import LabelForm, StoredForm
from treelabel.models.persistence.signing import check_signature
from treelabel.models.persistence.store import KIND, PROFILE, VERSION, package_version
from treelabel.models.profile import Profile, StoredProfile
from treelabel.models.registry import MODELS, check_setting_names, make_model
from treelabel.rules.registry import find_rule
from treelabel.selection.evidence import Evidence, StoredEvidence

# How often a folder is read again because it was replaced meanwhile.
MOST_TRIES = 100
HIERARCHY, ARRAYS = "hierarchy.json", "arrays.npz"


class ModelDescription(TypedDict):
    """The content of model.json."""

    kind: str
    version: int
    treelabel: str
    model: str
    settings: dict[str, Any]
    regime: Regime
    rule: str
    evidence: StoredEvidence
    stop_nodes: list[int]
    fingerprint: str
    learned: dict[str, Any]
    profile: NotRequired[StoredProfile]
    sha256: dict[str, str]


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
        _check_files(where, stored["sha256"])
        maker = MODELS.find(stored["model"]).maker
        check_setting_names(stored["model"], stored["settings"])
        maker.check_settings(stored["settings"])
        model = make_model(stored["model"], **{**_settings(stored["settings"]), **settings})
        text = read_ordinary(where / HIERARCHY, str(where / HIERARCHY))
        model.hierarchy_ = hierarchy_from_json(text, str(where / HIERARCHY))
        model.hierarchy_.require_same(stored["fingerprint"], "what the model has learned")
        model.regime_ = stored["regime"]
        model.rule_, model.evidence_ = _known_rule(stored["rule"]), Evidence.of(stored["evidence"])
        model.stop_nodes_ = _stop_nodes(stored["stop_nodes"], model.hierarchy_)
        model.form_ = _form(stored)
        schema = model.schema(stored["learned"])
        _require_files(stored["sha256"], schema, (PROFILE,) if "profile" in stored else ())
        model._restore(stored["learned"], _arrays(where / ARRAYS, schema))
        model._read_files(where)
        model.profile_ = _profile(where, stored, model.hierarchy_)
    return model


def _profile(where: Path, stored: ModelDescription, hierarchy: Hierarchy) -> Profile | None:
    """Read what the model remembers of its training, if it does."""
    if "profile" not in stored:
        return None
    arrays = _arrays(where / PROFILE, Profile.schema(stored["profile"], hierarchy))
    return Profile.of_stored(stored["profile"], arrays, hierarchy)


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
        raise TreelabelError(f"{where}: no such folder")
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
        if name not in stored and name in ModelDescription.__optional_keys__:
            continue
        if name not in stored or not is_valid(stored[name], kind):
            raise TreelabelError(f"{file}: damaged: {name!r} is missing or of the wrong kind")
    return cast("ModelDescription", stored)


def _known_rule(stored: str) -> str:
    """Refuse a rule that `decide` would refuse."""
    asked = find_rule(stored)
    missing = asked.rule.needs - set(asked.settings)
    if missing:
        raise TreelabelError(f"damaged: the rule {stored[:80]!r} needs {min(missing)}, which a model does not know")
    return stored


def _form(stored: ModelDescription) -> LabelForm:
    """Take the form of labels; folders of earlier versions have none."""
    form = cast("dict[str, Any]", stored).get("form")
    if form is None:
        return LabelForm()
    validate(form, StoredForm, "damaged: 'form'")
    return LabelForm(**form)


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
        with (where / name).open("rb") as stream:
            result = hashlib.file_digest(stream, "sha256").hexdigest()
        if result != digest:
            raise TreelabelError(f"{where}: {name} is not what was saved; the file was altered or cut short")
    _require_listed(digests, (HIERARCHY, ARRAYS))


def _require_listed(digests: dict[str, str], names: tuple[str, ...]) -> None:
    missing = [name for name in names if name not in digests]
    if missing:
        raise TreelabelError(f"the model is incomplete: model.json has no checksum of {missing[0]}")


def _require_files(digests: dict[str, str], schema: Schema, more: tuple[str, ...]) -> None:
    """Check that the folder has just the files of the model."""
    names = (HIERARCHY, ARRAYS, *schema.file_names, *more)
    _require_listed(digests, names)
    unknown = [name for name in digests if name not in names]
    if unknown:
        raise TreelabelError(f"{unknown[0]} does not belong to this model")


def _settings(stored: dict[str, Any]) -> dict[str, Any]:
    """Make tuples of lists: JSON has none."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in stored.items()}


def _arrays(file: Path, schema: Schema) -> Arrays:
    """Read the arrays, each header checked before any is unpacked, and check them all."""
    sizes: Sizes = {}

    def check(headers: Headers) -> None:
        sizes.update(schema.check_headers(headers))

    with locate_errors(file, "damaged: "):
        arrays = read_arrays(file, "the arrays of a model", check)
        schema.check_values(arrays, sizes)
    return arrays
