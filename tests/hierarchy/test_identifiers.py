"""URIs and notations of labels: they follow nodes through every change, find labels, and are stored and checked."""

import json
from pathlib import Path

import pytest

from treelabel import Hierarchy, TreelabelError, load_model, make_model, read_taxonomy, save_model, write_taxonomy
from treelabel.data.dataset import Dataset
from treelabel.hierarchy.hierarchy_json import hierarchy_from_json, hierarchy_to_json
from treelabel.hierarchy.label_ids import find_label, with_uris
from treelabel.hierarchy.union import join_hierarchies, unite_trees, with_paths

BASE = "http://example.org/"


def named(h: Hierarchy) -> Hierarchy:
    """Give every node a URI and a notation made of its name."""
    return h.with_identifiers([BASE + name for name in h.names], [f"n:{name}" for name in h.names])


def uris(h: Hierarchy) -> dict[str, str | None]:
    assert h.identifiers is not None
    return dict(zip(h.names, h.identifiers.uris.to_pylist(), strict=True))


TREE = named(Hierarchy.from_paths(["A > B > C", "A > D", "E"]))
DAG = named(Hierarchy.from_edges([("A", "B"), ("A", "C"), ("B", "D"), ("C", "D")]))


def test_changes_of_a_hierarchy_carry_identifiers() -> None:
    for changed in (TREE.cut(2), TREE.prune([TREE.names.index("D")]), TREE.collapse_chains()):
        assert uris(changed.new) == {name: BASE + name for name in changed.new.names}
    other = TREE.with_other_leaves([0]).new
    assert uris(other) == {name: BASE + name for name in TREE.names} | {"other [A]": None}
    copies = uris(DAG.unfold().new)
    assert copies["D [B]"] == copies["D [C]"] == BASE + "D"


def test_unions_carry_identifiers_and_the_first_goes_before_others() -> None:
    plain = Hierarchy.from_paths(["A > X"])
    assert uris(unite_trees([TREE, plain]))["X"] is None
    assert uris(unite_trees([plain, TREE]))["C"] == BASE + "C"
    assert uris(with_paths(TREE, [["F"]])) == {name: BASE + name for name in TREE.names} | {"F": None}
    assert uris(join_hierarchies(plain, named(Hierarchy.from_paths(["A > Y"])), "truth"))["Y"] == BASE + "Y"


def test_labels_are_found_by_uri_and_notation_after_names() -> None:
    h = Hierarchy.flat(["A", "B"]).with_identifiers([BASE + "A", BASE + "B"], ["B", "2"])
    assert find_label(h, BASE + "B") == find_label(h, f"<{BASE}B>") == find_label(h, "2") == 1
    assert find_label(h, "B") == 1, "a name goes before a notation"
    with pytest.raises(TreelabelError, match=r"identifies 2 labels: .*give the path"):
        find_label(DAG.unfold().new, BASE + "D")
    with pytest.raises(TreelabelError, match="unknown label"):
        find_label(h, BASE + "C")


def test_identifiers_are_stored_checked_and_no_part_of_the_fingerprint() -> None:
    plain = Hierarchy.from_paths(["A > B > C", "A > D", "E"])
    assert plain.identifiers is None
    assert "uris" not in json.loads(hierarchy_to_json(plain))
    assert plain == TREE
    again = hierarchy_from_json(hierarchy_to_json(TREE), "file")
    assert again.identifiers == TREE.identifiers
    assert again.identifiers != DAG.identifiers
    for change in ({"uris": ["x"]}, {"uris": [1] * 5}, {"notations": "abcde"}, {"notations": None}):
        stored = json.dumps(json.loads(hierarchy_to_json(TREE)) | change)
        with pytest.raises(TreelabelError, match="file: the stored hierarchy is damaged"):
            hierarchy_from_json(stored, "file")


@pytest.mark.parametrize(
    ("values", "message"),
    [([BASE], "1 URIs for 5 labels"), ([1] * 5, "expected a URI as text"), (["a\tb"] * 5, "has a control character")],
)
def test_wrong_identifiers_are_refused(values: list[str], message: str) -> None:
    with pytest.raises(TreelabelError, match=message):
        TREE.with_identifiers(values)
    with pytest.raises(TreelabelError, match="5 URIs, but 1 notations"):
        TREE.with_identifiers([BASE] * 5, ["1"])
    assert TREE.with_identifiers([None] * 5).identifiers is None


def test_a_label_without_uri_gets_one_of_its_path() -> None:
    h = Hierarchy.from_paths(["A > B/C"]).with_identifiers([BASE, None], [None, "7"])
    made = with_uris(h)
    assert uris(made) == {"A": BASE, "B/C": "urn:treelabel:A/B%2FC"}
    assert made.identifiers is not None
    assert made.identifiers.notations.to_pylist() == [None, "7"]
    assert with_uris(made) is made


@pytest.mark.parametrize("name", ["t.tsv", "t.csv", "t.xlsx", "t.json", "t.taxonomy", "t.ttl", "t.rdf", "t.nt"])
@pytest.mark.parametrize("h", [TREE, DAG], ids=["tree", "DAG"])
def test_taxonomy_files_keep_identifiers(h: Hierarchy, name: str, tmp_path: Path) -> None:
    write_taxonomy(h, tmp_path / name)
    again = read_taxonomy(tmp_path / name)
    assert uris(again) == uris(h)
    assert set(again.edges()) == set(h.edges())
    assert again.identifiers is not None
    assert set(again.identifiers.notations.to_pylist()) == {f"n:{name}" for name in h.names}


def test_model_folders_keep_identifiers(tmp_path: Path) -> None:
    data = Dataset.of(["a b", "c d", "e f"], [[BASE + "C"], ["n:D"], ["E"]], TREE)
    save_model(make_model("most_frequent").fit(data), tmp_path / "model")
    assert load_model(tmp_path / "model").hierarchy_.identifiers == TREE.identifiers
