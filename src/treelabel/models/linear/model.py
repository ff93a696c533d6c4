"""The default model: tf-idf of n-grams, linear outputs, and a calibrated distribution over the hierarchy."""

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, Self, TypedDict, cast

import numpy as np
from scipy import sparse

from treelabel.core.array_schema import Arrays, Schema
from treelabel.core.errors import TreelabelError
from treelabel.core.matrices import join_features
from treelabel.core.strings import Strings
from treelabel.core.types import LongArray
from treelabel.core.validation import Between
from treelabel.encoders.cached_encoder import CachedEncoder
from treelabel.encoders.protocol import Encoder
from treelabel.encoders.registry import default_encoder, encoder_note, find_encoder, same_encoder
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.label_matrices import label_matrix
from treelabel.hierarchy.labelled_texts import stop_nodes, usual_regime
from treelabel.hierarchy.moves import Moves
from treelabel.models.base import Model, Training
from treelabel.models.linear.descent import TrainingRows
from treelabel.models.linear.fitted_head import MOST_GROWTH, FittedHead, fit_head, refit_head, rename_outputs
from treelabel.models.linear.handover import hand_over, is_too_much, successor
from treelabel.models.linear.heads import HeadTask, find_head
from treelabel.models.persistence.schema import (
    MOST_DIMENSION,
    AllNgrams,
    EncoderNote,
    ngram_values,
    require_width,
    saved_shape,
)
from treelabel.models.settings import Buckets, Cost, Count, Folds, NgramRange, NonNegative, PartialShare, Seed
from treelabel.rules.decisions import decide
from treelabel.rules.default_rules import DEFAULT_RULES
from treelabel.scores.score_matrix import Scores
from treelabel.selection.evidence import HeldOut, SettingTrial
from treelabel.selection.feature_choice import AUTO, choose_features, shape_of
from treelabel.selection.folds import draw_folds, hold_out
from treelabel.text.ngram_names import named_ngrams
from treelabel.text.ngrams import NgramShape
from treelabel.text.tfidf import Occurrences, Tfidf

if TYPE_CHECKING:
    from treelabel.models.extreme.model import Extreme

# With at most this many documents, each of them is held out once, in one of `cv` folds.
FEW_DOCUMENTS = 3_000
# With more, this share of them is held out ...
VALIDATION_FRACTION = 0.2
# ... but fewer where there are very many labels, as the margins of all labels are kept until calibration.
MOST_HELD_MARGINS = 1 << 26
FEWEST_HELD_OUT = 200
# From this many documents on, conditional heads are tried.
WORTH_A_HEAD = 5_000


@dataclass(frozen=True)
class PathStep:
    """One step of a path: its label and probability, and its n-grams that support and oppose it, with their shares."""

    label: str
    p: float
    supporting_terms: list[tuple[str, float]]
    opposing_terms: list[tuple[str, float]]


class LinearValues(TypedDict):
    """The head, and where features come from."""

    head: str
    encoder: EncoderNote | None
    ngrams: AllNgrams | None
    encoder_width: NotRequired[Annotated[int, Between(0, MOST_DIMENSION)]]
    extreme: NotRequired[dict[str, Any]]


class Linear(Model):
    """tf-idf and linear outputs, turned into probabilities on documents held out of training.

    With a squared hinge loss and one path per document, the probability of a terminal node is a softmax of v_0 x its
    margin + the sum over its ancestors of v_level x theirs, and a node has the sum of its terminal nodes; with several
    paths it is an isotonic function of the node's margin and of its log odds in such a softmax, made coherent.
    Conditional heads multiply along the path. Training costs about documents x n-grams per document x labels / 16 for
    each of some ten passes, thirty where documents are few. What "auto" tried is in `evidence_`. Where that would take
    many minutes, with very many labels and documents, `head="auto"` hands over to `extreme`, and says so.

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
    """

    name = "linear"
    learned = LinearValues
    takes_sample_weight = True

    def __init__(
        self,
        hierarchy: Hierarchy | None = None,
        head: str = "auto",
        tau: Annotated[float, Between(0, 100)] = 0.0,
        ngram_range: NgramRange | Literal["auto"] | None = "auto",
        char_ngram_range: NgramRange | Literal["auto"] | None = "auto",
        min_df: Count = 1,
        n_features: Buckets = 2**22,
        tfidf: bool = True,
        encoder: str | Encoder | None = None,
        encoder_weight: Annotated[float, Between(0, 1)] = 0.5,
        C: Cost | None = None,  # noqa: N803
        prune: NonNegative = 0.01,
        validation_fraction: PartialShare | None = None,
        cv: Folds = 5,
        max_iter: Annotated[int, Between(1, 10_000)] = 7,
        seed: Seed = 0,
    ) -> None:
        self.hierarchy = hierarchy
        self.head = head
        self.tau = tau
        self.ngram_range = ngram_range
        self.char_ngram_range = char_ngram_range
        self.min_df = min_df
        self.n_features = n_features
        self.tfidf = tfidf
        self.encoder = encoder
        self.encoder_weight = encoder_weight
        self.C = C
        self.prune = prune
        self.validation_fraction = validation_fraction
        self.cv = cv
        self.max_iter = max_iter
        self.seed = seed

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
        if self.head == "auto" and self.tfidf and train.weights is None and is_too_much(train):
            self.trials_: Sequence[SettingTrial] = ()
            self.extreme_ = hand_over(self.get_params(deep=False), train)
            return self.extreme_._fit(train)
        heads, shapes = self._heads(train), self._shapes()
        self.encoder_ = None
        if self.encoder is not None:
            self.encoder_ = CachedEncoder(find_encoder(self.encoder))
        elif not self.tfidf:
            self.encoder_ = CachedEncoder(default_encoder())
        every = train if train.valid is None else train.followed_by(train.valid)
        folds = self._folds(train) if train.valid is None else [np.arange(len(train), len(every))]
        nothing = sparse.csr_array((len(every), 0), dtype=np.float32)
        rows = TrainingRows(nothing, folds, self.max_iter, self.seed, train.valid is None, every.weights)
        job = HeadTask(rows, every, self.C, self.tau, self.prune)

        def score(head: str, sample: Training, held: LongArray, features: sparse.csr_array) -> Any:
            some = replace(rows, folds=[held], learn_all=False, weights=sample.weights, features=features)
            # No weight is stored: only the margins of held-out documents are looked at.
            return fit_head(head, replace(job, train=sample, rows=some, prune=np.inf))[1]

        choice = choose_features(train, shapes, heads, self._trial_features, score, self.seed)
        self.trials_ = choice.trials
        rows = replace(rows, features=self._learned_features(train, every, choice.shape))
        self.head_, p = fit_head(choice.head, replace(job, rows=rows))
        groups = None if every.groups is None else every.groups[rows.held]
        return HeldOut(Scores(train.hierarchy, p), every.labels[rows.held], groups)

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
        count, nodes = len(train), len(train.hierarchy)
        if self.validation_fraction is None and count <= FEW_DOCUMENTS:
            return draw_folds(count, self.cv, self.seed, train.groups)
        if self.validation_fraction is None:
            wanted = min(int(VALIDATION_FRACTION * count), max(FEWEST_HELD_OUT, MOST_HELD_MARGINS // nodes))
        else:
            wanted = int(self.validation_fraction * count)
        return [hold_out(count, max(1, wanted), self.seed, train.groups)]

    # Going on

    def _chosen_settings(self) -> dict[str, Any]:
        if self.extreme_ is not None:
            return {}
        chosen: dict[str, Any] = {**super()._chosen_settings(), "head": self.head_.head}
        if self.tfidf_ is not None:
            shape = self.tfidf_.shape
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
        if not keeps or train.weights is not None or usual != (self.rule_ == DEFAULT_RULES["single_path"]):
            return super()._refit(train, before)
        made = type(self)(**(self.get_params(deep=False) | self._chosen_settings() | {"hierarchy": None}))
        find_head(self.head_.head).refuse(train)
        made.extreme_, made.encoder_, made.trials_ = None, self.encoder_, ()
        made.hierarchy_, made.regime_, made.stopped_ = train.hierarchy, train.regime, None
        made.stop_nodes_ = stop_nodes(train.hierarchy, train.labels)
        shape = made._shapes()[0] if self.tfidf_ is None else self.tfidf_.shape
        features = made._learned_features(train, train, shape)
        rows = TrainingRows(features, [], self.max_iter, self.seed, skipped=made._folds(train))
        job = HeadTask(rows, train, self.C, self.tau, self.prune)
        made.head_ = refit_head(self.head_, job, before / len(train))
        # Nothing is held out: the rule and its evidence are those of the first fit.
        made.rule_, made.evidence_, made.irregular_documents_ = self.rule_, self.evidence_, ""
        made.stopped_ = train.stop.reason
        return made

    # Features

    def _trial_features(self, texts: Strings, shapes: Sequence[NgramShape]) -> Callable[[NgramShape], sparse.csr_array]:
        """Return what turns texts into features; n-grams that are the first kinds of the last ones are counted once."""
        if not self.tfidf:
            return lambda shape: self._with_embeddings(None, texts)
        every = Occurrences.of(texts, shapes[-1])

        def features(shape: NgramShape) -> sparse.csr_array:
            counted = every if shape.is_start_of(every.shape) else Occurrences.of(texts, shape)
            return self._with_embeddings(Tfidf.learn(counted, shape, self.min_df)[1], texts)

        return features

    def _learned_features(self, train: Training, every: Training, shape: NgramShape) -> sparse.csr_array:
        self.tfidf_ = None
        if self.tfidf:
            learned, rows = Tfidf.fit_transform(train.texts, shape, self.min_df)
            self.tfidf_, rows = learned.with_singles_by_text(rows)
            if every is train:
                return self._with_embeddings(rows, train.texts, train.progress)
        return self._features(every.texts, train.progress)

    def _features(self, texts: Strings, progress: bool | None = None) -> sparse.csr_array:
        return self._with_embeddings(None if self.tfidf_ is None else self.tfidf_.transform(texts), texts, progress)

    def _with_embeddings(
        self, rows: sparse.csr_array | None, texts: Strings, progress: bool | None = None
    ) -> sparse.csr_array:
        """Add the embeddings of texts to their n-grams."""
        if self.encoder_ is None:
            return rows
        dense = self.encoder_.transform(list(texts), progress)
        if rows is None:
            return join_features(sparse.csr_array((len(texts), 0), dtype=np.float32), dense, 1.0)
        return join_features(rows, dense, self.encoder_weight)

    # Scoring

    def _score(self, texts: Strings) -> Scores:
        return self._probabilities(texts, None) if self.extreme_ is None else self.extreme_._score(texts)

    def _score_top(self, texts: Strings, top: int) -> Scores:
        return self._probabilities(texts, top) if self.extreme_ is None else self.extreme_._score_top(texts, top)

    def _probabilities(self, texts: Strings, top: int | None) -> Scores:
        features = self._features(texts)
        require_width(features, self.head_.weights.sparse.shape[0], self)
        return Scores(self.hierarchy_, self.head_.probabilities(features, top))

    @property
    def exhaustive(self) -> bool:
        """Whether the scores of children sum to their parent's: not where `extreme` has taken over."""
        return getattr(self, "extreme_", None) is None

    def _known_words(self) -> Tfidf | None:
        return super()._known_words() if self.extreme_ is None else self.extreme_._known_words()

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
        if self.tfidf_ is None:
            raise TreelabelError("a model without tf-idf cannot explain its predictions by words")
        h = self.hierarchy_
        scores = self._score(Strings.of([text]))
        if node is None:
            best = decide(scores, "best_leaf").csr.indices
        else:
            best = h.closure(label_matrix([0, 1], [node], len(h))).indices
        row = self._features(Strings.of([text]))
        values = dict(zip(row.indices.tolist(), row.data.tolist(), strict=True))
        buckets = named_ngrams(text, self.tfidf_.shape)
        columns = {name: self.tfidf_.column_of(bucket) for name, bucket in buckets.items()}
        terms = {name: (column, values[column]) for name, column in columns.items() if column >= 0}
        dense = scores.dense()[0]
        return [self._step(each, float(dense[each]), terms, most) for each in best.tolist()]

    def _step(self, node: int, p: float, terms: dict[str, tuple[int, float]], most: int) -> PathStep:
        output = self.head_.outputs.output(node)
        if output < 0:
            return PathStep(self.hierarchy_.names[node], p, [], [])
        weights = self.head_.weights.sparse[:, [output]].toarray().ravel()
        shares = {name: value * float(weights[column]) for name, (column, value) in terms.items()}
        ranked = sorted(((value, name) for name, value in shares.items() if value), reverse=True)
        supporting = [(name, value) for value, name in ranked[:most] if value > 0]
        opposing = [(name, value) for value, name in reversed(ranked[-most:]) if value < 0]
        return PathStep(self.hierarchy_.names[node], p, supporting, opposing)

    # Saving

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        if self.extreme_ is not None:
            values, arrays = self.extreme_._state()
            return {"head": "nodes", "encoder": None, "ngrams": None, "extreme": values}, arrays
        values, arrays = {"head": self.head_.head, "encoder": None, "ngrams": None}, dict(self.head_.arrays())
        if self.encoder_ is not None:
            values["encoder"] = encoder_note(self.encoder_)
            values["encoder_width"] = self.head_.weights.sparse.shape[0] - (self.tfidf_.width if self.tfidf_ else 0)
        if self.tfidf_ is not None:
            values["ngrams"] = ngram_values(self.tfidf_.shape)
            arrays |= self.tfidf_.arrays()
        return values, arrays

    def _schema(self, values: dict[str, Any]) -> Schema:
        if "extreme" in values:
            return self._successor().schema(values["extreme"])
        find_head(values["head"])
        width = 0 if values["encoder"] is None else values.get("encoder_width", 0)
        buckets = None if values["ngrams"] is None else saved_shape(values["ngrams"]).buckets
        return FittedHead.schema(values["head"], self.regime_, self.hierarchy_, buckets, width)

    def _successor(self) -> "Extreme":
        made = successor(self.get_params(deep=False))
        made.hierarchy_, made.regime_ = self.hierarchy_, self.regime_
        return made

    def _restore(self, values: dict[str, Any], arrays: Arrays) -> None:
        self.extreme_ = None
        if "extreme" in values:
            self.extreme_ = self._successor()
            self.extreme_._restore(values["extreme"], arrays)
            return
        self.tfidf_ = self.encoder_ = None
        width = 0
        if values["ngrams"] is not None:
            self.tfidf_ = Tfidf(saved_shape(values["ngrams"]), arrays["buckets"], arrays["idf"])
            width = self.tfidf_.width
        if values["encoder"] is not None:
            self.encoder_ = CachedEncoder(same_encoder(self.encoder, values["encoder"]))
            width += int(values["encoder_width"])
        self.head_ = FittedHead.of(values["head"], self.regime_, self.hierarchy_, width, arrays)
