"""From a trained network to an ONNX graph with everything inside: backbone, pooling, outputs, probabilities."""

import tempfile
from pathlib import Path
from typing import Any, Literal

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from treelabel.core.errors import TreelabelError
from treelabel.encoders.backbone import load_backbone, load_tokenizer
from treelabel.encoders.onnx_export import export_checked, quantise
from treelabel.encoders.transformer import TransformerEncoder
from treelabel.neural.featurizers import (
    VECTOR_LENGTH,
    FrozenFeaturizer,
    StatesFeaturizer,
    TextFeaturizer,
    TokenFeaturizer,
)
from treelabel.neural.losses.base import Loss
from treelabel.neural.network import Network


class TextToProbabilities(nn.Module):
    """The probabilities of all nodes (n × nodes) from token ids (n × length) without padding.

    Parameters
    ----------
    network
        A network with a backbone.
    loss
        Turns logits into probabilities.
    temperature
        Logits are divided by it.
    scale
        Vectors of the backbone are multiplied by it.
    """

    def __init__(self, network: Network, loss: Loss, temperature: float, scale: float) -> None:
        super().__init__()
        self.network, self.loss, self.temperature, self.scale = network, loss, temperature, scale

    def forward(self, input_ids: Tensor) -> Tensor:
        """Return probabilities."""
        vectors = self.network.vectors(input_ids, torch.ones_like(input_ids))
        return self.loss.probabilities(self.network.outputs(self.scale * vectors) / self.temperature)


def network_from_tokens(network: Network, featurizer: TextFeaturizer) -> tuple[Network, float, Tokenizer, int]:
    """Return the network that starts at token ids, which frozen embeddings have been computed outside of.

    Also the scale of the backbone's vectors, the tokenizer, and the longest text in tokens.
    """
    if type(network) is not Network:
        raise TreelabelError("a model that decides level by level is no graph from tokens to probabilities")
    if isinstance(featurizer, TokenFeaturizer):
        return network, 1.0, featurizer.tokenizer, featurizer.max_length
    assert isinstance(featurizer, FrozenFeaturizer | StatesFeaturizer)
    encoder: Any = featurizer.encoder.encoder
    has_tfidf = isinstance(featurizer, FrozenFeaturizer) and featurizer.lsa is not None
    if has_tfidf or not isinstance(encoder, TransformerEncoder):
        what = "tf-idf" if has_tfidf else f"the encoder {encoder.name}"
        raise TreelabelError(f"a model with {what} is no graph of one transformer; export one without")
    source, takes_vectors = encoder.source, isinstance(featurizer, FrozenFeaturizer)
    pooling = source.pooling if takes_vectors else network.pooling
    whole = Network(load_backbone(source.folder), pooling, network.outputs, normalize=takes_vectors)
    scale = VECTOR_LENGTH if takes_vectors else 1.0
    return whole, scale, load_tokenizer(source.folder), source.max_length


def export_graph(
    network: Network, featurizer: TextFeaturizer, loss: Loss, temperature: float, runtime: Literal["onnx", "int8"]
) -> tuple[bytes, Tokenizer, int]:
    """Return a trained network as the content of an ONNX file, the tokenizer of its texts and their longest length.

    The graph is compared with torch before it is trusted; the runtime "int8" quantises it.
    """
    whole, scale, tokenizer, max_length = network_from_tokens(network, featurizer)
    module = TextToProbabilities(whole, loss, temperature, scale).eval()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.onnx"
        export_checked(module, whole.backbone, max_length, file, ("probabilities", "the model"))
        if runtime == "int8":
            quantise(file, Path(folder) / "int8.onnx")
            file = Path(folder) / "int8.onnx"
        graph = file.read_bytes()
    # A copy: saving the trained model turns truncation off in its own.
    truncating = Tokenizer.from_str(tokenizer.to_str())
    truncating.enable_truncation(max_length)
    return graph, truncating, max_length
