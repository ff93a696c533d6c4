"""Count the files that a reader passes in following the main job from a CSV to a table of metrics, call by call.

    python tools/count_walk.py    # print how many files, and which

The job runs on a part of the embedded sample: `read` a CSV, `fit` the default model, `score`, `decide`, `evaluate`,
`table`. A file counts if one of its functions is called. The job runs once before, so that neither importing modules
nor compiling loops counts. Loops that Python calls count as functions do; those that they call count by their
names.
"""

import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np

import treelabel
from treelabel.core.compute import Loop

PACKAGE = Path(treelabel.__file__).resolve().parent
DOCUMENTS = 400


def files_called(job: Callable[[], object], folder: Path = PACKAGE) -> list[str]:
    """Run a job and list the files whose functions it calls, compiled loops included.

    Parameters
    ----------
    job
        What to run; what it returns is dropped.
    folder
        Only files below it count.

    Returns
    -------
    list of str
        Their paths relative to the folder, sorted.
    """
    called: set[CodeType] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_name != "<module>":
            # A loop runs outside Python, once it is compiled.
            is_loop = frame.f_code is Loop.__call__.__code__
            called.add(frame.f_locals["self"].py_func.__code__ if is_loop else frame.f_code)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        job()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    files = {Path(code.co_filename) for code in called | _loops_within(called, folder)}
    return sorted(str(file.relative_to(folder)) for file in files if file.is_relative_to(folder))


def _loops_within(called: Iterable[CodeType], folder: Path) -> set[CodeType]:
    """Return the compiled loops that called ones call by name, and so on."""
    loops = {loop.py_func.__code__: loop.py_func for loop in _loops(folder)}
    waiting = [loops[code] for code in called if code in loops]
    found: set[CodeType] = set()
    while waiting:
        function = waiting.pop()
        for name in function.__code__.co_names:
            inner = getattr(function.__globals__.get(name), "py_func", None)
            code = getattr(inner, "__code__", None)
            if isinstance(code, CodeType) and code in loops and code not in found:
                found.add(code)
                waiting.append(loops[code])
    return found


def _loops(folder: Path) -> Iterator[Any]:
    """Yield the compiled loops of all modules that are imported from a folder."""
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if file is not None and Path(file).is_relative_to(folder):
            yield from (value for value in vars(module).values() if hasattr(value, "py_func"))


def main_job(file: Path) -> str:
    """Run the main job on a CSV file, as the README shows it, and return the table of metrics."""
    data = treelabel.read(file)
    model = treelabel.make_model("linear").fit(data)
    scores = model.score(data.texts)
    decisions = treelabel.decide(scores, "optimal:hf1")
    result = treelabel.evaluate(data, scores=scores, decisions=decisions, metrics=["hf1", "hf1_auc"])
    return str(result.table())


def write_sample(folder: Path) -> Path:
    """Write a part of the embedded sample as CSV, labels as paths."""
    data, file = treelabel.load_sample(), folder / "train.csv"
    rows = np.random.default_rng(0).permutation(len(data))[:DOCUMENTS]
    treelabel.write(data[np.sort(rows)], file, taxonomy=False)
    return file


def main() -> None:
    """Print the number of files and their names."""
    with tempfile.TemporaryDirectory(prefix="treelabel-walk-") as folder:
        file = write_sample(Path(folder))
        # A profiler sees only threads that begin after it, and another number of threads is another pool.
        os.environ["TREELABEL_THREADS"] = "1"
        main_job(file)
        os.environ["TREELABEL_THREADS"] = "2"
        files = files_called(lambda: main_job(file))
    print(f"{len(files)} files")
    print("\n".join(f"  {name}" for name in files))


if __name__ == "__main__":
    main()
