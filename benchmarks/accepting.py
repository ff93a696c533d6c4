"""Whether what `review` and `back_off(precision=)` promise holds: how often they accept and miss the precision.

    python benchmarks/accepting.py            # two minutes; exits with 1 if a promise is broken

Held-out documents are drawn 1,000 times from worlds whose precision above every threshold is known: probabilities that
are right ("calibrated"), too large ("overconfident": p right in p ** 1.5), and of no use ("flat": 94.5% are right
however sure one is, where 95% is asked for). Printed are the share of draws that accept anything, the share that accept
and are less precise than asked for, at most 10% (the stated error level), and the mean share of documents accepted.
`pointwise` takes the lowest threshold with a Clopper-Pearson bound of its own, as it was before. The same for
`back_off` on a tree of three levels with calibrated leaves, 100 draws, judged on 20,000 other documents.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy import special

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.measure import Claim, report

from treelabel import Hierarchy, Scores, TreelabelError
from treelabel.core.types import BoolArray, DoubleArray
from treelabel.models.profile import Profile
from treelabel.operations.review import CONFIDENCE, find_acceptance
from treelabel.rules.back_off import LeafPaths, precise_thresholds

DRAWS, TREES = 1000, 100
SIZES = (200, 1000)
WORLDS: dict[str, Callable[[DoubleArray], Any]] = {
    "calibrated": lambda p: p,
    "overconfident": lambda p: p**1.5,
    "flat": lambda p: np.full(len(p), 0.945),
}


def pointwise(sure: DoubleArray, right: BoolArray, precision: float) -> float:
    """Return the lowest threshold whose own bound is high enough."""
    order = np.argsort(-sure)
    hits, tries = np.cumsum(right[order]), np.arange(1, len(sure) + 1)
    bounds = np.where(hits > 0, special.betaincinv(np.maximum(hits, 1), tries - hits + 1, 1 - CONFIDENCE), 0.0)
    enough = np.flatnonzero(bounds >= precision)
    return float(sure[order][enough[-1]]) if len(enough) else 2.0


def uniform(sure: DoubleArray, right: BoolArray, precision: float) -> float:
    """Return the threshold of `review`."""
    profile = Profile(len(sure), confidences=sure.astype(np.float32), correct=right, complete=right)
    return find_acceptance(sure, precision, profile).threshold


def accepting(world: str, size: int, precision: float = 0.95) -> list[Claim]:
    """Draw held-out documents again and again."""
    rng = np.random.default_rng(1)
    many = np.sort(rng.beta(2, 0.3, 1_000_000))[::-1]
    true = np.cumsum(WORLDS[world](many)) / np.arange(1, len(many) + 1)
    found: dict[str, list[tuple[bool, bool, float]]] = {"pointwise": [], "review": []}
    for _ in range(DRAWS):
        sure = rng.beta(2, 0.3, size)
        right = rng.random(size) < WORLDS[world](sure)
        for name, threshold in (("pointwise", pointwise), ("review", uniform)):
            count = int(np.searchsorted(-many, -threshold(sure, right, precision), "right"))
            is_wrong = count > 0 and true[count - 1] < precision
            found[name].append((count > 0, bool(is_wrong), count / len(many)))
    claims = []
    for name, rows in found.items():
        accepts, misses, share = np.mean(rows, axis=0)
        told = f"misses {misses:.3f}, accepts {accepts:.2f}, {share:.2f} of documents"
        kept = None if name == "pointwise" else bool(misses <= most_misses(DRAWS))
        claims.append(Claim(f"{name}, {world}, {size:,} held out", told, required="<= 0.1", kept=kept))
    return claims


def most_misses(draws: int) -> float:
    """Return the stated error level, and two standard errors of a share of draws."""
    level = 1 - CONFIDENCE
    return level + 2 * float(np.sqrt(level * (1 - level) / draws))


def drawn(rng: np.random.Generator, documents: int) -> LeafPaths:
    """Draw calibrated scores of a tree, and what is true."""
    h = Hierarchy.from_paths(
        [f"{top} > {top}{mid} > {top}{mid}{leaf}" for top in "ABC" for mid in "xy" for leaf in "12"]
    )
    leaves = rng.dirichlet(np.full(len(h.leaves), 0.03), documents)
    at = (rng.random((documents, 1)) < np.cumsum(leaves, axis=1)).argmax(axis=1)
    return LeafPaths.of(Scores.from_leaves(h, h.leaves, leaves), h.closure(np.eye(len(h))[h.leaves[at]]))


def backing_off(size: int, precision: float = 0.95) -> Claim:
    """Draw validation documents again and again."""
    rng = np.random.default_rng(2)
    others, misses, leaves = drawn(rng, 20_000), 0, []
    for _ in range(TREES):
        try:
            right, is_leaf, _ = others.outcomes(precise_thresholds(drawn(rng, size), precision))
        except TreelabelError:
            leaves.append(0.0)
            continue
        misses += bool(right.mean() < precision)
        leaves.append(is_leaf.sum() / others.documents)
    told = f"misses {misses / TREES:.3f}, leaves for {np.mean(leaves):.2f} of documents"
    kept = misses / TREES <= most_misses(TREES)
    return Claim(f"back_off, {size:,} validation documents", told, required="<= 0.1", kept=kept)


def main() -> int:
    """Measure all."""
    claims = [claim for world in WORLDS for size in SIZES for claim in accepting(world, size)]
    claims += [backing_off(size) for size in (500, 1000)]
    return 0 if report("Promised precision: the share of draws that miss it", claims) else 1


if __name__ == "__main__":
    sys.exit(main())
