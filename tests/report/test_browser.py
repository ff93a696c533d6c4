"""The page in a real browser: it says nothing in the console, asks for nothing, and does what it promises."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tools.browser import COMMANDS, Page, browser_page, find_browser

from tests.report.examples import SCRIPT
from treelabel import Dataset, Hierarchy, Scores, write_report

pytestmark = pytest.mark.skipif(
    find_browser() is None, reason=f"no browser is installed: none of {', '.join(COMMANDS)}"
)

WIDE = [f"child {place:03}" for place in range(450)]
TREE = Hierarchy.from_paths(
    [["top", SCRIPT], ["top", "middle", "deep <b>leaf</b>"], ["other", "last"], *(["wide", name] for name in WIDE)]
)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    leaves = [TREE.names[node] for node in TREE.leaves]
    rows = [[leaves[at]] for at in rng.integers(0, len(leaves), 60)] + [[SCRIPT], ["deep <b>leaf</b>"]]
    truth = Dataset.of([f"{SCRIPT} {row}" for row in range(len(rows))], rows, TREE)
    scores = {
        SCRIPT: Scores(TREE, rng.random((len(rows), len(TREE)))).coherent(),
        "second": Scores.from_leaves(TREE, ["last", SCRIPT], rng.dirichlet([1, 1], len(rows))),
    }
    path = tmp_path_factory.mktemp("browser") / "report.html"
    write_report(path, truth, scores, title=SCRIPT)
    return path


@pytest.fixture(scope="module")
def browser() -> Iterator[Page]:
    with browser_page() as page:
        yield page


@pytest.fixture
def page(browser: Page, report: Path) -> Page:
    browser.show(1200, 900)
    browser.requests.clear()
    browser.problems.clear()
    browser.run("try { localStorage.clear() } catch { null }")
    browser.open(report)
    return browser


def type_query(page: Page, query: str) -> None:
    """Type into the search field, and wait as long as the page does."""
    page.run(f"document.getElementById('tree-query').value = {query!r}")
    page.run("document.getElementById('tree-query').dispatchEvent(new Event('input'))")
    page.run("new Promise((done) => setTimeout(done, 400))")


def test_nothing_is_asked_for_and_nothing_goes_wrong(page: Page, report: Path) -> None:
    assert page.run("document.title") == SCRIPT
    page.run("new Promise((done) => setTimeout(done, 300))")
    assert [address for address in page.requests if not address.startswith("data:")] == [report.as_uri()]
    assert page.problems == []
    # The check can fail: a request that the page's policy forbids is noted.
    page.run("{ const image = new Image(); image.src = 'http://127.0.0.1:9/x.png'; } null")
    page.run("new Promise((done) => setTimeout(done, 300))")
    assert any("127.0.0.1" in problem for problem in page.problems)


def test_scripts_of_users_do_not_run(page: Page) -> None:
    assert page.run("document.querySelectorAll('script').length") == 2
    assert page.run("document.querySelectorAll('main b:not([aria-hidden]):not(.f1 b)').length") == 0
    assert SCRIPT in page.run("document.querySelector('h1').textContent")
    # Even a script that somebody got into the page would not run.
    page.run(
        "{ const s = document.createElement('script'); s.textContent = 'window.bad = 1'; document.body.append(s) }"
    )
    assert page.run("window.bad === undefined")


def test_the_tree_opens_and_closes(page: Page) -> None:
    names = "[...document.querySelectorAll('#tree > li > .node > :first-child')].map((one) => one.textContent)"
    assert page.run(names) == ["top", "other", "wide"]
    button = "document.querySelector('#tree > li:first-child button')"
    assert page.run(f"{button}.getAttribute('aria-expanded')") == "false"
    page.run(f"{button}.click()")
    assert page.run(f"{button}.getAttribute('aria-expanded')") == "true"
    inner = "[...document.querySelectorAll('#tree > li:first-child > ul > li > .node > :first-child')]"
    assert sorted(page.run(f"{inner}.map((one) => one.textContent)")) == sorted([SCRIPT, "middle"])
    assert "true" in page.run("document.querySelector('#tree .counts').textContent")
    page.run(f"{button}.click()")
    assert page.run(f"{inner}.length") == 0


def test_a_wide_branch_shows_some_of_its_labels_at_a_time(page: Page) -> None:
    page.run("document.querySelector('#tree > li:last-child button').click()")
    shown = "document.querySelectorAll('#tree > li:last-child > ul > li').length"
    assert page.run(shown) == 200
    page.run("document.querySelector('#tree .more').click()")
    page.run("document.querySelector('#tree .more').click()")
    assert page.run(shown) == 450
    assert page.run("document.querySelector('#tree .more') === null")


@pytest.mark.parametrize(
    ("query", "path"), [("EEP <B", "top > middle > deep <b>leaf</b>"), ("d 449", "wide > child 449")]
)
def test_search_finds_a_label_and_opens_the_tree_at_it(page: Page, query: str, path: str) -> None:
    type_query(page, query)
    assert page.run("[...document.querySelectorAll('#tree-found button')].map((one) => one.textContent)") == [path]
    page.run("document.querySelector('#tree-found button').click()")
    assert page.run("document.querySelector('#tree .found > :first-child').textContent") == path.rpartition(" > ")[2]


def test_a_label_that_is_not_there_is_not_found(page: Page) -> None:
    type_query(page, "zzz")
    assert page.run("document.getElementById('tree-found').textContent") == "No label has this in its name."


def test_labels_can_be_ordered_and_systems_changed(page: Page) -> None:
    change = "{{ const s = document.getElementById('{0}'); s.value = '{1}'; s.dispatchEvent(new Event('change')) }}"
    values = "[...document.querySelectorAll('#tree .f1 span')].map((one) => parseFloat(one.textContent))"
    page.run(change.format("tree-order", "worst"))
    first = page.run(values)
    assert first == sorted(first)
    page.run(change.format("tree-system", "1"))
    assert page.run("document.getElementById('tree-system').selectedOptions[0].textContent") == "second"
    assert page.run(values) != first


def test_dark_and_light(page: Page) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    line = "getComputedStyle(document.querySelector('figure svg text')).fill"
    light = page.run(ground), page.run(line)
    page.show(1200, 900, "dark")
    dark = page.run(ground), page.run(line)
    assert light[0] != dark[0]
    assert light[1] != dark[1]
    # The button goes through auto, light and dark, whatever the system asks for.
    button = "document.getElementById('theme')"
    assert page.run(f"{button}.textContent") == "Theme: auto"
    page.run(f"{button}.click()")
    assert (page.run(f"{button}.textContent"), page.run(ground)) == ("Theme: light", light[0])
    page.show(1200, 900, "light")
    page.run(f"{button}.click()")
    assert (page.run(f"{button}.textContent"), page.run(ground)) == ("Theme: dark", dark[0])
    page.run(f"{button}.click()")
    assert page.run(ground) == light[0]


@pytest.mark.parametrize("width", [360, 390, 768, 1400])
def test_no_width_makes_the_page_scroll_sideways(page: Page, width: int) -> None:
    page.show(width, 800)
    page.run("document.querySelectorAll('details').forEach((one) => { one.open = true })")
    assert page.run("document.documentElement.scrollWidth") <= width


def test_text_has_enough_contrast(page: Page) -> None:
    script = """(() => {
      const light = (colour) => {
        const [r, g, b] = colour.match(/[\\d.]+/g).map(Number).map((v) => v / 255)
          .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
      };
      const paper = light(getComputedStyle(document.querySelector('section')).backgroundColor);
      return Math.min(...['p', '.small', 'caption', 'figcaption', 'summary', '.counts', 'th'].map((what) => {
        const ink = light(getComputedStyle(document.querySelector(`main ${what}`)).color);
        return (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
      }));
    })()"""
    for scheme in ("light", "dark"):
        page.show(1200, 900, "dark" if scheme == "dark" else "light")
        assert page.run(script) >= 4.5


def test_it_prints(page: Page, tmp_path: Path) -> None:
    page.print_to(tmp_path / "report.pdf")
    assert (tmp_path / "report.pdf").read_bytes().startswith(b"%PDF")
