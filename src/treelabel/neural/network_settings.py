"""The settings that all models with a network share: what is trained, how, and over which encoder."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from treelabel.core.errors import TreelabelError
from treelabel.core.validation import Between
from treelabel.encoders.protocol import Encoder
from treelabel.encoders.registry import Pooling, default_encoder_name, spec_with
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.models.base import Model, Training
from treelabel.models.settings import PartialShare, Seed
from treelabel.neural.objective import check_loss
from treelabel.neural.training_arguments import DEFAULT_ARGUMENTS, Recipe, RecipeName, TrainingArguments

if TYPE_CHECKING:
    from treelabel.models.extreme.label_tree import LabelTree
    from treelabel.neural.network import Network, NetworkSpec

Mode = Literal["auto", "head", "lora", "all"]
MaxLength = Annotated[int, Between(3, 1 << 20)]


@dataclass(eq=False, repr=False)
class NetworkSettings(Model):
    """The settings of a model that trains a network over a text encoder, and what the network is like.

    A subclass is a dataclass that adds fields of its own.

    Parameters
    ----------
    hierarchy
        The hierarchy of labels, where data do not bring it.
    encoder
        A name that `treelabel encoders` lists, a folder, an object with `transform` (frozen only), or "scratch": a
        small transformer with random weights and its own tokenizer. None takes the best encoder that is installed.
    loss, loss_params
        A loss of LOSSES. Its own parameters by name, such as {"beta": 0.1} for champ; `treelabel models` lists them.
    mode
        What is trained: "head", a network over a frozen encoder, whose vectors are computed once and stored on disk;
        "all", the encoder too; "lora", matrices of rank `lora_rank` alongside the encoder's. "auto" is "all" for
        scratch, else "head", which is what a CPU can afford.
    max_length, pooling
        Tokens that are read of a text, and "cls", "mean", "max" or "last" (token); by default what the encoder's
        folder states.
    dropout
        Dropout before outputs and in the encoder; by default 0 for "head", else 0.1 and the encoder's own.
    training
        How the network is trained; its fields are settings of the model, too.
    seed
        Seed of the random numbers.
    optimize
        The metric that predictions will be judged by, a row of METRICS: the default rule is chosen for it. None stands
        for leaf accuracy of documents with one leaf each, and for hF1 of others.
    """

    needs_encoder = True
    shares_training = True
    unsaved = ("hierarchy", *TrainingArguments.unsaved)

    # What the network is like

    # Called with a NetworkSpec and the model.
    network_type: ClassVar[Callable[..., "Network"]]
    recipes: ClassVar[Mapping[RecipeName, Recipe]]
    lr_scheduler: ClassVar[Literal["linear", "slanted", "constant"]] = "linear"
    # The setting that states what is trained.
    mode_setting: ClassVar[str] = "mode"
    # Whether the network has a loss of its own, and takes none of LOSSES.
    has_own_loss: ClassVar[bool] = False
    # Whether it looks at the names of labels.
    needs_names: ClassVar[bool] = False
    # Whether weights over a frozen encoder are in a file, and not among the arrays of the model.
    has_file: ClassVar[bool] = True
    # Whether inner nodes at which documents end have leaves of their own below them whatever the loss, so that every
    # terminal label is a leaf of the hierarchy that the network sees.
    has_stops: ClassVar[bool] = False
    # Whether the best epoch is the one that is best at labels which training documents have. Of very many labels, many
    # that held-out documents have are not among these, and cost the more the more confident a network becomes.
    only_seen: ClassVar[bool] = False
    # What the encoder "scratch" is, and how many layers it has; without any it is vectors of word pieces.
    scratch_family: ClassVar[Literal["bert", "xlnet"]] = "bert"
    scratch_layers: ClassVar[int] = 2
    # The width of a hidden layer before the outputs, and the columns of reduced tf-idf alongside frozen embeddings.
    hidden_size = 0
    tfidf_columns = 0

    hierarchy: Hierarchy | None = None
    encoder: str | Encoder | None = None
    loss: str = "bce"
    loss_params: Mapping[str, float] | None = None
    mode: Mode = "auto"
    max_length: MaxLength | None = None
    pooling: Pooling | None = None
    dropout: PartialShare | None = None
    training: TrainingArguments = DEFAULT_ARGUMENTS
    seed: Seed = 0
    optimize: str | None = None

    def make_network(self, spec: "NetworkSpec") -> "Network":
        """Make the network with random weights, which depend on torch's seed."""
        return self.network_type(spec, self)

    def make_scoring_network(self, spec: "NetworkSpec") -> "Network":
        """Make the network that scores, whose weights are loaded afterwards."""
        return self.make_network(spec).for_scoring()

    def make_label_tree(self, train: Training) -> "LabelTree | None":
        """Put the labels of training documents into a label tree, for networks that rank candidates."""
        return None

    # What follows from settings

    @property
    def trained_part(self) -> Literal["head", "lora", "all"]:
        """The part that is trained."""
        mode: Mode = getattr(self, self.mode_setting)
        if mode == "auto":
            return "all" if self.encoder == "scratch" else "head"
        return mode

    @property
    def recipe(self) -> Recipe:
        """The defaults of training arguments."""
        return self.recipes["scratch" if self.encoder == "scratch" else self.trained_part]

    @property
    def encoder_spec(self) -> str | Encoder | None:
        """The encoder that is set, with `max_length` and `pooling` among its own settings."""
        return self._with_text_settings(self.encoder)

    def choose_encoder(self) -> str | Encoder:
        """Return the encoder that is set, or the best one that is installed, with `max_length` and `pooling`."""
        spec = self._with_text_settings(self._default_encoder() if self.encoder is None else self.encoder)
        assert spec is not None
        return spec

    def _with_text_settings(self, encoder: str | Encoder | None) -> str | Encoder | None:
        if not isinstance(encoder, str) or encoder == "scratch":
            return encoder
        return spec_with(encoder, self.max_length, self.pooling)

    def _default_encoder(self) -> str:
        """Return the name of the encoder where none is set."""
        return default_encoder_name(None if self.trained_part == "head" else "transformer")

    def _check_settings(self) -> None:
        check_loss(self.loss, self.loss_params)
        if self.has_own_loss and (self.loss != "bce" or self.loss_params):
            raise TreelabelError(
                f"the model {self.name} has a loss of its own: leave out loss and loss_params, found {self.loss!r}"
            )
        self.training.check_rates(self.name)
        # Settings that exclude each other; type hints have limited each of them.
        mode, frozen, arguments = self.mode_setting, self.trained_part == "head", self.training
        is_object = self.encoder is not None and not isinstance(self.encoder, str)
        about_encoder = arguments.frozen_layers or arguments.layerwise_lr_decay != 1 or arguments.gradient_checkpointing
        refused = {
            f"tfidf=True stands beside frozen embeddings: use {mode}=head": self.tfidf_columns and not frozen,
            f"a random encoder has to be trained: use {mode}=all with encoder=scratch": frozen
            and self.encoder == "scratch",
            "an encoder that is fine-tuned is given by its name or folder, found an object": is_object and not frozen,
            "frozen_layers, layerwise_lr_decay and gradient_checkpointing are about training the encoder: use "
            f"{mode}=all or {mode}=lora": frozen and about_encoder,
            "max_length and pooling are those of the encoder object that was given": is_object
            and (self.max_length, self.pooling) != (None, None),
        }
        for message, is_refused in refused.items():
            if is_refused:
                raise TreelabelError(message)
