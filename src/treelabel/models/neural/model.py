"""The model `neural`: a text encoder, frozen or fine-tuned, and outputs trained with any loss of LOSSES.

torch is imported when something is learned or loaded, not before: `treelabel models` lists the settings of all models.
"""

import math
from pathlib import Path
from typing import Annotated, Any, Literal

from treelabel.core.errors import TreelabelError, needing
from treelabel.core.kinds import Between
from treelabel.core.settings_text import with_settings
from treelabel.core.strings import Strings
from treelabel.encoders.catalogue import Encoder
from treelabel.encoders.sources import Pooling, read_spec
from treelabel.hierarchy import Hierarchy
from treelabel.models.base import Model, Training
from treelabel.models.neural.saved import ExportedValues, NetworkValues, saved_schema
from treelabel.models.objective import Objective
from treelabel.models.schema import Arrays, Schema
from treelabel.scores import Scores

CHOICES: dict[str, tuple[str | None, ...]] = {
    "train": ("auto", "head", "lora", "all"),
    "schedule": ("linear", "slanted", "constant"),
    "precision": ("auto", "fp32", "bf16"),
    "pooling": (None, "cls", "mean", "max"),
}
# The smallest and the largest value that settings may have.
LIMITS: dict[str, tuple[float, float]] = {
    **dict.fromkeys(("epochs", "batch", "accumulate", "patience", "lora_rank", "tfidf_width"), (1, math.inf)),
    **dict.fromkeys(("hidden", "freeze", "checkpoint_seconds", "weight_decay", "clip", "tau", "beta"), (0, math.inf)),
    **dict.fromkeys(("lambda_parameters", "lambda_probabilities"), (0, math.inf)),
    "rate": (1e-12, math.inf),
    "layer_decay": (1e-6, 1.0),
    "max_length": (3, math.inf),
    "warm_up": (0, 1),
    "held_out": (0, 0.99),
    "dropout": (0, 0.99),
    "seed": (0, math.inf),
}
LOSS_SETTINGS = ("tau", "beta", "lambda_parameters", "lambda_probabilities")


class Neural(Model):
    """A transformer and a linear layer over all nodes, trained with any loss of LOSSES.

    `encoder` is a name that `treelabel encoders` lists, a folder, or "scratch": a small BERT with random weights and a
    tokenizer of its own. `train` says what is trained: "head", the outputs over frozen embeddings, which are computed
    once and kept on disk (with `tfidf` beside them if asked for, and a layer of `hidden` units if above 0); "all"; or
    "lora", matrices of rank `lora_rank` beside the encoder's. "auto" is "all" for scratch, else "head", what a CPU can
    afford.

    Fine-tuning follows the papers: AdamW at a rate of 2e-5, rising over a tenth of the steps and then falling to 0,
    batches of 16, 20 epochs (fewer if `patience` of them bring no gain), the best one by validation data. Usual for
    "head" are 30 epochs, batches of 128 and a rate of 5e-3; for "lora" a rate of 2e-4, for scratch one of 1e-3. Without
    validation data a share `held_out` of the training documents takes their place; with frozen embeddings, all
    documents are then learned for as many epochs as were best. `rates` gives the encoder, the hidden layer and the
    outputs rates of their own, `layer_decay` every layer a share of the rate of the next; `freeze` keeps the embeddings
    and so many layers as they are. `accumulate` computes a batch in so many parts, and `save_memory` computes layers
    twice: both need less memory and change nothing else. With `checkpoints`, a folder, a run that was killed goes on
    where it was, to the same weights.

    Frozen, an epoch costs documents x width x outputs; fine-tuned, documents x tokens x the encoder's parameters x 6.
    Conditional losses cost a document only the siblings along its path.
    """

    name = "neural"
    learned = NetworkValues | ExportedValues
    learned_: Any
    unsaved = ("hierarchy", "callbacks", "checkpoints", "checkpoint_seconds")

    def __init__(
        self,
        hierarchy: Hierarchy | None = None,
        encoder: str | Encoder = "minilm",
        loss: str = "auto",
        train: Literal["auto", "head", "lora", "all"] = "auto",
        hidden: int = 0,
        tfidf: bool = False,
        tfidf_width: int = 512,
        max_length: int | None = None,
        pooling: Pooling | None = None,
        epochs: int | None = None,
        batch: int | None = None,
        rate: float | None = None,
        rates: tuple[float, float, float] | None = None,
        layer_decay: float = 1.0,
        schedule: str = "linear",
        warm_up: float = 0.1,
        weight_decay: float = 0.01,
        clip: Annotated[float, Between(0, math.inf)] = 1.0,
        accumulate: int = 1,
        patience: int = 5,
        dropout: float | None = None,
        freeze: int = 0,
        lora_rank: int = 8,
        save_memory: bool = False,
        precision: Literal["auto", "fp32", "bf16"] = "auto",
        held_out: float = 0.1,
        tau: float = 1.0,
        beta: float = 0.2,
        lambda_parameters: float = 1e-4,
        lambda_probabilities: float = 1e-2,
        checkpoints: str | None = None,
        checkpoint_seconds: float = 300.0,
        callbacks: tuple[Any, ...] = (),
        seed: int = 0,
    ) -> None:
        self.hierarchy = hierarchy
        self.encoder = encoder
        self.loss = loss
        self.train = train
        self.hidden = hidden
        self.tfidf = tfidf
        self.tfidf_width = tfidf_width
        self.max_length = max_length
        self.pooling = pooling
        self.epochs = epochs
        self.batch = batch
        self.rate = rate
        self.rates = rates
        self.layer_decay = layer_decay
        self.schedule = schedule
        self.warm_up = warm_up
        self.weight_decay = weight_decay
        self.clip = clip
        self.accumulate = accumulate
        self.patience = patience
        self.dropout = dropout
        self.freeze = freeze
        self.lora_rank = lora_rank
        self.save_memory = save_memory
        self.precision = precision
        self.held_out = held_out
        self.tau = tau
        self.beta = beta
        self.lambda_parameters = lambda_parameters
        self.lambda_probabilities = lambda_probabilities
        self.checkpoints = checkpoints
        self.checkpoint_seconds = checkpoint_seconds
        self.callbacks = callbacks
        self.seed = seed

    @property
    def trains(self) -> str:
        """What is trained: "head", "lora" or "all"."""
        if self.train == "auto":
            return "all" if self.encoder == "scratch" else "head"
        return self.train

    def _fit(self, train: Training) -> None:
        self._check_settings()
        with needing("neural", "the model neural"):
            from treelabel.models.neural.learning import learn

            self.learned_ = learn(self, train)

    @property
    def read_by(self) -> str | Encoder:
        """The encoder with what `max_length` and `pooling` say of it."""
        given = {"max_length": self.max_length, "pooling": self.pooling}
        said = {name: value for name, value in given.items() if value is not None}
        if not isinstance(self.encoder, str) or self.encoder == "scratch" or not said:
            return self.encoder
        name, own = read_spec(self.encoder)
        return with_settings(name, {**own, **said})

    def _check_settings(self) -> None:
        for name, choices in CHOICES.items():
            self._require(name, getattr(self, name) in choices, "one of: " + ", ".join(map(str, choices)))
        for name, (least, most) in LIMITS.items():
            value = getattr(self, name)
            known = value is None or (is_number(value) and least <= value <= most)
            self._require(name, known, f"a number from {least:g} to {most:g}")
        for name in ("tfidf", "save_memory"):
            self._require(name, isinstance(getattr(self, name), bool), "True or False")
        rates = self.rates
        three = isinstance(rates, tuple | list) and len(rates) == 3 and all(is_number(rate) for rate in rates)
        self._require("rates", rates is None or three, "three numbers: of encoder, hidden layer and outputs")
        self._require("callbacks", isinstance(self.callbacks, tuple | list), "a tuple of callbacks")
        frozen, is_object = self.trains == "head", not isinstance(self.encoder, str)
        refused = {
            "tfidf=True stands beside frozen embeddings: use train=head": self.tfidf and not frozen,
            "a random encoder has to be trained: use train=all with encoder=scratch": frozen
            and self.encoder == "scratch",
            "an encoder that is fine-tuned is given by its name or folder, found an object": is_object and not frozen,
            "freeze, layer_decay and save_memory are about training the encoder: use train=all or train=lora": frozen
            and (self.freeze != 0 or self.layer_decay != 1 or self.save_memory),
            "max_length and pooling are those of the encoder object that was given": is_object
            and (self.max_length, self.pooling) != (None, None),
        }
        for what, found in refused.items():
            if found:
                raise TreelabelError(what)

    def _require(self, name: str, right: bool, expected: str) -> None:
        if not right:
            raise TreelabelError(
                f"the setting {name} of the model neural is {getattr(self, name)!r}; expected {expected}"
            )

    def _score(self, texts: Strings) -> Scores:
        scores: Scores = self.learned_.score(texts)
        return scores

    @property
    def losses_(self) -> list[float]:
        """The loss after each epoch: of documents that were held out or given as `valid`, else of training."""
        return list(self.learned_.seen)

    @property
    def exhaustive(self) -> bool:
        """A softmax shares out all of a parent's probability, sigmoids do not."""
        return bool(self.learned_.objective.exhaustive)

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        found: tuple[dict[str, Any], Arrays] = self.learned_.state()
        return found

    def _schema(self, values: dict[str, Any]) -> Schema:
        self._check_settings()
        is_frozen = "encoder" in values.get("reader", {})
        if "reader" in values and is_frozen != (self.trains == "head"):
            raise TreelabelError(f"train={self.train} does not fit what was learned")
        return saved_schema(self.hierarchy_, values, self.hidden > 0)

    def _restore(self, values: dict[str, Any], arrays: Arrays) -> None:
        # What else there is stands in files of their own: see `_read_files`.
        self._stored = values, arrays

    def _write_files(self, folder: Path) -> None:
        self.learned_.write_files(folder)

    def _read_files(self, folder: Path) -> None:
        values, arrays = self.__dict__.pop("_stored")
        settings = {name: getattr(self, name) for name in LOSS_SETTINGS}
        objective = Objective(values["loss"], self.hierarchy_, arrays["stops"], arrays["frequencies"], settings)
        with needing("neural", "the model neural"):
            if "runtime" in values:
                from treelabel.models.neural.exported import read_exported

                self.learned_ = read_exported(objective, values, folder)
            else:
                from treelabel.models.neural.learning import read_learned

                self.learned_ = read_learned(self, objective, values, arrays, folder)

    def exported(self, runtime: Literal["onnx", "int8"] = "onnx") -> "Neural":
        """Give the same model as an ONNX graph from token ids to probabilities, which needs no torch to score.

        "onnx" gives the same scores to 1e-4; "int8" has weights of eight bits, is about twice as fast, and errs more.
        """
        if runtime not in ("onnx", "int8"):
            raise TreelabelError(f"expected the runtime onnx or int8, found {runtime!r}")
        if not hasattr(self, "learned_"):
            raise TreelabelError("this neural model has not learned anything yet; call fit before exported")
        with needing("neural", "exporting a model"):
            from treelabel.models.neural.exported import Exported
            from treelabel.models.neural.exporting import export_learned

            if isinstance(self.learned_, Exported):
                raise TreelabelError("this model is an ONNX graph already; export the model that it was made of")
            found = Neural(**self.get_params(deep=False))
            found.hierarchy_, found.regime_ = self.hierarchy_, self.regime_
            found.stop_nodes_ = self.stop_nodes_
            found.learned_ = export_learned(self.learned_, runtime)
        return found


def is_number(value: Any) -> bool:
    """Whether a value is a number; True and False are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)
