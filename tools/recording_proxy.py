"""A proxy that passes requests on and remembers them, so that tests can send again what a real client sent."""

import base64
import http.client
import json
import re
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

# Headers that say how to read a request; others depend on the machine, or are secret.
KEPT = ("content-type", "content-encoding", "inference-header-content-length")
# Fields of payloads that let their reader into a project.
SECRET = re.compile(r'("(?:access_)?token": ")[^"]*')


class RecordingProxy(ThreadingHTTPServer):
    """Passes requests on to a service on this machine; `records` has the different ones in order."""

    daemon_threads = True

    def __init__(self, service_port: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.service_port = service_port
        self.records: list[dict[str, Any]] = []

    def save(self, path: Path) -> None:
        """Write the requests so far as JSON, without secrets, and begin anew."""
        path.write_text(json.dumps(self.records, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        self.records.clear()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: RecordingProxy

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        service = http.client.HTTPConnection("127.0.0.1", self.server.service_port, timeout=60)
        service.request(self.command, self.path, body or None, dict(self.headers))
        answer = service.getresponse()
        content = answer.read()
        service.close()
        headers = {name.lower(): value for name, value in self.headers.items() if name.lower() in KEPT}
        record: dict[str, Any] = {"method": self.command, "path": self.path, "headers": headers, **_written(body)}
        record["status"] = answer.status
        if record not in self.server.records:
            self.server.records.append(record)
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("connection", "content-length", "date", "server", "transfer-encoding"):
                self.send_header(name, value)
        if answer.status != http.client.NO_CONTENT:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = _pass_on  # noqa: N815  names of the standard library

    def log_message(self, *arguments: Any) -> None:
        """Print nothing."""


def _written(body: bytes) -> dict[str, str]:
    """Return a body as text where it is text, in base64 otherwise."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        return {"base64": base64.b64encode(body).decode()}
    return {"body": SECRET.sub(r"\1***", text)}
