"""Graphs in ONNX Runtime on a CPU, with all their weights inside; nothing here needs torch.

ONNX Runtime would look for weights outside the graph (external data) in the working folder, and no checksum or
signature of a model covers such a file. So graphs are read before they are opened; what is no ONNX graph is refused
too.

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


def refuse_external_data(graph: bytes) -> None:
    """Raise TreelabelError unless all weights of an ONNX graph are in the graph itself.

    Parameters
    ----------
    graph
        The content of an ONNX file.
    """
    import onnx
    from google.protobuf.message import DecodeError

    try:
        waiting: list[Any] = [onnx.ModelProto.FromString(graph)]
    except DecodeError as error:
        raise TreelabelError("damaged: no ONNX graph; export it again") from error
    while waiting:
        message = waiting.pop()
        if isinstance(message, onnx.TensorProto) and (message.external_data or message.data_location):
            raise TreelabelError(
                "the ONNX graph takes weights from another file (external data), which no checksum or signature "
                "covers; expected a graph that holds all its weights: export it as one file"
            )
        for field, value in message.ListFields():
            if field.message_type is not None:
                waiting += value if isinstance(value, Sequence) else [value]


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
