"""The commands that write something, each with a good output in place, and what may stand there after an accident."""

import hashlib
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
from benchmarks.attacks.processes import Ended, Stop, run
from tests.helpers import WordVectors

from treelabel import Dataset, Scores, TunedRule, load_model, load_sample, read, save_model, write
from treelabel.cli import main
from treelabel.core.locking import PREFIX
from treelabel.data import cut, read_taxonomy
from treelabel.encoders.cached_encoder import CachedEncoder

Version = Literal["old", "new"]
DOCUMENTS = 800
SAVES = 12
TEXTS = 600
BATCH = 16


@dataclass(frozen=True)
class Scene:
    """A command of treelabel that writes to a folder, or a function that does."""

    name: str
    command: str
    # Whether it writes files of which a kill may leave some missing, though never old ones beside new.
    is_several: bool = False

    def run(self, inputs: Path, out: Path, version: Version) -> None:
        """Run it in this process."""
        if self.command in FUNCTIONS:
            FUNCTIONS[self.command](inputs, out, version)
            return
        sys.argv = ["treelabel", *self.command.format(inputs=inputs, out=out, version=version).split()]
        main()


def _save_in_turn(inputs: Path, out: Path, version: Version) -> None:
    old, new = load_model(inputs / "old-model"), load_model(inputs / "new-model")
    if version == "old":
        save_model(old, out / "model", overwrite=True)
        return
    for _ in range(SAVES):
        save_model(old, out / "model", overwrite=True)
        save_model(new, out / "model", overwrite=True)


def cached_rows(inputs: Path, out: Path, version: Version) -> "np.ndarray[tuple[int, ...], np.dtype[np.float32]]":
    """Encode texts with a cache in a folder, in small batches."""
    texts = list(read(inputs / "old.jsonl").texts[:TEXTS])
    part = texts[: TEXTS // 2] if version == "old" else texts
    return CachedEncoder(WordVectors(), out, batch_size=BATCH).transform(part)


def _fill_cache(inputs: Path, out: Path, version: Version) -> None:
    cached_rows(inputs, out, version)


FUNCTIONS = {"save": _save_in_turn, "cache": _fill_cache}
CACHE = Scene("embedding cache", "cache")
FIT = Scene("fit", "fit {inputs}/{version}.jsonl -o {out}/model --force")
COMMANDS = (
    FIT,
    Scene("split", "split {inputs}/{version}.jsonl {out} --parts train=0.7,test=0.3 --force", is_several=True),
    Scene("convert .csv.gz", "convert {inputs}/{version}.jsonl {out}/data.csv.gz --force", is_several=True),
    Scene("convert .parquet", "convert {inputs}/{version}.jsonl {out}/data.parquet --force"),
    Scene("score .npz", "score {inputs}/{version}-model {inputs}/{version}.jsonl -o {out}/scores.npz --force"),
    Scene("score .parquet", "score {inputs}/{version}-model {inputs}/{version}.jsonl -o {out}/scores.parquet --force"),
    Scene("predict", "predict {inputs}/{version}-model {inputs}/{version}.jsonl -o {out}/predictions.jsonl --force"),
    Scene("decide", "decide {inputs}/{version}-scores.npz -o {out}/decisions.jsonl.gz --force"),
    Scene("tune", "tune {inputs}/{version}.jsonl {inputs}/{version}-scores.npz -o {out}/tuned.json --force"),
)
SCENES: dict[str, Scene] = {scene.name: scene for scene in (*COMMANDS, Scene("save", "save"), CACHE)}


def play(name: str, inputs: Path, out: Path, version: Version) -> None:
    """Run a scene by its name, which a process can be told."""
    SCENES[name].run(inputs, out, version)


@dataclass
class Stage:
    """The inputs of all scenes, their good outputs of two versions, how long each takes, and in how many steps."""

    folder: Path
    states: dict[tuple[str, Version], dict[str, str]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    steps: dict[str, int] = field(default_factory=dict)

    @property
    def inputs(self) -> Path:
        """What commands read."""
        return self.folder / "inputs"

    def saved(self, scene: Scene, version: Version) -> Path:
        """Return the folder that holds a good output."""
        return self.folder / "good" / scene.name.replace(" ", "-") / version

    def fresh(self, scene: Scene, where: Path | None = None) -> Path:
        """Make a folder with the old output of a scene."""
        out = self.folder / "out" if where is None else where
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(self.saved(scene, "old"), out)
        return out

    def run(self, scene: Scene, out: Path, version: Version = "new", stop: Stop | None = None) -> Ended:
        """Run a scene in a process of its own."""
        return run(play, scene.name, self.inputs, out, version, log=self.folder / "log", stop=stop)

    def make(self, scenes: Sequence[Scene]) -> None:
        """Make the inputs and good outputs; measure each scene."""
        self._make_inputs()
        for scene in scenes:
            for version in ("old", "new"):
                out = self.saved(scene, version)
                out.mkdir(parents=True)
                self._require(scene, self.run(scene, out, version))
                self.states[scene.name, version] = state(out)
            if scene is not CACHE:
                self._require_other_files(scene)
            again = self.fresh(scene)
            # The second run finds compiled code in the cache, as those to come will.
            ended = self.run(scene, again, stop=Stop(folder=again))
            self._require(scene, ended)
            if scene is not CACHE and state(again) != self.states[scene.name, "new"]:
                raise RuntimeError(f"{scene.name}: the same command gives another output the second time")
            self.seconds[scene.name], self.steps[scene.name] = ended.seconds, ended.steps or 0

    def _make_inputs(self) -> None:
        self.inputs.mkdir(parents=True)
        sample = load_sample()
        parts: dict[str, Dataset] = {"old": sample[:DOCUMENTS], "new": cut(sample[DOCUMENTS : 2 * DOCUMENTS], 4)}
        for version, data in parts.items():
            write(data, self.inputs / f"{version}.jsonl")
        for version in parts:
            for command in (
                "fit {0}/{1}.jsonl -o {0}/{1}-model",
                "score {0}/{1}-model {0}/{1}.jsonl -o {0}/{1}-scores.npz",
            ):
                arguments = command.format(self.inputs, version).split()
                self._require(FIT, run(_cli, arguments, log=self.folder / "log"))

    @staticmethod
    def _require(scene: Scene, ended: Ended) -> None:
        if ended.code != 0:
            raise RuntimeError(f"{scene.name}: ended with {ended.code} without any attack: {ended.written}")

    def _require_other_files(self, scene: Scene) -> None:
        """Check that a mixture of the two versions could be seen: no file is the same in both."""
        old, new = self.states[scene.name, "old"], self.states[scene.name, "new"]
        if set(old) != set(new) or any(old[name] == new[name] for name in old):
            raise RuntimeError(f"{scene.name}: a file is the same in both versions")


def _cli(arguments: list[str]) -> None:
    sys.argv = ["treelabel", *arguments]
    main()


def state(out: Path) -> dict[str, str]:
    """Return the digest of every file in a folder and its folders; working files, and what --resume needs, are none."""
    files = sorted(path for path in out.rglob("*") if path.is_file())
    names = {path: str(path.relative_to(out)) for path in files}
    return {name: _digest(path) for path, name in names.items() if not is_unfinished(name)}


def is_unfinished(name: str) -> bool:
    """Return whether a file is no output yet: a working file, or what a command would go on with."""
    return name.startswith(PREFIX) or ".partial" in name


def names(out: Path) -> list[str]:
    """Return the names in a folder, working files too."""
    return sorted(path.name for path in out.iterdir())


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def read_outputs(out: Path) -> None:
    """Read all that a command has written, as its user would."""
    for path in sorted(out.iterdir()):
        if path.name.startswith(".") or is_unfinished(path.name):
            continue
        if path.name == "model":
            load_model(path)
        elif path.name.startswith("scores"):
            Scores.load(path)
        elif path.name.startswith("tuned"):
            TunedRule.load(path)
        elif "taxonomy" in path.name:
            read_taxonomy(path)
        else:
            read(path, need_text=False)


def verdict(found: dict[str, str], old: dict[str, str], new: dict[str, str], is_several: bool = False) -> str | None:
    """Say what is wrong with an output after an accident: nothing if it is the old one or the new one, whole.

    Of several files some may be missing, if those that are there are all of one version.

    >>> verdict({"a": "1", "b": "2"}, {"a": "1", "b": "1"}, {"a": "2", "b": "2"})
    'mixed outputs'
    """
    if found in (old, new) or (is_several and any(found.items() <= version.items() for version in (old, new))):
        return None
    if set(old) - set(found):
        return "lost outputs"
    whole = all(found[name] in (old.get(name), new.get(name)) for name in found)
    return "mixed outputs" if whole else "half outputs"
