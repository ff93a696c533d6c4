"""The matcher of X-Transformer: a network that finds the clusters in which a text has labels."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor
from torch.nn import functional

from treelabel.core.strings import Strings
from treelabel.core.types import FloatArray
from treelabel.models.persistence.schema import require_width
from treelabel.neural.architecture import Architecture
from treelabel.neural.fitted import FittedNetwork
from treelabel.neural.gold import TrueLabels
from treelabel.neural.hardware import threads_for
from treelabel.neural.inputs import KnownVectors
from treelabel.neural.losses.base import Loss
from treelabel.neural.network import Network, Outputs
from treelabel.neural.parts import Parts


class MatcherNetwork(Network):
    """An encoder and linear outputs for clusters, trained by squared hinge: max(0, 1 - (2 y - 1) f)², the mean.

    y is 1 where a document has labels of the cluster, however many; in the official program it is their number.
    """

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts.backbone, parts.pooling, Outputs(parts.width, parts.outputs, 0, parts.dropout))

    def prepare(self, loss: Loss, labels: Any) -> TrueLabels:
        """Prepare the true clusters: see `Network.prepare`."""
        return TrueLabels(sparse.csr_array(labels))

    def losses(self, inputs: Sequence[Tensor], truth: Tensor, loss: Loss) -> Tensor:
        """Return the squared hinge of margins: see `Network.losses`."""
        return functional.relu(1 - (2 * truth - 1) * self.logits(inputs).float()).square().mean(1)

    def finished(self) -> Network:
        """Return the network that scores."""
        return Network(self.backbone, self.pooling, self.outputs)


def matcher_architecture(identity: str) -> Architecture:
    """Say how a matcher is made; `identity` is what its checkpoints belong to."""
    return Architecture(MatcherNetwork, identity=identity)


def read_texts(matcher: FittedNetwork, texts: Strings, progress: bool | None = None) -> tuple[FloatArray, FloatArray]:
    """Compute what a matcher makes of texts.

    Parameters
    ----------
    matcher
        A trained matcher.
    texts
        The texts.
    progress
        Whether to show a progress bar.

    Returns
    -------
    tuple
        Text vectors (texts × width), and the margins of clusters (texts × clusters).
    """
    network, featurizer = matcher.network, matcher.featurizer
    inputs = featurizer.inputs(texts, progress)
    if isinstance(inputs, KnownVectors):
        require_width(inputs.values, matcher.width, "x_transformer")
    vectors = np.zeros((len(texts), matcher.width), np.float32)
    margins = np.zeros((len(texts), network.outputs.linear.out_features), np.float32)
    with torch.inference_mode(), threads_for(network):
        for rows in featurizer.batches(inputs) if len(texts) else ():
            given = inputs.batch(rows)
            own = given[0] if len(given) == 1 else network.vectors(*given)
            vectors[rows], margins[rows] = own.float().numpy(), network.outputs(own).float().numpy()
    return vectors, margins
