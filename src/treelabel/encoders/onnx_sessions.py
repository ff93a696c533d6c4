"""Graphs in ONNX Runtime on a CPU, with all their weights inside; nothing here needs torch.

ONNX Runtime would look for weights outside the graph (external data) in the working folder, and no checksum or
signature of a model covers such a file. So the format is read as far as that takes, without a further package; what is
no ONNX graph is refused too.

Texts of equal length form a batch, so that there is neither padding nor a mask, and as many batches run at a time as
there are threads. In int8 every text is a batch of its own: activations are scaled per batch, and the result of a text
must not depend on the texts beside it.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from treelabel.core.compute import in_threads, thread_count
from treelabel.core.errors import TreelabelError
from treelabel.core.types import FloatArray, LongArray
from treelabel.encoders.tokens import equal_batches

# The messages of onnx.proto that can hold a tensor, by the number of the field, down to the tensors themselves.
INSIDE: dict[str, dict[int, str]] = {
    "ModelProto": {7: "GraphProto", 20: "TrainingInfoProto", 25: "FunctionProto"},
    "TrainingInfoProto": {1: "GraphProto", 2: "GraphProto"},
    "FunctionProto": {7: "NodeProto", 11: "AttributeProto"},
    "GraphProto": {1: "NodeProto", 5: "TensorProto", 15: "SparseTensorProto"},
    "NodeProto": {5: "AttributeProto"},
    "AttributeProto": {
        5: "TensorProto",
        6: "GraphProto",
        10: "TensorProto",
        11: "GraphProto",
        22: "SparseTensorProto",
        23: "SparseTensorProto",
    },
    "SparseTensorProto": {1: "TensorProto", 2: "TensorProto"},
    "TensorProto": {},
}
# TensorProto.external_data, and TensorProto.data_location, which is 1 where the data are elsewhere.
EXTERNAL_DATA, DATA_LOCATION = 13, 14
# How the value of a field is written: a number of any length, 8 bytes, a length and as many bytes, or 4 bytes.
VARINT, EIGHT_BYTES, BYTES, FOUR_BYTES = 0, 1, 2, 5


def refuse_external_data(graph: bytes) -> None:
    """Raise TreelabelError unless all weights of an ONNX graph are in the graph itself.

    Initializers, tensors in attributes, sparse tensors, subgraphs, functions and training graphs are looked at.

    Parameters
    ----------
    graph
        The content of the file.
    """
    view, waiting = memoryview(graph), [("ModelProto", 0, len(graph))]
    while waiting:
        message, start, end = waiting.pop()
        fields = INSIDE[message]
        while start < end:
            tag, start = _number(view, start, end)
            # Readers keep 32 bits of a tag.
            number, kind = (tag & 0xFFFFFFFF) >> 3, tag & 7
            value, begin = 0, start
            if kind == VARINT:
                value, start = _number(view, start, end)
            elif kind == BYTES:
                value, begin = _number(view, start, end)
                start = begin + value
            elif kind in (EIGHT_BYTES, FOUR_BYTES):
                value, start = 1, start + (8 if kind == EIGHT_BYTES else 4)
            else:
                raise TreelabelError(_NO_GRAPH)
            if start > end or number == 0:
                raise TreelabelError(_NO_GRAPH)
            if message == "TensorProto" and (number == EXTERNAL_DATA or (number == DATA_LOCATION and value)):
                raise TreelabelError(
                    "the ONNX graph takes weights from another file (external data), which no checksum or signature "
                    "covers; expected a graph that holds all its weights: export it as one file"
                )
            if kind == BYTES and number in fields:
                waiting.append((fields[number], begin, start))


_NO_GRAPH = "damaged: no ONNX graph; export it again"


def _number(view: memoryview, start: int, end: int) -> tuple[int, int]:
    """Read a number of at most 10 bytes, 7 bits in each, the lowest first; return it and where it ends."""
    value = 0
    for shift, position in enumerate(range(start, min(end, start + 10))):
        value |= (view[position] & 0x7F) << (7 * shift)
        if view[position] < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, position + 1
    raise TreelabelError(_NO_GRAPH)


# Tokens per batch: with these, what passes between layers stays in the cache of a core.
MAX_TOKENS = 512


def open_session(graph: str | Path | bytes, threads: int | None = None) -> Any:
    """Open a graph; one with weights in other files is refused.

    Parameters
    ----------
    graph
        Its file, or the content of one.
    threads
        Threads that a run uses; by default `thread_count()`.

    Returns
    -------
    Any
        An `onnxruntime.InferenceSession`.
    """
    import onnxruntime

    # What was looked at is what is opened: not the file again, which may have changed.
    content = graph if isinstance(graph, bytes) else Path(graph).read_bytes()
    refuse_external_data(content)
    options = onnxruntime.SessionOptions()
    # Never ONNX Runtime's own format, whatever the first bytes pretend.
    options.add_session_config_entry("session.load_model_format", "ONNX")
    options.intra_op_num_threads = thread_count() if threads is None else threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def run_graph(running: Any, tokens: Sequence[Sequence[int]], width: int, int8: bool) -> FloatArray:
    """Run a graph that takes token ids (n × length) on texts of any length.

    Parameters
    ----------
    running
        A session of one thread: parallel batches never wait for each other.
    tokens
        The token ids of each text.
    width
        The number of columns that the graph returns.
    int8
        Whether the graph is quantised, so that every text runs alone.

    Returns
    -------
    FloatArray
        n × width.
    """
    rows = np.empty((len(tokens), width), np.float32)

    def run(batch: LongArray) -> None:
        ids = np.array([tokens[row] for row in batch], np.int64)
        rows[batch] = running.run(None, {"input_ids": ids})[0]

    in_threads(run, equal_batches([len(each) for each in tokens], 1 if int8 else MAX_TOKENS))
    return rows
