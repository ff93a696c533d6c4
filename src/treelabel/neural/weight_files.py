"""The weights of a trained network in a file: writing them, and verifying them before they are loaded."""

import errno
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel

from treelabel.core.errors import TreelabelError
from treelabel.core.json_text import read_json
from treelabel.neural.featurizers import TokenFeaturizer
from treelabel.neural.network_schema import CONFIG, TOKENIZER, WEIGHTS


@contextmanager
def os_errors() -> Iterator[None]:
    """Raise OSError where safetensors reports a full disk.

    >>> with os_errors():
    ...     raise SafetensorError('Error while serializing: I/O error: No space left on device (os error 28)')
    Traceback (most recent call last):
    OSError: [Errno 28] No space left on device
    """
    try:
        yield
    except SafetensorError as error:
        if "(os error 28)" in str(error) or "code: 28" in str(error):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error
        raise


def write_weights(network: nn.Module, folder: Path) -> None:
    """Write the weights of a network as safetensors."""
    with os_errors():
        save_file({name: value.contiguous() for name, value in network.state_dict().items()}, folder / WEIGHTS)


def read_weights(folder: Path) -> dict[str, Tensor]:
    """Read the weights of a model's folder; refuse those that are no finite numbers."""
    try:
        weights = load_file(folder / WEIGHTS)
    except SafetensorError as error:
        raise TreelabelError(f"{WEIGHTS} holds no weights, or is damaged: {error}") from error
    for name, value in weights.items():
        if not torch.isfinite(value).all():
            raise TreelabelError(f"{name} in {WEIGHTS} holds what is no finite number")
        if name.endswith("running_var") and bool((value < 0).any()):
            raise TreelabelError(f"{name} in {WEIGHTS} holds a negative variance")
    return weights


def load_weights(network: nn.Module, weights: Mapping[str, Tensor], where: str = WEIGHTS) -> None:
    """Load weights into a network, or into none of it.

    Parameters
    ----------
    network
        Changed in place; on the device "meta", weights are only verified.
    weights
        Weights by name.
    where
        What they were read from, for messages.
    """
    current = {name: value.shape for name, value in network.state_dict().items()}
    stored = {name: value.shape for name, value in weights.items()}
    wrong = sorted(name for name in current.keys() | stored.keys() if current.get(name) != stored.get(name))
    if wrong:
        name = wrong[0]
        shape, expected = (tuple(of[name]) if name in of else "missing" for of in (stored, current))
        raise TreelabelError(f"{name} in {where} is {shape}, but the model's settings and labels say {expected}")
    if not any(value.is_meta for value in network.state_dict().values()):
        network.load_state_dict(dict(weights))


def untrained_backbone(config: dict[str, Any]) -> Any:
    """Make a transformer of a saved configuration; its weights are loaded afterwards."""
    backbone = AutoModel.from_config(AutoConfig.for_model(**config))
    if hasattr(backbone, "pooler"):
        backbone.pooler = None
    return backbone


def read_config(folder: Path, weights: Mapping[str, Tensor]) -> dict[str, Any]:
    """Read the configuration of a backbone; refuse one that does not fit the weights, before memory is allocated."""
    config = read_json(folder / CONFIG, str(folder / CONFIG), "configuration of a transformer")
    if not isinstance(config, dict) or not all(isinstance(key, str) for key in config):
        raise TreelabelError(f"{CONFIG} is no configuration of a transformer")
    # It may be the name of a kernel on a hub, which is code; folders that were saved have none.
    chosen = [name for name in _names_within(config) if name.strip("_").startswith("attn_implementation")]
    if chosen:
        raise TreelabelError(f"{CONFIG} has {chosen[0]}, which is not for a model's folder to choose")
    many = [key for key, value in config.items() if "layer" in key and type(value) is int and value > len(weights)]
    if many:
        raise TreelabelError(f"{CONFIG}: {many[0]} is {config[many[0]]}, but there are {len(weights)} weights")
    # On the device "meta", tensors are shapes without memory.
    with torch.device("meta"):
        shapes = {f"backbone.{name}": value.shape for name, value in untrained_backbone(config).state_dict().items()}
    stored = {name: value.shape for name, value in weights.items() if name.startswith("backbone.")}
    wrong = sorted(name for name in shapes.keys() | stored.keys() if shapes.get(name) != stored.get(name))
    if wrong:
        raise TreelabelError(f"{wrong[0]} in {WEIGHTS} is not what {CONFIG} says")
    return config


def _names_within(value: Any) -> Iterator[str]:
    """Yield the names of all settings, and of settings within settings."""
    if isinstance(value, dict):
        for name, each in value.items():
            yield name
            yield from _names_within(each)


def verify_backbone(backbone: Any) -> None:
    """Run a transformer on a text of one token, as its configuration may hold values that only fail then."""
    try:
        with torch.inference_mode():
            backbone(input_ids=torch.zeros((1, 1), dtype=torch.long), attention_mask=torch.ones((1, 1)))
    except Exception as error:
        # There is no end to what a wrong value can raise.
        why = " ".join(str(error).split())[:200]
        raise TreelabelError(f"{CONFIG} is no configuration of a transformer that can be run: {why}") from error


def verify_tokenizer(featurizer: TokenFeaturizer, backbone: Any) -> None:
    """Raise TreelabelError where a transformer has no vector for a token, or for a position up to `max_length`."""
    last = max(featurizer.tokenizer.get_vocab(with_added_tokens=True).values(), default=0)
    if last >= backbone.get_input_embeddings().num_embeddings:
        raise TreelabelError(f"{TOKENIZER} has token {last}, but there are weights of fewer")
    for name, module in backbone.named_modules():
        if name.endswith("position_embeddings") and featurizer.max_length > getattr(module, "num_embeddings", np.inf):
            raise TreelabelError(f"max_length is {featurizer.max_length}, but there are {module.num_embeddings} places")
