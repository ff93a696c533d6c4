"""Models that know little: what any other must beat, and a start before anything is labelled."""

from typing import Any

import numpy as np
from scipy import sparse

from treelabel.features import NgramShape, Tfidf
from treelabel.hierarchy import Hierarchy, label_matrix
from treelabel.models.base import Arrays, Model, Training
from treelabel.scores import Scores
from treelabel.strings import Strings


class MostFrequent(Model):
    """Every text has the labels of training in their training shares."""

    name = "most_frequent"

    def __init__(self, hierarchy: Hierarchy | None = None, seed: int = 0) -> None:
        self.hierarchy = hierarchy
        self.seed = seed

    def _fit(self, train: Training) -> None:
        self.shares_ = (train.frequencies / len(train)).astype(np.float32)

    def _score(self, texts: Strings) -> Scores:
        return Scores(self.hierarchy_, np.tile(self.shares_, (len(texts), 1)))

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        return {}, {"shares": self.shares_}

    def _restore(self, values: dict[str, Any], arrays: Arrays) -> None:
        self.shares_ = arrays["shares"]


class ZeroShot(Model):
    """No training texts: a leaf is as likely as its path of names is alike to the text, in tf-idf.

    The texts that it is fitted on are not looked at, only their hierarchy. Probabilities are a softmax over leaves of
    `sharpness` x cosine; texts that share no word with any label are spread over all of them. Linear in the texts.
    """

    name = "zero_shot"

    def __init__(
        self,
        hierarchy: Hierarchy | None = None,
        pieces: tuple[int, int] = (3, 5),
        sharpness: float = 20.0,
        seed: int = 0,
    ) -> None:
        self.hierarchy = hierarchy
        self.pieces = pieces
        self.sharpness = sharpness
        self.seed = seed

    def _fit(self, train: Training) -> None:
        h = train.hierarchy
        self.tfidf_, names = Tfidf.fit_transform(
            [h.names[node] for node in range(len(h))], NgramShape(1, self.pieces, bits=20)
        )
        paths = h.closure(label_matrix(np.arange(len(h.leaves) + 1), h.leaves, len(h))).astype(np.float32)
        summed = sparse.csr_array(paths @ names)
        lengths = np.sqrt(np.asarray(summed.multiply(summed).sum(axis=1)).ravel())
        self.prototypes_ = sparse.csr_array(sparse.diags_array(1 / np.maximum(lengths, 1e-12)) @ summed)

    def _score(self, texts: Strings) -> Scores:
        alike = (self.tfidf_.transform(texts) @ self.prototypes_.T).toarray().astype(np.float64)
        odds = np.exp(self.sharpness * (alike - alike.max(axis=1, keepdims=True, initial=0)))
        leaves = odds / odds.sum(axis=1, keepdims=True)
        return Scores.from_leaves(self.hierarchy_, self.hierarchy_.leaves, leaves)

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        kept = self.prototypes_
        return {}, {
            **self.tfidf_.arrays(),
            "data": kept.data,
            "indices": kept.indices,
            "indptr": kept.indptr,
        }

    def _restore(self, values: dict[str, Any], arrays: Arrays) -> None:
        self.tfidf_ = Tfidf(NgramShape(1, self.pieces, bits=20), arrays["buckets"], arrays["idf"])
        parts = arrays["data"], arrays["indices"], arrays["indptr"]
        self.prototypes_ = sparse.csr_array(parts, (len(self.hierarchy_.leaves), self.tfidf_.width))
        self.prototypes_.check_format(full_check=True)
