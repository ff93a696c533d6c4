"""The map in CONTRIBUTING is true, leads to what a newcomer looks for in two steps, and imports go one way."""

import ast
import re
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from tools.find_imports import Import, find_imports, read_package

from tools import import_graph

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "treelabel"
MAP = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split("## Map")[1].split("\n## ")[0]


@cache
def sources() -> dict[str, str]:
    return read_package(SOURCE)


@cache
def imports() -> list[Import]:
    return find_imports(sources())


def rooms() -> dict[str, str]:
    """Return what the map says of each folder of the package."""
    found: dict[str, str] = {}
    for line in MAP.split("src/treelabel/")[1].split("    tests/")[0].splitlines():
        entry = re.match(r" {6}(\w+)/ +(.*)", line)
        if entry:
            found[entry[1]] = entry[2]
        elif found:
            found[list(found)[-1]] += f" {line.strip()}"
    return found


def test_the_map_names_every_folder_and_only_files_that_are_there() -> None:
    folders = {path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists()}
    assert set(rooms()) == folders
    for room, told in rooms().items():
        for name in re.findall(r"\w+\.py\b", told):
            assert list((SOURCE / room).rglob(name)), f"{room}/{name} is not there"


@pytest.mark.parametrize(
    ("room", "words", "file", "name"),
    [
        ("metrics", "overlap.py has ICM", "overlap.py", "def icm_rows"),
        ("rules", "hierarchical_f.py: the exact rule for hF", "hierarchical_f.py", "def hf_beta"),
        (
            "neural",
            "conditional_loss.py has logit adjustment",
            "losses/conditional_loss.py",
            "tau ln v(n | parent)",
        ),
        ("calibration", "isotonic.py has isotonic calibration", "isotonic.py", "class Isotonic"),
        ("data", "skos.py reads SKOS", "taxonomy/skos.py", "def read_skos"),
        ("models", "load.py: how a model folder is verified", "persistence/load.py", "def load_model"),
        ("text", "ngrams.py hashes n-grams", "ngrams.py", "def bucket_of"),
        ("core", "compute.py: compiled loops, and where threads are made", "compute.py", "ThreadPoolExecutor("),
        ("models", "beam.py: beam search down a label tree", "extreme/beam.py", "def search"),
        ("rules", "single_path.py: best leaf, the rule beam", "single_path.py", "def beam"),
        ("selection", "rule_choice.py: the default rule", "rule_choice.py", "def choose_rule"),
        (
            "experiment",
            "plan.py: what is done already, which is how a killed study resumes",
            "plan.py",
            "def progress_of",
        ),
        ("data", "excel.py reads xlsx", "io/excel.py", "Excel files (.xlsx)"),
        ("data", "registry.py holds FORMATS (a format is its file and a row)", "io/registry.py", "FORMATS"),
        (
            "neural",
            "training_arguments.py: every training argument",
            "training_arguments.py",
            "class TrainingArguments",
        ),
        ("core", "progress.py: the progress bar", "progress.py", "def progress_bar"),
        ("neural", "registry.py holds LOSSES", "losses/registry.py", "LOSSES: Registry"),
        ("hierarchy", "change.py: cut, prune, unfold a DAG", "change.py", "def unfold"),
        ("metrics", "registry.py holds METRICS", "registry.py", "METRICS: Registry"),
    ],
)
def test_a_newcomer_finds_it_in_two_steps(room: str, words: str, file: str, name: str) -> None:
    assert words in rooms()[room]
    assert name in (SOURCE / room / file).read_text(encoding="utf-8")


def test_threads_are_made_in_one_place() -> None:
    made = re.compile(r"^(?!class ).*(Executor|Thread|Pool)\(", re.MULTILINE)
    makers = [path for path in SOURCE.rglob("*.py") if made.search(path.read_text(encoding="utf-8"))]
    assert makers == [SOURCE / "core" / "compute.py"]


def test_no_room_imports_one_above_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_graph, "find_imports", lambda found: imports() if found == sources() else None)
    assert import_graph.main(["--check"]) == 0


def test_no_modules_import_each_other() -> None:
    graph: dict[str, set[str]] = {}
    for each in imports():
        # A registry names its rows as strings, and a model may be made of others.
        if each.kind != "string":
            graph.setdefault(each.source, set()).add(each.target)
    TopologicalSorter(graph).prepare()  # raises CycleError


def test_no_module_defines_a_name_twice() -> None:
    for name, source in sources().items():
        defined: list[str] = []
        for node in ast.parse(source).body:
            if isinstance(node, ast.Assign):
                targets = [inner for target in node.targets for inner in ast.walk(target)]
                defined += [
                    each.id for each in targets if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
                ]
            elif isinstance(node, ast.ClassDef | ast.FunctionDef):
                is_overload = any(ast.unparse(each) == "overload" for each in node.decorator_list)
                defined += [] if is_overload else [node.name]
        twice = {each for each in defined if defined.count(each) > 1}
        assert not twice, f"{name} defines {twice} twice: the second takes the place of the first"
