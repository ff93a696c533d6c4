"""Shards that are judged apart and merged: the bits of one pass, whoever judges what, and in whatever order."""

import itertools
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from tests.helpers import Run, put
from tests.models.test_models import SETS
from treelabel import Hierarchy, Scores, TreelabelError, make_model
from treelabel.evaluation.alignment import Answered
from treelabel.evaluation.judging_state import load_state, save_state
from treelabel.evaluation.streaming import Judging, Predicted, Question, Survey
from treelabel.hierarchy.label_matrices import as_labels
from treelabel.rules.decisions import decide

TEXTS, LABELS = list(SETS["leaf"].texts), SETS["leaf"].labels
METRICS = "hf1,micro_f1,macro_f1,info_hf1,log_loss,precision@2,hf1_auc"
COUNT = 4


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a model and test files, one of which has a label that the model does not know."""
    folder = tmp_path_factory.mktemp("judged")
    data = SETS["leaf"]
    make_model("linear").fit(data).save(folder / "model")
    paths = data.hierarchy.paths([row[0] for row in np.split(LABELS.indices, LABELS.indptr[1:-1])])
    new = f"{paths[0]} > never seen"
    (folder / "in").mkdir()
    for number in range(COUNT):
        texts, labels = TEXTS[number::COUNT], paths[number::COUNT]
        if number == 2:
            labels[3] = new
        groups = [f"g{row % 7}" for row in range(len(texts))]
        ids = [f"{number}-{row}" for row in range(len(texts))]
        rows = pa.table({"id": ids, "text": texts, "labels": labels, "who": groups})
        pq.write_table(rows, folder / "in" / f"t{number}.parquet")
    return folder


def arguments(home: Path) -> list[Any]:
    options = ["--metrics", METRICS, "--intervals", "--by-label", "--group", "who", "--sep", " > ", "--json"]
    return ["evaluate", home / "model", home / "in" / "*.parquet", *options]


def test_shares_merge_to_the_bits_of_one_pass(home: Path, tmp_path: Path, run: Run) -> None:
    one = run(*arguments(home))
    assert one.code == 0, one.err
    assert "never seen" in one.out
    for share in ("2/3", "3/3"):
        ended = run(*arguments(home), "--shard", share, "-o", tmp_path / "out")
        assert (ended.code, ended.out) == (0, ""), ended.err
        assert "judged by other shares" in ended.err
    last = run(*arguments(home), "--shard", "1/3", "-o", tmp_path / "out")
    assert last.code == 0, last.err
    assert json.loads(last.out) == json.loads(one.out)
    again = run(*arguments(home), "--shard", "1/1", "-o", tmp_path / "out")
    assert again.out == last.out


def test_what_was_judged_otherwise_is_refused(home: Path, tmp_path: Path, run: Run) -> None:
    assert run(*arguments(home), "--shard", "1/1", "-o", tmp_path / "out").code == 0
    ended = run(*arguments(home), "--shard", "1/1", "-o", tmp_path / "out", "--rule", "threshold@0.3")
    assert ended.code == 2
    assert "was made with another rule" in ended.err
    for wrong in (["--train", home / "in" / "t0.parquet"], ["--errors", tmp_path / "e.csv"]):
        ended = run(*arguments(home), "--shard", "1/1", "-o", tmp_path / "out", *wrong)
        assert "without --train and --errors" in ended.err
    ended = run(*arguments(home), "--shard", "1/1", "-o", tmp_path / "o", "--rule", "optimal:macro_f1")
    assert "decides on all documents together" in ended.err


def test_a_file_that_cannot_be_read_is_reported(home: Path, tmp_path: Path, run: Run) -> None:
    (tmp_path / "in").mkdir()
    put(tmp_path / "in", "a.parquet", (home / "in" / "t0.parquet").read_bytes())
    put(tmp_path / "in", "b.parquet", b"PAR1 but not really")
    command = ["evaluate", home / "model", tmp_path / "in" / "*.parquet", "--shard", "1/1", "-o", tmp_path / "out"]
    ended = run(*command)
    assert ended.code == 2
    assert "b.parquet" in ended.err
    put(tmp_path / "in", "b.parquet", (home / "in" / "t1.parquet").read_bytes())
    assert run(*command).code == 0


H = Hierarchy.from_paths(["A > B", "A > C", "D > E"])


@settings(max_examples=15)
@given(st.lists(st.integers(0, 40), max_size=4), st.integers(0, 1000), st.booleans())
def test_states_stored_and_merged_are_one_pass(cuts: list[int], seed: int, keep: bool) -> None:
    rng = np.random.default_rng(seed)
    truth = as_labels(sparse.csr_array(np.eye(len(H), dtype=bool)[rng.integers(0, len(H), 40)]), len(H), "truth")
    scores = Scores(H, rng.random((40, len(H)))).coherent()
    train = Survey(H)
    train.add(truth[:10])
    question = Question(["hf1", "micro_f1", "info_hf1", "log_loss"], "threshold@0.5", keep, by_label=True)

    def judged(edges: list[int], folder: Path | None) -> Judging:
        parts = []
        for number, (start, stop) in enumerate(itertools.pairwise(edges)):
            part = Judging.begin(question, train.context(), train, None)
            if stop > start:
                some = scores[start:stop]
                decided = Answered(some, decide(some, "threshold@0.5"))
                part.add(Predicted(truth[start:stop]), decided)
            if folder is not None:
                save_state(part, folder / f"{number}.npz")
                part = load_state(Judging.begin(question, train.context(), train, None), folder / f"{number}.npz")
            parts.append(part)
        merged = parts[0]
        for each in parts[1:]:
            merged = merged | each
        return merged

    with tempfile.TemporaryDirectory() as folder:
        several = judged([0, *sorted(cuts), 40], Path(folder)).judged("them")
    one = judged([0, 40], None).judged("it")
    assert several.result.values == one.result.values
    assert several.result.to_json() == one.result.to_json()
    assert several.labels is not None
    assert one.labels is not None
    assert several.labels.rows() == one.labels.rows()
    if keep:
        assert several.result.intervals() == one.result.intervals()


def test_a_damaged_state_is_refused_in_a_sentence(tmp_path: Path) -> None:
    file = put(tmp_path, "s.npz", b"PK no")
    begun = Judging.begin(Question(["hf1"]), Survey(H).context(), None, "best_leaf")
    with pytest.raises(TreelabelError, match=r"s\.npz: not what was found of some documents, or damaged"):
        load_state(begun, file)
