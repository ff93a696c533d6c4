"""Texts as numbers of tokens, and batches of similar length, in an order that the seed alone decides."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch
from tokenizers import Tokenizer

from treelabel.core.compute import IntArray, LongArray
from treelabel.core.strings import Strings
from treelabel.encoders.first_tokens import first_tokens

# So many texts are tokenised at once, which bounds what the tokenizer's own objects take.
AT_ONCE = 2_000
# Batches are made of texts of similar length among so many batches' worth that stand together by chance.
POOL = 50


@dataclass(frozen=True, eq=False)
class Tokens:
    """Tokens of texts, one after another: those of a text are `ids[ptr[i] : ptr[i + 1]]`."""

    ids: IntArray
    ptr: LongArray
    pad: int

    @classmethod
    def of(cls, texts: Strings, tokenizer: Tokenizer, max_length: int) -> "Tokens":
        """Tokenise, with the marks at both ends that the tokenizer gives; longer texts are cut."""
        tokenizer.enable_truncation(max_length)
        rows: list[IntArray] = []
        given = list(texts)
        for start in range(0, len(given), AT_ONCE):
            found = first_tokens(tokenizer, given[start : start + AT_ONCE], max_length)
            rows += [np.array(ids, np.int32) for ids in found]
        return cls.of_rows(rows, pad_id(tokenizer))

    @classmethod
    def of_rows(cls, rows: Sequence[npt.ArrayLike], pad: int) -> "Tokens":
        """Take the tokens of each text."""
        given = [np.asarray(row, np.int32) for row in rows]
        ptr = np.concatenate([[0], np.cumsum([len(row) for row in given])]).astype(np.int64)
        return cls(np.concatenate([np.zeros(0, np.int32), *given]), ptr, pad)

    def __len__(self) -> int:
        return len(self.ptr) - 1

    @cached_property
    def lengths(self) -> LongArray:
        """How many tokens each text has."""
        return np.diff(self.ptr)

    def batch(self, rows: LongArray) -> tuple[torch.Tensor, torch.Tensor]:
        """Ids and mask of some texts, texts x the longest of them."""
        lengths = self.lengths[rows]
        places = np.arange(max(1, int(lengths.max(initial=0))))
        there = places < lengths[:, None]
        ids = np.full(there.shape, self.pad, np.int64)
        ids[there] = self.ids[(self.ptr[rows][:, None] + places)[there]]
        return torch.from_numpy(ids), torch.from_numpy(there.astype(np.int64))


def pad_id(tokenizer: Tokenizer) -> int:
    """The number of the token that fills up batches; what is masked may be any."""
    for name in ("[PAD]", "<pad>"):
        found = tokenizer.token_to_id(name)
        if found is not None:
            return int(found)
    return 0


def epoch_batches(lengths: LongArray, batch: int, seed: int, epoch: int) -> list[LongArray]:
    """Deal documents into batches of similar length, in an order that seed and epoch decide.

    >>> [rows.tolist() for rows in epoch_batches(np.array([9, 1, 8, 2]), 2, seed=0, epoch=0)]
    [[2, 0], [1, 3]]
    """
    rng = np.random.default_rng([seed, epoch])
    order = rng.permutation(len(lengths))
    pools = (order[start : start + POOL * batch] for start in range(0, len(order), POOL * batch))
    batches: list[LongArray] = []
    for pool in pools:
        alike = pool[np.argsort(lengths[pool], kind="stable")]
        batches += [alike[start : start + batch] for start in range(0, len(alike), batch)]
    return [batches[place] for place in rng.permutation(len(batches))]
