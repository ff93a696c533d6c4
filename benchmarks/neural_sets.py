"""One run of benchmarks/neural.py: read a set, learn, judge by the papers' columns; and vectors that runs share.

Runs are done by processes of their own, with as many threads as they are given: a model that learns takes Ctrl-C for
"that is enough", and what it says then is no result.
"""

import os
import signal
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.fast_models import SETS
from benchmarks.hierarchical_loss import some_of

from treelabel import Dataset, Scores, TreelabelError, evaluate, load_sample
from treelabel.core.compute import FloatArray
from treelabel.core.strings import Strings
from treelabel.core.vectors import normalize_rows
from treelabel.encoders.cached import CachedEncoder
from treelabel.encoders.protocol import Encoder
from treelabel.encoders.registry import find_encoder
from treelabel.models import make_model
from treelabel.models.neural.featurizers import MIN_DF, FrozenFeaturizer
from treelabel.text import NgramShape
from treelabel.text.lsa import Lsa

# The papers' columns, and the rule that makes the decisions of each (0.5 for thresholds); hF1-AUC judges scores.
COLUMNS = {
    "hamming": "threshold",
    "micro_f1": "threshold",
    "macro_f1": "threshold",
    "hf1_auc": "threshold",
    "leaf_accuracy": "best_leaf",
    "shortest_path": "threshold",
}
CORES = os.cpu_count() or 1
# What `lsa_components` of neural is.
LSA_COMPONENTS = 512
# Steps that show how fast fine-tuning is.
SPEED_STEPS, SPEED_BATCH = 12, 16


@dataclass(frozen=True)
class Run:
    """A model to learn and judge on a set.

    `documents` is how many of the set's training and test documents are used at most, `learn` how many of training
    alone, `vectors` a file of rows that take the encoder's place, and `seconds` the time that learning may take.
    """

    data: str
    title: str
    model: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    documents: int | None = None
    learn: int | None = None
    vectors: Path | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class Outcome:
    """What a run gave: the columns, the seconds it took, and how it was learned; or why there is none."""

    values: Mapping[str, float] = field(default_factory=dict)
    took: float = 0.0
    problem: str = ""
    note: str = ""


# Data


@lru_cache(maxsize=2)
def parts_of(name: str, documents: int | None = None) -> tuple[Dataset, Dataset]:
    """Read the training and the test part of a set as benchmarks/fast_models.py does, or so many of their documents."""
    train, test = SETS[name]()
    return (train, test) if documents is None else (some_of(train, documents, 0), some_of(test, documents, 0))


def judged(test: Dataset, scores: Scores) -> dict[str, float]:
    """Return all columns."""
    found: dict[str, float] = {}
    for rule in dict.fromkeys(COLUMNS.values()):
        metrics = [metric for metric, own in COLUMNS.items() if own == rule]
        result = evaluate(test, scores=scores, rule=rule, metrics=metrics, keep_documents=False)
        found |= {metric: float(result[metric]) for metric in metrics}
    return found


# Vectors that are made once for all losses


class Known:
    """Rows of texts that are known beforehand, in the place of an encoder."""

    def __init__(self, name: str, texts: Sequence[str], rows: FloatArray) -> None:
        self.name = self.fingerprint = name
        self._place = {text: place for place, text in enumerate(texts)}
        self._rows = rows

    def transform(self, texts: Sequence[str]) -> FloatArray:
        """Return one row per text."""
        return self._rows[[self._place[text] for text in texts]]


def embedded(spec: str, parts: Sequence[Dataset]) -> list[FloatArray]:
    """Embeddings of length 1 of each part, as FrozenFeaturizer makes them."""
    encoder = CachedEncoder(find_encoder(spec))
    given = [encoder.transform(list(part.texts)) for part in parts]
    return [normalize_rows(rows) for rows in given]


def beside_tfidf(vectors: Sequence[FloatArray], train: Strings, others: Sequence[Strings], seed: int) -> FloatArray:
    """Put reduced tf-idf beside embeddings, as tfidf=True does: the rows of training, then those of the others.

    The model brings rows to length 1 as a whole and not by parts, which is the same but for texts without a known word.
    """
    lsa, _ = Lsa.fit_transform(train, LSA_COMPONENTS, NgramShape(), MIN_DF, seed)
    parts = [np.hstack([rows, lsa.transform(texts)]) for rows, texts in zip(vectors, [train, *others], strict=True)]
    return np.concatenate(parts)


def require_same_vectors(spec: str) -> None:
    """Check on a few texts that a network is given the very vectors that tfidf=True makes."""
    data = load_sample()[np.arange(200)]
    (plain,) = embedded(spec, [data])
    rows = beside_tfidf([plain], data.texts, [], seed=1)
    usual = FrozenFeaturizer.fit(spec, data.texts, LSA_COMPONENTS, 1).inputs(data.texts).values.numpy()
    with tempfile.TemporaryDirectory(prefix="treelabel-bench-") as folder:
        reader = FrozenFeaturizer(CachedEncoder(Known("a check", list(data.texts), rows), Path(folder)))
        ours = reader.inputs(data.texts).values.numpy()
    some = np.linalg.norm(rows[:, plain.shape[1] :], axis=1) > 0
    if not np.allclose(usual[some], ours[some], atol=1e-5):
        raise AssertionError("the vectors of this benchmark are not those of tfidf=True")


@lru_cache(maxsize=2)
def known(file: Path, name: str, documents: int | None) -> Known:
    """Read the rows of a set's texts."""
    texts = [text for part in parts_of(name, documents) for text in part.texts]
    return Known(str(file), texts, np.load(file))


@contextmanager
def cached_beside(file: Path) -> Iterator[None]:
    """Let rows that are known anyway not go where embeddings are kept."""
    before = os.environ.get("TREELABEL_CACHE")
    os.environ["TREELABEL_CACHE"] = str(file.with_name(f"cache-{os.getpid()}"))
    try:
        yield
    finally:
        del os.environ["TREELABEL_CACHE"]
        if before is not None:
            os.environ["TREELABEL_CACHE"] = before


# Running


@contextmanager
def workers(count: int) -> Iterator[ProcessPoolExecutor]:
    """Processes that share the cores; whatever they do is given up in the end."""
    threads = max(1, CORES // count)
    # Libraries ask for these when they are imported.
    wanted = dict.fromkeys(("OMP_NUM_THREADS", "TREELABEL_THREADS"), str(threads))
    os.environ |= wanted
    pool = ProcessPoolExecutor(count, get_context("spawn"), begin, (threads,))
    try:
        yield pool
        pool.shutdown()
    finally:
        # After Ctrl-C nobody waits for what is under way.
        processes = list((pool._processes or {}).values())
        pool.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.terminate()
        for name in wanted:
            del os.environ[name]


def begin(threads: int) -> None:
    """Prepare a process: the one that started it decides what Ctrl-C means."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(threads)


@cache
def found_encoder(spec: str) -> Encoder:
    """Find an encoder once: its weights are loaded for the first text that is not known."""
    return find_encoder(spec)


def do(run: Run) -> Outcome:
    """Learn, score and judge."""
    try:
        train, test = parts_of(run.data, run.documents)
        if run.vectors is None:
            return fitted(run, train, test)
        settings = {**run.settings, "encoder": known(run.vectors, run.data, run.documents)}
        with cached_beside(run.vectors):
            return fitted(replace(run, settings=settings), train, test)
    except TreelabelError as error:
        return Outcome(problem=str(error))


def fitted(run: Run, train: Dataset, test: Dataset) -> Outcome:
    """Learn from one part, and judge on the other."""
    shown = train if run.learn is None else some_of(train, run.learn, 0)
    settings = dict(run.settings)
    # What is fine-tuned is found by its name.
    if isinstance(settings.get("encoder"), str) and "train" not in settings:
        settings["encoder"] = found_encoder(settings["encoder"])
    begun = time.perf_counter()
    model = make_model(run.model, seed=run.seed, **settings).fit(shown, max_seconds=run.seconds)
    learned = time.perf_counter() - begun
    values = judged(test, model.score(test))
    note = ""
    if "epochs" in settings:
        late = ", stopped by the clock" if run.seconds is not None and learned >= run.seconds else ""
        note = f"{len(model.losses_)} of {settings['epochs']} epochs{late}, {len(shown):,} documents"
    return Outcome(values, time.perf_counter() - begun, note=note)


class Clock:
    """Told of every step; remembers when."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def __call__(self, step: int, values: Mapping[str, float]) -> None:
        """Take in a step, but not the end of an epoch."""
        if "loss" in values:
            self.times.append(time.perf_counter())


def speed_of(run: Run) -> float:
    """How many documents a second a run learns, by a few steps; the first ones set things up and do not count."""
    train, _ = parts_of(run.data, run.documents)
    clock = Clock()
    steps = {"epochs": 1, "batch_size": SPEED_BATCH, "validation_fraction": 0.0, "callbacks": (clock,)}
    make_model(run.model, **{**run.settings, **steps}).fit(some_of(train, SPEED_BATCH * SPEED_STEPS, 1))
    counted = clock.times[SPEED_STEPS // 3 :]
    return SPEED_BATCH * (len(counted) - 1) / (counted[-1] - counted[0])
