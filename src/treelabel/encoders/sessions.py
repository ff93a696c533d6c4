"""Graphs in ONNX Runtime on a CPU; nothing here needs torch.

Texts of equal length go together, so that there is neither padding nor a mask, and as many batches run at a time as
there are threads. In int8 a text is a batch of its own: the scale of activations is that of the batch, and what a text
gives must not depend on the texts beside it.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from treelabel.core.compute import FloatArray, LongArray, thread_count
from treelabel.encoders.batches import equal_batches

# Tokens at a time: with these, what passes between layers stays in the cache of a core.
TOKENS = 512


def session(graph: str | Path | bytes, threads: int | None = None) -> Any:
    """Open a graph, a file or its bytes; it runs in so many threads, as many as all else does unless told otherwise."""
    import onnxruntime

    given = graph if isinstance(graph, bytes) else str(graph)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = thread_count() if threads is None else threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(given, options, providers=["CPUExecutionProvider"])


def run_graph(running: Any, tokens: Sequence[Sequence[int]], width: int, int8: bool) -> FloatArray:
    """Give one row of `width` a text: what a graph that takes token ids (n × length) says of each.

    The session has one thread: nothing ever waits for another.
    """
    found = np.empty((len(tokens), width), np.float32)

    def run(batch: LongArray) -> None:
        ids = np.array([tokens[at] for at in batch], np.int64)
        found[batch] = running.run(None, {"input_ids": ids})[0]

    with ThreadPoolExecutor(thread_count()) as threads:
        for _ in threads.map(run, equal_batches([len(each) for each in tokens], 1 if int8 else TOKENS)):
            pass
    return found
