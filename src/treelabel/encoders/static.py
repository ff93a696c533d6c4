"""Static embeddings: a text is the mean of vectors of its word pieces. No network runs: they are quick on any CPU."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from treelabel.core.compute import FloatArray
from treelabel.core.errors import TreelabelError
from treelabel.core.settings_text import with_settings
from treelabel.encoders.sources import Files, require_settings

# Word pieces that are read of a text, as in model2vec.
USUAL_LENGTH = 512
# So many characters a word piece are looked at, where a piece has some five: the end of a long text is never read.
LONGEST_PIECE = 64

Embed = Callable[[list[str]], FloatArray]


def load_model2vec(files: Files, length: int) -> Embed:
    """Load a model2vec folder."""
    from model2vec import StaticModel

    return embedding_with(StaticModel.from_pretrained(str(files.folder)), length)


class StaticEncoder:
    """Vectors of a model2vec folder or of wordllama, brought to length 1; a text without any known piece is zeros."""

    def __init__(
        self, files: Files, settings: Mapping[str, Any], load: Callable[[Files, int], Embed] = load_model2vec
    ) -> None:
        require_settings(files.name, settings, ["max_length"])
        length = settings.get("max_length", USUAL_LENGTH)
        if not isinstance(length, int) or length < 1:
            raise TreelabelError(f"encoder {files.name}: max_length is {length!r}, expected a number above 0")
        self.name = with_settings(files.name, {} if length == USUAL_LENGTH else {"max_length": length})
        self.fingerprint = f"static {files.fingerprint()} max_length={length}"
        self._longest = length * LONGEST_PIECE
        self._embed = load(files, length)

    def transform(self, texts: Sequence[str]) -> FloatArray:
        """Give one row a text (n × width)."""
        readable = [text[: self._longest].encode("utf-8", "replace").decode() for text in texts]
        rows = np.asarray(self._embed(readable), np.float32)
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        unit: FloatArray = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 1e-12)
        return unit


def embedding_with(model: Any, length: int) -> Embed:
    """Embed with a `model2vec.StaticModel`."""
    return lambda texts: np.asarray(model.encode(texts, max_length=length, use_multiprocessing=False), np.float32)
