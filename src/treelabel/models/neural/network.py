"""The network: a transformer (or embeddings that are known already), one vector a text, and outputs over it."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from treelabel.encoders.backbone import text_vectors
from treelabel.encoders.sources import Pooling

# Dropout before the outputs, as BERT's own classifier has it.
DROPOUT = 0.1


class Outputs(nn.Module):
    """A linear layer over all outputs, after a layer of `hidden` units if there are any."""

    def __init__(self, width: int, outputs: int, hidden: int = 0, dropout: float = DROPOUT) -> None:
        super().__init__()
        self.width = width
        self.dropout = nn.Dropout(dropout)
        self.hidden = nn.Linear(width, hidden) if hidden else None
        self.linear = nn.Linear(hidden or width, outputs)

    def forward(self, vectors: Tensor) -> Tensor:
        """Give logits, texts x outputs."""
        if self.hidden is not None:
            vectors = torch.tanh(self.hidden(self.dropout(vectors)))
        logits: Tensor = self.linear(self.dropout(vectors))
        return logits


class Network(nn.Module):
    """A transformer, pooling and outputs; without a transformer, outputs over given vectors."""

    def __init__(self, body: Any, pooling: Pooling, outputs: Outputs, unit: bool = False) -> None:
        super().__init__()
        self.body, self.pooling, self.outputs, self.unit = body, pooling, outputs, unit

    def vectors(self, ids: Tensor, mask: Tensor) -> Tensor:
        """One vector a text."""
        return text_vectors(self.body, ids, mask, self.pooling, self.unit)

    def forward(self, inputs: tuple[Tensor, ...]) -> Tensor:
        """Give logits of ids and mask, or of vectors."""
        vectors = inputs[0] if self.body is None else self.vectors(*inputs)
        logits: Tensor = self.outputs(vectors)
        return logits


# What is trained, and how fast


def layers_of(body: nn.Module) -> nn.ModuleList:
    """The layers of a transformer, first to last: its longest list of modules."""
    lists = [module for module in body.modules() if isinstance(module, nn.ModuleList)]
    return max(lists, key=len, default=nn.ModuleList())


def depths(body: nn.Module) -> Iterator[tuple[str, nn.Parameter, int]]:
    """The parameters of a transformer with their layer, from 1; embeddings are 0, what follows the layers is last."""
    layers = list(layers_of(body))
    place = {id(p): number for number, layer in enumerate(layers, 1) for p in layer.parameters()}
    before = True
    for name, parameter in body.named_parameters():
        number = place.get(id(parameter))
        before = before and number is None
        yield name, parameter, number if number is not None else 0 if before else len(layers)


def freeze(body: nn.Module, layers: int) -> None:
    """Keep the embeddings and the first so many layers as they are; 0 trains everything."""
    for _, parameter, depth in depths(body):
        if layers and depth <= layers:
            parameter.requires_grad_(False)


def with_lora(body: Any, rank: int) -> Any:
    """Train matrices of low rank beside the linear layers instead of these (LoRA, by peft)."""
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(r=rank, lora_alpha=2 * rank, lora_dropout=0.0, target_modules="all-linear", bias="none")
    return get_peft_model(body, config)


def merged(body: Any) -> Any:
    """Add what LoRA learned to the layers that it stands beside."""
    return body.merge_and_unload() if hasattr(body, "merge_and_unload") else body


def parameter_groups(
    network: Network, rates: tuple[float, float, float], layer_decay: float, weight_decay: float
) -> list[dict[str, Any]]:
    """Rates of the transformer, of the hidden layer over it, and of the outputs; each layer below has `layer_decay` x.

    The three rates are discriminative fine-tuning as APLC-XLNet has it; biases and norms have no weight decay.
    """
    found: dict[tuple[float, float], list[nn.Parameter]] = {}

    def put(parameter: nn.Parameter, rate: float) -> None:
        if parameter.requires_grad:
            found.setdefault((rate, weight_decay if parameter.ndim > 1 else 0.0), []).append(parameter)

    if network.body is not None:
        last = len(layers_of(network.body))
        for _, parameter, depth in depths(network.body):
            put(parameter, rates[0] * layer_decay ** (last - depth))
    for name, parameter in network.outputs.named_parameters():
        put(parameter, rates[1] if name.startswith("hidden") else rates[2])
    return [
        {"params": parameters, "lr": rate, "first_rate": rate, "weight_decay": decay}
        for (rate, decay), parameters in found.items()
    ]
