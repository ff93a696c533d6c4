"""LightXML (Jiang et al., AAAI 2021): one network recalls clusters of labels, and ranks their labels."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor, nn
from torch.nn import functional

from treelabel.core.validation import Between
from treelabel.encoders.backbone import layers_of, pool
from treelabel.models.settings import PartialShare, Width
from treelabel.neural.losses.base import Loss
from treelabel.neural.network import NetworkSpec
from treelabel.neural.systems.candidate_ranking import (
    ClusterSize,
    LabelCount,
    RankingModel,
    RankingNetwork,
    TreeTargets,
    candidate_loss,
    choose_clusters,
    in_parts,
    level_loss,
)
from treelabel.neural.training_arguments import Recipe, make_recipes

# Scoring a label in a product of matrices is so many times faster than looking its embedding up.
WORTH_ALL = 32


class LightXmlNetwork(RankingNetwork):
    """A text vector, a linear layer over clusters (the recaller), and embeddings of labels (the ranker).

    The text vector is the states of the last layers side by side, after dropout. The recaller scores all clusters. The
    labels of its best clusters are the candidates of a document, in training together with the true ones: negatives
    change with the recaller, and become harder as it learns (dynamic negative sampling). A label's logit is the product
    of its embedding and a narrow linear image of the text vector (the bottleneck), without a bias. The loss is the mean
    cross-entropy of clusters plus that of candidates; a label's probability is σ(label) · σ(cluster). A flat tree
    has no clusters, and a linear layer over labels.

    Differences from the paper and its program:

    - States of a layer are pooled as the encoder says, by the first token or by the mean; the program takes the first
      token, which says little where an encoder was made for means. Over a frozen encoder the text vector is the
      encoder's own embedding, which comes from its last layer.
    - Clusters that are smaller than others are masked, where the program repeats labels. All clusters of true labels
      are chosen, even if they are more than `top_clusters`, so that no true label is missed.
    - Weights are those of the best epoch by held-out log loss, where the program averages weights of late epochs (SWA),
      and on small sets chooses by test documents. Rates rise and fall, where the program's are constant.
    - Biases of clusters start where about one of them is true.

    Embeddings of labels cost labels × `bottleneck_size` numbers, four times as many with AdamW; a batch costs documents
    × candidates × `bottleneck_size`.

    Parameters
    ----------
    spec
        What the network is made of, with a label tree of one level or two.
    settings
        Those of the system.
    """

    def __init__(self, spec: NetworkSpec, settings: "LightXml") -> None:
        super().__init__(spec, settings.top_clusters)
        tree, layers = self.tree, 1 if spec.backbone is None else len(layers_of(spec.backbone))
        self.hidden_layers = max(1, min(settings.hidden_layers, layers))
        width = self.hidden_layers * spec.width
        self.dropout = nn.Dropout(settings.text_dropout)
        self.recaller = nn.Linear(width, tree.sizes[0])
        nn.init.constant_(self.recaller.bias, -math.log(tree.sizes[0]))
        if tree.depth > 1:
            self.bottleneck = nn.Linear(width, settings.bottleneck_size)
            self.embeddings = nn.Parameter(torch.empty(tree.sizes[1], settings.bottleneck_size))
            nn.init.xavier_uniform_(self.embeddings)

    def text_vectors(self, inputs: Sequence[Tensor]) -> Tensor:
        """Return the vectors of texts, of (ids, mask) or of (vectors,), after dropout."""
        if len(inputs) == 1:
            vectors = inputs[0]
        else:
            ids, mask = inputs
            states = self.backbone(input_ids=ids, attention_mask=mask, output_hidden_states=True).hidden_states
            vectors = torch.cat([pool(each, mask, self.pooling) for each in states[-self.hidden_layers :]], dim=1)
        result: Tensor = self.dropout(vectors)
        return result

    def label_logits(self, vectors: Tensor, labels: Tensor) -> Tensor:
        """Score labels.

        Parameters
        ----------
        vectors
            Vectors of texts.
        labels
            The candidates of each, texts × candidates.

        Returns
        -------
        Tensor
            Texts × candidates.
        """
        narrow = self.bottleneck(vectors)
        if self._at_once(labels):
            result: Tensor = (narrow @ self.embeddings.T).gather(1, labels)
            return result
        return torch.einsum("ncb,nb->nc", functional.embedding(labels, self.embeddings), narrow)

    def _at_once(self, labels: Tensor) -> bool:
        """Whether to score all labels and pick the candidates, which saves copying the embeddings of candidates."""
        return len(self.embeddings) <= WORTH_ALL * labels.shape[1]

    def losses(self, inputs: Sequence[Tensor], truth: TreeTargets, loss: Loss) -> Tensor:
        """Return the cross-entropy of clusters plus that of candidates: see `Network.losses`."""
        vectors = self.text_vectors(inputs)
        clusters = self.recaller(vectors).float()
        recalling = level_loss(clusters, truth.levels[0])
        if self.tree.depth == 1:
            return recalling
        labels, there = self.candidates(clusters, truth)
        return recalling + candidate_loss(self.label_logits(vectors, labels), labels, there, truth.levels[1])

    def candidates(self, clusters: Tensor, truth: TreeTargets) -> tuple[Tensor, Tensor]:
        """Choose the candidates of training: the labels of true clusters, and of those that the recaller thinks best.

        Parameters
        ----------
        clusters
            The logits of clusters.
        truth
            The true clusters.

        Returns
        -------
        tuple of Tensor
            Labels, documents × candidates, and whether they are there.
        """
        chosen = choose_clusters(clusters.detach().sigmoid(), truth.levels[0], self.top_clusters)
        return self.below(1, chosen)

    def rank(self, inputs: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Return the labels of the best clusters and σ(label) · σ(cluster): see `RankingNetwork.ranked`."""
        vectors = self.text_vectors(inputs)
        clusters = self.recaller(vectors).float().sigmoid()
        if self.tree.depth == 1:
            return torch.arange(clusters.shape[1], device=clusters.device).expand_as(clusters), clusters
        recalled, chosen = clusters.topk(min(self.top_clusters, clusters.shape[1]))
        labels, there = self.below(1, chosen)
        count, width = self.embeddings.shape
        parts = in_parts((vectors, labels), count if self._at_once(labels) else labels.shape[1] * width)
        local = torch.cat([self.label_logits(*part).float().sigmoid() for part in parts])
        above = recalled.repeat_interleave(labels.shape[1] // recalled.shape[1], dim=1)
        return labels, local * above * there


@dataclass(eq=False, repr=False)
class LightXml(RankingModel):
    """LightXML (Jiang et al., AAAI 2021): clusters of labels are recalled and their labels ranked, end to end.

    Candidates are the labels of the clusters that the network itself thinks best, so that negatives become harder as it
    learns. `LightXmlNetwork` says what differs from the paper. With mode="head", the text vector is the embedding of a
    frozen encoder, and nothing else differs.

    Settings that all systems have: see `NeuralModel` and `TrainingArguments`.

    Parameters
    ----------
    max_flat_labels
        So many labels need no clusters, but a linear layer.
    cluster_size, top_clusters
        Labels of a cluster, and clusters that are looked into: their product is the number of candidates, some
        thousands in the program.
    bottleneck_size
        The width of label embeddings (400 or 500 in the program).
    hidden_layers
        How many layers of a fine-tuned encoder are looked at, the last ones.
    text_dropout
        Dropout of the text vector.
    """

    name = "light_xml"
    network_type = LightXmlNetwork
    recipes = make_recipes(Recipe(30, 64, 5e-3), 1e-4, hidden=1e-3, outputs=1e-3)

    max_flat_labels: LabelCount = 20_000
    cluster_size: ClusterSize = 32
    top_clusters: Width = 32
    bottleneck_size: Width = 128
    hidden_layers: Annotated[int, Between(1, 1000)] = 5
    text_dropout: PartialShare = 0.5

    def level_sizes(self, labels: int) -> list[int]:
        """Return the number of clusters above so many labels, if they need any."""
        return [] if labels <= self.max_flat_labels else [-(-labels // self.cluster_size)]
