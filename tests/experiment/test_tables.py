"""Tables: what stands in cells, which are marked, what is said under them, and every style; figures as numbers."""

import csv
import io
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from tests.experiment.study import HEADER, RULE, TREE, add_failure, add_run, add_values, exported, judged, make_study
from tests.helpers import Run as Command
from treelabel import Scores, TreelabelError, evaluate
from treelabel.evaluation.significance import holm
from treelabel.experiment.estimates import Resampled, drawn_values
from treelabel.experiment.results import Results, load_run
from treelabel.experiment.spec import Column
from treelabel.experiment.study_figures import make_figures
from treelabel.experiment.study_tables import ColumnHead, Table, TableRow, make_tables
from treelabel.experiment.table_cells import Summary, TableCell, mark, summarise
from treelabel.experiment.table_styles import STYLES, write_tables
from treelabel.metrics import find_metric
from treelabel.report.figures.study_figures import study_figures
from treelabel.report.pictures import write_figures

MAIN = """
[[tables]]
name = "main"
title = "Main & first"
columns = [{metric = "hf1", title = "hF1 (%)", scale = 100, digits = 2}, {metric = "hamming", digits = 3},
           {field = "fit_seconds", digits = 1}]
published.one = {good = ["81.2±0.3", "0.1"], other = ["70.0"]}
published.two = {good = ["81.2±0.3"]}
published.RCV1 = {good = ["71.2±0.3", "0.2"]}
"""


def row(table: Table, title: str) -> TableRow:
    return next(each for each in table.rows if each.title == title)


def test_cells_are_means_over_seeds_with_half_of_their_interval(tmp_path: Path) -> None:
    (table,) = make_tables(make_study(tmp_path, MAIN))
    values = [100 * judged(0.95, seed)["hf1"] for seed in range(3)]
    half = stats.t.ppf(0.975, 2) * np.std(values, ddof=1) / math.sqrt(3)
    assert row(table, "Good").cells[0].show() == f"{np.mean(values):.2f} ± {half:.2f}"
    assert row(table, "Good").cells[2].show() == "2.5 ± 2.5"
    stored = judged(0.1).intervals(resamples=100)["hf1"]
    single = row(table, "Poor").cells[0]
    assert single.summary == Summary(stored.value, stored.low, stored.high, 1, "documents")
    assert row(table, "Poor").cells[2].show() == "1.5"
    assert "± half of the 95% interval over 3 seeds; over documents, of one seed (Poor)." in table.notes


def test_the_best_and_what_differs_from_it_is_marked(tmp_path: Path) -> None:
    results = make_study(tmp_path, MAIN)
    (table,) = make_tables(results)
    marks = {each.title: [(cell.is_best, cell.differs) for cell in each.cells[:3]] for each in table.rows}
    assert marks["Good"] == [(True, False), (True, False), (False, False)]
    assert marks["Poor"] == [(False, True), (False, True), (True, False)]
    assert "p < 0.01 by Holm's correction over the other systems of the column on the data set" in " ".join(table.notes)
    # With two seeds there are no stars, however small their spread happens to be.
    pairs = replace(results, runs=tuple(run for run in results.runs if run.seed < 2))
    (few,) = make_tables(pairs)
    assert not any(cell.differs for title in ("Good", "Fair") for cell in row(few, title).cells)
    assert "systems with two seeds are not tested" in " ".join(few.notes)
    (untested,) = make_tables(results, significance=False)
    assert not any(cell.differs for each in untested.rows for cell in each.cells)
    assert "* differs" not in " ".join(untested.notes)


@pytest.mark.slow
def test_marks_are_those_of_a_paired_bootstrap_with_holm(tmp_path: Path) -> None:
    results = make_study(tmp_path, seeds=1)
    for share in (0.9, 0.8, 0.7):
        add_run(tmp_path, "one", f"s{share}", 0, {RULE: judged(share)})
    results = Results.load(tmp_path)
    shares = {"good": 0.95, "s0.9": 0.9, "s0.8": 0.8, "s0.7": 0.7, "fair": 0.6, "poor": 0.1}
    column = Column(metric="hf1")
    cells = [TableCell("one", name, summary=summarise(results.of("one", name), column)) for name in shares]
    found = mark(cells, column, Resampled(results))
    drawn = {name: drawn_values(judged(share), [find_metric("hf1")], 1000)["hf1"] for name, share in shares.items()}
    p_values = []
    for name, share in list(shares.items())[1:]:
        difference = judged(0.95)["hf1"] - judged(share)["hf1"]
        p_values.append(2 * stats.norm.sf(difference / (drawn["good"] - drawn[name]).std(ddof=1)))
    assert [cell.differs for cell in found[1:]] == (holm(p_values) < 0.01).tolist()
    assert [cell.is_best for cell in found] == [True] + [False] * 5
    assert 0 < sum(cell.differs for cell in found) < 5


def test_means_that_print_alike_are_best_together() -> None:
    cells = [TableCell(summary=Summary(value)) for value in (0.50001, 0.50002, 0.4)]
    assert [cell.is_best for cell in mark(cells, Column(metric="hf1"), None)] == [True, True, False]
    assert [cell.is_best for cell in mark(cells, Column(metric="hamming"), None)] == [False, False, True]


def test_published_numbers_stand_under_ours(tmp_path: Path) -> None:
    (table,) = make_tables(make_study(tmp_path, MAIN))
    assert [each.title for each in table.rows] == ["Good", "Good, published", "Fair", "Poor", "other, published"]
    assert [cell.show() for cell in row(table, "Good, published").cells] == [
        "81.2±0.3", "0.1", "", "81.2±0.3", "", "", "71.2±0.3", "0.2", "",
    ]  # fmt: skip
    assert [head.group for head in table.heads[::3]] == ["One", "Two †", "RCV1 (not run here)"]
    assert "† Two: published numbers are those of other documents: half of the documents." in table.notes


def test_a_table_names_its_rules(tmp_path: Path) -> None:
    header = HEADER.replace('judge = [{rule = "best_leaf"', 'judge = [{rule = "default"')
    spec = '[[tables]]\nname = "t"\ncolumns = [{metric = "hf1"}, {metric = "macro_f1"}]\n'
    make_study(tmp_path, spec, header)
    for file in (tmp_path / "runs").glob("one-*.json"):
        rule = "best_leaf" if "good" in file.name else "threshold@0.5"
        known = load_run(file)
        changed = tuple(
            replace(each, rule="default", used_rule=rule) if each.rule == "best_leaf" else each for each in known.judged
        )
        file.write_text(replace(known, judged=changed).to_json())
    (table,) = make_tables(Results.load(tmp_path), significance=False)
    assert table.notes[0] == "Decided by best_leaf (Good, Fair, Poor), threshold@0.5 (Fair, Poor)."


def test_what_failed_is_said(tmp_path: Path) -> None:
    make_study(tmp_path, MAIN, HEADER + 'systems.late = {model = "linear"}\n')
    add_failure(tmp_path, "one", "late", "timeout", "over 10m")
    add_failure(tmp_path, "one", "good", "failed", "no memory", seed=9)
    (table,) = make_tables(Results.load(tmp_path))
    assert [cell.show() for cell in row(table, "late").cells[:4]] == ["timeout"] * 3 + ["-"]
    assert "late on One: timeout: over 10m" in table.notes
    assert "Good on One (1 of 4 seeds): failed: no memory" in table.notes


def test_systems_may_be_columns(tmp_path: Path) -> None:
    spec = '[[tables]]\nname = "t"\nlayout = "columns"\nsystems = ["fair", "good"]\n'
    spec += 'columns = [{metric = "hf1"}, {metric = "macro_f1_by_depth[2]"}]\npublished.one.good = ["0.9"]\n'
    (table,) = make_tables(make_study(tmp_path, spec))
    assert [head.title for head in table.heads] == ["Fair", "Good", "Good, published"]
    assert [each.title for each in table.rows] == [
        "One: hf1", "One: macro_f1_by_depth[2]", "Two: hf1", "Two: macro_f1_by_depth[2]",
    ]  # fmt: skip
    assert [cell.show() for cell in table.rows[0].cells][2] == "0.9"


def test_values_of_a_program_are_rows_and_heads(tmp_path: Path) -> None:
    header = HEADER + 'systems.program = {command = ["{python}"], writes = "values"}\n'
    spec = (
        '[[tables]]\nname = "t"\nlayout = "values"\nsystem = "program"\nrows = ["ICM", "F1"]\nheads = ["error", "n"]\n'
    )
    make_study(tmp_path, spec + 'published.ICM = ["96.1", "3"]\n', header)
    add_values(tmp_path, "one", "program", {"ICM/error": 96.123456, "ICM/n": 3, "F1/error": 0.5, "F1/n": 123456})
    (table,) = make_tables(Results.load(tmp_path))
    shown = {each.title: [cell.show() for cell in each.cells] for each in table.rows}
    assert shown == {"ICM": ["96.12", "3"], "ICM, published": ["96.1", "3"], "F1": ["0.5", "1.235e+05"]}


@pytest.mark.slow
def test_a_spec_without_tables_has_one_for_each_data_set(tmp_path: Path) -> None:
    found = make_tables(make_study(tmp_path))
    assert [table.name for table in found] == ["one", "two"]
    assert [head.title for head in found[0].heads] == [
        "hf1", "macro_f1", "hamming", "macro_f1_by_depth", "macro_f1_by_decile", "training (s)",
    ]  # fmt: skip
    with pytest.raises(TreelabelError, match="unknown table 'tow'; did you mean two"):
        make_tables(Results.load(tmp_path), ["tow"])


def test_training_that_a_budget_ended_is_told(tmp_path: Path) -> None:
    results = make_study(tmp_path, MAIN)
    assert not any("cut short" in note for note in make_tables(results)[0].notes)
    runs = tuple(replace(run, stopped=run.system == "fair", fit_seconds=7.0) for run in results.runs)
    (table,) = make_tables(replace(results, runs=runs))
    assert any(note.startswith("Training was cut short by the budget: Fair on One (7 s)") for note in table.notes)


def test_every_combination_of_a_grid_is_a_row(tmp_path: Path) -> None:
    header = HEADER + 'systems.many = {title = "Many", model = "linear", grid = {C = [0.1, 1.0]}}\n'
    make_study(tmp_path, MAIN, header)
    add_run(tmp_path, "one", "many[C=0.1]", 0, {RULE: judged(0.5)})
    (table,) = make_tables(Results.load(tmp_path))
    assert row(table, "Many, C=0.1").cells[0].show()
    assert row(table, "Many, C=1.0").cells[0].show() == "-"


# Styles

TINY = Table(
    "t",
    "A_title & more",
    (ColumnHead("Set †", "hF1"), ColumnHead("Set †", "<b>|")),
    (
        TableRow(
            "one",
            (TableCell("d", "s", "hF1", "r", Summary(0.5, 0.4, 0.6, 3, "seeds"), is_best=True, digits=2), TableCell()),
        ),
        TableRow(
            "two, published",
            (TableCell("d", "t", "hF1", text="=1±2", is_published=True), TableCell()),
            is_published=True,
        ),
    ),
    ("A note: 5%.",),
    "system",
)


def test_paper_is_aligned_text() -> None:
    assert write_tables([TINY]).splitlines() == [
        "A_title & more",
        "                  Set †",
        "system            hF1           <b>|",
        "------------------------------------",
        "one               •0.50 ± 0.10",
        "  two, published  =1±2",
        "A note: 5%.",
    ]
    assert "\x1b[1m•0.50 ± 0.10\x1b[0m" in write_tables([TINY], bold=True)
    evil = Table("t", "\x1b[2J", (ColumnHead("", "\x1b]0;x"),), (TableRow("\x07", (TableCell(text="\x1b[31m"),)),))
    for style in STYLES:
        assert "\x1b" not in write_tables([evil], style)


def test_markdown_latex_and_csv_are_escaped() -> None:
    assert write_tables([TINY], "markdown").splitlines()[:5] == [
        "**A\\_title & more**",
        "",
        "| system | Set †: hF1 | Set †: \\<b\\>\\| |",
        "|---|---:|---:|",
        "| one | **0.50 ± 0.10** |  |",
    ]
    latex = write_tables([TINY], "latex")
    assert r"\caption{A\_title \& more}" in latex
    assert r"one & \textbf{0.50 $\pm$ 0.10} &  \\" in latex
    assert r"\multicolumn{2}{c}{Set $\dagger$}" in latex
    assert latex.count("{") == latex.count("}")
    first, second = csv.DictReader(io.StringIO(write_tables([TINY], "csv", "study")))
    assert (first["mean"], first["low"], first["high"], first["n"], first["best"]) == ("0.5", "0.4", "0.6", "3", "1")
    assert (second["text"], second["published"], second["mean"]) == ("'=1±2", "1", "")


@pytest.mark.slow
def test_the_command_prints_tables_and_verdicts(tmp_path: Path, run: Command) -> None:
    claim = '[[claims]]\nname = "c"\ntext = "Good beats poor"\n'
    claim += 'left = {system = "good", metric = "hf1"}\nright = {system = "poor", metric = "hf1"}\n'
    results = make_study(tmp_path / "study", MAIN + claim)
    ended = run("tables", tmp_path / "study")
    assert ended.code == 0, ended.err
    assert ended.out.startswith("A study\n\nMain & first\n")
    assert "\nconfirmed: Good beats poor: confirmed on one: +0." in ended.out
    assert "\nClaims: 1 confirmed, 0 contradicted, 0 open; each by its own 95% interval, not corrected" in ended.out
    assert "confirmed" not in run("tables", tmp_path / "study", "--no-claims", "--no-significance").out
    exported(results, tmp_path / "results.json")
    for style in ("markdown", "latex", "csv"):
        assert run("tables", tmp_path / "results.json", tmp_path / "study", "--style", style).code == 0
    listed = run("tables", tmp_path / "results.json", tmp_path / "study", "--style", "csv").out
    assert {each["study"] for each in csv.DictReader(io.StringIO(listed))} == {"study"}
    assert (
        run("tables", tmp_path / "study", "--table", "main", "-o", tmp_path / "t.md", "--style", "markdown").code == 0
    )
    assert (tmp_path / "t.md").read_text().startswith("## A study\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere"], "nowhere: does not exist"),
        (["study", "--style", "latx"], "did you mean latex?"),
        (["study", "--table", "mian"], "did you mean main?"),
    ],
)
def test_mistakes_are_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Command, arguments: list[str], said: str
) -> None:
    make_study(tmp_path / "study", MAIN, seeds=1)
    monkeypatch.chdir(tmp_path)
    ended = run("tables", *arguments)
    assert ended.code == 2
    assert said in ended.err
    assert ended.err.count("\n") == 1


def test_accuracies_by_level_of_several_branches_are_explained(tmp_path: Path) -> None:
    header = HEADER.replace('rule = "best_leaf", metrics = [', 'rule = "best_per_level", metrics = ["level_accuracy", ')
    table = '[[tables]]\nname = "t"\ncolumns = [{metric = "level_accuracy[1]", title = "top"}, {metric = "hf1"}]\n'
    make_study(tmp_path / "study", table, header, seeds=0)
    result = evaluate(
        [["B"]],
        scores=Scores(TREE, [[0.6, 0.5, 0.1, 0.1, 0.5, 0.1, 0.1]]),
        rule="best_per_level",
        hierarchy=TREE,
        metrics=["level_accuracy", "hf1"],
    )
    add_run(tmp_path / "study", "one", "good", 0, {"best_per_level": result})
    told = "top: nodes that best_per_level chose on different branches bring their ancestors with them"
    results = Results.load(tmp_path / "study")
    assert any(note.startswith(told) for note in make_tables(results, significance=False)[0].notes)
    assert told not in write_tables(make_tables(make_study(tmp_path / "other", MAIN)), "paper")


# Figures

FIGURES = """
[[figures]]
name = "depth"
kind = "parts"
metric = "macro_f1_by_depth"
data = ["one"]
[[figures]]
name = "gain"
kind = "relative_parts"
metric = "macro_f1_by_decile"
baseline = "fair"
data = ["one"]
[[figures]]
name = "both"
kind = "metrics"
metrics = ["hf1", "macro_f1"]
systems = ["good"]
[[figures]]
name = "labels"
kind = "label_distribution"
data = ["one"]
"""


def test_figures_are_numbers(tmp_path: Path) -> None:
    results = make_study(tmp_path / "study", FIGURES)
    depth, gain, both, labels = make_figures(results)
    (good, _, poor) = depth.panels[0].series
    values = [judged(0.95, seed)["macro_f1_by_depth[2]"] for seed in range(3)]
    assert (good.x, depth.x) == (("1", "2"), "depth")
    assert good.y[1] == pytest.approx(np.mean(values))
    assert good.high[1] - good.y[1] == pytest.approx(stats.t.ppf(0.975, 2) * np.std(values, ddof=1) / math.sqrt(3))
    assert poor.low[0] < poor.y[0] < poor.high[0]
    first = gain.panels[0].series[0]
    pairs = [[judged(share, seed)[f"macro_f1_by_decile[{first.x[0]}]"] for share in (0.95, 0.6)] for seed in range(3)]
    assert first.y[0] == pytest.approx(np.mean([100 * (one / two - 1) for one, two in pairs]))
    assert first.low[0] < first.y[0] < first.high[0]
    assert [each.name for each in gain.panels[0].series] == ["good", "poor"]
    assert [panel.series[0].x for panel in both.panels] == [("hf1", "macro_f1")] * 2
    shares, occurrences = labels.panels[0].series
    frequencies = results.context("one").frequencies
    assert shares.x == ("1-14", "15-29", "30+")
    assert shares.y[0] == pytest.approx(100 * np.mean(frequencies < 15))
    assert occurrences.y[2] == pytest.approx(100 * frequencies[frequencies >= 30].sum() / frequencies.sum())


def test_figures_say_what_is_missing(tmp_path: Path) -> None:
    results = make_study(tmp_path / "study", FIGURES, HEADER + 'systems.late = {model = "linear"}\n')
    assert make_figures(results)[0].panels[0].notes == ("late: has not run",)
    labels = make_figures(exported(results, tmp_path / "results.json"))[3]
    assert labels.panels[0].notes == ("an exported file has no training frequencies",)


@pytest.mark.slow
def test_figures_of_one_name_are_files_of_their_own(tmp_path: Path) -> None:
    figures = "".join(
        f'[[figures]]\nname = "{name}"\nkind = "metrics"\nmetrics = ["hf1"]\n'
        for name in ("by level", "by/level", "By-Level")
    )
    results = make_study(
        tmp_path / "study", figures + f'[[figures]]\nname = "{"é" * 300}"\nkind = "label_distribution"\n'
    )
    drawn = study_figures([*make_figures(results), *make_figures(results)])
    names = [drawing.name for drawing in drawn]
    assert names[:6] == ["by-level", "by-level-2", "By-Level-3", "é" * 50, "by-level-4", "by-level-5"]
    assert len({name.casefold() for name in names}) == len(names) == 8
    few = [drawn[0], drawn[1], drawn[3]]
    assert len({file.name for file in write_figures(tmp_path / "figures", few)}) == 9
    assert len(list((tmp_path / "figures").iterdir())) == 9
