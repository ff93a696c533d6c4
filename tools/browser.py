"""A page in Debian's chromium, driven over a pipe: to look at reports, in tests and for the pictures in docs/.

The browser reads commands of the DevTools protocol from one pipe and answers on another, so that nothing but the
browser itself is needed.
"""

import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal

COMMANDS = ("chromium", "chromium-browser", "google-chrome")
# The browser reads from file 3 and writes to file 4.
_START = """
import fcntl, os, sys
given = [fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3]]
os.dup2(given[0], 3)
os.dup2(given[1], 4)
os.execvp(sys.argv[3], sys.argv[3:])
"""
Scheme = Literal["light", "dark"]


def find_browser() -> str | None:
    """Return the browser of this machine, or None."""
    return next((found for found in map(shutil.which, COMMANDS) if found is not None), None)


@dataclass
class Page:
    """A page that is open: `requests` are the addresses it asked for, `problems` what the console says."""

    commands: IO[bytes]
    answers: IO[bytes]
    session: str | None = None
    requests: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    loaded: bool = False
    _number: int = 0
    _waiting: bytes = b""

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and return its result; what happens meanwhile is noted."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self.session is not None:
            message["sessionId"] = self.session
        self.commands.write(json.dumps(message).encode() + b"\0")
        self.commands.flush()
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result

    def _next(self) -> dict[str, Any]:
        """Read one message, and note what it tells if it is an event."""
        parts = [self._waiting]
        while b"\0" not in parts[-1]:
            parts.append(os.read(self.answers.fileno(), 1 << 20))
            if not parts[-1]:
                raise RuntimeError("the browser has ended")
        text, _, self._waiting = b"".join(parts).partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        told = message.get("params", {})
        match message.get("method"):
            case "Network.requestWillBeSent":
                self.requests.append(told["request"]["url"])
            case "Runtime.exceptionThrown":
                self.problems.append(str(told["exceptionDetails"]))
            case "Runtime.consoleAPICalled":
                self.problems.append(str(told["args"]))
            case "Log.entryAdded":
                self.problems.append(told["entry"]["text"])
            case "Page.loadEventFired":
                self.loaded = True
        return message

    def open(self, path: Path) -> None:
        """Open a file and wait until it is loaded."""
        self.open_address(path.resolve().as_uri())

    def open_address(self, address: str) -> None:
        """Open an address and wait until it is loaded."""
        self.loaded = False
        self.send("Page.navigate", url=address)
        while not self.loaded:
            self._next()

    def run(self, script: str) -> Any:
        """Return the value of an expression on the page; a promise is waited for."""
        found = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise RuntimeError(str(found["exceptionDetails"]))
        return found["result"].get("value")

    def show(self, width: int, height: int, scheme: Scheme = "light", scale: float = 1) -> None:
        """Set the size of the window, and whether the system asks for dark pages."""
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=width < 600,
        )
        self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def picture(self, path: Path, top: int = 0, height: int | None = None) -> None:
        """Save a picture of the page, or of a part of it, from any place of the page."""
        size = self.send("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": top, "width": size["width"], "height": height or size["height"] - top, "scale": 1}
        shot = self.send("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def print_to(self, path: Path) -> None:
        """Print the page to a PDF file."""
        printed = self.send("Page.printToPDF", printBackground=True, preferCSSPageSize=True)
        path.write_bytes(base64.b64decode(printed["data"]))


@contextmanager
def browser_page() -> Iterator[Page]:
    """Start the browser with an empty page; it ends with the block."""
    command = find_browser()
    if command is None:
        raise RuntimeError(f"no browser is installed: none of {', '.join(COMMANDS)}")
    (read_commands, write_commands), (read_answers, write_answers) = os.pipe(), os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe"]
        options += ["--disable-dev-shm-usage", "--no-first-run", f"--user-data-dir={profile}"]
        start = [sys.executable, "-c", _START, str(read_commands), str(write_answers), command, *options]
        process = subprocess.Popen(
            start, pass_fds=(read_commands, write_answers), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(read_commands)
        os.close(write_answers)
        with os.fdopen(write_commands, "wb") as commands, os.fdopen(read_answers, "rb") as answers:
            page = Page(commands, answers)
            try:
                target = page.send("Target.createTarget", url="about:blank")["targetId"]
                page.session = page.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
                for domain in ("Page", "Runtime", "Log", "Network"):
                    page.send(f"{domain}.enable")
                yield page
            finally:
                process.kill()
                process.wait()
