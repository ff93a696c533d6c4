"""Token states: the hidden states of a frozen encoder, one row per token of a text, kept on disk in float16.

An encoder that is no transformer has no such states; its vectors of single words stand in for them.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from treelabel.core.progress import progress_bar
from treelabel.core.types import FloatArray, LongArray
from treelabel.encoders.backbone import keep_layers, layers_of
from treelabel.encoders.cached_encoder import CachedEncoder
from treelabel.encoders.files import USUAL_LENGTH, cache_folder
from treelabel.encoders.protocol import Encoder
from treelabel.encoders.row_cache import RowCache, cache_name
from treelabel.encoders.tokens import Tokens, token_batches
from treelabel.encoders.transformer import TransformerEncoder

# Tokens whose states make one row of the cache; the last row of a text is filled up with zeros.
BLOCK = 16
# Texts whose states are computed and stored at a time.
TEXTS_AT_ONCE = 256


@dataclass(frozen=True, eq=False)
class TokenStates:
    """Hidden states of texts: the ids of `tokens` are rows of `values`, of which the first is zeros, for padding.

    Memory: 2 bytes × width per row of `values`, and 4 bytes per token. Equal tokens may share a row, as words do whose
    vectors do not depend on the text, and some of the texts share the rows of all.
    """

    values: npt.NDArray[np.float16]
    tokens: Tokens

    @classmethod
    def of_rows(cls, rows: Sequence[npt.NDArray[Any]], width: int) -> "TokenStates":
        """Concatenate the states of each text.

        Parameters
        ----------
        rows
            The states of each text, tokens × width.
        width
            Their width, also where there is no text.

        Returns
        -------
        TokenStates
            The states of all texts.
        """
        values = np.concatenate([np.zeros((1, width), np.float16), *rows], dtype=np.float16)
        ends = np.cumsum([len(row) for row in rows], dtype=np.int64)
        return cls(values, Tokens(np.arange(1, len(values), dtype=np.int32), np.append(0, ends), 0))

    @classmethod
    def of_words(cls, texts: Sequence[Sequence[int]], vectors: FloatArray) -> "TokenStates":
        """Take the states of words that are the same in every text.

        Parameters
        ----------
        texts
            The numbers of the words of each text.
        vectors
            The vector of each word, words × width.

        Returns
        -------
        TokenStates
            The states of all texts; words have one row each.

        >>> states = TokenStates.of_words([[1, 0, 1], []], np.array([[1.0], [2.0]], np.float32))
        >>> states.batch(np.array([0]))[0].tolist(), states.lengths.tolist()
        ([[[2.0], [1.0], [2.0]]], [3, 0])
        """
        values = np.concatenate([np.zeros_like(vectors[:1], np.float16), as_half(vectors)])
        return cls(values, Tokens.of_rows([[1 + word for word in text] for text in texts], 0))

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def width(self) -> int:
        """The width of a state."""
        return int(self.values.shape[1])

    @property
    def lengths(self) -> LongArray:
        """The number of tokens of each text."""
        return self.tokens.lengths

    def rows(self) -> list[npt.NDArray[np.float16]]:
        """Return the states of each text."""
        return [self.values[ids] for ids in np.split(self.tokens.ids, self.tokens.ptr[1:-1])[: len(self)]]

    def select(self, rows: LongArray) -> "TokenStates":
        """Return the states of some texts, without a copy of them."""
        return TokenStates(self.values, self.tokens.select(rows))

    def batch(self, rows: LongArray) -> tuple[Tensor, Tensor]:
        """Return the states and the attention mask of some texts: texts × the longest of them (× width)."""
        ids, mask = self.tokens.batch(rows)
        return torch.from_numpy(self.values[ids.numpy()].astype(np.float32)), mask


class StateEncoder:
    """The token states of a frozen encoder; every distinct text is computed once and kept on disk.

    Parameters
    ----------
    encoder
        A transformer, or any other encoder, whose vectors of the first words of a text are then its states: as many as
        its `max_length`, or 512.
    layers
        States are those after so many layers of a transformer; None for the last one.
    backbone
        The transformer as it was loaded, whose other layers are removed; None loads it when it is needed.
    """

    def __init__(self, encoder: Encoder, layers: int | None = None, backbone: Any = None) -> None:
        self.encoder, self.layers = encoder, layers
        self.name, self.fingerprint = encoder.name, encoder.fingerprint
        if layers is not None:
            self.fingerprint += f" layers={layers}"
        self._backbone: Any = None if backbone is None else _LowerLayers(backbone, layers)

    def __getstate__(self) -> dict[str, Any]:
        """Return everything but the loaded transformer, which a copy loads again when it needs it."""
        return {**self.__dict__, "_backbone": None}

    def transform(self, texts: Sequence[str], progress: bool | None = None) -> TokenStates:
        """Return the states of texts.

        Parameters
        ----------
        progress
            Whether to show a progress bar; None shows one on a terminal.

        Returns
        -------
        TokenStates
            In float16; a text without a token has no states.
        """
        if isinstance(self.encoder, TransformerEncoder):
            return self._hidden_states(self.encoder, texts, progress)
        most = getattr(self.encoder, "max_length", USUAL_LENGTH)
        words = [text.split(maxsplit=most)[:most] for text in texts]
        distinct = {word: row for row, word in enumerate(dict.fromkeys(word for text in words for word in text))}
        vectors = CachedEncoder(self.encoder).transform([*distinct, ""], progress)
        return TokenStates.of_words([[distinct[word] for word in text] for text in words], vectors)

    def _hidden_states(self, encoder: TransformerEncoder, texts: Sequence[str], progress: bool | None) -> TokenStates:
        """Read states from the cache, and compute those that are missing, some texts at a time."""
        distinct = {text: row for row, text in enumerate(dict.fromkeys(texts))}
        waiting, rows = list(distinct), list[npt.NDArray[np.float16]]()
        with (
            RowCache(cache_folder() / cache_name(f"{self.fingerprint} float16 tokens {BLOCK}")) as cache,
            progress_bar("token states", len(waiting), progress) as done,
        ):
            for start in range(0, len(waiting), TEXTS_AT_ONCE):
                rows += self._read_or_compute(encoder, waiting[start : start + TEXTS_AT_ONCE], cache)
                done(len(rows))
        return TokenStates.of_rows([rows[distinct[text]] for text in texts], encoder.width)

    def _read_or_compute(
        self, encoder: TransformerEncoder, texts: Sequence[str], cache: RowCache
    ) -> list[npt.NDArray[np.float16]]:
        ids = encoder.tokens(texts)
        keys = [_block_keys(self.fingerprint, text, len(each)) for text, each in zip(texts, ids, strict=True)]
        stored = cache.read([key for each in keys for key in each])
        missing = [row for row, each in enumerate(keys) if not all(key in stored for key in each)]
        for row, states in zip(missing, self._compute_states([ids[row] for row in missing]), strict=True):
            blocks = _fill_blocks(states)
            cache.write(keys[row], blocks)
            stored |= dict(zip(keys[row], blocks, strict=True))
        joined = [np.concatenate([stored[key] for key in each] or [np.zeros(0, np.float32)]) for each in keys]
        halves = [row.view(np.float16).reshape(-1, encoder.width) for row in joined]
        return [row[: len(each)] for row, each in zip(halves, ids, strict=True)]

    def _compute_states(self, ids: list[list[int]]) -> list[FloatArray]:
        """Run the transformer."""
        assert isinstance(self.encoder, TransformerEncoder)
        if self._backbone is None and ids:
            self._backbone = _LowerLayers(self.encoder.load_backbone(), self.layers)
        tokens = Tokens.of_rows(ids, 0)
        rows: list[FloatArray] = [np.zeros((0, self.encoder.width), np.float32)] * len(ids)
        for batch in token_batches(tokens.lengths.tolist()):
            input_ids, mask = tokens.batch(batch)
            with torch.inference_mode():
                states = self._backbone(input_ids, mask).numpy()
            for row, text_states in zip(batch.tolist(), states, strict=True):
                rows[row] = text_states[: len(ids[row])]
        return rows


class _LowerLayers:
    """The first layers of a transformer; what follows its last layer, such as a norm, belongs to all of them."""

    def __init__(self, backbone: Any, layers: int | None) -> None:
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.backbone, self.layers = backbone.to(self.device), layers
        self._states: Any = None
        if layers is not None:
            keep_layers(backbone, slice(layers))
            layers_of(backbone)[-1].register_forward_hook(self._keep)

    def _keep(self, _: Any, __: Any, output: Any) -> None:
        self._states = output if isinstance(output, Tensor) else output[0]

    def __call__(self, input_ids: Tensor, mask: Tensor) -> Tensor:
        inputs = {"input_ids": input_ids.to(self.device), "attention_mask": mask.to(self.device)}
        states: Tensor = self.backbone(**inputs).last_hidden_state
        return (states if self.layers is None else self._states).cpu()


def as_half(states: FloatArray) -> npt.NDArray[np.float16]:
    """Return states in float16; what is too large for it becomes the largest number that is not.

    >>> as_half(np.array([1e6, -0.5], np.float32)).tolist()
    [65504.0, -0.5]
    """
    most = float(np.finfo(np.float16).max)
    return np.clip(states, -most, most).astype(np.float16)


def _block_keys(fingerprint: str, text: str, tokens: int) -> list[bytes]:
    """Return the keys of the blocks of a text."""
    begun = hashlib.sha256(f"{fingerprint}\0{text}\0".encode("utf-8", "surrogatepass"))
    keys = []
    for block in range(-(-tokens // BLOCK)):
        hashed = begun.copy()
        hashed.update(str(block).encode())
        keys.append(hashed.digest())
    return keys


def _fill_blocks(states: FloatArray) -> FloatArray:
    """Fill up states (tokens × width) to whole blocks, one row per block, two numbers in the bits of a float32.

    >>> _fill_blocks(np.ones((BLOCK + 1, 2), np.float32)).shape
    (2, 16)
    """
    blocks = -(-len(states) // BLOCK)
    filled = np.zeros((blocks * BLOCK, states.shape[1]), np.float16)
    filled[: len(states)] = as_half(states)
    return filled.reshape(blocks, -1).view(np.float32)
