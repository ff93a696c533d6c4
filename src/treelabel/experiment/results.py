"""Results of a study: a folder with one JSON file a run, what each document contributed, and an index.

    spec.toml           the spec as it was run
    study.json          where the spec stood, and the keys of its runs: the folder may have others, of earlier versions
    runs/KEY.json       a run: its values with intervals and sums, times, memory, versions, machine
    parts/KEY.npz       what each document contributed to the sums, for paired intervals
    scores/KEY.npz      scores, if the spec keeps them
    contexts/KEY.json   a hierarchy with the training frequencies of its labels, shared by runs on one data set
    index.parquet       all values of all runs in one table

Values that are not finite are strings in JSON ("nan", "inf").
"""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from treelabel.core.atomic_output import atomic_file, open_output
from treelabel.core.errors import TreelabelError, locate_errors
from treelabel.core.inputs import file_sha256
from treelabel.core.json_text import read_json
from treelabel.core.validation import validate
from treelabel.evaluation.result import Result
from treelabel.experiment.contributions import context_from_json, load_parts
from treelabel.experiment.metric_names import base_metric, spelled_metric
from treelabel.experiment.spec import Spec
from treelabel.experiment.spec_reader import parse_spec
from treelabel.metrics.batch import Context
from treelabel.metrics.registry import find_metric

FORMAT, VERSION = "treelabel run", 1
EXPORT_FORMAT = "treelabel results"
Status = Literal["done", "failed", "timeout", "memory"]


@dataclass(frozen=True)
class Judgement:
    """Values of the metrics under one rule.

    `rule` is the one that the spec asks for, `used_rule` the one that decided. `sums` are the additive parts of metrics
    over documents, from which values come and by which results of other documents can be merged.
    """

    rule: str
    used_rule: str
    values: Mapping[str, float]
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    sums: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Run:
    """One system on one data set with one seed; `reason` tells why there are no values, if there are none.

    `asked` lists the rules and metrics that were to judge it. Training was `stopped` where it reached `max_seconds`,
    its share of a budget. `code` are the modules that it used, by a hash of each. `scores_sha256` is the hash of the
    file of scores, if they were kept.
    """

    key: str
    data: str
    system: str
    seed: int
    status: Status = "done"
    reason: str = ""
    title: str = ""
    data_hash: str = ""
    asked: tuple[str, ...] = ()
    model: str | None = None
    command: tuple[str, ...] | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    chosen: Mapping[str, Any] | None = None
    judged: tuple[Judgement, ...] = ()
    context: str = ""
    scores_sha256: str = ""
    documents: Mapping[str, int] = field(default_factory=dict)
    nodes: int = 0
    leaves: int = 0
    fit_seconds: float = math.nan
    score_seconds: float = math.nan
    seconds: float = math.nan
    peak_memory: float = math.nan
    model_bytes: float = math.nan
    max_seconds: float = math.nan
    stopped: bool = False
    threads: int = 1
    notes: tuple[str, ...] = ()
    code: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    machine: Mapping[str, Any] = field(default_factory=dict)
    finished: str = ""

    @property
    def is_done(self) -> bool:
        """Whether there are values."""
        return self.status == "done"

    def judged_by(self, metric: str, rule: str | None = None) -> Judgement | None:
        """Return the first that has a metric, under a rule if one is named.

        Parameters
        ----------
        metric : str
            A metric, or a part of one.
        rule : str, optional
            The rule as the spec has it, or the one that decided.

        Returns
        -------
        Judged or None
        """
        name = spelled_metric(metric)
        fitting = (each for each in self.judged if rule is None or rule in (each.rule, each.used_rule))
        return next((each for each in fitting if name in each.values), None)

    def value(self, metric: str, rule: str | None = None) -> float:
        """Return the value of a metric, or of a part of one ("macro_f1_by_depth[1]"); NaN if there is none.

        Parameters
        ----------
        metric : str
            A metric, or a part of one.
        rule : str, optional
            The rule; by default the first under which the metric was judged.

        Returns
        -------
        float
        """
        result = self.judged_by(metric, rule)
        return math.nan if result is None else result.values[spelled_metric(metric)]

    def field_value(self, name: str) -> float:
        """Return what a table calls fit_seconds, score_seconds, documents_per_second, peak_memory or model_size."""
        if name == "peak_memory":
            return self.peak_memory / 1e9
        if name == "model_size":
            return self.model_bytes / 1e6
        if name == "documents_per_second":
            return self.documents.get("test", 0) / self.score_seconds if self.score_seconds > 0 else math.nan
        return float(getattr(self, name))

    def to_json(self) -> str:
        """Return the run as JSON text, with its checksum."""
        stored = json.loads(json.dumps(_finite({"format": FORMAT, "version": VERSION, **asdict(self)})))
        return json.dumps({**stored, "checksum": _checksum(stored)}, indent=1)

    def for_export(self) -> dict[str, Any]:
        """Return the run as JSON values, without the sums of metrics and the code that it used."""
        judged = tuple(replace(each, sums={}) for each in self.judged)
        stored = _finite({"format": FORMAT, "version": VERSION, **asdict(replace(self, judged=judged))})
        return {name: value for name, value in stored.items() if name != "code"}


@dataclass(frozen=True)
class Results:
    """The runs of a study. `folder` is None where they come from an exported file, which has no parts of documents."""

    spec: Spec
    runs: tuple[Run, ...]
    folder: Path | None = None
    command: str = ""
    verdicts: tuple[Mapping[str, Any], ...] = ()

    @classmethod
    def load(cls, path: str | Path) -> "Results":
        """Load a folder of results, or a file that `export` wrote."""
        file = Path(path)
        if file.is_dir():
            return cls._load_folder(file)
        if not file.exists():
            raise TreelabelError(f"{file}: does not exist; expected a folder that `treelabel bench` wrote")
        stored = read_json(file, str(file), "results")
        if not isinstance(stored, dict) or stored.get("format") != EXPORT_FORMAT:
            raise TreelabelError(f"{file}: is no file of results; expected one that `treelabel bench --export` wrote")
        with locate_errors(file):
            spec = parse_spec(str(stored["spec"]), Path(str(stored["path"])))
            runs = tuple(run_from_json(each, str(file)) for each in stored["runs"])
            return cls(spec, runs, None, str(stored.get("command", "")), tuple(stored.get("verdicts", ())))

    @classmethod
    def _load_folder(cls, folder: Path) -> "Results":
        if not (folder / "spec.toml").is_file() or not (folder / "study.json").is_file():
            raise TreelabelError(
                f"{folder}: has no spec.toml and study.json; expected a folder that `treelabel bench` wrote"
            )
        about = read_json(folder / "study.json", str(folder / "study.json"), "study")
        if not isinstance(about, dict) or not {"path", "keys"} <= about.keys():
            raise TreelabelError(f"{folder / 'study.json'}: damaged; run the study again")
        spec = parse_spec((folder / "spec.toml").read_text(encoding="utf-8"), Path(str(about["path"])))
        # Without keys, all runs that are there.
        keys = about["keys"]
        if not isinstance(keys, dict):
            keys = dict.fromkeys(sorted(file.stem for file in (folder / "runs").glob("*.json")))
        runs = []
        for key, names in keys.items():
            if run_file(folder, key).is_file():
                run = load_run(run_file(folder, key))
                runs.append(run if names is None else replace(run, data=str(names[0]), system=str(names[1])))
        return cls(spec, tuple(runs), folder)

    def of(self, data: str, system: str) -> list[Run]:
        """Return the runs of a system on a data set that are done, by seed.

        Parameters
        ----------
        data : str
            A data set.

        Returns
        -------
        list of Run
        """
        return sorted((run for run in self.all_of(data, system) if run.is_done), key=lambda run: run.seed)

    def all_of(self, data: str, system: str) -> list[Run]:
        """Return the runs of a system on a data set, failures too."""
        return [run for run in self.runs if (run.data, run.system) == (data, system)]

    def problem(self, data: str, system: str) -> str:
        """Return why a system has no result on a data set: "failed: the reason", or "" if it has, or never ran.

        Parameters
        ----------
        data : str
            A data set.

        Returns
        -------
        str
        """
        runs = self.all_of(data, system)
        return "" if not runs or self.of(data, system) else f"{runs[0].status}: {runs[0].reason}"

    def result(self, run: Run, rule: str) -> Result | None:
        """Return the Result of a run under a rule, with the parts of documents; None where these were not kept.

        Parts that do not give the values of the run are refused: one of the two files was altered.

        Parameters
        ----------
        run : Run
            A run that is done.
        rule : str
            A rule as the spec has it.

        Returns
        -------
        Result or None
        """
        if self.folder is None or not (self.folder / "parts" / f"{run.key}.npz").is_file():
            return None
        index, judged = next((index, each) for index, each in enumerate(run.judged) if each.rule == rule)
        metrics = [find_metric(name) for name in dict.fromkeys(base_metric(name) for name in judged.values)]
        parts = load_parts(self.folder / "parts" / f"{run.key}.npz", index, metrics)
        if not parts:
            return None
        sums = {key: tuple(np.asarray(part.sum(axis=0)).ravel() for part in each) for key, each in parts.items()}
        known = [metric for metric in metrics if metric.key in parts]
        result = Result(known, sums, self.context(run.context), run.documents["test"], judged.used_rule, parts)
        for name, value in result.values.items():
            if not np.isclose(value, judged.values.get(name, value), rtol=1e-6, atol=1e-9, equal_nan=True):
                raise TreelabelError(
                    f"{self.folder}: runs/{run.key}.json says that {name} is {judged.values[name]:.6g}, but what its "
                    f"documents contributed (parts/{run.key}.npz) gives {value:.6g}; remove both, and it is done again"
                )
        return result

    def require_parts(self, run: Run) -> None:
        """Raise TreelabelError unless what documents contributed is there, and gives the values of a run."""
        assert self.folder is not None
        if not (self.folder / "parts" / f"{run.key}.npz").is_file():
            raise TreelabelError(f"{self.folder}: parts/{run.key}.npz does not exist; run the study again")
        for judged in run.judged:
            self.result(run, judged.rule)

    def scores_file(self, run: Run) -> Path | None:
        """Return the file of the scores that a run kept; None where there is none, or it is not what was written."""
        assert self.folder is not None
        file = self.folder / "scores" / f"{run.key}.npz"
        return file if file.is_file() and file_sha256(file) == run.scores_sha256 else None

    def context(self, key: str) -> Context:
        """Return the hierarchy of a data set and the training frequencies of its labels."""
        assert self.folder is not None
        file = self.folder / "contexts" / f"{key}.json"
        return context_from_json(file.read_bytes(), str(file))

    def write_index(self) -> None:
        """Write all values of all runs into `index.parquet`: one row a value, or one a run that has none."""
        assert self.folder is not None
        rows: list[dict[str, Any]] = []
        for run in self.runs:
            shared = {name: getattr(run, name) for name in _INDEX.names if name in _RUN_FIELDS}
            values: list[dict[str, Any]] = []
            for judged in run.judged:
                for name, value in judged.values.items():
                    low, high = judged.intervals.get(name, (None, None))
                    values.append({"rule": judged.rule, "metric": name, "value": value, "low": low, "high": high})
            rows += [shared | value for value in values or [{}]]
        with atomic_file(self.folder / "index.parquet") as working:
            pq.write_table(pa.Table.from_pylist(rows, _INDEX), working)

    def for_export(self, command: str, verdicts: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
        """Return everything but the parts of documents and the sums as JSON values; arguments as for `export`."""
        return {
            "format": EXPORT_FORMAT,
            "version": VERSION,
            "command": command,
            "path": self.spec.path.name,
            "spec": self.spec.text,
            "verdicts": _finite(list(verdicts)),
            "runs": [run.for_export() for run in self.runs],
        }

    def export(self, path: str | Path, command: str, verdicts: Sequence[Mapping[str, Any]] = ()) -> None:
        """Write everything but the parts of documents and the sums into one JSON file.

        Parameters
        ----------
        path : str or Path
            The file.
        command : str
            The command line that makes these results.
        verdicts : sequence of mappings
            What became of the claims, which only the parts of documents can tell.
        """
        stored = self.for_export(command, verdicts)
        runs = stored.pop("runs")
        head = json.dumps(stored, indent=1, ensure_ascii=False).removesuffix("\n}")
        # A line for each run, so that a changed one is a changed line.
        lines = ",\n".join(json.dumps(run, ensure_ascii=False) for run in runs)
        with open_output(path) as stream:
            stream.write(f'{head},\n "runs": [\n{lines}\n ]\n}}\n'.encode())


_NUMBERS = ("value", "low", "high", "fit_seconds", "score_seconds", "peak_memory", "model_bytes")
_INDEX = pa.schema(
    [
        *((name, pa.string()) for name in ("data", "system")),
        ("seed", pa.int64()),
        *((name, pa.string()) for name in ("status", "reason", "rule", "metric")),
        *((name, pa.float64()) for name in _NUMBERS),
        ("key", pa.string()),
    ]
)
_RUN_FIELDS = {entry.name for entry in fields(Run)}


def run_file(folder: Path, key: str) -> Path:
    """Return the file of a run in a folder of results."""
    return folder / "runs" / f"{key}.json"


def write_run(folder: Path, run: Run) -> None:
    """Write the file of a run into a folder of results."""
    with open_output(run_file(folder, run.key)) as stream:
        stream.write(run.to_json().encode())


def load_run(file: Path) -> Run:
    """Load one run; one that was altered is refused."""
    stored = read_json(file, str(file), "run")
    if isinstance(stored, dict) and stored.get("checksum") != _checksum(stored):
        raise TreelabelError(f"{file}: is not what was written (its checksum differs); remove it, and it is done again")
    return run_from_json(stored, str(file))


def _checksum(stored: Mapping[str, Any]) -> str:
    content = {name: value for name, value in stored.items() if name != "checksum"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def run_from_json(stored: Any, where: str) -> Run:
    """Make a run of what its JSON text holds; `where` begins the message of an error.

    Parameters
    ----------
    stored : Any
        Parsed JSON.
    where : str
        The beginning of the message of an error.

    Returns
    -------
    Run
    """
    if not isinstance(stored, dict) or stored.get("format") != FORMAT or stored.get("version") != VERSION:
        raise TreelabelError(f"{where}: is no run of this version of treelabel; remove it, and it is done again")
    values = {name: value for name, value in stored.items() if name in _RUN_FIELDS}
    try:
        values["judged"] = tuple(_judgement(each) for each in values.get("judged", ()))
        for name in ("fit_seconds", "score_seconds", "seconds", "peak_memory", "model_bytes", "max_seconds"):
            values[name] = float(values.get(name, math.nan))
        values |= {name: tuple(values.get(name) or ()) for name in ("notes", "asked")}
        values["command"] = None if values.get("command") is None else tuple(values["command"])
        run = Run(**values)
        validate([run.key, run.data, run.system, run.reason], list[str], "")
        validate([run.seed, run.nodes, run.leaves], list[int], "")
    except (TypeError, ValueError, KeyError) as error:
        raise TreelabelError(f"{where}: the run is damaged ({error}); remove it, and it is done again") from None
    return run


def _judgement(stored: Mapping[str, Any]) -> Judgement:
    return Judgement(
        stored["rule"],
        stored["used_rule"],
        {name: float(value) for name, value in stored["values"].items()},
        {name: (float(low), float(high)) for name, (low, high) in stored["intervals"].items()},
        stored["sums"],
    )


def _finite(value: Any) -> Any:
    """Write numbers that JSON does not have as strings."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return value
