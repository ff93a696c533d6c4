"""The default model: tf-idf of n-grams, linear outputs, and a calibrated distribution over the hierarchy."""

from dataclasses import dataclass, replace
from typing import Annotated, Any, NotRequired, TypedDict

import numpy as np
from scipy import sparse

from treelabel.core.compute import LongArray
from treelabel.core.errors import TreelabelError
from treelabel.core.kinds import Between
from treelabel.core.schema import Arrays, Schema
from treelabel.core.strings import Strings
from treelabel.encoders.cached import CachedEncoder
from treelabel.encoders.joined import joined
from treelabel.encoders.protocol import Encoder
from treelabel.encoders.registry import encoder_note, find_encoder, same_encoder
from treelabel.hierarchy import Hierarchy, label_matrix
from treelabel.models.base import Model, Training
from treelabel.models.linear.descent import Rows
from treelabel.models.linear.heads import HEADS, FittedHead, Head, Job, fit_head
from treelabel.models.schema import MOST_DIMENSION, EncoderNote, Ngrams, require_width
from treelabel.rules import decide
from treelabel.scores import Scores
from treelabel.text import NgramShape, Tfidf
from treelabel.text.names import named_ngrams

# Documents held out for calibration at most: its few parameters need no more.
MOST_HELD_OUT = 2_000
# ... and fewer where there are very many labels, as all margins of held-out documents are kept until then.
MOST_HELD_MARGINS = 1 << 25
FEWEST_OF_MANY = 200
# From so many documents on, heads are tried on a sample of them before one is chosen.
WORTH_A_TRIAL = 20_000
TRIAL = 3_000


@dataclass(frozen=True)
class Step:
    """One step of a path: its label and probability, and the n-grams that speak for it and against it."""

    label: str
    p: float
    speaks_for: list[tuple[str, float]]
    speaks_against: list[tuple[str, float]]


class Values(TypedDict):
    """The head, and where features come from."""

    head: str
    encoder: EncoderNote | None
    ngrams: Ngrams | None
    encoder_width: NotRequired[Annotated[int, Between(0, MOST_DIMENSION)]]


class Linear(Model):
    """tf-idf and linear outputs, turned into probabilities on documents held out of training.

    With a squared hinge loss and one path per document, the probability of a terminal node is a softmax of v_0 x its
    margin + the sum over its ancestors of v_level x theirs, and a node has the sum of its terminal nodes; with several
    paths it is an isotonic function of the node's margin, made coherent. Conditional heads multiply along the path.
    Training costs about documents x n-grams per document x labels / 16 for each of some five passes.

    Parameters
    ----------
    hierarchy : Hierarchy or None
        The hierarchy, where training data have none of their own.
    head : str
        A row of HEADS, or "auto": "nodes", or from 20,000 documents on the one of "nodes" and the conditional head that
        suits the labels with the smaller loss on held-out documents of a sample.
    tau : float
        How much conditional_softmax adjusts its logits for rare siblings.
    ngram_range : (int, int) or None
        The shortest and the longest n-grams of words; None for no words.
    char_ngram_range : (int, int) or None
        The same of characters within words, such as (3, 5): better on short texts, at several times the cost.
    min_df : int
        N-grams are features if at least so many documents have them.
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
    validation_fraction : float
        The share of documents that are held out for calibration and learned afterwards. With a validation set,
        calibration uses that, and nothing is held out.
    max_iter : int
        Passes over the documents at most.
    seed : int
        Seed of the random numbers.
    """

    name = "linear"
    learned = Values
    takes_sample_weight = True

    def __init__(
        self,
        hierarchy: Hierarchy | None = None,
        head: str = "auto",
        tau: float = 0.0,
        ngram_range: tuple[int, int] | None = (1, 1),
        char_ngram_range: tuple[int, int] | None = None,
        min_df: int = 1,
        n_features: int = 2**22,
        tfidf: bool = True,
        encoder: str | Encoder | None = None,
        encoder_weight: Annotated[float, Between(0, 1)] = 0.5,
        C: float | None = None,  # noqa: N803
        prune: float = 0.01,
        validation_fraction: float = 0.2,
        max_iter: int = 7,
        seed: int = 0,
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
        self.max_iter = max_iter
        self.seed = seed

    # Learning

    def _fit(self, train: Training) -> None:
        heads = self._heads(train)
        if not self.tfidf and self.encoder is None:
            raise TreelabelError("tfidf=False leaves no features; give an encoder=")
        self.encoder_ = None if self.encoder is None else CachedEncoder(find_encoder(self.encoder))
        every = train if train.valid is None else train.followed_by(train.valid)
        held = (
            self._held_out(len(train), len(train.hierarchy))
            if train.valid is None
            else np.arange(len(train), len(every))
        )
        features = self._learned_features(train, every)
        rows = Rows(features, held, self.max_iter, self.seed, train.valid is None, every.weights)
        job = Job(rows, every, self.C, self.tau, self.prune)
        self.head_ = fit_head(self._chosen(heads, job), job)

    def _heads(self, train: Training) -> list[str]:
        """Return the heads to try."""
        if self.head != "auto":
            find_head(self.head).refuse(train)
            return [self.head]
        one_path = train.regime != "multi_path" and train.hierarchy.is_tree
        return ["nodes", "conditional_softmax" if one_path else "conditional_sigmoid"]

    def _chosen(self, heads: list[str], job: Job) -> str:
        """Choose the head with the least loss on held-out documents of a sample; where documents are few, the first.

        Few documents cannot show a difference that is worth learning twice.
        """
        documents = len(job.train)
        if len(heads) == 1 or documents < WORTH_A_TRIAL:
            return heads[0]
        sample = np.sort(np.random.default_rng(self.seed).permutation(documents)[:TRIAL])
        train, features = job.train[sample], job.rows.features[sample]
        rows = replace(job.rows, features=features, held=np.arange(TRIAL // 2), learn_held=False, weights=train.weights)
        trial = replace(job, rows=rows, train=train)
        return min(heads, key=lambda name: fit_head(name, trial).loss)

    def _held_out(self, documents: int, nodes: int) -> LongArray:
        """Draw the documents that outputs are calibrated on; at least one is left to learn from."""
        order = np.random.default_rng(self.seed).permutation(documents)
        most = min(MOST_HELD_OUT, max(FEWEST_OF_MANY, MOST_HELD_MARGINS // nodes), documents - 1)
        held: LongArray = np.sort(order[: min(max(1, int(self.validation_fraction * documents)), most)])
        return held

    # Features

    def _learned_features(self, train: Training, every: Training) -> sparse.csr_array:
        self.tfidf_ = None
        if self.tfidf:
            shape = NgramShape(self.ngram_range, self.char_ngram_range, self.n_features)
            self.tfidf_, rows = Tfidf.fit_transform(train.texts, shape, self.min_df)
            if self.encoder_ is None and every is train:
                return rows
        return self._features(every.texts, train.progress)

    def _features(self, texts: Strings, progress: bool | None = None) -> sparse.csr_array:
        rows = None if self.tfidf_ is None else self.tfidf_.transform(texts)
        if self.encoder_ is None:
            return rows
        dense = self.encoder_.transform(list(texts), progress)
        if rows is None:
            return joined(sparse.csr_array((len(texts), 0), dtype=np.float32), dense, 1.0)
        return joined(rows, dense, self.encoder_weight)

    # Scoring

    def _score(self, texts: Strings) -> Scores:
        return self._scored(texts, None)

    def _score_top(self, texts: Strings, top: int) -> Scores:
        return self._scored(texts, top)

    def _scored(self, texts: Strings, top: int | None) -> Scores:
        features = self._features(texts)
        require_width(features, self.head_.weights.sparse.shape[0], self)
        return Scores(self.hierarchy_, self.head_.probabilities(features, top))

    # Explaining

    def explain(self, text: str, node: int | None = None, most: int = 8) -> list[Step]:
        """List the n-grams of a text that speak for and against each step of the path to its best leaf, or to a node.

        A contribution is the n-gram's weight in the text times its weight for the label; embeddings are left out.

        Parameters
        ----------
        text : str
            A text.
        node : int or None
            The node to explain; by default the best leaf.
        most : int
            N-grams to list on either side, at most.

        Returns
        -------
        list of Step
            The steps, from the first level on.
        """
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
        places = named_ngrams(text, self.tfidf_.shape)
        named = {name: self.tfidf_.place(bucket) for name, bucket in places.items()}
        given = {name: (place, values[place]) for name, place in named.items() if place >= 0}
        dense = scores.dense()[0]
        return [self._step(each, float(dense[each]), given, most) for each in best.tolist()]

    def _step(self, node: int, p: float, given: dict[str, tuple[int, float]], most: int) -> Step:
        output = self.head_.outputs.output(node)
        weights = self.head_.weights.sparse[:, [output]].toarray().ravel() if output >= 0 else np.zeros(0)
        parts = {name: value * float(weights[place]) for name, (place, value) in given.items()} if output >= 0 else {}
        ranked = sorted(((value, name) for name, value in parts.items() if value), reverse=True)
        speaks = [(name, value) for value, name in ranked[:most] if value > 0]
        against = [(name, value) for value, name in reversed(ranked[-most:]) if value < 0]
        return Step(self.hierarchy_.names[node], p, speaks, against)

    # Saving

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        values: dict[str, Any] = {"head": self.head_.head, "encoder": None, "ngrams": None}
        arrays: dict[str, Any] = dict(self.head_.arrays())
        if self.encoder_ is not None:
            values["encoder"] = encoder_note(self.encoder_)
            values["encoder_width"] = self.head_.weights.sparse.shape[0] - (self.tfidf_.width if self.tfidf_ else 0)
        if self.tfidf_ is not None:
            shape = self.tfidf_.shape
            values["ngrams"] = {
                "ngram_range": shape.ngram_range,
                "char_ngram_range": shape.char_ngram_range,
                "n_features": shape.n_features,
            }
            arrays |= self.tfidf_.arrays()
        return values, arrays

    def _schema(self, values: dict[str, Any]) -> Schema:
        find_head(values["head"])
        width = 0 if values["encoder"] is None else values.get("encoder_width", 0)
        n_features = None if values["ngrams"] is None else values["ngrams"]["n_features"]
        return FittedHead.schema(values["head"], self.regime_, self.hierarchy_, n_features, width)

    def _restore(self, values: dict[str, Any], arrays: Arrays) -> None:
        self.tfidf_ = self.encoder_ = None
        width = 0
        if values["ngrams"] is not None:
            known = values["ngrams"]
            shape = NgramShape(known["ngram_range"], known.get("char_ngram_range"), known["n_features"])
            self.tfidf_ = Tfidf(shape, arrays["buckets"], arrays["idf"])
            width = self.tfidf_.width
        if values["encoder"] is not None:
            self.encoder_ = CachedEncoder(same_encoder(self.encoder, values["encoder"]))
            width += int(values["encoder_width"])
        self.head_ = FittedHead.of(values["head"], self.regime_, self.hierarchy_, width, arrays)


def find_head(name: str) -> Head:
    """Return a row of HEADS."""
    if name not in HEADS:
        raise TreelabelError(f"linear has no head {name!r}; there are: auto, {', '.join(HEADS)}")
    return HEADS[name]
