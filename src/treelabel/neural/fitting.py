"""From settings and training data to a trained network."""

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace

import numpy as np
import torch

from treelabel.core.stopping import StopSignal
from treelabel.core.strings import Strings
from treelabel.core.types import LongArray
from treelabel.encoders.sources import Pooling
from treelabel.encoders.token_states import TokenStates
from treelabel.hierarchy.regime import stop_nodes
from treelabel.models.base import Training
from treelabel.neural.architecture import PLAIN, Architecture
from treelabel.neural.backbones import new_backbone, prepared_backbone
from treelabel.neural.checkpoints import TrainState
from treelabel.neural.config import TrainingConfig
from treelabel.neural.featurizers import Featurizer, FrozenFeaturizer, StatesFeaturizer
from treelabel.neural.fitted import FittedNetwork
from treelabel.neural.hardware import faster_in_bf16, supports_bf16, threads_for
from treelabel.neural.inputs import Inputs, KnownVectors
from treelabel.neural.label_names import name_embeddings, name_states
from treelabel.neural.network import DROPOUT, Network, without_lora
from treelabel.neural.objective import Objective
from treelabel.neural.parts import Parts
from treelabel.neural.processes import agreed
from treelabel.neural.settings import NeuralSettings
from treelabel.neural.trainer import Trainer, Validate
from treelabel.neural.validation import Validation
from treelabel.selection.evidence import HeldOut, Stage
from treelabel.selection.folds import hold_out

# What was learned, and what it makes of documents that were held out, if there are any.
Found = tuple[FittedNetwork, HeldOut | None]
FitNetwork = Callable[[NeuralSettings, Training, Architecture], Found]

# The stage in which documents that had chosen the best epoch are learned, too.
AGAIN = "all texts again"
# With fewer documents, none are held out for validation.
MIN_DOCUMENTS_TO_SPLIT = 100
# bfloat16 is measured on so few tokens, because where it is slow it is very slow.
TOKENS_TO_MEASURE = 32


def fit_network(settings: NeuralSettings, train: Training, architecture: Architecture = PLAIN) -> Found:
    """Train a network.

    Parameters
    ----------
    settings
        The settings of the model, with an encoder.
    train
        The training data; documents without a label are left out where the loss can learn nothing from them.
    architecture
        How the network is made.

    Returns
    -------
    tuple
        The trained network, on the CPU, and its scores of validation documents, if there are any: by the best epoch,
        which these documents also chose, before a network over a frozen encoder learned from them too.
    """
    ends = stop_nodes(train.hierarchy, train.labels) if architecture.has_stops else None
    objective = Objective.of(train, settings.loss, settings.loss_params, ends)
    rows, _ = objective.truth(train)
    every = train if len(rows) == len(train) else replace(train[rows], valid=train.valid)
    with seeded(settings.seed):
        if settings.trained_part == "head":
            return fit_head(settings, every, objective, architecture)
        return fine_tune(settings, every, objective, architecture)


def fit_head(settings: NeuralSettings, train: Training, objective: Objective, architecture: Architecture) -> Found:
    """Train a network over a frozen encoder: on a part to find the best epoch, then on all for as many epochs.

    Parameters
    ----------
    settings
        The settings of the model.
    train
        The training data.
    objective
        What to train for.
    architecture
        How the network is made.

    Returns
    -------
    FittedNetwork
        The trained network.
    """
    featurizer = new_frozen_featurizer(settings, train.texts, architecture)
    kept, held_out = split_validation(settings, train)
    inputs = featurizer.inputs(train.texts, train.progress)
    config = TrainingConfig.of(settings, train, architecture.identity)
    pooling = featurizer.pooling if isinstance(featurizer, StatesFeaturizer) else "mean"
    parts = parts_of(settings, train, objective, architecture, inputs.width, pooling)
    if architecture.needs_names:
        parts = replace(parts, name_vectors=name_states(parts, featurizer))

    torch.manual_seed(settings.seed)
    network = architecture.make(parts)
    # Made once, since some networks learn from the hierarchy when they are made.
    untrained, random = deepcopy(network), torch.get_rng_state()
    seen = train[kept] if architecture.only_seen else None
    validation = Validation.of(held_out, featurizer, objective, settings.seed, seen)
    if validation is None:
        kept = np.arange(len(train))
    begun = time.monotonic()
    states = train_network(network, chosen(inputs, kept), config, objective, train[kept], validation)
    held = None if validation is None else validation.judged(network, states[-1].temperature)
    stages, cut = stages_of("texts", network, config, states), any(state.stopped for state in states)
    epochs = [int(np.argmin(each.epoch_losses)) + 1 for each in states]
    if len(kept) < len(train) and not cut and not agreed(has_time(states, epochs, begun, train.stop)):
        cut, train.stop.reason = True, "deadline"
        planned = sum(epochs) * -(-len(train) // config.batch_size)
        stages += (Stage(AGAIN, 0, planned, sum(epochs), stopped=True),)
    if len(kept) < len(train) and not cut:
        torch.set_rng_state(random)
        again = train_network(untrained, inputs, replace(config, part="all"), objective, train, None, epochs)
        # A network that was stopped half-way is worse than the one trained on fewer documents.
        network = network if any(state.stopped for state in again) else untrained
        stages += stages_of(AGAIN, untrained, config, again, epochs)
    return fitted(parts, featurizer, network, states[-1], architecture, stages), held


def has_time(states: Sequence[TrainState], epochs: Sequence[int], begun: float, stop: StopSignal) -> bool:
    """Return whether so many epochs of each stage can be trained before the deadline, judging by those before.

    Parameters
    ----------
    states
        The state at the end of each stage.
    epochs
        The epochs that are to be trained again.
    begun
        When the first stage began.
    stop
        The deadline.

    Returns
    -------
    bool
        Whether it is worth beginning.
    """
    now, trained = time.monotonic(), sum(len(state.epoch_losses) for state in states)
    return now + (now - begun) * sum(epochs) / max(1, trained) < stop.deadline


def fine_tune(settings: NeuralSettings, train: Training, objective: Objective, architecture: Architecture) -> Found:
    """Train the backbone, or what is not frozen of it, with the outputs, and keep the best epoch.

    Parameters
    ----------
    settings
        The settings of the model.
    train
        The training data.
    objective
        What to train for.
    architecture
        How the network is made.

    Returns
    -------
    FittedNetwork
        The trained network.
    """
    kept, held_out = split_validation(settings, train)
    featurizer, backbone = new_backbone(settings, train.texts, architecture.scratch, architecture.scratch_layers)
    width = int(backbone.config.hidden_size)
    parts = parts_of(settings, train, objective, architecture, width, featurizer.pooling)
    parts = replace(parts, backbone=backbone)
    if architecture.needs_names:
        parts = replace(parts, name_vectors=name_embeddings(parts, featurizer))
    network = architecture.make(replace(parts, backbone=prepared_backbone(settings, backbone)))
    config = TrainingConfig.of(settings, train, architecture.identity)
    seen = train[kept] if architecture.only_seen else None
    validation = Validation.of(held_out, featurizer, objective, settings.seed, seen)
    shown = train if validation is None else train[kept]
    inputs = featurizer.inputs(shown.texts)
    if settings.precision == "auto" and supports_bf16(network):
        sample = inputs.batch(np.arange(min(2, len(shown))))
        faster = faster_in_bf16(network, [value[:, :TOKENS_TO_MEASURE] for value in sample])
        config = replace(config, bf16=agreed(faster))
    states = train_network(network, inputs, config, objective, shown, validation)
    held = None if validation is None else validation.judged(network, states[-1].temperature)
    stages = stages_of("texts", network, config, states)
    network.backbone = without_lora(network.backbone)
    if settings.gradient_checkpointing:
        network.backbone.gradient_checkpointing_disable()
    return fitted(parts, featurizer, network, states[-1], architecture, stages), held


def new_frozen_featurizer(
    settings: NeuralSettings, texts: Strings, architecture: Architecture
) -> FrozenFeaturizer | StatesFeaturizer:
    """Find the frozen encoder, and fit tf-idf to training texts where it is asked for.

    Parameters
    ----------
    settings
        The settings of the model.
    texts
        Training texts.
    architecture
        Says whether token states are needed.

    Returns
    -------
    FrozenFeaturizer or StatesFeaturizer
        Vectors of texts, or states of their tokens.
    """
    if architecture.takes_states:
        return StatesFeaturizer.of(settings.encoder_spec)
    components = settings.lsa_components if settings.tfidf else 0
    return FrozenFeaturizer.fit(settings.encoder_spec, texts, components, settings.seed)


def parts_of(
    settings: NeuralSettings,
    train: Training,
    objective: Objective,
    architecture: Architecture,
    width: int,
    pooling: Pooling,
) -> Parts:
    """Return the parts of a network, without a backbone; over a frozen encoder there is no dropout unless asked for.

    Parameters
    ----------
    settings
        The settings of the model.
    train
        The training data.
    objective
        What to train for.
    architecture
        Says whether labels are put into a tree.
    width
        The width of what the network sees.
    pooling
        How hidden states become one vector.

    Returns
    -------
    Parts
        Without the names of labels.
    """
    usual = 0.0 if settings.trained_part == "head" else DROPOUT
    dropout = usual if settings.dropout is None else settings.dropout
    hidden = settings.hidden_size
    tree = None if architecture.label_tree is None else architecture.label_tree(train)
    return Parts(objective, width, None, pooling, dropout, hidden, tree=tree, stop=train.stop, progress=train.progress)


def chosen(inputs: KnownVectors | TokenStates, rows: LongArray) -> KnownVectors | TokenStates:
    """Return what a network takes of some documents only.

    Parameters
    ----------
    inputs
        What it takes of all.
    rows
        Row numbers.

    Returns
    -------
    KnownVectors or TokenStates
        Of these rows.
    """
    if len(rows) == len(inputs.lengths):
        return inputs
    if isinstance(inputs, KnownVectors):
        return KnownVectors(inputs.values[torch.from_numpy(rows)])
    return inputs.select(rows)


def train_network(
    network: Network,
    inputs: Inputs,
    config: TrainingConfig,
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
    network
        The network.
    inputs
        What it takes of the training documents.
    config
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
            own = replace(config, stop_after=None if epochs is None else epochs[stage])
            if stages > 1:
                own = replace(own, part=f"{config.part}-{stage}", stop=config.stop.share(stages - stage))
            if any(state.stopped for state in states):
                own = replace(own, checkpoint_dir=None)
            truth = network.begin_stage(stage, inputs, loss, labels)
            states.append(Trainer(network, loss, own, validate).fit(inputs, truth))
            if own.stop.reason == "interrupt":
                config.stop.interrupt()
    if any(state.stopped for state in states) and config.stop.reason is None:
        config.stop.reason = "deadline"
    return states


def stages_of(
    name: str,
    network: Network,
    config: TrainingConfig,
    states: Sequence[TrainState],
    epochs: Sequence[int] | None = None,
) -> tuple[Stage, ...]:
    """Say how far training came, after what was over when the network was made.

    Parameters
    ----------
    name
        What was trained on.
    network, config, states
        What was trained, how, and the state at the end of each stage.
    epochs
        The epochs of each stage, where these are not those of the configuration.

    Returns
    -------
    tuple of Stage
        Stages by their levels, where there are several.
    """
    before = network.stages_before if name != AGAIN else ()
    names = [name] if len(states) == 1 else [f"{name}, level {number}" for number in range(1, len(states) + 1)]
    planned = [config.epochs] * len(states) if epochs is None else epochs
    own = zip(names, states, planned, strict=True)
    return *before, *(Stage(each, state.step, state.planned, count, state.stopped) for each, state, count in own)


def fitted(
    parts: Parts,
    featurizer: Featurizer,
    network: Network,
    state: TrainState,
    architecture: Architecture,
    stages: tuple[Stage, ...],
) -> FittedNetwork:
    """Put together what was trained.

    Parameters
    ----------
    parts
        What the network was made of.
    featurizer
        How it sees texts.
    network
        The network, on any device.
    state
        The state at the end of training.
    architecture
        How the network was made.
    stages
        How far each stage came.

    Returns
    -------
    FittedNetwork
        With the network on the CPU, in eval mode.
    """
    return FittedNetwork(
        parts.objective,
        featurizer,
        network.finished().cpu().eval(),
        state.temperature,
        tuple(state.epoch_losses),
        parts.width,
        architecture.has_file,
        stages,
    )


def split_validation(settings: NeuralSettings, train: Training) -> tuple[LongArray, Training | None]:
    """Choose the documents that find the best epoch: the validation data, or a random share, groups together.

    Parameters
    ----------
    settings
        The settings of the model.
    train
        The training data.

    Returns
    -------
    tuple
        The rows to train on, and the validation documents if there are any.
    """
    everything = np.arange(len(train))
    if train.valid is not None:
        return everything, train.valid
    count = int(settings.validation_fraction * len(train))
    if len(train) < MIN_DOCUMENTS_TO_SPLIT or count < 1:
        return everything, None
    held = hold_out(len(train), count, settings.seed, train.groups)
    return np.setdiff1d(everything, held), train[held]


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed torch's random numbers, and leave those of the caller as they were."""
    with torch.random.fork_rng(), warnings.catch_warnings():
        # peft and accelerate warn of what is intended.
        warnings.simplefilter("ignore")
        torch.manual_seed(seed)
        yield
