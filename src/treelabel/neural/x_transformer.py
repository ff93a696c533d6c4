"""X-Transformer (Chang et al., KDD 2020): labels are put into clusters, a network finds the clusters of a text, and
linear rankers find its labels among those of the best clusters.

*Indexing*: labels with similar features (the mean tf-idf of their documents, or embeddings of their names) come into
clusters of the same size. *Matching*: an encoder learns which clusters the labels of a text are in, by squared hinge.
*Ranking*: each label has a squared-hinge classifier of tf-idf and the text vector of the encoder side by side, which
has seen only the documents that belong to its cluster, or that the matcher sends there. A text is ranked in its best
clusters alone.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from scipy.special import expit

from treelabel.core.array_schema import Arrays, with_prefix
from treelabel.core.errors import TreelabelError
from treelabel.core.matrices import normalize_rows
from treelabel.core.stopping import StopSignal
from treelabel.core.strings import Strings
from treelabel.core.types import IntArray, LongArray
from treelabel.encoders.cached_encoder import CachedEncoder
from treelabel.encoders.registry import find_encoder
from treelabel.hierarchy import Hierarchy
from treelabel.models.base import Training
from treelabel.models.extreme.cluster_ranking import (
    USUAL_MAP,
    Negatives,
    best_clusters,
    fit_map,
    joined_features,
    rank,
    shown_documents,
)
from treelabel.models.extreme.clustering import (
    LabelEmbedding,
    cluster_count,
    cluster_hierarchy,
    clusters_of,
    index_labels,
    pifa,
)
from treelabel.models.extreme.label_tree import LabelTree
from treelabel.models.extreme.rankers import Rankers, Solver, train_rankers
from treelabel.models.persistence.part_files import files_from, files_to
from treelabel.neural.fitted import FittedNetwork
from treelabel.neural.fitting import fit_network, split_validation
from treelabel.neural.matcher import matcher_architecture, read_texts
from treelabel.neural.objective import Objective
from treelabel.neural.processes import agreed_stop
from treelabel.neural.settings import NeuralSettings
from treelabel.scores import Scores
from treelabel.selection.evidence import HeldOut, Stage
from treelabel.text import NgramShape, Tfidf

# Smaller weights of rankers are dropped.
PRUNE = 0.01
# The share of the time that is left which a matcher may take; its rankers have the rest.
MATCHER_SHARE = 0.6
# Texts that are scored at once.
TEXTS_AT_ONCE = 2048


@dataclass(frozen=True)
class Options:
    """The settings of X-Transformer: see the model."""

    label_embeddings: tuple[LabelEmbedding, ...]
    n_clusters: int
    beam_size: int
    negatives: Negatives
    C: float


# Indexing


def label_features(
    kind: LabelEmbedding, tfidf: sparse.csr_array, labels: sparse.csr_array, names: list[str], settings: NeuralSettings
) -> sparse.csr_array:
    """Compute the features by which labels are clustered.

    Parameters
    ----------
    kind
        Which features.
    tfidf
        Documents × n-grams.
    labels
        Documents × labels.
    names
        The names of labels.
    settings
        The encoder of names.

    Returns
    -------
    csr_array
        Labels × features, rows of length 1.
    """
    if kind == "pifa-tfidf":
        return pifa(tfidf, labels)
    assert settings.encoder_spec is not None
    vectors = CachedEncoder(find_encoder(settings.encoder_spec)).transform(names)
    return sparse.csr_array(normalize_rows(vectors), dtype=np.float32)


@dataclass(frozen=True, eq=False)
class Indexing:
    """Clusters of labels, the matcher that finds them, their rankers, and what margins mean as probabilities."""

    tree: LabelTree
    matcher: FittedNetwork
    rankers: Rankers
    slope: float
    intercept: float

    def probabilities(self, texts: Strings, tfidf: sparse.csr_array, beam_size: int) -> sparse.csr_array:
        """Score texts.

        Parameters
        ----------
        texts
            The texts.
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
        return self.mapped(rank(features, best_clusters(margins, beam_size), self.tree, self.rankers))

    def mapped(self, margins: sparse.csr_array) -> sparse.csr_array:
        """Turn margins in the order of the tree into probabilities in the order of the model."""
        p = expit(self.slope * margins.data + self.intercept).astype(np.float32)
        found = sparse.csr_array((p, self.tree.labels[margins.indices], margins.indptr), margins.shape)
        found.sort_indices()
        return found

    def state(self) -> tuple[dict[str, Any], Arrays]:
        """Return what is saved: values for JSON, and arrays."""
        values, arrays = self.matcher.state()
        rankers = {f"ranker_{name}": array for name, array in self.rankers.arrays().items()}
        own = {"clusters": self.tree.sizes[0], "slope": self.slope, "intercept": self.intercept}
        return {**own, "matcher": values}, {**arrays, **self.tree.arrays(), **rankers}


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
            for name, own in zip(names, matchers, strict=True)
            for stage in own
        )

    def score(self, texts: Strings, top: int | None = None) -> Scores:
        """Score texts, some thousands at a time.

        Parameters
        ----------
        texts
            The texts.
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
            found = self.scores_of([each.probabilities(some, tfidf, self.beam_size) for each in self.indexings])
            parts.append((found if top is None else found.top_k(top)).values)
        return Scores.concat(self.hierarchy, parts)

    def scores_of(self, probabilities: Sequence[sparse.csr_array]) -> Scores:
        """Average the probabilities of labels by each indexing, and raise nodes to those below them."""
        return node_scores(self.hierarchy, self.label_nodes, probabilities)

    def state(self) -> tuple[dict[str, Any], Arrays]:
        """Return what is saved: values for JSON, and arrays."""
        shape = self.tfidf.shape
        arrays: dict[str, Any] = {**self.tfidf.arrays(), "label_nodes": self.label_nodes}
        indexings = []
        for number, each in enumerate(self.indexings):
            values, own = each.state()
            indexings.append({**values, "width": self.tfidf.width + each.matcher.width})
            arrays |= {f"{number}.{name}": array for name, array in own.items()}
        ngrams = {"ngram_range": shape.ngram_range, "n_features": shape.n_features}
        return {"labels": len(self.label_nodes), "ngrams": ngrams, "indexings": indexings}, arrays

    def write_files(self, folder: Path) -> None:
        """Write the networks of all matchers."""
        for number, each in enumerate(self.indexings):
            with files_to(folder, f"{number}.") as own:
                each.matcher.write_files(own)

    @classmethod
    def restored(
        cls,
        settings: NeuralSettings,
        hierarchy: Hierarchy,
        beam_size: int,
        stored: tuple[dict[str, Any], Arrays],
        folder: Path,
    ) -> "FittedXTransformer":
        """Read what was saved, without running any of it.

        Parameters
        ----------
        settings
            The settings of the model.
        hierarchy
            Its hierarchy.
        beam_size
            Clusters that are looked into.
        stored
            What `state` returned.
        folder
            Where `write_files` wrote.

        Returns
        -------
        FittedXTransformer
            The same model.
        """
        values, arrays = stored
        ngrams = values["ngrams"]
        shape = NgramShape(ngrams["ngram_range"], None, int(ngrams["n_features"]))
        tfidf = Tfidf(shape, arrays["buckets"], arrays["idf"])
        indexings = []
        for number, own in enumerate(values["indexings"]):
            kept = with_prefix(arrays, f"{number}.")
            clusters = cluster_hierarchy(own["clusters"])
            objective = Objective(own["matcher"]["loss"], clusters, kept["stop_nodes"], kept["frequencies"])
            with files_from(folder, f"{number}.") as files:
                stored_matcher = own["matcher"], kept
                matcher = FittedNetwork.restored(settings, matcher_architecture(""), objective, stored_matcher, files)
            if tfidf.width + matcher.width != own["width"]:
                raise TreelabelError(
                    f"rankers are of {own['width']:,} columns, but there are {tfidf.width:,} of tf-idf and "
                    f"{matcher.width:,} of the encoder"
                )
            rankers = Rankers(**with_prefix(kept, "ranker_"))
            indexings.append(Indexing(LabelTree.of(kept), matcher, rankers, own["slope"], own["intercept"]))
        return cls(hierarchy, arrays["label_nodes"], tfidf, tuple(indexings), beam_size)


def node_scores(hierarchy: Hierarchy, nodes: IntArray, probabilities: Sequence[sparse.csr_array]) -> Scores:
    """Average probabilities of labels, and raise nodes to those below them.

    Parameters
    ----------
    hierarchy
        The hierarchy.
    nodes
        The node of each label, increasing.
    probabilities
        Documents × labels, one for each indexing; a label that one of them has not looked at has 0 there.

    Returns
    -------
    Scores
        CSR.
    """
    mean = sparse.csr_array(sum(probabilities[1:], probabilities[0]) / np.float32(len(probabilities)), dtype=np.float32)
    shape = (mean.shape[0], len(hierarchy))
    return Scores(hierarchy, sparse.csr_array((mean.data, nodes[mean.indices], mean.indptr), shape)).coherent()


# Fitting


@dataclass(frozen=True, eq=False)
class _Data:
    """Training documents with their tf-idf and their labels (documents × labels), and those that are held out."""

    train: Training
    tfidf: sparse.csr_array
    labels: sparse.csr_array
    kept: LongArray
    held: Training | None
    held_tfidf: sparse.csr_array | None
    held_labels: sparse.csr_array | None


def fit_x_transformer(
    settings: NeuralSettings, options: Options, train: Training, identity: str
) -> tuple[FittedXTransformer, HeldOut | None]:
    """Fit all indexings; once time is up, no further one is begun.

    Parameters
    ----------
    settings
        The settings of the matchers, with an encoder.
    options
        Those of X-Transformer.
    train
        The training data.
    identity
        The system and its settings, which checkpoints belong to.

    Returns
    -------
    tuple
        What was learned, and the scores of documents that were held out of it, if there are any.
    """
    h = train.hierarchy
    terminal = h.most_specific(train.labels)
    nodes = np.unique(terminal.indices).astype(np.int32)
    tfidf, matrix = Tfidf.fit_transform(list(train.texts), NgramShape())
    kept, held = split_validation(settings, train)
    data = _Data(
        train,
        matrix,
        sparse.csr_array(terminal[:, nodes]),
        kept,
        held,
        None if held is None else tfidf.transform(list(held.texts)),
        None if held is None else sparse.csr_array(h.most_specific(held.labels)[:, nodes]),
    )
    names = [h.names[node] for node in nodes]
    found, on_held, cut_short = [], [], False
    for number, kind in enumerate(options.label_embeddings):
        folder = settings.checkpoint_dir and str(Path(settings.checkpoint_dir) / str(number))
        own = replace(settings, seed=settings.seed + number, checkpoint_dir=folder)
        share = MATCHER_SHARE / (len(options.label_embeddings) - number)
        features = label_features(kind, matrix, data.labels, names, own)
        tree = index_labels(features, cluster_count(len(nodes), options.n_clusters), own.seed)
        indexing, margins = _fit_indexing(own, options, data, tree, share, f"{identity} {number}")
        found.append(indexing)
        cut_short |= indexing.matcher.stopped
        if margins is not None:
            on_held.append(indexing.mapped(margins))
        if agreed_stop(train.stop):
            break
    if cut_short and train.stop.reason is None:
        # A matcher had to end before its time: what was learned is not all that could be.
        train.stop.reason = "deadline"
    fitted = FittedXTransformer(h, nodes, tfidf, tuple(found), options.beam_size)
    if held is None:
        return fitted, None
    return fitted, HeldOut(fitted.scores_of(on_held), held.labels, held.groups)


def _fit_indexing(
    settings: NeuralSettings, options: Options, data: _Data, tree: LabelTree, share: float, identity: str
) -> tuple[Indexing, sparse.csr_array | None]:
    """Fit the matcher and the rankers of some clusters; return the margins of held-out documents too.

    The map to probabilities is fitted to documents that neither matcher nor rankers have seen; rankers then learn from
    all documents, unless time is up.
    """
    train, stop = data.train, data.train.stop
    gold, positive = tree.above(data.labels)
    matcher = _fit_matcher(settings, data, tree, share, identity)
    vectors, margins = read_texts(matcher, train.texts, train.progress)
    features = joined_features(data.tfidf, vectors)
    shown = shown_documents(gold, best_clusters(margins, options.beam_size), options.negatives)
    solver = Solver(c=options.C, prune=PRUNE, seed=settings.seed)

    def rankers_of(rows: LongArray) -> Rankers:
        return train_rankers(features[rows], shown[rows], positive[rows], tree.children[1], solver, None, stop)

    rankers, on_held, fitted_map = rankers_of(data.kept), None, USUAL_MAP
    if data.held is not None and data.held_tfidf is not None and data.held_labels is not None:
        vectors, margins = read_texts(matcher, data.held.texts)
        beam = best_clusters(margins, options.beam_size)
        on_held = rank(joined_features(data.held_tfidf, vectors), beam, tree, rankers)
        fitted_map = fit_map(on_held, tree.above(data.held_labels)[-1])
        if len(data.kept) < len(train) and not stop:
            rankers = rankers_of(np.arange(len(train)))
    return Indexing(tree, matcher, rankers, *fitted_map), on_held


def _fit_matcher(settings: NeuralSettings, data: _Data, tree: LabelTree, share: float, identity: str) -> FittedNetwork:
    """Train a matcher in a share of the time that is left: clusters are the labels that it learns."""
    stop, clusters = data.train.stop, cluster_hierarchy(tree.sizes[0])
    now = time.monotonic()
    own = StopSignal(now + share * (stop.deadline - now))

    def training(texts: Strings, labels: sparse.csr_array, valid: Training | None) -> Training:
        return Training(texts, clusters_of(tree, labels), clusters, valid, data.train.progress, own)

    valid = None
    if data.held is not None and data.held_labels is not None:
        valid = training(data.held.texts, data.held_labels, None)
    shown = training(data.train.texts.take(data.kept), data.labels[data.kept], valid)
    found, _ = fit_network(settings, shown, matcher_architecture(identity))
    if own.reason == "interrupt":
        stop.interrupt()
    return found
