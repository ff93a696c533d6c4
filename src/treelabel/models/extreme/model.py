"""The model for very many labels: rankers in label trees, prototypes, calibrated scores of the best labels."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from scipy import sparse

from treelabel.calibration.candidates import PARTS, CandidateLogistic, Candidates
from treelabel.core.array_schema import Arrays, Schema, indices, with_prefix
from treelabel.core.bounded_memory import release_freed_memory
from treelabel.core.progress import progress_bar
from treelabel.core.strings import Strings
from treelabel.core.types import IntArray
from treelabel.core.validation import Between
from treelabel.encoders.cached_encoder import CachedEncoder
from treelabel.encoders.protocol import Encoder
from treelabel.encoders.registry import find_encoder
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.models.base import Model, Training
from treelabel.models.descriptions import Descriptions, check_descriptions, described_names
from treelabel.models.extreme.cluster_ranking import Negatives
from treelabel.models.extreme.clustering import cluster_labels
from treelabel.models.extreme.forest import Forest, Make, fit_forest, tree_sizes
from treelabel.models.extreme.label_tree import hierarchy_tree
from treelabel.models.extreme.rankers import Solver
from treelabel.models.settings import Buckets, Cost, Count, Folds, NgramRange, NonNegative, PartialShare, Seed
from treelabel.models.sparse_featurizer import MOST_WIDTH, FeatureValues, SparseFeaturizer
from treelabel.scores.score_matrix import Scores
from treelabel.selection.evidence import HeldOut
from treelabel.selection.feature_choice import shape_of
from treelabel.selection.training import validation_folds
from treelabel.text.ngrams import NgramShape
from treelabel.text.tfidf import Tfidf

# This share of the documents is held out, but not more than this many: three weights are fitted.
VALIDATION_FRACTION = 0.1
MOST_HELD_OUT = 3_000
# Where a smaller share is held out, what has been learned without it is kept.
NEGLIGIBLE = 0.01


class ExtremeValues(FeatureValues):
    """Where features come from, and the number of nodes of each level of each tree."""

    labels: Annotated[int, Between(1, MOST_WIDTH)]
    trees: list[list[Annotated[int, Between(1, MOST_WIDTH)]]]


@dataclass(eq=False, repr=False)
class Extreme(Model):
    """Linear rankers in a forest of label trees, for up to a million labels.

    Labels are clustered by the mean of their documents (PIFA), by balanced k-means. On each level of a tree, one
    squared-hinge classifier per child of a cluster is learned from the documents of the cluster; a document's best
    clusters are followed down, and all other labels are never looked at. For the candidates that remain,

        logit P(label) = a x ln(mean over trees of the product of exp(-squared hinge loss) along the path)
                         + b x cosine(document, mean of the label's documents)
                         + c x cosine(document, the label's name) + d

    with a, b, c >= 0 and d fitted on held-out documents. The name of a label is one more document of it, so that labels
    with few documents gain most, and labels without any are found too. Where documents have one path each,
    probabilities that sum to more than 1 are scaled to 1, and a node has the sum of those below it; with several paths
    it has the largest of them.

    Learning costs about trees x documents x labels per document x features per document x leaf_size / 16 for each of
    some five passes; it is done once more without the documents that are held out, `cv` times more with up to 3,000
    documents, and only without them where they are less than 1%. Scoring a document costs about trees x beam_size x its
    features x levels, which grows with the logarithm of the number of labels. Scores are sparse: no more than
    `n_candidates` labels per document, and their ancestors. Words are weighed by all documents, those held out too.

    Parameters
    ----------
    hierarchy : Hierarchy or None
        The hierarchy, where training data have none of their own.
    tree : {"clusters", "hierarchy"}
        Whether labels are clustered, or the hierarchy itself is the one label tree.
    n_trees : int
        The number of trees, which differ in the first centres of clusters.
    leaf_size : int
        Labels of a cluster, about.
    beam_size : int
        Clusters of each level that a document is sent to.
    n_candidates : int
        Labels that are scored for a document, at most.
    negatives : {"gold", "matcher", "both"}
        The documents that the rankers of a cluster are shown: those that have a label of the cluster (teacher forcing),
        those that the level above sends there (matcher-aware negatives), or both.
    propensity : float
        How much more errors on a label's own documents count where it is rare: 1 / its propensity, to this power.
    label_text : bool
        Whether the names of labels are documents of theirs.
    descriptions : mapping, str or None
        Descriptions of labels that take the place of their names.
    ngram_range, char_ngram_range : (int, int) or None
        The shortest and the longest n-grams of words, and of characters within words; None for none.
    min_df : int
        N-grams are features if at least this many documents have them.
    n_features : int
        The number of buckets that n-grams are hashed to.
    encoder : str, Encoder or None
        Adds embeddings to the features.
    encoder_weight : float
        The share of embeddings in the squared length of a text's features.
    C : float
        The weight of errors against that of large weights.
    prune : float
        Weights below this are dropped.
    validation_fraction : float or None
        The share of documents that the weights of the sum above are fitted on. None takes every document of up to
        3,000, in `cv` folds, and else 10%, or 3,000. With a validation set, that is used instead.
    cv : int
        Folds where documents are few.
    max_iter : int
        Passes over the documents at most.
    seed : int
        Seed of the random numbers.
    optimize : str or None
        The metric that predictions will be judged by, a row of METRICS: the default rule is chosen for it. None stands
        for leaf accuracy of documents with one leaf each, and for hF1 of others.
    """

    name = "extreme"
    learned = ExtremeValues
    takes_features = True
    # How many columns of the evidence for a candidate count.
    parts: ClassVar[int] = PARTS

    hierarchy: Hierarchy | None = None
    tree: Literal["clusters", "hierarchy"] = "clusters"
    n_trees: Annotated[int, Between(1, 100)] = 3
    leaf_size: Annotated[int, Between(2, 1 << 20)] = 100
    beam_size: Annotated[int, Between(1, 1 << 20)] = 10
    n_candidates: Annotated[int, Between(1, 1 << 20)] = 50
    negatives: Negatives = "gold"
    propensity: Annotated[float, Between(0, 10)] = 0.0
    label_text: bool = True
    descriptions: Descriptions = None
    ngram_range: NgramRange | None = (1, 1)
    char_ngram_range: NgramRange | None = None
    min_df: Count = 1
    n_features: Buckets = 2**22
    encoder: str | Encoder | None = None
    encoder_weight: Annotated[float, Between(0, 1)] = 0.5
    C: Cost = 1.0
    prune: NonNegative = 0.1
    validation_fraction: PartialShare | None = None
    cv: Folds = 5
    max_iter: Annotated[int, Between(1, 10_000)] = 7
    seed: Seed = 0
    optimize: str | None = None

    @property
    def exhaustive(self) -> bool:
        """Whether the scores of children sum to their parent's: not where labels are off the beam."""
        return False

    def _check_settings(self) -> None:
        check_descriptions(self.descriptions)
        _ = self._shape

    # Learning

    def _fit(self, train: Training) -> HeldOut | None:
        encoder = None if self.encoder is None else CachedEncoder(find_encoder(self.encoder))
        self.featurizer_, features = SparseFeaturizer.fit(train, self._shape, self.min_df, encoder, self.encoder_weight)
        names = None
        if self.label_text and train.features is None:
            texts = Strings.of(described_names(train.hierarchy, self.descriptions))
            names = self.featurizer_.rows(texts, train.progress)
        calibration = self._calibration(self._labels(train, names))
        self.labels_ = calibration.labels
        names = None if names is None else sparse.csr_array(names[self.labels_])
        targets = calibration.targets(train.labels)
        every, folds = train, [np.zeros(0, np.int64)]
        if train.valid is None:
            usual = min(int(VALIDATION_FRACTION * len(train)), MOST_HELD_OUT)
            folds = validation_folds(train, self.cv, self.validation_fraction, usual, self.seed)
        else:
            every = train.valid
            valid = self.featurizer_.rows(every.texts if every.features is None else every.features, train.progress)
        again = train.valid is None and len(folds[0]) > NEGLIGIBLE * len(train)
        held_out: list[Candidates] = []
        trees = self.n_trees if self.tree == "clusters" else 1
        solver, ticks = Solver(self.C, self.max_iter, self.prune, self.seed), count(1)
        how = self._makers(), solver, self.negatives, self.beam_size, self.propensity, train.stop
        with progress_bar("learning", (len(folds) + again) * trees, train.progress) as done:
            learn = partial(fit_forest, features, targets, names, *how, lambda: done(next(ticks)))
            for number, fold in enumerate(folds):
                if number and train.stop:
                    break
                others = np.setdiff1d(np.arange(len(train)), fold, assume_unique=True) if len(fold) else None
                self.forest_ = learn(others)
                held = features[fold] if train.valid is None else valid
                held_out.append(self.forest_.candidates(held, self.beam_size, self.n_candidates))
            rows = np.concatenate(folds[: len(held_out)]) if train.valid is None else np.arange(len(every))
            candidates = Candidates.concat(held_out)
            self.calibration_ = calibration.fit(candidates, every.labels[rows])
            if again and not train.stop:
                # What was learned without the held-out documents makes room.
                del self.forest_
                self.forest_ = learn()
        release_freed_memory()
        return HeldOut.of(self.calibration_.probabilities(candidates), every[rows]) if len(rows) else None

    def _labels(self, train: Training, names: sparse.csr_array | None) -> IntArray:
        """Return the nodes that are labels: where paths of documents end, and leaves whose name is known."""
        h = train.hierarchy
        is_label = np.bincount(h.most_specific(train.labels).indices, minlength=len(h)) > 0
        if names is not None:
            is_label |= h.is_leaf & (np.diff(names.indptr) > 0)
        return np.flatnonzero(is_label).astype(np.int32)

    def _calibration(self, labels: IntArray) -> CandidateLogistic:
        return CandidateLogistic(self.hierarchy_, labels, self.regime_ == "multi_path", self.parts)

    def _makers(self) -> Sequence[Make]:
        """Return what makes each tree."""
        if self.tree == "hierarchy":
            return [lambda _: hierarchy_tree(self.hierarchy_, self.labels_)]
        sizes = tree_sizes(len(self.labels_), self.leaf_size)
        return [partial(cluster_labels, sizes=sizes, seed=self.seed + 100 * each) for each in range(self.n_trees)]

    # Features

    @property
    def _shape(self) -> NgramShape:
        return shape_of(self.ngram_range, self.char_ngram_range, self.n_features)

    # Scoring

    def _known_words(self) -> Tfidf | None:
        return self.featurizer_.tfidf

    def _score(self, texts: Strings) -> Scores:
        features = self.featurizer_.rows(texts)
        candidates = self.forest_.candidates(features, self.beam_size, self.n_candidates)
        return Scores(self.hierarchy_, self.calibration_.probabilities(candidates))

    def _score_top(self, texts: Strings, top: int) -> Scores:
        return self._score(texts).top_k(top)

    # Saving

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        trees = [tree.sizes for tree, _ in self.forest_.trees]
        values = {**self.featurizer_.values(), "labels": len(self.labels_), "trees": trees}
        arrays: dict[str, Any] = {**self.featurizer_.arrays(), "labels": self.labels_, **self.calibration_.arrays()}
        return values, arrays | {f"forest.{name}": array for name, array in self.forest_.arrays().items()}

    def _schema(self, values: dict[str, Any]) -> Schema:
        arrays, sizes, most = SparseFeaturizer.schema(values)
        nodes = len(self.hierarchy_)
        exclusive = {"labels": indices("labels", "nodes", rising=True), **CandidateLogistic.parameters}
        forest = Forest.schema(values["trees"], values["labels"], values["width"])
        known = {**sizes, "nodes": nodes, "labels": values["labels"]}
        return Schema({**arrays, **exclusive}, sizes=known, most=most, parts={"forest.": forest})

    def _restore(self, values: dict[str, Any], arrays: Arrays) -> None:
        self.featurizer_ = SparseFeaturizer.of(values, arrays, self.encoder, self.encoder_weight)
        self.labels_ = arrays["labels"]
        self.calibration_ = self._calibration(self.labels_).restore(arrays)
        forest = with_prefix(arrays, "forest.")
        self.forest_ = Forest.of(values["trees"], len(self.labels_), values["width"], forest)
