"""Texts as token ids: the first ones of each text, in batches of texts of similar length.

Models that run in ONNX Runtime need this without torch, which only `Tokens.batch` imports.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from treelabel.core.strings import Strings
from treelabel.core.types import IntArray, LongArray

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from torch import Tensor

# Texts that are tokenized at once, which bounds the memory of the tokenizer's own objects.
TEXTS_AT_ONCE = 2_000


@dataclass(frozen=True, eq=False)
class Tokens:
    """Token ids of texts, one text after another: those of text i are `ids[ptr[i] : ptr[i + 1]]`.

    `pad` is the id that fills up batches.
    """

    ids: IntArray
    ptr: LongArray
    pad: int

    @classmethod
    def of(cls, texts: Strings, tokenizer: "Tokenizer", max_length: int) -> "Tokens":
        """Tokenize texts; those of more than `max_length` tokens, special ones included, are truncated."""
        tokenizer.enable_truncation(max_length)
        rows: list[IntArray] = []
        listed = list(texts)
        for start in range(0, len(listed), TEXTS_AT_ONCE):
            batch = first_tokens(tokenizer, listed[start : start + TEXTS_AT_ONCE], max_length)
            rows += [np.array(ids, np.int32) for ids in batch]
        return cls.of_rows(rows, pad_id(tokenizer))

    @classmethod
    def of_rows(cls, rows: Sequence[npt.ArrayLike], pad: int) -> "Tokens":
        """Concatenate the token ids of each text."""
        arrays = [np.asarray(row, np.int32) for row in rows]
        ptr = np.concatenate([[0], np.cumsum([len(row) for row in arrays])]).astype(np.int64)
        return cls(np.concatenate([np.zeros(0, np.int32), *arrays]), ptr, pad)

    def __len__(self) -> int:
        return len(self.ptr) - 1

    @cached_property
    def lengths(self) -> LongArray:
        """The number of tokens of each text."""
        return np.diff(self.ptr)

    def select(self, rows: LongArray) -> "Tokens":
        """Return the token ids of some texts."""
        return Tokens.of_rows([self.ids[self.ptr[row] : self.ptr[row + 1]] for row in rows], self.pad)

    def batch(self, rows: LongArray) -> "tuple[Tensor, Tensor]":
        """Return the ids and the attention mask of some texts, texts × the longest of them."""
        import torch

        lengths = self.lengths[rows]
        positions = np.arange(max(1, int(lengths.max(initial=0))))
        mask = positions < lengths[:, None]
        ids = np.full(mask.shape, self.pad, np.int64)
        ids[mask] = self.ids[(self.ptr[rows][:, None] + positions)[mask]]
        return torch.from_numpy(ids), torch.from_numpy(mask.astype(np.int64))


def pad_id(tokenizer: "Tokenizer") -> int:
    """Return the id of the padding token; without one any id will do, since it is masked."""
    ids = (tokenizer.token_to_id(name) for name in ("[PAD]", "<pad>"))
    return next((int(each) for each in ids if each is not None), 0)


def first_tokens(tokenizer: "Tokenizer", texts: Sequence[str], length: int) -> list[list[int]]:
    """Return the first token ids of texts, without tokenizing the whole of a long one.

    The beginning of a text, up to a space, has the tokens that the whole text begins with; where it has too few, a
    longer beginning is tokenized.

    Parameters
    ----------
    tokenizer
        A tokenizer that truncates at `length`.
    texts
        Any texts.
    length
        The most tokens of a text.

    Returns
    -------
    list[list[int]]
        Token ids, one list per text.
    """
    ids: list[list[int]] = [[]] * len(texts)
    waiting, characters = list(range(len(texts))), 16 * length
    while waiting:
        starts = [_text_start(texts[row], characters) for row in waiting]
        for row, encoded in zip(waiting, tokenizer.encode_batch_fast(starts), strict=True):
            ids[row] = encoded.ids
        waiting = [
            row
            for row, start in zip(waiting, starts, strict=True)
            if len(start) < len(texts[row]) and len(ids[row]) < length
        ]
        characters *= 8
    return ids


def _text_start(text: str, characters: int) -> str:
    """Cut a text before a space; one without spaces is left whole."""
    space = -1 if len(text) <= characters else text.rfind(" ", 0, characters)
    return text if space < 1 else text[:space]


def token_batches(lengths: Sequence[int], max_tokens: int = 2048, max_rows: int = 32) -> list[LongArray]:
    """Group texts by length, longest first, so that little of a batch is padding.

    Parameters
    ----------
    lengths
        The number of tokens of each text.
    max_tokens
        A batch of k texts has k · (longest of them) tokens, at most this many unless it is a single text.
    max_rows
        The most texts in a batch.

    Returns
    -------
    list[LongArray]
        The row numbers of the texts in each batch.

    >>> [batch.tolist() for batch in token_batches([1, 5, 2, 5, 3], max_tokens=10)]
    [[1, 3], [4, 2, 0]]
    """
    order = np.argsort(-np.asarray(lengths, np.int64), kind="stable")
    batches, start = [], 0
    while start < len(order):
        longest = max(1, int(lengths[order[start]]))
        stop = start + min(max_rows, max(1, max_tokens // longest))
        batches.append(order[start:stop])
        start = stop
    return batches


def equal_batches(lengths: Sequence[int], max_tokens: int) -> list[LongArray]:
    """Group texts of exactly the same length, longest first: nothing is padded.

    Parameters
    ----------
    lengths
        The number of tokens of each text.
    max_tokens
        The most tokens in a batch, unless it is a single text.

    Returns
    -------
    list[LongArray]
        The row numbers of the texts in each batch.

    >>> [batch.tolist() for batch in equal_batches([1, 5, 2, 5, 5], max_tokens=10)]
    [[1, 3], [4], [2], [0]]
    """
    counts = np.asarray(lengths, np.int64)
    batches = []
    for length in np.unique(counts)[::-1]:
        rows = np.flatnonzero(counts == length)
        size = max(1, max_tokens // max(1, int(length)))
        batches += [rows[start : start + size] for start in range(0, len(rows), size)]
    return batches
