"""The notebook in examples/ runs in a real kernel, and shows each object as HTML, each plot as a picture."""

from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat import NotebookNode

NOTEBOOK = Path(__file__).parent.parent / "examples" / "notebook.ipynb"
# nbformat has types for some of its functions only.
read: Any = nbformat.read
# What the last line of a cell is, and how what it shows begins.
HTML = {
    "sample": "Dataset(2,924 documents",
    "sample.hierarchy": "Hierarchy(353 nodes",
    "model": "Linear (fitted)",
    "result": "Result(",
    "tl.compare(": "Comparison of 2 systems",
    "tl.decide(": "Decisions(",
    "model.predict_frame(new)": "<th></th>\n      <th>text</th>\n      <th>label</th>\n      <th>path</th>",
}
PLOTS = ("sample.hierarchy.plot(sample)", "result.plot()", "model.plot_calibration()")


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> NotebookNode:
    """The notebook after it ran in a kernel of its own, with Jupyter's files in a folder of the test."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR"):
            patch.setenv(name, str(tmp_path_factory.mktemp(name)))
        patch.delenv("TREELABEL_QUIET", raising=False)
        client = NotebookClient(read(NOTEBOOK, as_version=4), timeout=300, kernel_name="python3")
        return client.execute()


def shown(notebook: NotebookNode, line: str) -> dict[str, Any]:
    """Return what the cell shows whose last line begins in some way."""
    (cell,) = [
        cell
        for cell in notebook.cells
        if cell.cell_type == "code"
        and cell.source.splitlines()[-1].startswith(line)
        and (line.endswith("(") or cell.source.splitlines()[-1] == line)
    ]
    (output,) = [output for output in cell.outputs if output.output_type == "execute_result"]
    data: dict[str, Any] = output.data
    return data


def test_the_notebook_is_stored_without_outputs() -> None:
    cells = read(NOTEBOOK, as_version=4).cells
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells)


@pytest.mark.slow
def test_every_cell_runs_and_says_nothing_on_standard_error(ran: NotebookNode) -> None:
    outputs = [output for cell in ran.cells for output in cell.get("outputs", [])]
    assert {output.output_type for output in outputs} == {"execute_result", "display_data"}


@pytest.mark.slow
@pytest.mark.parametrize("line", HTML)
def test_an_object_is_shown_as_html(ran: NotebookNode, line: str) -> None:
    data = shown(ran, line)
    assert HTML[line] in data["text/html"]
    assert data["text/plain"]


@pytest.mark.slow
@pytest.mark.parametrize("line", PLOTS)
def test_a_plot_is_shown_as_a_picture(ran: NotebookNode, line: str) -> None:
    assert shown(ran, line)["image/png"].startswith("iVBOR")


@pytest.mark.slow
def test_progress_bars_were_shown_and_went_away(ran: NotebookNode) -> None:
    bars = [output for cell in ran.cells for output in cell.get("outputs", []) if output.output_type == "display_data"]
    assert bars
    assert all(bar.data == {"text/html": "", "text/plain": ""} for bar in bars)
