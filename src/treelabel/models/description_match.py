"""MATCH 75%: a label is given where one sentence has most words of its description.

With `nothing`, `most_frequent`, `svm_descriptions` and `svm_codes` it makes the table of the case study of Amigó and
Delgado (2022), "Evaluating Extreme Hierarchical Multi-label Classification".
"""

from typing import Annotated, Any, ClassVar

import numpy as np
import pyarrow.compute as pc
from scipy import sparse

from treelabel.core.compute import IntArray, LongArray, kernel, over_rows, with_room
from treelabel.core.errors import TreelabelError
from treelabel.core.kinds import Between
from treelabel.core.schema import Arrays, Csr, Schema, indices
from treelabel.core.strings import Strings
from treelabel.hierarchy import Hierarchy, row_numbers, row_sizes
from treelabel.models.base import Model, Training
from treelabel.models.descriptions import WORDS, Descriptions, StopWords, described_words, presence
from treelabel.scores import Scores
from treelabel.text.ngrams import count_ngrams

# A full stop ends a sentence only before white space, as in "0.5 mg" it does not.
SENTENCE_END = r"[.!?…]+[\"'”’)\]]*\s+|[。！？]+|[\r\n]+"
TEXT_BLOCK = 8192


def sentences(texts: Strings) -> tuple[Strings, LongArray]:
    """Divide texts into sentences: all in one column, and how many each text has.

    A sentence ends at a line break, and at . ! ? or … before white space (so after an abbreviation, too).

    >>> found, sizes = sentences(Strings.of(["Takes 0.5 mg. Sleeps well!", "No pain"]))
    >>> list(found), sizes.tolist()
    (['Takes 0.5 mg', 'Sleeps well!', 'No pain'], [2, 1])
    """
    listed = pc.split_pattern_regex(texts.arrow, SENTENCE_END)
    sizes: LongArray = np.asarray(pc.list_value_length(listed).to_numpy(), np.int64)
    return Strings.of(pc.list_flatten(listed)), sizes


class DescriptionMatch(Model):
    """A label is given where one sentence has at least `share` of the words of its description: MATCH 75%.

    Stop words are left out, and a word counts once; where a label has no description, its name is. A score is
    1/2 + (s - share) / (2 (1 - share)), s being the share of words found in the best sentence, and 0 where s < share;
    a node has at least what is below it. So a threshold of 0.5 gives the decisions of the paper, a full match has 1. A
    label is known by so many of its rarest words that no match can do without them all: a sentence costs its words
    and the words of the labels that these bring up, and nothing is ever sentences x labels. Texts of training are not
    looked at.

    >>> h = Hierarchy.from_paths(["fever > hay fever", "fracture"])
    >>> model = DescriptionMatch(h, {"hay fever": "allergy to the pollen of grass"}).fit(["-"], ["fracture"])
    >>> model.predict(["Pollen, grass: an allergy.", "Allergy. Grass pollen."])
    [['hay fever'], []]
    """

    name = "description_match"
    exhaustive: ClassVar[bool] = False

    def __init__(
        self,
        hierarchy: Hierarchy | None = None,
        descriptions: Descriptions = None,
        share: Annotated[float, Between(0, 1)] = 0.75,
        stop_words: StopWords = "english",
        seed: int = 0,
    ) -> None:
        self.hierarchy = hierarchy
        self.descriptions = descriptions
        self.share = share
        self.stop_words = stop_words
        self.seed = seed

    @property
    def default_rule(self) -> str:
        """A threshold of 0.5: the decisions of the paper."""
        return "threshold"

    def _fit(self, train: Training) -> None:
        if not 0 < self.share <= 1:
            raise TreelabelError(f"expected a share above 0 and at most 1, found {self.share}")
        self.known_, words = described_words(train.hierarchy, self.descriptions, self.stop_words)
        self._index(words)

    def _index(self, words: sparse.csr_array) -> None:
        """Order the words of each label from rare to common, and find labels by their rarest."""
        rows, sizes = row_numbers(words), row_sizes(words)
        commonness = np.bincount(words.indices, minlength=words.shape[1])
        order = np.lexsort((words.indices, commonness[words.indices], rows))
        self.label_ptr_, self.label_words_ = words.indptr.astype(np.int64), words.indices[order]
        # 0.1 x 30 is a little above 3.
        self.least_ = np.maximum(1, np.ceil(self.share * sizes - 1e-9)).astype(np.int64)
        rank = np.arange(len(rows)) - self.label_ptr_[rows]
        keys = rank <= (sizes - self.least_)[rows]
        listed = sparse.csr_array((keys[keys], (self.label_words_[keys], rows[keys])), words.shape[::-1])
        self.found_ptr_, self.found_labels_ = listed.indptr.astype(np.int64), listed.indices.astype(np.int32)

    def _score(self, texts: Strings) -> Scores:
        parts = [self._matched(texts[low : low + TEXT_BLOCK]) for low in range(0, max(1, len(texts)), TEXT_BLOCK)]
        return Scores(self.hierarchy_, sparse.vstack(parts, "csr")).coherent("max")

    def _matched(self, texts: Strings) -> sparse.csr_array:
        """Score the labels that match, without those above."""
        found, sizes = sentences(texts)
        counted = count_ngrams(found, WORDS)
        words = presence(counted.sizes, counted.buckets, self.known_)
        text_ptr, sentence_ptr = np.concatenate([[0], np.cumsum(sizes)]), words.indptr.astype(np.int64)
        index = self.found_ptr_, self.found_labels_, self.label_ptr_, self.label_words_, self.least_
        parts = over_rows(
            lambda start, stop: match_texts(text_ptr, sentence_ptr, words.indices, *index, start, stop),
            len(texts),
            least=64,
        )
        lengths, labels, counts = (np.concatenate([part[which] for part in parts]) for which in range(3))
        of_all = counts / np.diff(self.label_ptr_)[labels]
        above = np.maximum(0, of_all - self.share) / (1 - self.share) if self.share < 1 else np.ones(len(counts))
        ptr = np.concatenate([[0], np.cumsum(lengths)])
        matched = sparse.csr_array(
            ((0.5 + above / 2).astype(np.float32), labels, ptr), (len(texts), len(self.label_ptr_) - 1)
        )
        matched.sort_indices()
        return matched

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        return {}, {"known": self.known_, "ptr": self.label_ptr_, "words": self.label_words_}

    def _schema(self, values: dict[str, Any]) -> Schema:
        return Schema(
            {"known": indices("known", "buckets", rising=True)},
            # Each word of a label counts once.
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
    found_ptr: LongArray,
    found_labels: IntArray,
    label_ptr: LongArray,
    label_words: IntArray,
    least: LongArray,
    start: int,
    stop: int,
) -> tuple[LongArray, IntArray, IntArray]:
    """Find the labels of texts start..stop: how many each has, which, and the most words of one in a sentence."""
    # The last sentence that had a word, and that looked at a label.
    had, looked = np.full(len(found_ptr) - 1, -1, np.int64), np.full(len(least), -1, np.int64)
    best, listed = np.zeros(len(least), np.int32), np.empty(len(least), np.int32)
    lengths = np.zeros(stop - start, np.int64)
    labels, counts = np.empty(64, np.int32), np.empty(64, np.int32)
    used = 0
    for text in range(start, stop):
        many = 0
        for sentence in range(text_ptr[text], text_ptr[text + 1]):
            here = words[sentence_ptr[sentence] : sentence_ptr[sentence + 1]]
            had[here] = sentence
            for word in here:
                near = found_labels[found_ptr[word] : found_ptr[word + 1]]
                many = match_labels(near, sentence, had, looked, label_ptr, label_words, least, best, listed, many)
        if used + many > len(labels):
            labels, counts = with_room(labels, used, many), with_room(counts, used, many)
        labels[used : used + many] = listed[:many]
        counts[used : used + many] = best[listed[:many]]
        best[listed[:many]] = 0
        used += many
        lengths[text - start] = many
    return lengths, labels[:used], counts[:used]


@kernel
def match_labels(
    near: IntArray,
    sentence: int,
    had: LongArray,
    looked: LongArray,
    label_ptr: LongArray,
    label_words: IntArray,
    least: LongArray,
    best: IntArray,
    listed: IntArray,
    many: int,
) -> int:
    """Count the words of labels in a sentence that has not looked at them yet; give how many labels match so far."""
    for label in near:
        if looked[label] == sentence:
            continue
        looked[label] = sentence
        count = 0
        for at in range(label_ptr[label], label_ptr[label + 1]):
            count += had[label_words[at]] == sentence
        if count >= least[label] and count > best[label]:
            if best[label] == 0:
                listed[many] = label
                many += 1
            best[label] = count
    return many
