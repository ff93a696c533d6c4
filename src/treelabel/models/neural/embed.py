"""Frozen embeddings: one vector a text from a pretrained transformer, by torch or by ONNX Runtime.

ONNX Runtime gets texts of equal length together, so that there is neither padding nor a mask, and as many batches at a
time as there are threads. In int8 a text is a batch of its own: the scale of activations is that of the batch, and
what a text gives must not depend on the texts beside it.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from treelabel.compute import FloatArray, LongArray, thread_count
from treelabel.errors import TreelabelError
from treelabel.features.batches import equal_batches, token_batches
from treelabel.features.sources import Files, Source, cache_folder, read_spec, require_settings, source_of
from treelabel.models.neural import onnx
from treelabel.models.neural.transformer import load_body, load_tokenizer, pooled
from treelabel.settings_text import with_settings

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Runtime = Literal["auto", "torch", "onnx", "int8"]

# Tokens at a time: with these, what passes between layers stays in the cache of a core.
TOKENS = {"torch": 2048, "onnx": 512, "int8": 1}
# How far a graph may be from torch.
CLOSE = 1e-4
# Raised when graphs are made another way.
GRAPHS = 1


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
        self.fingerprint = f"{self._exact} int8" if runtime == "int8" else self._exact
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
        vectors = Vectors(body, self.source).to(device).eval()
        padding = int(getattr(body.config, "pad_token_id", None) or 0)

        def embed(tokens: list[list[int]]) -> FloatArray:
            found = np.empty((len(tokens), self.width), np.float32)
            for batch in token_batches([len(each) for each in tokens], TOKENS["torch"]):
                ids = np.full((len(batch), len(tokens[batch[0]])), padding, np.int64)
                mask = np.zeros_like(ids)
                for row, at in enumerate(batch):
                    ids[row, : len(tokens[at])], mask[row, : len(tokens[at])] = tokens[at], 1
                with torch.inference_mode():
                    rows = vectors(torch.from_numpy(ids).to(device), torch.from_numpy(mask).to(device))
                found[batch] = rows.cpu().numpy()
            return found

        return embed

    def _by_onnx(self) -> Callable[[list[list[int]]], FloatArray]:
        is_int8 = self.runtime == "int8"
        # One thread each, and as many batches at a time as there are threads: nothing ever waits for another.
        running = onnx.session(self.quantised_graph() if is_int8 else self.graph(), threads=1)
        most = TOKENS["int8" if is_int8 else "onnx"]

        def embed(tokens: list[list[int]]) -> FloatArray:
            found = np.empty((len(tokens), self.width), np.float32)

            def run(batch: LongArray) -> None:
                ids = np.array([tokens[at] for at in batch], np.int64)
                found[batch] = running.run(None, {"input_ids": ids})[0]

            with ThreadPoolExecutor(thread_count()) as threads:
                for _ in threads.map(run, equal_batches([len(each) for each in tokens], most)):
                    pass
            return found

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


class Vectors(nn.Module):
    """One vector a text (n × width) of token ids (n × length); without a mask, all of them are tokens."""

    def __init__(self, body: Any, source: Source) -> None:
        super().__init__()
        self.body, self.pooling, self.unit = body, source.pooling, source.unit

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Run the transformer and pool what it gives."""
        hidden = self.body(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        found = pooled(hidden, mask, self.pooling)
        return functional.normalize(found, dim=1) if self.unit else found


def export_vectors(source: Source, file: Path) -> None:
    """Write an encoder's graph, with fused attention if that gives what torch gives, else with plain attention."""
    body = load_body(source.place)
    vectors = Vectors(body, source).eval()
    size = int(body.config.vocab_size)
    draw = torch.Generator().manual_seed(0)
    # The upper half of a vocabulary has no special tokens; the whole length would show a window of attention.
    ids = torch.randint(size // 2, size, (2, source.max_length), generator=draw)
    with torch.inference_mode():
        expected = vectors(ids).numpy()
    for fuse in (True, False):
        error = _export_once(vectors, ids, file, fuse, expected)
        if error <= CLOSE * max(1.0, float(np.abs(expected).max())):
            return
    file.unlink()
    raise TreelabelError(
        f"{source.place}: the encoder's ONNX graph is off by {error:.2g} from what torch gives; use runtime=torch"
    )


def _export_once(vectors: Vectors, ids: Tensor, file: Path, fuse: bool, expected: FloatArray) -> float:
    """Export one way, and say how far the graph is from what is expected."""
    example, names, axes = (ids[:, :16],), (["input_ids"], ["vectors"]), {0: "texts", 1: "tokens"}
    if fuse:
        with onnx.fused_attention(vectors.body):
            onnx.export(vectors, example, file, names, axes)
    else:
        vectors.body.set_attn_implementation("eager")
        onnx.export(vectors, example, file, names, axes)
    found = onnx.session(file).run(None, {"input_ids": ids.numpy()})[0]
    return float(np.abs(found - expected).max())


def first_tokens(tokenizer: "Tokenizer", texts: Sequence[str], length: int) -> list[list[int]]:
    """Give the first tokens of texts as the tokenizer cuts them, without tokenising the whole of a long text.

    A text's start, up to a space, has the tokens that the whole text starts with; where it has too few, more is taken.
    """
    found: list[list[int]] = [[]] * len(texts)
    waiting, characters = list(range(len(texts))), 16 * length
    while waiting:
        starts = [_start(texts[at], characters) for at in waiting]
        encoded = tokenizer.encode_batch_fast(starts)
        for at, each in zip(waiting, encoded, strict=True):
            found[at] = each.ids
        waiting = [
            at
            for at, start in zip(waiting, starts, strict=True)
            if len(start) < len(texts[at]) and len(found[at]) < length
        ]
        characters *= 8
    return found


def _start(text: str, characters: int) -> str:
    """Cut a text before a space; one without spaces is left whole."""
    space = -1 if len(text) <= characters else text.rfind(" ", 0, characters)
    return text if space < 1 else text[:space]
