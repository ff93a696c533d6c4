"""Ranking of candidates, for AttentionXML and LightXML: the labels below the best clusters of a label tree."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
from scipy import sparse
from torch import Tensor
from torch.nn import functional

from treelabel.core.array_schema import Arrays, Schema
from treelabel.core.bounded_memory import MANY_NODES
from treelabel.core.errors import TreelabelError
from treelabel.core.strings import Strings
from treelabel.core.types import IntArray, LongArray
from treelabel.core.validation import Between
from treelabel.models.base import Training
from treelabel.models.extreme.clustering import cluster_labels, pifa
from treelabel.models.extreme.label_tree import MOST_LEVELS, LabelTree
from treelabel.neural.featurizers import Inputs
from treelabel.neural.hardware import threads_for
from treelabel.neural.losses.base import Loss
from treelabel.neural.model import NeuralModel
from treelabel.neural.network import Network, NetworkSpec
from treelabel.neural.objective import KEPT_NODES, Objective
from treelabel.scores.score_matrix import Scores
from treelabel.text.ngrams import NgramShape
from treelabel.text.tfidf import Tfidf

LabelCount = Annotated[int, Between(1, 1 << 31)]
ClusterSize = Annotated[int, Between(2, 1 << 16)]
# A label that is no candidate costs as much as one said to be this likely.
LEAST = 1e-4
# Numbers that are computed at once where nothing is trained: documents are taken in parts of so many.
NUMBERS_AT_ONCE = 1 << 24


class TreeTargets(NamedTuple):
    """The truth about some documents: their nodes at each level of a label tree, filled up with -1.

    `predicted` are the best clusters of the level above the one that is trained, where these are known beforehand.
    """

    levels: tuple[Tensor, ...]
    predicted: Tensor | None


@dataclass(frozen=True, eq=False)
class PreparedTreeTargets:
    """The labels of a training set in a label tree: documents × nodes of each level, and what was predicted above."""

    levels: tuple[sparse.csr_array, ...]
    predicted: IntArray | None = None

    def batch(self, rows: LongArray, device: torch.device | str | None = None) -> TreeTargets:
        """Return the truth about some documents, padded to the most nodes of one."""
        levels = tuple(torch.from_numpy(pad_rows(level[rows])).to(device) for level in self.levels)
        predicted = self.predicted
        return TreeTargets(levels, None if predicted is None else torch.from_numpy(predicted[rows]).long().to(device))


class RankingNetwork(Network):
    """A network whose labels are the nodes of the last level of a label tree.

    Labels are the terminal nodes of training documents. Nodes of a level are numbered from 0, in the order of the tree.
    Trained with binary cross-entropy, whatever the loss that it is given.

    Parameters
    ----------
    spec
        What the network is made of, with a label tree, whose labels are nodes of the hierarchy.
    top_clusters
        How many clusters of a level are looked into.
    """

    def __init__(self, spec: NetworkSpec, top_clusters: int) -> None:
        super().__init__(spec.backbone, spec.pooling, None)
        assert spec.tree is not None
        self.tree, self.hierarchy, self.top_clusters = spec.tree, spec.hierarchy, top_clusters
        # The level that is ranked: the last one, unless levels are trained one after another.
        self.level = self.tree.depth - 1
        for number, ends in enumerate(self.tree.children):
            # The tree is stored with the model, and need not be with the weights.
            self.register_buffer(f"children_{number}", torch.tensor(ends, dtype=torch.long), persistent=False)

    @abstractmethod
    def rank(self, inputs: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Return the candidates of each document and their probabilities.

        Parameters
        ----------
        inputs
            What the network takes of documents.

        Returns
        -------
        tuple of Tensor
            Nodes of `level` and probabilities, both documents × candidates; what is no candidate has probability 0.
        """

    def logits(self, inputs: Sequence[Tensor]) -> Tensor:
        """Return the probabilities of candidates: a document has no logits of all labels."""
        return self.rank(inputs)[1]

    def arrays(self) -> Arrays:
        """Return the label tree."""
        return self.tree.arrays()

    def score(
        self,
        batches: Sequence[LongArray],
        inputs: Inputs,
        objective: Objective,
        temperature: float,
        top: int | None = None,
    ) -> Scores:
        """Score documents: a label has the probability that it is ranked by, a node above labels the largest of theirs.

        Without `top`, all scores are kept, or some hundred where there are very many nodes; see `Network.score`.
        """
        h = self.hierarchy
        if top is None and len(h) > MANY_NODES:
            top = KEPT_NODES
        p = rank_documents(self, batches, inputs, top)
        values = sparse.csr_array((p.data, self.tree.labels[p.indices], p.indptr), (p.shape[0], len(h)))
        values.sort_indices()
        # The largest scores are those of labels and of what is above them, so that no other label is missed.
        return Scores(h, values.toarray()).coherent() if top is None else Scores(h, values).coherent().top_k(top)

    def validation_loss(
        self, batches: Sequence[LongArray], inputs: Inputs, objective: Objective, data: Training
    ) -> tuple[float, float]:
        """Return the log loss at the level that is ranked, over all its nodes, and a temperature of 1."""
        p, true = rank_documents(self, batches, inputs), self.tree_labels(data.labels)[self.level]
        if not np.isfinite(p.data).all():
            return np.inf, 1.0
        row = np.repeat(np.arange(true.shape[0]), np.diff(true.indptr))
        right = np.clip(np.asarray(p[row, true.indices], np.float64).ravel(), LEAST, 1 - LEAST)
        others = -np.log1p(-np.clip(p.data.astype(np.float64), 0, 1 - LEAST)).sum()
        return float((others + (np.log1p(-right) - np.log(right)).sum()) / max(1, true.shape[0])), 1.0

    def tree_labels(self, labels: Any) -> tuple[sparse.csr_array, ...]:
        """Return the nodes of each level that are above the labels of documents (documents × nodes of a hierarchy)."""
        return tuple(self.tree.above(self.hierarchy.most_specific(labels)))

    def prepare(self, loss: Loss, labels: Any) -> PreparedTreeTargets:
        """Prepare labels, which the network looks up in its tree: see `Network.prepare`."""
        return PreparedTreeTargets(self.tree_labels(labels))

    def for_scoring(self) -> Network:
        """Return the network itself, which ranks."""
        return self

    def below(self, level: int, clusters: Tensor) -> tuple[Tensor, Tensor]:
        """Find the candidates below clusters.

        Parameters
        ----------
        level
            The level of the candidates.
        clusters
            Nodes of the level above, documents × clusters.

        Returns
        -------
        tuple of Tensor
            Nodes, documents × candidates, and whether they are there: smaller clusters are filled up. Candidates of one
            cluster stand together.
        """
        ends = self.get_buffer(f"children_{level}")
        most = int(np.diff(self.tree.children[level]).max(initial=1))
        result = ends[clusters].unsqueeze(-1) + torch.arange(most, device=ends.device)
        there = result < ends[clusters + 1].unsqueeze(-1)
        return torch.where(there, result, 0).flatten(1), there.flatten(1)


# Candidates


def pad_rows(rows: sparse.csr_array) -> LongArray:
    """Return the columns of each row, filled up with -1 to the longest.

    >>> pad_rows(sparse.csr_array([[1, 0, 1], [0, 1, 0]])).tolist()
    [[0, 2], [1, -1]]
    """
    sizes = np.diff(rows.indptr)
    there = np.arange(max(1, int(sizes.max(initial=0)))) < sizes[:, None]
    result = np.full(there.shape, -1, np.int64)
    result[there] = rows.indices
    return result


def multi_hot(nodes: Tensor, size: int) -> Tensor:
    """Mark nodes.

    Parameters
    ----------
    nodes
        Documents × nodes, filled up with -1.
    size
        The number of nodes that there are.

    Returns
    -------
    Tensor
        Documents × size, 1 or 0.

    >>> multi_hot(torch.tensor([[2, -1], [0, 1]]), 3).tolist()
    [[0.0, 0.0, 1.0], [1.0, 1.0, 0.0]]
    """
    # What fills up goes to a column of its own.
    result = torch.zeros(len(nodes), size + 1, device=nodes.device)
    return result.scatter_(1, torch.where(nodes < 0, size, nodes), 1.0)[:, :size]


def among(candidates: Tensor, nodes: Tensor) -> Tensor:
    """Say which candidates are among the nodes of their document.

    Parameters
    ----------
    candidates
        Documents × candidates.
    nodes
        Documents × nodes, filled up with -1.

    Returns
    -------
    Tensor
        Documents × candidates, 1 or 0.

    >>> among(torch.tensor([[4, 5, 6]]), torch.tensor([[6, -1]])).tolist()
    [[0.0, 0.0, 1.0]]
    """
    return (candidates.unsqueeze(2) == nodes.unsqueeze(1)).any(2).float()


def choose_clusters(scores: Tensor, targets: Tensor, top: int) -> Tensor:
    """Choose the clusters whose nodes are candidates in training: the true ones, then those with the largest scores.

    Parameters
    ----------
    scores
        Documents × clusters, from 0 to 1.
    gold
        The true clusters of each document, filled up with -1.
    top
        How many to choose; more where a document of the batch has more true ones.

    Returns
    -------
    Tensor
        Documents × clusters.

    >>> choose_clusters(torch.tensor([[0.9, 0.5, 0.1]]), torch.tensor([[2]]), 2).tolist()
    [[2, 0]]
    """
    most = int((targets >= 0).sum(1).max())
    count = min(scores.shape[1], max(top, most))
    return (scores + 2 * multi_hot(targets, scores.shape[1])).topk(count).indices


# Losses


def level_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Compute the mean binary cross-entropy of a level that is scored whole.

    Parameters
    ----------
    logits
        Documents × nodes.
    gold
        The true nodes of each document, filled up with -1.

    Returns
    -------
    Tensor
        One loss per document.

    >>> level_loss(torch.zeros(1, 4), torch.tensor([[2, -1]])).exp().tolist()
    [2.0]
    """
    true = multi_hot(targets, logits.shape[1])
    return functional.binary_cross_entropy_with_logits(logits.float(), true, reduction="none").mean(1)


def candidate_loss(logits: Tensor, candidates: Tensor, there: Tensor, targets: Tensor) -> Tensor:
    """Compute the mean binary cross-entropy of the candidates of each document.

    Parameters
    ----------
    logits, candidates
        Documents × candidates.
    there
        Which candidates are there: see `RankingNetwork.below`.
    gold
        The true nodes of each document, filled up with -1.

    Returns
    -------
    Tensor
        One loss per document.
    """
    each = functional.binary_cross_entropy_with_logits(logits.float(), among(candidates, targets), reduction="none")
    return (each * there).sum(1) / there.sum(1).clamp(min=1)


# Scoring


def in_parts(inputs: Sequence[Tensor], numbers: int) -> Iterator[tuple[Tensor, ...]]:
    """Split a batch into parts of bounded memory, where so many numbers are computed for each document."""
    step = max(1, NUMBERS_AT_ONCE // max(1, numbers))
    yield from zip(*(torch.split(each, step) for each in inputs), strict=True)


def rank_documents(
    network: RankingNetwork, batches: Sequence[LongArray], inputs: Inputs, keep: int | None = None
) -> sparse.csr_array:
    """Rank the candidates of all documents at the `level` of a network, batch by batch.

    Returns probabilities, documents × nodes of the level; with `keep`, those of so many candidates at most.
    """
    device, documents = next(network.parameters()).device, len(inputs.lengths)
    rows, nodes, values = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], [np.zeros(0, np.float32)]
    network.eval()
    with torch.inference_mode(), threads_for(network):
        for batch in batches:
            result, p = network.rank(tuple(value.to(device) for value in inputs.batch(batch)))
            if keep is not None and keep < result.shape[1]:
                p, positions = p.topk(keep)
                result = result.gather(1, positions)
            likely = p.cpu().numpy() != 0
            rows.append(np.repeat(batch, likely.sum(axis=1)))
            nodes.append(result.cpu().numpy()[likely])
            values.append(p.float().cpu().numpy()[likely])
    shape = (documents, network.tree.sizes[network.level])
    where = (np.concatenate(rows), np.concatenate(nodes))
    return sparse.csr_array(sparse.coo_array((np.concatenate(values), where), shape))


# Label trees


def shallow_levels(labels: int, cluster_size: int, max_flat_labels: int) -> list[int]:
    """Choose the levels of a shallow tree: clusters of `cluster_size`, until a level is small enough to rank whole.

    >>> shallow_levels(670_000, 16, 4096), shallow_levels(4_000, 16, 4096)
    ([2618, 41875], [])
    """
    result = [labels]
    while result[0] > max_flat_labels:
        result.insert(0, -(-result[0] // cluster_size))
    return result[:-1]


def with_tree(schema: Schema, nodes: int) -> Schema:
    """Declare the arrays of a label tree alongside those of a network; labels are some of so many nodes."""
    limits = {"levels": MOST_LEVELS, "tree_ends": MOST_LEVELS * (nodes + 2), "instances": nodes}
    return replace(
        schema,
        arrays={**schema.arrays, **LabelTree.schema()},
        sizes={**schema.sizes, "labels": nodes},
        most={**schema.most, **limits},
        relations=(*schema.relations, require_tree),
    )


def require_tree(arrays: Arrays) -> None:
    """Refuse arrays that are no label tree in which every label stands once."""
    tree = LabelTree.of(arrays)
    if not len(tree.labels) or len(np.unique(tree.labels)) < len(tree.labels):
        raise TreelabelError("tree_labels holds no label, or a label twice")


class RankingModel(NeuralModel):
    """A model that ranks candidates: the labels below the best clusters of a label tree.

    Its labels are those at which the labels of training documents end; nodes above them have the largest of their
    scores, all others 0. The loss is binary cross-entropy.
    """

    has_own_loss = True

    @abstractmethod
    def level_sizes(self, labels: int) -> list[int]:
        """Return the number of clusters of each level above so many labels; none if labels need no clusters."""

    def make_label_tree(self, train: Training) -> LabelTree:
        """Cluster the terminal labels of training documents by the words of these."""
        terminal = train.hierarchy.most_specific(train.labels)
        nodes = np.unique(terminal.indices).astype(np.int32)
        wanted = self.level_sizes(len(nodes))
        if not wanted:
            return LabelTree((np.array([0, len(nodes)]),), nodes)
        _, words = Tfidf.fit_transform(train.texts, NgramShape())
        tree = cluster_labels(pifa(words, sparse.csr_array(terminal[:, nodes])), wanted, self.seed)
        return LabelTree(tree.children, nodes[tree.labels])

    def _schema(self, values: dict[str, Any]) -> Schema:
        return with_tree(super()._schema(values), len(self.hierarchy_))

    def _score_top(self, texts: Strings, top: int) -> Scores:
        return self.fitted_.score(texts, top)
