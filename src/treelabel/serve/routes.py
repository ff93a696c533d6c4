"""Routes on models and texts: /v1/models/..."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from pydantic_core import to_json

from treelabel.serve.schemas import (
    ExplainAnswer,
    ExplainRequest,
    ModelAnswer,
    ModelsAnswer,
    NodeAnswer,
    PredictAnswer,
    PredictRequest,
    ProblemAnswer,
    ScoreAnswer,
    ScoreRequest,
    SearchAnswer,
)
from treelabel.serve.security import require
from treelabel.serve.served_rules import promise_of, rule_of
from treelabel.serve.service import Service, answer_head, find_service
from treelabel.serve.streaming import LinesResponse, StreamRoute, predict_stream
from treelabel.serve.taxonomy import ROOT, describe_node, find_nodes

PROBLEMS: dict[int | str, dict[str, Any]] = {
    code: {"model": ProblemAnswer, "content": {"application/problem+json": {}}}
    for code in (400, 401, 403, 404, 409, 413, 422, 429)
}
AService = Annotated[Service, Depends(find_service)]
router = APIRouter(prefix="/v1", dependencies=[Depends(require("predict"))], responses=PROBLEMS)


def json_response(value: Any, status: int = 200) -> Response:
    """Return an answer that is of its shape by how it was made: checking it again would take longer than scoring."""
    return Response(to_json(value, inf_nan_mode="null"), status, media_type="application/json")


@router.get("/models", response_model=ModelsAnswer, tags=["models"])
async def list_models(service: AService) -> Any:
    """List the models."""
    return json_response({"models": [service.summary(served) for served in service.store]})


@router.get("/models/{model_id}", response_model=ModelAnswer, tags=["models"])
async def describe_model(model_id: str, service: AService) -> Any:
    """Describe a model: its labels, what it learned from, and what held-out documents showed."""
    return json_response(service.describe(service.store.get(model_id)))


async def predict_lines(model_id: str, request: Request, service: AService) -> Response:
    """Predict the texts of a stream."""
    return LinesResponse(predict_stream(service, service.store.get(model_id), request))


router.add_api_route(
    "/models/{model_id}/predict",
    predict_lines,
    methods=["POST"],
    include_in_schema=False,
    route_class_override=StreamRoute,
)


@router.post("/models/{model_id}/predict", response_model=PredictAnswer, tags=["texts"])
async def predict(model_id: str, body: PredictRequest, request: Request, service: AService) -> Any:
    """Predict the labels of one text or several.

    A body of the type application/x-ndjson is a stream of any length: each line has a `text`, an `id` if you like, and
    settings. Each is answered with a line of the same `id`, or with its `error`; a client reads while it writes.
    """
    served = service.store.get(model_id)
    rule = str(rule_of(served, body))
    documents = await service.predict(served, body.documents, body)
    head = {**answer_head(request, served), "rule": rule, "promise": promise_of(served, body)}
    return json_response({**head, "documents": documents})


@router.post("/models/{model_id}/score", response_model=ScoreAnswer, tags=["texts"])
async def score(model_id: str, body: ScoreRequest, request: Request, service: AService) -> Any:
    """Return the likeliest nodes of one text or several."""
    served = service.store.get(model_id)
    documents = await service.score(served, body.documents, body.k)
    return json_response({**answer_head(request, served), "documents": documents})


@router.post("/models/{model_id}/explain", response_model=ExplainAnswer, tags=["texts"])
async def explain(model_id: str, body: ExplainRequest, request: Request, service: AService) -> Any:
    """List the words that support and oppose each step to a label."""
    served = service.store.get(model_id)
    steps = await service.explain(served, body.text, body.label)
    return json_response({**answer_head(request, served), "steps": steps})


@router.get("/models/{model_id}/taxonomy/nodes/{node}", response_model=NodeAnswer, tags=["taxonomy"])
async def taxonomy_node(
    model_id: str,
    service: AService,
    node: Annotated[str, Path(pattern=r"^(root|\d{1,9})$", description="A node id, or root.")],
    offset: Annotated[int, Query(ge=0, le=1 << 31, description="The first child to list.")] = 0,
    limit: Annotated[int, Query(ge=0, le=10_000, description="How many children to list.")] = 1_000,
) -> Any:
    """Describe a node of the hierarchy with its ancestors and children."""
    served = service.store.get(model_id)
    return json_response(describe_node(served, ROOT if node == "root" else int(node), offset, limit))


@router.get("/models/{model_id}/taxonomy/search", response_model=SearchAnswer, tags=["taxonomy"])
async def search_taxonomy(
    model_id: str,
    service: AService,
    q: Annotated[str, Query(max_length=200, description="A part of a name, or of a notation.")],
    limit: Annotated[int, Query(ge=1, le=1_000)] = 20,
) -> Any:
    """Search labels: names that begin with a text come before those that hold it; case and accents do not matter."""
    return json_response({"nodes": find_nodes(service.store.get(model_id), q, limit)})
