"""Profiles: counts, means and digests of its training that a model remembers for review, drift and update; no texts."""

from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import numpy as np
from scipy import sparse

from treelabel.core.array_schema import Array, Arrays, Schema
from treelabel.core.errors import TreelabelError
from treelabel.core.matrices import entries
from treelabel.core.strings import Strings, text_digests
from treelabel.core.types import BoolArray, DoubleArray, FloatArray, LongArray
from treelabel.core.validation import Between, JsonRecord, Share
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.label_matrices import (
    LabelMatrix,
    keep_entries,
    matches,
    row_numbers,
    row_sizes,
)
from treelabel.hierarchy.labelled_texts import Regime
from treelabel.hierarchy.moves import Moves
from treelabel.rules.decisions import Decisions, decide
from treelabel.scores.score_matrix import Scores
from treelabel.selection.evidence import MOST_TRIED, HeldOut
from treelabel.selection.training import Training
from treelabel.text.ngrams import NgramShape, count_ngrams
from treelabel.text.tfidf import Tfidf, columns_of

# Held-out documents of which it is stored how confident the model was of each, and whether it was correct.
MOST_STORED = 20_000
# Training texts whose unknown words are counted, as if they had not been learned.
MOST_TEXTS = 2_000

# Mean, standard deviation, and number of documents.
Mean = tuple[Share, Share, Annotated[int, Between(1, 1 << 62)]]


@dataclass(frozen=True, eq=False)
class ProfileMeans(JsonRecord):
    """The numbers of a `Profile`, which are in model.json.

    Parameters
    ----------
    documents : int
        How many training documents there were.
    confidence : (float, float, int) or None
        The probability of the likeliest leaf of held-out documents: mean, standard deviation, documents.
    unknown_words : (float, float, int) or None
        The share of the words of a text that no other training text has, in the same way; None without a vocabulary.
    """

    documents: Annotated[int, Between(1, 1 << 62)]
    confidence: Mean | None = None
    unknown_words: Mean | None = None


@dataclass(frozen=True, eq=False)
class Profile(ProfileMeans):
    """Counts and means of training documents, and of those held out of training; empty arrays if there were none.

    Parameters
    ----------
    frequencies : array of int64, shape (nodes,)
        How many training documents have each label, ancestors included.
    digests : array of int64, shape (documents,)
        64 bits of each training text, case and spacing aside, in rising order: what the model learned from.
    shares : array of float32, shape (nodes,)
        The mean probability of each node on held-out documents.
    confidences : array of float32, shape (held-out documents,)
        The least probability of a most specific label that the model gave each.
    correct, complete : arrays of bool, shape (held-out documents,)
        Whether all of these labels are true, and whether they are all that the document has.
    """

    frequencies: LongArray = field(default_factory=lambda: np.zeros(0, np.int64))
    digests: LongArray = field(default_factory=lambda: np.zeros(0, np.int64))
    shares: FloatArray = field(default_factory=lambda: np.zeros(0, np.float32))
    confidences: FloatArray = field(default_factory=lambda: np.zeros(0, np.float32))
    correct: BoolArray = field(default_factory=lambda: np.zeros(0, np.bool_))
    complete: BoolArray = field(default_factory=lambda: np.zeros(0, np.bool_))

    @classmethod
    def of(cls, train: Training, held: HeldOut | None, rule: str, vocabulary: Tfidf | None, min_df: int) -> "Profile":
        """Count what is remembered.

        Parameters
        ----------
        train : Training
            The training documents.
        held : HeldOut or None
            Those of them that were scored by what was learned without them.
        rule : str
            The rule by which the model predicts.
        vocabulary : Tfidf or None
            The n-grams that it knows.
        min_df : int
            In how many texts n-grams had to be to become known.

        Returns
        -------
        Profile
        """
        unknown = None
        if vocabulary is not None and train.features is None:
            some = train.texts
            if len(some) > MOST_TEXTS:
                sample = np.random.default_rng(0).choice(len(some), MOST_TEXTS, replace=False)
                some = some.take(np.sort(sample))
            unknown = mean_of(unknown_words(vocabulary, some, len(train), min_df))
        counted = cls(len(train), None, unknown, train.frequencies, digests_of(train.texts))
        if held is None or not len(held.scores):
            return counted
        total = np.asarray(held.scores.values.sum(axis=0, dtype=np.float64)).ravel()
        shares = np.clip(total / len(held.scores), 0, 1).astype(np.float32)
        confidence = mean_of(confidence_of(held.scores))
        return replace(counted, confidence=confidence, shares=shares, **_judge(held, rule))

    def by_rule(self, held: HeldOut | None, rule: str) -> "Profile":
        """Return the same profile of a model that predicts by another rule; see `of`."""
        return self if held is None or not len(held.scores) else replace(self, **_judge(held, rule))

    def carry_over(self, moves: Moves, more: Training | None) -> "Profile":
        """Return the profile of a model that was updated without holding anything out.

        Counts follow the labels, and those of new documents are added; what held-out documents said of confidence and
        correctness stays as it was. Shares of labels are known where no label changed.

        Parameters
        ----------
        moves : Moves
            From the hierarchy of the profile to that of the updated model.
        more : Training or None
            The new documents.

        Returns
        -------
        Profile
        """
        counts = self.frequencies
        if not moves.is_identity:
            counts = np.rint(moves.sums(counts[:, None].astype(np.float64))[:, 0]).astype(np.int64)
        if more is not None:
            counts = counts + more.frequencies
        return replace(
            self,
            documents=self.documents + (0 if more is None else len(more)),
            frequencies=np.maximum(counts, 0),
            shares=self.shares if moves.is_identity else self.shares[:0],
            digests=self.digests if more is None else np.sort(np.append(self.digests, digests_of(more.texts))),
        )

    def with_counts(self, counted: "Profile") -> "Profile":
        """Return the profile of a model that learned all its documents again, holding none of them out.

        Counts are those of the documents that it learned now; what held-out documents said stays as it was.
        """
        return replace(
            self,
            documents=counted.documents,
            frequencies=counted.frequencies,
            unknown_words=counted.unknown_words,
            digests=counted.digests,
        )

    def missing(self, *parts: Strings) -> int:
        """Count the documents that the model learned from and that are in none of these columns of texts.

        A text that was learned twice has to be there twice.
        """
        known, times = np.unique(self.digests, return_counts=True)
        result = np.sort(np.concatenate([digests_of(texts) for texts in parts]))
        counts = np.searchsorted(result, known, "right") - np.searchsorted(result, known)
        return int(np.maximum(times - counts, 0).sum())

    def count_learned(self, texts: Strings) -> int:
        """Count the texts that the model learned from; empty ones, of which nothing is learned, do not count."""
        digests = text_digests(texts)
        first = digests[digests.any(axis=1), 0]
        return int(np.isin(first, self.digests).sum())

    def means(self) -> ProfileMeans:
        """Return the numbers to save."""
        return ProfileMeans(self.documents, self.confidence, self.unknown_words)

    def arrays(self) -> Arrays:
        """Return the arrays to save."""
        return {name: getattr(self, name).astype(array.dtype) for name, array in ARRAYS.items()}

    @classmethod
    def of_stored(cls, means: ProfileMeans, arrays: Arrays, hierarchy: Hierarchy) -> "Profile":
        """Make it of what `means` and `arrays` returned; arrays fit the schema."""
        if len(arrays["shares"]) not in (0, len(hierarchy)):
            raise TreelabelError(f"damaged: shares of {len(arrays['shares']):,} of {len(hierarchy):,} labels")
        fields: dict[str, Any] = {**vars(means), **arrays, "digests": np.sort(arrays["digests"])}
        fields |= {name: arrays[name].astype(np.bool_) for name in ("correct", "complete")}
        return cls(**fields)


ARRAYS = {
    "frequencies": Array("int64", ("nodes",), 0),
    "digests": Array("int64", ("documents",), -(2.0**63), 2.0**63),
    "shares": Array("float32", ("shares",), 0, 1),
    "confidences": Array("float32", ("held",), 0, 1),
    "correct": Array("int8", ("held",), 0, 1),
    "complete": Array("int8", ("held",), 0, 1),
}


def profile_schema(means: ProfileMeans, hierarchy: Hierarchy) -> Schema:
    """Declare what `Profile.arrays` returns.

    Parameters
    ----------
    means
        What `Profile.means` returned.
    hierarchy
        The hierarchy of the model.

    Returns
    -------
    Schema
    """
    sizes = {"nodes": len(hierarchy), "documents": means.documents}
    return Schema(ARRAYS, sizes=sizes, most={"shares": len(hierarchy), "held": MOST_STORED})


def digests_of(texts: Strings) -> LongArray:
    """Return 64 bits of each text, case and spacing aside, in rising order.

    >>> first, second = digests_of(Strings.of(["a b", "A  b"]))
    >>> bool(first == second)
    True
    """
    return np.sort(text_digests(texts)[:, 0])


def mean_of(values: DoubleArray) -> Mean | None:
    """Return mean, standard deviation and count of the values that are known; None if none is.

    >>> mean_of(np.array([0.25, 0.75, np.nan]))
    (0.5, 0.25, 2)
    """
    known = values[~np.isnan(values)]
    return (float(known.mean()), float(known.std()), len(known)) if len(known) else None


def confidence_of(scores: Scores) -> DoubleArray:
    """Return the probability of the likeliest leaf of each document.

    >>> confidence_of(Scores(Hierarchy.from_paths(["A > B", "A > C"]), [[0.75, 0.25, 0.5]])).tolist()
    [0.5]
    """
    best = scores.best(scores.hierarchy.is_leaf)
    result = np.zeros(len(scores))
    rows = np.flatnonzero(best >= 0)
    result[rows] = entries(scores.values, rows, best[rows])
    return result


def label_confidence(scores: Scores, decisions: Decisions) -> DoubleArray:
    """Return how confident the model is of all labels of each document: the least probability of a most specific one.

    Parameters
    ----------
    scores
        The probabilities.
    decisions
        The labels that were chosen by them.

    Returns
    -------
    array of shape (documents,)
        0 where there is no label.

    >>> s = Scores(Hierarchy.from_paths(["A > B", "A > C"]), [[0.75, 0.25, 0.5]])
    >>> label_confidence(s, decide(s, "best_leaf")).tolist(), label_confidence(s, decide(s, "threshold@0.9")).tolist()
    ([0.5], [0.0])
    """
    ends = decisions.most_specific
    rows = row_numbers(ends)
    result = np.where(row_sizes(ends) > 0, np.inf, 0.0)
    np.minimum.at(result, rows, entries(scores.values, rows, ends.indices))
    return result


def _judge(held: HeldOut, rule: str) -> dict[str, Any]:
    """Return how confident the model is of its labels of held-out documents, and whether these are true, and all."""
    count, most = len(held.scores), MOST_STORED if rule == "best_leaf" else MOST_TRIED
    rows = np.arange(count)
    if count > most:
        rows = np.sort(np.random.default_rng(0).choice(count, most, replace=False))
    scores = Scores(held.scores.hierarchy, held.scores.values[rows])
    decisions = decide(scores, rule)
    true: LabelMatrix = scores.hierarchy.closure(held.labels[rows])
    hits = row_sizes(keep_entries(decisions.csr, matches(true, decisions.csr)))
    return {
        "confidences": np.clip(label_confidence(scores, decisions), 0, 1).astype(np.float32),
        "correct": hits == row_sizes(decisions.csr),
        "complete": hits == row_sizes(true),
    }


def prior_scores(profile: Profile, hierarchy: Hierarchy, regime: Regime) -> FloatArray:
    """Compute the share of the training documents that have each node: what is known of a text without known words.

    Where documents have one path each, those without a label are not counted, so that the first level sums to 1. All
    are 0 where a model of an older version did not count labels.

    Parameters
    ----------
    profile : Profile
        Counts of training documents.
    regime : Regime
        Of the training documents.

    Returns
    -------
    array of float32, shape (nodes,)
    """
    if len(profile.frequencies) != len(hierarchy):
        return np.zeros(len(hierarchy), np.float32)
    has_one_path = regime != "multi_path" and hierarchy.is_tree
    documents = profile.frequencies[hierarchy.level(1)].sum() if has_one_path else profile.documents
    shares: FloatArray = (profile.frequencies / max(1, documents)).astype(np.float32)
    return shares


def replace_rows(values: FloatArray | sparse.csr_array, rows: BoolArray, by: FloatArray, top: int | None) -> Any:
    """Put the same scores into some rows; of sparse scores, the `top` largest.

    >>> replace_rows(np.zeros((2, 2)), np.array([False, True]), np.array([0.5, 0.25]), None).tolist()
    [[0.0, 0.0], [0.5, 0.25]]
    """
    if not rows.any():
        return values
    if not sparse.issparse(values):
        return np.where(rows[:, None], by.astype(values.dtype), values)
    if top is not None and top < len(by):
        by = np.where(np.isin(np.arange(len(by)), np.argsort(-by, kind="stable")[:top]), by, 0)
    others = sparse.diags_array((~rows).astype(values.dtype)) @ values
    result = sparse.csr_array(others + sparse.csr_array(np.outer(rows, by).astype(values.dtype)))
    result.eliminate_zeros()
    return result


def unknown_words(vocabulary: Tfidf, texts: Strings, learned: int | None = None, min_df: int = 1) -> DoubleArray:
    """Return the share of the distinct words of each text that a model does not know; NaN for texts without words.

    Where n-grams do not begin with single words, those that there are take their place. With `learned`, the texts are
    among those that the vocabulary was learned from, and a word counts as unknown if it would be without its text.

    Parameters
    ----------
    vocabulary : Tfidf
        What was learned.
    learned : int, optional
        The number of texts that it was learned from.
    min_df : int
        In how many texts n-grams had to be to become known.

    Returns
    -------
    array of shape (texts,)

    >>> vocabulary = Tfidf.fit(["a b", "b c"], NgramShape())
    >>> unknown_words(vocabulary, ["b d", "c", ""]).tolist(), unknown_words(vocabulary, ["a b", "b c"], 2).tolist()
    ([0.5, 0.0, nan], [0.5, 0.5])
    """
    shape = vocabulary.shape
    single = shape.ngram_range is not None and shape.ngram_range[0] == 1
    counted = count_ngrams(texts, NgramShape((1, 1), None, shape.n_features) if single else shape)
    columns = columns_of(vocabulary.slots, counted.buckets)
    is_unknown = columns < 0
    if learned is not None and vocabulary.width:
        # The weight of an n-gram tells how many texts have it: see `Tfidf`.
        rarest = 1 + np.log((1 + learned) / (1 + min_df))
        is_unknown |= vocabulary.idf[np.maximum(columns, 0)] > rarest - 1e-3
    rows = np.repeat(np.arange(len(counted.sizes)), counted.sizes)
    result = np.bincount(rows[is_unknown], minlength=len(counted.sizes)).astype(np.float64)
    return np.where(counted.sizes > 0, result / np.maximum(counted.sizes, 1), np.nan)
