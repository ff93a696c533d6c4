"""The specs in the repository: all of them can be read, and the quick one runs from beginning to end."""

import ast
import json
from pathlib import Path

import pytest

from tests.helpers import Run
from treelabel.experiment.claims import judge_claims
from treelabel.experiment.reading import read_spec
from treelabel.experiment.results import Results

ROOT = Path(__file__).resolve().parents[2]
SPECS = sorted((ROOT / "specs").glob("*.toml"))
STUDIES = ("extreme-evaluation", "hierarchical-loss", "peers", "quick", "revisiting-htc", "tail-labels")
RESULTS = sorted((ROOT / "specs" / "results").glob("*.json"))


def test_there_is_one_for_every_study() -> None:
    assert tuple(file.stem for file in SPECS) == STUDIES


@pytest.mark.parametrize("file", SPECS, ids=lambda file: file.stem)
def test_every_spec_can_be_read_and_its_programs_are_there(file: Path) -> None:
    spec = read_spec(file)
    assert spec.about
    assert spec.tables
    for system in spec.systems.values():
        programs = [part for part in system.command or () if part.startswith("{folder}")]
        for program in programs:
            ast.parse(Path(program.replace("{folder}", str(spec.folder))).read_text(encoding="utf-8"))


def test_claims_of_the_papers_stand_in_the_specs() -> None:
    claims = {file.stem: read_spec(file).claims for file in SPECS if file.stem not in ("quick", "peers")}
    assert sum(map(len, claims.values())) >= 14
    assert all(claim.source for each in claims.values() for claim in each)


@pytest.mark.parametrize("file", RESULTS, ids=lambda file: file.stem)
def test_kept_results_are_those_of_their_spec(file: Path) -> None:
    results = Results.load(file)
    assert results.command.startswith(f"treelabel bench specs/{file.stem}.toml")
    assert {claim.name for claim in read_spec(ROOT / "specs" / f"{file.stem}.toml").claims} == {
        verdict.name for verdict in judge_claims(results)
    }
    assert any(run.is_done for run in results.runs)


def test_results_of_every_study_are_kept() -> None:
    assert [file.stem for file in RESULTS] == [name for name in STUDIES if name != "quick"]


@pytest.mark.slow
def test_the_quick_study_runs(tmp_path: Path, run: Run) -> None:
    ended = run("bench", ROOT / "specs" / "quick.toml", "-o", tmp_path / "quick", "--export", tmp_path / "quick.json")
    assert ended.code == 0, ended.err
    results = Results.load(tmp_path / "quick")
    assert all(each.is_done for each in results.runs)
    assert len(results.runs) == 7
    verdicts = {each["name"]: each["status"] for each in json.loads((tmp_path / "quick.json").read_text())["verdicts"]}
    assert verdicts["words-matter"] == "confirmed"
    assert "Fast models on nouns" in ended.out
