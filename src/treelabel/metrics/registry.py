"""The registry of metrics. A new metric is a function in its family's file and a row here."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from treelabel.core.errors import TreelabelError
from treelabel.core.registry import Registry, did_you_mean, read_settings, split_settings, with_settings
from treelabel.metrics import curves, label_counts, overlap, probabilities, ranking, single_label
from treelabel.metrics.metric import Metric, Need
from treelabel.metrics.switches import COHERENT, SKIP_EMPTY, ZERO_EMPTY, ZEROS

R, R0, W, T, I = (  # noqa: E741  the papers' letters, as the documentation uses them
    "Revisiting hierarchical text classification: inference and metrics",
    "Revisiting hierarchical text classification: inference and metrics (submission)",
    "A hierarchical loss and its problems when classifying non-hierarchically",
    "Re-evaluating extreme multi-label text classification methods in tail label prediction",
    "Evaluating extreme hierarchical multi-label classification",
)


_BY_LABEL = label_counts.label_counts
_LOW: dict[str, Any] = {"higher_is_better": False}
_K: dict[str, Any] = {"parameter": "k", "default": 5.0}


def _mean(name: str, function: Callable[..., Any], help_text: str, paper: str, *needs: Need, **options: Any) -> Metric:
    """Make a row for the mean of one value per document."""
    return Metric(name, help_text, paper, frozenset(needs), documents=function, **options)


def _ratio(
    name: str,
    parts: Callable[..., Any],
    value: Callable[..., Any],
    help_text: str,
    paper: str,
    *needs: Need,
    **options: Any,
) -> Metric:
    """Make a row for a value of sums over documents."""
    return Metric(name, help_text, paper, frozenset(needs), parts=parts, value=value, **options)


def _by_label(name: str, value: Callable[..., Any], help_text: str, paper: str, *needs: Need, **options: Any) -> Metric:
    """Make a row for a value of the counts of labels."""
    return _ratio(name, _BY_LABEL, value, help_text, paper, *needs, **options)


def _group(*rows: Metric, **options: Any) -> tuple[Metric, ...]:
    """Add to rows the options that they share; notes are joined."""
    note = options.pop("note", "")
    return tuple(replace(row, note=f"{row.note} {note}".strip(), **options) for row in rows)


def _needing(need: Need, *rows: Metric) -> tuple[Metric, ...]:
    """Add a need that rows share."""
    return tuple(replace(row, needs=row.needs | {need}) for row in rows)


# Notes: where other libraries mean something else by a name

_RAISED = (
    "Incoherent scores are raised to their largest descendant. The authors of hF1-AUC cap children at their parents "
    "instead (coherent=min). Coherent scores have one value. Documents without true labels do not count."
)
_NOT_RANKED = (
    "A label with a score of 0 is never among the k best, so that dense and sparse scores have one value. Libraries "
    "that sort whole rows rank it last, by label id (zeros=ranked)."
)
_SKIPS = "Documents without true labels do not count, while precision@k has 0 for them (empty=zero)."
_COUNTS_EMPTY = "Documents without true labels have 0, while recall@k and ndcg@k skip them (empty=skip)."
_BINARY = (
    "The sum over leaves (or the nodes of a level) of binary losses: each node is right or wrong on its own. "
    "scikit-learn's log_loss, of one class among all, is cross_entropy, and cross_entropy_by_depth for each level."
)
_ONE_CLASS = (
    "scikit-learn's log_loss where true labels are leaves and scores of leaves sum to 1; log_loss is another metric."
)
_EMPTY_AGREES = (
    "Ancestors are added to both sets, so several paths and orphans need no care. A document without true labels has 1 "
    "if nothing is predicted, and else 0. The samples averages have 0 for both, as scikit-learn does."
)
_EMPTY_IS_ZERO = (
    "Ancestors are added to both sets. A document without true labels has 0, whether or not anything is predicted; hf1 "
    "has 1 for two empty sets."
)
_COUNTED = (
    "Ancestors are added to both sets. What is predicted for a document without true labels counts as wrong. Two empty "
    "sets count for nothing."
)
_ORPHANS = (
    "Predictions are taken as they are: a label without one of its ancestors (an orphan) is predicted but never right, "
    "as in the published programs. Labels that stand for their ancestors must say so: rules close their sets, and a "
    'prediction file has "closed": true.'
)
_SEVERAL = (
    "a + b - 2c, the nodes of one closed set only. With one path each, these are the edges between the two labels; "
    "with several paths they are not. Two empty sets have 0, a document without true labels the nodes predicted."
)
_SINGLE = (
    "For one most specific label each: documents with several paths are refused. A document without any stands at the "
    "root."
)
_ICM = (
    "alpha a + alpha_2 b - beta (a + b - c), with a, b and c the information of prediction, truth and both. The rule "
    "optimal:icm takes alpha and beta, too. Two empty sets have 0."
)

_FLAT = (
    *_group(
        _by_label("micro_f1", label_counts.micro_f1, "F1 of counts summed over labels", R),
        _by_label("micro_precision", label_counts.micro_precision, "share of predictions that are true", R),
        _by_label("micro_recall", label_counts.micro_recall, "share of true labels that are predicted", R),
        *_group(
            _by_label("macro_f1", label_counts.macro_f1, "mean F1 of the labels, absent ones 0", R),
            _by_label("macro_f1_present", label_counts.macro_f1_present, "mean F1 of labels that occur", R),
            _by_label("macro_precision", label_counts.macro_precision, "mean precision of the labels", R),
            _by_label("macro_recall", label_counts.macro_recall, "mean recall of the labels", R),
            over_labels=True,
        ),
        note=_COUNTED,
    ),
    *_group(
        _mean("samples_f1", overlap.samples_f1, "mean F1 of the documents' closed sets", R),
        _mean("samples_precision", overlap.samples_precision, "mean precision of the documents", R),
        _mean("samples_recall", overlap.samples_recall, "mean recall of the documents", R),
        note=_EMPTY_IS_ZERO,
    ),
    _mean("hamming", overlap.hamming, "share of nodes judged wrongly", R, **_LOW),
    _by_label("hamming_levels", label_counts.hamming_levels, "Hamming loss averaged over levels", R0, **_LOW),
    _mean("subset_accuracy", overlap.subset_accuracy, "share of documents with exactly the true set", I),
    _mean("jaccard", overlap.jaccard, "shared nodes among all nodes of either set", I, note=_EMPTY_IS_ZERO),
    _by_label("label_accuracy", label_counts.label_accuracy, "mean accuracy of the labels", I),
    *_group(
        _by_label("constrained_micro_f1", label_counts.micro_f1, "micro F1, ancestors required", R),
        _by_label("constrained_macro_f1", label_counts.macro_f1, "macro F1, ancestors required", R, over_labels=True),
        parts=label_counts.constrained_counts,
        note=_ORPHANS,
    ),
    *_group(
        _by_label("macro_f1_by_depth", label_counts.macro_f1_by_depth, "macro F1 of each depth", R),
        _by_label(
            "macro_f1_by_decile", label_counts.macro_f1_by_decile, "macro F1 by training frequency", R, "frequencies"
        ),
        over_labels=True,
    ),
)

_HIERARCHICAL = (
    *_group(
        _mean("hp", overlap.hp, "hierarchical precision", R),
        _mean("hr", overlap.hr, "hierarchical recall", R),
        _mean("hf1", overlap.hf1, "hierarchical F1", R),
        note=_EMPTY_AGREES,
    ),
    _mean("hf1_root", overlap.hf1_root, "hierarchical F1, the root counted in both sets", I),
    *_group(
        _mean("hf_beta", overlap.hf, "hierarchical F of any beta: hf_beta@0.5", R),
        parameter="beta",
        default=1.0,
        note=_EMPTY_AGREES,
    ),
    *_group(
        _ratio("hp_micro", overlap.overlap_sums, overlap.hp_micro, "aggregate hierarchical precision", W),
        _ratio("hr_micro", overlap.overlap_sums, overlap.hr_micro, "aggregate hierarchical recall", W),
        _ratio("hf1_micro", overlap.overlap_sums, overlap.hf1_micro, "aggregate hierarchical F1", W),
        note=_COUNTED,
    ),
    *_group(
        _mean("info_hp", overlap.info_hp, "hierarchical precision in bits", R, "frequencies"),
        _mean("info_hr", overlap.info_hr, "hierarchical recall in bits", R, "frequencies"),
        _mean("info_hf1", overlap.info_hf1, "hierarchical F1 in bits", R, "frequencies"),
        note=_EMPTY_AGREES,
    ),
    *_group(
        _mean("icm", overlap.icm, "information contrast of prediction and truth, in bits", I, "frequencies"),
        _ratio(
            "icm_norm", overlap.icm_sums, overlap.icm_norm, "information contrast scaled to [0, 1]", I, "frequencies"
        ),
        numbers=(("alpha", 2.0), ("alpha_2", 2.0), ("beta", 3.0)),
        note=_ICM,
    ),
    _mean("propensity_f1", overlap.propensity_f1, "F1 with rare labels weighing more", I, "frequencies"),
    _mean("shortest_path", overlap.shortest_path, "edges between prediction and truth", R0, note=_SEVERAL, **_LOW),
)

_SINGLE_LABEL = (
    *_group(
        _mean("leaf_accuracy", single_label.leaf_accuracy, "share of right most specific labels", R, "single label"),
        note=_SINGLE,
    ),
    _ratio(
        "level_accuracy",
        single_label.level_matches,
        single_label.level_accuracy,
        "accuracy by depth, on closed sets",
        R,
    ),
    *_group(
        _mean(
            "coarsest_accuracy", single_label.coarsest_accuracy, "share of right top labels", W, "single label", "tree"
        ),
        _mean("parent_accuracy", single_label.parent_accuracy, "share of right parents", W, "single label", "tree"),
        _mean("finest_accuracy", single_label.leaf_accuracy, "share of right most specific labels", W, "single label"),
        note=_SINGLE,
    ),
    _mean("onehot_win", single_label.onehot_win, "hierarchical win of the chosen leaf", W, "single label", "tree"),
    *_group(
        _mean("wu_palmer", single_label.wu_palmer, "similarity by depth of the common ancestor", I, "single label"),
        _mean("leacock_chodorow", single_label.leacock_chodorow, "similarity by path length", I, "single label"),
        _mean("resnik", single_label.resnik, "information of the common ancestor", I, "single label", "frequencies"),
        _mean("lin", single_label.lin, "shared information among all", I, "single label", "frequencies"),
        _mean(
            "jiang_conrath",
            single_label.jiang_conrath,
            "information not shared (a distance)",
            I,
            "single label",
            "frequencies",
            **_LOW,
        ),
        note=_SINGLE,
    ),
)

_OF_SCORES = (
    *_group(
        _mean("hf1_auc", curves.hf1_auc, "area under hierarchical precision over recall", R),
        _mean("info_hf1_auc", curves.info_hf1_auc, "the same area in bits", R, "frequencies"),
        _ratio("best_hf1", curves.hierarchical_points, curves.best_f1, "hierarchical F1 at the best threshold", R),
        _ratio("best_info_hf1", curves.information_points, curves.best_f1, "the same in bits", R, "frequencies"),
        switches=(COHERENT,),
        note=_RAISED,
    ),
    _mean("softmax_win", probabilities.softmax_win, "hierarchical win of the scores", W, "single label", "tree"),
    *_group(
        _mean("neg_log_win", probabilities.neg_log_win, "-ln of the hierarchical win", W, "single label", "tree"),
        _mean(
            "cross_entropy", probabilities.cross_entropy, "-ln p of the true label", W, "single label", note=_ONE_CLASS
        ),
        _ratio(
            "cross_entropy_by_depth",
            probabilities.cross_entropy_sums,
            probabilities.cross_entropy_by_depth,
            "-ln p of the true node of each depth",
            W,
            "single label",
            "tree",
            note=_ONE_CLASS,
        ),
        _ratio(
            "ece",
            probabilities.calibration_bins,
            probabilities.ece,
            "calibration error of the best leaf, and by level",
            R,
        ),
        _ratio(
            "brier", probabilities.brier_sums, probabilities.group_means, "squared error of leaf scores, by level", R
        ),
        _ratio(
            "log_loss",
            probabilities.log_loss_sums,
            probabilities.group_means,
            "sum of binary log losses of the leaves, by level",
            R,
            note=_BINARY,
        ),
        **_LOW,
    ),
    _ratio(
        "selective_accuracy", probabilities.coverage_bins, probabilities.selective_accuracy, "accuracy over coverage", R
    ),
)

_RANKING = _group(
    _mean(
        "precision@k",
        ranking.precision_at_k,
        "hits among the k best / k",
        T,
        switches=(ZERO_EMPTY, ZEROS),
        note=_COUNTS_EMPTY,
    ),
    *_group(
        _mean("recall@k", ranking.recall_at_k, "hits among the k best / true labels", T),
        _mean("ndcg@k", ranking.ndcg_at_k, "discounted gain of the k best", T),
        switches=(SKIP_EMPTY, ZEROS),
        note=_SKIPS,
    ),
    *_group(
        _ratio("psp@k", ranking.psp_sums, ranking.psp_at_k, "propensity-scored precision", T, "frequencies"),
        _ratio("micro_f1@k", ranking.top_k_counts, label_counts.micro_f1, "micro F1 of the k best", T),
        *_group(
            _ratio("macro_f1@k", ranking.top_k_counts, label_counts.macro_f1, "macro F1 of the k best", T),
            _ratio(
                "binned_macro_f1@k",
                ranking.top_k_counts,
                ranking.binned_macro_f1_at_k,
                "macro F1 by frequency",
                T,
                "frequencies",
            ),
            over_labels=True,
        ),
        switches=(ZEROS,),
    ),
    note=_NOT_RANKED,
    **_K,
)

METRICS: Registry[Metric] = Registry(
    "metric",
    (*_needing("decisions", *_FLAT, *_HIERARCHICAL, *_SINGLE_LABEL), *_needing("scores", *_OF_SCORES, *_RANKING)),
)


def find_metric(name: str) -> Metric:
    """Find a metric by name; "precision@5" is the row "precision@k" with k = 5, "hf_beta@2" has beta = 2.

    Conventions that can be switched stand in brackets: "recall@5(empty=zero)".

    >>> find_metric("precision@3").default, find_metric("recall@3( empty = 'zero' )").name
    (3.0, 'recall@3(empty=zero)')
    """
    plain, inside = split_settings(name)
    if inside is None:
        return _find_row(name)
    try:
        settings = read_settings(inside)
    except ValueError:
        raise TreelabelError(f"{name!r}: cannot read {inside!r}; expected settings such as (empty=zero)") from None
    row = _find_row(plain)
    metric = row.with_conventions(settings)
    changed: dict[str, Any] = {
        switch.name: switch.other for switch in row.switches if settings.get(switch.name) == switch.other
    }
    changed |= {name: value for name, value in metric.numbers if value != dict(row.numbers)[name]}
    return replace(metric, name=with_settings(row.name, changed))


def _find_row(name: str) -> Metric:
    """Find a metric by its name and the number behind @."""
    if name in METRICS and METRICS[name].parameter is None:
        return METRICS[name]
    base, index, number = name.partition("@")
    row = next((entry for entry in METRICS.values() if entry.name.partition("@")[0] == base and entry.parameter), None)
    if row is None:
        hint = did_you_mean(name, METRICS, cutoff=0.5, most=3) or "'treelabel metrics' lists them"
        raise TreelabelError(f"unknown metric {name!r}; {hint}")
    try:
        parameter = float(number) if index and number != row.parameter else row.default
    except ValueError:
        parameter = math.nan
    if not 0 < parameter < math.inf or (row.parameter == "k" and parameter != int(parameter)):
        raise TreelabelError(f"{name!r}: expected a number above 0 behind @, such as {base}@{row.default:g}")
    return replace(row, name=f"{base}@{parameter:g}" if index or row.name.endswith("@k") else name, default=parameter)
