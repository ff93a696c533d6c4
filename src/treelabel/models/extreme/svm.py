"""One-vs-rest support vector machines: the exact baseline, in which every label is learned from all documents."""

from collections.abc import Sequence
from typing import Annotated

import numpy as np
from scipy import sparse

from treelabel.core.validation import Between
from treelabel.encoders.protocol import Encoder
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.models.extreme.forest import Make
from treelabel.models.extreme.label_tree import LabelTree
from treelabel.models.extreme.model import Extreme
from treelabel.models.settings import Buckets, Cost, Count, Folds, NgramRange, NonNegative, PartialShare, Seed


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

    def __init__(
        self,
        hierarchy: Hierarchy | None = None,
        ngram_range: NgramRange | None = (1, 1),
        char_ngram_range: NgramRange | None = None,
        min_df: Count = 1,
        n_features: Buckets = 2**22,
        encoder: str | Encoder | None = None,
        encoder_weight: Annotated[float, Between(0, 1)] = 0.5,
        C: Cost = 1.0,  # noqa: N803
        prune: NonNegative = 0.01,
        n_candidates: Annotated[int, Between(1, 1 << 20)] = 50,
        validation_fraction: PartialShare | None = None,
        cv: Folds = 5,
        max_iter: Annotated[int, Between(1, 10_000)] = 7,
        seed: Seed = 0,
    ) -> None:
        super().__init__(
            hierarchy,
            label_text=False,
            n_candidates=n_candidates,
            ngram_range=ngram_range,
            char_ngram_range=char_ngram_range,
            min_df=min_df,
            n_features=n_features,
            encoder=encoder,
            encoder_weight=encoder_weight,
            C=C,
            prune=prune,
            validation_fraction=validation_fraction,
            cv=cv,
            max_iter=max_iter,
            seed=seed,
        )

    def _makers(self) -> Sequence[Make]:
        """Return what makes the one tree: all labels below its root."""

        def flat(features: sparse.csr_array) -> LabelTree:
            count = features.shape[0]
            return LabelTree((np.array([0, count]),), np.arange(count, dtype=np.int32))

        return [flat]
