"""One-vs-rest support vector machines: the exact baseline, in which every label is learned from all documents."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from scipy import sparse

from treelabel.models.descriptions import Descriptions
from treelabel.models.extreme.cluster_ranking import Negatives
from treelabel.models.extreme.forest import Make
from treelabel.models.extreme.label_tree import LabelTree
from treelabel.models.extreme.model import Extreme
from treelabel.models.settings import NonNegative


@dataclass(eq=False, repr=False)
class Svm(Extreme):
    """tf-idf and one linear support vector machine (squared hinge) per label, learned from all documents.

    The best labels by margin are kept; a logistic function of the squared hinge loss, fitted on held-out documents,
    makes probabilities of them. It is `extreme` without a tree and without label names, in whose logit prototypes have
    no weight. Learning costs documents x features per document x labels / 16 for each of some five passes, as often as
    in `Extreme`; scoring a document costs its features x labels that have a weight for them.

    Parameters
    ----------
    hierarchy, ngram_range, char_ngram_range, min_df, n_features, encoder, encoder_weight
        As in `Extreme`.
    C : float
        The weight of errors against that of large weights, as in scikit-learn's LinearSVC.
    prune : float
        Weights below this are dropped.
    n_candidates : int
        Labels that are scored for a document, at most.
    validation_fraction, cv, max_iter, seed
        As in `Extreme`.
    """

    name = "svm"
    parts = 1

    # What `Extreme` has settings for, and a flat list of labels does not.
    tree: Literal["clusters", "hierarchy"] = field(default="clusters", init=False)
    n_trees: int = field(default=1, init=False)
    leaf_size: int = field(default=100, init=False)
    beam_size: int = field(default=10, init=False)
    negatives: Negatives = field(default="gold", init=False)
    propensity: float = field(default=0.0, init=False)
    label_text: bool = field(default=False, init=False)
    descriptions: Descriptions = field(default=None, init=False)
    prune: NonNegative = 0.01

    def _makers(self) -> Sequence[Make]:
        """Return what makes the one tree: all labels below its root."""

        def flat(features: sparse.csr_array) -> LabelTree:
            count = features.shape[0]
            return LabelTree((np.array([0, count]),), np.arange(count, dtype=np.int32))

        return [flat]
