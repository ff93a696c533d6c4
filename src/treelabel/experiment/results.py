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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
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

    def to_json(self, sums: bool = True) -> str:
        """Return the run as JSON text, with its checksum, or without the sums of metrics, to be exported."""
        stored = {"format": FORMAT, "version": VERSION, **asdict(self)}
        if not sums:
            stored["judged"] = [{**each, "sums": {}} for each in stored["judged"]]
            return json.dumps(_finite(stored), indent=1)
        plain = json.loads(json.dumps(_finite(stored)))
        return json.dumps({**plain, "checksum": _checksum(plain)}, indent=1)


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
        place = Path(path)
        if place.is_dir():
            return cls._load_folder(place)
        if not place.exists():
            raise TreelabelError(f"{place}: does not exist; expected a folder that `treelabel bench` wrote")
        stored = read_json(place.read_bytes(), str(place), "results")
        if not isinstance(stored, dict) or stored.get("format") != EXPORT_FORMAT:
            raise TreelabelError(f"{place}: is no file of results; expected one that `treelabel bench --export` wrote")
        with locate_errors(place):
            spec = parse_spec(str(stored["spec"]), Path(str(stored["path"])))
            runs = tuple(run_from_json(each, str(place)) for each in stored["runs"])
            return cls(spec, runs, None, str(stored.get("command", "")), tuple(stored.get("verdicts", ())))

    @classmethod
    def _load_folder(cls, folder: Path) -> "Results":
        if not (folder / "spec.toml").is_file() or not (folder / "study.json").is_file():
            raise TreelabelError(
                f"{folder}: has no spec.toml and study.json; expected a folder that `treelabel bench` wrote"
            )
        about = read_json((folder / "study.json").read_bytes(), str(folder / "study.json"), "study")
        if not isinstance(about, dict) or not {"path", "keys"} <= about.keys():
            raise TreelabelError(f"{folder / 'study.json'}: damaged; run the study again")
        spec = parse_spec((folder / "spec.toml").read_text(encoding="utf-8"), Path(str(about["path"])))
        # Without keys, all runs that are there.
        keys = about["keys"] if isinstance(about["keys"], dict) else dict.fromkeys(_stems(folder / "runs"))
        runs = []
        for key, names in keys.items():
            file = folder / "runs" / f"{key}.json"
            if file.is_file():
                run = load_run(file)
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
        result = [run for run in self.runs if run.data == data and run.system == system and run.is_done]
        return sorted(result, key=lambda run: run.seed)

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
        runs = [run for run in self.runs if run.data == data and run.system == system]
        if any(run.is_done for run in runs):
            return ""
        return next((f"{run.status}: {run.reason}" for run in runs), "")

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
        index = next(index for index, each in enumerate(run.judged) if each.rule == rule)
        judged = run.judged[index]
        metrics = [find_metric(name) for name in dict.fromkeys(base_metric(name) for name in judged.values)]
        parts = load_parts(self.folder / "parts" / f"{run.key}.npz", index, metrics)
        if not parts:
            return None
        sums = {key: tuple(_sum(part) for part in each) for key, each in parts.items()}
        known = [metric for metric in metrics if metric.key in parts]
        results = Result(known, sums, self.context(run.context), run.documents["test"], judged.used_rule, parts)
        for name, value in results.values.items():
            if not np.isclose(value, judged.values.get(name, value), rtol=1e-6, atol=1e-9, equal_nan=True):
                raise TreelabelError(
                    f"{self.folder}: runs/{run.key}.json says that {name} is {judged.values[name]:.6g}, but what its "
                    f"documents contributed (parts/{run.key}.npz) gives {value:.6g}; remove both, and it is done again"
                )
        return results

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
        return _load_context(self.folder / "contexts" / f"{key}.json")

    @cached_property
    def index(self) -> pa.Table:
        """All values of all runs: one row a value, or one a run that has none."""
        return pa.Table.from_pylist(list(self._index_rows()), _INDEX)

    def _index_rows(self) -> Iterator[dict[str, Any]]:
        for run in self.runs:
            shared = {name: getattr(run, name) for name in _INDEX.names if name in _RUN_FIELDS}
            values = [
                {"rule": each.rule, "metric": name, "value": value} | _ends(each.intervals.get(name))
                for each in run.judged
                for name, value in each.values.items()
            ]
            yield from ({**shared, **value} for value in values or [{}])

    def write_index(self) -> None:
        """Write `index.parquet`."""
        assert self.folder is not None
        with atomic_file(self.folder / "index.parquet") as working:
            pq.write_table(self.index, working)

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
        stored = {
            "format": EXPORT_FORMAT,
            "version": VERSION,
            "command": command,
            "path": self.spec.path.name,
            "spec": self.spec.text,
            "verdicts": _finite(list(verdicts)),
        }
        head = json.dumps(stored, indent=1, ensure_ascii=False).removesuffix("\n}")
        runs = [_without_code(json.loads(run.to_json(sums=False))) for run in self.runs]
        # A line for each run, so that a changed one is a changed line.
        lines = ",\n".join(json.dumps(run, ensure_ascii=False) for run in runs)
        with open_output(path) as stream:
            stream.write(f'{head},\n "runs": [\n{lines}\n ]\n}}\n'.encode())


_INDEX = pa.schema(
    [
        ("data", pa.string()),
        ("system", pa.string()),
        ("seed", pa.int64()),
        ("status", pa.string()),
        ("reason", pa.string()),
        ("rule", pa.string()),
        ("metric", pa.string()),
        ("value", pa.float64()),
        ("low", pa.float64()),
        ("high", pa.float64()),
        ("fit_seconds", pa.float64()),
        ("score_seconds", pa.float64()),
        ("peak_memory", pa.float64()),
        ("model_bytes", pa.float64()),
        ("key", pa.string()),
    ]
)
_RUN_FIELDS = {entry.name for entry in fields(Run)}


def load_run(file: Path) -> Run:
    """Load one run; one that was altered is refused."""
    stored = read_json(file.read_bytes(), str(file), "run")
    if isinstance(stored, dict) and stored.get("checksum") != _checksum(stored):
        why = "its checksum differs" if "checksum" in stored else "it has no checksum; earlier versions wrote none"
        raise TreelabelError(f"{file}: is not what was written ({why}); remove it, and it is done again")
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
        values["judged"] = tuple(_judged(each) for each in values.get("judged", ()))
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


def _judged(stored: Mapping[str, Any]) -> Judgement:
    return Judgement(
        stored["rule"],
        stored["used_rule"],
        {name: float(value) for name, value in stored["values"].items()},
        {name: (float(low), float(high)) for name, (low, high) in stored["intervals"].items()},
        stored["sums"],
    )


def _load_context(file: Path) -> Context:
    return context_from_json(file.read_bytes(), str(file))


def _stems(folder: Path) -> list[str]:
    return sorted(file.stem for file in folder.glob("*.json"))


def _finite(value: Any) -> Any:
    """Write numbers that JSON does not have as strings."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return value


def _without_code(stored: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in stored.items() if name != "code"}


def _ends(interval: tuple[float, float] | None) -> dict[str, float]:
    return {} if interval is None else {"low": interval[0], "high": interval[1]}


def _sum(part: Any) -> Any:
    return np.asarray(part.sum(axis=0)).ravel()
