"""Does it help to train on the hierarchical win? The experiment of "A hierarchical loss and its problems when
classifying non-hierarchically" (Wu, Tygert and LeCun) on other data: all of its columns, and which of its claims hold.

    python benchmarks/hierarchical_loss.py [--sets dbpedia5k,newsgroups20,mwpd_gpc] [--seeds 3] [--markdown]

Four losses (flat, raw, log, coarse) train the same model, a bag of words and word pairs with plain stochastic gradient
descent whose rate falls evenly to 0, on all of a training set and on one document a class. Rates and epochs are chosen
by the one-hot win (coarse: by coarsest accuracy) on training documents held out of training; with one document a class,
these are others of the training set. Unlike in the paper, n-grams are weighed by tf-idf. Numbers are means over seeds.
"""

import argparse
import itertools
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from treelabel import Dataset, Result, TreelabelError, evaluate, per_class, read, read_together, split, unfold
from treelabel.models import make_model
from treelabel.rules import decide

DATA = Path(os.environ.get("TREELABEL_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))

LOSSES = ("flat", "raw", "log", "coarse")
# (rates, epochs) to choose from: all of a training set, and one document a class.
FULL_GRID: Mapping[str, tuple[Sequence[float], Sequence[int]]] = {
    "flat": ((0.25, 0.5, 1, 2), (5, 15)),
    "raw": ((2, 8, 32), (5, 15)),
    "log": ((0.25, 0.5, 1, 2), (5, 15)),
    "coarse": ((0.5, 1, 2), (5, 15)),
}
FEW_GRID: Mapping[str, tuple[Sequence[float], Sequence[int]]] = {
    "flat": ((0.5, 1, 2, 4), (5, 10, 50)),
    "raw": ((4, 16, 64), (50, 200)),
    "log": ((0.5, 1, 2, 4), (5, 10, 50)),
    "coarse": ((0.5, 1, 2, 4), (5, 10, 50)),
}
# Choosing takes no more documents than this, for learning and for judging.
CHOSEN_FROM, CHOSEN_BY = 3000, 1000

WINS = {
    "onehot_win": "one-hot win",
    "softmax_win": "softmax win",
    "neg_log_win": "-log of win",
    "cross_entropy": "cross entropy",
}
ACCURACIES = {"coarsest_accuracy": "coarsest", "parent_accuracy": "parents'", "finest_accuracy": "finest"}
AGGREGATES = {"hp_micro": "precision", "hr_micro": "recall", "hf1_micro": "F1"}
LOWER = ("neg_log_win", "cross_entropy")

Values = Mapping[str, float]


@dataclass(frozen=True, eq=False)
class Task:
    """Documents to learn from, to choose rates and epochs on (learn, judge), and to test on."""

    train: Dataset
    learn: Dataset
    judge: Dataset
    test: Dataset


@dataclass(frozen=True, eq=False)
class Line:
    """One line of a table: the loss, what was chosen with the first seed, and the values of every seed."""

    loss: str
    rate: float
    epochs: int
    values: Sequence[Values]

    def mean(self, metric: str) -> float:
        """Average over seeds."""
        return float(np.mean([values[metric] for values in self.values]))


# Data


def parts_of(name: str) -> tuple[Dataset, Dataset]:
    """Read the training and the test part of a set, as a tree."""
    if name == "dbpedia5k":
        train, test = split(read(DATA / name / "all.jsonl.gz"), {"train": 0.8, "test": 0.2}, seed=0).values()
    else:
        train, test = read_together([DATA / name / f"{part}.jsonl.gz" for part in ("train", "test")])
    return (train, test) if train.hierarchy.is_tree else (unfold(train), unfold(test))


def some_of(data: Dataset, count: int, seed: int) -> Dataset:
    """Take at most so many documents at random."""
    order = np.random.default_rng(seed).permutation(len(data))[:count]
    return data[np.sort(order)]


def full_task(train: Dataset, test: Dataset, seed: int) -> Task:
    """Learn from all training documents; choose on a fifth of them."""
    learn, judge = split(train, {"learn": 0.8, "judge": 0.2}, seed=seed).values()
    return Task(train, some_of(learn, CHOSEN_FROM, seed), some_of(judge, CHOSEN_BY, seed), test)


def few_task(train: Dataset, test: Dataset, seed: int) -> Task:
    """Learn from one training document a class; choose on others."""
    one, others = per_class(train, 1, seed=seed)
    return Task(one, one, some_of(others, CHOSEN_BY, seed), test)


# Learning and judging


def judged(loss: str, rate: float, epochs: int, learn: Dataset, test: Dataset, seed: int) -> Values:
    """Learn and judge; the best leaf is found by following the likeliest child."""
    size = 20 if loss == "coarse" else 100
    model = make_model(
        "bag", loss=f"win_{loss}", learning_rate=rate, epochs=epochs, vector_size=size, adaptive=False, seed=seed
    )
    scores = model.fit(learn).score(test)
    metrics = ["coarsest_accuracy"] if loss == "coarse" else [*WINS, *ACCURACIES, *AGGREGATES]
    result: Result = evaluate(test, scores=scores, decisions=decide(scores, "top_down"), metrics=metrics)
    return {metric: result[metric] for metric in metrics}


def chosen(loss: str, task: Task, grid: Mapping[str, tuple[Sequence[float], Sequence[int]]]) -> tuple[float, int]:
    """Choose the rate and the epochs that are best on held-out training documents; what diverges is out."""
    metric = "coarsest_accuracy" if loss == "coarse" else "onehot_win"
    found: dict[tuple[float, int], float] = {}
    for rate, epochs in itertools.product(*grid[loss]):
        try:
            found[rate, epochs] = judged(loss, rate, epochs, task.learn, task.judge, 0)[metric]
        except TreelabelError as error:
            if "diverged" not in str(error):
                raise
    return max(found, key=lambda key: found[key])


def lines_of(tasks: Sequence[Task], grid: Mapping[str, tuple[Sequence[float], Sequence[int]]]) -> list[Line]:
    """Make a table: choose once, then learn with every seed."""
    lines = []
    for loss in LOSSES:
        rate, epochs = chosen(loss, tasks[0], grid)
        values = [judged(loss, rate, epochs, task.train, task.test, seed) for seed, task in enumerate(tasks)]
        lines.append(Line(loss, rate, epochs, values))
    return lines


# What is printed


def number(value: float) -> str:
    """Write three digits, and infinity as such."""
    return "∞" if np.isinf(value) else f"{value:.3f}" if value < 10 else f"{value:.1f}"


def print_table(title: str, lines: Sequence[Line], columns: Mapping[str, str], markdown: bool) -> None:
    """Print one table in the paper's layout."""
    rows = [["training loss (rate, epochs)", *(f"{title} {name}".strip() for name in columns.values())]]
    for line in lines:
        known = [metric in line.values[0] for metric in columns]
        if any(known):
            cells = [number(line.mean(each)) if has else "" for each, has in zip(columns, known, strict=True)]
            rows.append([f"{line.loss} ({line.rate:g}, {line.epochs})", *cells])
    rows.append(["the ideal", *("lower" if metric in LOWER else "higher" for metric in columns)])
    if markdown:
        rows.insert(1, ["---"] * len(rows[0]))
        print("\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n")
        return
    print("\n".join(f"{row[0]:<30}" + "".join(f"{cell:>22}" for cell in row[1:]) for row in rows) + "\n")


def print_tables(lines: Sequence[Line], markdown: bool) -> None:
    """Print the three tables of a set."""
    print_table("", lines, WINS, markdown)
    print_table("accuracy:", lines, ACCURACIES, markdown)
    print_table("aggregate", lines, AGGREGATES, markdown)


# What the paper claims


@dataclass(frozen=True)
class Claim:
    """That in a setting a loss's metric is above another's (or no worse, within a margin)."""

    says: str
    few: bool
    metric: str
    better: str
    worse: str
    margin: float = 0.0

    def check(self, lines: Mapping[str, Line]) -> tuple[str, str]:
        """Compare the means, and show the differences of all seeds; mixed: not all seeds are like the mean."""
        one, two = lines[self.better], lines[self.worse]
        sign = -1 if self.metric in LOWER else 1
        pairs = zip(one.values, two.values, strict=True)
        found = [sign * (high[self.metric] - low[self.metric]) for high, low in pairs]
        mean = sign * (one.mean(self.metric) - two.mean(self.metric))
        numbers = f"{self.better} {number(one.mean(self.metric))}, {self.worse} {number(two.mean(self.metric))}"
        verdict = "DOES NOT HOLD" if mean <= -self.margin else "holds" if min(found) > -self.margin else "mixed"
        return verdict, f"{numbers} (better by {min(found):+.3f} to {max(found):+.3f})"


CLAIMS = (
    Claim("one example a class: log finds the top label better than flat", True, "coarsest_accuracy", "log", "flat"),
    Claim("one example a class: log wins more than flat", True, "onehot_win", "log", "flat"),
    Claim("one example a class: log has the better softmax win", True, "softmax_win", "log", "flat"),
    Claim("one example a class: flat finds the leaf better than log", True, "finest_accuracy", "flat", "log"),
    Claim("one example a class: flat has the lower cross entropy", True, "cross_entropy", "flat", "log"),
    Claim(
        "one example a class: log's top labels come near those of coarse",
        True,
        "coarsest_accuracy",
        "log",
        "coarse",
        0.03,
    ),
    Claim("raw fails: flat wins more, all examples", False, "onehot_win", "flat", "raw"),
    Claim("raw fails: flat finds the leaf better, all examples", False, "finest_accuracy", "flat", "raw"),
    Claim("raw fails: flat has the lower cross entropy, all examples", False, "cross_entropy", "flat", "raw"),
    Claim("raw fails: flat finds the leaf better, one example a class", True, "finest_accuracy", "flat", "raw"),
    Claim("all examples: flat wins as much as log, or more", False, "onehot_win", "flat", "log", 0.005),
    Claim(
        "all examples: flat finds the leaf as well as log, or better", False, "finest_accuracy", "flat", "log", 0.005
    ),
)


def print_claims(found: Mapping[tuple[str, bool], Sequence[Line]]) -> None:
    """Print for every claim and set whether it holds."""
    for claim in CLAIMS:
        print(claim.says)
        for (name, few), lines in found.items():
            if few == claim.few:
                verdict, numbers = claim.check({line.loss: line for line in lines})
                print(f"    {name:<16}{verdict:<16}{numbers}")


def main() -> None:
    """Learn with all losses on all sets, print the tables, and check the claims."""
    parser = argparse.ArgumentParser(description="Compare losses that know the hierarchy with one that does not.")
    parser.add_argument("--sets", default="dbpedia5k,newsgroups20,mwpd_gpc", help="data sets, comma-separated")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--markdown", action="store_true", help="print tables in Markdown")
    options = parser.parse_args()
    started = time.perf_counter()
    found: dict[tuple[str, bool], Sequence[Line]] = {}
    for name in options.sets.split(","):
        if not (DATA / name).is_dir():
            print(f"{name}: not at {DATA}; set TREELABEL_DATA to the folder of the data sets")
            continue
        parts = parts_of(name)
        for few, make, grid in ((False, full_task, FULL_GRID), (True, few_task, FEW_GRID)):
            tasks = [make(*parts, seed) for seed in range(options.seeds)]
            h = parts[0].hierarchy
            size = f"{len(tasks[0].train):,} training and {len(parts[1]):,} test documents, {len(h.leaves)} leaves"
            print(f"{'### ' if options.markdown else ''}{name}{', one example a class' if few else ''}: {size}\n")
            found[name, few] = lines_of(tasks, grid)
            print_tables(found[name, few], options.markdown)
            print(f"{time.perf_counter() - started:.0f} s so far\n", flush=True)
    print_claims(found)


if __name__ == "__main__":
    main()
