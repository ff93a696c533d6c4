"""How benchmarks measure and report: best of several runs, growth of peak memory, one table of claims."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[1]

Result = TypeVar("Result")


def users_environment(*folders: Path, **more: str) -> dict[str, str]:
    """Return the environment of a process that finds modules in these folders, and keeps their bytecode as usual."""
    usual = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return usual | {"PYTHONPATH": os.pathsep.join(map(str, folders))} | more


def best_of(repeats: int, work: Callable[[], Result]) -> tuple[float, Result]:
    """Time `work` several times; give the best time in seconds and the last result."""
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        result = work()
        times.append(time.perf_counter() - started)
    return min(times), result


def best_of_each(repeats: int, *works: Callable[[], Result]) -> list[tuple[float, Result]]:
    """Time several works in turn, so that a busy machine slows down all alike; give each one's best time and result."""
    turns = [[best_of(1, work) for work in works] for _ in range(repeats)]
    return [(min(took for took, _ in column), column[-1][1]) for column in zip(*turns, strict=True)]


def peak_growth(prepare: str, call: str) -> float:
    """Run code in a fresh process and give the megabytes by which `call` raises the peak of its memory.

    Peak resident memory is reset after `prepare`, so what that leaves behind does not count, and what it freed does not
    hide anything. Needs Linux.
    """
    code = f"""
import ctypes, gc, re
{prepare}
gc.collect()
ctypes.CDLL(None).malloc_trim(0)
def kilobytes(key):
    return int(re.search(key + r":\\s+(\\d+)", open("/proc/self/status").read())[1])
open("/proc/self/clear_refs", "w").write("5")
before = kilobytes("VmRSS")
{call}
print((kilobytes("VmHWM") - before) / 1000)
"""
    folder = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=folder, check=True, stdout=subprocess.PIPE, text=True)
    return float(done.stdout)


@dataclass(frozen=True)
class Claim:
    """One line of the report: our number, the peer's, how many times ours is better, what is required, and if kept."""

    what: str
    ours: str
    peer: str = ""
    ratio: float | None = None
    required: str = ""
    kept: bool | None = None

    @classmethod
    def faster(cls, what: str, ours: float, peer_name: str, peer: float, least: float) -> "Claim":
        """Claim that seconds of ours are at least `least` times fewer than the peer's."""
        ratio = peer / ours
        return cls(what, seconds(ours), f"{peer_name} {seconds(peer)}", ratio, f">= {least:,g}x", ratio >= least)

    @classmethod
    def at_most(cls, what: str, megabytes: float, limit: float) -> "Claim":
        """Claim that something takes at most so many megabytes."""
        return cls(what, f"{megabytes:,.0f} MB", required=f"< {limit:,g} MB", kept=megabytes < limit)


def seconds(value: float) -> str:
    """Write a time with its unit.

    >>> seconds(2.5), seconds(0.0123), seconds(3.2e-7)
    ('2.5 s', '12.3 ms', '320 ns')
    """
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if value >= size:
            return f"{value / size:.3g} {unit}" if value < 100 * size else f"{value / size:,.0f} {unit}"
    return f"{value * 1e9:.0f} ns"


def report(title: str, claims: list[Claim]) -> bool:
    """Print claims as a table; return whether all required ones are kept."""
    table = Table(title=title, title_justify="left")
    for column in ("what", "ours", "peer", "ratio", "required", ""):
        table.add_column(column, justify="left" if column == "what" else "right")
    for claim in claims:
        ratio = "" if claim.ratio is None else f"{claim.ratio:,.1f}x"
        verdict = "" if claim.kept is None else "ok" if claim.kept else "MISSED"
        table.add_row(claim.what, claim.ours, claim.peer, ratio, claim.required, verdict)
    Console(width=120 if not sys.stdout.isatty() else None).print(table)
    return all(claim.kept is not False for claim in claims)
