"""The adapter to scikit-learn: `classes_`, `predict_proba`, tags; get_params and set_params are in `settings`.

scikit-learn itself is imported only when it asks for something: that takes longer than most predictions.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import numpy.typing as npt

from treelabel.core.errors import TreelabelError
from treelabel.core.html_tables import html_box, html_table
from treelabel.core.registry import suggestion
from treelabel.core.strings import as_list
from treelabel.core.types import BoolArray, DoubleArray, IntArray
from treelabel.models.persistence.model_card import describe_reading
from treelabel.models.persistence.store import StorableModel
from treelabel.models.settings import HierarchySetting
from treelabel.rules.registry import describe_rule
from treelabel.scores.score_matrix import Scores

# What scikit-learn's metadata routing may pass on to a method.
METADATA = {
    "fit": ("sample_weight", "groups", "hierarchy", "valid", "classes", "progress", "max_seconds"),
    "score": ("sample_weight",),
    "predict": ("rule", "paths"),
}


class Classifier(StorableModel):
    """The adapter to scikit-learn: what Pipeline, cross_val_score, GridSearchCV and metrics expect of a classifier.

    Models do not transform, so there is no `transform` and no `get_feature_names_out`: n-grams are hashed, and a model
    stores no words. `explain` names the terms of a text.
    """

    if TYPE_CHECKING:

        def score(self, texts: Any) -> Scores:
            """Return the probability of every node: see `base.Model`."""

    def __init_subclass__(cls, **keywords: Any) -> None:
        """Define on every model the attribute `hierarchy`, in place of the default that its settings declare."""
        super().__init_subclass__(**keywords)
        if not TYPE_CHECKING:
            cls.hierarchy = HierarchySetting()

    @property
    def classes_(self) -> npt.NDArray[Any]:
        """The columns of `predict_proba`, as scikit-learn expects them of the labels that `fit` was given.

        After one label per text: `np.unique(labels)`, sorted and written as these were (names, paths, numbers); labels
        of the hierarchy that no training text has are no classes. After lists of labels (or a Dataset), where documents
        have one path: all labels at which a path may end, leaves and inner nodes where one did, sorted. After an
        indicator matrix, or where documents have several paths: all nodes in the hierarchy's order, as its columns are;
        with `classes=`, these.
        """
        return self.form_.write(self.hierarchy_, self._class_nodes())

    def predict_proba(self, texts: Any) -> npt.NDArray[Any]:
        """Return the probabilities of `classes_`: documents x classes.

        Where documents have one path, its end is one of the classes: a row is a distribution. The probability of an
        inner node is that the path *ends* there, which is what the score of the node has over all that ends below it.
        Rows are divided by their sums, so that they are conditional on the label being one of the classes; a row
        without any probability becomes uniform. So scikit-learn's log loss, ROC curves and calibration are right.

        After an indicator matrix, or where documents have several paths, a column is the probability that a document
        has the label, whatever other labels it has, as of scikit-learn's multi-label classifiers: of the node where the
        matrix marks ancestors or documents have several paths, else of a path's ending there.
        """
        scores = self.score(texts)
        if self.regime_ == "multi_path" or self.form_.closed:
            return scores.dense()[:, self._class_nodes()] if self.form_.columns else scores.dense()
        if self.form_.is_indicator:
            inner: IntArray = np.flatnonzero(~self.hierarchy_.is_leaf).astype(np.int32)
            return terminal_probabilities(scores, inner)[1][:, self._class_nodes()]
        ends, p = terminal_probabilities(scores, self.stop_nodes_)
        return as_distributions(p[:, np.searchsorted(ends, self._class_nodes())])

    def predict_log_proba(self, texts: Any) -> npt.NDArray[Any]:
        """Return the logarithms of `predict_proba`; that of 0 is minus infinity."""
        with np.errstate(divide="ignore"):
            logarithms: npt.NDArray[Any] = np.log(self.predict_proba(texts))
        return logarithms

    @property
    def feature_names_in_(self) -> npt.NDArray[np.object_]:
        """The text columns of the frame or file that was learned; undefined after plain texts, as in scikit-learn."""
        columns = getattr(self, "reading_", {}).get("text")
        if not columns:
            raise AttributeError(f"{type(self).__name__} has no 'feature_names_in_': it learned no named columns")
        return np.array(columns, object)

    @property
    def n_features_in_(self) -> int:
        """The number of `feature_names_in_`; undefined after plain texts, which have no columns."""
        return len(self.feature_names_in_)

    def set_output(self, *, transform: Literal["default", "pandas", "polars"] | None = None) -> Self:
        """Return the model as it is: scikit-learn's setting is about `transform`, which models do not have.

        For frames of predictions there is `predict_frame`.
        """
        if transform not in (None, "default", "pandas", "polars"):
            raise TreelabelError(f"transform is {transform!r}, expected 'default', 'pandas', 'polars' or None")
        return self

    def set_fit_request(self, **requests: bool | str | None) -> Self:
        """Say which of sample_weight, groups and the like scikit-learn's metadata routing passes on to `fit`.

        True passes it on, False does not, None makes it an error, and a text is the name under which it is passed.
        """
        return self._request("fit", requests)

    def set_score_request(self, **requests: bool | str | None) -> Self:
        """Say whether scikit-learn's metadata routing passes sample_weight on to `score`; see `set_fit_request`."""
        return self._request("score", requests)

    def set_predict_request(self, **requests: bool | str | None) -> Self:
        """Say whether scikit-learn's metadata routing passes rule and paths to `predict`; see `set_fit_request`."""
        return self._request("predict", requests)

    def _request(self, method: str, requests: Mapping[str, bool | str | None]) -> Self:
        from sklearn import get_config

        if not get_config()["enable_metadata_routing"]:
            raise TreelabelError(
                "metadata routing is not enabled; enable it with sklearn.set_config(enable_metadata_routing=True)"
            )
        routing = self.get_metadata_routing()
        for name, request in requests.items():
            if name not in METADATA[method]:
                raise TreelabelError(f"{method} takes no {name!r}; {suggestion(name, METADATA[method])}")
            getattr(routing, method).add_request(param=name, alias=request)
        # The name by which scikit-learn's clone copies it.
        self._metadata_request = routing
        return self

    def get_metadata_routing(self) -> Any:
        """Return what scikit-learn's metadata routing passes on to this model."""
        from sklearn.utils.metadata_routing import MetadataRequest, get_routing_for_object

        if hasattr(self, "_metadata_request"):
            return get_routing_for_object(self._metadata_request)
        routing = MetadataRequest(owner=self)
        for method, names in METADATA.items():
            for name in names:
                getattr(routing, method).add_request(param=name, alias=None)
        return routing

    def _class_nodes(self) -> IntArray:
        """Return the nodes that are classes, in the order of `classes_`."""
        h, form = self.hierarchy_, self.form_
        if form.columns:
            return np.array(form.columns, np.int32)
        if self.regime_ == "multi_path" or form.is_indicator:
            return np.arange(len(h), dtype=np.int32)
        leaves = h.leaves
        if form.is_single:
            leaves = leaves[self.profile_.frequencies[leaves] > 0]
        nodes = np.union1d(leaves, self.stop_nodes_).astype(np.int32)
        ordered: IntArray = nodes[np.argsort(form.write(h, nodes), kind="stable")]
        return ordered

    def _repr_html_(self) -> str:
        """Return what notebooks show: settings; and of a fitted model what it learned from, and how well it did."""
        if not self.__sklearn_is_fitted__():
            title = f"{type(self).__name__} (not fitted)"
            return html_box(title, html_table(list(self.get_params(deep=False).items()), ("setting", "value")))
        h, documents = self.hierarchy_, self.profile_.documents
        described = [part for part in self.evidence_.describe(self.rule_, self.regime_).split("; ") if part]
        rows = [
            ("labels", f"{len(h):,} ({len(h.leaves):,} leaves), depth {h.max_depth}"),
            ("training", f"{documents:,} documents"),
            ("predicts", describe_rule(self.rule_)),
            *(("evidence", part) for part in described),
            *(("read with", option) for option in describe_reading(self.reading_)),
            *(("setting", f"{name} = {value!r}") for name, value in self.changed_settings().items()),
        ]
        return html_box(f"{type(self).__name__} (fitted)", html_table(rows))

    def __sklearn_tags__(self) -> Any:
        """Return what scikit-learn asks of an estimator."""
        from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags

        return Tags(
            estimator_type="classifier",
            target_tags=TargetTags(required=True, multi_output=True),
            classifier_tags=ClassifierTags(multi_label=True),
            input_tags=InputTags(string=True, two_d_array=False),
        )

    def __sklearn_is_fitted__(self) -> bool:
        """Return whether the model has learned."""
        return hasattr(self, "hierarchy_")


def mean_of(values: BoolArray, sample_weight: Any = None) -> float:
    """Compute the share of documents that are marked, each with its weight.

    Parameters
    ----------
    values : array of bool, shape (documents,)
        Marks documents.
    sample_weight
        Their weights; by default all the same.

    Returns
    -------
    float

    >>> mean_of(np.array([True, False])), mean_of(np.array([True, False]), [3, 1])
    (0.5, 0.75)
    """
    if sample_weight is None:
        return float(values.mean())
    weights = np.asarray(as_list(sample_weight, "weights"), np.float64)
    if weights.shape != values.shape or not np.isfinite(weights).all() or weights.min() < 0 or not weights.any():
        raise TreelabelError(f"sample_weight must hold {len(values):,} numbers from 0 on, some of them above 0")
    return float(np.average(values, weights=weights))


def terminal_probabilities(scores: Scores, stops: IntArray) -> tuple[IntArray, DoubleArray]:
    """Return the probability that a document's path ends at each terminal node: a leaf, or one of `stops`.

    What ends at an inner node is its probability less all that ends below it.

    Parameters
    ----------
    scores
        Probabilities of nodes; documents are expected to have one path.
    stops
        Inner nodes at which paths may end.

    Returns
    -------
    nodes, probabilities
        The terminal nodes in the hierarchy's order, and documents x terminal nodes.

    >>> from treelabel.hierarchy import Hierarchy
    >>> h = Hierarchy.from_paths(["A > B", "A > C"])
    >>> nodes, p = terminal_probabilities(Scores(h, [[1.0, 0.5, 0.25]]), np.array([0], np.int32))
    >>> nodes.tolist(), p.tolist()
    ([0, 1, 2], [[0.25, 0.5, 0.25]])
    """
    h = scores.hierarchy
    nodes: IntArray = np.union1d(h.leaves, stops).astype(np.int32)
    position = np.full(len(h), -1)
    position[nodes] = np.arange(len(nodes))
    result = np.asarray(scores.csr()[:, nodes].toarray() if scores.is_sparse else scores.dense()[:, nodes], np.float64)
    # Children come behind their parents, so what ends below a node is known when its turn comes.
    for node in sorted(stops.tolist(), reverse=True):
        under = position[h.descendants([node]).indices]
        result[:, position[node]] -= result[:, under[under >= 0]].sum(axis=1)
    return nodes, np.maximum(result, 0.0)


def as_distributions(p: DoubleArray) -> DoubleArray:
    """Divide rows by their sums, so that each is a distribution; one without any probability becomes uniform.

    >>> as_distributions(np.array([[0.5, 0.25, 0.25], [0.2, 0.2, 0.0], [0.0, 0.0, 0.0]])).round(3).tolist()
    [[0.5, 0.25, 0.25], [0.5, 0.5, 0.0], [0.333, 0.333, 0.333]]
    """
    total = p.sum(axis=1, keepdims=True)
    result: DoubleArray = np.full_like(p, 1 / max(1, p.shape[1]))
    np.divide(p, total, out=result, where=total > 0)
    return result
