"""The app: models, routes, and what stands around them."""

import re
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import APIRouter, FastAPI, Request, Response

import treelabel
from treelabel.serve import routes
from treelabel.serve.options import ServeOptions
from treelabel.serve.problems import add_error_handlers
from treelabel.serve.security import Tokens
from treelabel.serve.service import Service

# What is served. A protocol or a page is a file with a `router`, and a row here.
ROUTERS: tuple[APIRouter, ...] = (routes.router,)


def create_app(folders: Sequence[str | Path], options: ServeOptions | None = None) -> FastAPI:
    """Make the app that serves models.

    Parameters
    ----------
    folders
        Model folders; a model goes by the name of its folder.
    options
        Settings; by default predictions only, for everybody who can reach the service.

    Returns
    -------
    FastAPI
        An ASGI app, as uvicorn and other servers take it.
    """
    service = Service([Path(folder) for folder in folders], options or ServeOptions())

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        service.close()

    app = FastAPI(title="treelabel", version=treelabel.__version__, lifespan=lifespan)
    app.state.service, app.state.tokens = service, Tokens(service.options.token_file)
    add_error_handlers(app)
    app.middleware("http")(_name_request)
    for router in ROUTERS:
        app.include_router(router)
    return app


async def _name_request(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
    """Give a request an id, that of its header if it is a harmless one, and answer with it."""
    asked = request.headers.get("x-request-id", "")
    request.state.request_id = asked if re.fullmatch(r"[\w.:-]{1,128}", asked, re.ASCII) else uuid.uuid4().hex
    response = await call_next(request)
    response.headers["X-Request-ID"] = request.state.request_id
    return response
