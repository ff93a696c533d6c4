"""Baselines that any other model must beat: two that know nothing of texts, and one linear SVM per label.

Most are those of the case study of Amigó and Delgado (2022), "Evaluating Extreme Hierarchical Multi-label
Classification", as is `description_match`.
"""

import re
from abc import abstractmethod
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from scipy import sparse

from treelabel.calibration.contract import sigmoid_of_sign
from treelabel.core.array_schema import Array, Arrays, Schema, indices
from treelabel.core.bounded_memory import BLOCK_SCORES, MANY_NODES, TOP_SCORES
from treelabel.core.errors import TreelabelError
from treelabel.core.progress import progress_bar
from treelabel.core.strings import Strings
from treelabel.core.types import LongArray
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.models.base import Model, Training
from treelabel.models.descriptions import (
    WORDS,
    Descriptions,
    StopWords,
    check_descriptions,
    described_words,
    presence,
)
from treelabel.models.persistence.schema import csr_arrays, csr_of, csr_schema
from treelabel.models.settings import Cost, Seed
from treelabel.scores.score_matrix import Scores
from treelabel.text.ngrams import count_ngrams

CODE_SEPARATOR = re.compile(r"[\s,;|]+")
# Weights of smaller magnitude are set to 0 and not stored.
MIN_WEIGHT = 1e-3


@dataclass(eq=False, repr=False)
class Nothing(Model):
    """No text has any label: every score is 0. Where most texts have none, few metrics see that it knows nothing.

    >>> Nothing(Hierarchy.flat(["A", "B"])).fit(["a text"], [["A"]]).predict(["another"])
    [[]]
    """

    name = "nothing"
    exhaustive: ClassVar[bool] = False

    hierarchy: Hierarchy | None = None
    seed: Seed = 0

    @property
    def default_rule(self) -> str:
        """A threshold of 0.5, which no label reaches."""
        return "threshold"

    def _fit(self, train: Training) -> None:
        """There is nothing to learn."""

    def _score(self, texts: Strings) -> Scores:
        return Scores(self.hierarchy_, sparse.csr_array((len(texts), len(self.hierarchy_)), dtype=np.float32))

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        return {}, {}

    def _schema(self, values: dict[str, Any]) -> Schema:
        return Schema()

    def _restore(self, values: dict[str, Any], arrays: Arrays) -> None:
        """There was nothing to save."""


@dataclass(eq=False, repr=False)
class MostFrequent(Model):
    """Every text has the labels of training in their training shares.

    >>> model = MostFrequent(Hierarchy.flat(["A", "B"])).fit(["a", "b", "c", "d"], ["A", "B", "B", "B"])
    >>> model.score(["another"]).dense().tolist(), model.predict(["another"]).tolist()
    ([[0.25, 0.75]], ['B'])
    """

    name = "most_frequent"
    takes_sample_weight = True

    hierarchy: Hierarchy | None = None
    seed: Seed = 0

    def _fit(self, train: Training) -> None:
        if train.weights is None:
            self.shares_ = (train.frequencies / len(train)).astype(np.float32)
        else:
            self.shares_ = np.minimum(train.closed_labels.T @ train.weights / train.weights.sum(), 1).astype(np.float32)

    def _score(self, texts: Strings) -> Scores:
        return Scores(self.hierarchy_, np.tile(self.shares_, (len(texts), 1)))

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        return {}, {"shares": self.shares_}

    def _schema(self, values: dict[str, Any]) -> Schema:
        shares = Array("float32", ("nodes",), 0, 1)
        return Schema({"shares": shares}, sizes={"nodes": len(self.hierarchy_)})

    def _restore(self, values: dict[str, Any], arrays: Arrays) -> None:
        self.shares_ = arrays["shares"]


class LabelSvms(Model):
    """One binary linear SVM per label of the training data, over binary features.

    A document is a positive example of its labels and of their ancestors. The score is 1 / (1 + exp(-margin)), so that
    a threshold of 0.5 decides by the sign of the margin; a node scores at least as much as its descendants, and labels
    that do not occur in the training data score 0. Labels are trained in order of frequency, each in about ten passes
    over the data, so a deadline costs the rarest ones. From 20,000 nodes on, only the 100 largest scores of a text are
    kept.
    """

    exhaustive: ClassVar[bool] = False
    hash_type: ClassVar[str]
    C: float

    @property
    def default_rule(self) -> str:
        """A threshold of 0.5, which decides by the sign of the margin."""
        return "threshold"

    @abstractmethod
    def _hash_tokens(self, texts: Strings) -> tuple[LongArray, npt.NDArray[Any]]:
        """Return the number of hashed tokens of each text, and the hashes of all texts in order."""

    @abstractmethod
    def _vocabulary(self, train: Training) -> npt.NDArray[Any]:
        """Return the hashes that are features, sorted."""

    def _features(self, texts: Strings) -> sparse.csr_array:
        return presence(*self._hash_tokens(texts), self.known_)

    def _fit(self, train: Training) -> None:
        self.known_ = self._vocabulary(train)
        features, targets = self._features(train.texts), sparse.csc_array(train.closed_labels)
        occurring = np.unique(train.labels.indices)
        order = occurring[np.argsort(-train.frequencies[occurring], kind="stable")]
        rows: list[sparse.csr_array] = []
        biases: list[float] = []
        with progress_bar("learning", len(order), train.progress) as done:
            try:
                for label in order.tolist():
                    if rows and train.stop:
                        break
                    row, bias = self._fit_label(features, targets[:, [label]].toarray().ravel())
                    rows.append(row)
                    biases.append(bias)
                    done(len(rows))
            except KeyboardInterrupt:
                if not rows:
                    raise
                train.stop.interrupt()
        self.labels_ = order[: len(rows)].astype(np.int32)
        self.weights_, self.bias_ = sparse.csr_array(sparse.vstack(rows, "csr")), np.array(biases, np.float32)

    def _fit_label(self, features: sparse.csr_array, target: npt.NDArray[np.bool_]) -> tuple[sparse.csr_array, float]:
        """Train the SVM of one label; return its weights and its bias."""
        from sklearn.svm import LinearSVC

        if target.all():
            return sparse.csr_array((1, features.shape[1]), dtype=np.float32), 1.0
        # The primal solver is deterministic, and converges where the dual one may not.
        svm = LinearSVC(C=self.C, dual=False).fit(features, target)
        weights = svm.coef_.astype(np.float32)
        weights[np.abs(weights) < MIN_WEIGHT] = 0
        return sparse.csr_array(weights), float(svm.intercept_[0])

    def _score(self, texts: Strings) -> Scores:
        h, features, parts = self.hierarchy_, self._features(texts), []
        # Block by block, to bound memory.
        step = max(1, BLOCK_SCORES // max(1, len(h)))
        for low in range(0, max(1, features.shape[0]), step):
            margins = (features[low : low + step] @ self.weights_.T).toarray() + self.bias_
            values = np.zeros((len(margins), len(h)), np.float32)
            values[:, self.labels_] = sigmoid_of_sign(margins)
            scores = Scores(h, values).coherent("max")
            parts.append((scores.top_k(TOP_SCORES) if len(h) >= MANY_NODES else scores).values)
        return Scores.concat(h, parts)

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        names = {"known": self.known_, "labels": self.labels_, "bias": self.bias_}
        return {}, {**names, **csr_arrays("", self.weights_)}

    def _schema(self, values: dict[str, Any]) -> Schema:
        nodes = len(self.hierarchy_)
        return Schema(
            {
                "known": Array(self.hash_type, ("known",), -(2.0**63), 2.0**63, rising=True),
                "labels": indices("labels", "nodes"),
                "bias": Array("float32", ("labels",)),
            },
            (csr_schema("", "labels", "known"),),
            sizes={"nodes": nodes},
            most={"known": 1 << 31, "labels": nodes},
        )

    def _restore(self, values: dict[str, Any], arrays: Arrays) -> None:
        self.known_, self.labels_, self.bias_ = arrays["known"], arrays["labels"], arrays["bias"]
        self.weights_ = csr_of("", arrays, (len(self.labels_), len(self.known_)))


@dataclass(eq=False, repr=False)
class SvmDescriptions(LabelSvms):
    """SVMs over the presence of words from the labels' descriptions: SVM DESCR.

    A label without a description contributes the words of its name. Stop words and all other words are ignored.

    >>> h = Hierarchy.flat(["good", "bad"])
    >>> model = SvmDescriptions(h, {"good": "fine and sunny", "bad": "dull, rainy"})
    >>> model.fit(["so sunny", "all dull", "fine", "rainy day"], ["good", "bad", "good", "bad"]).predict(["Sunny!"])[0]
    np.str_('good')
    """

    name = "svm_descriptions"
    hash_type = "int32"

    hierarchy: Hierarchy | None = None
    descriptions: Descriptions = None
    stop_words: StopWords = "english"
    C: Cost = 1.0
    seed: Seed = 0

    def _check_settings(self) -> None:
        check_descriptions(self.descriptions)

    def _vocabulary(self, train: Training) -> npt.NDArray[Any]:
        vocabulary, _ = described_words(train.hierarchy, self.descriptions, self.stop_words)
        if not len(vocabulary):
            raise TreelabelError(
                "no label has a word other than stop words in its description or name; give descriptions=, or fewer "
                "stop_words="
            )
        return vocabulary

    def _hash_tokens(self, texts: Strings) -> tuple[LongArray, npt.NDArray[Any]]:
        return count_ngrams(texts, WORDS)[:2]


@dataclass(eq=False, repr=False)
class SvmCodes(LabelSvms):
    """SVMs over the presence of other codes: SVM CODES. A text is a list of codes.

    Codes are separated by white space, commas, semicolons or |, and are case-sensitive.

    >>> h = Hierarchy.flat(["good", "bad"])
    >>> model = SvmCodes(h).fit(["A1 B.2", "C3;B.2", "A1", "C3, D"], ["good", "bad", "good", "bad"])
    >>> model.predict(["A1|E", "C3"]).tolist()
    ['good', 'bad']
    """

    name = "svm_codes"
    hash_type = "int64"

    hierarchy: Hierarchy | None = None
    C: Cost = 1.0
    seed: Seed = 0

    def _vocabulary(self, train: Training) -> npt.NDArray[Any]:
        vocabulary = np.unique(self._hash_tokens(train.texts)[1])
        if not len(vocabulary):
            raise TreelabelError("no document has a code; expected texts that are lists of codes, such as 'I10 E11.9'")
        return vocabulary

    def _hash_tokens(self, texts: Strings) -> tuple[LongArray, npt.NDArray[Any]]:
        rows = [{code for code in CODE_SEPARATOR.split(text) if code} for text in texts]
        # The iteration order of a set changes from run to run.
        hashes = [code_hash(code) for row in rows for code in sorted(row)]
        return np.array([len(row) for row in rows], np.int64), np.array(hashes, np.int64)


def code_hash(code: str) -> int:
    """Hash a code to 64 bits.

    >>> code_hash("I10") == code_hash("I10"), code_hash("I10") == code_hash("i10")
    (True, False)
    """
    return int.from_bytes(blake2b(code.encode(), digest_size=8).digest(), "little", signed=True)
