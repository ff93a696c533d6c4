"""Tables of a study: means over seeds with intervals, the best marked, published numbers beside ours."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from treelabel.experiment.estimates import Resampled
from treelabel.experiment.results import Results
from treelabel.experiment.spec import Column, Spec, TableSpec, check_known, column_titles
from treelabel.experiment.table_cells import TableCell, make_cell, mark
from treelabel.experiment.table_notes import table_notes

# Behind the name of a data set that is not the one of the published numbers.
OTHER_DATA = "†"
NOT_RUN = "not run here"
PUBLISHED = "published"


@dataclass(frozen=True)
class ColumnHead:
    """The head of a column, and of the group that it belongs to."""

    group: str
    title: str


@dataclass(frozen=True)
class TableRow:
    """A row; those of published numbers stand under ours."""

    title: str
    cells: tuple[TableCell, ...]
    is_published: bool = False


@dataclass(frozen=True)
class Table:
    """A table, ready to be written in a style. `notes` say what a reader must know."""

    name: str
    title: str
    heads: tuple[ColumnHead, ...]
    rows: tuple[TableRow, ...]
    notes: tuple[str, ...] = ()
    corner: str = ""


def make_tables(
    results: Results,
    names: Sequence[str] | None = None,
    resampled: Resampled | None = None,
    significance: bool = True,
) -> list[Table]:
    """Make the tables of a study; a spec without any has one for each data set, of all systems and metrics.

    Parameters
    ----------
    results : Results
        The study.
    names : sequence of str, optional
        Only the tables with these names.
    resampled : Resampled, optional
        Values on resampled documents, if others need them too.
    significance : bool
        Whether to test which systems differ from the best, which takes longest.

    Returns
    -------
    list of Table
    """
    specs = results.spec.tables or default_tables(results.spec)
    check_known(names or (), [spec.name for spec in specs], "table")
    tested = (Resampled(results) if resampled is None else resampled) if significance else None
    return [make_table(spec, results, tested) for spec in specs if not names or spec.name in names]


def default_tables(spec: Spec) -> tuple[TableSpec, ...]:
    """Return tables for a spec that has none: one for each data set, with all that is judged there, and times."""
    result = []
    for name, data in spec.data.items():
        judges = spec.judges_of(name)
        columns = [Column(metric=metric, rule=judge.rule) for judge in judges for metric in judge.metrics]
        times = Column(field="fit_seconds", digits=1)
        result.append(TableSpec(name, (*columns, times), data.title or name, data=(name,)))
    return tuple(result)


def make_table(spec: TableSpec, results: Results, resampled: Resampled | None = None) -> Table:
    """Make one table.

    Parameters
    ----------
    spec : TableSpec
        What stands in it.
    results : Results
        The study.
    resampled : Resampled, optional
        Values on resampled documents, to test which systems differ from the best; None tests nothing.

    Returns
    -------
    Table
    """
    if spec.layout == "values":
        return _table_of_values(spec, results)
    study, titles, data = results.spec, column_titles(spec.columns), spec.data or tuple(results.spec.data)
    systems = spec.systems or tuple(study.systems)
    cells = _our_cells(spec, results, data, systems, resampled)
    for name, published in spec.published.items():
        for system, numbers in published.items():
            cells[name, system, True] = _published_cells(numbers, titles, name, system)
    groups = {name: _group_title(name, study, cells) for name, _, _ in cells}
    # Each system of the paper stands under ours of the same name.
    lines = {
        (system, is_published): study.system_title(system) + (f", {PUBLISHED}" if is_published else "")
        for system in dict.fromkeys(system for _, system, _ in cells)
        for is_published in (False, True)
        if any((name, system, is_published) in cells for name in groups)
    }

    def row(name: str, system: str, is_published: bool) -> tuple[TableCell, ...]:
        empty = (TableCell(name, system, is_published=is_published),) * len(titles)
        return cells.get((name, system, is_published), empty)

    if spec.layout == "rows":
        heads = [ColumnHead(group, title) for group in groups.values() for title in titles]
        rows = [
            TableRow(title, tuple(cell for name in groups for cell in row(name, *line)), is_published=line[1])
            for line, title in lines.items()
        ]
    else:
        heads = [ColumnHead("", title) for title in lines.values()]
        rows = [
            TableRow(f"{group}: {title}" if len(groups) > 1 else title, tuple(row(name, *line)[i] for line in lines))
            for name, group in groups.items()
            for i, title in enumerate(titles)
        ]
    corner = "system" if spec.layout == "rows" else ""
    table = Table(spec.name, spec.title or spec.name, tuple(heads), tuple(rows), corner=corner)
    return _annotate(table, spec, results, data, systems)


# Cells by data set, system, and whether they are published.
_Cells = dict[tuple[str, str, bool], tuple[TableCell, ...]]


def _our_cells(
    spec: TableSpec, results: Results, data: Sequence[str], systems: Sequence[str], resampled: Resampled | None
) -> _Cells:
    cells: _Cells = {}
    for name in data:
        columns = []
        for column, title in zip(spec.columns, column_titles(spec.columns), strict=True):
            made = [make_cell(results, name, system, column, title) for system in systems]
            columns.append(mark(made, column, resampled))
        cells |= {(name, system, False): row for system, row in zip(systems, zip(*columns, strict=True), strict=True)}
    return cells


def _group_title(name: str, study: Spec, cells: _Cells) -> str:
    """Name a data set; † where published numbers are those of other documents, and where there are only these."""
    title, kinds = study.data_title(name), {is_published for data, _, is_published in cells if data == name}
    if False not in kinds:
        return f"{title} ({NOT_RUN})"
    return f"{title} {OTHER_DATA}" if True in kinds and not study.data[name].same_as else title


def _annotate(table: Table, spec: TableSpec, results: Results, data: Sequence[str], systems: Sequence[str]) -> Table:
    notes = table_notes(spec, results, data, systems, [cell for row in table.rows for cell in row.cells])
    return replace(table, notes=tuple(notes))


def _published_cells(numbers: Sequence[Any], titles: Sequence[str], data: str, system: str) -> tuple[TableCell, ...]:
    padded = [*map(str, numbers), *[""] * (len(titles) - len(numbers))]
    return tuple(
        TableCell(data, system, title, text=text, is_published=True) for title, text in zip(titles, padded, strict=True)
    )


def _table_of_values(spec: TableSpec, results: Results) -> Table:
    """Lay out what a program of the study's own prints: its value "row/head" in each cell."""
    system = str(spec.system)
    data = (
        spec.data or tuple(name for name in results.spec.data if results.of(name, system)) or tuple(results.spec.data)
    )
    look: dict[str, Any] = {"rule": "", "digits": None}
    if spec.columns:
        look = {"scale": spec.columns[0].scale, "digits": spec.columns[0].digits}
    groups = {name: results.spec.data_title(name) if len(data) > 1 else "" for name in data}
    heads, rows = [ColumnHead(group, head) for group in groups.values() for head in spec.heads], []
    for row in spec.rows:
        names = [(name, f"{row}/{head}") for name in data for head in spec.heads]
        made = [make_cell(results, name, system, Column(metric=value), value) for name, value in names]
        rows.append(TableRow(row, tuple(replace(cell, **look) for cell in made)))
        if row in spec.published:
            numbers = _published_cells(spec.published[row], spec.heads, "", system)
            rows.append(TableRow(f"{row}, {PUBLISHED}", numbers * len(data), is_published=True))
    table = Table(spec.name, spec.title or spec.name, tuple(heads), tuple(rows))
    return _annotate(table, spec, results, data, (system,))
