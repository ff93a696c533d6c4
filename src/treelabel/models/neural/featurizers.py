"""Featurizers: how a network sees texts, as embeddings of a frozen encoder or as tokens of a backbone in training."""

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
from treelabel.core.schema import Arrays
from treelabel.core.strings import Strings
from treelabel.core.vectors import normalize_rows
from treelabel.encoders.batches import token_batches
from treelabel.encoders.cached import CachedEncoder
from treelabel.encoders.registry import encoder_note, find_encoder, same_encoder
from treelabel.encoders.sources import Pooling
from treelabel.encoders.tokens import Tokens
from treelabel.models.neural.inputs import Inputs, KnownVectors
from treelabel.models.neural.network import Network, Outputs
from treelabel.models.neural.saved import CONFIG, TOKENIZER, WEIGHTS
from treelabel.models.neural.tensors import os_errors
from treelabel.text import NgramShape, Tfidf
from treelabel.text.lsa import Lsa

# The length of vectors that the outputs see: the steps of AdamW suit values of about 1, not of 1 / sqrt(width).
VECTOR_LENGTH = 16.0
# tf-idf beside embeddings leaves out n-grams of fewer documents: they make the matrix large and say little.
MIN_DF = 2
# Documents whose known vectors are scored at once.
ROWS_AT_ONCE = 1024


class Featurizer(ABC):
    """Turns texts into the inputs of a network, and saves what that takes."""

    @abstractmethod
    def inputs(self, texts: Strings, progress: bool | None = None) -> Inputs:
        """Return what the network takes of texts.

        Parameters
        ----------
        texts
            The texts.
        progress
            Whether to show a progress bar; None shows one on a terminal.

        Returns
        -------
        Inputs
            One entry per text.
        """

    @abstractmethod
    def batches(self, inputs: Inputs) -> list[LongArray]:
        """Split documents into batches for scoring."""

    @abstractmethod
    def state(self, network: Network) -> tuple[dict[str, Any], Arrays]:
        """Return what is saved: values for JSON, and arrays."""

    @abstractmethod
    def write_files(self, network: Network, folder: Path) -> None:
        """Write what is too large for JSON and arrays.

        Parameters
        ----------
        network
            The trained network.
        folder
            The folder of the model.
        """


@dataclass(frozen=True, eq=False)
class FrozenFeaturizer(Featurizer):
    """Cached embeddings of a frozen encoder, with reduced tf-idf beside them if there is any."""

    encoder: CachedEncoder
    lsa: Lsa | None = None

    @classmethod
    def fit(cls, encoder: Any, texts: Strings, lsa_components: int, seed: int) -> "FrozenFeaturizer":
        """Find the encoder, and fit tf-idf to texts.

        Parameters
        ----------
        encoder
            A name, a folder or an object.
        texts
            Training texts.
        lsa_components
            The columns of reduced tf-idf; 0 for none.
        seed
            Seed of the reduction.

        Returns
        -------
        FrozenFeaturizer
            A fitted featurizer.
        """
        found = CachedEncoder(find_encoder(encoder))
        if not lsa_components:
            return cls(found)
        return cls(found, Lsa.fit_transform(texts, lsa_components, NgramShape(), MIN_DF, seed)[0])

    def inputs(self, texts: Strings, progress: bool | None = None) -> KnownVectors:
        """Return embeddings and tf-idf side by side, of equal length each and `VECTOR_LENGTH` together."""
        embeddings = self.encoder.transform(list(texts), progress)
        parts = [normalize_rows(embeddings)]
        if self.lsa is not None:
            parts.append(self.lsa.transform(texts))
        scaled = np.float32(VECTOR_LENGTH / np.sqrt(len(parts))) * np.concatenate(parts, axis=1)
        return KnownVectors(torch.from_numpy(np.ascontiguousarray(scaled, np.float32)))

    def batches(self, inputs: Inputs) -> list[LongArray]:
        """Split documents in their own order."""
        count = len(inputs.lengths)
        return [np.arange(start, min(start + ROWS_AT_ONCE, count)) for start in range(0, count, ROWS_AT_ONCE)]

    def state(self, network: Network) -> tuple[dict[str, Any], Arrays]:
        """Return the encoder's name and fingerprint, the outputs, and tf-idf."""
        outputs = network.outputs.state_dict()
        arrays: dict[str, Any] = {f"outputs.{name}": value.cpu().detach().numpy() for name, value in outputs.items()}
        values: dict[str, Any] = {"encoder": encoder_note(self.encoder), "ngrams": None}
        if self.lsa is not None:
            shape = self.lsa.tfidf.shape
            values["ngrams"] = {"ngram_range": shape.ngram_range, "n_features": shape.n_features}
            arrays |= {**self.lsa.tfidf.arrays(), "lsa": self.lsa.vectors.astype(np.float16)}
        return values, arrays

    def write_files(self, network: Network, folder: Path) -> None:
        """Write nothing: the encoder is found by its name."""

    @classmethod
    def restored(cls, encoder: Any, values: Mapping[str, Any], arrays: Arrays) -> tuple["FrozenFeaturizer", Network]:
        """Restore what `state` returned.

        Parameters
        ----------
        encoder
            The encoder in the model's settings, or None for the one that was recorded.
        values, arrays
            What `state` returned.

        Returns
        -------
        tuple
            The featurizer and its network.
        """
        found, lsa = CachedEncoder(same_encoder(encoder, values["encoder"])), None
        if values["ngrams"] is not None:
            shape = NgramShape(values["ngrams"]["ngram_range"], None, int(values["ngrams"]["n_features"]))
            lsa = Lsa(Tfidf(shape, arrays["buckets"], arrays["idf"]), arrays["lsa"].astype(np.float32))
        weights = {name: torch.from_numpy(array) for name, array in arrays.items() if name.startswith("outputs.")}
        return cls(found, lsa), Network(None, "mean", restored_outputs(weights))


@dataclass(frozen=True, eq=False)
class TokenFeaturizer(Featurizer):
    """Tokens of a backbone that is trained, truncated at `max_length`."""

    tokenizer: Tokenizer
    max_length: int
    pooling: Pooling

    def inputs(self, texts: Strings, progress: bool | None = None) -> Tokens:
        """Tokenise texts."""
        return Tokens.of(texts, self.tokenizer, self.max_length)

    def batches(self, inputs: Inputs) -> list[LongArray]:
        """Split documents into batches of similar length."""
        return token_batches(inputs.lengths.tolist())

    def state(self, network: Network) -> tuple[dict[str, Any], Arrays]:
        """Return how texts are truncated and pooled; the rest is in files."""
        return {"max_length": self.max_length, "pooling": self.pooling}, {}

    def write_files(self, network: Network, folder: Path) -> None:
        """Write the weights as safetensors, the backbone's configuration, and the tokenizer."""
        with os_errors():
            save_file({name: value.contiguous() for name, value in network.state_dict().items()}, folder / WEIGHTS)
        (folder / CONFIG).write_text(network.backbone.config.to_json_string(use_diff=False), encoding="utf-8")
        self.tokenizer.no_truncation()
        self.tokenizer.save(str(folder / TOKENIZER))

    @classmethod
    def restored(cls, values: Mapping[str, Any], folder: Path) -> tuple["TokenFeaturizer", Network]:
        """Restore what `state` returned and `write_files` wrote, without running any of it.

        Parameters
        ----------
        values
            What `state` returned.
        folder
            Where `write_files` wrote.

        Returns
        -------
        tuple
            The featurizer and its network.
        """
        featurizer = cls(Tokenizer.from_file(str(folder / TOKENIZER)), int(values["max_length"]), values["pooling"])
        weights = load_file(folder / WEIGHTS)
        config = read_json(folder / CONFIG, str(folder / CONFIG), "configuration of a transformer")
        verify_weights(config, weights)
        network = Network(untrained_backbone(config), featurizer.pooling, restored_outputs(weights))
        network.load_state_dict(weights)
        verify_tokenizer(featurizer, network.backbone)
        return featurizer, network


def untrained_backbone(config: dict[str, Any]) -> Any:
    """Make a transformer of a saved configuration; its weights are loaded afterwards."""
    backbone = AutoModel.from_config(AutoConfig.for_model(**config))
    if hasattr(backbone, "pooler"):
        backbone.pooler = None
    return backbone


def verify_weights(config: Any, weights: Mapping[str, torch.Tensor]) -> None:
    """Raise TreelabelError where weights are not those of a configuration, before any memory is allocated for it.

    Parameters
    ----------
    config
        The content of a configuration file.
    weights
        The content of a file of weights, which have to be finite.
    """
    if not isinstance(config, dict) or not all(isinstance(key, str) for key in config):
        raise TreelabelError(f"{CONFIG} is no configuration of a transformer")
    many = [key for key, value in config.items() if "layer" in key and type(value) is int and value > len(weights)]
    if many:
        raise TreelabelError(f"{CONFIG}: {many[0]} is {config[many[0]]}, but there are {len(weights)} weights")
    # On the device "meta", tensors are shapes without memory.
    with torch.device("meta"):
        shapes = {f"backbone.{name}": value.shape for name, value in untrained_backbone(config).state_dict().items()}
    found = {name: value.shape for name, value in weights.items() if name.startswith("backbone.")}
    wrong = sorted(name for name in shapes.keys() | found.keys() if shapes.get(name) != found.get(name))
    if wrong:
        raise TreelabelError(f"{wrong[0]} in {WEIGHTS} is not what {CONFIG} says")
    for name, value in weights.items():
        if not torch.isfinite(value).all():
            raise TreelabelError(f"{name} in {WEIGHTS} holds what is no finite number")


def verify_tokenizer(featurizer: TokenFeaturizer, backbone: Any) -> None:
    """Raise TreelabelError where a transformer has no vector for a token, or for a position up to `max_length`.

    Parameters
    ----------
    featurizer
        With the tokenizer.
    backbone
        The transformer.
    """
    last = max(featurizer.tokenizer.get_vocab(with_added_tokens=True).values(), default=0)
    if last >= backbone.get_input_embeddings().num_embeddings:
        raise TreelabelError(f"{TOKENIZER} has token {last}, but there are weights of fewer")
    for name, module in backbone.named_modules():
        if name.endswith("position_embeddings") and featurizer.max_length > getattr(module, "num_embeddings", np.inf):
            raise TreelabelError(f"max_length is {featurizer.max_length}, but there are {module.num_embeddings} places")


def restored_outputs(weights: Mapping[str, torch.Tensor]) -> Outputs:
    """Make the outputs whose weights are those with names that begin with "outputs."."""
    own = {name.removeprefix("outputs."): value for name, value in weights.items() if name.startswith("outputs.")}
    hidden, linear = own.get("hidden.weight"), own["linear.weight"]
    width = linear.shape[1] if hidden is None else hidden.shape[1]
    found = Outputs(width, len(linear), 0 if hidden is None else len(hidden))
    found.load_state_dict(own)
    return found
