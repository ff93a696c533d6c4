"""The metrics of "Evaluating extreme hierarchical multi-label classification" with the paper's conventions."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np

from treelabel import Hierarchy, evaluate
from treelabel.core.types import DoubleArray
from treelabel.hierarchy.label_matrices import LabelMatrix, row_sizes
from treelabel.hierarchy.similarity import inverse_propensities
from treelabel.metrics import overlap, shared_formulas
from treelabel.metrics.batch import Batch, Context


@dataclass(frozen=True, eq=False)
class Judged:
    """An output against a gold standard: with the hierarchy, and with the same labels side by side.

    Flat metrics take the sets as they are given. The paper's do so too: closed sets would make a lost label cost more
    the deeper it is, and all flat example-based metrics could not tie in three of its five tests.
    """

    tree: Batch
    flat: Batch

    @cached_property
    def sets(self) -> tuple[LabelMatrix, LabelMatrix, LabelMatrix]:
        """What is predicted, what is true, and what is both."""
        return self.flat.decisions, self.flat.truth, self.flat.truth.multiply(self.flat.decisions).tocsr()

    @cached_property
    def by_label(self) -> DoubleArray:
        """How often every label is predicted, true, and both."""
        counts = [np.bincount(each.indices, minlength=each.shape[1]) for each in self.sets]
        return np.stack(counts, axis=1).astype(np.float64)


class Judge:
    """A gold standard, which is also the reference for frequencies, as in the paper."""

    def __init__(self, hierarchy: Hierarchy, truth: LabelMatrix) -> None:
        self.truth = truth
        given = np.bincount(truth.indices, minlength=len(hierarchy))
        closed = np.bincount(hierarchy.closure(truth).indices, minlength=len(hierarchy))
        self.tree = Context(hierarchy, closed, given, truth.shape[0])
        self.flat = Context(flat_labels(len(hierarchy)), given, given, truth.shape[0])

    def __call__(self, decisions: LabelMatrix) -> Judged:
        """Judge an output."""
        return Judged(Batch(self.tree, self.truth, decisions), Batch(self.flat, self.truth, decisions))


@cache
def flat_labels(count: int) -> Hierarchy:
    """As many labels without a hierarchy, in the same order."""
    return Hierarchy.flat([f"{at:03d}" for at in range(count)])


def label_accuracy(judged: Judged) -> float:
    """Mean accuracy of the labels."""
    flat = judged.flat
    result = evaluate(
        flat.truth, flat.decisions, hierarchy=flat.hierarchy, metrics="label_accuracy", keep_documents=False
    )
    return result["label_accuracy"]


def label_f1(judged: Judged, if_absent: float = 1.0) -> float:
    """Mean F1 of the labels; 1 for a label that is neither true nor predicted.

    The paper does not say so, but its table 3 does: predicting nothing at all gets 0.9248 there, which is the share of
    the 4,816 labels that no document has. (`macro_f1` counts such labels 0.)
    """
    return float(shared_formulas.f_beta(judged.by_label, if_empty=if_absent).mean())


def jaccard(judged: Judged) -> float:
    """Mean Jaccard similarity; 1 for two empty sets (section 2.1)."""
    a, b, c = judged.flat.unit_overlap.T
    return float(shared_formulas.ratio(c, a + b - c, (a == 0) & (b == 0), if_empty=1.0).mean())


def hamming(judged: Judged) -> float:
    """Hamming loss, negated. The paper divides by the labels in the gold standard: the same order of outputs."""
    return -float(overlap.hamming(judged.flat).mean())


def subset_accuracy(judged: Judged) -> float:
    """Share of items with exactly the true set."""
    return float(overlap.subset_accuracy(judged.flat).mean())


def example_f1(judged: Judged) -> float:
    """Mean F1 of the items; 1 for two empty sets (section 2.1)."""
    return float(shared_formulas.f_beta(judged.flat.unit_overlap, if_empty=1.0).mean())


def hierarchical_f1(judged: Judged) -> float:
    """Hierarchical F1 with the root in both sets (footnote 1)."""
    return float(shared_formulas.f_beta(overlap.with_root(judged.tree.unit_overlap)).mean())


def propensity_f1(judged: Judged) -> float:
    """Propensity F1 with the empty class in both sets (section 2.1)."""
    return float(overlap.propensity_f1(judged.flat).mean())


def icm(judged: Judged) -> float:
    """Information contrast; probabilities are shares of all items.

    Section 5.1 prints the items with a label as the denominator, but table 3 was made with all items: predicting one
    label of 68 among 7,253 documents everywhere costs some 6.4 bits a document there, and log2(7,253 / 68) = 6.7, while
    with the 1,164 labelled documents it would be 4.1 bits at most.
    """
    return float(overlap.icm(judged.tree).mean())


def icm_of_labelled(judged: Judged) -> float:
    """Information contrast; probabilities are shares of the items with a label, as section 5.1 prints."""
    context = judged.tree.context
    labelled = replace(context, documents=int((row_sizes(judged.tree.truth) > 0).sum()))
    return float(overlap.icm(replace(judged.tree, context=labelled)).mean())


def propensity_f1_log2(judged: Judged) -> float:
    """Propensity F1 with log2 in the exponent, as section 2.1 prints (the propensity model itself has ln)."""
    flat = judged.flat
    documents = flat.context.reference_documents
    counts = np.append(flat.context.exclusive_frequencies, documents)
    inverse = inverse_propensities(counts, documents)
    # exp(-A log2 x) = exp(-A ln x) to the power 1 / ln 2; C stays as it is.
    scale = (np.log(documents) - 1) * 2.5**0.55
    inverse = 1 + scale * ((inverse - 1) / scale) ** (1 / np.log(2))
    abc = np.stack([each @ inverse[:-1] for each in judged.sets], axis=1)
    return float(shared_formulas.f_beta(abc + inverse[-1]).mean())


Metric = Callable[[Judged], float]
PAPER_METRICS: dict[str, Metric] = {
    "LB-ACC": label_accuracy,
    "LB-F": label_f1,
    "EB-JACC": jaccard,
    "EB-HAMM": hamming,
    "EB-SUBACC": subset_accuracy,
    "EB-F": example_f1,
    "HF": hierarchical_f1,
    "PROP-F": propensity_f1,
    "ICM": icm,
}
# The same metrics with conventions that the paper prints or could have meant, to see what depends on them.
OTHERWISE: dict[str, Metric] = {
    "LB-F, absent labels 0": lambda judged: label_f1(judged, if_absent=0.0),
    "PROP-F, log2 as printed": propensity_f1_log2,
    "ICM, of labelled items": icm_of_labelled,
}
