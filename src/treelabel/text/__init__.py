"""Text -> matrix: hashed n-grams weighted by tf-idf."""

from treelabel.text.ngrams import NgramShape
from treelabel.text.tfidf import Tfidf

__all__ = ["NgramShape", "Tfidf"]
