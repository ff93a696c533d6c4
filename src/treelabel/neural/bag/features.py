"""The n-grams of the bag model: words and runs of words, weighted by tf-idf, and a constant."""

from dataclasses import replace

import numpy as np

from treelabel.core.strings import Strings
from treelabel.core.types import IntArray
from treelabel.neural.bag.sgd import NgramRows
from treelabel.text.ngrams import NgramShape, count_ngrams
from treelabel.text.tfidf import Tfidf

# Every document has this besides its n-grams, so that texts without any have the shares of training.
CONSTANT = np.float32(0.2)
# Word pairs say less than their two words, and most are never seen again.
PAIR_WEIGHT = 0.5
MIN_PAIR_DF = 2


def fit_tfidf(texts: Strings, shape: NgramShape, min_df: int) -> Tfidf:
    """Choose the n-grams that get a vector, and fit their weights.

    Parameters
    ----------
    texts
        The training texts.
    shape
        The n-grams to count.
    min_df
        Documents that must have an n-gram; runs of words need two at least, and count less.

    Returns
    -------
    Tfidf
        The n-grams, the most frequent first.

    Examples
    --------
    >>> fit_tfidf(Strings.of(["a b", "a b c"]), NgramShape((1, 2)), 1).width
    4
    """
    counted = count_ngrams(texts, shape)
    df = np.bincount(counted.buckets, minlength=shape.n_features)
    is_word = np.zeros(shape.n_features, np.bool_)
    is_word[count_ngrams(texts, replace(shape, ngram_range=(1, 1))).buckets] = True
    enough = np.flatnonzero(df >= np.where(is_word, max(1, min_df), max(MIN_PAIR_DF, min_df)))
    buckets: IntArray = enough[np.argsort(-df[enough], kind="stable")].astype(np.int32)
    idf = (1 + np.log((1 + len(texts)) / (1 + df[buckets]))) * np.where(is_word[buckets], 1.0, PAIR_WEIGHT)
    return Tfidf(shape, buckets, idf.astype(np.float32))


def ngram_rows(tfidf: Tfidf, texts: Strings) -> NgramRows:
    """Weight the n-grams of texts, and append the constant to each text.

    >>> ngram_rows(Tfidf.fit(["the dog"], NgramShape()), Strings.of(["dog", ""])).ptr.tolist()
    [0, 2, 3]
    """
    matrix = tfidf.transform(texts)
    last = matrix.indptr[1:]
    ptr = (matrix.indptr + np.arange(len(matrix.indptr))).astype(np.int64)
    idx = np.insert(matrix.indices, last, tfidf.width).astype(np.int32)
    return NgramRows(ptr, idx, np.insert(matrix.data, last, CONSTANT).astype(np.float32))
