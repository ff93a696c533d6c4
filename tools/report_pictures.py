"""Draw the pictures of a report that the README and the docs show: one and two models of the sample.

    python tools/report_pictures.py            # docs/report-light.png and docs/report-dark.png
    python tools/report_pictures.py --all DIR  # also a phone's width, and a PDF as printed

It needs a browser (Debian: apt install chromium).
"""

import argparse
import itertools
import sys
import tempfile
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tools.browser import Page, Scheme, browser_page

import treelabel as tl

SCHEMES: tuple[Scheme, ...] = ("light", "dark")
DOCS = Path(__file__).resolve().parents[1] / "docs"


def write_reports(folder: Path) -> dict[str, Path]:
    """Write the report of a model of the sample, and one that compares it with a model of fewer documents."""
    parts = tl.split(tl.load_sample(), {"train": 0.8, "test": 0.2}, seed=0)
    some = np.sort(np.random.default_rng(0).choice(len(parts["train"]), 2500, replace=False))
    few = tl.make_model("linear").fit(parts["train"][some]).score(parts["test"])
    every = tl.make_model("linear").fit(parts["train"]).score(parts["test"])
    reports = {"one": folder / "one.html", "two": folder / "two.html"}
    test, train = parts["test"], parts["train"]
    tl.write_report(reports["one"], test, {"linear": every}, train=train, title="Nouns: a linear model")
    both = {"a third of the texts": few, "all texts": every}
    tl.write_report(reports["two"], test, both, train=train, title="Nouns: what more texts are worth")
    return reports


def take(
    page: Page, path: Path, scheme: Scheme, anchor: str = "", height: int | None = None, width: int = 1240
) -> None:
    """Save a picture of the page, from its beginning or from one of its sections on."""
    page.show(width, 900, scheme)
    top = page.run(f"document.getElementById('{anchor}').getBoundingClientRect().top + scrollY - 20") if anchor else 0
    page.picture(path, int(top), height)


def main() -> None:
    """Write the reports to a folder, and save their pictures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--all", type=Path, metavar="DIR", help="a folder for all pictures, and for the reports")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, browser_page() as page:
        reports = write_reports(asked.all or Path(folder))
        page.open(reports["one"])
        take(page, DOCS / "report-light.png", "light", height=1690)
        page.open(reports["two"])
        take(page, DOCS / "report-dark.png", "dark", "slices", 1560)
        if asked.all is None:
            return
        for name, report in reports.items():
            page.open(report)
            for scheme, width in itertools.product(SCHEMES, (1240, 390)):
                take(page, asked.all / f"{name}-{scheme}-{width}.png", scheme, width=width)
            page.print_to(asked.all / f"{name}.pdf")


if __name__ == "__main__":
    main()
