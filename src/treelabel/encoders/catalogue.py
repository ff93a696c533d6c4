"""The seam for dense features: anything that maps texts to a matrix, such as frozen sentence embeddings, with a cache.

An encoder has a `name`, a `fingerprint` (what its numbers depend on: weights, length, pooling), and
`transform(texts)`, which gives a float array, one row a text. Those in ENCODERS can be asked for by name, others by
their folder, and a model that was saved with one finds it again.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
from scipy import sparse

from treelabel.core.compute import FloatArray
from treelabel.core.errors import TreelabelError, needing
from treelabel.core.progress import progress_bar
from treelabel.encoders.cache import RowCache, cache_name
from treelabel.encoders.sources import PACKAGES, Files, Kind, cache_folder, find_files, read_spec


@runtime_checkable
class Encoder(Protocol):
    """Anything that maps texts to a matrix."""

    name: str
    fingerprint: str

    def transform(self, texts: Sequence[str]) -> npt.NDArray[Any]:
        """Give one row a text."""


@dataclass(frozen=True)
class EncoderRow:
    """An encoder that has a name: what it is, and how to get it; called with settings, it makes the encoder."""

    name: str
    help: str
    commands: tuple[str, ...]

    def __call__(self, **settings: Any) -> Encoder:
        """Make it."""
        return make_encoder(find_files(self.name), settings)


ENCODERS: dict[str, Callable[..., Encoder]] = {
    row.name: EncoderRow(row.name, row.help, tuple(row.commands)) for row in PACKAGES.values()
}

# Where encoders of each kind are made; transformers need torch, which is imported when one is asked for.
_MAKERS: dict[Kind, str] = {
    "transformer": "treelabel.encoders.transformer:make_transformer",
    "model2vec": "treelabel.encoders.static:StaticEncoder",
    "wordllama": "treelabel.encoders.wordllama:make_wordllama",
}


def make_encoder(files: Files, settings: Mapping[str, Any]) -> Encoder:
    """Make the encoder that a folder holds."""
    module, _, name = _MAKERS[files.kind].partition(":")
    with needing("neural", f"the encoder {files.name}"):
        made: Encoder = getattr(import_module(module), name)(files, settings)
    return made


def find_encoder(encoder: "str | Encoder") -> Encoder:
    """Take an encoder as it is, or find it: by its name, "minilm(max_length=128, runtime=int8)", or its folder.

    >>> find_encoder("nobody")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    treelabel.core.errors.TreelabelError: unknown encoder 'nobody'; usable here: ...
    """
    if isinstance(encoder, str):
        name, settings = read_spec(encoder)
        return ENCODERS[name](**settings) if name in ENCODERS else make_encoder(find_files(name), settings)
    if not isinstance(encoder, Encoder):
        raise TreelabelError(
            f"expected an encoder with name, fingerprint and transform(texts), found {type(encoder).__name__}"
        )
    return encoder


def encoder_note(encoder: Encoder) -> dict[str, str]:
    """What a model folder says of the encoder that it was learned with."""
    return {"name": encoder.name, "fingerprint": encoder.fingerprint}


def same_encoder(given: "str | Encoder | None", saved: dict[str, str]) -> Encoder:
    """Find the encoder that a model was saved with."""
    try:
        found = find_encoder(saved["name"] if given is None else given)
    except TreelabelError:
        # A folder was given from where one stood then; its full name may still be right.
        if not isinstance(given, str) or given == saved["name"]:
            raise
        found = find_encoder(saved["name"])
    if found.fingerprint != saved["fingerprint"]:
        raise TreelabelError(
            f"the model was learned with the encoder {saved['name']} ({saved['fingerprint']}), "
            f"but this one is {found.name} ({found.fingerprint})"
        )
    return found


class CachedEncoder:
    """An encoder whose rows are kept on disk, by the hash of its fingerprint and the text; texts are not kept.

    What is computed is kept batch by batch, so that a long run that is interrupted goes on where it was. Rows are the
    same with a cache and without one: see `RowCache` for what happens where it is damaged or cannot be written.
    """

    def __init__(self, encoder: Encoder, folder: Path | None = None, batch: int = 1024) -> None:
        self.encoder, self.batch = encoder, batch
        self.name, self.fingerprint = encoder.name, encoder.fingerprint
        self._folder = folder

    def transform(self, texts: Sequence[str], progress: bool | None = None) -> FloatArray:
        """Return one row a text (n × width), encoding each different text that is not on disk yet once."""
        # Half a surrogate pair is no character, but a text may have one.
        written = (f"{self.fingerprint}\0{text}".encode("utf-8", "surrogatepass") for text in texts)
        keys = [hashlib.sha256(text).digest() for text in written]
        if not keys:
            return np.zeros((0, 0), np.float32)
        folder = cache_folder() if self._folder is None else self._folder
        with RowCache(folder / cache_name(self.fingerprint)) as cache:
            rows = self._rows(dict(zip(keys, texts, strict=True)), cache, progress)
        return np.stack([rows[key] for key in keys])

    def _rows(self, texts: dict[bytes, str], cache: RowCache, progress: bool | None) -> dict[bytes, FloatArray]:
        """Take the rows of texts from the cache, and compute the others."""
        rows = cache.read(list(texts))
        missing = {key: text for key, text in texts.items() if key not in rows}
        rows |= self._computed(missing, cache, progress)
        # What the encoder gives now is right; stored rows of another width are those of an older one.
        width = len(rows[next(iter(missing or texts))])
        other = {key: text for key, text in texts.items() if len(rows[key]) != width}
        return rows | self._computed(other, cache, progress, width)

    def _computed(
        self, texts: dict[bytes, str], cache: RowCache, progress: bool | None, width: int | None = None
    ) -> dict[bytes, FloatArray]:
        """Encode texts batch by batch, and keep what comes of each; all rows must have the same width."""
        waiting, computed = list(texts.items()), dict[bytes, FloatArray]()
        with progress_bar("embedding", len(waiting), progress) as done:
            for start in range(0, len(waiting), self.batch):
                part = waiting[start : start + self.batch]
                keys = [key for key, _ in part]
                # A copy: an encoder may use the same memory for its next batch.
                rows = np.array(self.encoder.transform([text for _, text in part]), np.float32, order="C")
                if rows.ndim != 2 or len(rows) != len(part):
                    raise TreelabelError(
                        f"the encoder {self.name} gave an array of shape {rows.shape} for {len(part)} texts"
                    )
                if width not in (None, rows.shape[1]):
                    raise TreelabelError(
                        f"the encoder {self.name} gave {width} numbers for some texts and {rows.shape[1]} for others"
                    )
                width = rows.shape[1]
                cache.write(keys, rows)
                computed.update(zip(keys, rows, strict=True))
                done(start + len(part))
        return computed


def joined(rows: sparse.csr_array, dense: FloatArray, share: float) -> sparse.csr_array:
    """Put dense columns beside sparse ones: each part is brought to length 1, and they count 1 - share and share.

    >>> both = joined(sparse.csr_array(np.array([[2.0, 0.0]])), np.array([[3.0, 4.0]]), 0.36)
    >>> both.toarray().astype(float).round(2).tolist()
    [[0.8, 0.0, 0.36, 0.48]]
    """
    unit = dense / np.maximum(np.linalg.norm(dense, axis=1, keepdims=True), 1e-12)
    right = sparse.csr_array((np.sqrt(share) * unit).astype(np.float32))
    lengths = np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1)).ravel())
    left = sparse.diags_array(np.sqrt(1 - share) / np.maximum(lengths, 1e-12)) @ rows
    return sparse.csr_array(sparse.hstack([left, right]), dtype=np.float32)
