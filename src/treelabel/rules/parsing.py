"""Reading rules as they are written: "threshold@0.3", "optimal:icm(alpha=2, beta=4)"."""

import re
import reprlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from treelabel.core.errors import TreelabelError
from treelabel.core.registry import did_you_mean, read_settings
from treelabel.core.validation import LARGEST
from treelabel.rules.registry import RULES
from treelabel.rules.rule import Rule, RuleSpec, is_number


def find_rule(text: str, settings: Mapping[str, Any] | None = None) -> RuleSpec:
    """Find the rule that a text names, with its settings: `name`, `name@number` or `name(key=value)`.

    Parameters
    ----------
    text : str
        The rule as it is written. Values are Python's numbers, lists, words, and true or false.
    settings : mapping, optional
        Further settings; none may be given twice.

    Returns
    -------
    Asked

    >>> str(find_rule("top_k@3", {"leaves": True})), find_rule("threshold@0.3").settings
    ('top_k(leaves=True, k=3)', {'t': 0.3})
    """
    settings = {} if settings is None else settings
    match = re.fullmatch(r"\s*([\w:]+)\s*(?:@\s*([^\s(]+))?\s*(?:\((.*)\))?\s*", text, re.DOTALL)
    if match is None:
        raise TreelabelError(f"cannot read the rule {text!r}; expected name, name@number or name(setting=value, ...)")
    name, number, inside = match.groups()
    row = _row(name, number is not None, text)
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
        hint = did_you_mean(unknown[0], row.settings, most=3)
        raise TreelabelError(
            f"rule {text!r} has no setting {unknown[0]!r}; it has: {', '.join(row.settings)}{hint and f'; {hint}'}"
        )
    chosen = {key: value for key, value in asked.items() if value is not None}
    for key, value in chosen.items():
        _check(text, row, key, value)
    return RuleSpec(row, chosen)


# Settings without a default that are numbers all the same.
_NUMBERS = ("t", "precision", "unknown", "counts")


def _check(text: str, row: Rule, key: str, value: Any) -> None:
    """Refuse words where numbers belong, and numbers where true or false does."""
    default = row.settings[key]
    if isinstance(default, bool):
        if not isinstance(value, bool | np.bool_):
            raise TreelabelError(f"rule {text!r}: {key} = {value!r}, expected true or false")
        return
    if not (is_number(default) or isinstance(default, tuple) or key in _NUMBERS):
        return
    try:
        numbers = np.asarray(value)
    except ValueError:
        numbers = np.asarray("")
    least, most = (1, 1) if isinstance(default, tuple) else (0, 1) if row.takes_many(key) else (0, 0)
    if numbers.dtype.kind not in "iuf" or not least <= numbers.ndim <= most:
        what = ("a number", "a number or a list of numbers", "a list of numbers")[least + most]
        raise TreelabelError(f"rule {text!r}: {key} = {reprlib.repr(value)}, expected {what}")
    # Values that are not finite are left to the rules, which say what they expect.
    if (np.abs(numbers[np.isfinite(numbers)].astype(np.float64)) > LARGEST).any():
        raise TreelabelError(f"rule {text!r}: {key} = {reprlib.repr(value)}, expected numbers up to {LARGEST:g}")
    if key == "seed" and (numbers < 0 or numbers.dtype.kind == "f"):
        raise TreelabelError(f"rule {text!r}: seed = {value!r}, expected a whole number of at least 0")


def _row(name: str, has_number: bool, text: str) -> Rule:
    """Find the row; a number behind @ prefers the row that is called name@k."""
    for key in (f"{name}@k", name) if has_number else (name, f"{name}@k"):
        if key in RULES:
            return RULES[key]
    # Failing that, the name of a metric alone, perhaps misspelled: the prefix would make all rules look alike.
    metrics = [key.removeprefix("optimal:") for key in RULES if key.startswith("optimal:")]
    hint = did_you_mean(name, RULES, most=3) or did_you_mean(
        name.removeprefix("optimal:"), metrics, most=3, shown=lambda metric: f"optimal:{metric}"
    )
    raise TreelabelError(f"unknown rule {text!r}{hint and f'; {hint}'}; 'treelabel rules' lists them")


def _example(row: Rule) -> str:
    default = row.settings.get(row.main or "")
    return f"{default:g}" if is_number(default) else "0.5"


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
