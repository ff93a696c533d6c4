"""Training data: labelled texts, weights, groups, when to stop; which are held out, and what they lose."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from scipy import sparse

from treelabel.core.errors import TreelabelError
from treelabel.core.progress import progress_bar
from treelabel.core.stopping import StopSignal
from treelabel.core.strings import Strings, as_list, describe_value
from treelabel.core.types import DoubleArray, LongArray
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.label_matrices import LabelMatrix, matches, row_numbers, row_sizes
from treelabel.hierarchy.labelled_texts import LabelledTexts, Regime, regime_of
from treelabel.metrics.shared_formulas import ndcg, negative_log
from treelabel.scores.score_matrix import Scores

if TYPE_CHECKING:
    from treelabel.calibration.candidates import CandidateCalibration

# With more scores than this, only the largest of each document are kept.
MOST_SCORES: Final = 1 << 27
TOP_OF_MANY: Final = 100
# With at most this many documents, each of them is held out once, in one of several folds.
FEW_DOCUMENTS: Final = 3_000
# A label that is said to be impossible costs as much as one said to be this likely.
LEAST: Final = 1e-6
# Labels whose order is compared.
RANKED: Final = 5


@dataclass(frozen=True, eq=False)
class Training(LabelledTexts):
    """Training data: labelled texts, their regime (see `regime_of`), and when to stop.

    `weights` are those of documents, if they differ; documents with the same number in `groups` belong together, and
    are held out together. `features` are there where data bring numbers instead of texts.
    """

    texts: Strings
    labels: LabelMatrix
    hierarchy: Hierarchy
    valid: "Training | None" = None
    progress: bool | None = None
    stop: StopSignal = field(default_factory=StopSignal)
    # By default that of the labels: never None in an instance.
    regime: Regime = None  # type: ignore[assignment]
    weights: DoubleArray | None = None
    groups: LongArray | None = None
    features: sparse.csr_array | None = None
    # How labels were written outside, which `models.label_forms` knows; None for nodes.
    form: Any = None

    def __post_init__(self) -> None:
        if self.regime is None:
            object.__setattr__(self, "regime", regime_of(self.hierarchy, self.labels))

    def __getitem__(self, rows: Any) -> "Training":
        """Select documents by row numbers; what all documents are like stays as it is."""
        optional = self.weights, self.groups, self.features
        weights, groups, features = (None if each is None else each[rows] for each in optional)
        some = replace(self, texts=self.texts.take(rows), labels=self.labels[rows], valid=None)
        return replace(some, weights=weights, groups=groups, features=features)

    def followed_by(self, more: "Training") -> "Training":
        """Put other documents after these; what all documents are like stays as it is."""
        texts = Strings.of([*self.texts, *more.texts])
        labels = sparse.vstack([self.labels, more.labels], format="csr")
        weights = None if self.weights is None else np.concatenate([self.weights, np.ones(len(more))])
        return replace(self, texts=texts, labels=labels, valid=None, weights=weights, groups=None)

    def with_groups(self, groups: Any) -> "Training":
        """Return the same documents, of which those with equal values in `groups` belong together."""
        names = np.asarray(as_list(groups, "groups"))
        if names.shape != (len(self),):
            raise TreelabelError(f"{len(names):,} groups for {len(self):,} documents; expected one for each")
        numbers: LongArray = np.unique(names, return_inverse=True)[1].astype(np.int64)
        if len(self) and not numbers.any():
            raise TreelabelError(
                f"all documents belong to one group, {str(names[0])[:80]!r}, so that none can be held out without all "
                "others; leave groups out"
            )
        return replace(self, groups=numbers)

    def with_weights(self, sample_weight: Any) -> "Training":
        """Return the same documents with weights; those of weight 0 are left out."""
        try:
            weights = np.asarray(sample_weight, np.float64)
        except (TypeError, ValueError):
            raise TreelabelError(
                f"sample_weight must hold a number per document, found {describe_value(sample_weight)}"
            ) from None
        if weights.shape != (len(self),):
            raise TreelabelError(f"sample_weight has the shape {weights.shape}, but there are {len(self):,} documents")
        if not (np.isfinite(weights) & (weights >= 0)).all() or not weights.any():
            raise TreelabelError("sample_weight must hold numbers from 0 on, some of them above 0")
        return replace(replace(self, weights=weights)[np.flatnonzero(weights)], valid=self.valid)


def draw_folds(documents: int, count: int, seed: int, groups: LongArray | None = None) -> list[LongArray]:
    """Divide documents into folds of about the same size, at random.

    Parameters
    ----------
    documents : int
        The number of documents.
    count : int
        Folds at most; there are no empty ones, unless there is but one document or group.
    seed : int
        Seed of the order.
    groups : array of shape (documents,) or None
        Numbers from 0 on; documents with the same number come into the same fold.

    Returns
    -------
    list of arrays of int64
        Row numbers, increasing.

    >>> [fold.tolist() for fold in draw_folds(4, 2, 0, np.array([0, 1, 1, 0]))]
    [[0, 3], [1, 2]]
    """
    unit = np.arange(documents) if groups is None else groups
    sizes = np.bincount(unit)
    order = np.random.default_rng(seed).permutation(len(sizes))
    order = order[sizes[order] > 0]
    # Large groups first, each to the fold that is smallest so far; where all are alike, that deals them out in turn.
    order = order[np.argsort(-sizes[order], kind="stable")]
    count = max(1, min(count, len(order)))
    fold_of, filled = np.zeros(len(sizes), np.int64), np.zeros(count)
    if groups is None:
        fold_of[order] = np.arange(len(order)) % count
    else:
        for group in order.tolist():
            fold_of[group] = int(np.argmin(filled))
            filled[fold_of[group]] += sizes[group]
    if count == 1:
        return [np.zeros(0, np.int64)]
    return [np.flatnonzero(fold_of[unit] == fold).astype(np.int64) for fold in range(count)]


def hold_out(documents: int, wanted: int, seed: int, groups: LongArray | None = None) -> LongArray:
    """Draw documents to hold out: as many as are wanted, or whole groups of about as many; one is always left.

    Parameters
    ----------
    documents : int
        The number of documents.
    wanted : int
        How many to hold out.
    seed : int
        Seed of the order.
    groups : array of shape (documents,) or None
        Documents with the same number are held out together. Groups that would exceed what is wanted by more than a
        quarter are passed over; where there are no others, the smallest one is held out.

    Returns
    -------
    array of int64
        Row numbers, increasing.

    >>> hold_out(5, 2, 0).tolist(), hold_out(1, 1, 0).tolist()
    ([2, 4], [])
    """
    rng = np.random.default_rng(seed)
    if groups is None:
        drawn: LongArray = np.sort(rng.permutation(documents)[: min(wanted, documents - 1)])
        return drawn
    sizes = np.bincount(groups)
    order = rng.permutation(len(sizes))
    # The last group stays, whatever is wanted.
    order = order[sizes[order] > 0][:-1]
    taken, count = [], 0
    for group in order.tolist():
        # A large group may be most of the documents; there are others.
        if count < wanted and count + sizes[group] <= wanted + max(1, wanted // 4):
            taken.append(group)
            count += int(sizes[group])
    if not taken and wanted > 0 and len(order):
        taken = [int(order[np.argmin(sizes[order])])]
    return np.flatnonzero(np.isin(groups, taken)).astype(np.int64)


def validation_folds(train: Training, cv: int, fraction: float | None, usual: int, seed: int) -> list[LongArray]:
    """Divide the documents that a model is calibrated on: all of few in `cv` folds, else one part of them.

    Parameters
    ----------
    fraction : float or None
        The share of documents to hold out; None holds out every document of few, and `usual` of more.

    Returns
    -------
    list of arrays of int64
        Row numbers, increasing.
    """
    if fraction is None and len(train) <= FEW_DOCUMENTS:
        return draw_folds(len(train), cv, seed, train.groups)
    wanted = usual if fraction is None else int(fraction * len(train))
    return [hold_out(len(train), max(1, wanted), seed, train.groups)]


def out_of_fold(make: Callable[[], Any], data: Any, folds: Sequence[LongArray], progress: bool | None = None) -> Scores:
    """Fit one model per fold to all other documents, and score the fold's by it.

    Parameters
    ----------
    make : callable
        Makes a new model.
    data : Dataset
        Documents with labels; selected by row numbers.
    folds : sequence of arrays of int64
        Row numbers of each fold; together all documents, each once.
    progress : bool, optional
        Whether to show a bar; by default on a terminal.

    Returns
    -------
    Scores
        In the order of the documents; where documents x nodes would not fit, the 100 largest of each.

    >>> from treelabel.hierarchy import Hierarchy
    >>> from treelabel.models.registry import make_model
    >>> from treelabel.models.model_inputs import training_of
    >>> data = training_of(["a", "b", "a", "b"], ["x", "y", "x", "y"], Hierarchy.flat(["x", "y"]))
    >>> halves = [np.array([0, 1]), np.array([2, 3])]
    >>> out_of_fold(lambda: make_model("most_frequent"), data, halves).dense().tolist()
    [[0.5, 0.5], [0.5, 0.5], [0.5, 0.5], [0.5, 0.5]]
    """
    rows = np.concatenate(folds) if len(folds) else np.zeros(0, np.int64)
    if not np.array_equal(np.sort(rows), np.arange(len(data.texts))):
        raise TreelabelError(f"the folds hold {len(rows):,} rows, expected each of {len(data.texts):,} once")
    top = TOP_OF_MANY if len(data.texts) * len(data.hierarchy) > MOST_SCORES else None
    parts = []
    with progress_bar("learning fold by fold", len(folds), progress) as report:
        for number, fold in enumerate(folds):
            report(number)
            fitted = make().fit(data[np.setdiff1d(np.arange(len(data.texts)), fold)], progress=False)
            if fitted.stopped_ == "interrupt":
                raise KeyboardInterrupt
            some = data[fold]
            # Features where these are all that there is.
            documents = some.texts if getattr(some, "features", None) is None else some.features
            parts.append(fitted.score(documents, top=top).values)
    return Scores.concat(data.hierarchy, parts)[np.argsort(rows)]


def log_losses(p: Any, held: Training) -> DoubleArray:
    """Compute the log loss of each document: of its label where documents have one path, else of all nodes.

    Parameters
    ----------
    held : Training
        The documents, whose regime says which of both.

    Returns
    -------
    array of shape (documents with a label,)
    """
    if held.regime == "multi_path":
        true, values = held.closed_labels.toarray().astype(bool), np.asarray(p.toarray() if sparse.issparse(p) else p)
        losses: DoubleArray = negative_log(np.where(true, values, 1 - values), LEAST).sum(axis=1, dtype=np.float64)
        return losses
    terminals = held.hierarchy.most_specific(held.labels)
    true_p = p[row_numbers(terminals), terminals.indices]
    return negative_log(np.asarray(true_p, np.float64).ravel(), LEAST)


def log_loss(p: Any, held: Training) -> float:
    """Compute the mean of `log_losses`; NaN if no document has a label."""
    losses = log_losses(p, held)
    return float(losses.mean()) if len(losses) else np.nan


def candidate_loss(calibration: "CandidateCalibration", evidence: sparse.csr_array, held: Training) -> float:
    """Compute how bad candidates of held-out documents are, however they are calibrated; NaN if nothing is known.

    That is the log loss once `calibration` is fitted to them, or 1 - nDCG@5 where it would hardly tell settings apart;
    see `CandidateCalibration.fitted_loss`.

    Parameters
    ----------
    calibration : CandidateCalibration
        Of the kind that suits the documents.
    held : Training
        The documents.

    Returns
    -------
    float
    """
    loss = calibration.fitted_loss(evidence, held.labels)
    if loss is not None:
        return loss
    row, sizes = row_numbers(evidence), row_sizes(held.closed_labels)
    order = np.lexsort((evidence.indices, -evidence.data, row))
    rank = np.arange(len(row)) - evidence.indptr[row]
    marks = np.zeros((len(sizes), RANKED), np.bool_)
    ranked = rank < RANKED
    marks[row[ranked], rank[ranked]] = matches(held.closed_labels, evidence)[order][ranked]
    return 1 - float(ndcg(marks, sizes)[sizes > 0].mean()) if sizes.any() else np.nan
