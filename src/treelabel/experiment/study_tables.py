"""Tables of a study: means over seeds with intervals, the best marked, published numbers beside ours."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from treelabel.core.errors import TreelabelError, quote
from treelabel.core.registry import suggestion
from treelabel.experiment.estimates import Resampled
from treelabel.experiment.results import Results
from treelabel.experiment.spec import Column, Spec, TableSpec, column_titles
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
    known = [spec.name for spec in specs]
    for name in names or ():
        if name not in known:
            raise TreelabelError(f"unknown table {quote(name)}; {suggestion(name, known)}")
    tested = (Resampled(results) if resampled is None else resampled) if significance else None
    return [make_table(spec, results, tested) for spec in specs if not names or spec.name in names]


def default_tables(spec: Spec) -> tuple[TableSpec, ...]:
    """Return tables for a spec that has none: one for each data set, with all that is judged there, and times."""
    result = []
    for name, data in spec.data.items():
        asked = [(metric, judge.rule) for judge in spec.judges_of(name) for metric in judge.metrics]
        columns = [Column(metric=metric, rule=rule) for metric, rule in dict.fromkeys(asked)]
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
    grid = _Grid.of(spec, results, resampled)
    heads, rows = grid.by_rows() if spec.layout == "rows" else grid.by_columns()
    corner = "system" if spec.layout == "rows" else ""
    shown = [name for name in grid.groups if name in (spec.data or results.spec.data)]
    notes = table_notes(spec, results, shown, grid.systems, [cell for row in rows for cell in row.cells])
    return Table(spec.name, spec.title or spec.name, tuple(heads), tuple(rows), tuple(notes), corner)


@dataclass(frozen=True)
class _Grid:
    """Our cells by data set, system and column, and the published ones, before they are laid out."""

    spec: TableSpec
    study: Spec
    groups: tuple[str, ...]
    systems: tuple[str, ...]
    ours: Mapping[tuple[str, str], tuple[TableCell, ...]]
    published: Mapping[tuple[str, str], tuple[TableCell, ...]]

    @classmethod
    def of(cls, spec: TableSpec, results: Results, resampled: Resampled | None) -> "_Grid":
        study = results.spec
        data = spec.data or tuple(study.data)
        systems = list(spec.systems or study.systems)
        titles = column_titles(spec.columns)
        columns: dict[str, list[list[TableCell]]] = {}
        for name in data:
            made = [
                [make_cell(results, name, system, column, title) for system in systems]
                for column, title in zip(spec.columns, titles, strict=True)
            ]
            columns[name] = [mark(cells, column, resampled) for cells, column in zip(made, spec.columns, strict=True)]
        ours = {
            (name, system): tuple(cells[index] for cells in columns[name])
            for name in data
            for index, system in enumerate(systems)
        }
        published = _published(spec)
        others = [name for name, _ in published if name not in data]
        return cls(spec, study, (*data, *dict.fromkeys(others)), tuple(systems), ours, published)

    def group_title(self, name: str) -> str:
        """Name a data set; † where published numbers are those of other documents, and where there are only these."""
        title = self.study.data_title(name)
        if not any(data == name for data, _ in self.ours):
            return f"{title} ({NOT_RUN})"
        is_compared = any(data == name for data, _ in self.published)
        return f"{title} {OTHER_DATA}" if is_compared and not self.study.data[name].same_as else title

    def cells(self, name: str, system: str, is_published: bool) -> tuple[TableCell, ...]:
        """The cells of a system on a data set; empty ones where there is nothing."""
        source = self.published if is_published else self.ours
        return source.get(
            (name, system), (TableCell(name, system, is_published=is_published),) * len(self.spec.columns)
        )

    def lines(self) -> list[tuple[str, bool]]:
        """Systems with what is ours and what is published: each system of the paper under ours of the same name."""
        papers = dict.fromkeys(system for _, system in self.published)
        result = []
        for system in dict.fromkeys([*self.systems, *papers]):
            result += [(system, False)] if system in self.systems else []
            result += [(system, True)] if system in papers else []
        return result

    def title(self, system: str, is_published: bool) -> str:
        title = self.study.system_title(system)
        return f"{title}, {PUBLISHED}" if is_published else title

    def by_rows(self) -> tuple[list[ColumnHead], list[TableRow]]:
        """Lay out systems as rows, and data sets as groups of columns."""
        titles = column_titles(self.spec.columns)
        heads = [ColumnHead(self.group_title(name), title) for name in self.groups for title in titles]
        rows = []
        for system, is_published in self.lines():
            cells = [cell for name in self.groups for cell in self.cells(name, system, is_published)]
            rows.append(TableRow(self.title(system, is_published), tuple(cells), is_published))
        return heads, rows

    def by_columns(self) -> tuple[list[ColumnHead], list[TableRow]]:
        """Lay out systems as columns, and the columns of each data set as rows."""
        lines = self.lines()
        heads = [ColumnHead("", self.title(*line)) for line in lines]
        rows = []
        for name in self.groups:
            many = len(self.groups) > 1
            for index, title in enumerate(column_titles(self.spec.columns)):
                cells = tuple(self.cells(name, *line)[index] for line in lines)
                rows.append(TableRow(f"{self.group_title(name)}: {title}" if many else title, cells))
        return heads, rows


def _published(spec: TableSpec) -> dict[tuple[str, str], tuple[TableCell, ...]]:
    """Read the published numbers of a table, by data set and system."""
    result = {}
    for data, systems in spec.published.items():
        for system, numbers in systems.items():
            titles = column_titles(spec.columns)
            result[data, system] = _published_cells(numbers, titles, data, system)
    return result


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
    look = spec.columns[0] if spec.columns else None
    heads, rows = [], []
    for name in data:
        heads += [ColumnHead(results.spec.data_title(name) if len(data) > 1 else "", head) for head in spec.heads]
    for row in spec.rows:
        cells = [_value_cell(results, name, system, f"{row}/{head}", look) for name in data for head in spec.heads]
        rows.append(TableRow(row, tuple(cells)))
        if row in spec.published:
            numbers = _published_cells(spec.published[row], spec.heads, "", system)
            rows.append(TableRow(f"{row}, {PUBLISHED}", numbers * len(data), is_published=True))
    cells = [cell for row in rows for cell in row.cells]
    notes = table_notes(spec, results, data, (system,), cells)
    return Table(spec.name, spec.title or spec.name, tuple(heads), tuple(rows), tuple(notes))


def _value_cell(results: Results, data: str, system: str, name: str, look: Column | None) -> TableCell:
    cell = make_cell(results, data, system, Column(metric=name), name)
    return replace(cell, rule="", digits=None) if look is None else replace(cell, scale=look.scale, digits=look.digits)
