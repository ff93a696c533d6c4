"""A default rule that promises to cover the truth, calibrated on documents that a model has not seen at all.

Split conformal prediction is exact for any model, if the documents that calibrate it have no part in learning: neither
in weights, nor in features, nor in the calibration of probabilities. Then each of them is to the final model what a new
document is (exchangeable with it), and of n documents P(covered) >= coverage, and at most coverage + 1 / (n + 1) where
no two limits are equal (Vovk et al., 2005; Lei et al., 2018). Out-of-fold scores would take no document from learning,
but are not those of the final model: of its limits nothing is proven without a model that hardly changes with single
documents, and cross-conformal prediction and CV+, which keep the models of all folds, promise 2 x coverage - 1 less a
term of order 1 / sqrt(n) alone (Vovk et al., 2018; Barber et al., 2021): 0.8 for 0.9.
"""

import math
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Annotated, Final

import numpy as np

from treelabel.core.errors import TreelabelError
from treelabel.core.registry import with_settings
from treelabel.core.validation import Between, JsonRecord, Share
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.label_matrices import LabelMatrix, row_sizes
from treelabel.hierarchy.labelled_texts import usual_regime
from treelabel.metrics.shared_formulas import STANDARD_ERRORS
from treelabel.rules.conformal import ConformalSets
from treelabel.rules.risk_bounds import FOLDS, assign_folds, require_share
from treelabel.rules.risk_control import RiskControl
from treelabel.rules.set_calibration import calibrate_sets, measure_sets
from treelabel.scores.score_matrix import Scores
from treelabel.selection.training import Training, hold_out

# Documents that a promise is calibrated on: with more, coverage is hardly steadier; with fewer, hardly any.
USUAL_CALIBRATED: Final = (200, 1000)
FEWEST_CALIBRATED: Final = 30
# Their shares of the training documents: where these are many, and at most where they are few.
SHARE_OF_MANY, SHARE_OF_FEW = 0.1, 0.2


@dataclass(frozen=True)
class Guarantee(JsonRecord):
    """The promise of a rule, and what it reached and cost on average on documents that were not learned from.

    `reached` is the share of documents that are covered, or the recall, by limits found on others of these documents.
    """

    coverage: Share
    promise: str
    documents: Annotated[int, Between(1, 1 << 62)]
    reached: Share
    leaves: float
    nodes: float
    depth: float

    def __str__(self) -> str:
        return (
            f"promised: {self.promise}, over the draw of {self.documents:,} documents that were kept out of learning "
            f"and of the new one (given these, ± {STANDARD_ERRORS * self.standard_error:.3f}); reached there "
            f"{self.reached:.3f}, at the cost of {self.leaves:.1f} leaves in {self.nodes:.2f} nodes of depth "
            f"{self.depth:.2f} on average"
        )

    @property
    def standard_error(self) -> float:
        """That of the coverage, given the documents that calibrated: of a beta distribution; of a recall, at most."""
        return math.sqrt(self.coverage * (1 - self.coverage) / (self.documents + 2))


def calibration_size(documents: int, coverage: float) -> int:
    """Return how many documents to keep out of learning for a promise; fewer could not keep it but by the root.

    >>> [calibration_size(documents, 0.9) for documents in (60, 500, 3_000, 6_000, 100_000)]
    [30, 100, 300, 600, 1000]
    >>> calibration_size(60, 0.9), calibration_size(500, 0.995)
    (30, 199)
    """
    fewest = max(FEWEST_CALIBRATED, math.ceil(coverage / (1 - coverage) - 1e-9))
    least, most = USUAL_CALIBRATED
    usual = min(most, max(least, int(SHARE_OF_MANY * documents)))
    return max(fewest, min(usual, int(SHARE_OF_FEW * documents)))


def set_apart(train: Training, coverage: float, seed: int) -> tuple[Training, Training]:
    """Divide training documents into those to learn from and those that a promise is calibrated on, whole groups.

    Of documents with one path, those without a label stay to be learned from: nothing tells whether they are covered.

    Parameters
    ----------
    train : Training
        All documents.
    coverage : float
        Above 0 and below 1.
    seed : int
        Seed of the draw.

    Returns
    -------
    (Training, Training)
    """
    is_single = usual_regime(train.hierarchy, train.labels) != "multi_path"
    able = np.flatnonzero(row_sizes(train.labels)) if is_single else np.arange(len(train))
    wanted = calibration_size(len(able), coverage)
    groups = None if train.groups is None else train.groups[able]
    drawn = able[hold_out(len(able), wanted, seed, groups)] if 2 * wanted <= len(able) else able[:0]
    fewest = calibration_size(0, coverage)
    # The smallest group may be most of the documents.
    if not fewest <= len(drawn) <= len(able) - fewest:
        raise TreelabelError(
            f"{len(able):,} documents{' in few groups' if len(drawn) else ''} are too few to promise a coverage of "
            f"{coverage:g}: {fewest:,} have to be kept out of learning, and as many learned from; leave coverage out, "
            "and calibrate on other documents: treelabel tune --rule 'conformal(coverage=0.9)'"
        )
    rest = np.setdiff1d(np.arange(len(train)), drawn)
    return replace(train[rest], valid=train.valid), train[drawn]


def promise_coverage(
    hierarchy: Hierarchy, labels: LabelMatrix, scores: Scores, truth: LabelMatrix, coverage: float
) -> tuple[str, Guarantee]:
    """Make the rule that covers the truth of documents with a probability, by documents that were not learned from.

    Where documents have one path each, a node above the best leaf covers it (conformal); where they have several, that
    share of the true nodes is predicted in expectation (risk_control).

    Parameters
    ----------
    labels : LabelMatrix, documents x nodes
        Of the training documents, which tell how many paths documents have.
    scores, truth : Scores and LabelMatrix
        Of the documents that were set apart.
    coverage : float
        Above 0 and below 1.

    Returns
    -------
    (str, Guarantee)
    """
    require_share(coverage, "coverage")
    true = hierarchy.closure(truth)
    if usual_regime(hierarchy, labels) == "multi_path":
        return _with_recall(scores, true, coverage)
    t, costs = calibrate_sets(scores, true, ConformalSets(), coverage)
    rule = with_settings("conformal", {"coverage": coverage, "t": t})
    sizes = costs.leaves, costs.nodes, costs.depth
    return rule, Guarantee(coverage, costs.promise, costs.documents, costs.covered, *sizes)


def _with_recall(scores: Scores, truth: LabelMatrix, coverage: float) -> tuple[str, Guarantee]:
    """Control the recall of documents with several paths; it is measured by the thresholds of other documents."""
    control = RiskControl("recall", coverage)
    t = control.find_threshold(scores, truth)
    fold, recalls = assign_folds(len(scores)), np.ones(len(scores))
    for index in range(FOLDS):
        rows, others = np.flatnonzero(fold == index), np.flatnonzero(fold != index)
        # Where fewer documents allow no threshold, all labels would be predicted.
        with suppress(TreelabelError):
            limit = control.find_threshold(scores[others], truth[others])
            recalls[rows] = control.measure(scores[rows], truth[rows], limit)[0]
    rule = with_settings("risk_control", {"at_least": coverage, "t": t})
    predicted = scores.hierarchy.most_specific(control.predict(scores, t))
    costs = measure_sets(scores, truth, predicted, coverage)
    sizes = costs.leaves, costs.nodes, costs.depth
    return rule, Guarantee(coverage, control.promise, len(scores), float(recalls.mean()), *sizes)
