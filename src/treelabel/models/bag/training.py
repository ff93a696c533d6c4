"""How the bag model learns: epochs of stochastic gradient descent, watched on documents it does not learn from."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from scipy import optimize

from treelabel.core.compute import FloatArray, LongArray
from treelabel.core.errors import TreelabelError
from treelabel.core.progress import Done, progress_bar
from treelabel.losses.kernels import Plan, Room, Targets
from treelabel.models.bag import kernels as kernels
from treelabel.models.bag.kernels import Rows, Weights
from treelabel.models.stopping import StopSignal

# Between so many documents Ctrl-C and the deadline are looked for.
CHUNK = 500


@dataclass(frozen=True)
class Course:
    """How to learn: the rate at the beginning, how often to go through the documents, and how long to wait for gain."""

    rate: float
    epochs: int
    patience: int
    threads: int
    stop: StopSignal = field(default_factory=StopSignal)
    progress: bool | None = None


@dataclass(frozen=True)
class Examples:
    """Documents as compiled loops see them: their n-grams, and what is true of them."""

    rows: Rows
    targets: Targets

    def __len__(self) -> int:
        return len(self.rows.ptr) - 1


@dataclass(frozen=True)
class Judge:
    """Judges weights by the mean loss of documents, with the slope of the logits that makes it least."""

    plan: Plan
    examples: Examples

    @cached_property
    def _count(self) -> int:
        return int(np.diff(self.plan.group_ptr)[self.examples.targets.groups].sum())

    def __call__(self, weights: Weights) -> tuple[float, float]:
        """Give the least mean loss and its slope, a number that all logits are multiplied by."""
        targets, room = self.examples.targets, room_of(self.plan, weights)
        logits = kernels.judged_logits(self.examples.rows, self.plan, targets, weights, self._count)
        if not np.isfinite(logits).all():
            return np.inf, 1.0
        found = optimize.minimize_scalar(
            lambda log: kernels.loss_at(self.plan, targets, logits, float(np.exp(log)), room),
            bounds=(-3.0, 1.5),
            method="bounded",
            options={"xatol": 0.01},
        )
        return float(found.fun), float(np.exp(found.x))


class Learner:
    """Takes weights through the epochs of a course; the weights are changed in place."""

    def __init__(self, plan: Plan, course: Course, weights: Weights, rng: np.random.Generator) -> None:
        self.plan, self.course, self.weights, self.rng = plan, course, weights, rng
        self.rooms = [room_of(plan, weights) for _ in range(max(1, course.threads))]

    def learn(self, examples: Examples, judge: Judge | None) -> list[float]:
        """Go through all epochs, or until the judge sees no gain, the deadline or Ctrl-C; the best weights are kept.

        Gives the judge's loss after each epoch, or without one the mean training loss.
        """
        epochs, seen = self.course.epochs, list[float]()
        best: tuple[float, FloatArray, FloatArray] | None = None
        with progress_bar("learning", epochs * len(examples), self.course.progress) as done:
            for epoch in range(epochs):
                rates = self.course.rate * (1 - epoch / epochs), self.course.rate * (1 - (epoch + 1) / epochs)
                loss = self.go_through(examples, rates, epoch * len(examples), done)
                seen.append(loss if judge is None else self._judged(judge))
                if judge is not None and np.isfinite(seen[-1]) and seen[-1] <= min(seen):
                    best = seen[-1], self.weights.inputs.copy(), self.weights.outputs.copy()
                waited = len(seen) - 1 - int(np.argmin(seen))
                if self.course.stop or not np.isfinite(loss) or (judge is not None and waited >= self.course.patience):
                    break
        if best is not None:
            self.weights.inputs[:], self.weights.outputs[:] = best[1:]
        if not (np.isfinite(self.weights.outputs).all() and np.isfinite(self.weights.inputs).all()):
            raise TreelabelError(f"learning diverged at a rate of {self.course.rate:g}; use a smaller one")
        return seen

    def _judged(self, judge: Judge) -> float:
        try:
            return judge(self.weights)[0]
        except KeyboardInterrupt:
            self.course.stop.interrupt()
            return np.inf

    def go_through(self, examples: Examples, rates: tuple[float, float], before: int, done: Done) -> float:
        """Take one step a document in random order; give the mean loss. Stops at the deadline or at Ctrl-C."""
        order, total, used = self.rng.permutation(len(examples)), 0.0, 0
        step = CHUNK * len(self.rooms)
        try:
            with ThreadPoolExecutor(len(self.rooms)) as pool:
                for first in range(0, len(order), step):
                    part = order[first : first + step]
                    shares = (first / len(order), (first + len(part)) / len(order))
                    of_part = tuple(rates[0] + share * (rates[1] - rates[0]) for share in shares)
                    total += self._visit(pool, examples, part, (of_part[0], of_part[1]))
                    used += len(part)
                    done(before + used, f"loss {total / used:.3f}")
                    if self.course.stop:
                        break
        except KeyboardInterrupt:
            self.course.stop.interrupt()
        return total / max(1, used)

    def _visit(
        self, pool: ThreadPoolExecutor, examples: Examples, documents: LongArray, rates: tuple[float, float]
    ) -> float:
        """Visit documents in as many threads as there are rooms, which write to the same weights without locks."""

        def work(part: LongArray, room: Room) -> float:
            return float(kernels.descend(examples.rows, self.plan, examples.targets, self.weights, part, rates, room))

        if len(self.rooms) == 1:
            return work(documents, self.rooms[0])
        return sum(pool.map(work, np.array_split(documents, len(self.rooms)), self.rooms))


def room_of(plan: Plan, weights: Weights) -> Room:
    """Make room for one document."""
    outputs = max(1, len(weights.outputs))
    largest = max(1, int(np.diff(plan.group_ptr).max(initial=0)))
    return Room(np.empty(largest, np.float32), np.empty(outputs), np.zeros(outputs, np.int32))
