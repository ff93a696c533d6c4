"""One system for very many labels in a process of its own, started by `extreme.py` with the Python of its environment.

    python benchmarks/extreme_peers.py SYSTEM FOLDER RESULT.npz

FOLDER has x_train.npz, y_train.npz and x_test.npz: features in rows of length 1, and labels. After imports and a
warm-up on few documents, training and prediction are timed. RESULT.npz gets the five best labels of each test document;
the last line of output is JSON. Nothing here needs treelabel except its own lines.
"""

import json
import os
import re
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

KEPT = 5
THREADS = len(os.sched_getaffinity(0))
# Few documents that loops are compiled on, and libraries loaded.
WARM_UP = 300


class Pecos:
    """XR-Linear of libpecos with its defaults."""

    def __init__(self) -> None:
        library, linear = import_module("pecos.xmc"), import_module("pecos.xmc.xlinear.model")
        self.parts = library.Indexer, library.LabelEmbeddingFactory, linear.XLinearModel

    def fit(self, x: Any, y: Any, folder: Path) -> int:
        """Learn; the model is loaded again for prediction, its fast way."""
        indexer, factory, model = self.parts
        features, labels = sparse.csr_matrix(x, dtype=np.float32), sparse.csr_matrix(y, dtype=np.float32)
        clusters = indexer.gen(factory.create(labels, features), seed=0, threads=THREADS)
        model.train(features, labels, C=clusters, threads=THREADS).save(str(folder))
        self.model = model.load(str(folder), is_predict_only=True)
        return size_of(folder)

    def predict(self, x: Any) -> Any:
        """Return the best labels."""
        found = self.model.predict(sparse.csr_matrix(x, dtype=np.float32), only_topk=KEPT, threads=THREADS)
        return best_of_rows(found)


class Omikuji:
    """omikuji: Parabel's three binary trees by default, or Bonsai's shallow wide ones."""

    def __init__(self, bonsai: bool = False) -> None:
        self.library, self.bonsai = import_module("omikuji"), bonsai
        os.environ["RAYON_NUM_THREADS"] = str(THREADS)

    def fit(self, x: Any, y: Any, folder: Path) -> int:
        """Learn from a file, which is its only way; writing it is not timed."""
        file = folder / "train.svm"
        kept = np.flatnonzero(np.diff(x.indptr))
        with file.open("w") as lines:
            lines.write(f"{len(kept)} {x.shape[1]} {y.shape[1]}\n")
            for row in kept:
                a, b = x.indptr[row], x.indptr[row + 1]
                cells = " ".join(f"{at}:{value:.6g}" for at, value in zip(x.indices[a:b], x.data[a:b], strict=True))
                own = ",".join(map(str, y.indices[y.indptr[row] : y.indptr[row + 1]]))
                lines.write(f"{own} {cells}\n")
        self.untimed = time.perf_counter()
        settings = self.library.Model.default_hyper_param()
        if self.bonsai:
            settings.cluster_balanced, settings.cluster_k = False, 100
            settings.max_depth, settings.min_branch_size = 3, 100
        self.model = self.library.Model.train_on_data(str(file), settings)
        self.trained = time.perf_counter()
        self.model.save(str(folder / "model"))
        return size_of(folder / "model")

    def predict(self, x: Any) -> Any:
        """Return the best labels, one document after the other, as it can only do."""
        pairs = list(zip(x.indices.tolist(), x.data.tolist(), strict=True))
        rows = (pairs[a:b] for a, b in zip(x.indptr[:-1].tolist(), x.indptr[1:].tolist(), strict=True))
        found = np.full((x.shape[0], KEPT), -1)
        for at, row in enumerate(rows):
            best = [label for label, _ in self.model.predict(row, top_k=KEPT)]
            found[at, : len(best)] = best
        return found


class Treelabel:
    """A model of ours on the same features."""

    def __init__(self, model: str, **settings: Any) -> None:
        import treelabel
        from treelabel.core.strings import Strings
        from treelabel.data.dataset import Dataset

        self.library, self.strings, self.dataset = treelabel, Strings, Dataset
        self.model, self.settings = model, settings

    def _data(self, x: Any, y: Any) -> Any:
        blank, count = [""] * x.shape[0], x.shape[0]
        hierarchy = self.library.Hierarchy.flat([str(label) for label in range(y.shape[1])])
        labels = sparse.csr_array((np.ones(y.nnz, np.bool_), y.indices, y.indptr), y.shape)
        ids = self.strings.of([str(row) for row in range(count)])
        return self.dataset(ids, self.strings.of(blank), labels, hierarchy, features=sparse.csr_array(x))

    def fit(self, x: Any, y: Any, folder: Path) -> int:
        """Learn from features."""
        self.fitted = self.library.make_model(self.model, **self.settings).fit(self._data(x, y))
        self.trained = time.perf_counter()
        self.library.save_model(self.fitted, folder / "model", overwrite=True)
        return size_of(folder / "model")

    def predict(self, x: Any) -> Any:
        """Return the best labels."""
        return best_of_rows(self.fitted.score(sparse.csr_array(x), top=KEPT).values)


def best_of_rows(found: Any) -> Any:
    """Return the columns of the largest values of sparse rows, best first; -1 where there are fewer."""
    best = np.full((found.shape[0], KEPT), -1)
    row = np.repeat(np.arange(found.shape[0]), np.diff(found.indptr))
    order = np.lexsort((-found.data, row))
    rank = np.arange(found.nnz) - found.indptr[row]
    kept = rank < KEPT
    best[row[kept], rank[kept]] = found.indices[order][kept]
    return best


def size_of(folder: Path) -> int:
    """Count the bytes of all files under a folder."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def make(system: str) -> Any:
    """Make a system by its name."""
    name, _, variant = system.partition("+")
    if name == "pecos":
        return Pecos()
    if name in ("omikuji", "bonsai"):
        return Omikuji(name == "bonsai")
    return Treelabel(name, **({"n_trees": int(variant)} if variant else {}))


def main() -> None:
    """Train, predict, and print what it took."""
    system, folder, output = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    x, y, test = (
        sparse.csr_array(sparse.load_npz(folder / f"{name}.npz")) for name in ("x_train", "y_train", "x_test")
    )
    with tempfile.TemporaryDirectory() as place:
        few = np.arange(min(WARM_UP, x.shape[0]))
        warm = make(system)
        (Path(place) / "warm").mkdir()
        warm.fit(x[few], y[few], Path(place) / "warm")
        warm.predict(test[:10])
        (Path(place) / "own").mkdir()
        made = make(system)
        started = time.perf_counter()
        size = made.fit(x, y, Path(place) / "own")
        fitted = getattr(made, "trained", time.perf_counter()) - getattr(made, "untimed", started)
        made.predict(test[:100])
        started = time.perf_counter()
        best = made.predict(test)
        took = time.perf_counter() - started
    np.savez(output, best=best)
    # Not ru_maxrss, which begins with that of the process that started this one.
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    peak = int(found[1]) / 1024 if found else float("nan")
    print(
        json.dumps({"fit_seconds": fitted, "per_second": test.shape[0] / took, "megabytes": peak, "model_bytes": size})
    )


if __name__ == "__main__":
    main()
