"""Errors of the service: problem+json (RFC 9457), without a word of the documents."""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from treelabel.core.errors import TreelabelError
from treelabel.serve.schemas import ProblemAnswer

MEDIA_TYPE = "application/problem+json"


class ProblemError(HTTPException):
    """An error that is answered with a status of HTTP and a sentence."""

    def __init__(self, status: int, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(status, detail, headers)

    @property
    def status(self) -> int:
        """The status of HTTP."""
        return self.status_code

    @property
    def content(self) -> ProblemAnswer:
        """The error as JSON."""
        title = HTTPStatus(self.status).phrase
        return {"type": "about:blank", "title": title, "status": self.status, "detail": self.detail}

    def response(self) -> Response:
        """Return the answer of HTTP."""
        return JSONResponse(self.content, self.status, self.headers, MEDIA_TYPE)


def problem_of(error: Exception) -> ProblemError:
    """Return an error as a ProblemError; what the service should not raise is a 500 without details."""
    if isinstance(error, ProblemError):
        return error
    if isinstance(error, RequestValidationError):
        return ProblemError(422, validation_sentence(error.errors()))
    if isinstance(error, HTTPException):
        return ProblemError(error.status_code, str(error.detail), error.headers)
    if isinstance(error, TreelabelError):
        return ProblemError(422, str(error))
    return ProblemError(500, "an error that should not have happened; the log of the service has its traceback")


def validation_sentence(errors: Sequence[Any]) -> str:
    """Say where a request is wrong, and why; never what it holds."""
    first = errors[0]
    where = " > ".join(str(part) for part in first["loc"] if part != "body")
    message = str(first["msg"]).removeprefix("Value error, ")
    return f"{where}: {message}" if where else message


def add_error_handlers(app: FastAPI) -> None:
    """Answer every error with problem+json."""

    async def answer(request: Request, error: Exception) -> Response:
        return problem_of(error).response()

    for kind in (RequestValidationError, HTTPException, TreelabelError):
        app.add_exception_handler(kind, answer)


def route_with_errors(answer: Callable[[ProblemError], Response]) -> type[APIRoute]:
    """Make a kind of route whose errors have another form: `APIRouter(route_class=route_with_errors(...))`."""

    class OtherErrors(APIRoute):
        """Routes of a protocol with errors of its own form."""

        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            """Return the handler, which catches errors."""
            handler = super().get_route_handler()

            async def catch(request: Request) -> Response:
                try:
                    return await handler(request)
                except (RequestValidationError, HTTPException, TreelabelError) as error:
                    return answer(problem_of(error))

            return catch

    return OtherErrors
