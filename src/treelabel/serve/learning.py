"""Learning from the journal, in a process of its own: `python -m treelabel.serve.learning` reads what to do as JSON."""

import json
import math
import sys
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from treelabel.core.errors import TreelabelError
from treelabel.core.locking import remove_tree
from treelabel.data.dataset import Dataset
from treelabel.data.read import read
from treelabel.evaluation.comparison import compare_results
from treelabel.evaluation.evaluator import evaluate
from treelabel.models.base import Model
from treelabel.models.growth import GrowingModel
from treelabel.models.persistence.load import load_model
from treelabel.models.streaming import decided_batches
from treelabel.operations.update import update_model
from treelabel.serve.journal import read_journal
from treelabel.serve.versions import VersionNote, version_of


@dataclass(frozen=True)
class LearningTask:
    """The model folder to learn on top of, the journal, which lines of it the model knows, and where to write."""

    model: str
    journal: str
    lines: int
    known_lines: int
    output: str
    train: str | None = None
    evaluation: str | None = None


def learn(task: LearningTask) -> VersionNote:
    """Make another version of a model from the corrections in its journal.

    Models that grow take in the corrections that they do not know yet; others learn anew from the training data and
    all corrections, which take the place of training documents of the same text. Of several corrections of a text, the
    last one counts; those without a label teach nothing.

    Parameters
    ----------
    task
        Paths and counts.

    Returns
    -------
    VersionNote
        The version, which is in its folder under `output`.
    """
    model = load_model(task.model)
    entries = read_journal(Path(task.journal), task.lines)
    grows = isinstance(model, GrowingModel) and task.train is None
    corrections = _last_corrections(entries[task.known_lines :] if grows else entries)
    if not corrections:
        raise TreelabelError("the journal has no corrections with a label that the model does not know already")
    if grows:
        made = update_model(model, list(corrections), list(corrections.values()), progress=False)
    else:
        made = _learn_anew(model, corrections, task.train)
    working = Path(task.output, f".{datetime.now(UTC):%Y%m%d%H%M%S%f}")
    made.save(working)
    version = version_of(working)
    note = VersionNote(
        version, version_of(Path(task.model)), task.lines, len(corrections), datetime.now(UTC).isoformat()
    )
    if task.evaluation is not None:
        note = _judge(note, model, made, Path(task.evaluation))
    made_before = Path(task.output, version)
    if made_before.is_dir():
        # The same corrections make the same version.
        remove_tree(working)
    else:
        working.rename(made_before)
    return note


def _last_corrections(entries: list[dict[str, Any]]) -> dict[str, list[str]]:
    corrected = {entry["text"]: entry["labels"] for entry in entries}
    return {text: labels for text, labels in corrected.items() if labels}


def _learn_anew(model: Model, corrections: dict[str, list[str]], train: str | None) -> Model:
    if train is None:
        raise TreelabelError(
            f"the model {model.name} has to learn everything anew, and its training data are not known; start the "
            "service with --train FILE"
        )
    data = read_like(model, Path(train))
    kept = data[[row for row, text in enumerate(data.texts) if text not in corrections]]
    return update_model(model, list(corrections), list(corrections.values()), train=kept, progress=False)


def read_like(model: Model, file: Path, need_labels: bool = True) -> Dataset:
    """Read a file as the training data of a model were read.

    Parameters
    ----------
    model
        Its labels are those of the file.
    file
        A data file of any format.
    need_labels
        Whether it must have labels.

    Returns
    -------
    Dataset
    """
    reading: dict[str, Any] = {name: value for name, value in model.reading_.items() if name != "format"}
    usual: dict[str, Any] = {name: reading.pop(name) for name in ("text", "labels", "id") if name in reading}
    return read(file, taxonomy=model.hierarchy_, usual=usual, need_labels=need_labels, progress=False, **reading)


def _judge(note: VersionNote, before: Model, after: Model, file: Path) -> VersionNote:
    """Compare two models on labelled documents; the new one passes unless it is worse beyond chance."""
    truth = read_like(before, file)
    results = {
        name: evaluate(
            truth,
            decisions=next(decided_batches(model, [(truth, None)])).decisions,
            hierarchy=model.hierarchy_,
            metrics=["hf1", "micro_f1"],
        )
        for name, model in (("before", before), ("after", after))
    }
    change = compare_results(results, ["hf1"]).metrics[0].differences[0]
    measured = {name: float(result["hf1"]) for name, result in results.items()}
    measured |= {"difference": change.difference, "low": change.low, "high": change.high, "documents": len(truth)}
    finite = {name: value for name, value in measured.items() if math.isfinite(value)}
    # Without an interval, as of a single document, nothing shows that it is worse.
    return replace(note, passed=not change.high < 0, evaluation=finite)


def main() -> int:
    """Do what standard input says; print the note of the version, or what is wrong."""
    try:
        note = learn(LearningTask(**json.load(sys.stdin)))
    except TreelabelError as error:
        sys.stdout.write(json.dumps({"error": str(error)}))
        return 2
    sys.stdout.write(json.dumps(asdict(note)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
