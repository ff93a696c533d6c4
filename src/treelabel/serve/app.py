"""The app: models, routes, and what stands around them."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import APIRouter, FastAPI
from fastapi.middleware.cors import CORSMiddleware
from fastapi.middleware.trustedhost import TrustedHostMiddleware

import treelabel
from treelabel.serve import learning_routes, probes, routes
from treelabel.serve.gate import ErrorForms, Gate
from treelabel.serve.options import ServeOptions
from treelabel.serve.page import router as page
from treelabel.serve.page.rendering import render_problem
from treelabel.serve.problems import add_error_handlers
from treelabel.serve.protocols import annif, hugging_face, label_studio, open_inference
from treelabel.serve.security import AccessTokens
from treelabel.serve.service import Service

# What is served. A protocol or a page is a file with a `router`, and a row here.
ROUTERS: tuple[APIRouter, ...] = (
    routes.router,
    learning_routes.router,
    probes.router,
    annif.router,
    label_studio.router,
    open_inference.router,
    hugging_face.pipeline_router,
    hugging_face.tei_router,
    page.router,
)
# Errors that are answered before a route is found, by the first part of the path.
ERROR_FORMS: ErrorForms = {
    "page": render_problem,
    "label-studio": label_studio.answer_error,
    "v2": open_inference.answer_error,
    "hf": hugging_face.answer_error,
    "tei": hugging_face.answer_typed_error,
}


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
        async with service.run():
            yield

    # Interactive documentation would load scripts from elsewhere. Logs of telemetry hold what was sent; traces do not.
    app = FastAPI(
        title="treelabel",
        version=treelabel.__version__,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        telemetry={"logs": False},
    )
    app.state.service, app.state.tokens = service, AccessTokens(service.options.token_file)
    add_error_handlers(app)
    for router in ROUTERS:
        app.include_router(router)
    chosen = service.options
    if chosen.origins:
        app.add_middleware(CORSMiddleware, allow_origins=chosen.origins, allow_methods=["*"], allow_headers=["*"])
    if chosen.hosts:
        app.add_middleware(TrustedHostMiddleware, allowed_hosts=[*chosen.hosts])
    app.add_middleware(Gate, options=chosen, metrics=service.metrics, error_forms=ERROR_FORMS)
    return app
