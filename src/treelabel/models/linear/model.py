"""The default model: tf-idf of n-grams, linear outputs, and a calibrated distribution over the hierarchy."""

from dataclasses import dataclass, replace
from typing import Annotated, Any, NotRequired, TypedDict

import numpy as np
from scipy import sparse

from treelabel.core.compute import LongArray
from treelabel.core.errors import TreelabelError
from treelabel.core.kinds import Between
from treelabel.core.strings import Strings
from treelabel.encoders.catalogue import CachedEncoder, Encoder, encoder_note, find_encoder, joined, same_encoder
from treelabel.hierarchy import Hierarchy, label_matrix
from treelabel.models.base import Model, Training
from treelabel.models.linear.heads import HEADS, Head, Job, Learned, Rows, learn_head
from treelabel.models.schema import MOST_DIMENSION, Arrays, EncoderNote, Ngrams, Schema, require_width
from treelabel.rules import decide
from treelabel.scores import Scores
from treelabel.text import NgramShape, Tfidf
from treelabel.text.names import named_ngrams

# Documents held out for calibration at most: its few numbers need no more.
MOST_HELD_OUT = 2_000
# ... and fewer where there are very many labels, as their outputs are all kept until then.
MOST_HELD_VALUES = 1 << 25
FEWEST_OF_MANY = 200
# From so many documents on heads are tried on a sample of them before one is chosen.
WORTH_A_TRIAL = 20_000
TRIAL = 3_000


@dataclass(frozen=True)
class Step:
    """One step of a path: its label and probability, and the n-grams that speak for it and against it."""

    label: str
    p: float
    speaks_for: list[tuple[str, float]]
    speaks_against: list[tuple[str, float]]


class WithPieces(Ngrams):
    """N-grams of words, and of characters if there are any."""

    pieces: tuple[int, int] | None


class Values(TypedDict):
    """The head, and where features come from."""

    head: str
    encoder: EncoderNote | None
    ngrams: WithPieces | None
    encoder_width: NotRequired[Annotated[int, Between(0, MOST_DIMENSION)]]


class Linear(Model):
    """tf-idf and linear outputs, turned into probabilities on documents held out of training.

    `head` is a row of HEADS, or "auto": "nodes", or from 20,000 documents on what does better on held-out documents of
    a sample, "nodes" or the conditional head that suits the labels. With squared hinge
    and one path a document, the probability of an end is a softmax of v_0 x its output + the sum over its ancestors of
    v_depth x theirs, and a node has the sum of its ends; with several paths it is a rising function of the node's
    output, made coherent. Conditional heads multiply along the path, and `tau` adjusts their logits for rare siblings.

    Features are runs of up to `words` words in at least `min_df` documents and, if asked for, `pieces` of words such as
    (3, 5): better on short texts, at several times the cost. An `encoder` adds its embeddings, which then count
    `encoder_share` of a text's length, or 1 without `tfidf`. Training costs about documents x n-grams a document x
    labels / 16 for each of some five passes; weights below `prune` are dropped. With a validation set, that is what
    calibration looks at, and nothing is held out.
    """

    name = "linear"
    learned = Values

    def __init__(
        self,
        hierarchy: Hierarchy | None = None,
        head: str = "auto",
        tau: float = 0.0,
        words: int = 1,
        pieces: tuple[int, int] | None = None,
        min_df: int = 1,
        bits: int = 22,
        tfidf: bool = True,
        encoder: str | Encoder | None = None,
        encoder_share: Annotated[float, Between(0, 1)] = 0.5,
        cost: float | None = None,
        prune: float = 0.01,
        held_out: float = 0.2,
        most_passes: int = 7,
        seed: int = 0,
    ) -> None:
        self.hierarchy = hierarchy
        self.head = head
        self.tau = tau
        self.words = words
        self.pieces = pieces
        self.min_df = min_df
        self.bits = bits
        self.tfidf = tfidf
        self.encoder = encoder
        self.encoder_share = encoder_share
        self.cost = cost
        self.prune = prune
        self.held_out = held_out
        self.most_passes = most_passes
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
        rows = Rows(features, held, self.most_passes, self.seed, train.valid is None)
        job = Job(rows, every, self.cost, self.tau, self.prune)
        self.learned_ = learn_head(self._chosen(heads, job), job)

    def _heads(self, train: Training) -> list[str]:
        """Choose which heads to try."""
        if self.head != "auto":
            find_head(self.head).refuse(train)
            return [self.head]
        one_path = train.regime != "many" and train.hierarchy.is_tree
        return ["nodes", "conditional_softmax" if one_path else "conditional_sigmoid"]

    def _chosen(self, heads: list[str], job: Job) -> str:
        """Choose the head that loses least on held-out documents of a sample; where documents are few, the first.

        Learning twice would cost what a few documents cannot show.
        """
        documents = len(job.train)
        if len(heads) == 1 or documents < WORTH_A_TRIAL:
            return heads[0]
        sample = np.sort(np.random.default_rng(self.seed).permutation(documents)[:TRIAL])
        rows = replace(job.rows, features=job.rows.features[sample], held=np.arange(TRIAL // 2), learn_held=False)
        trial = replace(job, rows=rows, train=job.train[sample])
        return min(heads, key=lambda name: learn_head(name, trial).loss)

    def _held_out(self, documents: int, nodes: int) -> LongArray:
        """Choose at random the documents that outputs are calibrated on; one at least is left to learn from."""
        order = np.random.default_rng(self.seed).permutation(documents)
        most = min(MOST_HELD_OUT, max(FEWEST_OF_MANY, MOST_HELD_VALUES // nodes), documents - 1)
        held: LongArray = np.sort(order[: min(max(1, int(self.held_out * documents)), most)])
        return held

    # Features

    def _learned_features(self, train: Training, every: Training) -> sparse.csr_array:
        self.tfidf_ = None
        if self.tfidf:
            shape = NgramShape(self.words, self.pieces, self.bits)
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
        return joined(rows, dense, self.encoder_share)

    # Scoring

    def _score(self, texts: Strings) -> Scores:
        features = self._features(texts)
        require_width(features, self.learned_.weights.sparse.shape[0], self)
        return Scores(self.hierarchy_, self.learned_.probabilities(features))

    # Explaining

    def explain(self, text: str, node: int | None = None, most: int = 8) -> list[Step]:
        """Say which n-grams of a text speak for and against each step of its best leaf's path (or a node's).

        A contribution is the n-gram's weight in the text times its weight for the label. What an encoder adds is left
        out.
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
        output = self.learned_.outputs.output(node)
        weights = self.learned_.weights.sparse[:, [output]].toarray().ravel() if output >= 0 else np.zeros(0)
        parts = {name: value * float(weights[place]) for name, (place, value) in given.items()} if output >= 0 else {}
        ranked = sorted(((value, name) for name, value in parts.items() if value), reverse=True)
        speaks = [(name, value) for value, name in ranked[:most] if value > 0]
        against = [(name, value) for value, name in reversed(ranked[-most:]) if value < 0]
        return Step(self.hierarchy_.names[node], p, speaks, against)

    # Saving

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        values: dict[str, Any] = {"head": self.learned_.head, "encoder": None, "ngrams": None}
        arrays: dict[str, Any] = dict(self.learned_.arrays())
        if self.encoder_ is not None:
            values["encoder"] = encoder_note(self.encoder_)
            values["encoder_width"] = self.learned_.weights.sparse.shape[0] - (self.tfidf_.width if self.tfidf_ else 0)
        if self.tfidf_ is not None:
            shape = self.tfidf_.shape
            values["ngrams"] = {"words": shape.words, "pieces": shape.pieces, "bits": shape.bits}
            arrays |= self.tfidf_.arrays()
        return values, arrays

    def _schema(self, values: dict[str, Any]) -> Schema:
        find_head(values["head"])
        width = 0 if values["encoder"] is None else values.get("encoder_width", 0)
        bits = None if values["ngrams"] is None else values["ngrams"]["bits"]
        return Learned.schema(values["head"], self.regime_, self.hierarchy_, bits, width)

    def _restore(self, values: dict[str, Any], arrays: Arrays) -> None:
        self.tfidf_ = self.encoder_ = None
        width = 0
        if values["ngrams"] is not None:
            pieces = values["ngrams"]["pieces"]
            shape = NgramShape(
                int(values["ngrams"]["words"]),
                None if pieces is None else (int(pieces[0]), int(pieces[1])),
                int(values["ngrams"]["bits"]),
            )
            self.tfidf_ = Tfidf(shape, arrays["buckets"], arrays["idf"])
            width = self.tfidf_.width
        if values["encoder"] is not None:
            self.encoder_ = CachedEncoder(same_encoder(self.encoder, values["encoder"]))
            width += int(values["encoder_width"])
        self.learned_ = Learned.of(values["head"], self.regime_, self.hierarchy_, width, arrays)


def find_head(name: str) -> Head:
    """Find a row of HEADS."""
    if name not in HEADS:
        raise TreelabelError(f"linear has no head {name!r}; there are: auto, {', '.join(HEADS)}")
    return HEADS[name]
