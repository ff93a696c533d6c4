"""HGCLR: contrastive learning with positive samples that the label hierarchy chooses (Wang et al., ACL 2022).

In training every text is read twice: as it is, and with only the words that matter for its labels. Which words these
are is found by attention from words to labels, whose vectors come from a graph encoder over the hierarchy. Both
readings are classified, and a contrastive loss pulls them together. Scoring needs the text encoder and the classifier
alone.
"""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from treelabel.core.errors import TreelabelError
from treelabel.core.types import LongArray
from treelabel.core.validation import Between
from treelabel.encoders.backbone import pool
from treelabel.models.settings import NonNegative, Width
from treelabel.neural.losses.base import Loss
from treelabel.neural.losses.truth import LabelTargets, PreparedLabels
from treelabel.neural.model import NeuralModel
from treelabel.neural.network import LinearOutputs, Network, NetworkSpec
from treelabel.neural.systems.hgclr_labels import LabelEncoder, heads_within, split_heads
from treelabel.neural.training_arguments import Recipe, make_recipes

Temperature = Annotated[float, Between(1e-6, 1e6)]
# Heads of the official program, whose vectors have 768 numbers.
GRAPH_HEADS = 12
WORD_HEADS = 8


# The positive sample: words that matter for the labels


class WordsToLabels(nn.Module):
    """Attention from words to labels: which labels a word speaks of.

    Parameters
    ----------
    width
        The width of word vectors and of label vectors.
    heads
        The number of attention heads, which divides the width.
    """

    def __init__(self, width: int, heads: int = WORD_HEADS) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)

    def forward(self, words: Tensor, labels: Tensor) -> Tensor:
        """Compute the probability of every label for every word: softmax over labels, mean over heads.

        Parameters
        ----------
        words
            Word vectors, n × length × width.
        labels
            Label vectors, labels × width.

        Returns
        -------
        Tensor
            n × length × labels.
        """
        query, key = split_heads(self.query(words), self.heads), split_heads(self.key(labels), self.heads)
        logits = query @ key.transpose(-2, -1) / query.shape[-1] ** 0.5
        result: Tensor = logits.float().softmax(-1).mean(1)
        return result


def straight_through(importance: Tensor, threshold: float) -> Tensor:
    """Choose what is above a threshold: 1 or 0 exactly; what is kept has the gradient of its importance.

    >>> importance = torch.tensor([0.25, 0.75], requires_grad=True)
    >>> kept = straight_through(importance, 0.5)
    >>> (kept * torch.tensor([3.0, 5.0])).sum().backward()
    >>> kept.tolist(), importance.grad.tolist()
    ([0.0, 1.0], [0.0, 5.0])
    """
    selected = (importance > threshold).to(importance.dtype)
    return selected + selected * (importance - importance.detach())


# The contrast


def nt_xent(left: Tensor, right: Tensor, temperature: float) -> Tensor:
    """Compute the normalised temperature-scaled cross-entropy of SimCLR, the mean over 2n vectors.

    Each vector is to be found by cosine among the 2n - 1 others: -ln(e^(cos(z, z+) / t) / the sum of e^(cos(z, z') /
    t)), where z+ is the other reading of the same text.

    Parameters
    ----------
    left, right
        n × width; rows of the same number belong together.
    temperature
        The temperature t.

    Returns
    -------
    Tensor
        A number; 0 where there is a single pair.

    >>> from math import e, log
    >>> pairs = torch.eye(3)
    >>> abs(nt_xent(pairs, pairs, temperature=1.0).item() - log((e + 4) / e)) < 1e-6
    True
    """
    count = len(left)
    unit = functional.normalize(torch.cat([left, right]).float(), dim=1)
    with torch.autocast(unit.device.type, enabled=False):
        alike = (unit @ unit.T / temperature).fill_diagonal_(-torch.inf)
    partner = torch.arange(2 * count, device=unit.device).roll(count)
    return functional.cross_entropy(alike, partner)


# The network


@dataclass(frozen=True, eq=False)
class ContrastTargets:
    """The labels of a training set as a loss prepared them, and as those that words are to speak of."""

    judged: PreparedLabels
    nodes: LabelTargets

    def batch(self, rows: LongArray, device: torch.device | str | None = None) -> tuple[Any, Tensor]:
        """Return the truth about some documents as the loss takes it, and their nodes (documents × nodes, 1 or 0)."""
        return self.judged.batch(rows, device), self.nodes.batch(rows, device)


class HgclrNetwork(Network):
    """The network of HGCLR, Hierarchy-Guided Contrastive Learning (Wang et al., ACL 2022).

    1. Labels get vectors from a Graphormer layer over the hierarchy (`LabelEncoder`).
    2. Every word attends to labels, P = softmax over labels (`WordsToLabels`), and Gumbel-softmax of P samples which
       labels it speaks of. Its importance is the probability of the text's own labels, ancestors included.
    3. Words above the threshold make the positive sample; the vectors of all others are zeros. The choice is 0 or 1,
       and straight-through gradients train the label encoder and the attention.
    4. Both samples pass the same encoder and the same outputs: loss(text) + loss(positive) + weight · NT-Xent.

    Steps 1 to 3 belong to training alone: `for_scoring` leaves encoder, pooling and outputs.

    With a backbone, words are its input embeddings, and the positive sample is a second pass over them. Without one,
    words are token states of a frozen encoder; a text is their mean, however the encoder pools, and the positive sample
    the mean of those that were chosen. A frozen encoder learns nothing from contrast, so that the outputs then always
    have a hidden layer (as wide as the states if no `hidden_size` is given). What is contrasted is what the last linear
    layer sees: the text's vector, or the hidden layer over it.

    Attention among labels takes memory and time of labels², that from words texts × words × labels × heads.

    As the official program has it, where we follow it:

    - Gumbel noise is added to P itself, not to its logarithm, which leaves the choice mostly to chance: P is between 0
      and 1, and the noise has a standard deviation of 1.3. `log_probabilities=True` takes the logarithm, and labels are
      then sampled from P.
    - [CLS] and [SEP] are words like others and may lose their vectors. Positions and the attention mask of the positive
      sample are those of the text.
    - Its binary cross-entropy is a mean over labels and ours is a sum, so that NT-Xent is multiplied by the number of
      outputs: `contrastive_weight` means what it means there. For losses that do not sum over outputs, it is stronger.

    Where we do not follow it:

    - `temperature` reaches NT-Xent. There it reached only Gumbel-softmax, and NT-Xent had 1, our default; the
      temperature of Gumbel-softmax is `gumbel_temperature`.
    - Padding is masked out. There a wrong constant was added for the mask, the same for all labels of a word, which
      changes nothing, and padding was sampled like words.
    - A name is the mean of the word vectors of its pieces when training begins, without [CLS], [SEP], positions and
      LayerNorm (over a frozen encoder, of the states of all its tokens), and stays so; the id's vector, which is added,
      is learned. The graph layer has no dropout.
    - Vectors are pooled as the encoder pools; the paper takes [CLS].
    - With `gradient_accumulation_steps`, texts are contrasted within their part of a batch.
    - Paths may have any length, labels any order, and the hierarchy may be a DAG: each edge has a weight, and paths are
      the shortest.
    - In eval mode there is no Gumbel noise.

    Parameters
    ----------
    spec
        What the network is made of.
    settings
        Those of the system; there are fewer heads than `word_heads` where the width is not divisible.
    """

    def __init__(self, spec: NetworkSpec, settings: "Hgclr") -> None:
        scoring = scoring_network(spec)
        super().__init__(scoring.backbone, scoring.pooling, scoring.outputs)
        if self.backbone is not None:
            require_inputs_embeds(self.backbone)
        # Not the settings themselves, which a copy of the network would copy.
        self.threshold, self.temperature = settings.threshold, settings.contrastive_temperature
        self.gumbel_temperature, self.log_probabilities = settings.gumbel_temperature, settings.log_probabilities
        self.contrastive_weight = settings.contrastive_weight * spec.outputs
        # The word vectors of some backbones are narrower than their hidden states, as ALBERT's.
        width = spec.width if self.backbone is None else int(self.backbone.get_input_embeddings().weight.shape[1])
        self.label_encoder = LabelEncoder(spec.hierarchy, width, spec.name_vectors, heads_within(width, GRAPH_HEADS))
        self.words_to_labels = WordsToLabels(width, heads_within(width, settings.word_heads))
        # Between what is contrasted and NT-Xent.
        size = self.outputs.linear.in_features
        layers = (nn.Dropout(spec.dropout), nn.Linear(size, size), nn.ReLU())
        self.projector = nn.Sequential(*layers, nn.Dropout(spec.dropout), nn.Linear(size, size))

    def prepare(self, loss: Loss, labels: Any) -> PreparedLabels:
        """Prepare the labels for the loss, and beside them the labels that words are to speak of."""
        return ContrastTargets(loss.prepare(labels), LabelTargets(loss.hierarchy.closure(labels)))

    def losses(self, inputs: Sequence[Tensor], truth: tuple[Any, Tensor], loss: Loss) -> Tensor:
        """Return loss(text) + loss(positive) + weight · NT-Xent, whose mean counts for every document alike."""
        judged, nodes = truth
        states, mask = self.token_states(inputs)
        text = self.outputs.features(pool(states, mask, self.pooling))
        positive = self.outputs.features(self.positive_vectors(inputs, nodes))
        contrast = nt_xent(self.projector(text), self.projector(positive), self.temperature)
        both = loss(self.outputs.logits(text).float(), judged) + loss(self.outputs.logits(positive).float(), judged)
        result: Tensor = both + self.contrastive_weight * contrast
        return result

    # The two readings

    def word_vectors(self, inputs: Sequence[Tensor]) -> Tensor:
        """Return n × length × width: the input embeddings of token ids, or the token states that are given."""
        if self.backbone is None:
            return inputs[0]
        result: Tensor = self.backbone.get_input_embeddings()(inputs[0])
        return result

    def importance(self, words: Tensor, nodes: Tensor) -> Tensor:
        """Compute how much each word speaks of the labels of its text: n × length, from 0 to 1.

        `words` are vectors, n × length × width; `nodes` are 1 for the labels of the text. Training adds Gumbel noise.
        """
        logits = self.words_to_labels(words, self.label_encoder())
        if self.log_probabilities:
            # The gradient of the logarithm of 0 is not a number.
            logits = logits.clamp(min=torch.finfo(logits.dtype).tiny).log()
        if self.training:
            sampled = functional.gumbel_softmax(logits, tau=self.gumbel_temperature)
        else:
            sampled = (logits / self.gumbel_temperature).softmax(-1)
        return torch.einsum("ntl,nl->nt", sampled, nodes.to(sampled.dtype))

    def select_words(self, words: Tensor, mask: Tensor, nodes: Tensor) -> Tensor:
        """Return 1 for words of the positive sample, 0 for others and padding, with straight-through gradients."""
        selected = straight_through(self.importance(words, nodes), self.threshold)
        return selected * mask.to(selected.dtype)

    def positive_vectors(self, inputs: Sequence[Tensor], nodes: Tensor) -> Tensor:
        """Encode the positive samples of (ids, mask), or of (states, mask) without a backbone: n × width."""
        words, mask = self.word_vectors(inputs), inputs[1]
        selected = self.select_words(words, mask, nodes).to(words.dtype)
        states = words * selected.unsqueeze(-1)
        if self.backbone is None:
            count = selected.sum(1, keepdim=True).clamp(min=1.0)
            return states.sum(1) / count
        states = self.backbone(inputs_embeds=states, attention_mask=mask).last_hidden_state
        return pool(states, mask, self.pooling)


def scoring_network(spec: NetworkSpec) -> Network:
    """Make the part of the network that scores: encoder, pooling and outputs."""
    if spec.backbone is not None:
        outputs = LinearOutputs(spec.width, spec.outputs, spec.hidden_size, spec.dropout)
        return Network(spec.backbone, spec.pooling, outputs)
    return Network(None, "mean", LinearOutputs(spec.width, spec.outputs, spec.hidden_size or spec.width, spec.dropout))


def require_inputs_embeds(backbone: Any) -> None:
    """Refuse a transformer that takes no vectors as inputs, which positive samples are."""
    base = backbone.get_base_model() if hasattr(backbone, "get_base_model") else backbone
    if "inputs_embeds" not in inspect.signature(base.forward).parameters:
        raise TreelabelError(
            f"HGCLR cannot train this encoder: {type(base).__name__} does not take inputs_embeds, which positive "
            "samples need; give one of BERT's family, or use it frozen (mode=head)"
        )


@dataclass(eq=False, repr=False)
class Hgclr(NeuralModel):
    """HGCLR (Wang et al., ACL 2022): contrastive learning with positive samples that the hierarchy chooses.

    In training every text is read twice, as it is and with only the words that matter for its labels, and both
    readings are drawn together; scoring needs the text encoder and the outputs alone. `HgclrNetwork` says what differs
    from the paper. With mode="head", words are token states of a frozen encoder, and the second reading pools those
    that were chosen.

    Settings that all systems have: see `NeuralModel` and `TrainingArguments`.

    Parameters
    ----------
    contrastive_weight
        The weight of the contrast (the paper's lambda).
    threshold
        The importance above which a word is kept (the paper's gamma). By chance, it is the number of the text's labels
        divided by that of all labels.
    contrastive_temperature, gumbel_temperature
        The temperatures of NT-Xent, and of Gumbel-softmax.
    log_probabilities
        Whether words are sampled by the logarithm of their probabilities, as Gumbel-softmax is meant, and not by the
        probabilities themselves, as in the official program.
    word_heads
        The heads of the attention from words to labels, which costs texts × words × labels × heads: with a thousand
        labels it is what a CPU spends its time on, and 1 is affordable.
    """

    name = "hgclr"
    network_type = HgclrNetwork
    takes_states = True
    recipes = make_recipes(Recipe(30, 32, 3e-3), 3e-5, hidden=1e-3, outputs=1e-3)
    needs_names = True

    # Both of the official run on the New York Times corpus; others: 0.05, 0.02 (Web of Science); 0.3, 0.001 (RCV1).
    contrastive_weight: NonNegative = 0.3
    threshold: Annotated[float, Between(-1, 1e6)] = 0.002
    contrastive_temperature: Temperature = 1.0
    gumbel_temperature: Temperature = 1.0
    log_probabilities: bool = False
    word_heads: Width = WORD_HEADS

    def make_scoring_network(self, spec: NetworkSpec) -> Network:
        """Make encoder, pooling and outputs alone."""
        return scoring_network(spec)
