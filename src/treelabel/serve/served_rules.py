"""The rules that a request may ask for: those of RULES, and those that `tune` wrote; and what they promise."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from treelabel.core.errors import TreelabelError, quote
from treelabel.rules.decisions import Decisions, TunedRule
from treelabel.rules.registry import RuleSpec, find_rule
from treelabel.serve.model_store import ServedModel
from treelabel.serve.schemas import PredictSettings, SetAnswer


def load_rules(files: Sequence[Path]) -> dict[str, TunedRule]:
    """Load rules that `tune` wrote, by the names of their files.

    Parameters
    ----------
    files
        JSON files. A rule that goes by a column of the data is refused: requests have texts alone.

    Returns
    -------
    dict of TunedRule
    """
    rules = {}
    for file in files:
        if file.name in rules:
            raise TreelabelError(f"two rules are called {quote(file.name)}, and rules go by that; rename one")
        if file.suffix != ".json":
            raise TreelabelError(f"{file}: expected a file that treelabel tune wrote, whose name ends in .json")
        rules[file.name] = tuned = TunedRule.load(file)
        if tuned.by is not None:
            raise TreelabelError(
                f"{file}: the rule goes by the column {tuned.by!r} of the data, and requests have texts alone; tune "
                "one without --by"
            )
        find_rule(tuned.rule, tuned.settings)
    return rules


def rule_of(served: ServedModel, settings: PredictSettings) -> RuleSpec:
    """Find the rule that a request asks for; what the rule does not have is refused.

    A number of labels alone asks for the likeliest leaves, a threshold alone for all labels that reach it.

    Parameters
    ----------
    served
        The model, for its default rule and its tuned ones.
    settings
        Of the request.

    Returns
    -------
    RuleSpec
    """
    unknown = settings.unknown or None
    if settings.rule is not None and settings.rule.endswith(".json"):
        return _find_tuned(served.rules, settings, unknown)
    return _find_rule(settings.rule, settings.k, settings.threshold, unknown, served.model.default_rule)


def _find_tuned(rules: Mapping[str, TunedRule], settings: PredictSettings, unknown: float | None) -> RuleSpec:
    tuned = rules.get(settings.rule or "")
    if tuned is None:
        known = (
            f"those of this service are: {', '.join(rules)}" if rules else "this service has none (serve --rule FILE)"
        )
        raise TreelabelError(
            f"a rule of a request reads no files, and {quote(settings.rule)} is no tuned rule; {known}"
        )
    given = {"k": settings.k, "t": settings.threshold, "unknown": unknown}
    asked = {name: value for name, value in given.items() if value is not None}
    twice = next((name for name in asked if name in tuned.settings), None)
    if twice is not None:
        raise TreelabelError(f"{settings.rule} has the setting {twice} that was tuned; leave it out")
    return find_rule(tuned.rule, {**tuned.settings, **asked})


@lru_cache(maxsize=256)
def _find_rule(
    rule: str | None, k: int | None, threshold: float | None, unknown: float | None, default: str
) -> RuleSpec:
    """Find a rule; reading one takes as long as scoring a text, and most requests ask for the same."""
    asked = {"k": k, "t": threshold, "unknown": unknown}
    given = {name: value for name, value in asked.items() if value is not None}
    if rule is not None:
        spec = find_rule(rule, given)
        # Files of this machine are not for those who ask over the network.
        if isinstance(spec.settings.get("matrix"), str):
            raise TreelabelError("a rule of a request reads no files; write the matrix as a list of lists")
        return spec
    if k is not None and threshold is not None:
        raise TreelabelError("expected k or threshold, found both; name a rule that has both settings")
    if k is not None:
        return find_rule("top_k(leaves=true)", given)
    return find_rule("threshold" if threshold is not None else default, given)


def promise_of(served: ServedModel, settings: PredictSettings) -> str | None:
    """Return what a request is promised; None where nothing is.

    A promise is that of the model's own rule or of a tuned one, as it was calibrated: not of limits that a request
    brings, nor of scores given known labels. One of recall or precision does not outlast abstaining by `unknown`.

    Parameters
    ----------
    served
        The model.
    settings
        Of the request.

    Returns
    -------
    str or None
    """
    spec = rule_of(served, settings)
    if settings.known or (settings.unknown and spec.rule.guarantee != "coverage"):
        return None
    if settings.rule is not None and settings.rule in served.rules:
        promise = served.rules[settings.rule].measured.get("promise")
        return promise if isinstance(promise, str) else None
    is_own = settings.rule == served.model.default_rule or (
        settings.rule is None and settings.k is None and settings.threshold is None
    )
    guarantee = served.model.evidence_.guarantee
    return guarantee.promise if is_own and guarantee is not None else None


def set_answers(decisions: Decisions, rule: RuleSpec) -> list[SetAnswer] | None:
    """Describe the sets of documents by a rule whose sets cover a true label; None for other rules.

    Parameters
    ----------
    decisions
        What was chosen for each document.
    rule
        What decided.

    Returns
    -------
    list of SetAnswer, or None
        One per document.
    """
    if rule.rule.guarantee != "coverage":
        return None
    h, ends = decisions.hierarchy, decisions.most_specific
    sizes, leaves = (ends.indptr[1:] - ends.indptr[:-1]).tolist(), h.count_leaves(ends).tolist()
    return [
        {"nodes": size, "leaves": count if size else len(h.leaves), "is_root": size == 0}
        for size, count in zip(sizes, leaves, strict=True)
    ]
