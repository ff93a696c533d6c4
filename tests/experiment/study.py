"""A folder of results made by hand: random decisions, some systems better than others."""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from treelabel import Hierarchy, Result, Scores, evaluate
from treelabel.experiment.contributions import context_to_json, save_parts, sums_of
from treelabel.experiment.results import Judgement, Results, Run

TREE = Hierarchy.from_paths(["A > B", "A > C", "D > E", "D > F", "D > G"])
LEAVES = [name for name in TREE.names if name not in ("A", "D")]
METRICS = ("hf1", "macro_f1", "hamming", "macro_f1_by_depth", "macro_f1_by_decile")
RULE = "best_leaf"


def truth(documents: int = 60, seed: int = 1) -> list[list[str]]:
    """Draw true leaves."""
    return [[name] for name in np.random.default_rng(seed).choice(LEAVES, documents).tolist()]


@cache
def judged(right: float, seed: int = 0, documents: int = 60, metrics: tuple[str, ...] = METRICS) -> Result:
    """Judge a system that is right about so large a share of the documents."""
    rng = np.random.default_rng([seed, int(right * 1000)])
    true = truth(documents)
    found = [row if rng.random() < right else [str(rng.choice(LEAVES))] for row in true]
    frequencies = np.bincount(TREE.closure(_rows(true)).indices, minlength=len(TREE))
    return evaluate(
        true,
        scores=_scores(found),
        rule=RULE,
        hierarchy=TREE,
        metrics=list(metrics),
        train_frequencies=frequencies,
        train_documents=documents,
        bin_edges=(1, 15, 30),
    )


def _rows(labels: Sequence[Sequence[str]]) -> Any:
    rows = np.zeros((len(labels), len(TREE)))
    for at, names in enumerate(labels):
        rows[at, [TREE.names.index(name) for name in names]] = 1
    return rows


def _scores(found: Sequence[Sequence[str]]) -> Scores:
    return Scores(TREE, np.clip(TREE.closure(_rows(found)).toarray() * 0.9, 0, 1))


def add_run(
    folder: Path,
    data: str,
    system: str,
    seed: int,
    results: Mapping[str, Result],
    parts: bool = True,
    **others: Any,
) -> Run:
    """Write a run as the runner writes it: `results` by the rule that was asked for."""
    for name in ("runs", "parts", "contexts"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    listed = tuple(_judged(rule, result) for rule, result in results.items())
    key = f"{data}-{system}-{seed}"
    others = {"documents": {"train": 100, "test": 60}, "fit_seconds": 1.5 + seed, "score_seconds": 0.5, **others}
    run = Run(key, data, system, seed, judged=listed, context=data, **others)
    (folder / "runs" / f"{key}.json").write_text(run.to_json())
    if results:
        first = next(iter(results.values()))
        (folder / "contexts" / f"{data}.json").write_text(context_to_json(first.context))
        if parts:
            save_parts(folder / "parts" / f"{key}.npz", list(results.values()))
    return run


def _judged(rule: str, result: Result) -> Judgement:
    return Judgement(rule, str(result.rule), result.values, _intervals(result), sums_of(result))


@cache
def _intervals(result: Result) -> dict[str, tuple[float, float]]:
    return {name: (found.low, found.high) for name, found in result.intervals(resamples=100).items()}


def add_values(folder: Path, data: str, system: str, values: Mapping[str, float], seed: int = 0) -> Run:
    """Write a run of a program that prints values."""
    (folder / "runs").mkdir(parents=True, exist_ok=True)
    run = Run(f"{data}-{system}-{seed}", data, system, seed, judged=(Judgement("", "", values),))
    (folder / "runs" / f"{run.key}.json").write_text(run.to_json())
    return run


def add_failure(folder: Path, data: str, system: str, status: Any, reason: str, seed: int = 0) -> Run:
    """Write a run that has no values."""
    (folder / "runs").mkdir(parents=True, exist_ok=True)
    run = Run(f"{data}-{system}-{seed}", data, system, seed, status, reason)
    (folder / "runs" / f"{run.key}.json").write_text(run.to_json())
    return run


HEADER = """
title = "A study"
seeds = 3
data.one = {all = "sample", title = "One", same_as = "ONE"}
data.two = {all = "sample", title = "Two", note = "half of the documents"}
systems.good = {title = "Good", model = "linear"}
systems.fair = {title = "Fair", model = "linear"}
systems.poor = {title = "Poor", model = "most_frequent", seeds = 1}
judge = [{rule = "best_leaf", metrics = ["hf1", "macro_f1", "hamming", "macro_f1_by_depth", "macro_f1_by_decile"]}]
"""


def make_study(folder: Path, more: str = "", header: str = HEADER, seeds: int = 3) -> Results:
    """Write a study of three systems on two data sets."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "spec.toml").write_text(header + more)
    (folder / "study.json").write_text(json.dumps({"path": str(folder / "study.toml"), "keys": None}))
    for data in ("one", "two"):
        for seed in range(seeds):
            add_run(folder, data, "good", seed, {RULE: judged(0.95, seed)})
            add_run(folder, data, "fair", seed, {RULE: judged(0.6, seed)})
        add_run(folder, data, "poor", 0, {RULE: judged(0.1)})
    return Results.load(folder)


def exported(results: Results, file: Path, verdicts: Sequence[Mapping[str, Any]] = ()) -> Results:
    """Export results, and load them."""
    results.export(file, "treelabel bench study.toml", verdicts)
    json.loads(file.read_text())
    return Results.load(file)
