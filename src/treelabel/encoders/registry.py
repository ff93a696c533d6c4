"""The registry of encoders: by name, by folder, the best one that is installed, or the one a model was saved with.

An encoder of the catalogue is asked for by its name, any other by its folder.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

from treelabel.core.errors import TreelabelError, require_extra
from treelabel.core.registry import Registry
from treelabel.encoders.catalogue import PACKAGES, Kind, missing_packages
from treelabel.encoders.files import Files, find_files, usable_files, verify_weights
from treelabel.encoders.protocol import Encoder
from treelabel.encoders.sources import read_spec

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class EncoderRow:
    """A row of ENCODERS; `maker` is called with the settings that stand behind the name."""

    name: str
    help: str
    maker: Callable[..., Encoder]


def _make_installed(name: str, **settings: Any) -> Encoder:
    """Make the encoder that a package of the catalogue carries."""
    return make_encoder(find_files(name), settings)


ENCODERS: Registry[EncoderRow] = Registry(
    "encoder", (EncoderRow(row.name, row.help, partial(_make_installed, row.name)) for row in PACKAGES.values())
)

# The modules of this package that make encoders; they need the extra `neural`, and are imported on demand.
_MAKERS: dict[Kind, str] = {
    "transformer": "treelabel.encoders.transformer:make_transformer",
    "model2vec": "treelabel.encoders.static:StaticEncoder",
    "wordllama": "treelabel.encoders.static:StaticEncoder",
}


def make_encoder(files: Files, settings: Mapping[str, Any]) -> Encoder:
    """Make the encoder of a folder.

    Parameters
    ----------
    files
        Its files; weights whose hash is known to be wrong are refused.
    settings
        Settings of encoders of this kind, such as `max_length`.

    Returns
    -------
    Encoder
        Transformers are loaded when they see the first text.
    """
    verify_weights(files)
    module, _, name = _MAKERS[files.kind].partition(":")
    with require_extra("neural", f"the encoder {files.name}"):
        made: Encoder = getattr(import_module(module), name)(files, settings)
    return made


def find_encoder(encoder: "str | Encoder") -> Encoder:
    """Find an encoder by its name, "minilm(max_length=128, runtime=int8)", or its folder; an object is itself.

    `ENCODERS.add(EncoderRow(name, help, maker))` makes a name of your own known.

    >>> find_encoder("nobody")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    treelabel.core.errors.TreelabelError: unknown encoder 'nobody'; usable here: ...
    """
    if isinstance(encoder, str):
        name, settings = read_spec(encoder)
        if name in ENCODERS:
            return ENCODERS[name].maker(**settings)
        return make_encoder(find_files(name, also=ENCODERS), settings)
    if not isinstance(encoder, Encoder):
        raise TreelabelError(
            f"expected an encoder with name, fingerprint and transform(texts), found {type(encoder).__name__}"
        )
    return encoder


def default_encoder() -> Encoder:
    """Make the best encoder that is installed, which is what models use unless they are given one."""
    return find_encoder(default_encoder_name())


def default_encoder_name(kind: Kind | None = None) -> str:
    """Return the name of the best encoder that is installed, and log it.

    The order is that of the catalogue (`PACKAGES`), then encoders in folders by name.

    Parameters
    ----------
    kind
        The only kind that will do, such as "transformer" for one that is to be trained.

    Returns
    -------
    str
        A name for `find_encoder`; with none installed, TreelabelError states the command that installs one.
    """
    for files in usable_files():
        if kind in (None, files.kind) and not missing_packages(files.kind):
            logger.info("encoder: %s, the best that is installed (choose another with encoder=)", files.name)
            return files.name
    best = next(row for row in PACKAGES.values() if kind in (None, row.kind))
    what = "encoder" if kind is None else f"encoder of the kind {kind}"
    raise TreelabelError(f"no {what} is installed; get one with: {best.command}")


def encoder_note(encoder: Encoder) -> dict[str, str]:
    """Return what a model folder records of its encoder."""
    return {"name": encoder.name, "fingerprint": encoder.fingerprint}


def same_encoder(requested: "str | Encoder | None", saved: dict[str, str]) -> Encoder:
    """Find the encoder that a model was saved with.

    Parameters
    ----------
    requested
        The encoder in the model's settings; None finds it by the recorded name.
    saved
        What `encoder_note` returned.

    Returns
    -------
    Encoder
        One with the recorded fingerprint; any other is refused.
    """
    try:
        encoder = find_encoder(saved["name"] if requested is None else requested)
    except TreelabelError:
        # A folder was requested relative to the working folder of then; its absolute name may still be right.
        if not isinstance(requested, str) or requested == saved["name"]:
            raise
        encoder = find_encoder(saved["name"])
    if encoder.fingerprint != saved["fingerprint"]:
        raise TreelabelError(
            f"the model was learned with the encoder {saved['name']} ({saved['fingerprint']}), "
            f"but this one is {encoder.name} ({encoder.fingerprint})"
        )
    return encoder
