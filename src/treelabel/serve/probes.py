"""Routes for operators: is it alive, is it ready, and how is it doing."""

from fastapi import APIRouter, Request, Response

from treelabel.serve.problems import ProblemError
from treelabel.serve.service import service_of

router = APIRouter(tags=["operating"])


@router.get("/livez")
async def alive() -> dict[str, str]:
    """Say that the process answers."""
    return {"status": "alive"}


@router.get("/readyz", responses={503: {"description": "Not ready."}})
async def ready(request: Request) -> dict[str, str]:
    """Say that models are loaded, and that corrections can be written if they are accepted."""
    service = service_of(request)
    if not service.is_ready:
        raise ProblemError(503, "the service is shutting down")
    return {"status": "ready"}


@router.get("/metrics", response_class=Response)
async def metrics(request: Request) -> Response:
    """Return metrics in the text format of Prometheus."""
    return Response(service_of(request).metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")
