"""Kill commands at random moments and right before each change of a file; the output stays the old or the new one."""

import warnings
from pathlib import Path

import numpy as np
from benchmarks.attacks.counts import Counts, say
from benchmarks.attacks.processes import Stop
from benchmarks.attacks.scenes import (
    CACHE,
    SCENES,
    TEXTS,
    Scene,
    Stage,
    cached_rows,
    names,
    read_outputs,
    state,
    verdict,
)
from tests.helpers import WordVectors

from treelabel import read

ZEROS = (
    "lost outputs",
    "mixed outputs",
    "half outputs",
    "outputs that cannot be read",
    "next runs that fail",
    "leftovers after the next run",
    "cache rows that differ",
)
# So many changes of each command's files are killed before: all of them, but for the many of a loop of saves.
TARGETED = 30
MOST_TRIES = 5


def attack(stage: Stage, kills: int, seed: int) -> Counts:
    """Kill commands, look at what they leave, and run them again.

    Parameters
    ----------
    stage
        The commands with their good outputs.
    kills
        How many at random moments; and a quarter as many, of each command, right before changes of its files.
    seed
        Seed of the random moments.
    """
    counts = Counts("kills", ZEROS)
    rng = np.random.default_rng(seed)
    scenes = [scene for scene in SCENES.values() if scene.name in stage.seconds]
    killed = tried = 0
    # Some end before their kill, as times vary.
    while killed < kills and tried < MOST_TRIES * kills:
        scene = scenes[tried % len(scenes)]
        # A little beyond the usual time, so that the very end is hit as often as the rest.
        after = float(rng.uniform(0, 1.1 * stage.seconds[scene.name]))
        killed += _kill(stage, scene, Stop(after=after), counts)
        tried += 1
        if tried % 20 == 0:
            say(f"kills: {killed} of {kills}")
    for scene, step in _targets(stage, min(TARGETED, -(-kills // 4)), rng):
        _kill(stage, scene, Stop(step=step, folder=stage.folder / "out"), counts)
    return counts


def _targets(stage: Stage, count: int, rng: np.random.Generator) -> list[tuple[Scene, int]]:
    """Draw so many changes of each scene to kill before, as far as it makes so many."""
    return [
        (scene, int(step) + 1)
        for scene in SCENES.values()
        if scene.name in stage.seconds
        for step in sorted(rng.permutation(stage.steps[scene.name])[:count])
    ]


def _kill(stage: Stage, scene: Scene, stop: Stop, counts: Counts) -> bool:
    """Kill a scene, look at what it leaves, and run it again; return whether the kill came in time."""
    out = stage.fresh(scene)
    ended = stage.run(scene, out, stop=stop)
    counts.more("killed at random" if stop.after is not None else "killed before a change of a file", ended.code < 0)
    counts.more("ended before the kill", ended.code == 0)
    if ended.code == 0:
        # What was measured once, when the machine was busy with something else perhaps, comes nearer to the truth.
        stage.seconds[scene.name] = (stage.seconds[scene.name] + ended.seconds) / 2
    example = f"{scene.name}, {stop}: {scene.command}"
    if ended.code > 0:
        counts.add("next runs that fail", f"{example}: ended with {ended.code} before the kill: {ended.written}")
    if scene is CACHE:
        _check_cache(stage, out, example, counts)
    else:
        _check_output(stage, scene, out, example, counts)
    return ended.code < 0


def _check_output(stage: Stage, scene: Scene, out: Path, example: str, counts: Counts) -> None:
    """Compare an output with the old and the new one, and write it again."""
    old, new = stage.states[scene.name, "old"], stage.states[scene.name, "new"]
    try:
        read_outputs(out)
    except Exception as error:
        counts.add("outputs that cannot be read", f"{example}: {type(error).__name__}: {error}")
    found = state(out)
    wrong = verdict(found, old, new, scene.is_several)
    if wrong is not None:
        counts.add(wrong, f"{example}: {sorted(found)}")
    counts.more("old output found", found == old)
    counts.more("new output found", found == new)
    counts.more("files missing", found not in (old, new) and wrong is None)
    again = stage.run(scene, out)
    if again.code != 0 or state(out) != new:
        counts.add("next runs that fail", f"{example}: {again.code}: {again.written}")
    expected = names(stage.saved(scene, "new"))
    if names(out) != expected:
        counts.add("leftovers after the next run", f"{example}: {sorted(set(names(out)) - set(expected))}")


def _check_cache(stage: Stage, out: Path, example: str, counts: Counts) -> None:
    """Fill the cache to its end, and compare all rows with those that the encoder computes."""
    texts = list(read(stage.inputs / "old.jsonl").texts[:TEXTS])
    expected = WordVectors().transform(texts).astype(np.float32)
    with warnings.catch_warnings():
        # A cache that has to be mended says so: after a kill there is nothing to mend.
        warnings.simplefilter("error")
        try:
            found = cached_rows(stage.inputs, out, "new")
        except Exception as error:
            counts.add("next runs that fail", f"{example}: {type(error).__name__}: {error}")
            return
    if found.shape != expected.shape or (found != expected).any():
        counts.add("cache rows that differ", example)
    if names(out) != names(stage.saved(CACHE, "new")):
        counts.add("leftovers after the next run", f"{example}: {names(out)}")
