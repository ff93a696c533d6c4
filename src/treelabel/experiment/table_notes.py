"""Notes under tables: the rules that decided, what intervals and marks mean, and what is missing and why."""

from collections.abc import Iterable, Sequence

from treelabel.core.errors import TreelabelError
from treelabel.experiment.metric_names import base_metric
from treelabel.experiment.results import Results
from treelabel.experiment.spec import TableSpec, column_titles
from treelabel.experiment.table_cells import FEW_SEEDS, STAR_LEVEL, TableCell
from treelabel.metrics.registry import find_metric


def table_notes(
    spec: TableSpec, results: Results, data: Sequence[str], systems: Sequence[str], cells: Sequence[TableCell]
) -> list[str]:
    """Say what a reader of a table must know.

    Parameters
    ----------
    spec : TableSpec
        The table.
    results : Results
        The study.
    data, systems : sequence of str
        Data sets that were run, and systems.

    Returns
    -------
    list of str
        Sentences.
    """
    notes = [_rules(spec, results, cells), _several_branches(spec, cells), _intervals(results, cells), _marks(cells)]
    notes += [*_data(spec, results, data), *_failures(results, data, systems), _cut_short(results, data, systems)]
    return [note for note in [*notes, spec.note] if note]


def _rules(spec: TableSpec, results: Results, cells: Sequence[TableCell]) -> str:
    """Name the rule of each column; of each system where these differ."""
    titles_of: dict[str, list[str]] = {}
    for column, title in zip(spec.columns, column_titles(spec.columns), strict=True):
        if column.metric is None:
            continue
        if not _needs_decisions(column.metric):
            titles_of.setdefault("no rule, as the scores are judged", []).append(title)
            continue
        used: dict[str, list[str]] = {}
        for cell in cells:
            if cell.column == title and cell.rule and not cell.is_published:
                used.setdefault(cell.rule, []).append(results.spec.system_title(cell.system))
        rules = [rule if len(used) == 1 else f"{rule} ({_join(who)})" for rule, who in used.items()]
        if rules:
            titles_of.setdefault(", ".join(rules), []).append(title)
    parts = [rule if len(titles_of) == 1 else f"{rule}: {_join(titles)}" for rule, titles in titles_of.items()]
    return f"Decided by {'; '.join(parts)}." if parts else ""


def _several_branches(spec: TableSpec, cells: Sequence[TableCell]) -> str:
    """Say where accuracies by level are not those of the nodes that a rule chose on each level."""
    titles = [
        title
        for column, title in zip(spec.columns, column_titles(spec.columns), strict=True)
        if column.metric is not None and base_metric(column.metric) == "level_accuracy"
    ]
    met = [cell.column for cell in cells if cell.column in titles and cell.rule.startswith("best_per_level")]
    if not met:
        return ""
    return (
        f"{_join(met)}: nodes that best_per_level chose on different branches bring their ancestors with them, so "
        "that a level is right only if the nodes below it agree with it."
    )


def _needs_decisions(metric: str) -> bool:
    try:
        return "decisions" in find_metric(base_metric(metric)).needs
    except TreelabelError:
        return False


def _join(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(names))


def _intervals(results: Results, cells: Sequence[TableCell]) -> str:
    """Say what is behind ±."""
    systems: dict[tuple[str, int], list[str]] = {}
    for cell in cells:
        if cell.summary.source != "none":
            title = results.spec.system_title(cell.system)
            systems.setdefault((cell.summary.source, cell.summary.count), []).append(title)
    single = systems.pop(("documents", 1), [])
    parts = [
        f"over {count} seeds" + (f" ({_join(titles)})" if len(systems) > 1 else "")
        for (_, count), titles in sorted(systems.items())
    ]
    if single:
        parts.append("over documents, of one seed" + (f" ({_join(single)})" if parts else ""))
    return f"± half of the 95% interval {'; '.join(parts)}." if parts else ""


def _marks(cells: Sequence[TableCell]) -> str:
    if not any(cell.is_best for cell in cells):
        return ""
    star = ""
    if any(cell.differs for cell in cells):
        star = (
            f"; * differs from it, p < {STAR_LEVEL} by Holm's correction over the other systems of the column on the "
            "data set, each column and data set by itself"
        )
    few = any(cell.summary.count == FEW_SEEDS for cell in cells)
    untested = "; systems with two seeds are not tested, as their spread is hardly known" if few else ""
    return f"The best is marked{star}{untested}."


def _data(spec: TableSpec, results: Results, data: Sequence[str]) -> list[str]:
    """Say on which sets published numbers are those of other documents, and what the spec notes about a set."""
    notes = []
    for name in data:
        known, title = results.spec.data[name], results.spec.data_title(name)
        if spec.layout != "values" and name in spec.published and not known.same_as:
            about = f": {known.note}" if known.note else ""
            notes.append(f"† {title}: published numbers are those of other documents{about}.")
        elif known.note:
            notes.append(f"{title}: {known.note}.")
    return notes


def _failures(results: Results, data: Sequence[str], systems: Sequence[str]) -> list[str]:
    """Say which runs have no values, and why."""
    notes = []
    for name in data:
        for system in systems:
            runs = results.all_of(name, system)
            failures = [f"{run.status}: {run.reason}" for run in runs if not run.is_done]
            if failures:
                count = "" if len(failures) == len(runs) else f" ({len(failures)} of {len(runs)} seeds)"
                title = f"{results.spec.system_title(system)} on {results.spec.data_title(name)}"
                notes.append(f"{title}{count}: {'; '.join(dict.fromkeys(failures))}")
    return notes


def _cut_short(results: Results, data: Sequence[str], systems: Sequence[str]) -> str:
    """Say which values are of training that a budget ended."""
    cut = [
        f"{results.spec.system_title(run.system)} on {results.spec.data_title(run.data)} ({run.fit_seconds:.0f} s)"
        for run in results.runs
        if run.stopped and run.data in data and run.system in systems
    ]
    return f"Training was cut short by the budget: {_join(cut)}." if cut else ""
