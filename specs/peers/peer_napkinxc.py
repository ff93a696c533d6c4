"""napkinXC with its defaults on tf-idf of words: a probabilistic label tree, or one against the rest."""

import tempfile
from pathlib import Path
from typing import Any

from common import KEPT, Task, bytes_in, run, tfidf
from napkinxc.models import OVR, PLT

VARIANTS = {"plt": PLT, "ovr": OVR}


def learn(task: Task) -> Any:
    """Learn into a folder, as it always does, and load the model from there."""
    vectorizer = tfidf()
    matrix = vectorizer.fit_transform(task.texts)
    folder = tempfile.mkdtemp()
    model = VARIANTS[task.variant](folder, seed=task.seed, threads=task.threads)
    model.fit(matrix, task.rows)
    model.load()
    return vectorizer, model, Path(folder)


def score(task: Task, model: Any) -> Any:
    """Return its probabilities of the best classes."""
    vectorizer, classifier, _ = model
    return classifier.predict_proba(vectorizer.transform(task.test_texts), top_k=min(KEPT, len(task.classes)))


if __name__ == "__main__":
    run(learn, score, lambda model: bytes_in(model[2]), tuple(VARIANTS))
