"""First use: sample, fit and predict from an empty cache of compiled loops, against another checkout (required: half).

    git worktree add ../before a4577d4
    python benchmarks/first_use.py --baseline ../before              # some minutes; exits with 1 if it is missed
    python benchmarks/first_use.py --baseline ../before --repeats 5

Both take turns, each time in a new folder and with a new cache (NUMBA_CACHE_DIR); the best of each counts. Seconds of
the processor are those of all processes together: what a second process saves of the time, it does not save there.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.measure import ROOT, Claim, report, users_environment

# Half of the time is twice as fast.
LEAST = 2.0
COMMANDS = (
    ("sample", "nouns.csv"),
    ("fit", "nouns.csv", "-o", "model"),
    ("predict", "model", "nouns.csv", "-o", "p.jsonl"),
)


@dataclass(frozen=True)
class Walk:
    """The seconds that each command took, and those of the processor for all."""

    seconds: tuple[float, ...]
    processor: float
    predictions: bytes


def walk(checkout: Path) -> Walk:
    """Run the commands of a checkout in a new folder with an empty cache."""
    with tempfile.TemporaryDirectory() as folder:
        environment = users_environment(checkout / "src", NUMBA_CACHE_DIR=f"{folder}/compiled")
        before, seconds = _processor(), []
        for command in COMMANDS:
            started = time.perf_counter()
            subprocess.run(
                [sys.executable, "-m", "treelabel", *command],
                cwd=folder,
                env=environment,
                check=True,
                capture_output=True,
            )
            seconds.append(time.perf_counter() - started)
        return Walk(tuple(seconds), _processor() - before, Path(folder, "p.jsonl").read_bytes())


def _labels(predictions: bytes) -> list[list[str]]:
    """The labels of each document; probabilities are left out, as a loop from the cache may round in another way."""
    return [[label["path"] for label in json.loads(line)["labels"]] for line in predictions.splitlines()]


def _processor() -> float:
    """The processor's seconds of all processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> int:
    """Measure, print, and return 1 if the claim does not hold."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--baseline", type=Path, required=True, help="a checkout to compare with")
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    if not (given.baseline / "src" / "treelabel").is_dir():
        parser.error(f"{given.baseline}: no checkout of treelabel, which has src/treelabel")
    turns = [(walk(given.baseline.resolve()), walk(ROOT)) for _ in range(given.repeats)]
    before, now = (min(column, key=lambda each: sum(each.seconds)) for column in zip(*turns, strict=True))
    claim = Claim.faster("sample, fit, predict", sum(now.seconds), "before", sum(before.seconds), LEAST)
    ok = report("First use, from an empty cache", [claim])
    for command, one, other in zip(COMMANDS, now.seconds, before.seconds, strict=True):
        print(f"  {command[0]:<8} {one:6.1f} s, before {other:6.1f} s")
    least = [min(each.processor for each in column) for column in zip(*turns, strict=True)]
    print(f"  processor {least[1]:5.1f} s, before {least[0]:6.1f} s: {least[1] / least[0]:.2f} of it")
    pairs = list(zip(_labels(now.predictions), _labels(before.predictions), strict=True))
    print(f"  {sum(a == b for a, b in pairs):,} of {len(pairs):,} documents have the same labels")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
