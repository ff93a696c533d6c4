"""The hierarchy-aware systems HiTIN, HGCLR and HBGL as models: their settings, and how each makes its network.

All are trained, saved and loaded as the model `neural` is. torch is imported when something is fitted or loaded.
"""

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, get_args

from treelabel.core.errors import TreelabelError
from treelabel.core.strings import Strings
from treelabel.core.validation import Between
from treelabel.encoders.protocol import Encoder
from treelabel.encoders.sources import Pooling
from treelabel.hierarchy import Hierarchy
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
    not_fitted,
)
from treelabel.neural.config import NOT_OF_THE_RUN, Recipe
from treelabel.neural.exported import ExportedNetwork
from treelabel.neural.model import Neural
from treelabel.neural.settings import NeuralSettings

if TYPE_CHECKING:
    from treelabel.neural.architecture import Architecture

NodePooling = Literal["sum", "mean", "max"]
Mode = Literal["auto", "head", "lora", "all"]
Positive = Annotated[int, Between(1, 1 << 16)]
Temperature = Annotated[float, Between(1e-6, 1e6)]


class System(Neural):
    """A system with a network of its own.

    The settings are those of `neural`, with `mode` for `train`: "head" trains over a frozen encoder, "all" fine-tunes
    it, "lora" trains matrices of low rank beside its own, and "auto" is "all" for a small one from scratch, else
    "head", which is what a CPU can afford.

    Where an encoder is fine-tuned, all but the encoder learns at a rate of 1e-3 unless a rate is given: after the few
    epochs that a CPU affords it would hardly have moved at the encoder's. (The official programs have 1e-4 for HiTIN,
    and 3e-5 for all of HGCLR and HBGL.) `gradient_accumulation_steps` changes results, unlike those of `neural`: HGCLR
    contrasts and HiTIN normalises within a part of a batch.

    A subclass takes its own settings by name and hands all others on (`**settings`).
    """

    has_file = True
    part_setting = "mode"
    # (epochs, batch_size, learning_rate) of each recipe, and the rate of all but the encoder where it is fine-tuned.
    recipes: ClassVar[Mapping[Recipe, tuple[int, int, float]]]
    outputs_rate: ClassVar[float]
    # The settings that other systems do not have.
    own_settings: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        hierarchy: Hierarchy | None = None,
        encoder: str | Encoder | None = None,
        loss: str = "bce",
        loss_params: Mapping[str, float] | None = None,
        mode: Mode = "auto",
        max_length: Annotated[int, Between(3, 1 << 20)] | None = None,
        pooling: Pooling | None = None,
        epochs: Passes | None = None,
        batch_size: Count | None = None,
        learning_rate: LearningRate | None = None,
        learning_rates: Mapping[str, float] | None = None,
        warmup_ratio: Share = 0.1,
        weight_decay: NonNegative = 0.01,
        gradient_accumulation_steps: Count = 1,
        gradient_checkpointing: bool = False,
        patience: Passes = 5,
        dropout: PartialShare | None = None,
        lora_rank: Width = 8,
        validation_fraction: PartialShare = 0.1,
        checkpoint_dir: str | None = None,
        checkpoint_seconds: Seconds = 300.0,
        callbacks: tuple[Any, ...] = (),
        seed: Seed = 0,
    ) -> None:
        super().__init__(
            hierarchy,
            encoder,
            loss,
            loss_params,
            mode,
            max_length=max_length,
            pooling=pooling,
            epochs=epochs,
            batch_size=batch_size,
            learning_rate=learning_rate,
            learning_rates=learning_rates,
            warmup_ratio=warmup_ratio,
            weight_decay=weight_decay,
            gradient_accumulation_steps=gradient_accumulation_steps,
            gradient_checkpointing=gradient_checkpointing,
            patience=patience,
            dropout=dropout,
            lora_rank=lora_rank,
            validation_fraction=validation_fraction,
            checkpoint_dir=checkpoint_dir,
            checkpoint_seconds=checkpoint_seconds,
            callbacks=callbacks,
            seed=seed,
        )
        self.mode = mode

    def __init_subclass__(cls) -> None:
        """Show the settings of all systems in the signature of one, as scikit-learn and `treelabel models` read it.

        Otherwise every system would have to repeat two dozen of them.
        """
        own, common = inspect.signature(cls.__init__), inspect.signature(System.__init__)
        named = [each for each in own.parameters.values() if each.kind is inspect.Parameter.KEYWORD_ONLY]
        cls.own_settings = tuple(each.name for each in named)
        init: Any = cls.__init__
        init.__signature__ = common.replace(parameters=[*common.parameters.values(), *named])
        init.__annotations__ = {**System.__init__.__annotations__, **cls.__init__.__annotations__}

    def _own(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.own_settings}

    def _identity(self) -> str:
        """Return the system and its settings, as far as they change what is learned."""
        left_out = {*self.unsaved, *NOT_OF_THE_RUN}
        own = {name: value for name, value in self.get_params(deep=False).items() if name not in left_out}
        return f"{self.name} {sorted(own.items())}"

    def _group_rates(self, recipe: Recipe) -> Mapping[str, float]:
        """Return the learning rates of groups of parameters that differ from that of the recipe."""
        return {} if recipe in ("head", "scratch") else dict.fromkeys(("hidden", "outputs"), self.outputs_rate)

    def _settings(self) -> NeuralSettings:
        """Return the settings, with the system's own defaults."""
        if self.mode not in get_args(Mode):
            expected = ", ".join(get_args(Mode))
            raise TreelabelError(
                f"the setting mode of the model {self.name} is {self.mode!r}; expected one of: {expected}"
            )
        given = replace(NeuralSettings.of(self), train=self.mode)
        recipe: Recipe = "scratch" if given.encoder == "scratch" else given.trained_part
        epochs, batch_size, rate = self.recipes[recipe]
        # A rate that is given is that of all parts.
        own = {} if given.learning_rate else self._group_rates(recipe)
        return replace(
            given,
            epochs=epochs if given.epochs is None else given.epochs,
            batch_size=batch_size if given.batch_size is None else given.batch_size,
            learning_rate=rate if given.learning_rate is None else given.learning_rate,
            learning_rates={**own, **(given.learning_rates or {})},
        )


class Hitin(System):
    """HiTIN (Zhu et al., ACL 2023): a tree isomorphism network over the coding tree of the labels.

    The labels are put into a coding tree of a given height by minimising its structural entropy. The vector of a text
    becomes a feature of every label; features are summed up the tree, level by level, and logits are linear in what
    the levels hold. `TreeIsomorphismOutputs` says what differs from the paper. With mode="head", the vector is the
    embedding of a frozen encoder, and nothing else differs.

    Parameters
    ----------
    height
        The height of the coding tree.
    tree_size
        The width of features in the tree; the paper has that of the encoder, which costs a CPU minutes per epoch.
    tree_pooling
        How the nodes of a level become one vector.
    recursive_regularization
        The weight of |W_child - W_parent|^2 / 2 over the output weights of all edges, beside a loss that is a mean over
        labels, as in the official program.
    **settings
        The settings of all systems: see `Neural`, and `System` for `mode`.
    """

    name = "hitin"
    recipes: ClassVar[Mapping[Recipe, tuple[int, int, float]]] = {
        "head": (30, 128, 5e-3),
        "lora": (20, 16, 2e-4),
        "all": (20, 16, 2e-5),
        "scratch": (20, 16, 1e-3),
    }
    outputs_rate = 1e-3

    def __init__(
        self,
        *,
        height: Annotated[int, Between(1, 100)] = 2,
        tree_size: Positive = 128,
        tree_pooling: NodePooling = "sum",
        recursive_regularization: NonNegative = 0.0,
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        self.height = height
        self.tree_size = tree_size
        self.tree_pooling = tree_pooling
        self.recursive_regularization = recursive_regularization

    def _architecture(self) -> "Architecture":
        from treelabel.neural.architecture import Architecture
        from treelabel.neural.hitin import HitinNetwork

        return Architecture(partial(HitinNetwork, **self._own()), identity=self._identity())


class Hgclr(System):
    """HGCLR (Wang et al., ACL 2022): contrastive learning with positive samples that the hierarchy chooses.

    In training every text is read twice, as it is and with only the words that matter for its labels, and both
    readings are drawn together; scoring needs the text encoder and the outputs alone. `HgclrNetwork` says what differs
    from the paper. With mode="head", words are token states of a frozen encoder, and the second reading pools those
    that were chosen.

    Parameters
    ----------
    contrastive_weight
        The weight of the contrast (the paper's lambda).
    threshold
        The importance above which a word is kept (the paper's gamma).
    contrastive_temperature, gumbel_temperature
        The temperatures of NT-Xent, and of Gumbel-softmax.
    log_probabilities
        Whether words are sampled by the logarithm of their probabilities, as Gumbel-softmax is meant, and not by the
        probabilities themselves, as in the official program.
    word_heads
        The heads of the attention from words to labels, which costs texts × words × labels × heads: with a thousand
        labels it is what a CPU spends its time on, and 1 is affordable.
    **settings
        The settings of all systems: see `Neural`, and `System` for `mode`.
    """

    name = "hgclr"
    takes_states = True
    recipes: ClassVar[Mapping[Recipe, tuple[int, int, float]]] = {
        "head": (30, 32, 3e-3),
        "lora": (20, 16, 2e-4),
        "all": (20, 16, 3e-5),
        "scratch": (20, 16, 1e-3),
    }
    outputs_rate = 1e-3

    def __init__(
        self,
        *,
        contrastive_weight: NonNegative = 0.3,
        threshold: Annotated[float, Between(-1, 1e6)] = 0.002,
        contrastive_temperature: Temperature = 1.0,
        gumbel_temperature: Temperature = 1.0,
        log_probabilities: bool = False,
        word_heads: Positive = 8,
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        self.contrastive_weight = contrastive_weight
        self.threshold = threshold
        self.contrastive_temperature = contrastive_temperature
        self.gumbel_temperature = gumbel_temperature
        self.log_probabilities = log_probabilities
        self.word_heads = word_heads

    def _architecture(self) -> "Architecture":
        from treelabel.neural.architecture import Architecture
        from treelabel.neural.hgclr import HgclrNetwork, scoring_network

        own = self._own()
        make = partial(HgclrNetwork, temperature=own.pop("contrastive_temperature"), **own)
        return Architecture(make, self.takes_states, True, self._identity(), scoring_network)


class Hbgl(System):
    """HBGL (Jiang et al., EMNLP 2022): labels are written after the text, level by level.

    Embeddings of labels first learn to predict masked labels of the hierarchy. Then the labels of each level are
    predicted from the text and the labels above, true ones in training and predicted ones in scoring. `HbglNetwork`
    says what differs from the paper; memory is linear in the number of labels. With mode="head", a small decoder
    attends to token states of a frozen encoder. Trained with binary cross-entropy (loss="bce") alone.

    Parameters
    ----------
    global_steps, global_learning_rate, global_mask, global_batch_size
        Steps of the first stage, their learning rate, the share of labels that are masked, and how often each sequence
        of labels is masked in a step (32 times in the official program, which a CPU does not afford).
    slot_mask
        The probability that the true labels of a level are hidden from the levels below in training.
    decoder_size
        The width of the decoder with mode="head", at most that of the encoder; its cost grows with it.
    **settings
        The settings of all systems: see `Neural`, and `System` for `mode`.
    """

    name = "hbgl"
    takes_states = True
    recipes: ClassVar[Mapping[Recipe, tuple[int, int, float]]] = {
        "head": (30, 32, 3e-3),
        "lora": (20, 16, 2e-4),
        "all": (20, 16, 3e-5),
        "scratch": (20, 16, 1e-3),
    }
    outputs_rate = 1e-3

    def __init__(
        self,
        *,
        global_steps: Annotated[int, Between(0, 1_000_000)] = 300,
        global_learning_rate: Annotated[float, Between(1e-12, 1e6)] = 1e-3,
        global_mask: Share = 0.15,
        global_batch_size: Positive = 4,
        slot_mask: Share = 0.5,
        decoder_size: Positive = 128,
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        self.global_steps = global_steps
        self.global_learning_rate = global_learning_rate
        self.global_mask = global_mask
        self.global_batch_size = global_batch_size
        self.slot_mask = slot_mask
        self.decoder_size = decoder_size

    def _check_settings(self) -> None:
        super()._check_settings()
        if self.loss != "bce":
            raise TreelabelError(f"the model hbgl is trained with the loss bce, found {self.loss!r}")

    def _architecture(self) -> "Architecture":
        from treelabel.neural.architecture import Architecture
        from treelabel.neural.hbgl import HbglNetwork

        return Architecture(partial(HbglNetwork, **self._own()), self.takes_states, True, self._identity())

    def sequences(self, texts: Iterable[str]) -> list[list[list[str]]]:
        """Return what the paper predicts: the labels that are written at each level of each text, up to its end."""
        from treelabel.neural.hbgl import written_labels

        if not hasattr(self, "fitted_"):
            raise not_fitted("this hbgl model has not learned anything yet; call fit first")
        names, fitted = self.hierarchy_.names, self.fitted_
        if isinstance(fitted, ExportedNetwork):
            raise TreelabelError("an exported model gives probabilities only; use the model that it was made of")
        written = written_labels(fitted.network, fitted.featurizer, Strings.of(list(texts)))
        return [[[names[node] for node in level] for level in levels] for levels in written]
