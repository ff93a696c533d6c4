"""The registry of encoders: by name, by folder, the best one that is installed, or the one a model was saved with.

An encoder of the catalogue is asked for by its name, any other by its folder.
"""

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, get_args

from treelabel.core.errors import TreelabelError, require_extra
from treelabel.core.registry import Registry, read_settings, split_settings, suggestion, with_settings
from treelabel.encoders.files import (
    PACKAGES,
    USUAL_LENGTH,
    Files,
    Kind,
    find_files,
    find_folder,
    missing_packages,
    read_config,
    stated_number,
    usable_files,
    verify_weights,
)
from treelabel.encoders.protocol import Encoder

Pooling = Literal["cls", "mean", "max", "last"]


@dataclass(frozen=True)
class Source:
    """A transformer's folder, and how its hidden states become one vector per text.

    `name` finds it again; `normalize` scales vectors to length 1.
    """

    name: str
    folder: Path
    max_length: int
    pooling: Pooling
    normalize: bool


def read_spec(text: str) -> tuple[str, dict[str, Any]]:
    """Split an encoder's name from its settings; a folder may have brackets in its own name.

    >>> read_spec("minilm(max_length=128, pooling=cls)")
    ('minilm', {'max_length': 128, 'pooling': 'cls'})
    """
    name, inside = split_settings(text)
    if inside is None or find_folder(text) is not None:
        return text.strip(), {}
    try:
        return name, read_settings(inside)
    except ValueError:
        raise TreelabelError(
            f"encoder {text!r}: cannot read {inside!r}; expected settings such as (max_length=128, pooling=cls)"
        ) from None


def spec_with(text: str, max_length: int | None, pooling: Pooling | None) -> str:
    """Add settings to an encoder's name.

    Parameters
    ----------
    text
        A name, with settings or without.
    max_length, pooling
        Settings, which replace those of the name; None leaves these.

    Returns
    -------
    str
        The name with all settings.

    >>> spec_with("minilm(max_length=64)", 128, None), spec_with("minilm", None, None)
    ('minilm(max_length=128)', 'minilm')
    """
    changes = {"max_length": max_length, "pooling": pooling}
    changes = {name: value for name, value in changes.items() if value is not None}
    if not changes:
        return text
    name, settings = read_spec(text)
    return with_settings(name, {**settings, **changes})


def find_source(text: str) -> Source:
    """Find a transformer to train or to embed with: "minilm", "minilm(max_length=128, pooling=cls)", a folder."""
    name, settings = read_spec(text)
    files = find_files(name)
    if files.kind != "transformer":
        raise TreelabelError(f"the encoder {name} has static vectors; expected a transformer, such as minilm")
    verify_weights(files)
    return source_of(files, settings)


def source_of(files: Files, settings: Mapping[str, Any]) -> Source:
    """Combine settings: those passed, else those of the folder, else [CLS] and as many tokens as fit.

    Parameters
    ----------
    files
        A transformer's files.
    settings
        Any of `max_length`, `pooling` and `normalize`.

    Returns
    -------
    Source
        With a name that repeats the settings which differ from the folder's.
    """
    usual: dict[str, Any] = {"max_length": _usual_length(files), "pooling": _usual_pooling(files.folder)}
    usual["normalize"] = "Normalize" in files.modules
    require_settings(files.name, settings, usual)
    resolved = {**usual, **settings}
    if resolved["pooling"] not in get_args(Pooling):
        raise TreelabelError(
            f"encoder {files.name}: pooling is {resolved['pooling']!r}, expected {', '.join(get_args(Pooling))}"
        )
    if not isinstance(resolved["normalize"], bool):
        raise TreelabelError(f"encoder {files.name}: normalize is {resolved['normalize']!r}, expected true or false")
    length = resolved["max_length"]
    if not isinstance(length, int) or not 3 <= length <= files.most_tokens:
        raise TreelabelError(
            f"encoder {files.name}: max_length is {length!r}, expected a number from 3 to {files.most_tokens}, "
            "the most tokens that it can read"
        )
    changed = {key: value for key, value in resolved.items() if value != usual[key]}
    return Source(with_settings(files.name, changed), files.folder, **resolved)


def require_settings(name: str, settings: Mapping[str, Any], known: Collection[str]) -> None:
    """Raise TreelabelError where the encoder `name` has no such setting; `known` are those it has."""
    wrong = [key for key in settings if key not in known]
    if wrong:
        raise TreelabelError(f"the encoder {name} has no setting {wrong[0]!r}; {suggestion(wrong[0], known)}")


def _usual_length(files: Files) -> int:
    file = files.folder / "sentence_bert_config.json"
    stated = stated_number(file, read_config(file), "max_seq_length")
    return min(USUAL_LENGTH if stated is None else stated, files.most_tokens)


def _usual_pooling(folder: Path) -> Pooling:
    stated = read_config(folder / "1_Pooling" / "config.json")
    modes: dict[str, Pooling] = {"pooling_mode_mean_tokens": "mean", "pooling_mode_max_tokens": "max"}
    # XLNet has its [CLS] behind the text.
    usual: Pooling = "last" if read_config(folder / "config.json").get("model_type") == "xlnet" else "cls"
    return next((how for mode, how in modes.items() if stated.get(mode) is True), usual)


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
