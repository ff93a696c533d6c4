"""PECOS' XR-Linear with its defaults on tf-idf of words."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from common import KEPT, Task, bytes_in, half_at_margin_0, run, tfidf
from pecos.xmc import Indexer, LabelEmbeddingFactory
from pecos.xmc.xlinear.model import XLinearModel
from scipy import sparse


def matrix_of(matrix: Any) -> Any:
    """Return a matrix in the one form that it takes."""
    return sparse.csr_matrix(matrix, dtype=np.float32)


def learn(task: Task) -> Any:
    """Cluster the classes and learn, as its manual does; then load the model for prediction, its fast way."""
    vectorizer = tfidf()
    features, labels = matrix_of(vectorizer.fit_transform(task.texts)), task.indicator(np.float32)
    clusters = Indexer.gen(LabelEmbeddingFactory.create(labels, features), seed=task.seed, threads=task.threads)
    folder = tempfile.mkdtemp()
    XLinearModel.train(features, labels, C=clusters, threads=task.threads).save(folder)
    return vectorizer, XLinearModel.load(folder, is_predict_only=True), Path(folder)


def score(task: Task, model: Any) -> Any:
    """Return its scores of the best classes."""
    vectorizer, trees, _ = model
    features = matrix_of(vectorizer.transform(task.test_texts))
    found = trees.predict(features, only_topk=KEPT, threads=task.threads)
    rows = (found[at] for at in range(found.shape[0]))
    return [
        [(each, half_at_margin_0(task, p)) for each, p in zip(row.indices.tolist(), row.data.tolist(), strict=True)]
        for row in rows
    ]


if __name__ == "__main__":
    run(learn, score, lambda model: bytes_in(model[2]))
