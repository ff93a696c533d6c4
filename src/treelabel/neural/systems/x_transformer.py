"""X-Transformer (Chang et al., KDD 2020): labels are put into clusters, a network finds the clusters of a text, and
linear rankers find its labels among those of the best clusters.

*Indexing*: labels with similar features (the mean tf-idf of their documents, or embeddings of their names) come into
clusters of the same size. *Matching*: an encoder learns which clusters the labels of a text are in, by squared hinge.
*Ranking*: each label has a squared-hinge classifier of tf-idf and the text vector of the encoder side by side, which
has seen only the documents that belong to its cluster, or that the matcher sends there. A text is ranked in its best
clusters alone.
"""

import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from scipy import sparse

from treelabel.calibration.candidates import CandidateSigmoid
from treelabel.core.array_schema import Schema
from treelabel.core.errors import TreelabelError
from treelabel.core.matrices import normalize_rows
from treelabel.core.stopping import StopSignal
from treelabel.core.strings import Strings
from treelabel.core.types import LongArray
from treelabel.core.validation import Between
from treelabel.encoders.cached_encoder import CachedEncoder
from treelabel.encoders.protocol import Encoder
from treelabel.encoders.registry import find_encoder
from treelabel.models.base import Training
from treelabel.models.extreme.cluster_ranking import (
    Negatives,
    best_clusters,
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
from treelabel.models.settings import Cost
from treelabel.neural.fitted_network import FittedNetwork
from treelabel.neural.fitting import fit_network, split_validation
from treelabel.neural.model import Neural, NeuralModel
from treelabel.neural.network import Network, NetworkSpec
from treelabel.neural.processes import agree_to_stop
from treelabel.neural.systems.x_transformer_indexing import (
    FittedXTransformer,
    Indexing,
    MatcherNetwork,
    XTransformerValues,
    read_texts,
    x_transformer_schema,
)
from treelabel.neural.training_arguments import Recipe, make_recipes
from treelabel.scores.score_matrix import Scores
from treelabel.selection.evidence import HeldOut
from treelabel.text.ngrams import NgramShape
from treelabel.text.tfidf import Tfidf

# Smaller weights of rankers are dropped.
PRUNE = 0.01
# The share of the time that is left which a matcher may take; its rankers have the rest.
MATCHER_SHARE = 0.6


def label_features(
    kind: LabelEmbedding, tfidf: sparse.csr_array, labels: sparse.csr_array, names: list[str], encoder: str | Encoder
) -> sparse.csr_array:
    """Compute the features by which labels are clustered: labels × features, rows of length 1."""
    if kind == "pifa-tfidf":
        return pifa(tfidf, labels)
    vectors = CachedEncoder(find_encoder(encoder)).transform(names)
    return sparse.csr_array(normalize_rows(vectors), dtype=np.float32)


@dataclass(frozen=True, eq=False)
class TfidfTexts:
    """Documents with their tf-idf and their labels (documents × labels); those in `rows` are not held out."""

    data: Training
    tfidf: sparse.csr_array
    labels: sparse.csr_array
    rows: LongArray
    held: "TfidfTexts | None" = None


def fit_x_transformer(model: "XTransformer", train: Training) -> tuple[FittedXTransformer, HeldOut | None]:
    """Fit all indexings; once time is up, no further one is begun. Return scores of held-out documents, too."""
    h = train.hierarchy
    terminal = h.most_specific(train.labels)
    nodes = np.unique(terminal.indices).astype(np.int32)
    tfidf, matrix = Tfidf.fit_transform(list(train.texts), NgramShape())
    rows, valid = split_validation(model, train)
    held = None
    if valid is not None:
        labels = sparse.csr_array(h.most_specific(valid.labels)[:, nodes])
        held = TfidfTexts(valid, tfidf.transform(list(valid.texts)), labels, np.arange(len(valid)))
    texts = TfidfTexts(train, matrix, sparse.csr_array(terminal[:, nodes]), rows, held)
    names = [h.names[node] for node in nodes]
    indexings, on_held, cut_short = [], [], False
    for number, kind in enumerate(model.label_embeddings):
        matcher = Matcher(model, number)
        features = label_features(kind, matrix, texts.labels, names, matcher.choose_encoder())
        tree = index_labels(features, cluster_count(len(nodes), model.n_clusters), matcher.seed)
        share = MATCHER_SHARE / (len(model.label_embeddings) - number)
        indexing, margins = _fit_indexing(model, matcher, texts, tree, share)
        indexings.append(indexing)
        cut_short |= any(stage.stopped for stage in indexing.matcher.stages)
        if margins is not None:
            on_held.append(indexing.to_probabilities(margins))
        if agree_to_stop(train.stop):
            break
    if cut_short and train.stop.reason is None:
        # A matcher had to end before its time: what was learned is not all that could be.
        train.stop.reason = "deadline"
    fitted = FittedXTransformer(h, nodes, tfidf, tuple(indexings), model.beam_size)
    return fitted, None if valid is None else HeldOut(fitted.scores_of(on_held), valid.labels, valid.groups)


def _fit_indexing(
    model: "XTransformer", matcher: NeuralModel, texts: TfidfTexts, tree: LabelTree, share: float
) -> tuple[Indexing, sparse.csr_array | None]:
    """Fit the matcher and the rankers of some clusters; return the margins of held-out documents too.

    The calibration is fitted to documents that neither matcher nor rankers have seen; rankers then learn from
    all documents, unless time is up.
    """
    train, stop, held = texts.data, texts.data.stop, texts.held
    targets, positive = tree.above(texts.labels)
    fitted = _fit_matcher(matcher, texts, tree, share)
    vectors, margins = read_texts(fitted, train.texts, train.progress)
    features = joined_features(texts.tfidf, vectors)
    shown = shown_documents(targets, best_clusters(margins, model.beam_size), model.negatives)
    solver = Solver(c=model.C, prune=PRUNE, seed=matcher.seed)

    def rankers_of(rows: LongArray) -> Rankers:
        return train_rankers(features[rows], shown[rows], positive[rows], tree.children[1], solver, None, stop)

    rankers, on_held, calibration = rankers_of(texts.rows), None, CandidateSigmoid()
    if held is not None:
        vectors, margins = read_texts(fitted, held.data.texts)
        beam = best_clusters(margins, model.beam_size)
        on_held = rank(joined_features(held.tfidf, vectors), beam, tree, rankers)
        calibration = calibration.fit(on_held, tree.above(held.labels)[-1])
        if len(texts.rows) < len(train) and not stop:
            rankers = rankers_of(np.arange(len(train)))
    return Indexing(tree, fitted, rankers, calibration), on_held


def _fit_matcher(matcher: NeuralModel, texts: TfidfTexts, tree: LabelTree, share: float) -> FittedNetwork:
    """Train a matcher in a share of the time that is left: clusters are the labels that it learns."""
    stop, clusters = texts.data.stop, cluster_hierarchy(tree.sizes[0])
    now = time.monotonic()
    local = StopSignal(now + share * (stop.deadline - now))

    def training(some: TfidfTexts, valid: Training | None) -> Training:
        labels = clusters_of(tree, some.labels[some.rows])
        return Training(some.data.texts.take(some.rows), labels, clusters, valid, texts.data.progress, local)

    valid = None if texts.held is None else training(texts.held, None)
    fitted, _ = fit_network(matcher, training(texts, valid))
    if local.reason == "interrupt":
        stop.interrupt()
    return fitted


@dataclass(eq=False, repr=False)
class XTransformer(NeuralModel):
    """X-Transformer (Chang et al., KDD 2020): a network finds clusters of labels, linear rankers the labels in them.

    Labels are put into clusters of the same size by their features. An encoder learns which clusters a text has labels
    in (squared hinge; with mode="head", outputs over its frozen embeddings). Each label has a linear ranker of tf-idf
    and the text vector side by side. A text is ranked in its best `beam_size` clusters, and labels of other clusters
    have no score: scoring costs the encoder and beam_size × labels of a cluster, however many labels there are. Margins
    become probabilities by a sigmoid that is fitted to held-out documents. Differences from the paper: a cluster counts
    once for a document, however many of its labels the document has; and see `mode`, for a CPU affords no three large
    encoders.

    Settings that all systems have: see `NeuralModel` and `TrainingArguments`.

    Parameters
    ----------
    label_embeddings
        The features of labels: "pifa-tfidf", the mean tf-idf of their documents, or "text-emb", embeddings of their
        names by the encoder, which must be a pretrained one. With several, one after the other is learned, each with
        its own clusters, network and rankers, and probabilities are averaged; the same one may be there several times.
    n_clusters
        The number of clusters; 0 chooses one by which clusters have from 25 to 100 labels.
    beam_size
        Clusters that a text is ranked in, and that its negatives are taken from.
    negatives
        The documents that the rankers of a cluster learn from: "gold", those with labels in it (teacher forcing);
        "matcher", those that have it among their best `beam_size`; or "both".
    C
        The inverse of the regularisation of rankers.
    """

    name = "x_transformer"
    learned: ClassVar[Any] = XTransformerValues
    fitted_: FittedXTransformer = field(init=False)  # type: ignore[assignment]
    recipes = make_recipes(Recipe(30, 128, 5e-3), 5e-5, hidden=1e-3, outputs=1e-3)
    has_own_loss = True

    label_embeddings: tuple[LabelEmbedding, ...] = ("pifa-tfidf",)
    n_clusters: Annotated[int, Between(0, 1 << 24)] = 0
    beam_size: Annotated[int, Between(1, 1 << 16)] = 10
    negatives: Negatives = "both"
    C: Cost = 1.0

    def _check_settings(self) -> None:
        super()._check_settings()
        if not self.label_embeddings:
            raise TreelabelError(
                "the setting label_embeddings of the model x_transformer is empty; expected one at least"
            )
        if "text-emb" in self.label_embeddings and self.encoder == "scratch":
            raise TreelabelError("label_embeddings=text-emb needs an encoder that knows words already, found scratch")

    def _fit(self, train: Training) -> HeldOut | None:
        self.fitted_, held = fit_x_transformer(self, train)
        return held

    def _score_top(self, texts: Strings, top: int) -> Scores:
        return self.fitted_.score(texts, top)

    @property
    def exhaustive(self) -> bool:
        """Every label has a probability of its own."""
        return False

    def export(self, runtime: Literal["onnx", "int8"] = "onnx") -> Neural:
        """Refuse: rankers are no part of a network."""
        raise TreelabelError("the model x_transformer ranks by sparse tf-idf, which is no graph of one transformer")

    # Saving

    def _schema(self, values: dict[str, Any]) -> Schema:
        self._check_settings()
        if len(values["indexings"]) > len(self.label_embeddings):
            raise TreelabelError(f"there are {len(values['indexings'])} indexings, more than label_embeddings names")
        for local in values["indexings"]:
            self._require_mode("encoder" in local["matcher"]["featurizer"])
        return x_transformer_schema(self.hierarchy_, values)

    def _read_files(self, folder: Path) -> None:
        stored = self.__dict__.pop("_stored")
        self.fitted_ = FittedXTransformer.restore(Matcher(self, 0), self.hierarchy_, self.beam_size, stored, folder)


class Matcher(NeuralModel):
    """The part of X-Transformer that finds the clusters of a text; clusters are its labels.

    Parameters
    ----------
    owner
        The X-Transformer.
    number
        The number of its indexing, each of which has checkpoints and a seed of its own.
    """

    name = XTransformer.name
    recipes = XTransformer.recipes

    def __init__(self, owner: XTransformer, number: int) -> None:
        folder, training = owner.training.checkpoint_dir, owner.training
        super().__init__(
            encoder=owner.encoder,
            mode=owner.mode,
            max_length=owner.max_length,
            pooling=owner.pooling,
            dropout=owner.dropout,
            training=replace(training, checkpoint_dir=None if folder is None else str(Path(folder) / str(number))),
            seed=owner.seed + number,
        )
        self.owner, self.number = owner, number

    def flat_settings(self) -> dict[str, Any]:
        """Return what identifies the run that a checkpoint belongs to: all settings of the system."""
        return {**self.owner.flat_settings(), "number": self.number}

    def make_network(self, spec: NetworkSpec) -> Network:
        """Make the network: see `NeuralModel.make_network`."""
        return MatcherNetwork(spec)
