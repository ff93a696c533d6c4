"""Walk through a project of the Label Studio app with a service as its ML backend: `label_studio_app.py ADDRESS`.

Starts the app on 127.0.0.1 with a database of its own here, and reads the journal of the service, which is in ../state.
"""

import http.cookiejar
import json
import os
import secrets
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from importlib.metadata import version
from pathlib import Path
from typing import Any

CONFIG = """<View><Text name="definition" value="$gloss"/><Taxonomy name="kind" toName="definition">
<Choice value="animal"><Choice value="mammal"/><Choice value="bird"/></Choice>
<Choice value="food"/><Choice value="plant"/><Choice value="no noun"/></Taxonomy></View>"""
TEXTS = ["a small bird that sings at night", "a sweet cake", "a tall tree"]
# The app opens no address on its own machine unless it is told so: for a walk on one machine, and for nothing else.
SETTINGS = {"ML_BLOCK_LOCAL_IP": "false", "SSRF_PROTECTION_ENABLED": "false", "COLLECT_ANALYTICS": "false"}
JOURNAL = Path("../state/nouns/journal.jsonl")


class App:
    """The app, and a user who is logged in."""

    def __init__(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.address = f"http://127.0.0.1:{self.port}"
        self._cookies = http.cookiejar.CookieJar()
        self._opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(self._cookies))
        user = {"email": "walker@example.org", "password": secrets.token_hex()}
        command = [str(Path(sys.executable).with_name("label-studio")), "start", "--no-browser"]
        command += ["--internal-host", "127.0.0.1", "--port", str(self.port)]
        command += ["--username", user["email"], "--password", user["password"]]
        data = {"LABEL_STUDIO_BASE_DATA_DIR": str(Path("data").absolute()), "LABEL_STUDIO_HOST": self.address}
        with open("app.log", "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=os.environ | SETTINGS | data)
        self._wait()
        self._opener.open(f"{self.address}/user/login/").read()
        form = user | {"csrfmiddlewaretoken": self._csrf}
        self._opener.open(f"{self.address}/user/login/", urllib.parse.urlencode(form).encode()).read()

    def _wait(self) -> None:
        for _ in range(600):
            try:
                with urllib.request.urlopen(f"{self.address}/health", timeout=5):
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(0.5)
        raise AssertionError("the app did not start")

    @property
    def _csrf(self) -> str:
        return next(str(cookie.value) for cookie in self._cookies if cookie.name == "csrftoken")

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request to the API of the app as its page does."""
        headers = {"X-CSRFToken": self._csrf, "Referer": self.address, "Content-Type": "application/json"}
        content = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.address + path, content, headers, method=method)
        with self._opener.open(request, timeout=60) as answer:
            written = answer.read()
        return json.loads(written) if written else None


def region(*paths: list[str]) -> list[dict[str, Any]]:
    """Return the result of an annotation."""
    return [{"from_name": "kind", "to_name": "definition", "type": "taxonomy", "value": {"taxonomy": list(paths)}}]


def corrections() -> list[dict[str, Any]]:
    """Read the journal."""
    return [json.loads(line) for line in JOURNAL.read_text(encoding="utf-8").splitlines()] if JOURNAL.exists() else []


def learned_version(service: str) -> str:
    """Wait for the job that learns; return the version that it made."""
    for _ in range(600):
        with urllib.request.urlopen(f"{service}/v1/jobs") as answer:
            [job] = json.load(answer)["jobs"]
        if job["status"] != "running":
            break
        time.sleep(0.5)
    assert job["status"] == "done", job
    return str(job["version"])


def walk(app: App, service: str) -> None:
    """Make a project, have its tasks predicted, annotate some, and learn from that."""
    backend = f"{service}/label-studio/nouns"
    before = len(corrections())
    project = app.ask("POST", "/api/projects/", {"title": "nouns", "label_config": CONFIG})["id"]
    app.ask("POST", f"/api/projects/{project}/import", [{"gloss": text} for text in TEXTS])
    connected = app.ask("POST", "/api/ml/", {"url": backend, "project": project, "title": "treelabel"})
    assert connected["readable_state"] == "Connected", connected
    action = f"/api/dm/actions?id=retrieve_tasks_predictions&project={project}"
    app.ask("POST", action, {"selectedItems": {"all": True, "excluded": []}})
    predictions = app.ask("GET", f"/api/predictions/?project={project}")
    assert len(predictions) == len(TEXTS), predictions
    paths = {each["task"]: each["result"][0]["value"]["taxonomy"] for each in predictions}
    tasks = sorted(paths)
    assert paths[tasks[0]] == [["animal", "bird"]], paths

    def annotate(task: int, body: dict[str, Any]) -> int:
        return int(app.ask("POST", f"/api/tasks/{task}/annotations/", body)["id"])

    first = annotate(tasks[0], {"result": region(["animal", "bird"])})
    app.ask("PATCH", f"/api/annotations/{first}/", {"result": region(["animal", "mammal"])})
    # What the app stores without a word, and the service refuses: a label that the model has not, a wrong parent.
    annotate(tasks[1], {"result": region(["no noun"])})
    annotate(tasks[1], {"result": region(["food", "bird"])})
    annotate(tasks[1], {"result": [], "was_cancelled": True})
    annotate(tasks[2], {"result": region(["plant"], ["food"])})
    app.ask("DELETE", f"/api/annotations/{first}/")
    app.ask("POST", f"/api/ml/{connected['id']}/train")
    assert app.ask("GET", f"/api/ml/{connected['id']}/versions")["versions"] == [connected["model_version"]]
    learned = [(each["text"], each["labels"]) for each in corrections()[before:]]
    expected = [(TEXTS[0], ["animal > bird"]), (TEXTS[0], ["animal > mammal"]), (TEXTS[2], ["plant", "food"])]
    assert learned == expected, learned
    assert learned_version(service) != connected["model_version"]


app = App()
try:
    walk(app, sys.argv[1])
finally:
    app.process.terminate()
    app.process.wait(30)
print("label-studio", version("label-studio"))
