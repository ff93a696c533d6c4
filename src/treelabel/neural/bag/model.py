"""The bag model: a vector for every word and word pair, their weighted sum, and a linear layer with any loss."""

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field
from typing import Annotated, Any, TypedDict

import numpy as np

from treelabel.core.array_schema import Array, Arrays, Schema
from treelabel.core.errors import TreelabelError
from treelabel.core.strings import Strings
from treelabel.core.validation import AnyFloat, Between
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.models.base import Model, Training
from treelabel.models.persistence.schema import MOST_DIMENSION, tfidf_arrays
from treelabel.models.settings import Count, LearningRate, NgramRange, Passes, PowerOfTwoBuckets, Seed, Width
from treelabel.neural.bag.features import fit_tfidf, ngram_rows
from treelabel.neural.bag.learner import (
    BagExamples,
    Learner,
    Steps,
    compute_logits,
    fit_inverse_temperature,
    node_probabilities,
    steps_for,
)
from treelabel.neural.bag.sgd import BagWeights
from treelabel.neural.bag.word_vectors import read_vectors
from treelabel.neural.objective import Objective, check_loss, with_objective
from treelabel.scores.score_matrix import Scores
from treelabel.text.ngrams import LARGEST_N, NgramShape
from treelabel.text.tfidf import Tfidf

MOST_FEATURES = 1 << 30


class BagValues(TypedDict):
    """The loss and the losses of epochs, the inverse temperature of logits, and the n-grams."""

    loss: str
    inverse_temperature: float
    losses: list[AnyFloat]
    ngram_range: tuple[Annotated[int, Between(1, 1)], Annotated[int, Between(1, LARGEST_N)]]
    n_features: Annotated[int, Between(1, MOST_FEATURES)]


@dataclass(eq=False, repr=False)
class Bag(Model):
    """Vectors of words and word pairs, weighted by tf-idf, summed, then a linear layer trained with a loss of LOSSES.

    fastText's family. `loss="auto"` takes conditional_softmax in a tree where documents have one path, leaf_softmax in
    a small DAG where they have one terminal node, and conditional_sigmoid otherwise; `loss_params` are the loss's own
    parameters, such as {"beta": 0.1} for champ. With a loss for single paths, inner nodes at which documents end get a
    stop output of their own. Conditional losses cost a document its n-grams and the siblings along its path, however
    many labels there are; the others cost all labels. Losses without a compiled form (`bag.compiled_loss`) train by
    torch, which is several times slower. With ten documents per leaf or more, leaf_softmax often finds the leaf better.

    Training is a compiled loop, one document a step, and not torch's `EmbeddingBag`, which computes the logits of all
    nodes for every document. To an equal hF1 (one thread, batches of 32, row-sparse Adagrad) that takes 13 times as
    long on WordNet (17,157 nodes), 5 times on ESCO (3,561) and 1.5 times on the sample (353), though less on 283 leaves
    with leaf_softmax; and importing torch takes longer than fitting the sample.

    Steps are Adagrad's, one length per vector, times a learning rate that falls evenly to 0; `adaptive=False` takes
    plain steps as fastText does, which may diverge at a high learning rate. With validation data the epoch with the
    smallest loss is kept, learning stops after `patience` epochs without gain, and the temperature of the logits at
    which probabilities fit best is learned too.

    N-grams of up to ngram_range[1] words are hashed to `n_features` buckets, a power of two; those of several words
    count half, and only if two documents have them. `vectors` is a text file of word vectors, from which known words
    begin; it sets the vector size. One thread gives the same result to the bit every time; several are faster, write to
    the same vectors without locks, and do not. With `warm_start` a second fit goes on from the first: its vectors are
    kept, and new words get new ones. `optimize` names the metric that the default rule is chosen for.
    """

    name = "bag"
    learned = BagValues
    objective_: Objective = field(init=False)

    hierarchy: Hierarchy | None = None
    vector_size: Width = 200
    ngram_range: NgramRange = (1, 2)
    n_features: PowerOfTwoBuckets = 2**22
    min_df: Count = 1
    loss: str = "auto"
    loss_params: Mapping[str, float] | None = None
    learning_rate: LearningRate = 1.0
    epochs: Passes = 25
    adaptive: bool = True
    patience: Passes = 5
    vectors: str | None = None
    threads: Annotated[int, Between(1, 1024)] = 1
    warm_start: bool = False
    seed: Seed = 0
    optimize: str | None = None

    # Learning

    def _fit(self, train: Training) -> None:
        earlier = copy(self) if self.warm_start and hasattr(self, "inputs_") else None
        shape = NgramShape((1, self.ngram_range[1]), None, self.n_features)
        stop_nodes = None if earlier is None else earlier.objective_.stop_nodes
        self.objective_ = Objective.of(train, self.loss, self.loss_params, stop_nodes)
        if earlier is not None:
            self._require_same(earlier, shape)
        rng = np.random.default_rng(self.seed)
        self.tfidf_ = fit_tfidf(train.texts, shape, self.min_df)
        if earlier is not None:
            self.tfidf_ = earlier.tfidf_.followed_by(self.tfidf_)
        weights = self._initial_weights(len(self.objective_.spec.outputs), rng)
        if earlier is not None:
            self._copy_vectors(earlier, weights)
        steps = steps_for(self.objective_, weights, self.threads)
        learner = Learner(steps, rng, self.learning_rate, self.epochs, self.patience, train.stop, train.progress)
        examples = self._examples(steps, train)
        valid = None if train.valid is None else self._examples(steps, train.valid, drop=True)
        if valid is not None and not len(valid):
            valid = None
        losses = learner.learn(examples, valid)
        self.inverse_temperature_ = 1.0 if valid is None else fit_inverse_temperature(steps, valid)[1]
        self.losses_ = [value for value in losses if np.isfinite(value)]
        self.inputs_, self.outputs_ = weights.inputs, weights.outputs

    def _require_same(self, earlier: "Bag", shape: NgramShape) -> None:
        """Refuse to go on from an earlier fit with another hierarchy, loss or shape of n-grams."""
        known, objective = earlier.objective_, self.objective_
        objective.hierarchy.require_same(known.hierarchy.fingerprint, "what the model has learned before")
        was, wanted = (
            f"the loss {each.name}, ngram_range {of.ngram_range}, n_features {of.n_features}"
            for each, of in ((known, earlier.tfidf_.shape), (objective, shape))
        )
        if was != wanted:
            raise TreelabelError(
                f"warm_start goes on with {was}, but now it is {wanted}; use the same, or warm_start=False"
            )

    def _copy_vectors(self, earlier: "Bag", weights: BagWeights) -> None:
        """Begin with the vectors that are known, and with those of the outputs if these are the same."""
        known = earlier.inputs_
        if weights.inputs.shape[1] != known.shape[1]:
            raise TreelabelError(
                f"warm_start goes on with vector_size {known.shape[1]}, but now it is {weights.inputs.shape[1]}"
            )
        weights.inputs[: len(known) - 1] = known[:-1]
        weights.inputs[-1] = known[-1]
        if weights.outputs.shape == earlier.outputs_.shape:
            weights.outputs[:] = earlier.outputs_

    def _check_settings(self) -> None:
        check_loss(self.loss, self.loss_params)
        if self.ngram_range[0] != 1:
            raise TreelabelError(
                f"the setting ngram_range of the model bag is {self.ngram_range!r}; expected (1, n), such as (1, 2) "
                "for words and pairs of words"
            )

    def _examples(self, steps: Steps, data: Training, drop: bool = False) -> BagExamples:
        """Prepare documents; `drop` leaves out all that the loss refuses."""
        rows, truth = self.objective_.truth(data, drop)
        return steps.examples(ngram_rows(self.tfidf_, data.texts.take(rows)), truth)

    def _initial_weights(self, outputs: int, rng: np.random.Generator) -> BagWeights:
        """Return random vectors of about the same length, those of the file for its words, and outputs of 0."""
        columns, known = np.zeros(0, np.int32), np.zeros((0, self.vector_size), np.float32)
        if self.vectors is not None:
            columns, known = read_vectors(self.vectors, self.tfidf_)
            length = float(np.sqrt((known.astype(np.float64) ** 2).sum(axis=1).mean()))
            known *= np.sqrt(2) / max(length, 1e-12)
        width = known.shape[1]
        edge = np.sqrt(6 / width)
        inputs = rng.uniform(-edge, edge, (self.tfidf_.width + 1, width)).astype(np.float32)
        inputs[columns] = known
        squares = (np.zeros(size if self.adaptive else 0, np.float32) for size in (len(inputs), outputs))
        return BagWeights(inputs, np.zeros((outputs, width), np.float32), *squares)

    # Scoring

    def _score(self, texts: Strings) -> Scores:
        objective = self.objective_
        no_squares = np.zeros(0, np.float32)
        weights = BagWeights(self.inputs_, self.outputs_, no_squares, no_squares)
        parts = []
        for rows in objective.portions(len(texts)):
            raw = compute_logits(ngram_rows(self.tfidf_, texts.take(rows)), weights)
            logits = self.inverse_temperature_ * raw.astype(np.float64)
            parts.append(objective.scores_of(node_probabilities(objective, logits)).values)
        return Scores.concat(self.hierarchy_, parts)

    @property
    def exhaustive(self) -> bool:
        """Whether children sum to their parent: a softmax shares out all of it, sigmoids do not."""
        return self.objective_.exhaustive

    # Saving

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        shape = self.tfidf_.shape
        values = {
            "loss": self.objective_.name,
            "inverse_temperature": self.inverse_temperature_,
            "losses": self.losses_,
            "ngram_range": [1, shape.lengths[1]],
            "n_features": shape.n_features,
        }
        return values, {
            **self.tfidf_.arrays(),
            "inputs": self.inputs_,
            "outputs": self.outputs_,
            **self.objective_.arrays(),
        }

    def _schema(self, values: dict[str, Any]) -> Schema:
        self._check_settings()
        arrays = {
            **tfidf_arrays(),
            "inputs": Array("float32", ("width + 1", "dimension")),
            "outputs": Array("float32", ("outputs", "dimension")),
        }
        buckets = values["n_features"]
        most = {"width": buckets, "dimension": MOST_DIMENSION, "outputs": 2 * len(self.hierarchy_)}
        return with_objective(Schema(arrays, (), {"buckets": buckets}, most), self.hierarchy_)

    def _restore(self, values: dict[str, Any], arrays: Arrays) -> None:
        shape = NgramShape((1, int(values["ngram_range"][1])), None, int(values["n_features"]))
        self.tfidf_ = Tfidf(shape, arrays["buckets"], arrays["idf"])
        self.inverse_temperature_, self.losses_ = float(values["inverse_temperature"]), list(values["losses"])
        self.inputs_, self.outputs_ = arrays["inputs"], arrays["outputs"]
        self.objective_ = Objective.restore(values["loss"], self.hierarchy_, arrays, self.loss_params)
        self.objective_.require_outputs(len(self.outputs_))
