"""Who may do what: tokens by scope, compared in constant time."""

import base64
import hashlib
import hmac
from collections.abc import Awaitable, Callable
from pathlib import Path

from fastapi import Request

from treelabel.core.errors import TreelabelError
from treelabel.serve.problems import ProblemError
from treelabel.serve.schemas import Scope

# A later scope includes the earlier ones.
SCOPES: tuple[Scope, ...] = ("predict", "learn", "admin")
FEWEST_CHARACTERS = 16
# Programs send a token; a browser asks for a password, which is the token.
CHALLENGE = 'Bearer, Basic realm="treelabel"'


class AccessTokens:
    """Tokens and their scopes; without a file, everybody may do everything."""

    def __init__(self, file: Path | None) -> None:
        self._digests: dict[bytes, int] | None = None if file is None else _read_tokens(file)

    @property
    def are_required(self) -> bool:
        """Whether requests need a token."""
        return self._digests is not None

    def require(self, request: Request, scope: Scope) -> None:
        """Refuse a request whose token is missing, unknown, or of a lower scope."""
        if self._digests is None:
            return
        token = _token_of(request.headers.get("authorization", ""))
        digest = hashlib.sha256(token.encode()).digest()
        rank = max((rank for each, rank in self._digests.items() if hmac.compare_digest(each, digest)), default=-1)
        if rank < 0:
            raise ProblemError(
                401,
                "expected the header Authorization: Bearer TOKEN",
                {"WWW-Authenticate": 'Bearer, Basic realm="treelabel"'},
            )
        if rank < SCOPES.index(scope):
            raise ProblemError(403, f"the token is of the scope {SCOPES[rank]}, but this needs {scope}")


def _read_tokens(file: Path) -> dict[bytes, int]:
    digests = {}
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) != 2 or words[0] not in SCOPES or len(words[1]) < FEWEST_CHARACTERS:
            raise TreelabelError(
                f"{file}:{number}: expected a scope ({', '.join(SCOPES)}) and a token of at least {FEWEST_CHARACTERS} "
                "characters"
            )
        digests[hashlib.sha256(words[1].encode()).digest()] = SCOPES.index(words[0])
    if not digests:
        raise TreelabelError(f"{file}: no tokens; expected lines such as 'predict TOKEN'")
    return digests


def _token_of(header: str) -> str:
    """Return the token of a header: behind Bearer, or as the password of Basic, which browsers ask for."""
    kind, _, value = header.partition(" ")
    if kind.lower() == "basic":
        try:
            return base64.b64decode(value, validate=True).decode().partition(":")[2]
        except ValueError:
            return ""
    return value.strip() if kind.lower() == "bearer" else ""


def require(scope: Scope) -> Callable[[Request], Awaitable[None]]:
    """Make a dependency that refuses requests without a token of a scope: `Depends(require("predict"))`."""

    # Not a plain function: FastAPI would call that in another thread.
    async def check(request: Request) -> None:
        request.app.state.tokens.require(request, scope)

    return check
