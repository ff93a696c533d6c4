"""Rules with settings that were found on validation data: saved, loaded, and their limits by a column of the data."""

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from treelabel.core.atomic_output import atomic_file
from treelabel.core.errors import TreelabelError, some
from treelabel.core.inputs import existing_file
from treelabel.core.json_text import read_json
from treelabel.core.strings import describe_value
from treelabel.core.types import DoubleArray
from treelabel.core.validation import JsonRecord, validate
from treelabel.rules.conformal import as_limits
from treelabel.rules.risk_bounds import EVERYTHING

KIND = "treelabel tuned rule"
VERSION = 1
# How a value that is missing in a column is called.
MISSING = "(missing)"


@dataclass(frozen=True)
class TunedRule(JsonRecord):
    """A rule with settings that were found on validation data, bound to the hierarchy of that data.

    `measured` has the values that were reached there. Use it wherever a rule is wanted: `decide(scores, tuned)`.
    With `by`, the column of the data of this name tells which limit a document has: t lists one for each of `values`.
    """

    rule: str
    settings: Mapping[str, Any]
    fingerprint: str
    measured: Mapping[str, Any] = field(default_factory=dict)
    by: str | None = None
    values: Sequence[str] = ()

    def save(self, path: str | Path) -> None:
        """Write as JSON; the file appears whole or not at all."""
        left_out = ("by", "values") if self.by is None else ()
        stored = {name: value for name, value in asdict(self).items() if name not in left_out}
        with atomic_file(Path(path)) as temporary:
            text = json.dumps({"kind": KIND, "version": VERSION, **stored}, indent=2, ensure_ascii=False)
            Path(temporary).write_text(text + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> "TunedRule":
        """Read what `save` wrote."""
        file = existing_file(Path(path))
        stored = read_json(file, str(file), "tuned rule")
        if not isinstance(stored, dict) or stored.get("kind") != KIND:
            raise TreelabelError(f"{file}: no tuned rule; expected a file that 'treelabel tune' wrote")
        if stored.get("version") != VERSION:
            raise TreelabelError(
                f"{file}: a tuned rule of version {stored.get('version')!r}, but this treelabel reads version {VERSION}"
            )
        by_column: dict[str, Any] = {"by": None, "values": []}
        values = by_column | {name: value for name, value in stored.items() if name not in ("kind", "version")}
        validate(values, cls, f"{file}: the tuned rule")
        tuned = cls(**{**values, "values": tuple(values["values"])})
        tuned.require_limits(f"{file}: ")
        return tuned

    def require_limits(self, where: str = "") -> None:
        """Refuse a rule that goes by a column, unless it has one limit for each value."""
        if self.by is None:
            return
        limits = self.settings.get("t")
        if self.rule != "conformal" or not isinstance(limits, list | tuple) or len(limits) != len(set(self.values)):
            raise TreelabelError(
                f"{where}damaged: a rule that goes by the column {self.by!r} must be conformal, with one limit for "
                f"each of {len(self.values):,} values"
            )

    def limits_of(self, columns: Any, documents: int) -> DoubleArray:
        """Return the limit of each document by the column that the rule goes by.

        A value that no document had in calibration gets the root: with no document to go by, nothing else is promised.

        Parameters
        ----------
        columns
            What has the column: see `decide`.
        documents
            How many documents there are.

        Returns
        -------
        array of shape (documents,)
        """
        assert self.by is not None
        self.require_limits()
        names = column_values(columns, self.by, documents)
        limit_of = dict(zip(self.values, as_limits(self.settings["t"]).tolist(), strict=True))
        unseen = sorted({name for name in names if name not in limit_of})
        if unseen:
            warnings.warn(
                f"no document that calibrated the rule had {self.by} = {some(unseen)}, so that those with it get the "
                "root, which is no label",
                stacklevel=4,
            )
        return np.array([limit_of.get(name, EVERYTHING) for name in names], np.float64)


def _is_file(rule: Any) -> bool:
    return isinstance(rule, str) and rule.endswith(".json")


def load_rule(rule: Any) -> Any:
    """Load a rule that is a file; return others as they are."""
    return TunedRule.load(Path(rule)) if _is_file(rule) else rule


def column_of(rule: str | TunedRule | None) -> str | None:
    """Return the column of the data that a tuned rule, or a file with one, goes by; None for all other rules."""
    return load_rule(rule).by if isinstance(rule, TunedRule) or _is_file(rule) else None


def column_values(columns: Any, name: str, documents: int) -> list[str]:
    """Return the values of a column as texts, missing ones as MISSING.

    Parameters
    ----------
    columns
        A Dataset, a mapping of names to columns, or the values themselves.
    name
        The column.
    documents
        How many values there must be.

    Returns
    -------
    list of str

    >>> column_values({"year": [2001, None]}, "year", 2)
    ['2001', '(missing)']
    """
    if columns is None:
        raise TreelabelError(
            f"the rule has a limit for each value of the column {name!r}; pass by= (a Dataset that has it, or one "
            "value for each document), or the data file: --data FILE"
        )
    known = getattr(columns, "extra", columns)
    if isinstance(known, Mapping):
        if name not in known:
            listed = ", ".join(map(str, known)) or "none"
            raise TreelabelError(
                f"the rule has a limit for each value of the column {name!r}, which the documents do not have; further "
                f"columns are: {listed}"
            )
        known = known[name]
    if isinstance(known, str) or not hasattr(known, "__len__"):
        raise TreelabelError(f"by= is {describe_value(known)}, expected one value of {name} for each document")
    values = known.to_pylist() if hasattr(known, "to_pylist") else list(known)
    if len(values) != documents:
        raise TreelabelError(f"{len(values):,} values of {name} for {documents:,} documents; expected one for each")
    return list(map(value_name, values))


def value_name(value: Any) -> str:
    """Name a value of a column: missing ones alike, and a list as a whole.

    >>> value_name(2001), value_name(None), value_name(["en", "fr"])
    ('2001', '(missing)', 'en, fr')
    """
    if isinstance(value, list):
        return ", ".join(map(value_name, value)) or MISSING
    return MISSING if value is None or value != value or value == "" else str(value)
