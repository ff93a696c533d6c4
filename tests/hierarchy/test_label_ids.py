"""Labels as people write them: names, paths, lists of both; and back."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treelabel import Hierarchy, TreelabelError
from treelabel.hierarchy.label_ids import SEPARATORS, UnknownLabelError, decode, encode, find_label
from treelabel.hierarchy.label_matrices import from_ids

PETS = Hierarchy.from_paths(["pet > dog > poodle", "pet > cat", "food > hot dog"])
OTHERS = Hierarchy.from_paths(["A > Other", "B > Other", "B > C > Other", "D > C > Other"])
# poodle is a dog and a show animal, both below pet; dog is also below wolf.
DAG = Hierarchy.from_edges(
    [("pet", "dog"), ("wolf", "dog"), ("pet", "show animal"), ("dog", "poodle"), ("show animal", "poodle")]
)


def path(hierarchy: Hierarchy, node: int) -> str:
    return hierarchy.paths([node])[0]


@pytest.mark.parametrize("name", ["poodle", "dog", "pet", "hot dog", " cat "])
def test_a_name_is_found_at_any_depth_whatever_space_is_around_it(name: str) -> None:
    assert PETS.names[find_label(PETS, name)] == name.strip()


@pytest.mark.parametrize("separator", SEPARATORS)
def test_a_full_path_is_found_with_every_usual_separator(separator: str) -> None:
    label = separator.join(["pet", "dog", "poodle"])
    assert path(PETS, find_label(PETS, label)) == "pet > dog > poodle"
    assert path(PETS, find_label(PETS, label, sep=separator)) == "pet > dog > poodle"


@pytest.mark.parametrize(
    "label", ["pet>dog", "pet >dog", "pet/dog", "pet  /  dog", "pet|dog", "pet\\dog", " pet > dog "]
)
def test_spacing_around_separators_does_not_matter(label: str) -> None:
    assert path(PETS, find_label(PETS, label)) == "pet > dog"


def test_an_unusual_separator_can_be_named() -> None:
    assert path(PETS, find_label(PETS, "pet.dog.poodle", sep=".")) == "pet > dog > poodle"
    with pytest.raises(UnknownLabelError, match=r"unknown label 'pet\.dog\.poodle'"):
        find_label(PETS, "pet.dog.poodle")


def test_with_a_named_separator_no_other_one_splits() -> None:
    with pytest.raises(UnknownLabelError, match="unknown label 'pet/dog'"):
        find_label(PETS, "pet/dog", sep=" > ")


@pytest.mark.parametrize("label", [["pet", "dog", "poodle"], ("pet", "dog", "poodle"), ["dog", "poodle"], [" poodle "]])
def test_a_list_is_a_path(label: list[str] | tuple[str, ...]) -> None:
    assert path(PETS, find_label(PETS, label)) == "pet > dog > poodle"


def test_the_end_of_a_path_is_enough_where_it_is_unique() -> None:
    assert path(OTHERS, find_label(OTHERS, "B > Other")) == "B > Other"
    assert path(OTHERS, find_label(OTHERS, "D > C > Other")) == "D > C > Other"
    assert path(PETS, find_label(PETS, "dog > poodle")) == "pet > dog > poodle"


def test_a_full_path_goes_before_the_same_names_at_the_end_of_a_longer_one() -> None:
    h = Hierarchy.from_paths(["B > C", "A > B > C"])
    assert path(h, find_label(h, "B > C")) == "B > C"
    assert path(h, find_label(h, "A > B > C")) == "A > B > C"


def test_a_top_label_is_found_by_its_name_though_deeper_ones_share_it() -> None:
    # A full path of one name: there is no other way to write it.
    h = Hierarchy.from_paths(["Other", "A > Other", "B > Other"])
    assert path(h, find_label(h, "Other")) == "Other"
    assert path(h, find_label(h, ["Other"])) == "Other"
    assert path(h, find_label(h, "A > Other")) == "A > Other"


@pytest.mark.parametrize("label", ["pet > dog", "wolf > dog", "dog"])
def test_in_a_dag_every_way_to_a_node_names_it(label: str) -> None:
    assert DAG.names[find_label(DAG, label)] == "dog"


@pytest.mark.parametrize(
    "label", ["pet > dog > poodle", "wolf > dog > poodle", "pet > show animal > poodle", "show animal > poodle"]
)
def test_in_a_dag_long_paths_may_go_through_any_parent(label: str) -> None:
    assert DAG.names[find_label(DAG, label)] == "poodle"


def test_in_a_dag_a_path_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UnknownLabelError, match="unknown path 'wolf > show animal > poodle'"):
        find_label(DAG, "wolf > show animal > poodle")


def test_a_name_with_a_separator_in_it_wins_over_the_path() -> None:
    h = Hierarchy.from_paths([["R/D", "x"], ["R", "D"]])
    assert path(h, find_label(h, "R/D")) == "R/D"
    assert path(h, find_label(h, "R > D")) == "R > D"
    assert path(h, find_label(h, "R/D > x")) == "R/D > x"


def test_one_separator_may_stand_in_a_name_and_another_between_names() -> None:
    h = Hierarchy.from_paths([["T", "a > c"], ["U", "c"]])
    assert h.path_names(find_label(h, "T / a > c")) == ["T", "a > c"]
    assert h.path_names(find_label(h, "U / c")) == ["U", "c"]


def test_an_ambiguous_name_is_refused_with_all_candidates() -> None:
    with pytest.raises(UnknownLabelError) as refused:
        find_label(OTHERS, "Other")
    assert str(refused.value) == (
        "'Other' names 4 labels: 'A > Other', 'B > Other', 'B > C > Other', 'D > C > Other'; give the full path"
    )


def test_an_ambiguous_end_of_a_path_is_refused_with_its_candidates_only() -> None:
    with pytest.raises(UnknownLabelError) as refused:
        find_label(OTHERS, "C > Other")
    assert str(refused.value) == ("'C > Other' names 2 labels: 'B > C > Other', 'D > C > Other'; give the full path")


def test_a_misspelled_name_gets_a_hint() -> None:
    with pytest.raises(UnknownLabelError) as refused:
        find_label(PETS, "podle")
    assert str(refused.value) == "unknown label 'podle'; did you mean 'poodle'?"


def test_a_name_like_no_other_is_refused_without_a_hint() -> None:
    with pytest.raises(UnknownLabelError, match=r"^unknown label 'xyzzy'; check the name and the taxonomy$"):
        find_label(PETS, "xyzzy")


def test_a_path_to_the_wrong_place_says_where_the_name_stands() -> None:
    with pytest.raises(UnknownLabelError) as refused:
        find_label(PETS, "food > poodle")
    assert str(refused.value) == "unknown path 'food > poodle': 'poodle' stands at 'pet > dog > poodle'"


@pytest.mark.parametrize("label", ["", "  ", [], "pet > ", "> dog"])
def test_labels_with_nothing_in_them_are_unknown(label: str | list[str]) -> None:
    with pytest.raises(UnknownLabelError):
        find_label(PETS, label)


def test_encode_takes_names_lists_and_paths_side_by_side() -> None:
    rows = ["dog", ["dog", "cat"], [["pet", "cat"], "food > hot dog"], "pet/dog/poodle", ("pet", "cat")]
    assert decode(PETS, encode(PETS, rows)) == [["dog"], ["dog", "cat"], ["cat", "hot dog"], ["poodle"], ["cat"]]


def test_encode_keeps_empty_rows() -> None:
    labels = encode(PETS, [None, [], "cat", ()])
    assert labels.shape == (4, len(PETS))
    assert decode(PETS, labels) == [[], [], ["cat"], []]


def test_encode_of_nothing_has_no_rows() -> None:
    assert encode(PETS, []).shape == (0, len(PETS))


def test_encode_does_not_close_the_labels() -> None:
    assert encode(PETS, ["poodle"]).nnz == 1


def test_encode_gives_sorted_boolean_rows_without_duplicates() -> None:
    labels = encode(PETS, [["poodle", "pet", "poodle", "cat"]])
    assert labels.dtype == np.bool_
    assert labels.indices.dtype == np.int32
    assert labels.indices.tolist() == sorted({PETS.names.index(name) for name in ("poodle", "pet", "cat")})


def test_encode_takes_numpy_rows() -> None:
    assert decode(PETS, encode(PETS, [np.array(["dog", "cat"])])) == [["dog", "cat"]]


def test_encode_passes_the_separator_on() -> None:
    assert decode(PETS, encode(PETS, ["pet.cat"], sep=".")) == [["cat"]]


def test_encode_names_the_row_of_an_unknown_label() -> None:
    with pytest.raises(UnknownLabelError, match=r"^row 2: unknown label 'cta'; did you mean 'cat'\?$"):
        encode(PETS, ["cat", None, ["dog", "cta"]])


@pytest.mark.parametrize("row", [3, [3], float("nan"), [["pet", 3]], [None], [[]], [""]])
def test_encode_refuses_what_is_no_label_with_row_and_value(row: object) -> None:
    with pytest.raises(TreelabelError) as refused:
        encode(PETS, ["cat", row])
    assert str(refused.value).startswith("row 1: ")
    assert repr(row) in str(refused.value)


def test_decode_gives_names_or_full_paths() -> None:
    labels = encode(PETS, [["poodle", "hot dog"], [], "cat"])
    assert decode(PETS, labels) == [["hot dog", "poodle"], [], ["cat"]]
    assert decode(PETS, labels, paths=True) == [["food > hot dog", "pet > dog > poodle"], [], ["pet > cat"]]
    assert decode(PETS, labels, paths=True, sep="/") == [["food/hot dog", "pet/dog/poodle"], [], ["pet/cat"]]


def test_decode_of_nothing_is_nothing() -> None:
    assert decode(PETS, encode(PETS, [])) == []
    assert decode(PETS, encode(PETS, [None, None])) == [[], []]


def test_ragged_ids_make_a_sorted_matrix_without_duplicates() -> None:
    labels = from_ids([0, 3, 3, 4], [4, 1, 4, 0], 5)
    assert labels.toarray().astype(int).tolist() == [[0, 1, 0, 0, 1], [0, 0, 0, 0, 0], [1, 0, 0, 0, 0]]


PATHS = st.lists(st.lists(st.sampled_from(["A", "B", "C"]), min_size=1, max_size=4), min_size=1, max_size=12)


@given(PATHS, st.data())
def test_full_paths_name_every_node_of_a_tree_even_where_names_repeat(
    paths: list[list[str]], data: st.DataObject
) -> None:
    h = Hierarchy.from_paths(paths)
    separator = data.draw(st.sampled_from(SEPARATORS))
    rows = data.draw(st.lists(st.lists(st.integers(0, len(h) - 1), max_size=4), max_size=6))
    labels = encode(h, [h.paths(row, separator) if row else None for row in rows])
    assert [set(labels[[at]].indices.tolist()) for at in range(len(rows))] == [set(row) for row in rows]
    assert (encode(h, decode(h, labels, paths=True)) != labels).nnz == 0
