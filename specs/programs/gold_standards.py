"""Gold standards of section 6 of "Evaluating extreme hierarchical multi-label classification", and how they are spoilt.

Each of five tests spoils a gold standard in two ways, one of which a metric ought to prefer.
"""

from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np

from treelabel import Hierarchy
from treelabel.core.types import BoolArray, DoubleArray, LongArray
from treelabel.hierarchy.label_matrices import LabelMatrix, label_matrix, row_sizes

ITEMS = 1000
CATEGORIES = 700
RATE = 0.05


@dataclass(frozen=True)
class Reading:
    """How the paper's text is read."""

    # Figure 1 is a picture. 4 x 6 x 4 x 6 (levels of 4, 24, 96 and 576) is the regular tree of 700 nodes on four levels
    # whose nodes have the most even numbers of children: the same number everywhere would be between 4 and 5.
    hierarchy: str = "4x6x4x6"
    # "For each pair with a probability of p_i p_c. We repeat this 1000 times." An assignment is there or not, so a pair
    # that comes up twice is there once: 1,000 draws leave some 785 assignments.
    draws: int = 1000
    # Or 1,000 draws that all differ: a pair that is there already does not count as a repetition.
    distinct: bool = False
    # p_c is printed as max(512 / c, 1) / 1713. Only max(512 / 2^(c-1), 1) sums to 1,713 over 700 categories, and gives
    # the stated 300, 150, ... 0.6 items a category and 22.5, 22, ... 0.5 labels an item.
    printed_frequencies: bool = False
    # "Remove with a probability of 0.09 and 0.1": 9% and 10% of the assignments, and not a coin for each one. With
    # coins the output with the lower rate would lose more assignments in every fourth standard, and LB-ACC, which only
    # counts errors, could not win in 100% of them.
    coins: bool = False
    # "With an error rate of 0.05": errors are 5% of the assignments (39), and not of the items (50).
    rate_of_items: bool = False

    @cached_property
    def tree(self) -> Hierarchy:
        """The hierarchy of 700 categories."""
        return regular(self.hierarchy)

    @cached_property
    def chance(self) -> DoubleArray:
        """The probability of every item (row) and category (column, the most frequent one first) in one draw."""
        items, ranks = np.arange(1, ITEMS + 1), np.arange(1, CATEGORIES + 1)
        p_item = np.maximum(51 - items, 1) / 2225
        share = 512 / ranks if self.printed_frequencies else 512 / 2.0 ** (ranks - 1)
        p_category = np.maximum(share, 1) / 1713
        chance: DoubleArray = p_item[:, None] * p_category
        return chance

    @cached_property
    def presence(self) -> DoubleArray:
        """The probability of every pair to come up in any of the draws."""
        presence: DoubleArray = 1 - (1 - self.chance) ** self.draws
        return presence


@cache
def regular(branching: str) -> Hierarchy:
    """Make the tree in which every node of a level has the same number of children: "4x6" has 4 + 24 nodes."""
    paths: list[tuple[str, ...]] = [()]
    nodes: list[tuple[str, ...]] = []
    for count in map(int, branching.split("x")):
        paths = [(*path, ".".join([*path[-1:], str(at)])) for path in paths for at in range(count)]
        nodes += paths
    return Hierarchy.from_paths(nodes)


@dataclass(frozen=True, eq=False)
class Standard:
    """A gold standard: sorted assignments, each the number item * CATEGORIES + category."""

    reading: Reading
    assignments: LongArray

    @cached_property
    def errors(self) -> int:
        """How many assignments tests 2 to 5 spoil."""
        return round(RATE * (ITEMS if self.reading.rate_of_items else len(self.assignments)))

    @cached_property
    def items(self) -> LongArray:
        """The item of every assignment."""
        return self.assignments // CATEGORIES

    @cached_property
    def categories(self) -> LongArray:
        """The category of every assignment."""
        return self.assignments % CATEGORIES

    @cached_property
    def alone(self) -> LongArray:
        """Which assignments are the only one of their item."""
        return np.flatnonzero(np.bincount(self.items, minlength=ITEMS)[self.items] == 1)

    def without(self, lost: LongArray) -> LongArray:
        """Remove assignments."""
        return np.delete(self.assignments, lost)

    def replaced(self, spoilt: LongArray, categories: LongArray) -> LongArray:
        """Give assignments other categories."""
        output = self.assignments.copy()
        output[spoilt] = self.items[spoilt] * CATEGORIES + categories
        return output


def make_standard(reading: Reading, rng: np.random.Generator) -> Standard:
    """Draw a gold standard; which category is how frequent changes each time."""
    place = rng.permutation(CATEGORIES)
    if reading.distinct:
        # The first to come up if all pairs wait for their turn, each as long as its chance is small.
        turn = rng.standard_exponential((ITEMS, CATEGORIES), np.float32) / reading.chance
        items, ranks = np.divmod(np.argpartition(turn.ravel(), reading.draws)[: reading.draws], CATEGORIES)
    else:
        items, ranks = np.nonzero(rng.random((ITEMS, CATEGORIES), np.float32) < reading.presence)
    return Standard(reading, np.sort(items * CATEGORIES + place[ranks]))


def as_matrix(assignments: LongArray) -> LabelMatrix:
    """Put assignments (in any order) into a label matrix."""
    ordered = np.sort(assignments)
    rows = np.searchsorted(ordered, np.arange(ITEMS + 1) * CATEGORIES)
    return label_matrix(rows, ordered % CATEGORIES, CATEGORIES)


Outputs = tuple[LongArray, LongArray]


def error_rate(standard: Standard, rng: np.random.Generator) -> Outputs:
    """Best: 9% of the assignments are removed. Worst: 10%, chosen anew."""
    count = len(standard.assignments)

    def lost(share: float) -> LongArray:
        if standard.reading.coins:
            return np.flatnonzero(rng.random(count) < share)
        return rng.choice(count, round(share * count), replace=False)

    return standard.without(lost(0.09)), standard.without(lost(0.1))


def true_category(standard: Standard, rng: np.random.Generator) -> Outputs:
    """Best: assignments of items with one label are removed. Worst: a category is drawn first, then one of them in it.

    No assignment can be removed twice, and categories without any left are not drawn.
    """
    single = rng.permutation(standard.alone)
    return standard.without(single[: standard.errors]), standard.without(
        group_first(single, standard.categories[single], standard.errors, rng)
    )


def wrong_category(standard: Standard, rng: np.random.Generator) -> Outputs:
    """Best: single labels become the most frequent category (the next one if they are it). Worst: any other.

    Both outputs spoil the same assignments: the paper draws them before it tells the outputs apart.
    """
    spoilt = rng.permutation(standard.alone)[: standard.errors]
    true = standard.categories[spoilt]
    first, second = np.argsort(-np.bincount(standard.categories, minlength=CATEGORIES), kind="stable")[:2]
    frequent = np.where(true == first, second, first)
    return standard.replaced(spoilt, frequent), standard.replaced(spoilt, any_other(true, rng))


def near_category(standard: Standard, rng: np.random.Generator) -> Outputs:
    """Best: single labels that are leaves become a sister (of the same parent). Worst: any other category.

    The same assignments again; leaves that have no sister are left alone.
    """
    tree = standard.reading.tree
    sisters = tree.siblings(np.arange(CATEGORIES))
    possible = tree.is_leaf & (row_sizes(sisters) > 0)
    spoilt = rng.permutation(standard.alone[possible[standard.categories[standard.alone]]])[: standard.errors]
    true = standard.categories[spoilt]
    chosen = sisters.indptr[true] + rng.integers(row_sizes(sisters)[true])
    return standard.replaced(spoilt, sisters.indices[chosen]), standard.replaced(spoilt, any_other(true, rng))


def crowded_item(standard: Standard, rng: np.random.Generator) -> Outputs:
    """Best: assignments are drawn. Worst: an item is drawn, then one of its assignments. Both get a wrong category.

    An item may be drawn again as long as it has assignments that are not spoilt. A wrong category is one that the item
    has neither in the standard nor in the output, so that both outputs make the same number of errors.
    """
    order = rng.permutation(len(standard.assignments))
    best = order[: standard.errors]
    worst = group_first(order, standard.items[order], standard.errors, rng)
    return with_wrong(standard, best, rng), with_wrong(standard, worst, rng)


def group_first(shuffled: LongArray, groups: LongArray, count: int, rng: np.random.Generator) -> LongArray:
    """Draw `count` times a group, every one that has members left being as likely, and take its next member."""
    members: dict[int, list[int]] = {}
    for member, group in zip(shuffled.tolist(), groups.tolist(), strict=True):
        members.setdefault(group, []).append(member)
    left = list(members.values())
    taken = []
    for place in rng.random(min(count, len(shuffled))).tolist():
        at = int(place * len(left))
        taken.append(left[at].pop())
        if not left[at]:
            left[at] = left[-1]
            left.pop()
    return np.array(taken, np.int64)


def any_other(categories: LongArray, rng: np.random.Generator) -> LongArray:
    """Draw a category that is not the given one, for each."""
    drawn = rng.integers(0, CATEGORIES - 1, len(categories))
    return drawn + (drawn >= categories)


def with_wrong(standard: Standard, spoilt: LongArray, rng: np.random.Generator) -> LongArray:
    """Replace assignments by categories that their items do not have, each at most once."""
    base = standard.items[spoilt] * CATEGORIES
    output = standard.assignments.copy()
    fresh = base + rng.integers(CATEGORIES, size=len(base))
    while (bad := _taken(fresh, standard.assignments)).any():
        fresh[bad] = base[bad] + rng.integers(CATEGORIES, size=int(bad.sum()))
    output[spoilt] = fresh
    return output


def _taken(fresh: LongArray, assignments: LongArray) -> BoolArray:
    """Mark new assignments that are in the standard, or twice among the new ones."""
    repeated = np.ones(len(fresh), bool)
    repeated[np.unique(fresh, return_index=True)[1]] = False
    marked: BoolArray = repeated | np.isin(fresh, assignments)
    return marked


SPOILERS = (error_rate, true_category, wrong_category, near_category, crowded_item)
