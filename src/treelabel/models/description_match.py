"""MATCH 75%: assign a label if a single sentence contains most of the words of the label's description.

One of the baselines in the case study of Amigó and Delgado (2022), "Evaluating Extreme Hierarchical Multi-label
Classification"; the others are `nothing`, `most_frequent`, `svm_descriptions` and `svm_codes`.
"""

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar

import numpy as np
import pyarrow.compute as pc
from scipy import sparse

from treelabel.core.array_schema import Arrays, Csr, Schema, indices
from treelabel.core.compute import kernel, over_rows, with_room
from treelabel.core.strings import Strings
from treelabel.core.types import IntArray, LongArray
from treelabel.core.validation import Between
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.label_matrices import row_numbers, row_sizes
from treelabel.models.base import Model, Training
from treelabel.models.descriptions import WORDS, Descriptions, StopWords, check_descriptions, described_words, presence
from treelabel.models.settings import Seed
from treelabel.scores.score_matrix import Scores
from treelabel.text.ngrams import count_ngrams

# A full stop ends a sentence only before white space: "0.5 mg" is no end.
SENTENCE_END = r"[.!?…]+[\"'”’)\]]*\s+|[。！？]+|[\r\n]+"
TEXT_BLOCK = 8192


def sentences(texts: Strings) -> tuple[Strings, LongArray]:
    """Split texts into sentences; return the sentences of all texts in order, and the number in each text.

    A sentence ends at a line break, and at . ! ? or … before white space (hence also after an abbreviation).

    >>> found, sizes = sentences(Strings.of(["Takes 0.5 mg. Sleeps well!", "No pain"]))
    >>> list(found), sizes.tolist()
    (['Takes 0.5 mg', 'Sleeps well!', 'No pain'], [2, 1])
    """
    listed = pc.split_pattern_regex(texts.arrow, SENTENCE_END)
    sizes: LongArray = np.asarray(pc.list_value_length(listed).to_numpy(), np.int64)
    return Strings.of(pc.list_flatten(listed)), sizes


@dataclass(eq=False, repr=False)
class DescriptionMatch(Model):
    """Assign a label if a single sentence contains at least `share` of the words of its description: MATCH 75%.

    A label without a description is matched by its name. Stop words are ignored, and a repeated word counts once.
    With s the largest share of a label's words that one sentence contains, the score is 0 if s < share, else
    1/2 + (s - share) / (2 (1 - share)); a node scores at least as much as its descendants. A threshold of 0.5 therefore
    reproduces the decisions of the paper, and a full match scores 1. Training texts are not used.

    Candidate labels come from an inverted index of rare words. It lists a label under just enough of its rarest words
    that any match contains one of them, so the cost of a sentence is that of its words and its candidates, and no
    sentences x labels matrix is ever built.

    >>> h = Hierarchy.from_paths(["fever > hay fever", "fracture"])
    >>> model = DescriptionMatch(h, {"hay fever": "allergy to the pollen of grass"}).fit(["-"], [["fracture"]])
    >>> model.predict(["Pollen, grass: an allergy.", "Allergy. Grass pollen."])
    [['hay fever'], []]
    """

    name = "description_match"
    exhaustive: ClassVar[bool] = False

    hierarchy: Hierarchy | None = None
    descriptions: Descriptions = None
    share: Annotated[float, Between(1e-06, 1)] = 0.75
    stop_words: StopWords = "english"
    seed: Seed = 0

    @property
    def default_rule(self) -> str:
        """A threshold of 0.5, which reproduces the decisions of the paper."""
        return "threshold"

    def _check_settings(self) -> None:
        check_descriptions(self.descriptions)

    def _fit(self, train: Training) -> None:
        self.known_, words = described_words(train.hierarchy, self.descriptions, self.stop_words)
        self._index(words)

    def _index(self, words: sparse.csr_array) -> None:
        """Sort the words of each label by document frequency among labels, and index labels by their rarest words."""
        rows, sizes = row_numbers(words), row_sizes(words)
        frequency = np.bincount(words.indices, minlength=words.shape[1])
        order = np.lexsort((words.indices, frequency[words.indices], rows))
        self.label_ptr_, self.label_words_ = words.indptr.astype(np.int64), words.indices[order]
        # In floating point, 0.1 x 30 is slightly above 3.
        self.min_matches_ = np.maximum(1, np.ceil(self.share * sizes - 1e-9)).astype(np.int64)
        rank = np.arange(len(rows)) - self.label_ptr_[rows]
        # A match misses at most size - min_matches words, so it contains one of the size - min_matches + 1 rarest.
        keys = rank <= (sizes - self.min_matches_)[rows]
        index = sparse.csr_array((keys[keys], (self.label_words_[keys], rows[keys])), words.shape[::-1])
        self.index_ptr_, self.index_labels_ = index.indptr.astype(np.int64), index.indices.astype(np.int32)

    def _score(self, texts: Strings) -> Scores:
        parts = [self._score_matches(texts[low : low + TEXT_BLOCK]) for low in range(0, max(1, len(texts)), TEXT_BLOCK)]
        return Scores(self.hierarchy_, sparse.vstack(parts, "csr")).coherent("max")

    def _score_matches(self, texts: Strings) -> sparse.csr_array:
        """Score the labels that match, not yet their ancestors."""
        result, sizes = sentences(texts)
        counted = count_ngrams(result, WORDS)
        words = presence(counted.sizes, counted.buckets, self.known_)
        text_ptr, sentence_ptr = np.concatenate([[0], np.cumsum(sizes)]), words.indptr.astype(np.int64)
        index = self.index_ptr_, self.index_labels_, self.label_ptr_, self.label_words_, self.min_matches_
        parts = over_rows(partial(match_texts, text_ptr, sentence_ptr, words.indices, *index), len(texts), least=64)
        lengths, labels, counts = (np.concatenate([part[which] for part in parts]) for which in range(3))
        matched_share = counts / np.diff(self.label_ptr_)[labels]
        excess = (
            np.maximum(0, matched_share - self.share) / (1 - self.share) if self.share < 1 else np.ones(len(counts))
        )
        ptr = np.concatenate([[0], np.cumsum(lengths)])
        matched = sparse.csr_array(
            ((0.5 + excess / 2).astype(np.float32), labels, ptr), (len(texts), len(self.label_ptr_) - 1)
        )
        matched.sort_indices()
        return matched

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        return {}, {"known": self.known_, "ptr": self.label_ptr_, "words": self.label_words_}

    def _schema(self, values: dict[str, Any]) -> Schema:
        return Schema(
            {"known": indices("known", "buckets", rising=True)},
            # A repeated word would be counted twice.
            (Csr("nodes", "known", "words", "ptr", None, distinct=True),),
            sizes={"nodes": len(self.hierarchy_), "buckets": WORDS.n_features},
            most={"known": WORDS.n_features},
        )

    def _restore(self, values: dict[str, Any], arrays: Arrays) -> None:
        self.known_ = arrays["known"]
        data = np.ones(len(arrays["words"]), np.float32)
        shape = (len(self.hierarchy_), len(self.known_))
        self._index(sparse.csr_array((data, arrays["words"], arrays["ptr"]), shape))


@kernel
def match_texts(
    text_ptr: LongArray,
    sentence_ptr: LongArray,
    words: IntArray,
    index_ptr: LongArray,
    index_labels: IntArray,
    label_ptr: LongArray,
    label_words: IntArray,
    min_matches: LongArray,
    start: int,
    stop: int,
) -> tuple[LongArray, IntArray, IntArray]:
    """Match texts start..stop: return labels per text, the labels, and the most words of each in one sentence."""
    # The last sentence in which a word occurred, and for which a label was a candidate.
    word_seen, label_seen = np.full(len(index_ptr) - 1, -1, np.int64), np.full(len(min_matches), -1, np.int64)
    best, matched = np.zeros(len(min_matches), np.int32), np.empty(len(min_matches), np.int32)
    lengths = np.zeros(stop - start, np.int64)
    labels, counts = np.empty(64, np.int32), np.empty(64, np.int32)
    used = 0
    for text in range(start, stop):
        size = 0
        for sentence in range(text_ptr[text], text_ptr[text + 1]):
            here = words[sentence_ptr[sentence] : sentence_ptr[sentence + 1]]
            word_seen[here] = sentence
            for word in here:
                for label in index_labels[index_ptr[word] : index_ptr[word + 1]]:
                    if label_seen[label] == sentence:
                        continue
                    label_seen[label] = sentence
                    count = 0
                    for index in range(label_ptr[label], label_ptr[label + 1]):
                        count += word_seen[label_words[index]] == sentence
                    if count >= min_matches[label] and count > best[label]:
                        if best[label] == 0:
                            matched[size] = label
                            size += 1
                        best[label] = count
        if used + size > len(labels):
            labels, counts = with_room(labels, used, size), with_room(counts, used, size)
        labels[used : used + size] = matched[:size]
        counts[used : used + size] = best[matched[:size]]
        best[matched[:size]] = 0
        used += size
        lengths[text - start] = size
    return lengths, labels[:used], counts[:used]
