"""Predict the labels of a Spark data frame with mapInArrow: record batches in, record batches out."""

import os
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

import treelabel as tl


def main(folder: Path) -> None:
    """Fit a small model, save it, and let Spark map it over a frame."""
    texts = ["woof", "meow", "moo"] * 20
    labels = ["pet > dog", "pet > cat", "farm > cow"] * 20
    tl.fit(texts, labels, preset="fast").save(folder / "model")
    scorer = tl.BatchScorer(folder / "model")
    # Workers run this Python, and not any python3.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = SparkSession.builder.appName("labels").getOrCreate()
    frame = spark.createDataFrame([(f"d{row}", texts[row]) for row in range(6)], "id string, text string")
    schema = from_arrow_schema(scorer.schema(pa.schema({"id": pa.string(), "text": pa.string()})))
    for row in frame.mapInArrow(scorer.map_batches, schema).orderBy("id").collect():
        print(row["id"], row["predicted"])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(made))
