"""Labels that texts name: names and alternative names found in the text, and a small learned ranker over matches."""

import re
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy import sparse

from treelabel.calibration.candidates import CandidateCalibration, candidate_calibration, largest_evidence, targets_of
from treelabel.core.array_schema import Array, Arrays, Csr, Schema
from treelabel.core.bounded_memory import TOP_SCORES
from treelabel.core.errors import TreelabelError
from treelabel.core.matrices import entries
from treelabel.core.strings import Strings
from treelabel.core.types import BoolArray, DoubleArray, FloatArray, IntArray, LongArray
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.label_matrices import LabelMatrix
from treelabel.models.base import Model, Training
from treelabel.models.descriptions import Descriptions, check_descriptions, name_words, node_descriptions
from treelabel.models.settings import Cost, Seed
from treelabel.scores.score_matrix import Scores
from treelabel.selection.evidence import HeldOut
from treelabel.selection.training import hold_out
from treelabel.text.phrases import PhraseMatches, Phrases

# Texts that are searched at once, and how many the ranker learns from at most.
TEXT_BLOCK = 8192
MOST_RANKED = 30_000
# Documents whose scores show which rule is best.
MOST_SHOWN = 2_000
# Descriptions are divided into alternative names, of which longer ones are no names.
SEPARATORS = re.compile(r"[;|\n\r]+")
LONGEST_NAME = 10
BRACKETS = re.compile(r"\s*[(\[<][^)\]>]*[)\]>]")
# Weights of the mean share of matches that are right, in documents, when the share of a name is estimated.
PRIORS = (1.0, 10.0)
FEATURES = 13
LARGEST_COEFFICIENT = 1e6
MOST_PHRASES = 1 << 31
NAME_MARK = 10_000


def surface_forms(name: str) -> list[str]:
    """List the forms in which a text may have a name: as it is, without brackets, in words, in the usual order.

    >>> surface_forms("Velocity (Physics)"), surface_forms("Networks, neural"), surface_forms("credit_limit")
    (['Velocity (Physics)', 'Velocity'], ['Networks, neural', 'neural Networks'], ['credit limit'])
    """
    forms = [name.replace("_", " ")]
    bare = BRACKETS.sub("", forms[0]).strip()
    forms.append(bare)
    if " " not in name:
        forms.append(name_words(name))
    parts = bare.split(", ")
    if len(parts) == 2:
        forms.append(f"{parts[1]} {parts[0]}")
    return [form for form in dict.fromkeys(forms) if form]


class Index(NamedTuple):
    """The labels of phrases, phrases x nodes as CSR, and what training showed of them.

    `preferred` is 1 where a phrase is the name of the label and not an alternative one; `hits` are the documents that
    have both the phrase and the label, `df` those that have the phrase, and `counts` those that have the label.
    """

    ptr: LongArray
    labels: IntArray
    preferred: FloatArray
    hits: LongArray
    words: FloatArray
    df: LongArray
    counts: LongArray


class Matches(NamedTuple):
    """One entry per text, phrase in it, and label of the phrase: the text, the place in `Index.labels`, features."""

    text: LongArray
    pair: LongArray
    features: DoubleArray


@dataclass(eq=False, repr=False)
class Lexical(Model):
    """Labels whose names, or alternative names, a text has; a logistic regression tells how much each match means.

    Names are compared word by word, in lower case and in the singular; of names within each other the longest counts.
    All are compiled into one hash table (see `text.phrases`), so that a text costs its words, however many labels there
    are. The ranker looks at how often, how early and whether in the first line a name stands; at its length, how many
    labels share it and how rare it is; at the share of training texts with the name that have the label, and how many
    have the label at all. Shares are those of other documents than the one that is learned from, or other groups.
    Labels that training never saw are found like others. Documents without any match have no labels, or, with one path
    each, those of the average document.

    Parameters
    ----------
    hierarchy : Hierarchy or None
        The hierarchy, where training data have none of their own.
    descriptions : mapping, str or None
        Alternative names of labels, separated by semicolons, bars or line breaks; `read_alternative_names` reads those
        of SKOS. Parts of more than ten words are left out.
    C : float
        Inverse strength of regularization of the ranker, as in scikit-learn.
    seed : int
        Seed of the random numbers.
    optimize : str or None
        The metric that predictions will be judged by, a row of METRICS: the default rule is chosen for it. None stands
        for leaf accuracy of documents with one leaf each, and for hF1 of others.

    >>> h = Hierarchy.flat(["Solar cells", "Wind turbine"])
    >>> texts = ["a solar cell on the roof", "cells", "wind turbines at sea", "the wind"] * 5
    >>> model = Lexical(h, {"Wind turbine": "windmill; wind generator"})
    >>> model = model.fit(texts, [["Solar cells"], [], ["Wind turbine"], []] * 5)
    >>> model.predict(["Windmills and others"])
    [['Wind turbine']]
    """

    name: ClassVar[str] = "lexical"
    calibration_: CandidateCalibration = field(init=False)

    hierarchy: Hierarchy | None = None
    descriptions: Descriptions = None
    C: Cost = 1.0
    seed: Seed = 0
    optimize: str | None = None

    def _check_settings(self) -> None:
        check_descriptions(self.descriptions)

    # Learning

    def _fit(self, train: Training) -> HeldOut | None:
        self._compile(train.hierarchy)
        targets = targets_of(train.hierarchy, train.labels, self.regime_)
        self.documents_ = len(train)
        self._count(train.texts, targets)
        self.calibration_ = self._calibration(self.index_.counts)
        self.coefficients_, self.scales_ = np.zeros(FEATURES + 1), np.tile([[0.0], [1.0]], FEATURES)
        some: LongArray = np.arange(len(train))
        if len(train) > MOST_RANKED:
            # Whole groups: what is taken off a group is counted in it.
            some = hold_out(len(train), MOST_RANKED, self.seed, train.groups)
        held, result = train[some], self.phrases_.find(train.texts.take(some))
        true, others = self._left_out(result, targets[some], held.groups)
        matches = self._matches(result, others)
        self._rank(matches.features, true)
        evidence = self._evidence(matches, len(held))
        self.calibration_ = self.calibration_.fit(evidence, held.labels)
        shown = np.random.default_rng(self.seed).permutation(len(held))[:MOST_SHOWN]
        p = self.calibration_.probabilities(sparse.csr_array(evidence[shown]))
        return HeldOut.of(p, held[shown])

    def _compile(self, h: Hierarchy) -> None:
        """Compile the names of all labels."""
        described = node_descriptions(h, self.descriptions)
        forms, label, preferred = list[str](), list[int](), list[bool]()
        for node, name in enumerate(h.names):
            first = surface_forms(name)
            also = [form for part in SEPARATORS.split(described.get(node, "")) for form in surface_forms(part.strip())]
            also = [form for form in also if len(form.split()) <= LONGEST_NAME]
            forms += first + also
            label += [node] * (len(first) + len(also))
            preferred += [True] * len(first) + [False] * len(also)
        self.phrases_, number = Phrases.of(forms)
        words = self.phrases_.find(forms).words if len(forms) else np.zeros(0, np.int32)
        some = number >= 0
        count = len(self.phrases_)
        # Forms of a label that are one phrase are added up: it is a name if a name is among them.
        marks = np.where(np.array(preferred, np.bool_), NAME_MARK, 1).astype(np.float32)
        pairs = sparse.csr_array((marks[some], (number[some], np.array(label, np.int32)[some])), (count, len(h)))
        pairs.sum_duplicates()
        length = np.zeros(count, np.float32)
        length[number[some]] = words[some]
        nothing = np.zeros(len(pairs.indices), np.int64)
        self.index_ = Index(
            pairs.indptr.astype(np.int64),
            pairs.indices.astype(np.int32),
            (pairs.data >= NAME_MARK).astype(np.float32),
            nothing,
            length,
            np.zeros(count, np.int64),
            np.zeros(len(h), np.int64),
        )

    def _count(self, texts: Strings, targets: LabelMatrix) -> None:
        """Count in training documents phrases, labels, and both together."""
        index = self.index_
        for low in range(0, len(texts), TEXT_BLOCK):
            result = self.phrases_.find(texts[low : low + TEXT_BLOCK])
            marks = targets[low : low + TEXT_BLOCK]
            text, _, pair = self._pairs(result)
            index.df[:] += np.bincount(result.phrases, minlength=len(index.df))
            index.hits[:] += np.bincount(pair[entries(marks, text, index.labels[pair]) > 0], minlength=len(index.hits))
            index.counts[:] += np.bincount(marks.indices, minlength=len(index.counts))

    def _left_out(
        self, result: PhraseMatches, targets: LabelMatrix, groups: LongArray | None
    ) -> tuple[BoolArray, tuple[LongArray, LongArray, LongArray]]:
        """Tell which matches are true; and by how much df, hits and counts of each are due to its own group."""
        text, entry, pair = self._pairs(result)
        label = self.index_.labels[pair]
        true = entries(targets, text, label) > 0
        if groups is None:
            return true, (np.ones(len(text), np.int64), true.astype(np.int64), true.astype(np.int64))
        group = groups[text]
        once = np.repeat(groups, result.sizes) * np.int64(len(self.index_.df)) + result.phrases
        keys = group * np.int64(len(self.index_.labels)) + pair
        marks = targets.tocoo()
        known = groups[marks.coords[0]] * np.int64(targets.shape[1]) + marks.coords[1]
        counted = count_of(known, group * np.int64(targets.shape[1]) + label)
        return true, (count_of(once, once)[entry], count_of(keys[true], keys), counted)

    def _rank(self, features: DoubleArray, true: BoolArray) -> None:
        """Fit the ranker; where all matches are alike, it only knows how many are right."""
        from sklearn.linear_model import LogisticRegression

        rate = (true.sum() + 0.5) / (len(true) + 1)
        self.coefficients_[-1] = np.log(rate / (1 - rate))
        if not true.any() or true.all():
            return
        self.scales_ = np.stack([features.mean(axis=0), np.maximum(features.std(axis=0), 1e-6)])
        ranker = LogisticRegression(C=self.C, max_iter=500)
        ranker.fit((features - self.scales_[0]) / self.scales_[1], true)
        self.coefficients_ = np.append(ranker.coef_[0], ranker.intercept_)

    # Matches

    def _pairs(self, result: PhraseMatches) -> tuple[LongArray, LongArray, LongArray]:
        """List all texts with the labels of their phrases: the text, the place in `result`, and that in the index."""
        first = self.index_.ptr[result.phrases]
        sizes = self.index_.ptr[result.phrases + 1] - first
        entry = np.repeat(np.arange(len(sizes)), sizes)
        start = np.cumsum(sizes) - sizes
        pair = first[entry] + np.arange(len(entry)) - start[entry]
        return np.repeat(np.arange(len(result.sizes)), result.sizes)[entry], entry, pair

    def _matches(
        self, result: PhraseMatches, others: tuple[LongArray, LongArray, LongArray] | tuple[int, int, int] = (0, 0, 0)
    ) -> Matches:
        """Compute the features of all matches, `others` taken off what training showed."""
        index = self.index_
        text, entry, pair = self._pairs(result)
        phrase = result.phrases[entry]
        df, hits = index.df[phrase] - others[0], index.hits[pair] - others[1]
        count = index.counts[index.labels[pair]] - others[2]
        rate = (index.hits.sum() + 0.5) / (index.df @ np.diff(index.ptr) + 1)
        shares = [(hits + weight * rate) / (df + weight) for weight in PRIORS]
        title = result.in_title[entry].astype(np.float64)
        columns = [
            np.log(result.counts[entry]),
            np.log1p(result.first[entry]),
            title,
            np.log(np.maximum(1, index.words[phrase])),
            np.log(np.diff(index.ptr)[phrase]),
            np.log((self.documents_ + 1) / (df + 1)),
            *(np.log(share / (1 - share)) for share in shares),
            np.log1p(count),
            count == 0,
            index.preferred[pair],
            np.log1p(result.words[text]),
            np.log1p(result.sizes[text]),
        ]
        return Matches(text, pair, np.stack(columns, axis=1).astype(np.float64).reshape(len(text), FEATURES))

    def _evidence(self, matches: Matches, texts: int) -> sparse.csr_array:
        """Compute the odds of labels, of which the best match counts: documents x nodes."""
        scaled = (matches.features - self.scales_[0]) / self.scales_[1]
        z = np.clip(scaled @ self.coefficients_[:-1] + self.coefficients_[-1], -15, 15)
        nodes = len(self.hierarchy_)
        key = matches.text * np.int64(nodes) + self.index_.labels[matches.pair]
        order = np.lexsort((-z, key))
        best = order[np.diff(key[order], prepend=-1) != 0]
        row, label = matches.text[best], self.index_.labels[matches.pair[best]]
        ptr = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=texts))])
        return largest_evidence(
            sparse.csr_array((np.exp(z[best]).astype(np.float32), label, ptr), (texts, nodes)), TOP_SCORES
        )

    # Scoring

    def _score(self, texts: Strings) -> Scores:
        parts = [sparse.csr_array((0, len(self.hierarchy_)), dtype=np.float32)]
        for low in range(0, len(texts), TEXT_BLOCK):
            block = texts[low : low + TEXT_BLOCK]
            evidence = self._evidence(self._matches(self.phrases_.find(block)), len(block))
            parts.append(self.calibration_.probabilities(evidence))
        return Scores(self.hierarchy_, sparse.vstack(parts, format="csr"))

    def _score_top(self, texts: Strings, top: int) -> Scores:
        return self._score(texts).top_k(top)

    # Saving

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        arrays = {**self.index_._asdict(), "keys": self.phrases_.keys, "ids": self.phrases_.ids}
        learned = {"coefficients": self.coefficients_, "scales": self.scales_}
        documents = np.array([self.documents_], np.int64)
        return {}, {**arrays, **learned, "documents": documents, **self.calibration_.arrays()}

    def _schema(self, values: dict[str, Any]) -> Schema:
        calibration, limit = self._calibration(np.zeros(0, np.int64)), LARGEST_COEFFICIENT
        arrays = {
            "df": Array("int64", ("phrases",), 0),
            "words": Array("float32", ("phrases",), 0),
            "keys": Array("int64", ("keys",), 1, float(1 << 62), rising=True),
            "ids": Array("int32", ("keys",), -1, "phrases + -1"),
            "preferred": Array("float32", ("pairs",), 0, 1),
            "hits": Array("int64", ("pairs",), 0),
            "counts": Array("int64", ("nodes",), 0),
            "documents": Array("int64", ("1",), 1),
            "coefficients": Array("float64", (f"{FEATURES + 1}",), -limit, limit),
            "scales": Array("float64", ("2", f"{FEATURES}"), -limit, limit),
            **calibration.parameters,
        }
        pairs = Csr("phrases", "nodes", "labels", "ptr", None, distinct=True)
        most = dict.fromkeys(("phrases", "keys", "pairs"), MOST_PHRASES)
        return Schema(arrays, (pairs,), {"nodes": len(self.hierarchy_)}, most, (check_index, calibration.check))

    def _restore(self, values: dict[str, Any], arrays: Arrays) -> None:
        self.index_ = Index(*(arrays[name] for name in Index._fields))
        self.phrases_ = Phrases(arrays["keys"], arrays["ids"])
        self.coefficients_, self.scales_ = arrays["coefficients"], arrays["scales"]
        self.documents_ = int(arrays["documents"][0])
        self.calibration_ = self._calibration(self.index_.counts).restore(arrays)

    def _calibration(self, counts: LongArray) -> CandidateCalibration:
        return candidate_calibration(self.regime_ == "multi_path")(self.hierarchy_, counts)


def check_index(arrays: Arrays) -> None:
    """Refuse numbers that do not fit each other, of which logarithms are taken."""
    if len(arrays["labels"]) != len(arrays["hits"]):
        raise TreelabelError("hits has another length than labels")
    phrase = np.repeat(np.arange(len(arrays["df"])), np.diff(arrays["ptr"]))
    if (arrays["hits"] > arrays["df"][phrase]).any() or (arrays["scales"][1] <= 0).any():
        raise TreelabelError("hits holds more documents than have the phrase, or scales is not above 0")


def count_of(keys: LongArray, asked: LongArray) -> LongArray:
    """Count how often each number that is asked for is among the keys.

    Parameters
    ----------
    keys, asked : arrays of int64
        Numbers.

    Returns
    -------
    array of the shape of `asked`

    >>> count_of(np.array([3, 5, 3]), np.array([3, 4])).tolist()
    [2, 0]
    """
    known = np.sort(keys)
    result: LongArray = np.searchsorted(known, asked, "right") - np.searchsorted(known, asked, "left")
    return result
