"""Answers of a model that has learned: scores, predictions of texts and data frames, and how many are right."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, overload

import numpy as np

from treelabel.core.bounded_memory import BLOCK_SCORES
from treelabel.core.errors import TreelabelError
from treelabel.core.strings import Strings
from treelabel.core.types import DoubleArray
from treelabel.hierarchy.label_ids import decode
from treelabel.models.model_inputs import texts_of
from treelabel.models.predicted_frames import predict_frame
from treelabel.models.profile import unknown_words
from treelabel.models.settings import not_fitted
from treelabel.models.sklearn import Classifier, mean_of
from treelabel.models.streaming import blank_texts, decide_texts, decided_batches
from treelabel.models.true_labels import TrueLabels, judged_labels, true_labels
from treelabel.rules.decisions import Decisions, TunedRule
from treelabel.rules.tuned_rule import column_of, load_rule
from treelabel.scores.score_matrix import Scores
from treelabel.text.tfidf import Tfidf


class Predictor(Classifier):
    """A model that has learned, seen by who asks it; `_score` says how it scores."""

    # The name of the model in MODELS.
    name: ClassVar[str]
    # Whether documents may be features, as XMC files have them, instead of texts.
    takes_features: ClassVar[bool] = False

    @overload
    def score(
        self, texts: Any, labels: None = None, ids: Sequence[str] | None = None, *, top: int | None = None
    ) -> Scores: ...
    @overload
    def score(
        self,
        texts: Any,
        labels: Any,
        ids: Sequence[str] | None = None,
        *,
        top: int | None = None,
        sample_weight: Any = None,
    ) -> float: ...
    def score(
        self,
        texts: Any,
        labels: Any = None,
        ids: Sequence[str] | None = None,
        *,
        top: int | None = None,
        sample_weight: Any = None,
    ) -> Scores | float:
        """Score texts.

        Parameters
        ----------
        texts
            A list of texts, or a Dataset, whose ids are kept.
        labels
            True labels in any form that `fit` takes, as scikit-learn's scorers give them.
        ids
            Names of the documents.
        top
            Keep only this many of the largest scores of each text; memory grows with them, not with the nodes.
        sample_weight : array of shape (texts,)
            How much each text counts in the share of right ones.

        Returns
        -------
        Scores or float
            The probability of every node; with labels, the share of texts whose predicted set is exactly right.
        """
        column, names = texts_of(texts)
        scores = self._score_checked(column, names if ids is None else tuple(ids), top)
        if labels is None:
            return scores
        h = self.hierarchy_
        true, known = true_labels(labels, h, self.form_)
        predicted = self._decide(column, scores, None).csr
        if predicted.shape[0] != true.shape[0]:
            raise TreelabelError(f"{predicted.shape[0]:,} texts, but labels for {true.shape[0]:,}")
        wrong = np.asarray(abs(predicted.astype(np.int8) - h.closure(true).astype(np.int8)).sum(axis=1)).ravel()
        return mean_of((wrong == 0) & known, sample_weight)

    def judged(
        self, texts: Any, labels: Any, rule: str | TunedRule | None = None
    ) -> tuple[TrueLabels, Scores, Decisions]:
        """Return what `evaluate` needs to judge the model: the truth, scores, and decisions.

        Parameters
        ----------
        texts
            A list of texts, or a Dataset.
        labels
            Their true labels in any form that `fit` takes. Where the hierarchy was made of labels, others count, too.
        rule
            As for `predict`.

        Returns
        -------
        truth, scores, decisions
        """
        column, _ = texts_of(texts)
        scores = self._score_checked(column, None)
        return judged_labels(labels, self.hierarchy_, self.form_), scores, self._decide(column, scores, rule, texts)

    @overload
    def predict(self, texts: Any, rule: str | TunedRule, paths: bool | None = None) -> list[list[str]]: ...
    @overload
    def predict(self, texts: Any, rule: None = None, *, paths: bool) -> list[list[str]]: ...
    @overload
    def predict(self, texts: Any, rule: None, paths: bool) -> list[list[str]]: ...
    @overload
    def predict(self, texts: Any, rule: str | TunedRule | None = None, paths: bool | None = None) -> Any: ...
    def predict(self, texts: Any, rule: str | TunedRule | None = None, paths: bool | None = None) -> Any:
        """Predict by a decision rule: the most specific labels of each text, in the form that `fit` was given.

        After a Dataset or lists of labels these are lists; after one label per text an array with one label each (the
        likeliest of several, "" for none); after an indicator matrix, such a matrix. With a rule or `paths` they are
        lists always, as a rule may choose any number of labels. Without a rule, by `default_rule`. A text that is empty
        or nothing but white space has no labels.

        Parameters
        ----------
        texts
            A list of texts, or a Dataset.
        rule
            A row of RULES with settings, or a tuned rule; None takes `default_rule`.
        paths
            Whether to return full paths, or names; None returns what `fit` was given.

        Returns
        -------
        list of lists of str, or array
            One entry or row per text.
        """
        column, names = texts_of(texts)
        scores = self._score_checked(column, names)
        return self._answers(self._decide(column, scores, rule, texts), scores, rule, paths)

    def predict_frame(
        self,
        data: Any,
        text: str | Sequence[str] | None = None,
        rule: str | TunedRule | None = None,
        *,
        alternatives: int = 0,
        several: bool | None = None,
        prefix: str = "",
    ) -> Any:
        """Predict the labels of the texts in a data frame, and return the frame with columns for them.

        `label` is written as the labels were that `fit` was given, `path` has all names from the top down, with " > ",
        `probability` is that of the label, and `level_1`, `level_2`, ... are the names along the path. What is missing
        (no label, or a path that ends above) is null. A model of several labels per text has a list in each of these
        columns, the likeliest label first; `alternative_1`, ... are the likeliest leaves that were not predicted.

        Parameters
        ----------
        data
            A frame of pandas, polars, pyarrow or Hugging Face's datasets, which comes back as one of the same library;
            a lazy frame is collected. A relation of DuckDB, or what hands out an Arrow stream, comes back as a pyarrow
            Table.
        text
            The column of the text, or several, joined by line breaks; by default those that the model has learned from,
            or one of a usual name.
        rule
            As for `predict`.
        alternatives
            How many alternatives, each with its probability (`alternative_1_probability`).
        several
            Whether columns have lists of labels; by default where training texts had several. False takes the likeliest
            of several.
        prefix
            What the names of these columns begin with. One that the frame has already is refused.

        Returns
        -------
        data frame
            One row per text, in the same order.
        """
        return predict_frame(self, data, text, rule, alternatives, several, prefix)

    def predict_iter(
        self, batches: Iterable[Any], rule: str | TunedRule | None = None, paths: bool | None = None
    ) -> Iterator[Any]:
        """Predict batch by batch, in memory that does not grow with the number of batches.

        Together the answers are those of `predict` on all texts. Rules of all documents together (such as
        optimal:macro_f1) have to wait for the last batch, keep the largest scores until then, and say so.

        Parameters
        ----------
        batches : iterable
            Lists of texts, or Datasets, as `read_batches` reads them from a file.
        rule, paths
            As for `predict`.

        Yields
        ------
        list of lists of str, or array
            The answers to one batch.
        """
        for decided in decided_batches(self, ((texts, None) for texts in batches), rule):
            yield self._answers(decided.decisions, decided.scores, rule, paths)

    def _answers(self, decisions: Decisions, scores: Scores, rule: str | TunedRule | None, paths: bool | None) -> Any:
        if rule is None and paths is None:
            return self.form_.answer(decisions, scores)
        written = self.form_.sep is not None if paths is None else paths
        return decode(self.hierarchy_, decisions.most_specific, paths=written)

    @property
    def exhaustive(self) -> bool:
        """Whether, where documents have one leaf each, the scores of children sum to their parent's."""
        return True

    @property
    def default_rule(self) -> str:
        """The rule that `predict` uses by default.

        The best leaf where nearly all training documents had one leaf each; otherwise the rule that did best on
        held-out documents: see `evidence_`.
        """
        return self.rule_

    def unknown_words(self, texts: Any) -> DoubleArray | None:
        """Return the share of the words of each text that the model does not know; None if it has no vocabulary.

        Parameters
        ----------
        texts
            A list of texts, or a Dataset.

        Returns
        -------
        array of shape (texts,) or None
            NaN for texts without words.
        """
        column, _ = texts_of(texts)
        vocabulary = self._known_words()
        return None if vocabulary is None or not isinstance(column, Strings) else unknown_words(vocabulary, column)

    def _known_words(self) -> Tfidf | None:
        """Return the n-grams that the model learned from training texts, if it counts n-grams."""
        tfidf: Tfidf | None = getattr(self, "tfidf_", None)
        return tfidf

    def _decide(self, texts: Any, scores: Scores, rule: str | TunedRule | None, columns: Any = None) -> Decisions:
        asked = self.default_rule if rule is None else load_rule(rule)
        return decide_texts(scores, blank_texts(texts), asked, by=columns if column_of(asked) is not None else None)

    def _require_texts(self, has_texts: bool) -> None:
        """Refuse documents that are features alone, where a model reads texts."""
        if not has_texts and not self.takes_features:
            raise TreelabelError(
                f"the data have features and no texts, which the model {self.name} cannot learn from or score; the "
                "models extreme and svm can"
            )

    def _score_checked(self, texts: Any, ids: tuple[str, ...] | None, top: int | None = None) -> Scores:
        self.require_fitted()
        if top is not None and (not isinstance(top, int | np.integer) or top < 1):
            raise TreelabelError(f"expected to keep at least 1 score per text, found top={top}")
        self._require_texts(isinstance(texts, Strings))
        scores = self._score(texts) if top is None else self._score_top(texts, top)
        if ids is None and scores.values.dtype == np.float32:
            return scores
        # No model knows more digits than single precision has.
        return Scores(scores.hierarchy, scores.values.astype(np.float32, copy=False), ids)

    def require_fitted(self) -> None:
        """Refuse to go on before the model has learned."""
        if not hasattr(self, "hierarchy_"):
            raise not_fitted(f"this {self.name} model has not learned anything yet; call fit first")

    @abstractmethod
    def _score(self, texts: Strings) -> Scores:
        """Score texts."""

    def _score_top(self, texts: Strings, top: int) -> Scores:
        """Score texts and keep the `top` largest scores of each: some texts at a time, so that memory grows with these.

        A model that can do better overrides it.
        """
        step = max(1, BLOCK_SCORES // max(1, len(self.hierarchy_)))
        starts = range(0, max(1, len(texts)), step)
        parts = [self._score(texts[low : low + step]).top_k(top).values for low in starts]
        return Scores.concat(self.hierarchy_, parts)
