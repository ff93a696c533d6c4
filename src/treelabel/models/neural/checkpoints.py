"""Where training stands, in one file that appears whole or not at all: safetensors, with the numbers in its header."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from treelabel.core.errors import TreelabelError
from treelabel.core.outputs import whole_file
from treelabel.models.neural.tensors import os_errors

FILE = "checkpoint.safetensors"
NUMBERS = ("epoch", "batch", "step", "documents", "loss_sum", "seen", "slope")
Weights = dict[str, Tensor]


@dataclass
class Progress:
    """How far training is: steps, documents and losses of this epoch, losses of all before, and the best weights.

    `stopped` says that it was stopped before its end.
    """

    epoch: int = 0
    batch: int = 0
    step: int = 0
    documents: int = 0
    loss_sum: float = 0.0
    seen: list[float] = field(default_factory=list)
    slope: float = 1.0
    best: Weights = field(default_factory=dict)
    stopped: bool = False


def trained(network: nn.Module) -> Weights:
    """The weights that training changes, by name."""
    return {name: p for name, p in network.named_parameters() if p.requires_grad}


def copied(weights: Mapping[str, Tensor]) -> Weights:
    """Copies that training leaves alone."""
    return {name: value.detach().to("cpu", copy=True).contiguous() for name, value in weights.items()}


def put_back(network: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Take back weights that `copied` gave."""
    own = dict(network.named_parameters())
    with torch.no_grad():
        for name, value in weights.items():
            own[name].copy_(value)


def save_checkpoint(
    folder: Path, run: str, progress: Progress, network: nn.Module, optimizer: torch.optim.Optimizer
) -> None:
    """Write where training stands: weights, what the optimizer remembers of them, and torch's random numbers."""
    tensors = {f"weights.{name}": value for name, value in copied(trained(network)).items()}
    tensors |= {f"best.{name}": value for name, value in progress.best.items()}
    for number, state in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{number}.{name}": torch.as_tensor(value).cpu() for name, value in state.items()}
    tensors["random"] = torch.get_rng_state()
    numbers = {name: getattr(progress, name) for name in NUMBERS}
    folder.mkdir(parents=True, exist_ok=True)
    with whole_file(folder / FILE) as working, os_errors():
        save_file(tensors, working, {"run": run, "progress": json.dumps(numbers)})


def load_checkpoint(folder: Path, run: str, network: nn.Module, optimizer: torch.optim.Optimizer) -> Progress:
    """Go back to where training stood; without a file, to the beginning. A file of another run is refused."""
    file = folder / FILE
    if not file.is_file():
        return Progress()
    try:
        with safe_open(file, framework="pt") as stored:
            notes = stored.metadata() or {}
            tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise TreelabelError(f"{file}: no checkpoint, or a damaged one: {error}; remove it to begin anew") from error
    if notes.get("run") != run:
        raise TreelabelError(
            f"{file}: the checkpoint of another run (other data or settings); remove it, or give another folder"
        )
    parts = _parts(tensors)
    put_back(network, parts["weights"])
    state = optimizer.state_dict()
    remembered: dict[int, dict[str, Any]] = {}
    for name, value in parts.get("optimizer", {}).items():
        number, _, what = name.partition(".")
        remembered.setdefault(int(number), {})[what] = value
    optimizer.load_state_dict({**state, "state": remembered})
    torch.set_rng_state(tensors["random"])
    return Progress(**json.loads(notes["progress"]), best=parts.get("best", {}))


def _parts(tensors: Weights) -> dict[str, Weights]:
    found: dict[str, Weights] = {}
    for name, value in tensors.items():
        part, _, rest = name.partition(".")
        found.setdefault(part, {})[rest] = value
    return found
