"""Change the code in small ways, one at a time, and see whether the quick tests notice.

    python tools/mutate.py                     # 40 mutations drawn by seed 0
    python tools/mutate.py --seed 3 --count 80 # others
    python tools/mutate.py --rooms calibration # of one room only
    python tools/mutate.py --room-only         # without the tests of other rooms, which take minutes for each survivor
    python tools/mutate.py --list              # which they would be

A mutation reverses a comparison, an operator or a condition, swaps `min` and `max`, or changes a constant. Sizes of
blocks and the assertions of `zip` are left alone, as nobody sees a change of them. Rooms have equal shares of the draw.
Every mutation is made in a copy of the repository. The tests of its room run first, then all others that `make quick`
runs; one that fails, or that takes longer than the limit, kills it. For a survivor, either a test is missing, or nobody
could see the difference. The exit status is 1 if more than 5% survive.
"""

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

HOME = Path(__file__).resolve().parents[1]
PACKAGE = "src/treelabel"
# The rooms that mutations are drawn from: their files, and the tests that run first.
ROOMS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "metrics": (("metrics/*.py",), ("tests/metrics", "src/treelabel/metrics")),
    "rules": (("rules/*.py",), ("tests/rules", "src/treelabel/rules")),
    "losses": (("neural/losses/*.py",), ("tests/neural/losses", "src/treelabel/neural/losses")),
    "calibration": (("calibration/*.py",), ("tests/calibration", "src/treelabel/calibration")),
    "separators": (("hierarchy/separators.py",), ("tests/hierarchy", "src/treelabel/hierarchy")),
    "readers": (("data/io/*.py", "data/columns.py", "data/read.py"), ("tests/data", "src/treelabel/data")),
    "tfidf": (("text/tfidf.py", "text/ngrams.py"), ("tests/text", "src/treelabel/text")),
}
SWAPPED: dict[type[ast.AST], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.And: ("and", "or"),
    ast.Or: ("or", "and"),
}
RENAMED = {"min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum", "any": "all", "all": "any"}
# Constants with such a word in their name only say how much is done at once.
BLOCKS = {"BLOCK", "CHUNK", "PIECE", "BATCH", "SLOTS", "THREAD"}
LIMIT_SECONDS = 900
# (line, first character, one past the last, before, after)
Replacement = tuple[int, int, int, str, str]
# From a line and a column in bytes to a character of the source.
Offset = Callable[[int, int], int]
Outcome = Literal["killed by its room", "killed by another room", "killed by time", "SURVIVED"]


@dataclass(frozen=True, order=True)
class Mutation:
    """Characters from `start` up to `stop` of a file that are replaced."""

    room: str
    file: str
    line: int
    start: int
    stop: int
    before: str
    after: str

    def apply(self, text: str) -> str:
        """Return the source with the mutation."""
        return text[: self.start] + self.after + text[self.stop :]


def find_mutations(text: str, room: str = "", file: str = "") -> list[Mutation]:
    """List every place of a source where a mutation is possible.

    >>> [(each.before, each.after) for each in find_mutations("def f(a, b):\\n    return a + 1 < max(a, b)")]
    [('+', '-'), ('1', '2'), ('<', '<='), ('max', 'min')]
    """
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    lines = text.splitlines(keepends=True)

    def offset(line: int, column: int) -> int:
        return starts[line - 1] + len(lines[line - 1].encode()[:column].decode())

    return sorted({Mutation(room, file, *each) for each in _replacements(ast.parse(text), text, offset)})


def _replacements(tree: ast.Module, text: str, offset: Offset) -> Iterator[Replacement]:
    unseen = {part for node in ast.walk(tree) for part in _unseen(node)}
    for node in _running_code(tree, unseen):
        for left, operator, right in _operators(node):
            before, after = SWAPPED.get(type(operator), ("", ""))
            first, last = _end(left, offset), offset(right.lineno, right.col_offset)
            index = text.find(before, first, last) if before else -1
            if index >= 0:
                yield left.lineno, index, index + len(before), before, after
        if isinstance(node, ast.Constant) and type(node.value) in (int, float, bool):
            first, last = offset(node.lineno, node.col_offset), _end(node, offset)
            value = str(not node.value) if isinstance(node.value, bool) else repr(node.value + 1)  # type: ignore[operator]
            yield node.lineno, first, last, text[first:last], value
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in RENAMED:
                last = _end(node.func, offset)
                yield node.func.lineno, last - len(name), last, name, RENAMED[name]
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            first, last = offset(node.lineno, node.col_offset), offset(node.operand.lineno, node.operand.col_offset)
            yield node.lineno, first, last, "not ", ""


def _operators(node: ast.expr) -> list[tuple[ast.expr, ast.AST, ast.expr]]:
    """Return the operators of an expression, each between its operands."""
    if isinstance(node, ast.Compare):
        operands = [node.left, *node.comparators]
        return list(zip(operands, node.ops, operands[1:], strict=False))
    if isinstance(node, ast.BinOp) and not _is_text(node.left) and not _is_text(node.right):
        return [(node.left, node.op, node.right)]
    return [(node.values[0], node.op, node.values[1])] if isinstance(node, ast.BoolOp) else []


def _end(node: ast.expr, offset: Offset) -> int:
    return offset(node.end_lineno or 0, node.end_col_offset or 0)


def _running_code(tree: ast.AST, unseen: set[ast.AST]) -> Iterator[ast.expr]:
    """Yield expressions that run: no annotations, decorators, docstrings or messages of errors."""
    for name, value in ast.iter_fields(tree):
        if name in ("annotation", "returns", "decorator_list", "keywords") and not isinstance(tree, ast.Call):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and child not in unseen and not isinstance(child, ast.Raise | ast.JoinedStr):
                if isinstance(child, ast.expr):
                    yield child
                yield from _running_code(child, unseen)


def _unseen(node: ast.AST) -> Iterator[ast.AST]:
    """Yield parts that nobody sees a change of: sizes of blocks, and that `zip` asserts equal lengths."""
    if isinstance(node, ast.Assign):
        both = (node.targets[0], node.value)
        names, values = (each.elts if isinstance(each, ast.Tuple) else [each] for each in both)
        for name, value in zip(names, values, strict=False):
            if isinstance(name, ast.Name) and BLOCKS & set(name.id.split("_")):
                yield value
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "zip":
        yield from (keyword for keyword in node.keywords if keyword.arg == "strict")


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def draw(seed: int, count: int, rooms: list[str]) -> list[Mutation]:
    """Draw mutations by a seed: as many of every room, files and places by chance."""
    chance = random.Random(seed)
    drawn: list[Mutation] = []
    for number, room in enumerate(rooms):
        files = [file for pattern in ROOMS[room][0] for file in sorted((HOME / PACKAGE).glob(pattern))]
        places = [
            each
            for file in files
            for each in find_mutations(file.read_text(encoding="utf-8"), room, str(file.relative_to(HOME)))
        ]
        share = count // len(rooms) + (number < count % len(rooms))
        drawn += chance.sample(places, min(share, len(places)))
    return sorted(drawn)


def try_mutation(mutation: Mutation, copy: Path, room_only: bool = False) -> Outcome:
    """Run the tests on a mutation in a copy of the repository, which is as before after it."""
    file = copy / mutation.file
    text, times = file.read_text(encoding="utf-8"), (file.stat().st_atime_ns, file.stat().st_mtime_ns)
    first = [name for name in ROOMS[mutation.room][1] if (copy / name).exists()]
    try:
        with without_loops(file, copy):
            file.write_text(mutation.apply(text), encoding="utf-8")
            if _fails([mutation.file, *first], copy):
                return "killed by its room"
            if not room_only and _fails([], copy):
                return "killed by another room"
    except subprocess.TimeoutExpired:
        return "killed by time"
    finally:
        file.write_text(text, encoding="utf-8")
        os.utime(file, ns=times)
    return "SURVIVED"


@contextmanager
def without_loops(file: Path, copy: Path) -> Iterator[None]:
    """Put aside compiled loops that may have a loop of a file in them: numba looks at the caller's file only."""
    texts = {each: each.read_text(encoding="utf-8") for each in (copy / PACKAGE).rglob("*.py")}
    callers, before = {file}, set[Path]()
    while callers != before:
        before = callers
        modules = [each.relative_to(copy / "src").with_suffix("").parts for each in callers]
        callers = callers | {each for each, text in texts.items() if any(_imports(text, parts) for parts in modules)}
    stored = {cached: cached.read_bytes() for cached in _loops_of(callers)}
    try:
        for cached in stored:
            cached.unlink()
        yield
    finally:
        for cached in _loops_of(callers):
            cached.unlink()
        for cached, content in stored.items():
            cached.write_bytes(content)


def _imports(text: str, module: tuple[str, ...]) -> bool:
    """Return whether a source imports something of a module, or the module."""
    whole, package = ".".join(module), ".".join(module[:-1])
    return f"{whole} import" in text or (f"from {package} import" in text and module[-1] in text)


def _loops_of(files: Iterable[Path]) -> list[Path]:
    """List the files in which loops of source files are stored."""
    beside = [cached for each in files for cached in each.parent.glob(f"__pycache__/{each.stem}.*")]
    return [cached for cached in beside if cached.suffix in (".nbi", ".nbc", ".loop")]


def _fails(tests: list[str], copy: Path) -> bool:
    # Bytecode is not kept: a file that changes twice within a second would not be read again.
    paths = f"{copy / 'src'}{os.pathsep}{copy}"
    settings = {"HYPOTHESIS_PROFILE": "quick", "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1", "CI": "true"}
    threads = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", "not slow", *tests]
    ended = subprocess.run(
        command, cwd=copy, env=os.environ | settings | threads, capture_output=True, timeout=LIMIT_SECONDS, check=False
    )
    return ended.returncode != 0


def copy_repository(target: Path) -> None:
    """Copy what the tests need; compiled loops come along in the caches beside the source."""
    left_out = shutil.ignore_patterns(".git", ".venv*", ".mypy_cache", ".ruff_cache", "demo-output")
    shutil.copytree(HOME, target, ignore=left_out)


def main() -> int:
    """Draw, try, print; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--rooms", nargs="+", choices=list(ROOMS), default=list(ROOMS))
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--room-only", action="store_true", help="run only the tests of a mutation's room")
    parser.add_argument("--list", action="store_true", help="only list the mutations")
    options = parser.parse_args()
    drawn = draw(options.seed, options.count, options.rooms)
    if options.list:
        print(*(f"{each.file}:{each.line}: {each.before} -> {each.after}" for each in drawn), sep="\n")
        return 0
    local = threading.local()
    with tempfile.TemporaryDirectory(prefix="treelabel-mutate-") as folder:

        def run(mutation: Mutation) -> Outcome:
            if not hasattr(local, "copy"):
                local.copy = Path(folder, str(threading.get_ident()))
                copy_repository(local.copy)
            outcome = try_mutation(mutation, local.copy, options.room_only)
            print(f"{outcome:23} {mutation.file}:{mutation.line}: {mutation.before} -> {mutation.after}", flush=True)
            return outcome

        with ThreadPoolExecutor(options.processes) as pool:
            outcomes = list(pool.map(run, drawn))
    survived = outcomes.count("SURVIVED")
    print(f"{len(outcomes) - survived} of {len(outcomes)} mutations were killed")
    return 1 if survived > 0.05 * len(outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
