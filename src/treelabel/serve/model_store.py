"""The models that are served: loaded once, by the name of their folder; another version takes a model's place."""

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import MappingProxyType

from treelabel.core.errors import TreelabelError, quote
from treelabel.models.base import Model
from treelabel.models.persistence.load import load_model
from treelabel.models.persistence.signing import SIGNATURE
from treelabel.rules.decisions import TunedRule
from treelabel.serve.label_table import ServedLabels
from treelabel.serve.problems import ProblemError
from treelabel.serve.search_index import SearchIndex
from treelabel.serve.versions import Versions, version_of

LARGEST_SIGNATURE = 1 << 16
# What tells that a folder was replaced: its name, and what the file system says of its model.json.
Stamp = tuple[str | int, ...]


@dataclass(frozen=True, eq=False)
class ServedModel:
    """A model that has been loaded: its name, its version (a hash of what it is), and the folder it is from."""

    id: str
    version: str
    folder: Path
    model: Model
    rules: Mapping[str, TunedRule] = field(default_factory=dict)

    @classmethod
    def load(cls, name: str, folder: Path, rules: Mapping[str, TunedRule] = MappingProxyType({})) -> "ServedModel":
        """Load a model folder, with the rules of its hierarchy; TREELABEL_REQUIRE_SIGNATURE is obeyed."""
        version = version_of(folder)
        model = load_model(folder)
        # A folder that is replaced meanwhile is loaded under the version that it has now.
        after = version_of(folder)
        if after != version:
            return cls.load(name, folder, rules)
        fingerprint = model.hierarchy_.fingerprint
        suited = {file: tuned for file, tuned in rules.items() if tuned.fingerprint == fingerprint}
        served = cls(name, version, folder, model, suited)
        # Made now, so that no request waits for it.
        _ = served.search_index
        return served

    @cached_property
    def labels(self) -> ServedLabels:
        """The labels as answers show them."""
        return ServedLabels(self.model.hierarchy_)

    @cached_property
    def search_index(self) -> SearchIndex:
        """The names and notations of labels, for type-ahead."""
        return SearchIndex(self.model.hierarchy_)

    @cached_property
    def signature(self) -> str | None:
        """The fingerprint of the key of the folder's signature; whether it is trusted was decided on loading."""
        try:
            stored = json.loads((self.folder / SIGNATURE).read_bytes()[:LARGEST_SIGNATURE])
        except (OSError, ValueError):
            return None
        key = stored.get("key") if isinstance(stored, dict) else None
        return key if isinstance(key, str) else None


class ModelStore:
    """Models by name. A model is replaced in one step: who has the old one goes on with it."""

    def __init__(
        self, folders: Sequence[Path], state: Path, rules: Mapping[str, TunedRule] = MappingProxyType({})
    ) -> None:
        names = [folder.resolve().name for folder in folders]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise TreelabelError(f"two model folders are called {quote(twice)}, and models go by that; rename one")
        self.versions = {name: Versions(state / name, folder) for name, folder in zip(names, folders, strict=True)}
        self._models: dict[str, ServedModel] = {}
        self._stamps: dict[str, Stamp] = {}
        self._lock = threading.Lock()
        self._rules = rules
        for name in names:
            self.load(name)
        alone = next((file for file in rules if not any(file in served.rules for served in self)), None)
        if alone is not None:
            raise TreelabelError(f"the rule {quote(alone)} was tuned under a hierarchy that no model has")

    def __iter__(self) -> Iterator[ServedModel]:
        return iter(list(self._models.values()))

    def get(self, name: str) -> ServedModel:
        """Return a model, or answer 404."""
        try:
            return self._models[name]
        except KeyError:
            raise ProblemError(404, f"there is no model {quote(name)}; GET /v1/models lists them") from None

    def load(self, name: str) -> ServedModel:
        """Load the current version of a model, and serve it from now on."""
        with self._lock:
            folder = self.versions[name].current_folder()
            self._stamps[name] = _stamp(folder)
            served = self._models.get(name)
            if served is None or served.folder != folder or served.version != version_of(folder):
                served = ServedModel.load(name, folder, self._rules)
                self._models = {**self._models, name: served}
        return served

    def changed(self) -> list[str]:
        """List the models whose current folder is another one than when it was loaded."""
        return [name for name in self._models if _stamp(self.versions[name].current_folder()) != self._stamps[name]]


def _stamp(folder: Path) -> Stamp:
    """Identify the content of a folder; while it is being replaced, there may be none."""
    try:
        status = (folder / "model.json").stat()
    except OSError:
        return ()
    return str(folder), status.st_dev, status.st_ino, status.st_mtime_ns, status.st_ctime_ns
