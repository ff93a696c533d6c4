"""Versions of a model: folders beside each other, a file that says which one is current, switched in one step."""

import hashlib
import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from treelabel.core.atomic_output import atomic_file
from treelabel.core.errors import TreelabelError, quote
from treelabel.core.json_text import read_json
from treelabel.core.validation import JsonRecord, validate
from treelabel.serve.problems import ProblemError


def version_of(folder: Path) -> str:
    """Return the version of a model folder: the beginning of the SHA-256 of its model.json, which lists all files."""
    try:
        content = (folder / "model.json").read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise TreelabelError(f"{folder}: no model folder; expected one that 'treelabel fit' wrote") from None
    return hashlib.sha256(content).hexdigest()[:12]


@dataclass(frozen=True)
class VersionNote(JsonRecord):
    """A version that was learned: of which version, from how many lines of the journal, and how it did.

    `passed` is None where there is no evaluation file.
    """

    version: str
    parent: str
    journal_lines: int
    documents: int
    time: str
    passed: bool | None = None
    evaluation: dict[str, float] | None = None


@dataclass(frozen=True)
class Current(JsonRecord):
    """The versions that were promoted, the current one last, and the model folder that they began with."""

    base: str
    promoted: list[str]


class Versions:
    """The versions of one model: `FOLDER/versions/VERSION` and `FOLDER/current.json`; the first is the model's folder.

    A model folder that is replaced begins anew: versions that were learned from the one before are not served any more.
    """

    def __init__(self, state: Path, base: Path) -> None:
        self._state, self._base = state, base
        self.folder = state / "versions"

    def current_folder(self) -> Path:
        """Return the folder of the current version."""
        promoted = self._promoted()
        return self.folder_of(promoted[-1]) if promoted else self._base

    def folder_of(self, version: str) -> Path:
        """Return the folder of a version, or answer 404."""
        if version == version_of(self._base):
            return self._base
        # What comes over the network is no path.
        if not re.fullmatch(r"[0-9a-f]{12}", version) or not (self.folder / version / "model.json").is_file():
            raise ProblemError(404, f"there is no version {quote(version)} of this model")
        return self.folder / version

    def notes(self) -> list[VersionNote]:
        """List the versions that were learned, oldest first."""
        notes = [self.note(file.stem) for file in self.folder.glob("*.json")] if self.folder.is_dir() else []
        known = [note for note in notes if note is not None and (self.folder / note.version).is_dir()]
        return sorted(known, key=lambda note: note.time)

    def note(self, version: str) -> VersionNote | None:
        """Return what is known of a version that was learned; None of others."""
        file = self.folder / f"{version}.json"
        return None if not file.is_file() else _record(file, VersionNote)

    def add_note(self, note: VersionNote) -> None:
        """Write down where a version is from."""
        _write(self.folder / f"{note.version}.json", asdict(note))

    def promote(self, version: str) -> None:
        """Make a version the current one."""
        self._write_current([*(name for name in self._promoted() if name != version), version])

    def roll_back(self) -> None:
        """Make the version before the current one current again."""
        promoted = self._promoted()
        if not promoted:
            raise ProblemError(409, "there is no version before the current one")
        self._write_current(promoted[:-1])

    def _write_current(self, promoted: list[str]) -> None:
        _write(self._state / "current.json", asdict(Current(version_of(self._base), promoted)))

    def _promoted(self) -> list[str]:
        file = self._state / "current.json"
        if not file.is_file():
            return []
        current = _record(file, Current)
        return current.promoted if current.base == version_of(self._base) else []


def _record(file: Path, kind: Any) -> Any:
    stored = read_json(file, str(file), "version")
    validate(stored, kind, str(file))
    return kind(**stored)


def _write(file: Path, value: dict[str, Any]) -> None:
    """Write JSON in one step."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(file) as temporary:
        temporary.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
