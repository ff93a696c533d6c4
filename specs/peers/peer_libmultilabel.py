"""LibMultiLabel's linear models with their defaults on tf-idf of words: one against the rest, or a label tree."""

from typing import Any

import libmultilabel.linear as linear
import numpy as np
from common import Task, best_classes, run, sigmoid, softmax, tfidf
from scipy import sparse

VARIANTS = ("1vsrest", "tree")


def matrix_of(matrix: Any) -> Any:
    """Return a matrix in the one form that it takes."""
    return sparse.csr_matrix(matrix)


def learn(task: Task) -> Any:
    """Learn L2-regularised SVMs (its option -s 1)."""
    np.random.seed(task.seed)
    vectorizer = tfidf()
    features, labels = matrix_of(vectorizer.fit_transform(task.texts)), task.indicator(np.float64)
    train = linear.train_tree if task.variant == "tree" else linear.train_1vsrest
    return vectorizer, train(labels, features, f"-s 1 -m {task.threads}")


def score(task: Task, model: Any) -> Any:
    """Return margins as a softmax or, where documents have several labels, sigmoids."""
    vectorizer, classifier = model
    margins = np.asarray(linear.predict_values(classifier, matrix_of(vectorizer.transform(task.test_texts))))
    return best_classes(sigmoid(margins) if task.many else softmax(margins))


if __name__ == "__main__":
    run(learn, score, variants=VARIANTS)
