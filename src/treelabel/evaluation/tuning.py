"""Tune a rule on validation data: what `treelabel tune` does."""

from collections.abc import Sequence
from typing import Any

from treelabel.core.errors import TreelabelError
from treelabel.evaluation.alignment import validation
from treelabel.evaluation.back_off_table import back_off_row
from treelabel.hierarchy import LabelMatrix
from treelabel.rules import Tuned
from treelabel.rules.parsing import find_rule
from treelabel.rules.precise import Ways, precise_thresholds
from treelabel.rules.tuning import best_threshold, best_threshold_per_label
from treelabel.scores import Scores

RULES_TO_TUNE = ("macro_f1", "micro_f1", "back_off(precision=0.95)")


def tune(truth: Any, scores: Scores, rule: str = "macro_f1") -> Tuned:
    """Find the settings of a rule on validation data: thresholds for a metric, or for a required precision.

    "macro_f1" finds one threshold per label, "micro_f1" one for all labels; "back_off(precision=0.95)" finds how sure
    one must be on each level so that predicted labels are right that often, and goes up to an ancestor, or predicts
    nothing, where one is not (see `precise_thresholds`). `back_off_table` tells what each precision costs.

    Parameters
    ----------
    truth : Dataset, lists of names or label matrix
        The labels of the validation documents; those with ids are matched by them.
    scores : Scores
        Their scores.
    rule : str
        What to tune.

    Returns
    -------
    Tuned
        A rule for `decide`, bound to the hierarchy.

    >>> from treelabel.hierarchy import Hierarchy
    >>> h = Hierarchy.flat(["A", "B"])
    >>> tuned = tune([["A"], ["B"]], Scores(h, [[0.75, 0.25], [0.25, 0.25]]), "micro_f1")
    >>> tuned.rule, tuned.settings, tuned.measured
    ('threshold', {'t': 0.5}, {'micro_f1': 0.6666666666666666, 'documents': 2})
    """
    if not isinstance(rule, str):
        raise TreelabelError(f"expected what to tune, such as 'macro_f1', found {type(rule).__name__}")
    kept, true = validation(truth, scores)
    measured: dict[str, Any]
    settings: dict[str, Any]
    match rule.removeprefix("optimal:"):
        case "macro_f1":
            thresholds, value = best_threshold_per_label(kept, true)
            name, settings, measured = "threshold", {"t": [float(t) for t in thresholds]}, {"macro_f1": value}
        case "micro_f1":
            t, value = best_threshold(kept, true)
            name, settings, measured = "threshold", {"t": t}, {"micro_f1": value}
        case _:
            name, settings, measured = _precise(kept, true, rule, getattr(truth, "groups", None))
    return Tuned(name, settings, kept.hierarchy.fingerprint, {**measured, "documents": len(kept)})


def _precise(
    scores: Scores, truth: LabelMatrix, rule: str, groups: Sequence[str] | None
) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Tune back_off; what is measured comes from thresholds of other documents."""
    asked = find_rule(rule) if rule.startswith("back_off") else None
    if asked is None or asked.rule.name != "back_off":
        raise TreelabelError(f"cannot tune {rule!r}; expected {', '.join(RULES_TO_TUNE[:-1])} or {RULES_TO_TUNE[-1]}")
    if "t" in asked.settings:
        raise TreelabelError(f"{rule}: t is what is to be found; expected a precision, as in {RULES_TO_TUNE[-1]}")
    required, confidence = asked.settings.get("precision", 0.95), asked.settings.get("confidence", 0.9)
    ways = Ways.of(scores, truth)
    t = precise_thresholds(ways, required, confidence)
    others = {name: value for name, value in asked.settings.items() if name not in ("precision", "confidence")}
    measured = back_off_row(ways, required, confidence, groups).to_json() | {"confidence": confidence}
    return "back_off", {"t": t.tolist(), **others}, measured
