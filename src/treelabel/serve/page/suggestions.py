"""Suggestions for one text: scores as a tree, the decisions of several rules on them, and the words behind them."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from treelabel.core.errors import TreelabelError
from treelabel.core.matrices import entries
from treelabel.core.strings import Strings
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.label_matrices import label_matrix
from treelabel.models.streaming import blank_texts, decide_texts
from treelabel.rules.registry import RULES
from treelabel.scores.score_matrix import Scores
from treelabel.serve.model_store import ServedModel
from treelabel.serve.page.word_support import Segment, StepWords, words_of_steps
from treelabel.serve.prediction import explain_text, score_texts
from treelabel.serve.schemas import PredictSettings, SetAnswer
from treelabel.serve.served_rules import promise_of, rule_of, set_answers

# Rules that are shown side by side, simple ones first; the model's own comes before them.
SINGLE_RULES = ("best_leaf", "majority", "threshold@0.5", "optimal:hf1", "top_down@0.5")
SEVERAL_RULES = ("threshold@0.5", "threshold@0.2", "optimal:samples_f1", "optimal:hf1", "top_k(k=3, leaves=true)")
# Nodes of the tree: the likeliest ones, but for very unlikely ones, and all that a rule chose.
MOST_NODES = 24
LEAST_PROBABILITY = 0.01
# Branches with this probability are open, and those with what the rule chose.
OPEN_FROM = 0.25
MOST_EXPLAINED = 6
LONGEST_RULE = 40


@dataclass(frozen=True)
class RuleOutcome:
    """The decision of a rule: its most specific labels, with their paths; `nodes` has their ancestors, too.

    `promise` is what it promises, if it does, and `set` describes a set that covers a true label.
    """

    rule: str
    name: str
    help: str
    ends: list[int]
    paths: list[str]
    nodes: frozenset[int]
    is_default: bool
    promise: str | None
    set: SetAnswer | None


@dataclass(frozen=True)
class SuggestedNode:
    """A node of the tree of suggestions, likeliest children first; `left_out` counts children that are not shown."""

    node: int
    label: str
    path: str
    p: float
    depth: int
    is_open: bool
    left_out: int
    words: StepWords | None
    children: "list[SuggestedNode]"


@dataclass(frozen=True)
class Suggestion:
    """Everything that is shown of one text; `current` is the index of the rule that was asked for."""

    outcomes: list[RuleOutcome]
    current: int
    tree: list[SuggestedNode]
    segments: list[Segment]
    has_words: bool


def offered_rules() -> list[str]:
    """List the rules that decide on one text, without settings that have to be written."""
    return [rule.name for rule in RULES.values() if not rule.of_all and rule.name != "optimal:cost"]


def suggest(served: ServedModel, text: str, rule: str | None = None, unknown: float | None = None) -> Suggestion:
    """Score a text, decide by several rules, and explain.

    Parameters
    ----------
    served
        A model.
    text
        To suggest labels for.
    rule
        The rule that is looked at; by default the model's.
    unknown
        Abstain where no top label has this probability.

    Returns
    -------
    Suggestion
    """
    model = served.model
    column = Strings.of([text])
    scores = score_texts(served, column)
    default = model.default_rule
    usual = (*served.rules, *(SEVERAL_RULES if model.regime_ == "multi_path" else SINGLE_RULES))
    asked = rule or default
    outcomes = [_outcome(served, scores, column, asked, unknown)]
    for each in dict.fromkeys([default, *usual]):
        # Not every rule decides on every hierarchy.
        with suppress(TreelabelError):
            outcomes += [_outcome(served, scores, column, each, unknown)] if each != asked else []
    order = [default, *usual, asked]
    outcomes.sort(key=lambda outcome: order.index(outcome.rule))
    ends = list(dict.fromkeys(end for outcome in outcomes for end in outcome.ends))
    segments, words = [Segment(text)], dict[int, StepWords]()
    # Not every model can explain itself.
    with suppress(TreelabelError):
        steps = explain_text(served, text, ends[:MOST_EXPLAINED])
        segments, words = words_of_steps(text, steps, model.hierarchy_.depth)
    current = [outcome.rule for outcome in outcomes].index(asked)
    chosen = {node for outcome in outcomes for node in outcome.nodes}
    tree = _tree(scores, chosen, outcomes[current].nodes, words)
    return Suggestion(outcomes, current, tree, segments, bool(words))


def _outcome(served: ServedModel, scores: Scores, column: Strings, rule: str, unknown: float | None) -> RuleOutcome:
    profile, h = served.model.profile_, served.model.hierarchy_
    # A model's own rule may be longer than one of a request.
    settings = PredictSettings.model_construct(rule=rule, unknown=unknown)
    spec = rule_of(served, settings)
    decisions = decide_texts(
        scores,
        blank_texts(column),
        spec.rule.name,
        train_frequencies=profile.frequencies,
        train_documents=profile.documents,
        **spec.settings,
    )
    ends = decisions.most_specific.indices.tolist()
    p = _probabilities(scores, ends)
    ends.sort(key=lambda node: -p[node])
    shown = rule if len(rule) <= LONGEST_RULE else f"{spec.rule.name}(…)"
    nodes = frozenset(h.closure(decisions.csr).indices.tolist())
    sets, promise = set_answers(decisions, spec), promise_of(served, settings)
    covering = None if sets is None else sets[0]
    is_default = rule == served.model.default_rule
    return RuleOutcome(rule, shown, spec.rule.summary, ends, h.paths(ends), nodes, is_default, promise, covering)


def _probabilities(scores: Scores, nodes: Sequence[int]) -> dict[int, float]:
    rows = np.zeros(len(nodes), np.int64)
    return dict(zip(nodes, entries(scores.values, rows, np.array(nodes, np.int64)).tolist(), strict=True))


def _tree(
    scores: Scores, chosen: set[int], current: frozenset[int], words: dict[int, StepWords]
) -> list[SuggestedNode]:
    """Return the likeliest nodes and the chosen ones, with their ancestors, as a tree."""
    h = scores.hierarchy
    best = scores.top_k(MOST_NODES).csr()
    likely = best.indices[best.data >= LEAST_PROBABILITY].tolist()
    picked = sorted({*likely, *chosen})
    shown = h.closure(label_matrix([0, len(picked)], picked, len(h))).indices.tolist()
    p = _probabilities(scores, shown)
    below: dict[int, list[int]] = {}
    for node in sorted(shown, key=lambda node: (-p[node], node)):
        below.setdefault(parent_of(h, node), []).append(node)
    counts = np.diff(h.child_graph[0])
    paths = dict(zip(shown, h.paths(shown), strict=True))

    def make(node: int) -> SuggestedNode:
        children = [make(child) for child in below.get(node, [])]
        return SuggestedNode(
            node,
            h.names[node],
            paths[node],
            p[node],
            int(h.depth[node]),
            bool(children) and (p[node] >= OPEN_FROM or any(child.node in current for child in children)),
            int(counts[node + 1]) - len(children),
            words.get(node),
            children,
        )

    return [make(node) for node in below.get(-1, [])]


def parent_of(hierarchy: Hierarchy, node: int) -> int:
    """Return the parent of a node on its path; -1 at the top."""
    return int(hierarchy.parent_idx[hierarchy.parent_ptr[node + 1] - 1])
