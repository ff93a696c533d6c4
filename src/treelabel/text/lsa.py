"""tf-idf in a few hundred dense columns: latent semantic analysis, for models that take no sparse features."""

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from treelabel.core.matrices import normalize_rows
from treelabel.core.strings import Strings
from treelabel.core.types import FloatArray
from treelabel.text.ngrams import NgramShape
from treelabel.text.tfidf import Tfidf


@dataclass(frozen=True, eq=False)
class Lsa:
    """tf-idf times its first right singular vectors (n-grams x columns), with rows scaled to length 1.

    Keeping all singular vectors would change no inner product of training documents; the first few hundred keep most
    of what documents have in common. Learning costs the n-grams of all documents x columns x some ten passes.
    """

    tfidf: Tfidf
    vectors: FloatArray

    @classmethod
    def fit_transform(
        cls, texts: Strings, columns: int, shape: NgramShape, min_df: int, seed: int
    ) -> tuple["Lsa", FloatArray]:
        """Learn from texts and return their rows.

        Parameters
        ----------
        columns : int
            Singular vectors to keep, at most.
        shape : NgramShape
            Which n-grams to count.
        min_df : int
            Texts that an n-gram must occur in.
        seed : int
            Seed of the random projection.

        Returns
        -------
        (Lsa, array of shape (texts, columns))
            What was learned, and the rows of the texts.
        """
        from sklearn.utils.extmath import randomized_svd

        tfidf, rows = Tfidf.fit_transform(texts, shape, min_df)
        rank = max(1, min(columns, *rows.shape))
        _, _, right = randomized_svd(rows, rank, n_iter=2, power_iteration_normalizer="LU", random_state=seed)
        # In half precision, as it is saved: what is loaded gives the same bits.
        lsa = cls(tfidf, np.ascontiguousarray(right.T, np.float16).astype(np.float32))
        return lsa, lsa._dense(rows)

    def transform(self, texts: Strings) -> FloatArray:
        """Return the rows of texts; those without a known n-gram are 0."""
        return self._dense(self.tfidf.transform(texts))

    def _dense(self, rows: sparse.csr_array) -> FloatArray:
        return np.asarray(normalize_rows(np.asarray(rows @ self.vectors, np.float32)), np.float32)
