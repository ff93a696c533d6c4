"""The long attack: damaged input, kills, full disks, two writers, readers and signals, counted with required zeros.

    python benchmarks/torture.py                       # some ten minutes; exits with 1 if a zero is not one
    python benchmarks/torture.py --only kills,disk     # parts of it: mutants, kills, disk, writers, reader, signals
    python benchmarks/torture.py --mutants 50 --kills 4 --writers 4 --saves 10 --signals 1   # a minute or two
    python benchmarks/torture.py --only kills --scenes split --kills 2   # what the tests run
    python benchmarks/torture.py --replay 1234         # one mutant by its seed, with the traceback

On two cores 6,000 mutants take 2 to 3 minutes, 200 kills at random and 94 before changes of files 4,
everything else and the preparation of good files 2; the first run compiles for some minutes more. Full disks need the
right to mount (root); without it they are counted as not run. Needs Linux.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.attacks import disk, kills, mutants, processes, signals, writers
from benchmarks.attacks.counts import Counts, report, say
from benchmarks.attacks.scenes import SCENES, Stage

ATTACKS: dict[str, Callable[[Stage, argparse.Namespace], Counts]] = {
    "mutants": lambda stage, options: mutants.attack(stage.folder / "mutants", options.mutants, options.seed),
    "kills": lambda stage, options: kills.attack(stage, options.kills, options.seed),
    "disk": lambda stage, options: disk.attack(stage),
    "writers": lambda stage, options: writers.attack_by_two(stage, options.writers, options.seed),
    "reader": lambda stage, options: writers.attack_by_reader(stage, options.saves),
    "signals": lambda stage, options: signals.attack(stage, options.signals, options.seed),
}


def parsed() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(ATTACKS), help="attacks, separated by commas")
    parser.add_argument("--scenes", default=",".join(SCENES), help="commands to attack, separated by commas")
    parser.add_argument("--mutants", type=int, default=6000, help="damaged inputs")
    parser.add_argument("--kills", type=int, default=200, help="kills at random moments")
    parser.add_argument("--writers", type=int, default=200, help="rounds of two writers")
    parser.add_argument("--saves", type=int, default=300, help="saves under the eyes of readers")
    parser.add_argument("--signals", type=int, default=20, help="each of SIGTERM and Ctrl-C at random moments")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--replay", type=int, metavar="SEED", help="one mutant, in this process")
    options = parser.parse_args()
    options.only = options.only.split(",")
    unknown = [name for name in options.only if name not in ATTACKS]
    if unknown:
        parser.error(f"--only {unknown[0]}: there are {', '.join(ATTACKS)}")
    return options


def main() -> int:
    """Attack, report, and say whether all required zeros are zero."""
    options = parsed()
    processes.preload()
    found: list[Counts] = []
    with tempfile.TemporaryDirectory(prefix="torture-") as folder:
        stage = Stage(Path(folder).resolve())
        if options.replay is not None:
            return mutants.replay(stage.folder / "mutants", options.replay)
        if options.only != ["mutants"]:
            say("making good outputs of every command")
            stage.make([SCENES[name] for name in options.scenes.split(",")])
        for name in options.only:
            began = time.perf_counter()
            found.append(ATTACKS[name](stage, options))
            found[-1].seconds = time.perf_counter() - began
            say(f"{name}: {found[-1].seconds:,.0f} s, {'clean' if found[-1].is_clean else 'FOUND something'}")
    return 0 if report(found) else 1


if __name__ == "__main__":
    sys.exit(main())
