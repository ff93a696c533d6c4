"""Sparse features of documents: tf-idf of n-grams, embeddings alongside them, or features that the data bring."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, TypedDict

import numpy as np
from scipy import sparse

from treelabel.core.array_schema import Array, Arrays
from treelabel.core.errors import TreelabelError
from treelabel.core.matrices import join_features, normalize_rows
from treelabel.core.strings import Strings
from treelabel.core.types import LongArray
from treelabel.core.validation import Between
from treelabel.encoders.cached_encoder import CachedEncoder
from treelabel.encoders.protocol import Encoder
from treelabel.encoders.registry import encoder_note, same_encoder
from treelabel.models.persistence.schema import AllNgrams, EncoderNote, ngram_values, saved_shape, tfidf_arrays
from treelabel.selection.training import Training
from treelabel.text.ngrams import NgramShape
from treelabel.text.tfidf import Tfidf

# No matrix has more columns.
MOST_WIDTH = 2**31 - 1


class FeatureValues(TypedDict):
    """Where features come from, and how many there are; neither n-grams nor encoder: the data bring them."""

    encoder: EncoderNote | None
    ngrams: AllNgrams | None
    width: Annotated[int, Between(0, MOST_WIDTH)]


@dataclass(frozen=True, eq=False)
class SparseFeaturizer:
    """Turns documents into sparse rows of length 1.

    Parameters
    ----------
    width : int
        The number of columns.
    tfidf : Tfidf or None
        What has been learned of n-grams; None where there are only embeddings, or data bring their features.
    encoder : CachedEncoder or None
        Makes embeddings.
    encoder_weight : float
        Their share in the squared length of a row; without n-grams it is 1.
    """

    width: int
    tfidf: Tfidf | None = None
    encoder: CachedEncoder | None = None
    encoder_weight: float = 0.5

    @classmethod
    def fit(
        cls,
        train: Training,
        shape: NgramShape | None,
        min_df: int,
        encoder: CachedEncoder | None,
        encoder_weight: float,
        singles_by_text: bool = False,
    ) -> "tuple[SparseFeaturizer, sparse.csr_array]":
        """Learn from training documents; return their rows too.

        Parameters
        ----------
        train : Training
            Documents; where they bring features, nothing is learned.
        shape : NgramShape or None
            Which n-grams are counted.
        min_df : int
            The documents that an n-gram must be in.
        singles_by_text : bool
            Whether columns of a single document are put in the order of documents; see `Tfidf.with_singles_by_text`.

        Returns
        -------
        (SparseFeaturizer, csr_array of shape (documents, features))
        """
        if train.features is not None:
            made = cls(train.features.shape[1])
            return made, made.rows(train.features)
        tfidf = rows = None
        if shape is not None:
            tfidf, rows = Tfidf.fit_transform(train.texts, shape, min_df)
            tfidf, rows = tfidf.with_singles_by_text(rows) if singles_by_text else (tfidf, rows)
        made = cls(0, tfidf, encoder, encoder_weight)
        rows = made.with_embeddings(rows, train.texts, train.progress)
        return replace(made, width=rows.shape[1]), rows

    def with_embeddings(
        self, rows: sparse.csr_array | None, texts: Strings, progress: bool | None = None
    ) -> sparse.csr_array:
        """Add the embeddings of texts, if there is an encoder, to the rows of their n-grams."""
        if self.encoder is None:
            return rows
        dense = self.encoder.transform(list(texts), progress)
        if rows is None:
            return join_features(sparse.csr_array((len(texts), 0), dtype=np.float32), dense, 1.0)
        return join_features(rows, dense, self.encoder_weight)

    def rows(self, documents: Any, progress: bool | None = None) -> sparse.csr_array:
        """Turn documents into rows.

        Parameters
        ----------
        documents : Strings or csr_array of shape (documents, features)
            Texts, or features as data bring them.
        progress : bool or None
            Whether to show a progress bar.

        Returns
        -------
        csr_array of shape (documents, width)
            float32.
        """
        reads_texts = self.tfidf is not None or self.encoder is not None
        if sparse.issparse(documents) == reads_texts:
            have, need = ("texts", "features") if reads_texts else ("features", "texts")
            raise TreelabelError(f"this model has learned from {have}, but found {need}; give data of the same kind")
        if reads_texts:
            rows = None if self.tfidf is None else self.tfidf.transform(documents)
            return self.with_embeddings(rows, documents, progress)
        if documents.shape[1] != self.width:
            raise TreelabelError(
                f"the documents have {documents.shape[1]:,} features, but the model has learned from "
                f"{self.width:,}; expected the same features in the same order"
            )
        # In double precision, as squares of large numbers and of small ones must not vanish.
        wide = sparse.csr_array(documents, dtype=np.float64)
        wrong = np.flatnonzero(~np.isfinite(wide.data))
        if len(wrong):
            row = int(np.searchsorted(wide.indptr, wrong[0], side="right")) - 1
            raise TreelabelError(f"document {row}: feature {wide.indices[wrong[0]]} is {wide.data[wrong[0]]}")
        rows = sparse.csr_array(normalize_rows(wide), dtype=np.float32)
        rows.sort_indices()
        return rows

    def held_rows(self, rows: sparse.csr_array, folds: Sequence[LongArray], min_df: int) -> sparse.csr_array:
        """Write documents that were learned from as new ones: by the n-grams of the documents outside their fold.

        An n-gram that no other document has takes a part of the length of a row and has no weight. New documents have
        none: `rows` leaves out what it does not know, and the margins of what is left are larger. Probabilities that
        were calibrated on rows with such n-grams would be too large.

        Parameters
        ----------
        rows : csr_array of shape (documents, width)
            What `fit` returned, or the rows of a validation set behind them.
        folds : sequence of arrays of int64
            Rows.
        min_df : int
            As in `fit`.

        Returns
        -------
        csr_array of shape (documents of all folds, width)
        """
        if self.tfidf is None:
            return rows[np.concatenate(folds)]
        counts = np.bincount(rows.indices, minlength=rows.shape[1])
        parts = []
        for fold in folds:
            part = rows[fold]
            is_known = counts - np.bincount(part.indices, minlength=len(counts)) >= min_df
            # Columns of embeddings have a value in every row.
            is_known[self.tfidf.width :] = True
            parts.append(self.tfidf.keep_ngrams(part, is_known[part.indices]))
        return sparse.csr_array(sparse.vstack(parts, format="csr"))

    # Saving

    def values(self) -> FeatureValues:
        """Return what JSON keeps."""
        ngrams = None if self.tfidf is None else ngram_values(self.tfidf.shape)
        note: Any = None if self.encoder is None else encoder_note(self.encoder)
        return {"encoder": note, "ngrams": ngrams, "width": self.width}

    def arrays(self) -> Arrays:
        """Return what was learned, to save."""
        return {} if self.tfidf is None else self.tfidf.arrays()

    @staticmethod
    def schema(values: Any) -> tuple[dict[str, Array], dict[str, int], dict[str, int]]:
        """Declare the arrays of features: arrays, sizes that are known, and the most that others may be."""
        if values["ngrams"] is None:
            return {}, {}, {}
        arrays = {name: replace(each, shape=("ngrams",)) for name, each in tfidf_arrays().items()}
        return arrays, {"buckets": saved_shape(values["ngrams"]).buckets}, {"ngrams": values["width"]}

    @classmethod
    def of(
        cls, values: Any, arrays: Arrays, encoder: str | Encoder | None, encoder_weight: float
    ) -> "SparseFeaturizer":
        """Make it of what `values` and `arrays` returned, and of settings of the model."""
        tfidf = cached = None
        if values["ngrams"] is not None:
            tfidf = Tfidf(saved_shape(values["ngrams"]), arrays["buckets"], arrays["idf"])
        if values["encoder"] is not None:
            cached = CachedEncoder(same_encoder(encoder, values["encoder"]))
        return cls(values["width"], tfidf, cached, encoder_weight)
