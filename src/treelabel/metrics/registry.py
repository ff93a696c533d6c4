"""The registry of metrics. A new metric is a function in its family's file and a row here."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from treelabel.core.errors import TreelabelError
from treelabel.core.registry import Registry, did_you_mean, read_settings, split_settings, with_settings
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.label_matrices import LabelMatrix, row_sizes
from treelabel.metrics import (
    curves,
    label_counts,
    label_pairs,
    label_ranking,
    overlap,
    probabilities,
    ranking,
    sets,
    single_label,
)
from treelabel.metrics.batch import Batch
from treelabel.metrics.metric import (
    COHERENT,
    COUNT_EMPTY,
    GIVEN,
    LOG_WIN_ROOT,
    SKIP_EMPTY,
    WIN_ROOT,
    ZERO_EMPTY,
    ZEROS,
    Metric,
    Need,
)

# What sets of nodes and climbing are taken from.
M, G = (
    "Conformal prediction in hierarchical classification with constrained representation complexity",
    "Hierarchical selective classification",
)
R, R0, W, T, I = (  # noqa: E741  the papers' letters, as the documentation uses them
    "Revisiting hierarchical text classification: inference and metrics",
    "Revisiting hierarchical text classification: inference and metrics (submission)",
    "A hierarchical loss and its problems when classifying non-hierarchically",
    "Re-evaluating extreme multi-label text classification methods in tail label prediction",
    "Evaluating extreme hierarchical multi-label classification",
)
# Papers that these five cite.
K, L, Z, J = (
    "Evaluation measures for hierarchical classification: a unified view and novel approaches",
    "Hierarchical text classification and evaluation (Sun and Lim 2001)",
    "A unified view of multi-label performance measures (Wu and Zhou 2017)",
    "Extreme multi-label loss functions (Jain et al. 2016)",
)


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
_SUMMED = (
    "Distances of all pairs of a true and a predicted label are summed, so that equal sets of several labels are above "
    "0. The root stands for an empty set. One label each: shortest_path."
)
_CONTRIBUTED = (
    "Of the most specific labels, summed over documents. acceptable is the distance at which a wrong label contributes "
    "nothing; nearer ones count for the system, farther ones against it. 0/0 is 0."
)
_TIES = "Of all nodes; a label without a score has 0. Conventions, ties included, are those of scikit-learn."
_HALVES = "Of all nodes; a label without a score has 0. Equal scores count half, as in scikit-learn's roc_auc_score."
_CURVES = f"{_HALVES} Labels that are true in no document, or in all, do not count; scikit-learn's average is NaN then."
_TOP = "Of all nodes; of equal scores the lowest id is first. A document whose scores are all 0 is wrong."
_ICM_NOTE = (
    "alpha a + alpha_2 b - beta (a + b - c), with a, b and c the information of prediction, truth and both. The rule "
    "optimal:icm takes alpha and beta, too. Two empty sets have 0."
)

_COVERS = (
    "Of the most specific predicted labels; nothing predicted is the root, which covers every document and has all "
    "leaves. A document is covered if one of the nodes is true. Documents without true labels do not count."
)

# Options that rows share; a row with `parts` has a value of their sums, others have one value per document.

_Options = dict[str, Any]
_LOW: _Options = {"higher_is_better": False}
_ANY: _Options = {"is_share": False}
_COUNTS: _Options = {"parts": label_counts.label_counts}
_SETS: _Options = {"switches": (GIVEN,)}
_MICRO: _Options = {**_COUNTS, **_SETS, "note": _COUNTED}
_OVER_LABELS: _Options = {"over_labels": label_counts.frequent_labels_right}
_MACRO: _Options = {**_MICRO, **_OVER_LABELS}
_BINS: _Options = {**_COUNTS, **_OVER_LABELS}
_CONSTRAINED: _Options = {"parts": label_counts.constrained_counts, "note": _ORPHANS}
_FLAT: _Options = {**_SETS, "note": _EMPTY_IS_ZERO}
_AGREE: _Options = {"note": _EMPTY_AGREES}
_BETA: _Options = {**_AGREE, "parameter": "beta", "default": 1.0}
_SUMS: _Options = {"parts": overlap.overlap_sums, "note": _COUNTED}
_ICM: _Options = {"numbers": (("alpha", 2.0), ("alpha_2", 2.0), ("beta", 3.0)), "note": _ICM_NOTE}
_ICM_SUMS: _Options = {"parts": overlap.icm_sums}
_ONE: Need = "single label"
_JIANG_CONRATH, _CROSS_ENTROPY = "information not shared (a distance)", "-ln p of the true node of each depth"
_LEVELS: _Options = {"parts": single_label.level_matches, "is_share": True}
_PAIRS: _Options = {"note": _SINGLE}
_RAISE: _Options = {"switches": (COHERENT,), "note": _RAISED}
_POINTS: _Options = {"parts": curves.hierarchical_points}
_BIT_POINTS: _Options = {"parts": curves.information_points}
_CLASSES: _Options = {**_ANY, "note": _ONE_CLASS}
_DEPTHS: _Options = {"parts": probabilities.cross_entropy_sums, "note": _ONE_CLASS}
_CALIBRATION: _Options = {"parts": probabilities.calibration_bins}
_BRIER: _Options = {"parts": probabilities.brier_sums}
_LOG_LOSS: _Options = {"parts": probabilities.log_loss_sums, "note": _BINARY}
_COVERAGE: _Options = {"parts": probabilities.coverage_bins}
_COVERING: _Options = {"note": _COVERS}
_CLIMB: _Options = {"parts": sets.climbing_points}
_K: _Options = {"parameter": "k", "default": 5.0, "switches": (ZEROS,), "note": _NOT_RANKED}
_K_ZERO: _Options = {**_K, "switches": (ZERO_EMPTY, ZEROS), "note": f"{_COUNTS_EMPTY} {_NOT_RANKED}"}
_K_SKIP: _Options = {**_K, "switches": (SKIP_EMPTY, ZEROS), "note": f"{_SKIPS} {_NOT_RANKED}"}
_RANKED: _Options = {"switches": (COUNT_EMPTY,), "note": _TIES}
_DEEP: _Options = {**_RANKED, **_LOW, **_ANY, "note": f"{_TIES} What papers call coverage is one less."}
_FIRST: _Options = {"switches": (COUNT_EMPTY,), "note": _TOP}
_AVERAGE = "precision at each true label, averaged"
_PAIR_BINS: _Options = {"parts": label_ranking.score_bins, "note": _HALVES}
_LABEL_BINS: _Options = {
    "parts": label_ranking.score_bins_by_label,
    "over_labels": label_ranking.frequent_labels_ranked,
    "note": _CURVES,
}
_ARGMAX: _Options = {"parts": label_ranking.argmax_matches, "is_share": True}
_WIN: _Options = {"switches": (WIN_ROOT,)}
_LOG_WIN: _Options = {"switches": (LOG_WIN_ROOT,)}
_K_COUNTS: _Options = {**_K, "parts": ranking.top_k_counts}
_CONTRIBUTIONS: _Options = {
    "parts": label_pairs.distance_contributions,
    "numbers": (("acceptable", 2.0),),
    "note": _CONTRIBUTED,
}
_K_LABELS: _Options = {**_K_COUNTS, **_OVER_LABELS}


def _rows(need: Need, *rows: tuple[Any, ...]) -> tuple[Metric, ...]:
    """Make metrics of rows: name, function, help, paper, and any further needs and options."""
    metrics = []
    for name, function, help_text, paper, *more in rows:
        needs: frozenset[Any] = frozenset((need, *(each for each in more if isinstance(each, str))))
        options = {key: value for each in more if isinstance(each, dict) for key, value in each.items()}
        options["value" if "parts" in options else "documents"] = function
        options.setdefault("is_share", "parts" not in options)
        metrics.append(Metric(name, help_text, paper, needs, **options))
    return tuple(metrics)


_OF_DECISIONS = _rows(
    "decisions",
    # Flat
    ("micro_f1", label_counts.micro_f1, "F1 of counts summed over labels", R, _MICRO),
    ("micro_precision", label_counts.micro_precision, "share of predictions that are true", R, _MICRO),
    ("micro_recall", label_counts.micro_recall, "share of true labels that are predicted", R, _MICRO),
    ("macro_f1", label_counts.macro_f1, "mean F1 of the labels, absent ones 0", R, _MACRO),
    ("macro_f1_present", label_counts.macro_f1_present, "mean F1 of labels that occur", R, _MACRO),
    ("macro_precision", label_counts.macro_precision, "mean precision of the labels", R, _MACRO),
    ("macro_recall", label_counts.macro_recall, "mean recall of the labels", R, _MACRO),
    ("samples_f1", overlap.samples_f1, "mean F1 of the documents' closed sets", R, _FLAT),
    ("samples_precision", overlap.samples_precision, "mean precision of the documents", R, _FLAT),
    ("samples_recall", overlap.samples_recall, "mean recall of the documents", R, _FLAT),
    ("hamming", overlap.hamming, "share of nodes that are wrong", R, _LOW, _SETS),
    ("hamming_annotated", label_counts.hamming_annotated, "the same over labels that occur", I, _COUNTS, _LOW, _SETS),
    ("hamming_levels", label_counts.hamming_levels, "Hamming loss averaged over levels", R0, _COUNTS, _LOW, _SETS),
    ("subset_accuracy", overlap.subset_accuracy, "share of documents with exactly the true set", I, _SETS),
    ("jaccard", overlap.jaccard, "shared nodes among all nodes of either set", I, _FLAT),
    ("label_accuracy", label_counts.label_accuracy, "mean accuracy of the labels", I, _COUNTS, _SETS),
    ("constrained_micro_f1", label_counts.micro_f1, "micro F1, ancestors required", R, _CONSTRAINED),
    ("constrained_macro_f1", label_counts.macro_f1, "macro F1, ancestors required", R, _BINS, _CONSTRAINED),
    ("macro_f1_by_depth", label_counts.macro_f1_by_depth, "macro F1 of each depth", R, _BINS, _SETS),
    ("macro_f1_by_decile", label_counts.macro_f1_by_decile, "macro F1 by training frequency", R, "frequencies", _BINS),
    # Hierarchical
    ("hp", overlap.hp, "hierarchical precision", R, _AGREE),
    ("hr", overlap.hr, "hierarchical recall", R, _AGREE),
    ("hf1", overlap.hf1, "hierarchical F1", R, _AGREE),
    ("hf1_root", overlap.hf1_root, "hierarchical F1, the root counted in both sets", I),
    ("hf_beta", overlap.hf, "hierarchical F of any beta: hf_beta@0.5", R, _BETA),
    ("hp_micro", overlap.hp_micro, "aggregate hierarchical precision", W, _SUMS),
    ("hr_micro", overlap.hr_micro, "aggregate hierarchical recall", W, _SUMS),
    ("hf1_micro", overlap.hf1_micro, "aggregate hierarchical F1", W, _SUMS),
    ("info_hp", overlap.info_hp, "hierarchical precision in bits", R, "frequencies", _AGREE),
    ("info_hr", overlap.info_hr, "hierarchical recall in bits", R, "frequencies", _AGREE),
    ("info_hf1", overlap.info_hf1, "hierarchical F1 in bits", R, "frequencies", _AGREE),
    ("icm", overlap.icm, "information contrast of prediction and truth, in bits", I, "frequencies", _ICM, _ANY),
    ("icm_norm", overlap.icm_norm, "information contrast scaled to [0, 1]", I, "frequencies", _ICM, _ICM_SUMS),
    ("propensity_f1", overlap.propensity_f1, "F1 with larger weights for rare labels", I, "frequencies"),
    ("shortest_path", overlap.shortest_path, "edges between prediction and truth", R0, _LOW, {"note": _SEVERAL}, _ANY),
    ("shortest_path_sum", label_pairs.shortest_path_sum, "edges between all labels", R0, _LOW, {"note": _SUMMED}, _ANY),
    # Of single labels
    ("leaf_accuracy", single_label.leaf_accuracy, "share of most specific labels that are right", R, _ONE, _PAIRS),
    ("level_accuracy", single_label.level_accuracy, "accuracy by depth, on closed sets", R, _LEVELS, _SETS),
    (
        "coarsest_accuracy",
        single_label.coarsest_accuracy,
        "share of top labels that are right",
        W,
        _ONE,
        "tree",
        _PAIRS,
    ),
    ("parent_accuracy", single_label.parent_accuracy, "share of parents that are right", W, _ONE, "tree", _PAIRS),
    ("finest_accuracy", single_label.leaf_accuracy, "share of most specific labels that are right", W, _ONE, _PAIRS),
    ("onehot_win", single_label.onehot_win, "hierarchical win of the chosen leaf", W, _ONE, "tree", _WIN),
    ("wu_palmer", single_label.wu_palmer, "similarity by the depth of the common ancestor", I, _ONE, _PAIRS),
    ("lca_precision", single_label.lca_precision, "precision up to where labels meet", K, _ONE, "tree", _PAIRS),
    ("lca_recall", single_label.lca_recall, "recall up to where labels meet", K, _ONE, "tree", _PAIRS),
    ("lca_f1", single_label.lca_f1, "F1 up to where labels meet", K, _ONE, "tree", _PAIRS),
    ("distance_precision", label_pairs.distance_precision, "precision with near misses", L, _CONTRIBUTIONS),
    ("distance_recall", label_pairs.distance_recall, "recall with near misses", L, _CONTRIBUTIONS),
    ("leacock_chodorow", single_label.leacock_chodorow, "similarity by path length", I, _ONE, _PAIRS, _ANY),
    ("resnik", single_label.resnik, "information of the common ancestor", I, _ONE, "frequencies", _PAIRS, _ANY),
    ("lin", single_label.lin, "share of information in common", I, _ONE, "frequencies", _PAIRS),
    ("jiang_conrath", single_label.jiang_conrath, _JIANG_CONRATH, I, _ONE, "frequencies", _PAIRS, _LOW, _ANY),
)

_OF_SCORES = _rows(
    "scores",
    ("hf1_auc", curves.hf1_auc, "area under hierarchical precision over recall", R, _RAISE),
    ("info_hf1_auc", curves.info_hf1_auc, "the same area in bits", R, "frequencies", _RAISE),
    ("best_hf1", curves.best_f1, "hierarchical F1 at the best threshold", R, _RAISE, _POINTS),
    ("best_info_hf1", curves.best_f1, "the same in bits", R, "frequencies", _RAISE, _BIT_POINTS),
    ("softmax_win", probabilities.softmax_win, "hierarchical win of the scores", W, _ONE, "tree", _WIN),
    ("neg_log_win", probabilities.neg_log_win, "-ln of the hierarchical win", W, _ONE, "tree", _LOW, _LOG_WIN, _ANY),
    ("cross_entropy", probabilities.cross_entropy, "-ln p of the true label", W, _ONE, _LOW, _CLASSES),
    ("cross_entropy_by_depth", probabilities.cross_entropy_by_depth, _CROSS_ENTROPY, W, _ONE, "tree", _DEPTHS, _LOW),
    ("ece", probabilities.ece, "calibration error of the best leaf, and by level", R, _CALIBRATION, _LOW),
    ("brier", probabilities.group_means, "squared error of leaf scores, by level", R, _BRIER, _LOW),
    ("log_loss", probabilities.group_means, "sum of binary log losses of the leaves, by level", R, _LOG_LOSS, _LOW),
    ("selective_accuracy", probabilities.selective_accuracy, "accuracy over coverage", R, _COVERAGE),
    # Of the whole ranking
    ("ranking_loss", label_ranking.ranking_loss, "share of true labels below false ones", Z, _LOW, _RANKED),
    ("one_error", label_ranking.one_error, "share of documents whose best label is wrong", Z, _LOW, _FIRST),
    ("coverage_error", label_ranking.coverage_error, "rank of the last true label", Z, _DEEP),
    ("label_ranking_average_precision", label_ranking.label_ranking_average_precision, _AVERAGE, Z, _RANKED),
    ("instance_auc", label_ranking.instance_auc, "area under the ROC curve of each document", Z, {"note": _HALVES}),
    ("micro_auc", label_ranking.micro_auc, "area under the ROC curve of all labels", Z, _PAIR_BINS),
    ("macro_auc", label_ranking.macro_auc, "mean area under the ROC curve of the labels", Z, _LABEL_BINS),
    ("argmax_level_accuracy", label_ranking.argmax_level_accuracy, "accuracy of each level's best node", R0, _ARGMAX),
    # Of the k best
    ("precision@k", ranking.precision_at_k, "hits among the k best / k", T, _K_ZERO),
    ("recall@k", ranking.recall_at_k, "hits among the k best / true labels", T, _K_SKIP),
    ("ndcg@k", ranking.ndcg_at_k, "discounted gain of the k best", T, _K_SKIP),
    ("psp@k", ranking.psp_at_k, "propensity-scored precision", T, "frequencies", _K, {"parts": ranking.psp_sums}),
    ("psp_printed@k", ranking.psp_printed_at_k, "the same as printed in the paper", T, "frequencies", _K, _ANY),
    ("psndcg@k", ranking.psndcg_at_k, "propensity-scored nDCG", J, "frequencies", _K, {"parts": ranking.psndcg_sums}),
    ("micro_f1@k", label_counts.micro_f1, "micro F1 of the k best", T, _K_COUNTS),
    ("macro_f1@k", label_counts.macro_f1, "macro F1 of the k best", T, _K_LABELS),
    ("binned_macro_f1@k", ranking.binned_macro_f1_at_k, "macro F1 by frequency", T, "frequencies", _K_LABELS),
)

_OF_SETS = (
    *_rows(
        "decisions",
        ("set_coverage", sets.set_coverage, "share of documents that the predicted nodes cover", M, _COVERING),
        ("set_size", sets.set_size, "leaves at or below the predicted nodes", M, _COVERING, _LOW, _ANY),
        ("set_nodes", sets.set_nodes, "most specific predicted nodes", M, _COVERING, _LOW, _ANY),
        ("set_depth", sets.set_depth, "mean depth of the predicted nodes", M, _COVERING, _ANY),
    ),
    *_rows(
        "scores",
        ("haurc", sets.haurc, "area under risk over the information kept while climbing", G, "tree", _CLIMB, _LOW),
    ),
)

METRICS: Registry[Metric] = Registry("metric", (*_OF_DECISIONS, *_OF_SCORES, *_OF_SETS))


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


DEFAULT_DECISION_METRICS = (
    "hp",
    "hr",
    "hf1",
    "micro_f1",
    "macro_f1",
    "samples_f1",
    "hamming",
    "subset_accuracy",
    "level_accuracy",
    "shortest_path",
)
DEFAULT_SCORE_METRICS = ("hf1_auc",)
# What shows whether sets keep a promise of coverage, and at what cost.
COVERING_METRICS = ("set_coverage", "set_size")


def listed_metrics(names: Sequence[str] | str | None) -> list[str]:
    """Return the metrics that were asked for by name."""
    if names is None or names == "all":
        return []
    return [names] if isinstance(names, str) else list(names)


def needs_decisions(names: Sequence[str] | str | None) -> bool:
    """Return whether any of the metrics looks at decisions; "all" and the usual few do."""
    listed = listed_metrics(names)
    return not listed or any("decisions" in find_metric(name).needs for name in listed)


def chosen_metrics(names: Sequence[str] | str | None, batch: Batch, promises_coverage: bool = False) -> list[Metric]:
    """Find metrics by name; "all" takes every row whose needs are met, None a usual few.

    Parameters
    ----------
    names
        Names, "all" or None.
    batch
        Documents that show what is there: decisions, scores, training frequencies.
    promises_coverage
        Whether decisions are by a rule with a guarantee of coverage, which the usual few then begin with.

    Returns
    -------
    list of Metric
    """
    listed = listed_metrics(names)
    if names == "all":
        listed = _applicable(batch)
    elif names is None:
        listed += COVERING_METRICS if promises_coverage and batch.input_decisions is not None else ()
        listed += DEFAULT_DECISION_METRICS if batch.input_decisions is not None else ()
        listed += DEFAULT_SCORE_METRICS if batch.input_scores is not None else ()
    if not listed:
        missing = "no metric is named" if names is not None and names != "all" else "pass decisions= or scores="
        raise TreelabelError(f"nothing to judge: {missing}")
    return [find_metric(name) for name in listed]


def _applicable(batch: Batch) -> list[str]:
    """The metrics whose needs are met. Those of decisions need single labels on both sides, others in the truth."""
    have = {"decisions": batch.input_decisions is not None, "scores": batch.input_scores is not None}
    have["frequencies"] = batch.context.closed is not None and batch.context.documents is not None
    have["tree"] = batch.hierarchy.is_tree
    single_truth = _is_single(batch.hierarchy, batch.truth)
    single_both = single_truth and have["decisions"] and _is_single(batch.hierarchy, batch.decisions)
    result = []
    for row in METRICS.values():
        have["single label"] = single_both if "decisions" in row.needs else single_truth
        if all(have[need] for need in row.needs):
            result.append(row.name)
    return result


def _is_single(hierarchy: Hierarchy, labels: LabelMatrix) -> bool:
    return bool(row_sizes(hierarchy.most_specific(labels)).max(initial=0) <= 1)


def require_some(rows: Sequence[Metric], skipped: Mapping[str, str]) -> None:
    """Refuse to judge by nothing, where no metric that was asked for applies.

    Parameters
    ----------
    rows
        The metrics that are left.
    skipped
        Why each of the others was skipped, by name.
    """
    if not rows and skipped:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in skipped.items())
        raise TreelabelError(reasons if len(skipped) == 1 else f"none of the metrics applies: {reasons}")
