"""The network: a backbone (or embeddings that are known already), one vector per text, and outputs over it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from treelabel.core.types import DoubleArray, LongArray
from treelabel.encoders.backbone import pool
from treelabel.encoders.sources import Pooling
from treelabel.neural.hardware import threads_for
from treelabel.neural.inputs import Inputs
from treelabel.neural.losses.base import Loss
from treelabel.neural.losses.truth import PreparedLabels
from treelabel.selection.evidence import Stage

# Dropout before the outputs, as in BERT's own classifier.
DROPOUT = 0.1


class Outputs(nn.Module):
    """A linear layer over all outputs, after a hidden layer if `hidden_size` is above 0."""

    def __init__(self, width: int, outputs: int, hidden_size: int = 0, dropout: float = DROPOUT) -> None:
        super().__init__()
        self.width = width
        self.dropout = nn.Dropout(dropout)
        self.hidden = nn.Linear(width, hidden_size) if hidden_size else None
        self.linear = nn.Linear(hidden_size or width, outputs)

    def features(self, vectors: Tensor) -> Tensor:
        """Return what the linear layer sees: the hidden layer over vectors, or vectors themselves."""
        return vectors if self.hidden is None else torch.tanh(self.hidden(self.dropout(vectors)))

    def logits(self, features: Tensor) -> Tensor:
        """Return the logits of what `features` returned, texts × outputs."""
        found: Tensor = self.linear(self.dropout(features))
        return found

    def forward(self, vectors: Tensor) -> Tensor:
        """Return logits, texts × outputs."""
        return self.logits(self.features(vectors))


class Network(nn.Module):
    """A backbone, pooling and outputs; without a backbone, outputs over vectors or token states that are given.

    A system with a training of its own overrides `losses`, and `prepare` where it looks at labels itself; one that is
    trained part by part, `stages` and `begin_stage`; one that scores with less than it is trained with, `finished`.

    Parameters
    ----------
    backbone
        A transformer, or None.
    pooling
        How the hidden states of a text become one vector.
    outputs
        From vectors to logits.
    normalize
        Whether vectors are scaled to length 1.
    """

    def __init__(self, backbone: Any, pooling: Pooling, outputs: Any, normalize: bool = False) -> None:
        super().__init__()
        self.backbone, self.pooling, self.outputs, self.normalize = backbone, pooling, outputs, normalize
        # How far those stages came that are over when the network is made.
        self.stages_before: tuple[Stage, ...] = ()

    def token_states(self, inputs: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Return the hidden states (n × length × width) and the mask (n × length) of (ids, mask) or (states, mask)."""
        if self.backbone is None:
            return inputs[0], inputs[1]
        ids, mask = inputs
        return self.backbone(input_ids=ids, attention_mask=mask).last_hidden_state, mask

    def vectors(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Return one vector per text.

        Parameters
        ----------
        ids
            Token ids, n × length; without a backbone, token states, n × length × width.
        mask
            n × length, 1 where there is a token.

        Returns
        -------
        Tensor
            n × width.
        """
        found = pool(*self.token_states((ids, mask)), self.pooling)
        return functional.normalize(found, dim=1) if self.normalize else found

    def logits(self, inputs: Sequence[Tensor]) -> Tensor:
        """Return the logits of (ids, mask), of (states, mask), or of (vectors,)."""
        vectors = inputs[0] if len(inputs) == 1 else self.vectors(*inputs)
        found: Tensor = self.outputs(vectors)
        return found

    def losses(self, inputs: Sequence[Tensor], truth: Any, loss: Loss) -> Tensor:
        """Return what training makes small, for each document.

        Parameters
        ----------
        inputs
            What the network takes of documents.
        truth
            Their labels, a batch of what `prepare` returned.
        loss
            The loss of logits.

        Returns
        -------
        Tensor
            Shape (documents,).
        """
        found: Tensor = loss(self.logits(inputs).float(), truth)
        return found

    def forward(self, inputs: Sequence[Tensor], truth: Any = None, loss: Loss | None = None) -> Tensor:
        """Return logits, or the loss of each document where there is truth.

        Parameters
        ----------
        inputs
            What the network takes of documents.
        truth, loss
            See `neural.losses`.

        Returns
        -------
        Tensor
            Documents × outputs, or shape (documents,).
        """
        return self.logits(inputs) if loss is None else self.losses(inputs, truth, loss)

    def prepare(self, loss: Loss, labels: Any) -> PreparedLabels:
        """Prepare the labels of a training set for `neural.losses`.

        Parameters
        ----------
        loss
            The loss of logits.
        labels
            Documents × nodes.

        Returns
        -------
        PreparedLabels
            What batches are taken from.
        """
        return loss.prepare(labels)

    @property
    def stages(self) -> int:
        """The number of trainings that follow each other, each of another part of the network; usually one."""
        return 1

    def begin_stage(self, stage: int, inputs: Inputs, loss: Loss, labels: Any) -> PreparedLabels:
        """Make ready for a stage: choose what is trained by `requires_grad`, given what the stages before have learned.

        Parameters
        ----------
        stage
            The number of the stage, from 0.
        inputs
            What the network takes of the training documents.
        loss, labels
            See `prepare`.

        Returns
        -------
        PreparedLabels
            The labels, as `neural.losses` takes them in this stage.
        """
        return self.prepare(loss, labels)

    def penalty(self, loss: Loss) -> Tensor:
        """Return the cost of the output weights themselves."""
        return loss.penalty(self.outputs.linear.weight)

    def finished(self) -> "Network":
        """Return the network that scores when training is over."""
        return self


def compute_logits(network: Network, batches: Sequence[LongArray], inputs: Inputs, outputs: int) -> DoubleArray:
    """Compute the logits of all documents, batch by batch.

    Parameters
    ----------
    network
        The network.
    batches
        The row numbers of each batch.
    inputs
        What the network takes of documents.
    outputs
        The number of outputs.

    Returns
    -------
    DoubleArray
        Documents × outputs.
    """
    device = next(network.parameters()).device
    found = np.zeros((len(inputs.lengths), outputs), np.float64)
    network.eval()
    with torch.inference_mode(), threads_for(network):
        for rows in batches:
            given = tuple(value.to(device) for value in inputs.batch(rows))
            found[rows] = network(given).float().cpu().numpy()
    return found


# What is trained, and how fast


def layers_of(backbone: nn.Module) -> nn.ModuleList:
    """Return the layers of a transformer, first to last: its longest list of modules."""
    lists = [module for module in backbone.modules() if isinstance(module, nn.ModuleList)]
    return max(lists, key=len, default=nn.ModuleList())


def parameter_depths(backbone: nn.Module) -> Iterator[tuple[nn.Parameter, int]]:
    """Yield the parameters of a transformer with their layer, from 1; embeddings are 0, what follows layers is last."""
    layers = list(layers_of(backbone))
    place = {id(p): number for number, layer in enumerate(layers, 1) for p in layer.parameters()}
    before = True
    for parameter in backbone.parameters():
        number = place.get(id(parameter))
        before = before and number is None
        yield parameter, number if number is not None else 0 if before else len(layers)


def freeze(backbone: nn.Module, layers: int) -> None:
    """Freeze the embeddings and the first layers.

    Parameters
    ----------
    backbone
        A transformer.
    layers
        How many layers; 0 trains everything, embeddings included.
    """
    for parameter, depth in parameter_depths(backbone):
        if layers and depth <= layers:
            parameter.requires_grad_(False)


def with_lora(backbone: Any, rank: int) -> Any:
    """Train matrices of low rank beside the linear layers instead of these (LoRA, by peft).

    Parameters
    ----------
    backbone
        A transformer.
    rank
        The rank of the matrices.

    Returns
    -------
    Any
        The transformer, wrapped.
    """
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(r=rank, lora_alpha=2 * rank, lora_dropout=0.0, target_modules="all-linear", bias="none")
    return get_peft_model(backbone, config)


def without_lora(backbone: Any) -> Any:
    """Merge the matrices of LoRA into the layers beside them."""
    return backbone.merge_and_unload() if hasattr(backbone, "merge_and_unload") else backbone


def parameter_groups(
    network: Network, learning_rates: Mapping[str, float], layerwise_lr_decay: float, weight_decay: float
) -> list[dict[str, Any]]:
    """Group parameters by learning rate and weight decay, for an optimizer.

    Rates by group are the discriminative fine-tuning of APLC-XLNet. Biases and norms have no weight decay.

    Parameters
    ----------
    network
        The network.
    learning_rates
        Those of "encoder" (its last layer), "hidden" and "outputs".
    layerwise_lr_decay
        The rate of a layer of the encoder as a share of the next one's.
    weight_decay
        The weight decay of matrices.

    Returns
    -------
    list[dict[str, Any]]
        Groups as torch takes them; "initial_lr" is the peak of the schedule.
    """
    found: dict[tuple[float, float], list[nn.Parameter]] = {}

    def put(parameter: nn.Parameter, rate: float) -> None:
        if parameter.requires_grad:
            found.setdefault((rate, weight_decay if parameter.ndim > 1 else 0.0), []).append(parameter)

    if network.backbone is not None:
        last = len(layers_of(network.backbone))
        for parameter, depth in parameter_depths(network.backbone):
            put(parameter, learning_rates["encoder"] * layerwise_lr_decay ** (last - depth))
    for name, parameter in network.named_parameters():
        if not name.startswith("backbone."):
            put(parameter, learning_rates["hidden" if name.startswith("outputs.hidden.") else "outputs"])
    return [
        {"params": parameters, "lr": rate, "initial_lr": rate, "weight_decay": decay}
        for (rate, decay), parameters in found.items()
    ]
