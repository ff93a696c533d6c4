"""A rule whose numbers were found on validation data, and the file that keeps it."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from treelabel.core.errors import TreelabelError
from treelabel.core.inputs import existing_file
from treelabel.core.json_text import read_json
from treelabel.core.outputs import whole_file

KIND = "treelabel tuned rule"
VERSION = 1


@dataclass(frozen=True)
class Tuned:
    """A rule with settings that were found on validation data, bound to the hierarchy of that data.

    `measured` has the values that were reached there. Use it wherever a rule is wanted: `decide(scores, tuned)`.
    """

    rule: str
    settings: Mapping[str, Any]
    fingerprint: str
    measured: Mapping[str, Any] = field(default_factory=dict)

    def save(self, path: str | Path) -> None:
        """Write as JSON; the file appears whole or not at all."""
        with whole_file(Path(path)) as temporary:
            text = json.dumps({"kind": KIND, "version": VERSION, **asdict(self)}, indent=2, ensure_ascii=False)
            Path(temporary).write_text(text + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> "Tuned":
        """Read what `save` wrote."""
        file = existing_file(Path(path))
        stored = read_json(file, str(file), "tuned rule")
        if not isinstance(stored, dict) or stored.get("kind") != KIND:
            raise TreelabelError(f"{file}: no tuned rule; expected a file that 'treelabel tune' wrote")
        if stored.get("version") != VERSION:
            raise TreelabelError(
                f"{file}: a tuned rule of version {stored.get('version')!r}, but this treelabel reads version {VERSION}"
            )
        parts: list[Any] = [stored.get(name) for name in ("rule", "settings", "fingerprint", "measured")]
        expected = (str, dict, str, dict)
        if not all(isinstance(part, kind) for part, kind in zip(parts, expected, strict=True)):
            raise TreelabelError(f"{file}: a tuned rule with parts that are missing or of the wrong kind")
        return cls(*parts)
