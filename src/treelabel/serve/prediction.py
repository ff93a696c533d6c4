"""Answers on texts: plain functions of a model and a request, without HTTP."""

from collections.abc import Callable, Iterable, Sequence
from itertools import chain, pairwise
from typing import Any

import numpy as np
from scipy import sparse

from treelabel.core.strings import Strings
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.label_ids import find_label
from treelabel.hierarchy.label_matrices import LabelMatrix, label_matrix
from treelabel.models.streaming import blank_texts, decide_texts
from treelabel.rules.decision_columns import WrittenLabels, chosen_labels, runner_up_labels, sorted_labels
from treelabel.rules.decisions import Decisions
from treelabel.rules.registry import RuleSpec
from treelabel.scores.score_matrix import Scores
from treelabel.serve.label_table import ServedLabels
from treelabel.serve.model_store import ServedModel
from treelabel.serve.schemas import DocumentAnswer, LabelAnswer, LabelRef, PredictSettings, ScoredDocument, StepAnswer
from treelabel.serve.served_rules import rule_of, set_answers

# Of hierarchies with more nodes, only the largest scores of a text are computed.
MANY_NODES = 20_000
TOP_SCORES = 1_000


def predict_documents(
    served: ServedModel,
    texts: Sequence[str],
    settings: PredictSettings,
    rule: RuleSpec | None = None,
    observe: Callable[[Decisions], None] | None = None,
) -> list[DocumentAnswer]:
    """Predict the labels of texts.

    Parameters
    ----------
    served
        A model.
    texts
        Any number of them.
    settings
        How to decide on labels.
    rule
        What `rule_of` returned for these settings, if that is known already.
    observe
        Is called with the decisions.

    Returns
    -------
    list of DocumentAnswer
        One per text.
    """
    asked = rule_of(served, settings) if rule is None else rule
    column = Strings.of(list(texts))
    known = known_labels(served.model.hierarchy_, settings.known) if settings.known else None
    scores = score_texts(served, column)
    if known is not None:
        scores = condition_on(scores, known)
    profile, blank = served.model.profile_, blank_texts(column)
    decisions = decide_texts(
        scores,
        blank,
        asked.rule.name,
        train_frequencies=profile.frequencies,
        train_documents=profile.documents,
        **asked.settings,
    )
    if known is not None:
        decisions = _with_known(decisions, known)
    if observe is not None:
        observe(decisions)
    chosen = label_answers(served.labels, scores, chosen_labels(decisions, scores))
    others: list[list[LabelAnswer]] = [[] for _ in texts]
    if settings.alternatives:
        others = label_answers(served.labels, scores, runner_up_labels(decisions, scores, settings.alternatives))
    abstained = (np.diff(decisions.csr.indptr) == 0).tolist()
    sets = None if known is not None else set_answers(decisions, asked)
    return [
        {
            "labels": chosen[row],
            "abstained": abstained[row],
            "set": None if sets is None else sets[row],
            "alternatives": others[row],
            "explanation": explain_text(served, text, [each["node"] for each in chosen[row]])
            if settings.explain
            else None,
        }
        for row, text in enumerate(texts)
    ]


def top_nodes(served: ServedModel, texts: Sequence[str], k: int) -> list[ScoredDocument]:
    """Return the likeliest nodes of texts.

    Parameters
    ----------
    served
        A model.
    texts
        Any number of them.
    k
        How many nodes of each.

    Returns
    -------
    list of ScoredDocument
        One per text, likeliest nodes first.
    """
    scores = score_texts(served, Strings.of(list(texts)))
    best = scores.top_k(k).values
    written = sorted_labels(scores.hierarchy, best, best.data.astype(np.float64))
    return [{"nodes": nodes} for nodes in label_answers(served.labels, scores, written)]


def score_texts(served: ServedModel, column: Strings) -> Scores:
    """Score texts; of very many nodes, only the largest scores."""
    scores: Scores = served.model.score(column, top=TOP_SCORES if len(served.model.hierarchy_) > MANY_NODES else None)
    return scores


def explain_text(served: ServedModel, text: str, nodes: Iterable[int]) -> list[StepAnswer]:
    """List the words that support and oppose each step to some nodes, each step once; without nodes, the best leaf.

    Parameters
    ----------
    served
        A model; one that cannot explain is refused.
    text
        One text.
    nodes
        Those to explain.

    Returns
    -------
    list of StepAnswer
    """
    h = served.model.hierarchy_
    ends = list(nodes) or score_texts(served, Strings.of([text])).best(h.is_leaf).tolist()
    steps: dict[int, Any] = {}
    for end in (end for end in ends if end >= 0):
        path = h.closure(label_matrix([0, 1], [end], len(h))).indices.tolist()
        steps |= dict(zip(path, served.model.explain(text, end), strict=True))
    return [
        {
            "node": node,
            "label": step.label,
            "probability": step.p,
            "supporting": list(step.supporting_terms),
            "opposing": list(step.opposing_terms),
        }
        for node, step in steps.items()
    ]


def find_node(hierarchy: Hierarchy, label: LabelRef) -> int:
    """Find the node of a label of a request; one that is unknown, or under the wrong parent, is refused.

    Parameters
    ----------
    hierarchy
        The hierarchy of the model.
    label
        A name, a path, a URI or a notation; a list is the path from the top.

    Returns
    -------
    int
    """
    return find_label(hierarchy, label, is_full=not isinstance(label, str) and len(label) > 1)


def known_labels(hierarchy: Hierarchy, labels: Sequence[LabelRef]) -> LabelMatrix:
    """Return labels as a matrix of one row, the most specific ones alone."""
    nodes = sorted({find_node(hierarchy, label) for label in labels})
    return hierarchy.most_specific(label_matrix([0, len(nodes)], nodes, len(hierarchy)))


def condition_on(scores: Scores, known: LabelMatrix) -> Scores:
    """Return the scores of texts of which some labels are known to be right.

    Known nodes and their ancestors have 1, a descendant n of a known node k has p(n) / p(k) (the largest, if several
    known nodes are above it; 0 where p(k) is 0), and all others 0: P(n | k) where n implies k.

    Parameters
    ----------
    scores
        As the model gave them.
    known : one row
        The most specific known labels.

    Returns
    -------
    Scores

    >>> h = Hierarchy.from_paths(["A > B", "A > C", "D"])
    >>> condition_on(Scores(h, [[0.5, 0.5, 0.25, 0.25]]), label_matrix([0, 1], [0], 4)).dense().tolist()
    [[1.0, 0.0, 0.5, 0.5]]
    """
    h, rows = scores.hierarchy, len(scores)
    result = sparse.csr_array(scores.values.shape, dtype=scores.dtype)
    csr = scores.csr().tocsc()
    for node in known.indices.tolist():
        below = h.descendants([node]).indices
        whole = csr[:, [node]].toarray()
        factor = np.divide(1, whole, out=np.zeros_like(whole), where=whole > 0)
        part = csr[:, below].tocoo()
        values = np.minimum(part.data * factor[part.row, 0], 1)
        given = sparse.csr_array((values, (part.row, below[part.col])), shape=result.shape, dtype=scores.dtype)
        result = result.maximum(given)
    sure = h.closure(known).indices
    ones = np.ones(rows * len(sure), scores.dtype)
    certain = sparse.csr_array((ones, np.tile(sure, rows), np.arange(rows + 1) * len(sure)), shape=result.shape)
    result = sparse.csr_array(result.maximum(certain))
    return Scores(h, result if scores.is_sparse else result.toarray())


def _with_known(decisions: Decisions, known: LabelMatrix) -> Decisions:
    """Add the known labels to every document; no document abstains then."""
    h = decisions.hierarchy
    every = sparse.vstack([known] * len(decisions), format="csr") if len(decisions) else decisions.csr
    return Decisions(h, h.closure((decisions.csr + every).astype(np.bool_)), decisions.ids, decisions.rule, closed=True)


def label_answers(table: ServedLabels, scores: Scores, written: WrittenLabels) -> list[list[LabelAnswer]]:
    """Return labels of documents with their probabilities and those of their ancestors.

    Parameters
    ----------
    table
        The labels of the hierarchy.
    scores
        By which the labels were chosen.
    written
        The labels, row after row.

    Returns
    -------
    list of lists of LabelAnswer
        One list per document.
    """
    nodes, ptr = written.nodes.tolist(), written.ptr.tolist()
    above = [table.ancestors(node) for node in nodes]
    flat = np.fromiter(chain.from_iterable(above), np.int64)
    sizes = np.fromiter(map(len, above), np.int64, len(above))
    rows = np.repeat(np.repeat(np.arange(len(ptr) - 1), np.diff(written.ptr)), sizes)
    values = np.asarray(scores.values[rows, flat]).ravel().astype(np.float64) if len(flat) else np.zeros(0)
    upper = np.round(values, 7).tolist()
    p = [] if written.p is None else written.p.tolist()
    ends = np.cumsum(sizes).tolist()
    answers = [
        table.answer(node, p[index], upper[ends[index] - len(above[index]) : ends[index]])
        for index, node in enumerate(nodes)
    ]
    return [answers[start:stop] for start, stop in pairwise(ptr)]
