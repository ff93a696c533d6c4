"""HTML of notebooks: whatever stands in names and texts stays text, in a few rows, and nothing is loaded."""

from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from treelabel.core.html_tables import MOST_ROWS, html_box, html_sentence, html_table

TAGS = {"div", "b", "table", "tbody", "tr", "th", "td", "p"}


class Seen(HTMLParser):
    """Collect the tags, the attributes and the text of a piece of HTML; tags must be closed in order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.open.append(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@given(st.lists(st.text(max_size=20), min_size=1, max_size=4))
def test_any_text_stays_text(words: list[str]) -> None:
    hostile = [f'{word}<script src="//x"></script>" onload="x' for word in words]
    seen = Seen(html_box(hostile[0], html_sentence(hostile[0]), html_table([hostile], hostile), notes=hostile))
    assert set(seen.tags) <= TAGS
    assert seen.attributes <= {"style", "colspan"}
    assert sum("<script" in text for text in seen.texts) == 2 + 3 * len(words)


def test_colours_are_those_of_the_page_and_nothing_is_loaded() -> None:
    html = html_box("title", html_table([("a", "b")], ("c", "d"), 9), notes=["note"])
    assert not any(word in html for word in ("url(", "http", "color:", "src=", "#"))


def test_rows_that_are_left_out_are_counted() -> None:
    rows = [(row, row) for row in range(MOST_ROWS + 1_003)]
    assert html_table(rows).count("<tr") == MOST_ROWS + 1
    assert "1,003 more" in html_table(rows)
    assert "7 more" in html_table(rows[:3], total=10)
    assert "more" not in html_table(rows[:MOST_ROWS])


def test_long_and_unprintable_cells_are_shortened_and_escaped() -> None:
    seen = Seen(html_table([("x" * 10_000, "\u202e\x1b[2J")]))
    assert len(seen.texts[0]) <= 300
    assert seen.texts[1] == "\\u202e\\u001b[2J"
