"""Errors of protocols that answer with an object that has a sentence under "error"."""

from typing import Any

from typing_extensions import TypedDict


class ErrorAnswer(TypedDict):
    """A sentence on what is wrong with a request."""

    error: str


# How OpenAPI describes them: the `responses` of a router.
ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorAnswer} for status in (400, 401, 403, 404, 413, 415, 422, 429)
}
