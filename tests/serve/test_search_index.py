from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import examples
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.serve.search_index import SearchIndex, fold

WORDS = st.text("aAbÄ é\n", max_size=5)


def slow_search(entries: list[tuple[str, int]], query: str) -> list[int]:
    """Compare the query with every name and notation."""
    folded = fold(query)
    ranked = sorted((not fold(text).startswith(folded), fold(text), node) for text, node in entries)
    return list(dict.fromkeys(node for _, text, node in ranked if folded and folded in text))


@examples(100)
@given(st.lists(WORDS.map(str.strip).filter(bool), min_size=1, max_size=8, unique=True), WORDS)
def test_names_and_notations_are_found_as_by_comparing_each(names: list[str], query: str) -> None:
    h = Hierarchy.flat(names)
    codes = [f"b{node}" if node % 3 else None for node in range(len(h))]
    index = SearchIndex(h.with_identifiers([None] * len(h), codes))
    entries = [(text, node) for node in range(len(h)) for text in (h.names[node], codes[node]) if text]
    expected = slow_search(entries, query)
    assert index.search(query, 100) == expected
    assert index.search(query, 2) == expected[:2]


def test_accents_case_and_blanks_do_not_matter() -> None:
    index = SearchIndex(Hierarchy.flat(["Crème  Brûlée", "creme", "ice cream", "Straße"]))
    assert index.search("CREME B", 5) == [0]
    assert index.search("creme", 5) == [1, 0]
    assert index.search("strasse", 5) == [3]
    assert index.search(" \n", 5) == []
