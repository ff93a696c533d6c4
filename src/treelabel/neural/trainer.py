"""The training loop: steps over batches, validation after each epoch, and the best weights kept.

A step takes `batch_size` documents, however many processes and parts (`gradient_accumulation_steps`) they are dealt to:
the gradient is that of their mean loss, so the result is the same but for rounding, and for dropout's random numbers.

Where a deadline will come before the last epoch, the schedule of rates is fitted into the time (`Pacing`). A checkpoint
is written before it is, so that a later run goes on as if there had been no deadline.
"""

import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from treelabel.core.errors import TreelabelError
from treelabel.core.progress import Done, progress_bar
from treelabel.core.stopping import StopSignal, held_interrupt
from treelabel.core.types import LongArray
from treelabel.neural.featurizers import Inputs
from treelabel.neural.hardware import preserve_state
from treelabel.neural.losses.base import Loss
from treelabel.neural.losses.truth import PreparedLabels
from treelabel.neural.network import Network
from treelabel.neural.optimization import SCHEDULES, Pacing, parameter_groups
from treelabel.neural.processes import (
    agree_to_stop,
    from_first_process,
    new_accelerator,
    process_count,
    share_statistics,
)
from treelabel.neural.training_arguments import TrainingArguments, make_callback
from treelabel.neural.weight_files import (
    TrainState,
    copy_to_cpu,
    read_checkpoint,
    resume,
    save_checkpoint,
    trained_weights,
)

# Batches of similar length are formed among this many batches' worth of documents that stand together by chance.
POOL = 50

# Returns the validation loss of a network, and the temperature of its logits that gives it.
Validate = Callable[[Network], tuple[float, float]]


@dataclass(frozen=True)
class TrainingRun:
    """One training of a network: arguments, with defaults filled in, and what belongs to this run alone.

    `checkpoints` is the folder of its checkpoints, if there are any, and `fingerprint` what they belong to.
    `last_epoch` is the epoch after which it ends although the schedule of learning rates has more.
    """

    arguments: TrainingArguments
    epochs: int
    batch_size: int
    learning_rates: Mapping[str, float]
    lr_scheduler: str
    seed: int
    stop: StopSignal
    progress: bool | None
    bf16: bool
    checkpoints: Path | None
    fingerprint: str
    last_epoch: int | None = None


class Trainer:
    """Trains a network; `fit` changes it in place.

    Parameters
    ----------
    loss
        The loss of logits.
    run
        How to train.
    validate
        Called after each epoch; without it, the last epoch is kept.
    """

    def __init__(self, network: Network, loss: Loss, run: TrainingRun, validate: Validate | None = None) -> None:
        self.network, self.loss, self.run, self.validate = network, loss, run, validate
        self.callbacks = [make_callback(each) for each in run.arguments.callbacks]

    def fit(self, inputs: Inputs, truth: PreparedLabels) -> TrainState:
        """Train to the last epoch, or until patience runs out, the deadline passes or Ctrl-C is pressed.

        Parameters
        ----------
        inputs
            What the network takes of documents.
        truth
            Their labels, prepared by the loss.

        Returns
        -------
        TrainState
            The state at the end; the network has the weights of the best epoch if there is validation, else the last.
        """
        run = self.run
        # What was made in a hurry is no state to go on from.
        self.begun_late = bool(run.stop)
        self.accelerator = new_accelerator(process_count() > 1 and from_first_process(self._has_unused(inputs, truth)))
        groups = parameter_groups(self.network, run.learning_rates, run.arguments)
        self.network.to(self.accelerator.device)
        self.loss.to(self.accelerator.device)
        self.optimizer = torch.optim.AdamW(groups, fused=True)
        state = self._resume()
        # After loading: parameters of a wrapped network have other names.
        self.model = self.accelerator.prepare(self.network)
        made_late = from_first_process(state.step == 0 and any(stage.stopped for stage in self.network.stages_before))
        self.begun_late = self.begun_late or made_late
        self.begun = self.saved_at = time.monotonic()
        last = run.epochs if run.last_epoch is None else run.last_epoch
        state.planned = last * len(epoch_batches(inputs.lengths, run.batch_size, run.seed, 0))
        keeps = run.checkpoints is not None and not self.begun_late
        self.pacing = Pacing(self.begun, run.stop.deadline, state.step, state.planned, keeps)
        self.is_late = False
        shown = run.progress if self.accelerator.is_main_process else False
        total = run.epochs * len(inputs.lengths)
        with progress_bar("learning", total, shown) as done, held_interrupt(run.stop):
            while state.epoch < last and not self._out_of_patience(state) and not state.stopped:
                self._train_epoch(inputs, truth, state, done)
        # What was learned with rates of its own is not what a run without a deadline learns, though epochs ran out.
        state.stopped = state.stopped or self.is_late or made_late
        if state.best_weights:
            self.network.load_state_dict(state.best_weights, strict=False)
        self._require_finite()
        return state

    def _has_unused(self, inputs: Inputs, truth: PreparedLabels) -> bool:
        """Return whether parameters have no gradient: some encoders have parts that no text uses, as XLNet's segments.

        Which these are is the same for all texts: networks take care that every text passes through all other weights.
        """
        rows, device = np.arange(1), next(self.network.parameters()).device
        tensors = tuple(value.to(device) for value in inputs.batch(rows))
        with preserve_state(self.network):
            losses = self.network.train()(tensors, truth.batch(rows, device), self.loss.to(device))
            (losses.sum() + self.network.penalty(self.loss)).backward()
            result = any(p.requires_grad and p.grad is None for p in self.network.parameters())
            self.network.zero_grad(set_to_none=True)
        return result

    def _resume(self) -> TrainState:
        """Return the state to go on from, of the first process's checkpoint if there is one."""
        folder = self.run.checkpoints
        if folder is None:
            return TrainState()
        main = self.accelerator.is_main_process
        stored = from_first_process(read_checkpoint(folder, self.run.fingerprint, self.network) if main else None)
        return TrainState() if stored is None else resume(stored, self.network, self.optimizer)

    # Epochs

    def _train_epoch(self, inputs: Inputs, truth: PreparedLabels, state: TrainState, done: Done) -> None:
        """Take the remaining steps of an epoch, then validate."""
        run, documents = self.run, len(inputs.lengths)
        batches = epoch_batches(inputs.lengths, run.batch_size, run.seed, state.epoch)
        steps = run.epochs * len(batches)
        start, seen = time.monotonic(), 0
        self.model.train()
        for rows in batches[state.batch :]:
            share = self._share(state, steps)
            state.loss_sum += self._step(inputs, truth, rows, share) * len(rows)
            seen += len(rows)
            state.batch, state.step, state.documents = state.batch + 1, state.step + 1, state.documents + len(rows)
            speed = seen / max(time.monotonic() - start, 1e-9)
            loss, rate = state.loss_sum / state.documents, run.learning_rates["outputs"] * share
            done(state.epoch * documents + state.documents, f"loss {loss:.3f}, {speed:,.0f} documents/s")
            self._report(state.step, {"loss": loss, "learning_rate": rate, "documents_per_second": speed})
            self._save_if_due(state)
            if agree_to_stop(run.stop):
                # A later run resumes from here; the rest of this epoch's end is for the model of now.
                self._save(state)
                state.stopped = True
                break
        self._end_epoch(state)

    def _end_epoch(self, state: TrainState) -> None:
        """Record the loss of an epoch, and its weights if they are the best."""
        share_statistics(self.network)
        # The loss of a step is known to each process by its own documents.
        training_loss = self._mean(state.loss_sum) / max(state.documents, 1)
        loss, temperature = (training_loss, 1.0) if self.validate is None else self._validate_epoch(self.validate)
        validation = {} if self.validate is None else {"validation_loss": loss}
        self._report(state.step, {"training_loss": training_loss, **validation})
        if self.validate is not None and np.isfinite(loss) and loss < min([*state.epoch_losses, np.inf]):
            state.best_weights, state.temperature = copy_to_cpu(trained_weights(self.network)), temperature
        state.epoch_losses.append(loss)
        state.epoch, state.batch, state.documents, state.loss_sum = state.epoch + 1, 0, 0, 0.0
        if not state.stopped:
            self._save_if_due(state)

    def _validate_epoch(self, validate: Validate) -> tuple[float, float]:
        """Return what the first process finds: patience and the best weights follow from it in all."""
        self.network.eval()
        result = (np.inf, 1.0)
        if self.accelerator.is_main_process:
            with torch.inference_mode():
                result = validate(self.network)
        return from_first_process(result)

    def _mean(self, value: float) -> float:
        """Return the mean of a number over processes."""
        local = torch.tensor(value, dtype=torch.float64, device=self.accelerator.device)
        return float(self.accelerator.reduce(local, "mean"))

    def _out_of_patience(self, state: TrainState) -> bool:
        """Return whether too many epochs have passed since the best one."""
        best = int(np.argmin([*state.epoch_losses, np.inf]))
        return self.validate is not None and len(state.epoch_losses) > best + self.run.arguments.patience

    # Steps

    def _step(self, inputs: Inputs, truth: PreparedLabels, rows: LongArray, share: float) -> float:
        """Train on one batch at a share of the peak rates, in parts for processes and accumulation; return its loss."""
        parts, accelerator = self.run.arguments.gradient_accumulation_steps, self.accelerator
        for group in self.optimizer.param_groups:
            group["lr"] = group["initial_lr"] * share
        total = 0.0
        for part in range(parts):
            index = accelerator.process_index * parts + part
            local = rows[index :: accelerator.num_processes * parts]
            with nullcontext() if part == parts - 1 else accelerator.no_sync(self.model):
                loss = self._part_loss(inputs, truth, local, rows)
                # Gradients are averaged over processes, but the mean is over all documents.
                accelerator.backward(loss * accelerator.num_processes)
            total += float(loss.detach())
        if self.run.arguments.max_grad_norm > 0:
            accelerator.clip_grad_norm_(self.model.parameters(), self.run.arguments.max_grad_norm)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return total * int(accelerator.num_processes)

    def _part_loss(self, inputs: Inputs, truth: PreparedLabels, local: LongArray, rows: LongArray) -> Tensor:
        """Return what some documents of a batch add to its mean loss; without any, the first counts 0 times."""
        device = self.accelerator.device
        counted = local if len(local) else rows[:1]
        tensors = tuple(value.to(device) for value in inputs.batch(counted))
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=self.run.bf16):
            losses = self.model(tensors, truth.batch(counted, device), self.loss)
        parts = self.run.arguments.gradient_accumulation_steps * self.accelerator.num_processes
        counts = 1.0 if len(local) else 0.0
        result: Tensor = losses.sum() / len(rows) * counts + self.network.penalty(self.loss) / parts
        return result

    def _share(self, state: TrainState, steps: int) -> float:
        """Return the share of the peak rates in the next step, of so many of the schedule.

        It is the same in all processes, whose weights would differ otherwise. A checkpoint is written before it is
        another one than without a deadline.
        """
        run = self.run

        def schedule(step: float) -> float:
            return SCHEDULES[run.lr_scheduler](step, steps, run.arguments.warmup_ratio)

        # What learns again for as many epochs as were best is of no use with fewer.
        if np.isinf(run.stop.deadline) or run.last_epoch is not None:
            return schedule(state.step)
        share = self.pacing.share(time.monotonic(), state.step, schedule)
        share, is_late = from_first_process((share, self.pacing.given_up is not None))
        if is_late and not self.is_late:
            self._save(state)
        self.is_late = is_late
        return share

    def _require_finite(self) -> None:
        if not all(bool(torch.isfinite(p).all()) for p in trained_weights(self.network).values()):
            rates = ", ".join(f"{rate:g}" for rate in dict.fromkeys(self.run.learning_rates.values()))
            raise TreelabelError(f"learning diverged at a learning rate of {rates}; use a smaller one (learning_rate=)")

    # Around steps

    def _report(self, step: int, values: Mapping[str, float]) -> None:
        if self.accelerator.is_main_process:
            for callback in self.callbacks:
                callback(step, values)

    def _save_if_due(self, state: TrainState) -> None:
        if time.monotonic() - self.saved_at >= self.run.arguments.checkpoint_seconds:
            self._save(state)

    def _save(self, state: TrainState) -> None:
        run = self.run
        goes_on = not self.begun_late and not self.is_late
        if run.checkpoints is not None and self.accelerator.is_main_process and goes_on:
            save_checkpoint(run.checkpoints, run.fingerprint, state, self.network, self.optimizer)
        self.saved_at = time.monotonic()


def epoch_batches(lengths: LongArray, batch_size: int, seed: int, epoch: int) -> list[LongArray]:
    """Split documents into batches of similar length, in an order that depends on seed and epoch alone.

    Parameters
    ----------
    lengths
        The length of each document.
    batch_size
        Documents per batch.
    seed
        The seed of the whole training.
    epoch
        The number of the epoch.

    Returns
    -------
    list[LongArray]
        The row numbers of each batch; every document is in one of them.

    >>> [rows.tolist() for rows in epoch_batches(np.array([9, 1, 8, 2]), 2, seed=0, epoch=0)]
    [[2, 0], [1, 3]]
    """
    rng = np.random.default_rng([seed, epoch])
    order = rng.permutation(len(lengths))
    pools = (order[start : start + POOL * batch_size] for start in range(0, len(order), POOL * batch_size))
    batches: list[LongArray] = []
    for pool in pools:
        alike = pool[np.argsort(lengths[pool], kind="stable")]
        batches += [alike[start : start + batch_size] for start in range(0, len(alike), batch_size)]
    return [batches[index] for index in rng.permutation(len(batches))]
