"""Write a report: one HTML file, and its figures as files."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from treelabel.core.atomic_output import atomic_file, atomic_group
from treelabel.core.errors import require_extra
from treelabel.data.dataset import Dataset
from treelabel.rules.decisions import TunedRule


def require_packages() -> None:
    """Refuse to go on where the packages that reports need are not installed."""
    with require_extra("report", "a report"):
        import jinja2  # noqa: F401
        import matplotlib as mpl  # noqa: F401


def write_report(
    path: str | Path,
    truth: Dataset,
    systems: Mapping[str, Any],
    *,
    train: Dataset | None = None,
    rule: str | TunedRule | None = None,
    texts: bool = True,
    title: str | None = None,
    note: str | None = None,
    figures: str | Path | None = None,
    seed: int = 0,
    data: str = "",
) -> None:
    """Write how good systems are and where they go wrong to one HTML file, which needs no network and no other file.

    Parameters
    ----------
    path : str or Path
        The file to write; it appears whole or not at all.
    truth : Dataset
        Documents with their true labels.
    systems : mapping of str to Scores or decisions
        By name, in the forms that `evaluate` takes, matched by id. Several are compared with the first.
    train : Dataset, optional
        Where the frequencies of labels come from; by default the truth.
    rule : str, Tuned or None
        What decides for scores; None is the rule by which a model predicts that learned from labels like those of the
        truth.
    texts : bool
        Whether the texts of documents may stand in the report.
    title : str, optional
        What to call it.
    note : str, optional
        What a reader must know first.
    figures : str or Path, optional
        A folder to write every figure to, as SVG, PNG and PDF.
    seed : int
        Seed of the bootstrap.
    data : str
        What the documents are called, such as the name of their file.
    """
    require_packages()
    from treelabel.report.content import make_content
    from treelabel.report.figures import drawings
    from treelabel.report.html import render
    from treelabel.report.pictures import write_figures

    content = make_content(truth, systems, train, rule, texts, title, note, seed=seed, data=data)
    drawn = drawings(content)
    page = render(content, drawn)
    with atomic_group():
        if figures is not None:
            write_figures(Path(figures), drawn)
        with atomic_file(path) as working:
            working.write_text(page, encoding="utf-8", errors="replace", newline="\n")
