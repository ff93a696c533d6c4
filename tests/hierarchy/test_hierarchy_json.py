"""A hierarchy as JSON: back bit for bit, and damaged files refused before any compiled loop sees them."""

import json
from typing import Any

import pytest
from hypothesis import given

from tests.strategies import Drawn, hierarchies
from treelabel.core.errors import TreelabelError
from treelabel.hierarchy import Hierarchy, hierarchy_from_json, hierarchy_to_json


@given(hierarchies())
def test_a_stored_hierarchy_comes_back_with_the_same_numbers(drawn: Drawn) -> None:
    hierarchy = drawn.fast
    back = hierarchy_from_json(hierarchy_to_json(hierarchy), "here")
    assert back == hierarchy
    assert back.names == hierarchy.names
    assert back.parent_idx.tolist() == hierarchy.parent_idx.tolist()


@pytest.mark.parametrize(
    "change",
    [
        {"parents": [7, 0]},
        {"parents": [-2, 0]},
        {"parents": [-1]},
        {"parents": [-1, "a"]},
        {"parents": [-1, 10**20]},
        {"parents": None},
        {"names": ["A", "C"]},
        {"names": ["A", None]},
        {"names": 3},
        {"fingerprint": ""},
        {"fingerprint": None},
    ],
    ids=str,
)
def test_a_damaged_one_is_refused_by_name_of_the_file(change: dict[str, Any]) -> None:
    stored = json.loads(hierarchy_to_json(Hierarchy.from_paths(["A > B"])))
    with pytest.raises(TreelabelError, match=r"scores\.npz|name"):
        hierarchy_from_json(json.dumps(stored | change), "scores.npz")


@pytest.mark.parametrize("text", ["", "[]", "{}", "3", '{"treelabel_hierarchy": 1}'])
def test_something_else_is_refused(text: str) -> None:
    with pytest.raises(TreelabelError, match="damaged"):
        hierarchy_from_json(text, "here")


def test_a_newer_version_is_refused() -> None:
    stored = json.loads(hierarchy_to_json(Hierarchy.from_paths(["A > B"])))
    with pytest.raises(TreelabelError, match="version 2"):
        hierarchy_from_json(json.dumps(stored | {"treelabel_hierarchy": 2}), "here")
