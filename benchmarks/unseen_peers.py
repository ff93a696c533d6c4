"""One system on one set in a process of its own, started by `unseen.py` with the Python of its environment.

    python benchmarks/unseen_peers.py SYSTEM FOLDER RESULT.npz

FOLDER is what `fast_models.write_set` wrote. After imports and a warm-up on 40 documents (ours: on 300, and on 300 of
the embedded sample), training and prediction from raw text are timed. The classes that were predicted, and
probabilities where the system has some, go to RESULT.npz; the last line of output is JSON. Nothing here needs treelabel
except its own line.
"""

import json
import resource
import sys
import warnings
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.fast_models_peers import (
    MARGIN_0,
    WARM_UP,
    LinearSvc,
    Pecos,
    Rows,
    System,
    Task,
    Treelabel,
    measured,
    read_task,
)

# Ours compiles loops that few documents do not reach.
COMPILED_ON = 300
# A system that asks for more has no memory, instead of taking that of others.
MOST_BYTES = 14 << 30


@cache
def compile_loops() -> None:
    """Fit the default model to some of the embedded sample, so that first-use compilation is over."""
    library = import_module("treelabel")
    some = library.load_sample()[:COMPILED_ON]
    library.make_model().fit(some).predict(some.texts[:10])


class Default(Treelabel):
    """The default model, fitted to node ids as they are, so that labels of a DAG stay what they are."""

    def prepare(self, task: Task) -> None:
        """Make a dataset."""
        compile_loops()
        self.task = task
        file = task.source / "hierarchy.json"
        h = self.store.hierarchy_from_json(file.read_text(encoding="utf-8"), str(file))
        ptr = np.cumsum([0, *map(len, task.rows)])
        nodes = np.array([task.nodes[each] for row in task.rows for each in row], np.int32)
        strings = import_module("treelabel.core.strings").Strings.of
        ids = strings([str(row) for row in range(len(task.rows))])
        labels = self.store.label_matrix(ptr, nodes, len(h))
        self.data = self.library.Dataset(ids, strings(task.texts), labels, h)

    def fit(self) -> None:
        """Learn with all defaults."""
        self.model = self.library.make_model().fit(self.data)

    def notes(self) -> dict[str, Any]:
        """Name the rule that was chosen, and what it was chosen by."""
        model = self.model
        found = model.evidence_.describe(model.default_rule, model.regime_)
        return {"rule": model.default_rule, "evidence": found}


class Svc(LinearSvc):
    """LinearSVC on words; of several labels those with a margin above 0, and at least the best one."""

    def fit(self) -> None:
        """Learn one against the rest, two labels at a time where there are several."""
        with self.joblib.parallel_config("threading", n_jobs=2):
            super().fit()

    def predict(self, texts: list[str]) -> Any:
        """Predict the class of the largest margin, or give all margins."""
        return self.model.decision_function(self.matrix(texts)) if self.task.many else super().predict(texts)

    def classes(self, predicted: Any) -> Rows:
        """Take those above 0."""
        return above(predicted, 0.0) if self.task.many else super().classes(predicted)

    def scores(self, texts: list[str]) -> Any:
        """Return nothing: margins are no probabilities."""


class SvcPairs(Svc):
    """LinearSVC on words and pairs of them."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.make_vectorizer = partial(self.make_vectorizer, ngram_range=(1, 2))


class SvcCharacters(Svc):
    """LinearSVC on words and character 3- to 5-grams."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        union, make = import_module("sklearn.pipeline").FeatureUnion, self.make_vectorizer

        def both(**settings: Any) -> Any:
            characters = make(analyzer="char_wb", ngram_range=(3, 5), **settings)
            return union([("words", make(**settings)), ("characters", characters)])

        self.make_vectorizer = both


class Logistic(SvcPairs):
    """One logistic regression a class on words and pairs; of several labels those of at least 0.5 and the best one.

    Its plain probabilities: where a document has one class, scaled to sum to 1. Multinomial regression would need
    twenty times the memory of its coefficients.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        one = import_module("sklearn.linear_model").LogisticRegression
        self.one = partial(one, C=10, solver="liblinear")

    def fit(self) -> None:
        """Learn yes or no for each class, two at a time."""
        labels = self.task.indicator() if self.task.many else self.task.single()
        with self.joblib.parallel_config("threading", n_jobs=2):
            self.model = self.one_vs_rest(self.one()).fit(self.learn_matrix(), labels)

    def predict(self, texts: list[str]) -> Any:
        """Return the probabilities of all classes."""
        return self.model.predict_proba(self.matrix(texts))

    def classes(self, predicted: Any) -> Rows:
        """Take the best class, or all of at least 0.5 and the best one."""
        return above(predicted, 0.5 if self.task.many else np.inf)

    def scores(self, texts: list[str]) -> Any:
        """Return the probabilities of all classes."""
        return self.predict(texts)


class XrLinear(Pecos):
    """PECOS' XR-Linear with its defaults; of several labels those with a margin above 0, and at least the best one."""

    def classes(self, predicted: Any) -> Rows:
        """Take the best class, or all with a margin of at least 0 and the best one."""
        least = MARGIN_0 if self.task.many else np.inf
        rows = [predicted[at] for at in range(predicted.shape[0])]
        return [row.indices[(row.data >= least) | (row.data == row.data.max(initial=0))].tolist() for row in rows]

    def scores(self, texts: list[str]) -> Any:
        """Return nothing: products of hinge losses are no probabilities."""


def above(values: Any, least: float) -> Rows:
    """Return the classes of each row that have at least so much, and the best one.

    >>> above(np.array([[0.2, 0.6, 0.7], [0.2, 0.1, 0.0]]), 0.5)
    [[1, 2], [0]]
    """
    keep = values >= least
    keep[np.arange(len(values)), values.argmax(axis=1)] = True
    return [np.flatnonzero(row).tolist() for row in keep]


SYSTEMS: dict[str, type[System]] = {
    "treelabel": Default,
    "svc": Svc,
    "svc_pairs": SvcPairs,
    "svc_characters": SvcCharacters,
    "logistic": Logistic,
    "pecos": XrLinear,
}


def main() -> None:
    """Measure one system on one set."""
    name, source, result = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    task, small, test = read_task(source, COMPILED_ON if SYSTEMS[name] is Default else WARM_UP)
    folder = result.with_suffix("")
    for part in ("warm", "real"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    measured(SYSTEMS[name](folder / "warm"), small, small.texts)
    system = SYSTEMS[name](folder / "real")
    found, predicted = measured(system, task, test)
    rows, scores = system.classes(predicted), system.scores(test)
    ptr, flat = np.cumsum([0, *map(len, rows)]), np.array([each for row in rows for each in row], np.int64)
    stored: dict[str, Any] = {"nodes": np.array(task.nodes), "ptr": ptr, "classes": flat}
    if scores is not None:
        stored["scores"] = np.asarray(scores, np.float32)
    np.savez(result, **stored)
    print(json.dumps({**found, **system.notes()}))


if __name__ == "__main__":
    main()
