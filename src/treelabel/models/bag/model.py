"""The bag model: a vector for every word and word pair, their weighed sum, and a linear layer trained with any loss."""

from dataclasses import dataclass, replace
from typing import Annotated, Any, TypedDict

import numpy as np

from treelabel.core.compute import FloatArray, IntArray
from treelabel.core.errors import TreelabelError
from treelabel.core.kinds import AnyFloat, Between
from treelabel.core.strings import Strings
from treelabel.hierarchy import Hierarchy
from treelabel.models.bag.kernels import Rows, Weights
from treelabel.models.bag.training import Course, Examples, Judge, Learner
from treelabel.models.bag.word_vectors import vectors_of
from treelabel.models.base import Model, Training
from treelabel.models.objective import Objective, objective_arrays
from treelabel.models.schema import MOST_DIMENSION, Array, Arrays, Schema, require_inner, tfidf_arrays
from treelabel.scores import Scores
from treelabel.text import NgramShape, Tfidf
from treelabel.text.ngrams import MOST_WORDS, count_ngrams

# What every document has besides its n-grams, so that texts with none have the shares of training.
CONSTANT = np.float32(0.2)
# Word pairs say less than their two words, and most are never seen again.
PAIR_WEIGHT = 0.5
LEAST_PAIR_DF = 2
DENSE_BLOCK = 1 << 22


class Values(TypedDict):
    """The loss and what it reached, the slope of outputs, and the n-grams."""

    loss: str
    slope: float
    losses: list[AnyFloat]
    words: Annotated[int, Between(0, MOST_WORDS)]
    bits: Annotated[int, Between(1, 31)]


class Bag(Model):
    """Vectors of words and word pairs, weighed by tf-idf, summed, then a linear layer trained with a loss of LOSSES.

    fastText's family. Takes all losses but match, whose penalties are over pairs of labels. `loss="auto"` takes
    conditional_softmax in a tree where documents have one path, leaf_softmax in a small DAG where they have one end,
    and conditional_sigmoid otherwise. With a loss for single paths, inner nodes at which documents end get an output of
    their own. Conditional losses cost a document its n-grams and the siblings along its path, however many labels there
    are; the others cost all labels. With ten documents a leaf or more, leaf_softmax often finds the leaf better.

    Steps are Adagrad's, one length a vector, times a rate that falls evenly to 0; `adaptive=False` takes plain steps as
    fastText does, which may diverge at a high rate. With validation data the epoch with the least loss is kept, and
    learning stops after `patience` epochs without gain; the slope of the outputs at which their probabilities fit best
    is then learned too.

    Words and pairs are hashed to 2^`bits` buckets; pairs count half, and only if two documents have them. `vectors` is
    a file of word vectors as text, which known words begin with; it sets the dimension. One thread gives the same
    result to the bit every time; several are faster, write to the same vectors without locks, and do not. With
    `warm_start` a second fit goes on from the first: its vectors are kept, and new words get new ones.
    """

    name = "bag"
    learned = Values

    def __init__(
        self,
        hierarchy: Hierarchy | None = None,
        dimension: int = 200,
        words: int = 2,
        bits: int = 22,
        min_df: int = 1,
        loss: str = "auto",
        tau: float = 1.0,
        rate: float = 1.0,
        epochs: int = 25,
        adaptive: bool = True,
        patience: int = 5,
        vectors: str | None = None,
        threads: int = 1,
        warm_start: bool = False,
        seed: int = 0,
    ) -> None:
        self.hierarchy = hierarchy
        self.dimension = dimension
        self.words = words
        self.bits = bits
        self.min_df = min_df
        self.loss = loss
        self.tau = tau
        self.rate = rate
        self.epochs = epochs
        self.adaptive = adaptive
        self.patience = patience
        self.vectors = vectors
        self.threads = threads
        self.warm_start = warm_start
        self.seed = seed

    # Learning

    def _fit(self, train: Training) -> None:
        self._check_settings()
        before = Before.of(self) if self.warm_start and hasattr(self, "inputs_") else None
        self._choose_loss(train, before)
        plan = self.objective_.loss.plan()
        rng = np.random.default_rng(self.seed)
        self.tfidf_ = learned_columns(train.texts, NgramShape(self.words, None, self.bits), self.min_df)
        if before is not None:
            self.tfidf_ = before.tfidf.followed_by(self.tfidf_)
        weights = self._first_weights(len(self.objective_.loss.outputs), rng)
        if before is not None:
            before.take_up(weights)
        course = Course(self.rate, self.epochs, self.patience, self.threads, train.stop, train.progress)
        learner = Learner(plan, course, weights, rng)
        self.losses_ = [value for value in self._learn(learner, train) if np.isfinite(value)]
        self.inputs_, self.outputs_ = weights.inputs, weights.outputs

    def _learn(self, learner: Learner, train: Training) -> list[float]:
        """Learn; with validation data, stop early and find the slope on them."""
        examples = self._examples(train)
        valid = None if train.valid is None else self._examples(train.valid, drop=True)
        self.slope_ = 1.0
        if valid is not None and len(valid):
            judge = Judge(learner.plan, valid)
            seen = learner.learn(examples, judge)
            self.slope_ = judge(learner.weights)[1]
            return seen
        return learner.learn(examples, None)

    def _check_settings(self) -> None:
        for name in ("dimension", "words", "epochs", "patience", "threads", "rate"):
            if not getattr(self, name) > 0:
                raise TreelabelError(
                    f"the setting {name} of the model bag must be above 0, found {getattr(self, name)}"
                )

    def _choose_loss(self, train: Training, before: "Before | None") -> None:
        """Choose the loss, and the inner nodes that get an output of their own."""
        known = None if before is None else before.stops
        self.objective_ = Objective.of(train, self.loss, {"tau": self.tau}, known)
        if before is not None:
            before.require_same(train.hierarchy, self.objective_.name, (self.words, self.bits))

    def _examples(self, data: Training, drop: bool = False) -> Examples:
        """Prepare documents; `drop` leaves out all that the loss refuses."""
        rows, truth = self.objective_.truth(data, drop)
        return Examples(rows_of(self.tfidf_, data.texts.take(rows)), self.objective_.loss.targets(truth))

    def _first_weights(self, outputs: int, rng: np.random.Generator) -> Weights:
        """Begin with random vectors of about the same length and with outputs of 0; words of the file with theirs."""
        columns, given = np.zeros(0, np.int32), np.zeros((0, self.dimension), np.float32)
        if self.vectors is not None:
            columns, given = vectors_of(self.vectors, self.tfidf_)
            length = float(np.sqrt((given.astype(np.float64) ** 2).sum(axis=1).mean()))
            given *= np.sqrt(2) / max(length, 1e-12)
        width = given.shape[1]
        edge = np.sqrt(6 / width)
        inputs = rng.uniform(-edge, edge, (self.tfidf_.width + 1, width)).astype(np.float32)
        inputs[columns] = given
        squares = (np.zeros(size if self.adaptive else 0, np.float32) for size in (len(inputs), outputs))
        return Weights(inputs, np.zeros((outputs, width), np.float32), *squares)

    # Scoring

    def _score(self, texts: Strings) -> Scores:
        objective, features = self.objective_, self.tfidf_.transform(texts)
        step = max(1, DENSE_BLOCK // max(1, len(objective.change.new)))
        parts = []
        for low in range(0, max(1, len(texts)), step):
            hidden = features[low : low + step] @ self.inputs_[:-1] + CONSTANT * self.inputs_[-1]
            parts.append(objective.scores(self.slope_ * (hidden @ self.outputs_.T).astype(np.float64)).values)
        return Scores.one_after_another(self.hierarchy_, parts)

    @property
    def exhaustive(self) -> bool:
        """A softmax shares out all of a parent's probability, sigmoids do not."""
        return self.objective_.exhaustive

    # Saving

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        values = {"loss": self.objective_.name, "slope": self.slope_, "losses": self.losses_}
        shape = self.tfidf_.shape
        return values | {"words": shape.words, "bits": shape.bits}, {
            **self.tfidf_.arrays(),
            "inputs": self.inputs_,
            "outputs": self.outputs_,
            "stops": self.objective_.stops,
            "frequencies": self.objective_.frequencies,
        }

    def _schema(self, values: dict[str, Any]) -> Schema:
        self._check_settings()
        arrays = {
            **objective_arrays(),
            **tfidf_arrays(),
            "inputs": Array("float32", ("width + 1", "dimension")),
            "outputs": Array("float32", ("outputs", "dimension")),
        }
        nodes, buckets = len(self.hierarchy_), 1 << values["bits"]
        return Schema(
            arrays,
            sizes={"nodes": nodes, "buckets": buckets},
            most={"stops": nodes, "width": buckets, "dimension": MOST_DIMENSION, "outputs": 2 * nodes},
            relations=(lambda found: require_inner(self.hierarchy_, found["stops"]),),
        )

    def _restore(self, values: dict[str, Any], arrays: Arrays) -> None:
        shape = NgramShape(int(values["words"]), None, int(values["bits"]))
        self.tfidf_ = Tfidf(shape, arrays["buckets"], arrays["idf"])
        self.slope_, self.losses_ = float(values["slope"]), list(values["losses"])
        self.inputs_, self.outputs_ = arrays["inputs"], arrays["outputs"]
        self.objective_ = Objective(
            str(values["loss"]), self.hierarchy_, arrays["stops"], arrays["frequencies"], {"tau": self.tau}
        )
        self.objective_.require_outputs(len(self.outputs_))


@dataclass(frozen=True, eq=False)
class Before:
    """What a model had learned before it learns again."""

    hierarchy: Hierarchy
    loss: str
    tfidf: Tfidf
    stops: IntArray
    inputs: FloatArray
    outputs: FloatArray

    @classmethod
    def of(cls, model: Bag) -> "Before":
        """Keep what a model knows."""
        known = model.objective_
        return cls(known.hierarchy, known.name, model.tfidf_, known.stops, model.inputs_, model.outputs_)

    def require_same(self, hierarchy: Hierarchy, loss: str, ngrams: tuple[int, int]) -> None:
        """Refuse to go on with another hierarchy, loss or kind of n-grams."""
        hierarchy.require_same(self.hierarchy.fingerprint, "what the model has learned before")
        known = self.loss, (self.tfidf.shape.words, self.tfidf.shape.bits)
        if known != (loss, ngrams):
            raise TreelabelError(
                f"warm_start goes on with the loss {known[0]} and (words, bits) {known[1]}, but now they are {loss} "
                f"and {ngrams}; use the same, or warm_start=False"
            )

    def take_up(self, weights: Weights) -> None:
        """Begin with the vectors that are known, and with the outputs if these are the same."""
        if weights.inputs.shape[1] != self.inputs.shape[1]:
            raise TreelabelError(
                f"warm_start goes on with dimension {self.inputs.shape[1]}, but now it is {weights.inputs.shape[1]}"
            )
        weights.inputs[: len(self.inputs) - 1] = self.inputs[:-1]
        weights.inputs[-1] = self.inputs[-1]
        if weights.outputs.shape == self.outputs.shape:
            weights.outputs[:] = self.outputs


def learned_columns(texts: Strings, shape: NgramShape, min_df: int) -> Tfidf:
    """Learn which n-grams have a vector, and their weights: runs of words count less, and only if seen twice.

    >>> learned_columns(Strings.of(["a b", "a b c"]), NgramShape(2), 1).width
    4
    """
    counted = count_ngrams(texts, shape)
    df = np.bincount(counted.buckets, minlength=shape.buckets)
    is_word = np.zeros(shape.buckets, np.bool_)
    is_word[count_ngrams(texts, replace(shape, words=1)).buckets] = True
    enough = np.flatnonzero(df >= np.where(is_word, max(1, min_df), max(LEAST_PAIR_DF, min_df)))
    kept: IntArray = enough[np.argsort(-df[enough], kind="stable")].astype(np.int32)
    idf = (1 + np.log((1 + len(texts)) / (1 + df[kept]))) * np.where(is_word[kept], 1.0, PAIR_WEIGHT)
    return Tfidf(shape, kept, idf.astype(np.float32))


def rows_of(tfidf: Tfidf, texts: Strings) -> Rows:
    """Weigh the n-grams of texts, and give each text the constant as its last."""
    matrix = tfidf.transform(texts)
    last = matrix.indptr[1:]
    ptr = (matrix.indptr + np.arange(len(matrix.indptr))).astype(np.int64)
    idx = np.insert(matrix.indices, last, tfidf.width).astype(np.int32)
    return Rows(ptr, idx, np.insert(matrix.data, last, CONSTANT).astype(np.float32))
