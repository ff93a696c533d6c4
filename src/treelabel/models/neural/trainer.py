"""The loop of training: steps over batches, a look at validation data after each epoch, and the best weights kept.

A step takes `batch` documents, whatever number of processes and of parts (`accumulate`) they are dealt to: the gradient
is that of their mean loss, so the result is the same but for rounding, and for dropout's random numbers.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor

from treelabel.core.compute import DoubleArray, LongArray, thread_count
from treelabel.core.errors import TreelabelError
from treelabel.core.progress import Done, progress_bar
from treelabel.losses.torch_losses import Prepared, TorchLoss
from treelabel.models.neural.callbacks import Callback
from treelabel.models.neural.checkpoints import (
    Progress,
    copied,
    load_checkpoint,
    put_back,
    save_checkpoint,
    trained,
)
from treelabel.models.neural.network import Network, parameter_groups
from treelabel.models.neural.schedules import SCHEDULES
from treelabel.models.neural.tokens import epoch_batches
from treelabel.models.stopping import StopSignal, held_interrupt

# Networks of fewer parameters are small.
SMALL = 1_000_000


class Inputs(Protocol):
    """What the network sees of documents: tokens, or vectors."""

    @property
    def lengths(self) -> LongArray:
        """How long each document is."""

    def batch(self, rows: LongArray) -> tuple[Tensor, ...]:
        """What the network takes of some documents."""


@dataclass(frozen=True, eq=False)
class KnownVectors:
    """Documents whose vectors are known: documents x width."""

    values: Tensor

    @property
    def lengths(self) -> LongArray:
        """All alike."""
        return np.ones(len(self.values), np.int64)

    def batch(self, rows: LongArray) -> tuple[Tensor]:
        """Their rows."""
        return (self.values[torch.from_numpy(rows)],)


@dataclass(frozen=True)
class Course:
    """How to train: the settings of the model `neural` that say so."""

    epochs: int
    batch: int
    rates: tuple[float, float, float]
    schedule: str
    warm_up: float
    layer_decay: float
    weight_decay: float
    clip: float
    accumulate: int
    patience: int
    bf16: bool
    seed: int
    stop: StopSignal
    progress: bool | None
    callbacks: tuple[Callback, ...]
    checkpoints: Path | None
    checkpoint_seconds: float
    run: str
    # Which of several trainings of one model this is, and after how many epochs it ends although rates fall slower.
    part: str = "first"
    stop_after: int | None = None


# Judges a network after an epoch: a loss, and the slope of its logits that gives it.
Judge = Callable[[Network], tuple[float, float]]


class Trainer:
    """Takes a network through a course; what it learned is in the network when `learn` is done."""

    def __init__(self, network: Network, cost: TorchLoss, course: Course, judge: Judge | None) -> None:
        self.network, self.cost, self.course, self.judge = network, cost, course, judge

    def learn(self, inputs: Inputs, truth: Prepared) -> Progress:
        """Train to the end of the course, or until the judge sees no gain, the deadline or Ctrl-C.

        With a judge, the network has the weights of its best epoch in the end, else the last.
        """
        course = self.course
        self.accelerator = Accelerator(cpu=not torch.cuda.is_available())
        groups = parameter_groups(self.network, course.rates, course.layer_decay, course.weight_decay)
        self.network.to(self.accelerator.device)
        self.cost.to(self.accelerator.device)
        self.optimizer = torch.optim.AdamW(groups, fused=True)
        at = Progress()
        if course.checkpoints is not None:
            at = load_checkpoint(course.checkpoints / course.part, course.run, self.network, self.optimizer)
        # Only now: what is wrapped has other names.
        self.model = self.accelerator.prepare(self.network)
        self.saved = time.monotonic()
        steps = -(-len(inputs.lengths) // course.batch)
        last = course.epochs if course.stop_after is None else course.stop_after
        shown = course.progress if self.accelerator.is_main_process else False
        with progress_bar("learning", course.epochs * len(inputs.lengths), shown) as done, held_interrupt(course.stop):
            while at.epoch < last and not self._waited(at) and not at.stopped:
                self._go_through(inputs, truth, at, steps, done)
        if at.best:
            put_back(self.network, at.best)
        self._require_numbers()
        return at

    # Epochs

    def _go_through(self, inputs: Inputs, truth: Prepared, at: Progress, steps: int, done: Done) -> None:
        """Take the steps of an epoch that are left, then judge."""
        course, documents = self.course, len(inputs.lengths)
        batches = epoch_batches(inputs.lengths, course.batch, course.seed, at.epoch)
        begun, used = time.monotonic(), 0
        self.model.train()
        for rows in batches[at.batch :]:
            rate = SCHEDULES[course.schedule](at.step, steps * course.epochs, course.warm_up)
            at.loss_sum += self._step(inputs, truth, rows, rate) * len(rows)
            used += len(rows)
            at.batch, at.step, at.documents = at.batch + 1, at.step + 1, at.documents + len(rows)
            speed = used / max(time.monotonic() - begun, 1e-9)
            loss = at.loss_sum / at.documents
            done(at.epoch * documents + at.documents, f"loss {loss:.3f}, {speed:,.0f} documents/s")
            self._tell(at.step, {"loss": loss, "rate": rate, "documents_per_second": speed})
            self._save_sometimes(at)
            if self._is_over():
                # Whoever goes on later does so from here; what follows is for the model of now.
                self._save(at)
                at.stopped = True
                break
        self._judge(at, at.loss_sum / max(at.documents, 1))

    def _judge(self, at: Progress, training_loss: float) -> None:
        """End an epoch: remember its loss, and its weights if they are the best."""
        loss, slope = (training_loss, 1.0) if self.judge is None else self._judged()
        self._tell(at.step, {"training_loss": training_loss} | ({} if self.judge is None else {"valid_loss": loss}))
        if self.judge is not None and np.isfinite(loss) and loss < min([*at.seen, np.inf]):
            at.best, at.slope = copied(trained(self.network)), slope
        at.seen.append(loss)
        at.epoch, at.batch, at.documents, at.loss_sum = at.epoch + 1, 0, 0, 0.0
        if not at.stopped:
            self._save_sometimes(at)

    def _judged(self) -> tuple[float, float]:
        assert self.judge is not None
        self.network.eval()
        with torch.inference_mode():
            return self.judge(self.network)

    def _waited(self, at: Progress) -> bool:
        """Whether too many epochs have passed since the best."""
        return self.judge is not None and len(at.seen) > int(np.argmin([*at.seen, np.inf])) + self.course.patience

    # Steps

    def _step(self, inputs: Inputs, truth: Prepared, rows: LongArray, rate: float) -> float:
        """Learn from one batch, in as many parts as there are processes and parts to each; give its mean loss."""
        course, share = self.course, self.accelerator
        for group in self.optimizer.param_groups:
            group["lr"] = group["first_rate"] * rate
        total = 0.0
        for part in range(course.accumulate):
            place = share.process_index * course.accumulate + part
            own = rows[place :: share.num_processes * course.accumulate]
            last = part == course.accumulate - 1
            with nullcontext() if last else share.no_sync(self.model):
                loss = self._loss(inputs, truth, own, rows)
                # Gradients are averaged over processes, and the mean is over all documents.
                share.backward(loss * share.num_processes)
            total += float(loss.detach())
        if course.clip > 0:
            share.clip_grad_norm_(self.model.parameters(), course.clip)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return total * int(share.num_processes)

    def _loss(self, inputs: Inputs, truth: Prepared, own: LongArray, rows: LongArray) -> Tensor:
        """What some documents of a batch add to its mean loss; without any, the first counts 0 times."""
        device = self.accelerator.device
        counted = own if len(own) else rows[:1]
        given = tuple(value.to(device) for value in inputs.batch(counted))
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=self.course.bf16):
            logits = self.model(given)
        loss: Tensor = self.cost(logits.float(), truth.batch(counted, device)).sum() / len(rows)
        parts = self.course.accumulate * self.accelerator.num_processes
        counts = 1.0 if len(own) else 0.0
        found: Tensor = loss * counts + self.cost.penalty(self.network.outputs.linear.weight) / parts
        return found

    def _require_numbers(self) -> None:
        if not all(bool(torch.isfinite(p).all()) for p in trained(self.network).values()):
            raise TreelabelError(f"learning diverged at rates of {self.course.rates}; use smaller ones (rate=)")

    # Around steps

    def _is_over(self) -> bool:
        """Whether the deadline has passed, or somebody asked to stop, for any process: all stop at the same step."""
        stop = self.course.stop
        if self.accelerator.num_processes == 1:
            return bool(stop)
        told = torch.tensor(float(bool(stop)), device=self.accelerator.device)
        over = bool(self.accelerator.reduce(told, "sum") > 0)
        if over and not stop:
            # Another process was asked to; why is not told, and the careful guess is Ctrl-C.
            stop.interrupt()
        return over

    def _tell(self, step: int, values: Mapping[str, float]) -> None:
        if self.accelerator.is_main_process:
            for callback in self.course.callbacks:
                callback(step, values)

    def _save_sometimes(self, at: Progress) -> None:
        if time.monotonic() - self.saved >= self.course.checkpoint_seconds:
            self._save(at)

    def _save(self, at: Progress) -> None:
        if self.course.checkpoints is not None and self.accelerator.is_main_process:
            save_checkpoint(
                self.course.checkpoints / self.course.part, self.course.run, at, self.network, self.optimizer
            )
        self.saved = time.monotonic()


def parameter_count(network: Network) -> int:
    """How many numbers a network has."""
    return sum(p.numel() for p in network.parameters())


@contextmanager
def threads_for(network: Network) -> Iterator[None]:
    """Let torch use all threads, or one for a small network: it has little to share, and loses time in sharing it."""
    before = torch.get_num_threads()
    torch.set_num_threads(1 if parameter_count(network) < SMALL else thread_count())
    try:
        yield
    finally:
        torch.set_num_threads(before)


def faster_in_bf16(network: Network, given: Sequence[Tensor]) -> bool:
    """Measure whether a step is clearly faster in bfloat16: on many CPUs it is many times slower.

    Half the time at most, so that noise does not decide, and the same machine decides alike every time.
    """

    def seconds(bf16: bool) -> float:
        begun = time.perf_counter()
        with torch.autocast(given[0].device.type, dtype=torch.bfloat16, enabled=bf16):
            loss = network(tuple(given)).float().square().mean()
        loss.backward()
        network.zero_grad(set_to_none=True)
        return time.perf_counter() - begun

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    network.to(device)
    given = [value.to(device) for value in given]
    # Dropout draws no random number of training's.
    with torch.random.fork_rng(), threads_for(network):
        # Each once before it counts: the first use of a kernel sets it up.
        plain = min(seconds(False) for _ in range(3))
        half = seconds(True)
        return half < 10 * plain and min(seconds(True) for _ in range(2)) < 0.5 * plain


def logits_of(network: Network, batches: Sequence[LongArray], inputs: Inputs, outputs: int) -> DoubleArray:
    """Logits of all documents, documents x outputs, batch by batch."""
    device = next(network.parameters()).device
    found = np.zeros((len(inputs.lengths), outputs), np.float64)
    network.eval()
    with torch.inference_mode(), threads_for(network):
        for rows in batches:
            given = tuple(value.to(device) for value in inputs.batch(rows))
            found[rows] = network(given).float().cpu().numpy()
    return found
