"""Choose n-grams and the head of a model ("auto") by held-out documents of a sample.

A sample of whole families of labels keeps as many documents per label, and as many siblings to confuse, as there are;
documents drawn at random would leave most labels of a large hierarchy with none.
"""

import itertools
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from scipy import sparse

from treelabel.core.compute import kernel
from treelabel.core.errors import TreelabelError
from treelabel.core.strings import Strings
from treelabel.core.types import BoolArray, DoubleArray, FloatArray, IntArray, LongArray
from treelabel.hierarchy.label_matrices import keep_entries
from treelabel.rules.decisions import decide
from treelabel.scores.score_matrix import Scores
from treelabel.selection.evidence import SettingTrial
from treelabel.selection.goal import Goal, GoalValue
from treelabel.selection.training import Training, hold_out, log_losses
from treelabel.text.ngrams import NgramShape

NgramRange = tuple[int, int] | None

# What "auto" tries, in the order of cost: words, pairs of words, and four characters within words.
AUTO: tuple[tuple[NgramRange, NgramRange], ...] = (((1, 1), None), ((1, 2), None), ((1, 2), (4, 4)))
# The length of the part of a row that single words, longer n-grams of words, and characters have.
WORD_WEIGHT, LONGER_WEIGHT, CHAR_WEIGHT = 1.0, 0.5, 1.0
# With fewer documents nothing is tried.
FEWEST = 200
# Documents of the sample at most, and the share of them that is held out.
MOST = 4_000
HELD_OUT = 0.3
# Labels of a family at most: more are divided.
LARGEST_FAMILY = 30
# What costs more must lose less by this share, and by a standard error.
LEAST_GAIN = 0.02


def shape_of(ngram_range: NgramRange, char_ngram_range: NgramRange, n_features: int) -> NgramShape:
    """Return the shape of n-grams, each kind with its weight where there are several.

    Parameters
    ----------
    ngram_range
        The shortest and the longest n-grams of words; None for none.
    char_ngram_range
        The same for characters within words.
    n_features
        The number of buckets of each kind.

    Returns
    -------
    NgramShape

    >>> shape_of((1, 2), (4, 4), 1 << 20).weights, shape_of((1, 1), None, 1 << 20).weights
    ((1.0, 0.5, 1.0), None)
    """
    plain = NgramShape(ngram_range, char_ngram_range, n_features)
    short, long, _, characters = plain.lengths
    weights = [WORD_WEIGHT if length == 1 else LONGER_WEIGHT for length in range(short, long + 1)]
    weights += [CHAR_WEIGHT] * (characters > 0)
    return replace(plain, weights=tuple(weights)) if len(weights) > 1 else plain


@dataclass(frozen=True)
class FeatureChoice:
    """The n-grams and the head that were chosen, and what was tried."""

    shape: NgramShape
    head: str
    trials: tuple[SettingTrial, ...] = ()


def choose_features(
    train: Training,
    shapes: Sequence[NgramShape],
    heads: Sequence[str],
    features_of: Callable[[Strings, Sequence[NgramShape], LongArray], Callable[[NgramShape], sparse.csr_array]],
    score: Callable[[str, Training, LongArray, sparse.csr_array], Any],
    seed: int,
    metric: str | None = None,
) -> FeatureChoice:
    """Choose n-grams, then the head, each by the log loss of held-out documents of a sample, or by another metric.

    The first of them is kept unless another one loses less by a standard error and by 2%. Costs at most as many fits as
    there are candidates, each to half of the documents and of the labels, and to 4,000 documents at most. When it is
    time to hurry, nothing more is tried.

    Parameters
    ----------
    train : Training
        All documents.
    shapes : sequence of NgramShape
        The n-grams to try, cheap ones first.
    heads : sequence of str
        The heads to try, preferred ones first.
    features_of : callable
        Gets the texts of the sample, all n-grams, and the rows of held-out documents; returns a function from n-grams
        to features of these texts, held-out ones written as new ones are.
    score : callable
        Gets a head, the sample, the rows of held-out documents and the features of all, and returns the probabilities
        of the held-out documents by what was learned from the others.
    seed : int
        Seed of the sample.
    metric : str or None
        The metric to choose by, a row of METRICS: that of the best of a few simple rules. None for log loss.

    Returns
    -------
    FeatureChoice
    """
    if len(shapes) == len(heads) == 1 or len(train) < FEWEST:
        return FeatureChoice(shapes[0], heads[0])
    sample = draw_sample(train, seed)
    held = hold_out(len(sample), int(HELD_OUT * len(sample)), seed, sample.groups)
    if not len(held) or not sample[held].labels.nnz:
        return FeatureChoice(shapes[0], heads[0])
    tried: dict[tuple[NgramShape, str], tuple[DoubleArray, GoalValue | None]] = {}
    goal = None if metric is None else Goal.of(metric, sample.hierarchy, sample.labels)
    features = features_of(sample.texts, shapes, held)

    @cache
    def features_with(shape: NgramShape) -> sparse.csr_array:
        return merge_singles(features(shape))

    def losses(shape: NgramShape, head: str) -> DoubleArray:
        if (shape, head) not in tried:
            p = score(head, sample, held, features_with(shape))
            judged = judge_probabilities(goal, p, sample[held]) if goal is not None else None
            tried[shape, head] = log_losses(p, sample[held]), judged
        return _losses(goal, *tried[shape, head])

    def is_better(one: tuple[NgramShape, str], other: tuple[NgramShape, str]) -> bool:
        before = losses(*one)
        return not train.stop and is_worth_it(before, losses(*other))

    best = shapes[0], heads[0]
    try:
        for shape in shapes[1:]:
            best = (shape, heads[0]) if is_better(best, (shape, heads[0])) else best
        for head in heads[1:]:
            best = (best[0], head) if is_better(best, (best[0], head)) else best
    except KeyboardInterrupt:
        train.stop.interrupt()
    return FeatureChoice(*best, tuple(_trial(*which, *values, which == best) for which, values in tried.items()))


def _losses(goal: Goal | None, log_losses: DoubleArray, judged: GoalValue | None) -> DoubleArray:
    """Return what settings are compared by: log losses, or what the metric lacks of 1, the best value of most."""
    if goal is None or judged is None:
        return log_losses
    return 1 - judged.shares if goal.sign > 0 else judged.shares


def judge_probabilities(goal: Goal, p: Any, held: Training) -> GoalValue:
    """Judge the probabilities of some documents by a metric; one of decisions by the best of a few simple rules."""
    scores, true = Scores(held.hierarchy, p), held.closed_labels
    group = np.arange(len(held)) if held.groups is None else np.unique(held.groups, return_inverse=True)[1]
    if not goal.is_of_decisions:
        return goal.judge(true, None, scores, group)
    rules = goal.exact_rules or ("best_leaf", f"threshold@{goal.best_threshold(scores, true):g}")
    judged = []
    for rule in rules:
        # A metric of single labels cannot judge a rule that predicts several.
        with suppress(TreelabelError):
            judged.append(goal.judge(true, decide(scores, rule).csr, scores, group))
    if not judged:
        raise TreelabelError(f"no rule predicts what {goal.metric.name} can judge; choose for another metric")
    return max(judged, key=lambda each: goal.sign * each.value)


def merge_singles(features: sparse.csr_array) -> sparse.csr_array:
    """Make one column of all those that only one and the same document has.

    Products of documents with each other and with themselves stay what they are, and with them all that a linear model
    learns from some of the documents and says of others. Of long texts, most n-grams are in no other one.

    Returns
    -------
    csr_array of shape (documents, fewer columns)
        Columns that several documents have, in their order, then one for each document that has others.

    >>> merge_singles(sparse.csr_array(np.array([[1.0, 3.0, 0.0, 4.0], [1.0, 0.0, 2.0, 0.0]]))).toarray().tolist()
    [[1.0, 5.0, 0.0], [1.0, 0.0, 2.0]]
    """
    times = np.bincount(features.indices, minlength=features.shape[1])
    data, indices, ptr, width = merge_columns(features.indptr, features.indices, features.data, times > 1)
    return sparse.csr_array((data, indices, ptr), (features.shape[0], width))


@kernel
def merge_columns(
    ptr: IntArray, idx: IntArray, val: FloatArray, shared: BoolArray
) -> tuple[FloatArray, IntArray, IntArray, int]:
    """Keep the shared columns, and give each row one more of the length of its others, if it has any."""
    position, width, used = np.empty(len(shared), np.int64), 0, 0
    for column in range(len(shared)):
        position[column] = width
        width += shared[column]
    new_ptr, new_idx = np.empty(len(ptr), ptr.dtype), np.empty(len(idx), idx.dtype)
    new_val = np.empty(len(val), np.float32)
    new_ptr[0] = 0
    for row in range(len(ptr) - 1):
        square = 0.0
        for entry in range(ptr[row], ptr[row + 1]):
            if shared[idx[entry]]:
                new_idx[used], new_val[used] = position[idx[entry]], val[entry]
                used += 1
            else:
                square += np.float64(val[entry]) ** 2
        if square > 0:
            new_idx[used], new_val[used] = width, np.sqrt(square)
            width += 1
            used += 1
        new_ptr[row + 1] = used
    return new_val[:used], new_idx[:used], new_ptr, width


def is_worth_it(before: DoubleArray, after: DoubleArray) -> bool:
    """Return whether losses are smaller by a standard error of their differences, and by 2%.

    Parameters
    ----------
    before, after : arrays of shape (documents,)
        The losses of the same documents.

    Returns
    -------
    bool

    >>> is_worth_it(np.array([1.0, 2.0, 3.0]), np.array([0.9, 1.9, 2.8])), is_worth_it(np.ones(3), np.ones(3))
    (True, False)
    """
    gain = before - after
    if len(gain) < 2:
        return False
    return bool(gain.mean() > max(gain.std(ddof=1) / np.sqrt(len(gain)), LEAST_GAIN * abs(before.mean())))


def _trial(shape: NgramShape, head: str, losses: DoubleArray, judged: GoalValue | None, chosen: bool) -> SettingTrial:
    error = losses.std(ddof=1) / np.sqrt(len(losses)) if len(losses) > 1 else np.inf
    ranges = {"ngram_range": shape.ngram_range, "char_ngram_range": shape.char_ngram_range}
    settings = [f"{name}={value}" for name, value in ranges.items() if value is not None]
    value = None if judged is None else judged.value
    return SettingTrial(" ".join([*settings, f"head={head}"]), float(losses.mean()), float(error), chosen, value)


def draw_sample(train: Training, seed: int) -> Training:
    """Draw families of labels until they have half of the documents, or 4,000, and keep these labels only.

    Parameters
    ----------
    train : Training
        All documents.
    seed : int
        Seed of the order.

    Returns
    -------
    Training
        Documents with at least one label of these families, without their other labels.
    """
    h, rng = train.hierarchy, np.random.default_rng(seed)
    terminal = h.most_specific(train.labels)
    terminals = np.unique(terminal.indices)
    parents = h.parent_idx[h.parent_ptr[terminals]]
    order = rng.permutation(len(terminals))
    order = order[np.argsort(parents[order], kind="stable")]
    starts = np.r_[0, np.flatnonzero(np.diff(parents[order])) + 1, len(order)]
    families = [
        terminals[order[first : min(first + LARGEST_FAMILY, stop)]]
        for start, stop in itertools.pairwise(starts.tolist())
        for first in range(start, stop, LARGEST_FAMILY)
    ]
    wanted = min(MOST, -(-len(train) // 2))
    counts = np.bincount(terminal.indices, minlength=len(h))
    drawn, documents = np.zeros(len(h), np.bool_), 0
    for family in rng.permutation(len(families)).tolist():
        if documents >= wanted:
            break
        drawn[families[family]] = True
        documents += int(counts[families[family]].sum())
    labels = keep_entries(terminal, drawn[terminal.indices])
    rows: LongArray = np.flatnonzero(np.diff(labels.indptr))
    rows = np.sort(rng.permutation(rows)[:MOST])
    return replace(train[rows], labels=labels[rows])
