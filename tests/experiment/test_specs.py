"""The specs that come with the project: each can be read, its models made, and its published rows fit its columns."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers import Run
from treelabel import Dataset, make_model
from treelabel.data import load_sample, split, write
from treelabel.experiment.claims import cut_short, judge_claims
from treelabel.experiment.command_systems import read_label_scores, sum_or_max
from treelabel.experiment.results import Results
from treelabel.experiment.spec_reader import read_spec

SPECS = Path(__file__).resolve().parents[2] / "specs"
NAMES = ("revisiting-htc", "hierarchical-loss", "tail-labels", "extreme-evaluation", "peers", "quick")
# A peer that needs nothing: every document has the classes of training, by their shares.
PROGRAM = """
import numpy as np
from common import run

def learn(task):
    return np.asarray(task.indicator().mean(axis=0)).ravel()

run(learn, lambda task, shares: np.tile(shares, (len(task.test_ids), 1)))
"""


def test_all_specs_are_listed() -> None:
    assert sorted(NAMES) == sorted(file.stem for file in SPECS.glob("*.toml"))


@pytest.mark.parametrize("name", NAMES)
def test_a_spec_can_be_read_and_its_systems_made(name: str) -> None:
    spec = read_spec(SPECS / f"{name}.toml")
    assert spec.about
    for system in spec.systems.values():
        if system.model is not None:
            make_model(system.model, **{name: value for name, value in system.params.items() if "__" not in name})
        for part in system.command or ():
            if part.endswith(".py"):
                assert Path(part.replace("{folder}", str(spec.folder))).is_file()
    for table in spec.tables:
        if table.layout == "values":
            assert set(table.published) <= set(table.rows)
            assert all(len(row) == len(table.heads) for row in table.published.values())
        else:
            rows = [row for systems in table.published.values() for row in systems.values()]
            assert all(len(row) <= len(table.columns) for row in rows)


def test_claims_of_the_papers_name_their_source() -> None:
    found = [claim for name in NAMES[:4] for claim in read_spec(SPECS / f"{name}.toml").claims]
    assert len(found) >= 14
    assert all(claim.source[:1] in "RWTI" and "," in claim.source for claim in found)


def scored(tmp_path: Path, train: Dataset, test: Dataset) -> Path:
    write(train, tmp_path / "train.jsonl", labels="paths", taxonomy=False)
    write(test, tmp_path / "test.jsonl", labels="paths", taxonomy=False)
    program = tmp_path / "peer_shares.py"
    program.write_text(PROGRAM)
    (tmp_path / "common.py").write_text((SPECS / "peers" / "common.py").read_text())
    files = [str(tmp_path / name) for name in ("train.jsonl", "test.jsonl", "output")]
    subprocess.run([sys.executable, str(program), *files, "--seed", "1", "--threads", "1"], check=True)
    return tmp_path / "output"


@pytest.mark.slow
def test_a_peer_writes_scores_of_all_nodes_where_documents_have_one_path(tmp_path: Path) -> None:
    train, test = split(load_sample()[::10], {"train": 0.8, "test": 0.2}, seed=0).values()
    output = scored(tmp_path, train, test)
    scores = sum_or_max(read_label_scores(output, test), "max")
    assert len(scores) == len(test)
    h = test.hierarchy
    dense, tops = scores.dense(), h.level(1)
    assert dense[:, tops].sum(axis=1) == pytest.approx(1, abs=0.35)
    assert (dense[:, h.parent[h.parent >= 0]] >= dense[:, h.parent >= 0] - 1e-5).all()
    told = json.loads(Path(f"{output}.json").read_text())
    assert set(told) == {"fit_seconds", "score_seconds", "model_bytes"}


# What runs here gave

RESULTS = sorted((SPECS / "results").glob("*.json"))


def test_results_of_every_study_are_kept() -> None:
    assert {file.stem for file in RESULTS} == set(NAMES) - {"quick"}


@pytest.mark.parametrize("file", RESULTS, ids=lambda file: file.stem)
def test_kept_results_are_those_of_their_spec(file: Path) -> None:
    results = Results.load(file)
    assert results.command.startswith(f"treelabel bench specs/{file.stem}.toml")
    claims = {claim.name for claim in read_spec(SPECS / f"{file.stem}.toml").claims}
    assert claims == {verdict.name for verdict in judge_claims(results)}
    assert any(run.is_done for run in results.runs)


@pytest.mark.slow
def test_the_quick_study_runs(tmp_path: Path, run: Run) -> None:
    ended = run("bench", SPECS / "quick.toml", "-o", tmp_path / "quick", "--export", tmp_path / "quick.json")
    assert ended.code == 0, ended.err
    results = Results.load(tmp_path / "quick")
    assert all(each.is_done for each in results.runs)
    assert len(results.runs) == 7
    verdicts = {each["name"]: each["status"] for each in json.loads((tmp_path / "quick.json").read_text())["verdicts"]}
    assert verdicts["words-matter"] == "confirmed"
    assert "Fast models on nouns" in ended.out


def test_the_page_of_studies_counts_the_claims_of_the_stored_results() -> None:
    """The claims of the four papers, which `specs/results` has verdicts on; those of the peers are ours."""
    papers = [Results.load(file) for file in sorted((SPECS / "results").glob("*.json")) if file.stem != "peers"]
    count = sum(len(each.verdicts) for each in papers)
    assert len(papers) == 4
    assert count == sum(len(read_spec(SPECS / each.spec.path.name).claims) for each in papers)
    text = " ".join((SPECS.parent / "docs" / "experiments.md").read_text(encoding="utf-8").split())
    assert f"and {count} of their claims" in text


def test_no_stored_verdict_rests_on_a_run_that_was_cut_short() -> None:
    for file in sorted((SPECS / "results").glob("*.json")):
        results = Results.load(file)
        for claim, verdict in zip(results.spec.claims, judge_claims(results), strict=True):
            for outcome in verdict.outcomes:
                if cut_short(claim, outcome.data, results):
                    assert (outcome.status, outcome.is_cut_short) == ("open", True), (file, claim.name)
