"""APLC-XLNet (Ye et al., ICML 2020): adaptive probabilistic label clusters over an encoder.

Labels are sorted by their training documents and cut into a head cluster and tail clusters. Rare labels see a narrower
projection of the text, and their probability is that of their cluster times their own.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any, cast

import numpy as np
import torch
from scipy import sparse
from torch import Tensor, nn
from torch.nn import functional

from treelabel.calibration.contract import ABSENT
from treelabel.core.types import DoubleArray, IntArray, LongArray
from treelabel.core.validation import Between
from treelabel.models.settings import WidthOrNone
from treelabel.neural.featurizers import Inputs
from treelabel.neural.losses.base import Loss
from treelabel.neural.losses.truth import LabelTargets
from treelabel.neural.model import NeuralModel
from treelabel.neural.network import DROPOUT, Network, NetworkSpec
from treelabel.neural.training_arguments import Recipe, make_recipes

# One in so many units of x is constant at first, with tanh(CONSTANT): several, since dropout takes some away.
CONSTANT_SHARE = 16
CONSTANT = 2.0
# No label is taken to be rarer than this at first, or to be missing from fewer texts.
LEAST_RATE, MOST_RATE = 1e-6, 1e-2


class LabelClusters(nn.Module):
    """Logits of labels from a head cluster and K tail clusters, in place of `Outputs`.

    The text vector v becomes x = tanh(hidden(v)). The head is linear in x and has, beside its labels, a gate for each
    tail. Tail i is a linear projection of x to width ⌊d / q^i⌋, a layer norm, ReLU, and a linear layer; no linear layer
    of a cluster has a bias. P(label) = σ(label) in the head, and σ(gate) σ(label) in a tail. See `start_at` for the
    initial weights.

    Parameters
    ----------
    width
        The width of text vectors.
    sizes
        The number of labels of the head, and of each tail.
    hidden_size
        The width d of x.
    div_value
        The quotient q of widths: see torch's AdaptiveLogSoftmaxWithLoss, which has the same idea for one true label.
    columns
        The output of each label, most frequent first.
    outputs
        The number of outputs; those that are no label are never true.
    dropout
        The share of x that is dropped in training.

    >>> columns = np.arange(9, dtype=np.int32)
    >>> clusters = LabelClusters(8, [2, 3, 4], hidden_size=16, div_value=2.0, columns=columns, outputs=9)
    >>> clusters(torch.ones(5, 8)).shape, clusters.widths
    (torch.Size([5, 9]), [8, 4])
    """

    label_of: Tensor

    def __init__(
        self,
        width: int,
        sizes: Sequence[int],
        hidden_size: int,
        div_value: float,
        columns: IntArray,
        outputs: int,
        dropout: float = DROPOUT,
    ) -> None:
        super().__init__()
        self.width, self.sizes = width, list(sizes)
        self.widths = [max(1, int(hidden_size / div_value**number)) for number in range(1, len(sizes))]
        self.dropout = nn.Dropout(dropout)
        self.hidden = nn.Linear(width, hidden_size)
        self.head = nn.Linear(hidden_size, self.sizes[0] + len(self.widths), bias=False)
        self.tails = nn.ModuleList(
            nn.Sequential(
                nn.Linear(hidden_size, narrow, bias=False),
                nn.LayerNorm(narrow),
                nn.ReLU(),
                nn.Linear(narrow, labels, bias=False),
            )
            for narrow, labels in zip(self.widths, self.sizes[1:], strict=True)
        )
        # The label of each output, or one past the last: known from the hierarchy, and not stored with the weights.
        label_of = np.full(outputs, len(columns))
        label_of[columns] = np.arange(len(columns))
        self.register_buffer("label_of", torch.tensor(label_of), persistent=False)

    def start_at(self, rates: Sequence[DoubleArray], opened: DoubleArray) -> None:
        """Set initial weights by which a text that says nothing has the base rate of every label.

        With random weights alone all labels begin at 1/2. The first thing to be learned is then that none is ever true,
        and without a bias it is learned by all of x, which comes to say little else. Here some units of x, and one of
        each tail's projection, are constant at first, and a label's weight of them is the logit of its base rate.

        Parameters
        ----------
        rates
            The share of training texts that have each label of the head; and, for each tail, the share that each of
            its labels has of those with any of them.
        opened
            The share of training texts that have any label of each tail.
        """
        head = torch.from_numpy(_logits(np.concatenate([rates[0], opened]))).float()
        constant = max(1, len(self.hidden.bias) // CONSTANT_SHARE)
        with torch.no_grad():
            self.hidden.weight[:constant] = 0
            self.hidden.bias[:constant] = CONSTANT
            self.head.weight[:, :constant] = head.unsqueeze(1) / (constant * math.tanh(CONSTANT))
            for tail, local in zip(self.tails, rates[1:], strict=True):
                parts = cast("nn.Sequential", tail)
                norm, linear = cast("nn.LayerNorm", parts[1]), cast("nn.Linear", parts[3])
                norm.weight[0], norm.bias[0] = 0, 1
                linear.weight[:, 0] = torch.from_numpy(_logits(local)).float()

    def features(self, vectors: Tensor) -> Tensor:
        """Return what all clusters see, texts × hidden size."""
        result: Tensor = self.dropout(torch.tanh(self.hidden(vectors)))
        return result

    def label_logits(self, vectors: Tensor) -> Tensor:
        """Return ln(p / (1 - p)) of all labels, most frequent first: texts × labels."""
        x = self.features(vectors)
        labels, gates = self._head(x)
        tails = [product_logit(gates[:, [number]], tail(x).float()) for number, tail in enumerate(self.tails)]
        return torch.cat([labels, *tails], dim=1)

    def forward(self, vectors: Tensor) -> Tensor:
        """Return the logits of all outputs, texts × outputs."""
        labels = self.label_logits(vectors)
        nothing = torch.full_like(labels[:, :1], float(ABSENT))
        return torch.cat([labels, nothing], dim=1)[:, self.label_of]

    def losses(self, vectors: Tensor, true: Tensor) -> Tensor:
        """Compute the cross-entropy of each text, of whose tails only those with true labels are looked into.

        Terms are the labels of the head, the labels of tails with a true label, by the *product* of probabilities, and
        the gates of the other tails, which should be shut; the loss is their mean.

        Parameters
        ----------
        vectors
            Texts × width.
        true
            1 for true labels, texts × labels.

        Returns
        -------
        Tensor
            Shape (texts,).
        """
        x = self.features(vectors)
        labels, gates = self._head(x)
        head, *tails = torch.split(true, self.sizes, dim=1)
        total = _cross_entropy(labels, head)
        terms = torch.full_like(total, self.sizes[0])
        for number, (tail, local) in enumerate(zip(self.tails, tails, strict=True)):
            gate, is_open = gates[:, number], local.any(dim=1)
            rows = is_open.nonzero()[:, 0]
            # Without any row, too: in several processes, all take part with the same weights.
            logits = product_logit(gate[rows, None], tail(x[rows]).float())
            total = total + functional.softplus(gate) * ~is_open
            total = total.index_add(0, rows, _cross_entropy(logits, local[rows]))
            terms = terms + torch.where(is_open, local.shape[1], 1)
        return total / terms

    def _head(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits of the head's labels, and of the tails' gates."""
        labels, gates = self.head(x).float().split([self.sizes[0], len(self.widths)], dim=1)
        return labels, gates


def base_rates(true: sparse.csr_array, sizes: Sequence[int]) -> tuple[list[DoubleArray], DoubleArray]:
    """Compute the base rates of labels in their clusters, as `LabelClusters.start_at` takes them.

    Parameters
    ----------
    true
        The true labels of training texts, texts × labels.
    sizes
        The number of labels of the head, and of each tail.

    Returns
    -------
    tuple
        The rates of the labels of each cluster, and of the tails themselves.

    >>> rates, opened = base_rates(sparse.csr_array([[1, 0, 1], [1, 1, 1], [0, 1, 0], [0, 0, 0]]), [1, 2])
    >>> [own.round(2).tolist() for own in rates], opened.tolist()
    ([[0.5], [0.67, 0.67]], [0.75])
    """
    texts, ends = true.shape[0], np.cumsum(sizes)
    counts = np.bincount(true.indices, minlength=true.shape[1])
    rates, opened = [counts[: ends[0]] / max(1, texts)], []
    rows = np.repeat(np.arange(texts), np.diff(true.indptr))
    for start, end in pairwise(ends):
        local = len(np.unique(rows[(true.indices >= start) & (true.indices < end)]))
        rates.append(counts[start:end] / max(1, local))
        opened.append(local / max(1, texts))
    return rates, np.array(opened, np.float64)


def _logits(rates: DoubleArray) -> DoubleArray:
    """Return the logits of rates, of which none is taken to be quite 0 or 1."""
    bounded = np.clip(rates, LEAST_RATE, 1 - MOST_RATE)
    result: DoubleArray = np.log(bounded) - np.log1p(-bounded)
    return result


def product_logit(one: Tensor, other: Tensor) -> Tensor:
    """Compute the logit of σ(one) σ(other), without rounding either probability to 0 or 1.

    With e^-l = (1 - p) / p it is -ln(e^-a + e^-b + e^-(a + b)) = b - softplus(softplus(b) - a).

    Parameters
    ----------
    one, other
        Logits, of shapes that broadcast.

    Returns
    -------
    Tensor
        Logits.

    >>> torch.sigmoid(product_logit(torch.tensor(0.0), torch.tensor(0.0))).item()
    0.25
    """
    return other - functional.softplus(functional.softplus(other) - one)


def _cross_entropy(logits: Tensor, true: Tensor) -> Tensor:
    return functional.binary_cross_entropy_with_logits(logits, true, reduction="none").sum(1)


class AplcNetwork(Network):
    """The network of APLC-XLNet: an encoder, one vector per text, and adaptive probabilistic label clusters.

    Labels are the terminal labels of training documents. Differences from the program: a text vector comes from any
    encoder, pooled as usual for it (the last token, where XLNet has its [CLS]), labels of tails are not computed for
    training texts that have none of them, and initial weights are those of `LabelClusters.start_at`.

    Parameters
    ----------
    spec
        What the network is made of; terminal labels are leaves of its hierarchy.
    settings
        Those of the system. The head and each tail have the same number of labels, as in the program's runs.
    """

    def __init__(self, spec: NetworkSpec, settings: "AplcXlnet") -> None:
        nodes, hidden = labels_by_frequency(spec), spec.hidden_size or spec.width
        sizes = [len(part) for part in np.array_split(nodes, settings.tail_clusters + 1) if len(part)]
        columns = spec.objective.spec.output_of_node[nodes]
        outputs = LabelClusters(
            spec.width, sizes, hidden, settings.div_value, columns, spec.outputs, dropout=spec.dropout
        )
        super().__init__(spec.backbone, spec.pooling, outputs)
        self.nodes = nodes

    def prepare(self, loss: Loss, labels: Any) -> LabelTargets:
        """Prepare the true terminal labels: see `Network.prepare`."""
        return LabelTargets(sparse.csr_array(loss.hierarchy.closure(labels))[:, self.nodes])

    def begin_stage(self, stage: int, inputs: Inputs, loss: Loss, labels: Any) -> LabelTargets:
        """Start at the base rates of labels: see `Network.begin_stage`."""
        truth = self.prepare(loss, labels)
        self.outputs.start_at(*base_rates(truth.labels, self.outputs.sizes))
        return truth

    def losses(self, inputs: Sequence[Tensor], truth: Tensor, loss: Loss) -> Tensor:
        """Return the cross-entropy of head, gates and open tails: see `Network.losses`."""
        result: Tensor = self.outputs.losses(self.text_vectors(inputs), truth)
        return result


def labels_by_frequency(spec: NetworkSpec) -> LongArray:
    """Return the leaves that training documents have, most frequent first."""
    leaves = spec.hierarchy.leaves
    counts = spec.objective.frequencies[leaves]
    order = np.argsort(-counts, kind="stable")
    result: LongArray = leaves[order[counts[order] > 0]].astype(np.int64)
    return result


@dataclass(eq=False, repr=False)
class AplcXlnet(NeuralModel):
    """APLC-XLNet (Ye et al., ICML 2020): adaptive probabilistic label clusters over any encoder.

    Labels are sorted by frequency and cut into a head and tails, whose labels share a gate and see a narrower
    projection of the text: an epoch costs documents × hidden_size × labels for the head and less for each tail, of
    which only those with true labels are trained. `AplcNetwork` says what differs from the paper. encoder="scratch" is
    a small XLNet. Where the encoder is fine-tuned, the official rates are the defaults: 5e-5 for the encoder, 1e-4 for
    the hidden layer and 2e-3 for clusters (discriminative fine-tuning; `learning_rates` has others). Over a frozen one
    they are 1e-3 and 3e-3, and ten epochs do, since training starts at the base rates of labels.

    Settings that all systems have: see `NeuralModel` and `TrainingArguments`.

    Parameters
    ----------
    tail_clusters
        The number of tails, each with as many labels as the head: 1 to 3 in the paper, more for more labels.
    div_value
        The quotient of the widths of projections of a cluster and the next one.
    hidden_size
        The width of the hidden layer over text vectors; 0 is that of the encoder.
    """

    name = "aplc_xlnet"
    network_type = AplcNetwork
    recipes = make_recipes(Recipe(10, 64, 3e-3, {"hidden": 1e-3}), 5e-5, hidden=1e-4, outputs=2e-3)
    lr_scheduler = "slanted"
    has_own_loss = True
    has_stops = True
    only_seen = True
    scratch_family = "xlnet"

    tail_clusters: Annotated[int, Between(1, 100)] = 1
    div_value: Annotated[float, Between(1, 1e6)] = 2.0
    hidden_size: WidthOrNone = 0
