"""Why the decision rule must fit the metric: one set of scores, all rules, all metrics.

    python benchmarks/rules_matter.py                          # all sets; exits with 1 if a metric's own rule loses
    python benchmarks/rules_matter.py --sets sample            # needs nothing but the embedded sample
    python benchmarks/rules_matter.py --markdown hwv           # the table of docs/rules.md

Scores are those of the default linear model, whose probabilities are calibrated on documents held out of its training
data; nothing here is tuned on test data. For each metric the rule that is optimal for it is compared with thresholding
at 0.5, with the best leaf, and with the best of all rules on the same test documents. The own rule
wins or ties if it is the best, or if its difference to the best may be chance (p >= 0.05). As a rule trusts the
scores, a loss is followed by the same comparison with truth drawn from the scores themselves: a rule that wins there is
right, and the scores are not.
"""

import argparse
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from treelabel import Dataset, Result, Scores, evaluate, load_sample, read_together, split, tune, unfold
from treelabel.core.errors import TreelabelError
from treelabel.evaluation.comparison import compare_metric
from treelabel.evaluation.significance import Comparison
from treelabel.hierarchy import label_matrix
from treelabel.metrics import find_metric
from treelabel.models import make_model
from treelabel.rules import TunedRule, decide

DATA = Path(os.environ.get("TREELABEL_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
FILES = {"hwv": ("val", "test"), "mwpd_gpc": ("train", "test"), "reuters21578": ("train", "test")}

# Each metric and the rule that is its own, for documents with one true path ...
ONE_PATH = {
    "hamming": "optimal:hamming",
    "shortest_path": "optimal:shortest_path",
    "icm": "optimal:icm",
    "hf1": "optimal:hf1",
    "hf_beta@2": "optimal:hf_beta@2",
    "hf_beta@0.5": "optimal:hf_beta@0.5",
    "info_hf1": "optimal:info_hf1",
    "leaf_accuracy": "optimal:leaf_accuracy",
    "level_accuracy": "optimal:level_accuracy",
    "onehot_win": "optimal:onehot_win",
    "wu_palmer": "optimal:wu_palmer",
    "lin": "optimal:lin",
    "micro_f1": "optimal:micro_f1",
    "macro_f1": "optimal:macro_f1",
}
# ... and for documents with many, where rules for one path are approximate.
MANY = {
    "hamming": "optimal:hamming",
    "icm": "optimal:icm",
    "hf1": "optimal:samples_f1",
    "samples_f1": "optimal:samples_f1",
    "micro_f1": "optimal:micro_f1",
    "macro_f1": "optimal:macro_f1",
}
OTHERS = ("threshold@0.5", "best_leaf", "top_down", "majority", "plurality", "best_per_level")
BASELINES = ("threshold@0.5", "best_leaf")
ON_THE_PAGE = ("hamming", "icm", "hf1", "hf_beta@2", "leaf_accuracy", "onehot_win", "wu_palmer", "micro_f1", "macro_f1")


@dataclass(frozen=True, eq=False)
class Judged:
    """One data set: its scores, every rule and its result, and each metric's own rule."""

    name: str
    train: Dataset
    scores: Scores
    rules: Mapping[str, str | TunedRule]
    results: Mapping[str, Result]
    own: Mapping[str, str]


def parts_of(name: str) -> tuple[Dataset, Dataset]:
    """Read the training and the test part of a set."""
    if name == "sample":
        train, test = split(load_sample(), {"train": 0.8, "test": 0.2}, seed=0).values()
        return train, test
    train, test = read_together([DATA / name / f"{part}.jsonl.gz" for part in FILES[name]])
    # A DAG becomes a tree, in which a document has one path.
    return (train, test) if train.hierarchy.is_tree else (unfold(train), unfold(test))


def judge(name: str, seed: int) -> Judged:
    """Train, score, and use every rule."""
    train, test = parts_of(name)
    fit, valid = split(train, {"fit": 0.8, "valid": 0.2}, seed=seed).values()
    model = make_model("linear", seed=seed)
    validation = model.fit(fit).score(valid)
    scores = model.fit(train).score(test)
    own = MANY if model.regime_ == "multi_path" else ONE_PATH
    names = dict.fromkeys((*OTHERS, *own.values(), "optimal:samples_f1"))
    rules: dict[str, str | TunedRule] = {rule: rule for rule in names}
    rules |= {f"tuned for {metric}": tune(valid, validation, metric) for metric in ("micro_f1", "macro_f1")}
    results = {label: by_rule(test, scores, rule, list(own), train) for label, rule in rules.items()}
    calibration = evaluate(test, scores=scores, metrics=["ece"])["ece"]
    print(f"{name}: {len(train):,} training and {len(test):,} test documents, calibration error {calibration:.3f}")
    return Judged(name, train, scores, rules, results, own)


def by_rule(test: Dataset, scores: Scores, rule: str | TunedRule, metrics: list[str], train: Dataset) -> Result:
    """Decide by a rule and judge by all metrics that can judge what it gives."""
    decisions = decide(scores, rule, train)
    while True:
        try:
            return evaluate(test, decisions=decisions, metrics=metrics, train_frequencies=train)
        except TreelabelError as error:
            # Metrics of single labels refuse rules that give several, and say which metric it was.
            metrics = [metric for metric in metrics if metric != str(error).split(":")[0]]


def difference(judged: Judged, metric: str, rule: str, resamples: int) -> Comparison:
    """Compare the metric's own rule with another: own - other, with its interval."""
    own, other = judged.results[judged.own[metric]], judged.results[rule]
    return compare_metric(metric, other, own, resamples)


def best_rule(judged: Judged, metric: str) -> str:
    """Find the rule with the best value; equal ones: the own rule."""
    sign = 1 if find_metric(metric).higher_is_better else -1
    able = {rule: sign * result[metric] for rule, result in judged.results.items() if metric in result.values}
    own = judged.own[metric]
    return own if able[own] >= max(able.values()) else max(able, key=lambda rule: able[rule])


def with_drawn_truth(judged: Judged, metric: str, rule: str, resamples: int) -> Comparison:
    """Compare the own rule with another where the truth is drawn from the scores: one leaf a document, 20 times."""
    h, rng = judged.scores.hierarchy, np.random.default_rng(0)
    leaves = judged.scores.dense()[:, h.leaves].astype(np.float64).cumsum(axis=1)
    times = 20
    drawn = [(leaves < leaves[:, -1:] * rng.random((len(leaves), 1))).sum(axis=1) for _ in range(times)]
    truth = label_matrix(np.arange(times * len(leaves) + 1), h.leaves[np.concatenate(drawn)], len(h))
    results = []
    for each in (rule, judged.own[metric]):
        chosen = decide(judged.scores, judged.rules[each], judged.train).csr[np.tile(np.arange(len(leaves)), times)]
        results.append(evaluate(truth, chosen, hierarchy=h, metrics=[metric], train_frequencies=judged.train))
    return compare_metric(metric, results[0], results[1], resamples)


# What is printed


def print_all(judged: Judged) -> None:
    """Print every rule by every metric: * the best of a column, [] the metric's own rule."""
    metrics = list(judged.own)
    best = {metric: best_rule(judged, metric) for metric in metrics}
    print("\n" + f"{judged.name:<24}" + "".join(f"{metric:>16}" for metric in metrics))
    for rule, result in judged.results.items():
        cells = []
        for metric in metrics:
            text = f"{shown(result, metric)}" + ("*" if best[metric] == rule else "")
            cells.append(f"[{text}]" if judged.own[metric] == rule else text)
        print(f"{rule:<24}" + "".join(f"{cell:>16}" for cell in cells))


def shown(result: Result, metric: str) -> str:
    """Write a value, Hamming loss in percent."""
    if metric not in result.values:
        return "-"
    return f"{100 * result[metric]:.3f}%" if metric == "hamming" else f"{result[metric]:.4f}"


def gain(comparison: Comparison, metric: str) -> str:
    """Write a difference in the direction that is better, with its interval."""
    sign = 1 if find_metric(metric).higher_is_better else -1
    size = 100 if metric == "hamming" else 1
    ends = sorted((sign * size * comparison.low + 0, sign * size * comparison.high + 0))
    # Adding 0 makes 0 of -0.
    return f"{sign * size * comparison.difference + 0:+.4f} [{ends[0] + 0:+.4f}, {ends[1] + 0:+.4f}]"


def print_diagonal(judged: Judged, resamples: int) -> bool:
    """Print what each metric's own rule gains over the usual ones; return whether no rule beats it."""
    print(f"\n{judged.name}: what the metric's own rule gains, with 95% intervals")
    titles = f"{'over threshold@0.5':<32}{'over best_leaf':<32}best of all rules"
    print(f"{'metric':<16}{'own rule':<24}{'value':>10}  {titles}")
    kept = True
    for metric, own in judged.own.items():
        cells = [cell(judged, metric, rule, resamples) for rule in BASELINES]
        best = best_rule(judged, metric)
        verdict = "wins" if best == own else against(judged, metric, best, resamples)
        kept &= not verdict.startswith("LOSES")
        value = shown(judged.results[own], metric)
        print(f"{metric:<16}{own:<24}{value:>10}  {cells[0]:<32}{cells[1]:<32}{verdict}")
    return kept


def cell(judged: Judged, metric: str, rule: str, resamples: int) -> str:
    """Write what is gained over a rule, if the metric can judge it."""
    if metric not in judged.results[rule].values:
        return "-"
    return gain(difference(judged, metric, rule, resamples), metric)


def against(judged: Judged, metric: str, best: str, resamples: int) -> str:
    """Say whether the own rule ties with the best one, and if not, whether it would if the scores were right."""
    found = difference(judged, metric, best, resamples)
    if found.p_value >= 0.05:
        return f"ties with {best}"
    lost = f"LOSES to {best}: {gain(found, metric)}"
    if judged.own is MANY:
        return lost
    return f"{lost}; with truth drawn from the scores {gain(with_drawn_truth(judged, metric, best, resamples), metric)}"


def print_markdown(judged: Judged, resamples: int) -> None:
    """Print the table of docs/rules.md."""
    print("| metric | threshold 0.5 | best leaf | its own rule | gain over 0.5 | over best leaf |")
    print("|---|---|---|---|---|---|")
    for metric in (metric for metric in ON_THE_PAGE if metric in judged.own):
        own = judged.own[metric]
        values = [shown(judged.results[rule], metric) for rule in (*BASELINES, own)]
        cells = [cell(judged, metric, rule, resamples).split(" [") for rule in BASELINES]
        gains = [f"{parts[0]} [{parts[1]}" if len(parts) > 1 else parts[0] for parts in cells]
        print(f"| {metric} | {' | '.join(values)} | {' | '.join(gains)} |")


def main() -> int:
    """Judge all sets, print the tables, and return the exit code."""
    parser = argparse.ArgumentParser(description="Show what a decision rule that fits the metric is worth.")
    parser.add_argument("--sets", default="sample,hwv,mwpd_gpc,reuters21578", help="data sets, comma-separated")
    parser.add_argument("--markdown", metavar="SET", help="print the table of docs/rules.md for one set")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--resamples", type=int, default=1000)
    options = parser.parse_args()
    started = time.perf_counter()
    kept = True
    for name in [options.markdown] if options.markdown else options.sets.split(","):
        if name != "sample" and not (DATA / name).is_dir():
            print(f"{name}: not at {DATA}; set TREELABEL_DATA to the folder of the data sets")
            continue
        judged = judge(name, options.seed)
        if options.markdown:
            print_markdown(judged, options.resamples)
            continue
        print_all(judged)
        kept &= print_diagonal(judged, options.resamples)
        print(f"{time.perf_counter() - started:.0f} s so far\n", flush=True)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
