"""A model as a function of Arrow batches: the answers of `predict`, in any process, whatever the batches are."""

import pickle
from pathlib import Path

import pyarrow as pa
import pytest

from tests.models.test_models import SETS
from treelabel import TreelabelError, make_model
from treelabel.models import streaming
from treelabel.operations.batch_scorer import BatchScorer, Form

TEXTS = [*SETS["leaf"].texts, "", "the cat meows"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("scorer") / "model"
    make_model("linear").fit(SETS["leaf"]).save(path)
    return path


def documents() -> pa.Table:
    return pa.table({"id": [f"d{row}" for row in range(len(TEXTS))], "text": TEXTS, "n": range(len(TEXTS))})


def test_answers_are_those_of_predict_and_batches_make_no_difference(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scorer = BatchScorer(folder)
    predicted = scorer(documents())
    names = [row[0] if row else None for row in scorer.model.predict(TEXTS, scorer.rule, paths=False)]
    assert predicted["predicted"].to_pylist() == names
    assert predicted["id"].to_pylist() == documents()["id"].to_pylist()
    assert names[len(TEXTS) - 2] is None
    monkeypatch.setattr(streaming, "MOST_TEXTS", 3)
    assert scorer(documents()) == predicted
    batches = documents().to_batches(max_chunksize=4)
    assert pa.Table.from_batches(scorer.map_batches(batches)) == predicted


def test_a_copy_holds_settings_and_loads_the_model_once(folder: Path) -> None:
    scorer = BatchScorer(folder, "threshold@0.3", unknown=0.1, form=Form(keep_columns=True, alternatives=1))
    whole = scorer(documents())
    assert whole.column_names[:3] == ["id", "text", "n"]
    packed = pickle.dumps(scorer)
    assert len(packed) < 2_000
    one, two = pickle.loads(packed), pickle.loads(packed)
    assert one(documents()) == whole
    assert one.model is two.model


def test_columns_are_known_before_there_are_rows(folder: Path) -> None:
    scorer = BatchScorer(folder)
    batch = documents().to_batches()[0]
    assert scorer.schema(batch.schema) == scorer(batch).schema
    assert isinstance(scorer(batch), pa.RecordBatch)
    assert len(scorer(batch.slice(0, 0))) == 0
    assert scorer(documents().drop_columns(["id"])).column_names[0] == "predicted"


@pytest.mark.parametrize(
    ("rule", "data", "expected"),
    [
        ("optimal:macro_f1", documents(), "decides on all documents together"),
        (None, {"text": ["a"]}, "batch_format='pyarrow'"),
        (None, pa.table({"price": [1.5]}), "price"),
    ],
)
def test_what_cannot_be_answered_is_refused(folder: Path, rule: str | None, data: object, expected: str) -> None:
    with pytest.raises(TreelabelError, match=expected):
        BatchScorer(folder, rule)(data)


def test_a_model_in_memory_stays_in_its_process(folder: Path) -> None:
    with pytest.raises(TreelabelError, match="save it"):
        pickle.dumps(BatchScorer(BatchScorer(folder).model))
    with pytest.raises(TreelabelError, match="have no URIs"):
        BatchScorer(folder, form=Form(uris=True))(documents())
