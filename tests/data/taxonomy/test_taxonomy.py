"""Hierarchies in files: every form is read and written, and refusals name file and line."""

import gzip
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import examples
from treelabel import Hierarchy, TreelabelError, read_alternative_names, read_taxonomy, write_taxonomy
from treelabel.data.taxonomy.taxonomy_files import read_with_summary
from treelabel.data.taxonomy.taxonomy_tables import TaxonomyOptions

PETS = ["pet", "food", "pet > dog", "pet > cat", "pet > dog > poodle"]


def put(folder: Path, name: str, content: str | bytes) -> Path:
    file = folder / name
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return file


def paths_of(folder: Path, name: str, content: str | bytes, **options: Any) -> list[str]:
    return sorted(read_taxonomy(put(folder, name, content), **options).paths())


EDGE_FILES = {
    "tsv": ("t.tsv", "pet\tdog\npet\tcat\ndog\tpoodle\nRoot\tpet\nRoot\tfood\n"),
    "tab": ("t.tab", "pet\tdog\npet\tcat\ndog\tpoodle\nRoot\tpet\nRoot\tfood\n"),
    "windows": ("t.tsv", b"\xef\xbb\xbfRoot\tpet\r\nRoot\tfood\r\n\r\npet\tdog\r\npet\tcat\r\ndog\tpoodle\r\n"),
    "spaces": ("t.tsv", " Root \t pet\nRoot\tfood\npet\tdog \npet\tcat\ndog\tpoodle"),
    "csv": ("t.csv", 'Root,pet\nRoot,"food"\npet,dog\npet, cat\ndog,poodle\n'),
    "csv with tabs": ("t.csv", "Root\tpet\nRoot\tfood\npet\tdog\npet\tcat\ndog\tpoodle\n"),
    "children lists": ("t.taxonomy", "Root\tpet\tfood\npet\tdog\tcat\ndog\tpoodle\n"),
    "children lists with tabs at the end": ("t.taxonomy", "Root\tpet\tfood\t\t\npet\tdog\tcat\t\ndog\tpoodle\t\t\n"),
    "parent and child": ("t.csv", "parent,child\npet,dog\npet,cat\ndog,poodle\nRoot,pet\nRoot,food\n"),
    "child and parent": ("t.tsv", "Child\tParent\ndog\tpet\ncat\tpet\npoodle\tdog\npet\tRoot\nfood\tRoot\n"),
    "a table": ("t.csv", "name,size,parent\npet,3,\nfood,1,\ndog,2,pet\ncat,1,pet\npoodle,1,dog\n"),
    "a table by id": ("t.csv", "id,parent_id,note\npet,,x\nfood,,\ndog,pet,\ncat,pet,\npoodle,dog,\n"),
    "named by name": ("t.csv", "id,name,parent\n1,pet,\n2,food,\n3,dog,pet\n4,cat,pet\n5,poodle,dog\n"),
    "named by id": ("t.csv", "name,id,parent_id\npet,1,\nfood,2,\ndog,3,1\ncat,4,1\npoodle,5,3\n"),
    "named by title, semicolons": (
        "t.csv",
        "title;category_id;parent_id\npet;1;\nfood;2;\ndog;3;1\ncat;4;1\npoodle;5;3\n",
    ),
}


@pytest.mark.parametrize(("name", "content"), EDGE_FILES.values(), ids=EDGE_FILES)
def test_edges_in_all_their_forms_mean_the_same(tmp_path: Path, name: str, content: str | bytes) -> None:
    assert paths_of(tmp_path, name, content) == sorted(PETS)


# Tables of other kinds, and what is said of them.
TABLES = {
    "names alone": ("t.tsv", "pet\tdog\npet\tcat\ndog\tpoodle\nfood\npet\n", "a parent and its children on each line"),
    "numbered ids": (
        "t.csv",
        "Name,Parent ID,ID\npet,0,1\nfood,0,2\ndog,1,3\ncat,1,4\npoodle,3,5\n",
        "parents in the column 'Parent ID', which are called by 'ID', names in 'Name'",
    ),
    "ids with points, as pandas saves them": (
        "t.csv",
        "category_id,category_name,parent_category_id\n1,pet,\n2,food,\n3,dog,1.0\n4,cat,1.0\n5,poodle,3.0\n",
        "parents in the column 'parent_category_id', which are called by 'category_id', names in 'category_name'",
    ),
    "no parent": (
        "t.csv",
        "id;parentId;name\n1;NULL;pet\n2;NULL;food\n3;1;dog\n4;1;cat\n5;3;poodle\n",
        "parents in the column 'parentId', which are called by 'id', names in 'name'",
    ),
    "another word for child": (
        "t.csv",
        "Parent,Kategorie\n,pet\n,food\npet,dog\npet,cat\ndog,poodle\n",
        "parents in the column 'Parent', labels in 'Kategorie'",
    ),
    "levels": (
        "t.csv",
        "Level 2,note,Level 1,Level 3\ndog,x,pet,poodle\ncat,,pet,\n,,food,\n",
        "one level in each of the columns 'Level 1' and 'Level 2' and 'Level 3'",
    ),
    "an outline": (
        "t.csv",
        "L1;L2;L3\npet;;\n;dog;\n;;poodle\n;cat;\nfood;;\n",
        "one level in each of the columns 'L1' and 'L2' and 'L3'",
    ),
    "levels by words": (
        "t.tsv",
        "Department\tClass\tSub-class\npet\tdog\tpoodle\npet\tcat\t\nfood\t\t\n",
        "one level in each of the columns 'Department' and 'Class' and 'Sub-class'",
    ),
    "paths in a column": (
        "t.csv",
        "id,Full Path\n1,pet > dog > poodle\n2,pet > cat\n3,food\n",
        "full paths in the column 'Full Path', separated by ' > '",
    ),
    "paths alone": (
        "t.csv",
        "path\npet > dog > poodle\npet > cat\nfood\n",
        "full paths in the column 'path', separated",
    ),
    "paths under another name": (
        "t.csv",
        "Nr;Pfad\n1;pet>dog>poodle\n2;pet>cat\n3;food\n4;pet>dog\n",
        "full paths in the column 'Pfad', separated by '>'",
    ),
    "paths without a header": (
        "t.tsv",
        "pet>dog>poodle\npet>cat\nfood\npet>dog\n",
        "full paths in the column 1, separ",
    ),
    "paths with another separator": ("t.txt", "pet::dog::poodle\npet::cat\nfood\npet::dog\n", "separated by '::'"),
}


@pytest.mark.parametrize(("name", "content", "told"), TABLES.values(), ids=TABLES)
def test_tables_of_all_kinds_mean_the_same_and_say_what_they_are(
    tmp_path: Path, name: str, content: str, told: str
) -> None:
    hierarchy, form = read_with_summary(put(tmp_path, name, content), TaxonomyOptions())
    assert sorted(hierarchy.paths()) == sorted(PETS)
    assert told in form


def test_levels_are_told_by_their_values_where_rows_would_say_edges_twice(tmp_path: Path) -> None:
    rows = ["Warengruppe;Gruppe;Artikel", "food;dairy;milk", "food;dairy;cheese", "food;meat;ham", "home;garden;rake"]
    expected = sorted(Hierarchy.from_paths([row.split(";") for row in rows[1:]]).paths())
    assert paths_of(tmp_path, "t.csv", "\n".join(rows)) == expected
    # A parent with its children is what it was.
    assert paths_of(tmp_path, "u.csv", "A;B;C\nB;D;E\n") == ["A", "A > B", "A > B > D", "A > B > E", "A > C"]


def test_edges_whose_names_look_like_paths_stay_edges(tmp_path: Path) -> None:
    content = "Root\tCS\nRoot\tEE\nCS\tCS/learning\nCS\tCS/graphs\nEE\tEE/power\nEE\tEE/waves\n"
    expected = ["CS", "CS > CS/graphs", "CS > CS/learning", "EE", "EE > EE/power", "EE > EE/waves"]
    assert paths_of(tmp_path, "t.tsv", content) == expected
    content = "Root\ttopics\nRoot\tplaces\ntopics\ttopics::ship\ntopics\ttopics::corn\nplaces\tplaces::usa\n"
    assert "topics > topics::corn" in paths_of(tmp_path, "u.tsv", content)


def test_a_header_alone_makes_a_list_of_labels(tmp_path: Path) -> None:
    assert paths_of(tmp_path, "t.csv", "Category\nfood\nTCP/IP\n") == ["TCP/IP", "food"]


@pytest.mark.parametrize("first", ["path", "level1", "category", "label"])
def test_labels_called_like_columns_are_labels_where_they_have_children(tmp_path: Path, first: str) -> None:
    content = f"{first}\tlevel2\nlevel2\tx\n"
    assert paths_of(tmp_path, "t.tsv", content) == [first, f"{first} > level2", f"{first} > level2 > x"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("id,parent_id,name\n1,9,A\n", ":2: unknown parent: 'A' has parent '9', which has no row of its own"),
        ("level1,level2\nA,B\n,\nC,D\n,,\n", None),
        ("level1,level2,level3\n,B,C\n", ":2: empty name in the path ' > B > C'"),
        ("level1,level2,level3\nA,,C\n", ":2: empty name in the path 'A >  > C'"),
        ("path\nA >  > B\n", ":2: empty name in the path 'A >  > B'"),
        ("path\nA\x07 > B\n", ":2: the label 'A\\x07' has the control character U+0007"),
    ],
)
def test_tables_with_gaps(tmp_path: Path, content: str, message: str | None) -> None:
    file = put(tmp_path, "t.csv", content)
    if message is None:
        assert sorted(read_taxonomy(file).paths()) == ["A", "A > B", "C", "C > D"]
        return
    with pytest.raises(TreelabelError) as refused:
        read_taxonomy(file)
    assert f"{file}{message}" in str(refused.value)


@pytest.mark.parametrize("compression", ["gz", "zst", "bz2"])
def test_taxonomies_may_be_compressed(tmp_path: Path, compression: str) -> None:
    h = Hierarchy.from_paths(PETS)
    write_taxonomy(h, tmp_path / f"t.tsv.{compression}")
    assert read_taxonomy(tmp_path / f"t.tsv.{compression}") == h


def test_quoted_names_in_csv_may_hold_commas_and_quotes(tmp_path: Path) -> None:
    assert paths_of(tmp_path, "t.csv", '"a, b","say ""hi"""\n') == ["a, b", 'a, b > say "hi"']


def test_several_tops_hang_under_the_root(tmp_path: Path) -> None:
    h = read_taxonomy(put(tmp_path, "t.tsv", "A\tB\nC\tD\n"))
    assert h.parent.tolist() == [-1, -1, 0, 1]


def test_the_root_can_be_named_or_kept(tmp_path: Path) -> None:
    content = "all\tA\nall\tB\n"
    assert paths_of(tmp_path, "t.tsv", content, root="all") == ["A", "B"]
    assert paths_of(tmp_path, "t.tsv", content) == ["all", "all > A", "all > B"]
    assert paths_of(tmp_path, "t.tsv", "Root\tA\n", root="") == ["Root", "Root > A"]


def test_a_label_may_have_two_parents_unless_a_tree_is_asked_for(tmp_path: Path) -> None:
    file = put(tmp_path, "t.tsv", "A\tC\nD\tE\nB\tC\n")
    assert not read_taxonomy(file).is_tree
    with pytest.raises(TreelabelError) as refused:
        read_taxonomy(file, tree=True)
    assert str(refused.value).startswith(f"not a tree: 'C' has 2 parents, 'A' ({file}:1) and 'B' ({file}:3)")


def test_paths_one_a_line_with_comments(tmp_path: Path) -> None:
    content = "# my labels\npet > dog > poodle\n\npet>cat > x\n  pet > dog\nfood\n"
    assert paths_of(tmp_path, "t.txt", content) == [
        "food",
        "pet",
        "pet > dog",
        "pet > dog > poodle",
        "pet>cat",
        "pet>cat > x",
    ]
    assert paths_of(tmp_path, "t.txt", "pet/cat\n", sep="/") == ["pet", "pet > cat"]


def test_paths_tell_equal_names_apart(tmp_path: Path) -> None:
    assert paths_of(tmp_path, "t.txt", "A > Other\nB > Other\n") == ["A", "A > Other", "B", "B > Other"]


NESTED = {
    "dicts": '{"pet": {"dog": {"poodle": {}}, "cat": null}, "food": {}}',
    "dicts and lists": '{"pet": {"dog": ["poodle"], "cat": []}, "food": ""}',
    "lists of dicts": '[{"pet": [{"dog": "poodle"}, "cat"]}, "food"]',
    "objects": """[{"name": "pet", "children": [{"name": "dog", "id": 7, "children": [{"name": "poodle"}]},
                 {"name": "cat", "children": []}]}, {"name": "food"}]""",
    "one object": """{"name": "Root", "children": [{"name": "pet", "children": [{"name": "dog", "children":
                 [{"name": "poodle"}]}, {"name": "cat"}]}, {"name": "food"}]}""",
}


@pytest.mark.parametrize("content", NESTED.values(), ids=NESTED)
def test_nested_json_in_all_its_shapes_means_the_same(tmp_path: Path, content: str) -> None:
    assert paths_of(tmp_path, "t.json", content) == sorted(PETS)


def test_the_form_can_be_named_where_the_ending_says_nothing(tmp_path: Path) -> None:
    assert paths_of(tmp_path, "t.data", '{"A": ["B"]}', format="json") == ["A", "A > B"]
    assert paths_of(tmp_path, "t.data", "A\tB\n", format="edges") == ["A", "A > B"]
    assert paths_of(tmp_path, "t.tsv", "A > B\n", format="paths") == ["A", "A > B"]
    with pytest.raises(TreelabelError, match=r"t\.data: cannot tell the taxonomy's format by its ending; known are"):
        read_taxonomy(tmp_path / "t.data")


def test_another_encoding_can_be_named(tmp_path: Path) -> None:
    assert paths_of(tmp_path, "t.tsv", "café\tthé\n".encode("latin-1"), encoding="latin-1") == ["café", "café > thé"]


# Refusals

REFUSALS = {
    "self-loop": ("t.tsv", "A\tB\n\nB\tB\n", ":3: self-loop: 'B' is given as its own parent"),
    "duplicate edge": ("t.tsv", "A\tB\nA\tC\nA\tB\n", ":3: duplicate edge 'A' -> 'B', first at {file}:1"),
    "duplicate in a children list": (
        "t.taxonomy",
        "A\tB\nA\tC\tB\n",
        ":2: duplicate edge 'A' -> 'B', first at {file}:1",
    ),
    "empty child": ("t.tsv", "A\tB\nA\t\n", ":2: empty name: the child of 'A' is missing"),
    "empty parent": ("t.tsv", "A\tB\n\tC\n", ":2: empty name: the parent of 'C' is missing"),
    "nothing but commas": ("t.csv", "A,B\n,,\n", ":2: empty name: the parent of '' is missing"),
    "a parent of nothing": ("t.taxonomy", "A\t\t\n", ":1: empty name: the child of 'A' is missing"),
    "empty child in a table": ("t.csv", "id,parent\na,\n,a\n", ":3: empty name: the child of 'a' is missing"),
    "names alone": ("t.tsv", "A\nC\n", ":1: expected a parent and a child separated by a tab, found 'A'; a list of"),
    "short row": ("t.csv", "parent,x,child\nA,1,B\nA\n", ":3: 1 fields, too few for the header's columns"),
    "bad quotes": ("t.csv", 'A,B\n"A"x,B\n', ":2: not valid CSV: ',' expected after '\"'"),
    "wrong byte": ("t.tsv", b"A\tB\nA\tcaf\xe9\n", ":2: byte 6 of the line (0xe9) is not utf-8"),
    "a table whose lines shift": (
        "t.csv",
        "id,parent\na,\nb,a\nc,\nb,a\n",
        ":5: duplicate edge 'a' -> 'b', first at {file}:3",
    ),
    "no edges": ("t.tsv", "\n", ": no edges; expected lines with a parent and a child"),
    "a header alone": ("t.csv", "parent,child\n", ": no edges; expected lines with a parent and a child"),
    "empty name in a path": ("t.txt", "A > B\n# c\nA >  > C\n", ":3: empty name in the path 'A >  > C'"),
    "no paths": ("t.txt", "# nothing\n", ": no paths; expected lines such as 'A > B > C'"),
    "bad JSON": ("t.json", '\n\n{"A":\n\n["B",}\n', ":5: not valid JSON: Expecting value"),
    "empty file": ("t.json", "", ":1: not valid JSON: Expecting value"),
    "empty JSON": ("t.json", "{}", ": no labels in the JSON"),
    "a name twice": ("t.json", '{"A": ["B", "B"]}', ": duplicate: 'B' stands twice under A"),
    "a number": ("t.json", '{"A": ["B", 3]}', ": under A: expected a dict, a list or a name, found 3"),
    "an empty name": ("t.json", '{"A": {"": {}}}', ": under A: empty name or one that is not text: ''"),
    "deep JSON": ("t.json", "[" * 100_000, ": JSON nested too deeply to read; store the taxonomy as edges"),
    "a later version": ("t.json", '{"treelabel_hierarchy": 99}', ": hierarchy stored in version 99"),
}


@pytest.mark.parametrize(("name", "content", "message"), REFUSALS.values(), ids=REFUSALS)
def test_refusals_name_file_and_line(tmp_path: Path, name: str, content: str | bytes, message: str) -> None:
    file = put(tmp_path, name, content)
    with pytest.raises(TreelabelError) as refused:
        read_taxonomy(file)
    assert f"{file}{message.format(file=file)}" in str(refused.value)


def test_a_cycle_is_printed_as_a_path_with_the_line_of_one_of_its_edges(tmp_path: Path) -> None:
    file = put(tmp_path, "t.tsv", "X\tA\nA\tB\nB\tC\nC\tA\n")
    with pytest.raises(TreelabelError) as refused:
        read_taxonomy(file)
    message = str(refused.value)
    assert any(message.startswith(f"{file}:{line}: cycle of 3 labels: ") for line in (2, 3, 4))
    shown = ("'A' -> 'B' -> 'C' -> 'A'", "'B' -> 'C' -> 'A' -> 'B'", "'C' -> 'A' -> 'B' -> 'C'")
    assert any(path in message for path in shown)


def test_an_unknown_root_is_refused_with_the_file(tmp_path: Path) -> None:
    file = put(tmp_path, "t.tsv", "A\tB\n")
    with pytest.raises(TreelabelError) as refused:
        read_taxonomy(file, root="Z")
    assert str(refused.value) == f"{file}: the root 'Z' is in no edge; the first names are 'A', 'B'"


def test_a_stored_dag_is_refused_where_a_tree_is_asked_for(tmp_path: Path) -> None:
    write_taxonomy(Hierarchy.from_edges([("A", "C"), ("B", "C")]), tmp_path / "t.json")
    with pytest.raises(TreelabelError, match=r"t\.json: this needs a tree, but .* 'C' has 2 parents"):
        read_taxonomy(tmp_path / "t.json", tree=True)


def test_a_stored_hierarchy_that_was_changed_is_refused(tmp_path: Path) -> None:
    write_taxonomy(Hierarchy.from_paths(["A > B"]), tmp_path / "t.json")
    changed = (tmp_path / "t.json").read_text().replace('"B"', '"C"')
    with pytest.raises(TreelabelError, match=r"t\.json: the stored hierarchy is damaged"):
        read_taxonomy(put(tmp_path, "t.json", changed))


def test_a_missing_taxonomy_is_refused(tmp_path: Path) -> None:
    put(tmp_path, "taxonomy.tsv", "A\tB\n")
    with pytest.raises(TreelabelError, match=r"taxonomi\.tsv: no such file; did you mean taxonomy\.tsv\?"):
        read_taxonomy(tmp_path / "taxonomi.tsv")


# Round trips

DAG = Hierarchy.from_edges(
    [("A", "D"), ("B", "D"), ("A", "C"), ("D", "E"), ("C", "E"), ("Root", "A"), ("Root", "B"), ("Root", "E")]
)
AMBIGUOUS = Hierarchy.from_paths(["Other", "A > Other", "A > Other > Other", "B > Other"])


@pytest.mark.parametrize("ending", ["tsv", "taxonomy", "csv", "txt", "json", "tsv.gz"])
def test_a_tree_comes_back_as_it_was(tmp_path: Path, ending: str) -> None:
    h = Hierarchy.from_paths(
        [*PETS, "food > a, b", 'food > say "hi"', "food > ünï 🐟", "food > x\u2028y\u2029z", "food > #1"]
    )
    write_taxonomy(h, tmp_path / f"t.{ending}")
    again = read_taxonomy(tmp_path / f"t.{ending}", tree=True)
    assert again == h
    assert again.paths() == h.paths()


@pytest.mark.parametrize("ending", ["tsv", "taxonomy", "csv", "json"])
def test_a_dag_comes_back_as_it_was(tmp_path: Path, ending: str) -> None:
    write_taxonomy(DAG, tmp_path / f"t.{ending}")
    assert read_taxonomy(tmp_path / f"t.{ending}") == DAG


@pytest.mark.parametrize("ending", ["txt", "json"])
def test_equal_names_come_back_as_they_were(tmp_path: Path, ending: str) -> None:
    write_taxonomy(AMBIGUOUS, tmp_path / f"t.{ending}")
    assert read_taxonomy(tmp_path / f"t.{ending}") == AMBIGUOUS


@pytest.mark.parametrize("names", [["Root", "A"], ["root", "<root>"], ["parent", "child"], ["[root]"]])
@pytest.mark.parametrize("ending", ["tsv", "csv", "json"])
def test_labels_called_like_the_root_or_a_column_stay_labels(tmp_path: Path, names: list[str], ending: str) -> None:
    for h in (Hierarchy.flat(names), Hierarchy.from_paths([names])):
        write_taxonomy(h, tmp_path / f"t.{ending}")
        assert read_taxonomy(tmp_path / f"t.{ending}") == h


@pytest.mark.parametrize(
    ("hierarchy", "ending", "message"),
    [
        (AMBIGUOUS, "tsv", "two labels share a name, or a name has a tab; use .json"),
        (AMBIGUOUS, "csv", "two labels share a name, or a name has a tab; use .json"),
        (Hierarchy.flat(["a\tb"]), "tsv", "two labels share a name, or a name has a tab; use .json"),
        (Hierarchy.flat(["a\nb"]), "csv", "two labels share a name, or a name has a tab; use .json"),
        (Hierarchy.flat([" a"]), "taxonomy", "two labels share a name, or a name has a tab; use .json"),
        (Hierarchy.flat(["a > b"]), "txt", "paths cannot hold this hierarchy: in 'a > b' a name contains ' > '"),
        (Hierarchy.from_paths([["a >", "b"]]), "txt", "paths cannot hold this hierarchy: in 'a > > b'"),
        (Hierarchy.flat(["#a"]), "txt", "paths cannot hold this hierarchy: in '#a'"),
        (Hierarchy.flat(["a\nb"]), "txt", "paths cannot hold this hierarchy"),
        (Hierarchy.flat([" a"]), "txt", "paths cannot hold this hierarchy"),
        (DAG, "txt", "this needs a tree, but the hierarchy is a DAG"),
        (DAG, "yaml", "t.yaml: cannot write a taxonomy with this ending; choose one of .tsv, .taxonomy, .csv, .txt"),
    ],
)
def test_what_a_form_cannot_hold_is_refused_and_no_file_is_left(
    tmp_path: Path, hierarchy: Hierarchy, ending: str, message: str
) -> None:
    with pytest.raises(TreelabelError) as refused:
        write_taxonomy(hierarchy, tmp_path / f"t.{ending}")
    assert message in str(refused.value)
    assert list(tmp_path.iterdir()) == []


@examples(60)
@given(st.integers(1, 12), st.data())
def test_any_dag_comes_back_as_it_was(tmp_path_factory: pytest.TempPathFactory, size: int, data: st.DataObject) -> None:
    above = [data.draw(st.sets(st.integers(0, node - 1), max_size=3)) if node else set() for node in range(size)]
    edges = [(f"n{parent}", f"n{node}") for node in range(size) for parent in above[node]]
    h = Hierarchy.from_edges(edges, nodes=data.draw(st.permutations([f"n{node}" for node in range(size)])))
    folder = tmp_path_factory.mktemp("any")
    for ending in ["tsv", "csv", "json"] + (["txt"] if h.is_tree else []):
        write_taxonomy(h, folder / f"t.{ending}")
        assert read_taxonomy(folder / f"t.{ending}") == h, ending


# SKOS

TURTLE = """
@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
@prefix : <http://example.org/> .
:pet a skos:Concept ; skos:prefLabel "pet"@en, "Haustier"@de ; skos:narrower :dog, :cat .
:dog a skos:Concept ; skos:prefLabel "dog"@en, "Hund"@de ; skos:altLabel "hound"@en ; skos:broader :pet .
:cat skos:prefLabel "cat"@en, "Katze"@de .
:poodle a skos:Concept ; skos:prefLabel "poodle"@en ; skos:broader :dog .
:food a skos:Concept ; skos:prefLabel "food"@en, "Essen"@de ; skos:related :pet .
"""
RDF_XML = """<?xml version="1.0"?>
<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:skos="http://www.w3.org/2004/02/skos/core#">
  <skos:Concept rdf:about="http://example.org/pet"><skos:prefLabel xml:lang="en">pet</skos:prefLabel></skos:Concept>
  <skos:Concept rdf:about="http://example.org/food"><skos:prefLabel xml:lang="en">food</skos:prefLabel></skos:Concept>
  <skos:Concept rdf:about="http://example.org/dog"><skos:prefLabel xml:lang="en">dog</skos:prefLabel>
    <skos:broader rdf:resource="http://example.org/pet"/></skos:Concept>
  <skos:Concept rdf:about="http://example.org/cat"><skos:prefLabel xml:lang="en">cat</skos:prefLabel>
    <skos:broader rdf:resource="http://example.org/pet"/></skos:Concept>
  <skos:Concept rdf:about="http://example.org/poodle"><skos:prefLabel xml:lang="en">poodle</skos:prefLabel>
    <skos:broader rdf:resource="http://example.org/dog"/></skos:Concept>
</rdf:RDF>
"""
PREFIXES = "@prefix skos: <http://www.w3.org/2004/02/skos/core#> . @prefix : <http://example.org/c/> .\n"


@pytest.mark.parametrize(("name", "content"), [("t.ttl", TURTLE), ("t.rdf", RDF_XML), ("t.xml", RDF_XML)])
def test_skos_broader_and_narrower_make_the_same_tree(tmp_path: Path, name: str, content: str) -> None:
    pytest.importorskip("rdflib")
    assert paths_of(tmp_path, name, content, tree=True) == sorted(PETS)


def test_skos_labels_come_in_the_language_asked_for_or_any_other(tmp_path: Path) -> None:
    pytest.importorskip("rdflib")
    assert paths_of(tmp_path, "t.ttl", TURTLE, language="de") == sorted(
        ["Haustier", "Haustier > Hund", "Haustier > Katze", "Haustier > Hund > poodle", "Essen"]
    )


def test_alternative_names_of_skos_are_kept_by_the_name_of_their_label(tmp_path: Path) -> None:
    pytest.importorskip("rdflib")
    more = ':cat skos:altLabel "puss"@en, "kitty"@en, "Mieze"@de ; skos:hiddenLabel "kat" .'
    file = put(tmp_path, "t.ttl", TURTLE + more)
    assert read_alternative_names(file) == {"cat": "kat; kitty; puss", "dog": "hound"}
    assert read_alternative_names(file, "de") == {"Katze": "Mieze; kat"}


def test_skos_concepts_with_one_name_are_told_apart_by_notation_or_address(tmp_path: Path) -> None:
    pytest.importorskip("rdflib")
    content = (
        PREFIXES
        + """
:1 a skos:Concept ; skos:prefLabel "other" ; skos:notation "N1" . :2 a skos:Concept ; skos:prefLabel "other" .
:3 a skos:Concept ; skos:prefLabel "same" ; skos:notation "N" .
:4 a skos:Concept ; skos:prefLabel "same" ; skos:notation "N" .
:5 a skos:Concept ; skos:notation "only a notation" . :6 a skos:Concept . <http://example.org/c#7> a skos:Concept .
"""
    )
    assert set(paths_of(tmp_path, "t.ttl", content)) == {
        "other [N1]",
        "other [2]",
        "same [N] <http://example.org/c/3>",
        "same [N] <http://example.org/c/4>",
        "only a notation",
        "6",
        "7",
    }


def test_skos_concepts_may_have_two_broader_ones(tmp_path: Path) -> None:
    pytest.importorskip("rdflib")
    file = put(tmp_path, "t.ttl", PREFIXES + ":c skos:broader :a, :b .\n")
    assert sorted(read_taxonomy(file).edges()) == [("a", "c"), ("b", "c")]
    with pytest.raises(TreelabelError, match=r"t\.ttl: not a tree: 'c' has 2 parents"):
        read_taxonomy(file, tree=True)


def test_skos_keeps_a_concept_called_root(tmp_path: Path) -> None:
    pytest.importorskip("rdflib")
    assert paths_of(tmp_path, "t.ttl", PREFIXES + ":a skos:broader :Root .\n") == ["Root", "Root > a"]


def test_skos_gives_the_same_hierarchy_whatever_the_order_of_the_file(tmp_path: Path) -> None:
    pytest.importorskip("rdflib")
    lines = [f":c{at} skos:broader :c{at // 3} .\n" for at in range(1, 30)]
    one = read_taxonomy(put(tmp_path, "one.ttl", PREFIXES + "".join(lines)))
    assert one == read_taxonomy(put(tmp_path, "two.ttl", PREFIXES + "".join(reversed(lines))))


def test_skos_may_be_compressed(tmp_path: Path) -> None:
    pytest.importorskip("rdflib")
    assert paths_of(tmp_path, "t.ttl.gz", gzip.compress(TURTLE.encode())) == sorted(PETS)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.ttl", PREFIXES + ":a skos:broader :b . :b skos:broader :a .", ": edge 2: cycle of 2 labels"),
        ("t.ttl", PREFIXES + ":a skos:broader :a .", ": edge 1: self-loop: 'a' is given as its own parent"),
        ("t.ttl", PREFIXES + ":a skos:related :b .", ": no skos:Concept in the file"),
        ("t.ttl", ":a skos:broader", ": not a vocabulary that can be read"),
        ("t.rdf", "<rdf:RDF", ": not a vocabulary that can be read"),
        ("t.rdf", "", ": not a vocabulary that can be read"),
    ],
)
def test_skos_that_is_no_hierarchy_is_refused_with_the_file(
    tmp_path: Path, name: str, content: str, message: str
) -> None:
    pytest.importorskip("rdflib")
    file = put(tmp_path, name, content)
    with pytest.raises(TreelabelError) as refused:
        read_taxonomy(file)
    assert f"{file}{message}" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_skos_without_rdflib_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rdflib", None)
    with pytest.raises(TreelabelError, match=r'reading SKOS needs rdflib: pip install "treelabel\[skos\]"'):
        read_taxonomy(put(tmp_path, "t.ttl", TURTLE))


def test_a_table_with_ids_needs_a_row_for_every_parent(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("id,name,parent_id\n1,pet,\n3,dog,9\n")
    with pytest.raises(TreelabelError, match=r"t\.csv:3: unknown parent: 'dog' has parent '9', which has no row"):
        read_taxonomy(path)


@pytest.mark.parametrize(
    ("name", "content", "names"),
    [
        ("vocab.tsv", "<http://example.org/1>\tcats\n<http://example.org/2>\tdogs\t42\n", ["cats", "dogs"]),
        ("vocab.tsv", "http://example.org/1\tcats\nhttp://example.org/2\tdogs\n", ["cats", "dogs"]),
        (
            "vocab.csv",
            "uri,label_en,label_fi\nhttp://e.org/1,cats,kissat\nhttp://e.org/2,dogs,koirat\n",
            ["cats", "dogs"],
        ),
        (
            "vocab.csv",
            "label_fi,notation,uri\nkissat,1,http://e.org/1\nkoirat,2,http://e.org/2\n",
            ["kissat", "koirat"],
        ),
    ],
)
def test_vocabularies_of_annif_are_one_level_of_labels(
    name: str, content: str, names: list[str], tmp_path: Path
) -> None:
    file = tmp_path / name
    file.write_text(content)
    h, told = read_with_summary(file, TaxonomyOptions())
    assert h.paths() == names
    assert "a vocabulary without a hierarchy" in told


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "vocab.csv",
            "uri,label_en\nhttp://e.org/1,cats\nhttp://e.org/1,cats\n",
            "vocab.csv:2: 'cats [1] <http://e.org/1>' stands on line 3, too; leave out one of them",
        ),
        ("vocab.csv", "uri,label_sv,label_fi\nhttp://e.org/1,katter,kissat\n", "no column 'label_en' for the labels"),
        (
            "vocab.csv",
            "uri,label_en\nhttp://e.org/1,cats\nhttp://e.org/2,\n",
            "vocab.csv:3: 'http://e.org/2' has no label",
        ),
    ],
)
def test_vocabularies_that_name_no_label_are_refused(name: str, content: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_text(content)
    with pytest.raises(TreelabelError, match=re.escape(message)):
        read_taxonomy(file)


def test_labels_of_a_vocabulary_with_one_name_are_told_apart_by_notation_or_uri(tmp_path: Path) -> None:
    file = tmp_path / "vocab.tsv"
    file.write_text("<http://e.org/1>\tcats\n<http://e.org/2>\tcats\tn2\n<http://e.org/3>\tdogs\n")
    assert read_taxonomy(file).names == ("cats [1]", "cats [n2]", "dogs")


def test_the_language_of_a_vocabulary_can_be_chosen_and_uris_may_have_parents(tmp_path: Path) -> None:
    file = tmp_path / "vocab.csv"
    file.write_text("uri,label_en,label_fi\nhttp://e.org/1,cats,kissat\n")
    assert read_taxonomy(file, language="fi").paths() == ["kissat"]
    edges = tmp_path / "edges.tsv"
    edges.write_text("<http://e.org/1>\t<http://e.org/2>\n")
    assert read_taxonomy(edges).names == ("<http://e.org/1>", "<http://e.org/2>")
