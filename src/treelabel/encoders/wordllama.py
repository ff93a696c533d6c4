"""The vectors that the package wordllama carries, read without it: its loader imports what only downloads need."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from model2vec import StaticModel
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from treelabel.core.errors import TreelabelError
from treelabel.encoders.files import Files
from treelabel.encoders.static import Embed, StaticEncoder, embedding_with


def make_wordllama(files: Files, settings: Mapping[str, Any]) -> StaticEncoder:
    """Make the encoder of the package's files.

    Parameters
    ----------
    files
        The files that the package carries.
    settings
        Those of `StaticEncoder`.

    Returns
    -------
    StaticEncoder
        The encoder.
    """
    return StaticEncoder(files, settings, _load)


def _load(files: Files, max_length: int) -> Embed:
    vectors = load_file(files.weights[0]).get("embedding.weight")
    tokenizers = sorted(files.folder.glob("tokenizers/*.json"))
    if vectors is None or not tokenizers:
        raise TreelabelError(
            f"{files.folder}: not the files of wordllama 0.4: expected embedding.weight in weights/*.safetensors, and "
            "tokenizers/*.json; install that version"
        )
    tokenizer = Tokenizer.from_file(str(tokenizers[0]))
    tokenizer.no_padding()
    return embedding_with(StaticModel(vectors.astype(np.float32), tokenizer), max_length)
