"""Check every page of the built site in a browser: `make check-docs`.

    python tools/check_site.py docs/_build/html                     # what does not hold is named; exit status 1 then
    python tools/check_site.py docs/_build/html --pictures FOLDER   # and takes pictures: light, dark, on a phone

Served on 127.0.0.1. No page may ask anything of another address, miss a file, complain on the console, or be wider than
a phone; and the search must find something. The browser is Debian's: apt install chromium.
"""

import argparse
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tools.browser import Page, browser_page

PHONE = (390, 844)
DESK = (1280, 900)
SEARCH = "search.html?q=calibration"
PICTURES = ("index", "models", "papers", "api")
# Until results are there, or for five seconds.
RESULTS = """new Promise(done => { const begin = Date.now(); const look = () => {
  const count = document.querySelectorAll('#search-results li').length;
  if (count > 0 || Date.now() - begin > 5000) done(count); else setTimeout(look, 100); }; look(); })"""


class QuietHandler(SimpleHTTPRequestHandler):
    """Serves files without a word."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Log nothing."""


def check(page: Page, home: str, names: list[str]) -> list[str]:
    """Return what is wrong with the pages."""
    wrong = []
    page.show(*PHONE)
    for name in names:
        page.requests.clear()
        page.problems.clear()
        page.open_address(f"{home}/{name}")
        width = page.run("document.documentElement.scrollWidth")
        foreign = [address for address in page.requests if not address.startswith((home, "data:"))]
        problems = [problem for problem in page.problems if "[PST]" not in problem]
        wrong += [f"{name}: asks for {address}" for address in foreign]
        wrong += [f"{name}: {problem}" for problem in problems]
        wrong += [f"{name}: {width} pixels wide"] if width > PHONE[0] else []
    page.open_address(f"{home}/{SEARCH}")
    if page.run(RESULTS) == 0:
        wrong.append(f"{SEARCH}: finds nothing")
    return wrong


def take_pictures(page: Page, home: str, folder: Path) -> None:
    """Save pictures of some pages."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in PICTURES:
        for title, size, scheme in (("light", DESK, "light"), ("dark", DESK, "dark"), ("phone", PHONE, "dark")):
            page.show(*size, scheme="dark" if scheme == "dark" else "light")
            page.open_address(f"{home}/{name}.html")
            page.picture(folder / f"{name}-{title}.png", height=size[1])


def main() -> int:
    """Serve the site, look at all of it, and say what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("site", type=Path)
    parser.add_argument("--pictures", type=Path, metavar="FOLDER")
    given = parser.parse_args()
    files = (path.relative_to(given.site) for path in given.site.rglob("*.html"))
    # Those of the theme are no pages.
    names = sorted(str(file) for file in files if file.parts[0] != "_static")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=str(given.site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    home = f"http://127.0.0.1:{server.server_port}"
    with browser_page() as page:
        wrong = check(page, home, names)
        if given.pictures is not None:
            take_pictures(page, home, given.pictures)
    server.shutdown()
    print("\n".join(wrong) or f"{len(names)} pages: nothing asked of others, nothing missing, nothing too wide")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
