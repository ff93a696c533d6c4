"""The contract of models: fit, explain, save. What they answer is in `prediction`, and to scikit-learn in `sklearn`."""

import logging
import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Self

import numpy as np

from treelabel.core.errors import TreelabelError
from treelabel.core.plots import draw
from treelabel.core.stopping import StopSignal
from treelabel.core.validation import Between, validate
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.labelled_texts import stop_nodes
from treelabel.hierarchy.moves import Moves
from treelabel.models.label_forms import LabelForm
from treelabel.models.model_inputs import (
    reading_of,
    training_of,
)
from treelabel.models.persistence.store import save_model
from treelabel.models.prediction import Predictor
from treelabel.models.profile import Profile
from treelabel.rules.risk_bounds import require_share
from treelabel.selection.evidence import (
    HeldOut,
    SettingTrial,
    Stage,
    TuningTrial,
    irregular_documents,
)
from treelabel.selection.goal import find_goal, require_suitable
from treelabel.selection.guarantee import set_apart
from treelabel.selection.rule_choice import cover_by_evidence, decide_by_evidence, documents_to_judge
from treelabel.selection.training import MOST_SCORES, TOP_OF_MANY

# A model's file needs Training beside Model.
from treelabel.selection.training import Training as Training

LOG = logging.getLogger(__name__)


class Model(Predictor):
    """A model of texts in a hierarchy of labels. Settings are what the maker takes; what is learned ends in "_".

    A model file says how to learn (`_fit`), how to score (`_score`), and what to save (`_state`, `_schema`, `_restore`:
    see `StorableModel`).
    """

    name: ClassVar[str]
    # Whether an encoder that is not given is the best one that is installed.
    needs_encoder: ClassVar[bool] = False
    # Whether the states of all tokens of a frozen encoder are looked at, and not one vector per text.
    takes_states: ClassVar[bool] = False
    # Whether several processes, such as torchrun starts, share its training.
    shares_training: ClassVar[bool] = False
    # Whether documents may have weights.
    takes_sample_weight: ClassVar[bool] = False
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
        coverage: float | None = None,
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
        coverage
            The probability with which predictions are to cover the true label: the default rule is then calibrated on
            documents that are kept out of learning, and `evidence_.guarantee` says what it promises
            (docs/guarantees.md).

        Returns
        -------
        Model
            The model itself.
        """
        self.require_settings()
        if coverage is not None:
            require_share(coverage, "coverage")
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
        learned, apart = (train, None) if coverage is None else set_apart(train, coverage, getattr(self, "seed", 0))
        held = self._fit(learned)
        self._record_evidence(learned, held)
        if apart is not None and coverage is not None:
            self._promise(train, apart, held, coverage)
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
        if self._goal is not None:
            require_suitable(self._goal, train.hierarchy, train.labels)
        return train

    @property
    def _goal(self) -> str | None:
        """The metric to choose for, of models that have the setting `optimize`; None for the usual one."""
        goal: str | None = getattr(self, "optimize", None)
        return goal

    @classmethod
    def check_values(cls, settings: Mapping[str, Any], where: str = "the setting ") -> None:
        """Refuse values that are not what the maker's type hints say, and unknown metrics to optimize.

        Parameters
        ----------
        settings
            Values by name; unknown names are passed over.
        where
            The beginning of messages.
        """
        super().check_values(settings, where)
        if settings.get("optimize") is not None:
            try:
                find_goal(settings["optimize"])
            except TreelabelError as error:
                raise TreelabelError(f"{where}optimize: {error}") from None

    def _record_evidence(self, train: Training, held: HeldOut | None) -> None:
        """Choose the default rule by held-out documents, and keep what these and the training documents are like."""
        self.rule_, evidence = decide_by_evidence(train.hierarchy, train.labels, held, self._trials(), self._goal)
        self.evidence_ = replace(evidence, stages=tuple(self._stages()), tuning=self._tuning())
        judged = documents_to_judge(train.hierarchy, train.labels, held)
        self.profile_ = Profile.of(train, judged, self.default_rule, self._known_words(), getattr(self, "min_df", 1))
        self.irregular_documents_ = irregular_documents(train.hierarchy, train.labels)
        chance = self.evidence_.compare_with_most_frequent(self.default_rule)
        if chance:
            LOG.warning("on held-out documents the model is %s", chance)

    def _promise(self, train: Training, apart: Training, held: HeldOut | None, coverage: float) -> None:
        """Replace the default rule by one that covers the truth, by documents that the model has not seen."""
        documents = apart.texts if apart.features is None else apart.features
        top = TOP_OF_MANY if len(apart) * len(apart.hierarchy) > MOST_SCORES else None
        scored = HeldOut(self._score_checked(documents, None, top), apart.labels, apart.groups)
        h, evidence = train.hierarchy, self.evidence_
        self.rule_, self.evidence_ = cover_by_evidence(h, train.labels, scored, held, evidence, coverage)
        self.profile_ = self.profile_.by_rule(documents_to_judge(h, train.labels, held), self.rule_)

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

    def plot_calibration(self, texts: Any = None, labels: Any = None) -> Any:
        """Draw how often predictions are right over their probability.

        Parameters
        ----------
        texts
            Documents to judge: a list of texts, or a Dataset. By default those that were held out of training, by what
            is stored of them: the least probability of the labels of each, and whether all were right.
        labels
            Their true labels in any form that `fit` takes; a Dataset has its own.

        Returns
        -------
        matplotlib.figure.Figure
        """
        return draw("calibration", self, texts, labels)

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

    def _tuning(self) -> TuningTrial | None:
        """Return what tuning an encoder was worth on held-out documents, of a model that tried."""
        return None

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
        promised = self.evidence_.guarantee
        return made.fit(train, progress=train.progress, coverage=None if promised is None else promised.coverage)

    def _chosen_settings(self) -> dict[str, Any]:
        """Return the settings that learning chose and that another fit takes over."""
        encoder: Any = getattr(self, "encoder_", None)
        is_open = "encoder" in self.setting_names() and getattr(self, "encoder", None) is None
        return {"encoder": encoder.name} if is_open and encoder is not None else {}
