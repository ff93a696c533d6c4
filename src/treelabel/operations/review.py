"""Review: which predictions are safe to accept, and which texts a person should look at first.

A prediction is accepted if the model is confident enough of it. How confident that is, is measured on the documents
that were held out of training, if there were any: thresholds of a fixed grid are tested from the highest down, and the
lowest one that passes has the required precision with a confidence of 90% (see `risk_bounds.last_precise`): of 100
models, ten may miss it. Without held-out documents, the surest predictions are accepted as long as the mean of their
probabilities promises the precision.

A prediction is correct if all of its labels are true; its confidence is the least probability of its most specific
labels. Where documents have several labels, a correct prediction may lack some: it is complete if it has all.

The priority of a text that is not accepted is

    (1 - p) x density x rarity

where p is the confidence of the prediction; density is the mean cosine similarity of the text to all others of the
file, by tf-idf of their words, divided by its mean over the file (Settles and Craven, 2008: what is learned from a text
in a crowd helps with the crowd); and rarity is 1 / (1 + ln(1 + n)), n being the training documents of the suggested
label (of several, the rarest): a further example of a rare label teaches most.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import sparse

from treelabel.core.bounded_memory import BLOCK_SCORES
from treelabel.core.errors import TreelabelError
from treelabel.core.matrices import normalize_rows
from treelabel.core.strings import Strings
from treelabel.core.types import BoolArray, DoubleArray, LongArray
from treelabel.hierarchy.label_matrices import LabelMatrix, matches, row_numbers
from treelabel.models.base import Model
from treelabel.models.model_inputs import texts_of
from treelabel.models.profile import Profile, label_confidence
from treelabel.rules.decisions import TunedRule, decide
from treelabel.rules.risk_bounds import GRID, last_precise
from treelabel.scores.score_matrix import Scores
from treelabel.selection.evidence import FEWEST_HELD_OUT
from treelabel.text.ngrams import NgramShape
from treelabel.text.tfidf import Tfidf

CONFIDENCE = 0.9


@dataclass(frozen=True)
class Acceptance:
    """How confident a prediction must be, and the share of accepted ones that are correct.

    By `held_out` documents, `precision` is what is reached at least, with a confidence of 90%; without them (0), it is
    what the probabilities promise. `complete` is the share of the correct held-out predictions that have all labels of
    their document; None without them. A threshold above 1 accepts nothing.
    """

    threshold: float
    precision: float | None
    held_out: int
    complete: float | None = None


@dataclass(frozen=True, eq=False)
class Reviewed:
    """Texts with their suggestions: their confidence p, what else it may be, what is accepted, and what to do first.

    `suggestions` are the most specific predicted labels, `alternatives` the likeliest other ones with their
    probabilities; `order` lists texts to review by falling priority, then accepted ones.
    """

    suggestions: LabelMatrix
    p: DoubleArray
    alternatives: list[list[tuple[int, float]]]
    accepted: BoolArray
    priority: DoubleArray
    acceptance: Acceptance

    @property
    def order(self) -> LongArray:
        """The rows in the order in which a person should see them."""
        return np.lexsort((np.arange(len(self.p)), self.p, -self.priority, self.accepted)).astype(np.int64)


def review(
    model: Model, texts: Any, precision: float = 0.95, alternatives: int = 3, rule: str | TunedRule | None = None
) -> Reviewed:
    """Suggest labels for texts, accept those that are safe, and rank the others by how useful it is to label them.

    Parameters
    ----------
    model : Model
        A fitted model.
    texts
        A list of texts, or a Dataset.
    precision : float
        The share of accepted predictions that must be right, which is to have no label that is not true.
    alternatives : int
        How many other labels to list for each text.
    rule : str, Tuned or None
        How the model decides; by default by its own rule. Acceptance is measured with that one alone.

    Returns
    -------
    Reviewed
    """
    if not 0 < precision <= 1:
        raise TreelabelError(f"precision = {precision:g}, expected a share above 0 and at most 1")
    column, _ = texts_of(texts)
    parts = list(_suggestions(model, column, alternatives, model.default_rule if rule is None else rule))
    suggestions = sparse.vstack([part[0] for part in parts], format="csr")
    p = np.concatenate([part[1] for part in parts])
    others = [listed for part in parts for listed in part[2]]
    acceptance = find_acceptance(p, precision, model.profile_ if rule in (None, model.default_rule) else None)
    accepted = (p >= acceptance.threshold) & (p > 0) & ~_is_strange(model, column)
    useful = (1 - p) * _density(column) * _rarity(suggestions, model.profile_.frequencies)
    return Reviewed(suggestions, p, others, accepted, np.where(accepted, 0.0, useful), acceptance)


def _is_strange(model: Model, texts: Any) -> BoolArray:
    """Mark texts without a single word that the model knows: held-out documents say nothing of them."""
    count = texts.shape[0] if sparse.issparse(texts) else len(texts)
    unknown = model.unknown_words(texts) if isinstance(texts, Strings) else None
    return np.zeros(count, np.bool_) if unknown is None else np.nan_to_num(unknown, nan=1.0) >= 1


def _suggestions(
    model: Model, texts: Any, count: int, rule: str | TunedRule
) -> Iterator[tuple[LabelMatrix, DoubleArray, list[list[tuple[int, float]]]]]:
    """Score some texts at a time, and keep of them what is shown."""
    h = model.hierarchy_
    ends = h.is_leaf.copy()
    ends[model.stop_nodes_] = True
    step, total = max(1, BLOCK_SCORES // max(1, len(h))), texts.shape[0] if sparse.issparse(texts) else len(texts)
    for start in range(0, max(1, total), step):
        scores: Scores = model.score(texts[start : start + step])
        decisions = decide(scores, rule)
        yield decisions.most_specific, label_confidence(scores, decisions), _others(scores, decisions.csr, ends, count)


def _others(scores: Scores, chosen: LabelMatrix, ends: BoolArray, count: int) -> list[list[tuple[int, float]]]:
    """List the likeliest nodes at which documents may end, but for those that were chosen."""
    csr = scores.csr()
    keep = ends[csr.indices] & ~matches(chosen, csr) & (csr.data > 0)
    rows, nodes, values = row_numbers(csr)[keep], csr.indices[keep], csr.data[keep]
    order = np.lexsort((nodes, -values, rows))
    pairs = list(zip(nodes[order].tolist(), values[order].tolist(), strict=True))
    starts = np.searchsorted(rows[order], np.arange(len(scores) + 1)).tolist()
    return [pairs[start:stop][:count] for start, stop in pairwise(starts)]


def find_acceptance(p: DoubleArray, precision: float, profile: Profile | None) -> Acceptance:
    """Find how confident a prediction must be to be accepted.

    Parameters
    ----------
    p : array of shape (texts,)
        The confidence of predictions.
    precision : float
        The share of accepted ones that must be correct.
    profile : Profile or None
        What the model remembers; None where that is of another rule.

    Returns
    -------
    Acceptance

    >>> find_acceptance(np.array([0.9, 0.8, 0.3]), 0.85, None)
    Acceptance(threshold=0.8, precision=0.85, held_out=0, complete=None)
    """
    if profile is not None and len(profile.confidences) >= FEWEST_HELD_OUT:
        return _measure_acceptance(profile, precision)
    order = np.sort(p[p > 0])[::-1]
    promised = np.cumsum(order) / np.arange(1, len(order) + 1)
    # A threshold takes all of equal values.
    is_last = np.append(order[1:] < order[:-1], True)[: len(order)]
    enough = np.flatnonzero(is_last & (promised >= precision * (1 - 1e-12)))
    if not len(enough):
        return Acceptance(2.0, None, 0)
    return Acceptance(float(order[enough[-1]]), round(float(promised[enough[-1]]), 12), 0)


def _measure_acceptance(profile: Profile, precision: float) -> Acceptance:
    # How many documents, and correct ones, have at least each threshold.
    confidences, correct = profile.confidences, profile.correct
    tries, hits = (
        len(values) - np.searchsorted(values, GRID) for values in (np.sort(confidences), np.sort(confidences[correct]))
    )
    last = last_precise(hits, tries, precision, CONFIDENCE)
    if last < 0:
        return Acceptance(2.0, None, len(confidences))
    is_accepted = confidences >= GRID[last]
    complete = float(profile.complete[correct & is_accepted].mean())
    # Below what held-out documents had, nothing was measured.
    return Acceptance(float(confidences[is_accepted].min()), precision, len(confidences), complete)


def _density(texts: Any) -> DoubleArray:
    """The mean cosine similarity of each text to the others, relative to the mean of all; 1 for texts alone."""
    rows = Tfidf.fit_transform(texts, NgramShape())[1] if isinstance(texts, Strings) else normalize_rows(texts)
    count = rows.shape[0]
    if count < 2:
        return np.ones(count)
    total = np.asarray(rows.sum(axis=0, dtype=np.float64)).ravel()
    squares = np.asarray(rows.multiply(rows).sum(axis=1), np.float64).ravel()
    density = np.maximum(0.0, (rows @ total - squares) / (count - 1))
    mean = float(density.mean())
    return density / mean if mean > 0 else np.ones(count)


def _rarity(suggestions: LabelMatrix, frequencies: LongArray) -> DoubleArray:
    """1 / (1 + ln(1 + training documents)) of the rarest suggested label; 1 where there is none."""
    fewest = np.full(suggestions.shape[0], np.inf)
    np.minimum.at(fewest, row_numbers(suggestions), frequencies[suggestions.indices].astype(np.float64))
    return 1 / (1 + np.log1p(np.where(np.isinf(fewest), 0.0, fewest)))
