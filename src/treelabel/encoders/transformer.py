"""Frozen embeddings: one vector a text from a pretrained transformer, by torch or by ONNX Runtime."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from treelabel.core.compute import FloatArray
from treelabel.core.errors import TreelabelError
from treelabel.core.settings_text import with_settings
from treelabel.encoders import onnx
from treelabel.encoders.backbone import load_body, load_tokenizer, text_vectors
from treelabel.encoders.batches import token_batches
from treelabel.encoders.first_tokens import first_tokens
from treelabel.encoders.sessions import run_graph, session
from treelabel.encoders.sources import Files, Source, cache_folder, read_spec, require_settings, source_of
from treelabel.models.neural.tokens import Tokens

Runtime = Literal["auto", "torch", "onnx", "int8"]

# Tokens that torch sees at a time.
TOKENS = 2048
# Raised when graphs are made another way.
GRAPHS = 3


def make_transformer(files: Files, settings: Mapping[str, Any]) -> "TransformerEncoder":
    """Make the encoder of a folder; the settings are those of `source_of`, and `runtime`."""
    require_settings(files.name, settings, ("max_length", "pooling", "unit", "runtime"))
    runtime = settings.get("runtime", "auto")
    if runtime not in get_args(Runtime):
        raise TreelabelError(f"encoder {files.name}: runtime is {runtime!r}, expected {', '.join(get_args(Runtime))}")
    files.fingerprint()
    source = source_of(files, {key: value for key, value in settings.items() if key != "runtime"})
    return TransformerEncoder(source, runtime)


class TransformerEncoder:
    """Vectors of a transformer, which is loaded when the first text comes.

    `runtime` is "torch", "onnx" (the same numbers to 1e-5), "int8" (others, about twice as fast), or "auto": torch with
    a GPU, else onnx where it can be had. Graphs are made once and kept in the folder for caches.
    """

    def __init__(self, source: Source, runtime: Runtime = "auto") -> None:
        self.source, self.runtime = source, runtime
        name, settings = read_spec(source.name)
        self.name = with_settings(name, settings if runtime == "auto" else {**settings, "runtime": runtime})
        files = Files(source.name, "transformer", Path(source.place))
        self.width = files.width or 0
        how = f"max_length={source.max_length} pooling={source.pooling} unit={source.unit}"
        self._exact = f"transformer {files.fingerprint()} {how}"
        self.fingerprint = f"{self._exact} int8 {GRAPHS}" if runtime == "int8" else self._exact
        self._tokenizer: Tokenizer | None = None
        self._embed: Callable[[list[list[int]]], FloatArray] | None = None

    def transform(self, texts: Sequence[str]) -> FloatArray:
        """Give one row a text (n × width)."""
        if not len(texts):
            return np.zeros((0, self.width), np.float32)
        if self._embed is None:
            self._embed = self._loaded()
        return self._embed(self.tokens(texts))

    def tokens(self, texts: Sequence[str]) -> list[list[int]]:
        """Give the first `max_length` tokens of each text."""
        if self._tokenizer is None:
            self._tokenizer = load_tokenizer(self.source.place)
            self._tokenizer.enable_truncation(self.source.max_length)
        # Half a surrogate pair is no character.
        readable = [text.encode("utf-8", "replace").decode() for text in texts]
        return first_tokens(self._tokenizer, readable, self.source.max_length)

    def _loaded(self) -> Callable[[list[list[int]]], FloatArray]:
        if self.runtime == "torch" or (self.runtime == "auto" and torch.cuda.is_available()):
            return self._by_torch()
        try:
            return self._by_onnx()
        except (ImportError, OSError, TreelabelError):
            if self.runtime != "auto":
                raise
            return self._by_torch()

    def _by_torch(self) -> Callable[[list[list[int]]], FloatArray]:
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        body = load_body(self.source.place)
        vectors = Embedder(body, self.source).to(device).eval()
        padding = int(getattr(body.config, "pad_token_id", None) or 0)

        def embed(tokens: list[list[int]]) -> FloatArray:
            found = np.empty((len(tokens), self.width), np.float32)
            known = Tokens.of_rows(tokens, padding)
            for batch in token_batches(known.lengths.tolist(), TOKENS):
                ids, mask = known.batch(batch)
                with torch.inference_mode():
                    found[batch] = vectors(ids.to(device), mask.to(device)).cpu().numpy()
            return found

        return embed

    def _by_onnx(self) -> Callable[[list[list[int]]], FloatArray]:
        is_int8 = self.runtime == "int8"
        running = session(self.quantised_graph() if is_int8 else self.graph(), threads=1)

        def embed(tokens: list[list[int]]) -> FloatArray:
            return run_graph(running, tokens, self.width, is_int8)

        return embed

    def graph(self) -> Path:
        """Give the file with the exported encoder, pooling included; it is made where there is none."""
        file = self._graph_file("")
        if not file.is_file():
            file.parent.mkdir(parents=True, exist_ok=True)
            export_vectors(self.source, file)
        return file

    def quantised_graph(self) -> Path:
        """Give the file with the exported encoder in int8."""
        file = self._graph_file("-int8")
        if not file.is_file():
            onnx.quantise(self.graph(), file)
        return file

    def _graph_file(self, ending: str) -> Path:
        key = hashlib.sha256(f"{GRAPHS} {self._exact}".encode()).hexdigest()[:16]
        return cache_folder() / "onnx" / f"{key}{ending}.onnx"


class Embedder(nn.Module):
    """One vector a text (n × width) of token ids (n × length); without a mask, all of them are tokens."""

    def __init__(self, body: Any, source: Source) -> None:
        super().__init__()
        self.body, self.pooling, self.unit = body, source.pooling, source.unit

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Run the transformer and pool what it gives."""
        return text_vectors(self.body, input_ids, attention_mask, self.pooling, self.unit)


def export_vectors(source: Source, file: Path) -> None:
    """Write an encoder's graph, pooling included."""
    body = load_body(source.place)
    onnx.export_checked(
        Embedder(body, source), body, source.max_length, file, ("vectors", f"{source.place}: the encoder")
    )
