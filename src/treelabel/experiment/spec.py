"""The spec of a study: data sets, systems, rules, metrics and seeds; tables, figures and claims made of them."""

import inspect
import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from treelabel.core.errors import UNPRINTABLE, TreelabelError, quote
from treelabel.core.registry import suggestion
from treelabel.core.validation import Between, Share
from treelabel.data.read import read
from treelabel.experiment.metric_names import FIELD_TITLES
from treelabel.experiment.units import parse_bytes, parse_seconds

# The rule of a spec that leaves the choice to the model.
DEFAULT_RULE = "default"
# Columns that are not metrics.
Field = Literal["fit_seconds", "score_seconds", "documents_per_second", "peak_memory", "model_size"]
Writes = Literal["scores", "predictions", "values"]
FigureKind = Literal["parts", "relative_parts", "metrics", "label_distribution"]
Count = Annotated[int, Between(1, 10**9)]
# What every library takes as a seed.
Seed = Annotated[int, Between(0, 2**32 - 1)]
# What may stand in braces in a command.
PLACEHOLDERS = ("python", "folder", "train", "test", "valid", "taxonomy", "output", "seed", "threads", "data")
PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")
# The combinations of a grid are listed, and each of them is run.
MOST_COMBINATIONS = 1000
SAMPLE = "sample"


@dataclass(frozen=True)
class DataSpec:
    """A data set: files of training and test documents, or one file that is divided, and what is made of them."""

    name: str
    title: str = ""
    train: str | None = None
    test: str | None = None
    valid: str | None = None
    all: str | None = None
    split: Mapping[str, Share] = field(default_factory=lambda: {"train": 0.8, "test": 0.2})
    split_seed: Seed = 0
    read: Mapping[str, Any] = field(default_factory=dict)
    unfold: bool = False
    depth: Count | None = None
    per_class: Count | None = None
    limit: Mapping[str, Count] = field(default_factory=dict)
    bin_edges: tuple[int, ...] = (1, 10, 100, 1000)
    propensity: tuple[float, float] = (0.55, 1.5)
    same_as: str = ""
    note: str = ""

    def check(self) -> None:
        """Refuse parts that do not fit together."""
        if (self.all is None) == (self.train is None) or (self.train is None) != (self.test is None):
            raise TreelabelError("expected train = and test =, or all = (which split = divides)")
        if self.all is not None and not {"train", "test"} <= set(self.split) <= {"train", "test", "valid"}:
            raise TreelabelError(
                f"split names {', '.join(self.split)}; expected shares of train, test and perhaps valid"
            )
        if self.all is not None and self.valid is not None:
            raise TreelabelError("valid = goes with train = and test =; of all =, split = makes a valid part")
        if SAMPLE in (self.train, self.test, self.valid):
            raise TreelabelError('the embedded sample is one file: expected all = "sample"')
        if not all(self.split.values()):
            raise TreelabelError("split has a part without documents; expected shares above 0")
        if not self.bin_edges or list(self.bin_edges) != sorted({max(0, each) for each in self.bin_edges}):
            raise TreelabelError(f"bin_edges is {list(self.bin_edges)}, expected numbers of documents that grow")
        check_names(self.limit, ("train", "test", "valid"), "limit")
        reserved = ("path", "limits", "progress")
        check_names(self.read, [name for name in inspect.signature(read).parameters if name not in reserved], "read")
        for name, value in self.read.items():
            check_plain(value, f"read.{name}")


@dataclass(frozen=True)
class Selection:
    """The metric, under a rule, by which held-out documents choose among the combinations of a grid."""

    metric: str
    rule: str = DEFAULT_RULE


@dataclass(frozen=True)
class SystemSpec:
    """A system: a row of MODELS with its parameters, or a command that writes scores, predictions or values."""

    name: str
    title: str = ""
    model: str | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    params_for: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    grid: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    select: Selection | None = None
    data: tuple[str, ...] | None = None
    seeds: Annotated[int, Between(1, 1000)] | tuple[Seed, ...] | None = None
    command: tuple[str, ...] | None = None
    requirements: tuple[str, ...] = ()
    writes: Writes = "scores"
    combine: Literal["none", "sum", "max"] = "none"
    time_limit: str | float | None = None
    memory_limit: str | float | None = None

    def check(self) -> None:
        """Refuse parts that do not fit together, and parameters that the model does not have."""
        if (self.model is None) == (self.command is None):
            raise TreelabelError("expected model = or command =, one of them")
        if self.command is not None and (self.params or self.grid or self.params_for):
            raise TreelabelError("a command takes no params and no grid; write them into the command")
        if self.select is not None and not self.grid:
            raise TreelabelError("select chooses among the combinations of a grid, but there is no grid")
        check_seeds_and_limits(self)
        if self.command is not None:
            self._check_command(self.command)
        if self.model is not None:
            self._check_params(self.model)
        self._check_grid()

    def _check_params(self, model: str) -> None:
        from treelabel.models.registry import MODELS

        known = [name for name in MODELS.find(model).maker.setting_names() if name not in ("hierarchy", "seed")]
        for settings in (self.params, self.grid, *self.params_for.values()):
            for name, value in settings.items():
                check_plain(value, name)
                if name not in known and "__" not in name:
                    raise TreelabelError(f"{model} has no setting {quote(name)}; {suggestion(name, known)}")

    def _check_command(self, command: tuple[str, ...]) -> None:
        if not command or not command[0]:
            raise TreelabelError("the command is empty; expected a program and its arguments")
        for part in command:
            if "\0" in part:
                raise TreelabelError(f"the command has {quote(part)}, which no program can be given")
            for name in PLACEHOLDER.findall(part):
                if name not in PLACEHOLDERS:
                    raise TreelabelError(f"the command has {{{name}}}; {suggestion(name, PLACEHOLDERS)}")

    def _check_grid(self) -> None:
        for name, values in self.grid.items():
            if not values:
                raise TreelabelError(f"grid.{name} has no values")
            for data, settings in self.params_for.items():
                if name in settings:
                    raise TreelabelError(f"{name} stands in the grid and in params_for.{data}; expected one of them")
        count = math.prod(len(values) for values in self.grid.values())
        if count > MOST_COMBINATIONS:
            raise TreelabelError(f"the grid has {count:,} combinations, the limit is {MOST_COMBINATIONS:,}")

    @property
    def writes_values(self) -> bool:
        """Whether it is a program of the study's own, whose values have no documents behind them."""
        return self.command is not None and self.writes == "values"

    def params_on(self, data: str) -> dict[str, Any]:
        """Return the parameters on a data set."""
        return {**self.params, **self.params_for.get(data, {})}

    @cached_property
    def combinations(self) -> dict[str, Mapping[str, Any]]:
        """The parameters of every combination of the grid, by what stands in brackets behind the system's name."""
        names = list(self.grid)
        result = (dict(zip(names, values, strict=True)) for values in itertools.product(*self.grid.values()))
        return {",".join(f"{name}={value}" for name, value in each.items()): each for each in result}


@dataclass(frozen=True)
class Judge:
    """A rule, the metrics that judge its decisions (and the scores), and the data sets on which they do."""

    metrics: tuple[str, ...]
    rule: str = DEFAULT_RULE
    data: tuple[str, ...] | None = None

    def check(self) -> None:
        """Refuse a judge that judges nothing."""
        if not self.metrics:
            raise TreelabelError("expected metrics =, at least one")


@dataclass(frozen=True)
class Column:
    """A column of a table: a metric under a rule, or a field such as fit_seconds."""

    metric: str | None = None
    rule: str | None = None
    field: Field | None = None
    title: str = ""
    scale: float = 1.0
    digits: Annotated[int, Between(0, 9)] = 4

    def check(self) -> None:
        """Refuse a column that is both or neither."""
        if (self.metric is None) == (self.field is None):
            raise TreelabelError("a column is either a metric or a field")


@dataclass(frozen=True)
class TableSpec:
    """A table: systems in rows, data sets in groups of columns; with published numbers beside ours."""

    name: str
    columns: tuple[Column, ...] = ()
    title: str = ""
    data: tuple[str, ...] | None = None
    systems: tuple[str, ...] | None = None
    layout: Literal["rows", "columns", "values"] = "rows"
    system: str | None = None
    rows: tuple[str, ...] = ()
    heads: tuple[str, ...] = ()
    published: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""

    def check(self) -> None:
        """Refuse a table without columns."""
        if self.layout == "values":
            if self.system is None or not self.rows or not self.heads:
                raise TreelabelError("a table of values needs system =, rows = and heads =")
            for row, numbers in self.published.items():
                check_published(numbers, len(self.heads), f"published.{row}")
            return
        if not self.columns:
            raise TreelabelError("a table needs columns =")
        for data, systems in self.published.items():
            if not isinstance(systems, Mapping):
                raise TreelabelError(f"published.{data} is {quote(systems)}, expected systems")
            for system, numbers in systems.items():
                check_published(numbers, len(self.columns), f"published.{data}.{system}")


@dataclass(frozen=True)
class FigureSpec:
    """A figure: lines or bars over the parts of a metric, over metrics, or over bins of label frequencies."""

    name: str
    kind: FigureKind
    title: str = ""
    metric: str | None = None
    metrics: tuple[str, ...] = ()
    rule: str | None = None
    baseline: str | None = None
    data: tuple[str, ...] | None = None
    systems: tuple[str, ...] | None = None
    x: str = ""
    y: str = ""

    def check(self) -> None:
        """Refuse a figure that lacks what its kind needs."""
        needed = {"parts": "metric", "relative_parts": "metric", "metrics": "metrics"}.get(self.kind)
        if needed is not None and not getattr(self, needed):
            raise TreelabelError(f"a figure of the kind {self.kind} needs {needed} =")
        if self.kind == "relative_parts" and self.baseline is None:
            raise TreelabelError("a figure of the kind relative_parts needs baseline =, a system")


@dataclass(frozen=True)
class Side:
    """One side of a claim: a value of a system, of the best, worst or mean of several, or a number."""

    system: str | None = None
    best_of: tuple[str, ...] = ()
    worst_of: tuple[str, ...] = ()
    mean_of: tuple[str, ...] = ()
    metric: str | None = None
    rule: str | None = None
    relative_to: str | None = None
    data: str | None = None
    value: float | None = None

    @property
    def systems(self) -> tuple[str, ...]:
        """All systems that it names."""
        one = () if self.system is None else (self.system,)
        return (*one, *self.best_of, *self.worst_of, *self.mean_of)

    def check(self) -> None:
        """Refuse a side that is no value, or several."""
        ways = [bool(self.system), bool(self.best_of), bool(self.worst_of), bool(self.mean_of), self.value is not None]
        if sum(ways) != 1:
            raise TreelabelError("a side of a claim has one of system, best_of, worst_of, mean_of and value")
        if self.value is None and self.metric is None:
            raise TreelabelError("a side of a claim needs metric =")


@dataclass(frozen=True)
class Claim:
    """That left - right > margin, on each of some data sets."""

    name: str
    text: str
    left: Side
    right: Side
    source: str = ""
    data: tuple[str, ...] | None = None
    margin: float = 0.0


@dataclass(frozen=True)
class Spec:
    """A study."""

    path: Path
    text: str
    title: str
    data: Mapping[str, DataSpec]
    systems: Mapping[str, SystemSpec]
    judge: tuple[Judge, ...] = ()
    about: str = ""
    paper: str = ""
    seeds: Annotated[int, Between(1, 1000)] | tuple[Seed, ...] = 1
    time_limit: str | float | None = None
    memory_limit: str | float | None = None
    keep_scores: bool = False
    tables: tuple[TableSpec, ...] = ()
    figures: tuple[FigureSpec, ...] = ()
    claims: tuple[Claim, ...] = ()

    def check(self) -> None:
        """Refuse seeds and limits that are none."""
        check_seeds_and_limits(self)

    @property
    def name(self) -> str:
        """The name of the file, without its ending."""
        return self.path.stem

    @property
    def folder(self) -> Path:
        """The folder of the file."""
        return self.path.resolve().parent

    def seeds_of(self, system: SystemSpec) -> tuple[int, ...]:
        """Return the seeds of a system, which may have its own."""
        seeds = self.seeds if system.seeds is None else system.seeds
        return tuple(range(seeds)) if isinstance(seeds, int) else seeds

    def judges_of(self, data: str) -> tuple[Judge, ...]:
        """Return what judges on a data set, one for each rule."""
        result: dict[str, dict[str, None]] = {}
        for judge in self.judge:
            if judge.data is None or data in judge.data:
                result.setdefault(judge.rule, {}).update(dict.fromkeys(judge.metrics))
        return tuple(Judge(tuple(metrics), rule) for rule, metrics in result.items())

    def system_title(self, name: str) -> str:
        """Return what a system is called in tables; names that the spec does not have stay."""
        return self.systems[name].title or name if name in self.systems else name

    def data_title(self, name: str) -> str:
        """Return what a data set is called in tables; names that the spec does not have stay."""
        return self.data[name].title or name if name in self.data else name


def column_titles(columns: Sequence[Column]) -> list[str]:
    """Return what columns are called; those of one name have their rules behind it.

    >>> column_titles([Column(metric="hf1", rule="best_leaf"), Column(field="model_size")])
    ['hf1', 'size (MB)']
    >>> column_titles([Column(metric="hf1", rule="best_leaf"), Column(metric="hf1", rule="optimal:hf1")])
    ['hf1, best_leaf', 'hf1, optimal:hf1']
    """
    titles = [each.title or (str(each.metric) if each.field is None else FIELD_TITLES[each.field]) for each in columns]
    return [
        f"{title}, {column.rule}" if titles.count(title) > 1 and column.rule is not None else title
        for title, column in zip(titles, columns, strict=True)
    ]


# Checks of single values

# Signs that have a meaning beside names: grid[C=1], --systems a,b.
NOT_IN_NAMES = "[],"


def check_names(names: Iterable[str], known: Sequence[str], where: str) -> None:
    """Refuse names of settings that are not known, and suggest the nearest."""
    for name in names:
        if name not in known:
            raise TreelabelError(
                f"{where or 'the spec'} has {quote(name)}, which means nothing here; {suggestion(name, known)}"
            )


def check_known(names: Iterable[str], known: Iterable[str], what: str, where: str = "") -> None:
    """Refuse names of data sets, systems or tables that are not there, and suggest the nearest."""
    known = list(known)
    for name in names:
        if name not in known:
            raise TreelabelError(f"{where}unknown {what} {quote(name)}; {suggestion(name, known)}")


def check_name(name: str, where: str) -> None:
    """Refuse the name of a data set or system that no command line and no table could show."""
    if not name.strip() or UNPRINTABLE.search(name) or any(sign in name for sign in NOT_IN_NAMES):
        raise TreelabelError(
            f"{where} has the name {quote(name)}; expected letters, digits and signs, but no brackets and commas"
        )


def check_plain(value: Any, where: str) -> None:
    """Refuse values that TOML has and JSON has not: dates and times, and numbers that are not finite."""
    if isinstance(value, Mapping):
        for name, each in value.items():
            check_plain(each, f"{where}.{name}")
    elif isinstance(value, list | tuple):
        for index, each in enumerate(value):
            check_plain(each, f"{where}[{index}]")
    elif not isinstance(value, str | int | float) or (isinstance(value, float) and not math.isfinite(value)):
        raise TreelabelError(f"{where} is {value}, expected text, a finite number, true or false")


def check_published(numbers: Any, count: int, where: str) -> None:
    """Refuse published numbers that are no list, or more than there are columns."""
    if not isinstance(numbers, list | tuple) or len(numbers) > count:
        raise TreelabelError(f"{where} is {quote(numbers)}, expected at most {count} numbers, one for each column")


def check_seeds_and_limits(part: Spec | SystemSpec) -> None:
    """Refuse a list of seeds that is empty, or has one twice, and limits that are no amounts."""
    if isinstance(part.seeds, tuple) and (not part.seeds or len(set(part.seeds)) < len(part.seeds)):
        raise TreelabelError(f"seeds is {list(part.seeds)}, expected at least one, and none twice")
    if part.time_limit is not None:
        parse_seconds(part.time_limit, "time_limit")
    if part.memory_limit is not None:
        parse_bytes(part.memory_limit, "memory_limit")
