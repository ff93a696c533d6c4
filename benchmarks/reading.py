"""Reading a million short rows: memory against the file's size (required: under 4 times), and speed beside pandas.

    python benchmarks/reading.py             # half a minute; exits with 1 if memory is missed
    python benchmarks/reading.py --rows N    # few rows say little: what is loaded along the way counts, too

Every file is read in a process of its own. Memory is what the peak of that process grows beyond what it holds once its
packages are imported; the whole process is printed beside it. pandas only splits rows into columns, while treelabel
also finds labels, makes the hierarchy, and knows the line of everything that is wrong.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sized
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.measure import Claim, report, seconds

MOST = 4.0
SEED = 0
WORDS = 4000
LABELS = [f"top {a} > middle {a}{b} > leaf {a}{b}{c}" for a in range(8) for b in range(6) for c in range(7)]


def rows(count: int) -> Iterator[tuple[str, str]]:
    """Make (text, label path) pairs: texts of 60 to 120 bytes, labels unevenly used."""
    rng = np.random.default_rng(SEED)
    words = ["".join(map(chr, rng.integers(97, 123, size))) for size in rng.integers(3, 12, WORDS)]
    halves = [" ".join(words[at] for at in rng.integers(0, WORDS, size)) for size in rng.integers(4, 7, 20000)]
    for start in range(0, count, 100_000):
        size = min(100_000, count - start)
        left, right = rng.integers(0, len(halves), (2, size)).tolist()
        label = (len(LABELS) * rng.random(size) ** 2).astype(int).tolist()
        for one, two, which in zip(left, right, label, strict=True):
            yield f"{halves[one]}, {halves[two]}", LABELS[which]


def write_csv(path: Path, count: int) -> None:
    """Write the rows as CSV."""
    with path.open("w") as stream:
        stream.write("text,category\n")
        stream.writelines(f'"{text}",{label}\n' for text, label in rows(count))


def write_jsonl(path: Path, count: int) -> None:
    """Write the rows as JSON Lines."""
    with path.open("w") as stream:
        stream.writelines(json.dumps({"text": text, "category": label}) + "\n" for text, label in rows(count))


WRITERS: dict[str, Callable[[Path, int], None]] = {"csv": write_csv, "jsonl": write_jsonl}


@dataclass(frozen=True)
class Measured:
    """What one reading took: seconds, and bytes of memory before it, at its peak, and in the whole process."""

    rows: int
    seconds: float
    before: int
    peak: int

    @property
    def grown(self) -> int:
        """Bytes by which reading raised the peak."""
        return self.peak - self.before


def memory(what: str) -> int:
    """Read this process's memory in bytes from Linux: VmRSS, or its peak VmHWM."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(what + ":")) * 1024


def measure(reader: str, path: Path) -> Measured:
    """Read one file in this process."""
    read: Callable[[Path], Sized]
    if reader == "treelabel":
        import treelabel

        read = treelabel.read
    else:
        import pandas as pd

        read = pd.read_csv if path.suffix == ".csv" else lambda file: pd.read_json(file, lines=True)
    before = memory("VmRSS")
    start = time.perf_counter()
    kept = read(path)
    return Measured(len(kept), time.perf_counter() - start, before, memory("VmHWM"))


def in_new_process(reader: str, path: Path) -> Measured:
    """Measure where nothing else has been done before."""
    command = [sys.executable, __file__, "--measure", reader, str(path)]
    return Measured(**json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout))


def claims(path: Path, count: int) -> list[Claim]:
    """Compare both readers on one file."""
    own, peer = in_new_process("treelabel", path), in_new_process("pandas", path)
    if (own.rows, peer.rows) != (count, count):
        raise RuntimeError(f"{path}: {count} rows written, treelabel read {own.rows} and pandas {peer.rows}")
    size, name = path.stat().st_size, path.suffix[1:]

    def megabytes(value: int) -> str:
        return f"{value / 1e6:,.0f} MB, {value / size:.2f}x file"

    return [
        Claim(
            f"{name}, {size / 1e6:,.0f} MB: memory",
            megabytes(own.grown),
            f"pandas {megabytes(peer.grown)}",
            peer.grown / own.grown,
            f"< {MOST:g}x file",
            own.grown < MOST * size,
        ),
        Claim(f"{name}: whole process", megabytes(own.peak), f"pandas {megabytes(peer.peak)}", peer.peak / own.peak),
        Claim(
            f"{name}: time",
            f"{seconds(own.seconds)}, {count / own.seconds:,.0f} rows/s",
            f"pandas {seconds(peer.seconds)}, {own.seconds / peer.seconds:.1f}x as fast",
        ),
    ]


def main() -> int:
    """Write the files, read them, and say whether the requirement holds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--measure", nargs=2, metavar=("READER", "FILE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure is not None:
        print(json.dumps(asdict(measure(options.measure[0], Path(options.measure[1])))))
        return 0
    found: list[Claim] = []
    with tempfile.TemporaryDirectory() as folder:
        for ending, write in WRITERS.items():
            path = Path(folder, f"rows.{ending}")
            write(path, options.rows)
            found += claims(path, options.rows)
            path.unlink()
    return 0 if report(f"Reading {options.rows:,} rows", found) else 1


if __name__ == "__main__":
    sys.exit(main())
