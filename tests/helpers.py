"""Helpers of several test files: call the command line, put a file into a folder and read it."""

import hashlib
import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import treelabel
from treelabel import Dataset, read
from treelabel.encoders import files
from treelabel.encoders.registry import ENCODERS, EncoderRow

# Typed as Any: tests look at what each model has learned, which is declared by its class alone.
make_model: Any = treelabel.make_model
load_model: Any = treelabel.load_model
update_model: Any = treelabel.update_model


class Ended(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The output as JSON, of a command that went well."""
        assert self.code == 0, self.err
        return json.loads(self.out, parse_constant=lambda constant: pytest.fail(f"{constant} is not JSON"))


Run = Callable[..., Ended]


def put(folder: Path, name: str, content: str | bytes) -> Path:
    """Write a file."""
    file = folder / name
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return file


def read_text(folder: Path, name: str, content: str | bytes, **options: Any) -> Dataset:
    """Write a file and read it."""
    return read(put(folder, name, content), **options)


class WordVectors:
    """A text is the sum of vectors of its words, which their hashes choose."""

    name = "words"
    fingerprint = "words 1"

    def __repr__(self) -> str:
        # The names of tests must be the same in all processes that run them.
        return "WordVectors()"

    def transform(self, texts: Sequence[str]) -> Any:
        return np.array(
            [np.sum([self.vector(word) for word in text.split()] or [np.zeros(32)], axis=0) for text in texts]
        )

    @staticmethod
    @cache
    def vector(word: str) -> Any:
        seed = int.from_bytes(hashlib.sha256(word.lower().encode()).digest()[:4], "little")
        return np.random.default_rng(seed).normal(size=32)


def registered(name: str, maker: Callable[..., Any]) -> AbstractContextManager[None]:
    """Make an encoder known by a name for the duration of a `with` block."""
    return ENCODERS.adding(EncoderRow(name, f"{maker.__name__} of the tests", maker))


def tiny_bert(folder: Path, texts: Sequence[str], width: int = 32, layers: int = 2) -> Path:
    """Write a BERT with random weights and a tokenizer of its own, as save_pretrained does."""
    import torch
    from transformers import BertConfig, BertModel

    from treelabel.core.strings import Strings
    from treelabel.neural.backbones import learned_tokenizer

    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = learned_tokenizer(Strings.of(list(texts)))
    tokenizer.save(str(folder / "tokenizer.json"))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = BertConfig(
            vocab_size=tokenizer.get_vocab_size(),
            hidden_size=width,
            num_hidden_layers=layers,
            num_attention_heads=4,
            intermediate_size=2 * width,
            max_position_embeddings=64,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
        BertModel(config).save_pretrained(folder)
    return folder


def hide_encoders(monkeypatch: pytest.MonkeyPatch, *others: str) -> None:
    """Let no package that carries an encoder be installed, nor any of the others; all that encoders import is there."""
    hidden = {*others, *(row.module for row in files.PACKAGES.values())}
    monkeypatch.setattr(files, "find_spec", lambda name: None if name in hidden else True)
