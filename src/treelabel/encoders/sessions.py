"""Graphs in ONNX Runtime on a CPU; nothing here needs torch.

Texts of equal length form a batch, so that there is neither padding nor a mask, and as many batches run at a time as
there are threads. In int8 every text is a batch of its own: activations are scaled per batch, and the result of a text
must not depend on the texts beside it.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from treelabel.core.compute import in_threads, thread_count
from treelabel.core.types import FloatArray, LongArray
from treelabel.encoders.batches import equal_batches
from treelabel.encoders.external_data import refuse_external_data

# Tokens per batch: with these, what passes between layers stays in the cache of a core.
MAX_TOKENS = 512


def session(graph: str | Path | bytes, threads: int | None = None) -> Any:
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
    found = np.empty((len(tokens), width), np.float32)

    def run(batch: LongArray) -> None:
        ids = np.array([tokens[at] for at in batch], np.int64)
        found[batch] = running.run(None, {"input_ids": ids})[0]

    in_threads(run, equal_batches([len(each) for each in tokens], 1 if int8 else MAX_TOKENS))
    return found
