"""Prototypes of frozen embeddings: every node is the mean of its texts, shrunk towards its parent and its own name.

There are no gradients: labels without a single text have a prototype too, and later texts are added to sums. Directions
in which texts of one label differ anyway count less: embeddings are whitened by the covariance within labels.
"""

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Any, Literal, Self, TypedDict

import numpy as np
from scipy import sparse

from treelabel.calibration.contract import MarginCalibration, OutputSpace
from treelabel.calibration.isotonic import margin_calibration
from treelabel.core.array_schema import Array, Arrays, Schema, indices
from treelabel.core.compute import row_product
from treelabel.core.errors import TreelabelError
from treelabel.core.matrices import normalize_rows
from treelabel.core.strings import Strings
from treelabel.core.types import FloatArray, IntArray
from treelabel.core.validation import LARGEST, Between
from treelabel.encoders.cached_encoder import CachedEncoder
from treelabel.encoders.protocol import Encoder
from treelabel.encoders.registry import default_encoder, encoder_note, find_encoder, same_encoder
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.label_matrices import LabelMatrix
from treelabel.hierarchy.labelled_texts import Regime
from treelabel.hierarchy.moves import Moves
from treelabel.models.base import Training
from treelabel.models.descriptions import Descriptions, check_descriptions, label_text, node_descriptions
from treelabel.models.growth import GrowingModel
from treelabel.models.persistence.schema import MOST_DIMENSION, EncoderNote, require_inner, require_width
from treelabel.models.prototype_means import Means, Strengths, whitening
from treelabel.models.settings import Seed, Share
from treelabel.rules.registry import DEFAULT_RULES
from treelabel.scores.score_matrix import Scores
from treelabel.selection.evidence import HeldOut
from treelabel.selection.training import hold_out, log_loss

# Prior strengths that leave-one-out chooses from, and how many documents it looks at.
PARENT_STRENGTHS = (1.0, 2.0, 4.0)
LABEL_STRENGTHS = (0.5, 1.0, 2.0, 4.0)
MOST_LEFT_OUT = 1_500
FEWEST_LEFT_OUT = 200
# Where documents have groups, one of this many parts is left out.
GROUPED_PARTS = 5
# A stop has at least this much of a text: shares of labels that were split may be small, rounding errors are smaller.
LEAST_TEXTS = 1e-3
# So many cosines are computed at once.
BLOCK_COSINES = 1 << 24

Strength = Annotated[float, Between(0, LARGEST)]


class PrototypeValues(TypedDict):
    """The encoder, and k_p and k_l."""

    encoder: EncoderNote
    prior_strengths: tuple[Strength, Strength]


@dataclass(eq=False, repr=False)
class Prototype(GrowingModel):
    """Cosines with shrunk prototypes of all nodes, calibrated to a distribution over paths; nothing is trained.

    prototype(n) = (the sum of the embeddings of n's texts + k_p x prototype(parent) + k_l x embedding(the label's
    text)) / (count + k_p + k_l). The calibration of cosines is fitted by leave-one-out. Labels that no text has are
    predicted too. `partial_fit` adds texts and labels.

    Embeddings are unit vectors, whitened: times ((1 - s) C + s I)^-1/2 and scaled to length 1 again, where C is the
    covariance of texts around the mean of their label, scaled to a mean variance of 1. Learning costs documents x
    dimension squared, scoring documents x (nodes + dimension) x dimension.

    Parameters
    ----------
    hierarchy : Hierarchy or None
        The hierarchy, where training data have none of their own.
    encoder : str or Encoder
        Makes embeddings of texts.
    parent_prior_strength, label_prior_strength : float or None
        k_p and k_l: the parent's prototype and the label's text count as much as this many texts. None chooses them by
        leave-one-out.
    shrinkage : float or None
        s; None for three times Ledoit and Wolf's (2004), at most 0.9. 1 leaves embeddings as they are.
    label_text : {"name", "path"}
        Whether a label's text is its own name (names above it come in with the parent's prototype: on training data of
        four sets better than paths) or its whole path.
    descriptions : mapping, str or None
        Descriptions of labels that are added to their texts; they take the place of names that are codes.
    seed : int
        Seed of the random numbers.
    optimize : str or None
        The metric that predictions will be judged by, a row of METRICS: the default rule is chosen for it. None stands
        for leaf accuracy of documents with one leaf each, and for hF1 of others.
    """

    name = "prototype"
    needs_encoder = True
    learned = PrototypeValues
    calibration_: MarginCalibration = field(init=False)

    hierarchy: Hierarchy | None = None
    encoder: str | Encoder | None = None
    parent_prior_strength: Annotated[float, Between(0, np.inf)] | None = None
    label_prior_strength: Annotated[float, Between(0, np.inf)] | None = None
    shrinkage: Share | None = None
    label_text: Literal["name", "path"] = "name"
    descriptions: Descriptions = None
    seed: Seed = 0
    optimize: str | None = None

    # Learning

    def _fit(self, train: Training) -> HeldOut:
        self.encoder_ = CachedEncoder(default_encoder() if self.encoder is None else find_encoder(self.encoder))
        vectors, rows, nothing = self._start(train)
        self.means_ = nothing.with_texts(vectors, rows)
        most = max(FEWEST_LEFT_OUT, min(MOST_LEFT_OUT, BLOCK_COSINES // len(train.hierarchy)))
        if train.groups is None:
            left = np.sort(np.random.default_rng(self.seed).permutation(len(train))[:most])
            return self._choose(partial(self.means_.left_out, vectors[left], rows[left]), train[left])
        # Texts of one group are left out together, which takes other means.
        left = hold_out(len(train), min(most, -(-len(train) // GROUPED_PARTS)), self.seed, train.groups)
        others = np.setdiff1d(np.arange(len(train)), left)
        without = nothing.with_texts(vectors[others], rows[others])
        return self._choose(partial(_cosines, vectors[left], without), train[left])

    def _start(self, train: Training) -> tuple[FloatArray, LabelMatrix, Means]:
        """Learn the whitening; return the vectors of texts, the outputs of each, and means of no text."""
        self.stops_ = inner_terminals(train)
        plain = normalize_rows(self.encoder_.transform(list(train.texts), train.progress)).astype(np.float32)
        self.whitening_ = whitening(plain, train, self.shrinkage)
        vectors = normalize_rows(row_product(plain, self.whitening_))
        return (
            vectors,
            self._rows(train),
            Means.first(train.hierarchy, self.stops_, self._label_vectors(train.hierarchy)),
        )

    def _fit_calibrated(self, train: Training, held: Training) -> HeldOut:
        """Fit to documents, and calibrate on others: an encoder that was tuned knows its own documents too well."""
        self.encoder_ = CachedEncoder(default_encoder() if self.encoder is None else find_encoder(self.encoder))
        self._make_means(train)
        most = max(FEWEST_LEFT_OUT, min(MOST_LEFT_OUT, BLOCK_COSINES // len(train.hierarchy)))
        some = held[np.arange(min(most, len(held)))]
        return self._choose(partial(_cosines, self._vectors(some.texts), self.means_), some)

    def _relearn(self, train: Training, encoder: CachedEncoder) -> Self:
        """Return prototypes of other documents by another encoder, with the strengths and calibration of this model."""
        made = copy(self)
        made.encoder, made.encoder_ = encoder.encoder, encoder
        made._make_means(train)
        made.prototypes_ = made._prototypes()
        return made

    def _make_means(self, train: Training) -> None:
        vectors, rows, nothing = self._start(train)
        self.means_ = nothing.with_texts(vectors, rows)

    def _check_settings(self) -> None:
        check_descriptions(self.descriptions)

    def _choose(self, cosines_with: Callable[[Strengths], FloatArray], left_out: Training) -> HeldOut:
        """Choose the prior strengths, and fit the calibration, by the log loss of texts that are left out."""
        outputs = OutputSpace.of_all_nodes(left_out.hierarchy, self.stops_)
        parents = PARENT_STRENGTHS if self.parent_prior_strength is None else (self.parent_prior_strength,)
        labels = LABEL_STRENGTHS if self.label_prior_strength is None else (self.label_prior_strength,)
        losses: dict[Strengths, float] = {}

        def loss(strengths: Strengths) -> float:
            if strengths not in losses:
                cosines = cosines_with(strengths)
                fitted = self._calibration(outputs).fit(cosines, left_out.labels)
                losses[strengths] = log_loss(fitted.probabilities(cosines), left_out)
                if not losses[strengths] > min(losses.values()):
                    self.prior_strengths_, self.calibration_ = strengths, fitted
            return losses[strengths]

        # One after the other: losses are flat around the best, and change little with the other strength.
        label = min(labels, key=lambda strength: loss((parents[0], strength)))
        min(parents, key=lambda strength: loss((strength, label)))
        self.prototypes_ = self._prototypes()
        return HeldOut.of(self.calibration_.probabilities(cosines_with(self.prior_strengths_)), left_out)

    def _carry_over(self, more: Training | None, moves: Moves) -> None:
        """Go over to another hierarchy: sums go with their labels; new labels start with their names.

        Texts of a leaf that has children now stop there. Further texts may stop at inner nodes where none did before.
        """
        further = self.stops_[:0]
        if more is not None and self.regime_ != "multi_path":
            further = inner_terminals(more)
        if moves.is_identity and not len(np.setdiff1d(further, self.stops_)):
            return
        h, nodes = moves.new, len(self.hierarchy_)
        known = np.column_stack([self.means_.sums[:nodes], self.means_.counts[:nodes]]).astype(np.float64)
        total, ends = moves.sums(known), moves.residues(known)
        stopped = np.flatnonzero(~h.is_leaf & (ends[:, -1] > LEAST_TEXTS) & (self.regime_ != "multi_path"))
        carried = moves.forward[self.stops_].indices if len(self.stops_) else self.stops_
        inner = carried[~h.is_leaf[carried]]
        stops: IntArray = np.unique(np.concatenate([stopped, inner, further])).astype(np.int32)
        result = np.concatenate([total, ends[stops]])
        first = Means.first(h, stops, self._label_vectors(h))
        counts = np.maximum(result[:, -1], 0).astype(np.float32)
        self.means_ = replace(first, sums=result[:, :-1].astype(np.float32), counts=counts)
        self.hierarchy_, self.stops_ = h, stops
        usual: Regime = "partial_path" if len(stops) else "single_path"
        if self.regime_ not in (usual, "multi_path"):
            self.regime_, self.rule_ = usual, DEFAULT_RULES[usual]
        self.calibration_ = self._calibration(OutputSpace.of_all_nodes(h, stops)).restore(self.calibration_.arrays())
        self.prototypes_, self.stop_nodes_ = self._prototypes(), stops

    def _add(self, more: Training) -> None:
        """Add texts to sums and counts. Costs the new texts and the nodes."""
        self.means_ = self.means_.with_texts(self._vectors(more.texts, more.progress), self._rows(more))
        self.prototypes_ = self._prototypes()

    @property
    def _calibration(self) -> type[MarginCalibration]:
        return margin_calibration(self.regime_ == "multi_path")

    def _prototypes(self) -> FloatArray:
        result: FloatArray = normalize_rows(self.means_.prototypes(self.prior_strengths_))
        return result

    # Features

    def _vectors(self, texts: Strings, progress: bool | None = None) -> FloatArray:
        plain = self.encoder_.transform(list(texts), progress)
        require_width(plain, len(self.whitening_), self)
        result: FloatArray = normalize_rows(row_product(normalize_rows(plain).astype(np.float32), self.whitening_))
        return result

    def _label_vectors(self, h: Hierarchy) -> FloatArray:
        described = node_descriptions(h, self.descriptions)
        steps = slice(None) if self.label_text == "path" else slice(-1, None)
        names = [" ".join(path.split(" > ")[steps]) for path in h.paths()]
        return self._vectors(Strings.of([label_text(name, described.get(node)) for node, name in enumerate(names)]))

    def _rows(self, data: Training) -> LabelMatrix:
        """Mark the outputs of texts: their nodes, and the stop where their path ends at an inner node."""
        stops = data.hierarchy.most_specific(data.labels)[:, self.stops_]
        return sparse.csr_array(sparse.hstack([data.closed_labels, stops]))

    # Scoring

    def _score(self, texts: Strings) -> Scores:
        return self._score_top(texts, None)

    def _score_top(self, texts: Strings, top: int | None) -> Scores:
        if not len(texts):
            return Scores.concat(self.hierarchy_, [])
        vectors = self._vectors(texts)
        step = max(1, BLOCK_COSINES // len(self.prototypes_))
        parts = [
            self.calibration_.probabilities(row_product(vectors[low : low + step], self.prototypes_.T), top)
            for low in range(0, len(vectors), step)
        ]
        return Scores.concat(self.hierarchy_, parts)

    # Saving

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        values = {"encoder": encoder_note(self.encoder_), "prior_strengths": list(self.prior_strengths_)}
        means = {name: getattr(self.means_, name) for name in ("labels", "sums", "counts")}
        return values, {**means, "stops": self.stops_, "whitening": self.whitening_, **self.calibration_.arrays()}

    def _schema(self, values: dict[str, Any]) -> Schema:
        h, kind, vectors = self.hierarchy_, self._calibration, ("nodes + stops", "dimension")

        def check(arrays: Arrays) -> None:
            require_inner(h, arrays["stops"])
            # Sums of vectors of length 1: prototypes are not longer than that either.
            if (np.abs(arrays["sums"]) > 1.001 * arrays["counts"][:, None] + 0.001).any():
                raise TreelabelError("sums holds more than so many texts as counts says can add up to")
            kind(OutputSpace.of_all_nodes(h, arrays["stops"])).check(arrays)

        return Schema(
            {
                "stops": indices("stops", "nodes", rising=True),
                "labels": Array("float32", vectors, -2, 2),
                "sums": Array("float32", vectors),
                "counts": Array("float32", ("nodes + stops",), 0),
                "whitening": Array("float32", ("dimension", "dimension"), -1e6, 1e6),
                **kind.parameters,
            },
            sizes={"nodes": len(h)},
            most={"stops": len(h), "dimension": MOST_DIMENSION},
            relations=(check,),
        )

    def _restore(self, values: dict[str, Any], arrays: Arrays) -> None:
        self.encoder_ = CachedEncoder(same_encoder(self.encoder, values["encoder"]))
        self.prior_strengths_ = float(values["prior_strengths"][0]), float(values["prior_strengths"][1])
        self.stops_, self.whitening_ = arrays["stops"], arrays["whitening"]
        first = Means.first(self.hierarchy_, self.stops_, arrays["labels"][: len(self.hierarchy_)])
        self.means_ = replace(first, sums=arrays["sums"], counts=arrays["counts"])
        self.calibration_ = self._calibration(OutputSpace.of_all_nodes(self.hierarchy_, self.stops_)).restore(arrays)
        self.prototypes_ = self._prototypes()


def _cosines(vectors: FloatArray, means: Means, strengths: Strengths) -> FloatArray:
    """Compute the cosines of texts with prototypes that do not contain them."""
    return np.asarray(row_product(vectors, normalize_rows(means.prototypes(strengths)).T), np.float32)


def inner_terminals(train: Training) -> IntArray:
    """Find the inner nodes at which paths of training documents end, where each document has one path."""
    h = train.hierarchy
    terminals = np.unique(h.most_specific(train.labels).indices)
    result: IntArray = terminals[~h.is_leaf[terminals]].astype(np.int32)
    return result[:0] if train.regime == "multi_path" else result
