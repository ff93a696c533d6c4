"""The learned parts of X-Transformer: clusters of labels, the network that finds them, and linear rankers."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, TypedDict

import numpy as np
import torch
from scipy import sparse
from torch import Tensor
from torch.nn import functional

from treelabel.calibration.candidates import CandidateSigmoid
from treelabel.core.array_schema import Arrays, Schema, indices, with_prefix
from treelabel.core.errors import TreelabelError
from treelabel.core.strings import Strings
from treelabel.core.types import FloatArray, IntArray
from treelabel.core.validation import Between
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.models.extreme.cluster_ranking import best_clusters, joined_features, rank
from treelabel.models.extreme.clustering import cluster_hierarchy
from treelabel.models.extreme.label_tree import LabelTree
from treelabel.models.extreme.rankers import Rankers
from treelabel.models.persistence.schema import Ngrams, require_width, tfidf_arrays
from treelabel.models.persistence.store import files_from, files_to
from treelabel.neural.featurizers import KnownVectors
from treelabel.neural.fitted_network import FittedNetwork
from treelabel.neural.hardware import threads_for
from treelabel.neural.losses.base import Loss
from treelabel.neural.losses.truth import LabelTargets
from treelabel.neural.model import NeuralModel
from treelabel.neural.network import LinearOutputs, Network, NetworkSpec
from treelabel.neural.network_schema import NetworkValues, saved_schema
from treelabel.neural.objective import Objective
from treelabel.scores.score_matrix import Scores
from treelabel.selection.evidence import Stage
from treelabel.text.ngrams import NgramShape
from treelabel.text.tfidf import Tfidf

# Texts that are scored at once.
TEXTS_AT_ONCE = 2048


class MatcherNetwork(Network):
    """An encoder and linear outputs for clusters, trained by squared hinge: max(0, 1 - (2 y - 1) f)², the mean.

    y is 1 where a document has labels of the cluster, however many; in the official program it is their number.
    """

    def __init__(self, spec: NetworkSpec) -> None:
        super().__init__(spec.backbone, spec.pooling, LinearOutputs(spec.width, spec.outputs, 0, spec.dropout))

    def prepare(self, loss: Loss, labels: Any) -> LabelTargets:
        """Prepare the true clusters: see `Network.prepare`."""
        return LabelTargets(sparse.csr_array(labels))

    def losses(self, inputs: Sequence[Tensor], truth: Tensor, loss: Loss) -> Tensor:
        """Return the squared hinge of margins: see `Network.losses`."""
        return functional.relu(1 - (2 * truth - 1) * self.logits(inputs).float()).square().mean(1)


def read_texts(matcher: FittedNetwork, texts: Strings, progress: bool | None = None) -> tuple[FloatArray, FloatArray]:
    """Compute what a matcher makes of texts.

    Parameters
    ----------
    matcher
        A trained matcher.
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
            part = network.text_vectors(inputs.batch(rows))
            vectors[rows], margins[rows] = part.float().numpy(), network.outputs(part).float().numpy()
    return vectors, margins


@dataclass(frozen=True, eq=False)
class Indexing:
    """Clusters of labels, the matcher that finds them, their rankers, and what margins mean as probabilities."""

    tree: LabelTree
    matcher: FittedNetwork
    rankers: Rankers
    calibration: CandidateSigmoid

    def probabilities(self, texts: Strings, tfidf: sparse.csr_array, beam_size: int) -> sparse.csr_array:
        """Score texts.

        Parameters
        ----------
        tfidf
            Their tf-idf.
        beam_size
            Clusters that are looked into.

        Returns
        -------
        csr_array
            Texts × labels, in the order of the model; labels of other clusters are not stored.
        """
        vectors, margins = read_texts(self.matcher, texts)
        features = joined_features(tfidf, vectors)
        return self.to_probabilities(rank(features, best_clusters(margins, beam_size), self.tree, self.rankers))

    def to_probabilities(self, margins: sparse.csr_array) -> sparse.csr_array:
        """Turn margins in the order of the tree into probabilities in the order of the model."""
        p = self.calibration.probabilities(margins)
        result = sparse.csr_array((p.data, self.tree.labels[p.indices], p.indptr), p.shape)
        result.sort_indices()
        return result

    def state(self) -> tuple[dict[str, Any], Arrays]:
        """Return what is saved: values for JSON, and arrays."""
        values, arrays = self.matcher.state()
        rankers = {f"ranker_{name}": array for name, array in self.rankers.arrays().items()}
        part = {"clusters": self.tree.sizes[0], **self.calibration._asdict()}
        return {**part, "matcher": values}, {**arrays, **self.tree.arrays(), **rankers}


@dataclass(frozen=True, eq=False)
class FittedXTransformer:
    """An X-Transformer: `label_nodes` are the nodes of its labels; probabilities are means over the indexings."""

    hierarchy: Hierarchy
    label_nodes: IntArray
    tfidf: Tfidf
    indexings: tuple[Indexing, ...]
    beam_size: int

    @property
    def epoch_losses(self) -> tuple[float, ...]:
        """The losses of all matchers."""
        return tuple(loss for each in self.indexings for loss in each.matcher.epoch_losses)

    @property
    def stages(self) -> tuple[Stage, ...]:
        """How far the matcher of each indexing came, of those that were begun."""
        matchers = [each.matcher.stages for each in self.indexings]
        names = ["matcher" if len(matchers) == 1 else f"matcher {number}" for number in range(1, len(matchers) + 1)]
        return tuple(
            replace(stage, name=f"{name}, {stage.name}")
            for name, part in zip(names, matchers, strict=True)
            for stage in part
        )

    def score(self, texts: Strings, top: int | None = None) -> Scores:
        """Score texts, some thousands at a time.

        Parameters
        ----------
        top
            How many of the largest scores of each to keep; None keeps all labels that were looked at.

        Returns
        -------
        Scores
            CSR.
        """
        parts = []
        for start in range(0, max(1, len(texts)), TEXTS_AT_ONCE):
            some = texts[start : start + TEXTS_AT_ONCE]
            tfidf = self.tfidf.transform(list(some))
            result = self.scores_of([each.probabilities(some, tfidf, self.beam_size) for each in self.indexings])
            parts.append((result if top is None else result.top_k(top)).values)
        return Scores.concat(self.hierarchy, parts)

    def scores_of(self, probabilities: Sequence[sparse.csr_array]) -> Scores:
        """Average the probabilities of labels by each indexing, and raise nodes to those below them."""
        total = sum(probabilities[1:], probabilities[0])
        mean = sparse.csr_array(total / np.float32(len(probabilities)), dtype=np.float32)
        values = (mean.data, self.label_nodes[mean.indices], mean.indptr)
        return Scores(self.hierarchy, sparse.csr_array(values, (mean.shape[0], len(self.hierarchy)))).coherent()

    def state(self) -> tuple[dict[str, Any], Arrays]:
        """Return what is saved: values for JSON, and arrays."""
        shape = self.tfidf.shape
        arrays: dict[str, Any] = {**self.tfidf.arrays(), "label_nodes": self.label_nodes}
        indexings = []
        for number, each in enumerate(self.indexings):
            values, part = each.state()
            indexings.append({**values, "width": self.tfidf.width + each.matcher.width})
            arrays |= {f"{number}.{name}": array for name, array in part.items()}
        ngrams = {"ngram_range": shape.ngram_range, "n_features": shape.n_features}
        return {"labels": len(self.label_nodes), "ngrams": ngrams, "indexings": indexings}, arrays

    def write_files(self, folder: Path) -> None:
        """Write the networks of all matchers."""
        for number, each in enumerate(self.indexings):
            with files_to(folder, f"{number}.") as part:
                each.matcher.write_files(part)

    @classmethod
    def restore(
        cls,
        matcher: NeuralModel,
        hierarchy: Hierarchy,
        beam_size: int,
        stored: tuple[dict[str, Any], Arrays],
        folder: Path,
    ) -> "FittedXTransformer":
        """Read what was saved, without running any of it.

        Parameters
        ----------
        matcher
            The settings of matchers, and how their networks are made.
        hierarchy
            The hierarchy of the model.
        beam_size
            Clusters that are looked into.
        stored
            What `state` returned.
        folder
            Where `write_files` wrote.
        """
        values, arrays = stored
        ngrams = values["ngrams"]
        shape = NgramShape(ngrams["ngram_range"], None, int(ngrams["n_features"]))
        tfidf = Tfidf(shape, arrays["buckets"], arrays["idf"])
        indexings = []
        for number, part in enumerate(values["indexings"]):
            stored_arrays, clusters = with_prefix(arrays, f"{number}."), cluster_hierarchy(part["clusters"])
            objective = Objective.restore(part["matcher"]["loss"], clusters, stored_arrays)
            with files_from(folder, f"{number}.") as files:
                fitted = FittedNetwork.restore(matcher, objective, (part["matcher"], stored_arrays), files)
            if tfidf.width + fitted.width != part["width"]:
                raise TreelabelError(
                    f"rankers are of {part['width']:,} columns, but there are {tfidf.width:,} of tf-idf and "
                    f"{fitted.width:,} of the encoder"
                )
            rankers = Rankers(**with_prefix(stored_arrays, "ranker_"))
            tree = LabelTree.of(stored_arrays)
            indexings.append(Indexing(tree, fitted, rankers, CandidateSigmoid(part["slope"], part["intercept"])))
        return cls(hierarchy, arrays["label_nodes"], tfidf, tuple(indexings), beam_size)


# Saving


class IndexingValues(TypedDict):
    """An Indexing of X-Transformer: its matcher, the columns of features, and the map from margins to probabilities."""

    clusters: Annotated[int, Between(1, 1 << 31)]
    width: Annotated[int, Between(1, 1 << 32)]
    slope: Annotated[float, Between(0, 1e3)]
    intercept: Annotated[float, Between(-1e6, 1e6)]
    matcher: NetworkValues


class XTransformerValues(TypedDict):
    """A FittedXTransformer."""

    labels: Annotated[int, Between(1, 1 << 31)]
    ngrams: Ngrams
    indexings: list[IndexingValues]


def x_transformer_schema(hierarchy: Hierarchy, values: dict[str, Any]) -> Schema:
    """Declare the arrays and files of an X-Transformer.

    Parameters
    ----------
    hierarchy
        The hierarchy of the model.
    values
        `XTransformerValues`.

    Returns
    -------
    Schema
        What the folder has to hold; indexings are parts with the prefixes "0.", "1." and so on.
    """
    if not values["indexings"]:
        raise TreelabelError("expected one indexing at least")
    buckets, labels = values["ngrams"]["n_features"], values["labels"]
    return Schema(
        {**tfidf_arrays(), "label_nodes": indices("labels", "nodes", rising=True)},
        (),
        {"nodes": len(hierarchy), "buckets": buckets, "labels": labels},
        {"width": buckets},
        parts={f"{number}.": _indexing_schema(labels, part) for number, part in enumerate(values["indexings"])},
    )


def _indexing_schema(labels: int, values: dict[str, Any]) -> Schema:
    """Declare a matcher, the tree of its clusters, and the rankers of their labels."""
    clusters, width = values["clusters"], values["width"]
    if clusters > labels:
        raise TreelabelError(f"there are {clusters:,} clusters of {labels:,} labels")
    matcher = saved_schema(cluster_hierarchy(clusters), values["matcher"], None)
    return replace(
        matcher,
        arrays={**matcher.arrays, **LabelTree.schema()},
        sizes={**matcher.sizes, "labels": labels, "instances": labels, "levels": 2},
        most={**matcher.most, "tree_ends": clusters + 3},
        relations=(*matcher.relations, require_rankers),
        parts={"ranker_": Rankers.schema(width, clusters, labels)},
    )


def require_rankers(arrays: Arrays) -> None:
    """Refuse arrays of a tree and of rankers that do not fit each other; each for itself is in its range."""
    tree = LabelTree.of(arrays)
    rankers = with_prefix(arrays, "ranker_")
    if tree.sizes[0] != len(rankers["clusters"]) - 1 or len(np.unique(tree.labels)) < len(tree.labels):
        raise TreelabelError("tree_labels and tree_children do not put each label into one cluster of the matcher")
    Rankers.check(tree.children[1], rankers)
