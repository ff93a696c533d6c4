"""Which predictions a new model changes, and why: because labels changed, or because new texts changed its mind."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from treelabel.core.bounded_memory import BLOCK_SCORES
from treelabel.core.errors import shorten
from treelabel.evaluation.comparison import compare_results
from treelabel.evaluation.evaluator import evaluate
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.moves import MOVE_KINDS, Moves
from treelabel.models.base import Model
from treelabel.models.model_inputs import texts_of
from treelabel.models.streaming import decided_batches
from treelabel.rules.decisions import decide
from treelabel.scores.score_matrix import Scores

Why = Literal["path", "renamed", "moved", "merged", "split", "deleted", "new mind"]
# Kinds of moves in the order in which they explain a change where several labels changed; "path" explains least.
BY_WEIGHT = tuple(reversed(MOVE_KINDS))
MEANINGS: dict[str, str] = {
    "path": "the same label, below ancestors that changed",
    "renamed": "the label was renamed",
    "moved": "the label was moved",
    "merged": "the label was merged with others",
    "split": "the label was split",
    "deleted": "the label was deleted",
    "new mind": "the model sees the text differently",
}
SEPARATOR = "; "
# Labels that are named as better, and as worse.
MOST_LABELS = 3


@dataclass(frozen=True)
class PredictionChange:
    """A document whose prediction changes: the paths of the most specific labels before and after, and why.

    `old_p` is the probability of each old label by the old model, `new_p` that of each new one by the new model;
    `expected` are the old labels under the new taxonomy.
    """

    id: str
    text: str
    why: Why
    old: tuple[str, ...]
    old_p: tuple[float, ...]
    expected: tuple[str, ...]
    new: tuple[str, ...]
    new_p: tuple[float, ...]


@dataclass(frozen=True)
class PredictionChanges:
    """The documents whose predictions change, of how many."""

    documents: int
    changes: tuple[PredictionChange, ...]

    def counts(self) -> dict[str, int]:
        """Count the changes by their reason."""
        result = Counter(change.why for change in self.changes)
        return {why: result[why] for why in MEANINGS if result[why]}  # type: ignore[index]

    def summary(self, most: int = 3) -> str:
        """Say how many predictions change, and why, with some examples of each reason.

        Parameters
        ----------
        most
            Examples of a reason at most.

        Returns
        -------
        str
            Lines of text.
        """
        share = f" ({len(self.changes) / self.documents:.1%})" if self.documents else ""
        lines = [f"predictions that change: {len(self.changes):,} of {self.documents:,}{share}"]
        for why, count in self.counts().items():
            lines.append(f"  {count:,} because {MEANINGS[why]}")
            pairs = Counter((change.old, change.new) for change in self.changes if change.why == why)
            for (old, new), times in pairs.most_common(most):
                first = next(each for each in self.changes if (each.why, each.old, each.new) == (why, old, new))
                example = f", such as {_beginning(first.text)}" if first.text else ""
                lines.append(f"    {times:,} x {_describe(old, first.old_p)} -> {_describe(new, first.new_p)}{example}")
        return "\n".join(lines)

    def table(self) -> list[list[str]]:
        """Return a header, and a row per document: id, why, old and new labels with probabilities, and the text."""
        rows = [["id", "why", "old", "old_p", "expected", "new", "new_p", "text"]]
        for change in self.changes:
            old, expected, new = (SEPARATOR.join(part) for part in (change.old, change.expected, change.new))
            p = [SEPARATOR.join(f"{each:.4f}" for each in part) for part in (change.old_p, change.new_p)]
            rows.append([change.id, change.why, old, p[0], expected, new, p[1], change.text])
        return rows


def _beginning(text: str, most: int = 60) -> str:
    line = " ".join(text.split())
    return repr(line if len(line) <= most else f"{line[: most - 3]}...")


def _describe(labels: Sequence[str], p: Sequence[float]) -> str:
    if not labels:
        return "nothing"
    return ", ".join(f"{shorten(label, 60)} ({each:.2f})" for label, each in zip(labels, p, strict=True))


def prediction_changes(old: Model, new: Model, texts: Any, moves: Moves) -> PredictionChanges:
    """Compare what two models predict, each by its own rule.

    Parameters
    ----------
    old, new : Model
        The models.
    texts : Dataset or sequence of str
        Documents; their labels are not looked at.
    moves : Moves
        From the old model's hierarchy to the new one's.

    Returns
    -------
    PredictionChanges
        In the order of the documents.
    """
    column, names = texts_of(texts)
    count = column.shape[0] if hasattr(column, "shape") else len(column)
    step = max(1, BLOCK_SCORES // max(1, len(moves.old), len(moves.new)))
    result: list[PredictionChange] = []
    for start in range(0, count, step):
        part = column[start : start + step]
        ids = [str(start + row) if names is None else names[start + row] for row in range(min(step, count - start))]
        result += _changes_of(old, new, part, ids, moves)
    return PredictionChanges(count, tuple(result))


def _changes_of(old: Model, new: Model, part: Any, ids: list[str], moves: Moves) -> Iterator[PredictionChange]:
    scores = old.score(part), new.score(part)
    before, after = (decide(each, model.default_rule) for each, model in zip(scores, (old, new), strict=True))
    expected = moves.new.most_specific(moves.labels(before.most_specific))
    texts = part if not hasattr(part, "shape") else None
    for row, name in enumerate(ids):
        was, should, now = (
            each.indices[each.indptr[row] : each.indptr[row + 1]].tolist()
            for each in (before.most_specific, expected, after.most_specific)
        )
        kinds = {moves.kinds[node] for node in was}
        # What became of labels that are still called the same is no change.
        if should == now and kinds <= {"same"}:
            continue
        # Of a label that was split, some models predict one of the new ones, others what these have in common.
        is_part = "split" in kinds and now and set(now) <= {target for node in was for target in moves.targets[node]}
        why: Any = next(kind for kind in BY_WEIGHT if kind in kinds) if should == now or is_part else "new mind"
        yield PredictionChange(
            name,
            "" if texts is None else texts[row],
            why,
            *_paths_and_scores(moves.old, scores[0], row, was),
            _paths_and_scores(moves.new, scores[1], row, should)[0],
            *_paths_and_scores(moves.new, scores[1], row, now),
        )


def _paths_and_scores(
    h: Hierarchy, scores: Scores, row: int, nodes: list[int]
) -> tuple[tuple[str, ...], tuple[float, ...]]:
    """Return paths and probabilities of some nodes, the likeliest first."""
    p = {node: float(scores.values[row, node]) for node in nodes}
    ranked = sorted(nodes, key=lambda node: -p[node])
    return tuple(h.paths(ranked)), tuple(p[node] for node in ranked)


def describe_difference(old: Model, new: Model, truth: Any, moves: Moves, resamples: int = 1000) -> str:
    """Say in lines whether a model is better than another on documents with labels, and on which labels.

    Parameters
    ----------
    old, new : Model
        The models, each deciding by its own rule.
    truth : Dataset
        Documents with labels of the new hierarchy.
    moves : Moves
        From the old model's hierarchy to the new one's, by which the old one's predictions are carried over.
    resamples : int
        How often documents are drawn for the interval of the difference.

    Returns
    -------
    str
    """
    before, after = (next(decided_batches(model, [(truth, None)])).decisions.most_specific for model in (old, new))
    results = {
        name: evaluate(truth, decisions=moves.new.closure(sets), hierarchy=moves.new, metrics=["hf1", "micro_f1"])
        for name, sets in (("before", moves.labels(before)), ("after", after))
    }
    table = compare_results(results, ["hf1"], resamples)
    row = table.metrics[0]
    change, p = row.differences[0], row.p_values[0]
    if change.low <= 0 <= change.high:
        verdict = "no better or worse than chance would have it"
    else:
        verdict = "better" if change.difference > 0 else "worse"
    lines = [
        f"on {len(truth):,} documents with labels the new model is {verdict}: hF1 {results['before']['hf1']:.4f} -> "
        f"{results['after']['hf1']:.4f}, difference {change.difference:+.4f} [{change.low:+.4f}, {change.high:+.4f}], "
        f"p = {p:.3g}"
    ]
    f1 = [result.labels.column("f1").to_numpy() for result in results.values()]
    gain = f1[1] - f1[0]
    for what, size in (("better", gain), ("worse", -gain)):
        chosen = [node for node in np.argsort(-size, kind="stable")[:MOST_LABELS].tolist() if size[node] > 0]
        if chosen:
            paths = moves.new.paths(chosen)
            pairs = zip(paths, f1[0][chosen], f1[1][chosen], strict=True)
            lines.append(f"{what} (F1): " + ", ".join(f"{path} {was:.2f} -> {now:.2f}" for path, was, now in pairs))
    return "\n".join(lines)
