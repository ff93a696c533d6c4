import json
from pathlib import Path

import pytest

from tests.experiment.small import SPEC, write_study
from tests.helpers import Run
from treelabel import TreelabelError
from treelabel.cli import bench
from treelabel.experiment.results import Results
from treelabel.experiment.stored_scores import load_stored_scores

TABLE = """
[[tables]]
name = "main"
columns = [{metric = "leaf_accuracy", title = "accuracy (%)", scale = 100, digits = 1}]
[[figures]]
name = "f1"
kind = "metrics"
metrics = ["hf1", "macro_f1"]
rule = "threshold@0.5"
x = "metric"
y = "value"
[[claims]]
name = "words"
text = "Words help"
left = {system = "linear", metric = "leaf_accuracy"}
right = {system = "frequent", metric = "leaf_accuracy"}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("bench")
    write_study(made, SPEC + TABLE)
    return made


@pytest.mark.slow
def test_a_study_from_the_file_to_tables_figures_and_a_report(folder: Path, run: Run) -> None:
    spec, results = folder / "small.toml", folder / "results"
    planned = run("bench", spec, "-o", results, "--plan")
    assert planned.code == 0
    assert "1 data sets, 2 systems, 3 runs" in planned.err
    assert not results.exists()
    ended = run("bench", spec, "-o", results, "--keep-scores", "--export", folder / "all.json")
    assert ended.code == 0, ended.err
    assert "accuracy (%)" in ended.out
    assert "confirmed: Words help" in ended.out
    again = run("bench", spec, "-o", results)
    assert "3 runs are there already" in again.err
    assert again.out == ended.out
    assert run("tables", results).out == ended.out
    stored = json.loads((folder / "all.json").read_text())
    assert stored["verdicts"][0]["status"] == "confirmed"
    assert len(run("bench", spec, "-o", results, "--plan", "--json").json) == 3
    for printed in (run("bench", spec, "-o", results, "--json").json, *run("tables", results, "--json").json):
        assert (printed["runs"], printed["verdicts"]) == (stored["runs"], stored["verdicts"])
    drawn = run("tables", results, "--figures", folder / "figures")
    assert drawn.code == 0, drawn.err
    assert {file.suffix for file in (folder / "figures").iterdir()} == {".svg", ".png", ".pdf"}
    assert "frequent" in (folder / "figures" / "f1.svg").read_text()
    page = run("report", results, "-o", folder / "report.html")
    assert page.code == 0, page.err
    assert "Pets and plants: small" in (folder / "report.html").read_text()


def test_an_exported_command_names_no_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    given = ["x", "bench", "a b.toml", "-o", "/tmp/r", "--budget", "5m", "--export=/tmp/e.json", "--export", "f"]
    monkeypatch.setattr("sys.argv", given)
    assert bench._command_line() == "treelabel bench 'a b.toml' --budget 5m"


@pytest.mark.slow
def test_runs_of_an_earlier_version_of_the_spec_are_not_shown(folder: Path, tmp_path: Path, run: Run) -> None:
    spec = write_study(tmp_path, SPEC + TABLE)
    assert run("bench", spec, "-o", tmp_path / "r").code == 0
    spec.write_text(spec.read_text().replace("seeds = 2", "seeds = 1").replace("[3, 3]", "[3, 4]"))
    assert run("bench", spec, "-o", tmp_path / "r", "--systems", "linear").code == 0
    spec.write_text(spec.read_text().replace("systems.frequent", "systems.common").replace('"frequent"', '"common"'))
    assert run("bench", spec, "-o", tmp_path / "r").code == 0
    runs = Results.load(tmp_path / "r").runs
    assert sorted((each.system, each.seed) for each in runs) == [("common", 0), ("linear", 0)]
    assert len(list((tmp_path / "r" / "runs").iterdir())) == 4


@pytest.mark.slow
def test_scores_that_were_not_kept_or_are_of_other_data_are_told(folder: Path, tmp_path: Path, run: Run) -> None:
    spec = write_study(tmp_path)
    assert run("bench", spec, "-o", tmp_path / "r", "--systems", "frequent").code == 0
    told = run("report", tmp_path / "r", "-o", tmp_path / "x.html")
    assert (told.code, "run the study again with --keep-scores" in told.err) == (2, True)
    assert run("bench", spec, "-o", tmp_path / "k", "--systems", "frequent", "--keep-scores").code == 0
    (tmp_path / "test.csv").write_text((tmp_path / "test.csv").read_text().replace("bark", "woof"))
    with pytest.raises(TreelabelError, match="have changed since the study was run"):
        load_stored_scores(Results.load(tmp_path / "k"))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["bench", "{f}/nothing.toml"], "nothing.toml"),
        (["bench", "{f}/train.csv"], "is not valid TOML"),
        (["bench", "{f}/small.toml", "--systems", "liner"], "did you mean linear?"),
        (["bench", "{f}/small.toml", "--data", "smal"], "did you mean small?"),
        (["bench", "{f}/small.toml", "--budget", "soon"], "such as 90, 90s, 10m or 2h"),
        (["bench", "{f}/small.toml", "--style", "word"], "word"),
        (["bench", "{f}/small.toml", "--export", "{f}"], "is a folder, expected the name of a file"),
        (["bench", "{f}/small.toml", "--export", "{f}/no/x.json"], "does not exist; make it first"),
        (["bench", "{f}/small.toml", "--export", "{f}/small.toml"], "would be replaced"),
        (["report", "{f}/nothing", "-o", "{f}/x.html"], "does not exist"),
        (["report", "-o", "{f}/x.html"], "expected the folder of a study, or --truth FILE"),
    ],
)
def test_mistakes_are_one_sentence(folder: Path, run: Run, arguments: list[str], told: str) -> None:
    ended = run(*(argument.format(f=folder) for argument in arguments))
    assert ended.code == 2
    assert told in ended.err
    assert len(ended.err.strip().splitlines()) <= 3
