"""Models that train a network: what all of them share (`NeuralModel`), and the plain one, `neural`.

torch is imported when something is fitted or loaded, not before: an exported model needs none to score.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from treelabel.core.array_schema import Arrays, Schema
from treelabel.core.errors import TreelabelError, require_extra
from treelabel.core.strings import Strings
from treelabel.models.base import Training
from treelabel.models.settings import Width, WidthOrNone, not_fitted
from treelabel.neural.exported_network import ExportedNetwork
from treelabel.neural.network_schema import ExportedValues, NetworkValues, saved_schema
from treelabel.neural.network_settings import Mode, NetworkSettings
from treelabel.neural.objective import Objective
from treelabel.neural.training_arguments import Recipe, make_recipes
from treelabel.scores.score_matrix import Scores
from treelabel.selection.evidence import HeldOut, Stage

if TYPE_CHECKING:
    from treelabel.neural.fitted_network import FittedNetwork
    from treelabel.neural.network import Network, NetworkSpec


@dataclass(eq=False, repr=False)
class NeuralModel(NetworkSettings):
    """A model that trains a network over a text encoder, and scores with it; a subclass says which network.

    Its settings are those of `NetworkSettings`; a subclass is a dataclass that adds fields of its own.
    """

    learned: ClassVar[Any] = NetworkValues
    fitted_: "FittedNetwork" = field(init=False)

    # Learning and scoring

    def _fit(self, train: Training) -> HeldOut | None:
        with require_extra("neural", f"the model {self.name}"):
            from treelabel.neural.fitting import fit_network

            self.fitted_, held = fit_network(self, train)
        return held

    def _stages(self) -> Sequence[Stage]:
        return self.fitted_.stages

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
        self._check_settings()
        if "featurizer" in values:
            self._require_mode("encoder" in values["featurizer"])
        return saved_schema(self.hierarchy_, values, None if self.has_file else self.hidden_size > 0)

    def _require_mode(self, is_frozen: bool) -> None:
        """Refuse a folder whose settings say that another part was trained."""
        if is_frozen != (self.trained_part == "head"):
            mode = getattr(self, self.mode_setting)
            raise TreelabelError(f"{self.mode_setting}={mode} does not fit what was learned")

    def _restore(self, values: dict[str, Any], arrays: Arrays) -> None:
        # The network is in files of its own: see `_read_files`.
        self._stored = values, arrays

    def _write_files(self, folder: Path) -> None:
        self.fitted_.write_files(folder)

    def _read_files(self, folder: Path) -> None:
        values, arrays = self.__dict__.pop("_stored")
        objective = Objective.restore(values["loss"], self.hierarchy_, arrays, self.loss_params)
        with require_extra("neural", f"the model {self.name}"):
            if "runtime" in values:
                # Of `Neural` alone: `learned` of others has none.
                self.fitted_ = ExportedNetwork.restore(objective, values, folder)  # type: ignore[assignment]
                return
            from treelabel.neural.fitted_network import FittedNetwork

            self.fitted_ = FittedNetwork.restore(self, objective, (values, arrays), folder)

    def export(self, runtime: Literal["onnx", "int8"] = "onnx") -> "Neural":
        """Return the model as an ONNX graph from token ids to probabilities, which needs no torch to score.

        Parameters
        ----------
        runtime
            "onnx" returns the same scores to 1e-4; "int8" has weights of eight bits, is about twice as fast, and is
            less accurate.

        Returns
        -------
        Neural
            A fitted model; a graph is one whichever network it was made of.
        """
        if runtime not in ("onnx", "int8"):
            raise TreelabelError(f"expected the runtime onnx or int8, found {runtime!r}")
        if not hasattr(self, "fitted_"):
            raise not_fitted(f"this {self.name} model has not learned anything yet; call fit before export")
        if isinstance(self.fitted_, ExportedNetwork):
            raise TreelabelError("this model is an ONNX graph already; export the model that it was made of")
        graph = Neural(
            **{name: value for name, value in self.get_params(deep=False).items() if name in SHARED_SETTINGS}
        )
        graph.train = self.trained_part
        # All that was learned besides the network.
        vars(graph).update({name: value for name, value in vars(self).items() if name.endswith("_")})
        with require_extra("neural", "exporting a model"):
            graph.fitted_ = self.fitted_.export(runtime)
        return graph


@dataclass(eq=False, repr=False)
class Neural(NeuralModel):
    """A transformer and a linear layer over all nodes, trained with any loss of LOSSES.

    Frozen, an epoch costs documents × width × outputs; fine-tuned, documents × tokens × the encoder's parameters × 6.
    Conditional losses cost a document only the siblings along its path.

    Parameters
    ----------
    hierarchy, encoder, loss_params, max_length, pooling, dropout, training, seed
        See `NeuralModel`.
    loss
        A loss of LOSSES; "auto" chooses one that suits the labels.
    train
        What is trained: the `mode` of `NeuralModel`.
    hidden_size
        The width of a hidden layer before the outputs; 0 for none.
    tfidf, lsa_components
        Whether tf-idf, reduced to `lsa_components` columns, stands alongside frozen embeddings.
    """

    name = "neural"
    learned: ClassVar[Any] = NetworkValues | ExportedValues
    fitted_: "FittedNetwork | ExportedNetwork" = field(init=False)  # type: ignore[assignment]
    mode_setting = "train"
    has_file = False
    recipes = make_recipes(Recipe(30, 128, 5e-3), 2e-5)

    loss: str = "auto"
    # Called `train` here.
    mode: Mode = field(default="auto", init=False)
    train: Mode = "auto"
    hidden_size: WidthOrNone = 0
    tfidf: bool = False
    lsa_components: Width = 512

    @property
    def tfidf_columns(self) -> int:  # type: ignore[override]
        """The columns of reduced tf-idf alongside frozen embeddings."""
        return self.lsa_components if self.tfidf else 0

    def make_network(self, spec: "NetworkSpec") -> "Network":
        """Make a network with linear outputs, after a hidden layer if there is one."""
        from treelabel.neural.network import LinearOutputs, Network

        outputs = LinearOutputs(spec.width, spec.outputs, spec.hidden_size, spec.dropout)
        return Network(spec.backbone, spec.pooling, outputs)


# The settings that an exported model keeps of the one that it was made of.
SHARED_SETTINGS = {*Neural.setting_names()} - {"train"}
