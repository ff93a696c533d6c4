"""Score files that are written in batches are those that are written at once."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from treelabel import Hierarchy, Scores
from treelabel.scores.score_writer import finish_scores, score_batch, score_schema

TREE = Hierarchy.from_paths(["A > B", "A > C", "D"])
VALUES = np.random.default_rng(0).random((23, 4)).astype(np.float32)
IDS = tuple(f'id "{row}" é' for row in range(23))


def written(scores: Scores, size: int, target: Path) -> None:
    schema = score_schema(TREE, scores.values)
    with target.with_suffix(".spool").open("wb") as stream:
        stream.write(schema.serialize())
        for low in range(0, len(scores), size):
            part = scores[low : low + size]
            stream.write(score_batch(part.values, pa.array(part.ids), schema).serialize())
    finish_scores(target.with_suffix(".spool"), target, TREE)


@pytest.mark.parametrize("ending", ["npz", "parquet"])
@pytest.mark.parametrize("form", ["dense", "top"])
@pytest.mark.parametrize("size", [1, 5, 100])
def test_batches_make_the_same_scores(tmp_path: Path, ending: str, form: str, size: int) -> None:
    scores = Scores(TREE, VALUES, IDS)
    scores = scores if form == "dense" else scores.top_k(2)
    written(scores, size, tmp_path / f"a.{ending}")
    found = Scores.load(tmp_path / f"a.{ending}", TREE)
    assert found.ids == IDS
    assert found.is_sparse == scores.is_sparse
    assert (found.dense() == scores.dense()).all()
    if ending == "npz" and form == "dense":
        scores.save(tmp_path / "b.npz")
        assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def test_later_batches_take_the_form_of_the_first(tmp_path: Path) -> None:
    dense = Scores(TREE, VALUES[:2])
    for first, later in ((dense, dense.top_k(4)), (dense.top_k(4), dense)):
        schema = score_schema(TREE, first.values)
        batch: Any = score_batch(later.values, pa.array(["a", "b"]), schema)
        assert batch.schema.equals(schema)


def test_no_documents_make_an_empty_file(tmp_path: Path) -> None:
    written(Scores(TREE, VALUES[:0], ()), 5, tmp_path / "a.npz")
    assert len(Scores.load(tmp_path / "a.npz")) == 0
