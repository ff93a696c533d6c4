"""The registry of decision rules. A new rule is a function in its family's file and a row here."""

import hashlib
import inspect
import re
import reprlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final, Literal

import numpy as np

from treelabel.core.errors import TreelabelError
from treelabel.core.registry import Registry, did_you_mean, read_settings
from treelabel.core.validation import LARGEST
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.label_matrices import LabelMatrix
from treelabel.hierarchy.labelled_texts import Regime, usual_regime
from treelabel.rules import (
    back_off,
    conformal,
    expected_f,
    hierarchical_f,
    information_f,
    population,
    risk_control,
    single_path,
    threshold,
)
from treelabel.rules import optimal_nodes as nodes

# Settings that are not the user's to write: they come from training data, or from columns of the documents.
FROM_TRAINING = ("information", "frequencies")
FROM_COLUMNS = ("limits",)
# A rule with long lists of numbers is shown by its name.
MOST_SHOWN = 40
# Settings that every rule has.
COMMON: dict[str, Any] = {"closed": True, "unknown": None}


@dataclass(frozen=True)
class Rule:
    """A decision rule: how it makes label sets of scores, and what a reader should know about it.

    `choose` takes scores and settings, the keyword arguments of the function; `main` is the one that may stand behind
    "@". `best_for` is the metric that it is optimal for, `is_exact` whether no set has a higher expected value under
    what it `assumes` of the truth. A rule `of_all` documents decides on one by the scores of the others, too.
    `guarantee` is what its limits are calibrated for: that its nodes cover a true label, the empty set being the root
    ("coverage"), or a "share" of the labels of a document.
    """

    name: str
    help: str
    choose: Callable[..., LabelMatrix]
    main: str | None = None
    best_for: str | None = None
    is_exact: bool | None = None
    assumes: str = ""
    of_all: bool = False
    guarantee: Literal["coverage", "share"] | None = None

    @cached_property
    def _parameters(self) -> Mapping[str, inspect.Parameter]:
        return dict(list(inspect.signature(self.choose).parameters.items())[1:])

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The settings and their defaults, common ones included."""
        foreign = FROM_TRAINING + FROM_COLUMNS
        settings = {name: each.default for name, each in self._parameters.items() if name not in foreign}
        return settings | COMMON

    @property
    def summary(self) -> str:
        """The help in a few words."""
        return re.split(r"; | \(one", self.help)[0]

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
    """A rule with the settings it is to be used with; `by` is the column of the data that some of them go by."""

    rule: Rule
    settings: Mapping[str, Any]
    by: str | None = None

    def __str__(self) -> str:
        name, main = self.rule.name, self.rule.main or ""
        if list(self.settings) == [main] and is_number(self.settings[main]):
            return f"{name.removesuffix('@k')}@{_setting_text(self.settings[main])}"
        shown = {**self.settings} if self.by is None else {**self.settings, "by": self.by}
        listed = ", ".join(f"{key}={_setting_text(value)}" for key, value in shown.items())
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


# What top labels lack of 1 is the probability that nothing is true.
_PATH, _PATH_OR_NONE = "one true path", "one true path, or none: what top labels lack of 1"
_ANY, _COINS, _COUNTS = "any truth", "independent labels", "many documents"
_TOP_DOWN = "the best child of each node from the root on, until a score is below stop"
_BACK_OFF = "the first node from the best leaf upwards with a score of at least t; see tune"
_CONFORMAL = "the deepest nodes that cover the true label with a given probability; see tune"
_CONTROL = "nodes above a threshold that keeps a given recall or precision; see tune"
_PER_LEVEL = "the node with the largest score at each depth, on one path or not"
_HF1 = "the set with the largest expected hierarchical F1; counts: see samples_f1"
_LEVELS = "the path with the largest sum of scores, by level"
_SAMPLES = "the set with the largest expected F1; counts=[...]: weights of 0, 1, 2, ... true paths"
_ASCENT = "exactly k (at_most=true: up to k), by block coordinate ascent"
_BINNED = "the same for the mean over bins of training frequency"


_ALL: dict[str, Any] = {"assumes": _COUNTS, "is_exact": False, "of_all": True}


def _best(name: str, choose: Any, help_text: str, assumes: str, is_exact: bool = True, **options: Any) -> Rule:
    """Make the row of a rule that is optimal for a metric."""
    return Rule(f"optimal:{name}", help_text, choose, best_for=name, is_exact=is_exact, assumes=assumes, **options)


_ROWS = (
    # Each node on its own
    Rule("threshold", "nodes with a score of at least t (one, one per level, one per node)", threshold.threshold, "t"),
    Rule("top_k", "the k nodes (or leaves) with the largest scores", threshold.top_k, "k"),
    # One path
    Rule("best_leaf", "the leaf with the largest score", single_path.best_leaf),
    Rule("best_per_level", _PER_LEVEL, single_path.best_per_level),
    Rule("top_down", _TOP_DOWN, single_path.top_down, "stop"),
    Rule("beam", "the best leaf reached top down, keeping the best nodes of each level", single_path.beam, "width"),
    Rule("majority", "the deepest node with a score above 1/2", single_path.majority),
    Rule("plurality", "the deepest node likelier than all that exclude it", single_path.plurality),
    Rule("back_off", _BACK_OFF, back_off.back_off, "t"),
    # With a guarantee
    Rule("conformal", _CONFORMAL, conformal.conformal, "coverage", guarantee="coverage"),
    Rule("risk_control", _CONTROL, risk_control.risk_control, "at_least", guarantee="share"),
    # Optimal for a metric of single documents
    _best("hamming", threshold.hamming, "scores above 1/2", _ANY),
    # In a tree the edges between two paths are the nodes that only one has, as for Hamming loss.
    _best("shortest_path", threshold.hamming, "scores above 1/2", _PATH),
    _best("icm", threshold.icm, "scores above 1 - alpha / beta = 1/3", _ANY),
    _best("leaf_accuracy", single_path.best_leaf, "the leaf with the largest score", "one true leaf"),
    _best("level_accuracy", nodes.level_accuracy, _LEVELS, _COUNTS, is_exact=False),
    _best("onehot_win", nodes.onehot_win, "the leaf with the largest expected win", _PATH),
    _best("hf1", expected_f.hf1, _HF1, _PATH_OR_NONE),
    _best("hf1_root", hierarchical_f.hf1_root, "the same with the root counted", _PATH_OR_NONE),
    _best("hf_beta", hierarchical_f.hf_beta, "the same for any beta", _PATH_OR_NONE, main="beta"),
    _best("info_hf1", information_f.info_hf1, "the same in bits, by search", _PATH_OR_NONE, is_exact=False),
    _best("wu_palmer", nodes.wu_palmer, "the node with the largest expected similarity", _PATH_OR_NONE),
    _best("lin", nodes.lin, "the node with the largest expected similarity, in bits", _PATH_OR_NONE),
    _best("cost", nodes.cost, "the node with the least expected cost, by matrix or similarity", "one true leaf"),
    _best("samples_f1", expected_f.samples_f1, _SAMPLES, _COINS),
    # Optimal for a metric of all documents together
    _best("micro_f1", population.micro_f1, "one threshold, by expected counts", **_ALL),
    _best("macro_f1", population.macro_f1, "one threshold per label, by expected counts", **_ALL),
    _best("macro_f1@k", population.macro_f1_at_k, _ASCENT, main="k", **_ALL),
    _best("binned_macro_f1@k", population.binned_macro_f1_at_k, _BINNED, main="k", **_ALL),
)

RULES: Registry[Rule] = Registry("rule", _ROWS)


def find_rule(text: str, settings: Mapping[str, Any] = MappingProxyType({})) -> RuleSpec:
    """Find the rule that a text names, with its settings: `name`, `name@number` or `name(key=value)`.

    Parameters
    ----------
    text : str
        The rule as it is written. Values are Python's numbers, lists, words, and true or false.
    settings : mapping, optional
        Further settings; none may be given twice.

    Returns
    -------
    RuleSpec

    >>> str(find_rule("top_k@3", {"leaves": True})), find_rule("threshold@0.3").settings
    ('top_k(leaves=True, k=3)', {'t': 0.3})
    """
    match = re.fullmatch(r"\s*([\w:]+)\s*(?:@\s*([^\s(]+))?\s*(?:\((.*)\))?\s*", text, re.DOTALL)
    if match is None:
        raise TreelabelError(f"cannot read the rule {text!r}; expected name, name@number or name(setting=value, ...)")
    name, number, inside = match.groups()
    row = _row(name, number is not None, text)
    try:
        inner = read_settings(inside) if inside else {}
    except ValueError:
        raise TreelabelError(
            f"rule {text!r}: cannot read {inside!r}; expected settings such as (t=0.3) or (t=[0.5, 0.4], closed=false)"
        ) from None
    # "@k" itself is how the table writes it, and stands for the default.
    behind = {} if number is None or f"{name}@{number}" == row.name else _main_setting(row, name, number, text)
    asked: dict[str, Any] = {}
    for source in (settings, behind, inner):
        for key, value in source.items():
            if key in asked:
                raise TreelabelError(f"rule {text!r}: {key} is given twice")
            asked[key] = value
    chosen = {key: value for key, value in asked.items() if _is_allowed(text, row, key, value)}
    return RuleSpec(row, chosen)


def describe_rule(text: str) -> str:
    """Say what a rule does in words, with its name, for people.

    >>> describe_rule("best_leaf"), describe_rule("threshold@0.3")
    ('the leaf with the largest score (best_leaf)', 'nodes with a score of at least t (threshold@0.3)')
    """
    spec = find_rule(text)
    shown = str(spec) if len(str(spec)) <= MOST_SHOWN else f"{spec.rule.name}(...)"
    return f"{spec.rule.summary} ({shown})"


def _main_setting(row: Rule, name: str, number: str, text: str) -> dict[str, float]:
    """Read the number behind @."""
    if row.main is None:
        raise TreelabelError(f"rule {text!r}: {name} takes no number behind @")
    try:
        return {row.main: int(number) if re.fullmatch(r"\d+", number) else float(number)}
    except ValueError:
        example = f"{row.settings[row.main]:g}" if is_number(row.settings[row.main]) else "0.5"
        raise TreelabelError(f"rule {text!r}: expected a number behind @, such as {name}@{example}") from None


# Settings without a default that are numbers all the same.
_NUMBERS = ("t", "precision", "coverage", "confidence", "unknown", "counts")


def _is_allowed(text: str, row: Rule, key: str, value: Any) -> bool:
    """Refuse unknown settings, words for numbers, and numbers for true or false; None stands for the default."""
    if key not in row.settings:
        hint = did_you_mean(key, row.settings, most=3)
        raise TreelabelError(
            f"rule {text!r} has no setting {key!r}; it has: {', '.join(row.settings)}{hint and f'; {hint}'}"
        )
    if value is None:
        return False
    default = row.settings[key]
    if isinstance(default, bool):
        if not isinstance(value, bool | np.bool_):
            raise TreelabelError(f"rule {text!r}: {key} = {value!r}, expected true or false")
    elif is_number(default) or isinstance(default, tuple) or key in _NUMBERS:
        _require_numbers(text, row, key, value)
    return True


def _require_numbers(text: str, row: Rule, key: str, value: Any) -> None:
    try:
        numbers = np.asarray(value)
    except ValueError:
        numbers = np.asarray("")
    least, most = (1, 1) if isinstance(row.settings[key], tuple) else (0, 1) if row.takes_many(key) else (0, 0)
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


DEFAULT_RULES: Final[dict[Regime, str]] = {
    "single_path": "best_leaf",
    "partial_path": "optimal:hf1",
    "multi_path": "optimal:samples_f1",
}


def guarantee_of(rule: str | None) -> Literal["coverage", "share"] | None:
    """Return what a rule guarantees, by its name as a result has it: long lists of limits are not written out there.

    >>> guarantee_of("conformal(coverage=0.9, t=<12 numbers 0a1b2c3d>)"), guarantee_of("threshold@0.5")
    ('coverage', None)
    """
    row = RULES.get(re.split(r"[@(]", rule or "", maxsplit=1)[0])
    return None if row is None else row.guarantee


def default_rule(hierarchy: Hierarchy, labels: LabelMatrix) -> str:
    """Return the rule for labels of the usual regime of some documents (see `usual_regime`).

    Documents with one leaf each get their best leaf; others the set with the largest expected F1, of a path or of any
    labels.

    Parameters
    ----------
    hierarchy : Hierarchy
        A tree or DAG.
    labels : LabelMatrix, documents x nodes
        As given or closed.

    Returns
    -------
    str
        The name of a rule.

    >>> h = Hierarchy.from_paths(["A > B", "C"])
    >>> default_rule(h, h.closure([[0, 0, 1]])), default_rule(h, h.closure([[1, 1, 0]]))
    ('best_leaf', 'optimal:samples_f1')
    """
    return DEFAULT_RULES[usual_regime(hierarchy, labels)]
