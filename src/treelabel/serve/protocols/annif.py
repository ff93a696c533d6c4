"""Annif's REST API, version 1: a model is a project, and its hierarchy a vocabulary.

Labels go by the URIs of the vocabulary that a model was trained on; one that has none goes by urn:treelabel: and its
path, as in the vocabularies and corpora that treelabel writes for Annif.
"""

from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Form, Query, Request, Response
from pydantic import BaseModel, Field

import treelabel
from treelabel.hierarchy.identifiers import path_of_uri
from treelabel.hierarchy.label_ids import path_uri
from treelabel.serve.model_store import ServedModel
from treelabel.serve.problems import ProblemError, route_with_errors
from treelabel.serve.protocols.ranking import rank_labels
from treelabel.serve.routes import PROBLEMS, AService, json_response
from treelabel.serve.schemas import Correction, LabelText, Probability
from treelabel.serve.security import require
from treelabel.serve.service import Service, request_id_of

MOST_DOCUMENTS = 32
# BCP 47 for a language that is not known: models do not know that of their labels.
LANGUAGE = "und"

Limit = Annotated[int, Field(ge=0, le=1 << 31)]


def _answer_problem(problem: ProblemError) -> Response:
    """Answer what is wrong with a request as Annif does, with 400."""
    status = 400 if problem.status == 422 else problem.status
    return ProblemError(status, problem.detail, problem.headers).response()


router = APIRouter(
    prefix="/v1",
    dependencies=[Depends(require("predict"))],
    route_class=route_with_errors(_answer_problem),
    responses=PROBLEMS,
    tags=["Annif"],
)


class AnnifDocument(BaseModel):
    """A document to index; what else it has is not looked at."""

    text: str
    document_id: str | None = None


class AnnifBatch(BaseModel):
    """Documents to index."""

    documents: Annotated[list[AnnifDocument], Field(max_length=MOST_DOCUMENTS)]


class AnnifSubject(BaseModel):
    """A subject of a document."""

    uri: LabelText


class IndexedDocument(BaseModel):
    """A document with its right subjects; one without text or subjects is passed over, as Annif does."""

    text: str = ""
    subjects: Annotated[list[AnnifSubject] | None, Field(max_length=1_000)] = None


class LanguageRequest(BaseModel):
    """A text whose language to detect."""

    text: str
    languages: Annotated[list[Annotated[str, Field(min_length=2, max_length=3)]], Field(min_length=1, max_length=5)]


@router.get("/")
async def show_info() -> dict[str, str]:
    """Return the name and the version of the service."""
    return {"title": "Annif REST API by treelabel", "version": treelabel.__version__}


@router.get("/vocabs")
async def list_vocabs(service: AService) -> dict[str, Any]:
    """List the hierarchies of the models."""
    return {"vocabs": [_vocab(served) for served in service.store]}


@router.get("/projects")
async def list_projects(service: AService) -> dict[str, Any]:
    """List the models as projects."""
    return {"projects": [_project(served) for served in service.store]}


@router.get("/projects/{project_id}")
async def show_project(project_id: str, service: AService) -> dict[str, Any]:
    """Describe a model as a project."""
    return _project(_find(service, project_id))


@router.post("/projects/{project_id}/suggest")
async def suggest(
    project_id: str,
    request: Request,
    service: AService,
    text: Annotated[str, Form()] = "",
    limit: Annotated[Limit, Form()] = 10,
    threshold: Annotated[Probability, Form()] = 0.0,
) -> Any:
    """Suggest subjects for a text."""
    # FastAPI takes an empty field for a missing one.
    if "text" not in await request.form():
        raise ProblemError(400, "text: Field required")
    [results] = await _suggest(service, _find(service, project_id), [text], limit, threshold)
    return json_response({"results": results})


@router.post("/projects/{project_id}/suggest-batch")
async def suggest_batch(
    project_id: str,
    service: AService,
    body: AnnifBatch,
    limit: Annotated[Limit, Query()] = 10,
    threshold: Annotated[Probability, Query()] = 0.0,
) -> Any:
    """Suggest subjects for up to 32 documents."""
    texts = [document.text for document in body.documents]
    lists = await _suggest(service, _find(service, project_id), texts, limit, threshold)
    named = zip(body.documents, lists, strict=True)
    return json_response([{"document_id": document.document_id, "results": results} for document, results in named])


@router.post("/projects/{project_id}/learn", status_code=204, dependencies=[Depends(require("learn"))])
async def learn(
    project_id: str,
    service: AService,
    request: Request,
    body: Annotated[list[IndexedDocument], Field(max_length=1_000)],
) -> Response:
    """Write documents with their subjects to the journal of corrections, from which a model learns when told to."""
    served = _find(service, project_id)
    corrections = [
        Correction(
            text=each.text,
            labels=[path_of_uri(subject.uri) or subject.uri for subject in each.subjects],
            source="annif",
        )
        for each in body
        if each.text and each.subjects is not None
    ]
    await service.record(served, corrections, request_id_of(request))
    return Response(status_code=204)


@router.post("/detect-language", include_in_schema=False)
async def detect_language(body: LanguageRequest) -> Response:
    """Refuse to detect a language, as Annif does for languages that it does not know."""
    raise ProblemError(400, "unsupported candidate languages: this service detects none")


async def _suggest(
    service: Service, served: ServedModel, texts: Sequence[str], limit: int, threshold: float
) -> list[list[dict[str, Any]]]:
    if limit == 0 or not texts:
        return [[] for _ in texts]
    h = served.model.hierarchy_
    return [
        [
            {
                "uri": label["uri"] or path_uri(h, label["node"]),
                "label": label["label"],
                "notation": label["notation"],
                "score": label["probability"],
                "path": label["path"],
            }
            for label in labels
            if label["probability"] >= threshold
        ]
        for labels in await rank_labels(service, served, texts, limit)
    ]


def _find(service: Service, project_id: str) -> ServedModel:
    try:
        return service.store.get(project_id)
    except ProblemError as error:
        raise ProblemError(error.status, f"Project '{project_id[:100]}' not found") from None


def _project(served: ServedModel) -> dict[str, Any]:
    modified = None
    # A folder may be replaced at this very moment.
    with suppress(OSError):
        seconds = (served.folder / "model.json").stat().st_mtime
        modified = datetime.fromtimestamp(seconds, UTC).isoformat()
    return {
        "project_id": served.id,
        "name": served.id,
        "language": LANGUAGE,
        "backend": {"backend_id": f"treelabel {served.model.name}"},
        "vocab": _vocab(served),
        "vocab_language": LANGUAGE,
        "is_trained": True,
        "modification_time": modified,
    }


def _vocab(served: ServedModel) -> dict[str, Any]:
    size = len(served.model.hierarchy_)
    return {"vocab_id": served.id, "languages": [LANGUAGE], "size": size, "loaded": True}
