"""What a rule is, and how one is written: "threshold@0.3", "optimal:icm(alpha=2, beta=4)"."""

import difflib
import hashlib
import inspect
import re
import reprlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from treelabel.core.errors import TreelabelError
from treelabel.core.kinds import LARGEST
from treelabel.core.settings_text import read_settings
from treelabel.hierarchy import LabelMatrix

# Settings that are not the user's to write: they come from training data.
FROM_TRAINING = ("information", "frequencies")
# Settings that every rule has.
COMMON: dict[str, Any] = {"closed": True, "unknown": None}


@dataclass(frozen=True)
class Rule:
    """A decision rule: how it makes label sets of scores, and what a reader should know about it.

    `choose` takes scores and settings, the keyword arguments of the function; `main` is the one that may stand behind
    "@". `best_for` is the measure that it is optimal for, `is_exact` whether no set has a higher expected value under
    what it `assumes` of the truth.
    """

    name: str
    help: str
    choose: Callable[..., LabelMatrix]
    main: str | None = None
    best_for: str | None = None
    is_exact: bool | None = None
    assumes: str = ""

    @cached_property
    def _parameters(self) -> Mapping[str, inspect.Parameter]:
        return dict(list(inspect.signature(self.choose).parameters.items())[1:])

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The settings and their defaults, common ones included."""
        own = {name: each.default for name, each in self._parameters.items() if name not in FROM_TRAINING}
        return own | COMMON

    def takes_many(self, setting: str) -> bool:
        """Whether a setting may be a list of numbers beside a single one."""
        return setting in self._parameters and "Sequence" in str(self._parameters[setting].annotation)

    @cached_property
    def known(self) -> frozenset[str]:
        """What it can make use of from training: "information" or "frequencies" of nodes."""
        return frozenset(name for name in FROM_TRAINING if name in self._parameters)

    @cached_property
    def needs(self) -> frozenset[str]:
        """What of that it cannot do without."""
        return frozenset(name for name in self.known if self._parameters[name].default is inspect.Parameter.empty)


@dataclass(frozen=True)
class Asked:
    """A rule with the settings it is to be used with."""

    rule: Rule
    settings: Mapping[str, Any]

    def __str__(self) -> str:
        name, main = self.rule.name, self.rule.main or ""
        if list(self.settings) == [main] and _is_number(self.settings[main]):
            return f"{name.removesuffix('@k')}@{_written(self.settings[main])}"
        listed = ", ".join(f"{key}={_written(value)}" for key, value in self.settings.items())
        return f"{name}({listed})" if listed else name


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _written(value: Any) -> str:
    """Write a setting so that it can be read back; long ones by their size and what tells them from others."""
    if _is_number(value):
        # Scores are compared in single precision, so its digits are all that count.
        return f"{value:g}" if np.float32(f"{value:g}") == np.float32(value) else str(np.float32(value))
    size = getattr(value, "size", len(value) if hasattr(value, "__len__") and not isinstance(value, str) else 0)
    if size <= 8:
        return str(value)
    return f"<{size:,} numbers {hashlib.sha256(np.asarray(value, np.float64).tobytes()).hexdigest()[:8]}>"


def find_rule(text: str, table: Mapping[str, Rule], settings: Mapping[str, Any]) -> Asked:
    """Find a rule by how it is written, and put its settings together: `name`, `name@number` or `name(key=value)`.

    Values are Python's numbers, lists, words and true or false.
    """
    match = re.fullmatch(r"\s*([\w:]+)\s*(?:@\s*([^\s(]+))?\s*(?:\((.*)\))?\s*", text, re.DOTALL)
    if match is None:
        raise TreelabelError(f"cannot read the rule {text!r}; expected name, name@number or name(setting=value, ...)")
    name, number, inside = match.groups()
    row = _row(name, number is not None, table, text)
    inner = _read_settings(inside, text) if inside else {}
    written: dict[str, Any] = {}
    # "@k" itself is how the table writes it, and stands for the default.
    if number is not None and f"{name}@{number}" != row.name:
        if row.main is None:
            raise TreelabelError(f"rule {text!r}: {name} takes no number behind @")
        if row.main in inner:
            raise TreelabelError(f"rule {text!r}: {row.main} is given twice")
        written[row.main] = _number(number, text, f"{name}@{_example(row)}")
    written |= inner
    twice = [key for key in written if key in settings]
    if twice:
        raise TreelabelError(f"rule {text!r}: {twice[0]} is given twice")
    asked = {**settings, **written}
    unknown = [key for key in asked if key not in row.settings]
    if unknown:
        raise TreelabelError(
            f"rule {text!r} has no setting {unknown[0]!r}; it has: {', '.join(row.settings)}"
            + _did_you_mean(unknown[0], row.settings)
        )
    given = {key: value for key, value in asked.items() if value is not None}
    for key, value in given.items():
        _check(text, row, key, value)
    return Asked(row, given)


# Settings without a default that are numbers all the same.
_NUMBERS = ("t", "precision", "unknown")


def _check(text: str, row: Rule, key: str, value: Any) -> None:
    """Refuse words where numbers belong, and numbers where true or false does."""
    default = row.settings[key]
    if isinstance(default, bool):
        if not isinstance(value, bool | np.bool_):
            raise TreelabelError(f"rule {text!r}: {key} = {value!r}, expected true or false")
        return
    if not (_is_number(default) or isinstance(default, tuple) or key in _NUMBERS):
        return
    try:
        numbers = np.asarray(value)
    except ValueError:
        numbers = np.asarray("")
    least, most = (1, 1) if isinstance(default, tuple) else (0, 1) if row.takes_many(key) else (0, 0)
    if numbers.dtype.kind not in "iuf" or not least <= numbers.ndim <= most:
        what = ("a number", "a number or a list of numbers", "a list of numbers")[least + most]
        raise TreelabelError(f"rule {text!r}: {key} = {reprlib.repr(value)}, expected {what}")
    # What is not finite is left to the rules, which say what they expect.
    if (np.abs(numbers[np.isfinite(numbers)].astype(np.float64)) > LARGEST).any():
        raise TreelabelError(f"rule {text!r}: {key} = {reprlib.repr(value)}, expected numbers up to {LARGEST:g}")
    if key == "seed" and (numbers < 0 or numbers.dtype.kind == "f"):
        raise TreelabelError(f"rule {text!r}: seed = {value!r}, expected a whole number of at least 0")


def _row(name: str, has_number: bool, table: Mapping[str, Rule], text: str) -> Rule:
    """Find the row; a number behind @ prefers the row that is called name@k."""
    for key in (f"{name}@k", name) if has_number else (name, f"{name}@k"):
        if key in table:
            return table[key]
    hint = _did_you_mean(name, table)
    if not hint:
        # The name of a measure alone, perhaps misspelled: what all share would make everything look alike.
        short = {key.removeprefix("optimal:"): key for key in table if key.startswith("optimal:")}
        close = difflib.get_close_matches(name.removeprefix("optimal:"), short, n=3, cutoff=0.6)
        hint = f"; did you mean {' or '.join(short[each] for each in close)}?" if close else ""
    raise TreelabelError(f"unknown rule {text!r}{hint}; 'treelabel rules' lists them")


def _did_you_mean(word: str, known: Mapping[str, Any]) -> str:
    close = difflib.get_close_matches(word, known, n=3, cutoff=0.6)
    return f"; did you mean {' or '.join(close)}?" if close else ""


def _example(row: Rule) -> str:
    default = row.settings.get(row.main or "")
    return f"{default:g}" if _is_number(default) else "0.5"


def _number(text: str, rule: str, example: str) -> float:
    try:
        return int(text) if re.fullmatch(r"\d+", text) else float(text)
    except ValueError:
        raise TreelabelError(f"rule {rule!r}: expected a number behind @, such as {example}") from None


def _read_settings(inside: str, text: str) -> dict[str, Any]:
    try:
        return read_settings(inside)
    except ValueError:
        raise TreelabelError(
            f"rule {text!r}: cannot read {inside!r}; expected settings such as (t=0.3) or (t=[0.5, 0.4], closed=false)"
        ) from None
