"""A retrieval memory: texts have the labels of the training texts, and of the label names, that are most like them."""

from dataclasses import astuple, dataclass, field, replace
from typing import Annotated, Any, ClassVar, TypedDict

import numpy as np
from scipy import sparse

from treelabel.calibration.candidates import (
    CandidateCalibration,
    candidate_calibration,
    largest_evidence,
    targets_of,
)
from treelabel.core.array_schema import Array, Arrays, Csr, Schema
from treelabel.core.bounded_memory import TOP_SCORES
from treelabel.core.matrices import normalize_rows
from treelabel.core.strings import Strings
from treelabel.core.types import FloatArray, LongArray
from treelabel.core.validation import Between
from treelabel.encoders.cached_encoder import CachedEncoder
from treelabel.encoders.protocol import Encoder
from treelabel.encoders.registry import encoder_note, find_encoder, same_encoder
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.labelled_texts import stop_nodes
from treelabel.hierarchy.moves import Moves
from treelabel.models.base import Training
from treelabel.models.descriptions import Descriptions, check_descriptions, is_code, label_text, node_descriptions
from treelabel.models.growth import GrowingModel
from treelabel.models.neighbours import DenseStore, Nearest, SparseStore, sparse_rows, votes
from treelabel.models.persistence.schema import (
    MOST_DIMENSION,
    EncoderNote,
    csr_arrays,
    csr_of,
    csr_schema,
    require_width,
    tfidf_arrays,
)
from treelabel.models.settings import Count, NgramRange, Seed
from treelabel.scores.score_matrix import Scores
from treelabel.selection.evidence import HeldOut
from treelabel.selection.training import candidate_loss, hold_out
from treelabel.text.ngrams import NgramShape
from treelabel.text.tfidf import Tfidf

# Settings that held-out documents choose from, and how many of these are looked at. The first of each is the default.
POWERS = (8.0, 4.0, 12.0)
BLENDS = (0.5, 0.3, 0.7, 0.9)
LABEL_WEIGHTS = (1.0, 0.0, 0.25, 0.5, 2.0)
THRESHOLDS = (0.3, 0.2, 0.4, 0.5)
MOST_LEFT_OUT = 2_000
# Texts whose neighbours are looked up at once.
TEXT_BLOCK = 4096
MOST_DOCUMENTS = 1 << 40


@dataclass(frozen=True)
class NeighbourWeights:
    """How neighbours and names count: see `Memory`."""

    power: float = POWERS[0]
    blend: float = BLENDS[0]
    label_weight: float = LABEL_WEIGHTS[0]
    threshold: float = THRESHOLDS[0]


@dataclass(frozen=True, eq=False)
class Neighbourhood:
    """The neighbours of texts by tf-idf and by embeddings (if there are any), and the labels with names like them."""

    by_words: Nearest
    by_embedding: Nearest | None
    names: Nearest


class MemoryValues(TypedDict):
    """The encoder, the number of training texts, and what was chosen."""

    encoder: EncoderNote | None
    documents: Annotated[int, Between(1, MOST_DOCUMENTS)]
    weights: tuple[float, float, float, float]


@dataclass(eq=False, repr=False)
class Memory(GrowingModel):
    """The labels of the nearest training texts and the nearest label names; nothing is trained.

    The evidence for a label is the share of it among the `n_neighbors` nearest training texts, each of which votes with
    weight cosine^power, plus label_weight x max(cosine(text, label's name) - threshold, 0). With an encoder there are
    neighbours by embeddings and neighbours by tf-idf (with half the power: these cosines are smaller), and the shares
    are blended; names are compared by embeddings then, by tf-idf without one. Labels that training never saw are found
    by their names. Where documents have several paths, evidence becomes a probability by isotonic regression; with one
    path, it is shared out between terminal nodes. What is None is chosen, and all is calibrated, on training documents
    that are left out in turn, with their group.

    Search is exact: scoring costs texts x (training texts + labels) x dimension, and the words that texts have in
    common. Scores are sparse: memory grows with 100 scores per text. What an approximate index would need is said in
    `neighbours`. A saved model has a row for each training text, of hashed words and in half precision.

    Parameters
    ----------
    hierarchy : Hierarchy or None
        The hierarchy, where training data have none of their own.
    encoder : str, Encoder or None
        Makes embeddings of texts; None takes tf-idf alone.
    n_neighbors : int
        The number of neighbours that vote.
    power : float or None
        Neighbours count by their cosine to this power.
    blend : float or None
        The share of embeddings in the vote, beside tf-idf.
    label_weight, threshold : float or None
        How much a label's name counts, and from which cosine on.
    descriptions : mapping, str or None
        Descriptions of labels that are added to their names; they take the place of names that are codes.
    ngram_range : (int, int)
        The shortest and the longest n-grams of words.
    min_df : int
        N-grams are those of at least this many texts.
    seed : int
        Seed of the random numbers.
    optimize : str or None
        The metric that predictions will be judged by, a row of METRICS: the default rule is chosen for it. None stands
        for leaf accuracy of documents with one leaf each, and for hF1 of others.

    >>> h = Hierarchy.flat(["music", "sports", "chess"])
    >>> texts = ["the band plays", "the goal of the match"] * 5
    >>> model = Memory(h).fit(texts, [["music"], ["sports"]] * 5)
    >>> model.predict(["the match was lost"])
    [['sports']]
    """

    name: ClassVar[str] = "memory"
    learned = MemoryValues
    calibration_: CandidateCalibration = field(init=False)
    # Rows of tf-idf, or of embeddings where there is an encoder.
    names_: Any = field(init=False)

    hierarchy: Hierarchy | None = None
    encoder: str | Encoder | None = None
    n_neighbors: Annotated[int, Between(1, 10_000)] = 50
    power: Annotated[float, Between(0, 100)] | None = None
    blend: Annotated[float, Between(0, 1)] | None = None
    label_weight: Annotated[float, Between(0, 1000)] | None = None
    threshold: Annotated[float, Between(0, 1)] | None = None
    descriptions: Descriptions = None
    ngram_range: NgramRange = (1, 1)
    min_df: Count = 1
    seed: Seed = 0
    optimize: str | None = None

    def _check_settings(self) -> None:
        check_descriptions(self.descriptions)
        _ = self._shape

    @property
    def _shape(self) -> NgramShape:
        return NgramShape(self.ngram_range)

    # Learning

    def _fit(self, train: Training) -> HeldOut | None:
        self.encoder_ = None if self.encoder is None else CachedEncoder(find_encoder(self.encoder))
        self.tfidf_, rows = Tfidf.fit_transform(train.texts, self._shape, self.min_df)
        self.words_ = SparseStore(rows)
        vectors = self._embed(train.texts, train.progress)
        self.vectors_ = None if vectors is None else DenseStore(vectors.astype(np.float16))
        self.names_ = self._name_store(train.hierarchy)
        self.targets_ = targets_of(train.hierarchy, train.labels, self.regime_)
        self.weights_ = NeighbourWeights(*(values[0] for values in self._choices()))
        self.calibration_ = self._calibration(train.hierarchy)
        left = self._left_out(train)
        held, groups = train[left], np.arange(len(train)) if train.groups is None else train.groups
        recalled = self._recall(rows[left], None if vectors is None else vectors[left], groups, groups[left])
        self._choose(recalled, held)
        p = self.calibration_.probabilities(self._evidence(recalled))
        return HeldOut.of(p, held) if len(left) > 1 else None

    def _left_out(self, train: Training) -> LongArray:
        """Draw documents to look at; each is left out with its group alone, so that all of a small set can be."""
        if train.groups is None:
            return np.sort(np.random.default_rng(self.seed).permutation(len(train))[:MOST_LEFT_OUT])
        few = len(train) <= MOST_LEFT_OUT
        return np.arange(len(train)) if few else hold_out(len(train), MOST_LEFT_OUT, self.seed, train.groups)

    def _choices(self) -> list[tuple[float, ...]]:
        """List the values of each setting to choose from."""
        settings = (self.power, self.blend, self.label_weight, self.threshold)
        usual = (POWERS, BLENDS, LABEL_WEIGHTS, THRESHOLDS)
        return [many if value is None else (value,) for value, many in zip(settings, usual, strict=True)]

    def _choose(self, recalled: Neighbourhood, held: Training) -> None:
        """Choose the settings that are None one after the other, and fit the calibration; see `candidate_loss`."""
        losses: dict[NeighbourWeights, float] = {}

        def loss(weights: NeighbourWeights) -> float:
            if weights not in losses:
                losses[weights] = candidate_loss(self.calibration_, self._evidence(recalled, weights), held)
            return losses[weights]

        names = ("label_weight", "threshold", "power", "blend", "label_weight")
        choices = dict(zip(NeighbourWeights.__dataclass_fields__, self._choices(), strict=True))
        for name in names:
            if name == "blend" and self.encoder_ is None:
                continue
            tried = [replace(self.weights_, **{name: value}) for value in choices[name]]
            self.weights_ = min([self.weights_, *tried], key=loss)
        self.calibration_ = self.calibration_.fit(self._evidence(recalled), held.labels)

    def _carry_over(self, more: Training | None, moves: Moves) -> None:
        """Go over to another hierarchy: what texts speak for goes with their labels."""
        if moves.is_identity:
            return
        labels = moves.labels(self.targets_)
        marks = moves.new.closure(labels) if self.regime_ == "multi_path" else labels
        self.targets_ = sparse.csr_array((np.ones(marks.nnz, np.float32), marks.indices, marks.indptr), marks.shape)
        self.hierarchy_, self.names_ = moves.new, self._name_store(moves.new)
        self.stop_nodes_ = stop_nodes(moves.new, labels)
        self.calibration_ = self._calibration(moves.new).restore(self.calibration_.arrays())

    def _add(self, more: Training) -> None:
        """Add texts to the memory; words that are new are not known. Copies the whole."""
        self.targets_ = sparse.vstack([self.targets_, targets_of(more.hierarchy, more.labels, self.regime_)], "csr")
        self.words_ = SparseStore(sparse.vstack([self.words_.features, self.tfidf_.transform(more.texts)], "csr"))
        vectors = self._embed_queries(more.texts)
        if self.vectors_ is not None and vectors is not None:
            self.vectors_ = DenseStore(np.concatenate([self.vectors_.vectors, vectors.astype(np.float16)]))
        self.calibration_ = self._calibration(more.hierarchy).restore(self.calibration_.arrays())

    # Features

    def _embed(self, texts: Strings, progress: bool | None = None) -> FloatArray | None:
        """Make embeddings of length 1, if there is an encoder."""
        if self.encoder_ is None:
            return None
        result: FloatArray = normalize_rows(self.encoder_.transform(list(texts), progress)).astype(np.float32)
        return result

    def _embed_queries(self, texts: Strings) -> FloatArray | None:
        """Make embeddings of new texts, which are as wide as those that are stored."""
        result = self._embed(texts)
        if result is not None and self.vectors_ is not None:
            require_width(result, self.vectors_.vectors.shape[1], self)
        return result

    def _name_store(self, h: Hierarchy) -> SparseStore | DenseStore:
        """Make rows of the names of labels; a code says nothing, and has a row of zeros."""
        described = node_descriptions(h, self.descriptions)
        texts = [label_text(name, described.get(node)) for node, name in enumerate(h.names)]
        silent = np.array([is_code(text) for text in texts], np.bool_)
        vectors = self._embed(Strings.of(texts))
        if vectors is None:
            rows = self.tfidf_.transform(["" if quiet else text for text, quiet in zip(texts, silent, strict=True)])
            return SparseStore(rows)
        vectors[silent] = 0
        return DenseStore(vectors.astype(np.float16))

    def _recall(
        self,
        words: sparse.csr_array,
        vectors: FloatArray | None,
        groups: LongArray | None = None,
        query_groups: LongArray | None = None,
    ) -> Neighbourhood:
        """Look up what texts are like, leaving out training texts of their own group if groups are given."""
        count = min(self.n_neighbors, self.targets_.shape[0])
        by_words, by_embedding = self.words_.nearest(words, count, groups, query_groups), None
        if self.vectors_ is not None and vectors is not None:
            by_embedding = self.vectors_.nearest(vectors, count, groups, query_groups)
        names = self.names_.nearest(words if vectors is None else vectors, min(self.n_neighbors, len(self.hierarchy_)))
        return Neighbourhood(by_words, by_embedding, names)

    # Scoring

    def _evidence(self, recalled: Neighbourhood, weights: NeighbourWeights | None = None) -> sparse.csr_array:
        """Add up what speaks for labels; the 100 that most speaks for are kept: documents x nodes."""
        by = self.weights_ if weights is None else weights
        result = votes(recalled.by_words, self.targets_, by.power / 2)
        if recalled.by_embedding is not None:
            other = votes(recalled.by_embedding, self.targets_, by.power)
            result = (1 - by.blend) * result + by.blend * other
        cosines = by.label_weight * np.maximum(recalled.names.cosines - np.float32(by.threshold), 0)
        named = sparse_rows(recalled.names.rows, cosines, len(self.hierarchy_))
        evidence = sparse.csr_array(result + named, dtype=np.float32)
        evidence.eliminate_zeros()
        evidence.sort_indices()
        return largest_evidence(evidence, TOP_SCORES)

    def _score(self, texts: Strings) -> Scores:
        parts = [sparse.csr_array((0, len(self.hierarchy_)), dtype=np.float32)]
        for low in range(0, len(texts), TEXT_BLOCK):
            block = texts[low : low + TEXT_BLOCK]
            recalled = self._recall(self.tfidf_.transform(block), self._embed_queries(block))
            parts.append(self.calibration_.probabilities(self._evidence(recalled)))
        return Scores(self.hierarchy_, sparse.vstack(parts, format="csr"))

    def _score_top(self, texts: Strings, top: int) -> Scores:
        # Only the likeliest are there anyway, and blocks of other sizes would round in other ways.
        return self._score(texts).top_k(top)

    # Saving

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        note = None if self.encoder_ is None else encoder_note(self.encoder_)
        values = {"encoder": note, "documents": self.targets_.shape[0], "weights": list(astuple(self.weights_))}
        arrays = {**self.tfidf_.arrays(), **self.calibration_.arrays(), **csr_arrays("words", self.words_.features)}
        arrays |= {"labels_indices": self.targets_.indices, "labels_indptr": self.targets_.indptr}
        if self.vectors_ is not None:
            return values, {**arrays, "vectors": self.vectors_.vectors, "names": self.names_.vectors}
        return values, {**arrays, **csr_arrays("names", self.names_.features)}

    def _schema(self, values: dict[str, Any]) -> Schema:
        calibration = candidate_calibration(self.regime_ == "multi_path")(self.hierarchy_, np.zeros(0, np.int64))
        arrays = {**tfidf_arrays(), **calibration.parameters}
        csr = [
            csr_schema("words", "documents"),
            Csr("documents", "nodes", "labels_indices", "labels_indptr", None, True),
        ]
        if values["encoder"] is None:
            csr.append(csr_schema("names", "nodes"))
        else:
            arrays["vectors"] = Array("float16", ("documents", "dimension"), -2, 2)
            arrays["names"] = Array("float16", ("nodes", "dimension"), -2, 2)
        sizes = {"nodes": len(self.hierarchy_), "buckets": self._shape.n_features, "documents": values["documents"]}
        most = {"width": sizes["buckets"], "dimension": MOST_DIMENSION}
        return Schema(arrays, tuple(csr), sizes, most, (calibration.check,))

    def _restore(self, values: dict[str, Any], arrays: Arrays) -> None:
        note, nodes = values["encoder"], len(self.hierarchy_)
        self.encoder_ = None if note is None else CachedEncoder(same_encoder(self.encoder, note))
        self.weights_ = NeighbourWeights(*map(float, values["weights"]))
        self.tfidf_ = Tfidf(self._shape, arrays["buckets"], arrays["idf"])
        width, documents = self.tfidf_.width, values["documents"]
        self.words_ = SparseStore(csr_of("words", arrays, (documents, width)))
        marks = np.ones(len(arrays["labels_indices"]), np.float32), arrays["labels_indices"], arrays["labels_indptr"]
        self.targets_ = sparse.csr_array(marks, (documents, nodes))
        self.vectors_ = None
        if note is None:
            self.names_ = SparseStore(csr_of("names", arrays, (nodes, width)))
        else:
            self.vectors_, self.names_ = DenseStore(arrays["vectors"]), DenseStore(arrays["names"])
        self.calibration_ = self._calibration(self.hierarchy_).restore(arrays)

    def _calibration(self, hierarchy: Hierarchy) -> CandidateCalibration:
        counts = np.bincount(self.targets_.indices, minlength=self.targets_.shape[1]).astype(np.int64)
        return candidate_calibration(self.regime_ == "multi_path")(hierarchy, counts)
