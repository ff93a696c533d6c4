"""Static embeddings: a text is the mean of the vectors of its word pieces. No network runs: fast on any CPU."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from treelabel.core.errors import TreelabelError
from treelabel.core.matrices import normalize_rows
from treelabel.core.registry import with_settings
from treelabel.core.strings import require_column
from treelabel.core.types import FloatArray
from treelabel.encoders.files import USUAL_LENGTH, Files
from treelabel.encoders.sources import require_settings

# Characters that are read per word piece, which has about five: the end of a long text is never looked at.
LONGEST_PIECE = 64

Embed = Callable[[list[str]], FloatArray]


def load_model2vec(files: Files, max_length: int) -> Embed:
    """Load a model2vec folder.

    Parameters
    ----------
    files
        The encoder's files.
    max_length
        Word pieces that are read of a text.

    Returns
    -------
    Embed
        The function that embeds texts.
    """
    from model2vec import StaticModel

    return embedding_with(StaticModel.from_pretrained(str(files.folder)), max_length)


class StaticEncoder:
    """Vectors of a model2vec folder or of wordllama, scaled to length 1; a text without any known piece is zeros.

    Parameters
    ----------
    files
        The encoder's files.
    settings
        `max_length`, the word pieces that are read of a text.
    load
        Makes the function that embeds texts, from the files and `max_length`.
    """

    def __init__(
        self, files: Files, settings: Mapping[str, Any], load: Callable[[Files, int], Embed] = load_model2vec
    ) -> None:
        require_settings(files.name, settings, ["max_length"])
        length = settings.get("max_length", USUAL_LENGTH)
        if not isinstance(length, int) or length < 1:
            raise TreelabelError(f"encoder {files.name}: max_length is {length!r}, expected a number above 0")
        self.name = with_settings(files.name, {} if length == USUAL_LENGTH else {"max_length": length})
        self.fingerprint = f"static {files.fingerprint()} max_length={length}"
        self.max_length: int = length
        self._longest = length * LONGEST_PIECE
        self._embed = load(files, length)

    def transform(self, texts: Sequence[str]) -> FloatArray:
        """Return one row per text (n × width)."""
        require_column(texts, "texts")
        readable = [text[: self._longest].encode("utf-8", "replace").decode() for text in texts]
        rows = np.asarray(self._embed(readable), np.float32)
        unit: FloatArray = normalize_rows(rows)
        return unit


def embedding_with(model: Any, max_length: int) -> Embed:
    """Return the function that embeds texts with a static model.

    Parameters
    ----------
    model
        A `model2vec.StaticModel`.
    max_length
        Word pieces that are read of a text.

    Returns
    -------
    Embed
        From texts to an array, n × width.
    """
    return partial(_embedded, model, max_length)


def _embedded(model: Any, max_length: int, texts: list[str]) -> FloatArray:
    """Embed texts; a function with a name, so that an encoder can be pickled."""
    return np.asarray(model.encode(texts, max_length=max_length, use_multiprocessing=False), np.float32)
