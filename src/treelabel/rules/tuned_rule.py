"""A rule whose numbers were found on validation data, and the file that keeps it."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypedDict

from treelabel.core.atomic_output import atomic_file
from treelabel.core.errors import TreelabelError
from treelabel.core.inputs import existing_file
from treelabel.core.json_text import read_json
from treelabel.core.validation import validate

KIND = "treelabel tuned rule"
VERSION = 1


class _Values(TypedDict):
    """The content of the file beside its kind and version: the fields of `TunedRule`."""

    rule: str
    settings: Mapping[str, Any]
    fingerprint: str
    measured: Mapping[str, Any]


@dataclass(frozen=True)
class TunedRule:
    """A rule with settings that were found on validation data, bound to the hierarchy of that data.

    `measured` has the values that were reached there. Use it wherever a rule is wanted: `decide(scores, tuned)`.
    """

    rule: str
    settings: Mapping[str, Any]
    fingerprint: str
    measured: Mapping[str, Any] = field(default_factory=dict)

    def save(self, path: str | Path) -> None:
        """Write as JSON; the file appears whole or not at all."""
        with atomic_file(Path(path)) as temporary:
            text = json.dumps({"kind": KIND, "version": VERSION, **asdict(self)}, indent=2, ensure_ascii=False)
            Path(temporary).write_text(text + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> "TunedRule":
        """Read what `save` wrote."""
        file = existing_file(Path(path))
        stored = read_json(file, str(file), "tuned rule")
        if not isinstance(stored, dict) or stored.get("kind") != KIND:
            raise TreelabelError(f"{file}: no tuned rule; expected a file that 'treelabel tune' wrote")
        if stored.get("version") != VERSION:
            raise TreelabelError(
                f"{file}: a tuned rule of version {stored.get('version')!r}, but this treelabel reads version {VERSION}"
            )
        values = {name: value for name, value in stored.items() if name not in ("kind", "version")}
        validate(values, _Values, f"{file}: the tuned rule")
        return cls(**values)
