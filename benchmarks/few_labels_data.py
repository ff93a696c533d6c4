"""Sets of real data cut to a few texts a label, for `few_labels.py`.

A cut has a fixed draw of leaves, whole groups of siblings first, so that the labels that are hard to tell apart are in
it; its hierarchy has nothing else. Of each leaf it has so many training texts, a smaller cut being part of a larger
one, and test documents that no training text equals. Another draw has other training texts and test documents of the
same leaves. Settings may be chosen on the DEVELOPMENT sets; on the JUDGED ones nothing is.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np
from benchmarks.fast_models import DATA

from treelabel import Dataset, Hierarchy, read, unfold
from treelabel.core.strings import Strings
from treelabel.hierarchy import label_matrix

ALL = 0
# "All" texts of a label are so many at most.
MOST_TEXTS = 50
SEED = 29

Document = tuple[str, tuple[str, ...]]
Pools = tuple[list[Document], list[Document]]


@dataclass(frozen=True)
class FewLabels:
    """A set: how it is read, how many leaves it is cut to, and the sizes that it has enough texts for.

    `least` is how many documents a leaf must have; where there is no test part, `held` documents of each leaf are one.
    """

    pools: Callable[[], Pools]
    leaves: int | None = 20
    sizes: tuple[int, ...] = (4, 8, 16, ALL)
    least: int = 26
    held: int = 10
    siblings: int = 7
    most_test: int = 500


# Reading


def documents_of(*files: str) -> list[Document]:
    """Read files of a set: every text once, with the path to its only leaf; documents with several are left out."""
    documents: dict[str, tuple[str, ...]] = {}
    for file in files:
        data = read(DATA / file)
        # A DAG becomes a tree, in which a document has one path.
        data = data if data.hierarchy.is_tree else unfold(data)
        h = data.hierarchy
        ends = h.most_specific(data.labels)
        for text, first, last in zip(data.texts, ends.indptr, ends.indptr[1:], strict=False):
            if last - first == 1 and h.is_leaf[ends.indices[first]]:
                documents.setdefault(text.strip(), node_path(h, int(ends.indices[first])))
    return [(text, path) for text, path in documents.items() if text]


def node_path(h: Hierarchy, node: int) -> tuple[str, ...]:
    """Return the names from the top to a node."""
    above = int(h.parent[node])
    return (*(node_path(h, above) if above >= 0 else ()), h.names[node])


def parts_of(name: str, train: str = "train", test: str = "test") -> Pools:
    """Read a set that comes in parts."""
    return documents_of(f"{name}/{train}.jsonl.gz"), documents_of(f"{name}/{test}.jsonl.gz")


def pooled(*files: str) -> Pools:
    """Read a set whose test documents are drawn here."""
    return documents_of(*files), []


def newsgroups_bodies() -> Pools:
    """Read newsgroups without what stands before the first blank line."""
    train, test = (
        [(text.partition("\n\n")[2].strip(), path) for text, path in part] for part in parts_of("newsgroups20")
    )
    return [each for each in train if each[0]], [each for each in test if each[0]]


def attack_techniques() -> Pools:
    """Read procedures of attackers with one technique; the tree is techniques and their parts, with readable names."""
    data = read(DATA / "attack" / "procedures.jsonl.gz")
    lines = (DATA / "attack" / "labels.tsv").read_text(encoding="utf-8").splitlines()
    names = dict(line.split("\t")[:2] for line in lines)
    h = data.hierarchy
    documents: dict[str, tuple[str, ...]] = {}
    ends = h.most_specific(data.labels)
    for text, first, last in zip(data.texts, ends.indptr, ends.indptr[1:], strict=False):
        code = h.names[ends.indices[first]] if last - first == 1 else ""
        if "." in code:
            documents.setdefault(text.strip(), (names[code.partition(".")[0]], names[code]))
    return list(documents.items()), []


JUDGED = {
    "clinc150": FewLabels(partial(parts_of, "clinc150"), leaves=30, siblings=15),
    "esco": FewLabels(partial(pooled, "esco/train.jsonl.gz", "esco/test.jsonl.gz"), siblings=20),
    "attack": FewLabels(attack_techniques, held=25, least=41),
    "newsgroups20": FewLabels(newsgroups_bodies, leaves=12, siblings=5),
    "wos1k": FewLabels(partial(pooled, "wos1k/all.jsonl.gz"), sizes=(4, ALL), least=9, held=5),
    "hwv_frequent": FewLabels(partial(parts_of, "hwv", "val"), sizes=(4,), least=4),
    "hwv": FewLabels(partial(parts_of, "hwv", "val"), leaves=None, sizes=(ALL,), least=1, most_test=1_000),
}
DEVELOPMENT = {
    "mwpd_gpc": FewLabels(partial(parts_of, "mwpd_gpc")),
    "dbpedia5k": FewLabels(partial(pooled, "dbpedia5k/all.jsonl.gz")),
}
SETS = JUDGED | DEVELOPMENT


# Cutting


@cache
def chosen_pools(name: str) -> Pools:
    """Read a set and leave the documents of its leaves that were drawn."""
    spec = SETS[name]
    train, test = spec.pools()
    counts = Counter(path for _, path in train)
    tested = {path for _, path in test}
    enough = [path for path in counts if counts[path] >= spec.least and (not tested or path in tested)]
    if spec.leaves is None:
        return train, test
    leaves = set(drawn_leaves(enough, spec.leaves, spec.siblings))
    first, second = ([each for each in part if each[1] in leaves] for part in (train, test))
    return first, second


def drawn_leaves(paths: Sequence[tuple[str, ...]], count: int, siblings: int) -> list[tuple[str, ...]]:
    """Draw leaves, at most so many of each top branch, branch by branch, those that are near each other first.

    >>> len(drawn_leaves([(top, leaf) for top in "ab" for leaf in "xyz"], 4, 3))
    4
    """
    rng = np.random.default_rng(SEED)
    branches = defaultdict(list)
    for path in sorted(paths):
        branches[path[0]].append(path)
    tops = [top for top in sorted(branches) if len(branches[top]) > 1] or sorted(branches)
    result: list[tuple[str, ...]] = []
    for top in rng.permutation(np.array(tops, object)).tolist():
        leaves = branches[top]
        start = int(rng.integers(max(len(leaves) - siblings, 0) + 1))
        result += leaves[start : start + siblings]
    return result[:count]


def cut(name: str, size: int, draw: int) -> tuple[Dataset, Dataset]:
    """Cut a set to so many training texts a leaf (0: all, at most 50).

    Parameters
    ----------
    name
        A set of JUDGED or DEVELOPMENT.
    size
        Training texts of each leaf; a leaf that has fewer gives all it has.
    draw
        Seed of the draw of documents.

    Returns
    -------
    (Dataset, Dataset)
        Training and test documents, over the hierarchy of the set's leaves.
    """
    train, test = chosen_pools(name)
    rng = np.random.default_rng([SEED, draw])
    groups = defaultdict(list)
    for index in rng.permutation(len(train)).tolist():
        groups[train[index][1]].append(train[index])
    if not test:
        held = SETS[name].held
        test = [each for path in sorted(groups) for each in groups[path][:held]]
        groups = defaultdict(list, {path: group[held:] for path, group in groups.items()})
    train = [each for path in sorted(groups) for each in groups[path][: size or MOST_TEXTS]]
    known = {text for text, _ in train}
    test = [test[index] for index in rng.permutation(len(test)).tolist() if test[index][0] not in known]
    paths = sorted({path for _, path in (*train, *test)})
    h = Hierarchy.from_paths([list(path) for path in paths])
    return dataset(train, h), dataset(test[: SETS[name].most_test], h)


def dataset(documents: Sequence[Document], h: Hierarchy) -> Dataset:
    """Make a dataset of texts and paths."""
    nodes = {node_path(h, int(node)): int(node) for node in h.leaves}
    ids = Strings.of([str(row) for row in range(len(documents))])
    texts = Strings.of([text for text, _ in documents])
    ends = np.array([nodes[path] for _, path in documents], np.int32)
    return Dataset(ids, texts, label_matrix(np.arange(len(ends) + 1), ends, len(h)), h)


def cell_folder(results: Path, name: str, size: int, draw: int) -> Path:
    """Return the folder of a cut: what systems read, and what they predicted."""
    return results / f"{name}-{size or 'all'}-{draw}"
