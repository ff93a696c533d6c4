"""Table 1 of "Evaluating extreme hierarchical multi-label classification": which metric has which formal property.

    python specs/programs/metric_properties.py [OUTPUT]

A property says that of two outputs for the same gold standard one must score strictly higher. Here it is a function
that makes such pairs of outputs, some chosen and some random. A metric has the property if it prefers the right one
in all of them; distances and losses are negated first. Every property comes in two strengths:

- plain: the outputs differ in what the property speaks about, and everything else is right or alike;
- literal: everything that the words of the property allow, in particular any other output for the other items.

Where a metric does not do what the table says, the cell stands in DEVIATIONS with the reason. Two properties are
misprinted and read as their titles say: property 2 gives one item two labels in a single-label problem (here: two
items with one each), and property 4 compares c_2 with c_1 (here: with c_3).

As in the paper, flat metrics take the sets as given, HF counts the root (footnote 1), PROP-F has an empty class, two
empty sets agree completely, and frequencies are those of the gold standard. OUTPUT gets 1 or 0 for "METRIC/PROPERTY"
(plain) and "METRIC, literally/PROPERTY".
"""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from specs.programs.paper_metrics import PAPER_METRICS, Judge, Judged, Metric, flat_labels

from treelabel import Hierarchy, TreelabelError
from treelabel.hierarchy.label_matrices import LabelMatrix, from_sizes
from treelabel.metrics import single_label

Strength = Literal["plain", "literal"]
# Labels by item.
Sets = list[set[int]]

METRICS: dict[str, Metric] = {
    **PAPER_METRICS,
    # An item without a predicted label counts as predicted at the root: no other value is defined.
    "Leacock-Chodorow": lambda judged: float(single_label.leacock_chodorow(judged.tree).mean()),
    "Wu-Palmer": lambda judged: float(single_label.wu_palmer(judged.tree).mean()),
    "Resnik": lambda judged: float(single_label.resnik(judged.tree).mean()),
    "Jiang-Conrath": lambda judged: -float(single_label.jiang_conrath(judged.tree).mean()),
    "Lin": lambda judged: float(single_label.lin(judged.tree).mean()),
}

PROPERTY_NAMES = (
    "strict monotonicity",
    "true category specificity",
    "wrong category specificity",
    "hierarchical proximity",
    "multi-label monotonicity",
    "label vs. item quantity",
)
# Table 1 as printed; x: the metric has the property.
TABLE = {
    "LB-ACC": "x---x-",
    "LB-F": "xxx-x-",
    "EB-JACC": "x---xx",
    "EB-HAMM": "x---x-",
    "EB-SUBACC": "x----x",
    "EB-F": "x---xx",
    "PROP-F": "xxx-xx",
    "HF": "x--xxx",
    "Leacock-Chodorow": "x--x--",
    "Wu-Palmer": "x--x--",
    "Resnik": "xx-x--",
    "Jiang-Conrath": "xxxx--",
    "Lin": "xxxx--",
    "ICM": "xxxxx-",
}

LIN = (
    "In a flat structure the common ancestor of two labels is the root, with ic 0, so Lin is 1 for a hit and 0 for "
    "anything else: accuracy, whatever the frequencies. The paper has a check mark; no reading of the property or of "
    "Lin's formula gives one."
)
ALREADY_FOUND = (
    "F1 of a label depends on how well its other items are treated: the second hit of two for a rare label brings 1/3, "
    "the first of three for a more frequent one 1/2; and where nothing of a label is found, nothing can lower its F1. "
    "The paper argues with recall ('via the recall component'), where a hit brings 1/N_c in any case. With "
    "everything else right F1 does as recall does."
)
DEPTHS = (
    "The property says nothing about how deep the predicted categories lie, but the metric counts nodes: a wrong "
    "category far below a near common ancestor can be further away than a shallow one of another branch. With "
    "categories of the same depth it has the property. Metrics of information do not care, as equal probability "
    "fixes ic."
)
LONG_ITEMS = (
    "The property allows items 1 to n to have further labels that are missing. A hit there counts little (or, for "
    "subset accuracy, nothing), while the n hits in item i may be all that it lacks. If items 1 to n have one label "
    "each the metric has the property."
)
# (metric, property): why it is not as in the table. Nothing deviates but for a reason named here.
DEVIATIONS: dict[Strength, dict[tuple[str, str], str]] = {
    "plain": {
        ("Lin", "true category specificity"): LIN,
        ("Lin", "wrong category specificity"): LIN,
    },
    "literal": {
        ("Lin", "true category specificity"): LIN,
        ("Lin", "wrong category specificity"): LIN,
        ("LB-F", "true category specificity"): ALREADY_FOUND,
        ("LB-F", "wrong category specificity"): ALREADY_FOUND,
        ("HF", "hierarchical proximity"): DEPTHS,
        ("Leacock-Chodorow", "hierarchical proximity"): DEPTHS,
        ("Wu-Palmer", "hierarchical proximity"): DEPTHS,
        ("EB-JACC", "label vs. item quantity"): LONG_ITEMS,
        ("EB-SUBACC", "label vs. item quantity"): LONG_ITEMS,
        ("EB-F", "label vs. item quantity"): LONG_ITEMS,
        ("PROP-F", "label vs. item quantity"): LONG_ITEMS,
        ("HF", "label vs. item quantity"): LONG_ITEMS,
    },
}


class Situation(NamedTuple):
    """Two outputs for one gold standard; a metric with the property scores `better` higher than `worse`."""

    better: Judged
    worse: Judged


def situation(hierarchy: Hierarchy, truth: Sets, better: Sets, worse: Sets) -> Situation:
    """Judge two outputs for a gold standard."""
    judge = Judge(hierarchy, matrix(truth, len(hierarchy)))
    return Situation(judge(matrix(better, len(hierarchy))), judge(matrix(worse, len(hierarchy))))


def matrix(sets: Sets, columns: int) -> LabelMatrix:
    """Put sets of labels into a label matrix."""
    nodes = [node for labels in sets for node in sorted(labels)]
    return from_sizes(np.array(nodes, np.int32), np.array([len(labels) for labels in sets]), columns)


def with_labels(sets: Sets, *assignments: tuple[int, int]) -> Sets:
    """Add (item, category) assignments."""
    added = [set(labels) for labels in sets]
    for item, category in assignments:
        added[item].add(category)
    return added


def others_right(truth: Sets, *but: int) -> Sets:
    """An output that is right, but empty for some items."""
    return [set() if item in but else set(labels) for item, labels in enumerate(truth)]


def others_any(rng: np.random.Generator, truth: Sets, categories: int, *but: int) -> Sets:
    """An output with one label, right or wrong, or none for every item, and none for some items."""
    output: Sets = []
    for item, labels in enumerate(truth):
        kind = rng.integers(3)
        some = labels if kind == 0 else {int(rng.integers(categories))} if kind == 1 else set()
        output.append(set() if item in but else set(some))
    return output


def of_counts(counts: Sequence[int]) -> Sets:
    """Single labels: as many items of each category as counts say."""
    return [{category} for category, count in enumerate(counts) for _ in range(count)]


def rest(rng: np.random.Generator, strength: Strength, truth: Sets, categories: int, *but: int) -> Iterator[Sets]:
    """What the output may be for the items that a property does not speak about."""
    yield others_right(truth, *but)
    if strength == "literal":
        yield [set() for _ in truth]
        yield from (others_any(rng, truth, categories, *but) for _ in range(6))


# Category frequencies; the first category is the rarest, the last one the most frequent. No category has all items, as
# it would carry no information, and none has none (see test_a_category_that_never_occurs).
COUNTS = ((1, 2, 3), (2, 3, 3), (1, 1, 4), (1, 2, 2, 5), (2, 4, 8), (3, 4, 2, 1))


def strict_monotonicity(strength: Strength, rng: np.random.Generator) -> Iterator[Situation]:
    """1: flat, single labels; an item that had no label gets the right one."""
    for counts in COUNTS:
        truth, h = of_counts(counts), flat_labels(len(counts))
        for item in (0, len(truth) - 1):
            for output in rest(rng, strength, truth, len(h), item):
                yield situation(h, truth, with_labels(output, (item, min(truth[item]))), output)


def true_specificity(strength: Strength, rng: np.random.Generator) -> Iterator[Situation]:
    """2: flat, single labels; one of two items gets its label, better the one whose label is rarer."""
    for counts in COUNTS:
        truth, h = of_counts(counts), flat_labels(len(counts))
        rare, frequent = int(np.argmin(counts)), int(np.argmax(counts))
        one, two = truth.index({rare}), truth.index({frequent})
        for output in rest(rng, strength, truth, len(h), one, two):
            yield situation(h, truth, with_labels(output, (one, rare)), with_labels(output, (two, frequent)))


def wrong_specificity(strength: Strength, rng: np.random.Generator) -> Iterator[Situation]:
    """3: flat, single labels; an item gets a wrong label, better the more frequent one. It may have no right one."""
    for counts in COUNTS:
        truth, h = [*of_counts(counts), set[int]()], flat_labels(len(counts))
        rare, frequent = int(np.argmin(counts)), int(np.argmax(counts))
        other = next(category for category in range(len(counts)) if category not in (rare, frequent))
        for item in (truth.index({other}), len(truth) - 1):
            for output in rest(rng, strength, truth, len(h), item):
                yield situation(h, truth, with_labels(output, (item, frequent)), with_labels(output, (item, rare)))


def proximity(strength: Strength, rng: np.random.Generator) -> Iterator[Situation]:
    """4: single labels in a tree; of two wrong categories the better one has a deeper common ancestor with the truth.

    All three categories are leaves with the same number of items. Every inner node has an item of its own, so that
    probabilities fall strictly on the way down, and there are two top nodes at least, so that none is certain.
    """
    binary = [-1, -1, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    ternary = [-1, -1, -1, 0, 0, 0, 1, 1, 1, 2, 2, 2]
    trees = [binary, ternary]
    if strength == "literal":
        # Node 0 is above two leaves, one of them at the end of a long branch; node 1 is a top leaf.
        trees.append([-1, -1, 0, 0, 3, 4, 5, 6, 7, 8, 9])
        trees += [[-1, -1, *(int(rng.integers(-1, node)) for node in range(2, 12))] for _ in range(6)]
    for parents in trees:
        h = tree(parents)
        truth: Sets = [{node} for node in range(len(h)) for _ in range(2 if h.is_leaf[node] else 1)]
        for right, near, far in triples(h, same_depth=strength == "plain"):
            item = truth.index({right})
            output = others_right(truth, item)
            yield situation(h, truth, with_labels(output, (item, near)), with_labels(output, (item, far)))


def tree(parents: Sequence[int]) -> Hierarchy:
    """Make a tree of parents (-1: top)."""
    paths: list[tuple[str, ...]] = []
    for node, parent in enumerate(parents):
        paths.append((*(paths[parent] if parent >= 0 else ()), f"{node:02d}"))
    return Hierarchy.from_paths(paths)


def triples(h: Hierarchy, same_depth: bool) -> Iterator[tuple[int, int, int]]:
    """All leaves c1, c2, c3 where lso(c1, c2) lies below lso(c1, c3)."""
    leaves = h.leaves.tolist()
    met = {(a, b): int(h.lowest_common_ancestor([a], [b])[0]) for a in leaves for b in leaves}
    for one in leaves:
        for near in leaves:
            for far in leaves:
                if len({one, near, far}) < 3 or (same_depth and len({int(h.depth[x]) for x in (near, far)}) > 1):
                    continue
                low, high = met[one, near], met[one, far]
                if low >= 0 and low != high and (high < 0 or h.is_ancestor([high], [low])[0]):
                    yield one, near, far


def multi_label_monotonicity(strength: Strength, rng: np.random.Generator) -> Iterator[Situation]:
    """5: flat, several labels; an item gets one more right label. It may have wrong ones (literal)."""
    h = flat_labels(5)
    for _ in range(12):
        truth: Sets = [{0, 1, 2}, {3}, {4}, *(random_set(rng, 5) for _ in range(5)), set()]
        item = int(rng.choice([at for at, labels in enumerate(truth) if labels]))
        hit = int(rng.choice(sorted(truth[item])))
        output = others_right(truth, item)
        output[item] = {label for label in truth[item] - {hit} if rng.random() < 0.5}
        if strength == "literal":
            output = [random_set(rng, 5) for _ in truth]
            output[item] -= {hit}
        yield situation(h, truth, with_labels(output, (item, hit)), output)
    truth = [{0, 1, 2}, {3}, {4}, {0}]
    output = others_right(truth, 0)
    yield situation(h, truth, with_labels(output, (0, 1)), output)


def random_set(rng: np.random.Generator, categories: int) -> set[int]:
    """Draw each category with a chance of 0.4."""
    return {label for label in range(categories) if rng.random() < 0.4}


def label_or_item(strength: Strength, rng: np.random.Generator) -> Iterator[Situation]:
    """6: flat, several labels; n hits in n items are better than the same n labels in one item."""
    categories = 6
    h = flat_labels(categories)
    for n in (2, 3):
        for further in (0, 1, 2):
            for long in (False, True) if strength == "literal" else (False,):
                hits = list(range(n))
                more = set(range(categories)) if long else set()
                truth: Sets = [{label} | more for label in hits]
                truth += [{*hits, *range(n, n + further)}, {4}, {5}, {5}, set()]
                output = others_right(truth, *range(n + 1))
                several = with_labels(output, *((at, label) for at, label in enumerate(hits)))
                yield situation(h, truth, several, with_labels(output, *((n, label) for label in hits)))
    if strength == "literal":
        for _ in range(6):
            truth = [random_set(rng, categories) for _ in range(6)]
            output = [random_set(rng, categories) for _ in truth]
            for item, label in ((0, 0), (1, 1), (2, 0), (2, 1)):
                truth[item].add(label)
                output[item] -= {label}
            yield situation(h, truth, with_labels(output, (0, 0), (1, 1)), with_labels(output, (2, 0), (2, 1)))


Property = Callable[[Strength, np.random.Generator], Iterator[Situation]]
PROPERTIES: dict[str, Property] = dict(
    zip(
        PROPERTY_NAMES,
        (
            strict_monotonicity,
            true_specificity,
            wrong_specificity,
            proximity,
            multi_label_monotonicity,
            label_or_item,
        ),
        strict=True,
    )
)


@cache
def situations(name: str, strength: Strength) -> list[Situation]:
    """All situations of a property, the same for every metric."""
    return list(PROPERTIES[name](strength, np.random.default_rng(0)))


def has_property(metric: Metric, name: str, strength: Strength) -> bool:
    """Tell whether a metric prefers the better output in all situations; not if it is not defined for them."""
    try:
        return all(metric(better) > metric(worse) + 1e-12 for better, worse in situations(name, strength))
    except TreelabelError as error:
        if "compares single labels" not in str(error):
            raise
        return False


def main() -> None:
    """Try all properties of all metrics; print the table and what differs from the published one."""
    values: dict[str, float] = {}
    strengths: dict[Strength, str] = {"plain": "", "literal": ", literally"}
    for strength, behind in strengths.items():
        for metric in TABLE:
            found = [has_property(METRICS[metric], name, strength) for name in PROPERTY_NAMES]
            values |= {f"{metric}{behind}/{name}": float(has) for name, has in zip(PROPERTY_NAMES, found, strict=True)}
            print(f"{metric + behind:<28}" + "".join("x" if has else "-" for has in found) + f"  {TABLE[metric]}")
        for (metric, name), reason in DEVIATIONS[strength].items():
            print(f"{metric}{behind}, {name}: {reason}")
    values["differing from table 1/plain"] = sum(
        values[f"{metric}/{name}"] != (TABLE[metric][at] == "x")
        for metric in TABLE
        for at, name in enumerate(PROPERTY_NAMES)
    )
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(json.dumps({"values": values}, indent=2))


if __name__ == "__main__":
    main()
