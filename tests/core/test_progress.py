"""The progress bar: rich on a terminal, one bar in a notebook that goes away, and nothing where nobody looks."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from treelabel.core import progress
from treelabel.core.progress import QUIET, progress_bar


class Kernel:
    """Stands for IPython in a kernel: remembers what was shown in each output of a cell."""

    def __init__(self) -> None:
        self.outputs: list[list[dict[str, str]]] = []

    def get_ipython(self) -> Any:
        """Return a shell that has a kernel."""
        return SimpleNamespace(kernel=self)

    def display(self, content: dict[str, str], raw: bool, display_id: bool) -> Any:
        """Show something in a new output, which can be updated."""
        assert raw
        assert display_id
        output = [content]
        self.outputs.append(output)
        return SimpleNamespace(update=lambda content, raw: output.append(content))


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    """Run as if in the kernel of a notebook, where each change is shown."""
    made = Kernel()
    monkeypatch.setitem(sys.modules, "IPython", made)
    monkeypatch.setitem(sys.modules, "IPython.display", made)
    monkeypatch.setattr(progress, "PAUSE", 0.0)
    monkeypatch.delenv(QUIET, raising=False)
    return made


def test_a_notebook_shows_one_bar_that_goes_away(kernel: Kernel, capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar("learning <b>", 4) as done:
        done(1)
        done(9, "loss 0.25")
    (output,) = kernel.outputs
    assert [each["text/plain"] for each in output] == [
        "learning <b> 0%",
        "learning <b> 25%",
        "learning <b> 100% loss 0.25",
        "",
    ]
    assert output[1]["text/html"] == '<progress value="0.2500"></progress> learning &lt;b&gt; 25%'
    assert output[-1]["text/html"] == ""
    assert capsys.readouterr() == ("", "")


def test_the_bar_goes_away_after_an_error(kernel: Kernel) -> None:
    def learn() -> None:
        with progress_bar("learning", None) as done:
            done(1_000)
            raise KeyError

    with pytest.raises(KeyError):
        learn()
    assert [each["text/plain"] for each in kernel.outputs[0]] == ["learning 0", "learning 1,000", ""]
    assert "value" not in kernel.outputs[0][1]["text/html"]


def test_changes_come_with_pauses(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PAUSE", 1e9)
    with progress_bar("learning", 100) as done:
        for step in range(100):
            done(step)
    assert len(kernel.outputs[0]) == 2


def test_quiet_hides_it_unless_it_is_asked_for(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(QUIET, "1")
    with progress_bar("learning", 2) as done:
        done(1)
    with progress_bar("learning", 2, show=False) as done:
        done(1)
    assert not kernel.outputs
    with progress_bar("learning", 2, show=True) as done:
        done(1)
    assert len(kernel.outputs) == 1


def test_ipython_on_a_terminal_is_no_notebook(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "get_ipython", lambda: SimpleNamespace())
    with progress_bar("learning", 2) as done:
        done(1)
    monkeypatch.setattr(kernel, "get_ipython", lambda: None)
    with progress_bar("learning", 2) as done:
        done(1)
    assert not kernel.outputs
