"""Backbones: loading the transformer and the tokenizer of any Hugging Face folder, and pooling hidden states."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from tokenizers import Tokenizer
from torch import Tensor, nn

from treelabel.core.errors import TreelabelError
from treelabel.encoders.registry import Pooling


def load_tokenizer(folder: Path) -> Tokenizer:
    """Load the tokenizer of a folder; it neither truncates nor pads."""
    file = folder / "tokenizer.json"
    if file.is_file():
        # AutoTokenizer would load the same file, after seconds of searching for its class.
        loaded = Tokenizer.from_file(str(file))
    else:
        from transformers import AutoTokenizer

        with _readable_errors(folder), quiet():
            loaded = AutoTokenizer.from_pretrained(str(folder), use_fast=True, local_files_only=True).backend_tokenizer
    loaded.no_padding()
    loaded.no_truncation()
    return loaded


def load_backbone(folder: Path) -> Any:
    """Load the transformer of a folder in float32 and eval mode; of an encoder-decoder, the encoder.

    Called with input_ids and attention_mask, it returns `last_hidden_state`. The pooling layer that some have over
    [CLS] is removed: nothing uses it, and it would have no gradient. Nothing is downloaded.
    """
    # Importing it takes longer than an exported encoder needs to start.
    from transformers import AutoModel

    with _readable_errors(folder), quiet():
        backbone = AutoModel.from_pretrained(
            str(folder), dtype=torch.float32, use_safetensors=True, local_files_only=True
        )
    if backbone.config.is_encoder_decoder:
        backbone = backbone.get_encoder()
    if hasattr(backbone, "pooler"):
        backbone.pooler = None
    return backbone.eval()


def layers_of(backbone: nn.Module) -> nn.ModuleList:
    """Return the layers of a transformer, first to last: its longest list of modules."""
    lists = [module for module in backbone.modules() if isinstance(module, nn.ModuleList)]
    return max(lists, key=len, default=nn.ModuleList())


def keep_layers(backbone: nn.Module, kept: slice) -> None:
    """Remove all other layers of a transformer, in place."""
    layers = layers_of(backbone)
    remaining = list(layers)[kept]
    del layers[:]
    layers.extend(remaining)


def pool(hidden: Tensor, mask: Tensor, pooling: Pooling) -> Tensor:
    """Pool hidden states to one vector per text.

    Parameters
    ----------
    hidden
        Hidden states, n × length × width.
    mask
        n × length, 1 where there is a token and 0 where there is padding.
    pooling
        The first token, the mean over tokens, their maximum, or the last token.

    Returns
    -------
    Tensor
        n × width.

    >>> hidden, mask = torch.tensor([[[1.0], [4.0], [9.0]]]), torch.tensor([[1, 1, 0]])
    >>> [pool(hidden, mask, pooling).item() for pooling in ("cls", "mean", "max", "last")]
    [1.0, 2.5, 4.0, 4.0]
    """
    if pooling == "cls":
        return hidden[:, 0]
    if pooling == "last":
        last = (mask * torch.arange(mask.shape[1], device=mask.device)).argmax(1)
        return hidden[torch.arange(len(hidden), device=mask.device), last]
    there = mask.unsqueeze(-1)
    if pooling == "mean":
        weights = there.to(hidden.dtype)
        return (hidden * weights).sum(1) / weights.sum(1).clamp(min=1.0)
    return hidden.masked_fill(there == 0, torch.finfo(hidden.dtype).min).amax(1)


@contextmanager
def quiet() -> Iterator[None]:
    """Silence warnings, logs and progress bars of libraries."""
    from transformers.utils import logging as transformers_logging

    before, shows = logging.root.manager.disable, transformers_logging.is_progress_bar_enabled()
    logging.disable(logging.CRITICAL)
    transformers_logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
        if shows:
            transformers_logging.enable_progress_bar()


@contextmanager
def _readable_errors(folder: Path) -> Iterator[None]:
    """Raise what cannot be loaded as a TreelabelError that states what to do."""
    if not folder.is_dir():
        # transformers would look for it on the hub, for half a minute where there is no network.
        raise TreelabelError(f"{folder}: no such folder; see 'treelabel encoders' for what is usable here")
    try:
        yield
    except (OSError, ValueError, SafetensorError) as error:
        reason = " ".join(str(error).split())[:300]
        raise TreelabelError(
            f"{folder}: damaged: no encoder can be loaded from this folder; expected config.json, weights "
            f"(model.safetensors) and a tokenizer, as save_pretrained writes them: {reason}"
        ) from error
