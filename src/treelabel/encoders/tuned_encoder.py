"""An encoder whose last layers were trained on the texts of one model: only these are stored, beside the model."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from treelabel.core.errors import TreelabelError
from treelabel.core.types import FloatArray
from treelabel.encoders.onnx_sessions import open_session
from treelabel.encoders.protocol import Encoder
from treelabel.encoders.registry import encoder_note, same_encoder
from treelabel.encoders.transformer import TransformerEncoder

Weights = Mapping[str, Tensor]
# The files of the weights, and of a graph that was exported, in a model's folder.
WEIGHTS, GRAPH = "tuned.safetensors", "tuned.onnx"


class TunedEncoder(TransformerEncoder):
    """A transformer with other weights in its last layers; it runs as the transformer does: torch, ONNX or int8.

    Parameters
    ----------
    base
        The transformer that was tuned.
    digest
        The `weights_digest` of the weights, which is part of the fingerprint.
    weights
        The weights by their names in the transformer; None where `read` will bring them.
    graph_digest
        The hash of a graph that is stored beside the weights; None where graphs are made when they are needed.
    """

    def __init__(
        self, base: TransformerEncoder, digest: str, weights: Weights | None = None, graph_digest: str | None = None
    ) -> None:
        super().__init__(base.source, base.runtime)
        self.base, self.digest, self.weights, self.graph_digest = base, digest, weights, graph_digest
        self.stored_graph: bytes | None = None
        self._exact += f" tuned {digest}"
        self.fingerprint += f" tuned {digest}"
        # Makes vectors while a model learns, of states that are known: they are not for the cache, as states are in
        # float16, and a fold's encoder is used once.
        self.by_states: Callable[[Sequence[str]], FloatArray] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Return everything but what was loaded, and what training knows."""
        return {**super().__getstate__(), "by_states": None}

    @property
    def keeps_rows(self) -> bool:
        """Whether vectors are worth keeping on disk: not those of training."""
        return self.by_states is None

    def transform(self, texts: Sequence[str]) -> FloatArray:
        """Return one row per text (n × width)."""
        return super().transform(texts) if self.by_states is None else self.by_states(texts)

    def load_backbone(self) -> Any:
        """Load the transformer, and put the tuned weights in their place."""
        if self.weights is None:
            raise TreelabelError(f"the encoder {self.name} is tuned, but its weights were not read")
        backbone = super().load_backbone()
        current = backbone.state_dict()
        for name, value in self.weights.items():
            if name not in current or current[name].shape != value.shape:
                shape = tuple(current[name].shape) if name in current else "missing"
                raise TreelabelError(
                    f"{name} of the tuned encoder is {tuple(value.shape)}, but in {self.source.name} it is {shape}"
                )
        backbone.load_state_dict(dict(self.weights), strict=False)
        return backbone

    def export(self, runtime: Literal["onnx", "int8"]) -> "TunedEncoder":
        """Return the encoder as a graph that is stored with it, so that nothing is exported where it is loaded."""
        made = TunedEncoder(TransformerEncoder(self.source, runtime), self.digest, self.weights)
        made.stored_graph = (made.quantised_graph() if runtime == "int8" else made.graph()).read_bytes()
        made.graph_digest = hashlib.sha256(made.stored_graph).hexdigest()
        return made

    def _session(self) -> Any:
        return super()._session() if self.stored_graph is None else open_session(self.stored_graph, threads=1)

    @property
    def files(self) -> tuple[str, ...]:
        """The files that `write` writes."""
        return (WEIGHTS,) if self.graph_digest is None else (WEIGHTS, GRAPH)

    def note(self) -> dict[str, Any]:
        """Return what a model folder records of the encoder, for `restore`."""
        graph = {} if self.graph_digest is None else {"graph": self.graph_digest}
        return {"base": encoder_note(self.base), "digest": self.digest, **graph}

    @classmethod
    def restore(cls, requested: "str | Encoder | None", note: Mapping[str, Any]) -> "TunedEncoder":
        """Make the encoder of a note; `read` brings its weights.

        Parameters
        ----------
        requested
            The encoder in the model's settings; None finds it by its name.
        note
            What `note` returned.

        Returns
        -------
        TunedEncoder
        """
        base = same_encoder(requested, note["base"])
        if not isinstance(base, TransformerEncoder):
            raise TreelabelError(f"the encoder {base.name} was tuned, but is no transformer")
        return cls(base, note["digest"], graph_digest=note.get("graph"))

    def write(self, folder: Path) -> None:
        """Write the weights as safetensors, and the graph if there is one."""
        assert self.weights is not None
        save_file({name: value.contiguous() for name, value in self.weights.items()}, folder / WEIGHTS)
        if self.stored_graph is not None:
            (folder / GRAPH).write_bytes(self.stored_graph)

    def read(self, folder: Path) -> None:
        """Read what `write` wrote; other weights than those that the model was fitted with are refused."""
        try:
            weights = load_file(folder / WEIGHTS)
        except (SafetensorError, OSError) as error:
            raise TreelabelError(f"{WEIGHTS} holds no weights, or is damaged: {error}") from error
        digest = weights_digest(weights)
        if digest != self.digest:
            raise TreelabelError(f"{WEIGHTS} holds other weights ({digest}) than the model has learned ({self.digest})")
        self.weights = weights
        if self.graph_digest is not None:
            graph = (folder / GRAPH).read_bytes()
            if hashlib.sha256(graph).hexdigest() != self.graph_digest:
                raise TreelabelError(f"{GRAPH} is not the graph that the model was exported with; export it again")
            self.stored_graph = graph


def weights_digest(weights: Weights) -> str:
    """Hash weights: their names, shapes and numbers; what is no finite float32 is refused."""
    hashed = hashlib.sha256()
    for name in sorted(weights):
        value = weights[name].detach().cpu().contiguous()
        if value.dtype != torch.float32 or not torch.isfinite(value).all():
            raise TreelabelError(f"{name} of a tuned encoder holds what is no finite number of 32 bits")
        hashed.update(f"{name} {tuple(value.shape)} ".encode())
        hashed.update(value.numpy().tobytes())
    return hashed.hexdigest()[:32]
