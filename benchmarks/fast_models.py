"""The default model against linear peers: speed from raw text, memory and size, on the same splits.

    python benchmarks/fast_models.py                                    # all, half an hour; exit 1 if a claim fails
    python benchmarks/fast_models.py --sets sample --repeats 1          # needs nothing but the embedded sample
    python benchmarks/fast_models.py --systems treelabel,linearsvc      # ours and some peers
    python benchmarks/fast_models.py --markdown                         # the tables in Markdown too

Every system runs on every set in a fresh process, peers in environments of their own under ~/.cache/treelabel-bench;
systems take turns, and the best time of all turns counts, after imports and a warm-up on 40 documents. Nothing is
tuned: ours is `make_model()`, peers have the settings of their manuals (see fast_models_peers.py), those that take
matrices behind scikit-learn's TfidfVectorizer(sublinear_tf=True). Training and prediction start from lists of texts.
How good they are is measured by specs/peers.toml.

Peers learn the most specific labels. Memory is the growth over what the process had after imports; processes that a
peer starts are not counted. A peer that cannot be installed, or needs longer than the limit, says so in its line.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.measure import Claim, report, seconds
from benchmarks.peers import MissingPeerError, peer_python

from treelabel import Dataset, load_sample, read, read_together, split, unfold
from treelabel.core.strings import Strings
from treelabel.hierarchy import hierarchy_to_json

DATA = Path(os.environ.get("TREELABEL_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
PROGRAM = Path(__file__).with_name("fast_models_peers.py")
OURS = "treelabel"


@dataclass(frozen=True)
class Place:
    """Where a system runs: packages to try in turn (none: our own Python), what they import and need."""

    title: str
    packages: tuple[str, ...] = ()
    imports: str = ""
    needs: tuple[str, ...] = ()
    alone: bool = False

    def python(self) -> Path:
        """Find the Python, making the environment where there is none."""
        problem = None
        for package in self.packages:
            try:
                return peer_python(package, self.imports, self.needs, self.alone)
            except MissingPeerError as error:
                problem = problem or error
        if problem is not None:
            raise problem
        return Path(sys.executable)


SYSTEMS = {
    OURS: Place("treelabel"),
    "linearsvc": Place("scikit-learn LinearSVC"),
    "fasttext": Place("fastText", ("fasttext", "fasttext-wheel"), "fasttext", ("numpy<2",)),
    "hiclass": Place("hiclass per parent", ("hiclass",), "hiclass, sklearn"),
    "napkinxc": Place("napkinXC PLT", ("napkinxc",), "napkinxc, sklearn", ("scikit-learn",)),
    "napkinxc_ovr": Place("napkinXC OVR", ("napkinxc",), "napkinxc, sklearn", ("scikit-learn",)),
    "omikuji": Place("omikuji", ("omikuji",), "omikuji, sklearn", ("scikit-learn",)),
    # What PECOS asks for beyond this is for its transformers.
    "pecos": Place(
        "PECOS XR-Linear",
        ("libpecos",),
        "pecos.xmc.xlinear.model",
        ("numpy<2", "scipy<1.14", "scikit-learn"),
        alone=True,
    ),
}


# Data


def two_files(name: str, train: str = "train") -> tuple[Dataset, Dataset]:
    """Read a set that comes in parts."""
    parts = read_together([DATA / name / f"{part}.jsonl.gz" for part in (train, "test")])
    # A DAG becomes a tree, in which a document has one path.
    first, second = parts if parts[0].hierarchy.is_tree else map(unfold, parts)
    return first, second


def divided(data: Dataset) -> tuple[Dataset, Dataset]:
    """Divide a set that comes in one part."""
    train, test = split(data, {"train": 0.8, "test": 0.2}, seed=0, keep_duplicates=False).values()
    return train, test


def without_headers(parts: tuple[Dataset, Dataset]) -> tuple[Dataset, Dataset]:
    """Drop everything up to the first blank line of each text."""
    train, test = (
        replace(part, texts=Strings.of([text.partition("\n\n")[2] for text in part.texts])) for part in parts
    )
    return train, test


SETS: dict[str, Callable[[], tuple[Dataset, Dataset]]] = {
    "sample": lambda: divided(load_sample()),
    "hwv": partial(two_files, "hwv", "val"),
    "mwpd_gpc": partial(two_files, "mwpd_gpc"),
    "newsgroups20": partial(two_files, "newsgroups20"),
    "newsgroups20_stripped": lambda: without_headers(two_files("newsgroups20")),
    "clinc150": partial(two_files, "clinc150"),
    "dbpedia5k": lambda: divided(read(DATA / "dbpedia5k" / "all.jsonl.gz")),
    "reuters21578": partial(two_files, "reuters21578"),
}


def write_documents(data: Dataset, file: Path) -> None:
    """Write texts and the numbers of their most specific labels."""
    ends = data.hierarchy.most_specific(data.labels)
    rows = np.split(ends.indices, ends.indptr[1:-1])
    with file.open("w", encoding="utf-8") as lines:
        for text, row in zip(data.texts, rows, strict=True):
            lines.write(json.dumps({"text": text, "labels": row.tolist()}) + "\n")


def write_set(train: Dataset, test: Dataset, folder: Path) -> None:
    """Write what the processes read; in a DAG, which has many ways to a node, a way is the node alone."""
    h = train.hierarchy
    write_documents(train, folder / "train.jsonl")
    write_documents(test, folder / "test.jsonl")
    (folder / "hierarchy.json").write_text(hierarchy_to_json(h), encoding="utf-8")
    ways: list[list[int]] = []
    for node, above in enumerate(h.parent.tolist() if h.is_tree else [-1] * len(h)):
        ways.append([*(ways[above] if above >= 0 else []), node])
    (folder / "nodes.json").write_text(json.dumps(ways))


# Running


class FailedError(Exception):
    """A system that gave no result: why."""


@dataclass
class Cell:
    """One system on one set: seconds, megabytes and metrics, or why there are none."""

    values: dict[str, Any] = field(default_factory=dict)
    problem: str = ""

    def add(self, found: Mapping[str, Any]) -> None:
        """Take in another turn: the best times, the largest memory."""
        for name, value in found.items():
            better = {"train": min, "predict": min, "peak": max, "growth": max}.get(name)
            self.values[name] = better(value, self.values[name]) if better and name in self.values else value


def ran(command: Sequence[str], limit: float) -> str:
    """Run a process and what it starts for at most so many seconds; give its output."""
    with tempfile.TemporaryFile("w+") as told:
        started = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=told, text=True, start_new_session=True)
        try:
            output, _ = started.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            raise FailedError(f"over {limit:g} s") from None
        finally:
            if started.poll() is None:
                os.killpg(started.pid, signal.SIGKILL)
                started.communicate()
        if started.returncode:
            told.seek(0)
            lines = told.read().strip().splitlines()
            raise FailedError(lines[-1][:100] if lines else f"ended with {started.returncode}")
    return output


def run(system: str, folder: Path, limit: float, place: Place | None = None, program: Path = PROGRAM) -> dict[str, Any]:
    """Measure a system in a fresh process; what it writes is left beside the data."""
    result = folder / f"{system}.npz"
    shutil.rmtree(result.with_suffix(""), ignore_errors=True)
    try:
        python = (place or SYSTEMS[system]).python()
    except MissingPeerError as error:
        raise FailedError(str(error)) from error
    output = ran([str(python), "-P", str(program), system, str(folder), str(result)], limit)
    found: dict[str, Any] = json.loads(output.splitlines()[-1])
    if system != OURS:
        shutil.rmtree(result.with_suffix(""), ignore_errors=True)
    if "unable" in found:
        raise FailedError(found["unable"])
    return found


def measure_set(name: str, systems: Sequence[str], repeats: int, limit: float) -> dict[str, Cell]:
    """Measure all systems on a set, in turns."""
    train, test = SETS[name]()
    print(f"{name}: {len(train):,} training and {len(test):,} test documents, {train.hierarchy}", flush=True)
    cells = {system: Cell() for system in systems}
    with tempfile.TemporaryDirectory(prefix="treelabel-bench-") as temporary:
        folder = Path(temporary)
        write_set(train, test, folder)
        # Loops that the warm-up does not reach are compiled before anything is measured.
        with suppress(FailedError):
            run(OURS, folder, limit)
        for _ in range(repeats):
            for system, cell in cells.items():
                if cell.problem:
                    continue
                try:
                    cell.add(run(system, folder, limit))
                except FailedError as error:
                    cell.problem = str(error)
                print(f"  {SYSTEMS[system].title}: {cell.problem or seconds(cell.values['train'])}", flush=True)
        if OURS in cells and not cells[OURS].problem:
            cells[OURS].add(first_prediction(folder, repeats))
    for cell in cells.values():
        cell.values["documents"] = len(test)
    return cells


LOADING = """
import json, sys, time
started = time.perf_counter()
import treelabel
from treelabel.models import linear, load_model
with open(sys.argv[2], encoding="utf-8") as lines:
    text = json.loads(lines.readline())["text"]
imported = time.perf_counter()
load_model(sys.argv[1]).predict([text])
done = time.perf_counter()
print(json.dumps([done - imported, done - started]))
"""


def first_prediction(folder: Path, repeats: int) -> dict[str, float]:
    """Load the model and predict one text in a fresh process, with and without the time of imports."""
    model = folder / OURS / "real" / "model"
    command = [sys.executable, "-c", LOADING, str(model), str(folder / "test.jsonl")]
    times = [json.loads(ran(command, 60)) for _ in range(max(2, repeats))]
    load, whole = (min(column) for column in zip(*times, strict=True))
    return {"load": load, "load with imports": whole}


# What is printed


def rows_of(cells: Mapping[str, Cell]) -> tuple[list[str], list[list[str]]]:
    """Return the titles and the lines of a set's table."""
    titles = ["system", "training s", "documents/s", "memory MB", "peak MB", "model MB"]
    lines = []
    for system, cell in cells.items():
        values, title = cell.values, SYSTEMS[system].title
        if cell.problem:
            lines.append([title, cell.problem, *[""] * (len(titles) - 2)])
            continue
        speed = f"{values['documents'] / values['predict']:,.0f}"
        sizes = [f"{values[name]:,.0f}" for name in ("growth", "peak")]
        lines.append([title, f"{values['train']:,.2f}", speed, *sizes, f"{values['size']:,.1f}"])
    return titles, lines


def print_set(name: str, cells: Mapping[str, Cell], markdown: bool) -> None:
    """Print a set's table."""
    titles, lines = rows_of(cells)
    table = Table(title=name, title_justify="left")
    for at, title in enumerate(titles):
        table.add_column(title, justify="right" if at else "left")
    for line in lines:
        table.add_row(*line)
    Console(width=140 if not sys.stdout.isatty() else None).print(table)
    if markdown:
        print(f"\n**{name}**\n")
        for line in (titles, ["---", *["---:"] * (len(titles) - 1)], *lines):
            print(f"| {' | '.join(line)} |")
    print(flush=True)


# Claims


def claims_of(results: Mapping[str, Mapping[str, Cell]]) -> list[Claim]:
    """Say what is required of the default model, and whether it is kept."""
    claims = []
    for name, cells in results.items():
        ours = cells[OURS].values
        if cells[OURS].problem:
            claims.append(Claim(name, cells[OURS].problem, kept=False))
            continue
        peers = {key: cell.values for key, cell in cells.items() if key != OURS and not cell.problem}
        for key, cell in cells.items():
            if cell.problem:
                claims.append(Claim(f"{name}: not compared", "", f"{SYSTEMS[key].title}: {cell.problem}"))
        if peers:
            claims += speed(name, ours, peers)
        claims += limits(name, ours)
    return claims


def speed(name: str, ours: dict[str, Any], peers: Mapping[str, dict[str, Any]]) -> list[Claim]:
    """Compare training with LinearSVC, napkinXC and PECOS, and prediction with the fastest peer."""
    claims = []
    for system, least in (("linearsvc", 5.0), ("napkinxc", 1.0), ("napkinxc_ovr", 1.0), ("pecos", 1.0)):
        if system not in peers:
            continue
        peer = peers[system]
        claims.append(Claim.faster(f"{name}: training", ours["train"], SYSTEMS[system].title, peer["train"], least))
    fastest = min(peers, key=lambda system: peers[system]["predict"])
    title, took = SYSTEMS[fastest].title, peers[fastest]["predict"]
    return [*claims, Claim.faster(f"{name}: prediction", ours["predict"], title, took, 3)]


def limits(name: str, ours: dict[str, Any]) -> list[Claim]:
    """Check memory, loading and size."""
    load = ours["load"]
    claims = [
        Claim.at_most(f"{name}: peak memory", ours["peak"], 1000),
        Claim(f"{name}: load and first prediction", seconds(load), required="< 1 s", kept=load < 1),
        Claim("  with imports", seconds(ours["load with imports"])),
    ]
    if name == "hwv":
        claims.append(Claim.at_most("hwv: model on disk", ours["size"], 100))
    return claims


def chosen(text: str, known: Mapping[str, Any]) -> list[str]:
    """Read a comma-separated list of known names."""
    names = text.split(",")
    for name in names:
        if name not in known:
            sys.exit(f"unknown: {name!r}; there are: {', '.join(known)}")
    return names


def main() -> int:
    """Measure all, print the tables, and return the exit code."""
    parser = argparse.ArgumentParser(description="Measure the default model against its peers.")
    parser.add_argument("--sets", default=",".join(SETS), help="data sets, comma-separated")
    parser.add_argument("--systems", default=",".join(SYSTEMS), help="systems, comma-separated; ours is always there")
    parser.add_argument("--repeats", type=int, default=3, help="turns, of which the best counts")
    parser.add_argument("--limit", type=float, default=600, help="most seconds for a system on a set")
    parser.add_argument("--markdown", action="store_true", help="print the tables in Markdown too")
    options = parser.parse_args()
    started = time.perf_counter()
    systems = list(dict.fromkeys([OURS, *chosen(options.systems, SYSTEMS)]))
    results = {}
    for name in chosen(options.sets, SETS):
        if name != "sample" and not (DATA / name.removesuffix("_stripped")).is_dir():
            print(f"{name}: not at {DATA}; set TREELABEL_DATA to the folder of the data sets")
            continue
        results[name] = measure_set(name, systems, options.repeats, options.limit)
        print_set(name, results[name], options.markdown)
    kept = report("The default model against its peers", claims_of(results))
    print(f"{time.perf_counter() - started:.0f} s in all")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
