"""Compile the loops of the common commands at once, when a command has to compile some.

They are compiled by these commands themselves, run on a tiny file in processes beside the one that needs a loop. So
they are compiled for the types that they are called with, and a later command compiles nothing. Whatever happens to
these processes, the command compiles what it misses itself.
"""

import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from treelabel.core.child_python import child_python
from treelabel.core.compilation import compilation

LABELS = ("A > B", "A > C", "D > E", "D > F")
# With fewer, fit does not choose features.
ROWS = 240
# Settings of fit whose model explains by pieces of words, too.
CHARACTERS = ("--set", "ngram_range=(1, 1)", "--set", "char_ngram_range=(4, 4)", "--set", "head=nodes")


@contextmanager
def compile_together(say: Callable[[str], object]) -> Iterator[None]:
    """Let the block be a command: if it compiles for long, so are the loops of all common commands, before it ends.

    Parameters
    ----------
    say
        Gets the message that loops are compiled, once.
    """
    processes: list[subprocess.Popen[bytes]] = []

    def start(message: str) -> None:
        say(message)
        if not is_warm():
            processes.extend(start_processes())

    try:
        with compilation.announce(start):
            yield
            if processes:
                # What the command has printed is read in the meantime, if anybody still reads it.
                with suppress(OSError):
                    sys.stdout.flush()
            for process in processes:
                process.wait()
    finally:
        for process in processes:
            process.terminate()
            process.wait()


def start_processes() -> Iterator[subprocess.Popen[bytes]]:
    """Start a process for each processor, at most one for each part."""
    from treelabel.core.compute import thread_count

    nothing, count = subprocess.DEVNULL, min(len(PARTS), thread_count())
    for number in range(count):
        command = child_python("-m", "treelabel.cli.warm_up", *list(PARTS)[number::count])
        with suppress(OSError):
            yield subprocess.Popen(command, stdin=nothing, stdout=nothing, stderr=nothing)


def is_warm() -> bool:
    """Return whether a late loop of each part is in the cache, or nothing can be."""
    from treelabel.calibration.path_kernels import score_paths
    from treelabel.core.code_cache import is_cached
    from treelabel.metrics.curves import curve_areas
    from treelabel.selection.feature_choice import merge_columns

    return all(map(is_cached, (score_paths, curve_areas, merge_columns)))


def calibrate_models(folder: Path) -> None:
    """Run the loops that learning ends with: a command begins with others."""
    from treelabel.models.linear.warm_up import warm_up

    warm_up()


def use_models(folder: Path) -> None:
    """Do what follows learning, with a model that is learned without loops."""
    data, model = folder / "tiny.csv", folder / "frequent"
    _run("fit", data, "-o", model, "--model", "most_frequent")
    _run("report", model, data, "-o", folder / "report.html")
    _run("evaluate", model, data)
    _run("review", model, data, "-o", folder / "queue.csv")
    _run("predict", model, data, "-o", folder / "predictions.jsonl")
    _run("audit", data, "-o", folder / "suspects.csv", "--model", "most_frequent")


def learn_models(folder: Path) -> None:
    """Do what a user begins with."""
    _run("inspect", folder / "tiny.csv")
    _run("fit", folder / "tiny.csv", "-o", folder / "chosen")
    _run("fit", folder / "tiny.csv", "-o", folder / "set", *CHARACTERS)
    _run("explain", folder / "set", "a text")


# What processes share among each other: of two, the second uses models.
PARTS: dict[str, Callable[[Path], None]] = {"calibrate": calibrate_models, "use": use_models, "learn": learn_models}


def _run(command: str, *arguments: str | Path) -> None:
    """Run a command; what ends it, such as a missing package, ends the user's command of this name, too."""
    from treelabel.cli.app import app_of

    with suppress(Exception):
        app_of(command)([command, *map(str, arguments)], prog_name="treelabel", standalone_mode=False)


def main(names: list[str]) -> None:
    """Compile parts."""
    from treelabel.core.machine_code import run_stored_code

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    run_stored_code()
    rows = "".join(f"a text of some words and number {row},{LABELS[row % len(LABELS)]}\n" for row in range(ROWS))
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "tiny.csv").write_text(f"text,label\n{rows}", encoding="utf-8")
        for name in names:
            PARTS[name](Path(folder))


if __name__ == "__main__":
    main(sys.argv[1:])
