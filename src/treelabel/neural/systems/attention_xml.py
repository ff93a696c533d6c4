"""AttentionXML (You et al., NeurIPS 2019): every label attends to the words that matter for it, level by level."""

import math
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, cast, get_args

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from treelabel.core.errors import TreelabelError
from treelabel.core.types import IntArray
from treelabel.encoders.registry import default_encoder_name
from treelabel.encoders.tokens import token_batches
from treelabel.models.settings import PartialShare, Width
from treelabel.neural.featurizers import Inputs
from treelabel.neural.losses.base import Loss
from treelabel.neural.network import NetworkSpec
from treelabel.neural.systems.candidate_ranking import (
    ClusterSize,
    LabelCount,
    PreparedTreeTargets,
    RankingModel,
    RankingNetwork,
    TreeTargets,
    candidate_loss,
    choose_clusters,
    in_parts,
    level_loss,
    rank_documents,
    shallow_levels,
)
from treelabel.neural.training_arguments import Recipe, RecipeName


class Reader(nn.Module):
    """A bidirectional LSTM over words, with initial states that are learned: texts × words × 2 `size`.

    Texts are turned round for the second direction, so that both begin at a word and meet padding last: on a CPU this
    is twice as fast as packed sequences.

    Parameters
    ----------
    width
        The width of word vectors.
    size
        The width of the states of each direction.
    """

    def __init__(self, width: int, size: int) -> None:
        super().__init__()
        self.forwards, self.backwards = (nn.LSTM(width, size, batch_first=True) for _ in range(2))
        self.start = nn.Parameter(torch.zeros(2, 2, size))

    def forward(self, words: Tensor, mask: Tensor) -> Tensor:
        """Return the states of words; what is no word does not change those of words.

        Parameters
        ----------
        words
            Word vectors, texts × words × width.
        mask
            Texts × words, at least one word each, at the beginning.

        Returns
        -------
        Tensor
            Texts × words × 2 `size`.
        """
        hidden, cell = self.start.unsqueeze(2).expand(-1, -1, len(words), -1).contiguous()
        turned = reverse_words(mask).unsqueeze(-1)
        there, _ = self.forwards(words, (hidden[:1], cell[:1]))
        back, _ = self.backwards(words.gather(1, turned.expand_as(words)), (hidden[1:], cell[1:]))
        return torch.cat([there, back.gather(1, turned.expand_as(back))], dim=2)


def reverse_words(mask: Tensor) -> Tensor:
    """Return the place of each word if words come last to first; padding stays where it is.

    >>> reverse_words(torch.tensor([[True, True, True, False]])).tolist()
    [[2, 1, 0, 3]]
    """
    positions = torch.arange(mask.shape[1], device=mask.device)
    return torch.where(mask, mask.sum(1, keepdim=True) - 1 - positions, positions)


class Level(nn.Module):
    """The network of one level: a reader, a query for every node, and an MLP that all nodes share.

    Parameters
    ----------
    width
        The width of word vectors.
    nodes
        The number of nodes.
    settings
        Those of the system.
    """

    def __init__(self, width: int, nodes: int, settings: "AttentionXml") -> None:
        super().__init__()
        lstm_size, mlp_size = settings.lstm_size, settings.mlp_size
        self.embedding_dropout = nn.Dropout(settings.embedding_dropout)
        self.states_dropout = nn.Dropout(settings.states_dropout)
        self.reader = Reader(width, lstm_size)
        self.hidden, self.output = nn.Linear(2 * lstm_size, mlp_size), nn.Linear(mlp_size, 1)
        # Where about one node is true.
        nn.init.constant_(self.output.bias, -math.log(nodes))
        self.queries = nn.Parameter(torch.empty(nodes, 2 * lstm_size))
        nn.init.xavier_uniform_(self.queries)

    def start_from(self, above: "Level") -> None:
        """Start from what the level above has learned, but for the queries, which are of other nodes."""
        for local, other in ((self.reader, above.reader), (self.hidden, above.hidden), (self.output, above.output)):
            local.load_state_dict(other.state_dict())

    def states(self, words: Tensor, mask: Tensor) -> Tensor:
        """Read word vectors (texts × words × width): texts × words × 2 `lstm_size`."""
        result: Tensor = self.states_dropout(self.reader(self.embedding_dropout(words), mask))
        return result

    def logits(self, states: Tensor, mask: Tensor, nodes: Tensor | None = None) -> Tensor:
        """Score nodes.

        Parameters
        ----------
        states
            States of words.
        mask
            Texts × words.
        nodes
            The candidates of each text, texts × candidates; None scores all nodes.

        Returns
        -------
        Tensor
            Texts × candidates.
        """
        queries = self.queries if nodes is None else functional.embedding(nodes, self.queries)
        weights = attention_weights(states, mask, queries)
        # The mean of what the MLP's first layer makes of words is what it makes of their mean, and is narrower.
        seen = weights @ functional.linear(states, self.hidden.weight) + self.hidden.bias
        result: Tensor = self.output(torch.relu(seen)).squeeze(-1)
        return result


class AttentionXmlNetwork(RankingNetwork):
    """Label-wise attention down a shallow, wide tree of labels; each level has a network of its own.

    A node's attention is the softmax over words of w_node · h_word, unscaled, where h are the states of a BiLSTM; the
    mean of the states by these weights goes through an MLP, which all nodes of a level share, to one logit. The first
    level is scored whole. Below it, the children of the `top_clusters` best nodes of the level above are candidates; in
    training these are the true nodes above first, then those that the trained level above thinks best, and random ones
    where a text of the batch has more true ones. A level starts from the word vectors, the LSTM and the MLP of the
    level above. A node's probability is the product of the sigmoids on its path.

    Differences from the paper and its program:

    - Words are those of an encoder that is installed, frozen (GloVe in the program, frozen on its small sets), and
      brought to mean 0 and variance 1; or, with encoder="scratch", word pieces whose vectors are learned.
    - Weights are those of the best epoch by held-out log loss and AdamW's, where the program averages weights (SWA),
      chooses by nDCG@5 and clips gradients by those before. One network is trained, where the program adds up three.
    - Small clusters are masked, where the program fills them up with random labels.
    - The bias of the MLP starts where about one node is true.

    As in the program, the tree is made with documents that are held out for the choice of epochs, and the candidates
    of training are predicted for documents that the level above was trained on.

    All nodes of a level have the same score for a text of a single word, as there is nothing to choose from.

    Parameters
    ----------
    spec
        What the network is made of, with a label tree.
    settings
        Those of the system.
    """

    def __init__(self, spec: NetworkSpec, settings: "AttentionXml") -> None:
        super().__init__(spec, settings.top_clusters)
        self.levels = nn.ModuleList(Level(spec.width, size, settings) for size in self.tree.sizes)
        # Word vectors of the first level are the backbone's, those of the others start as copies.
        lower = [] if spec.backbone is None else [deepcopy(spec.backbone) for _ in self.tree.sizes[1:]]
        self.backbones = nn.ModuleList(lower)

    @property
    def stages(self) -> int:
        """One for each level."""
        return self.tree.depth

    def begin_stage(self, stage: int, inputs: Inputs, loss: Loss, labels: Any) -> PreparedTreeTargets:
        """Train a level, given those above: see `Network.begin_stage`."""
        predicted = None if stage == 0 else self.best_clusters(stage - 1, inputs)
        self.level = stage
        if stage > 0:
            self.level_at(stage).start_from(self.level_at(stage - 1))
            if self.backbone is not None:
                self.word_backbone(stage).load_state_dict(self.word_backbone(stage - 1).state_dict())
        for number, level in enumerate(self.levels):
            level.requires_grad_(number == stage)
            if self.backbone is not None:
                self.word_backbone(number).requires_grad_(number == stage)
        return PreparedTreeTargets(self.tree_labels(labels), predicted)

    def best_clusters(self, level: int, inputs: Inputs) -> IntArray:
        """Find the best nodes of a level, best first: documents × clusters."""
        self.level = level
        count = min(self.top_clusters, self.tree.sizes[level])
        result = rank_documents(self, token_batches(inputs.lengths.tolist()), inputs, count)
        best = np.zeros((result.shape[0], count), np.int32)
        for row in range(result.shape[0]):
            local = slice(result.indptr[row], result.indptr[row + 1])
            order = np.argsort(-result.data[local], kind="stable")
            # Fewer only where probabilities are too small for a number: the best one then stands again.
            best[row] = np.resize(result.indices[local][order], count) if len(order) else 0
        return best

    def level_at(self, level: int) -> Level:
        """Return what is learned for a level."""
        return cast("Level", self.levels[level])

    def word_backbone(self, level: int) -> Any:
        """Return what makes word vectors of token ids at a level, if these are learned."""
        return self.backbone if level == 0 else self.backbones[level - 1]

    def words(self, level: int, inputs: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Return word vectors, texts × words × width, and where there are words; texts without any have one of 0s."""
        result, mask = inputs[0], inputs[1].bool()
        if self.backbone is not None:
            result = self.word_backbone(level)(input_ids=inputs[0], attention_mask=inputs[1]).last_hidden_state
        first = torch.arange(mask.shape[1], device=mask.device) == 0
        return functional.layer_norm(result, result.shape[-1:]), mask | first

    def losses(self, inputs: Sequence[Tensor], truth: TreeTargets, loss: Loss) -> Tensor:
        """Return the mean cross-entropy of a text's candidates at the level in training: see `Network.losses`."""
        level, targets = self.level_at(self.level), truth.levels[self.level]
        words, mask = self.words(self.level, inputs)
        states = level.states(words, mask)
        if self.level == 0:
            return level_loss(level.logits(states, mask), targets)
        nodes, there = self.candidates(truth)
        return candidate_loss(level.logits(states, mask, nodes), nodes, there, targets)

    def candidates(self, truth: TreeTargets) -> tuple[Tensor, Tensor]:
        """Choose the candidates of training: the children of true nodes above, of the best predicted, of random ones.

        Parameters
        ----------
        truth
            The true nodes of each level, and the predicted ones of the level above.

        Returns
        -------
        tuple of Tensor
            Nodes, documents × candidates, and whether they are there.
        """
        assert truth.predicted is not None
        count, size = truth.predicted.shape[1], self.tree.sizes[self.level - 1]
        # In order: from 1 for the best one to 1/2, above what is random.
        rank = torch.linspace(1, 0.5, count, device=truth.predicted.device).expand(truth.predicted.shape)
        scores = torch.rand(len(rank), size).to(rank.device) / 4
        scores = scores.scatter(1, truth.predicted, rank)
        return self.below(self.level, choose_clusters(scores, truth.levels[self.level - 1], self.top_clusters))

    def rank(self, inputs: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Return the candidates of `level` and the products of sigmoids on their paths: see `RankingNetwork.ranked`."""
        p = self.sigmoids(0, inputs)
        nodes = torch.arange(p.shape[1], device=p.device).expand_as(p)
        for number in range(1, self.level + 1):
            above, best = p.topk(min(self.top_clusters, p.shape[1]))
            nodes, there = self.below(number, nodes.gather(1, best))
            above = above.repeat_interleave(nodes.shape[1] // above.shape[1], dim=1)
            p = self.sigmoids(number, inputs, nodes) * above * there
        return nodes, p

    def sigmoids(self, number: int, inputs: Sequence[Tensor], *nodes: Tensor) -> Tensor:
        """Return the sigmoids of candidates at a level, or of all its nodes: texts × nodes."""
        level, (words, mask) = self.level_at(number), self.words(number, inputs)
        count = nodes[0].shape[1] if nodes else self.tree.sizes[number]
        # The numbers that the attention of a text's candidates takes.
        numbers = count * int(mask.shape[1] + level.queries.shape[1])
        parts = in_parts((level.states(words, mask), mask, *nodes), numbers)
        return torch.cat([level.logits(*part).float().sigmoid() for part in parts])


def attention_weights(states: Tensor, mask: Tensor, queries: Tensor) -> Tensor:
    """Compute how much each label looks at each word: the softmax over words of query · state.

    Parameters
    ----------
    states
        States of words, texts × words × width.
    mask
        Texts × words; the others have no weight.
    queries
        Labels × width, or those of each text, texts × labels × width.

    Returns
    -------
    Tensor
        Texts × labels × words.

    >>> states, mask = torch.tensor([[[1.0], [0.0], [5.0]]]), torch.tensor([[True, True, False]])
    >>> attention_weights(states, mask, torch.tensor([[0.0], [9.0]])).round(decimals=2).tolist()
    [[[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]]]
    """
    # `@` would multiply labels that are in training in another order than others, and round differently.
    shared = queries.ndim == 2
    scores = functional.linear(states, queries).transpose(1, 2) if shared else queries @ states.transpose(1, 2)
    return scores.masked_fill(~mask.unsqueeze(1), -torch.inf).softmax(-1)


@dataclass(eq=False, repr=False)
class AttentionXml(RankingModel):
    """AttentionXML (You et al., NeurIPS 2019): every label attends to the words that matter for it.

    A BiLSTM reads word vectors, every label has an attention of its own, and all share an MLP. Many labels are put into
    a shallow, wide tree, whose levels are trained one after another; a text costs the first level and the children of
    its best nodes. `AttentionXmlNetwork` says what differs from the paper.

    Word vectors are those of a frozen encoder: static vectors where some are installed, unless an encoder is given; the
    token states of a transformer do, too, but take longer to compute than all that is trained. With encoder="scratch"
    they are learned. `max_length` is how many words of a text are read (500 in the program): time grows with it.

    With a time limit, every level has its share: a level that has begun is always trained, and texts are always ranked
    down to the labels. Two cores train on some 250 texts of a hundred words a second and level.

    Settings that all systems have: see `NeuralModel` and `TrainingArguments`. `mode` follows from the encoder.

    Parameters
    ----------
    max_flat_labels
        The largest level that is scored whole: so many labels need no tree. (The program has none up to 31,000.)
    cluster_size, top_clusters
        Children of a node, and nodes of a level that are looked below: their product is the number of candidates, about
        1,000 in the program.
    lstm_size, mlp_size
        The widths of the LSTM's directions and of the MLP (256 and more in the program; a CPU reads a text with 128 in
        twice the time that it takes with 64).
    embedding_dropout, states_dropout
        Dropout of word vectors, and of the LSTM's states.
    """

    name = "attention_xml"
    network_type = AttentionXmlNetwork
    takes_states = True
    needs_encoder = False
    recipes = dict.fromkeys(get_args(RecipeName), Recipe(8, 32, 5e-3))
    scratch_layers = 0

    max_flat_labels: LabelCount = 2048
    cluster_size: ClusterSize = 16
    top_clusters: Width = 32
    lstm_size: Width = 64
    mlp_size: Width = 64
    embedding_dropout: PartialShare = 0.2
    states_dropout: PartialShare = 0.5

    def _check_settings(self) -> None:
        if self.mode == "lora" or (self.mode == "all" and self.encoder != "scratch"):
            raise TreelabelError(
                f"the model {self.name} reads word vectors, frozen (mode=head) or learned (encoder=scratch); found "
                f"mode={self.mode} with the encoder {self.encoder}"
            )
        super()._check_settings()

    def _default_encoder(self) -> str:
        try:
            return default_encoder_name("model2vec")
        except TreelabelError:
            return super()._default_encoder()

    def level_sizes(self, labels: int) -> list[int]:
        """Return the number of nodes of each level above so many labels."""
        return shallow_levels(labels, self.cluster_size, self.max_flat_labels)
