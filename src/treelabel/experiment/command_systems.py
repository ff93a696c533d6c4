"""Systems that are commands: an environment of their own, files to learn from, and a file that they write.

A command sees the test documents without their labels. What it writes is read as scores, predictions or values, and
judged like everything else.
"""

import hashlib
import math
import os
import re
import subprocess
import sys
import time
import venv
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from scipy import sparse

from treelabel.core.child_python import child_python
from treelabel.core.errors import TreelabelError, locate_errors, quote, shorten
from treelabel.core.json_text import read_json
from treelabel.core.validation import LARGEST, AnyFloat, Between, validate
from treelabel.data.dataset import Dataset
from treelabel.data.read import read
from treelabel.data.taxonomy.taxonomy_files import write_taxonomy
from treelabel.data.write import write
from treelabel.encoders.files import cache_folder
from treelabel.experiment.data_sets import Splits
from treelabel.experiment.process_tree import MARK, describe_exit, end_marked, last_line, lock_folder, run_watched
from treelabel.experiment.spec import PLACEHOLDER, SystemSpec
from treelabel.hierarchy.label_ids import find_label
from treelabel.hierarchy.label_matrices import label_matrix
from treelabel.rules.decisions import Decisions
from treelabel.scores.score_files import is_score_file
from treelabel.scores.score_matrix import Scores

# What a command may tell in {output}.json.
TIMES = ("fit_seconds", "score_seconds", "model_bytes")


@dataclass(frozen=True)
class CommandOutput:
    """The output of a command: scores, decisions or values, the times that it wrote, how long it ran, its memory."""

    scores: Scores | None = None
    decisions: Decisions | None = None
    values: Mapping[str, float] | None = None
    times: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = math.nan
    peak_memory: float = math.nan


# Environments


def environment(requirements: tuple[str, ...]) -> Path:
    """Return the Python of an environment with some packages, which is made where there is none yet.

    Environments are kept beside the cache of embeddings, one for each list of requirements.
    """
    if not requirements:
        # A program of the spec may import its siblings, so the spec says how its Python is called.
        return Path(sys.executable)
    key = hashlib.sha256("\n".join([sys.version, *requirements]).encode()).hexdigest()[:16]
    folder = cache_folder() / "environments" / key
    python = folder / "bin" / "python"
    # Runs that need the same environment start together.
    with lock_folder(folder, wait=True):
        if not (folder / "ready").is_file():
            venv.create(folder, clear=True, with_pip=False)
            _install(python, requirements)
            (folder / "ready").write_text("\n".join(requirements))
    return python


def _install(python: Path, requirements: tuple[str, ...]) -> None:
    """Install packages from outside: the environment needs no pip of its own."""
    pip = child_python("-m", "pip")
    if subprocess.run([*pip, "--version"], capture_output=True).returncode:
        pip = child_python("-m", "pip", executable=getattr(sys, "_base_executable", pip[0]))
    command = [*pip, "--disable-pip-version-check", "--python", str(python), "install", "--quiet", *requirements]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["pip failed"]
        raise TreelabelError(f"{', '.join(requirements)}: cannot be installed: {shorten(lines[-1], 300)}")


def files_hash(system: SystemSpec, folder: Path) -> str:
    """Hash the files that a command names, and the Python programs that stand beside one.

    Parameters
    ----------
    system : SystemSpec
        A system that is a command.
    folder : Path
        The folder of the spec.

    Returns
    -------
    str
    """
    assert system.command is not None
    named = [Path(part.replace("{folder}", str(folder))) for part in system.command]
    files = [file for file in named if _is_file(file)]
    programs = [file for file in files if file.suffix == ".py"]
    sibling = sorted({other for file in programs for other in file.parent.glob("*.py")})
    others = [file for file in files if file not in programs]
    content = b"".join(file.read_bytes() for file in [*sibling, *others])
    return hashlib.sha256(content).hexdigest()[:16]


def _is_file(path: Path) -> bool:
    """Return whether there is such a file; a word that no file can be called by is none."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


# Running


def run_command(
    system: SystemSpec, parts: Splits, spec_folder: Path, working: Path, seed: int, threads: int
) -> CommandOutput:
    """Run a command and read what it wrote.

    Parameters
    ----------
    system : SystemSpec
        The command, and what it writes.
    parts : Parts
        What it learns from and is tested on.
    working : Path
        An empty folder for its files.
    seed, threads : int
        What stands for {seed} and {threads}.

    Returns
    -------
    Told
    """
    assert system.command is not None
    python = environment(system.requirements)
    names = _write_files(parts, working)
    names |= {"python": python, "folder": spec_folder, "output": working / "output", "seed": seed, "threads": threads}
    command = [_fill_in(part, names, system.name) for part in system.command]
    limits = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "TREELABEL_THREADS"), str(threads))
    begun = time.perf_counter()
    with (working / "log").open("wb") as log:
        try:
            returncode, peak = run_watched(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **limits, MARK: str(working)},
                cwd=working,
            )
        except OSError as error:
            raise TreelabelError(f"the command cannot be run: {command[0]}: {error.strerror}") from None
        finally:
            end_marked(working)
    took = time.perf_counter() - begun
    if returncode:
        last = last_line(working / "log") or "it said nothing"
        raise TreelabelError(f"the command failed ({describe_exit(returncode)}): {last}")
    if not (working / "output").is_file():
        raise TreelabelError("the command ended well but wrote no file to {output}")
    try:
        return replace(_read_output(system, parts.test, working), seconds=took, peak_memory=peak)
    except TreelabelError as error:
        # The folder has another name at every run.
        raise TreelabelError(f"what the command wrote: {str(error).replace(f'{working}{os.sep}', '')}") from None


def _write_files(parts: Splits, working: Path) -> dict[str, Any]:
    """Write what a command reads; test documents have no labels."""
    h = parts.train.hierarchy
    hidden = replace(
        parts.test,
        labels=label_matrix(np.zeros(len(parts.test) + 1, np.int32), np.zeros(0, np.int32), len(h)),
        extra={},
        group=None,
    )
    names: dict[str, Any] = {"data": working.name}
    for name, part in (("train", parts.train), ("test", hidden), ("valid", parts.valid)):
        if part is not None:
            names[name] = working / f"{name}.jsonl"
            write(part, names[name], labels="paths" if h.is_tree else "auto", taxonomy=False)
    names["taxonomy"] = working / "taxonomy.tsv"
    # Programs expect lines of a parent and a child.
    write_taxonomy(replace(h, identifiers=None), names["taxonomy"])
    return names


def _fill_in(part: str, names: Mapping[str, Any], system: str) -> str:
    """Put values in the place of {names}; other braces, as in a program given on the command line, stay."""

    def value(result: re.Match[str]) -> str:
        if result[1] not in names:
            raise TreelabelError(f"the command of {system} has {result[0]}, but the data set has none")
        return str(names[result[1]])

    return PLACEHOLDER.sub(value, part)


# Reading what it wrote


def _read_output(system: SystemSpec, test: Dataset, working: Path) -> CommandOutput:
    output, sibling = working / "output", working / "output.json"
    written = read_json(sibling, str(sibling), "times") if sibling.is_file() else {}
    if not isinstance(written, dict):
        raise TreelabelError('output.json has no times; expected {"fit_seconds": 1.5}')
    times = {name: written[name] for name in TIMES if written.get(name) is not None}
    for name, value in times.items():
        validate(value, Annotated[float, Between(0, LARGEST)], name)
    if system.writes == "values":
        stored = read_json(output, str(output), "values")
        if not isinstance(stored, dict) or not isinstance(stored.get("values"), dict):
            raise TreelabelError('it has no values; expected {"values": {"name": number}}')
        validate(stored["values"], Mapping[str, AnyFloat], "values")
        return CommandOutput(values={name: float(value) for name, value in stored["values"].items()}, times=times)
    with output.open("rb") as stream:
        is_packed = stream.read(2) == b"PK"
    named = output.rename(working / ("output.npz" if is_packed else "output.jsonl"))
    if system.writes == "predictions":
        result = read(named, taxonomy=test.hierarchy, need_text=False, progress=False)
        labels = test.hierarchy.closure(result.labels[_rows(result.ids, test)])
        return CommandOutput(decisions=Decisions(test.hierarchy, labels, tuple(test.ids)), times=times)
    if is_score_file(named):
        scores = Scores.load(named, test.hierarchy)
        scores = scores if scores.ids is None else scores[_rows(scores.ids, test)]
    else:
        scores = read_label_scores(named, test)
    return CommandOutput(scores=sum_or_max(scores, system.combine), times=times)


def _rows(ids: Any, test: Dataset) -> Any:
    """Return where the documents of the test stand among those of a file."""
    index: dict[str, int] = {}
    for row, name in enumerate(ids):
        if index.setdefault(name, row) != row:
            raise TreelabelError(f"the document {quote(name)} stands there twice")
    missing = [name for name in test.ids if name not in index]
    if missing:
        raise TreelabelError(
            f"nothing for {len(missing):,} of {len(test):,} test documents, such as {quote(missing[0])}"
        )
    return np.array([index[name] for name in test.ids], np.int64)


def read_label_scores(file: Path, test: Dataset) -> Scores:
    """Read scores of labels from JSON Lines: {"id": ..., "labels": [{"label": name or path, "p": 0.9}, ...]}.

    Parameters
    ----------
    file : Path
        What a command wrote.
    test : Dataset
        The documents; each must be in the file.

    Returns
    -------
    Scores
        Sparse; labels that are not mentioned have 0.
    """
    h = test.hierarchy
    node_of = cache(partial(find_label, h))
    rows: list[dict[int, float]] = []
    ids: dict[str, int] = {}
    with file.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            with locate_errors(f"{file}:{number}"):
                name, entries = _scored_labels(read_json(line, f"{file}:{number}", "scores"))
                if ids.setdefault(name, len(rows)) != len(rows):
                    raise TreelabelError(f"the document {quote(name)} stands there twice")
                rows.append({})
                for label, p in entries:
                    if node_of(label) in rows[-1]:
                        raise TreelabelError(f"the label {quote(label)} stands there twice")
                    rows[-1][node_of(label)] = p
    columns, numbers = [node for row in rows for node in row], [p for row in rows for p in row.values()]
    entries_of = np.array(numbers, np.float32), np.array(columns, np.int32), np.cumsum([0, *map(len, rows)])
    matrix = sparse.csr_array(entries_of, (len(rows), len(h)))
    matrix.sort_indices()
    return Scores(h, matrix[_rows(ids, test)], tuple(test.ids))


def _scored_labels(row: Any) -> tuple[str, list[tuple[str, float]]]:
    """Take the id and the scored labels out of a line."""
    try:
        name, entries = row["id"], [(each.get("label", each.get("path")), each["p"]) for each in row["labels"]]
        validate(name, str | int, "id")
        validate(entries, list[tuple[str, float]], "labels")
    except (AttributeError, KeyError, TypeError, TreelabelError):
        expected = '{"id": "7", "labels": [{"label": "A > B", "p": 0.93}]}'
        raise TreelabelError(f"expected {expected}, found {quote(row)}") from None
    return str(name), entries


def sum_or_max(scores: Scores, how: str) -> Scores:
    """Let inner nodes have the sum or the largest of the scores below them.

    Parameters
    ----------
    scores : Scores
        Of the most specific labels; inner nodes keep what they have where that is larger.
    how : "none", "sum" or "max"
        "sum" where labels exclude each other, "max" where they do not.

    Returns
    -------
    Scores

    >>> from treelabel.hierarchy import Hierarchy
    >>> s = Scores(Hierarchy.from_paths(["A > B", "A > C"]), [[0.0, 0.25, 0.5]])
    >>> sum_or_max(s, "sum").dense().tolist(), sum_or_max(s, "max").dense().tolist()
    ([[0.75, 0.25, 0.5]], [[0.5, 0.25, 0.5]])
    """
    if how == "none":
        return scores
    if how == "max":
        return scores.coherent("max")
    h = scores.hierarchy
    ancestors = h.closure(sparse.eye_array(len(h), format="csr", dtype=np.bool_)).astype(np.float32)
    summed = sparse.csr_array(scores.csr() @ ancestors)
    summed.data = np.minimum(summed.data, np.float32(1))
    summed.sort_indices()
    return Scores(h, summed, scores.ids)
