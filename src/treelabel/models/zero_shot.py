"""A start before anything is labelled: texts and labels are compared by their words, or by any features of texts."""

from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

import numpy as np
from scipy import sparse

from treelabel.calibration.contract import softmax_of_spread, sum_to_nodes, terminal_paths
from treelabel.core.array_schema import Array, Arrays, Schema
from treelabel.core.bounded_memory import BLOCK_SCORES, MANY_NODES, TOP_SCORES
from treelabel.core.matrices import normalize_rows
from treelabel.core.strings import Strings
from treelabel.core.types import IntArray
from treelabel.core.validation import LARGEST, Between
from treelabel.encoders.cached_encoder import CachedEncoder
from treelabel.encoders.protocol import Encoder
from treelabel.encoders.registry import encoder_note, find_encoder, same_encoder
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.models.base import Model, Training
from treelabel.models.descriptions import (
    Descriptions,
    StopWords,
    check_descriptions,
    name_words,
    node_descriptions,
    stop_buckets,
)
from treelabel.models.persistence.schema import (
    MOST_DIMENSION,
    EncoderNote,
    csr_arrays,
    csr_of,
    csr_schema,
    require_width,
    tfidf_arrays,
)
from treelabel.models.settings import NgramRange, NonNegative, Seed
from treelabel.scores.score_matrix import Scores
from treelabel.text.ngrams import NgramShape
from treelabel.text.tfidf import Tfidf


class ZeroShotValues(TypedDict):
    """The encoder, if there is one."""

    encoder: EncoderNote | None


@dataclass(eq=False, repr=False)
class ZeroShot(Model):
    """No training texts: a terminal node is as likely as its prototype is similar to the text.

    A node's prototype is the vector of its name and description, plus `ancestor_weight` x the sum of its ancestors',
    plus `descendant_weight` x the mean of its descendants'. Terminal nodes are the leaves where training documents end
    in leaves, else all nodes; their probabilities are a softmax of cosine / (`temperature` x the standard deviation of
    the cosines of this text), and a node has the sum of the terminal nodes below it. Vectors are tf-idf of words
    (without stop words) and of characters (`char_ngram_range`), weighted by the labels alone, or those of an `encoder`,
    such as embeddings of sentences. Training texts are not looked at; a text that has nothing in common with any label
    is spread over all. Costs texts x terminal nodes.

    >>> h = Hierarchy.from_paths(["pet > dog", "pet > cat", "food > cake"])
    >>> model = ZeroShot(h, {"dog": "barks and fetches sticks"}).fit(["-"], ["cat"])
    >>> model.predict(["It barks all night", "two cakes"]).tolist()
    ['dog', 'cake']
    """

    name = "zero_shot"
    learned = ZeroShotValues

    hierarchy: Hierarchy | None = None
    descriptions: Descriptions = None
    encoder: str | Encoder | None = None
    char_ngram_range: NgramRange | None = (3, 5)
    stop_words: StopWords = "english"
    ancestor_weight: NonNegative = 0.25
    descendant_weight: NonNegative = 0.2
    temperature: Annotated[float, Between(1e-06, LARGEST)] = 1.0
    seed: Seed = 0

    @property
    def _shape(self) -> NgramShape:
        return NgramShape((1, 1), self.char_ngram_range)

    @property
    def _terminals(self) -> IntArray:
        h = self.hierarchy_
        return h.leaves if self.regime_ == "single_path" else np.arange(len(h), dtype=np.int32)

    def _check_settings(self) -> None:
        check_descriptions(self.descriptions)

    def _fit(self, train: Training) -> None:
        h = train.hierarchy
        described = node_descriptions(h, self.descriptions)
        texts = [f"{name_words(name)} {described.get(node, '')}" for node, name in enumerate(h.names)]
        self.encoder_ = None if self.encoder is None else CachedEncoder(find_encoder(self.encoder))
        if self.encoder_ is None:
            learned = Tfidf.fit(texts, self._shape)
            is_term = ~np.isin(learned.buckets, stop_buckets(self.stop_words, self._shape))
            self.tfidf_ = Tfidf(self._shape, learned.buckets[is_term], learned.idf[is_term])
        relatives = shares_of_relatives(h, self.ancestor_weight, self.descendant_weight)
        self.prototypes_ = normalize_rows((relatives @ self._vectors(Strings.of(texts)))[self._terminals])

    def _vectors(self, texts: Strings) -> Any:
        """Turn texts into rows of length 1, dense or sparse."""
        if self.encoder_ is None:
            return self.tfidf_.transform(texts)
        return normalize_rows(self.encoder_.transform(list(texts)))

    def _score(self, texts: Strings) -> Scores:
        h, terminals = self.hierarchy_, self._terminals
        paths = terminal_paths(h, terminals).astype(np.float64)
        step = max(1, BLOCK_SCORES // max(1, len(h)))
        parts = []
        for low in range(0, len(texts), step):
            vectors = self._vectors(texts[low : low + step])
            require_width(vectors, self.prototypes_.shape[1], self)
            alike = vectors @ self.prototypes_.T
            cosines = (alike.toarray() if sparse.issparse(alike) else alike).astype(np.float64)
            scores = Scores(h, sum_to_nodes(softmax_of_spread(cosines, self.temperature), paths))
            parts.append((scores.top_k(TOP_SCORES) if len(h) >= MANY_NODES else scores).values)
        return Scores.concat(h, parts)

    def _known_words(self) -> None:
        """Words come from the names of labels, not from training texts."""

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        if self.encoder_ is not None:
            return {"encoder": encoder_note(self.encoder_)}, {"prototypes": self.prototypes_}
        return {"encoder": None}, {**self.tfidf_.arrays(), **csr_arrays("", self.prototypes_)}

    def _schema(self, values: dict[str, Any]) -> Schema:
        sizes = {"terminals": len(self._terminals), "buckets": self._shape.n_features}
        if values["encoder"] is not None:
            prototypes = Array("float32|float64", ("terminals", "dimension"))
            return Schema({"prototypes": prototypes}, sizes=sizes, most={"dimension": MOST_DIMENSION})
        return Schema(tfidf_arrays(), (csr_schema("", "terminals"),), sizes, {"width": sizes["buckets"]})

    def _restore(self, values: dict[str, Any], arrays: Arrays) -> None:
        self.encoder_ = None
        if values["encoder"] is not None:
            self.encoder_ = CachedEncoder(same_encoder(self.encoder, values["encoder"]))
            self.prototypes_ = arrays["prototypes"]
            return
        self.tfidf_ = Tfidf(self._shape, arrays["buckets"], arrays["idf"])
        self.prototypes_ = csr_of("", arrays, (len(self._terminals), self.tfidf_.width))


def shares_of_relatives(hierarchy: Hierarchy, up: float, down: float) -> sparse.csr_array:
    """Compute how much of other nodes goes into each: 1 of itself, `up` of ancestors, `down` / number of descendants.

    Parameters
    ----------
    up, down : float
        The weight of each ancestor, and that of all descendants together.

    Returns
    -------
    csr_array of shape (nodes, nodes)
        Weights.

    >>> shares_of_relatives(Hierarchy.from_paths(["A > B", "A > C"]), 0.5, 0.25).toarray().tolist()
    [[1.0, 0.125, 0.125], [0.5, 1.0, 0.0], [0.5, 0.0, 1.0]]
    """
    nodes = np.arange(len(hierarchy))
    above = hierarchy.ancestors(nodes).astype(np.float32)
    below = hierarchy.descendants(nodes).astype(np.float32)
    mean = sparse.diags_array((1 / np.maximum(1, np.diff(below.indptr))).astype(np.float32))
    itself = sparse.eye_array(len(hierarchy), dtype=np.float32)
    return sparse.csr_array(itself + up * above + down * (mean @ below))
