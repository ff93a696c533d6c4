"""Which n-grams of a text support and oppose each step of a path."""

from dataclasses import dataclass

from scipy import sparse

from treelabel.models.linear.heads import FittedHead
from treelabel.text.ngram_names import named_ngrams
from treelabel.text.tfidf import Tfidf

# N-grams of a text by how they are written: their column, and their weight in the text.
Terms = dict[str, tuple[int, float]]


@dataclass(frozen=True)
class PathStep:
    """One step of a path: its label and probability, and its n-grams that support and oppose it, with their shares."""

    label: str
    p: float
    supporting_terms: list[tuple[str, float]]
    opposing_terms: list[tuple[str, float]]


def weigh_terms(text: str, tfidf: Tfidf, row: sparse.csr_array) -> Terms:
    """List the known n-grams of a text, whose features are `row`."""
    values = dict(zip(row.indices.tolist(), row.data.tolist(), strict=True))
    columns = {name: tfidf.column_of(bucket) for name, bucket in named_ngrams(text, tfidf.shape).items()}
    return {name: (column, values[column]) for name, column in columns.items() if column >= 0}


def explain_step(head: FittedHead, node: int, p: float, terms: Terms, most: int) -> PathStep:
    """Rank the n-grams of a text by their weight in it times their weight for a node, at most so many on either side.

    Parameters
    ----------
    head : FittedHead
        Its weights, and which output a node has.
    node, p
        The step and its probability.
    terms
        What `weigh_terms` returned.
    most : int
        N-grams on either side, at most.

    Returns
    -------
    PathStep
    """
    label, output = head.outputs.hierarchy.names[node], head.outputs.output(node)
    if output < 0:
        return PathStep(label, p, [], [])
    weights = head.weights.sparse[:, [output]].toarray().ravel()
    shares = {name: value * float(weights[column]) for name, (column, value) in terms.items()}
    ranked = sorted(((value, name) for name, value in shares.items() if value), reverse=True)
    supporting = [(name, value) for value, name in ranked[:most] if value > 0]
    opposing = [(name, value) for value, name in reversed(ranked[-most:]) if value < 0]
    return PathStep(label, p, supporting, opposing)
