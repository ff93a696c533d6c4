"""Texts as token ids: tokenised once, padded batch by batch."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch
from tokenizers import Tokenizer

from treelabel.core.strings import Strings
from treelabel.core.types import IntArray, LongArray
from treelabel.encoders.first_tokens import first_tokens

# Texts that are tokenised at once, which bounds the memory of the tokenizer's own objects.
AT_ONCE = 2_000


@dataclass(frozen=True, eq=False)
class Tokens:
    """Token ids of texts, one text after another: those of text i are `ids[ptr[i] : ptr[i + 1]]`."""

    ids: IntArray
    ptr: LongArray
    pad: int

    @classmethod
    def of(cls, texts: Strings, tokenizer: Tokenizer, max_length: int) -> "Tokens":
        """Tokenise texts.

        Parameters
        ----------
        texts
            The texts.
        tokenizer
            Adds its special tokens.
        max_length
            Longer texts are truncated.

        Returns
        -------
        Tokens
            The token ids of all texts.
        """
        tokenizer.enable_truncation(max_length)
        rows: list[IntArray] = []
        given = list(texts)
        for start in range(0, len(given), AT_ONCE):
            found = first_tokens(tokenizer, given[start : start + AT_ONCE], max_length)
            rows += [np.array(ids, np.int32) for ids in found]
        return cls.of_rows(rows, pad_id(tokenizer))

    @classmethod
    def of_rows(cls, rows: Sequence[npt.ArrayLike], pad: int) -> "Tokens":
        """Concatenate the token ids of each text.

        Parameters
        ----------
        rows
            The token ids of each text.
        pad
            The id that fills up batches.

        Returns
        -------
        Tokens
            The token ids of all texts.
        """
        given = [np.asarray(row, np.int32) for row in rows]
        ptr = np.concatenate([[0], np.cumsum([len(row) for row in given])]).astype(np.int64)
        return cls(np.concatenate([np.zeros(0, np.int32), *given]), ptr, pad)

    def __len__(self) -> int:
        return len(self.ptr) - 1

    @cached_property
    def lengths(self) -> LongArray:
        """The number of tokens of each text."""
        return np.diff(self.ptr)

    def batch(self, rows: LongArray) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the ids and the attention mask of some texts, texts × the longest of them."""
        lengths = self.lengths[rows]
        places = np.arange(max(1, int(lengths.max(initial=0))))
        mask = places < lengths[:, None]
        ids = np.full(mask.shape, self.pad, np.int64)
        ids[mask] = self.ids[(self.ptr[rows][:, None] + places)[mask]]
        return torch.from_numpy(ids), torch.from_numpy(mask.astype(np.int64))


def pad_id(tokenizer: Tokenizer) -> int:
    """Return the id of the padding token; without one any id will do, since it is masked."""
    for name in ("[PAD]", "<pad>"):
        found = tokenizer.token_to_id(name)
        if found is not None:
            return int(found)
    return 0
