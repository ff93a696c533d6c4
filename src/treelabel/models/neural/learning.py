"""From settings and training data to a trained network, and from there to scores and files."""

import hashlib
import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import optimize
from torch import nn

from treelabel.compute import DoubleArray, LongArray
from treelabel.features.sources import find_source
from treelabel.models.base import Arrays, Training
from treelabel.models.heads import log_loss
from treelabel.models.neural.callbacks import callback_of
from treelabel.models.neural.checkpoints import Progress
from treelabel.models.neural.losses import torch_loss
from treelabel.models.neural.model import LOSS_SETTINGS, Neural
from treelabel.models.neural.network import Network, Outputs, freeze, merged, with_lora
from treelabel.models.neural.readers import Frozen, Reader, Trained
from treelabel.models.neural.scratch import learned_tokenizer, small_bert
from treelabel.models.neural.trainer import (
    SMALL,
    Course,
    Inputs,
    Trainer,
    Vectors,
    faster_in_bf16,
    logits_of,
    parameter_count,
    threads_for,
)
from treelabel.models.neural.transformer import load_body, load_tokenizer
from treelabel.models.objective import Objective
from treelabel.scores import Scores
from treelabel.strings import Strings

# Fewer documents than this are too few to hold some out.
FEWEST_TO_HOLD_OUT = 100
# So many documents x nodes at most, and so many documents at least, tell which epoch was best.
MOST_JUDGED = 300_000
FEWEST_JUDGED = 200
# Texts are scored so many at a time, or fewer if there are very many outputs.
TEXTS_AT_ONCE = 4_096
VALUES_AT_ONCE = 1 << 24
# (epochs, batch, rate) where they are not given: outputs alone, LoRA, the papers' recipe, and from random weights.
USUAL = {"head": (30, 128, 5e-3), "lora": (20, 16, 2e-4), "all": (20, 16, 2e-5), "scratch": (20, 16, 1e-3)}
SCRATCH_LENGTH = 128


@dataclass(frozen=True, eq=False)
class Learned:
    """A trained network, how it sees texts, and what its logits mean; they count `slope` times."""

    objective: Objective
    reader: Reader
    network: Network
    slope: float
    seen: tuple[float, ...]

    def score(self, texts: Strings) -> Scores:
        """Score texts, some thousands at a time."""
        step = max(1, min(TEXTS_AT_ONCE, VALUES_AT_ONCE // max(1, len(self.objective.loss.outputs))))
        parts = []
        for low in range(0, len(texts), step):
            inputs = self.reader.inputs(texts.take(np.arange(low, min(low + step, len(texts)))))
            parts.append(self.objective.scores(self.slope * self._logits(inputs)).values)
        return Scores.one_after_another(self.objective.hierarchy, parts)

    def _logits(self, inputs: Inputs) -> DoubleArray:
        return logits_of(self.network, self.reader.batches(inputs), inputs, len(self.objective.loss.outputs))

    def state(self) -> tuple[dict[str, Any], Arrays]:
        """What to save: values for JSON, and arrays."""
        values, arrays = self.reader.state(self.network)
        own = {"loss": self.objective.name, "slope": self.slope, "seen": list(self.seen)}
        return {**own, "reader": values}, {
            **arrays,
            "stops": self.objective.stops,
            "frequencies": self.objective.frequencies,
        }

    def write_files(self, folder: Path) -> None:
        """Write what is too large for these."""
        self.reader.write_files(self.network, folder)


def read_learned(model: Neural, objective: Objective, values: dict[str, Any], arrays: Arrays, folder: Path) -> Learned:
    """Take back what was saved."""
    reader: Reader
    if model.trains == "head":
        reader, network = Frozen.restored(model.encoder, values["reader"], arrays)
    else:
        reader, network = Trained.restored(values["reader"], folder)
    if network.outputs.linear.out_features != len(objective.loss.outputs):
        raise ValueError(
            f"a network of {network.outputs.linear.out_features} outputs, not {len(objective.loss.outputs)}"
        )
    return Learned(objective, reader, network.eval(), float(values["slope"]), tuple(values["seen"]))


# Learning


def learn(model: Neural, train: Training) -> Learned:
    """Learn as the settings of a model say."""
    objective = Objective.of(train, model.loss, {name: getattr(model, name) for name in LOSS_SETTINGS})
    rows, _ = objective.truth(train)
    every = train if len(rows) == len(train) else replace(train[rows], valid=train.valid)
    with seeded(model.seed):
        if model.trains == "head":
            return learn_head(model, every, objective)
        return fine_tune(model, every, objective)


def learn_head(model: Neural, train: Training, objective: Objective) -> Learned:
    """Train outputs over frozen embeddings: on a part to see which epoch is best, then on all for so many."""
    reader = Frozen.learned(model.encoder, train.texts, model.tfidf_width if model.tfidf else 0, model.seed)
    kept, held = held_apart(model, train)
    vectors = reader.inputs(train.texts, train.progress)
    width, outputs = vectors.values.shape[1], len(objective.loss.outputs)
    course = course_of(model, train, "head")

    def fresh() -> Network:
        torch.manual_seed(model.seed)
        return Network(None, "mean", first_outputs(model, width, outputs))

    network = fresh()
    if held is None:
        at = train_network(network, vectors, course, objective, train, None)
        return Learned(objective, reader, network.eval(), 1.0, tuple(at.seen))
    judge = Judged.of(held, reader, objective)
    shown = Vectors(vectors.values[torch.from_numpy(kept)])
    at = train_network(network, shown, course, objective, train[kept], judge)
    if train.valid is None and not at.stopped:
        network = fresh()
        again = replace(course, stop_after=int(np.argmin(at.seen)) + 1, part="all")
        train_network(network, vectors, again, objective, train, None)
    return Learned(objective, reader, network.eval(), at.slope, tuple(at.seen))


def fine_tune(model: Neural, train: Training, objective: Objective) -> Learned:
    """Train everything, or what is not frozen, and keep the best epoch."""
    kept, held = held_apart(model, train)
    kind = "scratch" if model.encoder == "scratch" else model.trains
    reader, body = body_and_reader(model, train.texts)
    if model.dropout is not None:
        for module in body.modules():
            if isinstance(module, nn.Dropout):
                module.p = model.dropout
    width = int(body.config.hidden_size)
    if model.trains == "lora":
        body = with_lora(body, model.lora_rank)
    freeze(body, model.freeze)
    if model.save_memory:
        body.gradient_checkpointing_enable({"use_reentrant": False})
    network = Network(body, reader.pooling, first_outputs(model, width, len(objective.loss.outputs)))
    course = course_of(model, train, kind)
    shown = train if held is None else train[kept]
    if model.precision == "auto" and bf16_is_possible(network):
        sample = reader.inputs(shown.texts.take(np.arange(min(4, len(shown)))))
        course = replace(course, bf16=faster_in_bf16(network, sample.batch(np.arange(len(sample)))))
    judge = None if held is None else Judged.of(held, reader, objective)
    at = train_network(network, reader.inputs(shown.texts), course, objective, shown, judge)
    network.body = merged(network.body)
    if model.save_memory:
        network.body.gradient_checkpointing_disable()
    return Learned(objective, reader, network.cpu().eval(), at.slope, tuple(at.seen))


def train_network(
    network: Network, inputs: Inputs, course: Course, objective: Objective, train: Training, judge: "Judged | None"
) -> Progress:
    """Train a network on documents."""
    cost = torch_loss(objective.loss)
    with threads_for(network):
        return Trainer(network, cost, course, judge).learn(inputs, cost.prepare(objective.truth(train)[1]))


def first_outputs(model: Neural, width: int, outputs: int) -> Outputs:
    """Outputs before training; frozen embeddings have no dropout of their own, and need none."""
    usual = 0.0 if model.trains == "head" else 0.1
    return Outputs(width, outputs, model.hidden, usual if model.dropout is None else model.dropout)


def body_and_reader(model: Neural, texts: Strings) -> tuple[Trained, Any]:
    """The transformer to train, and how it sees texts."""
    if model.encoder == "scratch":
        tokenizer, length = learned_tokenizer(texts), model.max_length or SCRATCH_LENGTH
        return Trained(tokenizer, length, model.pooling or "mean"), small_bert(tokenizer.get_vocab_size(), length)
    source = find_source(str(model.encoder))
    reader = Trained(
        load_tokenizer(source.place), model.max_length or source.max_length, model.pooling or source.pooling
    )
    return reader, load_body(source.place)


def held_apart(model: Neural, train: Training) -> tuple[LongArray, Training | None]:
    """The documents to learn from, and those that tell which epoch is best: the validation set, or a random share."""
    everything = np.arange(len(train))
    if train.valid is not None:
        return everything, train.valid
    count = int(model.held_out * len(train))
    if len(train) < FEWEST_TO_HOLD_OUT or count < 1:
        return everything, None
    order = np.random.default_rng(model.seed).permutation(len(train))
    return np.sort(order[count:]), train[np.sort(order[:count])]


@dataclass(frozen=True, eq=False)
class Judged:
    """Documents that tell how good a network is, by the log loss of their labels at the best slope of its logits."""

    data: Training
    inputs: Inputs
    batches: list[LongArray]
    objective: Objective

    @classmethod
    def of(cls, data: Training, reader: Reader, objective: Objective) -> "Judged":
        """Take the first so many documents that the loss can judge."""
        most = max(FEWEST_JUDGED, MOST_JUDGED // max(1, len(data.hierarchy)))
        shown = data[objective.truth(data, drop=True)[0][:most]]
        if not objective.exhaustive:
            # Sigmoids are judged at all nodes: one node alone would be best at a probability of 1 for everything.
            shown = replace(shown, regime="many")
        inputs = reader.inputs(shown.texts, data.progress)
        return cls(shown, inputs, reader.batches(inputs), objective)

    def __call__(self, network: Network) -> tuple[float, float]:
        """Give the loss, and the slope."""
        logits = logits_of(network, self.batches, self.inputs, len(self.objective.loss.outputs))
        if not len(logits) or not np.isfinite(logits).all():
            return np.inf, 1.0

        def loss(log_slope: float) -> float:
            return log_loss(self.objective.scores(np.exp(log_slope) * logits).values, self.data)

        found = optimize.minimize_scalar(loss, bounds=(-3.0, 1.5), method="bounded", options={"xatol": 0.05})
        return float(found.fun), float(np.exp(found.x))


def course_of(model: Neural, train: Training, kind: str) -> Course:
    """The settings of training, with what is usual where they are not given."""
    epochs, batch, rate = USUAL[kind]
    rate = rate if model.rate is None else model.rate
    return Course(
        epochs=model.epochs or epochs,
        batch=model.batch or batch,
        rates=model.rates or (rate, rate, rate),
        schedule=model.schedule,
        warm_up=model.warm_up,
        layer_decay=model.layer_decay,
        weight_decay=model.weight_decay,
        clip=model.clip,
        accumulate=model.accumulate,
        patience=model.patience,
        bf16=model.precision == "bf16",
        seed=model.seed,
        deadline=train.deadline,
        progress=train.progress,
        callbacks=tuple(callback_of(each) for each in model.callbacks),
        checkpoints=None if model.checkpoints is None else Path(model.checkpoints),
        checkpoint_seconds=model.checkpoint_seconds,
        run=run_name(model, train),
    )


def run_name(model: Neural, train: Training) -> str:
    """What a checkpoint belongs to: the settings, the labels and the texts, as one hash."""
    settings = {name: str(value) for name, value in model.get_params().items() if name not in model.unsaved}
    found = hashlib.sha256(json.dumps([settings, train.hierarchy.fingerprint], sort_keys=True).encode())
    found.update(train.closed.indptr.tobytes() + train.closed.indices.tobytes())
    for text in train.texts:
        found.update(hashlib.sha256(text.encode("utf-8", "replace")).digest())
    return found.hexdigest()


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Let a seed decide torch's random numbers, and leave those of everybody else as they were."""
    with torch.random.fork_rng(), warnings.catch_warnings():
        # peft and accelerate warn of what is meant.
        warnings.simplefilter("ignore")
        torch.manual_seed(seed)
        yield


def bf16_is_possible(network: Network) -> bool:
    """Whether this machine computes bfloat16, for a network that is worth it; whether it is faster is measured."""
    if parameter_count(network) < SMALL:
        return False
    if torch.cuda.is_available():
        return bool(torch.cuda.is_bf16_supported())
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
