"""Reading the spec of a study: everything is checked before anything runs, and unknown names get the nearest one."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from treelabel.core.errors import TreelabelError, locate_errors, quote
from treelabel.core.inputs import existing_file
from treelabel.core.validation import validate
from treelabel.experiment.metric_names import base_metric, spelled_metric
from treelabel.experiment.spec import (
    DEFAULT_RULE,
    Judge,
    Selection,
    Side,
    Spec,
    SystemSpec,
    check_known,
    check_name,
    check_names,
    check_plain,
)
from treelabel.metrics.registry import find_metric
from treelabel.rules.registry import find_rule


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
    expanded = {system.name: _expand_grid(system) for system in spec.systems.values()}
    _check_references(spec, [*spec.systems, *(name for made in expanded.values() for name in made)])
    return _name_combinations(spec, expanded)


# Fields of tables, figures and claims that name systems; in lists, a grid stands for all its combinations.
_SYSTEM_LISTS = ("systems", "best_of", "worst_of", "mean_of")
_SYSTEM_FIELDS = (*_SYSTEM_LISTS, "system", "baseline", "relative_to")


def _expand_grid(system: SystemSpec) -> dict[str, SystemSpec]:
    """Make a system of every combination of a grid that nothing chooses from; others stay as they are."""
    if not system.grid or system.select is not None:
        return {system.name: system}
    made = {}
    for text, params in system.combinations.items():
        name, title = f"{system.name}[{text}]", f"{system.title or system.name}, {text}"
        made[name] = replace(system, name=name, title=title, params={**system.params, **params}, grid={})
    return made


def _name_combinations(spec: Spec, expanded: Mapping[str, Mapping[str, SystemSpec]]) -> Spec:
    """Replace grids by their combinations, in lists of systems too; where one system is meant, a grid is refused."""

    def expand(part: Any) -> Any:
        for one in (part.system, part.relative_to) if isinstance(part, Side) else ():
            if one is not None and list(expanded.get(one, [one])) != [one]:
                listed = ", ".join(expanded[one])
                raise TreelabelError(f"a claim names {quote(one)}, which is a grid; name one of {listed}")
        lists = {name: vars(part)[name] for name in _SYSTEM_LISTS if vars(part).get(name)}
        return replace(
            part,
            **{
                name: tuple(each for one in names for each in expanded.get(one, [one])) for name, names in lists.items()
            },
        )

    return replace(
        spec,
        systems={name: system for made in expanded.values() for name, system in made.items()},
        tables=tuple(map(expand, spec.tables)),
        figures=tuple(map(expand, spec.figures)),
        claims=tuple(replace(claim, left=expand(claim.left), right=expand(claim.right)) for claim in spec.claims),
    )


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
    check_names(table, list(known), where)
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


def _check_references(spec: Spec, systems: Sequence[str]) -> None:
    """Refuse names of data sets, systems, rules and metrics that do not exist."""
    for system in spec.systems.values():
        check_known(system.params_for, spec.data, "data set", f"systems.{system.name}: ")
        _check_part(system, f"systems.{system.name}", spec, systems)
    for index, judge in enumerate(spec.judge):
        _check_part(judge, f"judge[{index}]", spec, systems)
        part = next((metric for metric in judge.metrics if metric != base_metric(metric)), None)
        if part is not None:
            raise TreelabelError(
                f"judge[{index}]: {quote(part)} is a part; name the metric, and all its parts are judged"
            )
    if not spec.judge and any(system.writes != "values" for system in spec.systems.values()):
        raise TreelabelError("has no [[judge]]: expected a rule and metrics")
    for what, parts in (("table", spec.tables), ("figure", spec.figures), ("claim", spec.claims)):
        names = [shown.name for shown in parts]
        for shown in parts:
            if names.count(shown.name) > 1:
                raise TreelabelError(f"the {what} {shown.name} stands there twice")
            _check_part(shown, f"the {what} {shown.name}", spec, systems)


def _check_part(part: Any, where: str, spec: Spec, systems: Sequence[str]) -> None:
    """Refuse what a part of a spec, and what is inside it, names without its being there."""
    for entry in fields(part):
        value = getattr(part, entry.name)
        for each in value if isinstance(value, tuple) else (value,):
            if is_dataclass(each):
                _check_part(each, where, spec, systems)
            elif each is not None and entry.name == "data":
                check_known([each], spec.data, "data set", f"{where}: ")
            elif each is not None and entry.name in _SYSTEM_FIELDS:
                check_known([each], systems, "system", f"{where}: ")
            elif each is not None and entry.name in ("metric", "metrics"):
                _check_metric(each, part, where, spec)
            elif entry.name == "rule" and isinstance(part, Judge | Selection) and each != DEFAULT_RULE:
                with locate_errors(where):
                    for name, setting in find_rule(each).settings.items():
                        check_plain(setting, f"rule {each!r}: {name}")


def _check_metric(metric: str, part: Any, where: str, spec: Spec) -> None:
    """Refuse a metric that does not exist, or is to be shown under a rule that no [[judge]] has for it."""
    is_shown = not isinstance(part, Judge | Selection)
    if is_shown and any(each.writes_values for each in spec.systems.values()):
        return
    with locate_errors(where):
        find_metric(base_metric(metric))
    if not is_shown:
        return
    wanted = spelled_metric(base_metric(metric))
    rules = dict.fromkeys(judge.rule for judge in spec.judge if wanted in map(spelled_metric, judge.metrics))
    if not rules:
        raise TreelabelError(f"{where}: no [[judge]] has the metric {quote(base_metric(metric))}")
    if part.rule is not None and part.rule not in rules:
        raise TreelabelError(
            f"{where}: {base_metric(metric)} is judged under {', '.join(rules)}, not under {quote(part.rule)}"
        )
