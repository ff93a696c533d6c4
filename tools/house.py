"""Measure the house: files, lines of code, the walk, import chains, and names that stand for several things.

    python tools/house.py            # the figures of src/treelabel
    python tools/house.py --names    # with the names behind them
    python tools/house.py --source ../other/src/other    # another package, without the walk

A line of code is neither blank, nor a comment, nor part of a docstring. A chain is the longest sequence of modules of
which each imports the next at its top. The walk is what `count_walk.py` counts.
"""

import argparse
import ast
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tools.find_imports import find_imports, read_package

HOME = Path(__file__).resolve().parents[1]
# Words of the glossary that name nothing: as names of variables and parameters they are counted.
VAGUE = frozenset({"at", "beside", "found", "given", "gold", "kept", "odd", "own", "place", "said", "sure", "told"})
_PARTICIPLE = re.compile(r"_?[a-z]+(ed|en|old|aid|ept|ound)")
# Words that end like participles and are nouns or verbs.
_NOT_PARTICIPLES = frozenset(
    [
        "background",
        "between",
        "bound",
        "children",
        "embed",
        "extended",
        "feed",
        "fixed",
        "flatten",
        "fold",
        "found",
        "hidden",
        "length",
        "listen",
        "need",
        "open",
        "round",
        "seed",
        "shorten",
        "threshold",
        "token",
        "unfold",
    ]
)
_SCOPES = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass
class House:
    """The figures of a package."""

    files: int = 0
    code: int = 0
    docstrings: int = 0
    functions: int = 0
    chain: int = 0
    classes: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    file_names: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    participles: list[str] = field(default_factory=list)
    vague: Counter[str] = field(default_factory=Counter)


def measure(folder: Path) -> House:
    """Measure the package in a folder."""
    sources = read_package(folder)
    house = House(files=len(sources), chain=longest_chain(sources))
    for name, text in sources.items():
        tree = ast.parse(text)
        docstrings = set(_docstring_lines(tree))
        lines = [line.strip() for number, line in enumerate(text.splitlines(), 1) if number not in docstrings]
        house.code += sum(1 for line in lines if line and not line.startswith("#"))
        house.docstrings += len(docstrings)
        house.file_names[name.rpartition(".")[2]].append(name)
        for node in ast.walk(tree):
            _count_name(house, node, name)
    return house


def _docstring_lines(tree: ast.Module) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, _SCOPES) and ast.get_docstring(node, clean=False) is not None:
            yield from range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)


def _count_name(house: House, node: ast.AST, module: str) -> None:
    if isinstance(node, ast.ClassDef):
        house.classes[node.name].append(module)
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        house.functions += 1
        if _PARTICIPLE.fullmatch(node.name) and node.name.lstrip("_") not in _NOT_PARTICIPLES:
            house.participles.append(f"{module}.{node.name}")
    elif isinstance(node, ast.arg) and node.arg in VAGUE:
        house.vague[node.arg] += 1
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in VAGUE:
        house.vague[node.id] += 1


def longest_chain(sources: Mapping[str, str]) -> int:
    """Return the number of modules in the longest chain of imports at the top of files.

    >>> longest_chain({"p.a": "import p.b", "p.b": "from p.c import x", "p.c": "x = 1", "p.d": ""})
    3
    """
    after: dict[str, set[str]] = defaultdict(set)
    for each in find_imports(sources):
        if each.kind == "top-level":
            after[each.source].add(each.target)

    @cache
    def length(module: str) -> int:
        return 1 + max((length(target) for target in after[module]), default=0)

    return max((length(module) for module in list(after)), default=1)


def repeated(names: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """Select the names that stand for several things, __init__ files aside."""
    return {name: users for name, users in sorted(names.items()) if len(users) > 1 and name != "__init__"}


def walk_length() -> int:
    """Return the number of files on the walk; it runs in a process of its own, as it counts calls."""
    command = [sys.executable, str(HOME / "tools" / "count_walk.py")]
    output = subprocess.run(command, capture_output=True, text=True, check=True, cwd=HOME).stdout
    return int(output.split()[0])


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--source", type=Path, help="the folder of another package")
    parser.add_argument("--names", action="store_true", help="list the names behind the figures")
    options = parser.parse_args()
    house = measure(options.source or HOME / "src" / "treelabel")
    classes, files = repeated(house.classes), repeated(house.file_names)
    print(f"files                        {house.files:>7,}")
    print(f"lines of code                {house.code:>7,}")
    print(f"lines of docstrings          {house.docstrings:>7,}")
    print(f"functions                    {house.functions:>7,}")
    print(f"longest import chain         {house.chain:>7,}")
    if options.source is None:
        print(f"files on the walk            {walk_length():>7,}")
    print(f"class names used twice       {len(classes):>7,}")
    print(f"file names used twice        {len(files):>7,}")
    print(f"functions named by a bare participle {len(house.participles):>,}")
    print(f"vague names assigned         {house.vague.total():>7,}")
    if options.names:
        for title, names in (("class", classes), ("file", files)):
            print(*(f"{title} {name}: {' '.join(users)}" for name, users in names.items()), sep="\n")
        print("participles:", *house.participles)
        print("vague:", *(f"{name} {count}" for name, count in house.vague.most_common()))


if __name__ == "__main__":
    main()
