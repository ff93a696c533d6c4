"""Hashes of large files, computed once and kept in the cache folder until the file changes."""

import hashlib
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from treelabel.core.atomic_output import atomic_file
from treelabel.core.errors import TreelabelError
from treelabel.encoders.folders import cache_folder

# Hashes by path, size and modification time.
_digests: dict[str, str] = {}


def digest(file: Path) -> str:
    """Return the sha256 of a file; that of an unchanged file is read from the cache folder."""
    state = file.stat()
    key = f"{file.absolute()} {state.st_size} {state.st_mtime_ns}"
    stored = cache_folder() / "hashes.json"
    if key not in _digests:
        _digests.update(_stored_digests(stored))
    if key not in _digests:
        with file.open("rb") as stream:
            _digests[key] = hashlib.file_digest(stream, "sha256").hexdigest()
        with suppress(OSError, TreelabelError):
            stored.parent.mkdir(parents=True, exist_ok=True)
            with atomic_file(stored) as temporary:
                content = {"sha256": _digests, "checksum": _checksum(_digests)}
                temporary.write_text(json.dumps(content, indent=1), encoding="utf-8")
    return _digests[key]


def _stored_digests(file: Path) -> dict[str, str]:
    """Read the stored hashes; a damaged file counts as empty, since a wrong hash would be blamed on the weights."""
    try:
        read: Any = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    digests = read.get("sha256") if isinstance(read, dict) else None
    return digests if isinstance(digests, dict) and read.get("checksum") == _checksum(digests) else {}


def _checksum(digests: dict[str, str]) -> str:
    return hashlib.sha256(json.dumps(digests, sort_keys=True).encode()).hexdigest()
