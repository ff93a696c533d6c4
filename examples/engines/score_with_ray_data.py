"""Predict the labels of a Ray dataset with map_batches: actors that load the model once."""

import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import ray

import treelabel as tl


def main(folder: Path) -> None:
    """Fit a small model, save it, and let Ray Data map it over batches."""
    texts = ["woof", "meow", "moo"] * 20
    labels = ["pet > dog", "pet > cat", "farm > cow"] * 20
    tl.fit(texts, labels, preset="fast").save(folder / "model")
    frame = ray.data.from_arrow(pa.table({"id": [f"d{row}" for row in range(6)], "text": texts[:6]}))
    # Whole CPUs for actors, and at least one more for reading: with fractions on small nodes, nothing would ever start.
    scored = frame.map_batches(
        tl.BatchScorer,
        fn_constructor_args=(str(folder / "model"),),
        batch_format="pyarrow",
        num_cpus=1,
        compute=ray.data.ActorPoolStrategy(size=1),
    )
    for row in sorted(scored.take_all(), key=lambda each: each["id"]):
        print(row["id"], row["predicted"])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(made))
