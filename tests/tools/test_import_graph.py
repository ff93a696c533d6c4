"""The tool that draws the import graph: it sees every kind of import, whatever the tree looks like today."""

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from tools.find_imports import find_imports
from tools.import_graph import ALLOWED, LAYERS, forbidden, implied, main, room_edges

# Modules that the synthetic sources import.
EMPTY = dict.fromkeys(("p.__init__", "p.core.errors", "p.models.__init__", "p.models.linear", "p.metrics.sets"), "")


def imports_of(source: str, module: str = "p.models.base", facade: str = "") -> list[tuple[str, str, int]]:
    """Find what one module imports when it stands among the EMPTY ones: (target, kind, line)."""
    found = find_imports({**EMPTY, "p.__init__": facade, module: source})
    return [(each.target, each.kind, each.line) for each in found if each.source == module.removesuffix(".__init__")]


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("import p.core.errors", "p.core.errors"),
        ("import p.core.errors as e", "p.core.errors"),
        ("from p.core import errors", "p.core.errors"),
        ("from p.core.errors import TreelabelError", "p.core.errors"),
        ("from p import models as m", "p.models"),
        ("from .linear import Linear", "p.models.linear"),
        ("from . import linear", "p.models.linear"),
        ("from ..metrics.sets import f1", "p.metrics.sets"),
    ],
)
def test_every_way_to_write_an_import_is_seen(source: str, target: str) -> None:
    assert imports_of(source) == [(target, "top-level", 1)]


def test_imports_in_functions_and_methods_are_seen() -> None:
    source = (
        "def f():\n    def g():\n        from p.core import errors\n"
        "class A:\n    async def h(self):\n        import p.metrics.sets\n"
    )
    assert imports_of(source) == [("p.core.errors", "function-level", 3), ("p.metrics.sets", "function-level", 6)]


@pytest.mark.parametrize("test", ["TYPE_CHECKING", "typing.TYPE_CHECKING"])
def test_imports_for_annotations_are_seen(test: str) -> None:
    source = (
        f"if {test}:\n    from p.metrics import sets\nelse:\n    from p.core import errors\nimport p.models.linear\n"
    )
    assert imports_of(source) == [
        ("p.metrics.sets", "TYPE_CHECKING", 2),
        ("p.core.errors", "top-level", 4),
        ("p.models.linear", "top-level", 5),
    ]


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("ROW = Entry('linear', 'help', 'linear:Linear')", "p.models.linear"),
        ("ROW = Entry('sets', 'help', 'metrics.sets:f1')", "p.metrics.sets"),
        ("PLACES = {'f1': 'p.metrics.sets:f1'}", "p.metrics.sets"),
        ("m = import_module('p.metrics.sets')", "p.metrics.sets"),
        ("m = importlib.import_module('.linear', __package__)", "p.models.linear"),
        ("m = import_module(f'p.metrics.{name}')", "p.metrics"),
        ("m = __import__('p.metrics.sets')", "p.metrics.sets"),
    ],
)
def test_imports_by_a_string_are_seen(source: str, target: str) -> None:
    assert imports_of(source) == [(target, "string", 1)]


@pytest.mark.parametrize("text", ["linear", "a linear:Linear b", "optimal:hf1", "linear: a model", "q.core.errors:E"])
def test_other_strings_are_no_imports(text: str) -> None:
    assert imports_of(f"x = {text!r}") == []


def test_public_names_of_the_package_lead_to_where_they_are_defined() -> None:
    facade = (
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from p.metrics.sets import f1\n__version__ = '1'\n"
    )
    for source in ("from p import f1", "import p\np.f1(1)", "import p as q\nq.f1(1)"):
        assert [target for target, *_ in imports_of(source, facade=facade)] == ["p.metrics.sets"]
    assert imports_of("from p import __version__", facade=facade) == []


def test_other_packages_do_not_count() -> None:
    assert imports_of("import numpy\nfrom pandas import DataFrame\nfrom pp.core import errors") == []


def test_edges_are_between_rooms_and_the_package_itself_is_none() -> None:
    sources = {**EMPTY, "p.__init__": "import p.models", "p.models.base": "import p.core.errors, p.models.linear"}
    edges = room_edges(find_imports(sources))
    assert list(edges) == [("models", "core")]
    assert [each.source for each in edges["models", "core"]] == ["p.models.base"]


def test_every_room_has_a_place_and_a_rule_and_imports_go_down() -> None:
    rows = {room: row for row, layer in enumerate(LAYERS) for room in layer}
    assert rows.keys() == ALLOWED.keys()
    assert not {(a, b) for a in ALLOWED for b in ALLOWED[a] if rows[a] >= rows[b]}
    assert not {"evaluation", "data"} & ALLOWED["models"]


def test_upward_and_sideways_edges_are_forbidden_and_unknown_rooms_are_not_judged() -> None:
    edges = [("hierarchy", "core"), ("core", "hierarchy"), ("metrics", "rules"), ("models", "data"), ("odd", "core")]
    assert forbidden(edges) == [("core", "hierarchy"), ("metrics", "rules"), ("models", "data")]


def test_an_edge_is_implied_only_by_a_longer_way() -> None:
    assert implied([("a", "b"), ("b", "c"), ("c", "d"), ("a", "d"), ("b", "d")]) == {("a", "d"), ("b", "d")}
    assert implied([("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")]) == set()


def package(folder: Path, **modules: str) -> Path:
    """Write a package: `models__linear="source"` is models/linear.py."""
    for name, source in {"__init__": "", **modules}.items():
        file = folder / "treelabel" / f"{name.replace('__', '/') if name != '__init__' else name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source, encoding="utf-8")
    return folder / "treelabel"


def test_a_clean_package_is_drawn_the_same_every_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = package(tmp_path, core__errors="", models__linear="import treelabel.core.errors")
    pictures = []
    for name in ("one.svg", "two.svg"):
        assert main(["--source", str(source), "--output", str(tmp_path / name)]) == 0
        pictures.append((tmp_path / name).read_bytes())
    assert pictures[0] == pictures[1]
    assert capsys.readouterr().err == ""
    drawn = ET.fromstring(pictures[0])
    kinds = [path.get("class") for path in drawn.iter("{http://www.w3.org/2000/svg}path")]
    assert kinds.count("edge") == 1
    assert kinds.count("edge forbidden") == 0


def test_what_the_design_does_not_allow_is_listed_and_red(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = package(
        tmp_path,
        core__errors="def f():\n    from treelabel.models import linear\n",
        models__linear="import treelabel.odd",
        odd="",
    )
    picture = tmp_path / "graph.svg"
    assert main(["--source", str(source), "--output", str(picture)]) == 1
    told = capsys.readouterr().err.splitlines()
    assert any("core/errors.py:2: core imports models" in line and "function-level" in line for line in told)
    assert any("odd" in line and "not in the design" in line for line in told)
    text = picture.read_text(encoding="utf-8")
    assert 'class="edge forbidden"' in text
    assert "not in the design" in text


def test_checking_writes_nothing(tmp_path: Path) -> None:
    source = package(tmp_path, core__errors="")
    assert main(["--source", str(source), "--output", str(tmp_path / "graph.svg"), "--check"]) == 0
    assert not (tmp_path / "graph.svg").exists()
