"""A trained network with everything that scoring needs."""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from treelabel.core.array_schema import Arrays
from treelabel.core.errors import TreelabelError
from treelabel.core.strings import Strings
from treelabel.encoders.backbone import load_backbone, load_tokenizer
from treelabel.encoders.onnx_export import export_checked, quantise
from treelabel.encoders.registry import same_encoder
from treelabel.encoders.token_states import TokenStates
from treelabel.encoders.transformer import Embedder, TransformerEncoder
from treelabel.models.extreme.label_tree import LabelTree
from treelabel.models.persistence.schema import require_width
from treelabel.neural.exported_network import ExportedNetwork
from treelabel.neural.featurizers import (
    VECTOR_LENGTH,
    FrozenFeaturizer,
    KnownVectors,
    StatesFeaturizer,
    TextFeaturizer,
    TokenFeaturizer,
)
from treelabel.neural.losses.base import Loss
from treelabel.neural.network import Network, NetworkSpec
from treelabel.neural.network_settings import NetworkSettings
from treelabel.neural.objective import Objective, portions_of
from treelabel.neural.weight_files import (
    load_weights,
    read_config,
    read_weights,
    untrained_backbone,
    verify_backbone,
    verify_tokenizer,
    write_weights,
)
from treelabel.scores.score_matrix import Scores
from treelabel.selection.evidence import Stage


@dataclass(frozen=True, eq=False)
class FittedNetwork:
    """A trained network, how it sees texts, and what its logits mean once they are divided by the temperature."""

    objective: Objective
    featurizer: TextFeaturizer
    network: Network
    temperature: float
    epoch_losses: tuple[float, ...]
    # The width of what the network sees, and whether its weights over a frozen encoder are in a file.
    width: int
    has_file: bool
    stages: tuple[Stage, ...] = ()

    def score(self, texts: Strings, top: int | None = None) -> Scores:
        """Score texts, some thousands at a time.

        Parameters
        ----------
        top
            Keep only so many of the largest scores of each text, of a network that ranks candidates.

        Returns
        -------
        Scores
            The probability of every node.
        """
        parts = []
        for rows in self.objective.portions(len(texts)) if top is None else portions_of(len(texts)):
            inputs = self.featurizer.inputs(texts.take(rows))
            if isinstance(inputs, KnownVectors | TokenStates):
                require_width(inputs.values, self.width, "neural")
            batches = self.featurizer.batches(inputs)
            parts.append(self.network.score(batches, inputs, self.objective, self.temperature, top).values)
        return Scores.concat(self.objective.hierarchy, parts)

    def export(self, runtime: Literal["onnx", "int8"]) -> ExportedNetwork:
        """Return the same network as an ONNX graph, which is compared with torch before it is trusted."""
        embedder, scale, tokenizer, max_length = embedder_of(self.network, self.featurizer)
        loss = self.objective.spec.build()
        module = TextToProbabilities(embedder, scale, self.network.outputs, self.temperature, loss)
        with tempfile.TemporaryDirectory() as folder:
            file, int8 = Path(folder) / "model.onnx", Path(folder) / "int8.onnx"
            export_checked(module, embedder.backbone, max_length, file, ("probabilities", "the model"))
            if runtime == "int8":
                quantise(file, int8)
            graph = (int8 if runtime == "int8" else file).read_bytes()
        # A copy: saving the trained model turns truncation off in its own.
        truncating = Tokenizer.from_str(tokenizer.to_str())
        truncating.enable_truncation(max_length)
        return ExportedNetwork(self.objective, truncating, max_length, graph, runtime, self.epoch_losses)

    def state(self) -> tuple[dict[str, Any], Arrays]:
        """Return what is saved: values for JSON, and arrays."""
        values, arrays = self.featurizer.state()
        if self.has_file and not isinstance(self.featurizer, TokenFeaturizer):
            values = {**values, "width": self.width}
        if not self._in_file:
            arrays = {**arrays, **{name: value.numpy() for name, value in self.network.state_dict().items()}}
        described = {
            "loss": self.objective.name,
            "temperature": self.temperature,
            "epoch_losses": list(self.epoch_losses),
            "featurizer": values,
        }
        return described, {**arrays, **self.network.arrays(), **self.objective.arrays()}

    def write_files(self, folder: Path) -> None:
        """Write what is too large for JSON and arrays."""
        if self._in_file:
            write_weights(self.network, folder)
        if isinstance(self.featurizer, TokenFeaturizer):
            self.featurizer.write_files(self.network.backbone, folder)

    @property
    def _in_file(self) -> bool:
        return self.has_file or isinstance(self.featurizer, TokenFeaturizer)

    @classmethod
    def restore(
        cls, model: NetworkSettings, objective: Objective, stored: tuple[dict[str, Any], Arrays], folder: Path
    ) -> "FittedNetwork":
        """Read what was saved, without running any of it.

        Parameters
        ----------
        model
            Its settings, and how its network is made.
        objective
            What the network was trained for.
        stored
            What `state` returned.
        folder
            Where `write_files` wrote.
        """
        values, arrays = stored
        featurizer: TextFeaturizer
        is_frozen = model.trained_part == "head"
        if not is_frozen:
            featurizer = TokenFeaturizer.restore(values["featurizer"], folder)
        elif model.takes_states:
            featurizer = StatesFeaturizer.of(same_encoder(model.encoder_spec, values["featurizer"]["encoder"]))
        else:
            featurizer = FrozenFeaturizer.restore(model.encoder_spec, values["featurizer"], arrays)
        if model.has_file or not is_frozen:
            weights = read_weights(folder)
        else:
            weights = {name: torch.from_numpy(array) for name, array in arrays.items() if name.startswith("outputs.")}
        first = weights.get("outputs.hidden.weight", weights.get("outputs.linear.weight"))
        width = int(values["featurizer"].get("width", 0 if first is None or first.ndim != 2 else first.shape[1]))
        tree = LabelTree.of(arrays) if "tree_labels" in arrays else None
        spec = NetworkSpec(objective, width, None, featurizer.pooling, 0.0, model.hidden_size, tree=tree)
        network = restore_network(model, spec, weights, None if is_frozen else read_config(folder, weights))
        if isinstance(featurizer, TokenFeaturizer):
            verify_tokenizer(featurizer, network.backbone)
            verify_backbone(network.eval().backbone)
        temperature, losses = float(values["temperature"]), tuple(values["epoch_losses"])
        return cls(objective, featurizer, network.eval(), temperature, losses, width, model.has_file)


def restore_network(
    model: NetworkSettings, spec: NetworkSpec, weights: Mapping[str, Tensor], config: dict[str, Any] | None
) -> Network:
    """Make the network that scores, and load its weights, which are verified first."""

    def made() -> Network:
        if config is None:
            return model.make_scoring_network(spec)
        backbone = untrained_backbone(config)
        return model.make_scoring_network(replace(spec, backbone=backbone, width=int(backbone.config.hidden_size)))

    # On the device "meta", tensors are shapes without memory: wrong weights are refused before it is allocated.
    with torch.device("meta"):
        load_weights(made(), weights)
    network = made()
    load_weights(network, weights)
    return network


class TextToProbabilities(nn.Module):
    """The probabilities of all nodes (n × nodes) from token ids (n × length) without padding.

    Parameters
    ----------
    embedder
        From token ids to vectors, which are multiplied by `scale`.
    outputs
        From vectors to logits, which are divided by `temperature`.
    loss
        Turns logits into probabilities.
    """

    def __init__(self, embedder: Embedder, scale: float, outputs: nn.Module, temperature: float, loss: Loss) -> None:
        super().__init__()
        self.embedder, self.outputs, self.loss = embedder, outputs, loss
        self.scale, self.temperature = scale, temperature

    def forward(self, input_ids: Tensor) -> Tensor:
        """Return probabilities."""
        vectors = self.embedder(input_ids, torch.ones_like(input_ids))
        return self.loss.probabilities(self.outputs(self.scale * vectors) / self.temperature)


def embedder_of(network: Network, featurizer: TextFeaturizer) -> tuple[Embedder, float, Tokenizer, int]:
    """Return what makes vectors of token ids, also where a frozen encoder has computed them outside of the network.

    Also the scale of the vectors, the tokenizer, and the longest text in tokens.
    """
    if type(network) is not Network:
        raise TreelabelError("a model that decides level by level is no graph from tokens to probabilities")
    if isinstance(featurizer, TokenFeaturizer):
        embedder = Embedder(network.backbone, network.pooling, normalize=False)
        return embedder, 1.0, featurizer.tokenizer, featurizer.max_length
    assert isinstance(featurizer, FrozenFeaturizer | StatesFeaturizer)
    encoder: Any = featurizer.encoder.encoder
    takes_vectors = isinstance(featurizer, FrozenFeaturizer)
    has_tfidf = isinstance(featurizer, FrozenFeaturizer) and featurizer.lsa is not None
    if has_tfidf or not isinstance(encoder, TransformerEncoder):
        what = "tf-idf" if has_tfidf else f"the encoder {encoder.name}"
        raise TreelabelError(f"a model with {what} is no graph of one transformer; export one without")
    source = encoder.source
    pooling = source.pooling if takes_vectors else network.pooling
    embedder = Embedder(load_backbone(source.folder), pooling, normalize=takes_vectors)
    return embedder, VECTOR_LENGTH if takes_vectors else 1.0, load_tokenizer(source.folder), source.max_length
