"""From a trained model to an ONNX graph with everything inside: transformer, pooling, outputs, probability map."""

import tempfile
from pathlib import Path
from typing import Any, Literal

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from treelabel.core.errors import TreelabelError
from treelabel.encoders.backbone import load_body, load_tokenizer
from treelabel.encoders.onnx import export_checked, quantise
from treelabel.encoders.transformer import TransformerEncoder
from treelabel.losses.torch_losses import TorchLoss, torch_loss
from treelabel.models.neural.exported import Exported
from treelabel.models.neural.learning import Learned
from treelabel.models.neural.network import Network
from treelabel.models.neural.readers import LENGTH, Frozen, Trained


class Whole(nn.Module):
    """Probabilities of all nodes (n × nodes) of token ids (n × length) without padding."""

    def __init__(self, network: Network, cost: TorchLoss, slope: float, scale: float) -> None:
        super().__init__()
        self.network, self.cost, self.slope, self.scale = network, cost, slope, scale

    def forward(self, input_ids: Tensor) -> Tensor:
        """Run everything."""
        vectors = self.network.vectors(input_ids, torch.ones_like(input_ids))
        return self.cost.probabilities(self.slope * self.network.outputs(self.scale * vectors))


def export_learned(learned: Learned, runtime: Literal["onnx", "int8"]) -> Exported:
    """Export what was learned; the graph is checked against torch before it is trusted."""
    network, scale, tokenizer, length = whole_network(learned)
    whole = Whole(network, torch_loss(learned.objective.loss), learned.slope, scale).eval()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.onnx"
        export_checked(whole, network.body, length, file, ("probabilities", "the model"))
        if runtime == "int8":
            quantise(file, Path(folder) / "int8.onnx")
            file = Path(folder) / "int8.onnx"
        graph = file.read_bytes()
    # A copy: the model that it was made of goes on with its own.
    own = Tokenizer.from_str(tokenizer.to_str())
    own.enable_truncation(length)
    return Exported(learned.objective, own, length, graph, runtime, learned.seen)


def whole_network(learned: Learned) -> tuple[Network, float, Tokenizer, int]:
    """The network from token ids on, what its vectors are multiplied by, the tokenizer, and the length of texts."""
    reader = learned.reader
    if isinstance(reader, Trained):
        return learned.network, 1.0, reader.tokenizer, reader.max_length
    assert isinstance(reader, Frozen)
    encoder: Any = reader.encoder.encoder
    if reader.lsa is not None or not isinstance(encoder, TransformerEncoder):
        what = "tf-idf" if reader.lsa is not None else f"the encoder {encoder.name}"
        raise TreelabelError(f"a model with {what} is no graph of one transformer; export one without")
    source = encoder.source
    network = Network(load_body(source.place), source.pooling, learned.network.outputs, unit=True)
    return network, LENGTH, load_tokenizer(source.place), source.max_length
