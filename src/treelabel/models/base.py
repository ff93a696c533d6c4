"""The contract of models: fit, score, predict, explain, save. What a model is to scikit-learn is in `sklearn`."""

import logging
import time
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Self, overload

import numpy as np

from treelabel.core.bounded_memory import BLOCK_SCORES
from treelabel.core.errors import TreelabelError
from treelabel.core.stopping import StopSignal
from treelabel.core.strings import Strings
from treelabel.core.types import DoubleArray
from treelabel.core.validation import Between, validate
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.label_ids import decode
from treelabel.hierarchy.labelled_texts import stop_nodes
from treelabel.hierarchy.moves import Moves
from treelabel.models.label_forms import LabelForm
from treelabel.models.model_inputs import (
    TrueLabels,
    judged_labels,
    reading_of,
    texts_of,
    training_of,
    true_labels,
)
from treelabel.models.persistence.store import save_model
from treelabel.models.predicted_frames import predict_frame
from treelabel.models.profile import Profile, unknown_words
from treelabel.models.settings import not_fitted
from treelabel.models.sklearn import Classifier, mean_of
from treelabel.models.streaming import blank_texts, decide_texts, decided_batches
from treelabel.rules.decisions import Decisions, TunedRule
from treelabel.scores.score_matrix import Scores
from treelabel.selection.evidence import HeldOut, SettingTrial, Stage, decide_by_evidence, irregular_documents

# A model's file needs Training beside Model.
from treelabel.selection.training import Training as Training
from treelabel.text.tfidf import Tfidf

LOG = logging.getLogger(__name__)


class Model(Classifier):
    """A model of texts in a hierarchy of labels. Settings are what the maker takes; what is learned ends in "_".

    A model file says how to learn (`_fit`), how to score (`_score`), and what to save (`_state`, `_schema`, `_restore`:
    see `StorableModel`).
    """

    name: ClassVar[str]
    # Whether an encoder that is not given is the best one that is installed.
    needs_encoder: ClassVar[bool] = False
    # Whether the states of all tokens of a frozen encoder are looked at, and not one vector per text.
    takes_states: ClassVar[bool] = False
    # Whether documents may have weights.
    takes_sample_weight: ClassVar[bool] = False
    # Whether documents may be features, as XMC files have them, instead of texts.
    takes_features: ClassVar[bool] = False
    # The setting, and once a model has learned the hierarchy of what it has learned: see `HierarchySetting`.
    hierarchy: Hierarchy | None
    # Why learning ended before its end: "deadline" or "interrupt".
    stopped_: str | None
    # A sentence on training documents that are not of the usual regime; empty if there are none.
    irregular_documents_: str

    def fit(
        self,
        data: Any,
        labels: Any = None,
        *,
        hierarchy: Hierarchy | None = None,
        valid: Any = None,
        progress: bool | None = None,
        max_seconds: float | None = None,
        sample_weight: Any = None,
        groups: Any = None,
        classes: Any = None,
    ) -> Self:
        """Fit to a Dataset, or to texts with labels; without a hierarchy, it is made of the labels ("A > B" is a path).

        What `labels` look like, predictions of `predict` will: one label per text, a list of them, names or paths. One
        label per text comes back as it is written, blanks and all; two spellings of one label are refused.
        After `max_seconds`, or at Ctrl-C, the best so far is stored, and `stopped_` says so: "deadline" or "interrupt",
        None after learning to the end. Documents of a group (a customer, a source) are held out together. What held-out
        documents showed is in `evidence_`.

        Parameters
        ----------
        data
            A Dataset, or a list of texts: any column, but no data frame.
        labels
            One label or one list of labels per text, by name or by path, where `data` is a list; a tuple of names is a
            path. Columns of a data frame, or of a two-dimensional array of names, are the levels of paths. Or an
            indicator matrix, dense or sparse, of all nodes of a hierarchy or of `classes`; or a data frame of
            indicators, such as `pandas.get_dummies` makes.
        hierarchy
            The hierarchy, where neither `data` nor the model's settings have one.
        valid
            A Dataset to stop early on, for models that learn step by step.
        progress
            Whether to show a progress bar; None asks whether standard error is a terminal.
        max_seconds
            The time after which the best so far is kept.
        sample_weight : array of shape (documents,)
            How much the loss of each document counts, for models that take it.
        groups : array of shape (documents,)
            A value per document; by default those of the Dataset.
        classes : sequence of str
            The label of each column of an indicator matrix, such as `MultiLabelBinarizer.classes_`. Without a
            hierarchy, it is made of these.

        Returns
        -------
        Model
            The model itself.
        """
        self.require_settings()
        # What could not be loaded is not learned.
        self.check_settings(self.storable_settings())
        if max_seconds is not None:
            validate(max_seconds, Annotated[float, Between(0, np.inf)], "max_seconds")
        stop = StopSignal(np.inf if max_seconds is None else time.monotonic() + max_seconds)
        known = hierarchy if hierarchy is not None else self.get_params(deep=False)["hierarchy"]
        if known is None and valid is not None:
            known = getattr(data, "hierarchy", None) or getattr(valid, "hierarchy", None)
        validation = None if valid is None else training_of(valid, None, known)
        train = training_of(data, labels, known, validation, progress, stop, classes)
        groups = groups if groups is not None else getattr(data, "groups", None)
        train = self._require_learnable(train, groups, sample_weight)
        self.hierarchy_, self.regime_, self.form_ = train.hierarchy, train.regime, train.form or LabelForm()
        self.stop_nodes_ = stop_nodes(train.hierarchy, train.labels)
        self.stopped_ = None
        self.reading_ = reading_of(data)
        self._record_evidence(train, self._fit(train))
        self.stopped_ = stop.reason
        return self

    def _require_learnable(self, train: Training, groups: Any, sample_weight: Any) -> Training:
        """Return the training documents with groups and weights; refuse what this model cannot learn from."""
        if sample_weight is not None and not self.takes_sample_weight:
            raise TreelabelError(f"the model {self.name} cannot weigh documents; leave sample_weight out")
        self._require_texts(train.features is None)
        if not len(train):
            raise TreelabelError("there are no documents to learn from")
        train = train if groups is None else train.with_groups(groups)
        train = train if sample_weight is None else train.with_weights(sample_weight)
        if train.labels.nnz == 0:
            raise TreelabelError("no document has a label, so there is nothing to learn")
        return train

    def _record_evidence(self, train: Training, held: HeldOut | None) -> None:
        """Choose the default rule by held-out documents, and keep what these and the training documents are like."""
        self.rule_, evidence = decide_by_evidence(train.hierarchy, train.labels, held, self._trials())
        self.evidence_ = replace(evidence, stages=tuple(self._stages()))
        self.profile_ = Profile.of(train, held, self.default_rule, self._known_words(), getattr(self, "min_df", 1))
        self.irregular_documents_ = irregular_documents(train.hierarchy, train.labels)
        chance = self.evidence_.compare_with_most_frequent(self.default_rule)
        if chance:
            LOG.warning("on held-out documents the model is %s", chance)

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
        return judged_labels(labels, self.hierarchy_, self.form_), scores, self._decide(column, scores, rule)

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
        return self._answers(self._decide(column, scores, rule), scores, rule, paths)

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

    def _decide(self, texts: Any, scores: Scores, rule: str | TunedRule | None) -> Decisions:
        return decide_texts(scores, blank_texts(texts), self.default_rule if rule is None else rule)

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
        # No model knows more digits than single precision has.
        return Scores(scores.hierarchy, scores.values.astype(np.float32, copy=False), ids)

    def require_fitted(self) -> None:
        """Refuse to go on before the model has learned."""
        if not hasattr(self, "hierarchy_"):
            raise not_fitted(f"this {self.name} model has not learned anything yet; call fit first")

    def __repr__(self) -> str:
        """Return the settings that are not the defaults, and what was found on held-out documents."""
        evidence = self.evidence_.describe(self.rule_, self.regime_) if hasattr(self, "evidence_") else ""
        return f"{super().__repr__()} [{evidence}]" if evidence else super().__repr__()

    def explain(self, text: str, node: int | None = None) -> Any:
        """Return the terms that support and oppose the predicted labels of a text, for models that can explain them.

        Parameters
        ----------
        node
            The node to explain; None takes the predicted ones.

        Returns
        -------
        object
            As the model describes it.
        """
        raise TreelabelError(f"the model {self.name} cannot explain its predictions; linear can")

    def save(self, folder: Any, overwrite: bool = False) -> None:
        """Write to a folder of JSON and .npz; see `save_model`.

        Parameters
        ----------
        folder
            The folder to write.
        overwrite
            Whether a model that is there is replaced.
        """
        save_model(self, folder, overwrite)

    @abstractmethod
    def _fit(self, train: Training) -> HeldOut | None:
        """Learn; return the scores of documents by what was learned without them, if there are any."""

    def _trials(self) -> Sequence[SettingTrial]:
        """Return what was tried in learning."""
        return ()

    def _stages(self) -> Sequence[Stage]:
        """Return how far each stage of learning came, of a model that learns step by step."""
        return ()

    # Not abstract: most models keep nothing that texts could be added to.
    def _update(self, more: Training | None, moves: Moves) -> Self:
        """Return a model with further documents under another hierarchy, made of what was learned alone.

        Parameters
        ----------
        more : Training or None
            Documents with labels of the new hierarchy; None for a hierarchy alone.
        moves : Moves
            From the hierarchy of the model to the new one.

        Returns
        -------
        Model
            Another model; this one stays as it is.
        """
        raise TreelabelError(
            f"to take in new texts or labels, the model {self.name} has to learn the old texts again, which it does "
            "not keep; name the file that it was trained on with --train (train=)"
        )

    def _refit(self, train: Training, before: int) -> Self:
        """Return a model of the same kind that was fitted to documents, the first `before` of which this one knows."""
        made = type(self)(**(self.get_params(deep=False) | self._chosen_settings() | {"hierarchy": None}))
        return made.fit(train, progress=train.progress)

    def _chosen_settings(self) -> dict[str, Any]:
        """Return the settings that learning chose and that another fit takes over."""
        encoder: Any = getattr(self, "encoder_", None)
        is_open = "encoder" in self.setting_names() and getattr(self, "encoder", None) is None
        return {"encoder": encoder.name} if is_open and encoder is not None else {}

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
