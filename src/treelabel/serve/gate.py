"""The gate that every request passes: its id, limits, headers, and a line in the log."""

import asyncio
import logging
import re
import time
import traceback
import uuid
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from treelabel.serve.options import ServeOptions
from treelabel.serve.problems import ProblemError, problem_of
from treelabel.serve.service_metrics import ServiceMetrics

LOG = logging.getLogger("treelabel.serve.requests")
STREAM = "application/x-ndjson"
# Where streams are read line by line. Elsewhere a body is read as one, whatever it says that it is.
STREAM_PATH = re.compile(r"/v1/models/[^/]+/predict")
# A request that changes nothing may come from any page: it cannot read the answer.
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
# Probes are answered however busy the service is.
PROBES = ("/livez", "/readyz", "/metrics", "/v2/health/live", "/v2/health/ready")
SECURITY_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
    "object-src 'none'",
    "Cache-Control": "no-store",
}


# By the first part of the paths of a protocol: how its errors are answered.
ErrorForms = Mapping[str, Callable[[ProblemError], Response]]


class Gate:
    """ASGI middleware around all routes."""

    def __init__(
        self, app: ASGIApp, options: ServeOptions, metrics: ServiceMetrics, error_forms: ErrorForms | None = None
    ) -> None:
        self._app, self._options, self._metrics = app, options, metrics
        self._error_forms = error_forms or {}
        self._active = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers, start = Headers(scope=scope), time.perf_counter()
        request_id = _request_id(headers)
        scope.setdefault("state", {})["request_id"] = request_id
        status = 0

        async def send_named(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                answered = MutableHeaders(scope=message)
                answered["X-Request-ID"] = request_id
                for name, value in SECURITY_HEADERS.items():
                    answered.setdefault(name, value)
            await send(message)

        self._active += 1
        try:
            self._require_admissible(scope, headers)
            await self._app(scope, _Body(receive, scope["path"], headers, self._options).receive, send_named)
        except ClientDisconnect:
            # It will read no answer.
            status = status or 499
        except ProblemError as error:
            await self._response(scope["path"], error)(scope, receive, send_named)
        except Exception as error:
            LOG.error("unexpected error", extra={"fields": {"request_id": request_id, **_without_message(error)}})
            if not status:
                await self._response(scope["path"], problem_of(error))(scope, receive, send_named)
        finally:
            self._active -= 1
            self._report(scope, request_id, status, time.perf_counter() - start)

    def _response(self, path: str, error: ProblemError) -> Response:
        """Answer an error in the form of its protocol, so that clients show what it says."""
        form = self._error_forms.get(path.split("/")[1])
        return error.response() if form is None else form(error)

    def _require_admissible(self, scope: Scope, headers: Headers) -> None:
        """Refuse a request that is too large or one too many, or that a page of another site makes."""
        most = self._options.max_concurrency
        if self._active > most and scope["path"] not in PROBES:
            raise ProblemError(
                429, f"too many requests at once; the limit max_concurrency is {most:,}", {"Retry-After": "1"}
            )
        origin = headers.get("origin")
        is_foreign = origin is not None and urlsplit(origin).netloc != headers.get("host")
        if is_foreign and scope["method"] not in SAFE_METHODS and origin not in self._options.origins:
            raise ProblemError(403, "a page of another site may not call this service; see --origin")

    def _report(self, scope: Scope, request_id: str, status: int, seconds: float) -> None:
        # The pattern of the path, not the path or the query, which may hold what people typed.
        route = getattr(scope.get("route"), "path", "none")
        self._metrics.count_request(scope["method"], route, status, seconds)
        fields: dict[str, Any] = {"request_id": request_id, "method": scope["method"], "route": route}
        fields |= {"status": status, "milliseconds": round(seconds * 1000, 2)}
        LOG.info("request", extra={"fields": fields})


class _Body:
    """The body of a request, counted and timed while it comes in."""

    def __init__(self, receive: Receive, path: str, headers: Headers, options: ServeOptions) -> None:
        self._receive, self._options = receive, options
        is_stream = headers.get("content-type", "").startswith(STREAM)
        self._is_stream = is_stream and STREAM_PATH.fullmatch(path) is not None
        self._deadline = time.monotonic() + options.max_seconds
        self._size, self._is_complete = 0, False
        length = headers.get("content-length", "")
        if not self._is_stream and length.isdigit() and int(length) > options.max_body:
            raise self._too_large()

    def _too_large(self) -> ProblemError:
        most = self._options.max_body
        return ProblemError(413, f"the request is too large; the limit max_body is {most:,} bytes")

    async def receive(self) -> Message:
        """Return the next message; a body that is too large, or that takes too long, is refused."""
        if self._is_complete:
            return await self._receive()
        if self._is_stream:
            self._deadline = time.monotonic() + self._options.max_seconds
        try:
            async with asyncio.timeout(self._deadline - time.monotonic()):
                message = await self._receive()
        except TimeoutError:
            most = self._options.max_seconds
            raise ProblemError(408, f"the request did not come in time; the limit max_seconds is {most:g}") from None
        if message["type"] == "http.request":
            self._size += len(message.get("body", b""))
            self._is_complete = not message.get("more_body", False)
            if self._size > self._options.max_body and not self._is_stream:
                raise self._too_large()
        return message


def _request_id(headers: Headers) -> str:
    """Return the id that a request has in its header, if that is harmless, or a new one."""
    asked = headers.get("x-request-id", "")
    return asked if re.fullmatch(r"[\w.:-]{1,128}", asked, re.ASCII) else uuid.uuid4().hex


def _without_message(error: Exception) -> dict[str, Any]:
    """Describe an error without its message, which may hold a text."""
    frames = traceback.extract_tb(error.__traceback__)
    where = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames[-8:]]
    return {"error": type(error).__name__, "traceback": where}
