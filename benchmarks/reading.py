"""Reading a million short rows: memory against the file's size (required: under 4 times), and speed beside pandas.

    python benchmarks/reading.py [--rows N]

Every file is read in a process of its own, so that one peak does not hide another. Exits with 1 if memory is missed.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

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


def memory(what: str) -> int:
    """Read this process's memory in bytes from Linux: VmRSS, or its peak VmHWM."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(what + ":")) * 1024


def measure(reader: str, path: Path) -> dict[str, float]:
    """Read one file in this process: seconds, memory after the imports, and the peak."""
    read: Callable[[Path], object]
    if reader == "treelabel":
        import treelabel

        read = treelabel.read
    else:
        import pandas

        read = pandas.read_csv if path.suffix == ".csv" else lambda file: pandas.read_json(file, lines=True)
    before = memory("VmRSS")
    start = time.perf_counter()
    kept = read(path)
    seconds = time.perf_counter() - start
    return {"rows": len(kept), "seconds": seconds, "before": before, "peak": memory("VmHWM")}  # type: ignore[arg-type]


def measured(reader: str, path: Path) -> dict[str, float]:
    """Measure in a fresh process."""
    command = [sys.executable, __file__, "--measure", reader, str(path)]
    result: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return result


def report(path: Path, count: int) -> bool:
    """Print how one file was read, and tell whether memory stayed in bounds."""
    own, peer = measured("treelabel", path), measured("pandas", path)
    if own["rows"] != count:
        raise RuntimeError(f"{path}: {own['rows']} rows read, {count} written")
    size = path.stat().st_size
    grown, peer_grown = own["peak"] - own["before"], peer["peak"] - peer["before"]
    good = grown < MOST * size
    print(f"{path.suffix[1:]}: {count:,} rows, {size / 1e6:.0f} MB")
    print(
        f"  memory grows by {grown / 1e6:.0f} MB = {grown / size:.2f} x the file "
        f"({'under' if good else 'NOT UNDER'} {MOST:g} x, as required); "
        f"whole process {own['peak'] / 1e6:.0f} MB = {own['peak'] / size:.2f} x"
    )
    print(f"  {own['seconds']:.1f} s, {count / own['seconds']:,.0f} rows a second")
    print(
        f"  pandas: {peer['seconds']:.1f} s and {peer_grown / 1e6:.0f} MB more "
        f"(whole process {peer['peak'] / 1e6:.0f} MB); treelabel takes {own['seconds'] / peer['seconds']:.2f} x "
        f"the time and {grown / peer_grown:.2f} x the memory"
    )
    return good


def main() -> int:
    """Write the files, read them, and say whether the requirement holds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--measure", nargs=2, metavar=("READER", "FILE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure is not None:
        print(json.dumps(measure(options.measure[0], Path(options.measure[1]))))
        return 0
    good = True
    with tempfile.TemporaryDirectory() as folder:
        for ending, write in WRITERS.items():
            path = Path(folder, f"rows.{ending}")
            write(path, options.rows)
            good &= report(path, options.rows)
            path.unlink()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
