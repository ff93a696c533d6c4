"""The default model with what it chooses by itself, against linear peers on test documents that nothing here chose by.

    python benchmarks/unseen.py                                 # the sets that fit, hours; exit 1 if a claim fails
    python benchmarks/unseen.py --sets sample                   # needs nothing but the embedded sample
    python benchmarks/unseen.py --sets wordnet,yso              # large ones have to be asked for
    python benchmarks/unseen.py --systems svc_pairs --splits 3  # one peer; three divisions of each set
    python benchmarks/unseen.py --systems treelabel --sets attack,esco  # ours alone: sums of p, by level too
    python benchmarks/unseen.py --markdown --json FILE          # the tables in Markdown, all numbers as JSON

Ours is `make_model()`: n-grams, head and decision rule are chosen on held-out training documents. Peers are LinearSVC
on TfidfVectorizer(sublinear_tf=True) with words, words and pairs, words and character 3- to 5-grams; one logistic
regression a class (C=10, words and pairs), with its plain probabilities; PECOS XR-Linear on words. They learn the most
specific labels, and where documents have several predict those with a margin above 0 (a probability of at least 0.5),
at least the best one. Every system runs in a fresh process, once; times are of the clock and, in brackets, of the
processor, after a warm-up. A system whose process needs longer than the limit, warm-up and prediction included, or more
than 14 GB, says so in its row, and the best peer is then the best of the others.

Required: no loss that a paired test over test documents tells from noise (p < 0.05) to the best peer, in leaf
accuracy where documents have one path, else in samples-F1 and micro-F1; a calibration error of at most 0.02 at the
leaves and on every level (the noise floor is what probabilities that are exactly right would show on as many
documents); node probabilities whose sum is within 3% of the true one; a default rule that no other one beats beyond
noise in what it is for, leaf accuracy or the mean F1 of documents; training three times as fast as LinearSVC on words
and pairs. bibtex and delicious, which have features but no texts, are left out.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy import sparse

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.fast_models import (
    DATA,
    OURS,
    FailedError,
    Place,
    chosen,
    divided,
    run,
    write_set,
)
from benchmarks.fast_models import SETS as FAST_SETS
from benchmarks.fast_models import SYSTEMS as FAST_SYSTEMS
from benchmarks.measure import Claim, report, seconds

from treelabel import Dataset, Hierarchy, Result, Scores, TreelabelError, decide, evaluate, read, read_together, split
from treelabel.core.strings import Strings
from treelabel.core.types import DoubleArray
from treelabel.evaluation.comparison import compare_metric
from treelabel.hierarchy import LabelMatrix, label_matrix, row_sizes
from treelabel.metrics.probabilities import CALIBRATION_BINS

PROGRAM = Path(__file__).with_name("unseen_peers.py")
NOISE = 0.05
MOST_ERROR = 0.02
MOST_SUM = 0.03
SIMULATIONS = 200
OTHER_RULES = ("best_leaf", "threshold@0.5", "optimal:hf1")
METRIC_TITLES = {
    "leaf_accuracy": "leaf accuracy",
    "samples_f1": "samples F1",
    "micro_f1": "micro F1",
    "macro_f1": "macro F1",
    "hf1_auc": "hF1-AUC",
}

SYSTEMS = {
    OURS: FAST_SYSTEMS[OURS],
    "svc": Place("LinearSVC (1,1)"),
    "svc_pairs": Place("LinearSVC (1,2)"),
    "svc_characters": Place("LinearSVC words+char"),
    "logistic": Place("LogisticRegression"),
    "pecos": FAST_SYSTEMS["pecos"],
}


# Data


Parts = tuple[Dataset, Dataset]


def one_file(name: str, file: str = "all") -> Parts:
    """Divide a set that comes in one file."""
    return divided(read(DATA / name / f"{file}.jsonl.gz"))


def as_given(name: str, test: str = "test") -> Parts:
    """Read a set that comes in parts, leaving a DAG what it is."""
    first, second = read_together([DATA / name / f"{part}.jsonl.gz" for part in ("train", test)])
    return first, second


SETS: dict[str, Callable[[], Parts]] = FAST_SETS | {
    "wos1k": partial(one_file, "wos1k"),
    "attack": partial(one_file, "attack", "procedures"),
    "esco": partial(as_given, "esco"),
}
LARGE: dict[str, Callable[[], Parts]] = {
    "tibkat": partial(as_given, "tibkat_core_en", "dev"),
    "wordnet": partial(as_given, "wordnet_hypernym"),
    "icd10cm": partial(one_file, "icd10cm", "inclusion_terms"),
    "yso": partial(as_given, "yso_finna_en"),
}


def divisions(parts: Parts, count: int) -> Iterator[Parts]:
    """Yield the parts as they are, then all documents divided anew, training as large as it was."""
    yield parts
    first, second = parts
    ids, texts = (Strings.of([*getattr(first, name), *getattr(second, name)]) for name in ("ids", "texts"))
    labels = sparse.csr_array(sparse.vstack([first.labels, second.labels]))
    pooled = Dataset(ids, texts, labels, first.hierarchy)
    share = len(first) / len(pooled)
    for seed in range(1, count):
        shares = {"train": share, "test": 1 - share}
        train, test = split(pooled, shares, seed=seed, keep_duplicates=False).values()
        yield train, test


# Judging


@dataclass
class Judged:
    """One system on one division: numbers for the table, what was judged, and its scores; or why there are none."""

    values: dict[str, Any] = field(default_factory=dict)
    result: Result | None = None
    scores: Scores | None = None
    problem: str = ""


def has_many(*parts: Dataset) -> bool:
    """Whether some document has several most specific labels."""
    return any(bool((row_sizes(part.hierarchy.most_specific(part.labels)) > 1).any()) for part in parts)


def read_result(train: Dataset, file: Path, rule: str | None) -> tuple[LabelMatrix, Scores | None]:
    """Read what a system predicted, closed, and its scores of all nodes; `rule` is what decides for ours."""
    h = train.hierarchy
    with np.load(file) as stored:
        nodes, ptr, classes = (stored[name] for name in ("nodes", "ptr", "classes"))
        given = stored.get("scores")
    if rule is not None:
        scores = Scores(h, given)
        return decide(scores, rule).csr, scores
    decisions = h.closure(label_matrix(ptr, nodes[classes].astype(np.int32), len(h)))
    below = largest_below if has_many(train) else sums_below
    return decisions, None if given is None else below(h, nodes, given)


def sums_below(h: Hierarchy, nodes: Any, given: Any) -> Scores:
    """Give every node the sum over the classes at and below it; a row that sums to more than 1 is scaled to 1."""
    given = given.astype(np.float64)
    given /= np.maximum(given.sum(axis=1, keepdims=True), 1)
    paths = h.closure(label_matrix(np.arange(len(nodes) + 1), nodes.astype(np.int32), len(h))).astype(np.float64)
    return Scores(h, np.minimum((paths.T @ given.T).T, 1))


def largest_below(h: Hierarchy, nodes: Any, given: Any) -> Scores:
    """Give every node the largest score of the classes at and below it."""
    paths = h.closure(label_matrix(np.arange(len(nodes) + 1), nodes.astype(np.int32), len(h)))
    found = np.zeros((len(given), len(h)), np.float32)
    for at, way in enumerate(np.split(paths.indices, paths.indptr[1:-1])):
        found[:, way] = np.maximum(found[:, way], given[:, at : at + 1])
    return Scores(h, np.clip(found, 0, 1))


def judge(train: Dataset, test: Dataset, file: Path, values: dict[str, Any]) -> Judged:
    """Judge the labels and, where there are some, the probabilities of a system."""
    decisions, scores = read_result(train, file, values.get("rule"))
    own = ["samples_f1" if has_many(train, test) else "leaf_accuracy", "micro_f1", "macro_f1", "hf1", "subset_accuracy"]
    scored = ["hf1_auc", "ece"] if scores is not None else []
    result = evaluate(test.labels, decisions, scores, train.hierarchy, metrics=[*own, *scored])
    found: dict[str, Any] = {name: result[name] for name in (*own, *scored)}
    if scores is not None:
        levels = range(1, train.hierarchy.max_depth + 1)
        found["ece by level"] = [result[f"ece[{level}]"] for level in levels]
        found["sum of p"], found["sum of p by level"] = sums_of_p(scores, test.hierarchy.closure(test.labels))
    return Judged({**values, **found}, result, scores)


def sums_of_p(scores: Scores, closed: LabelMatrix) -> tuple[float, list[float]]:
    """Sum the probabilities of all nodes, and of those of each level, over the number of true ones."""
    h = scores.hierarchy
    sums = np.asarray(scores.values.sum(axis=0, dtype=np.float64)).ravel()
    p, true = (np.bincount(h.depth, each)[1:] for each in (sums, np.bincount(closed.indices, minlength=len(h))))
    return float(p.sum() / true.sum()), (p / np.maximum(true, 1)).tolist()


def measure(parts: Parts, systems: Sequence[str], limit: float) -> dict[str, Judged]:
    """Run all systems on a division, one after the other, and judge what they predict."""
    train, test = parts
    found = {}
    with tempfile.TemporaryDirectory(prefix="treelabel-bench-") as temporary:
        folder = Path(temporary)
        write_set(train, test, folder)
        for system in systems:
            try:
                values = run(system, folder, limit, SYSTEMS[system], PROGRAM)
                found[system] = judge(train, test, folder / f"{system}.npz", values)
            except FailedError as error:
                found[system] = Judged(problem=str(error))
            told = found[system].problem or seconds(found[system].values["train"])
            print(f"  {SYSTEMS[system].title}: {told}", flush=True)
    return found


def noise_floor(scores: Scores, groups: Sequence[Any], seed: int = 0) -> tuple[DoubleArray, DoubleArray]:
    """Simulate the calibration error of exact probabilities.

    Parameters
    ----------
    scores : Scores
        The probabilities, taken to be exactly right.
    groups : sequence of bool arrays of shape (nodes,)
        The nodes whose best one counts: the leaves, or those of a level.
    seed : int
        Seed of the simulated truth.

    Returns
    -------
    (array of shape (groups,), array of shape (groups,))
        The mean and the 95% quantile of the expected calibration error.
    """
    rng, dense, errors = np.random.default_rng(seed), scores.dense(), []
    for allowed in groups:
        best = scores.best(allowed)
        sure = np.where(best >= 0, dense[np.arange(len(dense)), np.maximum(best, 0)], 0.0)
        which = np.minimum((sure * CALIBRATION_BINS).astype(np.int64), CALIBRATION_BINS - 1)
        gaps = (np.bincount(which, sure - (rng.random(len(sure)) < sure)) for _ in range(SIMULATIONS))
        errors.append([np.abs(gap).sum() / len(sure) for gap in gaps])
    return np.mean(errors, axis=1), np.quantile(errors, 0.95, axis=1)


# Claims


def claims_of(name: str, found: Mapping[str, Judged], truth: LabelMatrix) -> list[Claim]:
    """Say what is required of the default model on a set, and whether it is kept."""
    ours = found[OURS]
    if ours.result is None or ours.scores is None:
        return [Claim(name, ours.problem, kept=False)]
    peers = {system: judged for system, judged in found.items() if system != OURS and judged.result is not None}
    claims = [
        Claim(f"{name}: not compared", "", f"{SYSTEMS[system].title}: {judged.problem}")
        for system, judged in found.items()
        if judged.problem
    ]
    for metric in ("leaf_accuracy",) if "leaf_accuracy" in ours.values else ("samples_f1", "micro_f1"):
        claims += [no_loss(name, metric, ours.result, peers)] if peers else []
    claims += [*calibrated(name, ours, ours.scores, truth), *rules_kept(name, ours.result, ours.scores, truth)]
    if "svc_pairs" in peers:
        took, other = ours.values["train"], peers["svc_pairs"].values["train"]
        claims.append(Claim.faster(f"{name}: training", took, "LinearSVC (1,2)", other, 3))
    return claims


def no_loss(name: str, metric: str, ours: Result, peers: Mapping[str, Judged]) -> Claim:
    """Compare labels with those of the peer that is best at a metric."""
    best = max(peers, key=lambda system: peers[system].values[metric])
    other = peers[best].result
    assert other is not None
    test = compare_metric(metric, ours, other)
    kept = not (test.difference > 0 and test.p_value < NOISE)
    peer = f"{SYSTEMS[best].title} {100 * other[metric]:.2f}, p={test.p_value:.3f}"
    required = f"no loss, p < {NOISE}"
    return Claim(f"{name}: {METRIC_TITLES[metric]}", f"{100 * ours[metric]:.2f}", peer, None, required, kept)


def calibrated(name: str, ours: Judged, scores: Scores, truth: LabelMatrix) -> list[Claim]:
    """Check the calibration error, at the leaves and on the worst level, and the sum of probabilities."""
    h = scores.hierarchy
    levels = [np.equal(h.depth, depth) for depth in range(1, h.max_depth + 1)]
    # The metric leaves out documents without true labels.
    mean, high = noise_floor(Scores(h, scores.dense()[row_sizes(truth) > 0]), [h.is_leaf, *levels])
    errors = [ours.values["ece"], *ours.values["ece by level"]]
    worst = 1 + int(np.argmax(errors[1:]))
    claims = []
    for at, where in ((0, "leaves"), (worst, f"level {worst}, the worst")):
        floor = f"noise floor {mean[at]:.4f}, 95% {high[at]:.4f}"
        kept = bool(errors[at] <= MOST_ERROR)
        what = f"{name}: calibration error, {where}"
        claims.append(Claim(what, f"{errors[at]:.4f}", floor, None, f"<= {MOST_ERROR}", kept))
    ours.values["noise floor"] = mean.tolist()
    total = ours.values["sum of p"]
    kept = abs(total - 1) <= MOST_SUM
    by_level = "by level " + " ".join(f"{each:.3f}" for each in ours.values["sum of p by level"])
    return [*claims, Claim(f"{name}: sum of p / true", f"{total:.3f}", by_level, None, f"1 ± {MOST_SUM}", kept)]


def rules_kept(name: str, ours: Result, scores: Scores, truth: LabelMatrix) -> list[Claim]:
    """Compare the default rule with the usual ones in what it is for: leaf accuracy of one path, else F1."""
    claims = []
    # A rule may predict several labels, or none; a set that is right is a leaf that is right.
    metric = "subset_accuracy" if "leaf_accuracy" in ours.values else "hf1"
    for rule in OTHER_RULES:
        what = f"{name}: {metric}, default rule against {rule}"
        try:
            decisions = decide(scores, rule)
        except TreelabelError as error:
            claims.append(Claim(what, "", str(error)[:60]))
            continue
        other = evaluate(truth, decisions, hierarchy=scores.hierarchy, metrics=[metric])
        test = compare_metric(metric, ours, other)
        kept = not (test.difference > 0 and test.p_value < NOISE)
        peer = f"{100 * other[metric]:.2f}, p={test.p_value:.3f}"
        claims.append(Claim(what, f"{100 * ours[metric]:.2f}", peer, None, f"no loss, p < {NOISE}", kept))
    return claims


# What is printed


def row_of(values: Mapping[str, Any], ours: Mapping[str, Any], metrics: Sequence[str]) -> list[str]:
    """Write the numbers of one system."""
    row = [f"{100 * values[name]:.2f}" if name in values else "" for name in metrics]
    if "ece" in values:
        row += [f"{values['ece']:.4f}", f"{max(values['ece by level']):.4f}", f"{values['sum of p']:.3f}"]
    else:
        row += [""] * 3
    for what in ("train", "predict"):
        took, used = values[what], values[f"{what}_cpu"]
        row += [f"{took:.2f} ({used:.2f})", f"{took / ours[what]:.1f}x" if what in ours else ""]
    return row


def print_table(name: str, found: Mapping[str, Judged], markdown: bool) -> None:
    """Print the systems on a set."""
    done = [judged.values for judged in found.values() if not judged.problem]
    metrics = [metric for metric in METRIC_TITLES if any(metric in values for values in done)]
    titles = ["system", *(METRIC_TITLES[metric] for metric in metrics), "ECE leaves", "worst level", "sum p / true"]
    titles += ["training s", "/ ours", "prediction s", "/ ours"]
    lines = []
    for system, judged in found.items():
        cells = [judged.problem] if judged.problem else row_of(judged.values, found[OURS].values, metrics)
        lines.append([SYSTEMS[system].title, *cells, *[""] * (len(titles) - 1 - len(cells))])
    table = Table(title=name, title_justify="left")
    for at, title in enumerate(titles):
        table.add_column(title, justify="right" if at else "left")
    for line in lines:
        table.add_row(*line)
    Console(width=160 if not sys.stdout.isatty() else None).print(table)
    if markdown:
        print(f"\n**{name}**\n")
        for line in (titles, ["---", *["---:"] * (len(titles) - 1)], *lines):
            print(f"| {' | '.join(line)} |")
    print(found[OURS].values.get("evidence", ""), flush=True)


def measure_set(
    name: str, given: Parts, options: argparse.Namespace, systems: Sequence[str]
) -> tuple[dict[str, Any], list[Claim]]:
    """Measure and print all divisions of a set; return its numbers and claims."""
    numbers, claims = {}, []
    for at, parts in enumerate(divisions(given, options.splits)):
        title = f"{name}, division {at}" if options.splits > 1 else name
        train, test = parts
        print(f"\n{title}: {len(train):,} training and {len(test):,} test documents, {train.hierarchy}", flush=True)
        found = measure(parts, systems, options.limit_seconds)
        own = claims_of(title, found, test.labels)
        print_table(title, found, options.markdown)
        report(title, own)
        sys.stdout.flush()
        claims += own
        numbers[title] = {
            system: {"problem": judged.problem} if judged.problem else judged.values for system, judged in found.items()
        }
    return numbers, claims


def main() -> int:
    """Measure all, print the tables, and return the exit code."""
    parser = argparse.ArgumentParser(description="Measure the default model and what it chooses against linear peers.")
    parser.add_argument("--sets", default=",".join(SETS), help=f"comma-separated; also {','.join(LARGE)}")
    parser.add_argument("--systems", default=",".join(SYSTEMS), help="systems, comma-separated; ours is always there")
    parser.add_argument("--splits", type=int, choices=(1, 3), default=1, help="divisions of each set")
    parser.add_argument("--limit-seconds", type=float, default=600, help="most seconds for a system on a division")
    parser.add_argument("--markdown", action="store_true", help="print the tables in Markdown too")
    parser.add_argument("--json", type=Path, help="where to write all numbers")
    options = parser.parse_args()
    started = time.perf_counter()
    systems = list(dict.fromkeys([OURS, *chosen(options.systems, SYSTEMS)]))
    numbers: dict[str, Any] = {}
    claims: list[Claim] = []
    for name in chosen(options.sets, SETS | LARGE):
        try:
            parts = (SETS | LARGE)[name]()
        except TreelabelError as error:
            print(f"{name}: {error}; set TREELABEL_DATA to the folder of the data sets")
            continue
        found, own = measure_set(name, parts, options, systems)
        numbers |= found
        claims += own
        if options.json is not None:
            options.json.write_text(json.dumps(numbers, indent=2))
    kept = report("The default model on unseen documents", claims)
    print(f"{time.perf_counter() - started:.0f} s in all")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
