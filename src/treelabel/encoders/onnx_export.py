"""ONNX: exporting a module with ONNX Runtime's own attention, and dynamic int8."""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from treelabel.core.atomic_output import atomic_file
from treelabel.core.errors import TreelabelError
from treelabel.encoders.backbone import quiet
from treelabel.encoders.onnx_sessions import open_session

# The values of a row that share a scale, and ONNX Runtime's accuracy level for products in int8.
BLOCK_SIZE = 256
INT8_ACCURACY_LEVEL = 4
# The largest relative difference between a graph and torch.
TOLERANCE = 1e-4
# The name by which transformers knows the attention that ONNX Runtime computes in one node.
FUSED = "treelabel_onnx"


def export(
    module: nn.Module,
    inputs: tuple[Tensor, ...],
    file: str | Path,
    names: tuple[Sequence[str], Sequence[str]],
    axes: Mapping[int, str],
) -> None:
    """Write the graph of a module to a file.

    Parameters
    ----------
    inputs
        Example inputs. Their dynamic axes must have a length of 2 or more: a length of 1 would become a constant.
    file
        The file to write.
    names
        The names of inputs and of outputs. An output must not have the name of anything inside, such as "embedding".
    axes
        The dynamic axes of every input, by number.
    """
    parameters = list(inspect.signature(module.forward).parameters)[: len(inputs)]
    with quiet(), torch.inference_mode():
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
        with atomic_file(file) as temporary:
            program.save(str(temporary))


def export_checked(module: nn.Module, backbone: Any, max_length: int, file: Path, names: tuple[str, str]) -> None:
    """Write the graph of a module from token ids on, and compare it with torch.

    Attention is fused if that returns what torch returns, else exported as it is; a graph that differs from torch even
    then is refused.

    Parameters
    ----------
    module
        A module that takes token ids, n × length.
    backbone
        The transformer inside.
    max_length
        The most tokens that it takes.
    file
        The file to write.
    names
        The name of the output, and the module's in messages.
    """
    module.eval()
    size = int(backbone.config.vocab_size)
    draw = torch.Generator().manual_seed(0)
    # The upper half of a vocabulary has no special tokens; the full length would reveal windowed attention.
    ids = torch.randint(size // 2, size, (2, max_length), generator=draw)
    with torch.inference_mode():
        expected = module(ids).numpy()
    axes = {0: "texts", 1: "tokens"}
    for fuse in (True, False):
        before = backbone.config._attn_implementation
        if not fuse:
            backbone.set_attn_implementation("eager")
        with fused_attention(backbone) if fuse else nullcontext():
            export(module, (ids[:, :16],), file, (["input_ids"], [names[0]]), axes)
        backbone.set_attn_implementation(before)
        vectors = open_session(file).run(None, {"input_ids": ids.numpy()})[0]
        error = float(np.abs(vectors - expected).max())
        if error <= TOLERANCE * max(1.0, float(np.abs(expected).max())):
            return
    file.unlink()
    raise TreelabelError(f"{names[1]} gives other numbers by {error:.2g} as an ONNX graph than by torch; use torch")


def quantise(source: str | Path, target: str | Path) -> None:
    """Write the graph of a file to another with weights in int8 and activations quantised dynamically.

    A matrix has one scale per column, and the activations that it multiplies one per batch. Where a layer narrows,
    after an activation function, a few large values would leave few steps to all others: such matrices and their inputs
    have one scale per block of a row. That halves the error, at a tenth of the gain in time.

    Parameters
    ----------
    source
        The file of a graph.
    target
        The file to write.
    """
    import onnx as formats
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    graph = formats.load(str(source))
    narrowing = _narrowing(graph.graph)
    # Quantising transposes weights and then fails on the shapes that the exporter recorded; without these it has to be
    # told the type of the fused attention's output.
    del graph.graph.value_info[:]
    known = {"DefaultTensorType": formats.TensorProto.FLOAT}
    plain = {"weight_type": QuantType.QInt8, "per_channel": True, "extra_options": known}
    with quiet(), atomic_file(target) as temporary:
        quantize_dynamic(graph, str(temporary), nodes_to_exclude=narrowing, **plain)
        if narrowing:
            blocks = MatMulNBitsQuantizer(
                formats.load(str(temporary)),
                bits=8,
                block_size=BLOCK_SIZE,
                is_symmetric=True,
                accuracy_level=INT8_ACCURACY_LEVEL,
                nodes_to_include=narrowing,
            )
            blocks.process()
            formats.save(blocks.model.model, str(temporary))


def _narrowing(graph: Any) -> list[str]:
    """Return the products with matrices that have at least twice as many rows as columns, and two blocks of rows."""
    shapes = {weight.name: list(weight.dims) for weight in graph.initializer}
    names = []
    for node in graph.node:
        shape = shapes.get(node.input[1], []) if node.op_type == "MatMul" else []
        if len(shape) == 2 and shape[0] >= max(2 * shape[1], 2 * BLOCK_SIZE):
            names.append(str(node.name))
    return names


@contextmanager
def fused_attention(backbone: Any) -> Iterator[None]:
    """Export a transformer's attention as one node of ONNX Runtime; what torch computes meanwhile is meaningless.

    Masks are padding masks (n × length, 1 where there is a token) or none. Transformers with other masks or their own
    attention come out wrong or unchanged, so compare the graph with torch.
    """
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(FUSED, _attention)
    AttentionMaskInterface.register(FUSED, _padding_mask)
    before = backbone.config._attn_implementation
    backbone.set_attn_implementation(FUSED)
    try:
        with _biases_inside(backbone):
            yield
    finally:
        backbone.set_attn_implementation(before)


@contextmanager
def _biases_inside(backbone: nn.Module) -> Iterator[None]:
    """Move the biases of queries, keys and values of BERT's layers into the fused attention, which adds them itself."""
    taken: list[tuple[Any, list[Any], list[Any]]] = []
    for module in backbone.modules():
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


def _padding_mask(*_: Any, attention_mask: Tensor | None = None, **__: Any) -> Tensor | None:
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
    """Stand in for softmax(scaling·QKᵀ)V: n × heads × length × width in, n × length × heads × width out."""
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
