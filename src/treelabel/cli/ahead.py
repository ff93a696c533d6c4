"""First use: a second process compiles the loops that learning ends with, while this one reads and begins."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from treelabel.core.child_python import child_python


@contextmanager
def compiling_ahead(model: str) -> Iterator[None]:
    """Compile in a second process, as long as the block takes, where a model's loops are not in the cache yet.

    Whatever happens to that process, this one compiles what is missing itself.
    """
    process = _start() if model == "linear" else None
    try:
        yield
    finally:
        if process is not None:
            process.terminate()
            process.wait()


def _start() -> "subprocess.Popen[bytes] | None":
    from treelabel.calibration.path_kernels import score_paths
    from treelabel.core.code_cache import is_cached
    from treelabel.core.compute import thread_count

    if thread_count() < 2 or is_cached(score_paths):
        return None
    nothing = subprocess.DEVNULL
    command = child_python("-m", "treelabel.models.linear.warm_up")
    try:
        return subprocess.Popen(command, stdin=nothing, stdout=nothing, stderr=nothing)
    except OSError:
        return None
