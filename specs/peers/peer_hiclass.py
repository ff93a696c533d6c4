"""hiclass: a logistic regression for each parent node, on tf-idf of words; one path a document."""

import sys
from typing import Any

import numpy as np
from common import SEPARATOR, Task, run, tfidf
from hiclass import LocalClassifierPerParentNode
from sklearn.linear_model import LogisticRegression


def ways_of(task: Task) -> list[list[str]]:
    """Return the path of each class; one with others below it gets a node of its own there."""
    inside = {path for label in task.classes for path in prefixes(label)[:-1]}
    return [[*prefixes(label), *([f"{label} end"] if label in inside else [])] for label in task.classes]


def prefixes(label: str) -> list[str]:
    """Return the paths of all ancestors, then the label's own.

    >>> prefixes("A > B")
    ['A', 'A > B']
    """
    names = label.split(SEPARATOR)
    return [SEPARATOR.join(names[:length]) for length in range(1, len(names) + 1)]


def learn(task: Task) -> Any:
    """Learn one regression for each parent."""
    if task.many:
        sys.exit("hiclass takes one path a document")
    ways = ways_of(task)
    deepest = max(map(len, ways))
    padded = [[*way, *[""] * (deepest - len(way))] for way in ways]
    vectorizer = tfidf()
    matrix = vectorizer.fit_transform(task.texts)
    model = LocalClassifierPerParentNode(LogisticRegression(), n_jobs=task.threads)
    return vectorizer, model.fit(matrix, np.array([padded[each] for each in task.single()]))


def score(task: Task, model: Any) -> Any:
    """Multiply the local probabilities along each path: its own predict_proba gives those of the deepest level only."""
    vectorizer, local = model
    matrix, tree = vectorizer.transform(task.test_texts), local.hierarchy_
    place = {way[-1]: at for at, way in enumerate(ways_of(task))}
    found = np.zeros((matrix.shape[0], len(place)))
    reached = {local.root_: np.ones(matrix.shape[0])}
    todo = [local.root_]
    while todo:
        node = todo.pop()
        name = node.split(local.separator_)[-1]
        if name in place:
            found[:, place[name]] = reached[node]
        if not list(tree.successors(node)):
            continue
        classifier = tree.nodes[node]["classifier"]
        shares = np.asarray(classifier.predict_proba(matrix), float)
        reached |= {child: reached[node] * shares[:, at] for at, child in enumerate(classifier.classes_)}
        todo += list(classifier.classes_)
    return found


if __name__ == "__main__":
    run(learn, score)
