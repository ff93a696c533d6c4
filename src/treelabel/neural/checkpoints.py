"""The state of a training, and its checkpoints: one safetensors file that is replaced in one step."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from treelabel.core.atomic_output import atomic_file
from treelabel.core.errors import TreelabelError
from treelabel.neural.weight_files import os_errors

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
    weights = {name: p for name, p in network.named_parameters() if p.requires_grad}
    return weights | {name: value for name, value in _statistics(network).items() if not name.startswith("backbone.")}


def _statistics(network: nn.Module) -> Weights:
    saved = network.state_dict().keys()
    return {name: value for name, value in network.named_buffers() if name in saved}


def copy_to_cpu(weights: Mapping[str, Tensor]) -> Weights:
    """Return copies on the CPU, which training leaves alone."""
    return {name: value.detach().to("cpu", copy=True).contiguous() for name, value in weights.items()}


def set_weights(network: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Overwrite some or all weights of a network, by name."""
    current = {**dict(network.named_parameters()), **_statistics(network)}
    with torch.no_grad():
        for name, value in weights.items():
            current[name].copy_(value)


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
    set_weights(network, parts["weights"])
    moments: dict[int, dict[str, Any]] = {}
    for number, values in _by_prefix(parts.get("optimizer", {})).items():
        moments[int(number)] = dict(values)
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
