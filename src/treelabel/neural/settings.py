"""The settings of the model `neural` as a plain value: what excludes what, and what follows from them."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from treelabel.core.errors import TreelabelError
from treelabel.encoders.protocol import Encoder
from treelabel.encoders.sources import Pooling, spec_with

# The parts of a network that may have learning rates of their own.
GROUPS = ("encoder", "hidden", "outputs")

TrainedPart = Literal["head", "lora", "all"]


@dataclass(frozen=True, kw_only=True)
class NeuralSettings:
    """The settings of the model `neural`, which documents them, without the hierarchy."""

    encoder: str | Encoder | None
    loss: str
    loss_params: Mapping[str, float] | None
    train: Literal["auto", "head", "lora", "all"]
    hidden_size: int
    tfidf: bool
    lsa_components: int
    max_length: int | None
    pooling: Pooling | None
    epochs: int | None
    batch_size: int | None
    learning_rate: float | None
    learning_rates: Mapping[str, float] | None
    layerwise_lr_decay: float
    lr_scheduler: str
    warmup_ratio: float
    weight_decay: float
    max_grad_norm: float
    gradient_accumulation_steps: int
    patience: int
    dropout: float | None
    frozen_layers: int
    lora_rank: int
    gradient_checkpointing: bool
    precision: Literal["auto", "fp32", "bf16"]
    validation_fraction: float
    checkpoint_dir: str | None
    checkpoint_seconds: float
    callbacks: tuple[Any, ...]
    seed: int

    @classmethod
    def of(cls, model: Any) -> "NeuralSettings":
        """Read the settings off a model."""
        return cls(**{field.name: getattr(model, field.name) for field in fields(cls)})

    @property
    def trained_part(self) -> TrainedPart:
        """The part that is trained: "head", "lora" or "all"."""
        if self.train == "auto":
            return "all" if self.encoder == "scratch" else "head"
        return self.train

    @property
    def encoder_spec(self) -> str | Encoder | None:
        """The encoder, with `max_length` and `pooling` among its settings if they are given."""
        if not isinstance(self.encoder, str) or self.encoder == "scratch":
            return self.encoder
        return spec_with(self.encoder, self.max_length, self.pooling)

    # Checks

    def check(self, model: str = "neural", part: str = "train") -> None:
        """Raise TreelabelError where settings exclude each other; type hints have limited each of them.

        Parameters
        ----------
        model, part
            The model that has the settings, and what it calls the setting `train`, for messages.
        """
        rates = self.learning_rates
        if rates is not None and not are_rates(rates):
            raise TreelabelError(
                f"the setting learning_rates of the model {model} is {rates!r}; expected {RATES_EXPECTED}"
            )
        self._check_combinations(part)

    def _check_combinations(self, part: str) -> None:
        frozen = self.trained_part == "head"
        is_object = self.encoder is not None and not isinstance(self.encoder, str)
        about_training = self.frozen_layers != 0 or self.layerwise_lr_decay != 1 or self.gradient_checkpointing
        refused = {
            f"tfidf=True stands beside frozen embeddings: use {part}=head": self.tfidf and not frozen,
            f"a random encoder has to be trained: use {part}=all with encoder=scratch": frozen
            and self.encoder == "scratch",
            "an encoder that is fine-tuned is given by its name or folder, found an object": is_object and not frozen,
            "frozen_layers, layerwise_lr_decay and gradient_checkpointing are about training the encoder: use "
            f"{part}=all or {part}=lora": frozen and about_training,
            "max_length and pooling are those of the encoder object that was given": is_object
            and (self.max_length, self.pooling) != (None, None),
        }
        for what, found in refused.items():
            if found:
                raise TreelabelError(what)


RATES_EXPECTED = f"a dict of positive numbers by any of: {', '.join(GROUPS)}"


def are_rates(value: Any) -> bool:
    """Return whether a value is a mapping from groups of parameters to positive numbers.

    >>> are_rates({"encoder": 2e-5, "outputs": 1e-3}), are_rates((2e-5, 1e-3)), are_rates({"head": 1e-3})
    (True, False, False)
    """
    return isinstance(value, Mapping) and all(
        group in GROUPS and is_number(rate) and rate > 0 for group, rate in value.items()
    )


def is_number(value: Any) -> bool:
    """Return whether a value is a number; True and False are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)
