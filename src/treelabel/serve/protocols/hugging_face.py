"""Hugging Face's text classification, and /predict of text-embeddings-inference.

Labels are paths, since two labels may have one name, and scores are calibrated probabilities.
"""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field, StrictBool

import treelabel
from treelabel.serve.model_store import ServedModel
from treelabel.serve.problems import ProblemError, route_with_errors
from treelabel.serve.protocols.error_answers import ERRORS
from treelabel.serve.protocols.ranking import MOST_LABELS, rank_labels
from treelabel.serve.routes import AService, json_response
from treelabel.serve.schemas import LabelAnswer
from treelabel.serve.security import require


def answer_error(problem: ProblemError) -> Response:
    """Answer an error as Hugging Face does."""
    return JSONResponse({"error": problem.detail}, problem.status, problem.headers)


def answer_typed_error(problem: ProblemError) -> Response:
    """Answer an error as text-embeddings-inference does, with its kind."""
    kind = "overloaded" if problem.status == 429 else "backend" if problem.status >= 500 else "validation"
    return JSONResponse({"error": problem.detail, "error_type": kind}, problem.status, problem.headers)


predict_scope = Depends(require("predict"))
pipeline_router = APIRouter(
    prefix="/hf",
    dependencies=[predict_scope],
    route_class=route_with_errors(answer_error),
    responses=ERRORS,
    tags=["Hugging Face"],
)
tei_router = APIRouter(
    prefix="/tei/{model_id}",
    dependencies=[predict_scope],
    route_class=route_with_errors(answer_typed_error),
    responses=ERRORS,
    tags=["text-embeddings-inference"],
)


class PipelineParameters(BaseModel):
    """Parameters of text classification; scores are probabilities, whatever function is named."""

    top_k: Annotated[int, Field(ge=1)] | None = None
    function_to_apply: Literal["sigmoid", "softmax"] | None = None


class PipelineRequest(BaseModel):
    """One text or several to classify."""

    inputs: str | list[str]
    parameters: PipelineParameters | None = None


class TeiRequest(BaseModel):
    """A text, or a batch of texts, each a list of one; `truncate` changes nothing, since texts are read to their end.

    A list of two texts is a pair, as models that compare texts take them: it is refused.
    """

    inputs: str | list[str] | list[list[str]]
    raw_scores: StrictBool = False
    truncate: StrictBool | None = None


@pipeline_router.post("/{model_id}")
async def classify(model_id: str, body: PipelineRequest, service: AService) -> Any:
    """Classify texts; the answer has one list of labels for each."""
    served = service.store.get(model_id)
    texts = [body.inputs] if isinstance(body.inputs, str) else body.inputs
    top_k = body.parameters.top_k if body.parameters is not None else None
    ranked = await rank_labels(service, served, texts, top_k or MOST_LABELS)
    return json_response([_scored(labels) for labels in ranked])


@tei_router.post("/predict")
async def predict(model_id: str, body: TeiRequest, service: AService) -> Any:
    """Classify a text, or a batch of texts."""
    served = service.store.get(model_id)
    if body.raw_scores:
        raise ProblemError(422, "raw_scores: this model has calibrated probabilities only; leave it out")
    is_batch = not isinstance(body.inputs, str) and not all(isinstance(each, str) for each in body.inputs)
    if not body.inputs and not isinstance(body.inputs, str):
        raise ProblemError(422, "inputs: expected a text or a batch of texts, found an empty list")
    texts = [_single(each) for each in body.inputs] if is_batch else [_single(body.inputs)]
    ranked = [_scored(labels) for labels in await rank_labels(service, served, texts, MOST_LABELS)]
    return json_response(ranked if is_batch else ranked[0])


@tei_router.get("/info")
async def show_info(model_id: str, service: AService) -> dict[str, Any]:
    """Describe a model as text-embeddings-inference does; a number of tokens is that of characters here."""
    served, options = service.store.get(model_id), service.options
    labels = _label_names(served)
    return {
        "model_id": served.id,
        "model_sha": served.version,
        "model_dtype": "float32",
        "model_type": {
            "classifier": {
                "id2label": {str(number): label for number, label in enumerate(labels)},
                "label2id": {label: number for number, label in enumerate(labels)},
            }
        },
        "max_concurrent_requests": options.max_concurrency,
        "max_input_length": options.max_body,
        "max_batch_tokens": options.max_body,
        "max_batch_requests": options.max_batch,
        "max_client_batch_size": options.max_documents,
        "auto_truncate": False,
        "tokenization_workers": 1,
        "version": treelabel.__version__,
        "sha": None,
        "docker_label": None,
    }


@tei_router.get("/health", response_class=Response)
async def check_health(model_id: str, service: AService) -> Response:
    """Answer 200 with nothing in it, if the model is there."""
    service.store.get(model_id)
    return Response()


def _single(texts: Any) -> str:
    """Return the text of a list of one text; a pair is refused."""
    if isinstance(texts, str):
        return texts
    if isinstance(texts, list) and len(texts) == 1:
        return str(texts[0])
    raise ProblemError(
        422,
        "inputs: expected a text, or a batch as a list of lists of one text each; two texts in a list are a pair, for "
        "models that compare texts, which this one does not",
    )


def _scored(labels: list[LabelAnswer]) -> list[dict[str, Any]]:
    return [{"label": label["path"], "score": label["probability"]} for label in labels]


def _label_names(served: ServedModel) -> list[str]:
    """List what `rank_labels` may answer with."""
    h = served.model.hierarchy_
    return h.paths() if len(served.model.stop_nodes_) else h.paths(h.leaves)
