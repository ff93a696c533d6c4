"""ONNX: exporting a module with ONNX Runtime's own attention, dynamic int8, and sessions on a CPU."""

import inspect
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from treelabel.compute import thread_count
from treelabel.files import whole_file

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


def quantise(source: str | Path, target: str | Path) -> None:
    """Write a graph whose weights are int8, with a scale a column, and whose activations become so as they come."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with _quiet(), whole_file(target) as temporary:
        # A scale a column costs no time, and errs a tenth as much as one scale a matrix.
        quantize_dynamic(str(source), str(temporary), weight_type=QuantType.QInt8, per_channel=True)


def session(file: str | Path, threads: int | None = None) -> Any:
    """Open a graph on the CPU; it runs in so many threads, as many as all else does unless told otherwise."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = thread_count() if threads is None else threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])


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
        yield
    finally:
        body.set_attn_implementation(before)


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
    if attention_mask is not None:
        inputs += [None, attention_mask.to(torch.int32)]
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
