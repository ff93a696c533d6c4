"""omikuji on tf-idf of words, three label trees: with its defaults (Parabel), or shallow wide ones (Bonsai)."""

import os
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import omikuji
from common import KEPT, Task, bytes_in, half_at_margin_0, run, tfidf


def pairs_of(matrix: Any) -> list[list[tuple[int, float]]]:
    """Return the features of each document."""
    pairs = list(zip(matrix.indices.tolist(), matrix.data.tolist(), strict=True))
    return [pairs[start:stop] for start, stop in pairwise(matrix.indptr.tolist())]


def learn(task: Task) -> Any:
    """Learn from a file, which is its only way; it takes threads from RAYON_NUM_THREADS."""
    os.environ["RAYON_NUM_THREADS"] = str(task.threads)
    vectorizer = tfidf()
    matrix = vectorizer.fit_transform(task.texts)
    # It cannot read a document without a feature.
    documents = [(row, pairs) for row, pairs in zip(task.rows, pairs_of(matrix), strict=True) if pairs]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "train.svm")
        with file.open("w") as lines:
            lines.write(f"{len(documents)} {matrix.shape[1]} {len(task.classes)}\n")
            for row, pairs in documents:
                values = " ".join(f"{at}:{value:.6g}" for at, value in pairs)
                lines.write(",".join(map(str, row)) + f" {values}\n")
        settings = omikuji.Model.default_hyper_param()
        if task.variant == "bonsai":
            settings.cluster_balanced, settings.cluster_k = False, 100
            settings.max_depth, settings.min_branch_size = 3, 100
        return vectorizer, omikuji.Model.train_on_data(str(file), settings)


def score(task: Task, model: Any) -> Any:
    """Return its scores of the best classes, asking for one document at a time, as it can only do."""
    vectorizer, trees = model
    answers = (trees.predict(pairs, top_k=KEPT) for pairs in pairs_of(vectorizer.transform(task.test_texts)))
    return [[(each, half_at_margin_0(task, p)) for each, p in row] for row in answers]


def size(model: Any) -> int:
    """Save to a folder and count it."""
    with tempfile.TemporaryDirectory() as folder:
        model[1].save(folder)
        return bytes_in(Path(folder))


if __name__ == "__main__":
    run(learn, score, size, ("parabel", "bonsai"))
