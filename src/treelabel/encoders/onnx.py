"""ONNX: exporting a module with ONNX Runtime's own attention, and dynamic int8."""

import inspect
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from treelabel.core.errors import TreelabelError
from treelabel.core.outputs import whole_file
from treelabel.encoders.sessions import session

# Values of a row that share a scale, and how ONNX Runtime calls computing with them in int8.
BLOCK = 256
IN_INT8 = 4
# How far a graph may be from torch.
CLOSE = 1e-4
# What transformers know the attention by that ONNX Runtime computes in one node.
FUSED = "treelabel_onnx"


def export(
    module: nn.Module,
    inputs: tuple[Tensor, ...],
    file: str | Path,
    names: tuple[Sequence[str], Sequence[str]],
    axes: Mapping[int, str],
) -> None:
    """Write a module's graph, whose inputs all have the given free axes; `names` are those of inputs and of outputs.

    Axes of the example inputs that are free must have a length of 2 or more: a length of 1 would be taken for a rule.
    An output must not have the name of anything inside, such as "embedding".
    """
    parameters = list(inspect.signature(module.forward).parameters)[: len(inputs)]
    with _quiet(), torch.inference_mode():
        program = torch.onnx.export(
            module.eval(),
            inputs,
            dynamo=True,
            verbose=False,
            input_names=list(names[0]),
            output_names=list(names[1]),
            dynamic_shapes={name: dict(axes) for name in parameters},
        )
        assert program is not None
        with whole_file(file) as temporary:
            program.save(str(temporary))


def export_checked(module: nn.Module, body: Any, longest: int, file: Path, names: tuple[str, str]) -> None:
    """Write the graph of a module from token ids on, with fused attention if that gives what torch gives, else without.

    `body` is the transformer inside, `longest` how many tokens it takes; `names` are the output's, and what messages
    call the module.
    """
    module.eval()
    size = int(body.config.vocab_size)
    draw = torch.Generator().manual_seed(0)
    # The upper half of a vocabulary has no special tokens; the whole length would show a window of attention.
    ids = torch.randint(size // 2, size, (2, longest), generator=draw)
    with torch.inference_mode():
        expected = module(ids).numpy()
    axes = {0: "texts", 1: "tokens"}
    for fuse in (True, False):
        before = body.config._attn_implementation
        if not fuse:
            body.set_attn_implementation("eager")
        with fused_attention(body) if fuse else nullcontext():
            export(module, (ids[:, :16],), file, (["input_ids"], [names[0]]), axes)
        body.set_attn_implementation(before)
        found = session(file).run(None, {"input_ids": ids.numpy()})[0]
        error = float(np.abs(found - expected).max())
        if error <= CLOSE * max(1.0, float(np.abs(expected).max())):
            return
    file.unlink()
    raise TreelabelError(f"{names[1]} gives other numbers by {error:.2g} as an ONNX graph than by torch; use torch")


def quantise(source: str | Path, target: str | Path) -> None:
    """Write a graph whose weights are int8, and whose activations become so as they come.

    A matrix has a scale a column, and what it is multiplied with one scale a batch. Where a layer narrows, and takes
    what an activation function gave, a few large values would leave the others few steps: such matrices and their
    inputs have a scale for every block of a row. That halves the error, at a tenth of the gain in time.
    """
    import onnx as formats
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    graph = formats.load(str(source))
    narrowing = _narrowing(graph.graph)
    # Quantising turns weights around, and then trips over the shapes that the exporter noted down; without these it
    # does not know what the fused attention gives.
    del graph.graph.value_info[:]
    known = {"DefaultTensorType": formats.TensorProto.FLOAT}
    plain = {"weight_type": QuantType.QInt8, "per_channel": True, "extra_options": known}
    with _quiet(), whole_file(target) as temporary:
        quantize_dynamic(graph, str(temporary), nodes_to_exclude=narrowing, **plain)
        if narrowing:
            blocks = MatMulNBitsQuantizer(
                formats.load(str(temporary)),
                bits=8,
                block_size=BLOCK,
                is_symmetric=True,
                accuracy_level=IN_INT8,
                nodes_to_include=narrowing,
            )
            blocks.process()
            formats.save(blocks.model.model, str(temporary))


def _narrowing(graph: Any) -> list[str]:
    """The products with matrices that have at least twice as many rows as columns, and two blocks of them."""
    shapes = {weight.name: list(weight.dims) for weight in graph.initializer}
    found = []
    for node in graph.node:
        shape = shapes.get(node.input[1], []) if node.op_type == "MatMul" else []
        if len(shape) == 2 and shape[0] >= max(2 * shape[1], 2 * BLOCK):
            found.append(str(node.name))
    return found


@contextmanager
def fused_attention(body: Any) -> Iterator[None]:
    """Let a transformer's attention be one node of ONNX Runtime while it is exported; torch gives nonsense meanwhile.

    Masks are those of texts (n × length, 1 where a token is) or none. Transformers with other masks or an attention of
    their own come out wrong or unchanged, so compare what a graph gives with what torch gives.
    """
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(FUSED, _attention)
    AttentionMaskInterface.register(FUSED, _mask_of_texts)
    before = body.config._attn_implementation
    body.set_attn_implementation(FUSED)
    try:
        with _biases_inside(body):
            yield
    finally:
        body.set_attn_implementation(before)


@contextmanager
def _biases_inside(body: nn.Module) -> Iterator[None]:
    """Take the biases of queries, keys and values out of BERT's layers: the fused attention adds them as it goes."""
    taken: list[tuple[Any, list[Any], list[Any]]] = []
    for module in body.modules():
        layers: list[Any] = [getattr(module, name, None) for name in ("query", "key", "value")]
        if all(isinstance(layer, nn.Linear) and layer.bias is not None for layer in layers):
            taken.append((module, layers, [layer.bias for layer in layers]))
    try:
        for module, layers, biases in taken:
            module.fused_bias = torch.cat([bias.detach() for bias in biases])
            for layer in layers:
                layer.bias = None
        yield
    finally:
        for module, layers, biases in taken:
            del module.fused_bias
            for layer, bias in zip(layers, biases, strict=True):
                layer.bias = bias


def _mask_of_texts(*_: Any, attention_mask: Tensor | None = None, **__: Any) -> Tensor | None:
    return attention_mask


def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Stand for softmax(scaling·QKᵀ)V with heads side by side: n × heads × length × width in, n × length × ... out."""
    n, heads, length, width = query.shape
    inputs: list[Tensor | None] = [x.transpose(1, 2).reshape(n, -1, heads * width) for x in (query, key, value)]
    inputs.append(getattr(module, "fused_bias", None))
    if attention_mask is not None:
        inputs.append(attention_mask.to(torch.int32))
    joined = torch.onnx.ops.symbolic(
        "com.microsoft::MultiHeadAttention",
        inputs,
        {"num_heads": heads, "scale": float(width**-0.5 if scaling is None else scaling)},
        dtype=query.dtype,
        shape=(n, length, heads * width),
        version=1,
    )
    return joined.reshape(n, length, heads, width), None


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep what exporters say about other libraries and about themselves to themselves."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
