"""One system on one set in a process of its own, started by `fast_models.py` with the Python of its environment.

    python benchmarks/fast_models_peers.py SYSTEM FOLDER RESULT

FOLDER holds train.jsonl and test.jsonl (text; labels as node numbers), nodes.json (the way to each node) and, for ours,
hierarchy.json. After imports and a warm-up on 40 documents, training and prediction from raw text are timed, with the
peak of memory that they reach; the last line of output is JSON. A system may leave files in the folder RESULT. A class
is a most specific label of training. Nothing here needs treelabel except its own line. How good peers are is measured
by specs/peers.toml, with programs of its own.
"""

import ctypes
import gc
import io
import json
import math
import re
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

WARM_UP = 40
PREDICTIONS = 3
# Where a margin of 0 lies among scores exp(-(1 - margin)^p), of which one level of a label tree makes its own.
MARGIN_0 = math.exp(-1)

Rows = list[list[int]]


class UnableError(Exception):
    """What a system cannot do at all."""


@dataclass
class Task:
    """Documents to learn from: texts, the classes of each, and the way to the node of each class."""

    texts: list[str]
    rows: Rows
    nodes: list[int]
    ways: Rows
    many: bool
    source: Path

    @classmethod
    def of(cls, texts: list[str], labels: Rows, ways: Rows, many: bool, source: Path) -> "Task":
        """Number the classes that occur."""
        nodes = sorted({node for row in labels for node in row})
        place = {node: at for at, node in enumerate(nodes)}
        rows = [[place[node] for node in row] for row in labels]
        return cls(texts, rows, nodes, [ways[node] for node in nodes], many, source)

    def single(self) -> list[int]:
        """Return the one class of each document."""
        return [row[0] for row in self.rows]

    def indicator(self, kind: type = np.int64) -> Any:
        """Return the classes as a sparse matrix, documents x classes."""
        ptr = np.cumsum([0, *map(len, self.rows)])
        classes = np.array([each for row in self.rows for each in row], np.int32)
        sparse = import_module("scipy.sparse")
        return sparse.csr_matrix((np.ones(len(classes), kind), classes, ptr), (len(self.rows), len(self.nodes)))


# The systems: how each learns, predicts as its users do, scores all classes, and is stored


class System:
    """What a system does; making one imports its library."""

    task: Task

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def prepare(self, task: Task) -> None:
        """Take the labels, in the form that the library wants; not timed."""
        self.task = task

    def fit(self) -> None:
        """Learn from raw texts."""
        raise NotImplementedError

    def ready(self) -> None:
        """Prepare for prediction, where a library wants that; not timed."""

    def predict(self, texts: list[str]) -> Any:
        """Predict from raw texts, in whatever form the library gives."""
        raise NotImplementedError

    def classes(self, predicted: Any) -> Rows:
        """Turn what `predict` gave into classes; not timed."""
        raise NotImplementedError

    def scores(self, texts: list[str]) -> Any:
        """Score all classes, documents x classes."""
        raise NotImplementedError

    def size(self) -> int:
        """Store the model; give its bytes."""
        raise NotImplementedError

    def notes(self) -> dict[str, Any]:
        """Say what the one who judges must know."""
        return {}


class Treelabel(System):
    """The default model of treelabel, untuned."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.library = import_module("treelabel")
        self.store = import_module("treelabel.hierarchy")

    def prepare(self, task: Task) -> None:
        """Write labels as full paths of names."""
        super().prepare(task)
        file = task.source / "hierarchy.json"
        self.hierarchy = self.store.hierarchy_from_json(file.read_text(encoding="utf-8"), str(file))
        paths = [[self.hierarchy.names[node] for node in way] for way in task.ways]
        self.labels = [[paths[each] for each in row] for row in task.rows]

    def fit(self) -> None:
        """Learn from lists of texts and labels."""
        self.model = self.library.make_model().fit(self.task.texts, self.labels, hierarchy=self.hierarchy)

    def predict(self, texts: list[str]) -> Any:
        """Predict label names by the usual rule."""
        return self.model.predict(texts)

    def classes(self, predicted: Any) -> Rows:
        """Leave decisions to the one who judges: they follow from the scores by the usual rule."""
        return [[] for _ in predicted]

    def scores(self, texts: list[str]) -> Any:
        """Score all nodes."""
        return self.model.score(texts).dense()

    def size(self) -> int:
        """Count the model folder, which is kept for loading it."""
        self.model.save(self.folder / "model")
        return bytes_in(self.folder / "model")

    def notes(self) -> dict[str, Any]:
        """Name the usual rule."""
        return {"rule": self.model.default_rule}


class OnMatrix(System):
    """A system that takes a matrix: tf-idf of words as people make it, whose time and size count."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.make_vectorizer = import_module("sklearn.feature_extraction.text").TfidfVectorizer
        self.joblib = import_module("joblib")
        self.as_csr = import_module("scipy.sparse").csr_matrix

    def learn_matrix(self) -> Any:
        """Learn the features of training texts; give their matrix."""
        self.vectorizer = self.make_vectorizer(sublinear_tf=True)
        return self.as_csr(self.vectorizer.fit_transform(self.task.texts))

    def matrix(self, texts: list[str]) -> Any:
        """Return the features of texts."""
        return self.as_csr(self.vectorizer.transform(texts))

    def dumped(self, *parts: Any) -> int:
        """Return the bytes of Python objects as joblib stores them."""
        stream = io.BytesIO()
        self.joblib.dump((self.vectorizer, *parts), stream)
        return stream.tell()


class LinearSvc(OnMatrix):
    """scikit-learn's LinearSVC, one against the rest, margins as scores."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.make_svc = import_module("sklearn.svm").LinearSVC
        self.one_vs_rest = import_module("sklearn.multiclass").OneVsRestClassifier

    def fit(self) -> None:
        """Learn classes, or in the many case yes or no for each."""
        features = self.learn_matrix()
        if self.task.many:
            self.model = self.one_vs_rest(self.make_svc()).fit(features, self.task.indicator())
        else:
            self.model = self.make_svc().fit(features, self.task.single())

    def predict(self, texts: list[str]) -> Any:
        """Predict the largest margin, or in the many case all above 0."""
        return self.model.predict(self.matrix(texts))

    def classes(self, predicted: Any) -> Rows:
        """Read the indicator matrix or the classes."""
        if not self.task.many:
            return [[int(each)] for each in predicted]
        return [row.tolist() for row in np.split(predicted.indices, predicted.indptr[1:-1])]

    def size(self) -> int:
        """Dump both."""
        return self.dumped(self.model)


class Hiclass(OnMatrix):
    """hiclass with a logistic regression for each parent, trained by two processes."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.make_model = import_module("hiclass").LocalClassifierPerParentNode
        self.local = import_module("sklearn.linear_model").LogisticRegression

    def prepare(self, task: Task) -> None:
        """Write labels as ways through the tree; a class with others below it gets a node of its own there."""
        super().prepare(task)
        if task.many:
            raise UnableError("one path only")
        inside = {node for way in task.ways for node in way[:-1]}
        self.ways = [
            [*map(str, way), f"{way[-1]} end"] if way[-1] in inside else list(map(str, way)) for way in task.ways
        ]
        deepest = max(map(len, self.ways))
        padded = [[*way, *[""] * (deepest - len(way))] for way in self.ways]
        self.labels = np.array([padded[each] for each in task.single()])

    def fit(self) -> None:
        """Learn one regression for each parent."""
        self.model = self.make_model(self.local(), n_jobs=2).fit(self.learn_matrix(), self.labels)

    def predict(self, texts: list[str]) -> Any:
        """Walk down from the root, always to the best child."""
        return self.model.predict(self.matrix(texts))

    def size(self) -> int:
        """Dump both."""
        return self.dumped(self.model)


class FastText(System):
    """fastText as in its tutorial: punctuation set apart, lower case, words and pairs of them."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.library = import_module("fasttext")

    def fit(self) -> None:
        """Learn from a file, which is its only way."""
        file, task = self.folder / "train.txt", self.task
        with file.open("w", encoding="utf-8") as lines:
            for text, row in zip(task.texts, task.rows, strict=True):
                lines.write("".join(f"__label__{each} " for each in row) + in_line(text) + "\n")
        loss = "ova" if task.many else "softmax"
        settings = {"lr": 0.5, "epoch": 25, "wordNgrams": 2, "dim": 100, "thread": 2, "verbose": 0}
        self.model = self.library.train_supervised(str(file), loss=loss, **settings)
        file.unlink()

    def predict(self, texts: list[str]) -> Any:
        """Predict the best class, or in the many case all of at least 0.5."""
        lines = [in_line(text) for text in texts]
        return self.model.predict(lines, k=-1, threshold=0.5) if self.task.many else self.model.predict(lines)

    def size(self) -> int:
        """Save to a file and count it."""
        file = self.folder / "model.bin"
        self.model.save_model(str(file))
        size = file.stat().st_size
        file.unlink()
        return size


class Napkinxc(OnMatrix):
    """napkinXC's probabilistic label tree with its defaults."""

    kind = "PLT"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.make_model = getattr(import_module("napkinxc.models"), self.kind)

    def fit(self) -> None:
        """Learn into a folder, as it always does."""
        self.output = Path(tempfile.mkdtemp(dir=self.folder))
        self.model = self.make_model(str(self.output))
        self.model.fit(self.learn_matrix(), self.task.rows)

    def ready(self) -> None:
        """Load the model from its folder."""
        self.model.load()

    def predict(self, texts: list[str]) -> Any:
        """Predict the best class, or in the many case all of at least 0.5."""
        features = self.matrix(texts)
        return self.model.predict(features, **({"threshold": 0.5} if self.task.many else {"top_k": 1}))

    def size(self) -> int:
        """Count its folder and the features."""
        return bytes_in(self.output) + self.dumped()


class NapkinxcOvr(Napkinxc):
    """napkinXC one against the rest with its defaults."""

    kind = "OVR"


class Omikuji(OnMatrix):
    """omikuji with its defaults: three label trees."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.library = import_module("omikuji")

    def fit(self) -> None:
        """Learn from a file, which is its only way."""
        features, file = self.learn_matrix(), self.folder / "train.svm"
        pairs = [
            f"{at}:{value:.6g}" for at, value in zip(features.indices.tolist(), features.data.tolist(), strict=True)
        ]
        with file.open("w") as lines:
            lines.write(f"{features.shape[0]} {features.shape[1]} {len(self.task.nodes)}\n")
            for row, (start, stop) in zip(self.task.rows, pairwise(features.indptr), strict=True):
                lines.write(",".join(map(str, row)) + " " + " ".join(pairs[start:stop]) + "\n")
        self.model = self.library.Model.train_on_data(str(file))
        file.unlink()

    def answers(self, texts: list[str], top_k: int) -> list[list[tuple[int, float]]]:
        """Ask for each text on its own, as it can only do."""
        features = self.matrix(texts)
        pairs = list(zip(features.indices.tolist(), features.data.tolist(), strict=True))
        ends = pairwise(features.indptr.tolist())
        return [self.model.predict(pairs[start:stop], top_k=top_k) for start, stop in ends]

    def predict(self, texts: list[str]) -> Any:
        """Predict the best class, or in the many case its usual ten."""
        return self.answers(texts, 10 if self.task.many else 1)

    def size(self) -> int:
        """Save to a folder and count it."""
        folder = self.folder / "omikuji"
        self.model.save(str(folder))
        return bytes_in(folder) + self.dumped()


class Pecos(OnMatrix):
    """PECOS' XR-Linear with its defaults."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.maker = import_module("pecos.xmc.xlinear.model").XLinearModel
        self.xmc = import_module("pecos.xmc")

    def fit(self) -> None:
        """Cluster the classes and learn, as its manual does."""
        features, labels = self.learn_matrix().astype(np.float32), self.task.indicator(np.float32)
        clusters = self.xmc.Indexer.gen(self.xmc.LabelEmbeddingFactory.create(labels, features))
        self.model = self.maker.train(features, labels, C=clusters)

    def ready(self) -> None:
        """Load the model for prediction only, which is its fast way."""
        self.model.save(str(self.folder / "pecos"))
        self.model = self.maker.load(str(self.folder / "pecos"), is_predict_only=True)

    def answers(self, texts: list[str], top_k: int) -> Any:
        """Return the scores of the best classes as a sparse matrix."""
        return self.model.predict(self.matrix(texts).astype(np.float32), only_topk=top_k)

    def predict(self, texts: list[str]) -> Any:
        """Predict the best class, or in the many case its usual twenty."""
        return self.answers(texts, 20 if self.task.many else 1)

    def size(self) -> int:
        """Count its folder and the features."""
        return bytes_in(self.folder / "pecos") + self.dumped()


SYSTEMS: dict[str, type[System]] = {
    "treelabel": Treelabel,
    "linearsvc": LinearSvc,
    "fasttext": FastText,
    "hiclass": Hiclass,
    "napkinxc": Napkinxc,
    "napkinxc_ovr": NapkinxcOvr,
    "omikuji": Omikuji,
    "pecos": Pecos,
}


def in_line(text: str) -> str:
    """Write a text as fastText's tutorial does."""
    return " ".join(re.sub(r"([.!?,'/()])", r" \1 ", text.lower()).split())


def bytes_in(folder: Path) -> int:
    """Count the bytes of all files under a folder."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


# Measuring


def read_documents(file: Path) -> tuple[list[str], Rows]:
    """Read texts and node numbers."""
    with file.open(encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    return [row["text"] for row in rows], [row["labels"] for row in rows]


def read_task(source: Path, warm_up: int) -> tuple[Task, Task, list[str]]:
    """Read what to learn from, about so many documents of it to warm up on, and the texts to predict."""
    ways = json.loads((source / "nodes.json").read_text())
    texts, labels = read_documents(source / "train.jsonl")
    test, _ = read_documents(source / "test.jsonl")
    many = any(len(row) > 1 for row in labels)
    some = range(0, len(texts), max(1, len(texts) // warm_up))
    small = Task.of([texts[at] for at in some], [labels[at] for at in some], ways, many, source)
    return Task.of(texts, labels, ways, many, source), small, test


def megabytes(key: str) -> float:
    """Read a line of this process' status."""
    found = re.search(key + r":\s+(\d+)", Path("/proc/self/status").read_text())
    return int(found[1]) / 1000 if found else math.nan


def measured(system: System, task: Task, texts: list[str]) -> tuple[dict[str, float], Any]:
    """Learn and predict; give seconds and megabytes, and what was predicted."""
    system.prepare(task)
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    warm = megabytes("VmHWM")
    Path("/proc/self/clear_refs").write_text("5")
    before = megabytes("VmRSS")
    training, training_cpu, _ = timed(system.fit)
    system.ready()
    times = []
    for _ in range(PREDICTIONS):
        *took, predicted = timed(lambda: system.predict(texts))
        times.append(took)
    peak = megabytes("VmHWM")
    wall, cpu = map(min, zip(*times, strict=True))
    found = {"train": training, "predict": wall, "train_cpu": training_cpu, "predict_cpu": cpu}
    return {**found, "peak": max(peak, warm), "growth": peak - before}, predicted


def timed(work: Callable[[], Any]) -> tuple[float, float, Any]:
    """Return the seconds of a call, those of the processor in all threads of this process, and its result."""
    started, used = time.perf_counter(), time.process_time()
    result = work()
    return time.perf_counter() - started, time.process_time() - used, result


def main() -> None:
    """Measure one system on one set."""
    name, source, result = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    warnings.simplefilter("ignore")
    task, small, test = read_task(source, WARM_UP)
    folder = result.with_suffix("")
    for part in ("warm", "real"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    try:
        measured(SYSTEMS[name](folder / "warm"), small, small.texts)
        system = SYSTEMS[name](folder / "real")
        found, _ = measured(system, task, test)
    except UnableError as error:
        print(json.dumps({"unable": str(error)}))
        return
    print(json.dumps({**found, "size": system.size() / 1e6}))


if __name__ == "__main__":
    main()
