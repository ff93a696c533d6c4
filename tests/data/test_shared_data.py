"""The real sets and taxonomies of the shared data folder: counts as its README gives them, and round trips.

The folder is `TREELABEL_DATA`, else `../shared/data` beside the repository; without it nothing here runs.
"""

import gzip
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from treelabel import Dataset, Hierarchy, read, read_taxonomy, unfold, write
from treelabel.data.taxonomy import skos

ROOT = Path(__file__).parents[2]
DATA = Path(os.environ.get("TREELABEL_DATA") or ROOT.parent / "shared" / "data")

# Together they take a minute; small files of the same formats are read in the tests beside these.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not DATA.is_dir(), reason=f"no real data in {DATA}; set TREELABEL_DATA to the folder that holds it"
    ),
]


@dataclass(frozen=True)
class Expected:
    """What data/README.md says of a set; `regime` is the strict one of docs/definitions.md §1."""

    documents: dict[str, int]
    nodes: int
    leaves: int
    depth: int
    regime: str
    is_tree: bool = True


SETS = {
    "hwv": Expected({"val": 1602, "test": 2003}, 1186, 953, 6, "single_path"),
    # A DAG by one node that has two parents; see the test of its unfolding.
    "mwpd_gpc": Expected({"train": 10012, "valid": 3000, "test": 3107}, 396, 283, 3, "multi_path", is_tree=False),
    "newsgroups20": Expected({"train": 11314, "test": 7532}, 38, 20, 5, "single_path"),
    "clinc150": Expected({"train": 15000, "valid": 3000, "test": 4500}, 160, 150, 2, "single_path"),
    "dbpedia5k": Expected({"all": 5000}, 9 + 70 + 219, 219, 3, "single_path"),
    "attack": Expected({"procedures": 15916, "technique_descriptions": 691}, 705, 593, 3, "multi_path", is_tree=False),
    "reuters21578": Expected({"train": 9603, "test": 3299, "other": 8676}, 471, 460, 3, "multi_path"),
    # The longest way to a node has 19 edges, the shortest 18: `entity` itself hangs under the virtual root. A closure
    # through two parents is no path, so the set the README calls partial path is multi path.
    "wordnet_hypernym": Expected(
        {"train": 45560, "valid": 6475, "test": 12923}, 17157, 10849, 19, "multi_path", is_tree=False
    ),
    # A quarter of the documents ends inside.
    "icd10cm": Expected({"inclusion_terms": 13487, "code_descriptions": 46881}, 47200, 36355, 7, "partial_path"),
    # The taxonomy has 7 + 137 nodes, three more than the 141 of the README.
    "wos1k": Expected({"all": 1000}, 144, 137, 2, "single_path"),
}
FILES = [(name, part) for name, expected in SETS.items() for part in expected.documents]


@cache
def load(name: str, part: str) -> Dataset:
    return read(DATA / name / f"{part}.jsonl.gz")


@pytest.mark.parametrize(("name", "part"), FILES)
def test_a_set_has_the_counts_of_its_readme(name: str, part: str) -> None:
    expected = SETS[name]
    described = load(name, part).describe()
    assert described.documents == expected.documents[part]
    assert (described.nodes, described.leaves, described.is_tree) == (expected.nodes, expected.leaves, expected.is_tree)
    assert len(described.nodes_per_level) == expected.depth
    assert described.regime == expected.regime
    assert described.duplicate_ids == 0
    assert set(described.extra_columns).isdisjoint({"id", "text", "labels"})


@pytest.mark.parametrize("name", SETS)
def test_documents_of_a_set_stand_as_the_file_has_them(name: str) -> None:
    part = next(iter(SETS[name].documents))
    data = load(name, part)
    with gzip.open(DATA / name / f"{part}.jsonl.gz", "rt", encoding="utf-8") as lines:
        for row, line in zip(range(200), lines, strict=False):
            values = json.loads(line)
            assert data.ids[row] == values["id"]
            assert data.texts[row] == values["text"]
            assert sorted(data[row].names()[0]) == sorted(values["labels"])
            assert {column: cells[row].as_py() for column, cells in data.extra.items()} == {
                column: value for column, value in values.items() if column not in ("id", "text", "labels")
            }


def test_hwv_matches_table_1_of_the_paper() -> None:
    parts = [load("hwv", part) for part in SETS["hwv"].documents]
    assert parts[0].hierarchy.level_sizes == [11, 109, 381, 437, 244, 4]
    mean = sum(part.closed_labels.nnz for part in parts) / sum(map(len, parts))
    assert round(mean, 1) == 3.7


def test_out_of_scope_queries_have_no_labels() -> None:
    described = [load("clinc150", f"oos_{part}").describe() for part in ("train", "valid", "test")]
    assert [part.documents for part in described] == [100, 100, 1000]
    assert all(part.regime == "unlabelled" and part.unlabelled == part.documents for part in described)


def test_clinc_and_dbpedia_levels() -> None:
    assert load("clinc150", "train").hierarchy.level_sizes == [10, 150]
    assert load("dbpedia5k", "all").hierarchy.level_sizes == [9, 70, 219]


def test_newsgroups_has_chains_of_single_children() -> None:
    h = load("newsgroups20", "train").hierarchy
    assert (np.diff(h.child_graph[0])[1:] == 1).any()
    assert len(h.collapse_chains().new) < 38


def test_the_shortest_ways_in_wordnet() -> None:
    h = load("wordnet_hypernym", "train").hierarchy
    assert (h.max_depth, int(h.shortest_depth.max())) == (19, 18)
    assert h.level_sizes[0] == 1


@pytest.mark.parametrize("part", ["train", "valid", "test"])
def test_mwpd_gpc_is_a_single_path_tree_once_it_is_unfolded(part: str) -> None:
    data = load("mwpd_gpc", part)
    assert np.sum(np.diff(data.hierarchy.parent_ptr) > 1) == 1
    assert 0 < data.describe().regime_share["multi_path"] < 0.01
    tree = unfold(data)
    assert (len(tree.hierarchy), tree.hierarchy.is_tree) == (397, True)
    assert tree.describe().regime == "single_path"


def test_attack_is_dated_and_its_descriptions_name_every_technique() -> None:
    assert {"created", "source"} <= set(load("attack", "procedures").extra)
    described = load("attack", "technique_descriptions").describe()
    assert described.labels_unseen == 0


def test_tibkat_is_extreme_and_flat() -> None:
    parts = {name: load("tibkat_core_en", name) for name in ("train", "dev")}
    assert {name: len(part) for name, part in parts.items()} == {"train": 24164, "dev": 4025}
    assert all(part.hierarchy.max_depth == 1 for part in parts.values())
    both = set(parts["train"].hierarchy.names) | set(parts["dev"].hierarchy.names)
    assert len(both) == 17569
    h = Hierarchy.flat(sorted(both))
    whole = [read(DATA / "tibkat_core_en" / f"{name}.jsonl.gz", taxonomy=h) for name in parts]
    once = int(np.sum(whole[0].frequencies + whole[1].frequencies == 1))
    assert 0.4 < once / 17569 < 0.6
    assert whole[1].describe(train=whole[0]).labels_unseen == 17569 - len(parts["train"].hierarchy)
    assert whole[1].describe().regime == "multi_path"


def test_tibkat_s_readable_names_cover_part_of_its_labels() -> None:
    lines = (DATA / "tibkat_core_en" / "labels.tsv").read_text(encoding="utf-8").splitlines()
    named = {line.split("\t")[0] for line in lines}
    both = set(load("tibkat_core_en", "train").hierarchy.names) | set(load("tibkat_core_en", "dev").hierarchy.names)
    assert (len(named), len(named & both), len(both)) == (12493, 12493, 17569)


TAXONOMIES = {
    "rcv1.taxonomy": (103, 82, [4, 55, 43, 1]),
    "wos.taxonomy": (141, 134, [7, 134]),
    "nyt.taxonomy": (166, 115, [4, 27, 51, 47, 17, 12, 6, 2]),
    "ykl-skos.ttl": (2406, 1785, [12, 128, 470, 867, 659, 221, 49]),
}


@pytest.fixture(scope="module", autouse=True)
def parsed_once() -> Iterator[None]:
    """Parse a vocabulary once, whatever language its names are asked for in."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(skos, "_read", cache(skos._read))
        yield


@cache
def taxonomy(name: str, language: str = "en") -> Hierarchy:
    return read_taxonomy(DATA / "taxonomies" / name, tree=True, language=language)


@pytest.mark.parametrize("name", TAXONOMIES)
def test_published_taxonomies_load(name: str) -> None:
    if name.endswith(".ttl"):
        pytest.importorskip("rdflib")
    h = taxonomy(name)
    assert (len(h), len(h.leaves), h.level_sizes) == TAXONOMIES[name]
    assert h.has_unique_names


def test_a_vocabulary_is_read_in_another_language() -> None:
    pytest.importorskip("rdflib")
    english, finnish = taxonomy("ykl-skos.ttl"), taxonomy("ykl-skos.ttl", "fi")
    assert english.parent.tolist() == finnish.parent.tolist()
    assert sum(one != other for one, other in zip(english.names, finnish.names, strict=True)) > 2000


# One file a set; of each the first documents, to keep the time short.
ONE_EACH = [(name, next(iter(expected.documents))) for name, expected in SETS.items()]
ONE_EACH += [("tibkat_core_en", "dev"), ("clinc150", "oos_test")]


@pytest.mark.parametrize("ending", ["csv", "jsonl.gz", "parquet"])
@pytest.mark.parametrize(("name", "part"), ONE_EACH)
def test_a_set_survives_formats_that_hold_everything(tmp_path: Path, name: str, part: str, ending: str) -> None:
    data = load(name, part)[:2000]
    write(data, tmp_path / f"data.{ending}")
    again = read(tmp_path / f"data.{ending}")
    assert again.hierarchy == data.hierarchy
    assert again.ids == data.ids
    assert again.texts == data.texts
    assert (again.labels != data.labels).nnz == 0
    assert list(again.extra) == list(data.extra)
    if ending != "csv":
        assert all(again.extra[column].to_pylist() == cells.to_pylist() for column, cells in data.extra.items())


@pytest.mark.parametrize("ending", ["htc", "ft"])
@pytest.mark.parametrize(("name", "part"), ONE_EACH)
def test_a_set_s_texts_and_labels_survive_benchmark_formats(tmp_path: Path, name: str, part: str, ending: str) -> None:
    data = load(name, part)[:2000]
    write(data, tmp_path / f"data.{ending}")
    again = read(tmp_path / f"data.{ending}")
    assert again.hierarchy == data.hierarchy
    assert (again.labels != data.labels).nnz == 0
    if ending == "htc":
        assert again.texts == data.texts
    else:
        assert [text.split() for text in again.texts] == [text.split() for text in data.texts]
