"""Two writers of one model folder at the same time, and a reader who looks while a folder is replaced."""

import os
import shutil
import time
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
from benchmarks.attacks.counts import Counts, say
from benchmarks.attacks.processes import CONTEXT
from benchmarks.attacks.scenes import Stage, names, state

from treelabel import TreelabelError, load_model, save_model

TEXTS = ["a small dog that barks", "a large river", "an instrument for measuring"]
# What the loser may be told: somebody is writing, or has written meanwhile.
TOLD = ("another process is writing", "holds a model already")


def attack_by_two(stage: Stage, rounds: int, seed: int) -> Counts:
    """Let two processes save to one folder at once, time and again: to a new name, or over a model.

    Parameters
    ----------
    stage
        Where the two models are.
    rounds
        How often.
    seed
        Seed of by how much the second one comes later.
    """
    counts = Counts("two writers", ("rounds without a whole model", "losers not told", "orphans"))
    rng = np.random.default_rng(seed)
    folder = stage.folder / "two"
    folder.mkdir()
    wholes = {name: state(stage.inputs / f"{name}-model") for name in ("old", "new")}
    connections = [_start_writer(stage.inputs / f"{name}-model", folder / "model") for name in wholes]
    usual = _usual_time(connections[0])
    for number in range(rounds):
        overwrite = bool(number % 2)
        shutil.rmtree(folder / "model", ignore_errors=True)
        if overwrite:
            shutil.copytree(stage.inputs / "old-model", folder / "model")
        waits = [0.0, float(rng.uniform(0, usual))]
        rng.shuffle(waits)
        told = _race(connections, waits, overwrite)
        example = f"round {number}, {'over a model' if overwrite else 'to a new name'}, waits {waits}: {told}"
        counts.more("rounds over a model" if overwrite else "rounds to a new name")
        counts.more("rounds in which both saved, one after the other", told == [None, None])
        lost = [message for message in told if message is not None]
        if any(not any(known in message for known in TOLD) for message in lost):
            counts.add("losers not told", example)
        if len(lost) == 2 or state(folder / "model") not in wholes.values():
            counts.add("rounds without a whole model", example)
        if names(folder) != ["model"]:
            counts.add("orphans", f"{example}: {names(folder)}")
        if number % 50 == 49:
            say(f"two writers: {number + 1} of {rounds}")
    for connection in connections:
        connection.send(None)
    return counts


def _start_writer(model: Path, target: Path) -> Connection:
    ours, theirs = CONTEXT.Pipe()
    CONTEXT.Process(target=_writer, args=(theirs, model, target), daemon=True).start()
    theirs.close()
    return ours


def _writer(orders: Connection, source: Path, target: Path) -> None:
    """Save the same model whenever told to; answer with what went wrong."""
    model = load_model(source)
    while (order := orders.recv()) is not None:
        start, overwrite = order
        time.sleep(max(0.0, start - time.monotonic()))
        try:
            save_model(model, target, overwrite)
            orders.send(None)
        except TreelabelError as error:
            orders.send(str(error))
        except BaseException as error:
            orders.send(f"{type(error).__name__}: {error}")


def _usual_time(writer: Connection) -> float:
    """Measure one save, after one that finds everything cold."""
    for _ in range(2):
        began = time.monotonic()
        _race([writer], [0.0], True)
    return time.monotonic() - began


def _race(writers: list[Connection], waits: list[float], overwrite: bool) -> list[str | None]:
    """Tell writers to save at the same moment, but for their waits; return what each was told."""
    # Both have the order by then.
    start = time.monotonic() + 0.005
    for writer, wait in zip(writers, waits, strict=True):
        writer.send((start + wait, overwrite))
    return [writer.recv() for writer in writers]


def attack_by_reader(stage: Stage, saves: int) -> Counts:
    """Load a model and list its folder all the time, while it is replaced by another and back.

    Parameters
    ----------
    stage
        Where the two models are.
    saves
        How often the folder is replaced.
    """
    counts = Counts(
        "reader", ("missing", "loads that fail", "models that are neither", "readers that crashed", "orphans")
    )
    target = stage.folder / "read" / "model"
    models = [load_model(stage.inputs / f"{name}-model") for name in ("new", "old")]
    save_model(models[1], target)
    readers = [_start_reader(stage.inputs, target) for _ in range(2)]
    # The first answer of a reader says that it is at it.
    for reader in readers:
        reader.recv()
    for number in range(saves):
        save_model(models[number % 2], target, overwrite=True)
        if number % 100 == 99:
            say(f"reader: {number + 1} of {saves} saves")
    counts.tried["saves"] = saves
    for reader in readers:
        try:
            reader.send(None)
            tried, found = reader.recv()
        except (EOFError, BrokenPipeError):
            counts.add("readers that crashed", "a reader ended before the saves did, most likely by a signal")
            continue
        for what, count in tried.items():
            counts.more(what, count)
        for what, examples in found.items():
            for example in examples:
                counts.add(what, example)
    if names(target.parent) != ["model"]:
        counts.add("orphans", str(names(target.parent)))
    return counts


def _start_reader(inputs: Path, target: Path) -> Connection:
    ours, theirs = CONTEXT.Pipe()
    CONTEXT.Process(target=_reader, args=(theirs, inputs, target), daemon=True).start()
    theirs.close()
    return ours


def _reader(parent: Connection, inputs: Path, target: Path) -> None:
    """Load, score and list until told to stop; answer with counts."""
    known = [load_model(inputs / f"{name}-model").score(TEXTS).dense() for name in ("old", "new")]
    counts = Counts("one reader")
    parent.send(None)
    while not parent.poll():
        counts.more("loads")
        try:
            scores = load_model(target).score(TEXTS).dense()
            if not any(scores.shape == one.shape and (scores == one).all() for one in known):
                counts.add("models that are neither", f"load {counts.tried['loads']}: scores of {scores.shape}")
        except Exception as error:
            counts.add("loads that fail", f"load {counts.tried['loads']}: {type(error).__name__}: {error}")
        counts.more("listings")
        try:
            # A folder that was opened just before it was replaced may be listed on its way out.
            counts.more("listings of a folder on its way out", "model.json" not in os.listdir(target))
        except FileNotFoundError as error:
            counts.add("missing", f"listing {counts.tried['listings']}: {error}")
    parent.recv()
    parent.send((counts.tried, counts.found))
