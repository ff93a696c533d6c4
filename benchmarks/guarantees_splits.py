"""What `fit(coverage=...)` reaches on other documents, over random splits: see guarantees.py.

    python benchmarks/guarantees.py splits [SET ...]      # a quarter of an hour; exits with 1 if one is broken

Of each set, documents to learn from (words alone are features) and up to 2,000 others are drawn 40 times. "Kept
apart" is what fit does: documents are kept out of learning, and calibrate what the model promises. "Out of fold" is
what is not done, and why: the model learns from all documents, and their scores by what was learned without them
calibrate it. One fit serves all coverages, as these do not change which documents are kept apart. A promise is kept if
the mean over the splits is not below it by more than three standard errors.
"""

import os
import sys
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.measure import Claim
from scipy import sparse

from treelabel import Hierarchy, decide, load_sample, read_together
from treelabel.core.errors import TreelabelError
from treelabel.core.strings import Strings
from treelabel.hierarchy import LabelMatrix
from treelabel.hierarchy.label_matrices import row_sizes
from treelabel.hierarchy.labelled_texts import usual_regime
from treelabel.metrics.batch import Batch, Context
from treelabel.metrics.overlap import hr
from treelabel.metrics.sets import set_coverage, set_nodes, set_size
from treelabel.models.linear.model import Linear
from treelabel.selection.evidence import HeldOut
from treelabel.selection.guarantee import promise_coverage, set_apart
from treelabel.selection.rule_choice import documents_to_judge
from treelabel.selection.training import Training

DATA = Path(os.environ.get("TREELABEL_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
FILES = {
    "mwpd_gpc": ("train", "test"),
    "newsgroups20": ("train", "test"),
    "clinc150": ("train", "test"),
    "dbpedia5k": ("all",),
    "hwv": ("val", "test"),
    "reuters21578": ("train", "test"),
    "attack": ("procedures",),
}
SETS = ("sample", *FILES)
SPLITS, SIZES, MOST_JUDGED = 40, (300, 1000, 3500), 2000
COVERAGES = (0.8, 0.9, 0.95)


class Watched(Linear):
    """A model that keeps what it held out, to calibrate by that in place of documents that it has not seen."""

    held_: HeldOut | None

    def _record_evidence(self, train: Training, held: HeldOut | None) -> None:
        super()._record_evidence(train, held)
        self.held_ = held


@dataclass(frozen=True, eq=False)
class Documents:
    """All documents of a set, with their labels."""

    texts: Strings
    labels: LabelMatrix
    hierarchy: Hierarchy

    @classmethod
    def of(cls, name: str) -> "Documents":
        """Read a set."""
        files = [DATA / name / f"{part}.jsonl.gz" for part in FILES.get(name, ())]
        parts = read_together(files) if files else [load_sample()]
        texts = Strings.of([text for part in parts for text in part.texts])
        labels = sparse.csr_array(sparse.vstack([part.labels for part in parts], format="csr"))
        return cls(texts, labels, parts[0].hierarchy)


def splits(names: list[str]) -> list[Claim]:
    """Measure all sets."""
    claims = []
    for name in names or SETS:
        data = Documents.of(name)
        for size in (size for size in SIZES if size + 500 <= len(data.texts)):
            found = measure_splits(name, data, size)
            claims += found
            # A run of a quarter of an hour shows how far it is.
            print(
                *(f"{claim.what}: {claim.ours}; {claim.peer}" for claim in found), sep="\n", file=sys.stderr, flush=True
            )
    return claims


def measure_splits(name: str, data: Documents, size: int) -> list[Claim]:
    """Learn from so many documents, again and again, and compare what was promised with what others reach."""
    reached: dict[tuple[float, str], list[tuple[float, float]]] = defaultdict(list)
    for seed in range(SPLITS):
        order = np.random.default_rng(seed).permutation(len(data.texts))
        learned, test = order[:size], order[size : size + MOST_JUDGED]
        train = Training(data.texts.take(learned), data.labels[learned], data.hierarchy, progress=False)
        for way, (model, held) in {"apart": _apart(train), "folds": _folds(train)}.items():
            scores, true = model.score(data.texts.take(test)), data.hierarchy.closure(data.labels[test])
            for coverage in COVERAGES:
                try:
                    rule, _ = promise_coverage(data.hierarchy, train.labels, held.scores, held.labels, coverage)
                except TreelabelError:
                    # Too many true labels have no score at all: a recall that cannot be promised is refused.
                    continue
                batch = Batch(Context(data.hierarchy), true, decide(scores, rule).csr)
                metrics = (hr, set_nodes) if rule.startswith("risk_control") else (set_coverage, set_size)
                share, size_of_set = (_mean(each, batch) for each in metrics)
                reached[coverage, way].append((share, size_of_set))
    unit = "labels" if usual_regime(data.hierarchy, data.labels) == "multi_path" else "leaves"
    what = f"{name}, {size:,} documents"
    return [
        _claim(what, coverage, unit, *(np.array(reached[coverage, way]) for way in ("apart", "folds")))
        for coverage in COVERAGES
    ]


def _mean(measure: Callable[[Batch], Any], batch: Batch) -> float:
    """Return the mean over documents; one without true labels has nothing to miss, and no set to cover."""
    values, is_empty = measure(batch), row_sizes(batch.truth) == 0
    return float(np.mean(np.where(is_empty, 1.0, values) if measure is hr else values[~is_empty]))


def _apart(train: Training) -> tuple[Linear, HeldOut]:
    """Fit as `fit(coverage=...)` does; return the documents that were kept apart."""
    learned, apart = set_apart(train, COVERAGES[-1], 0)
    model = Watched(ngram_range=(1, 1), char_ngram_range=None).fit(
        learned.texts, learned.labels, hierarchy=train.hierarchy, progress=False
    )
    return model, HeldOut(model.score(apart.texts), apart.labels)


def _folds(train: Training) -> tuple[Linear, HeldOut]:
    """Fit to all documents; return those that were scored out of fold."""
    model = Watched(ngram_range=(1, 1), char_ngram_range=None).fit(
        train.texts, train.labels, hierarchy=train.hierarchy, progress=False
    )
    held = documents_to_judge(train.hierarchy, train.labels, model.held_)
    assert held is not None
    return model, held


def _claim(what: str, coverage: float, unit: str, apart: Any, folds: Any) -> Claim:
    told, mean, error = _told(apart, unit)
    kept = bool(mean >= coverage - 3 * error) if len(apart) > 1 else None
    return Claim(f"{what}: {coverage:g}", told, _told(folds, unit)[0], required=f">= {coverage:g}", kept=kept)


def _told(reached: Any, unit: str) -> tuple[str, float, float]:
    """Write what was reached in the splits in which a promise was made."""
    refused = SPLITS - len(reached)
    if len(reached) < 2:
        return f"refused in {refused} splits", 0.0, 0.0
    mean, error = reached[:, 0].mean(), reached[:, 0].std(ddof=1) / np.sqrt(len(reached))
    note = f", refused in {refused}" if refused else ""
    return f"{mean:.3f} ± {error:.3f}, {reached[:, 1].mean():.1f} {unit}{note}", mean, error
