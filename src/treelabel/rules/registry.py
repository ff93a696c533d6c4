"""The registry of decision rules. A new rule is a function in its family's file and a row here."""

from typing import Any

from treelabel.core.registry import Registry
from treelabel.rules import (
    back_off,
    cost,
    expected_f,
    hierarchical_f,
    information_f,
    optimal_nodes,
    population,
    single_path,
    threshold,
)
from treelabel.rules.rule import Rule

_PATH = "one true path"
# What top labels lack of 1 is the probability that nothing is true.
_PATH_OR_NONE = "one true path, or none: what top labels lack of 1"
_ANY = "any truth"
_COINS = "independent labels"
_COUNTS = "many documents"


def _best(name: str, choose: Any, help_text: str, assumes: str, is_exact: bool = True, main: str | None = None) -> Rule:
    return Rule(f"optimal:{name}", help_text, choose, main, name, is_exact, assumes)


def _best_of_all(name: str, choose: Any, help_text: str, main: str | None = None) -> Rule:
    return Rule(f"optimal:{name}", help_text, choose, main, name, False, _COUNTS, of_all=True)


_ROWS = (
    # Each node on its own
    Rule("threshold", "nodes with a score of at least t (one, one per level, one per node)", threshold.threshold, "t"),
    Rule("top_k", "the k nodes (or leaves) with the largest scores", threshold.top_k, "k"),
    # One path
    Rule("best_leaf", "the leaf with the largest score", single_path.best_leaf),
    Rule(
        "best_per_level",
        "the node with the largest score at each depth, on one path or not",
        single_path.best_per_level,
    ),
    Rule("top_down", "the best child of the best child ..., until a score is below stop", single_path.top_down, "stop"),
    Rule("beam", "the best leaf reached top down, keeping the best nodes of each level", single_path.beam, "width"),
    Rule("majority", "the deepest node with a score above 1/2", single_path.majority),
    Rule("plurality", "the deepest node likelier than all that exclude it", single_path.plurality),
    Rule("back_off", "up from the best leaf until the score is at least t; see tune", back_off.back_off, "t"),
    # Optimal for a metric of single documents
    _best("hamming", optimal_nodes.hamming, "scores above 1/2", _ANY),
    _best("shortest_path", optimal_nodes.shortest_path, "scores above 1/2", _PATH),
    _best("icm", optimal_nodes.icm, "scores above 1 - alpha / beta = 1/3", _ANY),
    _best("leaf_accuracy", optimal_nodes.leaf_accuracy, "the leaf with the largest score", "one true leaf"),
    _best(
        "level_accuracy",
        optimal_nodes.level_accuracy,
        "the path with the largest sum of scores, by level",
        _COUNTS,
        False,
    ),
    _best("onehot_win", optimal_nodes.onehot_win, "the leaf with the largest expected win", _PATH),
    _best(
        "hf1",
        expected_f.hf1,
        "the set with the largest expected hierarchical F1; counts: see samples_f1",
        _PATH_OR_NONE,
    ),
    _best("hf1_root", hierarchical_f.hf1_root, "the same with the root counted", _PATH_OR_NONE),
    _best("hf_beta", hierarchical_f.hf_beta, "the same for any beta", _PATH_OR_NONE, main="beta"),
    _best("info_hf1", information_f.info_hf1, "the same in bits, by search", _PATH_OR_NONE, is_exact=False),
    _best("wu_palmer", optimal_nodes.wu_palmer, "the node with the largest expected similarity", _PATH_OR_NONE),
    _best("lin", optimal_nodes.lin, "the node with the largest expected similarity, in bits", _PATH_OR_NONE),
    _best("cost", cost.cost, "the node with the least expected cost, by matrix or similarity", "one true leaf"),
    _best(
        "samples_f1",
        expected_f.samples_f1,
        "the set with the largest expected F, many labels; counts=[...]: weights of 0, 1, 2, ... true paths",
        _COINS,
    ),
    # Optimal for a metric of all documents together
    _best_of_all("micro_f1", population.micro_f1, "one threshold, by expected counts"),
    _best_of_all("macro_f1", population.macro_f1, "one threshold per label, by expected counts"),
    _best_of_all(
        "macro_f1@k", population.macro_f1_at_k, "exactly k (at_most=true: up to k), by block coordinate ascent", "k"
    ),
    _best_of_all(
        "binned_macro_f1@k",
        population.binned_macro_f1_at_k,
        "the same for the mean over bins of training frequency",
        "k",
    ),
)

RULES: Registry[Rule] = Registry("rule", _ROWS)
