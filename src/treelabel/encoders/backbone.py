"""Pretrained transformers: loading any Hugging Face encoder without noise, and one vector of its hidden states."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional

from treelabel.core.errors import TreelabelError
from treelabel.encoders.sources import Pooling


def load_tokenizer(place: str | Path) -> Tokenizer:
    """Load the tokenizer of a folder; it neither cuts nor pads."""
    file = Path(place) / "tokenizer.json"
    if file.is_file():
        # What is there is what AutoTokenizer would take, without seconds of looking for the class.
        loaded = Tokenizer.from_file(str(file))
    else:
        from transformers import AutoTokenizer

        with _said_for_people(place), _quiet():
            loaded = AutoTokenizer.from_pretrained(str(place), use_fast=True, local_files_only=True).backend_tokenizer
    loaded.no_padding()
    loaded.no_truncation()
    return loaded


def load_body(place: str | Path) -> Any:
    """Load the transformer of a folder in float32, to evaluate; of an encoder and decoder, the encoder.

    Called with input_ids and attention_mask, it gives `last_hidden_state`. The layer that some have over [CLS] is left
    out: nothing uses it, and gradients would miss it. Nothing is downloaded.
    """
    # Importing it takes longer than an exported encoder needs to start.
    from transformers import AutoModel

    with _said_for_people(place), _quiet():
        body = AutoModel.from_pretrained(str(place), dtype=torch.float32, use_safetensors=True, local_files_only=True)
    if body.config.is_encoder_decoder:
        body = body.get_encoder()
    if hasattr(body, "pooler"):
        body.pooler = None
    return body.eval()


def pooled(hidden: Tensor, mask: Tensor, how: Pooling) -> Tensor:
    """Make one vector a text (n × width) of hidden states (n × length × width), where the mask (n × length) is 1.

    >>> hidden, mask = torch.tensor([[[1.0], [4.0], [9.0]]]), torch.tensor([[1, 1, 0]])
    >>> [pooled(hidden, mask, how).item() for how in ("cls", "mean", "max")]
    [1.0, 2.5, 4.0]
    """
    if how == "cls":
        return hidden[:, 0]
    there = mask.unsqueeze(-1)
    if how == "mean":
        weights = there.to(hidden.dtype)
        return (hidden * weights).sum(1) / weights.sum(1).clamp(min=1.0)
    return hidden.masked_fill(there == 0, torch.finfo(hidden.dtype).min).amax(1)


def text_vectors(body: Any, ids: Tensor, mask: Tensor | None, how: Pooling, unit: bool) -> Tensor:
    """Run a transformer on token ids (n × length) and pool what it gives; without a mask, all of them are tokens."""
    hidden = body(input_ids=ids, attention_mask=mask).last_hidden_state
    found = pooled(hidden, torch.ones_like(ids) if mask is None else mask, how)
    return functional.normalize(found, dim=1) if unit else found


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep progress bars and notes about weights that nobody uses from standard error."""
    from transformers.utils import logging as transformers_logging

    level, shows = transformers_logging.get_verbosity(), transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity(logging.CRITICAL)
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(level)
        if shows:
            transformers_logging.enable_progress_bar()


@contextmanager
def _said_for_people(place: str | Path) -> Iterator[None]:
    """Say what cannot be loaded, and what to do."""
    if not Path(place).is_dir():
        # transformers would look for it elsewhere, for half a minute where there is no network.
        raise TreelabelError(f"{place}: no such folder; see 'treelabel encoders' for what is usable here")
    try:
        yield
    except (OSError, ValueError, SafetensorError) as error:
        reason = " ".join(str(error).split())[:300]
        raise TreelabelError(
            f"{place}: damaged: no encoder can be loaded from this folder; expected config.json, weights "
            f"(model.safetensors) and a tokenizer, as save_pretrained writes them: {reason}"
        ) from error
