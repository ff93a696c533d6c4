"""Files of any size through `predict` and `score --top`: rows a second and peak memory, beside scikit-learn.

    python benchmarks/bulk.py                       # 1e5 and 1e6 rows; half an hour on two busy cores
    python benchmarks/bulk.py --rows 20000,100000   # smaller
    python benchmarks/bulk.py --markdown            # the table in Markdown too

Rows are texts of the embedded sample, drawn at random, in one CSV file with an id and a text. Both systems learn from
the whole sample, with the same n-grams, and go through the file in turns, each run a process of its own: `treelabel
predict` and `treelabel score --top 20`; and a pipeline of scikit-learn (TfidfVectorizer and LinearSVC) that reads the
file by chunks of 20,000 rows with pandas and writes the id and the label of each row to a CSV file. "words" are single
words; "default" is what treelabel chooses for the sample, words, pairs of words and characters, in both systems.

Claims: at least 3 times as many rows a second as scikit-learn with the default n-grams, on the larger file with single
words, too (on the smaller one, both are done before they have begun); start of the process and loading of the model are
included on both sides. And a peak of memory that is, from the smaller file to the larger, the same within 10%. Models
are loaded once before, so that compiled loops are in the cache. treelabel uses all cores, which LinearSVC and
TfidfVectorizer do not; the seconds of all cores are printed too.
"""

import argparse
import csv
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.measure import ROOT, Claim, report, seconds, users_environment

from treelabel import load_sample, write

LEAST = 3.0
MOST_GROWTH = 1.1
SETTINGS = {"words": ["--set", "ngram_range=(1, 1)", "--set", "char_ngram_range=None"], "default": []}

# What the peer learns once and keeps, as any user of it would.
FIT_PEER = """
import pickle, sys
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline, make_union
from sklearn.svm import LinearSVC
from treelabel import load_sample
data = load_sample()
words = TfidfVectorizer(sublinear_tf=True)
pairs = TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2))
characters = TfidfVectorizer(sublinear_tf=True, analyzer="char_wb", ngram_range=(4, 4))
features = words if sys.argv[1] == "words" else make_union(pairs, characters)
model = make_pipeline(features, LinearSVC()).fit(list(data.texts), [paths[0] for paths in data.paths()])
pickle.dump(model, open(sys.argv[2], "wb"))
"""
RUN_PEER = """
import pickle, sys
import pandas as pd
model = pickle.load(open(sys.argv[1], "rb"))
with open(sys.argv[3], "w") as stream:
    for at, chunk in enumerate(pd.read_csv(sys.argv[2], chunksize=20_000, dtype=str, keep_default_na=False)):
        found = pd.DataFrame({"id": chunk["id"], "label": model.predict(chunk["text"])})
        found.to_csv(stream, index=False, header=at == 0)
"""


@dataclass(frozen=True)
class Measured:
    """One run: seconds on the clock, seconds of all cores, and the peak of memory in megabytes."""

    clock: float
    cores: float
    megabytes: float


def write_rows(file: Path, count: int) -> None:
    """Write rows whose texts are drawn from the sample."""
    texts = np.array(list(load_sample().texts), object)
    rng = np.random.default_rng(0)
    with file.open("w", encoding="utf-8", newline="") as stream:
        lines = csv.writer(stream, lineterminator="\n")
        lines.writerow(["id", "text"])
        for start in range(0, count, 100_000):
            drawn = texts[rng.integers(0, len(texts), min(100_000, count - start))]
            lines.writerows((f"row{start + at}", text) for at, text in enumerate(drawn))


def measured(command: Sequence[str | Path]) -> Measured:
    """Run a command in a process of its own, which the system measures."""
    environment = users_environment(ROOT / "src", ROOT)
    started = time.perf_counter()
    process = subprocess.Popen(list(map(str, command)), env=environment, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    clock = time.perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, list(map(str, command)))
    return Measured(clock, used.ru_utime + used.ru_stime, _kilobytes(used) / 1000)


def _kilobytes(used: resource.struct_rusage) -> float:
    return used.ru_maxrss / 1000 if sys.platform == "darwin" else used.ru_maxrss


def prepare(folder: Path, counts: Sequence[int]) -> None:
    """Write the rows, and let both systems learn."""
    for count in counts:
        write_rows(folder / f"{count}.csv", count)
    write_rows(folder / "few.csv", 50)
    write(load_sample(), folder / "sample.jsonl")
    for name, settings in SETTINGS.items():
        model = folder / f"{name}.model"
        measured([sys.executable, "-m", "treelabel", "fit", folder / "sample.jsonl", "-o", model, *settings])
        measured([sys.executable, "-c", FIT_PEER, name, folder / f"{name}.pickle"])
        for command in commands(folder, name, "few").values():
            measured(command)


def commands(folder: Path, name: str, rows: str) -> dict[str, list[str | Path]]:
    """Return what is measured, by its title."""
    model, file, treelabel = folder / f"{name}.model", folder / f"{rows}.csv", [sys.executable, "-m", "treelabel"]
    return {
        "predict": [*treelabel, "predict", model, file, "-o", folder / "found.jsonl", "--force"],
        "predict to CSV": [*treelabel, "predict", model, file, "-o", folder / "found.csv", "--force"],
        "score --top 20": [*treelabel, "score", model, file, "-o", folder / "found.npz", "--top", "20", "--force"],
        "scikit-learn": [sys.executable, "-c", RUN_PEER, folder / f"{name}.pickle", file, folder / "peer.csv"],
    }


def claims_of(name: str, counts: Sequence[int], runs: dict[tuple[str, int], Measured]) -> list[Claim]:
    """Compare the runs with each other and with what is claimed."""
    found = []
    small, large = counts[0], counts[-1]
    for title in ("predict", "predict to CSV", "score --top 20"):
        for count in counts:
            ours, peer = runs[title, count], runs["scikit-learn", count]
            ratio = peer.clock / ours.clock
            is_claimed = name == "default" or (count == large and title != "predict to CSV")
            found.append(
                Claim(
                    f"{title}, {name}, {count:,} rows ({seconds(ours.cores)} of all cores, peer {seconds(peer.cores)})",
                    f"{count / ours.clock:,.0f} rows/s",
                    f"{count / peer.clock:,.0f} rows/s",
                    ratio,
                    f">= {LEAST:g}x" if is_claimed else "",
                    ratio >= LEAST if is_claimed else None,
                )
            )
        before, after = runs[title, small].megabytes, runs[title, large].megabytes
        found.append(
            Claim(
                f"{title}, {name}, peak memory",
                f"{before:,.0f} and {after:,.0f} MB",
                f"{runs['scikit-learn', large].megabytes:,.0f} MB",
                after / before,
                f"<= {MOST_GROWTH:g}x",
                after <= MOST_GROWTH * before,
            )
        )
    return found


def main() -> None:
    """Measure all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="100000,1000000", help="rows of the files, comma-separated, ascending")
    parser.add_argument("--features", default=",".join(SETTINGS), help="words, default or both")
    parser.add_argument("--repeats", type=int, default=1, help="turns, of which the best time counts")
    parser.add_argument("--markdown", action="store_true", help="print the table in Markdown too")
    asked = parser.parse_args()
    counts = [int(count) for count in asked.rows.split(",")]
    claims: list[Claim] = []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        prepare(folder, counts)
        for name in asked.features.split(","):
            runs: dict[tuple[str, int], Measured] = {}
            for count in counts:
                for _ in range(asked.repeats):
                    for title, command in commands(folder, name, str(count)).items():
                        run = measured(command)
                        best = runs.get((title, count), run)
                        runs[title, count] = min(best, run, key=lambda each: each.clock)
                        print(f"{name}, {count:,} rows, {title}: {run}", file=sys.stderr, flush=True)
            claims += claims_of(name, counts, runs)
    kept = report("Files of any size", claims)
    if asked.markdown:
        for claim in claims:
            print(f"| {claim.what} | {claim.ours} | {claim.peer} | {claim.ratio:.1f} |")
    sys.exit(0 if kept else 1)


if __name__ == "__main__":
    main()
