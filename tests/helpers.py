"""What several test files do alike: call the command line, put a file into a folder and read it."""

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from treelabel import Dataset, read


class Ended(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The output as JSON, of a command that went well."""
        assert self.code == 0, self.err
        return json.loads(self.out, parse_constant=lambda constant: pytest.fail(f"{constant} is not JSON"))


Run = Callable[..., Ended]


def put(folder: Path, name: str, content: str | bytes) -> Path:
    """Write a file."""
    file = folder / name
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return file


def read_text(folder: Path, name: str, content: str | bytes, **options: Any) -> Dataset:
    """Write a file and read it."""
    return read(put(folder, name, content), **options)


class WordVectors:
    """A text is the sum of vectors of its words, which their hashes choose."""

    name = "words"
    fingerprint = "words 1"

    def transform(self, texts: Sequence[str]) -> Any:
        return np.array(
            [np.sum([self.vector(word) for word in text.split()] or [np.zeros(32)], axis=0) for text in texts]
        )

    def vector(self, word: str) -> Any:
        seed = int.from_bytes(hashlib.sha256(word.lower().encode()).digest()[:4], "little")
        return np.random.default_rng(seed).normal(size=32)
