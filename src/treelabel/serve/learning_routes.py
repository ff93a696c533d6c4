"""Routes on corrections and learning."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request

from treelabel.serve.routes import PROBLEMS, AService, json_response
from treelabel.serve.schemas import (
    FeedbackAnswer,
    FeedbackRequest,
    JobAnswer,
    JobsAnswer,
    ReviewAnswer,
    ReviewRequest,
    VersionAnswer,
    VersionRequest,
)
from treelabel.serve.security import require
from treelabel.serve.service import request_id_of

router = APIRouter(prefix="/v1", responses=PROBLEMS, tags=["learning"])
MAY_PREDICT, MAY_LEARN, MAY_PROMOTE = ([Depends(require(scope))] for scope in ("predict", "learn", "admin"))


@router.post("/models/{model_id}/feedback", response_model=FeedbackAnswer, dependencies=MAY_LEARN)
async def feedback(model_id: str, body: FeedbackRequest, request: Request, service: AService) -> Any:
    """Write corrections to the journal of a model; they are on disk when this answers."""
    served = service.store.get(model_id)
    return json_response(await service.record(served, body.corrections, request_id_of(request)))


@router.post("/models/{model_id}/learn", response_model=JobAnswer, status_code=202, dependencies=MAY_LEARN)
async def learn(model_id: str, service: AService) -> Any:
    """Start to learn from the journal; the job says when another version is there, which `promote` makes current."""
    return json_response((await service.learn(service.store.get(model_id))).answer, 202)


@router.get("/jobs", response_model=JobsAnswer, dependencies=MAY_PREDICT)
async def list_jobs(service: AService) -> Any:
    """List the jobs since the service was started, the newest first."""
    return json_response({"jobs": [job.answer for job in service.jobs.list()]})


@router.get("/jobs/{job_id}", response_model=JobAnswer, dependencies=MAY_PREDICT)
async def describe_job(job_id: str, service: AService) -> Any:
    """Describe a job."""
    return json_response(service.jobs.get(job_id).answer)


@router.post("/models/{model_id}/promote", response_model=VersionAnswer, dependencies=MAY_PROMOTE)
async def promote(model_id: str, service: AService, body: VersionRequest | None = None) -> Any:
    """Make a version current; with an evaluation file, one that is worse beyond chance is refused."""
    served = await service.promote(service.store.get(model_id), None if body is None else body.version)
    return json_response({"model": served.id, "version": served.version})


@router.post("/models/{model_id}/rollback", response_model=VersionAnswer, dependencies=MAY_PROMOTE)
async def roll_back(model_id: str, service: AService) -> Any:
    """Make the version before the current one current again."""
    served = await service.rollback(service.store.get(model_id))
    return json_response({"model": served.id, "version": served.version})


@router.get("/models/{model_id}/review", response_model=ReviewAnswer, dependencies=MAY_LEARN)
async def review_pool(model_id: str, service: AService, limit: Annotated[int, Query(ge=1, le=1_000)] = 20) -> Any:
    """Return the texts of the pool that are most useful to label next, without those that were corrected."""
    return json_response(await service.review(service.store.get(model_id), limit))


@router.post("/models/{model_id}/review", response_model=ReviewAnswer, dependencies=MAY_PREDICT)
async def review_texts(model_id: str, body: ReviewRequest, service: AService) -> Any:
    """Put texts in the order in which it is most useful to label them; they are not stored."""
    return json_response(await service.review(service.store.get(model_id), body.limit, body.texts, body.precision))
