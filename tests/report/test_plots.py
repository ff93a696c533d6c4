"""Plots of objects: what is drawn is what was counted, names do no harm, and a missing matplotlib is one sentence."""

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from matplotlib.figure import Figure

from tests.report.examples import DAG, SCRIPT, TREE, dataset, random_case
from tests.strategies import Drawn, hierarchies
from treelabel import Dataset, Hierarchy, evaluate, make_model
from treelabel.core.errors import TreelabelError
from treelabel.models.base import Model
from treelabel.report.figures import icicle
from treelabel.report.figures.icicle import place_boxes

PNG = b"\x89PNG\r\n"


def texts_of(figure: Figure) -> list[str]:
    """Return everything that is written in a figure."""
    found: list[Any] = figure.findobj(lambda each: hasattr(each, "get_text"))
    return [each.get_text() for each in found if each.get_text()]


@pytest.fixture(scope="module")
def data() -> Dataset:
    """Documents of which each label has words of its own."""
    rows = [["F"], ["G"], ["D"], ["E"]] * 15
    return Dataset.of([f"{name * 3} {row}" for row, [name] in enumerate(rows)], rows, TREE)


@pytest.fixture(scope="module")
def model(data: Dataset) -> Model:
    """A model that held documents out."""
    return make_model("linear").fit(data)


# Results


def test_a_result_draws_its_metrics_with_intervals_and_macro_f1_by_depth() -> None:
    truth, scores, _ = random_case(TREE, 1)
    result = evaluate(truth, scores=scores, rule="best_leaf", metrics=["hf1", "macro_f1", "shortest_path"])
    figure = result.plot()
    assert isinstance(figure, Figure)
    metrics, depths = figure.axes
    assert [label.get_text() for label in metrics.get_yticklabels()] == ["hf1", "macro_f1"]
    assert metrics.lines[0].get_xdata() == pytest.approx([result["hf1"], result["macro_f1"]])
    ends = result.interval("hf1")
    lines: Any = metrics.collections[0]
    assert lines.get_segments()[0][:, 0] == pytest.approx([ends.low, ends.high])
    assert depths.lines[0].get_ydata() == pytest.approx(result.levels.column("macro_f1").to_pylist())
    assert result.headline in texts_of(figure)
    assert f"Not drawn: shortest_path {result['shortest_path']:.4f}" in texts_of(figure)


def test_a_result_without_documents_draws_values_alone() -> None:
    truth, scores, _ = random_case(TREE, 1)
    result = evaluate(truth, scores=scores, rule="best_leaf", metrics=["hf1", "macro_f1"], keep_documents=False)
    metrics, depths = result.plot().axes
    low, high = metrics.collections[0].get_segments()[0][:, 0]
    assert low == high == result["hf1"]
    assert depths.lines[0].get_ydata() == pytest.approx(result.levels.column("macro_f1").to_pylist())


def test_a_result_that_counts_no_labels_has_no_depths() -> None:
    truth, scores, _ = random_case(TREE, 1)
    figure = evaluate(truth, scores=scores, rule="best_leaf", metrics=["hf1_auc", "subset_accuracy"]).plot()
    assert len(figure.axes) == 1
    [title] = figure.texts
    assert len(title.get_text()) > 60, "too short to be cut"
    assert 0 < title.get_window_extent().x0 < title.get_window_extent().x1 < figure.bbox.x1


@pytest.mark.slow
def test_notebooks_get_a_picture_without_pyplot() -> None:
    code = (
        "import sys, treelabel as tl\n"
        "figure = tl.Hierarchy.flat(['A']).plot()\n"
        "assert figure._repr_png_().startswith(b'\\x89PNG')\n"
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# Calibration


def test_held_out_documents_are_drawn_by_what_the_profile_keeps(model: Model) -> None:
    (axes,) = model.plot_calibration().axes
    profile = model.profile_
    some = profile.confidences > 0
    assert axes.get_title().startswith(f"Held out: {int(some.sum())} documents,\ncalibration error ")
    which = np.minimum((profile.confidences * 15).astype(int), 14)
    groups = [profile.correct[some & (which == group)] for group in range(15)]
    expected = [group.mean() for group in groups if len(group) >= 5]
    assert axes.lines[1].get_ydata() == pytest.approx(expected)


def test_documents_are_drawn_by_leaves_and_by_level(data: Dataset, model: Model) -> None:
    panels = model.plot_calibration(data).axes
    assert [axes.get_title().partition(":")[0] for axes in panels[:4]] == ["Leaves", "Depth 1", "Depth 2", "Depth 3"]
    error = evaluate(data, scores=model.score(data), metrics=["ece"])["ece"]
    assert panels[0].get_title() == f"Leaves: 60 documents,\ncalibration error {error:.3f}"
    same = model.plot_calibration(list(data.texts), data.names()).axes
    assert [axes.get_title() for axes in same] == [axes.get_title() for axes in panels]


def test_calibration_without_documents_says_what_to_do(model: Model) -> None:
    with pytest.raises(TreelabelError, match=r"no held-out documents to draw.*; pass texts and labels"):
        make_model("linear").plot_calibration()
    with pytest.raises(TreelabelError, match="texts without labels cannot be judged; pass labels="):
        model.plot_calibration(["FFF"])


# Hierarchies


@given(hierarchies())
def test_boxes_stand_under_their_parents_and_beside_each_other(drawn: Drawn) -> None:
    h = drawn.fast
    boxes = place_boxes(h)
    ends = boxes.left + boxes.width
    for node in range(len(h)):
        parents = [above for above in h.parents_of(node) if above >= 0]
        under = [
            above
            for above in parents
            if boxes.row[node] == boxes.row[above] + 1
            and boxes.left[above] <= boxes.left[node] + 1e-9
            and ends[node] <= ends[above] + 1e-9
        ]
        assert under or not parents
    for row in range(int(boxes.row.max(initial=-1)) + 1):
        inside = np.flatnonzero(boxes.row == row)
        order = inside[np.argsort(boxes.left[inside])]
        assert np.all(ends[order][:-1] <= boxes.left[order][1:] + 1e-9)
    if len(h):
        assert boxes.width[boxes.row == 0].sum() == pytest.approx(1)


def test_a_hierarchy_draws_boxes_as_wide_as_leaves_or_documents() -> None:
    figure = TREE.plot()
    (axes,) = figure.axes
    assert [box.get_width() for box in axes.patches] == pytest.approx([0.75, 0.25, 0.5, 0.25, 0.25, 0.25, 0.25])
    assert {"A", "B", "C", "7 labels, as wide as the leaves under them"} <= set(texts_of(figure))
    rows = [["F"]] * 8 + [["E"]] * 2
    (axes,) = TREE.plot(dataset(TREE, rows)).axes
    assert [box.get_width() for box in axes.patches] == pytest.approx([0.8, 0.2, 0.8, 0.2, 0.8])
    assert "2 are too narrow or too deep to be drawn" in axes.get_xlabel()


def test_a_large_hierarchy_is_capped_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(icicle, "MOST_BOXES", 3)
    monkeypatch.setattr(icicle, "MOST_LEVELS", 2)
    (axes,) = TREE.plot().axes
    assert len(axes.patches) == 3
    assert "4 are too narrow or too deep to be drawn" in axes.get_xlabel()
    assert [label.get_text() for label in axes.get_yticklabels()] == ["1", "2"]


def test_names_are_written_as_they_are_and_a_dag_says_what_it_leaves_out() -> None:
    names = [SCRIPT, "$\\frac{1}{2}$", "_x", "\u202eabc"]
    figure = Hierarchy.flat(names).plot()
    assert {SCRIPT, "$\\frac{1}{2}$", "_x", "\\u202eabc"} <= set(texts_of(figure))
    assert figure._repr_png_().startswith(PNG)
    assert "a label with several parents stands under one of them" in DAG.plot().axes[0].get_xlabel()


def test_wrong_frequencies_and_empty_hierarchies_are_refused() -> None:
    with pytest.raises(TreelabelError, match=r"frequencies of shape \(2,\), expected a count for each of 7 labels"):
        TREE.plot([1, 2])
    with pytest.raises(TreelabelError, match="the hierarchy has no labels to draw"):
        Hierarchy.flat([]).plot()


# Packages


@pytest.mark.slow
def test_without_matplotlib_the_error_names_the_extra() -> None:
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "import treelabel as tl\n"
        "try: tl.Hierarchy.flat(['A']).plot()\n"
        "except tl.TreelabelError as error: print(error)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout == 'a plot of a hierarchy needs matplotlib: pip install "treelabel[report]"\n'


def test_importing_the_package_stays_light() -> None:
    heavy = ["matplotlib", "sklearn", "numba", "scipy", "numpy", "pyarrow", "torch", "pandas", "IPython"]
    code = f"import sys, treelabel; print([name for name in {heavy} if name in sys.modules])"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout == "[]\n"
