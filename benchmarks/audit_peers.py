"""cleanlab's rankings of labels, started by `audit.py` with the Python of an environment that has it.

    python benchmarks/audit_peers.py FOLDER

FOLDER holds texts.json, and task.npz with the class of each text and probabilities of classes by another model. The
last line of output is JSON: for either source of probabilities the row numbers of each ranking, and the seconds that
logistic regression took. Nothing here needs treelabel.
"""

import json
import sys
import time
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold

FOLDS = 5
# Not installed where types are checked.
find_label_issues: Any = import_module("cleanlab.filter").find_label_issues
get_label_quality_scores: Any = import_module("cleanlab.rank").get_label_quality_scores


def logistic(texts: list[str], labels: Any) -> Any:
    """Compute out-of-fold probabilities; a class without documents in the other folds has a probability of 0."""
    p = np.zeros((len(texts), int(labels.max()) + 1))
    column = np.array(texts, object)
    for train, test in StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(column, labels):
        features = TfidfVectorizer(sublinear_tf=True, min_df=2)
        model = LogisticRegression().fit(features.fit_transform(column[train]), labels[train])
        p[np.ix_(test, model.classes_)] = model.predict_proba(features.transform(column[test]))
    p += 1e-12
    return p / p.sum(axis=1, keepdims=True)


def rankings(labels: Any, p: Any) -> dict[str, list[int]]:
    """Rank all rows in each of cleanlab's ways, the most suspicious first."""
    found = {}
    quality = get_label_quality_scores(labels, p)
    issues = find_label_issues(labels, p, return_indices_ranked_by="self_confidence", n_jobs=1)
    rest = np.setdiff1d(np.argsort(quality, kind="stable"), issues, assume_unique=True)
    found["find_label_issues"] = [*issues.tolist(), *rest[np.argsort(quality[rest], kind="stable")].tolist()]
    for method in ("self_confidence", "normalized_margin", "confidence_weighted_entropy"):
        for adjust in (False, True):
            if adjust and method == "confidence_weighted_entropy":
                continue
            score = get_label_quality_scores(labels, p, method=method, adjust_pred_probs=adjust)
            found[f"{method}{' adjusted' if adjust else ''}"] = np.argsort(score, kind="stable").tolist()
    return found


def main() -> None:
    """Rank by both sources of probabilities."""
    warnings.simplefilter("ignore")
    folder = Path(sys.argv[1])
    texts = json.loads((folder / "texts.json").read_text(encoding="utf-8"))
    with np.load(folder / "task.npz") as stored:
        p, labels = stored["p"], stored["labels"].astype(np.int64)
    started = time.perf_counter()
    own = logistic(texts, labels)
    took = time.perf_counter() - started
    print(json.dumps({"ours": rankings(labels, p), "logistic": rankings(labels, own), "seconds": took}))


if __name__ == "__main__":
    main()
