"""The Rule class: a function that chooses label sets, and what a reader should know about it."""

import hashlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from treelabel.hierarchy.label_matrices import LabelMatrix

# Settings that are not the user's to write: they come from training data.
FROM_TRAINING = ("information", "frequencies")
# Settings that every rule has.
COMMON: dict[str, Any] = {"closed": True, "unknown": None}


@dataclass(frozen=True)
class Rule:
    """A decision rule: how it makes label sets of scores, and what a reader should know about it.

    `choose` takes scores and settings, the keyword arguments of the function; `main` is the one that may stand behind
    "@". `best_for` is the metric that it is optimal for, `is_exact` whether no set has a higher expected value under
    what it `assumes` of the truth. A rule `of_all` documents decides on one by the scores of the others, too.
    """

    name: str
    help: str
    choose: Callable[..., LabelMatrix]
    main: str | None = None
    best_for: str | None = None
    is_exact: bool | None = None
    assumes: str = ""
    of_all: bool = False

    @cached_property
    def _parameters(self) -> Mapping[str, inspect.Parameter]:
        return dict(list(inspect.signature(self.choose).parameters.items())[1:])

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The settings and their defaults, common ones included."""
        settings = {name: each.default for name, each in self._parameters.items() if name not in FROM_TRAINING}
        return settings | COMMON

    def takes_many(self, setting: str) -> bool:
        """Return whether a setting may be a list of numbers beside a single one."""
        return setting in self._parameters and "Sequence" in str(self._parameters[setting].annotation)

    @cached_property
    def known(self) -> frozenset[str]:
        """The training statistics that it can use: "information" or "frequencies" of nodes."""
        return frozenset(name for name in FROM_TRAINING if name in self._parameters)

    @cached_property
    def needs(self) -> frozenset[str]:
        """The training statistics that it cannot do without."""
        return frozenset(name for name in self.known if self._parameters[name].default is inspect.Parameter.empty)


@dataclass(frozen=True)
class RuleSpec:
    """A rule with the settings it is to be used with."""

    rule: Rule
    settings: Mapping[str, Any]

    def __str__(self) -> str:
        name, main = self.rule.name, self.rule.main or ""
        if list(self.settings) == [main] and is_number(self.settings[main]):
            return f"{name.removesuffix('@k')}@{_setting_text(self.settings[main])}"
        listed = ", ".join(f"{key}={_setting_text(value)}" for key, value in self.settings.items())
        return f"{name}({listed})" if listed else name


def is_number(value: Any) -> bool:
    """Return whether a setting is a number; true and false are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _setting_text(value: Any) -> str:
    """Write a setting so that it can be read back; a long list by its size and a hash."""
    if is_number(value):
        # What was found on scores in single precision has no more digits than that.
        short = f"{value:g}"
        single = np.float32(value)
        return short if float(short) == value else str(single if float(single) == value else value)
    size = getattr(value, "size", len(value) if hasattr(value, "__len__") and not isinstance(value, str) else 0)
    if size <= 8:
        return str(value)
    return f"<{size:,} numbers {hashlib.sha256(np.asarray(value, np.float64).tobytes()).hexdigest()[:8]}>"
