"""Predict the labels of a Dask data frame: one call of the scorer per partition, the model loaded once per process."""

import sys
import tempfile
from pathlib import Path

import dask.dataframe as dd
import pandas as pd
import pyarrow as pa

import treelabel as tl


def main(folder: Path) -> None:
    """Fit a small model, save it, and let Dask map it over the partitions of a frame."""
    texts = ["woof", "meow", "moo"] * 20
    labels = ["pet > dog", "pet > cat", "farm > cow"] * 20
    tl.fit(texts, labels, preset="fast").save(folder / "model")
    scorer = tl.BatchScorer(folder / "model")

    def predict(part: pd.DataFrame) -> pd.DataFrame:
        return scorer(pa.Table.from_pandas(part, preserve_index=False)).to_pandas()

    # What no row looks like: Dask asks for the columns beforehand.
    meta = predict(pd.DataFrame({"id": pd.Series(dtype=str), "text": pd.Series(dtype=str)}))
    frame = dd.from_pandas(pd.DataFrame({"id": [f"d{row}" for row in range(6)], "text": texts[:6]}), npartitions=3)
    result = frame.map_partitions(predict, meta=meta).compute(scheduler="processes")
    print(result[["id", "predicted"]].to_string(index=False))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(made))
