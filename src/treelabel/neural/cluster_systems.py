"""APLC-XLNet and X-Transformer as models: systems for very many labels, which they put into clusters.

torch is imported when something is fitted or loaded.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from treelabel.core.array_schema import Schema
from treelabel.core.errors import TreelabelError, require_extra
from treelabel.core.strings import Strings
from treelabel.core.validation import Between
from treelabel.models.base import Training
from treelabel.models.extreme.cluster_ranking import Negatives
from treelabel.models.extreme.clustering import LabelEmbedding
from treelabel.models.settings import Cost, WidthOrNone
from treelabel.neural.config import Recipe
from treelabel.neural.saved import XTransformerValues, x_transformer_schema
from treelabel.neural.systems import System
from treelabel.scores import Scores
from treelabel.selection.evidence import HeldOut

if TYPE_CHECKING:
    from treelabel.neural.architecture import Architecture
    from treelabel.neural.x_transformer import FittedXTransformer


def require_own_loss(model: System) -> None:
    """Refuse another loss for a system that has one of its own."""
    if model.loss != "bce" or model.loss_params:
        raise TreelabelError(f"the model {model.name} has a loss of its own: leave out loss and loss_params")


class AplcXlnet(System):
    """APLC-XLNet (Ye et al., ICML 2020): adaptive probabilistic label clusters over any encoder.

    Labels are sorted by frequency and cut into a head and tails, whose labels share a gate and see a narrower
    projection of the text: an epoch costs documents × hidden_size × labels for the head and less for each tail, of
    which only those with true labels are trained. `AplcNetwork` says what differs from the paper. encoder="scratch" is
    a small XLNet. Where the encoder is fine-tuned, the official rates are the defaults: 5e-5 for the encoder, 1e-4 for
    the hidden layer and 2e-3 for clusters (discriminative fine-tuning; `learning_rates` has others). Over a frozen one
    they are 1e-3 and 3e-3, and ten epochs do, since training starts at the base rates of labels.

    Parameters
    ----------
    tail_clusters
        The number of tails, each with as many labels as the head: 1 to 3 in the paper, more for more labels.
    div_value
        The quotient of the widths of projections of a cluster and the next one.
    hidden_size
        The width of the hidden layer over text vectors; 0 is that of the encoder.
    lr_scheduler
        "slanted" (triangular), or another one of `neural`.
    **settings
        The settings of all systems: see `Neural`, and `System` for `mode`.
    """

    name = "aplc_xlnet"
    recipes: ClassVar[Mapping[Recipe, tuple[int, int, float]]] = {
        "head": (10, 64, 3e-3),
        "lora": (20, 16, 2e-4),
        "all": (20, 16, 5e-5),
        "scratch": (20, 16, 1e-3),
    }
    outputs_rate = 2e-3

    def __init__(
        self,
        *,
        tail_clusters: Annotated[int, Between(1, 100)] = 1,
        div_value: Annotated[float, Between(1, 1e6)] = 2.0,
        hidden_size: WidthOrNone = 0,
        lr_scheduler: Literal["linear", "slanted", "constant"] = "slanted",
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        self.tail_clusters = tail_clusters
        self.div_value = div_value
        self.hidden_size = hidden_size
        self.lr_scheduler = lr_scheduler

    def _group_rates(self, recipe: Recipe) -> Mapping[str, float]:
        hidden: dict[Recipe, float] = {"head": 1e-3, "lora": 1e-4, "all": 1e-4}
        own = {"hidden": hidden[recipe]} if recipe in hidden else {}
        return {**super()._group_rates(recipe), **own}

    def _check_settings(self) -> None:
        super()._check_settings()
        require_own_loss(self)

    def _architecture(self) -> "Architecture":
        from treelabel.neural.aplc_xlnet import AplcNetwork
        from treelabel.neural.architecture import Architecture

        make = partial(AplcNetwork, tail_clusters=self.tail_clusters, div_value=self.div_value)
        return Architecture(make, identity=self._identity(), has_stops=True, only_seen=True, scratch="xlnet")


class XTransformer(System):
    """X-Transformer (Chang et al., KDD 2020): a network finds clusters of labels, linear rankers the labels in them.

    Labels are put into clusters of the same size by their features. An encoder learns which clusters a text has labels
    in (squared hinge; with mode="head", outputs over its frozen embeddings). Each label has a linear ranker of tf-idf
    and the text vector side by side. A text is ranked in its best `beam_size` clusters, and labels of other clusters
    have no score: scoring costs the encoder and beam_size × labels of a cluster, however many labels there are. Margins
    become probabilities by a sigmoid that is fitted to held-out documents. Differences from the paper: a cluster counts
    once for a document, however many of its labels the document has; and see `mode`, for a CPU affords no three large
    encoders.

    Parameters
    ----------
    label_embeddings
        The features of labels: "pifa-tfidf", the mean tf-idf of their documents, or "text-emb", embeddings of their
        names by the encoder, which must be a pretrained one. With several, one after the other is learned, each with
        its own clusters, network and rankers, and probabilities are averaged; the same one may be there several times.
    n_clusters
        The number of clusters; 0 chooses one by which clusters have from 25 to 100 labels.
    beam_size
        Clusters that a text is ranked in, and that its negatives are taken from.
    negatives
        The documents that the rankers of a cluster learn from: "gold", those with labels in it (teacher forcing);
        "matcher", those that have it among their best `beam_size`; or "both".
    C
        The inverse of the regularisation of rankers.
    **settings
        The settings of all systems: see `Neural`, and `System` for `mode`.
    """

    name = "x_transformer"
    learned: ClassVar[Any] = XTransformerValues
    fitted_: "FittedXTransformer"  # type: ignore[assignment]
    recipes: ClassVar[Mapping[Recipe, tuple[int, int, float]]] = {
        "head": (30, 128, 5e-3),
        "lora": (20, 16, 2e-4),
        "all": (20, 16, 5e-5),
        "scratch": (20, 16, 1e-3),
    }
    outputs_rate = 1e-3

    def __init__(
        self,
        *,
        label_embeddings: tuple[LabelEmbedding, ...] = ("pifa-tfidf",),
        n_clusters: Annotated[int, Between(0, 1 << 24)] = 0,
        beam_size: Annotated[int, Between(1, 1 << 16)] = 10,
        negatives: Negatives = "both",
        C: Cost = 1.0,  # noqa: N803
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        self.label_embeddings = label_embeddings
        self.n_clusters = n_clusters
        self.beam_size = beam_size
        self.negatives = negatives
        self.C = C

    def _check_settings(self) -> None:
        super()._check_settings()
        require_own_loss(self)
        if not self.label_embeddings:
            raise TreelabelError(
                "the setting label_embeddings of the model x_transformer is empty; expected one at least"
            )
        if "text-emb" in self.label_embeddings and self.encoder == "scratch":
            raise TreelabelError("label_embeddings=text-emb needs an encoder that knows words already, found scratch")

    def _fit(self, train: Training) -> HeldOut | None:
        settings = self._with_encoder()
        with require_extra("neural", f"the model {self.name}"):
            from treelabel.neural.x_transformer import Options, fit_x_transformer

            options = Options(**{**self._own(), "label_embeddings": tuple(self.label_embeddings)})
            self.fitted_, held = fit_x_transformer(settings, options, train, self._identity())
        return held

    def _score_top(self, texts: Strings, top: int) -> Scores:
        return self.fitted_.score(texts, top)

    @property
    def exhaustive(self) -> bool:
        """Every label has a probability of its own."""
        return False

    def exported(self, runtime: Literal["onnx", "int8"] = "onnx") -> Self:
        """Refuse: rankers are no part of a network."""
        raise TreelabelError("the model x_transformer ranks by sparse tf-idf, which is no graph of one transformer")

    # Saving

    def _schema(self, values: dict[str, Any]) -> Schema:
        settings = self._settings()
        settings.check(self.name, self.part_setting)
        if len(values["indexings"]) > len(self.label_embeddings):
            raise TreelabelError(f"there are {len(values['indexings'])} indexings, more than label_embeddings names")
        for own in values["indexings"]:
            if ("encoder" in own["matcher"]["featurizer"]) != (settings.trained_part == "head"):
                raise TreelabelError(f"{self.part_setting}={settings.train} does not fit what was learned")
        return x_transformer_schema(self.hierarchy_, values)

    def _read_files(self, folder: Path) -> None:
        stored = self.__dict__.pop("_stored")
        with require_extra("neural", f"the model {self.name}"):
            from treelabel.neural.x_transformer import FittedXTransformer

            self.fitted_ = FittedXTransformer.restored(
                self._settings(), self.hierarchy_, self.beam_size, stored, folder
            )
