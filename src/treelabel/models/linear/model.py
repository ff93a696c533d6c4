"""The default model: tf-idf of n-grams, linear outputs, and a calibrated distribution over the hierarchy."""

import warnings
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, Self, TypedDict, cast

import numpy as np
from scipy import sparse

from treelabel.core.array_schema import Arrays, Schema
from treelabel.core.errors import TreelabelError
from treelabel.core.strings import Strings
from treelabel.core.types import LongArray
from treelabel.core.validation import Between
from treelabel.encoders.cached_encoder import CachedEncoder
from treelabel.encoders.protocol import Encoder
from treelabel.encoders.registry import default_encoder, find_encoder
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.label_matrices import label_matrix
from treelabel.hierarchy.labelled_texts import stop_nodes, usual_regime
from treelabel.hierarchy.moves import Moves
from treelabel.models.base import Model, Training
from treelabel.models.linear.descent import TrainingRows
from treelabel.models.linear.explanation import PathStep, explain_step, weigh_terms
from treelabel.models.linear.heads import (
    MOST_GROWTH,
    FittedHead,
    HeadTask,
    find_head,
    fit_head,
    refit_head,
    rename_outputs,
)
from treelabel.models.persistence.schema import MOST_DIMENSION, AllNgrams, EncoderNote, require_width, saved_shape
from treelabel.models.profile import prior_scores, replace_rows
from treelabel.models.settings import Buckets, Cost, Count, Folds, NgramRange, NonNegative, PartialShare, Seed
from treelabel.models.sparse_featurizer import SparseFeaturizer
from treelabel.rules.decisions import decide
from treelabel.rules.registry import DEFAULT_RULES
from treelabel.scores.score_matrix import Scores
from treelabel.selection.evidence import HeldOut, SettingTrial
from treelabel.selection.feature_choice import AUTO, choose_features, shape_of
from treelabel.selection.training import validation_folds
from treelabel.text.ngrams import NgramShape
from treelabel.text.tfidf import Occurrences, Tfidf

if TYPE_CHECKING:
    from treelabel.models.extreme.model import Extreme

# This share of the documents is held out, but fewer where there are very many labels, as the margins of all labels are
# kept until calibration.
VALIDATION_FRACTION = 0.2
MOST_HELD_MARGINS = 1 << 26
FEWEST_HELD_OUT = 200
# From this many documents on, conditional heads are tried.
WORTH_A_HEAD = 5_000
# Words of all texts x labels that one output per label is learned for: about a minute of one core, and twice that for
# calibration.
MOST_WORK = 5e10
BYTES_A_WORD = 6
# Settings that `extreme` has too.
SHARED = ("min_df", "n_features", "encoder", "encoder_weight", "validation_fraction", "cv", "max_iter", "seed")


class HandoverWarning(UserWarning):
    """One output per label would take too long, so that another model learns."""


class LinearValues(TypedDict):
    """The head, and where features come from."""

    head: str
    encoder: EncoderNote | None
    ngrams: AllNgrams | None
    encoder_width: NotRequired[Annotated[int, Between(0, MOST_DIMENSION)]]
    extreme: NotRequired[dict[str, Any]]


@dataclass(eq=False, repr=False)
class Linear(Model):
    """tf-idf and linear outputs, turned into probabilities on documents held out of training.

    With a squared hinge loss and one path per document, the probability of a terminal node is a softmax of v_0 x its
    margin + the sum over its ancestors of v_level x theirs, and a node has the sum of its terminal nodes; with several
    paths it is an isotonic function of the node's margin and of its log odds in such a softmax, made coherent.
    Conditional heads multiply along the path. Training costs about documents x n-grams per document x labels / 16 for
    each of some ten passes, thirty where documents are few. What "auto" tried is in `evidence_`. Where that would take
    many minutes, with very many labels and documents, `head="auto"` hands over to `extreme`, and says so. A text
    without any known n-gram gets the share of the training documents that have each node.

    Parameters
    ----------
    hierarchy : Hierarchy or None
        The hierarchy, where training data have none of their own.
    head : str
        A row of HEADS, or "auto": "nodes", or from 5,000 documents on the conditional head that suits the labels if it
        has a smaller loss on held-out documents of a sample.
    tau : float
        How much conditional_softmax adjusts its logits for rare siblings.
    ngram_range : (int, int), "auto" or None
        The shortest and the longest n-grams of words; None for no words. "auto" takes pairs of words, and characters,
        where held-out documents of a sample are worth their cost: words alone, (1, 2), and with characters (4, 4).
        Words of each length, and characters, are scaled apart; longer n-grams weigh half.
    char_ngram_range : (int, int), "auto" or None
        The same of characters within words, such as (3, 5); "auto" goes with that of words.
    min_df : int
        N-grams are features if at least this many documents have them.
    n_features : int
        The number of buckets that n-grams are hashed to.
    tfidf : bool
        Whether n-grams are features at all.
    encoder : str, Encoder or None
        Adds embeddings to the features.
    encoder_weight : float
        The share of embeddings in the squared length of a text's features; without `tfidf` it is 1.
    C : float or None
        The weight of errors against that of large weights; None for the head's own, 3 for a hinge loss and 100 for
        logistic regression.
    prune : float
        Weights below this are dropped.
    validation_fraction : float or None
        The share of documents whose margins, as learned without them, calibrate the model, which learns from all. None
        takes every document of up to 3,000, in `cv` folds, and else 20%, or fewer where labels are very many. With a
        validation set, calibration uses that, and nothing is held out.
    cv : int
        Folds where documents are few.
    max_iter : int
        Passes over the documents at most.
    seed : int
        Seed of the random numbers.
    optimize : str or None
        The metric that predictions will be judged by, a row of METRICS: n-grams, head and default rule are chosen for
        it. None chooses n-grams and head by log loss, and the rule for leaf accuracy of documents with one leaf each,
        and for hF1 of others.
    """

    name = "linear"
    learned = LinearValues
    takes_sample_weight = True

    hierarchy: Hierarchy | None = None
    head: str = "auto"
    tau: Annotated[float, Between(0, 100)] = 0.0
    ngram_range: NgramRange | Literal["auto"] | None = "auto"
    char_ngram_range: NgramRange | Literal["auto"] | None = "auto"
    min_df: Count = 1
    n_features: Buckets = 2**22
    tfidf: bool = True
    encoder: str | Encoder | None = None
    encoder_weight: Annotated[float, Between(0, 1)] = 0.5
    C: Cost | None = None
    prune: NonNegative = 0.01
    validation_fraction: PartialShare | None = None
    cv: Folds = 5
    max_iter: Annotated[int, Between(1, 10000)] = 7
    seed: Seed = 0
    optimize: str | None = None

    def _check_settings(self) -> None:
        if self.head != "auto":
            find_head(self.head)
        if self.tfidf and self.encoder is None and self.ngram_range is None and self.char_ngram_range is None:
            raise TreelabelError(
                "ngram_range and char_ngram_range are both None, so that there is nothing to learn from; expected a "
                "range such as (1, 1) for one of them, or an encoder"
            )
        _ = self._shapes()

    # Learning

    def _fit(self, train: Training) -> HeldOut | None:
        self.extreme_ = None
        labels = int((train.frequencies > 0).sum())
        is_too_much = train.texts.nbytes / BYTES_A_WORD * labels > MOST_WORK
        if self.head == "auto" and self.tfidf and train.weights is None and is_too_much:
            warnings.warn(
                HandoverWarning(
                    f"{len(train):,} texts with {labels:,} labels: one output per label would take too long, so the "
                    "model extreme learns instead; head='nodes' insists on one output per label"
                ),
                stacklevel=2,
            )
            self.trials_: Sequence[SettingTrial] = ()
            self.extreme_ = self._successor()
            return self.extreme_._fit(train)
        heads, shapes = self._heads(train), self._shapes()
        encoder = None
        if self.encoder is not None or not self.tfidf:
            encoder = CachedEncoder(default_encoder() if self.encoder is None else find_encoder(self.encoder))
        every = train if train.valid is None else train.followed_by(train.valid)
        folds = self._folds(train) if train.valid is None else [np.arange(len(train), len(every))]
        nothing = sparse.csr_array((len(every), 0), dtype=np.float32)
        rows = TrainingRows(nothing, folds, self.max_iter, self.seed, train.valid is None, every.weights)
        job = HeadTask(rows, every, self.C, self.tau, self.prune)

        def score(head: str, sample: Training, held: LongArray, features: sparse.csr_array) -> Any:
            some = replace(rows, folds=[held], learn_all=False, weights=sample.weights, features=features)
            # No weight is stored: only the margins of held-out documents are looked at.
            return fit_head(head, replace(job, train=sample, rows=some, prune=np.inf)).p

        features_of = partial(self._trial_features, encoder)
        choice = choose_features(train, shapes, heads, features_of, score, self.seed, self.optimize)
        self.trials_ = choice.trials
        features = self._fit_features(train, every, choice.shape, encoder)
        # A validation set was not learned from, and its rows are those of new documents already.
        new = self.featurizer_.held_rows(features, folds, self.min_df) if train.valid is None else None
        rows = replace(rows, features=features, new=new)
        job = replace(job, rows=rows, flat=True)
        self.head_, p, flat = fit_head(choice.head, job)
        return HeldOut.of(p, every[rows.held], flat)

    def _trials(self) -> Sequence[SettingTrial]:
        return self.trials_

    def _heads(self, train: Training) -> list[str]:
        """Return the heads to try."""
        if self.head != "auto":
            find_head(self.head).refuse(train)
            return [self.head]
        if len(train) < WORTH_A_HEAD:
            return ["nodes"]
        one_path = train.regime != "multi_path" and train.hierarchy.is_tree
        return ["nodes", "conditional_softmax" if one_path else "conditional_sigmoid"]

    def _shapes(self) -> list[NgramShape]:
        """Return the shapes of n-grams to try; with an encoder, words are enough."""
        words = [self.ngram_range] if self.ngram_range != "auto" else [shape[0] for shape in AUTO]
        characters = [self.char_ngram_range] if self.char_ngram_range != "auto" else [shape[1] for shape in AUTO]
        if self.ngram_range == "auto" and self.char_ngram_range != "auto":
            words, characters = words[:2], characters * 2
        elif self.ngram_range != "auto" and self.char_ngram_range == "auto":
            words, characters = words * 2, characters[1:]
        pairs = list(zip(words, characters, strict=True))
        if self.encoder is not None or not self.tfidf:
            pairs = pairs[:1]
        return [shape_of(*pair, self.n_features) for pair in pairs]

    def _folds(self, train: Training) -> list[LongArray]:
        """Divide the documents that outputs are calibrated on; at least one is left to learn from."""
        most = max(FEWEST_HELD_OUT, MOST_HELD_MARGINS // len(train.hierarchy))
        usual = min(int(VALIDATION_FRACTION * len(train)), most)
        return validation_folds(train, self.cv, self.validation_fraction, usual, self.seed)

    # Going on

    def _chosen_settings(self) -> dict[str, Any]:
        if self.extreme_ is not None:
            return {}
        chosen: dict[str, Any] = {**super()._chosen_settings(), "head": self.head_.head}
        if self.featurizer_.tfidf is not None:
            shape = self.featurizer_.tfidf.shape
            chosen |= {"ngram_range": shape.ngram_range, "char_ngram_range": shape.char_ngram_range}
        return chosen

    def _update(self, more: Training | None, moves: Moves) -> Self:
        if more is not None or self.extreme_ is not None:
            return super()._update(more, moves)
        made = copy(self)
        made.hierarchy, made.hierarchy_ = None, moves.new
        made.head_ = rename_outputs(self.head_, moves)
        made.stop_nodes_ = np.sort(moves.forward[self.stop_nodes_].indices)
        return made

    def _refit(self, train: Training, before: int) -> Self:
        keeps = self.extreme_ is None and train.regime == self.regime_ and len(train) <= MOST_GROWTH * before
        # A label that was split, say, leaves its documents at an inner node.
        usual = usual_regime(train.hierarchy, train.labels) == "single_path"
        changed = self.optimize is None and usual != (self.rule_ == DEFAULT_RULES["single_path"])
        # A promise is one of weights that learned without the documents that calibrated it.
        if not keeps or train.weights is not None or changed or self.evidence_.guarantee is not None:
            return super()._refit(train, before)
        find_head(self.head_.head).refuse(train)
        made = self._relearn(train, self.featurizer_.encoder)
        made.stopped_, made.stop_nodes_ = None, stop_nodes(train.hierarchy, train.labels)
        # Nothing is held out: the rule and its evidence are those of the first fit.
        made.rule_, made.evidence_, made.irregular_documents_ = self.rule_, self.evidence_, ""
        made.stopped_ = train.stop.reason
        return made

    def _relearn(self, train: Training, encoder: CachedEncoder | None) -> Self:
        """Return a model whose weights are learned anew; n-grams, head and calibration are those of this one.

        Parameters
        ----------
        train : Training
            All documents.
        encoder : CachedEncoder or None
            Makes embeddings.

        Returns
        -------
        Linear
        """
        made = type(self)(**(self.get_params(deep=False) | self._chosen_settings() | {"hierarchy": None}))
        made.extreme_, made.trials_ = None, ()
        made.hierarchy_, made.regime_ = train.hierarchy, train.regime
        shape = None if self.featurizer_.tfidf is None else self.featurizer_.tfidf.shape
        features = made._fit_features(train, train, shape, encoder)
        rows = TrainingRows(features, [], self.max_iter, self.seed, skipped=made._folds(train))
        made.head_ = refit_head(self.head_, HeadTask(rows, train, self.C, self.tau, self.prune))
        return made

    # Features

    def _trial_features(
        self, encoder: CachedEncoder | None, texts: Strings, shapes: Sequence[NgramShape], held: LongArray
    ) -> Callable[[NgramShape], sparse.csr_array]:
        """Return what turns texts into features; n-grams that are the first kinds of the last ones are counted once."""
        featurizer = SparseFeaturizer(0, None, encoder, self.encoder_weight)
        every = Occurrences.of(texts, shapes[-1]) if self.tfidf else None
        order = np.arange(len(texts))
        order[held] = len(texts) + np.arange(len(held))

        def features(shape: NgramShape) -> sparse.csr_array:
            if every is None:
                return featurizer.with_embeddings(None, texts)
            counted = every if shape.is_start_of(every.shape) else Occurrences.of(texts, shape)
            tfidf, rows = Tfidf.learn(counted, shape, self.min_df)
            rows = featurizer.with_embeddings(rows, texts)
            new = replace(featurizer, tfidf=tfidf).held_rows(rows, [held], self.min_df)
            return sparse.csr_array(sparse.vstack([rows, new], format="csr")[order])

        return features

    def _fit_features(
        self, train: Training, every: Training, shape: NgramShape | None, encoder: CachedEncoder | None
    ) -> sparse.csr_array:
        """Learn features from training documents, and return those of every document."""
        self.featurizer_, rows = SparseFeaturizer.fit(
            train, shape if self.tfidf else None, self.min_df, encoder, self.encoder_weight, singles_by_text=True
        )
        return rows if every is train else self.featurizer_.rows(every.texts, train.progress)

    # Scoring

    def _score(self, texts: Strings) -> Scores:
        return self._score_top(texts, None)

    def _score_top(self, texts: Strings, top: int | None) -> Scores:
        if self.extreme_ is not None:
            return self.extreme_._score(texts) if top is None else self.extreme_._score_top(texts, top)
        features = self.featurizer_.rows(texts)
        if self.featurizer_.encoder is not None:
            require_width(features, self.featurizer_.width, self)
        values = self.head_.probabilities(features, top)
        if self.featurizer_.encoder is None and hasattr(self, "profile_"):
            # Without any feature, calibration has no evidence to go by. A model within a stack, which counts nothing
            # itself, leaves that to the weights of the stack.
            blank = np.diff(features.indptr) == 0
            values = replace_rows(values, blank, prior_scores(self.profile_, self.hierarchy_, self.regime_), top)
        return Scores(self.hierarchy_, values)

    @property
    def exhaustive(self) -> bool:
        """Whether the scores of children sum to their parent's: not where `extreme` has taken over."""
        return getattr(self, "extreme_", None) is None

    def _known_words(self) -> Tfidf | None:
        return self.featurizer_.tfidf if self.extreme_ is None else self.extreme_._known_words()

    # Explaining

    def explain(self, text: str, node: int | None = None, most: int = 8) -> list[PathStep]:
        """List the n-grams of a text that support and oppose each step of the path to its best leaf, or to a node.

        A contribution is the n-gram's weight in the text times its weight for the label; embeddings are left out.

        Parameters
        ----------
        node : int or None
            The node to explain; by default the best leaf.
        most : int
            N-grams to list on either side, at most.

        Returns
        -------
        list of PathStep
            The steps, from the first level on.
        """
        if self.extreme_ is not None:
            return cast("list[PathStep]", self.extreme_.explain(text, node))
        tfidf = self.featurizer_.tfidf
        if tfidf is None:
            raise TreelabelError("a model without tf-idf cannot explain its predictions by words")
        h = self.hierarchy_
        scores = self._score(Strings.of([text]))
        if node is None:
            best = decide(scores, "best_leaf").csr.indices
        else:
            best = h.closure(label_matrix([0, 1], [node], len(h))).indices
        terms = weigh_terms(text, tfidf, self.featurizer_.rows(Strings.of([text])))
        dense = scores.dense()[0]
        return [explain_step(self.head_, each, float(dense[each]), terms, most) for each in best.tolist()]

    # Saving

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        if self.extreme_ is not None:
            values, arrays = self.extreme_._state()
            return {"head": "nodes", "encoder": None, "ngrams": None, "extreme": values}, arrays
        features: dict[str, Any] = {**self.featurizer_.values()}
        width, tfidf = features.pop("width"), self.featurizer_.tfidf
        if features["encoder"] is not None:
            features["encoder_width"] = width - (0 if tfidf is None else tfidf.width)
        return {"head": self.head_.head, **features}, {**self.head_.arrays(), **self.featurizer_.arrays()}

    def _schema(self, values: dict[str, Any]) -> Schema:
        if "extreme" in values:
            return self._successor().schema(values["extreme"])
        find_head(values["head"])
        width = 0 if values["encoder"] is None else values.get("encoder_width", 0)
        buckets = None if values["ngrams"] is None else saved_shape(values["ngrams"]).buckets
        return FittedHead.schema(values["head"], self.regime_, self.hierarchy_, buckets, width)

    def _successor(self) -> "Extreme":
        """Make the model that takes over where one output per label would take too long."""
        # Few models hand over; the others do not wait for this import.
        from treelabel.models.extreme.model import Extreme

        settings = self.get_params(deep=False)
        shared = {name: settings[name] for name in SHARED}
        for name, usual in (("ngram_range", (1, 1)), ("char_ngram_range", None)):
            shared[name] = usual if settings[name] == "auto" else settings[name]
        if self.C is not None:
            shared["C"] = self.C
        made = Extreme(**shared)
        made.hierarchy_, made.regime_ = self.hierarchy_, self.regime_
        return made

    def _restore(self, values: dict[str, Any], arrays: Arrays) -> None:
        self.extreme_ = None
        if "extreme" in values:
            self.extreme_ = self._successor()
            self.extreme_._restore(values["extreme"], arrays)
            return
        width = values.get("encoder_width", 0) + (0 if values["ngrams"] is None else len(arrays["buckets"]))
        self.featurizer_ = SparseFeaturizer.of({**values, "width": width}, arrays, self.encoder, self.encoder_weight)
        self.head_ = FittedHead.of(values["head"], self.regime_, self.hierarchy_, width, arrays)
