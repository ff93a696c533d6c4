"""Stop a fit over an existing model by SIGTERM and Ctrl-C; the model stays unless the fit ended well."""

import signal

import numpy as np
from benchmarks.attacks.counts import Counts, say
from benchmarks.attacks.processes import Ended, Stop
from benchmarks.attacks.scenes import FIT, Stage, names, state

ZEROS = (
    "models changed by a fit that was stopped",
    "models that are neither",
    "exit codes other than 0, 130, 143",
    "tracebacks",
    "leftovers",
)
# What shells call a command that was stopped by each.
CODES = {signal.SIGTERM: 143, signal.SIGINT: 130}


def attack(stage: Stage, count: int, seed: int) -> Counts:
    """Send each signal at random moments of a fit, and right before changes of files.

    Parameters
    ----------
    stage
        The fit and its good outputs.
    count
        How many of each signal at random moments, and at most as many before changes of files.
    seed
        Seed of the moments.
    """
    counts = Counts("signals", ZEROS)
    rng = np.random.default_rng(seed)
    for number in CODES:
        name = signal.Signals(number).name
        moments = [Stop(number, after=float(after)) for after in rng.uniform(0, stage.seconds[FIT.name], count)]
        steps = [int(step) + 1 for step in sorted(rng.permutation(stage.steps[FIT.name])[:count])]
        for stop in [*moments, *(Stop(number, step=step, folder=stage.folder / "out") for step in steps)]:
            out = stage.fresh(FIT)
            ended = stage.run(FIT, out, stop=stop)
            counts.more(f"{name} at random" if stop.after is not None else f"{name} before a change of a file")
            counts.more("ended well all the same", ended.code == 0)
            _check(stage, stop, ended, counts)
        say(f"signals: {name}")
    return counts


def _check(stage: Stage, stop: Stop, ended: Ended, counts: Counts) -> None:
    out = stage.folder / "out"
    found, example = state(out), f"{stop}: ended with {ended.code}: {ended.written.strip()}"
    old, new = stage.states[FIT.name, "old"], stage.states[FIT.name, "new"]
    if ended.code not in (0, CODES[signal.Signals(stop.number)]):
        counts.add("exit codes other than 0, 130, 143", example)
    if found not in (old, new):
        counts.add("models that are neither", example)
    elif found == new and ended.code != 0:
        counts.add("models changed by a fit that was stopped", example)
    if "Traceback" in ended.written:
        counts.add("tracebacks", example)
    if names(out) != ["model"]:
        counts.add("leftovers", f"{example}: {names(out)}")
