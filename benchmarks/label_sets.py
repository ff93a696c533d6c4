"""What a distribution of label sets is worth: rules on the same scores, chosen on validation documents.

    python benchmarks/label_sets.py                       # esco, reuters21578, attack, bibtex, delicious
    python benchmarks/label_sets.py --sets esco

Of the training documents one part trains the linear model (bibtex and delicious have features only: one logistic
regression a label), another fits weights of numbers of paths and chooses the rule; test documents are judged once.
Prints the mean F1 of closed sets and the share of sets that are right, with what each rule gains over the chosen one
and the standard error of that.
"""

import argparse
import gzip
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from treelabel import Hierarchy, Scores, evaluate, make_model, read, read_together, split
from treelabel.hierarchy import LabelMatrix, label_matrix
from treelabel.rules import decide
from treelabel.selection.rule_choice import choose_rule

DATA = Path(os.environ.get("TREELABEL_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
SETS = ("esco", "reuters21578", "attack", "bibtex", "delicious")

# Scores and truth of validation documents, then of test documents.
Parts = tuple[Scores, LabelMatrix, Scores, LabelMatrix]


def with_texts(name: str, seed: int) -> Parts:
    """Train the linear model on part of the training documents, and score the rest and the test documents."""
    if name == "attack":
        procedures = read(DATA / name / "procedures.jsonl.gz")
        train, test = split(procedures, {"train": 0.8, "test": 0.2}, seed=seed, keep_duplicates=False).values()
    else:
        train, test = read_together([DATA / name / f"{part}.jsonl.gz" for part in ("train", "test")])
    fit, valid = split(train, {"fit": 0.85, "valid": 0.15}, seed=seed, keep_duplicates=False).values()
    model = make_model("linear", seed=seed).fit(fit)
    return model.score(valid), valid.labels, model.score(test), test.labels


def read_features(file: Path) -> tuple[sparse.csr_array, LabelMatrix]:
    """Read lines of the extreme classification repository: labels, then feature:value."""
    with gzip.open(file, "rt") as lines:
        documents, features, labels = map(int, next(lines).split())
        rows = [line.rstrip("\n").split(" ") for line in lines]
    true = [sorted({int(label) for label in row[0].split(",") if label}) for row in rows]
    pairs = [[each.split(":") for each in row[1:] if each] for row in rows]
    columns = np.array([int(column) for row in pairs for column, _ in row], np.int32)
    values = np.array([float(value) for row in pairs for _, value in row])
    ptr = np.concatenate([[0], np.cumsum([len(row) for row in pairs])]).astype(np.int32)
    label_ptr = np.concatenate([[0], np.cumsum([len(row) for row in true])])
    found = label_matrix(label_ptr, [label for row in true for label in row], labels)
    return sparse.csr_array((values, columns, ptr), shape=(documents, features)), found


def with_features(name: str, seed: int) -> Parts:
    """Train one logistic regression a label on part of the training documents."""
    from sklearn.linear_model import LogisticRegression

    features, truth = read_features(DATA / name / "train.txt.gz")
    test_features, test_truth = read_features(DATA / name / "test.txt.gz")
    order = np.random.default_rng(seed).permutation(features.shape[0])
    fit, valid = np.split(order, [int(0.85 * len(order))])
    h = Hierarchy.flat(map(str, range(truth.shape[1])))
    scores = [np.zeros((matrix.shape[0], len(h)), np.float32) for matrix in (features[valid], test_features)]
    dense = truth[fit].toarray()
    for label in np.flatnonzero(dense.any(axis=0)):
        model = LogisticRegression(C=1.0, solver="liblinear").fit(features[fit], dense[:, label])
        for found, matrix in zip(scores, (features[valid], test_features), strict=True):
            found[:, label] = model.predict_proba(matrix)[:, 1]
    return Scores(h, scores[0]), truth[valid], Scores(h, scores[1]), test_truth


def report(name: str, parts: Parts) -> None:
    """Choose on validation documents, judge on test documents, and print both."""
    valid, valid_truth, scores, truth = parts
    started = time.perf_counter()
    chosen = choose_rule(valid, valid_truth)
    took = time.perf_counter() - started
    print(f"\n{name}: {chosen.documents:,} validation and {len(scores):,} test documents")
    print(f"chosen in {took:.1f} s: {chosen.rule}")
    print(f"{'rule':<28}{'validation F1':>14}{'test F1':>9}{'exact':>8}{'gain over chosen':>20}{'seconds':>9}")
    judged: dict[str, Any] = {}
    seconds = {}
    for tried in chosen.tried:
        started = time.perf_counter()
        decisions = decide(scores, tried.rule)
        seconds[tried.rule] = time.perf_counter() - started
        judged[tried.rule] = evaluate(truth, decisions=decisions, metrics=["hf1", "subset_accuracy"])
    own = judged[chosen.rule].documents["hf1"]
    for tried in chosen.tried:
        result = judged[tried.rule]
        gain = result.documents["hf1"] - own
        error = float(gain.std(ddof=1) / np.sqrt(len(gain)))
        short = tried.rule if len(tried.rule) < 24 else f"{tried.rule.split('(')[0]}, fitted"
        print(
            f"{short:<28}{tried.f1:>14.4f}{result['hf1']:>9.4f}{result['subset_accuracy']:>8.4f}"
            f"{gain.mean():>+11.4f} ± {error:.4f}{seconds[tried.rule]:>9.1f}"
        )


def main() -> None:
    """Report on all sets."""
    parser = argparse.ArgumentParser(description="Compare rules for documents with several labels.")
    parser.add_argument("--sets", default=",".join(SETS), help="data sets, comma-separated")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for name in options.sets.split(","):
        if not (DATA / name).is_dir():
            print(f"{name}: not at {DATA}; set TREELABEL_DATA to the folder of the data sets")
            continue
        parts = (with_features if name in ("bibtex", "delicious") else with_texts)(name, options.seed)
        report(name, parts)


if __name__ == "__main__":
    main()
