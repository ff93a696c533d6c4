"""Predict the labels of a Daft data frame: batches of a column go through the scorer, which each process makes once."""

import sys
import tempfile
from pathlib import Path

import daft
import pyarrow as pa

import treelabel as tl


@daft.cls
class Labels:
    """The most specific label of each text."""

    def __init__(self, model: str) -> None:
        self.scorer = tl.BatchScorer(model)

    @daft.method.batch(return_dtype=daft.DataType.string())  # type: ignore[untyped-decorator]
    def predict(self, texts: daft.Series) -> pa.Array:
        """Predict a batch."""
        column = self.scorer(pa.table({"text": texts.to_arrow()})).column("predicted")
        return column.combine_chunks().cast(pa.large_string())


def main(folder: Path) -> None:
    """Fit a small model, save it, and let Daft map it over a column."""
    texts = ["woof", "meow", "moo"] * 20
    labels = ["pet > dog", "pet > cat", "farm > cow"] * 20
    tl.fit(texts, labels, preset="fast").save(folder / "model")
    frame = daft.from_pydict({"id": [f"d{row}" for row in range(6)], "text": texts[:6]})
    result = frame.with_column("predicted", Labels(str(folder / "model")).predict(frame["text"])).to_pydict()
    for name, label in zip(result["id"], result["predicted"], strict=True):
        print(name, label)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(made))
