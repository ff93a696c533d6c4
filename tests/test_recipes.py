"""The recipes of CONTRIBUTING.md run as they stand."""

import doctest
import re
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from tests.helpers import Run, registered
from treelabel import LOSSES, METRICS, MODELS, RULES, Hierarchy, Scores, decide, evaluate, load_model, make_model, read
from treelabel.core.errors import TreelabelError
from treelabel.core.types import FloatArray
from treelabel.data.io.format import Format
from treelabel.data.io.registry import FORMATS
from treelabel.metrics.registry import _rows
from treelabel.models.check import CASES
from treelabel.neural.losses import registry as loss_registry
from treelabel.neural.losses.base import make_loss

PAGE = Path(__file__).resolve().parents[1] / "CONTRIBUTING.md"


def code_blocks(title: str) -> list[str]:
    """The Python blocks of one recipe."""
    (section,) = re.findall(rf"^### {title}\n(.*?)(?=^##)", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return re.findall(r"```python\n(.*?)```", section, re.DOTALL)


class WordCounts:
    """An encoder whose vectors count words, by hash."""

    name = fingerprint = "word_counts"

    def transform(self, texts: Sequence[str]) -> FloatArray:
        rows: FloatArray = np.zeros((len(texts), 64), np.float32)
        for row, text in enumerate(texts):
            for word in text.split():
                rows[row, sum(word.encode()) % 64] += 1
        return rows


# A loss


@pytest.fixture
def squared_error(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The loss of the recipe: its module, and its row for the duration of a test."""
    definition, row = code_blocks("A loss")
    path = definition.splitlines()[0].removeprefix("# ").removesuffix(".py").replace("/", ".")
    module = ModuleType(f"treelabel.{path}")
    exec(definition, module.__dict__)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    with LOSSES.adding(eval(row, vars(loss_registry))):
        yield


@pytest.mark.usefixtures("squared_error")
def test_the_gradient_of_the_loss_is_what_differences_say() -> None:
    loss = make_loss("squared_error", Hierarchy.from_paths(["A > B", "A > C", "D"]))
    truth = loss.prepare([[0, 0, 1, 0], [0, 0, 0, 0]]).batch(np.arange(2))
    logits = torch.from_numpy(np.random.default_rng(0).normal(size=(2, 4))).requires_grad_()
    p = torch.sigmoid(logits.detach())
    y = torch.tensor([[1.0, 0.0, 1.0, 0.0], [0.0] * 4])
    assert loss(logits, truth).tolist() == pytest.approx(((p - y) ** 2).sum(1).tolist())
    (gradient,) = torch.autograd.grad(loss(logits, truth).sum(), logits)
    step = 1e-6
    for output in range(4):
        moved = torch.zeros(4, dtype=torch.float64)
        moved[output] = step
        with torch.no_grad():
            difference = (loss(logits + moved, truth) - loss(logits - moved, truth)) / (2 * step)
        assert gradient[:, output].tolist() == pytest.approx(difference.tolist(), abs=1e-8)
    assert gradient.numpy() == pytest.approx((2 * (p - y) * p * (1 - p)).numpy())


@pytest.mark.usefixtures("squared_error")
@pytest.mark.parametrize("case", ["leaf", "many", "DAG"])
def test_the_loss_trains_the_models_that_take_one(case: str) -> None:
    data = CASES[case]
    settings: dict[str, dict[str, Any]] = {
        "neural": {"encoder": "word_counts", "epochs": 40, "learning_rate": 0.1, "batch_size": 8},
        "bag": {"vector_size": 20},
    }
    with registered("word_counts", WordCounts):
        for name, values in settings.items():
            model = make_model(name, loss="squared_error", **values)
            model.fit(data.texts, data.labels, hierarchy=data.hierarchy)
            assert model.score(data.texts).is_coherent()
            assert model.score(data.texts, data.labels) >= 0.8, name


# A metric, a rule, a model


def run(block: str, module: str, **more: Any) -> dict[str, Any]:
    """Run a block where its file would define it."""
    names = {**vars(import_module(f"treelabel.{module}")), **more}
    exec(compile(block, str(PAGE), "exec", dont_inherit=True), names)
    return names


def row_of(block: str, module: str, **more: Any) -> Any:
    """Return the registry's row that a block is."""
    return eval(block, {**vars(import_module(f"treelabel.{module}")), **more})


def check_examples(function: Any, names: dict[str, Any]) -> None:
    """Run the docstring's examples."""
    found = doctest.DocTestFinder().find(function, function.__name__, globs=names, module=False)
    assert sum(test.examples != [] for test in found) == 1
    for test in found:
        assert doctest.DocTestRunner().run(test).failed == 0


def test_the_metric_is_what_one_computes_by_hand() -> None:
    function, row = code_blocks("A metric")
    names = run(function, "metrics.overlap")
    check_examples(names["overlap_coefficient"], names)
    (metric,) = _rows("decisions", row_of(row, "metrics.registry", overlap=SimpleNamespace(**names)))
    h = Hierarchy.from_paths(["A > B", "A > C", "D"])
    with METRICS.adding(metric):
        # Shared over the smaller set: {A} of {A, B}; {A} of {A, B} and {A, C}; nothing of {D}.
        result = evaluate([["B"], ["B"], ["D"]], decisions=[["A"], ["C"], ["A"]], hierarchy=h, metrics=[metric.name])
        assert result[metric.name] == pytest.approx((1 + 1 / 2 + 0) / 3)
    assert metric.name not in METRICS


def test_the_rule_decides_what_one_decides_by_hand() -> None:
    function, row = code_blocks("A rule")
    names = run(function, "rules.threshold", Hierarchy=Hierarchy)
    check_examples(names["near_best"], names)
    rule = row_of(row, "rules.registry", threshold=SimpleNamespace(**names))
    h = Hierarchy.from_paths(["A > B", "A > C"])
    with RULES.adding(rule):
        for values in ([[0.8, 0.5, 0.3]], Scores(h, [[0.8, 0.5, 0.3]]).csr()):
            scores = Scores(h, values)
            assert decide(scores, "near_best").names() == [["A", "B"]]
            assert decide(scores, "near_best@0.3").names() == [["A", "B", "C"]]
            assert decide(scores, "near_best@0.9").names() == [["A"]]
    assert rule.name not in RULES


def test_the_model_stands_the_checks_and_is_loaded_while_it_is_registered(tmp_path: Path) -> None:
    model, row, registration = code_blocks("A model")
    names = run(model, "models.baselines")
    lazy = row_of(row, "models.registry")
    assert lazy.location == f"models.baselines:{names['SmoothedShares'].__name__}"
    assert lazy.name == names["SmoothedShares"].name
    exec(compile(registration, str(PAGE), "exec", dont_inherit=True), names)
    assert lazy.name not in MODELS
    h = Hierarchy.from_paths(["A > B", "A > C"])
    fitted = names["SmoothedShares"](h).fit(["x", "y"], [["B"], ["B"]])
    # Leaves are counted once more: 3 and 1 of 4.
    assert fitted.score(["z"]).dense().tolist() == [[1.0, 0.75, 0.25]]
    with MODELS.adding(names["ModelRow"](lazy.name, lazy.help, names["SmoothedShares"])):
        fitted.save(tmp_path / "model")
        assert load_model(tmp_path / "model").predict(["z"]) == [["B"]]


# A format


def test_the_format_of_the_recipe_is_read_and_written(tmp_path: Path, run: Run) -> None:
    definition, row = code_blocks("A file format")
    names: dict[str, Any] = {"Format": Format}
    exec(definition, names)
    with FORMATS.adding(eval(row, names)):
        file = tmp_path / "pets.colon"
        file.write_text("dog: woof and bark\ncat: meow: purr\n")
        data = read(file)
        assert list(data.texts) == ["woof and bark", "meow: purr"]
        assert data.names() == [["dog"], ["cat"]]
        assert run("convert", file, tmp_path / "pets.csv").code == 0
        assert run("convert", tmp_path / "pets.csv", tmp_path / "again.colon").code == 0
        assert (tmp_path / "again.colon").read_text() == file.read_text()
        file.write_text("dog: woof\nmeow\n")
        with pytest.raises(TreelabelError, match=r"pets.colon:2: expected a label, a colon and a text"):
            read(file)
