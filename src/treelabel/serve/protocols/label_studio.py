"""Label Studio's ML backend: predictions for tasks, and annotations as corrections.

The address of the backend is /label-studio/MODEL. Payloads have tokens of the app in them: of these, nothing is stored
or logged.
"""

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field, ValidationError

from treelabel.core.errors import TreelabelError, quote
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.label_ids import find_label
from treelabel.serve.model_store import ServedModel
from treelabel.serve.problems import ProblemError, route_with_errors, validation_sentence
from treelabel.serve.protocols.error_answers import ERRORS
from treelabel.serve.protocols.label_config import MOST_CHARACTERS, LabelConfig, read_label_config
from treelabel.serve.routes import AService, json_response
from treelabel.serve.schemas import Correction, DocumentAnswer, LabelRef, LabelText
from treelabel.serve.security import require
from treelabel.serve.service import request_id_of

CORRECTIONS = ("ANNOTATION_CREATED", "ANNOTATION_UPDATED", "ANNOTATIONS_CREATED")
ConfigText = Annotated[str, Field(max_length=MOST_CHARACTERS)]


def answer_error(problem: ProblemError) -> Response:
    """Answer an error as the protocol has it."""
    return JSONResponse({"error": problem.detail, "status": "error"}, problem.status, problem.headers)


router = APIRouter(
    prefix="/label-studio/{model_id}",
    dependencies=[Depends(require("predict"))],
    route_class=route_with_errors(answer_error),
    responses=ERRORS,
    tags=["Label Studio"],
)


class SetupRequest(BaseModel):
    """The project that a backend is connected to; the token that comes with it is not read."""

    label_config: ConfigText = Field(alias="schema")


class LabelStudioTask(BaseModel):
    """A task; its data has the text under a name that the configuration tells."""

    id: int | str | None = None
    data: dict[str, Any]


class TasksRequest(BaseModel):
    """Tasks to predict."""

    tasks: list[LabelStudioTask]
    label_config: ConfigText


class RegionValue(BaseModel):
    """The labels of a region: paths from the top, or names."""

    taxonomy: list[LabelText | Annotated[list[LabelText], Field(min_length=1, max_length=1_000)]] | None = None
    choices: LabelText | list[LabelText] | None = None


class Region(BaseModel):
    """One result of an annotation."""

    from_name: str | None = None
    value: RegionValue = RegionValue()


class LabelStudioAnnotation(BaseModel):
    """The answer of an annotator to a task."""

    task: int | str | None = None
    result: Annotated[list[Region], Field(max_length=1_000)] = []
    was_cancelled: bool = False


class LabelStudioProject(BaseModel):
    """The project of an event."""

    id: int | str
    label_config: ConfigText


class AnnotationEvent(BaseModel):
    """One annotation with its task, or lists of both."""

    annotation: LabelStudioAnnotation | Annotated[list[LabelStudioAnnotation], Field(max_length=1_000)]
    task: LabelStudioTask | list[LabelStudioTask]
    project: LabelStudioProject


@router.get("")
@router.get("/")
@router.get("/health")
async def check_health(model_id: str, service: AService) -> dict[str, str]:
    """Answer that the backend is there."""
    return {"status": "UP", "model_class": f"treelabel {service.store.get(model_id).model.name}"}


@router.get("/metrics")
async def show_metrics(model_id: str, service: AService) -> dict[str, str]:
    """Return nothing, as other backends do; metrics of the service are at /metrics."""
    service.store.get(model_id)
    return {}


@router.get("/versions")
async def list_versions(model_id: str, service: AService) -> dict[str, list[str]]:
    """List the versions that predictions may be of."""
    return {"versions": [service.store.get(model_id).version]}


@router.post("/setup")
async def set_up(model_id: str, body: SetupRequest, service: AService) -> dict[str, str]:
    """Check that the labels of a project are among those of the model."""
    served = service.store.get(model_id)
    # Configurations may have very many labels: they are read where texts are scored, so that others do not wait.
    await service.work(lambda: _require_known_labels(served, read_label_config(body.label_config)))
    return {"model_version": served.version}


@router.post("/predict")
async def predict(model_id: str, body: TasksRequest, service: AService) -> Any:
    """Predict the labels of tasks; the answer has one prediction for each."""
    served = service.store.get(model_id)
    config = await service.work(lambda: read_label_config(body.label_config))
    texts = [_text_of(task, config) for task in body.tasks]
    documents: list[DocumentAnswer] = []
    # The app sends all tasks in one request, whatever their number; max_body is its limit.
    most = service.options.max_documents
    for start in range(0, len(texts), most):
        documents += await service.predict(served, texts[start : start + most])
    return json_response({"results": [_prediction(served, config, document) for document in documents]})


@router.post("/webhook", dependencies=[Depends(require("learn"))], responses={201: {"description": "Accepted."}})
async def receive_event(model_id: str, body: dict[str, Any], request: Request, service: AService) -> Response:
    """Write annotations to the journal of corrections, or begin to learn from it."""
    served = service.store.get(model_id)
    action = body.get("action")
    if action == "START_TRAINING":
        job = await service.learn(served)
        return JSONResponse({"result": {"job": job.id}, "status": "ok"}, 201)
    if action not in CORRECTIONS:
        return JSONResponse({"status": "ignored: annotations that are created or updated are corrections"})
    try:
        event = AnnotationEvent.model_validate(body)
    except ValidationError as error:
        raise ProblemError(422, validation_sentence(error.errors())) from None
    corrections = await service.work(lambda: _corrections(served.model.hierarchy_, event))
    result = await service.record(served, corrections, request_id_of(request)) if corrections else None
    return JSONResponse({"result": result, "status": "ok"}, 201)


def _text_of(task: LabelStudioTask, config: LabelConfig) -> str:
    text = task.data.get(config.key)
    if not isinstance(text, str):
        raise TreelabelError(f"task {quote(task.id)}: expected a text in the field {quote(config.key)} of its data")
    return text


def _prediction(served: ServedModel, config: LabelConfig, document: DocumentAnswer) -> dict[str, Any]:
    """Write the labels of a text as a region of the project; its score is the least probability of these labels."""
    labels: dict[tuple[str, ...], float] = {}
    for label in document["labels"]:
        written = config.write(served.model.hierarchy_.path_names(label["node"]))
        if written is not None:
            labels.setdefault(written, label["probability"])
    chosen = list(labels)[: config.most]
    value = [path[-1] for path in chosen] if config.kind == "choices" else [list(path) for path in chosen]
    region = {
        "from_name": config.from_name,
        "to_name": config.to_name,
        "type": config.kind,
        "value": {config.kind: value},
    }
    return {
        "result": [region] if chosen else [],
        "score": min((labels[path] for path in chosen), default=None),
        "model_version": served.version,
    }


def _corrections(hierarchy: Hierarchy, event: AnnotationEvent) -> list[Correction]:
    """Return what annotators said of the labels of tasks; cancelled annotations say nothing."""
    config = read_label_config(event.project.label_config)
    annotations = event.annotation if isinstance(event.annotation, list) else [event.annotation]
    tasks = event.task if isinstance(event.task, list) else [event.task]
    by_id = {task.id: task for task in tasks}
    corrections = []
    for annotation in annotations:
        task = tasks[0] if len(tasks) == 1 else by_id.get(annotation.task)
        regions = [region for region in annotation.result if region.from_name == config.from_name]
        # An annotation of other tags alone says nothing of labels; one without any, that there is none.
        if annotation.was_cancelled or (annotation.result and not regions):
            continue
        if task is None:
            raise TreelabelError(f"expected the task {quote(annotation.task)} of an annotation in the payload")
        text = _text_of(task, config)
        if not text.strip():
            continue
        labels = [label for region in regions for label in _labels(hierarchy, config, region.value)]
        name = f"label-studio/{event.project.id}/{task.id}"
        corrections.append(Correction(text=text, labels=labels, id=name[:1_000], source="label studio"))
    return corrections


def _labels(hierarchy: Hierarchy, config: LabelConfig, value: RegionValue) -> list[LabelRef]:
    """Return the labels of a region; a path that does not begin at the top, or has a wrong parent, is refused."""
    if config.kind == "choices":
        names: Sequence[str] = [value.choices] if isinstance(value.choices, str) else value.choices or []
        return [config.read([name])[0] for name in names]
    paths = [config.read([path] if isinstance(path, str) else path) for path in value.taxonomy or []]
    for path in paths:
        find_label(hierarchy, path, is_full=True)
    return list[LabelRef](paths)


def _require_known_labels(served: ServedModel, config: LabelConfig) -> None:
    """Refuse a project that has no label of the model."""
    if config.written and not any(_is_known(served.model.hierarchy_, config, names) for names in config.written):
        raise TreelabelError(
            f"label config: none of the labels of {quote(config.from_name)} is a label of the model {quote(served.id)}"
        )


def _is_known(hierarchy: Hierarchy, config: LabelConfig, names: Sequence[str]) -> bool:
    # Without this, each of many unknown names would be compared with all names for a suggestion.
    if names[-1].strip() not in hierarchy.ids_by_name:
        return False
    try:
        find_label(hierarchy, names[-1] if config.kind == "choices" else list(names), is_full=config.kind != "choices")
    except TreelabelError:
        return False
    return True
