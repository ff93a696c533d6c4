"""From settings and training data to a trained network."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from treelabel.core.compute import LongArray
from treelabel.core.errors import TreelabelError
from treelabel.core.strings import Strings
from treelabel.encoders.backbone import load_backbone, load_tokenizer
from treelabel.encoders.files import read_config
from treelabel.encoders.sources import find_source
from treelabel.losses.torch import torch_loss
from treelabel.models.base import Training
from treelabel.models.folds import hold_out
from treelabel.models.neural.checkpoints import TrainState
from treelabel.models.neural.config import TrainingConfig
from treelabel.models.neural.featurizers import FrozenFeaturizer, TokenFeaturizer
from treelabel.models.neural.fitted import FittedNetwork
from treelabel.models.neural.hardware import faster_in_bf16, supports_bf16, threads_for
from treelabel.models.neural.inputs import Inputs, KnownVectors
from treelabel.models.neural.network import DROPOUT, Network, Outputs, freeze, with_lora, without_lora
from treelabel.models.neural.scratch import learned_tokenizer, small_bert
from treelabel.models.neural.settings import NeuralSettings
from treelabel.models.neural.trainer import Trainer, Validate
from treelabel.models.neural.validation import Validation
from treelabel.models.objective import Objective

FitNetwork = Callable[[NeuralSettings, Training], FittedNetwork]

# With fewer documents, none are held out for validation.
MIN_DOCUMENTS_TO_SPLIT = 100
SCRATCH_LENGTH = 128
# bfloat16 is measured on so few tokens, because where it is slow it is very slow.
TOKENS_TO_MEASURE = 32


def fit_network(settings: NeuralSettings, train: Training) -> FittedNetwork:
    """Train a network.

    Parameters
    ----------
    settings
        The settings of the model, with an encoder.
    train
        The training data; documents without a label are left out where the loss can learn nothing from them.

    Returns
    -------
    FittedNetwork
        The trained network, on the CPU.
    """
    objective = Objective.of(train, settings.loss, settings.loss_params)
    rows, _ = objective.truth(train)
    every = train if len(rows) == len(train) else replace(train[rows], valid=train.valid)
    with seeded(settings.seed):
        if settings.trained_part == "head":
            return fit_head(settings, every, objective)
        return fine_tune(settings, every, objective)


def fit_head(settings: NeuralSettings, train: Training, objective: Objective) -> FittedNetwork:
    """Train outputs over frozen embeddings: on a part to find the best epoch, then on all for as many epochs.

    Parameters
    ----------
    settings
        The settings of the model.
    train
        The training data.
    objective
        What to train for.

    Returns
    -------
    FittedNetwork
        The trained outputs.
    """
    components = settings.lsa_components if settings.tfidf else 0
    featurizer = FrozenFeaturizer.fit(settings.encoder_spec, train.texts, components, settings.seed)
    kept, held_out = split_validation(settings, train)
    vectors = featurizer.inputs(train.texts, train.progress)
    config = TrainingConfig.of(settings, train)

    def new_network() -> Network:
        torch.manual_seed(settings.seed)
        return Network(None, "mean", new_outputs(settings, vectors.values.shape[1], objective))

    validation = Validation.of(held_out, featurizer, objective, settings.seed)
    if validation is None:
        kept = np.arange(len(train))
    network = new_network()
    shown = KnownVectors(vectors.values[torch.from_numpy(kept)])
    state = train_network(network, shown, config, objective, train[kept], validation)
    if len(kept) < len(train) and not state.stopped:
        on_all = new_network()
        again = replace(config, stop_after=int(np.argmin(state.epoch_losses)) + 1, part="all")
        # A network that was stopped half-way is worse than the one trained on fewer documents.
        state.stopped = train_network(on_all, vectors, again, objective, train, None).stopped
        network = network if state.stopped else on_all
    return fitted(objective, featurizer, network, state)


def fine_tune(settings: NeuralSettings, train: Training, objective: Objective) -> FittedNetwork:
    """Train the backbone, or what is not frozen of it, with the outputs, and keep the best epoch.

    Parameters
    ----------
    settings
        The settings of the model.
    train
        The training data.
    objective
        What to train for.

    Returns
    -------
    FittedNetwork
        The trained network.
    """
    kept, held_out = split_validation(settings, train)
    featurizer, backbone = new_backbone(settings, train.texts)
    width = int(backbone.config.hidden_size)
    backbone = prepared_backbone(settings, backbone)
    network = Network(backbone, featurizer.pooling, new_outputs(settings, width, objective))
    config = TrainingConfig.of(settings, train)
    validation = Validation.of(held_out, featurizer, objective, settings.seed)
    shown = train if validation is None else train[kept]
    inputs = featurizer.inputs(shown.texts)
    if settings.precision == "auto" and supports_bf16(network):
        sample = inputs.batch(np.arange(min(2, len(shown))))
        config = replace(config, bf16=faster_in_bf16(network, [value[:, :TOKENS_TO_MEASURE] for value in sample]))
    state = train_network(network, inputs, config, objective, shown, validation)
    network.backbone = without_lora(network.backbone)
    if settings.gradient_checkpointing:
        network.backbone.gradient_checkpointing_disable()
    return fitted(objective, featurizer, network, state)


def train_network(
    network: Network,
    inputs: Inputs,
    config: TrainingConfig,
    objective: Objective,
    train: Training,
    validate: Validate | None,
) -> TrainState:
    """Train a network in place.

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

    Returns
    -------
    TrainState
        The state at the end.
    """
    loss = torch_loss(objective.loss)
    with threads_for(network):
        return Trainer(network, loss, config, validate).fit(inputs, loss.prepare(objective.truth(train)[1]))


def fitted(
    objective: Objective, featurizer: FrozenFeaturizer | TokenFeaturizer, network: Network, state: TrainState
) -> FittedNetwork:
    """Put together what was trained.

    Parameters
    ----------
    objective
        What the network was trained for.
    featurizer
        How it sees texts.
    network
        The network, on any device.
    state
        The state at the end of training.

    Returns
    -------
    FittedNetwork
        With the network on the CPU, in eval mode.
    """
    network = network.cpu().eval()
    losses = tuple(state.epoch_losses)
    return FittedNetwork(objective, featurizer, network, state.temperature, losses, state.stopped)


def new_outputs(settings: NeuralSettings, width: int, objective: Objective) -> Outputs:
    """Make untrained outputs; over frozen embeddings they have no dropout unless it is asked for.

    Parameters
    ----------
    settings
        The settings of the model.
    width
        The width of the vectors that outputs see.
    objective
        What to train for.

    Returns
    -------
    Outputs
        With random weights.
    """
    usual = 0.0 if settings.trained_part == "head" else DROPOUT
    dropout = usual if settings.dropout is None else settings.dropout
    return Outputs(width, len(objective.loss.outputs), settings.hidden_size, dropout)


def new_backbone(settings: NeuralSettings, texts: Strings) -> tuple[TokenFeaturizer, Any]:
    """Make the transformer to train.

    Parameters
    ----------
    settings
        The settings of the model.
    texts
        Training texts, from which "scratch" learns its tokenizer.

    Returns
    -------
    tuple
        How it sees texts, and the transformer.
    """
    if settings.encoder == "scratch":
        length = SCRATCH_LENGTH if settings.max_length is None else settings.max_length
        tokenizer = learned_tokenizer(texts)
        backbone = small_bert(tokenizer.get_vocab_size(), length)
        return TokenFeaturizer(tokenizer, length, "mean" if settings.pooling is None else settings.pooling), backbone
    source = find_source(str(settings.encoder_spec))
    if read_config(Path(source.place) / "config.json").get("is_encoder_decoder"):
        raise TreelabelError(
            f"the encoder {source.name} is half of an encoder and decoder, which can be used frozen (train=head) but "
            "not be trained; give one that is an encoder alone, such as BERT's family"
        )
    featurizer = TokenFeaturizer(load_tokenizer(source.place), source.max_length, source.pooling)
    return featurizer, load_backbone(source.place)


def prepared_backbone(settings: NeuralSettings, backbone: Any) -> Any:
    """Set dropout, LoRA, frozen layers and gradient checkpointing.

    Parameters
    ----------
    settings
        The settings of the model.
    backbone
        A transformer, changed in place.

    Returns
    -------
    Any
        The transformer, wrapped by peft if LoRA is trained.
    """
    if settings.dropout is not None:
        for module in backbone.modules():
            if isinstance(module, nn.Dropout):
                module.p = settings.dropout
    if settings.trained_part == "lora":
        backbone = with_lora(backbone, settings.lora_rank)
    freeze(backbone, settings.frozen_layers)
    if settings.gradient_checkpointing:
        try:
            backbone.gradient_checkpointing_enable({"use_reentrant": False})
        except ValueError as error:
            raise TreelabelError(f"gradient_checkpointing=True does not work with this encoder: {error}") from error
    return backbone


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
