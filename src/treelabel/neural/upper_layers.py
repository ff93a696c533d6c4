"""The last layers of a transformer as a network of their own, which takes the states below them."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from treelabel.core.types import FloatArray
from treelabel.encoders.backbone import keep_layers, layers_of, pool
from treelabel.encoders.token_states import TokenStates
from treelabel.encoders.tokens import token_batches
from treelabel.encoders.transformer import TransformerEncoder
from treelabel.neural.backbones import parameter_depths
from treelabel.neural.hardware import threads_for
from treelabel.neural.weight_files import copy_to_cpu

# Tokens that pass the layers at a time.
MAX_TOKENS = 1024


class UpperLayers(nn.Module):
    """The last layers of a transformer and its pooling: the states below them to vectors.

    The transformer itself is called, on tokens that do not matter, and its first layer gets the states instead of what
    would come from below: masks and positions are its own affair.

    Parameters
    ----------
    encoder
        The transformer.
    layers
        How many of its last layers.
    backbone
        The transformer as it was loaded, whose other layers are removed; None loads it.
    """

    def __init__(self, encoder: TransformerEncoder, layers: int, backbone: Any = None) -> None:
        super().__init__()
        self.source = encoder.source
        backbone = encoder.load_backbone() if backbone is None else backbone
        last = len(layers_of(backbone)) - layers
        names = {id(parameter): name for name, parameter in backbone.named_parameters()}
        trained = {names[id(parameter)]: parameter for parameter, depth in parameter_depths(backbone) if depth > last}
        for parameter in backbone.parameters():
            parameter.requires_grad_(False)
        for parameter in trained.values():
            parameter.requires_grad_(True)
        self.trained = trained
        keep_layers(backbone, slice(last, None))
        layers_of(backbone)[0].register_forward_pre_hook(self._replace, with_kwargs=True)
        self.backbone = backbone
        self._states: Tensor | None = None

    def _replace(self, _: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        if inputs:
            return (self._states, *inputs[1:]), named
        return inputs, {**named, "hidden_states": self._states}

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        """Return vectors (n × width) of states (n × length × width) and their mask (n × length)."""
        self._states = states
        hidden = self.backbone(input_ids=torch.zeros_like(mask), attention_mask=mask).last_hidden_state
        self._states = None
        vectors = pool(hidden, mask, self.source.pooling)
        return functional.normalize(vectors, dim=1) if self.source.normalize else vectors

    def weights(self) -> dict[str, Tensor]:
        """Return copies of what is trained, by its names in the whole transformer."""
        return copy_to_cpu(self.trained)

    def embed(self, states: TokenStates) -> FloatArray:
        """Return one vector per text, in batches of similar length."""
        device = next(iter(self.trained.values())).device
        rows = np.zeros((len(states), states.width), np.float32)
        with torch.inference_mode(), threads_for(self):
            for batch in token_batches(states.lengths.tolist(), MAX_TOKENS):
                values, mask = states.batch(batch)
                rows[batch] = self(values.to(device), mask.to(device)).cpu().numpy()
        return rows
