"""Check the web page of the service in a real browser: part of `make test-clients`.

    python tools/check_page.py                    # what does not hold is named; the exit status is 1 then
    python tools/check_page.py --pictures docs    # and takes the pictures in docs/

Learns models (of the sample, of hostile names, of 100,000 labels), serves them on 127.0.0.1, and runs
tools/clients/page_browser.py in an environment with playwright and axe-core, which is made where it is missing. The
browser is Debian's: apt install chromium.
"""

import argparse
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tools.browser import find_browser  # noqa: E402
from tools.check_clients import make_environment  # noqa: E402

PROGRAM = Path(__file__).with_name("clients") / "page_browser.py"
PLAYWRIGHT, AXE = "playwright==1.65.*", "axe-core@4.14"
SECONDS_TO_START = 180
TOKEN = "a-token-for-the-browser"
HOSTILE = ("<img src=x onerror=window.hacked=1>", "'\"><script>window.hacked=2</script>", "{{7*7}} & <b>bold</b>")
LABELS = 100_000


def make_page_environment(folder: Path) -> tuple[Path, Path]:
    """Make an environment with playwright and axe-core, unless it is there; return its Python and axe's script."""
    python, axe = make_environment(folder, (PLAYWRIGHT,)), folder / "node_modules" / "axe-core" / "axe.min.js"
    if not axe.exists():
        npm = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(folder), AXE]
        subprocess.run(npm, check=True)
    return python, axe


def make_models(folder: Path) -> list[Path]:
    """Learn the models that are looked at, and write texts to review; return the folders of the models."""
    import treelabel as tl

    sample = tl.load_sample()
    tl.write(sample[1::50], folder / "pool.csv")
    tl.make_model("linear").fit(sample[::2], progress=False).save(folder / "nouns")
    # A model that takes in corrections without its training data.
    tl.make_model("memory").fit(sample[::20], progress=False).save(folder / "memory")
    texts = [f"word{number} text" for number in range(30)]
    tl.make_model("most_frequent").fit(texts, [HOSTILE[number % 3] for number in range(30)]).save(folder / "hostile")
    h = tl.Hierarchy.from_paths([f"area {node % 100} > group {node % 5_000} > topic {node}" for node in range(LABELS)])
    labels = [h.names[node] for node in h.leaves[:30].tolist()]
    tl.make_model("most_frequent", hierarchy=h).fit(texts, labels).save(folder / "large")
    return [folder / name for name in ("nouns", "memory", "hostile", "large")]


@contextmanager
def served(models: list[Path], state: Path, *options: str) -> Iterator[str]:
    """Serve models until the end of the block; give the address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    command = [sys.executable, "-m", "treelabel", "serve", *map(str, models), "--port", str(port)]
    command += ["--learn", "--state", str(state), *options]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    with open(state.with_suffix(".log"), "w", encoding="utf-8") as log:
        service = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
    try:
        _wait_until_ready(f"http://127.0.0.1:{port}/livez", service)
        yield f"http://127.0.0.1:{port}"
    finally:
        service.terminate()
        service.wait(30)


def _wait_until_ready(address: str, service: "subprocess.Popen[bytes]") -> None:
    end = time.monotonic() + SECONDS_TO_START
    while time.monotonic() < end and service.poll() is None:
        try:
            with urllib.request.urlopen(address, timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise SystemExit("the service did not start")


def main() -> int:
    """Make what is missing, and run the browser."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    home = Path.home() / ".cache" / "treelabel-clients"
    parser.add_argument("--environments", default=f"{home}/", help="prefix of the environment's folder")
    parser.add_argument("--pictures", type=Path, metavar="DIR", help="where to save pictures of the page")
    asked = parser.parse_args()
    browser = find_browser()
    if browser is None:
        raise SystemExit("no browser is installed; Debian: apt install chromium")
    python, axe = make_page_environment(Path(f"{asked.environments}page"))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        models = make_models(folder)
        (folder / "tokens.txt").write_text(f"admin {TOKEN}\n", encoding="utf-8")
        state, pool = folder / "state", ("--pool", str(folder / "pool.csv"))
        with (
            served(models, state, *pool) as address,
            served(models[:1], folder / "guarded", "--token-file", str(folder / "tokens.txt")) as guarded,
        ):
            command = [str(python), str(PROGRAM), "--browser", browser, "--axe", str(axe), "--address", address]
            command += ["--guarded", guarded, "--token", TOKEN, "--state", str(state)]
            command += ["--pictures", str(asked.pictures)] if asked.pictures else []
            return subprocess.run(command).returncode


if __name__ == "__main__":
    sys.exit(main())
