"""The formal properties of "Evaluating extreme hierarchical multi-label classification", tested on anybody's metric.

A property says that of two outputs for the same truth one must score strictly higher. Random small situations of that
kind are drawn, the smallest first, and a metric has the property as far as none of them opposes it. Each is tried in
two strengths: *plain*, where the outputs differ in what the property is about and everything else is right, and
*literal*, with everything that its words allow. Two properties are misprinted in the paper and read as their titles
say: property 2 gives one item two labels in a single-label problem (here two items have one each), and property 4
compares c2 with c1 (here with c3).
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from typing import Any, Literal

import numpy as np

from treelabel.core.errors import TreelabelError
from treelabel.evaluation.evaluator import make_context
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.label_ids import encode
from treelabel.metrics.batch import Batch
from treelabel.metrics.registry import find_metric

Strength = Literal["plain", "literal"]
Sets = list[set[str]]
# Takes true and predicted names, a list for each document, and the hierarchy.
MetricFunction = Callable[[list[list[str]], list[list[str]], Hierarchy], float]
# Values that differ by less are equal.
ROUNDING = 1e-12
SIZES = range(1, 7)
# Situations of a size that are kept for the next metric.
MOST_KEPT = 100


@dataclass(frozen=True)
class CounterExample:
    """Two outputs of which the better one does not score higher."""

    paths: list[str]
    truth: list[list[str]]
    better: list[list[str]]
    worse: list[list[str]]
    better_value: float
    worse_value: float

    @property
    def size(self) -> int:
        """How much there is to read: nodes, documents and labels."""
        sets = (*self.truth, *self.better, *self.worse)
        return len(self.paths) + len(self.truth) + sum(map(len, sets))

    def __str__(self) -> str:
        lines = [f"hierarchy: {', '.join(self.paths)}"]
        for number, (true, better, worse) in enumerate(zip(self.truth, self.better, self.worse, strict=True), 1):
            both = [", ".join(labels) or "nothing" for labels in (better, worse)]
            predicted = both[0] if better == worse else f"{both[0]} is better than {both[1]}"
            lines.append(f"document {number}: true {', '.join(true) or 'nothing'}; predicted {predicted}")
        lines.append(f"but the better output has {self.better_value:.6g}, the other {self.worse_value:.6g}")
        return "\n".join(lines)


@dataclass(frozen=True)
class PropertyCheck:
    """Whether a metric has a property, plainly and literally (None: it is not defined there), and a counter-example."""

    name: str
    meaning: str
    plain: bool | None
    literal: bool | None
    counter_example: CounterExample | None

    @property
    def verdict(self) -> str:
        """The outcome in words."""
        if self.plain is None:
            return "not defined"
        example = self.counter_example
        if example is not None and (math.isnan(example.better_value) or math.isnan(example.worse_value)):
            return "fails: a value is not a number"
        return "holds" if self.literal else "holds where all else is right" if self.plain else "fails"


@dataclass(frozen=True)
class MetricCheck:
    """The properties of a metric, as `check_metric` found them; `str` shows each with its counter-example."""

    metric: str
    situations: int
    properties: tuple[PropertyCheck, ...]

    def __getitem__(self, name: str) -> PropertyCheck:
        return next(each for each in self.properties if each.name == name)

    def __str__(self) -> str:
        lines = [f"{self.metric}: properties, tried on up to {self.situations:,} random situations each"]
        for each in self.properties:
            lines += ["", f"{each.name}: {each.verdict}", f"  {each.meaning}"]
            if each.counter_example is not None:
                lines += [f"    {line}" for line in str(each.counter_example).splitlines()]
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON values; what is not defined is None."""
        rows = [asdict(each) | {"verdict": each.verdict} for each in self.properties]
        for row in rows:
            example = row["counter_example"] or {}
            # JSON has no way to write that a value is not a number.
            for name in {"better_value", "worse_value"} & example.keys():
                example[name] = example[name] if math.isfinite(example[name]) else None
        return {"metric": self.metric, "situations": self.situations, "properties": rows}


@dataclass(frozen=True)
class Outputs:
    """A truth and two outputs for it, one of which must score higher."""

    hierarchy: Hierarchy
    truth: Sets
    better: Sets
    worse: Sets

    @property
    def predicted(self) -> tuple[Sets, Sets]:
        """Both outputs, the better one first."""
        return self.better, self.worse

    @cached_property
    def batches(self) -> tuple[Batch, Batch]:
        """Both outputs beside the truth, as metrics take them, the better one first."""
        h = self.hierarchy
        truth, better, worse = (encode(h, _sorted_sets(sets)) for sets in (self.truth, *self.predicted))
        context = make_context(h, None, None, truth)
        return Batch(context, truth, better), Batch(context, truth, worse)


def check_metric(
    metric: str | MetricFunction, higher_is_better: bool = True, tries: int = 600, seed: int = 0
) -> MetricCheck:
    """Test a metric for the formal properties of the extreme-evaluation paper by random search.

    Parameters
    ----------
    metric : str or callable
        A metric of decisions in METRICS, with its settings, such as "samples_f1(sets=given)"; or a function of the true
        names, the predicted names (a list for each document) and the Hierarchy that returns a number.
    higher_is_better : bool
        Whether higher values of the function are better; METRICS know it of theirs.
    tries : int
        How many situations to draw for each property and strength.
    seed : int
        Draws the same situations again.

    Returns
    -------
    MetricCheck
        What holds in all situations drawn is not proven; what fails comes with the smallest example drawn. With up to
        600 tries, situations are kept for the next metric (100 MB).

    >>> check = check_metric(lambda truth, decisions, hierarchy: float(truth == decisions), tries=60)
    >>> [(each.name, each.verdict) for each in check.properties][3:]  # doctest: +NORMALIZE_WHITESPACE
    [('hierarchical proximity', 'fails'), ('multi-label monotonicity', 'fails'), ('label vs. item quantity', 'fails')]
    """
    if not isinstance(seed, int) or seed < 0:
        raise TreelabelError(f"seed = {seed}, expected a whole number from 0 on")
    if not isinstance(tries, int) or tries < len(SIZES):
        raise TreelabelError(f"tries = {tries}, expected at least {len(SIZES)}")
    name, values = _values_function(metric, higher_is_better)
    checks = []
    for property_name, (meaning, draw) in PROPERTIES.items():
        found = {strength: _search(values, draw, strength, tries, seed) for strength in STRENGTHS}
        example = next((example for _, example in found.values() if example is not None), None)
        checks.append(PropertyCheck(property_name, meaning, found["plain"][0], found["literal"][0], example))
    return MetricCheck(name, tries, tuple(checks))


def _values_function(metric: str | MetricFunction, higher_is_better: bool) -> tuple[str, "OutputValues"]:
    """Return the name of a metric, and the values of both outputs by it, higher being better."""
    if not isinstance(metric, str):
        if not callable(metric):
            raise TreelabelError(f"expected the name of a metric or a function, found {metric!r}")
        function, sign, name = metric, 1 if higher_is_better else -1, getattr(metric, "__name__", "metric")
        return name, lambda outputs: [sign * _call(function, name, outputs, each) for each in outputs.predicted]
    row = find_metric(metric)
    if "decisions" not in row.needs:
        raise TreelabelError(f"{row.name} is a metric of scores; the properties are those of metrics of decisions")

    def values(outputs: Outputs) -> list[float]:
        results = [row.compute(batch) for batch in outputs.batches]
        numbers = [result["mean"] if isinstance(result, dict) else result for result in results]
        return numbers if row.higher_is_better else [-number for number in numbers]

    return row.name, values


def _call(metric: MetricFunction, name: str, outputs: "Outputs", predicted: Sets) -> float:
    """Call a metric of the user's, and say on what it failed."""
    truth, decisions = _sorted_sets(outputs.truth), _sorted_sets(predicted)
    where = f"{name} of truth {truth} and decisions {decisions}"
    try:
        value: Any = metric(truth, decisions, outputs.hierarchy)
    except Exception as error:
        raise TreelabelError(f"{where} failed: {type(error).__name__}: {error}") from error
    if isinstance(value, np.ndarray) and value.ndim:
        raise TreelabelError(f"{where}: expected a number, found an array of shape {value.shape}")
    if not np.isrealobj(value) or not isinstance(value, int | float | np.number | np.ndarray | np.bool_):
        raise TreelabelError(f"{where}: expected a number, found {value!r}")
    return float(value)


def _sorted_sets(sets: Sets) -> list[list[str]]:
    return [sorted(labels) for labels in sets]


OutputValues = Callable[[Outputs], list[float]]


def _search(
    values: OutputValues, draw: "Draw", strength: Strength, tries: int, seed: int
) -> tuple[bool | None, CounterExample | None]:
    """Look for the smallest situation that speaks against a property: whether there is none, and what it is."""
    for size in SIZES:
        examples = []
        for outputs in _situations(draw, strength, tries // len(SIZES), seed, size):
            try:
                better, worse = values(outputs)
            except TreelabelError as error:
                if "compares single labels" not in str(error):
                    raise
                return None, None
            if not better > worse + ROUNDING * max(1.0, abs(worse)):
                truth, one, two = (_sorted_sets(each) for each in (outputs.truth, outputs.better, outputs.worse))
                paths = outputs.hierarchy.paths(outputs.hierarchy.leaves)
                examples.append(CounterExample(paths, truth, one, two, better, worse))
        if examples:
            return False, min(examples, key=lambda example: (example.size, str(example)))
    return True, None


# Situations


def _situations(draw: "Draw", strength: Strength, count: int, seed: int, size: int) -> Iterable[Outputs]:
    """Draw situations of a size; up to as many as are usual, once for all metrics."""
    return (_keep_situations if count <= MOST_KEPT else _draw_situations)(draw, strength, count, seed, size)


def _draw_situations(draw: "Draw", strength: Strength, count: int, seed: int, size: int) -> Iterator[Outputs]:
    rng = np.random.default_rng([seed, size])
    return (draw(rng, strength, size) for _ in range(count))


@lru_cache(maxsize=128)
def _keep_situations(draw: "Draw", strength: Strength, count: int, seed: int, size: int) -> list[Outputs]:
    return list(_draw_situations(draw, strength, count, seed, size))


Draw = Callable[[np.random.Generator, Strength, int], Outputs]
STRENGTHS: tuple[Strength, ...] = ("plain", "literal")


def _names(count: int) -> list[str]:
    return [chr(ord("A") + number) for number in range(count)]


def _single_labels(rng: np.random.Generator, size: int, least: int = 2) -> tuple[Hierarchy, Sets]:
    """Draw single labels of a flat hierarchy. Every label occurs, and none in all documents: it would tell nothing."""
    names = _names(max(least, min(2 + size // 2, 4)))
    extra = rng.integers(0, len(names), int(rng.integers(0, size + 1)))
    return Hierarchy.flat(names), [{name} for name in (*names, *(names[number] for number in extra))]


def _others(
    rng: np.random.Generator, strength: Strength, truth: Sets, names: Sequence[str], but: Sequence[int]
) -> Sets:
    """Draw one output for the documents that a property does not speak about, and nothing for the others."""
    kinds = rng.integers(0, 3, len(truth)) if strength == "literal" else np.zeros(len(truth), np.int64)
    output: Sets = []
    for number, labels in enumerate(truth):
        guess = {str(rng.choice(names))}
        output.append(set() if number in but else [set(labels), guess, set[str]()][kinds[number]])
    return output


def _with(output: Sets, *assignments: tuple[int, str]) -> Sets:
    """Add labels to documents of an output."""
    added = [set(labels) for labels in output]
    for number, label in assignments:
        added[number].add(label)
    return added


def draw_strict_monotonicity(rng: np.random.Generator, strength: Strength, size: int) -> Outputs:
    """Draw flat single labels: a document that had no label gets the right one."""
    h, truth = _single_labels(rng, size)
    number = int(rng.integers(len(truth)))
    output = _others(rng, strength, truth, h.names, [number])
    return Outputs(h, truth, _with(output, (number, min(truth[number]))), output)


def _rare_and_frequent(rng: np.random.Generator, size: int) -> tuple[Hierarchy, Sets, str, str]:
    """Draw flat single labels of which two differ in frequency, the rarer one first."""
    h, truth = _single_labels(rng, size, least=3)
    counts = {name: truth.count({name}) for name in h.names}
    if len(set(counts.values())) == 1:
        truth.append({str(rng.choice(h.names))})
        counts = {name: truth.count({name}) for name in h.names}
    pairs = [(one, two) for one in h.names for two in h.names if counts[one] < counts[two]]
    return h, truth, *pairs[int(rng.integers(len(pairs)))]


def draw_true_specificity(rng: np.random.Generator, strength: Strength, size: int) -> Outputs:
    """Draw flat single labels: one of two documents gets its label, better the one whose label is rarer."""
    h, truth, rare, frequent = _rare_and_frequent(rng, size)
    one, two = truth.index({rare}), truth.index({frequent})
    output = _others(rng, strength, truth, h.names, [one, two])
    return Outputs(h, truth, _with(output, (one, rare)), _with(output, (two, frequent)))


def draw_wrong_specificity(rng: np.random.Generator, strength: Strength, size: int) -> Outputs:
    """Draw flat single labels: a document of another label, or of none, gets a wrong one, better the frequent one."""
    h, truth, rare, frequent = _rare_and_frequent(rng, size)
    truth = [*truth, set[str]()]
    numbers = [number for number, labels in enumerate(truth) if not labels & {rare, frequent}]
    number = int(rng.choice(numbers))
    output = _others(rng, strength, truth, h.names, [number])
    return Outputs(h, truth, _with(output, (number, frequent)), _with(output, (number, rare)))


def draw_proximity(rng: np.random.Generator, strength: Strength, size: int) -> Outputs:
    """Draw single labels of a tree: of two wrong leaves the better one meets the truth at a deeper node.

    All leaves have two documents, and every inner node one, so that frequencies fall on the way down. In the plain
    strength the two wrong leaves are equally deep.
    """
    while True:
        nodes = 3 + 2 * size + int(rng.integers(0, 3))
        # Long branches put a leaf far away from where it meets another.
        chained = 0.8 if strength == "literal" and rng.random() < 0.5 else 0.0
        drawn = (node - 1 if rng.random() < chained else int(rng.integers(-1, node)) for node in range(2, nodes))
        parents = [-1, -1, *drawn]
        paths: list[tuple[str, ...]] = []
        for node, parent in enumerate(parents):
            paths.append((*(paths[parent] if parent >= 0 else ()), _names(nodes)[node]))
        h = Hierarchy.from_paths(paths)
        triples = list(_triples(h, same_depth=strength == "plain"))
        if triples:
            break
    right, near, far = (h.names[node] for node in triples[int(rng.integers(len(triples)))])
    truth: Sets = [{h.names[node]} for node in range(len(h)) for _ in range(2 if h.is_leaf[node] else 1)]
    number = truth.index({right})
    output = _others(rng, "plain", truth, h.names, [number])
    return Outputs(h, truth, _with(output, (number, near)), _with(output, (number, far)))


def _triples(h: Hierarchy, same_depth: bool) -> Iterator[tuple[int, int, int]]:
    """Find all leaves x, y, z such that x and y meet below where x and z meet."""
    leaves = h.leaves.tolist()
    for one in leaves:
        met = {other: int(h.lowest_common_ancestor([one], [other])[0]) for other in leaves if other != one}
        for near, low in met.items():
            for far, high in met.items():
                below = low >= 0 and low != high and (high < 0 or bool(h.is_ancestor([high], [low])[0]))
                if below and not (same_depth and h.depth[near] != h.depth[far]):
                    yield one, near, far


def _any_labels(rng: np.random.Generator, names: Sequence[str], chance: float = 0.4) -> set[str]:
    return {name for name in names if rng.random() < chance}


def draw_multi_label_monotonicity(rng: np.random.Generator, strength: Strength, size: int) -> Outputs:
    """Draw flat labels, several of a document: one gets one more right label, perhaps beside wrong ones (literal)."""
    names = _names(max(2, min(1 + size, 4)))
    truth: Sets = [_any_labels(rng, names) for _ in range(size)]
    number = int(rng.integers(size))
    hit = str(rng.choice(names))
    truth[number].add(hit)
    # A label of all documents would tell nothing.
    truth.append(set())
    output = [set(labels) for labels in truth]
    output[number] = {label for label in truth[number] - {hit} if rng.random() < 0.5}
    if strength == "literal":
        output = [_any_labels(rng, names) for _ in truth]
        output[number] -= {hit}
    return Outputs(Hierarchy.flat(names), truth, _with(output, (number, hit)), output)


def draw_label_or_item(rng: np.random.Generator, strength: Strength, size: int) -> Outputs:
    """Draw flat labels, several of a document: n hits in n documents are better than the same n labels in one.

    In the plain strength the n documents have no other label.
    """
    count = 2 if size < 4 else 3
    names = _names(count + min(size, 3))
    hits = names[:count]
    chance = float(rng.choice([0.3, 0.9])) if strength == "literal" else 0.0
    further = [_any_labels(rng, names, chance) for _ in hits]
    truth: Sets = [{label} | more for label, more in zip(hits, further, strict=True)]
    truth += [{*hits, *_any_labels(rng, names, 0.2)}, set(), *(_any_labels(rng, names) for _ in range(size - 1))]
    output = _others(rng, strength, truth, names, range(count + 1))
    several = _with(output, *enumerate(hits))
    return Outputs(Hierarchy.flat(names), truth, several, _with(output, *((count, label) for label in hits)))


PROPERTIES: dict[str, tuple[str, Draw]] = {
    "strict monotonicity": ("a right label is better than none", draw_strict_monotonicity),
    "true category specificity": ("a hit of a rare label is worth more", draw_true_specificity),
    "wrong category specificity": ("a wrong label that is rare costs more", draw_wrong_specificity),
    "hierarchical proximity": ("a wrong label nearer to the true one is better", draw_proximity),
    "multi-label monotonicity": ("one more right label is better", draw_multi_label_monotonicity),
    "label vs. item quantity": ("hits in several documents are worth more than in one", draw_label_or_item),
}
