"""The page of a report: one file that loads nothing, in which everything that users wrote is text."""

import base64
import hashlib
import json
import re
import subprocess
import sys
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.report.examples import DAG, SCRIPT, TREE, dataset, random_case
from treelabel import Dataset, Hierarchy, Scores, write_report
from treelabel.report import content, html, pictures
from treelabel.report.content import make_content
from treelabel.report.figures import Drawing, drawings
from treelabel.report.pictures import write_figures
from treelabel.report.tree import script_json

MOST_BYTES = 5_000_000
# Attributes by which a page could load something, or run something.
LOADING = {"src", "srcset", "action", "formaction", "background", "poster", "data", "ping", "manifest"}


class Seen(HTMLParser):
    """What a browser would make of a page: its elements, and the text of each script."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.text: list[str] = []
        self.inside = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.inside = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self.inside = ""

    def handle_data(self, data: str) -> None:
        if self.inside == "script":
            self.scripts[-1] += data
        elif self.inside != "style":
            self.text.append(data)

    @property
    def tree(self) -> Any:
        return json.loads(self.scripts[0])


def page_of(path: Path, *arguments: Any, **options: Any) -> tuple[str, Seen]:
    write_report(path / "report.html", *arguments, **options)
    page = (path / "report.html").read_text(encoding="utf-8")
    return page, Seen(page)


def check_page(page: str, seen: Seen) -> None:
    """Check what every report promises, whatever stands in it."""
    assert len(page.encode()) < MOST_BYTES
    assert [attributes.get("type") for tag, attributes in seen.tags if tag == "script"] == ["application/json", None]
    policy = next(attributes["content"] for tag, attributes in seen.tags if "http-equiv" in attributes)
    digest = base64.b64encode(hashlib.sha256(seen.scripts[1].encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; img-src data:" in str(policy)
    for tag, attributes in seen.tags:
        assert not LOADING & set(attributes), (tag, attributes)
        assert not [name for name in attributes if name.startswith("on")], (tag, attributes)
        for name in ("href", "xlink:href"):
            assert (attributes.get(name) or "#").startswith(("#", "data:")), (tag, attributes)
        if tag == "svg":
            assert attributes.get("role") == "img"
            assert attributes.get("aria-label")
        if tag in ("th",):
            assert attributes.get("scope") in ("row", "col")
    assert sum(tag == "table" for tag, _ in seen.tags) == sum(tag == "caption" for tag, _ in seen.tags)
    assert sum(tag == "h1" for tag, _ in seen.tags) == 1
    ids = [attributes["id"] for _, attributes in seen.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    anchors = [str(attributes["href"])[1:] for tag, attributes in seen.tags if tag == "a"]
    assert set(anchors) <= set(ids)


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw few resamples, as nothing here depends on how wide an interval is."""
    monkeypatch.setattr(content, "make_content", partial(make_content, resamples=100))


@pytest.fixture(scope="module")
def large() -> tuple[Dataset, Scores]:
    """A hierarchy of 24,000 labels, and documents with many mistakes."""
    rng = np.random.default_rng(0)
    parents = np.concatenate([np.full(20, -1), rng.integers(0, 20, 380), rng.integers(20, 400, 23_600)])
    h = Hierarchy.from_parents(
        parents.astype(np.int32), [f"a label with quite a long name, {i}" for i in range(24_000)]
    )
    chosen = rng.choice(h.leaves, (2, 400))
    rows = [[h.names[node]] for node in chosen[0]]
    values = np.zeros((400, 24_000), np.float32)
    values[np.arange(400), np.where(rng.random(400) < 0.5, *chosen)] = rng.uniform(0.2, 0.9, 400)
    return Dataset.of(["word " * 300] * 400, rows, h), Scores(h, values).coherent()


# What stands in it


def test_a_report_of_one_system_tells_everything(tmp_path: Path) -> None:
    truth, scores, _ = random_case(TREE, 1)
    page, seen = page_of(tmp_path, truth, {"mine": scores}, train=truth, title="My title", note="First of all.")
    check_page(page, seen)
    text = " ".join(seen.text)
    for told in ("My title", "First of all.", "Hierarchical F1", "95%:", "What each rule reaches", "Macro-F1 by depth"):
        assert told in text
    for told in ("Calibration", "Across the tree", "Costliest mistakes", "text 1", "regime", "labels per document"):
        assert told in text
    assert seen.tree["names"] == list(TREE.names)
    result = make_content(truth, {"mine": scores}, train=truth).systems[0].result
    assert f"{result['hf1']:.3f}" in text


@pytest.mark.slow
def test_a_report_of_several_systems_names_the_rule_of_each(tmp_path: Path) -> None:
    truth, scores, found = random_case(TREE, 2)
    systems = {"first": scores, "second": random_case(TREE, 3)[1], "third": found}
    page, seen = page_of(tmp_path, truth, systems, rule="optimal:hf1")
    check_page(page, seen)
    text = " ".join(seen.text)
    assert text.count("optimal:hf1") >= 3
    assert "labels as given" in text
    assert "Rules differ" in text
    assert "no training data given" in text
    assert (
        sum("aria-label" in a and "F1 of each label" in str(a["aria-label"]) for t, a in seen.tags if t == "svg") == 3
    )
    assert seen.tree["systems"] == ["first", "second", "third"]


@pytest.mark.slow
def test_the_same_input_gives_the_same_page(tmp_path: Path) -> None:
    truth, scores, _ = random_case(TREE, 4, documents=10)
    first, _ = page_of(tmp_path, truth, {"a": scores, "b": scores})
    assert page_of(tmp_path, truth, {"a": scores, "b": scores})[0] == first


@pytest.mark.slow
def test_texts_can_be_left_out(tmp_path: Path) -> None:
    truth, scores, _ = random_case(TREE, 5)
    secret = Dataset.of(["a secret"] * len(truth), truth.names(), TREE, ids=[f"id{row}" for row in range(len(truth))])
    assert "a secret" in page_of(tmp_path, secret, {"s": scores})[0]
    page, seen = page_of(tmp_path, secret, {"s": scores}, texts=False)
    check_page(page, seen)
    assert "secret" not in page
    assert "Document id" in page


# What users write


@pytest.fixture
def few_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write one figure of each kind to files; the names of all must do as names of files."""

    def write_few(folder: Path, drawn: list[Drawing]) -> list[Path]:
        assert all(re.fullmatch(r"[\w.-]+", each.name) for each in drawn)
        return write_figures(folder, list({each.name.split("-")[0]: each for each in drawn}.values()))

    monkeypatch.setattr(pictures, "write_figures", write_few)


@pytest.mark.slow
@pytest.mark.usefixtures("few_figures")
def test_all_text_of_users_is_escaped(tmp_path: Path) -> None:
    odd = [
        SCRIPT,
        "</script><b>",
        "a\u2028b\u2029",
        "$x_1$ #0072B2",
        "_hidden",
        "quote\"'><img src=x onerror=alert(1)>",
    ]
    h = Hierarchy.from_edges([(odd[0], name) for name in odd[1:]])
    truth = Dataset.of([*odd, "\x07"], [[name] for name in [*odd, odd[1]]], h, ids=[*odd, "last"])
    found: list[list[str]] = [[odd[1]], [odd[2]], [odd[3]], [odd[4]], [odd[5]], [], [odd[1]]]
    scores = Scores(h, np.random.default_rng(0).random((7, len(h)))).coherent()
    systems = {odd[0]: scores, odd[3]: found, odd[4]: scores, odd[5]: scores, "日本語": found}
    page, seen = page_of(tmp_path, truth, systems, title=odd[0], note=odd[5], figures=tmp_path / odd[4])
    check_page(page, seen)
    assert "<script>alert" not in page
    assert "<img" not in page
    assert "\u2028" not in seen.scripts[0]
    assert "</" not in seen.scripts[0]
    assert seen.tree["names"] == list(h.names)
    assert seen.tree["systems"] == list(systems)
    text = "".join(seen.text)
    # Title, head line, texts, ids and labels of mistakes, tables and figures.
    assert text.count(SCRIPT) > 10
    assert text.count("$x_1$ #0072B2") > 5
    assert "日本語" in text


def test_json_in_a_page_cannot_end_its_element() -> None:
    value = ["</script>", "<!--", "&amp;", "\u2028\u2029", "é"]
    text = script_json(value)
    assert json.loads(text) == value
    assert not re.search("[<>&\u2028\u2029]", text)
    assert "é" in text


# Sizes and odd cases


@pytest.mark.slow
def test_a_large_hierarchy_fits(tmp_path: Path, large: tuple[Dataset, Scores]) -> None:
    truth, scores = large
    page, seen = page_of(tmp_path, truth, {"one": scores, "two": scores}, train=truth)
    check_page(page, seen)
    assert len(seen.tree["names"]) == 24_000


@pytest.mark.slow
def test_labels_are_left_out_where_they_would_not_fit(large: tuple[Dataset, Scores]) -> None:
    truth, scores = large
    made = make_content(truth, {"one": scores}, resamples=2)
    page = html.render(made, drawings(made), most_bytes=700_000)
    assert len(page.encode()) < 700_000
    tree = Seen(page).tree
    assert tree["left_out"] == 24_000 - len(tree["names"]) > 0
    used = {truth.hierarchy.names[node] for node in np.flatnonzero(truth.frequencies)}
    assert used <= set(tree["names"])


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.slow
def test_a_dag_with_many_labels(tmp_path: Path, seed: int) -> None:
    truth, scores, found = random_case(DAG, seed)
    check_page(*page_of(tmp_path, truth, {"scores": scores, "labels": found}, train=truth))


def test_one_document(tmp_path: Path) -> None:
    truth = dataset(Hierarchy.flat("AB"), [["A"]])
    page, seen = page_of(tmp_path, truth, {"s": Scores(truth.hierarchy, [[0.25, 0.75]])})
    check_page(page, seen)
    assert "1 document," in page


@pytest.mark.slow
def test_nothing_predicted_and_nothing_true(tmp_path: Path) -> None:
    truth = dataset(TREE, [["F"], [], ["E"]])
    page, seen = page_of(tmp_path, truth, {"nothing": [[], [], []]})
    check_page(page, seen)
    text = " ".join(seen.text)
    assert "3 of 3 documents got no label" in text
    assert "No label was taken for another." in text
    unlabelled = dataset(TREE, [[], []])
    page, seen = page_of(tmp_path, unlabelled, {"s": Scores(TREE, np.zeros((2, len(TREE)))), "t": [["F"], []]})
    check_page(page, seen)
    # Without truth there is no precision at any recall.
    assert "n/a" in " ".join(seen.text)
    assert "nan" not in page.lower().replace("nanum", "")


def test_nothing_wrong(tmp_path: Path) -> None:
    truth = dataset(TREE, [["F"], ["E"]])
    page, seen = page_of(tmp_path, truth, {"perfect": truth.labels})
    check_page(page, seen)
    assert "Every document got exactly its labels." in page


def test_groups_are_named(tmp_path: Path) -> None:
    truth = Dataset.of(["a", "b", "c"], [["F"], ["E"], ["F"]], TREE, groups=["x", "x", "y"])
    assert "resamples of the groups of documents" in page_of(tmp_path, truth, {"s": [["F"]] * 3})[0]


# Files


@pytest.mark.slow
def test_figures_are_written_in_three_forms(tmp_path: Path) -> None:
    truth, scores, found = random_case(TREE, 6)
    folder = tmp_path / "some" / "figures"
    write_report(tmp_path / "report.html", truth, {"../a": scores, "b/c": found, "b c": scores}, figures=folder)
    names = {path.stem for path in folder.iterdir()}
    assert {"precision-recall", "macro-f1-by-depth", "macro-f1-by-decile", "macro-f1-by-bin"} <= names
    assert {
        "relative-improvement",
        "calibration-leaves",
        "calibration-depth-3",
        "scatter-a-b_c",
        "scatter-a-b_c-2",
    } <= names
    for name in names:
        assert (folder / f"{name}.svg").read_text(encoding="utf-8").startswith("<?xml")
        assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert (folder / f"{name}.pdf").read_bytes().startswith(b"%PDF")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "some"]


def test_a_report_that_fails_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    truth, scores, _ = random_case(TREE, 7)
    path = tmp_path / "report.html"
    path.write_text("before")
    monkeypatch.setattr(html, "render", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_report(path, truth, {"s": scores}, figures=tmp_path / "figures")
    assert path.read_text() == "before"
    assert [each.name for each in tmp_path.iterdir()] == ["report.html"]


@pytest.mark.slow
def test_missing_packages_are_named(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "import treelabel as tl\n"
        "h = tl.Hierarchy.flat(['A']); d = tl.Dataset.of(['x'], [['A']], h)\n"
        f"tl.write_report({str(tmp_path / 'r.html')!r}, d, {{'s': [['A']]}})"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert 'a report needs matplotlib: pip install "treelabel[report]"' in ended.stderr
    assert not list(tmp_path.iterdir())
