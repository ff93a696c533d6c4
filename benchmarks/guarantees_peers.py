"""Conformal sets of flat labels by MAPIE, crepes and puncc, started by `guarantees.py` with a Python that has them.

    python benchmarks/guarantees_peers.py FILE

FILE is an .npz with the probabilities and classes of calibration and test documents, and the coverage. The last line of
output is JSON: by peer and score the share of test documents that are covered, the mean size of sets, and the seconds.
Nothing here needs treelabel.
"""

import json
import sys
import time
import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

# Not installed where types are checked.
mapie_classification: Any = import_module("mapie.classification")
mapie_scores: Any = import_module("mapie.conformity_scores")
crepes: Any = import_module("crepes")
puncc: Any = import_module("deel.puncc.classification")
puncc_prediction: Any = import_module("deel.puncc.api.prediction")
sklearn_base: Any = import_module("sklearn.base")


class Given(sklearn_base.ClassifierMixin, sklearn_base.BaseEstimator):  # type: ignore[misc]
    """A fitted classifier whose features are its probabilities."""

    def __init__(self, count: int = 0) -> None:
        self.count = count
        self.classes_ = np.arange(count)

    def fit(self, features: Any, classes: Any) -> "Given":
        """Learn nothing."""
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def predict_proba(self, features: Any) -> Any:
        """Return the features."""
        return np.asarray(features)

    def predict(self, features: Any) -> Any:
        """Return the likeliest classes."""
        return np.asarray(features).argmax(axis=1)


def by_mapie(score: str, data: Any, coverage: float) -> Any:
    """Return the sets of MAPIE as a matrix, documents x classes."""
    kind = {"lac": "LAC", "aps": "APS", "raps": "RAPS"}[score]
    made = mapie_classification.SplitConformalClassifier(
        Given(data["valid"].shape[1]),
        confidence_level=coverage,
        conformity_score=getattr(mapie_scores, f"{kind}ConformityScore")(),
        random_state=0,
    ).conformalize(data["valid"], data["valid_class"])
    options = {} if score == "lac" else {"include_last_label": "randomized"}
    return made.predict_set(data["test"], conformity_score_params=options)[1][:, :, 0]


def by_crepes(_: str, data: Any, coverage: float) -> Any:
    """Return the sets of crepes, whose score is 1 - p."""
    rows = np.arange(len(data["valid"]))
    made = crepes.ConformalClassifier().fit(1 - data["valid"][rows, data["valid_class"]], seed=0)
    return made.predict_set(1 - data["test"], np.arange(data["test"].shape[1]), confidence=coverage, smoothing=False)


class GivenPredictor(puncc_prediction.BasePredictor):  # type: ignore[misc]
    """A predictor of puncc whose features are its probabilities."""

    def predict(self, X: Any, **_: Any) -> Any:  # noqa: N803  puncc's name
        """Return the features."""
        return np.asarray(X)


def by_puncc(score: str, data: Any, coverage: float) -> Any:
    """Return the sets of puncc."""
    predictor = GivenPredictor(Given(data["valid"].shape[1]), is_trained=True)
    # puncc draws from numpy's common generator.
    np.random.seed(0)
    penalties: dict[str, Any] = {"lambd": 0.01, "k_reg": 5} if score == "raps" else {}
    options = {} if score == "lac" else {"rand": True, **penalties}
    made = getattr(puncc, score.upper())(predictor, train=False, **options)
    made.fit(X_calib=data["valid"], y_calib=data["valid_class"])
    sets = np.zeros(data["test"].shape, bool)
    for row, listed in enumerate(made.predict(data["test"], alpha=1 - coverage)[1]):
        sets[row, np.asarray(listed, np.int64)] = True
    return sets


PEERS: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "MAPIE": (by_mapie, ("lac", "aps", "raps")),
    "crepes": (by_crepes, ("lac",)),
    "puncc": (by_puncc, ("lac", "aps", "raps")),
}


def main() -> None:
    """Run all peers."""
    warnings.simplefilter("ignore")
    with np.load(sys.argv[1]) as stored:
        data = dict(stored)
    coverage, true = float(data["coverage"]), data["test_class"]
    found: dict[str, Any] = {}
    for name, (run, scores) in PEERS.items():
        for score in scores:
            started = time.perf_counter()
            try:
                sets = np.asarray(run(score, data, coverage)).astype(bool)
            except Exception as error:  # what a peer cannot do is told, and the others go on
                found[f"{name} {score}"] = f"{type(error).__name__}: {error}"[:80]
                continue
            took = time.perf_counter() - started
            found[f"{name} {score}"] = [
                float(sets[np.arange(len(true)), true].mean()),
                float(sets.sum(axis=1).mean()),
                took,
            ]
    print(json.dumps(found))


if __name__ == "__main__":
    main()
