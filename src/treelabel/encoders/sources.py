"""How a transformer is asked for: "minilm(max_length=128, pooling=cls)", and the settings that its folder states."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from treelabel.core.errors import TreelabelError
from treelabel.core.registry import read_settings, split_settings, suggestion, with_settings
from treelabel.encoders.files import (
    USUAL_LENGTH,
    Files,
    find_files,
    find_folder,
    read_config,
    stated_number,
    verify_weights,
)

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
