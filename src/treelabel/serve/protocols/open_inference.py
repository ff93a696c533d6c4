"""The Open Inference Protocol, version 2 (KServe, Triton): texts in as a tensor of BYTES, labels and scores out.

Tensors are rectangular: every text has `k` labels (a parameter of the request), padded with "" and 0. Labels are paths,
since two labels may have one name. Both forms of tensors are read and written: in JSON, and as bytes behind the JSON.
"""

from itertools import chain
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field, ValidationError
from pydantic_core import to_json

import treelabel
from treelabel.serve.model_store import ServedModel
from treelabel.serve.problems import ProblemError, route_with_errors, validation_sentence
from treelabel.serve.protocols.bytes_tensors import decompress, pack_texts, unpack_texts
from treelabel.serve.protocols.error_answers import ERRORS
from treelabel.serve.protocols.ranking import MOST_LABELS, rank_labels
from treelabel.serve.routes import AService
from treelabel.serve.schemas import LabelAnswer
from treelabel.serve.security import require
from treelabel.serve.service import Service, request_id_of

# Where a request with tensors as bytes says how long its JSON is.
JSON_LENGTH = "Inference-Header-Content-Length"
DEFAULT_K = 10
INPUT, OUTPUTS = "text", ("labels", "scores")


def answer_error(problem: ProblemError) -> Response:
    """Answer an error as the protocol has it; what is wrong with a request is 400."""
    status = 400 if problem.status == 422 else problem.status
    return JSONResponse({"error": problem.detail}, status, problem.headers)


router = APIRouter(prefix="/v2", route_class=route_with_errors(answer_error), responses=ERRORS, tags=["Open Inference"])
# The body is read by the route, since it may have bytes behind its JSON.
BODY = {"requestBody": {"required": True, "content": {"application/json": {"schema": {"type": "object"}}}}}
predict_scope = Depends(require("predict"))


class TensorParameters(BaseModel):
    """How a tensor is sent."""

    binary_data: bool | None = None
    binary_data_size: Annotated[int, Field(ge=0)] | None = None


class InputTensor(BaseModel):
    """Texts, in JSON or behind it."""

    name: str
    shape: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1, max_length=2)]
    datatype: str
    data: list[str] | list[list[str]] | None = None
    parameters: TensorParameters | None = None


class OutputTensor(BaseModel):
    """A tensor that is asked for."""

    name: str
    parameters: TensorParameters | None = None


class InferParameters(BaseModel):
    """Parameters of a request; what else it has is not looked at."""

    k: Annotated[int, Field(ge=1, le=MOST_LABELS)] = DEFAULT_K
    binary_data_output: bool = False


class InferRequest(BaseModel):
    """A request for labels."""

    inputs: list[InputTensor]
    outputs: list[OutputTensor] | None = None
    parameters: InferParameters | None = None
    id: Annotated[str, Field(max_length=1_000)] | None = None


@router.get("")
async def describe_server() -> dict[str, Any]:
    """Return the name and the version of the service."""
    return {"name": "treelabel", "version": treelabel.__version__, "extensions": ["binary_tensor_data"]}


# Clients differ in which of the two they read.
@router.get("/health/live")
@router.get("/health/ready")
async def check_health(request: Request, service: AService) -> Response:
    """Answer that the service is there; models are loaded before it is."""
    is_ready = service.is_ready
    is_right = is_ready or request.url.path.endswith("live")
    return JSONResponse({"live": True, "ready": is_ready}, 200 if is_right else 503)


@router.get("/models/{model_name}", dependencies=[predict_scope])
@router.get("/models/{model_name}/versions/{version}", dependencies=[predict_scope])
async def describe_model(model_name: str, service: AService, version: str | None = None) -> dict[str, Any]:
    """Describe the tensors of a model."""
    served = _find(service, model_name, version)
    return {
        "name": served.id,
        "versions": [served.version],
        "platform": f"treelabel_{served.model.name}",
        "inputs": [{"name": INPUT, "datatype": "BYTES", "shape": [-1]}],
        "outputs": [
            {"name": "labels", "datatype": "BYTES", "shape": [-1, -1]},
            {"name": "scores", "datatype": "FP32", "shape": [-1, -1]},
        ],
    }


@router.get("/models/{model_name}/ready", dependencies=[predict_scope])
@router.get("/models/{model_name}/versions/{version}/ready", dependencies=[predict_scope])
async def check_model(model_name: str, service: AService, version: str | None = None) -> dict[str, Any]:
    """Answer 200 if the model is there."""
    return {"name": _find(service, model_name, version).id, "ready": True}


@router.post("/models/{model_name}/infer", dependencies=[predict_scope], openapi_extra=BODY)
@router.post("/models/{model_name}/versions/{version}/infer", dependencies=[predict_scope], openapi_extra=BODY)
async def infer(model_name: str, request: Request, service: AService, version: str | None = None) -> Response:
    """Return the likeliest labels of texts and their probabilities."""
    served = _find(service, model_name, version)
    body = decompress(await request.body(), request.headers.get("content-encoding"), service.options.max_body)
    length = _json_length(request, len(body))
    asked = _parse(body[:length])
    parameters = asked.parameters or InferParameters()
    ranked = await rank_labels(service, served, _texts(asked.inputs, body[length:]), parameters.k)
    outputs = asked.outputs or [OutputTensor(name=name) for name in OUTPUTS]
    head = {"model_name": served.id, "model_version": served.version, "id": asked.id or request_id_of(request)}
    return _respond(head, outputs, ranked, parameters)


def _find(service: Service, name: str, version: str | None) -> ServedModel:
    served = service.store.get(name)
    if version not in (None, served.version):
        raise ProblemError(404, f"there is no such version of this model; it is of version {served.version}")
    return served


def _json_length(request: Request, size: int) -> int:
    header = request.headers.get(JSON_LENGTH, str(size))
    if not (header.isascii() and header.isdigit() and len(header) < 20 and int(header) <= size):
        raise ProblemError(400, f"{JSON_LENGTH}: expected a number of bytes up to that of the request")
    return int(header)


def _parse(body: bytes) -> InferRequest:
    try:
        return InferRequest.model_validate_json(body)
    except ValidationError as error:
        raise ProblemError(422, validation_sentence(error.errors())) from None


def _texts(inputs: list[InputTensor], rest: bytes) -> list[str]:
    """Read the texts of a request: in its only tensor, or behind the JSON."""
    if [(each.name, each.datatype) for each in inputs] != [(INPUT, "BYTES")]:
        raise ProblemError(400, f"inputs: expected one tensor called {INPUT!r} of the datatype BYTES")
    [tensor] = inputs
    size = None if tensor.parameters is None else tensor.parameters.binary_data_size
    if (tensor.data is None) == (size is None) or len(rest) != (size or 0):
        raise ProblemError(
            400, f"{INPUT}: expected either data, or binary_data_size with that number of bytes behind the JSON"
        )
    if tensor.data is None:
        texts = unpack_texts(rest)
    else:
        texts = list(chain.from_iterable([each] if isinstance(each, str) else each for each in tensor.data))
    if tensor.shape not in ([len(texts)], [len(texts), 1]):
        count = len(texts)
        raise ProblemError(400, f"{INPUT}: expected the shape [{count}] or [{count}, 1] for {count} texts")
    return texts


def _respond(
    head: dict[str, Any], outputs: list[OutputTensor], ranked: list[list[LabelAnswer]], parameters: InferParameters
) -> Response:
    """Write the tensors that were asked for, each in the form that was asked for."""
    k = parameters.k
    paths = [path for labels in ranked for path in [*(label["path"] for label in labels), *[""] * (k - len(labels))]]
    scores = np.zeros((len(ranked), k), "<f4")
    for row, labels in enumerate(ranked):
        scores[row, : len(labels)] = [label["probability"] for label in labels]
    written: list[dict[str, Any]] = []
    parts: list[bytes] = []
    for output in outputs:
        if output.name not in OUTPUTS:
            raise ProblemError(400, f"outputs: expected {' or '.join(OUTPUTS)}")
        is_labels = output.name == "labels"
        datatype = "BYTES" if is_labels else "FP32"
        tensor: dict[str, Any] = {"name": output.name, "datatype": datatype, "shape": [len(ranked), k]}
        asked = None if output.parameters is None else output.parameters.binary_data
        if parameters.binary_data_output if asked is None else asked:
            parts.append(pack_texts(paths) if is_labels else scores.tobytes())
            tensor["parameters"] = {"binary_data_size": len(parts[-1])}
        else:
            tensor["data"] = paths if is_labels else scores.ravel().tolist()
        written.append(tensor)
    content = to_json({**head, "outputs": written})
    if not parts:
        return Response(content, media_type="application/json")
    headers = {JSON_LENGTH: str(len(content))}
    return Response(b"".join([content, *parts]), headers=headers, media_type="application/octet-stream")
