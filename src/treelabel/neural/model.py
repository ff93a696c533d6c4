"""The model `neural`: a text encoder, frozen or fine-tuned, and outputs trained with any loss of LOSSES.

torch is imported when something is fitted or loaded, not before: `treelabel models` lists the settings of all models.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from treelabel.core.array_schema import Arrays, Schema
from treelabel.core.errors import TreelabelError, require_extra
from treelabel.core.strings import Strings
from treelabel.core.validation import Between
from treelabel.encoders.protocol import Encoder
from treelabel.encoders.registry import default_encoder_name
from treelabel.encoders.sources import Pooling
from treelabel.hierarchy import Hierarchy
from treelabel.models.base import Model, Training
from treelabel.models.settings import (
    Count,
    LearningRate,
    NonNegative,
    PartialShare,
    Passes,
    Seconds,
    Seed,
    Share,
    Width,
    WidthOrNone,
    not_fitted,
)
from treelabel.neural.exported import ExportedNetwork
from treelabel.neural.losses.registry import LOSSES
from treelabel.neural.objective import Objective, checked_params
from treelabel.neural.saved import ExportedValues, NetworkValues, saved_schema
from treelabel.neural.settings import NeuralSettings
from treelabel.scores import Scores
from treelabel.selection.evidence import HeldOut, Stage

if TYPE_CHECKING:
    from treelabel.neural.architecture import Architecture
    from treelabel.neural.fitted import FittedNetwork
    from treelabel.neural.fitting import FitNetwork


class Neural(Model):
    """A transformer and a linear layer over all nodes, trained with any loss of LOSSES.

    Frozen, an epoch costs documents × width × outputs; fine-tuned, documents × tokens × the encoder's parameters × 6.
    Conditional losses cost a document only the siblings along its path.

    Parameters
    ----------
    hierarchy
        The hierarchy of labels, where data do not bring it.
    encoder
        A name that `treelabel encoders` lists, a folder, an object with `transform` (frozen only), or "scratch": a
        small BERT with random weights and its own tokenizer. None takes the best encoder that is installed.
    loss, loss_params
        A loss of LOSSES; "auto" chooses one that suits the labels. Its own parameters by name, such as {"beta": 0.1}
        for champ; `treelabel models` lists them.
    train
        What is trained: "head", the outputs over frozen embeddings, which are computed once and kept on disk; "all";
        "lora", matrices of rank `lora_rank` beside the encoder's. "auto" is "all" for scratch, else "head", which is
        what a CPU can afford.
    hidden_size
        The width of a hidden layer before the outputs; 0 for none.
    tfidf, lsa_components
        Whether tf-idf, reduced to `lsa_components` columns, stands beside frozen embeddings.
    max_length, pooling
        Tokens that are read of a text, and "cls", "mean", "max" or "last" (token); by default what the encoder's
        folder states.
    epochs, batch_size, learning_rate
        By default 30, 128 and 5e-3 for "head"; 20, 16 and 2e-5 for "all", as in the papers, with a rate of 2e-4 for
        "lora" and 1e-3 for scratch.
    learning_rates
        Learning rates by group, a dict with any of "encoder", "hidden" and "outputs"; `learning_rate` for the others.
    layerwise_lr_decay
        The learning rate of a layer as a share of the next one's.
    lr_scheduler, warmup_ratio
        Rates rise over this share of the steps, and then fall to 0 ("linear", "slanted") or stay ("constant").
    weight_decay, max_grad_norm
        Those of AdamW, and of gradient clipping (0 for none).
    gradient_accumulation_steps, gradient_checkpointing
        Compute a batch in this many parts, and layers twice: both save memory and change nothing else.
    patience
        Epochs without a better validation loss after which training stops; the best epoch is kept.
    dropout
        Dropout before outputs and in the encoder; by default 0 for "head", else 0.1 and the encoder's own.
    frozen_layers
        How many of the first layers to keep as they are, with the embeddings.
    lora_rank
        The rank of LoRA's matrices.
    precision
        "fp32", "bf16", or "auto": bfloat16 where it is measured to be faster.
    validation_fraction
        The share of training documents that chooses the best epoch where no validation data are given; over frozen
        embeddings, all documents are then trained on for as many epochs as were best.
    checkpoint_dir, checkpoint_seconds
        A folder, and how often a checkpoint is written there; a run that was killed resumes from it, to the same
        weights.
    callbacks
        Functions of (step, values), TensorBoard's SummaryWriter, the module mlflow, or a run of wandb.
    seed
        Seed of the random numbers.
    """

    name = "neural"
    needs_encoder = True
    # Whether weights over a frozen encoder are in a file, and not among the arrays of the model.
    has_file: ClassVar[bool] = False
    # The setting that states what is trained.
    part_setting: ClassVar[str] = "train"
    learned: ClassVar[Any] = NetworkValues | ExportedValues
    fitted_: "FittedNetwork | ExportedNetwork"
    unsaved = ("hierarchy", "callbacks", "checkpoint_dir", "checkpoint_seconds")

    def __init__(
        self,
        hierarchy: Hierarchy | None = None,
        encoder: str | Encoder | None = None,
        loss: str = "auto",
        loss_params: Mapping[str, float] | None = None,
        train: Literal["auto", "head", "lora", "all"] = "auto",
        hidden_size: WidthOrNone = 0,
        tfidf: bool = False,
        lsa_components: Width = 512,
        max_length: Annotated[int, Between(3, 1 << 20)] | None = None,
        pooling: Pooling | None = None,
        epochs: Passes | None = None,
        batch_size: Count | None = None,
        learning_rate: LearningRate | None = None,
        learning_rates: Mapping[str, float] | None = None,
        layerwise_lr_decay: Annotated[float, Between(1e-6, 1)] = 1.0,
        lr_scheduler: Literal["linear", "slanted", "constant"] = "linear",
        warmup_ratio: Share = 0.1,
        weight_decay: NonNegative = 0.01,
        max_grad_norm: Annotated[float, Between(0, math.inf)] = 1.0,
        gradient_accumulation_steps: Count = 1,
        patience: Passes = 5,
        dropout: PartialShare | None = None,
        frozen_layers: Annotated[int, Between(0, 1000)] = 0,
        lora_rank: Width = 8,
        gradient_checkpointing: bool = False,
        precision: Literal["auto", "fp32", "bf16"] = "auto",
        validation_fraction: PartialShare = 0.1,
        checkpoint_dir: str | None = None,
        checkpoint_seconds: Seconds = 300.0,
        callbacks: tuple[Any, ...] = (),
        seed: Seed = 0,
    ) -> None:
        self.hierarchy = hierarchy
        self.encoder = encoder
        self.loss = loss
        self.loss_params = loss_params
        self.train = train
        self.hidden_size = hidden_size
        self.tfidf = tfidf
        self.lsa_components = lsa_components
        self.max_length = max_length
        self.pooling = pooling
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.learning_rates = learning_rates
        self.layerwise_lr_decay = layerwise_lr_decay
        self.lr_scheduler = lr_scheduler
        self.warmup_ratio = warmup_ratio
        self.weight_decay = weight_decay
        self.max_grad_norm = max_grad_norm
        self.gradient_accumulation_steps = gradient_accumulation_steps
        self.patience = patience
        self.dropout = dropout
        self.frozen_layers = frozen_layers
        self.lora_rank = lora_rank
        self.gradient_checkpointing = gradient_checkpointing
        self.precision = precision
        self.validation_fraction = validation_fraction
        self.checkpoint_dir = checkpoint_dir
        self.checkpoint_seconds = checkpoint_seconds
        self.callbacks = callbacks
        self.seed = seed

    def _settings(self) -> NeuralSettings:
        return NeuralSettings.of(self)

    def _architecture(self) -> "Architecture":
        from treelabel.neural.architecture import PLAIN

        return PLAIN

    def _check_settings(self) -> None:
        checked_params(self.loss_params)
        if self.loss != "auto":
            LOSSES.find(self.loss)
        self._settings().check(self.name, self.part_setting)

    def _with_encoder(self) -> NeuralSettings:
        """Return the settings, with the best encoder that is installed if none was given."""
        settings = self._settings()
        if settings.encoder is None:
            settings = replace(settings, encoder=self._default_encoder(settings))
        return settings

    def _fit(self, train: Training) -> HeldOut | None:
        settings = self._with_encoder()
        with require_extra("neural", f"the model {self.name}"):
            fit_network, _ = _torch_side()
            self.fitted_, held = fit_network(settings, train, self._architecture())
        return held

    def _stages(self) -> Sequence[Stage]:
        return self.fitted_.stages if not isinstance(self.fitted_, ExportedNetwork) else ()

    def _default_encoder(self, settings: NeuralSettings) -> str:
        """Return the name of the encoder where none is given."""
        return default_encoder_name(None if settings.trained_part == "head" else "transformer")

    def _score(self, texts: Strings) -> Scores:
        return self.fitted_.score(texts)

    @property
    def losses_(self) -> list[float]:
        """The loss after each epoch: of validation documents, or of training where there are none."""
        return list(self.fitted_.epoch_losses)

    @property
    def exhaustive(self) -> bool:
        """A softmax shares out all of a parent's probability, sigmoids do not."""
        return self.fitted_.objective.exhaustive

    # Saving

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        return self.fitted_.state()

    def _schema(self, values: dict[str, Any]) -> Schema:
        settings = self._settings()
        settings.check(self.name, self.part_setting)
        is_frozen = "encoder" in values.get("featurizer", {})
        if "featurizer" in values and is_frozen != (settings.trained_part == "head"):
            raise TreelabelError(f"{self.part_setting}={settings.train} does not fit what was learned")
        return saved_schema(self.hierarchy_, values, None if self.has_file else settings.hidden_size > 0)

    def _restore(self, values: dict[str, Any], arrays: Arrays) -> None:
        # The network is in files of its own: see `_read_files`.
        self._stored = values, arrays

    def _write_files(self, folder: Path) -> None:
        self.fitted_.write_files(folder)

    def _read_files(self, folder: Path) -> None:
        values, arrays = self.__dict__.pop("_stored")
        settings = self._settings()
        objective = Objective(
            values["loss"], self.hierarchy_, arrays["stop_nodes"], arrays["frequencies"], settings.loss_params
        )
        with require_extra("neural", f"the model {self.name}"):
            if "runtime" in values:
                self.fitted_ = ExportedNetwork.restored(objective, values, folder)
            else:
                _, fitted_network = _torch_side()
                stored, architecture = (values, arrays), self._architecture()
                self.fitted_ = fitted_network.restored(settings, architecture, objective, stored, folder)

    def exported(self, runtime: Literal["onnx", "int8"] = "onnx") -> Self:
        """Return the same model as an ONNX graph from token ids to probabilities, which needs no torch to score.

        Parameters
        ----------
        runtime
            "onnx" returns the same scores to 1e-4; "int8" has weights of eight bits, is about twice as fast, and is
            less accurate.

        Returns
        -------
        Model
            A fitted model of the same class.
        """
        if runtime not in ("onnx", "int8"):
            raise TreelabelError(f"expected the runtime onnx or int8, found {runtime!r}")
        if not hasattr(self, "fitted_"):
            raise not_fitted(f"this {self.name} model has not learned anything yet; call fit before exported")
        if isinstance(self.fitted_, ExportedNetwork):
            raise TreelabelError("this model is an ONNX graph already; export the model that it was made of")
        found = type(self)(**self.get_params(deep=False))
        found.hierarchy_, found.regime_ = self.hierarchy_, self.regime_
        found.stop_nodes_, found.rule_, found.evidence_ = self.stop_nodes_, self.rule_, self.evidence_
        found.profile_, found.form_ = self.profile_, self.form_
        with require_extra("neural", "exporting a model"):
            found.fitted_ = self.fitted_.exported(runtime)
        return found


def _torch_side() -> "tuple[FitNetwork, type[FittedNetwork]]":
    """Import what needs torch; nothing else in this module does."""
    from treelabel.neural.fitted import FittedNetwork
    from treelabel.neural.fitting import fit_network

    return fit_network, FittedNetwork
