"""Two commits side by side: run the same benchmarks in two checkouts in turns, and print the best of each.

    git worktree add --detach ../before COMMIT
    python benchmarks/commits.py ../before                      # metrics, rules, fast models, bulk, extreme
    python benchmarks/commits.py ../before "rules.py --quick" --turns 3

Both run with this interpreter, each with its own source and its own scripts. Of the tables that they print, the columns
of times and rates are compared, row by row; a row that only one of them has is left out. A ratio above 1 means that
this checkout is faster. Turns alternate, so that a busy machine slows down both.
"""

import argparse
import re
import shlex
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.measure import ROOT, users_environment
from rich.console import Console
from rich.table import Table

BENCHMARKS = (
    "metrics.py --quick",
    "rules.py --quick",
    "fast_models.py --sets sample --systems treelabel --repeats 2",
    "bulk.py --rows 100000 --repeats 2",
    "extreme.py bibtex --repeats 2",
)
UNITS = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "rows/s": 1.0}
# Columns of the tables that hold times or rates; units in the cells, or in the title.
COLUMNS = ("ours", "training s", "fit s", "documents/s", "us a document")
_CELL = re.compile(r"([\d,.]+(?:e[+-]?\d+)?) ?(\S+)?")

# What is measured, and the column.
Row = tuple[str, str]


def read_tables(output: str) -> dict[Row, tuple[float, bool]]:
    """Read times and rates, and whether more is better, from what a benchmark prints.

    >>> print_out = "┃ what ┃  ours ┃\\n│ hf1  │ 2 ms  │\\n│ of a │       │\\n│ tree │ 5 s   │"
    >>> read_tables(print_out)
    {('hf1 of a', 'ours'): (0.002, False), ('tree', 'ours'): (5.0, False)}
    """
    rows: list[tuple[list[str], list[str]]] = []
    titles: list[str] = []
    for line in output.splitlines():
        if "┃" in line:
            titles = [cell.strip() for cell in line.strip().strip("┃").split("┃")]
        elif "│" in line and titles:
            cells = [cell.strip() for cell in line.strip().strip("│").split("│")]
            if rows and len(cells) > 1 and not any(cells[1:]):
                rows[-1][1][0] += f" {cells[0]}"
            elif len(cells) == len(titles):
                rows.append((titles, cells))
    values: dict[Row, tuple[float, bool]] = {}
    for columns, cells in rows:
        for column, cell in zip(columns, cells, strict=True):
            match = _CELL.fullmatch(cell)
            if column in COLUMNS and match and (match[2] is None) != (column == "ours"):
                unit = match[2] or column.rpartition(" ")[2]
                if column != "ours" or unit in UNITS:
                    # Of bulk's rows, the seconds of all cores in brackets vary from run to run.
                    name = re.sub(r" \(.*\)", "", cells[0])
                    values[name, column] = float(match[1].replace(",", "")) * UNITS.get(unit, 1.0), "/s" in unit
    return values


def run(checkout: Path, command: str) -> str:
    """Run a benchmark of a checkout; one that misses a requirement has printed its tables all the same."""
    script, *options = shlex.split(command)
    ended = subprocess.run(
        [sys.executable, f"benchmarks/{script}", *options],
        cwd=checkout,
        env=users_environment(checkout / "src", checkout),
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    return ended.stdout


def best(turns: list[dict[Row, tuple[float, bool]]]) -> dict[Row, tuple[float, bool]]:
    """Return the best of several turns."""
    result: dict[Row, tuple[float, bool]] = {}
    for turn in turns:
        for row, (value, more) in turn.items():
            before = result.get(row, (value, more))[0]
            result[row] = (max if more else min)(before, value), more
    return result


def main() -> None:
    """Run both and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, help="a checkout of the other commit")
    parser.add_argument("benchmarks", nargs="*", help="scripts with their options, each in quotes")
    parser.add_argument("--turns", type=int, default=2, help="runs of each, of which the best counts")
    options = parser.parse_args()
    for command in options.benchmarks or BENCHMARKS:
        turns: list[tuple[str, str]] = []
        for turn in range(options.turns):
            both = {each: run(each, command) for each in sorted((options.before.resolve(), ROOT), reverse=turn % 2 > 0)}
            turns.append((both[options.before.resolve()], both[ROOT]))
        old, new = (best([read_tables(output) for output in outputs]) for outputs in zip(*turns, strict=True))
        table = Table(title=command, title_justify="left")
        for column in ("what", "before", "now", "times as fast"):
            table.add_column(column, justify="left" if column == "what" else "right")
        for row, (now, more) in new.items():
            if row in old and now and old[row][0]:
                before = old[row][0]
                ratio = now / before if more else before / now
                name = row[0] if row[1] == "ours" else f"{row[0]}, {row[1]}"
                table.add_row(name, f"{before:.4g}", f"{now:.4g}", f"{ratio:.2f}")
        Console(width=120).print(table)


if __name__ == "__main__":
    main()
