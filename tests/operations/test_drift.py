"""Drift: planted drifts are found, chance and held-out texts are none, and what is not remembered is not compared."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.helpers import Run
from tests.models.test_profile import TREE, documents, fitted
from treelabel import Dataset, Hierarchy, Scores, TreelabelError, write
from treelabel.models.base import Model
from treelabel.models.profile import Profile
from treelabel.operations.drift import DriftMeter


@pytest.fixture(scope="module")
def model() -> Model:
    return fitted()


@pytest.fixture(scope="module")
def folder(model: Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder with a model, and texts like its own, of other labels, and garbled."""
    made = tmp_path_factory.mktemp("drift")
    model.save(made / "model")
    own = documents(300, 11)
    write(own, made / "own.csv", taxonomy=False)
    write(documents(12, 12), made / "few.csv", taxonomy=False)
    write(documents(300, 13, ["dog", "cat"]), made / "pets.csv", taxonomy=False)
    garbled = Dataset.of([text[::-1] for text in own.texts], own.names(), TREE)
    write(garbled, made / "garbled.csv", taxonomy=False)
    return made


@pytest.mark.parametrize("name", ["own", "few"])
def test_texts_like_those_of_training_have_not_drifted(folder: Path, run: Run, name: str) -> None:
    ended = run("drift", folder / "model", folder / f"{name}.csv")
    assert ended.code == 0, ended.out
    assert "beyond the limit of 0.1: nothing" in ended.out


def test_rare_labels_and_deep_levels_vary_by_chance() -> None:
    """Draw batches like the reference, at a limit of 0: most of 200 labels are absent, and few texts are deep."""
    rng = np.random.default_rng(0)
    paths = [f"{top} > {top}{leaf}" for top in "abcdefghij" for leaf in range(20)]
    h = Hierarchy.from_paths([*paths, *"klm"])
    share = rng.dirichlet(np.full(len(h.leaves), 0.3))

    def drawn(size: int) -> Scores:
        leaf = rng.choice(len(h.leaves), size, p=share)
        values = 0.4 * share + 0.6 * (leaf[:, None] == np.arange(len(h.leaves)))
        return Scores.from_leaves(h, h.leaves, values)

    held = drawn(2000)
    reference = Profile(
        2000, (0.6, 0.05, 2000), frequencies=np.zeros(len(h), np.int64), shares=held.dense().mean(axis=0)
    )
    alarms = 0
    for seed in range(40):
        meter = DriftMeter(h, reference, seed)
        meter.add(drawn(200))
        alarms += any(each.is_beyond for each in meter.result(0.0).measures if each.name.startswith("label"))
    assert alarms <= 6


def test_more_confidence_is_no_drift() -> None:
    h = Hierarchy.flat(["a", "b"])
    reference = Profile(100, (0.75, 0.1, 100), frequencies=np.array([50, 50]))
    for sure, is_beyond in ((0.95, False), (0.55, True)):
        meter = DriftMeter(h, reference)
        meter.add(Scores(h, [[sure, 1 - sure], [1 - sure, sure]] * 200))
        found = next(each for each in meter.result(0.1).measures if each.name == "confidence")
        assert found.change is not None
        assert (round(found.change.value, 3), found.is_beyond) == (round(sure - 0.75, 3), is_beyond)


def test_texts_of_other_labels_have_drifted(folder: Path, run: Run) -> None:
    ended = run("drift", folder / "model", folder / "pets.csv", "--json")
    assert ended.code == 3
    found = json.loads(ended.out)
    assert found["drift"] is True
    beyond = {each["name"]: each for each in found["measures"] if each["is_beyond"]}
    assert {"label shares, level 1", "label shares, level 2"} <= beyond.keys()
    first = beyond["label shares, level 1"]
    assert 0.2 < first["interval"][0] <= first["change"] <= first["interval"][1] <= 1
    assert 0 < first["divergence"] < 1
    assert {shift["label"] for shift in found["shifts"][:2]} == {"pet", "car"}
    assert run("drift", folder / "model", folder / "pets.csv", "--limit", "0.9").code == 0


def test_garbled_words_have_drifted(folder: Path, run: Run) -> None:
    ended = run("drift", folder / "model", folder / "garbled.csv", "--json")
    assert ended.code == 3
    found = {each["name"]: each for each in json.loads(ended.out)["measures"]}
    assert found["unknown words"]["now"] > 0.9
    assert found["unknown words"]["is_beyond"]
    assert found["confidence"]["is_beyond"]
    assert found["confidence"]["change"] < -0.1


def test_the_table_says_what_cannot_be_compared(folder: Path, tmp_path: Path, run: Run) -> None:
    fitted("nothing").save(tmp_path / "nothing")
    ended = run("drift", tmp_path / "nothing", folder / "own.csv")
    assert ended.code == 2
    assert "remembers nothing of its training" in ended.err
    fitted("most_frequent").save(tmp_path / "plain")
    plain = run("drift", tmp_path / "plain", folder / "pets.csv")
    assert plain.code == 0
    assert "not compared: the model has no vocabulary" in plain.out
    assert "not compared: the model remembers nothing of it" in plain.out
    assert "--taxonomy cannot be given" in run("drift", folder / "model", folder / "own.csv", "--taxonomy", folder).err


def test_intervals_of_label_shares_cover_no_change_that_chance_makes() -> None:
    h = Hierarchy.flat([f"L{at}" for at in range(20)])
    shares = np.random.default_rng(0).dirichlet(np.ones(20))
    profile = Profile(1000, frequencies=np.round(shares * 1000).astype(np.int64))
    covered = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        meter = DriftMeter(h, profile, seed)
        for size in (10, 30):
            meter.add(Scores(h, np.eye(20, dtype=np.float32)[rng.choice(20, size, p=shares)]))
        (change,) = [each.change for each in meter.result().measures if each.name.startswith("label") and each.change]
        covered += change.low <= 0.01
    assert covered >= 54


def test_batches_make_no_difference_to_values(model: Model) -> None:
    data = documents(50, 14)
    whole, parts = DriftMeter(TREE, model.profile_), DriftMeter(TREE, model.profile_)
    whole.add(model.score(data), model.unknown_words(data))
    for start in range(0, 50, 7):
        parts.add(model.score(data[start : start + 7]), model.unknown_words(data[start : start + 7]))
    for one, two in zip(whole.result().measures, parts.result().measures, strict=True):
        assert one.change is not None
        assert two.change is not None
        assert one.change.value == pytest.approx(two.change.value, abs=1e-5)


def test_sparse_scores_are_measured_like_dense_ones(model: Model) -> None:
    data = documents(50, 15)
    scores = model.score(data)
    one, two = DriftMeter(TREE, model.profile_), DriftMeter(TREE, model.profile_)
    one.add(scores)
    two.add(scores.top_k(6))
    changes = [[each.change and each.change.value for each in meter.result().measures] for meter in (one, two)]
    assert changes[0] == pytest.approx(changes[1], abs=1e-5)


def test_no_texts_are_an_error() -> None:
    with pytest.raises(TreelabelError, match="there are no texts"):
        DriftMeter(TREE, Profile(1)).result()


@pytest.mark.parametrize("rows", ["woof\n", "woof\nwoof\n"])
def test_one_or_two_texts_are_no_drift(folder: Path, tmp_path: Path, run: Run, rows: str) -> None:
    text = str(documents(1, 14).texts[0])
    (tmp_path / "few.csv").write_text("text\n" + rows.replace("woof", text))
    ended = run("drift", folder / "model", tmp_path / "few.csv")
    assert ended.code == 0, ended.out


def test_blank_texts_are_left_out(folder: Path, tmp_path: Path, run: Run) -> None:
    own = (folder / "own.csv").read_text()
    header = own.splitlines()[0]
    blank = "".join(f"b{row}" + "," * header.count(",") + "\n" for row in range(200))
    (tmp_path / "with.csv").write_text(own + blank)
    first, second = (run("drift", folder / "model", path) for path in (folder / "own.csv", tmp_path / "with.csv"))
    assert (first.code, first.out) == (second.code, second.out)
    (tmp_path / "blank.csv").write_text(f"{header}\n{blank}")
    assert "there are no texts to look at" in run("drift", folder / "model", tmp_path / "blank.csv").err
