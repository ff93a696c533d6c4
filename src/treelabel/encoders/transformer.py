"""Frozen embeddings: one vector per text from a pretrained transformer, by torch or by ONNX Runtime."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional

from treelabel.core.errors import TreelabelError
from treelabel.core.registry import with_settings
from treelabel.core.strings import require_column
from treelabel.core.types import FloatArray
from treelabel.encoders import onnx_export
from treelabel.encoders.backbone import load_backbone, load_tokenizer, pool
from treelabel.encoders.files import Files, cache_folder
from treelabel.encoders.onnx_sessions import open_session, run_graph
from treelabel.encoders.registry import Pooling, Source, read_spec, require_settings, source_of
from treelabel.encoders.tokens import Tokens, first_tokens, token_batches

Runtime = Literal["auto", "torch", "onnx", "int8"]
Embed = Callable[[list[list[int]]], FloatArray]

# Tokens per batch in torch.
MAX_TOKENS = 2048
# To be raised when graphs are exported differently.
GRAPH_VERSION = 3


def make_transformer(files: Files, settings: Mapping[str, Any]) -> "TransformerEncoder":
    """Make the encoder of a transformer's files.

    Parameters
    ----------
    settings
        Those of `source_of`, and `runtime`.

    Returns
    -------
    TransformerEncoder
        The encoder, not loaded yet.
    """
    require_settings(files.name, settings, ("max_length", "pooling", "normalize", "runtime"))
    runtime = settings.get("runtime", "auto")
    if runtime not in get_args(Runtime):
        raise TreelabelError(f"encoder {files.name}: runtime is {runtime!r}, expected {', '.join(get_args(Runtime))}")
    source = source_of(files, {key: value for key, value in settings.items() if key != "runtime"})
    return TransformerEncoder(source, runtime)


class TransformerEncoder:
    """Vectors of a transformer, which is loaded when the first text comes.

    Graphs for ONNX Runtime are exported once and kept in the cache folder.

    Parameters
    ----------
    source
        The transformer, and how its hidden states are pooled.
    runtime
        "torch", "onnx" (the same numbers to 1e-5), "int8" (other numbers, about twice as fast), or "auto": torch with a
        GPU, else onnx where it is available.
    """

    def __init__(self, source: Source, runtime: Runtime = "auto") -> None:
        self.source, self.runtime = source, runtime
        name, settings = read_spec(source.name)
        self.name = with_settings(name, settings if runtime == "auto" else {**settings, "runtime": runtime})
        files = Files(source.name, "transformer", source.folder)
        self.width = files.width or 0
        # Embeddings and graphs on disk are found by these words.
        how = f"max_length={source.max_length} pooling={source.pooling} unit={source.normalize}"
        self._exact = f"transformer {files.fingerprint()} {how}"
        self.fingerprint = f"{self._exact} int8 {GRAPH_VERSION}" if runtime == "int8" else self._exact
        self._tokenizer: Tokenizer | None = None
        self._embed: Embed | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Return everything but the loaded transformer, which a copy loads again when its first text comes."""
        return {**self.__dict__, "_embed": None}

    def transform(self, texts: Sequence[str]) -> FloatArray:
        """Return one row per text (n × width)."""
        require_column(texts, "texts")
        if not len(texts):
            return np.zeros((0, self.width), np.float32)
        if self._embed is None:
            self._embed = self._load()
        return self._embed(self.tokens(texts))

    def load_backbone(self) -> Any:
        """Load the transformer."""
        return load_backbone(self.source.folder)

    def tokens(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the first `max_length` token ids of each text."""
        if self._tokenizer is None:
            self._tokenizer = load_tokenizer(self.source.folder)
            self._tokenizer.enable_truncation(self.source.max_length)
        # Half a surrogate pair is no character.
        readable = [text.encode("utf-8", "replace").decode() for text in texts]
        return first_tokens(self._tokenizer, readable, self.source.max_length)

    def _load(self) -> Embed:
        if self.runtime == "torch" or (self.runtime == "auto" and torch.cuda.is_available()):
            return self._by_torch()
        try:
            return self._by_onnx()
        except (ImportError, OSError, TreelabelError):
            if self.runtime != "auto":
                raise
            return self._by_torch()

    def _by_torch(self) -> Embed:
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        backbone = self.load_backbone()
        embedder = Embedder(backbone, self.source.pooling, self.source.normalize).to(device).eval()
        padding = int(getattr(backbone.config, "pad_token_id", None) or 0)

        def embed(ids: list[list[int]]) -> FloatArray:
            vectors = np.empty((len(ids), self.width), np.float32)
            tokens = Tokens.of_rows(ids, padding)
            for batch in token_batches(tokens.lengths.tolist(), MAX_TOKENS):
                input_ids, mask = tokens.batch(batch)
                with torch.inference_mode():
                    vectors[batch] = embedder(input_ids.to(device), mask.to(device)).cpu().numpy()
            return vectors

        return embed

    def _by_onnx(self) -> Embed:
        running, is_int8 = self._session(), self.runtime == "int8"
        return lambda ids: run_graph(running, ids, self.width, is_int8)

    def _session(self) -> Any:
        return open_session(self.quantised_graph() if self.runtime == "int8" else self.graph(), threads=1)

    def graph(self) -> Path:
        """Return the file of the exported encoder, pooling included; it is exported if there is none yet."""
        file = self._graph_file("")
        if not file.is_file():
            file.parent.mkdir(parents=True, exist_ok=True)
            export_encoder(self.source, self.load_backbone(), file)
        return file

    def quantised_graph(self) -> Path:
        """Return the file of the exported encoder in int8."""
        file = self._graph_file("-int8")
        if not file.is_file():
            onnx_export.quantise(self.graph(), file)
        return file

    def _graph_file(self, ending: str) -> Path:
        key = hashlib.sha256(f"{GRAPH_VERSION} {self._exact}".encode()).hexdigest()[:16]
        return cache_folder() / "onnx" / f"{key}{ending}.onnx"


class Embedder(nn.Module):
    """A transformer and its pooling as one module: token ids (n × length) to vectors (n × width)."""

    def __init__(self, backbone: Any, pooling: Pooling, normalize: bool) -> None:
        super().__init__()
        self.backbone, self.pooling, self.normalize = backbone, pooling, normalize

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Run the transformer and pool its hidden states.

        Parameters
        ----------
        input_ids
            Token ids, n × length.
        attention_mask
            n × length; without a mask, nothing is padding.

        Returns
        -------
        Tensor
            n × width.
        """
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        hidden = self.backbone(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        vectors = pool(hidden, mask, self.pooling)
        return functional.normalize(vectors, dim=1) if self.normalize else vectors


def export_encoder(source: Source, backbone: Any, file: Path) -> None:
    """Export an encoder, pooling included.

    Parameters
    ----------
    source
        Where the transformer is from, and how its hidden states are pooled.
    backbone
        The transformer.
    file
        The file to write.
    """
    names = ("vectors", f"{source.folder}: the encoder")
    embedder = Embedder(backbone, source.pooling, source.normalize)
    onnx_export.export_checked(embedder, backbone, source.max_length, file, names)
