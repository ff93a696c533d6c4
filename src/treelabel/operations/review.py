"""Review: which predictions are safe to accept, and which texts a person should look at first.

A prediction is accepted if the model is sure enough of it. How sure that is, is measured on the documents that were
held out of training, if the model remembers them: thresholds of a fixed grid are tested from the highest down, and the
lowest one that passes has the required precision with a confidence of 90% (see `rules.precise.last_precise`): of 100
models, ten may miss it. Without held-out documents, the surest predictions are accepted as long as the mean of their
probabilities promises the precision.

A prediction is right if all of its labels are true, and as sure as the least probable of its most specific labels.
Where documents have several labels, a right prediction may lack some: it is complete if it has all that are true.

The priority of a text that is not accepted is

    (1 - p) x density x rarity

where p is how sure the prediction is; density is the mean cosine similarity of the text to all others of the file, by
tf-idf of their words, divided by its mean over the file (Settles and Craven, 2008: what is learned from a text in a
crowd helps with the crowd); and rarity is 1 / (1 + ln(1 + n)), n being the training documents of the suggested label
(of several, the rarest): a further example of a rare label teaches most. Nothing is known of n in folders of earlier
versions, and rarity is then 1.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse, special

from treelabel.core.bounded_memory import BLOCK_SCORES
from treelabel.core.errors import TreelabelError
from treelabel.core.strings import Strings
from treelabel.core.types import BoolArray, DoubleArray, IntArray, LongArray
from treelabel.hierarchy.label_matrices import LabelMatrix
from treelabel.models.base import Model
from treelabel.models.model_inputs import texts_of
from treelabel.models.profile import Profile, label_confidence
from treelabel.rules.back_off import last_precise
from treelabel.rules.decisions import TunedRule, decide
from treelabel.scores.score_matrix import Scores
from treelabel.selection.evidence import FEWEST_HELD_OUT
from treelabel.text.ngrams import NgramShape
from treelabel.text.tfidf import Tfidf

CONFIDENCE = 0.9
# Thresholds that are tested: fixed beforehand, and close to each other near 1, where predictions crowd.
GRID: DoubleArray = special.expit(np.linspace(10, -10, 201))


@dataclass(frozen=True)
class Acceptance:
    """How sure a prediction must be, and the share of accepted ones that are right.

    By `held_out` documents, `precision` is what is reached at least, with a confidence of 90%; without them (0), it is
    what the probabilities promise. `complete` is the share of the right ones among those held-out predictions that have
    all labels of their document; None if it is not known. A threshold above 1 accepts nothing.
    """

    threshold: float
    precision: float | None
    held_out: int
    complete: float | None = None


@dataclass(frozen=True, eq=False)
class Reviewed:
    """Texts with their suggestions: how sure these are, what else it may be, what is accepted, and what to do first.

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
    accepted = (p >= acceptance.threshold) & (p > 0)
    useful = (1 - p) * _density(column) * _rarity(suggestions, model.profile_)
    return Reviewed(suggestions, p, others, accepted, np.where(accepted, 0.0, useful), acceptance)


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
    result = []
    for row in range(len(scores)):
        nodes: IntArray = csr.indices[csr.indptr[row] : csr.indptr[row + 1]]
        values = csr.data[csr.indptr[row] : csr.indptr[row + 1]]
        mine = chosen.indices[chosen.indptr[row] : chosen.indptr[row + 1]]
        keep = ends[nodes] & ~np.isin(nodes, mine) & (values > 0)
        nodes, values = nodes[keep], values[keep]
        best = np.lexsort((nodes, -values))[:count]
        result.append(list(zip(nodes[best].tolist(), values[best].tolist(), strict=True)))
    return result


def find_acceptance(p: DoubleArray, precision: float, profile: Profile | None) -> Acceptance:
    """Find how sure a prediction must be to be accepted.

    Parameters
    ----------
    p : array of shape (texts,)
        How sure predictions are.
    precision : float
        The share of accepted ones that must be right.
    profile : Profile or None
        What the model remembers.

    Returns
    -------
    Acceptance

    >>> find_acceptance(np.array([0.9, 0.8, 0.3]), 0.85, None)
    Acceptance(threshold=0.8, precision=0.85, held_out=0, complete=None)
    """
    if profile is not None and profile.sure is not None and len(profile.sure) >= FEWEST_HELD_OUT:
        return _measure_acceptance(profile, precision)
    order = np.sort(p[p > 0])[::-1]
    promised = np.cumsum(order) / np.arange(1, len(order) + 1)
    enough = np.flatnonzero(_lasts(order) & (promised >= precision * (1 - 1e-12)))
    if not len(enough):
        return Acceptance(2.0, None, 0)
    return Acceptance(float(order[enough[-1]]), round(float(promised[enough[-1]]), 12), 0)


def _measure_acceptance(profile: Profile, precision: float) -> Acceptance:
    assert profile.sure is not None
    assert profile.right is not None
    # How many documents, and right ones, have at least each threshold.
    tries, hits = (
        len(values) - np.searchsorted(values, GRID)
        for values in (np.sort(profile.sure), np.sort(profile.sure[profile.right]))
    )
    last = last_precise(hits, tries, precision, CONFIDENCE)
    if last < 0:
        return Acceptance(2.0, None, len(profile.sure))
    complete = None
    if profile.complete is not None:
        complete = float(profile.complete[profile.right & (profile.sure >= GRID[last])].mean())
    return Acceptance(float(GRID[last]), precision, len(profile.sure), complete)


def _lasts(values: DoubleArray) -> BoolArray:
    """Mark the last of equal values in falling order: a threshold takes all of them."""
    return np.append(values[1:] < values[:-1], True)[: len(values)]


def _density(texts: Any) -> DoubleArray:
    """The mean cosine similarity of each text to the others, relative to the mean of all; 1 for texts alone."""
    rows = Tfidf.fit_transform(texts, NgramShape())[1] if isinstance(texts, Strings) else _unit(texts)
    count = rows.shape[0]
    if count < 2:
        return np.ones(count)
    total = np.asarray(rows.sum(axis=0, dtype=np.float64)).ravel()
    own = np.asarray(rows.multiply(rows).sum(axis=1), np.float64).ravel()
    density = np.maximum(0.0, (rows @ total - own) / (count - 1))
    mean = float(density.mean())
    return density / mean if mean > 0 else np.ones(count)


def _unit(rows: sparse.csr_array) -> sparse.csr_array:
    length = np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1), np.float64).ravel())
    return sparse.csr_array(sparse.diags_array(1 / np.where(length > 0, length, 1.0)) @ rows)


def _rarity(suggestions: LabelMatrix, profile: Profile | None) -> DoubleArray:
    """1 / (1 + ln(1 + training documents)) of the rarest suggested label; 1 where there is none."""
    count = suggestions.shape[0]
    if profile is None:
        return np.ones(count)
    fewest = np.full(count, np.inf)
    rows = np.repeat(np.arange(count), np.diff(suggestions.indptr))
    np.minimum.at(fewest, rows, profile.frequencies[suggestions.indices].astype(np.float64))
    return 1 / (1 + np.log1p(np.where(np.isinf(fewest), 0.0, fewest)))
