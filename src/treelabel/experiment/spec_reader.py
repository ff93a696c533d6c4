"""Reading the spec of a study: everything is checked before anything runs, and unknown names get the nearest one."""

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from treelabel.core.errors import TreelabelError, locate_errors, quote
from treelabel.core.inputs import existing_file
from treelabel.core.registry import suggestion
from treelabel.core.validation import validate
from treelabel.experiment.metric_names import base_metric, spelled_metric
from treelabel.experiment.spec import (
    DEFAULT_RULE,
    Side,
    Spec,
    SystemSpec,
    check_limits,
    check_name,
    check_names,
    check_plain,
    check_seeds,
)


def read_spec(path: str | Path) -> Spec:
    """Read a study's spec and check every name in it.

    Parameters
    ----------
    path : str or Path
        A TOML file.

    Returns
    -------
    Spec
    """
    file = existing_file(path)
    with locate_errors(file):
        try:
            text = file.read_bytes().decode("utf-8")
        except UnicodeDecodeError:
            raise TreelabelError("is not UTF-8 text; a spec is a TOML file") from None
        return parse_spec(text, file)


def parse_spec(text: str, path: Path) -> Spec:
    """Make a spec of the text of a TOML file, and check every name in it.

    Parameters
    ----------
    text : str
        The content of the file.
    path : Path
        Where it is from: files that it names may stand beside it.

    Returns
    -------
    Spec

    >>> spec = parse_spec('''
    ... title = "Two models"
    ... data.nouns.all = "sample"
    ... systems.linear = {model = "linear", params = {ngram_range = [1, 1]}}
    ... systems.frequent = {model = "most_frequent", seeds = 1}
    ... judge = [{rule = "best_leaf", metrics = ["leaf_accuracy", "hf1"]}]
    ... ''', Path("two.toml"))
    >>> spec.name, list(spec.systems), spec.judges_of("nouns")[0].metrics
    ('two', ['linear', 'frequent'], ('leaf_accuracy', 'hf1'))
    """
    try:
        content = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise TreelabelError(f"is not valid TOML: {error}") from None
    check_names(content, [entry.name for entry in fields(Spec) if entry.name not in ("path", "text")], "")
    for name in ("data", "systems"):
        if not isinstance(content.get(name), dict) or not content[name]:
            raise TreelabelError(f"has no [{name}.NAME]; a spec names at least one of {name}")
        for key, table in content[name].items():
            check_name(key, name)
            _name_table(table, key, f"{name}.{key}")
    spec = _build(Spec, {"title": path.stem, **content, "path": path, "text": text}, "")
    check_limits(spec.time_limit, spec.memory_limit)
    check_seeds(spec.seeds)
    _check_references(spec)
    return _expand_grids(spec)


def _expand_grids(spec: Spec) -> Spec:
    """Make a system of every combination of a grid that nothing chooses from, and of names that stand for them."""
    systems: dict[str, SystemSpec] = {}
    names: dict[str, tuple[str, ...]] = {}
    for system in spec.systems.values():
        made = [system]
        if system.grid and system.select is None:
            title = system.title or system.name
            made = [
                replace(
                    system,
                    name=f"{system.name}[{text}]",
                    title=f"{title}, {text}",
                    params={**system.params, **params},
                    grid={},
                )
                for text, params in system.combinations.items()
            ]
        systems |= {each.name: each for each in made}
        names[system.name] = tuple(each.name for each in made)

    def listed(given: tuple[str, ...] | None) -> tuple[str, ...] | None:
        return None if given is None else tuple(each for name in given for each in names.get(name, (name,)))

    tables = tuple(replace(table, systems=listed(table.systems)) for table in spec.tables)
    figures = tuple(replace(figure, systems=listed(figure.systems)) for figure in spec.figures)
    claims = tuple(
        replace(claim, left=_side(claim.left, names), right=_side(claim.right, names)) for claim in spec.claims
    )
    return replace(spec, systems=systems, tables=tables, figures=figures, claims=claims)


def _side(side: Side, names: Mapping[str, tuple[str, ...]]) -> Side:
    """Let the lists of a side name combinations of grids; where one system is meant, a grid is refused."""
    for one in (side.system, side.relative_to):
        if one is not None and names.get(one, (one,)) != (one,):
            raise TreelabelError(f"a claim names {quote(one)}, which is a grid; name one of {', '.join(names[one])}")
    lists: dict[str, Any] = {
        name: tuple(each for given in getattr(side, name) for each in names.get(given, (given,)))
        for name in ("best_of", "worst_of", "mean_of")
    }
    return replace(side, **lists)


# Making dataclasses of mappings

Made = TypeVar("Made")


def _name_table(table: Any, name: str, where: str) -> None:
    """Add to a table of settings the name that stands in brackets above it."""
    if isinstance(table, dict):
        if "name" in table:
            raise TreelabelError(
                f"{where} has 'name', which stands in brackets: [{where}]; title = is what tables show"
            )
        table["name"] = name


def _build(kind: type[Made], table: Any, where: str) -> Made:
    """Make a dataclass of a mapping: unknown keys, missing keys and values of another type are refused."""
    if not isinstance(table, dict):
        raise TreelabelError(f"{where} is {quote(table)}, expected a table of settings")
    known = {entry.name: entry for entry in fields(kind)}  # type: ignore[arg-type]
    check_names(table, known, where)
    hints = get_type_hints(kind, include_extras=True)
    values = {
        name: _build_value(value, hints[name], f"{where}.{name}" if where else name) for name, value in table.items()
    }
    for name, entry in known.items():
        if name not in values and entry.default is MISSING and entry.default_factory is MISSING:
            raise TreelabelError(f"{where or 'the spec'} lacks {name} =")
    made = kind(**values)
    check = getattr(made, "check", None)
    if check is not None:
        with locate_errors(where):
            check()
    return made


def _build_value(value: Any, hint: Any, where: str) -> Any:
    """Make dataclasses where the hint has one, alone or in a tuple or mapping; check all others, and freeze lists."""
    inner = next((each for each in (hint, *get_args(hint)) if isinstance(each, type) and is_dataclass(each)), None)
    if inner is None:
        if hint is not Path:
            validate(value, hint, where)
        return tuple(value) if isinstance(value, list) else value
    if get_origin(hint) is tuple:
        if not isinstance(value, list):
            expected = f"a list of {where.rpartition('.')[2]}" if "." in where else f"[[{where}]], once for each"
            raise TreelabelError(f"{where} is {quote(value)}, expected {expected}")
        return tuple(_build(inner, each, f"{where}[{index}]") for index, each in enumerate(value))
    if get_origin(hint) is Mapping:
        return {key: _build(inner, each, f"{where}.{key}") for key, each in value.items()}
    return _build(inner, value, where)


# Names that refer to others


def _check_references(spec: Spec) -> None:
    """Refuse names of data sets, systems, rules and metrics that do not exist."""
    for system in spec.systems.values():
        where = f"systems.{system.name}"
        _check_known([*(system.data or ()), *system.params_for], spec.data, "data set", where)
        if system.select is not None:
            _check_metrics([system.select.metric], where)
            _check_rule(system.select.rule, where)
    for index, judge in enumerate(spec.judge):
        where = f"judge[{index}]"
        _check_known(judge.data or (), spec.data, "data set", where)
        _check_metrics(judge.metrics, where)
        part = next((metric for metric in judge.metrics if metric != base_metric(metric)), None)
        if part is not None:
            raise TreelabelError(f"{where}: {quote(part)} is a part; name the metric, and all its parts are judged")
        _check_rule(judge.rule, where)
    if not spec.judge and any(system.writes != "values" for system in spec.systems.values()):
        raise TreelabelError("has no [[judge]]: expected a rule and metrics")
    _check_once([table.name for table in spec.tables], "table")
    _check_once([figure.name for figure in spec.figures], "figure")
    _check_once([claim.name for claim in spec.claims], "claim")
    _check_shown(spec)


def _check_shown(spec: Spec) -> None:
    """Refuse tables, figures and claims that name what is not there."""
    for table in spec.tables:
        where = f"the table {table.name}"
        _check_known(table.data or (), spec.data, "data set", where)
        _check_known(
            [*(table.systems or ()), *([table.system] if table.system else [])], _systems(spec), "system", where
        )
        for column in table.columns:
            _check_judged(spec, column.metric, column.rule, where)
    for figure in spec.figures:
        where = f"the figure {figure.name}"
        _check_known(figure.data or (), spec.data, "data set", where)
        _check_known(
            [*(figure.systems or ()), *([figure.baseline] if figure.baseline else [])], _systems(spec), "system", where
        )
        for metric in (figure.metric, *figure.metrics):
            _check_judged(spec, metric, figure.rule, where)
    _check_claims(spec)


def _check_claims(spec: Spec) -> None:
    for claim in spec.claims:
        where = f"the claim {claim.name}"
        _check_known(claim.data or (), spec.data, "data set", where)
        for side in (claim.left, claim.right):
            _check_known(side.systems, _systems(spec), "system", where)
            _check_known([side.relative_to] if side.relative_to else [], _systems(spec), "system", where)
            _check_known([side.data] if side.data else [], spec.data, "data set", where)
            _check_judged(spec, side.metric, side.rule, where)


def _check_once(names: Sequence[str], what: str) -> None:
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise TreelabelError(f"the {what} {twice} stands there twice")


def _systems(spec: Spec) -> list[str]:
    """Return the names of systems, and of the combinations of their grids."""
    grids = [system for system in spec.systems.values() if system.grid and system.select is None]
    return [*spec.systems, *(f"{system.name}[{each}]" for system in grids for each in system.combinations)]


def _check_known(names: Iterable[str], known: Iterable[str], what: str, where: str) -> None:
    listed = list(known)
    for name in names:
        if name not in listed:
            raise TreelabelError(f"{where}: unknown {what} {quote(name)}; {suggestion(name, listed)}")


def _check_metrics(names: Sequence[str], where: str) -> None:
    from treelabel.metrics.registry import find_metric

    for name in names:
        with locate_errors(where):
            find_metric(base_metric(name))


def _check_rule(rule: str, where: str) -> None:
    from treelabel.rules.registry import find_rule

    if rule != DEFAULT_RULE:
        with locate_errors(where):
            for name, value in find_rule(rule).settings.items():
                check_plain(value, f"rule {rule!r}: {name}")


def _check_judged(spec: Spec, metric: str | None, rule: str | None, where: str) -> None:
    """Refuse a metric under a rule that no [[judge]] asks for."""
    if metric is None or any(each.command and each.writes == "values" for each in spec.systems.values()):
        return
    _check_metrics([metric], where)
    wanted = spelled_metric(base_metric(metric))
    result = [judge for judge in spec.judge if wanted in map(spelled_metric, judge.metrics)]
    if not result:
        raise TreelabelError(f"{where}: no [[judge]] has the metric {quote(base_metric(metric))}")
    if rule is not None and rule not in [judge.rule for judge in result]:
        rules = ", ".join(dict.fromkeys(judge.rule for judge in result))
        raise TreelabelError(f"{where}: {base_metric(metric)} is judged under {rules}, not under {quote(rule)}")
