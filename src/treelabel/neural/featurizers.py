"""How a network sees texts: as embeddings or token states of a frozen encoder, or as tokens of a trained backbone."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor

from treelabel.core.array_schema import Arrays
from treelabel.core.matrices import normalize_rows
from treelabel.core.strings import Strings
from treelabel.core.types import LongArray
from treelabel.encoders.cached_encoder import CachedEncoder
from treelabel.encoders.protocol import Encoder
from treelabel.encoders.registry import Pooling, encoder_note, find_encoder, same_encoder
from treelabel.encoders.token_states import StateEncoder, TokenStates
from treelabel.encoders.tokens import Tokens, token_batches
from treelabel.encoders.transformer import TransformerEncoder
from treelabel.neural.network_schema import CONFIG, TOKENIZER
from treelabel.neural.objective import portions_of
from treelabel.text.lsa import Lsa
from treelabel.text.ngrams import NgramShape
from treelabel.text.tfidf import Tfidf

# The length of vectors that the outputs see: the steps of AdamW suit values of about 1, not of 1 / sqrt(width).
VECTOR_LENGTH = 16.0
# tf-idf beside embeddings leaves out n-grams of fewer documents: they make the matrix large and say little.
MIN_DF = 2
# Documents whose known vectors are scored at once, and tokens whose known states are.
ROWS_AT_ONCE = 1024
MAX_STATES = 4096


@dataclass(frozen=True, eq=False)
class KnownVectors:
    """Documents whose vectors are known: documents × width."""

    values: Tensor

    @property
    def width(self) -> int:
        """The width of a vector."""
        return int(self.values.shape[1])

    @property
    def lengths(self) -> LongArray:
        """Ones: all documents have the same length."""
        return np.ones(len(self.values), np.int64)

    def batch(self, rows: LongArray) -> tuple[Tensor]:
        """Return the rows of some documents."""
        return (self.values[torch.from_numpy(rows)],)

    def select(self, rows: LongArray) -> "KnownVectors":
        """Return the vectors of some documents."""
        return KnownVectors(*self.batch(rows))


# What a network takes of documents.
Inputs = KnownVectors | TokenStates | Tokens


@dataclass(frozen=True, eq=False)
class FrozenFeaturizer:
    """Cached embeddings of a frozen encoder, with reduced tf-idf beside them if there is any."""

    encoder: CachedEncoder
    lsa: Lsa | None = None
    pooling: ClassVar[Pooling] = "mean"

    @classmethod
    def fit(cls, encoder: Any, texts: Strings, lsa_components: int, seed: int) -> "FrozenFeaturizer":
        """Find the encoder, and fit tf-idf of so many columns to texts; 0 for none."""
        cached = CachedEncoder(find_encoder(encoder))
        if not lsa_components:
            return cls(cached)
        return cls(cached, Lsa.fit_transform(texts, lsa_components, NgramShape(), MIN_DF, seed)[0])

    def inputs(self, texts: Strings, progress: bool | None = None) -> KnownVectors:
        """Return embeddings and tf-idf side by side, of equal length each and `VECTOR_LENGTH` together."""
        embeddings = self.encoder.transform(list(texts), progress)
        parts = [normalize_rows(embeddings)]
        if self.lsa is not None:
            parts.append(self.lsa.transform(texts))
        scaled = np.float32(VECTOR_LENGTH / np.sqrt(len(parts))) * np.concatenate(parts, axis=1)
        return KnownVectors(torch.from_numpy(np.ascontiguousarray(scaled, np.float32)))

    def name_vectors(self, names: list[str], backbone: Any, progress: bool | None) -> tuple[Tensor, ...]:
        """Return the embedding of each name, 1 × width."""
        return tuple(self.inputs(Strings.of(names), progress).values.unsqueeze(1))

    def batches(self, inputs: Inputs) -> list[LongArray]:
        """Split documents in their own order."""
        return portions_of(len(inputs.lengths), ROWS_AT_ONCE)

    def state(self) -> tuple[dict[str, Any], Arrays]:
        """Return the encoder's name and fingerprint, and tf-idf."""
        values: dict[str, Any] = {"encoder": encoder_note(self.encoder), "ngrams": None}
        if self.lsa is None:
            return values, {}
        shape = self.lsa.tfidf.shape
        values["ngrams"] = {"ngram_range": shape.ngram_range, "n_features": shape.n_features}
        return values, {**self.lsa.tfidf.arrays(), "lsa": self.lsa.vectors.astype(np.float16)}

    @classmethod
    def restore(cls, encoder: Any, values: Mapping[str, Any], arrays: Arrays) -> "FrozenFeaturizer":
        """Restore what `state` returned; without an encoder among the settings, by the one that was recorded."""
        cached, lsa = CachedEncoder(same_encoder(encoder, values["encoder"])), None
        if values["ngrams"] is not None:
            shape = NgramShape(values["ngrams"]["ngram_range"], None, int(values["ngrams"]["n_features"]))
            lsa = Lsa(Tfidf(shape, arrays["buckets"], arrays["idf"]), arrays["lsa"].astype(np.float32))
        return cls(cached, lsa)


@dataclass(frozen=True, eq=False)
class StatesFeaturizer:
    """Cached token states of a frozen encoder."""

    encoder: StateEncoder
    pooling: Pooling

    @classmethod
    def of(cls, encoder: Encoder) -> "StatesFeaturizer":
        """Take the states of an encoder, and its own pooling; the mean for one that has no token states."""
        return cls(StateEncoder(encoder), encoder.source.pooling if isinstance(encoder, TransformerEncoder) else "mean")

    def inputs(self, texts: Strings, progress: bool | None = None) -> TokenStates:
        """Return the token states of texts."""
        return self.encoder.transform(list(texts), progress)

    def name_vectors(self, names: list[str], backbone: Any, progress: bool | None) -> tuple[Tensor, ...]:
        """Return the states of the tokens of each name."""
        rows = self.inputs(Strings.of(names), progress).rows()
        return tuple(torch.from_numpy(row.astype(np.float32)) for row in rows)

    def batches(self, inputs: Inputs) -> list[LongArray]:
        """Split documents into batches of similar length."""
        return token_batches(inputs.lengths.tolist(), MAX_STATES, ROWS_AT_ONCE)

    def state(self) -> tuple[dict[str, Any], Arrays]:
        """Return the encoder's name and fingerprint."""
        return {"encoder": encoder_note(self.encoder.encoder), "ngrams": None}, {}


@dataclass(frozen=True, eq=False)
class TokenFeaturizer:
    """Tokens of a backbone that is trained, truncated at `max_length`."""

    tokenizer: Tokenizer
    max_length: int
    pooling: Pooling

    def inputs(self, texts: Strings, progress: bool | None = None) -> Tokens:
        """Tokenise texts."""
        return Tokens.of(texts, self.tokenizer, self.max_length)

    def name_vectors(self, names: list[str], backbone: Any, progress: bool | None) -> tuple[Tensor, ...]:
        """Return the word embeddings of the pieces of each name, special tokens left out."""
        self.tokenizer.no_truncation()
        table = backbone.get_input_embeddings().weight.detach()
        encoded = self.tokenizer.encode_batch(names, add_special_tokens=False)
        return tuple(table[torch.tensor(each.ids, dtype=torch.long)].clone() for each in encoded)

    def batches(self, inputs: Inputs) -> list[LongArray]:
        """Split documents into batches of similar length."""
        return token_batches(inputs.lengths.tolist())

    def state(self) -> tuple[dict[str, Any], Arrays]:
        """Return how texts are truncated and pooled; the rest is in files."""
        return {"max_length": self.max_length, "pooling": self.pooling}, {}

    def write_files(self, backbone: Any, folder: Path) -> None:
        """Write the backbone's configuration and the tokenizer."""
        (folder / CONFIG).write_text(backbone.config.to_json_string(use_diff=False), encoding="utf-8")
        self.tokenizer.no_truncation()
        self.tokenizer.save(str(folder / TOKENIZER))

    @classmethod
    def restore(cls, values: Mapping[str, Any], folder: Path) -> "TokenFeaturizer":
        """Restore what `state` returned and `write_files` wrote."""
        return cls(Tokenizer.from_file(str(folder / TOKENIZER)), int(values["max_length"]), values["pooling"])


# Turns texts into the inputs of a network, and saves what that takes.
TextFeaturizer = FrozenFeaturizer | StatesFeaturizer | TokenFeaturizer
