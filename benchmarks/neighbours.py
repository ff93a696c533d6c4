"""Nearest neighbours of embeddings: our exact search beside faiss, exact and approximate (HNSW, inverted lists).

    pip install faiss-cpu
    python benchmarks/neighbours.py                         # 100,000 and 600,000 titles of yso
    python benchmarks/neighbours.py --rows 50000 --queries 1000

Rows are training titles of yso, queries are test titles, both embedded once with static vectors (potion, or --encoder).
Every system gets two threads. "build" is what an index takes before the first query, which exact search does not need;
"recall" is the share of the 50 nearest rows that are found. The last column says how many queries it takes until an
index has saved the time of building it: the evidence for and against one in the model `memory`.
"""

import argparse
import gzip
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.measure import ROOT, best_of
from rich.console import Console
from rich.table import Table

from treelabel.core.matrices import normalize_rows
from treelabel.encoders.registry import find_encoder
from treelabel.models.neighbours import DenseStore

DATA = ROOT.parent / "shared" / "data" / "yso_finna_en"
NEAREST = 50


def titles(name: str, most: int) -> list[str]:
    """Read some titles."""
    with gzip.open(DATA / name, "rt", encoding="utf-8") as lines:
        return [json.loads(line)["text"] for _, line in zip(range(most), lines, strict=False)]


def embedded(encoder: Any, texts: list[str]) -> Any:
    """Embed texts as vectors of length 1."""
    return np.ascontiguousarray(normalize_rows(encoder.transform(texts)), np.float32)


def indices(width: int, rows: int) -> dict[str, Callable[[], Any]]:
    """Return what makes each index of faiss."""
    import faiss

    faiss.omp_set_num_threads(2)
    inner = faiss.METRIC_INNER_PRODUCT
    lists = int(4 * rows**0.5)
    return {
        "faiss, exact": lambda: faiss.IndexFlatIP(width),
        "faiss, HNSW 16": lambda: faiss.IndexHNSWFlat(width, 16, inner),
        f"faiss, {lists:,} lists": lambda: faiss.index_factory(width, f"IVF{lists},Flat", inner),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", default="100000,600000", help="stored rows, comma-separated")
    parser.add_argument("--queries", type=int, default=2000)
    parser.add_argument("--encoder", default="potion")
    asked = parser.parse_args()
    counts = [int(count) for count in asked.rows.split(",")]
    encoder = find_encoder(asked.encoder)
    stored, queries = (
        embedded(encoder, titles(name, most))
        for name, most in (("train.jsonl.gz", max(counts)), ("test.jsonl.gz", asked.queries))
    )
    table = Table(title=f"The {NEAREST} nearest of {len(queries):,} queries, dimension {stored.shape[1]}")
    for column in ("rows", "system", "build", "queries/s", "recall", "pays from"):
        table.add_column(column, justify="left" if column == "system" else "right")
    for count in counts:
        rows = stored[:count]
        ours = DenseStore(rows.astype(np.float16))
        seconds, exact = best_of(2, lambda ours=ours: ours.nearest(queries, NEAREST))  # type: ignore[misc]
        table.add_row(f"{count:,}", "treelabel, exact", "0 s", f"{len(queries) / seconds:,.0f}", "1.000", "")
        for title, make in indices(rows.shape[1], count).items():
            started = time.perf_counter()
            index = make()
            if not index.is_trained:
                index.train(rows)
            index.add(rows)
            build = time.perf_counter() - started
            if "HNSW" in title:
                index.hnsw.efSearch = 128
            elif "lists" in title:
                index.nprobe = 32
            took, (_, found) = best_of(2, lambda index=index: index.search(queries, NEAREST))  # type: ignore[misc]
            recall = np.mean([len(np.intersect1d(a, b)) for a, b in zip(found, exact.rows, strict=True)]) / NEAREST
            saved = (seconds - took) / len(queries)
            pays = "" if "exact" in title else f"{build / saved:,.0f} queries" if saved > 0 else "never"
            table.add_row("", title, f"{build:.0f} s", f"{len(queries) / took:,.0f}", f"{recall:.3f}", pays)
    Console().print(table)


if __name__ == "__main__":
    main()
