"""Judge a model on many test files, each a shard: what is found of each is stored, and merged to what one pass finds.

First the labels of all files are listed, as those that the model has never seen belong to the hierarchy of every
shard. Then each file is judged. Both are parts with markers, so a run that was killed goes on where it was.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, reduce
from operator import or_
from pathlib import Path
from typing import Any

from treelabel.cluster.shards import Engine, is_done, plan_shards, refuse_failures, run_shards
from treelabel.core.json_text import read_json
from treelabel.data.data_file import DataFile
from treelabel.data.documents import Extra
from treelabel.evaluation.alignment import Answered
from treelabel.evaluation.judging_state import load_state, save_state
from treelabel.evaluation.streaming import Judged, Judging, Question, Survey
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.label_ids import Label
from treelabel.hierarchy.union import with_paths
from treelabel.models.base import Model
from treelabel.models.persistence.store import package_version
from treelabel.models.streaming import batch_size, decided_batches
from treelabel.operations.batch_scorer import BatchScorer, folder_stamp
from treelabel.rules.tuned_rule import column_of

LABELS = "_labels"
# New labels, as the names from the top on.
Paths = tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class RowCounts:
    """The documents of a shard, and how many of these are empty."""

    rows: int
    empty: int = 0


@dataclass(frozen=True)
class LabelJob:
    """A test file whose labels are listed."""

    texts: Path
    # Options of `DataFile.of`.
    reading: Mapping[str, Any]
    output: Path

    @property
    def model_folder(self) -> Path | None:
        """Labels need no model."""
        return None

    def about(self) -> dict[str, Any]:
        """Tell which file was read, and how."""
        status = self.texts.stat()
        source = f"{self.texts}, {status.st_size} bytes, {status.st_mtime_ns}"
        return {"input": source, "option of reading": repr(dict(self.reading)), "treelabel": package_version()}

    def to(self, output: Path) -> "LabelJob":
        """Return the same job with another output."""
        return replace(self, output=output)

    def run(self) -> RowCounts:
        """Write the labels in the order in which they turn up, with the number of their documents."""
        counts = DataFile.of(self.texts, progress=False, **self.reading).labels()
        self.output.write_text(json.dumps(list(counts.items())), encoding="utf-8")
        return RowCounts(sum(counts.values()))


@dataclass(frozen=True)
class JudgeJob:
    """A test file that a model is judged on, under its hierarchy and the labels that are new in any of the files."""

    scorer: BatchScorer
    texts: Path
    reading: Mapping[str, Any]
    output: Path
    question: Question
    new_labels: Paths = ()

    @property
    def model_folder(self) -> Path | None:
        """The folder of the model."""
        return self.scorer.folder

    def about(self) -> dict[str, Any]:
        """Tell what was judged, and how."""
        stamp = () if self.scorer.folder is None else folder_stamp(self.scorer.folder)
        made_of = {"model": hashlib.sha256(repr(stamp).encode()).hexdigest()[:16], **asdict(self.question)}
        new = hashlib.sha256(repr(self.new_labels).encode()).hexdigest()[:16]
        return {**LabelJob(self.texts, self.reading, self.output).about(), **made_of, "new labels": new}

    def to(self, output: Path) -> "JudgeJob":
        """Return the same job with another output."""
        return replace(self, output=output)

    def begin(self) -> Judging:
        """Return what judges, before it has seen a document."""
        model = self.scorer.model
        h = extended_hierarchy(model.hierarchy_, self.new_labels)
        known = training_survey(model, h)
        rule = model.default_rule if self.question.rule is None else self.question.rule
        return Judging.begin(replace(self.question, rule=rule), known.context(), known, None)

    def run(self) -> RowCounts:
        """Judge the file, and write what was found."""
        judging, model = self.begin(), self.scorer.model
        h = judging.evaluator.hierarchy
        data = DataFile.of(self.texts, progress=False, **self.reading)
        columns: Extra = "none" if column_of(self.question.rule) is None else "others"
        batches = ((batch, batch) for batch in data.batches(h, batch_size(len(h)), extra=columns))
        empty = 0
        for decided in decided_batches(model, batches, self.question.rule):
            judging.add(decided.carried, Answered(decided.scores, decided.decisions, decided.carried.ids, True))
            empty += int(decided.blank.sum())
        save_state(judging, self.output)
        return RowCounts(judging.evaluator.documents, empty)


@lru_cache(maxsize=2)
def extended_hierarchy(known: Hierarchy, new_labels: Paths) -> Hierarchy:
    """Add labels to the hierarchy of a model; one after another asks for the same."""
    return with_paths(known, new_labels) if new_labels else known


def training_survey(model: Model, hierarchy: Hierarchy) -> Survey:
    """Return how often a model's labels were in its training data, under a hierarchy that has further ones."""
    profile = model.profile_
    return Survey.of_counts(hierarchy, profile.frequencies, model.hierarchy_, profile.documents)


def judge_shards(
    job: JudgeJob,
    sources: Sequence[Path],
    find_new: Callable[[Sequence[Label]], Sequence[Sequence[str]]],
    engine: Engine,
    share: tuple[int, int] | None = None,
    report: Callable[[int], None] = lambda done: None,
) -> Judged | int:
    """Judge files, and merge what was found of all of them.

    The result is that of one pass over the files in their order, bit for bit: counts are whole numbers, sums carry what
    rounding takes from them, and with `keep_documents` the values of single documents are put together in their order,
    so that intervals draw the same resamples. The merging process then holds them all: 16 bytes a document for each
    metric that is a mean, some 5 bytes for each label that is true or predicted where a metric counts labels.

    Parameters
    ----------
    job
        What to do with each file; its output is the folder of what is found of each.
    sources
        The files, in order.
    find_new
        Tells which of the labels of all files are new to the model.
    engine
        What runs the shards.
    share
        Which share of the files to judge; of all others, the labels are listed unless that is done already.
    report
        Called with the number of files that are judged.

    Returns
    -------
    Judged or int
        The number of files that other shares have not judged yet, if there are any.
    """
    folder = job.output
    labels = {source: LabelJob(source, job.reading, folder) for source in sources}
    # Those of the share first: meanwhile other processes list theirs.
    for chosen in dict.fromkeys((share, None)):
        listed = plan_shards(labels, folder / LABELS, ".json", chosen)
        if listed:
            refuse_failures(run_shards(listed, engine), folder / LABELS)
    every = dict.fromkeys(label for shard in listed for label in read_labels(shard.part))
    new = tuple(tuple(names) for names in find_new(list(every)))
    jobs = {source: replace(job, texts=source, new_labels=new) for source in sources}
    shards = plan_shards(jobs, folder, ".npz", share)
    if shards:
        refuse_failures(run_shards(shards, engine, report, share), folder)
    every_shard = plan_shards(jobs, folder, ".npz")
    missing = sum(not is_done(shard) for shard in every_shard)
    if missing:
        return missing
    states = (load_state(jobs[sources[0]].begin(), shard.part) for shard in every_shard)
    where = "the model" if job.scorer.folder is None else str(job.scorer.folder)
    return reduce(or_, states).judged(where)


def read_labels(part: Path) -> list[Label]:
    """Read labels that a `LabelJob` listed."""
    stored = read_json(part.read_bytes(), str(part))
    return [tuple(label) if isinstance(label, list) else label for label, _ in stored]
