"""Run commands where the disk is full, or files may not grow: one sentence, and the old output stays."""

import os
import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.attacks.counts import Counts, say
from benchmarks.attacks.processes import Ended, run
from benchmarks.attacks.scenes import COMMANDS, Scene, Stage, names, play, state

ZEROS = (
    "exit codes other than 2",
    "messages that are not one sentence with the file's name",
    "tracebacks",
    "old outputs touched",
    "leftovers",
    "next runs that fail",
)
# Room for the new output, as a share of what it needs beside the old one.
SHARES = (0.0, 0.5, 0.95)
PAGE = 4096


def attack(stage: Stage) -> Counts:
    """Write every output with too little room: on a small file system, and with a limit to the size of files."""
    counts = Counts("disk", ZEROS)
    try:
        with _small_file_system(stage.folder / "disk") as disk:
            for scene in COMMANDS:
                for share in SHARES:
                    _fill_and_run(stage, scene, disk, share, counts)
                say(f"disk: {scene.name}")
    except PermissionError as error:
        counts.tried["full disks not run"] = f"{len(COMMANDS) * len(SHARES)}: {error}"
    for scene in COMMANDS:
        _limit_and_run(stage, scene, counts)
    return counts


@contextmanager
def _small_file_system(where: Path) -> Iterator[Path]:
    """Mount a file system in memory, which needs to be allowed."""
    where.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(where)]
    try:
        mounted = subprocess.run(command, check=False, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise PermissionError("there is no command mount") from error
    if mounted.returncode != 0:
        raise PermissionError(f"mount is not permitted: {mounted.stderr.strip()}")
    try:
        yield where
    finally:
        subprocess.run(["umount", str(where)], check=True)


def _fill_and_run(stage: Stage, scene: Scene, disk: Path, share: float, counts: Counts) -> None:
    needed = sum(-(-path.stat().st_size // PAGE) for path in stage.saved(scene, "new").rglob("*") if path.is_file())
    room = int(share * needed)
    if room == needed or (room == 0 and share > 0):
        # A file of one page has no shares.
        return
    out = stage.fresh(scene, disk / "out")
    filler = disk / "filler"
    free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize // PAGE
    filler.write_bytes(bytes((free - room) * PAGE))
    counts.more("full disks")
    example = f"{scene.name} with room for {room} of {needed} pages: {scene.command}"
    _check(stage, scene, out, stage.run(scene, out), example, counts)
    filler.unlink()
    again = stage.run(scene, out)
    if again.code != 0 or state(out) != stage.states[scene.name, "new"]:
        counts.add("next runs that fail", f"{example}: {again.code}: {again.written}")


def _limit_and_run(stage: Stage, scene: Scene, counts: Counts) -> None:
    limit = max(path.stat().st_size for path in stage.saved(scene, "new").rglob("*") if path.is_file()) // 2
    out = stage.fresh(scene)
    ended = run(_play_limited, limit, scene.name, stage.inputs, out, log=stage.folder / "log")
    counts.more("limits to the size of files")
    example = f"{scene.name} with files of {limit} bytes at most: {scene.command}"
    _check(stage, scene, out, ended, example, counts)


def _play_limited(limit: int, name: str, inputs: Path, out: Path) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    play(name, inputs, out, "new")


def _check(stage: Stage, scene: Scene, out: Path, ended: Ended, example: str, counts: Counts) -> None:
    # Notes say that --resume goes on with what is done.
    said = "\n".join(line for line in ended.written.splitlines() if not line.startswith("treelabel: note:"))
    expected = names(stage.saved(scene, "new"))
    if ended.code != 2:
        counts.add("exit codes other than 2", f"{example}: {ended.code}: {said}")
    # Of several files that a command writes, the message names the one there was no room for, or their folder.
    if "\n" in said or str(out) not in said:
        counts.add("messages that are not one sentence with the file's name", f"{example}: {said}")
    if "Traceback" in said:
        counts.add("tracebacks", f"{example}: {said}")
    if state(out) != stage.states[scene.name, "old"]:
        counts.add("old outputs touched", example)
    left = [name for name in names(out) if name not in expected and ".partial" not in name]
    if left:
        counts.add("leftovers", f"{example}: {left}")
