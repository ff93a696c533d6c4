"""A start before anything is labelled: texts and labels are compared by their words, or by any features of texts."""

from typing import Any, TypedDict

import numpy as np
import numpy.typing as npt
from scipy import sparse

from treelabel.core.compute import DoubleArray, IntArray
from treelabel.core.strings import Strings
from treelabel.encoders.catalogue import CachedEncoder, Encoder, encoder_note, find_encoder, same_encoder
from treelabel.hierarchy import Hierarchy, label_matrix
from treelabel.models.base import Model, Training
from treelabel.models.descriptions import (
    DENSE_BLOCK,
    KEPT,
    MANY_NODES,
    Descriptions,
    StopWords,
    name_words,
    node_descriptions,
    stop_buckets,
)
from treelabel.models.schema import MOST_DIMENSION, Array, Arrays, Csr, EncoderNote, Schema, require_width, tfidf_arrays
from treelabel.scores import Scores
from treelabel.text import NgramShape, Tfidf

BITS = 22
# Cosines that differ by less than this say nothing.
LEAST_SPREAD = 0.01


class Values(TypedDict):
    """The encoder, if there is one."""

    encoder: EncoderNote | None


class ZeroShot(Model):
    """No training texts: an end is as likely as its prototype is alike to the text.

    A node's prototype is the vector of its name and description, plus `up` x the sum of its ancestors', plus `down` x
    the mean of its descendants'. Ends are the leaves where training documents ended in leaves, else all nodes; their
    probabilities are a softmax of `sharpness` x cosine / (the cosines' standard deviation over the ends of this text),
    and a node has the sum of the ends below it. Vectors are tf-idf of words (without stop words) and `pieces` of words
    as weighed by the labels alone, or those of an `encoder`, such as embeddings of sentences. Texts of training are not
    looked at; a text that has nothing in common with any label is spread over all. Costs texts x ends.

    >>> h = Hierarchy.from_paths(["pet > dog", "pet > cat", "food > cake"])
    >>> model = ZeroShot(h, {"dog": "barks and fetches sticks"}).fit(["-"], ["cat"])
    >>> model.predict(["It barks all night", "two cakes"])
    [['dog'], ['cake']]
    """

    name = "zero_shot"
    learned = Values

    def __init__(
        self,
        hierarchy: Hierarchy | None = None,
        descriptions: Descriptions = None,
        encoder: str | Encoder | None = None,
        pieces: tuple[int, int] | None = (3, 5),
        stop_words: StopWords = "english",
        up: float = 0.25,
        down: float = 0.2,
        sharpness: float = 1.0,
        seed: int = 0,
    ) -> None:
        self.hierarchy = hierarchy
        self.descriptions = descriptions
        self.encoder = encoder
        self.pieces = pieces
        self.stop_words = stop_words
        self.up = up
        self.down = down
        self.sharpness = sharpness
        self.seed = seed

    @property
    def _shape(self) -> NgramShape:
        return NgramShape(1, self.pieces, BITS)

    @property
    def _ends(self) -> IntArray:
        h = self.hierarchy_
        return h.leaves if self.regime_ == "leaf" else np.arange(len(h), dtype=np.int32)

    def _fit(self, train: Training) -> None:
        h = train.hierarchy
        given = node_descriptions(h, self.descriptions)
        texts = [f"{name_words(name)} {given.get(node, '')}" for node, name in enumerate(h.names)]
        self.encoder_ = None if self.encoder is None else CachedEncoder(find_encoder(self.encoder))
        if self.encoder_ is None:
            learned = Tfidf.fit(texts, self._shape)
            kept = ~np.isin(learned.buckets, stop_buckets(self.stop_words, self._shape))
            self.tfidf_ = Tfidf(self._shape, learned.buckets[kept], learned.idf[kept])
        own = self._vectors(Strings.of(texts))
        self.prototypes_ = unit_rows((shares_of_relatives(h, self.up, self.down) @ own)[self._ends])

    def _vectors(self, texts: Strings) -> Any:
        """Turn texts into rows of length 1, dense or sparse."""
        return (
            self.tfidf_.transform(texts) if self.encoder_ is None else unit_rows(self.encoder_.transform(list(texts)))
        )

    def _score(self, texts: Strings) -> Scores:
        h, ends = self.hierarchy_, self._ends
        paths = h.closure(label_matrix(np.arange(len(ends) + 1), ends, len(h))).astype(np.float64)
        step = max(1, DENSE_BLOCK // max(1, len(h)))
        parts = []
        for low in range(0, len(texts), step):
            likely = self._likely(texts[low : low + step])
            # The product with a sparse matrix on the right is slow; transposed it streams.
            scores = Scores(h, (paths.T @ likely.T).T)
            parts.append((scores.top_k(KEPT) if len(h) >= MANY_NODES else scores).values)
        if not parts:
            return Scores(h, np.zeros((0, len(h)), np.float32))
        return Scores(h, sparse.vstack(parts, "csr") if sparse.issparse(parts[0]) else np.concatenate(parts))

    def _likely(self, texts: Strings) -> DoubleArray:
        """The probability of every end."""
        vectors = self._vectors(texts)
        require_width(vectors, self.prototypes_.shape[1], self)
        alike = vectors @ self.prototypes_.T
        cosines = (alike.toarray() if sparse.issparse(alike) else alike).astype(np.float64)
        spread = np.maximum(cosines.std(axis=1, keepdims=True), LEAST_SPREAD)
        odds = np.exp(self.sharpness / spread * (cosines - cosines.max(axis=1, keepdims=True)))
        likely: DoubleArray = odds / odds.sum(axis=1, keepdims=True)
        return likely

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        kept = self.prototypes_
        if self.encoder_ is not None:
            return {"encoder": encoder_note(self.encoder_)}, {"prototypes": kept}
        arrays = {"data": kept.data, "indices": kept.indices, "indptr": kept.indptr}
        return {"encoder": None}, {**self.tfidf_.arrays(), **arrays}

    def _schema(self, values: dict[str, Any]) -> Schema:
        sizes = {"ends": len(self._ends), "buckets": self._shape.buckets}
        if values["encoder"] is not None:
            prototypes = Array("float32|float64", ("ends", "dimension"))
            return Schema({"prototypes": prototypes}, sizes=sizes, most={"dimension": MOST_DIMENSION})
        return Schema(tfidf_arrays(), (Csr("ends", "width"),), sizes, {"width": sizes["buckets"]})

    def _restore(self, values: dict[str, Any], arrays: Arrays) -> None:
        self.encoder_ = None
        if values["encoder"] is not None:
            self.encoder_ = CachedEncoder(same_encoder(self.encoder, values["encoder"]))
            self.prototypes_ = arrays["prototypes"]
            return
        self.tfidf_ = Tfidf(self._shape, arrays["buckets"], arrays["idf"])
        parts = arrays["data"], arrays["indices"], arrays["indptr"]
        self.prototypes_ = sparse.csr_array(parts, (len(self._ends), self.tfidf_.width))


def shares_of_relatives(hierarchy: Hierarchy, up: float, down: float) -> sparse.csr_array:
    """Weigh what a node takes of others: 1 of itself, `up` of each ancestor, `down` / their number of each descendant.

    >>> shares_of_relatives(Hierarchy.from_paths(["A > B", "A > C"]), 0.5, 0.25).toarray().tolist()
    [[1.0, 0.125, 0.125], [0.5, 1.0, 0.0], [0.5, 0.0, 1.0]]
    """
    nodes = np.arange(len(hierarchy))
    above = hierarchy.ancestors(nodes).astype(np.float32)
    below = hierarchy.descendants(nodes).astype(np.float32)
    mean = sparse.diags_array((1 / np.maximum(1, np.diff(below.indptr))).astype(np.float32))
    own = sparse.eye_array(len(hierarchy), dtype=np.float32)
    return sparse.csr_array(own + up * above + down * (mean @ below))


def unit_rows(matrix: Any) -> Any:
    """Bring the rows of a dense or sparse matrix to length 1; those of 0 stay.

    >>> unit_rows(np.array([[0.0, 4.0], [0.0, 0.0]])).tolist()
    [[0.0, 1.0], [0.0, 0.0]]
    """
    squares = matrix.multiply(matrix) if sparse.issparse(matrix) else np.square(matrix)
    lengths: npt.NDArray[Any] = np.sqrt(np.asarray(squares.sum(axis=1)).ravel())
    scale = 1 / np.where(lengths > 0, lengths, 1)
    if sparse.issparse(matrix):
        return sparse.csr_array(sparse.diags_array(scale) @ matrix)
    return matrix * scale[:, None]
