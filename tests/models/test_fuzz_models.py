"""Files from anywhere: whatever a model folder, a score file or a tuned rule holds, it is refused or it works.

Mutants are made with a fixed seed and get past all checksums (see `tests.fuzz`). One that sent a compiled loop out of
bounds would end the process, so passing is a proof of more than messages.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from tests import fuzz
from tests.helpers import WordVectors, load_model, registered
from treelabel import Scores, TreelabelError, decide
from treelabel.models.check import DAG, TREE
from treelabel.rules import TunedRule

MUTANTS_OF_EACH = 8


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Path]]:
    """Models of every kind, saved."""
    folder = tmp_path_factory.mktemp("models")
    with pytest.MonkeyPatch.context() as patch, registered("words", WordVectors):
        patch.setenv("TREELABEL_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield fuzz.save_models(folder)


def is_refused(use: Callable[[], Any], what: str) -> bool:
    """Whether something is refused, in one sentence; anything else that is raised fails the test by itself."""
    said = ""
    try:
        use()
    except TreelabelError as error:
        said = str(error)
    assert "\n" not in said, what
    assert "do not fit together" not in said, f"{what}: no check has seen it: {said}"
    return said != ""


@pytest.mark.slow
def test_every_model_is_among_them(folders: list[Path]) -> None:
    from treelabel.models import MODELS
    from treelabel.models.linear.heads import HEADS

    loaded = [load_model(folder) for folder in folders]
    assert {model.name for model in loaded} == set(MODELS)
    assert {model.head_.head for model in loaded if model.name == "linear"} == set(HEADS)
    for model in loaded:
        model.predict(fuzz.TEXTS)


@pytest.mark.slow
def test_a_model_folder_is_refused_or_works(folders: list[Path], tmp_path: Path) -> None:
    rng, refused = np.random.default_rng(20), 0
    for source in folders * MUTANTS_OF_EACH:
        what = fuzz.mutate_folder(source, tmp_path / "model", rng)
        refused += is_refused(lambda: load_model(tmp_path / "model").predict(fuzz.TEXTS), what)
    # Not all mutants are wrong: two weights may change places.
    assert 0.5 < refused / (MUTANTS_OF_EACH * len(folders)) < 1


def score_files(folder: Path, ending: str) -> list[Path]:
    """Scores of a tree and of a DAG, dense and sparse, with ids and without."""
    found = []
    for name, hierarchy in (("tree", TREE), ("DAG", DAG)):
        p = np.random.default_rng(0).random((6, len(hierarchy))).astype(np.float32)
        for kind, values, ids in (("dense", p, None), ("sparse", sparse.csr_array(p * (p > 0.5)), tuple("abcdef"))):
            found.append(folder / f"{name} {kind}{ending}")
            Scores(hierarchy, values, ids).save(found[-1])
    return found


@pytest.mark.parametrize(("ending", "mutate"), [(".npz", fuzz.mutate_npz), (".parquet", fuzz.mutate_parquet)])
@pytest.mark.slow
def test_a_score_file_is_refused_or_works(ending: str, mutate: Callable[..., str], tmp_path: Path) -> None:
    rng, refused, target = np.random.default_rng(21), 0, tmp_path / f"mutant{ending}"
    for source in score_files(tmp_path, ending) * 40:
        what = mutate(source, target, rng)
        refused += is_refused(lambda: fuzz.use_scores(Scores.load(target)), what)
    assert 0.5 < refused / 160 < 1


def test_a_tuned_rule_is_refused_or_works(tmp_path: Path) -> None:
    rng, refused, target = np.random.default_rng(22), 0, tmp_path / "rule.json"
    scores = Scores(TREE, rng.random((5, len(TREE)))).coherent()
    frequencies = np.full(len(TREE), 5)
    for rule in list(fuzz.TUNED) * 40:
        what = fuzz.mutate_tuned(rule, TREE.fingerprint, target, rng)
        refused += is_refused(lambda: decide(scores, TunedRule.load(target), frequencies, 10), what)
    assert 0.5 < refused / (40 * len(fuzz.TUNED)) < 1
