"""From texts to sparse matrices: hashed n-grams weighted by tf-idf, and their latent semantic analysis."""

from treelabel.text.ngrams import NgramShape
from treelabel.text.tfidf import Tfidf

__all__ = ["NgramShape", "Tfidf"]
