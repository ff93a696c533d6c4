"""Static embeddings: a text is the mean of the vectors of its word pieces. No network runs: fast on any CPU."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from treelabel.core.errors import TreelabelError
from treelabel.core.matrices import normalize_rows
from treelabel.core.registry import with_settings
from treelabel.core.strings import require_column
from treelabel.core.types import FloatArray
from treelabel.encoders.files import USUAL_LENGTH, Files
from treelabel.encoders.registry import require_settings

# Characters that are read per word piece, which has about five: the end of a long text is never looked at.
LONGEST_PIECE = 64


class StaticEncoder:
    """Vectors of a model2vec folder or of wordllama, scaled to length 1; a text without any known piece is zeros.

    Parameters
    ----------
    files
        The encoder's files.
    settings
        `max_length`, the word pieces that are read of a text.
    """

    def __init__(self, files: Files, settings: Mapping[str, Any]) -> None:
        require_settings(files.name, settings, ["max_length"])
        length = settings.get("max_length", USUAL_LENGTH)
        if not isinstance(length, int) or length < 1:
            raise TreelabelError(f"encoder {files.name}: max_length is {length!r}, expected a number above 0")
        self.name = with_settings(files.name, {} if length == USUAL_LENGTH else {"max_length": length})
        self.fingerprint = f"static {files.fingerprint()} max_length={length}"
        self.max_length: int = length
        self._model = _load_model(files)

    def transform(self, texts: Sequence[str]) -> FloatArray:
        """Return one row per text (n × width)."""
        require_column(texts, "texts")
        longest = self.max_length * LONGEST_PIECE
        readable = [text[:longest].encode("utf-8", "replace").decode() for text in texts]
        rows = self._model.encode(readable, max_length=self.max_length, use_multiprocessing=False)
        unit: FloatArray = normalize_rows(np.asarray(rows, np.float32))
        return unit


def _load_model(files: Files) -> Any:
    """Load a `model2vec.StaticModel`; that of wordllama without its package, which imports what only downloads need."""
    from model2vec import StaticModel
    from safetensors.numpy import load_file
    from tokenizers import Tokenizer

    if files.kind == "model2vec":
        return StaticModel.from_pretrained(str(files.folder))
    vectors = load_file(files.weights[0]).get("embedding.weight")
    tokenizers = sorted(files.folder.glob("tokenizers/*.json"))
    if vectors is None or not tokenizers:
        raise TreelabelError(
            f"{files.folder}: not the files of wordllama 0.4: expected embedding.weight in weights/*.safetensors, and "
            "tokenizers/*.json; install that version"
        )
    tokenizer = Tokenizer.from_file(str(tokenizers[0]))
    tokenizer.no_padding()
    return StaticModel(vectors.astype(np.float32), tokenizer)
