"""Whether tests and intervals keep what they promise: level, power and coverage, simulated.

    python benchmarks/levels.py                          # 400 repetitions, about ten minutes
    python benchmarks/levels.py --quick                  # 40 repetitions
    python benchmarks/levels.py --documents 200 --groups 5

Texts have one of 96 leaves below 8 top labels, by Zipf's law; the population's values are known. Two systems are equal
if both draw their answers to a document from one distribution: then nobody could tell whose answer is whose. A test
keeps its level if it finds such systems different (p < 0.05) in 5% of the samples; its power is how often it finds one
that is right in 8% more of the documents. An interval keeps its promise if it covers the population's value in 95% of
the samples. All numbers are those of `compare`, as a user gets them.
"""

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from treelabel import Dataset, Hierarchy, compare
from treelabel.evaluation.comparison import ComparisonTable

Numbers = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]

TOPS, LEAVES = 8, 96
METRICS = ("micro_f1", "hf1", "macro_f1")
SIZES = (50, 200, 1000, 5000)
GROUPS = (3, 5, 10, 30)
LEVEL = 0.05
# How often systems are right, how much more often the better one is, and the documents that labels are binned by.
RIGHT, GAIN = (0.4, 0.8), 0.08
TRAINING = 2000


@dataclass(frozen=True)
class World:
    """Leaves with their probabilities and the probability of each answer to a text of each leaf."""

    hierarchy: Hierarchy
    leaves: list[str]
    shares: Numbers
    mistakes: Numbers
    right: Numbers

    @classmethod
    def make(cls, seed: int = 0) -> "World":
        """Make the leaves, some of them harder than others, and what each is mistaken for."""
        rng = np.random.default_rng(seed)
        names = [f"{at % TOPS}/{at}" for at in range(LEAVES)]
        hierarchy = Hierarchy.from_paths([f"{at % TOPS} > {name}" for at, name in enumerate(names)])
        shares = 1 / np.arange(1, LEAVES + 1)
        mistakes = rng.dirichlet(np.full(LEAVES, 0.1), LEAVES) * (1 - np.eye(LEAVES)) + 1e-9
        return cls(
            hierarchy,
            names,
            shares / shares.sum(),
            mistakes / mistakes.sum(axis=1, keepdims=True),
            rng.uniform(*RIGHT, LEAVES),
        )

    @property
    def frequencies(self) -> Labels:
        """The training documents of every node, as expected."""
        share = dict(zip(self.leaves, self.shares, strict=True))
        share |= {str(top): float(self.shares[top::TOPS].sum()) for top in range(TOPS)}
        return np.array([max(1, round(TRAINING * share[name])) for name in self.hierarchy.names])

    def truth(self, rng: np.random.Generator, documents: int) -> Labels:
        """Draw the leaves of documents."""
        return rng.choice(LEAVES, documents, p=self.shares)

    def answers(self, rng: np.random.Generator, truth: Labels, right: Numbers) -> Labels:
        """Draw a system's answers, right with some probability for each document."""
        chance = rng.random((len(truth), 1)) * self.mistakes.sum(axis=1)[truth][:, None]
        wrong = np.minimum((self.mistakes.cumsum(axis=1)[truth] < chance).sum(axis=1), LEAVES - 1)
        return np.where(rng.random(len(truth)) < right, truth, wrong)

    def values(self, right: Numbers) -> dict[str, float]:
        """Return what the population gives a system that is right with some probability for each leaf."""
        joint = self.shares[:, None] * (np.diag(right) + (1 - right)[:, None] * self.mistakes)
        above = np.concatenate(
            [np.arange(LEAVES)[:, None] % TOPS == np.arange(TOPS), np.eye(LEAVES, dtype=bool)], axis=1
        )
        sets = above.astype(np.float64)
        true, predicted = joint.sum(axis=1) @ sets, joint.sum(axis=0) @ sets
        both = np.einsum("tp,tn,pn->n", joint, sets, sets, optimize=True)
        # Every set has two nodes.
        return {
            "micro_f1": float(2 * both.sum() / (true + predicted).sum()),
            "hf1": float((joint * (sets @ sets.T)).sum() / 2),
            "macro_f1": float(np.mean(2 * both / (true + predicted))),
        }

    def named(self, labels: Labels) -> list[list[str]]:
        """Give the labels of documents by name."""
        return [[self.leaves[label]] for label in labels]


@dataclass
class Tally:
    """How often something happened, among how many times that it could have."""

    hits: int = 0
    tries: int = 0

    def add(self, hit: bool) -> None:
        """Count once more."""
        self.hits += bool(hit)
        self.tries += 1

    def __str__(self) -> str:
        if not self.tries:
            return "-"
        share = self.hits / self.tries
        return f"{100 * share:.1f} ± {196 * np.sqrt(share * (1 - share) / self.tries):.1f}"


@dataclass
class Found:
    """What was counted: rejections of tests with equal and with different systems, intervals that cover."""

    level: dict[str, Tally] = field(default_factory=dict)
    power: dict[str, Tally] = field(default_factory=dict)
    covered: dict[str, Tally] = field(default_factory=dict)
    printed: dict[str, Tally] = field(default_factory=dict)

    def add_tests(self, table: ComparisonTable, kind: dict[str, Tally]) -> None:
        """Count the tests that find a difference."""
        p_values = {row.name: row.p_values[0] for row in table.metrics} | {"micro sign test": table.sign_tests[0]}
        p_values |= {f"t-test of labels with {row.name}": row.p_values[0] for row in table.bins}
        for name, p in p_values.items():
            if not np.isnan(p):
                kind.setdefault(name, Tally()).add(p < LEVEL)

    def add_intervals(self, table: ComparisonTable, first: dict[str, float], second: dict[str, float]) -> None:
        """Count the intervals that are printed, and those of them that cover the population's value."""
        for row in table.metrics:
            value, difference = row.values[0], row.differences[0]
            gain = second[row.name] - first[row.name]
            for name, low, high, true in (
                (row.name, value.low, value.high, first[row.name]),
                (f"difference of {row.name}", difference.low, difference.high, gain),
            ):
                self.printed.setdefault(name, Tally()).add(not np.isnan(low))
                if not np.isnan(low):
                    self.covered.setdefault(name, Tally()).add(low - 1e-12 <= true <= high + 1e-12)


def judge(
    world: World,
    truth: Labels,
    systems: Sequence[Labels],
    resamples: int,
    seed: int,
    groups: Sequence[str] | None = None,
) -> ComparisonTable:
    """Compare two systems as a user does."""
    data = Dataset.of([""] * len(truth), world.named(truth), world.hierarchy, groups=groups)
    return compare(
        data,
        {name: world.named(each) for name, each in zip(("first", "second"), systems, strict=True)},
        metrics=METRICS,
        train_frequencies=world.frequencies,
        train_documents=TRAINING,
        resamples=resamples,
        seed=seed,
    )


def by_documents(documents: int, repetitions: int, resamples: int = 200, seed: int = 0) -> Found:
    """Simulate samples of independent documents.

    Parameters
    ----------
    documents : int
        How many documents a sample has.
    repetitions : int
        How many samples to draw, of equal systems and of different ones.
    resamples, seed : int
        As for `compare`; the seed is that of the samples, too.

    Returns
    -------
    Found
    """
    world, rng, found = World.make(), np.random.default_rng([seed, documents]), Found()
    better = world.right + GAIN
    values = world.values(world.right), world.values(better)
    for repetition in range(repetitions):
        truth = world.truth(rng, documents)
        first, equal, other = (world.answers(rng, truth, right[truth]) for right in (world.right, world.right, better))
        found.add_tests(judge(world, truth, (first, equal), resamples, repetition), found.level)
        different = judge(world, truth, (first, other), resamples, repetition)
        found.add_tests(different, found.power)
        found.add_intervals(different, *values)
    return found


def by_groups(groups: int, repetitions: int, resamples: int = 200, seed: int = 0) -> Found:
    """Simulate samples of 5 to 39 documents of each group, in which each system is better or worse than elsewhere.

    Parameters
    ----------
    groups : int
        How many groups a sample has.
    repetitions, resamples, seed : int
        As for `by_documents`.

    Returns
    -------
    Found
    """
    world, rng, found = World.make(), np.random.default_rng([seed, groups]), Found()
    beta = 6.0, 3.0
    values = world.values(np.full(LEAVES, beta[0] / sum(beta)))
    for repetition in range(repetitions):
        codes = np.repeat(np.arange(groups), rng.integers(5, 40, groups))
        truth = world.truth(rng, len(codes))
        systems = [world.answers(rng, truth, rng.beta(*beta, groups)[codes]) for _ in range(2)]
        table = judge(world, truth, systems, resamples, repetition, [str(code) for code in codes])
        found.add_tests(table, found.level)
        found.add_intervals(table, values, values)
    return found


def lines(title: str, rows: dict[str, Found], kinds: Sequence[str]) -> Iterator[str]:
    """Write a table of percentages for each kind of count: a line for each test or interval, a column for each row."""
    for kind in kinds if rows else ():
        counted: dict[str, dict[str, Any]] = {name: getattr(found, kind) for name, found in rows.items()}
        yield f"\n{kind} by {title}, in %"
        yield f"{'':<36}" + "".join(f"{name:>14}" for name in rows)
        for test in dict.fromkeys(test for column in counted.values() for test in column):
            yield f"{test:<36}" + "".join(f"{column.get(test, Tally())!s:>14}" for column in counted.values())


def main() -> None:
    """Simulate and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=400)
    parser.add_argument("--quick", action="store_true", help="40 repetitions")
    parser.add_argument("--resamples", type=int, default=200)
    parser.add_argument("--documents", type=int, nargs="*", default=SIZES)
    parser.add_argument("--groups", type=int, nargs="*", default=GROUPS)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    repetitions = 40 if asked.quick else asked.repetitions
    begin = time.perf_counter()
    settings = repetitions, asked.resamples, asked.seed
    sizes = {f"{size:,}": by_documents(size, *settings) for size in asked.documents}
    print("\n".join(lines("documents", sizes, ("level", "power", "printed", "covered"))))
    groups = {f"{count:,}": by_groups(count, *settings) for count in asked.groups}
    print("\n".join(lines("groups", groups, ("level", "printed", "covered"))))
    print(f"\n{repetitions} repetitions, {asked.resamples} resamples, {time.perf_counter() - begin:.0f} s")


if __name__ == "__main__":
    main()
