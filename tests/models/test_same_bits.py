"""Same seed, same bits: fits in one process, and in processes with other numbers of threads, are equal bit by bit."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from functools import cache
from typing import Any

import numpy as np
import pytest

from treelabel import Dataset, load_sample, make_model
from treelabel.core.types import DoubleArray, FloatArray
from treelabel.models import Model

SETTINGS: dict[str, dict[str, Any]] = {
    "linear": {},
    "svm": {},
    "bag": {"epochs": 3},
    "memory": {},
    "lexical": {},
    "extreme": {},
    "prototype": {"encoder": "hashed_words"},
}
# By number of threads, how many fits in one process.
FITS = {1: 2, 2: 1, 3: 1, 8: 1}


@cache
def word_vector(word: str) -> DoubleArray:
    """Draw the vector of a word."""
    return np.random.default_rng(list(word.encode())).standard_normal(48)


class HashedWords:
    """An encoder whose vectors are sums of one random vector per word."""

    name = fingerprint = "hashed_words"

    def transform(self, texts: Sequence[str]) -> FloatArray:
        """Return vectors of length 1."""
        found = np.array([np.sum([word_vector(word) for word in ["the", *text.split()]], axis=0) for text in texts])
        rows: FloatArray = (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)
        return rows


def sample(several: bool) -> Dataset:
    """Return documents of the sample, with one path each or with two."""
    data = load_sample()
    some = data[np.arange(0, 8_700, 13)]
    if not several:
        return some
    other = data[np.arange(1, 8_701, 13)]
    labels = [[*one, *two] for one, two in zip(some.paths(), other.paths(), strict=True)]
    texts = [f"{one} {two}" for one, two in zip(some.texts, other.texts, strict=True)]
    return Dataset.of(texts, labels, data.hierarchy)


def digests(model: Model, data: Dataset) -> dict[str, str]:
    """Return a digest of all that a model has learned, found out and says."""
    _, arrays = model._state()
    parts = {name: np.ascontiguousarray(value).tobytes() for name, value in arrays.items()}
    parts["evidence"] = json.dumps(asdict(model.evidence_)).encode()
    parts["rule"] = model.default_rule.encode()
    parts["scores"] = model.score(list(data.texts[:100])).dense().tobytes()
    return {name: hashlib.sha256(part).hexdigest()[:12] for name, part in parts.items()}


def fits(name: str, data: Dataset, count: int) -> list[dict[str, str]]:
    """Fit a model some times, with other things in memory."""
    results, others = [], []
    for number in range(count):
        settings = {**SETTINGS[name], "encoder": HashedWords()} if "encoder" in SETTINGS[name] else SETTINGS[name]
        results.append(digests(make_model(name, **settings).fit(data, progress=False), data))
        others.append(np.full(1_001 + 37 * number, float(number)))
    return results


@pytest.fixture(scope="module")
def digests_of() -> dict[int, list[dict[str, list[dict[str, str]]]]]:
    """Fit all models in one process for each number of threads: to documents with one path, and to those with two."""
    found = {}
    for threads, count in FITS.items():
        names = ("TREELABEL_THREADS", "OPENBLAS_NUM_THREADS", "PYTHONHASHSEED")
        command = [sys.executable, "-m", "tests.models.test_same_bits", str(count)]
        surroundings = os.environ | dict.fromkeys(names, str(threads))
        ran = subprocess.run(command, env=surroundings, capture_output=True, text=True, check=True)
        found[threads] = json.loads(ran.stdout)
    return found


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.slow
def test_fits_are_equal_in_one_process_and_with_any_number_of_threads(
    several: bool, digests_of: dict[int, list[dict[str, list[dict[str, str]]]]]
) -> None:
    for threads, found in digests_of.items():
        for name, listed in found[several].items():
            assert len(listed) == FITS[threads]
            for other in listed:
                assert other == digests_of[1][several][name][0], (threads, name)


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.slow
def test_fits_to_few_documents_are_equal_with_one_thread_and_with_three(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, found = sample(several=False)[:300], []
    for threads in ("1", "3"):
        monkeypatch.setenv("TREELABEL_THREADS", threads)
        found += fits(name, data, 1)
    assert found[0] == found[1]


if __name__ == "__main__":
    samples = [sample(several) for several in (False, True)]
    json.dump([{name: fits(name, data, int(sys.argv[1])) for name in SETTINGS} for data in samples], sys.stdout)
