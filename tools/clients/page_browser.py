"""What a person does on the web page, in a browser: each check is a function; those that fail are named."""

import argparse
import json
import re
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, expect, sync_playwright

TEXT = "effervescent beverage artificially charged with carbon dioxide"
PAGES = ("/", "/page/review", "/page/model", "/page/taxonomy", "/page/jobs")
CHOSEN = ".step.chosen > details > summary > .name, .step.chosen > .leaf > .name"
WIDE, PHONE = (1240, 900), (390, 844)
# Time for anything to appear, on a busy machine too.
SECONDS = 60
# Elements on the page of a tree of 100,000 labels: no more than are looked at.
MOST_ELEMENTS = 3_000


@dataclass
class Visit:
    """A browser, the services, and what went wrong on the pages so far."""

    browser: Browser
    address: str
    guarded: str
    token: str
    state: Path
    axe: str
    problems: list[str] = field(default_factory=list)
    times: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def page(self, size: tuple[int, int] = WIDE, scheme: str = "light", scripts: bool = True) -> Iterator[Page]:
        """Open a window; what its console says and each request to elsewhere is a problem."""
        context = self.browser.new_context(
            viewport={"width": size[0], "height": size[1]}, color_scheme=scheme, java_script_enabled=scripts
        )
        page = context.new_page()
        page.set_default_timeout(SECONDS * 1000)
        page.on("console", lambda message: self.problems.append(f"console: {message.text} at {page.url}"))
        page.on("pageerror", lambda error: self.problems.append(f"error: {error} at {page.url}"))
        page.on("request", self._look_at)
        try:
            yield page
        finally:
            context.close()

    def _look_at(self, request: Any) -> None:
        if not request.url.startswith((self.address, self.guarded, "blob:")):
            self.problems.append(f"request to {request.url}")

    def ask(self, page: Page, text: str = TEXT, model: str = "nouns") -> None:
        """Ask for suggestions."""
        page.goto(f"{self.address}/?model={model}")
        page.fill("#text", text)
        page.click("#try button.primary")
        page.wait_for_selector(".suggestions")

    def journal(self, model: str) -> list[dict[str, Any]]:
        """Read the journal of a model from disk."""
        file = self.state / model / "journal.jsonl"
        lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        return [json.loads(line) for line in lines]

    def serious(self, page: Page) -> list[str]:
        """List what axe finds that is serious or worse."""
        page.evaluate(self.axe)
        result = page.evaluate("axe.run()")
        return [
            f"{each['id']} at {page.url}: {[node['html'][:120] for node in each['nodes'][:3]]}"
            for each in result["violations"]
            if each["impact"] in ("serious", "critical")
        ]


def check_rules_change_the_decision_and_not_the_scores(visit: Visit) -> None:
    """Rules change the decision and not the scores."""
    with visit.page() as page:
        visit.ask(page)
        scores = page.locator(".suggestions .value").all_inner_texts()
        decisions = set()
        for radio in page.locator(".rule input").all():
            radio.check()
            decisions.add(" > ".join(page.locator(CHOSEN).all_inner_texts()))
            assert page.locator(".suggestions .value").all_inner_texts() == scores
        assert len(decisions) >= 3, decisions
        page.fill("[name=unknown]", "1")
        expect(page.locator("#result h2")).to_have_text("Unknown")
        page.fill("[name=other]", "top_k@2")
        page.fill("[name=unknown]", "0")
        expect(page.locator(".rule", has_text="top_k@2").locator("input")).to_be_checked()


def check_words_are_highlighted_for_each_step(visit: Visit) -> None:
    """Words are highlighted for each step."""
    with visit.page() as page:
        visit.ask(page)
        assert page.locator("#read mark").count() > 0
        page.locator(".step summary").first.hover()
        lit = page.locator("#read mark.lit").all_inner_texts()
        assert lit
        assert {word.lower() for word in lit} == set(
            page.locator(".step .words").first.locator("mark").all_inner_texts()
        )


def check_one_click_accepts_corrects_and_marks_unknown(visit: Visit) -> None:
    """One click accepts corrects and marks unknown."""
    before = len(visit.journal("nouns"))
    with visit.page() as page:
        for number, button in enumerate((".accept", ".suggestions button.pick >> nth=2", "#feedback [value='']")):
            visit.ask(page, f"{TEXT}, number {number}")
            page.locator(button).first.click()
            expect(page.locator(".saved")).to_be_visible()
    accepted, corrected, unknown = visit.journal("nouns")[before:]
    assert accepted["labels"] == [" > ".join(path) for path in accepted["predicted"]], accepted
    assert len(corrected["labels"]) == 1, corrected
    assert corrected["labels"] != accepted["labels"], corrected
    assert (unknown["labels"], unknown["text"]) == ([], f"{TEXT}, number 2")


def check_a_correction_needs_the_keyboard_alone(visit: Visit) -> None:
    """A correction needs the keyboard alone."""
    before = len(visit.journal("nouns"))
    with visit.page() as page:
        page.goto(visit.address)
        page.keyboard.press("Tab")
        while page.evaluate("document.activeElement.id") != "text":
            page.keyboard.press("Tab")
        page.keyboard.type(TEXT)
        page.keyboard.press("Control+Enter")
        page.wait_for_selector(".suggestions")
        for _ in range(200):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.id") == "label-try":
                break
        page.keyboard.type("winx")
        expect(page.locator(".matches")).to_have_text("No label has this in its name.")
        page.keyboard.press("Backspace")
        page.wait_for_selector("[role=option]")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowDown")
        active = page.locator("#label-try").get_attribute("aria-activedescendant")
        chosen = page.locator(f"#{active}").inner_text()
        page.keyboard.press("Enter")
        page.keyboard.press("Enter")
        expect(page.locator(".saved")).to_be_focused()
    entry = visit.journal("nouns")[before]
    assert (entry["labels"], entry["source"]) == ([chosen], "page")


def check_hostile_names_and_texts_are_inert(visit: Visit) -> None:
    """Hostile names and texts are inert."""
    text = "<img src=x onerror=window.hacked=3><script>window.hacked=4</script>{{7*7}}"
    with visit.page() as page:
        visit.ask(page, text, "hostile")
        page.locator("#label-try").type("s")
        page.wait_for_selector("[role=option]")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Enter")
        page.keyboard.press("Enter")
        expect(page.locator(".saved")).to_be_visible()
        assert page.locator("#read").inner_text() == text
        for path in PAGES[1:]:
            page.goto(f"{visit.address}{path}?model=hostile&q=s")
            assert page.locator("main img, main script, main b").count() == 0, path
            assert page.evaluate("window.hacked") is None
        page.goto(f"{visit.address}/?model=hostile")
        assert page.evaluate("window.hacked") is None


def check_a_tree_of_many_labels_stays_quick(visit: Visit) -> None:
    """A tree of many labels stays quick."""
    with visit.page() as page:
        page.goto(f"{visit.address}/page/taxonomy?model=large")
        visit.times["load the taxonomy"] = page.evaluate(
            "performance.timing.loadEventEnd - performance.timing.navigationStart"
        )
        start = time.perf_counter()
        page.locator("[data-open]").first.click()
        page.wait_for_selector("[data-tree] ul [data-open]")
        page.locator("[data-tree] ul [data-open]").first.click()
        page.wait_for_selector("[data-tree] ul ul .leaf")
        visit.times["open two levels"] = 1000 * (time.perf_counter() - start)
        assert page.evaluate("document.querySelectorAll('*').length") < MOST_ELEMENTS
        visit.ask(page, "word3 text", "large")
        start = time.perf_counter()
        page.locator("#label-try").type("topic 98765")
        expect(page.locator("[role=option]")).to_have_count(1)
        visit.times["type 11 letters and see the label"] = 1000 * (time.perf_counter() - start)
        assert page.evaluate("document.querySelectorAll('*').length") < MOST_ELEMENTS


def check_a_file_comes_back_with_labels(visit: Visit) -> None:
    """A file comes back with labels."""
    with visit.page() as page:
        page.goto(visit.address)
        content = b"id,text,price\n7,a large wild cat,3\n8,a tall plant with a trunk,4\n"
        page.set_input_files("#file", {"name": "shop list.csv", "mimeType": "text/csv", "buffer": content})
        with page.expect_download() as waited:
            page.locator("#file-state a").click()
        lines = Path(waited.value.path()).read_text(encoding="utf-8").splitlines()
        assert waited.value.suggested_filename == "shop_list-labelled.csv"
        assert lines[0].startswith("id,text,price,predicted,path,p,level1"), lines
        assert len(lines) == 3, lines
        page.set_input_files("#file", {"name": "shop.csv", "mimeType": "text/csv", "buffer": b""})
        expect(page.locator("#file-state")).to_contain_text("the file is empty")
    # The refusal is no surprise.
    visit.problems[:] = [each for each in visit.problems if "422" not in each]


def check_texts_are_reviewed_in_order(visit: Visit) -> None:
    """Texts are reviewed in order."""
    before = len(visit.journal("nouns"))
    with visit.page() as page:
        page.goto(f"{visit.address}/page/review?model=nouns")
        first = page.locator(".queued").first
        text = first.locator("blockquote").inner_text()
        first.locator("button").first.click()
        expect(page.locator(".saved")).to_have_count(1)
        assert page.evaluate("document.activeElement.closest('.queued') !== null")
        page.reload()
        assert page.locator(".queued blockquote").first.inner_text() != text
    assert visit.journal("nouns")[before]["text"].split() == text.split()


def check_a_model_learns_and_goes_back(visit: Visit) -> None:
    """A model learns and goes back."""
    with visit.page() as page:
        visit.ask(page, "a drink of fermented zibbleberries", "memory")
        page.locator("#label-try").type("wine")
        page.wait_for_selector("[role=option]")
        page.keyboard.press("Enter")
        page.keyboard.press("Enter")
        expect(page.locator(".saved")).to_be_visible()
        page.goto(f"{visit.address}/page/jobs?model=memory")
        page.get_by_role("button", name="Learn from the journal").click()
        promote = page.get_by_role("button", name="Promote")
        expect(page.locator("#jobs")).to_contain_text(re.compile("done|failed"), timeout=5 * SECONDS * 1000)
        assert "failed" not in page.locator("#jobs").inner_text(), page.locator("#jobs").inner_text()
        promote.click()
        rollback = page.get_by_role("button", name="Roll back")
        rollback.wait_for()
        rollback.click()
        promote.wait_for()


def check_a_token_opens_the_page(visit: Visit) -> None:
    """A token opens the page."""
    with visit.page() as page:
        page.goto(f"{visit.guarded}/page/model")
        assert "nouns" not in page.content()
        page.fill("#token", "a-wrong-token-indeed")
        page.keyboard.press("Enter")
        expect(page.locator("#token-problem")).to_contain_text("does not know")
        page.fill("#token", visit.token)
        page.keyboard.press("Enter")
        expect(page.locator("h1")).to_have_text("nouns")
        page.goto(visit.guarded)
        page.fill("#text", TEXT)
        page.click("#try button.primary")
        page.locator(".accept").click()
        expect(page.locator(".saved")).to_be_visible()
    visit.problems[:] = [each for each in visit.problems if "401" not in each]


def check_it_works_without_scripts(visit: Visit) -> None:
    """It works without scripts."""
    before = len(visit.journal("nouns"))
    with visit.page(scripts=False) as page:
        page.goto(visit.address)
        page.fill("#text", TEXT)
        page.click("#try button.primary")
        page.locator(".rule input").nth(1).check()
        page.get_by_role("button", name="Decide by this rule").click()
        assert page.locator(".rule input").nth(1).is_checked()
        page.locator("#label-try").fill("wine")
        page.locator("#feedback [value=label]").click()
        expect(page.locator("h1")).to_have_text("Saved")
        page.goto(f"{visit.address}/page/taxonomy")
        page.locator("[data-tree] a").first.click()
        assert page.locator(".trail").count() == 1
    assert visit.journal("nouns")[before]["labels"][0].endswith("wine")


def check_pages_are_accessible_and_fit_a_phone(visit: Visit) -> None:
    """Pages are accessible and fit a phone."""
    serious: list[str] = []
    for size, scheme in ((WIDE, "light"), (WIDE, "dark"), (PHONE, "light")):
        with visit.page(size, scheme) as page:
            for path in PAGES:
                page.goto(f"{visit.address}{path}")
                if path == "/":
                    visit.ask(page)
                    page.locator("#label-try").type("wi")
                    page.wait_for_selector("[role=option]")
                    page.keyboard.press("ArrowDown")
                if path == "/page/taxonomy":
                    page.locator("[data-open]").first.click()
                    page.wait_for_selector("[data-tree] ul li")
                    page.fill("#q", "cat")
                    page.wait_for_selector("#matches li")
                serious += visit.serious(page)
                width = page.evaluate("document.documentElement.scrollWidth")
                assert width <= size[0], f"{path} is {width} pixels wide on a screen of {size[0]}"
    assert not serious, "\n".join(dict.fromkeys(serious))


def take_pictures(visit: Visit, folder: Path) -> None:
    """Save the pictures of the docs."""
    views = (
        ("serve-light", WIDE, "light", 1400),
        ("serve-dark", WIDE, "dark", 1400),
        ("serve-phone", PHONE, "light", 2100),
    )
    for name, size, scheme, height in views:
        with visit.page(size, scheme) as page:
            visit.ask(page)
            page.locator(".rule input").nth(3).check()
            page.evaluate("document.activeElement.blur(); scrollTo(0, 0)")
            page.mouse.move(0, 0)
            clip = {"x": 0, "y": 0, "width": size[0], "height": height}
            page.screenshot(path=folder / f"{name}.png", full_page=True, clip=clip)
            if scheme == "light" and size == WIDE:
                page.goto(f"{visit.address}/page/review?model=nouns")
                page.screenshot(path=folder / "serve-review.png", clip={**clip, "height": 900})


def main() -> int:
    """Run all checks; print which fail."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    for name in ("browser", "axe", "address", "guarded", "token", "state"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--pictures", type=Path)
    parser.add_argument("--only", default="", help="a part of the names of checks")
    asked = parser.parse_args()
    failed = 0
    expect.set_options(timeout=SECONDS * 1000)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=asked.browser, args=["--no-sandbox"])
        axe = Path(asked.axe).read_text(encoding="utf-8")
        visit = Visit(browser, asked.address, asked.guarded, asked.token, Path(asked.state), axe)
        checks: list[tuple[str, Callable[[Visit], None]]] = [
            ((function.__doc__ or name).rstrip("."), function)
            for name, function in globals().items()
            if name.startswith("check_") and asked.only in name
        ]
        for name, function in checks:
            visit.problems.clear()
            try:
                function(visit)
                assert not visit.problems, "; ".join(visit.problems[:3])
            except Exception as error:
                failed += 1
                where = traceback.extract_tb(error.__traceback__)[-1 if isinstance(error, AssertionError) else 1]
                print(f"FAILED  {name} (line {where.lineno}): {str(error)[:1500]}", flush=True)
            else:
                print(f"ok      {name}", flush=True)
        for name, milliseconds in visit.times.items():
            print(f"        100,000 labels: {name}: {milliseconds:.0f} ms")
        if asked.pictures:
            take_pictures(visit, asked.pictures)
        browser.close()
    print(f"page: {len(checks) - failed} of {len(checks)} checks hold")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
