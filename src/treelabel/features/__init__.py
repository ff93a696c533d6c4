"""Text -> matrix: hashed n-grams weighted by tf-idf."""

from treelabel.features.ngrams import NgramShape
from treelabel.features.tfidf import Tfidf

__all__ = ["NgramShape", "Tfidf"]
