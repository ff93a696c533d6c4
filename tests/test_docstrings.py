"""How docstrings are written: public functions document their arguments, and summaries are plain English."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import treelabel

PACKAGE = Path(treelabel.__file__).parent
# Compiled loops are inner code; commands describe their options for `--help`.
FILES = [file for file in sorted(PACKAGE.rglob("*.py")) if "kernels" not in str(file) and "cli" not in file.parts]
Function = ast.FunctionDef | ast.AsyncFunctionDef


def public_functions(file: Path) -> Iterator[tuple[str, Function]]:
    """List functions and methods that users or other modules call; methods of subclasses are documented in the base."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            yield node.name, node
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and not _extends(node):
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef) and not inner.name.startswith("_"):
                    yield f"{node.name}.{inner.name}", inner


def _extends(node: ast.ClassDef) -> bool:
    return any(
        ast.unparse(base).partition("[")[0] not in ("ABC", "Protocol", "Generic", "Mapping") for base in node.bases
    )


def arguments(function: Function) -> list[str]:
    given = function.args
    names = [
        each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg) if each
    ]
    return [name for name in names if name not in ("self", "cls") and not name.startswith("_")]


def public_api() -> Iterator[tuple[str, Function]]:
    """List the functions, and the methods of classes, that `import treelabel` promises."""
    homes = {name: getattr(getattr(treelabel, name), "__module__", "") for name in treelabel.__all__}
    for file in FILES:
        module = ".".join((PACKAGE.name, *file.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")
        for name, function in public_functions(file):
            if homes.get(name.partition(".")[0]) == module:
                yield name, function


@pytest.mark.parametrize(("name", "function"), [pytest.param(*each, id=each[0]) for each in public_api()])
def test_the_public_api_documents_its_arguments(name: str, function: Function) -> None:
    decorators = {ast.unparse(each) for each in function.decorator_list}
    if len(arguments(function)) < 2 or "overload" in decorators:
        return
    doc = ast.get_docstring(function) or ""
    assert "Parameters\n----------" in doc, f"{name} documents no parameters"
    gives_back = function.returns is not None and ast.unparse(function.returns) != "None"
    if gives_back and "contextmanager" not in decorators:
        assert re.search(r"^(Returns|Yields)\n---", doc, re.MULTILINE), f"{name} does not document what it returns"


def documented_arguments(doc: str) -> Iterator[tuple[str, str]]:
    """List the entries of a docstring's Parameters section: the names, and what is said of them."""
    section = re.search(r"^Parameters\n-+\n(.*?)(?=^\w[^\n]*\n-{3,}$|\Z)", doc, re.MULTILINE | re.DOTALL)
    for entry in re.findall(r"^(\S[^\n]*)\n((?:    [^\n]*\n?|\n)*)", section[1] if section else "", re.MULTILINE):
        if not entry[0].startswith((">>>", "...")) and entry[1].strip():
            yield entry[0].partition(" : ")[0], entry[1].strip()


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_what_is_said_of_an_argument_says_more_than_its_name(file: Path) -> None:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.FunctionDef | ast.ClassDef):
            continue
        for name, text in documented_arguments(ast.get_docstring(node) or ""):
            words = set(re.findall(r"\w+", text.lower())) - {"the", "a", "an", "its", "their", "of", "all"}
            spelled = set(re.findall(r"[a-z]+", name.lower()))
            plain = {word.removesuffix("s") for word in words}
            assert plain - {word.removesuffix("s") for word in spelled}, f"{node.name}: {name}: {text!r} says nothing"


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_summaries_are_plain_english(file: Path) -> None:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            summary = (ast.get_docstring(node) or "").partition("\n")[0]
            assert not re.match(r"(Give|What)\b", summary), summary
            assert not re.search(
                r"\bone \w+ an? \w+$|\bone \w+ an? (document|line|file|row|text|level|node)\b", summary
            )
