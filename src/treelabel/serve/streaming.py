"""NDJSON both ways: one JSON line a text in, one JSON line an answer out, in memory that does not grow."""

import asyncio
from collections.abc import AsyncIterator
from itertools import groupby
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from pydantic import Field, ValidationError
from pydantic_core import to_json
from starlette.routing import Match
from starlette.types import Receive, Scope, Send

from treelabel.core.errors import TreelabelError
from treelabel.serve.gate import STREAM
from treelabel.serve.model_store import ServedModel
from treelabel.serve.problems import ProblemError, problem_of, validation_sentence
from treelabel.serve.schemas import PredictSettings
from treelabel.serve.service import Service

# Lines that are predicted together at most.
MOST_LINES = 256


class PredictLine(PredictSettings):
    """A line of a stream: a text, and how to decide on its labels."""

    id: str | int | None = Field(default=None, description="Comes back with the answer.")
    text: str


class StreamRoute(APIRoute):
    """A route for bodies of NDJSON; others of the same path get the rest."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Return whether a request is for this route."""
        headers = dict(scope.get("headers", ()))
        is_stream = headers.get(b"content-type", b"").startswith(STREAM.encode())
        return super().matches(scope) if is_stream else (Match.NONE, {})


class LinesResponse(Response):
    """An answer in parts while the request is still coming in, which starlette's own would read ahead of."""

    media_type = STREAM

    def __init__(self, parts: AsyncIterator[bytes]) -> None:
        super().__init__()
        del self.headers["content-length"]
        self._parts = parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the parts; where nobody listens any more, the rest is not made."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async for part in self._parts:
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


async def predict_stream(service: Service, served: ServedModel, request: Request) -> AsyncIterator[bytes]:
    """Predict the texts of a stream, some lines at a time; what is wrong with a line is said in its answer.

    Parameters
    ----------
    service
        The service.
    served
        The model, the same for the whole stream.
    request
        The request with the stream.

    Yields
    ------
    bytes
        Lines of JSON, one for each line that came in.
    """
    number = 0
    async for lines in _blocks(request, service.options.max_body, min(MOST_LINES, service.options.max_documents)):
        parsed = [_parse(line, number + index) for index, line in enumerate(lines, 1)]
        number += len(lines)
        for settings, group in groupby(parsed, lambda each: each[1]):
            batch = list(group)
            if settings is None:
                answers = [content for content, _ in batch]
            else:
                answers = await _predict(service, served, [content for content, _ in batch], settings)
            yield b"".join(to_json(answer) + b"\n" for answer in answers)


async def _predict(
    service: Service, served: ServedModel, lines: list[dict[str, Any]], settings: PredictSettings
) -> list[dict[str, Any]]:
    """Predict lines with the same settings."""
    try:
        documents = await service.predict(served, [line["text"] for line in lines], settings)
    except (ProblemError, TreelabelError) as error:
        problem = problem_of(error).content
        return [{"line": line["line"], "id": line["id"], "error": problem} for line in lines]
    return [
        {"line": line["line"], "id": line["id"], **document} for line, document in zip(lines, documents, strict=True)
    ]


def _parse(line: bytes | None, number: int) -> tuple[dict[str, Any], PredictSettings | None]:
    """Read a line: the text with its number, and settings; or an error, and None."""
    try:
        if line is None:
            raise ProblemError(413, "the line is too long; the limit max_body holds for each line")
        parsed = PredictLine.model_validate_json(line)
    except (ValidationError, ProblemError) as error:
        problem = error if isinstance(error, ProblemError) else ProblemError(422, validation_sentence(error.errors()))
        return {"line": number, "id": None, "error": problem.content}, None
    settings = PredictSettings(**{name: getattr(parsed, name) for name in PredictSettings.model_fields})
    return {"line": number, "id": parsed.id, "text": parsed.text}, settings


async def _blocks(request: Request, most: int, step: int) -> AsyncIterator[list[bytes | None]]:
    """Cut the body into lines, and return those that have come together; None stands for a line that is too long."""
    rest, is_too_long = bytearray(), False
    async for chunk in request.stream():
        rest += chunk
        *lines, rest = rest.split(b"\n")
        block: list[bytes | None] = [bytes(line) if len(line) <= most else None for line in lines]
        if lines and is_too_long:
            block[0], is_too_long = None, False
        if len(rest) > most:
            rest, is_too_long = bytearray(), True
        shown = [line for line in block if line is None or line.strip()]
        for part in (shown[start : start + step] for start in range(0, len(shown), step)):
            yield part
            # Other requests have their turn.
            await asyncio.sleep(0)
    if is_too_long or rest.strip():
        yield [None if is_too_long else bytes(rest)]
