"""From settings and training data to a trained network."""

import hashlib
import json
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from treelabel.core.stopping import StopSignal
from treelabel.core.strings import Strings
from treelabel.core.types import LongArray
from treelabel.encoders.registry import find_encoder
from treelabel.hierarchy.labelled_texts import stop_nodes
from treelabel.models.base import Training
from treelabel.models.descriptions import name_words
from treelabel.neural.backbones import new_backbone, prepare_backbone, without_lora
from treelabel.neural.featurizers import FrozenFeaturizer, Inputs, StatesFeaturizer, TextFeaturizer
from treelabel.neural.fitted_network import FittedNetwork
from treelabel.neural.hardware import faster_in_bf16, supports_bf16, threads_for
from treelabel.neural.network import DROPOUT, Network, NetworkSpec
from treelabel.neural.network_settings import NetworkSettings
from treelabel.neural.objective import Objective
from treelabel.neural.processes import from_first_process
from treelabel.neural.trainer import Trainer, TrainingRun, Validate
from treelabel.neural.training_arguments import TrainingArguments
from treelabel.neural.validation_set import ValidationSet
from treelabel.neural.weight_files import TrainState
from treelabel.selection.evidence import HeldOut, Stage
from treelabel.selection.training import hold_out

# Settings that do not change the result of a run; the encoder is identified by its fingerprint.
NOT_OF_THE_RUN = ("hierarchy", "encoder", *TrainingArguments.unsaved)

# What was learned, and what it makes of documents that were held out, if there are any.
Fitted = tuple[FittedNetwork, HeldOut | None]

# The stage in which documents that had chosen the best epoch are learned, too.
AGAIN = "all texts again"
# With fewer documents, none are held out for validation.
MIN_DOCUMENTS_TO_SPLIT = 100
# bfloat16 is measured on so few tokens, because where it is slow it is very slow.
TOKENS_TO_MEASURE = 32


def fit_network(model: NetworkSettings, train: Training) -> Fitted:
    """Train the network of a model.

    Parameters
    ----------
    model
        Its settings, and how its network is made.
    train
        The training data; documents without a label are left out where the loss can learn nothing from them.

    Returns
    -------
    tuple
        The trained network, on the CPU, and its scores of validation documents, if there are any: by the best epoch,
        which these documents also chose, before a network over a frozen encoder learned from them too.
    """
    ends = stop_nodes(train.hierarchy, train.labels) if model.has_stops else None
    objective = Objective.of(train, model.loss, model.loss_params, ends)
    rows, _ = objective.truth(train)
    every = train if len(rows) == len(train) else replace(train[rows], valid=train.valid)
    with fixed_seed(model.seed):
        return (fit_head if model.trained_part == "head" else fine_tune)(model, every, objective)


def new_run(model: NetworkSettings, train: Training) -> TrainingRun:
    """Return how a model is trained: its arguments, with defaults for what is trained, and the deadline of the data."""
    arguments, recipe = model.training, model.recipe
    folder = arguments.checkpoint_dir
    return TrainingRun(
        arguments,
        epochs=recipe.epochs if arguments.epochs is None else arguments.epochs,
        batch_size=recipe.batch_size if arguments.batch_size is None else arguments.batch_size,
        learning_rates=arguments.group_rates(recipe),
        lr_scheduler=arguments.lr_scheduler or model.lr_scheduler,
        seed=model.seed,
        stop=train.stop,
        progress=train.progress,
        bf16=arguments.precision == "bf16",
        checkpoints=None if folder is None else Path(folder) / "first",
        fingerprint="" if folder is None else run_fingerprint(model, train),
    )


def run_fingerprint(model: NetworkSettings, train: Training) -> str:
    """Hash what a checkpoint depends on: settings, encoder, labels and texts, those of validation included."""
    values = {name: str(value) for name, value in model.flat_settings().items() if name not in NOT_OF_THE_RUN}
    encoder = model.choose_encoder()
    known = encoder if encoder == "scratch" else find_encoder(encoder).fingerprint
    sha256 = hashlib.sha256(
        json.dumps([model.name, values, known, train.hierarchy.fingerprint], sort_keys=True).encode()
    )
    for data in (train, train.valid):
        if data is not None:
            hash_documents(sha256, data)
    return sha256.hexdigest()


def hash_documents(sha256: Any, data: Training) -> None:
    """Add the labels and texts of documents to a hash."""
    sha256.update(data.closed_labels.indptr.tobytes() + data.closed_labels.indices.tobytes())
    for text in data.texts:
        sha256.update(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest())


def fit_head(model: NetworkSettings, train: Training, objective: Objective) -> Fitted:
    """Train a network over a frozen encoder: on a part to find the best epoch, then on all for as many epochs."""
    featurizer = new_frozen_featurizer(model, train.texts)
    inputs = featurizer.inputs(train.texts, train.progress)
    run = new_run(model, train)
    spec = new_spec(model, train, objective, featurizer, inputs.width)
    torch.manual_seed(model.seed)
    network = model.make_network(spec)
    # Made once, since some networks learn from the hierarchy when they are made.
    untrained, random = deepcopy(network), torch.get_rng_state()
    rows, validation = new_validation(model, train, featurizer, objective)
    shown = inputs if len(rows) == len(train) else inputs.select(rows)
    begun = time.monotonic()
    states = train_network(network, shown, run, objective, train[rows], validation)
    held = None if validation is None else validation.score(network, states[-1].temperature)
    stages, cut = report_stages("texts", network, run, states), any(state.stopped for state in states)
    epochs = [int(np.argmin(each.epoch_losses)) + 1 for each in states]
    if len(rows) < len(train) and not cut and not from_first_process(has_time(states, epochs, begun, train.stop)):
        cut, train.stop.reason = True, "deadline"
        planned = sum(epochs) * -(-len(train) // run.batch_size)
        stages += (Stage(AGAIN, 0, planned, sum(epochs), stopped=True),)
    if len(rows) < len(train) and not cut:
        torch.set_rng_state(random)
        folder = run.checkpoints and run.checkpoints.with_name("all")
        again = train_network(untrained, inputs, replace(run, checkpoints=folder), objective, train, None, epochs)
        # A network that was stopped half-way is worse than the one trained on fewer documents.
        network = network if any(state.stopped for state in again) else untrained
        stages += report_stages(AGAIN, untrained, run, again, epochs)
    return finish(model, spec, featurizer, network, states[-1], stages), held


def has_time(states: Sequence[TrainState], epochs: Sequence[int], begun: float, stop: StopSignal) -> bool:
    """Return whether so many epochs of each stage fit before the deadline, judging by those since `begun`."""
    now, trained = time.monotonic(), sum(len(state.epoch_losses) for state in states)
    return now + (now - begun) * sum(epochs) / max(1, trained) < stop.deadline


def fine_tune(model: NetworkSettings, train: Training, objective: Objective) -> Fitted:
    """Train the backbone, or what is not frozen of it, with the outputs, and keep the best epoch."""
    featurizer, backbone = new_backbone(model, train.texts)
    spec = new_spec(model, train, objective, featurizer, int(backbone.config.hidden_size), backbone)
    network = model.make_network(replace(spec, backbone=prepare_backbone(model, backbone)))
    run = new_run(model, train)
    rows, validation = new_validation(model, train, featurizer, objective)
    shown = train[rows]
    inputs = featurizer.inputs(shown.texts)
    if run.arguments.precision == "auto" and supports_bf16(network):
        sample = inputs.batch(np.arange(min(2, len(shown))))
        faster = faster_in_bf16(network, [value[:, :TOKENS_TO_MEASURE] for value in sample])
        run = replace(run, bf16=from_first_process(faster))
    states = train_network(network, inputs, run, objective, shown, validation)
    held = None if validation is None else validation.score(network, states[-1].temperature)
    stages = report_stages("texts", network, run, states)
    network.backbone = without_lora(network.backbone)
    if run.arguments.gradient_checkpointing:
        network.backbone.gradient_checkpointing_disable()
    return finish(model, spec, featurizer, network, states[-1], stages), held


def new_frozen_featurizer(model: NetworkSettings, texts: Strings) -> FrozenFeaturizer | StatesFeaturizer:
    """Find the frozen encoder, and fit tf-idf to training texts where it is asked for."""
    encoder = model.choose_encoder()
    if model.takes_states:
        return StatesFeaturizer.of(find_encoder(encoder))
    return FrozenFeaturizer.fit(encoder, texts, model.tfidf_columns, model.seed)


def new_spec(
    model: NetworkSettings,
    train: Training,
    objective: Objective,
    featurizer: TextFeaturizer,
    width: int,
    backbone: Any = None,
) -> NetworkSpec:
    """Return the parts of a network; over a frozen encoder there is no dropout unless asked for."""
    usual = 0.0 if model.trained_part == "head" else DROPOUT
    dropout = usual if model.dropout is None else model.dropout
    names = [name_words(name) for name in objective.change.new.names] if model.needs_names else None
    vectors = None if names is None else featurizer.name_vectors(names, backbone, train.progress)
    tree, pooling = model.make_label_tree(train), featurizer.pooling
    parts = (objective, width, backbone, pooling, dropout, model.hidden_size, vectors, tree)
    return NetworkSpec(*parts, train.stop, train.progress)


def train_network(
    network: Network,
    inputs: Inputs,
    run: TrainingRun,
    objective: Objective,
    train: Training,
    validate: Validate | None,
    epochs: Sequence[int] | None = None,
) -> list[TrainState]:
    """Train a network in place, stage by stage.

    Stages have equal shares of the time that is left. What follows a stage that was stopped writes no checkpoints: a
    later run goes on with that stage.

    Parameters
    ----------
    inputs
        What it takes of the training documents.
    run
        How to train.
    objective
        What to train for.
    train
        The training documents.
    validate
        Finds the best epoch.
    epochs
        The epoch after which each stage ends although the schedule has more.

    Returns
    -------
    list of TrainState
        The state at the end of each stage.
    """
    loss, labels, stages = objective.spec.build(), objective.truth(train)[1], network.stages
    states: list[TrainState] = []
    with threads_for(network):
        for stage in range(stages):
            current = replace(run, last_epoch=None if epochs is None else epochs[stage])
            if stages > 1:
                folder = run.checkpoints and run.checkpoints.with_name(f"{run.checkpoints.name}-{stage}")
                current = replace(current, checkpoints=folder, stop=run.stop.share(stages - stage))
            if any(state.stopped for state in states):
                current = replace(current, checkpoints=None)
            truth = network.begin_stage(stage, inputs, loss, labels)
            states.append(Trainer(network, loss, current, validate).fit(inputs, truth))
            if current.stop.reason == "interrupt":
                run.stop.interrupt()
    if any(state.stopped for state in states) and run.stop.reason is None:
        run.stop.reason = "deadline"
    return states


def report_stages(
    name: str, network: Network, run: TrainingRun, states: Sequence[TrainState], epochs: Sequence[int] | None = None
) -> tuple[Stage, ...]:
    """Report how far training came, after what was over when the network was made.

    Parameters
    ----------
    name
        What was trained on; stages are told apart by their levels where there are several.
    network, run, states
        What was trained, how, and the state at the end of each stage.
    epochs
        The epochs of each stage, where these are not those of the run.
    """
    before = network.stages_before if name != AGAIN else ()
    names = [name] if len(states) == 1 else [f"{name}, level {number}" for number in range(1, len(states) + 1)]
    planned = [run.epochs] * len(states) if epochs is None else epochs
    rows = zip(names, states, planned, strict=True)
    return *before, *(Stage(each, state.step, state.planned, count, state.stopped) for each, state, count in rows)


def finish(
    model: NetworkSettings,
    spec: NetworkSpec,
    featurizer: TextFeaturizer,
    network: Network,
    state: TrainState,
    stages: tuple[Stage, ...],
) -> FittedNetwork:
    """Put together what was trained, with the network on the CPU, in eval mode."""
    return FittedNetwork(
        spec.objective,
        featurizer,
        network.for_scoring().cpu().eval(),
        state.temperature,
        tuple(state.epoch_losses),
        spec.width,
        model.has_file,
        stages,
    )


def split_validation(model: NetworkSettings, train: Training) -> tuple[LongArray, Training | None]:
    """Choose the documents that find the best epoch: the validation data, or a random share, groups together."""
    everything = np.arange(len(train))
    if train.valid is not None:
        return everything, train.valid
    count = int(model.training.validation_fraction * len(train))
    if len(train) < MIN_DOCUMENTS_TO_SPLIT or count < 1:
        return everything, None
    held = hold_out(len(train), count, model.seed, train.groups)
    return np.setdiff1d(everything, held), train[held]


def new_validation(
    model: NetworkSettings, train: Training, featurizer: TextFeaturizer, objective: Objective
) -> tuple[LongArray, ValidationSet | None]:
    """Return the documents to train on, and those that find the best epoch; if there are none, all are trained on."""
    rows, held_out = split_validation(model, train)
    seen = train[rows] if model.only_seen else None
    validation = ValidationSet.of(held_out, featurizer, objective, model.seed, seen)
    return np.arange(len(train)) if validation is None else rows, validation


@contextmanager
def fixed_seed(seed: int) -> Iterator[None]:
    """Seed torch's random numbers, and leave those of the caller as they were."""
    with torch.random.fork_rng(), warnings.catch_warnings():
        # peft and accelerate warn of what is intended.
        warnings.simplefilter("ignore")
        torch.manual_seed(seed)
        yield
