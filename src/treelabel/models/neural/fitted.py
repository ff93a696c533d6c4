"""A trained network with everything that scoring needs."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from treelabel.core.schema import Arrays
from treelabel.core.strings import Strings
from treelabel.losses.torch import require_exportable, torch_loss
from treelabel.models.neural.export import export_graph
from treelabel.models.neural.exported import ExportedNetwork
from treelabel.models.neural.featurizers import Featurizer, FrozenFeaturizer, TokenFeaturizer
from treelabel.models.neural.inputs import KnownVectors
from treelabel.models.neural.network import Network, compute_logits
from treelabel.models.neural.settings import NeuralSettings
from treelabel.models.objective import Objective
from treelabel.models.schema import require_width
from treelabel.scores import Scores


@dataclass(frozen=True, eq=False)
class FittedNetwork:
    """A trained network, how it sees texts, and what its logits mean once they are divided by the temperature."""

    objective: Objective
    featurizer: Featurizer
    network: Network
    temperature: float
    epoch_losses: tuple[float, ...]
    stopped: bool = False

    def score(self, texts: Strings) -> Scores:
        """Score texts, some thousands at a time."""
        parts, outputs = [], len(self.objective.loss.outputs)
        for rows in self.objective.portions(len(texts)):
            inputs = self.featurizer.inputs(texts.take(rows))
            if isinstance(inputs, KnownVectors):
                require_width(inputs.values, self.network.outputs.width, "neural")
            logits = compute_logits(self.network, self.featurizer.batches(inputs), inputs, outputs)
            parts.append(self.objective.scores(logits / self.temperature).values)
        return Scores.concat(self.objective.hierarchy, parts)

    def exported(self, runtime: Literal["onnx", "int8"]) -> ExportedNetwork:
        """Return the same network as an ONNX graph."""
        require_exportable(self.objective.loss)
        loss = torch_loss(self.objective.loss)
        graph, tokenizer, length = export_graph(self.network, self.featurizer, loss, self.temperature, runtime)
        return ExportedNetwork(self.objective, tokenizer, length, graph, runtime, self.epoch_losses)

    def state(self) -> tuple[dict[str, Any], Arrays]:
        """Return what is saved: values for JSON, and arrays."""
        values, arrays = self.featurizer.state(self.network)
        own = {"loss": self.objective.name, "temperature": self.temperature, "epoch_losses": list(self.epoch_losses)}
        of_objective: dict[str, Any] = {
            "stop_nodes": self.objective.stop_nodes,
            "frequencies": self.objective.frequencies,
        }
        return {**own, "featurizer": values}, {**arrays, **of_objective}

    def write_files(self, folder: Path) -> None:
        """Write what is too large for JSON and arrays."""
        self.featurizer.write_files(self.network, folder)

    @classmethod
    def restored(
        cls, settings: NeuralSettings, objective: Objective, values: dict[str, Any], arrays: Arrays, folder: Path
    ) -> "FittedNetwork":
        """Read what was saved.

        Parameters
        ----------
        settings
            The settings of the model.
        objective
            What the network was trained for.
        values, arrays
            What `state` returned.
        folder
            Where `write_files` wrote.

        Returns
        -------
        FittedNetwork
            The same network.
        """
        featurizer: Featurizer
        if settings.trained_part == "head":
            featurizer, network = FrozenFeaturizer.restored(settings.encoder_spec, values["featurizer"], arrays)
        else:
            featurizer, network = TokenFeaturizer.restored(values["featurizer"], folder)
        objective.require_outputs(network.outputs.linear.out_features)
        losses = tuple(values["epoch_losses"])
        return cls(objective, featurizer, network.eval(), float(values["temperature"]), losses)
