"""Featurizers: how a network sees texts, as embeddings of a frozen encoder or as tokens of a backbone in training."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer

from treelabel.core.array_schema import Arrays
from treelabel.core.matrices import normalize_rows
from treelabel.core.strings import Strings
from treelabel.core.types import LongArray
from treelabel.encoders.cached_encoder import CachedEncoder
from treelabel.encoders.registry import encoder_note, find_encoder, same_encoder
from treelabel.encoders.sources import Pooling
from treelabel.encoders.token_states import StateEncoder, TokenStates
from treelabel.encoders.tokens import Tokens, token_batches
from treelabel.encoders.transformer import TransformerEncoder
from treelabel.neural.inputs import Inputs, KnownVectors
from treelabel.neural.network import Network
from treelabel.neural.saved import CONFIG, TOKENIZER
from treelabel.text import NgramShape, Tfidf
from treelabel.text.lsa import Lsa

# The length of vectors that the outputs see: the steps of AdamW suit values of about 1, not of 1 / sqrt(width).
VECTOR_LENGTH = 16.0
# tf-idf beside embeddings leaves out n-grams of fewer documents: they make the matrix large and say little.
MIN_DF = 2
# Documents whose known vectors are scored at once, and tokens whose known states are.
ROWS_AT_ONCE = 1024
MAX_STATES = 4096


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
    def state(self) -> tuple[dict[str, Any], Arrays]:
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

    def state(self) -> tuple[dict[str, Any], Arrays]:
        """Return the encoder's name and fingerprint, and tf-idf."""
        values: dict[str, Any] = {"encoder": encoder_note(self.encoder), "ngrams": None}
        if self.lsa is None:
            return values, {}
        shape = self.lsa.tfidf.shape
        values["ngrams"] = {"ngram_range": shape.ngram_range, "n_features": shape.n_features}
        return values, {**self.lsa.tfidf.arrays(), "lsa": self.lsa.vectors.astype(np.float16)}

    def write_files(self, network: Network, folder: Path) -> None:
        """Write nothing: the encoder is found by its name."""

    @classmethod
    def restored(cls, encoder: Any, values: Mapping[str, Any], arrays: Arrays) -> "FrozenFeaturizer":
        """Restore what `state` returned.

        Parameters
        ----------
        encoder
            The encoder in the model's settings, or None for the one that was recorded.
        values, arrays
            What `state` returned.

        Returns
        -------
        FrozenFeaturizer
            The same featurizer.
        """
        found, lsa = CachedEncoder(same_encoder(encoder, values["encoder"])), None
        if values["ngrams"] is not None:
            shape = NgramShape(values["ngrams"]["ngram_range"], None, int(values["ngrams"]["n_features"]))
            lsa = Lsa(Tfidf(shape, arrays["buckets"], arrays["idf"]), arrays["lsa"].astype(np.float32))
        return cls(found, lsa)


@dataclass(frozen=True, eq=False)
class StatesFeaturizer(Featurizer):
    """Cached token states of a frozen encoder."""

    encoder: StateEncoder

    @classmethod
    def of(cls, encoder: Any) -> "StatesFeaturizer":
        """Find the encoder by its name, its folder, or as an object."""
        return cls(StateEncoder(find_encoder(encoder)))

    @property
    def pooling(self) -> Pooling:
        """How the encoder itself pools its states; the mean for one that has no token states."""
        encoder = self.encoder.encoder
        return encoder.source.pooling if isinstance(encoder, TransformerEncoder) else "mean"

    def inputs(self, texts: Strings, progress: bool | None = None) -> TokenStates:
        """Return the token states of texts."""
        return self.encoder.transform(list(texts), progress)

    def batches(self, inputs: Inputs) -> list[LongArray]:
        """Split documents into batches of similar length."""
        return token_batches(inputs.lengths.tolist(), MAX_STATES, ROWS_AT_ONCE)

    def state(self) -> tuple[dict[str, Any], Arrays]:
        """Return the encoder's name and fingerprint."""
        return {"encoder": encoder_note(self.encoder.encoder), "ngrams": None}, {}

    def write_files(self, network: Network, folder: Path) -> None:
        """Write nothing: the encoder is found by its name."""

    @classmethod
    def restored(cls, encoder: Any, values: Mapping[str, Any]) -> "StatesFeaturizer":
        """Restore what `state` returned.

        Parameters
        ----------
        encoder
            The encoder in the model's settings, or None for the one that was recorded.
        values
            What `state` returned.

        Returns
        -------
        StatesFeaturizer
            The same featurizer.
        """
        return cls(StateEncoder(same_encoder(encoder, values["encoder"])))


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

    def state(self) -> tuple[dict[str, Any], Arrays]:
        """Return how texts are truncated and pooled; the rest is in files."""
        return {"max_length": self.max_length, "pooling": self.pooling}, {}

    def write_files(self, network: Network, folder: Path) -> None:
        """Write the backbone's configuration and the tokenizer."""
        (folder / CONFIG).write_text(network.backbone.config.to_json_string(use_diff=False), encoding="utf-8")
        self.tokenizer.no_truncation()
        self.tokenizer.save(str(folder / TOKENIZER))

    @classmethod
    def restored(cls, values: Mapping[str, Any], folder: Path) -> "TokenFeaturizer":
        """Restore what `state` returned and `write_files` wrote.

        Parameters
        ----------
        values
            What `state` returned.
        folder
            Where `write_files` wrote.

        Returns
        -------
        TokenFeaturizer
            The same featurizer.
        """
        return cls(Tokenizer.from_file(str(folder / TOKENIZER)), int(values["max_length"]), values["pooling"])
