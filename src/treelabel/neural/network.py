"""The network: a backbone (or embeddings that are known already), one vector per text, and outputs over it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from treelabel.calibration.likelihood import fit_temperature
from treelabel.core.array_schema import Arrays
from treelabel.core.stopping import StopSignal
from treelabel.core.types import DoubleArray, LongArray
from treelabel.encoders.backbone import pool
from treelabel.encoders.registry import Pooling
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.models.base import Training
from treelabel.models.extreme.label_tree import LabelTree
from treelabel.neural.featurizers import Inputs
from treelabel.neural.hardware import threads_for
from treelabel.neural.losses.base import Loss
from treelabel.neural.losses.truth import PreparedLabels
from treelabel.neural.objective import LOG_INVERSE_TEMPERATURE, Objective
from treelabel.scores.score_matrix import Scores
from treelabel.selection.evidence import Stage
from treelabel.selection.training import log_loss

# Dropout before the outputs, as in BERT's own classifier.
DROPOUT = 0.1


@dataclass(frozen=True, eq=False)
class NetworkSpec:
    """The parts of a network, whichever system it belongs to.

    Parameters
    ----------
    objective
        What it is trained for.
    width
        The width of hidden states, or of the vectors that it is given.
    backbone
        The transformer that is trained; None over frozen states or vectors.
    pooling
        How hidden states become one vector.
    dropout
        Dropout before the outputs.
    hidden_size
        The width of a hidden layer before the outputs; 0 for none.
    name_vectors
        The word vectors of the pieces of each node's name (pieces × width); None where a saved network is restored.
    tree
        The tree of the labels, for networks that rank candidates.
    stop, progress
        Whether to end early, and whether to show a progress bar.
    """

    objective: Objective
    width: int
    backbone: Any
    pooling: Pooling
    dropout: float
    hidden_size: int = 0
    name_vectors: tuple[Tensor, ...] | None = None
    tree: LabelTree | None = None
    stop: StopSignal | None = None
    progress: bool | None = None

    @property
    def hierarchy(self) -> Hierarchy:
        """The hierarchy of the outputs."""
        return self.objective.change.new

    @property
    def outputs(self) -> int:
        """The number of logits."""
        return len(self.objective.spec.outputs)


class LinearOutputs(nn.Module):
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
        result: Tensor = self.linear(self.dropout(features))
        return result

    def forward(self, vectors: Tensor) -> Tensor:
        """Return logits, texts × outputs."""
        return self.logits(self.features(vectors))


class Network(nn.Module):
    """A backbone, pooling and outputs; without a backbone, outputs over vectors or token states that are given.

    A system with a training of its own overrides `losses`, and `prepare` where it looks at labels itself; one that is
    trained part by part, `stages` and `begin_stage`; one that scores with less than it is trained with, `for_scoring`.

    Parameters
    ----------
    backbone
        A transformer, or None.
    pooling
        How the hidden states of a text become one vector.
    outputs
        From vectors to logits.
    """

    def __init__(self, backbone: Any, pooling: Pooling, outputs: Any) -> None:
        super().__init__()
        self.backbone, self.pooling, self.outputs = backbone, pooling, outputs
        # How far those stages came that are over when the network is made.
        self.stages_before: tuple[Stage, ...] = ()

    def token_states(self, inputs: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Return the hidden states (n × length × width) and the mask (n × length) of (ids, mask) or (states, mask)."""
        if self.backbone is None:
            return inputs[0], inputs[1]
        return self.backbone(input_ids=inputs[0], attention_mask=inputs[1]).last_hidden_state, inputs[1]

    def text_vectors(self, inputs: Sequence[Tensor]) -> Tensor:
        """Return one vector per text, of (ids, mask), of (states, mask), or of (vectors,): n × width."""
        return inputs[0] if len(inputs) == 1 else pool(*self.token_states(inputs), self.pooling)

    def logits(self, inputs: Sequence[Tensor]) -> Tensor:
        """Return the logits of (ids, mask), of (states, mask), or of (vectors,)."""
        result: Tensor = self.outputs(self.text_vectors(inputs))
        return result

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
        result: Tensor = loss(self.logits(inputs).float(), truth)
        return result

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
        """Return the cost of the output weights themselves, 0 where these are not one matrix that only outputs have."""
        linear = getattr(self.outputs, "linear", None)
        return next(self.parameters()).new_zeros(()) if linear is None else loss.penalty(linear.weight)

    def arrays(self) -> Arrays:
        """Return what is stored of the network alongside its weights."""
        return {}

    def score(
        self,
        batches: Sequence[LongArray],
        inputs: Inputs,
        objective: Objective,
        temperature: float,
        top: int | None = None,
    ) -> Scores:
        """Score documents.

        Parameters
        ----------
        batches, inputs
            The row numbers of each batch, and what the network takes of documents.
        objective, temperature
            What logits mean once they are divided by the temperature.
        top
            Keep only so many of the largest scores of each, of a network that ranks candidates.
        """
        return objective.scores(compute_logits(self, batches, inputs, len(objective.spec.outputs)) / temperature)

    def validation_loss(
        self, batches: Sequence[LongArray], inputs: Inputs, objective: Objective, data: Training
    ) -> tuple[float, float]:
        """Return the log loss of labelled documents, and the temperature of logits that gives it."""
        logits = compute_logits(self, batches, inputs, len(objective.spec.outputs))
        if not np.isfinite(logits).all():
            return np.inf, 1.0

        def loss(inverse: float) -> float:
            return log_loss(objective.scores(inverse * logits).values, data)

        fitted = fit_temperature(loss, LOG_INVERSE_TEMPERATURE, tolerance=0.05)
        return fitted.loss, 1 / fitted.inverse

    def for_scoring(self) -> "Network":
        """Return the network that scores when training is over, which is a graph from vectors to logits."""
        return Network(self.backbone, self.pooling, self.outputs)


def compute_logits(network: Network, batches: Sequence[LongArray], inputs: Inputs, outputs: int) -> DoubleArray:
    """Compute the logits of all documents, batch by batch.

    Parameters
    ----------
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
    result = np.zeros((len(inputs.lengths), outputs), np.float64)
    network.eval()
    with torch.inference_mode(), threads_for(network):
        for rows in batches:
            tensors = tuple(value.to(device) for value in inputs.batch(rows))
            result[rows] = network(tensors).float().cpu().numpy()
    return result
