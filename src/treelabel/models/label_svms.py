"""SVM DESCR. and SVM CODES: one linear SVM a label, whose features are words of label descriptions, or other codes.

Two of the baselines of the case study of Amigó and Delgado (2022).
"""

import re
from abc import abstractmethod
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.special import expit

from treelabel.core.compute import LongArray
from treelabel.core.errors import TreelabelError
from treelabel.core.progress import progress_bar
from treelabel.core.scale import BLOCK_SCORES, KEPT_SCORES, MANY_NODES
from treelabel.core.schema import Array, Arrays, Csr, Schema, indices
from treelabel.core.strings import Strings
from treelabel.hierarchy import Hierarchy
from treelabel.models.base import Model, Training
from treelabel.models.descriptions import (
    WORDS,
    Descriptions,
    StopWords,
    described_words,
    presence,
)
from treelabel.scores import Scores
from treelabel.text.ngrams import count_ngrams

CODE_END = re.compile(r"[\s,;|]+")
# Weights below this are not stored.
TINY = 1e-3
# A margin of 0 is no reason to give a label, and rounding must not make it one.
BELOW_HALF = np.nextafter(np.float32(0.5), np.float32(0))


class LabelSvms(Model):
    """One binary linear SVM for each label that training documents were given, over marks of what a text has.

    A document is positive for a label that it has or that is above one of its own. A score is 1 / (1 + exp(-margin)),
    so that a threshold of 0.5 goes by the margin's sign; a node has at least what is below it, labels that training
    has not seen have 0. Training costs some ten passes over the data a label, the commonest first: a deadline leaves
    out rare ones. From 20,000 nodes on the 100 largest scores of a text are kept.
    """

    exhaustive: ClassVar[bool] = False
    hash_type: ClassVar[str]
    C: float

    @property
    def default_rule(self) -> str:
        """A threshold of 0.5: the sign of the margin."""
        return "threshold"

    @abstractmethod
    def _hashed(self, texts: Strings) -> tuple[LongArray, npt.NDArray[Any]]:
        """Hash what texts have: how many each, and which."""

    @abstractmethod
    def _known(self, train: Training) -> npt.NDArray[Any]:
        """Find the hashes that are features, sorted."""

    def _features(self, texts: Strings) -> sparse.csr_array:
        return presence(*self._hashed(texts), self.known_)

    def _fit(self, train: Training) -> None:
        self.known_ = self._known(train)
        features, targets = self._features(train.texts), sparse.csc_array(train.closed)
        given = np.unique(train.labels.indices)
        common = given[np.argsort(-train.frequencies[given], kind="stable")]
        rows: list[sparse.csr_array] = []
        biases: list[float] = []
        with progress_bar("learning", len(common), train.progress) as done:
            try:
                for label in common.tolist():
                    if rows and train.stop:
                        break
                    row, bias = self._one(features, targets[:, [label]].toarray().ravel())
                    rows.append(row)
                    biases.append(bias)
                    done(len(rows))
            except KeyboardInterrupt:
                if not rows:
                    raise
                train.stop.interrupt()
        self.labels_ = common[: len(rows)].astype(np.int32)
        self.weights_, self.bias_ = sparse.csr_array(sparse.vstack(rows, "csr")), np.array(biases, np.float32)

    def _one(self, features: sparse.csr_array, target: npt.NDArray[np.bool_]) -> tuple[sparse.csr_array, float]:
        """Learn one label: its weights and its bias."""
        from sklearn.svm import LinearSVC

        if target.all():
            return sparse.csr_array((1, features.shape[1]), dtype=np.float32), 1.0
        # The primal problem needs no random order, and ends where the dual may wander.
        svm = LinearSVC(C=self.C, dual=False).fit(features, target)
        weights = svm.coef_.astype(np.float32)
        weights[np.abs(weights) < TINY] = 0
        return sparse.csr_array(weights), float(svm.intercept_[0])

    def _score(self, texts: Strings) -> Scores:
        parts = list(self._blocks(self._features(texts)))
        joined = sparse.vstack(parts, "csr") if sparse.issparse(parts[0]) else np.concatenate(parts)
        return Scores(self.hierarchy_, joined)

    def _blocks(self, features: sparse.csr_array) -> Iterator[Any]:
        """Score some documents at a time."""
        h = self.hierarchy_
        step = max(1, BLOCK_SCORES // max(1, len(h)))
        for low in range(0, max(1, features.shape[0]), step):
            margins = (features[low : low + step] @ self.weights_.T).toarray() + self.bias_
            values = np.zeros((len(margins), len(h)), np.float32)
            values[:, self.labels_] = np.where(margins > 0, expit(margins), np.minimum(expit(margins), BELOW_HALF))
            scores = Scores(h, values).coherent("max")
            yield (scores.top_k(KEPT_SCORES) if len(h) >= MANY_NODES else scores).values

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        kept: sparse.csr_array = self.weights_
        names = {"known": self.known_, "labels": self.labels_, "bias": self.bias_}
        return {}, {**names, "data": kept.data, "indices": kept.indices, "indptr": kept.indptr}

    def _schema(self, values: dict[str, Any]) -> Schema:
        nodes = len(self.hierarchy_)
        return Schema(
            {
                "known": Array(self.hash_type, ("known",), -(2.0**63), 2.0**63, rising=True),
                "labels": indices("labels", "nodes"),
                "bias": Array("float32", ("labels",)),
            },
            (Csr("labels", "known"),),
            sizes={"nodes": nodes},
            most={"known": 1 << 31, "labels": nodes},
        )

    def _restore(self, values: dict[str, Any], arrays: Arrays) -> None:
        self.known_, self.labels_, self.bias_ = arrays["known"], arrays["labels"], arrays["bias"]
        parts = arrays["data"], arrays["indices"], arrays["indptr"]
        self.weights_ = sparse.csr_array(parts, (len(self.labels_), len(self.known_)))


class SvmDescriptions(LabelSvms):
    """SVMs whose features are the words of label descriptions, present or not: SVM DESCR.

    Stop words are left out; where a label has no description, its name is. No other word counts.

    >>> h = Hierarchy.flat(["good", "bad"])
    >>> model = SvmDescriptions(h, {"good": "fine and sunny", "bad": "dull, rainy"})
    >>> model.fit(["so sunny", "all dull", "fine", "rainy day"], ["good", "bad", "good", "bad"]).predict(["Sunny!"])
    [['good']]
    """

    name = "svm_descriptions"
    hash_type = "int32"

    def __init__(
        self,
        hierarchy: Hierarchy | None = None,
        descriptions: Descriptions = None,
        stop_words: StopWords = "english",
        C: float = 1.0,  # noqa: N803
        seed: int = 0,
    ) -> None:
        self.hierarchy = hierarchy
        self.descriptions = descriptions
        self.stop_words = stop_words
        self.C = C
        self.seed = seed

    def _known(self, train: Training) -> npt.NDArray[Any]:
        known, _ = described_words(train.hierarchy, self.descriptions, self.stop_words)
        if not len(known):
            raise TreelabelError("no label has a description or a name with a word that is no stop word")
        return known

    def _hashed(self, texts: Strings) -> tuple[LongArray, npt.NDArray[Any]]:
        return count_ngrams(texts, WORDS)[:2]


class SvmCodes(LabelSvms):
    """SVMs whose features are other codes, present or not: SVM CODES. A text is a list of codes.

    Codes are divided by white space, comma, semicolon or |, and are compared whole and as they are written.

    >>> h = Hierarchy.flat(["good", "bad"])
    >>> model = SvmCodes(h).fit(["A1 B.2", "C3;B.2", "A1", "C3, D"], ["good", "bad", "good", "bad"])
    >>> model.predict(["A1|E", "C3"])
    [['good'], ['bad']]
    """

    name = "svm_codes"
    hash_type = "int64"

    def __init__(self, hierarchy: Hierarchy | None = None, C: float = 1.0, seed: int = 0) -> None:  # noqa: N803
        self.hierarchy = hierarchy
        self.C = C
        self.seed = seed

    def _known(self, train: Training) -> npt.NDArray[Any]:
        known = np.unique(self._hashed(train.texts)[1])
        if not len(known):
            raise TreelabelError("no document has a code; expected texts that are lists of codes, such as 'I10 E11.9'")
        return known

    def _hashed(self, texts: Strings) -> tuple[LongArray, npt.NDArray[Any]]:
        rows = [{code for code in CODE_END.split(text) if code} for text in texts]
        # Sorted, as the order of a set changes from run to run.
        hashes = [code_hash(code) for row in rows for code in sorted(row)]
        return np.array([len(row) for row in rows], np.int64), np.array(hashes, np.int64)


def code_hash(code: str) -> int:
    """Hash a code to 64 bits.

    >>> code_hash("I10") == code_hash("I10"), code_hash("I10") == code_hash("i10")
    (True, False)
    """
    return int.from_bytes(blake2b(code.encode(), digest_size=8).digest(), "little", signed=True)
