"""A default rule that promises to cover the truth, calibrated on the documents that a model held out."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from treelabel.core.errors import TreelabelError
from treelabel.core.registry import with_settings
from treelabel.core.validation import Between, JsonRecord, Share
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.label_matrices import LabelMatrix
from treelabel.hierarchy.labelled_texts import usual_regime
from treelabel.rules.conformal import ConformalSets
from treelabel.rules.risk_bounds import require_share
from treelabel.rules.risk_control import RiskControl
from treelabel.rules.set_calibration import calibrate_sets, measure_sets
from treelabel.scores.score_matrix import Scores

# With fewer documents than this, a promise would be kept by the root alone.
FEWEST_CALIBRATED = 30


@dataclass(frozen=True)
class Guarantee(JsonRecord):
    """The promise of a rule, what it reached on held-out documents, and what its sets cost on average.

    `reached` is the share of documents that are covered, or the recall, by limits found on other held-out documents.
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
            f"promised: {self.promise}, by {self.documents:,} held-out documents; reached there {self.reached:.3f}, "
            f"at the cost of {self.leaves:.1f} leaves in {self.nodes:.2f} nodes of depth {self.depth:.2f} on average"
        )


def too_few_held_out(documents: int) -> TreelabelError:
    """Return the error that says how many documents a promise takes."""
    return TreelabelError(
        f"{documents:,} documents were held out, expected at least {FEWEST_CALIBRATED} to promise a coverage by; leave "
        "coverage out, and calibrate on other documents: treelabel tune --rule 'conformal(coverage=0.9)'"
    )


def promise_coverage(
    hierarchy: Hierarchy, labels: LabelMatrix, scores: Scores, truth: LabelMatrix, coverage: float
) -> tuple[str, Guarantee]:
    """Make the rule that covers the truth of documents with a probability, by those that were held out.

    Where documents have one path each, a node above the best leaf covers it (conformal); where they have several, that
    share of the true nodes is predicted in expectation (risk_control). Each document was scored by what was learned
    without it, by folds where documents are few; the final model learned from all of them, and probabilities were
    calibrated on them, so that the promise is exact only of documents of their own: see `tune`.

    Parameters
    ----------
    labels : LabelMatrix, documents x nodes
        Of the training documents, which tell how many paths documents have.
    scores, truth : Scores and LabelMatrix
        Of held-out documents.
    coverage : float
        Above 0 and below 1.

    Returns
    -------
    (str, Guarantee)
    """
    require_share(coverage, "coverage")
    if len(scores) < FEWEST_CALIBRATED:
        raise too_few_held_out(len(scores))
    true = hierarchy.closure(truth)
    if usual_regime(hierarchy, labels) == "multi_path":
        return _with_recall(scores, true, coverage)
    t, costs = calibrate_sets(scores, true, ConformalSets(), coverage)
    rule = with_settings("conformal", {"coverage": coverage, "t": t})
    sizes = costs.leaves, costs.nodes, costs.depth
    return rule, Guarantee(coverage, costs.promise, costs.documents, costs.covered, *sizes)


def _with_recall(scores: Scores, truth: LabelMatrix, coverage: float) -> tuple[str, Guarantee]:
    """Control the recall of documents with several paths; it is measured on each half by the other's threshold."""
    control = RiskControl("recall", coverage)
    t = control.find_threshold(scores, truth)
    half = np.random.default_rng(0).permutation(len(scores)) % 2
    reached = []
    for part in (0, 1):
        rows, others = np.flatnonzero(half == part), np.flatnonzero(half != part)
        limit = control.find_threshold(scores[others], truth[others])
        reached.append(control.measure(scores[rows], truth[rows], limit)[0])
    rule = with_settings("risk_control", {"at_least": coverage, "t": t})
    predicted = scores.hierarchy.most_specific(control.predict(scores, t))
    costs = measure_sets(scores, truth, predicted, coverage)
    sizes = costs.leaves, costs.nodes, costs.depth
    return rule, Guarantee(coverage, control.promise, len(scores), float(np.concatenate(reached).mean()), *sizes)
