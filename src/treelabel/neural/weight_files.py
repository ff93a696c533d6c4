"""The weights of a trained network in a file: writing them, and verifying them before they are loaded."""

import errno
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel

from treelabel.core.atomic_output import atomic_file
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


def load_weights(network: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Load weights into a network, or into none of it.

    Parameters
    ----------
    network
        Changed in place; on the device "meta", weights are only verified.
    weights
        Weights by name.
    """
    current = {name: value.shape for name, value in network.state_dict().items()}
    stored = {name: value.shape for name, value in weights.items()}
    wrong = sorted(name for name in current.keys() | stored.keys() if current.get(name) != stored.get(name))
    if wrong:
        name = wrong[0]
        shape, expected = (tuple(of[name]) if name in of else "missing" for of in (stored, current))
        raise TreelabelError(f"{name} in {WEIGHTS} is {shape}, but the model's settings and labels say {expected}")
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


FILE = "checkpoint.safetensors"
# The fields of TrainState that are stored in the header of the file.
STORED = ("epoch", "batch", "step", "documents", "loss_sum", "epoch_losses", "temperature")

Weights = dict[str, Tensor]


@dataclass
class TrainState:
    """The state of a training.

    `epoch`, `batch` (of the epoch) and `step` (of all) come next; `documents` and `loss_sum` belong to the epoch so
    far. `best_weights` and `temperature` are those of the best epoch. `stopped` means that training ended early;
    `planned` are the steps of all its epochs.
    """

    epoch: int = 0
    batch: int = 0
    step: int = 0
    documents: int = 0
    loss_sum: float = 0.0
    epoch_losses: list[float] = field(default_factory=list)
    temperature: float = 1.0
    best_weights: Weights = field(default_factory=dict)
    stopped: bool = False
    planned: int = 0


def trained_weights(network: nn.Module) -> Weights:
    """Return what training changes, by name: weights, and running statistics such as those of batch normalisation."""
    saved, buffers = network.state_dict(), network.named_buffers()
    weights = {name: p for name, p in network.named_parameters() if p.requires_grad}
    return weights | {name: value for name, value in buffers if name in saved and not name.startswith("backbone.")}


def copy_to_cpu(weights: Mapping[str, Tensor]) -> Weights:
    """Return copies on the CPU, which training leaves alone."""
    return {name: value.detach().to("cpu", copy=True).contiguous() for name, value in weights.items()}


def save_checkpoint(
    folder: Path, run: str, state: TrainState, network: nn.Module, optimizer: torch.optim.Optimizer
) -> None:
    """Write a checkpoint.

    Parameters
    ----------
    folder
        The folder of the file, made if there is none.
    run
        Identifies the run: see `run_fingerprint`.
    state, network, optimizer
        What is stored, together with the state of torch's random numbers.
    """
    tensors = {f"weights.{name}": value for name, value in copy_to_cpu(trained_weights(network)).items()}
    tensors |= {f"best.{name}": value for name, value in state.best_weights.items()}
    for number, moments in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{number}.{name}": torch.as_tensor(value).cpu() for name, value in moments.items()}
    tensors["random"] = torch.get_rng_state()
    stored = {name: getattr(state, name) for name in STORED}
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_file(folder / FILE) as working, os_errors():
        save_file(tensors, working, {"run": run, "state": json.dumps(stored)})


def read_checkpoint(folder: Path, run: str, network: nn.Module) -> tuple[str, Weights] | None:
    """Return the stored state and tensors, for `resume`; None without a file. Checkpoints of other runs are refused."""
    file = folder / FILE
    if not file.is_file():
        return None
    try:
        with safe_open(file, framework="pt") as stored:
            header = stored.metadata() or {}
            tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise TreelabelError(f"{file}: no checkpoint, or a damaged one: {error}; remove it to begin anew") from error
    if header.get("run") != run:
        raise TreelabelError(
            f"{file}: the checkpoint of another run (other data or settings); remove it, or give another folder"
        )
    current = {name: value.shape for name, value in trained_weights(network).items()}
    if current != {name: value.shape for name, value in _by_prefix(tensors).get("weights", {}).items()}:
        raise TreelabelError(f"{file}: holds the weights of another network; remove it to begin anew")
    return header["state"], tensors


def resume(stored: tuple[str, Weights], network: nn.Module, optimizer: torch.optim.Optimizer) -> TrainState:
    """Restore network, optimizer and random numbers in place from what `read_checkpoint` returned."""
    state, tensors = stored
    parts = _by_prefix(tensors)
    # Frozen weights are not stored.
    network.load_state_dict(parts["weights"], strict=False)
    moments = {int(number): values for number, values in _by_prefix(parts.get("optimizer", {})).items()}
    optimizer.load_state_dict({**optimizer.state_dict(), "state": moments})
    torch.set_rng_state(tensors["random"])
    return TrainState(**json.loads(state), best_weights=parts.get("best", {}))


def _by_prefix(tensors: Weights) -> dict[str, Weights]:
    """Group tensors by the first part of their names."""
    groups: dict[str, Weights] = {}
    for name, value in tensors.items():
        prefix, _, rest = name.partition(".")
        groups.setdefault(prefix, {})[rest] = value
    return groups
