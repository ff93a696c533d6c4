"""The configuration of a training: the settings of the model `neural`, with defaults for what is being trained."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal

from treelabel.core.stopping import StopSignal
from treelabel.encoders.registry import find_encoder
from treelabel.models.base import Training
from treelabel.neural.callbacks import Callback, callback_of
from treelabel.neural.settings import GROUPS, NeuralSettings

Recipe = Literal["head", "lora", "all", "scratch"]

# (epochs, batch_size, learning_rate): outputs alone, LoRA, the papers' recipe, and from random weights.
DEFAULTS: dict[Recipe, tuple[int, int, float]] = {
    "head": (30, 128, 5e-3),
    "lora": (20, 16, 2e-4),
    "all": (20, 16, 2e-5),
    "scratch": (20, 16, 1e-3),
}
# Settings that do not change the result of a run; the encoder is identified by its fingerprint.
NOT_OF_THE_RUN = ("callbacks", "checkpoint_dir", "checkpoint_seconds", "encoder")


@dataclass(frozen=True)
class TrainingConfig:
    """The configuration of one training; fields are named as the settings of the model `neural`."""

    epochs: int
    batch_size: int
    learning_rates: Mapping[str, float]
    lr_scheduler: str
    warmup_ratio: float
    layerwise_lr_decay: float
    weight_decay: float
    max_grad_norm: float
    gradient_accumulation_steps: int
    patience: int
    bf16: bool
    seed: int
    stop: StopSignal
    progress: bool | None
    callbacks: tuple[Callback, ...]
    checkpoint_dir: Path | None
    checkpoint_seconds: float
    # Identifies the run that a checkpoint belongs to.
    run: str
    # The folder of this training among those of one model, and the epoch after which it ends although the learning
    # rate schedule has more.
    part: str = "first"
    stop_after: int | None = None

    @classmethod
    def of(cls, settings: NeuralSettings, train: Training, identity: str = "") -> "TrainingConfig":
        """Combine settings with defaults.

        Parameters
        ----------
        settings
            The settings of the model.
        train
            The training data, with their deadline and progress bar.
        identity
            The system that is trained, and its own settings.

        Returns
        -------
        TrainingConfig
            A complete configuration.
        """
        recipe: Recipe = "scratch" if settings.encoder == "scratch" else settings.trained_part
        epochs, batch_size, rate = DEFAULTS[recipe]
        rate = rate if settings.learning_rate is None else settings.learning_rate
        return cls(
            epochs=epochs if settings.epochs is None else settings.epochs,
            batch_size=batch_size if settings.batch_size is None else settings.batch_size,
            learning_rates=dict.fromkeys(GROUPS, rate) | dict(settings.learning_rates or {}),
            lr_scheduler=settings.lr_scheduler,
            warmup_ratio=settings.warmup_ratio,
            layerwise_lr_decay=settings.layerwise_lr_decay,
            weight_decay=settings.weight_decay,
            max_grad_norm=settings.max_grad_norm,
            gradient_accumulation_steps=settings.gradient_accumulation_steps,
            patience=settings.patience,
            bf16=settings.precision == "bf16",
            seed=settings.seed,
            stop=train.stop,
            progress=train.progress,
            callbacks=tuple(callback_of(each) for each in settings.callbacks),
            checkpoint_dir=None if settings.checkpoint_dir is None else Path(settings.checkpoint_dir),
            checkpoint_seconds=settings.checkpoint_seconds,
            run="" if settings.checkpoint_dir is None else run_fingerprint(settings, train, identity),
        )


def run_fingerprint(settings: NeuralSettings, train: Training, identity: str = "") -> str:
    """Hash what a checkpoint depends on: settings, encoder, labels and texts, those of validation included.

    Parameters
    ----------
    settings
        The settings of the model.
    train
        The training data.
    identity
        The system that is trained, and its own settings.

    Returns
    -------
    str
        A sha256.
    """
    names = [field.name for field in fields(settings) if field.name not in NOT_OF_THE_RUN]
    values = {name: str(getattr(settings, name)) for name in names}
    spec = settings.encoder_spec
    encoder = "scratch" if spec is None or spec == "scratch" else find_encoder(spec).fingerprint
    found = hashlib.sha256(
        json.dumps([values, encoder, train.hierarchy.fingerprint, identity], sort_keys=True).encode()
    )
    for data in (train, train.valid):
        if data is not None:
            found.update(data.closed.indptr.tobytes() + data.closed.indices.tobytes())
            for text in data.texts:
                found.update(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest())
    return found.hexdigest()
