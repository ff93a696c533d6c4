"""How a network sees texts: as embeddings of a frozen encoder, or as tokens of a transformer that is trained."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from transformers import AutoConfig, AutoModel

from treelabel.core.compute import LongArray
from treelabel.core.errors import TreelabelError
from treelabel.core.json_text import read_json
from treelabel.core.strings import Strings
from treelabel.encoders.batches import token_batches
from treelabel.encoders.catalogue import CachedEncoder, encoder_note, find_encoder, same_encoder
from treelabel.encoders.sources import Pooling
from treelabel.models.neural.network import Network, Outputs
from treelabel.models.neural.saved import CONFIG, TOKENIZER, WEIGHTS
from treelabel.models.neural.tensors import os_errors
from treelabel.models.neural.tokens import Tokens
from treelabel.models.neural.trainer import Inputs, KnownVectors
from treelabel.models.schema import Arrays
from treelabel.text import NgramShape, Tfidf
from treelabel.text.lsa import Lsa

# Embeddings of length 1 have values of about 1 / sqrt(width); steps of AdamW suit values of this size.
LENGTH = 16.0
# tf-idf beside embeddings: words in at least so many documents, or the matrix is large for what it says.
LEAST_DOCUMENTS = 2


class Reader(ABC):
    """Turns texts into what a network takes, and keeps what that needs."""

    @abstractmethod
    def inputs(self, texts: Strings, progress: bool | None = None) -> Inputs:
        """What the network takes of texts."""

    @abstractmethod
    def batches(self, inputs: Inputs) -> list[LongArray]:
        """Deal documents into batches to score."""

    @abstractmethod
    def state(self, network: Network) -> tuple[dict[str, Any], Arrays]:
        """What to save: values for JSON, and arrays."""

    @abstractmethod
    def write_files(self, network: Network, folder: Path) -> None:
        """Write what is too large for these."""


@dataclass(frozen=True, eq=False)
class Frozen(Reader):
    """Embeddings of an encoder that is not trained, kept on disk, with reduced tf-idf beside them if there is any."""

    encoder: CachedEncoder
    lsa: Lsa | None = None

    @classmethod
    def learned(cls, encoder: Any, texts: Strings, tfidf_width: int, seed: int) -> "Frozen":
        """Find the encoder, and learn tf-idf from texts unless its width is 0."""
        found = CachedEncoder(find_encoder(encoder))
        if not tfidf_width:
            return cls(found)
        return cls(found, Lsa.fit_transform(texts, tfidf_width, NgramShape(1), LEAST_DOCUMENTS, seed)[0])

    def inputs(self, texts: Strings, progress: bool | None = None) -> KnownVectors:
        """Embeddings of length 1, tf-idf of length 1 beside them, all times one number."""
        given = self.encoder.transform(list(texts), progress)
        parts = [given / np.maximum(np.linalg.norm(given, axis=1, keepdims=True), 1e-9)]
        if self.lsa is not None:
            parts.append(self.lsa.transform(texts))
        scaled = np.float32(LENGTH / np.sqrt(len(parts))) * np.concatenate(parts, axis=1)
        return KnownVectors(torch.from_numpy(np.ascontiguousarray(scaled, np.float32)))

    def batches(self, inputs: Inputs) -> list[LongArray]:
        """As they come."""
        count = len(inputs.lengths)
        return [np.arange(start, min(start + 1024, count)) for start in range(0, count, 1024)]

    def state(self, network: Network) -> tuple[dict[str, Any], Arrays]:
        """The encoder by name, outputs, and tf-idf."""
        arrays: dict[str, Any] = {f"outputs.{name}": p.detach().numpy() for name, p in _outputs(network).items()}
        values: dict[str, Any] = {"encoder": encoder_note(self.encoder), "ngrams": None}
        if self.lsa is not None:
            shape = self.lsa.tfidf.shape
            values["ngrams"] = {"words": shape.words, "bits": shape.bits}
            arrays |= {**self.lsa.tfidf.arrays(), "lsa": self.lsa.vectors.astype(np.float16)}
        return values, arrays

    def write_files(self, network: Network, folder: Path) -> None:
        """Nothing: the encoder is found by its name."""

    @classmethod
    def restored(cls, encoder: Any, values: Mapping[str, Any], arrays: Arrays) -> tuple["Frozen", Network]:
        """Take back what `state` gave."""
        found, lsa = CachedEncoder(same_encoder(encoder, values["encoder"])), None
        if values["ngrams"] is not None:
            shape = NgramShape(int(values["ngrams"]["words"]), None, int(values["ngrams"]["bits"]))
            lsa = Lsa(Tfidf(shape, arrays["buckets"], arrays["idf"]), arrays["lsa"].astype(np.float32))
        weights = {
            name.removeprefix("outputs."): torch.from_numpy(arrays[name]) for name in arrays if "outputs." in name
        }
        return cls(found, lsa), Network(None, "mean", outputs_of(weights))


@dataclass(frozen=True, eq=False)
class Trained(Reader):
    """Tokens of a transformer that is trained, cut at `max_length`."""

    tokenizer: Tokenizer
    max_length: int
    pooling: Pooling

    def inputs(self, texts: Strings, progress: bool | None = None) -> Tokens:
        """Tokens."""
        return Tokens.of(texts, self.tokenizer, self.max_length)

    def batches(self, inputs: Inputs) -> list[LongArray]:
        """Texts of about the same length."""
        return token_batches(inputs.lengths.tolist())

    def state(self, network: Network) -> tuple[dict[str, Any], Arrays]:
        """How texts are cut and pooled; the rest stands in files."""
        return {"max_length": self.max_length, "pooling": self.pooling}, {}

    def write_files(self, network: Network, folder: Path) -> None:
        """Weights as safetensors, the transformer's configuration, and the tokenizer."""
        with os_errors():
            save_file({name: value.contiguous() for name, value in network.state_dict().items()}, folder / WEIGHTS)
        (folder / CONFIG).write_text(network.body.config.to_json_string(use_diff=False), encoding="utf-8")
        self.tokenizer.no_truncation()
        self.tokenizer.save(str(folder / TOKENIZER))

    @classmethod
    def restored(cls, values: Mapping[str, Any], folder: Path) -> tuple["Trained", Network]:
        """Take back what was written, without running anything of it."""
        reader = cls(Tokenizer.from_file(str(folder / TOKENIZER)), int(values["max_length"]), values["pooling"])
        weights = load_file(folder / WEIGHTS)
        of_outputs = {name.removeprefix("outputs."): w for name, w in weights.items() if name.startswith("outputs.")}
        config = read_json(folder / CONFIG, str(folder / CONFIG), "configuration of a transformer")
        require_fitting(config, weights)
        network = Network(body_of(config), reader.pooling, outputs_of(of_outputs))
        network.load_state_dict(weights)
        require_known_tokens(reader, network.body)
        return reader, network


def body_of(config: dict[str, Any]) -> Any:
    """Make a transformer with the configuration that was saved; its weights come after."""
    body = AutoModel.from_config(AutoConfig.for_model(**config))
    if hasattr(body, "pooler"):
        body.pooler = None
    return body


def require_fitting(config: Any, weights: Mapping[str, torch.Tensor]) -> None:
    """Refuse a configuration of another transformer than the weights are of, before any memory is asked for."""
    if not isinstance(config, dict) or not all(isinstance(key, str) for key in config):
        raise TreelabelError(f"{CONFIG} is no configuration of a transformer")
    many = [key for key, value in config.items() if "layer" in key and type(value) is int and value > len(weights)]
    if many:
        raise TreelabelError(f"{CONFIG}: {many[0]} is {config[many[0]]}, but there are {len(weights)} weights")
    # Without memory: on the device "meta" tensors are shapes alone.
    with torch.device("meta"):
        shapes = {f"body.{name}": value.shape for name, value in body_of(config).state_dict().items()}
    found = {name: value.shape for name, value in weights.items() if name.startswith("body.")}
    wrong = sorted(name for name in shapes.keys() | found.keys() if shapes.get(name) != found.get(name))
    if wrong:
        raise TreelabelError(f"{wrong[0]} in {WEIGHTS} is not what {CONFIG} says")
    for name, value in weights.items():
        if not torch.isfinite(value).all():
            raise TreelabelError(f"{name} in {WEIGHTS} holds what is no finite number")


def require_known_tokens(reader: Trained, body: Any) -> None:
    """Refuse a tokenizer with tokens, or a length with places, that the transformer has no vector for."""
    last = max(reader.tokenizer.get_vocab(with_added_tokens=True).values(), default=0)
    if last >= body.get_input_embeddings().num_embeddings:
        raise TreelabelError(f"{TOKENIZER} has token {last}, but there are weights of fewer")
    for name, module in body.named_modules():
        if name.endswith("position_embeddings") and reader.max_length > getattr(module, "num_embeddings", np.inf):
            raise TreelabelError(f"max_length is {reader.max_length}, but there are {module.num_embeddings} places")


def _outputs(network: Network) -> dict[str, torch.Tensor]:
    return {name: value.cpu() for name, value in network.outputs.state_dict().items()}


def outputs_of(weights: Mapping[str, torch.Tensor]) -> Outputs:
    """Make outputs again of their weights."""
    hidden = weights.get("hidden.weight")
    linear = weights["linear.weight"]
    width = linear.shape[1] if hidden is None else hidden.shape[1]
    found = Outputs(width, len(linear), 0 if hidden is None else len(hidden))
    found.load_state_dict(dict(weights))
    return found
