"""Change the code in small ways, one at a time, and see whether the quick tests notice.

    python tools/mutate.py                     # 40 mutations drawn by seed 0
    python tools/mutate.py --seed 3 --count 80 # others
    python tools/mutate.py --rooms calibration # of one room only
    python tools/mutate.py --room-only         # without the tests of other rooms, which take minutes for each survivor
    python tools/mutate.py --list              # which they would be

A mutation reverses a comparison, an operator or a condition, swaps `min` and `max`, or changes a constant. Sizes of
blocks (`least` and `most` of functions that divide rows between threads, too) and the assertions of `zip` are left
alone, as nobody sees a change of them. Rooms have equal shares of the draw.
Every mutation is made in a copy of the repository. The tests of its room run first, then all others that `make quick`
runs; those that name what the file defines before others. One that fails, or that takes several times as long as
without the mutation, kills it. All of them must pass without one, or nothing is tried. For a survivor, either a test is
missing, or nobody could see the difference. The exit status is 1 if more than 5% survive.
"""

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import Queue
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
# Functions that divide rows between threads and blocks.
DIVIDING = {"over_rows", "over_scores", "in_blocks"}
# Tests of a mutation end after so many times what they take without it, and this on top for loops compiled again.
LIMIT_TIMES, LIMIT_SECONDS = 4, 300
# Where tests in a copy of the repository keep encoders' output.
CACHE = ".treelabel-cache"
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

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.before} -> {self.after}"

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
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in DIVIDING:
        yield from (keyword for keyword in node.keywords if keyword.arg in ("least", "most"))


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


def try_mutation(mutation: Mutation, copy: Path, tests: list[str], seconds: float) -> bool | None:
    """Run tests on a mutation in a copy of the repository, which is as before after it.

    Returns whether they fail, None if they did not end within the seconds.
    """
    file = copy / mutation.file
    text, times = file.read_text(encoding="utf-8"), (file.stat().st_atime_ns, file.stat().st_mtime_ns)
    try:
        with without_loops(file, copy):
            file.write_text(mutation.apply(text), encoding="utf-8")
            return run_tests(tests, copy, seconds).returncode != 0
    except subprocess.TimeoutExpired:
        return None
    finally:
        file.write_text(text, encoding="utf-8")
        os.utime(file, ns=times)
        shutil.rmtree(copy / CACHE, ignore_errors=True)


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


def run_tests(tests: list[str], copy: Path, seconds: float | None = None) -> subprocess.CompletedProcess[str]:
    """Run tests of a copy as `make quick` does, up to the first that fails, with caches of its own."""
    # Bytecode is not kept: a file that changes twice within a second would not be read again.
    paths = f"{copy / 'src'}{os.pathsep}{copy}"
    settings = {"HYPOTHESIS_PROFILE": "quick", "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1", "CI": "true"}
    settings |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "TREELABEL_CACHE": str(copy / CACHE)}
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"} | settings
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", "not slow", *tests]
    return subprocess.run(
        command, cwd=copy, env=environment, capture_output=True, text=True, timeout=seconds, check=False
    )


def related_first(tests: list[str], mutation: Mutation, copy: Path) -> list[str]:
    """Put the test files that name most of what the mutated file defines before all others."""
    tree = ast.parse((copy / mutation.file).read_text(encoding="utf-8"))
    names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    files = {file: file.read_text(encoding="utf-8") for name in tests for file in (copy / name).rglob("test_*.py")}
    counts = {file: sum(name in text for name in names) for file, text in sorted(files.items())}
    related = sorted((file for file in files if counts[file]), key=lambda file: -counts[file])
    return [*(str(file.relative_to(copy)) for file in related), *tests]


def measure_tests(what: str, tests: list[str], copy: Path) -> float:
    """Return the seconds that tests may take on a mutation; exit where they fail without one."""
    begin = time.monotonic()
    ended = run_tests(tests, copy)
    if ended.returncode:
        sys.exit(f"{what} fail without a mutation, so that they would kill any:\n{ended.stdout[-3000:]}{ended.stderr}")
    return LIMIT_SECONDS + LIMIT_TIMES * (time.monotonic() - begin)


def copy_repository(source: Path, target: Path) -> None:
    """Copy what the tests need; compiled loops come along in the caches beside the source."""
    left_out = shutil.ignore_patterns(".git", ".venv*", ".mypy_cache", ".ruff_cache", "demo-output", CACHE)
    shutil.copytree(source, target, ignore=left_out)


class Trials:
    """Mutations that are tried in copies of the repository, one copy a process."""

    def __init__(self, folder: Path, processes: int) -> None:
        self._unchanged, self._copies = folder / "unchanged", [folder / str(number) for number in range(processes)]
        self._free: Queue[Path] = Queue()
        copy_repository(HOME, self._unchanged)

    def of_rooms(self, drawn: list[Mutation]) -> list[Outcome]:
        """Try the tests of each mutation's room."""
        rooms = {each.room: self._tests_of(each.room) for each in drawn}
        with ThreadPoolExecutor(len(self._copies)) as pool:
            limits = pool.map(lambda room: measure_tests(f"The tests of {room}", rooms[room], self._unchanged), rooms)
            seconds = dict(zip(rooms, limits, strict=True))
        for copy in self._copies:
            # The loops that the tests had compiled come along.
            copy_repository(self._unchanged, copy)
            self._free.put(copy)

        def run(each: Mutation) -> Outcome:
            tests = related_first(rooms[each.room], each, self._unchanged)
            return self._try(each, [each.file, *tests], seconds[each.room], "killed by its room")

        return self._map(run, drawn)

    def of_others(self, drawn: list[Mutation]) -> list[Outcome]:
        """Try all other quick tests."""
        if not drawn:
            return []
        seconds = measure_tests("The quick tests", [], self._unchanged)

        def run(each: Mutation) -> Outcome:
            room = tuple(self._tests_of(each.room))
            related = related_first(["tests", "src"], each, self._unchanged)
            tests = [name for name in related if not name.startswith(room)]
            ignored = [f"--ignore={name}" for name in room]
            return self._try(each, [*ignored, *tests], seconds, "killed by another room")

        return self._map(run, drawn)

    def _tests_of(self, room: str) -> list[str]:
        return [name for name in ROOMS[room][1] if (self._unchanged / name).exists()]

    def _map(self, run: Callable[[Mutation], Outcome], drawn: list[Mutation]) -> list[Outcome]:
        with ThreadPoolExecutor(len(self._copies)) as pool:
            return list(pool.map(run, drawn))

    def _try(self, mutation: Mutation, tests: list[str], seconds: float, killed: Outcome) -> Outcome:
        copy = self._free.get()
        try:
            fails = try_mutation(mutation, copy, tests, seconds)
        finally:
            self._free.put(copy)
        outcome: Outcome = "killed by time" if fails is None else killed if fails else "SURVIVED"
        print(f"{outcome:23} {mutation}", flush=True)
        return outcome


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
        print(*drawn, sep="\n")
        return 0
    with tempfile.TemporaryDirectory(prefix="treelabel-mutate-") as folder:
        trials = Trials(Path(folder), options.processes)
        outcomes = trials.of_rooms(drawn)
        survivors = [each for each, outcome in zip(drawn, outcomes, strict=True) if outcome == "SURVIVED"]
        survived = len(survivors)
        if not options.room_only:
            print(f"{survived} survived the tests of their rooms; all other quick tests:", flush=True)
            survived = trials.of_others(survivors).count("SURVIVED")
    print(f"{len(drawn) - survived} of {len(drawn)} mutations were killed")
    return 1 if survived > 0.05 * len(drawn) else 0


if __name__ == "__main__":
    sys.exit(main())
