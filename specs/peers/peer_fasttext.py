"""fastText as in its tutorial: punctuation set apart, lower case, words and pairs of them."""

import re
import tempfile
from pathlib import Path
from typing import Any

import fasttext
from common import Task, run

LABEL = "__label__"


def in_line(text: str) -> str:
    """Write a text as the tutorial does."""
    return " ".join(re.sub(r"([.!?,'/()])", r" \1 ", text.lower()).split())


def learn(task: Task) -> Any:
    """Learn from a file, which is its only way."""
    settings = {"lr": 0.5, "epoch": 25, "wordNgrams": 2, "dim": 100, "thread": task.threads, "verbose": 0}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "train.txt")
        with file.open("w", encoding="utf-8") as lines:
            for text, row in zip(task.texts, task.rows, strict=True):
                if row:
                    lines.write("".join(f"{LABEL}{each} " for each in row) + in_line(text) + "\n")
        loss = "ova" if task.many else "softmax"
        return fasttext.train_supervised(str(file), loss=loss, seed=task.seed, **settings)


def score(task: Task, model: Any) -> Any:
    """Return its probabilities of the best classes."""
    answers = model.predict([in_line(text) for text in task.test_texts], k=100)
    for labels, shares in zip(*answers, strict=True):
        yield [(int(label.removeprefix(LABEL)), p) for label, p in zip(labels, shares, strict=True)]


def size(model: Any) -> int:
    """Save to a file and count it."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "model.bin")
        model.save_model(str(file))
        return file.stat().st_size


if __name__ == "__main__":
    run(learn, lambda task, model: list(score(task, model)), size)
