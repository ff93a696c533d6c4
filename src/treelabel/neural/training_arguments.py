"""How networks are trained: the settings that all neural models share, and their defaults.

A training argument is declared as one field of `TrainingArguments`. Models hold it as their parameter `training`; its
fields are found by their own names (`epochs=3`, `--set epochs=3`), or as `training__epochs`.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from treelabel.core.errors import TreelabelError
from treelabel.core.validation import Between
from treelabel.models.settings import (
    Count,
    LearningRate,
    NonNegative,
    PartialShare,
    Passes,
    Seconds,
    SettingsGroup,
    Share,
    Width,
)

# The parts of a network that may have learning rates of their own.
RATE_GROUPS = ("encoder", "hidden", "outputs")
# What is trained: outputs over a frozen encoder, matrices of low rank, all of it, or all of it from random weights.
RecipeName = Literal["head", "lora", "all", "scratch"]
# Called with the number of a step and its values: "loss", "learning_rate", "documents_per_second" after a step,
# "training_loss" and "validation_loss" after an epoch.
Callback = Callable[[int, Mapping[str, float]], object]


@dataclass(frozen=True)
class Recipe:
    """The arguments that depend on what is trained; `learning_rates` are those that differ from `learning_rate`."""

    epochs: int
    batch_size: int
    learning_rate: float
    learning_rates: Mapping[str, float] = field(default_factory=dict)


def make_recipes(head: Recipe, learning_rate: float, **learning_rates: float) -> dict[RecipeName, Recipe]:
    """Return the recipes of a model.

    Parameters
    ----------
    head
        The recipe over a frozen encoder.
    learning_rate
        The rate at which an encoder is fine-tuned.
    **learning_rates
        The rates of other parts ("hidden", "outputs") while it is: after the few epochs that a CPU affords, they would
        hardly have moved at the encoder's.
    """
    return {
        "head": head,
        "lora": Recipe(20, 16, 2e-4, learning_rates),
        "all": Recipe(20, 16, learning_rate, learning_rates),
        "scratch": Recipe(20, 16, 1e-3),
    }


@dataclass(frozen=True, kw_only=True, repr=False)
class TrainingArguments(SettingsGroup):
    """How a network is trained; None takes what suits the model and the part of it that is trained.

    Parameters
    ----------
    epochs, batch_size, learning_rate
        For `neural` by default 30, 128 and 5e-3 over a frozen encoder; 20, 16 and 2e-5 for fine-tuning, as in the
        papers, with a rate of 2e-4 for LoRA and 1e-3 for training from scratch.
    learning_rates
        Learning rates by group, a dict with any of "encoder", "hidden" and "outputs"; `learning_rate` for the others.
    layerwise_lr_decay
        The learning rate of a layer as a share of the next one's.
    lr_scheduler, warmup_ratio
        Rates rise over this share of the steps, and then fall to 0 ("linear", "slanted") or stay ("constant"). None is
        "linear", for APLC-XLNet "slanted".
    weight_decay, max_grad_norm
        Those of AdamW, and of gradient clipping (0 for none).
    gradient_accumulation_steps, gradient_checkpointing
        Compute a batch in this many parts, and layers twice: both save memory, and leave results of `neural` as they
        are. HGCLR contrasts and HiTIN normalises within a part of a batch.
    patience
        Epochs without a better validation loss after which training stops; the best epoch is kept.
    frozen_layers
        How many of the first layers to keep as they are, with the embeddings.
    lora_rank
        The rank of LoRA's matrices.
    precision
        "fp32", "bf16", or "auto": bfloat16 where it is measured to be faster.
    validation_fraction
        The share of training documents that chooses the best epoch where no validation data are passed; over a frozen
        encoder, all documents are then trained on for as many epochs as were best.
    checkpoint_dir, checkpoint_seconds
        A folder, and how often a checkpoint is written there; a run that was killed resumes from it, to the same
        weights.
    callbacks
        Functions of (step, values), TensorBoard's SummaryWriter, the module mlflow, or a run of wandb.

    >>> TrainingArguments(epochs=3)
    TrainingArguments(epochs=3)
    """

    # Settings that change nothing in what is learned, and belong to one machine.
    unsaved: ClassVar[tuple[str, ...]] = ("callbacks", "checkpoint_dir", "checkpoint_seconds")

    epochs: Passes | None = None
    batch_size: Count | None = None
    learning_rate: LearningRate | None = None
    learning_rates: Mapping[str, float] | None = None
    layerwise_lr_decay: Annotated[float, Between(1e-6, 1)] = 1.0
    lr_scheduler: Literal["linear", "slanted", "constant"] | None = None
    warmup_ratio: Share = 0.1
    weight_decay: NonNegative = 0.01
    max_grad_norm: Annotated[float, Between(0, math.inf)] = 1.0
    gradient_accumulation_steps: Count = 1
    gradient_checkpointing: bool = False
    patience: Passes = 5
    frozen_layers: Annotated[int, Between(0, 1000)] = 0
    lora_rank: Width = 8
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    validation_fraction: PartialShare = 0.1
    checkpoint_dir: str | None = None
    checkpoint_seconds: Seconds = 300.0
    callbacks: tuple[Any, ...] = ()

    def check_rates(self, model: str) -> None:
        """Refuse learning rates of groups that no network has; `model` is named in the message."""
        rates = self.learning_rates
        if rates is not None and not (rates.keys() <= {*RATE_GROUPS} and all(rate > 0 for rate in rates.values())):
            raise TreelabelError(
                f"the setting learning_rates of the model {model} is {rates!r}; expected a dict of positive numbers by "
                f"any of: {', '.join(RATE_GROUPS)}"
            )

    def group_rates(self, recipe: Recipe) -> dict[str, float]:
        """Return the learning rate of each group of parameters; a rate that is set is that of all groups."""
        rates = dict.fromkeys(RATE_GROUPS, recipe.learning_rate) | dict(recipe.learning_rates)
        if self.learning_rate is not None:
            rates = dict.fromkeys(RATE_GROUPS, self.learning_rate)
        return rates | dict(self.learning_rates or {})


DEFAULT_ARGUMENTS = TrainingArguments()


def make_callback(target: Any) -> Callback:
    """Return the callback of a function, a SummaryWriter of TensorBoard, the module mlflow, or a run of wandb.

    >>> class Writer:
    ...     def add_scalar(self, name, value, step):
    ...         print(name, value, step)
    >>> make_callback(Writer())(3, {"loss": 0.5})
    loss 0.5 3
    """
    if hasattr(target, "add_scalar"):

        def to_tensorboard(step: int, values: Mapping[str, float]) -> None:
            for name, value in values.items():
                target.add_scalar(name, value, step)

        return to_tensorboard
    if hasattr(target, "log_metrics"):
        return lambda step, values: target.log_metrics(dict(values), step=step)
    if hasattr(target, "log"):
        return lambda step, values: target.log(dict(values), step=step)
    if callable(target):
        callback: Callback = target
        return callback
    raise TreelabelError(
        "expected a callback: a function of (step, values), a SummaryWriter of TensorBoard, the module mlflow or a run "
        f"of wandb; found {type(target).__name__}"
    )
