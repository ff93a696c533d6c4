"""Find every import among the modules of one package, however it is written.

Imports count at the top of a file, inside a function, under TYPE_CHECKING, through the package's own names
(`from treelabel import evaluate`), and by a string: the row "linear:Linear" of a registry, or the name of a module.
"""

import ast
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

Kind = Literal["top-level", "function-level", "TYPE_CHECKING", "string"]


class Import(NamedTuple):
    """One import of a module of the package, and where it stands."""

    source: str
    target: str
    line: int
    kind: Kind


def read_package(folder: Path) -> dict[str, str]:
    """Return the source of every module below a package's folder, by dotted name ("treelabel.cli.__init__" too)."""
    files = sorted(folder.rglob("*.py"))
    return {".".join(file.relative_to(folder.parent).with_suffix("").parts): file.read_text("utf-8") for file in files}


def find_imports(sources: Mapping[str, str]) -> list[Import]:
    """Find all imports among the modules of one package.

    Parameters
    ----------
    sources
        Source text by dotted name, as `read_package` returns it; a package is "name.__init__".

    Returns
    -------
    list of Import
        Targets are modules of the package, named without "__init__", in the order of the sources and their lines.
    """
    # Folders count as modules even without an __init__.
    known = frozenset(
        ".".join(parts[:size]) for parts in map(module_parts, sources) for size in range(1, len(parts) + 1)
    )
    trees = {name: ast.parse(text, name) for name, text in sources.items()}
    root = min(known, key=len)
    exports = _exports(trees.get(f"{root}.__init__"), root)
    found: list[Import] = []
    for name, tree in trees.items():
        finder = _Finder(name, known, root, exports)
        finder.visit(tree)
        found += sorted(set(finder.found), key=lambda each: (each.line, each.target))
    return found


def module_parts(name: str) -> list[str]:
    """Split a dotted name; a package is its folder."""
    return name.removesuffix(".__init__").split(".")


def _exports(facade: ast.Module | None, root: str) -> dict[str, str]:
    """Return the module behind each public name of the package, by the imports in its own __init__."""
    statements = [node for node in ast.walk(facade) if isinstance(node, ast.ImportFrom)] if facade else []
    ours = [node for node in statements if (node.module or "").startswith(f"{root}.")]
    return {each.asname or each.name: str(node.module) for node in ours for each in node.names}


class _Finder(ast.NodeVisitor):
    """Collect the imports of one module."""

    def __init__(self, module: str, known: frozenset[str], root: str, exports: Mapping[str, str]) -> None:
        self.module = module.removesuffix(".__init__")
        self.package = module.rpartition(".")[0]
        self.known, self.root, self.exports = known, root, exports
        self.kind: Kind = "top-level"
        # Names that stand for the whole package here: `import treelabel as tl`.
        self.aliases: set[str] = set()
        self.found: list[Import] = []

    def visit_Import(self, node: ast.Import) -> None:
        for each in node.names:
            if each.name == self.root or (each.name.startswith(f"{self.root}.") and each.asname is None):
                self.aliases.add(each.asname or self.root)
            self._add(each.name, node.lineno)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        base = node.module or ""
        if node.level:
            parts = self.package.split(".")
            base = ".".join([*parts[: len(parts) - node.level + 1], *filter(None, [node.module])])
        for each in node.names:
            self._add(f"{base}.{each.name}", node.lineno)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if isinstance(node.value, ast.Name) and node.value.id in self.aliases:
            self._add(f"{self.root}.{node.attr}", node.lineno)
        self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._visit_as("function-level", ast.iter_child_nodes(node))

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def visit_If(self, node: ast.If) -> None:
        test = node.test
        name = test.attr if isinstance(test, ast.Attribute) else getattr(test, "id", "")
        self.visit(test)
        self._visit_as("TYPE_CHECKING" if name == "TYPE_CHECKING" else self.kind, node.body)
        self._visit_as(self.kind, node.orelse)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str):
            self._add_string(node.value, node.lineno)

    def visit_Call(self, node: ast.Call) -> None:
        """Follow import_module(".linear", __package__); absolute names are seen wherever they stand."""
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        name = getattr(node.args[0], "value", None) if node.args else None
        if called == "import_module" and isinstance(name, str) and name.startswith("."):
            self._add(f"{self.package}{name}", node.lineno, "string")
        self.generic_visit(node)

    def _visit_as(self, kind: Kind, nodes: Iterable[ast.AST]) -> None:
        previous, self.kind = self.kind, kind
        for node in nodes:
            self.visit(node)
        self.kind = previous

    def _add(self, name: str, line: int, kind: Kind | None = None) -> None:
        target = self._module(name)
        if target == self.root:
            # Only a public name leads anywhere; the package itself, or its version, costs nothing.
            target = self.exports.get(name.removeprefix(f"{self.root}."))
        if target and target != self.module:
            self.found.append(Import(self.module, target, line, kind or self.kind))

    def _add_string(self, text: str, line: int) -> None:
        """Add "treelabel.models.linear", the beginning of an f-string too, and "linear:Linear" from here or above."""
        match = re.fullmatch(r"([a-z_][\w.]*)(:[A-Za-z_]\w*)?", text)
        if match is None:
            return
        name, is_row = match[1], match[2] is not None
        if name.startswith(f"{self.root}."):
            self._add(name, line, "string")
        elif is_row:
            parts = self.package.split(".")
            places = (".".join([*parts[:size], name]) for size in range(len(parts), 0, -1))
            self._add(next((place for place in places if place in self.known), ""), line, "string")

    def _module(self, name: str) -> str | None:
        """Return the longest beginning of a dotted name that is a module of the package."""
        parts = [part for part in name.split(".") if part]
        return next((each for n in range(len(parts), 0, -1) if (each := ".".join(parts[:n])) in self.known), None)
