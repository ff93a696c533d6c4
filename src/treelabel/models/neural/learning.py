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
from torch import nn

from treelabel.core.compute import DoubleArray, LongArray
from treelabel.core.errors import TreelabelError
from treelabel.core.strings import Strings
from treelabel.encoders.backbone import load_body, load_tokenizer
from treelabel.encoders.catalogue import find_encoder
from treelabel.encoders.sources import find_source
from treelabel.losses.torch_losses import torch_loss
from treelabel.models.base import Training
from treelabel.models.neural.callbacks import callback_of
from treelabel.models.neural.checkpoints import Progress
from treelabel.models.neural.judging import Judged
from treelabel.models.neural.model import LOSS_SETTINGS, Neural
from treelabel.models.neural.network import DROPOUT, Network, Outputs, freeze, merged, with_lora
from treelabel.models.neural.readers import Frozen, Reader, Trained
from treelabel.models.neural.scratch import learned_tokenizer, small_bert
from treelabel.models.neural.trainer import (
    SMALL,
    Course,
    Inputs,
    KnownVectors,
    Trainer,
    faster_in_bf16,
    logits_of,
    parameter_count,
    threads_for,
)
from treelabel.models.objective import Objective
from treelabel.models.schema import Arrays, require_width
from treelabel.scores import Scores

# Fewer documents than this are too few to hold some out.
FEWEST_TO_HOLD_OUT = 100
# (epochs, batch, rate) where they are not given: outputs alone, LoRA, the papers' recipe, and from random weights.
USUAL = {"head": (30, 128, 5e-3), "lora": (20, 16, 2e-4), "all": (20, 16, 2e-5), "scratch": (20, 16, 1e-3)}
SCRATCH_LENGTH = 128
# Where bfloat16 is slow, it is so slow that no more than this is worth measuring.
TOKENS_TO_MEASURE = 32


@dataclass(frozen=True, eq=False)
class Learned:
    """A trained network, how it sees texts, and what its logits mean; they count `slope` times."""

    objective: Objective
    reader: Reader
    network: Network
    slope: float
    seen: tuple[float, ...]
    stopped: bool = False

    def score(self, texts: Strings) -> Scores:
        """Score texts, some thousands at a time."""
        parts = []
        for rows in self.objective.portions(len(texts)):
            inputs = self.reader.inputs(texts.take(rows))
            if isinstance(inputs, KnownVectors):
                require_width(inputs.values, self.network.outputs.width, "neural")
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
        reader, network = Frozen.restored(model.read_by, values["reader"], arrays)
    else:
        reader, network = Trained.restored(values["reader"], folder)
    objective.require_outputs(network.outputs.linear.out_features)
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
    reader = Frozen.learned(model.read_by, train.texts, model.tfidf_width if model.tfidf else 0, model.seed)
    kept, held = held_apart(model, train)
    vectors = reader.inputs(train.texts, train.progress)
    width, outputs = vectors.values.shape[1], len(objective.loss.outputs)
    course = course_of(model, train, "head")

    def fresh() -> Network:
        torch.manual_seed(model.seed)
        return Network(None, "mean", first_outputs(model, width, outputs))

    judge = Judged.of(held, reader, objective, model.seed)
    if judge is None:
        kept = np.arange(len(train))
    network = fresh()
    shown = KnownVectors(vectors.values[torch.from_numpy(kept)])
    at = train_network(network, shown, course, objective, train[kept], judge)
    if len(kept) < len(train) and not at.stopped:
        larger = fresh()
        again = replace(course, stop_after=int(np.argmin(at.seen)) + 1, part="all")
        # What is stopped half-way is worse than what was learned from fewer documents.
        at.stopped = train_network(larger, vectors, again, objective, train, None).stopped
        network = network if at.stopped else larger
    return Learned(objective, reader, network.cpu().eval(), at.slope, tuple(at.seen), at.stopped)


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
        save_memory(body)
    network = Network(body, reader.pooling, first_outputs(model, width, len(objective.loss.outputs)))
    course = course_of(model, train, kind)
    judge = Judged.of(held, reader, objective, model.seed)
    shown = train if judge is None else train[kept]
    if model.precision == "auto" and bf16_is_possible(network):
        sample = reader.inputs(shown.texts.take(np.arange(min(2, len(shown))))).batch(np.arange(min(2, len(shown))))
        course = replace(course, bf16=faster_in_bf16(network, [value[:, :TOKENS_TO_MEASURE] for value in sample]))
    at = train_network(network, reader.inputs(shown.texts), course, objective, shown, judge)
    network.body = merged(network.body)
    if model.save_memory:
        network.body.gradient_checkpointing_disable()
    return Learned(objective, reader, network.cpu().eval(), at.slope, tuple(at.seen), at.stopped)


def train_network(
    network: Network, inputs: Inputs, course: Course, objective: Objective, train: Training, judge: "Judged | None"
) -> Progress:
    """Train a network on documents."""
    cost = torch_loss(objective.loss)
    with threads_for(network):
        return Trainer(network, cost, course, judge).learn(inputs, cost.prepare(objective.truth(train)[1]))


def first_outputs(model: Neural, width: int, outputs: int) -> Outputs:
    """Outputs before training; frozen embeddings have no dropout of their own, and need none."""
    usual = 0.0 if model.trains == "head" else DROPOUT
    return Outputs(width, outputs, model.hidden, usual if model.dropout is None else model.dropout)


def body_and_reader(model: Neural, texts: Strings) -> tuple[Trained, Any]:
    """The transformer to train, and how it sees texts."""
    if model.encoder == "scratch":
        length = SCRATCH_LENGTH if model.max_length is None else model.max_length
        tokenizer = learned_tokenizer(texts)
        body = small_bert(tokenizer.get_vocab_size(), length)
        return Trained(tokenizer, length, "mean" if model.pooling is None else model.pooling), body
    source = find_source(str(model.read_by))
    if json.loads((Path(source.place) / "config.json").read_text(encoding="utf-8")).get("is_encoder_decoder"):
        raise TreelabelError(
            f"the encoder {source.name} is half of an encoder and decoder, which can be used frozen (train=head) but "
            "not be trained; give one that is an encoder alone, such as BERT's family"
        )
    return Trained(load_tokenizer(source.place), source.max_length, source.pooling), load_body(source.place)


def save_memory(body: Any) -> None:
    """Compute layers again in the backward pass instead of keeping what they gave."""
    try:
        body.gradient_checkpointing_enable({"use_reentrant": False})
    except ValueError as error:
        raise TreelabelError(f"save_memory=True cannot be had with this encoder: {error}") from error


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


def course_of(model: Neural, train: Training, kind: str) -> Course:
    """The settings of training, with what is usual where they are not given."""
    epochs, batch, rate = USUAL[kind]
    rate = rate if model.rate is None else model.rate
    return Course(
        epochs=epochs if model.epochs is None else model.epochs,
        batch=batch if model.batch is None else model.batch,
        rates=(rate, rate, rate) if model.rates is None else model.rates,
        schedule=model.schedule,
        warm_up=model.warm_up,
        layer_decay=model.layer_decay,
        weight_decay=model.weight_decay,
        clip=model.clip,
        accumulate=model.accumulate,
        patience=model.patience,
        bf16=model.precision == "bf16",
        seed=model.seed,
        stop=train.stop,
        progress=train.progress,
        callbacks=tuple(callback_of(each) for each in model.callbacks),
        checkpoints=None if model.checkpoints is None else Path(model.checkpoints),
        checkpoint_seconds=model.checkpoint_seconds,
        run="" if model.checkpoints is None else run_name(model, train),
    )


def run_name(model: Neural, train: Training) -> str:
    """What a checkpoint belongs to: settings, encoder, labels and texts, those of validation too, as one hash."""
    settings = {
        name: str(value)
        for name, value in model.get_params(deep=False).items()
        if name not in (*model.unsaved, "encoder")
    }
    encoder = "scratch" if model.encoder == "scratch" else find_encoder(model.read_by).fingerprint
    found = hashlib.sha256(json.dumps([settings, encoder, train.hierarchy.fingerprint], sort_keys=True).encode())
    for data in (train, train.valid):
        if data is not None:
            found.update(data.closed.indptr.tobytes() + data.closed.indices.tobytes())
            for text in data.texts:
                found.update(hashlib.sha256(text.encode()).digest())
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
