"""What the programs of this folder share: reading JSON Lines, writing scores, measuring times.

    python PROGRAM TRAIN TEST OUTPUT [--seed 0] [--threads 1] [--variant NAME]

TRAIN has a line per document, {"id", "text", "labels"}; labels are full paths ("A > B") or names. TEST has no labels.
OUTPUT gets a line per test document, {"id", "labels": [{"label", "p"}]}, with the best 100 labels and, where every
training document has one path, the ancestors of these. OUTPUT.json gets the seconds of learning and of scoring from raw
text, imports left out, and the size of the model. Each program runs in an environment of its own, without treelabel.
"""

import argparse
import json
import pickle
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

SEPARATOR = " > "
KEPT = 100
# A list of (class, score) for each document.
Answers = Iterable[Sequence[tuple[int, float]]]


@dataclass(frozen=True)
class Task:
    """Documents to learn from and texts to score; a class is a most specific label of training."""

    texts: list[str]
    rows: list[list[int]]
    classes: list[str]
    test_ids: list[str]
    test_texts: list[str]
    seed: int
    threads: int
    variant: str

    @cached_property
    def many(self) -> bool:
        """Whether some training document has several classes, or none."""
        return any(len(row) != 1 for row in self.rows)

    def single(self) -> list[int]:
        """Return the one class of each document."""
        return [row[0] for row in self.rows]

    def indicator(self, kind: type = np.int64) -> Any:
        """Return the classes as a sparse matrix, documents x classes."""
        from scipy import sparse

        ends = np.cumsum([0, *map(len, self.rows)])
        columns = np.array([each for row in self.rows for each in row], np.int32)
        return sparse.csr_matrix((np.ones(len(columns), kind), columns, ends), (len(self.rows), len(self.classes)))


def run(
    learn: Callable[[Task], Any],
    score: Callable[[Task, Any], Any],
    size: Callable[[Any], int] | None = None,
    variants: Sequence[str] = ("",),
) -> None:
    """Learn and score as the command line says.

    Parameters
    ----------
    learn : function of a Task
        Returns a model.
    score : function of a Task and a model
        Returns an array of documents x classes, or the classes and scores of each document.
    size : function of a model, optional
        Returns its bytes; without, those of its pickle.
    variants : sequence of str
        What --variant may be; the first is the default.
    """
    parser = argparse.ArgumentParser()
    for name in ("train", "test", "output"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--variant", choices=variants, default=variants[0])
    options = parser.parse_args()
    task = read_task(options.train, options.test, options.seed, options.threads, options.variant)
    started = time.perf_counter()
    model = learn(task)
    learned = time.perf_counter()
    scores = score(task, model)
    scored = time.perf_counter()
    write_scores(options.output, task, best_classes(scores) if isinstance(scores, np.ndarray) else scores)
    measured = {"fit_seconds": learned - started, "score_seconds": scored - learned}
    measured["model_bytes"] = len(pickle.dumps(model)) if size is None else size(model)
    Path(f"{options.output}.json").write_text(json.dumps(measured))


# Files


def read_task(train: Path, test: Path, seed: int, threads: int, variant: str) -> Task:
    """Read documents and number the classes that occur."""
    documents, tested = read_lines(train), read_lines(test)
    labels = [most_specific(document["labels"]) for document in documents]
    classes = sorted({label for row in labels for label in row})
    place = {label: at for at, label in enumerate(classes)}
    rows = [[place[label] for label in row] for row in labels]
    texts, test_texts = ([document["text"] for document in part] for part in (documents, tested))
    return Task(texts, rows, classes, [document["id"] for document in tested], test_texts, seed, threads, variant)


def read_lines(file: Path) -> list[dict[str, Any]]:
    """Read JSON Lines."""
    with file.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def most_specific(paths: Sequence[str]) -> list[str]:
    """Drop paths that another one goes on from.

    >>> most_specific(["A", "A > B", "C"])
    ['A > B', 'C']
    """
    return [path for path in paths if not any(other.startswith(path + SEPARATOR) for other in paths)]


def best_classes(scores: Any) -> Answers:
    """Return the best classes of each row of an array, with their scores."""
    kept = min(KEPT, scores.shape[1])
    best = np.argpartition(-scores, kept - 1, axis=1)[:, :kept]
    return (list(zip(row.tolist(), scores[at, row].tolist(), strict=True)) for at, row in enumerate(best))


def write_scores(output: Path, task: Task, answers: Answers) -> None:
    """Write the best labels of each document.

    Where documents have one path, scores that sum to more than 1 are scaled to sum to 1, and an ancestor has the sum of
    what is below it. Else every label has its own score.
    """
    with output.open("w", encoding="utf-8") as lines:
        for name, row in zip(task.test_ids, answers, strict=True):
            found = {task.classes[at]: min(max(float(score), 0.0), 1.0) for at, score in row}
            if not task.many:
                found = with_ancestors(found)
            kept = sorted(found.items(), key=lambda item: -item[1])
            labels = [{"label": label, "p": float(f"{p:.6g}")} for label, p in kept if p > 0]
            lines.write(json.dumps({"id": name, "labels": labels}) + "\n")


def with_ancestors(scores: dict[str, float]) -> dict[str, float]:
    """Add the ancestors of paths, with sums of scores.

    >>> with_ancestors({"A > B": 0.25, "A > C": 0.5})
    {'A': 0.75, 'A > B': 0.25, 'A > C': 0.5}
    """
    total = max(1.0, sum(scores.values()))
    found: dict[str, float] = {}
    for path, score in scores.items():
        names = path.split(SEPARATOR)
        for length in range(1, len(names) + 1):
            node = SEPARATOR.join(names[:length])
            found[node] = min(1.0, found.get(node, 0.0) + score / total)
    return found


# Features and scores


def tfidf(**settings: Any) -> Any:
    """Return scikit-learn's tf-idf as its users make it."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    return TfidfVectorizer(sublinear_tf=True, **settings)


def softmax(margins: Any) -> Any:
    """Make distributions of margins."""
    odds = np.exp(margins - margins.max(axis=1, keepdims=True))
    return odds / odds.sum(axis=1, keepdims=True)


def sigmoid(margins: Any) -> Any:
    """Make a probability of each margin."""
    return 1 / (1 + np.exp(-margins))


def half_at_margin_0(task: Task, score: float) -> float:
    """Where documents have several labels, move scores of label trees so that a margin of 0 is 0.5; order is kept.

    A margin m scores exp(-max(0, 1 - m)^2): e^-1 for a margin of 0. To the power ln 2 that is 0.5.
    """
    return max(0.0, score) ** np.log(2) if task.many else score


def bytes_in(folder: Path) -> int:
    """Count the bytes of all files under a folder."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
